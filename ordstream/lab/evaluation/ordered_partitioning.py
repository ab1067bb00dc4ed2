"""Figures 9, 10 and 11 of the ordered paper: hybrid-queue against partitioned-queue (7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ordstream.ground.cpus import allowed_cpus
from ordstream.lab.evaluation import parametric
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result
from ordstream.lab.evaluation.ordered_notes import busy, compared, machine_line
from ordstream.lab.evaluation.ordered_runs import (
    PAPER_RANGE,
    Run,
    Settings,
    Subject,
    chunk_name,
    chunk_sizes,
    measure,
    text_table,
    worker_numbers,
)
from ordstream.lab.evaluation.ordered_subjects import QUERY_NAMES, Repeated, operators, query
from ordstream.lab.evaluation.parametric import Parametric, chain
from ordstream.node.report import positions
from ordstream.operators.partition import EqualRanges

SCHEMES = ("hybrid", "partitioned")
#: Buckets of the hybrid scheme (7.2.1); the partitioned scheme has as many as workers.
PARTITIONS = 100
KEYS = 10_000
TUPLES = 1 << 15  # drawn once, then repeated
#: A throughput so much lower, or a latency so much higher, still counts as equal: two runs of one setting
#: differ by as much.
EQUAL = 0.05

# ------------------------------------------------------------------------------------------------ Figure 9

SIGMAS = (0.1, 0.2, 0.3, 0.5, 1.0)
SKEW_COST_US = 50.0
SKEW_STATE = 64
#: The paper's cores. Where there are fewer, the work is also done by waiting, which needs none.
PAPER_WORKERS = 16
WAIT_US = 1_000.0
FIG9_COLUMNS = (
    "sigma",
    "work",
    "chunk",
    "workers",
    "scheme",
    "buckets",
    "tuples_per_s",
    "spread",
    "speedup",
    "latency_us",
    "largest_partition",
    "bound",
    "reached",
    "tuples",
    "runs",
    "other_load",
)


def buckets_of(scheme: str, workers: int) -> int:
    """Partitions of a scheme in the paper's experiments."""
    return PARTITIONS if scheme == "hybrid" else workers


def fig9(options: Options) -> Result:
    """Load imbalance: keys from N(0, sigma) in equal ranges; speed-up over one worker with one partition."""
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    several = [workers for workers in worker_numbers(options) if workers > 1]
    works: list[tuple[str, Parametric, list[int]]] = [
        ("products", Parametric(SKEW_COST_US, state_bytes=SKEW_STATE), several)
    ]
    if max(several, default=1) < PAPER_WORKERS:
        works.append(("waiting", Parametric(0.0, state_bytes=SKEW_STATE, wait_us=WAIT_US), [PAPER_WORKERS]))
    for sigma in SIGMAS:
        keys = parametric.gaussian_keys(TUPLES, KEYS, sigma, options.seed)
        for work, given, numbers in works:
            ranged = replace(given, partition=EqualRanges(0, KEYS))
            subject = operators(f"sigma {sigma}", keys, ranged, seed=options.seed, check_rows=200)
            for chunk in chunk_sizes(options):
                one: Settings = {"workers": 1, "buckets": 1, "chunk_rows": chunk}
                contestants: dict[Any, Settings] = {
                    (workers, scheme): {
                        "workers": workers,
                        "partitioning": scheme,
                        "buckets": buckets_of(scheme, workers),
                        "chunk_rows": chunk,
                    }
                    for workers in numbers
                    for scheme in SCHEMES
                }
                if work == "products":
                    contestants["one"] = one
                measured = measure(subject, contestants, options, seconds)
                # One waiting worker needs many times as long for the same input: it gets a shorter one.
                base = (
                    measured.pop("one")
                    if work == "products"
                    else measure(subject, {"one": one}, options, seconds)["one"]
                )
                for (workers, scheme), found in measured.items():
                    buckets = buckets_of(scheme, workers)
                    largest = largest_partition(keys, buckets)
                    most = (
                        min(workers, allowed_cpus(), 1 / largest)
                        if work == "products"
                        else min(workers, 1 / largest)
                    )
                    rows.append(
                        [
                            sigma,
                            work,
                            chunk_name(chunk),
                            workers,
                            scheme,
                            buckets,
                            found.throughput,
                            found.spread,
                            found.throughput / base.throughput,
                            found.latency(),
                            largest,
                            most,
                            found.throughput / base.throughput / most,
                            found.tuples,
                            len(found.runs),
                            found.other_load,
                        ]
                    )
    lines = text_table(FIG9_COLUMNS[:13], [row[:13] for row in rows])
    lines.append(
        "bound: the least of workers, cores (not for waiting) and 1 / (share of the largest partition). "
        "Keys lie symmetrically around the "
        "middle, so with two partitions both halves are equal whatever sigma is: on two cores there is no "
        "skew in this experiment. "
        "reached: speed-up over bound; where it is about 1, the bound explains the figure."
    )
    lines += [machine_line(workers, 2 * options.runs + 1) for workers in several]
    if len(works) > 1:
        lines.append(
            f"waiting: each tuple waits {WAIT_US:g} us instead of computing, so that {PAPER_WORKERS} "
            "workers, the paper's number, are busy "
            "on the cores there are; what the runtime itself does still shares them"
        )
    return Result(FIG9_COLUMNS, rows, fig9_charts(rows), fig9_claims(rows), lines)


