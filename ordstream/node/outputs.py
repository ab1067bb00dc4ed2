"""Several outputs of one run: the wide stream of `ordstream.plan.outputs`, taken apart by name.

One batch of the wide stream becomes a batch for each output that has rows in it. So there is one queue, one
bound on what waits in it and one commit point, and no output waits for the reader of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from ordstream._core.flow.reader import PartsReader
from ordstream.ground.ordertags import OrderTag
from ordstream.ground.slices import chosen_rows
from ordstream.node.no_table import NoArray, NoTable
from ordstream.node.node import Stream
from ordstream.node.report import Report
from ordstream.node.snapshotting import SnapshotFuture
from ordstream.plan.outputs import Output
from ordstream.snapshots.snapshot import Snapshot


class OutputStream(NoArray, NoTable, PartsReader):
    """A run in progress with several outputs: an iterator of (name, record batch), and a context manager.

    The batches of an output come in its order. A batch of another output says nothing about how far this
    one is: `tags=True` gives each row its place among all outputs.

    Parameters
    ----------
    stream : Stream
        Of the wide rows.
    outputs : sequence of Output

    Attributes
    ----------
    schemas : mapping of str to pyarrow.Schema
        Of the batches of each output.
    merge_log : MergeLog or None
        Of several sources: what was chosen.
    """

    _stream: Stream
    _through: OrderTag

    def __init__(self, stream: Stream, outputs: Sequence[Output]) -> None:
        self._stream, self._outputs = stream, outputs
        more = list(stream.schema)[len(stream._plan.output) :]  # the tags
        self.schemas: Mapping[str, pa.Schema] = MappingProxyType(
            {one.name: pa.schema([*one.schema, *more]) for one in outputs}
        )
        self._through = stream.emitted_through
        self.merge_log = stream.merge_log

    def _rows_are(self) -> str:
        return "it gives pairs: `for name, batch in stream`; all rows of each output are what run(...) gives"

    def __reduce__(self) -> Any:
        return self._stream.__reduce__()  # refuses

    def _apart(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each output that has some."""
        tags = range(len(self._stream._plan.output), batch.num_columns)
        numbers = batch.column(0)
        for number, output in enumerate(self._outputs):
            chosen = pc.equal(numbers, number)
            if not chosen.true_count:
                continue
            columns = [chosen_rows(batch.column(index), chosen) for index in (*output.columns, *tags)]
            yield output.name, pa.RecordBatch.from_arrays(columns, schema=self.schemas[output.name])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """As `Stream.close`."""
        self._stream.close()

    def cancel(self) -> None:
        """As `Stream.cancel`."""
        self._stream.cancel()

    def progress(self) -> tuple[int, int | None, int]:
        """As `Stream.progress`."""
        return self._stream.progress()

    def request_snapshot(self) -> SnapshotFuture:
        """As `Stream.request_snapshot`."""
        return self._stream.request_snapshot()

    @property
    def emitted_through(self) -> OrderTag:
        """The commit point of what the reader has, of all outputs. Any thread."""
        return self._through

    @property
    def moves(self) -> Sequence[Any]:
        """As `Stream.moves`."""
        return self._stream.moves

    def cancel_move(self) -> bool:
        """As `Stream.cancel_move`."""
        return self._stream.cancel_move()

    @property
    def report(self) -> Report:
        """As `Stream.report`; its commit point is what the reader has."""
        found, through = self._stream.report, self.emitted_through
        return found if found.emitted_through == through else replace(found, emitted_through=through)

    @property
    def shed(self) -> Any:
        """As `Stream.shed`; None over processes, where nothing sheds."""
        return getattr(self._stream, "shed", None)

    @property
    def snapshot(self) -> Snapshot | None:
        """As `Stream.snapshot`."""
        return self._stream.snapshot


class Outputs(NoArray, NoTable, Mapping[str, pa.Table]):
    """All that a run with several outputs gave: a mapping of each output's name to its table.

    Attributes
    ----------
    report : Report
    shed : ShedOutcome
    snapshot : Snapshot or None
    merge_log : MergeLog or None
    """

    _others_call: ClassVar[Mapping[str, str]] = {}  # it has ended

    def __init__(self, stream: OutputStream) -> None:
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in stream.schemas}
        for name, batch in stream:
            batches[name].append(batch)
        self._tables = {
            name: pa.Table.from_batches(batches[name], schema=schema)
            for name, schema in stream.schemas.items()
        }
        self.report, self.shed, self.snapshot = stream.report, stream.shed, stream.snapshot
        self.merge_log = stream.merge_log

    def _rows_are(self) -> str:
        return f"each output has a table of its own, here {', '.join(f'result[{name!r}]' for name in self)}"

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._tables:
            raise KeyError(f"there is no output {name!r}; there are {', '.join(map(repr, self._tables))}")
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {table.num_rows:,} rows" for name, table in self._tables.items())
        return f"<ordstream.Outputs {rows}; from {self.report.tuples:,} tuples>"
