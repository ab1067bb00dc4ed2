"""What each operator means: a function (tuple, state) -> list of tuples, in plain Python.

These classes are the definition that the core is tested against, value for value, so they are written to be
read; speed is not looked for. A row is a tuple of storage values (`ordstream/ground/types.py`) in the order of the
stage's schema. `process` takes one row and returns the rows it causes. `on_time` and `flush` return a list of
*steps*, functions without arguments that return rows: one step per key or group that is emitted, in the
defined order.

The classes are in `serial_stateless.py`, `serial_keyed.py` and `serial_functions.py`; here they get their
names in the plan.

A state exists from the first tuple of its key on. Keys compare as Arrow sorts: nulls first, NaN last and
equal to itself, -0.0 equal to 0.0, strings by their UTF-8 bytes (which is the order of Python's `str`).
"""

from __future__ import annotations

from ordstream.operators.shed import SerialShed
from ordstream.plan.stages import Stage
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step, normal, sort_key
from ordstream.reference.functions import (
    CompiledRows,
    Process,
    PythonBatch,
    PythonFilter,
    PythonFlat,
    PythonRows,
)
from ordstream.reference.keyed import (
    Aggregate,
    AssertOrdered,
    Count,
    Lag,
    PairUp,
    Preceding,
    Regression,
    Scan,
    Sessionize,
    TopK,
    TopValues,
)
from ordstream.reference.stateless import Filter, ListExplode, ListPairs, Project

__all__ = ["Keyed", "Row", "SerialOperator", "SortKey", "Step", "normal", "register", "serial_operator", "sort_key"]

_OPERATORS: dict[str, type[SerialOperator]] = {
    "filter": Filter,
    "project": Project,
    "pairs": ListPairs,
    "explode": ListExplode,
    "python_rows": PythonRows,
    "python_filter": PythonFilter,
    "python_flat": PythonFlat,
    "python_batch": PythonBatch,
    "sessionize": Sessionize,
    "shed": SerialShed,
    "count": Count,
    "scan": Scan,
    "aggregate": Aggregate,
    "lag": Lag,
    "assert_ordered": AssertOrdered,
    "pair_up": PairUp,
    "preceding": Preceding,
    "top_values": TopValues,
    "regression": Regression,
    "top_k": TopK,
    "python_process": Process,
}


def register(op: str, operator: type[SerialOperator]) -> None:
    """Make `operator` the meaning of stages whose op is `op`: the counterpart of `ordstream.operators.kernels.register`."""
    _OPERATORS[op] = operator


def serial_operator(stage: Stage) -> SerialOperator:
    """The serial operator of a stage, with an empty state."""
    if stage.op == "compiled":
        return CompiledRows(stage) if stage.kind == "SL" else Process(stage)
    return _OPERATORS[stage.op](stage)
