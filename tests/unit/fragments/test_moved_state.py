"""What a move between nodes costs, and what the nodes measure for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from random_moves import GivenMoves, RandomMoves

import ordstream as od
from ordstream.balance.keys import NULL_WORD
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments import balancing, measured_keys
from ordstream.fragments.balancing import steps_between
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.moving import Moved
from ordstream.fragments.moving_route import MovingRoute, changed_words
from ordstream.fragments.polled_node import PolledNode
from ordstream.fragments.same_process import run_here

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PIPELINE = od.Pipeline(SCHEMA).key_by("k").scan(n=od.count(), last=od.last("v"))
RING = od.Mixed().ring(2)


def home_of(keys):
    return RING.route_words(np.asarray(keys, np.int64).view(np.uint64))


def rows_of(keys, repeats):
    """All keys in turn, so often."""
    picked = np.tile(np.asarray(keys, np.int64), repeats)
    return pa.table([picked, np.arange(len(picked))], schema=SCHEMA)


def of_node(node, count, among=100_000):
    keys = np.arange(among)
    return keys[home_of(keys) == node][:count]


@pytest.fixture
def every_chunk(monkeypatch):
    monkeypatch.setattr(measured_keys, "SAMPLED", 1)


@pytest.fixture
def exported(monkeypatch):
    """Rows of state that left a run, one number per call."""
    counts, state_of = [], PolledNode.state_of

    def counting(self, operator, keys=None):
        found = state_of(self, operator, keys)
        counts.append(sum(batch.num_rows for batch in found))
        return found

    monkeypatch.setattr(PolledNode, "state_of", counting)
    return counts


@pytest.mark.parametrize(("others", "remembers"), [(100, True), (1_000, True), (100, False)])
def test_a_move_takes_the_state_of_its_keys_alone(others, remembers, every_chunk, exported, monkeypatch):
    """Whatever number of keys stays. An integer key needs not be remembered."""
    monkeypatch.setattr(measured_keys, "STATES", 0)
    if not remembers:
        monkeypatch.setattr(measured_keys.MeasuredKeys, "_remember", lambda self, words, columns: None)
    keys = of_node(0, others)
    going = keys[:7]
    data = rows_of(keys, 4_000 // others)
    moves = []
    found = run_here(
        PIPELINE, data, 2, {}, block_rows=100, interval=1_500, moves=moves,
        balance={1: GivenMoves(2, [(going, [1] * 7)])},
    )  # fmt: skip
    assert found.table.equals(PIPELINE.run(data).table)
    assert [one.rows for one in moves] == [7]
    # out of the old node; and from the second run of the new one into its first, if that was needed
    assert sum(exported) == (14 if moves[0].held else 7)


def test_keys_that_a_node_does_not_know_by_name_move_too(exported, monkeypatch):
    monkeypatch.setattr(measured_keys.MeasuredKeys, "columns_of", lambda self, words: None)
    keys = of_node(0, 100)
    data = rows_of(keys, 40)
    found = run_here(
        PIPELINE, data, 2, {}, block_rows=100, interval=1_500,
        balance={1: GivenMoves(2, [(keys[:7], [1] * 7)])},
    )  # fmt: skip
    assert found.table.equals(PIPELINE.run(data).table)
    assert max(exported) == 100


def test_string_and_composite_keys_and_wider_operators_move_too(every_chunk):
    """The operator behind has the fragment's key and one more: it is asked for all of its state."""
    names = ["a", "b", None, "cc", "d\0d", "é"]
    data = pa.table({"s": names * 200, "d": [n // 6 % 5 for n in range(1_200)], "v": list(range(1_200))})
    pipeline = (
        od.Pipeline(data.schema)
        .key_by("s").scan(n=od.count())
        .key_by("s", "d").scan(m=od.count())
    )  # fmt: skip
    moves = []
    balance = {1: RandomMoves(3, 2)}
    found = run_here(pipeline, data, 2, {}, balance=balance, interval=100, block_rows=10, moves=moves)
    assert found.table.equals(pipeline.run(data).table)
    assert sum(one.rows for one in moves) > 10


def test_a_plan_is_carried_out_in_bounded_steps(monkeypatch):
    monkeypatch.setattr(balancing, "STEP_KEYS", 10)
    monkeypatch.setattr(balancing, "STEP_BYTES", 1_000)
    draw = np.random.default_rng(5)
    words = draw.integers(0, 1 << 60, 300).astype(np.uint64)
    before = Assignment(RING, words[:200], draw.integers(0, 2, 200))
    after = Assignment(RING, words[100:], draw.integers(0, 2, 200))
    sizes = dict(zip(words.tolist(), draw.choice([50.0, 400.0, 3_000.0], 300).tolist(), strict=True))
    steps = steps_between(before, after, lambda keys: np.array([sizes[key] for key in keys.tolist()]))
    now = before
    for step in steps:
        behind = step.behind(now)
        moved = changed_words(now, behind)
        assert 0 < len(moved) <= 10
        assert moved.tolist() == step.words.tolist()
        assert now.route_words(moved).tolist() == step.source.tolist()
        assert len(moved) == 1 or sum(sizes[key] for key in moved.tolist()) <= 1_000
        assert len(behind) <= max(len(before), len(after))
        now = behind
    assert len(steps) > 10
    assert now.to_bytes() == after.to_bytes()
    assert steps_between(after, after, lambda keys: np.zeros(len(keys))) == []


def test_a_row_waits_for_one_step_of_a_plan(every_chunk, monkeypatch):
    monkeypatch.setattr(balancing, "STEP_KEYS", 5)
    keys = of_node(0, 60)
    data = rows_of(keys, 100)
    moves = []
    found = run_here(
        PIPELINE, data, 2, {}, block_rows=50, interval=2_000, moves=moves,
        balance={1: GivenMoves(2, [(keys[:23], [1] * 23)])},
    )  # fmt: skip
    assert found.table.equals(PIPELINE.run(data).table)
    assert [(one.keys, one.rows, one.steps) for one in moves] == [(23, 23, 5)]


@pytest.mark.parametrize(("protocol", "holds"), [("hold", True), ("pause", False)])
def test_nobody_holds_rows_where_the_source_pauses(protocol, holds, every_chunk):
    """Fig. 5's protocol: no row comes behind the table before the move is acknowledged."""
    keys = of_node(0, 40)
    data = rows_of(keys, 100)
    held = 0
    for seed in range(1, 5):
        moves = []
        given = [(keys[:20], [1] * 20), (keys[:10], [0] * 10)]
        found = run_here(
            PIPELINE, data, 2, {}, block_rows=20, interval=1_000, moves=moves, seed=seed,
            balance={1: GivenMoves(2, given, od.Mixed(protocol=protocol))},
        )  # fmt: skip
        assert found.table.equals(PIPELINE.run(data).table)
        assert len(moves) == 2
        held += sum(one.held for one in moves)
    assert (held > 0) == holds


def works(row, state, emit):
    """A tuple of the key 0 takes long."""
    total = 0
    for step in range(30_000 if row.k == 0 else 10):
        total += step
    state.n += 1
    state.text += "x" * row.v
    emit(row.k, state.n)


@pytest.mark.parametrize("row_by_row", [True, False])
def test_nodes_tell_what_a_key_costs_and_how_large_its_state_is(row_by_row, every_chunk, monkeypatch):
    """By CPU time: a dear key has no more rows than others. Also where no call can be timed by itself."""
    if not row_by_row:
        monkeypatch.setattr(Fragment, "timing_rows", lambda fragment, clock: None)
        monkeypatch.setattr(measured_keys, "BUDGET", 50.0)  # else a slow machine sees too few rows
    keys = np.arange(20)
    picked = np.random.default_rng(1).permutation(np.tile(keys, 150))
    data = pa.table([picked, np.where(picked == 3, 9, 1)], schema=SCHEMA)
    pipeline = od.Pipeline(SCHEMA).key_by("k").process(
        works, state={"n": pa.int64(), "text": pa.string()},
        schema=pa.schema([("k", pa.int64()), ("n", pa.int64())]),
    )  # fmt: skip
    controller = GivenMoves(2, [])
    run_here(pipeline, data, 2, {}, block_rows=50, channel_bytes=500, interval=700, balance={1: controller})
    known = controller.evidence
    assert known.keys.tolist() == keys.tolist()
    each = known.cost / known.tuples
    assert each[0] > 2 * each[1:].max()
    assert known.tuples.max() < 1.5 * known.tuples.min()
    assert known.state[3] > 4 * np.median(known.state)


def test_a_snapshot_has_the_route_table(every_chunk, tmp_path):
    """A run that goes on begins with it; one of another number of nodes with what of it fits."""
    keys = of_node(0, 40)
    data = rows_of(keys, 50)
    moved = {1: GivenMoves(2, [(keys[:20], [1] * 20)])}
    options = {"end": "suspend", "checkpoint": tmp_path}
    first = run_here(PIPELINE, data.slice(0, 1_500), 2, options, block_rows=50, interval=500, balance=moved)
    table = Assignment.from_bytes(first.snapshot.routes["scan_1"])
    assert table.table[0].tolist() == keys[:20].tolist()
    for nodes in (2, 3):
        begun = {1: GivenMoves(nodes, [])}
        options = {"restore": first.snapshot}
        rest = run_here(PIPELINE, data.slice(1_500), nodes, options, balance=begun)
        assert pa.concat_tables([first.table, rest.table]).equals(PIPELINE.run(data).table)
        assert begun[1].assignment.table[0].tolist() == (
            Assignment(begun[1].assignment.ring, *table.table).table[0].tolist()
        )
        if nodes == 2:
            sent = [one.rows for one in rest.report.channels if one.sender == "caller"]
            assert sent == [260, 240]


@pytest.mark.parametrize(
    ("before", "nodes", "balanced"),
    [(2, 2, True), (2, 3, True), (3, 2, True), (2, 5, True), (2, 3, False)],
)
def test_keys_that_move_because_nodes_come_or_go_are_told_apart(before, nodes, balanced, every_chunk):
    """Of a run that goes on: those of the ring are counted once, with all their state; plans have others."""
    pipeline = PIPELINE.key_by("k").scan(latest=od.max("v"), name="behind")
    keys = np.arange(400)
    data = rows_of(keys, 12)
    asked = {"balance": od.Mixed()} if balanced else {}
    first = run_here(pipeline, data.slice(0, 2_000), before, {"end": "suspend", "snapshots": True}, **asked)
    rest = run_here(pipeline, data.slice(2_000), nodes, {"restore": first.snapshot}, balance=od.Mixed())
    assert pa.concat_tables([first.table, rest.table]).equals(pipeline.run(data).table)
    told = rest.report.balance["scan_1"]
    moved = np.not_equal(*(od.Mixed().ring(n).route_words(keys.view(np.uint64)) for n in (before, nodes)))
    wanted = int(moved.sum()) if balanced else 0  # else it is not known where they were
    assert told["keys_by_plan"] == 0
    assert (told["keys_by_ring"], told["rows_by_ring"]) == (wanted, 2 * wanted)
    assert (told["bytes_by_ring"] > 0) == (wanted > 0)
    assert 0 < moved.mean() < 0.8 or nodes == before
    assert f"{wanted:,} with the number of processes" in str(rest.report)


def test_reports_come_early_at_first_and_then_after_every_interval():
    asking, asked = balancing.Balancing({}, 2, interval=400), []
    for serial in range(2_001):
        if asking.wants_report(serial):
            asking.asked(0, serial)
            asked.append(serial)
    assert asked == [100, 200, 400, 800, 1_200, 1_600, 2_000]


def test_a_null_key_is_remembered_beside_integers(every_chunk):
    """The word of null is that of an integer too: only what was looked at tells which one it was."""
    route = MovingRoute(SCHEMA, (0,), Assignment(RING))
    measured = measured_keys.MeasuredKeys(route, 0)
    rows = pa.record_batch([pa.array([5, None, -7, 5]), pa.array([0, 0, 0, 0])], schema=SCHEMA)
    words = np.unique(route.words(rows))
    assert measured.columns_of(words) is None  # null was not seen yet
    measured.saw(rows)
    found = measured.columns_of(words).column(0)
    assert sorted(found.to_pylist(), key=str) == [-7, 5, None]
    assert measured.columns_of(words[words != NULL_WORD]).column(0).null_count == 0
    assert len(measured._known) == 1


@pytest.mark.parametrize("pace", [0.0, 1e9])
def test_steps_leave_time_between_them(pace, monkeypatch):
    """But not in a run without threads, which has no time."""
    monkeypatch.setattr(balancing, "STEP_KEYS", 5)
    monkeypatch.setattr(balancing, "PACE", pace)
    made = balancing.Balancing({1: GivenMoves(2, [(of_node(0, 15), [1] * 15)])}, 2, interval=400)
    made._undecided = [1]
    made._think({})
    assert made.wants_move()
    for threads in (False, True):
        made.wake = (lambda: None) if threads else None
        shift = made.begin(2, 900)
        for _ in (0, 1):
            made.heard(Moved(shift.number, 1, 0))
        assert made.wants_move() == (pace == 0 or not threads)
        assert (made.due_in is None) == made.wants_move()  # the caller looks again, though no row comes


@pytest.mark.parametrize(("long", "sizes"), [(0.0, [5, 20, 3]), (1e9, [5] * 5 + [3])])
def test_behind_rows_that_wait_steps_are_larger(long, sizes, monkeypatch):
    monkeypatch.setattr(balancing, "STEP_KEYS", 5)
    monkeypatch.setattr(balancing, "PACE", 0.0)
    monkeypatch.setattr(balancing, "LONG_S", long)
    keys = of_node(0, 28)
    made = balancing.Balancing({1: GivenMoves(2, [(keys, [1] * 28)])}, 2, interval=400)
    made._undecided = [1]
    made._think({})
    made.wake = lambda: None
    found = []
    while made.wants_move():
        shift = made.begin(2, 900)
        assert (np.diff(shift.step.words.astype(np.int64)) > 0).all()
        found.append(len(shift.step.words))
        for _ in (0, 1):
            made.heard(Moved(shift.number, 1, 0))
    assert found == sizes
    assert made.figures[0].steps == len(sizes)
    assert made._controllers[1].assignment.route_words(keys.view(np.uint64)).tolist() == [1] * 28
