"""Marks of the clocks between nodes. The caller looks at the source's times where it gives serials; each
mark goes to every node, through every node in front of it, and stands in the order: behind the rows that it
made operators in front emit, and in front of the tuple that shows it. Marks of a `reorder` come from its
node, and go to every node behind.

A mark stands at a tag: `ordertags.in_front` of the tuple, or `ordertags.behind_outputs`, then the position
of the receiving fragment's first operator in 2 bytes, then its time in 8.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.errors import SourceError
from ordstream.fragments.clock_times import ClockTimes
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.merging import Tags
from ordstream.ground.ordercheck import runs_backwards
from ordstream.ground.ordertags import MARK, in_front, last_places, tags_of
from ordstream.node.source_marks import MarkedRows, SourceMark
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import (
    SOURCE_MARKS,
    clock_needed_by,
    clock_of,
    reordered_elsewhere,
    takes_marks,
)
from ordstream.plan.plan import Plan

#: Of each mark in a node (`_core/flow/ingress.pxd`, mark_serials).
MARK_SERIALS = 1 << 32
#: Bytes of a mark's time, and of the position in front of it.
TIME_BYTES = 8
POSITION_BYTES = 2
#: Of the tag of a source's tuple.
TUPLE_BYTES = 9
#: Marks that are given with the rows between them, at most.
MOST_TOGETHER = 1 << 12


@dataclass(frozen=True)
class TimeMark(SourceMark):
    """A mark on its way into a node.

    Attributes
    ----------
    place : bytes
        Its tag among the rows that arrive, without its time: nothing that it makes operators emit is less.
    """

    place: bytes

    @classmethod
    def at(cls, tag: bytes, clock: int = SOURCE_MARKS) -> TimeMark:
        """The mark of a clock that stands at a tag."""
        time = int.from_bytes(tag[-TIME_BYTES:], "big", signed=True)
        return cls(time, place_of(tag), clock=clock)

    @property
    def tag(self) -> bytes:
        """Its tag among the rows that arrive."""
        return self.place + _bytes_of(self.time)

    @property
    def cause(self) -> bytes:
        """Its place, whichever operators it goes to."""
        return self.place[:-POSITION_BYTES]


def mark_tag(serial: int, time: int, position: int, range_: int = 0) -> bytes:
    """Where the mark stands that a tuple shows, among the rows for the fragment whose first operator is at
    `position`; `range_`: as of `in_front`.
    """
    return placed_at(in_front(serial, range_), time, position)


def placed_at(cause: bytes, time: int, position: int) -> bytes:
    """The tag of a mark with this cause (`TimeMark.cause`)."""
    return cause + position.to_bytes(POSITION_BYTES, "big") + _bytes_of(time)


def _bytes_of(time: int) -> bytes:
    return time.to_bytes(TIME_BYTES, "big", signed=True)


def place_of(tag: bytes) -> bytes:
    """A mark's tag without its time."""
    return tag[:-TIME_BYTES]


def moved(tag: bytes, position: int) -> bytes:
    """The same mark among the rows for another fragment."""
    place, time = place_of(tag), tag[-TIME_BYTES:]
    return place[:-POSITION_BYTES] + position.to_bytes(POSITION_BYTES, "big") + time


def source_clock(plan: Plan, punctuate: Every | None, latest: int | None) -> SourceClock | None:
    """The clock of a run; None: it has none. `latest`: as of `SourceClock`."""
    return None if clock_of(plan, punctuate) is None else SourceClock(plan, punctuate, latest)


