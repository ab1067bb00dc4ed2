"""Mixed's plans against a reading of the algorithms key by key, and what each must keep whatever the
input.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ordstream.balance.mixed import (
    Assignment,
    Compact,
    ConsistentHash,
    Mixed,
    Plan,
    Statistics,
    discretised,
    min_mig,
    min_table,
    mixed,
    mixed_brute_force,
    readj,
    readj_once,
    representatives,
)
from ordstream.balance.mixed.compact import RECORD, merged
from ordstream.balance.mixed.statistics import ROUNDING

THETAS = st.sampled_from([0.0, 0.05, 0.2, 0.5])


@st.composite
def statistics(draw: st.DrawFn, most: int = 40, distinct: bool = False, costs: int = 30) -> Statistics:
    """Few keys on few instances; `distinct`: no two costs, states or loads are likely to tie."""
    n = draw(st.integers(1, 5))
    keys = draw(st.integers(0, most))

    def column(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=keys, max_size=keys))

    cost, state = np.array(column(0, costs), float), np.array(column(0, 20), float)
    if distinct:
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        cost, state = (
            rng.permutation(2 ** np.linspace(0, 12, keys)) + rng.random(keys),
            1 + 20 * rng.random(keys),
        )
    return Statistics(cost, state, np.array(column(0, n - 1), int), n, np.array(column(0, n - 1), int))


def planned(
    given: Statistics, theta_max: float, a_max: int | None = 5, beta: float = 1.5, brute: bool = False
) -> list[Plan]:
    parameters = Mixed(theta_max, a_max, beta)
    return [
        make(given, parameters)
        for make in (min_table, min_mig, mixed, *([mixed_brute_force] if brute else []))
    ]


# --- the algorithms, one key at a time ------------------------------------------------------------


def by_the_text(
    given: Statistics, psi: list[float], cleaned: int, theta_max: float
) -> tuple[list[int], bool]:
    """Phases I to III over dictionaries; destinations, and whether a placement was forced."""
    c, s, h, n = given.cost.tolist(), given.state.tolist(), given.hashed.tolist(), given.instances
    to: dict[int, int | None] = dict(enumerate(given.placed.tolist()))
    limit = (1 + theta_max) * sum(c) / n * (1 + ROUNDING)
    table = sorted((k for k in to if to[k] != h[k]), key=lambda k: (s[k], k))
    for k in table[:cleaned]:
        to[k] = h[k]

    def load(d: int) -> float:
        return sum(c[k] for k in to if to[k] == d)

    def on(d: int) -> list[int]:
        return sorted((k for k in to if to[k] == d), key=lambda k: (-psi[k], k))

    def too_dear(d: int) -> list[int]:
        return [k for k in on(d) if c[k] > limit]

    candidates = set()
    for d in range(n):
        stays = max(too_dear(d), key=lambda k: (c[k], -on(d).index(k)), default=None)
        for k in on(d):
            if load(d) <= limit:
                break
            if k != stays and c[k] > 0:
                to[k] = None
                candidates.add(k)
    residents = {k for k in to if to[k] is not None}
    forced = False
    while candidates:
        k = min(candidates, key=lambda k: (-c[k], k))
        candidates.remove(k)
        ascending = sorted(range(n), key=lambda d: (load(d), d))
        chosen = None
        if c[k] > limit:
            forced = True
            free = [d for d in ascending if not too_dear(d)]
            chosen = (free or ascending)[0]
            out = [e for e in on(chosen) if e in residents and 0 < c[e] < c[k]] if free else []
        else:
            for d in ascending:
                out, rest = [], load(d) + c[k]
                for e in on(d):
                    if rest <= limit:
                        break
                    if e in residents and 0 < c[e] < c[k]:
                        out.append(e)
                        rest -= c[e]
                if rest <= limit:
                    chosen = d
                    break
            else:
                out, chosen, forced = [], ascending[0], True
        for e in out:
            to[e] = None
            candidates.add(e)
            residents.remove(e)
        to[k] = chosen
    return [int(to[k]) for k in sorted(to)], forced  # type: ignore[arg-type]


def unless_for_nothing(given: Statistics, found: list[int], cleaned: int, theta_max: float) -> list[int]:
    """A plan of the text, where all entries are cleaned or none; what it began with, if it leaves the
    fullest instance too full and no lighter.
    """
    largest = given.loads(np.array(found, int)).max(initial=0)
    before = given.hashed if cleaned else given.placed
    no_lighter = largest > given.limit(theta_max) and largest >= given.loads(before).max(initial=0)
    return before.tolist() if no_lighter else found


# Few different costs: equal ones must not push each other out.
@settings(max_examples=4 * settings().max_examples)
@given(st.one_of(statistics(), statistics(costs=6)), THETAS, st.sampled_from([0.0, 1.0, 1.5]))
def test_plans_are_those_of_the_text(given: Statistics, theta_max: float, beta: float) -> None:
    parameters = Mixed(theta_max, None, beta)
    for make, psi, cleaned in ((min_table, given.cost, given.table_size), (min_mig, given.gamma(beta), 0)):
        plan = make(given, parameters)
        expected, forced = by_the_text(given, psi.tolist(), cleaned, theta_max)
        expected = unless_for_nothing(given, expected, cleaned, theta_max)
        assert plan.destination.tolist() == expected
        too_dear = bool((given.cost > given.limit(theta_max)).any())
        assert (plan.limiting is not None) == (forced or too_dear)


@given(statistics(most=25), THETAS, st.integers(0, 12))
@example(  # all entries are cleaned, and the plan found leaves the fullest instance no lighter
    Statistics(np.array([0.0, 1, 2, 1]), np.zeros(4), np.array([0, 0, 1, 0]), 3, np.zeros(4, int)), 0.0, 0
)
def test_mixed_tries_what_algorithm_4_tries(given: Statistics, theta_max: float, a_max: int) -> None:
    parameters, psi = Mixed(theta_max, a_max), given.gamma(1.5)
    plan, n, trials = mixed(given, parameters), 0, 0
    while True:
        trials += 1
        one = mixed_brute_force(given, parameters, [n])
        if one.table_size <= a_max or n == given.table_size:
            break
        n = min(given.table_size, n + one.table_size - a_max)
    assert plan.trials == trials + (one.table_size > a_max)
    if one.table_size <= a_max:
        assert (plan.cleaned, plan.destination.tolist()) == (n, one.destination.tolist())
        if n:
            expected = by_the_text(given, psi.tolist(), n, theta_max)[0]
            if n == given.table_size:
                expected = unless_for_nothing(given, expected, n, theta_max)
            assert one.destination.tolist() == expected
    else:
        assert plan.table_size <= min(one.table_size, min_table(given, parameters).table_size)


# --- what every plan keeps ------------------------------------------------------------------------


@given(statistics(most=25), THETAS, st.sampled_from([None, 0, 3]))
def test_every_plan_is_an_assignment_within_its_bounds_or_says_what_is_in_the_way(
    given: Statistics, theta_max: float, a_max: int | None
) -> None:
    before = (given.cost.copy(), given.state.copy(), given.placed.copy())
    plans = [*planned(given, theta_max, a_max), readj(given, theta_max)]
    for plan, again in zip(plans, [*planned(given, theta_max, a_max), readj(given, theta_max)], strict=True):
        assert len(plan.destination) == len(given)
        assert ((plan.destination >= 0) & (plan.destination < given.instances)).all()
        assert plan.loads.sum() == pytest.approx(given.cost.sum())
        assert plan.loads.tolist() == given.loads(plan.destination).tolist()
        assert plan.balanced or plan.limiting is not None
        assert plan.table_size == sum(
            d != h for d, h in zip(plan.destination.tolist(), given.hashed.tolist(), strict=True)
        )
        moved = [k for k in range(len(given)) if plan.destination[k] != given.placed[k]]
        assert plan.keys_moved == len(moved)
        assert plan.migration == given.state[moved].sum()
        assert plan.destination.tolist() == again.destination.tolist()
        if plan.limiting is not None:
            assert 0 <= plan.limiting < len(given)
    for column, kept in zip((given.cost, given.state, given.placed), before, strict=True):
        assert column.tolist() == kept.tolist()


@given(statistics(), THETAS)
def test_phase_3_places_each_key_at_most_once(given: Statistics, theta_max: float) -> None:
    for plan in planned(given, theta_max, None):
        assert plan.placements <= len(given)
        assert plan.evictions <= plan.placements


@given(statistics(), st.sampled_from([0.2, 0.5, 2.0]))
def test_a_balanced_assignment_is_left_alone(given: Statistics, theta_max: float) -> None:
    balanced = mixed(given, Mixed(theta_max, None))
    assume(balanced.balanced)
    now = Statistics(given.cost, given.state, given.hashed, given.instances, balanced.destination)
    for plan in (
        min_mig(now, Mixed(theta_max)),
        mixed(now, Mixed(theta_max)),
        mixed(now, Mixed(theta_max, now.table_size)),
    ):
        assert not plan.moved.any()
        assert (plan.placements, plan.migration) == (0, 0)


@given(statistics(), THETAS, st.randoms(use_true_random=False))
def test_min_table_depends_on_hashing_and_costs_alone(
    given: Statistics, theta_max: float, random: Any
) -> None:
    other = Statistics(
        given.cost,
        given.state[::-1],
        given.hashed,
        given.instances,
        [random.randrange(given.instances) for _ in range(len(given))],
    )
    first, second = (min_table(one, Mixed(theta_max)) for one in (given, other))
    assert first.destination.tolist() == second.destination.tolist()


@given(statistics(), THETAS, st.sampled_from([1.0, 1.5]))
def test_without_a_bound_on_the_table_mixed_is_min_mig(
    given: Statistics, theta_max: float, beta: float
) -> None:
    for a_max in (None, len(given)):
        one, other = mixed(given, Mixed(theta_max, a_max, beta)), min_mig(given, Mixed(theta_max, 0, beta))
        assert one.destination.tolist() == other.destination.tolist()


@given(statistics(most=25), THETAS, st.integers(0, 12))
def test_brute_force_is_feasible_where_mixed_is_and_never_dearer(
    given: Statistics, theta_max: float, a_max: int
) -> None:
    parameters = Mixed(theta_max, a_max)
    own, best = mixed(given, parameters), mixed_brute_force(given, parameters)
    assert best.trials == given.table_size + 2
    if own.feasible:
        assert best.feasible
        assert best.migration <= own.migration
    every = [mixed_brute_force(given, parameters, [n]) for n in range(given.table_size + 1)]
    every.append(min_table(given, parameters))
    feasible = [one.migration for one in every if one.feasible]
    assert best.feasible == bool(feasible)
    assert not feasible or best.migration == min(feasible)


@given(statistics(most=7, costs=9), st.sampled_from([0.0, 0.2]))
def test_no_plan_beats_trying_every_assignment(given: Statistics, theta_max: float) -> None:
    assume(given.instances <= 3 and len(given) > 0)
    best = math.inf
    for chosen in itertools.product(range(given.instances), repeat=len(given)):
        to = np.array(chosen)
        if given.loads(to).max() <= given.limit(theta_max):
            best = min(best, float(given.state[to != given.placed].sum()))
    for plan in planned(given, theta_max, None, brute=True):
        assert not plan.balanced or plan.migration >= best
        assert math.isfinite(best) or plan.limiting is not None


@given(statistics(distinct=True), THETAS, st.integers(0, 12), st.randoms(use_true_random=False))
def test_relabelling_instances_relabels_the_plan(
    given: Statistics, theta_max: float, a_max: int, random: Any
) -> None:
    names = np.array(random.sample(range(given.instances), given.instances))
    # Empty instances tie; with a key each that costs much less than any other, none is.
    n = given.instances
    weights = 1e-3 * (1 + np.arange(n) / 7)
    cost, state = np.append(given.cost, weights), np.append(given.state, np.full(n, 1e6))
    hashed, placed = (np.append(one, np.arange(n)) for one in (given.hashed, given.placed))
    plans = planned(Statistics(cost, state, hashed, n, placed), theta_max, a_max)
    others = planned(Statistics(cost, state, names[hashed], n, names[placed]), theta_max, a_max)
    for one, other in zip(plans, others, strict=True):
        assert names[one.destination].tolist() == other.destination.tolist()


@given(
    statistics(),
    st.sampled_from([0.0, 0.25, 0.5]),
    st.sampled_from([1 / 16, 4.0, 1024.0]),
    st.sampled_from([0.5, 8.0]),
)
def test_units_do_not_matter(given: Statistics, theta_max: float, unit: float, byte: float) -> None:
    other = Statistics(given.cost * unit, given.state * byte, given.hashed, given.instances, given.placed)
    # β = 1 and 2: γ is scaled exactly by powers of 2.
    for beta in (1.0, 2.0):
        for one, two in zip(
            planned(given, theta_max, 4, beta), planned(other, theta_max, 4, beta), strict=True
        ):
            assert one.destination.tolist() == two.destination.tolist()


@given(st.integers(2, 6), st.integers(4, 60), st.data())
def test_theorem_1(n: int, size: int, data: st.DataObject) -> None:
    """Where a perfect assignment exists and every key costs less than the mean: θ <= (1 - 1/N_D)/3, from
    no key placed.
    """
    cost: list[int] = []
    for _ in range(n):
        cuts = sorted(data.draw(st.sets(st.integers(1, size - 1), min_size=1, max_size=6)))
        cost += [b - a for a, b in itertools.pairwise([0, *cuts, size])]
    order = data.draw(st.permutations(range(len(cost))))
    costs = np.array(cost, float)[order]
    # All on one instance: Phase II takes the prefix, so only part is placed afresh; LLFD over all keys is
    # least_loaded's.
    hashed = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=len(cost), max_size=len(cost))))
    plan = min_table(Statistics(costs, costs, hashed, n), Mixed(0.0))
    assert plan.theta <= (1 - 1 / n) / 3 + 1e-9


@given(st.integers(2, 6), st.integers(1, 3), st.integers(40, 90), st.data())
def test_a_key_that_fits_nowhere_ends_alone(n: int, dear: int, units: int, data: st.DataObject) -> None:
    """Keys above L_max get an instance each, the rest is balanced on the others; so the largest load is
    the dearest key.
    """
    dear = min(dear, n - 1)
    cost = np.array([1000.0 + 10 * i for i in range(dear)] + [1.0] * units)
    hashed = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=len(cost), max_size=len(cost))))
    given = Statistics(cost, np.ones(len(cost)), hashed, n)
    assume((cost[:dear] > given.limit(0.08)).all())
    for plan in planned(given, 0.08, None):
        assert plan.loads.max() == cost.max()
        assert plan.limiting == dear - 1
        again = mixed(Statistics(cost, np.ones(len(cost)), hashed, n, plan.destination), Mixed(0.08, None))
        assert not again.moved.any()


# --- assignment -----------------------------------------------------------------------------------


@given(
    st.integers(1, 8), st.integers(0, 2**20), st.sets(st.integers(0, 2**63), max_size=60), THETAS, st.data()
)
def test_the_table_holds_exactly_the_keys_off_their_hash_destination(
    n: int, seed: int, keys: set[int], theta_max: float, data: st.DataObject
) -> None:
    ring = ConsistentHash(n, points=16, seed=seed)
    words = np.array(sorted(keys), dtype=np.uint64)
    assignment = Assignment(ring)
    for _ in range(3):
        cost = np.array(
            data.draw(st.lists(st.integers(0, 9), min_size=len(words), max_size=len(words))), float
        )
        met = cost > 0
        listed, given = assignment.statistics(words[met], cost[met], cost[met])
        plan = mixed(given, Mixed(theta_max, None))
        before, assignment = assignment, assignment.after(listed, plan)
        routes = assignment.route(words)
        off = routes != ring.route(words)
        assert assignment.table[0].tolist() == words[off].tolist()
        assert len(assignment) == plan.table_size == off.sum()
        assert assignment.route(listed).tolist() == plan.destination.tolist()
        changed = dict(zip(listed.tolist(), plan.moved.tolist(), strict=True))
        assert [changed.get(word, False) for word in words.tolist()] == (
            before.route(words) != routes
        ).tolist()
        assert Assignment.from_bytes(assignment.to_bytes()).route(words).tolist() == routes.tolist()


@given(st.integers(1, 10), st.integers(0, 2**32), st.integers(0, 2**32))
def test_an_instance_more_or_less_moves_only_its_own_keys(n: int, seed: int, keys: int) -> None:
    words = np.random.default_rng(keys).integers(0, 2**64, 300, dtype=np.uint64)
    less, more = ConsistentHash(n, 32, seed), ConsistentHash(n, 32, seed).with_instances(n + 1)
    before, after = less.route(words), more.route(words)
    assert ((after == before) | (after == n)).all()
    left = [one for one in range(n + 1) if one != keys % (n + 1)]
    assert (
        ConsistentHash(left, 32, seed).route(words)[after != keys % (n + 1)]
        == after[after != keys % (n + 1)]
    ).all()


# --- discretisation and records -------------------------------------------------------------------


def greedily(values: list[float], degree: int) -> list[float]:
    """Section 4.2's second step, value by value."""
    steps = [0.0, *representatives(max(values, default=0), degree)[::-1].tolist()]
    found, deviation = [0.0] * len(values), 0.0
    for i in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        above = min(step for step in steps if step >= values[i])
        if above == values[i]:
            found[i] = above
            continue
        below = max(step for step in steps if step < values[i])
        found[i] = above if deviation > 0 else below
        deviation += values[i] - found[i]
        assert abs(deviation) <= degree
    return found


