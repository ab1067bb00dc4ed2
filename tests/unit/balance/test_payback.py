"""A move must pay: what the imbalance has cost against what moving keys costs, by given loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ordstream as od
from ordstream.balance.mixed import Assignment, Controller, MoveCosts, Payback, Report
from ordstream.balance.mixed.payback import FIRST, INTERVALS, LEAST
from ordstream.balance.serial_form import SketchBytesError
from ordstream.errors import PlanError

ROWS = 40_000
RING = od.Mixed().ring(4)
NODES = 4
SOME = np.arange(1_000, dtype=np.uint64)
KEYS = np.concatenate([SOME[RING.route_words(SOME) == node][:100] for node in range(NODES)])
HOME = RING.route_words(KEYS)
EVEN = np.full(len(KEYS), 1 / len(KEYS))


def burst(node: int, share: float = 0.3, keys: int = 6) -> Any:
    """Shares of the keys where a few of a node's come often."""
    found = EVEN * (1 - share)
    found[np.flatnonzero(node == HOME)[:keys]] += share / keys
    return found


def told(
    controller: Controller, number: int, share: Any, row_s: float, whole: float = 0.0, size: int = 64
) -> Any:
    """The nodes' reports of an interval, each tuple of the same cost; what is decided."""
    counts = np.rint(ROWS * share).astype(np.int64)
    at = controller.assignment.route_words(KEYS)
    assert controller.payback is not None
    controller.payback.around({}, whole=whole)
    for node in range(NODES):
        mine = at == node
        held = np.full(int(mine.sum()), size)
        controller.report(Report(node, number, KEYS[mine], counts[mine], row_s * counts[mine], held))
    return controller.decide()


def controller(times: float = 1.0, processors: int | None = None, in_turn: bool = False) -> Controller:
    return Controller(od.Mixed(payback=times), NODES, payback=Payback(times, processors, in_turn))


def followed(one: Controller, shares: list[Any], row_s: float, **given: Any) -> list[tuple[int, Any]]:
    moves = []
    for number, share in enumerate(shares):
        move = told(one, number, share, row_s, **given)
        if move is not None:
            moves.append((number, move))
            one.commit(move)
    return moves


def lost(shares: list[Any], row_s: float, moves: list[tuple[int, Any]]) -> float:
    """Seconds of the fullest node above the mean, by the tables in force, and of the moves as expected."""
    tables, total = dict(moves), 0.0
    now = Assignment(RING)
    for number, share in enumerate(shares):
        loads = np.bincount(now.route_words(KEYS), share, NODES) * ROWS * row_s
        total += float(loads.max() - loads.mean())
        if number in tables:
            now = tables[number].after
            total += tables[number].cost
    return total


def test_lasting_skew_is_moved_once_it_has_cost_what_the_move_costs() -> None:
    shares = [burst(0)] * 20
    for row_s, within in ((1e-5, 1), (1e-6, 4), (2e-7, 12)):
        one = controller()
        moves = followed(one, shares, row_s)
        assert moves
        assert moves[0][0] <= within
        assert 0 < moves[0][1].cost <= moves[0][1].gain
        assert one.payback is not None
        assert one.payback.put_off == sum(1 for number in range(moves[0][0]))
        assert len(moves) <= 2
        assert overload(shares[-1], one) < 0.1


def overload(share: Any, one: Controller) -> float:
    loads = np.bincount(one.assignment.route_words(KEYS), share, NODES)
    return float(loads.max() / loads.mean() - 1)


def test_bursts_that_are_gone_before_a_move_pays_move_nothing() -> None:
    """In each interval other keys of another node: at once, each would be a move."""
    rng = np.random.default_rng(1)
    shares = []
    for number in range(60):
        share = EVEN * 0.7
        share[rng.choice(np.flatnonzero(number % NODES == HOME), 6, replace=False)] += 0.3 / 6
        shares.append(share)
    at_once = followed(Controller(od.Mixed(), NODES, payback=Payback(1e-9)), shares, 1e-6)
    assert len(at_once) > 10
    one = controller()
    moves = followed(one, shares, 1e-6)
    assert moves == []
    assert "put off" in one.why
    assert lost(shares, 1e-6, moves) < lost(shares, 1e-6, at_once)


@pytest.mark.parametrize("lasts", [1, 2, 3, 5, 8, 13, 40])
@pytest.mark.parametrize("row_s", [3e-7, 1e-6, 4e-6])
def test_imbalance_and_move_cost_at_most_twice_the_best_in_hindsight(lasts: int, row_s: float) -> None:
    """While it lasts: either no move, or the move in front of it, but for an interval that shows it, and
    what the plan leaves.
    """
    shares = [burst(1)] * lasts
    never = lost(shares, row_s, [])
    at_once = followed(controller(1e-9), shares, row_s)[0][1]
    best = min(never, at_once.cost + lasts * at_once.theta_after * ROWS * row_s / NODES)
    interval = lost(shares[:1], row_s, [])
    found = lost(shares, row_s, followed(controller(), shares, row_s))
    assert found <= 2 * best + interval


