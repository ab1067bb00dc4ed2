"""The rows of a state as the messages of its file, one per key group, in order.

A state of numbers and times without nulls is put into its messages in one go, without the GIL, and if that
is asked for on a thread of lower priority, so that a snapshot takes what the stream leaves of the cores. Any
other state goes through Arrow, group by group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.state.group_messages import MAX_COLUMNS, messages
from ordstream._core.state.key_groups import order
from ordstream.snapshots.canonical import alone, in_groups, is_plain

#: (key group, rows, bytes)
Message = tuple[int, int, Any]


def in_messages(
    batch: pa.RecordBatch, keys: int, schema: pa.Schema, told_apart: int = -1, low: bool = False
) -> Iterator[Message]:
    """The messages of a state file. Arguments and errors: those of `canonical.in_groups`."""
    fits = batch.num_columns <= MAX_COLUMNS and batch.schema.equals(schema)
    if batch.num_rows and fits and is_plain(batch):
        rows, ends = order(batch, keys, told_apart, low)
        found = _at_once(batch, rows, ends, low)
        if found is not None:
            yield from found
            return
    for group, part in in_groups(batch, keys, schema, told_apart, low):
        yield group, part.num_rows, part.serialize()


def _at_once(
    batch: pa.RecordBatch, rows: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], low: bool
) -> Iterator[Message] | None:
    """The messages of a plain batch; None: Arrow writes them in another way than is known here."""
    columns = []
    for column in batch.columns:
        width = column.type.bit_width // 8
        columns.append((column.buffers()[1].address + column.offset * width, width))
    counts = np.diff(ends, prepend=0)
    kinds, kind_of = np.unique(counts, return_inverse=True)
    bodies = sum((kinds * width + 7) // 8 * 8 for _, width in columns)
    heads = [_head(batch, int(count), int(body)) for count, body in zip(kinds, bodies, strict=True)]
    sizes = np.array([len(head) for head in heads], dtype=np.int64)
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(np.where(counts > 0, (sizes + bodies)[kind_of], 0), out=starts[1:])
    head_at = (np.cumsum(sizes) - sizes)[kind_of]
    # NumPy's memory: it asks for huge pages
    out = np.empty(int(starts[-1]), dtype=np.uint8)
    messages(columns, rows, ends, b"".join(heads), head_at, starts, out, low)
    whole = memoryview(cast(Any, out))
    groups = np.flatnonzero(counts)
    first = groups[0]
    known = batch.take(pa.array(rows[: ends[first]])).serialize()
    if known.to_pybytes() != whole[: starts[first + 1]].tobytes():
        return None
    return (
        (group, count, whole[start:end])
        for group, count, start, end in zip(
            groups.tolist(),
            counts[groups].tolist(),
            starts[groups].tolist(),
            starts[groups + 1].tolist(),
            strict=True,
        )
    )


def _head(batch: pa.RecordBatch, count: int, body: int) -> bytes:
    """What stands in front of the columns of a message of so many rows."""
    if not count:
        return b""
    message = alone(batch.slice(0, count)).serialize()
    return bytes(message)[: message.size - body]
