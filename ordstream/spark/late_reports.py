"""Reports that travel by Spark when a task has ended, for nodes without a live connection to the driver.

* Where there is a Spark context: an accumulator. Spark hands its update to the driver before the job's
  result, so that a report is there when the action returns.
* Over Connect, which has no accumulators: a row of the task's own, which `DataFrame.observe` collects where
  the task's rows leave it; a condition behind that takes it out again. The client has what was observed when
  the action has ended.

Spark's scheduler waits while an accumulator's update is taken. So a report is only kept there, and the
user's functions are called by a thread of their own.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ordstream.spark.executor import FragmentFunction, NodeFunction
from ordstream.spark.progress import LISTENER, Channel, Door, TaskKey
from ordstream.spark.shipped import Shipped

REPORT = "__ordstream_report"


def with_late_reports(door: Door, spark: SparkSession) -> Door:
    """The door, with the way by which reports come that can't come live."""
    accumulator = _accumulator(spark)
    return door._replace(late=_ByRow() if accumulator is None else _ByAccumulator(accumulator, door.channel))


# ------------------------------------------------------------------------------------------ accumulators


@dataclass(frozen=True)
class _ByAccumulator:
    """Adds a report to the accumulator of the Spark application. In a task."""

    reports: Accumulator[Any]
    channel: int

    def __call__(self, key: TaskKey, message: dict[str, Any]) -> None:
        self.reports.add({(self.channel, key): message})


class _Carried(AccumulatorParam[Any]):
    """In a task: messages by (number of the channel, task)."""

    def zero(self, value: Any) -> Any:
        return {}

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        return value1 | value2


class _Delivered(_Carried):
    """On the driver: messages go to their channels, and nothing is kept here."""

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        for (number, key), message in value2.items():
            channel = LISTENER.channel(number)
            if channel is not None:
                deliver(channel, key, message)
        return value1

    def __reduce__(self) -> tuple[Any, ...]:
        return _Carried, ()


_accumulators: dict[str, Accumulator[Any]] = {}  # of each Spark application that this process has driven


def _accumulator(spark: SparkSession) -> Accumulator[Any] | None:
    """The accumulator of the session's application; None: there are none over Connect."""
    try:
        context = spark.sparkContext
        name = context.applicationId
    except Exception:  # PySpark raises several kinds of its own
        return None
    if name not in _accumulators:
        _accumulators[name] = context.accumulator({}, _Delivered())
    return _accumulators[name]


def deliver(channel: Channel, key: TaskKey, message: dict[str, Any]) -> None:
    """Keep a message, and have the user's functions called soon."""
    channel.keep(key, message)
    _untold.put((channel, key, message))
    if not _telling.is_set():
        _telling.set()
        threading.Thread(target=_tell, name="spark-late-reports", daemon=True).start()


_untold: queue.SimpleQueue[tuple[Channel, TaskKey, dict[str, Any]]] = queue.SimpleQueue()
_telling = threading.Event()


def _tell() -> None:
    while True:
        channel, key, message = _untold.get()
        try:
            channel.tell(key, message)
        except Exception as error:  # of the user's: the next report is told all the same
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


# ---------------------------------------------------------------------------------------------- Connect


class _ByRow:
    """Marks a door whose nodes report by a row: `in_tasks` sees to it."""

    def __call__(self, key: TaskKey, message: dict[str, Any]) -> None:
        raise AssertionError("in_tasks puts something in the place of this")


def in_tasks(
    rows: DataFrame, function: NodeFunction | FragmentFunction, schema: StructType, profile: Any
) -> DataFrame:
    """The rows that a node function makes in Spark's tasks; its reports are taken out where they travel
    among them.
    """
    door = function.door
    channel = None if door is None else LISTENER.channel(door.channel)
    if door is None or channel is None or not isinstance(door.late, _ByRow):
        return rows.mapInArrow(function, schema, profile=profile)
    # what a report's row has in the other columns
    nullable = [StructField(one.name, one.dataType, True, one.metadata) for one in schema.fields]
    told = rows.mapInArrow(
        _WithReport(function), StructType([*nullable, StructField(REPORT, StringType())]), profile=profile
    )
    observation = _observation()
    told = told.observe(observation, F.collect_list(REPORT).alias(REPORT))
    _look_for(rows.sparkSession, channel, observation)
    return told.where(F.col(REPORT).isNull()).drop(REPORT)


@dataclass(frozen=True)
class _WithReport(Shipped):
    """A node function whose batches have one more column; the report is its only value, in a row behind."""

    function: NodeFunction | FragmentFunction

    def __call__(self, batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the node's rows, then the report's, unless it went live."""
        told: list[str] = []

        def late(key: TaskKey, message: dict[str, Any]) -> None:
            told.append(json.dumps([*key, message]))

        door, output = self.function.door, self.function.output
        assert door is not None
        schema = pa.schema([*(column.with_nullable(True) for column in output), (REPORT, pa.string())])
        for batch in replace(self.function, door=door._replace(late=late))(iter(batches)):
            nothing = pa.nulls(batch.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, nothing], schema=schema)
        for text in told:
            columns = [pa.nulls(1, column.type) for column in output]
            yield pa.RecordBatch.from_arrays([*columns, pa.array([text])], schema=schema)


_observed: dict[str, list[tuple[Channel, Any]]] = {}  # by session: what may still come


def _observation() -> Any:
    from pyspark.sql.connect.observation import Observation

    return Observation()


def _look_for(spark: Any, channel: Channel, observation: Any) -> None:
    """Take from now on, whenever an action of the session has ended, what was observed."""
    session = spark.session_id
    if session not in _observed:
        _observed[session] = []

        def look(*_: Any, done: bool = True, **__: Any) -> None:
            if done:
                _take_observed(_observed[session])

        spark.registerProgressHandler(look)
    _observed[session].append((channel, observation))


def _take_observed(waiting: list[tuple[Channel, Any]]) -> None:
    """Hand over the reports that have been observed and not been taken."""
    for channel, observation in waiting:
        for text in observation.get.get(REPORT) or ():
            *key, message = json.loads(text)
            if TaskKey(*key) not in channel.reports:
                deliver(channel, TaskKey(*key), message)
