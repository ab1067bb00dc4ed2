"""Mixed's controller: what it decides from reports, on stationary and on drifting streams, and that a move
can be given up at any time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ordstream as od
from ordstream.balance.mixed import Assignment, Controller, Report
from ordstream.balance.mixed.evidence import needed
from ordstream.balance.mixed.statistics import overload
from ordstream.balance.serial_form import SketchBytesError
from ordstream.errors import PlanError

KEYS = 1_500


class Words:
    """A stream of words whose frequencies are Zipf's; which word has which rank may change."""

    def __init__(self, seed: int, alpha: float = 0.9, keys: int = KEYS) -> None:
        self.rng = np.random.default_rng(seed)
        self.keys = np.arange(keys, dtype=np.uint64)
        weight = 1 / np.arange(1, keys + 1) ** alpha
        self.share = self.rng.permutation(weight / weight.sum())

    def swap(self, times: int) -> None:
        """Frequent words become rare and others frequent."""
        frequent = np.argsort(-self.share)[:20]
        for one, other in zip(
            self.rng.choice(frequent, times), self.rng.integers(0, len(self.keys), times), strict=True
        ):
            self.share[[one, other]] = self.share[[other, one]]

    def interval(self, controller: Controller, number: int, rows: int, sampled: float = 1.0) -> None:
        """The nodes' reports of one interval."""
        counts = self.rng.multinomial(rows, self.share)
        seen = self.rng.binomial(counts, sampled) if sampled < 1 else counts
        at = controller.assignment.route_words(self.keys)
        for node in controller.assignment.ring.members:
            mine = np.flatnonzero((at == node) & (counts > 0))
            # tuples of one mean cost, each by itself a third more or less
            seconds = 1e-6 * np.maximum(
                seen[mine] + self.rng.normal(0, 0.3, len(mine)) * np.sqrt(seen[mine]), 0
            )
            controller.report(
                Report(node, number, self.keys[mine], seen[mine], seconds, np.full(len(mine), 64), sampled)
            )

    def theta(self, assignment: Assignment) -> float:
        """The true overload."""
        loads = np.bincount(
            assignment.route_words(self.keys), weights=self.share, minlength=max(assignment.ring.members) + 1
        )
        return overload(loads[list(assignment.ring.members)])


