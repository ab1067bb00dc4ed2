"""What each operator means: a function (tuple, state) -> list of tuples, in plain Python.

These classes are the definition that the core is tested against, value for value, so they are written to be
read; speed is not looked for. A row is a tuple of storage values (`ordstream/types.py`) in the order of the
stage's schema. `process` takes one row and returns the rows it causes. `on_time` and `flush` return a list of
*steps*, functions without arguments that return rows: one step per key or group that is emitted, in the
defined order.

A state exists from the first tuple of its key on. Keys compare as Arrow sorts: nulls first, NaN last and
equal to itself, -0.0 equal to 0.0, strings by their UTF-8 bytes (which is the order of Python's `str`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.operators import Codec
from ordstream.plan import Stage
from ordstream.program import Program, maximum, minimum, run_program
from ordstream.types import (
    INT64_MAX,
    INT64_MIN,
    fit_array,
    from_storage,
    row_class,
    state_class,
    storage_type,
    storage_values,
    to_python,
    to_storage,
)

Row = tuple[Any, ...]
Step = Callable[[], list[Row]]
SortKey = tuple[tuple[Any, ...], ...]


def normal(value: Any) -> Any:
    """The normal form of a key value: -0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value


def sort_key(values: Iterable[Any]) -> SortKey:
    """What stands for key values in comparisons and dicts: equal keys have equal sort keys, and they order as
    Arrow sorts.
    """
    return tuple((0,) if v is None else (2,) if v != v else (1, normal(v)) for v in values)


class SerialOperator:
    """One operator; the base class passes every row on."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.params = stage.params

    def process(self, row: Row) -> list[Row]:
        """The rows that one input row causes. If it raises, the state is as before."""
        return [row]

    def on_time(self, time: int) -> list[Step]:
        """What a time punctuation causes."""
        return []

    def flush(self) -> list[Step]:
        """What the end of the stream causes."""
        return []


# ------------------------------------------------------------------------------------------------ stateless


class Filter(SerialOperator):
    """Keeps the rows for which the program gives True (not False, not null)."""

    def process(self, row: Row) -> list[Row]:
        return [row] if run_program(self.params["program"], row) is True else []


class Project(SerialOperator):
    """One output column per entry: an input column passed through, or the value of a program."""

    def process(self, row: Row) -> list[Row]:
        return [
            tuple(run_program(c, row) if isinstance(c, Program) else row[c] for c in self.params["columns"])
        ]


class ListPairs(SerialOperator):
    """(D[i], D[j]) for i < j, where D holds the sorted distinct non-null elements of a list."""

    def process(self, row: Row) -> list[Row]:
        elements = {sort_key([e]): normal(e) for e in row[self.params["column"]] or () if e is not None}
        distinct = [elements[key] for key in sorted(elements)]
        carried = tuple(row[index] for index in self.params["carry"])
        return [(*carried, a, b) for i, a in enumerate(distinct) for b in distinct[i + 1 :]]


class ListExplode(SerialOperator):
    """One row per element of a list, in order; nulls among them stay."""

    def process(self, row: Row) -> list[Row]:
        carried = tuple(row[index] for index in self.params["carry"])
        return [(*carried, element) for element in row[self.params["column"]] or ()]


# ------------------------------------------------------------------------------------------------ user functi


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
            raise TypeError(
                f"expected a tuple, list or dict with {names}, got {type(result).__name__} {result!r}"
            )
        if len(result) != len(fields):
            raise ValueError(
                f"expected {len(fields)} values ({', '.join(names)}), got {len(result)}: {result!r}"
            )
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
                    raise ValueError(
                        f"column {field.name!r} is null, and NumPy has no nulls; use format='arrow'"
                    )
            names = self.stage.input.names
            columns = self.fn(
                {n: a.to_numpy(zero_copy_only=False) for n, a in zip(names, arrays, strict=True)}
            )
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


# ------------------------------------------------------------------------------------------------ stateful


class Keyed(SerialOperator):
    """An operator with a state per key; without key columns everything has the key ().

    Attributes
    ----------
    states : dict of SortKey to state
    key_values : dict of SortKey to key values in normal form
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.states: dict[SortKey, Any] = {}
        self.key_values: dict[SortKey, Row] = {}

    def key_of(self, row: Row) -> SortKey:
        values = tuple(normal(row[index]) for index in self.stage.key)
        key = sort_key(values)
        self.key_values.setdefault(key, values)
        return key

    def ascending(self) -> list[SortKey]:
        """The keys that have a state, in ascending order."""
        return sorted(self.states)


