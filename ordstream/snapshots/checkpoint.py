"""Checkpoint: a folder that keeps the last snapshots of a run (docs/checkpoint-format.md)."""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ordstream._core.state.key_groups import GROUPS, KEY_HASH_VERSION
from ordstream.errors import CheckpointError, PlanError, shown, told
from ordstream.ground.choices import flag
from ordstream.ground.numbers import as_int, is_whole
from ordstream.snapshots.files import Damaged, Files, checked_json, read_json
from ordstream.snapshots.manifest import FORMAT, Manifest, Parent
from ordstream.snapshots.moved_folder import told_if_moved
from ordstream.snapshots.snapshot import Snapshot
from ordstream.snapshots.state_file import FileRows, Tell, Times, open_state, write_state

LEAST_KEPT = 2
STREAM = "STREAM.json"
#: The same in every folder of this format version.
STREAM_CONTENT = {
    "format": "ordstream checkpoint",
    "version": FORMAT,
    "key_hash": KEY_HASH_VERSION,
    "groups": GROUPS,
}
_MANIFEST = re.compile(r"(\d{12})\.json")
_UNDER_WAY = re.compile(r"\.(\d{12})-.*\.tmp")
_STATE = re.compile(r"(\d{12})-.*\.arrows")
_SLUG = 32  # characters of an operator's name in a file's


