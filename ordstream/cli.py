"""The command line: ``ordstream demo``, ``ordstream generate``, ``ordstream run``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordstream.console import Bar, report_text, table
from ordstream.errors import OrdstreamError
from ordstream.settings import PARTITIONINGS, REORDERS, SCHEDULERS
from ordstream.tpcxbb import batch
from ordstream.tpcxbb.generator import generate_clicks
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.queries import PLANNED, QUERIES
from ordstream.tpcxbb.schema import CLICK_ORDER, Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EQUAL = "verified: equal to the batch answer"
DEMO_ROWS = 2_000_000
NODE_OPTIONS = ("workers", "scheduler", "partitioning", "reorder", "buckets", "chunk_rows")

Rows = list[tuple[Any, ...]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Returns
    -------
    int
        0; 1 if an answer differs from the batch answer; 2 if the command could not be run; 130 after Ctrl-C.
    """
    chosen = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = chosen.command
    try:
        return command(chosen)
    except (OrdstreamError, ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"ordstream: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ordstream: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ordstream", description="Ordered stream processing on all cores.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="run TPCx-BB query 2 in Spark on an ordered node and check the answer"
    )
    demo.add_argument(
        "--data", type=Path, help="folder with web_clickstreams files, Parquet or CSV (default: generate)"
    )
    demo.add_argument("--rows", type=int, default=DEMO_ROWS, help="rows to generate (default: %(default)s)")
    demo.add_argument("--json", type=Path, metavar="FILE", help="write answer and report there")
    _add_node_options(demo)
    demo.set_defaults(command=_demo)

    generate = commands.add_parser("generate", help="write TPCx-BB tables as Parquet")
    size = generate.add_mutually_exclusive_group(required=True)
    size.add_argument("--rows", type=int, help="clicks to write")
    size.add_argument("--scale", type=float, help="scale factor, 1 or more (6.8 million clicks at 1)")
    generate.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    generate.add_argument("--seed", type=int, default=1, help="of the random rows (default: %(default)s)")
    generate.set_defaults(command=_generate)

    run = commands.add_parser("run", help="run a query")
    run.add_argument("query", help=f"one of {', '.join(QUERIES)} (next: {', '.join(PLANNED)})")
    run.add_argument(
        "--engine", choices=("spark", "node", "sql"), default="node", help="default: %(default)s"
    )
    run.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder with the tables")
    run.add_argument("--verify", action="store_true", help="compare with the batch answer")
    run.add_argument("--json", type=Path, metavar="FILE", help="write answer and report there")
    run.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the query, such as anchor=10001 or limit=100",
    )
    _add_node_options(run)
    run.set_defaults(command=_run)
    return parser


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ordered node")
    group.add_argument(
        "--workers", type=int, help="threads (default: all cores; 0: the calling thread alone)"
    )
    group.add_argument("--scheduler", choices=SCHEDULERS, help="which operator runs next")
    group.add_argument("--partitioning", choices=PARTITIONINGS, help="of keyed operators' queues")
    group.add_argument("--reorder", choices=REORDERS, help="reorder buffer")
    group.add_argument("--buckets", type=int, help="parts of each key space")
    group.add_argument("--chunk-rows", type=int, help="largest chunk, in tuples; 1: tuple at a time")


def _node_options(chosen: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(chosen, name) for name in NODE_OPTIONS if getattr(chosen, name) is not None}


def _generate(chosen: argparse.Namespace) -> int:
    sizes = Sizes.for_rows(chosen.rows) if chosen.rows is not None else Sizes.at_scale(chosen.scale)
    folder = _generated(chosen.out, sizes, chosen.rows, chosen.seed, store_sales=True)
    print(f"{folder}: {', '.join(sorted(file.name for file in folder.glob('*.parquet')))}")
    return 0


def _generated(out: Path, sizes: Sizes, rows: int | None, seed: int, store_sales: bool = False) -> Path:
    written = 0

    def count(done: int, _: int) -> None:
        nonlocal written
        written = done

    with Bar("generating", lambda: written, rows or sizes.expected_clicks):
        folder = generate_clicks(out, rows, seed=seed, progress=count, sizes=sizes, store_sales=store_sales)
        written = DataFolder(folder).rows("web_clickstreams")
    return folder


