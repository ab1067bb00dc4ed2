"""Error bounds of the sketches over random streams, and merging against one sketch of both streams."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ordstream.balance.sketches import CountMin, ExecutionTimes
from ordstream.balance.space_saving import SpaceSaving

INTS = st.integers(-(2**63), 2**63 - 1)
KEYS = st.one_of(
    st.integers(0, 12),
    INTS,
    st.text(max_size=3),
    st.binary(max_size=3),
    st.tuples(st.integers(0, 2), st.text(max_size=1)),
)
STREAM = st.lists(KEYS, max_size=120)
SMALL_STREAM = st.lists(st.integers(0, 15), max_size=200)
TIMES = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1e6)), max_size=150)


@given(STREAM, st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**64))
def test_count_min_bounds(stream: list, rows: int, columns: int, seed: int) -> None:
    """f <= f^; each row sums to m; the estimate is the least over rows; a key at a time is a column at a
    time.
    """
    sketch = CountMin(rows=rows, columns=columns, seed=seed)
    sketch.update_many(stream)
    assert sketch.matrix.sum(axis=1).tolist() == [len(stream)] * rows
    for key, count in Counter(stream).items():
        assert count <= sketch.estimate(key) <= len(stream)
    one = CountMin(rows=rows, columns=columns, seed=seed)
    for key in stream:
        one.update(key)
    assert one == sketch


def test_count_min_error_is_rarely_above_epsilon() -> None:
    """f^ - f <= epsilon m with probability >= 1 - delta: over seeds, for one key of a skewed stream."""
    rng = np.random.default_rng(1)
    stream = np.minimum(rng.zipf(1.3, 5_000), 10_000)
    true = int((stream == 7).sum())
    epsilon, delta, seeds = 0.05, 0.1, 400
    above = 0
    for seed in range(seeds):
        sketch = CountMin(epsilon, delta, seed=seed)
        sketch.update_many(stream)
        above += sketch.estimate(7) - true > epsilon * len(stream)
    assert above <= delta * seeds


@given(STREAM, STREAM, st.integers(0, 100))
def test_count_min_merge_is_union(left: list, right: list, seed: int) -> None:
    a, b, both = (CountMin(rows=3, columns=7, seed=seed) for _ in range(3))
    a.update_many(left)
    b.update_many(right)
    both.update_many(left + right)
    a.merge(b)
    assert a == both
    assert CountMin.from_bytes(a.to_bytes()) == both


@given(TIMES, st.integers(1, 4), st.integers(1, 12), st.integers(0, 1000))
def test_execution_time_bounds(stream: list[tuple[int, float]], rows: int, columns: int, seed: int) -> None:
    """Rows of F sum to the tuples, of W to the times; every estimate lies between the least and the
    largest time.
    """
    sketch = ExecutionTimes(rows=rows, columns=columns, seed=seed)
    keys, times = [k for k, _ in stream], [t for _, t in stream]
    sketch.update_many(keys, times)
    assert sketch.frequency.sum(axis=1).tolist() == [len(stream)] * rows
    np.testing.assert_allclose(sketch.work.sum(axis=1), [sum(times)] * rows, rtol=1e-12)
    if stream:
        estimates = sketch.estimate_many(list(range(60)))
        assert estimates.min() >= min(times) * (1 - 1e-12)
        assert estimates.max() <= max(times) * (1 + 1e-12)
        assert estimates.tolist() == [sketch.estimate(key) for key in range(60)]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=100), st.integers(0, 1 << 20), st.integers(0, 100)
)
def test_constant_times_are_estimated_exactly(keys: list[int], time: int, seed: int) -> None:
    sketch = ExecutionTimes(rows=2, columns=5, seed=seed)
    sketch.update_many(keys, [float(time)] * len(keys))
    assert set(sketch.estimate_many([*keys, 5_000, 5_001]).tolist()) == {float(time)}


@given(TIMES, TIMES)
def test_execution_times_merge_is_union(
    left: list[tuple[int, float]], right: list[tuple[int, float]]
) -> None:
    # whole times: sums are exact in any order
    whole = [(key, float(int(time))) for key, time in left + right]
    a, b, both = (ExecutionTimes(rows=3, columns=7, seed=2) for _ in range(3))
    a.update_many([k for k, _ in whole[: len(left)]], [t for _, t in whole[: len(left)]])
    b.update_many([k for k, _ in whole[len(left) :]], [t for _, t in whole[len(left) :]])
    both.update_many([k for k, _ in whole], [t for _, t in whole])
    a.merge(b)
    assert a == both


def assert_space_saving(sketch: SpaceSaving, true: Counter, exact_sum: bool) -> None:
    m, cap = sum(true.values()), sketch.capacity
    counters = sketch.counters()
    assert sketch.total == m
    assert len(counters) == len(sketch) <= cap
    summed = sum(count for _, count, _ in counters)
    assert summed == m if exact_sum else summed <= m
    assert sketch.least * cap <= m
    for key, count, error in counters:
        assert count - error <= true[key] <= count
        assert 0 <= error <= sketch.least
    held = {key for key, _, _ in counters}
    for key, f in true.items():
        assert f * cap <= m or key in held
        assert key in held or f <= sketch.least
        assert sketch.estimate(key) >= f


@given(SMALL_STREAM, st.integers(1, 12))
def test_space_saving_bounds(stream: list[int], capacity: int) -> None:
    sketch = SpaceSaving(capacity=capacity)
    for end in range(0, len(stream), 17):
        sketch.update_many(np.array(stream[end : end + 17], dtype=np.int64))
    assert_space_saving(sketch, Counter(stream), exact_sum=True)


def test_mean_error_of_space_saving() -> None:
    """DKG, Theorem 4.1: the mean error of a heavy hitter's estimate is at most 1 - ε, for tuples in
    random order.
    """
    epsilon, m = 0.05, 2_000
    probabilities = 1 / np.arange(1, 301) ** 1.2
    probabilities /= probabilities.sum()
    heavy = np.flatnonzero(probabilities >= 0.1)
    assert len(heavy) >= 2
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(400):
        stream = rng.choice(300, size=m, p=probabilities)
        sketch = SpaceSaving(epsilon)
        sketch.update_many(stream)
        errors.append([sketch.estimate(int(key)) - int((stream == key).sum()) for key in heavy])
    mean = np.mean(errors, axis=0)
    margin = 4 * np.std(errors, axis=0) / np.sqrt(len(errors))
    assert (mean >= 0).all()
    assert (mean <= 1 - epsilon + margin).all()


class Plain:
    """Space-Saving by its definition: a list of [key, count, error, when the count was reached]."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.time = capacity, 0
        self.held: dict = {}

    def update(self, key: object) -> None:
        self.time += 1
        if key in self.held:
            count, error, _ = self.held[key]
        elif len(self.held) < self.capacity:
            count, error = 0, 0
        else:
            victim = min(self.held, key=lambda k: (self.held[k][0], self.held[k][2]))
            count, _, _ = self.held.pop(victim)
            error = count
        self.held[key] = (count + 1, error, self.time)


