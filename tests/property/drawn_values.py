"""Random values, columns and batches for the property tests.

Columns are cheap to draw and shrink well: each has a short pool of values and one byte string; row i holds
``pool[bytes[i] % len(pool)]``.
"""

from __future__ import annotations

import decimal
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st

from ordstream.ground.packed_types import is_any_list, is_packed
from ordstream.ground.types import (
    from_storage,
    integer_range,
    is_binary,
    is_list,
    is_string,
    is_temporal,
    physical_type,
    round_float32,
    to_python,
)

TYPES: tuple[pa.DataType, ...] = (
    *(pa.int64(), pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(
        pa.uint64(),
        pa.float64(),
        pa.float64(),
        pa.float32(),
        pa.string(),
        pa.string(),
        pa.binary(),
        pa.bool_(),
    ),
    *(pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "Europe/Rome")),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.decimal128(12, 2)),
    pa.decimal128(30, 3),
    *(pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.int8()), pa.list_(pa.bool_())),
    *(pa.list_(pa.timestamp("ms")), pa.list_(pa.uint16()), pa.large_string(), pa.large_list(pa.int32())),
    *(pa.list_(pa.string()), pa.struct({"x": pa.int64(), "ÿ": pa.string()}), pa.binary(3), pa.uuid()),
    pa.struct({"deep": pa.list_(pa.struct({"at": pa.timestamp("us"), "no": pa.int8()})), "b": pa.bool_()}),
    *(pa.map_(pa.string(), pa.list_(pa.int16())), pa.list_(pa.list_(pa.bool_())), pa.list_(pa.int8(), 2)),
    *(pa.float16(), pa.list_(pa.decimal128(5, 1)), pa.decimal256(50, 2)),
    *(pa.struct({"f": pa.float64(), "g": pa.float32()}), pa.map_(pa.int8(), pa.float64())),
)
STRINGS = (
    "",
    "a",
    "b",
    "ab",
    "é",
    "日本語",
    "\x00",
    "exactly 12 b",
    "thirteen byte",
    "𝄞" * 9,
    "a\x00b",
    "ß" * 40,
)
FLOATS = (0.0, -0.0, 1.0, -1.5, 2.5, math.nan, math.inf, -math.inf, 5e-324, 1e308, 0.1, 1e16, 3.0)
DAY = 86_400


