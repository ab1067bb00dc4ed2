"""`apply` and the executor function inside Spark against `run_serial`, in order."""

import json
import re
import resource
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spark_tools
from spark_tools import fail, kill, once

import ordstream as od
from ordstream.errors import SourceError
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from ordstream.spark import Channel, apply, local_session, node_function, room, spark_schema

# Spark's workers don't have the folder of the tests on their path
cloudpickle.register_pickle_by_value(spark_tools)
pytestmark = pytest.mark.spark

ROWS = 30_000
SOURCE = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("n", pa.int64())])


def stream(numbers, same_time=False):
    """Rows whose ts ascends in ties of seven, or never."""
    numbers = list(numbers)
    ts = [0 if same_time else n // 7 for n in numbers]
    user = [None if n % 11 == 0 else (n * n) % 97 for n in numbers]
    return pa.table([ts, user, [f"é{n % 5}" for n in numbers], numbers], schema=SOURCE)


def running(*steps):
    """Filter, a running count and maximum per user: every output depends on the order of its user's rows."""
    pipeline = od.Pipeline(SOURCE).filter(od.col("user").is_not_null())
    for step in steps:
        pipeline = step(pipeline)
    return pipeline.key_by("user").scan(seen=od.count(), latest=od.last("n"), least=od.min("n"))


def expected(pipeline, table):
    return [tuple(row) for row in run_serial(pipeline, table).rows]


def collected(frame):
    return [tuple(row) for row in frame.collect()]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of very different size, all timestamps equal: Spark reads the largest first."""
    folder = tmp_path_factory.mktemp("files")
    for name, numbers in {"a": range(50), "b": range(50, 20_000), "c": range(20_000, 20_300)}.items():
        pq.write_table(stream(numbers, same_time=True), folder / f"{name}.parquet", row_group_size=4_000)
    return folder


def test_sorted_rows_pass_in_order(spark, tmp_path):
    table = stream(range(ROWS))
    pq.write_table(table, tmp_path / "rows.parquet")
    told, channel = [], Channel()
    frame = apply(
        running(),
        spark.read.parquet(str(tmp_path)),
        order_by="ts",
        report=channel,
        progress=told.append,
        scheduler="et",
    )
    assert collected(frame) == expected(running(), table)
    assert frame.schema == spark_schema(running().schema)
    ((key, report),) = channel.reports.items()
    assert (key.partition, key.attempt) == (0, 0)
    assert report["tuples"] == ROWS
    assert told[-1] == ROWS
    assert told == sorted(told)


def test_unsorted_rows_without_a_place_are_sorted_by_all_columns(spark, capfd):
    table = stream(range(2_000))
    shuffled = table.take(pa.array([(n * 7919) % 2_000 for n in range(2_000)]))
    rows = [tuple(row.values()) for row in shuffled.to_pylist()]
    frame = spark.createDataFrame(rows, "ts long, user long, item string, n long").repartition(3)
    nulls_first = sorted(
        table.to_pylist(),
        key=lambda row: (row["ts"], row["user"] is not None, row["user"], row["item"], row["n"]),
    )
    ordered = pa.Table.from_pylist(nulls_first, SOURCE)
    assert collected(apply(running(), frame, order_by="ts")) == expected(running(), ordered)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("act", [fail, kill])
@pytest.mark.thin(1)
def test_equal_timestamps_keep_the_order_of_file_and_row_through_a_retry(spark, files, tmp_path, act):
    pipeline = running(lambda p: p.map(once(str(tmp_path / "flag"), act), schema=SOURCE))
    channel = Channel()
    frame = apply(pipeline, spark.read.parquet(str(files)), order_by="ts", report=channel)
    found = collected(frame)
    assert (tmp_path / "flag").exists()
    assert [key.attempt for key in channel.reports] == [1]
    assert found == expected(pipeline, stream(range(20_300), same_time=True))


def test_a_later_filter_and_a_limit_see_the_order(spark, files):
    frame = apply(running(), spark.read.parquet(str(files)), order_by=())
    serial = expected(running(), stream(range(20_300), same_time=True))
    assert collected(frame.limit(7)) == serial[:7]
    assert collected(frame.where("user = 3")) == [row for row in serial if row[1] == 3]


def test_the_same_function_serves_an_rdd(spark):
    table = stream(range(5_000))
    function, schema = node_function(running(), order_by=("ts",))
    rows = [tuple(row.values()) for row in table.to_pylist()]
    partitions = spark.sparkContext.parallelize(rows, 1).mapPartitions(function)
    assert partitions.collect() == expected(running(), table)
    named = spark.createDataFrame(rows[:100], "ts long, user long, item string, n long").coalesce(1).rdd
    assert named.mapPartitions(function).collect() == expected(running(), table.slice(0, 100))
    assert schema.names == running().schema.names
    assert spark.sparkContext.parallelize([], 1).mapPartitions(function).collect() == []


def test_spark_tells_its_own_errors_after_an_apply(spark):
    frame = spark.createDataFrame([(1, 2, "a", 0)], "ts long, user long, item string, n long")
    assert apply(running(), frame, order_by="ts").columns == running().schema.names
    with pytest.raises(AnalysisException, match="nothing"):
        frame.select("nothing")


def test_wrong_columns_order_and_options_are_named(spark):
    frame = spark.createDataFrame([(1, 2, "a", 0)], "ts long, user long, thing string, n long")
    with pytest.raises(od.SchemaError, match="unknown column 'item'"):
        apply(running(), frame, order_by="ts")
    named = frame.withColumnRenamed("thing", "item")
    with pytest.raises(od.SchemaError, match="unknown column 'time'"):
        apply(running(), named, order_by="time")
    with pytest.raises(od.SchemaError, match="the DataFrame has 2 columns 'n'; rename"):
        apply(running(), named.select("*", "n"), order_by="ts")
    with pytest.raises(od.PlanError, match="schedular"):
        apply(running(), named, order_by="ts", schedular="ct")
    for wrong in (5, [named.ts, 5], None, {"ts"}):
        with pytest.raises(od.PlanError, match="order_by takes the name of a column"):
            apply(running(), named, order_by=wrong)
    with pytest.raises(od.PlanError, match="a Spark DataFrame is needed, got Table"):
        apply(running(), named.toArrow(), order_by="ts")
    backwards = spark.createDataFrame(
        [(2, 1, "a", 0), (1, 1, "a", 1)], "ts long, user long, item string, n long"
    ).coalesce(1)
    with pytest.raises(Exception, match="row 2 of the source comes before row 1 in the order ts"):
        apply(running(), backwards, order_by="ts", presorted=True).collect()


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("held", "why"),
    [
        (lambda spark: threading.Lock(), "TypeError: cannot pickle '_thread.lock' object"),
        (lambda spark: spark, r"PySparkRuntimeError: \[CONTEXT_ONLY_VALID_ON_DRIVER\]"),
    ],
    ids=["a lock", "the session"],
)
def test_an_operator_whose_function_belongs_to_the_driver_is_named(spark, capfd, nodes, held, why):
    """PySpark printed a trace and raised an error of its own, which named nothing."""
    rows, mine = spark.range(9).selectExpr("id", "id % 3 k"), held(spark)
    kept = od.Pipeline(rows).filter(lambda row: True).filter(lambda row: mine is not None, name="mine")
    with pytest.raises(od.PlanError, match=rf"^operator 'mine' can't be sent to Spark's workers: {why}"):
        apply(kept.key_by("k").cum_count(), rows, order_by="id", nodes=nodes)
    assert capfd.readouterr().err == ""


def test_an_operator_error_names_operator_and_serial_and_shows_the_columns_that_came(spark):
    rows = [(n, 6, "a", n) for n in (-1, 0, 1)]
    frame = spark.createDataFrame(rows, "ts long, user long, item string, n long")
    pipeline = od.Pipeline(SOURCE).select(share=od.col("user") // od.col("ts"), name="divide")
    with pytest.raises(Exception, match="operator 'divide' failed at serial 2: ") as failed:
        apply(pipeline, frame, order_by="ts").collect()
    assert "{'ts': 0, 'user': 6}" in str(failed.value)


def plan_of(frame):
    return frame._jdf.queryExecution().toString()


def read_from_files(frame):
    """Columns of the source that Spark reads from Parquet."""
    schemas = re.findall(r"ReadSchema: struct<(.*)>", plan_of(frame))  # over several nodes a sample, too
    return {column.split(":")[0] for schema in schemas for column in schema.split(",")} & set(SOURCE.names)


def test_columns_that_nothing_reads_are_not_read_from_the_files(spark, tmp_path):
    table = stream(range(3_000))
    pq.write_table(table, tmp_path / "rows.parquet")
    source = spark.read.parquet(str(tmp_path))
    counts = od.Pipeline(SOURCE).filter(od.col("user") > 3).key_by("user").count()
    frame = apply(counts, source, order_by="ts")
    assert read_from_files(frame) == {"ts", "user"}
    assert collected(frame) == expected(counts, table)
    alone = apply(counts, source, order_by=())
    assert read_from_files(alone) == {"user"}
    assert collected(alone) == expected(counts, table)
    every = apply(running(), source, order_by="ts")
    assert read_from_files(every) == {"ts", "user", "item", "n"}
    timed = apply(counts, source, order_by=(), punctuate=od.every("ts", 50))
    assert read_from_files(timed) == {"ts", "user"}
    cut = apply(counts, source, order_by="ts", nodes=2)
    assert read_from_files(cut) == {"ts", "user"}
    assert collected(cut) == expected(counts, table)
    rows = od.Pipeline(SOURCE).map(
        lambda row: (row.ts, row.n), schema=pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    )
    assert collected(apply(rows, source, order_by="ts")) == expected(rows, table)


def test_ties_without_a_place_are_sorted_by_columns_that_nothing_reads_too(spark):
    rows = [(0, user, f"i{9 - n}", n) for n in range(10) for user in (4, 2)]
    frame = spark.createDataFrame(rows, "ts long, user long, item string, n long").repartition(3)
    kept = od.Pipeline(SOURCE).select("ts", "n")
    found = apply(kept, frame, order_by="ts")
    assert "MapInArrow" in plan_of(found)
    ordered = sorted(rows, key=lambda row: (row[0], row[1], row[2], row[3]))
    assert collected(found) == [(row[0], row[3]) for row in ordered]
    exploded = frame.selectExpr("ts", "user", "item", "explode(array(n, -n)) as n")
    ordered = sorted(((ts, user, item, k) for ts, user, item, n in rows for k in (n, -n)))
    assert collected(apply(kept, exploded, order_by="ts")) == [(row[0], row[3]) for row in ordered]


def test_columns_behind_all_that_is_read_are_not_moved_to_break_ties(spark, tmp_path):
    """JSON tells no place of a row: texts that nobody reads were shuffled with every row, for the ties."""
    rows = [(n // 9, n * 7 % 10, n % 3, *(f"{n * k % 97}" for k in range(4))) for n in range(600)]
    names = ["ts", "front", "user", *(f"wide{k}" for k in range(4))]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    lines = [json.dumps(row) for row in table.to_pylist()]
    for part in range(3):
        (tmp_path / f"{part}.json").write_text("\n".join(lines[part::3]))
    frame = spark.read.schema(
        "ts long, front long, user long, " + ", ".join(f"{n} string" for n in names[3:])
    )
    frame = frame.json(str(tmp_path))
    counts = od.Pipeline(table.schema).key_by("user").scan(seen=od.count()).select("ts", "user", "seen")
    ordered = table.sort_by([(name, "ascending") for name in names])
    for nodes in (1, 2):
        result = apply(counts, frame, order_by="ts", nodes=nodes)
        # `front` decides between users
        read = re.findall(r"ReadSchema: struct<(.*)>", plan_of(result))
        assert {*read} == {"ts:bigint,front:bigint,user:bigint"}
        assert collected(result) == expected(counts, ordered)


def test_a_cancelled_job_stops_its_node(spark, tmp_path):
    heartbeat = str(tmp_path / "heartbeat")

    def slow(row):
        if row.ts % 100 == 0:
            with Path(heartbeat).open("a") as file:
                file.write(".")
            time.sleep(0.05)
        return tuple(row)

    def beats():
        return Path(heartbeat).stat().st_size if Path(heartbeat).exists() else 0

    pipeline = od.Pipeline(SOURCE).map(slow, schema=SOURCE)
    ids = spark.range(2_000_000).selectExpr("id as ts", "id as user", "'a' as item", "id as n")
    context = spark.sparkContext
    ended = threading.Event()

    def job():
        context.setJobGroup("cancelled", "to be cancelled", interruptOnCancel=True)
        with pytest.raises(Exception, match="cancelled"):
            apply(pipeline, ids, order_by="ts").collect()
        ended.set()

    from pyspark import InheritableThread

    thread = InheritableThread(target=job)
    thread.start()
    end = time.monotonic() + 60
    while beats() < 3 and time.monotonic() < end:
        time.sleep(0.05)
    assert beats() >= 3
    context.cancelJobGroup("cancelled")
    assert ended.wait(60)
    thread.join()
    # the watchdog looks every half second; all the rows take 1,000 s
    stopped, end = -1, time.monotonic() + 30
    while beats() != stopped and time.monotonic() < end:
        stopped = beats()
        time.sleep(1)
    assert beats() == stopped
    assert collected(spark.range(3).coalesce(1)) == [(0,), (1,), (2,)]


def test_query_2_in_spark_equals_spark_sql(spark, shared_data):
    from ordstream.tpcxbb import DataFolder, batch
    from ordstream.tpcxbb.queries import q2, q2_answer
    from ordstream.tpcxbb.schema import CLICK_ORDER

    data = DataFolder(shared_data)
    found = q2_answer(collected(apply(q2(), data.clicks_dataframe(spark), order_by=CLICK_ORDER)))
    assert found[:2] == [(10002, 10003, 13), (10001, 10003, 12)]
    assert found == batch.spark_answer(spark, data, "q2")
    assert batch.first_difference(found, batch.spark_answer(spark, data, "q2", limit=29)) is not None


def test_a_second_session_is_refused(spark):
    with pytest.raises(RuntimeError, match="already has a Spark context"):
        local_session()


def test_a_worker_that_may_have_no_more_memory_says_what_to_set(monkeypatch):
    """It was "the source failed after 0 tuples: MemoryError: ", and nothing behind that."""

    def batches():
        yield pa.RecordBatch.from_pylist([], schema=SOURCE)
        raise MemoryError

    function, _ = node_function(od.Pipeline(SOURCE).filter(od.col("n") > 0))
    for limit, notes in ((400 << 20, 1), (resource.RLIM_INFINITY, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        with pytest.raises(SourceError) as raised:
            list(function(batches()))
        found = getattr(raised.value, "__notes__", [])
        assert len(found) == notes
        assert all("400 MiB" in one and "spark.executor.pyspark.memory" in one for one in found)


def test_a_node_has_no_more_in_flight_than_its_worker_has_room_for(monkeypatch):
    """512 MiB, in a worker that may have 400 of which 300 are used."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for left, most in ((100 << 20, 25 << 20), (0, room.LEAST), (1 << 40, None), (None, None)):
        limit = resource.RLIM_INFINITY if left is None else used + left
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        found = room.in_flight(512 << 20).get("max_bytes")
        assert found == most if most is None else abs(found - most) < 4 << 20


@pytest.mark.parametrize("nodes", [1, 3])
def test_functions_of_frames(spark, nodes):
    """They travel to the tasks, and see times in the session's zone; integers beside nulls are no floats."""

    def shifted(frame):
        frame["y"] = frame["x"] + 2**60
        frame["hour"] = frame["ts"].dt.hour
        return frame[["id", "k", "y", "hour"]]

    odd = F.when(F.col("id") % 3 > 0, F.col("id"))
    df = spark.range(200).select(
        "id",
        (F.col("id") % 7).alias("k"),
        odd.alias("x"),
        F.timestamp_seconds(F.col("id") * 900).alias("ts"),
    )
    schema = {"id": int, "k": int, "y": int, "hour": int}
    pipeline = od.Pipeline(df).map_batches(shifted, schema=schema, format="pandas").key_by("k")
    counted = pipeline.cum_count("n")
    found = apply(counted, df, order_by="id", nodes=nodes).toArrow()
    expected = run_serial(counted, df.orderBy("id"))
    assert expected.error is None
    assert found.to_pylist() == expected.table.to_pylist()
    assert found["y"].to_pylist()[:3] == [None, 1 + 2**60, 2 + 2**60]
