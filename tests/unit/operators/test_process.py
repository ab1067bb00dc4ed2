"""process on its kernel: state, flush, time, failures; against the sequential reference."""

from __future__ import annotations

import datetime
import gc
import pickle
import random
import threading

import pyarrow as pa
import pytest
from unit.function_check import SOURCE, batch, check_serial, door
from value_columns import COLUMNS

import ordstream as od
from ordstream.ground.types import physical_type
from ordstream.reference.run_serial import run_serial


def total(row, state, emit):
    state.n += 1
    state.total += row.x
    emit(row.k, state.n, state.total)
    if row.x < 0:
        raise ValueError("negative")


STATE = {"n": int, "total": int}
OUTPUT = {"k": int, "n": int, "total": int}
CLICKS = batch(k=[1, 2, 1, None, 1, 2, 3], x=[5, 6, -7, 8, 9, 1, -2], s=["", "a", "b", "", "", "c", ""])


def test_a_state_that_nothing_made_says_how():
    """Without `state=` and `init=` it is an empty namespace."""
    pipeline = od.Pipeline(SOURCE).key_by("k").process(total, schema=OUTPUT)
    expected = run_serial(pipeline, CLICKS).error
    with pytest.raises(od.OperatorError, match=r"begins empty: declare state=\{'n': int\}, or") as raised:
        pipeline.run(CLICKS)
    assert raised.value.reason == expected.reason


def remember(row, state, emit):
    state.setdefault("seen", []).append(row.x)
    if row.x < 0:
        raise ValueError("negative")
    emit(row.k, len(state["seen"]), sum(state["seen"]))


def encode(state):
    return repr(state).encode()


def decode(data):
    return eval(data)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("kind", ["declared", "codec", "undeclared"])
def test_against_the_reference(kind, keyed, on_error):
    options = {
        "declared": {"fn": total, "state": STATE},
        "codec": {"fn": remember, "state": od.codec(encode, decode, dict)},
        "undeclared": {"fn": remember, "init": dict},
    }[kind]
    pipeline = od.Pipeline(SOURCE)
    pipeline = pipeline.key_by("k") if keyed else pipeline
    fn = options.pop("fn")
    check_serial(pipeline.process(fn, schema=OUTPUT, on_error=on_error, **options), CLICKS)


def test_flush_in_key_order_without_failed_keys():
    def flush(key, state, emit):
        emit(key, state.n, state.total)

    pipeline = (
        od.Pipeline(SOURCE)
        .key_by("k")
        .process(total, schema=OUTPUT, state=STATE, on_flush=flush, on_error="skip")
    )
    rows = check_serial(pipeline, CLICKS)
    assert rows[-3:] == [(None, 1, 8), (1, 2, 14), (2, 2, 7)]


def test_compound_key_and_time():
    seen = []

    def tick(key, state, time, emit):
        seen.append((key, time))
        state.n += time
        emit(key[0], state.n, 0)

    def count(row, state, emit):
        state.n += 1

    pipeline = (
        od.Pipeline(SOURCE)
        .key_by("k", "s")
        .process(count, schema=OUTPUT, state=STATE, on_time=tick, on_flush=lambda k, s, e: e(k[0], s.n, 1))
    )
    kernel = door(pipeline)
    kernel.process(CLICKS)
    rows, status, keyed = kernel.punctuate(time=60)
    keys = [(None, ""), (1, ""), (1, "b"), (2, "a"), (2, "c"), (3, "")]
    assert seen == [(key, 60) for key in keys]
    assert rows == [(None, 61, 0), (1, 62, 0), (1, 61, 0), (2, 61, 0), (2, 61, 0), (3, 61, 0)]
    assert (status, all(keyed)) == (0, True)
    assert kernel.punctuate()[0] == [
        (key[0], n, 1) for key, n in zip(keys, [61, 62, 61, 61, 61, 61], strict=True)
    ]