@dataclass(frozen=True, eq=False)
class PlacedRows(MarkedRows):
    """Rows with their tags, the last column, and marks of the source's clock among them.

    Attributes
    ----------
    causes : array of int64
        Of each mark: the tuple in front of the one that shows it, with its range, as tags have both.
    position : int
        Of the operators that hear them.
    """

    causes: npt.NDArray[np.int64]
    position: int

    @property
    def num_rows(self) -> int:
        """Rows, without the marks."""
        return int(self.rows.num_rows)

    def slice(self, start: int, length: int | None = None) -> PlacedRows:
        """Some of its rows. Marks in front of the first one stay behind the rows in front of them, if there
        are any; those behind the last one come along.
        """
        stop = self.num_rows if length is None else start + length
        low = int(np.searchsorted(self.before, start, side="right")) if start else 0
        high = int(np.searchsorted(self.before, stop, side="right"))
        return replace(
            self,
            rows=self.rows.slice(start, stop - start),
            before=self.before[low:high] - start,
            times=self.times[low:high],
            causes=self.causes[low:high],
        )

    def parted(self) -> list[pa.RecordBatch | PlacedRows]:
        """The marks in front of its first row, that row alone, and what is behind; without what is empty."""
        first = int(np.searchsorted(self.before, 0, side="right"))
        if not self.num_rows:
            return [self]
        front = replace(
            self, rows=self.rows.slice(0, 0), before=self.before[:first],
            times=self.times[:first], causes=self.causes[:first],
        )  # fmt: skip
        behind = replace(
            self, rows=self.rows.slice(1), before=self.before[first:] - 1,
            times=self.times[first:], causes=self.causes[first:],
        )  # fmt: skip
        parts: list[pa.RecordBatch | PlacedRows] = [front] if first else []
        parts.append(self.rows.slice(0, 1))
        if len(behind.before):
            return [*parts, behind]
        return [*parts, behind.rows] if behind.num_rows else parts

    def place(self, k: int) -> bytes:
        """As `TimeMark.place`."""
        return _cause(int(self.causes[k])) + self.position.to_bytes(POSITION_BYTES, "big")

    def causes_of(self, marks: npt.NDArray[np.int64]) -> list[bytes]:
        """As `TimeMark.cause`, of some of the marks."""
        return [_cause(one) for one in self.causes[marks].tolist()]


def _cause(tuple_: int) -> bytes:
    """`in_front` of what comes behind this tuple."""
    return in_front(tuple_ + 1)


def among(
    rows: Iterator[pa.RecordBatch | TimeMark],
    causes: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    position: int,
) -> Iterator[pa.RecordBatch | PlacedRows | TimeMark]:
    """Rows with their tags, in order, and marks of the source's clock among them, of which no two stand at
    one tuple.

    What such a mark stands behind has a tag of its tuple or of one before: rows of that tuple, and what the
    same mark made operators in front emit. Where no rows come there is no state that a mark could
    change, and none is given behind the last item.

    Parameters
    ----------
    rows : iterator of pyarrow.RecordBatch or TimeMark
        Their tags are last. Marks of another clock stand in their places.
    causes, times : array of int64
        As of `PlacedRows`, ascending.
    position : int
        Of the operators that hear the marks.
    """
    taken = 0

    def placed(batch: pa.RecordBatch, before: npt.NDArray[np.int64]) -> Iterator[PlacedRows]:
        """The batch with the next marks, some at a time."""
        nonlocal taken
        start = 0
        for low in range(0, len(before), MOST_TOGETHER):
            own = before[low : low + MOST_TOGETHER]
            stop = batch.num_rows if low + len(own) == len(before) else int(own[-1])
            now = slice(taken, taken + len(own))
            yield PlacedRows(
                batch.slice(start, stop - start), own - start, times[now], causes[now], position
            )
            taken, start = now.stop, stop

    def alone(k: int) -> TimeMark:
        return TimeMark.at(placed_at(_cause(int(causes[k])), int(times[k]), position))

    schema = None
    for batch in rows:
        if isinstance(batch, TimeMark):
            while taken < len(causes) and (mark := alone(taken)).place < batch.place:
                yield mark
                taken += 1
            yield batch
            continue
        schema = batch.schema
        ends = last_places(tags_of(batch))
        stop = int(np.searchsorted(causes, ends[-1], side="left")) if len(ends) else taken
        if stop > taken:
            yield from placed(batch, np.searchsorted(ends, causes[taken:stop], side="right"))
        else:
            yield batch
    if taken < len(causes) and schema is not None:
        yield from placed(_nothing(schema), np.zeros(len(causes) - taken, np.int64))


#: The tag of a mark of the source's clock.
_MARK_TAG = np.dtype(
    [("kind", "V1"), ("cause", ">u8"), ("mark", f"V{len(MARK)}"), ("at", ">u2"), ("time", ">i8")]
)


def placed_among(
    parts: Sequence[pa.RecordBatch], tags: Sequence[bytes], schema: pa.Schema
) -> list[pa.RecordBatch | PlacedRows]:
    """Batches that follow each other, their tags last, with marks of the source's clock among them.

    Parameters
    ----------
    parts : sequence of pyarrow.RecordBatch
        Maybe none.
    tags : sequence of bytes
        Of the marks, ascending; all are those of one fragment.
    schema : pyarrow.Schema
        Of the batches.
    """
    found = np.frombuffer(b"".join(tags), dtype=_MARK_TAG)
    causes, times = found["cause"].astype(np.int64), found["time"].astype(np.int64)
    position, taken = int(found["at"][0]), 0
    placed: list[pa.RecordBatch | PlacedRows] = []
    for number, rows in enumerate(parts):
        before = _rows_before(tags_of(rows), tags[taken:], causes[taken:])
        if number + 1 < len(parts):  # marks behind the last row may stand in the next batch
            before = before[before < rows.num_rows]
        stop = taken + len(before)
        marked = PlacedRows(rows, before, times[taken:stop], causes[taken:stop], position)
        placed.append(marked if stop > taken else rows)
        taken = stop
    if taken < len(tags):  # no rows
        zeros = np.zeros(len(tags) - taken, np.int64)
        placed.append(PlacedRows(_nothing(schema), zeros, times[taken:], causes[taken:], position))
    return placed


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in schema], schema=schema)


