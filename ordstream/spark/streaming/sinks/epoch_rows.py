"""The rows of a committed epoch, read from its output files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.errors import CheckpointError
from ordstream.ground.long_rows import of_groups
from ordstream.ground.nested_cast import align
from ordstream.spark.streaming.sinks.sink import Epoch, OutputFile

ROWS = 1 << 14  # rows of a batch, at most


def batches(epoch: Epoch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of an epoch in order, in batches of exactly `schema`.

    Raises
    ------
    CheckpointError
        A file is missing or damaged, has another number of rows than its manifest says, or other columns.
    """
    for file in epoch.files:
        found = 0
        for batch in _of_file(file, schema):
            found += batch.num_rows
            yield batch
        if found != file.rows:
            raise CheckpointError(
                f"{file.path}: the file has {found} rows, the manifest of epoch {epoch.number} says "
                f"{file.rows}: it is not the file that was committed; bring it back from a copy"
            )


def _of_file(file: OutputFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
            most = of_groups(ROWS, parquet.metadata, range(parquet.num_row_groups))
            for batch in parquet.iter_batches(most, columns=schema.names):
                yield align(batch.select(schema.names), schema)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise CheckpointError(
            f"{file.path}: this file of committed output can't be read: {error}; bring it back from a copy"
        ) from error