WHOLE = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 3000)), max_size=80)


@given(WHOLE, st.sampled_from([1, 2, 4, 8, 64, 256]))
def test_discretising_is_the_greedy_method(values: list[int], degree: int) -> None:
    found = discretised(values, degree)
    assert found.tolist() == greedily([float(value) for value in values], degree)
    assert set(found.tolist()) <= {0.0, *representatives(max(values, default=0), degree).tolist()}
    if degree == 1:
        assert found.tolist() == values


@given(st.lists(st.floats(0, 1e5), max_size=80), st.sampled_from([1, 4, 32]))
def test_the_running_deviation_stays_within_the_degree(values: list[float], degree: int) -> None:
    given, found = np.array(values), discretised(values, degree)
    order = np.argsort(-given, kind="stable")
    assert (np.abs(np.cumsum((given - found)[order])) <= degree * (1 + 1e-9)).all()


@given(statistics(most=60), st.sampled_from([0, 1, 4, 16]), THETAS, st.sampled_from([None, 2, 6]))
def test_a_plan_over_records_expands_to_its_own_loads_and_table(
    given: Statistics, degree: int, theta_max: float, a_max: int | None
) -> None:
    compact = Compact(given, degree)
    records = compact.as_array()
    assert records["number"].sum() == len(given) == compact.records.counts.sum()
    assert len(records) == len(compact)
    assert (records["to"] == records["at"]).all()
    for make in (min_table, min_mig, mixed, mixed_brute_force):
        plan = make(compact.records, Mixed(theta_max, a_max))
        assert compact.as_array(plan)["number"].sum() == len(given)
        keys = compact.expand(plan, given.gamma(1.5))
        assert keys.table_size == plan.table_size
        assert keys.keys_moved == plan.keys_moved
        discrete = np.bincount(keys.destination, weights=compact.cost, minlength=given.instances)
        assert discrete.tolist() == pytest.approx(plan.loads.tolist())
        fields = [name for name in RECORD.names or () if name != "number"]
        columns = (keys.destination, given.placed, given.hashed, compact.cost, compact.state)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        found = {
            tuple(record[name] for name in fields): int(record["number"])
            for record in compact.as_array(plan)
        }
        assert found == Counter(rows)


