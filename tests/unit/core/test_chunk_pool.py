"""The pool of chunks: what it hands out is nobody else's, its counters are what is there, and it keeps no
more than it may.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from ordstream._core.lab.testing_pool import CHUNK_BYTES, PyPool

SIZES = (0, 100, 5_000, 40_000, 3_000_000)


def check(pool: PyPool, live: dict[int, int], max_idle: int) -> None:
    """Counters against what is found; `live`: bytes of the blocks of each chunk that is out."""
    found: dict[str, Any] = pool.figures()
    assert len(set(found["chunks"])) == len(found["chunks"])
    assert not set(found["chunks"]) & set(live)
    for told, told_bytes, chunks, group_bytes in found["groups"]:
        assert (told, told_bytes) == (chunks, group_bytes)
    assert found["idle"] == sum(group[3] + group[2] * CHUNK_BYTES for group in found["groups"])
    assert found["idle"] <= max_idle
    assert all(told == chunks for told, chunks, _ in found["cached"])
    assert found["bytes"] == sum(live.values()) + sum(one[2] for one in found["cached"])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("max_idle", [0, 200_000, 1 << 30])
def test_counters_are_what_is_there(seed: int, max_idle: int) -> None:
    """Chunks go from worker to worker; of one that is given back, a block of at most 1 MiB stays."""
    draw = random.Random(seed)
    pool, live = PyPool(3, max_idle), dict[int, int]()
    for _ in range(60):
        worker, many = draw.randrange(3), draw.randrange(700)
        if draw.random() < 0.5:
            size = draw.choice(SIZES[: 3 if many > 300 else 5])
            for _ in range(many):
                chunk, blocks = pool.take(worker, size)
                assert chunk not in live
                live[chunk] = blocks
        else:
            for chunk in draw.sample(sorted(live), min(many, len(live))):
                pool.give(worker, chunk)
                del live[chunk]
        check(pool, live, max_idle)
    for chunk in live:
        pool.give(draw.randrange(3), chunk)
    check(pool, {}, max_idle)
    assert pool.end() == 0


def test_what_one_worker_frees_another_takes() -> None:
    """As in a pipeline: one makes chunks, another frees them. No more are made than are out at once."""
    pool, seen = PyPool(2, 1 << 30), set[int]()
    for _ in range(50):
        taken = [pool.take(0, 100)[0] for _ in range(1_000)]
        seen.update(taken)
        for chunk in taken:
            pool.give(1, chunk)
    assert len(seen) <= 1_000 + 2 * 256
    assert pool.end() == 0


@pytest.mark.stress
@pytest.mark.parametrize("size", [8, 40_000])
def test_threads_share_it(size: int) -> None:
    pool, good = PyPool(8, 2_000_000), list[bool]()
    threads = [
        threading.Thread(target=lambda k=k: good.append(pool.pass_on(k, 3_000, size))) for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 8
    check(pool, {}, 2_000_000)
    assert pool.end() == 0
