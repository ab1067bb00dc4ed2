"""What the simulated node predicts: Figure 8 of the ordered paper on 1 to 256 cores.

The five queries are described by real runs of one worker, for several workers beside another such run: cost
of every operator per call and per tuple, selectivity, and the hashes of the keys that reach a partitioned
operator, in order. Everything else comes from the cost model. What `bench/scaling.py` measured on a real
machine is set beside the prediction (`measured`).
"""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream._core.ground import arrow as core_arrow
from ordstream._core.ground import chunk as core_chunk
from ordstream._core.ground.imported_batch import BatchFormats
from ordstream._core.state.routing import key_hashes
from ordstream.errors import PlanError
from ordstream.lab.evaluation import ordered_subjects
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result
from ordstream.lab.evaluation.ordered_runs import Subject
from ordstream.lab.simulation import calibrate, real
from ordstream.lab.simulation.cost_model import CostModel, PathCosts, chosen_path
from ordstream.lab.simulation.node import Outcome, Stage, planned, simulate
from ordstream.node import node

SCHEDULERS = ("ct", "lp", "et", "qst")
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Rows of the click stream that a query is described by, at first; seconds of a run that measures it; most
#: rows of such a run.
DESCRIBED = 200_000
DESCRIBED_SECONDS = 0.15
MOST_DESCRIBED = 2_000_000
#: Simulated nanoseconds per worker, about: as many tuples as they work through in that time.
VIRTUAL_NS = 4e6
MOST_TUPLES = 300_000
#: Results of bench/scaling.py that come with the package.
SCALING = Path(__file__).parents[1] / "simulation" / "scaling"


@dataclass(frozen=True)
class Measured:
    """What one operator's function took in runs at the sizes `calibrate.CHUNKS`: rows of a chunk that
    `reach` it, `rows` and `ns` per call.

    A call is of a chunk, or of a part of one where the operator is partitioned.
    """

    reach: tuple[float, ...]
    rows: tuple[float, ...]
    ns: tuple[float, ...]

    def line_at(self, rows: float) -> tuple[float, float]:
        """(ns per call, ns per tuple) of calls of about so many rows: the line through the two measured
        sizes around it.

        What a tuple costs depends on the size, since larger chunks leave the caches: one line for all sizes
        misses by a third.
        """
        i = min(max(bisect.bisect_left(self.rows, rows), 1), len(self.rows) - 1)
        (low, high), (first, second) = self.rows[i - 1 : i + 1], self.ns[i - 1 : i + 1]
        each = max(0.0, (second - first) / (high - low)) if high > low else 0.0
        ns = (
            float(np.interp(rows, (low, high), (first, second)))
            if low <= rows <= high
            else max(0.0, first + (rows - low) * each)
        )
        return (ns - rows * each, each) if ns >= rows * each else (0.0, ns / max(rows, 1e-9))


@dataclass(frozen=True)
class Described:
    """A query for the simulation: its operators, the stream that they were measured on, and what was
    measured.
    """

    stages: tuple[Stage, ...]
    subject: Subject
    rows: int
    measured: tuple[Measured, ...]
    read_row: float
    """CPU ns per source tuple of the thread that feeds and reads: columns to import, bitmaps, results."""

    def at(self, chunk: int, workers: int) -> tuple[Stage, ...]:
        """The operators as they are at one chunk size; with several workers a partitioned one is called
        for each part of a chunk.
        """
        found = []
        for stage, measured in zip(self.stages, self.measured, strict=True):
            rows = max(1.0, float(np.interp(chunk, calibrate.CHUNKS, measured.reach)))
            rows /= parts_of(stage, rows, chunk, workers) or 1.0
            call, each = measured.line_at(rows)
            found.append(replace(stage, chunk_ns=call, work_ns=each))
        return tuple(found)


def parts_of(stage: Any, rows: float, chunk: int, workers: int) -> float:
    """Parts in which so many rows of a chunk come to an operator, on average; 0: they are not divided."""
    if stage.hashes is None or workers == 1:
        return 0.0
    buckets = planned([stage], workers, chunk).operators[0].buckets
    if buckets == 1:
        return 0.0
    return calibrate.mean_parts(max(1, round(rows)), buckets, stage.hashes)


