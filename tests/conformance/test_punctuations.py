"""The promise, 3 and 6: punctuations pass in order, several may be in flight; the commit point is known."""

from __future__ import annotations

import ctypes
import threading

import pyarrow as pa
import pytest
from property.compare import agree, run_core

import ordstream as od
from ordstream.reference.run_serial import run_serial

N = 400
DATA = pa.table(
    {
        "time": pa.array([i // 3 for i in range(N)], pa.int64()),
        "key": pa.array([i * i % 11 + i // 60 * 5 for i in range(N)], pa.int64()),  # keys come and go
        "i": pa.array(range(N), pa.int64()),
    }
)


def sessions(schema, operators=1):
    pipeline = od.Pipeline(schema)
    for _ in range(operators):
        pipeline = pipeline.key_by("key").scan(od.count().alias(f"n{len(pipeline.schema)}"))
    return pipeline.key_by("key").sessionize("time", 4, ["i"])


@pytest.mark.parametrize("chunk_rows", [1, 7, None])
@pytest.mark.thin(60)
def test_time_punctuations_close_sessions(how, chunk_rows):
    pipeline = sessions(DATA.schema)
    every = od.every("time", 10)
    expected = run_serial(pipeline, DATA, punctuate=every)
    found = run_core(pipeline, DATA, punctuate=every, chunk_rows=chunk_rows, buckets=5, **how)
    agree(pipeline, expected, found)
    assert expected.tags != run_serial(pipeline, DATA).tags, "no session is closed by time"
    assert found.report.time_punctuations == (N - 1) // 3 // 10


def test_several_in_flight(how):
    """A punctuation before almost every tuple, through three partitioned operators."""
    pipeline = sessions(DATA.schema, operators=3)
    every = od.every("time", 1)
    expected = run_serial(pipeline, DATA, punctuate=every)
    for depth in (2, None):
        found = run_core(pipeline, DATA, punctuate=every, chunk_rows=1, depth=depth, buckets=3, **how)
        agree(pipeline, expected, found)
    assert found.report.time_punctuations == (N - 1) // 3


def test_punctuations_reach_every_partitioned_operator(how):
    """The first keyed operator emits nothing at a punctuation; those behind it do."""
    pipeline = (
        od.Pipeline(DATA.schema)
        .key_by("key")
        .scan(n=od.count())
        .key_by("key")
        .count("m")
        .key_by("key")
        .count("k", emit="final")
    )
    expected = run_serial(pipeline, DATA)
    assert len(expected.rows) == len(set(DATA["key"].to_pylist()))
    agree(pipeline, expected, run_core(pipeline, DATA, **how))


def test_on_time_sees_what_came_before(how):
    def fn(row, state, emit):
        state.n += 1

    def on_time(key, state, time, emit):
        emit(time, key, state.n)
        state.n = 0

    schema = {"time": int, "key": int, "n": int}
    pipeline = (
        od.Pipeline(DATA.schema).key_by("key").process(fn, schema=schema, state={"n": int}, on_time=on_time)
    )
    pipeline = pipeline.key_by("key").scan(total=od.sum("n"))
    every = od.every("time", 25)
    expected = run_serial(pipeline, DATA, punctuate=every)
    assert expected.rows
    agree(pipeline, expected, run_core(pipeline, DATA, punctuate=every, chunk_rows=2, **how))


@pytest.mark.parametrize("every", [1, 7, N, N + 1])
def test_snapshot_markers_do_not_show(how, every):
    pipeline = sessions(DATA.schema)
    expected = run_serial(pipeline, DATA)
    found = run_core(pipeline, DATA, snapshot_every=every, chunk_rows=5, **how)
    agree(pipeline, expected, found)
    assert found.report.snapshot_markers in (N // every, (N - 1) // every)


def test_null_and_equal_times_make_no_punctuation(how):
    times = [3, None, 5, 11, None, 11, 12, 35, 35, 36]
    data = pa.table({"time": pa.array(times, pa.int64()), "key": [0] * 10})
    pipeline = (
        od.Pipeline(data.schema).filter(od.col("time").is_not_null()).key_by("key").sessionize("time", 2)
    )
    every = od.every("time", 10)
    found = run_core(pipeline, data, punctuate=every, chunk_rows=1, **how)
    agree(pipeline, run_serial(pipeline, data, punctuate=every), found)
    assert found.report.time_punctuations == 2


class Column(ctypes.Structure):
    """ordstream_column of include/ordstream_kernel.h."""

    _fields_ = (("data", ctypes.POINTER(ctypes.c_int64)), ("valid", ctypes.c_void_p))


class Call(ctypes.Structure):
    """The first fields of ordstream_call."""

    _fields_ = (
        ("version", ctypes.c_int32),
        ("fan_out", ctypes.c_int32),
        ("columns", ctypes.POINTER(Column)),
        ("rows", ctypes.POINTER(ctypes.c_int32)),
    )


@pytest.mark.parametrize("partitioning", ["hybrid", "partitioned"])
@pytest.mark.parametrize("threads", [2, 4])
def test_other_buckets_go_on_while_a_punctuation_waits(threads, partitioning):
    """A tuple of bucket 0 ends only after one of bucket 1 that comes two punctuations later.

    Not so with the shared queue: whatever is behind a busy bucket's tuple in it waits (ordered paper, 4.1).
    """
    released = threading.Event()
    answers = []

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    def native(n, call, _):
        call = ctypes.cast(call, ctypes.POINTER(Call)).contents
        for k in range(n):
            key = call.columns[0].data[call.rows[k]]
            if key == 0:
                answers.append(released.wait(60))  # gives the GIL back
            elif key == 101:
                released.set()
        return n

    data = pa.table({"key": [100, 0, 100, 100, 101, 100], "time": [0, 1, 10, 20, 21, 30]})
    pipeline = (
        od.Pipeline(data.schema)
        .key_by("key", partition=od.ranges([50]))
        .process(
            native,
            schema={"key": int, "time": int},
            state={"n": int},
            compiled=True,
            on_time=lambda key, state, time, emit: emit(key, time),
        )
    )
    every = od.every("time", 10)
    out = pipeline.run(data, workers=threads, partitioning=partitioning, chunk_rows=1, punctuate=every)
    assert answers == [True], "the punctuations stopped the other bucket"
    rows = [(row["time"], row["key"]) for row in out.table.to_pylist()]
    assert rows == [(10, 0), (10, 100), (20, 0), (20, 100), (30, 0), (30, 100), (30, 101)]


# ------------------------------------------------------------------------------------- commit point


def test_emitted_through_is_the_end(how):
    found = run_core(sessions(DATA.schema), DATA, **how)
    assert found.report.emitted_through.serial == N
    nothing = od.Pipeline(DATA.schema).filter(od.col("i") < 0).run(DATA, **how)
    assert nothing.report.emitted_through == od.OrderTag(N, -1)
    assert nothing.table.num_rows == 0


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_emitted_through_is_what_the_reader_has(how, batches):
    """After a stop: every output up to the commit point was read, and none behind it."""
    pipeline = od.Pipeline(DATA.schema).key_by("key").scan(n=od.count())
    read = []
    with pipeline.stream(DATA.to_batches(7), chunk_rows=2, tags=True, max_chunks=4, **how) as out:
        for _ in range(batches):
            batch = next(out, None)
            read += [] if batch is None else batch["_serial"].to_pylist()
    assert read == list(range(1, len(read) + 1))
    assert out.report.emitted_through == od.OrderTag(len(read), 0 if read else -1)
