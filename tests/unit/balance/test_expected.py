"""What keys may be expected to have, where few of their tuples were counted."""

from __future__ import annotations

import numpy as np
import pytest

import ordstream as od
from ordstream.balance.mixed import Controller, Report
from ordstream.balance.mixed.expected import expected
from ordstream.balance.mixed.statistics import overload


def drawn_together(counts, placed=None):
    counts = np.asarray(counts, dtype=np.float64)
    placed = np.zeros(len(counts), np.int32) if placed is None else placed
    return expected(counts, counts, 1.0, placed, int(placed.max()) + 1)


def picked(counts, true, share=0.25):
    """Of the keys with the highest counts, a quarter of all tuples by these: what they truly have."""
    order = np.argsort(-counts, kind="stable")
    upto = order[: 1 + np.searchsorted(np.cumsum(counts[order]), share * counts.sum())]
    return true[upto].sum() / counts[upto].sum()


def test_equal_keys_become_equal_and_their_sum_stays():
    rng, true = np.random.default_rng(1), np.full(300, 8.0)
    counts = rng.poisson(true).astype(np.float64)
    found = drawn_together(counts)
    assert found.sum() == pytest.approx(counts.sum())
    assert np.mean((found - true) ** 2) < 0.15 * np.mean((counts - true) ** 2)
    assert picked(counts, true) < 0.7  # who was counted most often is not so frequent
    assert picked(found, true) > 0.88


@pytest.mark.parametrize("alpha", [0.9, 1.6])
def test_keys_that_stand_apart_stay(alpha):
    weight = 1 / np.arange(1, 301) ** alpha
    true = 2_600 * weight / weight.sum()
    counts = np.random.default_rng(2).poisson(true).astype(np.float64)
    found = drawn_together(counts)
    assert found[:3] == pytest.approx(counts[:3], rel=0.05)
    assert picked(found, true) == pytest.approx(1, abs=0.04)
    assert (found[counts == 0] == 0).all()


def test_each_instance_keeps_its_sum_and_order_does_not_matter():
    rng = np.random.default_rng(3)
    counts = rng.poisson(np.repeat([3.0, 30.0, 3_000.0], 100)).astype(np.float64)
    placed = rng.integers(0, 4, 300).astype(np.int32)
    found = drawn_together(counts, placed)
    for one in range(4):
        assert found[placed == one].sum() == pytest.approx(counts[placed == one].sum())
    order = rng.permutation(300)
    assert drawn_together(counts[order], placed[order]) == pytest.approx(found[order])
    assert found[200:] == pytest.approx(counts[200:], rel=0.1)  # known by themselves
    assert drawn_together([5.0]).tolist() == [5.0]
    assert drawn_together([0.0, 0.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_first_plan_takes_off_what_it_counts_on(seed):
    """65 % of the tuples on one node, of like keys, each known by some eight tuples."""
    controller, rng = Controller(od.Mixed(seed=seed), 2), np.random.default_rng(seed)
    keys = np.arange(4_000, dtype=np.uint64)
    home = controller.assignment.route_words(keys)
    keys = np.concatenate([keys[home == node][:300] for node in (0, 1)])
    share = np.repeat([0.65, 0.35], 300) / 300
    counts = rng.multinomial(4_096, share)
    for node, mine in enumerate((slice(0, 300), slice(300, 600))):
        seconds = 1e-6 * counts[mine]
        report = Report(node, 0, keys[mine], counts[mine], seconds, np.full(300, 64))
        controller.report(report.heaviest(4_096, keys[:0]))
    move = controller.decide()
    assert move is not None
    loads = np.bincount(move.after.route_words(keys), weights=share, minlength=2)
    assert overload(loads) < 0.05
    assert move.theta_after < 0.02
