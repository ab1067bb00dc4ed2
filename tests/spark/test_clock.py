"""Windows and sessions that a clock closes, over nodes in Spark: the whole output in order, and its tags."""

import datetime
import random

import pyarrow as pa
import pytest
from spark_tools import SOURCE, rows_of, stream, write_files

import ordstream as od
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from ordstream.spark import apply, explain

pytestmark = pytest.mark.spark

ROWS = 3_000


def windows():
    """Two keys, so that rows which a mark causes cross a cut, and find windows that the same mark closes."""
    made = od.Pipeline(SOURCE).key_by("user").window(od.hopping(40, every=20), time="ts")
    counted = made.aggregate(n=od.count(), item=od.last("item"), emit="both")
    return counted.key_by("item").count().key_by("item").head(200)


@pytest.fixture(scope="module")
def frame(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clock")
    write_files(folder, stream(range(ROWS)), [700, 2_000], ["a", "b", "c"])
    return spark.read.parquet(str(folder))


@pytest.fixture
def reserved_words(spark):
    spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    yield
    spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")


@pytest.mark.usefixtures("reserved_words")
def test_a_session_that_keeps_reserved_words_has_a_clock(frame):
    expected = run_serial(windows(), stream(range(ROWS)))
    assert rows_of(apply(windows(), frame, order_by="ts", nodes=2).toArrow()) == rows_of(expected.table)


@pytest.mark.parametrize("order", ["total", "none"])
@pytest.mark.thin(1)
def test_rows_that_are_others_at_each_reading_are_refused(spark, order):
    """The marks are found by a job of its own: windows would close in the middle."""
    drawn = F.udf(lambda _: random.randrange(1_000), "long").asNondeterministic()
    rows = spark.range(500).select("id", (F.col("id") % 7).alias("k"), drawn("id").alias("ts"))
    counts = od.Pipeline(rows).key_by("k").window(od.tumbling(20), time="ts").aggregate(n=od.count())
    with pytest.raises(Exception, match="gives other rows each time it is read"):
        apply(counts, rows, order_by=["ts", "id"], nodes=2, order=order).collect()


@pytest.mark.parametrize(("tags", "nodes"), [(True, 3), (False, 2)])
def test_windows_over_nodes_are_those_of_a_sequential_run(frame, tags, nodes):
    expected = run_serial(windows(), stream(range(ROWS)))
    found = apply(windows(), frame, order_by="ts", nodes=nodes, tags=tags).toArrow()
    if tags:
        seen = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(seen) == expected.tags
        found = found.drop(["_serial", "_index"])
    assert rows_of(found) == rows_of(expected.table)


def test_sessions_by_punctuations_keep_the_order_of_each_key(frame):
    every = od.every("ts", 50)
    pipeline = od.Pipeline(SOURCE).filter(od.col("n") >= 0).key_by("user").sessionize(time="ts", timeout=7)
    expected = run_serial(pipeline, stream(range(ROWS)), punctuate=every)
    found = apply(pipeline, frame, order_by="ts", nodes=2, punctuate=every, order="by_key").toArrow()
    by_user = [
        [row for row in rows_of(table) if row[0] == user]
        for table in (found, expected.table)
        for user in range(5)
    ]
    assert by_user[:5] == by_user[5:]


def by_computed(time):
    made = od.Pipeline(SOURCE).filter(od.col("n") % 3 != 0).with_columns(t=time).key_by("user")
    return made.window(od.tumbling(15), time="t").aggregate(n=od.count()).key_by("n").scan(m=od.count())


def test_a_computed_clock_over_nodes(spark, frame):
    """Rows that a filter drops move it; the job that finds the marks sees whether it ascends."""
    pipeline = by_computed(od.col("ts") // 2)
    expected = run_serial(pipeline, stream(range(ROWS)))
    found = apply(pipeline, frame, order_by="ts", nodes=3, tags=True).toArrow()
    seen = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
    assert list(seen) == expected.tags
    assert rows_of(found.drop(["_serial", "_index"])) == rows_of(expected.table)
    backwards = by_computed(od.col("ts") % 300)
    with pytest.raises(od.SourceError) as error:
        apply(backwards, frame, order_by="ts", nodes=2)
    assert str(error.value) == str(run_serial(backwards, stream(range(ROWS))).error)
    with pytest.raises(od.PlanError, match="order_by begins with a column that it is computed of, 'ts'"):
        apply(pipeline, frame, order_by="user", nodes=2)


def test_the_clock_of_a_reorder_over_nodes(spark, frame):
    """Rows come out of the order of `at`; what leaves closes windows in other nodes."""
    made = od.Pipeline(SOURCE).with_columns(at=od.col("ts") + od.col("n") % 5).reorder("at", slack=5)
    made = made.key_by("user").scan(m=od.count()).with_columns(n=od.col("m") % 7)
    made = made.key_by("n").window(od.tumbling(20), time="at").aggregate(m=od.count())
    expected = run_serial(made, stream(range(ROWS)))
    found = apply(made, frame, order_by="ts", nodes=3, tags=True).toArrow()
    seen = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
    assert list(seen) == expected.tags
    assert rows_of(found.drop(["_serial", "_index"])) == rows_of(expected.table)
    apart = apply(made, frame, order_by="ts", nodes=2, order="by_key").toArrow()
    for n in set(expected.table["n"].to_pylist()):
        assert [row for row in rows_of(apart) if row[0] == n] == [
            row for row in rows_of(expected.table) if row[0] == n
        ]
    assert explain(made, spark, order_by="ts", nodes=2).count("cut: rows to nodes by hash of") == 2


def test_a_clock_needs_rows_that_are_sorted_by_it(spark, frame):
    for call in (apply, explain):
        with pytest.raises(od.PlanError, match="order_by begins with its column, 'ts', ascending"):
            call(windows(), df=frame, order_by=["user", "ts"], nodes=2)
    assert explain(windows(), spark, order_by="item", nodes=None).startswith("1 node")
    assert explain(windows(), spark, order_by="ts", nodes=2).count("cut: rows to nodes by hash of") == 2


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_days_are_those_of_the_sessions_zone(spark, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        begin = datetime.datetime(2024, 3, 29, tzinfo=datetime.UTC)  # Berlin has 23 hours two days later
        at = [begin + datetime.timedelta(hours=5 * n) for n in range(60)]
        data = pa.table({"ts": pa.array(at, pa.timestamp("us", "UTC")), "k": [n % 3 for n in range(60)]})
        frame = spark.createDataFrame(data)
        pipeline = (
            od.Pipeline(frame).key_by("k").window(od.calendar("1d"), time="ts").aggregate(n=od.count())
        )
        expected = run_serial(pipeline, data.cast(pipeline.source_schema)).table
        ends = [end.timestamp() for end in expected["end"].to_pylist()]
        hours = [
            end - start.timestamp() for end, start in zip(ends, expected["start"].to_pylist(), strict=True)
        ]
        assert set(hours) == ({23 * 3600, 24 * 3600} if zone == "Europe/Berlin" else {24 * 3600})
        for nodes in (1, 2):
            found = apply(pipeline, frame, order_by="ts", nodes=nodes).toArrow()
            assert found.select(["k", "n"]).to_pylist() == expected.select(["k", "n"]).to_pylist()
            assert [end.timestamp() for end in found["end"].to_pylist()] == ends
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
