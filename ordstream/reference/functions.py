"""What the operators with a user function mean, one row at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.types import (
    fit_array,
    from_storage,
    row_class,
    state_class,
    storage_type,
    storage_values,
    to_python,
    to_storage,
)
from ordstream.operators.arguments import Codec
from ordstream.plan.stages import Stage
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step


class Function(SerialOperator):
    """What all operators with a user function share: rows go in as Python values, results come out strictly
    typed.

    A compiled function computes on storage values: dates and times are ints of their unit.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        # A Numba dispatcher runs as the Python function that it was made from.
        self.fn = getattr(stage.params["fn"], "py_func", stage.params["fn"])
        if not callable(self.fn):
            raise PlanError(
                f"operator {stage.name!r} is a native function: run_serial needs Python; "
                "give run_serial a pipeline with the same function in Python"
            )
        self.compiled = stage.op == "compiled"
        self.row_type = row_class(stage.input.names)

    def python_row(self, row: Row) -> Any:
        """The row as the function sees it: an attribute per column."""
        return self.row_type(self.python_value(v, f.type) for v, f in zip(row, self.stage.input, strict=True))

    def python_value(self, value: Any, type_: pa.DataType) -> Any:
        """A value as the function sees it."""
        return value if self.compiled else to_python(value, type_)

    def fitted(self, result: Any) -> Row:
        """An output of the function as a row of the declared schema.

        Raises
        ------
        TypeError, ValueError, OverflowError
            It is no tuple, list or dict, has other columns, or a value does not fit its column.
        """
        fields = list(self.stage.output)
        names = self.stage.output.names
        if isinstance(result, dict):
            if set(result) != set(names):
                raise ValueError(f"expected a dict with the keys {names}, got {list(result)}")
            result = [result[name] for name in names]
        if not isinstance(result, tuple | list):
            raise TypeError(f"expected a tuple, list or dict with {names}, got {type(result).__name__} {result!r}")
        if len(result) != len(fields):
            raise ValueError(f"expected {len(fields)} values ({', '.join(names)}), got {len(result)}: {result!r}")
        for field, value in zip(fields, result, strict=True):
            if value is None and not field.nullable:
                raise ValueError(f"column {field.name!r} is declared without nulls, got None")
        return tuple(to_storage(v, f.type, f.name) for v, f in zip(result, fields, strict=True))

    def emitter(self, rows: list[Row]) -> Callable[..., None]:
        """The `emit` of one call: appends what it is given to `rows`."""

        def emit(*values: Any) -> None:
            if self.compiled and len(rows) == self.params["fan_out"]:
                raise ValueError(f"more than {len(rows)} outputs for one tuple; declare a larger fan_out")
            rows.append(self.fitted(values))

        return emit


class PythonRows(Function):
    """map: one output per row."""

    def process(self, row: Row) -> list[Row]:
        return [self.fitted(self.fn(self.python_row(row)))]


class PythonFilter(Function):
    """filter with a function: True keeps the row, False and None drop it."""

    def process(self, row: Row) -> list[Row]:
        answer = self.fn(self.python_row(row))
        if answer is not None and not isinstance(answer, bool | np.bool_):
            raise TypeError(f"expected a bool, got {type(answer).__name__} {answer!r}")
        return [row] if answer else []


class PythonFlat(Function):
    """flat_map: the outputs are the elements of the iterable that the function returns."""

    def process(self, row: Row) -> list[Row]:
        results = self.fn(self.python_row(row))
        if not isinstance(results, Iterable) or isinstance(results, str | bytes | dict):
            raise TypeError(f"expected an iterable of tuples, got {type(results).__name__} {results!r}")
        return [self.fitted(result) for result in results]


class CompiledRows(Function):
    """map and flat_map with compiled=True: fn(row, emit)."""

    def process(self, row: Row) -> list[Row]:
        rows: list[Row] = []
        self.fn(self.python_row(row), self.emitter(rows))
        if self.params["exact"] and len(rows) != 1:
            raise ValueError("a compiled map must emit exactly once per tuple; use flat_map")
        return rows


