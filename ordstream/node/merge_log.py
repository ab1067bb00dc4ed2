"""Which source each row of a merge came from: what a run of several sources has chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.errors import PlanError

SCHEMA = pa.schema([("source", pa.string()), ("rows", pa.int64())])


class MergeLog:
    """A list of (source, rows), in the order of the merge. Written by one thread.

    Parameters
    ----------
    names : sequence of str
        Of the sources.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._sources: list[npt.NDArray[np.int64]] = []
        self._rows: list[npt.NDArray[np.int64]] = []

    def add(self, sources: npt.NDArray[np.int64]) -> None:
        """Rows of these sources (numbers) come next."""
        ends = np.append(np.flatnonzero(np.diff(sources)) + 1, len(sources))
        self._sources.append(sources[ends - 1])
        self._rows.append(np.diff(ends, prepend=0))

    @property
    def table(self) -> pa.Table:
        """Columns source and rows. Runs of one source may be split."""
        sources = np.concatenate([*self._sources, np.empty(0, np.int64)])
        rows = np.concatenate([*self._rows, np.empty(0, np.int64)])
        names = pa.array(self._names, pa.string()).take(pa.array(sources))
        return pa.Table.from_arrays([names, pa.array(rows)], schema=SCHEMA)


def choices(log: Any, names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(number of the source, rows) of a log's table.

    Raises
    ------
    PlanError
        It is no log of these sources.
    """
    if not isinstance(log, pa.Table) or not log.schema.equals(SCHEMA):
        raise PlanError(f"merge_log must be the table of a run's merge_log, got {type(log).__name__}")
    strange = sorted(set(log["source"].to_pylist()) - set(names))
    if strange:
        raise PlanError(f"merge_log is of other sources: it has {strange[0]!r}")
    for source, rows in zip(log["source"].to_pylist(), log["rows"].to_pylist(), strict=True):
        yield names.index(source), rows
