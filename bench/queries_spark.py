"""The jobs of bench/queries.py inside Spark: the ordered node against Spark SQL, applyInPandas and a bare
mapInArrow.

The input is one Parquet file of the clicks, already in order. Two Spark sessions live beside each other,
each in a process of its own, and only one works at a time: `node` (one task that holds all cores, as ordered
nodes need) and `baseline` (one task per core). Both have as many cores and shuffle partitions as the machine
has processors. Jobs run in turn; CPU seconds are those of the session's whole process tree, the Java virtual
machine included.

Java compiles while it runs, so the first runs of every job are slower. Before anything is counted each job
runs for WARM_SECONDS, at least twice: all get the same time, in the session that they are counted in.
`spread` is the slowest counted run over the fastest. `Python MB`: largest resident size of the session's
Python workers, together, while the job ran; rows on their way lie in Java's heap besides.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from harness import BUILD, ROOT
from query_rivals import SQL, TIMEOUT
from rivals.memory import largest_kib

WARM_SECONDS = 9.0
WARM_RUNS = 2
STEADY = 1.25  # a job whose slowest counted run takes so many times the fastest is told

GROUPS = 64  # of applyInPandas: one call per user would be thousands of times slower
ROW_GROUP = 1 << 20

JOBS = {
    "node": (
        "q2 node",
        "q2 node, sorted by Spark",
        "q4 node",
        "q4 node, sorted by Spark",
        "mapInArrow, read only, one task",
    ),
    "baseline": ("q2 Spark SQL", "q4 Spark SQL", "q4 applyInPandas", "mapInArrow, read only"),
}

FIGURES = (
    # query, what, least, most, how
    ("q2", "wall Spark SQL / node", 5.0, None, lambda w, c: w["q2 Spark SQL"] / w["q2 node"]),
    (
        "q2",
        "wall Spark SQL / node sorted by Spark",
        None,
        None,
        lambda w, c: w["q2 Spark SQL"] / w["q2 node, sorted by Spark"],
    ),
    ("q4", "wall Spark SQL / node", 2.0, None, lambda w, c: w["q4 Spark SQL"] / w["q4 node"]),
    ("q4", "CPU Spark SQL / node", 3.0, None, lambda w, c: c["q4 Spark SQL"] / c["q4 node"]),
    (
        "q4",
        "wall Spark SQL / node sorted by Spark",
        None,
        None,
        lambda w, c: w["q4 Spark SQL"] / w["q4 node, sorted by Spark"],
    ),
    ("q4", "wall applyInPandas / node", 2.0, None, lambda w, c: w["q4 applyInPandas"] / w["q4 node"]),
    (
        "q4",
        "wall (node - read only) / read only",
        None,
        0.5,
        lambda w, c: w["q4 node"] / w["mapInArrow, read only, one task"] - 1,
    ),
)


# --- in a session's process -----------------------------------------------------------------------


def serve(kind: str, parquet: str) -> None:
    """A session: runs the job named on each line of stdin, answers with a line of JSON."""
    import psutil

    from ordstream.ground.cpus import allowed_cpus
    from ordstream.spark import local_session

    cores = allowed_cpus()
    spark = local_session(cores, node_cores=cores if kind == "node" else 1, memory="4g")
    jobs = jobs_of(spark, spark.read.parquet(parquet))
    print(json.dumps({"ready": kind, "spark": spark.version}), flush=True)
    for line in sys.stdin:
        forget_peaks(psutil.Process())
        cpu, start = tree_cpu(psutil.Process()), time.perf_counter()
        answer = jobs[line.strip()]()
        wall = time.perf_counter() - start
        used = {
            "wall_s": wall,
            "cpu_s": tree_cpu(psutil.Process()) - cpu,
            "python_mb": peak_mb(psutil.Process()),
        }
        print(json.dumps(used | {"answer": answer}), flush=True)
    spark.stop()


def workers(process: Any) -> Iterator[Path]:
    """Python workers below a process, as folders of /proc."""
    for one in process.children(recursive=True):
        folder = Path(f"/proc/{one.pid}")
        with contextlib.suppress(OSError):  # ended, or no Linux
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                yield folder


def forget_peaks(process: Any) -> None:
    """Count the workers' largest sizes from now on."""
    for folder in workers(process):
        with contextlib.suppress(OSError):
            (folder / "clear_refs").write_text("5")


