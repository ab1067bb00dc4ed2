"""Durations: texts, timedeltas and numbers, in the unit of a column."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.duration import nanoseconds, time_span

US = pa.field("ts", pa.timestamp("us"))


@pytest.mark.parametrize(
    ("value", "type_", "units"),
    [
        ("30m", pa.timestamp("s"), 1800),
        ("1h30m", pa.timestamp("ms", "UTC"), 5_400_000),
        (" 1.5 s ", pa.timestamp("us"), 1_500_000),
        ("0.1s", pa.timestamp("us"), 100_000),  # exact: no float is made of it
        ("2min", pa.timestamp("ns"), 120 * 10**9),
        ("5 minutes", pa.timestamp("s"), 300),
        ("1 hour 30 minutes", pa.timestamp("s"), 5400),
        ("1.5 seconds 3 ms", pa.timestamp("us"), 1_503_000),
        ("-2 days", pa.date32(), -2),
        ("7d", pa.date32(), 7),
        ("7d", pa.date64(), 7 * 86_400_000),
        ("-5s", pa.timestamp("s"), -5),
        (datetime.timedelta(hours=1), pa.timestamp("s"), 3600),
        (datetime.timedelta(days=-1), pa.date32(), -1),
        (90, pa.timestamp("s"), 90),
        (90, pa.int32(), 90),
    ],
)
def test_in_the_columns_unit(value, type_, units):
    assert time_span(value, pa.field("ts", type_), "the length") == units


@pytest.mark.parametrize("text", [
    "", "-", "5", "m", "5 minutess", "5 Minutes", "5 fortnights", "1h-5m", "1e3s", "5s x", "٣s٣",
])  # fmt: skip
def test_what_is_no_duration(text):
    with pytest.raises(od.PlanError, match="the length: a duration is a number and a unit"):
        time_span(text, US, "the length")


@pytest.mark.parametrize("value", [1.5, True, None, b"5s"])
def test_other_values(value):
    with pytest.raises(od.PlanError, match="the length must be an int, a timedelta or a text"):
        time_span(value, US, "the length")


def test_a_column_of_integers_has_no_unit():
    with pytest.raises(od.PlanError, match=r"must be an int for 'n' \(int64\).*has no unit of time"):
        time_span("5s", pa.field("n", pa.int64()), "the length")


def test_parts_of_a_unit_are_refused():
    with pytest.raises(od.PlanError, match="not a whole number of units of 'day'"):
        time_span("36h", pa.field("day", pa.date32()), "the length")


def test_a_column_that_holds_no_time():
    with pytest.raises(od.SchemaError, match="'x' must be an integer"):
        time_span("5s", pa.field("x", pa.float64()), "the length")


def test_too_long():
    with pytest.raises(od.PlanError, match="must fit into int64"):
        time_span("999999d", pa.field("ts", pa.timestamp("ns")), "the length")


def test_every_place_takes_a_text():
    schema = pa.schema({"k": pa.int64(), "ts": pa.timestamp("s")})
    by = od.Pipeline(schema).key_by("k")
    assert by.sessionize("ts", "30m").plan.operators[0].timeout == 1800
    assert by.count(window="1m", time="ts").plan.operators[0].window == 60
    assert by.preceding(2, ["k"], time="ts", within="1h").plan.operators[0].within == 3600
    assert od.every("ts", "1d").bind(schema) == (1, 86_400)
    assert (
        by.window(od.tumbling("5m"), time="ts").aggregate(n=od.count()).plan.operators[0].window.length
        == 300
    )


def test_nanoseconds_are_exact():
    assert nanoseconds("0.123456789s", "it") == 123_456_789
    assert nanoseconds(datetime.timedelta(microseconds=1), "it") == 1000


SPAN = pa.scalar(90, pa.duration("s"))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_of_arrow(unit):
    """Also of nanoseconds, which `as_py` needs pandas for."""
    span = SPAN.cast(pa.duration(unit))
    assert nanoseconds(span, "it") == 90 * 10**9
    assert time_span(span, pa.field("ts", pa.timestamp("ms")), "it") == 90_000
    with pytest.raises(od.PlanError, match="it must be a timedelta or"):
        nanoseconds(pa.scalar(None, span.type), "it")


@pytest.mark.parametrize(
    "make",
    [
        lambda p, span: p.window(od.tumbling(span), time="ts").aggregate(n=od.count()),
        lambda p, span: p.window(od.hopping(span, every=span), time="ts").aggregate(n=od.count()),
        lambda p, span: p.window(od.session(span), time="ts").aggregate(n=od.count()),
        lambda p, span: p.window(od.rolling(span), time="ts").aggregate(n=od.count()),
        lambda p, span: p.reorder("ts", slack=span),
        lambda p, span: p.deduplicate("k", within=span, time="ts"),
        lambda p, span: p.key_by("k").sessionize("ts", span),
        lambda p, span: p.select(y=od.col("ts").dt.truncate(span)),
        lambda p, span: p.select(y=od.col("ts") + span),
    ],
)
def test_arrow_s_and_numpy_s_spans_do_what_python_s_does(make):
    rows = pa.table({"k": [1, 1, 1], "ts": pa.array([0, 80 * 10**6, 200 * 10**6], pa.timestamp("us"))})
    pipeline = od.Pipeline(rows.schema)
    python, numpy = datetime.timedelta(seconds=90), np.timedelta64(90, "s")
    expected = make(pipeline, python).run(rows).table
    assert make(pipeline, SPAN).run(rows).table.equals(expected)
    assert make(pipeline, numpy).run(rows).table.equals(expected)
    assert od.every("ts", SPAN).bind(rows.schema) == od.every("ts", python).bind(rows.schema)


def test_a_month_of_numpy_s_is_no_interval():
    pipeline = od.Pipeline({"ts": pa.timestamp("us")})
    with pytest.raises(od.SchemaError, match="has no length: write '1mo'"):
        pipeline.select(y=od.col("ts").dt.truncate(np.timedelta64(1, "M")))
