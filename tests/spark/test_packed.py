"""Structs, maps and lists of anything through Spark: what comes out is `run_serial`'s, value for value, in
its order.
"""

import datetime as dt
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packed_columns import PACKED, SCHEMA, shown, table

import ordstream as od
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, StringType, StructField, StructType

from ordstream.spark import apply, node_function, spark_schema

pytestmark = pytest.mark.spark
# Spark's workers don't have the folder of the tests on their path
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def in_zone(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


def frame_of(spark, rows, parts=3):
    """The rows as a frame, in any order: Spark makes one of no Arrow table with times in structs."""
    data = pa.BufferOutputStream()
    with pa.ipc.new_stream(data, rows.schema) as writer:
        writer.write_table(rows)
    data = data.getvalue().to_pybytes()

    def batches(rows):
        import pyarrow as pa

        for _ in rows:  # Spark ends a worker that leaves some, and the next one takes two seconds to start
            pass
        yield from pa.ipc.open_stream(data)

    made = spark.range(0, 1, 1, 1).mapInArrow(batches, spark_schema(rows.schema))
    return made.repartition(parts, "n")


PIPELINES = {
    "passed": lambda p: p.filter(od.col("s").is_not_null()),
    "fields": lambda p: p.with_columns(
        text=od.col("s").struct.field("a.b"),
        at=od.col("s").struct.field("in").struct.field("moment").struct.field("at"),
        many=od.col("words").length(),
        none=od.col("m").is_null(),
    ),
    "words": lambda p: (
        p.with_columns(word=od.col("words").list.join(" ").str.split(" "), item=od.col("items").list.get(0))
        .flat_map(od.explode("word", carry=["n", "item"]))
        .key_by("word")
        .scan(seen=od.count(), a=od.last("item"))
    ),
    "exploded": lambda p: p.flat_map(od.explode("words")).key_by("words").count("seen"),
    "a function": lambda p: p.map(tuple, schema=p.schema),
    "first and last": lambda p: p.key_by("k").scan(
        **{f"{fold.__name__} {name}": fold(name) for name in PACKED for fold in (od.first, od.last)}
    ),
    "best": lambda p: p.key_by("k").top_k(3, by="n", rank="place"),
    "latest": lambda p: p.deduplicate("k", keep="last"),
    "two keys": lambda p: (
        p.key_by("k").lag({"before": "s", "then": "m"}).key_by("n").scan(at=od.arg_max("deep", "n"))
    ),
    "filled": lambda p: p.key_by("k").forward_fill(*PACKED),
}


@pytest.mark.parametrize(
    ("name", "zone"), [*((name, "America/New_York") for name in PIPELINES), ("first and last", "UTC")]
)
@pytest.mark.thin(5)
def test_packed_columns_are_as_in_a_sequential_run(spark, in_zone, name, zone):
    in_zone(zone)
    rows, make = table(range(200)), PIPELINES[name]
    expected = shown(run_serial(make(od.Pipeline(SCHEMA)), rows).table)
    frame = frame_of(spark, rows)
    for given, some in ((SCHEMA, (None, 2) if zone == "UTC" else (2,)), (frame, (1, 3))):
        pipeline = make(od.Pipeline(given))
        for nodes in some:
            assert shown(apply(pipeline, frame, order_by="n", nodes=nodes).toArrow()) == expected, nodes
    found = apply(pipeline, frame, order_by="n", nodes=2, order="none").toArrow()
    assert sorted(shown(found)) == sorted(expected)


def test_the_rows_of_a_key_stay_in_order(spark):
    rows = table(range(300))
    pipeline = od.Pipeline(SCHEMA).key_by("k").lag({"before": "s", "then": "times"})
    expected = run_serial(pipeline, rows).table
    found = apply(pipeline, frame_of(spark, rows), order_by="n", nodes=3, order="by_key").toArrow()
    for key in (None, 0, 1, 2, 3, 4):
        of_key = [[one for one in rows.to_pylist() if one["k"] == key] for rows in (found, expected)]
        got, wanted = (shown(pa.Table.from_pylist(one, expected.schema)) for one in of_key)
        assert got == wanted
        assert wanted


@pytest.mark.parametrize("count", [0, 1, 20_000 if "ORDSTREAM_LONG" in os.environ else 4_000])
def test_no_row_one_and_many(spark, count):
    rows = table(range(count))
    pipeline = od.Pipeline(SCHEMA).key_by("k").scan(was=od.first("s"), l=od.last("items"))
    expected = shown(run_serial(pipeline, rows).table)
    frame = frame_of(spark, rows)
    for nodes in (1, 2):
        found = apply(pipeline, frame, order_by="n", nodes=nodes).toArrow()
        assert shown(found) == expected
        assert found.schema.names == pipeline.schema.names


# ------------------------------------------------------------------------------------------------ types

DEEPEST = "'x'"
for _ in range(60):
    DEEPEST = f"named_struct('a', {DEEPEST})"

PASSES = (
    "named_struct('a', 1)", "if(n % 2 = 0, null, named_struct('a', n))", "named_struct()",
    "if(n % 2 = 0, null, named_struct())", "array(named_struct())", "null", "array(null)", "array()",
    "named_struct('a', null, 'b', array())", "map('a', null)", "map(n, named_struct('z', array(map(1, 2))))",
    "array(make_dt_interval(1))", "array(1.25BD)", "array(X'00', null)", "array('a', null)",
    "map(struct(n), array(cast('x' as char(3))))", "named_struct('a', 1, 'A', 2, 'ä ö.ü`', 3)",
    "array(collate('x', 'UTF8_LCASE'))",
    "named_struct('a.b', map('q', collate('Y', 'UTF8_LCASE')), 'b', array(collate('y', 'UNICODE_CI')))",
    "if(n = 1, null, map(collate('Y', 'UTF8_LCASE'), collate('y', 'UNICODE')))", DEEPEST,
)  # fmt: skip


@pytest.mark.parametrize("sql", PASSES, ids=range(len(PASSES)))
@pytest.mark.thin(8)
def test_what_spark_hands_over_comes_back_under_its_type(spark, sql):
    frame = spark.range(5).toDF("n").selectExpr("n", f"{sql} as c")
    pipeline = od.Pipeline(frame).key_by("n").scan(seen=od.count())
    for nodes in (1, 2):
        found = apply(pipeline, frame, order_by="n", nodes=nodes)
        assert found.schema["c"].dataType.simpleString() == frame.schema["c"].dataType.simpleString()
        assert found.drop("seen").collect() == frame.orderBy("n").collect()


def test_a_type_of_the_user_s_passes_and_what_is_made_of_it_is_what_it_is_stored_as(spark):
    objects = pytest.importorskip("pyspark.testing.objects")
    kind = StructType(
        [StructField("n", DoubleType()), StructField("p", ArrayType(objects.ExamplePointUDT()))]
    )
    frame = spark.createDataFrame([(1.0, [objects.ExamplePoint(1.0, 2.0)]), (2.0, None)], kind)
    for nodes in (1, 2):
        found = apply(od.Pipeline(frame), frame, order_by="n", nodes=nodes).collect()
        assert found == [(1.0, [objects.ExamplePoint(1.0, 2.0)]), (2.0, None)]
        made = od.Pipeline(frame).key_by("n").aggregate(last=od.last("p"), emit="final")
        found = apply(made, frame, order_by="n", nodes=nodes).collect()
        assert found == [(1.0, [[1.0, 2.0]]), (2.0, None)]


SWAPPED = pa.schema(
    [
        ("n", pa.int64()),
        (
            "c",
            pa.struct(
                [
                    ("instant", pa.timestamp("us")),
                    ("wall", pa.timestamp("us", "UTC")),
                    ("days", pa.list_(pa.date32())),
                    ("m", pa.map_(pa.int32(), pa.timestamp("ms", "Asia/Tokyo"))),
                ]
            ),
        ),
    ]
)
TIMES = (
    "select 1L n, named_struct('instant', timestamp'2024-07-01 23:00:00', 'wall', "
    "timestamp_ntz'2024-03-10 02:30:00', 'days', array(timestamp'2024-07-01 23:00:00', null), 'm', "
    "map(1, timestamp_ntz'2024-07-01 10:00:00')) c"
)


def test_instants_and_wall_clocks_inside_are_cast_by_the_session_s_zone(spark, in_zone):
    in_zone("America/New_York")
    frame = spark.sql(TIMES)
    wanted = frame.select(
        "n",
        F.col("c").cast(
            "struct<instant:timestamp_ntz,wall:timestamp,days:array<date>,m:map<int,timestamp>>"
        ),
    )
    for nodes in (1, 2):
        pipeline = od.Pipeline(SWAPPED).key_by("n").scan(seen=od.count())
        found = apply(pipeline, frame, order_by="n", nodes=nodes).drop("seen")
        assert found.collect() == wanted.collect()
        assert str(found.toArrow()["c"].to_pylist()) == str(wanted.toArrow()["c"].to_pylist())
    function, schema = node_function(od.Pipeline(SWAPPED))
    with pytest.raises(Exception, match="an instant is no reading of a wall clock"):
        frame.mapInArrow(function, schema).collect()


def test_rows_of_an_rdd(spark):
    frame = spark.sql(f"{TIMES} union all select 2L, null")
    function, schema = node_function(od.Pipeline(frame))
    found = spark.createDataFrame(frame.rdd.mapPartitions(function), schema)
    assert found.orderBy("n").collect() == frame.orderBy("n").collect()


TEXTS = pa.list_(pa.field("x", pa.string(), False))
STRICT_STRUCT = pa.struct([pa.field("a", pa.int64(), False), pa.field("l", TEXTS, False)])
STRICT = pa.schema([("n", pa.int64()), ("c", STRICT_STRUCT)])
NULLABLE = "named_struct('a', if(n > 9, null, n), 'l', if(n > 9, null, array(if(n > 9, null, 'x'))))"


@pytest.mark.parametrize(
    "sql",
    [
        "named_struct('a', n, 'l', array('x'))",
        "if(n % 2 = 0, null, named_struct('a', n, 'l', array('x')))",
        NULLABLE,
        f"if(n = 0, null, {NULLABLE})",
    ],
)
@pytest.mark.parametrize("schema", [STRICT, None])
@pytest.mark.thin(3)
def test_what_is_declared_without_nulls_inside_may_come_as_nullable(spark, sql, schema):
    frame = spark.range(5).toDF("n").selectExpr("n", f"{sql} as c")
    pipeline = od.Pipeline(schema or frame).key_by("n").scan(was=od.last("c"))
    for nodes in (1, 2):
        found = apply(pipeline, frame, order_by="n", nodes=nodes).select("n", "was").collect()
        assert found == frame.orderBy("n").collect()


def test_but_no_null_is_taken_for_a_value(spark):
    frame = spark.range(5).toDF("n").selectExpr("n", "named_struct('a', nullif(n, 3), 'l', array('x')) as c")
    with pytest.raises(Exception, match=r"column 'c', value .*: 'a' is declared without nulls, and"):
        apply(od.Pipeline(STRICT), frame, order_by="n").collect()


WIDE = pa.schema(
    [
        ("n", pa.int64()),
        (
            "c",
            pa.struct(
                [
                    ("u", pa.uint64()), ("h", pa.float16()), ("f", pa.list_(pa.int32(), 2)),
                    ("b", pa.binary(2)), ("t", pa.timestamp("ns", "UTC")), ("d", pa.decimal256(30, 2)),
                    ("v", pa.large_string()), ("l", pa.large_list(pa.uint8())),
                ]
            ),
        ),
        ("id", pa.uuid()),
    ]
)  # fmt: skip


def test_types_that_spark_has_not_come_as_the_next_wider_ones(spark):
    frame = (
        spark.range(5)
        .toDF("n")
        .selectExpr(
            "n",
            "named_struct('u', n, 'h', 1.5F, 'f', array(1, 2), 'b', X'0102', 't', "
            "timestamp'2024-07-01 10:00:00', 'd', 1.25BD, 'v', 'x', 'l', array(1S)) as c",
            "cast('0123456789abcdef' as binary) as id",
        )
    )
    pipeline = od.Pipeline(WIDE).key_by("n").scan(was=od.last("c"), known=od.last("id"))
    wanted = [[*row, row.c, row.id] for row in frame.orderBy("n").collect()]
    for nodes in (1, 2):
        found = apply(pipeline, frame, order_by="n", nodes=nodes)
        assert found.schema["was"].dataType.simpleString() == (
            "struct<u:decimal(20,0),h:float,f:array<int>,b:binary,t:timestamp,d:decimal(30,2),v:string,"
            "l:array<smallint>>"
        )
        assert [list(row) for row in found.collect()] == wanted


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (pa.month_day_nano_interval(), "which Spark can't carry"),
        (pa.struct([("a", pa.list_(pa.month_day_nano_interval()))]), "which Spark can't carry"),
        (pa.decimal256(50, 2), "which Spark can't carry"),
        (pa.map_(pa.string(), pa.decimal128(5, -2)), "which Spark can't carry"),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "two fields of one name in a struct"),
    ],
)
def test_what_spark_has_no_type_for_is_a_sentence(type_, why):
    with pytest.raises(od.SchemaError, match=rf"^column 'c' has type .*{why}$"):
        spark_schema(pa.schema([("c", type_)]))


