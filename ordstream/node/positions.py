"""Where a source stands, and how it gets there again: what lies in a snapshot beside the states.

A source that can go back is an iterable of record batches with two methods::

    position()       a JSON value: the place behind the last batch that was handed out
    seek(position)   iterating begins there, the next time

A snapshot lies between two tuples, which may be in the middle of a batch. `Positions` stands between the
source and the feeder: it counts the tuples that pass, and says of a serial which batch to begin at and how
many rows of it to skip.
"""

from __future__ import annotations

import copy
import json
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from ordstream.errors import OrdstreamError, PlanError, SourceError, told
from ordstream.node import source
from ordstream.node.file_sources import HandsOn
from ordstream.node.rows_before import digests, other_column

#: So many places of a source are kept before it is asked which of them are needed.
MANY = 64
ADVICE = (
    "give a pyarrow Table, a RecordBatch or a list of them, od.ParquetSource(paths), od.IpcSource(paths), "
    "or an iterable of record batches with position() -> JSON value (the place behind the last batch that "
    "it gave) and seek(position)"
)


@runtime_checkable
class Seekable(Protocol):
    """A source that says where it stands and can go back there."""

    def __iter__(self) -> Iterator[Any]:
        """Batches from the place that was sought last; without one, from the start."""
        ...

    def position(self) -> Any:
        """A JSON value: the place behind the last batch that was handed out; before the first one, where
        iterating begins.
        """
        ...

    def seek(self, position: Any) -> None:
        """Iterating begins at this place, the next time."""
        ...


class MemorySource:
    """Arrow data in memory, with positions: the number of rows before.

    Parameters
    ----------
    data : pyarrow.Table, pyarrow.RecordBatch, or list or tuple of these
    alone : bool, default False
        Errors tell how rows that follow a position go on without those in front of it.
    """

    def __init__(self, data: Any, alone: bool = False) -> None:
        self._advice = "give all of the data that the snapshot was taken of, and what follows it"
        if alone:
            self._advice += (
                ". What follows alone goes on with restore=od.Checkpoint(folder).latest() and no checkpoint="
            )
        self._batches = list(source.batches_of(data))
        self._rows = sum(batch.num_rows for batch in self._batches)
        self._start = self._row = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._row = self._start
        return self._from(self._start)

    def _from(self, start: int) -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in self._batches:
            behind = first + batch.num_rows
            if behind > start or not self._rows:  # without rows the batches only tell a schema
                self._row = behind
                yield batch.slice(max(start - first, 0))
            first = behind

    def position(self) -> int:
        """Rows before the next batch."""
        return self._row

    def seek(self, position: Any) -> None:
        """Go on behind so many rows.

        Raises
        ------
        SourceError
            There are not so many.
        """
        if not _is_count(position):
            raise SourceError(
                f"the snapshot's position is {position!r}, but a table's is a number of rows: give the "
                "source that the snapshot was taken of"
            )
        if position > self._rows:
            raise SourceError(
                f"the snapshot lies behind {position} rows of the source, but this one has {self._rows}: "
                f"{self._advice}"
            )
        self._start = self._row = position

    def before(self, rows: int) -> dict[str, str]:
        """What tells the last of the first `rows` rows from others: `rows_before.digests`."""
        return digests(self._batches, rows)

    def check_before(self, rows: int, told: Any) -> None:
        """SourceError where the rows in front of a position are not those that `before` told of."""
        if rows > self._rows:
            self.seek(rows)
        if not isinstance(told, dict):
            return
        column = other_column(told, self._batches, rows)
        if column is not None:
            raise SourceError(
                f"the snapshot lies behind {rows} rows of the source, the last of which had other values "
                f"in column {column!r}: {self._advice}"
            )


