"""Columns that only pass reach the reader without a copy, whatever happens to the rows around them."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od

C = od.col


def rows_of(n: int, first: int = 0) -> pa.Table:
    """Rows of every physical class, with nulls; `row` counts."""
    row = np.arange(first, first + n)
    return pa.table({
        "row": pa.array(row),
        "ts": pa.array(row * 7, pa.timestamp("ms")),
        "y": pa.array(row / 3),
        "hole": pa.array(row, mask=row % 3 == 0),
        "flag": pa.array(row % 5 == 0),
        "s": pa.array([None if i % 11 == 0 else "x" * (i % 20) for i in row.tolist()]),
        "items": pa.array([[i] * (i % 4) for i in row.tolist()], pa.list_(pa.int64())),
        "price": pa.array((row % 100).tolist(), pa.int64()).cast(pa.decimal128(19, 0)),
    })  # fmt: skip


DATA = rows_of(20_000)
PIPELINE = od.Pipeline(DATA.schema)


def addresses(table: pa.Table, name: str) -> set[int]:
    """Where the values of a column lie."""
    return {chunk.buffers()[-1].address for chunk in table.column(name).chunks}


def test_what_passes_is_the_sources_memory():
    result = PIPELINE.with_columns(a=C("row") + 1).rename({"s": "text"}).run(DATA, workers=1).table
    for name in DATA.column_names:
        given = "text" if name == "s" else name
        assert addresses(result, given) <= addresses(DATA, name), name
        assert result.column(given).to_pylist() == DATA.column(name).to_pylist()
    assert not addresses(result, "a") & addresses(DATA, "row")
    assert result.column("a").to_pylist() == list(range(1, 20_001))


def test_the_same_bits_as_another_type():
    result = PIPELINE.select(at=C("ts").cast(int), s="s").run(DATA, workers=1).table
    assert result.schema.field("at").type == pa.int64()
    assert result.column("at").to_pylist() == [i * 7 for i in range(20_000)]


def test_a_column_that_passes_twice_around_one_that_is_made():
    result = PIPELINE.select(a="hole", made=C("row") + 1, b="hole", c="items", d="row").run(DATA).table
    assert addresses(result, "a") == addresses(result, "b") <= addresses(DATA, "hole")
    for name, source in (("a", "hole"), ("b", "hole"), ("c", "items"), ("d", "row")):
        assert result.column(name).to_pylist() == DATA.column(source).to_pylist()
    assert result.column("made").to_pylist() == list(range(1, 20_001))


#: Rows that are kept, and how many of the first batch's columns are then without a copy.
KEPT = {
    "all": C("row") >= 0,
    "every second": C("row") % 2 == 0,
    "some in the middle": (C("row") < 9_000) | (C("row") > 9_010),
    "late": C("row") > 9_999,
    "first": C("row") < 777,
    "none": C("row") < 0,
    "here and there": (C("row") % 1_000 != 1) | (C("row") < 6_000),
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(("workers", "chunk_rows"), [(0, 64), (1, 1000), (2, 4096), (2, 7)])
@pytest.mark.parametrize("size", [300, 4500, 20_000])
def test_rows_as_the_source_has_them(kept, workers, chunk_rows, size):
    """Dropped rows and ends of input batches in every place; nothing is lost, doubled or moved."""
    data = pa.Table.from_batches(DATA.slice(3).combine_chunks().to_batches(max_chunksize=size))
    pipeline = PIPELINE.filter(KEPT[kept]).with_columns(a=C("y") * 2)
    result = pipeline.run(data, workers=workers, chunk_rows=chunk_rows).table
    rows = DATA.column("row").to_numpy()[3:]
    chosen = {
        "all": rows >= 0, "every second": rows % 2 == 0,
        "some in the middle": (rows < 9_000) | (rows > 9_010), "late": rows > 9_999,
        "first": rows < 777, "none": rows < 0,
        "here and there": (rows % 1_000 != 1) | (rows < 6_000),
    }[kept]  # fmt: skip
    expected = data.filter(pa.array(chosen))
    assert result.drop_columns(["a"]).equals(expected)
    assert result.column("a").to_pylist() == [2 * y for y in expected.column("y").to_pylist()]


def test_columns_that_leave_and_come_back():
    """A column is lent until its values are others; those beside it still are."""
    pipeline = PIPELINE.with_columns(hole=od.when(C("row") > 6_000, C("row")).otherwise(C("hole")))
    result = pipeline.run(DATA, workers=1, chunk_rows=1000).table
    expected = [i if i > 6_000 else (None if i % 3 == 0 else i) for i in range(20_000)]
    assert result.column("hole").to_pylist() == expected
    assert result.column("s").equals(DATA.column("s"))


def test_state_beside_what_passes():
    result = PIPELINE.key_by("flag").cum_sum("row", "a").run(DATA, workers=2).table
    assert result.drop_columns(["a"]).equals(DATA)


@pytest.mark.parametrize(("size", "sizes"), [(5_000, [5_000] * 4), (100, [20_000])])
def test_a_batch_ends_with_its_input_batch(size, sizes):
    """Where it is large: small ones are copied together."""
    batches = DATA.combine_chunks().to_batches(max_chunksize=size)
    found = PIPELINE.rename({"row": "number"}).run(batches, workers=1)
    assert [batch.num_rows for batch in found.batches] == sizes
    assert found.table.column("number").equals(DATA.column("row"))


def test_input_lives_as_long_as_what_was_lent_of_it():
    arrays = [np.arange(i * 6_000, (i + 1) * 6_000) for i in range(6)]
    alive = [weakref.ref(array) for array in arrays]

    def source():
        while arrays:
            yield pa.record_batch({"row": pa.array(arrays.pop(0))})

    schema = pa.schema([("row", pa.int64())])
    # partial: else few rows of an input may be left for a batch, which are copied
    made = od.Pipeline(schema).with_columns(a=C("row") + 1)
    with made.stream(source(), workers=1, partial=False) as stream:
        found = list(stream)
    gc.collect()
    assert all(one() is not None for one in alive)
    rows = [row for batch in found for row in batch.column("row").to_pylist()]
    assert rows == list(range(36_000))
    del found, rows, stream
    gc.collect()
    assert not [one for one in alive if one() is not None]


def test_input_stays_while_what_was_lent_of_it_waits():
    """All of it was emitted, and little was read: the core still has the rest."""
    rows, count = 6_000, 8
    alive, streams, given = [], [], threading.Event()

    def source():
        for i in range(count):
            array = np.arange(i * rows, (i + 1) * rows)
            alive.append(weakref.ref(array))
            batch = pa.record_batch({"row": pa.array(array)})
            del array
            yield batch
            del batch
            until = time.monotonic() + 60
            while streams[0].progress()[2] < len(alive) * rows and time.monotonic() < until:
                time.sleep(0.001)
        given.set()

    schema = pa.schema([("row", pa.int64())])
    made = od.Pipeline(schema).with_columns(a=C("row") + 1)
    stream = made.stream(source(), workers=1, partial=False)  # as above
    streams.append(stream)
    with stream:
        found = [next(stream)]
        assert given.wait(60)
        stream._feeder.retire()  # as a read does that found nothing, just before all of this came
        gc.collect()
        assert all(one() is not None for one in alive[1:])
        found += stream
    assert [row for batch in found for row in batch.column("row").to_pylist()] == list(range(rows * count))


def test_a_reader_who_takes_little_at_a_time():
    """Batches wait in the core, input stays with them, the cap on bytes holds the source."""
    batches = rows_of(30_000).combine_chunks().to_batches(max_chunksize=4_200)
    seen = []
    with PIPELINE.drop("y").stream(iter(batches), workers=1, max_bytes=1 << 20) as stream:
        for batch in stream:
            seen += batch.column("row").to_pylist()
    assert seen == list(range(30_000))
