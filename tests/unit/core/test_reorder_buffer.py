"""The reorder buffers alone, both schemes: order, gate, parking, laps, tickets far from zero, many
threads.
"""

from __future__ import annotations

import itertools

import pytest
from core_threads import together

from ordstream._core.lab.testing_reorder_buffer import RELEASED_AT_ONCE, PyReorderBuffer

SCHEMES = ["nonblocking", "lock"]
FAR = [1, 2**31 - 5, 2**32 - 5, 2**63 - 1_000_000]

pytestmark = pytest.mark.parametrize("scheme", SCHEMES)


@pytest.mark.parametrize("first", FAR)
@pytest.mark.parametrize("offer", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_every_arrival_order_leaves_in_ticket_order(
    scheme: str, first: int, offer: bool, alone: bool
) -> None:
    """As two steps, put and release, or as one; as in a run of several workers, or of one."""
    for order in itertools.permutations(range(4)):
        buffer = PyReorderBuffer(4, first, scheme, keep=4, alone=alone)
        assert buffer.limit == first + 4
        present: set[int] = set()
        for k in order:
            if offer:
                buffer.offer(first + k, 100 + k)
            else:
                buffer.put(first + k, 100 + k)
                buffer.release()
            present.add(k)
            whole = next(i for i in range(5) if i not in present)
            assert buffer.next == first + whole
            assert not buffer.ready
        assert buffer.delivered == [100, 101, 102, 103]


@pytest.mark.parametrize("first", FAR)
def test_laps_of_a_tiny_ring(scheme: str, first: int) -> None:
    buffer = PyReorderBuffer(2, first, scheme, keep=200)
    for lap in range(100):
        ticket = first + 2 * lap
        assert buffer.limit == ticket + 2
        buffer.put(ticket + 1, 2 * lap + 2)
        assert buffer.release() == 0
        buffer.put(ticket, 2 * lap + 1)
        assert buffer.release() == 2
    assert buffer.delivered == list(range(1, 201))


def test_parked_unit_stays_until_there_is_room(scheme: str) -> None:
    """Deliver refuses: nothing is lost, nothing moves on, and the unit shows as ready."""
    buffer = PyReorderBuffer(8, 1, scheme, keep=8)
    buffer.room = 1
    for ticket in (1, 2, 3):
        buffer.put(ticket, ticket)
    assert buffer.release() == 1
    assert buffer.ready
    assert buffer.next == 2
    assert buffer.release() == 0
    buffer.room = 1
    assert buffer.release() == 1
    assert buffer.ready
    buffer.room = -1
    assert buffer.release() == 1
    assert not buffer.ready
    assert buffer.delivered == [1, 2, 3]


@pytest.mark.parametrize("alone", [False, True])
def test_offered_unit_parks(scheme: str, alone: bool) -> None:
    """A unit whose turn it is, and no room: it goes into its slot."""
    buffer = PyReorderBuffer(4, 1, scheme, keep=4, alone=alone)
    buffer.room = 0
    assert buffer.offer(1, 11) == 0
    assert buffer.ready
    buffer.room = 1
    assert buffer.offer(2, 12) == 1
    assert buffer.ready
    buffer.room = -1
    assert buffer.offer(3, 13) == 2
    assert buffer.delivered == [11, 12, 13]


@pytest.mark.parametrize("alone", [False, True])
def test_run_of_units(scheme: str, alone: bool) -> None:
    """In turn: delivered in one go, with what is ready behind; not in turn: put; no room: what is left
    is put.
    """
    buffer = PyReorderBuffer(16, 1, scheme, keep=12, alone=alone)
    assert buffer.offer_run(4, [14, 15]) == 0
    assert not buffer.ready
    assert buffer.offer_run(1, [11, 12, 13]) == 5
    buffer.room = 2
    assert buffer.offer_run(6, [16, 17, 18]) == 2
    assert buffer.ready
    assert buffer.next == 8
    buffer.room = -1
    assert buffer.offer_run(9, [19]) == 2
    assert buffer.delivered == list(range(11, 20))


def test_one_hold_is_bounded(scheme: str) -> None:
    """A captured worker is let go: the non-blocking scheme releases at most RELEASE_MAX per call; the
    rest stays ready.
    """
    buffer = PyReorderBuffer(256, 1, scheme, keep=256)
    for ticket in range(1, 201):
        buffer.put(ticket, ticket)
    first = buffer.release()
    assert first == (RELEASED_AT_ONCE if scheme == "nonblocking" else 200)
    while buffer.ready:
        buffer.release()
    assert buffer.delivered == list(range(1, 201))


def test_worker_that_meets_a_holder_leaves(scheme: str) -> None:
    """Non-blocking: a worker never waits for the one that releases; what it put is ready when the flag
    is dropped.
    """
    if scheme == "lock":
        pytest.skip("the lock-based scheme waits, by definition")
    buffer = PyReorderBuffer(4, 1, scheme, keep=4)
    assert buffer.hold_flag()
    buffer.put(1, 11)
    assert buffer.release() == 0
    assert buffer.ready
    buffer.drop_flag()
    assert buffer.release() == 1
    assert buffer.hold_flag()
    assert buffer.offer(2, 12) == 0
    assert buffer.ready
    buffer.drop_flag()
    assert buffer.release() == 1
    assert buffer.delivered == [11, 12]


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [2, 64])
@pytest.mark.parametrize("first", [1, 2**32 - 5, 2**63 - 1_000_000])
@pytest.mark.parametrize("offer", [False, True])
def test_threads(scheme: str, workers: int, size: int, first: int, offer: bool) -> None:
    n = 20_000
    buffer = PyReorderBuffer(size, first, scheme)
    buffer.begin()
    sent = together(*[lambda k=k: buffer.work(n, k + 1, offer) for k in range(workers)])
    assert min(sent) >= 0
    assert sum(sent) == n
    assert buffer.next == first + n
    figures = buffer.figures
    assert (figures["count"], figures["wrong"], figures["entered_twice"]) == (n, 0, 0)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("refuse_every", [0, 3])
