"""Arguments of `stream` as they are used. What is none is a PlanError, before anything begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import DataType

from ordstream.errors import PlanError, shown
from ordstream.ground.choices import is_one_of, is_text
from ordstream.ground.duration import nanoseconds, of_arrow
from ordstream.spark.balancer import Balancer
from ordstream.spark.grouping import KINDS, NAMES
from ordstream.spark.names import find_column, is_case_sensitive
from ordstream.spark.streaming.sinks.function import Function
from ordstream.spark.streaming.sinks.sink import Sink

#: Keywords of Spark's `trigger`.
TRIGGERS = ("processingTime", "once", "availableNow", "continuous", "realTime")
Trigger = str | Mapping[str, Any] | None


def kind_of(df: DataFrame, name: str) -> DataType:
    """The type of a column of `order_by`, which the frame may spell otherwise."""
    return df.schema.fields[find_column(name, df.columns, is_case_sensitive(df), "the DataFrame")].dataType


def slack_of(slack: Any, df: DataFrame, order: tuple[str, ...]) -> int | None:
    """`slack` in the units of the first column of `order_by`."""
    if slack is None:
        return None
    kind = kind_of(df, order[0]).typeName() if order else ""
    whole = kind in ("tinyint", "smallint", "integer", "int", "long", "bigint", "short", "byte")
    if isinstance(slack, int) and not isinstance(slack, bool) and slack >= 0 and whole:
        return slack
    slack = of_arrow(slack)
    if isinstance(slack, str | timedelta | np.timedelta64) and kind in ("timestamp", "timestamp_ntz"):
        span = nanoseconds(slack, "slack")
        if span >= 0:
            return round(span / 1000)
    raise PlanError(
        f"slack={slack!r} says how far a row may lie behind in {order[0] if order else 'order_by'!r} "
        f"({kind or 'no column'}): a whole number for a column of whole numbers, or a time such as '10s' "
        "for a column of timestamps"
    )


def sinks_of(sink: Any) -> list[Sink]:
    """One sink, several or none."""
    if sink is None:
        return []
    sinks = list(sink) if isinstance(sink, list | tuple) else [sink]
    for one in sinks:
        if not all(callable(getattr(one, name, None)) for name in ("open", "delivered", "deliver", "close")):
            raise PlanError(
                f"sink takes a sink of ordstream.spark.streaming.sinks, or an object with open, delivered, "
                f"deliver and close; got {type(one).__name__}"
            )
    names = [one.name for one in sinks if isinstance(one, Function)]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(
                f"sink: two functions are called {name!r}, under which one of them is noted in the "
                "checkpoint: Function(f, name=...)"
            )
    return sinks


def trigger_of(trigger: Trigger) -> dict[str, Any]:
    """Keywords of Spark's own `trigger`."""
    if trigger is None:
        return {}
    if isinstance(trigger, str):
        if trigger.replace("_", " ") == "available now":
            return {"availableNow": True}
        if not re.fullmatch(r"\s*\d+(\.\d+)?\s*[A-Za-z]+\s*", trigger):
            raise PlanError(
                f"trigger={trigger!r}: takes 'available now', a time such as '5 seconds', or keywords of "
                "Spark's trigger ({'once': True})"
            )
        return {"processingTime": trigger}
    if not isinstance(trigger, Mapping):
        raise PlanError(f"trigger takes a text or a mapping, got {trigger!r:.80}")
    keywords = dict(trigger)
    unknown = [name for name in keywords if name not in TRIGGERS]
    if unknown or len(keywords) != 1:
        raise PlanError(
            f"trigger takes one keyword of Spark's trigger ({', '.join(TRIGGERS)}), got {trigger!r:.80}"
        )
    for name in ("continuous", "realTime"):
        if name in keywords:
            raise PlanError(
                f"trigger={name}: Spark runs no Python operator and no foreachBatch in that mode; use micro-"
                "batches (trigger='1 second', or none)"
            )
    return keywords


def writer_of(df: DataFrame, name: str | None, trigger: Trigger) -> DataStreamWriter:
    """What writes a streaming frame, under its name, as often as is asked for."""
    if name is not None and not (is_text(name) and name):
        raise PlanError(f"name takes a text, the name of Spark's query; got {shown(name, 80)}")
    writer = df.writeStream if name is None else df.writeStream.queryName(name)
    keywords = trigger_of(trigger)
    try:
        return writer.trigger(**keywords) if keywords else writer
    except PySparkException as error:
        why = str(error).split("\n")[0]
        raise PlanError(f"trigger={shown(trigger, 80)}: Spark says {why}") from error


def check_grouping(grouping: Any) -> None:
    """What is no grouping for any pipeline."""
    for one in grouping.values() if isinstance(grouping, Mapping) else (grouping,):
        given = one.grouping if isinstance(one, Balancer) else one
        if not (is_one_of(given, NAMES) or isinstance(given, KINDS)):
            raise PlanError(
                f"grouping is one of {', '.join(map(repr, NAMES))}, od.DKG(...), od.POSG(...), a deployed "
                "map or model, a Balancer, or a mapping of operator names to these; got "
                f"{shown(given, 80)}"
            )
