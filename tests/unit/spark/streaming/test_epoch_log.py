"""The chain of commits of a stream, without Spark."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from ordstream.commands.cli import main
from ordstream.errors import CheckpointError, PlanError
from ordstream.snapshots.files import Files
from ordstream.spark.streaming import epoch_log
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_manifest import EpochManifest
from ordstream.spark.streaming.rewind import check_log, rewind
from ordstream.spark.streaming.sinks.same_columns import columns_of, difference
from ordstream.spark.streaming.whole_epochs import way_back

OUTPUT = pa.schema([("n", pa.int64())])


def begun(folder, **given):
    return EpochLog.begun(folder, **({"order_by": ("ts",), "schema": OUTPUT} | given))


def manifest(log, number, attempt="a"):
    """An epoch with a state and an output file, which are made."""
    state, output = f"{number:012d}-0-0-{attempt}.arrows", f"{number:012d}-0-{attempt}.parquet"
    (log.folder / "state" / state).write_bytes(b"s")
    (log.folder / "output" / output).write_bytes(b"o")
    last = log.last()
    return EpochManifest(
        number, "now", None if last is None else [last.number, last.sha256], log.query, "spark", "run",
        (number * 10 + 1, number * 10 + 10), (number * 10 + 10, 0), None, {"rows": 10, "digest": "d"},
        {"last": None, "latest": None}, 0, 1, {},
        {"count": [{"node": 0, "file": state, "bytes": 1, "rows": 1, "index": 1, "index_crc32": "0"}]},
        [{"file": output, "bytes": 1, "rows": 1, "crc32": "0"}], [], [],
    )  # fmt: skip


def filled(folder, epochs):
    log = begun(folder)
    for number in range(epochs):
        log.publish(manifest(log, number))
        log.collect(number)
    return log


def names(log, folder):
    return sorted(int(path.name[:12]) for path in (log.folder / folder).iterdir())


def test_an_epoch_is_committed_once_and_comes_back_as_it_was(tmp_path):
    log, other = begun(tmp_path / "c"), begun(tmp_path / "c")
    assert log.query == other.query
    mine = manifest(log, 0)
    log.publish(mine)
    with pytest.raises(CheckpointError, match="another driver has committed epoch 0"):
        other.publish(manifest(other, 0, "b"))
    found = EpochLog(tmp_path / "c").last()
    again = replace(
        found, sha256="", serials=tuple(found.serials), emitted_through=tuple(found.emitted_through)
    )
    assert again == mine
    assert [path.name for path in (tmp_path / "c" / "commits").iterdir()] == ["000000000000.json"]


def test_states_of_two_epochs_stay_where_each_start_makes_one_epoch(tmp_path):
    """A start's first look finds output that was left, too: states of all epochs stayed for it."""
    log = begun(tmp_path / "c")
    for number in range(5):
        log.publish(manifest(log, number))
        log.collect(number, outputs=True)
    assert names(log, "state") == [3, 4]
    assert names(log, "output") == [0, 1, 2, 3, 4]


def test_states_of_two_epochs_stay_and_all_outputs(tmp_path):
    log = filled(tmp_path / "c", 5)
    (log.folder / "state" / "000000000004-0-0-lost.arrows").touch()
    (log.folder / "output" / "000000000002-0-lost.parquet").touch()
    (log.folder / "state" / "000000000005-0-0-next.arrows").touch()  # somebody may still win with it
    log.collect(4, outputs=True)
    assert names(log, "state") == [3, 4, 5]
    assert names(log, "output") == [0, 1, 2, 3, 4]
    assert [one.number for one in log.all()] == [0, 1, 2, 3, 4]
    log.path(2).unlink()
    with pytest.raises(CheckpointError, match=r"000000000002\.json: is missing, and there are later epochs"):
        list(log.all())


