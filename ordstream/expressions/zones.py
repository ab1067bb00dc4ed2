"""Instants and what clocks of a zone read then, both ways, for columns: what `ArrowCall` asks of a zone.

Arrow reads the time zone database up to its last entry, which is of 2037, and not the rule behind it: from
then on its zones have no summer time. Python's `zoneinfo` knows the rule, so it is asked about later times,
one by one. And Arrow can't truncate to a reading that a zone has twice or never; `truncated` says which
instant is meant then.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from ordstream.ground.datetimes import DAY, TICKS
from ordstream.ground.types import INT64_MIN

_EPOCH = datetime.datetime(1970, 1, 1)
#: Up to this day, since 1970, Arrow knows zones: the last days of 2037 have no change of a clock.
_KNOWN = (datetime.datetime(2037, 12, 30) - _EPOCH).days
_MIN_MAX = pc.get_function("min_max")  # `pyarrow.compute.min_max` spends some microseconds more
#: Seconds after which the calendar is the same again, weekdays too: 400 years.
_CYCLE = 146_097 * DAY
#: Python's calendar ends in the year 9999.
_LAST = (datetime.datetime(9999, 12, 1) - _EPOCH).days * DAY
_FIXED = re.compile(r"[+-]\d\d(:?\d\d)?")

#: Years before and behind which Arrow's calendar is wrong, without a word.
LAST_YEAR = 32_000
_LAST_DAY = 365 * (LAST_YEAR - 1970)


def all_known(counts: pa.Array, type_: Any) -> bool:
    """Whether Arrow alone has the readings of dates or timestamps of a type, given as ticks: none is behind
    2037, or so near to the limits of 64 bits that its reading might not fit.

    Raises
    ------
    pyarrow.ArrowInvalid
        Its calendar does not go that far.
    """
    day = 1 if pa.types.is_date32(type_) else DAY * TICKS[getattr(type_, "unit", "ms")]  # else a date64
    if len(counts) == 1:  # of one tuple: all this costs as much as Arrow's function
        low = high = counts[0].as_py()
    else:
        low, high = _MIN_MAX.call([counts]).as_py().values()
    if low is None:
        return True
    if low < -_LAST_DAY * day or high > _LAST_DAY * day:
        raise pa.ArrowInvalid(f"Arrow's calendar ends {LAST_YEAR} years before and behind our era")
    return bool(low >= INT64_MIN + 2 * day and high < _KNOWN * day)


def readings(instants: pa.Array) -> pa.Array:
    """What the clocks of their zone read at instants: timestamps without a zone.

    Raises
    ------
    pyarrow.ArrowInvalid
        A reading that does not fit into 64 bits; a zone that Python does not know, behind 2037.
    """
    type_ = instants.type
    ticks, plain = TICKS[type_.unit], pa.timestamp(type_.unit)

    def later(count: int, zone: ZoneInfo) -> int:
        return count + ticks * _offset(count // ticks, zone)

    found = _told(instants, type_.tz, plain, pc.local_timestamp, later)
    pc.subtract_checked(_counts(found), _counts(instants))  # it did not wrap around
    return found


def instants(clocks: pa.Array, timezone: str, ambiguous: str, nonexistent: str) -> pa.Array:
    """When clocks of a zone read this; see Arrow's `assume_timezone`.

    Raises
    ------
    pyarrow.ArrowInvalid
        As for `readings`; a reading that the zone has twice or never, where that is not allowed.
    """
    unit = clocks.type.unit
    ticks = TICKS[unit]

    def known(values: pa.Array) -> pa.Array:
        return pc.assume_timezone(values, timezone, ambiguous=ambiguous, nonexistent=nonexistent)

    def later(count: int, rule: ZoneInfo) -> int:
        return _instant(count, ticks, rule, ambiguous, nonexistent)

    found = _told(clocks, timezone, pa.timestamp(unit, timezone), known, later)
    pc.subtract_checked(_counts(clocks), _counts(found))
    return found


def truncated(values: pa.Array, floor: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """When the interval began that the clocks of a zone were in; `floor` truncates what they read.

    Where they read that twice, it is the time when they went as they do at the value, if there is one, else
    the first; where they skip it, the instant of the change: as in Polars and DuckDB.
    """
    type_ = values.type
    clocks = readings(values)
    begins = floor(clocks)
    ahead = pc.subtract_checked(_counts(clocks), _counts(values))
    alike = pc.subtract_checked(_counts(begins), ahead).view(type_)
    right = pc.equal(readings(alike), begins)
    if pc.all(right, min_count=0).as_py():
        return alike
    others = instants(begins, type_.tz, "earliest", "latest")
    return pc.if_else(right, _counts(alike), _counts(others)).view(type_)


def check_written(values: pa.Array) -> None:
    """See that Arrow writes times as the clocks of their zone read.

    Raises
    ------
    pyarrow.ArrowInvalid
        It does not: it knows no summer time behind 2037.
    """
    if getattr(values.type, "tz", None) and not readings(values).equals(pc.local_timestamp(values)):
        raise pa.ArrowInvalid(
            "Arrow writes no summer time behind 2037; write what clocks read, .dt.replace_time_zone(None)"
        )


# ------------------------------------------------------------------------------------------- behind 2037


def _told(
    values: pa.Array, zone: str, type_: Any, known: Callable[[pa.Array], pa.Array], later: Any
) -> pa.Array:
    """`known` of the values that Arrow knows about, and `later(count, zone)` of the others."""
    counts = _counts(values)
    beyond = pc.greater_equal(counts, _KNOWN * DAY * TICKS[type_.unit])
    if _FIXED.fullmatch(zone) or not pc.any(beyond).as_py():
        return known(values)
    try:
        rule = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise pa.ArrowInvalid(f"Python knows no zone {zone!r}, and Arrow none behind 2037") from error
    found = _counts(known(pc.if_else(beyond, 0, counts).view(values.type)))
    try:
        told = pa.array([later(count, rule) for count in counts.filter(beyond).to_pylist()], pa.int64())
    except OverflowError as error:
        raise pa.ArrowInvalid("a time that does not fit into 64 bits") from error
    return pc.replace_with_mask(found, beyond, told).view(type_)


def _counts(values: pa.Array) -> pa.Array:
    """Ticks since 1970."""
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def _wrapped(second: int) -> int:
    """The same second of the calendar in a year that Python has: one of the last 400 behind these."""
    return second if second < _LAST else _LAST - _CYCLE + (second - _LAST) % _CYCLE


def _seconds(offset: datetime.timedelta | None) -> int:
    assert offset is not None  # of a zone that is one
    return offset // datetime.timedelta(seconds=1)


def _offset(second: int, zone: ZoneInfo) -> int:
    """Seconds by which clocks are ahead of UTC at an instant."""
    return _seconds(datetime.datetime.fromtimestamp(_wrapped(second), zone).utcoffset())


def _instant(count: int, ticks: int, zone: ZoneInfo, ambiguous: str, nonexistent: str) -> int:
    """When clocks read `count`, as `zoneinfo` tells it (PEP 495)."""
    second, rest = divmod(count, ticks)
    clock = (_EPOCH + datetime.timedelta(seconds=_wrapped(second))).replace(tzinfo=zone)
    before, behind = _seconds(clock.utcoffset()), _seconds(clock.replace(fold=1).utcoffset())
    if before == behind:
        return count - before * ticks
    shown = clock.replace(tzinfo=None)
    if before > behind:
        if ambiguous == "raise":
            raise pa.ArrowInvalid(f"{zone.key} reads {shown} twice: ambiguous='earliest' or 'latest'")
        return (second - (before if ambiguous == "earliest" else behind)) * ticks + rest
    if nonexistent == "raise":
        raise pa.ArrowInvalid(f"{zone.key} skips {shown}: non_existent='earliest' or 'latest'")
    low, high = second - behind, second - before
    while high - low > 1:  # the change is behind `low`, and not behind `high`
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return high * ticks - (nonexistent == "earliest")
