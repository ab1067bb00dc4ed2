"""Rows that run backwards: the operator that relies on time refuses them at the same serial as a
sequential run, however it is run.
"""

from __future__ import annotations

import datetime as dt
import math
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.compare import agree, run_core
from unit.kernel_check import ROWS, SCHEMA, check, pipeline

import ordstream as od
from ordstream.errors import PlanError, SchemaError, SourceError
from ordstream.reference.run_serial import run_serial

LAST = {"a": od.last("t"), "b": od.max("t", where=od.col("k") == 1)}

#: Every operator that relies on a column to ascend: its layouts, with a key and without, behind rows of a
#: flush.
RELYING = {
    "sessions in slots": lambda p: p.key_by("k").sessionize("t", 3, aggregate=LAST),
    "sessions with lists": lambda p: p.key_by("k").sessionize("t", 3, ["t"]),
    "sessions by text": lambda p: p.key_by("s").sessionize("t", 3, aggregate=LAST),
    "sessions with checked sums": lambda p: p.key_by("k").sessionize("t", 3, aggregate={"n": od.sum("k")}),
    "counts per key and window": lambda p: p.key_by("k").count(window=4, time="t"),
    "counts above, of all": lambda p: p.count(window=4, time="t", above=1),
    "a top per window": lambda p: p.top_k(2, "k", ["s"], window="t"),
    "a top per window, updates": lambda p: p.top_k(2, "k", ["s"], window="u", emit="updates"),
    "a top of counts": lambda p: (
        p.with_columns(w=od.col("t") // 4)
        .key_by("w", "k")
        .count()
        .top_k(2, by="count", window="w", emit="updates")
    ),
    "a top behind a flush": lambda p: (
        p.key_by("k", "t").count(emit="final").top_k(2, by="count", window="t")
    ),
    "a top behind sessions": lambda p: (
        p.key_by("k").sessionize("t", 3).top_k(2, by="count", key="k", window="end")
    ),
    "what precedes": lambda p: p.key_by("k").preceding(2, {"past": "t"}, carry=["s"], time="t", within=3),
    "lines": lambda p: p.key_by("s").regression("t", "k"),
    "lines, unsigned": lambda p: p.key_by("s").regression("v", "k", emit="every_tuple"),
    "an order by key": lambda p: p.key_by("k").assert_ordered("t"),
    "an order of two columns": lambda p: p.assert_ordered("t", "f"),
}
CONFIGURATIONS = (
    {"workers": 0, "chunk_rows": 1},
    {"workers": 1, "sample_every": 1, "chunk_rows": 50},
    {"workers": 2, "chunk_rows": 7, "buckets": 3, "scheduler": "lp", "reorder": "lock"},
    {"workers": 4, "chunk_rows": 1, "buckets": 16, "scheduler": "et", "partitioning": "partitioned"},
    {"workers": 2, "chunk_rows": None, "scheduler": "qst", "partitioning": "shared"},
)


def rows(seed, n=160, backwards=2):
    """Times that ascend from below 0, but for a few rows."""
    rng = random.Random(seed)
    times = sorted(rng.randrange(-60, 60) for _ in range(n))
    for _ in range(rng.randrange(backwards + 1)):
        times[rng.randrange(n)] -= rng.randrange(1, 40)
    return pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "u": pa.array([2**63 + time for time in times], pa.uint64()),
            "v": pa.array([200 + time for time in times], pa.uint64()),
            "k": pa.array(
                [rng.choice([None, 1, 2, 3]) if seed % 2 else rng.randrange(4) for _ in times], pa.int64()
            ),
            "s": [rng.choice("abc") for _ in times],
            "f": [rng.choice([None, -0.0, 0.0, 1.5, math.nan, -math.inf]) for _ in times],
        }
    )


@pytest.mark.parametrize("name", RELYING)
def test_the_same_error_however_it_is_run(name):
    refused = whole = 0
    for seed in range(8):
        data = rows(seed)
        source = od.Pipeline(data.schema)
        if name.startswith(("a top", "lines")):
            source = source.filter(od.col("k").is_not_null())
        built = RELYING[name](source)
        expected = run_serial(built, data)
        for options in CONFIGURATIONS:
            agree(built, expected, run_core(built, data, **options))
        refused += "runs backwards" in str(expected.error)
        whole += expected.error is None
    assert refused
    assert whole or name in ("a top behind a flush", "a top behind sessions", "an order of two columns")


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_dropped_row_leaves_no_trace(configuration):
    """With on_error="skip" the next row is compared with the last one that was taken in."""
    data = pa.table({"t": [5, 9, 7, 8, 9, 3, 10], "k": [1] * 7, "y": [1] * 7})
    kept = pa.table({"t": [5, 9, 9, 10], "k": [1] * 4, "y": [1] * 4})
    source = od.Pipeline(data.schema)
    for make in (
        lambda p, **how: p.key_by("k").sessionize("t", 1, aggregate={"n": od.count()}, **how),
        lambda p, **how: p.key_by("k").sessionize("t", 1, ["t"], **how),
        lambda p, **how: p.key_by("k").count(window=2, time="t", **how),
        lambda p, **how: p.count(window=2, time="t", **how),
        lambda p, **how: p.top_k(1, "y", ["k"], window="t", **how),
        lambda p, **how: p.key_by("k").preceding(2, {"past": "y"}, carry=["t"], time="t", within=3, **how),
        lambda p, **how: p.key_by("k").regression("t", "y", **how),
        lambda p, **how: p.assert_ordered("t", **how),
        lambda p, **how: p.key_by("k").assert_ordered("t", **how),
    ):
        built = make(source, on_error="skip")
        expected = run_serial(built, data)
        assert [serial for _, serial in expected.skipped] == [3, 4, 6]
        assert expected.rows == run_serial(make(source), kept).rows
        agree(built, expected, run_core(built, data, **configuration))


