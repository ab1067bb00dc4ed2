"""What the tests of checkpoints share: snapshots of states of every type, and files that fail at a step."""

from __future__ import annotations

import datetime
import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordstream.errors import CheckpointError
from ordstream.ground.ordertags import OrderTag
from ordstream.snapshots.checkpoint import Checkpoint
from ordstream.snapshots.files import Files
from ordstream.snapshots.snapshot import MemoryRows, Snapshot

IDENTITY = {"operator": "count", "key": "k: int64", "parameters": "count by k, updates"}


def memory(batch: pa.RecordBatch, keys: int = 1, parts: int = 1, **identity: str) -> MemoryRows:
    """State rows of a batch, cut into so many parts."""
    step = max(1, -(-batch.num_rows // parts))
    cut = [batch.slice(low, step) for low in range(0, batch.num_rows, step)]
    return MemoryRows({**IDENTITY, **identity}, batch.schema, cut, keys)


def counts(keys: int, first: int = 0) -> pa.RecordBatch:
    """int64 keys and counts."""
    return pa.record_batch(
        [
            pa.array(range(first, first + keys), pa.int64()),
            pa.array([7 * k for k in range(keys)], pa.int64()),
        ],
        names=["k", "count"],
    )


def columns(rows: int) -> pa.RecordBatch:
    """A state with a key of two columns and columns of many types, with nulls."""
    some = range(rows)
    day = datetime.date(2020, 1, 1)

    def but(each: int, values: list[Any]) -> list[Any]:
        return [None if i % each == 3 else value for i, value in enumerate(values)]

    data = {
        "user": pa.array(but(50, [f"user {i % 97}" for i in some]), pa.string()),
        "item": pa.array([i // 3 - 5 for i in some], pa.int32()),
        "flag": pa.array(but(4, [i % 2 == 0 for i in some]), pa.bool_()),
        "real": pa.array(but(5, [i / 7 for i in some]), pa.float64()),
        "small": pa.array([i % 128 for i in some], pa.int8()),
        "text": pa.array(but(6, ["x" * (i % 30) for i in some]), pa.string()),
        "raw": pa.array([bytes([i % 256]) * (i % 5) for i in some], pa.binary()),
        "day": pa.array(but(7, [day + datetime.timedelta(i) for i in some]), pa.date32()),
        "time": pa.array([i * 10**6 for i in some], pa.timestamp("us", "UTC")),
        "list": pa.array(but(8, [list(range(i % 4)) for i in some]), pa.list_(pa.int64())),
        "texts": pa.array(
            but(9, [["a", None, "b" * (i % 3)][: i % 4] for i in some]), pa.list_(pa.string())
        ),
    }
    return pa.record_batch(list(data.values()), names=list(data))


def snapshot(states: dict[str, MemoryRows] | None = None, serial: int = 100, **fields: Any) -> Snapshot:
    """A snapshot behind a serial."""
    given = {"count": memory(counts(40))} if states is None else states
    return Snapshot(serial=serial, emitted_through=OrderTag(serial, 2), states=given, **fields)


def table(rows: Any, groups: Any = None) -> pa.Table:
    """The rows of a state."""
    return pa.Table.from_batches(rows.batches(groups) if groups is not None else rows.batches(), rows.schema)


def same_rows(a: pa.Table, b: pa.Table) -> bool:
    """Equal rows in any order; NaN is equal to NaN here."""
    return sorted(map(repr, a.to_pylist())) == sorted(map(repr, b.to_pylist()))


def all_files(folder: Path) -> list[Path]:
    """Of a checkpoint, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    """Name of each file below a folder -> its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in all_files(folder)}


class FailingFiles(Files):
    """Files that fail at one step.

    Parameters
    ----------
    at : int
        The step, from 1; 0: never.
    error : int
        The errno.
    for_good : bool
        All later steps fail too, removing included: a process that is gone, or a disk.
    """

    def __init__(self, at: int = 0, error: int = errno.ENOSPC, for_good: bool = False) -> None:
        self.at = at
        self.error = error
        self.for_good = for_good
        self.steps: list[str] = []
        self.fired: str | None = None

    def _step(self, name: str, path: Path | str) -> None:
        self.steps.append(f"{name} {Path(path).name}")
        if len(self.steps) == self.at or (self.for_good and self.fired):
            self.fired = self.fired or self.steps[-1]
            raise OSError(self.error, os.strerror(self.error))

    def folder(self, path):
        self._step("folder", path)
        super().folder(path)

    def create(self, path):
        self._step("create", path)
        return super().create(path)

    def write(self, file, data):
        self._step("write", file.name)
        super().write(file, data)

    def sync(self, file):
        self._step("sync", file.name)
        super().sync(file)

    def sync_folder(self, path):
        self._step("sync_folder", path)
        super().sync_folder(path)

    def link(self, source, target):
        self._step("link", target)
        super().link(source, target)

    def remove(self, path):
        self._step("remove", path)
        super().remove(path)


def writes(folder, serial, barrier, found):
    """Write a snapshot when all others do; here, so that a spawned process finds it."""
    checkpoint = Checkpoint(folder)
    barrier.wait()
    try:
        found.put((serial, checkpoint.write(snapshot(serial=serial)).number))
    except CheckpointError as error:
        found.put((serial, str(error)))
