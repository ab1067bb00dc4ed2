"""What type a constant of an expression has that takes none from what it stands beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.errors import SchemaError

_UNITS = ("s", "ms", "us", "ns")
_COARSE: dict[str, pa.DataType] = {
    **dict.fromkeys("YMWD", pa.date32()),
    **dict.fromkeys("hm", pa.timestamp("s")),
}


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
