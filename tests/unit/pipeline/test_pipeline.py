"""Pipelines are checked and typed while they are written; the stage table is what the core gets."""

import datetime as dt
import enum
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from plan_tools import in_the_core

import ordstream as od
from ordstream.expressions.bound import BoundExpr
from ordstream.ground import type_names
from ordstream.plan.columns import needed_outputs, used_source_columns
from ordstream.plan.plan import Plan
from ordstream.testing import run_serial

SCHEMA = pa.schema(
    {
        "user": pa.int64(),
        "ts": pa.timestamp("s"),
        "item": pa.int32(),
        "price": pa.float64(),
        "page": pa.dictionary(pa.int8(), pa.string()),
        "tags": pa.list_(pa.int64()),
    }
)
col = od.col


@pytest.fixture
def p():
    return od.Pipeline(SCHEMA)


def names(pipeline):
    return pipeline.schema.names


def test_import_loads_no_compiled_code():
    code = (
        "import sys, ordstream as od; assert od.testing.run_serial;"
        "assert not [m for m in sys.modules if m.startswith('ordstream._core')], sys.modules;"
        "print(od.__version__)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == od.__version__
    with pytest.raises(AttributeError, match="nothing"):
        od.nothing  # noqa: B018


def test_pipelines_are_immutable(p):
    longer = p.filter(col("user") > 0)
    assert p.plan.operators == ()
    assert [s.name for s in longer.plan.operators] == ["filter_1"]
    assert longer.filter(col("user") > 1).plan.operators[0] is longer.plan.operators[0]


def test_dictionaries_are_decoded(p):
    assert p.schema.field("page").type == pa.string()
    assert od.Pipeline({"a": int, "b": str}).schema == pa.schema({"a": pa.int64(), "b": pa.string()})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"a": pa.dense_union([pa.field("b", pa.int64())])}, "'a'.*union"),
        ({"a": pa.struct({"b": pa.dense_union([pa.field("c", pa.int64())])})}, "'a'.*a union"),
        ([("a", pa.int64()), ("a", pa.int64())], "duplicate.*'a'"),
        ([], "at least one column"),
        (5, "pyarrow.Schema"),
    ],
)
def test_schema_errors(schema, words):
    with pytest.raises(od.SchemaError, match=words):
        od.Pipeline(schema)


def test_project_stages(p):
    chosen = p.select("user", "item", total=col("price") * 2, again=col("item"))
    (stage,) = chosen.plan.operators
    assert (stage.kind, stage.op) == ("SL", "project")
    assert stage.columns[:2] == (0, 2)
    assert isinstance(stage.columns[2], BoundExpr)
    assert stage.columns[3] == 2
    assert chosen.schema == pa.schema(
        {"user": pa.int64(), "item": pa.int32(), "total": pa.float64(), "again": pa.int32()}
    )
    assert names(p.with_columns(price=col("price") + 1, new=od.lit(1))) == [*SCHEMA.names, "new"]
    assert names(p.drop("tags", "page")) == ["user", "ts", "item", "price"]
    assert names(p.rename({"item": "article"}))[2] == "article"
    assert names(p.rename({col("item"): "article"}))[2] == "article"
    assert names(p.select(col("user").alias("name"))) == ["name"]


def test_list_operators(p):
    paired = p.flat_map(od.pairs("tags", left="a", right="b", carry=["user"]))
    assert paired.schema == pa.schema({"user": pa.int64(), "a": pa.int64(), "b": pa.int64()})
    (stage,) = paired.plan.operators
    assert (stage.column, stage.carry, stage.anchor) == (5, (0,), None)
    assert names(p.flat_map(od.explode("tags", name="tag", carry=["item"]))) == ["item", "tag"]