def followed(
    words: Words, controller: Controller, intervals: int, rows: int, first: int = 0, drift: int = 0
) -> list[tuple[int, Any]]:
    """Carry out every move at once; (interval, move)."""
    moves = []
    for number in range(first, first + intervals):
        if drift and number and number % drift == 0:
            words.swap(4)
        words.interval(controller, number, rows)
        move = controller.decide()
        if move is not None:
            moves.append((number, move))
            controller.commit(move)
    return moves


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 8),
    st.sampled_from([0.0, 0.03, 0.08, 0.2]),
    st.sampled_from([4_000, 40_000]),
)
@example(882, 6, 0.0, 40_000)
@example(178, 4, 0.2, 4_000)
def test_a_stationary_stream_moves_nothing_after_it_converged(
    seed: int, nodes: int, theta: float, rows: int
) -> None:
    words, controller = Words(seed), Controller(od.Mixed(theta, seed=seed), nodes)
    intervals = max(15, 4 * needed(theta, nodes) // rows)
    moves = followed(words, controller, intervals, rows)
    assert len(moves) <= 4
    before = words.theta(Assignment(controller.policy.ring(nodes)))
    left = words.theta(controller.assignment)
    late = followed(words, controller, 25, rows, intervals)
    # a true overload just above θ may be seen late, but once
    assert not late or (left > theta and len(late) == 1)
    moves += late
    # within what the evidence tells: five standard deviations of the fullest instance's load
    known = 5 * float(
        controller.evidence.deviations(*_placed(controller)).max() / (controller.evidence.cost.sum() / nodes)
    )
    assert words.theta(controller.assignment) <= max(theta + 2 * known, 0.0 if moves else before)


def _placed(controller: Controller) -> tuple[Any, int]:
    at = controller.assignment.route_words(controller.evidence.keys)
    return at, controller.assignment.instances


def test_chance_alone_moves_nothing() -> None:
    """106 equal keys against 94: within the bound, and measured above it now and then."""
    controller = Controller(od.Mixed(0.08), 2)
    every = np.arange(1_000, dtype=np.uint64)
    at = controller.assignment.route_words(every)
    words = Words(8)
    words.keys = np.concatenate([every[at == 0][:106], every[at == 1][:94]])
    words.share = np.full(200, 1 / 200)
    assert words.theta(controller.assignment) == pytest.approx(0.06)
    measured = []
    for number in range(100):
        words.interval(controller, number, 1_300)
        assert controller.decide() is None
        known = controller.evidence
        measured.append(
            overload(np.bincount(controller.assignment.route_words(known.keys), weights=known.cost))
        )
    assert max(measured[10:]) > 0.08


def test_three_rows_in_an_interval_change_nothing() -> None:
    words, controller = Words(1, alpha=1.6), Controller(od.Mixed(), 4)
    assert words.theta(controller.assignment) > 0.3
    assert followed(words, controller, 500, 3) == []
    assert controller.why == f"1,500 tuples of the {needed(0.08, 4):,} that a plan needs"
    moves = followed(words, controller, 1, 60_000, 500)
    assert len(moves) == 1
    state = controller.assignment.to_bytes()
    assert followed(words, controller, 200, 3, 501) == []
    assert controller.assignment.to_bytes() == state


def test_what_was_sampled_is_evidence_and_what_it_stands_for_is_load() -> None:
    """One chunk in sixteen: a sixteenth of the evidence, all of the cost."""
    loads, evidence = [], []
    for sampled in (1.0, 1 / 16):
        words, controller = Words(2), Controller(od.Mixed(), 4)
        words.interval(controller, 0, 60_000, sampled)
        controller.decide()
        loads.append(controller.evidence.cost.sum())
        evidence.append(controller.evidence.total)
    assert loads[1] == pytest.approx(loads[0], rel=0.1)
    assert evidence[1] == pytest.approx(60_000 / 16, rel=0.1)


def test_drifting_words_are_followed() -> None:
    """Each 20 intervals four frequent words become rare: most of the time the balance is kept, and it takes
    few moves of few keys."""
    words, controller = Words(3), Controller(od.Mixed(0.08), 4)
    ring = Assignment(controller.policy.ring(4))
    mine, hashed, moved, state = [], [], 0, 0.0
    for number in range(0, 200):
        if number % 20 == 0:
            words.swap(4)
        mine.append(words.theta(controller.assignment))
        hashed.append(words.theta(ring))
        words.interval(controller, number, 20_000)
        move = controller.decide()
        if move is not None:
            moved += len(move.keys)
            state += move.state
            assert move.theta_after <= 0.04 < 0.08 < move.theta_before  # half of the bound
            controller.commit(move)
    assert np.mean(hashed) > 0.1
    assert np.mean(mine) < 0.6 * np.mean(hashed)
    assert np.mean(np.array(mine) > 0.15) < 0.1
    assert 1 <= controller.version <= 20
    assert moved < 0.1 * KEYS * controller.version


@pytest.mark.parametrize("end", ["commit", "cancel"])
def test_a_move_says_what_changes_and_can_be_given_up(end: str) -> None:
    words, controller = Words(4, alpha=1.2), Controller(od.Mixed(), 4)
    words.interval(controller, 0, 60_000)
    before = controller.assignment
    move = controller.decide()
    assert move is not None
    assert (move.version, controller.version, controller.assignment) == (1, 0, before)
    assert move.keys.tolist() == controller.evidence.keys[move.changes(controller.evidence.keys)].tolist()
    assert move.source.tolist() == before.route_words(move.keys).tolist()
    assert move.destination.tolist() == move.after.route_words(move.keys).tolist()
    assert not move.by_ring.any()
    assert move.state == 64 * len(move.keys)
    assert move.theta_after <= 0.08 < move.theta_before
    assert len(move.after) <= 3_000
    words.interval(controller, 1, 60_000)  # nodes go on reporting
    assert controller.decide() is None
    assert "under way" in controller.why
    with pytest.raises(PlanError, match="under way"):
        controller.resize(5)
    getattr(controller, end)(move)
    with pytest.raises(PlanError, match="is not under way"):
        getattr(controller, end)(move)
    if end == "commit":
        assert (controller.version, controller.assignment) == (1, move.after)
        assert followed(words, controller, 20, 60_000, 2) == []
        return
    assert (controller.version, controller.assignment) == (0, before)
    assert controller.decide() is None  # not the same again from the same evidence
    words.interval(controller, 2, 60_000)
    again = controller.decide()
    assert again is not None
    assert again.version == 2
    assert again.before is before


@pytest.mark.parametrize("nodes", [[0, 1, 2, 3, 4], [0, 1, 3], [0, 1, 2, 7]])
def test_nodes_come_and_go(nodes: list[int]) -> None:
    words, controller = Words(5, alpha=1.1), Controller(od.Mixed(), 4)
    followed(words, controller, 5, 40_000)
    before = controller.assignment
    move = controller.resize(nodes)
    assert move is not None
    assert controller.assignment is before
    ring = before.on(controller.policy.ring(nodes))
    on_ring = before.route_words(move.keys) != ring.route_words(move.keys)
    assert move.by_ring.tolist() == on_ring.tolist()
    assert move.by_ring.any()
    assert set(move.destination.tolist()) <= set(nodes)
    assert move.theta_after <= 0.08
    controller.commit(move)
    with_late = Report(2, 99, [1], [1], [1e-6], [8])
    assert controller.report(with_late) == (2 in nodes)
    assert followed(words, controller, 30, 40_000, 100) == []
    assert words.theta(controller.assignment) < 0.12
    assert controller.resize(nodes) is None


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(
        st.sampled_from(["report", "decide", "commit", "cancel", "resize", "restart"]),
        min_size=1,
        max_size=25,
    ),
)
def test_a_controller_from_its_bytes_goes_on_as_it_would(seed: int, steps: list[str]) -> None:
    """At every step: the same table, the same version, the same move under way."""
    policy = od.Mixed(0.05, 40, seed=seed)
    words, one = Words(seed, keys=300), Controller(policy, 3)
    for number, step in enumerate(steps):
        nodes = one.assignment.ring.members
        if step == "report":
            words.interval(one, number, 30_000)
        elif step == "decide":
            other = Controller.from_bytes(one.to_bytes(), policy)
            moves = [each.decide() for each in (one, other)]
            assert repr(moves[0]) == repr(moves[1])
            assert one.why == other.why
            tables = [None if move is None else move.after.to_bytes() for move in moves]
            assert tables[0] == tables[1]
        elif step == "resize" and one.pending is None:
            one.resize([*nodes, max(nodes) + 1] if len(nodes) < 4 else nodes[1:])
        elif step in ("commit", "cancel") and one.pending is not None:
            getattr(one, step)(one.pending)
        elif step == "restart":
            one = Controller.from_bytes(one.to_bytes(), policy)
        again = Controller.from_bytes(one.to_bytes(), policy)
        assert (again.version, repr(again.pending)) == (one.version, repr(one.pending))
        assert again.assignment.to_bytes() == one.assignment.to_bytes()
        table, to = one.assignment.table
        assert len(table) <= 40 or one.pending is None
        assert set(to.tolist()) <= set(one.assignment.ring.members)


