"""The commits of a stream: a chain of manifests, one per epoch, in a folder (docs/checkpoint-format.md).

An epoch is committed when its manifest has its name. That is one step, which never replaces: of two drivers
on one checkpoint one loses it, and stops.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import secrets
import uuid
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordstream._core.state.key_groups import GROUPS, KEY_HASH_VERSION
from ordstream.errors import CheckpointError, PlanError, shown, told
from ordstream.ground.nested_cast import nullable_columns
from ordstream.ground.ordertags import TAG_NAMES
from ordstream.snapshots.files import Damaged, Files, checked_json, read_json
from ordstream.spark.streaming import spark_log
from ordstream.spark.streaming.epoch_files import run_in_names
from ordstream.spark.streaming.epoch_manifest import FOLDERS, LATE, OUTPUT, STATE, WAITING, EpochManifest
from ordstream.spark.streaming.spark_log import SPARK
from ordstream.spark.streaming.whole_epochs import COMMITS, KEPT, manifest_path, way_back

QUERY = "QUERY.json"
VERSION = 1
#: Epochs between two looks at files that are kept for ever: each takes a list of all of them.
LOOKED_AT = 1_000

_MANIFEST = re.compile(r"(\d{12})\.json")
_UNDER_WAY = re.compile(r"\.(\d{12})-.*\.tmp")
_FILE_URI = re.compile(r"\Afile:(?://)?(?=/(?!/))")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # s3://bucket/a, dbfs:/a; file://a/b is one on host a
_SLASHES = re.compile(r"\A//+")  # two in front are a host's name to Spark
_FILE = re.compile(r"(\d{12})-.*")
_AGAIN = "Bring it back from a copy, or begin anew with another checkpoint"  # where QUERY.json is lost
_LOG_OF_SINKS = "_spark_metadata"  # Spark's reader leaves out whatever lies below a folder of this name


def folder_of(checkpoint: str | os.PathLike[str]) -> Path:
    """The absolute path of a checkpoint, which may be written as Spark writes folders (``file:/a``).

    Raises
    ------
    PlanError
        It is the address of something that is no folder of a mounted file system, or no name.
    """
    name = name_of(checkpoint)
    if name is None:
        raise PlanError(f"checkpoint={shown(checkpoint)}: it needs the name of a folder")
    path = mounted(name)
    if path is None:
        raise PlanError(
            f"checkpoint={os.fspath(checkpoint)!r}: it must be a folder of a file system that driver and "
            "executors have mounted (a local disk for local Spark, NFS for a cluster); object stores are "
            "not supported yet"
        )
    return path


def check_there(folder: Path) -> None:
    """Raise CheckpointError where a checkpoint's folder is not there: its name may be misspelt."""
    with contextlib.suppress(OSError):  # it is told where it is read
        if not folder.is_dir():
            is_file = folder.exists()
            what = "is a file, not the folder of a checkpoint" if is_file else "there is no such folder"
            raise CheckpointError(
                f"{folder}: {what}: name the folder that od.spark.stream was given as checkpoint="
            )


def name_of(folder: Any) -> str | None:
    """A path as text; None: it can't be the name of a folder ("" would be the working directory)."""
    name = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    return name if isinstance(name, str) and name and "\0" not in name else None


def mounted(folder: str | os.PathLike[str]) -> Path | None:
    """The absolute path of a folder; None: it is the address of something that no path leads to."""
    path = _FILE_URI.sub("", os.fspath(folder))
    return None if _ADDRESS.match(path) else Path(_SLASHES.sub("/", path)).absolute()


