"""Ctrl-C during a Spark job of `apply`, in a Python session that goes on: the job is cancelled, as PySpark
means it to be.

PySpark's own handler of SIGINT asks for the cancel on the connection to the Java side on which the
interrupted thread is waiting for its action's answer. Its stream is in use ("reentrant call"), so the
request fails and the job runs on, with nobody waiting for it. Notebooks put Python's handler back for each
cell, which asks for nothing. Here the request goes out from another thread, which has a connection of its
own:

* `repair` puts a handler that does so in the place of PySpark's, and of no other one. What it does is what
  PySpark's says: it cancels all jobs of the context and raises KeyboardInterrupt.
* The frame that `apply` returns cancels its own job when one of its actions is interrupted, also where
  Python's handler is in place.
* Both close the connection on which the interrupted thread waits (`_leave`). py4j would tell the Java side
  to, by its ports; but that closes every connection of the session, those of other threads and one just made
  for the next request among them (py4j 0.10.9.9).
* py4j's own traces of the interrupted wait are not printed (`without_traces`): the KeyboardInterrupt itself
  goes on to the caller.

Spark Connect's client does this by itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import PythonException, UnknownException, convert_exception
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from ordstream.spark.source_serial import SerialOf, with_source_serial

ASK_SECONDS = 2.0  # that an interrupted thread waits for its request to be sent
PY4J_MODULES = ("java_gateway", "clientserver")


def interruptible(frame: DataFrame, serial_of: SerialOf | None = None) -> DataFrame:
    """The same frame, whose actions cancel their job on Ctrl-C, and find the serial of a row that fails by
    `serial_of`. Called on the main thread, it repairs the handler of SIGINT as well.
    """
    if type(frame) is not ClassicDataFrame:
        return frame
    repair(frame.sparkSession.sparkContext)
    found = InterruptibleFrame(frame._jdf, frame.sparkSession)
    found._serial_of = serial_of
    return found


def repair(context: SparkContext) -> None:
    """Replace PySpark's handler of SIGINT, if it is the present one and this is the main thread, by one
    that reaches the Java side.
    """
    without_traces()
    if (
        _is_main_thread()
        and getattr(signal.getsignal(signal.SIGINT), "__module__", "") == "pyspark.core.context"
    ):
        signal.signal(signal.SIGINT, _handler(context.cancelAllJobs))


@contextlib.contextmanager
def cancelled_on_interrupt(context: SparkContext) -> Iterator[None]:
    """Cancel the jobs that this thread starts inside when it is interrupted, and no other ones of the
    session.

    Raises
    ------
    KeyboardInterrupt
        Also where PySpark waited for the job's end first, and tells of the cancel.
    """
    tag = f"ordstream-{secrets.token_hex(8)}"

    def cancel() -> None:
        context.cancelJobsWithTag(tag)

    context.addJobTag(tag)
    # Python's own handler, as in a notebook's cell, asks for no cancel, and `toArrow` waits for the job
    # before it lets the interrupt pass.
    replaced = _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if replaced:
        signal.signal(signal.SIGINT, _handler(cancel))
    try:
        yield
    except KeyboardInterrupt:
        elsewhere(cancel)
        raise
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    finally:
        if replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # an interrupt closes the connection, and the thread's tags are gone with it
        with contextlib.suppress(Exception):
            context.removeJobTag(tag)


def elsewhere(request: Callable[[], None]) -> None:
    """Make a request to the Java side from a thread of its own, and wait shortly for it; a session that
    has ended is nothing to cancel.
    """

    def ask() -> None:
        with contextlib.suppress(Exception):  # py4j raises several kinds when the Java side is gone
            request()

    thread = threading.Thread(target=ask, name="ordstream-spark-cancel", daemon=True)
    thread.start()
    thread.join(ASK_SECONDS)


class _Interrupted(logging.Filter):
    """Drops what py4j logs because a KeyboardInterrupt ended a wait for the Java side: the wait, and the
    connection it had to close.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False for such a record."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__cause__ or error.__context__
        return error is None or record.module not in PY4J_MODULES


_interrupted = _Interrupted()


def without_traces() -> None:
    """Keep py4j from logging an interrupt, Python trace and all; may be called more than once."""
    for logger in (None, *(f"py4j.{module}" for module in PY4J_MODULES)):  # it logs to the root as well
        logging.getLogger(logger).addFilter(_interrupted)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handler(cancel: Callable[[], None]) -> Callable[[int, FrameType | None], NoReturn]:
    def cancel_and_raise(number: int, frame: FrameType | None) -> NoReturn:
        try:
            elsewhere(cancel)
            _leave(frame)
        finally:
            raise KeyboardInterrupt

    return cancel_and_raise


