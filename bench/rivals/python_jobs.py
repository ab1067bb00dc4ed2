"""The jobs of bench/peers.py in C++ (loops, oneTBB), DuckDB, Polars, pandas and concurrent.futures: no
environment of their own.
"""

from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jobs import DYNAMIC_BELOW, LIMIT, ORDER_BELOW, TIMEOUT, quotient

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "bench"
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
FLAGS = ["-O3", "-std=c++17", "-shared", "-fPIC", "-pthread"]


def library(name: str, *options: str) -> Any:
    """A C++ file of this folder as a shared library, built when it or the header is newer."""
    source, built = HERE / f"{name}.cpp", BUILD / f"{name}.so"
    newest = max(path.stat().st_mtime for path in (source, HERE / "clicks_maps.hpp"))
    if not built.exists() or built.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [os.environ.get("CXX", "g++"), *FLAGS, "-o", str(built), str(source), *options], check=True
        )
    return ctypes.CDLL(str(built))


def native(found: Any, prefix: str, job: str, table: pa.Table, threads: int) -> Callable[[], Any]:
    """The three functions `prefix`_q2, _q4, _speed of a library."""
    columns = [ctypes.c_void_p(column.chunk(0).to_numpy().ctypes.data) for column in table.columns]
    n, number = table.num_rows, ctypes.c_int64
    function = getattr(found, f"{prefix}_{job}")

    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def q2() -> Any:
        rows, facts = np.zeros((LIMIT, 3), np.int64), np.zeros(2, np.int64)
        more = [pointer(facts)] if prefix == "loop" else []
        function.restype = ctypes.c_int64
        many = function(
            *columns, number(n), number(TIMEOUT), number(LIMIT), pointer(rows), *more, number(threads)
        )
        return rows[:many].tolist()

    def q4() -> Any:
        result = np.zeros(2, np.int64)
        limits = map(number, (n, TIMEOUT, DYNAMIC_BELOW, ORDER_BELOW))
        function(*columns, *limits, pointer(result), number(threads))
        return [tuple(result.tolist())]

    def speed() -> Any:
        result = np.empty(n)
        function(*columns, number(n), pointer(result), number(threads))
        return table["ts"], table["u"], result

    return {"q2": q2, "q4": q4, "speed": speed}[job]


def onetbb() -> Any:
    """The oneTBB library's jobs. TBB_ROOT may name a folder with include/ and lib/ (a virtual
    environment with tbb-devel).
    """
    root = os.environ.get("TBB_ROOT")
    where = [f"-I{root}/include", f"-L{root}/lib", f"-Wl,-rpath,{root}/lib"] if root else []
    return library("onetbb_jobs", *where, "-ltbb")


# --- SQL and data frames --------------------------------------------------------------------------

SESSIONS = f"""
marked AS (SELECT *, ts - lag(ts) OVER (PARTITION BY u ORDER BY ts) > {TIMEOUT} AS opens FROM clicks),
numbered AS (
  SELECT *, sum(CASE WHEN opens THEN 1 ELSE 0 END)
    OVER (PARTITION BY u ORDER BY ts ROWS UNBOUNDED PRECEDING) AS n FROM marked)"""
"""Each click with the number of its session (per user); also valid in Spark SQL."""

SQL = {
    "q2": f"""WITH {SESSIONS}, s AS (SELECT DISTINCT u, n, i FROM numbered)
SELECT a.i AS item1, b.i AS item2, count(*) AS c
FROM s AS a JOIN s AS b ON a.u = b.u AND a.n = b.n AND a.i < b.i
GROUP BY 1, 2 ORDER BY c DESC, item1, item2 LIMIT {LIMIT}""",
    "q4": f"""WITH {SESSIONS}, s AS (
  SELECT count(*) AS clicks, max(CASE WHEN p < {DYNAMIC_BELOW} THEN 1 ELSE 0 END) AS dynamic,
         max(CASE WHEN p >= {DYNAMIC_BELOW} AND p < {ORDER_BELOW} THEN 1 ELSE 0 END) AS ordered
  FROM numbered GROUP BY u, n)
SELECT sum(clicks) AS clicks, count(*) AS sessions FROM s WHERE dynamic = 1 AND ordered = 0""",
    "speed": """WITH c AS (SELECT *, row_number() OVER () AS r FROM clicks)
SELECT ts, u, (i - lag(i) OVER w)::DOUBLE / (ts - lag(ts) OVER w)::DOUBLE AS speed
FROM c WINDOW w AS (PARTITION BY u ORDER BY r) ORDER BY r""",
}


