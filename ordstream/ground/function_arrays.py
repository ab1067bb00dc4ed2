"""Arrays between the core and functions of batches: what a function of NumPy arrays is given of a column
that has no memory of NumPy's, and what any function's result becomes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.ground.datetimes import check_parts
from ordstream.ground.numbers import WITH_NULLS
from ordstream.ground.packed_types import as_plain, decoded, is_any_list, is_packed, plain
from ordstream.ground.types import (
    from_storage,
    is_binary,
    is_list,
    is_string,
    is_temporal,
    storage_type,
    to_storage,
)

# Of extension types, those of Arrow's that have some.
_PARAMETERS = ("type_name", "vendor_name", "shape", "dim_names", "permutation")


def numpy_array(array: pa.Array, column: str) -> Any:
    """A column without nulls as NumPy has it: lists as arrays, structs as dicts.

    Raises
    ------
    ValueError
        A null among the numbers of a list: NumPy would have NaN for it, and floats for integers, of maps and
        of structs in lists, too. A time of day with nanoseconds: NumPy has Python's times.
    """
    odd = [(part.type, found) for part, found in _inside(array) if part.null_count]
    if any(_rounds(type_, found) for type_, found in odd):
        raise ValueError(f"column {column!r} has a null in a list, NumPy has no nulls; {WITH_NULLS}")
    check_parts(array)
    if not any(pat.is_integer(type_) or pat.is_boolean(type_) for type_, _ in odd):
        return array.to_numpy(zero_copy_only=False)
    # one by one: beside a row that has a null there, integers of a struct are floats, and bools objects;
    # what else there is stays as it is
    made = np.empty(len(array), object)
    for row in range(len(array)):
        made[row] = array.slice(row, 1).to_numpy(zero_copy_only=False)[0]
    return made


def _rounds(type_: pa.DataType, found: str) -> bool:
    """Whether NumPy has other numbers than these beside a null: floats for integers, NaN in an array."""
    return (pat.is_integer(type_) and found != "struct") or (pat.is_floating(type_) and found == "list")


def _inside(array: pa.Array, found: str = "struct") -> Iterator[tuple[pa.Array, str]]:
    """What a nested array has inside, and what it is found in: a "struct"; a "list", whose elements are an
    array of NumPy's; "many", which is a map, or structs in a list or map.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    parts: list[pa.Array] = []
    if pat.is_struct(array.type):
        parts, found = array.flatten(), "struct" if found == "struct" else "many"
    elif pat.is_map(array.type):
        parts, found = [_items(array)], "many"
    elif is_any_list(array.type) or pat.is_fixed_size_list(array.type):
        parts, found = [array.flatten()], "list"
    for part in parts:
        yield (part.storage if isinstance(part, pa.ExtensionArray) else part), found
        yield from _inside(part, found)


def _items(maps: pa.Array) -> pa.Array:
    """What the maps have, whose keys are no nulls; nothing of those that are null."""
    there = maps.drop_null()
    first, last = (there.offsets[place].as_py() for place in (0, len(there)))
    return there.items.slice(first, last - first)


