"""Scheduling within its guarantees against brute force; DKG's maps over random streams."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ordstream.balance.baselines import PKG, optimal_approximation
from ordstream.balance.dkg import DKG, schedule
from ordstream.balance.grouping import KeyMap
from ordstream.balance.keys import key_words
from ordstream.balance.metrics import tuple_loads

LOADS = st.lists(st.integers(0, 30), min_size=1, max_size=7)
STREAM = st.lists(st.integers(0, 25), max_size=150)


def best_possible(loads: list[int], k: int) -> int:
    """Least possible largest sum, by trying every assignment."""
    best = sum(loads)
    for assignment in itertools.product(range(k), repeat=len(loads)):
        sums = [0] * k
        for load, instance in zip(loads, assignment, strict=True):
            sums[instance] += load
        best = min(best, max(sums))
    return best


@given(LOADS, st.integers(1, 3))
def test_lpt_is_within_its_guarantee(loads: list[int], k: int) -> None:
    placed, sums = schedule(loads, k)
    assert tuple_loads(placed, k, loads).tolist() == sums.tolist()
    assert max(sums) <= (4 / 3 - 1 / (3 * k)) * best_possible(loads, k) + 1e-9
    assert max(sums) - min(sums) <= max(loads)


@given(st.lists(st.floats(0, 1e6), max_size=300), st.integers(1, 12))
def test_lpt_is_its_definition(loads: list[float], k: int) -> None:
    sums, expected = [0.0] * k, [0] * len(loads)
    for position in sorted(range(len(loads)), key=lambda i: -loads[i]):
        instance = sums.index(min(sums))
        expected[position] = instance
        sums[instance] += loads[position]
    placed, found = schedule(loads, k)
    assert placed.tolist() == expected
    assert found.tolist() == sums


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 3))
def test_o_apx_is_within_its_guarantee(stream: list[int], k: int) -> None:
    counts = [stream.count(key) for key in set(stream)]
    loads = tuple_loads(optimal_approximation(stream, k).route(stream), k)
    assert loads.max() <= (4 / 3 - 1 / (3 * k)) * best_possible(counts, k) + 1e-9


PARAMETERS = st.builds(
    DKG,
    theta=st.sampled_from([0.05, 0.1, 0.3, 1.0]),
    mu=st.integers(1, 4),
    m=st.sampled_from([0, 20, 1000]),
    cost=st.sampled_from(["linear", "quadratic"]),
    variant=st.sampled_from(["dkg", "wosim"]),
    guaranteed=st.booleans(),
    seed=st.integers(0, 2**64),
)


@given(STREAM, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), PARAMETERS, st.integers(1, 8))
def test_a_map_is_a_pure_function_of_the_key(
    stream: list[int], others: list[int], parameters: DKG, k: int
) -> None:
    key_map = parameters.fit(stream, k)
    keys = np.array(stream + others, dtype=np.int64)
    routes = key_map.route(keys)
    assert len(routes) == 0 or 0 <= routes.min() <= routes.max() < k
    order = np.random.default_rng(len(keys)).permutation(len(keys))
    assert key_map.route(keys[order]).tolist() == routes[order].tolist()
    assert [key_map.instance_of(key) for key in keys.tolist()] == routes.tolist()
    assert KeyMap.from_bytes(key_map.to_bytes()).route(keys).tolist() == routes.tolist()
    assert tuple_loads(routes, k).sum() == len(keys)
    assert parameters.fit(stream, k).to_bytes() == key_map.to_bytes()


@given(STREAM, st.integers(1, 6), st.integers(0, 100))
def test_split_keys_meet_at_most_two_instances(stream: list[int], k: int, seed: int) -> None:
    key_map = DKG(theta=0.2, variant="pkg", seed=seed).fit(stream, k)
    heavy = {key for key, _ in key_map.heavy}
    met: dict[int, set[int]] = defaultdict(set)
    for start in range(0, len(stream), 31):  # routing column by column is routing at once
        for key, instance in zip(
            stream[start : start + 31], key_map.route(stream[start : start + 31]).tolist(), strict=True
        ):
            met[key].add(instance)
    for key, instances in met.items():
        assert len(instances) <= (2 if key in heavy else 1)
    pkg, met = PKG(k, seed), defaultdict(set)
    for key, instance in zip(stream, pkg.route(stream).tolist(), strict=True):
        met[key].add(instance)
    assert all(len(instances) <= 2 for instances in met.values())
    assert pkg.received.sum() == len(stream)


@given(st.lists(STREAM, min_size=1, max_size=4), st.integers(1, 5))
def test_merged_learners_have_the_counts_of_the_union(parts: list[list[int]], k: int) -> None:
    parameters = DKG(theta=0.2)
    merged, whole = parameters.learner(k), parameters.learner(k)
    for part in parts:
        one = parameters.learner(k)
        one.learn(part)
        merged.merge(one)
        whole.learn(part)
    assert merged.bucket_counts.tolist() == whole.bucket_counts.tolist()
    assert merged.learnt == whole.learnt
    stream = [key for part in parts for key in part]
    held = {key for key, _ in merged.build().heavy}
    assert {key for key in stream if stream.count(key) >= 0.2 * len(stream)} <= held


@given(st.lists(STREAM, min_size=1, max_size=4), st.integers(1, 5), st.integers(2, 6), st.integers(0, 100))
def test_a_merged_map_keeps_what_the_docstring_promises(
    parts: list[list[int]], k: int, counters: int, seed: int
) -> None:
    """DKGLearner.merge: no heavy hitter is missed, none is far below, true loads are near the scheduled
    ones, however few the counters.
    """
    theta, epsilon = 1.25 / counters, 1 / counters
    parameters = DKG(theta=theta, epsilon=epsilon, seed=seed)
    merged = parameters.learner(k)
    for part in parts:
        one = parameters.learner(k)
        one.learn(part)
        merged.merge(one)
    stream = [key for part in parts for key in part]
    m, key_map = len(stream), merged.build()
    true = {key: stream.count(key) for key in set(stream)}
    heavy = dict(key_map.heavy)
    estimates = {
        key: (count, error) for key, _, count, error in (merged.summary.frequent(theta) if m else [])
    }
    assert set(estimates) == set(heavy)
    assert {key for key, f in true.items() if f >= theta * m} <= set(heavy)
    assert all(true.get(key, 0) >= (theta - epsilon) * m for key in heavy)
    assert all(
        count - error <= true.get(key, 0) <= count and error <= epsilon * m
        for key, (count, error) in estimates.items()
    )
    received = tuple_loads(key_map.route(stream), k)
    off = sum(error for _, error in estimates.values())
    largest = max(
        [count for count, _ in estimates.values()]
        + [int((merged.hashes.cells(key_words(stream)) == b).sum()) for b in range(2 * k)]
    )
    assert received.max() - received.min() <= largest + 2 * off


@given(st.lists(st.lists(st.integers(0, 9), max_size=60), min_size=1, max_size=4), st.integers(1, 5))
def test_merging_is_exact_where_every_key_has_a_counter(parts: list[list[int]], k: int) -> None:
    parameters = DKG(theta=0.2, epsilon=0.1)
    merged, whole = parameters.learner(k), parameters.learner(k)
    for part in parts:
        one = parameters.learner(k)
        one.learn(part)
        merged.merge(one)
        whole.learn(part)
    assert merged.build().to_bytes() == whole.build().to_bytes()
