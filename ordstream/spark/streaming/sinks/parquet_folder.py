"""ParquetFolder: committed files linked into a folder that any reader of Parquet understands."""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import secrets
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ordstream.errors import CheckpointError, PlanError, SinkError, shown
from ordstream.snapshots.files import Damaged, Files, checked_json, read_json
from ordstream.spark.streaming.epoch_log import mounted, name_of
from ordstream.spark.streaming.sinks.same_columns import columns_of, difference
from ordstream.spark.streaming.sinks.sink import Epoch, OutputFile, StreamInfo

MARKER = "_ordstream.json"
FORMAT = {"format": "ordstream output folder", "version": 1}
_NAME = re.compile(r"epoch-(\d{12})-(\d{5})-of-(\d{5})\.parquet")


class ParquetFolder:
    """A folder of Parquet files, one name per committed file, for readers that know nothing of ordstream.

    Every committed row is there once, whatever was killed when. Names sort as the rows do:
    ``epoch-000000000007-00000-of-00002.parquet``. The columns `_serial` and `_index` give the order to a
    reader that does not keep it. Files of one epoch appear one after another: who must see whole epochs only
    reads with `read_output`.

    A file is a hard link to the committed one, or a copy where the folder is on another file system. An
    epoch without rows has no file. The newest files tell how far the stream was delivered, so older ones may
    be taken away. What is taken away behind the newest one that is left comes again at the next start, and
    where none is left, the whole output.

    Parameters
    ----------
    path : str or path
        Of a folder on a file system of the driver's machine; made where it is not there. It must be empty,
        or hold the output of this stream: the file `_ordstream.json` in it says whose it is.

    Raises
    ------
    PlanError
        `path` is empty, or the address of something that is no folder of a file system.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = name_of(path)
        folder = None if name is None else mounted(name)
        if folder is None:
            raise PlanError(
                "ParquetFolder needs the path of a folder on the driver's machine, not "
                f"{shown(path)}: files are linked into it, which "
                "object stores can't; copy from there, or use read_output"
            )
        self.folder = folder
        self._files = Files()
        self._delivered: int | None = None
        self._behind: dict[int, list[Path]] = {}  # files of epochs that were not delivered as a whole

    def __repr__(self) -> str:
        return f"ParquetFolder({str(self.folder)!r})"

    def open(self, stream: StreamInfo) -> None:
        """Take the folder for this stream, or see that it is this stream's.

        Raises
        ------
        CheckpointError
            The folder holds something else, or can't be written to.
        PlanError
            It lies in the checkpoint, or its files have other columns.
        """
        checkpoint, folder = stream.checkpoint.resolve(), self.folder.resolve()
        if folder == checkpoint or checkpoint in folder.parents:
            raise PlanError(f"{self.folder}: the folder lies in the stream's checkpoint; name another one")
        try:
            self._files.folder(self.folder)
            self._take(stream)
            self._clear()
            # What a killed driver has linked is on the disk before anyone relies on it.
            self._files.sync_folder(self.folder)
            self._look()
        except OSError as error:
            raise CheckpointError(
                f"{error.filename or self.folder}: the output folder can't be opened: "
                f"{error.strerror or error}; name a folder that this process may write to"
            ) from error

    def delivered(self) -> int | None:
        """The newest epoch all of whose files are there; None: there is none, or it had no rows."""
        return self._delivered

    def deliver(self, epoch: Epoch) -> None:
        """Give the epoch's files their names in the folder; they are on the disk when this returns.

        Raises
        ------
        SinkError
            A file can't be linked or copied.
        CheckpointError
            Another file has the name: the stream was taken back to an earlier epoch and went on differently.
        """
        files = [file for file in epoch.files if file.rows]
        if len(files) > 99_999:
            raise SinkError(
                f"epoch {epoch.number} has {len(files)} files; the folder's names have room for 99999"
            )
        names = [_name(epoch.number, position, len(files)) for position in range(len(files))]
        try:
            for path in self._there(epoch.number):
                if path.name not in names and path.exists():
                    raise self._other(path, epoch.number)
            for file, name in zip(files, names, strict=True):
                self._publish(file, self.folder / name, epoch.number)
            if files:
                self._files.sync_folder(self.folder)
        except OSError as error:
            raise SinkError(
                f"{error.filename2 or error.filename or self.folder}: epoch {epoch.number} can't be put "
                f"into the folder: {error.strerror or error}. Its rows are committed in the checkpoint and "
                "come again at the next start"
            ) from error
        if files:
            self._delivered = epoch.number

    def back_to(self, epoch: int | None) -> None:
        """Take away the files of all epochs behind this one (None: of all). Called after `open`."""
        for path, number, _, _ in self._listed():
            if epoch is None or number > epoch:
                self._files.remove(path)
        self._files.sync_folder(self.folder)
        self._look()

    def close(self) -> None:
        """Nothing is held open."""

    # ------------------------------------------------------------------------------------------ whose it is

    def _take(self, stream: StreamInfo) -> None:
        marker = self.folder / MARKER
        columns = columns_of(stream.schema)
        if not marker.exists():
            strange = sorted(p.name for p in self.folder.iterdir() if not _hidden(p.name))
            if strange:
                raise CheckpointError(
                    f"{self.folder}: the folder is not empty ({strange[0]!r}"
                    f"{f' and {len(strange) - 1} more' if strange[1:] else ''}), and no {MARKER} says that "
                    "this stream wrote it; name an empty folder"
                )
            self._write_marker(marker, checked_json({**FORMAT, "query": stream.query, "columns": columns}))
        try:
            said = read_json(marker.read_bytes())
        except (Damaged, ValueError) as error:
            raise CheckpointError(
                f"{marker}: damaged: {error}. Name an empty folder: the whole output comes again"
            ) from error
        for key, value in FORMAT.items():
            if said.get(key) != value:
                raise CheckpointError(
                    f"{marker}: its {key} is {said.get(key)!r}, not {value!r}; name an empty folder"
                )
        if said["query"] != stream.query:
            raise CheckpointError(
                f"{self.folder}: the folder holds the output of another stream ({said['query']}, this one "
                f"is {stream.query}); name an empty folder, or go on with that stream's checkpoint"
            )
        if changed := difference(said["columns"], columns):
            raise PlanError(f"{self.folder}: its files have other columns: {changed}; name an empty folder")

    def _write_marker(self, marker: Path, content: bytes) -> None:
        half = self._half()
        with self._files.create(half) as file:
            self._files.write(file, content)
            self._files.sync(file)
        self._name_it(half, marker)
        self._files.sync_folder(self.folder)

    # ------------------------------------------------------------------------------------------ files

    def _publish(self, file: OutputFile, target: Path, epoch: int) -> None:
        if target.exists():
            if target.samefile(file.path) or filecmp.cmp(file.path, target, shallow=False):
                return
            raise self._other(target, epoch)
        try:
            self._files.link(file.path, target)
            return
        except FileExistsError:
            self._publish(file, target, epoch)  # another driver was faster: is it the same?
            return
        except FileNotFoundError as error:
            if file.path.exists():
                raise
            raise CheckpointError(
                f"{file.path}: this file of committed output is gone; bring it back from a copy"
            ) from error
        except OSError:
            pass  # another file system, or one without links
        half = self._half()
        try:
            with file.path.open("rb") as source, self._files.create(half) as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
                self._files.sync(copy)
            self._check_copy(file, half, epoch)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        self._name_it(half, target)

    def _check_copy(self, file: OutputFile, half: Path, epoch: int) -> None:
        """See that a copy is what was committed: a folder may be a network's, and files of older releases
        have no checksums that a reader would look at.
        """
        wanted = (file.bytes, file.crc32)
        if not file.crc32 or _size_and_crc(half) == wanted:
            return
        if _size_and_crc(file.path) != wanted:
            raise CheckpointError(
                f"{file.path}: a committed file is damaged: its length or checksum is not what was written; "
                "bring it back from a copy"
            )
        raise SinkError(
            f"{self.folder}: the copy of {file.path} is not what was copied, so it did not get its name: "
            f"look at the file system. Epoch {epoch} is committed in the checkpoint and comes again at the "
            "next start"
        )

    def _other(self, path: Path, epoch: int) -> CheckpointError:
        before = epoch - 1 if epoch else None
        return CheckpointError(
            f"{path}: this file is not of the epoch {epoch} that is committed. If the stream was taken back "
            f"to an earlier snapshot, take what came after it away: {self!r}.back_to({before})"
        )

    def _name_it(self, half: Path, target: Path) -> None:
        """Give a whole file its name. One that is there stays: it has the same content."""
        try:
            with contextlib.suppress(FileExistsError):
                self._files.link(half, target)
        except OSError:  # a file system without links; a rename replaces, and every attempt has equal bytes
            half.rename(target)
            return
        self._files.remove(half)

    def _half(self) -> Path:
        """A name that readers of folders do not look at."""
        return self.folder / f".ordstream-{os.getpid():x}-{secrets.token_hex(8)}.tmp"

    def _clear(self) -> None:
        """Take away what killed drivers have left half made."""
        for path in self.folder.glob(".ordstream-*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(path)

    def _listed(self) -> list[tuple[Path, int, int, int]]:
        """(path, epoch, position, files of the epoch), in the order of the rows."""
        found = []
        for path in self.folder.iterdir():
            if name := _NAME.fullmatch(path.name):
                epoch, position, total = map(int, name.groups())
                found.append((path, epoch, position, total))
        return sorted(found, key=lambda one: one[1:])

    def _there(self, epoch: int) -> Iterable[Path]:
        """Files of an epoch. Of one behind all that were delivered without a list of the folder, which takes
        longer with each epoch.
        """
        if self._delivered is None or epoch > self._delivered:
            return self._behind.get(epoch, ())
        return self.folder.glob(f"epoch-{epoch:012d}-*.parquet")

    def _look(self) -> None:
        """See which epoch is the newest one all of whose files are there, and what lies behind it."""
        there: dict[int, list[Path]] = defaultdict(list)
        self._delivered = None
        for path, number, _, total in self._listed():
            there[number].append(path)
            if len(there[number]) == total:
                self._delivered = number
        least = -1 if self._delivered is None else self._delivered
        self._behind = {number: paths for number, paths in there.items() if number > least}


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _size_and_crc(path: Path) -> tuple[int, str]:
    size = crc = 0
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            size, crc = size + len(data), zlib.crc32(data, crc)
    return size, f"{crc:08x}"


def _name(epoch: int, position: int, total: int) -> str:
    return f"epoch-{epoch:012d}-{position:05d}-of-{total:05d}.parquet"
