"""Stateful operators: what `Pipeline` (one state for all) and `KeyedPipeline` (one state per key) share."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.expr import Column, Expr
from ordstream.ground.types import (
    INT64_MAX,
    column_index,
    is_fixed_number,
    key_type,
    pipeline_schema,
    state_schema,
    unique_names,
)
from ordstream.operators.arguments import Aggregation, Codec, bound_aggregations, flat, time_span
from ordstream.plan.stages import Stage
from ordstream.udf.functions import is_native

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline

OnError = Literal["fail", "skip"]
Function = Callable[..., Any]

MOST_KEY_COLUMNS = 64

#: Largest fan_out: room for so many outputs is reserved before a compiled function is called.
MOST_FAN_OUT = 1 << 24


class StatefulOperators:
    """Stateful operators that work with a key (`KeyedPipeline`) and without one (`Pipeline`: one state for
    all).
    """

    _source: pa.Schema
    _stages: tuple[Stage, ...]
    _key: tuple[int, ...] = ()
    _partition: Any = "hash"
    _buckets: int | None = None

    def count(
        self,
        name: str = "count",
        *,
        window: int | datetime.timedelta | None = None,
        time: str | None = None,
        above: int | None = None,
        emit: Literal["updates", "final"] = "updates",
        operator: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Number of tuples per key. Output: key columns, `window` (with a window), count.

        Parameters
        ----------
        name : str
            Of the output column.
        window : int or timedelta, optional
            Length of tumbling windows, in the unit of the time column. A tuple of another window than the
            key's last one starts the key's count again. The output column `window` is the window's start.
        time : str
            The time column of `window`: an integer, timestamp or date, ascending in each key (without key_by: in all tuples). Null is
            an error at that row, and so is a time before that of the row before.
        above : int, optional
            Only counts of more than this are emitted.
        emit : "updates" or "final"
            An output per tuple with the count so far, or one per key at the end of the stream, by ascending
            key. "final" goes with no window: of a key's windows only the last would be left.
        operator : str, optional
            Name of the operator (in every other method: `name`).
        """
        where = self._operator_name("count", operator)
        emission(emit, ("updates", "final"), where)
        fields = [pa.field(nonempty(name, where), pa.int64())]
        least = None if above is None else count_bound(above, f"{where}: above")
        params: dict[str, Any] = {"emit": emit, "window": None, "time": None, "above": least}
        if (window is None) != (time is None):
            raise PlanError(f"{where}: window and time go together, got window={window!r}, time={time!r}")
        if window is not None:
            if emit == "final":
                raise PlanError(
                    f"{where}: emit='final' does not go with a window: only the last window of each key would be "
                    "left; use emit='updates', and top_k(..., window='window') behind it for totals per window"
                )
            index = column_index(self._schema, time, where)
            params |= {"time": index, "window": time_span(window, self._schema.field(index), f"{where}: window")}
            if params["window"] < 1:
                raise PlanError(f"{where}: window must be at least 1, got {window!r}")
            type_ = self._schema.field(index).type
            fields.insert(0, pa.field("window", pa.int64() if pat.is_integer(type_) else type_))
        return self._stateful("count", where, self._with_key(fields, where), params, on_error)

    def scan(
        self,
        *named: Aggregation,
        name: str | None = None,
        on_error: OnError = "fail",
        **aggregations: Aggregation,
    ) -> Pipeline:
        """Running aggregations per key: each tuple with the values that include it. Output: input columns,
        then these.

        Parameters
        ----------
        *named, **aggregations : Aggregation
            `total=od.sum("x")`, or `od.sum("x").alias("name")` where the name can't be a keyword.
        """
        where = self._operator_name("scan", name)
        fields, aggregates = bound_aggregations(named, aggregations, self._schema, where)
        if not fields:
            raise PlanError(f"{where}: at least one aggregation is needed, such as total=od.sum('x')")
        fields = [*self._schema, *fields]
        unique_names([field.name for field in fields], where)
        return self._stateful("scan", where, pa.schema(fields), {"aggregates": aggregates}, on_error)

    def lag(
        self,
        columns: Mapping[str, str],
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each tuple with values of the tuple before it of the same key (SQL's LAG). Output: input columns, then
        these.

        `key_by("user").lag({"previous_ts": "ts"})`: the time since a user's last event is then
        `od.col("ts") - od.col("previous_ts")`. A key's first tuple has nulls; a null of the tuple before is one too.

        Parameters
        ----------
        columns : mapping of output name to column
            Numbers, bools, dates and times.
        """
        where = self._operator_name("lag", name)
        given: Any = columns
        if not isinstance(given, Mapping) or not given:
            raise PlanError(f"{where}: columns must be a mapping such as {{'previous_ts': 'ts'}}, got {columns!r}")
        indexes, fields = [], []
        for output, column in columns.items():
            index = column_index(self._schema, column, where)
            type_ = self._schema.field(index).type
            if not (is_fixed_number(type_) or pat.is_boolean(type_)):
                raise SchemaError(f"{where}: {column!r} must be a number, bool, date or time to be kept, it is {type_}")
            indexes.append(index)
            fields.append(pa.field(nonempty(output, where), type_))
        fields = [*self._schema, *fields]
        unique_names([field.name for field in fields], where)
        return self._stateful("lag", where, pa.schema(fields), {"columns": indexes}, on_error)

    def assert_ordered(self, *columns: str, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """Tuples as they are, and an error at one that comes before the tuple before it. Output: input columns.

        Directly behind the source it checks the source: `od.Pipeline(schema).assert_ordered("ts")`. Behind `key_by` each key is checked
        by itself. A pipeline keeps the order that it is given: it can check an order, not make one.

        Parameters
        ----------
        *columns : str
            Numbers, dates and times; tuples ascend by the first, those equal in it by the second, and so on. Equal tuples may follow each
            other. Null comes before all values, NaN behind them, as in Spark.
        on_error : "fail" or "skip"
            "skip" drops such a tuple; the next one is compared with the last that stayed.
        """
        where = self._operator_name("assert_ordered", name)
        names = flat(columns)
        indexes = [column_index(self._schema, column, where) for column in names]
        if not 1 <= len(indexes) <= MOST_KEY_COLUMNS:
            raise PlanError(f"{where}: 1 to {MOST_KEY_COLUMNS} columns are needed, such as assert_ordered('ts'), got {len(indexes)}")
        for index in indexes:
            field = self._schema.field(index)
            if not is_fixed_number(field.type):
                raise SchemaError(f"{where}: {field.name!r} must be a number, date or time, it is {field.type}")
        return self._stateful("assert_ordered", where, self._schema, {"columns": indexes}, on_error)

    def aggregate(
        self,
        *named: Aggregation,
        emit: Literal["updates", "final"] = "updates",
        name: str | None = None,
        on_error: OnError = "fail",
        **aggregations: Aggregation,
    ) -> Pipeline:
        """Aggregations per key. Output: key columns, then these.

        Parameters
        ----------
        *named, **aggregations : Aggregation
            As for `scan`.
        emit : "updates" or "final"
            "updates": an output per tuple with the values that include it, and at the end of the stream the
            final ones per key, by ascending key; "final": only these. Without any tuple there is no output.
        """
        where = self._operator_name("aggregate", name)
        emission(emit, ("updates", "final"), where)
        fields, aggregates = bound_aggregations(named, aggregations, self._schema, where)
        if not fields:
            raise PlanError(f"{where}: at least one aggregation is needed, such as total=od.sum('x')")
        params = {"aggregates": aggregates, "emit": emit}
        return self._stateful("aggregate", where, self._with_key(fields, where), params, on_error)

    def process(
        self,
        fn: Function,
        *,
        schema: Any,
        state: Any = None,
        init: Callable[[], Any] | None = None,
        fan_out: int = 1,
        on_flush: Function | None = None,
        on_time: Function | None = None,
        compiled: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """A function of each tuple and the state of its key.

        Parameters
        ----------
        fn : callable
            fn(row, state, emit): `row.column` reads, `state.field` reads and writes, `emit(*values)` outputs
            one tuple in the order of `schema`. It returns nothing.
        schema : pyarrow.Schema or mapping
            Of the outputs.
        state : mapping, pyarrow.Schema, Codec or None
            Declared fields (each starts as the zero of its type and never is null), or `od.codec(...)`, or
            None: any object made by `init`, which cannot be snapshotted or migrated.
        init : callable, optional
            Only without declared state: () -> the state of a new key; default `types.SimpleNamespace`.
        fan_out : int
            Most outputs per tuple; a bound for compiled functions, a hint for Python ones.
        on_flush : callable, optional
            on_flush(key, state, emit) at the end of the stream, by ascending key. `key` is the value of the
            key column, a tuple of several, () without key_by.
        on_time : callable, optional
            on_time(key, state, time, emit) at a time punctuation, by ascending key; `time` is an int in the
            unit of the punctuation's column.
        compiled : bool
            Compile `fn` with Numba; needs declared state. Dates and times are ints of their unit then.
        """
        where = self._operator_name("process", name)
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
        if state is None and init is None:
            init = SimpleNamespace
        params: dict[str, Any] = {
            "fn": fn,
            "state": state,
            "fan_out": positive_int(fan_out, f"{where}: fan_out", MOST_FAN_OUT),
        }
        params |= {"on_flush": on_flush, "on_time": on_time}
        if not compiled:
            params["init"] = init
        output = pipeline_schema(schema, f"{where}: schema")
        return self._stateful("compiled" if compiled else "python_process", where, output, params, on_error)

    # ---------------------------------------------------------------------------------------- shared by both

    @property
    def _schema(self) -> pa.Schema:
        return self._stages[-1].output if self._stages else self._source

    def _operator_name(self, op: str, name: str | None) -> str:
        if isinstance(name, Expr | Aggregation):
            raise PlanError(f"{op}: name= is the operator's name; an output column called 'name' is written (...).alias('name')")
        chosen = f"{op}_{len(self._stages) + 1}" if name is None else nonempty(name, op)
        if any(stage.name == chosen for stage in self._stages):
            raise PlanError(f"two operators are named {chosen!r}; names must be unique in a pipeline")
        return chosen

    def _with_key(self, fields: list[pa.Field], where: str) -> pa.Schema:
        fields = [self._schema.field(index) for index in self._key] + fields
        unique_names([field.name for field in fields], where)
        return pa.schema(fields)

    def _stateful(self, op: str, name: str, output: pa.Schema, params: Mapping[str, Any], on_error: OnError) -> Pipeline:
        from ordstream.pipeline.pipeline import Pipeline

        stage = Stage(
            name=name,
            kind="PS" if self._key else "SF",
            op=op,
            input=self._schema,
            output=output,
            key=self._key,
            params=params,
            partition=self._partition,
            buckets=self._buckets,
            on_error=policy(on_error, name),
        )
        return Pipeline._of(self._source, (*self._stages, stage))


def nonempty(name: Any, where: str) -> str:
    """The name if it is a non-empty str; PlanError otherwise."""
    if not isinstance(name, str) or not name:
        raise PlanError(f"{where}: a name must be a non-empty str, got {name!r}")
    return name


def policy(on_error: Any, where: str) -> OnError:
    """The error policy if it is one; PlanError otherwise."""
    if on_error not in get_args(OnError):
        raise PlanError(f"{where}: on_error must be 'fail' or 'skip', got {on_error!r}")
    return "skip" if on_error == "skip" else "fail"


def positive_int(value: Any, what: str, most: int = INT64_MAX) -> int:
    """The value if it is an int of at least 1 and at most `most`; PlanError naming it otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlanError(f"{what} must be an int of at least 1, got {value!r}")
    if value > most:
        raise PlanError(f"{what} must be at most {most}, got {value!r}")
    return value


def count_bound(value: Any, what: str) -> int:
    """The value if it is an int that a count can be compared with; PlanError naming it otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise PlanError(f"{what} must be an int of at least 0, got {value!r}")
    return value


def key_columns(schema: pa.Schema, columns: Sequence[Any], where: str) -> tuple[int, ...]:
    """Indexes of key columns: at least one, no duplicates, of types that can be keys."""
    names = [column.name if isinstance(column, Column) else column for column in columns]
    indexes = tuple(column_index(schema, name, where) for name in names)
    if not indexes:
        raise PlanError(f"{where}: at least one key column is needed")
    if len(indexes) > MOST_KEY_COLUMNS:
        raise PlanError(f"{where}: at most {MOST_KEY_COLUMNS} key columns, got {len(indexes)}")
    unique_names(names, where)
    for index in indexes:
        key_type(schema.field(index).type, schema.field(index).name)
    return indexes


def emission(emit: Any, allowed: Sequence[str], where: str) -> None:
    """PlanError unless `emit` is one of the modes of the operator."""
    if emit not in allowed:
        modes = " or ".join(map(repr, allowed))
        raise PlanError(f"{where}: emit must be {modes}, got {emit!r}")
