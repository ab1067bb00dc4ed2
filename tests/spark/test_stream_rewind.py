"""A stream over Spark's source of files that goes back: its files come again as they came."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException

from ordstream.spark.streaming import rewind as rewind_module

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
FILES, SECONDS = 13, 120
WHOLE = list(range(1, 3 * FILES + 1))


@pytest.fixture
def run(spark, tmp_path):
    """Give all files, one a micro-batch; (epoch, rows) of each epoch."""
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        path = tmp_path / "in" / f"{number} %.parquet"
        rows = range(3 * number, 3 * number + 3)
        pq.write_table(pa.table([list(rows), [7] * 3], schema=SCHEMA), path)
        os.utime(path, (1_000_000_000 + number,) * 2)

    def ran():
        frame = spark.readStream.schema("ts long, user long").option("maxFilesPerTrigger", 1)
        query = od.spark.stream(
            od.Pipeline(SCHEMA).key_by("user").count("n"),
            frame.parquet(str(tmp_path / "in")),
            order_by="ts",
            checkpoint=tmp_path / "cp",
            trigger="available now",
        )
        query.awaitTermination(SECONDS)
        return [(one["epoch"], one["rows"]) for one in query.epochs]

    ran.checkpoint, ran.folder = tmp_path / "cp", tmp_path / "in"
    return ran


def fails(*_):
    raise OSError("killed")


def counts(checkpoint):
    return [row.n for row in od.spark.read_output(checkpoint).collect()]


def logged(checkpoint):
    return {path.name for path in (checkpoint / "spark" / "sources" / "0").iterdir() if path.name[0] != "."}


@pytest.mark.parametrize("kept", [2, 100])
def test_a_stream_that_goes_back_reads_as_many_files_at_a_time(spark, run, kept):
    """Spark's source had them down as given, and gave all together: months of rows in one micro-batch."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", kept)
    try:
        assert run() == [(epoch, 3) for epoch in range(FILES)]
        for to in (-1, None, FILES - 2, -1):
            went = od.spark.rewind(run.checkpoint, to=to)
            assert run() == [(epoch, 3) for epoch in range(went + 1, FILES)]
            assert counts(run.checkpoint) == WHOLE
        assert "9.compact" in logged(run.checkpoint)
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")


def test_files_that_are_gone_are_told(run):
    """Spark leaves them out."""
    run()
    (run.folder / "4 %.parquet").rename(run.folder / ".4")
    with pytest.warns(RuntimeWarning, match=r"/4 %\.parquet: of 12 files .* 1 are gone.*bring them back"):
        od.spark.rewind(run.checkpoint, to=-1)  # Spark's plan of the first batch stays
    (run.folder / ".4").rename(run.folder / "4 %.parquet")
    assert run() == [(epoch, 3) for epoch in range(FILES)]
    assert counts(run.checkpoint) == WHOLE


def test_a_start_behind_half_a_rewind_gives_no_wrong_output(run, monkeypatch):
    """Spark's log is ahead of its source's and of ours."""
    run()
    with monkeypatch.context() as patched:
        patched.setattr(rewind_module, "cut", fails)
        with pytest.raises(od.OrdstreamError, match="call rewind again"):
            od.spark.rewind(run.checkpoint, to=-1)
    assert logged(run.checkpoint) == {"0"}
    more = run.folder / "new.parquet"
    pq.write_table(pa.table([[3 * FILES], [7]], schema=SCHEMA), more)
    with pytest.raises((od.OrdstreamError, StreamingQueryException)):
        run()
    with pytest.raises(od.OrdstreamError, match=r"the last epoch that is there is none.*rewind"):
        counts(run.checkpoint)
    more.unlink()
    assert od.spark.rewind(run.checkpoint) == -1
    assert run() == [(epoch, 3) for epoch in range(FILES)]
    assert counts(run.checkpoint) == WHOLE


def test_reading_many_files_starts_no_job(spark, run):
    """Spark lists many by a job with a task for each; a stream has a file an epoch."""
    run()
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    spark.conf.set(name, "1")
    try:
        spark.sparkContext.setJobGroup("reading", "")
        frame = od.spark.read_output(run.checkpoint)
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup("reading")
        assert spark.conf.get(name) == "1"  # as it was
        assert [row.n for row in frame.collect()] == WHOLE
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("reading")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        spark.conf.unset(name)
