"""Rows that are finished reach the reader, whatever a function, a source or a callback does meanwhile.

Each run has a place that pauses until the test lets it go. What stands in front of it in the order
(docs/ordering.md) must come before that, by a deadline that only ends a test that fails.
ORDSTREAM_LONG=1 draws more.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stress_tools import rows_of

import ordstream as od
from ordstream import col
from ordstream._core.lab.testing_run import RunDoor
from ordstream.testing import run_serial

DEADLINE_S = 30.0
ROUNDS = 2_000 if os.environ.get("ORDSTREAM_LONG") else 60
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
STATE = {"n": int}


class Pause:
    """The first `most` calls for a row from `at` on wait until `go` is set; `on`: else none does."""

    def __init__(self, at: int, most: int = 1, *, on: bool = True) -> None:
        self.at, self.left = at, most if on else 0
        self.go, self.reached = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def __call__(self, v: int) -> None:
        if v < self.at or not self.left:
            return
        with self._lock:
            waits, self.left = self.left > 0, max(0, self.left - 1)
        if waits:
            self.reached.set()
            self.go.wait(4 * DEADLINE_S)


def until(happened: Callable[[], Any], seconds: float = DEADLINE_S) -> bool:
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.002)
    return bool(happened())


class Reading:
    """A stream read in a thread of its own, which pauses behind each batch."""

    def __init__(self, stream: Any, pause_s: float = 0.0) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.errors: list[BaseException] = []
        self._stream, self._pause_s = stream, pause_s
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for batch in self._stream:
                self.rows.extend(rows_of([batch]))
                time.sleep(self._pause_s)
        except BaseException as error:
            self.errors.append(error)

    def gets(self, count: int) -> None:
        """So many rows must come."""
        until(lambda: len(self.rows) >= count or self.errors)
        assert not self.errors, self.errors
        assert len(self.rows) >= count, f"{len(self.rows)} rows of {count} that are finished"

    def rest(self) -> list[tuple[Any, ...]]:
        """All rows, at the end."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        assert not self.errors, self.errors
        return self.rows


