"""Back-pressure and idleness: a slow sink stops the source; who has nothing to do costs nothing, and
wakes at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pyarrow as pa
import pytest
from patience import measured, patiently
from stress_tools import SANITIZED, SCHEMA, STRESS, batches, rows_of, staffed, stateless, table

import ordstream as od
from ordstream import col
from ordstream.node.worker_threads import BLOCKED_SOURCE_S


@pytest.mark.parametrize("workers", [0, 1, 2, 8, "auto"])
def test_slow_sink_stops_the_source(workers: Any) -> None:
    """An endless source and a reader that sleeps: what was pulled stays near what was read."""
    part = batches("zipf", 1_000, 1_000)[0]
    pulled = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal pulled
        while True:
            pulled += 1
            yield part

    process = psutil.Process()
    stream = stateless().stream(source(), **staffed(workers), max_ready=2, max_chunks=4, chunk_rows=100)
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


@pytest.mark.parametrize("workers", [8, "auto"])
def test_idle_stream_uses_no_processor_and_wakes_at_once(workers: Any) -> None:
    """An open stream whose source blocks, its reader waiting: under 1 % of one core. Its workers' timed
    waits grow to 0.8 s, and yet a tuple passes at once, and a cancel ends it at once.
    """
    pipeline = od.Pipeline(SCHEMA).filter(col("v") >= 0).key_by("k").count().filter(col("count") >= 0)

    def check() -> None:
        tuples: queue.SimpleQueue[Any] = queue.SimpleQueue()
        found: queue.SimpleQueue[float] = queue.SimpleQueue()
        stream = pipeline.stream(iter(tuples.get, None), **staffed(workers))

        def read() -> None:
            with contextlib.suppress(od.Cancelled):
                for _ in stream:
                    found.put(time.perf_counter())

        reader = threading.Thread(target=read)
        reader.start()
        delays = []
        for part in batches("few", 3, 1):
            time.sleep(0.8)
            sent = time.perf_counter()
            tuples.put(part)
            delays.append(found.get(timeout=60) - sent)
        time.sleep(0.4)
        used = time.process_time()
        time.sleep(2)
        used = (time.process_time() - used) / 2
        cancelled = time.perf_counter()
        stream.cancel()
        reader.join(60)
        ended = time.perf_counter() - cancelled
        tuples.put(None)
        assert not reader.is_alive()
        end = time.perf_counter() + 60
        while [
            t for t in threading.enumerate() if t.name == "ordstream-feeder"
        ] and time.perf_counter() < end:
            time.sleep(0.01)
        assert stream.report.leaked_chunks == 0
        measured(used < (0.05 if SANITIZED else 0.01), f"{used:.2%} of a core")
        measured(sorted(delays)[1] < 0.1, f"delays: {delays} s")
        measured(ended < BLOCKED_SOURCE_S + 0.3, f"{ended} s after the cancel")

    patiently(check)


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_a_slow_operator_cannot_use_wait(workers: int) -> None:
    """Input waits for an operator that is one worker's (a Python function): the others do not spin."""

    def slow(row: Any) -> bool:
        time.sleep(0.02)
        return True

    def check() -> None:
        start, used = time.perf_counter(), time.process_time()
        found = (
            od.Pipeline(SCHEMA)
            .filter(slow)
            .key_by("k")
            .count()
            .run(table("few", 40), workers=workers, chunk_rows=1)
        )
        seconds, used = time.perf_counter() - start, time.process_time() - used
        assert len(rows_of(found.batches)) == 40
        measured(used < (0.8 if SANITIZED else 0.4) * seconds, f"{used} s of processor time in {seconds} s")

    patiently(check)


