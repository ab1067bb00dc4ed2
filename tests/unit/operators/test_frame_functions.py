"""map_batches with functions of pandas' and Polars' frames."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import pickle
import re

import numpy
import pandas
import pyarrow as pa
import pytest
from value_columns import COLUMNS

import ordstream as od
from ordstream.testing import run_serial

WAYS = [{"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 3}, {"workers": 1}]
NUMBERS = pa.table({"k": [1, 2, None, 4, 2**62 + 1], "x": [0.5, None, 4.0, 9.0, 16.0]})
ROOTS = pa.schema({"k": pa.int64(), "root": pa.float64()})


def in_pandas(frame):
    frame["root"] = frame["x"] ** 0.5
    return frame[["root", "k"]]


def in_polars(frame):
    import polars

    return frame.select("k", root=polars.col("x").sqrt())


BOTH = pytest.mark.parametrize(("format_", "fn"), [("pandas", in_pandas), ("polars", in_polars)])
FORMATS = pytest.mark.parametrize("format_", ["pandas", "polars"])


def both(pipeline, data):
    expected = run_serial(pipeline, data)
    for options in WAYS:
        if expected.error is not None:
            with pytest.raises(od.OperatorError) as failure:
                pipeline.run(data, **options)
            assert failure.value.serial == expected.error.serial
            continue
        found = pipeline.run(data, **options).table
        assert found.schema == expected.table.schema
        assert str(found.to_pylist()) == str(expected.table.to_pylist())
    return expected


@BOTH
def test_columns_by_name_and_integers_beside_nulls(format_, fn):
    """2**62 + 1 is no float."""
    pipeline = od.Pipeline(NUMBERS.schema).map_batches(fn, schema=ROOTS, format=format_)
    found = both(pipeline, NUMBERS).table.to_pydict()
    assert found == {"k": [1, 2, None, 4, 2**62 + 1], "root": [0.5**0.5, None, 2.0, 3.0, 4.0]}
    assert "python_batch in_p" in pipeline.explain()


@BOTH
def test_functions_reach_processes(format_, fn):
    pipeline = od.Pipeline(NUMBERS.schema).map_batches(fn, schema=ROOTS, format=format_)
    made = pickle.loads(pickle.dumps(pipeline.plan.operators[0].fn))
    assert made(NUMBERS.to_batches()[0])["k"].to_pylist() == NUMBERS["k"].to_pylist()


@FORMATS
@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_any_type_come_back(format_, kind):
    type_, values = COLUMNS[kind]
    data = pa.table({"x": pa.array([*values, None, values[0]], type_)})
    pipeline = od.Pipeline(data.schema).map_batches(lambda frame: frame, schema=data.schema, format=format_)
    found = both(pipeline, data)
    assert found.error is None
    assert found.table["x"].to_pylist() == data["x"].to_pylist()


def test_whole_floats_are_integers_in_pandas():
    """Integers beside NaN are floats there; a fraction is an error at its row."""
    data = pa.table({"x": [1.0, None, 2.0, 2.5]})
    pipeline = od.Pipeline(data.schema).map_batches(lambda f: f, schema={"x": int}, format="pandas")
    assert both(pipeline, data[:3]).table["x"].to_pylist() == [1, None, 2]
    assert "truncated" in str(both(pipeline, data).error)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda frame: frame["x"], "expected a pandas.DataFrame, got"),
        (lambda frame: frame.iloc[:0], "0 values for 1 row"),
        (lambda frame: frame.rename(columns={"x": "y"}), r"expected the columns \['x'\], got \['y'\]"),
        (lambda frame: frame.assign(x="a"), "column 'x' is double"),
        (lambda frame: frame.assign(y=1), "expected the columns"),
    ],
)
def test_what_pandas_functions_get_wrong(fn, said):
    data = pa.table({"x": [1.0, 2.0]})
    pipeline = od.Pipeline(data.schema).map_batches(fn, schema=data.schema, format="pandas")
    assert both(pipeline, data).error.serial == 1
    with pytest.raises(od.OperatorError, match=said):
        pipeline.run(data, workers=0)


@FORMATS
def test_failing_rows_are_found(format_):
    """And the others of the batch go on."""

    def fails(frame):
        if (frame["x"] == 3).any():
            raise ValueError("three")
        return frame

    data = pa.table({"x": range(8)})
    source = od.Pipeline(data.schema)
    found = both(source.map_batches(fails, schema=data.schema, format=format_, on_error="skip"), data)
    assert found.table["x"].to_pylist() == [0, 1, 2, 4, 5, 6, 7]
    assert both(source.map_batches(fails, schema=data.schema, format=format_), data).error.serial == 4
    again = source.map_batches(fails, schema=data.schema, format=format_, on_error=od.retry(1, then="skip"))
    assert both(again, data).table["x"].to_pylist() == [0, 1, 2, 4, 5, 6, 7]


def test_a_library_that_is_not_there(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(od.PlanError, match="format='polars' needs polars: pip install polars"):
        od.Pipeline({"x": int}).map_batches(lambda frame: frame, schema={"x": int}, format="polars")


def test_tables_are_results_of_functions_of_batches():
    data = pa.table({"x": [1, 2, 3]})
    pipeline = od.Pipeline(data.schema).map_batches(
        lambda batch: pa.table({"x": pa.chunked_array([batch["x"]])}), schema=data.schema, format="arrow"
    )
    assert both(pipeline, data).table.equals(data)


BIG = 2**53 + 1  # no float


@pytest.mark.parametrize(
    ("data", "fn", "schema", "expected"),
    [
        # a function that computes floats of integers, where some are null
        (
            {"x": [4, None, -1]},
            numpy.errstate(invalid="ignore")(lambda f: f.assign(x=numpy.sqrt(f["x"]))),
            {"x": float},
            [2.0, None, None],
        ),
        ({"x": [5, None], "z": [0, 1]}, lambda f: (f["x"] % f["z"]).to_frame("x"), {"x": int}, [0, None]),
        # texts of which a batch has none
        (
            {"x": ["a", "b/c", None]},
            lambda f: f.assign(x=f["x"].str.split("/").str[1]),
            {"x": str},
            [None, "c", None],
        ),
        (
            {"x": ["2024-02-29", "?", None]},
            lambda f: f.assign(x=pandas.to_datetime(f["x"], errors="coerce").dt.date),
            {"x": pa.date32()},
            [datetime.date(2024, 2, 29), None, None],
        ),
        # integers inside of others
        ({"x": [[BIG, None], None]}, lambda f: f, {"x": pa.list_(pa.int64())}, [[BIG, None], None]),
        (
            {"x": [{"a": BIG}, {"a": None}]},
            lambda f: f,
            {"x": pa.struct({"a": pa.int64()})},
            [{"a": BIG}, {"a": None}],
        ),
        ({"x": [[1, 2]]}, lambda f: f.assign(x=[numpy.array([3])]), {"x": pa.list_(pa.int64())}, [[3]]),
        ({"x": [True, None]}, lambda f: ~f, {"x": bool}, [False, None]),
        (
            {"x": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal(10**40)], pa.decimal256(50, 2))},
            lambda f: f,
            {"x": pa.decimal256(50, 2)},
            [decimal.Decimal("1.25"), None, decimal.Decimal(10**40)],
        ),
        (
            {"x": pa.array([decimal.Decimal("1.25"), None], pa.decimal64(10, 2))},
            lambda f: f,
            {"x": pa.decimal64(10, 2)},
            [decimal.Decimal("1.25"), None],
        ),
    ],
)
def test_a_row_does_not_depend_on_those_beside_it(data, fn, schema, expected):
    """pandas chooses dtypes by what a batch holds."""
    data = pa.table(data)
    pipeline = od.Pipeline(data.schema).map_batches(fn, schema=schema, format="pandas")
    found = both(pipeline, data)
    assert found.error is None
    assert found.table["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("fn", "schema", "said"),
    [
        (lambda f: pandas.DataFrame({"x": f["x"].where(f["x"] > 9)}), {"x": int}, None),
        (lambda f: pandas.DataFrame({"x": [float(BIG)] * len(f)}), {"x": int}, r"from 2\*\*53 on"),
        (lambda f: pandas.DataFrame({"x": [[1.5]] * len(f)}), {"x": pa.list_(pa.int64())}, "float"),
        (
            lambda f: pandas.DataFrame({"x": [{"a": 1.5}] * len(f)}),
            {"x": pa.struct({"a": pa.int64()})},
            "1.5",
        ),
        (
            lambda f: pandas.concat([f, f], axis=1),
            {"x": int},
            r"expected the columns \['x'\], got \['x', 'x'\]",
        ),
        (lambda f: f.rename(columns={"x": 3}), {"x": int}, r"expected the columns \['x'\], got \[3\]"),
    ],
)
def test_values_are_taken_as_they_are_or_not_at_all(fn, schema, said):
    data = pa.table({"x": [1, 2]})
    found = both(od.Pipeline(data.schema).map_batches(fn, schema=schema, format="pandas"), data)
    if said is None:
        assert found.table["x"].to_pylist() == [None, None]
        return
    assert found.error.serial == 1
    assert re.search(said, str(found.error))


def test_types_that_polars_has_not_are_told_with_the_plan():
    """decimal256 ended the run with a panic, of no operator."""
    with pytest.raises(od.PlanError, match="Polars has no column 'x' of decimal256"):
        od.Pipeline({"x": pa.decimal256(50, 2)}).map_batches(lambda f: f, schema={"x": int}, format="polars")


@pytest.mark.parametrize("format_", ["arrow", "pandas"])
def test_two_columns_of_one_name(format_):
    def twice(batch):
        if format_ == "pandas":
            return pandas.concat([batch, batch], axis=1)
        return pa.RecordBatch.from_arrays([batch["x"], batch["x"]], names=["x", "x"])

    data = pa.table({"x": [1.0]})
    found = both(od.Pipeline(data.schema).map_batches(twice, schema=data.schema, format=format_), data)
    assert "expected the columns ['x'], got ['x', 'x']" in str(found.error)
