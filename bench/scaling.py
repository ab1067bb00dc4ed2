"""Throughput over workers on this machine, beside what the simulated node predicts.

    python bench/scaling.py [--workers 1,2,4,...] [--runs N] [--pipelines NAME,...] [--chunks 1,auto]
    [--keep] [--measured]

Pipelines: stateless, keyed (Zipf-1) and mixed, 1 us and more of work, and a chain of 10 us operators; chunks
1, 64 and auto; the five TPCx-BB queries. Every output is verified first (closed form; `run_serial` for the
queries). JSON and a Markdown table with machine and commit go to bench/results/; `--keep` puts the JSON
where `ordstream bench sim-fig8` finds it and sets it beside its prediction
(ordstream/lab/simulation/scaling; without it: ORDSTREAM_SCALING=bench/results). `--measured` leaves the
simulation out: most of the time is its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from ordstream.ground.cpus import allowed_cpus
from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation import machine, ordered_subjects, simulated, simulation
from ordstream.lab.simulation import real
from ordstream.lab.simulation.cost_model import CostModel, chosen_path
from ordstream.lab.simulation.node import Stage, simulate

RESULTS = Path(__file__).resolve().parent / "results"
SECONDS = 0.5  # of a run, about
PILOT_ROWS, MOST_ROWS = 100_000, 8_000_000
TEN = (("SL", 10_000.0), ("PS", 10_000.0), ("SL", 10_000.0))
"""The chain "10 us" of `ordstream bench sim-fig8`: ns of work."""
MOST_SIMULATED = 60_000
"""Tuples of a prediction at chunk 1, where every tuple is some ten events."""


def numbers(text: str | None) -> list[int]:
    """1, 2, 4, ... up to this machine's cores, or what was asked for."""
    if text:
        return [int(part) for part in text.split(",")]
    found = [1]
    while 2 * found[-1] <= allowed_cpus():
        found.append(2 * found[-1])
    return sorted({*found, allowed_cpus()})


def sized(name: str, chunk: int | None, workers: int, options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A query, verified with these options, and rows that take four workers or fewer some `SECONDS`."""
    subject = ordered_subjects.query(name, PILOT_ROWS, 1)
    subject.check(options)
    took = real.run(subject.pipeline, subject.source(PILOT_ROWS), workers=1, chunk_rows=chunk).seconds
    rows = min(MOST_ROWS, int(PILOT_ROWS * SECONDS / took * min(workers, 4)))
    return subject.pipeline, subject.source(rows)


def measured(body: Any, runs: int) -> dict[str, Any]:
    """Median throughput, processing latency and CPU of some runs."""
    reports = [body().report for _ in range(runs)]

    def rate(report: Any) -> float:
        """Of the steady part."""
        return float(report.marker_tuples_per_second or report.tuples_per_second)

    rates = [rate(report) for report in reports]
    middle = sorted(reports, key=rate)[runs // 2]
    latency = middle.latency["processing"]
    return {
        "tuples_per_s": statistics.median(rates),
        "all": rates,
        "p50_us": latency.p50_us,
        "p99_us": latency.p99_us,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pipelines", default="")
    parser.add_argument(
        "--chunks",
        type=lambda text: [None if part == "auto" else int(part) for part in text.split(",")],
        default=[1, 64, None],
        help="1,64,auto",
    )
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--measured", action="store_true", help="without the simulation's predictions")
    chosen = parser.parse_args()
    model, step = CostModel.load(chosen_path()), real.step_ns()
    chains = {**simulation.PIPELINES, "10 us": TEN}
    names = [name for name in chosen.pipelines.split(",") if name] or [
        *chains,
        *ordered_subjects.QUERY_NAMES,
    ]
    rows = []
    for name in names:
        for chunk in chosen.chunks:
            first = 0.0
            for workers in numbers(chosen.workers):
                options: dict[str, Any] = {"workers": workers, "chunk_rows": chunk}
                if name in chains:
                    chain = real.Chain(tuple((kind, round(ns / step)) for kind, ns in chains[name]))
                    real.verify(chain, 5_000, **options)
                    work = sum(ns for _, ns in chains[name])
                    batches = chain.batches(int(SECONDS * 1e9 * workers / (work + 200)))
                    stages = [
                        Stage(f"{i} {kind}", kind, ns, hashes=real.hashes(), row_bytes=16.0)
                        for i, (kind, ns) in enumerate(chains[name])
                    ]
                else:
                    chain, batches = sized(name, chunk, workers, options)
                options["marker_every"] = max(1, sum(batch.num_rows for batch in batches) // 1000)
                found = measured(
                    lambda chain=chain, batches=batches, options=options: real.run(
                        chain, batches, **options
                    ),
                    chosen.runs,
                )
                predicted = {}
                if not chosen.measured:
                    if name not in chains:
                        stages = list(simulated.query_stages(name, 1, chunk, workers))
                    tuples = simulated.tuples_for(stages, workers, chunk)
                    outcome = simulate(
                        stages,
                        model,
                        workers,
                        min(tuples, MOST_SIMULATED) if chunk == 1 else tuples,
                        chunk_rows=chunk,
                        cores=allowed_cpus(),
                    )
                    predicted = {"simulated": outcome.throughput}
                first = first or found["tuples_per_s"] / workers
                rows.append(
                    {"pipeline": name, "chunk": chunk or "auto", "workers": workers, **found}
                    | {"speed_up": found["tuples_per_s"] / first, **predicted}
                )
    about = machine.about(" ".join(["python bench/scaling.py", *sys.argv[1:]]))
    heads = ("pipeline", "chunk", "workers", "tuples_per_s", "speed_up", "p50_us", "p99_us")
    heads += () if chosen.measured else ("simulated",)
    lines = [f"{about['processor']}, {about['cpus']} CPUs, commit {about['commit']}, {about['date']}", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += [
        "| "
        + " | ".join(f"{row[h]:,.2f}" if isinstance(row[h], float) else str(row[h]) for h in heads)
        + " |"
        for row in rows
    ]
    RESULTS.mkdir(exist_ok=True)
    target = (
        RESULTS / f"scaling-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{about['commit'].rstrip('+')}"
    )
    text = json.dumps({"about": about, "rows": rows}, indent=1) + "\n"
    write_whole(target.with_suffix(".json"), text)
    if chosen.keep:
        simulated.SCALING.mkdir(exist_ok=True)
        write_whole(simulated.SCALING / f"{about['cpus']}-cpus-{about['date']}.json", text)
    write_whole(target.with_suffix(".md"), "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
