"""``ordstream run`` and ``ordstream demo``: a query on an engine, its answer checked, shown and written
as JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ordstream.commands import argument_types
from ordstream.commands.console import report_text, table
from ordstream.commands.engines import (
    Job,
    Outcome,
    Rows,
    by_sql,
    check_installed,
    check_writable,
    on_node,
    on_spark,
    saved,
    say,
)
from ordstream.commands.generate import generated
from ordstream.node.settings import EMITS, PARTITIONINGS, REORDERS, SCHEDULERS, make_settings
from ordstream.pipeline.runs import MOST_PROCESSES
from ordstream.tpcxbb import batch
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.parameters import read_parameters
from ordstream.tpcxbb.queries import QUERIES
from ordstream.tpcxbb.schema import Sizes

ENGINES = ("node", "spark", "sql")
PROFILES = ("batch", "paper")
EQUAL = "verified: equal to the batch answer"
DEMO_ROWS = 2_000_000
SHOWN_ROWS = 100
DEFAULT_EMIT = "final"
NODE_OPTIONS = ("workers", "scheduler", "partitioning", "reorder", "buckets", "chunk_rows")


def add_run(run: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    run.add_argument("query", help=f"one of {', '.join(QUERIES)}")
    run.add_argument("--engine", choices=ENGINES, default="node", help="default: %(default)s")
    run.add_argument(
        "--data",
        type=argument_types.source,
        required=True,
        metavar="DIR",
        help="folder with the tables, Parquet or CSV",
    )
    run.add_argument(
        "--profile",
        choices=PROFILES,
        default="batch",
        help="parameters of the benchmark, or of the ordered paper (default: %(default)s)",
    )
    run.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=(
            "a parameter in place of the profile's: anchor=10001, stores=10,20, store=none, "
            "date_from=2001-09-02"
        ),
    )
    run.add_argument("--verify", action="store_true", help="compare with the batch answer")
    run.add_argument("--json", type=Path, metavar="FILE", help="write answer and report there")
    run.add_argument("--sort", action="store_true", help="engine node: sort the rows first, in memory")
    run.add_argument(
        "--emit",
        choices=EMITS,
        default=DEFAULT_EMIT,
        help="every update of the last operator, or only the answer at the end (default: %(default)s)",
    )
    run.add_argument(
        "--nodes",
        type=argument_types.count,
        help="cut the pipeline over so many nodes (default: one, not cut)",
    )
    _add_node_options(run, "--engine sql")
    run.set_defaults(command=_run)


def add_demo(demo: argparse.ArgumentParser) -> None:
    """Add the arguments of ``demo``."""
    demo.add_argument(
        "--data",
        type=argument_types.source,
        help="folder with web_clickstreams files, Parquet or CSV (default: generate)",
    )
    demo.add_argument(
        "--rows",
        type=argument_types.count,
        help=f"rows to generate (default: {DEMO_ROWS}; with --stream 200000)",
    )
    demo.add_argument(
        "--stream",
        action="store_true",
        help="as a stream in Spark that is killed in the middle, and goes on",
    )
    demo.add_argument("--json", type=Path, metavar="FILE", help="write answer and report there")
    _add_node_options(demo, "--stream")
    demo.set_defaults(
        command=_demo,
        query="q2",
        engine="spark",
        profile="paper",
        param=[],
        verify=True,
        sort=False,
        nodes=None,
        emit=None,
    )


def _add_node_options(parser: argparse.ArgumentParser, without: str) -> None:
    group = parser.add_argument_group(f"ordered node, not with {without}")
    group.add_argument(
        "--workers",
        type=_workers,
        help="threads (default, or auto: as many as bring something; 0: the calling thread alone)",
    )
    group.add_argument("--scheduler", choices=SCHEDULERS, help="which operator runs next")
    group.add_argument("--partitioning", choices=PARTITIONINGS, help="of keyed operators' queues")
    group.add_argument("--reorder", choices=REORDERS, help="reorder buffer")
    group.add_argument("--buckets", type=int, help="parts of each key space")
    group.add_argument(
        "--chunk-rows",
        type=_auto,
        help="largest chunk, in tuples; 1: tuple at a time (default, or auto: by cost)",
    )


def _workers(text: str) -> int | str:
    """A whole number, or `auto`."""
    return "auto" if text == "auto" else _auto(text) or 0


def _auto(text: str) -> int | None:
    """A whole number; None for `auto`."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number or auto") from None


def _demo(chosen: argparse.Namespace) -> int:
    check_installed("spark", verify=False)
    given = {name: one for name in NODE_OPTIONS if (one := getattr(chosen, name)) is not None}
    if chosen.stream and given:
        raise ValueError(f"{_flag(given)} is not with --stream, whose nodes choose it: leave it out")
    make_settings(given)  # before rows are generated
    if chosen.json is not None:
        check_writable(chosen.json)
    if chosen.stream:
        from ordstream.commands.stream_demo import run

        return run(chosen, chosen.rows)
    chosen.rows = DEMO_ROWS if chosen.rows is None else chosen.rows
    if chosen.data is None:
        out = Path("data") / f"clicks-{chosen.rows}"
        chosen.data = generated(out, Sizes.for_rows(chosen.rows), chosen.rows, seed=1)
    return _run(chosen)


