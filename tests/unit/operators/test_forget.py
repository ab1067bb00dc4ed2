"""What a function of `process` forgets: od.FORGET drops the state of its key."""

from __future__ import annotations

import copy
import json
import pickle
import random
import tracemalloc

import process_functions
import pyarrow as pa
import pytest
from property.compare import agree, exact_rows, run_core
from state_runs import Segment
from unit.operators.test_window import SCHEMA, both, rows

import ordstream as od
from ordstream.testing import run_serial

OUT = {"k": pa.string(), "n": pa.int64()}


def third(row, state, emit):
    """Each third tuple of a key is its last."""
    state.n += 1
    emit(row.k, state.n)
    return od.FORGET if state.n == 3 else None


def counted(fn=third, keyed=True, **options):
    source = od.Pipeline(SCHEMA).key_by("k") if keyed else od.Pipeline(SCHEMA)
    return source.process(fn, **({"schema": OUT, "state": {"n": pa.int64()}} | options))


def generated(n=600, keys=40, seed=5):
    rng = random.Random(seed)
    return rows(*((t, f"k{rng.randrange(keys)}", rng.randrange(9)) for t in range(n)))


def test_the_next_tuple_of_the_key_has_a_new_state():
    found, _ = both(counted(), rows(*((t, k, 0) for t, k in enumerate("aababaaab"))))
    assert found == [(k, n) for k, n in zip("aababaaab", (1, 2, 1, 3, 2, 1, 2, 3, 3), strict=True)]


def test_without_keys_there_is_one_state():
    found, _ = both(counted(keyed=False), rows(*((t, "abc"[t % 3], 0) for t in range(200))))
    assert [n for _, n in found] == [t % 3 + 1 for t in range(200)]


def listed(row, state, emit):
    state.append(row.x)
    emit(row.k, sum(state))
    return od.FORGET if len(state) == 3 else None


@pytest.mark.parametrize(
    "options",
    [{"state": None, "init": list}, {"state": od.codec(lambda s: json.dumps(s).encode(), json.loads, list)}],
    ids=["init", "codec"],
)
def test_a_state_of_any_kind(options):
    data = generated()
    found, _ = both(counted(listed, **options), data)
    seen, expected = {}, []
    for row in data.to_pylist():
        seen.setdefault(row["k"], []).append(row["x"])
        expected.append((row["k"], sum(seen[row["k"]])))
        if len(seen[row["k"]]) == 3:
            del seen[row["k"]]
    assert found == expected


def test_what_is_forgotten_is_not_there_at_the_end():
    pipeline = counted(on_flush=lambda key, state, emit: emit(key, -state.n))
    found, _ = both(pipeline, rows(*((t, k, 0) for t, k in enumerate("cbabcbc"))))
    assert found[-1:] == [("a", -1)]
    assert len(found) == 8


def test_a_time_punctuation_forgets():
    def first(row, state, emit):
        state.n += 1

    def on_time(key, state, time, emit):
        emit(key, state.n)
        return None if key == "b" else od.FORGET

    pipeline = counted(first, on_time=on_time)
    data = rows((0, "b", 0), (0, "a", 0), (10, "a", 0), (20, "c", 0), (30, "b", 0))
    expected = run_serial(pipeline, data, punctuate=od.every("ts", 10))
    assert expected.rows == [("a", 1), ("b", 1), ("a", 1), ("b", 1), ("b", 1), ("c", 1)]
    for workers in (0, 2):
        agree(pipeline, expected, run_core(pipeline, data, workers=workers, punctuate=od.every("ts", 10)))


def idle(row, state, emit):
    state.n += 1
    state.due = row.ts + row.x + 1
    if row.x == 7:
        emit(row.k, 100 + state.n)
        return od.FORGET


def ended(key, state, at, emit):
    emit(key, state.n)
    if key in ("k1", "k2", "k3"):
        state.due = at + 9
    return od.FORGET if state.n % 2 else None


def timed(**options):
    given = {"state": {"due": pa.int64(), "n": pa.int64()}, "timer": "due", "on_timer": ended}
    return counted(idle, clock=od.every("ts", 4), **(given | options))