def test_an_epoch_looks_at_no_folder_that_grows(tmp_path, monkeypatch):
    """Manifests and output are there for ever, and a list of them took longer with each epoch. They are
    looked at now and then.
    """
    seen = []

    def watched(function):
        return lambda path: [seen.append(Path(path).name), function(path)][1]

    for name in ("listdir", "scandir"):  # which of them a Path calls depends on Python's version
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    monkeypatch.setattr(epoch_log, "LOOKED_AT", 4)
    log = filled(tmp_path / "c", 9)
    for number in range(9, 17):
        left = log.folder / "output" / f"{number - 2:012d}-0-lost.parquet"
        half = log.folder / "commits" / f".{number:012d}-1-a.tmp"
        log.publish(manifest(log, number))
        left.touch()
        half.touch()
        seen.clear()
        log.collect(number)
        looked = number % 4 == 0
        assert ("commits" in seen, "output" in seen) == (looked, looked)
        assert (left.exists(), half.exists()) == (not looked, not looked)
    assert names(log, "output") == list(range(17))
    assert len(list(log.all())) == len(list((log.folder / "commits").iterdir())) == 17


def test_an_epoch_is_committed_behind_the_one_from_which_it_was_made(tmp_path):
    """Else it stands behind a hole, and the output can't be read any more."""
    log = filled(tmp_path / "c", 3)
    made, path = manifest(log, 3), log.path(2)
    whole = path.read_bytes()
    other = replace(log.last(), sha256="", run="other").to_bytes()
    for seen, text in (
        (None, r"000002\.json: is gone since this query read it: somebody has taken the stream back"),
        (other, r"000002\.json: is not the one from which this query goes on: .*Epoch 3 was not committed"),
        (whole[:-9], r"000002\.json: is not the one from which this query goes on"),
    ):
        path.unlink()
        if seen is not None:
            path.write_bytes(seen)
        with pytest.raises(CheckpointError, match=text) as told:
            log.publish(made)
        assert f"od.spark.rewind({str(log.folder)!r}, to={1 if seen is None else 2})" in str(told.value)
        path.write_bytes(whole)
        assert sorted(one.name for one in (log.folder / "commits").iterdir())[-1] == path.name
    log.publish(made)
    assert log.unbroken().number == 3


def test_a_commit_reads_one_small_file_more(tmp_path, monkeypatch):
    log = filled(tmp_path / "c", 3)
    made, read = manifest(log, 3), []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: [read.append(path), read_bytes(path)][1])
    log.publish(made)
    assert read == [log.path(2)]


def test_a_chain_goes_on_only_where_it_has_no_hole(tmp_path):
    log = filled(tmp_path / "c", 4)
    assert log.unbroken().number == 3
    for number in (0, 1, 2):
        whole = log.path(number).read_bytes()
        log.path(number).unlink()
        with pytest.raises(CheckpointError, match=rf"{number:012d}\.json: is missing, .* Put the file back"):
            log.unbroken()
        log.path(number).write_bytes(whole)
    other = replace(log.read(2), sha256="", run="other").to_bytes()
    log.path(2).write_bytes(other)
    for look in (log.unbroken, lambda: list(log.all())):
        with pytest.raises(
            CheckpointError, match=r"0003\.json: was not made from the epoch 2 that is there"
        ):
            look()
    assert begun(tmp_path / "new").unbroken() is None


def test_a_rewind_that_is_killed_leaves_a_chain_that_is_none_or_whole(tmp_path, monkeypatch):
    """What it has not done yet is told; nothing is taken for a hole."""
    log = spark_too(filled(tmp_path / "c", 4), 4)
    removed = Files.remove

    def dies(self, path):
        if path.name == "000000000001.json":
            raise KeyboardInterrupt
        removed(self, path)

    with monkeypatch.context() as killed:
        killed.setattr(Files, "remove", dies)
        with pytest.raises(KeyboardInterrupt):
            rewind(log.folder, to=-1)
    assert log.unbroken().number == 1
    with pytest.raises(CheckpointError, match=r"0002\.json: is missing: Spark has committed micro-batch 3"):
        log.check_there()
    assert rewind(log.folder, to=-1) == -1
    log.check_there()
    assert log.unbroken() is None


