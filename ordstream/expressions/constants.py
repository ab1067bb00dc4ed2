"""What type a constant of an expression has that takes none from what it stands beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.ground.types import INT64_MAX, INT64_MIN

_UNITS = ("s", "ms", "us", "ns")
_COARSE: dict[str, pa.DataType] = {
    **dict.fromkeys("YMWD", pa.date32()),
    **dict.fromkeys("hm", pa.timestamp("s")),
}
#: What an Arrow array of whole numbers or texts has.
_PLAIN_SCALARS = {pa.Int8Scalar, pa.Int16Scalar, pa.Int32Scalar, pa.Int64Scalar, pa.StringScalar}


def type_of_constant(value: Any) -> pa.DataType:
    """Arrow's type of a constant. NumPy's units that Arrow has not are those of the next finer type.

    Raises
    ------
    SchemaError
        It has none; without the operator's name.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit = np.datetime_data(value.dtype)[0]
        is_span = isinstance(value, np.timedelta64)
        if unit in _UNITS:
            return pa.duration(unit) if is_span else pa.timestamp(unit)
        if is_span and unit in ("W", "D", "h", "m"):
            return pa.duration("s")
        if is_span or unit not in _COARSE:
            raise SchemaError(f"{value!r} can't be a constant: write it in weeks, days or less, down to ns")
        return _COARSE[unit]
    try:
        return pa.scalar(value).type
    except UnicodeEncodeError as error:
        raise SchemaError(f"the constant {value!r} is no text: {error.reason}") from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"the constant {value!r} has no type of its own; write od.lit(value, type)"
        ) from error


def is_null_constant(value: Any) -> bool:
    """None, or a null of Arrow's."""
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


def plain_members(values: tuple[Any, ...], type_: pa.DataType) -> tuple[Any, ...] | None:
    """The values of `isin` as the core takes them, where all are of the kind that the column has: ints of
    64 bits, texts or bytes. None where they have to be looked at one by one, which costs 30 us each.
    """
    kinds = set(map(type, values))
    if kinds <= _PLAIN_SCALARS:
        values = tuple(value.as_py() for value in values)
        kinds = set(map(type, values))
    if pat.is_integer(type_) and kinds == {int}:
        return values if min(values) >= INT64_MIN and max(values) <= INT64_MAX else None
    if pat.is_binary(type_) and kinds == {bytes}:
        return values
    if pat.is_string(type_) and kinds == {str}:
        try:
            return tuple(value.encode() for value in values)
        except UnicodeEncodeError:
            return None
    return None


def float_words(values: tuple[Any, ...], type_: pa.DataType) -> tuple[int, ...] | None:
    """`bound.bits_of_float` of the values of `isin` that are numbers, NaN left out, which equals nothing.
    None where they are not all floats, or ints that are doubles as they are.
    """
    kinds = set(map(type, values))
    if not pat.is_floating(type_) or not kinds <= {float, np.float64, int}:
        return None
    ints = [value for value in values if type(value) is int]
    if ints and not (pat.is_float64(type_) and min(ints) >= -(2**53) and max(ints) <= 2**53):
        return None
    numbers = np.array(values, dtype=np.float64) + 0.0  # the zeros are equal
    words: list[int] = numbers[~np.isnan(numbers)].view(np.int64).tolist()
    return tuple(words)