def test_keys_as_python_values():
    schema = pa.schema(
        {"d": pa.date32(), "f": pa.float32(), "b": pa.bool_(), "raw": pa.binary(), "u": pa.uint64()}
    )
    keys = [(datetime.date(2020, 1, 1), 0.5, True, b"\x00", 2**64 - 1), (None, None, None, None, None)]
    data = pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, key, strict=True)) for key in keys], schema=schema
    )
    seen = []
    pipeline = (
        od.Pipeline(schema)
        .key_by(*schema.names)
        .process(
            lambda row, state, emit: None,
            schema={"n": int},
            on_flush=lambda key, state, emit: seen.append(key),
        )
    )
    kernel = door(pipeline)
    kernel.process(data)
    kernel.punctuate()
    assert seen == [keys[1], keys[0]]


def test_flush_without_key():
    pipeline = od.Pipeline(SOURCE).process(
        lambda row, state, emit: state.append(row.x), schema={"n": int}, init=list,
        on_flush=lambda key, state, emit: emit(len(state)) if key == () else None,
    )  # fmt: skip
    assert check_serial(pipeline, CLICKS) == [(7,)]
    kernel = door(pipeline)
    assert kernel.punctuate()[0] == []  # no tuple, no state


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_flush_failure(on_error):
    def flush(key, state, emit):
        emit(key, 1, 1)
        state.n = 99
        if key == 2:
            raise KeyError("two")

    pipeline = (
        od.Pipeline(SOURCE)
        .key_by("k")
        .process(
            lambda row, state, emit: None, schema=OUTPUT, state=STATE, on_flush=flush, on_error=on_error
        )
    )
    kernel = door(pipeline)
    kernel.process(CLICKS)
    rows, status, _ = kernel.punctuate()
    if on_error == "fail":
        assert (rows, status) == ([(None, 1, 1), (1, 1, 1)], -1)
        assert kernel.failure[2] == "KeyError: 'two'"
    else:
        assert (rows, status, kernel.skipped) == ([(None, 1, 1), (1, 1, 1), (3, 1, 1)], 0, 1)


def test_wrong_emits_and_results():
    for wrong in [
        lambda row, state, emit: 5,
        lambda row, state, emit: emit(1, 2),
        lambda row, state, emit: emit(1, 2, 3.5),
        lambda row, state, emit: emit("a", 2, 3),
        lambda row, state, emit: setattr(state, "y", 1),
        lambda row, state, emit: setattr(state, "n", None),
        lambda row, state, emit: setattr(state, "n", 1.5),
        lambda row, state, emit: setattr(state, "n", 2**63),
        lambda row, state, emit: state.y,
    ]:
        check_serial(od.Pipeline(SOURCE).key_by("k").process(wrong, schema=OUTPUT, state=STATE), CLICKS)


@pytest.mark.parametrize(("given", "rows"), [
    (lambda k, n: {"total": 0, "n": n, "k": k}, 11), (lambda k, n: [k, n, 0], 11),
    (lambda k, n: (k, n, 0), 11), (lambda k, n: {"k": k, "n": n}, 0),
    (lambda k, n: {"k": k, "n": n, "z": 0}, 0), (lambda k, n: (k, n), 0), (lambda k, n: n, 0),
])  # fmt: skip
def test_one_value_may_be_all_columns(given, rows):
    """As what `map` and `flat_map` return; it was "expected 3 values, got 1"."""
    pipeline = od.Pipeline(SOURCE).key_by("k").process(
        lambda row, state, emit: emit(given(row.k, row.x)), schema=OUTPUT, state=STATE,
        on_flush=lambda key, state, emit: emit(given(key, 5)), on_error="skip",
    )  # fmt: skip
    assert pipeline.run(CLICKS, workers=1).table.num_rows == rows
    check_serial(pipeline, CLICKS)


