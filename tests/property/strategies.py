"""Random pipelines, inputs and run options for the property tests.

A `Case` is a schema, a chain of operators written as Python text (so that a failing example can be read, and
pasted into a script), the rows of the source, and the options of the run. Every chain is well-typed by
construction: an operator is drawn for the schema that the ones before it leave.

Operators that rely on time refuse rows that run backwards. So one column of most sources is a *clock*: its
values are sorted, nulls stay where they are. A chain knows which of its columns still ascend
(`Chain.clocks`); where an operator needs a time it mostly takes one of these, and now and then any, where
the first row that runs backwards must be the same error on both sides.
"""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st
from property import functions
from property.drawn_expressions import Expressions, named, plain_number
from property.drawn_joins import Joins, table_for
from property.drawn_options import can_be_time, options, with_time
from property.drawn_rows import RAISES, RowOperators
from property.drawn_values import batches, comparable, schemas, tables, type_text
from property.drawn_windows import Windows, agreed, can_be_listed, few_gaps, gathered_calls

import ordstream as od
from ordstream.ground.packed_types import is_packed, is_packed_list
from ordstream.ground.types import is_counted, is_fixed_number, is_list, is_temporal
from ordstream.operators.time_joins import Sides

#: What the text of a pipeline may name.
NAMESPACE: dict[str, Any] = {
    "od": od,
    "pa": pa,
    "f": functions,
    "table_for": table_for,
    "few_gaps": few_gaps,
    "Sides": Sides,
    "nan": math.nan,
    "inf": math.inf,
    "datetime": datetime,
    "Decimal": decimal.Decimal,
}

# ------------------------------------------------------------------------------------------------ operators


