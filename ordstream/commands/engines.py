"""Where a query can run: on an ordered node here, on nodes in Spark, or as SQL over the whole tables."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ordstream.commands.apart import apart
from ordstream.commands.console import Bar
from ordstream.ground.cpus import allowed_cpus
from ordstream.ground.whole_file import check_place, write_whole
from ordstream.node.merged_report import merged_tasks
from ordstream.pipeline.pipeline import Pipeline
from ordstream.tpcxbb import batch
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.queries import Query
from ordstream.tpcxbb.schema import CLICK_ORDER, SALES_ORDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes
    ----------
    query : Query
    parameters : mapping
        All of the query's.
    folder : DataFolder
        Its tables.
    options : mapping
        Of a run: ``workers``, ``scheduler``, ``emit``, ...
    nodes : int, optional
        Nodes to cut the pipeline for: processes here, tasks in Spark.
    sort : bool
        Sort the source's rows first, in memory; Spark sorts anyway.
    """

    query: Query
    parameters: Mapping[str, Any]
    folder: DataFolder
    options: Mapping[str, Any] = field(default_factory=dict)
    nodes: int | None = None
    sort: bool = False

    def pipeline(self) -> Pipeline:
        """The query with its parameters, over the side tables that it needs."""
        needed = batch.tables_of(batch.statement(self.query.name, **self.parameters))
        return self.query.build(self.folder.side_tables(needed), **self.parameters)


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes
    ----------
    answer : list of tuple
        In the form of `Query.answer`.
    tuples : int
        Rows of the query's source.
    seconds : float
        Wall time of the run, without the start of Spark and without the comparison.
    report : dict, optional
        The node's, or of several nodes together; none from SQL.
    """

    answer: Rows
    tuples: int
    seconds: float
    report: dict[str, Any] | None


def on_node(job: Job) -> Outcome:
    """Run on this machine, in this process or, with `nodes`, in as many."""
    pipeline = job.pipeline()
    total = job.folder.rows(job.query.source)
    source = job.folder.stream(job.query.source, sort=job.sort)
    if job.nodes is not None:
        begin = time.perf_counter()
        result = pipeline.run(source, processes=job.nodes, **job.options)
        rows = _rows(result.table.to_batches())
        seconds, report = time.perf_counter() - begin, json.loads(result.report.to_json())
    else:
        with (
            pipeline.stream(source, **job.options) as stream,
            Bar("processing", lambda: int(stream.progress()[2]), total),
        ):
            rows = _rows(stream)
        report = json.loads(stream.report.to_json())
        seconds = report["seconds"]
    return Outcome(job.query.answer(rows, **job.parameters), total, seconds, report)


def on_spark(job: Job, verify: bool, session: SparkSession | None = None) -> tuple[Outcome, Rows | None]:
    """Run in Spark, and ask Spark SQL for the batch answer if that is wanted.

    Parameters
    ----------
    session : SparkSession, optional
        Default: one for this run, whose tasks have the cores of a node.
    """
    node_cores = None if job.nodes is None else max(1, allowed_cpus() // job.nodes)

    def asked(running: SparkSession) -> tuple[Outcome, Rows | None]:
        outcome = _apply(job, running)
        return outcome, _spark_answer(running, job) if verify else None

    return _with_spark(asked, session, node_cores)


def _apply(job: Job, session: SparkSession) -> Outcome:
    from ordstream import spark

    query, folder = job.query, job.folder
    total = folder.rows(query.source)
    context = session.sparkContext
    cores = context.getConf().get("spark.task.cpus", "1")
    workers = "one Python worker" if job.nodes is None else f"Python workers for {job.nodes} nodes,"
    say(f"Spark {session.version} {context.master}, {workers} with {cores} cores; rows from {folder.path}")
    clicks = query.source == "web_clickstreams"
    channel = spark.Channel()
    result = spark.apply(
        job.pipeline(),
        folder.clicks_dataframe(session) if clicks else folder.sales_dataframe(session),
        order_by=CLICK_ORDER if clicks else SALES_ORDER,
        report=channel,
        **dict(job.options) | ({} if job.nodes is None else {"nodes": job.nodes}),
    )
    begin = time.perf_counter()
    with Bar("processing", lambda: channel.rows, total):
        rows: Rows = [tuple(row) for row in result.collect()]
    seconds = time.perf_counter() - begin
    say(f"Spark job: {seconds:.1f} s")
    return Outcome(query.answer(rows, **job.parameters), total, seconds, merged_tasks(channel.reports))


def by_sql(job: Job, session: SparkSession | None = None) -> Outcome:
    """Ask DuckDB, or Spark SQL where DuckDB is not installed: in `session`, or in one for this question."""
    total = job.folder.rows(job.query.source)
    if _has_duckdb():
        import duckdb

        begin = time.perf_counter()
        try:
            rows = batch.duckdb_answer(job.folder, job.query.name, **job.parameters)
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        # out of memory, mostly; none of them is an exception that the command line knows
        except duckdb.Error as error:
            raise RuntimeError(
                f"DuckDB has no batch answer: {str(error).strip().splitlines()[0]}"
            ) from error
    else:

        def asked(running: SparkSession) -> tuple[float, Rows]:
            return time.perf_counter(), _spark_answer(running, job)

        begin, rows = _with_spark(asked, session)
    return Outcome(rows, total, time.perf_counter() - begin, None)


def say(text: str) -> None:
    """Tell on stderr what is going on."""
    print(text, file=sys.stderr, flush=True)


def _rows(batches: Any) -> Rows:
    rows: Rows = []
    for part in batches:
        rows.extend(zip(*(column.to_pylist() for column in part.columns), strict=True))
    return rows


def _has_duckdb() -> bool:
    return importlib.util.find_spec("duckdb") is not None


def check_installed(engine: str, verify: bool) -> None:
    """Raise ImportError, before anything is read or generated, where what a run needs is not installed.

    Parameters
    ----------
    engine : str
        "node", "spark" or "sql".
    verify : bool
        The batch answer is asked for, too.
    """
    if importlib.util.find_spec("pyspark") is not None:
        return
    if engine == "spark":
        raise ImportError("this runs in Spark, which needs PySpark: pip install 'ordstream[spark]'")
    if (engine == "sql" or verify) and not _has_duckdb():
        raise ImportError("the batch answer needs DuckDB or PySpark: pip install duckdb")


def _with_spark(
    asked: Callable[[SparkSession], T], session: SparkSession | None, node_cores: int | None = None
) -> T:
    """What is asked of a session: of the given one, in this thread, or of one for this question, where
    Ctrl-C can't reach it.
    """
    with _failures_in_one_line():
        if session is not None:
            return asked(session)
        from ordstream import spark

        def work() -> T:
            own = spark.local_session(node_cores=node_cores)
            try:
                return asked(own)
            finally:
                own.stop()

        return apart(work)


@contextlib.contextmanager
def _failures_in_one_line() -> Iterator[None]:
    """Spark's exceptions bring the traces of two languages along."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # the second: a worker that died without a word
        raise RuntimeError(f"the Spark job failed: {_reason(str(error))}") from error


