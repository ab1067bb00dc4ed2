"""Output equals the plain Python oracle, unsorted, whatever is forced: laps of tiny rings, full queues, hot
keys, more threads than cores, every scheduler (a random one too), both reorder schemes, all partitioning
schemes, every chunk size."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from patience import measured, patiently
from stress_tools import (
    PARTITIONINGS,
    REORDERS,
    SANITIZED,
    SCHEDULERS,
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


def verify(kind: str, n: int, data: Any = None, **options: Any) -> Any:
    stream = keyed().stream(table(kind, n) if data is None else data, partial=False, **options)
    stuck = threading.Timer(60, stream.cancel)  # then Cancelled is raised: a failure instead of a hang
    stuck.start()
    try:
        found = rows_of(list(stream))
    finally:
        stuck.cancel()
        stuck.join()
    report = stream.report
    assert difference(found, keyed_rows(kind, n)) is None, options
    assert report.leaked_chunks == 0
    assert report.tuples == n
    assert report.emitted_through.serial == n
    return report


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("partitioning", PARTITIONINGS)
@pytest.mark.parametrize("reorder", REORDERS)
def test_every_combination(scheduler: str, partitioning: str, reorder: str) -> None:
    """Rings of two to four cells, slices of one tuple, chunks of 1, 3 and the automatic size, 1 to 8
    workers.
    """
    n = size(900)
    for seed, (chunk_rows, workers) in enumerate(itertools.product([1, 3, None], [1, 3, 8, "auto"])):
        verify(
            "zipf", n, scheduler=scheduler, partitioning=partitioning, reorder=reorder,
            chunk_rows=chunk_rows, depth=2 if seed % 2 else 4, slice_us=0.5, buckets=(1, 3, 16)[seed % 3],
            **(staffed(workers) | {"seed": seed + 1}),
        )  # fmt: skip


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("reorder", REORDERS)
@pytest.mark.parametrize("kind", ["one", "zipf"])
def test_parts_claimed_and_sent_together(kind: str, scheduler: str, reorder: str) -> None:
    """Slices long enough for the most claims at once, and queues long enough to leave something for
    others.
    """
    n = size(6_000)
    for seed, (chunk_rows, workers) in enumerate(itertools.product([1, 3, 16], [2, 4, 8, "auto"])):
        verify(
            kind, n, scheduler=scheduler, reorder=reorder, chunk_rows=chunk_rows, slice_us=1_000.0,
            buckets=(3, 64)[seed % 2], **staffed(workers),
        )  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1, 2, 4, 8, "auto"])
@pytest.mark.parametrize("kind", ["one", "few", "many", "zipf"])
@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_keys(workers: Any, kind: str, partitioning: str) -> None:
    """One hot key; no key twice; Zipf."""
    for chunk_rows, slice_us in ((1, 1.0), (64, 100.0), (None, 20.0)):
        verify(
            kind,
            size(3_000),
            **staffed(workers),
            partitioning=partitioning,
            chunk_rows=chunk_rows,
            slice_us=slice_us,
        )


@pytest.mark.parametrize("reorder", REORDERS)
@pytest.mark.parametrize("depth", [2, 3, 64])
def test_laps_of_tiny_rings(reorder: str, depth: int) -> None:
    """10,000 tickets through rings of two cells."""
    n = size(10_000)
    expected = stateless_rows("few", n)
    for workers in (1, 2, 8, "auto"):
        result = stateless().run(
            table("few", n), **staffed(workers), chunk_rows=1, depth=depth, reorder=reorder
        )
        assert difference(rows_of(result.batches), expected) is None
        assert result.report.leaked_chunks == 0
        assert result.report.chunks >= n


@pytest.mark.parametrize(
    "caps",
    [
        {"max_chunks": 1}, {"max_chunks": 2}, {"max_ready": 1}, {"max_bytes": 1}, {"max_bytes": 100_000},
        {"max_chunks": 2, "max_ready": 1, "depth": 2}, {"max_chunks": 1, "max_ready": 1, "max_bytes": 1,
                                                        "depth": 2},
    ],
    ids=lambda caps: "-".join(f"{k}={v}" for k, v in caps.items()),
)  # fmt: skip
@pytest.mark.parametrize("workers", [0, 1, 2, 8, "auto"])
def test_tiny_caps(caps: dict[str, int], workers: Any) -> None:
    """Every cap admits the oldest tuple: tiny ones are slow, never stuck."""
    for chunk_rows in (1, None):
        verify("few", size(1_500), **staffed(workers), chunk_rows=chunk_rows, **caps)


@pytest.mark.parametrize("rows", [1, 7, 1_000])
@pytest.mark.parametrize("workers", [0, 2, 8, "auto"])
def test_small_batches(rows: int, workers: Any) -> None:
    """Many batches from a list and from an iterator: input is released in time, nothing waits for a
    clock (50 ms a time).
    """
    n = size(300) if rows == 1 else size(3_000)

    def check() -> None:
        for data in (batches("zipf", n, rows), iter(batches("zipf", n, rows))):
            seconds = verify("zipf", n, data, **staffed(workers)).seconds
            measured(seconds < (10 if SANITIZED else 3), seconds)

    patiently(check)


def test_reorder_buffer_was_used() -> None:
    """The tests above would prove little if outputs always came in order."""
    n = size(20_000)
    highest = 0
    for seed in range(20):
        result = keyed().run(
            table("zipf", n), workers=8, chunk_rows=1, slice_us=5.0, scheduler="random", seed=seed + 1
        )
        assert difference(rows_of(result.batches), keyed_rows("zipf", n)) is None
        highest = max(highest, *(operator.reorder_height for operator in result.report.operators))
        if highest >= 2:
            return
    pytest.fail(f"no output ever waited for an earlier one (height {highest})")


def test_punctuations_overtake_nothing() -> None:
    """Snapshot markers, several in flight, through every kind of operator; the output stays the same."""
    n = size(3_000)
    for workers, every in itertools.product((0, 2, 8, "auto"), (1, 10, 1_000)):
        report = verify(
            "zipf", n, **staffed(workers), snapshot_every=every, chunk_rows=7, depth=4, slice_us=2.0
        )
        assert report.snapshot_markers == (n - 1) // every
