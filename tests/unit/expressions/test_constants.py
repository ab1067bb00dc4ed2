"""Constants of NumPy and pandas: exact, or refused."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
MICROS = pa.array([0, 10**6, None], pa.timestamp("us"))
SPANS = pa.array([0, 10**6, None], pa.duration("us"))
NANOS = pa.array([0, 1500, None], pa.timestamp("ns"))


def counted(column, expression):
    """The counts of a computed column, in the core and in the reference."""
    data = pa.table({"x": column})
    pipeline = od.Pipeline(data.schema).select(y=expression)
    expected = run_serial(pipeline, data)
    assert expected.error is None
    for rows in (1, 7):
        assert pipeline.run(data, workers=0, chunk_rows=rows).table.equals(expected.table)
    found = expected.table["y"]
    return found.type, found.cast(pa.int64()).to_pylist()


DAY = 86_400 * 10**6
EXACT = [
    # NumPy's own cast to nanoseconds wraps around beyond 292 years
    (MICROS, X + np.timedelta64(300 * 365, "D"), pa.timestamp("us"), 300 * 365 * DAY),
    (MICROS, X - np.timedelta64(15_700, "W"), pa.timestamp("us"), -15_700 * 7 * DAY),
    (SPANS, X + np.timedelta64(10**7, "h"), pa.duration("us"), 10**7 * 3_600 * 10**6),
    (SPANS, X + np.timedelta64(7, "25m"), pa.duration("us"), 7 * 25 * 60 * 10**6),
    (SPANS, X + np.timedelta64(1, "ns"), pa.duration("ns"), 1),
    (NANOS, X + pd.Timedelta(1, "ns"), pa.timestamp("ns"), 1),  # was lost
    (NANOS, X - pd.Timedelta(1, "ns"), pa.timestamp("ns"), -1),
    (NANOS, X + datetime.timedelta(microseconds=3), pa.timestamp("ns"), 3_000),
    (MICROS, X.fill_null(np.datetime64("1970-01-01T10")) - np.datetime64("1970", "Y"), pa.duration("us"), 0),
]


@pytest.mark.parametrize(("column", "expression", "type_", "first"), EXACT, ids=[repr(e[1]) for e in EXACT])
def test_durations_are_exact(column, expression, type_, first):
    found, values = counted(column, expression)
    assert (found, values[0]) == (type_, first)


REFUSED = [
    (MICROS, lambda: X + np.timedelta64("NaT", "us"), "NaT can't be a constant"),
    (MICROS, lambda: X.is_in([np.datetime64("NaT")]), "NaT can't be a constant"),
    (MICROS, lambda: X.fill_null(pd.NaT), "NaT can't be a constant"),
    (MICROS, lambda: X + np.timedelta64(1, "M"), "is no length of time"),
    (MICROS, lambda: od.lit(np.timedelta64(1, "Y")), "can't be a constant"),
    (SPANS, lambda: X + np.timedelta64(2**62, "s"), "is out of range"),
    (MICROS, lambda: X.fill_null(np.datetime64(1, "ns")), "can't be stored exactly"),
    (pa.array([1, None]), lambda: X.isin(pa.array([1, None])), "None among the values"),
    (pa.array(["a"]), lambda: X == "\ud800", "is no text: surrogates"),
    (
        pa.array([[decimal.Decimal(1)]]),
        lambda: X.list.contains(X.list.length()),
        "cast the value to decimal",
    ),
    (pa.array([[1]]), lambda: X.list.contains(decimal.Decimal(1)), "cast the value to int64"),
]


@pytest.mark.parametrize(("column", "make", "text"), REFUSED)
def test_what_is_no_constant_is_refused(column, make, text):
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(pa.schema([("x", column.type)])).select(y=make())


NUMPY = [
    (pa.timestamp("us"), np.datetime64("2400-01-01", "s"), 13_569_465_600 * 10**6),
    (pa.date32(), np.datetime64("1970-01-02T00:00:00.000000000"), 1),
    (pa.date64(), np.datetime64("1970-01-02", "ns"), 86_400_000),
    (pa.duration("s"), np.timedelta64(300 * 365, "D"), 300 * 365 * 86_400),
    (pa.date32(), np.datetime64(1, "ns"), None),  # was the second of January
    (pa.date32(), np.timedelta64(1, "M"), None),
    (pa.date64(), np.timedelta64(86_400_000, "ns"), None),
    (pa.time64("us"), np.datetime64(1, "ns"), None),
    (pa.duration("ns"), np.timedelta64(300 * 365, "D"), None),
    (pa.duration("us"), np.timedelta64(1, "ns"), None),
    (pa.duration("s"), np.timedelta64(1, "M"), None),
    (pa.timestamp("ns"), np.datetime64("2400-01-01", "s"), None),
    (pa.timestamp("us"), np.datetime64("NaT"), None),
    (pa.timestamp("us", "UTC"), np.datetime64("2020-01-01"), None),
    (pa.date32(), np.longdouble(1), None),
]


@pytest.mark.parametrize(("type_", "value", "count"), NUMPY)
def test_what_functions_return_is_stored_exactly(type_, value, count):
    """Arrow takes the count of a NumPy time for one of the column's own unit."""
    data = pa.table({"x": [1]})
    pipeline = od.Pipeline(data.schema).map(lambda _: (value,), schema=pa.schema([("y", type_)]))
    if count is None:
        assert run_serial(pipeline, data).error is not None
        with pytest.raises(od.OperatorError, match=f"column 'y' is {type_.__str__()[:4]}"):
            pipeline.run(data, workers=0)
        return
    found = pipeline.run(data, workers=0).table
    assert found.equals(run_serial(pipeline, data).table)
    bits = pa.int32() if type_ == pa.date32() else pa.int64()
    assert found["y"].cast(bits).to_pylist() == [count]