@given(statistics(most=60), st.sampled_from([1, 4, 16]), THETAS)
def test_a_plan_over_records_is_the_plan_over_their_keys(
    given: Statistics, degree: int, theta_max: float
) -> None:
    """With ψ = cost equals are equal, whichever key of a record moves: the same loads, one after the
    other.
    """
    compact = Compact(given, degree)
    alone = Statistics(compact.cost, compact.state, given.hashed, given.instances, given.placed)
    assert (
        min_table(compact.records, Mixed(theta_max)).loads.tolist()
        == min_table(alone, Mixed(theta_max)).loads.tolist()
    )


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 90), st.integers(0, 3)), min_size=1, max_size=5),
    st.integers(1, 4),
    THETAS,
)
def test_large_groups_are_placed_as_their_keys_would_be(
    groups: list[tuple[int, int, int]], n: int, theta_max: float
) -> None:
    cost, number, here = (np.array(column) for column in zip(*groups, strict=True))
    here %= n
    together = min_table(Statistics(cost, cost, here, n, number=number), Mixed(theta_max))
    alone = np.repeat(cost, number)
    assert (
        together.loads.tolist()
        == min_table(Statistics(alone, alone, np.repeat(here, number), n), Mixed(theta_max)).loads.tolist()
    )


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 5, st.integers(1, 5)), max_size=30))
def test_merging_sums_numbers_and_nothing_else(rows: list[tuple[int, ...]]) -> None:
    found = merged(np.array(rows, dtype=RECORD))
    expected: Counter[tuple[int, ...]] = Counter()
    for row in rows:
        expected[row[:5]] += row[5]
    assert [(tuple(record)[:5], record["number"]) for record in found] == sorted(expected.items())


# --- Readj ----------------------------------------------------------------------------------------


@given(statistics(), THETAS, st.sampled_from([0.0, 0.1, 0.5]))
def test_readj_moves_light_keys_only_back(given: Statistics, theta_max: float, sigma: float) -> None:
    plan = readj_once(given, theta_max, sigma)
    light = given.cost < sigma * given.mean
    gone = plan.moved & light
    assert (plan.destination[gone] == given.hashed[gone]).all()
    assert readj(given, theta_max, [sigma]).destination.tolist() == plan.destination.tolist()
    # A move back never overloads, a swap lowers the fuller of two: no instance ends above both L_max and the
    # fullest before.
    assert plan.loads.max(initial=0) <= max(given.limit(theta_max), given.loads().max(initial=0)) * (
        1 + 1e-9
    )
