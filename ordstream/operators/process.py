"""process: a function of each tuple and the state of its key, in Python or compiled."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, Uncopied, shown
from ordstream.ground.choices import flag
from ordstream.ground.declared_state import state_class, state_schema, stored_fields, zero_of
from ordstream.ground.duration import time_span, unit_ns
from ordstream.ground.forget import FORGET
from ordstream.ground.types import (
    column_index,
    pipeline_schema,
    storage_type,
    to_python,
    to_storage,
)
from ordstream.operators.arguments import positive_int
from ordstream.operators.clocks import Clock, clock_at, clock_text
from ordstream.operators.codec import Codec
from ordstream.operators.functions import (
    MOST_FAN_OUT,
    FunctionReference,
    RowFunctionText,
    check_arguments,
)
from ordstream.operators.map_rows import CompiledText
from ordstream.operators.operator import Operator, Site
from ordstream.operators.punctuation import Every
from ordstream.operators.row_clock import RowClock
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step
from ordstream.udf.compiled_function import CompiledFunction
from ordstream.udf.functions import compile_process, is_native, native_function, resolve_callable

Function = Callable[..., Any]

CODEC_COLUMN = pa.field("state", pa.binary())


@dataclass(frozen=True, eq=False, kw_only=True)
class Process(RowFunctionText):
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
    version : str, int or None
        Which function a stored state is for.
    timer : int or None
        Field of the state that holds the time of the key's timer.
    on_timer : callable or None
    clock : Clock or None
        With a timer: the clock that it fires by.
    clock_column : int
        With a timer: input column with the clock's values.
    period : int
        With a timer: the clock is looked at at multiples of it.
    """

    op: ClassVar[str] = "python_process"
    stateful: ClassVar[bool] = True
    is_python: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True
    may_reject: ClassVar[bool] = True
    may_retry: ClassVar[bool] = True

    fn: Function
    state: Any = None
    init: Callable[[], Any] | None = None
    fan_out: int = 1
    on_flush: Function | None = None
    on_time: Function | None = None
    version: str | int | None = None
    timer: int | None = None
    on_timer: Function | None = None
    clock: Clock | None = None
    clock_column: int = -1
    period: int = 1

    def clock_wanted(self) -> tuple[Clock, int] | None:
        return None if self.clock is None else (self.clock, self.period)

    def clock_input(self) -> int | None:
        return self.clock_column

    def with_clock(self, clock: Clock | None) -> Self:
        return super().with_clock(None) if clock is None else self.changed(clock=clock)

    def own_notes(self) -> list[str]:
        if self.clock is None:
            return []
        period = self.spans_of(self.clock_column)(self.period)
        return [f"timers fire by {clock_text(self.clock)}, at multiples of {period}"]

    def columns_read(self) -> set[int]:
        clock = {self.clock_column} - {-1}
        return super().columns_read() | clock | {*self.key}

    @property
    def can_snapshot(self) -> bool:
        return self.state is not None

    @property
    def codec(self) -> Codec | None:
        """How the state is written down, where its fields are not declared."""
        return self.state if isinstance(self.state, Codec) else None

    def timing_rows(self, clock: RowClock) -> Self:
        return self.changed(fn=clock.timing(self.fn))

    def kernel(self) -> Any:
        from ordstream._core.kernels.python_functions import ProcessKernel

        return ProcessKernel(self)

    def reference(self) -> SerialOperator:
        return ProcessReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The declared fields, or one column with the bytes that the codec makes.

        Raises
        ------
        PlanError
            It is neither.
        """
        if self.state is None:
            raise PlanError(
                f"operator {self.name!r} ({self.op}): its state is not declared, so it can't be stored: "
                "declare the fields (state={'n': pa.int64()}) or give od.codec"
            )
        return state_rows(self, [CODEC_COLUMN] if self.codec is not None else stored_fields(self.state))

    def state_identity(self) -> dict[str, str]:
        """The fields are the columns. Nothing of the function: who changes it says so by `version`."""
        form = "bytes of a codec" if self.codec is not None else "declared fields"
        return {**self.operator_and_key(), "state": form, **version_of(self)}


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
    version : str, int or None
        Which function a stored state is for.
    """

    op: ClassVar[str] = "compiled"
    stateful: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True

    fn: Function
    state: pa.Schema
    fan_out: int = 1
    on_flush: Function | None = None
    on_time: Function | None = None
    version: str | int | None = None

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

    def state_schema(self) -> pa.Schema | None:
        """The declared fields."""
        return state_rows(self, self.state)

    def state_identity(self) -> dict[str, str]:
        """As of `Process`. Without `on_flush` and `on_time` a key whose fields are all zero has no row: it
        would be as a new one. With them it counts, so that such a state can't be theirs.
        """
        silent = self.on_flush is None and self.on_time is None
        kept = "keys with a field that is not zero" if silent else "all keys"
        return {**self.operator_and_key(), "state": f"declared fields of {kept}", **version_of(self)}


