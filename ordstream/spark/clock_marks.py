"""Marks of the clock in a job over many nodes.

The rows are sorted by the clock's column first, so a mark stands in front of the first row of its period.
One job more than without a clock finds these rows' serials; every node gets the list, and puts each mark
where it stands among the rows that arrive (`ordstream.fragments.time_marks`). No mark is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from ordstream.errors import PlanError
from ordstream.fragments.time_marks import TimeMark, among, mark_tag
from ordstream.ground.types import storage_array
from ordstream.operators.clocks import clock_name
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import clock_of
from ordstream.plan.plan import Plan
from ordstream.spark.arrival import read_column
from ordstream.spark.columns import Carried
from ordstream.spark.executor import SERIAL, carried_name
from ordstream.spark.numbering import numbered
from ordstream.spark.shipped import Shipped

_FOUND = "period long, serial long, rows long"
_FOUND_ARROW = pa.schema([("period", pa.int64()), ("serial", pa.int64()), ("rows", pa.int64())])


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
    ranges : int
        Into so many of equal length the order is cut.
    """

    serials: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    rows: int
    ranges: int = 1

    def in_ranges(self, ranges: int) -> Marks:
        """The same in an order that `numbered` has cut."""
        return replace(self, ranges=ranges)

    def among(self, rows: Iterator[pa.RecordBatch], position: int) -> Iterator[pa.RecordBatch | TimeMark]:
        """Rows with their tags, in order, and the marks among them, for the fragment whose first operator is
        at a position.
        """
        return among(rows, (self._tag(k, position) for k in range(len(self.serials))))

    def _tag(self, k: int, position: int) -> bytes:
        serial, last = int(self.serials[k]), self.ranges - 1
        # as `numbered` has Spark compute it, in doubles
        range_ = min(int((serial * self.ranges + last) / max(self.rows, 1)), last)
        return mark_tag(serial + 1, int(self.times[k]), position, range_)


def refuse(plan: Plan, punctuate: Every | None, order_by: Sequence[str], descending: bool = False) -> str:
    """Why a plan whose run has a clock can't be spread over nodes; "": it can."""
    told = clock_of(plan, punctuate)
    if told is None:
        return ""
    name = clock_name(told[0], plan.source)
    if not isinstance(told[0], int):
        return f"the clock {name!r} is computed, and its marks don't go to several nodes: run in one node"
    if order_by and not descending and order_by[0].casefold() == name.casefold():
        return ""
    return (
        f"several nodes find the marks of the clock where order_by begins with its column, {name!r}, "
        "ascending: give it first, or run in one node"
    )


def find(
    plan: Plan, punctuate: Every | None, carried: Carried, presorted: bool, order_by: Sequence[str]
) -> Marks:
    """Find the marks of a job, by a job.

    Raises
    ------
    PlanError
        The rows are not sorted by the clock's column.
    """
    told = clock_of(plan, punctuate)
    assert told is not None
    column, period = told
    why = refuse(plan, punctuate, order_by, carried.keys[0].descending if carried.keys else False)
    if why:
        raise PlanError(why)
    assert isinstance(column, int)
    rows = numbered(carried, presorted, 1).select(carried_name(column), SERIAL)
    function = MarkTimes(plan.source.field(column), carried_name(column), period)
    return marks_of(_collected(rows, function), period)


def marks_of(found: pa.Table, period: int) -> Marks:
    """The marks of what all tasks of `MarkTimes` have found."""
    count = int(found["rows"].to_numpy().sum())
    periods = found["period"].to_numpy()
    order = np.lexsort((found["serial"].to_numpy(), periods))
    periods, serials = periods[order], found["serial"].to_numpy()[order]
    known = periods != _NONE
    periods, serials = periods[known], serials[known]
    new = np.flatnonzero(periods[1:] != periods[:-1]) + 1
    return Marks(serials[new], periods[new] * period, count)


def _collected(rows: DataFrame, function: MarkTimes) -> pa.Table:
    return rows.mapInArrow(function, _FOUND).toArrow()


#: In the place of the period of rows that have no time.
_NONE = -(2**63)


@dataclass(frozen=True)
class MarkTimes(Shipped):
    """The first row of each period of a partition (`DataFrame.mapInArrow`), and how many rows it has.

    Parameters
    ----------
    field : pyarrow.Field
        The clock's column.
    name : str
        Under which it arrives.
    period : int
        In its storage units.
    """

    field: pa.Field
    name: str
    period: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield (period, serial of its first row, 0), and (-2**63, 0, number of rows)."""
        count = 0
        for batch in batches:
            count += batch.num_rows
            times = read_column(batch, self.name, self.field)
            serials = batch.column(SERIAL).filter(times.is_valid()).to_numpy(zero_copy_only=False)
            stored = storage_array(times.drop_null()).to_numpy(zero_copy_only=False).astype(np.int64)
            by_serial = np.argsort(serials, kind="stable")
            periods, first = np.unique(stored[by_serial] // self.period, return_index=True)
            yield self._rows(periods, serials[by_serial][first], np.zeros(len(periods), np.int64))
        yield self._rows(np.array([_NONE]), np.zeros(1, np.int64), np.array([count]))

    @staticmethod
    def _rows(*columns: npt.NDArray[np.int64]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(one, pa.int64()) for one in columns], schema=_FOUND_ARROW
        )
