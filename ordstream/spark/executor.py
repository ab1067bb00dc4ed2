"""The function that runs in a Spark task: one ordered node over the rows of one partition.

The same function serves `DataFrame.mapInArrow` (record batches in and out) and `RDD.mapPartitions` (rows in,
tuples out). It is pickled on the driver and called in a Python worker, after the worker's fork; the node's
threads live and die inside the call. Only the calling thread touches Spark's streams.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from ordstream.errors import SourceError
from ordstream.ordercheck import OrderCheck
from ordstream.pipeline import Pipeline
from ordstream.spark.progress import Door, Reporter, TaskKey

ROWS_PER_BATCH = 4_096  # rows of an RDD that are put into one record batch
WATCH_SECONDS = 0.5  # between two looks at the connection to Spark
GRACE_SECONDS = 10.0  # for a cancelled node to end before its worker is ended

ESTABLISHED = "01"  # TCP states as /proc/net/tcp writes them


@dataclass(frozen=True)
class NodeFunction:
    """Run a pipeline in one ordered node over one partition, in order.

    Parameters
    ----------
    pipeline : Pipeline
        What to run; its functions must be picklable.
    source : pyarrow.Schema
        Columns of the pipeline's source; arriving columns are found by name and cast.
    output : pyarrow.Schema
        Columns that Spark expects, which matches them by position and never casts.
    order_by : tuple of str
        Columns in which arriving rows must ascend (NULL first); a row out of order is an error. They need not
        be columns of the source.
    workers : int, optional
        Threads of the node; default the task's processors (`spark.task.cpus`), or none besides the calling
        thread where that is 1.
    options : dict
        Further arguments of `Pipeline.stream`.
    door : Door, optional
        Where to report progress.
    """

    pipeline: Pipeline
    source: pa.Schema
    output: pa.Schema
    order_by: tuple[str, ...] = ()
    workers: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    door: Door | None = None

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the node's output: record batches for record batches, tuples for rows.

        Raises
        ------
        SourceError
            If rows arrive out of order, or lack a column, or can't be cast to the source's types.
        OperatorError
            If an operator fails.
        """
        items = iter(items)
        first = list(islice(items, 1))
        if first and not isinstance(first[0], pa.RecordBatch):
            for batch in self._run(_batches(chain(first, items), self._row_types())):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        else:
            yield from self._run(chain(first, items))

    def _row_types(self) -> dict[str, pa.DataType | None]:
        """Columns of an arriving row; the type of one that is only ordered by is inferred."""
        types: dict[str, pa.DataType | None] = {field.name: field.type for field in self.source}
        return types | {name: None for name in self.order_by if name not in types}

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        options = dict(self.options)
        if self.workers is not None:
            options["workers"] = self.workers
        elif context is not None:
            options["workers"] = context.cpus() if context.cpus() > 1 else 0
        with contextlib.ExitStack() as stack:
            # left in the opposite order: the reporter, the node, the watchdog
            watchdog = stack.enter_context(Watchdog(_worker_socket()))
            node = stack.enter_context(_open_node(self.pipeline, self._arrivals(batches), options))
            watchdog.guard(node.cancel)
            reporter = Reporter(self.door, _task_key(context), lambda: _processed(node))
            stack.callback(reporter.close)
            for batch in node:
                if batch.num_rows:
                    yield _align(batch, self.output)
            reporter.finish(json.loads(node.report.to_json()))

    def _arrivals(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check = OrderCheck(self.order_by)
        for batch in batches:
            try:
                row = check.first_violation(batch)
                source = _align(batch, self.source)
            except (KeyError, pa.ArrowException) as error:
                raise SourceError(f"arriving rows don't fit the pipeline's source: {error}") from error
            if row is not None:
                raise SourceError(
                    f"row {row + 1} of the partition comes before row {row} "
                    f"in the order {', '.join(self.order_by)}"
                )
            yield source


def _align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)


def _batches(rows: Iterator[Any], types: Mapping[str, pa.DataType | None]) -> Iterator[pa.RecordBatch]:
    """Rows (mappings, or sequences in the order of `types`) as record batches.

    Raises
    ------
    SourceError
        If a row has other columns or a value of another type.
    """
    names = list(types)
    while block := list(islice(rows, ROWS_PER_BATCH)):
        try:
            columns = zip(*(_values(row, names) for row in block), strict=True)
            arrays = [pa.array(c, type=types[n]) for n, c in zip(names, columns, strict=True)]
        except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise SourceError(f"arriving rows don't fit the pipeline's source: {error}") from error
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _values(row: Any, names: list[str]) -> list[Any]:
    """The named values of a mapping or of a pyspark Row with field names, else the sequence's own."""
    if isinstance(row, Mapping) or getattr(row, "__fields__", None):
        return [row[name] for name in names]
    if len(row) != len(names):
        raise ValueError(f"a row has {len(row)} values for {len(names)} columns ({', '.join(names)})")
    return list(row)


def _task_key(context: TaskContext | None) -> TaskKey:
    if context is None:
        return TaskKey(0, 0, 0)
    return TaskKey(context.stageId(), context.partitionId(), context.attemptNumber())


class Watchdog:
    """Cancels the node when Spark has closed the task's connection; ends the process if the node doesn't end.

    Spark's end of a cancelled task is not seen by a node that is busy: the end of the connection queues
    behind unread rows. So a thread looks at the peer's TCP state. Linux only; elsewhere, and outside a Spark
    worker, it does nothing.

    Parameters
    ----------
    connection : socket or None
        The worker's connection to Spark.
    """

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection
        self._cancel: Any = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ordstream-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        """Return the watchdog; it starts when it has something to guard."""
        return self

    def guard(self, cancel: Any) -> None:
        """Start to watch; `cancel` is called at most once, from the watching thread."""
        self._cancel = cancel
        if self._connection is not None and sys.platform == "linux":
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        assert self._connection is not None
        while not self._stopped.wait(WATCH_SECONDS):
            if not _is_closed(self._connection):
                continue
            self._cancel()
            if not self._stopped.wait(GRACE_SECONDS):
                os._exit(1)  # Spark starts a fresh worker for the next task
            return


def _worker_socket() -> socket.socket | None:
    """Find the connection of the Python worker this runs in: a local of pyspark.daemon.worker."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        found = frame.f_locals.get("sock") if frame.f_code.co_name == "worker" else None
        if isinstance(found, socket.socket):
            return found
        frame = frame.f_back
    return None


def _is_closed(connection: socket.socket) -> bool:
    """Tell whether the other side has closed; False where that can't be known."""
    try:
        if connection.family == socket.AF_UNIX:
            poll = select.poll()
            poll.register(connection, select.POLLRDHUP | select.POLLHUP)
            return bool(poll.poll(0))
        ours, theirs = connection.getsockname()[1], connection.getpeername()[1]
        for table in ("/proc/net/tcp6", "/proc/net/tcp"):
            for line in Path(table).read_text().splitlines()[1:]:
                local, remote, state = line.split()[1:4]
                if int(local.rpartition(":")[2], 16) == theirs and int(remote.rpartition(":")[2], 16) == ours:
                    return state != ESTABLISHED
    except OSError:
        return False
    return False


def _processed(node: Any) -> int:
    """Rows whose outputs, if any, have all left the node."""
    return int(node.progress()[2])


def _open_node(pipeline: Pipeline, batches: Iterator[pa.RecordBatch], options: dict[str, Any]) -> Any:
    """Start a node that takes its rows on the calling thread, as Spark's streams want it."""
    from ordstream import node  # the compiled core, which a driver need not load

    return node.stream(pipeline, batches, **options | {"feeder": "caller"})