def test_a_timer_is_forgotten_with_its_state():
    def keeps(key, state, at, emit):
        emit(key, state.n)

    data = rows((0, "a", 2), (1, "a", 7), (2, "b", 1), (20, "z", 0), (21, "a", 1), (40, "z", 0))
    found, _ = both(timed(on_timer=keeps), data)
    assert found == [("a", 102), ("b", 1), ("z", 1), ("a", 1)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_timers_and_functions_that_forget_in_turn(seed, on_error):
    both(timed(on_error=on_error), generated(seed=seed))
    both(timed(on_flush=lambda key, state, emit: emit(key, -state.n)), generated(3000, 900, seed))


def test_a_row_that_fails_forgets_nothing():
    def fails(row, state, emit):
        state.n += 1
        emit(row.k, state.n)
        if row.x == 1:
            raise ValueError("no")
        return od.FORGET if row.x == 2 else None

    data = rows(*((t, "a", x) for t, x in enumerate((0, 1, 0, 2, 1, 0, 2, 2, 1))))
    found, _ = both(counted(fails, on_error="skip"), data)
    assert [n for _, n in found] == [1, 2, 3, 1, 2, 1]
    both(counted(fails, on_error=od.retry(2, then="skip")), data)


def test_a_run_goes_on_without_what_was_forgotten():
    data = generated()
    expected = exact_rows(run_serial(counted(), data).table.to_batches(), counted().schema)
    first = counted().run(data.slice(0, 301), workers=0, buckets=3, end="suspend")
    rest = counted().run(data.slice(301), workers=2, buckets=2, restore=first.snapshot)
    parts = [exact_rows(one.table.to_batches(), counted().schema) for one in (first, rest)]
    assert parts[0] + parts[1] == expected


@pytest.mark.parametrize("each", [1, 2, 3])
def test_what_is_forgotten_has_no_row_of_state_and_no_memory(each):
    """`each`: tuples of a key. Nothing of a key that has three is left, however many keys there were."""
    bytes_of = []
    for waves in (1, 6):
        keys = [[f"key {wave} {i}, longer than a view" for i in range(2000)] for wave in range(waves)]
        data = rows(*((t, k, 0) for of_wave in keys for t in range(each) for k in of_wave))
        ended = counted().run(data, workers=0, buckets=2, chunk_rows=64, end="suspend")
        bytes_of.append(ended.report.operators[-1].state_bytes)
        with Segment(counted(), workers=0, buckets=2) as segment:
            (name,) = segment.stages
            segment.push(data)
            assert segment.state_of(name).num_rows == (0 if each == 3 else 2000 * waves)
    assert bytes_of[1] < bytes_of[0] if each == 3 else bytes_of[1] > 4 * bytes_of[0]


def compiled_third(row, state, emit):
    state.n += 1
    emit(state.n)
    if state.n == 3:
        state.n = 0


@pytest.mark.parametrize("each", [2, 3])
def test_of_a_compiled_function_zeros_are_forgotten(each):
    pytest.importorskip("numba", reason="numba is not installed")
    pipeline = counted(compiled_third, compiled=True, schema={"n": pa.int64()})
    bytes_of = []
    for waves in (2, 8):
        data = rows(*((t, f"key {i} of a wave, {w}", 0)
                      for w in range(waves) for t in range(each) for i in range(3000)))  # fmt: skip
        ended = pipeline.run(data, workers=0, buckets=1, chunk_rows=64, end="suspend")
        assert ended.table["n"].to_pylist() == [t + 1 for _ in range(waves) for t in range(each)
                                                for _ in range(3000)]  # fmt: skip
        bytes_of.append(ended.report.operators[-1].state_bytes)
    assert bytes_of[1] <= bytes_of[0] if each == 3 else bytes_of[1] > 3 * bytes_of[0]
    both(pipeline, generated())


@pytest.mark.parametrize("ends", ["forgets", "raises"])
def test_a_key_that_ends_at_its_first_tuple_costs_nothing(ends):
    """It has no state then, and never had one: its name stayed for ever."""

    def once(row, state, emit):
        emit(row.k, 1)
        return od.FORGET if ends == "forgets" else row.nothing

    def bytes_of(keys):
        data = rows(*((t, f"key {t}, longer than a view", 0) for t in range(keys)))
        ended = counted(once, on_error="skip").run(data, workers=0, buckets=2, chunk_rows=64)
        assert ended.table.num_rows == (keys if ends == "forgets" else 0)
        return ended.report.operators[-1].state_bytes

    assert bytes_of(20_000) <= bytes_of(2_000)


@pytest.mark.parametrize("keys", [1, 50])
@pytest.mark.parametrize("forgets", [False, True])
def test_a_timer_that_is_set_again_is_noted_once(keys, forgets):
    """Notes stayed until their time came: a key that set its timer at each row had one a row."""

    def sets(row, state, emit):
        state.n += 1
        state.due = row.ts + 10**9
        return od.FORGET if forgets and state.n == 2 else None

    def source(of=2_000, batches=20):
        for at in range(0, of * batches, of):
            yield rows(*((t, f"k{t % keys}", 0) for t in range(at, at + of))).to_batches()[0]

    pipeline = (
        od.Pipeline(SCHEMA)
        .key_by("k")
        .process(
            sets,
            schema=OUT,
            state={"due": int, "n": int},
            timer="due",
            clock=od.every("ts", 10**8),
            on_timer=lambda key, state, at, emit: emit(key, state.n),
        )
    )
    pipeline.run(source(2, 1), workers=0)  # modules that a run loads
    tracemalloc.start()
    try:
        pipeline.run(source(), workers=0)
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()


def test_over_processes():
    pipeline = counted(process_functions.counts_to_three)
    data = generated(3000, 300)
    expected = run_serial(pipeline, data).table
    assert pipeline.run(data, processes=2).table.equals(expected)


@pytest.mark.parametrize("name", ["clear", "remove"])
def test_other_names_for_it_are_answered(name):
    data = rows((0, "a", 0))
    pipeline = counted(lambda row, state, emit: getattr(state, name)())
    with pytest.raises(od.OperatorError, match=rf"no field '{name}'.*; it has: n; .* return od\.FORGET"):
        pipeline.run(data)
    assert "return od.FORGET" in str(run_serial(pipeline, data).error)


def test_it_is_one_object():
    assert copy.deepcopy(od.FORGET) is pickle.loads(pickle.dumps(od.FORGET)) is od.FORGET
    assert repr(od.FORGET) == "od.FORGET"


def test_what_else_a_function_returns():
    data = rows((0, "a", 0))
    with pytest.raises(od.OperatorError, match=r"returns nothing or od\.FORGET, got 'forget'"):
        counted(lambda row, state, emit: "forget").run(data)
    native = pytest.importorskip("numba", reason="numba is not installed") and counted(
        compiled_count, compiled=True, schema={"n": pa.int64()}, on_flush=lambda k, s, emit: od.FORGET
    )
    with pytest.raises(od.OperatorError, match=r"of a compiled function can't be forgotten"):
        native.run(data)
    assert "can't be forgotten" in str(run_serial(native, data).error)


def compiled_count(row, state, emit):
    state.n += 1
