"""`apply` and the executor function inside Spark against `run_serial`, in order."""

import os
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.testing import run_serial

pytest.importorskip("pyspark")

from ordstream.spark import Channel, apply, local_session, node_function, spark_schema

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


def once(flag, act):
    """A row function that does `act` when the first task comes to it, never again."""

    def step(row):
        if row.user == 50:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return tuple(row)
            act()
        return tuple(row)

    return step


def fail():
    raise ValueError("once")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


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


def test_wrong_columns_order_and_options_are_named(spark):
    frame = spark.createDataFrame([(1, 2, "a", 0)], "ts long, user long, thing string, n long")
    with pytest.raises(od.SchemaError, match="unknown column 'item'"):
        apply(running(), frame, order_by="ts")
    named = frame.withColumnRenamed("thing", "item")
    with pytest.raises(od.SchemaError, match="unknown column 'time'"):
        apply(running(), named, order_by="time")
    with pytest.raises(od.PlanError, match="schedular"):
        apply(running(), named, order_by="ts", schedular="ct")
    backwards = spark.createDataFrame(
        [(2, 1, "a", 0), (1, 1, "a", 1)], "ts long, user long, item string, n long"
    ).coalesce(1)
    with pytest.raises(Exception, match="row 2 of the partition comes before row 1 in the order ts"):
        apply(running(), backwards, order_by="ts", presorted=True).collect()


def test_an_operator_error_names_operator_and_serial(spark):
    rows = [(n, 6, "a", n) for n in (-1, 0, 1)]
    frame = spark.createDataFrame(rows, "ts long, user long, item string, n long")
    pipeline = od.Pipeline(SOURCE).select(share=od.col("user") // od.col("ts"), name="divide")
    with pytest.raises(Exception, match="operator 'divide' failed at serial 2: "):
        apply(pipeline, frame, order_by="ts").collect()


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
    assert ended.wait(30)
    thread.join()
    time.sleep(1.5)  # the watchdog looks every half second
    stopped = beats()
    time.sleep(0.5)
    assert beats() == stopped
    assert collected(spark.range(3).coalesce(1)) == [(0,), (1,), (2,)]


def test_query_2_in_spark_equals_spark_sql(spark, shared_data):
    from ordstream.tpcxbb import DataFolder, batch
    from ordstream.tpcxbb.queries import q2
    from ordstream.tpcxbb.schema import CLICK_ORDER

    data = DataFolder(shared_data)
    found = collected(apply(q2(), data.clicks_dataframe(spark), order_by=CLICK_ORDER))
    assert found[:2] == [(10002, 10003, 13), (10001, 10003, 12)]
    assert found == batch.spark_answer(spark, data, "q2")
    assert batch.first_difference(found, batch.spark_answer(spark, data, "q2", limit=29)) is not None


def test_a_second_session_is_refused(spark):
    with pytest.raises(RuntimeError, match="already has a Spark context"):
        local_session()
