"""Rows of state in canonical order: by key group, inside a group by key, whatever order and batches they
came in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream._core.state.key_groups import order
from ordstream.snapshots.snapshot import StateRows

ROWS = 1 << 16  # rows that are gathered at a time
BYTES = 1 << 26  # bytes, about, that are gathered at a time
#: Bytes of state from which on strings and lists are gathered with 64-bit offsets.
WIDE = (1 << 31) - (1 << 16)

Groups = Iterator[tuple[int, pa.RecordBatch]]


def one_batch(rows: StateRows, wide: int = WIDE) -> pa.RecordBatch:
    """All rows of a state in one batch, in the order in which they came, its keys in their normal form.

    Raises
    ------
    ValueError
        A part has another schema.
    """
    table = pa.Table.from_batches(list(rows.batches()), schema=rows.schema)
    if table.nbytes >= wide:
        table = table.cast(pa.schema([field.with_type(_widened(field.type)) for field in rows.schema]))
    for index in range(rows.keys):
        field = table.schema.field(index)
        if pat.is_floating(field.type):
            table = table.set_column(index, field, _normal_floats(table.column(index)))
    columns = [
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
        for column in table.columns
    ]
    return pa.record_batch(columns, schema=table.schema)


def _normal_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """-0.0 as 0.0, and one NaN."""
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def _widened(type_: pa.DataType) -> pa.DataType:
    """The type with 64-bit offsets."""
    if pat.is_string(type_):
        return pa.large_string()
    if pat.is_binary(type_):
        return pa.large_binary()
    if pat.is_list(type_):
        return pa.large_list(type_.value_field.with_type(_widened(type_.value_type)))
    return type_


def in_groups(
    batch: pa.RecordBatch, keys: int, schema: pa.Schema, told_apart: int = -1, low: bool = False
) -> Groups:
    """The rows of a state by key group: (group, rows) of every group that has any, in order.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        From `one_batch`.
    keys : int
        Its first so many columns are the key.
    schema : pyarrow.Schema
        Of what is given.
    told_apart : int
        So many columns tell rows apart; -1: the key.
    low : bool
        Sort on a thread of lower priority.

    Raises
    ------
    ValueError
        A key is there twice; or a group has more than 2 GiB of one column's strings.
    """
    rows, ends = order(batch, keys, told_apart, low)
    most = max(1, min(ROWS, BYTES * batch.num_rows // max(1, batch.nbytes)))
    for first, last in _blocks([0, *ends.tolist()], most):
        start = int(ends[first - 1]) if first else 0
        block = _narrowed(batch.take(pa.array(rows[start : ends[last]])), schema)
        plain = is_plain(block) and all(kind.bit_width % 64 == 0 for kind in block.schema.types)
        at = 0
        for group in range(first, last + 1):
            count = int(ends[group]) - start - at
            if count:
                part = block.slice(at, count)
                yield group, part if plain else alone(part)
                at += count


def _blocks(ends: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Groups in a row, (first, last), that have `most` rows together at most, or are one group."""
    first = 0
    for group in range(1, len(ends) - 1):
        if ends[group + 1] - ends[first] > most:
            yield first, group - 1
            first = group
    yield first, len(ends) - 2


def is_plain(batch: pa.RecordBatch) -> bool:
    """Whether all columns are numbers and times of whole bytes, without nulls."""
    return all(
        bool(pat.is_primitive(column.type)) and not pat.is_boolean(column.type) and column.null_count == 0
        for column in batch.columns
    )


def alone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy that has nothing of the rows beside it: what is written of a slice depends on them, but for
    columns of words of eight bytes.
    """
    return pa.record_batch([pa.concat_arrays([column]) for column in batch.columns], schema=batch.schema)


def _narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch if batch.schema.equals(schema) else batch.cast(schema)
