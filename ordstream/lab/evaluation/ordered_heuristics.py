"""Figure 8 of the ordered paper: throughput and latency of the scheduling heuristics on the five TPCx-BB
queries (7.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordstream.lab.evaluation import parametric
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result
from ordstream.lab.evaluation.ordered_notes import busy, compared, machine_line
from ordstream.lab.evaluation.ordered_runs import (
    Subject,
    chunk_name,
    chunk_sizes,
    measure,
    text_table,
    worker_numbers,
)
from ordstream.lab.evaluation.ordered_subjects import QUERY_NAMES, operators, query
from ordstream.lab.evaluation.parametric import Parametric

CONTROL = "20us"
HEURISTICS = ("ct", "lp", "et", "qst")
COLUMNS = (
    "query",
    "chunk",
    "workers",
    "heuristic",
    "tuples_per_s",
    "spread",
    "latency_us",
    "p50_us",
    "p95_us",
    "p99_us",
    "in_flight",
    "cpu_ns",
    "choices",
    "worker_shares",
    "rates",
    "tuples",
    "runs",
    "other_load",
)

#: A figure may be so much worse than the best and still count as equal to it: two runs of one setting differ
#: by as much.
EQUAL = 0.05
#: "Near best" latency, and "much higher".
NEAR, HIGH = 2.0, 2.0
#: Speed-up per worker that counts as nearly linear; workers up to which the paper's CT scales (7.1).
LINEAR = 0.8
SCALES_TO = {"q1": 16, "q2": 8, "q3": 8, "q4": 8, "q15": 12}
#: Largest total variation distance between distributions of worker time that count as similar, and the
#: throughput ratio that differs.
SIMILAR, DIFFERENT = 0.15, 1.1


def fig8(options: Options) -> Result:
    """Every heuristic on every query, and on a chain of heavier operators, at each number of workers."""
    seconds = options.seconds or 1.0
    rows: list[list[Any]] = []
    for name in (*QUERY_NAMES, CONTROL):
        subject = control(options.seed) if name == CONTROL else query(name, options.clicks, options.seed)
        for chunk in chunk_sizes(options):
            contestants = {
                (workers, heuristic): {"workers": workers, "scheduler": heuristic, "chunk_rows": chunk}
                for workers in worker_numbers(options)
                for heuristic in HEURISTICS
            }
            for (workers, heuristic), found in measure(subject, contestants, options, seconds).items():
                latency = found.latency()
                rows.append(
                    [
                        name,
                        chunk_name(chunk),
                        workers,
                        heuristic,
                        found.throughput,
                        found.spread,
                        latency,
                        found.latency("p50"),
                        found.latency("p95"),
                        found.latency("p99"),
                        latency * found.throughput / 1e6,
                        found.cpu_ns,
                        found.choices,
                        " ".join(f"{operator}={share:.4f}" for operator, share in found.shares.items()),
                        found.rates,
                        found.tuples,
                        len(found.runs),
                        found.other_load,
                    ]
                )
    lines = text_table([*COLUMNS[:8], *COLUMNS[10:13]], [[*row[:8], *row[10:13]] for row in rows])
    lines += explanation(rows)
    lines += [
        machine_line(workers, 2 * options.runs + 1) for workers in worker_numbers(options) if workers > 1
    ]
    return Result(COLUMNS, rows, charts(rows), claims(rows), lines)


def control(seed: int) -> Subject:
    """A chain like query 2's, SL, PS, SL, PS, of parametric operators of 5 us each: 20 us per tuple instead
    of a few hundred ns.

    No query of the paper: it shows which of the findings come from how light the queries' operators are
    here.
    """
    stateless, partitioned = Parametric(5.0), Parametric(5.0, state_bytes=64)
    keys = parametric.zipf_keys(1 << 15, 10_000, 1.0, seed)
    return operators(CONTROL, keys, stateless, partitioned, stateless, partitioned, seed=seed)


def records(rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows by column name."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def charts(rows: Sequence[Sequence[Any]]) -> list[Chart]:
    """(a) throughput and (b) latency over the number of workers, a pair per query, at the first chunk
    size.
    """
    given = [row for row in records(rows) if row["chunk"] == rows[0][1]]
    found = []
    for name in dict.fromkeys(row["query"] for row in given):
        for column, label, scale in (
            ("tuples_per_s", "thousand tuples/s", 1e-3),
            ("latency_us", "mean latency, ms", 1e-3),
        ):
            curves = []
            for heuristic in HEURISTICS:
                picked = [row for row in given if (row["query"], row["heuristic"]) == (name, heuristic)]
                curves.append(
                    Curve(
                        heuristic.upper(),
                        [row["workers"] for row in picked],
                        [row[column] * scale for row in picked],
                    )
                )
            found.append(
                Chart(
                    "workers",
                    label,
                    curves,
                    f"{name.upper()}, chunk {rows[0][1]}",
                    log_y=column == "latency_us",
                )
            )
    return found


# ------------------------------------------------------------------------------------------------ claims


def shares_of(text: str) -> dict[str, float]:
    """Operator -> part of the worker time, from the CSV's text."""
    return {name: float(share) for name, _, share in (part.rpartition("=") for part in text.split())}


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    """Total variation distance of two distributions: 0 equal, 1 disjoint."""
    return sum(abs(a.get(name, 0.0) - b.get(name, 0.0)) for name in a.keys() | b.keys()) / 2


