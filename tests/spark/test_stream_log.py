"""What Spark does beside a stream: its log in the checkpoint, quickly and on this machine; its listeners."""

import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od

pytest.importorskip("pyspark")
from pyspark.sql.streaming import StreamingQueryListener

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
SETTING = "spark.sql.streaming.checkpointFileManagerClass"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing."
QUICK = CHECKPOINTING + "FileSystemBasedCheckpointFileManager"
SLOW = CHECKPOINTING + "FileContextBasedCheckpointFileManager"


@pytest.fixture
def conf(spark):
    """Set the session; without these settings, afterwards."""
    names = []

    def set_to(name, value):
        names.append(name)
        spark.conf.set(name, value)

    yield set_to
    for name in names:
        spark.conf.unset(name)


@pytest.fixture
def begun(spark, tmp_path):
    """A stream over files that are there or come."""
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("ts long, user long").parquet(f"file:{tmp_path / 'in'}")
    started = []

    def begin(checkpoint, **options):
        pipeline = od.Pipeline(SCHEMA).key_by("user").cum_count()
        query = od.spark.stream(pipeline, frame, order_by="ts", checkpoint=checkpoint, **options)
        started.append(query)
        return query

    yield begin
    for one in started:
        one.stop()


def add(folder, *times):
    path = folder / "in" / f"{times[0]}.parquet"
    pq.write_table(pa.table([times, [0] * len(times)], schema=SCHEMA), path.with_name(f"_{path.name}"))
    path.with_name(f"_{path.name}").rename(path)


def managers(query):
    """Classes that write the logs of offsets, of commits, and of the source's files."""
    java = query.query._jsq.streamingQuery()
    source = java.uniqueSources().keys().head()
    log = source.getClass().getDeclaredField("metadataLog")
    log.setAccessible(True)
    logs = java.offsetLog(), java.commitLog(), log.get(source)
    return [one.fileManager().getClass().getName() for one in logs]


def test_no_process_is_started_to_write_spark_s_log(spark, begun, tmp_path):
    """With Spark's default `readlink` runs some twenty times a micro-batch."""
    add(tmp_path, 1, 2)
    query = begun(tmp_path / "cp")
    query.processAllAvailable()
    assert managers(query) == [QUICK] * 3
    assert spark.conf.get(SETTING, None) is None  # of other queries nothing changes


def test_what_the_session_is_set_to_stays(spark, begun, conf, tmp_path):
    conf(SETTING, SLOW)
    add(tmp_path, 1, 2)
    query = begun(tmp_path / "cp")
    query.processAllAvailable()
    assert managers(query) == [SLOW] * 3
    assert spark.conf.get(SETTING) == SLOW


def test_a_checkpoint_goes_on_where_the_log_was_written_the_other_way(begun, conf, tmp_path):
    for number, setting in enumerate((SLOW, QUICK, SLOW, QUICK)):
        conf(SETTING, setting)
        add(tmp_path, 2 * number, 2 * number + 1)
        begun(tmp_path / "cp", trigger="available now").awaitTermination(120)
    output = od.spark.read_output(tmp_path / "cp").collect()
    assert [(row.ts, row.cum_count) for row in output] == [(n, n + 1) for n in range(8)]


def test_the_checkpoint_is_here_where_spark_s_default_is_another_file_system(spark, begun, conf, tmp_path):
    """As on a cluster with HDFS: Spark's log, and the output, were looked for there."""
    conf("fs.defaultFS", "hdfs://nowhere.invalid:1")
    checkpoint = tmp_path / "a [b] {c}*"
    for times in ((1, 2), (3, 4)):
        add(tmp_path, *times)
        begun(checkpoint, trigger="available now", late="side_output").awaitTermination(120)
    add(tmp_path, 0)
    begun(checkpoint, trigger="available now", late="side_output").awaitTermination(120)
    assert [row.ts for row in od.spark.read_output(checkpoint).collect()] == [1, 2, 3, 4]
    assert [row.ts for row in od.spark.read_output(checkpoint, late=True).collect()] == [0]
    od.spark.rewind(checkpoint, to=1)
    with pytest.warns(RuntimeWarning, match="whose rows are not committed"):
        od.spark.finish(checkpoint)
    assert od.spark.state(checkpoint, "cum_count_1", epoch=1).count() == 1


def test_spark_s_listeners_find_the_figures_of_an_epoch(spark, begun, tmp_path):
    told, others, heard = {}, [], threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event):
            pass

        def onQueryTerminated(self, event):
            heard.set()

        def onQueryProgress(self, event):
            if event.progress.numInputRows:
                found = od.spark.epoch_figures(event)
                assert od.spark.epoch_figures(event.progress) == found
                told.setdefault(str(event.progress.id), []).append(found)
            else:
                others.append(od.spark.epoch_figures(event))

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        query = begun(tmp_path / "cp")
        for first in (1, 4, 7):
            add(tmp_path, first, first + 1)
            query.processAllAvailable()
        expected = query.epochs
        assert od.spark.epoch_figures(query.lastProgress) in (expected[-1], None)  # of a batch without rows
        query.stop()
        assert heard.wait(60)
        frame = spark.readStream.schema("ts long, user long").parquet(f"file:{tmp_path / 'in'}")
        foreign = frame.writeStream.option("checkpointLocation", f"file:{tmp_path / 'other'}")
        foreign = foreign.format("noop").start()
        foreign.processAllAvailable()
        heard.clear()
        number = str(foreign.id)
        foreign.stop()
        assert heard.wait(60)
    finally:
        spark.streams.removeListener(listener)
    assert told.pop(number) == [None]
    assert [*told.values()] == [expected]
    assert [one["rows"] for one in expected] == [2, 2, 2]
    assert set(others) <= {None}


@pytest.mark.parametrize("event", [None, 3, {"id": "x"}, "progress"])
def test_what_is_no_progress_is_refused(event):
    with pytest.raises(od.PlanError, match="onQueryProgress"):
        od.spark.epoch_figures(event)
