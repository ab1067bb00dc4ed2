"""Worklists of partitioned operators alone, all three schemes: order in a bucket, exclusive buckets,
exactly once, hand-over.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_threads import together

from ordstream._core.lab.testing_partition_queues import NO_TICKET_LIMIT, PyPartitionQueues

SCHEMES = ["hybrid", "partitioned", "shared"]


def drain(queues: PyPartitionQueues) -> list[tuple[int, int, int]]:
    """One worker processes everything: (bucket, ticket, number in the bucket)."""
    seen = []
    while (entered := queues.enter()) is not None:
        bucket, run = entered
        while run > 0:
            done = 0
            for _ in range(run):
                found = queues.process(bucket)
                if found is None:
                    break
                seen.append((bucket, *found))
                done += 1
            run = queues.leave(bucket, done, False)
    return seen


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("first", [1, 2**31 - 5, 2**32 - 5, 2**47 - 1_000])
def test_one_worker(scheme: str, first: int) -> None:
    queues = PyPartitionQueues(scheme, 4, 8, first)
    seen = []
    for lap in range(20):
        for k in range(3):
            assert queues.add([(lap + k) % 4]) == first + 3 * lap + k
        seen += drain(queues)
    assert sorted(ticket for _, ticket, _ in seen) == list(range(first, first + 60))
    for bucket in range(4):
        assert [number for b, _, number in seen if b == bucket] == list(range(1, 16))
    if scheme != "partitioned":
        assert [ticket for _, ticket, _ in seen] == list(range(first, first + 60))
    assert queues.figures["out_of_order"] == 0
    assert queues.next == first + 60
    assert not queues.has_work()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_depth_and_room(scheme: str) -> None:
    queues = PyPartitionQueues(scheme, 4, 4)
    assert [queues.add([0, 1, 2, 3]) for _ in range(5)] == [1, 2, 3, 4, None]
    assert len(drain(queues)) == 16
    assert queues.add([2]) == 5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gate_at_dispatch(scheme: str) -> None:
    queues = PyPartitionQueues(scheme, 2, 8)
    queues.add([0])
    queues.add([1])
    assert queues.enter(limit=1) is None
    assert queues.enter(limit=2) == (0, 1)
    assert queues.enter(limit=2) is None
    assert queues.enter(limit=NO_TICKET_LIMIT) == (1, 1)


def test_hybrid_delegates() -> None:
    """A worker that meets a busy bucket leaves its tuple to the holder and goes on (Fig. 7, L10 and L14)."""
    queues = PyPartitionQueues("hybrid", 2, 16)
    for bucket in (0, 0, 0, 1):
        queues.add([bucket])
    assert queues.enter() == (0, 1)
    assert queues.enter() == (1, 1)  # took and delegated two of bucket 0 on the way
    assert queues.count(0) == 3
    assert queues.process(0) == (1, 1)
    assert queues.leave(0, 1, False) == 2
    assert queues.process(0) == (2, 2)
    assert queues.process(0) == (3, 3)
    assert queues.leave(0, 2, False) == 0
    assert queues.count(0) == 0


@pytest.mark.parametrize("scheme", ["partitioned", "shared"])
def test_busy_bucket_is_left_alone(scheme: str) -> None:
    queues = PyPartitionQueues(scheme, 2, 16)
    for bucket in (0, 0, 1):
        queues.add([bucket])
    first = queues.enter()
    assert first is not None
    assert first[0] == 0
    second = queues.enter()
    if scheme == "shared":
        assert second is None  # head of line: the next item's bucket is busy
    else:
        assert second == (1, 1)
    assert not (scheme == "shared" and queues.has_work())


def test_claims_are_entered_one_by_one() -> None:
    """Between claim and entry others pass: who enters the bucket first takes its oldest part, whoever
    claimed that.
    """
    queues = PyPartitionQueues("hybrid", 4, 16)
    for bucket in (0, 1, 0, 2, 1, 3, 0, 1, 2, 3, 0, 1):
        queues.add([bucket])
    assert queues.claim(3) == 3  # tickets 1, 2, 3: buckets 0, 1, 0
    assert queues.enter_claim(0) == (0, 1)
    assert queues.enter() == (2, 1)  # another worker, ticket 4
    assert queues.enter() == (1, 1)  # ticket 5: bucket 1, whose ticket 2 is claimed and not entered
    assert queues.process(1) == (2, 1)
    assert queues.enter_claim(1) is None  # delegated to it
    assert queues.leave(1, 1, False) == 1
    assert queues.process(1) == (5, 2)
    assert queues.leave(1, 1, False) == 0
    assert queues.process(0) == (1, 1)
    assert queues.leave(0, 1, False) == 0
    assert queues.enter_claim(2) == (0, 1)
    assert queues.process(0) == (3, 2)
    assert queues.leave(0, 1, False) == 0


def test_claims_leave_something_and_end_at_the_gate() -> None:
    queues = PyPartitionQueues("hybrid", 4, 16)
    for _ in range(3):
        for bucket in (0, 1, 2):
            queues.add([bucket])
    assert queues.claim(3) == 0  # nine wait: three of them would leave too little
    assert queues.claim(2, limit=1) == 0
    assert queues.claim(2, limit=2) == 1
    assert queues.enter_claim(0) == (0, 1)
    assert queues.claim(2) == 2
    assert (
        PyPartitionQueues("partitioned", 4, 16).claim(1) == PyPartitionQueues("shared", 4, 16).claim(1) == 0
    )


def test_a_handed_over_bucket_comes_before_claims() -> None:
    queues = PyPartitionQueues("hybrid", 2, 64)
    for _ in range(20):
        queues.add([0])
    assert queues.enter() == (0, 1)
    assert queues.enter() is None  # delegated the others
    for _ in range(20):
        queues.add([1])
    queues.process(0)
    assert queues.leave(0, 1, True) == 0
    assert queues.claim(2) == 0
    assert queues.enter() == (0, 19)
    assert queues.claim(2) == 2


def test_handed_over_bucket_comes_first() -> None:
    """A slice ends with delegated tuples: the next worker to enter gets that bucket, before the master
    queue.
    """
    queues = PyPartitionQueues("hybrid", 3, 16)
    for bucket in (0, 0, 0):
        queues.add([bucket])
    assert queues.enter() == (0, 1)
    assert queues.enter() is None  # delegated both
    queues.add([1])
    queues.process(0)
    assert queues.leave(0, 1, True) == 0
    assert queues.handover_size == 1
    assert queues.has_work(limit=0)
    assert queues.enter() == (0, 2)
    assert queues.enter() == (1, 1)
    assert queues.process(0) == (2, 2)
    assert queues.leave(0, 1, True) == 0
    assert queues.enter() == (0, 1)


def test_stalled_taker_of_a_handed_over_bucket_loses_nothing() -> None:
    """A worker loses the processor in the middle of taking from the hand-over list; the others go round the
    ring.

    The list's cell is then not free although the list is not full: a push that fails must not lose the
    bucket.
    """
    queues = PyPartitionQueues("hybrid", 2, 64)
    for _ in range(20):
        queues.add([0])
        queues.add([1])
    assert queues.enter() == (0, 1)
    assert queues.enter() == (1, 1)
    assert queues.enter() is None  # everything else was delegated
    queues.process(0)
    assert queues.leave(0, 1, True) == 0
    position, bucket = queues.claim_handover()
    assert bucket == 0
    processed = 0
    run = 1
    while queues.count(1) > 0:
        if run == 0:
            entered = queues.enter()
            assert entered is not None, (
                f"bucket 1 has {queues.count(1)} parts, but nobody can enter it any more"
            )
            run = entered[1]
        queues.process(1)
        processed += 1
        run = queues.leave(1, 1, True)
    assert processed == 20
    queues.give_back_handover(position)


def check_threads(queues: PyPartitionQueues, n: int, bodies: list[Callable[[], int]]) -> None:
    """The producer and the workers at the same time: everything once, in order, one worker per bucket."""
    results = together(*bodies)
    figures = queues.figures
    assert min(results) >= 0, figures
    assert figures["delivered"] == n
    assert figures["out_of_order"] == figures["wrong"] == figures["entered_twice"] == figures["lost"] == 0
    assert all(given == processed for given, processed in queues.per_bucket)
    assert sum(results[1:]) == sum(given for given, _ in queues.per_bucket)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("p", "parts", "hot"), [(1, 1, 0), (2, 2, 90), (3, 1, 100), (16, 8, 50), (64, 1, 0)]
)
@pytest.mark.thin(12)
def test_threads(scheme: str, workers: int, p: int, parts: int, hot: int) -> None:
    """One producer, several workers, slices of one part: in order per bucket, one worker per bucket,
    everything once.
    """
    n = 3_000
    queues = PyPartitionQueues(scheme, p, 16)
    bodies = [lambda: queues.produce(n, 7, parts, hot)]
    bodies += [lambda k=k: queues.work(n, 1, k + 1, k * p // workers) for k in range(workers)]
    check_threads(queues, n, bodies)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("p", "parts", "hot"), [(1, 1, 0), (2, 2, 90), (3, 1, 100), (16, 8, 50), (64, 1, 0)]
)
@pytest.mark.parametrize("claim", [2, 5, 8])
def test_threads_that_claim_several(claim: int, workers: int, p: int, parts: int, hot: int) -> None:
    """As test_threads."""
    n = 3_000
    queues = PyPartitionQueues("hybrid", p, 64)
    bodies = [lambda: queues.produce(n, 7, parts, hot)]
    bodies += [lambda k=k: queues.work(n, 1 + k % 3, k + 1, claim=claim) for k in range(workers)]
    check_threads(queues, n, bodies)


def claimed(seed: int) -> int:
    queues = PyPartitionQueues("hybrid", 16, 64)
    together(
        lambda: queues.produce(5_000, seed),
        *[lambda k=k: queues.work(5_000, 1, k + 1, claim=4) for k in range(2)],
    )
    times: int = queues.figures["claims"]
    return times


def test_claims_happen() -> None:
    """As below, for the test above."""
    assert any(claimed(seed) for seed in range(1, 21))


def handed_over(seed: int) -> int:
    queues = PyPartitionQueues("hybrid", 2, 64)
    bodies = [lambda: queues.produce(5_000, seed, 1, 100)]
    together(*bodies, *[lambda k=k: queues.work(5_000, 1, k + 1) for k in range(3)])
    times: int = queues.figures["handed_over"]
    return times


def test_hand_over_happens() -> None:
    """The threads test would prove nothing if no slice ever ended with delegated parts."""
    assert any(handed_over(seed) for seed in range(1, 21))
