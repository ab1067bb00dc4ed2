"""ParquetFolder: which folders it takes, what plain readers see, what comes again."""

import errno
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sink_epochs import SCHEMA, commit, same, stream, whole

from ordstream.errors import CheckpointError, PlanError, SinkError
from ordstream.snapshots.files import Files
from ordstream.spark.streaming.sinks import Epoch, ParquetFolder, StreamInfo

SIZES = ([30], [], [5, 0, 40], [1])


@pytest.fixture
def epochs(tmp_path):
    return commit(tmp_path / "checkpoint", SIZES)


@pytest.fixture
def info(tmp_path):
    return stream(tmp_path / "checkpoint")


def opened(folder, info):
    sink = ParquetFolder(folder)
    sink.open(info)
    return sink


def test_plain_readers_see_the_rows_in_order(tmp_path, epochs, info):
    import duckdb
    import pandas
    import polars

    sink = opened(tmp_path / "out", info)
    for epoch in epochs:
        sink.deliver(epoch)
    sink.close()
    folder = tmp_path / "out"
    assert same(pq.read_table(folder), whole(SIZES))
    tags = list(zip(*(whole(SIZES)[name].to_pylist() for name in ("_serial", "_index")), strict=True))
    for found in (
        pandas.read_parquet(folder),
        polars.read_parquet(folder / "*.parquet"),
        duckdb.sql(f"SELECT * FROM '{folder}/*.parquet'").df(),
    ):
        assert list(zip(found["_serial"], found["_index"], strict=True)) == tags
    assert sorted(p.name for p in folder.glob("epoch*"))[1] == "epoch-000000000002-00000-of-00002.parquet"
    assert (folder / "epoch-000000000000-00000-of-00001.parquet").samefile(epochs[0].files[0].path)


def test_it_knows_what_was_delivered(tmp_path, epochs, info):
    sink = opened(tmp_path / "out", info)
    assert sink.delivered() is None
    for epoch, newest in zip(epochs, (0, 0, 2, 3), strict=True):
        sink.deliver(epoch)
        assert sink.delivered() == opened(tmp_path / "out", info).delivered() == newest
    (tmp_path / "out" / "epoch-000000000000-00000-of-00001.parquet").unlink()  # a reader tidies up
    assert opened(tmp_path / "out", info).delivered() == 3
    (tmp_path / "out" / "epoch-000000000003-00000-of-00001.parquet").unlink()
    assert opened(tmp_path / "out", info).delivered() == 2
    (tmp_path / "out" / "epoch-000000000002-00001-of-00002.parquet").unlink()
    assert opened(tmp_path / "out", info).delivered() is None


def test_a_folder_of_another_stream_is_refused(tmp_path, epochs, info):
    opened(tmp_path / "out", info).deliver(epochs[0])
    with pytest.raises(CheckpointError, match=r"another stream .2f1c9f0e-query, this one is other"):
        opened(tmp_path / "out", stream(info.checkpoint, "other"))
    changed = SCHEMA.set(2, pa.field("price", pa.int64()))
    with pytest.raises(PlanError, match="'price' was double and is int64"):
        opened(tmp_path / "out", stream(info.checkpoint, schema=changed))
    marker = tmp_path / "out" / "_ordstream.json"
    marker.write_bytes(marker.read_bytes().replace(b"2f1c", b"2f1d"))
    with pytest.raises(CheckpointError, match="damaged: its checksum"):
        opened(tmp_path / "out", info)


def test_a_folder_of_something_else_is_refused(tmp_path, info):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part-0.parquet").touch()
    with pytest.raises(CheckpointError, match=r"not empty \('part-0.parquet'\)"):
        opened(tmp_path / "full", info)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="can't be opened"):
        opened(tmp_path / "file", info)
    with pytest.raises(PlanError, match="lies in the stream's checkpoint"):
        opened(info.checkpoint / "out", info)
    info.checkpoint.mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(info.checkpoint)
    with pytest.raises(PlanError, match="lies in the stream's checkpoint"):
        opened(tmp_path / "link" / "output", info)
    for path in ("s3://bucket/out", "dbfs:/out", "file://host/out", "", None, 5, b"out"):
        with pytest.raises(PlanError, match="path of a folder"):
            ParquetFolder(path)


@pytest.mark.parametrize("how", ["file:", "file://", "/"])
def test_the_folder_may_be_written_as_spark_writes_it(tmp_path, how):
    assert ParquetFolder(f"{how}{tmp_path}/out").folder == tmp_path / "out"


