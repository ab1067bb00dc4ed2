"""The promise, 7, in bytes: one cap from the first input batch to the last output batch that nobody has
taken, for rows of any width.

Batches end where 32-bit offsets or memory do, also in the middle of a chunk; what they hold, in which order,
does not depend on it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordstream as od
from ordstream._core.lab.testing_run import set_offset_limit
from ordstream.node import source
from ordstream.reference.run_serial import run_serial

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("k", pa.int64()),
        ("s", pa.string()),
        ("l", pa.list_(pa.float64())),
        ("n", pa.list_(pa.int32())),
    ]
)
LEAST_BATCH = 64 << 10  # a smaller bound on an output batch is not kept (egress.pyx)


def rows_of_width(seed: int, n: int, width: int, longest: int) -> pa.Table:
    """Rows with strings and lists of random sizes around `width` bytes, at most `longest`; some are
    null, some empty.
    """
    rng = random.Random(seed)

    def text() -> str:
        return chr(97 + rng.randrange(26)) * min(rng.choice([0, 1, width // 2, width, 2 * width]), longest)

    def numbers() -> list[float]:
        return [rng.random() for _ in range(min(rng.randrange(4), longest))]

    return pa.table(
        {
            "i": list(range(n)),
            "k": [rng.randrange(3) for _ in range(n)],
            "s": [None if rng.random() < 0.1 else text() for _ in range(n)],
            "l": [None if rng.random() < 0.1 else numbers() for _ in range(n)],
            "n": [list(range(min(rng.randrange(width), longest))) for _ in range(n)],
        },
        schema=SCHEMA,
    )


def pipelines() -> dict[str, od.Pipeline]:
    start = od.Pipeline(SCHEMA)
    many = pa.schema([("i", pa.int64()), ("s", pa.string())])

    def copies(row: Any) -> Iterator[tuple[int, str | None]]:
        yield from [(row.i, row.s)] * (40 if row.i % 7 == 3 else row.i % 3)

    return {
        "filter": start.filter(od.col("k") != 1),
        "keyed": start.key_by("k").scan(c=od.count()).filter(od.col("c") > 1),
        "explode": start.flat_map(copies, schema=many),
        "explode, keyed": start.flat_map(copies, schema=many).key_by("i").scan(c=od.count()),
        "flush": start.key_by("k").process(flushed, schema=many, init=list, on_flush=flush),
    }


def flushed(row: Any, state: Any, emit: Any) -> None:
    state.append((row.i, row.s))
    if row.i % 5 == 0:
        emit(row.i, row.s)


def flush(key: Any, state: Any, emit: Any) -> None:
    for i, s in state:
        emit(i, s)


@contextmanager
def watched(stream: Any) -> Iterator[Any]:
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


def check(out: Any, expected: Any, slow: random.Random | None = None) -> list[pa.RecordBatch]:
    """Every batch says truly how far it goes, and together they are what a sequential run gives, tags
    included.
    """
    batches, through = [], []
    for batch in out:
        batches.append(batch)
        through.append(out.emitted_through)
        if slow is not None and slow.random() < 0.3:
            time.sleep(0.002)
    assert through == sorted(through)
    for batch, complete in zip(batches[1:], through, strict=False):
        assert od.OrderTag(batch["_serial"][0].as_py(), batch["_index"][0].as_py()) > complete
    table = pa.Table.from_batches(batches, schema=out.schema)
    assert table.drop_columns(["_serial", "_index"]).equals(expected.table)
    assert list(zip(*(table[c].to_pylist() for c in ("_serial", "_index")), strict=True)) == expected.tags
    return batches


WAYS = {
    "workers": st.sampled_from([0, 1, 2, 4]),
    "chunk_rows": st.sampled_from([1, 3, 50, None]),
    "reorder": st.sampled_from(["nonblocking", "lock"]),
    "max_ready": st.sampled_from([None, 1]),
    "partial": st.booleans(),
    "debug": st.booleans(),
}


@given(
    st.integers(0, 1 << 20),
    st.sampled_from(sorted(pipelines())),
    st.sampled_from([1, 4096, 1 << 20]),
    st.sampled_from([20, 1_000, 20_000]),
    st.fixed_dictionaries(WAYS),
)
@settings(max_examples=25, deadline=None)
def test_every_cap_gives_the_same_rows(
    seed: int, name: str, cap: int, width: int, how: dict[str, Any]
) -> None:
    """Caps below any row up to above all rows, a reader that is slow now and then: order, values and
    tags stay, and nothing hangs.
    """
    data = rows_of_width(seed, 120 if width < 5_000 else 40, width, 1 << 20)
    pipeline = pipelines()[name]
    with watched(pipeline.stream(data.to_batches(17), tags=True, max_bytes=cap, **how)) as out:
        check(out, run_serial(pipeline, data), random.Random(seed))


@given(
    st.integers(0, 1 << 20),
    st.sampled_from(sorted(pipelines())),
    st.sampled_from([60, 700, 5_000]),
    st.fixed_dictionaries(WAYS),
)
@settings(max_examples=25, deadline=None)
def test_offsets_that_would_not_fit_end_a_batch(
    seed: int, name: str, limit: int, how: dict[str, Any]
) -> None:
    """With 60 bytes in place of 2 GiB: no column of a batch has more bytes or elements, wherever in a chunk
    a batch must end, and a batch never says of a serial that it is complete while outputs of it come later.
    """
    data = rows_of_width(seed, 120, min(limit // 2, 300), limit // 4)
    pipeline = pipelines()[name]
    expected = run_serial(pipeline, data)
    before = set_offset_limit(limit)
    try:
        with watched(pipeline.stream(data, tags=True, **how)) as out:
            batches = check(out, expected)
    finally:
        set_offset_limit(before)
    for batch in batches:
        for column in batch.columns:
            if pa.types.is_list(column.type):
                assert len(column.flatten()) <= limit
            elif pa.types.is_string(column.type):
                assert sum(len(value or "") for value in column.to_pylist()) <= limit


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("column", ["s", "l", "n"])
def test_a_row_that_no_batch_can_hold_is_named(column: str, workers: int) -> None:
    wide = {"s": "x" * 201, "l": [0.5] * 201, "n": list(range(201))}
    narrow = {"i": 0, "k": 0, "s": "a", "l": [0.25], "n": [1]}
    rows = [narrow | {"i": i} | ({column: wide[column]} if i == 30 else {}) for i in range(60)]
    data = pa.Table.from_pylist(rows, schema=SCHEMA)
    pipeline = od.Pipeline(SCHEMA).filter(od.col("k") == 0, name="last")
    before = set_offset_limit(200)
    found = []
    try:
        with watched(pipeline.stream(data, workers=workers, chunk_rows=7)) as out:
            for batch in out:
                found += batch.column("i").to_pylist()
    except od.OperatorError as error:
        caught = error
    finally:
        set_offset_limit(before)
    assert f"column '{column}' has a value of 201 " in caught.reason
    assert caught.reason.endswith("at most 200")
    assert (caught.serial, caught.operator) == (31, "last")
    assert caught.row == narrow | {"i": 30, column: None}
    assert found == list(range(30))
    assert out.report.emitted_through == od.OrderTag(30, 0)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_what_is_in_flight_stays_below_the_cap(workers: int) -> None:
    """Rows of 1,000 bytes, 40 MiB of them, from a source that gives more at once than the cap, to a reader
    that is slow: by the core's count nothing but a chunk of each worker and one batch is ever above it."""
    cap = 8 << 20
    text = pa.array(["x" * 1_000] * 10_000)
    batch = pa.record_batch({"i": pa.array(range(10_000)), "s": text})
    pipeline = od.Pipeline(batch.schema).filter(od.col("i") >= 0).key_by("i").scan(n=od.count())
    rows = 0
    with watched(pipeline.stream(iter([batch] * 4), workers=workers, max_bytes=cap)) as out:
        for found in out:
            assert found.nbytes <= cap // 8 + (64 << 10)
            rows += found.num_rows
            time.sleep(0.001)
    assert rows == 40_000
    assert out.report.peak_bytes <= cap * 3 // 2


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_input_is_released_although_a_batch_is_always_ready(workers: int) -> None:
    """A reader so slow that it never waits, and a source with a thread of its own: it feeds, and releases
    what was fed."""
    cap = 2 << 20
    batch = pa.record_batch({"i": pa.array(range(1_000)), "s": pa.array(["x" * 1_000] * 1_000)})
    pipeline = od.Pipeline(batch.schema).filter(od.col("i") >= 0).key_by("i").scan(n=od.count())
    rows = 0
    with watched(pipeline.stream((batch for _ in range(40)), workers=workers, max_bytes=cap)) as out:
        for found in out:
            rows += found.num_rows
            time.sleep(0.005)
    assert rows == 40_000
    assert out.report.peak_bytes <= cap * 2


