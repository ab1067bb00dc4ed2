"""Keys as 64-bit words: a column of keys, or several columns as one composite key, is hashed once.

Sketches and deployed maps see words only. An integer is its own word; a string, bytes, float or composite
key is hashed to one. The word of a key is the same in every process. Two different strings have the same
word with probability 2^-64: among a million keys, some pair does with probability 3e-8; a sketch then counts
the two as one key, a route sends them to the same instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream._core.balance import hashing
from ordstream.errors import SchemaError, shown
from ordstream.ground.numbers import integers, truth, values
from ordstream.ground.types import is_counted, is_wide, storage_array, storage_values

Words: TypeAlias = npt.NDArray[np.uint64]
Key: TypeAlias = int | str | bytes | float | tuple[Any, ...] | None

NULL_WORD: int = hashing.NULL_WORD
_PLAIN = (int, str, bytes)


def key_word(key: Key) -> int:
    """Word of one key.

    Parameters
    ----------
    key : int, str, bytes, float, None, or a tuple of them
        An integer must fit 64 bits (signed or unsigned).

    Returns
    -------
    int
        In [0, 2^64).

    Raises
    ------
    TypeError
        For a value of another type.
    OverflowError
        For an integer outside 64 bits.
    SchemaError
        For a string with half of a surrogate pair, which is no text.
    """
    try:
        word: int = hashing.word_of(key)
    except UnicodeEncodeError as error:
        raise no_text(error) from None
    return word


def no_text(error: UnicodeEncodeError) -> SchemaError:
    """The error for a key that has no UTF-8, which a column of strings could not hold either."""
    return SchemaError(f"the key {shown(error.object)} is no text: {error.reason}")


def key_words(keys: Any) -> Words:
    """Words of many keys.

    Parameters
    ----------
    keys : one of
        a NumPy array (integers, floats, bool, strings, bytes; what is masked is null); an Arrow array or
        chunked array (integers, bool, floats, dates and times, which count as the integers Arrow stores,
        strings, bytes, dictionaries of them, nulls), or anything that has `__arrow_c_array__` or
        `__arrow_c_stream__` and gives one; a list of Python keys (`key_word`); for a composite key: a tuple
        of columns, a struct array, a record batch or a table, whose columns are taken in order.

    Returns
    -------
    uint64 array
        One word per key. May share memory with `keys` when those are 64-bit integers.

    Raises
    ------
    SchemaError
        The type of a column cannot be a key, a string is no text, or columns have different lengths.
    TypeError
        `keys` is none of these.
    """
    if isinstance(keys, np.ndarray):
        return _numpy_words(keys)
    if isinstance(keys, list):
        return _list_words(keys)
    if isinstance(keys, tuple):
        return _combined([key_words(column) for column in keys])
    return _arrow_words(_as_arrow(keys))


def integers_of(words: Words, kind: pa.DataType) -> pa.Array | None:
    """The keys of an integer type that have these words; None where they may be others: nulls, or none."""
    signed = pat.is_signed_integer(kind)
    if not len(words):
        return pa.nulls(0, kind)
    if not (signed or pat.is_unsigned_integer(kind)) or (words == np.uint64(NULL_WORD)).any():
        return None
    found = integers(words.view(np.int64) if signed else words)
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        return None


def stored_keys(keys: Any) -> Any:
    """What `key_words` accepts, in a form that can be read twice: a stream is drained."""
    if isinstance(keys, tuple):
        return tuple(stored_keys(column) for column in keys)
    return keys if isinstance(keys, np.ndarray | list) else _as_arrow(keys)


def key_at(keys: Any, rows: npt.NDArray[np.int64]) -> list[Key]:
    """The Python keys at some rows of what `key_words` accepts: int, str, bytes, float, None, or tuples
    of them.
    """
    if isinstance(keys, np.ndarray):
        return [plain_key(value) for value in keys[rows].tolist()]
    if isinstance(keys, list):
        return [plain_key(keys[row]) for row in rows.tolist()]
    if isinstance(keys, tuple):
        return _zipped([key_at(column, rows) for column in keys])
    array = _as_arrow(keys)
    if isinstance(array, pa.RecordBatch | pa.Table):
        return _zipped([key_at(column, rows) for column in array.columns])
    # Views cannot be taken from; few rows are asked for, so a scalar at a time costs nothing that counts.
    return [plain_key(_storage_value(array[row])) for row in rows.tolist()]


def _zipped(columns: list[list[Key]]) -> list[Key]:
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def plain_key(value: Any) -> Any:
    """A key as sketches show it: NumPy scalars and bool become int and float, -0.0 becomes 0.0, a struct
    a tuple.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return _zipped([[plain_key(part)] for part in value.values()])[0]
    if isinstance(value, tuple):
        return tuple(map(plain_key, value)) if len(value) != 1 else plain_key(value[0])
    if isinstance(value, bool | np.bool_ | np.integer):
        return int(value)
    return float(value) + 0.0 if isinstance(value, float | np.floating) else value  # -0.0 is the key 0.0


def _as_arrow(keys: Any) -> Any:
    if isinstance(keys, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table):
        return keys
    if hasattr(keys, "__arrow_c_array__"):
        return pa.array(keys)
    if hasattr(keys, "__arrow_c_stream__"):
        return pa.chunked_array(keys)
    if hasattr(keys, "__array__") and not isinstance(keys, np.generic):
        return pa.array(keys)
    raise TypeError(
        "keys must be a NumPy array, an Arrow array, a list of keys, or for a composite key a tuple of "
        "columns or a record batch, "
        f"not {type(keys).__name__}"
    )