def test_nanoseconds_of_pandas_in_windows_and_intervals():
    """1,500 ns were one us."""
    data = pa.table({"x": pa.array([0, 1499, 1500, 2999, 3000], pa.timestamp("ns"))})
    span = pd.Timedelta(1500, "ns")
    windows = od.Pipeline(data.schema).window(od.tumbling(span), time="x").aggregate(n=od.count())
    cut = od.Pipeline(data.schema).select(y=X.dt.truncate(span))
    assert windows.run(data).table.equals(run_serial(windows, data).table)
    assert windows.run(data).table["n"].to_pylist() == [2, 2, 1]
    assert cut.run(data).table["y"].cast(pa.int64()).to_pylist() == [0, 0, 1500, 1500, 3000]


def test_a_sum_of_durations_says_what_to_do():
    """It said to cast to a float, which is refused."""
    data = pa.table({"x": pa.array([2**62, 2**62], pa.duration("ns"))})
    pipeline = od.Pipeline(data.schema).aggregate(y=od.sum("x"), emit="final")
    with pytest.raises(od.OperatorError, match="cast the column to a coarser unit in front"):
        pipeline.run(data)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: X == None, r"nothing equals null, None, .*write x\.is_null\(\)$"),  # noqa: E711
        (lambda: X != None, r"write x\.is_not_null\(\)$"),  # noqa: E711
        (lambda: X + 1 == None, r"write \(x \+ 1\)\.is_null\(\)$"),  # noqa: E711
        (lambda: X + X.dt.hour, r"it is a method, and is called: \.hour\(\.\.\.\)$"),
        (lambda: X + X.abs, r"it is a method, and is called: \.abs\(\.\.\.\)$"),
        (lambda: X + od.max("x"), r"written in \.aggregate\(\.\.\.\) or \.scan\(\.\.\.\): name=od\.max\("),
        (lambda: X + pa.compute.field("x"), r"a column is written od\.col\(name\)$"),
        (lambda: X + (lambda row: row.x), r"goes to \.map\(fn, schema=\.\.\.\)$"),
    ],
)
def test_what_is_no_constant_says_what_to_write(make, text):
    """A filter by `== None` dropped all rows; a method that was not called was sent to `map`."""
    with pytest.raises((od.SchemaError, od.PlanError), match=text):
        make()


def test_a_typed_null_is_still_compared():
    data = pa.table({"x": [1, None]})
    same = od.Pipeline(data.schema).select(a=od.lit(None, pa.int64()) == X)
    assert same.run(data).table["a"].to_pylist() == [None, None]


@pytest.mark.parametrize("use", [lambda: max(X, 1), lambda: 1 if X else 2])
def test_the_truth_of_an_expression_says_what_to_write(use):
    with pytest.raises(
        TypeError, match=r"od\.when\(c\)\.then\(a\)\.otherwise\(b\) for a if c else b, and a\.max"
    ):
        use()
