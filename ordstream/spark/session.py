"""A quiet local Spark session for one ordered node: one task at a time, which holds all cores.

Spark's own start prints up to ten lines that look like trouble and are none. A `log4j2` configuration,
settings and warning filters silence them at their source; the one line that the Java launcher prints before
any setting is read ("Using incubator modules") is taken out of the start-up part of its stderr. Everything
after the start is passed on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from ordstream.ground.cpus import allowed_cpus
from ordstream.node.settings import whole
from ordstream.operators.arguments import positive_int
from ordstream.spark.interrupt import repair, without_traces
from ordstream.spark.quiet import PANDAS_NOTICE

NOISE = (b"WARNING: Using incubator modules",)

_hushed = threading.Event()

# Rows that reach a Python worker at a time, at most 64 MiB of them. Each batch costs the worker some 100 us;
# Spark's default is 10,000.
ARROW_ROWS = "65536"

# PythonGatewayServer announces its log level unless that is the root's. Executor and TaskSetManager print a
# Java trace for each exception in a Python task; the exception itself reaches the caller in a readable form.
# ShuffleBlockFetcherIterator tells of tasks that are stopped then while they read; a fetch that fails is in
# the error of its stage too.
# That of a stream reaches only who waits for its end, so it is told, without Java's trace.
LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.start.name = org.apache.spark.api.python.PythonGatewayServer
logger.start.level = {level}
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.fetches.name = org.apache.spark.storage.ShuffleBlockFetcherIterator
logger.fetches.level = off
appender.brief.type = Console
appender.brief.name = brief
appender.brief.target = SYSTEM_ERR
appender.brief.layout.type = PatternLayout
appender.brief.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m: %ex{{short.message}}%n
logger.streams.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.streams.level = {level}
logger.streams.additivity = false
logger.streams.appenderRef.brief.ref = brief
logger.aborts.name = org.apache.spark.util.Utils
logger.aborts.level = off
logger.files.name = org.apache.spark.sql.execution.datasources
logger.files.level = off
"""


#: A task that fails so often fails for good.
MOST_RETRIES = 1_000


def local_session(
    cores: int | None = None,
    *,
    node_cores: int | None = None,
    retries: int = 0,
    memory: str = "2g",
    log_level: str = "error",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session in this process, on the loopback interface only.

    Parameters
    ----------
    cores : int, optional
        Cores that Spark uses; default all that this process may use.
    node_cores : int, optional
        Cores of one task (`spark.task.cpus`), which is what an ordered node gets; default all of `cores`.
    retries : int
        How often a failed task is tried again.
    memory : str
        Java heap, as Spark writes it (``"2g"``).
    log_level : str
        Lowest level of Spark's log that is printed.
    settings : dict, optional
        Further Spark settings, which win over the ones made here.

    Raises
    ------
    PlanError
        If a number of cores, or `retries`, is none, or a node has more cores than Spark.
    RuntimeError
        If there is no Java, this process already has a Spark context (it could not be given these settings)
        or is a client of Spark Connect, or the machine does not know the name localhost, which PySpark
        listens on.
    """
    cores = allowed_cpus() if cores is None else positive_int(cores, "cores")
    node_cores = cores if node_cores is None else positive_int(node_cores, "node_cores", cores)
    retries = whole("retries", retries, 0, MOST_RETRIES)
    if SparkContext._active_spark_context is not None:
        raise RuntimeError("this process already has a Spark context: stop it first, or use its session")
    if is_remote():
        raise RuntimeError(
            "this process is a client of Spark Connect, beside which PySpark starts no Spark of its own: "
            "use its session, or another process (without SPARK_REMOTE)"
        )
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise RuntimeError(
            "Spark needs a Java runtime, 17 or newer: none is on PATH and JAVA_HOME is not set"
        )
    try:
        socket.getaddrinfo("localhost", 0)
    except socket.gaierror as error:
        raise RuntimeError(
            f"PySpark listens on 'localhost', which this machine can't resolve ({error}): add the line "
            "`127.0.0.1 localhost` to /etc/hosts"
        ) from error
    without_traces()  # Ctrl-C while Spark starts
    # Spark takes the first python3 on PATH for its workers, which need not be this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    warnings.filterwarnings("ignore", message=PANDAS_NOTICE, category=FutureWarning)
    builder = SparkSession.builder.master(f"local[{cores},{retries + 1}]").appName("ordstream")
    with _log4j_file(log_level) as log4j:
        chosen = {
            "spark.task.cpus": str(node_cores),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": memory,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
            "spark.executorEnv.PYTHONWARNINGS": f"ignore:{PANDAS_NOTICE}:FutureWarning",
            "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        } | (settings or {})
        for key, value in chosen.items():
            builder = builder.config(key, value)
        with _without_startup_noise(), _java_ended_if_interrupted():
            session = builder.getOrCreate()
    session.sparkContext.setLogLevel(log_level.upper())
    repair(session.sparkContext)
    return session


@contextlib.contextmanager
def _log4j_file(level: str) -> Iterator[Path]:
    """A log4j configuration; Java reads it once, at its start."""
    descriptor, name = tempfile.mkstemp(prefix="ordstream-log4j-", suffix=".properties")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(LOG4J.format(level=level))
        yield path
    finally:
        path.unlink()


@contextlib.contextmanager
def _java_ended_if_interrupted() -> Iterator[None]:
    """End a Java process that this thread starts inside, if the block is left by Ctrl-C before PySpark has a
    connection to it.

    PySpark has removed the file then by which Java would tell its port; Java fails to write it, and stays
    for ever. Linux only.
    """
    before = _children()
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for child in _children() - before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
        raise


def _children() -> set[int]:
    """Processes that this thread has started."""
    try:
        return set(
            map(int, Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())
        )
    except OSError:
        return set()


@contextlib.contextmanager
def _without_startup_noise() -> Iterator[None]:
    """Let a Java process started inside write its stderr through a filter that drops NOISE lines.

    The process keeps that pipe as its stderr for life, so a daemon thread goes on passing it through,
    unfiltered once the block is left without an exception.
    """
    try:
        real = os.dup(2)
    except OSError:  # this process has no stderr: nothing to keep quiet
        yield
        return
    reader, writer = os.pipe()
    started = threading.Event()
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_pass_on, args=(reader, real, started), name="spark-stderr", daemon=True).start()
    ready = False
    try:
        yield
        ready = True
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)
        if ready:  # else the launcher, which is being ended, may be writing its line just now
            started.set()


def hush() -> None:
    """Pass on nothing more of what Java and its Python workers write to stderr: they are being ended."""
    _hushed.set()


def _pass_on(reader: int, real: int, started: threading.Event) -> None:
    pending = b""
    with contextlib.suppress(OSError):
        while data := os.read(reader, 65_536):
            if _hushed.is_set():
                pending = b""
                continue
            if started.is_set() and not pending:
                _write_all(real, data)
                continue
            *lines, pending = (pending + data).split(b"\n")
            if started.is_set():
                lines, pending = [*lines, pending], b""
                _write_all(real, b"\n".join(line for line in lines if not line.startswith(NOISE)))
            else:
                _write_all(real, b"".join(line + b"\n" for line in lines if not line.startswith(NOISE)))
        _write_all(real, pending)
    os.close(reader)
    os.close(real)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
