"""An epoch's output: one Parquet file, written beside the run by a thread of its own."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from ordstream.ground.nested_cast import align_output
from ordstream.ground.ordertags import OrderTag
from ordstream.spark.streaming.epoch_files import EpochFiles, TableFile
from ordstream.spark.streaming.epoch_manifest import OUTPUT, Said

WAITING = 2  # batches


class Output:
    """The file is made with its first row. Two batches at most wait while the run makes the next one, so
    memory stays bounded. Left by its context, nothing of it runs any more. One thread calls.

    Attributes
    ----------
    last : OrderTag or None
        Of the last row.
    """

    def __init__(self, files: EpochFiles, schema: pa.Schema) -> None:
        self._files, self._schema = files, schema
        self._table: TableFile | None = None
        self._beside = ThreadPoolExecutor(1, "ordstream-output")
        self._going_on: deque[Future[Any]] = deque()
        self.last: OrderTag | None = None

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait for what is being written: who removes the file comes next."""
        self._beside.shutdown()

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows with their tags, the last two columns.

        Raises
        ------
        OSError
            Rows in front could not be written.
        """
        if not batch.num_rows:
            return
        if self._table is None:
            self._table = self._files.table(OUTPUT, self._schema)
        self._wait(WAITING - 1)
        self._going_on.append(self._beside.submit(self._write, self._table, batch))
        serial, index = (batch.column(batch.num_columns - k)[-1].as_py() for k in (2, 1))
        self.last = OrderTag(serial, index)

    def _write(self, table: TableFile, batch: pa.RecordBatch) -> None:
        table.write(align_output(batch, self._schema))

    def _wait(self, left: int) -> Any:
        """Until no more than so many are left; what the last one has given."""
        found = None
        while len(self._going_on) > left:
            found = self._going_on.popleft().result()
        return found

    def end(self) -> None:
        """No row comes any more: the file goes to the disk. `said` waits for it."""
        if self._table is not None:
            self._going_on.append(self._beside.submit(self._table.finish))

    def said(self) -> list[Said]:
        """Of an output that has ended, for the manifest. Raises as `write`."""
        found = self._wait(0)
        return [] if found is None else [found]
