"""What sends rows to nodes changes nothing of the output: POSG with messages that are late, in any order, or
never come; DKG whose map changes on the way; rows and blocks in turn. Against `run_serial`, unsorted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ordstream as od
from ordstream.balance.baselines import Modulo
from ordstream.errors import OperatorError
from ordstream.fragments import polled_node, proactive
from ordstream.fragments.channels import Outbox
from ordstream.fragments.live_node import LiveNode
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.fragments.spreading import LearntMap
from ordstream.node import polled_stream
from ordstream.reference.run_serial import run_serial

SOURCE = pa.schema([("item", pa.string()), ("n", pa.int64())])


def twice(row):
    return [(row.item, row.n), (row.item, -row.n)] if row.n % 3 else []


def fails_at_100(row):
    if row.n == 100:
        raise ValueError("a hundred")
    return (row.item, row.n)


def rows(count, seed=0):
    items = np.random.default_rng(seed).zipf(1.5, count) % 50
    return pa.table({"item": [f"item {n}" for n in items], "n": range(count)}, schema=SOURCE)


FRONTS = {
    "map": lambda p: p.filter(od.col("n") >= 3).flat_map(twice, schema=SOURCE),
    "keyed behind": lambda p: p.flat_map(twice, schema=SOURCE).key_by("item").scan(seen=od.count()),
    "a total behind": lambda p: p.filter(od.col("n") != 5).key_by("item").count().top_k(5, by="count"),
    "failing": lambda p: p.map(fails_at_100, schema=SOURCE).flat_map(twice, schema=SOURCE),
}
GROUPINGS = {
    "posg": {"grouping": od.POSG(window=5, mu=1e9, resync=9), "grouping_key": "item"},
    "posg by all": {"grouping": "posg"},
    "dkg": {"grouping": od.DKG(m=30), "grouping_key": ("item",)},
    "blocks": {"grouping": "blocks"},
    "round_robin": {"grouping": "round_robin"},
}


class Clock:
    """A clock that functions put forward."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    monotonic = thread_time = perf_counter


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(proactive, "time", made)
    return made


@pytest.fixture(autouse=True, scope="module")
def every_row_is_timed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proactive, "LEAST_TIMED", 1)
        yield