def spark_too(log, epochs):
    """Spark has committed so many."""
    for name in ("commits", "offsets"):
        (log.folder / "spark" / name).mkdir(parents=True)
        for number in range(epochs):
            (log.folder / "spark" / name / str(number)).write_text("v1\n{}")
    return log


@pytest.mark.parametrize("at", [20, 200, -3])
def test_a_damaged_manifest_is_refused(tmp_path, at):
    log = filled(tmp_path / "c", 2)
    data = bytearray(log.path(1).read_bytes())
    data[at] ^= 1
    log.path(1).write_bytes(data)
    with pytest.raises(CheckpointError, match=r"manifest: damaged: .*od\.spark\.rewind\(.*to=0\)"):
        log.last()


def test_what_is_no_such_stream_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").touch()
    with pytest.raises(CheckpointError, match="holds 'note'"):
        begun(tmp_path / "full")
    with pytest.raises(CheckpointError, match=r"it has no QUERY\.json"):
        EpochLog(tmp_path / "full")
    with pytest.raises(CheckpointError, match="none: there is no such folder"):
        EpochLog(tmp_path / "none")
    with pytest.raises(CheckpointError, match="note: is a file, not the folder of a checkpoint"):
        EpochLog(tmp_path / "full" / "note")
    begun(tmp_path / "c")
    with pytest.raises(CheckpointError, match="ordered by ts, not by its source"):
        begun(tmp_path / "c", order_by=())
    with pytest.raises(CheckpointError, match="has the columns n int64, and the pipeline's has m int64"):
        begun(tmp_path / "c", schema=pa.schema([("m", pa.int64())]))


def test_a_stream_whose_own_file_is_lost_or_damaged(tmp_path):
    """No new stream may begin between the epochs of this one."""
    query = filled(tmp_path / "c", 2).folder / "QUERY.json"
    data = query.read_bytes()
    query.write_bytes(data.replace(b'"ts"', b'"tz"'))
    for opened in (begun, EpochLog):
        with pytest.raises(CheckpointError, match=r"QUERY\.json: damaged: its checksum .*Bring it back"):
            opened(tmp_path / "c")
    query.unlink()
    with pytest.raises(CheckpointError, match=r"QUERY\.json: is missing, and the rest of a .*Bring it back"):
        begun(tmp_path / "c")
    query.write_bytes(data)
    assert begun(tmp_path / "c").last().number == 1


def test_whether_a_column_has_nulls_may_change(tmp_path):
    """A frame's columns are often said to have none, and those of a table that is written by hand never."""
    number, serial = (pa.field(name, pa.int64(), False) for name in ("n", "_serial"))
    inner = pa.list_(number.with_name("element"))
    without = pa.schema([number, ("many", inner), serial])
    having = pa.schema(
        [("n", pa.int64()), ("many", pa.list_(inner.value_field.with_nullable(True))), serial]
    )
    for name, first, then in (("a", without, having), ("b", having, without)):
        begun(tmp_path / name, schema=first)
        assert begun(tmp_path / name, schema=then).schema.equals(having)
    assert not difference(columns_of(without), columns_of(having))


def test_a_folder_that_spark_reads_nothing_of_is_refused(tmp_path):
    with pytest.raises(PlanError, match="below a folder that is called _spark_metadata"):
        begun(tmp_path / "_spark_metadata" / "c")
    begun(tmp_path / "_spark_metadata_of" / "c")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_checkpoint_without_a_name_is_refused(name):
    with pytest.raises(PlanError, match="it needs the name of a folder"):
        EpochLog(name)


@pytest.mark.parametrize("address", ["s3://b/c", "dbfs:/c", "hdfs:/c", "file://host/c"])
def test_an_address_is_no_folder(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    for call in (begun, EpochLog):
        with pytest.raises(PlanError, match="must be a folder of a file system that driver and executors"):
            call(address)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["file:", "file://", "/"])
