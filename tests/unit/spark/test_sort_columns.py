"""Outputs of a node get the sort columns of the rows that caused them, and the range that they lie in."""

import json
from bisect import bisect_right

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from ordstream.ground.ordercheck import SortKey
from ordstream.ground.ordertags import source_tags, step_tags, with_index
from ordstream.spark.mark_rows import REST
from ordstream.spark.sort_columns import BOUNDS, OUTPUT, SortColumns, SortedOutputs, sort_name

NODE = "node"
BIG = [-(1 << 63), -(1 << 63) + 1, (1 << 63) - 2, (1 << 63) - 1]
numbers = st.none() | st.integers(-3, 3) | st.sampled_from(BIG)


def number_of(key, value):
    """Two numbers that ascend as Spark sorts values by the key."""
    if value is None:
        return (1 if key.nulls_last else -1), 0
    return 0, -1 - value if key.descending else value


@st.composite
def cases(draw):
    flags = st.booleans()
    keys = [SortKey(f"k{k}", draw(flags), draw(flags)) for k in range(draw(st.integers(1, 2)))]
    rows = draw(st.lists(st.tuples(*[numbers] * len(keys)), min_size=1, max_size=30))
    rows.sort(key=lambda row: [number_of(key, value) for key, value in zip(keys, row, strict=True)])
    bounds = draw(st.lists(st.tuples(*[numbers] * len(keys)), max_size=9))
    batches = draw(st.lists(st.integers(0, 7), max_size=8))
    outputs = draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    return keys, rows, bounds, batches, outputs, draw(st.integers(10, 12)), draw(st.integers(0, 3))


@given(cases())
def test_outputs_have_what_their_rows_are_sorted_by_and_lie_in_ranges(case):
    keys, rows, bounds, cuts, outputs, ranges, at_end = case
    names = ["value", *(sort_name(k) for k in range(len(keys))), OUTPUT, REST, NODE]
    types = [*[pa.int64()] * (len(keys) + 2), pa.binary(), pa.int32()]
    schema = pa.schema(list(zip(names, types, strict=True)))
    sort = SortColumns(tuple(keys), len(keys), ranges)
    node = SortedOutputs(sort, 2, schema)
    table = pa.table(
        [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)], [k.column for k in keys]
    )

    def place(row):
        return [part for key, value in zip(keys, row, strict=True) for part in number_of(key, value)]

    bounds = sorted(map(place, bounds))
    table = table.append_column(
        BOUNDS, pa.array([json.dumps(bounds)] + [None] * (len(rows) - 1), pa.string())
    )
    batches = list(sliced(table, cuts))
    found, taken, given_out = [], 0, 0
    node.settled = lambda: given_out
    arriving = node.remembered(iter(batches))
    for arrived, batch in zip(arriving, batches, strict=True):
        assert arrived is batch
        positions = [
            at for at in range(taken + 1, taken + batch.num_rows + 1) for _ in range(outputs[at - 1])
        ]
        taken += batch.num_rows
        for start in range(0, len(positions), 4):  # what leaves ends anywhere
            part = np.array(positions[start : start + 4], dtype=np.int64)
            tags = with_index(source_tags(part), np.zeros(len(part), dtype=np.int64))
            found += rows_of(node.leaving(pa.record_batch([pa.array(part), tags], ["value", "tag"])))
        given_out = taken
    if at_end:
        steps = step_tags(0, pa.array([b"k"] * at_end, pa.binary()), np.arange(at_end))
        ends = node.leaving(pa.record_batch([pa.array([0] * at_end), steps], ["value", "tag"]))
        assert rows_of(ends) == [(0, *[None] * (len(keys) + 1), tag.as_py(), ranges + 2) for tag in steps]
    causes = [at for at in range(len(rows)) for _ in range(outputs[at])]
    assert found == [
        (at + 1, *rows[at], number, None, bisect_right(bounds, place(rows[at])))
        for number, at in enumerate(causes)
    ]


def sliced(table, cuts):
    """The table in batches of so many rows, empty ones too, and the rest."""
    at, (batch,) = 0, table.combine_chunks().to_batches()
    for count in cuts:
        yield batch.slice(at, count)
        at = min(at + count, batch.num_rows)
    yield batch.slice(at)


def rows_of(batch):
    return [tuple(row.values()) for row in batch.to_pylist()]


def test_columns_that_the_output_shows_do_not_leave_twice():
    sort = SortColumns((SortKey("ts"), SortKey("at")), 2, 2)
    node = SortedOutputs(
        sort, 0, pa.schema([("ts", pa.int64()), (sort_name(1), pa.int64()), (NODE, pa.int32())])
    )
    rows = pa.record_batch([[5, 6], [1, 2], ["[[0, 6, 0, 0]]", None]], ["ts", "at", BOUNDS])
    assert list(node.remembered(iter([rows]))) == [rows]
    leaving = node.leaving(pa.record_batch([pa.array([5, 6]), source_tags(np.array([1, 2]))], ["ts", "tag"]))
    assert rows_of(leaving) == [(5, 1, 0), (6, 2, 1)]


def test_what_no_output_refers_to_is_forgotten():
    sort = SortColumns((SortKey("ts"),), 1, 1)
    node = SortedOutputs(
        sort, 0, pa.schema([("ts", pa.int64()), (sort_name(0), pa.int64()), (NODE, pa.int32())])
    )
    settled = [0]
    node.settled = lambda: settled[0]
    batches = (pa.record_batch([[k], ["[]"]], ["ts", BOUNDS]) for k in range(1_000))
    for taken, _ in enumerate(node.remembered(batches), 1):
        settled[0] = max(0, taken - 10)
        assert len(node._arrived) <= 12