def test_a_part_of_a_plan_is_carried_out_where_all_of_it_does_not_pay() -> None:
    """A few dear keys, and many with much state that are worth little each."""
    share = EVEN * 0.5
    mine = np.flatnonzero(HOME == 2)
    share[mine[:3]] += 0.12
    share[mine[3:60]] += 0.14 / 57
    one = controller()
    moves = followed(one, [share] * 6, 2e-6, size=40_000)
    assert moves
    all_at_once = followed(controller(1e-9), [share] * 2, 2e-6, size=40_000)[0][1]
    whole = Controller(od.Mixed(), NODES)
    whole.payback = None
    counts = np.rint(ROWS * share).astype(np.int64)
    for node in range(NODES):
        of = node == HOME
        whole.report(
            Report(node, 0, KEYS[of], counts[of], 2e-6 * counts[of], np.full(int(of.sum()), 40_000))
        )
    plan = whole.decide()
    assert plan is not None
    part = moves[0][1]
    assert len(part.keys) < len(plan.keys)
    assert set(part.keys.tolist()) < set(plan.keys.tolist())
    assert part.theta_after < part.theta_before
    assert part.cost < all_at_once.cost or len(all_at_once.keys) <= len(part.keys)


def test_more_nodes_than_processors_gain_nothing_by_an_even_split() -> None:
    shares = [burst(0)] * 10
    assert followed(controller(), shares, 1e-5)
    one = controller(processors=2)
    # the fullest node has less than half of the work: two processors are busy all the time
    assert np.bincount(HOME, burst(0)).max() < 0.5
    assert followed(one, shares, 1e-5) == []
    assert followed(controller(processors=2), [burst(0, 0.7)] * 10, 1e-5)


def test_tasks_that_wait_for_their_turn_end_sooner_where_none_is_long() -> None:
    """Four tasks in two slots: the long one begins last, and runs alone at the end."""
    shares = [burst(3)] * 10
    assert followed(controller(processors=2), shares, 1e-5) == []
    (number, move), *more = followed(controller(processors=2, in_turn=True), shares, 1e-5)
    assert number <= 2
    assert move.theta_after < move.theta_before / 4
    assert more == []


@pytest.mark.parametrize(
    ("loads", "slots", "seconds"),
    [
        ([15, 5, 6, 8], 2, 19.0),  # 15 | 5, 6, 8
        ([5, 6, 8, 15], 2, 21.0),  # 5, 8 | 6, 15
        ([3, 2, 2], 2, 4.0),
        ([7 / 3, 7 / 3, 7 / 3], 2, 14 / 3),  # an even split takes longer
        ([1, 2, 3], 1, 6.0),
        ([1, 2, 3], 3, 3.0),
        ([1, 2, 3], 9, 3.0),
        ([1, 2, 3], None, 3.0),
        ([], 2, 0.0),
    ],
)
def test_how_long_tasks_take_one_behind_the_other(
    loads: list[float], slots: int | None, seconds: float
) -> None:
    assert Payback(1.0, slots, in_turn=True).seconds(np.array(loads, float)) == pytest.approx(seconds)


def test_intervals_that_are_taken_in_together_keep_what_was_told_of_each() -> None:
    """While keys move, reports wait."""
    one = controller(processors=2)
    assert one.payback is not None
    for number, beside in enumerate((3.0, 5.0)):
        one.payback.around({1: 10.0 * beside}, beside, 0.5)
        for node in range(NODES):
            one.report(Report(node, number, KEYS[:1], [1], [1e-6], [8]))
    one.decide()
    held = [(float(of.rest[1]), of.beside, of.whole) for of in one.payback.past]
    assert held == [(30.0, 3.0, 0.5), (50.0, 5.0, 0.5)]


def test_a_gain_that_is_nothing_beside_the_whole_time_is_none() -> None:
    """Nodes that are idle most of the time, as in small jobs."""
    shares = [burst(0)] * 40
    assert followed(controller(), shares, 1e-6, whole=0.1)
    assert followed(controller(), shares, 1e-6, whole=5.0) == []