@dataclass(frozen=True)
class Written:
    """What writing one snapshot took: its number, rows and bytes of state, and seconds of wall time."""

    number: int
    rows: int
    bytes: int
    sort_seconds: float
    write_seconds: float
    sync_seconds: float


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot in a checkpoint.

    Attributes
    ----------
    number : int
    serial : int or None
        The last tuple that it knows of; None where its manifest can't be read.
    time : str
        When it was written: ISO 8601, UTC.
    rows, bytes : int
        Of its states.
    damage : str or None
        What is wrong with it; None: nothing was found.
    """

    number: int
    serial: int | None
    time: str
    rows: int
    bytes: int
    damage: str | None = None

    @property
    def intact(self) -> bool:
        """Nothing wrong was found."""
        return self.damage is None


class Checkpoint:
    """A folder of snapshots. One run writes to it at a time; others may read.

    A snapshot is there whole or not at all: its manifest gets its name, in one step, when everything that it
    names is on the disk. That step never replaces: of two runs that write to one folder, one is refused.
    Methods may be called from any thread.

    Parameters
    ----------
    folder : str or path
        Made where it is not there. An empty one is taken.
    keep : int
        Snapshots that are kept, 2 at least: the last one, and those that it was made from.

    Raises
    ------
    CheckpointError
        A folder of something else, of another format version, or that can't be made.
    PlanError
        `keep` is not an int of 2 or more.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = LEAST_KEPT) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise CheckpointError(
                f"a checkpoint is a folder, such as od.Checkpoint('state'); got {folder!r}"
            )
        if not os.fspath(folder) or "\0" in os.fspath(folder):  # "" would be the working directory
            raise CheckpointError(f"a checkpoint needs the name of a folder, got {os.fspath(folder)!r}")
        self._open(Path(folder), keep, Files())

    @classmethod
    def _with_files(cls, folder: Path, files: Files, keep: int = LEAST_KEPT) -> Checkpoint:
        """For tests: with steps of writing that may fail."""
        made = cls.__new__(cls)
        made._open(folder, keep, files)
        return made

    def _open(self, folder: Path, keep: int, files: Files) -> None:
        keep = as_int(keep)
        if type(keep) is not int or keep < LEAST_KEPT:
            raise PlanError(
                f"keep must be an int of {LEAST_KEPT} or more, not {keep!r}: where the last snapshot is "
                "damaged, the one before it must be there"
            )
        self.folder = folder
        self.keep = keep
        self._files = files
        self._states = folder / "state"
        self._commits = folder / "commits"
        self._lock = threading.Lock()
        try:
            self._prepare()
            begun = max((number for _, number in _numbered(self._states, _STATE)), default=0)
            self._last = self._newest()  # the last snapshot that this object knows of
        except OSError as error:
            advice = "name a folder that this process may write to"
            if error.errno in (errno.EMFILE, errno.ENFILE):
                advice = "allow more (ulimit -n), or keep fewer files open"
            what = f"the checkpoint can't be opened: {error.strerror or error}"
            raise CheckpointError(f"{error.filename or folder}: {what}; {advice}") from error
        if not self._last and begun > 1:  # a second one begins behind the first one's manifest
            raise CheckpointError(
                f"{self._commits}: there is no manifest, and {self._states} has files of snapshot {begun}: "
                "the manifests are lost, and a run would begin anew and give all its output again. Bring "
                "them back from a copy; to begin anew, name a new folder"
            )
        self._parent: int | None = self._last or None

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.folder)!r}, keep={self.keep})"

    # ------------------------------------------------------------------------------------------ writing

    def write(self, snapshot: Snapshot, *, low: bool = False) -> Written:
        """Write a snapshot; it is on the disk when this returns. Then older ones are collected.

        Parameters
        ----------
        snapshot : Snapshot
        low : bool
            Put rows in order on a thread of lower priority: beside a stream that wants all cores.

        Raises
        ------
        PlanError
            An argument is of another kind.
        CheckpointError
            It can't be written (the snapshot before stands, and nothing of this one is seen; a later call
            begins anew), or another run writes to this folder.
        """
        given: Any = snapshot
        if not isinstance(given, Snapshot):
            what = "write takes a snapshot, such as stream.request_snapshot().result()"
            raise PlanError(f"{what}, got {shown(given)}")
        low = flag(low, "write: low")
        with self._lock, told_if_moved(self.folder, self._states, self._commits):
            return self._write(snapshot, low)

    def _write(self, snapshot: Snapshot, low: bool) -> Written:
        number = self._last + 1
        made = _Attempt(self, number, f"{os.getpid():x}-{secrets.token_hex(8)}")
        try:
            written = made.write(snapshot, low)
        except BaseException as error:
            gone = made.take_back()
            refusal = self._unwritten(made, error, gone) if isinstance(error, OSError) else None
            if not gone:
                self._last = self._parent = number
            if refusal is not None:
                raise refusal from error
            raise
        self._last = self._parent = number
        self._collect(number)
        return written

    def _unwritten(self, made: _Attempt, error: OSError, gone: bool) -> CheckpointError:
        which = f"Snapshot {made.number}"
        what = "was not made" if gone else "is whole, but it is not sure that the disk has it"
        before = f"snapshot {self._parent} still stands" if self._parent else "there is none before it"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Make room, or name a folder on another disk"
        if error.errno == errno.EFBIG:
            advice = "Allow larger files (ulimit -f), or name a folder whose file system has them"
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "Allow more open files (ulimit -n), or keep fewer of them"
        elif not full:
            advice = "Name a folder that stays where it is, and that this process may write to"
        return CheckpointError(
            f"{made.path}: {made.step} failed: {error.strerror or error}. {which} {what}; {before}. "
            f"{advice}; the next snapshot is tried all the same"
        )

    def _manifest_path(self, number: int) -> Path:
        return self._commits / f"{number:012d}.json"

    # ------------------------------------------------------------------------------------------ reading

    def latest(self, *, verify: bool = False) -> Snapshot | None:
        """The newest snapshot; None: there is none yet. `verify`: see `read`."""
        verify = flag(verify, "latest: verify")
        with told_if_moved(self.folder, self._states, self._commits):
            newest = self._listed()
        return self.read(newest[-1], verify=verify) if newest else None

    def read(self, number: int, *, verify: bool = False) -> Snapshot:
        """A snapshot. The next one that is written here says that it was made from this one.

        Parameters
        ----------
        number : int
        verify : bool
            Read and check all rows of state now; else those of a key group are when they are asked for.

        Raises
        ------
        PlanError
            `number` is no whole number, or `verify` not True or False.
        CheckpointError
            There is none of this number, it is of another format version, or it is damaged: the text names
            the file and the key group, and the snapshot before it.
        """
        if not is_whole(number):
            raise PlanError(
                f"read takes the number of a snapshot, an int, got {shown(number)}; snapshots() lists them"
            )
        number = int(number)
        verify = flag(verify, "read: verify")
        with self._lock, told_if_moved(self.folder, self._states, self._commits):
            snapshot = self._read(number, verify)
            self._last = max(self._last, self._newest())
            self._parent = number
            return snapshot

    def snapshots(self, *, verify: bool = False) -> list[SnapshotInfo]:
        """All snapshots that are there, oldest first, damaged ones too.

        Parameters
        ----------
        verify : bool
            Read and check all rows of state; else manifests, and the indexes of the state files.
        """
        verify = flag(verify, "snapshots: verify")
        with told_if_moved(self.folder, self._states, self._commits):
            return [self._info(number, verify) for number in self._listed()]

    def _info(self, number: int, verify: bool) -> SnapshotInfo:
        manifest = None
        damage = None
        try:
            manifest = self._manifest(number, _short)
            self._opened(manifest, verify, _short)
        except CheckpointError as error:
            damage = str(error)
        if manifest is None:
            return SnapshotInfo(number, None, "", 0, 0, damage)
        return SnapshotInfo(
            number, manifest.snapshot.serial, manifest.time, manifest.num_rows, manifest.num_bytes, damage
        )

    def _read(self, number: int, verify: bool) -> Snapshot:
        tell = self._teller(number)
        manifest = self._manifest(number, tell)
        return replace(manifest.snapshot, states=self._opened(manifest, verify, tell))

    def _manifest(self, number: int, tell: Tell) -> Manifest:
        path = self._manifest_path(number)
        try:
            return Manifest.from_bytes(path.read_bytes(), number)
        except Damaged as error:
            raise tell(path, "manifest", str(error)) from error
        except FileNotFoundError as error:
            if path.is_symlink():  # listed, so "there is none of this number" would contradict the list
                raise tell(path, "manifest", "it is a link to what is not there") from error
            there = ", ".join(map(str, self._listed())) or "none"
            raise CheckpointError(
                f"{path}: there is no snapshot {number} in this checkpoint; there are: {there}"
            ) from error
        except OSError as error:
            raise tell(path, "manifest", error.strerror or str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise tell(path, "manifest", f"it is not as a manifest must be ({told(error)})") from error
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def _opened(self, manifest: Manifest, verify: bool, tell: Tell) -> dict[str, FileRows]:
        states = {
            name: open_state(self._states / said["file"], name, said, tell)
            for name, said in manifest.states.items()
        }
        if verify:
            for rows in states.values():
                for _ in rows.batches():
                    pass
        return states

    def _teller(self, number: int) -> Tell:
        def tell(path: Path, place: str, seen: str) -> CheckpointError:
            before = self._intact_before(number)
            advice = (
                f"the snapshot before it is intact: Checkpoint({str(self.folder)!r}).read({before})"
                if before
                else "there is no intact snapshot before it"
            )
            return CheckpointError(
                f"{path}: {place}: damaged: {seen}. Snapshot {number} can't be used; {advice}"
            )

        return tell

    def _intact_before(self, number: int) -> int:
        """The newest snapshot before this one in which all is as it was written; 0: none."""
        for other in reversed(self._listed()):
            if other < number and self._info(other, verify=True).intact:
                return other
        return 0

    def _listed(self) -> list[int]:
        """Numbers of all manifests, ascending."""
        try:
            return self._numbers()
        except OSError as error:
            raise CheckpointError(f"{self._commits}: can't be read: {error.strerror or error}") from error

    def _numbers(self) -> list[int]:
        return sorted(number for _, number in _numbered(self._commits, _MANIFEST))

    def _newest(self) -> int:
        numbers = self._numbers()
        return numbers[-1] if numbers else 0

    # ------------------------------------------------------------------------------------------ the folder

    def _prepare(self) -> None:
        """Make the folder, or see that it is a checkpoint of this format version."""
        path = self.folder / STREAM
        if not path.exists():
            self._files.folder(self.folder)
            others = [name for name in _names(self.folder) if not name.startswith(f".{STREAM}-")]
            if not path.exists():  # else another process has just made it
                self._check_empty(others)
                self._begin(path)
        self._check_stream(path)
        self._files.folder(self._states)
        self._files.folder(self._commits)

    def _check_empty(self, others: list[str]) -> None:
        if self._commits.is_dir() and self._numbers():
            raise CheckpointError(
                f"{self.folder / STREAM}: is missing. It is the same in every checkpoint of one format "
                "version: put one there from another checkpoint"
            )
        if set(others) - {self._states.name, self._commits.name, STREAM}:
            raise CheckpointError(
                f"{self.folder}: is no checkpoint: it holds {min(others)!r}; name a new folder, or an empty "
                "one"
            )

    def _begin(self, path: Path) -> None:
        beside = self.folder / f".{STREAM}-{os.getpid():x}-{secrets.token_hex(8)}"
        try:
            with self._files.create(beside) as file:
                self._files.write(file, checked_json(STREAM_CONTENT))
                self._files.sync(file)
            with contextlib.suppress(FileExistsError):  # another process did the same
                self._files.link(beside, path)
            self._files.sync_folder(self.folder)
        finally:
            with contextlib.suppress(OSError):
                self._files.remove(beside)

    def _check_stream(self, path: Path) -> None:
        try:
            content = read_json(path.read_bytes())
        except Damaged as error:
            raise CheckpointError(
                f"{path}: damaged: {error}. It is the same in every checkpoint of one format version: put "
                "one there from another checkpoint; or name another folder"
            ) from error
        for name in STREAM_CONTENT:
            if content.get(name) != STREAM_CONTENT[name]:
                raise CheckpointError(
                    f"{path}: {name} is {content.get(name)!r}; this version of ordstream reads "
                    f"{STREAM_CONTENT[name]!r}: go on with the version that wrote it"
                )

    # ------------------------------------------------------------------------------------------ collecting

    def _collect(self, newest: int) -> None:
        """Remove what no kept snapshot names.

        A file is only removed where its number is that of a snapshot that was published already, or smaller:
        whoever still writes under such a number can't publish it, so nothing that will ever be named is
        lost. What can't be removed now is removed after a later snapshot.
        """
        try:
            kept = {manifest.number: manifest for manifest in self._kept(newest)}
            named = {name for manifest in kept.values() for name in manifest.file_names}
            gone = [
                self._commits / name
                for name, number in _numbered(self._commits, _MANIFEST, _UNDER_WAY)
                if number <= newest and (name.startswith(".") or number not in kept)
            ]
            for path in gone:
                self._files.remove(path)
            if gone:
                self._files.sync_folder(self._commits)  # no manifest comes back without its files
            for name, number in _numbered(self._states, _STATE):
                if number <= newest and name not in named:
                    self._files.remove(self._states / name)
        except OSError:
            pass

    def _kept(self, newest: int) -> Iterator[Manifest]:
        """The newest snapshot and those that it was made from, as many as are kept. Where one of these is
        damaged or gone, the one before it counts.
        """
        numbers = self._numbers()
        number: int | None = newest
        left = self.keep
        while number is not None and left:
            try:
                manifest = self._manifest(number, _short)
                self._opened(manifest, False, _short)
                yield manifest
                left -= 1
                follows = manifest.parent.number if manifest.parent else number - 1
            except CheckpointError:
                follows = number - 1
            number = max((other for other in numbers if other <= follows), default=None)


class _Attempt:
    """One attempt to write one snapshot, with the step and the file that it is at."""

    def __init__(self, checkpoint: Checkpoint, number: int, name: str) -> None:
        self.number = number
        self.path = checkpoint.folder
        self.step = "writing"
        self._checkpoint = checkpoint
        self._name = name
        self._made: list[Path] = []  # to take back, the last one first

    def write(self, snapshot: Snapshot, low: bool) -> Written:
        checkpoint, files = self._checkpoint, self._checkpoint._files
        times = Times()
        started = time.perf_counter()
        self._at(checkpoint._commits, "reading")
        self._check_alone(checkpoint._newest() < self.number)
        parent = self._parent_of()
        states = {}
        for name, rows in snapshot.states.items():
            path = checkpoint._states / f"{self.number:012d}-{_file_name(name)}-{self._name}.arrows"
            self._made.append(self._at(path, "writing"))
            states[name] = {"file": path.name, **write_state(files, path, name, rows, times, low)}
        manifest = Manifest(
            self.number,
            datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            parent,
            snapshot,
            states,
        )
        before = time.perf_counter()
        self._at(checkpoint._states, "syncing")
        files.sync_folder(checkpoint._states)
        self._publish(files, manifest)
        ended = time.perf_counter()
        times.sync += ended - before
        times.write = before - started - times.sort - (times.sync - (ended - before))
        return Written(
            self.number, manifest.num_rows, manifest.num_bytes, times.sort, times.write, times.sync
        )

    def _publish(self, files: Files, manifest: Manifest) -> None:
        checkpoint = self._checkpoint
        commits = checkpoint._commits
        beside = self._at(commits / f".{self.number:012d}-{self._name}.tmp", "writing")
        content = manifest.to_bytes()
        self._made.append(beside)
        with files.create(beside) as file:
            files.write(file, content)
            self.step = "syncing"
            files.sync(file)
        target = self._at(checkpoint._manifest_path(self.number), "linking")
        try:
            files.link(beside, target)
        except (FileExistsError, FileNotFoundError):  # not found: collected, since others are further
            if not _one_file(beside, target):  # over a network a link that was made may be told of so
                self._check_alone(checkpoint._newest() < self.number)
                raise
        self._made.append(target)
        # A manifest that was collected since leaves its name free: then there are later ones.
        self._check_alone(checkpoint._newest() == self.number)
        self._at(commits, "syncing")
        files.sync_folder(commits)
        self._made.clear()
        with contextlib.suppress(OSError):  # collected later
            files.remove(beside)

    def take_back(self) -> bool:
        """Remove what was made, the manifest first; what can't be removed is collected later. False: the
        manifest stays, and so does all that it names.
        """
        for path in reversed(self._made):
            try:
                self._checkpoint._files.remove(path)
            except OSError:
                if path.name == self._checkpoint._manifest_path(self.number).name:
                    return False
        return True

    def _at(self, path: Path, step: str) -> Path:
        self.path, self.step = path, step
        return path

    def _check_alone(self, alone: bool) -> None:
        if not alone:
            raise CheckpointError(
                f"{self._checkpoint.folder}: another run has written snapshot {self.number} to this "
                "checkpoint, so this run can't go on with it, and has published nothing now. Stop one of "
                "the two, or give it a folder of its own"
            )

    def _parent_of(self) -> Parent | None:
        number = self._checkpoint._parent
        if number is None:
            return None
        try:
            content = self._checkpoint._manifest_path(number).read_bytes()
        except FileNotFoundError:
            return None
        return Parent(number, hashlib.sha256(content).hexdigest())


def _short(path: Path, place: str, seen: str) -> CheckpointError:
    return CheckpointError(f"{path}: {place}: {seen}")


def _numbered(folder: Path, *patterns: re.Pattern[str]) -> list[tuple[str, int]]:
    """Names in a folder that have one of these forms, and the number in each."""
    found = []
    for name in _names(folder):
        match = next(filter(None, (pattern.fullmatch(name) for pattern in patterns)), None)
        if match:
            found.append((name, int(match[1])))
    return found


def _one_file(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _file_name(operator: str) -> str:
    """What stands for an operator's name in a file's, on every system: different for different names, though
    a file system may take capitals and small letters for the same.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", operator.lower())[:_SLUG].strip("-")
    digest = hashlib.sha256(operator.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug}-{digest}" if slug else digest
