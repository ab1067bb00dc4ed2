"""Storage of dates, times and durations to Python's objects, a column at a time, and back, value by value.

The values are those of pyarrow's `to_pylist`, which makes them one by one in 1.3 to 2.4 us; NumPy makes them
in 0.1 us. What NumPy can't do or would do otherwise is left to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

#: Least and greatest count of each unit that `datetime`, `date` and `timedelta` can hold.
_INSTANTS = {"s": (-62_135_596_800, 253_402_300_799)}
_INSTANTS["ms"] = (_INSTANTS["s"][0] * 1_000, _INSTANTS["s"][1] * 1_000 + 999)
_INSTANTS["us"] = (_INSTANTS["ms"][0] * 1_000, _INSTANTS["ms"][1] * 1_000 + 999)
_INSTANTS["D"] = (-719_162, 2_932_896)
_DAYS = 999_999_999
_SPANS = {unit: (-_DAYS * 86_400 * of, _DAYS * 86_400 * of) for unit, of in [("s", 1), ("ms", 1_000)]}
_SPANS["us"] = (-(2**63) + 1, 2**63 - 1)

_EPOCHS = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCHS[0].toordinal()
#: Counts of a unit in a microsecond, and microseconds in a unit.
_FACTORS = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}

#: Zones whose clocks show UTC.
UTC_ZONES = frozenset(("UTC", "utc", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"))

#: Ticks of a second, by a type's unit; seconds of a day; ticks of one.
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400
_DAY = {unit: DAY * ticks for unit, ticks in TICKS.items()}

#: `made(storage, valid)`: a list of objects, or None where Arrow must make them.
Maker = Callable[[np.ndarray, np.ndarray | None], "list[Any] | None"]


def no_value(count: int, type_: pa.DataType) -> str:
    """Why a count of a type's unit is no value of it: a time of day lies within a day, a date64 is whole
    days. Empty: it is one. Arrow makes arrays of any count.
    """
    if pat.is_time(type_) and not 0 <= count < _DAY[type_.unit]:
        return f"{count} is no time of day: those are 0 to {_DAY[type_.unit] - 1}"
    if pat.is_date64(type_) and count % _DAY["ms"]:
        return f"{count} is no date: a day has {_DAY['ms']} of them"
    return ""


def span_ns(value: timedelta) -> int:
    """Nanoseconds of a timedelta; pandas' have some behind their microseconds."""
    return int(value // timedelta(microseconds=1)) * 1_000 + int(getattr(value, "nanoseconds", 0))


#: Nanoseconds of the units of a `numpy.timedelta64`. A month has no length.
_LENGTHS = {"W": 7 * _DAY["ns"], "D": _DAY["ns"], "h": 3_600 * 10**9, "m": 60 * 10**9}
_LENGTHS |= {"s": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}


def numpy_span_ns(value: np.timedelta64) -> int | None:
    """Nanoseconds of a `numpy.timedelta64`, of which NumPy itself keeps 64 bits, without an error; None: it
    is NaT, in no unit, or in one that has no length.
    """
    unit, times = np.datetime_data(value.dtype)
    if np.isnat(value) or unit not in _LENGTHS:
        return None
    return int(value.astype(np.int64)) * times * _LENGTHS[unit]


def numpy_count(value: np.generic, type_: pa.DataType) -> int | None:
    """A NumPy time as a count of a type's unit; None: it is NaT, of another kind or not in a unit.

    Raises
    ------
    ValueError
        It is no whole number of units, or has more than 64 bits of them; without saying where.
    """
    if isinstance(value, np.timedelta64):
        whole = numpy_span_ns(value) if pat.is_duration(type_) else None
        if whole is None:
            return None
        count, rest = divmod(whole, _LENGTHS[type_.unit])
        if rest or not -(2**63) < count < 2**63:
            raise ValueError("can't be stored exactly")
        return count
    is_date = pat.is_date(type_)
    is_clock = is_date or (pat.is_timestamp(type_) and type_.tz is None)
    if not (isinstance(value, np.datetime64) and is_clock) or np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] == "generic":
        return None
    try:
        made = value.astype(f"M8[{'D' if is_date else type_.unit}]")
        is_exact = made.astype(value.dtype) == value  # NumPy rounds, and before 2.5 wraps around
    except OverflowError:
        is_exact = False
    if not is_exact:
        raise ValueError("can't be stored exactly")
    return int(made.astype(np.int64)) * (_DAY["ms"] if pat.is_date64(type_) else 1)


