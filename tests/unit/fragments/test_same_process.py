"""Nodes that take turns in one process: what can make them wait for each other."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.balance.sketches import ExecutionTimes
from ordstream.fragments import merging, process_stream
from ordstream.fragments.channels import Outbox
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.fragments.topology import BLOCK_ROWS, WHOLE_BLOCK_ROWS

TABLE = pa.table({"v": list(range(400))})


def checked(row):
    if row.v == 3:
        raise ValueError("three")
    return (row.v,)


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("block_rows", [5, 20, 100])
@pytest.mark.parametrize("channel_bytes", [1, 200, 5_000])
def test_nodes_behind_a_failure_come_to_their_end(channel_bytes, block_rows, seed):
    """What they still give is nobody's any more, but has to be taken off their channels."""
    pipeline = od.Pipeline(TABLE.schema).map(checked, schema=TABLE.schema)
    with pytest.raises(od.OperatorError, match="serial 4"):
        run_here(
            pipeline, TABLE, 3, {"workers": 0}, block_rows=block_rows, channel_bytes=channel_bytes, seed=seed
        )


def full_at_150(row):
    if row.v == 150:
        error = MemoryError("no room")
        error.add_note("of the function")
        raise error
    return (row.v,)


@pytest.mark.parametrize("block_rows", [7, 100])
def test_a_function_without_memory_fails_at_its_row_of_the_source(block_rows):
    """Its note had the row's number in the node, and what other nodes had of earlier rows was lost."""
    pipeline = od.Pipeline(TABLE.schema).map(full_at_150, schema=TABLE.schema, name="full")
    here = SameProcess(1)
    with pytest.raises(MemoryError, match="no room") as raised:
        run_here(pipeline, TABLE, 3, {"workers": 0}, block_rows=block_rows, here=here)
    notes = ["of the function", "in operator 'full', serial 151, row {'v': 150}"]
    assert raised.value.__notes__ == notes
    assert here.driver.rows_out == 150


@pytest.mark.parametrize("how", [{"processes": 2}, {"processes": 2, "workers": 1}])
def test_columns_may_be_called_as_tags_are(how):
    """At the source, in the middle, at the end: tags go between nodes by their place."""
    table = pa.table({"_serial": list(range(60)), "_index": [n % 3 for n in range(60)]})
    summed = od.Pipeline(table.schema).key_by("_index").scan(n=od.sum("_serial"))
    for pipeline in (summed, summed.key_by("n").count("m"), summed.key_by("n").aggregate(_index=od.count())):
        found = pipeline.run(table, **how).table.to_pylist()
        assert [tuple(row.values()) for row in found] == [
            tuple(row) for row in od.testing.run_serial(pipeline, table).rows
        ]


@pytest.mark.parametrize("nodes", [1, 3])
def test_markers_need_no_credit_and_the_state_leaves_with_its_key(nodes, tmp_path):
    """A marker behind every tuple, and channels that hold next to nothing."""
    table = pa.table({"k": [n * n % 13 for n in range(60)], "v": list(range(60))})
    pipeline = od.Pipeline(table.schema).key_by("k").count("n").key_by("n").scan(m=od.count())
    checkpoint = od.Checkpoint(tmp_path, keep=100)
    options = {"checkpoint": checkpoint, "every": 1}
    found = run_here(pipeline, table, nodes, options, seed=nodes, block_rows=7, channel_bytes=1)
    assert found.table.equals(pipeline.run(table).table)
    taken = checkpoint.snapshots()
    assert [one.serial for one in taken] == list(range(1, 60))
    for one in taken[3::14]:
        snapshot = checkpoint.read(one.number, verify=True)
        alone = pipeline.run(table.slice(0, one.serial), end="suspend").snapshot
        assert (snapshot.emitted_through, snapshot.last_output) == (alone.emitted_through, alone.last_output)
        for name, state in snapshot.states.items():
            rows = pa.Table.from_batches(list(state.batches())).sort_by(state.schema.names[0])
            assert rows.equals(
                pa.Table.from_batches(list(alone.states[name].batches())).sort_by(state.schema.names[0])
            )


def test_a_state_that_does_not_fit_is_refused_before_a_node_begins():
    table = pa.table({"k": [1, 2], "v": [3, 4]})
    one = od.Pipeline(table.schema).key_by("k").count("n", name="it")
    other = od.Pipeline(table.schema).key_by("v").count("n", name="it")
    snapshot = run_here(one, table, 2, {"end": "suspend"}).snapshot
    with pytest.raises(od.CheckpointError, match="'it'"):
        run_here(other, table, 2, {"restore": snapshot})


@pytest.mark.parametrize("nodes", [1, 2])
def test_totals_of_a_stream_in_parts(nodes):
    """Some of which are added up in the nodes first."""
    table = pa.table({"k": [1, 2, 1, 3], "v": [3, 4, 5, 6]})
    made = od.Pipeline(table.schema)
    for pipeline in (made.key_by("k").count("n", emit="final"), made.aggregate(v=od.sum("v"), emit="final")):
        first = run_here(pipeline, table.slice(0, 2), nodes, {"end": "suspend"})
        assert not sum(batch.num_rows for batch in first.batches)
        rest = run_here(pipeline, table.slice(2), nodes, {"restore": first.snapshot})
        assert pa.Table.from_batches(rest.batches).equals(pipeline.run(table).table)