def _flag(options: Mapping[str, Any]) -> str:
    """The first of them as it is written."""
    return f"--{next(iter(options)).replace('_', '-')}"


def _check_sql(chosen: argparse.Namespace, options: Mapping[str, Any]) -> None:
    """SQL takes no options of a node, but for the node that verifies its answer."""
    if chosen.nodes is not None:
        raise ValueError("--nodes is for the engines node and spark")
    defaults = {"emit": DEFAULT_EMIT, "sort": False}
    asked = {**options, "sort": chosen.sort}
    given = {name: value for name, value in asked.items() if value != defaults.get(name)}
    if given and not chosen.verify:
        raise ValueError(
            f"{_flag(given)} is for the engines node and spark, and for sql with --verify, whose answer a "
            "node checks"
        )


def _run(chosen: argparse.Namespace) -> int:
    if chosen.query not in QUERIES:
        raise ValueError(f"{chosen.query} is not a query; there is {', '.join(QUERIES)}")
    query = QUERIES[chosen.query]
    parameters = read_parameters(query.name, query.profiles[chosen.profile], chosen.param)
    check_installed(chosen.engine, chosen.verify)
    names = (*NODE_OPTIONS, "emit")
    options = {name: one for name in names if (one := getattr(chosen, name)) is not None}
    make_settings(options)
    if chosen.engine == "sql":
        _check_sql(chosen, options)
    if chosen.engine == "node" and (chosen.nodes or 1) > MOST_PROCESSES:
        most = f"at most {MOST_PROCESSES} processes"
        raise ValueError(f"--nodes {chosen.nodes}: the engine node takes {most}")
    if chosen.json is not None:
        check_writable(chosen.json)
    job = Job(query, parameters, DataFolder(chosen.data), options, chosen.nodes, chosen.sort)
    outcome, expected = _ENGINES[chosen.engine](job, chosen.verify)
    _show(query.name, parameters, outcome)
    difference = None if expected is None else batch.first_difference(outcome.answer, expected)
    verified = None if expected is None else difference is None
    if chosen.json is not None:
        saved(chosen.json, _content(chosen, parameters, outcome, verified))
    if difference is not None:
        print(f"\nnot equal to the batch answer: {difference}")
        return 1
    if expected is not None:
        print(f"\n{EQUAL}")
    return 0


def _run_on_node(job: Job, verify: bool) -> tuple[Outcome, Rows | None]:
    outcome = on_node(job)
    return outcome, by_sql(job).answer if verify else None


def _run_by_sql(job: Job, verify: bool) -> tuple[Outcome, Rows | None]:
    """The batch answer; to verify it, it is compared with the node's."""
    outcome = by_sql(job)
    if verify:
        say("asking an ordered node for the stream's answer")
    return outcome, on_node(job).answer if verify else None


_ENGINES: dict[str, Callable[[Job, bool], tuple[Outcome, Rows | None]]] = {
    "node": _run_on_node,
    "spark": on_spark,
    "sql": _run_by_sql,
}


def columns(query: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of an answer's columns."""
    names = {
        "q1": ["item1", "item2", "count"],
        "q2": ["left", "right", "count"],
        "q3": ["purchased", "viewed", "count"],
        "q4": ["pages", "abandoned_sessions"],
        "q15": ["category", "slope", "intercept"],
    }[query]
    return ["window", *names] if parameters.get("window_seconds") is not None else names


def _show(query: str, parameters: Mapping[str, Any], outcome: Outcome) -> None:
    rows = outcome.answer[:SHOWN_ROWS]
    print(table(columns(query, parameters), [[str(value) for value in row] for row in rows], right=True))
    if len(outcome.answer) > len(rows):
        print(f"... and {len(outcome.answer) - len(rows):,} more rows")
    if outcome.report is not None:
        print()
        print(report_text(outcome.report))


def _content(
    chosen: argparse.Namespace, parameters: Mapping[str, Any], outcome: Outcome, verified: bool | None
) -> dict[str, Any]:
    report = outcome.report or {}
    answer = [list(row) for row in outcome.answer]
    content = {
        "query": chosen.query,
        "profile": chosen.profile,
        "engine": chosen.engine,
        "parameters": dict(parameters),
        "columns": columns(chosen.query, parameters),
        "answer": answer,
        "tuples": outcome.tuples,
        "seconds": outcome.seconds,
        "tuples_per_second": outcome.tuples / outcome.seconds if outcome.seconds > 0 else 0.0,
        "latency": report.get("latency"),
        "operators": report.get("operators"),
        "verified": verified,
        "report": outcome.report,
    }
    return content | {"rows": answer} if chosen.command is _demo else content
