"""One partitioned stateful operator: 1,000 keys, Zipf-1, a counter per key, ingress and egress included.

    batches -> ingress -> split by key -> reorder buffer
            -> buckets -> count (PS)   -> reorder buffer -> egress -> batches

Against the plain loop, whose counters are a dense array (so the hash table counts as overhead).
"""

from __future__ import annotations

from typing import Any

import harness
import pytest
from targets import Figure, overhead_target, speedup_target

pytestmark = pytest.mark.benchmark(group="keyed", timer=harness.replayed_clock)

CHUNKS = [1, 64, 1024, None]


@pytest.mark.parametrize("work_ns", harness.WORK_NS)
@pytest.mark.parametrize("chunk", CHUNKS, ids=lambda chunk: f"chunk{chunk or 'auto'}")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("partitioning", ["hybrid", "partitioned", "shared"])
def test_keyed(bench: Any, partitioning: str, workers: int, chunk: int | None, work_ns: int) -> None:
    spins = harness.spins_for(work_ns)
    chain = harness.keyed(spins)
    options = {"workers": workers, "chunk_rows": chunk, "partitioning": partitioning}
    tuples = harness.tuples_for(work_ns, chunk, workers, own_ns=8 + 250.0 / (chunk or 1024))
    harness.check_node(chain, min(tuples, 3 * harness.BATCH // 2), spins, **options)
    batches = harness.data().batches(tuples, True)
    contest = harness.Contest(
        tuples,
        {
            "node": lambda: harness.run_node(chain, batches, **options),
            "loop": harness.loop_body(tuples, spins, True),
        },
        between=workers > 1,
    ).run()

    name = f"keyed {partitioning} work={work_ns} ns chunk={chunk or 'auto'} workers={workers}"
    default = partitioning == "hybrid"
    figures = [
        Figure(
            name,
            "overhead",
            contest.overhead("node", workers),
            "ns",
            at_most=overhead_target("keyed", work_ns, chunk, workers) if default else None,
        ),
    ]
    if work_ns:
        figures.append(
            Figure(
                name,
                "speed-up",
                contest.ratio("loop", "node"),
                "x",
                at_least=speedup_target("keyed", work_ns, chunk, workers) if default else None,
            )
        )
    bench.contest(contest, "node", figures, work_ns=work_ns, spins=spins, **options)
