"""Packed types: those that no kernel computes on, and that pass all the same. Structs, maps, lists of texts
or of lists, lists of one length, bytes of one length, decimals of other widths than 128 bits, half floats,
intervals, columns of nothing but nulls, and extension types over what passes.

The core has a value as bytes (`_core/ground/packed_values.hpp`); to users, functions, files of state and
other nodes it is what Arrow says. What is unlike in layout alone comes out as Arrow's plain one (`plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import shown
from ordstream.ground.datetimes import check_parts
from ordstream.ground.depth import DEEPEST
from ordstream.ground.slices import elements_from_0, from_0

# What pyarrow raises for a value that it makes nothing of.
_REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError)

# What has elements and is no list; and what an extension type takes only where its storage takes it.
_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping, Set)
_PLAIN = (bool, int, float, Decimal, list, tuple, np.generic, np.ndarray, *_NO_LISTS)

Leaf = Callable[[Any, pa.DataType, str], Any]

_OF_ONE_CLASS = frozenset(
    one.id
    for one in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.date32(), pa.date64(), pa.time32("s")),
        *(pa.time64("us"), pa.timestamp("us"), pa.duration("us"), pa.decimal128(1)),
    )
)


def carried(type_: pa.DataType) -> pa.DataType:
    """The type in which a pipeline has a source's column: nothing is encoded as a dictionary or in runs, and
    what is packed is plain.
    """
    if pat.is_dictionary(type_) or pat.is_run_end_encoded(type_):
        return carried(type_.value_type)
    if is_plain_list(type_) and (pat.is_list(type_) or pat.is_large_list(type_)):
        return type_
    made = plain(type_) if pat.is_nested(type_) else type_
    if pat.is_list(made) and not is_plain_list(made):
        return pa.list_(made.value_field.with_nullable(True))
    return made


def unsupported(type_: pa.DataType, column: str) -> str:
    """What to say of a column that no pipeline carries."""
    deep = f"with more than {DEEPEST} levels, or a part that does not pass (a union, an extension type),"
    which = f", {deep}" if pat.is_nested(type_) and not pat.is_union(type_) else ""
    return (
        f"column {column!r}: type {type_!s:.200}{which} is not supported; cast it, or leave it out of the "
        "schema: a source may have more columns"
    )


def plain(type_: pa.DataType) -> pa.DataType:
    """The type in which the core hands values over: texts, bytes and lists with 32-bit offsets, and nothing
    encoded as a dictionary or in runs. What is nested too deep is as it was.
    """
    if pat.is_nested(type_) and is_too_deep(type_):
        return type_
    return _plain(type_)


def is_too_deep(type_: pa.DataType) -> bool:
    """Whether functions that call themselves for what is inside had better not be asked."""
    inside = [(type_, 0)]
    while inside:
        one, depth = inside.pop()
        if depth > 2 * DEEPEST:
            return True
        inside += [(one.field(place).type, depth + 1) for place in range(one.num_fields)]
    return False


def _plain(type_: pa.DataType) -> pa.DataType:
    if pat.is_dictionary(type_) or pat.is_run_end_encoded(type_):
        return _plain(type_.value_type)
    if pat.is_large_string(type_) or pat.is_string_view(type_):
        return pa.string()
    if pat.is_large_binary(type_) or pat.is_binary_view(type_):
        return pa.binary()
    if pat.is_map(type_):
        key, item = _plain_field(type_.key_field), _plain_field(type_.item_field)
        return pa.map_(key, item, type_.keys_sorted)
    if pat.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if is_any_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    return pa.struct([_plain_field(field) for field in type_]) if pat.is_struct(type_) else type_


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def is_any_list(type_: pa.DataType) -> bool:
    """A list in any layout, but those of one length."""
    return bool(
        pat.is_list(type_)
        or pat.is_large_list(type_)
        or pat.is_list_view(type_)
        or pat.is_large_list_view(type_)
    )


def packed_format(type_: pa.DataType) -> str | None:
    """What a packed type is made of, as `_core/ground/packed_values.hpp` reads it; None: no such type, or
    one that the core has a class for. Cost: ~0.1 us where there is one.
    """
    if type_.id in _OF_ONE_CLASS:
        return None
    if isinstance(type_, pa.BaseExtensionType):
        inner = _node(type_.storage_type, 1)
        return None if inner is None else f"P{inner}"
    nested = pat.is_nested(type_) or pat.is_fixed_size_binary(type_) or pat.is_null(type_)
    odd = pat.is_float16(type_) or pat.is_interval(type_) or _is_odd_decimal(type_)
    if not (nested or odd) or is_core_list(type_):
        return None
    inner = _node(type_, 0)
    return None if inner is None else f"P{inner}"


def inner_format(type_: pa.DataType) -> str:
    """What a value is made of where it is packed, of lists that the core has a class for, too.

    A `kept_list` of decimals is one of integers.
    """
    if _is_kept(type_):
        return "PlF8;"
    return packed_format(type_) or f"P{_node(type_, 0)}"


def is_packed(type_: Any) -> bool:
    """A type that the core has as bytes, and computes nothing on."""
    return packed_format(type_) is not None


def _is_odd_decimal(type_: pa.DataType) -> bool:
    return bool(pat.is_decimal(type_) and not pat.is_decimal128(type_))


def is_plain_list(type_: pa.DataType) -> bool:
    """A list of numbers, booleans, dates or times: the core has a class for it."""
    if not is_any_list(type_):
        return False
    item = type_.value_type
    return bool(pat.is_primitive(item)) and not pat.is_float16(item) and not pat.is_interval(item)


def is_packed_list(type_: pa.DataType) -> bool:
    """A list that the core has as bytes, in any layout."""
    return (is_any_list(type_) or bool(pat.is_fixed_size_list(type_))) and is_packed(type_)


def kept_list(type_: pa.DataType) -> pa.DataType:
    """Of a column of rows of state: an operator's own list of values that fit into 64 bits. None is null,
    and of decimals the type says so: the core has such lists as it has lists of numbers.
    """
    return pa.list_(pa.field("item", type_, nullable=False) if pat.is_decimal(type_) else type_)


def _is_kept(type_: pa.DataType) -> bool:
    """A `kept_list` of decimals."""
    lists = pat.is_list(type_) or pat.is_large_list(type_)
    return bool(lists and pat.is_decimal128(type_.value_type)) and not type_.value_field.nullable


def is_core_list(type_: pa.DataType) -> bool:
    """A list that the core has as a list: of values of fixed width."""
    return is_plain_list(type_) or _is_kept(type_)


def as_kept(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """A column's type in stored rows of state: `wanted`, where it is a `kept_list` that an older version
    wrote, which did not say that there are no nulls.
    """
    same = _is_kept(wanted) and pat.is_list(stored) and kept_list(stored.value_type).equals(wanted)
    return wanted if same else stored


def _node(type_: pa.DataType, depth: int) -> str | None:
    """A node of a format; None: nothing passes that has such a part."""
    if depth > DEEPEST:
        return None
    if pat.is_null(type_):
        return "n"
    if pat.is_boolean(type_):
        return "b"
    if pat.is_primitive(type_) or pat.is_decimal(type_) or pat.is_fixed_size_binary(type_):
        return f"F{type_.bit_width // 8};"
    if pat.is_interval(type_):
        return "F16;"
    if pat.is_string(type_) or pat.is_binary(type_):
        return "s"
    if pat.is_large_string(type_) or pat.is_large_binary(type_):
        return "S"
    if pat.is_string_view(type_) or pat.is_binary_view(type_):
        return "s"  # as it is handed over
    if pat.is_dictionary(type_) or pat.is_run_end_encoded(type_):
        return _node(type_.value_type, depth)
    if pat.is_map(type_):
        key, item = _node(type_.key_type, depth + 2), _node(type_.item_type, depth + 2)
        return None if key is None or item is None else f"l{{{key}{item}}}"
    if pat.is_struct(type_):
        nodes = [_node(field.type, depth + 1) for field in type_]
        return None if None in nodes else f"{{{''.join(map(str, nodes))}}}"
    if pat.is_fixed_size_list(type_):
        inner = _node(type_.value_type, depth + 1)
        return None if inner is None else f"f{type_.list_size};{inner}"
    if is_any_list(type_):
        inner = _node(type_.value_type, depth + 1)
        letter = "L" if pat.is_large_list(type_) else "l"
        return None if inner is None else f"{letter}{inner}"
    return None


def as_plain(array: pa.Array) -> pa.Array:
    """An array in the type in which the core hands values over.

    Nested arrays are put together here: pyarrow 26 casts those with a null column inside, and list views
    that are slices, to something else, and neither joins nor flattens those with dictionaries of structs or
    lists inside.

    Raises
    ------
    pyarrow.ArrowInvalid
        The values don't fit into 32-bit offsets.
    """
    wanted = plain(array.type)
    if array.type.equals(wanted):
        return array
    if pat.is_dictionary(array.type) or pat.is_run_end_encoded(array.type):
        return as_plain(decoded(array))
    if pat.is_list_view(array.type) or pat.is_large_list_view(array.type):
        return _as_list(array)
    if not pat.is_nested(array.type):
        return array.cast(wanted)
    rows = len(array)
    buffers = [_validity(array)]
    if pat.is_struct(wanted):
        parts = [as_plain(array.field(place)) for place in range(wanted.num_fields)]
    else:
        parts = [_plain_entries(spanned(array), wanted)]
        if not pat.is_fixed_size_list(wanted):
            buffers.append(_offsets_from_0(array))
    return pa.Array.from_buffers(wanted, rows, buffers, array.null_count, children=parts)


def spanned(array: pa.Array) -> pa.Array:
    """The elements of a list column's rows, from the first one to the last, and what lies between them."""
    return elements_from_0(_spanned(array))


