"""Arrow arrays that show NumPy's memory.

`pa.array` and `pa.scalar` look for pandas first, and load it where it is installed: a third of a second of a
process that has no other use for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TYPES = {np.dtype(np.int64): pa.int64(), np.dtype(np.int32): pa.int32()}


def integers(values: npt.NDArray[Any]) -> pa.Array:
    """An array of the same numbers, none of them null, which keeps the memory alive.

    Parameters
    ----------
    values : int64 or int32 array
        Not written to any more.
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_TYPES[values.dtype], len(values), [None, pa.py_buffer(values)])


def mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    """An array of the same truth values, none of them null."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
