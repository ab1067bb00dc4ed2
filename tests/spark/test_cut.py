"""`apply(..., nodes=N)` against `run_serial`: the whole output in order, tags, retries, cancels."""

import os
import threading
import time

import pyarrow as pa
import pytest
import spark_cancel
import spark_tools
from spark_cancel import seconds_of_work_after_cancel, seconds_of_work_after_interrupt
from spark_tools import SOURCE, chain, fail, kill, once, rows_of, stream, write_files

import ordstream as od
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import functions as F

from ordstream.spark import Channel, apply, explain

# Spark's workers don't have the folder of the tests on their path
cloudpickle.register_pickle_by_value(spark_tools)
cloudpickle.register_pickle_by_value(spark_cancel)
pytestmark = pytest.mark.spark

ROWS = 6_000
SOURCE_AND_MORE = pa.schema([*SOURCE, ("seen", pa.int64()), ("least", pa.uint32())])
# Seconds. Spark alone needs 2 to 3, and more than 4 beside ten processes that compute; bench/spark_cancel.py
# measures. Work that nobody ends goes on for an hour.
LONGEST_AFTER_CANCEL = 20.0


@pytest.fixture(scope="module")
def serial():
    return run_serial(chain(last=False), stream(range(ROWS)))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_files(folder, stream(range(ROWS)), [50, 5_000], ["a", "b", "c"])
    return str(folder)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_every_update_and_its_tag_are_those_of_a_sequential_run(spark, files, serial, nodes):
    channel = Channel()
    frame = apply(
        chain(last=False), spark.read.parquet(files), order_by="ts", nodes=nodes, tags=True, report=channel
    )
    found = frame.toArrow()
    assert rows_of(found.drop(["_serial", "_index"])) == rows_of(serial.table)
    assert list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)) == serial.tags
    if nodes > 1:
        fragments = [report["fragment"] for report in channel.latest.values()]
        assert {fragment: fragments.count(fragment) for fragment in (2, 3, 4)} == {
            2: nodes,
            3: nodes,
            4: nodes,
        }
        assert sum(r["rows_out"] for r in channel.latest.values() if r["fragment"] == 4) == len(serial.tags)


def test_a_side_table_travels_to_the_executors(spark, files):
    names = pa.table({"item": ["é0", "é3", "é0", None], "name": ["x", "ключ", None, "no"], "fee": range(4)})
    counted = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count())
    pipeline = counted.join_lookup(names, "item", "left").key_by("name").scan(least=od.min("n"))
    expected = run_serial(pipeline, stream(range(ROWS)))
    frame = apply(pipeline, spark.read.parquet(files), order_by="ts", nodes=2, tags=True)
    found = frame.toArrow()
    assert rows_of(found.drop(["_serial", "_index"])) == rows_of(expected.table)
    assert list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)) == expected.tags


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_table_tells_which_rows_go_on_to_their_nodes(spark, files, how):
    known = pa.table({"item": ["é0", "é3", "é0", None]})
    pipeline = od.Pipeline(SOURCE).join_lookup(known, "item", how).key_by("user").scan(seen=od.count())
    expected = run_serial(pipeline, stream(range(ROWS)))
    assert 0 < len(expected.tags) < ROWS
    found = apply(pipeline, spark.read.parquet(files), order_by="ts", nodes=2, tags=True).toArrow()
    assert rows_of(found.drop(["_serial", "_index"])) == rows_of(expected.table)
    assert list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)) == expected.tags


@pytest.mark.parametrize("act", [fail, kill])
@pytest.mark.thin(1)
def test_number_and_order_of_files_and_partitions_and_a_retry_change_nothing(spark, tmp_path, act):
    pipeline = chain(lambda p: p.map(once(str(tmp_path / "flag"), act), schema=SOURCE))
    expected = rows_of(run_serial(chain(), stream(range(ROWS))).table)
    names = {fail: ["z", "a", "m", "b"], kill: ["only"]}[act]  # files that lie otherwise than their rows
    write_files(tmp_path / "files", stream(range(ROWS)), [700, 1_400, 5_600][: len(names) - 1], names)
    frame = spark.read.parquet(str(tmp_path / "files")).repartition(5)
    by_all = ["ts", "n"]  # no two rows are equal in these
    assert rows_of(apply(pipeline, frame, order_by=by_all, nodes=3).toArrow()) == expected
    assert (tmp_path / "flag").exists()


