"""Which Arrow types a pipeline carries, and how a value of each looks in the core and in plain Python.

A value has two faces. The *storage value* is what the core computes on: an int for every integer, date,
time, timestamp and duration, and for a decimal, whose smallest units it counts; a float; a bool; str,
bytes; a list of storage values; None for null. The *Python value* is what a user function sees, the same as
pyarrow's `to_pylist` gives. `to_python` and `to_storage` go between them; `to_storage` is strict: it never
truncates, wraps or guesses.
"""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError, shown, unknown_column
from ordstream.ground.choices import gone_through
from ordstream.ground.datetimes import counter, no_value, numpy_count, one_object
from ordstream.ground.imported import has_schema, instead_of, schema_alone, schema_of_data
from ordstream.ground.packed_types import (
    carried,
    is_core_list,
    is_packed,
    packed_from_storage,
    packed_to_python,
    packed_to_storage,
    storage_of_packed,
    unsupported,
)
from ordstream.ground.spark_types import is_sparks, schema_of_spark
from ordstream.ground.type_names import instead_of_key, kinds

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# Of a decimal whose count of smallest units is an int64, whatever its value; and of the largest one.
COUNTED_DIGITS, WIDE_DIGITS = 18, 38
_EXACT = decimal.Context(prec=2 * WIDE_DIGITS, traps=[decimal.Inexact])

#: Physical class -> (code, bytes per value). The codes are `PhysicalType` of `_core/ground/chunk.pxd`.
PHYSICAL: dict[str, tuple[int, int]] = {
    "i8": (0, 1),
    "i16": (1, 2),
    "i32": (2, 4),
    "i64": (3, 8),
    "u8": (4, 1),
    "u16": (5, 2),
    "u32": (6, 4),
    "u64": (7, 8),
    "f32": (8, 4),
    "f64": (9, 8),
    "bool": (10, 1),
    "view": (11, 16),
    "list": (12, 16),
    "wide": (11, 16),
    "packed": (11, 16),
}

#: Accepted in place of a pa.DataType wherever a schema or a declared state is written.
PYTHON_TYPES: dict[type, Any] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
}


@dataclass(frozen=True)
class Physical:
    """Physical class of a column.

    Attributes
    ----------
    name : str
        Key of `PHYSICAL`.
    code : int
        `PhysicalType` of the core.
    width : int
        Bytes per value in a chunk.
    vm : str or None
        Class on the expression stack: "i64", "f64", "bool", "view" or "i128", a decimal of more than 18
        digits; None for lists and packed types, which no expression loads.
    element : Physical or None
        Lists only: class of the elements.
    detail : str
        Packed types only: which.
    """

    name: str
    code: int
    width: int
    vm: str | None
    element: Physical | None = None
    detail: str = ""


def physical_type(type_: pa.DataType, column: str) -> Physical:
    """Physical class of an Arrow type.

    Raises
    ------
    SchemaError
        The type is not supported; names `column`.
    """
    if is_packed(type_):
        return Physical("packed", *PHYSICAL["packed"], None, detail=str(type_))
    name = _physical_name(type_)
    if name is None and is_core_list(type_):
        return Physical("list", *PHYSICAL["list"], None, physical_type(type_.value_type, column))
    if name is None:
        raise SchemaError(unsupported(type_, column))
    vm = {"f32": "f64", "f64": "f64", "bool": "bool", "view": "view", "wide": "i128"}.get(name, "i64")
    return Physical(name, *PHYSICAL[name], vm)


def _physical_name(type_: pa.DataType) -> str | None:
    if pat.is_integer(type_):
        return f"{'i' if pat.is_signed_integer(type_) else 'u'}{type_.bit_width}"
    if is_temporal(type_):
        return f"i{type_.bit_width}"
    if pat.is_float32(type_) or pat.is_float64(type_):
        return f"f{type_.bit_width}"
    if pat.is_boolean(type_):
        return "bool"
    if is_string(type_) or is_binary(type_):
        return "view"
    if is_counted(type_):
        return "i64"
    return "wide" if is_wide(type_) else None


