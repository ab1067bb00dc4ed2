"""count with tumbling windows and a bound."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import ROWS, ascending, check, pipeline, run, storage_rows

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=15, deadline=None)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("above", [None, 0, 2])
@pytest.mark.parametrize("time", ["i", "j"])
@pytest.mark.parametrize("key", [(), ("b",), ("x", "s")], ids=str)
@FEW
@given(rows=ROWS)
@pytest.mark.thin(12)
def test_windows_equal_the_reference(key, time, above, on_error, rows):
    keyed = pipeline().key_by(*key) if key else pipeline()
    for window in (1, 3, 2**62):
        check(
            keyed.count("n", window=window, time=time, above=above, on_error=on_error), ascending(rows, time)
        )


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("key", [(), ("b",), ("f", "j")], ids=str)
@FEW
@given(rows=ROWS)
def test_counts_above_equal_the_reference(key, emit, rows):
    keyed = pipeline().key_by(*key) if key else pipeline()
    check(keyed.count(above=1, emit=emit), rows)


def test_windows_by_hand():
    data = pa.table({"k": [1, 1, 1, 2, 1, 1], "t": [-1, 0, 9, 9, 10, 30]})
    result = run_serial(od.Pipeline(data.schema).key_by("k").count(window=10, time="t"), data)
    assert result.rows == [(1, -10, 1), (1, 0, 1), (1, 0, 2), (2, 0, 1), (1, 10, 1), (1, 30, 1)]
    above = od.Pipeline(data.schema).key_by("k").count(window=10, time="t", above=1)
    assert run_serial(above, data).rows == [(1, 0, 2)]


def test_windows_of_dates_and_timestamps():
    days = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1970, 1, 6), dt.date(1970, 1, 8)]
    data = pa.table({"day": days, "at": pa.array([-1, 0, 3_599_999, 3_600_000], pa.timestamp("ms", "UTC"))})
    weekly = od.Pipeline(data.schema).count(window=dt.timedelta(days=7), time="day")
    hourly = od.Pipeline(data.schema).key_by("day").count(window=dt.timedelta(hours=1), time="at")
    assert weekly.schema.field("window").type == pa.date32()
    assert hourly.schema.field("window").type == pa.timestamp("ms", "UTC")
    assert [row[-1] for row in run_serial(weekly, data).rows] == [1, 1, 2, 1]
    for built in (weekly, hourly):
        assert built.run(data, workers=0).table.equals(run_serial(built, data).table)


def test_the_first_window_of_a_narrow_date_is_out_of_range():
    schema = pa.schema([("d", pa.date32())])
    low = pa.array([-(2**31) + 5, 0], pa.int32()).cast(pa.date32())
    built = od.Pipeline(schema).count(window=1000, time="d", on_error="skip")
    result = run_serial(built, pa.table([low], schema=schema))
    assert [n for _, n in result._storage] == [1]
    assert run(built.plan.operators[0], [(-(2**31) + 5,), (0,)])[0] == storage_rows(result)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.count(window=5), "window and time go together"),
        (lambda p: p.count(time="i"), "window and time go together"),
        (lambda p: p.count(window=0, time="i"), "window must be at least 1"),
        (lambda p: p.count(window=5, time="s"), "must be an integer"),
        (lambda p: p.count(window=5, time="i", emit="final"), "does not go with a window"),
        (lambda p: p.count(above=-1), "above must be an int of at least 0"),
        (lambda p: p.count("window", window=5, time="i"), "duplicate column name"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())
