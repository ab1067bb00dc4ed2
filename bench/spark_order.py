"""What an order costs in Spark: a running sum per key over N nodes, beside Spark's own sort by the same
column and Spark's window function.

    PYTHONPATH=. python bench/spark_order.py [--rows 3000000] [--rounds 3] [--nodes 4] [--only order=]

The result is verified first, row for row. Then every job writes to Spark's `noop` sink, in turn, after a run
that does not count. CPU seconds are those of the session's whole process tree, Java and the Python workers;
`task` CPU is what Spark's task metrics say, which leave out Python workers, here on their own, and Java's
other threads. The `passed on` jobs are floors: a shuffle by key, a sort and `mapInArrow` that only passes
batches on, with a column more; by `ts` alone, and by all that breaks ties, in the two sorts of `apply`. For
each stage of the last run of every job: tasks, rows and bytes read, shuffled and spilled, from Spark's own
status store, and the largest single task's; what docs/scaling.md shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from queries_spark import tree_cpu
from spark_everyday import worker_cpu

import ordstream as od
from ordstream.ground.cpus import allowed_cpus

SOURCE = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("amount", pa.int64())])
KINDS = {"none": 1.3, "total": 2.5}  # of the sort's CPU: what is aimed at
STAGE_FIGURES = {
    "input_rows": "inputRecords",
    "shuffle_read_rows": "shuffleReadRecords",
    "shuffle_read_bytes": "shuffleReadBytes",
    "shuffle_write_rows": "shuffleWriteRecords",
    "shuffle_write_bytes": "shuffleWriteBytes",
    "spilled_bytes": "diskBytesSpilled",
}


def rows(count: int) -> pa.Table:
    """Rows out of order: time, one of count / 100 users, an amount."""
    random = np.random.default_rng(1)
    users = random.integers(0, max(1, count // 100), count)
    return pa.table([random.permutation(count), users, random.integers(-100, 100, count)], schema=SOURCE)


def pipeline() -> od.Pipeline:
    """A running sum per user."""
    return od.Pipeline(SOURCE).key_by("user").scan(balance=od.sum("amount"))


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with their last column once more."""
    for batch in batches:
        yield batch.append_column("balance", batch.column(2))


def jobs_of(frame: Any, nodes: int) -> dict[str, Callable[[], Any]]:
    """Every job by name; each returns the frame that is written."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from ordstream.spark import apply
    from ordstream.spark.file_key import file_key, with_row

    by_user = Window.partitionBy("user").orderBy("ts").rowsBetween(Window.unboundedPreceding, 0)
    jobs: dict[str, Callable[[], Any]] = {
        "Spark's sort": lambda: frame.orderBy("ts"),
        "Spark's window function": lambda: frame.withColumn("balance", F.sum("amount").over(by_user)),
        "its window function, sorted": lambda: frame.withColumn(
            "balance", F.sum("amount").over(by_user)
        ).orderBy("ts"),
        "one node": lambda: apply(pipeline(), frame, order_by="ts", nodes=1),
    }
    place = with_row(file_key(frame)[0], F.col("_metadata.row_index"))
    by_key = frame.select("*", place.alias("at")).repartition(nodes, "user")
    sorts = {"ts": by_key.drop("at").sortWithinPartitions("ts")}
    twice = by_key.sortWithinPartitions("ts").where(F.spark_partition_id() >= 0)
    sorts["ts, file and row"] = twice.sortWithinPartitions("ts", "at").drop("at")
    for name, rows in sorts.items():
        jobs[f"passed on, sorted by {name}"] = lambda rows=rows: rows.mapInArrow(
            passed, "ts long, user long, amount long, balance long"
        )
    for order in KINDS:
        jobs[f"order={order!r}"] = lambda order=order: apply(
            pipeline(), frame, order_by="ts", nodes=nodes, order=order
        )
    return jobs


def verify(jobs: dict[str, Callable[[], Any]], table: pa.Table) -> None:
    """Every job's rows are those of one node on this machine; in their order where they have one."""
    expected = pipeline().run(table.sort_by("ts")).table
    for name, job in jobs.items():
        if name == "Spark's sort" or name.startswith("passed on"):
            continue
        found = job().toArrow()
        found = found.rename_columns(expected.schema.names)
        if name not in ("one node", "order='total'", "its window function, sorted"):
            found = found.sort_by("ts")
        assert found.cast(expected.schema).equals(expected), name


