"""Streams over frames that spell their columns otherwise, read in sessions that are set otherwise."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import CheckpointError, PlanError, SchemaError

pytest.importorskip("pyspark")
from ordstream.spark.streaming import stream


@pytest.fixture
def run(spark, tmp_path):
    """Run a stream over tables, each of them a micro-batch; its checkpoint."""

    def made(pipeline, schema, *tables, **options):
        folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
        folder.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, folder / f"{number}.parquet")
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        given = {"order_by": "ts", "checkpoint": checkpoint, "trigger": "available now"} | options
        od.spark.stream(pipeline, frame, **given).awaitTermination(120)
        return checkpoint

    return made


@pytest.fixture
def conf(spark):
    """Set the session; as it was, afterwards."""
    before = {}

    def set_to(name, value):
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_to
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_dates_before_1582_are_read_as_they_were_written(run, conf, mode):
    days = [datetime.date(1, 1, 1), datetime.date(1500, 2, 28), datetime.date(1582, 10, 10)]
    table = pa.table({"ts": [1, 2, 3], "day": days})
    pipeline = od.Pipeline(table.schema).key_by("day").count("n").key_by("day").lag({"before": "n"})
    checkpoint = run(pipeline, "ts long, day date", table, table, late="side_output")
    conf("spark.sql.parquet.datetimeRebaseModeInRead", mode)
    assert (
        od.spark.read_output(checkpoint).toArrow().to_pylist()[:3] == pipeline.run(table).table.to_pylist()
    )
    late = od.spark.read_output(checkpoint, late=True).toArrow()
    assert late["day"].to_pylist() == days[:2]


@pytest.mark.parametrize(
    "name", ["spark.sql.parquet.inferTimestampNTZ.enabled", "spark.sql.parquet.binaryAsString"]
)
def test_late_rows_have_the_source_s_types_however_the_session_reads_files(run, conf, name):
    clock, data = datetime.datetime(2040, 7, 1, 2, 30), [b"\xff", b"a", b"b"]
    table = pa.table({"ts": [1, 2, 3], "at": pa.array([clock] * 3, pa.timestamp("us")), "data": data})
    pipeline = od.Pipeline(table.schema).scan(at_=od.last("at"), data_=od.last("data"))
    checkpoint = run(pipeline, "ts long, at timestamp_ntz, data binary", table, table, late="side_output")
    conf(name, "true" if name.endswith("String") else "false")
    late = od.spark.read_output(checkpoint, late=True).toArrow()
    assert late.sort_by("ts").to_pylist() == table.slice(0, 2).to_pylist()
    assert od.spark.read_output(checkpoint).toArrow().slice(0, 3) == pipeline.run(table).table


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.thin(1)
def test_damaged_output_is_not_read(run, conf, late):
    """Parquet decodes most flipped bits into other values, and a session may leave out whole files."""
    table = pa.table({"ts": list(range(2000)), "v": [n * n % 1009 for n in range(2000)]})
    pipeline = od.Pipeline(table.schema).scan(s=od.sum("v"))
    checkpoint = run(pipeline, "ts long, v long", table, table, late="side_output")
    (path, *_) = (checkpoint / ("late" if late else "output")).iterdir()
    whole = path.read_bytes()
    expected = od.spark.read_output(checkpoint, late=late).toArrow()
    for at in range(100, len(whole) - 2000, len(whole) // 6):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        conf("spark.sql.files.ignoreCorruptFiles", "true" if at > 2000 else "false")
        with pytest.raises(Exception, match=path.name):
            od.spark.read_output(checkpoint, late=late).toArrow()
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=rf"{path.name}: .* it has [\d,]+ bytes, not [\d,]+; bring"):
        od.spark.read_output(checkpoint, late=late)
    path.write_bytes(whole)
    assert od.spark.read_output(checkpoint, late=late).toArrow().equals(expected)


def test_a_stream_that_runs_is_not_taken_back(run, spark, tmp_path):
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2]})
    pipeline = od.Pipeline(table.schema).key_by("user").count("n")
    checkpoint = run(pipeline, "ts long, user long", table, table, late="drop")
    frame = spark.readStream.schema("ts long, user long").parquet(str(tmp_path / "in"))
    query = od.spark.stream(pipeline, frame, order_by="ts", checkpoint=checkpoint)
    try:
        with pytest.raises(PlanError, match="still runs: stop it"):
            od.spark.rewind(checkpoint)
    finally:
        query.stop()
    assert od.spark.rewind(checkpoint) == 0


def test_a_stream_that_was_finished_says_where_its_state_is(run):
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2]})
    checkpoint = run(od.Pipeline(table.schema).key_by("user").count("n"), "ts long, user long", table)
    od.spark.finish(checkpoint)
    with pytest.raises(PlanError, match=r"was finished at epoch 1, .*: state\(\.\.\., epoch=0\)"):
        od.spark.state(checkpoint, "count_1")
    assert od.spark.state(checkpoint, "count_1", epoch=0).count() == 2
    for wrong in (-1, 2, True, "0"):
        with pytest.raises(PlanError, match="its epochs are 0 to 1, got epoch="):
            od.spark.state(checkpoint, "count_1", epoch=wrong)
    for name in (None, ["count_1"], {}):
        with pytest.raises(PlanError, match=r"no operator .* has a state behind epoch 0; there are"):
            od.spark.state(checkpoint, name, epoch=0)
    od.spark.rewind(checkpoint, to=-1)
    with pytest.warns(RuntimeWarning, match="planned micro-batch 0 "):  # which stays for the next start
        od.spark.finish(checkpoint)
    with pytest.raises(PlanError, match=r"was finished at epoch 0, .*; there is no epoch in front of it"):
        od.spark.state(checkpoint, "count_1")


def test_a_stream_to_which_nothing_came_has_no_state_yet(run):
    table = pa.table({"ts": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    checkpoint = run(od.Pipeline(table.schema).scan(s=od.sum("v")), "ts long, v long", table)
    with pytest.raises(PlanError, match="behind epoch 0: no row has come yet"):
        od.spark.state(checkpoint, "scan_1")


def test_slack_finds_a_column_in_another_case(run):
    table = pa.table({"TS": [1, 2, 5], "user": [1, 1, 2]})
    pipeline = od.Pipeline(pa.schema([("ts", pa.int64()), ("user", pa.int64())])).key_by("user").count("n")
    checkpoint = run(pipeline, "TS long, user long", table, slack=3)
    assert od.spark.read_output(checkpoint).count() == 1
    od.spark.finish(checkpoint)
    assert (
        od.spark.read_output(checkpoint).toArrow().to_pylist()
        == pipeline.run(table.rename_columns(["ts", "user"])).table.to_pylist()
    )


def test_columns_that_differ_in_case_are_read_where_spark_tells_them_apart(run, conf):
    conf("spark.sql.caseSensitive", "true")
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2], "User": [4, 5, 6]})
    pipeline = od.Pipeline(table.schema).key_by("user").scan(total=od.sum("User"))
    checkpoint = run(pipeline, "ts long, user long, User long", table, table, late="side_output")
    assert od.spark.read_output(checkpoint).columns == ["ts", "user", "User", "total"]
    assert od.spark.read_output(checkpoint, late=True).count() == 2
    conf("spark.sql.caseSensitive", "false")
    for late in (False, True):
        with pytest.raises(SchemaError, match=r"'user' and 'User' differ in case only.*caseSensitive"):
            od.spark.read_output(checkpoint, late=late)


@pytest.mark.parametrize("aqe", ["true", "false"])
@pytest.mark.parametrize("options", [{}, {"nodes": 2}, {"nodes": 2, "grouping": "dkg"}, {"driver_rows": 9}])
@pytest.mark.thin(3)
def test_a_micro_batch_of_several_files_may_leave_no_rows(spark, conf, monkeypatch, tmp_path, aqe, options):
    """Nor a partition, and so no task, where several tasks read it: it is an epoch like any other, also
    where it is given again.
    """
    monkeypatch.setattr(stream, "slots", lambda _: 2)
    conf("spark.sql.adaptive.enabled", aqe)
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    table = pa.table({"ts": [1, 2, 3, 4], "user": [1, 1, 2, 1]})
    pipeline = od.Pipeline(table.schema).key_by("user").scan(n=od.count())
    counts = []
    for number, kept in enumerate(("ts < 0", "ts < 9", "ts < 0", "ts < 0")):
        if number < 3:
            for part in (0, 2):
                pq.write_table(table.slice(part, 2), folder / f"{number}{part}.parquet")
        else:
            for path in (checkpoint / "spark" / "commits").glob("*2*"):
                path.unlink()
        frame = spark.readStream.schema("ts long, user long").parquet(str(folder)).where(kept)
        query = od.spark.stream(
            pipeline,
            frame,
            order_by="ts",
            checkpoint=checkpoint,
            trigger="available now",
            slack=1,
            **options,
        )
        query.awaitTermination(120)
        counts += [one["rows"] for one in query.epochs]
    assert counts == [0, 4, 0]
    od.spark.finish(checkpoint)
    assert od.spark.read_output(checkpoint).toArrow() == pipeline.run(table).table


def test_a_micro_batch_whose_files_are_gone_is_not_the_same(spark, monkeypatch, tmp_path):
    monkeypatch.setattr(stream, "slots", lambda _: 2)
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    table = pa.table({"ts": [1, 2], "user": [1, 1]})
    pipeline = od.Pipeline(table.schema).key_by("user").count("n")
    pq.write_table(table, folder / "a.parquet")
    frame = spark.readStream.schema("ts long, user long").parquet(str(folder))

    def go():
        given = {"order_by": "ts", "checkpoint": checkpoint, "trigger": "available now"}
        od.spark.stream(pipeline, frame, **given).awaitTermination(120)

    go()
    for path in (folder / "a.parquet", *(checkpoint / "spark" / "commits").glob("*0*")):
        path.unlink()
    with pytest.raises(CheckpointError, match="micro-batch 0 again, with 0 rows that are not the 2"):
        go()


@pytest.mark.parametrize("read_as", ["wall clock", "instant"])
def test_another_time_zone_at_the_next_start_is_refused_where_spark_casts_by_it(
    spark, conf, tmp_path, read_as
):
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    kind = pa.timestamp("us", "UTC" if read_as == "instant" else None)
    pipeline = od.Pipeline(pa.schema([("ts", kind), ("n", pa.int64())])).filter(od.col("n") > 0)
    rows = pa.table({"ts": pa.array([10**6, 2 * 10**6], pa.timestamp("us", "UTC")), "n": [1, 2]})

    def go(name):
        pq.write_table(rows, folder / name)
        frame = spark.readStream.schema("ts timestamp, n long").parquet(str(folder))
        given = {"order_by": "n", "checkpoint": checkpoint, "trigger": "available now"}
        query = od.spark.stream(pipeline, frame, **given, slack=None)
        query.awaitTermination(120)

    conf("spark.sql.session.timeZone", "Asia/Tokyo")
    go("a.parquet")
    conf("spark.sql.session.timeZone", "UTC")
    rows = rows.set_column(1, "n", pa.array([3, 4]))
    if read_as == "instant":
        go("b.parquet")
        assert [row.n for row in od.spark.read_output(checkpoint).collect()] == [1, 2, 3, 4]
        return
    with pytest.raises(CheckpointError, match=r"began with .*Asia/Tokyo, and this session has UTC: .*'ts'"):
        go("b.parquet")
    conf("spark.sql.session.timeZone", "Asia/Tokyo")
    go("b.parquet")
    found = od.spark.read_output(checkpoint).toArrow()["ts"].cast(pa.int64()).to_pylist()
    assert found == [(9 * 3600 + n) * 10**6 for n in (1, 2, 1, 2)]


INSTANT, CLOCK, DAY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()


@pytest.mark.parametrize("end", ["stream", "finish"])
@pytest.mark.parametrize(("was", "now"), [(INSTANT, CLOCK), (CLOCK, INSTANT), (DAY, INSTANT), (DAY, CLOCK)])
def test_rows_that_wait_keep_their_day_or_are_refused(spark, conf, tmp_path, was, now, end):
    """The next pipeline reads a TIMESTAMP as a clock's reading, or as an instant. Rows that had waited were
    of the day before, or had lost their hour; new ones of the same epoch were right.
    """
    conf("spark.sql.session.timeZone", "Europe/Berlin")
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    given = {"order_by": "ts", "checkpoint": checkpoint, "trigger": "available now"}
    at = datetime.datetime(2024, 6, 30, 23, tzinfo=datetime.UTC)  # in Berlin it is July

    def made(kind):
        source = pa.schema([("ts", pa.int64()), ("at", kind)])
        return od.Pipeline(source).select("ts", day=od.col("at").dt.day())

    def go(kind, *times):
        rows = pa.table({"ts": pa.array(times, pa.int64()), "at": pa.array([at] * len(times), INSTANT)})
        pq.write_table(rows, folder / f"{times[0]}.parquet")
        frame = spark.readStream.schema("ts long, at timestamp").parquet(str(folder))
        od.spark.stream(made(kind), frame, slack=1000, **given).awaitTermination(120)

    go(was, 0, 100)
    with pytest.raises(CheckpointError, match=r"rows that wait have column 'at' as .* start that one until"):
        go(now, 101) if end == "stream" else od.spark.finish(checkpoint, made(now))
    if end == "stream":
        frame = spark.readStream.schema("ts long, at timestamp").parquet(str(folder))
        od.spark.stream(made(was), frame, slack=1000, **given).awaitTermination(120)
    od.spark.finish(checkpoint, made(was))
    days = [row.day for row in od.spark.read_output(checkpoint).collect()]
    assert days == [30 if was == INSTANT else 1] * (3 if end == "stream" else 2)


def test_an_order_that_was_read_as_a_clock_may_be_read_as_instants(spark, conf, tmp_path):
    """The refusal said that the frame's column had been no instant."""
    conf("spark.sql.session.timeZone", "Europe/Berlin")
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    start = datetime.datetime(2024, 7, 1, tzinfo=datetime.UTC)

    def go(kind, *seconds):
        times = pa.array([start + datetime.timedelta(seconds=one) for one in seconds], INSTANT)
        pq.write_table(pa.table({"ts": times, "n": seconds}), folder / f"{seconds[0]}.parquet")
        frame = spark.readStream.schema("ts timestamp, n long").parquet(str(folder))
        source = pa.schema([("ts", kind), ("n", pa.int64())])
        pipeline = od.Pipeline(source).select("n", hour=od.col("ts").dt.hour())
        given = {"order_by": "ts", "checkpoint": checkpoint, "trigger": "available now", "slack": "50s"}
        od.spark.stream(pipeline, frame, **given).awaitTermination(120)

    go(CLOCK, 0, 100)  # 100 waits
    go(INSTANT, 101, 170)
    od.spark.finish(checkpoint)
    found = [(row.n, row.hour) for row in od.spark.read_output(checkpoint).collect()]
    assert found == [(0, 2), (100, 0), (101, 0), (170, 0)]


