"""Snapshots of a stream over spawned processes: one of all, from which any number of them goes on."""

from __future__ import annotations

import os
import signal
import threading

import pyarrow as pa
import pytest
from process_functions import SOURCE, build, dies, lives, rows

import ordstream as od
from ordstream.fragments import processes
from ordstream.fragments.process_stream import ProcessStream
from ordstream.node.positions import MemorySource
from ordstream.reference.run_serial import run_serial

TAGS = ["_serial", "_index"]


@pytest.fixture(scope="module")
def two():
    with processes.Processes(2) as started:
        yield started


@pytest.fixture(scope="module")
def three():
    with processes.Processes(3) as started:
        yield started


def updates():
    return od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).key_by("item").scan(at=od.last("seen"))


def agrees(batches, schema, expected):
    table = pa.Table.from_batches(batches, schema=schema)
    assert table.drop(TAGS).equals(expected.table)
    assert list(zip(*(table[name].to_pylist() for name in TAGS), strict=True)) == expected.tags


def test_a_checkpoint_of_processes_goes_on_in_another_number_of_them_and_in_one(two, three, tmp_path):
    pipeline, table = updates(), rows()
    expected = run_serial(pipeline, table)
    checkpoint = od.Checkpoint(tmp_path / "c", keep=40)
    options = {"tags": True, "checkpoint": checkpoint, "every": 3_000}
    with ProcessStream(pipeline, table, two, options, block_rows=1_000, channel_bytes=20_000) as stream:
        batches = list(stream)
        figures = stream.report.snapshots
    agrees(batches, stream.schema, expected)
    assert [figure.serial for figure in figures] == list(range(3_000, 20_000, 3_000))
    assert [info.serial for info in checkpoint.snapshots()] == [figure.serial for figure in figures]
    one = pipeline.run(table.slice(0, 9_000), tags=True, end="suspend", checkpoint=tmp_path / "one")
    stored = checkpoint.read(3)
    assert (stored.serial, stored.emitted_through) == (9_000, one.snapshot.emitted_through)
    assert stored.last_output == one.snapshot.last_output
    for name, state in one.snapshot.states.items():  # in their canonical order: byte for byte the same rows
        assert pa.Table.from_batches(list(stored.states[name].batches())).equals(
            pa.Table.from_batches(list(state.batches()))
        )
    front = [k for k, tag in enumerate(expected.tags) if od.OrderTag(*tag) <= stored.emitted_through]
    rest = expected.table.slice(len(front))
    with ProcessStream(pipeline, table.slice(9_000), three, {"restore": stored}) as stream:
        assert pa.Table.from_batches(list(stream), schema=stream.schema).equals(rest)
    assert pipeline.run(table.slice(9_000), restore=stored).table.equals(rest)
    through = od.OrderTag(*expected.tags[len(front) + 10])
    again = {"restore": one.snapshot, "emitted_through": through, "tags": True}
    with ProcessStream(pipeline, table.slice(9_000), two, again) as stream:
        found = pa.Table.from_batches(list(stream), schema=stream.schema)
    assert found.drop(TAGS).equals(rest.slice(11))


def test_a_snapshot_that_is_asked_for(two):
    pipeline, table = updates(), rows()
    expected = run_serial(pipeline, table)
    options = {"snapshots": True, "tags": True}
    with ProcessStream(pipeline, table, two, options, block_rows=500, channel_bytes=20_000) as stream:
        batches = [next(stream)]
        asked = []
        thread = threading.Thread(target=lambda: asked.append(stream.request_snapshot()))
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="this is the thread that reads"):
            asked[0].result()
        batches += list(stream)
        snapshot = asked[0].result(0)
        with pytest.raises(od.CheckpointError, match="has ended"):
            stream.request_snapshot().result(0)
    agrees(batches, stream.schema, expected)
    assert 0 < snapshot.serial <= 20_000
    rest = pipeline.run(table.slice(snapshot.serial), restore=snapshot)
    assert rest.table.equals(expected.table.slice(expected.table.num_rows - rest.table.num_rows))
    assert rest.table.num_rows == sum(od.OrderTag(*tag) > snapshot.emitted_through for tag in expected.tags)
    with (
        ProcessStream(pipeline, table, two, {}) as stream,
        pytest.raises(od.PlanError, match="takes no snapshots"),
    ):
        stream.request_snapshot()


def test_a_snapshot_in_seconds_and_a_source_that_can_not_go_back(two, tmp_path):
    with pytest.raises(od.PlanError, match="can go back"):
        updates().stream(iter(rows(10).to_batches()), processes=2, checkpoint=tmp_path / "c", every="1s")
    table = rows(60_000)
    options = {"checkpoint": tmp_path / "c", "every": "20ms"}
    with ProcessStream(updates(), table, two, options, block_rows=200) as stream:
        assert sum(batch.num_rows for batch in stream) == run_serial(updates(), table).table.num_rows
        assert stream.report.snapshots


class Killing(MemorySource):
    """A source that kills a process of the stream that reads it."""

    victim = None

    def __iter__(self):
        for batch in super().__iter__():
            if self.victim is not None and self.position() > 15_000:
                os.kill(self.victim._pool._processes[0].pid, signal.SIGKILL)
            yield batch


def test_a_process_that_is_killed_and_the_stream_begun_again(tmp_path):
    """By its own function, then from outside, somewhere; outputs that were delivered do not come again."""
    healthy = build(lambda p: p.map(lives, schema=SOURCE, name="lives"))
    expected = run_serial(healthy, rows())
    table, batches, through, folder = rows(), [], None, tmp_path / "c"
    steps = [build(lambda p: p.map(dies, schema=SOURCE, name="lives")), healthy, healthy]
    lost = []
    for attempt, pipeline in enumerate(steps):
        options = {"tags": True, "checkpoint": folder, "every": 1_500, "emitted_through": through}
        source = Killing(table.to_batches(max_chunksize=300))
        stream = ProcessStream(pipeline, source, 2, options, channel_bytes=5_000)
        if attempt == 1:
            source.victim = stream
        try:
            with stream:
                for batch in stream:
                    batches.append(batch)
                    through = stream.emitted_through
        except od.NodeLost as error:
            lost.append(str(error))
        snapshots = od.Checkpoint(folder).snapshots()
        assert snapshots
        assert all(info.intact for info in snapshots)
    assert len(lost) == 2
    assert all("of 2 (pid " in text and "SIGKILL" in text for text in lost)
    agrees(batches, stream.schema, expected)
