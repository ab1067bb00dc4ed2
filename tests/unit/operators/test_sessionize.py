"""sessionize, with lists and with aggregates, on its kernel."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.kernel_check import (
    QUICK,
    ROWS,
    ascending,
    check,
    pipeline,
    run,
    serial_input,
    storage_rows,
    testing,
)
from unit.operators.test_aggregate import CONDITIONS, aggregates

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=20, deadline=None)


EVENTS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 3),
        st.none() | st.integers(0, 60) | st.sampled_from([2**63 - 1, -(2**63)]),
        st.none() | st.integers(-9, 9),
        st.floats(-1, 1),
    ),
    max_size=80,
)
EVENT_SCHEMA = pa.schema(
    [("user", pa.int32()), ("ts", pa.int64()), ("item", pa.int32()), ("price", pa.float64())]
)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@settings(max_examples=150, deadline=None)
@given(rows=EVENTS, timeout=st.integers(0, 20))
def test_sessionize_equals_the_reference(on_error, rows, timeout):
    stage = (
        od.Pipeline(EVENT_SCHEMA)
        .key_by("user")
        .sessionize("ts", timeout, {"items": "item", "prices": "price"}, on_error=on_error)
    )
    check(stage, ascending(rows, "ts", EVENT_SCHEMA), EVENT_SCHEMA)


@settings(max_examples=100, deadline=None)
@given(rows=EVENTS, timeout=st.integers(0, 20), period=st.integers(5, 40))
def test_sessionize_closes_at_time_punctuations(rows, timeout, period):
    rows = sorted(
        (row for row in rows if None not in row[1:] and abs(row[1]) < 1000), key=lambda row: row[1]
    )
    line = od.Pipeline(EVENT_SCHEMA).key_by("user").sessionize("ts", timeout, {"items": "item"})
    expected = run_serial(line, serial_input(EVENT_SCHEMA, rows), punctuate=od.every("ts", period))
    times, latest = {}, None
    for position, row in enumerate(rows):
        if latest is None or row[1] // period > latest:
            if latest is not None:
                times[position] = row[1] // period * period
            latest = row[1] // period
    for buckets in (1, 4):
        assert run(line.plan.operators[0], rows, buckets=buckets, times=times)[0] == storage_rows(expected)


def test_sessions_with_long_lists_recycle_their_memory():
    schema = pa.schema([("user", pa.int64()), ("ts", pa.int64())])
    line = od.Pipeline(schema).key_by("user").sessionize("ts", 10, {"t": "ts"})
    (stage,) = line.plan.operators
    kernel = testing.KernelRun(stage.kernel(), stage.key, 2)
    sizes = []
    for session in range(30):
        times = [session * 10_000 + i for i in range(500)]
        for user in range(3):
            kernel.push([[user] * 500, times])
        sizes.append(kernel.state_bytes)
    assert [row[3] for row in kernel.rows] == [500] * 87
    assert all(row[4] == list(range(row[1], row[1] + 500)) for row in kernel.rows)
    assert sizes[-1] == sizes[3]
    kernel.close()


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("collect", [[], ["j"]], ids=str)
@FEW
@given(rows=ROWS)
@pytest.mark.thin(8)
def test_sessions_with_aggregates(collect, where, on_error, rows):
    chosen = aggregates(CONDITIONS[where])
    keyed = pipeline().key_by("b")
    check(keyed.sessionize("i", 2, collect, aggregate=chosen, on_error=on_error), ascending(rows, "i"))


@pytest.mark.parametrize("key", [("i",), ("u",), ("s",), ("x", "j")], ids=str)
@QUICK
@given(rows=ROWS)
def test_sessions_by_other_keys(key, rows):
    chosen = {"last_true": od.max("j", where=od.col("b")), "sum": od.sum("i"), "n": od.count("f")}
    check(
        pipeline().key_by(*key).sessionize("j", 1, aggregate=chosen, on_error="skip"), ascending(rows, "j")
    )


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("key", ["u", "i"])
@FEW
@given(rows=ROWS)
@pytest.mark.thin(8)
def test_sessions_whose_values_are_taken_where_they_lie(key, where, on_error, rows):
    """Without nulls in the time and without checked sums a loop of its own handles them; eight
    aggregates share a byte.
    """
    condition = CONDITIONS[where]
    chosen = {
        "hi": od.max("i", where=condition),
        "lo": od.min("x"),
        "hu": od.max("u", where=condition),
        "n": od.count(),
        "ns": od.count("s", where=condition),
        "first": od.first("x", where=od.col("b")),
        "last": od.last("i", where=condition),
        "sx": od.sum("x", where=condition),
        "lu": od.min("u"),
    }
    known = ascending([(3 if row[0] is None else row[0], *row[1:]) for row in rows], "i")
    for most in (8, 9):
        some = dict(list(chosen.items())[:most])
        check(pipeline().key_by(key).sessionize("i", 1, aggregate=some, on_error=on_error), known)


@pytest.mark.parametrize("workers", [1, 2])
def test_columns_that_nothing_reads_are_not_made(workers):
    rows = 6000
    users = [None if i % 11 == 0 else i * 7919 % 97 for i in range(rows)]
    clicks = pa.table({"u": users, "t": list(range(rows)), "p": [i % 7 for i in range(rows)]})
    marks = {"a": od.last("t", where=od.col("p") < 2), "b": od.last("t", where=od.col("p") == 3)}
    sessions = od.Pipeline(clicks.schema).key_by("u").sessionize("t", 150, aggregate=marks)
    some = sessions.filter(od.col("a").is_not_null() & od.col("b").is_null())
    for job in (
        some.aggregate(n=od.sum("count"), k=od.count()),
        some.select("count"),
        some.select("u"),
        some.select("end", "a"),
        sessions,
    ):
        expected = run_serial(job, clicks)
        found = job.run(clicks, workers=workers, chunk_rows=257, tags=True)
        assert found.table.drop_columns(["_serial", "_index"]).equals(expected.table)
    # an error shows the columns that are there, and does not make the others up
    fails = some.with_columns(x=10 // (od.col("count") - 2)).select("x")
    expected = run_serial(fails, clicks)
    with pytest.raises(od.OperatorError) as raised:
        fails.run(clicks, workers=workers, chunk_rows=257)
    assert raised.value.serial == expected.error.serial
    assert raised.value.row == {"count": 2}


def test_the_last_of_a_kind_in_each_session():
    """The micro fixture of query 4: dynamic = 1, order = 2."""
    clicks = [
        *[(1, 10, 1), (1, 10, 2)],
        *[(2, 10, 2), (2, 11, 1), (2, 12, 0)],
        *[(3, 10, 1), (3, 11, 2), (3, 12, 1)],
        (4, 10, 0),
    ]
    data = pa.table([list(column) for column in zip(*clicks, strict=True)], names=["user", "ts", "kind"])
    latest = {
        "dynamic": od.max("ts", where=od.col("kind") == 1),
        "order": od.max("ts", where=od.col("kind") == 2),
    }
    built = od.Pipeline(data.schema).key_by("user").sessionize("ts", 3600, aggregate=latest)
    rows = [
        (1, 10, 10, 2, 10, 10),
        (2, 10, 12, 3, 11, 10),
        (3, 10, 12, 3, 12, 11),
        (4, 10, 10, 1, None, None),
    ]
    assert run_serial(built, data).rows == rows
    assert [tuple(row.values()) for row in built.run(data, workers=1).table.to_pylist()] == rows
    later = od.col("order").is_null() | (od.col("dynamic") > od.col("order"))
    abandoned = built.select("count", where=od.col("dynamic").is_not_null() & later)
    assert run_serial(abandoned, data).rows == [(3,), (3,)]
