"""One shared-memory machine: run a pipeline on its cores, in order.

`run` collects all output, `stream` yields it as it is ready; both are a `Stream` over one core run
(`ordstream._core.flow.run.Run`). Workers are daemon `threading.Thread`s, started when the first output is
asked for (so after any fork; further ones when `workers="auto"` wants them) and joined before the stream
ends, at exit, on Ctrl-C and when the stream is dropped: a native thread that takes the GIL costs 7 us each
time and aborts the interpreter at exit. The caller's thread feeds and reads; a source that may block (a
plain iterator) gets a feeding thread of its own, unless `feeder="caller"`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.flow import run as core
from ordstream._core.flow.reader import Reader
from ordstream._core.ground import arrow as core_arrow
from ordstream._core.ground import chunk as core_chunk
from ordstream._core.ground.imported_batch import formats_of
from ordstream.errors import FORKED, NO_SNAPSHOTS, PlanError
from ordstream.ground.cpus import allowed_cpus
from ordstream.ground.ordertags import TAG_NAMES, OrderTag, RunningIndex
from ordstream.ground.types import names_beside
from ordstream.node import source
from ordstream.node.core_operators import core_operators
from ordstream.node.core_options import core_options, passing_unread
from ordstream.node.feeder import Feeder
from ordstream.node.merge_log import MergeLog, log_of, of_source
from ordstream.node.merging import MergedSources
from ordstream.node.no_table import NoTable
from ordstream.node.open_streams import cancelled, closed_here, open_streams
from ordstream.node.positions import Positions
from ordstream.node.report import Report, make_report
from ordstream.node.result import Result
from ordstream.node.run_failure import Unread, failure
from ordstream.node.run_options import RunOptions, StreamOptions, documented
from ordstream.node.settings import Settings, check_known, check_whole, make_settings, whole
from ordstream.node.shedding import ShedOutcome, learnt, outcome
from ordstream.node.snapshotting import BEGINNING, SnapshotFuture, Snapshotting
from ordstream.node.steps import Steps
from ordstream.node.unmoved import Unmoved
from ordstream.node.worker_threads import WorkerThreads, asker, start
from ordstream.plan.clock import clock_columns, clock_of
from ordstream.plan.columns import without_nulls
from ordstream.plan.final import final
from ordstream.plan.lanes import laid_out
from ordstream.plan.physical import physical
from ordstream.plan.plan import Plan
from ordstream.plan.rewrites import OF_NEIGHBOURS
from ordstream.plan.shedding import check_log
from ordstream.snapshots.snapshot import Snapshot

MAX_BYTES = 512 << 20  # default cap on what is in flight
READ_WAIT_S = 0.05  # the reading thread waits no longer: bounds how late it sees Ctrl-C
CLOSE_WAIT_S = 10.0  # how long close() waits for another thread that is reading


@documented(stream=False, pipeline=True)
def run(pipeline: Any, data: Any, **options: Unpack[RunOptions]) -> Result:
    """Run a pipeline and return all output."""
    given: dict[str, Any] = {**options}
    check_known(given)
    check_whole(given)
    with stream(pipeline, data, partial=False, **given) as out:
        batches = list(out)
        return Result(batches, out.schema, out.report_later(), out.shed, out.snapshot)


@documented(stream=True, pipeline=True)
def stream(pipeline: Any, data: Any, **options: Unpack[StreamOptions]) -> Stream:
    """Run a pipeline and yield output batches as they are ready.

    The source stops while the caller does not read (cap on what is in flight).
    """
    return Stream(pipeline, data, make_settings(options))


class Stream(NoTable, Unmoved, Reader):
    """A run in progress: an iterator of record batches, a context manager, and an Arrow stream.

    `pa.table(stream)`, `pl.DataFrame(stream)` and DuckDB's ``from stream`` read it, batch by batch, as far
    as it has not been read. Reading is once: what has been read, by whomever, does not come again.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the batches.
    report : Report
        Complete when the stream is exhausted or closed.
    steps : Steps
        What a fragment asks for beside the batches.
    """

    _fitted = False  # the source gives batches as the core takes them
    merge_log: MergeLog | None = None  # of several sources: what was chosen
    _positions: Positions | None = None
    _told = _taken_at = 0.0  # when progress was told, and when the last batch was handed over
    _giving_back = _all_taken = False

    def __init__(self, pipeline: Any, data: Any, settings: Settings) -> None:
        self._settings = settings
        plan: Plan = getattr(pipeline, "plan", pipeline)
        check_log(plan, settings.shed_log)
        if settings.emit == "final":
            plan = final(plan)
        plan = laid_out(plan)
        self._snapshots: Snapshotting | None = None
        if settings.keeps_state:
            self._snapshots = Snapshotting(plan, settings)
            plan = self._snapshots.with_models(plan)
        begin = self._snapshots.begin if self._snapshots is not None else BEGINNING
        self._adaptive = isinstance(settings.workers, str)
        self.workers = (
            int(settings.max_workers or allowed_cpus()) if self._adaptive else int(settings.workers)
        )
        self._physical = physical(
            plan,
            workers=self.workers,
            buckets=settings.buckets,
            chunk_rows=settings.chunk_rows,
            depth=settings.depth,
            max_chunks=settings.max_chunks,
            # With steps each key of a flush is logged, so rows that a filter behind drops must be made all
            # the same. State that leaves must not depend on what stands behind an operator.
            without=(
                *(("dropped_rows",) if settings.steps else ()),
                *(OF_NEIGHBOURS if settings.keeps_state else ()),
            ),
        )
        self._plan = plan = self._physical.plan
        self.schema = plan.output
        if settings.tags:
            if not settings.steps:  # a fragment takes tags by their place: no user sees them
                names_beside(self.schema.names, TAG_NAMES, "tags=True")
            for name in TAG_NAMES:
                self.schema = self.schema.append(pa.field(name, pa.int64()))
        self._as_is = core_arrow.core_schema(plan.output).equals(plan.output, check_metadata=True)
        self._source_schema = core_arrow.core_schema(plan.source)
        # it gives tuples when they come, not when they are asked for
        self._overloads = data.live if isinstance(data, MergedSources) else source.is_live(data)
        self._live = self._overloads and settings.feeder != "caller" and self.workers > 0
        self._max_bytes = settings.max_bytes if settings.max_bytes is not None else MAX_BYTES
        self._core = self._make_core(begin)
        if self._snapshots is not None:
            self._snapshots.install(self._core, self._made.stateful, self._made.sheds)
        no_nulls = self._without_nulls()
        most = source.most_bytes(self._max_bytes)
        self.merge_log = log_of(data)
        if self._snapshots is not None and (settings.checkpoint is not None or hasattr(data, "seek")):
            data = self._positions = self._snapshots.positions(data)
        batches = source.batches(data, self._source_schema, no_nulls, most, fitted=self._fitted)
        self._feeder = Feeder(
            self._core, batches, self._source_schema, settings, most, dates_rows=bool(self._made.sheds)
        )
        self._workers = WorkerThreads(self._core)
        self._started = self._seconds = 0.0
        self._pid = os.getpid()
        self._exhausted = False
        self._report: Report | Callable[[], Report] | None = None  # of a closed stream
        self._markers: npt.NDArray[np.int64] = np.empty((0, 4), np.int64)
        self._reserve: Any = np.empty(96 << 10, np.uint8)  # for `close`, where the run took all memory
        self._shed: ShedOutcome | None = None
        self._failure: BaseException | None = None
        self._last_progress: tuple[int, int | None, int] = (begin.serial,) * 3  # of a closed stream
        self._running_index = RunningIndex(begin.emitted_through)
        through = self._suppressed = settings.emitted_through  # None: what comes was not delivered yet
        self._read_by: int | None = None
        self.steps = Steps(self._core, [one.name for one in self._made.chain], self._feeder.lock)
        self._last_skips: list[tuple[str, int, bool, int, str]] = []
        self._settled = begin.serial  # all of whose outputs are in batches that were taken
        self._least = max(begin.emitted_through, through or OrderTag(0))
        self._offered = self._delivered = None  # (serial, index)
        self._rows_taken = 0
        self._closed = False  # from here on there is something to close

    # ---------------------------------------------------------------------------------------- building

    def _without_nulls(self) -> list[int]:
        """Columns of the source in which a null is an error."""
        names, absent = self._plan.source.names, self._settings.absent
        return [i for i in without_nulls(self._plan.source, self._used) if names[i] not in absent]

    def _make_core(self, begin: Snapshot) -> Any:
        settings, plan = self._settings, self._plan
        layout = core_chunk.layout_of(plan.source)
        self._used = used = list(self._physical.used)
        clock = None if settings.given_marks else clock_of(plan, settings.punctuate)
        clocks = clock_columns(clock)
        for column in clocks:
            used[column] = True
        passing = passing_unread(self._physical, self._source_schema, clocks)
        passed = {*passing.values()}
        self._imported = [one and column not in passed for column, one in enumerate(used)]
        self._made = core_operators(self._physical, settings, layout)
        return core.Run(
            self._made.chain,
            layout,
            formats_of(self._source_schema),
            self._imported,
            core_chunk.layout_of(plan.output),
            core_arrow.core_schema(plan.output),
            core_options(
                settings,
                self._physical,
                workers=self.workers,
                max_bytes=self._max_bytes,
                clock=clock,
                overloads=self._overloads,
                begin=begin,
                snapshot_rows=self._snapshots.rows if self._snapshots is not None else 0,
                passing=passing,
            ),
        )

    # ---------------------------------------------------------------------------------------- running

    def _start(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(FORKED)
        with self._feeder.lock:  # close() in another thread sees all threads or none
            if self._exhausted:
                return
            if not self._started:
                self._start_threads()
            else:
                self._workers.start()

    def start_only(self, workers: int) -> None:
        """Start so many of the run's workers and no more, for measurements: a worker among several, with
        nobody beside it.

        Raises
        ------
        ValueError
            After the start, for a number of workers that changes, or one that the run does not have.
        """
        self._core.keep_active(whole("start_only: workers", workers, 1, 1024))

    def _start_threads(self) -> None:
        open_streams.add(self)
        self._started = time.perf_counter()
        self._core.start_clock()
        self._workers.start()
        if self._live:
            self._feeder.start_thread()

    def _read(self) -> pa.RecordBatch | None:
        return None if self._feeder.closed else self._next()

    def _is_inside(self) -> bool:
        """Whether the caller is called by this run itself: by its source, a function, the progress callback,
        or a signal handler that interrupts the reader.
        """
        thread = asker(threading.current_thread())
        return self._reader == thread.ident or thread in self._workers or thread is self._feeder.thread

    def _next(self) -> pa.RecordBatch | None:
        """The next output batch; None at the end (the failure, if any, is in self._failure)."""
        self._start()
        core_run = self._core
        self._read_by = threading.get_ident()
        until = time.monotonic() + self._patience if self._patience else 0.0
        while True:
            if self._snapshots is not None:  # also for a reader for whom something is always there
                self._snapshots.tick(core_run, self._positions)
            item = core_run.take()
            if item is None and core_run.ended:
                item = core_run.take()
                if item is None:
                    self._finish()
                    return None
            if item is not None and item[0] is None:
                self._passed(*item[1])
                continue
            if item is not None:
                batch = self._shape(*item)
                if batch is not None:
                    return batch
                continue
            if until and time.monotonic() > until:
                return pa.RecordBatch.from_pylist([], schema=self.schema)
            self._tell_progress()
            self._feeder.retire()
            if core_run.active > len(self._workers) and self.workers:
                self._start()
            if self.workers == 0:
                if self._feeder.wants_batch():
                    self._feeder.feed_one()
                if self._wants_partial():
                    core_run.want(self._rows_taken)
                core_run.work()
                continue
            if not self._live and self._feeder.wants_batch():
                self._feeder.feed_one()
                continue
            if self._wants_partial():
                # A waiting reader gets what is there: batches grow only while it is busy, or for the time
                # that it asked for.
                core_run.want(self._rows_taken)
            core_run.wait(READ_WAIT_S, not self._live and not core_run.source_ended)

    def _wants_partial(self) -> bool:
        """Whether the reader takes a batch that is not full now."""
        after = self._settings.partial_after
        return self._settings.partial and (not after or time.monotonic() - self._taken_at >= after)

    def _passed(self, number: int, *last_output: int) -> None:
        """The reader meets a snapshot marker behind the output with this tag."""
        core_run, snapshots = self._core, self._snapshots
        assert snapshots is not None
        through = OrderTag(*core_run.commit_point), OrderTag(*last_output)
        snapshots.passed(core_run, number, through, self._position, learnt(self._made.sheds))

    def _position(self, serial: int) -> Any:
        """Where the source stood behind a serial."""
        if self._positions is None:
            return None
        found = self._positions.at(serial)
        self._positions.forget(serial)
        return found

    def request_snapshot(self) -> SnapshotFuture:
        """Have a snapshot taken where the stream is now, without a pause. Any thread.

        The future resolves once the outputs in front of it were read and, where there is a checkpoint, it
        lies on the disk.

        Raises
        ------
        PlanError
            The stream was not started for that.
        """
        if self._snapshots is None:
            raise PlanError(NO_SNAPSHOTS)
        with self._feeder.lock:  # close() frees the core under the same lock
            if not self._closed:
                return self._snapshots.request(self._core, lambda: self._read_by)
        return self._snapshots.request(None, lambda: self._read_by)

    @property
    def snapshot(self) -> Snapshot | None:
        """The last snapshot that was taken: of a suspended run, its end."""
        return self._snapshots.last if self._snapshots is not None else None

    def _shape(self, batch: pa.RecordBatch, serials: npt.NDArray[np.int64] | None) -> pa.RecordBatch | None:
        """The batch with the pipeline's types, and its order tags where asked for; without what was
        delivered before (None: all of it was).
        """
        self._note_taken(batch)
        if serials is None and self._as_is:
            # the reading thread shares the workers' cores: what it does takes them from a worker
            return batch
        schema = self._plan.output
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        if serials is None:
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        index = self._running_index(serials)
        if self._settings.tags:
            columns += [pa.array(serials), pa.array(index)]
        shaped = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self._suppressed is None:
            return shaped
        through = self._suppressed
        delivered = (serials < through.serial) | ((serials == through.serial) & (index <= through.index))
        known = int(np.count_nonzero(delivered))
        if known < len(serials):
            self._suppressed = None
        return shaped.slice(known) if known < len(serials) else None

    def _note_taken(self, batch: pa.RecordBatch) -> None:
        """A batch of the core is the reader's."""
        self._settled = self._core.emitted_through
        self._offered = self._core.commit_point  # a tag only for those who ask
        self._rows_taken += batch.num_rows
        self._taken_at = time.monotonic()

    def _tell_progress(self) -> None:
        if self._settings.progress is None:
            return
        now = time.monotonic()
        if now - self._told >= 0.1:
            self._told = now
            self._settings.progress(*self._core.progress()[1:3])

    def _finish(self) -> None:
        """All output was taken: remember why the run ended."""
        self._all_taken = not self._core.stopped
        names, source = [one.name for one in self._made.chain], self._source_schema
        told = self._settings.punctuate
        found = failure(self._core, self._feeder.error, names, self._plan, source, self._complete, told)
        begun = 0 if self._snapshots is None else self._snapshots.read_behind
        self._failure = of_source(found, self.merge_log, begun)
        if self._snapshots is not None:
            self._snapshots.end()
            self._failure = self._failure or self._snapshots.error
        if self._failure is None and self._settings.progress is not None:
            self._settings.progress(*self._core.progress()[1:3])

    def _complete(self, row: dict[str, Any], position: int, serial: int) -> dict[str, Any]:
        """The failing row of an operator with the columns that no operator reads."""
        unmade, absent = self._made.unmade, self._settings.absent
        unread = Unread(self._plan, self._source_schema, self._imported, unmade, absent)
        return unread.completed(row, position, self._feeder.source_row(serial))

    def settled(self) -> int:
        """A serial through which all outputs, if any, were taken by the reader. The reading thread only."""
        with self._feeder.lock:  # close() frees the core under the same lock
            if self._closed:
                return self._settled
            _, _, emitted, rows_out = self._core.progress()
        return int(emitted) if rows_out == self._rows_taken else self._settled

    def _has_all(self) -> bool:
        """Whether the reader has all rows, though he may not know. Under the feeder's lock."""
        whole = not self._feeder.closed and self._core.ended and not self._core.stopped
        return bool(whole and self._core.progress()[3] == self._rows_taken)

    def first_skips(self) -> dict[str, tuple[int, bool]]:
        """Operator name -> (serial, whether the final flush caused it) of the first row that it skipped;
        final for rows that `settled`.
        """
        with self._feeder.lock:  # close() frees the core under the same lock
            found = self._last_skips if self._closed else self._core.first_skips()
            return {name: (serial, at_end) for name, serial, at_end, _, _ in found}

    # ---------------------------------------------------------------------------------------- from outside

    def progress(self) -> tuple[int, int | None, int]:
        """(tuples given to the first operator, tuples in all if known, serial emitted through). Any thread.

        The last is how far the run is: the last tuple that has given all its outputs, which may wait for the
        reader still. The commit point is `emitted_through`.
        """
        with self._feeder.lock:  # close() frees the core under the same lock
            if not self._closed:
                pushed, issued, emitted, _ = self._core.progress()
                return issued, pushed if self._core.source_ended else None, emitted
            return self._last_progress

    @property
    def emitted_through(self) -> OrderTag:
        """The commit point of what the reader has: after each batch the one at its end, then the report's.

        Every output with an order tag up to it has been delivered, no output with a greater one has
        (docs/ordering.md). Any thread.
        """
        last = self._delivered  # once: another thread may close
        return self._least if last is None else max(self._least, OrderTag(*last))

    @property
    def active_workers(self) -> int:
        """How many workers should be active now; constant unless `workers="auto"`. Any thread."""
        return int(self._core.active) if self.workers else 0

    def cancel(self) -> None:
        """Stop within a chunk's time; the reading thread then gets Cancelled. Any thread."""
        with self._feeder.lock:  # close() frees the core under the same lock
            if not self._closed:
                self._core.cancel()

    def close(self) -> None:
        """Stop, join every thread, give all memory back. Idempotent; called at exhaustion, by `with`, at
        exit.

        Called by the run itself (its source, a function, a callback) it stops the run; the rest follows when
        they have returned. After Ctrl-C a function that goes on is interrupted, or left behind. A reader
        whose stream is closed by another thread, or from inside, gets Cancelled unless he has all rows.
        """
        if self._closed or self._workers.left_behind:
            return
        here = threading.get_ident()
        with self._feeder.lock:
            if (self._read_by != here or self._reader == here) and not self._has_all():
                self._cut = cancelled if self._read_by else closed_here()
            self._exhausted = True
            self._workers.shut()
            if not self._feeder.closed:
                if self._core.ended:
                    self._core.leave()
                else:
                    self._core.cancel()
        if self._reader == here:
            return  # the reader closes on its way out
        if self._is_inside():
            start(threading.Thread(target=self.close, name="ordstream-closer", daemon=True))
            return
        if os.getpid() == self._pid:
            # Ctrl-C, if that brought us here, ends functions too
            ended = self._workers.join(isinstance(sys.exc_info()[1], KeyboardInterrupt))
            self._feeder.stop()
            if not ended:
                open_streams.discard(self)
                self._workers.leave_behind(self._end)
                return
        self._end()

    def _end(self) -> None:
        """The part of close() behind the last worker."""
        # Another thread may be reading: it has been cancelled, and must leave the core before the core goes.
        if not self._reading.acquire(timeout=CLOSE_WAIT_S):
            return  # it is stuck in its own source; the core stays
        try:
            if self._snapshots is not None:
                self._snapshots.end()
            self._give_back()
        finally:
            self._reading.release()

    def _give_back(self) -> None:
        """Second half of close(): report, then all memory."""
        with self._feeder.lock:
            if self._feeder.closed or self._giving_back:
                return  # another thread was faster, or a signal handler of this one is here
            self._giving_back, self._reserve = True, None
            try:
                self._seconds = time.perf_counter() - self._started if self._started else 0.0
                statistics, samples = self._core.statistics(), self._core.samples()
                self._markers = samples
                # All that was emitted was taken, unless the stream is closed before its end.
                last = self._core.last_commit_point() if self._all_taken else None
                through = self.emitted_through if last is None else max(self._least, OrderTag(*last))
                issued = self._core.progress()[1]
                self._last_progress = (
                    issued,
                    issued,
                    statistics["emitted_serial"] if self._all_taken else self._settled,
                )
                self._last_skips = self._core.first_skips()
                self.steps.end()
                self._closed = True
                self._feeder.closed = True
                leaked = self._core.close()
            finally:
                self._giving_back = False  # an interrupted close is repeated
        self._shed, shedding = outcome(self._made.sheds, self._settings.shed_partition)
        self._least, self._delivered = through, None
        self._report = self._reporting((statistics, samples), self._seconds, through, leaked, shedding)
        open_streams.discard(self)
        self._feeder.let_go()
        self._positions = None
        if self._settings.debug and leaked:
            raise RuntimeError(f"{leaked} chunks were not given back to the pool")

    def _reporting(
        self, core: tuple[Any, Any], seconds: float, through: OrderTag, leaked: int, shedding: Any = ()
    ) -> Callable[[], Report]:
        """Makes the report when it is asked for: that takes as long as a short run. It has figures only."""
        return partial(
            make_report, *core, seconds=seconds, emitted_through=through, leaked_chunks=leaked,
            settings=self._settings.described(self.workers), within=self._settings.marker_percentiles,
            split=self._physical.split[0] if self._physical.split else None,
            rejecting=self._made.rejecting, adjusted=self._made.late(), shedding=shedding,
            snapshots=tuple(self._snapshots.figures) if self._snapshots else (),
        )  # fmt: skip

    def after_fork(self) -> None:
        """In the child: its threads do not exist here, one may hold a lock, and the run is the parent's."""
        self._closed = True
        self._reading, self._feeder.lock = threading.RLock(), threading.RLock()

    @property
    def report(self) -> Report:
        """Figures of the run; complete once the stream is exhausted or closed."""
        found = self.report_later()
        self._report = found = found if isinstance(found, Report) else found()
        return found

    def report_later(self) -> Report | Callable[[], Report]:
        """`report`, or what makes it, which takes 0.1 ms and more."""
        if self._report is None:  # not closed here: who only looks at the stream has not read it
            raise RuntimeError("the report is complete when the stream is exhausted or closed")
        return self._report

    @property
    def markers(self) -> npt.NDArray[np.int64]:
        """Latency markers in order: serial, processing ns, end-to-end ns, monotonic ns at the egress."""
        self.report_later()
        return self._markers

    @property
    def shed(self) -> ShedOutcome:
        """What shed operators left behind; complete once the stream is exhausted or closed."""
        self.report_later()
        assert self._shed is not None
        return self._shed
