"""Windows beside Polars and DuckDB: CPU per row of some jobs on the same rows.

    python bench/windows.py [--rows N] [--keys N] [--rounds N] [--workers N]

Rows ascend by time, in seconds, without ties; keys are uniform, values floats. Answers are compared first.
Then the peers take turns. A figure is the median over rounds of CPU seconds (all threads) per row; the ratio
is that of the faster rival to ours: above 1 we take less. Polars gets its rows sorted by key where it needs
that; the sort is its own and counts, since the rows are given in the order of time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import ordstream as od

Job = Callable[[pa.Table], pa.Table]
SCHEMA = pa.schema({"ts": pa.timestamp("s"), "k": pa.int64(), "x": pa.float64()})


def made(rows: int, keys: int) -> pa.Table:
    """The rows."""
    rng = np.random.default_rng(1)
    ts = np.cumsum(rng.integers(1, 3, rows))
    columns = [ts, rng.integers(0, keys, rows), rng.normal(0, 1, rows)]
    return pa.table([pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def ours(kind: Any, workers: int, time: str | None = "ts", **calls: Any) -> Job:
    """A window of ours."""
    pipeline = od.Pipeline(SCHEMA).key_by("k").window(kind, time=time).aggregate(**calls)
    return lambda data: pipeline.run(data, workers=workers).table


def dynamic(data: pa.Table) -> pa.Table:
    """Tumbling windows of Polars."""
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    groups = frame.lazy().group_by("k", pl.col("ts").dt.truncate("10m").alias("start"))
    return groups.agg(n=pl.len(), s=pl.col("x").sum()).collect().to_arrow()


def medians(data: pa.Table) -> pa.Table:
    """Medians and distinct counts of Polars."""
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    groups = frame.lazy().group_by("k", pl.col("ts").dt.truncate("10m").alias("start"))
    return groups.agg(m=pl.col("x").median(), d=pl.col("ts").n_unique()).collect().to_arrow()


def rolling(data: pa.Table) -> pa.Table:
    """The rolling mean of Polars."""
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    sorted_ = frame.lazy().sort("k", "ts").rolling("ts", period="1h", group_by="k")
    return sorted_.agg(m=pl.col("x").mean()).collect().to_arrow()


def rolling_by(data: pa.Table) -> pa.Table:
    """The same by an expression, which needs no sort by key."""
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    mean = pl.col("x").rolling_mean_by("ts", window_size="1h").over("k")
    return frame.lazy().with_columns(m=mean).collect().to_arrow()


def last_rows(data: pa.Table) -> pa.Table:
    """The mean of the last rows in Polars."""
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    mean = pl.col("x").rolling_mean(20, min_samples=1).over("k")
    return frame.lazy().with_columns(m=mean).collect().to_arrow()


def sql(text: str, workers: int) -> Job:
    """A query of DuckDB over `data`."""

    def run(data: pa.Table) -> pa.Table:
        with duckdb.connect(config={"threads": max(workers, 1)}) as connection:
            connection.register("data", data)
            return connection.sql(text).to_arrow_table()

    return run


def jobs(workers: int) -> dict[str, tuple[Job, dict[str, Job], str]]:
    """Ours, the rivals, and the column that is compared."""
    hour = "(partition by k order by ts range between interval 3599 seconds preceding and current row)"
    twenty = "(partition by k order by ts rows between 19 preceding and current row)"
    gaps = (
        "select k, min(ts) as start, count(*) as n, sum(x) as s from "
        "(select *, sum(new) over w as visit from "
        "(select *, coalesce(ts - lag(ts) over w > interval 30 minutes, false)::int as new from data "
        "window w as (partition by k order by ts)) "
        "window w as (partition by k order by ts)) group by k, visit"
    )
    minutes = (
        "select k, time_bucket(interval 10 minutes, ts) as start, count(*) as n, sum(x) as s from data "
        "group by all"
    )
    median = (
        "select k, time_bucket(interval 10 minutes, ts) as start, median(x) as m, count(distinct ts) as d "
        "from data group by all"
    )
    hops = (
        "select k, start, count(*) as n, sum(x) as s from "
        "(select *, unnest([time_bucket(interval 5 minutes, ts) - interval 5 minutes, "
        "time_bucket(interval 5 minutes, ts)]) as start from data) group by all"
    )
    return {
        "tumbling: count, sum": (
            ours(od.tumbling("10m"), workers, n=od.count(), s=od.sum("x")),
            {"Polars": dynamic, "DuckDB": sql(minutes, workers)},
            "s",
        ),
        "tumbling: median, distinct": (
            ours(od.tumbling("10m"), workers, m=od.median("x"), d=od.count_distinct("ts")),
            {"Polars": medians, "DuckDB": sql(median, workers)},
            "m",
        ),
        "hopping: count, sum": (
            ours(od.hopping("10m", every="5m"), workers, n=od.count(), s=od.sum("x")),
            {"DuckDB": sql(hops, workers)},
            "s",
        ),
        "session: count, sum": (
            ours(od.session("30m"), workers, n=od.count(), s=od.sum("x")),
            {"DuckDB": sql(gaps, workers)},
            "s",
        ),
        "rolling: mean": (
            ours(od.rolling("1h"), workers, m=od.mean("x")),
            {
                "Polars": rolling,
                "Polars by": rolling_by,
                "DuckDB": sql(f"select *, avg(x) over {hour} as m from data order by ts", workers),
            },
            "m",
        ),
        "rows: mean": (
            ours(od.rows(20), workers, None, m=od.mean("x")),
            {
                "Polars": last_rows,
                "DuckDB": sql(f"select *, avg(x) over {twenty} as m from data order by ts", workers),
            },
            "m",
        ),
    }


def cpu(job: Job, data: pa.Table) -> float:
    """CPU seconds of a run."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    job(data)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    data = made(given.rows, given.keys)
    print(f"{given.rows:,} rows, {given.keys:,} keys, {given.workers} workers; ns of CPU per row")
    for name, (mine, rivals, column) in jobs(given.workers).items():
        peers = {"ordstream": mine, **rivals}
        answers = {peer: np.sort(job(data)[column].to_numpy()) for peer, job in peers.items()}
        for peer, answer in answers.items():
            assert np.allclose(answer, answers["ordstream"], rtol=1e-9, atol=1e-9), f"{name}: {peer} differs"
        spent: dict[str, list[float]] = {peer: [] for peer in peers}
        for _ in range(given.rounds):
            for peer, job in peers.items():
                spent[peer].append(cpu(job, data))
        found = {peer: statistics.median(times) / given.rows * 1e9 for peer, times in spent.items()}
        best = min(found[peer] for peer in rivals)
        told = ", ".join(f"{peer} {ns:.1f}" for peer, ns in found.items())
        print(f"{name:22} {told}; ratio {best / found['ordstream']:.2f}")


if __name__ == "__main__":
    main()
