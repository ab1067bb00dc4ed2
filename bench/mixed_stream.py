"""Keys that move between micro-batches, against other ways to spread keys: job throughput, and how even the
loads are over time.

    python bench/mixed_stream.py [--rows N] [--batches 16] [--nodes 2 4] [--rounds 1] [--work 10]

The jobs and the ways are those of `mixed_jobs.py`. First each way's output over few rows is compared with
`run_serial`, value for value. Throughput is the rows of all batches but the first over their whole time:
Spark's job, planning, moving, commit. Load of a batch is the work of its rows at a node, counted
(`mixed_jobs.stages`): largest over mean. CPU seconds are over the same batches: of the driver, of Java, of
its Python workers, and, where nodes tell of them, of the operators in each node. Java takes about 0.9 for a
batch, whatever its rows do: with little `--work` the way to spread keys does not show in the throughput.
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mixed_jobs as jobs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.kept_maps import map_of
from ordstream.testing import run_serial

ROWS = {"words": 100_000, "join": 50_000, "q5": 100_000}


@dataclass
class Run:
    """One stream over all batches."""

    epochs: list[dict[str, Any]]
    log: EpochLog
    cpu: dict[str, float]  # seconds, behind the first batch

    def throughput(self, rows: int) -> float:
        """Rows a second, the first batch left out."""
        behind = self.epochs[1:]
        return rows * len(behind) / sum(one["latency_ms"] / 1e3 for one in behind)

    def largest(self, given: dict[int, list[Any]], nodes: int) -> list[float]:
        """Largest load over the mean, by batch; `given`: the keys and the work of each (`jobs.stages`)."""
        found = []
        for number, manifest in enumerate(self.log.all()):
            held = {int(one): map_of(base64.b64decode(data)) for one, data in manifest.maps.items()}

            def node_of(fragment: int, keys: np.ndarray, _: Any, held: dict[int, Any] = held) -> np.ndarray:
                return held[fragment].route(keys) if fragment in held else jobs.plainly_hashed(keys, nodes)

            loads = jobs.loads(given, number, nodes, node_of)
            found.append(float(loads.max() / loads.mean()))
        return found


def cpu_seconds() -> dict[str, float]:
    """CPU time so far of this process, of Java under it, and of Java's Python workers."""
    tick, parents, spent, java = os.sysconf("SC_CLK_TCK"), {}, {}, set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it is gone
            continue
        number, rest = int(path.parent.name), text.rpartition(")")[2].split()
        parents[number] = int(rest[1])
        spent[number] = sum(map(int, rest[11:15])) / tick  # with children that are gone
        if "(java)" in text:
            java.add(number)
    found = dict.fromkeys(("driver", "java", "workers"), 0.0)
    for number in spent:
        above = number
        while above not in (os.getpid(), 0):
            above = parents.get(above, 0)
        if above:
            kind = "driver" if number == above else "java" if number in java else "workers"
            own = sum(os.times()[:2]) if kind == "driver" else spent[number]
            found[kind] += own
    return found


def run(spark: Any, folder: Path, job: str, way: str, nodes: int, work: int, made: list[pa.Table]) -> Run:
    """Stream the batches, a file each."""
    (folder / "in").mkdir(parents=True)
    for number, rows in enumerate(made):
        path = folder / "in" / f"{number:05}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    fields = ", ".join(
        f"{one.name} {'string' if one.type == pa.string() else 'long'}" for one in made[0].schema
    )
    reader = spark.readStream.schema(fields).option("maxFilesPerTrigger", 1)
    epochs: list[dict[str, Any]] = []
    spent: list[dict[str, float]] = []

    def heard(told: dict[str, Any]) -> None:
        epochs.append(told)
        spent.append(cpu_seconds())

    query = od.spark.stream(
        jobs.pipeline(job, way, work), reader.parquet(str(folder / "in")), checkpoint=folder / "c",
        order_by="n", nodes=nodes, trigger="available now", on_epoch=heard, **jobs.options(job, way, nodes),
    )  # fmt: skip
    query.awaitTermination()
    cpu = {name: spent[-1][name] - spent[0][name] for name in spent[0]}
    told = [one["cpu_seconds"] for epoch in epochs[1:] for one in epoch["balance"].values()]
    cpu |= {f"node {node}": sum(one[node] for one in told) for node in range(nodes if told else 0)}
    return Run(epochs, EpochLog(folder / "c"), cpu)


