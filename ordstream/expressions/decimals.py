"""Decimals in expressions: counts of their smallest unit, brought to one unit where two of them meet.

A decimal of at most 18 digits is an int64 on the expression stack, one of up to 38 a number of 128 bits
(`ordstream.ground.types`). Sums, differences, products and remainders of decimals are exact decimals again,
with the digits and the scale that SQL gives them, 38 digits at most; whole numbers join in. What has more
digits is an error at that row. Beside a float, under ``/`` and in mathematical functions a decimal is a
float64, as whole numbers are. A cast that keeps every value is a product; the others are functions of
columns (`decimal_casts`).
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.calls import by_arrow, by_arrow_or_null
from ordstream.expressions.lowered import Lowered
from ordstream.ground.types import COUNTED_DIGITS, INT64_MAX, INT64_MIN, WIDE_DIGITS, is_string, is_wide

#: Functions that decimals have an exact answer for.
EXACT = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
_INTEGER_DIGITS = 19  # of an int64
_FLOAT_DIGITS, _FLOAT_POWER = 15, 22  # so many digits, and powers of ten, float64 has as they are
_WIDE = Context(prec=200)  # whatever a user's own context rounds to


def is_exact(low: Lowered) -> bool:
    """A decimal, or a whole number, which is one without places."""
    return is_decimal(low) or (low.vm == "i64" and pat.is_integer(low.arrow))


def is_decimal(low: Lowered) -> bool:
    """A decimal of any number of digits."""
    return low.arrow is not None and bool(pat.is_decimal128(low.arrow))


def meets_decimal(a: Lowered, b: Lowered) -> bool:
    """Two exact numbers, one of them a decimal."""
    return is_exact(a) and is_exact(b) and (is_decimal(a) or is_decimal(b))


def calculated(expr: Any, a: Lowered, b: Lowered) -> Lowered:
    """Code of one of the functions in `EXACT`.

    Raises
    ------
    SchemaError
        The result has more places than a decimal, or would have to be divided in 128 bits; without the
        operator's name.
    """
    function = expr.function
    if function == "mul":
        scale = _scale(a) + _scale(b)
        if scale > WIDE_DIGITS:
            raise SchemaError(
                f"{expr!r} has {scale} places, and a decimal {WIDE_DIGITS}: cast one side to pa.float64()"
            )
        type_ = decimal_of(_digits(a) + _digits(b) + 1, scale)
        a, b = _in_class_of(type_, a), _in_class_of(type_, b)
        return Lowered((*a.code, *b.code, (f"mul_{a.vm}",)), a.vm, type_)
    divides = function in ("floordiv", "mod")
    largest = _digits(b) - _scale(b) + max(_scale(a), _scale(b))  # of a remainder, which is smaller than b
    a, b, type_ = in_one_unit(expr, a, b, divides=divides)
    if function == "floordiv":
        type_ = pa.int64()
    elif function == "mod" and largest > COUNTED_DIGITS:
        # 18 digits are too few for what an int64 may be: the remainder of -1 by 2**63 - 1 has 19
        type_ = decimal_of(min(largest, _INTEGER_DIGITS), type_.scale)
        return Lowered((*a.code, *b.code, ("mod_i64",), ("i2d",)), "i128", type_)
    elif function in ("add", "sub"):
        type_ = decimal_of(type_.precision + 1, type_.scale)
        a, b = _in_class_of(type_, a), _in_class_of(type_, b)
    return Lowered((*a.code, *b.code, (f"{function}_{a.vm}",)), a.vm, type_)


def in_one_unit(
    expr: Any, a: Lowered, b: Lowered, *, divides: bool = False
) -> tuple[Lowered, Lowered, pa.DataType]:
    """Both as counts of the smaller unit, and the decimal that holds either. `divides`: as int64.

    Raises
    ------
    SchemaError
        The units lie too far apart; or there is no division of so many digits; without the operator's name.
    """
    scale = max(_scale(a), _scale(b))
    digits = max(_digits(a) - _scale(a), _digits(b) - _scale(b)) + scale
    type_ = decimal_of(min(digits, COUNTED_DIGITS) if divides else digits, scale)
    if divides and (is_wide(a.arrow) or is_wide(b.arrow) or scale > COUNTED_DIGITS):
        raise SchemaError(
            f"{expr!r} divides decimals of over {COUNTED_DIGITS} digits: cast one side to pa.float64()"
        )
    return _counted(expr, a, scale, type_), _counted(expr, b, scale, type_), type_


def cast(expr: Any, low: Lowered, target: pa.DataType, *, strict: bool = True) -> Lowered:
    """A cast from or to a decimal. What has no place in the target is an error at its row, or null.

    Raises
    ------
    SchemaError
        There is no such cast; without the operator's name.
    """
    if pat.is_float64(target) or pat.is_float32(target):
        return Lowered(to_float(low).code, "f64", target, pat.is_float32(target))
    if pat.is_decimal128(target) and is_exact(low):
        more = target.scale - _scale(low)
        if more >= 0 and target.precision - target.scale >= _digits(low) - _scale(low):
            return _counted(expr, low, target.scale, target)
    if target == pa.string() and is_decimal(low):
        return by_arrow(low, "decimal_text", {}, low.arrow, sample=())
    has_places = pat.is_decimal128(target) and target.scale <= target.precision
    if has_places and (is_decimal(low) or (_is_read(low) and target.scale >= 0)):
        takes = pa.large_string() if is_string(low.arrow) else low.arrow
        if strict:
            return by_arrow(low, "to_decimal", {"to": target}, takes, target, sample=())
        return by_arrow_or_null(low, "to_decimal", {"to": target}, takes, target)
    advice = ""
    if pat.is_decimal128(target) and (is_decimal(low) or _is_read(low)):
        advice = ": a scale is from 0 to the precision"
    elif is_decimal(low) and (pat.is_integer(target) or pat.is_decimal(target)):
        advice = ": it may lose digits; cast to pa.float64() first, or compute with it as it is"
    elif pat.is_integer(low.arrow):
        advice = ": an integer may have more digits; multiply it by a Decimal, such as Decimal('1.00')"
    raise SchemaError(f"no cast from {low.arrow} to {target} in {expr!r}{advice}")


def _is_read(low: Lowered) -> bool:
    return is_string(low.arrow) or bool(pat.is_floating(low.arrow))


def to_float(low: Lowered) -> Lowered:
    """A decimal as the nearest float64."""
    scale = _scale(low)
    plain = not is_decimal(low) or (_digits(low) <= _FLOAT_DIGITS and abs(scale) <= _FLOAT_POWER)
    if low.vm == "i128" or not plain:
        wide = low.code if low.vm == "i128" else (*low.code, ("i2d",))
        return Lowered((*wide, ("lit_i128", scale), ("scaled_f64",)), "f64", pa.float64())
    code = (*low.code, ("i2f",))
    if scale:  # both are floats as they are; a unit of thousands is multiplied: its inverse, 0.001, is none
        code = (*code, ("lit_f64", float(10 ** abs(scale))), ("div_f64" if scale > 0 else "mul_f64",))
    return Lowered(code, "f64", pa.float64())


def members(low: Lowered, values: Any) -> tuple[int, ...]:
    """Those of the values that a decimal can be equal to, as counts of its unit.

    Raises
    ------
    SchemaError
        One is no number; without the operator's name.
    """
    found = []
    least, most = (-(10**WIDE_DIGITS), 10**WIDE_DIGITS) if low.vm == "i128" else (INT64_MIN, INT64_MAX)
    for value in values:
        if not Decimal(value).is_finite():
            raise SchemaError(f"{value} is no number that a decimal holds")
        units = _WIDE.scaleb(Decimal(value), _scale(low))
        if units == int(units) and least <= units <= most:
            found.append(int(units))
    return tuple(found)


def decimal_of(digits: int, scale: int) -> pa.DataType:
    """The decimal of so many digits, or of as many as there may be."""
    return pa.decimal128(max(1, scale, min(digits, WIDE_DIGITS)), scale)


def constant(value: Decimal) -> Decimal:
    """A constant without an exponent above zero, which would be a scale below it.

    Raises
    ------
    SchemaError
        It is no number, or one of too many digits; without the operator's name.
    """
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise SchemaError(f"{value} is no number that a decimal holds")
    if value and max(value.adjusted() + 1, 0) + max(-exponent, 0) > WIDE_DIGITS:
        raise SchemaError(f"the constant {value} has over {WIDE_DIGITS} digits, and a decimal {WIDE_DIGITS}")
    return Decimal(int(value)) if exponent > 0 else value


def _scale(low: Lowered) -> int:
    return int(low.arrow.scale) if is_decimal(low) else 0


def _digits(low: Lowered) -> int:
    """Of the largest number of the type; those of a constant are its own."""
    if is_decimal(low):
        return int(low.arrow.precision)
    if len(low.code) == 1 and low.code[0][0] == "lit_i64":
        return len(str(abs(low.code[0][1])))
    return _INTEGER_DIGITS


def _in_class_of(type_: pa.DataType, low: Lowered) -> Lowered:
    """The same number in 128 bits where the type has so many, without another unit."""
    if not is_wide(type_) or low.vm == "i128":
        return low
    if len(low.code) == 1 and low.code[0][0] == "lit_i64":
        return Lowered((("lit_i128", *low.code[0][1:]),), "i128", low.arrow)
    return Lowered((*low.code, ("i2d",)), "i128", low.arrow)


def _counted(expr: Any, low: Lowered, scale: int, type_: pa.DataType) -> Lowered:
    more = scale - _scale(low)
    low = _in_class_of(type_, low)
    if not more:
        return Lowered(low.code, low.vm, type_)
    if more > (WIDE_DIGITS if low.vm == "i128" else COUNTED_DIGITS):
        raise SchemaError(f"the units of the two sides of {expr!r} lie too far apart")
    if len(low.code) == 1 and low.code[0][0] in ("lit_i64", "lit_i128"):
        name, units = low.code[0]
        if abs(units * 10**more) < _largest(low):
            return Lowered(((name, units * 10**more),), low.vm, type_)
    return Lowered((*low.code, (f"lit_{low.vm}", 10**more), (f"mul_{low.vm}",)), low.vm, type_)


def _largest(low: Lowered) -> int:
    return 10**WIDE_DIGITS if low.vm == "i128" else INT64_MAX
