"""Clocks and graphs over processes, by what users call: the output, its tags, outputs by name, the merge."""

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

ROWS = 3_000


def rows(seed):
    """Times that ascend with ties, few users."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, 400, ROWS))
    return pa.table({"user": draw.integers(0, 9, ROWS), "ts": times, "v": draw.integers(0, 50, ROWS)})


@pytest.mark.parametrize("how", ["left", "full"])
def test_windows_and_joins_of_two_sources_with_two_outputs(how):
    clicks = od.Pipeline(rows(1).schema, source="clicks")
    orders = od.Pipeline(rows(1).schema, source="orders")
    joined = clicks.join_interval(orders, on="user", within=(0, 1), how=how, time="ts")
    hit, miss = orders.branch(od.col("v") > 25)
    counted = od.union(hit, miss.with_columns(v=0)).key_by("user").window(od.tumbling(30), time="ts")
    outputs = {"joined": joined, "counted": counted.aggregate(n=od.count(), most=od.max("v"))}
    sources = {"clicks": rows(1), "orders": rows(2)}
    expected = run_serial(clicks, sources, outputs=outputs, merge_by="ts")
    found = clicks.run(sources, outputs=outputs, merge_by="ts", processes=2, tags=True)
    for name, table in expected.outputs.items():
        assert found[name].to_pylist() == table.to_pylist()
    assert found.report.tuples == 2 * ROWS
    assert found.merge_log.table.num_rows


def test_a_stream_over_processes_closes_windows_while_it_runs():
    pipeline = od.Pipeline(rows(1).schema).key_by("user").window(od.session(3), time="ts")
    pipeline = pipeline.aggregate(n=od.count()).key_by("n").count()
    every = od.every("ts", 7)
    expected = run_serial(pipeline, rows(3), punctuate=every)
    seen = []
    with pipeline.stream(rows(3), processes=2, tags=True, punctuate=every) as out:
        for batch in out:
            seen += [tuple(row.values()) for row in batch.to_pylist()]
    assert seen == [(*row, *tag) for row, tag in zip(expected.rows, expected.tags, strict=True)]
    assert out.report.time_punctuations > 0


def test_what_chooses_nodes_is_told_of_where_a_graph_is_not_cut():
    p = od.Pipeline({"k": int, "v": int})
    a, b = p.branch(od.col("v") > 1)
    graph, data = od.union(a.top_k(1, by="v"), b), pa.table({"k": [1, 2], "v": [1, 5]})
    for given in ({"balance": od.Mixed()}, {"grouping": "posg"}):
        does = rf"one state for all rows\): {next(iter(given))}= does nothing"
        with pytest.warns(RuntimeWarning, match=does) as one:
            found = graph.run(data, processes=2, **given).table
        with pytest.warns(RuntimeWarning, match="processes=2: the graph runs in one node") as two:
            assert pa.Table.from_batches([*graph.stream(data, processes=2, **given)]) == found
        assert {told.filename for told in (*one, *two)} == {__file__}
        assert graph.explain(processes=2, **given).startswith("1 process: ")
    assert graph.run(data, processes=2).table == found