def storage_pool(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """One storage value of a type; small ones are likely, extreme ones possible."""
    if is_packed(type_):
        return python_pool(getattr(type_, "storage_type", type_))
    if is_list(type_):
        item = storage_pool(type_.value_type)
        return st.lists(item, max_size=5) | st.lists(item | st.none(), max_size=5)
    if pat.is_date64(type_):
        return st.integers(-3, 6).map(lambda day: day * DAY * 1000)
    if pat.is_time(type_):
        return st.integers(0, 40)
    if is_temporal(type_):
        # dates within what Python can show
        far = [] if pat.is_date(type_) else [10**6, -(10**6), DAY * 1000]
        return st.integers(-5, 40) | st.sampled_from([*far, 41])
    if pat.is_integer(type_):
        low, high = integer_range(type_)
        small = st.integers(max(low, -4), 9)
        return st.one_of(small, small, small, st.sampled_from([low, high, high - 1, high // 2]))
    if pat.is_float64(type_):
        return st.one_of(st.sampled_from(FLOATS), st.floats(-9, 9))
    if pat.is_float32(type_):
        return st.one_of(st.sampled_from(FLOATS), st.floats(-9, 9)).map(round_float32)
    if pat.is_boolean(type_):
        return st.booleans()
    if is_string(type_):
        return st.sampled_from(STRINGS) | st.text(st.characters(codec="utf-8"), max_size=14)
    if is_binary(type_):
        return st.sampled_from([b"", b"\x00", b"\xff\xfe", b"b" * 12, b"b" * 13]) | st.binary(max_size=3)
    if pat.is_decimal(type_):
        most = 10**type_.precision - 1
        return st.integers(-9_900, 9_900) | st.integers(-3, 3) | st.sampled_from([most, -most])
    raise AssertionError(type_)


def python_pool(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """One Python value of a type."""

    def inside(field: pa.Field) -> st.SearchStrategy[Any]:
        one = python_pool(field.type)
        return st.one_of(one, one, st.none()) if field.nullable else one

    if pat.is_struct(type_):
        return st.fixed_dictionaries({field.name: inside(field) for field in type_})
    if pat.is_map(type_):
        return st.lists(st.tuples(inside(type_.key_field), inside(type_.item_field)), max_size=3)
    if pat.is_fixed_size_list(type_):
        size = type_.list_size
        return st.lists(inside(type_.value_field), min_size=size, max_size=size)
    if is_any_list(type_):
        return st.lists(inside(type_.value_field), max_size=3)
    if pat.is_null(type_):
        return st.none()
    if pat.is_float16(type_):
        return st.sampled_from([np.float16(value) for value in (0.0, -0.5, 3.25, math.inf)])
    if pat.is_fixed_size_binary(type_):
        return st.binary(min_size=type_.byte_width, max_size=type_.byte_width)
    if pat.is_decimal256(type_):
        return st.integers(-99, 10**45).map(lambda units: decimal.Decimal(units).scaleb(-2, WIDE))
    return storage_pool(type_).map(lambda value: to_python(value, type_))


WIDE = decimal.Context(prec=60)


def comparable(type_: pa.DataType) -> bool:
    """Whether rows can be told apart by a column, as by a key."""
    return physical_type(type_, "").vm is not None


NAMES = ("a", "b", "ключ", "d e", "class", "count", "_x", "G", "start")


@st.composite
def schemas(draw: Any, most: int = 6) -> pa.Schema:
    """A schema of up to `most` columns, some declared without nulls."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
    fields = [
        pa.field(n, draw(st.sampled_from(TYPES)), draw(st.sampled_from([True, True, True, False])))
        for n in names
    ]
    return pa.schema(fields)


@dataclass
class Column:
    """Values of one column of the source."""

    pool: list[Any]
    choice: bytes
    ascends: bool = False
    steps: int = 0  # it ascends by fewer than so many from row to row, wherever the pool lies

    def values(self, repeat: int) -> list[Any]:
        values = [self.pool[byte % len(self.pool)] for byte in self.choice] * repeat
        if self.ascends:
            ascending = iter(sorted(value for value in values if value is not None))
            if self.steps:
                ascending = itertools.accumulate(byte % self.steps for byte in self.choice * repeat)
            values = [None if value is None else next(ascending) for value in values]
        return values


@st.composite
def columns(draw: Any, field: pa.Field, rows: int, ascends: bool = False) -> Column:
    """A column of so many rows; its type decides the pool."""
    value = storage_pool(field.type)
    pool = draw(st.lists(value, min_size=1, max_size=20 if ascends else 5))
    if field.nullable and draw(st.integers(0, 5 if ascends else 1)) == 0:
        pool = draw(st.sampled_from([[*pool, None], [*pool, None], [None]]))
    # a pool has few values, and so few windows
    goes_on = ascends and can_go_on(field.type)
    steps = draw(st.sampled_from([0, 0, 2, 4, 9])) if goes_on else 0
    return Column(pool, draw(st.binary(min_size=rows, max_size=rows)), ascends, steps)


def can_go_on(type_: pa.DataType) -> bool:
    """Whether a time of the type may be 100,000."""
    if pat.is_integer(type_):
        return type_.bit_width > 16 and not pat.is_uint64(type_)
    return pat.is_timestamp(type_) or pat.is_date32(type_)


@st.composite
def tables(draw: Any, schema: pa.Schema, most: int = 120, clocks: frozenset[str] = frozenset()) -> pa.Table:
    """A table of the schema; now and then its rows are repeated, so that chunks can grow. The columns in
    `clocks` ascend.
    """
    rows = draw(st.integers(0, most))
    repeat = draw(st.sampled_from([1] * 12 + [5, 30]))
    arrays = [from_storage(draw(columns(f, rows, f.name in clocks)).values(repeat), f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def layouts_of(field: pa.Field) -> list[str]:
    layouts = ["as it is", "as it is", "offset"]
    if pat.is_string(field.type):
        layouts += ["dictionary", "large_string", "string_view"]
    if pat.is_binary(field.type):
        layouts += ["large_binary"]
    if pat.is_list(field.type):
        layouts += ["large_list"]
    return layouts


def in_layout(array: pa.Array, layout: str) -> pa.Array:
    """The same values in another memory layout."""
    if layout == "offset":
        pad = array.slice(0, 1) if len(array) else pa.nulls(1, array.type)
        return pa.concat_arrays([pad, pad, pad, array, pad]).slice(3, len(array))
    if layout == "dictionary":
        return array.dictionary_encode()
    target = {
        "large_string": pa.large_string(),
        "string_view": pa.string_view(),
        "large_binary": pa.large_binary(),
    }
    if layout in target:
        return array.cast(target[layout])
    return array.cast(pa.large_list(array.type.value_type)) if layout == "large_list" else array


@st.composite
def batches(draw: Any, table: pa.Table) -> list[pa.RecordBatch]:
    """The table cut at random places, empty batches among them, in one layout per column.

    Every batch is a slice with an offset of a longer one.
    """
    n = table.num_rows
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=4)))
    layouts = [draw(st.sampled_from(layouts_of(f))) for f in table.schema]
    found = []
    for low, high in zip([0, *cuts], [*cuts, n], strict=True):
        arrays = [
            in_layout(
                column.combine_chunks().slice(low, high - low) if n else column.combine_chunks(), layout
            )
            for column, layout in zip(table.columns, layouts, strict=True)
        ]
        fields = [pa.field(f.name, a.type, f.nullable) for f, a in zip(table.schema, arrays, strict=True)]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
    return found


def type_text(type_: pa.DataType) -> str:
    """Python text of a type of `TYPES` or one that an operator makes of them."""
    if pat.is_struct(type_):
        fields = (f"pa.field({f.name!r}, {type_text(f.type)}, {f.nullable})" for f in type_)
        return f"pa.struct([{', '.join(fields)}])"
    if pat.is_map(type_):
        return f"pa.map_({type_text(type_.key_type)}, {type_text(type_.item_type)})"
    if pat.is_fixed_size_list(type_):
        return f"pa.list_({type_text(type_.value_type)}, {type_.list_size})"
    if pat.is_fixed_size_binary(type_):
        return f"pa.binary({type_.byte_width})"
    if isinstance(type_, pa.UuidType):
        return "pa.uuid()"
    if is_list(type_):
        return f"pa.{'large_list' if pat.is_large_list(type_) else 'list_'}({type_text(type_.value_type)})"
    if pat.is_timestamp(type_):
        return f"pa.timestamp({type_.unit!r}, {type_.tz!r})"
    if pat.is_time(type_):
        return f"pa.time{type_.bit_width}({type_.unit!r})"
    if pat.is_duration(type_):
        return f"pa.duration({type_.unit!r})"
    if pat.is_decimal(type_):
        return f"pa.decimal{type_.bit_width}({type_.precision}, {type_.scale})"
    if pat.is_date(type_):
        return f"pa.date{type_.bit_width}()"
    names = {"bool": "bool_", "halffloat": "float16", "float": "float32", "double": "float64"}
    return f"pa.{names.get(str(type_), str(type_))}()"
