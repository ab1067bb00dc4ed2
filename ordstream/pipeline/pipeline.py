"""Pipeline: a chain of operators over tuples of an Arrow schema, checked and typed while it is written.

Every method returns a new pipeline; nothing runs before `run` or `stream`. Mistakes in columns and types are
`SchemaError`, mistakes in structure and arguments are `PlanError`; both are raised by the method that makes
them.

Every operator has a `name`, used in errors and reports (default: the operation and its position, "filter_1"),
and an `on_error` policy: "fail" stops the run at the failing tuple; "skip" drops that tuple, leaves the state
as it was, and reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.bound import BoundExpr
from ordstream.expressions.expr import Alias, Column, Expr
from ordstream.expressions.lowering import lower
from ordstream.ground.types import (
    column_index,
    is_fixed_number,
    is_temporal,
    pipeline_schema,
    unique_names,
)
from ordstream.operators.arguments import EqualRanges, Explode, Pairs, Ranges, column_names, condition, flat
from ordstream.operators.shed import Frozen, shed_stage
from ordstream.pipeline.keyed_pipeline import KeyedPipeline
from ordstream.pipeline.run_options import RunOptions, StreamOptions, documented
from ordstream.pipeline.stateful import (
    MOST_FAN_OUT,
    Function,
    OnError,
    StatefulOperators,
    emission,
    key_columns,
    nonempty,
    policy,
    positive_int,
)
from ordstream.pipeline.synonyms import advice
from ordstream.plan import stages as plan
from ordstream.plan.stages import Stage
from ordstream.udf.functions import is_native

if TYPE_CHECKING:
    from ordstream.node.node import Result, Stream

__all__ = ["KeyedPipeline", "Pipeline"]


class Pipeline(StatefulOperators):
    """A chain of operators.

    A function of a row gets a tuple with an attribute per column: `row.item`, `row[0]`, `getattr(row, "a name")`, `row._asdict()`.

    Parameters
    ----------
    schema : pyarrow.Schema, or mapping of name to type
        What a tuple of the source is. Dictionary-encoded strings count as strings.

    Raises
    ------
    SchemaError
        A type that is not supported, or a name used twice.
    """

    def __init__(self, schema: Any) -> None:
        self._source = pipeline_schema(schema, "Pipeline")
        self._stages = ()

    @classmethod
    def _of(cls, source: pa.Schema, stages: tuple[Stage, ...]) -> Pipeline:
        pipeline = cls.__new__(cls)
        pipeline._source, pipeline._stages = source, stages
        return pipeline

    @property
    def schema(self) -> pa.Schema:
        """Schema of the output."""
        return self._schema

    @property
    def source_schema(self) -> pa.Schema:
        """Schema of the source."""
        return self._source

    def stages(self) -> tuple[Stage, ...]:
        """The stage table that the core runs."""
        return self._stages

    def explain(self, nodes: int | None = None, *, emit: Literal["updates", "final"] = "updates") -> str:
        """The stage table as text: what each operator does, its columns, and what limits it.

        Parameters
        ----------
        nodes : int, optional
            Show where the pipeline is cut to run in so many.
        emit : "updates" or "final"
            As for `run`; "final" shows what is combined early.

        Raises
        ------
        PlanError
            `emit="final"`, and the last operator has no answer at the end.
        """
        from ordstream.fragments import fragmenting as cut
        from ordstream.plan.final import final

        emission(emit, ("updates", "final"), "explain")
        if nodes is not None and positive_int(nodes, "explain: nodes") > 1:
            cut.check_sheds(self._stages, f"nodes={nodes}")
        shown = final(self) if emit == "final" else self
        return plan.explain(shown._source, shown._stages) if nodes is None else cut.explain(shown, nodes)

    def __repr__(self) -> str:
        chain = " -> ".join(stage.name for stage in self._stages) or "no operators"
        return f"<Pipeline {chain}; output: {', '.join(self.schema.names)}>"

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, attribute: str) -> NoReturn:
            where = advice(attribute)
            if not attribute.startswith("_") and hasattr(KeyedPipeline, attribute):
                where = f": it keeps a state per key, write .key_by(...).{attribute}(...)"
            raise AttributeError(f"a Pipeline has no {attribute!r}{where}", name=attribute, obj=self)

    # ---------------------------------------------------------------------------------------- rows

    def filter(self, predicate: Expr | Function, *, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """Keep the tuples for which the predicate is true (not false, not null).

        Parameters
        ----------
        predicate : Expr or callable
            A boolean expression, or fn(row) -> bool.
        """
        where = self._operator_name("filter", name)
        if isinstance(predicate, Expr):
            program = condition(predicate, self._schema, where)
            return self._stateless("filter", where, self._schema, {"program": program}, on_error)
        if not callable(predicate):
            raise PlanError(f"{where}: an expression or a function is needed, got {predicate!r}")
        _check_function(predicate, where, "", native=False)
        return self._stateless("python_filter", where, self._schema, {"fn": predicate}, on_error)

    def map(
        self,
        fn: Function,
        *,
        schema: Any,
        compiled: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """One output per tuple, by a function.

        Parameters
        ----------
        fn : callable
            fn(row) -> a tuple or list in the order of `schema`, or a dict with its names. With
            `compiled=True`: fn(row, emit), which emits exactly once.
        schema : pyarrow.Schema or mapping
            Of the outputs. Values must fit it: an int column takes no float.
        """
        where = self._operator_name("map", name)
        return self._function("python_rows", where, fn, schema, {"fan_out": 1, "exact": True}, compiled, on_error)

    def flat_map(
        self,
        fn: Function | Pairs | Explode,
        *,
        schema: Any = None,
        fan_out: int = 1,
        compiled: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Any number of outputs per tuple.

        Parameters
        ----------
        fn : callable, or `od.pairs(...)`, `od.explode(...)`
            fn(row) -> iterable of tuples, lists or dicts. With `compiled=True`: fn(row, emit).
        schema : pyarrow.Schema or mapping
            Of the outputs; with a function only.
        fan_out : int
            Most outputs per tuple of a compiled function.
        """
        where = self._operator_name("flat_map", name)
        if isinstance(fn, Pairs | Explode):
            if schema is not None or compiled:
                raise PlanError(f"{where}: od.pairs and od.explode take no schema and no compiled")
            output, params = fn.bind(self._schema, where)
            op = "pairs" if isinstance(fn, Pairs) else "explode"
            return self._stateless(op, where, output, params, on_error)
        bound = {"fan_out": positive_int(fan_out, f"{where}: fan_out", MOST_FAN_OUT), "exact": False}
        return self._function("python_flat", where, fn, schema, bound, compiled, on_error)

    def map_batches(
        self,
        fn: Function,
        *,
        schema: Any,
        format: Literal["numpy", "arrow"] = "numpy",
        releases_gil: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """One output per tuple, by a function of many tuples that treats each row by itself.

        How tuples are cut into batches is not defined, so the result of a row must not depend on other rows.

        Parameters
        ----------
        fn : callable
            format "numpy": fn(dict of arrays) -> dict of arrays of the same length, one per column of
            `schema`. NumPy has no nulls: a null in any input column is an error. format "arrow":
            fn(RecordBatch) -> RecordBatch.
        schema : pyarrow.Schema or mapping
            Of the outputs.
        releases_gil : bool
            The function spends its time outside the GIL: several workers may run it.
        """
        where = self._operator_name("map_batches", name)
        if format not in ("numpy", "arrow"):
            raise PlanError(f"{where}: format must be 'numpy' or 'arrow', got {format!r}")
        _check_function(fn, where, "select", native=False)
        output = pipeline_schema(_given(schema, where), f"{where}: schema")
        params = {"fn": fn, "format": format, "releases_gil": bool(releases_gil)}
        return self._stateless("python_batch", where, output, params, on_error)

    # ---------------------------------------------------------------------------------------- columns

    def select(
        self,
        *columns: str | Expr,
        where: Expr | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        **named: Any,
    ) -> Pipeline:
        """The output columns, in order: names, `expr.alias("name")`, and `name=expr`.

        Parameters
        ----------
        where : Expr, optional
            Only tuples for which it is true (not false, not null) are kept; the columns are computed for these
            alone. It sees the input's columns.
        """
        operator = self._operator_name("select", name)
        chosen = [*(_named_column(column, operator) for column in flat(columns)), *named.items()]
        program = None if where is None else condition(where, self._schema, operator)
        return self._project(operator, chosen, on_error, program)

    def with_columns(self, *columns: Expr, name: str | None = None, on_error: OnError = "fail", **named: Any) -> Pipeline:
        """All input columns, replaced in place or appended. Expressions see the input's values."""
        where = self._operator_name("with_columns", name)
        given = [*(_named_column(column, where) for column in columns), *named.items()]
        unique_names([column for column, _ in given], where)
        chosen: dict[str, Any] = {column: Column(column) for column in self._schema.names}
        return self._project(where, list((chosen | dict(given)).items()), on_error)

    def drop(self, *columns: str, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """All columns but these."""
        where = self._operator_name("drop", name)
        dropped = {column_index(self._schema, column, where) for column in flat(columns)}
        kept = [(n, Column(n)) for i, n in enumerate(self._schema.names) if i not in dropped]
        return self._project(where, kept, on_error)

    def rename(self, names: Mapping[str, str], *, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """The same columns; `names` maps old names to new ones."""
        where = self._operator_name("rename", name)
        given: Any = names
        if not isinstance(given, Mapping):
            raise PlanError(f"{where}: a mapping of old names to new ones is needed, such as {{'old': 'new'}}, got {names!r}")
        for column, new in names.items():
            column_index(self._schema, column, where)
            nonempty(new, where)
        return self._project(where, [(names.get(n, n), Column(n)) for n in self._schema.names], on_error)

    # ---------------------------------------------------------------------------------------- overload

    def shed(
        self,
        max_latency: Any,
        cost_key: str | Sequence[str],
        *,
        goal: Literal["average", "maximum"] = "average",
        most_dropped: float = 1.0,
        model: Any = None,
        frozen: Frozen | None = None,
        side_output: bool = False,
        window: int = 1024,
        tolerance: float = 0.05,
        epsilon: float = 0.05,
        delta: float = 0.1,
        seed: int = 0,
        sync_every: int = 1,
        name: str | None = None,
    ) -> Pipeline:
        """Under overload, drop tuples in front of the next operator so that queueing latency keeps to a goal (LAS).

        What a tuple will cost is estimated from the measured costs of earlier tuples with the same key. Dropped tuples are counted and
        logged (`result.shed`); results behind are then approximate, and the report says so. Latency counts from a tuple's arrival at
        the node (its send time, where `arrivals` is given) until the operator begins with it. A source that is asked for its
        tuples, such as a table, waits instead of overloading the node, so nothing waits and nothing is shed.

        Parameters
        ----------
        max_latency : str or timedelta
            The goal, "50ms".
        cost_key : str or sequence of str
            Columns that a tuple's cost depends on.
        goal : "average" or "maximum"
            What must not exceed `max_latency`: the mean over all admitted tuples, or each tuple's own latency.
        most_dropped : float
            Cap on the share of dropped tuples, 0..1; the goal gives way.
        model : ExecutionTimes or bytes, optional
            A saved cost model, `result.shed.models[name]` of an earlier run. Without one everything is admitted until the first 16 costs
            were measured, and estimates are coarse until the model is stable.
        frozen : od.Frozen, optional
            Decide without a clock (`ordstream.operators.shed`); needs a model.
        side_output : bool
            Keep the dropped tuples (`result.shed.rows[name]`), in memory until the end.
        window, tolerance, epsilon, delta, seed
            N and mu of the cost model, and size and hash functions of its sketches (`ordstream.balance.las.OperatorSide`).
        sync_every : int
            Admitted tuples between two corrections of the estimated backlog.
        """
        where = self._operator_name("shed", name)
        stage = shed_stage(
            self._schema,
            self._stages,
            where,
            max_latency=max_latency,
            cost_key=cost_key,
            goal=goal,
            most_dropped=most_dropped,
            model=model,
            frozen=frozen,
            side_output=side_output,
            window=window,
            tolerance=tolerance,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            sync_every=sync_every,
        )
        return Pipeline._of(self._source, (*self._stages, stage))

    # ---------------------------------------------------------------------------------------- state

    def key_by(self, *columns: str, buckets: int | None = None, partition: str | Ranges | EqualRanges = "hash") -> KeyedPipeline:
        """Partition the stream by key; the next operator keeps one state per key.

        Parameters
        ----------
        *columns : str
            Key columns: no lists, no decimals. Null is a key; NaN equals NaN, -0.0 equals 0.0.
        buckets : int, optional
            Number of partitions of the key space; default: chosen by the node. The output does not depend on
            it.
        partition : "hash", `od.ranges(...)` or `od.equal_ranges(...)`
            How keys are spread over buckets. The output does not depend on it.
        """
        return KeyedPipeline(self, columns, buckets, partition)

    def top_k(
        self,
        k: int,
        by: str,
        key: Sequence[str] | str | None = None,
        *,
        window: str | None = None,
        emit: Literal["updates", "final"] = "final",
        rank: str | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Of the latest row of each key, the `k` largest by `by`, ties by ascending key.

        Output: input columns, then the rank (from 1) where it is asked for. The list of the `k` best is emitted
        at the end of the stream.

        Parameters
        ----------
        k : int
            At least 1.
        by : str
            A number, date or time. Null is an error at that row; NaN sorts lowest.
        key : str or sequence of str, optional
            Default: all columns but `by` and `window`.
        window : str, optional
            An integer, date or time, ascending. A tuple whose value is larger than the one before closes the window: the list
            is emitted, and all keys are forgotten before the tuple is taken in. Null is an error at that row, and so is a value
            below the one before.
        emit : "updates" or "final"
            "updates": also an output for each tuple whose key is among the `k` best after it.
        rank : str, optional
            Name of the output column; default: "rank" with emit="updates", none with "final".
        """
        where = self._operator_name("top_k", name)
        k = positive_int(k, f"{where}: k")
        emission(emit, ("updates", "final"), where)
        by_index = column_index(self._schema, by, where)
        if not is_fixed_number(self._schema.field(by_index).type):
            raise SchemaError(f"{where}: {by!r} must be a number, date or time, it is {self._schema.field(by_index).type}")
        window_index = None if window is None else column_index(self._schema, window, where)
        if window_index is not None:
            type_ = self._schema.field(window_index).type
            if not (pat.is_integer(type_) or is_temporal(type_)):
                raise SchemaError(f"{where}: {window!r} must be an integer, date or time, it is {type_}")
        names = [n for i, n in enumerate(self._schema.names) if i not in (by_index, window_index)] if key is None else column_names(key)
        indexes = key_columns(self._schema, names, where)
        if by_index in indexes or by_index == window_index:
            raise PlanError(f"{where}: {by!r} can't be part of the key, nor the window")
        params = {"k": k, "by": by_index, "key": list(indexes), "window": window_index, "emit": emit}
        params["grows"] = self._counts_grow(by_index, set(indexes))
        rank = "rank" if rank is None and emit == "updates" else rank
        params["rank"] = rank is not None
        fields = list(self._schema)
        if rank is not None:
            fields.append(pa.field(nonempty(rank, where), pa.int64()))
            unique_names([field.name for field in fields], where)
        return self._stateful("top_k", where, pa.schema(fields), params, on_error)

    def _counts_grow(self, by: int, key: set[int]) -> bool:
        """Whether the operator before is a count by just this key, so that `by` never falls for a key. (With
        windows it falls, also inside a window of top_k that is another column.)
        """
        before = self._stages[-1] if self._stages else None
        if before is None or before.op != "count" or before.kind != "PS":
            return False
        counts = before.params["window"] is None and by == len(self._schema) - 1
        return counts and key == set(range(len(before.key)))

    # ---------------------------------------------------------------------------------------- running

    @documented(stream=False, pipeline=False)
    def run(self, data: Any, **options: Unpack[RunOptions]) -> Result:
        """Run on this machine and return all output."""
        from ordstream.node import node

        return node.run(self, data, **options)

    @documented(stream=True, pipeline=False)
    def stream(self, data: Any, **options: Unpack[StreamOptions]) -> Stream:
        """Run on this machine: an iterator of output batches as they are ready."""
        from ordstream.node import node

        return node.stream(self, data, **options)

    # ---------------------------------------------------------------------------------------- helpers

    def _stateless(self, op: str, name: str, output: pa.Schema, params: Mapping[str, Any], on_error: OnError) -> Pipeline:
        stage = Stage(name, "SL", op, self._schema, output, params=params, on_error=policy(on_error, name))
        return Pipeline._of(self._source, (*self._stages, stage))

    def _project(
        self,
        where: str,
        chosen: Sequence[tuple[str, Any]],
        on_error: OnError,
        only: BoundExpr | None = None,
    ) -> Pipeline:
        columns: list[int | BoundExpr] = []
        fields: list[pa.Field] = []
        for name, expr in chosen:
            expr = Column(expr) if isinstance(expr, str) else expr
            expr = expr.expr if isinstance(expr, Alias) else expr
            if isinstance(expr, Column):
                index = column_index(self._schema, expr.name, where)
                columns.append(index)
                fields.append(self._schema.field(index).with_name(name))
            else:
                program = lower(expr, self._schema, where)
                columns.append(program)
                fields.append(pa.field(name, program.arrow))
        if not fields:
            raise SchemaError(f"{where}: at least one column must remain")
        unique_names([field.name for field in fields], where)
        params = {"columns": columns, "where": only}
        return self._stateless("project", where, pa.schema(fields), params, on_error)

    def _function(
        self,
        op: str,
        where: str,
        fn: Function,
        schema: Any,
        bound: Mapping[str, Any],
        compiled: bool,
        on_error: OnError,
    ) -> Pipeline:
        _check_function(fn, where, "select or with_columns", native=compiled)
        output = pipeline_schema(_given(schema, where), f"{where}: schema")
        params = {"fn": fn, **bound} if compiled else {"fn": fn}
        return self._stateless("compiled" if compiled else op, where, output, params, on_error)


def _given(schema: Any, where: str) -> Any:
    if schema is None:
        raise PlanError(f"{where}: a function needs schema=, the schema of its outputs")
    return schema


def _check_function(fn: Any, where: str, instead: str, *, native: bool) -> None:
    if isinstance(fn, Expr):
        raise PlanError(f"{where}: a function is needed, got the expression {fn!r}; use {instead}")
    if is_native(fn):
        if not native:
            raise PlanError(f"{where}: {fn!r} is a compiled function; only map, flat_map and process take one, with compiled=True")
    elif not callable(fn):
        raise PlanError(f"{where}: a function is needed, got {fn!r}")


def _named_column(column: Any, where: str) -> tuple[str, Expr]:
    if isinstance(column, str):
        return column, Column(column)
    if isinstance(column, Column | Alias):
        return column.name, column
    raise SchemaError(f"{where}: {column!r} needs a name: write name={column!r} or .alias('name')")