@pytest.mark.parametrize(("type_", "given", "value"), [
    (pa.int64(), {"n": 1}, 1), (pa.list_(pa.int64()), [1, 2], [1, 2]),
    (pa.list_(pa.int64()), {"n": [1]}, [1]), (pa.struct({"n": pa.int64()}), {"n": 1}, {"n": 1}),
])  # fmt: skip
def test_of_one_column_a_list_is_its_value(type_, given, value):
    pipeline = od.Pipeline(SOURCE).process(
        lambda row, state, emit: emit(given), schema=pa.schema({"n": type_}), init=list
    )
    wanted = [value] * len(CLICKS)
    for workers in (0, 1):
        assert pipeline.run(CLICKS, workers=workers).table["n"].to_pylist() == wanted
    assert run_serial(pipeline, CLICKS).table["n"].to_pylist() == wanted


def test_emit_dies_with_its_call():
    kept = []
    pipeline = od.Pipeline(SOURCE).process(
        lambda row, state, emit: kept.append(emit), schema=OUTPUT, state=STATE
    )
    door(pipeline).process(CLICKS)
    with pytest.raises(RuntimeError, match="had returned"):
        kept[0](1, 2, 3)


def test_declared_state_values():
    """Every kind of field: zeros, conversions, range checks."""
    fields = {
        name: type_
        for name, (type_, _) in COLUMNS.items()
        if physical_type(type_, name).vm is not None and name != "decimal"
    }
    states = []

    def fill(row, state, emit):
        if row.k == 1 and not states:
            states.append([getattr(state, name) for name in fields])
            for name in fields:
                setattr(state, name, COLUMNS[name][1][-1])
            states.append([getattr(state, name) for name in fields])
        emit(*[getattr(state, name) for name in fields])

    pipeline = od.Pipeline(SOURCE).process(fill, schema=fields, state=fields)
    kernel = door(pipeline)
    rows = kernel.process(CLICKS)[0]
    assert kernel.failure is None
    states.clear()
    assert rows == run_serial(pipeline, CLICKS).rows
    assert rows[0] == tuple(COLUMNS[name][1][-1] for name in fields)


def test_state_object():
    seen = []
    pipeline = od.Pipeline(SOURCE).process(
        lambda row, state, emit: seen.append(state), schema=OUTPUT, state=STATE
    )
    door(pipeline).process(CLICKS)
    state = seen[0]
    assert repr(state) == "State(n=0, total=0)"
    assert dir(state) == ["n", "total"]
    assert not hasattr(state, "x")
    with pytest.raises(AttributeError, match="no field 'x'; it has: n, total"):
        state.x = 1
    with pytest.raises(AttributeError, match="'n' can't be deleted"):
        del state.n
    assert state.n == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unknown_field_of_the_state_is_told_with_those_that_there_are(workers):
    def wrong(row, state, emit):
        emit(state.x, 1)

    def late(key, state, emit):
        emit(state.sum, 1)

    for name, fn, more in [("x", wrong, {}), ("sum", lambda row, state, emit: None, {"on_flush": late})]:
        pipeline = od.Pipeline(SOURCE).process(fn, schema=OUTPUT, state=STATE, **more)
        with pytest.raises(od.OperatorError, match=f"no field '{name}'; it has: n, total"):
            pipeline.run(CLICKS, workers=workers)


def test_fields_whose_names_no_slot_can_have():
    """They are read and written as others are."""
    names = {"two words": int, "a-b": str, "field_0": int, "class": float, "größe": int}

    def step(row, state, emit):
        for name, kind in names.items():
            setattr(state, name, kind(getattr(state, name)) + kind(1))
        emit(*[getattr(state, name) for name in names])

    pipeline = od.Pipeline(SOURCE).key_by("k").process(step, schema=dict(names), state=dict(names))
    kernel = door(pipeline)
    rows = kernel.process(CLICKS)[0]
    assert kernel.failure is None
    assert rows == run_serial(pipeline, CLICKS).rows
    assert {row[1] for row in rows} > {"1", "11"}

    def wrong(row, state, emit):
        emit(state.x, 1)

    failing = od.Pipeline(SOURCE).process(wrong, schema=OUTPUT, state=dict(names))
    with pytest.raises(od.OperatorError, match="no field 'x'; it has: two words, a-b, field_0, class"):
        failing.run(CLICKS, workers=0)


