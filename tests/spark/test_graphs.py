"""Graphs over nodes in Spark: branches, unions, joins of several frames, several outputs, against
`run_serial`.
"""

import re
from decimal import Decimal

import pyarrow as pa
import pytest
from spark_tools import SOURCE, rows_of, stream, write_files

import ordstream as od
from ordstream.testing import run_serial

pytest.importorskip("pyspark")

from ordstream.spark import apply, explain
from ordstream.spark.inputs import input_of

pytestmark = pytest.mark.spark

ROWS = 2_000
LEFT, RIGHT = stream(range(ROWS)), stream(range(0, 3 * ROWS, 3))
CLICKS = od.Pipeline(SOURCE, source="clicks")
ORDERS = od.Pipeline(SOURCE, source="orders")


def one_source():
    """A window of the clock on one way, an end on the other, a key behind that is another one."""
    hit, miss = od.Pipeline(SOURCE).filter(od.col("n") % 3 != 0).branch(od.col("n") % 2 == 0)
    windows = (
        hit.key_by("user").window(od.tumbling(40), time="ts").aggregate(n=od.count(), item=od.last("item"))
    )
    at_end = miss.key_by("user", "item").count()
    united = od.union(
        windows.select("item", n=od.col("n")),
        at_end.select("item", n="count"),
        miss.select("item", n=od.lit(0)),
    )
    return united.key_by("item").scan(seen=od.count(), most=od.max("n"))


@pytest.fixture(scope="module")
def frames(spark, tmp_path_factory):
    """One with a place in its files, one without."""
    folder = tmp_path_factory.mktemp("graphs")
    write_files(folder / "clicks", LEFT, [700, 1_500], ["a", "b", "c"])
    write_files(folder / "orders", RIGHT, [50], ["a", "b"])
    return {name: spark.read.parquet(str(folder / name)) for name in ("orders", "clicks")}


def test_a_graph_with_windows_and_an_end_over_nodes(frames, spark):
    expected = run_serial(one_source(), LEFT)
    found = apply(one_source(), frames["clicks"], order_by="ts", nodes=2).toArrow()
    assert rows_of(found) == rows_of(expected.table)
    text = explain(one_source(), spark, nodes=2, order_by="ts")
    assert text.count("cut: rows to nodes by hash of") == 2


@pytest.mark.parametrize("how", ["left", "full"])
def test_two_frames_joined_with_several_outputs(frames, spark, how):
    joined = CLICKS.join_interval(ORDERS, on="user", within=(0, 5), how=how, time="ts")
    outputs = {
        "joined": joined.select("user", "n", "n_right", "ts"),
        "counts": od.union(CLICKS, ORDERS).key_by("user").scan(seen=od.count()).select("user", "seen"),
    }
    # `orders` comes first at ties
    expected = run_serial(CLICKS, {"orders": RIGHT, "clicks": LEFT}, outputs=outputs, merge_by="ts")
    found = apply(CLICKS, frames, outputs=outputs, merge_by="ts", nodes=2, tags=True)
    assert list(found) == ["joined", "counts"]
    found.rows.persist()  # one run
    for name, table in expected.outputs.items():
        assert rows_of(found[name].toArrow()) == rows_of(table)
    found.rows.unpersist()
    text = explain(joined, spark, nodes=2, merge_by="ts")
    assert "cut: rows to nodes by hash of user" in text


@pytest.mark.parametrize("nodes", [1, 2])
def test_frames_whose_merge_columns_have_names_of_their_own(frames, spark, nodes):
    """The orders' `ts` is called `at`, and another column `ts`."""
    names = {"ts": "at", "n": "ts"}
    orders = od.Pipeline(RIGHT.rename_columns(names).schema, source="orders")
    joined = CLICKS.join_interval(
        orders.rename({"ts": "n", "at": "ts"}), on="user", within=(0, 5), how="full", time="ts"
    )
    tables = {"orders": RIGHT.rename_columns([names.get(name, name) for name in RIGHT.column_names])}
    renamed = frames["orders"].withColumnsRenamed({"n": "n2"}).withColumnsRenamed({"ts": "at", "n2": "ts"})
    merge_by = {"clicks": "ts", "orders": "at"}
    expected = run_serial(joined, {**tables, "clicks": LEFT}, merge_by=merge_by).table
    plain = CLICKS.join_interval(ORDERS, on="user", within=(0, 5), how="full", time="ts")
    assert expected.equals(run_serial(plain, {"orders": RIGHT, "clicks": LEFT}, merge_by="ts").table)
    given = {"orders": renamed, "clicks": frames["clicks"]}
    found = apply(joined, given, merge_by=merge_by, nodes=nodes)
    assert rows_of(found.toArrow()) == rows_of(expected)
    assert "cut: rows to nodes" in explain(joined, spark, nodes=2, merge_by=merge_by)
    with pytest.raises(od.PlanError, match="got one of 'clicks'"):
        apply(joined, given, merge_by={"clicks": "ts"}, nodes=nodes)


def test_what_is_not_cut_runs_in_one_node_and_says_so(frames, spark):
    hit, miss = od.Pipeline(SOURCE).branch(od.col("n") > 5)
    graph = od.union(hit.top_k(2, by="n", name="top"), miss.select("ts", "user", "item", "n"))
    why = "top has one state for all rows"
    assert why in explain(graph, spark, nodes=2).split("\n")[0]
    found = apply(graph, frames["clicks"].where("n < 50"), order_by="n", nodes=2)
    assert rows_of(found.toArrow()) == rows_of(run_serial(graph, LEFT.slice(0, 50)).table)


