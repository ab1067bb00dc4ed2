"""Measured runs in the ordered paper's form (section 7), checked first.

A *subject* is a pipeline with a source of any length. Before anything is timed, a prefix of its input is run
with every setting that will be compared, and every value, its place and its order tag must equal those of
`run_serial`. Then settings are run in turn, A B C and C B A, on the same input, so that a drift of the
machine favours none. Throughput and processing latency are those of the markers, at equal tuple intervals,
from the 20th to the 80th percentile of their positions; means over the runs.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.errors import OrdstreamError
from ordstream.ground.cpus import allowed_cpus
from ordstream.lab.evaluation.experiment import Options
from ordstream.lab.evaluation.machine import other_load
from ordstream.node import node
from ordstream.node.report import Report
from ordstream.reference.run_serial import SerialResult, run_serial

MARKERS = 1_000
PAPER_RANGE = (20.0, 80.0)
#: The pilot that sizes a subject's input doubles its rows until a run takes so much of the time asked for.
#: Few at first: a tuple may take 10 ms.
PILOT_PART = 0.1
PILOT_ROWS = 16

Settings = Mapping[str, Any]


class Mismatch(OrdstreamError):
    """An output differs from `run_serial`'s: nothing is measured then."""


@dataclass(frozen=True)
class Subject:
    """A pipeline, and a source of as many tuples as are asked for.

    Attributes
    ----------
    name : str
        "q1", "operator".
    pipeline : Pipeline or Chain
    source : callable
        source(rows) -> record batches with that many tuples; a shorter source is a prefix of a longer one.
    check_rows : int
        Tuples of the prefix that is compared with `run_serial`.
    """

    name: str
    pipeline: Any
    source: Callable[[int], list[pa.RecordBatch]]
    check_rows: int = 1_000

    @cached_property
    def serial(self) -> SerialResult:
        """What the prefix must give."""
        result = run_serial(self.pipeline, self.source(self.check_rows))
        if result.error is not None:
            raise result.error
        return result

    def check(self, settings: Settings) -> None:
        """Compare the prefix's output with `run_serial`'s: values, order, tags.

        Raises
        ------
        Mismatch
        """
        got = node.run(self.pipeline, self.source(self.check_rows), tags=True, **settings).table
        compare(f"{self.name} with {described(settings)}", got, self.serial)


def compare(what: str, got: pa.Table, wanted: SerialResult) -> None:
    """Raise Mismatch unless a table with tags is the sequential result, row for row.

    Parameters
    ----------
    what : str
        Named in the error.
    got : pyarrow.Table
        Of a run with `tags=True`.
    wanted : SerialResult
    """
    values = got.drop_columns(["_serial", "_index"])
    tags = list(zip(got["_serial"].to_pylist(), got["_index"].to_pylist(), strict=True))
    if values.equals(wanted.table) and tags == wanted.tags:
        return
    rows, serial_rows = values.to_pylist(), wanted.table.to_pylist()
    differ = (
        k
        for k in range(min(len(rows), len(serial_rows)))
        if rows[k] != serial_rows[k] or tags[k] != wanted.tags[k]
    )
    first = next(differ, min(len(rows), len(serial_rows)))
    raise Mismatch(
        f"{what}: {len(rows)} rows, the sequential run gives {len(serial_rows)}; they differ from row "
        f"{first} on"
    )


