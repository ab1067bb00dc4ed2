"""The state of one operator in one file (docs/checkpoint-format.md, "State files")."""

from __future__ import annotations

import base64
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ordstream._core.state.key_groups import GROUPS, KEY_HASH_VERSION
from ordstream.errors import CheckpointError, told
from ordstream.snapshots.canonical import one_batch
from ordstream.snapshots.files import Damaged, Files, checked_json, read_json
from ordstream.snapshots.messages import in_messages
from ordstream.snapshots.snapshot import Kind, StateRows

MAGIC = b"ordstat1"
_FOOTER = struct.Struct("<Q8s")  # bytes of the index, MAGIC

#: Bytes of key groups that are read at a time.
TOGETHER = 1 << 20

_Group = tuple[int, int, int, int, str]  # as in the index

#: What is told of damage: (file, place in it, what was seen) -> the error.
Tell = Callable[[Path, str, str], CheckpointError]


@dataclass
class Times:
    """Where the time of a snapshot went, in seconds."""

    sort: float = 0.0
    write: float = 0.0
    sync: float = 0.0


def write_state(
    files: Files, path: Path, operator: str, rows: StateRows, times: Times, low: bool = False
) -> dict[str, Any]:
    """Write a state to a new file and bring it to the disk. `low`: where others work for the stream, behind
    them (`messages.in_messages`).

    Returns
    -------
    dict
        What the manifest says of the file, but for its name.

    Raises
    ------
    OSError
        It can't be written.
    CheckpointError
        The rows are no state: a key twice, a batch of another schema.
    """
    started = time.perf_counter()
    if not 0 <= rows.keys <= len(rows.schema):
        raise CheckpointError(
            f"operator {operator!r}: {rows.keys} key columns of {len(rows.schema)} columns: a state says "
            "how many of its first columns are the key (MemoryRows(..., keys=))"
        )
    count = 0
    written = len(MAGIC)
    index: list[tuple[int, int, int, int, str]] = []
    with files.create(path) as file:
        files.write(file, MAGIC)
        try:
            batch = one_batch(rows)
            for group, held, message in in_messages(batch, rows.keys, rows.schema, rows.told_apart, low):
                if not index:
                    times.sort += time.perf_counter() - started
                index.append((group, held, written, len(message), f"{zlib.crc32(message):08x}"))
                files.write(file, message)
                written += len(message)
                count += held
        except (ValueError, TypeError) as error:  # pyarrow's are ValueErrors too
            raise CheckpointError(f"operator {operator!r}: its state can't be stored: {error}") from error
        end = checked_json(
            {
                "operator": operator,
                "identity": dict(rows.identity),
                "key_hash": KEY_HASH_VERSION,
                "keys": rows.keys,
                "told_apart": rows.told_apart,
                "rows": count,
                "schema": base64.b64encode(rows.schema.serialize()).decode("ascii"),
                "groups": index,
            }
        )
        files.write(file, end)
        files.write(file, _FOOTER.pack(len(end), MAGIC))
        written += len(end) + _FOOTER.size
        synced = time.perf_counter()
        files.sync(file)
        times.sync += time.perf_counter() - synced
    if not index:
        times.sort += synced - started
    return {"bytes": written, "rows": count, "index": len(end), "index_crc32": f"{zlib.crc32(end):08x}"}


