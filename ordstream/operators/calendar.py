"""Calendar windows: where the days, weeks, months, quarters and years of a time column begin."""

from __future__ import annotations

import functools
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions import zones

#: Interval -> what numpy counts in, how many of these it has.
INTERVALS = {"1d": ("D", 1), "1w": ("D", 7), "1mo": ("M", 1), "1q": ("M", 3), "1y": ("M", 12)}
#: First and last year of a calendar: of one without a zone or in UTC Python's; of another zone's, whose
#: rules are asked for at each interval; of one in nanoseconds, which 64 bits end.
YEARS, ZONED_YEARS, NANOSECOND_YEARS = (1, 9999), (1900, 2100), (1678, 2261)


@dataclass(frozen=True)
class Calendar:
    """The intervals of a calendar, by the clocks of the time column's zone where it has one.

    Attributes
    ----------
    every : str
        One of `INTERVALS`.
    type : pyarrow.DataType
        Of the column: a date or a timestamp.
    """

    every: str
    type: pa.DataType

    @classmethod
    def of(cls, every: object, field: pa.Field, what: str) -> Calendar:
        """For a column; `what` the window is, for errors.

        Raises
        ------
        PlanError
            It is no interval of a calendar.
        SchemaError
            The column has no dates; its zone is not known.
        """
        if not isinstance(every, str) or every not in INTERVALS:
            raise PlanError(
                f"{what}: an interval of the calendar is one of {', '.join(map(repr, INTERVALS))}, got "
                f"{every!r:.80}; windows of another length are od.tumbling(...)"
            )
        if not pat.is_timestamp(field.type) and not pat.is_date(field.type):
            raise SchemaError(f"{what}: {field.name!r} must be a timestamp or a date, it is {field.type}")
        found = cls(every, field.type)
        try:
            assert found.is_even or len(found.starts)
        except pa.ArrowException as error:
            raise SchemaError(f"{what}: the zone of {field.name!r} ({field.type}): {error}") from error
        return found

    @property
    def is_even(self) -> bool:
        """All intervals are equally long: days and weeks, without a zone or in UTC."""
        return INTERVALS[self.every][0] == "D" and getattr(self.type, "tz", None) in (None, "UTC")

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each interval begins, in the column's unit, ascending; at last, where the last one ends.

        A day that a zone leaves out has none. One whose midnight comes twice begins at the first, one
        whose midnight is skipped at the change.
        """
        return _starts(self.every, self.type)

    @property
    def marks(self) -> int:
        """The clock is looked at at multiples of this: where the intervals since 1970 begin."""
        return _marks(self.every, self.type)

    def interval(self, time: int) -> tuple[int, int]:
        """Start and end of the interval that a time lies in.

        Raises
        ------
        OverflowError
            The calendar does not go that far.
        """
        at = bisect_right(self.starts, time)
        if not 0 < at < len(self.starts):
            first, last = self.years
            raise OverflowError(f"the calendar of {self.type} goes from {first} to {last}")
        return int(self.starts[at - 1]), int(self.starts[at])

    @property
    def years(self) -> tuple[int, int]:
        """The first and the last year."""
        return _years(self.type)

    def __str__(self) -> str:
        return f"calendar {self.every}"


def _years(type_: pa.DataType) -> tuple[int, int]:
    if getattr(type_, "tz", None) not in (None, "UTC"):
        return ZONED_YEARS
    return NANOSECOND_YEARS if getattr(type_, "unit", "") == "ns" else YEARS


@functools.lru_cache(64)
def _starts(every: str, type_: pa.DataType) -> npt.NDArray[np.int64]:
    unit, step = INTERVALS[every]
    years = np.array([_years(type_)[0], _years(type_)[1] + 1]) - 1970
    first, last = (int(one) for one in years.astype("M8[Y]").astype(f"M8[{unit}]").astype(np.int64))
    if every == "1w":  # from Monday to Monday: day 4 of 1970 was one
        first, last = first - (first - 4) % 7, last + (4 - last) % 7
    own = "D" if pat.is_date32(type_) else getattr(type_, "unit", "ms")
    clocks = np.arange(first, last + 1, step).astype(f"M8[{unit}]")
    counts = clocks.astype(f"M8[{own}]").astype(np.int64)
    if getattr(type_, "tz", None):
        readings = pa.array(counts, pa.int64()).cast(pa.timestamp(own))
        counts = np.unique(
            zones.instants(readings, type_.tz, "earliest", "latest").view(pa.int64()).to_numpy()
        )
    counts.flags.writeable = False
    return counts


@functools.lru_cache(64)
def _marks(every: str, type_: pa.DataType) -> int:
    starts = _starts(every, type_)
    return int(np.gcd.reduce(starts[starts >= 0]))
