"""Casts of structs, lists and maps, part by part.

Arrow's own cast takes a null that lies under a null for one of the inner column: a null struct would not
pass as one whose fields have no nulls. Nor does it go to an extension type inside of another.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.ground.packed_types import as_plain, is_any_list, is_too_deep, plain
from ordstream.ground.slices import elements_from_0


def cast_column(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column as this type. Fields of a struct are matched by position.

    Raises
    ------
    pyarrow.ArrowException
        A value does not fit, or is null where the type has no nulls, or there is no such cast.
    """
    if column.type.equals(type_):
        return column
    if pat.is_nested(column.type):
        column = as_plain(column)
        if column.type.equals(type_):
            return column
    if pat.is_run_end_encoded(column.type) or pat.is_dictionary(column.type):
        return cast_column(as_plain(column), type_)
    if isinstance(column, pa.ExtensionArray):
        return cast_column(column.storage, type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, cast_column(column, type_.storage_type))
    if not pat.is_nested(type_) or pat.is_null(column.type):
        return column.cast(type_)
    if pat.is_struct(type_):
        return _struct(column, type_)
    if pat.is_map(type_) and pat.is_map(column.type):
        return _map(column, type_)
    return _list(column, type_)


def align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns by position, cast to the types of `schema`, under its names.

    Raises
    ------
    pyarrow.ArrowException
        As `cast_column`.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [cast_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def align_output(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`align`, of rows that leave a node for somebody whose types hold less: Spark has microseconds.

    Raises
    ------
    SchemaError
        A value does not fit; names its column and says what to do.
    """
    try:
        return align(batch, schema)
    except pa.ArrowException as error:
        for number, (given, wanted) in enumerate(zip(batch.schema, schema, strict=True)):
            try:
                cast_column(batch.column(number), wanted.type)
            except pa.ArrowException as why:
                # between nodes columns have no name of the user's
                name = f"column {number + 1}" + f" ({given.name!r})" * (given.name != f"c{number}")
                raise SchemaError(
                    f"{name} of the output is {given.type}, and here it must be {wanted.type}: {why}. Make "
                    "its values fit in the pipeline: times by .dt.truncate('1us'), or as a number by "
                    ".cast(int)"
                ) from error
        raise


def same_values(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether types differ at most in layout, and in where nulls may be."""
    if is_too_deep(given):
        return False
    return bool(nullable_inside(plain(given)).equals(nullable_inside(plain(wanted))))


def cast_advice(given: pa.DataType, wanted: pa.DataType) -> str:
    """What to do about a column of another type."""
    instants = all(pat.is_timestamp(one) and one.tz is not None for one in (given, wanted))
    how = ", table.cast(pipeline.source_schema): the instants stay" if instants else ""
    return f"cast it at the source{how}"


def typed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column of nulls, or lists of them, that has no type of its own, with the wanted one; others as they
    are. pandas makes them of texts and lists where a chunk, or an empty frame, has none; Polars' lists are
    large ones.
    """
    if pat.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if not _is_list(array.type) or not pat.is_null(array.type.value_type):
        return array
    if not _is_list(wanted) or pat.is_null(wanted.value_type):
        return array
    return pa.array(array.to_pylist(), wanted)  # Arrow casts a slice of such lists wrongly


def _is_list(type_: pa.DataType) -> bool:
    return bool(pat.is_list(type_) or pat.is_large_list(type_))


def nullable_inside(type_: pa.DataType) -> pa.DataType:
    """The type with nulls allowed at every level: Parquet's writer takes a null under a null for one of the
    inner column.
    """
    if pat.is_struct(type_):
        return pa.struct([_nullable(field) for field in type_])
    if pat.is_map(type_):
        key = type_.key_field.with_type(nullable_inside(type_.key_type))
        return pa.map_(key, _nullable(type_.item_field), type_.keys_sorted)
    if pat.is_fixed_size_list(type_):
        return pa.list_(_nullable(type_.value_field), type_.list_size)
    if pat.is_large_list(type_):
        return pa.large_list(_nullable(type_.value_field))
    return pa.list_(_nullable(type_.value_field)) if pat.is_list(type_) else type_


def nullable_columns(schema: pa.Schema, but: Collection[str] = ()) -> pa.Schema:
    """The schema with nulls allowed in every column, at every level; the columns of `but` stay."""
    return pa.schema([field if field.name in but else _nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, nullable_inside(field.type))


def _struct(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pat.is_struct(column.type) or column.type.num_fields != type_.num_fields:
        raise pa.ArrowTypeError(f"{column.type} can't be read as {type_}")
    if not type_.num_fields:
        return column
    there = column.is_valid()
    parts = [_part(column.field(at), type_.field(at), there) for at in range(type_.num_fields)]
    return pa.StructArray.from_arrays(parts, fields=list(type_), mask=pc.invert(there))


def _part(values: pa.Array, field: pa.Field, there: pa.Array | None = None) -> pa.Array:
    """What lies inside; `there`: where there is something around it."""
    if not field.nullable and values.null_count:
        seen = values if there is None else values.filter(there)
        if seen.null_count:
            raise pa.ArrowInvalid(f"{field.name!r} is declared without nulls, and there is one inside")
    return cast_column(values, field.type)


def _offsets(column: pa.Array) -> pa.Array:
    """Of the values that `flatten` gives: none of a null list."""
    sizes = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum_checked(sizes)])


def _map(column: pa.Array, type_: pa.DataType) -> pa.Array:
    # the same buffers: Arrow counts and flattens lists only
    pairs = pa.list_(pa.field("entries", pa.struct([column.type.key_field, column.type.item_field]), False))
    buffers = column.buffers()[:2]
    column = pa.ListArray.from_buffers(
        pairs, len(column), buffers, column.null_count, column.offset, [column.values]
    )
    offsets, entries = _offsets(column), elements_from_0(column.flatten())
    keys, items = _part(entries.field(0), type_.key_field), _part(entries.field(1), type_.item_field)
    return pa.MapArray.from_arrays(offsets, keys, items, type_, mask=column.is_null())


def _list(column: pa.Array, type_: pa.DataType) -> pa.Array:
    same = is_any_list(column.type) or pat.is_fixed_size_list(column.type)
    if not same or not (is_any_list(type_) or pat.is_fixed_size_list(type_)):
        raise pa.ArrowTypeError(f"{column.type} can't be read as {type_}")
    # of lists of one length, too, which Arrow casts wrongly where lists of nulls are inside
    inside = _part(elements_from_0(column.flatten()), type_.value_field)
    list_ = pa.list_(type_.value_field)
    made = pa.ListArray.from_arrays(_offsets(column), inside, list_, mask=column.is_null())
    return made if type_.equals(list_) else made.cast(type_)
