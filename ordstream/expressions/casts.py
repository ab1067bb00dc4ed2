"""Casts that read or write text, and casts between times of different units."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.expressions.calls import DAY, by_arrow, date_of
from ordstream.expressions.lowered import Lowered
from ordstream.expressions.zones import TICKS
from ordstream.ground.types import is_string


def changed(expr: Any, low: Lowered, target: pa.DataType) -> Lowered | None:
    """Code of a cast between text and another type, or between two times; None: it is no such cast.

    Raises
    ------
    SchemaError
        Arrow writes no text for the type, or reads none; without the operator's name.
    """
    if target == pa.string() and not is_string(low.arrow):
        return _text(low)
    if is_string(low.arrow):
        return _read(low, target)
    return _time(expr, low, target)


def _text(low: Lowered) -> Lowered | None:
    """What Arrow writes: numbers as they are, dates and times as in ISO 8601."""
    type_ = low.arrow
    if pat.is_boolean(type_):
        words = (*low.code, ("lit_view", b"true"), ("lit_view", b"false"), ("if_view",))
        null = (*low.code, ("is_null_bool",), ("lit_null", "view"))
        return Lowered((*null, *words, ("if_view",)), "view", pa.string())
    if low.single:
        return by_arrow(low, "cast_single", {"to": pa.large_string()}, type_)
    if pat.is_integer(type_) or pat.is_floating(type_):
        return by_arrow(low, "cast", {"to": pa.large_string()}, type_)
    if pat.is_timestamp(type_) or pat.is_date(type_) or pat.is_time(type_):
        return by_arrow(low, "cast", {"to": pa.large_string()}, type_)
    return None


def _read(low: Lowered, target: pa.DataType) -> Lowered | None:
    """What Arrow reads. Text that says no such value is an error at its row."""
    narrow = False
    read, gives = target, target
    if pat.is_integer(target):
        read, gives, narrow = pa.int64(), target, target != pa.int64()
    elif pat.is_float32(target) or pat.is_float64(target):
        read, gives, narrow = pa.float64(), target, target != pa.float64()
    elif not (
        pat.is_boolean(target) or pat.is_timestamp(target) or pat.is_date(target) or pat.is_time(target)
    ):
        return None
    made = by_arrow(low, "cast", {"to": read}, pa.large_string(), gives, sample=())
    return Lowered(made.code, made.vm, gives, narrow)


def _time(expr: Any, low: Lowered, target: pa.DataType) -> Lowered | None:
    """Timestamps and days: what the coarser unit does not say is cut off, downwards. A count that is no time
    of day, or no whole days, is an error at its row.
    """
    mine = low.arrow
    if pat.is_integer(mine) and (pat.is_time(target) or pat.is_date64(target)):
        return by_arrow(low, "count_of", {"to": target}, pa.int64(), target)
    if pat.is_timestamp(mine) and pat.is_date32(target):
        return date_of(expr, low)
    if pat.is_date32(mine) and pat.is_timestamp(target) and target.tz is None:
        return _times(low, "mul_i64", DAY * TICKS[target.unit], target)
    same = pat.is_timestamp(mine) and pat.is_timestamp(target) and mine.tz == target.tz
    if mine != target and (same or (pat.is_duration(mine) and pat.is_duration(target))):
        have, wanted = TICKS[mine.unit], TICKS[target.unit]
        if wanted >= have:
            return _times(low, "mul_i64", wanted // have, target)
        return _times(low, "floordiv_i64", have // wanted, target)
    return None


def _times(low: Lowered, function: str, number: int, type_: pa.DataType) -> Lowered:
    return Lowered((*low.code, ("lit_i64", number), (function,)), "i64", type_)
