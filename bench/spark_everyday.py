"""Four everyday jobs in Spark: an ordered pipeline beside window functions and `applyInPandas`.

    python bench/spark_everyday.py [--rows N] [--rounds N] [--only NAME,NAME] [--nodes N|auto]
                                   [--order total|by_key|none] [--ways ordstream,window] [--pandas-rows N]

Events of users are read from Parquet files that are in no order. Every answer is compared first: the rows,
sorted, of all three ways. Then the ways run in turn and their rows are dropped (Spark's `noop` sink).
Medians of the rounds: `executor` is what Spark's own metrics say the tasks of the job took
(`executorCpuTime` of its stages: the Java side of a task), `Python` what the Python workers took besides,
`CPU s` both; `shuffled MB` what the stages wrote for others to read. `lines`: of the function that makes the
job, without its `def`. One Spark session with one task per core; each way warms up twice.

`applyInPandas` calls a function per user, which takes minutes for millions of rows. It gets `--pandas-rows`
of them, from as many fewer users, so that a user has as many rows as in the other ways; its answer is
compared with the window functions' over the same rows, and `CPU / pandas` is a ratio per row. The table says
how many rows each way had.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import ordstream as od
from ordstream.ground.cpus import allowed_cpus
from ordstream.spark import apply, local_session

BUILD = Path(__file__).resolve().parent.parent / "build" / "bench"
FILES = 8
ROWS_PER_USER = 150
DAYS = 14
WARM_RUNS = 2
PANDAS_ROWS = 100_000

#: Options of `apply`, as the command line gives them.
OPTIONS: dict[str, Any] = {}


def events(rows: int) -> Path:
    """A folder of Parquet files: n (unique), ts, user, amount, failed; made once."""
    folder = BUILD / f"everyday-{rows}"
    if folder.exists():
        return folder
    draw = np.random.default_rng(20)
    begin = 1_700_000_000_000_000
    table = pa.table(
        {
            "n": pa.array(np.arange(rows)),
            "ts": pa.array(begin + np.sort(draw.integers(0, DAYS * 86_400_000_000, rows))).cast(
                pa.timestamp("us", "UTC")
            ),
            "user": pa.array(draw.zipf(1.3, rows) % max(1, rows // ROWS_PER_USER)),
            "amount": pa.array(draw.integers(-50_000, 50_000, rows)),
            "failed": pa.array(draw.random(rows) < 0.4),
        }
    )
    table = table.take(pa.array(draw.permutation(rows)))
    folder.mkdir(parents=True)
    cuts = [number * rows // FILES for number in range(FILES + 1)]
    for number, (low, high) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(table.slice(low, high - low), folder / f"part-{number}.parquet")
    return folder


# ------------------------------------------------------------------------------------------- sessions


def sessions_ordstream(df: DataFrame) -> DataFrame:
    spent = {"spent": od.sum("amount")}
    pipeline = od.Pipeline(df).key_by("user").sessionize("ts", "30m", aggregate=spent)
    return apply(pipeline, df, order_by=["ts", "n"], **OPTIONS)


def sessions_window(df: DataFrame) -> DataFrame:
    by_time = Window.partitionBy("user").orderBy("ts", "n")
    gap = F.unix_micros("ts") - F.unix_micros(F.lag("ts").over(by_time))
    opens = F.when(gap <= 30 * 60_000_000, 0).otherwise(1)
    numbered = df.withColumn("opens", opens).withColumn("session", F.sum("opens").over(by_time))
    made = numbered.groupBy("user", "session").agg(
        F.min("ts").alias("start"),
        F.max("ts").alias("end"),
        F.count("*").alias("count"),
        F.sum("amount").alias("spent"),
    )
    return made.drop("session")


def sessions_pandas(df: DataFrame) -> DataFrame:
    def sessions(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(["ts", "n"])
        number = (rows["ts"].diff() > pd.Timedelta("30m")).cumsum()
        return rows.groupby(number).agg(
            user=("user", "first"),
            start=("ts", "min"),
            end=("ts", "max"),
            count=("ts", "size"),
            spent=("amount", "sum"),
        )

    schema = "user long, start timestamp, end timestamp, count long, spent long"
    return df.groupBy("user").applyInPandas(sessions, schema)


# ---------------------------------------------------------------------------- failures, then a success


def failures_ordstream(df: DataFrame) -> DataFrame:
    pipeline = od.Pipeline(df).select("user", "ts", "n", "failed")
    for back in (1, 2, 3):
        pipeline = pipeline.key_by("user").lag({f"failed_{back}": "failed", f"ts_{back}": "ts"}, n=back)
    failed = od.col("failed_1") & od.col("failed_2") & od.col("failed_3")
    pipeline = pipeline.filter(failed & ~od.col("failed")).select(
        "user", "ts", "n", took=od.col("ts") - od.col("ts_3")
    )
    return apply(pipeline, df, order_by=["ts", "n"], **OPTIONS)


def failures_window(df: DataFrame) -> DataFrame:
    by_time = Window.partitionBy("user").orderBy("ts", "n")
    failed = F.lit(True)
    for back in (1, 2, 3):
        failed = failed & F.lag("failed", back).over(by_time)
    marked = df.withColumn("hit", failed & ~F.col("failed")).withColumn(
        "took", F.col("ts") - F.lag("ts", 3).over(by_time)
    )
    return marked.filter("hit").select("user", "ts", "n", "took")


def failures_pandas(df: DataFrame) -> DataFrame:
    def found(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(["ts", "n"])
        failed = rows["failed"].astype(int)
        hit = (failed == 0) & (failed.shift(1) + failed.shift(2) + failed.shift(3) == 3)
        rows["took"] = rows["ts"] - rows["ts"].shift(3)
        return rows.loc[hit, ["user", "ts", "n", "took"]]

    schema = "user long, ts timestamp, n long, took interval day to second"
    return df.groupBy("user").applyInPandas(found, schema)


# ------------------------------------------------------------------------------------ running balance


def balance_ordstream(df: DataFrame) -> DataFrame:
    pipeline = od.Pipeline(df).select("n", "user", "ts", "amount")
    pipeline = pipeline.key_by("user").cum_sum("amount", "balance")
    return apply(pipeline, df, order_by=["ts", "n"], **OPTIONS)


def balance_window(df: DataFrame) -> DataFrame:
    by_time = Window.partitionBy("user").orderBy("ts", "n")
    total = F.sum("amount").over(by_time.rowsBetween(Window.unboundedPreceding, 0))
    return df.select("n", "user", "ts", "amount", total.alias("balance"))


def balance_pandas(df: DataFrame) -> DataFrame:
    def balanced(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(["ts", "n"])
        return rows[["n", "user", "ts", "amount"]].assign(balance=rows["amount"].cumsum())

    schema = "n long, user long, ts timestamp, amount long, balance long"
    return df.groupBy("user").applyInPandas(balanced, schema)


# ------------------------------------------------------------------------------------ top ten per day


def top_ordstream(df: DataFrame) -> DataFrame:
    day = od.col("ts").dt.truncate("1d")
    pipeline = od.Pipeline(df).select("amount", "n", "user", day=day)
    pipeline = pipeline.top_k(10, "amount", "n", window="day", rank="rank")
    return apply(pipeline, df, order_by=["ts", "n"], **OPTIONS)


def top_window(df: DataFrame) -> DataFrame:
    chosen = df.select("amount", "n", "user", F.date_trunc("day", "ts").alias("day"))
    best = Window.partitionBy("day").orderBy(F.desc("amount"), "n")
    return chosen.withColumn("rank", F.row_number().over(best)).filter("rank <= 10")


def top_pandas(df: DataFrame) -> DataFrame:
    def best(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(["amount", "n"], ascending=[False, True])[:10]
        return rows.assign(rank=range(1, len(rows) + 1))

    chosen = df.select("amount", "n", "user", F.date_trunc("day", "ts").alias("day"))
    return chosen.groupBy("day").applyInPandas(
        best, "amount long, n long, user long, day timestamp, rank long"
    )


JOBS: dict[str, dict[str, Callable[[DataFrame], DataFrame]]] = {
    "sessions": {"ordstream": sessions_ordstream, "window": sessions_window, "pandas": sessions_pandas},
    "failures": {"ordstream": failures_ordstream, "window": failures_window, "pandas": failures_pandas},
    "balance": {"ordstream": balance_ordstream, "window": balance_window, "pandas": balance_pandas},
    "top ten": {"ordstream": top_ordstream, "window": top_window, "pandas": top_pandas},
}

# ------------------------------------------------------------------------------------------- measured


def sorted_rows(answer: DataFrame, types: pa.Schema | None = None) -> pa.Table:
    """An answer as sorted rows, in these types."""
    table = answer.toArrow()
    wanted = table.schema if types is None else types
    columns = [table[name].cast(wanted.field(name).type) for name in wanted.names]
    table = pa.table(columns, names=wanted.names)  # which columns may be null is of no account
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def worker_cpu() -> float:
    """CPU seconds of this session's Python workers so far, those that have ended included."""
    total = 0.0
    for one in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" not in " ".join(one.cmdline()):
                continue
            times, parent = one.cpu_times(), one.parent()
            total += times.user + times.system
            if parent is None or "pyspark.daemon" not in " ".join(parent.cmdline()):
                total += (
                    times.children_user + times.children_system
                )  # workers that the daemon has waited for
        except psutil.NoSuchProcess:
            continue
    return total


