"""Decimals in expressions: counts of their smallest unit, brought to one unit where two of them meet.

A decimal of at most 19 digits is an int64 on the expression stack (`ordstream.ground.types`). Sums,
differences, products and remainders of decimals are exact decimals again, with the scale that SQL gives
them; whole numbers join in. What does not fit into 64 bits is an error at that row. Beside a float, under
``/`` and in mathematical functions a decimal is a float64, as whole numbers are.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.lowered import Lowered
from ordstream.ground.types import COUNTED_DIGITS, INT64_MAX, INT64_MIN, is_counted

#: Functions that decimals have an exact answer for.
EXACT = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
_POWERS = 18  # of ten in an int64
_WIDE = Context(prec=200)  # whatever a user's own context rounds to


def is_exact(low: Lowered) -> bool:
    """A decimal, or a whole number, which is one without places."""
    return is_counted(low.arrow) or (low.vm == "i64" and pat.is_integer(low.arrow))


def meets_decimal(a: Lowered, b: Lowered) -> bool:
    """Two exact numbers, one of them a decimal."""
    return is_exact(a) and is_exact(b) and (is_counted(a.arrow) or is_counted(b.arrow))


def calculated(expr: Any, a: Lowered, b: Lowered) -> Lowered:
    """Code of one of the functions in `EXACT`.

    Raises
    ------
    SchemaError
        The result has more places than a decimal of 64 bits; without the operator's name.
    """
    function = expr.function
    if function == "mul":
        scale = _scale(a) + _scale(b)
        if scale > _POWERS:
            raise SchemaError(
                f"{expr!r} has {scale} places, and 64 bits hold {_POWERS}: cast one side to pa.float64()"
            )
        digits = _digits(a) + _digits(b) + 1
        return Lowered((*a.code, *b.code, ("mul_i64",)), "i64", decimal_of(digits, scale))
    a, b, type_ = in_one_unit(expr, a, b)
    if function == "floordiv":
        type_ = pa.int64()
    elif function in ("add", "sub"):
        type_ = decimal_of(type_.precision + 1, type_.scale)
    return Lowered((*a.code, *b.code, (f"{function}_i64",)), "i64", type_)


def in_one_unit(expr: Any, a: Lowered, b: Lowered) -> tuple[Lowered, Lowered, pa.DataType]:
    """Both as counts of the smaller unit, and the decimal that holds either.

    Raises
    ------
    SchemaError
        The units lie too far apart; without the operator's name.
    """
    scale = max(_scale(a), _scale(b))
    digits = max(_digits(a) - _scale(a), _digits(b) - _scale(b)) + scale
    type_ = decimal_of(digits, scale)
    return _counted(expr, a, scale, type_), _counted(expr, b, scale, type_), type_


def cast(expr: Any, low: Lowered, target: pa.DataType) -> Lowered:
    """A cast from or to a decimal that keeps every value.

    Raises
    ------
    SchemaError
        It would not; without the operator's name.
    """
    if pat.is_float64(target) or pat.is_float32(target):
        return Lowered(to_float(low).code, "f64", target, pat.is_float32(target))
    if is_counted(target) and is_exact(low):
        more = target.scale - _scale(low)
        if more >= 0 and target.precision - target.scale >= _digits(low) - _scale(low):
            return _counted(expr, low, target.scale, target)
    advice = ""
    if is_counted(low.arrow) and (pat.is_integer(target) or pat.is_decimal(target)):
        advice = ": it may lose digits; cast to pa.float64() first, or compute with it as it is"
    elif pat.is_integer(low.arrow):
        advice = ": an integer may have more digits; multiply it by a Decimal, such as Decimal('1.00')"
    raise SchemaError(f"no cast from {low.arrow} to {target} in {expr!r}{advice}")


def to_float(low: Lowered) -> Lowered:
    """A decimal as float64: its units, each rounded once, divided by how many make one."""
    scale = _scale(low)
    code = (*low.code, ("i2f",), *((("lit_f64", float(10**scale)), ("div_f64",)) if scale else ()))
    return Lowered(code, "f64", pa.float64())


def members(low: Lowered, values: Any) -> tuple[int, ...]:
    """Those of the values that a decimal can be equal to, as counts of its unit."""
    found = []
    for value in values:
        units = _WIDE.scaleb(Decimal(value), _scale(low))
        if units == int(units) and INT64_MIN <= units <= INT64_MAX:
            found.append(int(units))
    return tuple(found)


def decimal_of(digits: int, scale: int) -> pa.DataType:
    """The decimal of so many digits, or of as many as 64 bits have."""
    return pa.decimal128(max(1, min(digits, COUNTED_DIGITS)), scale)


def constant(value: Decimal) -> Decimal:
    """A constant without an exponent above zero, which would be a scale below it.

    Raises
    ------
    SchemaError
        It is no number; without the operator's name.
    """
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise SchemaError(f"{value} is no number that a decimal holds")
    return Decimal(int(value)) if exponent > 0 else value


def _scale(low: Lowered) -> int:
    return int(low.arrow.scale) if is_counted(low.arrow) else 0


def _digits(low: Lowered) -> int:
    """Of the largest number of the type; those of a constant are its own."""
    if is_counted(low.arrow):
        return int(low.arrow.precision)
    if len(low.code) == 1 and low.code[0][0] == "lit_i64":
        return len(str(abs(low.code[0][1])))
    return COUNTED_DIGITS


def _counted(expr: Any, low: Lowered, scale: int, type_: pa.DataType) -> Lowered:
    more = scale - _scale(low)
    if not more:
        return Lowered(low.code, "i64", type_)
    if more > _POWERS:
        raise SchemaError(f"the units of the two sides of {expr!r} lie too far apart for 64 bits")
    (name, *operands), *rest = low.code
    if name == "lit_i64" and not rest and INT64_MIN <= operands[0] * 10**more <= INT64_MAX:
        return Lowered((("lit_i64", operands[0] * 10**more),), "i64", type_)
    return Lowered((*low.code, ("lit_i64", 10**more), ("mul_i64",)), "i64", type_)
