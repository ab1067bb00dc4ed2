"""What the hardware does to the reorder buffer: every worker sends once per round; then nothing ready may be
left behind.

A unit left behind is a failure, after however few rounds. That none was says something only where the
threads met: beside other load they take turns on a core, and no memory order could be seen to be wrong. So
the release with a weaker flag clear, a mutant in the test door, runs between the real one's rounds, and must
be caught as well. Where it is not, or where there were too few rounds, a test says that it cannot tell, and
is skipped: neither passed nor failed.
"""

from __future__ import annotations

import os
import time

import pytest
from core_threads import together
from stress_tools import SANITIZED, size

from ordstream._core.lab.testing_reorder_buffer import PyReorderBuffer

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

PART = 10_000  # rounds of the real release, then so many of the mutant
MUTANT_PART = 2_000
LEAST = 1  # times that the mutant must have been caught, in a fifth as many rounds
SECONDS = 20.0  # for a test to come to so many rounds


def rounds(
    n: int, threads: int, scheme: str = "nonblocking", offer: bool = False, weak_clear: bool = False
) -> tuple[int, int]:
    """(rounds done, those that left a ready unit behind); fewer than n beside other load, where the
    threads can't meet so often.
    """
    buffer = PyReorderBuffer(8, 1, scheme, weak_clear=weak_clear)
    done = together(*[lambda k=k: buffer.meet(k, threads, n, 17, offer, enough=5) for k in range(threads)])
    assert 0 <= done[0] <= n
    assert set(done) == {done[0]}
    figures: dict[str, int] = buffer.figures
    assert figures["count"] == done[0] * threads
    assert figures["wrong"] == figures["entered_twice"] == 0
    return done[0], figures["stuck"]


def can_meet(threads: int) -> bool:
    """Whether the threads can be on cores of their own, and the mutant be seen: a sanitizer's own
    instructions are fences.
    """
    return threads <= CORES and not SANITIZED


def cannot_tell(why: str) -> None:
    pytest.skip(f"cannot tell: {why} at this load")


@pytest.mark.parametrize("scheme", ["nonblocking", "lock"])
@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("offer", [False, True])
@pytest.mark.thin(2)
def test_nothing_ready_is_left_behind(scheme: str, threads: int, offer: bool) -> None:
    n = size(150_000 if threads <= CORES else 2_000)
    least = LEAST if can_meet(threads) else 0
    done = caught = 0
    end = time.monotonic() + SECONDS
    while (done < n or caught < least) and time.monotonic() < end:
        more, stuck = rounds(min(PART, n), threads, scheme, offer)
        assert stuck == 0
        done += more
        if least:
            caught += rounds(MUTANT_PART, 2, weak_clear=True)[1]
    if done < n:
        cannot_tell(f"{done:,} of {n:,} rounds in {SECONDS:g} s")
    if caught < least:
        cannot_tell(f"the mutant was caught {caught} times in {SECONDS:g} s, beside {done:,} rounds")


@pytest.mark.skipif(not can_meet(2), reason="one core, or a sanitizer: threads do not meet")
def test_weak_clear_is_caught() -> None:
    done = 0
    end = time.monotonic() + 3 * SECONDS
    while done < 2_000_000 and time.monotonic() < end:
        more, stuck = rounds(PART, 2, weak_clear=True)
        if stuck > 0:
            return
        done += more
    if done < 2_000_000:
        cannot_tell(f"{done:,} of 2,000,000 rounds in {3 * SECONDS:g} s")
    pytest.fail("no ready unit was left behind in 2,000,000 rounds")
