"""Arithmetic of times and durations against Python's, in the core and in the reference."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream import col
from ordstream.reference.run_serial import run_serial

UTC = dt.UTC
AT = [dt.datetime(2024, 3, 1, 12, 30, 15, 250_000), None, dt.datetime(1969, 12, 31, 23, 59, 59)]
BEFORE = [dt.datetime(2024, 2, 28, 23), dt.datetime(2024, 1, 1), dt.datetime(1960, 1, 1)]
SPANS = [dt.timedelta(hours=1, milliseconds=250), dt.timedelta(days=-400), None]
TIMES = [dt.time(1, 2, 3), None, dt.time(23, 59, 59)]
TABLE = pa.table(
    {
        "us": pa.array(AT, pa.timestamp("us")),
        "ms": pa.array(AT, pa.timestamp("ms")),
        "s": pa.array(BEFORE, pa.timestamp("s")),
        "ns": pa.array(BEFORE, pa.timestamp("ns")),
        "utc": pa.array([one and one.replace(tzinfo=UTC) for one in AT], pa.timestamp("us", "UTC")),
        "rome": pa.array([one.replace(tzinfo=UTC) for one in BEFORE], pa.timestamp("s", "Europe/Rome")),
        "day": pa.array([one and one.date() for one in AT], pa.date32()),
        "day64": pa.array([one.date() for one in BEFORE], pa.date64()),
        "time": pa.array(TIMES, pa.time32("s")),
        "time_us": pa.array(TIMES[::-1], pa.time64("us")),
        "span": pa.array(SPANS, pa.duration("ms")),
        "span_us": pa.array(SPANS[::-1], pa.duration("us")),
        "i": pa.array([3, -2, None]),
        "x": pa.array([0.5, 1.5, 2.5]),
    }
)
MS, US = dt.timedelta(milliseconds=1), dt.timedelta(microseconds=1)


def rows(*columns):
    return zip(*(TABLE[name].to_pylist() for name in columns), strict=True)


def seconds(time):
    return dt.timedelta(hours=time.hour, minutes=time.minute, seconds=time.second)


@pytest.mark.parametrize(
    ("expr", "type_", "columns", "python"),
    [
        (col("us") - col("s"), pa.duration("us"), "us s", lambda a, b: a - b),
        (col("s") - col("ms"), pa.duration("ms"), "s ms", lambda a, b: a - b),
        (col("utc") - col("rome"), pa.duration("us"), "utc rome", lambda a, b: a - b),
        (col("ns") - col("s"), pa.duration("ns"), "ns s", lambda a, b: dt.timedelta(0)),
        (col("day") - col("day64"), pa.duration("ms"), "day day64", lambda a, b: a - b),
        (col("day") - dt.date(2020, 2, 29), pa.duration("s"), "day", lambda a: a - dt.date(2020, 2, 29)),
        (
            col("time") - col("time_us"),
            pa.duration("us"),
            "time time_us",
            lambda a, b: seconds(a) - seconds(b),
        ),
        (
            col("us") - dt.datetime(2020, 1, 1),
            pa.duration("us"),
            "us",
            lambda a: a - dt.datetime(2020, 1, 1),
        ),
        (dt.datetime(2020, 1, 1) - col("s"), pa.duration("s"), "s", lambda a: dt.datetime(2020, 1, 1) - a),
        (col("s") + col("span"), pa.timestamp("ms"), "s span", lambda a, b: a + b),
        (col("span") + col("us"), pa.timestamp("us"), "span us", lambda a, b: a + b),
        (col("rome") - col("span"), pa.timestamp("ms", "Europe/Rome"), "rome span", lambda a, b: a - b),
        (col("s") - dt.timedelta(hours=1), pa.timestamp("s"), "s", lambda a: a - dt.timedelta(hours=1)),
        (col("s") + dt.timedelta(microseconds=7), pa.timestamp("us"), "s", lambda a: a + 7 * US),
        (np.timedelta64(90, "m") + col("ms"), pa.timestamp("ms"), "ms", lambda a: a + 90 * 60_000 * MS),
        (
            dt.datetime(2020, 1, 1) + col("span"),
            pa.timestamp("us"),
            "span",
            lambda a: dt.datetime(2020, 1, 1) + a,
        ),
        (col("day") + dt.timedelta(days=30), pa.date32(), "day", lambda a: a + dt.timedelta(30)),
        (col("day64") - dt.timedelta(days=1), pa.date64(), "day64", lambda a: a - dt.timedelta(1)),
        (col("span") + col("span_us"), pa.duration("us"), "span span_us", lambda a, b: a + b),
        (
            col("span") - dt.timedelta(seconds=9),
            pa.duration("ms"),
            "span",
            lambda a: a - dt.timedelta(seconds=9),
        ),
        (
            col("span") % dt.timedelta(minutes=7),
            pa.duration("ms"),
            "span",
            lambda a: a % dt.timedelta(minutes=7),
        ),
        (col("span") // dt.timedelta(minutes=7), pa.int64(), "span", lambda a: a // dt.timedelta(minutes=7)),
        (col("span") / col("span_us"), pa.float64(), "span span_us", lambda a, b: a / b),
        (col("span") * 3, pa.duration("ms"), "span", lambda a: a * 3),
        (col("i") * col("span"), pa.duration("ms"), "i span", lambda a, b: a * b),
        (col("span_us") // 1_000, pa.duration("us"), "span_us", lambda a: (a // US) // 1_000 * US),
        (-col("span"), pa.duration("ms"), "span", lambda a: -a),
        (abs(col("span")), pa.duration("ms"), "span", abs),
        (
            (col("us") - col("s")) > dt.timedelta(days=2),
            pa.bool_(),
            "us s",
            lambda a, b: a - b > dt.timedelta(2),
        ),
        ((col("us") - col("ms")).cast(pa.int64()), pa.int64(), "us ms", lambda a, b: (a - b) // US),
    ],
)
def test_times_calculate_as_pythons(expr, type_, columns, python):
    pipeline = od.Pipeline(TABLE.schema).select(r=expr)
    assert pipeline.schema.field("r").type == type_
    expected = [None if None in values else python(*values) for values in rows(*columns.split())]
    found = pipeline.run(TABLE).table
    if type_ == pa.duration("ns"):
        found, expected = found.cast(pa.schema([("r", pa.duration("us"))])), expected
    assert found["r"].to_pylist() == expected
    assert [row[0] for row in run_serial(pipeline, TABLE).rows] == pipeline.run(TABLE).table["r"].to_pylist()


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (col("us") + 5, r"a number has no unit: write datetime.timedelta"),
        (5 - col("day"), "a number has no unit"),
        (col("span") * 1.5, "a duration is multiplied by a whole number"),
        (col("span") / 2, r"divided by one with //"),
        (col("us") + col("ms"), "it means nothing"),
        (col("us") * col("span"), "it means nothing"),
        (col("span") * col("span"), "it means nothing"),
        (col("span") - col("us"), "it means nothing"),
        (col("us") - col("day"), "it means nothing"),
        (col("us") - col("utc"), r"need a zone, by .dt.replace_time_zone"),
        (col("day") + dt.timedelta(hours=1), "whole days"),
        (col("day") + col("span"), "whole days"),
        (col("time") + dt.timedelta(hours=1), "a time of day ends"),
        (-col("us"), "can't calculate with timestamp"),
        (col("us") - "2024-01-01", "can't calculate with timestamp.* and string"),
    ],
)
def test_what_means_nothing_is_refused_where_it_is_written(expr, words):
    with pytest.raises(od.SchemaError, match=words) as failed:
        od.Pipeline(TABLE.schema).select(r=expr)
    assert "select_1" in str(failed.value)


def test_what_does_not_fit_is_an_error_at_its_row():
    far = pa.table(
        {"t": pa.array([0, 10**10], pa.timestamp("s")), "n": pa.array([1, 1], pa.timestamp("ns"))}
    )
    pipeline = od.Pipeline(far.schema).select(r=col("t") - col("n"))
    with pytest.raises(od.OperatorError) as failed:
        pipeline.run(far)
    assert failed.value.serial == run_serial(pipeline, far).error.serial == 2


def test_the_time_since_a_key_s_last_event():
    """What `lag` recommends."""
    table = pa.table({"user": [1, 2, 1, 1], "ts": pa.array([0, 5, 60, 200], pa.timestamp("s", "UTC"))})
    lagged = od.Pipeline(table.schema).key_by("user").lag({"before": "ts"})
    found = lagged.select("user", since=col("ts") - col("before")).run(table).table
    assert found["since"].to_pylist() == [None, None, dt.timedelta(minutes=1), dt.timedelta(seconds=140)]
    by_diff = od.Pipeline(table.schema).key_by("user").diff("ts").run(table).table
    assert by_diff["ts_diff"].equals(found["since"])


@pytest.mark.parametrize(
    ("type_", "zone", "words"),
    [
        (pa.timestamp("s"), UTC, "beside timestamp.s., .* has a time zone: what its clock reads"),
        (pa.timestamp("s", "UTC"), None, "beside timestamp.s, tz=UTC., .* has no time zone: give it one"),
        (pa.date32(), None, "beside date32.day., .* can't be stored exactly"),
    ],
)
def test_a_constant_of_another_kind_of_time_says_what_to_do(type_, zone, words):
    source = od.Pipeline(pa.schema([("t", type_)]))
    with pytest.raises(od.SchemaError, match=words):
        source.filter(od.col("t") > dt.datetime(2020, 1, 1, tzinfo=zone))