@dataclass
class Chain(Windows, RowOperators, Joins):
    """A pipeline under construction, and its text."""

    draw: Any
    pipeline: Any
    texts: list[str] = field(default_factory=list)
    clocks: frozenset[str] = frozenset()  # columns that ascend
    latest: str = ""  # of what was computed, or put in order, last
    rejected: list[Chain] | None = None  # second outputs, where operators may have some

    @property
    def schema(self) -> pa.Schema:
        return self.pipeline.schema

    def add(self, text: str) -> None:
        self.pipeline = eval(f"pipeline{text}", NAMESPACE | {"pipeline": self.pipeline})
        self.texts.append(text)
        self.keep_rejected()
        self.clocks = still_ascending(self.pipeline.plan.operators[-1], self.clocks)

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def policy(self) -> str:
        return self.pick(["", "", ", on_error='skip'"])

    def time(self, able: list[str]) -> str:
        """One of some columns, mostly one that ascends, or the latest clock."""
        if self.latest in able and self.draw(st.integers(0, 4)):
            return self.latest
        clocks = [name for name in able if name in self.clocks]
        return self.pick(clocks if clocks and self.draw(st.integers(0, 9)) else able)

    def fresh(self, base: str) -> str:
        """A column name that the schema does not have."""
        while base in self.schema.names:
            base += "_"
        return base

    # -------------------------------------------------------------------------------------- stateless

    def filter(self) -> None:
        self.add(f".filter({Expressions(self.draw, self.schema).boolean()}{self.policy()})")

    def filter_function(self) -> None:
        function = self.looking(f"f.keeps({self.pick((2, 3, 50))}, {self.raises()})")
        self.add(f".filter({function}{self.policy_of_function()})")

    def select(self) -> None:
        kept = self.draw(st.lists(st.sampled_from(self.schema.names), max_size=4, unique=True))
        expressions = Expressions(self.draw, self.schema)
        parts = [repr(name) for name in kept]
        for base in ["p", "q"][: self.draw(st.integers(0 if kept else 1, 2))]:
            name = self.fresh(base)
            parts.append(f"{expressions.column()}.alias({name!r})")
        where = self.pick(("", f", where={expressions.boolean()}"))
        self.add(f".select({', '.join(parts)}{where}{self.policy()})")

    def with_columns(self) -> None:
        expressions = Expressions(self.draw, self.schema)
        name = self.pick([*self.schema.names, self.fresh("z")])
        self.add(f".with_columns({expressions.column()}.alias({name!r}){self.policy()})")

    def rename(self) -> None:
        name = self.pick(self.schema.names)
        self.add(f".rename({ {name: self.fresh('renamed')}!r})")

    def drop(self) -> None:
        if len(self.schema) > 1:
            self.add(f".drop({self.pick(self.schema.names)!r})")

    def map(self) -> None:
        schema = "{'w': int, 't': str, 'f': float}"
        function = self.looking(f"f.maps({self.pick(('tuple', 'list', 'dict'))!r}, {self.raises()})")
        self.add(f".map({function}, schema={schema}{self.policy_of_function()})")

    def misfit(self) -> None:
        """A map whose outputs do not always fit: int8, and a column without nulls."""
        fields = ("'w', pa.int8()", "'t', pa.string()", "'f', pa.float32(), False")
        schema = f"pa.schema([{', '.join(f'pa.field({text})' for text in fields)}])"
        self.add(f".map(f.maps('tuple'), schema={schema}{self.policy_of_function()})")

    def flat_map(self) -> None:
        schema = "{'w': pa.int32(), 't': pa.string()}"
        function = self.looking(f"f.flat_maps({self.pick((1, 2, 5))}, {self.raises()})")
        self.add(f".flat_map({function}, schema={schema}{self.policy_of_function()})")

    def map_batches(self) -> None:
        if self.draw(st.booleans()):
            expressions = Expressions(self.draw, self.schema)
            a, b = expressions.integer(1), expressions.float(1)
            self.add(f".select(a={a}.coalesce(0), b={b}.coalesce(0.0), on_error='skip')")
            function, schema, form = "f.numpy_batch", "{'s': float, 'a': int}", "numpy"
        else:
            first = self.schema.field(0)
            if self.schema.field(0).name == "n":
                return
            named = "pa.schema([pa.field({!r}, {}), pa.field('n', pa.bool_())])"
            function, schema, form = (
                "f.arrow_batch",
                named.format(first.name, type_text(first.type)),
                "arrow",
            )
        gil = self.pick(("", ", releases_gil=True"))
        call = f"{function}({self.raises()})"
        self.add(f".map_batches({call}, schema={schema}, format={form!r}{gil}{self.policy_of_function()})")

    def lists(self) -> None:
        column = self.pick(named(self.schema, is_list_of_some_kind))
        type_ = self.schema.field(column).type
        carry = self.draw(st.lists(st.sampled_from(self.schema.names), max_size=2, unique=True))
        if not is_packed(type_) and self.draw(st.booleans()):
            names = f"{self.fresh('left')!r}, {self.fresh('right')!r}"
            item = type_.value_type
            anchor = ", anchor=1" if plain_number(item) and self.draw(st.booleans()) else ""
            self.add(f".flat_map(od.pairs({column!r}, {names}, carry={carry!r}{anchor}){self.policy()})")
        else:
            self.add(
                f".flat_map(od.explode({column!r}, {self.fresh('item')!r}, carry={carry!r}){self.policy()})"
            )

    def compiled_rows(self) -> None:
        self.prepare()
        if self.draw(st.booleans()):
            self.add(".map(f.compiled_map, schema={'k': pa.int64(), 'x': pa.int64()}, compiled=True)")
        else:
            schema = "{'x': pa.int64(), 'y': pa.float64()}"
            self.add(f".flat_map(f.compiled_flat, schema={schema}, fan_out=2, compiled=True)")

    def prepare(self) -> None:
        """The columns that the compiled functions expect."""
        expressions = Expressions(self.draw, self.schema)
        k, x, y = expressions.integer(1), expressions.integer(1), expressions.float(1)
        self.add(f".select(k={k}, x={x}, y={y}, on_error='skip')")

    # -------------------------------------------------------------------------------------- stateful

    def key(self) -> str | None:
        """`.key_by(...)` for some columns, or "" for one state for all; None where no column can be a
        key.
        """
        able = named(self.schema, comparable)
        if not able:
            return None
        names = self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=3, unique=True))
        text = ", ".join(map(repr, names))
        if self.draw(st.integers(0, 3)) == 0:
            text += f", buckets={self.pick((1, 2, 5))}"
        if len(names) == 1 and self.draw(st.integers(0, 3)) == 0:
            text += self.partition(self.schema.field(names[0]).type)
        return f".key_by({text})"

    def partition(self, type_: pa.DataType) -> str:
        if plain_number(type_):
            return self.pick((", partition=od.ranges([0, 1, 3])", ", partition=od.equal_ranges(0, 5)"))
        if is_temporal(type_) and not pat.is_date64(type_) and not pat.is_time(type_):
            return self.pick((", partition=od.ranges([0, 10])", ", partition=od.equal_ranges(0, 20)"))
        return ""

    def keyed(self) -> str | None:
        return self.key() if self.draw(st.integers(0, 3)) else ""

    def count(self) -> None:
        key = self.keyed()
        if key is not None:
            name = self.pick(("n", self.fresh("n_of")))
            times = named(self.schema, can_be_time)
            options = [", emit='final'", "", ", above=1", ", above=1, emit='final'"]
            options += [self.window_of_count(times)] * 2 if times else []
            if not {name, "window"} & set(self.schema.names):
                self.add(f"{key}.count({name!r}{self.pick(options)}{self.policy()})")

    def scan(self) -> None:
        key = self.keyed()
        if key is None:
            return
        scans = self.draw(st.booleans())
        taken = set(self.schema.names if scans else self.pipeline_key(key) if key else ())
        calls = ", ".join(f"{call}.alias({name!r})" for name, call in self.aggregations(taken))
        if scans:
            self.add(f"{key}.scan({calls}{self.policy()})")
        else:
            self.add(f"{key}.aggregate({calls}, emit={self.pick(('updates', 'final'))!r}{self.policy()})")

    def aggregations(self, taken: set[str], gathers: bool = True, wide: bool = True) -> list[Any]:
        """(name, aggregation), some with a condition; `gathers`, `wide`: lists and wide sums among them."""
        numbers = named(self.schema, plain_number)
        ordered = named(self.schema, is_fixed_number)
        single = named(self.schema, lambda t: is_fixed_number(t) or pat.is_boolean(t))
        countable = named(self.schema, comparable)
        calls = [("count", ""), *(("count", repr(n)) for n in countable)]
        calls += [(function, repr(n)) for n in numbers for function in ("sum", "mean", "var", "std")]
        decimals = named(self.schema, lambda t: pat.is_decimal128(t) and (wide or is_counted(t)))
        calls += [(function, repr(n)) for n in decimals for function in ("sum", "mean")]
        calls += [(function, repr(n)) for n in ordered for function in ("min", "max")]
        calls += [(function, repr(n)) for n in single for function in ("first", "last")]
        if gathers:
            calls += gathered_calls(self.schema)
        parts, expressions = [], Expressions(self.draw, self.schema)
        calls += expressions.aggregated(gathers) if self.draw(st.integers(0, 2)) == 0 else []
        chosen = self.draw(st.lists(st.sampled_from(calls), min_size=1, max_size=3))
        for function, column in chosen:
            name = next(n for i in range(99) if (n := f"r{i}") not in taken)
            taken.add(name)
            where = f"where={expressions.boolean(1)}" if self.draw(st.integers(0, 2)) == 0 else ""
            arguments = ", ".join(text for text in (column, where) if text)
            parts.append((name, f"od.{function}({arguments})"))
        return parts

    def sessionize(self) -> None:
        key = self.key()
        times = named(self.schema, can_be_time)
        if not key or not times:
            return
        able = named(self.schema, can_be_listed)
        chosen = self.draw(st.lists(st.sampled_from(able), max_size=2, unique=True)) if able else []
        collect = {f"list{i}": name for i, name in enumerate(chosen)}
        made = {"start", "end", "count", *collect}
        names = self.pipeline_key(key)
        if not made & set(names):
            time, timeout = self.time(times), self.pick((0, 1, 3, 50))
            aggregate = ""
            if self.draw(st.booleans()):
                given = ", ".join(
                    f"{n!r}: {call}" for n, call in self.aggregations(made | set(names), False)
                )
                aggregate = f", aggregate={{{given}}}"
            self.add(f"{key}.sessionize({time!r}, {timeout}, {collect!r}{aggregate}{self.policy()})")

    def pair_up(self) -> None:
        numbers = named(self.schema, lambda t: is_fixed_number(t) and not pat.is_decimal(t))
        key = self.key()
        if key and numbers:
            carry = self.draw(st.lists(st.sampled_from(self.schema.names), max_size=2, unique=True))
            names = f"left={self.fresh('left')!r}, right={self.fresh('right')!r}"
            self.add(f"{key}.pair_up({self.pick(numbers)!r}, carry={carry!r}, {names}{self.policy()})")

    def preceding(self) -> None:
        key, able = self.key(), named(self.schema, lambda t: is_fixed_number(t) or pat.is_boolean(t))
        if key and able:
            expressions, times = Expressions(self.draw, self.schema), named(self.schema, can_be_time)
            chosen = self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True))
            carry = self.draw(st.lists(st.sampled_from(self.schema.names), max_size=2, unique=True))
            columns = {self.fresh(f"past{i}"): name for i, name in enumerate(chosen)}
            options = self.pick(
                ("", f", when={expressions.boolean(1)}", f", where={expressions.boolean(1)}")
            )
            if times and self.draw(st.booleans()):
                options += f", time={self.time(times)!r}, within={self.pick((0, 2, 40))}"
            self.add(
                f"{key}.preceding({self.pick((1, 2, 5))}, {columns!r}, "
                f"carry={carry!r}{options}{self.policy()})"
            )

    def forward_fill(self) -> None:
        able = named(self.schema, comparable)
        if able:
            names = self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=4, unique=True))
            key = (self.key() or "") if self.draw(st.integers(0, 3)) else ""
            self.add(f"{key}.forward_fill({', '.join(map(repr, names))}{self.policy()})")

    def assert_ordered(self) -> None:
        able = named(self.schema, is_fixed_number)
        if able:
            more = self.draw(st.lists(st.sampled_from(able), max_size=2))
            names = dict.fromkeys([self.time(able), *more])
            key = (self.key() or "") if self.draw(st.booleans()) else ""
            self.add(f"{key}.assert_ordered({', '.join(map(repr, names))}{self.policy()})")

    def top_values(self) -> None:
        key = self.key()
        able = set(named(self.schema, comparable))
        if not key or {"count", "rank"} & set(self.schema.names):
            return
        able -= set(self.pipeline_key(key))
        if able:
            emit = self.pick(("updates", "final"))
            self.add(
                f"{key}.top_values({self.pick(sorted(able))!r}, {self.pick((1, 2, 9))}, "
                f"emit={emit!r}{self.policy()})"
            )

    def regression(self) -> None:
        key = self.key()
        xs = named(self.schema, lambda t: pat.is_integer(t) or is_temporal(t))
        ys = named(self.schema, pat.is_integer)
        if not key or not ys:
            return
        keys = self.pipeline_key(key)
        xs = [x for x in xs if x not in keys]
        if xs and not {"n", "slope", "intercept", "flat_or_declining"} & set(self.schema.names):
            emit = self.pick(("updates", "every_tuple", "final"))
            self.add(f"{key}.regression({self.time(xs)!r}, {self.pick(ys)!r}, emit={emit!r}{self.policy()})")

    def pipeline_key(self, key: str) -> list[str]:
        """Names of the columns of a `.key_by(...)` text."""
        keyed = eval(f"pipeline{key}", NAMESPACE | {"pipeline": self.pipeline})
        return [self.schema.names[index] for index in keyed._key]

    def top_k(self) -> None:
        by = named(self.schema, is_fixed_number)
        if not by:
            return
        chosen = self.pick(by)
        able = [n for n in named(self.schema, comparable) if n != chosen]
        if able:
            key = self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True))
            windows = [
                n for n in named(self.schema, lambda t: pat.is_integer(t) or is_temporal(t)) if n != chosen
            ]
            options = self.pick(("", ", emit='updates', rank='rank_'", ", rank='rank_'"))
            if windows and self.draw(st.booleans()):
                options += f", window={self.time(windows)!r}"
            if "rank_" not in self.schema.names:
                self.add(f".top_k({self.pick((1, 2, 5, 100))}, {chosen!r}, {key!r}{options}{self.policy()})")

    def answer(self) -> None:
        """An operator without key at the end: a count, or aggregations, mostly such as do not depend on
        the order.
        """
        if self.draw(st.integers(0, 3)) == 0:
            self.add(f".count('n_'{self.pick(('', ', above=2'))}{self.policy()})")
            return
        integers = named(self.schema, pat.is_integer)
        ordered = named(self.schema, lambda t: pat.is_integer(t) or is_temporal(t))
        floats = named(self.schema, lambda t: pat.is_float32(t) or pat.is_float64(t))
        calls = []
        for _ in range(self.draw(st.integers(1, 4))):
            kinds = ["count"] + ["sum", "sum", "mean"] * bool(integers) + ["min", "max"] * bool(ordered)
            kind = self.pick(kinds + ["float"] * bool(floats and self.draw(st.integers(0, 4)) == 0))
            function = self.pick(("sum", "min", "max")) if kind == "float" else kind
            column = {"count": "", "float": floats, "min": ordered, "max": ordered}.get(kind, integers)
            given = repr(self.pick(column)) if column else ""
            expressions = Expressions(self.draw, self.schema)
            if kind == "sum" and self.draw(st.integers(0, 3)) == 0:
                given = expressions.integer()
            if self.draw(st.integers(0, 3)) == 0:
                given += f"{', ' * bool(given)}where={expressions.boolean()}"
            calls.append(f"od.{function}({given}).alias('v{len(calls)}')")
        self.add(
            f".aggregate({', '.join(calls)}{self.policy() if self.draw(st.integers(0, 4)) == 0 else ''})"
        )

    def process(self) -> None:
        key = self.keyed()
        if key is None:
            return
        raises, flush, forgotten = self.raises(), self.draw(RAISES), self.draw(RAISES)
        kind = self.pick(("declared", "declared", "undeclared", "codec"))
        if kind == "declared":
            function = f"f.folds({self.pick((1, 3))}, {raises}, {forgotten})"
            state = "state={'n': int, 'last': str, 'total': float}"
            schema = "{'n': int, 'last': str, 'total': float}"
            hooks = self.pick(("", f", on_flush=f.folds_flush({flush})"))
            hooks += self.pick(("", f", on_time=f.folds_time({self.draw(RAISES)}, {forgotten})"))
        elif kind == "undeclared":
            function = f"f.collects({raises}, {forgotten})"
            schema = "{'n': int, 'seen': pa.list_(pa.int64())}"
            state = self.pick(("init=f.make_namespace", "state=None"))
            hooks = self.pick(("", ", on_flush=f.collects_flush"))
        else:
            function = f"f.appends({raises}, {forgotten})"
            schema, state = "{'n': int}", "state=f.list_codec()"
            hooks = self.pick(("", ", on_flush=f.appends_flush"))
        function = self.looking(function)
        self.add(f"{key}.process({function}, schema={schema}, {state}{hooks}{self.policy_of_function()})")

    def compiled_process(self) -> None:
        self.prepare()
        key = self.pick(("", ".key_by('k')", ".key_by('k', 'y')"))
        schema = "{'x': pa.int64(), 'n': pa.int64(), 'total': pa.float64()}"
        hook = self.pick(("", ", on_flush=f.compiled_fold_flush"))
        given = f"schema={schema}, state={{'n': int, 'total': float}}, compiled=True{hook}"
        self.add(f"{key}.process(f.compiled_fold, {given}{self.policy()})")


