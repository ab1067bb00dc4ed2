"""Any frame a user may have: its columns' names, its times in the session's zone, the order of its
partitions, a streaming one.
"""

import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_tools import rows_of

import ordstream as od
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark.errors.exceptions.captured import PythonException
from pyspark.sql import functions as F

from ordstream.spark import apply, node_function, shed_log, shed_rows
from ordstream.spark.columns import carry
from ordstream.spark.executor import SERIAL
from ordstream.spark.file_key import file_key
from ordstream.spark.numbering import numbered

pytestmark = pytest.mark.spark

HOSTILE = [
    "a.b",
    "A",
    "a",
    "`",
    "x y",
    " ",
    "c0",
    "d0",
    "o0",
    "_0",
    "value",
    "_metadata",
    "_tag",
    "partition",
    "é",
    "a`.`b",
    "count(1)",
]
HOSTILE += [f"__ordstream_{name}" for name in ("serial", "tag", "node", "file", "row")]


@pytest.fixture(params=["false", "true"])
def case_sensitive(spark, request):
    spark.conf.set("spark.sql.caseSensitive", request.param)
    yield
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.fixture
def new_york(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def hostile(spark, rows=60):
    """Every hostile name at once, values that tell columns apart; the last column is the order."""
    names = [*HOSTILE, "t.s"]
    table = pa.table(
        [[(n * (k + 3)) % (k + 2) for n in range(rows)] for k in range(len(HOSTILE))] + [list(range(rows))],
        names=names,
    )
    frame = (
        spark.createDataFrame(rows_of(table), [f"x{k}" for k in range(len(names))])
        .repartition(3)
        .toDF(*names)
    )
    return table, frame


@pytest.mark.parametrize("nodes", [1, 2, "auto"])
def test_users_columns_keep_their_names_and_values_whatever_they_are_called(spark, case_sensitive, nodes):
    table, frame = hostile(spark)
    passed = od.Pipeline(table.schema).filter(od.col("a.b") >= 0)
    found = apply(passed, frame, order_by=["t.s", "__ordstream_serial"], nodes=nodes).toArrow()
    assert found.schema.names == table.schema.names
    columns = [column.to_pylist() for column in found.columns]
    assert list(zip(*columns, strict=True)) == [tuple(row) for row in run_serial(passed, table).rows]


@pytest.mark.parametrize(
    ("nodes", "grouping", "presorted"),
    [(1, "hash", False), (2, "hash", True), (3, "dkg", False), (2, "dkg", True)],
)
@pytest.mark.thin(2)
def test_keys_states_and_order_may_have_any_name(spark, nodes, grouping, presorted):
    names = ["t.s", "a.b", "__ordstream_node", "__ordstream_tag", "__ordstream_serial", "A", "a", "`"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    table = pa.table(
        [list(range(90)), *([(n * k) % (k + 1) for n in range(90)] for k in range(2, 9))], schema=schema
    )
    pipeline = (
        od.Pipeline(schema).key_by("a.b", "a").scan(**{"__ordstream_row": od.count(), "value": od.sum("`")})
    )
    pipeline = pipeline.key_by("__ordstream_node").scan(
        **{"x.y": od.last("value"), "__ordstream_file": od.max("t.s")}
    )
    frame = spark.createDataFrame(rows_of(table), [f"x{k}" for k in range(len(names))])
    frame = frame.orderBy("x0").toDF(*names) if presorted else frame.repartition(3).toDF(*names)
    found = apply(
        pipeline, frame, order_by="t.s", nodes=nodes, grouping=grouping, presorted=presorted, tags=True
    ).toArrow()
    serial = run_serial(pipeline, table)
    assert found.schema.names == [*pipeline.schema.names, "_serial", "_index"]
    columns = [column.to_pylist() for column in found.columns]
    assert list(zip(*columns[:-2], strict=True)) == [tuple(row) for row in serial.rows]
    assert list(zip(*columns[-2:], strict=True)) == serial.tags


def test_functions_in_front_and_posg_see_any_name(spark):
    schema = pa.schema([("a.b", pa.int64()), ("__ordstream_node", pa.int64())])
    table = pa.table([list(range(60)), [n % 7 for n in range(60)]], schema=schema)
    pipeline = od.Pipeline(schema).map(tuple, schema=schema, name="f").key_by("__ordstream_node").count("a")
    frame = spark.createDataFrame(rows_of(table), ["x", "y"]).repartition(3).toDF(*schema.names)
    expected = [tuple(row) for row in run_serial(pipeline, table).rows]
    for grouping in ("posg", {"f": "posg", "count_2": "dkg"}):
        assert (
            rows_of(apply(pipeline, frame, order_by="a.b", nodes=2, grouping=grouping).toArrow()) == expected
        )


def test_what_is_shed_has_its_names_too(spark):
    schema = pa.schema([("a.b", pa.int64()), ("x y", pa.int64()), ("__ordstream_serial", pa.string())])
    table = pa.table(
        [list(range(400)), [n % 5 for n in range(400)], [f"k{n % 3}" for n in range(400)]], schema=schema
    )
    frame = spark.createDataFrame(rows_of(table), ["x", "y", "z"]).toDF(*schema.names)
    pipeline = od.Pipeline(schema).shed(
        "1ms", "__ordstream_serial", frozen=od.Frozen(rate=1e9, seed=7), model=model(), side_output=True
    )
    pipeline = pipeline.key_by("x y").count()
    log = shed_log(pipeline, frame, order_by="a.b").toArrow()
    aside = shed_rows(pipeline, frame, order_by="a.b").toArrow()
    assert 0 < log.num_rows == aside.num_rows < 400
    assert aside.schema.names == [*schema.names, "_partition", "_serial", "_index"]
    kept = aside.select([0, 1, 2])
    assert kept.column(0).to_pylist() == [serial - 1 for serial in log["serial"].to_pylist()]
    assert kept.column(2).to_pylist() == [f"k{n % 3}" for n in kept.column(0).to_pylist()]


@pytest.mark.parametrize("order", ["total", "by_key"])
def test_the_output_of_a_sink_is_read_as_it_is_called(spark, order):
    """Its columns have the names of a tag's, which nobody asks for here."""
    table = pa.table({"_serial": list(range(60)), "_index": [n % 3 for n in range(60)], "v": [7] * 60})
    counted = od.Pipeline(table.schema).key_by("_index").scan(s=od.sum("v")).key_by("s").scan(n=od.count())
    frame = spark.createDataFrame(rows_of(table), table.schema.names).repartition(3)
    found = rows_of(apply(counted, frame, order_by="_serial", nodes=2, order=order).toArrow())
    expected = [tuple(row) for row in run_serial(counted, table).rows]
    assert (found if order == "total" else sorted(found)) == expected


@pytest.mark.parametrize("name", ["_partition", "_serial", "_index"])
def test_columns_that_are_added_take_no_name_of_the_user_s(spark, name):
    schema = pa.schema([("k", pa.string()), (name, pa.int64())])
    frame = spark.createDataFrame([("k0", 1)], ["k", name])
    sheds = (
        od.Pipeline(schema)
        .shed("1ms", "k", frozen=od.Frozen(rate=1e9), model=model(), side_output=True)
        .key_by("k")
        .count()
    )
    with pytest.raises(od.SchemaError, match=f"shed_rows adds a column '{name}'"):
        shed_rows(sheds, frame, order_by=name)
    if name != "_partition":
        passed = od.Pipeline(schema).filter(od.col(name) > 0)
        for nodes in (1, 2):
            with pytest.raises(od.SchemaError, match=f"tags=True adds a column '{name}'"):
                apply(passed, frame, order_by=name, nodes=nodes, tags=True)
        for more in ({}, {"processes": 2}):
            with pytest.raises(od.SchemaError, match=f"tags=True adds a column '{name}'"):
                passed.run(pa.table({"k": ["a"], name: [1]}), tags=True, **more)


def model():
    from ordstream.balance.sketches import ExecutionTimes

    made = ExecutionTimes(0.05, 0.1)
    made.update_many(["k0", "k1", "k2"] * 40, np.full(120, 1e6))
    return made


# ------------------------------------------------------------------------------------------------ times


def instants(count=400, seed=5):
    """Microseconds since 1970: around New York's changes of the clock, before 1883, negative, after
    2037, anywhere.
    """
    draw = random.Random(seed)
    changes = [1_710_054_000, 1_730_613_600, -2_717_650_800, 2_236_220_400, -84_387_600]
    near = [
        change * 1_000_000 + draw.randint(-7_200_000_000, 7_200_000_000)
        for change in changes
        for _ in range(count // 10)
    ]
    return near + [draw.randint(-(10**16), 10**16) for _ in range(count - len(near))]


@pytest.mark.parametrize("nodes", [1, 2])
def test_times_are_cast_as_spark_casts_them(new_york, nodes):
    """Every pair of a time in Spark and one in a pipeline, of the same instants and readings, gaps and
    overlaps among them.
    """
    spark, rows = new_york, [(n, micros) for n, micros in enumerate(instants())]
    base = spark.createDataFrame(rows, "n long, us long").select(
        "n",
        F.expr("timestamp_micros(us)").alias("i"),
        F.expr(
            "cast(timestamp'1970-01-01 00:00:00Z' as timestamp_ntz) + make_dt_interval(0, 5, 0, us / 1e6)"
        ).alias("w"),
    )
    base = base.selectExpr("n", "i", "w", "cast(w as date) as d", "array(i, i) as li", "array(w) as lw")
    pairs = ["i_i", "i_w", "i_d", "w_i", "w_w", "w_d", "d_i", "d_w", "li_w", "lw_i"]
    frame = base.select("n", *(F.col(pair.split("_")[0]).alias(pair) for pair in pairs))
    kinds = {"i": pa.timestamp("us", "UTC"), "w": pa.timestamp("us"), "d": pa.date32()}
    types = {name: kinds[name[-1]] for name in frame.columns if name != "n"}
    schema = pa.schema(
        [
            ("n", pa.int64()),
            *((name, pa.list_(kind) if name[0] == "l" else kind) for name, kind in types.items()),
        ]
    )
    sql = {"i": "timestamp", "w": "timestamp_ntz", "d": "date"}
    cast = [
        F.col(c).cast(f"array<{sql[c[-1]]}>" if c[0] == "l" else sql[c[-1]]).alias(c)
        for c in frame.columns
        if c != "n"
    ]
    expected = frame.select("n", *cast).orderBy("n")
    found = apply(od.Pipeline(schema), frame, order_by="n", nodes=nodes)
    assert found.dtypes == expected.dtypes
    ours, theirs = found.toArrow(), expected.toArrow()
    for name in schema.names:
        assert ours[name].cast(theirs.schema.field(name).type).equals(theirs[name]), name
    assert ours["i_w"].to_pylist() != ours["i_i"].cast(pa.timestamp("us")).to_pylist()  # the zone is not UTC


def test_units_zones_and_order_of_times(new_york):
    spark = new_york
    # 01:30 and 01:10 of the hour that the clocks show twice: in order as instants, not as readings
    frame = spark.sql(
        "select timestamp_seconds(s) as t, timestamp_seconds(s) as u "
        "from values (1730611800), (1730614200) as v(s)"
    )
    reading = ["2024-11-03 01:30:00", "2024-11-03 01:10:00"]
    for unit in ("s", "ms", "us", "ns"):
        schema = pa.schema([("t", pa.timestamp(unit)), ("u", pa.timestamp(unit, "Asia/Tokyo"))])
        for nodes in (1, 2) if unit == "s" else (1,):
            for presorted in (False, True):
                found = apply(
                    od.Pipeline(schema), frame, order_by="t", nodes=nodes, presorted=presorted
                ).toArrow()
                assert [str(value) for value in found["t"].to_pylist()] == reading
                assert found["u"].cast(pa.int64()).to_pylist() == [1730611800000000, 1730614200000000]
    day = od.Pipeline(pa.schema([("t", pa.date32())])).key_by("t").count()
    late = spark.sql("select timestamp_ntz'2024-06-01 23:30:00' as w, timestamp'2024-06-01 23:30:00' as t")
    assert str(apply(day, late, order_by="w").toArrow()["t"].to_pylist()) == "[datetime.date(2024, 6, 1)]"


def test_a_node_of_one_s_own_refuses_to_take_an_instant_for_a_reading(new_york):
    spark = new_york
    for given, read in (
        ("timestamp", pa.timestamp("us")),
        ("timestamp", pa.date32()),
        ("timestamp_ntz", pa.timestamp("us", "UTC")),
    ):
        frame = spark.sql(f"select {given}'2024-06-01 12:00:00' as t")
        function, schema = node_function(od.Pipeline(pa.schema([("t", read)])))
        with pytest.raises(Exception, match=r"column 't' arrives as timestamp.*Cast it in Spark first"):
            frame.mapInArrow(function, schema).collect()
    function, schema = node_function(od.Pipeline(pa.schema([("t", pa.timestamp("us", "UTC"))])))
    one = spark.sql("select timestamp'2024-06-01 12:00:00' as t")
    assert spark.createDataFrame(one.rdd.mapPartitions(function), schema).collect() == one.collect()


# -------------------------------------------------------------------------- the order of partitions


def in_fragments(spark, wrong=False):
    """Rows in ties of nine over six partitions, of which Spark's `coalesce` takes the last three first:
    they are cached.
    """
    first, last = spark.range(0, 3_000, 1, 3), spark.range(3_000, 6_000, 1, 3).cache()
    assert last.count() == 3_000
    moved = F.when(F.col("id") == 4_321, 0).otherwise(F.col("id")) if wrong else F.col("id")
    return first.union(last).select(
        (moved / 9).cast("long").alias("ts"), (F.col("id") % 7).alias("user"), F.col("id").alias("n")
    ), last


@pytest.mark.parametrize("nodes", [*([1] if "ORDSTREAM_LONG" in os.environ else []), 2])
def test_presorted_partitions_are_taken_in_their_order(spark, nodes):
    schema = pa.schema([(name, pa.int64()) for name in ("ts", "user", "n")])
    table = pa.table(
        [[n // 9 for n in range(6_000)], [n % 7 for n in range(6_000)], list(range(6_000))], schema=schema
    )
    pipeline = od.Pipeline(schema).key_by("user").scan(seen=od.count(), latest=od.last("n"))
    fronted = od.Pipeline(schema).map(tuple, schema=schema).key_by("user").scan(seen=od.count())
    frame, cached = in_fragments(spark)
    for one in (pipeline, fronted):
        found = apply(one, frame, order_by="ts", nodes=nodes, presorted=True).toArrow()
        assert rows_of(found) == [tuple(row) for row in run_serial(one, table).rows]
    cached.unpersist()
    wrong, cached = in_fragments(spark, wrong=True)
    for one in (fronted, pipeline) if "ORDSTREAM_LONG" in os.environ else (fronted,):
        with pytest.raises(Exception, match=r"row 4322 of the source comes before row \d+ in the order ts"):
            apply(one, wrong, order_by="ts", nodes=nodes, presorted=True).collect()
    cached.unpersist()


def test_rows_of_one_partition_are_neither_moved_nor_sorted(spark):
    schema = pa.schema([("id", pa.int64())])
    counts = od.Pipeline(schema).key_by("id").count()
    ordered = spark.range(0, 100, 1, 4)
    plans = [
        apply(counts, frame, order_by="id", presorted=True)
        for frame in (ordered.coalesce(1), ordered, ordered.union(ordered))
    ]
    texts = [plan._jdf.queryExecution().executedPlan().toString() for plan in plans]
    assert [text.count("Sort") + text.count("Exchange") for text in texts] == [0, 0, 1]


FILES = {
    "one folder": ["b-2.parquet", "a.parquet", "b-10.parquet", "b.parquet"],
    "numbered": [f"part-{n:05}-c000.parquet" for n in (10, 7, 0, 123)],
    "one file": ["a.parquet"],
    "several folders": ["d=2/a.parquet", "d=1/a.parquet", "d=1/b.parquet"],
    "spelt in two ways": ["b c.parquet", "b%20a.parquet", "é.parquet", "a.parquet"],
}


@pytest.mark.parametrize("names", FILES.values(), ids=FILES)
@pytest.mark.parametrize("order", ["total", "none"])
@pytest.mark.thin(4)
def test_rows_that_tie_come_by_file_and_row(spark, tmp_path, names, order):
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    for number, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        found = pa.table(
            [[n // 20 for n in range(60)], [100 * number - n for n in range(60)]], schema=schema
        )
        pq.write_table(found, path)
    frame = spark.read.parquet(*(str(tmp_path / name) for name in names))
    by_path = "file_path" in repr(file_key(carry(frame, schema, ["n"], ["ts"]).frame)[0])
    assert by_path == (names in (FILES["several folders"], FILES["spelt in two ways"]))
    place = frame.select("ts", "_metadata.file_path", "_metadata.row_index", "n").collect()
    wanted = [
        row.n for row in sorted(place, key=lambda row: (row.ts, row.file_path.encode(), row.row_index))
    ]
    keyed = od.Pipeline(schema).with_columns(k=od.lit(0)).key_by("k").cum_count("place")
    found = apply(keyed, frame, order_by="ts", nodes=2, order=order).collect()
    assert [row.n for row in sorted(found, key=lambda row: row.place)] == wanted


# -------------------------------------------------------------------------------- a streaming frame


def test_a_streaming_frame_is_refused(spark):
    rate = spark.readStream.format("rate").load().selectExpr("value as ts", "value as user")
    pipeline = od.Pipeline(pa.schema([("ts", pa.int64()), ("user", pa.int64())])).key_by("user").count()
    for use in (apply, shed_log, shed_rows):
        for more in ({}, {"presorted": True}):
            with pytest.raises(od.PlanError, match=r"runs with od\.spark\.stream\(pipeline"):
                use(pipeline, rate, order_by="ts", **more)
    with pytest.raises(od.PlanError, match="streaming"):
        apply(pipeline, rate, order_by="ts", nodes=2, presorted=True)


#: More take a minute of Spark's planner.
COLUMNS = 1_500 if "ORDSTREAM_LONG" in os.environ else 500


def test_a_frame_of_many_columns_without_a_place_is_cut_into_ranges(spark):
    """Ties are told apart by every column. With ranges that are cut by so many, Spark's planner overflows
    Java's stack (a thousand lines), or finds no end.
    """
    table = pa.table({f"c{n}": [n % 7, 1, n % 3] for n in range(COLUMNS)})
    carried = carry(spark.createDataFrame(table), table.schema, table.column_names, ["c1"])
    in_order = table.sort_by([(name, "ascending") for name in ("c1", *table.column_names)])
    found = numbered(carried, False, 2).orderBy(SERIAL).drop(SERIAL).toArrow()
    assert rows_of(found) == rows_of(in_order)


@pytest.mark.parametrize("nodes", [1, 2])
def test_rows_that_are_cached_are_those_of_the_cache(spark, tmp_path, nodes):
    """They were read from their files again: others, where a function draws them; gone with the files."""
    spark.range(60).selectExpr("id", "id % 5 k").repartition(3).write.parquet(f"file:{tmp_path}/rows")
    drawn = F.udf(lambda _: random.random(), "double").asNondeterministic()
    kept = spark.read.parquet(f"file:{tmp_path}/rows").withColumn("x", drawn("id")).cache()
    try:
        rows = kept.orderBy("id").toArrow()
        for file in (tmp_path / "rows").iterdir():
            file.unlink()
        sums = od.Pipeline(kept.where("x < 2")).key_by("k").scan(sum=od.sum("x"))
        found = apply(sums, kept.where("x < 2"), order_by="id", nodes=nodes).toArrow()
        assert rows_of(found) == rows_of(run_serial(sums, rows).table)
        with pytest.raises(od.PlanError, match="does not say where a row stands"):
            apply(sums, kept, order_by=())
    finally:
        kept.unpersist()


def test_tags_of_rows_that_are_others_at_each_reading_are_refused(spark):
    """What the end causes had a serial in front of others, or twice."""
    some = F.udf(lambda _: random.random() < 0.5, "boolean").asNondeterministic()
    rows = spark.range(200).selectExpr("id", "id % 7 k").withColumn("r", F.rand())
    later = od.Pipeline(rows).key_by("k").lead("id")
    with pytest.raises(od.PlanError, match="tags=True counts the rows in a query of their own"):
        apply(later, rows.where(some("id")), order_by="id", nodes=3, tags=True)
    apply(later, rows, order_by="id", nodes=3, tags=True)  # a column may be others
    found = apply(later, rows.where(some("id")), order_by="id", nodes=1, tags=True).collect()
    tags = [(row._serial, row._index) for row in found]
    assert tags == sorted(set(tags))


def test_rows_that_lie_in_order_and_are_others_at_each_reading_keep_it(spark):
    """Serials were counted in one reading and given in the next: they came twice, and rows out of order."""
    some = F.udf(lambda _: random.random() < 0.5, "boolean").asNondeterministic()
    rows = spark.range(0, 200, 1, 4).selectExpr("id", "id % 90 k").where(some("id"))
    counted = od.Pipeline(rows).key_by("k").cum_count()
    for order_by in ((), "id", ()):
        found = apply(counted, rows, order_by=order_by, nodes=4, presorted=True).toArrow()
        assert rows_of(found) == rows_of(run_serial(counted, found.select(["id", "k"]).sort_by("id")).table)


@pytest.mark.parametrize("nodes", [1, 2])
def test_times_that_spark_can_not_hold_are_told(spark, nodes):
    table = pa.table({"k": [1, 2], "ts": [1, 2]})
    schema = {"k": int, "at": pa.timestamp("ns")}
    fine = od.Pipeline(table.schema).map(lambda row: (row.k, np.datetime64(1_001, "ns")), schema=schema)
    frame = spark.createDataFrame(table)
    with pytest.raises(Exception, match=r"column 2.* of the output is timestamp\[ns\].*lose data: 1001"):
        apply(fine, frame, order_by="ts", nodes=nodes).collect()
    rounded = fine.with_columns(at=od.col("at").dt.truncate("1us"))
    assert apply(rounded, frame, order_by="ts", nodes=nodes).count() == 2


def test_an_iterator_ends_with_the_error_of_the_task(spark):
    """PySpark's is a Py4JJavaError, with the operator and the row somewhere among Java's frames."""
    table = pa.table({"k": [1, 2, 0]})
    pipeline = od.Pipeline(table.schema).map(lambda row: (1 // row.k,), schema={"y": int})
    with pytest.raises(PythonException, match="'map_1' failed at serial 1: ZeroDivisionError"):
        list(apply(pipeline, spark.createDataFrame(table), order_by="k").toLocalIterator())
    whole = od.Pipeline(table.schema).map(lambda row: (row.k + 1,), schema={"y": int})
    frame = apply(whole, spark.createDataFrame(table), order_by="k")
    assert [row.y for row in frame.toLocalIterator(True)] == [1, 2, 3]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "-8"])
def test_a_node_here_takes_a_frame_of_spark(spark, zone):
    """PySpark's own export ends in an AssertionError where a column is a timestamp."""
    former = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        at = F.timestamp_seconds(F.col("id") * 86_400)
        frame = spark.range(3).select(
            "id",
            at.alias("at"),
            F.array(at).alias("several"),
            F.struct(at.alias("inside")).alias("packed"),
            at.cast("timestamp_ntz").alias("plain"),
        )
        pipeline = od.Pipeline(frame)
        found = pipeline.run(frame).table
        joined = od.Pipeline({"id": pa.int64()}).join_lookup(frame, on="id").schema
    finally:
        spark.conf.set("spark.sql.session.timeZone", former)
    assert found.schema == pipeline.schema
    assert found["at"].cast(pa.int64()).to_pylist() == [0, 86_400_000_000, 2 * 86_400_000_000]
    assert joined.field("at").type == pipeline.schema.field("at").type


def test_a_streaming_frame_is_no_table(spark):
    rates = spark.readStream.format("rate").load()
    with pytest.raises(od.SourceError, match=r"a streaming DataFrame of Spark goes to od\.spark\.stream\("):
        od.Pipeline(rates).run(rates)