class EpochLog:
    """The folder of a stream.

    Parameters
    ----------
    folder : path
    files : Files, optional
        The steps of writing.

    Attributes
    ----------
    query : str
        Drawn when the folder was made.
    order_by : tuple of str
    schema : pyarrow.Schema
        Of the output files: with the tags' columns.
    time_zone : str or None
        Of the session in which the stream began; None: an older release did not write it down.

    Raises
    ------
    CheckpointError
        It is no stream's, or of another format version, or damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], files: Files | None = None) -> None:
        self.folder = folder_of(folder)
        self._files = files or Files()
        self._commits = self.folder / COMMITS
        said = self._said()
        self.query: str = said["query"]
        self.order_by: tuple[str, ...] = tuple(said["order_by"])
        self.time_zone: str | None = said.get("time_zone")
        written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said["output"])))
        self.schema = nullable_columns(written, TAG_NAMES)  # an older release wrote what has no nulls

    @classmethod
    def begun(
        cls,
        folder: str | os.PathLike[str],
        order_by: tuple[str, ...],
        schema: pa.Schema,
        files: Files | None = None,
        time_zone: str | None = None,
    ) -> EpochLog:
        """The folder of a stream, which is made where it is not there; an empty one is taken.

        Raises
        ------
        CheckpointError
            It holds something else, or another stream: ordered by other columns, with another output.
        PlanError
            Spark would not read what lies there.
        """
        path, files = folder_of(folder), files or Files()
        if _LOG_OF_SINKS in path.parts:
            raise PlanError(
                f"checkpoint={os.fspath(folder)!r}: Spark reads no file below a folder that is called "
                f"{_LOG_OF_SINKS}, so od.spark.read_output would be empty: name another folder"
            )
        try:
            files.folder(path)
            if not (path / QUERY).exists():
                _begin(path, order_by, schema, files, time_zone)
            _check_commits(path)
            for name in (*FOLDERS, COMMITS):
                files.folder(path / name)
        except OSError as error:
            raise CheckpointError(
                f"{path}: the checkpoint can't be opened: {error.strerror or error}; name a folder that "
                "this process, and the executors, may write to"
            ) from error
        made = cls(path, files)
        if made.order_by != order_by:
            raise CheckpointError(
                f"{path}: this stream is ordered by {', '.join(made.order_by) or 'its source'}, not by "
                f"{', '.join(order_by) or 'its source'}: its serials were given so. Begin anew with another "
                "checkpoint"
            )
        if not made.schema.equals(nullable_columns(schema, TAG_NAMES)):
            raise CheckpointError(
                f"{path}: this stream's output has the columns {_columns(made.schema)}, and the pipeline's "
                f"has {_columns(schema)}: begin anew with another checkpoint"
            )
        return made

    def _said(self) -> dict[str, Any]:
        path = self.folder / QUERY
        check_there(self.folder)
        try:
            said = read_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointError(
                f"{self.folder}: is no checkpoint of a stream: it has no {QUERY}"
            ) from error
        except (OSError, ValueError) as error:
            seen = f"damaged: {error}" if isinstance(error, Damaged) else f"can't be read: {told(error)}"
            raise CheckpointError(f"{path}: {seen}. {_AGAIN}") from error
        wanted = {
            "format": "ordstream stream",
            "version": VERSION,
            "key_hash": KEY_HASH_VERSION,
            "groups": GROUPS,
        }
        for name, value in wanted.items():
            if said.get(name) != value:
                raise CheckpointError(
                    f"{path}: {name} is {said.get(name)!r}; this version of ordstream reads {value!r}: go "
                    "on with the version that wrote it"
                )
        return said

    # ------------------------------------------------------------------------------------------ reading

    def numbers(self) -> list[int]:
        """Numbers of all committed epochs, ascending."""
        try:
            return sorted(number for _, number in _numbered(self._commits, _MANIFEST))
        except OSError as error:
            raise CheckpointError(f"{self._commits}: can't be read: {error.strerror or error}") from error

    def path(self, number: int) -> Path:
        """The manifest's."""
        return manifest_path(self.folder, number)

    def last(self) -> EpochManifest | None:
        """The newest committed epoch; None: none is."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def unbroken(self) -> EpochManifest | None:
        """As `last`, where a stream goes on from there: of a chain that has no gap.

        Raises
        ------
        CheckpointError
            One is missing; or the last two do not belong together.
        """
        numbers = self.numbers()
        for number, found in enumerate(numbers):
            if found != number:
                raise self._gap(number)
        if not numbers:
            return None
        last = self.read(numbers[-1])
        if last.number:
            self._check_follows(last, self.read(last.number - 1))
        return last

    def all(self, after: int = -1) -> Iterator[EpochManifest]:
        """Committed epochs behind one, in order.

        Raises
        ------
        CheckpointError
            One is damaged or missing: the chain has a gap; or one was made from another one than stands in
            front of it.
        """
        before: EpochManifest | None = None
        for number, found in enumerate((one for one in self.numbers() if one > after), after + 1):
            if found != number:
                raise self._gap(number)
            manifest = self.read(number)
            if before is not None:
                self._check_follows(manifest, before)
            yield manifest
            before = manifest

    def _gap(self, number: int) -> CheckpointError:
        path = self.path(number)
        return CheckpointError(
            f"{path}: is missing, and there are later epochs: the output would have a gap. Put the file "
            f"back from a copy. {way_back(self.folder, number, path)}"
        )

    def _check_follows(self, manifest: EpochManifest, before: EpochManifest) -> None:
        if manifest.parent is not None and list(manifest.parent) != [before.number, before.sha256]:
            raise CheckpointError(
                f"{self.path(manifest.number)}: was not made from the epoch {before.number} that is there: "
                "one of the two files is that of another stream, or of a time before the stream was taken "
                f"back. Put the right one back, or go back: od.spark.rewind({str(self.folder)!r}, "
                f"to={before.number})"
            )

    def check_there(self) -> None:
        """Look whether an epoch is missing at the end.

        Raises
        ------
        CheckpointError
            Spark has committed more than there are epochs, which are committed before.
        """
        done = spark_log.newest(self.folder, spark_log.COMMITS)  # before ours: the stream may run
        newest = max(self.numbers(), default=-1)
        if done > newest:
            raise CheckpointError(
                f"{self.path(newest + 1)}: is missing: Spark has committed micro-batch {done}, and the last "
                f"epoch that is there is {newest if newest >= 0 else 'none'}. Put the files of {COMMITS!r} "
                "back from a copy; or, where a rewind was interrupted or these epochs are to be computed "
                f"anew, take Spark's log back: od.spark.rewind({str(self.folder)!r}, to={newest})"
            )

    def read(self, number: int) -> EpochManifest:
        """A committed epoch.

        Raises
        ------
        CheckpointError
            It is damaged or gone.
        """
        path = self.path(number)
        try:
            return EpochManifest.from_bytes(path.read_bytes(), number)
        except Damaged as error:
            raise self.damaged(path, "manifest", str(error), number) from error
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        except OSError as error:
            raise CheckpointError(f"{path}: can't be read: {error.strerror or error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise self.damaged(
                path, "manifest", f"it is not as it must be ({told(error)})", number
            ) from error

    def damaged(self, path: Path, place: str, seen: str, number: int) -> CheckpointError:
        """The error for a file of an epoch."""
        return CheckpointError(
            f"{path}: {place}: damaged: {seen}. Epoch {number} can't be used. "
            + way_back(self.folder, number, path)
        )

    # ------------------------------------------------------------------------------------------ writing

    def publish(self, manifest: EpochManifest) -> None:
        """Commit an epoch, whose files are on the disk. It is on the disk when this returns.

        Raises
        ------
        CheckpointError
            Another driver has committed it, or the epoch from which it was made is no longer there: this
            one must stop. Or it can't be written.
        """
        self._check_parent(manifest)
        number = manifest.number
        beside = self._commits / f".{number:012d}-{os.getpid():x}-{secrets.token_hex(8)}.tmp"
        target = self.path(number)
        linked = False
        try:
            with self._files.create(beside) as file:
                self._files.write(file, manifest.to_bytes())
                self._files.sync(file)
            try:
                self._files.link(beside, target)
            except FileExistsError as error:
                if not _one_file(beside, target):
                    raise self.lost(number) from error
            linked = True
            self._files.sync_folder(self._commits)
        except OSError as error:
            how = "was not committed" if not linked else "is committed, if the disk has it"
            raise CheckpointError(
                f"{target}: can't be written: {error.strerror or error}. Epoch {number} {how}; make room, "
                "or mend what that says, and start the query again with the same checkpoint"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                self._files.remove(beside)

    def _check_parent(self, manifest: EpochManifest) -> None:
        """An epoch is committed behind the one from which it was made, and behind no other: the stream may
        have been taken back since that was read.
        """
        if manifest.parent is None:
            return
        number, sha256 = manifest.parent
        path, gone = self.path(number), False
        try:
            gone = hashlib.sha256(path.read_bytes()).hexdigest() != sha256
            what = "is not the one from which this query goes on"
        except FileNotFoundError:
            gone, what = True, "is gone since this query read it"
        except OSError as error:
            raise CheckpointError(
                f"{path}: can't be read: {error.strerror or error}. Epoch {manifest.number} was not "
                "committed; mend what that says, and start the query again with the same checkpoint"
            ) from error
        if gone:
            newest = max((one for one in self.numbers() if one < manifest.number), default=-1)
            raise CheckpointError(
                f"{path}: {what}: somebody has taken the stream back while it ran (rewind), or has removed "
                f"or replaced the file. Epoch {manifest.number} was not committed. Put the file back; or, "
                "to go on behind what is there, take Spark's log back too, with which this query has gone "
                f"on: od.spark.rewind({str(self.folder)!r}, to={newest}). Then start the query again"
            )

    def or_lost(self, error: BaseException, known: int) -> BaseException:
        """The same; or that another driver has committed epochs behind `known`, the last one of this driver:
        it removes files that this one still needs.
        """
        if isinstance(error, CheckpointError):
            with contextlib.suppress(CheckpointError):
                newest = max(self.numbers(), default=-1)
                if newest > known:
                    return self.lost(newest)
        return error

    def lost(self, number: int) -> CheckpointError:
        """The error of a driver that another one has overtaken."""
        return CheckpointError(
            f"{self.folder}: another driver has committed epoch {number} of this stream, so this one stops, "
            "and has published nothing of it. Two queries ran on one checkpoint: give one of them a "
            "checkpoint of its own"
        )

    def collect(self, newest: int, outputs: bool = False) -> None:
        """Remove what no kept epoch names: state and waiting rows of older epochs, and what attempts left
        that did not win. A file is removed only where its number is not above the newest epoch's: who still
        writes under such a number can't publish it any more. What can't be removed now is later. It takes as
        long at the millionth epoch as at the tenth.

        Parameters
        ----------
        newest : int
            The newest committed epoch.
        outputs : bool
            Look also where files are kept for ever, at those of the last epochs (twice `LOOKED_AT`), to find
            left ones: once per run. Each `LOOKED_AT` epochs that is done in any case.
        """
        with contextlib.suppress(OSError, CheckpointError):
            kept = [self.read(number) for number in range(max(0, newest - KEPT + 1), newest + 1)]
            named = {one for manifest in kept for one in manifest.names()}
            for folder in (STATE, WAITING):
                self._remove_others(folder, newest, named)
            if not outputs and newest % LOOKED_AT:
                return
            for path, number in _numbered(self._commits, _UNDER_WAY):
                if number <= newest:
                    self._files.remove(path)
            first = max(0, newest - 2 * LOOKED_AT + 1)
            ever = {one for manifest in self.all(first - 1) for one in manifest.names()}
            for folder in (OUTPUT, LATE):
                self._remove_others(folder, newest, ever, first)

    def _remove_others(
        self, folder: str, newest: int, named: Container[tuple[str, str]], first: int = 0
    ) -> None:
        """Remove a folder's files of these epochs, but for those that are named."""
        for path, number in _numbered(self.folder / folder, _FILE):
            if first <= number <= newest and (folder, path.name) not in named:
                self._files.remove(path)

    def discard(self, number: int, run: str) -> None:
        """Remove what a run of the query has written for an epoch whose job failed: the files of tasks that
        had succeeded. What a task writes that has not ended yet stays, as what can't be removed does, until
        an epoch is committed.
        """
        with contextlib.suppress(OSError):
            for folder in FOLDERS:
                for path, of in _numbered(self.folder / folder, _FILE):
                    if of == number and run_in_names(run) in path.name:
                        self._files.remove(path)

    def remove(self, number: int) -> None:
        """Take a commit back: for `rewind`."""
        self._files.remove(self.path(number))
        self._files.sync_folder(self._commits)


