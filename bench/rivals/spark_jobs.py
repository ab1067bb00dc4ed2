"""The jobs of bench/peers.py in Spark, local, without an ordered node: SQL windows, applyInPandas over
groups of users, and pure Python over the partitions of an RDD.

The rows are read from Parquet with their number, as Spark's rows have no order of their own. CPU seconds and
memory are those of the whole process tree, the Java virtual machine included; the session is started before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from jobs import DYNAMIC_BELOW, LIMIT, ORDER_BELOW, TIMEOUT
from memory import largest_kib
from python_jobs import BUILD, CPUS, SQL, best_pairs, python_part

GROUPS = 64  # of applyInPandas: one call per user would be thousands of times slower
_sessions: list[Any] = []

SPEED = """SELECT r, ts, u, CAST(i - lag(i) OVER w AS DOUBLE) AS step,
  CAST(ts - lag(ts) OVER w AS DOUBLE) AS gap
FROM clicks WINDOW w AS (PARTITION BY u ORDER BY r) ORDER BY r"""


def in_pandas(job: str, frame: Any) -> Any:
    """The job over a group of users."""
    import pandas as pd

    frame = frame.sort_values("r")
    if job == "speed":
        users = frame.groupby("u", sort=False)
        return pd.DataFrame(
            {
                "r": frame["r"],
                "ts": frame["ts"],
                "u": frame["u"],
                "step": users["i"].diff(),
                "gap": users["ts"].diff(),
            }
        )
    frame = frame.sort_values("u", kind="stable")
    n = ((frame["u"] != frame["u"].shift()) | (frame["ts"].diff() > TIMEOUT)).cumsum()
    if job == "q2":
        sets = pd.DataFrame({"n": n, "i": frame["i"]}).drop_duplicates()
        pairs = sets.merge(sets, on="n", suffixes=("", "2"))
        return pairs[pairs["i"] < pairs["i2"]].groupby(["i", "i2"]).size().reset_index(name="c")
    page = frame["p"]
    marks = pd.DataFrame(
        {"n": n, "dynamic": page < DYNAMIC_BELOW, "ordered": (page >= DYNAMIC_BELOW) & (page < ORDER_BELOW)}
    )
    each = marks.groupby("n").agg(
        clicks=("n", "size"), dynamic=("dynamic", "max"), ordered=("ordered", "max")
    )
    kept = each[each["dynamic"] & ~each["ordered"]]
    return pd.DataFrame({"clicks": [kept["clicks"].sum()], "sessions": [len(kept)]})


def in_python(job: str, rows: Iterator[Any]) -> Iterator[Any]:
    """The job over a partition of (user, (row, ts, value)) that has whole users."""
    ordered = sorted((r, ts, u, value) for u, (r, ts, value) in rows)
    if not ordered:
        return
    places, ts, users, values = zip(*ordered, strict=True)
    found = python_part(job, ts, users, values)
    if job == "speed":
        yield from zip(places, ts, users, found, strict=True)
    elif job == "q2":
        yield from found.items()
    else:
        yield found


def speed_of(found: pa.Table) -> tuple[Any, ...]:
    """(ts, user, speed) of rows with step and gap. Spark's own division gives null for a divisor of 0."""
    frame = found.to_pandas()
    return (
        frame["ts"].astype("int64"),
        frame["u"].astype("int64"),
        frame["step"].astype("float64") / frame["gap"].astype("float64"),
    )


def prepare(engine: str, job: str, table: pa.Table) -> Callable[[], Any]:
    """The job by "Spark SQL", "Spark applyInPandas" or "Spark mapPartitions"."""
    from ordstream.spark import local_session

    path = BUILD / f"clicks-{job}-{table.num_rows}.parquet"
    BUILD.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(
        table.append_column("r", pa.array(range(table.num_rows))), path, row_group_size=1 << 20
    )
    spark = local_session(CPUS, node_cores=1, memory="4g")
    spark.sparkContext.setLogLevel("ERROR")
    _sessions.append(spark)
    clicks = spark.read.parquet(str(path))
    clicks.createOrReplaceTempView("clicks")

    def sql() -> Any:
        if job == "speed":
            return speed_of(spark.sql(SPEED).toArrow())
        return [tuple(row) for row in spark.sql(SQL[job]).collect()]

    def grouped() -> Any:
        groups = clicks.selectExpr(f"pmod(u, {GROUPS}) AS g", "*").groupBy("g")
        function = partial(in_pandas, job)
        if job == "speed":
            return speed_of(
                groups.applyInPandas(function, "r long, ts long, u long, step double, gap double")
                .orderBy("r")
                .toArrow()
            )
        if job == "q4":
            (row,) = groups.applyInPandas(function, "clicks long, sessions long").groupBy().sum().collect()
            return [tuple(row)]
        counts = (
            groups.applyInPandas(function, "i long, i2 long, c long")
            .groupBy("i", "i2")
            .sum("c")
            .toDF("i", "i2", "c")
        )
        best = counts.orderBy(counts["c"].desc(), "i", "i2").limit(LIMIT)
        return [tuple(row) for row in best.collect()]

    def partitions() -> Any:
        value = "p" if job == "q4" else "i"
        keyed = clicks.rdd.map(lambda row: (row["u"], (row["r"], row["ts"], row[value])))
        found = keyed.partitionBy(CPUS).mapPartitions(partial(in_python, job))
        if job == "speed":
            _, ts, user, speed = zip(
                *found.sortBy(lambda row: row[0], numPartitions=CPUS).collect(), strict=True
            )
            return ts, user, speed
        if job == "q4":
            return [tuple(sum(one) for one in zip(*found.collect(), strict=True))]
        return best_pairs(
            dict(found.reduceByKey(lambda a, b: a + b).takeOrdered(LIMIT, key=lambda one: (-one[1], one[0])))
        )

    return {"Spark SQL": sql, "Spark applyInPandas": grouped, "Spark mapPartitions": partitions}[engine]


def cpu_seconds() -> float:
    """Of this process and all below it, those that have ended included."""
    import psutil

    total, me = 0.0, psutil.Process()
    for one in [me, *me.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def peak_mb() -> float:
    """Sum of the largest resident sizes of this process and of those below it that are alive."""
    import psutil

    me = psutil.Process()
    status = [Path(f"/proc/{one.pid}/status").read_text() for one in [me, *me.children(recursive=True)]]
    return sum(map(largest_kib, status)) / 1024


def version(engine: str) -> str:
    """Spark's version."""
    return str(_sessions[0].version)


def close() -> None:
    """End the session."""
    for session in _sessions:
        session.stop()