def claims(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    """The paper's statements (7.1) at the largest number of workers measured, per chunk size."""
    found = []
    given = records(rows)
    for chunk in dict.fromkeys(row["chunk"] for row in given):
        found += claims_of_chunk([row for row in given if row["chunk"] == chunk], f"chunk {chunk}: ")
    return found


def claims_of_chunk(given: Sequence[dict[str, Any]], prefix: str) -> list[Claim]:
    """The same for one chunk size. A statement about every query holds if it holds for every one
    measured.
    """
    most = max(row["workers"] for row in given)
    queries = list(dict.fromkeys(row["query"] for row in given if row["query"] != CONTROL))
    at = {(row["query"], row["workers"], row["heuristic"]): row for row in given}

    def rate(name: str, heuristic: str, workers: int = most) -> float:
        return float(at[name, workers, heuristic]["tuples_per_s"])

    def delay(name: str, heuristic: str) -> float:
        return float(at[name, most, heuristic]["latency_us"])

    def over_queries(text: str, value: dict[str, float], good: Any) -> Claim:
        figures = ", ".join(f"{name} {one:.2f}{'' if good(one) else ' (no)'}" for name, one in value.items())
        return Claim(f"{prefix}{text}", figures, all(good(one) for one in value.values()))

    def rates_over_queries(text: str, pairs: dict[str, tuple[str, str]], good: Any) -> Claim:
        """A statement on throughputs of two heuristics per query; figures with their range over the
        rounds.
        """
        holds = {name: good(rate(name, a) / rate(name, b)) for name, (a, b) in pairs.items()}
        figures = ", ".join(
            f"{name} {compared(at[name, most, a], at[name, most, b], holds[name])}"
            for name, (a, b) in pairs.items()
        )
        return Claim(f"{prefix}{text}, {most} workers [range over rounds]", figures, all(holds.values()))

    def fastest(name: str, *heuristics: str) -> str:
        return max(heuristics, key=lambda h: rate(name, h))

    low = {
        name: delay(name, "lp") / min(delay(name, h) for h in HEURISTICS if h != "lp") for name in queries
    }
    near = {name: delay(name, "ct") / min(delay(name, h) for h in HEURISTICS) for name in queries}
    found = [
        rates_over_queries(
            "CT has the best throughput (CT / best other)",
            {n: ("ct", fastest(n, "lp", "et", "qst")) for n in queries},
            lambda x: x >= 1 - EQUAL,
        ),
        over_queries(
            f"CT's latency is near the best, {most} workers (CT / lowest)", near, lambda x: x <= NEAR
        ),
        over_queries(
            f"LP has the lowest latency, {most} workers (LP / lowest other)", low, lambda x: x <= 1 + EQUAL
        ),
    ]
    for heuristic in ("et", "qst"):
        high = {name: delay(name, heuristic) / min(delay(name, "ct"), delay(name, "lp")) for name in queries}
        text = f"{heuristic.upper()} has a high latency, {most} workers (against the lower of CT and LP)"
        found.append(over_queries(text, high, lambda x: x >= HIGH))
    for heuristic in ("et", "qst"):
        pairs = {name: (heuristic, fastest(name, "ct", "lp")) for name in queries}
        text = f"{heuristic.upper()} has a lower throughput (against the higher of CT and LP)"
        found.append(rates_over_queries(text, pairs, lambda x: x < 1 - EQUAL))
    as_well = {name: ("lp", "ct") for name in queries if name in ("q1", "q15")}
    worse = {name: ("lp", "ct") for name in queries if name not in ("q1", "q15")}
    if as_well:
        found.append(
            rates_over_queries(
                "LP's throughput is CT's on Q1 and Q15 (LP / CT)", as_well, lambda x: x >= 1 - EQUAL
            )
        )
    if worse:
        found.append(
            rates_over_queries(
                "LP's throughput is below CT's on Q2, Q3 and Q4 (LP / CT)", worse, lambda x: x < 1 - EQUAL
            )
        )
    if most > 1 and any(row["workers"] == 1 for row in given):
        grown: dict[str, float] = {}
        for name in queries:
            up_to = max(
                (
                    row["workers"]
                    for row in given
                    if row["query"] == name and row["workers"] <= SCALES_TO[name]
                ),
                default=1,
            )
            if up_to > 1:
                grown[name] = rate(name, "ct", up_to) / rate(name, "ct", 1) / up_to
        text = (
            f"CT's throughput grows nearly linearly with the workers (speed-up / workers, at most {most} "
            f"of them; at least {LINEAR})"
        )
        found.append(over_queries(text, grown, lambda x: x >= LINEAR))
    if most > 1:
        found.append(similar_shares(at, queries, most, prefix))
    return found


def similar_shares(at: dict[Any, dict[str, Any]], queries: Sequence[str], most: int, prefix: str) -> Claim:
    """ "There is a difference in performance among the heuristics even when their worker time
    distribution is almost similar".
    """
    figures, holds = [], False
    for name in queries:
        shares = {h: shares_of(at[name, most, h]["worker_shares"]) for h in HEURISTICS}
        rates = {h: at[name, most, h]["tuples_per_s"] for h in HEURISTICS}
        pairs = [
            (max(rates[a], rates[b]) / min(rates[a], rates[b]), distance(shares[a], shares[b]), a, b)
            for k, a in enumerate(HEURISTICS)
            for b in HEURISTICS[k + 1 :]
        ]
        similar = [pair for pair in pairs if pair[1] <= SIMILAR]
        ratio, apart, a, b = max(similar or pairs)
        figures.append(f"{name} {a.upper()}/{b.upper()} {ratio:.2f}x at distance {apart:.2f}")
        holds |= bool(similar) and ratio >= DIFFERENT
    text = "throughput differs where the distribution of worker time is similar"
    return Claim(
        f"{prefix}{text} (some query: distance at most {SIMILAR}, at least {DIFFERENT}x)",
        "; ".join(figures),
        holds,
    )


def explanation(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Why the figures are as they are, from what was measured with them.

    Workers that are never idle can differ in throughput only by the CPU that a tuple takes, and then the
    heuristic is not what limits; latency is the tuples in flight over the throughput; and what a tuple takes
    more with several workers is what sharing costs.
    """
    given = records(rows)
    lines = []
    for chunk in dict.fromkeys(row["chunk"] for row in given):
        part = [row for row in given if row["chunk"] == chunk]
        most = max(row["workers"] for row in part)
        top = [row for row in part if row["workers"] == most]
        names = list(dict.fromkeys(row["query"] for row in part))
        prefix = f"chunk {chunk}, {most} workers: "
        shares = {h: [busy(row) for row in top if row["heuristic"] == h] for h in HEURISTICS}
        text = ", ".join(f"{h.upper()} {min(v):.2f} to {max(v):.2f}" for h, v in shares.items())
        lines.append(
            f"{prefix}CPU used over what the workers can use (reading thread included), over the queries: "
            f"{text}; where it is about 1 for "
            "all, no heuristic leaves a worker idle, and throughputs differ by the CPU that a tuple takes "
            "and nothing else"
        )
        at = {(row["query"], row["heuristic"]): row for row in top}
        for name in names:
            each = ", ".join(
                f"{h.upper()} {at[name, h]['cpu_ns']:,.0f} ns, {at[name, h]['choices']:,.1f} choices per "
                "1,000 tuples"
                for h in HEURISTICS
            )
            lines.append(f"{prefix}{name}: CPU per tuple {each}")
        flights = {h: [row["in_flight"] for row in top if row["heuristic"] == h] for h in HEURISTICS}
        text = ", ".join(f"{h.upper()} {min(v):,.0f} to {max(v):,.0f}" for h, v in flights.items())
        lines.append(
            f"{prefix}by Little's law a heuristic's latency is the tuples that it keeps in flight over its "
            "throughput; in flight, over the "
            f"queries: {text}"
        )
        lines += sharing(part, most, f"chunk {chunk}, CT: ")
        noise = sorted(row["spread"] for row in part)[len(part) // 2]
        lines.append(
            f"chunk {chunk}: the runs of one setting differ by {noise:.1%} (median), so smaller "
            "differences say nothing"
        )
    return lines


def sharing(part: Sequence[dict[str, Any]], most: int, prefix: str) -> list[str]:
    """What a tuple takes with one worker and with `most`, and what the chain of heavier operators does."""
    cpu = {(row["query"], row["workers"]): row["cpu_ns"] for row in part if row["heuristic"] == "ct"}
    rate = {(row["query"], row["workers"]): row["tuples_per_s"] for row in part if row["heuristic"] == "ct"}
    names = list(dict.fromkeys(row["query"] for row in part))
    if most == 1 or (names[0], 1) not in cpu:
        return []
    grows = ", ".join(
        f"{name} {cpu[name, 1]:,.0f} to {cpu[name, most]:,.0f} ({cpu[name, most] / cpu[name, 1]:.2f}x)"
        for name in names
    )
    lines = [
        f"{prefix}CPU ns per tuple from 1 to {most} workers: {grows}; what it grows by is what sharing "
        "costs, and bounds the speed-up"
    ]
    if (CONTROL, most) in rate:
        scaled = rate[CONTROL, most] / rate[CONTROL, 1] / most
        lines.append(
            f"{prefix}with operators of 5 us each ({CONTROL} per tuple) the speed-up per worker is "
            f"{scaled:.2f}"
        )
    return lines
