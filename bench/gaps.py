"""The five TPCx-BB queries against hand-written loops on one thread, and where the difference goes; `python
bench/gaps.py`.

    python bench/gaps.py [--queries q1,...] [--rounds N] [--scale SF] [--profile]

Paper profile, emit="final", rows in memory as Arrow. Loops: bench/rivals/query_loops.cpp, which know that
the stream is in order, and nothing of keys. Every answer, the loops' too, is compared with DuckDB's first;
then all run in turn (harness.py).

`--profile` asks perf where the CPU time of the runs goes: shares of functions, as ns of the CPU time per
tuple measured beside them.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import BUILD, ROOT, Contest

sys.path.append(str(Path(__file__).resolve().parent / "rivals"))

from python_jobs import library

import ordstream as od
from ordstream.commands.engines import Job, by_sql
from ordstream.ground.cpus import allowed_cpus
from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation.machine import about
from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.queries import QUERIES, SideTables
from ordstream.tpcxbb.schema import SALES_STREAM

RESULTS = ROOT / "bench" / "results"
LOOP = "loop"
Answer = list[tuple[Any, ...]]
#: Samples per second and thread, and seconds that a profile should take, about.
HERTZ, PROFILED_S = 2999, 3.0
#: Functions below this share of the samples are summed up per module.
SHOWN = 0.01


class Loop:
    """One query's loop over a table of one chunk."""

    def __init__(self, name: str, table: pa.Table, job: Job) -> None:
        self.name, self.table, self.parameters = name, table, dict(job.parameters)
        self.found = library("query_loops")
        self.function = getattr(self.found, f"query_{name}")
        self.function.restype = ctypes.c_int64
        side = job.folder.side_tables()
        self.categories = side.categories.fill_null(-1).cast(pa.int64()).to_numpy()
        self.kinds = side.kinds.fill_null(-1).cast(pa.int8()).to_numpy()
        self.kept: list[np.ndarray] = []
        self.arguments = getattr(self, f"_{name}")()

    def column(self, name: str) -> list[Any]:
        """Pointer to a column's values."""
        (chunk,) = self.table[name].chunks
        values = chunk.buffers()[1]
        return [ctypes.c_void_p(values.address + 8 * chunk.offset)]

    def valid(self, name: str) -> list[Any]:
        """Pointer to a column's validity bitmap; NULL where all are valid."""
        (chunk,) = self.table[name].chunks
        if chunk.offset:
            raise AssertionError(f"column {name} begins in the middle of its bitmap")
        bits = chunk.buffers()[0]
        return [ctypes.c_void_p(bits.address if bits is not None and chunk.null_count else None)]

    def side(self, values: np.ndarray) -> list[Any]:
        """Pointer to a side table, and its length."""
        self.kept.append(values)
        return [ctypes.c_void_p(values.ctypes.data), ctypes.c_int64(len(values))]

    def whole(self, *names: str) -> list[Any]:
        """Number of rows, then parameters."""
        return [
            ctypes.c_int64(self.table.num_rows),
            *(ctypes.c_int64(self.parameters[name]) for name in names),
        ]

    def known(self) -> list[Any]:
        """Time, user, item."""
        return [
            *self.column("ts"), *self.column("wcs_user_sk"), *self.valid("wcs_user_sk"),
            *self.column("wcs_item_sk"), *self.valid("wcs_item_sk"),
        ]  # fmt: skip

    def _q1(self) -> list[Any]:
        if (
            self.parameters["stores"] is not None
            or self.parameters["categories"] is not None
            or self.parameters["min_count"]
        ):
            raise AssertionError(
                "the loop of q1 has the paper's parameters: every store and category, every pair"
            )
        columns = [one for name in ("ts", "ticket", "item") for one in self.column(name)]
        return [*columns, *self.whole("window_seconds", "limit")]

    def _q2(self) -> list[Any]:
        return [*self.known(), *self.whole("timeout_seconds", "limit")]

    def _q3(self) -> list[Any]:
        if self.parameters["purchased"] is not None or self.parameters["last_n"] != 5:
            raise AssertionError("the loop of q3 has the paper's parameters: any item, 5 clicks")
        counting = np.isin(self.categories, self.parameters["categories"]).astype(np.uint8)
        return [
            *self.known(),
            *self.valid("wcs_sales_sk"),
            *self.side(counting),
            *self.whole("within_seconds", "limit"),
        ]

    def _q4(self) -> list[Any]:
        return [
            *self.column("ts"), *self.column("wcs_user_sk"), *self.valid("wcs_user_sk"),
            *self.column("wcs_web_page_sk"), *self.valid("wcs_web_page_sk"), *self.valid("wcs_sales_sk"),
            *self.side(self.kinds), *self.whole("timeout_seconds"),
        ]  # fmt: skip

    def _q15(self) -> list[Any]:
        columns = [one for name in ("date_sk", "store", "item", "cents") for one in self.column(name)]
        return [*columns, *self.side(self.categories), *self.whole("store", "date_from", "date_to")]

    def __call__(self) -> Answer:
        """Run, and give the query's answer."""
        width = {"q1": 4, "q2": 3, "q3": 3, "q4": 2, "q15": 7}[self.name]
        rows = np.empty((self.function(*self.arguments), width), np.int64)
        self.found.query_rows(ctypes.c_void_p(rows.ctypes.data))
        return rows if self.name != "q15" else self.lines(rows.tolist())  # type: ignore[return-value]

    @staticmethod
    def lines(rows: list[list[int]]) -> Answer:
        """(category, slope, intercept) of flat and declining lines, out of exact 128-bit integers in
        halves.
        """
        found: Answer = []
        for category, *halves in rows:
            rise, run, height = (
                (high << 64) + (low % 2**64) for high, low in zip(halves[::2], halves[1::2], strict=True)
            )
            if rise <= 0:
                found.append((category, rise / run / 100, height / run / 100))
        return found