@pytest.mark.parametrize(
    "reads",
    [
        pa.struct([("b", pa.int64())]), pa.struct([("a", pa.string())]), pa.int64(), pa.list_(pa.int64()),
        pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.map_(pa.string(), pa.int64()),
    ],
)  # fmt: skip
def test_a_struct_is_read_as_one_with_the_same_fields_only(spark, reads):
    frame = spark.range(2).toDF("n").selectExpr("n", "named_struct('a', n) as c")
    pipeline = od.Pipeline(pa.schema([("n", pa.int64()), ("c", reads)]))
    with pytest.raises(od.SchemaError, match=r"column 'c' is struct<a:bigint>, and the pipeline reads"):
        apply(pipeline, frame, order_by="n")


# ------------------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("nodes", [1, 2])
def test_rows_in_ties_are_told_apart_by_their_structs_and_maps(spark, nodes):
    told = "named_struct('m', map('k', array(map(n, 1)))) as c", "map(named_struct('q', n), 1) as d"
    rows = spark.range(60).toDF("n").selectExpr("1 as ts", *told)
    pipeline = od.Pipeline(rows)
    kept = []
    for seed in (1, 2, 3):
        mixed = rows.orderBy(F.rand(seed)).repartition(4)
        found = apply(pipeline, mixed, order_by="ts", nodes=nodes).collect()
        kept.append([str(row) for row in found])
    assert kept[0] == kept[1] == kept[2]
    keys = [int(next(iter(row.c.m["k"][0]))) for row in found]
    assert keys == sorted(keys)
    assert len(keys) == 60


