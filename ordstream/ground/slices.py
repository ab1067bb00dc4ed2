"""Arrays that pyarrow 26 does not treat well. Views of texts and bytes: rows can be neither taken nor
filtered. Slices whose offset it forgets: `take` and `filter` give other rows of lists of one length inside
of such lists (matrices), wherever they are. Elements of lists, of which there are none, that begin behind
others: they come through Arrow's C interface in a buffer that ends in front of where they begin, and such
lists can be neither joined nor written.
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


def without_view(type_: pa.DataType) -> pa.DataType:
    """The type itself, or what a view of texts or bytes becomes where rows are taken."""
    if pat.is_string_view(type_):
        return pa.string()
    return pa.binary() if pat.is_binary_view(type_) else type_


def chosen_rows(array: pa.Array, chosen: pa.Array) -> pa.Array:
    """Rows of an array, in its own type, a view too.

    Parameters
    ----------
    array : pyarrow.Array
    chosen : pyarrow.BooleanArray
        As many; without nulls.
    """
    type_ = array.type
    plain = without_view(type_)
    return from_0(array).filter(chosen) if plain is type_ else array.cast(plain).filter(chosen).cast(type_)


def elements_from_0(elements: pa.Array) -> pa.Array:
    """Elements of lists, for an array that is made of them: none begin at 0."""
    return elements if len(elements) or not elements.offset else pa.nulls(0, elements.type)


def joinable(array: pa.Array) -> pa.Array:
    """The array, for `pyarrow.concat_arrays`; or where lists in it have no elements, and these begin behind
    others, one that is made of the same buffers without them. Arrow's casts of slices leave such lists, and
    `pyarrow.table` breaks them.
    """
    if not _begins_behind(array):
        return array
    type_ = array.type
    if pat.is_struct(type_):
        parts = [joinable(array.field(place)) for place in range(type_.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=array.is_null())
    elements = joinable(elements_from_0(array.values))
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, [elements])


def _begins_behind(array: pa.Array) -> bool:
    """Whether lists in it have no elements, and these begin behind others."""
    type_ = array.type
    if pat.is_struct(type_):
        return any(_begins_behind(array.field(place)) for place in range(type_.num_fields))
    if not (pat.is_list(type_) or pat.is_large_list(type_) or pat.is_map(type_)):
        return False
    elements = array.values
    return _begins_behind(elements) if len(elements) else bool(elements.offset)
