"""Commits of a stream are one chain, and Spark's log goes with it: what is missing there is told."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.commands.cli import main
from ordstream.errors import CheckpointError, SourceError

pytest.importorskip("pyspark")
from ordstream.spark.streaming import stream as stream_module
from ordstream.spark.streaming.epoch_log import EpochLog

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
SECONDS = 120


class Source:
    """Files, of a row each, and the stream over them."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.checkpoint, self.rows = spark, folder / "in", folder / "cp", 0
        self.folder.mkdir()

    def add(self, count):
        for _ in range(count):
            self.rows += 1
            path = self.folder / f"{self.rows}.parquet"
            beside = path.with_suffix(".part")
            pq.write_table(pa.table([[self.rows], [self.rows % 2]], schema=SCHEMA), beside)
            os.utime(beside, (1_000_000_000 + self.rows,) * 2)
            beside.rename(path)
        return self

    def start(self, **options):
        frame = self.spark.readStream.schema("ts long, user long").option("maxFilesPerTrigger", 1)
        return od.spark.stream(
            od.Pipeline(SCHEMA).key_by("user").cum_count(),
            frame.option("pathGlobFilter", "*.parquet").parquet(str(self.folder)),
            order_by="ts",
            checkpoint=self.checkpoint,
            **options,
        )

    def run(self):
        self.start(trigger="available now").awaitTermination(SECONDS)

    @property
    def output(self):
        return [row.ts for row in od.spark.read_output(self.checkpoint).collect()]


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path)


def test_a_stream_that_is_taken_back_while_it_runs_commits_nothing_behind_the_hole(source, monkeypatch):
    """The other process knows nothing of the query that runs here. It committed epoch 2 without epoch 1, and
    nobody could read the output from then on.
    """
    query = source.add(2).start()
    query.processAllAvailable()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(stream_module, "_started", {})
        assert main(["rewind", str(source.checkpoint)]) == 0
    source.add(1)
    with pytest.raises(CheckpointError) as told:
        query.processAllAvailable()
    text, path = str(told.value), source.checkpoint / "commits" / "000000000001.json"
    assert text.startswith(f"{path}: is gone since this query read it: somebody has taken the stream back")
    assert "Epoch 2 was not committed" in text
    assert not query.isActive
    assert source.output == [1]
    with pytest.raises(CheckpointError, match=r"gives micro-batch 2, and the last committed epoch is 0"):
        source.run()
    assert f"od.spark.rewind({str(source.checkpoint)!r}, to=0)" in text
    assert od.spark.rewind(source.checkpoint, to=0) == 0
    source.run()
    assert source.output == [1, 2, 3]


def test_a_stream_that_another_one_has_taken_over_stops(source, monkeypatch):
    """It went back, and on: the number of the epoch is the same, and the epoch is not."""
    query = source.add(2).start()
    query.processAllAvailable()
    log = EpochLog(source.checkpoint)
    path = log.path(1)
    path.write_bytes(path.read_bytes().replace(b'"time":"2', b'"time":"1'))
    source.add(1)
    with pytest.raises(CheckpointError, match=r"000000000001\.json: is not the one from which this query"):
        query.processAllAvailable()
    assert log.numbers() == [0, 1]


def test_a_hole_is_refused_at_a_start(source):
    source.add(4).run()
    log = EpochLog(source.checkpoint)
    kept = log.path(1).read_bytes()
    log.path(1).unlink()
    source.add(1)
    for begins in (source.run, lambda: od.spark.finish(source.checkpoint), lambda: source.output):
        with pytest.raises(
            CheckpointError, match=r"0001\.json: is missing, and there are later epochs.* Put"
        ):
            begins()
    assert log.numbers() == [0, 2, 3]
    log.path(1).write_bytes(kept)
    source.run()
    assert source.output == [1, 2, 3, 4, 5]


