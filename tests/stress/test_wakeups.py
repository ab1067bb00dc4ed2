"""Every wake-up of the runtime, one by one: with its line taken out, its test here fails (tools/mutants.py
tries it).

The timed waits of the runtime would hide a missing wake-up. Here they are long, and each test is a
hand-shake: a function of the pipeline waits until what must happen meanwhile has happened. Nothing is timed:
a deadline only ends a test that fails.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from stress_tools import SCHEMA, batches, rows_of, table

import ordstream as od
from ordstream import col
from ordstream._core.lab.testing_run import (
    BEFORE_PARKING,
    WHILE_PUBLISHING,
    ProbeKernel,
    RunDoor,
    set_waits,
    waits,
)
from ordstream.node import node
from ordstream.operators.operator import Operator
from ordstream.plan.plan import Plan

DEADLINE_S = 5.0
LONG_SLICE = {"slice_us": 1e6, "chunk_rows": 1}


class Never(AssertionError):
    """What a function waited for did not happen."""


def until(happened: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not happened():
        if time.monotonic() > end:
            raise Never(what)
        time.sleep(0.0002)


@pytest.fixture(autouse=True)
def long_waits() -> Iterator[None]:
    """A wait that nobody ends outlasts the test's deadline, and is counted as soon as it is over."""
    before = waits()
    set_waits(2e3 * DEADLINE_S, 2e3 * DEADLINE_S, 2e3 * DEADLINE_S, 100)
    yield
    set_waits(*before)


def short_waits() -> None:
    """For what shows only when the wait is over."""
    set_waits(1_500, 1_500, 1_500, 100)


def door_of(stream: Any, doors: list[RunDoor]) -> RunDoor:
    doors.append(RunDoor(stream))
    return doors[0]


def fed(stream: Any, door: RunDoor) -> None:
    """All input was given to the run, and the reader, which wakes parked workers when it gives
    something, waits.
    """
    until(lambda: stream._core.source_ended and door.reader_waits, "the reader has given all")


def read(stream: Any) -> list[tuple[Any, ...]]:
    return [row for batch in stream for row in rows_of([batch])]


def test_what_is_pushed_wakes_a_parked_worker() -> None:
    """A worker stays in the first operator: what it sends on is the other worker's, which is parked
    every time.
    """
    doors: list[RunDoor] = []
    seen: set[int] = set()

    def first(row: Any, state: Any, emit: Any) -> None:
        if row.v:
            until(lambda: row.v - 1 in seen, f"row {row.v - 1} was sent, and nobody took it")
        until(lambda: doors[0].asleep == 1, "the other worker parks")
        emit(row.k, row.v)

    def second(row: Any) -> bool:
        seen.add(row.v)
        return True

    pipeline = od.Pipeline(SCHEMA).process(first, schema=SCHEMA, state={"n": int}).filter(second)
    stream = pipeline.stream(table("few", 20), workers=2, **LONG_SLICE)
    door = door_of(stream, doors)
    assert [v for _, v in read(stream)] == list(range(20))
    assert door.missed == 0


def test_a_worker_looks_again_before_it_parks() -> None:
    """What was sent between a worker's last look and its parking, when nobody counts it as parked yet,
    is seen by its second look.
    """
    doors: list[RunDoor] = []
    seen: set[int] = set()
    held: list[int] = []
    over: list[int] = []
    n = 12

    def first(row: Any, state: Any, emit: Any) -> None:
        try:
            step(row, emit)
        except Never:
            over.append(row.v)
            doors[0].hold()  # or the end of the run would wait for who is held
            raise

    def step(row: Any, emit: Any) -> None:
        door = doors[0]
        if row.v == 0:
            door.hold(BEFORE_PARKING)
        else:
            until(
                lambda: row.v - 1 in seen or (door.held and door.hold()),
                f"row {row.v - 1} was sent while the other was about to park",
            )
        if row.v < n - 1:
            until(
                lambda: door.held or door.asleep,
                "the other worker comes to the place, or was there before it was told to stay",
            )
            held.append(door.held)
        else:  # from now on nobody is held, or the end of the run would wait for who is
            over.append(row.v)
            door.hold()
        emit(row.k, row.v)

    def second(row: Any) -> bool:
        seen.add(row.v)
        if row.v < n - 2:
            doors[0].hold(BEFORE_PARKING)  # its own thread is held when it comes there next
            if over:  # its thread had lost its processor behind `seen`, and `first` has let all go
                doors[0].hold()
        return True

    pipeline = od.Pipeline(SCHEMA).process(first, schema=SCHEMA, state={"n": int}).filter(second)
    stream = pipeline.stream(table("few", n), workers=2, **LONG_SLICE)
    door = door_of(stream, doors)
    try:
        assert [v for _, v in read(stream)] == list(range(n))
        assert door.missed == 0
        assert sum(held) > n // 2
    finally:
        door.hold()


