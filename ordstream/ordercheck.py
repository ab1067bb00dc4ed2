"""Check, batch by batch, that rows arrive in the order they are said to have.

Order is Arrow's and Spark's ascending order: columns compared left to right, NULL first, NaN last, strings by
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