def described(settings: Settings) -> str:
    """Settings as text."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


# ------------------------------------------------------------------------------------------------ one run


@dataclass(frozen=True)
class Run:
    """One measured run.

    Attributes
    ----------
    tuples_per_second : float
        Between the markers kept; of the whole run where there are fewer than two.
    latency_us : dict
        mean, p50, p95, p99 of the processing latency of the markers kept.
    cpu_ns : float
        CPU time of the whole process per tuple.
    other_load : float
        Cores that others used meanwhile (above about 0.1: the run was disturbed); 0 where it is not known.
    seconds : float
        Wall time, from making the node to its close.
    """

    tuples_per_second: float
    latency_us: dict[str, float]
    cpu_ns: float
    other_load: float
    seconds: float
    report: Report
    markers: npt.NDArray[np.int64]


@contextmanager
def frozen_heap() -> Iterator[None]:
    """What is there already is left out of collections, so that the one before each run takes
    microseconds. A heap that the caller has frozen stays frozen.
    """
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


def one_run(pipeline: Any, batches: list[pa.RecordBatch], settings: Settings) -> Run:
    """Run a pipeline over batches, counting and dropping its output."""
    tuples = sum(batch.num_rows for batch in batches)
    options = {"marker_every": max(1, tuples // MARKERS), "marker_percentiles": PAPER_RANGE, **settings}
    gc.collect()
    before, cpu, start = other_load(), time.process_time_ns(), time.perf_counter()
    with node.stream(pipeline, batches, partial=False, **options) as out:
        for _ in out:
            pass
    wall, cpu = time.perf_counter() - start, time.process_time_ns() - cpu
    after = other_load()
    report = out.report
    if report.tuples != tuples:
        raise Mismatch(f"{report.tuples} of {tuples} tuples were processed")
    taken = (
        0.0
        if before is None or after is None
        else max(0.0, (after[0] - before[0]) - (after[1] - before[1]) - 0.02)
    )
    latency = report.latency["processing"]
    kept = {name: getattr(latency, f"{name}_us") for name in ("mean", "p50", "p95", "p99")}
    rate = report.marker_tuples_per_second or report.tuples_per_second
    return Run(
        rate,
        {k: float("nan") if v is None else v for k, v in kept.items()},
        cpu / tuples,
        taken / wall,
        wall,
        report,
        out.markers,
    )


@dataclass
class Measured:
    """All runs of one setting; figures are means over the runs."""

    settings: Settings
    tuples: int
    runs: list[Run] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Tuples per second."""
        return statistics.fmean(run.tuples_per_second for run in self.runs)

    @property
    def spread(self) -> float:
        """(Fastest - slowest run) / mean."""
        rates = [run.tuples_per_second for run in self.runs]
        return (max(rates) - min(rates)) / self.throughput

    def latency(self, which: str = "mean") -> float:
        """Processing latency in microseconds."""
        return statistics.fmean(run.latency_us[which] for run in self.runs)

    @property
    def cpu_ns(self) -> float:
        """CPU time of the process per tuple."""
        return statistics.fmean(run.cpu_ns for run in self.runs)

    @property
    def other_load(self) -> float:
        """Cores that others used, the worst run."""
        return max(run.other_load for run in self.runs)

    @property
    def rates(self) -> str:
        """Tuples per second of each run, as text for a results file: runs of one round were measured one
        after the other.
        """
        return " ".join(f"{run.tuples_per_second:.0f}" for run in self.runs)

    @property
    def choices(self) -> float:
        """Scheduling decisions per 1,000 tuples."""
        return statistics.fmean(1e3 * run.report.decisions / run.report.tuples for run in self.runs)

    @property
    def shares(self) -> dict[str, float]:
        """Part of the worker time that each operator received."""
        return self.over_operators("worker_share")

    def over_operators(self, figure: str) -> dict[str, float]:
        """Mean of a figure of `OperatorReport` by operator; 0 where there is none."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            for operator in run.report.operators:
                found.setdefault(operator.name, []).append(float(getattr(operator, figure) or 0.0))
        return {name: statistics.fmean(values) for name, values in found.items()}


# ------------------------------------------------------------------------------------------------ contests


def measure(
    subject: Subject,
    contestants: Mapping[Any, Settings],
    options: Options,
    seconds: float,
    prepare: Callable[[], None] = lambda: None,
    observe: Callable[[Any, Run], None] = lambda name, run: None,
) -> dict[Any, Measured]:
    """Check all contestants, then run each `options.runs` times on the same input.

    Parameters
    ----------
    subject : Subject
    contestants : mapping
        Name -> settings of the node.
    options : Options
    seconds : float
        About how long the median contestant's run takes.
    prepare, observe : callable, optional
        Called before each measured run, and after it with the contestant's name.

    Raises
    ------
    Mismatch
        An output is not the sequential one; no figure is given then.
    """
    for settings in contestants.values():
        subject.check(settings)
    rates = [pilot(subject, settings, seconds) for settings in contestants.values()]
    tuples = max(subject.check_rows, int(statistics.median(rates) * seconds))
    batches = subject.source(tuples)
    found = {name: Measured(settings, tuples) for name, settings in contestants.items()}
    rows_out: dict[str, int] = {}
    names = list(contestants)
    with frozen_heap():
        for _ in range(options.runs):
            for name in names:
                prepare()
                run = one_run(subject.pipeline, batches, contestants[name])
                observe(name, run)
                rows = rows_out.setdefault(subject.name, run.report.rows_out)
                if rows != run.report.rows_out:
                    raise Mismatch(
                        f"{subject.name} with {described(contestants[name])}: {run.report.rows_out} rows, "
                        f"others gave {rows}"
                    )
                found[name].runs.append(run)
            names.reverse()
    return found


def pilot(subject: Subject, settings: Settings, seconds: float) -> float:
    """Tuples per second, roughly: the rows double until a run takes a tenth of the time asked for."""
    rows = PILOT_ROWS
    while True:
        batches = subject.source(rows)
        start = time.perf_counter()
        with node.stream(subject.pipeline, batches, partial=False, **settings) as out:
            for _ in out:
                pass
        took = time.perf_counter() - start
        if took >= PILOT_PART * seconds:
            return rows / took
        rows *= 2 if took > 0.2 * PILOT_PART * seconds else 4


def worker_numbers(options: Options, most: int | None = None) -> list[int]:
    """Numbers of workers to compare: those asked for, or 1, 2, 4, ... and the number of cores."""
    if options.workers:
        return sorted(set(options.workers))
    cores = allowed_cpus() if most is None else min(most, allowed_cpus())
    return sorted({1 << k for k in range(cores.bit_length()) if 1 << k <= cores} | {cores})


def chunk_sizes(options: Options, otherwise: Sequence[int | None] = (1,)) -> list[int | None]:
    """Chunk sizes to compare: those asked for, or the experiment's."""
    return list(options.chunks or otherwise)


def chunk_name(chunk: int | None) -> str:
    """ "auto" for a size chosen while running."""
    return "auto" if chunk is None else str(chunk)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Aligned lines; numbers to the right."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    numeric = [
        bool(rows) and all(isinstance(row[k], int | float) for row in rows) for k in range(len(columns))
    ]
    return [
        "  ".join(
            cell.rjust(w) if right else cell.ljust(w)
            for cell, w, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)