def test_rows_in_order_are_numbered_where_they_are(spark, files, serial):
    frame = spark.read.parquet(files).orderBy("ts", "n")
    assert rows_of(
        apply(chain(last=False), frame, order_by="ts", nodes=2, presorted=True).toArrow()
    ) == rows_of(serial.table)
    backwards = spark.createDataFrame(
        [(2, 1, "a", 0), (1, 1, "a", 1)], "ts long, user long, item string, n long"
    ).coalesce(1)
    with pytest.raises(Exception, match="row 2 of the source comes before row 1 in the order ts"):
        apply(chain(), backwards, order_by="ts", presorted=True, nodes=2).collect()


@pytest.mark.parametrize("presorted", [False, True])
@pytest.mark.thin(1)
def test_where_a_key_comes_first_the_rows_reach_python_in_the_nodes_only(spark, files, tmp_path, presorted):
    key_first = (
        od.Pipeline(SOURCE)
        .key_by("user", "item")
        .scan(seen=od.count(), least=od.min("n"))
        .map(once(str(tmp_path / "flag"), kill), schema=SOURCE_AND_MORE)
    )
    frame = spark.read.parquet(files)
    frame = frame.orderBy("ts", "n") if presorted else frame.repartition(5)
    channel = Channel()
    result = apply(
        key_first, frame, order_by=["ts", "n"], nodes=3, presorted=presorted, tags=True, report=channel
    )
    # the nodes, and the tags' end
    assert result._jdf.queryExecution().executedPlan().toString().count("MapInArrow") == 2
    found, expected = result.toArrow(), run_serial(key_first, stream(range(ROWS)))
    assert (tmp_path / "flag").exists()
    assert rows_of(found.drop(["_serial", "_index"])) == rows_of(expected.table)
    assert list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)) == expected.tags
    tuples = [report["tuples"] for report in channel.latest.values()]
    assert len(tuples) == 3
    assert min(tuples) > 0
    assert sum(tuples) == ROWS
    wrong = spark.createDataFrame(
        [(2, 1, "a", 0), (1, 1, "a", 1)], "ts long, user long, item string, n long"
    ).coalesce(1)
    with pytest.raises(Exception, match="row 2 of the source comes before row 1 in the order ts"):
        apply(key_first, wrong, order_by="ts", presorted=True, nodes=2).collect()


def test_keys_that_spark_would_not_hash_alike_are_sent_by_python(spark):
    """To Spark's hash 0.0 and -0.0 are two values, to a pipeline one."""
    rows = [(n, value) for n in range(20) for value in (0.0, -0.0)]
    frame = spark.createDataFrame(rows, "ts long, x double")
    source = pa.schema([("ts", pa.int64()), ("x", pa.float64())])
    table = pa.table([[row[0] for row in rows], [row[1] for row in rows]], schema=source)
    counts = od.Pipeline(source).key_by("x").count()
    found = apply(counts, frame, order_by="ts", presorted=True, nodes=4)
    assert [tuple(row) for row in found.collect()] == [tuple(row) for row in run_serial(counts, table).rows]


@pytest.mark.parametrize("nodes", [1, 2])
def test_aggregations_of_expressions(spark, files, nodes):
    n, late, item = od.col("n") * 1.5, od.col("total") - od.col("ts"), od.col("item") + "."
    totals = od.Pipeline(SOURCE).key_by("user").scan(total=od.sum(n), last=od.collect(item, 2))
    pipeline = totals.key_by("item").window(od.tumbling(90), time="ts").aggregate(x=od.arg_max("user", late))
    found = apply(pipeline, spark.read.parquet(files), order_by="ts", nodes=nodes)
    expected = run_serial(pipeline, stream(range(ROWS)))
    assert expected.error is None
    assert rows_of(found.toArrow()) == rows_of(expected.table)


def test_query_2_over_nodes_equals_one_node(spark, shared_data):
    from ordstream.tpcxbb import DataFolder, batch
    from ordstream.tpcxbb.queries import q2, q2_answer
    from ordstream.tpcxbb.schema import CLICK_ORDER

    data = DataFolder(shared_data)
    clicks = data.clicks_dataframe(spark)
    answer = batch.spark_answer(spark, data, "q2")
    ways = [(2, "updates"), (4, "final"), (2, "final"), (4, "updates")]
    for nodes, emit in ways if "ORDSTREAM_LONG" in os.environ else ways[:2]:
        channel = Channel()
        found = apply(q2(), clicks, order_by=CLICK_ORDER, nodes=nodes, emit=emit, report=channel)
        assert q2_answer([tuple(row) for row in found.collect()]) == answer
        (last,) = [report for report in channel.latest.values() if report["fragment"] == 4]
        assert (last["tuples"] <= 30 * nodes * 16) == (emit == "final")  # combined in each node first


