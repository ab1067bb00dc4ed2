"""Which source each row of a merge came from: what a run of several sources has chosen."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.errors import OperatorError, SourceError
from ordstream.plan.sources import MERGE_LOG

# A run of rows takes 8 bytes: number of the source, rows. Longer ones are written as several.
ENTRY = np.dtype([("source", np.uint32), ("rows", np.uint32)])
# Parts, of a batch each, that become one array: an array of a few entries takes more than they do.
PARTS = 256
# Of so many rows, sources that mostly take turns are kept as they are, a number per row.
LEAST_TURNS = 4096


class MergeLog:
    """A list of (source, rows), in the order of the merge; it grows by 8 bytes per run of one source, and by
    less, one per row, where rows of large batches take turns.

    Thread safety: one thread adds, any thread reads or takes.

    Parameters
    ----------
    names : sequence of str
        Of the sources.

    Attributes
    ----------
    passed : set of str
        Sources that rows of others have passed, since they said nothing for as long as `idle`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.passed: set[str] = set()
        self._taken = 0  # rows that were taken
        self._whole: list[npt.NDArray[Any]] = []  # entries, or a number per row
        self._parts: list[npt.NDArray[Any]] = []  # entries
        self._lock = threading.Lock()

    def add(self, sources: npt.NDArray[Any]) -> None:
        """Rows of these sources (numbers, at least one; the log may keep the array) come next."""
        rows = len(sources)
        turns = np.count_nonzero(sources[1:] != sources[:-1]) if rows >= LEAST_TURNS else 0
        if turns * ENTRY.itemsize > rows * sources.itemsize:
            with self._lock:
                if self._parts:
                    self._whole.append(np.concatenate(self._parts))
                self._parts = []
                self._whole.append(sources)
            return
        entries = _entries(sources)
        with self._lock:
            last = self._parts[-1][-1:] if self._parts else entries[:0]
            if len(last) and last["source"][0] == entries["source"][0]:
                together = int(last["rows"][0]) + int(entries["rows"][0])
                if together <= np.iinfo(np.uint32).max:
                    last["rows"] = together
                    entries = entries[1:].copy()
            if len(entries):
                self._parts.append(entries)
            if len(self._parts) > PARTS:
                self._whole.append(np.concatenate(self._parts[:-1]))
                del self._parts[:-1]

    @property
    def forgot(self) -> bool:
        """Whether rows were taken: those that it has are not all."""
        return self._taken > 0

    @property
    def table(self) -> pa.Table:
        """Columns source and rows, since the last `take`. Runs of one source may be split."""
        with self._lock:
            found = [*self._whole, *(part.copy() for part in self._parts)]
        return self._as_table(found)

    def take(self) -> pa.Table:
        """What `table` says, which the log then forgets: for a stream that does not end. Tables that were
        taken one after another make one log together (`pyarrow.concat_tables`).
        """
        with self._lock:
            found = [*self._whole, *self._parts]
            self._whole, self._parts = [], []
            self._taken += sum(map(_rows, found))
        return self._as_table(found)

    def source_of(self, row: int) -> tuple[str, int] | None:
        """The source of a row of the merge, from 1, and how many of its rows the log has up to it; None: the
        log was taken, or does not go so far.
        """
        with self._lock:
            left = row - self._taken
            parts = [*self._whole, *self._parts] if left > 0 else []
            for at, part in enumerate(parts):
                rows = _rows(part)
                if left <= rows:
                    number = _source_in(part, left)
                    own = sum(_rows_of(number, one, _rows(one)) for one in parts[:at])
                    return self._names[number], own + _rows_of(number, part, left)
                left -= rows
        return None

    def _as_table(self, found: list[npt.NDArray[Any]]) -> pa.Table:
        found = [part if part.dtype == ENTRY else _entries(part) for part in found]
        entries = np.concatenate([*found, np.empty(0, ENTRY)])
        names = pa.array(self._names, pa.string()).take(pa.array(entries["source"]))
        return pa.Table.from_arrays([names, pa.array(entries["rows"].astype(np.int64))], schema=MERGE_LOG)


def _entries(sources: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Runs of one source, of a number per row."""
    ends = np.append(np.flatnonzero(sources[1:] != sources[:-1]) + 1, len(sources))
    entries = np.empty(len(ends), ENTRY)
    entries["source"], entries["rows"] = sources[ends - 1], np.diff(ends, prepend=0)
    return entries


def _rows(part: npt.NDArray[Any]) -> int:
    return int(part["rows"].sum(dtype=np.int64)) if part.dtype == ENTRY else len(part)


def _source_in(part: npt.NDArray[Any], row: int) -> int:
    """The number of the source of a row, from 1."""
    if part.dtype != ENTRY:
        return int(part[row - 1])
    return int(part["source"][np.searchsorted(np.cumsum(part["rows"], dtype=np.int64), row)])


def _rows_of(number: int, part: npt.NDArray[Any], first: int) -> int:
    """How many of the first rows of a part are of a source."""
    if part.dtype != ENTRY:
        return int(np.count_nonzero(part[:first] == number))
    ends = np.minimum(np.cumsum(part["rows"], dtype=np.int64), first)
    return int(np.diff(ends, prepend=0)[part["source"] == number].sum())


def log_of(data: Any) -> MergeLog | None:
    """Of a merge of several sources, which are the data of a run; None: they are one, or it keeps none."""
    log = getattr(data, "log", None)
    return log if isinstance(log, MergeLog) else None


def of_source(failure: BaseException | None, log: MergeLog | None, begun: int) -> BaseException | None:
    """The failure of a run, which says of a tuple which one of several sources it is of.

    Parameters
    ----------
    failure : exception or None
    log : MergeLog or None
        Of the run.
    begun : int
        Tuples before the first one of the log.
    """
    if log is None or not isinstance(failure, OperatorError | SourceError) or not failure.serial:
        return failure
    if isinstance(failure, OperatorError) and failure.row is None:  # at the end: no tuple has failed
        return failure
    found = log.source_of(failure.serial - begun)
    if found is not None:
        name, row = found
        line = f"source: {name!r}"
        if name in log.passed and "runs backwards" in str(failure):
            line += ", which idle= did not wait for, so that rows of others came before: give a longer idle="
        elif begun == 0 and not log.forgot:
            line += f", its row {row}"
        failure.args = (f"{failure}\n  {line}", *failure.args[1:])
    return failure