def q1_that_forgets(tables: SideTables, *, limit: int, window_seconds: int, **_: Any) -> od.Pipeline:
    """Query 1 with windows that are forgotten when they close, as its loop forgets them."""
    in_category = od.col("item").lookup(tables.categories).is_not_null()
    return (
        od.Pipeline(SALES_STREAM)
        .select("ts", "ticket", "item", where=in_category)
        .key_by("ticket")
        .pair_up("item", carry=["ts"], left="item1", right="item2")
        .key_by("item1", "item2")
        .window(od.tumbling(window_seconds), time="ts")
        .aggregate(count=od.count())
        .top_k(limit, by="count", window="start", rank="rank")
        .select("item1", "item2", "count", "rank", window=od.col("start") // window_seconds)
        .select("item1", "item2", "window", "count", "rank")
    )


def bodies(name: str, folder: DataFolder) -> tuple[int, dict[str, Callable[[], Any]]]:
    """Rows of a query's table and the ways to answer it, each compared with DuckDB's answer."""
    query = QUERIES[name]
    job = Job(query, query.profiles["paper"], folder)
    pipeline, expected = job.pipeline(), by_sql(job).answer
    table = pa.Table.from_batches(list(folder.stream(query.source))).combine_chunks()

    def node(pipeline: od.Pipeline, workers: int, **options: Any) -> Callable[[], Any]:
        return lambda: pipeline.run(table, workers=workers, **options)

    loop = Loop(name, table, job)
    found: dict[str, Callable[[], Any]] = {LOOP: loop}
    numbers = sorted({1, allowed_cpus()})
    shown = {workers: f"{workers} worker{'s' if workers > 1 else ''}" for workers in numbers}
    found |= {shown[workers]: node(pipeline, workers, emit="final") for workers in numbers}
    if name == "q1":
        forgets = q1_that_forgets(job.folder.side_tables(), **job.parameters)
        found |= {f"{shown[workers]}, forgets": node(forgets, workers) for workers in numbers}
    for way, body in found.items():
        given = body()
        if way == LOOP:
            answer = [tuple(row) for row in given.tolist()] if isinstance(given, np.ndarray) else given
        else:
            answer = query.answer(
                list(zip(*(column.to_pylist() for column in given.table.columns), strict=True)),
                **job.parameters,
            )
        difference = batch.first_difference(answer, expected)
        if difference is not None:
            raise AssertionError(f"{name}, {way}: not equal to DuckDB's answer: {difference}")
    return table.num_rows, {way: partial(dropped, body) for way, body in found.items()}


def dropped(body: Callable[[], Any]) -> None:
    """Run, and drop the answer."""
    body()


def measure(name: str, tuples: int, ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Wall and CPU ns per tuple of every way, in turn; ratios within rounds."""
    contest = Contest(tuples, ways).run(rounds, seconds=20.0)
    found: dict[str, Any] = {
        "query": name,
        "tuples": tuples,
        "rounds": len(contest.counted[LOOP]),
        "not_counted": contest.disturbed,
    }
    found["quiet"] = contest.quiet
    for way, runs in contest.counted.items():
        cpu = statistics.median(run.cpu_ns / tuples for run in runs)
        over = statistics.median(
            a.cpu_ns / b.cpu_ns for a, b in zip(runs, contest.counted[LOOP], strict=True)
        )
        found[way] = {
            "wall_ns": contest.wall(way),
            "cpu_ns": cpu,
            "wall_over_loop": contest.ratio(way, LOOP),
            "cpu_over_loop": over,
        }
    return found


def profile(
    name: str, way: str, body: Callable[[], Any], cpu_ns: float
) -> list[tuple[str, str, float, float]]:
    """(module, function, share, ns per tuple) of the CPU samples of some runs, largest first; perf
    attaches to this process.
    """
    begin = time.perf_counter()
    body()
    runs = max(2, int(PROFILED_S / (time.perf_counter() - begin)))
    with tempfile.NamedTemporaryFile(dir=BUILD, suffix=".perf") as data:
        perf = subprocess.Popen(
            [
                "perf",
                "record",
                "-q",
                "-F",
                str(HERTZ),
                "-e",
                "cpu-clock",
                "-o",
                data.name,
                "-p",
                str(os.getpid()),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.7)
        for _ in range(runs):
            body()
        perf.send_signal(signal.SIGINT)
        perf.wait()
        report = subprocess.run(
            [
                "perf",
                "report",
                "-i",
                data.name,
                "--stdio",
                "-q",
                "-s",
                "dso,symbol",
                "-t",
                "\t",
                "--percent-limit",
                "0",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    shares: collections.Counter[tuple[str, str]] = collections.Counter()
    for line in report.splitlines():
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) >= 3 and parts[0].endswith("%"):
            module = "kernel" if parts[1].startswith("[") else parts[1].partition(".")[0]
            shares[module, parts[2].partition(" ")[2].strip() or parts[2]] += float(parts[0][:-1]) / 100
    rest: collections.Counter[str] = collections.Counter()
    found = []
    for (module, function), share in shares.items():
        if share >= SHOWN and module != "kernel":
            found.append((module, function, share, share * cpu_ns))
        else:
            rest[module] += share
    found += [
        (module, "(others)" if module != "kernel" else "page faults, switches", share, share * cpu_ns)
        for module, share in rest.items()
    ]
    print(f"\n{name}, {way}: {cpu_ns:.1f} ns of CPU per tuple")
    for module, function, share, ns in sorted(found, key=lambda one: -one[2]):
        if share >= 0.003:
            print(f"  {ns:8.1f} ns {share:6.1%}  {module:24} {function}")
    return sorted(found, key=lambda one: -one[2])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--profile", action="store_true", help="where the time goes, by perf (Linux)")
    parser.add_argument(
        "--data", type=Path, help="folder for the rows, which are kept (default: one in data/)"
    )
    asked = parser.parse_args()
    folder = asked.data or ROOT / "data" / f"tpcxbb-sf{asked.scale:g}"
    data = DataFolder(generate_clicks(folder, None, sizes=Sizes.at_scale(asked.scale), store_sales=True))
    found: dict[str, Any] = {
        "about": about(" ".join(["python bench/gaps.py", *sys.argv[1:]])),
        "queries": [],
    }
    lines = []
    for name in filter(None, asked.queries.split(",")):
        tuples, ways = bodies(name, data)
        one = measure(name, tuples, ways, asked.rounds)
        if asked.profile:
            one["profile"] = {
                way: profile(name, way, body, one[way]["cpu_ns"]) for way, body in ways.items()
            }
        found["queries"].append(one)
        if not lines:
            lines = [
                "| CPU ns per tuple (wall) | tuples | " + " | ".join(ways) + " | CPU over the loop's |",
                "|---" * (3 + len(ways)) + "|",
            ]
        figures = " | ".join(f"{one[way]['cpu_ns']:.1f} ({one[way]['wall_ns']:.1f})" for way in ways)
        over = ", ".join(f"{one[way]['cpu_over_loop']:.2f}" for way in ways if way != LOOP)
        lines.append(
            f"| {name.upper()} | {tuples:,} | {figures} | {over} |" + ("" if one["quiet"] else " disturbed")
        )
    print("\n" + "\n".join(lines))
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = f"gaps-{found['about']['time'].replace(':', '')}-{found['about']['commit'].rstrip('+')}.json"
    write_whole(RESULTS / name, json.dumps(found, indent=1) + "\n")
    print(f"saved: bench/results/{name}")


if __name__ == "__main__":
    main()
