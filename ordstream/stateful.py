"""Stateful operators: what `Pipeline` (one state for all) and `KeyedPipeline` (one state per key) share."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import pyarrow as pa

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions import Column
from ordstream.operators import Aggregation, Codec, EqualRanges, Ranges, time_span
from ordstream.plan import Stage
from ordstream.types import (
    column_index,
    is_list,
    key_type,
    physical_type,
    pipeline_schema,
    state_schema,
    unique_names,
)
from ordstream.udf import is_native

if TYPE_CHECKING:
    from ordstream.pipeline import Pipeline

OnError = Literal["fail", "skip"]
Function = Callable[..., Any]


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
        emit: Literal["updates", "final"] = "updates",
        operator: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Number of tuples per key. Output: key columns, count.

        Parameters
        ----------
        name : str
            Of the output column.
        emit : "updates" or "final"
            An output per tuple with the count so far, or one per key at the end of the stream, by ascending
            key.
        operator : str, optional
            Name of the operator (in every other method: `name`).
        """
        where = self._operator_name("count", operator)
        if emit not in ("updates", "final"):
            raise PlanError(f"{where}: emit must be 'updates' or 'final', got {emit!r}")
        output = self._with_key([pa.field(nonempty(name, where), pa.int64())], where)
        return self._stateful("count", where, output, {"emit": emit}, on_error)

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
        columns: list[tuple[str, Any]] = []
        aggregation: Any
        for aggregation in named:
            if not isinstance(aggregation, Aggregation) or aggregation.name is None:
                raise PlanError(f"{where}: a positional aggregation needs a name: od.sum('x').alias('total')")
            columns.append((aggregation.name, aggregation))
        columns += aggregations.items()
        if not columns:
            raise PlanError(f"{where}: at least one aggregation is needed, such as total=od.sum('x')")
        fields, aggregates = list(self._schema), []
        for column, aggregation in columns:
            if not isinstance(aggregation, Aggregation):
                raise PlanError(
                    f"{where}: {column} must be an aggregation (od.sum, ...), got {aggregation!r}"
                )
            type_, index = aggregation.bind(self._schema, where)
            fields.append(pa.field(column, type_))
            aggregates.append((aggregation.function, index))
        unique_names([field.name for field in fields], where)
        return self._stateful("scan", where, pa.schema(fields), {"aggregates": aggregates}, on_error)

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
            "fan_out": positive_int(fan_out, f"{where}: fan_out"),
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
        chosen = f"{op}_{len(self._stages) + 1}" if name is None else nonempty(name, op)
        if any(stage.name == chosen for stage in self._stages):
            raise PlanError(f"two operators are named {chosen!r}; names must be unique in a pipeline")
        return chosen

    def _with_key(self, fields: list[pa.Field], where: str) -> pa.Schema:
        fields = [self._schema.field(index) for index in self._key] + fields
        unique_names([field.name for field in fields], where)
        return pa.schema(fields)

    def _stateful(
        self, op: str, name: str, output: pa.Schema, params: Mapping[str, Any], on_error: OnError
    ) -> Pipeline:
        from ordstream.pipeline import Pipeline

        keyed = isinstance(self, KeyedPipeline)
        stage = Stage(
            name=name,
            kind="PS" if keyed else "SF",
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


class KeyedPipeline(StatefulOperators):
    """What `key_by` returns: it waits for the operator that keeps one state per key."""

    def __init__(
        self,
        pipeline: Pipeline,
        columns: Sequence[str],
        buckets: int | None,
        partition: str | Ranges | EqualRanges,
    ) -> None:
        self._source, self._stages = pipeline._source, pipeline._stages
        where = f"key_by({', '.join(map(str, columns))})"
        self._key = key_columns(self._schema, columns, where)
        self._buckets = None if buckets is None else positive_int(buckets, f"{where}: buckets")
        if isinstance(partition, Ranges | EqualRanges):
            self._partition = partition.bind(self._schema, self._key, where)
        elif partition == "hash":
            self._partition = "hash"
        else:
            raise PlanError(
                f"{where}: partition must be 'hash', od.ranges or od.equal_ranges, got {partition!r}"
            )

    def sessionize(
        self,
        time: str,
        timeout: int | datetime.timedelta,
        collect: Mapping[str, str] | Sequence[str] | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Sessions per key: runs of tuples whose times follow each other within a timeout.

        A tuple whose time is more than `timeout` after the key's previous tuple closes the session: it is
        emitted then, and the tuple opens the next one. A gap of exactly `timeout` does not split, nor does a
        jump backwards. At the end of the stream the open sessions are emitted by ascending key; at a time
        punctuation those whose last time is more than `timeout` before it, by (end, key). Output: key
        columns, start, end (times of the first and the last tuple), count, then one list per collected
        column.

        Parameters
        ----------
        time : str
            An integer, timestamp or date column. Null is an error at that row.
        timeout : int or timedelta
            At least 0, in the column's unit.
        collect : mapping of output name to column, or sequence of columns
            Values to keep, in order. Null is an error at that row: filter first.
        """
        where = self._operator_name("sessionize", name)
        time_index = column_index(self._schema, time, where)
        span = time_span(timeout, self._schema.field(time_index), f"{where}: timeout")
        if span < 0:
            raise PlanError(f"{where}: timeout must be at least 0, got {timeout!r}")
        if isinstance(collect, str):
            collect = [collect]
        pairs = (
            {} if collect is None else collect if isinstance(collect, Mapping) else {c: c for c in collect}
        )
        time_type = self._schema.field(time_index).type
        fields = [pa.field("start", time_type), pa.field("end", time_type), pa.field("count", pa.int64())]
        indexes = []
        for output, column in pairs.items():
            index = column_index(self._schema, column, where)
            field = pa.field(nonempty(output, where), pa.list_(self._schema.field(index).type))
            if is_list(self._schema.field(index).type):
                raise SchemaError(f"{where}: can't collect the list column {column!r}")
            physical_type(field.type, column)
            fields.append(field)
            indexes.append(index)
        params = {"time": time_index, "timeout": span, "collect": indexes}
        return self._stateful("sessionize", where, self._with_key(fields, where), params, on_error)

    def __repr__(self) -> str:
        keys = ", ".join(self._schema.names[index] for index in self._key)
        return f"<KeyedPipeline by {keys}; next: sessionize, count, scan or process>"

    def __getattr__(self, attribute: str) -> NoReturn:
        from ordstream.pipeline import Pipeline

        if not attribute.startswith("_") and hasattr(Pipeline, attribute):
            raise PlanError(
                f"key_by must be followed by sessionize, count, scan or process, not by {attribute!r}; "
                "other operators come before key_by or after the keyed operator"
            )
        raise AttributeError(f"'KeyedPipeline' has no attribute {attribute!r}")


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


def positive_int(value: Any, what: str) -> int:
    """The value if it is an int of at least 1; PlanError naming it otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlanError(f"{what} must be an int of at least 1, got {value!r}")
    return value


def key_columns(schema: pa.Schema, columns: Sequence[Any], where: str) -> tuple[int, ...]:
    """Indexes of key columns: at least one, no duplicates, of types that can be keys."""
    names = [column.name if isinstance(column, Column) else column for column in columns]
    indexes = tuple(column_index(schema, name, where) for name in names)
    if not indexes:
        raise PlanError(f"{where}: at least one key column is needed")
    unique_names(names, where)
    for index in indexes:
        key_type(schema.field(index).type, schema.field(index).name)
    return indexes