def test_a_worker_that_is_about_to_park_sees_the_end() -> None:
    short_waits()
    doors: list[RunDoor] = []

    def fail(row: Any, state: Any, emit: Any) -> None:
        door = doors[0]
        door.hold(BEFORE_PARKING)
        until(lambda: door.asleep or door.held, "the other worker parks")
        if not door.held:
            door.want()  # wakes it, for nothing
            until(lambda: door.held, "the other worker comes to the place")
        raise ZeroDivisionError

    stream = (
        od.Pipeline(SCHEMA)
        .process(fail, schema=SCHEMA, state={"n": int})
        .stream(table("few", 3), workers=2, partial=False, **LONG_SLICE)
    )
    door = door_of(stream, doors)

    def let_go() -> None:
        try:
            until(
                lambda: any(not left.locked() for left, _ in stream._workers._inside),
                "the first worker tells and leaves",
            )
        finally:
            door.hold()

    thread = threading.Thread(target=let_go)
    thread.start()
    with pytest.raises(od.OperatorError):
        read(stream)
    thread.join()
    assert door.missed == 0, "a worker parked although the run was over"


def test_a_release_tells_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch becomes full while the source blocks: the reader, which waits, takes it."""
    monkeypatch.setattr(node, "READ_WAIT_S", 60.0)
    doors: list[RunDoor] = []
    found: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for i, part in enumerate(batches("few", 3 * 70_000, 70_000)):
            until(lambda: doors[0].reader_waits, "the reader waits")
            yield part
            until(lambda i=i: len(found) > i, f"batch {i} was full, and the reader was not told")

    stream = od.Pipeline(SCHEMA).filter(col("v") >= 0).stream(source(), workers=2, partial=False)
    door = door_of(stream, doors)
    for batch in stream:
        found.append(batch.num_rows)
    assert sum(found) == 3 * 70_000
    assert door.missed == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_unit_with_nothing_to_process_is_released_at_once(workers: int) -> None:
    """A row that the first operator drops leaves an empty chunk, which passes the keyed operator before
    the slice is over.
    """
    doors: list[RunDoor] = []

    def drop(row: Any, state: Any, emit: Any) -> None:
        if row.v:
            until(lambda: doors[0].emitted >= row.v, f"the empty unit of row {row.v - 1} stays where it is")
        until(lambda: doors[0].asleep == workers - 1, "the other worker parks")

    pipeline = od.Pipeline(SCHEMA).process(drop, schema=SCHEMA, state={"n": int}).key_by("k").count()
    stream = pipeline.stream(table("few", 20), workers=workers, buckets=4, **LONG_SLICE)
    door = door_of(stream, doors)
    assert read(stream) == []
    assert door.missed == 0


Called = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def test_who_ends_a_slice_wakes_another_for_what_is_left() -> None:
    """The window opens when the first row is done: nothing is pushed then, and yet the parked worker
    gets its part.
    """
    doors: list[RunDoor] = []
    lock = threading.Lock()
    together = threading.Barrier(2, timeout=DEADLINE_S)
    streams: list[Any] = []
    calls: list[int] = []
    failed: list[str] = []

    @Called
    def function(n: int, call: Any, _: Any) -> int:
        with lock:
            calls.append(1)
            mine = len(calls)
        try:
            if mine == 1:
                fed(streams[0], doors[0])
                until(lambda: doors[0].asleep == 1, "the other worker runs through the window and parks")
            # five where the first call is the second row's; and an even number of calls is left
            elif mine > 6 and not failed:
                together.wait()
        except (Never, threading.BrokenBarrierError) as error:
            failed.append(f"call {mine}: {error!r}")
        return n

    pipeline = od.Pipeline(SCHEMA).flat_map(function, schema=SCHEMA, compiled=True)
    stream = pipeline.stream(table("few", 40), workers=2, chunk_rows=1, depth=4, slice_us=1.0, partial=False)
    door = door_of(stream, doors)
    streams.append(stream)
    assert read(stream) == []
    assert not failed, "a worker had to wait for one that nobody woke"
    assert len(calls) == 40
    assert door.missed == 0


def test_the_end_of_a_run_wakes_parked_workers() -> None:
    short_waits()
    doors: list[RunDoor] = []
    streams: list[Any] = []

    def flush(key: Any, state: Any, emit: Any) -> None:
        fed(streams[0], doors[0])
        until(lambda: doors[0].asleep == 1, "the other worker parks")

    pipeline = od.Pipeline(SCHEMA).process(
        lambda row, state, emit: None, schema=SCHEMA, state={"n": int}, on_flush=flush
    )
    stream = pipeline.stream(table("few", 3), workers=2, partial=False)
    door = door_of(stream, doors)
    streams.append(stream)
    assert read(stream) == []
    assert door.missed == 0, "a parked worker slept on after the end"


def test_the_end_of_a_run_opens_the_gate() -> None:
    short_waits()
    doors: list[RunDoor] = []

    def function(row: Any, state: Any, emit: Any) -> None:
        emit(row.k, row.v)
        if row.v == 0:
            until(lambda: doors[0].asleep == 1, "the other worker parks")
            doors[0].set_active(1)
        elif row.v > 1:
            until(lambda: doors[0].gated == 1, "a worker too many waits at the gate")
            raise ZeroDivisionError

    pipeline = od.Pipeline(SCHEMA).process(function, schema=SCHEMA, state={"n": int}).filter(col("v") >= 0)
    stream = pipeline.stream(table("few", 9), workers=2, chunk_rows=1, slice_us=1.0)
    door = door_of(stream, doors)
    with pytest.raises(od.OperatorError):
        read(stream)
    assert door.missed == 0, "a worker at the gate slept on after the end"


def test_a_worker_above_the_number_stops() -> None:
    """Both workers are in a function when the number falls to one: from its next slice on only one goes
    on.
    """
    doors: list[RunDoor] = []
    lock = threading.Lock()
    before, after = threading.Barrier(2, timeout=DEADLINE_S), threading.Barrier(2, timeout=DEADLINE_S)
    calls: list[int] = []
    failed: list[str] = []

    @Called
    def function(n: int, call: Any, _: Any) -> int:
        with lock:
            calls.append(threading.get_ident())
            mine = len(calls)
        try:
            if mine <= 2:
                if before.wait() == 0:
                    doors[0].set_active(1)
                after.wait()
            else:
                until(
                    lambda: doors[0].gated or len(set(calls[2:])) > 1, "the other worker waits at the gate"
                )
        except (Never, threading.BrokenBarrierError) as error:
            failed.append(f"call {mine}: {error!r}")
        return n

    pipeline = od.Pipeline(SCHEMA).flat_map(function, schema=SCHEMA, compiled=True)
    stream = pipeline.stream(table("few", 40), workers=2, chunk_rows=1, slice_us=1.0)
    door = door_of(stream, doors)
    assert read(stream) == []
    assert not failed
    assert len(set(calls[2:])) == 1, "a worker above the number went on"
    assert door.missed == 0


def test_who_publishes_releases_what_became_ready_meanwhile() -> None:
    """An idle worker has the last release flag; a unit is put into its place, whose worker leaves it to
    the flag's holder.
    """
    doors: list[RunDoor] = []

    def function(row: Any, state: Any, emit: Any) -> None:
        door = doors[0]
        if row.v % 2 == 0:
            door.hold()
            if row.v:
                until(lambda: door.emitted >= row.v, f"row {row.v - 1} became ready meanwhile, and stayed")
        else:
            until(lambda: door.asleep == 1, "the other worker parks")
            door.hold(WHILE_PUBLISHING)
            door.want()
            until(lambda: door.held, "the other worker publishes")
        emit(row.k, row.v)

    pipeline = od.Pipeline(SCHEMA).process(function, schema=SCHEMA, state={"n": int})
    stream = pipeline.stream(table("few", 11), workers=2, **LONG_SLICE)
    door = door_of(stream, doors)
    try:
        assert [v for _, v in read(stream)] == list(range(11))
        assert door.missed == 0
    finally:
        door.hold()


# --- what one worker does with several parts ------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Probe(Operator):
    """What `ProbeKernel` is made from."""

    op: ClassVar[str] = "testing_probe"
    stateful: ClassVar[bool] = True

    made: list[Any]
    operator: int
    hot: int
    delegate: int

    def kernel(self) -> Any:
        return ProbeKernel(self)


@dataclass
class Probed:
    """A keyed operator that looks at its own run (`ProbeKernel`), one of two workers running."""

    buckets: int
    hot: int = -1
    delegate: int = 0
    made: list[Any] = field(default_factory=list)

    source_schema = schema = pa.schema([("k", pa.int64())])

    @property
    def plan(self) -> Plan:
        looks = {"made": self.made, "operator": 1, "hot": self.hot, "delegate": self.delegate}
        common = {
            "name": "probe",
            "input": self.schema,
            "output": self.schema,
            "key": (0,),
            "buckets": self.buckets,
        }
        return Plan.line(self.schema, [Probe(**common, **looks)])

    def found(self, keys: list[int]) -> dict[str, Any]:
        """Rows of these keys, one a chunk, all of which and the end wait when the one worker begins."""
        doors: list[RunDoor] = []

        def source() -> Iterator[pa.RecordBatch]:
            until(lambda: doors[0].held, "the worker finds nothing and is held")
            yield pa.record_batch([pa.array(keys, pa.int64())], schema=self.schema)

        stream = node.stream(self, source(), workers=2, depth=256, partial=False, **LONG_SLICE)
        door = door_of(stream, doors)
        stream.start_only(1)
        door.hold(BEFORE_PARKING)
        rows: list[tuple[Any, ...]] = []
        reader = threading.Thread(target=lambda: rows.extend(read(stream)))
        reader.start()
        try:
            until(lambda: door.held and stream._core.source_ended, "all input waits")
        finally:
            door.hold()
            reader.join()
        assert [k for (k,) in rows] == keys
        assert door.missed == 0
        found: dict[str, Any] = self.made[0].found
        return found


def test_units_are_not_held_while_a_bucket_is_flushed() -> None:
    """A worker claims the last rows and the first parts of the end together: the rows are out before it
    flushes.
    """
    for n in (44, 45, 46, 47, 49, 50, 51):
        found = Probed(buckets=64).found(list(range(n)))
        assert found["punctuations"] == 64
        assert found["late"] == 0, "a worker held units in its hands while it flushed a bucket"


def test_delegated_parts_do_not_keep_the_other_claims() -> None:
    """Forty parts are delegated to a worker that has seven claims of other buckets: it processes eight
    parts, then these.
    """
    cold = [1, 2, 3, 4, 5, 6, 7]
    probed = Probed(buckets=4096, hot=0, delegate=40)
    found = probed.found([0, *cold, *[0] * 120])
    assert found["delegated"] == 40, "the test did not come to its point"
    assert found["strays"] == 0
    log = found["log"]
    assert log[0] == 0
    first_cold = min(log.index(key) for key in cold)
    assert first_cold <= 8, f"{first_cold} parts of one bucket were processed before the next claim"