#: Operators whose outputs come in the order of their inputs, the end of the stream included.
_KEEP_ORDER = (
    *("filter", "python_filter", "project", "scan", "lag", "forward_fill", "assert_ordered", "rolling"),
    *("pairs", "explode", "pair_up", "preceding"),
    *("head", "deduplicate", "assert_that", "sample", "inspect", "join_lookup", "join_asof"),
)


def still_ascending(stage: Any, clocks: frozenset[str]) -> frozenset[str]:
    """Columns that ascend behind an operator, of those that did in front of it."""
    before, after = stage.input.names, stage.output.names
    passed = {after[out] for out, column in stage.columns_passed().items() if before[column] in clocks}
    if stage.op in _KEEP_ORDER:
        return frozenset(passed)
    if stage.op == "count" and stage.window is not None:
        return frozenset(passed | ({"window"} if before[stage.time] in clocks else set()))
    if stage.op == "top_k" and getattr(stage, "window", None) is not None:
        return frozenset({before[stage.window]} & clocks)
    return frozenset()


def is_list_of_some_kind(type_: pa.DataType) -> bool:
    """What `explode` takes."""
    return is_list(type_) or is_packed_list(type_)


def _primitive(type_: pa.DataType) -> bool:
    return pat.is_primitive(type_)


