"""Small batches are made one in front of the core: what is gathered, and that nothing is held for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import OperatorError, SourceError
from ordstream.node.gathering import ENOUGH_BYTES, ENOUGH_ROWS, SMALL_ROWS, Gathered, gathered
from ordstream.node.source import batch_bytes
from ordstream.testing import run_serial

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])


def batch(first: int, rows: int = 1, text: str = "a") -> pa.RecordBatch:
    return pa.record_batch([range(first, first + rows), [text] * rows], schema=SCHEMA)


def until_it_fails(pipeline: Any, rows: Iterator[pa.RecordBatch]) -> tuple[Exception | None, list[int]]:
    """What a stream fails with, and what it gives before."""
    found: list[int] = []
    with pipeline.stream(rows) as stream:
        try:
            for one in stream:
                found += one["x"].to_pylist()
        except od.OrdstreamError as error:
            return error, found
    return None, found


def held(*batches: pa.RecordBatch) -> tuple[Gathered, list[bool]]:
    found = Gathered(batch_bytes, ENOUGH_BYTES)
    return found, [found.add(one) for one in batches]


def test_small_ones_are_taken_in_order() -> None:
    found, added = held(*(batch(i, 1 + i % 50) for i in range(100)))
    assert all(added)
    assert found.rows == sum(1 + i % 50 for i in range(100))
    assert 0 < found.since_ns <= time.monotonic_ns()
    rows = pa.Table.from_batches(found.take())
    expected = pa.Table.from_batches([batch(i, 1 + i % 50) for i in range(100)])
    assert rows.equals(expected)
    assert found.rows == 0
    assert found.take() == []


def test_what_was_taken_counts_no_more() -> None:
    found = Gathered(batch_bytes, 1 << 14)
    for _ in range(10):
        assert found.add(batch(0, 100, "a" * 100))
        assert [one.num_rows for one in found.take()] == [100]


def test_they_wait_since_the_first_came() -> None:
    found, _ = held(batch(0))
    since_ns = found.since_ns
    time.sleep(0.001)
    assert found.add(batch(1))
    assert found.since_ns == since_ns


def test_large_ones_are_not_and_there_is_an_end() -> None:
    assert held(batch(0, SMALL_ROWS))[1] == [False]
    assert held(batch(0, 100, "a" * 2_000))[1] == [False]
    found, added = held(*(batch(i, 500) for i in range(10)))
    assert added == [True] * 8 + [False] * 2
    assert found.rows <= ENOUGH_ROWS


@pytest.mark.parametrize("most", [1 << 14, 1 << 16, 1 << 20, 1 << 30])
@pytest.mark.parametrize("size", [10, 1_000, 100_000])
@pytest.mark.parametrize("rows", [1, 5, 100])
def test_what_is_made_of_them_is_not_too_large(most: int, size: int, rows: int) -> None:
    """A cap on what is in flight takes batches of a sixteenth of it."""
    found, n = Gathered(batch_bytes, most), 0
    while found.add(batch(n * rows, rows, "a" * size)):
        n += 1
    made = found.take()
    assert [x for one in made for x in one["x"].to_pylist()] == list(range(n * rows))
    alone = batch_bytes(batch(0, rows, "a" * size))
    assert all(batch_bytes(one) <= max(min(most, ENOUGH_BYTES), alone) for one in made)


def test_large_ones_behind_tiny_ones_stay_apart() -> None:
    found = Gathered(batch_bytes, 1 << 16)
    assert all(found.add(batch(i, 1, "a" if i == 0 else "a" * 60_000)) for i in range(10))
    assert [one.num_rows for one in found.take()] == [1] * 10


def test_large_rows_are_not_held() -> None:
    found = Gathered(batch_bytes, 1 << 16)
    assert [found.add(batch(i, 1, "a" * 60_000)) for i in range(3)] == [True, False, False]


def test_as_many_as_fit_become_one() -> None:
    found, n = Gathered(batch_bytes, 1 << 14), 0
    while found.add(batch(100 * n, 100, "a" * 40)):
        n += 1
    assert n == 3
    assert [one.num_rows for one in found.take()] == [300]


def test_what_lies_in_memory() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from (batch(i) for i in range(5))
        yield batch(5, 1_000)
        yield from (batch(i) for i in range(1_005, 1_008))
        raise ValueError("over")

    found: list[pa.RecordBatch] = []
    with pytest.raises(ValueError, match="over"):
        found.extend(gathered(failing(), batch_bytes, ENOUGH_BYTES))
    assert [one.num_rows for one in found] == [5, 1_000, 3]
    assert [x for one in found for x in one["x"].to_pylist()] == list(range(1_008))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_list_of_rows_is_called_for_at_once(workers: int) -> None:
    sizes: list[int] = []

    def noted(columns: Any) -> Any:
        sizes.append(len(columns["x"]))
        return columns

    pipeline = od.Pipeline(SCHEMA).map_batches(noted, schema=SCHEMA)
    rows = [batch(i) for i in range(2_000)]
    found = pipeline.run(rows, workers=workers, chunk_rows=1_000).table
    assert found["x"].to_pylist() == list(range(2_000))
    assert sizes == [1_000, 1_000]


def test_rows_that_wait_are_called_for_together() -> None:
    """A function that takes 5 ms a call was called for each row of a source that gives them alone."""
    sizes: list[int] = []

    def slow(columns: Any) -> Any:
        sizes.append(len(columns["x"]))
        time.sleep(0.005)
        return columns

    pipeline = od.Pipeline(SCHEMA).map_batches(slow, schema=SCHEMA)
    with pipeline.stream(batch(i) for i in range(3_000)) as stream:
        found = [x for one in stream for x in one["x"].to_pylist()]
    assert found == list(range(3_000))
    assert len(sizes) < 1_000


@pytest.mark.parametrize("reads", [True, False])
def test_nothing_is_held_while_the_source_waits(reads: bool) -> None:
    """Whether somebody reads or not: all rows reach the function, and only then the source goes on."""
    reached, count = threading.Event(), 200

    def noted(row: Any) -> None:
        time.sleep(0.0005)
        if row.x == count - 1:
            reached.set()

    def rows() -> Iterator[pa.RecordBatch]:
        for i in range(count):
            yield batch(i)
        assert reached.wait(30)
        yield batch(count)

    with od.Pipeline(SCHEMA).inspect(noted).stream(rows()) as stream:
        found = next(stream)["x"].to_pylist()
        if not reads:
            assert reached.wait(30)
        found += [x for one in stream for x in one["x"].to_pylist()]
    assert found == list(range(count + 1))


def test_a_failure_of_the_source_comes_behind_its_rows() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        for i in range(100):
            yield batch(i)
        raise RuntimeError("the line is dead")

    pipeline = od.Pipeline(SCHEMA).inspect(lambda row: time.sleep(0.001))
    error, found = until_it_fails(pipeline, rows())
    assert isinstance(error, SourceError)
    assert "the line is dead" in str(error)
    assert found == list(range(100))


def test_a_failing_row_is_told_by_its_own_serial() -> None:
    def late(row: Any) -> None:
        time.sleep(0.0005)
        if row.x == 150:
            raise ValueError("no")

    error, found = until_it_fails(od.Pipeline(SCHEMA).inspect(late), (batch(i) for i in range(300)))
    assert isinstance(error, OperatorError)
    assert (error.serial, error.row["x"]) == (151, 150)
    assert found == list(range(150))


def test_closed_while_rows_are_held() -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        i = 0
        while True:
            yield batch(i)
            i += 1

    before = set(threading.enumerate())
    for _ in range(20):
        with od.Pipeline(SCHEMA).inspect(lambda row: time.sleep(0.001)).stream(endless()) as stream:
            next(stream)
    assert not [one for one in set(threading.enumerate()) - before if one.name == "ordstream-passing"]


@pytest.mark.parametrize("rows_each", [1, 100])
def test_a_row_that_cannot_be_read_comes_behind_those_before_it(rows_each: int) -> None:
    """Also where it was put together with them, and in the middle of a batch."""
    type_ = pa.decimal128(5, 2)
    units = np.array([[i, 0 if i < 250 else 1 << 40] for i in range(300)], np.int64)
    column = pa.Array.from_buffers(type_, 300, [None, pa.py_buffer(units)])
    rows = pa.table({"x": range(300), "d": column})
    pipeline = (
        od.Pipeline(rows.schema)
        .inspect(lambda row: time.sleep(0.0005))
        .filter(od.col("d") >= 0)
        .with_columns(d=od.col("d") * 2)
    )
    for data in (iter(rows.to_batches(max_chunksize=rows_each)), rows.to_batches(max_chunksize=rows_each)):
        error, found = until_it_fails(pipeline, data)
        assert isinstance(error, SourceError)
        assert "more digits than its type says" in str(error)
        assert found == list(range(250))


TABLE = pa.table({"k": [i % 7 for i in range(3_000)], "at": range(3_000)})
WINDOWS = (
    od.Pipeline(TABLE.schema)
    .inspect(lambda row: time.sleep(0.002) if row.at % 500 == 0 else None)
    .key_by("k")
    .window(od.tumbling(60), time="at")
    .aggregate(n=od.count())
)


@pytest.mark.parametrize("rows_each", [1, 7, 100, 600])
def test_the_output_is_that_of_the_sequential_run(rows_each: int) -> None:
    expected = run_serial(WINDOWS, TABLE).table
    batches = TABLE.to_batches(max_chunksize=rows_each)
    with WINDOWS.stream(iter(batches)) as stream:
        assert pa.Table.from_batches(list(stream), schema=stream.schema).equals(expected)
    assert WINDOWS.run(batches).table.equals(expected)
    assert WINDOWS.run(iter(batches), snapshot_every=500).table.equals(expected)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("scheduler", ["ct", "lp", "et", "qst"])
@pytest.mark.parametrize("partitioning", ["hybrid", "partitioned", "shared"])
@pytest.mark.parametrize("chunk_rows", [None, 1, 50])
@pytest.mark.thin(48)
def test_under_every_scheduler_and_scheme(
    workers: int, scheduler: str, partitioning: str, chunk_rows: int | None
) -> None:
    options = {"scheduler": scheduler, "partitioning": partitioning, "chunk_rows": chunk_rows, "buckets": 5}
    rows = TABLE.slice(0, 600)
    pipeline = (
        od.Pipeline(rows.schema)
        .inspect(lambda row: time.sleep(0.001) if row.at % 100 == 0 else None)
        .with_columns(text=od.col("at").cast(str).str.replace("1", "one"))
        .key_by("k")
        .scan(n=od.count())
    )
    expected = run_serial(pipeline, rows).table
    found = pipeline.run(iter(rows.to_batches(max_chunksize=3)), workers=workers, **options).table
    assert found.equals(expected)


@pytest.mark.parametrize("parts", [1, 20])
def test_batches_that_arrow_cannot_put_together_are_read_one_by_one(parts: int) -> None:
    """It was: the source failed after 0 tuples: ArrowIndexError."""
    lists = pa.list_(pa.decimal128(5, 1))
    whole = pa.array([[Decimal("0.5")], [Decimal("0.0")], None, None, None], lists)
    schema = pa.schema([("x", lists)])
    cut = []
    for start, rows in ((0, 2), (2, 3)):
        large = whole.slice(start, rows).cast(pa.large_list(lists.value_type))
        cut.append(pa.table(pa.record_batch([large], names=["x"])).cast(schema))
    table = pa.concat_tables(cut * parts)
    with pytest.raises(pa.ArrowIndexError):
        pa.concat_batches(table.to_batches())
    for workers in (0, 2):
        assert od.Pipeline(schema).run(table, workers=workers).table.to_pylist() == table.to_pylist()
