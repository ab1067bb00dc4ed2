"""Q2 (all pairs) and Q4 of 5,000,000 clicks against DuckDB, Polars and hand-written loops; `make
bench-queries`.

    python bench/queries.py [--rounds N] [--rows N] [--spark] [--no-node]

The clicks (bench/clicks.py) are an Arrow table in memory. Every answer is verified before anything is
measured, then the engines run in turn in one process, and figures are medians over the rounds that other
load did not disturb (harness.py). CPU seconds and peak memory come from one more run of each engine in a
process of its own. `--spark` adds the same jobs inside Spark (bench/queries_spark.py). The table is printed,
and saved as JSON in bench/results/.

Q2: pairs of distinct items in one session of a user (a gap of more than an hour ends it), the 30 most
frequent of all. Q4: sessions with a "dynamic" page and no "order" page; how many clicks they have, and how
many they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
from clicks import CLICKS, DYNAMIC_PAGES, FACTS, ORDER_PAGES, clicks
from harness import BUILD, ROOT, Contest
from query_rivals import LIMIT, TIMEOUT, duckdb_answer, loop_answer, loop_q2, polars_answer
from rivals.memory import peak_mb

import ordstream as od
from ordstream.ground.cpus import allowed_cpus
from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation.machine import about
from ordstream.tpcxbb.queries import QUERIES
from ordstream.tpcxbb.schema import CLICK_STREAM

RESULTS = ROOT / "bench" / "results"
Answer = list[tuple[Any, ...]]

TARGETS = {
    # (query, figure): least, most
    ("q2", "faster of DuckDB and Polars / ordstream, all workers"): (2.5, None),
    ("q4", "faster of DuckDB and Polars / ordstream, all workers"): (4.0, None),
    ("q2", "ordstream, 1 worker / loop"): (None, 1.5),
    ("q4", "ordstream, 1 worker / loop"): (None, 4.0),
    ("q2", "peak memory ordstream / DuckDB"): (None, 1.0),
}


# A contest that has taken so long has no rounds beyond those asked for, even if other load disturbed them
# (the table says which).
EXTRA_SECONDS = {"q2": 45.0, "q4": 15.0}

COLUMNS = {"q2": ("ts", "wcs_item_sk", "wcs_user_sk"), "q4": ("ts", "wcs_web_page_sk", "wcs_user_sk")}


def pipeline(query: str, schema: pa.Schema = CLICK_STREAM) -> od.Pipeline:
    """The job as an ordered pipeline that emits every update; `schema` has at least its COLUMNS."""
    page = od.col("wcs_web_page_sk")
    if query == "q2" and schema != CLICK_STREAM:  # the same chain over fewer columns
        return (
            od.Pipeline(schema)
            .filter(od.col("wcs_user_sk").is_not_null() & od.col("wcs_item_sk").is_not_null(), name="known")
            .key_by("wcs_user_sk")
            .sessionize(time="ts", timeout=TIMEOUT, collect={"items": "wcs_item_sk"}, name="sessions")
            .flat_map(od.pairs("items"), name="pairs")
            .key_by("left", "right")
            .count()
            .top_k(LIMIT, by="count", name="top")
        )
    if query == "q2":
        return QUERIES["q2"].build(None, anchor=None, timeout_seconds=TIMEOUT, limit=LIMIT)
    is_order = (page >= ORDER_PAGES.start) & (page < ORDER_PAGES.stop)
    return (
        od.Pipeline(schema)
        .filter(od.col("wcs_user_sk").is_not_null() & page.is_not_null(), name="known")
        .key_by("wcs_user_sk")
        .sessionize(
            time="ts",
            timeout=TIMEOUT,
            aggregate={
                "dynamic": od.last("ts", where=page < DYNAMIC_PAGES.stop),
                "ordered": od.last("ts", where=is_order),
            },
            name="sessions",
        )
        .filter(od.col("dynamic").is_not_null() & od.col("ordered").is_null(), name="abandoned")
        .aggregate(clicks=od.sum("count"), sessions=od.count(), name="total")
    )


def ordstream_answer(query: str, table: pa.Table, workers: int) -> Answer:
    """Q2 or Q4 by one ordered node."""
    found = pipeline(query).run(table, workers=workers, emit="final").table
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return [tuple(row) for row in QUERIES["q2"].answer(rows)] if query == "q2" else rows


def engines() -> dict[str, Callable[[str, pa.Table], Answer]]:
    """All engines by name."""
    cores = allowed_cpus()
    return {
        "ordstream, 1 worker": partial(ordstream_answer, workers=1),
        "ordstream, all workers": partial(ordstream_answer, workers=cores),
        "DuckDB": partial(duckdb_answer, threads=cores),
        "Polars": polars_answer,
        "loop": loop_answer,
    }


def arrow_file(rows: int) -> Path:
    """The clicks as an uncompressed Arrow file under build/, made once."""
    path = BUILD / f"clicks-{rows}.arrow"
    if not path.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        pyarrow.feather.write_feather(clicks(rows), path.with_suffix(".part"), compression="uncompressed")
        path.with_suffix(".part").rename(path)
    return path


def loaded(rows: int) -> pa.Table:
    """The clicks in memory, each column in one piece."""
    return pyarrow.feather.read_table(arrow_file(rows), memory_map=False).combine_chunks()


def verify(table: pa.Table) -> dict[str, Answer]:
    """Every engine's answers are equal, and those of the whole stream are the known ones."""
    answers: dict[str, Answer] = {}
    for query in ("q2", "q4"):
        for name, engine in engines().items():
            found = engine(query, table)
            expected = answers.setdefault(query, found)
            if found != expected:
                raise AssertionError(f"{query}: {name} found {found[:3]} ..., expected {expected[:3]} ...")
    if table.num_rows == CLICKS:
        _, facts = loop_q2(table)
        facts["users"] = len(table["wcs_user_sk"].unique())
        facts["abandoned_pages"], facts["abandoned_sessions"] = answers["q4"][0]
        if facts != FACTS:
            raise AssertionError(f"the click stream is not the documented one: {facts}")
    return answers