BUILTIN = (
    "filter",
    "select",
    "with_columns",
    "rename",
    "drop",
    "lists",
    "lists",
    "count",
    "scan",
    "scan",
    "sessionize",
)
BUILTIN += (
    "sessionize",
    "top_k",
    "pair_up",
    "preceding",
    "lag",
    "lead",
    "ends",
    "best",
    "deduplicate",
    "running",
    "checked",
    "forward_fill",
    "top_values",
    "regression",
    "assert_ordered",
    "window",
    "filled",
    "rolling",
    "reorder",
    "computed_time",
    "join_lookup",
    "join_interval",
    "join_asof",
)
PYTHON = ("filter_function", "map", "misfit", "flat_map", "map_batches", "process", "process")
COMPILED = ("compiled_rows", "compiled_process")
FAILING = (
    "misfit",
    "flat_map",
    "map",
    "process",
    "map_batches",
    "filter_function",
    "select",
    "scan",
    "sessionize",
)
VOCABULARY = (*BUILTIN, *BUILTIN, *PYTHON, *PYTHON)


@st.composite
def clocks(draw: Any, schema: pa.Schema) -> frozenset[str]:
    """Columns of a source that are to ascend: mostly one, where there is one that can be a time."""
    able = named(schema, can_be_time) or named(schema, lambda t: pat.is_integer(t) or is_temporal(t))
    most = draw(st.sampled_from([1, 1, 1, 1, 1, 2, 0]))
    return (
        frozenset(draw(st.lists(st.sampled_from(able), min_size=min(most, 1), max_size=most, unique=True)))
        if able
        else frozenset()
    )


