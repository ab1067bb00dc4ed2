"""Cores we don't have: the simulated node against real runs, then on 1 to 256 workers.

`cost-model` measures this machine, `sim-validate` compares the simulation with real runs at as many workers
as there are cores, `sim-fig8` gives Figure 8 of the ordered paper (throughput and latency by scheduler and
workers) for cores that are not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordstream.ground.cpus import allowed_cpus
from ordstream.lab.evaluation import ordered_subjects, simulated
from ordstream.lab.evaluation.experiment import Claim, Experiment, Options, Result
from ordstream.lab.evaluation.machine import other_load
from ordstream.lab.evaluation.simulated import fig8
from ordstream.lab.evaluation.simulated_elastic import elastic
from ordstream.lab.simulation import calibrate, real
from ordstream.lab.simulation.cost_model import CostModel, chosen_path
from ordstream.lab.simulation.node import Outcome, Stage, simulate
from ordstream.operators.operator import Kind

SCHEDULERS = ("ct", "lp", "et", "qst")
#: Allowed error of a prediction.
TOLERANCE = 0.15
#: Seconds of one real run.
REAL_SECONDS = 0.25
#: Cores that others may use during a run that counts, and how often a run is tried for each that is asked
#: for.
QUIET, TRIES = 0.1, 3

#: Pipelines: kinds and ns of work per tuple.
PIPELINES: dict[str, tuple[tuple[Kind, float], ...]] = {
    "stateless": (("SL", 1000.0),),
    "keyed": (("PS", 1000.0),),
    "mixed": (("SL", 300.0), ("PS", 1000.0), ("SL", 300.0)),
}
BYTES = {"stateless": 8.0, "keyed": 16.0, "mixed": 16.0}


def stages(name: str, scale: float = 1.0) -> list[Stage]:
    """A pipeline for the simulation; `scale`: what the machine's work takes over what it should."""
    return [
        Stage(
            f"{i} {kind}",
            kind,
            ns * scale,
            hashes=real.hashes() if kind == "PS" else None,
            row_bytes=BYTES[name],
        )
        for i, (kind, ns) in enumerate(PIPELINES[name])
    ]


def real_chain(name: str, step: float) -> real.Chain:
    """The same pipeline for the node; `step`: ns of one generator step."""
    return real.Chain(tuple((kind, round(ns / step)) for kind, ns in PIPELINES[name]))


@dataclass(frozen=True)
class Case:
    """One real run to predict; the pipeline is one of PIPELINES, or a query."""

    pipeline: str
    chunk: int
    scheduler: str
    workers: int


def cases(options: Options | None = None) -> list[Case]:
    """Every case of the validation; chunk sizes and numbers of workers can be chosen."""
    numbers = options.workers if options and options.workers else range(1, min(2, allowed_cpus()) + 1)
    sizes = (
        [size for size in options.chunks if size is not None]
        if options and options.chunks
        else (1, 64, 1024)
    )
    found = []
    for workers in numbers:
        for chunk in sizes:
            found += [Case(name, chunk, "ct", workers) for name in ("stateless", "keyed")]
            found += [Case("mixed", chunk, scheduler, workers) for scheduler in SCHEDULERS]
            found += [Case(name, chunk, "ct", workers) for name in ordered_subjects.QUERY_NAMES]
    return found


def predict(
    case: Case,
    model: CostModel,
    slowdown: float,
    transfer: float,
    scatter: float | None = None,
    seed: int = 1,
) -> Outcome:
    """The simulation's answer where work takes `slowdown` times what it should, a line `transfer` ns,
    one of many `scatter`.
    """
    model = replace(
        model, slowdown=1.0, transfer=transfer, scatter=model.scatter if scatter is None else scatter
    )
    if case.pipeline in PIPELINES:
        given = stages(case.pipeline, slowdown)
        tuples = 200_000 if case.chunk < 16 else 1_000_000
    else:
        found = simulated.described(case.pipeline, seed, case.workers > 1)
        model = replace(model, read_row=found.read_row)
        stages_at = found.at(case.chunk, case.workers)
        given = [
            replace(one, work_ns=one.work_ns * slowdown, chunk_ns=one.chunk_ns * slowdown)
            for one in stages_at
        ]
        tuples = min(found.rows, 60_000 if case.chunk < 16 else 1_000_000)
    return simulate(
        given,
        model,
        case.workers,
        tuples,
        chunk_rows=case.chunk,
        scheduler=case.scheduler,
        cores=allowed_cpus(),
        seed=seed,
    )


