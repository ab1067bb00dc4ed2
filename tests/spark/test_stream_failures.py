"""What a user's sink, listener or function raises, however odd, ends a stream with an error that can be
read, or is a warning; nothing waits for ever.
"""

import datetime
import os
import shutil
import threading
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import CheckpointError, OperatorError, PlanError, SinkError, SourceError

pytest.importorskip("pyspark")
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ordstream.spark.streaming import stream as stream_module
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_manifest import FOLDERS, STATE
from ordstream.spark.streaming.epoch_runner import EpochRunner
from ordstream.spark.streaming.failures import for_java

pytestmark = pytest.mark.spark

TABLE = pa.table({"ts": [1, 2, 3, 4], "user": [1, 2, 1, 1]})
SECONDS = 60


class Unshown(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Mine:
    """A sink of the user's that does what it is told to."""

    def __init__(self, **does):
        self.does, self.calls = does, []

    def __getattr__(self, name):
        if name not in ("open", "delivered", "deliver", "close"):
            raise AttributeError(name)

        def call(*given):
            self.calls.append(name)
            return self.does[name](*given) if name in self.does else None

        return call


def raises(error):
    def fails(*_):
        raise error

    return fails


@pytest.fixture
def start(spark, tmp_path):
    """Start a stream of four micro-batches of a row each."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        pq.write_table(TABLE.slice(number, 1), folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_000_000_000 + number,) * 2)

    def made(pipeline=None, changed=lambda frame: frame, **options):
        frame = spark.readStream.schema("ts long, user long").option("maxFilesPerTrigger", 1)
        return od.spark.stream(
            pipeline or od.Pipeline(TABLE.schema).key_by("user").count("n"),
            changed(frame.parquet(str(folder))),
            **({"order_by": "ts", "checkpoint": tmp_path / "cp", "trigger": "available now"} | options),
        )

    return made


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit("bye"), "SystemExit: bye"),
        (Unshown(), "Unshown"),
        (ValueError("\ud800"), "ValueError: ?"),
    ],
)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.thin(4)
def test_whatever_a_sink_raises_is_told_with_epoch_and_place(start, error, text, own):
    fails = raises(error)
    query = start(sink=Mine(deliver=fails) if own else od.spark.sinks.Function(fails))
    with pytest.raises(SinkError) as told:
        assert query.awaitTermination(SECONDS), "Spark was not told"
    line = fails.__code__.co_firstlineno + 1
    assert f" failed on epoch 0 (1 rows): {text}. The epoch is committed and comes again" in str(told.value)
    assert str(told.value).endswith(f"\n  at: {__file__}:{line}, in fails")
    assert query.exception() is told.value
    got = []
    sink = od.spark.sinks.Function(lambda epoch, *_: got.append(epoch))
    start(sink=sink).awaitTermination(SECONDS)
    assert got == [0, 1, 2, 3]


def test_a_huge_text_does_not_go_into_sparks_log(start):
    query = start(sink=od.spark.sinks.Function(raises(ValueError("x" * 1_000_000))))
    with pytest.raises(SinkError) as told:
        query.awaitTermination(SECONDS)
    assert len(str(told.value)) < 2_000
    java = str(query.query.exception())
    assert "ValueError: xxx" in java
    assert len(java) < 100_000


@pytest.mark.parametrize("where", ["sink", "on_epoch"])
def test_a_stop_from_inside_a_batch_ends_the_stream_behind_it(start, where):
    made, known = [], threading.Event()

    def stops(epoch, *_):
        known.wait(SECONDS)
        if epoch == 1 or (where == "on_epoch" and epoch["epoch"] == 1):
            made[0].stop()

    made.append(start(**{where: od.spark.sinks.Function(stops) if where == "sink" else stops}))
    known.set()
    assert made[0].awaitTermination(SECONDS)
    assert made[0].exception() is None
    assert [one["epoch"] for one in made[0].epochs] == [0, 1]
    again = start()
    again.awaitTermination(SECONDS)
    # Spark may have taken the next file into its source's log already: one epoch has both then
    assert [one["epoch"] for one in again.epochs] in ([2, 3], [2])
    assert sum(one["rows"] for one in again.epochs) == 2
    assert [row.n for row in od.spark.read_output(again.checkpoint).collect()] == [1, 1, 2, 3]


@pytest.mark.parametrize("error", [SystemExit(3), Unshown()])
def test_whatever_a_listener_raises_is_a_warning(start, error):
    query = start(on_epoch=raises(error))
    name = type(error).__name__
    with pytest.warns(RuntimeWarning, match=rf"on_epoch failed at epoch \d: {name}.*goes on"):
        query.awaitTermination(SECONDS)
    assert not query.isActive
    assert [one["epoch"] for one in query.epochs] == [0, 1, 2, 3]


def test_all_sinks_are_closed_once_whatever_fails(start):
    first, last = Mine(), Mine(close=raises(Unshown()))
    with pytest.raises(ValueError, match="no room"):
        start(sink=[first, Mine(open=raises(ValueError("no room")))])
    assert first.calls == ["open", "delivered", "close"]
    first.calls.clear()
    query = start(sink=[first, last])
    with pytest.warns(RuntimeWarning, match=r"Mine.close\(\) failed: Unshown"):
        query.awaitTermination(SECONDS)
    query.stop()
    assert first.calls[-2:] == ["deliver", "close"]
    assert last.calls.count("close") == 1
    for wrong in ("3", -5):
        with pytest.raises(PlanError, match=rf"Mine.delivered\(\) returned {wrong!r}: it takes the number"):
            start(sink=Mine(delivered=lambda wrong=wrong: wrong))


def test_sinks_are_closed_where_spark_refuses_the_frame(start):
    mine = Mine()
    with pytest.raises(Exception, match="Sorting is not supported"):
        start(sink=mine, changed=lambda frame: frame.orderBy("ts"))
    assert mine.calls == ["open", "delivered", "close"]


def test_a_query_that_is_started_again_waits_for_what_the_former_one_commits(start, tmp_path, monkeypatch):
    """A cell that is run again while a micro-batch is being committed: the driver is one, and the same."""
    committing, looked, got = threading.Event(), threading.Event(), []
    publish, check_last = EpochLog.publish, stream_module._check_last

    def publish_late(log, manifest):
        if manifest.number == 1:
            committing.set()
            looked.wait(SECONDS)
        publish(log, manifest)

    def look(*given):
        found = check_last(*given)
        if committing.is_set():
            looked.set()
        return found

    monkeypatch.setattr(EpochLog, "publish", publish_late)
    monkeypatch.setattr(stream_module, "_check_last", look)
    sink = od.spark.sinks.Function(lambda epoch, *_: got.append(epoch))
    former = start(sink=sink, trigger="1 second")
    assert committing.wait(SECONDS)
    start(sink=sink).awaitTermination(SECONDS)
    assert not former.isActive
    assert got == [0, 1, 2, 3]
    assert [row.n for row in od.spark.read_output(tmp_path / "cp").collect()] == [1, 1, 2, 3]


@pytest.mark.parametrize("wrong", [{"trigger": "soon"}, {"name": ""}])
def test_what_is_refused_leaves_no_sink_open(start, wrong):
    mine = Mine()
    with pytest.raises(PlanError, match=r"trigger='soon'|name takes a text"):
        start(sink=mine, **wrong)
    assert mine.calls in ([], ["open", "delivered", "close"])


def test_what_a_task_can_not_write_is_told_with_what_to_do(start, tmp_path):
    def gone(told):
        if told["epoch"] == 1:
            shutil.rmtree(tmp_path / "cp" / "output")

    query = start(on_epoch=gone)
    with pytest.raises(CheckpointError) as told:
        query.awaitTermination(SECONDS)
    text = str(told.value)
    assert text.startswith(str(tmp_path / "cp" / "output"))
    assert "files of epoch 2 can't be written: No such file or directory. It is not committed" in text


@pytest.mark.parametrize("slack", ["-3s", datetime.timedelta(-1), "x"])
@pytest.mark.thin(2)
def test_a_slack_that_is_no_time_is_told_by_its_name(start, slack):
    def with_times(frame):
        return frame.withColumn("ts", F.timestamp_seconds("ts"))

    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("user", pa.int64())])
    pipeline = od.Pipeline(schema).key_by("user").count("n")
    with pytest.raises(PlanError, match=r"^slack"):
        start(pipeline, changed=with_times, slack=slack)
    query = start(pipeline, changed=with_times, slack=datetime.timedelta(0))
    assert query.awaitTermination(SECONDS)


def test_who_was_overtaken_says_so_and_not_that_a_file_is_damaged(start, tmp_path, monkeypatch):
    """The other driver removes states that nobody needs any more, and this one was told to rewind."""
    real = EpochRunner.epoch

    def overtaken(self, rows, number, *more):
        manifest = real(self, rows, number, *more)
        if number == 1:
            EpochLog(tmp_path / "cp").publish(manifest)
            raise od.CheckpointError("state: damaged: No such file. Go back with od.spark.rewind")
        return manifest

    monkeypatch.setattr(EpochRunner, "epoch", overtaken)
    query = start()
    with pytest.raises(od.CheckpointError, match="another driver has committed epoch 1 of this stream"):
        query.awaitTermination(SECONDS)


def test_finish_looks_at_what_it_is_given(start, tmp_path):
    """Without a pipeline it went by the stream's arguments, and by no other one."""
    assert start(workers=1).awaitTermination(SECONDS)
    for options, why in (
        ({"nodes": 0}, "nodes must be a whole number from 1 to 1024, got 0"),
        ({"chunk": 5}, "unknown option 'chunk'"),
        ({"slack": 5}, "od.spark.finish takes no slack=, which is for od.spark.stream"),
        ({"pipeline": "counts"}, "takes a pipeline second, behind the checkpoint; got str"),
        ({"pipeline": od.Pipeline(TABLE.schema).key_by("user")}, "this one ends with key_by"),
    ):
        with pytest.raises(od.PlanError, match=why):
            od.spark.finish(tmp_path / "cp", **options)
    od.spark.finish(tmp_path / "cp", nodes=3)
    assert EpochLog(tmp_path / "cp").last().nodes == 3


def fails_late(row, state, emit):
    state.n += 1
    emit(row.ts, 1 // (row.ts - 4))


def fails_at_the_end(key, state, emit):
    emit(key, 1 // (key - 2))


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_fails_at_the_end_of_a_stream_is_told_as_in_it(start, tmp_path, nodes):
    """It was Spark's error, with the traces of a worker."""

    def made(fails):
        process = od.Pipeline(TABLE.schema).key_by("user").process
        return process(fails, schema={"k": int, "v": int}, state={"n": int}, on_flush=fails_at_the_end)

    start(made(count_row), nodes=nodes, checkpoint=tmp_path / "flush").awaitTermination(SECONDS)
    with pytest.raises(OperatorError, match=r"operator 'process_1' failed at serial .*ZeroDivision") as told:
        od.spark.finish(tmp_path / "flush")
    assert f"  at: {__file__}:{fails_at_the_end.__code__.co_firstlineno + 1}, in fails_at_the_end" in str(
        told.value
    )
    assert told.value.__suppress_context__  # Spark's traces say no more
    start(made(fails_late), nodes=nodes, slack=10).awaitTermination(SECONDS)
    with pytest.raises(OperatorError) as told:
        od.spark.finish(tmp_path / "cp")
    assert (told.value.operator, told.value.serial, told.value.row) == ("process_1", 4, {"ts": 4, "user": 1})
    assert "ZeroDivisionError" in str(told.value)
    waiting = tmp_path / "cp" / "waiting" / EpochLog(tmp_path / "cp").last().waiting[0]["file"]
    waiting.write_bytes(waiting.read_bytes()[:50])
    with pytest.raises(SourceError) as told:
        od.spark.finish(tmp_path / "cp")
    assert str(told.value).startswith(f"{waiting}: rows that wait can't be read: the file is damaged")
    assert EpochLog(tmp_path / "cp").last().finished is False


def count_row(row, state, emit):
    state.n += 1


@pytest.mark.parametrize("trigger", [{"x": 1}, {}, {"once": True, "availableNow": True}, {1: 2}])
def test_a_trigger_that_spark_has_not_is_told(start, trigger):
    schema = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
    with pytest.raises(PlanError, match="trigger takes one keyword of Spark's trigger"):
        start(od.Pipeline(schema).key_by("user").count("n"), trigger=trigger)


def test_another_driver_that_is_faster_in_sparks_log_is_told(start, tmp_path, monkeypatch):
    """It was Spark's error, with a plan or Java's trace: they may meet there before an epoch begins."""
    offsets = tmp_path / "cp" / "spark" / "offsets"
    query = start(on_epoch=lambda told: shutil.copy(offsets / "0", offsets / str(told["epoch"] + 1)))
    with pytest.raises(CheckpointError, match="another driver writes Spark's log of this stream") as told:
        query.awaitTermination(SECONDS)
    assert "\n" not in str(told.value)
    text = "calling o1.start.\n: org.apache.spark.SparkConcurrentModificationException: Multiple streaming"
    monkeypatch.setattr(DataStreamWriter, "start", raises(RuntimeError(text)))
    sink = Mine()
    with pytest.raises(CheckpointError, match="give one of them a checkpoint of its own"):
        start(sink=sink, checkpoint=tmp_path / "other")
    assert sink.calls == ["open", "delivered", "close"]


def test_streams_that_have_ended_leave_no_threads(start, tmp_path):
    """py4j's thread of each stream stayed, with the memory that Arrow keeps for a thread: a supervisor that
    starts streams again and again grew by 1.4 MB, a thread and a socket with each.
    """
    start().awaitTermination(SECONDS)
    before = set(threading.enumerate())
    for number in range(4):
        query = start(checkpoint=tmp_path / str(number), trigger=None)
        query.processAllAvailable()
        query.stop()
    left = [one for one in threading.enumerate() if one not in before]
    for one in left:
        one.join(5)
    assert sum(one.is_alive() for one in left) <= 1  # Java's for proxies that it no longer needs
    held = [given["query"] for path, (_, given) in stream_module._started.items() if path.parent == tmp_path]
    assert held == [None] * 4 + [query]  # each holds some MB in Java; who asks for one more lets them go


@pytest.mark.parametrize("stopped", [True, False])
def test_spark_s_own_stop_reads_our_texts(spark, stopped):
    """Its pattern for an interrupt takes stack for each character: the stream's thread died of a trace."""
    cause = "java.lang.InterruptedException" if stopped else "java.lang.IllegalStateException: no"
    java = "\n".join(f"\tat org.apache.spark.Step{n}.run(Step{n}.scala)" for n in range(400))
    called = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.x."
    error = RuntimeError(f"{called}\n: {cause}\n{java}")
    text = "".join(traceback.format_exception(for_java(error)))
    assert cause in text
    assert "Step399" in text
    spark_s = spark._jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    raised = spark._jvm.py4j.Py4JException(text)
    assert spark_s.isInterruptionException(raised, spark.sparkContext._jsc.sc()) is stopped


def test_a_stream_that_is_sealed_over_a_micro_batch_that_failed_says_so(spark, start, tmp_path):
    """Its rows were in no output, and nobody was told. Spark plans a micro-batch before it runs."""
    bad = tmp_path / "bad"
    bad.touch()

    def fails(row):
        if row.ts == 2 and bad.exists():
            raise ValueError("a bug")
        return tuple(row)

    pipeline = od.Pipeline(TABLE.schema).map(fails, schema=TABLE.schema)
    query = start(pipeline)
    with pytest.raises(OperatorError, match="ValueError: a bug"):
        query.awaitTermination(SECONDS)
    bad.unlink()
    sink = Mine()
    with pytest.warns(RuntimeWarning, match=r"planned micro-batch 1 .* leaves them out.*rewind\(.*to=0\)"):
        od.spark.finish(tmp_path / "cp", sink=sink)
    assert od.spark.read_output(tmp_path / "cp").count() == 1
    od.spark.rewind(tmp_path / "cp", to=0)  # as it says
    sink.calls.clear()
    other = start(pipeline, checkpoint=tmp_path / "other", trigger=None, name="mine")
    spark.conf.set(stream_module.ENDS_THE_FORMER, "false")
    try:
        for checkpoint, why in (("new", "name='mine': another query"), ("other", "still runs: stop it")):
            with pytest.raises(PlanError, match=why):
                start(pipeline, checkpoint=tmp_path / checkpoint, name="mine", sink=sink)
    finally:
        spark.conf.unset(stream_module.ENDS_THE_FORMER)
        other.stop()
    assert sink.calls == []
    assert not (tmp_path / "new").exists()
    start(pipeline).awaitTermination(SECONDS)
    od.spark.finish(tmp_path / "cp")
    assert od.spark.read_output(tmp_path / "cp").count() == 4


def text_that_is_no_utf8(row):
    if row.ts == 2:
        raise ValueError("\ud800" + "y" * 100_000)
    return tuple(row)


def test_an_error_with_a_lone_surrogate_reaches_the_driver(spark, start):
    """Of such a text PySpark's worker sends the length's marker only."""
    pipeline = od.Pipeline(TABLE.schema).map(text_that_is_no_utf8, schema=TABLE.schema)
    query = start(pipeline)
    with pytest.raises(OperatorError) as told:
        assert query.awaitTermination(SECONDS), "the task hangs"
    assert str(told.value).startswith("operator 'map_1' failed at serial 2: ValueError: ?yyy")
    assert "in text_that_is_no_utf8\n  row: {'ts': 2, 'user': 2}" in str(told.value)
    assert len(str(told.value)) < 11_000
    done = threading.Event()

    def run():
        with pytest.raises(Exception, match="operator 'map_1' failed at serial 2"):
            od.spark.apply(pipeline, spark.createDataFrame(TABLE.to_pandas()), order_by="ts").collect()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(SECONDS), "the task hangs"


def test_a_clock_of_another_column_is_refused_at_the_next_start(start, tmp_path):
    """Its times would be behind those of the one before: "runs backwards", of rows that ascend."""
    start(punctuate=od.every("ts", 1)).awaitTermination(SECONDS)
    for _ in range(2):  # it leaves the checkpoint as it was
        with pytest.raises(CheckpointError, match=r"its clock is the column 'ts' \(int64\), and .*'user'"):
            start(punctuate=od.every("user", 1))
    query = start(punctuate=od.every("ts", 1))
    query.awaitTermination(SECONDS)
    od.spark.finish(tmp_path / "cp")
    assert od.spark.read_output(tmp_path / "cp").count() == 4


def test_a_stream_that_fails_leaves_no_files(spark, tmp_path):
    """Those of the node that had succeeded stayed: who starts such a stream each minute fills the disk."""
    (tmp_path / "in").mkdir()
    users = pa.table({"ts": range(40), "user": range(40)}, schema=TABLE.schema)
    pq.write_table(users, tmp_path / "in" / "0.parquet")
    states = tmp_path / "cp" / STATE

    def fails_second(row, state, emit):
        """In whichever node comes behind the other: in this session one runs at a time."""
        state.n += 1
        if any(states.iterdir()):
            raise ValueError("no")
        emit(row.user, state.n)

    keyed = od.Pipeline(TABLE.schema).key_by("user")
    pipeline = keyed.process(fails_second, schema={"user": int, "n": int}, state={"n": int})
    rows = spark.readStream.schema("ts long, user long").parquet(str(tmp_path / "in"))
    query = od.spark.stream(
        pipeline, rows, order_by="ts", checkpoint=tmp_path / "cp", nodes=2, trigger="available now"
    )
    with pytest.raises(Exception, match="ValueError: no"):
        query.awaitTermination(SECONDS)
    left = [path.name for folder in FOLDERS for path in (tmp_path / "cp" / folder).iterdir()]
    assert left == []
