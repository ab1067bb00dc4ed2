"""What is known of a stream from job to job: it fades, by rows and by jobs, and never below what a decision
needs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordstream.balance.dkg import DKG, DKGLearner
from ordstream.balance.memory import COSTS, UNIT, HalfLife, KeyMemory, TimeMemory, weights
from ordstream.balance.metrics import imbalance
from ordstream.balance.posg import POSG
from ordstream.balance.sketches import ExecutionTimes, scaled
from ordstream.balance.space_saving import SpaceSaving
from ordstream.errors import PlanError

K = 4
UNBOUNDED = replace(DKG(), m=1 << 62)


def learner(keys: Any, counts: Any = None, k: int = K) -> DKGLearner:
    made = UNBOUNDED.learner(k)
    made.learn(np.asarray(keys, dtype=np.int64), counts)
    return made


def with_a_heavy_key(rows: int, heavy: int = 7, share: float = 0.4, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows) < share, heavy, rng.integers(100, 5_000, rows))


# --- maps of few rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["dkg", "pkg"])
def test_empty_buckets_go_to_instances_in_turn(variant: Any) -> None:
    """LPT alone sends all of them to one instance."""
    key_map = DKG(variant=variant).fit(np.array([500, 501, 502]), K)
    assert sorted(key_map.buckets.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_bucket_that_holds_rows_stays_where_it_was_scheduled() -> None:
    made = learner(np.arange(1_000))
    full = made.build().buckets
    made.bucket_counts[3] = 0
    emptied = made.build().buckets
    assert emptied.tolist() != full.tolist() or full[3] == emptied[3]
    assert imbalance(np.bincount(emptied, weights=made.bucket_counts, minlength=K)) < 40


def test_three_rows_do_not_make_a_map() -> None:
    memory = KeyMemory(UNBOUNDED)
    assert memory.take(learner([])) is None
    assert memory.take(learner([500, 501, 502])).heavy == []  # type: ignore[union-attr]
    assert memory.take(learner(with_a_heavy_key(200))).heavy == [(7, 0)]  # type: ignore[union-attr]


# --- from job to job ----------------------------------------------------------------------------------


def test_three_rows_replace_nothing() -> None:
    memory = KeyMemory(UNBOUNDED)
    before = memory.take(learner(with_a_heavy_key(20_000)))
    after = memory.take(learner([500, 501, 502]))
    assert before is not None
    assert after is not None
    assert before.heavy == after.heavy == [(7, 0)]
    assert before.buckets.tolist() == after.buckets.tolist()


def test_many_small_jobs_are_followed() -> None:
    memory = KeyMemory(UNBOUNDED)
    memory.take(learner(with_a_heavy_key(20_000)))
    for _ in range(600):
        memory.take(learner([500, 501, 502]))
    assert memory.map is not None
    assert {key for key, _ in memory.map.heavy} == {500, 501, 502}
    assert memory.learner is not None
    assert 1_000 <= memory.learner.learnt <= 1_300  # what a decision needs is kept, and little more


def test_a_heavy_key_that_is_gone_is_forgotten_within_a_few_jobs() -> None:
    memory = KeyMemory(UNBOUNDED)
    for seed in range(5):
        memory.take(learner(with_a_heavy_key(5_000, heavy=7, seed=seed)))
    for seed in range(5):
        found = memory.take(learner(with_a_heavy_key(5_000, heavy=9, seed=seed)))
    assert found is not None
    assert {key for key, _ in found.heavy} == {9}


def test_what_was_learnt_for_other_instances_is_dropped() -> None:
    memory = KeyMemory(UNBOUNDED)
    memory.take(learner(with_a_heavy_key(5_000)))
    found = memory.take(learner(with_a_heavy_key(5_000, heavy=9), k=3))
    assert found is not None
    assert found.instances == 3
    assert {key for key, _ in found.heavy} == {9}


def test_posg_forgets_what_a_tuple_cost_before() -> None:
    """Jobs of fewer than N rows: they were added up for ever."""
    rng = np.random.default_rng(2)
    memory = TimeMemory(POSG())
    for job in range(110):
        times = memory.parameters.times()
        times.update_many(rng.integers(0, 50, 700), np.full(700, 1.0 if job < 100 else 25.0))
        memory.take(times)
    assert memory.times is not None
    assert memory.times.estimate(3) > 24
    assert 1_024 <= memory.times.tuples <= 2 * 1_024


def test_posg_keeps_what_it_needs() -> None:
    memory = TimeMemory(POSG())
    times = memory.parameters.times()
    times.update_many(np.arange(20_000) % 50, np.full(20_000, 2.0))
    memory.take(times)
    for _ in range(200):
        three = memory.parameters.times()
        three.update_many(np.array([1, 2, 3]), np.full(3, 2.0))
        memory.take(three)
    assert memory.times is not None
    assert memory.times.tuples >= 1_000
    assert memory.times.estimate(7) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rows", "jobs", "left"), [(100, math.inf, 0.5), (math.inf, 2, 2**-0.5), (100, 1, 0.25)]
)
def test_half_lives(rows: float, jobs: float, left: float) -> None:
    assert HalfLife(rows, jobs).left(10_000, 100, 0) == pytest.approx(left)
    assert HalfLife(rows, jobs).left(10_000, 100, 9_100) == pytest.approx(0.9)
    assert HalfLife(rows, jobs).left(10_000, 0, 0) == HalfLife(rows, jobs).left(0, 100, 0) == 1.0
    assert HalfLife(rows, jobs).left(50, 10, 1_000) == 1.0


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (-1, 1), (math.nan, 1)])
def test_half_lives_that_are_none(wrong: tuple[float, float]) -> None:
    with pytest.raises(PlanError, match="half-life"):
        HalfLife(*wrong)


# --- by cost --------------------------------------------------------------------------------------------


def test_keys_weighed_by_cost_are_balanced_by_cost() -> None:
    """A hundredth of the rows, each fifty times as dear: a third of the work."""
    rng = np.random.default_rng(3)
    keys = np.where(rng.random(20_000) < 0.01, 7, rng.integers(100, 5_000, 20_000))
    cost = np.where(keys == 7, 50.0, 1.0)
    times = COSTS.times()
    times.update_many(keys, cost)
    by_rows, by_cost = (
        KeyMemory(UNBOUNDED, unit=UNIT).take(learner(keys, one))
        for one in (weights(None, keys), weights(times, keys))
    )
    assert by_rows is not None
    assert by_cost is not None
    loads = [
        imbalance(np.bincount(one.route(keys), weights=cost, minlength=K)) for one in (by_rows, by_cost)
    ]
    assert [key for key, _ in by_cost.heavy] == [7]
    assert loads[1] < 40 < loads[0]
    assert weights(None, keys).tolist() == [UNIT] * len(keys)
    assert abs(weights(times, keys).mean() - UNIT) < 1


# --- scaling down ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=30), st.floats(0, 1))
def test_scaled_counts_are_whole_and_near(counts: list[int], factor: float) -> None:
    given_ = np.array(counts, dtype=np.int64)
    found = scaled(given_, factor)
    assert found.min() >= 0
    assert (np.abs(found - given_ * factor) < 1 + 1e-9).all()
    assert found.sum() == int(sum(counts) * factor)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=200), st.floats(0, 1), st.integers(1, 30))
def test_a_faded_summary_keeps_its_bounds_within_one(keys: list[int], factor: float, capacity: int) -> None:
    summary = SpaceSaving(capacity=capacity)
    summary.update_many(np.array(keys))
    summary.fade(factor)
    exact = np.bincount(keys, minlength=21) * factor
    for key, count, error in summary.counters():
        assert count - error - 1 <= exact[key] + 1e-9
        assert exact[key] <= count + 1 + 1e-9
    assert summary.total <= len(keys)
    assert SpaceSaving.from_bytes(summary.to_bytes()).counters() == summary.counters()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0.5, 100)), min_size=1, max_size=100), st.floats(0, 1)
)
def test_faded_matrices_estimate_as_before(tuples: list[tuple[int, float]], factor: float) -> None:
    times = ExecutionTimes(rows=3, columns=64, seed=1)
    times.update_many(np.array([key for key, _ in tuples]), np.array([one for _, one in tuples]))
    before = times.copy()
    times.fade(factor)
    assert times.tuples == int(before.tuples * factor)
    kept = (times.frequency > 0).all(axis=1).any()
    assert times.ratios()[times.frequency > 0] == pytest.approx(before.ratios()[times.frequency > 0])
    if times.tuples:
        assert times.mean_time == pytest.approx(before.mean_time)
    assert kept or times.tuples <= 64
    assert ExecutionTimes.from_bytes(times.to_bytes()) == times


def test_a_faded_learner_has_the_bytes_of_one() -> None:
    made = learner(with_a_heavy_key(5_003))
    made.fade(0.37)
    again = DKGLearner.from_bytes(made.to_bytes(), UNBOUNDED)
    assert again.learnt == made.learnt == int(5_003 * 0.37) == made.bucket_counts.sum()
    assert again.build().to_bytes() == made.build().to_bytes()


def test_the_loads_of_a_map_are_those_of_its_rows() -> None:
    keys = with_a_heavy_key(5_000)
    made = DKG(epsilon=1 / 4_999, theta=0.1, m=10_000).learner(K)  # a counter for every key
    made.learn(keys)
    assert made.loads().tolist() == np.bincount(made.build().route(keys), minlength=K).tolist()
    with pytest.raises(PlanError, match="split keys"):
        DKG(variant="pkg").learner(K).loads()