@cache
def described(name: str, seed: int, several: bool = False) -> Described:
    """A query's operators by a micro-benchmark of each: runs of one worker at five chunk sizes, as long as
    about DESCRIBED_SECONDS.

    What a chunk takes in an operator, less the runtime's path, is fitted by a + b * rows (as the path itself
    was): a per call of the function and b per tuple. `Described.at` has the line of one chunk size. several:
    as among several workers, in a run for two of which one is started (so functions get parts of chunks),
    beside another such run on a core of its own: two functions use the memory at once, but no line passes
    between them.
    """
    subject = ordered_subjects.query(name, DESCRIBED, seed)
    took = real.run(subject.pipeline, subject.source(DESCRIBED), workers=1, chunk_rows=256).seconds
    rows = max(DESCRIBED // 4, min(int(DESCRIBED * DESCRIBED_SECONDS / took), MOST_DESCRIBED))
    workers = 2 if several else 1
    # Each run has a state of its own: of half the stream, so that both are as large as what two workers of
    # one run share.
    batches = subject.source(rows // workers)
    path = CostModel.load(chosen_path()).path(workers)

    def runs_at(chunk: int) -> list[real.Ran]:
        options = {"workers": workers, "chunk_rows": chunk, "flush": False}
        return [one for _ in range(3) for one in real.beside(workers, subject.pipeline, batches, **options)]

    runs = {chunk: runs_at(chunk) for chunk in calibrate.CHUNKS}
    slowdown = calibrate.slowdown() if several else 1.0  # the simulation's own factor for work on busy cores
    stages: list[Stage] = []
    for i, stage in enumerate(subject.pipeline.plan.operators):
        one = {each.name: each for each in runs[256][0].report.operators}[stage.name]
        hashes = keys_before(subject.pipeline, i, batches) if stage.kind == "PS" else None
        stages.append(
            Stage(
                stage.name,
                stage.kind,
                0.0,
                one.selectivity,
                hashes,
                stage.buckets,
                8.0 * max(1, len(stage.input)),
            )
        )
    sizes = [
        own_costs(stages, path, chunk, workers, [ran.report for ran in ran_at])
        for chunk, ran_at in runs.items()
    ]
    measured = []
    for i, stage in enumerate(stages):
        reach, rows_each, own = (tuple(size[i][part] for size in sizes) for part in range(3))
        measured.append(Measured(reach, rows_each, tuple(ns / slowdown for ns in own)))
        call, work = calibrate.fit_line([np.ones(len(own)), np.array(rows_each)], np.array(own) / slowdown)
        stages[i] = replace(stage, work_ns=work, chunk_ns=call)
    read_row = min(ran.reader_seconds / ran.tuples for ran_at in runs.values() for ran in ran_at) * 1e9
    return Described(tuple(stages), subject, rows, tuple(measured), read_row)


def own_costs(
    stages: Sequence[Stage], path: PathCosts, chunk: int, workers: int, reports: Sequence[Any]
) -> list[tuple[float, float, float]]:
    """Per operator of runs at one chunk size: rows of a chunk that reach it, rows per call, ns of its
    function per call.
    """
    found = []
    chunks = 1  # that reach the operator; one that is partitioned counts parts
    for i, stage in enumerate(stages):
        given = [{each.name: each for each in report.operators} for report in reports]
        one = min((operators[stage.name] for operators in given), key=lambda each: each.cost_ns)
        reach = one.tuples_in / max(1, one.chunks)
        parts = 0.0
        if stage.hashes is not None and workers > 1:
            if i == 0:
                chunks = given[0]["ingress"].chunks
            reach = one.tuples_in / max(1, chunks)
            parts = parts_of(stage, max(1.0, reach), chunk, workers)
        if not parts:
            chunks = one.chunks
        made = one.tuples_out / max(1, chunks)
        behind = None if i == len(stages) - 1 else parts_of(stages[i + 1], max(1.0, made), chunk, workers)
        full = min(1.0, reach)  # the share of chunks that have rows; the simulation spreads them evenly
        taken = full * own_path(stage.kind, path, chunk, max(1.0, reach), made / full, parts, behind, i == 0)
        if not parts:
            taken += (1.0 - full) * (path.next_empty if stage.kind == "SL" else path.sf_empty)
        calls = full * (parts or 1.0)
        found.append((reach, reach / calls, max(0.0, one.cost_ns * reach - taken) / calls))
    return found


def own_path(
    kind: str, path: PathCosts, chunk: int, rows: float, made: float, parts: float, behind: float | None,
    first: bool
) -> float:  # fmt: skip
    """ns of the runtime's path per chunk of one operator: what the simulation adds by itself.

    rows, parts: that reach it (parts 0: it is not partitioned); made: rows that it sends on; behind: parts
    in which they go, None: to the egress.
    """
    if parts:
        found = path.ps_chunk + path.ps_tuple * rows + path.ps_part * parts
    elif kind != "SL":
        found = path.sf_chunk + path.sf_tuple * rows
    elif first:
        found = path.sl_chunk + path.sl_tuple * rows
    else:
        found = path.next_chunk + path.next_tuple * rows
    if first and not parts:
        found += path.hold * float(calibrate.holds_per_chunk(np.array([chunk]))[0])
    some = min(1.0, made)  # the share of chunks that still have rows
    if behind is None:
        return found + path.egress_chunk * some + path.egress_tuple * made
    if behind:
        found += (
            path.split_chunk + (path.split_part + path.enter_part) * behind
        ) * some + path.split_tuple * made
    return found + path.enter_chunk


def query_stages(name: str, seed: int, chunk: int | None = None, workers: int = 1) -> tuple[Stage, ...]:
    """A query's operators for the simulation (`described`) at one chunk size; automatic chunks of operators
    this light have a thousand rows and more."""
    return described(name, seed, workers > 1).at(chunk or max(calibrate.CHUNKS), workers)


def keys_before(pipeline: Any, index: int, batches: Sequence[pa.RecordBatch]) -> Any:
    """Hashes of the keys that reach stage `index`, in order, at most 2^17 of them."""
    stage = pipeline.plan.operators[index]
    table = (
        node.run(pipeline.plan.part(0, index), batches, workers=1).table
        if index
        else pa.Table.from_batches(batches)
    )
    columns = table.select(list(stage.key)).slice(0, 1 << 17).combine_chunks()
    schema = core_arrow.core_schema(columns.schema)
    batch = columns.cast(schema).to_batches()[0]
    return key_hashes(batch, list(range(len(stage.key))), core_chunk.layout_of(schema), BatchFormats(schema))


def tuples_for(stages: Sequence[Stage], workers: int, chunk: int | None) -> int:
    """Source tuples that `workers` work through in about VIRTUAL_NS; more where chunks first have to
    find their size.
    """
    cost, reach = 100.0, 1.0
    for stage in stages:
        cost += reach * (stage.work_ns + 30.0)
        reach *= stage.selectivity
    times = 1 if chunk else 20
    return max(20_000, min(int(VIRTUAL_NS * times * workers / cost), MOST_TUPLES * times))


@cache
def pipelines(seed: int, chunk: int | None = None, workers: int = 1) -> dict[str, tuple[Stage, ...]]:
    """The five queries, and the paper's kind of operators (tens of microseconds) as a pipeline for
    comparison.
    """
    found = {name: query_stages(name, seed, chunk, workers) for name in ordered_subjects.QUERY_NAMES}
    keys = real.hashes()
    found["10 us"] = (
        Stage("map", "SL", 10_000.0),
        Stage("count", "PS", 10_000.0, hashes=keys, row_bytes=16.0),
        Stage("map 2", "SL", 10_000.0),
    )
    return found


def why(outcome: Outcome, transfer_share: float) -> str:
    """What holds a run back, from how long each thing that one worker has at a time was in use."""
    others = {name: share for name, share in outcome.limits.items() if name != "workers"}
    name = max(others, key=lambda each: others[each])
    if others[name] < 0.7 and outcome.limits["workers"] > 0.9:
        return f"nothing: workers busy {outcome.limits['workers']:.0%}"
    return f"{name} in use {others[name]:.0%}; waiting for lines {transfer_share:.0%} of worker time"


def fig8(options: Options) -> Result:
    """Throughput and latency by scheduler and number of workers, and the number past which throughput
    falls.
    """
    model = CostModel.load(chosen_path())
    numbers = options.workers or WORKERS
    chunks = options.chunks or (1, None)
    found = measured()
    rows: list[list[Any]] = []
    reasons: dict[tuple[str, int | None, int], str] = {}
    for name in pipelines(options.seed):
        for chunk in chunks:
            for workers in numbers:
                stages = pipelines(options.seed, chunk, workers)[name]
                for scheduler in SCHEDULERS:
                    outcome = simulate(
                        stages,
                        model,
                        workers,
                        tuples_for(stages, workers, chunk),
                        chunk_rows=chunk,
                        scheduler=scheduler,
                        seed=options.seed,
                    )
                    waited = outcome.figures["transferred_ns"] / (outcome.seconds * 1e9 * workers)
                    reason = why(outcome, waited)
                    if scheduler == "ct":
                        reasons[name, chunk, workers] = reason
                    limit, share = outcome.bottleneck
                    real_rate = (
                        found.get((name, str(chunk or "auto"), workers), ("", ""))[0]
                        if scheduler == "ct"
                        else ""
                    )
                    rows.append(
                        [
                            name,
                            chunk or "auto",
                            scheduler,
                            workers,
                            outcome.throughput,
                            outcome.mean_latency_us,
                            limit,
                            share,
                            waited,
                        ]
                        + [real_rate]
                    )
    lines, claims = peaks(rows, reasons, numbers)
    lines += beside(rows, found)
    columns = [
        "pipeline",
        "chunk_rows",
        "scheduler",
        "workers",
        "tuples_per_s",
        "latency_us",
        "busiest",
        "busiest_share",
        "line_wait_share",
        "measured_tuples_per_s",
    ]
    return Result(columns, rows, fig8_charts(rows), claims, lines)


#: (pipeline, chunk, workers) -> (tuples per second, machine) of a real machine.
Rates = dict[tuple[str, str, int], tuple[float, str]]


def measured() -> Rates:
    """What `bench/scaling.py` found on real machines: all JSON files of a folder, later files (by name)
    before earlier ones.

    The folder is `SCALING`, or the one that ORDSTREAM_SCALING names.
    """
    folder = Path(os.environ.get("ORDSTREAM_SCALING", SCALING))
    found: Rates = {}
    for path in sorted(folder.glob("*.json")):
        try:
            given = json.loads(path.read_text())
            machine = (
                f"{given['about']['processor']}, {given['about']['cpus']} CPUs, commit "
                f"{given['about']['commit']}"
            )
            for row in given["rows"]:
                found[row["pipeline"], str(row["chunk"]), int(row["workers"])] = (
                    float(row["tuples_per_s"]),
                    machine,
                )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PlanError(f"{path} is no result of bench/scaling.py: {error!r}") from error
    return found


def beside(rows: Sequence[Sequence[Any]], found: Rates) -> list[str]:
    """Lines that set measured throughputs and speed-ups beside the simulated ones of the same pipeline,
    chunk size and workers (CT).
    """
    simulated = {(row[0], str(row[1]), row[3]): row[4] for row in rows if row[2] == "ct"}
    both = [place for place in simulated if place in found]
    if not both:
        return [
            "no result of bench/scaling.py for these pipelines and numbers of workers is there to set "
            "beside this"
        ]
    lines = [
        f"measured beside simulated, CT, on {'; '.join(dict.fromkeys(found[place][1] for place in both))}",
        f"{'pipeline':<8} {'chunk':>5} {'workers':>7} {'real M/s':>9} {'sim M/s':>9} {'sim/real':>8} "
        f"{'real speed-up':>13} {'sim':>6}",
    ]
    for name, chunk, workers in both:
        rate, sim = found[name, chunk, workers][0], simulated[name, chunk, workers]
        first = min(number for other, size, number in both if (other, size) == (name, chunk))
        gain, sim_gain = (
            of * first / one
            for of, one in ((rate, found[name, chunk, first][0]), (sim, simulated[name, chunk, first]))
        )
        lines.append(
            f"{name:<8} {chunk:>5} {workers:>7} {rate / 1e6:>9.3f} {sim / 1e6:>9.3f} {sim / rate:>8.2f} "
            f"{gain:>13.2f} {sim_gain:>6.2f}"
        )
    return lines


def peaks(
    rows: Sequence[Sequence[Any]], reasons: dict[tuple[str, int | None, int], str], numbers: Sequence[int]
) -> tuple[list[str], list[Claim]]:
    """Per pipeline and chunk size: the peak of CT, what holds it back there, and the paper's statements
    at up to 16 workers.
    """
    lines = [
        f"{'pipeline':<8} {'chunk':>5} {'1 worker':>10} {'peak at':>8} {'speed-up':>8} {'at 16':>6}  "
        f"past the peak"
    ]
    near_linear, best, lp_latency = [], [], []
    most = max(number for number in numbers if number <= 16)
    for name, chunk in dict.fromkeys((row[0], row[1]) for row in rows):
        at = {(row[2], row[3]): (row[4], row[5]) for row in rows if row[0] == name and row[1] == chunk}
        ct = {number: at["ct", number][0] for number in numbers}
        peak = max(numbers, key=lambda number: ct[number])
        # The first number that is within 2 % of the peak: past it, workers bring nothing.
        knee = next(number for number in numbers if ct[number] >= 0.98 * ct[peak])
        behind = next((number for number in numbers if number > knee), knee)
        first = ct[numbers[0]] / numbers[0]
        reason = reasons[name, None if chunk == "auto" else chunk, behind]
        lines.append(
            f"{name:<8} {chunk!s:>5} {ct[numbers[0]] / 1e6:>8.3f} M {knee:>8} {ct[knee] / first:>8.1f} "
            f"{ct[most] / first:>6.1f}  "
            f"{reason}; at {numbers[-1]}: {ct[numbers[-1]] / ct[peak]:.0%} of the peak"
        )
        near_linear.append((ct[most] / first / most, f"{name} {chunk}"))
        rates = {
            scheduler: max(at[scheduler, number][0] for number in numbers if number <= 16)
            for scheduler in SCHEDULERS
        }
        best.append((rates["ct"] / max(rates.values()), f"{name} {chunk}"))
        delays = {scheduler: at[scheduler, most][1] for scheduler in SCHEDULERS}
        lp_latency.append((delays["lp"] / min(delays.values()), f"{name} {chunk}"))

    def claim(text: str, found: list[tuple[float, str]], holds: Callable[[float], bool]) -> Claim:
        good = [where for value, where in found if holds(value)]
        return Claim(
            text,
            f"{len(good)} of {len(found)}; " + ", ".join(f"{where} {value:.2f}" for value, where in found),
            len(good) == len(found),
        )

    return lines, [
        claim("CT has the best throughput up to 16 workers (within 5 %)", best, lambda value: value >= 0.95),
        claim(
            f"CT scales almost linearly up to {most} workers (speed-up / workers at least 0.7)",
            near_linear,
            lambda value: value >= 0.7,
        ),
        claim(
            f"LP has the lowest latency at {most} workers (within 10 %)",
            lp_latency,
            lambda value: value <= 1.1,
        ),
    ]


def fig8_charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    """Throughput and latency over workers, one pair per pipeline at the first chunk size."""
    charts = []
    for name, chunk in dict.fromkeys((row[0], row[1]) for row in rows):
        for column, label, scale in ((4, "million tuples/s", 1e-6), (5, "mean latency, ms", 1e-3)):
            curves = []
            for scheduler in SCHEDULERS:
                picked = [row for row in rows if (row[0], row[1], row[2]) == (name, chunk, scheduler)]
                curves.append(
                    Curve(
                        scheduler.upper(),
                        [row[3] for row in picked],
                        [row[column] * scale for row in picked],
                    )
                )
                real_ones = [row for row in picked if row[9] != ""]
                if column == 4 and real_ones:
                    curves.append(
                        Curve(
                            "measured",
                            [row[3] for row in real_ones],
                            [row[9] * scale for row in real_ones],
                            style="*",
                        )
                    )
            charts.append(
                Chart(
                    "workers (simulated)",
                    label,
                    curves,
                    f"{name.upper()}, chunk {chunk}",
                    log_x=True,
                    log_y=True,
                )
            )
    return charts


# ---------------------------------------------------------------------------------------- elastic workers
