"""Update cost of the sketches, ns per tuple, beside Apache DataSketches' on the same stream.

    Zipf-1 int64 keys -> Count-Min (4 x 55), F/W pair (4 x 55), Space-Saving (20 and 1,024 counters)

*column*: one call per batch of 131,072 keys; *calls*: one Python call per key, the only way that
DataSketches' Python package has.
Every way is verified first: estimates from above, within each sketch's own bound. Left out where
`datasketches` is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import numpy as np
import pyarrow as pa
import pytest
from targets import Figure

from ordstream.balance.sketches import CountMin, ExecutionTimes
from ordstream.balance.space_saving import SpaceSaving

pytestmark = pytest.mark.benchmark(group="sketches", timer=harness.replayed_clock)

ROWS, COLUMNS = 4, 55
CALLS = 1 << 17


def true_counts() -> np.ndarray:
    return np.bincount(harness.data().keys, minlength=harness.KEYS)


def check_counts(estimate: Callable[[int], float], error: float) -> None:
    """Every key's estimate lies in [f, f + error]."""
    for key, count in enumerate(true_counts().tolist()):
        found = estimate(key)
        if not count <= found <= count + error:
            raise AssertionError(f"key {key}: count {count}, estimated {found}")


def calls(update: Callable[[Any], Any], keys: list[Any]) -> None:
    for key in keys:
        update(key)


def figures(name: str, run: harness.Contest) -> list[Figure]:
    return [Figure(f"sketches {name}", way, run.wall(way), "ns") for way in run.bodies]


def test_count_min(bench: Any) -> None:
    keys = harness.data().keys
    listed = keys.tolist()
    ours = CountMin(rows=ROWS, columns=COLUMNS)
    ours.update_many(keys)
    check_counts(ours.estimate, len(keys))  # 55 columns for 1,000 keys: only the certain bound
    bodies: dict[str, Callable[[], Any]] = {
        "column": lambda: ours.update_many(keys),
        "calls": lambda: calls(ours.update, listed),
    }
    try:
        import datasketches
    except ImportError:
        pass
    else:
        rival = datasketches.count_min_sketch(ROWS, COLUMNS)
        calls(rival.update, listed)
        check_counts(rival.get_estimate, len(keys))
        bodies["datasketches calls"] = lambda: calls(rival.update, listed)
    run = harness.Contest(CALLS, bodies).run()
    bench.contest(run, "column", figures("Count-Min 4x55", run))


def test_count_min_strings(bench: Any) -> None:
    texts = [f"user-{key:08d}" for key in harness.data().keys.tolist()]
    column = pa.array(texts)
    ours = CountMin(rows=ROWS, columns=COLUMNS)
    ours.update_many(column)
    check_counts(lambda key: ours.estimate(f"user-{key:08d}"), len(texts))
    bodies: dict[str, Callable[[], Any]] = {
        "column": lambda: ours.update_many(column),
        "calls": lambda: calls(ours.update, texts),
    }
    run = harness.Contest(CALLS, bodies).run()
    bench.contest(run, "column", figures("Count-Min 4x55, strings of 13", run))


def test_execution_times(bench: Any) -> None:
    keys = harness.data().keys
    times = (keys % 64 + 1).astype(np.float64)
    ours = ExecutionTimes(rows=ROWS, columns=COLUMNS)
    ours.update_many(keys, times)
    estimates = ours.estimate_many(keys)
    assert ours.frequency.sum(axis=1).tolist() == [len(keys)] * ROWS
    assert times.min() <= estimates.min() <= estimates.max() <= times.max()
    bodies: dict[str, Callable[[], Any]] = {
        "update": lambda: ours.update_many(keys, times),
        "estimate": lambda: ours.estimate_many(keys),
    }
    run = harness.Contest(CALLS, bodies).run()
    bench.contest(run, "update", figures("F/W pair 4x55", run))


@pytest.mark.parametrize("capacity", [20, 1024])
def test_space_saving(bench: Any, capacity: int) -> None:
    keys = harness.data().keys
    listed = keys.tolist()
    ours = SpaceSaving(capacity=capacity)
    ours.update_many(keys)
    check_counts(ours.estimate, len(keys) / capacity)
    bodies: dict[str, Callable[[], Any]] = {
        "column": lambda: ours.update_many(keys),
        "calls": lambda: calls(ours.update, listed),
    }
    try:
        import datasketches
    except ImportError:
        pass
    else:
        # The number of counters is a power of two there, of which at most 3/4 are used: no fewer than ours.
        size = max(3, int(np.ceil(np.log2(capacity / 0.75))))
        rival = datasketches.frequent_items_sketch(size)
        calls(rival.update, listed)
        check_counts(rival.get_upper_bound, rival.epsilon * len(keys))
        bodies["datasketches calls"] = lambda: calls(rival.update, listed)
    run = harness.Contest(CALLS, bodies).run()
    bench.contest(run, "column", figures(f"Space-Saving {capacity}", run))
