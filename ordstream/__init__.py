"""Write an ordered stream pipeline once, run it on all cores or in every Spark executor, in order.

The output is exactly, and in the same order, what a one-tuple-at-a-time run would give.

Importing this package loads no compiled code: the core is imported by the first `run` or `stream`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ordstream.errors import (
    Cancelled,
    OperatorError,
    OrdstreamError,
    PlanError,
    SchemaError,
    SinkError,
    SourceError,
)
from ordstream.expressions import col, if_else, lit, when
from ordstream.operators import (
    codec,
    count,
    equal_ranges,
    every,
    explode,
    first,
    last,
    max,
    mean,
    min,
    pairs,
    ranges,
    sum,
)
from ordstream.pipeline import KeyedPipeline, Pipeline

if TYPE_CHECKING:
    from ordstream.node import Result

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "KeyedPipeline",
    "OperatorError",
    "OrdstreamError",
    "Pipeline",
    "PlanError",
    "Result",
    "SchemaError",
    "SinkError",
    "SourceError",
    "codec",
    "col",
    "count",
    "equal_ranges",
    "every",
    "explode",
    "first",
    "if_else",
    "last",
    "lit",
    "max",
    "mean",
    "min",
    "pairs",
    "ranges",
    "sum",
    "when",
]

#: Submodules reached as attributes without an import of their own.
_SUBMODULES = frozenset({"balance", "node", "simulation", "spark", "testing", "tpcxbb"})


def __getattr__(name: str) -> Any:
    if name == "Result":
        return importlib.import_module("ordstream.node").Result
    if name in _SUBMODULES:
        return importlib.import_module(f"ordstream.{name}")
    raise AttributeError(f"module 'ordstream' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