def test_query_4_is_combined_in_each_node_first(spark, shared_data):
    from ordstream.tpcxbb import DataFolder, batch
    from ordstream.tpcxbb.queries import QUERIES
    from ordstream.tpcxbb.schema import CLICK_ORDER

    data, query = DataFolder(shared_data), QUERIES["q4"]
    clicks = data.clicks_dataframe(spark)
    pipeline = query.build(data.side_tables(), **query.profiles["batch"])
    answer = batch.spark_answer(spark, data, "q4")
    for emit in ("updates", "final"):
        channel = Channel()
        found = apply(pipeline, clicks, order_by=CLICK_ORDER, nodes=3, emit=emit, report=channel).toArrow()
        assert query.answer(rows_of(found)) == answer
        (last,) = [report for report in channel.latest.values() if report["fragment"] == 3]
        if emit == "final":
            assert last["tuples"] <= 3
            assert found.num_rows == 1
            assert found["average"][0].as_py() == answer[0][0] / answer[0][1]
        else:
            assert last["tuples"] == answer[0][1] > 3
    text = explain(pipeline, spark, nodes=3, emit="final")
    assert "average is combined first, and only one row goes on" in text
    assert "combined" not in explain(pipeline, spark, nodes=3)


def test_a_sum_that_may_overflow_says_what_to_do(spark):
    rows = [(n, n, "a", (-1) ** n * 2**62) for n in range(12)]
    frame = spark.createDataFrame(rows, "ts long, user long, item string, n long")
    pipeline = (
        od.Pipeline(SOURCE.set(3, SOURCE.field("n").with_type(pa.int64())))
        .key_by("user")
        .scan(seen=od.count())
    )
    pipeline = pipeline.aggregate(total=od.sum("n"), name="all")
    assert apply(pipeline, frame, order_by="ts", nodes=1, emit="final").collect() == [(0,)]
    with pytest.raises(Exception, match=r"operator 'all' failed .* run in one node, or with emit='updates'"):
        apply(pipeline, frame, order_by="ts", nodes=2, emit="final").collect()
    updates = apply(pipeline, frame, order_by="ts", nodes=2).toArrow()
    assert updates["total"].to_pylist() == [2**62, 0] * 6 + [0]


def test_explain_says_where_nodes_are(spark):
    text = explain(chain(), spark, nodes=2)
    assert text.count("cut: rows to nodes by hash of") == 4
    # Python functions want one per core
    assert "1 per executor, since tasks of this session hold 2 of its 2 cores" in text
    assert "plain Python functions: one node per core needs spark.task.cpus=1" in text
    built_in = od.Pipeline(SOURCE).key_by("user").count()
    assert explain(built_in, spark).startswith("1 node: one node per executor; a node works 2 threads")
    with pytest.raises(od.PlanError, match="nodes must be 'auto' or a whole number from 1 to 65536, got 0"):
        explain(built_in, spark, nodes=0)


