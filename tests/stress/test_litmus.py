"""What the hardware does to the reorder buffer: every worker sends once per round; then nothing ready may be left behind.

The release with a weaker flag clear (a mutant in the test door) must fail this on a machine with two cores, the real one never.
"""

from __future__ import annotations

import os

import pytest
from core_threads import together
from stress_tools import SANITIZED, size

from ordstream._core._testing import PyReorderBuffer

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rounds(n: int, threads: int, scheme: str = "nonblocking", offer: bool = False, weak_clear: bool = False) -> dict[str, int]:
    buffer = PyReorderBuffer(8, 1, scheme, weak_clear=weak_clear)
    done = together(*[lambda k=k: buffer.meet(k, threads, n, 17, offer) for k in range(threads)])
    assert 0 < done[0] <= n  # fewer beside other load, where the threads can't meet so often
    assert set(done) == {done[0]}
    figures: dict[str, int] = buffer.figures
    assert figures["count"] == done[0] * threads
    assert figures["wrong"] == figures["entered_twice"] == 0
    return figures


@pytest.mark.parametrize("scheme", ["nonblocking", "lock"])
@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("offer", [False, True])
def test_nothing_ready_is_left_behind(scheme: str, threads: int, offer: bool) -> None:
    n = size(150_000 if threads <= CORES else 2_000)
    assert rounds(n, threads, scheme, offer)["stuck"] == 0


@pytest.mark.skipif(CORES < 2, reason="one core: threads do not meet")
@pytest.mark.skipif(SANITIZED, reason="the sanitizer's own instructions are fences")
def test_weak_clear_is_caught() -> None:
    for _ in range(20):
        if rounds(100_000, 2, weak_clear=True)["stuck"] > 0:
            return
    pytest.fail("no ready unit was left behind in 2,000,000 rounds")
