"""Sessions in slots (`_core/state/session_slots`), and those that a filter behind them drops:
`Sessionize.passing`.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tools import in_the_core

import ordstream as od
from ordstream.reference.run_serial import run_serial

LAST = {"a": od.last("t", where=od.col("p") == 0), "b": od.last("t", where=od.col("p") == 1)}
MOST = 2**63 - 1


def ascending(rows):
    """By time, as sessions need it; one list in four as it is."""
    return rows if len(rows) % 4 == 0 else sorted(rows, key=lambda row: row[1])


def clicks(rows, key=None) -> pa.Table:
    users, times, pages = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "u": pa.array(users, key or pa.int64()),
            "t": pa.array(times, pa.int64()),
            "p": pa.array(pages, pa.int64()),
        }
    )


def agree(pipeline, data, **how) -> None:
    """Values, order, tags and errors are those of the sequential run."""
    expected = run_serial(pipeline, data)
    if expected.error is None:
        found = pipeline.run(data, tags=True, **how).table
        assert found.drop_columns(["_serial", "_index"]).to_pylist() == expected.table.to_pylist()
        assert (
            list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True))
            == expected.tags
        )
        return
    with pytest.raises(od.OperatorError) as raised:
        pipeline.run(data, **how)
    assert (raised.value.operator, raised.value.serial) == (expected.error.operator, expected.error.serial)
    if "runs backwards" in str(expected.error):
        assert str(raised.value.__cause__) == str(expected.error.__cause__)


def jobs(schema, aggregate=LAST, on_error="fail"):
    """Chains that read different columns of sessions, with and without a filter that can be applied
    before they are made.
    """
    sessions = od.Pipeline(schema).key_by("u").sessionize("t", 5, aggregate=aggregate, on_error=on_error)
    a, b = od.col("a"), od.col("b")
    some = sessions.filter(a.is_not_null() & b.is_null())
    return [
        sessions,
        some,
        some.select("count"),
        some.select("u", "start"),
        some.aggregate(n=od.sum("count"), k=od.count(), emit="final"),
        sessions.filter(~(a.is_null() | b.is_not_null())).select("end", "a"),
        sessions.filter(a.is_null() & od.col("u").is_not_null()),
        sessions.filter(a > b).select("a", "b"),
    ]


ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-2, 3),
        st.integers(0, 30) | st.sampled_from([-MOST - 1, MOST]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@pytest.mark.parametrize("workers", [0, 2])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, chunk_rows=st.sampled_from([1, 3, 200]))
def test_as_one_tuple_at_a_time(workers, rows, chunk_rows):
    data = clicks(ascending(rows))
    for job in jobs(data.schema):
        agree(job, data, workers=workers, chunk_rows=chunk_rows)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.sampled_from([0, 1, 2**64 - 1, 2**63]),
            st.integers(0, 30),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_unsigned_keys(rows):
    data = clicks(ascending(rows), pa.uint64())
    for job in jobs(data.schema):
        agree(job, data, workers=2, chunk_rows=7)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_rows_that_fail(workers, on_error):
    """A null time, and a condition that fails at some rows: the session is as before them."""
    users = [i * 7919 % 23 for i in range(1500)]
    times = [None if i % 401 == 400 else i // 3 for i in range(1500)]
    pages = [i * 31 % 5 - 1 if i > 300 else 1 for i in range(1500)]  # 0 is first met at row 303
    data = clicks(list(zip(users, times, pages, strict=True)))
    marks = {
        "a": od.last("t", where=10 // od.col("p") > 5),
        "b": od.sum("f", where=od.col("p") == -1),
        "n": od.count(),
    }
    data = data.append_column("f", pa.array([i / 8 for i in range(1500)]))
    for job in jobs(data.schema, marks, on_error):
        for rows in (len(data), 250):
            agree(job, data.slice(0, rows), workers=workers, chunk_rows=200)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.thin(1)
def test_many_keys_make_the_table_grow(workers):
    rows = [(None if i % 997 == 0 else (i * 2654435761) % 5003 - 2000, i // 7, i % 6) for i in range(20_000)]
    data = clicks(rows)
    for job in jobs(data.schema)[:5]:
        agree(job, data, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_time_punctuations_close_sessions(workers):
    rows = [(None if i % 13 == 0 else i * i % 17, i // 4, i % 5) for i in range(900)]
    data = clicks(rows)
    every = od.every("t", 9)
    for job in jobs(data.schema):
        expected = run_serial(job, data, punctuate=every)
        assert expected.error is None
        found = job.run(data, workers=workers, chunk_rows=50, punctuate=every)
        assert found.table.to_pylist() == expected.table.to_pylist()


def passing(condition, aggregates=LAST):
    pipeline = (
        od.Pipeline(clicks([]).schema).key_by("u").sessionize("t", 5, aggregate=aggregates).filter(condition)
    )
    return in_the_core(pipeline).plan.operators[-2].passing


def test_which_sessions_pass():
    a, b = od.col("a"), od.col("b")
    assert passing(a.is_not_null() & b.is_null()) == bytes([0, 1, 0, 0])
    assert passing(a.is_null() | b.is_not_null()) == bytes([1, 0, 1, 1])
    assert passing(~b.is_null()) == bytes([0, 0, 1, 1])
    # counts and sums are never null, whether or not a row came
    never = {"a": od.count("t", where=od.col("p") == 0), "b": od.sum("t", where=od.col("p") == 0)}
    assert passing(a.is_null() | b.is_null(), never) == bytes(4)


def test_which_sessions_pass_is_not_known_before_they_are_made():
    a = od.col("a")
    assert passing(a > 3) is None
    assert passing(a.is_not_null() & (od.col("count") > 1)) is None
    assert passing(od.col("u").is_null()) is None
    assert passing(a.is_null(), {"a": od.last("t"), **{f"x{j}": od.last("t") for j in range(8)}}) is None
    sessions = od.Pipeline(clicks([]).schema).key_by("u").sessionize("t", 5, aggregate=LAST)
    assert in_the_core(sessions.select("a")).plan.operators[0].passing is None
    assert in_the_core(sessions).plan.operators[0].passing is None
    assert (
        in_the_core(sessions.filter(a.is_null()), without=("dropped_rows",)).plan.operators[0].passing
        is None
    )


def test_sessions_that_a_filter_drops_are_not_made():
    rows = [(i % 50, i, 1) for i in range(2000)]
    data = clicks(rows)
    some = od.Pipeline(data.schema).key_by("u").sessionize("t", 5, aggregate=LAST, name="sessions")
    made = []
    for wanted in (od.col("a").is_null(), od.col("a").is_not_null()):
        (sessions,) = (
            o for o in some.filter(wanted).run(data, workers=1).report.operators if o.name == "sessions"
        )
        made.append(sessions.tuples_out)
    assert made == [2000, 0]
