"""Shedding inside Spark executors: a task that runs again sheds the same tuples, and the driver hears
what was shed.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spark_tools
from spark_tools import SOURCE, fail, kill, once, rows_of, stream, write_files

import ordstream as od
from ordstream.balance.sketches import ExecutionTimes
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from ordstream.spark import (
    Channel,
    TaskKey,
    apply,
    explain,
    node_function,
    shed_log,
    shed_rows,
    spark_schema,
)

# Spark's workers don't have the folder of the tests on their path
cloudpickle.register_pickle_by_value(spark_tools)
pytestmark = pytest.mark.spark

ROWS = 6_000
COSTS_MS = {"é0": 1, "é1": 1, "é2": 2, "é3": 4, "é4": 12}


def saved():
    model = ExecutionTimes(0.05, 0.1)
    for item, cost in COSTS_MS.items():
        model.update_many([item] * 50, np.full(50, cost * 1e6))
    return model


def shedding(*before, **changed):
    """Operators, a frozen shed operator at twice the capacity, and counts that see which tuples were
    admitted.
    """
    pipeline = od.Pipeline(SOURCE).filter(od.col("user").is_not_null())
    for step in before:
        pipeline = step(pipeline)
    given = {"model": saved(), "frozen": od.Frozen(rate=500.0, seed=7), "name": "overload"} | changed
    return pipeline.shed("30ms", "item", **given).key_by("user").scan(seen=od.count(), latest=od.last("n"))


def without(table, log):
    """The rows whose serial is not in a log."""
    shed = set(log["serial"].to_pylist())
    return table.filter(pa.array([serial not in shed for serial in range(1, table.num_rows + 1)]))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_files(folder, stream(range(ROWS)), [50, 5_000], ["a", "b", "c"])
    return str(folder)


def test_a_node_in_a_task_sheds_what_a_sequential_run_sheds_and_reports_it(spark, files):
    table, frame, channel = stream(range(ROWS)), spark.read.parquet(files), Channel()
    found = rows_of(apply(shedding(), frame, order_by="ts", report=channel).toArrow())
    log = shed_log(shedding(), frame, order_by="ts").toArrow()
    serial = run_serial(shedding(), table)
    assert 0.2 < log.num_rows / ROWS < 0.8
    assert found == rows_of(serial.table)
    assert serial.shed == [("overload", row["serial"], row["index"]) for row in log.to_pylist()]
    # The output is that of a sequential run without the logged tuples, and of one that reads the log.
    open_door = shedding(frozen=None, model=None)
    assert rows_of(run_serial(open_door, without(table, log)).table) == found
    assert rows_of(run_serial(open_door, table, shed_log=log).table) == found
    ((key, report),) = channel.latest.items()
    assert (key.partition, key.attempt) == (0, 0)
    (shed,) = report["shedding"]
    assert (shed["name"], shed["mode"], shed["shed"], shed["approximate"]) == (
        "overload",
        "frozen",
        log.num_rows,
        True,
    )
    assert sum(count for _, count in shed["timeline"]) == log.num_rows
    assert "30 ms" in shed["goal"]


@pytest.mark.parametrize("act", [fail, kill])
def test_a_task_that_runs_again_sheds_the_same_tuples(spark, files, tmp_path, act):
    frame, channel = spark.read.parquet(files), Channel()
    again = shedding(lambda p: p.map(once(str(tmp_path / "flag"), act), schema=SOURCE))
    found = apply(again, frame, order_by="ts", report=channel).toArrow()
    assert (tmp_path / "flag").exists()
    expected = run_serial(shedding(), stream(range(ROWS)))
    assert rows_of(found) == rows_of(expected.table)
    ((key, report),) = channel.latest.items()
    assert key.attempt == 1
    assert [shed["shed"] for shed in report["shedding"]] == [len(expected.shed)]


def test_a_failed_attempt_does_not_count_even_if_its_node_had_ended(spark, files, tmp_path):
    channel = Channel()
    function, schema = node_function(shedding(), report=channel)

    def fails_behind(batches):
        yield from function(batches)
        if not (flag := tmp_path / "flag").exists():
            flag.touch()
            raise ValueError("behind the node")

    rows = (
        spark.read.parquet(files)
        .coalesce(1)
        .sortWithinPartitions("ts", "n")
        .mapInArrow(fails_behind, schema)
    )
    assert rows.count() > 0
    assert sorted(key.attempt for key in channel.reports) == [0, 1]
    assert [key.attempt for key in channel.latest] == [1]
    first, second = (channel.reports[key]["shedding"][0]["shed"] for key in sorted(channel.reports))
    assert first == second > 0


def test_each_partition_decides_for_itself(spark):
    table = stream(range(4_000))
    parts = [table.slice(0, 2_500), table.slice(2_500)]
    rdd = spark.sparkContext.parallelize([rows_of(part) for part in parts], 2).flatMap(lambda rows: rows)
    channel = Channel()
    function, _ = node_function(shedding(), order_by=("ts",), report=channel)
    found = rdd.mapPartitions(function).collect()
    serial = [run_serial(shedding(), part, shed_partition=number) for number, part in enumerate(parts)]
    assert found == [row for one in serial for row in rows_of(one.table)]
    assert [shed["shed"] for _, report in sorted(channel.latest.items()) for shed in report["shedding"]] == [
        len(s.shed) for s in serial
    ]
    # The same rows in another partition: other decisions.
    assert run_serial(shedding(), parts[1], shed_partition=0).shed != serial[1].shed
    logger, schema = node_function(shedding(), order_by=("ts",), part="shed_log")
    log = spark.createDataFrame(rdd.mapPartitions(logger), schema).toArrow()
    for number, one in enumerate(serial):
        mine = log.filter(pa.compute.equal(log["partition"], number))
        assert [("overload", row["serial"], row["index"]) for row in mine.to_pylist()] == one.shed
    # A task reads its own part of the log.
    replay, _ = node_function(shedding(frozen=None, model=None), order_by=("ts",), shed_log=log)
    assert rdd.mapPartitions(replay).collect() == found


def test_the_side_output_is_a_frame_of_its_own(spark, files):
    frame, pipeline = spark.read.parquet(files), shedding(side_output=True)
    aside, log = (
        shed_rows(pipeline, frame, order_by="ts", operator="overload").toArrow(),
        shed_log(pipeline, frame, order_by="ts").toArrow(),
    )
    assert aside["_serial"].to_pylist() == log["serial"].to_pylist()
    assert set(aside["_partition"].to_pylist()) == {0}
    source = stream(range(ROWS)).take(pa.array(log["serial"].to_numpy() - 1))
    assert rows_of(aside.select(SOURCE.names)) == rows_of(source)
    assert apply(pipeline, frame, order_by="ts").schema == spark_schema(pipeline.schema)
    with pytest.raises(od.PlanError, match="there is no shed operator 'other'"):
        shed_rows(pipeline, frame, order_by="ts", operator="other")
    with pytest.raises(od.PlanError, match="does not shed"):
        shed_log(od.Pipeline(SOURCE).key_by("user").count(), frame, order_by="ts")


def test_a_result_of_another_place_in_the_plan_is_the_same(spark, files):
    frame = spark.read.parquet(files)
    result = apply(shedding(), frame, order_by="ts")
    twice = rows_of(result.unionByName(result).toArrow())  # the second one's task has another number
    once_ = rows_of(result.toArrow())
    assert twice == once_ + once_


def test_a_live_log_is_replayed_in_a_task(spark, files):
    table = stream(range(ROWS))
    live = shedding(frozen=None)
    log = live.run(table, workers=1, arrivals=(np.arange(ROWS) * 100).astype(np.int64)).shed.log
    chosen = pa.Table.from_pylist(
        [
            {"partition": 0, "operator": "overload", "serial": serial, "index": 0}
            for serial in range(2, ROWS, 13)
        ],
        schema=pa.schema([log.schema.field(name) for name in ("partition", "operator", "serial", "index")]),
    )
    channel = Channel()
    found = apply(live, spark.read.parquet(files), order_by="ts", shed_log=chosen, report=channel).toArrow()
    assert rows_of(found) == rows_of(run_serial(live, table, shed_log=chosen).table)
    ((_, report),) = channel.latest.items()
    assert report["shedding"][0]["mode"] == "replay"


def test_a_log_that_does_not_fit_is_refused_when_the_job_is_built(spark, files):
    """A task passed its rows over, or failed with Arrow's error."""
    frame = spark.read.parquet(files)
    log = pa.table({"operator": ["other"], "serial": [3], "index": [0]})
    for pipeline, why in (
        (shedding(frozen=None), r"'other' shed, but the pipeline's shed operators are 'overload'\."),
        (od.Pipeline(SOURCE).key_by("user").count(), r"'other' shed, and this pipeline has no \.shed"),
    ):
        with pytest.raises(od.PlanError, match=why):
            apply(pipeline, frame, order_by="ts", shed_log=log)
    with pytest.raises(od.PlanError, match="shed_log: 'serial' is string"):
        apply(shedding(), frame, order_by="ts", shed_log=log.set_column(1, "serial", [["3"]]))