def test_stateful_stages(p):
    sessions = p.key_by("user", buckets=8).sessionize(
        time="ts", timeout=dt.timedelta(hours=1), collect={"items": "item"}
    )
    (stage,) = sessions.plan.operators
    assert (stage.kind, stage.op, stage.key, stage.buckets) == ("PS", "sessionize", (0,), 8)
    assert (stage.time, stage.timeout, stage.collect, stage.aggregates) == (1, 3600, (2,), ())
    seconds = pa.timestamp("s")
    fields = {"user": pa.int64(), "start": seconds, "end": seconds, "count": pa.int64()}
    assert sessions.schema == pa.schema({**fields, "items": pa.list_(pa.int32())})
    scanned = p.scan(od.mean("item").alias("name"), total=od.sum("item"), hi=od.max("item"), n=od.count())
    assert scanned.plan.operators[0].kind == "SF"
    assert scanned.schema.types[-4:] == [pa.float64(), pa.int64(), pa.int32(), pa.int64()]
    aggregates = [("mean", 2, None), ("sum", 2, None), ("max", 2, None), ("count", None, None)]
    assert [one[:3] for one in scanned.plan.operators[0].aggregates] == aggregates


def test_top_k_knows_when_counts_only_grow(p):
    counted = p.key_by("user", "item").count()
    stage = in_the_core(counted.top_k(3, by="count")).plan.operators[-1]
    assert (stage.k, stage.by, stage.ranked_key, stage.window, stage.emit, stage.rank) == (
        3,
        2,
        (0, 1),
        None,
        "final",
        False,
    )
    assert stage.by_grows
    assert in_the_core(counted.top_k(3, by="count", key=["item", "user"])).plan.operators[-1].by_grows
    assert not in_the_core(counted.top_k(3, by="count", key="user")).plan.operators[-1].by_grows
    assert not in_the_core(counted.filter(col("count") > 1).top_k(3, by="count")).plan.operators[-1].by_grows


def test_functions(p):
    def fn(*_):
        return None

    out = {"a": pa.int64()}
    ops = [
        p.map(fn, schema=out),
        p.map(fn, schema=out, compiled=True),
        p.filter(fn),
        p.flat_map(fn, schema=out),
        p.map_batches(fn, schema=out),
        p.process(fn, schema=out),
        p.key_by("user").process(fn, schema=out, state={"n": int}, compiled=True, fan_out=2),
        p.process(fn, schema=out, state=od.codec(fn, fn, fn)),
    ]
    assert [(s.kind, s.op, s.can_snapshot) for o in ops for s in o.plan.operators] == [
        ("SL", "python_rows", True),
        ("SL", "compiled", True),
        ("SL", "python_filter", True),
        ("SL", "python_flat", True),
        ("SL", "python_batch", True),
        ("SF", "python_process", False),
        ("PS", "compiled", True),
        ("SF", "python_process", True),
    ]
    assert ops[6].plan.operators[0].state == pa.schema({"n": pa.int64()})