class Count(Keyed):
    """(key columns, number of tuples so far), per tuple or once per key at the end."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        self.states[key] = self.states.get(key, 0) + 1
        return [self.output(key)] if self.params["emit"] == "updates" else []

    def flush(self) -> list[Step]:
        if self.params["emit"] == "updates":
            return []
        return [lambda key=key: [self.output(key)] for key in self.ascending()]  # type: ignore[misc]

    def output(self, key: SortKey) -> Row:
        return (*self.key_values[key], self.states[key])


class Scan(Keyed):
    """The input row, then the running values that include it. The state is one accumulator per aggregate."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        before = self.states.get(key) or [self.start(i) for i in range(len(self.params["aggregates"]))]
        after = []
        for (function, index), accumulator in zip(self.params["aggregates"], before, strict=True):
            value = True if index is None else row[index]
            after.append(accumulator if value is None else advance(function, accumulator, value))
        self.states[key] = after  # only now: an overflow leaves the state as it was
        functions = [function for function, _ in self.params["aggregates"]]
        return [(*row, *map(running_value, functions, after))]

    def start(self, position: int) -> Any:
        function, index = self.params["aggregates"][position]
        if function in ("sum", "mean"):
            zero = 0 if pat.is_integer(self.stage.input.field(index).type) else 0.0
            return zero if function == "sum" else (zero, 0)
        return 0 if function == "count" else None


def advance(function: str, accumulator: Any, value: Any) -> Any:
    """The accumulator after one more non-null value."""
    if function == "sum":
        return checked_sum(accumulator, value)
    if function == "mean":
        return checked_sum(accumulator[0], value), accumulator[1] + 1
    if function == "count":
        return accumulator + 1
    if accumulator is None or function == "last":
        return value
    if function == "first":
        return accumulator
    return minimum(accumulator, value) if function == "min" else maximum(accumulator, value)


def running_value(function: str, accumulator: Any) -> Any:
    """What an accumulator shows in the output."""
    if function == "mean":
        total, n = accumulator
        return float(total) / float(n) if n else None
    return accumulator


def checked_sum(a: Any, b: Any) -> Any:
    """a + b; an int result outside int64 is an OverflowError."""
    total = a + b
    if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
        raise OverflowError(f"int64 overflow in sum: {a} + {b}")
    return total


class Session:
    """An open session of one key."""

    def __init__(self, time: int, collected: list[Any]) -> None:
        self.start = self.last = time
        self.count = 1
        self.lists = [[value] for value in collected]

    def add(self, time: int, collected: list[Any]) -> None:
        self.last = time
        self.count += 1
        for values, value in zip(self.lists, collected, strict=True):
            values.append(value)


class Sessionize(Keyed):
    """Closes a key's session when its next tuple comes more than `timeout` after its last one."""

    def process(self, row: Row) -> list[Row]:
        time = self.not_null(row, self.params["time"])
        collected = [self.not_null(row, index) for index in self.params["collect"]]
        key = self.key_of(row)
        session = self.states.get(key)
        if session is not None and time - session.last <= self.params["timeout"]:  # also when time went back
            session.add(time, collected)
            return []
        closed = self.close(key) if session is not None else []
        self.states[key] = Session(time, collected)
        return closed

    def on_time(self, time: int) -> list[Step]:
        due = [key for key, session in self.states.items() if time - session.last > self.params["timeout"]]
        due.sort(key=lambda key: (self.states[key].last, key))
        return [lambda key=key: self.close(key) for key in due]  # type: ignore[misc]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.close(key) for key in self.ascending()]  # type: ignore[misc]

    def close(self, key: SortKey) -> list[Row]:
        session = self.states.pop(key)
        return [(*self.key_values[key], session.start, session.last, session.count, *session.lists)]

    def not_null(self, row: Row, index: int) -> Any:
        if row[index] is None:
            raise ValueError(
                f"column {self.stage.input.names[index]!r} is null; filter such tuples out before sessionize"
            )
        return row[index]


class TopK(Keyed):
    """Keeps the latest row of each of its own keys; at the end, the k rows with the largest `by`."""

    def process(self, row: Row) -> list[Row]:
        if row[self.params["by"]] is None:
            name = self.stage.input.names[self.params["by"]]
            raise ValueError(f"column {name!r} is null; filter such tuples out before top_k")
        self.states[sort_key(row[index] for index in self.params["key"])] = row
        return []

    def flush(self) -> list[Step]:
        def rank(key: SortKey) -> tuple[Any, ...]:
            by = self.states[key][self.params["by"]]
            return (1, 0, key) if math.isnan(by) else (0, -by, key)  # NaN lowest, so last

        best = sorted(self.states, key=rank)[: self.params["k"]]
        return [lambda: [self.states[key] for key in best]] if best else []


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
        return [
            self.step(key, lambda k, state, emit: function(k, state, time, emit)) for key in self.ascending()
        ]

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
                raise TypeError(
                    f"a process function outputs with emit(...) and returns nothing, got {result!r}"
                )
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
        return (
            declared.decode(declared.encode(state)) if isinstance(declared, Codec) else copy.deepcopy(state)
        )

    def user_key(self, key: SortKey) -> Any:
        """() without key columns, the value of a single one, a tuple of several."""
        types = [self.stage.input.field(index).type for index in self.stage.key]
        values = tuple(self.python_value(v, t) for v, t in zip(self.key_values[key], types, strict=True))
        return values[0] if len(values) == 1 else values


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
    "count": Count,
    "scan": Scan,
    "top_k": TopK,
    "python_process": Process,
}


def serial_operator(stage: Stage) -> SerialOperator:
    """The serial operator of a stage, with an empty state."""
    if stage.op == "compiled":
        return CompiledRows(stage) if stage.kind == "SL" else Process(stage)
    return _OPERATORS[stage.op](stage)
