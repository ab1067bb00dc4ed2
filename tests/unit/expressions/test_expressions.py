"""Expressions: typing, lowering, and the reference value of every operation."""

import datetime as dt
import math

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ordstream as od
from ordstream.expressions.evaluate import evaluate
from ordstream.expressions.lowering import lower
from ordstream.testing import run_serial

SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "n": pa.int64(),
        "u": pa.uint64(),
        "x": pa.float64(),
        "f": pa.float32(),
        "b": pa.bool_(),
        "c": pa.bool_(),
        "s": pa.string(),
        "y": pa.binary(),
        "t": pa.timestamp("s"),
        "d": pa.date32(),
        "items": pa.list_(pa.int64()),
        "price": pa.decimal128(30, 2),
    }
)
I64 = st.integers(-(2**63), 2**63 - 1)
col, lit = od.col, od.lit


def value(expr, **row):
    return evaluate(expr, dict.fromkeys(SCHEMA.names) | row, SCHEMA)


def program(expr):
    return lower(expr, SCHEMA, "test")


@pytest.mark.parametrize(
    ("expr", "type_"),
    [
        (col("i") + 1, pa.int64()),
        (col("i") + col("x"), pa.float64()),
        (col("f") * 2, pa.float64()),
        (col("i") / col("i"), pa.float64()),
        (col("i") // 2, pa.int64()),
        (2 ** col("i"), pa.float64()),
        (col("t") > dt.datetime(2020, 1, 1), pa.bool_()),
        (col("t").minimum(col("t")), pa.timestamp("s")),
        (col("d").coalesce(dt.date(2020, 1, 1)), pa.date32()),
        (col("s").coalesce("none"), pa.string()),
        (col("y").coalesce(b""), pa.binary()),
        (col("i").cast(pa.int8()), pa.int8()),
        (col("x").cast(pa.float32()), pa.float32()),
        (col("t").cast(pa.int64()) + 1, pa.int64()),
        (col("n").cast(pa.timestamp("us")), pa.timestamp("us")),
        (col("items").length(), pa.int64()),
        (od.when(col("b"), 1).otherwise(None), pa.int64()),
    ],
)
def test_result_types(expr, type_):
    assert program(expr).arrow == type_


def test_lowering_is_postfix_code():
    lowered = program((col("i") + 1 > col("x")) & col("b"))
    assert [i[0] for i in lowered.code] == [
        *("col_i64", "lit_i64", "add_i64", "i2f", "col_f64", "gt_f64", "col_bool", "and")
    ]
    assert lowered.type == "bool"
    assert lowered.columns() == (0, 3, 5)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (col("itms").length(), r"unknown column 'itms'.*available: 'i'.*Did you mean 'items'"),
        (col("s") + 1, "cast it to str first"),
        (col("b") + 1, "cast it to pa.int64"),
        (col("t") + 1, "cast it to pa.int64"),
        (col("s") == 1, "do not go together"),
        (col("t") == col("d"), "do not go together"),
        (col("i") & col("b"), "a boolean is needed"),
        (col("b") < col("c"), "no order"),
        (col("items") == 1, "passed through, not computed"),
        (col("i").cast(pa.int8()) + 1, "outermost"),
        (col("y").cast(pa.int64()), "no cast"),
        (col("t").cast(pa.time32("s")), "no cast"),
        (col("i").isin([1, None]), "None among the values"),
        (col("i").isin(["a"]), "among the values"),
        (col("x").lookup([1, 2]), "must be an integer"),
        (lit(None), "type of None"),
        (col("d") > dt.datetime(2020, 1, 1, 12), "exactly"),
        (col("i").alias("j") + 1, "whole expression"),
    ],
)
def test_type_errors_name_the_place(expr, words):
    with pytest.raises(od.SchemaError, match=words) as caught:
        program(expr)
    assert "test" in str(caught.value)


def test_expressions_have_no_truth_value():
    with pytest.raises(TypeError, match=r"& \| ~"):
        col("b") and col("c")
    with pytest.raises(TypeError, match=r"a < b"):
        assert 1 < col("i") < 3
    with pytest.raises(TypeError, match="isin"):
        assert 1 in col("i")


def test_constants_are_checked():
    with pytest.raises(od.SchemaError, match="int64"):
        lit(2**63)
    with pytest.raises(od.SchemaError, match="constant"):
        lit([1])
    with pytest.raises(od.SchemaError, match=r"has no value: add \.then\(value\)"):
        col("i") + od.when(col("b"))


def test_a_when_without_otherwise_is_null_where_no_case_is_true():
    data = pa.table({"n": [1, 2, 3, None], "s": ["a", None, "c", "d"]})
    small = od.when(col("n") < 2).then(col("s"))
    pipeline = od.Pipeline(data.schema).select(
        small.alias("a"),
        b=small.when(col("n") < 3).then("two"),
        c=od.when(col("n") > 1, col("n")) + 1,
        d=small.is_null(),
        e=small.otherwise("else"),
    )
    found = pipeline.run(data).table
    assert found.equals(run_serial(pipeline, data).table)
    assert found.to_pydict() == {
        "a": ["a", None, None, None],
        "b": ["a", "two", None, None],
        "c": [None, 3, 4, None],
        "d": [False, True, True, True],
        "e": ["a", "else", "else", "else"],
    }
    assert repr(small) == "if((n < 2), s, None)"
    polars = pl.from_arrow(data).select(
        pl.when(pl.col("n") < 2).then(pl.col("s")).when(pl.col("n") < 3).then(pl.lit("two"))
    )
    assert polars.to_series().to_list() == found["b"].to_pylist()


