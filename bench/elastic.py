"""workers="auto" against fixed numbers: the five TPCx-BB queries, and an open loop whose load changes.

    python bench/elastic.py [--rounds N] [--scale SF] [--rows N] [--queries q1,...]

Queries: the rows lie in memory as Arrow, every answer is compared with DuckDB's first, then fixed numbers
(1, 2, 4, ... up to the CPUs) and auto run in turn. Best is the fixed number with the lowest median; the
figure is the median over rounds of its time over auto's (target: at least 0.9). Runs shorter than 0.1 s are
repeated within a round.

Changing load: tuples of 1 us of work arrive at 10 %, 90 %, then 10 % of what all workers can do. The active
workers and the latencies of the three parts are written to a CSV, and drawn where matplotlib is installed.
Order and values are checked.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import ROOT, check, data, spins_for, stateless

from ordstream.commands.engines import Job, by_sql
from ordstream.ground.cpus import allowed_cpus
from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation.machine import about
from ordstream.node import node
from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.queries import QUERIES

RESULTS = ROOT / "bench" / "results"
TARGET = 0.9
SHORTEST_S = 0.1
PARTS = (0.1, 0.9, 0.1)  # of the capacity
Numbers = list[int | str]


def fixed_numbers() -> list[int]:
    """1, 2, 4, ... and the CPUs that this process may use."""
    most = allowed_cpus()
    return sorted({most, *(1 << k for k in range(most.bit_length()) if 1 << k <= most)})


def query(name: str, folder: DataFolder, rounds: int) -> dict[str, Any]:
    """Times of one query with every fixed number and with auto; answers compared with DuckDB's first."""
    found = QUERIES[name]
    job = Job(found, found.profiles["paper"], folder)
    pipeline, expected = job.pipeline(), by_sql(job).answer
    table = pa.Table.from_batches(list(folder.stream(found.source)))
    numbers: Numbers = [*fixed_numbers(), "auto"]
    runs = 1
    for workers in numbers:
        result = pipeline.run(table, workers=workers, emit="final")
        rows = list(zip(*(column.to_pylist() for column in result.table.columns), strict=True))
        difference = batch.first_difference(found.answer(rows, **job.parameters), expected)
        if difference is not None:
            raise AssertionError(
                f"{name} with workers={workers} is not equal to DuckDB's answer: {difference}"
            )
        runs = max(1, round(SHORTEST_S / result.report.seconds))
    walls: dict[int | str, list[float]] = {workers: [] for workers in numbers}
    reports = []
    for _ in range(rounds):
        for workers in numbers:
            begin = time.perf_counter()
            for _ in range(runs):
                result = pipeline.run(table, workers=workers, emit="final")
            walls[workers].append((time.perf_counter() - begin) / runs)
            if workers == "auto" and result.report.elastic is not None:
                reports.append(result.report.elastic)
        numbers.reverse()  # a drift of the machine favours nobody
    medians = {workers: statistics.median(seconds) for workers, seconds in walls.items()}
    best = min(fixed_numbers(), key=medians.__getitem__)
    ratio = statistics.median(a / b for a, b in zip(walls[best], walls["auto"], strict=True))
    return {
        "query": name, "tuples": table.num_rows, "best": best, "ratio": ratio, "met": ratio >= TARGET,
        "seconds": {str(workers): seconds for workers, seconds in medians.items()},
        "all_seconds": {str(workers): seconds for workers, seconds in walls.items()},
        "mean_workers": statistics.mean(r.mean for r in reports) if reports else 1.0,
        "changes": statistics.median(r.changes for r in reports) if reports else 0,
    }  # fmt: skip