@given(
    front=st.sampled_from(sorted(FRONTS)),
    grouping=st.sampled_from(sorted(GROUPINGS)),
    nodes=st.sampled_from((1, 2, 3, 5)),
    count=st.sampled_from((0, 1, 90, 400)),
    block_rows=st.sampled_from((1, 7, 1000)),
    turns=st.tuples(st.none() | st.integers(0, 1000), st.sampled_from((None, 1, 200))),
)
def test_the_output_is_that_of_a_sequential_run(front, grouping, nodes, count, block_rows, turns):
    pipeline, table = FRONTS[front](od.Pipeline(SOURCE)), rows(count)
    expected = run_serial(pipeline, table)
    seed, channel_bytes = turns
    options = GROUPINGS[grouping] | {"tags": True}
    # a message per row: as many as 90 rows make show what there is to see
    more = {"seed": seed, "block_rows": max(block_rows, count // 90), "channel_bytes": channel_bytes}
    if expected.error is not None:
        with pytest.raises(OperatorError, match="serial 101") as found:
            run_here(pipeline, table, nodes, options, **more)
        assert found.value.row == expected.error.row
        return
    result = run_here(pipeline, table, nodes, options, **more)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    tags = zip(result.table["_serial"].to_pylist(), result.table["_index"].to_pylist(), strict=True)
    assert list(tags) == expected.tags


@pytest.mark.parametrize("nodes", [2, 4])
def test_posg_goes_through_its_states_by_messages(nodes, clock, monkeypatch):
    """Every node sends matrices, all answer, and C^ is corrected again and again."""
    heard = []
    whole = proactive.Proactive.hear

    def hear(self, node, body):
        before = self.scheduler.state
        whole(self, node, body)
        heard.append((node, body[:1], before, self.scheduler.state))

    monkeypatch.setattr(proactive.Proactive, "hear", hear)
    pipeline, table = FRONTS["map"](od.Pipeline(SOURCE)), rows(3_000)
    options = {"grouping": od.POSG(window=100, mu=1e9, resync=150), "grouping_key": "item"}
    result = run_here(pipeline, table, nodes, options, block_rows=4, channel_bytes=400)
    assert result.table.equals(run_serial(pipeline, table).table)
    figures = result.report.grouping
    assert figures["synchronised"] > 1
    assert figures["replies"] >= nodes * figures["synchronised"]
    assert {node for node, kind, _, _ in heard if kind == proactive.MATRICES} == set(range(nodes))
    assert ("ROUND ROBIN", "SEND ALL") in {step[2:] for step in heard if step[1] == proactive.MATRICES}
    assert ("WAIT ALL", "RUN") in {step[2:] for step in heard if step[1] == proactive.REPLIES}
    assert str(result.report).count("grouping: posg, state ") == 1


@pytest.mark.parametrize("once_per_row", [True, False])
def test_posg_learns_what_rows_cost(once_per_row, clock, monkeypatch):
    """A node's matrices tell items that take long from others, also where rows came together."""
    runs, poll = [], polled_stream.PolledStream.poll

    def polled(stream, *given):
        runs.append(0)
        return poll(stream, *given)

    monkeypatch.setattr(polled_stream.PolledStream, "poll", polled)

    def work(row):
        runs[-1] += 1
        clock.now += 4.0 if row.item == "item 1" else 0.25
        return (row.item, row.n)

    table = pa.table({"item": [f"item {n % 5}" for n in range(200)], "n": range(200)}, schema=SOURCE)
    pipeline = od.Pipeline(SOURCE).map(work, schema=SOURCE)
    if not once_per_row:
        pipeline = od.Pipeline(SOURCE).flat_map(lambda row: [work(row)], schema=SOURCE)
    here = SameProcess()
    options = {"grouping": od.POSG(window=10_000), "grouping_key": "item"}
    run_here(pipeline, table, 2, options, here=here)
    for node in here.nodes:
        times = node._operators._instance.times
        assert 100 - proactive.LEARN_ROWS < times.tuples <= 100  # at the end nobody asks for the rest
        costs = times.estimate_many(pa.array(["item 1", "item 2"]))
        assert costs.tolist() == [4.0, 0.25]
    assert max(runs) > 10 if once_per_row else max(runs) == 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.sampled_from((1, 10, 37)))
def test_a_learnt_map_changes_at_multiples_of_m_and_nowhere_else(blocks, m):
    """Whatever the blocks, and by the rows in front only."""
    table = rows(sum(blocks)).combine_chunks().to_batches()[0]
    parameters = od.DKG(m=m, theta=0.2)

    def spread(sizes):
        learnt, found, first = LearntMap(parameters, 3, (0,)), [], 1
        for size in sizes:
            found += learnt.nodes(first, table.slice(first - 1, size), [0, 1, 2]).tolist()
            first += size
        return found, learnt.report()["maps"]

    found, maps = spread(blocks)
    assert (found, maps) == spread([1] * table.num_rows)
    assert maps == (table.num_rows - 1) // m
    for start in range(0, table.num_rows, m):
        of_key = {}
        for item, node in zip(table["item"][start : start + m].to_pylist(), found[start:], strict=False):
            assert of_key.setdefault(item, node) == node


def test_a_map_that_learns_from_no_row_stays():
    """m=0 is DKG's, without heavy hitters. It went round and round."""
    table, pipeline = rows(60), FRONTS["map"](od.Pipeline(SOURCE))
    result = run_here(pipeline, table, 3, {"grouping": od.DKG(m=0), "grouping_key": "item"})
    assert result.table.equals(run_serial(pipeline, table).table)
    assert result.report.grouping == {"name": "dkg", "maps": 0, "heavy": 0}


def test_a_map_that_stays_serves_operators_with_state():
    table = rows(500)
    pipeline = od.Pipeline(SOURCE).filter(od.col("n") >= 0).key_by("item").scan(seen=od.count(), name="seen")
    learnt = od.DKG(m=200).fit(table["item"], 3)
    result = run_here(pipeline, table, 3, {"grouping": {"seen": learnt}})
    assert result.table.equals(run_serial(pipeline, table).table)
    sent = [c.rows for c in result.report.channels if c.sender.startswith("fragment 1")]
    by_node = np.bincount(learnt.route(table["item"].combine_chunks()), minlength=3)
    assert np.reshape(sent, (3, 3)).sum(axis=0).tolist() == by_node.tolist()


KEYED = od.Pipeline(SOURCE).key_by("item").scan(seen=od.count(), name="seen")
FRONT = od.Pipeline(SOURCE).filter(od.col("n") > 0, name="kept").key_by("item").scan(seen=od.count())


@pytest.mark.parametrize(
    ("pipeline", "options", "text"),
    [
        (
            KEYED,
            {"grouping": "posg"},
            "this pipeline begins with 'seen', which keeps state. While keys have",
        ),
        (KEYED, {"grouping": {"seen": od.DKG()}}, "'seen' runs where|begins with 'seen', which keeps state"),
        (FRONT, {"grouping": {"scan_2": od.DKG()}}, "'scan_2' runs where operators keep state. While keys"),
        (FRONT, {"grouping": "dkg"}, "name the columns that DKG looks at"),
        (FRONT, {"grouping": od.DKG(variant="pkg")}, "PKG splits the rows of a key"),
        (FRONT, {"grouping": "hash"}, "grouping is one of 'least_outstanding', 'blocks'"),
        (FRONT, {"grouping": 7}, "got 7"),
        (
            FRONT,
            {"grouping": Modulo(4), "grouping_key": "n"},
            "a Modulo for 4 nodes can.t serve",
        ),
        (FRONT, {"grouping": {"other": "posg"}}, "no operator is called 'other'; there are kept, scan_2"),
        (FRONT, {"grouping": "posg", "grouping_key": "m"}, "no column 'm'|'m'"),
        (FRONT, {"grouping": "posg", "workers": 2}, "workers must be 0"),
        (FRONT, {"grouping_key": "n"}, "give grouping= too"),
        (FRONT, {"grouping": "blocks", "grouping_key": "n"}, "key='n' does nothing: 'blocks' looks"),
        (FRONT, {"grouping": "least_outstanding", "grouping_key": "zz"}, "grouping_key='zz' does nothing"),
        (
            FRONT,
            {"grouping": {"scan_2": Modulo(3)}, "grouping_key": "n"},
            "looks at no column, or at the operator's own key",
        ),
    ],
)
def test_what_does_not_fit_is_refused(pipeline, options, text):
    with pytest.raises(od.OrdstreamError, match=text):
        run_here(pipeline, rows(10), 3, options)


def test_one_process_has_nothing_to_choose():
    assert FRONT.run(rows(10), processes=1, grouping="posg").table.num_rows == 9
    with pytest.raises(od.PlanError, match="grouping is for a run over several processes"):
        FRONT.run(rows(10), grouping="posg")
    assert FRONT.run(rows(10), processes=1, grouping=Modulo(4), grouping_key="n").table.num_rows == 9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"grouping": "nope"}, "grouping is one of 'least_outstanding'"),
        ({"grouping": {"other": "posg"}}, "no operator is called 'other'"),
        ({"grouping": "posg", "grouping_key": "m"}, "no column 'm'|'m'"),
        ({"grouping_key": "n"}, "give grouping= too"),
    ],
)
def test_one_process_refuses_what_several_refuse(options, text):
    with pytest.raises(od.OrdstreamError, match=text):
        FRONT.run(rows(10), processes=1, **options)
    with pytest.raises(od.OrdstreamError, match=text):
        FRONT.explain(processes=1, **options)