def test_one_tuple_that_makes_more_than_the_cap() -> None:
    """The rows that one tuple makes go out batch by batch, as the reader takes them: beside them there
    is never more than the cap.
    """
    cap = 4 << 20
    schema = pa.schema([("s", pa.string())])
    text = "x" * 10_000
    pipeline = od.Pipeline(schema).flat_map(lambda row: ((text,) for _ in range(2_000)), schema=schema)
    data = pa.table({"s": ["a", "b", "c"]})
    with watched(pipeline.stream(data, workers=2, chunk_rows=1, max_bytes=cap)) as out:
        sizes = [next(out).num_rows]
        before, written = -1, 0
        while written != before:  # until the egress stands still
            before, written = written, out._core.progress()[3]
            time.sleep(0.2)
        assert written <= 3 * max(sizes), (
            "more than a batch that waits, and one that is begun, beside the one that was taken"
        )
        sizes += [batch.num_rows for batch in out]
    assert sum(sizes) == 6_000
    assert max(sizes) * 10_000 <= cap // 8
    assert out.report.peak_bytes < cap + 3 * 2_000 * 10_000 + (16 << 20)


def test_input_is_not_fed_beyond_the_cap() -> None:
    """A core whose workers have not begun is not given the whole source, however few rows it has."""
    pulled = [0]
    batch = pa.record_batch({"s": pa.array(["x" * 100_000] * 10)})

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(100):
            pulled[0] += 1
            yield batch

    pipeline = od.Pipeline(batch.schema).filter(od.col("s") != "no")
    with watched(pipeline.stream(rows(), workers=0, max_bytes=8 << 20)) as out:
        feeder = out._feeder
        while feeder.wants_batch():
            feeder.feed_one()
        assert pulled[0] <= 5
        assert sum(found.num_rows for found in out) == 1_000