def is_counted(type_: Any) -> bool:
    """A decimal that the core has as a count of its smallest unit, an int64."""
    return bool(pat.is_decimal128(type_) and type_.precision <= COUNTED_DIGITS)


def is_wide(type_: Any) -> bool:
    """A decimal of more digits, whose count has up to 128 bits: the core has 16 bytes that compare as it."""
    return bool(pat.is_decimal128(type_) and type_.precision > COUNTED_DIGITS)


def is_list(type_: pa.DataType) -> bool:
    """List or large_list."""
    return bool(pat.is_list(type_) or pat.is_large_list(type_))


def is_string(type_: pa.DataType) -> bool:
    """Utf8 in any layout."""
    return bool(pat.is_string(type_) or pat.is_large_string(type_) or pat.is_string_view(type_))


def is_binary(type_: pa.DataType) -> bool:
    """Bytes in any layout."""
    return bool(pat.is_binary(type_) or pat.is_large_binary(type_) or pat.is_binary_view(type_))


def is_temporal(type_: pa.DataType) -> bool:
    """Date, time, timestamp or duration: stored as an integer count of the type's unit."""
    return bool(
        pat.is_date(type_) or pat.is_time(type_) or pat.is_timestamp(type_) or pat.is_duration(type_)
    )


def is_fixed_number(type_: pa.DataType) -> bool:
    """Integer, float, temporal or decimal of 64 bits: what has an order and a fixed width."""
    return bool(
        pat.is_integer(type_)
        or pat.is_float32(type_)
        or pat.is_float64(type_)
        or is_temporal(type_)
        or is_counted(type_)
    )


def pipeline_schema(
    schema: pa.Schema | Mapping[str, Any] | Iterable[tuple[str, Any]], where: str = "schema"
) -> pa.Schema:
    """A checked schema: unique names, supported types, dictionaries and runs decoded, metadata dropped.

    Parameters
    ----------
    schema : pyarrow.Schema, name to type, data with columns (Arrow, pandas, Polars), or a Spark DataFrame or
        its schema
        A type is a `pyarrow.DataType` or one of int, float, bool, str, bytes.
    where : str
        For error texts.

    Raises
    ------
    SchemaError
        No columns, a name used twice, or a type that is not supported.
    """
    if not isinstance(schema, pa.Schema):
        schema = _schema_of(schema, where)
    fields = []
    for field in schema:
        type_ = carried(field.type)
        physical_type(type_, field.name)
        fields.append(pa.field(field.name, type_, field.nullable or pat.is_null(type_)))
    if not fields:
        raise SchemaError(f"{where}: at least one column is needed")
    unique_names([field.name for field in fields], where)
    return pa.schema(fields)


def _schema_of(given: Any, where: str) -> pa.Schema:
    """A schema from another library's, a mapping, or pairs of name and type."""
    if is_sparks(given):
        return schema_of_spark(given, where)
    wanted = "expected a pyarrow.Schema or a mapping of name to type"
    type_ = given.type if isinstance(given, pa.Field) else given
    if isinstance(type_, pa.DataType) and not pat.is_struct(type_):
        raise SchemaError(f"{where}: {wanted}, got {shown(given)}")
    if hasattr(given, "__arrow_c_schema__") and not hasattr(given, "__arrow_c_array__"):
        try:
            return schema_alone(given, where)
        except pa.ArrowException as error:
            raise SchemaError(f"{where}: Arrow refuses a type of this schema: {error}") from error
    if has_schema(given):
        return schema_of_data(given, f"{where}: {wanted}")
    if hasattr(given, "__next__"):  # what is drawn of it the run would miss, and it may have no end
        raise SchemaError(
            f"{where}: {wanted}, got {shown(given)}, which can be gone through only once: of pairs of name "
            "and type give a list; of data give the schema, for example od.Pipeline(first_batch.schema)"
        )
    pairs = gone_through(given.items() if isinstance(given, Mapping) else given)
    if pairs and all(isinstance(field, pa.Field) for field in pairs):
        return pa.schema(pairs)
    if pairs is None or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise SchemaError(f"{where}: {wanted}, got {shown(given)}{instead_of(given)}")
    fields = []
    for name, type_ in pairs:
        if not isinstance(name, str):
            raise SchemaError(f"{where}: a column's name is a str, got {name!r:.200}{instead_of(given)}")
        try:
            fields.append(pa.field(name, PYTHON_TYPES.get(type_, type_)))
        except (TypeError, ValueError) as error:
            raise SchemaError(f"{where}: column {name!r} can't be {type_!r}: {kinds(type_)}") from error
    return pa.schema(fields)


