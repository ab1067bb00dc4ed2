"""Write an ordered stream pipeline once, run it on all cores or in every Spark executor, in order.

The output is exactly, and in the same order, what a one-tuple-at-a-time run would give.

Importing this package loads nothing else: each name is imported when it is first used, and the compiled core
by the first `run` or `stream`. So the command line hears Ctrl-C from its first line on
(`ordstream.__main__`), before pyarrow and NumPy are there.
"""

from __future__ import annotations

# for type checkers it is true; the module typing takes longer to import than all of this one
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ordstream import balance as balance
    from ordstream import operators as operators
    from ordstream import spark as spark
    from ordstream import testing as testing
    from ordstream import tpcxbb as tpcxbb
    from ordstream.balance.dkg import DKG
    from ordstream.balance.mixed.planners import Mixed
    from ordstream.balance.posg import POSG
    from ordstream.errors import (
        Cancelled,
        CheckpointError,
        NodeLost,
        OperatorError,
        OrdstreamError,
        PlanError,
        SchemaError,
        SinkError,
        SourceError,
    )
    from ordstream.expressions.conditions import when
    from ordstream.expressions.expr import Expr, col, if_else, lit
    from ordstream.ground.forget import FORGET
    from ordstream.ground.ordertags import OrderTag
    from ordstream.node.file_sources import IpcSource, ParquetSource
    from ordstream.node.node import Stream
    from ordstream.node.outputs import Outputs, OutputStream
    from ordstream.node.result import Result
    from ordstream.operators.aggregation import (
        Aggregation,
        arg_max,
        arg_min,
        collect,
        count,
        count_distinct,
        first,
        last,
        max,
        mean,
        median,
        min,
        quantile,
        std,
        sum,
        var,
    )
    from ordstream.operators.codec import codec
    from ordstream.operators.error_policy import retry
    from ordstream.operators.pairs import explode, pairs
    from ordstream.operators.partition import equal_ranges, ranges
    from ordstream.operators.punctuation import Every, every
    from ordstream.operators.shed import Frozen
    from ordstream.operators.window_kinds import (
        WindowKind,
        calendar,
        hopping,
        rolling,
        rows,
        session,
        tumbling,
    )
    from ordstream.pipeline import KeyedPipeline, Pipeline
    from ordstream.pipeline.graph import union
    from ordstream.snapshots.checkpoint import Checkpoint
    from ordstream.snapshots.snapshot import Snapshot

__version__ = "0.1.0"

__all__ = [
    "DKG",
    "FORGET",
    "POSG",
    "Aggregation",
    "Cancelled",
    "Checkpoint",
    "CheckpointError",
    "Every",
    "Expr",
    "Frozen",
    "IpcSource",
    "KeyedPipeline",
    "Mixed",
    "NodeLost",
    "OperatorError",
    "OrderTag",
    "OrdstreamError",
    "OutputStream",
    "Outputs",
    "ParquetSource",
    "Pipeline",
    "PlanError",
    "Result",
    "SchemaError",
    "SinkError",
    "Snapshot",
    "SourceError",
    "Stream",
    "WindowKind",
    "arg_max",
    "arg_min",
    "calendar",
    "codec",
    "col",
    "collect",
    "count",
    "count_distinct",
    "equal_ranges",
    "every",
    "explode",
    "first",
    "hopping",
    "if_else",
    "last",
    "lit",
    "max",
    "mean",
    "median",
    "min",
    "pairs",
    "quantile",
    "ranges",
    "retry",
    "rolling",
    "rows",
    "session",
    "std",
    "sum",
    "tumbling",
    "union",
    "var",
    "when",
]

#: Module: its names that are reached from here.
_HOMES = {
    "balance.dkg": ("DKG",),
    "balance.mixed.planners": ("Mixed",),
    "balance.posg": ("POSG",),
    "errors": (
        "Cancelled",
        "CheckpointError",
        "NodeLost",
        "OperatorError",
        "OrdstreamError",
        "PlanError",
        "SchemaError",
        "SinkError",
        "SourceError",
    ),
    "expressions.conditions": ("when",),
    "expressions.expr": ("Expr", "col", "if_else", "lit"),
    "node.file_sources": ("IpcSource", "ParquetSource"),
    "node.node": ("Stream",),
    "node.outputs": ("OutputStream", "Outputs"),
    "node.result": ("Result",),
    "operators.aggregation": (
        "Aggregation",
        "arg_max",
        "arg_min",
        "collect",
        "count",
        "count_distinct",
        "first",
        "last",
        "max",
        "mean",
        "median",
        "min",
        "quantile",
        "std",
        "sum",
        "var",
    ),
    "operators.codec": ("codec",),
    "operators.error_policy": ("retry",),
    "operators.pairs": ("explode", "pairs"),
    "operators.partition": ("equal_ranges", "ranges"),
    "operators.punctuation": ("Every", "every"),
    "ground.forget": ("FORGET",),
    "ground.ordertags": ("OrderTag",),
    "pipeline": ("KeyedPipeline", "Pipeline"),
    "pipeline.graph": ("union",),
    "operators.shed": ("Frozen",),
    "operators.window_kinds": (
        "WindowKind",
        "calendar",
        "hopping",
        "rolling",
        "rows",
        "session",
        "tumbling",
    ),
    "snapshots.checkpoint": ("Checkpoint",),
    "snapshots.snapshot": ("Snapshot",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

#: Submodules reached as attributes without an import of their own.
_SUBMODULES = frozenset(
    {
        "balance",
        "errors",
        "expressions",
        "lab",
        "node",
        "operators",
        "pipeline",
        "spark",
        "testing",
        "tpcxbb",
    }
)


if not TYPE_CHECKING:  # else any name would be right for a type checker, a misspelled one too

    def __getattr__(name):
        import importlib

        if name in _SUBMODULES:
            return importlib.import_module(f"ordstream.{name}")
        if name not in _HOME_OF:
            where = ""
            if name[:1] not in ("", "_"):  # hasattr(ordstream, "") is False, and no IndexError
                elsewhere = importlib.import_module("ordstream.expressions.elsewhere")
                where = elsewhere.advice_of_package(name, __all__)
            raise AttributeError(f"module 'ordstream' has no attribute {name!r}{where}")
        home = importlib.import_module(f"ordstream.{_HOME_OF[name]}")
        found = getattr(home, name)
        if type(found) is type(__getattr__):  # a function: it is one object here and there, as pickle wants
            wrong_calls = importlib.import_module("ordstream.expressions.wrong_calls")
            found = wrong_calls.answered(found)
            setattr(home, name, found)
        elif isinstance(found, type) and not issubclass(found, BaseException):
            importlib.import_module("ordstream.expressions.wrong_calls").answer_init(found)
        globals()[name] = found  # the next look-up does not come here
        return found


def __dir__() -> list[str]:
    """What is installed: `help` and its like ask for each name that stands here."""
    import importlib.util

    there = {name for name in _SUBMODULES if importlib.util.find_spec(f"ordstream.{name}") is not None}
    if importlib.util.find_spec("pyspark") is None:
        there.discard("spark")
    return sorted({*__all__, "__version__", *there})
