"""workers="auto": the number changes while a run goes on, and nothing else does. test_ends and test_order
run all they have with a number that changes at random; here is what concerns the number itself."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
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


@pytest.mark.parametrize("kind", ["one", "few", "zipf"])
def test_output_does_not_depend_on_the_number(kind: str) -> None:
    """1 to 8 workers, drawn anew every few slices: equal to the plain Python oracle, in order."""
    n = size(60_000)  # a fast run has few slices
    for seed in range(1, 6):
        result = keyed().run(
            table(kind, n), **staffed("auto", seed), chunk_rows=(1, 20, None)[seed % 3], slice_us=10.0
        )
        assert difference(rows_of(result.batches), keyed_rows(kind, n)) is None, seed
        elastic = result.report.elastic
        assert 1 <= elastic.least < elastic.most <= 8
        assert elastic.changes > 10


def test_the_controller_itself() -> None:
    """Long enough for it to try several numbers."""
    n = size(400_000)
    data = table("zipf", n)

    def check(workers: int) -> None:
        result = keyed().run(data, workers="auto", max_workers=workers, chunk_rows=64)
        assert difference(rows_of(result.batches), keyed_rows("zipf", n)) is None
        elastic, report = result.report.elastic, result.report
        assert report.workers == workers
        assert 1 <= elastic.least <= elastic.mean <= elastic.most <= workers
        assert f"of {workers} workers on average" in str(report)
        measured(elastic.most > 1, "it never tried a second worker")

    for workers in (2, 3):
        patiently(lambda workers=workers: check(workers))


def test_a_short_run_starts_one_thread() -> None:
    def check() -> None:
        stream = keyed().stream(table("few", 50), workers="auto", max_workers=8, partial=False)
        names = []
        for _ in stream:
            names = [
                thread.name for thread in threading.enumerate() if thread.name.startswith("ordstream-worker")
            ]
        # on a machine that stands still the run is no short one
        measured(names in ([], ["ordstream-worker-0"]), names)
        measured(stream.report.elastic.most == 1 or SANITIZED, stream.report.elastic)

    patiently(check)


def test_one_allowed_worker_is_a_fixed_number() -> None:
    result = keyed().run(table("few", 500), workers="auto", max_workers=1)
    assert result.report.elastic is None
    assert result.report.workers == 1


def waiting_at_50(released: threading.Event, blocked: threading.Event) -> Callable[[Any], bool]:
    def wait_at_50(row: Any) -> bool:
        if row.v == 50:
            blocked.set()
            assert released.wait(100)
        return True

    return wait_at_50


def read_50(stream: Iterator[pa.RecordBatch], released: threading.Event, blocked: threading.Event) -> None:
    found = 0
    start = time.perf_counter()
    try:
        # a reader that would wait for the function hangs here: its row is released below only
        while found < 50:
            assert time.perf_counter() - start < 60
            found += next(stream).num_rows
        assert blocked.wait(60)
        assert found == 50
    finally:
        released.set()
    found += sum(batch.num_rows for batch in stream)
    assert found == 200


def test_a_function_that_waits_gets_company() -> None:
    """The only active worker sits in a function of the first operator: what has passed it reaches the
    reader all the same.
    """
    released, blocked = threading.Event(), threading.Event()
    function = waiting_at_50(released, blocked)
    pipeline = od.Pipeline(SCHEMA).filter(function).key_by("k").count().filter(col("count") > 0)
    stream = pipeline.stream(table("few", 200), workers="auto", max_workers=4, chunk_rows=1)
    read_50(stream, released, blocked)


@pytest.mark.parametrize("reorder", ["nonblocking", "lock"])
@pytest.mark.parametrize("workers", [1, 2, "auto"])
def test_what_was_written_reaches_a_reader_that_asks_later(workers: int | str, reorder: str) -> None:
    """All workers are in functions when the reader asks: it hands over by itself what they wrote before."""
    released, blocked = threading.Event(), threading.Event()
    function = waiting_at_50(released, blocked)

    def wait_too(row: Any) -> bool:
        return function(row) and (row.v != 51 or released.wait(100))

    pipeline = od.Pipeline(SCHEMA).filter(wait_too)
    stream = pipeline.stream(
        table("few", 200), workers=workers, chunk_rows=1, partial_after=0.1, reorder=reorder
    )
    read_50(stream, released, blocked)


def test_idle_then_burst_then_idle() -> None:
    """A live source: bursts with pauses in between, in order and complete; parked workers outside the
    number cost nothing.
    """
    rng = random.Random(4)
    n = size(60_000)

    def source() -> Iterator[pa.RecordBatch]:
        for i, part in enumerate(batches("zipf", n, 500)):
            if i % 20 == 19:
                time.sleep(rng.random() * 0.05)
            yield part

    for chunk_rows in (None, 16):
        stream = keyed().stream(source(), workers="auto", max_workers=4, chunk_rows=chunk_rows)
        assert difference(rows_of(list(stream)), keyed_rows("zipf", n)) is None
        assert stream.report.leaked_chunks == 0


def test_a_few_tuples_need_one_worker() -> None:
    """An open loop far below what one worker can do settles on one."""
    seconds, rate = 1.5, 2_000
    n = int(seconds * rate)
    arrivals = [round(i * 1e9 / rate) for i in range(n)]

    def check() -> None:
        stream = stateless().stream(table("few", n), workers="auto", max_workers=4, arrivals=arrivals)
        rows = rows_of(list(stream))
        assert difference(rows, stateless_rows("few", n)) is None
        elastic = stream.report.elastic
        measured(SANITIZED or (elastic.last == 1 and elastic.mean < 2), elastic)

    patiently(check)


def test_cancel_while_threads_are_being_started() -> None:
    """close() and the reading thread, which starts workers while the number grows, do not overtake one
    another.
    """
    for i in range(60):
        stream = keyed().stream(
            batches("zipf", size(5_000), 200), **staffed("auto", i + 1), chunk_rows=(1, 20)[i % 2]
        )
        timer = threading.Timer(random.Random(i).random() * 0.01, stream.close)
        timer.start()
        with contextlib.suppress(od.OrdstreamError):
            list(stream)
        timer.join()
        stream.close()
        assert stream.report.leaked_chunks == 0
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("ordstream-worker")]