def unique_names(names: Sequence[str], where: str) -> None:
    """Raise SchemaError when a column name occurs twice."""
    if len(set(names)) == len(names):
        return
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    raise SchemaError(f"{where}: duplicate column name(s) {', '.join(map(repr, repeated))}")


def names_beside(names: Sequence[str], added: Sequence[str], what: str) -> None:
    """Raise SchemaError when a column that `what` adds has the name of one that is there."""
    for name in added:
        if name in names:
            raise SchemaError(
                f"{what} adds a column {name!r}, and there is one of that name: rename it before"
            )


def column_index(schema: pa.Schema, name: Any, where: str) -> int:
    """Index of a column, given by its name or as `od.col(name)`; SchemaError names the available ones
    and a close match.
    """
    name = getattr(name, "column_name", name)
    try:
        index = schema.get_field_index(name) if isinstance(name, str) else -1
    except UnicodeEncodeError:  # half a character, as of a file's name that is no UTF-8
        index = -1
    if index < 0:
        raise unknown_column(name, schema.names, where)
    return int(index)


def key_type(type_: pa.DataType, column: str, where: str = "") -> None:
    """Raise SchemaError when a column of this type can't be a key; `where`: of the operator."""
    if physical_type(type_, column).vm is None:
        place = f"{where}: " if where else ""
        instead = instead_of_key(type_, column)
        raise SchemaError(f"{place}column {column!r}: {type_} can't be a key; {instead}")


def with_fewer_digits(type_: pa.DataType, column: str) -> str:
    """What to do where a decimal has too many digits: "", or the rest of a sentence."""
    if not is_wide(type_):
        return ""
    fitting = f"decimal({COUNTED_DIGITS},{min(type_.scale, COUNTED_DIGITS)})"
    return (
        f"; a decimal here has at most {COUNTED_DIGITS} digits. Cast it to as many as it needs "
        f"(in Spark: df.withColumn({column!r}, F.col({column!r}).cast('{fitting}')))"
    )


# ---------------------------------------------------------------------------------------------- storage
# values


def storage_type(type_: pa.DataType) -> pa.DataType:
    """The type whose `to_pylist` gives storage values: dates and times become integers of their width."""
    if is_list(type_):
        item = storage_type(type_.value_type)
        return pa.large_list(item) if pat.is_large_list(type_) else pa.list_(item)
    if is_temporal(type_):
        return pa.int64() if type_.bit_width == 64 else pa.int32()
    return pa.int64() if is_counted(type_) else type_


def storage_array(array: pa.Array) -> pa.Array:
    """An Arrow array of storage values.

    Raises
    ------
    pyarrow.ArrowInvalid
        A decimal that no int64 counts; more digits than its type says.
    """
    type_ = array.type
    if not is_counted(type_):
        return array.cast(storage_type(type_))
    # Arrow has a decimal as 16 bytes, the least first. As a whole number of a finer type it casts checked.
    units = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), -1, array.offset)
    return units.cast(pa.int64())


def storage_values(array: pa.Array) -> list[Any]:
    """Storage values of an Arrow array."""
    if is_packed(array.type):
        return storage_of_packed(array)
    if is_wide(array.type):
        places = array.type.scale
        return [None if one is None else int(_EXACT.scaleb(one, places)) for one in array.to_pylist()]
    return storage_array(array).to_pylist()  # type: ignore[no-any-return]