_TRACEBACK = "Traceback (most recent call last):"
_JAVA_ERROR = re.compile(r"(?:[\w.$]+\.)+\w*(?:Exception|Error): ")


def _reason(text: str) -> str:
    """What went wrong, in one line: the exception that a Python worker ended with and its message, else
    Java's, else the first line.
    """
    blocks = text.split(_TRACEBACK)
    # of a chain of exceptions the last one was raised; frames and their code are indented
    if len(blocks) > 1:
        lines = blocks[-1].splitlines()
        start = next((k for k, line in enumerate(lines) if line and not line[0].isspace()), None)
        if start is not None:
            ours = lines[start].startswith("ordstream.errors.")
            message = itertools.takewhile(
                lambda line: line.strip() and not line.startswith("JVM stacktrace"), lines[start:]
            )
            told = " ".join(line.strip() for line in message)
            return told.partition(": ")[2] if ours else told
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    told = next(
        (line for line in lines if "SparkException: " in line), (lines or ["for no known reason"])[0]
    )
    return _JAVA_ERROR.split(told)[-1]


def _spark_answer(session: SparkSession, job: Job) -> Rows:
    say("asking Spark SQL for the batch answer")
    return batch.spark_answer(session, job.folder, job.query.name, **job.parameters)


def check_writable(path: Path) -> None:
    """Raise ValueError, before a run, where `saved` could not write after it. What is in the file stays."""
    try:
        if path.is_dir():
            raise ValueError(f"--json {path} is a folder; name a file in it")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"no folder for --json {path}")
        check_place(path)
    except OSError as error:
        raise ValueError(f"--json {path} can't be written: {error.strerror}") from None


def saved(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    try:
        write_whole(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise ValueError(f"--json {error}") from None
