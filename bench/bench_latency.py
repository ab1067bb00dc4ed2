"""Open loop: tuples become due by a precomputed schedule, whatever the node does.

Latency counts from the intended time.

    schedule -> ingress -> spin 1 us (SL) -> count 1 us (PS) -> egress

2 workers, default chunking. Capacity is the closed-loop throughput of the same chain, measured first in the
same test. Arrivals are evenly spaced ("even") or exponential ("poisson"). Every marker is its chunk's first,
so its oldest, tuple.
"""

from __future__ import annotations

import statistics
from typing import Any

import harness
import numpy as np
import pyarrow as pa
import pytest
from targets import Figure

from ordstream.lab.spin import Spin, SpinCount
from ordstream.node import node
from ordstream.pipeline import Pipeline

pytestmark = pytest.mark.benchmark(group="latency", timer=harness.replayed_clock)

WORKERS = 2
SECONDS = 1.0
PAPER_RANGE = (20, 80)
AT_MOST = {50: 100.0, 80: 500.0}


def chain(spins: int) -> Pipeline:
    """(key, value) -> spin, key kept -> count."""
    schema, work = harness.KEY_VALUE, {"spins": spins, "column": 1}
    return harness.chain(
        Spin(name="spin", input=schema, output=schema, **work),
        SpinCount(name="count", input=schema, output=harness.KEY_RESULT, key=(0,), **work),
    )


def verify(
    pipeline: Pipeline, spins: int, batches: list[pa.RecordBatch], tuples: int, **options: Any
) -> None:
    """Values and order of one run."""
    table = node.run(pipeline, batches, **options).table
    once = harness.Data(
        harness.spin(harness.data().values, spins),
        harness.data().keys,
        harness.data().rows,
        harness.data().keyed_rows,
    )
    harness.check(table["result"].to_numpy(), once.expected(tuples, spins, True))


@pytest.mark.parametrize("load", [50, 80])
@pytest.mark.parametrize("arrivals", ["even", "poisson"])
def test_latency(bench: Any, arrivals: str, load: int) -> None:
    spins = harness.spins_for(1000)
    pipeline = chain(spins)
    closed = 1 << 17
    batches = harness.data().batches(closed, True)
    verify(pipeline, spins, batches, closed, workers=WORKERS)

    runs = [
        harness.measured(lambda: harness.run_node(pipeline, batches, workers=WORKERS), closed, True)
        for _ in range(harness.PAIRS)
    ]
    capacity = 1e9 / statistics.median(
        [run.wall for run in runs if run.disturbed is None] or [run.wall for run in runs]
    )
    per_second = capacity * load / 100
    tuples = int(per_second * SECONDS)
    rng = np.random.default_rng(7)
    gaps = (
        np.full(tuples, 1e9 / per_second)
        if arrivals == "even"
        else rng.exponential(1e9 / per_second, tuples)
    )
    # Nothing is due in the first 20 ms: threads start and the first batches arrive.
    schedule = (20e6 + np.cumsum(gaps)).astype(np.int64)
    due = harness.data().batches(tuples, True)
    options = {"workers": WORKERS, "arrivals": schedule, "marker_every": 16}
    verify(pipeline, spins, due, tuples, **options)

    reports: list[Any] = []

    def body() -> Any:
        with node.stream(pipeline, due, partial=False, **options) as out:
            rows = sum(batch.num_rows for batch in out)
        if rows != tuples:
            raise AssertionError(f"{rows} rows came out of {tuples}")
        reports.append(out.report)
        return out.report

    counted: list[harness.Ran] = []
    disturbed: list[str] = []
    everything: list[harness.Ran] = []
    for _ in range(2 * harness.PAIRS):
        ran = harness.measured(body, tuples, True)
        everything.append(ran)
        if ran.disturbed:
            disturbed.append(ran.disturbed)
        else:
            counted.append(ran)
        if len(counted) == harness.PAIRS:
            break
    quiet = len(counted) >= 3
    used = counted if quiet else everything

    def percentile(kind: str, which: str) -> float:
        return statistics.median(getattr(run.report.latency[kind], which) for run in used)

    name = f"latency {arrivals} load={load} % workers={WORKERS}"
    figures = []
    for kind in ("end_to_end", "processing"):
        for which in ("p50_us", "p95_us", "p99_us"):
            bound = AT_MOST[load] if kind == "end_to_end" and which == "p99_us" else None
            figures.append(
                Figure(
                    name,
                    f"{kind.replace('_', '-')} {which[:3]}",
                    percentile(kind, which),
                    "us",
                    at_most=bound,
                    quiet=quiet,
                    counted=len(counted),
                    not_counted=len(disturbed),
                    round_trips=[round(run.round_trip) for run in used],
                    detail={"capacity_per_s": capacity},
                )
            )
    bench.figures(figures)
    harness.record(
        bench.benchmark,
        used,
        load=load,
        arrivals=arrivals,
        capacity_per_s=capacity,
        tuples=tuples,
        quiet=quiet,
        not_counted=disturbed,
        round_trips=[round(run.round_trip) for run in used],
        figures={f.what: f.value for f in figures},
        parks=statistics.median(run.report.parks for run in used),
        chunks=statistics.median(run.report.chunks for run in used),
    )
