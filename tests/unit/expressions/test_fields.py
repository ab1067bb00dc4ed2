"""Fields of structs: `col("s").struct.field("x")`."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

C = od.col
T = datetime.datetime

INNER = pa.struct(
    [
        ("skipped", pa.list_(pa.struct([("q", pa.string()), ("r", pa.list_(pa.int8()))]))),
        ("text", pa.string()), ("flag", pa.bool_()), ("tiny", pa.int8()), ("big", pa.int64()),
        ("u32", pa.uint32()), ("f32", pa.float32()), ("f64", pa.float64()), ("ts", pa.timestamp("ms")),
        ("day", pa.date32()), ("cents", pa.decimal128(9, 2)), ("wide", pa.decimal128(30, 2)),
        ("bytes", pa.binary()), ("u64", pa.uint64()),
    ]
)  # fmt: skip
FULL = {
    "skipped": [{"q": "a", "r": [1, None]}, None, {"q": None, "r": None}],
    "text": "né", "flag": True, "tiny": -128, "big": -(2**62), "u32": 2**32 - 1, "f32": 0.5, "f64": -0.25,
    "ts": T(2020, 5, 17, 3), "day": datetime.date(1969, 12, 31), "cents": decimal.Decimal("-1.25"),
    "wide": decimal.Decimal("123456789012345678901234.5"), "bytes": b"\0x", "u64": 2**64 - 1,
}  # fmt: skip
TYPE = pa.struct([("first", pa.list_(pa.string())), ("in", INNER), ("plain", pa.int32())])
ROWS = [
    {"first": ["x", None], "in": FULL, "plain": 1},
    None,
    {"first": None, "in": None, "plain": None},
    {"first": [], "in": dict.fromkeys(FULL), "plain": -7},
    {"first": ["y"], "in": {**FULL, "skipped": None, "text": ""}, "plain": 3},
]
DATA = pa.table({"k": [1, 2, 1, 2, 1] * 40, "s": pa.array(ROWS * 40, TYPE)})
FIELDS = [name for name in FULL if name not in ("skipped", "u64")]


def inner(name):
    return C("s").struct.field("in").struct[name]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("rows", [1, "auto"])
def test_every_type_of_field(name, rows):
    """Also of rows that a filter left, of slices, and behind a state."""
    pipeline = od.Pipeline(DATA.schema)
    for made in (
        pipeline.select("k", x=inner(name)),
        pipeline.filter(C("k") == 1).with_columns(x=inner(name)),
        pipeline.key_by("k").lag("s").select(x=C("s_lag").struct["in"].struct[name]),
        pipeline.filter(inner(name).is_null()),
    ):
        for data in (DATA, DATA.slice(1, 7)):
            expected = run_serial(made, data).table
            found = made.run(data, workers=2, chunk_rows=rows).table
            assert found.schema == expected.schema
            assert found.to_pylist() == expected.to_pylist()
    values = pipeline.select(x=inner(name)).run(DATA).table["x"].to_pylist()[:5]
    last = "" if name == "text" else FULL[name]
    assert values == [FULL[name], None, None, None, last]


def test_they_are_computed_with():
    made = od.Pipeline(DATA.schema).filter((C("s").struct["plain"] + 1 > 1) & inner("flag"))
    made = made.with_columns(up=inner("text").str.upper(), year=inner("ts").dt.year(), c=inner("cents") * 2)
    expected = run_serial(made, DATA).table
    assert made.run(DATA, workers=2).table.to_pylist() == expected.to_pylist()
    assert expected.num_rows == 80
    assert expected["up"][0].as_py() == "NÉ"


def test_a_key_may_be_one():
    made = od.Pipeline(DATA.schema).with_columns(t=inner("text")).key_by("t").count()
    assert made.run(DATA, workers=2).table.to_pylist() == run_serial(made, DATA).table.to_pylist()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: C("s").struct.field("plane"), r"'plane'.*did you mean 'plain'"),
        (lambda: inner("skipped") + 1, r"skipped'\) is list<.*passed through, not computed with; .list and"),
        (lambda: inner("u64"), r"'s'.in.u64 is uint64"),
        (lambda: C("s").struct["in"] == C("s").struct["in"], r"'in'\) is struct.*not computed with"),
        (lambda: C("k").struct["a"], r"is for structs, 'k' is int64"),
        (lambda: inner("text").struct["a"], r"is for structs, 's'.in.text is string"),
        (lambda: (C("k") + 1).struct["a"], r"is for structs, \(k \+ 1\) is int64"),
        (lambda: od.lit(None).struct["a"], "is for structs"),
    ],
)
def test_mistakes_are_told(made, words):
    with pytest.raises(od.SchemaError, match=f"(?i){words}"):
        od.Pipeline(DATA.schema).with_columns(x=made())


@pytest.mark.parametrize("rows", [1, 7, "auto"])
def test_a_field_that_is_a_struct_or_a_list_passes(rows):
    made = od.Pipeline(DATA.schema).with_columns(inside=C("s").struct["in"], list=C("s").struct["first"])
    made = made.filter(C("s").struct["in"].is_not_null()).with_columns(n=C("s").struct["first"].length())
    expected = run_serial(made, DATA).table
    found = made.run(DATA, workers=2, chunk_rows=rows).table
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()
    assert found["inside"].type == INNER
    assert expected["n"].to_pylist()[:3] == [2, 0, 1]


def test_names():
    with pytest.raises(od.SchemaError, match="a field has a name, got 3"):
        C("s").struct[3]
    twice = pa.struct([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(od.SchemaError, match="has 2 fields 'a'"):
        od.Pipeline({"s": twice}).select(x=C("s").struct["a"])
