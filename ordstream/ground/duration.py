"""Durations as users write them: "30m", "1h30m", a timedelta, or a number in a column's unit."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.datetimes import numpy_span_ns, span_ns
from ordstream.ground.numbers import as_int
from ordstream.ground.types import INT64_MAX, INT64_MIN

Duration = int | str | datetime.timedelta | np.timedelta64

_MINUTE = 60 * 10**9

#: Nanoseconds of each unit.
UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": _MINUTE,
    "min": _MINUTE,
    "h": 60 * _MINUTE,
    "d": 24 * 60 * _MINUTE,
}

WRITTEN = "a number and a unit (ns, us, ms, s, m, h, d), such as '30m', '50ms', '1h30m' or '5 minutes'"

#: As Spark and pandas have them; also of more than one.
_WORDS = {
    "nanosecond": "ns",
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
}

_INTERVALS = {"week": "w", "month": "mo", "quarter": "q", "year": "y"}

_UNIT = "|".join([f"(?:{'|'.join(_WORDS)})s?", "ns", "us", "ms", "s", "min", "m", "h", "d"])
_PART = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({_UNIT})(?![a-zA-Z])\s*")

#: What to write for a week or a month.
IN_THE_CALENDAR = (
    "; a week is '7d', and windows by weeks or months of the calendar are od.calendar('1w'), "
    "od.calendar('1mo')"
)

#: What is no duration: weeks, months, quarters and years.
_LONG = re.compile(r"-?\s*\d+\s*(w|mo|q|y)")  # "2 months", too


def abbreviated(value: Any) -> Any:
    """ "1mo" for "1 month", "15m" for "15 minutes": an interval in words; everything else as it is."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+?)s?\s*", value) if isinstance(value, str) else None
    unit = None if found is None else (_WORDS | _INTERVALS).get(found[2])
    return value if found is None or unit is None else f"{found[1]}{unit}"


def of_arrow(value: Any) -> Any:
    """Arrow's duration as NumPy's, which has nanoseconds; a null, and everything else, as it is."""
    if not isinstance(value, pa.DurationScalar) or not value.is_valid:
        return value
    return np.timedelta64(value.value, value.type.unit)


def nanoseconds(value: Any, what: str) -> Fraction:
    """A text or a timedelta, in nanoseconds, exactly.

    Parameters
    ----------
    value : str, timedelta (pandas' too), numpy.timedelta64 or pyarrow.DurationScalar
    what : str
        What it is, for the error.

    Raises
    ------
    PlanError
        It is neither, or the text is no duration.
    """
    value = of_arrow(value)
    if isinstance(value, datetime.timedelta):
        return Fraction(span_ns(value))
    if isinstance(value, np.timedelta64):
        found = numpy_span_ns(value)
        if found is None:
            raise PlanError(f"{what} must be a span of a known length (weeks or shorter); got {value!r}")
        return Fraction(found)
    if not isinstance(value, str):
        raise PlanError(f"{what} must be a timedelta or {WRITTEN}; got {value!r}")
    text = value.strip()
    sign = -1 if text.startswith("-") else 1
    at, total = (1 if sign < 0 else 0), Fraction(0)
    while True:  # at least one part
        part = _PART.match(text, at)
        if part is None:
            long = "" if _LONG.match(text) is None else IN_THE_CALENDAR
            raise PlanError(f"{what}: a duration is {WRITTEN}; got {value!r}{long}")
        total += Fraction(part[1]) * UNITS[_WORDS.get(part[2].removesuffix("s"), part[2])]
        at = part.end()
        if at == len(text):
            return sign * total


def time_span(value: Duration, field: pa.Field, what: str) -> int:
    """A duration in the unit of a time column (integer, timestamp or date).

    Parameters
    ----------
    value : int, str, timedelta, numpy.timedelta64 or pyarrow.DurationScalar
        An int is in the column's unit. A column of integers has no unit of its own: it takes an int.
    field : pyarrow.Field
        The column.
    what : str
        What it is, for errors.

    Raises
    ------
    SchemaError
        The column can't hold time.
    PlanError
        The value is no duration, or not a whole number of units, or outside int64.
    """
    type_ = field.type
    is_clock = pat.is_timestamp(type_) or pat.is_date(type_)
    if not is_clock and (not pat.is_integer(type_) or pat.is_uint64(type_)):
        text = "an integer (int64 or narrower), a timestamp or a date"
        told = f"{what}: the time column {field.name!r} must be {text}, it is {type_}"
        if pat.is_uint64(type_):
            column = repr(field.name)
            told += f"; cast it in front, with_columns(od.col({column}).cast(pa.int64()).alias({column}))"
        raise SchemaError(told)
    value = as_int(of_arrow(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return _fits(value, value, what)
    if not isinstance(value, str | datetime.timedelta | np.timedelta64) or not is_clock:
        kinds = "an int, a timedelta or a text such as '30m'" if is_clock else "an int"
        why = "" if is_clock else ": a column of integers has no unit of time"
        raise PlanError(f"{what} must be {kinds} for {field.name!r} ({type_}), got {value!r}{why}")
    units = nanoseconds(value, what) / unit_ns(type_)
    if units.denominator != 1:
        raise PlanError(f"{what}: {value!r} is not a whole number of units of {field.name!r} ({type_})")
    return _fits(int(units), value, what)


def shown_span(value: Duration, field: pa.Field, what: str) -> int:
    """`time_span`, where times so far apart are shown in the column's type: a date64 is a whole day.

    Raises
    ------
    SchemaError, PlanError
        As `time_span`; or the column is a date64, and the value is no number of whole days.
    """
    span = time_span(value, field, what)
    if pat.is_date64(field.type) and span * UNITS["ms"] % UNITS["d"]:
        raise PlanError(
            f"{what} must be whole days, such as '1d', for {field.name!r} ({field.type}), got {value!r}; an "
            "int is in its unit, ms"
        )
    return span


def written_span(units: int, field: pa.Field) -> str:
    """A span of a time column as a user would write it, such as "1h30m": of integers the number."""
    type_ = field.type
    if pat.is_integer(type_) or abs(units) >= INT64_MAX:
        return str(units)
    left, parts = abs(units) * unit_ns(type_), []
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, left = divmod(left, UNITS[unit])
        parts += [f"{count}{unit}"] if count else []
    return ("-" if units < 0 else "") + ("".join(parts) or "0s")


def unit_ns(type_: pa.DataType) -> int:
    """Nanoseconds of the unit of a column of timestamps or dates."""
    if pat.is_timestamp(type_):
        return UNITS[type_.unit]
    return UNITS["d"] if pat.is_date32(type_) else UNITS["ms"]


def _fits(units: int, value: Any, what: str) -> int:
    if not INT64_MIN <= units <= INT64_MAX:
        raise PlanError(f"{what} must fit into int64, got {value!r}")
    return units
