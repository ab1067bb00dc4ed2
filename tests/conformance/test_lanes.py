"""A graph gives the rows of a serial run, in its order: branches and unions on the lanes of one line."""

from __future__ import annotations

import random

import pytest
from lane_graphs import (
    SCHEMA,
    SEEN,
    Op,
    Split,
    on_core,
    random_graph,
    random_rows,
    serially,
    table_of,
)

import ordstream as od
from ordstream._core.ground.chunk import layout_of
from ordstream._core.kernels.identity import IdentityKernel
from ordstream.testing import run_serial

WAYS = [(workers, chunk_rows) for workers in (0, 1, 2, 4) for chunk_rows in (1, 7, "auto")]
ROWS = [(i * i % 7, i * 37 % 101) for i in range(200)]
# What stands in front of a branch: nothing, several rows of one, rows of the final flush, all of it keyed.
BEFORE = [[], [Op("flat", 3)], [Op("flushing", 2)], [Op("flat", 3), Op("flushing", 2), Op("keyed_flat", 2)]]
TEN = Split([[] for _ in range(10)])
NESTED = Split([[], [Split([[], [TEN], []])], []])


@pytest.mark.parametrize("before", BEFORE, ids=["plain", "flat_map", "flush", "all"])
@pytest.mark.parametrize("split", [Split([[], []]), TEN, NESTED], ids=["two", "ten", "nested"])
def test_union_of_branch_is_the_input(before, split):
    pipeline = od.Pipeline(SCHEMA)
    for op in before:
        pipeline = op.pipeline(pipeline)
    expected = run_serial(pipeline, table_of(ROWS))
    assert expected.error is None
    rows = [tuple(row) for row in expected.rows]
    assert len(rows) > 100
    for workers, chunk_rows in WAYS:
        assert on_core([*before, split], ROWS, workers=workers, chunk_rows=chunk_rows) == (rows, None)


def test_random_graphs():
    SEEN.clear()
    seen = {"split": 0, "nested": 0, "copies": 0, "failed": 0, "flush": 0, "rows": 0}
    for seed in range(50):
        rng = random.Random(seed)
        graph, rows = random_graph(rng), random_rows(rng)
        expected = serially(graph, rows)
        text = repr(graph)
        seen["split"] += "Split" in text
        seen["nested"] += any("Split" in repr(step.lanes) for step in graph if isinstance(step, Split))
        seen["copies"] += "copies=True" in text
        seen["failed"] += "Split" in text and expected[1] is not None
        seen["flush"] += any("flushing" in repr(step.lanes) for step in graph if isinstance(step, Split))
        seen["rows"] += len(expected[0])
        for workers, chunk_rows in WAYS:
            options = {
                "buckets": rng.choice([1, 2, 7]),
                "debug": rng.random() < 0.3,
                "scheduler": rng.choice(["ct", "lp", "et", "qst", "random"]),
                "partitioning": rng.choice(["hybrid", "partitioned", "shared"]),
                "reorder": rng.choice(["nonblocking", "lock"]),
                "depth": rng.choice([None, 4]),
            }
            got = on_core(graph, rows, workers=workers, chunk_rows=chunk_rows, seed=seed, **options)
            assert got == expected, (seed, workers, chunk_rows, options, graph)
    assert min(seen.values()) >= 2, seen
    wanted = ["ties", "self-union", "empty lanes", "flush rows through a union", "failed in a copy"]
    wanted += ["failed in the first lane", "failed in a further lane"]
    assert all(SEEN[what] for what in wanted), SEEN


def test_a_flush_between_two_branch_points():
    """A union of three at once: what the flush made has passed only the second branch point."""
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("v") % 2 == 0)
    flushed = Op("flushing", 3).pipeline(miss)
    expected = od.union(hit, flushed).run(table_of(ROWS), workers=0).table
    assert expected.num_rows > len(ROWS) + 10
    one, other = flushed.branch(od.col("v") % 3 == 0)
    for pipeline in (od.union(hit, one, other), od.union(hit, od.union(one, other))):
        assert run_serial(pipeline, table_of(ROWS)).table.equals(expected)
        for workers, chunk_rows in WAYS:
            found = pipeline.run(table_of(ROWS), workers=workers, chunk_rows=chunk_rows).table
            assert found.equals(expected), (workers, chunk_rows)


def test_ties_come_in_the_order_of_the_call():
    graph = [Split([[Op("map", 1)], [Op("flat", 3)], []], True, [2, 0, 1])]
    expected = serially(graph, ROWS)
    assert expected[0][:2] == [(0, 0), (0, 1)]
    for workers, chunk_rows in WAYS:
        assert on_core(graph, ROWS, workers=workers, chunk_rows=chunk_rows) == expected


@pytest.mark.parametrize("lane", range(3))
def test_a_failing_row_ends_every_lane_at_its_place(lane):
    lanes = [[Op("map", 3)], [Op("keyed")], [Op("flat", 2)]]
    lanes[lane] = [*lanes[lane], Op("fail", 41)]
    graph = [Op("flat", 3), Split(lanes)]
    rows = [(i % 3, i % 600) for i in range(1, 900)]
    expected = serially(graph, rows)
    assert expected[1] is not None
    assert expected[0]
    for workers, chunk_rows in WAYS:
        assert on_core(graph, rows, workers=workers, chunk_rows=chunk_rows) == expected


def test_rows_of_a_way_that_nobody_takes_end_there():
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("v") % 2 == 0)
    for pipeline, rest in ((hit, 0), (miss, 1)):
        out = pipeline.run(table_of(ROWS), workers=2, chunk_rows=1).table["v"].to_pylist()
        assert out == [v for _, v in ROWS if v % 2 == rest]


@pytest.mark.parametrize("lanes", [(), (-1,), (64,), (0, 1)])
def test_lanes_that_a_kernel_cannot_work_on(lanes):
    with pytest.raises(ValueError, match="works on one lane, from 0 to 63, or takes whole units"):
        IdentityKernel(layout_of(SCHEMA)).work_on(*lanes)