def duckdb(job: str, table: pa.Table, threads: int = CPUS) -> Callable[[], Any]:
    """DuckDB, on all cores by default. The speed of a row needs its place, as SQL's rows have none:
    row_number, and ORDER BY at the end.
    """
    import duckdb as engine

    def run() -> Any:
        with engine.connect(config={"threads": threads}) as connection:
            connection.register("clicks", table)
            found = connection.sql(SQL[job])
            return tuple(found.to_arrow_table().columns) if job == "speed" else found.fetchall()

    return run


def polars(job: str, table: pa.Table) -> Callable[[], Any]:
    """Polars on its pool of threads (all cores). Window expressions keep the order of the rows."""
    import polars as pl

    clicks = pl.from_arrow(table)
    assert isinstance(clicks, pl.DataFrame)

    def speed() -> Any:
        # faster than a window per column, and than sorting twice
        moved = pl.col("i").diff() / pl.col("ts").diff()
        found = clicks.lazy().select("ts", "u", speed=moved.over("u")).collect()
        return found["ts"], found["u"], found["speed"]

    def sessions() -> Any:
        opens = (pl.col("u") != pl.col("u").shift()) | (pl.col("ts").diff() > TIMEOUT)
        numbered = (
            clicks.lazy().sort("u", maintain_order=True).with_columns(n=opens.fill_null(True).cum_sum())
        )
        if job == "q2":
            sets = numbered.select("n", "i").unique()
            pairs = sets.join(sets, on="n", suffix="2").filter(pl.col("i") < pl.col("i2"))
            counts = pairs.group_by("i", "i2").len()
            found = counts.sort(["len", "i", "i2"], descending=[True, False, False]).head(LIMIT)
        else:
            page = pl.col("p")
            ordered = (page >= DYNAMIC_BELOW) & (page < ORDER_BELOW)
            each = numbered.group_by("n").agg(
                clicks=pl.len(), dynamic=(page < DYNAMIC_BELOW).any(), ordered=ordered.any()
            )
            found = each.filter(pl.col("dynamic") & ~pl.col("ordered")).select(
                pl.col("clicks").sum(), sessions=pl.len()
            )
        return found.collect(engine="streaming").rows()

    return speed if job == "speed" else sessions


def pandas(job: str, table: pa.Table) -> Callable[[], Any]:
    """pandas, vectorised, on one core."""
    import pandas as pd

    clicks = table.to_pandas()

    def speed() -> Any:
        # twice as fast here as a stable sort, differences and a scatter
        users = clicks.groupby("u", sort=False)
        found = pd.DataFrame(
            {"ts": clicks["ts"], "u": clicks["u"], "speed": users["i"].diff() / users["ts"].diff()}
        )
        return found["ts"], found["u"], found["speed"]

    def sessions() -> Any:
        frame = clicks.sort_values("u", kind="stable")
        n = ((frame["u"] != frame["u"].shift()) | (frame["ts"].diff() > TIMEOUT)).cumsum()
        if job == "q2":
            sets = pd.DataFrame({"n": n, "i": frame["i"]}).drop_duplicates()
            pairs = sets.merge(sets, on="n", suffixes=("", "2"))
            counts = pairs[pairs["i"] < pairs["i2"]].groupby(["i", "i2"]).size().reset_index(name="c")
            best = counts.sort_values(["c", "i", "i2"], ascending=[False, True, True]).head(LIMIT)
            return best.itertuples(index=False)
        page = frame["p"]
        marks = pd.DataFrame(
            {
                "n": n,
                "dynamic": page < DYNAMIC_BELOW,
                "ordered": (page >= DYNAMIC_BELOW) & (page < ORDER_BELOW),
            }
        )
        each = marks.groupby("n").agg(
            clicks=("n", "size"), dynamic=("dynamic", "max"), ordered=("ordered", "max")
        )
        kept = each[each["dynamic"] & ~each["ordered"]]
        return [(kept["clicks"].sum(), len(kept))]

    return speed if job == "speed" else sessions