def _spanned(array: pa.Array) -> pa.Array:
    if pat.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.values.slice(array.offset * size, len(array) * size)
    if not len(array):
        return array.values.slice(0, 0)
    if pat.is_list_view(array.type) or pat.is_large_list_view(array.type):
        starts, sizes = _views(array)
        used = sizes > 0
        start = int(starts[used].min()) if used.any() else 0
        return array.values.slice(start, int((starts + sizes)[used].max()) - start if used.any() else 0)
    offsets = array.offsets
    start = offsets[0].as_py()
    return array.values.slice(start, offsets[len(array)].as_py() - start)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Which rows are there, as the buffer of an array that begins at 0."""
    if not array.null_count:
        return None
    there = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(there, bitorder="little"))


def _offsets_from_0(array: pa.Array) -> pa.Buffer:
    """The 32-bit offsets of a list column, or a map, into what `spanned` gives."""
    offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int64)
    return pa.array(offsets - offsets[0]).cast(pa.int32()).buffers()[1]


def _plain_entries(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The elements of lists, or the pairs of maps, as they lie in an array of the plain type."""
    if not pat.is_map(wanted):
        return as_plain(values)
    pair = [as_plain(values.field(0)), as_plain(values.field(1))]
    return pa.StructArray.from_arrays(pair, fields=[wanted.key_field, wanted.item_field])