def test_a_node_gives_what_it_has_while_rows_that_take_long_wait(monkeypatch):
    """Without worker threads it works for a turn's time, not for as long as rows are there."""
    clock = Clock()
    for module in (polled_node, polled_stream):
        monkeypatch.setattr(module, "time", clock)
    worked = []

    def work(row):
        clock.now += 3.0
        worked.append(row.n)
        return (row.item, row.n)

    steps, whole = [], LiveNode.step

    def step(node):
        before = len(worked)
        try:
            return whole(node)
        finally:
            steps.append(len(worked) - before)

    monkeypatch.setattr(LiveNode, "step", step)
    pipeline, table = od.Pipeline(SOURCE).map(work, schema=SOURCE), rows(300)
    assert run_here(pipeline, table, 2, {}).table.equals(run_serial(pipeline, table).table)
    in_turns = [count for count in steps if count]
    assert max(in_turns) <= polled_node.FIRST_ROWS
    assert set(in_turns[-200:]) == {1}


def test_batches_do_not_shrink_where_a_step_takes_longer_than_a_turn(monkeypatch):
    """As on a machine with much else to do: rows one by one would take as many times the step."""
    clock = Clock()
    for module in (polled_node, polled_stream):
        monkeypatch.setattr(module, "time", clock)
    steps, poll = [], polled_stream.PolledStream.poll

    def slow(stream, *given):
        clock.now += 0.05
        return poll(stream, *given)

    def work(row):
        clock.now += 0.001
        steps[-1] += 1
        return (row.item, row.n)

    whole = LiveNode.step

    def step(node):
        steps.append(0)
        return whole(node)

    monkeypatch.setattr(polled_stream.PolledStream, "poll", slow)
    monkeypatch.setattr(LiveNode, "step", step)
    pipeline, table = od.Pipeline(SOURCE).map(work, schema=SOURCE), rows(6_000)
    found = run_here(pipeline, table, 2, {}).table
    largest = max(steps)
    assert found.equals(run_serial(pipeline, table).table)
    assert largest >= 250  # of blocks of 750 rows and less