def table(n: int, rng: random.Random) -> pa.Table:
    keys = [rng.randrange(5) for _ in range(n)]
    return pa.table([keys, [i // 2 for i in range(n)], list(range(n))], schema=SCHEMA)


def rows(*times: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + len(times))
    return pa.record_batch([pa.array([1] * len(times)), pa.array(times), pa.array(numbers)], schema=SCHEMA)


# --- whole pipelines, drawn -----------------------------------------------------------------------


def paused(name: str, p: od.Pipeline, pause: Pause) -> od.Pipeline:
    """`p` with an operator whose function pauses."""

    def same(row: Any) -> tuple[int, ...]:
        pause(row.v)
        return (row.k, row.t, row.v)

    def refuses(row: Any) -> tuple[int, ...]:
        if row.v % 5 == 2:
            raise ValueError(row.v)
        return same(row)

    def batch(columns: Any) -> Any:
        pause(int(max(columns["v"], default=-1)))
        return {name: columns[name] for name in SCHEMA.names}

    def step(row: Any, state: Any, emit: Any) -> None:
        state.n += 1
        emit(*same(row))

    def timed(row: Any, state: Any, emit: Any) -> None:
        state.due = row.t + 3
        emit(row.k, row.t, row.v)

    def fires(key: int, state: Any, at: int, emit: Any) -> None:
        pause(2 * at)
        emit(key, at, -1)

    def flush(key: int, state: Any, emit: Any) -> None:
        pause(1 << 40)
        emit(key, state.n, -1)

    if name == "filter":
        return p.filter(lambda row: same(row)[2] % 7 != 3)
    if name == "flat_map":
        return p.flat_map(lambda row: [same(row)] * (row.v % 3), schema=SCHEMA)
    if name == "map_batches":
        return p.map_batches(batch, schema=SCHEMA)
    if name == "process":
        return p.process(step, schema=SCHEMA, state=STATE)
    if name == "keyed":
        return p.key_by("k").process(step, schema=SCHEMA, state=STATE, on_flush=flush)
    if name == "letters":
        good = p.map(refuses, schema=SCHEMA, on_error="dead_letter")
        return od.union(good, good.side_output().select("k", "t", "v"))
    if name == "branch":
        third, others = p.branch(col("v") % 3 == 0)
        return od.union(third.map(same, schema=SCHEMA), others)
    if name == "join":
        even, odd = p.branch(col("v") % 2 == 0)
        joined = even.map(same, schema=SCHEMA).join_interval(
            odd, on="k", within=(0, 3), how="left", time="t"
        )
        return joined.select("k", "t", "v")
    assert name == "timer", name
    clock = od.every("t", 2)
    state = {"due": int}
    return p.key_by("k").process(timed, schema=SCHEMA, state=state, timer="due", on_timer=fires, clock=clock)


PAUSED = ["filter", "flat_map", "map_batches", "process", "keyed", "letters", "branch"]
PLAIN: list[Callable[[od.Pipeline], od.Pipeline]] = [
    lambda p: p.filter(col("v") % 11 != 1),
    lambda p: p.filter(lambda row: row.v % 2 == 0),
    lambda p: p.key_by("k").scan(n=od.count()).select("k", "t", "v"),
    lambda p: p.scan(n=od.count()).select("k", "t", "v"),
    lambda p: p.flat_map(lambda row: [(row.k, row.t, row.v)] * 2, schema=SCHEMA),
    lambda p: od.union(*p.branch(col("v") % 2 == 0)),
    lambda p: p.key_by("k").head(50),
]


def drawn_pipeline(seed: int, first: Pause, second: Pause | None) -> od.Pipeline:
    rng = random.Random(seed)
    p = od.Pipeline(SCHEMA)
    if second is None and rng.random() < 0.3:
        p = paused(rng.choice(["timer", "join"]), p, first)
    else:
        for pause in (first, second):
            for _ in range(rng.randrange(3)):
                p = rng.choice(PLAIN)(p)
            if pause is not None:
                p = paused(rng.choice(PAUSED), p, pause)
    for _ in range(rng.randrange(3)):
        p = rng.choice(PLAIN)(p)
    return p


def drawn_options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {
        "workers": rng.choice([2, 2, 3, 4, "auto"]),
        "max_workers": rng.choice([2, 4]),
        "scheduler": rng.choice(["ct", "lp", "et", "qst"]),
        "reorder": rng.choice(["nonblocking", "lock"]),
        "partitioning": rng.choice(["hybrid", "partitioned", "shared"]),
        "chunk_rows": rng.choice([1, 1, 7]),
    }
    if options["workers"] != "auto":
        del options["max_workers"]
    for name, values in (
        ("max_bytes", [1 << 10, 1 << 16]),
        ("buckets", [1, 2, 7, 64]),
        ("partial_after", [0.01, 0.1]),
        ("slice_us", [1.0, 1e6]),
        ("max_ready", [1, 2]),
        ("depth", [2, 4]),
        ("max_chunks", [1, 2, 5]),
    ):
        if rng.random() < 0.25:
            options[name] = rng.choice(values)
    return options


@pytest.mark.parametrize("part", range(6))
def test_what_stands_in_front_of_a_call_comes(part: int) -> None:
    """One or two functions pause, or the source does."""
    for seed in range(part, ROUNDS, 6):
        rng = random.Random(seed)
        n = rng.choice([60, 200, 600])
        data, options = table(n, rng), drawn_options(rng)
        workers = options.get("max_workers", options["workers"])
        by_source, two = rng.random() < 0.2, workers > 2 and rng.random() < 0.4
        at = sorted((rng.randrange(n), rng.randrange(n)), reverse=rng.random() < 0.5)
        expected = run_serial(
            drawn_pipeline(seed, Pause(0, on=False), Pause(0, on=False) if two else None), data
        )
        assert expected.error is None
        pauses = [Pause(one, on=not by_source) for one in at]
        source = Pause(at[0])
        batches = data.combine_chunks().to_batches(max_chunksize=rng.choice([1, 3, 50]))

        def given(batches: Any = batches, by_source: bool = by_source, source: Pause = source) -> Any:
            for batch in batches:
                if by_source:
                    source(batch["v"][-1].as_py())
                yield batch

        live = by_source or rng.random() < 0.6
        stream = drawn_pipeline(seed, pauses[0], pauses[1] if two else None).stream(
            given() if live else data, **options
        )
        front = min(at) if two else at[0]
        front = front - batches[0].num_rows if by_source else front - options["chunk_rows"] + 1
        reading = Reading(stream, rng.choice([0.0, 0.0, 0.01]))
        try:
            reading.gets(sum(serial <= front for serial, _ in expected.tags))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, row {front}, {options}: {error}") from None
        finally:
            for one in (*pauses, source):
                one.go.set()
        assert reading.rest() == expected.rows, seed


# --- places, one by one ---------------------------------------------------------------------------


def same(row: Any) -> tuple[int, ...]:
    return (row.k, row.t, row.v)


@pytest.mark.parametrize("reorder", ["nonblocking", "lock"])
def test_what_found_no_room_is_sent_on_beside_a_long_call(reorder: str) -> None:
    """An operator's one worker begins a long call when rows that it finished found no room behind it. There
    is some later: another worker sends them on.
    """
    first, second = Pause(6), Pause(0)
    data = table(100, random.Random(1))
    pipeline = (
        od.Pipeline(SCHEMA)
        .filter(lambda row: first(row.v) is None)
        .filter(lambda row: second(row.v) is None)
    )
    options = {"workers": 2, "chunk_rows": 1, "depth": 4, "slice_us": 1e6, "reorder": reorder}
    reading = Reading(pipeline.stream(data, **options))
    try:
        assert second.reached.wait(DEADLINE_S)
        assert first.reached.wait(DEADLINE_S)
        second.go.set()
        reading.gets(6)
    finally:
        first.go.set()
        second.go.set()
    assert len(reading.rest()) == 100


def test_what_found_no_room_in_the_output_comes_to_a_reader_alone() -> None:
    """The only worker begins a long call when finished rows wait in front of the output, which is full."""
    pause, held, doors = Pause(0), [], []

    def function(row: Any) -> bool:
        if doors and not held and row.v - doors[0].emitted >= 20:  # of its own chunk 10 at most
            held.append(row.v)
            pause(row.v)
        return True

    data = table(9_000, random.Random(1))
    # one long slice: behind its end a worker begins no chunk of an operator that can't hand over
    options = {"workers": 1, "chunk_rows": 10, "max_ready": 1, "max_bytes": 1 << 19, "slice_us": 1e7}
    stream = od.Pipeline(SCHEMA).filter(function).stream(data, **options)
    doors.append(RunDoor(stream))  # before the worker begins: it parks once no more fits
    found = len(rows_of([next(stream)]))
    assert pause.reached.wait(DEADLINE_S)
    reading = Reading(stream)
    try:
        reading.gets(held[0] - 9 - found)
    finally:
        pause.go.set()
    assert found + len(reading.rest()) == 9_000


@pytest.mark.parametrize("partitioning", ["hybrid", "partitioned", "shared"])
def test_a_function_is_called_in_order_whatever_bucket(partitioning: str) -> None:
    """Rows of other keys in front of a call that takes long do not wait for it."""
    pause = Pause(150)
    data = table(200, random.Random(1))
    pipeline = paused("keyed", od.Pipeline(SCHEMA), pause)
    options = {"workers": 2, "chunk_rows": 7, "buckets": 7, "partitioning": partitioning}
    reading = Reading(pipeline.stream(data, **options))
    try:
        reading.gets(144)
    finally:
        pause.go.set()
    assert reading.rest() == run_serial(pipeline, data).rows


@pytest.mark.parametrize("workers", [0, 1, 2, "auto"])
def test_a_reader_of_arrow_that_pauses_holds_nothing_back(workers: int | str) -> None:
    """A RecordBatchReader may wait for its rows as an iterator may."""
    go = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield rows(1)
        yield rows(2, 3)
        go.wait(4 * DEADLINE_S)
        yield rows(4)

    data = pa.RecordBatchReader.from_batches(SCHEMA, source())
    reading = Reading(od.Pipeline(SCHEMA).filter(col("v") >= 0).stream(data, workers=workers))
    try:
        reading.gets(3)
    finally:
        go.set()
    assert len(reading.rest()) == 4


def test_nodes_with_workers_hand_on_what_is_finished_when_the_source_has_ended(tmp_path: Path) -> None:
    """Not only what a whole batch or the end brings along."""
    pid, go = os.getpid(), tmp_path / "go"

    def waits(row: Any, state: Any, emit: Any) -> None:
        if os.getpid() != pid and row.v == 15:
            while not go.exists():
                time.sleep(0.01)
        emit(row.k, row.t, row.v)

    pipeline = od.Pipeline(SCHEMA).key_by("k").process(waits, schema=SCHEMA, state=STATE)
    data = [rows(*range(20))]
    reading = Reading(pipeline.stream(iter(data), processes=2, workers=2, chunk_rows=1))
    try:
        reading.gets(15)
    finally:
        go.touch()
    assert reading.rest() == run_serial(pipeline, data).rows


def merged(sources: dict[str, Any], idle: str) -> Any:
    pipelines = [od.Pipeline(SCHEMA, source=name) for name in sources]
    return od.union(*pipelines).stream(sources, merge_by="t", idle=idle)


def test_idle_is_for_readers_of_arrow_too() -> None:
    go = threading.Event()

    def silent() -> Iterator[pa.RecordBatch]:
        yield from ()
        go.wait(4 * DEADLINE_S)

    data = {"a": iter([rows(1, 2, 3)]), "b": pa.RecordBatchReader.from_batches(SCHEMA, silent())}
    reading = Reading(merged(data, "100ms"))
    try:
        reading.gets(3)
    finally:
        go.set()
    assert len(reading.rest()) == 3


def test_rows_that_nothing_can_precede_wait_for_no_source() -> None:
    """`a` has said 100, and is silent again: rows of `b` before that can't be overtaken, however long idle=
    is.
    """
    go, more = threading.Event(), threading.Event()

    def a() -> Iterator[pa.RecordBatch]:
        yield rows(1, 100)
        go.wait(4 * DEADLINE_S)

    def b() -> Iterator[pa.RecordBatch]:
        yield rows(1)
        more.wait(4 * DEADLINE_S)
        yield rows(50, 60)
        go.wait(4 * DEADLINE_S)

    stream = merged({"a": a(), "b": b()}, "5s")
    reading = Reading(stream)
    try:
        reading.gets(3)  # 100 once `b` was silent for so long
        began = time.monotonic()
        more.set()
        reading.gets(5)
        assert stream.merge_log.passed == {"b"}, f"after {time.monotonic() - began} s"
    finally:
        go.set()
        more.set()
    assert [t for _, t, _ in reading.rest()] == [1, 1, 100, 50, 60]