def run(spark: SparkSession, frame: DataFrame, label: str) -> dict[str, float]:
    """Run a job to Spark's `noop` sink; what it took."""
    context = spark.sparkContext
    context.setJobGroup(label, label)
    python, begin = worker_cpu(), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    wall, python = time.perf_counter() - begin, worker_cpu() - python
    jsc: Any = context._jsc
    store, tracker = jsc.sc().statusStore(), context.statusTracker()
    cpu, shuffled = 0, 0
    for job in tracker.getJobIdsForGroup(label):
        info = tracker.getJobInfo(job)
        for stage in [] if info is None else info.stageIds:
            data = store.lastStageAttempt(stage)
            if data.status().toString() == "COMPLETE":  # a stage that was skipped ran in another job
                cpu += data.executorCpuTime()
                shuffled += data.shuffleWriteBytes()
    return {"executor": cpu / 1e9, "python": python, "wall": wall, "shuffled": shuffled / 1e6}


def lines_of(job: Callable[..., Any]) -> int:
    """Lines of a job's function, without its `def` and empty ones."""
    return sum(1 for line in inspect.getsource(job).splitlines()[1:] if line.strip())


def main() -> None:
    """Compare, then measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(JOBS))
    parser.add_argument("--ways", default="ordstream,window,pandas")
    parser.add_argument("--nodes", help="as for apply; default: apply's own")
    parser.add_argument("--order", help="as for apply; default: apply's own")
    parser.add_argument("--pandas-rows", type=int, default=PANDAS_ROWS, help="rows for applyInPandas")
    given = parser.parse_args()
    if given.nodes is not None:
        OPTIONS["nodes"] = given.nodes if given.nodes == "auto" else int(given.nodes)
    if given.order is not None:
        OPTIONS["order"] = given.order
    cores = allowed_cpus()
    spark = local_session(cores, node_cores=1, memory="3g")
    rows = dict.fromkeys(("ordstream", "window"), given.rows)
    rows["pandas"] = min(given.rows, given.pandas_rows)
    frames = {way: spark.read.parquet(str(events(count))) for way, count in rows.items()}
    print(f"{given.rows:,} rows, {FILES} files, {cores} cores, Spark {spark.version}, apply with {OPTIONS}")
    print(f"{'job':10}{'way':11}{'rows':>10}{'CPU s':>8}{'executor':>10}{'Python':>8}{'wall s':>8}"
          f"{'shuffled MB':>13}{'lines':>7}{'CPU / window':>14}{'/ pandas':>10}")  # fmt: skip
    for name in given.only.split(","):
        ways = {way: job for way, job in JOBS[name].items() if way in given.ways.split(",")}
        expected: dict[int, pa.Table] = {}
        for way, job in ways.items():
            if rows[way] not in expected:
                expected[rows[way]] = sorted_rows(JOBS[name]["window"](frames[way]))
            answer = expected[rows[way]]
            found = sorted_rows(job(frames[way]), answer.schema)
            assert found.equals(answer), f"{way}'s answer to {name!r} differs"
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for turn in range(WARM_RUNS + given.rounds):
            for way in list(ways)[:: 1 if turn % 2 else -1]:
                took = run(spark, ways[way](frames[way]), f"{name} {way} {turn}")
                if turn >= WARM_RUNS:
                    runs[way].append(took)
        show(name, ways, runs, rows)
    spark.stop()


def show(
    name: str, ways: dict[str, Any], runs: dict[str, list[dict[str, float]]], rows: dict[str, int]
) -> None:
    """The lines of one job; ratios are per row."""
    medians = {
        way: {what: statistics.median(one[what] for one in ran) for what in ran[0]}
        for way, ran in runs.items()
    }
    cpu = {
        way: statistics.median(one["executor"] + one["python"] for one in ran) for way, ran in runs.items()
    }
    a_row = {way: seconds / rows[way] for way, seconds in cpu.items()}
    for way, one in medians.items():
        ratios = "".join(
            f"{a_row[way] / a_row[other]:{width}.2f}" if other in cpu else f"{'':{width}}"
            for other, width in (("window", 14), ("pandas", 10))
        )
        print(f"{name:10}{way:11}{rows[way]:10,}{cpu[way]:8.2f}{one['executor']:10.2f}{one['python']:8.2f}"
              f"{one['wall']:8.2f}{one['shuffled']:13.1f}{lines_of(ways[way]):7}{ratios}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
