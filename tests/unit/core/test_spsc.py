"""The SPSC ring alone: full, empty, order, positions far from zero, two threads."""

from __future__ import annotations

import pytest
from core_threads import together

from ordstream._core.lab.testing_queues import PySpsc

FAR = [0, 1, 2**31 - 5, 2**32 - 5, 2**63 - 1_000_000]


@pytest.mark.parametrize("start", FAR)
def test_fifo_full_and_empty(start: int) -> None:
    ring = PySpsc(4, start)
    assert ring.take() == 0
    assert ring.peek() == 0
    for lap in range(25):
        base = lap * 4 + 1
        assert [ring.push(base + k) for k in range(5)] == [True] * 4 + [False]
        assert ring.size == 4
        assert ring.peek() == base
        assert [ring.take() for _ in range(5)] == [base, base + 1, base + 2, base + 3, 0]
        assert ring.size == 0


def test_half_full_wraps() -> None:
    ring = PySpsc(2)
    ring.push(1)
    for k in range(2, 100):
        assert ring.push(k)
        assert not ring.push(1_000)
        assert ring.take() == k - 1
    assert ring.take() == 99


@pytest.mark.parametrize("capacity", [2, 4, 1024])
@pytest.mark.parametrize("start", [0, 2**31 - 5, 2**63 - 1_000_000])
def test_two_threads_keep_the_order(capacity: int, start: int) -> None:
    n = 100_000
    ring = PySpsc(capacity, start)
    full, wrong = together(lambda: ring.produce(n), lambda: ring.consume(n))
    assert full >= 0
    assert wrong == 0
    assert ring.size == 0


def test_a_lost_item_is_noticed() -> None:
    """The check can fail: one item too few, one out of order."""
    ring = PySpsc(16)
    ring.push(1)
    assert ring.consume(2, seconds=0.05) == -1
    ring.push(7)
    assert ring.consume(1, seconds=0.05) == 1
