"""Random tables and keys of every type for the tests of state, and aggregations over them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import ordstream as od

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, -1, 7, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), None]),
    "j": (pa.int32(), [0, 1, -3, 2**31 - 1, -(2**31), 5]),
    "u": (pa.uint64(), [0, 3, 2**32, 2**64 - 1, None]),
    "y": (pa.int16(), [0, -1, 2]),
    "b": (pa.bool_(), [True, False, None]),
    "x": (pa.float64(), [0.0, -0.0, 1.5, math.nan, -math.inf, 1e308, None]),
    "f": (pa.float32(), [0.0, -0.0, 0.5, math.nan, None]),
    "s": (pa.string(), ["", "a", "a\x00", "häuser", "z" * 50, None]),
    "z": (pa.binary(), [b"", b"\xff\x00"]),
    "d": (pa.date32(), [0, 11_000, None]),
    "t": (pa.timestamp("us", "UTC"), [0, -1, 10**15]),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in POOLS.items()])
KEYS = [
    *(
        (),
        ("i",),
        ("j",),
        ("b",),
        ("x",),
        ("f",),
        ("s",),
        ("d", "y"),
        ("i", "j"),
        ("u", "t"),
        ("s", "z"),
        ("i", "s", "x"),
    ),
    ("y", "b", "j", "d"),
    ("i", "j", "u", "y", "b", "x", "f", "s", "z"),
    ("j", "y", "b", "d", "t", "u", "i", "f", "x"),
]
CONDITION = od.col("y") >= 0
AGGREGATIONS = {
    "n": od.count(),
    "n_x": od.count("x", where=CONDITION),
    "sum_y": od.sum("y"),
    "sum_f": od.sum("f", where=od.col("b")),
    "min_x": od.min("x"),
    "max_u": od.max("u", where=CONDITION),
    "min_f": od.min("f"),
    "max_i": od.max("i"),
    "min_d": od.min("d", where=CONDITION),
    "first_b": od.first("b"),
    "first_t": od.first("t", where=CONDITION),
    "last_f": od.last("f"),
    "last_u": od.last("u"),
    "mean_j": od.mean("j", where=CONDITION),
    "mean_x": od.mean("x"),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    n = draw(st.integers(2, 90))
    columns = []
    for type_, pool in POOLS.values():
        picks = draw(st.binary(min_size=n, max_size=n))
        columns.append(pa.array([pool[pick % len(pool)] for pick in picks], _plain(type_)).cast(type_))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _plain(type_: pa.DataType) -> pa.DataType:
    return {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(type_, type_)