SCHEMA_MISTAKES = {
    "unknown column": (lambda p: p.select("itm"), "'itm' in select_1.*'user', 'ts'.*Did you mean 'item'"),
    "unknown in expression": (lambda p: p.filter(col("usr") > 0), "Did you mean 'user'"),
    "not boolean": (lambda p: p.filter(col("user")), "boolean"),
    "duplicate": (lambda p: p.select("user", "user"), "duplicate.*'user'"),
    "dropped twice": (lambda p: p.drop("item", col("item")), r"drop_1: duplicate column name\(s\) 'item'"),
    "renamed twice": (lambda p: p.rename({"item": "a", col("item"): "b"}), r"rename_1: duplicate .* 'item'"),
    "ordered twice": (lambda p: p.assert_ordered("ts", "ts"), "assert_ordered_1: duplicate .* 'ts'"),
    "duplicate by rename": (lambda p: p.rename({"user": "item"}), "duplicate.*'item'"),
    "nothing left": (lambda p: p.drop(*p.schema.names), "at least one"),
    "no name": (lambda p: p.select(col("user") + 1), "alias"),
    "key list": (lambda p: p.key_by("tags"), "can't be a key"),
    "pairs of no list": (lambda p: p.flat_map(od.pairs("item")), "must be a list"),
    "scan hides a column": (lambda p: p.scan(user=od.count()), "duplicate.*'user'"),
    "sum of strings": (lambda p: p.scan(x=od.sum("page")), "not defined for string"),
    "time is a float": (lambda p: p.key_by("user").sessionize("price", 1), "time column 'price'"),
    "collect a number": (lambda p: p.key_by("user").sessionize("ts", 1, 5), "column names are needed"),
    "alias of a number": (lambda p: p.select(col("user").alias(3)), "alias: a name must be"),
    "start twice": (lambda p: p.key_by("user").sessionize("ts", 1, {"start": "item"}), "duplicate.*'start'"),
    "top_k by strings": (lambda p: p.top_k(1, by="page"), "'page' must be a number"),
    "state with a list of lists": (
        lambda p: p.process(print, schema={"a": int}, state={"l": pa.list_(pa.list_(pa.int64()))}),
        "'l'",
    ),
}
PLAN_MISTAKES = {
    "keyed filter": (lambda p: p.key_by("user").filter(col("item") > 1), "followed by sessionize, count"),
    "keyed run": (lambda p: p.key_by("user").run([]), "followed by"),
    "no key": (lambda p: p.key_by(), "at least one key"),
    "buckets": (lambda p: p.key_by("user", buckets=0), "buckets"),
    "partition": (lambda p: p.key_by("user", partition="range"), "partition must be"),
    "bounds": (lambda p: p.key_by("user", partition=od.ranges([2, 1])), "ascend"),
    "bound type": (lambda p: p.key_by("user", partition=od.ranges(["a"])), "'user' is int64"),
    "two keys": (lambda p: p.key_by("user", "item", partition=od.ranges([1])), "exactly one"),
    "equal ranges": (lambda p: p.key_by("user", partition=od.equal_ranges(1, 1)), "low < high"),
    "k": (lambda p: p.top_k(0, by="item"), "k must be an int of at least 1"),
    "by in key": (lambda p: p.top_k(1, by="item", key="item"), "part of the key"),
    "timeout": (lambda p: p.key_by("user").sessionize("ts", -1), "at least 0"),
    "timeout unit": (
        lambda p: p.key_by("user").sessionize("ts", dt.timedelta(milliseconds=1)),
        "whole number",
    ),
    "emit": (lambda p: p.count(emit="last"), "updates"),
    "nothing to scan": (lambda p: p.scan(), "at least one aggregation"),
    "not an aggregation": (lambda p: p.scan(x="item"), "must be an aggregation"),
    "same name": (lambda p: p.count(name="x").count(name="x"), "names must be unique"),
    "on_error": (lambda p: p.filter(col("user") > 0, on_error="ignore"), "'fail', 'skip', 'dead"),
    "no schema": (lambda p: p.flat_map(print), "needs schema="),
    "map of expression": (lambda p: p.map(col("user") + 1, schema={"a": int}), "use select"),
    "compiled state": (lambda p: p.process(print, schema={"a": int}, compiled=True), "declared state"),
    "init and state": (
        lambda p: p.process(print, schema={"a": int}, state={"n": int}, init=dict),
        "init is for",
    ),
    "fan_out": (lambda p: p.process(print, schema={"a": int}, fan_out=0), "fan_out"),
    "format": (lambda p: p.map_batches(print, schema={"a": int}, format="csv"), "'pandas' or 'polars'"),
    "too many buckets": (lambda p: p.key_by("user", buckets=10**9), "buckets must be at most 65535"),
    "k beyond int64": (lambda p: p.top_k(2**63, by="item"), "k must be at most"),
    "fan_out beyond memory": (
        lambda p: p.flat_map(print, schema={"a": int}, fan_out=2**40),
        "fan_out must be at most",
    ),
    "timeout beyond int64": (
        lambda p: p.key_by("user").sessionize("ts", 2**63),
        "timeout must fit into int64",
    ),
    "window beyond int64": (lambda p: p.count(window=2**70, time="ts"), "window must fit into int64"),
    "column called name": (lambda p: p.select("user", name=col("ts")), r"operator's name.*alias\('name'\)"),
    "aggregation called name": (lambda p: p.scan(name=od.sum("item")), "operator's name.*alias"),
    "rename to a number": (lambda p: p.rename({"user": 3}), "non-empty str"),
    "rename of a list": (lambda p: p.rename(["user"]), "a mapping of old names to new ones"),
}