def test_slow_functions_run_side_by_side_at_once_after_a_pause() -> None:
    """Four workers wait; four tuples come together, each of which takes 0.3 s without the GIL: no worker
    sleeps on beside them.
    """
    times: list[float] = []

    def source() -> Iterator[pa.RecordBatch]:
        yield batches("few", 1, 1)[0]
        while not times:
            time.sleep(0.01)
        time.sleep(1.3)
        yield batches("few", 4, 4)[0]

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    def slow(n: int, call: Any, _: Any) -> int:
        times.append(time.perf_counter())
        time.sleep(0.3)
        return n

    def check() -> None:
        times.clear()
        pipeline = od.Pipeline(SCHEMA).filter(col("v") >= 0).flat_map(slow, schema=SCHEMA, compiled=True)
        assert list(pipeline.stream(source(), workers=4, chunk_rows=1)) == []
        assert len(times) == 5
        measured(times[4] - times[1] < 0.25, times)

    patiently(check)


@pytest.mark.parametrize("workers", [1, 2, 4, "auto"])
def test_a_tuple_now_and_then_is_not_delayed(workers: Any) -> None:
    """Gaps of 0 to 15 ms between tuples: parked workers wake at once (a lost wake-up costs a timed wait
    of 50 ms).
    """
    rng = random.Random(5)
    pipeline = od.Pipeline(SCHEMA).filter(col("v") >= 0).key_by("k").count().filter(col("count") >= 0)

    def check() -> None:
        sent: list[float] = []

        def source() -> Iterator[pa.RecordBatch]:
            for part in batches("few", round(60 * STRESS), 1):
                time.sleep(rng.random() * 0.015)
                sent.append(time.perf_counter())
                yield part

        delays: list[float] = []
        for batch in pipeline.stream(source(), **staffed(workers)):
            now = time.perf_counter()
            delays.extend(now - at for at in sent[len(delays) : len(delays) + batch.num_rows])
        assert len(delays) == len(sent)
        delays.sort()
        measured(delays[len(delays) // 2] < 0.02 and delays[-1] < 0.5, delays)

    patiently(check)


@pytest.mark.parametrize("slow", [1, 2, 3, 5, 8, 13, 50, 3_000])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("operator", ["filter", "map", "process"])
def test_what_is_done_does_not_wait_for_a_function_that_takes_long(
    operator: str, workers: int, slow: int
) -> None:
    """Tuples before it, which are taken and sent several at a time elsewhere, reach the reader while it has
    not returned. At first the runtime takes every function for a quick one."""
    released = threading.Event()
    n = 4_000

    def wait(v: int) -> bool:
        return v != slow or released.wait(200)

    def process(row: Any, state: Any, emit: Any) -> None:
        state.n += wait(row.v)
        emit(row.k, row.v)

    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    source = od.Pipeline(schema)
    pipelines = {
        "filter": lambda: source.filter(lambda row: wait(row.v)),
        "map": lambda: source.filter(od.col("k") >= 0).map(
            lambda row: (row.k, row.v + (not wait(row.v))), schema=schema
        ),
        "process": lambda: source.key_by("k").process(process, schema=schema, state={"n": int}),
    }
    data = pa.table({"k": [v * v % 37 for v in range(n)], "v": list(range(n))}, schema=schema)
    found = []
    end = time.monotonic() + 120
    with pipelines[operator]().stream(data, workers=workers, chunk_rows=1) as stream:
        try:
            while len(found) < slow:  # a reader that would wait for the function hangs here
                assert time.monotonic() < end
                found += next(stream).column("v").to_pylist()
            assert len(found) == slow
        finally:
            released.set()
        for batch in stream:
            found += batch.column("v").to_pylist()
    assert found == list(range(n))


def test_no_run_of_chunks_waits_for_a_quick_function_that_is_slow_once() -> None:
    """A worker takes several chunks of a row at a time where calls are quick. Those that are done were kept
    until the last one was: in 6 of 60 runs the reader waited for the slow one.
    """
    n, late = 4_000, []
    data = pa.table({"v": list(range(n))})

    def run(slow: int) -> None:
        released = threading.Event()

        def wait(row: Any) -> bool:
            if row.v == slow and not released.wait(20):
                late.append(slow)
            return True

        found = 0
        with od.Pipeline(data.schema).filter(wait).stream(data, workers=2, chunk_rows=1) as stream:
            while found < slow:
                found += next(stream).num_rows
            released.set()
            for _ in stream:
                pass

    for slow in range(2_500, 2_500 + 60 * 7, 7):
        run(slow)
    assert not late
