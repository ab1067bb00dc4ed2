"""regression: lines from exact sums."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.kernel_check import ROWS, ascending, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=60, deadline=None)
LINES = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
WIDE = st.integers(-(2**31), 2**31) | st.integers(-5, 5)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("emit", ["updates", "every_tuple", "final"])
@pytest.mark.parametrize(("x", "y"), [("i", "j"), ("j", "i"), ("u", "u"), ("j", "j")])
@settings(max_examples=20, deadline=None)
@given(rows=ROWS)
def test_regression_equals_the_reference(x, y, emit, on_error, rows):
    check(pipeline().key_by("b").regression(x, y, emit=emit, on_error=on_error), ascending(rows, x))


@pytest.mark.parametrize("emit", ["updates", "every_tuple", "final"])
@FEW
@given(rows=st.lists(st.tuples(st.integers(0, 2), WIDE, st.integers(-(2**28), 2**28)), max_size=40))
def test_wide_sums_equal_the_reference(emit, rows):
    check(od.Pipeline(LINES).key_by("k").regression("x", "y", emit=emit), ascending(rows, "x", LINES), LINES)


def test_the_line_through_daily_totals():
    data = pa.table({"k": [1, 1, 1, 2, 1], "day": [10, 10, 12, 5, 13], "cents": [3, 4, 5, 8, -1]})
    built = od.Pipeline(data.schema).key_by("k").regression("day", "cents")
    rows = run_serial(built, data).rows
    slope, intercept = np.polyfit([10, 12, 13], [7, 5, -1], 1)
    assert rows == [
        (1, 12, 2, -1.0, 17.0, True),
        (1, 13, 3, pytest.approx(slope), pytest.approx(intercept), True),
    ]
    assert run_serial(built, data).tags == [(5, 0), (5, 1)]
    every = od.Pipeline(data.schema).key_by("k").regression("day", "cents", emit="every_tuple")
    rows = run_serial(every, data).rows
    assert rows[:3] == [
        (1, 10, 1, None, None, None),
        (1, 10, 1, None, None, None),
        (1, 12, 2, -1.0, 17.0, True),
    ]


def test_a_flat_line_is_flat_exactly():
    n = 1000
    data = pa.table({"k": [0] * n, "x": list(range(36_890, 36_890 + n)), "y": [10**9 + 1] * n})
    built = od.Pipeline(data.schema).key_by("k").regression("x", "y", emit="final")
    ((_, last, points, slope, intercept, flat),) = run_serial(built, data).rows
    assert (last, points, slope, intercept, flat) == (
        37_889,
        n,
        0.0,
        pytest.approx(10**9 + 1, rel=1e-15),
        True,
    )


def test_quotients_of_exact_integers():
    rng = np.random.default_rng(3)
    x = np.cumsum(rng.integers(1, 2**20, 200)) + 2**27
    y = rng.integers(-(2**25), 2**25, 200)
    data = pa.table({"k": [0] * 200, "x": x, "y": y})
    built = od.Pipeline(data.schema).key_by("k").regression("x", "y", emit="final")
    table = built.run(data, workers=1).table
    n, sx, sy = 200, int(x.sum()), int(y.sum())
    sxx, sxy = sum(int(v) ** 2 for v in x), sum(int(a) * int(b) for a, b in zip(x, y, strict=True))
    slope = Fraction(n * sxy - sx * sy, n * sxx - sx * sx)
    intercept = (sy - slope * sx) / n
    assert table["slope"][0].as_py() == pytest.approx(float(slope), rel=1e-15)
    assert table["intercept"][0].as_py() == pytest.approx(float(intercept), rel=1e-15)


def test_dates_on_the_x_axis():
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2020, 1, 4)]
    data = pa.table({"k": ["a"] * 3, "day": days, "y": pa.array([1, 2, 4], pa.uint8())})
    built = od.Pipeline(data.schema).key_by("k").regression("day", "y", emit="final")
    (row,) = run_serial(built, data).rows
    assert row[:3] == ("a", days[-1], 3)
    assert row[3] == 1.0
    assert built.run(data, workers=0).table.equals(run_serial(built, data).table)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.key_by("b").regression("x", "i"), "x must be an integer, date or time"),
        (lambda p: p.key_by("b").regression("i", "x"), "y must be an integer"),
        (lambda p: p.key_by("i").regression("i", "j"), "duplicate column name"),
        (lambda p: p.key_by("b").regression("i", "j", emit="all"), "emit must be"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())


def test_a_product_may_leave_int64_where_the_total_does_not():
    source = pa.schema([("b", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
    rows = pa.table({"b": [1, 1, 1], "x": [-1, -1, 3], "y": [1, -(2**63), 0]}, schema=source)
    regressed = od.Pipeline(source).key_by("b").regression("x", "y", emit="every_tuple")
    expected = run_serial(regressed, rows)
    assert expected.error is None
    assert regressed.run(rows, workers=0).table.equals(expected.table)
    too_much = pa.table({"b": [1, 1], "x": [-1, -1], "y": [0, -(2**63)]}, schema=source)
    assert run_serial(regressed, too_much).error.serial == 2
    with pytest.raises(od.OperatorError, match="outside int64; x is squared: count it from a start near by"):
        regressed.run(too_much, workers=0)
