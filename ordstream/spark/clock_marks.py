"""Marks of the clock in a job over many nodes.

The clock ascends along the order of the rows, so a mark stands in front of the first row of its period. One
job more than without a clock finds these rows' serials, and sees whether it ascends; every node gets the
list, and puts each mark where it stands among the rows that arrive (`ordstream.fragments.time_marks`). No
mark is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructField, StructType

from ordstream.errors import PlanError, SourceError
from ordstream.fragments.clock_times import ClockTimes, Int64s
from ordstream.fragments.time_marks import PlacedRows, TimeMark, among
from ordstream.ground.ordercheck import runs_backwards, shown
from ordstream.ground.ordertags import SERIAL_BITS, SERIAL_MASK
from ordstream.operators.clocks import ComputedClock, clock_name
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import clock_columns, clock_needed_by, clock_of
from ordstream.plan.plan import Plan
from ordstream.spark.arrival import read_column
from ordstream.spark.columns import Carried
from ordstream.spark.executor import SERIAL, carried_name
from ordstream.spark.numbering import numbered
from ordstream.spark.shipped import Shipped

_NAMES = ("time", "serial", "rows", "before")
# not as a text: `time` is a reserved word where spark.sql.ansi.enforceReservedKeywords is set
_FOUND = StructType([StructField(name, LongType()) for name in _NAMES])
_FOUND_ARROW = pa.schema([(name, pa.int64()) for name in _NAMES])


@dataclass(frozen=True, eq=False)
class Marks:
    """All marks of a job.

    Attributes
    ----------
    serials : array of int64
        From 0, ascending: of the rows that show them.
    times : array of int64
    rows : int
        Of the source.
    finder : MarkTimes
        What has found them.
    first : array of int64
        The period, as a time, of the rows in front of the first mark; none where no row has a time.
    ranges : int
        Into so many of equal length the order is cut.
    """

    serials: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    rows: int
    finder: MarkTimes
    first: npt.NDArray[np.int64]
    ranges: int = 1

    def in_ranges(self, ranges: int) -> Marks:
        """The same in an order that `numbered` has cut."""
        return replace(self, ranges=ranges)

    def among(
        self, rows: Iterator[pa.RecordBatch | TimeMark], position: int
    ) -> Iterator[pa.RecordBatch | PlacedRows | TimeMark]:
        """Rows with their tags, in order, and the marks among them, for the fragment whose first operator is
        at a position.
        """
        last = self.ranges - 1
        # as `numbered` has Spark compute it, in doubles
        ranges = ((self.serials * self.ranges + last) / max(self.rows, 1)).astype(np.int64)
        return among(rows, (np.minimum(ranges, last) << SERIAL_BITS) + self.serials, self.times, position)

    def checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the source with their serials, of which each has its time between the same marks as when
        the marks were found.

        Raises
        ------
        SourceError
            One has not: the frame gives other rows, and windows would close where they do not end.
        """
        times_of = self.finder.times()
        none = np.full(1 - len(self.first), _NONE)  # a time of any row is new
        periods = np.concatenate([none, self.first, self.times])
        for batch in batches:
            places, times = times_of(batch)
            serials = batch.column(SERIAL).to_numpy()[places] & SERIAL_MASK
            found = periods[np.searchsorted(self.serials, serials, side="right")]
            differ = np.flatnonzero(times // self.finder.period * self.finder.period != found)
            if len(differ):
                at, field = int(differ[0]), times_of.field
                raise SourceError(
                    f"tuple {int(serials[at]) + 1} of the source: column {field.name!r} has "
                    f"{shown(int(times[at]), field.type)}, which lies between other marks of the clock than "
                    "when these were found: the DataFrame gives other rows each time it is read (a function "
                    "that is not deterministic, a table that others write to). Write it down first, or run "
                    "in one node"
                )
            yield batch


def refuse(plan: Plan, punctuate: Every | None, order_by: Sequence[str], descending: bool = False) -> str:
    """Why a plan whose run has a clock can't be spread over nodes; "": it can."""
    told = clock_of(plan, punctuate)
    if told is None:
        return ""
    clock, name = told[0], clock_name(told[0], plan.source)
    first = order_by[0].casefold() if order_by else ""
    if isinstance(clock, int):
        if first == name.casefold() and not descending:
            return ""
        return (
            f"several nodes find the marks of the clock where order_by begins with its column, {name!r}, "
            "ascending: give it first, or run in one node"
        )
    columns = [plan.source.names[at] for at in clock.columns]
    if first in [column.casefold() for column in columns]:
        return ""
    return (
        f"several nodes find the marks of the clock {name!r} where order_by begins with a column that it is "
        f"computed of, {' or '.join(map(repr, columns))}: give it first, or run in one node"
    )


def find(
    plan: Plan, punctuate: Every | None, carried: Carried, presorted: bool, order_by: Sequence[str]
) -> Marks:
    """Find the marks of a job, by a job.

    Raises
    ------
    PlanError
        As `refuse` says.
    SourceError
        The clock runs backwards along the order.
    """
    told = clock_of(plan, punctuate)
    assert told is not None
    why = refuse(plan, punctuate, order_by, carried.keys[0].descending if carried.keys else False)
    if why:
        raise PlanError(why)
    find_times = finder(plan, told)
    rows = numbered(carried, presorted, 1).select(*find_times.names, SERIAL)
    return marks_of(plan, told, rows.mapInArrow(find_times, _FOUND).toArrow(), punctuate)


def finder(plan: Plan, told: tuple[int | ComputedClock, int]) -> MarkTimes:
    """What finds marks of a clock and period in a partition."""
    clock, period = told
    columns = clock_columns(told)
    alone = 0 if isinstance(clock, int) else replace(clock, columns=tuple(range(len(columns))))
    fields = tuple(plan.source.field(at) for at in columns)
    return MarkTimes(fields, tuple(map(carried_name, columns)), alone, period)


def marks_of(
    plan: Plan, told: tuple[int | ComputedClock, int], found: pa.Table, punctuate: Every | None = None
) -> Marks:
    """The marks of what `finder` has found in all partitions. SourceError: the clock runs backwards."""
    clock, period = told
    field = plan.source.field(clock) if isinstance(clock, int) else clock.field
    count = int(pc.sum(found["rows"]).as_py() or 0)
    seen = found.filter(found["serial"].is_valid()).sort_by("serial")
    serials, times = seen["serial"].to_numpy(), seen["time"].to_numpy()
    in_front = np.concatenate([np.full(min(1, len(times)), _NONE), times[:-1]])
    befores = np.maximum(seen["before"].fill_null(_NONE).to_numpy(), in_front)
    falls = np.flatnonzero(times < befores)
    if len(falls):
        at = int(falls[0])
        text = runs_backwards(field, int(times[at]), int(befores[at]), clock_needed_by(plan, punctuate))
        raise SourceError(f"tuple {int(serials[at]) + 1} of the source: {text}")
    periods = times // period
    new = np.flatnonzero(periods[1:] != periods[:-1]) + 1
    first = periods[:1] * period  # in int64, as those of the marks
    return Marks(serials[new], periods[new] * period, count, finder(plan, told), first)


#: Below all times.
_NONE = -(2**63)


@dataclass(frozen=True)
class MarkTimes(Shipped):
    """The rows of a partition that show another period than those in front, its first and its last one with
    a time (`DataFrame.mapInArrow`), and how many rows it has.

    Parameters
    ----------
    fields : tuple of pyarrow.Field
        What the clock is made of.
    names : tuple of str
        Under which they arrive.
    clock : int or ComputedClock
        Of these.
    period : int
        In the clock's storage units.
    """

    fields: tuple[pa.Field, ...]
    names: tuple[str, ...]
    clock: int | ComputedClock
    period: int

    def times(self) -> ArrivingTimes:
        """What a clock shows at the rows of one partition."""
        return ArrivingTimes(self)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield (time, serial, null, null), and (null, null, number of rows, null). Where the clock runs
        backwards (time, serial, null, time in front), of the first such row, and no further times.
        """
        count, fell = 0, False
        last: tuple[int, int] | None = None
        times_of = self.times()
        for batch in batches:
            count += batch.num_rows
            if fell:
                continue
            places, times = times_of(batch)
            if not len(times):
                continue
            serials = batch.column(SERIAL).to_numpy()[places]
            before = np.concatenate([times[:1] if last is None else [last[0]], times[:-1]])
            falls = np.flatnonzero(times < before)[:1]
            fell = bool(len(falls))
            if fell:
                stop = int(falls[0])
                yield _rows(times[stop : stop + 1], serials[stop : stop + 1], before[stop : stop + 1])
                times, serials, before = times[:stop], serials[:stop], before[:stop]
            shown = times // self.period != before // self.period
            if last is None:
                shown[:1] = True
            yield _rows(times[shown], serials[shown])
            if len(times):
                last = int(times[-1]), int(serials[-1])
        if last is not None:
            yield _rows(np.array([last[0]]), np.array([last[1]]))
        yield pa.RecordBatch.from_pylist([{"rows": count}], schema=_FOUND_ARROW)


class ArrivingTimes:
    """`ClockTimes` of rows as they arrive in a task."""

    def __init__(self, of: MarkTimes) -> None:
        self._columns, self._schema = tuple(zip(of.names, of.fields, strict=True)), pa.schema(of.fields)
        self._times_of = ClockTimes(of.clock, self._schema)
        self.field = self._times_of.field

    def __call__(self, batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """As `ClockTimes`."""
        columns = [read_column(batch, *one) for one in self._columns]
        return self._times_of(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def _rows(times: Int64s, serials: Int64s, before: Int64s | None = None) -> pa.RecordBatch:
    """What a partition finds of rows."""
    columns = [times, serials, None, before]
    arrays = [pa.nulls(len(times), pa.int64()) if one is None else pa.array(one) for one in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_FOUND_ARROW)
