"""A map of a table's keys in place of their hash: when there is one, how rows spread by it, and that the
output stays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from property import strategies as s
from property.test_cut import BLOCKS, LARGE, NODES, TURNS, check

import ordstream as od
from ordstream.balance.grouping import KeyMap
from ordstream.errors import SourceError
from ordstream.fragments import fragmenting, learnt_map
from ordstream.fragments.learnt_map import LEAST_ROWS, with_learnt
from ordstream.fragments.same_process import run_here
from ordstream.fragments.topology import Topology
from ordstream.node.source import conform
from ordstream.reference.run_serial import run_serial

SOURCE = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.int64())])


def clicks(rows: int, alpha: float = 1.0) -> pa.Table:
    """Keys of Zipf-`alpha`, some null, in two chunks; texts that go with them."""
    keys = 1 / np.arange(1, 301) ** alpha
    drawn = np.random.default_rng(5).choice(300, rows, p=keys / keys.sum())
    texts = np.array([f"é{n}" for n in range(300)], dtype=object)[drawn]
    table = pa.table(
        [pa.array(drawn, mask=drawn == 7), pa.array(texts), pa.array(np.arange(rows))], schema=SOURCE
    )
    return pa.concat_tables([table.slice(0, rows // 3), table.slice(rows // 3)])


def topology(pipeline: od.Pipeline, nodes: int, **more) -> Topology:
    return Topology(tuple(fragmenting.fragments_of(pipeline.plan)), nodes, {}, live=False, **more)


def counts(*key: str) -> od.Pipeline:
    return od.Pipeline(SOURCE).key_by(*key).scan(n=od.count())


@pytest.mark.parametrize("key", [("k",), ("s",), ("s", "k")])
@pytest.mark.parametrize("nodes", [5, 8])
def test_rows_of_a_large_table_spread_evenly(key, nodes):
    data = clicks(LEAST_ROWS)
    made = topology(counts(*key), nodes)
    found = with_learnt(made, data)
    (batch,) = data.combine_chunks().to_batches()
    loads = [np.bincount(one.route(1)(batch), minlength=nodes) for one in (made, found)]
    assert isinstance(found.groupings[1].grouping, KeyMap)
    # the largest of 300 keys has 16 % of the rows
    assert loads[1].max() < max(1.03, 0.17 * nodes) * LEAST_ROWS / nodes < loads[0].max()


def test_when_the_hash_stays():
    large, even = clicks(LEAST_ROWS), clicks(LEAST_ROWS, alpha=0.0)
    made = topology(counts("k"), 2)
    assert with_learnt(made, large) is not made
    for data in (large.slice(1), large.to_batches(), iter(large.to_batches()), even, large.select(["x"])):
        assert with_learnt(made, data) is made
    texts = large.set_column(0, "k", large["s"])  # which the run refuses
    assert with_learnt(made, texts) is made
    with pytest.raises(SourceError, match="'k': expected int64, got string"):
        run_here(counts("k"), texts, 2, {})
    one = topology(counts("k"), 1)
    of_all = topology(od.Pipeline(SOURCE).scan(n=od.count()), 2)
    in_front = topology(od.Pipeline(SOURCE).filter(od.col("x") > 0).key_by("k").scan(n=od.count()), 2)
    given = topology(counts("k"), 2, groupings=dict(with_learnt(made, large).groupings))
    for stays in (one, of_all, in_front, given):
        assert with_learnt(stays, large) is stays


def test_a_run_goes_by_it(monkeypatch):
    routed = []
    monkeypatch.setattr(
        KeyMap, "route", lambda self, keys, route=KeyMap.route: routed.append(len(keys)) or route(self, keys)
    )
    data = clicks(LEAST_ROWS)
    found = run_here(counts("k"), data, 3, {}).table
    assert sum(routed) > LEAST_ROWS
    assert found.equals(counts("k").run(data, workers=0).table)
    before = sum(routed)
    restored = run_here(counts("k"), data, 3, {"end": "suspend"}).table
    assert restored.equals(found)
    assert sum(routed) == before  # where state leaves the run keys go by the hash


class OfTable(s.Case):
    """A case whose source is a table."""

    @property
    def source(self):
        schema = self.pipeline.source_schema
        rows = [conform(batch, schema).to_pydict() for batch in self.batches]
        return pa.concat_tables(pa.table(one, schema) for one in rows) if rows else schema.empty_table()


@pytest.fixture(scope="module")
def small_tables():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learnt_map, "LEAST_ROWS", 2)
        patch.setattr(learnt_map, "WORTH", 0.0)
        yield


@LARGE
@given(s.cases(vocabulary=("scan", "count", "sessionize", "process", "top_k"), most=4), NODES, BLOCKS, TURNS)
def test_the_output_is_that_of_a_sequential_run(small_tables, case, nodes, block_rows, turns):
    check(OfTable(**vars(case)), nodes, block_rows, turns)


def test_processes_go_by_it():
    data = clicks(LEAST_ROWS)
    pipeline = counts("s")
    result = pipeline.run(data, processes=2)
    assert result.table.equals(run_serial(pipeline, data).table)
    sent = [one.rows for one in result.report.channels if one.sender == "caller"]
    assert max(sent) < 0.52 * sum(sent)