def version_of(operator: Process | CompiledProcess) -> dict[str, str]:
    """The item of `state_identity`, where a version was given."""
    return {} if operator.version is None else {"version": str(operator.version)}


#: How each function of `process` is called.
_CALLED = {
    "fn": "fn(row, state, emit)",
    "on_flush": "on_flush(key, state, emit)",
    "on_time": "on_time(key, state, time, emit)",
    "on_timer": "on_timer(key, state, at, emit)",
    "init": "init()",
}


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
    version: Any = None,
    timer: Any = None,
    on_timer: Any = None,
    clock: Any = None,
) -> Operator:
    """The operator of `process`.

    Raises
    ------
    PlanError, SchemaError
        Functions, state or schema that can't be.
    """
    where = site.name
    compiled = flag(compiled, f"{where}: compiled")
    given = {"fn": fn, "on_flush": on_flush, "on_time": on_time, "on_timer": on_timer, "init": init}
    for what, function in given.items():
        native = what == "fn" and is_native(function)
        if native and not compiled:
            raise PlanError(f"{where}: {fn!r} is a compiled function: it needs compiled=True")
        if not callable(function) and not native and (what == "fn" or function is not None):
            raise PlanError(f"{where}: {what} must be callable, got {function!r}")
        if function is not None and not compiled:
            check_arguments(function, where, _CALLED[what])
    if version is not None and (isinstance(version, bool) or not isinstance(version, str | int)):
        raise PlanError(f"{where}: version must be a str or an int, got {version!r}")
    if isinstance(state, Codec) or state is None:
        if compiled:
            raise PlanError(f"{where}: compiled=True needs declared state: state={{'n': pa.int64()}}")
    else:
        state = state_schema(state, f"{where}: state", lists=not compiled)
    if state is not None and init is not None:
        raise PlanError(f"{where}: init is for undeclared state; declared fields start as zero")
    most = positive_int(fan_out, f"{where}: fan_out", MOST_FAN_OUT)
    fields = site.fields(pipeline_schema(schema, f"{where}: schema"))
    functions = {"fn": fn, "state": state, "fan_out": most, "on_flush": on_flush, "on_time": on_time}
    functions["version"] = version
    if timer is not None or on_timer is not None or clock is not None:
        if compiled or not isinstance(state, pa.Schema) or on_time is not None:
            raise PlanError(
                f"{where}: a timer needs declared state (state={{'due': pa.int64()}}), and neither "
                "compiled=True nor on_time"
            )
        functions |= timer_of(site, state, timer, on_timer, clock)
    if compiled:
        return CompiledProcess(**fields, **functions)
    return Process(**fields, **functions, init=SimpleNamespace if state is None and init is None else init)


def counts(type_: pa.DataType) -> tuple[int, bool]:
    """What a time is a number of, in nanoseconds (0: of no unit), and whether since an instant."""
    unit = 0 if pat.is_integer(type_) else unit_ns(type_)
    return unit, pat.is_timestamp(type_) and type_.tz is not None


def timer_of(site: Site, state: pa.Schema, timer: Any, on_timer: Any, clock: Any) -> dict[str, Any]:
    """What `Process` has of timers.

    Raises
    ------
    PlanError, SchemaError
        One of the three is missing, the field can't hold a time, or the clock is no column of the source.
    """
    where = site.name
    if timer is None or on_timer is None or not isinstance(clock, Every):
        raise PlanError(
            f"{where}: timers need timer='field', on_timer=function and clock=od.every('ts', period)"
        )
    field = state.field(column_index(state, timer, f"{where}: timer"))
    time_span(1, field, f"{where}: timer")  # it can hold time
    column, period = clock.bind(site.schema)
    ticks = site.schema.field(column)
    if counts(field.type) != counts(ticks.type) and not pat.is_integer(field.type):
        raise PlanError(
            f"{where}: the timer {field.name!r} ({field.type}) does not count as the clock {ticks.name!r} "
            f"({ticks.type}) does: declare it as {ticks.type}, or as an integer"
        )
    source = clock_at(site.before, column)
    if source is None:
        raise PlanError(
            f"{where}: clock={clock.column!r} is not the clock: it must be a column of the source, "
            "unchanged or computed by expressions, that the windows in front choose too, or the time of a "
            "reorder in front. What a function, an aggregation or a join made moves no timers: have the "
            "source give it, in order"
        )
    index = state.names.index(field.name)
    told = {"timer": index, "on_timer": on_timer, "clock": source, "clock_column": column, "period": period}
    return told


