"""The MPMC ring alone: positions as tickets, the gate, tags, full and empty, many threads, a stalled
consumer.
"""

from __future__ import annotations

import pytest
from core_threads import together

from ordstream._core.lab.testing_queues import PyMpmc

FAR = [1, 2**31 - 5, 2**32 - 5, 2**63 - 1_000_000]


@pytest.mark.parametrize("start", FAR)
@pytest.mark.parametrize("single", [True, False])
def test_fifo_with_positions(start: int, single: bool) -> None:
    ring = PyMpmc(4, start)
    push = ring.push_single if single else ring.push
    assert ring.take() is None
    assert ring.peek() is None
    for lap in range(25):
        base = lap * 4
        assert [push(base + k + 1) for k in range(5)] == [True] * 4 + [False]
        assert ring.size == 4
        assert not ring.has_room(1)
        assert ring.peek() == (base + 1, start + base)
        assert [ring.take() for _ in range(4)] == [(base + k + 1, start + base + k) for k in range(4)]
        assert ring.take() is None
        assert ring.has_room(4)
        assert not ring.has_room(5)


@pytest.mark.parametrize("start", FAR)
def test_gate(start: int) -> None:
    """No worker gets a position at or past the limit; the item stays."""
    ring = PyMpmc(8, start)
    for k in range(3):
        ring.push_single(k + 1)
    assert ring.take(limit=start) == "gated"
    assert ring.take(limit=start + 2) == (1, start)
    assert ring.take(limit=start + 2) == (2, start + 1)
    assert ring.take(limit=start + 2) == "gated"
    assert ring.take(limit=start + 3) == (3, start + 2)
    assert ring.take(limit=start + 3) is None


@pytest.mark.parametrize("ticket", [1, 2**31 - 2, 2**32 - 2, 2**47 - 10])
def test_tagged_gate(ticket: int) -> None:
    ring = PyMpmc(8)
    for k in range(4):
        ring.push_single((ticket + k) << 16 | (65_534 - k))
    assert ring.take_tagged(ticket) == "gated"
    assert ring.take_tagged(ticket + 1) == (ticket, 65_534)
    assert ring.take_tagged(ticket + 1) == "gated"
    assert [ring.take_tagged(ticket + 9) for _ in range(4)] == [
        (ticket + 1, 65_533), (ticket + 2, 65_532), (ticket + 3, 65_531), None,
    ]  # fmt: skip


@pytest.mark.parametrize("ticket", [1, 2**31 - 2, 2**47 - 100])
def test_a_tagged_run_ends_at_the_gate_and_at_the_tail(ticket: int) -> None:
    ring = PyMpmc(8)
    tagged = [(ticket + k, 65_534 - k) for k in range(40)]
    given = taken = 0
    for _ in range(8):
        while given < min(40, taken + 8):
            ring.push_single(tagged[given][0] << 16 | tagged[given][1])
            given += 1
        assert ring.take_tagged_run(ticket + taken, 3) == []
        assert ring.take_tagged_run(ticket + taken + 2, 3) == tagged[taken : taken + 2]
        assert ring.take_tagged_run(ticket + 50, 3) == tagged[taken + 2 : taken + 5]
        taken += 5
    assert ring.take_tagged_run(ticket + 50, 8) == []
    ring.push_single(ticket << 16)
    assert ring.take_tagged_run(ticket + 50, 8) == [(ticket, 0)]


def test_a_stalled_consumer_makes_the_ring_full_not_wrong() -> None:
    """A consumer that lost the processor between claim and give-back: its cell is not reused, nothing is
    overwritten.
    """
    ring = PyMpmc(4)
    for k in range(1, 5):
        ring.push(k)
    position = ring.claim()
    assert position == 1
    assert ring.take() == (2, 2)
    assert not ring.push(5)  # cell 1 is not free yet
    assert not ring.push_single(5)
    assert not ring.has_room(1)
    ring.give_back(position)
    assert ring.has_room(2)
    assert not ring.has_room(3)
    assert ring.push(5)
    assert [ring.take() for _ in range(4)] == [(3, 3), (4, 4), (5, 5), None]


@pytest.mark.parametrize("capacity", [2, 8, 1024])
@pytest.mark.parametrize("producers", [1, 3])
@pytest.mark.parametrize("start", [1, 2**32 - 5, 2**63 - 1_000_000])
@pytest.mark.thin(6)
def test_threads(capacity: int, producers: int, start: int) -> None:
    """Everything exactly once; positions rise; with one producer an item's position is its number."""
    n = 60_000
    ring = PyMpmc(capacity, start)
    ring.begin(n)
    bodies = [lambda k=k: ring.produce(k + 1, producers, producers == 1) for k in range(producers)]
    bodies += [lambda: ring.consume(producers)] * 3
    results = together(*bodies)
    assert min(results[:producers]) >= 0
    assert results[producers:] == [0, 0, 0]
    assert ring.taken_once()


def test_a_wrong_item_is_noticed() -> None:
    """The checks can fail: out of order, twice, lost."""
    ring = PyMpmc(8)
    for items in ([2, 1], [1, 1]):
        ring = PyMpmc(8)
        ring.begin(2)
        for item in items:
            ring.push(item)
        assert ring.consume(1) > 0
    ring = PyMpmc(8)
    ring.begin(2)
    ring.push(1)
    assert ring.consume(1, seconds=0.05) == -1
    assert not ring.taken_once()