def test_a_key_is_forgotten_when_a_punctuation_closed_its_session():
    """Its next tuple begins anew, whatever its time: that of a key of which nothing is known."""
    data = pa.table({"t": [0, 1, 50, 60, 99], "of": [10, 11, 50, 9, 8], "k": [1, 2, 3, 1, 1]})
    for collect in ({}, {"list": "k"}):
        built = od.Pipeline(data.schema).key_by("k").sessionize("of", 5, collect)
        expected = run_serial(built, data, punctuate=od.every("t", 20))
        assert [row[1:3] for row in expected.rows] == [(10, 10), (11, 11), (50, 50), (9, 9), (8, 8)]
        agree(built, expected, run_core(built, data, punctuate=od.every("t", 20), workers=2, chunk_rows=1))
        without = run_serial(built, data)
        assert without.error.serial == 4
        assert "'of' runs backwards: 9 after 10 in the row before it of the same key" in str(without.error)
        agree(built, without, run_core(built, data, workers=2, chunk_rows=1))


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_punctuations_need_an_ascending_column(configuration):
    every = od.every("t", 10)
    for seed in range(6):
        data = rows(seed)
        built = (
            od.Pipeline(data.schema)
            .key_by("k")
            .process(lambda r, s, e: None, schema={"n": int}, init=list, on_time=told)
        )
        expected = run_serial(built, data, punctuate=every)
        agree(built, expected, run_core(built, data, punctuate=every, **configuration))
    data = pa.table({"t": [3, None, 12, 11]})
    error = run_serial(od.Pipeline(data.schema), data, punctuate=every).error
    assert isinstance(error, SourceError)
    assert str(error).startswith(
        "tuple 4 of the source: column 't' runs backwards: 11 after 12; punctuate=od.every(...) needs it"
    )


def told(key, state, time, emit):
    emit(time)


def test_what_is_said_shows_times_as_times():
    at = [dt.datetime(2024, 5, 1, 12), dt.datetime(2024, 5, 1, 11, 59)]
    data = pa.table({"at": pa.array(at, pa.timestamp("ms")), "k": [1, 1]})
    for built in (
        od.Pipeline(data.schema).key_by("k").sessionize("at", 10, name="visits"),
        od.Pipeline(data.schema).assert_ordered("at", name="visits"),
    ):
        with pytest.raises(od.OperatorError) as raised:
            built.run(data, workers=2)
        text = str(raised.value)
        assert text.startswith(
            "operator 'visits' failed at serial 2: ValueError: column 'at' runs backwards: "
        )
        assert "2024-05-01 11:59:00 after 2024-05-01 12:00:00" in text
        assert "sort the source" in text
        assert "order_by" in text
        assert isinstance(raised.value.__cause__, ValueError)


# ----------------------------------------------------------------------------------- assert_ordered


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("key", [(), ("b",), ("s", "x")], ids=str)
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, columns=st.lists(st.sampled_from("ijuxf"), min_size=1, max_size=3, unique=True))
def test_assert_ordered_equals_the_reference(key, on_error, rows, columns):
    """Integers, floats, nulls, NaN and -0.0: sorted rows pass, others fail where the reference fails."""
    keyed = pipeline().key_by(*key) if key else pipeline()
    check(keyed.assert_ordered(*columns, on_error=on_error), rows)
    indexes = [SCHEMA.get_field_index(column) for column in columns]

    def place(row):
        values = (row[index] for index in indexes)
        return tuple((0, 0) if v is None else (2, 0) if v != v else (1, v) for v in values)

    ordered = sorted(rows, key=place)
    check(keyed.assert_ordered(*columns, on_error=on_error), ordered)
    assert run_serial(pipeline().assert_ordered(*columns), pa.table([()] * 9, schema=SCHEMA)).error is None


def test_it_checks_the_source_all_rows_or_each_key():
    data = pa.table({"k": [1, 2, 1, 2], "t": [5, 1, 6, 2], "unread": ["a", "b", "c", "d"]})
    source = od.Pipeline(data.schema)
    by_key = source.key_by("k").assert_ordered("t")
    assert by_key.run(data, workers=2).table.equals(data)
    with pytest.raises(
        od.OperatorError, match=r"(?s)at serial 2: .*'t' runs backwards: 1 after 5;.*'unread': 'b'"
    ):
        source.assert_ordered("t").run(data, workers=2)
    with pytest.raises(od.OperatorError, match="at serial 2"):
        source.assert_ordered("t").key_by("k").count().run(data, processes=2)
    assert "assert_ordered by k: t" in by_key.explain()
    assert "cut: all rows to one node" in source.assert_ordered("t").explain(nodes=2)
    assert source.assert_ordered("k", "t", on_error="skip").run(data).table.num_rows == 3


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda p: p.assert_ordered(),
            PlanError,
            r"assert_ordered_1: 1 to 64 columns are needed, such as assert_ordered\('ts'\), got 0",
        ),
        (lambda p: p.assert_ordered("nothing"), SchemaError, "unknown column 'nothing'"),
        (
            lambda p: p.key_by("i").assert_ordered("s"),
            SchemaError,
            "'s' must be a number, date or time, it is string",
        ),
        (
            lambda p: p.run([], order_by="i"),
            PlanError,
            r"option of ordstream\.spark\.apply.*the source's own order.*\.assert_ordered",
        ),
        (lambda p: p.stream([], order_by=["i"]), PlanError, r"\.assert_ordered"),
    ],
)
def test_mistakes(build, error, message):
    with pytest.raises(error, match=message):
        build(pipeline())