def from_storage(values: Iterable[Any], type_: pa.DataType) -> pa.Array:
    """Arrow array of storage values."""
    if is_packed(type_):
        return packed_from_storage(values, type_)
    if is_wide(type_):
        return pa.array([to_python(one, type_) for one in values], type_)
    stored = values if isinstance(values, pa.Array) else pa.array(values, storage_type(type_))
    if not is_counted(type_):
        return stored.cast(type_)
    units = stored.cast(pa.decimal128(38, 0))
    return pa.Array.from_buffers(type_, len(units), units.buffers(), units.null_count)


def to_python(value: Any, type_: pa.DataType) -> Any:
    """The Python value (as `to_pylist` gives) of a storage value."""
    if value is None:
        return None
    if is_packed(type_):
        return packed_to_python(value, type_)
    if pat.is_decimal128(type_):
        return _EXACT.scaleb(decimal.Decimal(value), -type_.scale)
    if is_list(type_):
        return [to_python(item, type_.value_type) for item in value]
    return one_object(value, type_) if is_temporal(type_) else value


def python_or_text(value: Any, type_: pa.DataType) -> Any:
    """The Python value of a storage value; where Python has no object for it (a date after year 9999, a time
    of an unknown zone) the text of the storage value.
    """
    try:
        return to_python(value, type_)
    except Exception:  # of many kinds: a time zone that is not known is a KeyError
        return str(value)


def to_storage(value: Any, type_: pa.DataType, column: str, *, counts: bool = False) -> Any:
    """The storage value of what a user function returned; strict.

    An int column takes int (not bool, not float) within its width; a float column takes float and int up to
    2**53, in float32 up to 2**24, which rounds floats to the nearest; bool takes bool; string takes str;
    binary takes bytes-like; a temporal column takes the matching datetime object, exactly representable in
    its unit, or an int count of its unit, with `counts` any; a decimal column takes a Decimal, exactly
    representable, and with `counts`, which is what compiled functions compute with, an int count of its
    unit; a list column takes a sequence; other types as `packed_to_storage` says. NumPy scalars count as
    Python's.

    Raises
    ------
    TypeError, OverflowError, ValueError
        The value does not fit; the text names the column, its type and the value.
    """
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if value is None:
        return None
    if is_packed(type_):
        return packed_to_storage(value, type_, column, _leaf)
    if pat.is_integer(type_):
        return _in_range(_int(value, type_, column), type_, column)
    if pat.is_floating(type_):
        return _float(value, type_, column)
    if is_temporal(type_):
        return _temporal(value, type_, column, counts)
    if is_list(type_):
        if not isinstance(value, list | tuple | np.ndarray):
            raise _wrong(value, type_, column)
        return [to_storage(item, type_.value_type, column) for item in value]
    if is_string(type_) and isinstance(value, str):
        value.encode()
        return value
    if is_binary(type_) and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if pat.is_boolean(type_) and isinstance(value, bool):
        return value
    if counts and is_counted(type_) and type(value) is int:
        return _in_int64(value, value, type_, column)
    if pat.is_decimal128(type_) and isinstance(value, decimal.Decimal):
        return decimal_units(value, type_, column)
    raise _wrong(value, type_, column)


def _leaf(value: Any, type_: pa.DataType, column: str) -> Any:
    return to_python(to_storage(value, type_, column), type_)


def _wrong(value: Any, type_: pa.DataType, column: str) -> TypeError:
    return TypeError(f"column {column!r} is {type_}, got {type(value).__name__} {shown(value)}")