@dataclass(frozen=True)
class FileRows:
    """`StateRows` that lie in a file. Rows are read when they are asked for, and checked then.

    They can be read while their snapshot is kept: a checkpoint that is written on keeps the last ones only.
    """

    path: Path
    identity: Mapping[str, str]
    schema: pa.Schema
    num_rows: int
    keys: int
    told_apart: int
    index: tuple[_Group, ...] = field(repr=False)
    tell: Tell = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: `tell` belongs to the checkpoint that was opened here."""
        rows = (self.identity, self.schema, self.num_rows, self.keys, self.told_apart)
        return FileRows, (self.path, *rows, self.index, _told)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """One."""
        return ((self.identity, self.schema),)

    def batches(self, groups: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, one batch per key group that has any, in ascending order; inside a group by key.

        Parameters
        ----------
        groups : iterable of int, optional
            Only these key groups, 0 to 1023. Nothing is read of others.

        Raises
        ------
        ValueError
            No such key group.
        CheckpointError
            The file is damaged or gone; it names the group.
        """
        asked = None if groups is None else set(groups)
        if asked is not None and not asked <= set(range(GROUPS)):
            raise ValueError(f"key groups are 0 to {GROUPS - 1}, not {sorted(asked)}")
        return self._read(asked)

    def _read(self, asked: set[int] | None) -> Iterator[pa.RecordBatch]:
        group = -1
        wanted = [one for one in self.index if asked is None or one[0] in asked]
        try:
            with self.path.open("rb", buffering=0) as file:
                for run in _runs(wanted):
                    group, _, first, *_ = run[0]
                    _, _, offset, size, _ = run[-1]
                    file.seek(first)
                    data = memoryview(_read_exactly(file, offset + size - first))
                    for group, rows, offset, size, crc in run:
                        part = data[offset - first : offset - first + size]
                        yield self._group(part, group, rows, size, crc)
        except OSError as error:
            place = f"key group {group}" if group >= 0 else "all key groups"
            raise self.tell(self.path, place, error.strerror or str(error)) from error

    def _group(self, data: memoryview, group: int, rows: int, size: int, crc: str) -> pa.RecordBatch:
        if len(data) != size:
            raise self.tell(self.path, f"key group {group}", f"it ends after {len(data)} of {size} bytes")
        if f"{zlib.crc32(data):08x}" != crc:
            raise self.tell(self.path, f"key group {group}", "its checksum does not match")
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
        if batch.num_rows != rows:
            raise self.tell(self.path, f"key group {group}", f"{batch.num_rows} rows, not {rows}")
        return batch


def _told(path: Path, place: str, seen: str) -> CheckpointError:
    return CheckpointError(f"{path}: {place}: damaged: {seen}")


def _runs(groups: Sequence[_Group]) -> Iterator[list[_Group]]:
    """Groups that lie one behind the other, `TOGETHER` bytes at most where there are several."""
    run: list[_Group] = []
    for one in groups:
        if run and (run[-1][2] + run[-1][3] != one[2] or one[2] + one[3] - run[0][2] > TOGETHER):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def open_state(path: Path, operator: str, said: Mapping[str, Any], tell: Tell) -> FileRows:
    """A state in a file: its index is read and checked, its rows are not.

    Parameters
    ----------
    said : mapping
        What the manifest says of it.

    Raises
    ------
    CheckpointError
        From `tell`: the file is damaged or gone.
    """
    try:
        return _opened(path, operator, said, tell)
    except Damaged as error:
        raise tell(path, "index of the key groups", str(error)) from error
    except OSError as error:
        raise tell(path, "all key groups", error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise tell(path, "index of the key groups", f"it is not as it must be ({told(error)})") from error


def _opened(path: Path, operator: str, said: Mapping[str, Any], tell: Tell) -> FileRows:
    size = path.stat().st_size
    if size != said["bytes"]:
        raise Damaged(f"it has {size} bytes, not {said['bytes']}")
    with path.open("rb", buffering=0) as file:
        magic = _read_exactly(file, len(MAGIC))
        file.seek(size - said["index"] - _FOOTER.size)
        end = _read_exactly(file, said["index"])
        footer = _read_exactly(file, _FOOTER.size)
    if magic != MAGIC or footer != _FOOTER.pack(said["index"], MAGIC):
        raise Damaged("it does not begin and end as a state file")
    if f"{zlib.crc32(end):08x}" != said["index_crc32"]:
        raise Damaged("its checksum does not match")
    content = read_json(end)
    if content["operator"] != operator:
        raise Damaged(f"it is the state of operator {content['operator']!r}, not of {operator!r}")
    if content["key_hash"] != KEY_HASH_VERSION:
        raise Damaged(f"its key groups are of key hash {content['key_hash']}, not {KEY_HASH_VERSION}")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content["schema"])))
    index = tuple((group, rows, at, length, crc) for group, rows, at, length, crc in content["groups"])
    keys, told_apart = content["keys"], content["told_apart"]
    return FileRows(path, content["identity"], schema, content["rows"], keys, told_apart, index, tell)


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    """So many bytes, or fewer where the file ends: the system may give a part only."""
    parts = []
    while size > 0 and (part := os.read(file.fileno(), size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