def test_state_size_is_reported():
    kernel = door(
        od.Pipeline(SOURCE).key_by("k").process(total, schema=OUTPUT, state=STATE, on_error="skip")
    )
    empty = kernel.bytes()
    kernel.process(CLICKS)
    assert kernel.bytes() > empty


def test_buckets_free_their_states():
    class Counted:
        alive = 0

        def __init__(self):
            Counted.alive += 1

        def __del__(self):
            Counted.alive -= 1

    kernel = door(od.Pipeline(SOURCE).key_by("k").process(lambda *_: None, schema=OUTPUT, init=Counted))
    kernel.process(CLICKS)
    assert Counted.alive == 4
    del kernel
    gc.collect()
    assert Counted.alive == 0


def test_random_against_the_reference():
    rng = random.Random(7)
    for on_error in ("fail", "skip"):
        for _ in range(20):
            n = rng.randrange(1, 60)
            low = -3 if on_error == "skip" else 0
            data = batch(
                k=[rng.choice([None, 1, 2, 3, 10**12]) for _ in range(n)],
                x=[rng.randrange(low, 20) for _ in range(n)],
            )
            flush = lambda key, state, emit: emit(key, state.n, state.total)  # noqa: E731
            pipeline = (
                od.Pipeline(SOURCE)
                .key_by("k")
                .process(total, schema=OUTPUT, state=STATE, on_flush=flush, on_error=on_error)
            )
            check_serial(pipeline, data)


def test_the_end_sorts_what_many_keys_emit_by_key_then_as_emitted():
    def last(key, state, emit):
        emit(key, state.n)
        emit(key, -key)

    def count(row, state, emit):
        state.n += 1

    data = pa.table({"k": [i * 37 % 101 - 50 for i in range(300)]})
    fields = {"k": int, "n": int}
    pipeline = od.Pipeline(data.schema).key_by("k").process(
        count, schema=fields, state={"n": int}, on_flush=last
    )  # fmt: skip
    expected = run_serial(pipeline, data).rows
    assert len(expected) == 202
    assert expected[:4] == [(-50, 3), (-50, 50), (-49, 3), (-49, 49)]
    for workers, buckets in ((0, 1), (2, 5)):
        found = pipeline.run(data, workers=workers, buckets=buckets).table
        assert list(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == expected


def counted_behind_a_lock(row, state, emit):
    state["n"] += 1
    emit(row.k, state["n"], row.x)


@pytest.mark.parametrize("policy", ["skip", "dead_letter", "retries"])
@pytest.mark.parametrize("codec", [False, True])
def test_a_state_that_cannot_be_copied_is_no_rows_fault(codec, policy):
    """Rows behind the first of a key were skipped, each, although the function never failed."""

    def locked():
        return {"n": 0, "lock": threading.Lock()}

    options = {"init": locked}
    if codec:
        options = {"state": od.codec(lambda state: pickle.dumps(state), pickle.loads, locked)}
    options |= {"on_error": od.retry(2) if policy == "retries" else policy}
    pipeline = od.Pipeline(SOURCE).key_by("k")
    pipeline = pipeline.process(counted_behind_a_lock, schema=OUTPUT, name="fold", **options)
    outputs = {"good": pipeline, "bad": pipeline.side_output()} if policy == "dead_letter" else None
    with pytest.raises(od.OperatorError) as told:
        pipeline.run(CLICKS, outputs=outputs) if outputs else pipeline.run(CLICKS)
    failures = [told.value, run_serial(pipeline, CLICKS, outputs=outputs).error]
    for failure in failures:
        assert failure.serial == 3
        assert "can't be copied (TypeError: cannot pickle '_thread.lock' object)" in failure.reason
        assert "state={...}" in failure.reason