# --- pure Python, and an ordered map of it --------------------------------------------------------


def python_sessions(ts: Any, users: Any, values: Any) -> Any:
    """The values of each session, in the order in which sessions are known to be closed."""
    open_: dict[int, tuple[int, list[int]]] = {}
    for time, user, value in zip(ts, users, values, strict=True):
        last, session = open_.get(user, (time, []))
        if time - last > TIMEOUT:
            yield session
            session = []
        session.append(value)
        open_[user] = time, session
    for _, session in open_.values():
        yield session


def python_part(job: str, ts: Any, users: Any, values: Any) -> Any:
    """The job over rows that hold whole users, in order: the speed of each, counts of pairs, or (clicks,
    sessions).
    """
    if job == "speed":
        before: dict[int, tuple[int, int]] = {}
        speeds = []
        for time, user, item in zip(ts, users, values, strict=True):
            last = before.get(user)
            speeds.append(float("nan") if last is None else quotient(item - last[1], time - last[0]))
            before[user] = time, item
        return speeds
    if job == "q2":
        counts: collections.Counter[tuple[int, int]] = collections.Counter()
        for session in python_sessions(ts, users, values):
            counts.update(itertools.combinations(sorted(set(session)), 2))
        return counts
    clicks = number = 0
    for session in python_sessions(ts, users, values):
        if min(session) < DYNAMIC_BELOW and not any(DYNAMIC_BELOW <= page < ORDER_BELOW for page in session):
            clicks += len(session)
            number += 1
    return clicks, number


def best_pairs(counts: Any) -> list[tuple[int, int, int]]:
    """The most frequent pairs of a dict."""
    best = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:LIMIT]
    return [(*pair, count) for pair, count in best]


def _part(job: str, columns: list[np.ndarray]) -> Any:
    found = python_part(job, *(column.tolist() for column in columns))
    return np.array(found) if job == "speed" else found


def futures(job: str, table: pa.Table) -> Callable[[], Any]:
    """`Executor.map` of a pure Python function over as many parts of the users as there are cores, in
    processes; map keeps their order.
    """
    columns = [column.to_numpy() for column in table.columns]

    def run() -> Any:
        part = columns[1] % CPUS
        places = [np.flatnonzero(part == number) for number in range(CPUS)]
        rows = [[column[place] for column in columns] for place in places]
        with concurrent.futures.ProcessPoolExecutor(CPUS) as pool:
            found = list(pool.map(_part, itertools.repeat(job), rows))
        if job == "speed":
            speed = np.empty(table.num_rows)
            for place, one in zip(places, found, strict=True):
                speed[place] = one
            return columns[0], columns[1], speed
        if job == "q2":
            return best_pairs(sum(found, collections.Counter()))
        return [tuple(sum(one) for one in zip(*found, strict=True))]

    return run


def prepare(engine: str, job: str, table: pa.Table) -> Callable[[], Any]:
    """The job by one of the engines of this file."""
    if engine.startswith("C++ loop"):
        return native(library("clicks_loops"), "loop", job, table, int(engine.rsplit(" ", 2)[1]))
    if engine == "oneTBB":
        return native(onetbb(), "onetbb", job, table, CPUS)
    return {"DuckDB": duckdb, "Polars": polars, "pandas": pandas, "concurrent.futures": futures}[engine](
        job, table
    )


def version(engine: str) -> str:
    """Version of what the engine is made of."""
    if engine == "oneTBB":
        found = onetbb().onetbb_version
        found.restype = ctypes.c_char_p
        return str(found().decode())
    if engine.startswith("C++"):
        command = [os.environ.get("CXX", "g++"), "--version"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.partition("\n")[0]
    return sys.version.split()[0] if engine == "concurrent.futures" else installed(engine.lower())
