"""Rows on their way from the nodes of one fragment to those of the next: where each goes, and sorted runs in
files, one per sender and receiver.

A node's output is in the order of its tags, so what it sends to one receiver is a sorted run, and a receiver
merges the runs of all senders, some batches of each at a time. Files, not pipes: a receiver that needs the
next row of one sender before it can go on can't block another one, whatever the keys are, and memory is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.ground.ordertags import merge_sorted, tags_of
from ordstream.node.source import conform, parts

if TYPE_CHECKING:
    from ordstream.balance.grouping import Grouping

NODE = "__ordstream_node"

# The core spreads rows over buckets, and over its maps' slots, by the hash's bits as they are: nodes use
# others.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


# Bytes of the batches that a receiver merges at a time, of all runs together; a row that takes more is a
# batch of its own.
MERGED_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Route:
    """Where the rows of a schema go: a pure function of their key, and where keys are split also of the rows
    before.

    Attributes
    ----------
    schema : pyarrow.Schema
    key : tuple of int
        Key columns; (): all rows to node 0.
    nodes : int
    grouping : Grouping, optional
        What chooses the node in place of the hash (`ordstream.balance.grouping`). One that counts what it
        sent must be new.
    """

    schema: pa.Schema
    key: tuple[int, ...]
    nodes: int
    grouping: Grouping | None = None

    def keys(self, batch: pa.RecordBatch) -> Any:
        """The keys of the rows as groupings take them."""
        columns = tuple(batch.column(index) for index in self.key)
        return columns[0] if len(columns) == 1 else columns

    def __call__(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """The node of each row, from 0."""
        from ordstream._core.ground import arrow, chunk
        from ordstream._core.ground.imported_batch import BatchFormats
        from ordstream._core.state import routing

        if not self.key or self.nodes == 1:
            return np.zeros(batch.num_rows, dtype=np.int32)
        if self.grouping is not None:
            return self.grouping.route(self.keys(batch))
        columns = pa.schema([self.schema.field(index) for index in self.key])
        core = arrow.core_schema(columns)
        rows = conform(batch.select(list(self.key)), core)
        hashes = routing.key_hashes(rows, range(len(self.key)), chunk.layout_of(columns), BatchFormats(core))
        return ((hashes * _SPREAD >> np.uint64(32)) % np.uint64(self.nodes)).astype(np.int32)


class RunWriter:
    """The sorted runs of one sender, one file per receiver. A context manager.

    Parameters
    ----------
    paths : sequence of Path
        One per receiver; a receiver that gets nothing has no file.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the runs that their NODE column, the last one, names; without one, all to the
        first.
        """
        self.rows += batch.num_rows
        batch = _without_views(batch)
        last = batch.num_columns - 1
        # then it is the tag: the user's columns, whatever their names, come before
        if batch.schema.names[last] != NODE:
            self._write(0, batch)
            return
        nodes = batch.column(last).to_numpy()
        rows = batch.select(list(range(last)))
        for receiver in np.unique(nodes):
            mask = nodes == receiver
            self._write(int(receiver), rows if mask.all() else rows.filter(pa.array(mask)))

    def _write(self, receiver: int, rows: pa.RecordBatch) -> None:
        if receiver not in self._writers:
            self._writers[receiver] = pa.ipc.new_stream(self._paths[receiver], rows.schema)
        # A receiver holds a batch of every run, and puts the rows of several into one, whose strings have
        # 32-bit offsets.
        for part in parts(rows, rows.num_rows, MERGED_BYTES // len(self._paths)):
            self._writers[receiver].write_batch(part)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with string views as strings: Arrow neither filters views nor takes some of them."""
    if pa.string_view() not in batch.schema.types:
        return batch
    return batch.cast(
        pa.schema([f.with_type(pa.string()) if f.type == pa.string_view() else f for f in batch.schema])
    )


def merged(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted runs, by ascending tag, the last column. Holds about one batch of each run.

    Parameters
    ----------
    paths : sequence of Path
        Files of `RunWriter`; one that does not exist is an empty run.
    """
    runs = [_batches(path) for path in paths if path.exists()]
    heads: list[pa.RecordBatch | None] = [next(run, None) for run in runs]
    while True:
        live = [k for k, head in enumerate(heads) if head is not None]
        if not live:
            return
        if len(live) == 1:
            (k,) = live
            head = heads[k]
            while head is not None:
                yield head
                head = next(runs[k], None)
            return
        # Every row up to the smallest of the heads' last tags is here.
        bound = min(tags_of(heads[k])[-1].as_py() for k in live)
        ready = []
        for k in live:
            head = heads[k]
            assert head is not None
            n = int(pc.sum(pc.less_equal(tags_of(head), pa.scalar(bound, pa.binary()))).as_py() or 0)
            if n:
                ready.append(head.slice(0, n))
                heads[k] = head.slice(n) if n < head.num_rows else next(runs[k], None)
        yield ready[0] if len(ready) == 1 else merge_sorted(ready)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            if batch.num_rows:
                yield batch
