"""Stateful operators: what `Pipeline` (one state for all) and `KeyedPipeline` (one state per key) share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, Self, TypeVar

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.expressions.expr import Expr
from ordstream.ground.duration import Duration
from ordstream.operators.aggregate import Aggregate, Scan
from ordstream.operators.aggregation import Aggregation
from ordstream.operators.arguments import nonempty
from ordstream.operators.assert_ordered import AssertOrdered
from ordstream.operators.computed import ComputedColumns
from ordstream.operators.count import Count
from ordstream.operators.error_policy import OnError, policy
from ordstream.operators.forward_fill import ForwardFill
from ordstream.operators.kept_rows import Head, Lead, ShownColumns, Tail
from ordstream.operators.lag import Lag
from ordstream.operators.operator import Operator, Site
from ordstream.operators.process import bind_process
from ordstream.operators.punctuation import Every
from ordstream.operators.window_kinds import WindowKind
from ordstream.pipeline.running import RunningOperators
from ordstream.pipeline.synonyms import SUBSCRIPT
from ordstream.pipeline.windowed import Windowed
from ordstream.plan.plan import Plan
from ordstream.plan.way import way

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline

Function = Callable[..., Any]
BindAggregating = Callable[[Site, Sequence[Any], Mapping[str, Any]], Operator]

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")


class StatefulOperators(RunningOperators):
    """Stateful operators that work with a key (`KeyedPipeline`) and without one (`Pipeline`: one state for
    all).
    """

    if not TYPE_CHECKING:  # for a type checker it is a mistake

        def __getitem__(self, key: Any) -> NoReturn:
            raise TypeError(f"{SUBSCRIPT}; got [{key!r:.100}]")

    def pipe(
        self,
        function: Callable[Concatenate[Self, Parameters], Made],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Made:
        """`function(self, *args, **kwargs)`: a function that builds a part of a pipeline, in the chain.

        `p.pipe(cleaned, by="user").key_by("user")` is `cleaned(p, by="user").key_by("user")`.
        """
        if not callable(function):
            raise PlanError(f"pipe takes a function of the pipeline, got {function!r:.200}")
        return function(self, *args, **kwargs)

    _plan: Plan
    _key: tuple[int, ...] = ()
    _partition: Any = "hash"
    _buckets: int | None = None

    def count(
        self,
        column: str = "count",
        *,
        window: Duration | None = None,
        time: str | None = None,
        above: int | None = None,
        emit: Literal["updates", "final"] = "updates",
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Number of tuples per key. Output: key columns, `window` (with a window), count.

        Parameters
        ----------
        column : str
            Name of the output column.
        window : int, str or timedelta, optional
            Length of tumbling windows, in the unit of the time column. A tuple of another window than the
            key's last one starts the key's count again. The output column `window` is the window's start.
        time : str
            The time column of `window`: an integer, timestamp or date, ascending in each key (without
            key_by: in all tuples). Null is an error at that row, and so is a time before that of the row
            before.
        above : int, optional
            Only counts of more than this are emitted.
        emit : "updates" or "final"
            An output per tuple with the count so far, or one per key at the end of the stream, by ascending
            key. "final" goes with no window: of a key's windows only the last would be left.
        """
        site = self._site("count", name, on_error)
        return self._then(Count.bind(site, column, window=window, time=time, above=above, emit=emit))

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
            `total=od.sum("x")`, or `od.sum("x").alias("name")` where the name can't be a keyword. Of a
            column or an expression: `od.sum(od.col("x") * 2)`.
        """
        return self._aggregated(self._site("scan", name, on_error), Scan.bind, named, aggregations)

    def lag(
        self,
        columns: ShownColumns,
        n: int = 1,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each tuple with values of the tuple n before it of the same key (SQL's LAG, Polars' `shift`).
        Output: input columns, then these.

        `key_by("user").lag({"previous_ts": "ts"})`: the time since a user's last event is then
        `od.col("ts") - od.col("previous_ts")`, a duration (or `diff`). A key's first n tuples have nulls; a
        null of the tuple before is one too.

        Parameters
        ----------
        columns : str, sequence of str, or mapping of output name to column
            Of any type. Without a mapping the output columns have their names with "_lag".
        n : int
            At least 1.
        """
        return self._then(Lag.bind(self._site("lag", name, on_error), columns, n))

    def lead(
        self,
        columns: ShownColumns,
        n: int = 1,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each tuple with values of the tuple n behind it of the same key (SQL's LEAD). Output: input
        columns, then these.

        A tuple is given when the one n behind it comes, with that one's order tag; the last n of each key at
        the end of the stream, by ascending key, with nulls. So tuples of different keys come in the order in
        which they are complete.

        Parameters
        ----------
        columns : str, sequence of str, or mapping of output name to column
            Of any type. Without a mapping the output columns have their names with "_lead".
        n : int
            At least 1.
        """
        return self._then(Lead.bind(self._site("lead", name, on_error), columns, n))

    def head(self, n: int = 5, *, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """The first `n` tuples, of each key. Output: input columns.

        Without key_by the stream is read to its end all the same.
        """
        return self._then(Head.bind(self._site("head", name, on_error), n))

    def tail(self, n: int = 5, *, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """The last `n` tuples, of each key, at the end of the stream, by ascending key. Output: input
        columns.
        """
        return self._then(Tail.bind(self._site("tail", name, on_error), n))

    def forward_fill(self, *columns: str, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """Each tuple with the last value of its key in the place of a null. Output: input columns.

        `key_by("sensor").forward_fill("temperature")`: nulls stay while a key has had no value.

        Parameters
        ----------
        *columns : str
            Numbers, bools, strings, binaries, dates and times.
        """
        return self._then(ForwardFill.bind(self._site("forward_fill", name, on_error), columns))

    def assert_ordered(self, *columns: str, name: str | None = None, on_error: OnError = "fail") -> Pipeline:
        """Tuples as they are, and an error at one that comes before the tuple before it. Output: input
        columns.

        Directly behind the source it checks the source: `od.Pipeline(schema).assert_ordered("ts")`. Behind
        `key_by` each key is checked by itself. A pipeline keeps the order that it is given: it can check an
        order, not make one.

        Parameters
        ----------
        *columns : str
            Numbers, dates and times; tuples ascend by the first, those equal in it by the second, and so on.
            Equal tuples may follow each other. Null comes before all values, NaN behind them, as in Spark.
        on_error : "fail" or "skip"
            "skip" drops such a tuple; the next one is compared with the last that stayed.
        """
        return self._then(AssertOrdered.bind(self._site("assert_ordered", name, on_error), columns))

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
        bind = partial(Aggregate.bind, emit=emit)
        return self._aggregated(self._site("aggregate", name, on_error), bind, named, aggregations)

    def window(
        self, kind: WindowKind, time: str | None = None, *, fill_gaps: bool | Duration = False
    ) -> Windowed:
        """Windows, for the aggregations that follow: `.window(od.tumbling("1m"), time="ts").aggregate(...)`.

        What is closed is forgotten. Windows close by the clock, where the time is a column of the source or
        computed of some by expressions: each tuple of the source moves it, also one that a filter drops, and
        it must ascend along the source. The first window of a pipeline chooses the clock. Behind `reorder`
        its time is a clock. Windows on another column close at their key's next tuple.

        Parameters
        ----------
        kind : WindowKind
            `od.tumbling(length)`, `od.hopping(length, every=...)`, `od.calendar("1mo")`,
            `od.session(timeout)`, `od.rolling(period)` or `od.rows(n)`.
        time : str
            An integer, timestamp or date column, ascending in each key (without key_by: in all tuples). Null
            is an error at that row, and so is a time before that of the row before. `od.rows` needs none.
        fill_gaps : bool, int, str or timedelta
            Also the windows without rows between two of a key: counts and sums are 0, lists empty, other
            values null (`forward_fill` behind it carries them on). They come in front of their key's next
            window, with its order tag, so not in the order of `end` among several keys. For windows side by
            side, and hopping ones. A gap of more than 1,048,576 is an error. With True no key is forgotten.
            With a length of time, "1d", a window that begins more than that behind the one before has none
            in front, and the clock forgets a key that has been silent for so long.
        """
        return Windowed(kind, time, self._schema, self._site, self._aggregated, fill_gaps)

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
        version: str | int | None = None,
        timer: str | None = None,
        on_timer: Function | None = None,
        clock: Every | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """A function of each tuple and the state of its key.

        Parameters
        ----------
        fn : callable
            fn(row, state, emit): `row.column` reads, `state.field` (or `state["field"]`) reads and writes,
            `emit(*values)` outputs one tuple in the order of `schema`; `emit` of one dict, or of one list or
            tuple where there are several columns, does so too, but not with `compiled`. It returns nothing,
            or `od.FORGET`: the state of the key is dropped, timer and all, and the key's next tuple gets a
            new one. `on_time`, `on_timer` and `on_flush` may return it, too. Not with `compiled`: there a
            key whose fields are all zero is as a new one, and its memory is used again where there is
            neither `on_time` nor `on_flush`.
        schema : pyarrow.Schema or mapping
            Of the outputs.
        state : mapping, pyarrow.Schema, Codec or None
            Declared fields: scalars, and lists of them (each starts as the zero of its type and never is
            null; a list may have None in it, is read as a tuple, and a new one is assigned), or
            `od.codec(...)`, or None: any object made by `init`, which cannot be snapshotted or migrated.
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
            Compile `fn` with Numba; needs declared state. Dates and times are ints of their unit then, and
            arithmetic is the machine's (docs/ordering.md, promise 1).
        version : str or int, optional
            Of what the functions and the codec make of a state. A stored state (a checkpoint) is taken in
            only where its version is this one; a function itself is not compared. Give another one when old
            states no longer fit.
        timer : str, optional
            A declared field with the time of the key's timer; zero: none. An integer, or a timestamp or
            date of the clock's unit, with a zone where the clock has one.
            `fn` sets it, behind its tuple's time, or takes it back: `state.due = datetime(1970, 1, 1)`.
            As zero is none, a timer due at exactly 0 (1970-01-01, or 0 of a relative time) never fires.
        on_timer : callable, optional
            on_timer(key, state, at, emit) at the first mark of the clock at or after the timer's time `at`,
            by (at, key), in front of the tuple that shows the mark. The field is zero again then, and may be
            set, behind `at`: `state.due = at + 60` fires each minute, at this mark again where that is not
            behind it. What is left at the end of the stream does not fire; `on_flush` sees it.
        clock : od.every(...), optional
            With a timer: the column with the time of the clock, and how often that is looked at. No
            `punctuate=` is needed.
        """
        bound = bind_process(
            self._site("process", name, on_error),
            fn,
            schema=schema,
            state=state,
            init=init,
            fan_out=fan_out,
            on_flush=on_flush,
            on_time=on_time,
            compiled=compiled,
            version=version,
            timer=timer,
            on_timer=on_timer,
            clock=clock,
        )
        return self._then(bound)

    # ---------------------------------------------------------------------------------------- shared by both

    @property
    def _schema(self) -> pa.Schema:
        return self._plan.output

    def _site(self, op: str, name: str | None, on_error: OnError) -> Site:
        """Where the next operator is put. `op`: what it is called where it has no name of its own."""
        operators = self._plan.operators
        if isinstance(name, Expr | Aggregation):
            raise PlanError(
                f"{op}: name= is the operator's name; an output column called 'name' is written "
                "(...).alias('name')"
            )
        if op in ("select", "with_columns") and isinstance(name, str) and name in self._schema.names:
            raise PlanError(
                f"{op}: name={name!r} would name the operator, and there is a column {name!r}: an output "
                f"column called 'name' is written od.col({name!r}).alias('name'); the operator needs a name "
                "that no column has"
            )
        chosen = f"{op}_{len(operators) + 1}" if name is None else nonempty(name, op)
        if any(operator.name == chosen for operator in operators):
            raise PlanError(f"two operators are named {chosen!r}; names must be unique in a pipeline")
        checked = policy(on_error, chosen)
        return Site(
            self._schema, chosen, self._key, self._partition, self._buckets, checked.on_error,
            way(self._plan), checked.rejects, checked.retries, name is None,
        )  # fmt: skip

    def _aggregated(
        self, site: Site, bind: BindAggregating, named: Sequence[Aggregation], keywords: Mapping[str, Any]
    ) -> Pipeline:
        """The pipeline with one more operator, which `bind` makes of its site and its aggregations. Their
        expressions are columns in front of it, and where it shows its input, no longer behind it.
        """
        computed = ComputedColumns(site, named, keywords)
        if not computed:
            return self._then(bind(site, named, keywords))
        front = computed.front(self._plan.free_name(f"{site.name}: computed"))
        operator = bind(computed.behind(front), *computed.over_columns())
        made = self._then(front)._then(operator)
        dropped = computed.dropped(operator, made.plan.free_name(f"{site.name}: shown"))
        return made if dropped is None else made._then(dropped)

    def _then(self, operator: Operator) -> Pipeline:
        """The pipeline with one more operator."""
        raise NotImplementedError