def test_costs_are_learnt_from_the_moves_made() -> None:
    costs = MoveCosts()
    assert costs.each == FIRST
    for keys, size in ((10, 1e4), (1_000, 1e4), (10, 1e7), (300, 1e6), (1, 0), (2_000, 5e6)) * 2:
        costs.learn(keys, size, 0.2 + 1e-3 * keys + 1e-7 * size)
    for keys, size in ((1, 0), (500, 2e6), (3_000, 1e7)):
        assert costs.of(keys, size) == pytest.approx(0.2 + 1e-3 * keys + 1e-7 * size, rel=0.25)
    uneven = MoveCosts()
    for number in range(16):  # one in four waits for long: what counts is the mean
        uneven.learn(10, 1e4, 0.0 if number % 4 else 0.8)
    assert uneven.of(10, 1e4) == pytest.approx(0.2, rel=0.1)
    for _ in range(40):  # free, all of them
        costs.learn(100, 1e5, 0.0)
    assert all(LEAST * first <= each < first / 5 for each, first in zip(costs.each, FIRST, strict=True))
    for _ in range(3):
        costs.learn(100, 1e5, 3.0)
    assert costs.of(100, 1e5) > 3 * FIRST[0]


def test_a_dear_move_makes_the_next_one_wait() -> None:
    """The same burst elsewhere waits until it has cost as much."""
    waited = []
    for took in (0.0, 0.5):
        one = controller()
        number = 0
        for node in (0, 1):
            began = number
            while (move := told(one, number, burst(node), 4e-6)) is None:
                number += 1
            waited.append(number - began)
            one.commit(move)
            assert one.payback is not None
            one.payback.costs.learn(len(move.keys), move.state, took)
            number += 1
    assert waited[0] == waited[2]
    assert waited[3] > waited[1] + 2


def test_old_intervals_are_added_up() -> None:
    """Slow skew is seen however long it takes."""
    one = controller()
    moves = followed(one, [burst(3, 0.15)] * 120, 1e-7)
    assert moves
    assert moves[0][0] > 2 * INTERVALS
    assert one.payback is not None
    assert len(one.payback.past) <= INTERVALS


def test_names_are_bounded_and_what_has_none_stays() -> None:
    one = Controller(od.Mixed(), NODES, most=20, payback=Payback())
    told(one, 0, burst(0), 1e-6)
    assert one.payback is not None
    (held,) = one.payback.past
    assert len(held.keys) == 20
    loads = np.bincount(one.assignment.route_words(held.keys), held.cost, NODES) + held.rest
    assert loads == pytest.approx(np.bincount(HOME, np.rint(ROWS * burst(0)), NODES) * 1e-6)


def test_names_are_bounded_where_keys_are_new_in_each_interval() -> None:
    """Session ids in a stream that stays balanced: what is known of the past, and written into each
    checkpoint, grew by an interval's names with every interval.
    """
    one, counts = Controller(od.Mixed(), NODES, most=20, payback=Payback()), np.full(100, ROWS // 400)
    assert one.payback is not None
    for number in range(5 * INTERVALS):
        one.payback.around({}, whole=0.1)
        new = np.arange(number * 10_000, (number + 1) * 10_000, dtype=np.uint64)
        home = RING.route_words(new)
        for node in range(NODES):
            keys = new[home == node][:100]
            one.report(Report(node, number, keys, counts, 1e-6 * counts, counts))
        assert one.decide() is None
        assert max(len(held.keys) for held in one.payback.past) <= 20
    seconds = [float(held.cost.sum() + held.rest.sum()) for held in one.payback.past]
    assert sum(seconds) == pytest.approx(5 * INTERVALS * 0.04)
    assert sum(held.whole for held in one.payback.past) == pytest.approx(5 * INTERVALS * 0.1)


def test_what_was_learnt_and_seen_goes_on_from_bytes() -> None:
    one = controller()
    for number in range(3):
        told(one, number, burst(0), 2e-7)
    assert one.payback is not None
    one.payback.costs.learn(10, 1e5, 0.3)
    policy = od.Mixed()
    other = Controller.from_bytes(one.to_bytes(), policy, payback=Payback())
    for number in range(3, 90):
        moves = [told(each, number, burst(0), 1e-6) for each in (one, other)]
        assert one.why == other.why
        assert repr(moves[0]) == repr(moves[1])
        if moves[0] is not None:
            assert moves[0].gain == moves[1].gain > moves[0].cost
            break
    assert one.pending is not None
    again = Controller.from_bytes(one.to_bytes(), policy, payback=Payback())
    assert again.pending is not None
    assert (again.pending.gain, again.pending.cost) == (one.pending.gain, one.pending.cost)
    assert Controller.from_bytes(one.to_bytes(), policy).payback is None
    with pytest.raises(SketchBytesError):
        Payback().read(one.to_bytes())


def test_a_number_of_times_that_is_none() -> None:
    with pytest.raises(PlanError, match="payback must be finite and not negative, not -1"):
        od.Mixed(payback=-1)
    with pytest.raises(PlanError, match="payback must be a number"):
        od.Mixed(payback="yes")