def test_parts_of_a_batch() -> None:
    """Slices in order, each of few rows and bytes; a row that takes more is alone."""
    batch = pa.record_batch({"s": ["x" * width for width in (1, 2, 5_000, 3, 4, 10_000, 5, 6, 7)]})
    found = list(source.parts(batch, 4, 100))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]))
    assert all(part.num_rows <= 4 and (part.nbytes <= 100 or part.num_rows == 1) for part in found)
    assert list(source.parts(batch.slice(0, 0), 4, 100)) == []


def test_a_large_array_behind_2_gib() -> None:
    """Slices of an array with 64-bit offsets, of which the last begin where 32 bits do not reach. Its pages
    are never touched but those of the last rows."""
    width = 100 << 20
    offsets = pa.py_buffer(np.arange(24, dtype=np.int64) * width)
    large = pa.LargeStringArray.from_buffers(23, offsets, pa.py_buffer(np.zeros(23 * width, dtype=np.uint8)))
    batch = pa.record_batch({"s": large}).slice(20)
    found = list(source.batches(batch, pa.schema([("s", pa.string())])))
    assert [part.num_rows for part in found] == [1, 1, 1]
    assert [len(part["s"][0].as_buffer()) for part in found] == [width] * 3


def test_a_reader_that_stops_bounds_the_memory_of_the_process() -> None:
    """An endless source of 1,000-byte strings, and a reader that takes one batch and then none: the process
    grows by the cap, 32 MiB, what the C library and the chunks' pool keep beside it, and no more; measured
    when the source stands still."""
    program = """
        import time
        import pyarrow as pa
        import ordstream as od

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        batch = pa.record_batch({"i": pa.array(range(20_000)), "s": pa.array(["x" * 1_000] * 20_000)})
        pulled = 0

        def rows():
            global pulled
            while True:
                pulled += 1
                yield batch

        before = resident()
        pipeline = od.Pipeline(batch.schema).filter(od.col("i") >= 0)
        with pipeline.stream(rows(), workers=2, max_bytes=32 << 20) as out:
            next(out)
            stood = -1
            while stood != pulled:
                stood = pulled
                time.sleep(0.3)
            print(resident() - before, pulled)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    grown, pulled = map(int, done.stdout.split())
    assert grown < (32 + 32) << 20
    assert pulled < 10


@pytest.mark.slow
def test_more_than_2_gib_of_strings() -> None:
    """60,000 rows of 40,000 bytes, to a reader that waits for whole batches."""
    text = pa.array(["x" * 40_000] * 1_000)
    batches = (
        pa.record_batch({"i": pa.array(range(1_000 * k, 1_000 * k + 1_000)), "s": text}) for k in range(60)
    )
    pipeline = od.Pipeline(pa.schema([("i", pa.int64()), ("s", pa.string())])).filter(od.col("i") >= 0)
    rows = 0
    with watched(pipeline.stream(batches, workers=2, partial=False)) as out:
        for batch in out:
            assert batch["i"].to_pylist() == list(range(rows, rows + batch.num_rows))
            assert batch["s"].nbytes <= 64 << 20
            rows += batch.num_rows
    assert rows == 60_000
    assert out.report.peak_bytes < 640 << 20


SHORT = """
    import gc, resource
    import pyarrow as pa
    import ordstream as od

    schema = pa.schema([("s", pa.string())])
    counts = od.Pipeline(schema).aggregate(n=od.count_distinct("s"))

    def rows(n=5_000):
        for first in range(0, 20_000_000, n):
            texts = [f"key-{one}-abcdefghijklmnop" for one in range(first, first + n)]
            yield pa.record_batch({"s": pa.array(texts)}, schema=schema)

    counts.run(next(rows()), workers=0)
    now = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (MIB << 20), resource.RLIM_INFINITY))
    out = counts.stream(rows(), workers=WORKERS)
    try:
        for batch in out:
            pass
    except (MemoryError, RuntimeError) as error:  # or no thread could be started
        found = type(error).__name__
        error = batch = None
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    print(found, out._closed)
    with counts.stream(rows(), workers=WORKERS) as again:
        print("goes on")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds a process by RLIMIT_AS")