def test_an_epoch_that_is_another_one_is_refused(tmp_path, epochs, info):
    sink = opened(tmp_path / "out", info)
    for epoch in epochs:
        sink.deliver(epoch)
    fewer = Epoch(2, epochs[2].files[2:], epochs[2].emitted_through)
    for other in (
        fewer,
        Epoch(0, epochs[3].files, epochs[3].emitted_through),
        Epoch(3, (), fewer.emitted_through),
    ):
        with pytest.raises(CheckpointError, match=r"back_to\((None|1|2)\)"):
            sink.deliver(other)
    sink.back_to(0)
    assert sink.delivered() == 0
    for epoch in epochs:
        sink.deliver(epoch)
    assert same(pq.read_table(tmp_path / "out"), whole(SIZES))
    sink.back_to(None)
    assert sink.delivered() is None
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_ordstream.json"]


def test_an_epoch_is_put_there_without_a_list_of_all_others(tmp_path, epochs, info, monkeypatch):
    sink = opened(tmp_path / "out", info)
    with monkeypatch.context() as patch:
        for name in ("listdir", "scandir"):
            patch.setattr(os, name, lambda path: pytest.fail(f"{path} is listed"))
        for epoch in epochs[:3]:
            sink.deliver(epoch)
    sink = opened(tmp_path / "out", info)
    (tmp_path / "out" / "epoch-000000000003-00000-of-00002.parquet").touch()
    again = opened(tmp_path / "out", info)  # half of another epoch 3 was there
    with pytest.raises(CheckpointError, match="not of the epoch 3 that is committed"):
        again.deliver(epochs[3])
    sink.back_to(2)
    sink.deliver(epochs[3])
    assert same(pq.read_table(tmp_path / "out"), whole(SIZES))


def test_a_copy_that_was_damaged_is_seen(tmp_path, epochs, info, monkeypatch):
    link = Files.link

    def elsewhere(self, source, target):
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "cross-device link")
        link(self, source, target)

    monkeypatch.setattr(Files, "link", elsewhere)
    sink = opened(tmp_path / "out", info)
    sink.deliver(epochs[0])
    sink.deliver(epochs[0])
    path = tmp_path / "out" / "epoch-000000000000-00000-of-00001.parquet"
    assert not path.samefile(epochs[0].files[0].path)
    assert path.read_bytes() == epochs[0].files[0].path.read_bytes()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="not of the epoch 0 that is committed"):
        sink.deliver(epochs[0])


def flipped(data):
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize("torn", [lambda data: data[:-1], flipped, lambda data: b""])
def test_a_torn_copy_gets_no_name(tmp_path, epochs, info, monkeypatch, torn):
    """A reader would find it only where pages have checksums, which older releases did not write."""
    link, copy = Files.link, shutil.copyfileobj

    def elsewhere(self, source, target):
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "cross-device link")
        link(self, source, target)

    monkeypatch.setattr(Files, "link", elsewhere)
    sink = opened(tmp_path / "out", info)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", lambda source, to, _: to.write(torn(source.read())))
        with pytest.raises(SinkError, match=r"is not what was copied, .*Epoch 0 is committed .* next start"):
            sink.deliver(epochs[0])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_ordstream.json"]
    assert shutil.copyfileobj is copy
    sink = opened(tmp_path / "out", info)
    assert sink.delivered() is None
    for epoch in epochs[:-1]:
        sink.deliver(epoch)
    path = epochs[-1].files[0].path
    data = path.read_bytes()
    path.write_bytes(torn(data))
    with pytest.raises(CheckpointError, match=r"a committed file is damaged: .* bring it back from a copy"):
        sink.deliver(epochs[-1])
    path.write_bytes(data)
    sink.deliver(epochs[-1])
    assert same(pq.read_table(tmp_path / "out"), whole(SIZES))
    assert not list((tmp_path / "out").glob(".ordstream-*"))


def test_no_links_at_all(tmp_path, epochs, info, monkeypatch):
    def never(self, source, target):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Files, "link", never)
    sink = opened(tmp_path / "out", info)
    for epoch in [*epochs, *epochs]:
        sink.deliver(epoch)
    assert same(pq.read_table(tmp_path / "out"), whole(SIZES))
    assert not list((tmp_path / "out").glob(".ordstream*"))


def test_a_full_disk(tmp_path, epochs, info, monkeypatch):
    sink = opened(tmp_path / "out", info)

    def full(self, *given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "out"))

    with monkeypatch.context() as patch:
        patch.setattr(Files, "link", full)
        patch.setattr(Files, "create", full)
        with pytest.raises(SinkError, match="No space left"):
            sink.deliver(epochs[0])
    sink.deliver(epochs[0])
    assert len(pq.read_table(tmp_path / "out")) == 30


def test_a_committed_file_that_is_gone(tmp_path, epochs, info):
    sink = opened(tmp_path / "out", info)
    epochs[0].files[0].path.unlink()
    with pytest.raises(CheckpointError, match=r"0-0-attempt.parquet: this file of committed output is gone"):
        sink.deliver(epochs[0])


def test_a_checkpoint_beside_the_folder_is_fine(tmp_path):
    sink = ParquetFolder(tmp_path / "checkpoint-out")
    sink.open(StreamInfo("q", tmp_path / "checkpoint", SCHEMA))
    assert sink.delivered() is None
