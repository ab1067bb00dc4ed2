"""Arithmetic of times: the difference of two is a duration, and a time plus a duration is a time.

`timestamp - timestamp`, `date - date` and `time - time` give a duration; `timestamp + duration` and
`timestamp - duration` a timestamp; a date moves by a constant of whole days. Durations add and subtract,
`duration * int` and `duration // int` are durations, `duration / duration` is a float64, `duration //
duration` an int64, `duration % duration` a duration. Where units differ the finer one is taken, in checked
64-bit arithmetic: what does not fit is an OverflowError at that row. Timestamps with zones are instants, so
a day added is 24 hours of them.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.expr import Literal
from ordstream.expressions.lowered import Lowered
from ordstream.ground.datetimes import DAY, TICKS, numpy_span_ns, span_ns
from ordstream.ground.types import is_temporal

#: Functions that times and durations have a meaning for.
ELAPSING = ("add", "sub", "mul", "div", "floordiv", "mod")


def constant_beside(literal: Literal, other: Any) -> Literal:
    """A constant without a type that stands beside a time or a duration, with the type that it has there.

    Parameters
    ----------
    other : pyarrow.DataType

    Raises
    ------
    SchemaError
        A duration without a length, such as NumPy's months; without the operator's name.
    """
    value: Any = literal.value
    if isinstance(value, np.timedelta64):
        whole = numpy_span_ns(value)
        if whole is None:
            raise SchemaError(
                f"{value!r} is no length of time: months and years differ, and a number needs a unit; write "
                "datetime.timedelta(...)"
            )
        return _duration(whole, "ns", other)
    if isinstance(value, datetime.timedelta):
        return _duration(span_ns(value), "us", other)
    if value is None or isinstance(value, bool | int | float | str | bytes) or pat.is_duration(other):
        return literal
    return Literal(value, other)


def _duration(whole: int, unit: str, other: Any) -> Literal:
    """So many nanoseconds in the unit of what they stand beside where that says them exactly, else in
    `unit`, or in nanoseconds.
    """
    for one in (_unit(other), unit, "ns"):
        count, rest = divmod(whole, TICKS["ns"] // TICKS[one])
        if not rest:
            break
    return Literal(count, pa.duration(one))


def calculated(expr: Any, a: Lowered, b: Lowered) -> Lowered:
    """Code of an arithmetic function of which one operand at least is a time or a duration.

    Raises
    ------
    SchemaError
        It means nothing for these types; without the operator's name.
    """
    function = expr.function
    if pat.is_duration(a.arrow) and pat.is_duration(b.arrow):
        return _of_durations(expr, a, b)
    if function == "sub" and is_temporal(b.arrow) and not pat.is_duration(b.arrow):
        return _difference(expr, a, b)
    if function == "add" and pat.is_duration(a.arrow) and is_temporal(b.arrow):
        return _moved(expr, b, a)
    if function in ("add", "sub") and is_temporal(a.arrow) and pat.is_duration(b.arrow):
        return _moved(expr, a, b)
    if function == "mul" and pat.is_integer(a.arrow) and pat.is_duration(b.arrow):
        a, b = b, a
    if function in ("mul", "floordiv") and pat.is_duration(a.arrow) and pat.is_integer(b.arrow):
        return _joined(a, b, f"{function}_i64", a.arrow)
    raise _no_meaning(expr, a, b)


def _of_durations(expr: Any, a: Lowered, b: Lowered) -> Lowered:
    if expr.function == "mul":
        raise _no_meaning(expr, a, b)
    a, b, unit = _in_one_unit(a, b)
    if expr.function == "div":
        return Lowered((*a.code, ("i2f",), *b.code, ("i2f",), ("div_f64",)), "f64", pa.float64())
    type_ = pa.int64() if expr.function == "floordiv" else pa.duration(unit)
    return _joined(a, b, f"{expr.function}_i64", type_)


def _difference(expr: Any, a: Lowered, b: Lowered) -> Lowered:
    if _kind(a.arrow) != _kind(b.arrow):
        raise _no_meaning(expr, a, b)
    a, b, unit = _in_one_unit(a, b)
    return _joined(a, b, "sub_i64", pa.duration(unit))


def _moved(expr: Any, time: Lowered, by: Lowered) -> Lowered:
    """A time plus or minus a duration."""
    name = f"{expr.function}_i64"
    if pat.is_timestamp(time.arrow):
        time, by, unit = _in_one_unit(time, by)
        return _joined(time, by, name, pa.timestamp(unit, time.arrow.tz))
    ticks = TICKS[by.arrow.unit] * DAY
    (constant, *more), *rest = by.code
    if pat.is_date(time.arrow) and constant == "lit_i64" and not rest and more[0] % ticks == 0:
        days = more[0] // ticks * (1 if pat.is_date32(time.arrow) else DAY * 1_000)
        return Lowered((*time.code, ("lit_i64", days), (name,)), "i64", time.arrow)
    advice = "a date moves by a constant of whole days" if pat.is_date(time.arrow) else "a time of day ends"
    raise SchemaError(f"can't calculate with {time.arrow} and {by.arrow} in {expr!r}: {advice}")


def _joined(a: Lowered, b: Lowered, name: str, type_: pa.DataType) -> Lowered:
    return Lowered((*a.code, *b.code, (name,)), "i64", type_)


def _unit(type_: Any) -> str:
    if pat.is_date(type_):
        return "s" if pat.is_date32(type_) else "ms"
    return str(type_.unit)


def _in_one_unit(a: Lowered, b: Lowered) -> tuple[Lowered, Lowered, str]:
    """Both as counts of the finer unit, and the unit."""
    unit = max(_unit(a.arrow), _unit(b.arrow), key=lambda one: TICKS[one])
    return _counted(a, unit), _counted(b, unit), unit


def _counted(low: Lowered, unit: str) -> Lowered:
    factor = TICKS[unit] // TICKS[_unit(low.arrow)] * (DAY if pat.is_date32(low.arrow) else 1)
    if factor == 1:
        return low
    return Lowered((*low.code, ("lit_i64", factor), ("mul_i64",)), low.vm, low.arrow)


def _kind(type_: Any) -> str:
    """Two times have a difference where this is the same."""
    if pat.is_timestamp(type_):
        return "reading of a clock" if type_.tz is None else "instant"
    return "date" if pat.is_date(type_) else "time" if pat.is_time(type_) else "other"


def _no_meaning(expr: Any, a: Lowered, b: Lowered) -> SchemaError:
    if pat.is_duration(a.arrow) and expr.function in ("mul", "div") and not is_temporal(b.arrow):
        advice = "a duration is multiplied by a whole number, and divided by one with //"
    elif not (is_temporal(a.arrow) and is_temporal(b.arrow)):
        advice = "a number has no unit: write datetime.timedelta(...), or to count, cast it to pa.int64()"
    elif _kind(a.arrow) != _kind(b.arrow) and pat.is_timestamp(a.arrow) and pat.is_timestamp(b.arrow):
        advice = "an instant and the reading of a clock need a zone, by .dt.replace_time_zone"
    else:
        advice = "it means nothing; cast to pa.int64() first if it does"
    return SchemaError(f"can't calculate with {a.arrow} and {b.arrow} in {expr!r}: {advice}")
