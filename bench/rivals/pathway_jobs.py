"""The jobs of bench/peers.py in Pathway: session windows per user, and sorting per user for the click
before.

Pathway keeps every result up to date under changes of its input, which none of the jobs asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Any

import pathway as pw
import pyarrow as pa
from jobs import DYNAMIC_BELOW, LIMIT, ORDER_BELOW, TIMEOUT


class Click(pw.Schema):
    ts: int
    u: int
    v: int
    r: int


def near(a: int, b: int) -> bool:
    """Two clicks of a user, one behind the other, are of one session."""
    return b - a <= TIMEOUT


@pw.udf
def pairs(items: tuple[int, ...]) -> list[tuple[int, int]]:
    """All pairs of the distinct items of a session, which come sorted."""
    return list(itertools.combinations(dict.fromkeys(items), 2))


def prepare(engine: str, job: str, table: pa.Table) -> Callable[[], Any]:
    """The job over the rows as a data frame."""
    frame = table.rename_columns(["ts", "u", "v"]).to_pandas()
    frame["r"] = range(len(frame))

    def run() -> Any:
        pw.internals.parse_graph.G.clear()
        clicks = pw.debug.table_from_pandas(frame, schema=Click)
        if job == "speed":
            with_before = clicks + clicks.sort(key=pw.this.r, instance=pw.this.u)
            before = clicks.ix(with_before.prev, optional=True)
            out = with_before.select(
                pw.this.r, pw.this.ts, pw.this.u, v=pw.this.v, ts0=before.ts, v0=before.v
            )
            found = pw.debug.table_to_pandas(out, include_id=False).sort_values("r")
            step, gap = (
                found[a].astype("float64") - found[b].astype("float64")
                for a, b in (("v", "v0"), ("ts", "ts0"))
            )
            return found["ts"].astype("int64"), found["u"].astype("int64"), step / gap
        windows = clicks.windowby(pw.this.ts, window=pw.temporal.session(predicate=near), instance=pw.this.u)
        if job == "q2":
            sessions = windows.reduce(items=pw.reducers.sorted_tuple(pw.this.v))
            each = sessions.select(pair=pairs(pw.this.items)).flatten(pw.this.pair)
            counts = each.groupby(pw.this.pair).reduce(pw.this.pair, n=pw.reducers.count())
            found = pw.debug.table_to_pandas(counts, include_id=False)
            triples = [(*pair, n) for pair, n in zip(found["pair"], found["n"], strict=True)]
            return sorted(triples, key=lambda one: (-one[2], one[:2]))[:LIMIT]
        page = pw.this.v
        sessions = windows.reduce(
            n=pw.reducers.count(),
            dynamic=pw.reducers.max(pw.if_else(page < DYNAMIC_BELOW, 1, 0)),
            ordered=pw.reducers.max(pw.if_else((page >= DYNAMIC_BELOW) & (page < ORDER_BELOW), 1, 0)),
        )
        kept = sessions.filter((pw.this.dynamic == 1) & (pw.this.ordered == 0))
        total = kept.reduce(clicks=pw.reducers.sum(pw.this.n), sessions=pw.reducers.count())
        return pw.debug.table_to_pandas(total, include_id=False)[["clicks", "sessions"]].itertuples(
            index=False
        )

    return run


def version(engine: str) -> str:
    """Installed version."""
    return installed("pathway")