def measure(query: str, table: pa.Table, rounds: int) -> tuple[Contest, dict[str, Any]]:
    """Wall and CPU seconds of every engine, in turn."""
    bodies: dict[str, Callable[[], None]] = {}
    for name, engine in engines().items():
        bodies[name] = partial(_run, engine, query, table)
    # Every engine has just run once, to be verified.
    contest = Contest(table.num_rows, bodies).run(rounds, warm=False, seconds=EXTRA_SECONDS[query])
    found = {}
    for name, runs in contest.counted.items():
        walls, cpus = sorted(run.wall_ns / 1e9 for run in runs), sorted(run.cpu_ns / 1e9 for run in runs)
        found[name] = {"wall_s": walls[len(walls) // 2], "walls_s": walls, "cpu_s": cpus[len(cpus) // 2]}
    return contest, found


def _run(engine: Callable[[str, pa.Table], Answer], query: str, table: pa.Table) -> None:
    engine(query, table)


def figures(query: str, contest: Contest, alone: dict[str, Any]) -> list[dict[str, Any]]:
    """Ratios, taken within a round, and whether they meet their targets."""
    rival = min(("DuckDB", "Polars"), key=contest.wall)
    found = {
        "faster of DuckDB and Polars / ordstream, all workers": contest.ratio(
            rival, "ordstream, all workers"
        ),
        "ordstream, 1 worker / loop": contest.ratio("ordstream, 1 worker", "loop"),
        "ordstream, 1 worker / all workers": contest.ratio("ordstream, 1 worker", "ordstream, all workers"),
        "peak memory ordstream / DuckDB": alone["ordstream, all workers"]["peak_mb"]
        / alone["DuckDB"]["peak_mb"],
    }
    rows = []
    for what, value in found.items():
        least, most = TARGETS.get((query, what), (None, None))
        met = (least is None or value >= least) and (most is None or value <= most)
        verdict = (
            ""
            if least is None and most is None
            else ("PASS" if met else "short") + ("" if contest.quiet else "?")
        )
        rows.append(
            {
                "query": query,
                "what": what,
                "value": value,
                "at_least": least,
                "at_most": most,
                "verdict": verdict,
            }
        )
    return rows


def alone(query: str, name: str, rows: int) -> dict[str, Any]:
    """One run of one engine in a process of its own: wall, CPU seconds, peak memory with and without the
    table.
    """
    command = [sys.executable, str(Path(__file__)), "--one", query, name, "--rows", str(rows)]
    ran = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": _python_path()}
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "bench"), os.environ.get("PYTHONPATH")]))


