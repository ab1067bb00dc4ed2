"""Slices of matrices (lists of one length in lists of one length), of which pyarrow 26 takes other rows."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.ordertags import rows_at
from ordstream.ground.packed_types import as_plain
from ordstream.ground.slices import forgets_offsets, from_0

C = od.col
ROWS = 12


def matrices(rows: int = ROWS) -> pa.Array:
    numbers = pa.array(range(1, 2 * 3 * rows + 1), pa.int16())
    return pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(numbers, 2), 3)


ARRAYS = {
    "matrices": matrices(),
    "with nulls": pa.array(
        [None if i % 4 == 1 else m for i, m in enumerate(matrices().to_pylist())], matrices().type),
    "in structs": pa.StructArray.from_arrays([matrices()], ["m"]),
    "a slice in structs": pa.StructArray.from_arrays([matrices(ROWS + 2).slice(2)], ["m"]),
    "in lists": pa.ListArray.from_arrays([*range(ROWS), ROWS], matrices()),
    "of matrices": pa.FixedSizeListArray.from_arrays(matrices(2 * ROWS), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("first", [0, 1, 5])
def test_the_rows_that_were_asked_for(name, first):
    array = ARRAYS[name].slice(first)
    values = array.to_pylist()
    assert from_0(array).take(pa.array([2, 0, 3])).to_pylist() == [values[2], values[0], values[3]]
    chosen = pa.array([place % 2 == 0 for place in range(len(array))])
    assert from_0(array).filter(chosen).to_pylist() == values[::2]
    rows = pa.record_batch({"v": array})
    assert rows_at(rows, pa.array([1, 0])).column(0).to_pylist() == [values[1], values[0]]


def test_others_are_as_they_are():
    plain = pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)).slice(1)
    assert from_0(plain) is plain
    assert not forgets_offsets(pa.struct([("a", pa.list_(pa.list_(pa.int8())))]))
    assert forgets_offsets(pa.map_(pa.string(), matrices().type))


def test_list_views_of_matrices():
    views = pa.ListViewArray.from_arrays([0, 3, 2, 0, 5, 1], [2, 3, 0, 6, 1, 3], matrices().slice(2))
    for first, n in itertools.product(range(4), range(1, 3)):
        some = views.slice(first, n)
        assert as_plain(some).to_pylist() == some.to_pylist()


def test_several_outputs():
    """Output batches of some hundred rows and more are slices of the source's."""
    rows = 3_000
    data = pa.table({"row": range(rows), "v": matrices(rows)}).slice(1)
    pipeline = od.Pipeline(data.schema)
    hit, miss = pipeline.branch(C("row") % 3 == 0)
    found = pipeline.run(data, outputs={"hit": hit, "miss": miss}, workers=0)
    for output, kept in (("hit", lambda row: row % 3 == 0), ("miss", lambda row: row % 3)):
        assert found[output].to_pylist() == [row for row in data.to_pylist() if kept(row["row"])]


@pytest.mark.parametrize("name", ["matrices", "in structs"])
def test_over_processes(name):
    data = pa.table({"row": range(ROWS), "k": [i % 3 for i in range(ROWS)], "v": ARRAYS[name]}).slice(1)
    pipeline = od.Pipeline(data.schema).key_by("k").cum_count("n")
    expected = pipeline.run(data, workers=0).table
    assert expected["v"].to_pylist() == data["v"].to_pylist()
    assert pipeline.run(data, processes=2).table.equals(expected)


def test_views_of_texts_and_bytes_are_chosen_and_moved():
    """Polars has them: an output of several, dead letters and processes failed with Arrow's error."""
    texts = pa.array(["a", "longer than twelve bytes", None, "c"], pa.string_view())
    table = pa.table({"k": [0, 1, 2, 3], "t": texts, "b": texts.cast(pa.binary()).cast(pa.binary_view())})
    begun = od.Pipeline(table.schema)
    odd, even = begun.branch(C("k") % 2 == 1)
    found = begun.run(table, outputs={"odd": odd, "even": even})
    for name, first in (("odd", 1), ("even", 0)):
        expected = pa.table({c: table[c].to_pylist()[first::2] for c in table.schema.names}, table.schema)
        assert found[name].equals(expected)


def test_views_of_bytes_between_processes():
    table = pa.table(
        {"k": [i % 7 for i in range(300)], "b": [bytes([i % 256]) * (i % 20) for i in range(300)]}
    )
    viewed = table.set_column(1, "b", table["b"].cast(pa.binary_view()))
    counted = od.Pipeline(viewed.schema).key_by("k").cum_count()
    expected = counted.run(viewed).table.to_pylist()
    for options in ({}, {"balance": od.Mixed()}):
        assert counted.run(viewed, processes=2, **options).table.to_pylist() == expected
    keyed = od.Pipeline(viewed.schema).key_by("b").cum_count()
    assert keyed.run(viewed, processes=2).table.to_pylist() == keyed.run(viewed).table.to_pylist()
