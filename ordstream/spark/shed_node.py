"""What shed operators of one node left behind, in place of its output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

ROWS_PER_SHED_BATCH = 65_536  # of the log or the side output of shed operators


class ShedNode(Iterator[pa.RecordBatch]):
    """A node whose output is dropped for what its shed operators left behind, which is there at its end.

    Parameters
    ----------
    stream : ordstream.node.Stream
    part : "shed_log" or the name of a shed operator
        With a name, the tuples it shed: its input columns, then _partition, _serial and _index.
    partition : int
    """

    def __init__(self, stream: Any, part: str, partition: int) -> None:
        self._stream = stream
        self._part = part
        self._partition = partition
        self._found: Iterator[pa.RecordBatch] | None = None

    def __next__(self) -> pa.RecordBatch:
        if self._found is None:
            for _ in self._stream:
                pass
            self._found = iter(self._shed().to_batches(max_chunksize=ROWS_PER_SHED_BATCH))
        return next(self._found)

    def _shed(self) -> pa.Table:
        outcome = self._stream.shed
        if self._part == "shed_log":
            return outcome.log
        rows = outcome.rows[self._part]
        where = pa.repeat(pa.scalar(self._partition, pa.int64()), rows.num_rows)
        return rows.add_column(rows.num_columns - 2, "_partition", where)

    def __enter__(self) -> ShedNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:  # cancel, close, progress, report
        return getattr(self._stream, name)