def test_what_a_turn_makes_is_one_batch(monkeypatch):
    """And not one per chunk of the core, of which each has a row of a function that takes long."""
    clock = Clock()
    for module in (polled_node, polled_stream):
        monkeypatch.setattr(module, "time", clock)
    offered, offer = [], Outbox.offer

    def counting(out, batch, nodes=0):
        offered.append(batch.num_rows)
        offer(out, batch, nodes)

    monkeypatch.setattr(Outbox, "offer", counting)
    pipeline, table = od.Pipeline(SOURCE).map(lambda row: (row.item, row.n), schema=SOURCE), rows(2_000)
    options = {"chunk_rows": 10}
    assert run_here(pipeline, table, 2, options).table.equals(run_serial(pipeline, table).table)
    assert offered[0] == 250  # the caller's block: an eighth, of two nodes' parts
    assert len(offered) < 60  # 200 chunks in each direction


def test_a_node_that_nothing_came_for_leaves_its_core_alone(monkeypatch):
    """It is woken by every low and acknowledgement; most of these bring no rows."""
    polls, poll = [], polled_stream.PolledStream.poll
    ready, steps = [], LiveNode.step

    def polled(stream, *given):
        polls.append(stream)
        return poll(stream, *given)

    def step(node):
        before = len(polls)
        waits = not node.merge.ready() and node.merge.cut is None
        try:
            return steps(node)
        finally:
            ready.append((waits, len(polls) - before))

    monkeypatch.setattr(polled_stream.PolledStream, "poll", polled)
    monkeypatch.setattr(LiveNode, "step", step)
    table = rows(400)
    pipeline = od.Pipeline(SOURCE).key_by("item").scan(seen=od.count())
    assert run_here(pipeline, table, 3, {}, seed=3, block_rows=4).table.equals(
        run_serial(pipeline, table).table
    )
    waited = [count for waits, count in ready if waits]
    assert len(waited) > 100
    assert sum(waited) < len(waited) / 2


@pytest.mark.parametrize("live", [True, False])
def test_a_node_works_longer_where_many_rows_wait(monkeypatch, live):
    """A quarter of their time, and no longer than `LONG_TURN_S`; `WHOLE_TURN_S` if all rows are there."""
    clock = Clock()
    for module in (polled_node, polled_stream):
        monkeypatch.setattr(module, "time", clock)
    steps, whole = [], LiveNode.step

    def work(row):
        clock.now += 0.0005
        steps[-1] += 1
        return (row.item, row.n)

    def step(node):
        steps.append(0)
        return whole(node)

    monkeypatch.setattr(LiveNode, "step", step)
    pipeline, table = od.Pipeline(SOURCE).map(work, schema=SOURCE), rows(5_000)
    found = run_here(pipeline, iter(table.to_batches()) if live else table, 1, {}).table
    turns = [count for count in steps if count]
    assert found.equals(run_serial(pipeline, table).table)
    longest_s = polled_node.LONG_TURN_S if live else polled_node.WHOLE_TURN_S
    per_turn, at_most = polled_node.TURN_S / 0.0005, longest_s / 0.0005
    assert 0.9 * at_most <= max(turns[5:]) <= 1.1 * at_most
    assert turns[-1] <= per_turn + 1