@st.composite
def pipelines(
    draw: Any,
    schema: pa.Schema,
    most: int = 5,
    vocabulary: tuple[str, ...] = VOCABULARY,
    clocks: frozenset[str] = frozenset(),
) -> Chain:
    """A chain of up to `most` operators (0 now and then)."""
    chain = Chain(draw, od.Pipeline(schema), clocks=clocks)
    for _ in range(draw(st.integers(0, most))):
        able = [name for name in vocabulary if name != "lists" or named(chain.schema, is_list_of_some_kind)]
        getattr(chain, draw(st.sampled_from(able)))()
    return chain


@dataclass
class Case:
    """A pipeline, its input and the options of a run; its repr is a script."""

    chain: Chain
    batches: list[pa.RecordBatch]
    options: dict[str, Any]
    live: bool = False

    @property
    def source(self) -> Any:
        """The batches as a list, or from a generator (which a thread of its own reads)."""
        return (batch for batch in self.batches) if self.live else self.batches

    @property
    def pipeline(self) -> Any:
        return self.chain.pipeline

    def __repr__(self) -> str:
        schema = self.pipeline.source_schema
        fields = [f"pa.field({f.name!r}, {type_text(f.type)}, {f.nullable})" for f in schema]
        rows = [len(batch) for batch in self.batches]
        lines = [
            f"schema = pa.schema([{', '.join(fields)}])",
            f"pipeline = od.Pipeline(schema){''.join(self.chain.texts)}",
        ]
        for batch in self.batches[:4]:
            columns = {
                name: column[:24].to_pylist()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            lines.append(f"# batch of types {[str(t) for t in batch.schema.types]}\n#   {columns}")
        return "\n" + "\n".join(
            [*lines, f"# rows per batch {rows}", f"options = {self.options}, live source: {self.live}"]
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def cases(draw: Any, vocabulary: tuple[str, ...] = VOCABULARY, most: int = 5) -> Case:
    """Everything that one comparison with `run_serial` needs."""
    schema = draw(with_time(schemas(most=5)))
    ascending = draw(clocks(schema))
    chain = draw(pipelines(schema, most, vocabulary, ascending))
    table = draw(tables(schema, clocks=ascending))
    given = agreed(chain.pipeline, draw(options(schema, ascending)))
    return Case(chain, draw(batches(table)), given, draw(st.booleans()))


@st.composite
def answers(draw: Any, most: int = 3) -> Case:
    """A case whose last operator has no key and an answer at the end of the stream."""
    case = draw(cases(vocabulary=BUILTIN, most=most))
    case.chain.answer()
    return case