def test_nodes_that_name_their_dearest_keys_only_are_balanced_all_the_same() -> None:
    """The rest counts as one load for each node, which stays where it is."""
    words, controller = Words(9), Controller(od.Mixed(0.08, table=20), 4, most=120)
    whole = Controller(od.Mixed(0.08, table=20), 4)
    before = words.theta(controller.assignment)
    assert before > 0.08

    class Bounded:
        assignment = controller.assignment

        def report(self, one: Report) -> None:
            told = one.heaviest(40, controller.assignment.table[0])
            assert len(told.keys) <= 60
            assert told.tuples.sum() + told.rest[0] == one.tuples.sum()
            assert told.seconds.sum() + told.rest[1] == pytest.approx(one.seconds.sum())
            again = Report.from_bytes(told.to_bytes())
            assert again.rest == told.rest
            controller.report(again)
            whole.report(one)

    bounded: Any = Bounded()
    for number in range(8):
        words.interval(bounded, number, 20_000)
        move = controller.decide()
        whole.decide()
        known = controller.evidence
        assert len(known.keys) <= 140
        assert known.total == pytest.approx(whole.evidence.total, rel=1e-3)
        cost = known.cost.sum() + sum(one[1] for one in known.rest.values())
        assert cost == pytest.approx(whole.evidence.cost.sum(), rel=1e-3)
        if move is not None:
            controller.commit(move)
            bounded.assignment = controller.assignment
        controller = Controller.from_bytes(controller.to_bytes(), controller.policy, most=120)
    assert words.theta(controller.assignment) <= 0.1 < before
    assert controller.version == 1
    resized = controller.resize(5)
    assert resized is not None
    controller.commit(resized)
    rest = [one[1] for one in controller.evidence.rest.values()]
    assert rest == [rest[0]] * 5