def decoded(array: pa.Array) -> pa.Array:
    """The values of an array that is encoded as a dictionary or in runs."""
    if pat.is_dictionary(array.type):
        return _taken(array.dictionary, array.indices)
    rows = np.arange(array.offset, array.offset + len(array))
    runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
    return _taken(array.values, pa.array(runs))


def _taken(values: pa.Array, places: pa.Array) -> pa.Array:
    """The values at these places. pyarrow 26 takes no views, and decodes none."""
    type_ = values.type
    if pat.is_string_view(type_) or pat.is_binary_view(type_):
        # 64-bit offsets: all values of a dictionary may be more than the rows of a batch take
        values = values.cast(pa.large_string() if pat.is_string_view(type_) else pa.large_binary())
    elif pat.is_nested(type_):
        values = as_plain(values)
    if not len(values):  # all places are null, or structs above them: pyarrow makes them so
        return pa.nulls(len(places), values.type)
    return from_0(values).take(places)


def _views(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where the list of each row begins, and how long it is; a null's is empty."""
    starts, sizes = (part.to_numpy().astype(np.int64) for part in (array.offsets, array.sizes))
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return starts, sizes


def _as_list(array: pa.Array) -> pa.Array:
    """A list view as a plain list."""
    starts, sizes = _views(array)
    values, used = spanned(array), sizes > 0
    starts -= starts[used].min() if used.any() else 0
    ends = np.cumsum(sizes)
    # the place of each element among the lists', and from there its place among the values
    places = np.arange(int(sizes.sum())) + np.repeat(starts - (ends - sizes), sizes)
    inside = from_0(as_plain(values)).take(pa.array(places, pa.int64()))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64()).cast(pa.int32())
    buffers = [_validity(array), offsets.buffers()[1]]
    wanted = plain(array.type)
    return pa.Array.from_buffers(wanted, len(array), buffers, array.null_count, children=[inside])


# ---------------------------------------------------------------------------------------- values