def changing_load(seconds: float, path: Path) -> dict[str, Any]:
    """An open loop in three parts; returns the mean of active workers and latencies by part, writes the
    series as CSV.
    """
    spins = spins_for(1_000)
    chain = stateless(spins)
    trial = 400_000
    begin = time.perf_counter()
    node.run(chain, data().batches(trial, False), workers=allowed_cpus(), marker_every=1 << 40)
    capacity = trial / (time.perf_counter() - begin)
    counts = [round(capacity * part * seconds) for part in PARTS]
    gaps = np.repeat([1e9 / (capacity * part) for part in PARTS], counts)
    arrivals = (np.cumsum(gaps) - gaps[0]).astype(np.int64)
    tuples = len(arrivals)
    series: list[tuple[float, int]] = []
    ended = threading.Event()
    outcome: dict[str, Any] = {"capacity": capacity, "parts": {}}
    for workers in (allowed_cpus(), "auto"):
        series.clear()
        ended.clear()
        results: list[np.ndarray] = []
        with node.stream(
            chain, data().batches(tuples, False), workers=workers, arrivals=arrivals, marker_every=64
        ) as stream:
            start = time.perf_counter()

            def watch(stream: Any = stream, start: float = start) -> None:
                while not ended.wait(0.005):
                    series.append((time.perf_counter() - start, stream.active_workers))

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            results.extend(out.column(0).to_numpy() for out in stream)
            ended.set()
            watcher.join()
        check(np.concatenate(results), data().expected(tuples, spins, False))
        latency = stream.report.latency["end_to_end"]
        outcome["parts"][str(workers)] = {
            "mean_workers": [
                statistics.mean([n for at, n in series if k * seconds <= at < (k + 1) * seconds] or [0])
                for k in range(len(PARTS))
            ],
            "p50_us": latency.p50_us, "p95_us": latency.p95_us, "p99_us": latency.p99_us,
        }  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "offered tuples/s", "active workers"])
        for at, active in series:
            part = PARTS[min(int(at / seconds), len(PARTS) - 1)]
            writer.writerow([f"{at:.4f}", round(capacity * part), active])
    draw(series, seconds, path)
    return outcome


def draw(series: list[tuple[float, int]], seconds: float, path: Path) -> None:
    """The series as PNG and SVG beside the CSV; nothing without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return
    figure, axes = pyplot.subplots(figsize=(7, 2.8), layout="constrained")
    axes.step([at for at, _ in series], [n for _, n in series], where="post", label="active workers")
    offered = [part * allowed_cpus() for part in PARTS for _ in (0, 1)]
    axes.plot(
        [k * seconds for part in range(len(PARTS)) for k in (part, part + 1)],
        offered,
        "--",
        label="load, workers' worth",
    )
    axes.set(xlabel="seconds", ylabel="workers", ylim=(0, allowed_cpus() + 0.5))
    axes.legend(loc="upper right")
    for ending in (".png", ".svg"):
        figure.savefig(path.with_suffix(ending), dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rows", type=int, help="clicks, in place of a scale factor")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of each part of the changing load; 0: leave it out"
    )
    parser.add_argument(
        "--data", type=Path, help="folder for the rows, which are kept (default: one in data/)"
    )
    asked = parser.parse_args()
    what = f"{asked.rows}-rows" if asked.rows else f"sf{asked.scale:g}"
    sizes = Sizes.for_rows(asked.rows) if asked.rows else Sizes.at_scale(asked.scale)
    folder = DataFolder(
        generate_clicks(
            asked.data or ROOT / "data" / f"tpcxbb-{what}", asked.rows, sizes=sizes, store_sales=True
        )
    )
    found: dict[str, Any] = {"about": about("python bench/elastic.py"), "queries": []}
    stem = f"elastic-{found['about']['time'].replace(':', '')}-{found['about']['commit'].rstrip('+')}"
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in filter(None, asked.queries.split(",")):
        one = query(name, folder, asked.rounds)
        found["queries"].append(one)
        times = ", ".join(f"{workers}: {seconds:.3f}" for workers, seconds in one["seconds"].items())
        print(
            f"{name:4} {one['tuples']:>10,} tuples  s by workers {times}  "
            f"best {one['best']} / auto {one['ratio']:.2f} "
            f"{'PASS' if one['met'] else 'short'}  ({one['mean_workers']:.2f} active)",
            flush=True,
        )
    if asked.seconds > 0:
        found["changing_load"] = changing_load(asked.seconds, RESULTS / f"{stem}.csv")
        print(json.dumps(found["changing_load"], indent=1))
    write_whole(RESULTS / f"{stem}.json", json.dumps(found, indent=1) + "\n")
    print(f"saved: bench/results/{stem}.json")


if __name__ == "__main__":
    main()
