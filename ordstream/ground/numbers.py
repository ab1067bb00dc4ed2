"""Arrow arrays that show NumPy's memory, NumPy arrays that show Arrow's, and arrays of bytes.

`pa.array`, `pa.scalar`, `fill_null` and `to_numpy` load pandas where it is installed: a third of a second or
more of a process that has no other use for it, in the middle of a stream. `to_pandas_dtype` needs it before
pyarrow 26.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: What to do with a uint64 that is no int64: a cast inside of a pipeline takes int64.
BEYOND_INT64 = (
    "cast the column in front of the pipeline, to pa.decimal128(20, 0), or to pa.float64(), which rounds "
    "(pyarrow: column.cast; in Spark it is a decimal(20,0))"
)
#: What to do about nulls where a function takes NumPy's arrays.
WITH_NULLS = "use format='arrow', 'pandas' or 'polars', or select the columns that the function needs"
#: By Arrow's name of the type.
_DTYPES = {name: np.dtype(name) for width in (8, 16, 32, 64) for name in (f"int{width}", f"uint{width}")}
_DTYPES |= {"halffloat": np.dtype("f2"), "float": np.dtype("f4"), "double": np.dtype("f8")}
_TYPES = {np.dtype(np.int64): pa.int64(), np.dtype(np.int32): pa.int32(), np.dtype(np.uint64): pa.uint64()}


def dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    """NumPy's dtype of an integer or floating type of Arrow's. Others: KeyError."""
    return _DTYPES[str(kind)]


def as_int(value: Any) -> Any:
    """NumPy's integers, which pandas and reductions give, as Python's; anything else as it is. NumPy counts
    a `timedelta64` among its integers.
    """
    is_one = isinstance(value, np.integer) and not isinstance(value, np.timedelta64)
    return int(value) if is_one else value


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number: True and a span of time are none, though both count as integers."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.timedelta64)


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python's or NumPy's, NaN too; `is_whole` says what is none."""
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def integers(values: npt.NDArray[Any]) -> pa.Array:
    """An array of the same numbers, none of them null, which keeps the memory alive.

    Parameters
    ----------
    values : int64, int32 or uint64 array
        Not written to any more.
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_TYPES[values.dtype], len(values), [None, pa.py_buffer(values)])


def mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    """An array of the same truth values, none of them null."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def byte_strings(values: Sequence[bytes]) -> pa.Array:
    """A binary array of these, none of them None.

    Raises
    ------
    OverflowError
        They have 2 GiB or more: too much for one array.
    """
    ends = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in values], out=ends[1:])
    if ends[-1] >= 1 << 31:
        raise OverflowError(
            f"{len(values):,} byte strings have {ends[-1]:,} bytes; one array has less than 2 GiB"
        )
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def values(array: pa.Array) -> npt.NDArray[Any]:
    """What an array of numbers holds; in place of a null something."""
    dtype = dtype_of(array.type)
    if not len(array):
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def truth(array: pa.Array) -> npt.NDArray[np.bool_]:
    """What an array of truth values holds; in place of a null something."""
    if not len(array):
        return np.zeros(0, dtype=np.bool_)
    first = array.offset // 8
    data = np.frombuffer(array.buffers()[1], np.uint8, (array.offset + len(array) + 7) // 8 - first, first)
    bits = np.unpackbits(data, bitorder="little")[array.offset % 8 :][: len(array)]
    return bits.view(np.bool_)