def test_rows_of_the_first_of_two_shed_operators_by_a_log_of_both(spark, files):
    """The job runs the operators through that one only, and gets what the log has of them."""
    twice = shedding(frozen=None).select("user", "seen").shed("30ms", "user", name="late").select("user")
    log = pa.table({"operator": ["overload", "late"], "serial": [3, 4], "index": [0, 0]})
    frame = spark.read.parquet(files)
    for name, serial in (("overload", 3), ("late", 4)):
        found = shed_rows(twice, frame, order_by="ts", operator=name, shed_log=log).toArrow()
        assert found["_serial"].to_pylist() == [serial]


def test_what_can_not_be_repeated_is_refused(spark, files):
    frame = spark.read.parquet(files)
    for use in (apply, shed_log, shed_rows):
        with pytest.raises(
            od.PlanError, match=r"overload: live shedding decides by clocks.*frozen=od\.Frozen"
        ):
            use(shedding(frozen=None), frame, order_by="ts")
    with pytest.raises(od.PlanError, match="overload: a pipeline that sheds runs in one node"):
        apply(shedding(), frame, order_by="ts", nodes=2)
    with pytest.raises(od.PlanError, match="live shedding"):
        explain(shedding(frozen=None), spark)


def test_explain_says_how_it_is_decided_and_that_results_are_approximate(spark, files):
    text = explain(shedding(), spark)
    assert text.startswith("1 node, in one Spark task, since it sheds")
    assert "frozen: decides as for 500 tuples/s and 1 workers, without a clock; seed 7" in text
    assert "a task that runs again sheds the same tuples" in text
    assert "what was exact becomes approximate behind it" in text
    frame = apply(shedding(), spark.read.parquet(files), order_by="ts", nodes="auto", tags=True)
    assert frame.columns == [*shedding().schema.names, "_serial", "_index"]


def test_reports_by_stage_partition_and_attempt(spark, tmp_path):
    for number in range(2):
        pq.write_table(stream(range(number * 2_000, number * 2_000 + 2_000)), tmp_path / f"{number}.parquet")
    channel = Channel()
    function, schema = node_function(shedding(), report=channel)
    two = spark.read.parquet(str(tmp_path)).repartition(2, "user").sortWithinPartitions("ts", "n")
    two.mapInArrow(function, schema).count()
    assert sorted((key.partition, key.attempt) for key in channel.latest) == [(0, 0), (1, 0)]
    assert all(
        isinstance(key, TaskKey) and len(report["shedding"]) == 1 for key, report in channel.latest.items()
    )
