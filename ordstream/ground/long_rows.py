"""How many rows are read at a time where they may be long."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow.parquet as pq

BYTES = 32 << 20  # of a batch, about


def rows_at_once(most: int, rows: int, size: int) -> int:
    """Rows of a batch, at most `most`: as many as are `BYTES` where `rows` rows are `size` bytes."""
    return max(1, min(most, BYTES * rows // max(size, 1)))


def of_groups(
    most: int, file: pq.FileMetaData, groups: range, columns: Collection[str] | None = None
) -> int:
    """The same for some columns (None: all) of row groups of a Parquet file."""
    wanted = None if columns is None else frozenset(columns)
    rows = sum(file.row_group(group).num_rows for group in groups)
    return rows_at_once(most, rows, sum(_bytes(file.row_group(group), wanted) for group in groups))


def _bytes(group: pq.RowGroupMetaData, columns: frozenset[str] | None) -> int:
    """Of a row group, as it is encoded."""
    if columns is None:
        return int(group.total_byte_size)
    size = 0
    for number in range(group.num_columns):
        chunk = group.column(number)
        path = chunk.path_in_schema  # of what lies in a struct or list its column's name comes first
        if path in columns or path.partition(".")[0] in columns:
            size += chunk.total_uncompressed_size
    return size