def maker(type_: pa.DataType) -> Maker | None:
    """What makes Python's objects of a column's storage.

    Parameters
    ----------
    type_ : pyarrow.DataType

    Returns
    -------
    function (storage, valid) -> list or None, or None
        None: this type is Arrow's work. The function takes an array of the storage (int32 or int64; it may
        be written to) and an array of bools or None; it gives None where a value is outside of what Python's
        objects hold, for which Arrow has the error.
    """
    if pat.is_date32(type_):
        return _of("M8[D]", _INSTANTS["D"], None)
    if pat.is_timestamp(type_) and type_.unit != "ns":
        try:
            zone = None if type_.tz is None else pa.scalar(0, type_).as_py().tzinfo
        except Exception:  # a zone that this machine doesn't know: Arrow says so for each value
            return None
        return _of(f"{'M' if zone is None else 'm'}8[{type_.unit}]", _INSTANTS[type_.unit], zone)
    if type_ == pa.time64("ns"):
        return _whole_micros
    if pat.is_duration(type_) and type_.unit != "ns":
        return _of(f"m8[{type_.unit}]", _SPANS[type_.unit], None)
    return None


def check_nanoseconds(count: Any, type_: pa.DataType) -> None:
    """ValueError where a time of day, or one in a list of such, has nanoseconds, which Arrow cuts off where
    it makes a `datetime.time`. What lies deeper has no counts: `check_parts`.
    """
    if pat.is_list(type_) or pat.is_large_list(type_):
        if type_.value_type == pa.time64("ns"):
            for one in count or ():
                check_nanoseconds(one, type_.value_type)
    elif type_ == pa.time64("ns") and count is not None and count % 1_000:
        raise ValueError(
            f"the time of day {pa.scalar(count, type_).cast(pa.string())} has nanoseconds, Python's time "
            "has none: cast the column to pa.int64() in front"
        )


def scalar_value(value: pa.Scalar, type_: pa.DataType) -> Any:
    """An Arrow scalar as Python has it; of a time of day with nanoseconds, which it has not, the count.

    Raises
    ------
    ValueError
        It has nanoseconds, and `type_`, which it is to have, does not.
    """
    if value.is_valid and value.type == pa.time64("ns") and value.value % 1_000:
        if type_ != value.type:
            check_nanoseconds(value.value, value.type)
        return value.value
    return value.as_py()


def check_parts(array: pa.Array) -> None:
    """`check_nanoseconds` of all that a nested array has inside."""
    type_ = array.type
    if not has_nanoseconds(type_):
        return
    if isinstance(array, pa.ExtensionArray):
        check_parts(array.storage)
    elif pat.is_struct(type_):
        for part in array.flatten():  # null where the struct is
            check_parts(part)
    elif pat.is_map(type_):
        first, last = (array.offsets[place].as_py() for place in (0, len(array)))
        for part in (array.keys, array.items):  # of a slice those of the whole array
            check_parts(part.slice(first, last - first))
    elif pat.is_nested(type_):
        check_parts(array.flatten())
    else:
        counts = array.drop_null().cast(pa.int64()).to_numpy()
        for odd in counts[counts % 1_000 != 0][:1].tolist():
            check_nanoseconds(odd, type_)


@lru_cache(maxsize=256)
def has_nanoseconds(type_: pa.DataType) -> bool:
    """Whether a type has times of day in nanoseconds inside, or is one."""
    if isinstance(type_, pa.BaseExtensionType):
        return has_nanoseconds(type_.storage_type)
    return type_ == pa.time64("ns") or any(
        has_nanoseconds(type_.field(place).type) for place in range(type_.num_fields)
    )


def _whole_micros(storage: np.ndarray, valid: np.ndarray | None) -> None:
    """Arrow makes them, where it cuts nothing off."""
    for i in np.flatnonzero(storage % 1_000).tolist():
        if valid is None or valid[i]:
            check_nanoseconds(int(storage[i]), pa.time64("ns"))


def _of(dtype: str, bounds: tuple[int, int], zone: Any) -> Maker:
    least, greatest = bounds

    def made(storage: np.ndarray, valid: np.ndarray | None) -> list[Any] | None:
        if valid is not None:
            storage[~valid] = 0
        if len(storage) and (storage.min() < least or storage.max() > greatest):
            return None
        counts = storage.astype(np.int64, copy=False)
        values: list[Any]
        try:
            values = counts.view(dtype).tolist() if zone is None else _in_zone(counts.view(dtype), zone)
        except OverflowError:  # the first or last day of the calendar
            return None
        if valid is not None:
            for i in np.flatnonzero(~valid).tolist():
                values[i] = None
        return values

    return made


def _in_zone(spans: np.ndarray, zone: Any) -> list[Any]:
    """Times since 1970 in UTC, `timedelta64`, as wall clocks of a zone.

    An epoch with the zone plus a span is UTC's clock with the zone beside it, which `fromutc` wants.
    `replace` takes five times as long to make the same of a `datetime`.
    """
    clocks = map(datetime(1970, 1, 1, tzinfo=zone).__add__, spans.tolist())
    return list(clocks if str(zone) == "UTC" else map(zone.fromutc, clocks))


