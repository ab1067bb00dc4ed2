"""sessionize with aggregates, and select with where, on their kernels."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import QUICK, ROWS, ascending, check, pipeline
from unit.operators.test_aggregate import CONDITIONS, aggregates

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=20, deadline=None)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("collect", [[], ["j"]], ids=str)
@FEW
@given(rows=ROWS)
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


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("where", CONDITIONS)
@FEW
@given(rows=ROWS)
def test_select_where(where, on_error, rows):
    columns = {"a": od.col("i") * 2, "b2": 7 % od.col("j"), "c": od.col("x") + 1}
    check(pipeline().select("s", "l", where=CONDITIONS[where], on_error=on_error, **columns), rows)
    check(pipeline().select(where=CONDITIONS[where], on_error=on_error, **columns), rows)


def test_select_where_sees_the_input_and_spares_the_other_rows():
    data = pa.table({"x": [0, 5, None]})
    built = od.Pipeline(data.schema).select(x=10 // od.col("x"), where=od.col("x") != 0)
    assert run_serial(built, data).rows == [(2,)]
    assert "where (x != 0)" in built.explain()
    with pytest.raises(od.SchemaError, match="a boolean expression is needed"):
        od.Pipeline(data.schema).select("x", where=od.col("x"))
