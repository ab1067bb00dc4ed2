"""Load-aware shedding on a real node: a run at 150 % of capacity, with and without shedding, and one with
capacity to spare.

    python bench/shedding.py [--seconds 60] [--workers 1] [--tau 200] [--parts overload cold spare] [--out
    DIR]

Costs depend on the content: 1, 5 or 25 ms per tuple by its entity (Zipf), by waiting, so that the workers'
capacity is the same on every machine and what else runs on it hardly matters. Capacity is measured first, at
that node. Printed, and with --out written as CSV and plot: mean queueing latency against tau, drops against
Full Knowledge in virtual time on the same stream, what a cold start does, how latency grows without
shedding, and the overhead where nothing has to be shed: the median over pairs of runs with and without a
shed operator, one after the other in turns, of wall and processor time. Every output is compared with the
sequential reference before its figures are shown.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ordstream as od
from ordstream._core.lab.las_policy import Shedding
from ordstream.balance.las import AverageLatency
from ordstream.lab.evaluation.experiment import Chart, Curve, Result, draw, write_csv
from ordstream.lab.simulation import streams
from ordstream.lab.simulation.queues import run_operator
from ordstream.reference.run_serial import run_serial

ENTITIES = 500
COSTS_MS = (1.0, 5.0, 25.0)
PARTS = ("overload", "cold", "spare")
SCHEMA = pa.schema([("mention", pa.string()), ("number", pa.int64())])


class Work:
    """What a tuple costs: waits for it, without holding the GIL or a processor."""

    def __init__(self, cost_ms: dict[str, float]) -> None:
        self.seconds = {name: cost / 1e3 for name, cost in cost_ms.items()}

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        for name in columns["mention"]:
            time.sleep(self.seconds[str(name)])
        return {"mention": columns["mention"], "number": columns["number"]}


def pipeline(work: Work, shed: dict[str, Any] | None) -> od.Pipeline:
    made = od.Pipeline(SCHEMA)
    if shed is not None:
        made = made.shed(cost_key="mention", name="shed", **shed)
    return made.map_batches(work, schema=SCHEMA, releases_gil=True, name="work")


def verified(run: od.Pipeline, table: pa.Table, result: od.Result, work: Work) -> None:
    """The output is that of a sequential run without the logged serials; waiting is left out of the
    reference.
    """
    seconds, work.seconds = work.seconds, dict.fromkeys(work.seconds, 0.0)
    try:
        if not run_serial(run, table, shed_log=result.shed.log).table.equals(result.table):
            raise SystemExit("the output differs from the sequential reference")
    finally:
        work.seconds = seconds


def arrivals(m: int, per_second: float) -> Any:
    return (np.arange(m) / per_second * 1e9).astype(np.int64)


def timed(run: od.Pipeline, table: pa.Table, sent: Any, workers: int) -> tuple[od.Result, Any]:
    """Run in open loop; the result, and (arrival in s, latency in ms) of each output as its reader sees
    it.
    """
    batches, seen = [], []
    begin = time.perf_counter()
    with run.stream(table, workers=workers, arrivals=sent, tags=True) as stream:
        for batch in stream:
            at = (time.perf_counter() - begin) * 1e3
            arrived = sent[batch["_serial"].to_numpy() - 1] / 1e6
            seen.append(np.column_stack([arrived / 1e3, at - arrived]))
            batches.append(batch.select(SCHEMA.names))
    return od.Result(batches, SCHEMA, stream.report, stream.shed), np.concatenate(seen)


def per_second(seen: Any) -> tuple[Any, Any]:
    """Seconds, and the mean latency of the tuples that arrived in each."""
    second = seen[:, 0].astype(int)
    found = np.unique(second)
    return found, np.array([seen[second == one, 1].mean() for one in found])


def spare(work: Work, table: pa.Table, model: Any, chosen: argparse.Namespace) -> None:
    """Overhead: the same work, as fast as it goes, with and without a shed operator that sheds nothing."""
    wall, processor = [], []
    for number in range(chosen.pairs):
        seconds: dict[bool, tuple[float, float]] = {}
        for sheds in (True, False) if number % 2 else (False, True):
            run = pipeline(work, {"max_latency": "10s", "model": model} if sheds else None)
            before = time.process_time()
            result = run.run(table, workers=chosen.workers)
            seconds[sheds] = (result.report.seconds, time.process_time() - before)
            verified(run, table, result, work)
            if result.shed.log.num_rows:
                raise SystemExit("tuples were shed although there was capacity to spare")
        wall.append(seconds[True][0] / seconds[False][0] - 1)
        processor.append((seconds[True][1] - seconds[False][1]) / table.num_rows * 1e6)
    print(
        f"overhead where nothing is shed: median {np.median(wall):+.2%} of wall time ({min(wall):+.2%} to "
        f"{max(wall):+.2%} over "
        f"{chosen.pairs} pairs), {np.median(processor):+.1f} us of processor time per tuple"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tau", type=float, default=200.0, help="ms")
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="saved model and none; cold start; capacity to spare",
    )
    parser.add_argument("--pairs", type=int, default=7, help="of the overhead")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rng = np.random.default_rng(chosen.seed)
    cost = streams.execution_times(ENTITIES, COSTS_MS, rng)
    names = [f"entity-{i}" for i in range(ENTITIES)]
    work = Work(dict(zip(names, cost.tolist(), strict=True)))

    def stream(m: int) -> tuple[Any, pa.Table]:
        keys = streams.zipf(m, ENTITIES, 1.0, rng)
        return keys, pa.table(
            {"mention": pa.array(names).take(pa.array(keys)), "number": np.arange(m)}, schema=SCHEMA
        )

    # Capacity and a cost model, from a run as fast as it goes.
    _, table = stream(round(3.0 * 1e3 / cost.mean() * chosen.workers))
    learning = pipeline(work, {"max_latency": "infs", "window": 256, "tolerance": 1.0})
    learnt = learning.run(table, workers=chosen.workers)
    verified(learning, table, learnt, work)
    capacity = learnt.report.tuples_per_second
    print(f"capacity {capacity:.0f} tuples/s at {chosen.workers} workers, mean cost {cost.mean():.1f} ms")
    model = learnt.shed.models["shed"]

    rate = chosen.load * capacity
    keys, table = stream(round(rate * chosen.seconds))
    sent = arrivals(table.num_rows, rate)
    goal = f"{chosen.tau:g}ms"
    found: dict[str, Any] = {}
    curves = []
    for part, label, shed in (
        ("overload", "saved model", {"max_latency": goal, "model": model}),
        ("cold", "cold start", {"max_latency": goal}),
        ("overload", "no shedding", None),
    ):
        if part not in chosen.parts:
            continue
        run = pipeline(work, shed)
        result, seen = timed(run, table, sent, chosen.workers)
        verified(run, table, result, work)
        found[label] = result
        curves.append(Curve(label, *per_second(seen), style="-"))
        text = (
            f"{label:<12} end to end mean {seen[:, 1].mean():,.0f} ms, in the last second "
            f"{curves[-1].y[-1]:,.0f} ms"
        )
        if shed is not None:
            report = result.report.shedding[0]
            text += (
                f"; {report.shed:,} of {report.tuples:,} shed ({report.share:.1%}); queueing mean "
                f"{report.mean_latency_ms:.0f} ms = "
                f"{report.mean_latency_ms / chosen.tau:.2f} tau, largest {report.max_latency_ms:.0f} ms; "
                f"{report.blind} admitted blind"
            )
        print(text, flush=True)
    if found:
        # Full Knowledge on the same arrivals; k workers of one speed are one instance that is k times as
        # fast.
        times = cost[keys] * (1e3 / capacity * chosen.workers / cost[keys].mean()) / chosen.workers
        known = Shedding("full-knowledge", AverageLatency(chosen.tau).compiled(), known=times)
        best_share = 1.0 - run_operator(known, 1, sent / 1e6, times, keys).admitted.mean()
        apart = [
            f"{label} {abs(one.report.shedding[0].share - best_share) * 100:.1f} points apart"
            for label, one in found.items()
            if one.report.shedding
        ]
        print(f"Full Knowledge drops {best_share:.1%}: {', '.join(apart)}")
    if "spare" in chosen.parts:
        spare(work, stream(round(min(3.0, chosen.seconds) * capacity))[1], model, chosen)

    if chosen.out is not None and "overload" in chosen.parts:
        chosen.out.mkdir(parents=True, exist_ok=True)
        log = found["saved model"].shed.log
        rows = [[c.label, int(x), float(y)] for c in curves for x, y in zip(c.x, c.y, strict=True)]
        when = np.bincount(log["at_ns"].to_numpy() // 1_000_000_000)
        result = Result(
            ["run", "second", "latency ms"],
            rows,
            [
                Chart("arrival (s)", "mean latency (ms)", curves, log_y=True),
                Chart("second", "tuples shed", [Curve("saved model", np.arange(len(when)), when)]),
            ],
            [],
        )
        write_csv(chosen.out / "shedding.csv", result)
        draw(
            "shedding",
            f"{chosen.load:.0%} load, tau = {chosen.tau:g} ms, {chosen.workers} workers",
            result,
            chosen.out,
        )


if __name__ == "__main__":
    main()
