"""Frames as Spark's users have them: names in any case, `order_by` with directions, types that a pipeline
reads, carries or refuses, schemas taken from a frame.
"""

import datetime as dt
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from spark_tools import rows_of

import ordstream as od

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from ordstream.spark import apply, explain, node_function

pytestmark = pytest.mark.spark
# Spark's workers don't have the folder of the tests on their path
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def mixed(spark):
    """Values of every kind in ties, nulls and NaN among them; n tells rows apart."""
    rows = [
        (
            n,
            None if n % 5 == 0 else n % 3,
            None if n % 7 == 0 else float("nan") if n % 4 == 0 else (n % 6) / 2 - 1,
            None if n % 6 == 0 else "bÉa"[n % 3] * (n % 2),
            n % 2 == 0,
            dt.date(2024, 1, 1 + n % 4),
        )
        for n in range(120)
    ]
    return (
        spark.createDataFrame(rows, "n long, i int, x double, s string, b boolean, d date")
        .repartition(3)
        .cache()
    )


ORDERS = {
    "names": lambda: ["i", "n"],
    "columns": lambda: [F.col("i"), F.col("n")],
    "descending": lambda: [F.desc("i"), F.desc("n")],
    "one column": lambda: F.desc("n"),
    "nulls": lambda: [F.col("i").asc_nulls_last(), F.col("x").desc_nulls_first(), "n"],
    "mixed": lambda: [F.desc("b"), F.asc_nulls_last("s"), F.desc_nulls_last("d"), F.col("n").desc()],
    "computed": lambda: [F.lower("s").desc_nulls_first(), F.expr("i * 2 + 1"), F.col("n") % 5, "n"],
}


@pytest.mark.parametrize(("name", "nodes"), [*((name, 1) for name in ORDERS), ("mixed", 2), ("computed", 2)])
@pytest.mark.thin(4)
def test_rows_come_in_the_order_that_spark_s_own_orderby_gives(mixed, name, nodes):
    keys = ORDERS[name]()
    passed = od.Pipeline(mixed).filter(od.col("n") >= 0)
    found = apply(passed, mixed, order_by=keys, nodes=nodes).select("n").collect()
    assert found == mixed.orderBy(keys).select("n").collect()


def test_a_frame_s_own_column_is_known_again_and_travels_once(mixed):
    counts = od.Pipeline(pa.schema([("n", pa.int64())])).key_by("n").count()
    frame = apply(counts, mixed, order_by=[mixed.n.desc()])
    assert [row.n for row in frame.collect()] == list(range(119, -1, -1))
    assert "o0" not in frame._jdf.queryExecution().optimizedPlan().toString()
    assert "i_1" not in explain(counts, order_by=F.desc("n"), nodes=2)


def test_presorted_rows_are_checked_in_their_direction(mixed):
    passed = od.Pipeline(mixed).filter(od.col("n") >= 0)
    keys = [F.desc_nulls_first("i"), F.col("n").desc()]
    ordered = mixed.orderBy(keys)
    for nodes in (1, 2):
        found = apply(passed, ordered, order_by=keys, presorted=True, nodes=nodes)
        assert found.select("n").collect() == ordered.select("n").collect()
    with pytest.raises(Exception, match=r"comes before row \d+ in the order i desc, n desc"):
        apply(passed, ordered, order_by=[F.desc("i"), F.desc("n")], presorted=True, nodes=1).collect()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (lambda: F.desc("nothing"), "unknown column 'nothing' in the DataFrame"),
        (lambda: F.array("i"), "is array<int>, by which a node can't compare rows"),
        (lambda: F.struct("i", "n").desc(), "is struct<.*>, by which a node can't compare rows"),
        (lambda: F.expr("map(i, n)"), "is map<int,bigint>"),
        (lambda: F.expr("make_ym_interval(i, 1)"), "interval year to month, by which"),
        (lambda: F.lit(None), "NULL is the same in all rows, so it orders none$"),
        (lambda: F.lit("n"), r"order_by: n is the same in all rows, .* constant; write F.col\('n'\)"),
        (lambda: F.lit(1).desc(), "order_by: 1 is the same in all rows, so it orders none$"),
        (lambda: F.collate("s", "UTF8_LCASE").desc(), "has the collation UTF8_LCASE.*F.collate"),
        (lambda: F.sum("i"), "order_by: "),
        (lambda: F.explode(F.array("n", "n")), "order_by: .*GENERATOR"),  # each row would come twice
        (lambda: 5, "order_by takes the name of a column, a column of Spark's"),
    ],
)  # fmt: skip
def test_what_rows_can_t_be_ordered_by_is_refused_when_apply_is_called(mixed, key, words, capfd):
    with pytest.raises((od.PlanError, od.SchemaError), match=words) as failed:
        apply(od.Pipeline(mixed), mixed, order_by=["n", key()])
    assert "JVM" not in str(failed.value)
    assert "\n" not in str(failed.value)
    assert capfd.readouterr().err == ""


