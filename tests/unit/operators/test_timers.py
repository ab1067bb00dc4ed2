"""Timers of process: when they fire, in which order, and that their state moves."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from property.compare import agree, exact_rows, run_core
from state_runs import Segment, same_states
from unit.operators.test_window import SCHEMA, both, per_key, rows

import ordstream as od
from ordstream.operators.process import ProcessReference
from ordstream.testing import run_serial

OUT = {"k": pa.string(), "at": pa.int64(), "n": pa.int64()}


def idle(row, state, emit):
    """Each tuple puts the timer off by x."""
    state.n += 1
    state.due = row.ts + row.x if row.x else 0


def ended(key, state, at, emit):
    emit(key, at, state.n)
    state.n = 0


def timed(fn=idle, on_timer=ended, every=1, source=None, **options):
    given = {"schema": OUT, "state": {"due": pa.int64(), "n": pa.int64()}, "timer": "due"}
    keyed = (source or od.Pipeline(SCHEMA)).key_by("k")
    return keyed.process(fn, on_timer=on_timer, clock=od.every("ts", every), **(given | options))


def test_a_timer_fires_at_the_first_mark_at_its_time_or_behind():
    data = rows((0, "b", 5), (1, "a", 4), (3, "c", 9), (4, "b", 3), (7, "z", 0), (20, "z", 0), (21, "c", 5))
    found, serials = both(timed(), data)
    assert found == [("a", 5, 1), ("b", 7, 2), ("c", 12, 1)]
    assert serials == [5, 5, 6]  # by (time, key), in front of the tuple that shows the mark
    found, serials = both(timed(every=10), data)
    assert found == [("a", 5, 1), ("b", 7, 2), ("c", 12, 1)]
    assert serials == [6, 6, 6]


def test_ties_are_by_key_and_what_a_tuple_took_back_does_not_fire():
    data = rows((0, "b", 5), (0, "a", 5), (1, "c", 4), (2, "d", 3), (3, "d", 0), (9, "z", 0))
    found, _ = both(timed(), data)
    assert found == [("a", 5, 1), ("b", 5, 1), ("c", 5, 1)]


def test_a_timer_that_is_set_again_fires_again():
    def again(key, state, at, emit):
        emit(key, at, state.n)
        state.due = at + 10

    data = rows((0, "a", 5), *((t, "z", 0) for t in range(1, 40, 2)))
    found, _ = both(timed(on_timer=again), data)
    assert found == [("a", 5, 1), ("a", 15, 1), ("a", 25, 1), ("a", 35, 1)]


@pytest.mark.parametrize("every", [1, 10])
def test_a_timer_that_is_set_again_fires_for_each_time_of_a_silence(every):
    def again(key, state, at, emit):
        emit(key, at, state.n)
        state.n += 1
        state.due = at + 10

    data = rows((0, "b", 5), (0, "a", 8), (2, "c", 50), (41, "z", 0))
    found, serials = both(timed(on_timer=again, every=every), data)
    times = [("b", 5), ("a", 8), ("b", 15), ("a", 18), ("b", 25), ("a", 28), ("b", 35), ("a", 38)]
    assert [one[:2] for one in found] == times  # by (time, key), whatever mark showed them
    assert serials == [4] * len(times)


def test_a_timer_that_is_set_again_is_behind_the_one_that_fires():
    def stays(key, state, at, emit):
        emit(key, at, state.n)
        state.due = at if key == "a" else at + 1

    data = rows((0, "a", 5), (0, "b", 4), (7, "z", 0), (9, "z", 0))
    found, _ = both(timed(on_timer=stays, on_error="skip"), data)
    assert found == [("b", 4, 1), ("b", 5, 1), ("b", 6, 1), ("b", 7, 1), ("b", 8, 1), ("b", 9, 1)]
    with pytest.raises(od.OperatorError, match="the timer at 5 is not behind the one that fires, 5"):
        timed(on_timer=stays).run(data)


def test_timestamps():
    schema = pa.schema({"ts": pa.timestamp("ms"), "k": pa.string()})
    data = pa.table([pa.array([1000, 2000, 9000]), ["a", "b", "b"]], names=["ts", "k"]).cast(schema)

    def later(row, state, emit):
        state.due = row.ts.replace(second=row.ts.second + 3)

    field = {"due": pa.timestamp("ms")}
    pipeline = od.Pipeline(schema).key_by("k").process(
        later, schema={"k": pa.string(), "at": pa.timestamp("ms")}, state=field, timer="due",
        on_timer=lambda key, state, at, emit: emit(key, at), clock=od.every("ts", "1s"),
    )  # fmt: skip
    found, _ = both(pipeline, data)
    assert [(k, at.second) for k, at in found] == [("a", 4), ("b", 5)]


@pytest.mark.parametrize(
    ("field", "clock"),
    [
        (pa.timestamp("ns"), pa.timestamp("us")),  # never fired
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.date64(), pa.date32()),
        (pa.date32(), pa.timestamp("s")),
        (pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.int64()),
    ],
)
def test_a_timer_that_does_not_count_as_the_clock_is_refused(field, clock):
    def idle_by(state):
        return (
            od.Pipeline({"k": pa.string(), "at": clock})
            .key_by("k")
            .process(
                idle, schema=OUT, state={"due": state}, timer="due", on_timer=ended, clock=od.every("at", 1)
            )
        )

    with pytest.raises(od.PlanError, match=r"the timer 'due'.* does not count as the clock 'at'"):
        idle_by(field)
    assert idle_by(clock).schema == idle_by(pa.int64()).schema


def generated(n=400, seed=3):
    rng = random.Random(seed)
    now, made = 0, []
    for _ in range(n):
        now += rng.choice([0, 0, 1, 3, 20])
        made.append((now, rng.choice("abcdefgh"), rng.choice([0, 1, 2, 7, 30, 100])))
    return rows(*made)


def fragile(key, state, at, emit):
    emit(key, at, -1)
    if at % 3 == 0:
        raise ValueError("no")
    state.n += 100
    if at % 5 == 0:
        state.due = at + 60


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("key", range(3))
def test_what_fails_fails_in_order(on_error, key):
    data = generated(seed=key)
    pipeline = timed(on_timer=fragile, every=4, on_error=on_error)
    expected = run_serial(pipeline, data)
    assert (expected.error is None) == (on_error == "skip")
    assert bool(expected.skipped) == (on_error == "skip")
    for way in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 7, "buckets": 3}):
        agree(pipeline, expected, run_core(pipeline, data, **way))


def test_timers_do_not_depend_on_windows_beside_them():
    data = generated()
    alone = both(timed(every=10), data)
    source = od.Pipeline(SCHEMA).key_by("k").window(od.rolling(3), time="ts").aggregate(r=od.count())
    assert both(timed(every=10, source=source), data) == alone


def test_a_timer_that_is_not_behind_the_row():
    def past(row, state, emit):
        state.due = row.x

    data = rows((5, "a", 9), (9, "a", 9), (10, "b", 10), (11, "a", 20), (30, "z", 99))
    pipeline = timed(past, on_error="skip")
    found, serials = both(pipeline, data)
    assert found == [("a", 9, 0), ("a", 20, 0)]
    assert serials == [2, 5]
    with pytest.raises(od.OperatorError, match="the timer at 9 is not behind the row's time, 9"):
        timed(past).run(data)


@pytest.mark.parametrize("cut", [1, 57, 200, 399])
def test_a_run_goes_on_with_its_timers(cut):
    data = generated()
    pipeline = timed(every=4)
    expected = exact_rows(run_serial(pipeline, data).table.to_batches(), pipeline.schema)
    first = pipeline.run(data.slice(0, cut), workers=0, buckets=3, end="suspend")
    rest = pipeline.run(data.slice(cut), workers=2, buckets=2, restore=first.snapshot)
    parts = [exact_rows(one.table.to_batches(), pipeline.schema) for one in (first, rest)]
    assert parts[0] + parts[1] == expected
    assert expected


def test_keys_that_leave_take_their_timers_along():
    pipeline = timed()
    with Segment(pipeline, workers=0, buckets=2) as segment:
        segment.push(rows(*((0, f"k{i}", 10 + i) for i in range(50))))
        (name,) = segment.stages
        state = segment.state_of(name)
        gone = state.filter(pa.array([i % 5 > 0 for i in range(50)]))
        assert segment.remove(name, gone) == 40
        left = segment.state_of(name)
        segment.push(rows((99, "z", 0)))
        fired = [row["k"] for batch in segment.batches for row in batch.to_pylist()]
        assert sorted(fired) == sorted(left["k"].to_pylist())
        assert len(fired) == 10
    with Segment(pipeline, workers=0, buckets=3) as segment:
        segment.install({name: left})
        assert same_states(segment.state(), {name: left})


def test_what_is_refused():
    for message, options in (
        ("timers need timer=", {"on_timer": None}),
        ("timers need timer=", {"timer": None}),
        ("a timer needs declared state", {"state": None}),
        ("neither compiled=True nor on_time", {"on_time": lambda key, state, time, emit: None}),
        ("a column of integers has no unit|must be an integer", {"timer": "s", "state": {"s": pa.string()}}),
    ):
        with pytest.raises((od.PlanError, od.SchemaError), match=message):
            timed(**options)
    source = od.Pipeline(SCHEMA).map(tuple, schema=SCHEMA)
    with pytest.raises(od.PlanError, match="clock='ts' is not the clock"):
        timed(source=source)
    other = per_key(od.tumbling(10), source=od.Pipeline(pa.schema([*SCHEMA, pa.field("u", pa.int64())])),
                    by=None, time="u")  # fmt: skip
    assert other.plan.operators[-1].clock is not None


def test_of_timers_at_one_time_the_smaller_keys_come_before_one_that_fails():
    def fails(key, state, at, emit):
        if key == "b":
            raise ValueError("no")
        emit(key, at, state.n)

    data = rows((0, "c", 5), (0, "b", 5), (0, "a", 5), (9, "z", 0))
    expected = run_serial(timed(on_timer=fails), data)
    assert expected.rows == [("a", 5, 1)]
    for way in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "buckets": 3}, {"workers": 0, "buckets": 1}):
        agree(timed(on_timer=fails), expected, run_core(timed(on_timer=fails), data, **way))


def test_a_timer_that_fails_and_is_skipped_leaves_the_state_as_it_was():
    def spoils(key, state, at, emit):
        state.n += 100
        emit(key, at, state.n)
        if at == 5:
            raise ValueError("no")

    data = rows((0, "a", 5), (9, "z", 0), (10, "a", 5), (20, "z", 0))
    found, _ = both(timed(on_timer=spoils, on_error="skip"), data)
    assert found == [("a", 15, 102)]


def test_a_mark_of_run_serial_asks_only_the_keys_whose_timer_is_set(monkeypatch):
    asked, due = [], ProcessReference.due
    monkeypatch.setattr(ProcessReference, "due", lambda self, state: asked.append(0) or due(self, state))
    data = rows(*((t, f"k{t:03}", 0 if t % 5 else 7) for t in range(300)))
    pipeline = timed()
    found = run_serial(pipeline, data)
    assert len(asked) < 10 * len(data)  # not keys times marks
    assert found.table.equals(pipeline.run(data).table)
    assert len(found.table) == 59
