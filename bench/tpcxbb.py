"""The five TPCx-BB queries on all engines and in both profiles: answers compared, times and machine
recorded.

`make bench-tpcxbb` runs it at scale factor 1. The rows are generated once and kept; the answers of the
stream on an ordered node and in Spark must equal Spark SQL's and DuckDB's before a time counts. One session
of Spark serves all runs, so that its start is in no figure. What is timed, each from reading the Parquet
files to the answer: the node in this process; the Spark job with one node in it; DuckDB, which gets its rows
as Arrow tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordstream.commands.engines import Job, Outcome, by_sql, on_node, on_spark
from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation.machine import about
from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.queries import QUERIES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
ENGINES = ("node", "spark", "sql")
PROFILES = ("batch", "paper")


def run(
    folder: DataFolder,
    names: Sequence[str] = tuple(QUERIES),
    profiles: Sequence[str] = PROFILES,
    engines: Sequence[str] = ENGINES,
    repeats: int = 3,
    session: Any = None,
) -> list[dict[str, Any]]:
    """Run queries on engines in turn; each entry has the median of the times and the answer's length.

    Raises
    ------
    AssertionError
        If an engine's answer differs from DuckDB's, or that from Spark SQL's.
    """
    entries = []
    for name in names:
        query = QUERIES[name]
        for profile in profiles:
            job = Job(query, query.profiles[profile], folder, {"emit": "final"})
            expected = by_sql(job).answer
            if session is not None:
                by_spark = batch.spark_answer(session, folder, name, **job.parameters)
                _check(by_spark, expected, f"{name} {profile}: Spark SQL")
            outcomes: dict[str, list[Outcome]] = {engine: [] for engine in engines}
            for turn in range(repeats):
                for engine in engines if turn % 2 == 0 else tuple(reversed(engines)):
                    outcome = _run_on(engine, job, session)
                    _check(outcome.answer, expected, f"{name} {profile}: {engine}")
                    outcomes[engine].append(outcome)
            for engine, ran in outcomes.items():
                entries.append(_entry(name, profile, engine, ran))
                print(line(entries[-1]), flush=True)
    return entries


def _run_on(engine: str, job: Job, session: Any) -> Outcome:
    if engine == "spark":
        return on_spark(job, False, session)[0]
    return on_node(job) if engine == "node" else by_sql(job)


def _check(answer: Any, expected: Any, what: str) -> None:
    difference = batch.first_difference(answer, expected)
    if difference is not None:
        raise AssertionError(f"{what} is not equal to DuckDB's answer: {difference}")


def _entry(name: str, profile: str, engine: str, ran: Sequence[Outcome]) -> dict[str, Any]:
    seconds = statistics.median(outcome.seconds for outcome in ran)
    middle = min(ran, key=lambda outcome: abs(outcome.seconds - seconds))
    report = middle.report or {}
    operators = [
        {
            key: operator[key]
            for key in ("name", "kind", "tuples_in", "tuples_out", "cost_ns", "worker_share")
        }
        for operator in report.get("operators", [])
    ]
    return {
        "query": name,
        "profile": profile,
        "engine": engine,
        "tuples": middle.tuples,
        "seconds": seconds,
        "all_seconds": [outcome.seconds for outcome in ran],
        "tuples_per_second": middle.tuples / seconds,
        "rows": len(middle.answer),
        "verified": True,
        "latency": report.get("latency"),
        "operators": operators,
    }


def line(entry: dict[str, Any]) -> str:
    """One entry as text."""
    return (
        f"{entry['query']:<4} {entry['profile']:<6} {entry['engine']:<6} {entry['seconds']:8.2f} s "
        f"{entry['tuples_per_second'] / 1e6:8.3f} million tuples/s  {entry['rows']:>6} rows, equal"
    )


def markdown(entries: Sequence[dict[str, Any]], found: dict[str, Any], scale: str) -> str:
    """The table for docs/benchmarks.md: seconds by engine, and the node's throughput and latency."""
    engines = [engine for engine in ENGINES if any(entry["engine"] == engine for entry in entries)]
    labels = {"node": "node, s", "spark": "node in Spark, s", "sql": "DuckDB, s"}
    lines = [
        f"{scale}; {found['processor']}, {found['cpus']} CPUs, {found['system']}, Python {found['python']}, "
        f"pyarrow {found['pyarrow']}; commit {found['commit']}; `{found['command']}`; load before "
        f"{found['load']:.1f}.",
        "",
        f"| query | profile | tuples | {' | '.join(labels[engine] for engine in engines)} "
        "| node, million tuples/s | processing latency p50 / p95 / p99, ms |",
        f"|---|---|{'---|' * (len(engines) + 3)}",
    ]
    by_key = {(entry["query"], entry["profile"], entry["engine"]): entry for entry in entries}
    for name, profile in dict.fromkeys((entry["query"], entry["profile"]) for entry in entries):
        one = {engine: by_key[name, profile, engine] for engine in engines}
        first = next(iter(one.values()))
        cells = [
            name,
            profile,
            f"{first['tuples']:,}",
            *(f"{one[engine]['seconds']:.2f}" for engine in engines),
        ]
        node = one.get("node")
        cells.append("" if node is None else f"{node['tuples_per_second'] / 1e6:.2f}")
        figures = ((node or {}).get("latency") or {}).get("processing", {})
        known = [figures.get(f"{quantile}_us") for quantile in ("p50", "p95", "p99")]
        cells.append(" / ".join("-" if value is None else f"{value / 1e3:.1f}" for value in known))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate, run, verify, save; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description="TPCx-BB queries on all engines, results verified")
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor (default: %(default)s)")
    parser.add_argument("--rows", type=int, help="or so many clicks")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (default: %(default)s)")
    parser.add_argument("--queries", default=",".join(QUERIES), help="default: %(default)s")
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: %(default)s")
    parser.add_argument("--profiles", default=",".join(PROFILES), help="default: %(default)s")
    parser.add_argument(
        "--data", type=Path, help="folder for the rows, which are kept (default: one in data/)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON file")
    chosen = parser.parse_args(arguments)
    what = f"{chosen.rows}-rows" if chosen.rows else f"sf{chosen.scale:g}"
    sizes = Sizes.for_rows(chosen.rows) if chosen.rows else Sizes.at_scale(chosen.scale)
    given = [
        f"--{name} {getattr(chosen, name)}"
        for name in ("scale", "rows", "repeats", "queries", "engines", "profiles")
        if getattr(chosen, name) != parser.get_default(name)
    ]
    found = about("make bench-tpcxbb" + (f' ARGS="{" ".join(given)}"' if given else ""))
    data = chosen.data or ROOT / "data" / f"tpcxbb-{what}"
    folder = DataFolder(generate_clicks(data, chosen.rows, sizes=sizes, store_sales=True))
    engines = chosen.engines.split(",")
    session = None
    if "spark" in engines:
        from ordstream.spark import local_session

        session = local_session(memory="4g")
    try:
        entries = run(
            folder, chosen.queries.split(","), chosen.profiles.split(","), engines, chosen.repeats, session
        )
    except AssertionError as error:
        print(f"tpcxbb: {error}", file=sys.stderr)
        return 1
    finally:
        if session is not None:
            session.stop()
    print(f"\n{markdown(entries, found, what)}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"tpcxbb-{what}-{found['time'].replace(':', '')}-{found['commit'].rstrip('+')}.json"
    write_whole(path, json.dumps({"about": found, "entries": entries}, indent=1) + "\n")
    print(f"\nsaved: {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
