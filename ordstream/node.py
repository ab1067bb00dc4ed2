"""One shared-memory machine: run a pipeline on its cores, in order.

`run` collects all output, `stream` yields it as it is ready; both are a `Stream` over one core run
(`ordstream._core.run.Run`). Workers are daemon `threading.Thread`s, started when the first output is asked for (so after
any fork) and joined before the stream ends, at exit, on Ctrl-C and when the stream is dropped: a native thread that takes the
GIL costs 7 us each time and aborts the interpreter at exit. The caller's thread feeds and reads; a source that may block (a plain
iterator) gets a feeding thread of its own, unless `feeder="caller"`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream import plan, source
from ordstream._core import arrow as core_arrow
from ordstream._core import chunk as core_chunk
from ordstream._core import run as core
from ordstream._core.keyed_state import KeySpecOwner
from ordstream.cpus import allowed_cpus
from ordstream.errors import Cancelled, OperatorError, OrdstreamError, PlanError, SourceError
from ordstream.feeder import Feeder
from ordstream.kernels import build_kernel
from ordstream.report import Report, make_report
from ordstream.settings import Settings, make_settings

# Longest wait of the reading thread: bounds how late it sees Ctrl-C.
READ_WAIT_S = 0.05
WORKER_STACK_BYTES = 2 << 20
# How long close() waits for another thread that is reading.
CLOSE_WAIT_S = 10.0

# Built-in kernels fail by code (ordstream/_core/chunk.pxd, FailureCode): the exception that Python would raise.
CAUSES: dict[int, type[Exception]] = {2: ZeroDivisionError, 1: OverflowError, 3: OverflowError, 4: ValueError, 8: TypeError}

_open_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


class Result:
    """All output of a run.

    Attributes
    ----------
    batches : list of pyarrow.RecordBatch
        In order.
    table : pyarrow.Table
        The same as one table of the pipeline's schema (with `tags=True` two more columns: _serial, _index).
    report : Report
    """

    def __init__(self, batches: list[pa.RecordBatch], schema: pa.Schema, report: Report) -> None:
        self.batches = batches
        self.report = report
        self._schema = schema

    @property
    def table(self) -> pa.Table:
        """All output as one table."""
        return pa.Table.from_batches(self.batches, schema=self._schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow PyCapsule interface: Polars, DuckDB and pandas read a result as it is."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ordstream.Result {self.report.rows_out:,} rows from {self.report.tuples:,} tuples>"


def run(pipeline: Any, data: Any, **options: Any) -> Result:
    """Run a pipeline and return all output.

    Parameters
    ----------
    pipeline : Pipeline
    data : Arrow data or iterable of record batches
        See `ordstream.source`.
    workers : int, optional
        Worker threads; 0: everything on the caller's thread; default: the CPUs that this process may use.
    scheduler : "ct", "lp", "et" or "qst"
        Ordered paper, section 6 ("random", seeded, for tests).
    partitioning : "hybrid", "partitioned" or "shared"
        Section 4.
    reorder : "nonblocking" or "lock"
        Section 3.
    buckets : int, optional
        p, the buckets of every partitioned operator that does not name its own; default: from the number of workers.
    chunk_rows : int, optional
        Tuples per chunk; 1 is the paper's tuple-at-a-time system; default: sized while running.
    punctuate : Every, optional
        Time punctuations: `od.every("ts", 60)`.
    max_bytes, max_chunks : int, optional
        Cap on what is in flight (a slow sink slows the source down).
    slice_us, window_us, capacity : float, optional
        Time slice s, CT's window w, QST's capacity C (tuples).
    marker_every : int, optional
        Tuples between latency markers. `marker_percentiles`: (20, 80) keeps the paper's range of markers.
    sample_every : int, optional
        Time one of so many parts of every stateful operator row by row (report: sampled_cost_ns).
    snapshot_every : int, optional
        A snapshot marker passes after so many tuples.
    tags : bool
        Add the order tag of each output: columns _serial and _index.
    arrivals : array of int64, optional
        Open loop: intended send time of each tuple, ns after the start; tuples are not taken before.
    progress : callable, optional
        Called about every 100 ms with (tuples issued, serial emitted through).
    debug : bool
        Cut chunks at random sizes (by `seed`), so that a batch function that is not row-wise shows; check that every chunk came back.

    Raises
    ------
    PlanError
        For an option out of range.
    OperatorError, SourceError
        With the user's exception as cause.
    """
    with stream(pipeline, data, partial=False, **options) as out:
        batches = list(out)
        return Result(batches, out.schema, out.report)


def stream(pipeline: Any, data: Any, **options: Any) -> Stream:
    """Run a pipeline and yield output batches as they are ready; options as for `run`.

    The source stops while the caller does not read (cap on what is in flight).
    """
    return Stream(pipeline, data, make_settings(options))


class Stream(Iterator[pa.RecordBatch]):
    """A run in progress: an iterator of record batches, and a context manager.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the batches.
    report : Report
        Complete when the stream is exhausted or closed.
    """

    def __init__(self, pipeline: Any, data: Any, settings: Settings) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._stages = pipeline.stages()
        self.workers = allowed_cpus() if settings.workers is None else settings.workers
        self.schema = pipeline.schema
        if settings.tags:
            self.schema = self.schema.append(pa.field("_serial", pa.int64())).append(pa.field("_index", pa.int64()))
        self._source_schema = core_arrow.core_schema(pipeline.source_schema)
        batches = source.batches(data, self._source_schema)
        self._live = source.is_live(data) and settings.feeder != "caller" and self.workers > 0
        self._operators: list[Any] = []
        self._core = self._make_core()
        self._threads: list[threading.Thread] = []
        self._feeder = Feeder(self._core, batches, self._source_schema.names, settings.arrivals)
        self._started = 0.0
        self._seconds = 0.0
        self._pid = os.getpid()
        self._exhausted = False
        self._closed = False
        self._report: Report | None = None
        self._failure: BaseException | None = None
        self._tag_serial = -1
        self._tag_index = 0
        self._told = 0.0
        self._emitted_through = 0
        self._rows_taken = 0
        self._reading = threading.RLock()
        self._all_taken = False

    # ---------------------------------------------------------------------------------------- building

    def _make_core(self) -> Any:
        settings = self._settings
        source_schema = self._pipeline.source_schema
        layout = core_chunk.layout_of(source_schema)
        self._used = used = list(plan.used_source_columns(self._stages, source_schema))
        time_column, time_every = None, 0
        if settings.punctuate is not None:
            time_column, time_every = settings.punctuate.bind(source_schema)
            used[time_column] = True
        owners = [(stage, build_kernel(stage)) for stage in self._stages]
        operators: list[tuple[Any, ...]] = []
        for stage, owner in owners:
            own = owner.max_workers or 1 << 20
            buckets, bounds, keys = 0, None, None
            if stage.kind == "PS":
                keys = KeySpecOwner(list(stage.key), owner.input_layout.types)
                buckets, bounds = self._buckets(stage, own)
                parallelism = min(buckets, own)
            elif stage.kind == "SF":
                parallelism = 1
            else:
                parallelism = min(max(self.workers, 1), own)
            operators.append((stage.name, stage.kind, owner, keys, buckets, bounds, parallelism))
        if not operators or operators[0][4] > 1:
            # A partitioned first operator needs its rows split: a stateless operator in front does it, in parallel.
            operators.insert(0, ("ingress", "SL", core.IdentityOwner(layout), None, 0, None, max(self.workers, 1)))
        self._operators = operators
        tuple_at_a_time = settings.chunk_rows is not None and settings.chunk_rows < 16
        python = any(stage.is_python for stage in self._stages)
        depth = 128
        out_schema = self._pipeline.schema
        return core.Run(
            operators,
            layout,
            core_arrow.BatchFormats(self._source_schema),
            used,
            core_chunk.layout_of(out_schema),
            core_arrow.core_schema(out_schema),
            workers=self.workers,
            scheduler=settings.scheduler,
            partitioning=settings.partitioning,
            reorder=settings.reorder,
            chunk_rows=settings.chunk_rows,
            depth=depth if settings.depth is None else settings.depth,
            slice_ns=settings.slice_us * 1e3,
            window_ns=settings.window_us * 1e3,
            capacity=settings.capacity,
            max_chunks=settings.max_chunks or (1024 if tuple_at_a_time else 8 + 8 * max(self.workers, 1)),
            max_bytes=settings.max_bytes if settings.max_bytes is not None else 512 << 20,
            max_queued=1 << 17,
            # A Python function pays some 10 us per chunk for the GIL and the crossing: ten times larger chunks.
            chunk_ns=settings.chunk_us * (1e4 if python else 1e3),
            min_rows=64,
            max_rows=4096,
            spin=self.workers < allowed_cpus(),
            tags=settings.tags,
            seed=settings.seed,
            marker_every=settings.marker_every,
            snapshot_every=settings.snapshot_every or 0,
            time_column=time_column,
            time_every=time_every,
            arrivals=settings.arrivals,
            max_ready=settings.max_ready,
            sample_every=settings.sample_every or 0,
            shake=settings.debug,
        )

    def _buckets(self, stage: Any, parallelism: int) -> tuple[int, Any]:
        """Number of buckets and range bounds (None: by hash) of a partitioned stage."""
        buckets = stage.buckets or self._settings.buckets
        if buckets is None:
            if self.workers <= 1 or parallelism == 1:
                buckets = 1
            elif self._settings.chunk_rows is not None and self._settings.chunk_rows < 16:
                buckets = 32 * self.workers
            else:
                buckets = 8 * self.workers
        if stage.partition == "hash":
            return buckets, None
        bounds = getattr(stage.partition, "bounds", None)
        if bounds is None:
            low, high = stage.partition.low, stage.partition.high
            steps = [low + (high - low) * k / buckets for k in range(1, buckets)]
            bounds = steps if isinstance(low, float) else sorted({int(step) for step in steps})
        field = stage.input.field(stage.key[0])
        if any(isinstance(bound, str | bytes) for bound in bounds):
            raise PlanError(
                f"operator {stage.name!r}: range partitioning needs a numeric or temporal key, {field.name!r} is {field.type}; "
                "use hash partitioning"
            )
        kind = np.float64 if pa.types.is_floating(field.type) else np.int64
        return len(bounds) + 1, np.ascontiguousarray(list(bounds), dtype=kind)

    # ---------------------------------------------------------------------------------------- running

    def _start(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this stream was made before a fork; make a new one in the child process")
        with self._feeder.lock:  # close() in another thread sees all threads or none
            if not self._started and not self._exhausted:
                self._start_threads()

    def _start_threads(self) -> None:
        _open_streams.add(self)
        self._started = time.perf_counter()
        self._core.start_clock()
        before = threading.stack_size(WORKER_STACK_BYTES)
        try:
            for index in range(self.workers):
                thread = threading.Thread(
                    target=self._core.worker, args=(index,), name=f"ordstream-worker-{index}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
            if self._live:
                self._feeder.start_thread()
        finally:
            threading.stack_size(before)

    def __next__(self) -> pa.RecordBatch:
        if self._exhausted:
            raise StopIteration
        try:
            with self._reading:
                batch = None if self._feeder.closed else self._next()
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            if self._failure is not None:
                raise self._failure
            raise StopIteration
        return batch

    def _next(self) -> pa.RecordBatch | None:
        """The next output batch; None at the end (the failure, if any, is in self._failure)."""
        self._start()
        core_run = self._core
        while True:
            item = core_run.take()
            if item is not None:
                return self._shape(*item)
            if core_run.ended:
                item = core_run.take()
                if item is not None:
                    return self._shape(*item)
                self._finish()
                return None
            self._tell_progress()
            self._feeder.retire()
            if self.workers == 0:
                if self._feeder.wants_batch():
                    self._feeder.feed_one()
                if self._settings.partial:
                    core_run.want(self._rows_taken)
                core_run.work()
                continue
            if not self._live and self._feeder.wants_batch():
                self._feeder.feed_one()
                continue
            if self._settings.partial:
                # A waiting reader gets what is there: batches grow only while it is busy.
                core_run.want(self._rows_taken)
            core_run.wait(READ_WAIT_S)

    def _shape(self, batch: pa.RecordBatch, serials: list[int] | None) -> pa.RecordBatch:
        """The batch with the pipeline's types, and its order tags where asked for."""
        self._emitted_through = self._core.emitted_through
        self._rows_taken += batch.num_rows
        schema = self._pipeline.schema
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        if serials is None:
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        index = []
        for serial in serials:
            self._tag_index = self._tag_index + 1 if serial == self._tag_serial else 0
            self._tag_serial = serial
            index.append(self._tag_index)
        return pa.RecordBatch.from_arrays([*columns, pa.array(serials, pa.int64()), pa.array(index, pa.int64())], schema=self.schema)

    def _tell_progress(self) -> None:
        if self._settings.progress is None:
            return
        now = time.monotonic()
        if now - self._told >= 0.1:
            self._told = now
            _, issued, emitted, _ = self._core.progress()
            self._settings.progress(issued, emitted)

    def _finish(self) -> None:
        """All output was taken: remember why the run ended."""
        self._all_taken = not self._core.stopped
        self._failure = self._failure_of_core()
        if self._failure is None and self._settings.progress is not None:
            _, issued, emitted, _ = self._core.progress()
            self._settings.progress(issued, emitted)

    def _failure_of_core(self) -> BaseException | None:
        found = self._core.failure()
        if found is None:
            if self._core.out_of_memory:
                return MemoryError("the node ran out of memory; lower max_bytes or the size of the state")
            return Cancelled("the run was cancelled before its end") if self._core.stopped else None
        index, serial, code, message, cause = found
        if index == -2:
            return MemoryError(message)
        error: BaseException
        if index < 0:
            if isinstance(cause, OrdstreamError):
                return cause
            error = SourceError(f"the source failed after {serial - 1} tuples: {type(cause).__name__}: {cause}")
        else:
            name = self._operators[index][0]
            stage = next((stage for stage in self._stages if stage.name == name), None)
            row = None
            if stage is not None:
                batch = self._core.failing_row(core_arrow.core_schema(stage.input))
                row = None if batch is None else shown_row(batch) | self._unread(stage, serial)
            if isinstance(cause, MemoryError) or (cause is not None and not isinstance(cause, Exception)):
                return cause
            reason = message if cause is None else f"{type(cause).__name__}: {cause}"
            error = OperatorError(name, serial, row, reason)
            if cause is None:
                cause = CAUSES.get(code, RuntimeError)(message)
        error.__cause__ = cause
        return error

    def _unread(self, stage: Any, serial: int) -> dict[str, Any]:
        """Values of the failing row's columns that no operator reads (they were never imported), from the source row."""
        position = {index: index for index in range(len(self._source_schema))}  # stage's column -> source column
        for before in self._stages:
            if before is stage:
                break
            passed = plan.columns_passed(before)
            position = {out: position[column] for out, column in passed.items() if column in position}
        missing = {out: column for out, column in position.items() if not self._used[column]}
        batch = self._feeder.source_row(serial) if missing else None
        if batch is None:
            return {}
        row = shown_row(batch)
        return {stage.input.names[out]: row[self._source_schema.names[column]] for out, column in missing.items()}

    # ---------------------------------------------------------------------------------------- from outside

    def progress(self) -> tuple[int, int | None, int]:
        """(tuples given to the first operator, tuples in all if known, serial emitted through). Any thread."""
        with self._feeder.lock:  # close() frees the core under the same lock
            if not self._closed:
                pushed, issued, emitted, _ = self._core.progress()
                return issued, pushed if self._core.source_ended else None, emitted
        tuples = self.report.tuples
        return tuples, tuples, self.report.emitted_through

    def cancel(self) -> None:
        """Stop within a chunk's time; the reading thread then gets Cancelled. Any thread."""
        with self._feeder.lock:  # close() frees the core under the same lock
            if not self._closed:
                self._core.cancel()

    def close(self) -> None:
        """Stop, join every thread, give all memory back. Idempotent; called at exhaustion, by `with`, at exit."""
        if self._closed:
            return
        with self._feeder.lock:
            self._exhausted = True
            if not self._feeder.closed and not self._core.ended:
                self._core.cancel()
        if os.getpid() == self._pid:
            for thread in self._threads:
                thread.join()
            self._feeder.stop()
        # Another thread may be reading: it has been cancelled, and must have left the core before the core goes.
        if not self._reading.acquire(timeout=CLOSE_WAIT_S):
            return  # it is stuck in its own source; the core stays
        try:
            self._give_back()
        finally:
            self._reading.release()

    def _give_back(self) -> None:
        """Second half of close(): report, then all memory."""
        with self._feeder.lock:
            if self._feeder.closed:
                return  # another thread was faster
            self._seconds = time.perf_counter() - self._started if self._started else 0.0
            statistics, samples = self._core.statistics(), self._core.samples()
            # All that was emitted was taken, unless the stream is closed before its end.
            through = statistics["emitted_serial"] if self._all_taken else self._emitted_through
            self._closed = True
            self._feeder.closed = True
            leaked = self._core.close()
        settings = self._settings
        self._report = make_report(
            statistics,
            samples,
            seconds=self._seconds,
            emitted_through=through,
            leaked_chunks=leaked,
            settings=settings.described(self.workers),
            within=settings.marker_percentiles,
        )
        _open_streams.discard(self)
        if settings.debug and leaked:
            raise RuntimeError(f"{leaked} chunks were not given back to the pool")

    @property
    def report(self) -> Report:
        """Figures of the run; complete once the stream is exhausted or closed."""
        if self._report is None:
            if self._started:
                raise RuntimeError("the report is complete when the stream is exhausted or closed")
            self.close()
        assert self._report is not None
        return self._report

    def __iter__(self) -> Stream:
        return self

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()


def shown_row(batch: pa.RecordBatch) -> dict[str, Any]:
    """A one-row batch as Python values; a value that Python has no object for (a date after year 9999) as its text."""
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[0].as_py()
        except (ValueError, OverflowError):
            row[name] = str(column[0].cast(pa.int64() if column.type.bit_width == 64 else pa.int32()))
    return row


@atexit.register
def _close_all() -> None:
    for stream in list(_open_streams):
        stream.close()


def _forget_after_fork() -> None:
    for stream in list(_open_streams):
        stream._closed = True  # its threads do not exist here; the parent owns the run
    _open_streams.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