def _demo(chosen: argparse.Namespace) -> int:
    if chosen.data is None:
        out = Path("data") / f"clicks-{chosen.rows}"
        chosen.data = _generated(out, Sizes.for_rows(chosen.rows), chosen.rows, seed=1)
    chosen.query, chosen.engine, chosen.verify, chosen.param = "q2", "spark", True, []
    return _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.query not in QUERIES:
        later = "comes next" if chosen.query in PLANNED else "is not a query"
        raise ValueError(f"{chosen.query} {later}; there is {', '.join(QUERIES)}")
    parameters = _parameters(chosen.param)
    folder = DataFolder(chosen.data)
    engine = {"spark": _run_on_spark, "node": _run_on_node, "sql": _run_by_sql}[chosen.engine]
    names, rows, report, expected = engine(chosen, folder, parameters)
    print(table(names, [[str(value) for value in row] for row in rows], right=True))
    if report is not None:
        print()
        print(report_text(report))
    difference = None if expected is None else batch.first_difference(rows, expected)
    if chosen.json is not None:
        answer = {"query": chosen.query, "columns": names, "rows": rows, "report": report}
        if expected is not None:
            answer["verified"] = difference is None
        chosen.json.write_text(json.dumps(answer, indent=1) + "\n")
    if difference is not None:
        print(f"\nnot equal to the batch answer: {difference}")
        return 1
    if expected is not None:
        print(f"\n{EQUAL}")
    return 0


def _parameters(pairs: Sequence[str]) -> dict[str, int | None]:
    parameters: dict[str, int | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or (value != "none" and not value.lstrip("-").isdigit()):
            raise ValueError(f"--param takes name=number or name=none, not {pair!r}")
        parameters[name] = None if value == "none" else int(value)
    return parameters


Outcome = tuple[list[str], Rows, dict[str, Any] | None, Rows | None]
"""Column names, rows, the node's report, the batch answer if asked for."""


def _pipeline(query: str, parameters: dict[str, int | None]) -> Any:
    try:
        return QUERIES[query](**parameters)
    except TypeError as error:
        raise ValueError(f"{query}: {error}") from error


def _run_on_spark(
    chosen: argparse.Namespace, folder: DataFolder, parameters: dict[str, int | None]
) -> Outcome:
    from ordstream import spark

    pipeline = _pipeline(chosen.query, parameters)
    total = folder.rows("web_clickstreams")
    session = spark.local_session()
    try:
        context = session.sparkContext
        cores = context.getConf().get("spark.task.cpus")
        _say(
            f"Spark {session.version} {context.master}, one Python worker with {cores} cores; "
            f"rows from {folder.path}"
        )
        channel = spark.Channel()
        clicks = folder.clicks_dataframe(session)
        result = spark.apply(pipeline, clicks, order_by=CLICK_ORDER, report=channel, **_node_options(chosen))
        begin = time.monotonic()
        with Bar("processing", lambda: channel.rows, total):
            rows: Rows = [tuple(row) for row in result.collect()]
        _say(f"Spark job: {time.monotonic() - begin:.1f} s")
        expected = _spark_answer(session, folder, chosen.query, parameters) if chosen.verify else None
    finally:
        session.stop()
    # the last attempt's report, where a task was run again
    report = channel.reports[max(channel.reports)] if channel.reports else None
    return pipeline.schema.names, rows, report, expected


def _spark_answer(
    session: SparkSession, folder: DataFolder, query: str, parameters: dict[str, int | None]
) -> Rows:
    _say("asking Spark SQL for the batch answer")
    return batch.spark_answer(session, folder, query, **parameters)


def _run_on_node(
    chosen: argparse.Namespace, folder: DataFolder, parameters: dict[str, int | None]
) -> Outcome:
    pipeline = _pipeline(chosen.query, parameters)
    total = folder.rows("web_clickstreams")
    rows: Rows = []
    with (
        pipeline.stream(folder.clicks(), **_node_options(chosen)) as stream,
        Bar("processing", lambda: int(stream.progress()[2]), total),
    ):
        for part in stream:
            rows.extend(zip(*(column.to_pylist() for column in part.columns), strict=True))
    report = json.loads(stream.report.to_json())
    expected = batch.duckdb_answer(folder, chosen.query, **parameters) if chosen.verify else None
    return pipeline.schema.names, rows, report, expected


def _run_by_sql(chosen: argparse.Namespace, folder: DataFolder, parameters: dict[str, int | None]) -> Outcome:
    if chosen.verify:
        raise ValueError("--verify compares with the sql engine: choose another one")
    names = _pipeline(chosen.query, parameters).schema.names
    return names, batch.duckdb_answer(folder, chosen.query, **parameters), None, None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
