"""What a type may be given as, for error texts: Arrow's name where that of another system was tried."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

KINDS = "a type is a pyarrow.DataType, its name, or one of Python's int, float, bool, str, bytes"

#: Of a decimal128.
_MOST_DIGITS = 38

_ELSEWHERE = {
    "'int64'": "int integer long bigint i64 number int64",
    "'int32'": "i32 int32",
    "'int16'": "short smallint i16 int16",
    "'int8'": "byte tinyint i8 int8",
    **{f"'uint{bits}'": f"u{bits} uint{bits}" for bits in (8, 16, 32, 64)},
    "'float64'": "real f64 float64",
    "'float32'": "f32 float32",
    "'bool'": "boolean bool_",
    "'string'": "text varchar char object category string utf8 str_ categorical",
    "'binary'": "bytes blob bytea binary bytes_",
    "'date32'": "date",
    "'time64[us]'": "time",
    "'timestamp[us]', or pa.timestamp('us', 'UTC')": (
        "timestamp datetime datetime64 datetime64[ns] datetime64[us] timestamptz timestamp_ntz"
    ),
    "'duration[us]'": "duration timedelta interval timedelta64 timedelta64[ns]",
    "pa.decimal128(precision, scale)": "decimal numeric",
    "pa.list_(type)": "list array",
    "pa.struct({name: type})": "struct dict",
    "pa.map_(key, value)": "map",
    "the type alone, each column may have nulls": "uniontype union optional",
}
_OURS = {name: ours for ours, names in _ELSEWHERE.items() for name in names.split()}


def kinds(given: Any) -> str:
    """What a type may be, and what to write for what was given: a name, a class such as datetime.date, or a
    type of another library; or a column's values.
    """
    if _are_values(given):
        return f"{KINDS}; columns with values become a table by pyarrow.table(data): begin with that"
    decimal = re.fullmatch(r"(?i)(?:decimal|numeric)(?:128)?\s*[(\[]([^)\]]*)[)\]]", str(given).strip())
    if decimal:
        return f"{KINDS}; for {given!r:.100} write pa.decimal128({decimal[1].strip()})"
    name = given.strip() if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
    ours = _OURS.get(name.lower())
    return KINDS if ours is None else f"{KINDS}; for {given!r:.100} write {ours}"


def _are_values(given: Any) -> bool:
    """Whether it is a column's values, as in {"k": [1, 2]}, and no list[int] of another system."""
    if not isinstance(given, list | tuple):
        return not isinstance(given, type) and hasattr(given, "__array__") and hasattr(given, "__len__")
    return not any(
        isinstance(one, type | pa.DataType) or (isinstance(one, str) and one.lower() in _OURS)
        for one in given
    )


def instead_of_key(type_: pa.DataType, column: str) -> str:
    """What to do with a column of a type that can't be a key."""
    part = ""
    if pat.is_struct(type_):
        part = ".struct.field(name)"
    elif pat.is_null(type_):
        part = ".cast(int)"
    elif pat.is_nested(type_) and not pat.is_map(type_):
        part = ".list.get(0)"
    if part:
        return f"a part of it or another type can, made in front: with_columns(key=od.col({column!r}){part})"
    return in_source(type_, compared=True).removeprefix("; ")


def in_source(type_: pa.DataType, *, compared: bool = False, rounds: bool = False) -> str:
    """To what a source casts a column that a pipeline passes through and does not compute with, with a
    separator in front; empty: to nothing.

    Parameters
    ----------
    type_ : pyarrow.DataType
    compared : bool
        It has to be compared only. Each type can be cast to one that is.
    rounds : bool
        It is computed with as float64.
    """
    to = "a type that is compared" if compared else ""
    if pat.is_fixed_size_binary(type_):
        to = "pa.binary()"
    elif pat.is_float16(type_):
        to = "pa.float32()"
    elif pat.is_decimal(type_) and (rounds or type_.scale > _MOST_DIGITS):
        to = "pa.float64(), which rounds"
    elif pat.is_decimal(type_):
        to = f"pa.decimal128({min(type_.precision, _MOST_DIGITS)}, {type_.scale})"
    return to and f"; cast it in the source to {to}"
