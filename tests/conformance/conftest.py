"""One fixture: every number of workers with every scheduler and every partitioning scheme."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

WORKERS = (0, 1, 2, 4)
SCHEDULERS = ("ct", "lp", "et", "qst", "random")
PARTITIONINGS = ("hybrid", "partitioned", "shared")


def _ways() -> list[Any]:
    ways = []
    for number, (workers, scheduler, scheme) in enumerate(
        itertools.product(WORKERS, SCHEDULERS, PARTITIONINGS)
    ):
        reorder = ("nonblocking", "lock")[(number + number // 3) % 2]  # every scheme meets both
        options = {"workers": workers, "scheduler": scheduler, "partitioning": scheme, "reorder": reorder}
        ways.append(pytest.param(options, id=f"{workers}-{scheduler}-{scheme}-{reorder}"))
    return ways


@pytest.fixture(params=_ways())
def how(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of a run: workers, scheduler, partitioning, reorder."""
    return dict(request.param)


@pytest.fixture(params=[pytest.param(w, id=f"workers={w}") for w in (*WORKERS, "auto")])
def workers(request: pytest.FixtureRequest) -> int | str:
    """Only the number of workers."""
    found: int | str = request.param
    return found
