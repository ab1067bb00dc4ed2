"""What it means that rows run backwards: a check of whole batches that are said to be in order, and what an
operator says of a row.

Order is Arrow's and Spark's ascending order: columns compared left to right, NULL first, NaN last, strings
by bytes.

Every operator that relies on time compares each row with the row before it that it took in, of the row's key
or, where it has one state, of all (docs/ordering.md lists them). The comparison is in `serial_base.py` and
in the core; the text is made here for both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.ground.types import to_python

PUNCTUATE = "punctuate=od.every(...)"
"""What relies on the source's time, in the text about it."""

Bools = npt.NDArray[np.bool_]


class OrderCheck:
    """Remembers the last row seen and compares each new batch with it, and its rows with each other.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns that must ascend; equal rows may follow each other.

    Attributes
    ----------
    rows : int
        Rows checked so far.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.rows = 0
        self._last: list[pa.Array] | None = None

    def first_violation(self, batch: pa.RecordBatch) -> int | None:
        """Take the next batch; return the row of the stream (from 0) that comes before its predecessor, else
        None.

        Raises
        ------
        KeyError
            If the batch lacks one of the columns.
        """
        start, self.rows = self.rows, self.rows + batch.num_rows
        if batch.num_rows == 0:
            return None
        columns = [batch.column(name) for name in self.columns]
        first = [column.slice(0, 1) for column in columns]
        if self._last is not None and _first_descent(self._last, first) is not None:
            return start
        self._last = [column.slice(batch.num_rows - 1) for column in columns]
        descent = _first_descent(
            [c.slice(0, batch.num_rows - 1) for c in columns], [c.slice(1) for c in columns]
        )
        return None if descent is None else start + 1 + descent


def _first_descent(before: list[pa.Array], after: list[pa.Array]) -> int | None:
    """Smallest i whose row in `before` sorts after the one in `after`."""
    if not before or len(before[0]) == 0:
        return None
    found: list[int] = []
    tied: Bools = np.ones(len(before[0]), dtype=bool)
    for left, right in zip(before, after, strict=True):
        less, equal = _compare(left, right)
        descends = tied & ~(less | equal)
        if descends.any():
            found.append(int(np.argmax(descends)))
        tied &= equal
        if not tied.any():
            break
    return min(found, default=None)


def _compare(left: pa.Array, right: pa.Array) -> tuple[Bools, Bools]:
    """Element-wise (left < right, left == right) in the order named at the top."""
    if pa.types.is_boolean(left.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    if left.null_count == 0 and right.null_count == 0 and pa.types.is_integer(left.type):
        a, b = left.to_numpy(), right.to_numpy()
        return a < b, a == b
    less, equal = _known(pc.less(left, right)), _known(pc.equal(left, right))
    left_null, right_null = _known(left.is_null()), _known(right.is_null())
    less |= left_null & ~right_null
    equal |= left_null & right_null
    if pa.types.is_floating(left.type):
        left_nan, right_nan = _known(pc.is_nan(left)), _known(pc.is_nan(right))
        less |= right_nan & ~left_nan & ~left_null
        less |= left_null & right_nan
        equal |= left_nan & right_nan
    return less, equal


def _known(mask: pa.Array) -> Bools:
    """A boolean Arrow array as numpy, NULL counting as False."""
    values: Bools = np.array(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)
    return values


def runs_backwards(field: pa.Field, now: Any, before: Any, needs: str, *, keyed: bool = False) -> str:
    """What is wrong with a row that is earlier than the one before it, and what to do.

    Parameters
    ----------
    field : pyarrow.Field
        The column that should ascend.
    now, before : storage values
        Of the row and of the row before it.
    needs : str
        What relies on it.
    keyed : bool
        Rows are compared by key.
    """
    last = f"after {_shown(before, field.type)}{' in the row before it of the same key' * keyed}"
    todo = "sort the source by it first (in Spark: order_by)"
    if needs == "top_k":
        todo += "; what an operator in front emits at the end of the stream comes by key, not by time"
    return (
        f"column {field.name!r} runs backwards: {_shown(now, field.type)} {last}; {needs} needs it to "
        f"ascend: {todo}"
    )


def stored(text: str, type_: pa.DataType) -> Any:
    """A storage value from what the core says of it (`earlier.pxd`): the number that the value was
    widened to, or "null".
    """
    if text == "null":
        return None
    word = int(text)
    if pa.types.is_floating(type_):
        return struct.unpack("<d", struct.pack("<q", word))[0]
    return word % 2**64 if pa.types.is_uint64(type_) else word


def _shown(value: Any, type_: pa.DataType) -> str:
    """A value for a reader; what Python has no object for, such as a date after year 9999, as the number
    that it is stored as.
    """
    if value is None:
        return "null"
    if isinstance(value, float):
        return str(value + 0.0)  # -0.0 is 0.0 in every order
    try:
        return str(to_python(value, type_))
    except Exception:  # of many kinds: a time zone that is not known is a KeyError
        return str(value)
