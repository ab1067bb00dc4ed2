"""Figures 12, 13 and 14 of the ordered paper: non-blocking against lock-based reordering (7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordstream.lab.evaluation import parametric
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result
from ordstream.lab.evaluation.ordered_notes import compared, machine_line
from ordstream.lab.evaluation.ordered_partitioning import by_name
from ordstream.lab.evaluation.ordered_runs import (
    Settings,
    chunk_name,
    chunk_sizes,
    measure,
    text_table,
    worker_numbers,
)
from ordstream.lab.evaluation.ordered_subjects import QUERY_NAMES, operators, query
from ordstream.lab.evaluation.parametric import Parametric

SCHEMES = ("nonblocking", "lock")
KEYS, TUPLES = 10_000, 1 << 15
EQUAL = 0.05

#: Cost per tuple in microseconds: the paper's "order of 10s", and lighter ones, where reordering weighs
#: more.
LIGHT_US = (10.0, 1.0, 0.0)
HEAVY_US, SELECTIVITY = 100.0, 50

COLUMNS = (
    "pipeline",
    "cost_us",
    "chunk",
    "workers",
    "scheme",
    "tuples_per_s",
    "spread",
    "speedup",
    "cost_ns",
    "cost_grows_ns",
    "latency_us",
    "cpu_ns",
    "tuples",
    "runs",
    "other_load",
)


def fig12(options: Options) -> Result:
    """A light stateless operator: speed-up and worker time per tuple over the number of workers."""
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    keys = parametric.uniform_keys(TUPLES, KEYS, options.seed)
    for cost in LIGHT_US:
        subject = operators("light", keys, Parametric(cost), seed=options.seed)
        rows += over_workers(subject, cost, options, seconds)
    return Result(COLUMNS, rows, charts(rows), claims(rows, "light"), explained(rows, options))


def fig13(options: Options) -> Result:
    """A stateless operator with 50 outputs per input in front of a partitioned one, about 100 us each."""
    seconds = options.seconds or 2.0
    keys = parametric.uniform_keys(TUPLES, KEYS, options.seed)
    given = Parametric(HEAVY_US, selectivity=SELECTIVITY), Parametric(HEAVY_US, state_bytes=64)
    subject = operators("selective", keys, *given, seed=options.seed)
    rows = over_workers(subject, HEAVY_US, options, seconds)
    return Result(COLUMNS, rows, charts(rows), claims(rows, "high-selectivity"), explained(rows, options))


def explained(rows: Sequence[Sequence[Any]], options: Options) -> list[str]:
    """The table, and what the machine itself gives several loops: the most that a speed-up can be."""
    lines = text_table(COLUMNS[:12], [row[:12] for row in rows])
    return lines + [
        machine_line(workers, 2 * options.runs + 1) for workers in worker_numbers(options) if workers > 1
    ]


def over_workers(subject: Any, cost: float, options: Options, seconds: float) -> list[list[Any]]:
    """Rows of both schemes at each number of workers; speed-up and cost are against the same scheme with
    one worker.
    """
    rows: list[list[Any]] = []
    for chunk in chunk_sizes(options):
        contestants: dict[Any, Settings] = {
            (workers, scheme): {"workers": workers, "reorder": scheme, "chunk_rows": chunk}
            for workers in sorted({1, *worker_numbers(options)})
            for scheme in SCHEMES
        }
        measured = measure(subject, contestants, options, seconds)
        for (workers, scheme), found in measured.items():
            one = measured[1, scheme]
            per_tuple, alone = (m.over_operators("cost_ns")["operator_1"] for m in (found, one))
            rows.append(
                [
                    subject.name,
                    cost,
                    chunk_name(chunk),
                    workers,
                    scheme,
                    found.throughput,
                    found.spread,
                    found.throughput / one.throughput,
                    per_tuple,
                    per_tuple - alone,
                    found.latency(),
                    found.cpu_ns,
                    found.tuples,
                    len(found.runs),
                    found.other_load,
                ]
            )
    return rows


def charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    """(a) speed-up and (b) average cost of the first operator, for the first cost and chunk size."""
    given = (
        [row for row in by_name(COLUMNS, rows) if (row["cost_us"], row["chunk"]) == (rows[0][1], rows[0][2])]
        if rows
        else []
    )
    found = []
    for column, label in (("speedup", "speed-up"), ("cost_ns", "cost of the first operator, ns per tuple")):
        curves = []
        for scheme in SCHEMES:
            picked = [row for row in given if row["scheme"] == scheme]
            curves.append(Curve(scheme, [row["workers"] for row in picked], [row[column] for row in picked]))
        found.append(
            Chart(
                "workers", label, curves, f"{rows[0][1]:g} us per tuple, chunk {rows[0][2]}" if rows else ""
            )
        )
    return found


def claims(rows: Sequence[Sequence[Any]], what: str) -> list[Claim]:
    """7.3.1 and 7.3.2: non-blocking scales at least as well, and its cost grows no steeper, at the
    largest number of workers.
    """
    found = []
    given = by_name(COLUMNS, rows)
    for cost, chunk in dict.fromkeys((row["cost_us"], row["chunk"]) for row in given):
        part = [row for row in given if (row["cost_us"], row["chunk"]) == (cost, chunk)]
        most = max(row["workers"] for row in part)
        if most == 1:
            continue
        at = {row["scheme"]: row for row in part if row["workers"] == most}
        free, lock = at["nonblocking"], at["lock"]
        prefix = f"{cost:g} us, chunk {chunk}, {most} workers: "
        ratio = free["tuples_per_s"] / lock["tuples_per_s"]
        figures = (
            f"throughput non-blocking / lock {ratio:.3f}; speed-up {free['speedup']:.2f} and "
            f"{lock['speedup']:.2f} "
            f"(runs of one setting differ by {max(free['spread'], lock['spread']):.1%})"
        )
        text = f"non-blocking scales at least as well as lock-based for a {what} operator"
        found.append(Claim(prefix + text, figures, ratio >= 1 - EQUAL))
        grows = free["cost_grows_ns"] - lock["cost_grows_ns"]
        figures = (
            f"from one worker to {most} it grows by {free['cost_grows_ns']:,.0f} ns with non-blocking, by "
            f"{lock['cost_grows_ns']:,.0f} ns "
            "with the lock"
        )
        text = "the cost per tuple grows no steeper with non-blocking"
        found.append(Claim(prefix + text, figures, grows <= EQUAL * free["cost_ns"]))
    return found


# ------------------------------------------------------------------------------------------------ Figure 14

FIG14_COLUMNS = (
    "query",
    "chunk",
    "workers",
    "scheme",
    "tuples_per_s",
    "spread",
    "latency_us",
    "cpu_ns",
    "reorder_height",
    "rates",
    "tuples",
    "runs",
    "other_load",
)


def fig14(options: Options) -> Result:
    """Both schemes on the five queries, CT."""
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    for name in QUERY_NAMES:
        subject = query(name, options.clicks, options.seed)
        for chunk in chunk_sizes(options):
            contestants = {
                (workers, scheme): {"workers": workers, "reorder": scheme, "chunk_rows": chunk}
                for workers in worker_numbers(options)
                for scheme in SCHEMES
            }
            for (workers, scheme), found in measure(subject, contestants, options, seconds).items():
                rows.append(
                    [
                        name,
                        chunk_name(chunk),
                        workers,
                        scheme,
                        found.throughput,
                        found.spread,
                        found.latency(),
                        found.cpu_ns,
                        max(found.over_operators("reorder_height").values()),
                        found.rates,
                        found.tuples,
                        len(found.runs),
                        found.other_load,
                    ]
                )
    lines = text_table(FIG14_COLUMNS[:9], [row[:9] for row in rows]) + fig14_explanation(rows)
    lines += [
        machine_line(workers, 2 * options.runs + 1) for workers in worker_numbers(options) if workers > 1
    ]
    return Result(FIG14_COLUMNS, rows, fig14_charts(rows), fig14_claims(rows), lines)


def fig14_explanation(rows: Sequence[Sequence[Any]]) -> list[str]:
    """What a tuple takes with either scheme at each number of workers: the lock costs little until
    somebody else wants it.
    """
    given = by_name(FIG14_COLUMNS, rows)
    lines = []
    for chunk, workers in dict.fromkeys((row["chunk"], row["workers"]) for row in given):
        at = {
            (row["query"], row["scheme"]): row
            for row in given
            if (row["chunk"], row["workers"]) == (chunk, workers)
        }
        names = list(dict.fromkeys(name for name, _ in at))
        cpu = ", ".join(
            f"{n} {at[n, 'nonblocking']['cpu_ns']:,.0f} and {at[n, 'lock']['cpu_ns']:,.0f}" for n in names
        )
        ratio = ", ".join(f"{n} {compared(at[n, 'nonblocking'], at[n, 'lock'], True)}" for n in names)
        lines.append(f"chunk {chunk}, {workers} workers: CPU ns per tuple, non-blocking and lock: {cpu}")
        lines.append(
            f"chunk {chunk}, {workers} workers: throughput, non-blocking / lock [range over rounds]: {ratio}"
        )
    return lines


def peaks(part: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Per query and scheme the row with the highest throughput."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in part:
        place = row["query"], row["scheme"]
        if place not in found or row["tuples_per_s"] > found[place]["tuples_per_s"]:
            found[place] = row
    return found


def fig14_charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    given = [row for row in by_name(FIG14_COLUMNS, rows) if row["chunk"] == rows[0][1]] if rows else []
    names = list(dict.fromkeys(row["query"] for row in given))
    best = peaks(given)
    curves = [
        Curve(scheme, list(range(len(names))), [best[n, scheme]["tuples_per_s"] / 1e3 for n in names])
        for scheme in SCHEMES
    ]
    title = ", ".join(f"{k} = {name.upper()}" for k, name in enumerate(names))
    return [Chart("query", "peak thousand tuples/s", curves, title, kind="bar")]


def fig14_claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """7.3.3: non-blocking has the better peak throughput on every query; the latencies do not differ
    much.
    """
    found = []
    given = by_name(FIG14_COLUMNS, rows)
    for chunk in dict.fromkeys(row["chunk"] for row in given):
        part = [row for row in given if row["chunk"] == chunk]
        best = peaks(part)
        names = list(dict.fromkeys(row["query"] for row in part))
        noise = max(row["spread"] for row in best.values())
        ratio = {n: best[n, "nonblocking"]["tuples_per_s"] / best[n, "lock"]["tuples_per_s"] for n in names}
        figures = ", ".join(
            f"{n} {compared(best[n, 'nonblocking'], best[n, 'lock'], r >= 1 - EQUAL)}"
            for n, r in ratio.items()
        )
        text = (
            f"chunk {chunk}: non-blocking's peak throughput is at least the lock's on every query "
            "(non-blocking / lock) [over rounds]"
        )
        most = max(row["workers"] for row in part)
        top = {(row["query"], row["scheme"]): row["tuples_per_s"] for row in part if row["workers"] == most}
        there = ", ".join(f"{n} {top[n, 'nonblocking'] / top[n, 'lock']:.2f}" for n in names)
        peak_at = ", ".join(f"{n} {best[n, 'nonblocking']['workers']}" for n in names)
        note = (
            f"{figures}; at {most} workers {there}; workers at the peak: {peak_at}; runs of one setting "
            f"differ by up to {noise:.0%}"
        )
        found.append(Claim(text, note, all(r >= 1 - EQUAL for r in ratio.values())))
        delay = {n: best[n, "nonblocking"]["latency_us"] / best[n, "lock"]["latency_us"] for n in names}
        figures = ", ".join(f"{n} {r:.2f}" for n, r in delay.items())
        text = (
            f"chunk {chunk}: the latencies do not differ much (non-blocking / lock, within a factor of 1.5)"
        )
        found.append(Claim(text, figures, all(1 / 1.5 <= r <= 1.5 for r in delay.values())))
    return found
