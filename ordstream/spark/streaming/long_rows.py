"""How many rows are read at a time where they may be long."""

from __future__ import annotations

import pyarrow.parquet as pq

BYTES = 32 << 20  # of a batch, about


def rows_at_once(most: int, rows: int, size: int) -> int:
    """Rows of a batch, at most `most`: as many as are `BYTES` where `rows` rows are `size` bytes."""
    return max(1, min(most, BYTES * rows // max(size, 1)))


def of_groups(most: int, file: pq.FileMetaData, groups: range) -> int:
    """The same for row groups of a Parquet file."""
    found = [file.row_group(group) for group in groups]
    return rows_at_once(
        most, sum(group.num_rows for group in found), sum(group.total_byte_size for group in found)
    )