def test_threads_that_send_runs(scheme: str, workers: int, refuse_every: int) -> None:
    n = 20_000
    buffer = PyReorderBuffer(64, 1, scheme)
    buffer.begin(refuse_every)
    sent = together(*[lambda k=k: buffer.work(n, k + 1, True, 30, 8) for k in range(workers)])
    assert min(sent) >= 0
    assert sum(sent) == n
    figures = buffer.figures
    assert (figures["count"], figures["wrong"], figures["entered_twice"]) == (n, 0, 0)


@pytest.mark.parametrize("refuse_every", [2, 3, 50])
@pytest.mark.parametrize("offer", [False, True])
def test_threads_with_a_downstream_that_refuses(scheme: str, refuse_every: int, offer: bool) -> None:
    n = 10_000
    buffer = PyReorderBuffer(4, 1, scheme)
    buffer.begin(refuse_every)
    sent = together(*[lambda k=k: buffer.work(n, k + 1, offer) for k in range(4)])
    assert min(sent) >= 0
    figures = buffer.figures
    assert figures["refused"] > 0
    assert (figures["count"], figures["wrong"], figures["entered_twice"]) == (n, 0, 0)


def test_a_wrong_order_and_a_lost_unit_are_noticed(scheme: str) -> None:
    """The checks can fail: two units swapped; a unit that never leaves."""
    buffer = PyReorderBuffer(4, 1, scheme)
    buffer.begin()
    buffer.put(1, 2)
    buffer.put(2, 1)
    buffer.release()
    assert buffer.figures["wrong"] == 2
    buffer = PyReorderBuffer(2, 1, scheme)
    buffer.begin(refuse_every=1)
    assert buffer.work(6, 1, seconds=0.05) == -1