class PythonBatch(Function):
    """map_batches: the function is given batches of one row, which is enough because it must be row-wise."""

    def process(self, row: Row) -> list[Row]:
        arrays = [from_storage([v], f.type) for v, f in zip(row, self.stage.input, strict=True)]
        if self.params["format"] == "arrow":
            result = self.fn(pa.RecordBatch.from_arrays(arrays, schema=self.stage.input))
            if not isinstance(result, pa.RecordBatch):
                raise TypeError(f"expected a pyarrow.RecordBatch, got {type(result).__name__}")
            columns = dict(zip(result.schema.names, result.columns, strict=True))
        else:
            for field, value in zip(self.stage.input, row, strict=True):
                if value is None:
                    raise ValueError(f"column {field.name!r} is null, and NumPy has no nulls; use format='arrow'")
            names = self.stage.input.names
            columns = self.fn({n: a.to_numpy(zero_copy_only=False) for n, a in zip(names, arrays, strict=True)})
            if not isinstance(columns, dict):
                raise TypeError(f"expected a dict of arrays, got {type(columns).__name__}")
        if set(columns) != set(self.stage.output.names):
            raise ValueError(f"expected the columns {self.stage.output.names}, got {list(columns)}")
        values = []
        for field in self.stage.output:
            array = fit_array(columns[field.name], field.type, field.name)
            if len(array) != 1:
                raise ValueError(f"column {field.name!r} has {len(array)} values for 1 row")
            values += storage_values(array)
        return [self.fitted(values)]


class Process(Keyed, Function):
    """A user function of each tuple and the state of its key."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        rows: list[Row] = []
        self.call(key, lambda state: self.fn(self.python_row(row), state, self.emitter(rows)))
        return rows

    def on_time(self, time: int) -> list[Step]:
        function = self.params["on_time"]
        if function is None:
            return []
        return [self.step(key, lambda k, state, emit: function(k, state, time, emit)) for key in self.ascending()]

    def flush(self) -> list[Step]:
        function = self.params["on_flush"]
        return [] if function is None else [self.step(key, function) for key in self.ascending()]

    def step(self, key: SortKey, function: Callable[..., Any]) -> Step:
        def run() -> list[Row]:
            rows: list[Row] = []
            self.call(key, lambda state: function(self.user_key(key), state, self.emitter(rows)))
            return rows

        return run

    def call(self, key: SortKey, function: Callable[[Any], Any]) -> None:
        """Call with the key's state; when that raises and the run goes on, the state is as before."""
        known = key in self.states
        state = self.states[key] if known else self.new_state()
        before = self.copy_of(state) if known and self.stage.on_error == "skip" else None
        try:
            result = function(state)
            if result is not None:
                raise TypeError(f"a process function outputs with emit(...) and returns nothing, got {result!r}")
        except Exception:
            if known and self.stage.on_error == "skip":
                self.states[key] = before
            raise
        self.states[key] = state

    def new_state(self) -> Any:
        declared = self.params["state"]
        if declared is None:
            return self.params["init"]()
        if isinstance(declared, Codec):
            return declared.init()
        if self.compiled:
            declared = pa.schema([field.with_type(storage_type(field.type)) for field in declared])
        return state_class(declared)()

    def copy_of(self, state: Any) -> Any:
        declared = self.params["state"]
        return declared.decode(declared.encode(state)) if isinstance(declared, Codec) else copy.deepcopy(state)

    def user_key(self, key: SortKey) -> Any:
        """() without key columns, the value of a single one, a tuple of several."""
        types = [self.stage.input.field(index).type for index in self.stage.key]
        values = tuple(self.python_value(v, t) for v, t in zip(self.key_values[key], types, strict=True))
        return values[0] if len(values) == 1 else values