class ProcessReference(Keyed, FunctionReference):
    """A function of the user's, of each tuple and the state of its key.

    A timer fires at the first mark at or after its time, by (time, key); its field is zero then. It must be
    set behind its tuple's time, or behind the time of the one that fires: up to the mark it fires at once.

    Attributes
    ----------
    timers : dict of SortKey to int
        Times of the timers that are set: a mark asks no other key.
    """

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.timers: dict[SortKey, int] = {}

    def process(self, row: Row) -> list[Row]:
        for left in range(self.operator.retries, -1, -1):
            try:
                return self.once(row)
            except Exception:
                if not left:
                    raise
        raise AssertionError("a try returns or raises")

    def once(self, row: Row) -> list[Row]:
        """One try of a row."""
        key = self.key_of(row)
        rows: list[Row] = []

        def run(state: Any) -> Any:
            before = self.due(state)
            with self.emitter(rows) as emit:
                result = self.fn(self.python_row(row), state, emit)
            if result is not FORGET and self.due(state) not in (0, before):
                now = row[self.operator.clock_column]
                if now is None:
                    raise ValueError("a timer is set at a row whose time is null")
                self.not_behind(self.due(state), now, "the row's time, ")
            return result

        self.call(key, run)
        return rows

    def due(self, state: Any) -> int:
        """Time of a state's timer; 0: there is none."""
        if self.compiled or self.operator.timer is None:
            return 0
        field = self.operator.state.field(self.operator.timer)
        return int(to_storage(getattr(state, field.name), field.type, field.name))

    def not_behind(self, due: int, now: int, what: str) -> None:
        """ValueError where a timer is not behind a time."""
        if due <= now:
            raise ValueError(f"the timer at {due} is not behind {what}{now}")

    def fire(self, key: SortKey, due: int) -> list[Row]:
        """Call on_timer for a key."""
        field = self.operator.state.field(self.operator.timer)
        setattr(self.states[key], field.name, zero_of(field.type))
        del self.timers[key]
        rows: list[Row] = []

        def run(state: Any) -> Any:
            at = to_python(due, field.type)
            with self.emitter(rows) as emit:
                result = self.operator.on_timer(self.user_key(key), state, at, emit)
            if result is not FORGET and self.due(state):
                self.not_behind(self.due(state), due, "the one that fires, ")
            return result

        self.call(key, run)
        return rows

    def firing(self, mark: int) -> Iterator[Step]:
        """The timers that are due at a mark, and those that they set up to it, by (time, key)."""
        due = sorted((at, key) for key, at in self.timers.items() if at <= mark)
        while due:
            at, key = heapq.heappop(due)
            yield partial(self.fire, key, at)
            again = self.timers.get(key)
            if again is not None and again <= mark:
                heapq.heappush(due, (again, key))

    def on_time(self, time: int) -> Iterable[Step]:
        if not self.compiled and self.operator.timer is not None:
            return self.firing(time // self.operator.period * self.operator.period)
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
            with self.emitter(rows) as emit:
                self.call(key, lambda state: function(self.user_key(key), state, emit))
            return rows

        return run

    def call(self, key: SortKey, function: Callable[[Any], Any]) -> None:
        """Call with the key's state; when that raises and the run goes on, the state is as before."""
        known = key in self.states
        undoes = self.operator.on_error == "skip" or self.operator.retries > 0
        state = self.states[key] if known else self.new_state()
        before = self.copy_of(state) if known and undoes else None
        try:
            result = function(state)
            if result is FORGET and self.compiled:
                raise TypeError(
                    "a key of a compiled function can't be forgotten: od.FORGET is for compiled=False"
                )
            if result is not None and result is not FORGET:
                raise TypeError(
                    "a process function outputs with emit(...) and returns nothing or od.FORGET, got "
                    f"{shown(result)}"
                )
        except Exception:
            if known and undoes:
                self.states[key] = before
            raise
        if result is FORGET:
            self.states.pop(key, None)
            self.timers.pop(key, None)
            return
        self.states[key] = state
        if due := self.due(state):
            self.timers[key] = due
        else:
            self.timers.pop(key, None)

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
        try:
            return copy.deepcopy(state) if codec is None else codec.decode(codec.encode(state))
        except Exception as error:
            raise Uncopied.because(error) from error

    def user_key(self, key: SortKey) -> Any:
        """() without key columns, the value of a single one, a tuple of several."""
        types = [self.operator.input.field(index).type for index in self.operator.key]
        values = tuple(self.python_value(v, t) for v, t in zip(self.key_values[key], types, strict=True))
        return values[0] if len(values) == 1 else values


class CompiledProcessReference(ProcessReference):
    """The same on storage values."""

    compiled = True
