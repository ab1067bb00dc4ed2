"""Beyond the ordered paper's figures: latency against offered load, a node with nothing to do, and one
slow tuple at the head.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.lab.evaluation import parametric
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result
from ordstream.lab.evaluation.ordered_partitioning import by_name
from ordstream.lab.evaluation.ordered_runs import (
    Mismatch,
    Run,
    Settings,
    Subject,
    chunk_name,
    chunk_sizes,
    measure,
    one_run,
    text_table,
    worker_numbers,
)
from ordstream.lab.evaluation.ordered_subjects import Repeated, operators
from ordstream.lab.evaluation.parametric import Parametric, chain
from ordstream.node import node
from ordstream.node.report import percentiles

KEYS, TUPLES = 10_000, 1 << 16
WARM_UP_NS = 20_000_000  # nothing is due before: threads start, first batches arrive

# ------------------------------------------------------------------------------------- offered load

LOADS = (10, 25, 50, 75, 90, 95)
LOAD_COLUMNS = (
    "load",
    "chunk",
    "workers",
    "offered_per_s",
    "capacity_per_s",
    "end_to_end_p50_us",
    "end_to_end_p95_us",
    "end_to_end_p99_us",
    "processing_p50_us",
    "processing_p99_us",
    "chunk_rows_mean",
    "tuples",
    "runs",
    "other_load",
)


def schedule(tuples: int, per_second: float, seed: int) -> npt.NDArray[np.int64]:
    """Poisson arrivals: intended send time of each tuple, ns after the start."""
    gaps = np.random.default_rng([seed, 3]).exponential(1e9 / per_second, tuples)
    return (WARM_UP_NS + np.cumsum(gaps)).astype(np.int64)


def load(options: Options) -> Result:
    """Open loop, a stateless and a keyed operator of 1 us each: latency from the intended send time, at
    shares of the capacity.
    """
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    keys = parametric.zipf_keys(TUPLES, KEYS, 1.0, options.seed)
    subject = operators("load", keys, Parametric(1.0), Parametric(1.0, state_bytes=64), seed=options.seed)
    workers = worker_numbers(options)[-1]
    for chunk in chunk_sizes(options, (None, 1)):
        settings = {"workers": workers, "chunk_rows": chunk}
        capacity = measure(subject, {"capacity": settings}, options, seconds / 2)["capacity"].throughput
        for share in LOADS:
            per_second = capacity * share / 100
            tuples = max(2_000, int(per_second * seconds))
            due = schedule(tuples, per_second, options.seed)
            batches = subject.source(tuples)
            open_loop = {**settings, "arrivals": due, "marker_every": max(1, tuples // 4_000)}
            subject.check(settings | {"arrivals": due[: subject.check_rows]})
            runs = [one_run(subject.pipeline, batches, open_loop) for _ in range(options.runs)]
            figures = [_percentiles(run) for run in runs]
            means = [statistics.fmean(values) for values in zip(*figures, strict=True)]
            filled = statistics.fmean(run.report.tuples / run.report.chunks for run in runs)
            worst = max(run.other_load for run in runs)
            rows.append(
                [
                    share,
                    chunk_name(chunk),
                    workers,
                    per_second,
                    capacity,
                    *means,
                    filled,
                    tuples,
                    len(runs),
                    worst,
                ]
            )
    charts = []
    given = by_name(LOAD_COLUMNS, rows)
    curves = []
    for chunk in dict.fromkeys(row["chunk"] for row in given):
        picked = [row for row in given if row["chunk"] == chunk]
        for which in ("p50", "p99"):
            x, y = [row["load"] for row in picked], [row[f"end_to_end_{which}_us"] for row in picked]
            curves.append(Curve(f"chunk {chunk}, {which}", x, y, style="-o" if which == "p50" else "--s"))
    charts.append(
        Chart(
            "offered load, % of capacity", "end-to-end latency, us", curves, f"{workers} workers", log_y=True
        )
    )
    lines = text_table(LOAD_COLUMNS[:11], [row[:11] for row in rows])
    return Result(LOAD_COLUMNS, rows, charts, load_claims(rows), lines)


def _percentiles(run: Run) -> list[float]:
    end_to_end, processing = (percentiles(run.markers[:, k].tolist(), (20, 80)) for k in (2, 1))
    found = [end_to_end.p50_us, end_to_end.p95_us, end_to_end.p99_us, processing.p50_us, processing.p99_us]
    return [float("nan") if value is None else value for value in found]


def load_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """Chunks form of what is there: at low load the latency is that of single tuples, near capacity that
    of throughput.
    """
    given = by_name(LOAD_COLUMNS, rows)
    found = []
    for chunk in dict.fromkeys(row["chunk"] for row in given):
        p50 = {row["load"]: row["end_to_end_p50_us"] for row in given if row["chunk"] == chunk}
        low, high = min(p50), max(p50)
        text = f"chunk {chunk}: latency grows with the load (end-to-end p50 at {low} and {high} %)"
        found.append(Claim(text, f"{p50[low]:,.0f} us, {p50[high]:,.0f} us", p50[high] > p50[low]))
        if 50 in p50:
            text = f"chunk {chunk}: at half of the capacity the median end-to-end latency is below 100 us"
            found.append(Claim(text, f"{p50[50]:,.0f} us", p50[50] < 100))
    return found


# ------------------------------------------------------------------------------------------------ idle

IDLE_COLUMNS = ("workers", "idle_s", "cpu_percent", "process_alone_percent", "tuples", "runs")


def idle(options: Options) -> Result:
    """CPU of a node whose source stays open and gives nothing, in percent of one core; and of the
    process without a node.
    """
    seconds = options.seconds or 2.0
    rows: list[list[Any]] = []
    keys = parametric.zipf_keys(1 << 12, 1_000, 1.0, options.seed)
    subject = operators("idle", keys, Parametric(1.0), Parametric(1.0, state_bytes=64), seed=options.seed)
    for workers in worker_numbers(options):
        subject.check({"workers": workers})
        found = [idle_run(subject, workers, seconds) for _ in range(options.runs)]
        alone = [_cpu_while(seconds) for _ in range(options.runs)]
        rows.append(
            [workers, seconds, statistics.fmean(found), statistics.fmean(alone), 2 * (1 << 12), len(found)]
        )
    curves = [Curve("node", [row[0] for row in rows], [row[2] for row in rows])]
    curves.append(Curve("process alone", [row[0] for row in rows], [row[3] for row in rows]))
    worst = max(row[2] for row in rows)
    claims = [Claim("an idle node takes less than 1 % of one core", f"at most {worst:.2f} %", worst < 1.0)]
    charts = [Chart("workers", "CPU, % of one core", curves)]
    return Result(IDLE_COLUMNS, rows, charts, claims, text_table(IDLE_COLUMNS, rows))


def idle_run(subject: Subject, workers: int, seconds: float) -> float:
    """CPU percent between two batches that come `seconds` apart."""
    batch = subject.source(1 << 12)[0]
    used: list[float] = []

    def waits() -> Iterator[pa.RecordBatch]:
        yield batch
        time.sleep(0.2)  # the first batch is done and the workers have parked
        used.append(_cpu_while(seconds))
        yield batch

    rows = 0
    with node.stream(subject.pipeline, waits(), workers=workers) as out:
        for found in out:
            rows += found.num_rows
    if rows != 2 * batch.num_rows:
        raise Mismatch(f"{rows} rows came out of {2 * batch.num_rows}")
    return used[0]


def _cpu_while(seconds: float) -> float:
    """CPU of this process while this thread sleeps, percent of one core."""
    cpu, wall = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    return 100 * (time.process_time() - cpu) / (time.perf_counter() - wall)


# ------------------------------------------------------------------------- a slow tuple at the head

HEAD_COLUMNS = (
    "operator",
    "chunk",
    "workers",
    "head_s",
    "offered_per_s",
    "peak_mb",
    "peak_without_mb",
    "waiting",
    "recovery_s",
    "backlog_s",
    "normal_p99_us",
    "tuples",
    "runs",
    "other_load",
)
HEAD_S = 1.0
OFFERED = 50  # percent of capacity
OWN_US = 2.0


def head_of_line(options: Options) -> Result:
    """Open loop at half of the capacity, and the first tuple takes a second: peak memory, and the time
    until latency is normal again.
    """
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    workers = worker_numbers(options)[-1]
    for name, state_bytes in (("stateless", None), ("keyed", 64)):
        for chunk in chunk_sizes(options, (None, 1)):
            settings = {"workers": workers, "chunk_rows": chunk}
            rows.append(
                [
                    name,
                    chunk_name(chunk),
                    workers,
                    HEAD_S,
                    *slow_head(state_bytes, settings, options, seconds),
                ]
            )
    lines = text_table(HEAD_COLUMNS[:11], [row[:11] for row in rows])
    lines.append(
        "peak: resident memory above that before the run; waiting: tuples dispatched before the head was "
        "done, so worked ahead or held "
        "by it; recovery: from the head's release until latency is below the p99 of a run without it; "
        "backlog: how long the arrivals of "
        "the stall take at full speed"
    )
    charts = []
    for column, label in (("recovery_s", "recovery, s"), ("peak_mb", "peak memory, MB")):
        curves = [Curve(label, list(range(len(rows))), [row[HEAD_COLUMNS.index(column)] for row in rows])]
        title = ", ".join(f"{k} = {row[0]}, chunk {row[1]}" for k, row in enumerate(rows))
        charts.append(Chart("setting", label, curves, title, kind="bar"))
    return Result(HEAD_COLUMNS, rows, charts, head_claims(rows), lines)


def slow_head(state_bytes: int | None, settings: Settings, options: Options, seconds: float) -> list[Any]:
    """Figures of one setting; the stream goes on for `seconds` after twice the head's time."""
    stage = Parametric(None, state_bytes=state_bytes).operator("operator")
    keys = parametric.zipf_keys(TUPLES, 1_000, 1.0, options.seed)
    keys[0] = 1_000  # a key of its own: only order holds the others up
    light = np.full(TUPLES, parametric.products_for(OWN_US))
    batch = parametric.tuples(keys, seed=options.seed, work=light)
    heavy = light[:1] * 0 + parametric.products_for(HEAD_S * 1e6)
    head = parametric.tuples(keys[:1], seed=options.seed, work=heavy)
    subject = Subject("head", chain(stage), Repeated(batch), 400)
    capacity = measure(subject, {"capacity": settings}, options, seconds / 4)["capacity"].throughput
    per_second = capacity * OFFERED / 100
    tuples = int(per_second * (2 * HEAD_S + seconds))
    rest = subject.source(tuples)
    due = schedule(tuples + 1, per_second, options.seed)
    due[0] = 0
    open_loop = {**settings, "arrivals": due, "marker_every": max(1, tuples // 20_000)}
    subject_with_head = Subject(
        "head", chain(stage), lambda rows: [head, *subject.source(rows - 1)][:rows], 400
    )
    subject_with_head.check(settings)
    found = []
    for _ in range(options.runs):
        without, peak_without = with_peak(subject, [batch.slice(0, 1), *rest], open_loop)
        normal = float(np.percentile(without.markers[len(without.markers) // 5 :, 2], 99))
        run, peak = with_peak(subject, [head, *rest], open_loop)
        after, waiting = recovery(run, normal)
        found.append(
            (peak, peak_without, waiting, after, normal / 1e3, max(run.other_load, without.other_load))
        )
    peak, peak_without, waiting, after, normal, _ = (
        statistics.fmean(values) for values in zip(*found, strict=True)
    )
    backlog = HEAD_S * OFFERED / (100 - OFFERED)
    return [
        per_second,
        peak,
        peak_without,
        waiting,
        after,
        backlog,
        normal,
        tuples + 1,
        len(found),
        max(one[5] for one in found),
    ]


def recovery(run: Run, normal_ns: float) -> tuple[float, float]:
    """What the head's release was followed by.

    Returns
    -------
    seconds : float
        Until the median end-to-end latency of ten markers was at most `normal_ns`; nan: never.
    waiting : float
        Tuples dispatched before the release.
    """
    markers = run.markers
    stalled = markers[markers[:, 2] > HEAD_S * 1e9 / 4]
    if not len(stalled):
        return 0.0, 0.0
    released = stalled[0, 3]
    dispatched = markers[markers[:, 3] - markers[:, 1] < released]
    after = markers[markers[:, 3] >= released]
    for k in range(0, len(after) - 9, 10):
        ten = after[k : k + 10]
        if np.median(ten[:, 2]) <= normal_ns:
            first = ten[np.argmax(ten[:, 2] <= normal_ns)]
            return float(first[3] - released) / 1e9, float(dispatched[-1, 0])
    return float("nan"), float(dispatched[-1, 0])


def with_peak(subject: Subject, batches: list[pa.RecordBatch], settings: Settings) -> tuple[Run, float]:
    """A run, and the peak of this process's resident memory above that before it, in MB (nan where the
    system does not tell).
    """
    before = reset_peak()
    run = one_run(subject.pipeline, batches, settings)
    after = peak_kib()
    return run, float("nan") if before is None or after is None else max(0, after - before) / 1024


def reset_peak() -> int | None:
    """Make the resident memory of now the peak (Linux); KiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return peak_kib()


def peak_kib() -> int | None:
    """Peak resident memory since the last reset."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1])


def head_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """Memory stays bounded, and the backlog is worked off about as fast as the free capacity allows."""
    given = by_name(HEAD_COLUMNS, rows)
    more = {
        f"{row['operator']} chunk {row['chunk']}": row["peak_mb"] - row["peak_without_mb"] for row in given
    }
    figures = ", ".join(f"{name} {mb:.1f} MB" for name, mb in more.items())
    found = [
        Claim(
            "a tuple of 1 s at the head adds at most 64 MB of memory",
            figures,
            all(mb <= 64 for mb in more.values()),
        )
    ]
    ratio = {
        f"{row['operator']} chunk {row['chunk']}": row["recovery_s"] / row["backlog_s"] for row in given
    }
    figures = ", ".join(f"{name} {r:.2f}" for name, r in ratio.items())
    text = (
        "latency is normal again within 1.5 times what the backlog takes at full speed (recovery / backlog)"
    )
    found.append(Claim(text, figures, all(r <= 1.5 for r in ratio.values())))
    return found