def test_reports_are_taken_once_and_in_order() -> None:
    words, controller = Words(6), Controller(od.Mixed(), 2)
    one = Report(0, 3, [1, 2], [4, 5], [1.0, 2.0], [7, 8])
    assert controller.report(one)
    assert not controller.report(one)
    assert not controller.report(Report(0, 2, [1], [4], [1.0], [7]))
    assert controller.report(Report(0, 4, [2], [0], [0.0], [0]))
    controller.decide()
    assert controller.evidence.state.tolist() == [7, 0]
    assert controller.evidence.tuples.sum() == 9
    with pytest.raises(PlanError, match="report of node 5, but the nodes are 0, 1"):
        controller.report(Report(5, 0, [1], [4], [1.0], [7]))
    again = Report.from_bytes(one.to_bytes())
    assert [getattr(again, name).tolist() for name in ("keys", "tuples", "seconds", "state")] == [
        [1, 2],
        [4, 5],
        [1.0, 2.0],
        [7, 8],
    ]
    assert (again.node, again.interval, again.sampled) == (0, 3, 1.0)
    for data in (b"", one.to_bytes()[:-1], controller.to_bytes()):
        with pytest.raises(SketchBytesError):
            Report.from_bytes(data)
    with pytest.raises(SketchBytesError, match="its ring has 1024 points, seed 0"):
        Controller.from_bytes(controller.to_bytes(), od.Mixed(seed=1))
    del words


@pytest.mark.parametrize("least", [1, 2])
def test_keys_that_keep_their_state_and_get_no_tuples_any_more(least: int) -> None:
    """What they once cost fades to nothing, in intervals without end."""
    controller = Controller(od.Mixed(theta=0.08), 2)
    for number in range(300):
        for node in (0, 1):
            keys = np.arange(100 * node, 100 * node + (10 if number else 20))
            tuples = np.where(keys % 100, least + keys % 3, 16_000)
            state = np.full(len(keys), 8)
            controller.report(Report(node, number, keys, tuples, tuples * 1e-5, state))
        move = controller.decide()
        if move is not None:
            controller.commit(move)
    assert len(controller.evidence.keys) == 40  # state of all is known
    assert (controller.evidence.tuples > 0).sum() == (controller.evidence.cost > 0).sum() == 20


def test_a_key_that_is_too_dear_is_named_and_moves_nothing_again() -> None:
    """Half of all the work is one key: one move puts the others elsewhere, and that is it."""
    controller = Controller(od.Mixed(), 4)
    rng = np.random.default_rng(7)
    keys = np.arange(200, dtype=np.uint64)
    share = np.append(0.5, np.full(199, 0.5 / 199))
    moves = []
    for number in range(30):
        counts = rng.multinomial(40_000, share)
        at = controller.assignment.route_words(keys)
        for node in range(4):
            mine = at == node
            controller.report(
                Report(node, number, keys[mine], counts[mine], 1e-6 * counts[mine], np.ones(int(mine.sum())))
            )
        move = controller.decide()
        if move is not None:
            moves.append(move)
            controller.commit(move)
    assert 1 <= len(moves) <= 2
    assert moves[0].limiting == 0
    assert (
        controller.assignment.route_words(keys) == controller.assignment.route_words(keys[:1])
    ).sum() <= 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"tuples": [1]}, "different lengths"),
        ({"keys": [1, 1]}, "a key twice"),
        ({"tuples": [1, -1]}, "tuples of its row 1 is -1"),
        ({"seconds": [float("nan"), 0]}, "seconds of its row 0 is nan"),
        ({"state": [-3, 0]}, "state of its row 0 is -3"),
        ({"sampled": 0.0}, "share of sampled"),
        ({"rest": (1, -1.0, 0)}, "bytes of the rest are"),
        ({"interval": -1}, "counted from 0"),
    ],
)
def test_reports_that_are_none(wrong: dict[str, Any], words: str) -> None:
    right = {
        "node": 0,
        "interval": 0,
        "keys": [1, 2],
        "tuples": [1, 1],
        "seconds": [0.1, 0.1],
        "state": [0, 0],
    }
    with pytest.raises(PlanError, match=words):
        Report(**(right | wrong))
