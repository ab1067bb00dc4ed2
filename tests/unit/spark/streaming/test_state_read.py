"""`od.spark.state` of epochs whose files the stream has collected, without Spark."""

import traceback

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import CheckpointError

pytest.importorskip("pyspark")
from epoch_frames import SCHEMA, Stream, rows

from ordstream.spark.streaming import reading
from ordstream.spark.streaming.reading import state

pytestmark = pytest.mark.usefixtures("tasks")


class Session:
    """What `state` asks a session for: a frame that reads when it is asked."""

    def range(self, start, end, step, partitions):
        self.numbers = pa.record_batch({"id": pa.array(range(start, end, step), pa.int64())})
        return self

    def mapInArrow(self, function, _):
        return lambda: [row for batch in function(iter([self.numbers])) for row in batch.to_pylist()]


@pytest.fixture
def stream(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "running_session", lambda *_: Session())
    pipeline = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count())
    return Stream(tmp_path / "c", pipeline)


def told(call):
    """The error, with all that a task's trace shows of it."""
    with pytest.raises(CheckpointError) as error:
        call()
    return "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_state_that_was_collected_is_no_damage(stream, nodes):
    """The advice was to go back to the start, which throws the stream's work away."""
    for n in range(2):
        stream.epoch(rows(30, n), nodes=nodes, late="drop")
        if not n:
            held = state(stream.log.folder, "scan_1")
            known = held()
            assert len(known) > 5
    assert held() == known
    assert state(stream.log.folder, "scan_1", epoch=0)() == known
    stream.epoch(rows(30, 2), nodes=nodes, late="drop")
    for call in (held, lambda: state(stream.log.folder, "scan_1", epoch=0)):
        found = told(call)
        assert "the state behind epoch 0 is no longer kept (the stream is at epoch 2; the last 2" in found
        assert "call state() again, or name a later epoch" in found
        assert "damaged" not in found
        assert "rewind" not in found
    assert len(state(stream.log.folder, "scan_1", epoch=1)()) > 5


def test_a_state_that_was_collected_before_the_stream_went_back(stream):
    """Fewer than two are there then."""
    for n in range(3):
        stream.epoch(rows(30, n), late="drop")
    stream.log.remove(2)
    found = told(lambda: state(stream.log.folder, "scan_1", epoch=0))
    assert (
        "the state behind epoch 0 is gone (the stream is at epoch 1; the last 2 that ran are kept)" in found
    )
    assert "rewind" not in found


def test_a_state_that_the_stream_needs_and_is_gone_is_damage(stream):
    for n in range(2):
        stream.epoch(rows(30, n), late="drop")
    held = state(stream.log.folder, "scan_1")
    (part,) = stream.log.last().states["scan_1"]
    (stream.log.folder / "state" / part["file"]).unlink()
    for call in (held, lambda: state(stream.log.folder, "scan_1")):
        assert "damaged: No such file or directory. The state behind epoch 1 can't be used" in told(call)


def test_a_state_that_is_there_and_damaged_is_told_so_of_an_old_epoch_too(stream):
    for n in range(2):
        stream.epoch(rows(30, n), late="drop")
    (part,) = stream.log.read(0).states["scan_1"]
    path = stream.log.folder / "state" / part["file"]
    path.write_bytes(path.read_bytes()[:-1])
    assert "damaged: it has " in told(lambda: state(stream.log.folder, "scan_1", epoch=0))
