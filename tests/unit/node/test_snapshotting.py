"""Snapshots of a stream: who asks, who waits, what is refused, what a failing disk does."""

from __future__ import annotations

import datetime
import queue
import shutil
import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.balance.sketches import ExecutionTimes
from ordstream.node import report, snapshotting
from ordstream.node.snapshotting import Snapshotting, seconds_of
from ordstream.snapshots.state_file import FileRows
from ordstream.testing import run_serial

ROWS = 5_000
TABLE = pa.table({"k": [row * row % 101 for row in range(ROWS)], "v": list(range(ROWS))})
PIPELINE = od.Pipeline(TABLE.schema).key_by("k").count("n")
EXPECTED = run_serial(PIPELINE, TABLE)
# Little is under way: a stream that is not read on stands still long before its end.
HELD = {"max_chunks": 1, "max_ready": 1, "max_bytes": 1}


def rows_of(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def behind(serial):
    return [row for row, tag in zip(EXPECTED.rows, EXPECTED.tags, strict=True) if tag[0] > serial]


# ------------------------------------------------------------------------------------------------- asking


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_future_is_done_when_the_outputs_in_front_were_read(workers):
    with PIPELINE.stream(TABLE, workers=workers, snapshots=True, chunk_rows=7, **HELD) as stream:
        read = [next(stream)]
        future = stream.request_snapshot()
        with pytest.raises(RuntimeError, match="this is the thread that reads them"):
            future.result()
        read += list(stream)
    snapshot = future.result()
    assert rows_of(read) == EXPECTED.rows
    assert [figures.serial for figures in stream.report.snapshots] == [snapshot.serial]
    rest = PIPELINE.run(TABLE.slice(snapshot.serial), restore=snapshot, workers=2)
    assert rows_of(rest.batches) == behind(snapshot.serial)


def test_another_thread_may_wait():
    found = []
    with PIPELINE.stream(TABLE, workers=1, snapshots=True, chunk_rows=1, **HELD) as stream:
        next(stream)
        future = stream.request_snapshot()
        waiting = threading.Thread(target=lambda: found.append(future.result(60)))
        waiting.start()
        list(stream)
        waiting.join()
    assert found == [future.result()]


def test_nobody_who_waits_for_himself_waits_for_ever():
    with PIPELINE.stream(TABLE, workers=1, snapshots=True) as stream:
        future = stream.request_snapshot()
        with pytest.raises(RuntimeError, match="nobody reads them"):
            future.result()
        with pytest.raises(TimeoutError):
            future.result(0.01)
    with pytest.raises(od.CheckpointError, match="ended before"):
        future.result()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_without_input_takes_one_too(workers):
    arriving = queue.Queue()
    source = iter(arriving.get, None)
    with PIPELINE.stream(source, workers=workers, snapshots=True) as stream:
        arriving.put(TABLE.to_batches()[0].slice(0, 10))
        read = []
        reader = threading.Thread(target=lambda: read.extend(stream))
        reader.start()
        while stream.progress()[2] < 10:
            time.sleep(0.001)
        snapshot = stream.request_snapshot().result(60)
        assert snapshot.serial == 10
        arriving.put(None)
        reader.join()
    assert len(rows_of(read)) == 10


def test_a_request_can_not_be_called_back():
    with PIPELINE.stream(TABLE, workers=0, snapshots=True) as stream:
        next(stream)
        future = stream.request_snapshot()
        assert not future.cancel()
        list(stream)
    assert future.done()


def test_the_time_is_looked_at_while_batches_are_there_too(tmp_path, monkeypatch):
    looked = []
    tick = Snapshotting.tick
    monkeypatch.setattr(Snapshotting, "tick", lambda *args: (looked.append(1), tick(*args)))
    table = pa.table({"k": range(250_000)})  # as much as is fed ahead
    pipeline = od.Pipeline(table.schema).key_by("k").count("n")
    with pipeline.stream(table, workers=1, checkpoint=tmp_path / "state", every="1h") as stream:
        next(stream)
        while stream.progress()[2] < len(table):
            time.sleep(0.001)
        for _ in range(2):  # full batches, ready
            before = len(looked)
            assert len(next(stream)) > 10_000
            assert len(looked) > before


def test_after_the_end_none_is_taken():
    stream = PIPELINE.stream(TABLE, workers=1, snapshots=True)
    list(stream)
    with pytest.raises(od.CheckpointError, match="has ended"):
        stream.request_snapshot().result()


def test_a_stream_that_was_not_started_for_it():
    with PIPELINE.stream(TABLE, workers=0) as stream, pytest.raises(od.PlanError, match="snapshots=True"):
        stream.request_snapshot()


# ------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("every", "seconds"),
    [
        *(("10s", 10.0), ("500ms", 0.5), ("1.5m", 90.0), ("1h", 3600.0)),
        *((datetime.timedelta(seconds=2), 2.0), (7, None)),
    ],
)
def test_how_often(every, seconds):
    assert seconds_of(every) == seconds


