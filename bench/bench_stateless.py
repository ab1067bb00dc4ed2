"""One stateless operator, ingress and egress included.

    batches -> ingress -> spin (SL) -> reorder buffer -> egress -> batches

Against the plain loop (work) and oneTBB's parallel_pipeline in units of the same size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import pytest
from targets import Figure, overhead_target, rival_target, speedup_target

pytestmark = pytest.mark.benchmark(group="stateless", timer=harness.replayed_clock)

CHUNKS = [1, 16, 64, 256, 1024, None]


@pytest.mark.parametrize("work_ns", harness.WORK_NS)
@pytest.mark.parametrize("chunk", CHUNKS, ids=lambda chunk: f"chunk{chunk or 'auto'}")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("reorder", ["nonblocking", "lock"])
def test_stateless(bench: Any, reorder: str, workers: int, chunk: int | None, work_ns: int) -> None:
    spins = harness.spins_for(work_ns)
    chain = harness.stateless(spins)
    options = {"workers": workers, "chunk_rows": chunk, "reorder": reorder}
    tuples = harness.tuples_for(work_ns, chunk, workers)
    harness.check_node(chain, min(tuples, 3 * harness.BATCH // 2), spins, **options)
    batches = harness.data().batches(tuples, False)
    bodies: dict[str, Callable[[], Any]] = {
        "node": lambda: harness.run_node(chain, batches, **options),
        "loop": harness.loop_body(tuples, spins, False),
    }
    against_rival = chunk is not None and reorder == "nonblocking" and harness.onetbb() is not None
    if against_rival:
        bodies["onetbb"], results = harness.onetbb_body(tuples, spins, chunk or 0, workers)
        bodies["onetbb"]()
        harness.check(results, harness.spin(harness.data().values[: len(results)], spins))
    if workers == 2 and work_ns:
        bodies["two_loops"] = harness.two_loops_body(tuples, spins)
    contest = harness.Contest(tuples, bodies, between=workers > 1).run()

    name = f"stateless {reorder} work={work_ns} ns chunk={chunk or 'auto'} workers={workers}"
    paper = reorder == "nonblocking"  # the targets are for the default scheme
    figures = [
        Figure(
            name,
            "overhead",
            contest.overhead("node", workers),
            "ns",
            at_most=overhead_target("stateless", work_ns, chunk, workers) if paper else None,
        ),
    ]
    if work_ns:
        figures.append(
            Figure(
                name,
                "speed-up",
                contest.ratio("loop", "node"),
                "x",
                at_least=speedup_target("stateless", work_ns, chunk, workers) if paper else None,
                detail={"two_loops": contest.ratio("loop", "two_loops")} if "two_loops" in bodies else {},
            )
        )
    if against_rival:
        figures.append(
            Figure(
                name,
                "wall / oneTBB",
                contest.ratio("node", "onetbb"),
                "x",
                at_most=rival_target(work_ns, chunk),
            )
        )
    bench.contest(contest, "node", figures, work_ns=work_ns, spins=spins, **options)