def largest_partition(keys: Any, buckets: int) -> float:
    """Share of the keys in the largest of so many equal ranges."""
    return float(np.bincount(keys * buckets // KEYS, minlength=buckets).max() / len(keys))


def by_name(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as dicts."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def fig9_charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    given = by_name(FIG9_COLUMNS, rows)
    given = [row for row in given if row["chunk"] == given[0]["chunk"]]
    found = []
    for workers, work in dict.fromkeys((row["workers"], row["work"]) for row in given):
        curves = []
        for scheme in SCHEMES:
            picked = [
                row
                for row in given
                if (row["workers"], row["work"], row["scheme"]) == (workers, work, scheme)
            ]
            curves.append(
                Curve(scheme, [row["sigma"] for row in picked], [row["speedup"] for row in picked])
            )
            curves.append(
                Curve(
                    f"bound, {scheme}",
                    [row["sigma"] for row in picked],
                    [row["bound"] for row in picked],
                    style=":",
                )
            )
        found.append(Chart("sigma", "speed-up over one worker", curves, f"{workers} workers, {work}"))
    return found


def fig9_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """7.2.1: both alike near uniform; hybrid keeps its speed-up under skew, partitioned loses it."""
    found = []
    given = by_name(FIG9_COLUMNS, rows)
    for chunk, workers, work in dict.fromkeys((row["chunk"], row["workers"], row["work"]) for row in given):
        part = [
            row for row in given if (row["chunk"], row["workers"], row["work"]) == (chunk, workers, work)
        ]
        rate = {(row["sigma"], row["scheme"]): row["tuples_per_s"] for row in part}
        at = {(row["sigma"], row["scheme"]): row for row in part}
        largest = {row["sigma"]: row["largest_partition"] for row in part if row["scheme"] == "partitioned"}
        sigmas = sorted({row["sigma"] for row in part})
        ratio = {sigma: rate[sigma, "hybrid"] / rate[sigma, "partitioned"] for sigma in sigmas}
        prefix = f"chunk {chunk}, {workers} workers{', waiting' if work == 'waiting' else ''}: "
        figures = ", ".join(
            f"sigma {s:g}: {r:.2f} (largest of {workers} partitions {largest[s]:.0%})"
            for s, r in ratio.items()
        )
        figures += f"; runs of one setting differ by up to {max(row['spread'] for row in part):.0%}"
        text = "hybrid is at least as fast as partitioned under skew (hybrid / partitioned)"
        found.append(Claim(prefix + text, figures, all(r >= 1 - EQUAL for r in ratio.values())))
        flattest, steepest = sigmas[-1], sigmas[0]
        text = f"both are alike when keys are almost uniform (sigma {flattest:g})"
        ideal = at[flattest, "hybrid"]["bound"] / at[flattest, "partitioned"]["bound"]
        figures = (
            f"hybrid / partitioned {ratio[flattest]:.2f}; their largest partitions alone make it {ideal:.2f}"
        )
        found.append(Claim(prefix + text, figures, abs(ratio[flattest] - 1) <= 2 * EQUAL))
        kept = {scheme: rate[steepest, scheme] / rate[flattest, scheme] for scheme in SCHEMES}
        ideal = at[steepest, "hybrid"]["bound"] / at[flattest, "hybrid"]["bound"]
        figures = (
            f"{kept['hybrid']:.2f} of its throughput at sigma {flattest:g} is left at sigma {steepest:g}; "
            f"the largest of its {PARTITIONS} "
            f"partitions has {at[steepest, 'hybrid']['largest_partition']:.1%} of the tuples there, which "
            f"alone makes it {ideal:.2f}"
        )
        found.append(
            Claim(
                f"{prefix}hybrid performs consistently over sigma", figures, kept["hybrid"] >= 1 - 2 * EQUAL
            )
        )
        figures = (
            f"{kept['partitioned']:.2f} is left; the largest partition has {largest[steepest]:.0%} of the "
            "tuples"
        )
        found.append(
            Claim(f"{prefix}partitioned drops heavily under skew", figures, kept["partitioned"] <= 0.8)
        )
    return found


# ------------------------------------------------------------------------------------------------ Figure 10

LOGGED = 1 << 22  # tuples of a run whose starts are logged
COSTS_US = (10.0, 100.0, 1_000.0, 10_000.0)
FIG10_COLUMNS = (
    "cost_us",
    "chunk",
    "workers",
    "scheme",
    "buckets",
    "latency_us",
    "p50_us",
    "p99_us",
    "latency_over_cost",
    "tuples_per_s",
    "cost_measured_us",
    "tuples",
    "runs",
    "other_load",
)


def fig10(options: Options) -> Result:
    """Latency from the start of a tuple's processing to its leaving the operator in order, for four
    costs; uniform keys.
    """
    seconds = options.seconds or 2.0
    rows: list[list[Any]] = []
    keys = parametric.uniform_keys(TUPLES, KEYS, options.seed)
    for cost in COSTS_US:
        for chunk in chunk_sizes(options):
            for workers in [n for n in worker_numbers(options) if n > 1]:
                contestants = {
                    scheme: {
                        "workers": workers,
                        "partitioning": scheme,
                        "buckets": buckets_of(scheme, workers),
                        "chunk_rows": chunk,
                    }
                    for scheme in SCHEMES
                }
                starts = Starts()
                given = Parametric(cost, state_bytes=SKEW_STATE, partition=EqualRanges(0, KEYS))
                measured_chain = chain(given.operator("operator", log=starts.log))
                source = Repeated(parametric.tuples(keys, given.tuple_bytes, options.seed))
                subject = Subject(f"cost {cost:g} us", measured_chain, source, 100 if cost > 1_000 else 400)
                measured = measure(subject, contestants, options, seconds, starts.clear, starts.observe)
                for scheme, found in measured.items():
                    mean, p50, p99 = starts.figures(scheme)
                    rows.append(
                        [
                            cost,
                            chunk_name(chunk),
                            workers,
                            scheme,
                            buckets_of(scheme, workers),
                            mean,
                            p50,
                            p99,
                            mean / cost,
                            found.throughput,
                            found.over_operators("cost_ns")["operator"] / 1e3,
                            found.tuples,
                            len(found.runs),
                            found.other_load,
                        ]
                    )
    lines = text_table(FIG10_COLUMNS[:11], [row[:11] for row in rows])
    return Result(FIG10_COLUMNS, rows, fig10_charts(rows), fig10_claims(rows), lines)


class Starts:
    """When the work on each tuple began, in one run; and latencies from there to the egress, over runs."""

    def __init__(self) -> None:
        self.log = np.zeros(LOGGED, np.int64)
        self.latencies: dict[Any, list[Any]] = {}

    def clear(self) -> None:
        """Before a run."""
        self.log[:] = 0

    def observe(self, name: Any, run: Run) -> None:
        """After a run: latency of the markers in the paper's range."""
        kept = run.markers[positions(len(run.markers), PAPER_RANGE)]
        kept = kept[kept[:, 0] <= LOGGED]
        began = self.log[kept[:, 0] - 1]
        self.latencies.setdefault(name, []).append((kept[:, 3] - began)[began > 0] / 1e3)

    def figures(self, name: Any) -> tuple[float, float, float]:
        """Mean over runs of the mean latency, its median and its 99th percentile, in microseconds."""
        runs = [run for run in self.latencies[name] if len(run)]
        if not runs:
            return (float("nan"),) * 3
        mean, median, p99 = (float(np.mean([figure(run) for run in runs])) for figure in _FIGURES)
        return mean, median, p99


_FIGURES = (np.mean, np.median, lambda run: np.percentile(run, 99))


def fig10_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """7.2.2: partitioned's latency is much higher at every cost; hybrid's is close to the cost itself."""
    found = []
    given = by_name(FIG10_COLUMNS, rows)
    for chunk, workers in dict.fromkeys((row["chunk"], row["workers"]) for row in given):
        part = [row for row in given if (row["chunk"], row["workers"]) == (chunk, workers)]
        delay = {(row["cost_us"], row["scheme"]): row["latency_us"] for row in part}
        costs = sorted({row["cost_us"] for row in part})
        prefix = f"chunk {chunk}, {workers} workers: "
        ratio = {cost: delay[cost, "partitioned"] / delay[cost, "hybrid"] for cost in costs}
        figures = ", ".join(f"{cost:g} us: {r:.2f}" for cost, r in ratio.items())
        text = "hybrid has the lower latency at every per-tuple cost (partitioned / hybrid)"
        found.append(Claim(prefix + text, figures, all(r > 1 for r in ratio.values())))
        close = {cost: delay[cost, "hybrid"] / cost for cost in costs}
        figures = ", ".join(f"{cost:g} us: {r:.2f}" for cost, r in close.items())
        found.append(
            Claim(
                f"{prefix}hybrid's latency is close to the cost (latency / cost, at most 2)",
                figures,
                all(r <= 2 for r in close.values()),
            )
        )
    return found


def fig10_charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    given = [row for row in by_name(FIG10_COLUMNS, rows) if row["chunk"] == rows[0][1]] if rows else []
    found = []
    for workers in dict.fromkeys(row["workers"] for row in given):
        curves = []
        for scheme in SCHEMES:
            picked = [row for row in given if (row["workers"], row["scheme"]) == (workers, scheme)]
            curves.append(
                Curve(scheme, [row["cost_us"] for row in picked], [row["latency_us"] for row in picked])
            )
        curves.append(Curve("the cost itself", list(COSTS_US), list(COSTS_US), style=":"))
        found.append(
            Chart(
                "cost per tuple, us",
                "mean latency, us",
                curves,
                f"{workers} workers",
                log_x=True,
                log_y=True,
            )
        )
    return found


# ------------------------------------------------------------------------------------------------ Figure 11

FIG11_COLUMNS = (
    "query",
    "chunk",
    "workers",
    "scheme",
    "buckets",
    "tuples_per_s",
    "spread",
    "latency_us",
    "p50_us",
    "p99_us",
    "in_flight",
    "reorder_height",
    "cpu_ns",
    "rates",
    "tuples",
    "runs",
    "other_load",
)
#: The hybrid scheme with as few partitions as the partitioned one: what the number of partitions costs.
FEW = "hybrid, few"
#: Partitioned stateful operators per query (Table 1).
PARTITIONED_OPERATORS = {"q1": 2, "q2": 2, "q3": 2, "q4": 1, "q15": 1}


def fig11(options: Options) -> Result:
    """Both schemes on the five queries, CT; and hybrid with the partitions of the other."""
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    for name in QUERY_NAMES:
        subject = query(name, options.clicks, options.seed)
        for chunk in chunk_sizes(options):
            contestants = {
                (workers, scheme): {
                    "workers": workers,
                    "partitioning": scheme.split(",")[0],
                    "buckets": buckets_of(scheme, workers),
                    "chunk_rows": chunk,
                }
                for workers in worker_numbers(options)
                if workers > 1
                for scheme in (*SCHEMES, FEW)
            }
            for (workers, scheme), found in measure(subject, contestants, options, seconds).items():
                rows.append(
                    [
                        name,
                        chunk_name(chunk),
                        workers,
                        scheme,
                        buckets_of(scheme, workers),
                        found.throughput,
                        found.spread,
                        found.latency(),
                        found.latency("p50"),
                        found.latency("p99"),
                        found.latency() * found.throughput / 1e6,
                        max(found.over_operators("reorder_height").values()),
                        found.cpu_ns,
                        found.rates,
                        found.tuples,
                        len(found.runs),
                        found.other_load,
                    ]
                )
    lines = text_table(FIG11_COLUMNS[:13], [row[:13] for row in rows])
    return Result(
        FIG11_COLUMNS, rows, fig11_charts(rows), fig11_claims(rows), lines + fig11_explanation(rows)
    )


def fig11_explanation(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Why hybrid is not ahead where it is not: busy workers, CPU per tuple, and hybrid with as few
    partitions as the other scheme.
    """
    given = by_name(FIG11_COLUMNS, rows)
    lines = []
    for chunk, workers in dict.fromkeys((row["chunk"], row["workers"]) for row in given):
        at = {
            (row["query"], row["scheme"]): row
            for row in given
            if (row["chunk"], row["workers"]) == (chunk, workers)
        }
        names = list(dict.fromkeys(name for name, _ in at))
        prefix = f"chunk {chunk}, {workers} workers: "
        used = ", ".join(
            f"{n} {busy(at[n, 'hybrid']):.2f} and {busy(at[n, 'partitioned']):.2f}" for n in names
        )
        lines.append(
            f"{prefix}CPU used over what the workers can use, hybrid and partitioned: {used}; where both "
            "are about 1, a static split of "
            "the keys leaves no worker idle, so hybrid has nothing to win and pays for its queues"
        )
        cpu = ", ".join(
            f"{n} {at[n, 'hybrid']['cpu_ns']:,.0f} and {at[n, 'partitioned']['cpu_ns']:,.0f}" for n in names
        )
        lines.append(f"{prefix}CPU ns per tuple, hybrid and partitioned: {cpu}")
        if (names[0], FEW) in at:
            few = ", ".join(f"{n} {compared(at[n, FEW], at[n, 'partitioned'], True)}" for n in names)
            lines.append(
                f"{prefix}hybrid with {workers} partitions over partitioned with {workers} [range over "
                f"rounds]: {few}"
            )
            many = ", ".join(f"{n} {compared(at[n, 'hybrid'], at[n, FEW], True)}" for n in names)
            lines.append(
                f"{prefix}hybrid with {PARTITIONS} partitions over hybrid with {workers}: {many}; below 1: "
                "what partitions cost"
            )
    return lines


def fig11_charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    given = [row for row in by_name(FIG11_COLUMNS, rows) if row["chunk"] == rows[0][1]] if rows else []
    found = []
    names = list(dict.fromkeys(row["query"] for row in given))
    for column, label in (("tuples_per_s", "peak thousand tuples/s"), ("latency_us", "latency there, ms")):
        curves = []
        for scheme in SCHEMES:
            peaks = [
                max(
                    (r for r in given if (r["query"], r["scheme"]) == (n, scheme)),
                    key=lambda r: r["tuples_per_s"],
                )
                for n in names
            ]
            curves.append(Curve(scheme, list(range(len(names))), [row[column] / 1e3 for row in peaks]))
        title = ", ".join(f"{k} = {name.upper()}" for k, name in enumerate(names))
        found.append(Chart("query", label, curves, title, kind="bar"))
    return found


def fig11_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """7.2.3: hybrid's peak throughput is higher on all queries, more so with more partitioned operators;
    its latency is lower on 3 of 5.
    """
    found = []
    given = by_name(FIG11_COLUMNS, rows)
    for chunk in dict.fromkeys(row["chunk"] for row in given):
        part = [row for row in given if row["chunk"] == chunk]
        names = list(dict.fromkeys(row["query"] for row in part))
        peak = {
            (n, s): max(
                (row for row in part if (row["query"], row["scheme"]) == (n, s)),
                key=lambda row: row["tuples_per_s"],
            )
            for n in names
            for s in SCHEMES
        }
        prefix = f"chunk {chunk}: "
        ratio = {
            n: peak[n, "hybrid"]["tuples_per_s"] / peak[n, "partitioned"]["tuples_per_s"] for n in names
        }
        figures = ", ".join(
            f"{n} {compared(peak[n, 'hybrid'], peak[n, 'partitioned'], r >= 1 - EQUAL)}"
            for n, r in ratio.items()
        )
        text = (
            "hybrid's peak throughput is at least partitioned's on every query (hybrid / partitioned) "
            "[range over rounds]"
        )
        found.append(Claim(prefix + text, figures, all(r >= 1 - EQUAL for r in ratio.values())))
        many = [ratio[n] for n in names if PARTITIONED_OPERATORS[n] > 1]
        few = [ratio[n] for n in names if PARTITIONED_OPERATORS[n] == 1]
        if many and few:
            a, b = float(np.mean(many)), float(np.mean(few))
            text = (
                "the difference is larger for queries with more partitioned operators (mean hybrid / "
                "partitioned: Q1 to Q3, others)"
            )
            found.append(Claim(prefix + text, f"{a:.2f}, {b:.2f}", a > b))
        delay = {n: peak[n, "hybrid"]["latency_us"] / peak[n, "partitioned"]["latency_us"] for n in names}
        figures = ", ".join(f"{n} {r:.2f}" for n, r in delay.items())
        text = (
            "hybrid's latency is lower on 3 of 5 queries and not much higher on the others (hybrid / "
            "partitioned; at most 1.25)"
        )
        lower = sum(r < 1 for r in delay.values())
        found.append(
            Claim(
                prefix + text, figures, lower >= 0.6 * len(names) and all(r <= 1.25 for r in delay.values())
            )
        )
    return found
