"""What it means that rows run backwards: a check of whole batches that are said to be in order, and what an
operator says of a row.

Order is Arrow's and Spark's: columns compared left to right, NaN above every number, strings by bytes.
Ascending with NULL first, where a `SortKey` does not say otherwise.

Every operator that relies on time compares each row with the row before it that it took in, of the row's key
or, where it has one state, of all (docs/ordering.md lists them). The comparison is in `reference/base.py`
and in the core; the text is made here for both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.ground.types import to_python

PUNCTUATE = "punctuate=od.every(...)"
"""What relies on the source's time, in the text about it."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SortKey:
    """One column of an order.

    Attributes
    ----------
    column : str
        Its name.
    descending : bool
    nulls_last : bool
        NULL comes behind every value, whichever way these run.
    """

    column: str
    descending: bool = False
    nulls_last: bool = False


class OrderCheck:
    """Remembers the last row seen and compares each new batch with it, and its rows with each other.

    Parameters
    ----------
    columns : sequence of str or SortKey
        The columns that the rows are ordered by; equal rows may follow each other.

    Attributes
    ----------
    rows : int
        Rows checked so far.
    """

    def __init__(self, columns: Sequence[str | SortKey]) -> None:
        self.keys = tuple(SortKey(one) if isinstance(one, str) else one for one in columns)
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
        columns = [batch.column(key.column) for key in self.keys]
        first = [column.slice(0, 1) for column in columns]
        if self._last is not None and _first_descent(self._last, first, self.keys) is not None:
            return start
        self._last = [column.slice(batch.num_rows - 1) for column in columns]
        before, after = [c.slice(0, batch.num_rows - 1) for c in columns], [c.slice(1) for c in columns]
        descent = _first_descent(before, after, self.keys)
        return None if descent is None else start + 1 + descent


def _first_descent(before: list[pa.Array], after: list[pa.Array], keys: Sequence[SortKey]) -> int | None:
    """Smallest i whose row in `before` sorts after the one in `after`."""
    if not before or len(before[0]) == 0:
        return None
    found: list[int] = []
    tied: Bools = np.ones(len(before[0]), dtype=bool)
    for left, right, key in zip(before, after, keys, strict=True):
        less, equal = _compare(left, right, key)
        descends = tied & ~(less | equal)
        if descends.any():
            found.append(int(np.argmax(descends)))
        tied &= equal
        if not tied.any():
            break
    return min(found, default=None)


def _compare(left: pa.Array, right: pa.Array, key: SortKey) -> tuple[Bools, Bools]:
    """Element-wise (left before right, left equals right) in the order named at the top."""
    if pa.types.is_boolean(left.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    if left.null_count == 0 and right.null_count == 0 and pa.types.is_integer(left.type):
        a, b = left.to_numpy(), right.to_numpy()
        return (a > b if key.descending else a < b), a == b
    less, equal = _known(pc.less(left, right)), _known(pc.equal(left, right))
    left_null, right_null = _known(left.is_null()), _known(right.is_null())
    values = ~left_null & ~right_null
    if pa.types.is_floating(left.type):
        left_nan, right_nan = _known(pc.is_nan(left)), _known(pc.is_nan(right))
        less |= values & right_nan & ~left_nan
        equal |= left_nan & right_nan
    if key.descending:
        less = values & ~less & ~equal
    less |= ~left_null & right_null if key.nulls_last else left_null & ~right_null
    equal |= left_null & right_null
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
    last = f"after {shown(before, field.type)}{' in the row before it of the same key' * keyed}"
    todo = "sort the source by it first (in Spark: order_by)"
    if needs.startswith("join"):
        todo += ", or unite both sides by od.union and put reorder(time, slack=...) behind it"
    elif needs.endswith("over several sources"):
        todo = "sort each source by it first, or unite them by od.union with reorder(time, slack=...) behind"
    elif needs == "top_k":
        todo += "; what an operator in front emits at the end of the stream comes by key, not by time"
    elif needs != PUNCTUATE:
        todo += ", or, as behind a join, put reorder(time, slack=...) in front"
    return (
        f"column {field.name!r} runs backwards: {shown(now, field.type)} {last}; {needs} needs it to "
        f"ascend: {todo}"
    )


def comes_late(field: pa.Field, time: int, latest: int, slack: int) -> str:
    """What is wrong with a row that is earlier than the latest one by more than the slack, and what to do.

    Parameters
    ----------
    field : pyarrow.Field
        The time column.
    time, latest : storage values
    slack : int
        In the column's unit.
    """
    type_ = field.type
    span = str(slack)
    if pa.types.is_date32(type_):
        span = f"{slack} days"
    elif pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        span = shown(slack, pa.duration(getattr(type_, "unit", "ms")))
    return (
        f"column {field.name!r}: a late row: {shown(time, type_)} is more than the slack, {span}, before "
        f"{shown(latest, type_)}; give reorder a longer slack, or late='drop', 'adjust' or 'side_output'"
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


def shown(value: Any, type_: pa.DataType) -> str:
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