@dataclass(frozen=True)
class Ran:
    """A real run; beside it, how much slower plain loops on as many cores were than one short loop, what a
    line and one of many took, and the cores that others used meanwhile (0 where that is not known)."""

    throughput: float
    slowdown: float
    transfer: float
    scatter: float
    decisions: float
    other_load: float = 0.0


def real_run(case: Case, step: float, seed: int, seconds: float) -> Callable[[], real.Ran]:
    """A function that runs a case once, parametric operators for about `seconds`; the output of one run
    is verified first.
    """
    options: dict[str, Any] = {
        "workers": case.workers,
        "chunk_rows": case.chunk,
        "scheduler": case.scheduler,
    }
    if case.pipeline in PIPELINES:
        chain = real_chain(case.pipeline, step)
        real.verify(chain, 10_000, **options)
        work = sum(ns for _, ns in PIPELINES[case.pipeline])
        batches = chain.batches(max(4096, int(seconds * 1e9 * case.workers / (work + 200.0))))
        return lambda: real.run(chain, batches, **options)
    found = simulated.described(case.pipeline, seed, case.workers > 1)
    found.subject.check(options)
    batches = found.subject.source(found.rows)
    # Between markers: what the end of the stream makes a query emit is not simulated.
    return lambda: real.run(
        found.subject.pipeline, batches, marker_every=max(1, found.rows // 1000), **options
    )


def lines(case: Case, model: CostModel) -> tuple[float, float]:
    """ns that a line, and one of many, take from core to core now."""
    return (
        (calibrate.transfer(model.rmw, 2), calibrate.scatter(2))
        if case.workers > 1
        else (model.transfer, model.scatter)
    )


def measure_case(
    case: Case, model: CostModel, step: float, repeats: int, seed: int = 1, seconds: float | None = None
) -> list[Ran]:
    """Real runs of a case, with the machine's speed and its lines beside each.

    A run that others disturbed is repeated, `TRIES` times as often as runs are asked for in all. Where none
    was left alone, the last ones are given.
    """
    seconds = seconds or REAL_SECONDS
    run = real_run(case, step, seed, seconds)
    rounds = max(1, int(seconds / (real.BATCH * 200 * step * 1e-9)))
    expected = rounds * real.BATCH * 200 * step * 1e-9
    found: list[Ran] = []
    for _ in range(TRIES * repeats):
        start, wall = other_load(), time.perf_counter()
        before = lines(case, model)
        ran = run()
        after = lines(case, model)
        slowdown = real.loops(rounds * real.BATCH, 200, case.workers) / expected
        end, wall = other_load(), time.perf_counter() - wall
        taken = (
            0.0
            if start is None or end is None
            else max(0.0, (end[0] - start[0]) - (end[1] - start[1]) - 0.02) / wall
        )
        rate = ran.report.marker_tuples_per_second or ran.throughput
        line, scatter = ((one + other) / 2 for one, other in zip(before, after, strict=True))
        found.append(Ran(rate, slowdown, line, scatter, ran.report.decisions / ran.tuples, taken))
        if sum(one.other_load <= QUIET for one in found) == repeats:
            break
    return [one for one in found if one.other_load <= QUIET] or found[-repeats:]


def validate(options: Options) -> Result:
    """Real runs at 1 and 2 workers beside their predictions; what this machine takes for a line is
    measured beside each run.
    """
    model = CostModel.load(chosen_path())
    step = real.step_ns()
    rows: list[list[Any]] = []
    for case in cases(options):
        runs = measure_case(case, model, step, options.runs, options.seed, options.seconds)
        sims = [predict(case, model, ran.slowdown, ran.transfer, ran.scatter, options.seed) for ran in runs]
        ratios = [sim.throughput / ran.throughput for sim, ran in zip(sims, runs, strict=True)]
        rows.append(
            [
                case.pipeline,
                case.chunk,
                case.scheduler,
                case.workers,
                float(np.median([ran.throughput for ran in runs])),
                float(np.median([sim.throughput for sim in sims])),
                float(np.median(ratios)),
                min(ratios),
                max(ratios),
                float(np.median([ran.decisions for ran in runs])),
                float(np.median([sim.figures["decisions"] / sim.tuples for sim in sims])),
                float(np.median([ran.transfer for ran in runs])),
                float(np.median([ran.slowdown for ran in runs])),
                len(runs),
                min(ran.other_load for ran in runs),
            ]
        )
    lines = [
        f"{'pipeline':<10} {'chunk':>5} {'sched':>5} {'workers':>7} {'real M/s':>9} {'sim M/s':>9} "
        f"{'sim/real':>8} {'range':>14} "
        f"{'choices per 1,000 tuples':>24} {'line ns':>8} {'slowdown':>8}"
    ]
    lines += [
        f"{r[0]:<10} {r[1]:>5} {r[2]:>5} {r[3]:>7} {r[4] / 1e6:>9.3f} {r[5] / 1e6:>9.3f} {r[6]:>8.3f} "
        f"{f'{r[7]:.2f} to {r[8]:.2f}':>14} "
        f"{r[9] * 1e3:>10.1f} sim {r[10] * 1e3:>9.1f} {r[11]:>8.1f} {r[12]:>8.3f}"
        + (f"  others used {r[14]:.1f} cores" * (r[14] > QUIET))
        for r in rows
    ]
    columns = [
        "pipeline",
        "chunk_rows",
        "scheduler",
        "workers",
        "real",
        "simulated",
        "ratio",
        "ratio_least",
        "ratio_most",
        "choices",
    ]
    columns += ["simulated_choices", "line_ns", "slowdown", "runs", "other_load"]
    return Result(columns, rows, [], validation_claims(rows), lines)


def validation_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """Per number of workers: every case that was measured undisturbed is within the tolerance; those
    outside by name.
    """
    claims = []
    for workers in sorted({row[3] for row in rows}):
        given = [row for row in rows if row[3] == workers]
        alone = [row for row in given if row[14] <= QUIET]
        outside = [
            f"{row[0]} chunk {row[1]} {row[2]} {row[6]:.2f}"
            for row in alone
            if abs(row[6] - 1.0) > TOLERANCE
        ]
        figures = f"{len(alone) - len(outside)} of {len(alone)} cases"
        if outside:
            figures += f"; outside: {', '.join(outside)}"
        if len(alone) < len(given):
            figures += (
                f"; {len(given) - len(alone)} cases never had the machine to themselves and say nothing"
            )
        text = (
            f"simulated throughput is within {TOLERANCE:.0%} of real runs with {workers} "
            f"worker{'s' if workers > 1 else ''}"
        )
        claims.append(Claim(text, figures, bool(alone) and not outside))
    return claims


def cost_model(options: Options) -> Result:
    """Measure this machine's cost model; written as JSON where ORDSTREAM_COST_MODEL says, and as rows."""
    model = calibrate.measure(repeats=options.runs + 2)
    path = chosen_path()
    lines = [f"{name:<12} {getattr(model, name):10.2f} ns" for name in SCALARS]
    for name in vars(model.alone):
        lines.append(
            f"{name:<12} {getattr(model.alone, name):10.2f} ns alone {getattr(model.shared, name):10.2f} "
            "ns among several"
        )
    rows: list[list[Any]] = [[name, getattr(model, name), ""] for name in SCALARS]
    rows += [[name, getattr(model.alone, name), getattr(model.shared, name)] for name in vars(model.alone)]
    if path is not None:
        try:
            model.save(path)
            lines.append(f"written to {path}")
        except OSError as error:  # what was measured goes on to the rows
            lines.append(f"not written: {error}")
    return Result(["cost", "ns", "ns_among_several"], rows, [], [], lines)


SCALARS = (
    "transfer",
    "byte",
    "scatter",
    "rmw",
    "decide",
    "decide_each",
    "slice",
    "notify",
    "wake",
    "yields",
    "publish",
    "read_row",
    "slowdown",
)

EXPERIMENTS = [
    Experiment(
        "cost-model",
        "what the node's parts cost on this machine",
        1,
        cost_model,
        timed=True,
        how="fastest of several runs",
    ),
    Experiment(
        "sim-validate",
        "simulated node against real runs at 1 and 2 workers",
        1,
        validate,
        timed=True,
        how="medians",
    ),
    Experiment(
        "sim-fig8",
        "Ordered paper, Fig. 8, on cores that we don't have: 1 to 256 simulated workers",
        1,
        fig8,
        timed=True,
        how="virtual time",
    ),
    Experiment(
        "sim-elastic",
        'workers="auto" in simulation: the controller against the best fixed number, 1 to 64',
        1,
        elastic,
        timed=True,
        how="virtual time",
    ),
]