ACTIONS = {
    "collect": lambda frame, _: frame.collect(),
    "toArrow": lambda frame, _: frame.toArrow(),
    "toPandas": lambda frame, _: frame.toPandas(),
    "show": lambda frame, _: frame.show(100),
    "toLocalIterator": lambda frame, _: list(frame.toLocalIterator()),
    "write.parquet": lambda frame, folder: frame.write.mode("overwrite").parquet(str(folder / "out")),
    "write.save": lambda frame, _: frame.write.format("noop").mode("append").save(),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.filterwarnings("ignore:toPandas attempted Arrow optimization")
@pytest.mark.thin(3)
def test_an_operator_error_names_the_serial_in_the_source(spark, tmp_path, action, tags):
    rows = [(n, n % 3, "a", n) for n in range(-20, 20)]
    frame = spark.createDataFrame(rows, "ts long, user long, item string, n long")
    schema = SOURCE.set(3, SOURCE.field("n").with_type(pa.int64()))
    pipeline = (
        od.Pipeline(schema)
        .key_by("user")
        .scan(seen=od.count())
        .select(share=od.col("user") // od.col("ts"), name="divide")
    )
    found = apply(pipeline, frame, order_by="ts", nodes=2, tags=tags)
    with pytest.raises(Exception, match="operator 'divide' failed at serial 21: ") as failed:
        ACTIONS[action](found, tmp_path)
    assert "serial counts" not in str(failed.value)
    # item and n, which nothing reads, did not come
    assert "{'ts': 0, 'user': 0, 'seen': 7}" in str(failed.value)


def test_a_user_s_text_that_looks_like_ours_stays_as_it_is(spark):
    def refuse(row):
        if row.n == 7:
            raise ValueError("it failed at serial 99: so he said")
        return (row.n,)

    frame = spark.createDataFrame([(n, n % 3, "a", n) for n in range(20)], SOURCE.names)
    schema = SOURCE.set(3, SOURCE.field("n").with_type(pa.int64()))
    counted = od.Pipeline(schema).key_by("user").scan(seen=od.count())
    pipeline = counted.map(refuse, schema=pa.schema([("n", pa.int64())]), name="refuse")
    text = r"'refuse' failed at serial 8: ValueError: it failed at serial 99: so he said"
    with pytest.raises(Exception, match=text) as failed:
        apply(pipeline, frame, order_by="ts", nodes=2).collect()
    assert "serial counts" not in str(failed.value)


def test_the_error_of_a_derived_frame_says_what_its_serial_counts(spark):
    frame = spark.createDataFrame([(n, n % 3, "a", n) for n in range(-20, 20)], SOURCE.names)
    schema = SOURCE.set(3, SOURCE.field("n").with_type(pa.int64()))
    pipeline = od.Pipeline(schema).key_by("user").scan(seen=od.count())
    pipeline = pipeline.select(share=od.col("user") // od.col("ts"), name="divide")
    found = apply(pipeline, frame, order_by="ts", nodes=2)
    text = r"failed at serial \d+: .* \(the serial counts the rows of node \d: with tags=True an error has"
    with pytest.raises(Exception, match=text):
        found.where("share > 0").collect()
    at_end = od.Pipeline(schema).with_columns(q=od.col("user") // (od.col("ts") - 3), name="divide")
    at_end = at_end.key_by("user").aggregate(total=od.sum("q"), emit="final")
    found = apply(at_end, frame, order_by="ts", nodes=2)
    with pytest.raises(Exception, match=text):
        found.where("total > 0").collect()
    with pytest.raises(Exception, match=r"'divide' failed at serial 24: .*zero\n"):
        found.collect()
    # one that fails otherwise, and one whose rows can't be read again, are told as they are
    with pytest.raises(Exception, match="no such thing"):
        apply(pipeline, frame.where(F.raise_error(F.lit("no such thing"))), order_by="ts", nodes=2).collect()


@pytest.mark.parametrize(
    ("nodes", "way"), [(1, "group"), (2, "group"), (2, "group with interrupt"), (2, "all jobs")]
)
@pytest.mark.thin(2)
def test_a_cancel_ends_the_work_of_the_nodes(spark, tmp_path, nodes, way):
    after = seconds_of_work_after_cancel(spark, tmp_path / "beats", f"{nodes} {way}", way=way, nodes=nodes)
    assert after < LONGEST_AFTER_CANCEL
    print(f"cancel over TCP, {nodes} nodes, {way}: the work ended {after:.2f} s later")


@pytest.mark.parametrize(
    ("action", "notebook"), [("collect of a derived frame", False), ("toArrow", True), ("write", True)]
)
def test_ctrl_c_ends_the_work_of_the_nodes_and_the_session_goes_on(spark, tmp_path, action, notebook):
    returned, after = seconds_of_work_after_interrupt(
        spark, tmp_path / "beats", action, notebook=notebook, still=1.5
    )
    assert max(returned, after) < LONGEST_AFTER_CANCEL
    print(
        f"Ctrl-C in {action}: KeyboardInterrupt after {returned:.2f} s, the work ended after {after:.2f} s"
    )


def test_ctrl_c_leaves_the_jobs_of_other_threads_alone(spark, tmp_path):
    folder, runs, results = tmp_path / "beats", tmp_path / "runs", []

    def leave_a_line(rows):
        with runs.open("a") as file:
            file.write("ran\n")
        return rows

    def beside():
        while not list(folder.glob("*")):
            time.sleep(0.02)
        # waits for the cores
        results.append(spark.sparkContext.parallelize([1, 2], 1).mapPartitions(leave_a_line).collect())

    thread = threading.Thread(target=beside)
    thread.start()
    seconds_of_work_after_interrupt(spark, folder, "collect", notebook=True, still=0.5)
    thread.join()
    assert results == [[1, 2]]
    # py4j sends a request again, and Spark runs its job twice, if its connection is closed
    assert runs.read_text() == "ran\n"
