"""Files that one attempt of one task writes for an epoch: names of their own, synced, with their checksum.
None is open behind the attempt, however it ends, and none is left of one that fails: who starts a failing
stream again and again must not fill the disk.

Nobody sees them before the manifest names them, and an attempt that was overtaken, or killed, leaves files
that no manifest names.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.errors import CheckpointError
from ordstream.ground.nested_cast import align, nullable_inside
from ordstream.ground.ordertags import TAG_NAMES
from ordstream.snapshots.files import Files
from ordstream.snapshots.snapshot import StateRows
from ordstream.snapshots.state_file import Times, write_state
from ordstream.spark.streaming.epoch_manifest import STATE, Said


def read_whole(path: Path, said: Said) -> bytes:
    """What lies beside the states. OSError, or ValueError: it is not what was written."""
    data = path.read_bytes()
    if len(data) != said["bytes"] or f"{zlib.crc32(data):08x}" != said["crc32"]:
        raise ValueError("its length or checksum is not what was written")
    return data


def run_in_names(run: str) -> str:
    """How a file's name says which run of the query has written it."""
    return f"-{run[:12]}-"


@dataclass
class EpochFiles:
    """The files of one attempt.

    Attributes
    ----------
    folder : str
        The stream's.
    number : int
        Of the epoch.
    node : str
        Which part of the work this is, for the name.
    run : str
        Id of the query's run, for the name: its driver removes the files of a job that failed.
    """

    folder: str
    number: int
    node: str
    files: Files = field(default_factory=Files)
    attempt: str = field(default_factory=lambda: f"{os.getpid():x}-{secrets.token_hex(8)}")
    run: str = field(default="", kw_only=True)
    seconds: float = 0.0  # that states and names took
    _touched: set[str] = field(default_factory=set)
    _made: list[Path] = field(default_factory=list)
    _tables: list[TableFile] = field(default_factory=list)

    def __enter__(self) -> EpochFiles:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close what is open. Of an attempt that failed, which has told nobody of its files, remove them.

        Raises
        ------
        CheckpointError
            A file can't be written.
        """
        for table in self._tables:
            table.give_up()
        if isinstance(error, Exception):  # not that its reader stops: it may have the result
            for path in self._made:
                with contextlib.suppress(OSError):
                    self.files.remove(path)
        # of connections: Spark has ended this task
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            raise CheckpointError(
                f"{error.filename or self.folder}: the files of epoch {self.number} can't be written: "
                f"{error.strerror or error}. It is not committed; make room, or mend what that says, and "
                "start the query again with the same checkpoint"
            ) from error

    def path(self, folder: str, what: str, suffix: str) -> Path:
        """A new file's."""
        self._touched.add(folder)
        name = f"{self.number:012d}-{what}{self.node}{run_in_names(self.run)}{self.attempt}{suffix}"
        self._made.append(Path(self.folder) / folder / name)
        return self._made[-1]

    def table(self, folder: str, schema: pa.Schema) -> TableFile:
        """A Parquet file, which begins to be written."""
        self._tables.append(TableFile(self, self.path(folder, "", ".parquet"), schema))
        return self._tables[-1]

    def state(self, number: int, operator: str, rows: StateRows) -> dict[str, Any]:
        """Write an operator's state, `number` in the pipeline; what the manifest says of it."""
        started = time.perf_counter()
        path = self.path(STATE, f"{number}-", ".arrows")
        said = {"file": path.name, **write_state(self.files, path, operator, rows, Times())}
        self.seconds += time.perf_counter() - started
        return said

    def whole(self, what: str, suffix: str, data: bytes) -> dict[str, Any]:
        """A file beside the states, on the disk; what the manifest says of it."""
        path = self.path(STATE, what, suffix)
        with self.files.create(path) as file:
            self.files.write(file, data)
            self.files.sync(file)
        self.sync_folders()
        return {"file": path.name, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}

    def sync_folders(self) -> None:
        """Bring the names of all files to the disk."""
        started = time.perf_counter()
        folders = [Path(self.folder) / folder for folder in sorted(self._touched)]
        if len(folders) == 1:
            self.files.sync_folder(folders[0])
        elif folders:  # the disk takes them together
            with ThreadPoolExecutor(len(folders)) as together:
                list(together.map(self.files.sync_folder, folders))
        self.seconds += time.perf_counter() - started


class TableFile:
    """A Parquet file of rows."""

    def __init__(self, files: EpochFiles, path: Path, schema: pa.Schema) -> None:
        self._files, self._path = files, path
        self._rows = 0
        # what Spark hands over has nulls under those of a struct, also in fields that have none
        kept = [field.with_type(nullable_inside(field.type)) for field in schema]
        self._schema = pa.schema(kept, schema.metadata)
        self._summed = _Summed(files.files, files.files.create(path))
        try:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._summed, "w"),
                self._schema,
                write_page_checksum=True,
                **_encodings(self._schema),
            )
        except BaseException:  # its first bytes found no room
            self._summed.file.close()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        self._rows += batch.num_rows
        self._writer.write_batch(align(batch, self._schema))

    def finish(self) -> dict[str, Any]:
        """Bring it to the disk; what the manifest says of it. Any thread."""
        self._writer.close()
        with self._summed.file:
            self._files.files.sync(self._summed.file)
        return {
            "file": self._path.name,
            "bytes": self._summed.bytes,
            "rows": self._rows,
            "crc32": f"{self._summed.crc:08x}",
        }

    def give_up(self) -> None:
        """Close a file that nobody finishes any more; nothing where it was finished."""
        self._summed.dropped = True  # the writer closes by writing, which the disk may refuse
        for one in (self._writer, self._summed.file):
            with contextlib.suppress(pa.ArrowException, OSError):  # what failed before is what is told
                one.close()


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Of tags the differences of neighbours: they ascend, and a dictionary of them is all of them."""
    tags = [(one.name, one.type) for one in schema][-len(TAG_NAMES) :]
    if tags != [(name, pa.int64()) for name in TAG_NAMES]:
        return {}
    others = [one for one in _leaves(schema) if one not in TAG_NAMES]
    return {"use_dictionary": others, "column_encoding": dict.fromkeys(TAG_NAMES, "DELTA_BINARY_PACKED")}


@lru_cache(64)
def _leaves(schema: pa.Schema) -> list[str]:
    """Columns of a Parquet file, which makes one of each field of a struct, and of the values of a list."""
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, schema).close()
    return [one.path for one in pq.ParquetFile(pa.BufferReader(empty.getvalue())).schema]


class _Summed:
    """What the Parquet writer takes for a file: counts and sums what goes through."""

    def __init__(self, files: Files, file: BinaryIO) -> None:
        self._files, self.file = files, file
        self.crc = self.bytes = 0
        self.closed = self.dropped = False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.dropped:
            return size
        self.crc = zlib.crc32(data, self.crc)
        self.bytes += size
        self._files.write(self.file, data)
        return size

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """When it is finished."""

    def close(self) -> None:
        """The file is closed when it is on the disk."""
        self.closed = True