def _begin(
    folder: Path, order_by: tuple[str, ...], schema: pa.Schema, files: Files, time_zone: str | None
) -> None:
    beside = f".{QUERY}-"
    others = [path.name for path in folder.iterdir() if not path.name.startswith(beside)]
    if QUERY not in others and not {COMMITS, SPARK}.isdisjoint(others):
        raise CheckpointError(f"{folder / QUERY}: is missing, and the rest of a stream is there. {_AGAIN}")
    if set(others) - {QUERY}:
        raise CheckpointError(
            f"{folder}: is no checkpoint of a stream: it holds {min(others)!r}; name a new folder, or an "
            "empty one"
        )
    content: Mapping[str, Any] = {
        "format": "ordstream stream",
        "version": VERSION,
        "key_hash": KEY_HASH_VERSION,
        "groups": GROUPS,
        "query": uuid.uuid4().hex,
        "order_by": order_by,
        "output": base64.b64encode(schema.serialize()).decode("ascii"),
        "time_zone": time_zone,
    }
    path = folder / f"{beside}{os.getpid():x}-{secrets.token_hex(8)}"
    try:
        with files.create(path) as file:
            files.write(file, checked_json(content))
            files.sync(file)
        with contextlib.suppress(FileExistsError):  # another driver did the same
            files.link(path, folder / QUERY)
        files.sync_folder(folder)
    finally:
        with contextlib.suppress(OSError):
            files.remove(path)


def _check_commits(folder: Path) -> None:
    """Raise CheckpointError where the manifests' folder is gone from a stream that had some: an empty one in
    its place would be a stream that has just begun.
    """
    path = folder / COMMITS
    if not path.exists() and spark_log.newest(folder, spark_log.COMMITS) >= 0:
        raise CheckpointError(
            f"{path}: the folder of the manifests is missing, and Spark has committed micro-batches of this "
            f"stream. {_AGAIN}"
        )


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[Path, int]]:
    """Files whose names have this form, and the number in each."""
    found = ((path, pattern.fullmatch(path.name)) for path in folder.iterdir())
    return [(path, int(match[1])) for path, match in found if match]


def _one_file(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return False


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