def _combined(columns: Sequence[Words]) -> Words:
    if not columns:
        raise SchemaError("a composite key needs at least one column")
    if len({len(column) for column in columns}) > 1:
        raise SchemaError(
            f"the columns of a composite key have different lengths: {[len(column) for column in columns]}"
        )
    return np.asarray(hashing.combined_words(list(columns)))


def _list_words(keys: list[Any]) -> Words:
    try:
        return np.asarray(hashing.words_of_list(keys))
    except UnicodeEncodeError as error:
        raise no_text(error) from None


def _numpy_words(keys: npt.NDArray[Any]) -> Words:
    if keys.ndim != 1:
        raise SchemaError(
            f"a column of keys has one dimension, not {keys.ndim}; for a composite key pass a tuple of "
            "columns"
        )
    kind = keys.dtype.kind
    if isinstance(keys, np.ma.MaskedArray) and kind not in "USTO":  # those give None as list
        return np.where(np.ma.getmaskarray(keys), np.uint64(NULL_WORD), _numpy_words(keys.data))
    if kind == "i":
        return np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)
    if kind in "ub":
        return np.ascontiguousarray(keys, dtype=np.uint64)
    if kind == "f":
        return np.asarray(hashing.words_of_floats(np.ascontiguousarray(keys, dtype=np.float64)))
    if kind in "USTO":
        return _list_words(keys.tolist())
    raise SchemaError(f"a NumPy array of {keys.dtype} cannot be a column of keys")


def _storage(array: Any) -> Any:
    """Dates, times, durations and decimals as integers; other arrays as they are."""
    if is_counted(array.type):
        return storage_array(array)
    if is_wide(array.type):  # as the core has them
        return pa.array([_bytes_of(one) for one in storage_values(array)], pa.binary())
    if pat.is_temporal(array.type):
        if pat.is_interval(array.type):
            raise SchemaError(f"a column of type {array.type} cannot be a key")
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def key_of_storage(value: Any, type_: pa.DataType) -> Any:
    """The key that a storage value (`ordstream.ground.types`) of this type is; None for null."""
    return _bytes_of(value) if is_wide(type_) else value


def _bytes_of(units: int | None) -> bytes | None:
    """A decimal of over 18 digits, which compares as its bytes do."""
    return None if units is None else (units + (1 << 127)).to_bytes(16, "big")


def _storage_value(scalar: Any) -> Any:
    """The Python value of an Arrow scalar; dates, times, durations and decimals as integers, a struct as a
    tuple of such values.
    """
    if not scalar.is_valid:
        return None
    if is_counted(scalar.type) or is_wide(scalar.type):
        (units,) = storage_values(pa.array([scalar.as_py()], scalar.type))
        return _bytes_of(units) if is_wide(scalar.type) else units
    if pat.is_dictionary(scalar.type):
        return _storage_value(scalar.value)
    if pat.is_struct(scalar.type):
        return tuple(_storage_value(scalar[k]) for k in range(scalar.type.num_fields))
    return scalar.value if pat.is_temporal(scalar.type) else scalar.as_py()


def _arrow_words(array: Any) -> Words:
    if isinstance(array, pa.RecordBatch | pa.Table):
        return _combined([_arrow_words(column) for column in array.columns])
    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks == 1:
            return _arrow_words(array.chunk(0))
        parts = [_arrow_words(chunk) for chunk in array.chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    array = _storage(array)
    type_ = array.type
    if pat.is_null(type_):
        return np.full(len(array), NULL_WORD, dtype=np.uint64)
    if pat.is_dictionary(type_):
        words = np.append(_arrow_words(array.dictionary), np.uint64(NULL_WORD))
        # the code of null may not fit the dictionary's own index type
        codes = pc.cast(array.indices, pa.int64())
        return np.asarray(words[np.where(truth(codes.is_null()), len(words) - 1, values(codes))])
    if pat.is_struct(type_):
        return _with_nulls(_combined([_arrow_words(part) for part in array.flatten()]), array)
    if pat.is_boolean(type_):
        return _with_nulls(_numpy_words(truth(array)), array)
    if pat.is_integer(type_):
        return _with_nulls(_numpy_words(values(array)), array)
    if pat.is_floating(type_):
        return _with_nulls(_numpy_words(values(pc.cast(array, pa.float64()))), array)
    text = pat.is_string(type_) or pat.is_large_string(type_) or pat.is_string_view(type_)
    if (
        text
        or pat.is_binary(type_)
        or pat.is_large_binary(type_)
        or pat.is_binary_view(type_)
        or pat.is_fixed_size_binary(type_)
    ):
        return _with_nulls(_text_words(array, text), array)
    raise SchemaError(
        f"a column of type {type_} cannot be a key; integers, strings, bytes, floats, dates and times can"
    )


def _text_words(array: pa.Array, text: bool) -> Words:
    wide = pc.cast(array, pa.large_string() if text else pa.large_binary())
    if not len(wide):
        return np.empty(0, dtype=np.uint64)
    _, offsets, data = wide.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64, count=len(wide) + 1, offset=8 * wide.offset)
    letters = (
        np.frombuffer(data, dtype=np.uint8)
        if data is not None and data.size
        else np.empty(0, dtype=np.uint8)
    )
    return np.asarray(hashing.words_of_texts(starts, letters, text))


def _with_nulls(words: Words, array: pa.Array) -> Words:
    if not array.null_count:
        return words
    return np.where(truth(array.is_null()), np.uint64(NULL_WORD), words)
