"""Loops that take another way for some shapes: choices by masks, small sets, squares, lengths by words."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

C = od.col
DRAWN = random.Random(7)
NUMBERS = [None, 0, -1, 1, 2**63 - 1, -(2**63)]
FLOATS = [None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 5e-324, 1e200]
TEXTS = [None, "", "a", "ä", "a\0b", "𝄞" * 3, "home", "Home", "x" * 40, "x" * 39 + "y"]
BYTES = [None, b"", b"\x80", b"\xff\x00", b"long " * 9]
COLUMNS = {
    "int": (pa.int64(), NUMBERS),
    "small": (pa.int8(), [None, 0, -128, 127]),
    "float": (pa.float64(), FLOATS),
    "text": (pa.string(), TEXTS),
    "bytes": (pa.binary(), BYTES),
    "bool": (pa.bool_(), [None, True, False]),
    "money": (pa.decimal128(30, 2), [None, 0, 10**27, -(10**27)]),
}


def both(pipeline, data):
    """What the reference gives, and the core with small, uneven and large chunks."""
    expected = run_serial(pipeline, data)
    assert expected.error is None
    for options in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 7}, {"workers": 0}):
        found = pipeline.run(data, **options).table
        assert found.schema == expected.table.schema
        for name in found.schema.names:
            assert str(found[name].to_pylist()) == str(expected.table[name].to_pylist()), name
    return expected.table


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "none"])
def test_choices_of_columns_and_constants(kind, nulls):
    """A choice has four loops, by which of its two sides is a constant, and three widths."""
    type_, values = COLUMNS[kind]
    values = values if nulls else [one for one in values if one is not None]
    rows = [*itertools.product([True, False, None], values, values)]
    pick, a, b = zip(*DRAWN.sample(rows, len(rows)), strict=True)
    data = pa.table({"pick": pa.array(pick), "a": pa.array(a, type_), "b": pa.array(b, type_)})
    constants = [od.lit(one, type_) for one in values if one is not None][:2]
    one, other = constants[0], constants[-1]
    pipeline = od.Pipeline(data.schema).select(
        columns=od.when(C("pick")).then(C("a")).otherwise(C("b")),
        first=od.when(C("pick")).then(one).otherwise(C("b")),
        second=od.when(C("pick")).then(C("a")).otherwise(other),
        constants=od.when(C("pick")).then(one).otherwise(other),
        filled=C("a").fill_null(other),
        other=C("a").fill_null(C("b")),
        third=C("a").coalesce(C("b"), one),
    )
    found = both(pipeline, data)
    assert found["filled"].null_count == found["third"].null_count == 0


@pytest.mark.parametrize("size", [1, 2, 8, 9, 30])
def test_sets_of_texts(size):
    members = [f"{'x' * (k % 5)}{k}" for k in range(size - 1)] + [""]
    texts = [None, *members, "x", "xx0", "0", "é", "\0", *(one + "\0" for one in members)]
    data = pa.table({"x": DRAWN.choices(texts, k=300)})
    found = both(od.Pipeline(data.schema).select(y=C("x").is_in(members)), data)
    expected = [None if text is None else text in members for text in data["x"].to_pylist()]
    assert found["y"].to_pylist() == expected


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("members", [
    [0.0], [-0.0, 1.5], [math.nan], [math.nan, 2.0, math.inf, -math.inf], [np.float64(0.1), 0.1, 3.0],
    [1, 2.0, -0.0], [2**53, 2**53 + 1.0], [2**53 + 1], [True, 2.0], [0.1], [1e300, 16777217],
    [float(k) for k in range(1, 300)],
], ids=lambda members: repr(members)[:30])  # fmt: skip
def test_sets_of_floats(type_, members):
    """Zeros are equal, NaN is in no set, and ints are found where they are doubles."""
    values = [None, 0.0, -0.0, math.nan, math.inf, 1.0, 1.5, 2.0, 3.0, 0.1, 2.0**53, 16777216.0, 250.0]
    data = pa.table({"x": pa.array(values, type_)})
    if True in [member is True for member in members]:
        with pytest.raises(od.SchemaError, match="bool"):
            od.Pipeline(data.schema).select(y=C("x").is_in(members))
        return
    found = both(od.Pipeline(data.schema).select(y=C("x").is_in(members)), data)
    doubles = [float(member) for member in members]
    expected = [None if x is None else x in doubles for x in data["x"].to_pylist()]
    assert found["y"].to_pylist() == expected


def test_lengths_of_texts_of_any_bytes():
    """Bytes that continue a code point are counted eight, four, two and one at a time."""
    texts = ["".join(DRAWN.choices("aé→𝄞\0\x7f", k=DRAWN.randrange(20))) for _ in range(2_000)]
    data = pa.table({"x": [None, "", *texts]})
    found = both(od.Pipeline(data.schema).select(y=C("x").str.length()), data)
    assert found["y"].to_pylist()[1:] == [0, *map(len, texts)]


def test_a_square_is_a_product():
    drawn = np.random.default_rng(3).normal(size=2_000)
    drawn = np.ldexp(drawn, np.arange(2_000) % 1_200 - 600)  # some squares overflow, some are nothing
    numbers = [*FLOATS, *drawn.tolist()]
    data = pa.table(
        {"x": pa.array(numbers), "two": pa.array([2.0] * len(numbers)), "i": range(len(numbers))}
    )
    pipeline = od.Pipeline(data.schema).select(
        constant=C("x") ** 2, column=C("x") ** C("two"), integer=C("i") ** 2, cube=C("x") ** 3
    )
    found = both(pipeline, data)
    squares = [None if x is None else x * x for x in numbers]
    assert str(found["constant"].to_pylist()) == str(found["column"].to_pylist()) == str(squares)


LARGE = [3, 7, 2**31, 3037000500, 2**62, 2**63 - 1]


@pytest.mark.parametrize("factor", [0, 1, -1, 2, -2, -(2**63), *LARGE, *(-one for one in LARGE)])
def test_products_by_a_constant_overflow_where_they_do(factor):
    """A product by a constant is tested by a limit: at it, and one beyond, as Python's integers."""
    limit = (2**63 - 1) // factor if factor else 5
    edges = [limit, limit + 1, limit - 1, -limit, -limit - 1, 2**63 // factor if factor else 0]
    numbers = {x for x in [*edges, *LARGE, 0, 1, -1, -(2**63)] if -(2**63) <= x < 2**63}
    data = pa.table({"x": pa.array([None, *sorted(numbers)], pa.int64())})
    fits = [x for x in data["x"].to_pylist() if x is None or -(2**63) <= x * factor < 2**63]
    for product in (C("x") * factor, factor * C("x")):
        pipeline = od.Pipeline(data.schema).select("x", y=product, on_error="skip")
        found = both(pipeline, data)
        assert found["x"].to_pylist() == fits
        assert found["y"].to_pylist() == [None if x is None else x * factor for x in fits]
