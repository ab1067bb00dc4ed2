"""Casts that read or write text, and casts between times of different units."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.calls import by_arrow, by_arrow_or_null, date_of
from ordstream.expressions.lowered import Lowered
from ordstream.ground.datetimes import DAY, TICKS
from ordstream.ground.types import INT64_MAX, is_string


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


def or_null(expr: Any, low: Lowered, target: pa.DataType) -> Lowered | None:
    """Code of a cast that gives null for a value that the other type has not; None: the cast does not fail.

    Raises
    ------
    SchemaError
        It may fail, and is neither of text nor between numbers; without the operator's name.
    """
    if is_string(low.arrow) and not (is_string(target) or pat.is_binary(target)):
        if target == pa.uint64():  # int64 is all that an expression has of it
            made = _read(low, pa.int64(), strict=False)
            return made and _fitting(made, target)
        made = _read(low, target, strict=False)
        if made is not None:
            return made
    elif pat.is_integer(target) and low.vm in ("i64", "f64") and _is_number(low.arrow):
        return _fitting(low, target)
    elif is_string(target) or low.arrow == target or pat.is_boolean(target) or pat.is_boolean(low.arrow):
        return None
    if _is_number(low.arrow) and pat.is_floating(target):
        return None
    what = "strict=False is for casts of text and between numbers"
    raise SchemaError(f"{what}, and {expr!r} is of {low.arrow}")


def _is_number(type_: pa.DataType) -> bool:
    return bool(pat.is_integer(type_) or pat.is_floating(type_))


def _fitting(low: Lowered, target: pa.DataType) -> Lowered:
    """An integer of a number; null where that is NaN or beyond the type's range."""
    bits = target.bit_width
    signed = pat.is_signed_integer(target)
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    narrow = target != pa.int64()
    if low.vm == "i64":
        inside = _between(low, ("lit_i64", least), "ge_i64", ("lit_i64", min(most, INT64_MAX)), "le_i64")
        return Lowered((*inside, *low.code, ("lit_null", "i64"), ("if_i64",)), "i64", target, narrow)
    # of uint64 an expression has half: what is beyond is an error, not null
    # what is cut off lies between the last whole number and the one behind it
    first, above = (float(least), "ge_f64") if target == pa.int64() else (least - 1.0, "gt_f64")
    inside = _between(low, ("lit_f64", first), above, ("lit_f64", float(most + 1)), "lt_f64")
    kept = (*inside, *low.code, ("lit_f64", 0.0), ("if_f64",), ("f2i",))
    return Lowered((*inside, *kept, ("lit_null", "i64"), ("if_i64",)), "i64", target, narrow)


def _between(low: Lowered, least: Any, above: str, most: Any, below: str) -> tuple[Any, ...]:
    return (*low.code, least, (above,), *low.code, most, (below,), ("and",))


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


def _read(low: Lowered, target: pa.DataType, *, strict: bool = True) -> Lowered | None:
    """What Arrow reads. Text that says no such value is an error at its row, or null."""
    narrow = False
    read = target
    if pat.is_integer(target):
        read, narrow = pa.int64() if strict else target, target != pa.int64()
    elif pat.is_float32(target) or pat.is_float64(target):
        read, narrow = pa.float64(), target != pa.float64()
    elif not (
        pat.is_boolean(target) or pat.is_timestamp(target) or pat.is_date(target) or pat.is_time(target)
    ):
        return None
    if strict:
        made = by_arrow(low, "cast", {"to": read}, pa.large_string(), target, sample=())
    else:
        made = by_arrow_or_null(low, "cast", {"to": read}, pa.large_string(), target)
    return Lowered(made.code, made.vm, target, narrow)


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