@pytest.mark.skipif("ORDSTREAM_SANITIZE" in os.environ, reason="a sanitizer's shadow takes all there is")
@pytest.mark.parametrize(("workers", "mib"), [(0, 200), (2, 190)])
@pytest.mark.thin(1)
def test_a_state_that_takes_all_memory_ends_the_run_and_nothing_else(workers: int, mib: int) -> None:
    """Where not even a chunk for the failure could be made, a pointer of chance was freed; C++ ended the
    process at a worker's first exception; and closing, which needs a little, left the run's memory taken."""
    program = textwrap.dedent(SHORT).replace("WORKERS", str(workers)).replace("MIB", str(mib))
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told, after = done.stdout.splitlines()
    assert told in ("MemoryError True", "OperatorError True", "RuntimeError True", "SourceError True")
    assert (after, done.stderr) == ("goes on", "")


LAST = """
    import ctypes, resource
    import pyarrow as pa
    import ordstream as od
    from ordstream._core.lab.testing_memory_reserve import slices

    batch = pa.record_batch({name: pa.array([1]) for name in "abcdefgh"})
    plan = od.Pipeline(batch.schema).filter(od.col("a") > 0)
    plan.run(batch, workers=0)
    exported = ctypes.create_string_buffer(4096)
    place = ctypes.addressof(exported)
    batch._export_to_c(place)  # what is made once
    get = ctypes.CDLL(None).malloc
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    full = slices()
    now = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 20), resource.RLIM_INFINITY))
    size = 1 << 22
    while size >= 16:
        if not get(size):
            size >>= 1
    batch._export_to_c(place)
    left = slices()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    plan.run(batch, workers=0)
    print(full, left, slices())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds a process by RLIMIT_AS")
@pytest.mark.skipif("ORDSTREAM_SANITIZE" in os.environ, reason="a sanitizer's shadow takes all there is")
def test_arrow_gets_memory_where_there_is_none_for_others() -> None:
    """pyarrow lets C++'s exception out of functions that may not throw: the process ended, in 1 of 40 runs
    whose state took all memory, where a batch was just handed to the core."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(LAST)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    full, left, refilled = map(int, done.stdout.split())
    assert full == refilled == 16
    assert 0 < left < 16


@pytest.mark.skipif(sys.platform != "linux", reason="bounds a process by RLIMIT_AS")
@pytest.mark.skipif("ORDSTREAM_SANITIZE" in os.environ, reason="a sanitizer's shadow takes all there is")
def test_a_state_leaves_the_reserve_to_others() -> None:
    program = textwrap.dedent(SHORT).replace("WORKERS", "0").replace("MIB", "120")
    program = program.split("with counts")[0] + (
        "from ordstream._core.lab.testing_memory_reserve import slices\nprint(slices())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told, left = done.stdout.splitlines()
    assert told in ("MemoryError True", "OperatorError True")
    assert int(left) > 8