def _leave(frame: FrameType | None) -> None:
    """Close the connection to the Java side on which the interrupted frame waits for an answer, if it does;
    py4j makes another one.

    Without PYSPARK_PIN_THREAD, threads have no connections of their own, and py4j does what it does.
    """
    while frame is not None and frame.f_code is not ClientServerConnection.send_command.__code__:
        frame = frame.f_back
    if frame is not None:
        frame.f_locals["self"].close()


class InterruptibleFrame(ClassicDataFrame):
    """What `apply` returns: a DataFrame like any other. Frames derived from it are PySpark's own."""

    _serial_of: SerialOf | None = None

    def _run(self, action: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            with cancelled_on_interrupt(self._sc):
                return action(*given, **named)
        except (PythonException, Py4JJavaError) as error:
            # a shuffle that is read twice fails twice, and PySpark hands Java's exception for both over
            own = _task_error(error) if isinstance(error, Py4JJavaError) else error
            if isinstance(own, Py4JJavaError):
                raise
            with cancelled_on_interrupt(self._sc):  # it is a job as well
                found = with_source_serial(own, self._serial_of)
            if found is error:
                raise
            raise found from None

    @property
    def write(self) -> DataFrameWriter:
        """As `DataFrame.write`."""
        return InterruptibleWriter(self)

    def collect(self) -> Any:
        """As `DataFrame.collect`."""
        return self._run(super().collect)

    def toArrow(self) -> Any:
        """As `DataFrame.toArrow`."""
        return self._run(super().toArrow)

    def toLocalIterator(self, prefetchPartitions: bool = False) -> Iterator[Any]:
        """As `DataFrame.toLocalIterator`; a task's error is what the other actions raise."""
        # what is in front of the last shuffle runs now
        rows = self._run(super().toLocalIterator, prefetchPartitions)
        return _with_task_errors(rows, self._serial_of)

    def toPandas(self) -> Any:
        """As `DataFrame.toPandas`."""
        return self._run(super().toPandas)

    def take(self, num: int) -> Any:
        """As `DataFrame.take`, which `head` and `first` call."""
        return self._run(super().take, num)

    def tail(self, num: int) -> Any:
        """As `DataFrame.tail`."""
        return self._run(super().tail, num)

    def isEmpty(self) -> bool:
        """As `DataFrame.isEmpty`."""
        return bool(self._run(super().isEmpty))

    def count(self) -> int:
        """As `DataFrame.count`."""
        return int(self._run(super().count))

    def show(self, *given: Any, **named: Any) -> None:
        """As `DataFrame.show`."""
        self._run(super().show, *given, **named)

    def foreach(self, f: Callable[..., None]) -> None:
        """As `DataFrame.foreach`."""
        self._run(super().foreach, f)

    def foreachPartition(self, f: Callable[..., None]) -> None:
        """As `DataFrame.foreachPartition`."""
        self._run(super().foreachPartition, f)


class InterruptibleWriter(DataFrameWriter):
    """What `InterruptibleFrame.write` gives."""

    _df: InterruptibleFrame


def _writes(name: str) -> Callable[..., Any]:
    """A method of a writer as an action of its frame."""
    action = getattr(DataFrameWriter, name)

    @functools.wraps(action)
    def write(self: InterruptibleWriter, *given: Any, **named: Any) -> Any:
        return self._df._run(action, self, *given, **named)

    return write


for _name in ("save", "saveAsTable", "insertInto", "parquet", "orc", "json", "csv", "text", "xml", "jdbc"):
    setattr(InterruptibleWriter, _name, _writes(_name))


def _with_task_errors(rows: Iterator[Any], serial_of: SerialOf | None) -> Iterator[Any]:
    try:
        yield from rows
    except Py4JJavaError as error:  # PySpark hands Java's exceptions over as they are
        raise with_source_serial(_task_error(error), serial_of) from None


def _task_error(error: Py4JJavaError) -> Any:
    """The exception of a Python worker among the causes of one of Java's, else the first that PySpark has a
    class for, such as one of a cast in the user's frame; without one, that itself.
    """
    cause, known = error.java_exception, None
    while cause is not None:
        found = convert_exception(cause)
        if isinstance(found, PythonException):
            return found
        known = known if isinstance(found, UnknownException) else known or found
        cause = cause.getCause()
    return known or error
