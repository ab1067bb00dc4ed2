"""process: a function of each tuple and the state of its key, in Python or compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.types import pipeline_schema, state_class, state_schema, storage_type
from ordstream.operators.arguments import positive_int
from ordstream.operators.codec import Codec
from ordstream.operators.functions import MOST_FAN_OUT, FunctionReference, FunctionText
from ordstream.operators.map_rows import CompiledText
from ordstream.operators.operator import Operator, Site
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step
from ordstream.udf.compiled_function import CompiledFunction
from ordstream.udf.functions import compile_process, is_native, native_function, resolve_callable

Function = Callable[..., Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Process(FunctionText):
    """fn(row, state, emit), in Python.

    Attributes
    ----------
    fn : callable
    state : pyarrow.Schema, Codec or None
        Declared fields, or how the state is written down, or None: whatever `init` makes.
    init : callable or None
        Makes a key's state where `state` is None; never None then.
    fan_out : int
        Outputs per tuple; a hint.
    on_flush, on_time : callable or None
    """

    op: ClassVar[str] = "python_process"
    stateful: ClassVar[bool] = True
    is_python: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True

    fn: Function
    state: Any = None
    init: Callable[[], Any] | None = None
    fan_out: int = 1
    on_flush: Function | None = None
    on_time: Function | None = None

    @property
    def can_snapshot(self) -> bool:
        return self.state is not None

    @property
    def codec(self) -> Codec | None:
        """How the state is written down, where its fields are not declared."""
        return self.state if isinstance(self.state, Codec) else None

    def kernel(self) -> Any:
        from ordstream._core.kernels.python_functions import ProcessKernel

        return ProcessKernel(self)

    def reference(self) -> SerialOperator:
        return ProcessReference(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledProcess(CompiledText):
    """fn(row, state, emit), compiled.

    Attributes
    ----------
    fn : callable
        For Numba, or native.
    state : pyarrow.Schema
    fan_out : int
        Most emits per row.
    on_flush, on_time : callable or None
        In Python.
    """

    op: ClassVar[str] = "compiled"
    stateful: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True

    fn: Function
    state: pa.Schema
    fan_out: int = 1
    on_flush: Function | None = None
    on_time: Function | None = None

    @property
    def codec(self) -> None:
        """Fields are declared."""
        return None

    def compiled_function(self) -> CompiledFunction:
        if is_native(self.fn):
            return native_function(resolve_callable(self.fn), self.output, self.fan_out, self.state)
        return compile_process(self.fn, self.input, self.state, self.output, self.fan_out, where=self.name)

    def reference(self) -> SerialOperator:
        return CompiledProcessReference(self)


def bind_process(
    site: Site,
    fn: Any,
    *,
    schema: Any,
    state: Any,
    init: Any,
    fan_out: Any,
    on_flush: Any,
    on_time: Any,
    compiled: bool,
) -> Operator:
    """The operator of `process`.

    Raises
    ------
    PlanError, SchemaError
        Functions, state or schema that can't be.
    """
    where = site.name
    for what, function in (("fn", fn), ("on_flush", on_flush), ("on_time", on_time), ("init", init)):
        native = what == "fn" and is_native(function)
        if native and not compiled:
            raise PlanError(f"{where}: {fn!r} is a compiled function: it needs compiled=True")
        if not callable(function) and not native and (what == "fn" or function is not None):
            raise PlanError(f"{where}: {what} must be callable, got {function!r}")
    if isinstance(state, Codec) or state is None:
        if compiled:
            raise PlanError(f"{where}: compiled=True needs declared state: state={{'n': pa.int64()}}")
    else:
        state = state_schema(state, f"{where}: state")
    if state is not None and init is not None:
        raise PlanError(f"{where}: init is for undeclared state; declared fields start as zero")
    most = positive_int(fan_out, f"{where}: fan_out", MOST_FAN_OUT)
    fields = site.fields(pipeline_schema(schema, f"{where}: schema"))
    functions = {"fn": fn, "state": state, "fan_out": most, "on_flush": on_flush, "on_time": on_time}
    if compiled:
        return CompiledProcess(**fields, **functions)
    return Process(**fields, **functions, init=SimpleNamespace if state is None and init is None else init)


class ProcessReference(Keyed, FunctionReference):
    """A function of the user's, of each tuple and the state of its key."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        rows: list[Row] = []
        self.call(key, lambda state: self.fn(self.python_row(row), state, self.emitter(rows)))
        return rows

    def on_time(self, time: int) -> list[Step]:
        function = self.operator.on_time
        if function is None:
            return []
        return [
            self.step(key, lambda k, state, emit: function(k, state, time, emit)) for key in self.ascending()
        ]

    def flush(self) -> list[Step]:
        function = self.operator.on_flush
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
        skips = self.operator.on_error == "skip"
        state = self.states[key] if known else self.new_state()
        before = self.copy_of(state) if known and skips else None
        try:
            result = function(state)
            if result is not None:
                raise TypeError(
                    f"a process function outputs with emit(...) and returns nothing, got {result!r}"
                )
        except Exception:
            if known and skips:
                self.states[key] = before
            raise
        self.states[key] = state

    def new_state(self) -> Any:
        declared = self.operator.state
        if declared is None:
            return self.operator.init()
        if self.operator.codec is not None:
            return declared.init()
        if self.compiled:
            declared = pa.schema([field.with_type(storage_type(field.type)) for field in declared])
        return state_class(declared)()

    def copy_of(self, state: Any) -> Any:
        codec = self.operator.codec
        return copy.deepcopy(state) if codec is None else codec.decode(codec.encode(state))

    def user_key(self, key: SortKey) -> Any:
        """() without key columns, the value of a single one, a tuple of several."""
        types = [self.operator.input.field(index).type for index in self.operator.key]
        values = tuple(self.python_value(v, t) for v, t in zip(self.key_values[key], types, strict=True))
        return values[0] if len(values) == 1 else values


class CompiledProcessReference(ProcessReference):
    """The same on storage values."""

    compiled = True