def stages_since(spark: Any, first: int) -> tuple[list[dict[str, Any]], int]:
    """What Spark's status store says of the stages from this number on, and the next number."""
    store = spark.sparkContext._jsc.sc().statusStore()
    empty = spark.sparkContext._jvm.java.util.ArrayList()
    given = store.stageList(empty, False, False, spark.sparkContext._gateway.new_array(
        spark.sparkContext._jvm.double, 0), empty)  # fmt: skip
    found = []
    for number in range(given.size()):
        stage = given.apply(number)
        if int(stage.stageId()) < first or str(stage.status().toString()) != "COMPLETE":
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
        metrics = [tasks.apply(k).taskMetrics().get() for k in range(tasks.size())]
        largest = max(
            int(m.inputMetrics().recordsRead()) + int(m.shuffleReadMetrics().recordsRead()) for m in metrics
        )
        figures = {name: int(getattr(stage, method)()) for name, method in STAGE_FIGURES.items()}
        found.append(
            {"stage": int(stage.stageId()), "tasks": int(stage.numTasks())}
            | figures
            | {"largest_task_rows": largest, "cpu_s": int(stage.executorCpuTime()) / 1e9}
        )
    found.sort(key=lambda one: one["stage"])
    return found, 1 + max((one["stage"] for one in found), default=first - 1)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=4, help="spark.sql.shuffle.partitions")
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--only", help="jobs with one of these words in their names, comma-separated")
    given = parser.parse_args()
    from ordstream.spark import local_session

    table = rows(given.rows)
    with tempfile.TemporaryDirectory() as folder:
        half = len(table) // 2
        pq.write_table(table.slice(0, half), Path(folder) / "a.parquet")
        pq.write_table(table.slice(half), Path(folder) / "b.parquet")
        settings = {
            "spark.sql.shuffle.partitions": str(given.partitions),
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
        }
        spark = local_session(allowed_cpus(), node_cores=1, memory="3g", settings=settings)
        jobs = jobs_of(spark.read.parquet(folder), given.nodes)
        if given.only:
            words = ["Spark's sort", *given.only.split(",")]
            jobs = {name: job for name, job in jobs.items() if any(word in name for word in words)}
        if not given.no_verify:
            verify(jobs, table)
        used: dict[str, list[tuple[float, ...]]] = {name: [] for name in jobs}
        stages: dict[str, list[dict[str, Any]]] = {}
        next_stage = stages_since(spark, 0)[1]
        for turn in range(given.rounds + 1):
            for name, job in jobs.items():
                cpu, python, start = tree_cpu(psutil.Process()), worker_cpu(), time.perf_counter()
                job().write.format("noop").mode("overwrite").save()
                wall, cpu = time.perf_counter() - start, tree_cpu(psutil.Process()) - cpu
                python = worker_cpu() - python
                stages[name], next_stage = stages_since(spark, next_stage)
                if turn:  # Java compiles while it runs
                    used[name].append((cpu, sum(one["cpu_s"] for one in stages[name]), python, wall))
        spark.stop()
    medians = {
        name: dict(
            zip(
                ("cpu_s", "task_cpu_s", "python_cpu_s", "wall_s"),
                map(statistics.median, zip(*runs, strict=True)),
                strict=True,
            )
        )
        for name, runs in used.items()
    }
    sort = medians["Spark's sort"]["cpu_s"]
    ratios = {
        order: {"of Spark's sort": medians[f"order={order!r}"]["cpu_s"] / sort, "at most": most}
        for order, most in KINDS.items()
        if f"order={order!r}" in medians
    }
    print(json.dumps({"rows": given.rows, "ratios": ratios, "jobs": medians, "stages": stages}, indent=1))


if __name__ == "__main__":
    main()