@given(STREAM, st.integers(1, 9))
def test_space_saving_is_its_definition(stream: list, capacity: int) -> None:
    sketch, plain = SpaceSaving(capacity=capacity), Plain(capacity)
    for key in stream:
        sketch.update(key)
        plain.update(key)
    assert {key: (count, error) for key, count, error in sketch.counters()} == {
        k: v[:2] for k, v in plain.held.items()
    }
    column = SpaceSaving(capacity=capacity)
    column.update_many(stream)
    assert column.counters() == sketch.counters()


@given(st.lists(SMALL_STREAM, min_size=2, max_size=4), SMALL_STREAM, st.integers(1, 10))
def test_space_saving_merge_keeps_the_bounds_of_the_union(
    parts: list[list[int]], after: list[int], capacity: int
) -> None:
    """Also for tuples counted after the merge, and in a copy from bytes."""
    merged = SpaceSaving(capacity=capacity)
    true: Counter = Counter()
    for part in parts:
        sketch = SpaceSaving(capacity=capacity)
        sketch.update_many(part)
        merged.merge(sketch)
        true.update(part)
        assert_space_saving(merged, true, exact_sum=False)
    again = SpaceSaving.from_bytes(merged.to_bytes())
    for sketch in (merged, again):
        sketch.update_many(after)
    true.update(after)
    assert_space_saving(merged, true, exact_sum=False)
    assert merged.counters() == again.counters()