def _rows_before(
    tags: pa.Array, marks: Sequence[bytes], causes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """How many of the rows are in front of each mark."""
    places = last_places(tags)
    low, before = (np.searchsorted(places, causes, side=side) for side in ("left", "right"))
    same = np.flatnonzero(low < before)
    if len(same) and pc.max(pc.binary_length(tags)).as_py() > TUPLE_BYTES:
        # rows of one tuple, and what a mark made operators in front emit: their tags tell
        for k in same.tolist():
            before[k] = bisect_left(Tags(tags), marks[k], int(low[k]), int(before[k]))
    return before


def hears_marks(fragment: Fragment, punctuate: Every | None) -> bool:
    """Whether an operator of a fragment may do something at a mark."""
    return any(one.stateful and takes_marks(one, punctuate) for one in fragment.operators)


def hears_reordered(fragment: Fragment) -> bool:
    """Whether an operator of a fragment goes by the clock of a `reorder` in another one."""
    return bool(reordered_elsewhere(fragment.plan))


def marks_leave(fragment: Fragment) -> bool:
    """Whether an operator of a fragment moves a clock that another fragment goes by."""
    return any(operator.marks_leave for operator in fragment.operators)


def moves_clock(fragment: Fragment) -> bool:
    """Whether a fragment has an operator behind which there is another clock than in front."""
    return any(operator.clock_made() is not None for operator in fragment.operators)


def with_leaving_marks(fragments: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """The fragments in which each operator that moves a clock knows what other fragments want of it."""
    periods: dict[str, int] = {}
    for fragment in fragments:
        for name, period in reordered_elsewhere(fragment.plan).items():
            periods[name] = math.gcd(periods.get(name, 0), period)
    if not periods:
        return tuple(fragments)
    return tuple(
        replace(fragment, plan=fragment.plan.replaced([
            one.with_marks_left(periods[one.name]) if one.name in periods else one
            for one in fragment.operators
        ]))
        for fragment in fragments
    )  # fmt: skip


class SourceClock:
    """Marks of a source's rows, block by block.

    Parameters
    ----------
    plan : Plan
    punctuate : Every, optional
        As of a run.
    latest : int, optional
        The time in front of the first row.

    Attributes
    ----------
    latest : int or None
        The largest time so far; None: there was none.
    """

    def __init__(self, plan: Plan, punctuate: Every | None, latest: int | None = None) -> None:
        told = clock_of(plan, punctuate)
        assert told is not None
        clock, self._period = told
        self._times, self._needed_by = ClockTimes(clock, plan.source), clock_needed_by(plan, punctuate)
        self.latest = latest

    def take(
        self, first: int, rows: pa.RecordBatch
    ) -> tuple[list[tuple[int, int]], tuple[int, SourceError] | None]:
        """The next rows, of which the first one has the serial `first`.

        Returns
        -------
        list of (int, int)
            Serial of the tuple that shows a mark, and its time.
        (int, SourceError) or None
            A row, from 0, that is earlier than the one before it, or whose columns can't be read, and what
            is wrong with it: the clock has taken the rows in front of it.
        """
        try:
            places, times = self._times(rows)
        except SourceError as error:
            return [], (0, error)
        if not len(times):
            return [], None
        began = self.latest is None
        before = np.concatenate([times[:1] if began else np.array([self.latest], np.int64), times[:-1]])
        falls, failed = np.flatnonzero(times < before), None
        if len(falls):
            at = int(falls[0])
            text = runs_backwards(self._times.field, int(times[at]), int(before[at]), self._needed_by)
            row = int(places[at])
            failed = row, SourceError(f"tuple {first + row} of the source: {text}")
            failed[1].serial = first + row
            times, before = times[:at], before[:at]
        now = times // self._period
        shown = np.flatnonzero(now != before // self._period)
        if len(times):
            self.latest = int(times[-1])
        return [(first + int(places[k]), int(now[k]) * self._period) for k in shown], failed
