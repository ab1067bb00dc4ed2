"""A column of every type that a pipeline carries, with edge values."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa

UTC = datetime.UTC

#: type, values: every kind of column with edge values
COLUMNS = {
    "i8": (pa.int8(), [-128, 0, 127]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "u8": (pa.uint8(), [0, 255]),
    "u16": (pa.uint16(), [0, 2**16 - 1]),
    "u32": (pa.uint32(), [0, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 2**64 - 1]),
    "f32": (pa.float32(), [0.5, -0.0, float("inf")]),
    "f64": (pa.float64(), [1e308, 0.1, float("-inf")]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "häuser \U0001f600"]),
    "large": (pa.large_string(), ["x" * 1000, ""]),
    "view": (pa.string_view(), ["short", "longer than twelve bytes"]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "date32": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "date64": (pa.date64(), [datetime.date(1969, 12, 31)]),
    "time32": (pa.time32("s"), [datetime.time(23, 59, 59)]),
    "time64": (pa.time64("us"), [datetime.time(1, 2, 3, 4)]),
    "ts": (pa.timestamp("us"), [datetime.datetime(2020, 2, 29, 1, 2, 3, 4)]),
    "tz": (pa.timestamp("ms", "UTC"), [datetime.datetime(1960, 1, 1, tzinfo=UTC)]),
    "duration": (pa.duration("s"), [datetime.timedelta(days=-1)]),
    "decimal": (pa.decimal128(12, 3), [decimal.Decimal("-123456789.125")]),
    "list": (pa.list_(pa.int32()), [[], [1, -2, 3]]),
    "bools": (pa.list_(pa.bool_()), [[True, False], []]),
    "dates": (pa.large_list(pa.date32()), [[datetime.date(2000, 1, 1)]]),
    "floats": (pa.list_(pa.float32()), [[0.25]]),
    "holes": (pa.list_(pa.int16()), [[None], [1, None, -3], [2]]),
    "texts": (pa.list_(pa.string()), [["a", None, ""], []]),
    "struct": (pa.struct({"a": pa.int64(), "b": pa.list_(pa.binary())}), [{"a": None, "b": [b"", None]}]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", 0.5), ("b", None)], []]),
    "three": (pa.list_(pa.int8(), 3), [[1, None, 3]]),
    "fixed": (pa.binary(2), [b"ab", b"\0\0"]),
    "half": (pa.float16(), [0.5, float("-inf")]),
}
