"""What every peer of bench/peers.py is given: columns of the clicks, parameters of the jobs, and the check
of an answer.

Needs NumPy and PyArrow only: peers that live in an environment of their own import it as well.

Q2: pairs of distinct items in one session of a user (a gap of more than an hour ends it), the 30 most
frequent: triples. Q4: sessions with a "dynamic" page and no "order" page: [(their clicks, their number)].
speed: every click in order, as (ts, user, items per second since the user's click before): three arrays. It
is the quotient of two float64, so infinite or NaN within one second; NaN or null at a user's first click.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather

TIMEOUT, LIMIT = 3600, 30
DYNAMIC_BELOW, ORDER_BELOW = 6, 9
COLUMNS = {
    "q2": {"ts": "ts", "u": "wcs_user_sk", "i": "wcs_item_sk"},
    "q4": {"ts": "ts", "u": "wcs_user_sk", "p": "wcs_web_page_sk"},
    "speed": {"ts": "ts", "u": "wcs_user_sk", "i": "wcs_item_sk"},
}
"""Per job: short name -> column of the clicks. No nulls."""


def loaded(job: str, path: str | Path) -> pa.Table:
    """The job's columns under their short names, each in one piece, in memory."""
    names = COLUMNS[job]
    table = pyarrow.feather.read_table(path, columns=list(names.values()), memory_map=False)
    return table.select(list(names.values())).rename_columns(list(names)).combine_chunks()


def speeds(table: pa.Table) -> np.ndarray:
    """The speed of every click, by a stable sort by user: a path of its own, to check the others."""
    ts, user, item = (table[name].to_numpy() for name in ("ts", "u", "i"))
    order = np.argsort(user, kind="stable")
    found = np.full(len(ts), np.nan)
    with np.errstate(all="ignore"):
        moved = np.diff(item[order]).astype(np.float64) / np.diff(ts[order]).astype(np.float64)
    found[order[1:]] = np.where(np.diff(user[order]) == 0, moved, np.nan)
    return found


def check(job: str, answer: Any, table: pa.Table, expected: str | Path) -> None:
    """Compare an answer with the expected one (JSON for Q2 and Q4; `speeds` for the rows of the speed
    job).
    """
    if job != "speed":
        found = [[int(value) for value in row] for row in answer]
        right = json.loads(Path(expected).read_text())[job]
        if found != right:
            raise AssertionError(f"{job}: {found[:3]}, expected {right[:3]}")
        return
    for name, got, right in zip(
        ("ts", "u", "speed"),
        answer,
        (table["ts"].to_numpy(), table["u"].to_numpy(), speeds(table)),
        strict=True,
    ):
        column = numbers(got)
        if not np.array_equal(column, right, equal_nan=name == "speed"):
            raise AssertionError(
                f"speed: column {name} differs: {column[:5]}, expected {right[:5]}; {len(column)} of "
                f"{len(right)} rows"
            )


def numbers(column: Any) -> np.ndarray:
    """Arrow, pandas, Polars or NumPy as NumPy; null is NaN."""
    if isinstance(column, pa.ChunkedArray | pa.Array):
        return column.to_numpy() if column.null_count == 0 else column.to_pandas().to_numpy()
    return column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)


def quotient(step: float, gap: float) -> float:
    """IEEE division, for pure Python."""
    if gap:
        return step / gap
    return step * float("inf") if step else float("nan")
