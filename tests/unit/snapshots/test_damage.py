"""Damage: every file of a checkpoint, bytes flipped and ends cut off, is refused with the file and the key
group, and the snapshot before is offered. And full disks: every step of writing fails once.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from unit.snapshots.checkpoints import (
    FailingFiles,
    all_files,
    columns,
    contents,
    counts,
    memory,
    same_rows,
    snapshot,
    table,
)

from ordstream.errors import CheckpointError

pytest.importorskip("ordstream._core.state.key_groups", reason="the core is not built")
from ordstream.snapshots.checkpoint import Checkpoint

STATES = {"count": memory(counts(120)), "a/b": memory(columns(20), 2), "none": memory(counts(0))}
FLIPS = 200
CUTS = 25
OTHER_BITS = (0x01, 0x20, 0x80, 0xFF)


def made(folder, snapshots=2):
    checkpoint = Checkpoint(folder)
    for number in range(1, snapshots + 1):
        checkpoint.write(snapshot(STATES, serial=number * 10, models={"shed": b"\x00\x01"}, position=[7]))
    return checkpoint


def refused(folder, path, number):
    """Reading a checkpoint with this damaged file is refused in the right words; returns these."""
    with pytest.raises(CheckpointError) as raised:
        Checkpoint(folder).latest(verify=True)
    text = str(raised.value)
    assert str(path) in text, text
    if path.name == "STREAM.json":
        assert "from another checkpoint" in text
        return text
    assert re.search(r"key group \d+|key groups|manifest", text), text
    assert f"Snapshot {number} can't be used" in text
    assert f"the snapshot before it is intact: Checkpoint({str(folder)!r}).read({number - 1})" in text
    assert Checkpoint(folder).read(number - 1, verify=True).serial == (number - 1) * 10
    return text


def newest_files(folder):
    """STREAM.json, and the files of snapshot 2."""
    return [
        path
        for path in all_files(folder)
        if path.name == "STREAM.json" or path.name.startswith("000000000002")
    ]


def index_of(checkpoint, path):
    states = checkpoint.read(2).states
    return next((rows.index for rows in states.values() if rows.path == path), None)


def test_any_flipped_byte(tmp_path):
    checkpoint = made(tmp_path)
    rng = random.Random(11)
    files = newest_files(tmp_path)
    assert len(files) == 5
    for path in files:
        index = index_of(checkpoint, path) if path.suffix == ".arrows" else None
        data = path.read_bytes()
        places = set(range(24)) | set(range(len(data) - 24, len(data)))
        places |= {rng.randrange(len(data)) for _ in range(FLIPS)}
        for place in sorted(places & set(range(len(data)))):
            damaged = bytearray(data)
            damaged[place] ^= rng.choice(OTHER_BITS)
            path.write_bytes(damaged)
            text = refused_quickly(tmp_path, path, 2)
            if index is not None:
                hit = [group for group, _, at, size, _ in index if at <= place < at + size]
                assert ([f"key group {group}:" in text for group in hit] or ["key groups" in text]) == [True]
        path.write_bytes(data)
        refused_once_more = Checkpoint(tmp_path).latest(verify=True)
        assert refused_once_more.serial == 20


def refused_quickly(folder, path, number):
    """As `refused`, without reading the snapshot before once more."""
    with pytest.raises(CheckpointError) as raised:
        Checkpoint(folder).latest(verify=True)
    text = str(raised.value)
    assert str(path) in text, text
    assert path.name == "STREAM.json" or f".read({number - 1})" in text
    return text


def test_any_end_cut_off(tmp_path):
    made(tmp_path)
    rng = random.Random(12)
    for path in newest_files(tmp_path):
        data = path.read_bytes()
        cuts = {0, 1, len(data) - 1, len(data) // 2, *(rng.randrange(len(data)) for _ in range(CUTS))}
        for size in sorted(cuts):
            path.write_bytes(data[:size])
            refused_quickly(tmp_path, path, 2)
        for more in (b"\0", data):
            path.write_bytes(data + more)
            refused_quickly(tmp_path, path, 2)
        path.write_bytes(data)


def test_a_missing_file_and_a_file_of_another_snapshot(tmp_path):
    made(tmp_path)
    for path in newest_files(tmp_path):
        data = path.read_bytes()
        path.unlink()
        if path.parent.name == "commits":  # then it is no snapshot: nothing names it
            assert Checkpoint(tmp_path).latest(verify=True).serial == 10
        else:
            refused(tmp_path, path, 2)
        path.write_bytes(data)
    one, two = sorted((tmp_path / "commits").iterdir())
    shutil.copy(one, two)
    assert "it is the manifest of snapshot 1" in refused(tmp_path, two, 2)
    two.unlink()
    two.symlink_to(tmp_path / "gone")  # as a copy that kept links leaves it
    assert "it is a link to what is not there" in refused(tmp_path, two, 2)


def test_states_that_were_exchanged(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    for serial in (10, 20):
        checkpoint.write(snapshot({"a": memory(counts(9)), "b": memory(counts(9))}, serial=serial))
    a, b = sorted(path for path in (tmp_path / "state").iterdir() if path.name.startswith("000000000002"))
    data = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"index of the key groups: damaged: .*read\(1\)"):
        Checkpoint(tmp_path).latest()


def test_rows_are_checked_when_they_are_read(tmp_path):
    checkpoint = made(tmp_path)
    rows = checkpoint.latest().states["count"]
    group, _, at, _, _ = rows.index[3]
    data = bytearray(rows.path.read_bytes())
    data[at + 40] ^= 1
    rows.path.write_bytes(data)
    lazily = Checkpoint(tmp_path).latest().states["count"]
    with pytest.raises(CheckpointError, match=rf"key group {group}: damaged: .*\.read\(1\)"):
        table(lazily)
    info = Checkpoint(tmp_path).snapshots(verify=True)
    assert [one.intact for one in info] == [True, False]
    assert f"key group {group}" in info[1].damage
    assert [one.intact for one in Checkpoint(tmp_path).snapshots()] == [True, True]
    rows.path.unlink()
    with pytest.raises(CheckpointError, match="all key groups: damaged: No such file"):
        table(lazily)


def test_nothing_intact_is_before(tmp_path):
    checkpoint = made(tmp_path, 3)
    for path in all_files(tmp_path / "commits"):
        path.write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"manifest: damaged: .*there is no intact snapshot before it"):
        checkpoint.latest()
    assert [(info.serial, info.intact) for info in checkpoint.snapshots()] == [(None, False)] * 2


def test_a_damaged_snapshot_does_not_count_as_kept(tmp_path):
    """The run goes on from the snapshot before it; what is kept then is that one, not the damaged one."""
    made(tmp_path, 3)
    (tmp_path / "commits" / "000000000003.json").write_bytes(b"")
    again = Checkpoint(tmp_path)
    assert again.read(2).serial == 20
    assert again.write(snapshot(STATES, serial=40)).number == 4
    assert [(info.number, info.intact) for info in again.snapshots(verify=True)] == [(2, True), (4, True)]


def test_a_writer_that_does_not_know_of_the_damage(tmp_path):
    checkpoint = made(tmp_path, 3)
    next(
        path for path in (tmp_path / "state").iterdir() if path.name.startswith("000000000003")
    ).write_bytes(b"")
    checkpoint.write(snapshot(STATES, serial=40))
    assert [(info.number, info.intact) for info in checkpoint.snapshots(verify=True)] == [
        (2, True),
        (4, True),
    ]


def test_the_missing_constants(tmp_path):
    made(tmp_path)
    stream = tmp_path / "STREAM.json"
    constants = stream.read_bytes()
    stream.unlink()
    with pytest.raises(CheckpointError, match=r"STREAM.json: is missing.*from another checkpoint"):
        Checkpoint(tmp_path)
    Checkpoint(tmp_path / "another")
    shutil.copy(tmp_path / "another" / "STREAM.json", stream)
    shutil.rmtree(tmp_path / "another")
    assert stream.read_bytes() == constants
    assert Checkpoint(tmp_path).latest(verify=True).serial == 20


# ------------------------------------------------------------------------------------------ full disks


def steps_of_a_write(folder):
    files = FailingFiles()
    checkpoint = Checkpoint._with_files(folder, files)
    checkpoint.write(snapshot(STATES, serial=10))
    checkpoint.write(snapshot(STATES, serial=20))
    before = len(files.steps)
    checkpoint.write(snapshot(STATES, serial=30))  # collects 1
    steps = files.steps[before:]
    first = {step.split()[0]: i for i, step in reversed(list(enumerate(steps, 1)))}
    assert set(first) == {"create", "write", "sync", "sync_folder", "link", "remove"}
    # Of the writes of key groups a few are enough.
    groups = [i for i, step in enumerate(steps, 1) if step.startswith("write")]
    kept = set(groups[:3]) | set(groups[-3:]) | set(groups[:: len(groups) // 5])
    return [(i, step) for i, step in enumerate(steps, 1) if not step.startswith("write") or i in kept]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.thin(2)
def test_each_step_fails(tmp_path, error, for_good):
    steps = steps_of_a_write(tmp_path / "whole")
    silent = 0
    for at, step in steps:
        folder = tmp_path / f"{at}"
        files = FailingFiles()
        checkpoint = Checkpoint._with_files(folder, files)
        checkpoint.write(snapshot(STATES, serial=10))
        checkpoint.write(snapshot(STATES, serial=20))
        files.at = len(files.steps) + at
        files.error = error
        files.for_good = for_good
        try:
            checkpoint.write(snapshot(STATES, serial=30))
        except CheckpointError as raised:
            text = str(raised)
            assert "failed" in text
            assert "snapshot 2 still stands" in text
            known = Checkpoint(folder).latest().serial  # the same to a reader as to the writer
            assert ("Snapshot 3 was not made" in text) == (known == 20)
            assert str(folder) in text
        else:
            silent += 1  # what is to be removed stays, and is removed later: nothing is lost
            assert step.startswith(("remove", "sync_folder commits"))
        assert files.fired, step
        assert files.fired.split()[0] == step.split()[0]
        # A new process finds a whole snapshot: the one before, or this one where its manifest had its name.
        found = Checkpoint(folder).latest(verify=True)
        assert found.serial in (20, 30)
        if found.serial == 30:
            assert for_good or step.startswith(("remove", "sync_folder"))
        for name, rows in STATES.items():
            assert same_rows(table(found.states[name]), table(rows))
        if not for_good and found.serial == 20:
            left = [path for path in all_files(folder) if "000000000003" in path.name]
            assert left == []
        # The same run goes on when there is room again, and the leftovers go.
        files.at, files.for_good = 0, False
        for serial in (40, 50, 60):
            checkpoint.write(snapshot(STATES, serial=serial))
        assert [info.serial for info in Checkpoint(folder).snapshots(verify=True) if info.intact] == [50, 60]
        assert len(all_files(folder)) == 1 + 2 * (1 + len(STATES))
        shutil.rmtree(folder)
    assert silent < len(steps) / 2


def test_a_manifest_that_can_not_be_taken_back(tmp_path):
    """It stays, and with it all that it names."""

    class Files(FailingFiles):
        failing = False

        def sync_folder(self, path):
            if self.failing and path.name == "commits":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync_folder(path)

        def remove(self, path):
            if self.failing and path.suffix == ".json":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().remove(path)

    files = Files()
    checkpoint = Checkpoint._with_files(tmp_path, files)
    checkpoint.write(snapshot(STATES, serial=10))
    files.failing = True
    with pytest.raises(
        CheckpointError, match="Snapshot 2 is whole, but it is not sure that the disk has it; snapshot 1"
    ):
        checkpoint.write(snapshot(STATES, serial=20))
    files.failing = False
    assert Checkpoint(tmp_path).latest(verify=True).serial == 20
    assert checkpoint.write(snapshot(STATES, serial=30)).number == 3
    assert [(info.number, info.intact) for info in checkpoint.snapshots(verify=True)] == [
        (2, True),
        (3, True),
    ]


def test_each_step_of_a_new_folder_fails(tmp_path):
    whole = FailingFiles()
    Checkpoint._with_files(tmp_path / "whole", whole)
    for at in range(1, len(whole.steps) + 1):
        folder = tmp_path / str(at)
        files = FailingFiles(at)
        try:
            Checkpoint._with_files(folder, files)
        except CheckpointError as raised:
            text = str(raised)
        else:
            text = str(folder)
            assert files.fired.startswith("remove")
        assert str(folder) in text
        assert files.fired
        assert Checkpoint(folder).latest() is None
        assert Checkpoint(folder).write(snapshot()).number == 1


def test_a_real_limit(tmp_path):
    """The system itself refuses to write: RLIMIT_FSIZE. In a process of its own."""
    pytest.importorskip("resource", reason="no limits on this system")
    code = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from unit.snapshots.checkpoints import counts, memory, snapshot
        from ordstream.errors import CheckpointError
        from ordstream.snapshots.checkpoint import Checkpoint
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        checkpoint = Checkpoint(sys.argv[1])
        checkpoint.write(snapshot(serial=10))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            checkpoint.write(snapshot({"op": memory(counts(50_000))}, serial=20))
        except CheckpointError as error:
            print(error)
        print(checkpoint.latest(verify=True).serial, checkpoint.write(snapshot(serial=30)).number)
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert re.search(
        r"arrows: writing failed: File too large\. Snapshot 2 was not made; snapshot 1 still stands",
        run.stdout,
    )
    assert "Allow larger files (ulimit -f)" in run.stdout
    assert run.stdout.endswith("\n10 2\n")
    assert len(all_files(tmp_path)) == 5


def test_too_many_open_files(tmp_path):
    """In a process of its own, which may open no more."""
    resource = pytest.importorskip("resource", reason="no limits on this system")
    code = textwrap.dedent(
        """
        import os, resource, sys
        from ordstream.errors import CheckpointError
        from ordstream.snapshots.checkpoint import Checkpoint
        Checkpoint(sys.argv[1])
        least = os.open(os.devnull, os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, least))
        try:
            Checkpoint(sys.argv[1])
        except CheckpointError as error:
            print(error)
        """
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "can't be opened: Too many open files; allow more (ulimit -n)" in run.stdout


def test_a_real_full_disk(tmp_path):
    """A file system of 256 KiB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not shutil.which("mount"):
        pytest.skip("no mount on this system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this process may not mount a file system")
    try:
        checkpoint = Checkpoint(disk / "checkpoint")
        checkpoint.write(snapshot(serial=10))
        for _ in range(3):
            with pytest.raises(
                CheckpointError, match=r"No space left on device.*snapshot 1 still stands.*Make room"
            ):
                checkpoint.write(snapshot({"op": memory(counts(50_000))}, serial=20))
            assert Checkpoint(disk / "checkpoint").latest(verify=True).serial == 10
        assert checkpoint.write(snapshot(serial=30)).number == 2
        assert len(all_files(disk)) == 5
    finally:
        subprocess.run(["umount", str(disk)], check=True, capture_output=True)