def run_alone(query: str, name: str, rows: int) -> None:
    """What the process of `alone` does."""
    table = loaded(rows)
    engine = engines()[name]
    before, cpu, start = peak_mb(), time.process_time(), time.perf_counter()
    answer = engine(query, table)
    found = {
        "wall_s": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": peak_mb(),
        "table_mb": before,
        "rows": len(answer),
    }
    print(json.dumps(found))


def about_queries(rows: int) -> dict[str, Any]:
    """What the file says of its making, with the rows and the rivals' versions."""
    versions = {}
    for name in ("duckdb", "polars", "pyarrow", "pyspark"):
        with contextlib.suppress(PackageNotFoundError):  # PySpark: where it is not asked for
            versions[name] = version(name)
    return about("make bench-queries") | {"rows": rows, "versions": versions}


def show(query: str, together: dict[str, Any], apart: dict[str, Any], contest: Contest) -> None:
    """Print the table of a query."""
    counted = len(next(iter(contest.counted.values())))
    lost = len(contest.disturbed)
    quiet = (
        f"{lost} disturbed ones not counted"
        if contest.quiet
        else f"{lost} of them disturbed: figures say less"
    )
    print(f"\n{query}: median of {counted} rounds, {quiet}")
    for reason in contest.disturbed:
        print(f"    disturbed: {reason}")
    print(f"{'':26}{'wall s':>9}{'CPU s':>9}{'CPU s alone':>13}{'peak MB alone':>15}")
    for name, one in together.items():
        other = apart[name]
        print(
            f"{name:26}{one['wall_s']:9.3f}{one['cpu_s']:9.3f}{other['cpu_s']:13.2f}{other['peak_mb']:15.0f}"
        )


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=CLICKS)
    parser.add_argument("--spark", action="store_true", help="also inside Spark")
    parser.add_argument("--no-node", action="store_true", help="only inside Spark")
    parser.add_argument("--one", nargs=2, metavar=("QUERY", "ENGINE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        run_alone(*asked.one, asked.rows)
        return
    found: dict[str, Any] = {"about": about_queries(asked.rows), "figures": []}
    table = loaded(asked.rows)
    answers = verify(table)
    print(
        f"verified: all engines agree on {asked.rows:,} clicks; Q2 begins with {answers['q2'][0]}, Q4 is "
        f"{answers['q4'][0]}"
    )
    for query in () if asked.no_node else ("q2", "q4"):
        contest, together = measure(query, table, asked.rounds)
        apart = {name: alone(query, name, asked.rows) for name in engines()}
        show(query, together, apart, contest)
        ratios = figures(query, contest, apart)
        found[query] = {
            "together": together,
            "alone": apart,
            "quiet": contest.quiet,
            "not_counted": contest.disturbed,
        }
        found["figures"] += ratios
    if asked.spark or asked.no_node:
        import queries_spark

        found["spark"], ratios = queries_spark.measure(table, answers, asked.rounds)
        found["figures"] += ratios
    print()
    for one in found["figures"]:
        least, most = one["at_least"], one["at_most"]
        target = f">= {least:g}" if least is not None else f"<= {most:g}" if most is not None else ""
        print(f"{one['query']}  {one['what']:60}{one['value']:8.2f}  {target:8}{one['verdict']}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = f"queries-{found['about']['time'].replace(':', '')}-{found['about']['commit'].rstrip('+')}.json"
    write_whole(RESULTS / name, json.dumps(found, indent=1) + "\n")
    print(f"saved: bench/results/{name}")


if __name__ == "__main__":
    main()