def peak_mb(process: Any) -> float:
    """Largest resident sizes of the workers that are there now, added up."""
    total = 0
    for folder in workers(process):
        with contextlib.suppress(OSError):
            total += largest_kib((folder / "status").read_text())
    return total / 1024


def tree_cpu(process: Any) -> float:
    """CPU seconds of a process and all below it, those that have ended included."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def jobs_of(spark: Any, clicks: Any) -> dict[str, Callable[[], list[list[int]]]]:
    """Every job by name; each returns its answer."""
    from queries import CLICK_STREAM, COLUMNS, pipeline

    from ordstream import spark as ordered

    def node(query: str, presorted: bool) -> list[list[int]]:
        needed = COLUMNS[query]  # Spark SQL leaves the other columns out by itself
        schema = pa.schema([CLICK_STREAM.field(name) for name in needed])
        frame = ordered.apply(
            pipeline(query, schema), clicks.select(*needed), order_by="ts", presorted=presorted, emit="final"
        )
        return [list(row)[: 3 if query == "q2" else None] for row in frame.collect()]

    def sql(text: str) -> list[list[int]]:
        clicks.selectExpr(
            "ts", "wcs_user_sk AS u", "wcs_item_sk AS i", "wcs_web_page_sk AS p"
        ).createOrReplaceTempView("clicks")
        return [list(row) for row in spark.sql(text).collect()]

    def in_pandas() -> list[list[int]]:
        groups = clicks.selectExpr(
            f"pmod(wcs_user_sk, {GROUPS}) AS g", "wcs_user_sk AS u", "wcs_web_page_sk AS p", "ts"
        )
        (row,) = (
            groups.groupBy("g")
            .applyInPandas(abandoned, "clicks long, sessions long")
            .groupBy()
            .sum()
            .collect()
        )
        return [list(row)]

    def read_only(one_task: bool) -> list[list[int]]:
        needed = clicks.select(*COLUMNS["q4"])
        (row,) = (
            (needed.coalesce(1) if one_task else needed)
            .mapInArrow(counted, "n long")
            .groupBy()
            .sum()
            .collect()
        )
        return [list(row)]

    return {
        "q2 node": partial(node, "q2", True),
        "q2 node, sorted by Spark": partial(node, "q2", False),
        "q4 node": partial(node, "q4", True),
        "q4 node, sorted by Spark": partial(node, "q4", False),
        "q2 Spark SQL": partial(sql, SQL["q2"]),
        "q4 Spark SQL": partial(sql, SQL["q4"]),
        "q4 applyInPandas": in_pandas,
        "mapInArrow, read only": partial(read_only, False),
        "mapInArrow, read only, one task": partial(read_only, True),
    }


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The number of rows, and nothing else."""
    yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


def abandoned(frame: Any) -> Any:
    """Q4 of a group of users, in pandas: (clicks, sessions)."""
    import pandas as pd
    from clicks import DYNAMIC_PAGES, ORDER_PAGES

    frame = frame.sort_values(["u", "ts"], kind="stable")
    opens = (frame["u"] != frame["u"].shift()) | (frame["ts"].diff() > TIMEOUT)
    page = frame["p"]
    marks = pd.DataFrame(
        {
            "n": opens.cumsum(),
            "dynamic": page < DYNAMIC_PAGES.stop,
            "ordered": (page >= ORDER_PAGES.start) & (page < ORDER_PAGES.stop),
        }
    )
    sessions = marks.groupby("n").agg(
        clicks=("n", "size"), dynamic=("dynamic", "max"), ordered=("ordered", "max")
    )
    kept = sessions[sessions["dynamic"] & ~sessions["ordered"]]
    return pd.DataFrame({"clicks": [kept["clicks"].sum()], "sessions": [len(kept)]})