def test_a_folder_may_be_written_as_spark_writes_it(tmp_path, how):
    folder = tmp_path / "file:" / "c"
    folder.mkdir(parents=True)
    log = begun(f"{how}{folder}")
    assert log.folder == folder
    assert EpochLog(f"{how}{folder}").query == EpochLog(folder).query == log.query


@pytest.mark.parametrize("step", ["create", "write", "sync", "link", "sync_folder"])
def test_a_full_disk_leaves_no_commit_but_a_linked_one(tmp_path, step):
    class Full(Files):
        pass

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    log = filled(tmp_path / "c", 1)
    setattr(Full, step, full)
    with pytest.raises(CheckpointError, match=r"No space left on device\. Epoch 1"):
        EpochLog(tmp_path / "c", Full()).publish(manifest(log, 1))
    assert log.numbers() == ([0, 1] if step == "sync_folder" else [0])
    assert not list((tmp_path / "c" / "commits").glob(".*"))


def test_rewind_takes_back_both_logs(tmp_path):
    log = filled(tmp_path / "c", 5)
    for name, count in (("commits", 5), ("offsets", 6)):
        (log.folder / "spark" / name).mkdir(parents=True)
        for number in range(count):
            (log.folder / "spark" / name / f"{number}").touch()
            (log.folder / "spark" / name / f".{number}.crc").touch()
    with pytest.raises(CheckpointError, match=r"the state behind epoch 1 is gone.*can go back to 3 "):
        rewind(log.folder, to=1)
    with pytest.raises(PlanError, match="rewind"):
        rewind(log.folder, to=5)
    assert rewind(log.folder) == 3
    assert log.last().number == 3
    left = {
        name: sorted(path.name for path in (log.folder / "spark" / name).glob("[0-9]*"))
        for name in ("commits", "offsets")
    }
    assert left == {"commits": ["0", "1", "2", "3"], "offsets": ["0", "1", "2", "3", "4"]}
    assert not (log.folder / "spark" / "commits" / ".4.crc").exists()
    assert rewind(log.folder, to=-1) == -1
    assert log.last() is None


def test_rewind_may_be_killed_at_any_step(tmp_path, monkeypatch):
    """Called again, without to=, it completes what it began, and goes no further back."""
    given = tmp_path / "given"
    given.touch()
    for steps in range(14):
        log = filled(tmp_path / str(steps), 5)
        for name, count in (("commits", 5), ("offsets", 6), ("sources/0", 9)):
            (log.folder / "spark" / name).mkdir(parents=True)
            for number in range(count):
                entry = {"path": given.as_uri(), "batchId": number, "logOffset": number}
                text = f"v1\n{{}}\n{json.dumps(entry)}" if name == "offsets" else f"v1\n{json.dumps(entry)}"
                (log.folder / "spark" / name / str(number)).write_text(text)
        left = iter(range(steps))

        def once(self, path, left=left):
            if next(left, None) is None:
                raise OSError(errno.EIO, "killed")
            path.unlink()

        with monkeypatch.context() as patched:
            patched.setattr(Files, "remove", once)
            try:
                done = rewind(log.folder) == 3
            except CheckpointError:
                done = False
        assert done or rewind(log.folder) == 3
        newest = [newest_of_spark(log, name) for name in ("commits", "offsets", "sources/0")]
        assert [log.last().number, *newest] == [3, 3, 4, 4]
    assert done


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_a_seal_that_leaves_a_micro_batch_of_spark_out_says_so(tmp_path, epochs):
    """It sealed over one that had failed: its rows are in no output, and nobody was told."""
    log = filled(tmp_path / "c", epochs)
    check_log(log, epochs - 1)  # Spark's log is not there
    spark = log.folder / "spark"
    for name in ("commits", "offsets"):
        (spark / name).mkdir(parents=True)
        (spark / name / ".0.crc").touch()
        for number in range(epochs):
            (spark / name / str(number)).touch()
    check_log(log, epochs - 1)
    if epochs:
        (spark / "commits" / str(epochs - 1)).unlink()  # a crash between our commit and Spark's
        check_log(log, epochs - 1)
    (spark / "offsets" / str(epochs)).touch()
    with pytest.warns(RuntimeWarning, match=rf"planned micro-batch {epochs} .*once more .*, then finish"):
        check_log(log, epochs - 1)
    (spark / "commits" / str(epochs)).touch()
    with pytest.raises(CheckpointError, match=rf"has committed micro-batch {epochs}, and"):
        check_log(log, epochs - 1)
    assert rewind(log.folder, to=epochs - 1) == epochs - 1  # as it says
    with pytest.warns(RuntimeWarning, match="planned micro-batch"):
        check_log(log, epochs - 1)
    (spark / "offsets" / str(epochs)).unlink()
    check_log(log, epochs - 1)


