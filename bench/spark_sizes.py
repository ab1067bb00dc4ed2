"""What the largest task of a job over Spark's nodes has: input, memory and spill, by the number of nodes.

    PYTHONPATH=. python bench/spark_sizes.py [--scale 10 | --rows 6770000] [--nodes 2,8] [--queries q2,q4]
        [--data FOLDER] [--memory 3g] [--no-verify]

Queries 2 and 4 of TPCx-BB with `emit="final"` over generated clicks, which are written to Parquet piece by
piece and read by Spark: nothing of it is all in memory, so that the scale is bounded by the disk. One
session with one task per core; the input has as many partitions as the job has nodes, as far as Spark cuts
files so small, and so has the sort. Per stage and for the job: Spark's own metrics (its status store) of the
task that has most of each: rows of the source, rows and bytes from a shuffle, and so on. `Python MB` is the
largest resident size of a Python worker, looked at ten times a second. The answer is compared with that of
one node without Spark. One JSON object per job, then a table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from ordstream.ground.cpus import allowed_cpus
from ordstream.tpcxbb.generator import generate_clicks
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.queries import q2, q4
from ordstream.tpcxbb.schema import CLICK_ORDER

FIGURES = (
    "source_rows", "shuffled_rows", "shuffled_bytes", "memory_bytes", "spilled_bytes", "written_bytes",
)  # fmt: skip
SAMPLE_SECONDS = 0.1


def of_task(metrics: Any) -> dict[str, int]:
    """Spark's metrics of one task."""
    read, shuffled = metrics.inputMetrics(), metrics.shuffleReadMetrics()
    return {
        "source_rows": int(read.recordsRead()),
        "shuffled_rows": int(shuffled.recordsRead()),
        "shuffled_bytes": int(shuffled.remoteBytesRead()) + int(shuffled.localBytesRead()),
        "memory_bytes": int(metrics.peakExecutionMemory()),
        "spilled_bytes": int(metrics.diskBytesSpilled()),
        "written_bytes": int(metrics.shuffleWriteMetrics().bytesWritten()),
    }


def largest_tasks(spark: Any, first: int) -> tuple[list[dict[str, int]], int]:
    """Of each stage from this number on: its tasks, and the largest figure of one; the next number."""
    store = spark.sparkContext._jsc.sc().statusStore()
    empty = spark.sparkContext._jvm.java.util.ArrayList()
    doubles = spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.double, 0)
    given = store.stageList(empty, False, False, doubles, empty)
    found = []
    for number in range(given.size()):
        stage = given.apply(number)
        if int(stage.stageId()) < first or str(stage.status().toString()) != "COMPLETE":
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
        every = [of_task(tasks.apply(k).taskMetrics().get()) for k in range(tasks.size())]
        largest = {name: max(one[name] for one in every) for name in FIGURES}
        found.append({"stage": int(stage.stageId()), "tasks": len(every)} | largest)
    found.sort(key=lambda one: one["stage"])
    return found, 1 + max((one["stage"] for one in found), default=first - 1)


@contextmanager
def largest_worker() -> Iterator[list[int]]:
    """Inside, the largest resident size of a Python worker of this session so far, in bytes."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            for one in psutil.Process().children(recursive=True):
                try:
                    if "pyspark" in " ".join(one.cmdline()) and one.name().startswith("python"):
                        most[0] = max(most[0], one.memory_info().rss)
                except psutil.Error:  # it has ended
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def main() -> None:
    """Print a JSON object per job, and a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--scale", type=float)
    size.add_argument("--rows", type=int)
    parser.add_argument("--nodes", default="2,8")
    parser.add_argument("--queries", default="q2,q4")
    parser.add_argument("--data", type=Path, help="folder of the clicks; default: a temporary one")
    parser.add_argument("--memory", default="3g", help="Java's heap")
    parser.add_argument("--no-verify", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scale = None if given.rows else given.scale or 10.0
        path = generate_clicks(given.data or Path(scratch) / "clicks", given.rows, scale=scale)
        measured(given, DataFolder(path))


def measured(given: argparse.Namespace, folder: DataFolder) -> None:
    """All jobs over the clicks of a folder."""
    from ordstream.spark import apply, local_session

    settings = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
    spark = local_session(allowed_cpus(), node_cores=1, memory=given.memory, settings=settings)
    made = {"q2": q2, "q4": q4}
    jobs, next_stage = [], 0
    for name in given.queries.split(","):
        pipeline = made[name](folder.side_tables())
        answer = None if given.no_verify else pipeline.run(folder.clicks(), emit="final").table
        for nodes in map(int, given.nodes.split(",")):
            for setting in ("spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum"):
                spark.conf.set(setting, str(nodes))
            frame, begin = folder.clicks_dataframe(spark), time.perf_counter()
            with largest_worker() as worker:
                found = apply(pipeline, frame, order_by=CLICK_ORDER, nodes=nodes, emit="final").toArrow()
            assert answer is None or found.cast(answer.schema).equals(answer), f"{name}, {nodes} nodes"
            stages, next_stage = largest_tasks(spark, next_stage)
            most = {what: max(one[what] for one in stages) for what in FIGURES}
            jobs.append(
                {"query": name, "nodes": nodes, "rows": folder.rows("web_clickstreams"), "stages": stages}
                | most
                | {"python_bytes": worker[0], "seconds": round(time.perf_counter() - begin, 1)}
            )
            print(json.dumps(jobs[-1]), flush=True)
    spark.stop()
    show(jobs)


def show(jobs: list[dict[str, Any]]) -> None:
    """The table: the largest task of each job."""
    print(f"{'query':6}{'nodes':>6}{'rows':>14}{'its source':>14}{'shuffled':>14}{'MB':>9}"
          f"{'memory MB':>11}{'spill MB':>10}{'Python MB':>11}")  # fmt: skip
    for job in jobs:
        rows = "".join(f"{job[one]:14,}" for one in ("rows", "source_rows", "shuffled_rows"))
        names = ("shuffled_bytes", "memory_bytes", "spilled_bytes", "python_bytes")
        sizes = [job[one] / 1e6 for one in names]
        print(f"{job['query']:6}{job['nodes']:6}{rows}{sizes[0]:9.1f}{sizes[1]:11.1f}{sizes[2]:10.1f}"
              f"{sizes[3]:11.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
