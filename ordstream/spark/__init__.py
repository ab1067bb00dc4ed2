"""Ordered nodes inside Spark executors.

`apply` runs a pipeline over a DataFrame in a total order. `local_session` starts a quiet Spark on this
machine in which one task, and so one node, holds all cores. `stream` runs one over a streaming DataFrame,
exactly once (`streaming/`). Modules: `session`, `batch` (apply), `nodes` (a
pipeline cut over many executors), `grouping` (what chooses a row's node), `executor` (what runs in a task),
`progress` (what the nodes tell the driver), `interrupt` (Ctrl-C).

A module is imported when one of its names is first used: a Python worker of Spark needs `executor` only, and
the rest of this package brings Spark's driver side with it, which takes longer to import than the node.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

NEEDED = "ordstream.spark needs PySpark 4.2 or newer: pip install 'ordstream[spark]'"
try:
    import pyspark
except ImportError as error:
    raise ImportError(NEEDED) from error
if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
    raise ImportError(f"{NEEDED} (this is {pyspark.__version__})")

if TYPE_CHECKING:
    from ordstream.spark.balancer import Balancer
    from ordstream.spark.batch import apply, explain, node_function, shed_log, shed_rows
    from ordstream.spark.executor import NodeFunction
    from ordstream.spark.progress import Channel, TaskKey
    from ordstream.spark.schemas import spark_schema
    from ordstream.spark.session import local_session
    from ordstream.spark.streaming import sinks, sources
    from ordstream.spark.streaming.epoch_figures import epoch_figures
    from ordstream.spark.streaming.reading import read_output, state
    from ordstream.spark.streaming.rewind import rewind
    from ordstream.spark.streaming.stream import finish, stream

__all__ = [
    "Balancer",
    "Channel",
    "NodeFunction",
    "TaskKey",
    "apply",
    "epoch_figures",
    "explain",
    "finish",
    "local_session",
    "node_function",
    "read_output",
    "rewind",
    "shed_log",
    "shed_rows",
    "sinks",
    "sources",
    "spark_schema",
    "state",
    "stream",
]

_MODULES = {
    "batch": ("apply", "explain", "node_function", "shed_log", "shed_rows"),
    "schemas": ("spark_schema",),
    "executor": ("NodeFunction",),
    "balancer": ("Balancer",),
    "progress": ("Channel", "TaskKey"),
    "session": ("local_session",),
    "streaming.epoch_figures": ("epoch_figures",),
    "streaming.reading": ("read_output", "state"),
    "streaming.rewind": ("rewind",),
    "streaming.stream": ("finish", "stream"),
}
#: Of `streaming`: ``od.spark.sinks.Postgres``.
_FOLDERS = ("sinks", "sources")
_LATE = {name: module for module, names in _MODULES.items() for name in names}


def _is_thin_client() -> bool:
    """Whether the PySpark that is installed is Spark Connect's client and no more."""
    from pyspark.util import is_remote_only

    return bool(is_remote_only())


if not TYPE_CHECKING:  # else a type checker would take any name for right

    def __getattr__(name):
        if name in _LATE:
            try:
                return getattr(importlib.import_module(f"ordstream.spark.{_LATE[name]}"), name)
            except ImportError as error:
                if not _is_thin_client():
                    raise
                raise ImportError(
                    f"od.spark.{name} needs a Spark session of this process, which pyspark-client has not: "
                    "pip install 'ordstream[spark]' brings the whole PySpark; od.spark.apply works over "
                    "Spark Connect"
                ) from error
        if name in _MODULES:
            return importlib.import_module(f"ordstream.spark.{name}")
        if name in _FOLDERS:
            return importlib.import_module(f"ordstream.spark.streaming.{name}")
        raise AttributeError(f"module 'ordstream.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