@pytest.mark.parametrize("case", SCHEMA_MISTAKES)
def test_schema_mistakes(p, case):
    build, words = SCHEMA_MISTAKES[case]
    with pytest.raises(od.SchemaError, match=words):
        build(p)


@pytest.mark.parametrize("case", PLAN_MISTAKES)
def test_plan_mistakes(p, case):
    build, words = PLAN_MISTAKES[case]
    with pytest.raises(od.PlanError, match=words):
        build(p)


def test_columns_by_name_by_expression_or_in_a_list(p):
    plain = p.key_by("user", "item").count().top_k(2, by="count", key="user").drop("item")
    other = (
        p.key_by([col("user"), "item"])
        .count()
        .top_k(2, by=col("count"), key=[col("user")])
        .drop([col("item")])
    )
    assert plain.explain() == other.explain()
    assert names(p.select(["user", col("item")])) == ["user", "item"]
    assert names(p.key_by("user").sessionize(col("ts"), 1, [col("item")])) == [
        "user",
        "start",
        "end",
        "count",
        "item",
    ]


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("where", "here it is called filter"),
        ("withColumn", "called with_columns"),
        ("groupBy", "called key_by"),
        ("group_by", "called key_by"),
        ("agg", "called aggregate"),
        ("orderBy", "order of its source"),
        ("join", "lookup"),
        ("sessionize", r"\.key_by\(\.\.\.\)\.sessionize"),
        ("nothing", "a Pipeline has no 'nothing'$"),
    ],
)
def test_names_of_other_systems_lead_to_ours(p, attribute, words):
    assert not hasattr(p, attribute)
    with pytest.raises(AttributeError, match=words):
        getattr(p, attribute)


def test_keyed_pipelines_have_ordinary_attribute_errors(p):
    with pytest.raises(AttributeError, match="called aggregate"):
        p.key_by("user").agg  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        p.key_by("user").nothing  # noqa: B018
    assert "user" in repr(p.key_by("user"))


def test_used_source_columns(p):
    used = used_source_columns
    assert used(Plan(SCHEMA)) == (True,) * 6
    counted = p.filter(col("price") > 0).key_by("user").count()
    assert used(counted.plan) == (True, False, False, True, False, False)
    # a computed column that nothing reads still could fail: its inputs are used
    dropped = p.with_columns(x=col("item") + 1).select("user")
    assert used(dropped.plan) == (True, False, True, False, False, False)
    assert used(p.drop("tags").plan)[5] is False
    assert used(p.filter(lambda row: row.price > 0).select("user").plan) == (
        True, False, False, True, False, False)  # fmt: skip
    # the row is handed on
    assert used(p.filter(lambda row: bool(row)).select("user").plan) == (True,) * 6
    assert used(p.filter(lambda row: row.price, on_error="dead_letter").select("user").plan) == (True,) * 6
    sessions = p.key_by("user").sessionize("ts", 1, ["item"]).flat_map(od.pairs("item"))
    assert used(sessions.plan) == (True, True, True, False, False, False)


def test_needed_outputs(p):
    needed = needed_outputs
    # user start end count a b
    made = p.key_by("user").sessionize("ts", 1, aggregate={"a": od.last("ts"), "b": od.last("ts")})
    (values, nulls) = needed(made.plan)[0]
    assert values == nulls == set(range(6))
    tested = made.filter(col("a").is_not_null() & ~col("b").is_null())
    (values, nulls) = needed(tested.aggregate(n=od.sum("count")).plan)[0]
    assert (values, nulls) == ({3}, {3, 4, 5})
    (values, nulls) = needed(tested.filter(col("b").is_null()).aggregate(n=od.sum("count")).plan)[0]
    # an error behind the first filter may show what the second one reads
    assert (values, nulls) == ({3, 5}, {3, 4, 5})
    (values, nulls) = needed(
        made.filter(col("a").is_not_null() & (col("b") > 0)).aggregate(n=od.count()).plan
    )[0]
    assert values == nulls == {4, 5}


