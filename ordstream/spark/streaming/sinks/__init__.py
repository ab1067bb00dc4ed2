"""Where the output of a stream goes, one file per sink.

`ParquetFolder`, `Postgres` and `Function`; `sink.Sink` is what a sink of your own must be; `take_back` goes
with `od.spark.rewind`. What each one
promises stands in docs/streaming-sinks.md. A sink's module is imported when its name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordstream.spark.streaming.sinks.function import Function
    from ordstream.spark.streaming.sinks.going_back import take_back
    from ordstream.spark.streaming.sinks.parquet_folder import ParquetFolder
    from ordstream.spark.streaming.sinks.postgres import Postgres
    from ordstream.spark.streaming.sinks.sink import Epoch, OutputFile, Sink, StreamInfo

__all__ = ["Epoch", "Function", "OutputFile", "ParquetFolder", "Postgres", "Sink", "StreamInfo", "take_back"]

_LATE = {
    "Epoch": "sink",
    "Function": "function",
    "OutputFile": "sink",
    "ParquetFolder": "parquet_folder",
    "Postgres": "postgres",
    "Sink": "sink",
    "StreamInfo": "sink",
    "take_back": "going_back",
}


if not TYPE_CHECKING:  # else a type checker would take any name for right

    def __getattr__(name):
        if name in _LATE:
            return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