@pytest.mark.parametrize("key", ["c", "m", "l"])
def test_by_none_of_them_rows_are_ordered_or_keyed(spark, key):
    frame = (
        spark.range(2)
        .toDF("n")
        .selectExpr("n", "named_struct('a', n) as c", "map(1, n) as m", "array('x') as l")
    )
    with pytest.raises(od.PlanError, match="by which a node can't compare rows"):
        apply(od.Pipeline(frame), frame, order_by=key)
    with pytest.raises(od.SchemaError, match="can't be a key"):
        od.Pipeline(frame).key_by(key)


def test_texts_inside_with_a_collation_are_not_compared_by_their_bytes(spark):
    frame = spark.range(3).toDF("n").selectExpr("n", "array(collate('x', 'UTF8_LCASE')) as c")
    pipeline = od.Pipeline(frame).flat_map(od.explode("c")).key_by("c").count()
    with pytest.raises(
        od.SchemaError, match=r"has texts inside with the collation UTF8_LCASE.*array<string>"
    ):
        apply(pipeline, frame, order_by="n")
    decided = frame.withColumn("c", F.col("c").cast(ArrayType(StringType())))
    assert apply(pipeline, decided, order_by="n").collect() == [("x", 1), ("x", 2), ("x", 3)]


# ------------------------------------------------------------------------------------------------ streams