def test_epochs_that_are_missing_at_the_end_are_not_left_out(source):
    """`read_output` gave fewer rows, or none."""
    source.add(3).run()
    log = EpochLog(source.checkpoint)
    kept = {number: log.path(number).read_bytes() for number in log.numbers()}
    for last, gone in ((1, [2]), ("none", [0, 1, 2])):
        for number in gone:
            log.path(number).unlink()
        for read in (lambda: source.output, lambda: od.spark.state(source.checkpoint, "count_2")):
            with pytest.raises(
                CheckpointError, match=rf"committed micro-batch 2, and .* there is {last}\. Put"
            ):
                read()
        for number in gone:
            log.path(number).write_bytes(kept[number])
    shutil.rmtree(source.checkpoint / "commits")
    for begins in (source.add(1).run, lambda: od.spark.finish(source.checkpoint)):
        with pytest.raises(CheckpointError, match="commits: the folder of the manifests is missing"):
            begins()
    with pytest.raises(CheckpointError, match="commits: can't be read"):  # not an empty stream
        assert source.output
    log._commits.mkdir()
    for number, data in kept.items():
        log.path(number).write_bytes(data)
    source.run()
    assert source.output == [1, 2, 3, 4]


def test_a_plan_of_spark_s_that_is_missing_is_told(source):
    """It was told as two queries that run on one checkpoint, and the advice did not help."""
    source.add(2).run()
    offsets = source.checkpoint / "spark" / "offsets"
    for name in ("1", ".1.crc"):
        (offsets / name).unlink()
    source.add(1)
    with pytest.raises(CheckpointError) as told:
        source.run()
    assert str(told.value).startswith(
        f"{offsets / '1'}: is missing, and Spark has committed this micro-batch"
    )
    assert f"od.spark.rewind({str(source.checkpoint)!r}, to=0)" in str(told.value)
    od.spark.rewind(source.checkpoint, to=0)
    source.run()
    assert source.output == [1, 2, 3]


@pytest.mark.parametrize("how", ["empty", "half"])
@pytest.mark.parametrize("which", ["metadata", "offsets/1", "commits/1"])
def test_a_damaged_file_of_spark_s_log_is_named_with_what_to_do(source, which, how):
    """It was Java's trace."""
    source.add(2).run()
    path = source.checkpoint / "spark" / which
    whole, beside = path.read_bytes(), path.with_name(f".{path.name}.crc")
    if which == "commits/1" and how == "half":
        whole += b"{}"  # Spark writes as little
    path.write_bytes(whole[: len(whole) * (how == "half") // 2 + (1 if which == "commits/1" else 0)])
    if how == "empty":
        path.write_bytes(b"")
    beside.unlink(missing_ok=True)
    source.add(1)
    with pytest.raises(CheckpointError) as told:
        source.run()
    assert str(told.value).startswith(f"{path}: ")
    if which == "metadata":
        assert "Spark's id of this query can't be read" in str(told.value)
        return
    assert "remove it and .1.crc beside it" in str(told.value)
    path.unlink()
    if which == "offsets/1":
        assert f"od.spark.rewind({str(source.checkpoint)!r}, to=0)" in str(told.value)
        od.spark.rewind(source.checkpoint, to=0)
    source.run()
    assert source.output == [1, 2, 3]


def test_a_name_of_a_file_that_is_no_utf8_is_told(spark, tmp_path):
    """It was a UnicodeEncodeError without the name, inside of Java's trace."""
    od.spark.sources.register(spark)
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table([[1], [1]], schema=SCHEMA), folder / "a.parquet")

    def run():
        frame = spark.readStream.format("ordstream.files").option("path", str(folder))
        frame = frame.schema("ts long, user long, _offset long").load()
        pipeline = od.Pipeline(SCHEMA).key_by("user").cum_count()
        od.spark.stream(
            pipeline, frame, checkpoint=tmp_path / "cp", trigger="available now"
        ).awaitTermination(SECONDS)

    run()
    wrong = os.fsencode(folder / "b") + b"\xff.parquet"
    shutil.copy(folder / "a.parquet", wrong)
    with pytest.raises(SourceError, match=r"the name b'b\\xff\.parquet' of a file is no UTF-8.*: rename"):
        run()
    Path(os.fsdecode(wrong)).rename(folder / "b.parquet")
    run()
    assert od.spark.read_output(tmp_path / "cp").count() == 2
