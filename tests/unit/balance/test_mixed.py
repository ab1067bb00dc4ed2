"""Mixed: the paper's examples by hand, the assignment's bytes, planners at their edges, and what is
refused.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from ordstream.balance.grouping import Grouping
from ordstream.balance.keys import key_words
from ordstream.balance.mixed import (
    PLANNERS,
    Assignment,
    Compact,
    ConsistentHash,
    Mixed,
    Plan,
    StateWindow,
    Statistics,
    discretised,
    min_mig,
    min_table,
    mixed,
    mixed_brute_force,
    plan_compact,
    readj,
    readj_once,
    representatives,
)
from ordstream.balance.mixed.compact import RECORD, merged, unit_of
from ordstream.balance.mixed.controller import Controller
from ordstream.balance.mixed.llfd import CANDIDATE, Rows, llfd
from ordstream.balance.mixed.ring import PREFIX, mixed_bits
from ordstream.balance.serial_form import SketchBytesError
from ordstream.errors import PlanError

# Figure 4: d1 has keys of cost 7, 4, 5, d2 of 2, 1, 1; the keys of cost 5 and 2 are in the routing table.
TOY_COST = [7, 4, 5, 2, 1, 1]
TOY = Statistics(TOY_COST, TOY_COST, [0, 0, 1, 0, 1, 1], 2, [0, 0, 0, 1, 1, 1])
STRICT = Mixed(theta=0.0, table=2, beta=1.0)


def costs_on(plan: Plan, d: int) -> list[float]:
    return sorted(TOY.cost[plan.destination == d].tolist(), reverse=True)


# --- the paper's examples -------------------------------------------------------------------------


def test_toy_example_llfd_alone_balances_and_needs_four_entries() -> None:
    """Left side of Figure 4: 7 leaves d1, 2 and then a 1 make room for it; the table grows from 2
    entries to 4.
    """
    assert (TOY.loads().tolist(), TOY.table_size) == ([16, 4], 2)
    rows = Rows(TOY)
    rows.destination[0] = CANDIDATE
    counted = llfd(rows, TOY.cost, 0.0)
    assert rows.destination.tolist() == [1, 0, 0, 1, 0, 1]
    assert rows.loads().tolist() == [10, 10]
    assert int((rows.destination != TOY.hashed).sum()) == 4
    assert (counted.placements, counted.evictions, counted.limiting) == (3, 2, None)


def test_toy_example_min_table_needs_two_entries() -> None:
    """Right side: after both entries were cleaned, 10/10 with 7, 2, 1 on d1."""
    plan = min_table(TOY, STRICT)
    assert plan.loads.tolist() == [10, 10]
    assert (costs_on(plan, 0), costs_on(plan, 1)) == ([7, 2, 1], [5, 4, 1])
    assert (plan.table_size, plan.cleaned, plan.feasible) == (2, 2, True)


def test_toy_example_min_mig_is_cheaper_and_mixed_keeps_the_bound() -> None:
    cheap, within = min_mig(TOY, STRICT), mixed(TOY, STRICT)
    assert (cheap.table_size, cheap.migration, cheap.migration_share) == (4, 8, 0.4)
    assert (within.table_size, within.migration, within.trials, within.cleaned) == (2, 12, 2, 2)
    assert mixed_brute_force(TOY, STRICT).migration == 12


def test_gamma() -> None:
    """Section 3.2: with w = 1 and S = c all weigh the same at β = 1; a larger β prefers the dearer key."""
    given = Statistics([7, 4, 0, 3], [7, 4, 5, 0], [0] * 4, 1)
    assert given.gamma(1.0).tolist() == [1, 1, 0, np.inf]
    assert given.gamma(2.0).tolist() == [7, 4, 0, np.inf]
    assert given.gamma(0.0).tolist() == [1 / 7, 1 / 4, 0, np.inf]


def test_representatives_of_the_papers_example() -> None:
    assert representatives(8, 4).tolist() == [8, 4, 2, 1]
    assert representatives(9, 4).tolist() == [12, 8, 4, 2, 1]
    assert representatives(3, 1).tolist() == [3, 2, 1]
    assert representatives(0, 2).tolist() == [2, 1]


def test_deviations_cancel() -> None:
    """Section 4.2: ten values between the four representatives; each is off by up to 3, their sum by
    nothing.
    """
    values = [8, 7, 7, 6, 5, 3, 3, 3, 1, 1]
    found = discretised(values, 4)
    assert found.tolist() == [8, 4, 8, 8, 4, 4, 2, 4, 1, 1]
    assert sum(values) == found.sum()
    assert discretised(np.array([0.25, 0.5, 0.75]), 1).tolist() == [1, 1, 0]


def test_records() -> None:
    """Section 4: two keys with cost 4 and memory 4, on d1 by the table where hashing says d2, become one
    record.
    """
    given = Statistics([4, 4, 4, 9], [4, 4, 2, 1], [1, 1, 1, 0], 2, [0, 0, 0, 0])
    compact = Compact(given, 1)
    assert [tuple(row) for row in compact.as_array()] == [
        (0, 0, 0, 9, 1, 1),
        (0, 0, 1, 4, 2, 1),
        (0, 0, 1, 4, 4, 2),
    ]
    assert compact.nbytes == 3 * 36 == 3 * RECORD.itemsize
    back = min_table(compact.records, Mixed(theta=1.0))
    assert [tuple(row) for row in compact.as_array(back)] == [
        (0, 0, 0, 9, 1, 1),
        (1, 0, 1, 4, 2, 1),
        (1, 0, 1, 4, 4, 2),
    ]
    assert compact.expand(back, given.cost).destination.tolist() == [1, 1, 1, 0]
    assert len(merged(np.zeros(0, RECORD))) == 0


def test_planning_on_records_is_building_planning_and_picking() -> None:
    rng = np.random.default_rng(4)
    cost = rng.integers(1, 400, 300).astype(float)
    given = Statistics(cost, cost + rng.integers(0, 50, 300), rng.integers(0, 2, 300), 4)
    for degree in (1, 8, 64):
        parameters = Mixed(0.02, 50, degree=degree)
        compact = Compact(given, degree)
        by_hand = compact.expand(mixed(compact.records, parameters), given.gamma(1.5))
        assert plan_compact(given, parameters).destination.tolist() == by_hand.destination.tolist()
        assert by_hand.loads.tolist() == given.loads(by_hand.destination).tolist()
    assert (
        plan_compact(given, Mixed(0.02, 50, degree=1)).table_size == mixed(given, Mixed(0.02, 50)).table_size
    )
    assert plan_compact(given).theta_max == Mixed().theta


def test_of_a_record_the_keys_with_the_largest_criterion_move() -> None:
    cost = np.array([10.0, 10.4, 10.2, 10.1])
    given = Statistics(cost, np.ones(4), [0] * 4, 2)
    compact = Compact(given, 1)
    plan = compact.expand(min_mig(compact.records, Mixed(0.0)), given.gamma(1.5))
    record = compact.record_of
    for d in np.unique(record):
        moved, stays = (cost[(record == d) & (plan.moved == which)] for which in (True, False))
        assert not len(moved) or not len(stays) or moved.min() >= stays.max()


# --- planners at their edges ----------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANNERS)
def test_nothing_is_planned_where_nothing_is(name: str) -> None:
    none = PLANNERS[name](Statistics([], [], [], 3), Mixed())
    assert (len(none.destination), none.balanced, none.limiting, none.migration_share) == (0, True, None, 0)
    idle = PLANNERS[name](Statistics([0, 0], [1, 1], [0, 1], 2), Mixed())
    assert (idle.theta, idle.keys_moved, idle.limiting) == (0, 0, None)
    alone = PLANNERS[name](Statistics([3, 4], [1, 1], [0, 0], 1), Mixed(0.0))
    assert (alone.theta, alone.keys_moved, alone.limiting) == (0, 0, None)


def test_a_key_above_the_limit_is_named_and_has_its_instance_alone() -> None:
    given = Statistics([100, 1, 1, 1, 1], [50, 1, 1, 1, 1], [0, 0, 0, 1, 2], 3)
    for name in ("MinTable", "MinMig", "Mixed"):
        plan = PLANNERS[name](given, Mixed())
        assert plan.limiting == 0
        assert plan.destination[0] == 0  # its state stays
        assert sorted(plan.loads.tolist()) == [2, 2, 100]
        assert not plan.balanced


def test_a_table_that_cannot_be_that_small_gives_the_smallest_found() -> None:
    given = Statistics([4, 4, 4, 4], [1, 1, 1, 1], [0, 0, 0, 0], 4)
    plan = mixed(given, Mixed(0.0, table=1))
    assert (plan.balanced, plan.table_size, plan.table_fits, plan.feasible) == (True, 3, False, False)


def test_brute_force_takes_the_cheapest_n_where_mixed_takes_the_first() -> None:
    given = Statistics(
        [4, 2, 3, 1, 1, 1, 2], [7, 6, 8, 5, 5, 8, 6], [1, 1, 1, 2, 0, 2, 2], 3, [0, 1, 2, 1, 0, 2, 2]
    )
    parameters = Mixed(0.1, 3)
    own, best = mixed(given, parameters), mixed_brute_force(given, parameters)
    assert (own.cleaned, own.migration, own.trials) == (0, 14, 1)
    assert (best.cleaned, best.migration, best.trials) == (1, 13, 5)


def test_a_forced_placement_names_its_key_and_nothing_moves_for_nothing() -> None:
    given = Statistics([5, 5, 5], [1, 1, 1], [0, 1, 1], 2)
    plan = min_mig(given, Mixed(0.0))  # one key would change sides: 10 and 5 in place of 5 and 10
    assert not plan.balanced
    assert plan.limiting in (0, 1, 2)
    assert plan.keys_moved == 0
    assert plan.loads.tolist() == [5, 10]


def test_a_million_groups_of_keys_are_placed_without_visiting_each_key() -> None:
    given = Statistics([3.0, 1.0], [1, 1], [0, 0], 4, number=np.array([400_000, 800_000]))
    plan = min_table(given, Mixed(0.0))
    assert plan.loads.tolist() == [500_000] * 4
    assert int(plan.number.sum()) == 1_200_000
    assert plan.placements <= 2


def test_readj_swaps_where_a_move_does_not_help() -> None:
    given = Statistics([6, 5, 5, 4], [1] * 4, [0, 0, 1, 1], 2)
    plan = readj_once(given, 0.0, 0.1)
    assert plan.loads.tolist() == [10, 10]
    assert plan.keys_moved == 2
    assert plan.pairs == 2 * (2 + 1)
    assert readj(given, 0.0, [0.7, 0.1]).sigma == 0.1
    assert not readj_once(given, 0.0, 0.7).balanced


def test_readj_leaves_a_key_away_whose_return_would_overload() -> None:
    given = Statistics([4, 3, 6], [1, 1, 1], [1, 0, 1], 2, [0, 0, 1])
    assert readj_once(given, 0.1, 2.0).keys_moved == 0
    assert readj_once(given, 0.6, 2.0).destination.tolist() == [1, 0, 1]


def test_state_window() -> None:
    window = StateWindow(2)
    assert [window.add(one).tolist() for one in ([1, 0], [2, 5], [4, 1])] == [[1, 0], [3, 5], [6, 6]]
    with pytest.raises(PlanError, match="1 keys"):
        window.add([1.0])


# --- ring and assignment --------------------------------------------------------------------------


def test_a_ring_spreads_keys_evenly_and_is_a_function_of_its_seed() -> None:
    keys = np.arange(200_000)
    loads = np.bincount(ConsistentHash(10).route(keys), minlength=10)
    assert loads.max() < 1.15 * loads.mean()
    assert ConsistentHash(10).route(keys).tolist() == ConsistentHash(10).route(keys).tolist()
    assert (ConsistentHash(10, seed=1).route(keys) != ConsistentHash(10).route(keys)).mean() > 0.8
    assert (ConsistentHash(1).route(keys[:10]) == 0).all()


@pytest.mark.parametrize("points", [1, 3, 1024, 20_000])
@pytest.mark.parametrize("instances", [1, 2, 40])
def test_many_keys_have_the_nodes_that_a_search_finds_key_by_key(instances: int, points: int) -> None:
    """Most are found by the first bits of their place, and most are in no entry of a table at sight."""
    rng, ring = np.random.default_rng(points), ConsistentHash(instances, points, seed=3)
    words = rng.integers(0, 2**64, 4_000, dtype=np.uint64)
    listed = np.unique(np.concatenate([words[::5], rng.integers(0, 2**64, 3_000, dtype=np.uint64)]))
    table = Assignment(ring, listed, rng.choice(ring.members, len(listed)))
    entries = dict(zip(*[one.tolist() for one in table.table], strict=True))
    places = mixed_bits(words, 2 * ring.seed)
    after = np.searchsorted(ring._places, places) % len(ring._places)
    owners = ring._owners[after].tolist()
    assert ring.route_words(words).tolist() == owners
    assert [int(ring.route_words(one)[0]) for one in words[:50, None]] == owners[:50]
    expected = [entries.get(word, owner) for word, owner in zip(words.tolist(), owners, strict=True)]
    assert table.route_words(words).tolist() == expected
    assert table.route_words(words[:50]).tolist() == expected[:50]


def test_places_at_a_point_and_at_the_ends_of_a_prefix() -> None:
    ring = ConsistentHash(3)
    edges = (np.arange(2**16, dtype=np.uint64) << PREFIX) + np.uint64(0)
    places = np.concatenate([ring._places, ring._places + np.uint64(1), edges, edges - np.uint64(1)])
    found = ring._by_prefix[(places >> PREFIX).astype(np.intp)]
    expected = ring._owners[np.searchsorted(ring._places, places) % len(ring._places)]
    assert (found[found >= 0] == expected[found >= 0]).all()
    assert (found >= 0).mean() > 0.5


def test_a_table_that_was_used_is_as_small_in_a_pickle() -> None:
    """It goes to every task."""
    ring = ConsistentHash(2)
    table = Assignment(ring, np.arange(9, dtype=np.uint64), np.zeros(9, np.int32))
    before = len(pickle.dumps(table))
    table.route_words(np.arange(1_000, dtype=np.uint64))
    assert len(pickle.dumps(table)) == before
    again = pickle.loads(pickle.dumps(table))
    assert (again.route_words(np.arange(1_000, dtype=np.uint64)) == table.route(np.arange(1_000))).all()


def test_an_assignment_routes_any_kind_of_key_and_survives_bytes() -> None:
    words = key_words(["a", "b", "c"])
    ring = ConsistentHash([0, 3, 7], points=64, seed=9)
    to = [7 if d == 3 else 3 for d in ring.route(["a", "b", "c"])]
    given = Assignment(ring, words, to)
    assert isinstance(given, Grouping)
    assert given.route(["c", "a", "b"]).tolist() == [to[2], to[0], to[1]]
    assert (len(given), given.instances) == (3, 3)
    for copy in (Assignment.from_bytes(given.to_bytes()), pickle.loads(pickle.dumps(given))):
        assert copy.route(np.arange(1000)).tolist() == given.route(np.arange(1000)).tolist()
        assert copy.to_bytes() == given.to_bytes()
    listed, statistics = given.statistics(words[:1], [8.0], [1.0])
    assert (len(listed), statistics.table_size, statistics.cost.tolist()) == (3, 3, [8, 0, 0])
    assert given.after(listed, mixed(statistics, Mixed(0.0, None))).route(["a", "b", "c"]).tolist() == to


def test_an_entry_of_an_instance_that_left_is_dropped() -> None:
    ring = ConsistentHash(3)
    words = np.arange(50, dtype=np.uint64)
    given = Assignment(ring, words, (ring.route(words) + 1) % 3)
    less = given.on(ring.with_instances([0, 1]))
    assert set(less.route(words).tolist()) == {0, 1}
    kept = given.route(words) != 2
    assert (less.route(words)[kept] == given.route(words)[kept]).all()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"theta": -0.1}, "theta"),
        ({"theta": float("nan")}, "theta"),
        ({"table": -1}, "table"),
        ({"table": 1.5}, "table"),
        ({"beta": -1}, "beta"),
        ({"degree": 3}, "power of 2"),
        ({"degree": 0}, "power of 2"),
        ({"window": 0}, "window"),
        ({"points": 0}, "point"),
    ],
)
def test_parameters_out_of_range(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Mixed(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"instances": 0}, "instances"),
        ({"cost": [1.0, -1.0]}, "cost of the key at 1 is -1"),
        ({"state": [np.inf, 1.0]}, "state of the key at 0"),
        ({"cost": [1.0]}, "different lengths"),
        ({"hashed": [0, 2]}, "hashed.* from 0 to 1"),
        ({"current": [0.5, 1.0]}, "current"),
        ({"number": np.array([1, 0])}, "at least 1"),
        ({"number": np.array([0.5, 1.0])}, "whole number"),
    ],
)
def test_statistics_out_of_range(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Statistics(**{"cost": [1.0, 2.0], "state": [1.0, 1.0], "hashed": [0, 1], "instances": 2, **wrong})


def test_what_else_is_refused() -> None:
    ring, words = ConsistentHash(2), np.array([1, 1], dtype=np.uint64)
    plan = mixed(TOY)
    for refused, said in (
        (lambda: ConsistentHash(0), "at least 1"),
        (lambda: ConsistentHash([1, 1]), "different numbers"),
        (lambda: ConsistentHash(2, points=0), "point"),
        (lambda: Assignment(ring, words, [0, 1]), "two entries"),
        (lambda: Assignment(ring, words[:1], [2]), "does not have"),
        (lambda: Assignment(ring, words, [0]), "one instance per key"),
        (lambda: Assignment(ring).statistics(words, [1, 1], [1, 1]), "twice"),
        (lambda: Assignment(ring).statistics(words[:1], [1, 1], [1]), "2 costs"),
        (lambda: Assignment(ring).after(words, plan), "6 keys"),
        (lambda: Assignment(ring).after(words, mixed(Compact(TOY, 2).records)), "expand"),
        (lambda: Compact(Compact(TOY, 2).records, 2), "records already"),
        (lambda: Compact(TOY, 2).expand(mixed(Compact(TOY, 2).records), TOY.cost), "not made from these"),
        (lambda: Compact(TOY, 3), "power of 2"),
        (lambda: discretised([-1.0], 2), "not negative"),
        (lambda: discretised([[1.0]], 2), "column"),
        (lambda: representatives(np.inf, 2), "finite"),
        (lambda: StateWindow(0), "window"),
        (lambda: readj_once(TOY, 0.1, -1), "sigma"),
        (lambda: readj(TOY, 0.1, []), "sigma"),
        (lambda: readj(Compact(TOY, 2).records, 0.1), "records"),
        (lambda: mixed_brute_force(TOY, STRICT, []), "number of entries"),
        (lambda: Assignment.from_bytes(b"x"), "serialised Assignment"),
    ):
        with pytest.raises((PlanError, SketchBytesError), match=said):
            refused()


@pytest.mark.parametrize("seed", range(20))
def test_an_assignment_with_some_keys_moved_is_the_one_made_of_all_entries(seed):
    draw, ring = np.random.default_rng(seed), ConsistentHash(3)
    domain = np.unique(draw.integers(0, 2**64, 60, dtype=np.uint64))
    listed = draw.permutation(domain)[: draw.integers(0, 40)]
    before = Assignment(ring, listed, draw.integers(0, 3, len(listed)))
    words = np.sort(draw.permutation(domain)[: draw.integers(0, 40)])
    to = draw.integers(0, 3, len(words)).astype(np.int32)
    every = before.route_words(domain)
    every[np.searchsorted(domain, words)] = to
    assert before.moved(words, to).to_bytes() == Assignment(ring, domain, every).to_bytes()


@pytest.mark.parametrize("unit", [1e-3, 1 / 3, 7.0, 1e6])
@pytest.mark.parametrize("whole", [True, False])
def test_units_do_not_matter_to_plans_over_records(unit: float, whole: bool) -> None:
    """Section 4.2: "the smallest is at least 1 (after normalization)"."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cost = rng.zipf(1.6, 400).clip(2, 900) if whole else 1 + rng.pareto(1.2, 400)
        state = cost * rng.integers(1, 9, 400) + 3
        hashed = rng.integers(0, 5, 400)
        one, other = (
            plan_compact(Statistics(cost * a, state * b, hashed, 5), Mixed(0.05))
            for a, b in ((1.0, 1.0), (unit, 1 / unit))
        )
        assert one.keys_moved > 0
        assert one.destination.tolist() == other.destination.tolist()


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([], 1.0), ([0.0], 1.0), ([0, 3, 6, 9], 3.0), ([4, 4, 9], 1.0), ([0.004, 0.009, 0.006], 0.001),
        ([2.0, np.pi, 9.0], 2.0), ([1000, 1001], 1.0), ([2000, 2001], 2000.0),
    ],
)  # fmt: skip
def test_the_unit_of_values(values: list[float], unit: float) -> None:
    assert unit_of(np.array(values, dtype=np.float64)) == pytest.approx(unit, rel=1e-12)