def _int(value: Any, type_: pa.DataType, column: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(value, type_, column)
    return value


def _in_int64(units: int, value: Any, type_: pa.DataType, column: str) -> int:
    if not INT64_MIN <= units <= INT64_MAX:
        raise OverflowError(f"column {column!r} is {type_}, {value} has more than 64 bits of smallest units")
    return units


def decimal_units(value: decimal.Decimal, type_: pa.DataType, column: str) -> int:
    """How many of a decimal's smallest units a number is; errors as `to_storage`."""
    if not value.is_finite():
        raise ValueError(f"column {column!r} is {type_}, {value} is no number that it holds")
    if value and value.adjusted() + type_.scale >= type_.precision:
        raise OverflowError(f"column {column!r} is {type_}, {value} is out of range")
    try:
        units = _EXACT.scaleb(value, type_.scale) if value else value
    except decimal.Inexact:
        units = decimal.Decimal("0.5")
    if units != units.to_integral_value():
        raise ValueError(f"column {column!r} is {type_}, {value} can't be stored exactly")
    return int(units)


def integer_range(type_: pa.DataType) -> tuple[int, int]:
    """Smallest and largest storage value of an integer or temporal type."""
    bits = type_.bit_width
    return (0, 2**bits - 1) if pat.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _in_range(value: int, type_: pa.DataType, column: str) -> int:
    low, high = integer_range(type_)
    if not low <= value <= high:
        raise OverflowError(f"column {column!r} is {type_}, {value} is out of range")
    return value


def _float(value: Any, type_: pa.DataType, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, type_, column)
    if isinstance(value, int) and abs(value) > (2**24 if pat.is_float32(type_) else 2**53):
        raise OverflowError(
            f"column {column!r} is {type_}, the int {value} may not be exact; convert it with float()"
        )
    return round_float32(float(value)) if pat.is_float32(type_) else float(value)


def round_float32(value: float) -> float:
    """Nearest float32, as IEEE 754 converts: beyond the range it is infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _temporal(value: Any, type_: pa.DataType, column: str, counts: bool) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        why = "" if counts else no_value(value, type_)
        if why:
            raise OverflowError(f"column {column!r} is {type_}, {why}")
        return _in_range(value, type_, column)
    if isinstance(value, np.datetime64 | np.timedelta64 | datetime.datetime) and value != value:
        raise ValueError(f"column {column!r} is {type_}, {value!r} is no time: a null is None")
    if isinstance(value, np.datetime64) and pat.is_timestamp(type_) and type_.tz is not None:
        why = "has no time zone: a datetime has one, such as tzinfo=datetime.timezone.utc"
        raise ValueError(f"column {column!r} is {type_}, {value!r} {why}")
    if isinstance(value, np.generic):  # Arrow takes the count of any unit for one of the type's
        try:
            count = numpy_count(value, type_)
        except ValueError as error:
            raise ValueError(f"column {column!r} is {type_}, {value!r} {error}") from None
        if count is None:
            raise _wrong(value, type_, column)
        return count
    count = counter(type_)(value)
    if count is not None:
        return count
    try:
        scalar = pa.scalar(value, type_)
        exact = scalar.as_py() == value
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        is_date = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
        if pat.is_timestamp(type_) and is_date:
            raise TypeError(
                f"column {column!r} is {type_}, {value!r} is a date: its midnight is "
                f"datetime.datetime({value.year}, {value.month}, {value.day})"
            ) from error
        if isinstance(error, pa.ArrowInvalid) and isinstance(value, datetime.date | datetime.timedelta):
            raise OverflowError(f"column {column!r} is {type_}, {value} is out of range") from error
        raise _wrong(value, type_, column) from error
    if not exact:
        why = _zone_differs(value, type_) or "can't be stored exactly"
        raise ValueError(f"column {column!r} is {type_}, {value!r} {why}")
    return int(scalar.cast(storage_type(type_)).as_py())


def _zone_differs(value: Any, type_: pa.DataType) -> str:
    """What to do where a datetime has a zone and the type none, or none beside a type with one; else ""."""
    if not isinstance(value, datetime.datetime) or not pat.is_timestamp(type_):
        return ""
    if value.tzinfo is None and type_.tz is not None:
        return "has no time zone: give it one, such as tzinfo=datetime.timezone.utc"
    if value.tzinfo is not None and type_.tz is None:
        return "has a time zone: what its clock reads is .replace(tzinfo=None)"
    return ""