# ---------------------------------------------------------------------------------------------- names


@pytest.fixture
def case_sensitive(spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


SPELT = pa.schema([("Ts", pa.int64()), ("ÉTÉ", pa.int64())])


def test_names_are_found_in_any_case(spark):
    frame = spark.createDataFrame([(2, 5), (1, 6)], ["tS", "été"])
    pipeline = od.Pipeline(SPELT).key_by("ÉTÉ").count()
    for order in ("TS", F.col("ts"), F.asc("TS")):
        found = apply(pipeline, frame, order_by=order).toArrow()
        assert (found.schema.names, rows_of(found)) == (["ÉTÉ", "count"], [(6, 1), (5, 1)])
    assert rows_of(apply(pipeline, frame, order_by="TS", nodes=2).toArrow()) == [(6, 1), (5, 1)]
    two = frame.toDF("Ts", "TS").withColumn("été", F.lit(1))
    assert rows_of(apply(pipeline, two, order_by="TS").toArrow()) == [(1, 1), (1, 2)]
    with pytest.raises(od.SchemaError, match=r"several columns that 'ts' may mean \('TS', 'Ts'\)"):
        apply(pipeline, two, order_by="ts")


def test_names_are_found_as_they_are_where_spark_tells_case_apart(spark, case_sensitive):
    frame = spark.createDataFrame([(2, 5), (1, 6)], ["tS", "été"])
    with pytest.raises(od.SchemaError, match="unknown column 'Ts' in the DataFrame"):
        apply(od.Pipeline(SPELT), frame, order_by="tS")
    right = frame.toDF("Ts", "ÉTÉ")
    for order in ("ts", F.col("ts")):
        with pytest.raises(od.SchemaError, match="unknown column 'ts' in the DataFrame"):
            apply(od.Pipeline(SPELT), right, order_by=order)


# ---------------------------------------------------------------------------------------------- types


def test_a_pipeline_takes_its_schema_from_a_frame_or_a_frame_s_schema(spark, mixed):
    assert od.Pipeline(mixed).schema == od.Pipeline(mixed.schema).schema
    assert od.Pipeline(mixed).schema.names == ["n", "i", "x", "s", "b", "d"]
    every = spark.sql(
        "select 1Y a, 2S b, 3 c, 4L d, 1.5F e, 2.5D f, 1.25BD g, 'x' h, cast('y' as varchar(3)) i, X'00' j, "
        "date'2024-01-01' k, timestamp'2024-01-01 10:00:00' l, timestamp_ntz'2024-01-01 10:00:00' m, "
        "interval '1 02:00:00' day to second o, array(1, 2) p, true q"
    )
    pipeline = od.Pipeline(every).filter(od.col("d") > 0)
    found = apply(pipeline, every, order_by="d")
    assert found.schema.simpleString() == every.schema.simpleString()
    assert found.collect() == every.collect()
    assert od.Pipeline(StructType().add("a", "long", nullable=False)).schema == pa.schema(
        [pa.field("a", pa.int64(), nullable=False)]
    )


def test_a_frame_s_times_are_read_in_its_session_s_zone(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("select timestamp'2024-07-01 10:00:00' as t")
        for given in (frame, frame.schema):
            hours = od.Pipeline(given).select(hour=od.col("t").dt.hour(), t=od.col("t"))
            assert apply(hours, frame, order_by="t").collect() == frame.select(F.hour("t"), "t").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


REFUSED = {
    "variant": ("parse_json('{}')", r"is variant in Spark; .*: write it as text \(F.to_json\('c'\)\) or"),
    "one in a list": (
        "array(parse_json('{}'))",
        "is array<variant> in Spark, with variant inside; .*: leave",
    ),
    "one in a struct": (
        "named_struct('a', map('k', parse_json('{}')))",
        r"with variant inside; .*: take it apart \(df.select\('\*', 'c.\*'\)\) or",
    ),
    "years": ("interval '1' year", r"is interval year in Spark; .*: write it as a number"),
    "years in a list": ("array(interval '1' year)", "with interval year inside"),
    "months and days": ("make_interval(1, 1)", "is interval in Spark; .*: write it as text"),
    "months in a map": ("map(1, make_interval(1, 1))", "with interval inside"),
    "one name twice": ("array(named_struct('a', 1, 'a', 2))", "with two fields 'a' in one struct; "),
    "keys of no type": ("map()", "is map<void,void> in Spark, with keys of no type; "),
    "too deep": (f"{'array(' * 61}1{')' * 61}", "with more than 60 levels; "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_pipeline_carries_is_refused_in_a_sentence(spark, name, capfd):
    sql, words = REFUSED[name]
    frame = spark.range(1).toDF("n").withColumn("c", F.expr(sql))
    for given in (frame, frame.schema):
        with pytest.raises(od.SchemaError, match=f"^column 'c' {words}|{words}") as failed:
            od.Pipeline(given)
        assert "leave it out (df.drop('c'))" in str(failed.value)
        assert "\n" not in str(failed.value)
    reads = od.Pipeline(pa.schema([("n", pa.int64()), ("c", pa.string())]))
    with pytest.raises(od.SchemaError, match=words):
        apply(reads, frame, order_by="n")
    passes_by = od.Pipeline(pa.schema([("n", pa.int64())]))
    assert apply(passes_by, frame, order_by="n").collect() == [(0,)]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("'1'", pa.int64()), ("'1.5'", pa.float64()), ("'2024-01-01'", pa.date32()), ("'true'", pa.bool_()),
        ("1", pa.string()), ("true", pa.string()), ("1.5D", pa.string()), ("true", pa.int64()),
        ("1", pa.bool_()), ("array(1)", pa.int64()), ("1", pa.list_(pa.int64())),
        ("array(true)", pa.list_(pa.int8())),
    ],
)  # fmt: skip
def test_a_column_of_another_kind_is_no_value_of_the_pipeline_s(spark, sql, reads):
    frame = spark.sql(f"select 1L as n, {sql} as c")
    pipeline = od.Pipeline(pa.schema([("n", pa.int64()), ("c", reads)]))
    with pytest.raises(
        od.SchemaError, match=r"column 'c' is .* and the pipeline reads .*: cast it in Spark first"
    ):
        apply(pipeline, frame, order_by="n")


def test_nor_in_a_node_of_one_s_own(spark):
    frame = spark.sql("select 1L as n, '01' as c")
    function, schema = node_function(od.Pipeline(pa.schema([("n", pa.int64()), ("c", pa.int64())])))
    with pytest.raises(
        Exception, match="column 'c' arrives as string, and the pipeline reads int64: cast it"
    ):
        frame.mapInArrow(function, schema).collect()


def test_within_a_kind_values_are_checked_as_they_come(spark):
    frame = spark.sql("select 300 as c, 12.50BD as d")
    wide = od.Pipeline(pa.schema([("c", pa.float64()), ("d", pa.float64())]))
    assert apply(wide, frame, order_by="c").collect() == [(300.0, 12.5)]
    narrow = od.Pipeline(pa.schema([("c", pa.int8())]))
    with pytest.raises(Exception, match="column 'c', value 300: Integer value 300 not in range"):
        apply(narrow, frame, order_by="c").collect()
    assert apply(od.Pipeline(frame), frame, order_by="d").collect() == [(300, Decimal("12.50"))]


# ---------------------------------------------------------------------------------------------- collations


@pytest.fixture(scope="module")
def collated(spark):
    rows = [(n, "aAbBÉé"[n % 6]) for n in range(60)]
    return spark.createDataFrame(rows, "n long, s string").select(
        "n", F.collate("s", "UTF8_LCASE").alias("s")
    )


@pytest.mark.parametrize(
    "compares",
    [
        lambda p: p.key_by("s").count(),
        lambda p: p.filter(od.col("s") == "a"),
        lambda p: p.with_columns(t=od.col("s").str.lower()),
        lambda p: p.select("s", m=od.col("n") + 1).key_by("s").count(),
        lambda p: p.deduplicate("s"),
    ],
)
def test_a_text_with_a_collation_is_not_compared_by_its_bytes(collated, compares):
    pipeline = compares(od.Pipeline(collated))
    with pytest.raises(
        od.SchemaError, match=r"column 's' has the collation UTF8_LCASE.*F.collate\('s', 'UTF8_BINARY'\)"
    ):
        apply(pipeline, collated, order_by="n")


def test_a_text_that_spark_was_told_how_to_compare_is_compared(collated):
    decided = collated.withColumn("s", F.lower(F.collate("s", "UTF8_BINARY")))
    pipeline = od.Pipeline(decided).key_by("s").count()
    found = apply(pipeline, decided, order_by="n").collect()
    assert found == [("aabbéé"[n % 6], 2 * (n // 6) + n % 2 + 1) for n in range(60)]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_text_that_only_passes_keeps_its_collation(collated, nodes):
    pipeline = od.Pipeline(collated).filter(od.col("s").is_not_null()).key_by("n").scan(seen=od.count())
    found = apply(pipeline, collated, order_by="n", nodes=nodes)
    assert found.schema["s"].dataType == StringType("UTF8_LCASE")
    assert found.where("s = 'a'").count() == 20
    assert [row.s for row in found.collect()] == [row.s for row in collated.orderBy("n").collect()]
    # rows in ties are told apart by their bytes, in every run
    tied = collated.select(F.lit(1).alias("n"), "s")
    shown = "".join(row.s for row in apply(od.Pipeline(tied), tied, order_by="n", nodes=nodes).collect())
    assert shown == "".join(sorted("aAbBÉé" * 10))


# ------------------------------------------------------------------------------------------ the user's code


def checked(row):
    if row.n == 7:
        raise ValueError("no seven")
    return tuple(row)


@pytest.mark.parametrize("order", ["total", "none"])
def test_an_error_in_the_user_s_code_shows_file_and_line(spark, order):
    frame = spark.range(20).toDF("n")
    pipeline = od.Pipeline(frame).map(checked, schema=pa.schema([("n", pa.int64())]))
    line = checked.__code__.co_firstlineno + 2
    with pytest.raises(Exception, match="ValueError: no seven") as failed:
        apply(pipeline, frame, order_by="n", nodes=2, order=order).collect()
    assert f"at: {__file__}:{line}, in checked" in str(failed.value)


# ---------------------------------------------------------------------------------------------- decimals


@pytest.mark.parametrize(("key", "value"), [("18,3", "9,2"), ("22,3", "12,2"), ("38,5", "30,4")])
@pytest.mark.thin(2)
def test_decimals_are_summed_compared_and_keys_as_in_spark_sql(spark, key, value):
    rows = [
        (
            n,
            None if n % 7 == 0 else Decimal(n % 5 - 2) / 4,
            None if n % 11 == 0 else Decimal(n * 37 % 1_000 - 500) / 100,
        )
        for n in range(200)
    ]
    frame = spark.createDataFrame(rows, f"n long, k decimal({key}), x decimal({value})")
    looked_at = od.Pipeline(frame).filter(od.col("x") < od.col("k") + Decimal("3.5"))
    pipeline = looked_at.key_by("k").aggregate(
        total=od.sum("x"), least=od.min("x"), most=od.max("x"), known=od.count("x"),
        mean=od.mean("x"), emit="final",
    )  # fmt: skip
    figures = [make("x") for make in (F.sum, F.min, F.max, F.count, F.avg)]
    wanted = frame.where("x < k + 3.5").groupBy("k").agg(*figures)
    for nodes, order in ((1, "total"), (2, "total"), (2, "none")):
        found = apply(pipeline, frame, order_by="n", nodes=nodes, order=order)
        assert [field.dataType for field in found.schema] == [field.dataType for field in wanted.schema]
        assert sorted(found.collect()) == sorted(wanted.collect())
    whole = apply(od.Pipeline(frame).key_by("k").scan(known=od.count()), frame, order_by=["x", "n"], nodes=2)
    assert whole.select("n").collect() == frame.orderBy("x", "n").select("n").collect()


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_order_of_a_source_that_has_none_is_refused(spark, nodes):
    """Not sorted by its columns without a word."""
    table = pa.table({"ts": [3, 1, 2], "user": [1, 1, 1]})
    frame, running = spark.createDataFrame(table).coalesce(1), od.Pipeline(table.schema).key_by("user")
    with pytest.raises(
        od.PlanError, match=r"order_by=\(\) is the order that the source has.*presorted=True"
    ):
        apply(running.count("n"), frame, order_by=(), nodes=nodes)
    there = apply(running.scan(n=od.count()), frame, order_by=(), nodes=nodes, presorted=True)
    assert [row.ts for row in there.collect()] == [3, 1, 2]
    late = od.Pipeline(table.schema).filter(od.col("ts") > 1)
    assert {row.ts for row in apply(late, frame, order_by=(), nodes=nodes, order="none").collect()} == {2, 3}


def test_a_column_that_spark_can_t_sort_and_nobody_reads_breaks_no_tie(spark):
    frame = spark.range(4).selectExpr("id as ts", "id % 2 as user", "make_interval(1, 2) as gap")
    schema = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("gap", pa.int64())])
    pipeline = od.Pipeline(schema).key_by("user").count("n")
    assert [row.n for row in apply(pipeline, frame, order_by="ts").collect()] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("nodes", "order", "tags"),
    [(1, "total", False), (1, "total", True), (2, "total", False), (2, "total", True)]
    + [(2, "by_key", False), (2, "none", False)],  # tags want an order
)
@pytest.mark.thin(3)
def test_a_column_that_passes_keeps_what_spark_knows_of_it(spark, nodes, order, tags):
    """Without its metadata Spark ML takes the numbers of categories for quantities, without a word; and it
    takes no struct for a vector.
    """
    categories = {"ml_attr": {"type": "nominal", "vals": ["a", "b"]}}
    rows = spark.createDataFrame([(n, Vectors.dense([n, 1.0])) for n in range(9)], ["id", "v"]).select(
        "id",
        (F.col("id") % 2).cast("double").alias("k", metadata=categories),
        F.expr("make_dt_interval(int(id))").cast("interval day").alias("days"),
        "v",
        F.array("v").alias("vs"),
        F.expr("string(id) collate UTF8_LCASE").alias("text", metadata={"comment": "a text"}),
    )
    pipeline = od.Pipeline(rows).key_by("k").scan(n=od.count()).filter(od.col("n") > 1)
    result = apply(pipeline, rows, order_by="id", nodes=nodes, order=order, tags=tags)
    fields = {field.name: field for field in result.schema}
    assert [fields[name] for name in rows.columns] == rows.schema.fields
    assert [fields[name].metadata for name in rows.columns] == [one.metadata for one in rows.schema]
    passed = sorted(result.select(*rows.columns).collect(), key=lambda row: row.id)
    assert passed == rows.where("id > 1").orderBy("id").collect()


@pytest.mark.parametrize(("nodes", "tags"), [(1, False), (1, True), (2, False), (2, True)])
@pytest.mark.thin(2)
def test_columns_of_several_outputs_keep_what_spark_knows_of_them(spark, nodes, tags):
    """Outputs share what is of one type, whatever Spark knows of it."""
    categories = {"ml_attr": {"type": "nominal", "vals": ["a", "b"]}}
    rows = spark.createDataFrame(
        [(n, Vectors.dense([n, 1.0]), Vectors.sparse(2, {0: 1.0})) for n in range(9)], ["id", "v", "w"]
    ).select(
        "id",
        "v",
        "w",
        (F.col("id") % 2).cast("double").alias("k", metadata=categories),
        (F.col("id") / 2).alias("price", metadata={"comment": "in cents"}),
        F.expr("make_dt_interval(int(id))").cast("interval day").alias("days"),
        F.expr("string(id) collate UTF8_LCASE").alias("text", metadata={"comment": "a text"}),
        F.expr("string(id)").alias("plain"),
    )
    base = od.Pipeline(rows)
    outputs = {
        "v": base.key_by("k").scan(n=od.count()).select("id", "v", "k", "text", "days", "n"),
        "w": base.select("id", "w", "price", "plain", double=od.col("k") * 2.0),
        "other": base.select("id", v=od.col("w"), k=od.col("price")),
    }
    found = apply(base, rows, order_by="id", nodes=nodes, tags=tags, outputs=outputs)
    given = {field.name: field for field in rows.schema}
    kinds = {}
    for name, output in outputs.items():
        frame = found[name]
        for field in frame.schema.fields[: len(output.schema)]:
            source = {"v": "w", "k": "price"}.get(field.name) if name == "other" else field.name
            if source in given:
                assert field.metadata == given[source].metadata, (name, field)
                kinds[name, field.name] = field.dataType == given[source].dataType
    # "v" is a column of two origins, so its type is what they have in common: as it was.
    assert sorted(one for one, same in kinds.items() if not same) == [("other", "v"), ("v", "v")]
    del outputs["other"]
    found = apply(base, rows, order_by="id", nodes=nodes, tags=tags, outputs=outputs)
    for name, own in (("v", ["id", "v", "k", "text", "days"]), ("w", ["id", "w", "price", "plain"])):
        assert [found[name].schema[one] for one in own] == [given[one] for one in own]
        assert found[name].orderBy("id").select(own).collect() == rows.orderBy("id").select(own).collect()


def test_a_frame_of_pandas_on_spark_is_told_how_to_come(spark):
    rows = spark.range(3)
    frame = rows.pandas_api()
    with pytest.raises(od.SchemaError, match=r"pandas on Spark give df\.to_spark\(\)"):
        od.Pipeline(frame)
    with pytest.raises(od.PlanError, match=r"pandas on Spark: give df\.to_spark\(\)"):
        apply(od.Pipeline(rows), frame, order_by="id")


@pytest.mark.parametrize("call", [apply, explain, node_function, od.spark.shed_log, od.spark.stream])
def test_what_is_no_pipeline_is_told_so(spark, call):
    """The two arguments in the other order, or a key without what is kept by it."""
    rows = spark.range(3).withColumn("plan", F.lit(1))
    options = {"order_by": "id"} | ({"checkpoint": "no folder"} if call is od.spark.stream else {})
    if call in (explain, node_function):
        options = {}
    with pytest.raises(od.PlanError, match="takes a pipeline first, then what it reads; got DataFrame"):
        call(rows, od.Pipeline(rows), **options)
    with pytest.raises(od.PlanError, match=r"ends with key_by: say what is kept by key"):
        call(od.Pipeline(rows).key_by("id"), rows, **options)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("report", "a function of"),
        ("progress", "a function of"),
        ("listen", "an address"),
        ("presorted", "True"),
    ],
)
def test_what_a_job_can_t_tell_by_is_refused_when_it_is_given(spark, option, words):
    """A report that can't be called was never heard of; presorted="no" left out the sort."""
    rows = spark.range(3)
    with pytest.raises(od.PlanError, match=rf"{option} (takes|must be) {words}.* got 5"):
        apply(od.Pipeline(rows), rows, order_by="id", **{option: 5})
