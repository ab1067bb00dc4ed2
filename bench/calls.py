"""What calls of functions cost, where a call costs much beside its rows: the size of chunk that the node
finds, beside chunks of 4,096 rows, which no latency speaks for, and beside Polars.

    python bench/calls.py [--rows 200000] [--rounds 5]

Outputs are compared with Polars' first, value for value and in order. Then all ways run in turn; printed are
medians of CPU, ns a row, of one worker and of two. A job of single rows reads them from a generator, which
is what its Polars takes as one frame.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

import ordstream as od
from ordstream.lab.evaluation.machine import about

FORMAT = "%Y-%m-%d %H:%M:%S"
CALL_S = 0.002


class Job(NamedTuple):
    """A pipeline, its rows, what Polars does (None: it has no such thing), and rows of a source's batch."""

    pipeline: od.Pipeline
    rows: pa.Table
    rival: Callable[[pl.DataFrame], pl.DataFrame] | None
    batch: int | None = None


def table(rows: int, bad: float, seed: int = 1) -> pa.Table:
    """Texts, of which a part are no numbers and no dates, and times in a zone."""
    draw = random.Random(seed)
    numbers = [f"n/a {i}" if draw.random() < bad else str(draw.randrange(10**9)) for i in range(rows)]
    dates = [
        f"none {i}" if draw.random() < bad else f"2024-01-{1 + i % 28:02} 10:{i % 60:02}:{i % 59:02}"
        for i in range(rows)
    ]
    at = pa.array([1_700_000_000 + 61 * i for i in range(rows)]).cast(pa.timestamp("s", tz="Europe/Berlin"))
    us = at.cast(pa.timestamp("us", tz="Europe/Berlin"))
    return pa.table({"text": [f"ab c{i % 1000}" for i in range(rows)], "n": numbers, "d": dates, "at": us})


def predict(columns: Any) -> Any:
    """A function of batches that takes 2 ms a call, whatever the rows."""
    until = time.perf_counter() + CALL_S
    while time.perf_counter() < until:
        pass
    return {"text": columns["text"]}


def jobs(rows: int) -> dict[str, Job]:
    """All of them."""
    good, dirty = table(rows, 0.0), table(rows, 0.3)
    source, text, at, mine = od.Pipeline(good.schema), od.col("text").str, od.col("at").dt, pl.col("at").dt
    eight = {
        "a": text.upper(), "b": text.replace("a", "b"), "c": text.slice(1, 3),
        "d": text.extract("c([0-9]+)"), "e": at.hour(), "f": at.day(), "g": at.month(), "h": at.year(),
    }  # fmt: skip
    theirs = [
        pl.col("text").str.to_uppercase().alias("a"), pl.col("text").str.replace_all("a", "b").alias("b"),
        pl.col("text").str.slice(1, 3).alias("c"), pl.col("text").str.extract("c([0-9]+)").alias("d"),
        mine.hour().cast(pl.Int64).alias("e"), mine.day().cast(pl.Int64).alias("f"),
        mine.month().cast(pl.Int64).alias("g"), mine.year().cast(pl.Int64).alias("h"),
    ]  # fmt: skip
    number = od.col("n").cast(int, strict=False)
    date = od.col("d").str.to_datetime(FORMAT, strict=False)
    numbers = pl.col("n").cast(pl.Int64, strict=False).alias("a")
    dates = pl.col("d").str.to_datetime(FORMAT, strict=False, time_unit="us").alias("a")
    few = good.slice(0, rows // 4)
    return {
        "a call of 2 ms": Job(source.map_batches(predict, schema={"text": str}), few, None),
        "8 functions": Job(source.select(**eight), good, lambda frame: frame.select(theirs)),
        "cast, 30 % bad": Job(source.select(a=number), dirty, lambda frame: frame.select(numbers)),
        "to_datetime, 30 % bad": Job(source.select(a=date), dirty, lambda frame: frame.select(dates)),
        "8 functions, single rows": Job(source.select(**eight), few, lambda frame: frame.select(theirs), 1),
    }


def run(job: Job, batches: list[pa.RecordBatch] | None, **options: Any) -> pa.Table:
    """All output."""
    data: pa.Table | Iterator[pa.RecordBatch] = job.rows if batches is None else iter(batches)
    return job.pipeline.run(data, **options).table


def main() -> int:
    """Verify, measure, show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    print(f"{'ns of CPU a row':26} {'1 worker':>9} {'2':>9} {'4,096, 1':>9} {'2':>9} {'Polars':>9}")
    for name, job in jobs(asked.rows).items():
        batches = None if job.batch is None else job.rows.to_batches(max_chunksize=job.batch)
        frame = pl.DataFrame(pl.from_arrow(job.rows))
        ways: list[Callable[[], Any]] = [
            partial(run, job, batches, workers=workers, **options)
            for options in ({}, {"chunk_rows": 4096})
            for workers in (1, 2)
        ]
        found = [pl.DataFrame(pl.from_arrow(way())) for way in ways]
        expected = frame.select("text") if job.rival is None else job.rival(frame)
        if not all(one.equals(expected) for one in found):
            print(f"{name}: WRONG OUTPUT", file=sys.stderr)
            return 1
        if job.rival is not None:
            ways.append(partial(job.rival, frame))
        times: list[list[float]] = [[] for _ in ways]
        for _ in range(asked.rounds):
            for way, taken in zip(ways, times, strict=True):
                began = time.process_time()
                way()
                taken.append((time.process_time() - began) * 1e9 / len(job.rows))
        print(f"{name:26} {' '.join(f'{statistics.median(taken):9,.0f}' for taken in times)}", flush=True)
    print("\n" + ", ".join(f"{key} {value}" for key, value in about("python bench/calls.py").items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