def fit_array(array: Any, type_: pa.DataType, column: str) -> pa.Array:
    """The result of a batch function as an array of the declared type; strict in the same way as
    `to_storage`.

    Parameters
    ----------
    array : numpy.ndarray, pyarrow.Array or sequence
        NaN stays NaN (it is not null).

    Raises
    ------
    TypeError, OverflowError, ValueError
        Of another kind (a float array for an int column), or a value out of range.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, pa.Array) and not hasattr(array, "__len__"):
        raise TypeError(f"column {column!r} must be an array of {type_}, got {type(array).__name__}")
    if is_packed(type_) and not isinstance(array, pa.Array):
        return from_storage([to_storage(value, type_, column) for value in array], type_)
    if is_list(type_) and pat.is_temporal(type_.value_type) and _are_arrays(array):
        return _lists(array, type_, column)
    if isinstance(array, np.ndarray) and array.dtype.kind in "US":
        array = array.astype(object)  # pyarrow 26 ends a text of NumPy's at its first NUL
    given = array if isinstance(array, pa.Array) else pa.array(array)
    if is_packed(type_) and plain(given.type).equals(type_):
        return as_plain(given)
    if isinstance(type_, pa.BaseExtensionType) and _may_be(given.type, type_):
        return _extended(given, type_, column)
    if pat.is_dictionary(given.type) or pat.is_run_end_encoded(given.type):
        given = decoded(given)
    if pat.is_list_view(given.type) or pat.is_large_list_view(given.type):
        given = as_plain(given)
    if given.type == type_ or pat.is_null(given.type):
        return given.cast(type_)
    same_kind = (
        (
            pat.is_integer(given.type)
            and (pat.is_integer(type_) or pat.is_floating(type_) or is_temporal(type_))
        )
        or (pat.is_floating(given.type) and pat.is_floating(type_))
        or (pat.is_decimal128(given.type) and pat.is_decimal128(type_))
        or (is_string(given.type) and is_string(type_))
        or (is_binary(given.type) and (is_binary(type_) or pat.is_fixed_size_binary(type_)))
        or (
            is_list(given.type)
            and is_list(type_)
            and _kind(given.type.value_type) == _kind(type_.value_type)
        )
        or (is_temporal(given.type) and given.type.id == type_.id)
        or (pat.is_time(given.type) and pat.is_time(type_))  # NumPy has objects for times of day
        or (given.type in (pa.timestamp("ms"), pa.date32()) and pat.is_date64(type_))  # and for a date64
    )
    if not same_kind:
        raise TypeError(f"column {column!r} is {type_}, got an array of {given.type}")
    try:
        if pat.is_integer(given.type) and is_temporal(type_):
            given = given.cast(storage_type(type_)).cast(type_)
            given.validate(full=True)  # Arrow casts any count to a time of day
        made = given.cast(type_)
        if pat.is_date64(type_) and not made.cast(given.type).equals(given):
            raise OverflowError(f"column {column!r} is {type_}: a time of day among its dates")
        return made
    except pa.ArrowInvalid as error:
        raise OverflowError(f"column {column!r} is {type_}: {error}") from error


def _may_be(given: pa.DataType, type_: Any) -> bool:
    """Whether an array may be one of an extension type: by its storage, or of the same type over another
    layout, as Polars gives it back.
    """
    if not isinstance(given, pa.BaseExtensionType):
        return True
    same = given.extension_name == type_.extension_name
    same = same and all(getattr(given, name, None) == getattr(type_, name, None) for name in _PARAMETERS)
    return same and plain(given.storage_type).equals(plain(type_.storage_type))


def _extended(given: pa.Array, type_: Any, column: str) -> pa.Array:
    storage = given.storage if isinstance(given, pa.ExtensionArray) else given
    if isinstance(type_, pa.Bool8Type) and pat.is_boolean(storage.type):
        storage = storage.cast(type_.storage_type)
    try:
        return type_.wrap_array(fit_array(storage, type_.storage_type, column))
    except TypeError as error:
        raise TypeError(f"column {column!r} is {type_}, got an array of {given.type}") from error


def _kind(type_: pa.DataType) -> str:
    return "int" if pat.is_integer(type_) else "float" if pat.is_floating(type_) else str(type_)


def _are_arrays(lists: Any) -> bool:
    if not isinstance(lists, np.ndarray) or lists.dtype != object or not len(lists):
        return False
    arrays = [one for one in lists if one is not None]
    return bool(arrays) and all(isinstance(one, np.ndarray) and one.ndim == 1 for one in arrays)


def _lists(lists: np.ndarray[Any, Any], type_: pa.DataType, column: str) -> pa.Array:
    """Lists as NumPy has them. Arrow reads no dates of NumPy's in them, and knows no zone of theirs."""
    null = np.array([one is None for one in lists])
    ends = np.cumsum([0, *(0 if one is None else len(one) for one in lists)], dtype=np.int32)
    elements = fit_array(np.concatenate([*lists[~null]]), type_.value_type, column)
    mask = pa.array(null, pa.bool_()) if null.any() else None
    return pa.ListArray.from_arrays(ends, elements, mask=mask).cast(type_)