def without_durations(type_):
    """Parquet has no word for them that Spark reads."""
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(without_durations(f.type)) for f in type_ if f.name != "took"])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, without_durations(type_.item_type))
    return type_


STREAMED = pa.schema([field.with_type(without_durations(field.type)) for field in SCHEMA])


def streamed(numbers):
    def plain(value):
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items() if name != "took"}
        return [plain(one) for one in value] if isinstance(value, list) else (
            tuple(map(plain, value)) if isinstance(value, tuple) else value
        )  # fmt: skip

    rows = table(numbers)
    columns = [pa.array(map(plain, rows[f.name].to_pylist()), f.type) for f in STREAMED]
    return pa.table(columns, schema=STREAMED)


def kept(pipeline):
    return pipeline.key_by("k").lag({"before": "s", "then": "m"}).key_by("n").scan(
        **{f"last {name}": od.last(name) for name in PACKED}
    )  # fmt: skip


def filled(pipeline):
    return pipeline.key_by("k").forward_fill(*PACKED).key_by("k").top_k(9, by="n", emit="updates")


@pytest.mark.parametrize(("zone", "driver_rows"), [("UTC", 1_000), ("America/New_York", 0)])
@pytest.mark.thin(1)
def test_a_stream_goes_on_with_packed_values_in_its_states(spark, in_zone, tmp_path, zone, driver_rows):
    in_zone(zone)
    rows, folder, checkpoint = streamed(range(200)), tmp_path / "in", tmp_path / "c"
    folder.mkdir()
    pipeline = filled(od.Pipeline(STREAMED)) if driver_rows else kept(od.Pipeline(STREAMED))

    def add(low, high):
        path = folder / f"f{low:03}.parquet"
        pq.write_table(rows.slice(low, high - low), path)
        os.utime(path, (1_000_000_000 + low,) * 2)

    def go(nodes):
        reader = spark.readStream.schema(spark_schema(STREAMED)).option("maxFilesPerTrigger", 1)
        query = od.spark.stream(
            pipeline, reader.parquet(str(folder)), checkpoint=checkpoint, order_by="n", nodes=nodes,
            trigger="available now", driver_rows=driver_rows,
            sink=od.spark.sinks.ParquetFolder(tmp_path / "out"),
        )  # fmt: skip
        query.awaitTermination(120)

    add(0, 40)
    add(40, 41)
    go(1)
    add(41, 100)
    go(3)
    add(100, 200)
    go(2)
    if driver_rows:
        known = {row.k: row.asDict(True) for row in od.spark.state(checkpoint, "forward_fill_1").collect()}
        for key in range(5):
            seen = [one["items"] for one in rows.to_pylist() if one["k"] == key]
            assert known[key]["items"] == [items for items in seen if items is not None][-1]
    else:
        assert od.spark.state(checkpoint, "lag_1").count() == 6
        assert od.spark.state(checkpoint, "scan_2").count() == 200
    od.spark.finish(checkpoint)
    expected = shown(run_serial(pipeline, rows).table)
    read = od.spark.read_output(checkpoint)
    assert read.schema["s"].dataType.simpleString() == spark_schema(STREAMED)["s"].dataType.simpleString()
    assert shown(read.toArrow()) == expected
    files = [pq.ParquetFile(path).read() for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert len(files) == 4 + (driver_rows > 0)  # the end has rows of its own there
    assert shown(pa.concat_tables(files).drop(["_serial", "_index"])) == expected


STRUCT = (
    "if(id % 7 = 0, null, named_struct('d', make_dt_interval(id), 'w', timestamp_ntz'2024-03-10 02:30:00', "
    "'m', map(id, timestamp'2024-07-01 10:00:00', -id - 1, null), 'b', array(X'00', 'ß'))) as c"
)


@pytest.mark.parametrize(
    "options", [{"slack": 5}, {"slack": 5, "driver_rows": 1_000}, {"late": "side_output"}]
)
@pytest.mark.thin(1)
def test_rows_with_packed_values_wait_or_are_put_aside(spark, tmp_path, options):
    folder, count = tmp_path / "in", 60
    folder.mkdir()
    ts = [n - (4 if n % 5 == 0 else 0) for n in range(count)]
    for part in range(3):
        path = folder / f"f{part}.parquet"
        at = slice(20 * part, 20 * part + 20)
        rows = pa.table({"ts": ts[at], "k": [n % 3 for n in range(count)][at], "id": list(range(count))[at]})
        pq.write_table(rows, path)
        os.utime(path, (1_000_000_000 + part,) * 2)
    columns = ("ts", "k", "id", STRUCT)
    static = spark.read.schema("ts long, k long, id long").parquet(str(folder)).selectExpr(*columns)
    pipeline = od.Pipeline(static).key_by("k").forward_fill("c")
    late = "late" in options
    for nodes in (1, 2):
        reader = spark.readStream.schema("ts long, k long, id long").option("maxFilesPerTrigger", 1)
        query = od.spark.stream(
            pipeline, reader.parquet(str(folder)).selectExpr(*columns), checkpoint=tmp_path / f"{nodes}",
            order_by="ts", nodes=nodes, trigger="available now", **options,
        )  # fmt: skip
        query.awaitTermination(120)
        od.spark.finish(tmp_path / f"{nodes}")
        there = static.where("id not in (20, 40)") if late else static
        wanted = apply(pipeline, there, order_by="ts").collect()
        assert od.spark.read_output(tmp_path / f"{nodes}").collect() == wanted
        if late:
            aside = od.spark.read_output(tmp_path / f"{nodes}", late=True).orderBy("id").collect()
            assert [(row.id, row.c.b, row.c.w) for row in aside] == [
                (n, [b"\0", "ß".encode()], dt.datetime(2024, 3, 10, 2, 30)) for n in (20, 40)
            ]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("named_struct()", "has no fields"),
        ("array(named_struct())", "has a struct without fields in it"),
        ("null", "has no type"),
        ("map('a', null)", "has a part of no type"),
    ],
)
def test_what_no_parquet_file_holds_is_refused_when_a_stream_begins(spark, tmp_path, sql, text):
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("n long").parquet(str(tmp_path / "in")).selectExpr("n", f"{sql} as c")
    passed = od.Pipeline(frame.schema)
    with pytest.raises(
        od.SchemaError, match=f"a stream's output: column 'c' {text}, which Spark reads from no"
    ):
        od.spark.stream(passed, frame, checkpoint=tmp_path / "c", order_by="n")
    read = passed.filter(od.col("c").is_null()).select("n")
    with pytest.raises(od.SchemaError, match=f"rows that wait, or are put aside: column 'c' {text}"):
        od.spark.stream(read, frame, checkpoint=tmp_path / "d", order_by="n", slack=3)