def test_values_far_apart_are_discretised_without_a_list_of_all_between() -> None:
    assert discretised([3e14 + 1, 3.0, 0.5], 8).tolist() == [3e14, 4.0, 0.0]


def test_records_keep_the_load_that_stays() -> None:
    given = Statistics([10.0] * 10, [1.0] * 10, [1] * 10, 2, fixed=[100.0, 0.0])
    plan = plan_compact(given)
    assert (plan.loads.tolist(), plan.keys_moved) == ([100.0, 100.0], 0)
    assert mixed(given).loads.tolist() == [100.0, 100.0]
    compact = Compact(Statistics([9.0, 10.0], [1.0, 1.0], [1, 1], 2, fixed=[100.0, 200.0]), 8)
    assert compact.estimation_error(np.array([1, 1])).tolist() == [0.0, abs(compact.cost.sum() - 19) / 219]


def test_a_run_refuses_the_window_that_it_cannot_keep() -> None:
    with pytest.raises(PlanError, match=r"^balance: window=5 does nothing in a run.*StateWindow"):
        Controller(Mixed(window=5), 2)
    assert mixed(Statistics([2.0, 1.0], [1.0, 1.0], [0, 0], 2), Mixed(window=5)).keys_moved == 1


@pytest.mark.filterwarnings("error")
def test_sums_that_are_not_finite_are_refused() -> None:
    """Planners went on with infinite loads, and NumPy's warnings."""
    huge, small, hashed = [1e308] * 5, [1.0] * 5, [0, 0, 1, 0, 1]
    for made, why in (
        (lambda: Statistics(huge, small, hashed, 2), "the cost of all keys together is not finite"),
        (lambda: Statistics(small, huge, hashed, 2), "the state of all keys together is not finite"),
        (lambda: Statistics([1e307], [1.0], [0], 2, number=[100]), "the cost of all keys together"),
        (lambda: Statistics([1.0], [1.0], [0], 2, fixed=[1e308, 1e308]), "the cost of all keys together"),
    ):
        with pytest.raises(PlanError, match=why):
            made()
    large = Statistics([1e306] * 5, small, hashed, 2)
    assert Mixed(beta=1.0).plan(large).loads.tolist() == pytest.approx([3e306, 2e306])