# --- in the process that measures -----------------------------------------------------------------


class Session:
    """A session's process."""

    def __init__(self, kind: str, parquet: Path) -> None:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "bench")])
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), kind, str(parquet)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.version = self._answer()["spark"]

    def run(self, job: str) -> dict[str, Any]:
        """Run a job: wall_s, cpu_s, answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(job + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the session."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the Spark session ended; see above")
        found: dict[str, Any] = json.loads(line)
        return found


def parquet_file(table: pa.Table) -> Path:
    """The clicks as one Parquet file under build/, made once."""
    path = BUILD / f"clicks-{table.num_rows}.parquet"
    if not path.exists():
        pyarrow.parquet.write_table(table, path, row_group_size=ROW_GROUP)
    return path


def measure(
    table: pa.Table, answers: dict[str, Any], rounds: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Medians per job and the ratios, after every answer was verified in a first round that is not
    counted.
    """
    from queries import alone

    sessions = {kind: Session(kind, parquet_file(table)) for kind in JOBS}
    order = [(kind, job) for kind, jobs in JOBS.items() for job in jobs]
    runs: dict[str, list[dict[str, Any]]] = {job: [] for _, job in order}

    def run(kind: str, job: str) -> dict[str, Any]:
        one = sessions[kind].run(job)
        expected = [list(row) for row in answers[job[:2]]] if job[:2] in answers else [[table.num_rows]]
        if one.pop("answer") != expected:
            raise AssertionError(f"{job}: a wrong answer")
        return one

    try:
        for kind, job in order:
            warm = [run(kind, job)["wall_s"]]
            while len(warm) < WARM_RUNS or sum(warm) < WARM_SECONDS:
                warm.append(run(kind, job)["wall_s"])
            print(f"warmed up: {job:36}{' '.join(f'{wall:.2f}' for wall in warm)} s", flush=True)
        for number in range(rounds):
            for kind, job in order if number % 2 else reversed(order):
                runs[job].append(run(kind, job))
    finally:
        for session in sessions.values():
            session.close()
    medians = {
        job: {
            figure: statistics.median(one[figure] for one in ran)
            for figure in ("wall_s", "cpu_s", "python_mb")
        }
        for job, ran in runs.items()
    }
    spreads = {
        job: max(one["wall_s"] for one in ran) / min(one["wall_s"] for one in ran)
        for job, ran in runs.items()
    }
    print(f"\nSpark {sessions['node'].version}: median of {rounds} rounds")
    print(f"{'':36}{'wall s':>9}{'CPU s':>9}{'Python MB':>11}{'spread':>8}")
    for job, one in medians.items():
        told = "  unsteady" if spreads[job] > STEADY else ""
        print(
            f"{job:36}{one['wall_s']:9.2f}{one['cpu_s']:9.2f}{one['python_mb']:11.0f}"
            f"{spreads[job]:8.2f}{told}"
        )
    walls = {job: one["wall_s"] for job, one in medians.items()}
    cpus = {job: one["cpu_s"] for job, one in medians.items()}
    ratios = []
    for query, what, least, most, how in FIGURES:
        value = how(walls, cpus)
        met = (least is None or value >= least) and (most is None or value <= most)
        verdict = "" if least is None and most is None else "PASS" if met else "short"
        ratios.append(
            {
                "query": query,
                "what": what,
                "value": value,
                "at_least": least,
                "at_most": most,
                "verdict": verdict,
            }
        )
    duckdb_mb = alone("q2", "DuckDB", table.num_rows)["peak_mb"]
    value = medians["q2 node"]["python_mb"] / duckdb_mb
    verdict = "PASS" if value <= 1.0 else "short"
    what = f"peak memory of the node's Python worker / DuckDB ({duckdb_mb:.0f} MB)"
    ratios.append(
        {"query": "q2", "what": what, "value": value, "at_least": None, "at_most": 1.0, "verdict": verdict}
    )
    return {"medians": medians, "runs": runs, "spreads": spreads, "duckdb_peak_mb": duckdb_mb}, ratios


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