@given(I64, I64)
def test_int64_is_checked_and_floors(a, b):
    for expr, exact in [
        (col("n") + b, a + b),
        (col("n") - b, a - b),
        (col("n") * b, a * b),
        (-col("n"), -a),
        (abs(col("n")), abs(a)),
    ]:
        if -(2**63) <= exact < 2**63:
            assert value(expr, n=a) == exact
        else:
            with pytest.raises(OverflowError, match="int64"):
                value(expr, n=a)
    if b and not (a == -(2**63) and b == -1):
        assert value(col("n") // b, n=a) == a // b
        assert value(col("n") % b, n=a) == a % b


def test_integer_edges():
    for expr in (col("n") // 0, col("n") % 0):
        with pytest.raises(ZeroDivisionError):
            value(expr, n=1)
    with pytest.raises(OverflowError):
        value(col("n") // -1, n=-(2**63))
    assert value(col("n") % -1, n=-(2**63)) == 0
    with pytest.raises(OverflowError):
        value(col("u") + 0, u=2**63)
    assert value(col("n") // 0) is None  # null operands are never computed


@given(st.floats(), st.floats())
def test_floats_are_ieee(a, b):
    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        for expr, expected in [
            (col("x") + b, x + y),
            (col("x") * b, x * y),
            (col("x") / b, x / y),
            (col("x") ** b, np.power(x, y)),
            (col("x") < b, x < y),
            (col("x") == b, x == y),
            (col("x").sqrt(), np.sqrt(x)),
            (col("x").round(), np.round(x)),
            (col("x").floor(), np.floor(x)),
        ]:
            got = value(expr, x=a)
            close = pytest.approx(float(expected), rel=1e-14, abs=1e-300, nan_ok=True)
            assert got == close if isinstance(got, float) else got == expected


def test_float_edges():
    assert value(col("x") / 0, x=-1.0) == -math.inf
    assert math.isnan(value(col("x") / 0, x=0.0))
    assert value(col("x") // 0, x=1.0) == math.inf
    assert math.isnan(value(col("x") % 0, x=1.0))
    assert value(col("x") % 3, x=-1.0) == 2.0
    assert math.copysign(1, value(col("x").ceil(), x=-0.5)) == -1
    assert value(col("x").log(), x=0.0) == -math.inf
    assert math.isnan(value(col("x").sin(), x=math.inf))
    assert value(col("x").exp(), x=1e4) == math.inf
    assert value(col("x") ** -1, x=-0.0) == -math.inf
    assert value(col("x").minimum(2), x=math.nan) == 2.0
    assert value(lit(2.0).maximum(col("x")), x=math.nan) == 2.0


def test_kleene_logic_and_nulls():
    table = {(True, None): (None, True), (False, None): (False, None), (None, None): (None, None)}
    for (a, b), (both, either) in table.items():
        for p, q in ((a, b), (b, a)):
            assert value(col("b") & col("c"), b=p, c=q) is both
            assert value(col("b") | col("c"), b=p, c=q) is either
    assert value(~col("b")) is None
    assert value(col("i") == col("i")) is None
    assert value(col("i").is_null()) is True
    assert value(col("x").is_not_null(), x=math.nan) is True
    assert value(col("items").is_null()) is True
    assert value(col("i").coalesce(col("n"), 7)) == 7
    assert value(od.if_else(col("b"), 1, 2)) == 2
    assert value(col("x").isin([])) is None
    assert value(col("x").isin([]), x=1.0) is False


def test_strings_lists_times():
    assert value(col("s") < "é", s="z") is True
    assert value(col("s").length(), s="é") == 2
    assert value(col("s").isin(["a", "b"]), s="b") is True
    assert value(od.if_else(col("b"), col("s"), "no"), b=True, s="yes") == "yes"
    assert value(col("items").length(), items=[1, None]) == 2
    assert value(col("t") >= dt.datetime(1970, 1, 2), t=86_400) is True
    assert value(col("t") == 5, t=5) is True
    assert value(col("d").isin([dt.date(1970, 1, 2)]), d=1) is True


def test_casts():
    assert value(col("x").cast(int), x=-1.9) == -1
    for bad in (math.nan, math.inf, 2.0**63):
        with pytest.raises(OverflowError):
            value(col("x").cast(int), x=bad)
    assert value(col("x").cast(int), x=-(2.0**63)) == -(2**63)
    with pytest.raises(OverflowError, match="int8"):
        value(col("i").cast(pa.int8()), i=128)
    with pytest.raises(OverflowError):
        value(col("i").cast(pa.uint64()), i=-1)
    assert value(col("b").cast(float), b=True) == 1.0
    assert value(col("i").cast(bool), i=-2) is True
    assert value(col("x").cast(pa.float32()), x=0.1) == float(np.float32(0.1))


def test_lookup():
    table = pa.array([10, None, 30])
    assert [value(col("i").lookup(table), i=i) for i in (-1, 0, 1, 2, 3, None)] == [
        None,
        10,
        None,
        30,
        None,
        None,
    ]
    assert value(col("i").lookup(np.array([0.5])), i=0) == 0.5
    with pytest.raises(od.SchemaError, match="one-dimensional"):
        col("i").lookup(np.zeros((2, 2)))


@pytest.mark.parametrize("values", ["ab", b"ab", 5, None, col("s")])
def test_isin_takes_a_list_and_no_text_letter_by_letter(values):
    with pytest.raises(od.SchemaError, match=r"isin takes a list of values, got .*: one value is s =="):
        col("s").isin(values)
