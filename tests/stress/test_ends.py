"""Every end of a run: no hang, no thread, chunk or reference left over. What needs a process of its own
is in test_process_ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import psutil
import pyarrow as pa
import pytest
from core_threads import together
from patience import measured, patiently
from stress_tools import (
    SANITIZED,
    SCHEMA,
    batches,
    difference,
    keyed,
    keyed_rows,
    rows_of,
    size,
    staffed,
    stateless,
    stateless_rows,
    table,
)

import ordstream as od
from ordstream import col
from ordstream.node import worker_threads


def until_error(stream: Any) -> tuple[tuple[Any, ...], Exception | None]:
    """(rows read, the error that ended the stream or None)."""
    found: tuple[Any, ...] = ()
    try:
        for batch in stream:
            found += rows_of([batch])
    except od.OrdstreamError as error:
        return found, error
    return found, None


# --- short runs -----------------------------------------------------------------------------------


def test_thousands_of_short_runs() -> None:
    """No leaked thread or chunk, and memory does not grow with the number of runs."""
    pipeline, data, expected = keyed(), table("few", 50), keyed_rows("few", 50)
    process = psutil.Process()

    def runs(n: int) -> None:
        for i in range(n):
            options = staffed((0, 1, 2, "auto")[i % 4], i)
            result = pipeline.run(
                data, **options, chunk_rows=(1, 7, None)[i % 3], reorder=("nonblocking", "lock")[i // 2 % 2]
            )
            assert rows_of(result.batches) == expected
            assert result.report.leaked_chunks == 0

    total = int(os.environ.get("ORDSTREAM_SHORT_RUNS", "500"))
    runs(total // 5)
    gc.collect()
    before = process.memory_info().rss
    runs(total - total // 5)
    gc.collect()
    grown = process.memory_info().rss - before
    assert not [t for t in threading.enumerate() if t.name.startswith("ordstream")]
    assert grown < (64 << 20 if SANITIZED else 8 << 20), f"{grown >> 10} KiB more after {total} runs"


def test_two_nodes_in_two_threads() -> None:
    """Two runs at once in one process, each from a thread of its own, do not disturb each other."""
    n = size(5_000)

    def node(kind: str) -> list[str | None]:
        found = []
        for i in range(5):
            result = keyed().run(table(kind, n), workers=2, chunk_rows=(1, 50, None)[i % 3], slice_us=5.0)
            found.append(difference(rows_of(result.batches), keyed_rows(kind, n)))
        return found

    assert together(lambda: node("zipf"), lambda: node("few")) == [[None] * 5] * 2


def test_streams_interleaved_in_one_thread() -> None:
    n = size(3_000)
    streams = [
        keyed().stream(batches("zipf", n, 100), **staffed(w), chunk_rows=10) for w in (0, 1, 2, "auto")
    ]
    rows: list[list[Any]] = [[] for _ in streams]
    live = set(range(4))
    while live:
        for i in sorted(live):
            batch = next(streams[i], None)
            if batch is None:
                live.discard(i)
            else:
                rows[i].extend(rows_of([batch]))
    for found in rows:
        assert difference(tuple(found), keyed_rows("zipf", n)) is None


# --- cancel, drop, error --------------------------------------------------------------------------


def test_cancel_at_random_moments() -> None:
    """cancel() from another thread: the reader gets Cancelled or the end; what it had is a prefix;
    nothing is left.
    """
    rng = random.Random(1)
    n = size(20_000)
    expected = keyed_rows("zipf", n)
    cancelled = 0
    whole: dict[tuple[Any, ...], float] = {}  # seconds of a run to its end
    for i in range(40):
        kind = workers, rows = (1, 2, 8, "auto")[i % 4], (1, 20, None)[i % 3]
        if kind not in whole:
            whole[kind] = (
                keyed().run(batches("zipf", n, 500), **staffed(workers, i), chunk_rows=rows).report.seconds
            )
        stream = keyed().stream(batches("zipf", n, 500), **staffed(workers, i), chunk_rows=rows)
        timer = threading.Timer(rng.random() * whole[kind], stream.cancel)
        timer.start()
        found, error = until_error(stream)
        timer.join()
        assert error is None or isinstance(error, od.Cancelled)
        cancelled += error is not None
        assert found == expected[: len(found)]
        assert stream.report.leaked_chunks == 0
    assert cancelled > 5, cancelled


@pytest.mark.parametrize("workers", [0, 2, "auto"])
def test_cancel_while_the_run_ends(workers: Any) -> None:
    """Another thread calls cancel and progress all the time, also while the reader closes the run and
    after.
    """
    for _ in range(100):
        stream = stateless().stream(table("few", 2_000), **staffed(workers))
        gone = threading.Event()

        def hammer(stream: Any = stream, gone: threading.Event = gone) -> None:
            next_to_last = False
            while not next_to_last:
                next_to_last = gone.is_set()
                stream.cancel()
                stream.progress()

        thread = threading.Thread(target=hammer)
        thread.start()
        until_error(stream)
        stream.close()
        gone.set()
        thread.join()
        assert stream.report.leaked_chunks == 0


@pytest.mark.parametrize("workers", [0, 1, 2, 8, "auto"])
@pytest.mark.parametrize("how", ["close", "del", "with", "never started"])
@pytest.mark.thin(5)
def test_stream_dropped_half_way(workers: Any, how: str) -> None:
    n = size(30_000)
    for i in range(10):
        stream = keyed().stream(
            batches("zipf", n, 300), **staffed(workers), chunk_rows=(1, 20, None)[i % 3], max_ready=1 + i
        )
        if how != "never started":
            for _ in range(1 + i % 3):
                next(stream, None)
        if how == "del":
            reference = weakref.ref(stream)
            del stream
            gc.collect()
            assert reference() is None
        elif how == "with":
            with contextlib.suppress(KeyError), stream:
                raise KeyError
            assert stream.report.leaked_chunks == 0
        else:
            stream.close()
            stream.close()
            assert stream.report.leaked_chunks == 0
            assert list(stream) == []


def test_stream_dropped_while_its_source_blocks() -> None:
    """The feeding thread waits in the source: the dropped stream must end its workers all the same."""
    released = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield batches("few", 10, 10)[0]
        released.wait(30)

    stream = stateless().stream(source(), workers=2)
    next(stream)
    reference = weakref.ref(stream)
    start = time.perf_counter()
    try:
        del stream
        gc.collect()
        assert reference() is None
        workers = [t.name for t in threading.enumerate() if t.name.startswith("ordstream-worker")]
        assert not workers
        assert time.perf_counter() - start < 10  # the source blocks for 30
    finally:
        released.set()
        deadline = time.perf_counter() + 30
        while [
            t for t in threading.enumerate() if t.name.startswith("ordstream")
        ] and time.perf_counter() < deadline:
            time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 1, 2, 8, "auto"])
def test_source_fails_at_a_random_batch(workers: Any) -> None:
    """Everything before the failing batch is delivered, then SourceError with the cause; nothing after."""
    rng = random.Random(str(workers))
    n = size(4_000)
    for i in range(15):
        parts = batches("zipf", n, 100)
        at = rng.randrange(len(parts) + 1)

        def source(parts: list[pa.RecordBatch] = parts, at: int = at) -> Iterator[pa.RecordBatch]:
            yield from parts[:at]
            raise ZeroDivisionError(at)

        stream = keyed().stream(source(), **staffed(workers), chunk_rows=(1, 30, None)[i % 3], depth=4)
        found, error = until_error(stream)
        assert isinstance(error, od.SourceError)
        assert isinstance(error.__cause__, ZeroDivisionError)
        expected = keyed_rows("zipf", n)[: len(found)]
        assert found == expected
        whole = keyed().run(pa.Table.from_batches(parts[:at], SCHEMA), workers=0)
        assert len(found) == whole.table.num_rows
        assert stream.report.leaked_chunks == 0
        assert stream.report.emitted_through.serial == sum(part.num_rows for part in parts[:at])


@pytest.mark.parametrize("workers", [0, 1, 2, 8, "auto"])
@pytest.mark.parametrize("chunk_rows", [1, 8, None])
def test_operator_fails_at_every_kind_of_place(workers: Any, chunk_rows: int | None) -> None:
    """Outputs before the failing serial are delivered, none after; the error names it; emitted_through
    is the serial before.
    """
    n = 400
    for at in (0, 1, 7, 8, 63, 64, 65, 200, n - 1):
        pipeline = (
            od.Pipeline(SCHEMA)
            .with_columns(q=100_000 // (col("v") - at))
            .key_by("k")
            .scan(total=od.sum("q"))
        )
        stream = pipeline.stream(table("few", n), **staffed(workers), chunk_rows=chunk_rows, depth=4)
        found, error = until_error(stream)
        assert isinstance(error, od.OperatorError)
        assert error.serial == at + 1
        assert len(found) == at
        assert stream.report.leaked_chunks == 0
        assert stream.report.emitted_through == od.OrderTag(at, 0 if at else -1)


@pytest.mark.parametrize("workers", [1, 2, 4, "auto"])
def test_exceptions_of_later_rows_are_dropped(workers: Any) -> None:
    """Every row fails in a Python operator behind another one: only the first error is raised, the
    others are freed.
    """
    alive: list[Any] = []

    class Failed(Exception):
        pass

    def fail(row: Any) -> bool:
        error = Failed(row)
        alive.append(weakref.ref(error))
        raise error

    pipeline = od.Pipeline(SCHEMA).filter(col("v") >= 0).filter(fail)
    for chunk_rows in (1, 5):
        for _ in range(5):
            with pytest.raises(od.OperatorError) as caught:
                pipeline.run(table("few", 300), **staffed(workers), chunk_rows=chunk_rows)
            assert caught.value.serial == 1
            del caught
    gc.collect()
    assert alive
    assert sum(reference() is not None for reference in alive) == 0


def test_sink_fails() -> None:
    """The reader raises in its own loop: with `with`, everything is given back at once."""
    stream = keyed().stream(batches("zipf", size(20_000), 100), workers=2, chunk_rows=1)
    with contextlib.suppress(KeyError), stream:
        next(stream)
        raise KeyError
    assert stream.report.leaked_chunks == 0


@pytest.mark.parametrize("workers", [0, 1, 2, "auto"])
def test_cancel_between_slow_tuples_taken_together(workers: Any) -> None:
    """Tuple at a time, many tuples wait, each takes 0.1 s: a cancel waits for one of them, not for all
    that were taken.
    """

    def slow(row: Any) -> bool:
        time.sleep(0.1)
        return True

    def check() -> None:
        stream = od.Pipeline(SCHEMA).filter(slow).stream(table("few", 500), **staffed(workers), chunk_rows=1)
        timer = threading.Timer(0.25, stream.cancel)
        timer.start()
        start = time.perf_counter()
        with pytest.raises(od.Cancelled):
            list(stream)
        seconds = time.perf_counter() - start
        timer.join()
        assert stream.report.leaked_chunks == 0
        measured(seconds < (5 if SANITIZED else 1.2), seconds)

    patiently(check)


def test_oracle_notices() -> None:
    """The comparison can fail: one row swapped, one lost, one changed."""
    rows = stateless_rows("few", 100)
    assert difference(rows, rows) is None
    for wrong in (rows[:5] + rows[6:5:-1] + rows[7:], rows[:-1], rows[:9] + ((0, 0),) + rows[10:]):
        assert difference(wrong, rows) is not None


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("interrupted", [0, 1])
def test_ctrl_c_while_a_worker_is_being_started(
    started: bool, interrupted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes inside Thread.start(), before or after the thread exists: it must be out of
    the core before the core goes.
    """
    made = 0

    class Interrupted(worker_threads.RunThread):
        def start(self) -> None:
            nonlocal made
            made += 1
            if made <= interrupted or not self.name.startswith("ordstream-worker"):
                super().start()
                return
            if started:
                super().start()
            raise KeyboardInterrupt

    monkeypatch.setattr(worker_threads, "RunThread", Interrupted)
    stream = keyed().stream(batches("zipf", 20_000, 500), workers=3)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    monkeypatch.undo()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("ordstream-worker")]
    assert stream.report.leaked_chunks == 0
    assert rows_of(keyed().run(table("few", 500), workers=2).batches) == keyed_rows("few", 500)


def test_ctrl_c_inside_pythons_own_start_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while Python waits for the new thread: it is raised once Python knows the thread, not in
    the middle of its bookkeeping.
    """
    places: list[str] = []
    whole = threading.Event.wait

    class Noticed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)  # Python looks for signals between its instructions
            places.append("waited")
            return whole(self, timeout)

    class Interrupted(worker_threads.RunThread):
        def start(self) -> None:
            if self.name.startswith("ordstream-worker"):
                self._started: threading.Event = Noticed()
            super().start()

    monkeypatch.setattr(worker_threads, "RunThread", Interrupted)
    stream = keyed().stream(batches("zipf", 20_000, 500), workers=3)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    monkeypatch.undo()
    assert places == ["waited"]
    assert not [t.name for t in threading.enumerate() if t.name.startswith("ordstream-worker")]
    assert stream.report.leaked_chunks == 0
