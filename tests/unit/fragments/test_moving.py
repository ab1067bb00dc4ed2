"""Keys that change their node: who has what, who waits for what, and how a move is given up."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from random_moves import GivenMoves, RandomMoves

import ordstream as od
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments import moving
from ordstream.fragments.balancing import Balancing
from ordstream.fragments.driver import tag_of_serial
from ordstream.fragments.moving import Moved, Shift
from ordstream.fragments.moving_route import MovingRoute, Step
from ordstream.fragments.process_stream import balancing_of, blocks_of
from ordstream.fragments.processes import prepare
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.fragments.topology import Topology
from ordstream.ground.ordertags import source_tags
from ordstream.testing import run_serial

TABLE = pa.table({"k": [n * n % 37 for n in range(600)], "v": list(range(600))})
PIPELINE = od.Pipeline(TABLE.schema).key_by("k").scan(n=od.count(), last=od.last("v"))


def table(nodes, keys=(), to=()):
    return Assignment(ConsistentHash(nodes), np.array(keys, np.uint64), np.array(to, np.int32))


def test_a_row_goes_by_the_table_that_its_tag_has():
    route = MovingRoute(TABLE.schema, (0,), table(2, [7], [0]))
    word, (one, other) = np.array([7], np.uint64), np.array([[0], [1]], np.int32)
    route.switch(tag_of_serial(3), Step(word, one, other))
    route.switch(tag_of_serial(5), Step(word, other, one))
    rows = pa.record_batch({"k": [7] * 6, "v": [0] * 6})
    tags = source_tags(np.arange(1, 7))
    home = int(table(2).route_words(np.array([7], np.uint64))[0])
    assert route(rows, tags).tolist() == [0, 0, 1, 1, 0, 0]
    assert route(rows.slice(2, 2), tags.slice(2, 2)).tolist() == [1, 1]
    assert route(rows).tolist() == [0] * 6  # of a state: by the table in force
    assert home in (0, 1)


def test_a_shift_is_bytes_and_comes_back():
    words = np.array([5, 9, 2**63 + 1], np.uint64)
    step = Step(words, np.array([1, 0, 1], np.int32), np.array([0, 2, 0], np.int32))
    found = Shift.from_bytes(Shift(10, 1, step).to_bytes())
    assert (found.number, found.fragment) == (10, 1)
    assert [one.tolist() for one in found.step] == [one.tolist() for one in step]
    assert found.step.pairs == {(1, 0), (0, 2)}


class Run:
    """A run in this process whose moves are looked at; `each` is called behind every output."""

    def __init__(
        self, nodes, seed, each=lambda run: None, interval=50, pipeline=PIPELINE, data=TABLE, block_rows=10
    ):
        fragments, options, _ = prepare(pipeline, {}, "nodes")
        options["snapshots"] = True
        self.balancing, tables = balancing_of({1: RandomMoves(seed, nodes)}, fragments, nodes, interval)
        topology = Topology(fragments, nodes, options, tables=tables)
        self.here = SameProcess(seed)
        blocks = blocks_of(pipeline.plan, topology, data, None, block_rows, lambda: None, own_thread=False)
        self.batches = []
        for batch in self.here.run(topology, blocks, pipeline.schema, False, None, None, self.balancing):
            self.batches.append(batch)
            each(self)
        self.table = pa.Table.from_batches(self.batches, schema=pipeline.schema)

    def keys_of_nodes(self):
        """Per node the keys whose state it has."""
        operator = PIPELINE.plan.operators[0]
        return [
            {key for rows in node._operators._main.state_of(operator) for key in rows["k"].to_pylist()}
            for node in self.here.nodes
        ]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_key_has_one_node_that_knows_it(seed):
    looked = []

    def look(run):
        if all(
            not (node.outcome or node._operators._move or node._operators._main._polled.is_closed)
            and node._operators._main.idle()
            for node in run.here.nodes
        ) and not (run.balancing._decided and run.balancing._decided.shift):
            owners = run.keys_of_nodes()
            assert sum(map(len, owners)) == len(set().union(*owners))
            looked.append(len(run.balancing.figures))

    run = Run(3, seed, look)
    assert run.table.equals(PIPELINE.run(TABLE).table)
    assert max(looked) >= 2  # between moves
    assert all(figures.rows for figures in run.balancing.figures)


@pytest.mark.parametrize("seed", [4, 5])
def test_a_move_that_is_given_up_comes_back(seed):
    """At whatever step it is; the table in force is the one before, and nothing is lost."""
    given_up = []

    def cancel(run):
        if run.balancing.cancel():
            given_up.append(run.balancing._decided is None or run.balancing._decided.shift is not None)

    run = Run(3, seed, cancel)
    assert run.table.equals(PIPELINE.run(TABLE).table)
    assert len(given_up) >= 2
    controller = run.balancing._controllers[1]
    assert controller.version == len(run.balancing.figures)


TEXTS = [None if n % 11 == 0 else f"k{n * n % 37}" for n in range(1_500)]
TYPES = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),  # of Polars; Arrow does not take some of them
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "large_binary": pa.large_binary(),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", TYPES)
def test_keys_of_any_type_move(kind, seed):
    data = pa.table({"k": pa.array(TEXTS).cast(TYPES[kind]), "v": list(range(len(TEXTS)))})
    pipeline = od.Pipeline(data.schema).key_by("k").scan(n=od.count(), last=od.last("v"))
    moves = RandomMoves(seed, 2)
    found = run_here(pipeline, data, 2, {}, balance={1: moves}, interval=150, block_rows=30, seed=seed)
    assert found.table.equals(run_serial(pipeline, data).table)
    assert moves.version > 1


def test_what_can_not_be_balanced_is_refused():
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    rows = schema.empty_table()
    with pytest.raises(od.PlanError, match="no operator of this pipeline has a key"):
        run_here(od.Pipeline(schema).scan(n=od.count()), rows, 2, {}, balance=od.Mixed())
    with pytest.raises(od.PlanError, match=r"od\.Mixed"):
        run_here(PIPELINE, rows, 2, {}, balance="mixed")
    with pytest.raises(od.PlanError, match="give processes="):
        PIPELINE.run(rows, balance=od.Mixed())


def test_a_skewed_stream_is_balanced_and_comes_to_rest():
    """Work by keys that hashing puts into one node; measured by the nodes themselves."""
    ring = od.Mixed().ring(2)
    keys = np.arange(400, dtype=np.int64)
    home = ring.route_words(keys.view(np.uint64))
    heavy, light = keys[home == 0][:60], keys[home == 1][:60]
    draw = np.random.default_rng(3)
    picked = np.where(draw.random(40_000) < 0.8, draw.choice(heavy, 40_000), draw.choice(light, 40_000))
    data = pa.table({"k": picked, "v": np.arange(40_000)})
    moves = []
    found = run_here(
        PIPELINE, data, 2, {}, block_rows=500, channel_bytes=2_000,
        balance=od.Mixed(theta=0.1, payback=0), interval=4_000, moves=moves,
    )  # fmt: skip
    assert found.table.equals(PIPELINE.run(data).table)
    assert moves
    assert sum(figures.keys for figures in moves) < 120


def test_bool_keys_with_nulls_move_too():
    data = pa.table({"k": [None, True, False] * 40, "v": list(range(120))})
    pipeline = od.Pipeline(data.schema).key_by("k").scan(n=od.count())
    balance = {1: RandomMoves(1, 2)}
    found = run_here(pipeline, data, 2, {}, balance=balance, interval=20, block_rows=5, channel_bytes=1)
    assert found.table.equals(pipeline.run(data).table)


@pytest.mark.parametrize("seed", [25, 55, 80, 136])
def test_a_row_that_fails_in_front_while_keys_move_is_what_the_run_raises(seed):
    """A node may be at its end before the state of keys comes there."""
    at = 40 + seed % 200

    def fails(row):
        if row.v == at:
            raise ValueError("not this one")
        return True

    pipeline = od.Pipeline(TABLE.schema).filter(fails).key_by("k").scan(n=od.count())
    chance = seed if seed % 3 else None
    with pytest.raises(od.OperatorError, match=f"serial {at + 1}"):
        run_here(
            pipeline, TABLE, 3, {}, balance={1: RandomMoves(seed + 1, 3)}, interval=10, block_rows=5,
            channel_bytes=1 if seed % 2 else None, seed=chance,
        )  # fmt: skip


@pytest.mark.parametrize("seed", [12, 22, 38, 104, 254, 280, 322])
def test_a_row_that_fails_where_keys_move_ends_the_run_behind_all_in_front(seed):
    """A node may fail before it gives the state of keys away, while others wait for it; or behind that,
    while the state is still under way (seed 280).
    """
    at = 20 + seed * 7 % 180

    def fails(row, state, emit):
        if row.v in (at, at + 3):
            raise ValueError("not this one")
        state.n += 1
        emit(state.n)

    pipeline = od.Pipeline(TABLE.schema).key_by("k").process(fails, state={"n": int}, schema={"n": int})
    run = Run(2, seed, interval=1, pipeline=pipeline, data=TABLE.slice(0, 220), block_rows=1)
    assert run.here.driver.failure().serial == at + 1
    assert run.table.equals(run_serial(pipeline, TABLE.slice(0, 220)).table)


def test_a_fragment_is_asked_once_another_ones_move_is_done():
    """Not only when its nodes report again, which may be tens of thousands of tuples later."""
    away = 1 - table(2).route_words(np.array([7], np.uint64))
    balancing = Balancing({fragment: GivenMoves(2, [([7], away)]) for fragment in (1, 2)}, 2)
    balancing.asked(1, 10)
    for node, fragment in itertools.product((0, 1), (1, 2)):
        one = np.ones(1)
        report = Report(node, 1, np.array([7], np.uint64), one.astype(int), one, one.astype(int))
        balancing.heard((fragment, report, np.zeros(1)))
    moved = []
    while balancing.wants_move():
        shift = balancing.begin(len(moved) + 2, 10)
        moved.append(shift.fragment)
        for node in (0, 1):
            balancing.heard(Moved(shift.number, shift.fragment, node))
    assert moved == [1, 2]


def test_the_run_of_moved_keys_alone_works_only_where_something_came_for_them(monkeypatch):
    """Rows, or marks of the clock, behind the move and in front of the state: else that goes to its place at
    once.
    """
    ways, done = Counter(), moving.MovingOperators._done

    def seen(self, move):
        ways["apart" if move.apart else "at once"] += move.bytes > 0
        assert move.apart == move.begun
        done(self, move)

    monkeypatch.setattr(moving.MovingOperators, "_done", seen)
    for seed in range(6):
        assert Run(3, seed).table.equals(PIPELINE.run(TABLE).table)
    assert min(ways["apart"], ways["at once"]) >= 5, ways