def test_explain(p):
    chain = p.filter(col("user").is_not_null(), on_error="skip").key_by("user")
    chain = chain.process(lambda row, state, emit: None, schema={"a": pa.int64(), "n": pa.int64()})
    text = chain.top_k(2, by="n").explain()
    for words in (
        "filter is_not_null(user)",
        "on error: skip",
        "PS  process_2",
        "by user",
        "cannot be snapshotted",
    ):
        assert words in text
    assert "top_k 2 by n descending, then a" in text
    assert "never read: ts" in p.key_by("user").count().explain()


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(od.OperatorError("map_1", 7, {"a": 1}, "boom")))
    assert (error.operator, error.serial, error.row, error.reason) == ("map_1", 7, {"a": 1}, "boom")
    assert isinstance(error, RuntimeError)
    assert "serial 7" in str(error)
    assert issubclass(od.SchemaError, TypeError)
    assert issubclass(od.SchemaError, ValueError)


def test_explain_takes_a_whole_number_of_nodes(p):
    for nodes in (0, -1, "auto", 1.5):
        with pytest.raises(od.PlanError, match="nodes must be an int"):
            p.explain(nodes=nodes)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"a": "integer"}, "column 'a' can't be 'integer'.*pyarrow.DataType.*for 'integer' write 'int64'"),
        ({"a": "Timestamp"}, "for 'Timestamp' write 'timestamp\\[us\\]'"),
        ({"a": "colour"}, "str, bytes$"),
        ({"a": dict}, "column 'a' can't be .*dict"),
        (["a", "b"], "a mapping of name to type, got"),
        ({1: int}, "a column's name is a str, got 1$"),
        ([pa.field("a", pa.int8()), ("b", int)], "a mapping of name to type, got"),
        ("user long", "a mapping of name to type, got 'user long'"),
        (None, "got None"),
        (pa.array([{"a": 1}]), "got StructArray, which has no columns"),
    ],
)
def test_mistaken_schemas(schema, words):
    with pytest.raises(od.SchemaError, match=words):
        od.Pipeline(schema)


def test_a_list_of_fields_is_a_schema():
    """As `pyarrow.schema` takes it."""
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("s", pa.string())]
    assert od.Pipeline(fields).schema.equals(pa.schema(fields))


def test_the_columns_of_data():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"k": [1, 2], "s": ["a", None], "x": [0.5, None]}
    for data in (pandas.DataFrame(columns), polars.DataFrame(columns), pa.table(columns)):
        pipeline = od.Pipeline(data)
        assert list(map(str, pipeline.schema.types))[::2] == ["int64", "double"]
        assert pipeline.filter(od.col("k") > 1).run(data).table["k"].to_pylist() == [2]
    assert od.Pipeline(pa.record_batch(columns)).schema.names == ["k", "s", "x"]
    reader = pa.table(columns).to_reader()
    pipeline = od.Pipeline(reader)  # nothing of it is read
    assert pipeline.run(reader).table.num_rows == 2
    gaps = pandas.DataFrame(columns)[1:].set_index("s")
    assert od.Pipeline(gaps).run(gaps).table.to_pydict()["k"] == [2]


def test_pipe_puts_a_function_into_the_chain():
    def above(pipeline, least, *, column):
        return pipeline.filter(od.col(column) > least)

    def totals(keyed):
        return keyed.scan(total=od.sum("x"))

    rows = pa.table({"k": [1, 1, 2], "x": [1, 5, 7]})
    made = od.Pipeline(rows).pipe(above, 2, column="x").key_by("k").pipe(totals)
    assert made.run(rows).table["total"].to_pylist() == [5, 7]
    assert run_serial(made, rows).table["total"].to_pylist() == [5, 7]
    with pytest.raises(od.PlanError, match="pipe takes a function of the pipeline, got 7"):
        made.pipe(7)


def test_schemas_of_other_libraries():
    class Foreign:
        def __arrow_c_schema__(self):
            return pa.schema({"a": pa.int64(), "b": pa.string_view()}).__arrow_c_schema__()

    assert od.Pipeline(Foreign()).schema.names == ["a", "b"]