@pytest.mark.parametrize("nodes", [2, 5])
def test_stored_rows_go_to_the_node_that_gets_their_key(nodes):
    """Also of an operator whose key has more columns than rows are spread by, in another order."""
    table = pa.table({"b": [n % 7 for n in range(90)], "a": [f"{n * n % 11}" for n in range(90)]})
    pipeline = od.Pipeline(table.schema).key_by("a").scan(x=od.count()).key_by("b", "a").scan(y=od.count())
    half = pipeline.run(table.slice(0, 45), end="suspend")
    rest = run_here(pipeline, table.slice(45), nodes, {"restore": half.snapshot})
    assert pa.concat_tables([half.table, rest.table]).equals(pipeline.run(table).table)


def test_a_row_waits_from_its_arrival_at_the_node(monkeypatch):
    """Not from when the core takes it, which is when the node has time for it."""
    model = ExecutionTimes()
    model.update(1, 1e3)
    pipeline = (
        od.Pipeline(TABLE.schema)
        .shed("5s", "v", goal="maximum", model=model)
        .map(checked, schema=TABLE.schema)
    )
    late = SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() - 10_000_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(merging, "time", late)
        found = run_here(pipeline, iter(TABLE.to_batches()), 2, {}, block_rows=50)
        with pytest.raises(od.OperatorError, match="serial 4"):
            run_here(pipeline, TABLE, 2, {}, block_rows=50)  # a source that is asked for rows can wait
    assert (found.table.num_rows, found.shed.log["serial"].to_pylist()) == (0, list(range(1, 401)))
    assert pc.min(found.shed.log["latency_ms"]).as_py() >= 10_000
    with pytest.raises(od.OperatorError, match="serial 4"):
        run_here(pipeline, iter(TABLE.to_batches()), 2, {}, block_rows=50)  # nothing waits long


def test_a_reader_gets_rows_soon_although_more_are_there(monkeypatch):
    """Not when a whole batch is together: what is held longer than `HELD_S` goes."""
    moments = iter([10.0, 10.0 + process_stream.HELD_S / 2, 10.1, 11.0])
    table = pa.table({"v": [1, 2]})
    stream = process_stream.ProcessStream(od.Pipeline(table.schema), table, 2, {})
    monkeypatch.setattr(process_stream, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    stream._held = table.to_batches()
    assert stream._ready(waiting=False) is None
    assert stream._ready(waiting=False) is None
    assert stream._ready(waiting=False).num_rows == 2
    stream._held = table.to_batches()
    assert stream._ready(waiting=True).num_rows == 2
    assert stream._held == []
    stream.close()


@pytest.mark.parametrize(
    ("keyed", "live", "largest"),
    [(True, False, WHOLE_BLOCK_ROWS), (True, True, BLOCK_ROWS), (False, False, 40_000 // 8)],
)
def test_blocks_are_larger_where_all_rows_are_there_and_each_has_its_node(monkeypatch, keyed, live, largest):
    """A block that goes to one node as a whole stays small, or a node would have nothing to do."""
    offered, offer = [], Outbox.offer

    def counting(out, batch, nodes=0):
        offered.append(batch.num_rows)
        offer(out, batch, nodes)

    monkeypatch.setattr(Outbox, "offer", counting)
    table = pa.table({"v": list(range(40_000))})
    pipeline = od.Pipeline(table.schema)
    pipeline = pipeline.key_by("v").scan(seen=od.count()) if keyed else pipeline.filter(od.col("v") >= 0)
    found = run_here(pipeline, iter(table.to_batches()) if live else table, 2, {}).table
    assert offered[0] == largest
    assert found.column("v").to_pylist() == list(range(40_000))


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_an_operator_without_a_row_in_a_node_is_no_new_one(nodes):
    """Its state is stored, and empty: nobody asks which of two like operators is new."""
    before = pa.table({"k": [1, 2, 3], "v": [10, 20, 30]})
    late = od.Pipeline(before.schema).key_by("k").lag({"last": "v"}).filter(od.col("v") > 30)
    pipeline = late.select("k", "v").key_by("k").lag({"last": "v"})
    stopped = run_here(pipeline, before, 2, {"end": "suspend"})
    assert {name: rows.num_rows for name, rows in stopped.snapshot.states.items()} == {
        "lag_1": 3,
        "lag_4": 0,
    }
    found = run_here(
        pipeline, before.set_column(1, "v", [[31, 32, 33]]), nodes, {"restore": stopped.snapshot}
    )
    assert found.table.to_pylist() == [{"k": k, "v": 30 + k, "last": None} for k in (1, 2, 3)]
    front = od.Pipeline(before.schema).key_by("k").lag({"new": "v"}).select("k", "v")
    with pytest.raises(od.CheckpointError, match="has a stored state that fits 'lag_3' as well"):
        run_here(front.key_by("k").lag({"last": "v"}), before, nodes, {"restore": first(before)})


def first(table):
    """What an unnamed lag by k has left."""
    pipeline = od.Pipeline(table.schema).key_by("k").lag({"last": "v"})
    return run_here(pipeline, table, 2, {"end": "suspend"}).snapshot
