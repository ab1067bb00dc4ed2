"""A run that is stopped leaves every loop over keys within a few thousand of them, and delivers nothing that
was half made.

Looks at the stop flag are counted, not time: whatever lies between two looks is bounded by a number of keys.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from plan_tools import final

import ordstream as od
from ordstream import col
from ordstream._core.lab import testing_kernels as testing
from ordstream._core.lab.testing_run import RunDoor, look_at_stop, looks
from ordstream.reference.run_serial import run_serial

STOP_EVERY = 4096  # of _core/ground/stopping.pxd
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
DEADLINE_S = 10.0


def rows(n: int, seed: int = 1) -> dict[str, list[Any]]:
    """n keys in any order, each once; the strings differ behind their first 8 bytes, where a prefix
    tells nothing.
    """
    keys = list(range(n))
    random.Random(seed).shuffle(keys)
    return {
        "k": keys,
        "s": [f"a long prefix {k:07}" for k in keys],
        "v": list(range(n)),
        "ts": list(range(n)),
    }


def columns(values: dict[str, list[Any]]) -> list[list[Any]]:
    """As a kernel is given them."""
    return [[v.encode() if isinstance(v, str) else v for v in column] for column in values.values()]


def table(n: int) -> pa.Table:
    return pa.table(rows(n), schema=SCHEMA)


def nothing(row: Any, state: Any, emit: Any) -> None:
    pass


def emit_key(key: Any, state: Any, emit: Any) -> None:
    emit(key)


def process(key: str) -> od.Pipeline:
    schema = pa.schema([("key", SCHEMA.field(key).type)])
    return (
        od.Pipeline(SCHEMA).key_by(key).process(nothing, schema=schema, state={"n": int}, on_flush=emit_key)
    )


FLUSHES: dict[str, Callable[[], od.Pipeline]] = {
    "count": lambda: od.Pipeline(SCHEMA).key_by("k").count(emit="final"),
    "count of strings": lambda: od.Pipeline(SCHEMA).key_by("s").count(emit="final"),
    "count above": lambda: od.Pipeline(SCHEMA).key_by("k").count(emit="final", above=0),
    "aggregate": lambda: od.Pipeline(SCHEMA).key_by("s").aggregate(t=od.sum("v"), emit="final"),
    "sessions": lambda: od.Pipeline(SCHEMA).key_by("k").sessionize("ts", 10),
    "sessions with lists": lambda: od.Pipeline(SCHEMA).key_by("s").sessionize("ts", 10, {"vs": "v"}),
    "top values": lambda: od.Pipeline(SCHEMA).key_by("k").top_values("v", 3, emit="final"),
    "process": lambda: process("k"),
    "process of strings": lambda: process("s"),
}


@pytest.mark.parametrize("name", FLUSHES)
def test_a_flush_looks_at_the_flag(name: str) -> None:
    """Every kernel's loop over the keys of one bucket: at most STOP_EVERY keys between two looks, none
    after the one that says stop.
    """
    n = 5 * STOP_EVERY
    (stage,) = FLUSHES[name]().plan.operators
    kernel = testing.KernelRun(stage.kernel(), stage.key)
    try:
        kernel.push(columns(rows(n)))
        for look in (1, 2, 4):
            found, made = kernel.punctuate_until(look)
            assert made == look, "it went on after a look that said stop"
            assert found <= look * STOP_EVERY
        found, made = kernel.punctuate_until(0)
        assert found
        assert made >= n // STOP_EVERY, f"{made} looks for {n} keys"
    finally:
        kernel.close()


def test_a_time_punctuation_looks_at_the_flag() -> None:
    n = 5 * STOP_EVERY
    for name in ("sessions", "sessions with lists"):
        (stage,) = FLUSHES[name]().plan.operators
        for stop_at in (2, 0):  # a stopped run does not go on
            kernel = testing.KernelRun(stage.kernel(), stage.key)
            kernel.push(columns(rows(n)))
            looks = kernel.punctuate_until(stop_at, time=10 * n)[1]
            kernel.close()
            # The pass that is not begun any more looks once, too.
            assert 2 <= looks <= 3 if stop_at else looks >= n // STOP_EVERY


@pytest.mark.parametrize(("best", "key"), [(3, "k"), (70_000, "k"), (3, "s")])
def test_a_long_list_of_the_best_looks_at_the_flag(best: int, key: str) -> None:
    """top_k over more keys than are sorted without a look; and it is the same list."""
    n = 70_000
    (stage,) = final(od.Pipeline(SCHEMA).top_k(best, "v", key=key)).plan.operators
    kernel = testing.KernelRun(stage.kernel())
    values = rows(n)
    values["v"] = [v % 1_000 for v in values["v"]]
    kernel.push(columns(values))
    for look in (1, 3, 20):
        assert kernel.punctuate_until(look) == (0, look)
    assert kernel.punctuate_until(0)[1] >= 2 * n // STOP_EVERY
    order = sorted(
        zip(*values.values(), strict=True), key=lambda row: (-row[2], row[SCHEMA.names.index(key)])
    )
    assert [row[:4] for row in kernel.punctuate()] == [
        (k, s.encode(), v, ts) for k, s, v, ts in order[:best]
    ]
    kernel.close()


RUNS: dict[str, Callable[[], od.Pipeline]] = {
    **{name: flush for name, flush in FLUSHES.items() if name not in ("sessions with lists", "process")},
    "two flushes": lambda: (
        od.Pipeline(SCHEMA)
        .key_by("s")
        .aggregate(t=od.sum("v"), emit="final")
        .with_columns(z=col("t") % 9_000)
        .key_by("z")
        .aggregate(n=od.sum("t"), emit="final")
    ),
    "a flush into a process": lambda: (
        od.Pipeline(SCHEMA).key_by("k").count(emit="final").key_by("k").scan(all=od.sum("count"))
    ),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.thin(8)
def test_stopped_at_any_look(name: str, workers: int) -> None:
    """Whichever loop of a run it is in: the reader gets Cancelled after a prefix of the output, every
    chunk comes back.
    """
    n = 12_000
    pipeline, data = RUNS[name](), table(n)
    options: dict[str, Any] = {"workers": workers, "buckets": 2, "chunk_rows": 5_000}
    look_at_stop()
    expected = pipeline.run(data, **options).table.to_pylist()
    most = looks()
    assert most >= 3 * n // STOP_EVERY, f"{most} looks for {n} keys: the kernels', the sort's, the merge's"
    assert expected == run_serial(pipeline, data).table.to_pylist()
    stopped = 0
    for at in sorted({*range(1, 4), *random.Random(name).sample(range(1, most + 1), min(7, most))}):
        look_at_stop(at)
        stream = pipeline.stream(data, **options)
        found: list[Any] = []
        try:
            for batch in stream:
                found += batch.to_pylist()
        except od.Cancelled:
            stopped += 1
        else:
            assert looks() < at or found == expected
        finally:
            looks()
        assert found == expected[: len(found)]
        assert stream.report.leaked_chunks == 0
    assert stopped > 3


@pytest.mark.parametrize("name", ["count", "aggregate", "sessions", "process of strings", "two flushes"])
def test_ctrl_c_reaches_a_flush_on_the_callers_thread(name: str) -> None:
    """workers = 0: the signal comes at some look; no other look follows it, and the exception is the
    handler's.
    """
    pipeline, data = RUNS[name](), table(20_000)
    look_at_stop()
    pipeline.run(data, workers=0)
    most = looks()
    assert most >= 14
    interrupted = 0
    # reached in every run: the number of slices, which end with a look as well, differs
    for at in (1, 4, 9, 14):
        look_at_stop(at, signal=True)
        stream = pipeline.stream(data, workers=0)
        try:
            list(stream)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            made = looks()
        assert made <= at, f"{made} looks; the signal came at look {at}"
        assert stream.report.leaked_chunks == 0
    assert interrupted == 4


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_flush_that_calls_python_stops_at_the_next_key(workers: int) -> None:
    calls: list[Any] = []
    streams: list[Any] = []

    def flush(key: Any, state: Any, emit: Any) -> None:
        calls.append(key)
        if len(calls) == 100:
            streams[0].cancel()

    pipeline = (
        od.Pipeline(SCHEMA).key_by("k").process(nothing, schema=SCHEMA, state={"n": int}, on_flush=flush)
    )
    streams.append(pipeline.stream(table(1_000), workers=workers, buckets=2))
    with pytest.raises(od.Cancelled):
        list(streams[0])
    assert len(calls) == 100
    assert streams[0].report.leaked_chunks == 0


def test_a_failure_ends_a_flush_of_another_operator() -> None:
    """The last operator fails while the one before flushes: nobody wants the rest of that flush."""
    doors: list[RunDoor] = []
    calls: list[Any] = []

    def until(happened: Callable[[], Any]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not happened() and time.monotonic() < end:
            time.sleep(0.0005)

    def pass_on(row: Any, state: Any, emit: Any) -> None:
        emit(row.v)

    def flush(key: Any, state: Any, emit: Any) -> None:
        calls.append(key)
        if len(calls) == 10:
            until(lambda: doors[0].stopped)

    def fail(row: Any) -> bool:
        until(lambda: len(calls) == 10)
        raise ZeroDivisionError

    pipeline = (
        od.Pipeline(SCHEMA)
        .key_by("k")
        .process(pass_on, schema=pa.schema([("v", pa.int64())]), state={"n": int}, on_flush=flush)
    )
    stream = pipeline.filter(fail).stream(table(40), workers=2, buckets=2, chunk_rows=64)
    doors.append(RunDoor(stream))
    with pytest.raises(od.OperatorError):
        list(stream)
    assert len(calls) == 10
    assert stream.report.leaked_chunks == 0