@pytest.mark.parametrize("name", ["__getitem__", "__len__", "__new__", "__class__", "_fields", "count", ""])
def test_columns_may_be_called_anything(name):
    """A column called __getitem__ once ended the interpreter: looking it up looked it up."""
    data = pa.table({name: [1, 2], "k": [3, 4]})
    pipeline = (
        od.Pipeline(data.schema)
        .map(lambda row: (row[0], row.k), schema=data.schema)
        .map(tuple, schema=data.schema)
    )
    getattr_too = od.Pipeline(data.schema).filter(
        lambda row: getattr(row, name, None) is not None or len(row) == 2
    )
    for one in (pipeline, getattr_too):
        assert one.run(data, workers=0).table.equals(od.testing.run_serial(one, data).table)
        assert one.run(data, workers=0).table.equals(data)


def test_state_fields_are_not_called_what_python_looks_up(p):
    for name in ("__len__", "_types"):
        with pytest.raises(od.SchemaError, match=f"can't be called '{name}'"):
            p.process(print, schema={"a": int}, state={name: int})


def test_an_expression_without_measure_is_a_schema_error(p):
    deep = col("user")
    for _ in range(5000):
        deep = deep + 1
    with pytest.raises(od.SchemaError, match="select_1: an expression is nested too deeply"):
        p.select(x=deep)


@pytest.mark.parametrize(
    "use",
    [
        lambda p, x: p.select(x=x),
        lambda p, x: p.with_columns(x.alias("x")),
        lambda p, x: p.filter(x > 0),
        lambda p, x: p.branch(x > 0),
        lambda p, x: p.key_by("user").scan(x=od.sum(x)),
        lambda p, x: p.key_by("user").scan(x=od.count(where=x > 0)),
        lambda p, x: p.key_by("user").cum_sum(x, "y"),
    ],
)
def test_an_expression_that_uses_itself_again_and_again_is_a_schema_error(p, use):
    x = col("user")
    for _ in range(60):
        x = x * x + x
    with pytest.raises(od.SchemaError, match=r"parts, where 262144 are the most.*a column in front"):
        use(p, x)
    x = col("user")
    for _ in range(6):  # 1,457 parts
        x = x * x + x
    use(p, x)


def test_too_many_key_columns_are_told_when_built():
    wide = od.Pipeline({f"c{i}": int for i in range(65)})
    with pytest.raises(od.PlanError, match="at most 64 key columns, got 65"):
        wide.key_by(*wide.schema.names)
    wide.key_by(*wide.schema.names[:64]).count().run([], workers=0)


class Step(enum.StrEnum):
    """As users name their operators and columns."""

    FIRST = "first"


@pytest.mark.parametrize("name", [np.str_("first"), Step.FIRST])
def test_a_name_of_a_class_made_of_str(name):
    """A run took it, and could not end: its report failed, and so did its closing."""
    data = pa.table({"x": [1, 2]})
    pipeline = od.Pipeline(data.schema).filter(od.col("x") > 1, name=name)
    result = pipeline.run(data)
    assert result.table.to_pylist() == run_serial(pipeline, data).table.to_pylist() == [{"x": 2}]
    assert [type(one.name) for one in result.report.operators] == [str]
    assert result.report.operators[0].name == "first"


@pytest.mark.parametrize("kind", [od.Pipeline, od.KeyedPipeline])
def test_help_of_a_pipeline_tells_what_each_operator_takes(kind):
    """It stood in the docstring of a module that no user opens."""
    for option in ("`name`", "`on_error`"):
        assert option in kind.__doc__


@pytest.mark.parametrize("name", ["int", "long", "datetime", "decimal", "text"])
def test_a_type_of_another_system_is_answered_with_arrows(name):
    """`cast("int")` said "No type alias for int", a schema that a type is one of int, float, ..."""
    column = od.col("a")
    makes = (lambda: column.cast(name), lambda: od.lit(None, name), lambda: od.Pipeline({"a": name}))
    for make in makes:
        with pytest.raises(od.SchemaError, match=f"one of Python's int, .*; for '{name}' write "):
            make()


def test_arrow_has_the_names_that_are_advised():
    for ours in type_names._ELSEWHERE:
        if ours[0] == "'":
            assert pa.field("", ours.split("'")[1]).type is not None