def storage_of_packed(array: pa.Array) -> list[Any]:
    """Storage values of an array of a packed type: Python's, of an extension type those of its storage.

    Raises
    ------
    ValueError
        A time of day in it has nanoseconds, which Python's has not.
    OverflowError
        Python has no object for a date or time in it.
    """
    check_parts(array)
    return _stored(array).to_pylist()  # type: ignore[no-any-return]


def packed_from_storage(values: Any, type_: pa.DataType) -> pa.Array:
    """The array of such values."""
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array(list(values), type_.storage_type))
    return pa.array(list(values), type_)


def packed_to_python(value: Any, type_: pa.DataType) -> Any:
    """The Python value of a storage value that is not None."""
    if isinstance(type_, pa.BaseExtensionType):
        return packed_from_storage([value], type_)[0].as_py()
    return unshared(value)


def unshared(value: Any) -> Any:
    """The value with lists and dicts of its own: whoever is given it may change them."""
    if isinstance(value, list):
        return [unshared(item) for item in value]
    if isinstance(value, dict):
        return {name: unshared(item) for name, item in value.items()}
    return tuple(map(unshared, value)) if type(value) is tuple else value  # a map's pair


def _stored(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def packed_to_storage(value: Any, type_: pa.DataType, column: str, leaf: Leaf) -> Any:
    """The storage value of what a user function returned: strict, as `ordstream.ground.types.to_storage`.

    A struct takes a mapping with just its fields; a map a mapping or pairs; a list a sequence; an extension
    type what pyarrow makes one of, or what its storage takes.

    Parameters
    ----------
    leaf : callable
        The same for a value of a type that is not packed, which gives Python's value.

    Raises
    ------
    TypeError, OverflowError, ValueError
        The value does not fit; the text names the column, its type and the value.
    """
    if value is None:
        return None

    def inside(value: Any, field: pa.Field) -> Any:
        if value is None and not field.nullable:
            raise ValueError(f"column {column!r}: {field.name!r} is declared without nulls, got None")
        return packed_to_storage(value, field.type, column, leaf)

    if pat.is_struct(type_):
        if not isinstance(value, Mapping) or set(value) != {field.name for field in type_}:
            raise _wrong(value, type_, column)
        return {field.name: inside(value[field.name], field) for field in type_}
    if pat.is_map(type_):
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple) or not all(
            isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs
        ):
            raise _wrong(value, type_, column)
        return [(inside(key, type_.key_field), inside(item, type_.item_field)) for key, item in pairs]
    if is_any_list(type_) or pat.is_fixed_size_list(type_):
        # a set has no order: what a run gave would hang on how its process hashes
        if isinstance(value, _NO_LISTS) or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
            raise _wrong(value, type_, column)
        if pat.is_fixed_size_list(type_) and len(value) != type_.list_size:
            raise _wrong(value, type_, column)
        return [inside(item, type_.value_field) for item in value]
    if isinstance(type_, pa.BaseExtensionType):
        return _extended(value, type_, column, leaf)
    return _odd(value, type_, column) if is_packed(type_) else leaf(value, type_, column)


def _extended(value: Any, type_: Any, column: str, leaf: Leaf) -> Any:
    """What the storage takes, or an object of the type's own, as the row shows one. pyarrow alone cuts off
    the fraction of a number for a storage of integers, and takes any object that `int` takes.
    """
    if isinstance(type_, pa.Bool8Type) and isinstance(value, bool | np.bool_):
        return int(value)
    if not isinstance(value, _PLAIN):
        try:
            array = pa.array([value], type_)
            own = array[0].as_py()
            if type(own) is type(value) or (own == value) is True:  # of a pandas Series it is another one
                return array.storage[0].as_py()
        # the last where it is no object of the type's own class
        except (*_REFUSALS, ValueError, AttributeError):
            pass
    return packed_to_storage(value, type_.storage_type, column, leaf)


def _odd(value: Any, type_: pa.DataType, column: str) -> Any:
    """A value of a type that has no parts, as pyarrow takes it."""
    try:
        found = pa.array([value], type_)[0].as_py()
    except _REFUSALS as error:
        raise _wrong(value, type_, column) from error
    # an interval may be given as pandas' DateOffset, which a frame has of it, or as a timedelta
    if found != value and found == found and not pat.is_interval(type_):
        raise ValueError(f"column {column!r} is {type_}, {shown(value)} can't be stored exactly")
    return found


def _wrong(value: Any, type_: pa.DataType, column: str) -> TypeError:
    return TypeError(f"column {column!r} is {type_}, got {type(value).__name__} {shown(value)}")