@pytest.mark.parametrize("wrong", [5, None, {"ts": 1}])
def test_an_order_by_of_another_kind_is_refused(run, wrong):
    table = pa.table({"ts": [1], "user": [1]})
    with pytest.raises(od.PlanError, match="order_by takes the name of a column, or a list of names"):
        run(od.Pipeline(table.schema), "ts long, user long", order_by=wrong)


FAILS = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
import ordstream as od

def fails(row):
    if row.ts == 2:
        raise ValueError("not this one")
    return tuple(row)

if __name__ == "__main__":
    folder = sys.argv[1]
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2]})
    pq.write_table(table, f"{folder}/in/a.parquet")
    spark = od.spark.local_session(1, memory="500m")
    pipeline = od.Pipeline(table.schema).map(fails, schema=table.schema).key_by("user").count("n")
    frame = spark.readStream.schema("ts long, user long").parquet(f"{folder}/in")
    query = od.spark.stream(
        pipeline, frame, order_by="ts", checkpoint=f"{folder}/checkpoint", trigger="available now"
    )
    try:
        query.awaitTermination(120)
    except od.OrdstreamError as error:
        print(error)
    spark.stop()
"""


def test_an_error_in_a_stream_says_where_and_shows_no_trace_of_java(java, tmp_path):
    pytest.importorskip("pyspark")
    (tmp_path / "in").mkdir()
    program = tmp_path / "program.py"
    program.write_text(FAILS)
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    command = [sys.executable, str(program), str(tmp_path)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    line = FAILS.split("\n").index('        raise ValueError("not this one")') + 1
    assert ended.stdout.splitlines() == [
        "operator 'map_1' failed at serial 2: ValueError: not this one",
        f"  at: {program}:{line}, in fails",
        "  row: {'ts': 2, 'user': 1}",
    ]
    assert "ERROR MicroBatchExecution" in ended.stderr
    assert "ValueError: not this one" in ended.stderr
    assert "\tat " not in ended.stderr


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.thin(1)
def test_late_rows_of_a_stream_that_had_none_are_no_rows(run, spark, tmp_path, nodes):
    """With the columns that they would have; a stream that puts none aside is told so."""
    clock = datetime.datetime(2040, 7, 1, 2, 30)
    at = pa.array([clock] * 3, pa.timestamp("us"))
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2], "at": at, "unread": [0, 0, 0]})
    pipeline = od.Pipeline(table.schema).key_by("user").scan(n=od.count(), last=od.last("at"))
    pipeline = pipeline.select("user", "n", "last")
    types = "ts long, user long, at timestamp_ntz, unread long"
    checkpoint = run(pipeline, types, table, late="side_output", nodes=nodes)
    none = od.spark.read_output(checkpoint, late=True)
    assert none.count() == 0
    frame = spark.readStream.schema(types).parquet(str(tmp_path / "in"))

    def go_on(name, late):
        rows = table.set_column(0, "ts", [[4, 5, 6]]) if name == "later" else table
        pq.write_table(rows, tmp_path / "in" / f"{name}.parquet")
        more = {"checkpoint": checkpoint, "trigger": "available now", "late": late, "nodes": nodes}
        od.spark.stream(pipeline, frame, order_by="ts", **more).awaitTermination(120)

    go_on("later", "raise")
    assert od.spark.read_output(checkpoint, late=True).schema == none.schema
    go_on("late", "side_output")
    late = od.spark.read_output(checkpoint, late=True)
    assert late.schema == none.schema
    assert late.count() == 3
    assert od.spark.read_output(checkpoint).count() == 6


def test_a_stream_that_puts_no_late_rows_aside_says_how_it_would(run, tmp_path):
    table = pa.table({"ts": [1, 2, 3]})
    checkpoint = run(od.Pipeline(table.schema), "ts long", table, late="drop")
    with pytest.raises(CheckpointError, match=r"no late rows aside: it was not started with late='side_out"):
        od.spark.read_output(checkpoint, late=True)
    od.spark.rewind(checkpoint, to=-1)
    with pytest.raises(CheckpointError, match="no row has come yet, or it was never started with"):
        od.spark.read_output(checkpoint, late=True)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"slack": "10s"}, r"slack='10s' says how far a row may lie behind in 'user' \(long\)"),
        ({"late": "dropp"}, r"late must be one of raise, drop, side_output; got 'dropp'"),
        ({"late": np.array([1, 2])}, r"late must be one of raise, drop, side_output; got array"),
        ({"trigger": "now and then"}, r"trigger='now and then': takes 'available now'"),
        ({"trigger": "5 parsecs"}, r"trigger='5 parsecs': Spark says .*parsecs"),
        ({"trigger": {"processingTime": 5}}, r"trigger=\{'processingTime': 5\}: Spark says"),
        ({"name": 5}, r"name takes a text, the name of Spark's query; got 5"),
        ({"sink": "folder"}, r"sink takes a sink of"),
        ({"workers": "many"}, r"workers must be a whole number from 0 to 1024"),
        ({"grouping": 5}, r"grouping is one of 'hash', .*; got 5"),
        ({"grouping": {"count_1": "dgk"}}, r"grouping is one of 'hash', .*; got 'dgk'"),
        ({"driver_rows": np.array([1, 2])}, r"driver_rows is 'auto' or a whole number"),
        ({"nodes": 2, "balance": "mixed"}, r"balance takes od\.Mixed"),
    ],
)
def test_a_call_that_is_refused_begins_no_stream(spark, tmp_path, wrong, text):
    """It left a checkpoint that knew its order: the mended call was told that serials had been given so."""
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("ts long, user long").parquet(str(tmp_path / "in"))
    pipeline = od.Pipeline({"ts": int, "user": int}).key_by("user").count()
    with pytest.raises(PlanError, match=text):
        od.spark.stream(pipeline, frame, order_by="user", checkpoint=tmp_path / "stream", **wrong)
    assert not (tmp_path / "stream").exists()


def test_the_end_of_a_stream_has_checked_arguments(run):
    """What is no number of workers was an error of a task, and of a sink an array's that it is not true."""
    table = pa.table({"ts": [1, 2], "user": [7, 7]})
    pipeline = od.Pipeline(table.schema).key_by("user").count("n")
    checkpoint = run(pipeline, "ts long, user long", table)
    with pytest.raises(PlanError, match="workers must be a whole number from 0 to 1024"):
        od.spark.finish(checkpoint, workers="many")
    with pytest.raises(PlanError, match="sink takes a sink of"):
        od.spark.finish(checkpoint, sink=np.array([1, 2]))
    od.spark.finish(checkpoint, sink=[])
    assert od.spark.read_output(checkpoint).toArrow()["n"].to_pylist() == [1, 2]
