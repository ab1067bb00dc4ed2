"""Write an ordered stream pipeline once, run it on all cores or in every Spark executor, in order.

The output is exactly, and in the same order, what a one-tuple-at-a-time run would give.

Importing this package loads no compiled code: the core is imported by the first `run` or `stream`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ordstream.errors import (
    Cancelled,
    NodeLost,
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
from ordstream.ordertags import OrderTag
from ordstream.pipeline import KeyedPipeline, Pipeline
from ordstream.shedding import Frozen

if TYPE_CHECKING:
    from ordstream.balance.dkg import DKG
    from ordstream.balance.posg import POSG
    from ordstream.node import Result

__version__ = "0.1.0"

__all__ = [
    "DKG",
    "POSG",
    "Cancelled",
    "Frozen",
    "KeyedPipeline",
    "NodeLost",
    "OperatorError",
    "OrderTag",
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

#: Names that load compiled code, and where they are.
_LATE = {"DKG": "ordstream.balance.dkg", "POSG": "ordstream.balance.posg", "Result": "ordstream.node"}

#: Submodules reached as attributes without an import of their own.
_SUBMODULES = frozenset({"balance", "node", "simulation", "spark", "testing", "tpcxbb"})


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"ordstream.{name}")
    raise AttributeError(f"module 'ordstream' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
