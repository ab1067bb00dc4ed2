"""Histograms of durations: exact sums, quantiles within the stated bound of NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from ordstream.node.histogram import BOUND, FEW, _lows, _width, added, histogram, quantiles

AT = (0, 1, 25, 50, 95, 99, 99.9, 100)
DRAWN = {
    "ties": lambda rng: np.full(1_001, 12_345),
    "one": lambda rng: np.array([987_654_321]),
    "small": lambda rng: rng.integers(0, 300, 999),
    "heavy tail": lambda rng: (rng.pareto(1.1, 5_000) * 20_000).astype(np.int64),
    "lognormal": lambda rng: rng.lognormal(12, 3, 4_000).astype(np.int64),
    "two humps": lambda rng: np.concatenate(
        [rng.integers(900, 1_100, 500), rng.integers(10**9, 2 * 10**9, 500)]
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_quantiles_are_within_the_bound(name):
    values = DRAWN[name](np.random.default_rng(7))
    parts = np.array_split(values, 3)
    whole = added(histogram(part) for part in parts)
    assert whole == histogram(values)
    assert sum(whole.values()) == len(values)
    for found, exact in zip(quantiles(whole, AT), np.percentile(values, AT), strict=True):
        assert abs(found - exact) <= BOUND * exact + 1e-9


def test_buckets_cover_every_duration_without_gaps():
    edges = [edge + step for bit in range(53) for edge in [1 << bit] for step in (-1, 0, 1)]
    values = np.array(sorted({*range(2_000), *edges}))
    values = values[values < 1 << 53]
    for value, low in zip(values.tolist(), _lows(values).tolist(), strict=True):
        assert low <= value < low + _width(low)
        assert _width(low) <= max(1, low / 128)
        assert _lows(np.array([low, low + _width(low) - 1])).tolist() == [low, low]
        assert _lows(np.array([low + _width(low)]))[0] == min(
            low + _width(low), _lows(np.array([1 << 53]))[0]
        )
    assert histogram(range(256)) == dict.fromkeys(range(256), 1)


def test_what_no_clock_gives_is_kept_in_the_last_bucket():
    assert histogram([-5, 0]) == {0: 2}
    (low,) = histogram([1 << 60])
    assert low + _width(low) == 1 << 53


@pytest.mark.parametrize("name", DRAWN)
def test_few_durations_have_the_histogram_of_many(name):
    """Few are looked at one by one, many by NumPy."""
    values = DRAWN[name](np.random.default_rng(8))[: 10 * FEW]
    parts = [values[start : start + FEW] for start in range(0, len(values), FEW)]
    assert added(histogram(part) for part in parts) == histogram(values)
    assert [*histogram(values[:FEW])] == sorted(histogram(values[:FEW]))


def test_nothing():
    assert histogram([]) == {}
    assert added([]) == {}
    assert added([{5: 1}, {}, {3: 2, 5: 1}]) == {3: 2, 5: 2}