def test_a_folder_that_may_not_be_written(tmp_path):
    checkpoint = made(tmp_path)
    before = contents(tmp_path)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").write_text("a file")
    with pytest.raises(CheckpointError, match="moved or removed") as told:
        checkpoint.write(snapshot())
    assert "failed: Not a directory" in str(told.value.__cause__)
    assert set(contents(tmp_path / "commits")) == {
        name.split("/")[1] for name in before if name.startswith("commits")
    }


def test_a_folder_that_may_not_be_looked_into_is_not_taken_for_a_gone_one(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.write(snapshot(serial=10))

    def refused(self, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(CheckpointError, match="Permission denied"):
        checkpoint.read(1)


@pytest.mark.parametrize("gone", ["checkpoint", "checkpoint/commits", "checkpoint/state"])
@pytest.mark.parametrize("ask", ["write", "read", "latest"])
def test_a_folder_that_is_gone_is_told(tmp_path, gone, ask):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.write(snapshot({"op": memory(counts(10))}, serial=10))
    shutil.rmtree(tmp_path / gone)
    arguments = {"write": [snapshot(serial=20)], "read": [1], "latest": []}[ask]
    with pytest.raises(CheckpointError, match=r"was moved or removed while it is in use.*stays where it is"):
        getattr(checkpoint, ask)(*arguments)
