"""None, and columns of nothing but nulls: they take their type from what they stand beside."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

N, X = od.col("n"), od.col("i")
DATA = pa.table({"i": [1, 2, None], "s": ["a", None, "b"], "n": pa.nulls(3), "other": pa.nulls(3)})


def values(expression):
    """Type and values of an expression, in the core and in the reference."""
    pipeline = od.Pipeline(DATA.schema).select(y=expression)
    expected = run_serial(pipeline, DATA)
    assert expected.error is None
    for rows in (1, 7):
        assert pipeline.run(DATA, workers=0, chunk_rows=rows).table.equals(expected.table)
    return expected.table["y"].type, expected.table["y"].to_pylist()


@pytest.mark.parametrize(
    ("expression", "type_", "found"),
    [
        (od.when(X == 1).then(None).otherwise("x"), pa.string(), [None, "x", "x"]),
        (od.when(X == 1).then(None).when(X == 2).then("q").otherwise("r"), pa.string(), [None, "q", "r"]),
        (od.if_else(X == 1, None, 0.5), pa.float64(), [None, 0.5, 0.5]),
        (od.lit(None).coalesce(3), pa.int64(), [3, 3, 3]),
        (
            od.if_else(X == 1, None, datetime.date(2020, 1, 1)),
            pa.date32(),
            [None, *[datetime.date(2020, 1, 1)] * 2],
        ),
        (N.fill_null(0), pa.int64(), [0, 0, 0]),
        (N.coalesce(od.col("s")), pa.string(), ["a", None, "b"]),
        (N > 3, pa.bool_(), [None, None, None]),
        (N & (X > 1), pa.bool_(), [False, None, None]),
        (X + N, pa.int64(), [None, None, None]),
        (od.col("s") + N, pa.string(), [None, None, None]),
        (od.if_else(N, 1, 2), pa.int64(), [2, 2, 2]),
        (N.cast(float) / 2, pa.float64(), [None, None, None]),
        (N.cast(pa.int8()), pa.int8(), [None, None, None]),
        (N.cast(pa.list_(pa.string())), pa.list_(pa.string()), [None, None, None]),
        (N.cast(pa.timestamp("us"), strict=False).dt.year(), pa.int64(), [None, None, None]),
        (N.is_null(), pa.bool_(), [True, True, True]),
    ],
    ids=repr,
)
def test_a_type_from_what_it_stands_beside(expression, type_, found):
    assert values(expression) == (type_, found)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (N + od.col("other"), "column 'n' has nothing but nulls, no type; cast it"),
        (N.str.lower(), "column 'n' has nothing but nulls, no type; cast it"),
        (-N, "column 'n' has nothing but nulls, no type; cast it"),
        (od.if_else(X == 1, None, None), r"the type of None is not known in .*; write od.lit\(None, type\)"),
    ],
    ids=repr,
)
def test_no_type_at_all(expression, text):
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(DATA.schema).select(y=expression)
    with pytest.raises(od.SchemaError, match="column 'n' has nothing but nulls, no type; cast it"):
        od.Pipeline(DATA.schema).filter(N)


def test_aggregations_of_such_a_column():
    pipeline = od.Pipeline(DATA.schema)
    summed = pipeline.aggregate(n=od.count("n"), t=od.sum(N.cast(float)), emit="final")
    assert summed.run(DATA).table.to_pylist() == run_serial(summed, DATA).table.to_pylist()
    assert summed.run(DATA).table.to_pylist() == [{"n": 0, "t": 0.0}]
    with pytest.raises(od.SchemaError, match=r"cast it, od.sum\(od.col\('n'\).cast\(pa.float64\(\)\)\)"):
        pipeline.aggregate(t=od.sum("n"))


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        (pa.array([[1]]), ".list and .struct look into it"),
        (pa.array([{"a": 1}]), ".list and .struct look into it"),
        (pa.array([1.5], pa.float16()), "cast it in front of the pipeline"),
    ],
    ids=["list", "struct", "half"],
)
def test_what_is_not_computed_with_says_what_to_do(column, advice):
    with pytest.raises(od.SchemaError, match=f"column 'x' is .*: it can be passed through.*; {advice}"):
        od.Pipeline({"x": column.type}).select(y=od.col("x") == od.col("x"))
