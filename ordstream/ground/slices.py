"""Slices whose offset pyarrow 26 forgets: `take` and `filter` give other rows of lists of one length inside
of such lists (matrices), wherever they are.
"""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.types as pat


@functools.lru_cache(maxsize=1024)
def forgets_offsets(type_: pa.DataType) -> bool:
    """Whether a type has such lists inside."""
    if pat.is_fixed_size_list(type_) and pat.is_fixed_size_list(type_.value_type):
        return True
    return any(forgets_offsets(type_.field(place).type) for place in range(type_.num_fields))


def from_0(array: pa.Array) -> pa.Array:
    """The array, or a copy that begins at 0, for `take` and `filter`."""
    if not forgets_offsets(array.type):
        return array
    return pa.concat_arrays([array, array.slice(0, 0)])


def rows_from_0(rows: pa.RecordBatch) -> pa.RecordBatch:
    """`from_0` of each column."""
    if not any(forgets_offsets(type_) for type_ in rows.schema.types):
        return rows
    return pa.RecordBatch.from_arrays([from_0(column) for column in rows.columns], schema=rows.schema)