def test_what_rewind_advises_can_be_done(tmp_path):
    log = filled(tmp_path / "c", 5)
    assert rewind(log.folder) == 3
    with pytest.raises(CheckpointError, match=r"epoch 2 is gone; .* can go back to 3 .*, or to the start"):
        rewind(log.folder)
    assert rewind(log.folder, to=3) == 3
    log = filled(tmp_path / "d", 5)
    log.path(3).write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"epoch 2 is gone; .* can go back to 4 \(its last one is 4\)"):
        rewind(log.folder, to=2)


@pytest.mark.parametrize("to", ["1", 1.0, True, [1]])
def test_rewind_takes_the_number_of_an_epoch(tmp_path, to):
    log = filled(tmp_path / "c", 3)
    with pytest.raises(PlanError, match=r"rewind\(to=.*\): committed are the epochs"):
        rewind(log.folder, to=to)
    assert log.last().number == 2


@pytest.mark.parametrize("way", ["link", "..", "itself"])
def test_a_stream_that_runs_is_known_by_any_path(tmp_path, way, monkeypatch):
    pytest.importorskip("pyspark")
    from ordstream.spark.streaming import stream

    log = filled(tmp_path / "c", 3)
    (tmp_path / "link").symlink_to(tmp_path / "c")
    path = {"link": tmp_path / "link", "..": tmp_path / "c" / ".." / "c", "itself": log.folder}[way]
    running = (None, {"query": SimpleNamespace(isActive=True)})
    monkeypatch.setitem(stream._started, log.folder.resolve(), running)
    with pytest.raises(PlanError, match="still runs: stop it"):
        rewind(path)
    with pytest.raises(PlanError, match="still runs: stop it"):
        stream.finish(path)
    assert log.last().number == 2


@pytest.mark.parametrize("name", [None, 5, b"c", ["c"], "", "a\0b"])
def test_a_checkpoint_has_the_name_of_a_folder(name):
    with pytest.raises(PlanError, match="it needs the name of a folder"):
        rewind(name)


# --- from the command line ---------------------------------------------------------------------------------


def test_the_command_line_lists_epochs_and_goes_back(tmp_path, capsys):
    log = filled(tmp_path / "c", 12)
    for kind in ("commits", "offsets"):
        (log.folder / "spark" / kind).mkdir(parents=True)
        for number in range(13 if kind == "offsets" else 12):
            (log.folder / "spark" / kind / str(number)).touch()
    assert main(["epochs", str(log.folder), "--last", "3"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:5] for line in lines] == [
        ["9", "now", "10", "91", "to"],
        ["10", "now", "10", "101", "to"],
        ["11", "now", "10", "111", "to"],
    ]
    assert [line.split()[-1] for line in lines] == ["-", "yes", "yes"]
    assert header.split()[:2] == ["epoch", "committed"]
    assert main(["rewind", str(log.folder)]) == 0
    assert "epoch 10 is the last one now; before it was 11" in capsys.readouterr().out
    assert log.numbers()[-1] == 10
    assert newest_of_spark(log, "commits") == 10
    assert newest_of_spark(log, "offsets") == 11
    assert main(["rewind", str(log.folder), "--to", "4"]) == 2
    assert "the state behind epoch 4 is gone" in capsys.readouterr().err
    assert main(["rewind", str(log.folder), "--to", "-1"]) == 0
    assert "nothing is committed now; before it was 10" in capsys.readouterr().out
    assert main(["epochs", str(log.folder)]) == 0
    assert "no epoch is committed yet" in capsys.readouterr().out
    (tmp_path / "file").touch()
    for other, why in (
        (tmp_path, "is no checkpoint of a stream"),
        (tmp_path / "file", "is a file, not the folder of a checkpoint"),
        (tmp_path / "none", "there is no such folder"),
    ):
        for command in ("epochs", "rewind"):
            assert main([command, str(other)]) == 2
            assert f"{other}: {why}" in capsys.readouterr().err
    for arguments in (["epochs", ""], ["rewind", ""], ["rewind", str(tmp_path), "--folder", ""]):
        assert main(arguments) == 2
        assert "it is empty: name a folder" in capsys.readouterr().err