def seekable(data: Any, alone: bool = False) -> Seekable:
    """A source as one that can go back. `alone`: as for `MemorySource`.

    Raises
    ------
    PlanError
        It can't. The message says what to give, or to write.
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return MemorySource(data, alone)
    if isinstance(data, list | tuple):
        for item in data:
            if not isinstance(item, pa.Table | pa.RecordBatch) and not hasattr(item, "__arrow_c_array__"):
                raise PlanError(
                    f"a checkpoint needs a source that can go back, and this list holds "
                    f"{type(item).__name__}, which may be read only once{_made_a_table(item, 'item')}: "
                    f"{ADVICE}"
                )
        return MemorySource(data, alone)
    lacks = [name for name in ("position", "seek") if not callable(getattr(data, name, None))]
    if not lacks and not isinstance(data, Iterable):
        lacks = ["__iter__"]
    if lacks:
        raise PlanError(
            f"a checkpoint needs a source that can go back, and {type(data).__name__} has no "
            f"{' and no '.join(f'{name}()' for name in lacks)}{_made_a_table(data, 'data')}: {ADVICE}"
        )
    found: Seekable = data
    return found


def _made_a_table(data: Any, name: str) -> str:
    """The shortest way for a frame of Polars or pandas, or a relation of DuckDB, whose rows are at hand."""
    if not hasattr(data, "__arrow_c_stream__"):
        return ""
    return f" (where its rows fit into memory, pyarrow.table({name}) is one that can)"


class Positions(HandsOn):
    """A source on its way into a run, with the place of every serial that is still in it.

    One thread iterates; `at` and `forget` may be called by others.

    Parameters
    ----------
    data : Arrow data, or a source with position() and seek()
    serial : int
        Tuples before the first that comes from here.
    start : Any
        What `at(serial)` said when the source was read before; None: from where the source stands.
    alone : bool, default False
        As for `MemorySource`.

    Raises
    ------
    PlanError
        The source can't go back.
    SourceError
        It can't go to `start`.

    Attributes
    ----------
    before : int
        Tuples before the first that is read again, to be skipped.
    """

    def __init__(self, data: Any, serial: int = 0, start: Any = None, alone: bool = False) -> None:
        self.source = seekable(data, alone)
        self._begin = serial
        self._skip = 0
        if start is not None:
            place, self._skip = _parsed(start)
            _asked(self.source, "seek", _own(place))
            if isinstance(self.source, MemorySource):
                self.source.check_before(place + self._skip, start.get("before"))
        self.before = serial - self._skip
        # Begun here, so that there is a place before the first batch.
        self._items = iter(_asked(self.source, "__iter__"))
        self._lock = threading.Lock()
        # Ascending: serial of the first row from a place on, and the place. Rows to skip have serials too,
        # up to `serial`.
        self._next = serial - self._skip + 1
        self._firsts = [self._next]
        self._places = [_own(_asked(self.source, "position") if start is None else place)]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches, without the rows to skip; zero-copy. Once."""
        skip = self._skip
        for item in self._items:
            counted = isinstance(item, pa.RecordBatch | pa.Table)
            if counted:  # before its rows are asked for: behind them the place is known
                self._note(self._next + item.num_rows)
            for batch in source.batches_of([item]):
                self._next += batch.num_rows
                skipped = min(skip, batch.num_rows)
                skip -= skipped
                if not skipped or skipped < batch.num_rows:
                    yield batch.slice(skipped) if skipped else batch
            if not counted:
                self._note(self._next)
        if skip:
            raise SourceError(
                f"the snapshot lies {skip} rows behind the end of the source: it is shorter than when the "
                "snapshot was taken"
            )

    def _note(self, first: int) -> None:
        """What comes next from the source has this serial."""
        place = _own(_asked(self.source, "position"))
        with self._lock:
            if self._firsts and self._firsts[-1] == first:
                self._places[-1] = place
            else:
                self._firsts.append(first)
                self._places.append(place)

    def at(self, serial: int) -> dict[str, Any]:
        """The place behind a tuple, as a JSON value for `Snapshot.position`.

        Raises
        ------
        LookupError
            The tuple did not come from here, or was forgotten.
        SourceError
            The source's own position is no JSON value.
        """
        with self._lock:
            number = bisect_right(self._firsts, serial + 1) - 1
            if number < 0 or not self._begin <= serial < max(self._next, self._begin + 1):
                raise LookupError(f"serial {serial} is not in what the source has given")
            place, rows = self._places[number], serial + 1 - self._firsts[number]
        try:
            same = json.loads(json.dumps(place, allow_nan=False)) == place
        except (TypeError, ValueError):
            same = False
        if not same:
            raise SourceError(
                f"{type(self.source).__name__}.position() gave {place!r:.200}, which is no JSON value: "
                "give numbers, strings, lists and dicts with string keys"
            )
        found = {"source": place, "rows": rows}
        told = self.source.before(place + rows) if isinstance(self.source, MemorySource) else None
        return {**found, "before": told} if told else found

    @property
    def many(self) -> bool:
        """Whether there are so many places that it is worth while to ask which of them are needed."""
        return len(self._firsts) > MANY

    def forget(self, serial: int) -> None:
        """No place before this tuple's is asked for any more."""
        with self._lock:
            behind = bisect_right(self._firsts, serial + 1) - 1
            if behind > 0:
                del self._firsts[:behind], self._places[:behind]


def _parsed(value: Any) -> tuple[Any, int]:
    fits = isinstance(value, dict) and {"source", "rows"} <= set(value) <= {"source", "rows", "before"}
    if not fits or not _is_count(value["rows"]):
        raise SourceError(f"a position is {{'source': ..., 'rows': number}}, got {value!r:.200}")
    return value["source"], value["rows"]


def _own(place: Any) -> Any:
    """A place that stays as it is: a source may go on to change the list or dict that it gave, or was given,
    and a snapshot is taken of the place later.
    """
    if not isinstance(place, dict | list):
        return place
    try:
        return copy.deepcopy(place)
    except Exception:  # something else is in it; `at` says that it is no JSON value
        return place


def _asked(found: Seekable, method: str, *values: Any) -> Any:
    """Call a method of the user's."""
    try:
        return getattr(found, method)(*values)
    except OrdstreamError:
        raise
    except Exception as error:
        given = ", ".join(f"{value!r:.200}" for value in values)
        raise SourceError(f"{type(found).__name__}.{method}({given}) failed: {told(error)}") from error


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