def test_a_null_to_merge_by_is_an_error_that_names_its_source(spark):
    nulls = spark.createDataFrame([(None, 1, "a", 1)], "ts long, user long, item string, n long")
    given = input_of(od.union(CLICKS, ORDERS), {"clicks": nulls, "orders": nulls}, None, "ts")
    plan = given.carried(["user"], ()).frame._jdf.queryExecution().analyzed().toString()
    for source in ("clicks", "orders"):  # a failing job would be tried again three times
        assert re.search(
            f"coalesce.*raise_error.*source '{source}': 'ts', by which it is merged, is null", plan
        )


def test_frames_that_do_not_fit_are_refused(frames, spark):
    both = od.union(CLICKS, ORDERS)
    for given, options, why in (
        (frames["clicks"], {"merge_by": "ts"}, "give a mapping of each to its DataFrame"),
        ({"clicks": frames["clicks"]}, {"merge_by": "ts"}, "got the frames 'clicks'"),
        (frames, {}, "say which column merges them"),
        (frames, {"merge_by": "ts", "presorted": True}, "which sorts them"),
    ):
        with pytest.raises(od.PlanError, match=why):
            apply(both, given, nodes=2, **options)
    with pytest.raises(od.PlanError, match="and is needed: "):
        apply(od.Pipeline(SOURCE), frames["clicks"])
    times = spark.createDataFrame(pa.table({"ts": [1], "user": [1], "item": ["a"], "n": [1]}))
    times = times.selectExpr("timestamp_micros(ts) as ts", "user", "item", "n")
    with pytest.raises(
        od.SchemaError, match="ts is timestamp in source 'clicks' and bigint in source 'orders'"
    ):
        apply(both, {"clicks": times, "orders": frames["orders"]}, merge_by="ts")


def two_frames_of_decimals(spark, first, second, wanted):
    """Eighths in one frame and whole numbers in the other, as Spark's decimals, and the same rows as the
    pipeline has them.
    """
    schema = pa.schema([("ts", pa.int64()), ("v", wanted)])
    values = {"a": [Decimal(n) / 8 for n in range(9)], "b": [Decimal(n) for n in range(9)]}
    tables = {
        name: pa.table({"ts": range(at, 18 + at, 2), "v": values[name]}, schema=schema)
        for at, name in enumerate("ab")
    }
    frames = {
        name: spark.createDataFrame(tables[name]).selectExpr("ts", f"cast(v as {kind}) as v")
        for name, kind in (("a", first), ("b", second))
    }
    return schema, tables, frames


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("first", "second"), [("decimal(20,4)", "decimal(10,0)"), ("decimal(4,3)", "decimal(38,3)")]
)
def test_decimals_of_two_frames_keep_their_digits(spark, first, second, nodes):
    schema, tables, frames = two_frames_of_decimals(spark, first, second, pa.decimal128(38, 3))
    united = od.union(od.Pipeline(schema, source="a"), od.Pipeline(schema, source="b")).key_by("v").count()
    expected = run_serial(united, tables, merge_by="ts").table
    assert rows_of(apply(united, frames, merge_by="ts", nodes=nodes).toArrow()) == rows_of(expected)


def test_decimals_that_no_decimal_of_spark_holds_are_not_rounded(spark):
    """Spark's union took 0.125 for 0: of 38 digits it spares those behind the point."""
    schema, _, frames = two_frames_of_decimals(spark, "decimal(10,4)", "decimal(38,0)", pa.decimal128(38, 4))
    ways = [od.Pipeline(schema, source=name) for name in "ab"]
    told = "v is decimal(10,4) in source 'a' and decimal(38,0) in source 'b', and no decimal of Spark's"
    with pytest.raises(od.SchemaError, match=re.escape(told)):
        apply(od.union(*ways), frames, merge_by="ts")
    keyed = [way.select("ts") for way in ways]
    with pytest.raises(
        od.SchemaError, match=re.escape("what order_by names is decimal(10,4) in source 'a'")
    ):
        apply(od.union(*keyed), frames, merge_by="ts", order_by="v")


def test_ties_of_a_frame_go_by_its_own_columns(spark, tmp_path):
    """Not in the order of the first source's columns, nor by those alone that the pipeline reads."""
    a, b = (
        pa.schema([(name, pa.int64()) for name in names]) for names in (("ts", "k", "s"), ("ts", "s", "k"))
    )
    first = pa.table({"ts": [1, 9], "k": [0, 0], "s": [0, 0]}, schema=a)
    second = pa.table({"ts": [5] * 4, "s": [1, 2, 3, 4], "k": [4, 3, 2, 1]}, schema=b)
    spark.createDataFrame(first).write.parquet(str(tmp_path / "a"))
    there = {"frame": spark.createDataFrame(first), "files": spark.read.parquet(str(tmp_path / "a"))}
    turned = spark.createDataFrame(second.take([2, 0, 3, 1]))
    for read in (["ts", "k", "s"], ["ts", "k"]):
        p = od.union(
            *(od.Pipeline(kind, source=name).select(*read) for name, kind in zip("ab", (a, b), strict=True))
        )
        expected = rows_of(run_serial(p, {"a": first, "b": second}, merge_by="ts").table)
        for what, nodes in (("frame", 1), ("files", 2)):
            found = apply(p, {"a": there[what], "b": turned}, merge_by="ts", nodes=nodes)
            assert rows_of(found.toArrow()) == expected, (read, what)