def one_object(count: int, type_: pa.DataType) -> Any:
    """The object of one value of a temporal type, as pyarrow's `as_py` gives it.

    Raises
    ------
    OverflowError
        Python has none.
    Exception
        Of many kinds, from Arrow: a zone that is not known is a KeyError.
    """
    made = one_maker(type_)(count)
    if made is not None:
        return made
    return listed(pa.array([count], pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_))[0]


def listed(array: pa.Array) -> list[Any]:
    """Arrow's `to_pylist`.

    Raises
    ------
    OverflowError
        Of a date, time or duration that Python has no object for: Arrow's error says only "date value out of
        range".
    """
    if array.type != pa.time64("ns"):  # whose readers look themselves
        check_parts(array)
    try:
        values: list[Any] = array.to_pylist()
    except (OverflowError, ValueError) as error:
        if isinstance(error, ValueError) and "out of range" not in str(error):
            raise  # nanoseconds, without pandas
        raise OverflowError(
            f"Python has no object for a value of {array.type} ({error}; its years go from 1 to 9999): "
            "functions get a number of a column that was cast in front, od.col(name).cast(int); or filter "
            "such rows out"
        ) from None
    return values


@lru_cache(maxsize=256)
def one_maker(type_: pa.DataType) -> Callable[[int], Any]:
    """`maker` for one value: a function (count) -> object, or None where Arrow must make it."""
    if pat.is_date32(type_):
        return _one(lambda count: date.fromordinal(_EPOCH_DAY + count))
    if pat.is_duration(type_) and type_.unit != "ns":
        of = _FACTORS[type_.unit][1]
        return _one(lambda count: timedelta(microseconds=count * of))
    if pat.is_timestamp(type_) and type_.unit != "ns":
        of = _FACTORS[type_.unit][1]
        if type_.tz is None:
            return _one(lambda count: _EPOCHS[0] + timedelta(microseconds=count * of))
        with suppress(Exception):  # a zone that this machine doesn't know
            zone = pa.scalar(0, type_).as_py().tzinfo
            epoch = datetime(1970, 1, 1, tzinfo=zone)
            in_zone = (lambda clock: clock) if str(zone) == "UTC" else zone.fromutc
            return _one(lambda count: in_zone(epoch + timedelta(microseconds=count * of)))
    return lambda count: None


def _one(made: Callable[[int], Any]) -> Callable[[int], Any]:
    def make(count: int) -> Any:
        try:
            return made(count)
        except (OverflowError, ValueError):  # outside of what Python's objects hold
            return None

    return make


@lru_cache(maxsize=256)
def counter(type_: pa.DataType) -> Callable[[Any], int | None]:
    """What counts one Python object in the unit of a column.

    Parameters
    ----------
    type_ : pyarrow.DataType

    Returns
    -------
    function (value) -> int or None
        None: the value is of another class, has a time zone where the column has none or the other way
        round, or can't be stored exactly: `ordstream.ground.types.to_storage` then finds out, and has the
        error.
    """
    if pat.is_date32(type_):
        return lambda value: value.toordinal() - _EPOCH_DAY if type(value) is date else None
    if pat.is_date64(type_):
        return lambda value: (value.toordinal() - _EPOCH_DAY) * _DAY["ms"] if type(value) is date else None
    if pat.is_time(type_):
        return _clocks(*_FACTORS[type_.unit])
    if pat.is_timestamp(type_):
        return _instants(_EPOCHS[type_.tz is not None], *_FACTORS[type_.unit])
    if pat.is_duration(type_):
        return _spans(*_FACTORS[type_.unit])
    return lambda value: None


def _instants(epoch: datetime, times: int, of: int) -> Callable[[Any], int | None]:
    zoned = epoch.tzinfo is not None
    counted = _spans(times, of)

    def count(value: Any) -> int | None:
        if type(value) is not datetime or (value.utcoffset() is not None) != zoned:
            return None
        return counted(value - epoch)

    return count


def _clocks(times: int, of: int) -> Callable[[Any], int | None]:
    counted = _spans(times, of)

    def count(value: Any) -> int | None:
        if type(value) is not time or value.tzinfo is not None:
            return None
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return counted(timedelta(0, seconds, value.microsecond))

    return count


def _spans(times: int, of: int) -> Callable[[Any], int | None]:
    def count(value: Any) -> int | None:
        if type(value) is not timedelta:
            return None
        found = ((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) * times
        if found % of or not -(2**63) < found < 2**63:
            return None
        return found // of

    return count
