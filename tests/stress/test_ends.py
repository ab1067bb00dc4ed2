"""Every end of a run: no hang, no thread, chunk or reference left over."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from core_threads import together
from stress_tools import (
    SANITIZED,
    SCHEMA,
    STRESS,
    batches,
    difference,
    keyed,
    keyed_rows,
    rows_of,
    size,
    stateless,
    stateless_rows,
    table,
)

import ordstream as od
from ordstream import col

TESTS = Path(__file__).resolve().parent.parent


def script(body: str, *, send: signal.Signals | None = None, timeout: float = 60) -> tuple[int, str, str, float]:
    """Run a script with the tools of these tests; optionally send a signal once it prints "ready".

    Returns (exit status, output, errors, seconds from the signal, or from the start, to the end).
    """
    prelude = "import os, signal, sys, threading, time\nimport ordstream as od\nfrom stress_tools import *\n"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([*sys.path, str(TESTS)]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", prelude + textwrap.dedent(body)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    start = time.perf_counter()
    head = ""
    try:
        if send is not None:
            assert process.stdout is not None
            for line in process.stdout:
                head += line
                if line.strip() == "ready":
                    break
            start = time.perf_counter()
            process.send_signal(send)
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        pytest.fail(f"the script hangs; it printed {head + out!r} and {errors!r}")
    seconds = time.perf_counter() - start
    print(out, errors)  # seen where the test fails
    return process.returncode, head + out, errors, seconds


def until_error(stream: Any) -> tuple[tuple[Any, ...], Exception | None]:
    """(rows read, the error that ended the stream or None)."""
    found: tuple[Any, ...] = ()
    try:
        for batch in stream:
            found += rows_of([batch])
    except od.OrdstreamError as error:
        return found, error
    return found, None


# --- short runs ---------------------------------------------------------------------------------------------------


def test_thousands_of_short_runs() -> None:
    """No leaked thread or chunk, and memory does not grow with the number of runs."""
    pipeline, data, expected = keyed(), table("few", 50), keyed_rows("few", 50)
    process = psutil.Process()

    def runs(n: int) -> None:
        for i in range(n):
            result = pipeline.run(data, workers=i % 3, chunk_rows=(1, 7, None)[i % 3], reorder=("nonblocking", "lock")[i % 2])
            assert rows_of(result.batches) == expected
            assert result.report.leaked_chunks == 0

    total = int(os.environ.get("ORDSTREAM_SHORT_RUNS", "500"))
    runs(total // 5)
    gc.collect()
    before = process.memory_info().rss
    runs(total - total // 5)
    gc.collect()
    grown = process.memory_info().rss - before
    assert threading.active_count() == 1 or not [t for t in threading.enumerate() if t.name.startswith("ordstream")]
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
    streams = [keyed().stream(batches("zipf", n, 100), workers=w, chunk_rows=10) for w in (0, 1, 2)]
    rows: list[list[Any]] = [[] for _ in streams]
    live = set(range(3))
    while live:
        for i in sorted(live):
            batch = next(streams[i], None)
            if batch is None:
                live.discard(i)
            else:
                rows[i].extend(rows_of([batch]))
    for found in rows:
        assert difference(tuple(found), keyed_rows("zipf", n)) is None


# --- cancel, drop, error ------------------------------------------------------------------------------------------


def test_cancel_at_random_moments() -> None:
    """cancel() from another thread: the reader gets Cancelled or the end; what it had is a prefix; nothing is left."""
    rng = random.Random(1)
    n = size(20_000)
    expected = keyed_rows("zipf", n)
    cancelled = 0
    for i in range(40):
        stream = keyed().stream(batches("zipf", n, 500), workers=(1, 2, 8)[i % 3], chunk_rows=(1, 20, None)[i % 3])
        timer = threading.Timer(rng.random() * 0.03, stream.cancel)
        timer.start()
        found, error = until_error(stream)
        timer.join()
        assert error is None or isinstance(error, od.Cancelled)
        cancelled += error is not None
        assert found == expected[: len(found)]
        assert stream.report.leaked_chunks == 0
    assert cancelled > 5


@pytest.mark.parametrize("workers", [0, 2])
def test_cancel_while_the_run_ends(workers: int) -> None:
    """Another thread calls cancel and progress all the time, also while the reader closes the run and after."""
    for _ in range(100):
        stream = stateless().stream(table("few", 2_000), workers=workers)
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


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
@pytest.mark.parametrize("how", ["close", "del", "with", "never started"])
def test_stream_dropped_half_way(workers: int, how: str) -> None:
    n = size(30_000)
    for i in range(10):
        stream = keyed().stream(batches("zipf", n, 300), workers=workers, chunk_rows=(1, 20, None)[i % 3], max_ready=1 + i)
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
        released.wait(20)

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
        assert time.perf_counter() - start < 2
    finally:
        released.set()
        deadline = time.perf_counter() + 5
        while [t for t in threading.enumerate() if t.name.startswith("ordstream")] and time.perf_counter() < deadline:
            time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_source_fails_at_a_random_batch(workers: int) -> None:
    """Everything before the failing batch is delivered, then SourceError with the cause; nothing after."""
    rng = random.Random(workers)
    n = size(4_000)
    for i in range(15):
        parts = batches("zipf", n, 100)
        at = rng.randrange(len(parts) + 1)

        def source(parts: list[pa.RecordBatch] = parts, at: int = at) -> Iterator[pa.RecordBatch]:
            yield from parts[:at]
            raise ZeroDivisionError(at)

        stream = keyed().stream(source(), workers=workers, chunk_rows=(1, 30, None)[i % 3], depth=4)
        found, error = until_error(stream)
        assert isinstance(error, od.SourceError)
        assert isinstance(error.__cause__, ZeroDivisionError)
        expected = keyed_rows("zipf", n)[: len(found)]
        assert found == expected
        whole = keyed().run(pa.Table.from_batches(parts[:at], SCHEMA), workers=0)
        assert len(found) == whole.table.num_rows
        assert stream.report.leaked_chunks == 0
        assert stream.report.emitted_through == sum(part.num_rows for part in parts[:at])


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
@pytest.mark.parametrize("chunk_rows", [1, 8, None])
def test_operator_fails_at_every_kind_of_place(workers: int, chunk_rows: int | None) -> None:
    """Outputs before the failing serial are delivered, none after; the error names it; emitted_through is the serial before."""
    n = 400
    for at in (0, 1, 7, 8, 63, 64, 65, 200, n - 1):
        pipeline = od.Pipeline(SCHEMA).with_columns(q=100_000 // (col("v") - at)).key_by("k").scan(total=od.sum("q"))
        stream = pipeline.stream(table("few", n), workers=workers, chunk_rows=chunk_rows, depth=4)
        found, error = until_error(stream)
        assert isinstance(error, od.OperatorError)
        assert error.serial == at + 1
        assert len(found) == at
        assert stream.report.leaked_chunks == 0
        assert stream.report.emitted_through == at


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_exceptions_of_later_rows_are_dropped(workers: int) -> None:
    """Every row fails in a Python operator behind another one: only the first error is raised, the others are freed."""
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
                pipeline.run(table("few", 300), workers=workers, chunk_rows=chunk_rows)
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


# --- back-pressure, idleness --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_slow_sink_stops_the_source(workers: int) -> None:
    """An endless source and a reader that sleeps: what was pulled stays near what was read."""
    part = batches("zipf", 1_000, 1_000)[0]
    pulled = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal pulled
        while True:
            pulled += 1
            yield part

    process = psutil.Process()
    stream = stateless().stream(source(), workers=workers, max_ready=2, max_chunks=4, chunk_rows=100)
    next(stream)
    time.sleep(0.1)
    before, at_start = process.memory_info().rss, pulled
    for _ in range(5):
        time.sleep(0.05)
        next(stream)
    read = stream.progress()[2]
    stream.close()
    # A finished batch holds at most 64 k rows; the reader took six of them.
    assert pulled * 1_000 - read <= 1_000 * 60 + 4 * 65_536, (pulled, read)
    assert pulled - at_start < 1_000
    assert SANITIZED or process.memory_info().rss - before < 100 << 20


def test_slow_sink_memory_is_bounded() -> None:
    """256 MiB of input behind a cap of 16 MiB: memory stays below a small multiple of the cap."""
    total = int((256 << 20) * STRESS) if not SANITIZED else 32 << 20
    rows = 65_536
    column = pa.array(range(rows), pa.int64())
    process = psutil.Process()
    before = process.memory_info().rss
    peak = 0

    def source() -> Iterator[pa.RecordBatch]:
        for _ in range(total // (rows * 16)):
            yield pa.record_batch([column, pa.array(range(rows), pa.int64())], schema=SCHEMA)

    count = 0
    for i, batch in enumerate(stateless().stream(source(), workers=2, max_bytes=16 << 20, max_ready=2)):
        count += batch.num_rows
        if i % 8 == 0:
            time.sleep(0.01)
            peak = max(peak, process.memory_info().rss - before)
    assert count == total // (rows * 16) * sum(v % 3 != 0 for v in range(rows))
    if not SANITIZED:  # the sanitizers keep freed memory for a while
        assert peak < 128 << 20, f"{peak >> 20} MiB"


@pytest.mark.parametrize("workers", [2, 8])
def test_idle_stream_uses_no_processor(workers: int) -> None:
    """An open stream whose source blocks, its reader waiting: under 1 % of one core."""
    released = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield batches("few", 100, 100)[0]
        released.wait(60)

    stream = keyed().stream(source(), workers=workers)
    next(stream)
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    time.sleep(0.3)
    used = 1.0
    for _ in range(3):  # other load makes each wake-up dearer
        start = time.process_time()
        time.sleep(3)
        used = min(used, (time.process_time() - start) / 3)
        if used < 0.005:
            break
    released.set()
    reader.join(20)
    assert not reader.is_alive()
    assert used < (0.05 if SANITIZED else 0.01), f"{used:.2%} of a core"


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_tuple_now_and_then_is_not_delayed(workers: int) -> None:
    """Gaps of 0 to 15 ms between tuples: parked workers wake at once (a lost wake-up costs a timed wait of 20 ms)."""
    rng = random.Random(5)
    sent: list[float] = []

    def source() -> Iterator[pa.RecordBatch]:
        for part in batches("few", round(60 * STRESS), 1):
            time.sleep(rng.random() * 0.015)
            sent.append(time.perf_counter())
            yield part

    delays = []
    pipeline = od.Pipeline(SCHEMA).filter(col("v") >= 0).key_by("k").count().filter(col("count") >= 0)
    for batch in pipeline.stream(source(), workers=workers):
        now = time.perf_counter()
        delays.extend(now - at for at in sent[len(delays) : len(delays) + batch.num_rows])
    assert len(delays) == len(sent)
    delays.sort()
    assert delays[len(delays) // 2] < 0.02, delays
    assert delays[-1] < 0.5, delays


# --- several threads around one stream, in a process of their own: a crash must not end the suite --------------------


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_cancel_between_slow_tuples_taken_together(workers: int) -> None:
    """Tuple at a time, many tuples wait, each takes 0.1 s: a cancel waits for one of them, not for all that were taken."""

    def slow(row: Any) -> bool:
        time.sleep(0.1)
        return True

    stream = od.Pipeline(SCHEMA).filter(slow).stream(table("few", 500), workers=workers, chunk_rows=1)
    timer = threading.Timer(0.25, stream.cancel)
    timer.start()
    start = time.perf_counter()
    with pytest.raises(od.Cancelled):
        list(stream)
    assert time.perf_counter() - start < (5 if SANITIZED else 1.2)
    timer.join()
    assert stream.report.leaked_chunks == 0


def test_two_threads_close() -> None:
    status, out, errors, _ = script(
        """
        for _ in range(200):
            stream = stateless().stream(table("few", 20_000), workers=2, chunk_rows=1)
            next(stream, None)
            together = threading.Barrier(4)
            threads = [threading.Thread(target=lambda: (together.wait(), stream.close())) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert stream.report.leaked_chunks == 0
        print("done")
        """
    )
    assert (status, errors, out.strip()) == (0, "", "done")


@pytest.mark.parametrize("workers", [0, 2])
def test_close_while_another_thread_reads(workers: int) -> None:
    """The reader waits for output, or is just taking some; another thread closes the stream: the reader's loop ends."""
    status, out, errors, _ = script(
        f"""
        for i in range(20):
            released = threading.Event()
            def source():
                yield from batches("few", 300, 3)
                if {workers} > 0:
                    released.wait(20)
            stream = stateless().stream(source(), workers={workers}, chunk_rows=1)
            def read():
                try:
                    list(stream)
                except od.OrdstreamError:
                    pass
            reader = threading.Thread(target=read)
            reader.start()
            time.sleep(0.001 * (i % 20))
            stream.close()
            released.set()
            reader.join(20)
            assert not reader.is_alive()
        print("done")
        """
    )
    assert (status, errors, out.strip()) == (0, "", "done")


# --- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2, 8])
def test_ctrl_c(workers: int) -> None:
    """KeyboardInterrupt within a second; threads are gone; a second run works."""
    status, out, errors, seconds = script(
        f"""
        def source():
            part = batches("zipf", 1000, 1000)[0]
            while True:
                yield part
        try:
            for i, batch in enumerate(keyed().stream(source(), workers={workers})):
                if i == 0:
                    print("ready", flush=True)
        except KeyboardInterrupt:
            left = [t.name for t in threading.enumerate() if t.name.startswith("ordstream")]
            again = rows_of(keyed().run(table("few", 500), workers=2).batches) == keyed_rows("few", 500)
            print("interrupted", left, again, flush=True)
            sys.exit(7)
        """,
        send=signal.SIGINT,
    )
    assert (status, errors) == (7, "")
    assert "interrupted [] True" in out
    assert seconds < (10 if SANITIZED else 2)


def test_ctrl_c_while_the_source_blocks() -> None:
    """Uncaught, the source asleep: the process ends by the interrupt within a second or so."""
    status, _, errors, seconds = script(
        """
        def source():
            yield batches("few", 10, 10)[0]
            time.sleep(1000)
        for batch in stateless().stream(source(), workers=2):
            print("ready", flush=True)
        """,
        send=signal.SIGINT,
    )
    assert status in (1, 130, -signal.SIGINT)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in errors
    assert seconds < (10 if SANITIZED else 2)


@pytest.mark.parametrize("workers", [0, 2, 8])
@pytest.mark.parametrize("state", ["fresh", "running", "parked"])
def test_interpreter_exits_with_an_open_stream(workers: int, state: str) -> None:
    """Exit status 0 and nothing on stderr, whatever the workers are doing."""
    status, _, errors, seconds = script(
        f"""
        data = batches("zipf", 200_000, 1000)
        stream = keyed().stream(iter(data), workers={workers}, chunk_rows=1, max_ready=1)
        if "{state}" != "fresh":
            next(stream)
        if "{state}" == "parked":
            time.sleep(0.3)
        """
    )
    assert (status, errors) == (0, "")
    assert seconds < 30


def test_exit_from_a_thread_with_an_open_stream_and_a_blocked_source() -> None:
    status, _, errors, seconds = script(
        """
        def source():
            yield batches("few", 10, 10)[0]
            time.sleep(1000)
        stream = stateless().stream(source(), workers=2)
        next(stream)
        """
    )
    assert (status, errors) == (0, "")
    assert seconds < 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.skipif(SANITIZED, reason="a sanitizer's runtime does not survive a fork with threads")
def test_fork() -> None:
    """Before the start: parent and child both run it. After: the child gets an error, may drop it, and makes its own."""
    status, out, errors, _ = script(
        """
        data = table("zipf", 3000)
        ok = lambda found: difference(rows_of(found), keyed_rows("zipf", 3000)) is None
        stream = keyed().stream(data, workers=2, chunk_rows=1)
        pid = os.fork()
        assert ok(keyed().run(data, workers=2).batches)
        try:
            assert pid == 0 or ok(list(stream))
        except RuntimeError as error:
            print("before", error, flush=True)
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        stream = keyed().stream(iter(batches("zipf", 3000, 10)), workers=2, chunk_rows=1, max_ready=1)
        next(stream)
        time.sleep(0.2)
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            try:
                list(stream)
            except RuntimeError as error:
                assert "fork" in str(error)
                del stream
                assert ok(keyed().run(data, workers=2).batches)
                sys.exit(0)
            sys.exit(3)
        stream.close()
        status = os.waitpid(pid, 0)[1]
        print("child", status)
        """
    )
    assert (status, errors) == (0, "")
    assert "child 0" in out


def test_oracle_notices() -> None:
    """The comparison can fail: one row swapped, one lost, one changed."""
    rows = stateless_rows("few", 100)
    assert difference(rows, rows) is None
    for wrong in (rows[:5] + rows[6:5:-1] + rows[7:], rows[:-1], rows[:9] + ((0, 0),) + rows[10:]):
        assert difference(wrong, rows) is not None
