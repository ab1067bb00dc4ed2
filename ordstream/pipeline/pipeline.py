"""Pipeline: a chain of operators over tuples of an Arrow schema, checked and typed while it is written.

Every method returns a new pipeline; nothing runs before `run` or `stream`. Mistakes in columns and types are
`SchemaError`, mistakes in structure and arguments are `PlanError`; both are raised by the method that makes
them: what `od.ranges` and `od.every` hold by the one that takes it, whose columns it has to fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.expr import Alias, Column, Expr
from ordstream.ground.choices import flag
from ordstream.ground.duration import Duration
from ordstream.ground.types import pipeline_schema, unique_names
from ordstream.operators.arguments import (
    column_names,
    condition,
    distinct_columns,
    flat,
    key_columns,
    nonempty,
)
from ordstream.operators.assert_that import AssertThat
from ordstream.operators.best_rows import BestRows
from ordstream.operators.branch import Branch
from ordstream.operators.error_policy import OnError
from ordstream.operators.filter import Filter, FilterFunction
from ordstream.operators.inspect import Inspect
from ordstream.operators.kept_rows import bind_deduplicate
from ordstream.operators.map_batches import MapBatches
from ordstream.operators.map_rows import bind_flat_map, bind_map
from ordstream.operators.operator import Operator
from ordstream.operators.pairs import Explode, ListFunction, Pairs
from ordstream.operators.partition import EqualRanges, Ranges
from ordstream.operators.project import Project
from ordstream.operators.reorder import Late, Reorder
from ordstream.operators.sample import Sample
from ordstream.operators.shed import Frozen, Shed
from ordstream.operators.top_k import TopK
from ordstream.pipeline.joins import Joins
from ordstream.pipeline.keyed_pipeline import KeyedPipeline
from ordstream.pipeline.runs import Runs
from ordstream.pipeline.side_outputs import SideOutputs
from ordstream.pipeline.stateful import Function, StatefulOperators
from ordstream.pipeline.synonyms import advice
from ordstream.plan.plan import Plan

__all__ = ["KeyedPipeline", "Pipeline"]


class Pipeline(Joins, Runs, SideOutputs, StatefulOperators):
    """A chain of operators.

    A function of a row gets a tuple with an attribute per column: `row.item`, `row["a name"]`, `row[0]`,
    `row._asdict()`. Where its code uses the row as `row.item` and `row["item"]` and in no other way, it gets
    an object that has only the columns which it names: making Python's values of the others takes most of
    the time.

    Every operator has a `name`, used in errors and reports (default: the operation and its position,
    "filter_1"), and an `on_error` policy: "fail" stops the run at the failing tuple; "skip" drops it, leaves
    the state as it was, and reports it; "dead_letter" does so and gives the tuple, with its error, as a
    second output (`side_output`); `od.retry(n)` calls a function again first.

    Parameters
    ----------
    schema : pyarrow.Schema, mapping of name to type, data or files with columns, Spark's DataFrame or schema
        What a tuple of the source is; nothing else is taken of data. Dictionary-encoded strings count as
        strings. Spark's timestamps have the time zone of its session.
    source : str, optional
        Name of the source. Pipelines of several named sources come together by `od.union`.

    Raises
    ------
    SchemaError
        A type that is not supported, or a name used twice.
    """

    def __init__(self, schema: Any, *, source: str | None = None) -> None:
        name = None if source is None else nonempty(source, "Pipeline: source")
        self._plan = Plan(pipeline_schema(schema, "Pipeline"), name=name)

    @classmethod
    def of(cls, plan: Plan) -> Pipeline:
        """A pipeline that goes on behind `plan`."""
        pipeline = cls.__new__(cls)
        pipeline._plan = plan
        return pipeline

    def _then(self, operator: Operator) -> Pipeline:
        return Pipeline.of(self._plan.then(operator))

    @property
    def plan(self) -> Plan:
        """What the methods so far have made."""
        return self._plan

    @property
    def schema(self) -> pa.Schema:
        """Schema of the output."""
        return self._plan.output

    @property
    def source_schema(self) -> pa.Schema:
        """Schema of the source; of several, that of the first one."""
        return self._plan.source

    def __repr__(self) -> str:
        chain = " -> ".join(operator.name for operator in self._plan.operators) or "no operators"
        return f"<Pipeline {chain}; output: {', '.join(self.schema.names)}>"

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, attribute: str) -> NoReturn:
            columns = () if attribute == "_plan" else self._plan.output.names
            where = advice(attribute, columns, dir(type(self)))
            if not attribute.startswith("_") and hasattr(KeyedPipeline, attribute):
                where = f": it keeps a state per key, write .key_by(...).{attribute}(...)"
            raise AttributeError(f"a Pipeline has no {attribute!r}{where}", name=attribute, obj=self)

    # ---------------------------------------------------------------------------------------- rows

    def filter(
        self, predicate: Expr | Function, *more: Expr, name: str | None = None, on_error: OnError = "fail"
    ) -> Pipeline:
        """Keep the tuples for which the predicate is true (not false, not null).

        Parameters
        ----------
        predicate : Expr or callable
            A boolean expression, or fn(row) -> bool.
        *more : Expr
            Others that must be true as well.
        """
        site = self._site("filter", name, on_error)
        for one in more:
            if not isinstance(predicate, Expr) or not isinstance(one, Expr):
                raise PlanError(f"{site.name}: several predicates must be expressions, got {one!r}")
            predicate = predicate & one
        if isinstance(predicate, Expr):
            return self._then(Filter.bind(site, predicate))
        if not callable(predicate):
            raise PlanError(f"{site.name}: od.col('x') > 1 or a function is needed, got {predicate!r:.200}")
        return self._then(FilterFunction.bind(site, predicate))

    def branch(
        self, predicate: Expr, *, name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Pipeline, Pipeline]:
        """The tuples for which the predicate is true, and the others (false or null): two pipelines.

        Both go on from this one, in one run: `od.union` brings them together again, in this one's order, and
        `run(outputs=...)` gives both.

        Parameters
        ----------
        predicate : Expr
            A boolean expression.
        """
        plan = self._plan.then(Branch.bind(self._site("branch", name, on_error), predicate))
        return Pipeline.of(plan), Pipeline.of(plan.at_port(1))

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
        compiled : bool
            Compile `fn` with Numba: it runs without the GIL, and arithmetic is the machine's
            (docs/ordering.md, promise 1).
        """
        return self._then(bind_map(self._site("map", name, on_error), fn, schema, compiled=compiled))

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
        compiled : bool
            As for `map`. Not with `od.pairs` and `od.explode`.
        """
        site = self._site("flat_map", name, on_error)
        if isinstance(fn, ListFunction):
            if schema is not None or compiled:
                raise PlanError(f"{site.name}: od.pairs and od.explode take no schema and no compiled")
            return self._then(fn.bind(site))
        return self._then(bind_flat_map(site, fn, schema, fan_out, compiled=compiled))

    def map_batches(
        self,
        fn: Function,
        *,
        schema: Any,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
        releases_gil: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """One output per tuple, by a function of many tuples that treats each row by itself.

        How tuples are cut into batches is not defined, so the result of a row must not depend on other rows.

        Parameters
        ----------
        fn : callable
            fn(tuples) -> their outputs, as many, both in the form that `format` says.
        schema : pyarrow.Schema or mapping
            Of the outputs.
        format : "numpy", "arrow", "pandas" or "polars"
            "numpy": a dict of arrays, one per column (of `schema`, where it is the output). NumPy has no
            nulls: one in any input column, or among the numbers of a list, is an error. "arrow": a
            RecordBatch. "pandas", "polars": a DataFrame; NaN in pandas' is a null.
        releases_gil : bool
            The function spends its time outside the GIL: several workers may run it.
        """
        site = self._site("map_batches", name, on_error)
        return self._then(MapBatches.bind(site, fn, schema, format, releases_gil))

    def assert_that(
        self,
        predicate: Expr,
        message: str | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Tuples as they are, and an error (ValueError) at one for which the predicate is not true. Output:
        input columns.

        Parameters
        ----------
        predicate : Expr
            A boolean expression; null is not true.
        message : str, optional
            Of the error; default: the predicate. Some 150 bytes of it are shown.
        """
        return self._then(AssertThat.bind(self._site("assert_that", name, on_error), predicate, message))

    def inspect(self, fn: Function, *, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """Tuples as they are, each shown to a function on its way: `inspect(print)`. Output: input columns.

        Parameters
        ----------
        fn : callable
            fn(row); what it returns is not looked at. If it raises, that is an error at the tuple. In each
            process it is called for one tuple at a time. Tuples that a later error keeps back may have been
            shown.
        """
        return self._then(Inspect.bind(self._site("inspect", name, on_error), fn))

    def sample(self, fraction: float, seed: int = 0, *, name: str | None = None) -> Pipeline:
        """About so many of the tuples: those whose serial has a hash in the share. Output: input columns.

        The choice is the same in every run; several nodes or processes refuse it, as they count serials each
        for itself. Tuples that one tuple of the source caused are kept or dropped
        together.

        Parameters
        ----------
        fraction : float
            0 to 1.
        seed : int
            Another seed, another choice.
        """
        return self._then(Sample.bind(self._site("sample", name, "fail"), fraction, seed))

    # ---------------------------------------------------------------------------------------- columns

    def select(
        self,
        *columns: str | Expr,
        where: Expr | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        **named: Any,
    ) -> Pipeline:
        """The output columns, in order: names, `expr.alias("name")` (`columns`), and `name=expr` (`named`).

        `y="x"` is the column x, a text is `od.lit("x")`; a column called "name" is `expr.alias("name")`.

        Parameters
        ----------
        where : Expr, optional
            Only tuples for which it is true (not false, not null) are kept; the columns are computed for
            these alone. It sees the input's columns.
        """
        site = self._site("select", name, on_error)
        chosen = [*(_named_column(column, site.name) for column in flat(columns)), *named.items()]
        bound = None if where is None else condition(where, site.schema, site.name)
        return self._then(Project.bind(site, chosen, bound))

    def with_columns(
        self, *columns: Expr, name: str | None = None, on_error: OnError = "fail", **named: Any
    ) -> Pipeline:
        """All input columns, replaced in place or appended by `columns` (`expr.alias("name")`) and `named`
        (`name=expr`, as in `select`). Expressions see the input's values.
        """
        site = self._site("with_columns", name, on_error)
        given = [*(_named_column(column, site.name) for column in flat(columns)), *named.items()]
        unique_names([column for column, _ in given], site.name)
        chosen: dict[str, Any] = {column: Column(column) for column in site.schema.names}
        return self._then(Project.bind(site, list((chosen | dict(given)).items())))

    def drop(self, *columns: str, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """All columns but `columns`."""
        site = self._site("drop", name, on_error)
        dropped = distinct_columns(site.schema, flat(columns), site.name)
        kept = [(n, Column(n)) for i, n in enumerate(site.schema.names) if i not in dropped]
        return self._then(Project.bind(site, kept))

    def rename(
        self, names: Mapping[str, str], *, name: str | None = None, on_error: OnError = "fail"
    ) -> Pipeline:
        """The same columns; `names` maps old names to new ones."""
        site = self._site("rename", name, on_error)
        given: Any = names
        if not isinstance(given, Mapping):
            raise PlanError(
                f"{site.name}: a mapping of old names to new ones is needed, such as {{'old': 'new'}}, got "
                f"{names!r}"
            )
        columns = distinct_columns(site.schema, list(names), site.name)
        new = dict(zip(columns, (nonempty(one, site.name) for one in names.values()), strict=True))
        chosen = [(new.get(i, n), Column(n)) for i, n in enumerate(site.schema.names)]
        return self._then(Project.bind(site, chosen))

    def reorder(
        self,
        time: str,
        *,
        slack: Duration,
        late: Late = "raise",
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Put tuples in the order of a time column that they miss by a slack at most (K-slack).

        A tuple leaves when one comes that is later than it by `slack` or more, or at the end of the stream;
        those of one time leave in the order in which they came. Windows and timers behind it, on its time,
        go by the clock that leaves it, on every branch: the latest time that came in, less the slack.

        Parameters
        ----------
        time : str
            An integer, timestamp or date column. Null is an error at that row.
        slack : int, str or timedelta
            "5s", a timedelta, or a number in the column's unit.
        late : "raise", "drop", "adjust" or "side_output"
            What becomes of a tuple more than `slack` before the latest one. "raise": an error at that row.
            "drop": it is dropped and counted, as `on_error="skip"` does (`skipped` in the report).
            "side_output": it leaves as it came, by a second output of the run (`side_output`), counted as
            `rejected`. Both do so with a null time, too. "adjust": it gets the earliest time that is not
            late, the latest less `slack`, and is counted as `adjusted`.
        """
        return self._then(Reorder.bind(self._site("reorder", name, on_error), time, slack, late))

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
        """Under overload, drop tuples in front of the next operator so that queueing latency keeps to a goal
        (LAS).

        What a tuple will cost is estimated from the measured costs of earlier tuples with the same key.
        Dropped tuples are counted and logged (`result.shed`); results behind are then approximate, and the
        report says so. Latency counts from a tuple's arrival at the node (its send time, where `arrivals` is
        given) until the operator begins with it. A source that is asked for its tuples, such as a table,
        waits instead of overloading the node. But its rows arrive a chunk at a time and wait for each other,
        so a goal shorter than a chunk takes still sheds.

        Parameters
        ----------
        max_latency : str or timedelta
            The goal, "50ms".
        cost_key : str or sequence of str
            Columns that a tuple's cost depends on.
        goal : "average" or "maximum"
            What must not exceed `max_latency`: the mean over all admitted tuples, or each tuple's own
            latency.
        most_dropped : float
            Cap on the share of dropped tuples, 0..1; the goal gives way.
        model : ExecutionTimes or bytes, optional
            A saved cost model, `result.shed.models[name]` of an earlier run. Without one everything is
            admitted until the first 16 costs were measured, and estimates are coarse until the model is
            stable.
        frozen : od.Frozen, optional
            Decide without a clock (`ordstream.operators.shed`); needs a model.
        side_output : bool
            Keep the dropped tuples (`result.shed.rows[name]`), in memory until the end.
        window, tolerance, epsilon, delta, seed
            N and mu of the cost model, and size and hash functions of its sketches
            (`ordstream.balance.las.OperatorSide`).
        sync_every : int
            Admitted tuples between two corrections of the estimated backlog; 0: only after a change of the
            cost model. Here a correction costs no message, so each tuple brings one.
        """
        bound = Shed.bind(
            self._site("shed", name, "fail"),
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
        return self._then(bound)

    # ---------------------------------------------------------------------------------------- state

    def key_by(
        self, *columns: str, buckets: int | None = None, partition: str | Ranges | EqualRanges = "hash"
    ) -> KeyedPipeline:
        """Partition the stream by key; the next operator keeps one state per key.

        Parameters
        ----------
        *columns : str
            Key columns: no lists. Null is a key; NaN equals NaN, -0.0
            equals 0.0.
        buckets : int, optional
            Number of partitions of the key space; default: chosen by the node. The output does not depend on
            it.
        partition : "hash", `od.ranges(...)` or `od.equal_ranges(...)`
            How keys are spread over buckets. The output does not depend on it.
        """
        return KeyedPipeline(self, columns, buckets, partition)

    def deduplicate(
        self,
        by: str | Sequence[str] | None = None,
        within: Duration | None = None,
        keep: Literal["first", "last"] = "first",
        *,
        time: str | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """One of the tuples that are equal in some columns. Output: input columns.

        Parameters
        ----------
        by : str or sequence of str, optional
            Default: all columns.
        within : int, str or timedelta, optional
            Only tuples that come at most so long after the first of them are duplicates; the next one begins
            anew. In the unit of `time`, at least 0.
        keep : "first" or "last"
            "first": at once. "last": when a tuple with equal columns, or a mark of the clock, shows that
            none can follow, with its order tag, and at the end of the stream by ascending `by`; without
            `within` at the end only.
        time : str
            The time column of `within`: an integer, timestamp or date, ascending among equal tuples; null is
            an error at that row, and so is a time before that of the tuple before. Where it is the clock of
            the run (docs/ordering.md) it must ascend along the source, whose marks at multiples of `within`,
            or those of `punctuate=`, end spans: such tuples are forgotten.
        """
        site = self._site("deduplicate", name, on_error)
        columns = self.schema.names if by is None else column_names(by, site.name)
        where = f"{site.name}, without by= all columns are compared" if by is None else site.name
        keyed = replace(site, key=key_columns(site.schema, columns, where))
        return self._then(bind_deduplicate(keyed, within, keep, time))

    def top_k(
        self,
        k: int,
        by: str,
        key: Sequence[str] | str | None = None,
        *,
        descending: bool = True,
        window: str | None = None,
        emit: Literal["updates", "final"] = "final",
        rank: str | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Of the latest row of each key, the `k` largest by `by`, ties by ascending key. With key=() of all
        rows: each counts, and of equal ones those that came first are better.

        Output: input columns, then the rank (from 1) where it is asked for. The list of the `k` best is
        emitted at the end of the stream. The state is a row per key; with key=() it is the `k` best.

        Parameters
        ----------
        k : int
            At least 1.
        by : str
            A number, date or time. Null is an error at that row; NaN sorts lowest, with key=() last.
        key : str or sequence of str, optional
            Default: all columns but `by` and `window`. (): there is none.
        descending : bool
            False, with key=(): those with the smallest `by`, smallest first.
        window : str, optional
            An integer, date or time, ascending. A tuple whose value is larger than the one before closes the
            window: the list is emitted, and all keys are forgotten before the tuple is taken in. Null is an
            error at that row, and so is a value below the one before.
        emit : "updates" or "final"
            "updates": also an output for each tuple whose key is among the `k` best after it.
        rank : str, optional
            Name of the output column; default: "rank" with emit="updates", none with "final".
        """
        site = self._site("top_k", name, on_error)
        if isinstance(key, Sequence) and not isinstance(key, str) and not key:
            if window is not None:
                raise PlanError(f"{site.name}: key=() lists the best of all rows at the end: no window")
            return self._then(BestRows.bind(site, k, by, descending=descending, emit=emit, rank=rank))
        if not flag(descending, f"{site.name}: descending"):
            raise PlanError(
                f"{site.name}: descending=False ranks rows, not the latest ones of keys: say key=(), or put "
                "key_by(...) in front, or rank by a column that holds -by, with_columns(low=-od.col(by))"
            )
        return self._then(TopK.bind(site, k, by, key, window=window, emit=emit, rank=rank))


def _named_column(column: Any, where: str) -> tuple[str, Expr]:
    if isinstance(column, str):
        return column, Column(column)
    if isinstance(column, Column | Alias):
        return column.name, column
    if isinstance(column, Mapping):
        raise SchemaError(f"{where}: a mapping is written behind two stars, **{column!r}")
    raise SchemaError(f"{where}: {column!r} needs a name: write name={column!r} or .alias('name')")