@pytest.mark.parametrize(
    "every", ["", "s", "10", "10 moons", "-1s", "nans", 0, -5, 1.5, True, datetime.timedelta(0)]
)
def test_how_often_is_refused(every):
    with pytest.raises(od.PlanError, match="every must be a time"):
        seconds_of(every)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "1s"}, "give a folder"),
        ({"restore": 7}, "restore must be a snapshot"),
        ({"emitted_through": 7}, "emitted_through must be an order tag"),
        ({"end": "now"}, "end must be one of finish, suspend"),
        ({"snapshots": 1}, "snapshots must be True or False"),
    ],
)
def test_options_are_refused(options, message):
    with pytest.raises(od.PlanError, match=message):
        PIPELINE.run(TABLE, workers=0, **options)


@pytest.mark.parametrize("options", [{"end": "suspend"}, {"snapshots": True}, {"checkpoint": "nowhere"}])
def test_spark_keeps_no_state_yet(options):
    batch = pytest.importorskip("ordstream.spark.batch")
    with pytest.raises(od.PlanError, match=r"can't be combined with Spark"):
        batch.node_function(PIPELINE, **options)


def test_state_that_can_not_be_written_down_is_refused_when_the_checkpoint_is_opened(tmp_path):
    undeclared = (
        od.Pipeline(TABLE.schema)
        .key_by("k")
        .process(lambda row, state, emit: None, schema={"n": int}, init=list, name="visits")
    )
    with pytest.raises(od.PlanError, match=r"can't be snapshotted:\n.*'visits'"):
        undeclared.stream(TABLE, checkpoint=tmp_path / "state")
    assert not (tmp_path / "state").exists()


# ---------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on_from_its_checkpoint(tmp_path, workers):
    options = {"checkpoint": tmp_path / "state", "every": 500, "chunk_rows": 50}
    read = []
    with PIPELINE.stream(TABLE, workers=workers, **options) as stream:
        for batch in stream:
            read.append(batch)
            if sum(map(len, read)) > 2_000:
                break
        through = stream.emitted_through
    assert stream.report.snapshots
    assert all(figures.bytes and figures.serial % 500 == 0 for figures in stream.report.snapshots)
    assert f"the last behind serial {stream.report.snapshots[-1].serial:,}" in str(stream.report)
    newest = od.Checkpoint(tmp_path / "state").latest()
    assert newest.serial == stream.report.snapshots[-1].serial
    with PIPELINE.stream(TABLE, workers=2 - workers, emitted_through=through, **options) as stream:
        assert stream.emitted_through == through >= newest.emitted_through
        read += list(stream)
    assert rows_of(read) == EXPECTED.rows


def test_a_snapshot_that_does_not_say_where_its_source_stood(tmp_path):
    suspended = PIPELINE.run(TABLE.slice(0, 100), workers=0, end="suspend").snapshot
    od.Checkpoint(tmp_path / "state").write(suspended)
    with pytest.raises(od.CheckpointError, match="serial 100 does not say where its source stood"):
        PIPELINE.stream(TABLE, checkpoint=tmp_path / "state")
    rest = PIPELINE.run(TABLE.slice(100), workers=0, restore=tmp_path / "state")
    assert rows_of(rest.batches) == behind(100)


def test_there_is_nothing_to_go_on_from(tmp_path):
    with pytest.raises(od.CheckpointError, match="there is no such folder"):
        PIPELINE.run(TABLE, workers=0, restore=tmp_path / "state")
    assert not (tmp_path / "state").exists()
    for empty in (tmp_path / "state", od.Checkpoint(tmp_path / "state")):
        od.Checkpoint(tmp_path / "state")
        with pytest.raises(od.CheckpointError, match="it has no snapshot yet"):
            PIPELINE.run(TABLE, workers=0, restore=empty)


