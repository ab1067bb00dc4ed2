"""Several sources as one: rows in the order of a column that all have, ties by source, then position.

Of the sources' next rows the one with the smallest value comes next; among equal ones that of the source
named first. So each source keeps its own order, also where its values fall, and memory is bounded: a source
is asked for its next batch only when the merge can't go on without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream._core.ground import arrow as core_arrow
from ordstream.errors import OrdstreamError, PlanError, SourceError, told
from ordstream.ground.duration import nanoseconds
from ordstream.ground.user_code import place_of
from ordstream.node import source
from ordstream.node.merge_log import MergeLog
from ordstream.node.positions import Positions
from ordstream.node.reading import Reading
from ordstream.node.worker_threads import BLOCKED_SOURCE_S
from ordstream.plan.outputs import Output
from ordstream.plan.sources import data_of_each, merge_choices


@dataclass
class _Waiting:
    """Rows of a source that are not merged yet.

    Attributes
    ----------
    batches : iterator of record batches
    index : int
        Of the merge column.
    rows : RecordBatch or None
        None: none is there.
    keys : array
        Of each row: the largest value so far. It never falls, and a merge by it is that of the rows as they
        come.
    reading : Reading or None
        Where it may be given up on: the batches, read on a thread of their own.
    silent : bool
        It has said nothing for so long that the others don't wait for it.
    lacks_since : float
        Since when the merge waits for it; 0: it does not.
    ended : bool
    taken : int
        Rows that do not wait any more.
    latest : int
        The largest value that was read.
    """

    name: str
    batches: Iterator[pa.RecordBatch]
    index: int
    rows: pa.RecordBatch | None = None
    keys: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    reading: Reading | None = None
    silent: bool = False
    lacks_since: float = 0.0
    ended: bool = False
    taken: int = 0
    latest: int = -(1 << 63)

    @property
    def holds_back(self) -> bool:
        """Whether the merge must wait for it."""
        return not self.ended and not len(self.keys) and not self.silent

    def read(self) -> None:
        """The next batch; no row waits."""
        self.silent, self.lacks_since = False, 0.0
        try:
            batch = next(self.batches, None)
        except SourceError as error:
            raise SourceError(f"source {self.name!r}: {error}") from error.__cause__
        except (OrdstreamError, MemoryError):
            raise
        except Exception as error:
            text = f"source {self.name!r}: it failed after {self.taken} tuples: {told(error)}"
            place = place_of(error)
            raise SourceError(f"{text}\n  at: {place}" if place else text) from error
        if batch is None:
            self.ended = True
            return
        column = batch.column(self.index)
        if column.null_count:
            row = self.taken + column.is_null().to_pylist().index(True) + 1
            name = batch.schema.names[self.index]
            raise SourceError(f"source {self.name!r}: {name!r}, by which it is merged, is null in row {row}")
        keys = np.maximum.accumulate(_numbers(column))
        self.rows, self.keys = batch, keys if keys[0] >= self.latest else np.maximum(keys, self.latest)
        self.latest = int(self.keys[-1])

    def take(self, count: int) -> pa.RecordBatch:
        """The first rows that wait, which do so no longer."""
        assert self.rows is not None
        found = self.rows.slice(0, count)
        self.rows, self.keys = self.rows.slice(count), self.keys[count:]
        self.taken += count
        return found


class MergedSources:
    """The rows of several sources as batches of their wide schema (`ordstream.plan.sources`); iterated once.

    Where all sources can go back it says where it stands and goes there, as `ordstream.node.positions`
    asks: to the same rows, in the same order.

    Parameters
    ----------
    data : mapping of str to Arrow data
        Ties come in its order.
    ways : sequence of Output
        Of each source: its name, schema and columns of the wide rows, in the order of the plan.
    wide : pyarrow.Schema
    merge_by : sequence of str
        The column of each, in the order of the plan.
    idle : str or timedelta, optional
        A live source that has given nothing for so long holds the others back no more; its rows come when
        they are there. What was chosen is in `log`.
    log : pyarrow.Table or False, optional
        Of an earlier run: choose as it says, and behind its end by the values. False: keep none.

    Attributes
    ----------
    log : MergeLog or None

    Raises
    ------
    PlanError
        Another source than those of the plan is given, or one is missing; the log is none of these sources.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        ways: Sequence[Output],
        wide: pa.Schema,
        merge_by: Sequence[str],
        idle: Any = None,
        log: Any = None,
    ) -> None:
        names = [way.name for way in ways]
        self._data = data_of_each(names, data)
        self.live = any(source.is_live(one) for one in data.values())
        self._merge_by = dict(zip(names, merge_by, strict=True))
        self._ways = {
            name: (number, way) for number, (name, way) in enumerate(zip(names, ways, strict=True))
        }
        self._wide = core_arrow.core_schema(wide)
        self._idle = None if idle is None else float(nanoseconds(idle, "idle")) / 1e9
        if self._idle is not None and self._idle < 0:
            raise PlanError(f"idle must not be negative, got {idle!r}")
        self._came = threading.Condition()
        self.log = None if log is False else MergeLog(names)
        self._chosen = None if log is None or log is False else [*merge_choices(log, names)]
        self._sources: list[_Waiting] = []
        self._positions: list[Positions] = []

    def position(self) -> dict[str, Any]:
        """Where each source stands: a JSON value.

        Raises
        ------
        PlanError
            A source can't go back.
        """
        if self._idle is not None or self._chosen is not None:
            raise PlanError(
                "idle= and merge_log= can't be combined with snapshots: behind one the merge would choose "
                "anew"
            )
        if not self._sources:
            self._begin(None)
        places = []
        for one, positions in zip(self._sources, self._positions, strict=True):
            places.append([one.name, positions.at(one.taken)])
            positions.forget(one.taken)
        return {"merge_by": self._merged_by(), "sources": places}

    def _merged_by(self) -> str | dict[str, str]:
        """The column that all have, or that of each."""
        first, *others = set(self._merge_by.values())
        return dict(self._merge_by) if others else first

    def seek(self, position: Any) -> None:
        """Go to where `position` said.

        Raises
        ------
        SourceError
            The position is that of other sources, or of another order among them.
        """
        names = list(self._data)
        try:
            same = [one[0] for one in position["sources"]] == names
            same = same and position["merge_by"] == self._merged_by()
        except (TypeError, KeyError, IndexError):
            same = False
        if not same:
            raise SourceError(
                f"the snapshot's position is {position!r:.200}, but the sources are {', '.join(names)}, "
                f"merged by {self._merged_by()!r}: give the sources that the snapshot was taken of, in "
                "their order"
            )
        # Between two batches of the merge no row that waits or comes has to know of a larger one before it.
        self._begin([one[1] for one in position["sources"]])

    def _begin(self, places: Sequence[Any] | None) -> None:
        """Begin at these places, or at the start, and know where the sources stand."""
        self._positions = []
        for number, (name, one) in enumerate(self._data.items()):
            try:
                self._positions.append(Positions(one, 0, None if places is None else places[number]))
            except SourceError as error:
                raise SourceError(f"source {name!r}: {error}") from error.__cause__
        self._open(self._positions)

    def _open(self, data: Iterable[Any]) -> None:
        self._sources = []
        for name, one in zip(self._data, data, strict=True):
            schema = self._ways[name][1].schema
            without_nulls = [i for i, f in enumerate(schema) if not f.nullable]
            batches = source.batches(one, core_arrow.core_schema(schema), without_nulls)
            waiting = _Waiting(name, batches, schema.get_field_index(self._merge_by[name]))
            if self._idle is not None and source.is_live(one):
                waiting.batches = waiting.reading = Reading(batches, self._came)
            self._sources.append(waiting)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if not self._sources:
            self._open(self._data.values())
        try:
            yield from self._as_chosen()
            while True:
                for one in self._sources:
                    if one.silent and one.reading is not None and one.reading.ready:
                        one.read()
                counts = self._ready()
                if sum(counts):
                    yield self._merged(counts)
                elif not self._wait():
                    return
        finally:
            readings = [one.reading for one in self._sources if one.reading is not None]
            for reading in readings:
                reading.leave()
            until = time.monotonic() + BLOCKED_SOURCE_S
            for reading in readings:
                reading.join(until - time.monotonic())

    def _wait(self) -> bool:
        """Go on to rows that can be merged, or to one source less to wait for. False: all have ended."""
        lacking = sorted((o for o in self._sources if o.holds_back), key=lambda o: o.reading is not None)
        for one in lacking:
            if one.reading is not None:
                one.reading.begin()
            one.lacks_since = one.lacks_since or time.monotonic()
        if lacking:
            first = lacking[0]
            left = first.lacks_since + (self._idle or 0.0) - time.monotonic()
            if first.reading is None or self._comes(first, max(0.0, left)):
                first.read()
            elif not any(one.ready for one in self._silent()):
                first.silent = True
                if self.log is not None:
                    self.log.passed.add(first.name)
            return True
        with self._came:
            self._came.wait_for(lambda: not self._silent() or any(one.ready for one in self._silent()))
        return bool(self._silent())

    def _silent(self) -> list[Reading]:
        return [one.reading for one in self._sources if one.silent and one.reading is not None]

    def _comes(self, one: _Waiting, seconds: float) -> bool:
        """Whether a source gives something in so many seconds. A silent one that does ends the wait: its
        rows may stand in front of all that `one` can still give.
        """
        reading, silent = one.reading, self._silent()
        assert reading is not None
        with self._came:
            self._came.wait_for(lambda: reading.ready or any(other.ready for other in silent), seconds)
        return reading.ready

    def _as_chosen(self) -> Iterator[pa.RecordBatch]:
        """The rows that the log of an earlier run says, in its order."""
        order = list(self._data)
        names = [name for name, _ in sorted(self._ways.items(), key=lambda item: item[1][0])]
        for number, rows in self._chosen or ():
            at = order.index(names[number])
            one = self._sources[at]
            while rows:
                while not one.ended and not len(one.keys):
                    one.read()
                if one.ended and not len(one.keys):
                    raise SourceError(
                        f"merge_log has {rows} more rows of source {one.name!r} than the source"
                    )
                count = min(rows, len(one.keys))
                rows -= count
                yield self._merged([count if place == at else 0 for place in range(len(order))])

    def _ready(self) -> list[int]:
        """How many rows of each source nothing that is still to come can stand in front of."""
        open_ = [
            (one.latest, at) for at, one in enumerate(self._sources) if not one.ended and not one.silent
        ]
        if not open_:
            return [len(one.keys) for one in self._sources]
        latest, at = min(open_)
        return [
            int(np.searchsorted(one.keys, latest, side="right" if number <= at else "left"))
            for number, one in enumerate(self._sources)
        ]

    def _merged(self, counts: list[int]) -> pa.RecordBatch:
        """So many rows of each source in one order, as wide rows."""
        keys = [one.keys[:count] for one, count in zip(self._sources, counts, strict=True)]
        parts = [(one, one.take(count)) for one, count in zip(self._sources, counts, strict=True) if count]
        alone = len(parts) == 1
        small = np.min_scalar_type(len(self._ways))
        numbers = np.array([self._ways[one.name][0] for one, _ in parts], small)
        numbers = numbers.repeat([rows.num_rows for _, rows in parts])
        if not alone:
            places = np.argsort(np.concatenate(keys), kind="stable")
            numbers, order = numbers.take(places), pa.array(places)
        if self.log is not None:
            self.log.add(numbers)
        columns = [pa.array(numbers.astype(np.int64))]
        for at, wide in enumerate(list(self._wide)[1:], start=1):
            chunks = []
            for one, rows in parts:
                _, way = self._ways[one.name]
                if at in way.columns:
                    chunks.append(rows.column(way.columns.index(at)))
                else:
                    chunks.append(pa.nulls(rows.num_rows, wide.type))
            if alone:
                columns += chunks
            else:
                columns.append(pc.take(pa.concat_arrays(chunks), order, boundscheck=False))
        return pa.RecordBatch.from_arrays(columns, schema=self._wide)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """An integer or temporal column without nulls as int64 of the same order."""
    if pa.types.is_uint64(column.type):
        unsigned: npt.NDArray[np.uint64] = column.to_numpy(zero_copy_only=False)
        return (unsigned ^ np.uint64(1 << 63)).view(np.int64)
    width = column.type.bit_width
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if width == 32 else pa.int64())
    found: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found