def verified(spark: Any, folder: Path, job: str, way: str, nodes: int, work: int, seed: int) -> bool:
    """Whether a short stream gives `run_serial`'s output."""
    made = jobs.tables(job, way, nodes, 3_000, 4, seed)
    run(spark, folder, job, way, nodes, work, made)
    found = [tuple(row) for row in od.spark.read_output(folder / "c").collect()]
    return found == [tuple(row) for row in run_serial(*jobs.reference(job, way, work, made)).rows]


def moves(found: Run) -> dict[str, int]:
    """What moved, over all batches."""
    told = [one for epoch in found.epochs for one in epoch["balance"].values()]
    return {
        "keys": sum(one["moved"]["by_plan"]["keys"] for one in told),
        "bytes": sum(one["moved"]["by_plan"]["bytes"] for one in told),
        "moves": sum(one["moved"]["by_plan"]["keys"] > 0 for one in told),
    }


def main() -> int:
    """Verify, measure, show."""
    parser = jobs.parser(__doc__, ROWS, rounds=1, work=100)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 4])
    asked = parser.parse_args()
    spark = od.spark.local_session(2, node_cores=1)
    for module in (jobs, jobs.q5):  # functions go to the workers by their names
        spark.sparkContext.addPyFile(module.__file__)
    shown: dict[str, Any] = {"load": os.getloadavg(), "figures": []}
    with tempfile.TemporaryDirectory(prefix="ordstream-bench-") as name:
        folder = Path(name)
        for job in asked.jobs:
            for way in jobs.ways(job, asked):
                checked = folder / f"check-{job}-{way}"
                if not verified(spark, checked, job, way, 2, asked.work, asked.seed):
                    print(f"{job} {way}: WRONG OUTPUT", file=sys.stderr)
                    return 1
            print(f"{job}: every way's output is run_serial's", flush=True)
            for nodes in asked.nodes:
                measure(spark, folder, job, nodes, asked, shown["figures"])
    print(f"{time.strftime('%Y-%m-%d')}, load {shown['load'][0]:.1f}", file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(shown, indent=1))
    spark.stop()
    return 0


def measure(
    spark: Any, folder: Path, job: str, nodes: int, asked: Any, figures: list[dict[str, Any]]
) -> None:
    """All ways in turn, so that what the machine does besides meets all alike."""
    rows = asked.rows or ROWS[job]
    rates: dict[str, list[float]] = {way: [] for way in jobs.ways(job, asked)}
    last: dict[str, dict[str, Any]] = {}
    for turn in range(asked.rounds):
        for way in rates:
            made = jobs.tables(job, way, nodes, rows, asked.batches, asked.seed, asked.bursts)
            kept = folder / f"{job}-{way}-{nodes}-{turn}"
            found = run(spark, kept, job, way, nodes, asked.work, made)
            rates[way].append(found.throughput(rows))
            loads = found.largest(jobs.stages(job, way, asked.work, made), nodes)
            last[way] = {"loads": loads, "cpu": found.cpu} | moves(found)
    for way, told in last.items():
        rate, loads = statistics.median(rates[way]), told["loads"]
        against = statistics.median(
            mine / other for mine, other in zip(rates[way], rates["hash"], strict=True)
        )
        figures.append({"job": job, "nodes": nodes, "way": way, "rates": rates[way], **told})
        print(
            f"{job:6} {nodes} nodes  {way:6} {rate:10,.0f} rows/s  {against:5.2f} x hash   largest/mean "
            f"{statistics.mean(loads):.2f} (most {max(loads):.2f})   {told['moves']} moves, "
            f"{told['keys']:,} keys, {told['bytes']:,} bytes"
        )
        print("         by batch: " + " ".join(f"{one:.2f}" for one in loads))
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in told["cpu"].items())
        print(f"         CPU s: {spent}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