SELDOM = od.Pipeline(TABLE.schema).filter(od.col("v") % 100 == 50).key_by("k").count("n")


def test_outputs_that_were_not_delivered_come_again_from_an_older_snapshot(tmp_path):
    options = {"checkpoint": od.Checkpoint(tmp_path / "state", keep=4), "every": 100, "chunk_rows": 20}
    read = []
    with SELDOM.stream(TABLE, workers=1, tags=True, end="suspend", **options) as stream:
        for batch in stream:
            read += batch.to_pylist()
    there = [info.serial for info in od.Checkpoint(tmp_path / "state").snapshots()]
    assert there[-1] == ROWS
    assert stream.snapshot.last_output == od.OrderTag(4_951, 0) < stream.snapshot.emitted_through
    for tag in ((4_951, 0), (4_951, -1), (4_950, -1), (4_851, 0), (4_799, 3)):
        through = od.OrderTag(*tag)
        shutil.copytree(tmp_path / "state", tmp_path / f"state-{tag}")
        options["checkpoint"] = tmp_path / f"state-{tag}"
        with SELDOM.stream(TABLE, workers=0, tags=True, emitted_through=through, **options) as again:
            begun = again._snapshots.begin.serial
            rows = [row for batch in again for row in batch.to_pylist()]
        assert rows == [row for row in read if (row["_serial"], row["_index"]) > tag]
        assert begun == max(serial for serial in there if (serial - 51) // 100 * 100 + 51 <= tag[0] + tag[1])


def test_outputs_that_no_snapshot_can_give_again(tmp_path):
    options = {"checkpoint": tmp_path / "state", "every": 1_000}
    with PIPELINE.stream(TABLE, workers=1, **options) as stream:
        list(stream)
    early = od.OrderTag(7, 0)
    with pytest.raises(od.CheckpointError, match=r"outputs behind .*keep more: Checkpoint"):
        PIPELINE.stream(TABLE, workers=1, emitted_through=early, **options)
    with pytest.raises(od.CheckpointError, match=r"it can't give those in between again"):
        PIPELINE.stream(TABLE, restore=stream.snapshot, workers=1, emitted_through=early)


def test_what_lies_in_files_does_not_stay_in_memory(tmp_path):
    options = {"checkpoint": tmp_path / "state", "every": 1_000, "chunk_rows": 50}
    with PIPELINE.stream(TABLE, workers=1, **options) as stream:
        list(stream)
    assert all(isinstance(rows, FileRows) for rows in stream.snapshot.states.values())
    rest = PIPELINE.run(TABLE.slice(stream.snapshot.serial), restore=stream.snapshot, workers=0)
    assert rows_of(rest.batches) == behind(stream.snapshot.serial)


def test_another_pipeline_is_refused_with_what_differs():
    snapshot = PIPELINE.run(TABLE, workers=0, end="suspend").snapshot
    by_value = od.Pipeline(TABLE.schema).key_by("v").count("n")
    with pytest.raises(od.CheckpointError, match=r"(?s)count_1.*stored k: int64.*v: int64"):
        by_value.run(TABLE, workers=0, restore=snapshot)


def test_a_disk_that_fails_ends_the_stream_and_loses_nothing(tmp_path, monkeypatch):
    written = []
    write = od.Checkpoint.write

    def failing(self, snapshot, **more):
        if len(written) == 2:
            raise od.CheckpointError("no space left on the disk")
        written.append(snapshot.serial)
        return write(self, snapshot, **more)

    monkeypatch.setattr(od.Checkpoint, "write", failing)
    read = []
    with (
        pytest.raises(od.CheckpointError, match="no space left"),
        PIPELINE.stream(TABLE, workers=1, checkpoint=tmp_path / "state", every=100, chunk_rows=20) as stream,
    ):
        read.extend(stream)  # what came before the error stays
    assert rows_of(read) == EXPECTED.rows[: len(rows_of(read))]
    newest = od.Checkpoint(tmp_path / "state").latest()
    assert newest.serial == written[-1] == 200
    rest = PIPELINE.run(TABLE.slice(200), workers=2, restore=newest)
    assert rows_of(rest.batches) == behind(200)


def test_what_a_shed_operator_learnt_goes_along():
    slow = od.Pipeline(TABLE.schema).shed("100s", "k", name="shed")
    pipeline = slow.map(lambda row: row, schema=TABLE.schema)
    with pipeline.stream(iter(TABLE.to_batches()), workers=1, end="suspend") as stream:
        assert len(rows_of(list(stream))) == ROWS
    learnt = stream.snapshot.models["shed"]
    assert stream.shed.models["shed"].tuples > 0
    with pipeline.stream(iter(()), workers=1, restore=stream.snapshot, end="suspend") as again:
        list(again)
    assert again._plan.operators[0].model.to_bytes() == learnt
    assert again.snapshot.models["shed"] == learnt  # a run that learnt nothing forgets nothing
    with pipeline.stream(
        iter(TABLE.to_batches()), workers=1, restore=again.snapshot, end="suspend"
    ) as third:
        list(third)
    tuples = [ExecutionTimes.from_bytes(one.snapshot.models["shed"]).tuples for one in (stream, third)]
    assert tuples[1] == tuples[0] + third.shed.models["shed"].tuples > tuples[0]


# ----------------------------------------------------------------------------------------------- the clock

TIMES = pa.table({"k": [1, 1, 2, 1, 2], "a": [1000, 1005, 1020, 1030, 1050], "b": [1, 5, 20, 30, 50]})


@pytest.mark.parametrize("processes", [None, 2])
@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_clock_goes_on_by_its_own_column_only(tmp_path, processes, first, second):
    """Another one would run backwards, or leap, and neither tells what is wrong."""
    pipeline = od.Pipeline(TIMES.schema).key_by("k").count("n")
    more = {"checkpoint": tmp_path / "c"} | ({} if processes is None else {"processes": processes})
    begun = pipeline.run(TIMES.slice(0, 3), end="suspend", punctuate=od.every(first, 10), **more)
    assert begun.snapshot.clock == f"'{first}' (int64)"
    with pytest.raises(od.CheckpointError, match=rf"clock is the column '{first}' \(int64\), .* '{second}'"):
        pipeline.run(TIMES, punctuate=od.every(second, 10), **more)
    twice = od.Pipeline(TIMES.schema).with_columns(twice=od.col(first) * 2).key_by("k")
    united = od.union(
        twice.count("n", name="count_1").select("k", "n"),
        twice.window(od.tumbling(10), time="twice").aggregate(n=od.count()).select("k", "n"),
    )
    with pytest.raises(od.CheckpointError, match=rf"clock is the column '{first}' .* is 'twice' \(int64\)"):
        united.run(TIMES, **more)
    rest = pipeline.run(TIMES, punctuate=od.every(first, 20), **more)
    expected = run_serial(pipeline, TIMES, punctuate=od.every(first, 20))
    assert rows_of([begun.table, rest.table]) == expected.rows


def test_a_snapshot_of_an_older_release_has_a_clock_of_no_name(tmp_path):
    pipeline = od.Pipeline(TIMES.schema).key_by("k").count("n")
    begun = pipeline.run(TIMES.slice(0, 3), snapshots=True, end="suspend", punctuate=od.every("a", 10))
    older = replace(begun.snapshot, clock="")
    rest = pipeline.run(TIMES.slice(3), restore=older, punctuate=od.every("a", 10))
    assert rows_of([rest.table]) == run_serial(pipeline, TIMES).rows[3:]


def test_the_last_snapshots_keep_their_figures(tmp_path, monkeypatch):
    """A stream that takes one a second would grow by 35 MB a day."""
    monkeypatch.setattr(snapshotting, "LAST_SNAPSHOTS", 3)
    monkeypatch.setattr(report, "LAST_SNAPSHOTS", 3)
    with PIPELINE.stream(TABLE, checkpoint=tmp_path / "state", every=500, chunk_rows=50) as stream:
        assert rows_of(stream) == EXPECTED.rows
    last = [one.serial for one in stream.report.snapshots]
    assert last == [3_500, 4_000, 4_500]
    assert "snapshots: the last 3, the last behind serial 4,500" in str(stream.report)
