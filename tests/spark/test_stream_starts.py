"""Streams that start, stop and start again: what they leave behind, and what they say of what Spark can't
read in its own log, or in the source.
"""

from __future__ import annotations

import os
import re
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import CheckpointError, SourceError

pytest.importorskip("pyspark")
from pyspark.sql import functions as F

from ordstream.spark.streaming.failures import told_by_task
from ordstream.spark.streaming.query import Batches

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
PIPELINE = od.Pipeline(SCHEMA).key_by("user").count("n")
SECONDS = 60


@pytest.fixture
def begin(spark, tmp_path):
    """Start a stream over the files of a folder."""
    folder = tmp_path / "in"
    folder.mkdir()

    def begun(at="cp", changed=lambda frame: frame, one_by_one=False, **options):
        reader = spark.readStream.schema("ts long, user long")
        if one_by_one:
            reader = reader.option("maxFilesPerTrigger", 1)
        options = {"order_by": "ts", "trigger": "available now", **options}
        return od.spark.stream(
            PIPELINE, changed(reader.parquet(str(folder))), checkpoint=tmp_path / at, **options
        )

    begun.folder, begun.checkpoint = folder, tmp_path / "cp"
    return begun


def add(folder, names, first=0):
    """A file of a row for each name."""
    for number, name in enumerate(names, start=first):
        pq.write_table(pa.table([[number], [7]], schema=SCHEMA), folder / name)
        os.utime(folder / name, (1_000_000_000 + number,) * 2)


def counts(checkpoint):
    return [row["n"] for row in od.spark.read_output(checkpoint).collect()]


@pytest.mark.parametrize("names", ["log[1]-{}", "what?{}", "a*{}", "x{{1}}{}", "back\\{}"])
def test_rows_that_spark_would_give_twice_are_refused(begin, names):
    """Of one such file it gives each row once."""
    add(begin.folder, [f"{names.format(0)}.parquet"])
    begin().awaitTermination(SECONDS)
    add(begin.folder, [f"{names.format(k)}.parquet" for k in (1, 2)], first=1)
    with pytest.raises(SourceError, match=r"takes the names of the 2 files.*ordstream\.files"):
        begin().awaitTermination(SECONDS)
    assert counts(begin.checkpoint) == [1]


def test_names_that_only_look_odd_are_read(begin):
    add(begin.folder, [f"a b%20,(1)'&{k}!.parquet" for k in range(3)])
    begin().awaitTermination(SECONDS)
    assert counts(begin.checkpoint) == [1, 2, 3]


def test_starts_of_one_stream_take_turns(begin):
    """Of two at once Spark remembered the one that failed, and refused all later ones."""
    add(begin.folder, [f"{k}.parquet" for k in range(4)])
    failed = []

    def run():
        try:
            begin(trigger=None).stop()
        except od.OrdstreamError as error:
            failed.append(str(error))

    for _ in range(3):
        starts = [threading.Thread(target=run) for _ in range(3)]
        for one in starts:
            one.start()
        for one in starts:
            one.join(SECONDS)
    assert all("still runs" in text for text in failed), failed
    begin().awaitTermination(SECONDS)
    assert counts(begin.checkpoint) == [1, 2, 3, 4]


def test_what_a_kill_leaves_of_the_first_plan_does_not_matter(begin):
    """With a file in this folder Spark refused the checkpoint from then on."""
    add(begin.folder, ["0.parquet"])
    offsets = begin.checkpoint / "spark" / "offsets"
    begin().awaitTermination(SECONDS)
    for path in begin.checkpoint.rglob("*"):
        if path.is_file() and path.parent.name in ("offsets", "commits", "output", "state"):
            path.unlink()
    for name in (".0.1f2e.tmp", "..0.1f2e.tmp.crc"):
        (offsets / name).write_bytes(b"v1")
    begin().awaitTermination(SECONDS)
    assert counts(begin.checkpoint) == [1]
    assert not [path for path in offsets.iterdir() if "tmp" in path.name]


def test_a_start_that_spark_refuses_for_another_says_what_helps():
    error = RuntimeError(
        "SparkConcurrentModificationException: [CONCURRENT_QUERY] Another instance of this query was just "
        "started by a concurrent session."
    )
    told = told_by_task(error)
    assert isinstance(told, CheckpointError)
    assert "with the same checkpoint" in str(told)


def test_a_stop_that_meets_the_first_micro_batch_leaves_no_connection(begin, monkeypatch):
    """Java's call comes while the query is being stopped."""
    add(begin.folder, ["0.parquet"])
    call, met = Batches.__call__, threading.Event()

    def slow(batches, batch, number):
        met.set()
        time.sleep(0.3)
        return call(batches, batch, number)

    def connections():
        return sum(
            "ClientServerConnection" in repr(getattr(one, "_target", "")) for one in threading.enumerate()
        )

    begin().awaitTermination(SECONDS)
    before = connections()
    monkeypatch.setattr(Batches, "__call__", slow)
    for number in range(5):
        add(begin.folder, [f"{number + 1}.parquet"], first=number + 1)
        met.clear()
        query = begin(trigger=None)
        assert met.wait(SECONDS)
        query.stop()
    until = time.monotonic() + 10
    while connections() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert connections() <= before


@pytest.mark.parametrize("what", ["file", "cast"])
def test_what_spark_can_not_read_is_told_in_a_sentence(begin, what):
    add(begin.folder, ["0.parquet"])
    changed = lambda frame: frame  # noqa: E731
    if what == "file":
        (begin.folder / "1.parquet").write_bytes(b"PAR1 no file at all PAR1")
        expected = r"\[FAILED_READ_FILE.*1\.parquet \(.*same checkpoint$"
    else:
        expected = r"\[CAST_INVALID_INPUT\] The value 'x7'.*same checkpoint$"

        def changed(frame):
            return frame.withColumn("user", F.concat(F.lit("x"), "user").cast("long"))

    with pytest.raises(SourceError, match=expected) as raised:
        begin(changed=changed).awaitTermination(SECONDS)
    assert "\n" not in str(raised.value)
    if what == "file":
        add(begin.folder, ["1.parquet"], first=1)
    begin().awaitTermination(SECONDS)
    assert counts(begin.checkpoint) == [1, 2] if what == "file" else [1]


@pytest.mark.parametrize("gone", ["metadata", "offsets/1"])
def test_what_is_missing_of_spark_s_log_is_told(begin, gone):
    add(begin.folder, [f"{k}.parquet" for k in range(3)])
    begin(one_by_one=True).awaitTermination(SECONDS)
    path = begin.checkpoint / "spark" / gone
    path.rename(begin.folder.parent / "kept")
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        begin(one_by_one=True)
    (begin.folder.parent / "kept").rename(path)
    add(begin.folder, ["3.parquet"], first=3)
    begin(one_by_one=True).awaitTermination(SECONDS)
    assert counts(begin.checkpoint) == [1, 2, 3, 4]
