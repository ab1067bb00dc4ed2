"""The promise, 7: what is in flight has a cap, in chunks and in bytes; a slow reader stops the source."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest

import ordstream as od

DATA = pa.table({"i": pa.array(range(20_000), pa.int64()), "key": [i % 5 for i in range(20_000)]})


@contextmanager
def watched(stream):
    """The stream; a run that stands still for long is cancelled, so that the test fails and does not
    hang.
    """
    timer = threading.Timer(120, stream.cancel)
    timer.start()
    try:
        with stream as out:
            yield out
    finally:
        timer.cancel()


def settle(pulled):
    """Wait until the source stands still; how many batches it gave."""
    before = -1
    while pulled[0] != before:
        before = pulled[0]
        time.sleep(0.15)
    return before


@pytest.mark.parametrize("cap", [{"max_chunks": 8}, {"max_bytes": 100_000}])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.thin(3)
def test_a_reader_that_stops_stops_the_source(workers, cap):
    pulled = [0]

    def source():
        for batch in DATA.to_batches(100) * 20:
            pulled[0] += 1
            yield batch

    # Two operators: a worker that is alone can fill the worklist between them while nothing leaves.
    pipeline = od.Pipeline(DATA.schema).key_by("key").scan(n=od.count()).filter(od.col("n") > 0)
    with watched(pipeline.stream(source(), workers=workers, chunk_rows=10, max_ready=2, **cap)) as out:
        rows = len(next(out))
        stood = settle(pulled)
        assert stood < 3_000, "the source ran to its end while nobody read"
        rows += sum(len(batch) for batch in out)
    assert rows == 20 * 20_000
    assert pulled[0] == 20 * 200
    assert out.report.throttled > 0


@pytest.mark.parametrize("max_chunks", [1, 2, 5])
def test_chunks_in_flight(how, max_chunks):
    """With one chunk in flight nothing waits anywhere, and the run still ends."""
    pipeline = od.Pipeline(DATA.schema).filter(od.col("i") >= 0).key_by("key").scan(n=od.count())
    data = DATA.slice(0, 200)
    out = pipeline.run(data, chunk_rows=3, max_chunks=max_chunks, **how)
    assert out.table["i"].to_pylist() == list(range(200))
    assert all(o.reorder_height <= max_chunks for o in out.report.operators), out.report.operators


@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_larger_than_the_cap_passes(workers, rows):
    """A cap always admits the oldest serial."""
    text = "x" * 100_000
    data = pa.table({"s": [text, "y", text, "z", text]})
    pipeline = od.Pipeline(data.schema).filter(od.col("s") != "no").key_by("s").scan(n=od.count())
    with watched(pipeline.stream(data, workers=workers, chunk_rows=rows, max_bytes=1, max_chunks=1)) as out:
        assert [row["n"] for batch in out for row in batch.to_pylist()] == [1, 1, 2, 1, 3]