def newest_of_spark(log, kind):
    """The newest entry of Spark's."""
    return max(int(path.name) for path in (log.folder / "spark" / kind).iterdir())


def spoil(path):
    data = bytearray(path.read_bytes())
    data[20 % len(data)] ^= 1
    path.write_bytes(data)


def advised(error):
    """What the error says to call, called."""
    text = str(error.value)
    (call,) = re.findall(r"od\.spark\.rewind\('.*', to=-?\d+\)", text)
    return eval(call, {"od": SimpleNamespace(spark=SimpleNamespace(rewind=rewind))})


def test_a_damaged_epoch_names_the_newest_that_can_be_used(tmp_path):
    log = filled(tmp_path / "c", 5)
    spoil(log.path(4))
    with pytest.raises(CheckpointError, match=r"Epoch 4 can't be used\. The newest .* is epoch 3") as error:
        log.last()
    assert advised(error) == log.last().number == 3
    # The state of epoch 2 went when epoch 4 was committed, and that of 0 and 1 before.
    spoil(log.path(3))
    with pytest.raises(CheckpointError, match=r"Epoch 3 can't be used\. No epoch before it can") as error:
        log.last()
    assert advised(error) == -1
    assert log.last() is None


def test_an_epoch_that_names_the_damaged_file_too_is_not_advised(tmp_path):
    """A node without rows keeps its file."""
    log = begun(tmp_path / "c")
    log.publish(manifest(log, 0))
    log.publish(manifest(log, 1))
    log.publish(replace(manifest(log, 2), states=log.last().states))
    (part,) = log.last().states["count"]
    path = log.folder / "state" / part["file"]
    assert "is epoch 0: od.spark.rewind(" in way_back(log.folder, 2, path)
    assert "is epoch 1: od.spark.rewind(" in way_back(log.folder, 2, log.path(2))
    (log.folder / "state" / f"{0:012d}-0-0-a.arrows").write_bytes(b"longer")  # another length
    assert "No epoch before it can be used" in way_back(log.folder, 2, path)


def test_an_epoch_whose_waiting_rows_are_gone_is_not_gone_back_to(tmp_path, capsys):
    """A pipeline without states has nothing else that goes."""
    log = begun(tmp_path / "c")
    for number in range(4):
        waiting = {"file": f"{number:012d}-0-a.arrows", "bytes": 1, "rows": 1, "crc32": "0"}
        (log.folder / "waiting" / waiting["file"]).write_bytes(b"w")
        log.publish(replace(manifest(log, number), states={}, waiting=[waiting]))
        log.collect(number)
    with pytest.raises(CheckpointError, match=r"that wait behind epoch 1 are gone; .* can go back to 2 "):
        rewind(log.folder, to=1)
    assert main(["epochs", str(log.folder)]) == 0
    assert [line.split()[-1] == "yes" for line in capsys.readouterr().out.splitlines()[-4:]] == [0, 0, 1, 1]
    assert rewind(log.folder) == 2
