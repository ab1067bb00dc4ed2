"""The order of a result over many partitions, and how many nodes a job gets, against `run_serial`."""

import collections
import contextlib
import itertools
import logging
import os
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spark_cancel
import spark_cluster
from spark_tools import SOURCE, in_own_executors, rows_of, stream, write_files

import ordstream as od
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from ordstream.spark import Channel, apply, explain, layout

pytestmark = pytest.mark.spark

ROWS = 3_000
NODES = 3
RANGES = 4
USERS = od.Pipeline(SOURCE).key_by("user")
JOBS = {
    "rows": USERS.scan(seen=od.count()),
    "rows and what the end causes": USERS.sessionize("ts", 20, ["ts"]),
    "what the end causes": USERS.count(emit="final"),
    "two keys": od.Pipeline(SOURCE).filter(od.col("n") % 5 != 0).key_by("user").scan(seen=od.count())
    .key_by("item").scan(both=od.sum("seen")),
    "one state": USERS.scan(seen=od.count()).aggregate(last=od.last("n"), emit="updates"),
    "no state": od.Pipeline(SOURCE).filter(od.col("n") % 7 == 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_files(folder, stream(range(ROWS)), [50, 2_000], ["a", "b", "c"])
    return str(folder)


@contextlib.contextmanager
def conf(spark, **settings):
    """Settings of the session, for a block; a name's "__" is a dot."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture
def ranges(spark):
    """As many partitions as Spark is asked for, however few rows there are."""
    with conf(
        spark,
        spark__sql__shuffle__partitions=str(RANGES),
        spark__sql__adaptive__coalescePartitions__enabled="false",
    ):
        yield


def partitions_of(frame):
    """The rows of each partition that has any."""
    found = collections.defaultdict(list)
    numbered = frame.rdd.mapPartitionsWithIndex(lambda number, rows: ((number, tuple(row)) for row in rows))
    for index, row in numbered.collect():
        found[index].append(row)
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.thin(3)
def test_a_total_order_lies_over_many_partitions(spark, files, ranges, job):
    expected = rows_of(run_serial(JOBS[job], stream(range(ROWS))).table)
    channel = Channel()
    frame = apply(JOBS[job], spark.read.parquet(files), order_by="ts", nodes=NODES, report=channel)
    parts = partitions_of(frame)
    assert [row for part in parts for row in part] == expected
    if job == "one state":
        assert len(parts) == 1
    else:
        assert len(parts) >= RANGES
        assert max(map(len, parts)) < len(expected) / 2  # nobody has most of it
    # every node ran once: no pass over the nodes' output to learn where to cut it
    runs = collections.Counter(
        (report["fragment"], key.partition) for key, report in channel.reports.items()
    )
    assert set(runs.values()) == {1}


def test_files_that_are_written_have_the_order(spark, files, ranges, tmp_path):
    for name in ("rows", "rows and what the end causes"):
        expected = rows_of(run_serial(JOBS[name], stream(range(ROWS))).table)
        folder = tmp_path / name
        apply(JOBS[name], spark.read.parquet(files), order_by="ts", nodes=NODES).write.parquet(str(folder))
        written = sorted(folder.glob("*.parquet"))
        assert len(written) > 1
        assert rows_of(pa.concat_tables([pq.read_table(file) for file in written])) == expected


@pytest.mark.parametrize("presorted", [False, True])
def test_by_key_and_none_have_the_same_rows_with_one_shuffle(spark, files, ranges, presorted):
    filtered = od.Pipeline(SOURCE).filter(od.col("user").is_not_null())
    pipeline = filtered.key_by("user").scan(seen=od.count(), least=od.min("n"))
    expected = rows_of(run_serial(pipeline, stream(range(ROWS))).table)
    frame = spark.read.parquet(files)
    frame = frame.orderBy("ts", "n") if presorted else frame
    for order in ("by_key", "none"):
        found = apply(pipeline, frame, order_by="ts", nodes=NODES, order=order, presorted=presorted)
        plan = found._jdf.queryExecution().executedPlan().toString()
        # an order that rows come with costs its own
        assert plan.count("Exchange") - plan.count("Exchange rangepartitioning") == 1
        assert plan.count("rangepartitioning") == presorted
        parts = partitions_of(found)
        assert len(parts) == NODES
        assert collections.Counter(row for part in parts for row in part) == collections.Counter(expected)
        for part in parts:
            users = {row[1] for row in part}
            assert part == [row for row in expected if row[1] in users]


def test_several_keys_and_none_at_all_without_an_order(spark, files, ranges):
    for name in ("two keys", "what the end causes", "no state"):
        expected = rows_of(run_serial(JOBS[name], stream(range(ROWS))).table)
        found = apply(JOBS[name], spark.read.parquet(files), order_by="ts", nodes=NODES, order="none")
        assert sorted(map(repr, rows_of(found.toArrow()))) == sorted(map(repr, expected))
    spread = od.Pipeline(SOURCE).map(tuple, schema=SOURCE)
    frame = spark.read.parquet(files).orderBy("ts", "n")
    parts = partitions_of(apply(spread, frame, order_by="ts", nodes=NODES, order="none", presorted=True))
    assert sorted(map(repr, itertools.chain(*parts))) == sorted(map(repr, rows_of(stream(range(ROWS)))))
    assert ROWS / 6 < min(map(len, parts)) < max(map(len, parts)) < ROWS / 2
    assert "Exchange" not in found._jdf.queryExecution().executedPlan().toString()


def test_results_that_there_are_not_and_numbers_that_are_no_serials(spark):
    frame = spark.createDataFrame(
        [(n, 1, "a", n) for n in range(5)], "ts long, user long, item string, n long"
    )
    for wrong, text in (
        ({"order": "some"}, "order is one of 'total', 'by_key', 'none', got 'some'"),
        ({"order": "none", "tags": True}, "tags=True counts the rows in front of a row"),
        ({"order": "by_key"}, "order='by_key' keeps the rows of a key .* this pipeline has none"),
    ):
        with pytest.raises(od.PlanError, match=text):
            apply(JOBS["no state"], frame, order_by="ts", nodes=2, **wrong)
    failing = USERS.scan(seen=od.count()).select(
        share=od.col("user") // (od.col("n").cast(pa.int64()) - 3), name="divide"
    )
    with pytest.raises(
        Exception, match=r"'divide' failed at serial 4: .*\(the serial counts this task's rows"
    ):
        apply(failing, frame, order_by="ts", nodes=2, order="none").collect()


@pytest.mark.skipif("ORDSTREAM_LONG" not in os.environ, reason="the long form: ORDSTREAM_LONG=1 make test")
def test_four_executors_that_share_nothing_one_of_which_dies(java, tmp_path):
    found = in_own_executors(spark_cluster.__file__, tmp_path, spark_cancel.__file__)
    assert found["died"]
    assert found["equal"] == dict.fromkeys(found["equal"], True)
    assert len(found["equal"]) == 2
    # as many as the session is configured for, though one has died
    assert found["explain"][0].startswith("4 nodes: one node per executor")


GIB = 1 << 30
CASES = {
    # bytes that Spark estimates, executors and cores of one -> nodes, why
    "small": ((60 << 20, 10, 4), 1, "Spark takes the input for 60 MiB: one node is cheaper"),
    "one task at a time": ((100 * GIB, 1, 4), 1, "configured for one such task at a time"),
    "at least as many as run": (
        (GIB // 5, 10, 4),
        10,
        "64 MiB per node; this session is configured for 10 at a time",
    ),
    "in waves": ((10 * GIB, 10, 4), 160, "64 MiB per node"),
    "no more than Spark's partitions": ((1_000 * GIB, 10, 4), 200, "64 MiB per node"),
    "but as many as there are executors": ((1_000 * GIB, 300, 4), 300, "64 MiB per node"),
    "nobody knows": ((None, 10, 4), 10, "Spark has no estimate of the input"),
    "nobody knows anything": ((None, None, 4), 8, "Spark has no estimate of the input"),
    "nobody says how many executors": ((1 * GIB, None, 4), 16, "at most spark.sql.shuffle.partitions"),
}


@pytest.mark.parametrize("case", CASES)
def test_auto_is_chosen_from_the_estimate_and_the_settings(monkeypatch, case):
    (size, executors, cores), nodes, why = CASES[case]
    monkeypatch.setattr(layout, "resources", lambda _: layout.Resources(cores, executors, cores))
    monkeypatch.setattr(layout, "estimated_bytes", lambda _: size)
    session = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "200"))
    chosen = layout.make_layout(session, USERS.count(), "auto", "auto", SimpleNamespace())
    assert chosen.nodes == nodes
    assert why in chosen.why
    # what has one state for all, sheds, or counts serials, gains nothing
    for pipeline, reason in (
        (od.Pipeline(SOURCE).aggregate(last=od.last("n")), "has one state for all rows: one task takes all"),
        (USERS.count().sample(0.5), "serials"),
    ):
        alone = layout.make_layout(session, pipeline, "auto", "auto", SimpleNamespace())
        assert alone.nodes == 1
        assert reason in alone.why


def test_spark_estimates_and_the_log_and_explain_say_what_was_chosen(spark, files, monkeypatch, caplog):
    frame = spark.read.parquet(files)
    size = layout.estimated_bytes(frame)
    assert 10_000 < size < 1_000_000
    assert layout.estimated_bytes(frame.crossJoin(frame.select("n"))) <= 10 * 2 * size  # no size times size
    assert layout.estimated_bytes(spark.sparkContext.parallelize([(1,)]).toDF("n long")) is None
    monkeypatch.setattr(layout, "NODE_BYTES", 1 + size // 2)
    monkeypatch.setattr(layout, "resources", lambda _: layout.Resources(2, 3, 2))
    with caplog.at_level(logging.INFO, logger="ordstream.spark"):
        found = apply(JOBS["one state"], frame, order_by="ts")
    (record,) = caplog.records
    assert record.message.startswith("3 nodes (Spark takes it for ")
    assert record.message.endswith(" at a time): one node per executor; a node works 2 threads")
    assert rows_of(found.toArrow()) == rows_of(run_serial(JOBS["one state"], stream(range(ROWS))).table)
    text = explain(JOBS["one state"], spark, df=frame)
    assert text.startswith("3 nodes: one node per executor")
    assert "        chosen: Spark takes it for" in text
    assert "aggregate_2 has one state for all rows: one task takes all that reach it" in text
    assert explain(JOBS["one state"], spark, df=frame, order="none").endswith("in any order")


def test_a_node_that_could_have_threads_and_has_none_says_so_once(spark, files, monkeypatch, caplog):
    frame = spark.read.parquet(files)
    monkeypatch.setattr(layout, "resources", lambda _: layout.Resources(1, 1, 8))
    with caplog.at_level(logging.WARNING, logger="ordstream.spark"):
        for _ in range(2):
            apply(JOBS["rows"], frame, order_by="ts")
        apply(
            od.Pipeline(SOURCE).map(tuple, schema=SOURCE), frame, order_by="ts"
        )  # threads would not help it
    (record,) = caplog.records
    assert "one node runs without worker threads: its task has 1 of the executor's 8 cores" in record.message
