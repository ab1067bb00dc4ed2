"""A run over several processes, as its caller reads it (`Pipeline.stream` and `.run` with `processes=`)."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordstream._core.flow.reader import Reader
from ordstream.errors import FORKED, NO_SNAPSHOTS, OperatorError, PlanError
from ordstream.fragments.driver import Driver, combines, reads_twice, with_tags
from ordstream.fragments.endpoint import Endpoint
from ordstream.fragments.figures import Figures, Outcome, report_of
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.grouping import OPTIONS, groupings_of
from ordstream.fragments.learnt_map import with_learnt
from ordstream.fragments.moving import Moved, Shift
from ordstream.fragments.node_state import frame, parsed, placed
from ordstream.fragments.processes import Processes, dumps, prepare, weakly
from ordstream.fragments.shedding import check_sheds, shed_together
from ordstream.fragments.source_blocks import Progress, SourceBlocks, columns_without_nulls
from ordstream.fragments.time_marks import source_clock
from ordstream.fragments.topology import Topology
from ordstream.fragments.wire import CALL, CALLER, FAILED, FIGURES, SHIFT, STATE
from ordstream.ground.arrow_memory import POOL
from ordstream.ground.batches import BATCH_ROWS
from ordstream.ground.ordertags import OrderTag
from ordstream.node.merge_log import log_of, of_source
from ordstream.node.no_table import NoTable
from ordstream.node.open_streams import cancelled, closed_here, open_streams
from ordstream.node.report import Report
from ordstream.node.result import Result
from ordstream.node.source import is_live
from ordstream.node.worker_threads import asker

if TYPE_CHECKING:
    from ordstream.balance.mixed.table import Assignment
    from ordstream.fragments.balancing import Balancing, MoveFigures
    from ordstream.fragments.marking import Marking
    from ordstream.node.shedding import ShedOutcome
    from ordstream.node.snapshotting import SnapshotFuture
    from ordstream.plan.plan import Plan
    from ordstream.snapshots.snapshot import Snapshot

#: Longest wait of the reading thread; and seconds for which rows that the reader may have wait for more.
WAIT_S = 1.0
HELD_S = 0.001


class ProcessStream(NoTable, Reader):
    """A run in progress over several processes: an iterator of record batches, a context manager, and an
    Arrow stream, as `ordstream.node.node.Stream` is.

    Parameters
    ----------
    pipeline : Pipeline
    data : Arrow data or iterable of record batches
    processes : int or Processes
        How many to spawn; or processes that stay when this stream ends.
    options : mapping
        Of every node, and of the output.
    block_rows : int, optional
        Rows of the source that are sent at a time, at most. None: as the topology says.
    channel_bytes : int, optional
        As of `Topology`.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the batches.
    """

    def __init__(
        self,
        pipeline: Any,
        data: Any,
        processes: int | Processes,
        options: Mapping[str, Any],
        block_rows: int | None = None,
        channel_bytes: int | None = None,
    ) -> None:
        self._shared = processes if isinstance(processes, Processes) else None
        count = len(processes) if isinstance(processes, Processes) else processes
        options = dict(options)
        balance = options.pop("balance", None)
        where = f"processes={count}"
        fragments, of_nodes, self._tags = prepare(pipeline, options, where, keeps_state=True)
        self._balancing, tables = balancing_of(balance, fragments, count)
        if tables:
            from ordstream.fragments.balancing import CHANNEL_BYTES

            of_nodes["snapshots"] = True  # so that the state of a key can leave its node
            channel_bytes = channel_bytes or CHANNEL_BYTES
        groupings = groupings_of(options, fragments, count)
        check_apart(tables, groupings)
        check_sheds(fragments, of_nodes, groupings, keeps_state="snapshots" in of_nodes)
        live = is_live(data)
        self._topology = Topology(fragments, count, of_nodes, channel_bytes, groupings, tables, live)
        self._marking = marking_of(pipeline, options, self._topology, data)
        if self._balancing is not None:
            self._topology = with_routes(self._topology, self._balancing, self._marking)
        elif self._marking is None:
            self._topology = with_learnt(self._topology, data)
        self._suppressed = options.get("emitted_through")
        self.schema = with_tags(fragments[-1].output, self._tags)
        self._partial = options.get("partial") is not False
        self._partial_after = float(options.get("partial_after") or 0.0)
        self._plan, self._data, self._block_rows = pipeline.plan, data, block_rows
        self._progress = Progress(options.get("progress"))
        self._pool: Processes | None = None
        self._driver: Driver | None = None
        self._early: Topology | None = None  # what runs first, where an answer is combined in each node
        # a state that leaves is one of the operators as they were written
        if reads_twice(data) and self._marking is None and not tables:
            self._early = combines(self._topology)
        self._work = dumps(self._early or self._topology)  # an error now, not in the middle
        self._fatal: BaseException | None = None
        self._failure: BaseException | None = None
        self._cancelled = False
        self._exhausted = False
        self._held: list[pa.RecordBatch] = []
        self._given_at = self._held_since = 0.0
        self._started = self._seconds = 0.0
        self._report: Report | None = None
        begin = OrderTag(0) if self._marking is None else self._marking.begin.emitted_through
        self._offered = self._delivered = max(begin, self._suppressed or begin)
        self._read_by: int | None = None
        self._wanted = False  # another thread asks for the nodes' figures
        self._unheard: set[tuple[int, int]] = set()
        self._heard = threading.Event()
        self._pid = os.getpid()
        self._closed = False
        open_streams.add(self)

    # ---------------------------------------------------------------------------------------- running

    def _start(self) -> Driver:
        if os.getpid() != self._pid:
            raise RuntimeError(FORKED)
        if self._driver is None:
            self._started = time.perf_counter()
            self._pool = self._shared or Processes(self._topology.processes)
            return self._begin(self._early or self._topology, self._work)
        return self._driver

    def _begin(self, topology: Topology, work: bytes) -> Driver:
        pool = self._pool
        assert pool is not None
        endpoint: Endpoint
        marking = self._marking
        told = weakly(self._told)

        def hear(process: int, kind: int, edge: int, run: int, body: Any) -> None:
            if kind == CALL:  # from a process that this one started, with what it sent
                told(pickle.loads(body))
            elif kind == STATE:
                assert marking is not None
                marking.heard(parsed(body))
            else:
                endpoint.handle(process, kind, edge, body)

        if marking is not None:
            marking.wake = pool.mesh.wake
            for fragment, node, name, rows in placed(topology, marking.states(), self._balancing):
                pool.mesh.post(node, STATE, fragment, pool.run + 1, frame(0, name, rows))
        endpoint = Endpoint(topology, pool.mesh, CALLER, pool.begin(work, hear))
        if self._balancing is not None:
            self._balancing.tell, self._balancing.wake = weakly(self._tell_shift), pool.mesh.wake
        blocks = blocks_of(self._plan, topology, self._data, marking, self._block_rows, pool.mesh.wake)
        last, first = topology.last_edge, topology.first
        driver = Driver(
            topology, blocks, endpoint.links(first), endpoint.consumed(last), self.schema, self._tags,
            marking, self._suppressed, self._balancing,
        )  # fmt: skip
        endpoint.merges[last], endpoint.outs[first] = driver.merge, driver.out
        endpoint.heard = driver.heard
        self._driver = driver  # before its first call the source is known to be inside of this run
        blocks.start()
        return driver

    def _told(self, what: Any) -> None:
        """What a node process says."""
        driver = self._driver
        if isinstance(what, Figures):
            assert driver is not None
            if isinstance(what, Outcome):
                driver.ended(what)
            else:
                driver.told(what)
            self._unheard.discard((what.fragment, what.node))
            if not self._unheard:
                self._heard.set()
        elif isinstance(what, Moved | tuple):
            assert self._balancing is not None
            self._balancing.heard(what)
        elif isinstance(what, BaseException):
            self._fatal = self._fatal or what

    def _tell_shift(self, what: Shift | bytes) -> None:
        """Tell all processes of a move, or of the tag at which a node failed."""
        assert self._pool is not None
        kind, body = (FAILED, what) if isinstance(what, bytes) else (SHIFT, what.to_bytes())
        for process in range(len(self._pool)):
            self._pool.mesh.post(process, kind, 0, self._pool.run, [body])

    @property
    def moves(self) -> list[MoveFigures]:
        """The last 1,000 moves of keys that were carried out (`balance=`), in order."""
        return list(self._balancing.figures) if self._balancing is not None else []

    def cancel_move(self) -> bool:
        """Give up the move of keys that is under way (`balance=`), at whatever step it is: keys that went
        come back. Whether there was one. The reading thread.
        """
        return self._balancing is not None and self._balancing.cancel()

    def _read(self) -> pa.RecordBatch | None:
        driver, marking = self._start(), self._marking
        self._read_by = threading.get_ident()
        while True:
            assert self._pool is not None
            if self._fatal is not None:
                raise self._fatal
            if self._cancelled:
                raise cancelled()
            if self._wanted:
                self._ask()
            progressed = driver.step()
            if marking is not None:
                marking.publish(driver.blocks.rows)
                marking.snapshots.tick(marking)
                if driver.at_mark and self._held:  # the reader gets what stands in front of it first
                    return self._all_held()
            batch = driver.output()
            if batch is not None:
                if batch.num_rows:
                    self._held.append(batch)
                self._offered = max(self._offered, driver.emitted_through)
            if driver.over and batch is None:
                if driver.merge.ready():
                    continue
                again = self._again(driver)
                if again is None:
                    return self._at_end(driver)
                driver = again
                continue
            ready = self._ready(waiting=not driver.merge.ready())
            if ready is not None:
                self._pool.mesh.write()  # what was sent goes before the reader does something else
                return ready
            self._progress(driver.blocks.rows, driver.emitted_through.serial)
            if progressed or batch is not None:
                self._pool.mesh.turn(0.0)
            else:
                awaited = driver.merge.slowest
                began = time.monotonic()
                self._pool.mesh.turn(self._patience_s(driver))
                if awaited is not None:
                    driver.merge.awaited[awaited] += time.monotonic() - began
            self._pool.check()

    def _patience_s(self, driver: Driver) -> float:
        """Seconds after which something may be due although nothing came."""
        due, patience = driver.due_in, WAIT_S
        if self._marking is not None and (every := self._marking.snapshots.seconds) is not None:
            patience = min(patience, every / 4)
        if self._balancing is not None and (step := self._balancing.due_in) is not None:
            patience = min(patience, step)
        return patience if due is None else min(patience, due)

    def _ready(self, *, waiting: bool) -> pa.RecordBatch | None:
        """The rows that the reader gets now, if it gets any."""
        if not self._held:
            return None
        whole = sum(batch.num_rows for batch in self._held) >= BATCH_ROWS
        now = time.monotonic()
        self._held_since = self._held_since or now
        late = now - self._given_at >= self._partial_after
        if not whole and not (self._partial and late and (waiting or now - self._held_since >= HELD_S)):
            return None
        self._given_at = now
        return self._all_held()

    def _all_held(self) -> pa.RecordBatch:
        held, self._held = self._held, []
        self._held_since = 0.0
        return held[0] if len(held) == 1 else pa.concat_batches(held, memory_pool=POOL)

    def _again(self, driver: Driver) -> Driver | None:
        """The run anew with the last operator as a whole, where its halves met an error: which one a
        sequential run meets, and whether it does, only the whole operator knows.
        """
        if self._early is None or not isinstance(driver.failure(), OperatorError):
            return None
        self._early, self._held = None, []
        return self._begin(self._topology, dumps(self._topology))

    def _at_end(self, driver: Driver) -> pa.RecordBatch | None:
        if self._held:
            return self._all_held()
        begun = 0 if self._marking is None else self._marking.snapshots.read_behind
        self._failure = of_source(driver.failure(), log_of(self._data), begun)
        if self._marking is not None:
            self._marking.publish()
            self._marking.snapshots.end()
            self._failure = self._failure or self._marking.snapshots.error
        self._seconds = time.perf_counter() - self._started
        self._report = driver.report(self._seconds)
        if self._marking is not None:
            self._report = replace(self._report, snapshots=tuple(self._marking.snapshots.figures))
        if self._failure is None:
            self._progress(driver.blocks.rows, driver.blocks.rows, last=True)
        return None

    def _is_inside(self) -> bool:
        """Whether the caller is called by this run itself: by its source, or the progress callback."""
        thread = asker(threading.current_thread())
        source = self._driver.blocks.thread if self._driver is not None else None
        return self._reader == thread.ident or thread is source

    # ---------------------------------------------------------------------------------------- from outside

    @property
    def emitted_through(self) -> OrderTag:
        """The commit point of what the reader has, as `Stream.emitted_through`."""
        found = self._delivered if self._report is None else self._report.emitted_through
        assert isinstance(found, OrderTag)
        return found

    def request_snapshot(self) -> SnapshotFuture:
        """As `Stream.request_snapshot`: one snapshot of all processes, behind the last tuple that was given
        out. Any thread.

        Raises
        ------
        PlanError
            The stream was not started for that.
        """
        if self._marking is None:
            raise PlanError(NO_SNAPSHOTS)
        return self._marking.request(lambda: self._read_by, closed=self._closed)

    @property
    def snapshot(self) -> Snapshot | None:
        """The last snapshot that was taken: of a suspended run, its end."""
        return self._marking.snapshots.last if self._marking is not None else None

    @property
    def shed(self) -> ShedOutcome:
        """What shed operators left behind, of the nodes that have ended: complete once the stream is
        exhausted.
        """
        return shed_together([]) if self._driver is None else self._driver.shed()

    def progress(self) -> tuple[int, int | None, int]:
        """(tuples given out, tuples in all if known, serial emitted through). Any thread."""
        if self._driver is None:
            return 0, None, 0
        blocks = self._driver.blocks
        return blocks.rows, blocks.rows if blocks.over else None, self._driver.emitted_through.serial

    def cancel(self) -> None:
        """Stop; the reading thread then gets Cancelled. Any thread."""
        self._cancelled = True
        if self._pool is not None and not self._closed:
            self._pool.mesh.wake()

    def close(self) -> None:
        """Stop and end the processes. Idempotent; called at exhaustion, by `with` and when it is dropped. A
        reader whose stream another thread closes gets Cancelled.
        """
        if self._closed:
            return
        here = threading.get_ident()
        if self._read_by != here:
            self._cut = cancelled if self._read_by else closed_here()
        self._exhausted = True
        if os.getpid() != self._pid:
            self._closed = True  # the parent owns the processes
            return
        if self._is_inside() or not self._reading.acquire(blocking=False):
            self.cancel()  # the reader closes on its way out
            if self._reader == here or not self._reading.acquire(timeout=JOINED_S):
                return
        try:
            self._end_once()
        finally:
            self._reading.release()

    def _end_once(self) -> None:
        if self._closed:  # another thread was faster
            return
        if self._driver is not None:
            self._driver.blocks.stop()
        if self._marking is not None:
            self._marking.snapshots.end()
            self._marking.wake = lambda: None
        self._figures_of_the_middle()
        if self._balancing is not None:
            self._balancing.end()
        if self._pool is not None and self._shared is None:
            self._pool.close()
        elif self._pool is not None:
            self._pool.leave()
        if self._driver is not None:
            self._driver.let_go()
        if self._marking is not None:
            self._marking.let_go()
        self._closed, self._data, self._fatal = True, None, None

    @property
    def report(self) -> Report:
        """Figures of all nodes: complete once the stream is exhausted, and at any time as they are then. Any
        thread.

        Nodes are asked, and have a second to answer. What one told last counts where it is at work on a row
        for longer, where the source or the progress callback asks, behind an early close, and in a forked
        process, to whom the answers are not due.
        """
        if self._report is not None:
            return self._report
        if self._closed or self._driver is None or os.getpid() != self._pid:
            return self._now()
        if not self._is_inside():
            if self._reading.acquire(blocking=False):
                try:
                    self._hear(ASKED_S)
                finally:
                    self._reading.release()
            else:
                self._heard.clear()
                self._wanted = True
                if self._pool is not None:
                    self._pool.mesh.wake()
                self._heard.wait(ASKED_S)
        return self._now()

    def _now(self) -> Report:
        """The report as far as nodes have told of themselves."""
        if self._report is not None:  # it was complete meanwhile
            return self._report
        driver = self._driver
        if driver is None:
            found: Report = report_of(self._topology, (), 0.0, self._delivered)
            return found
        found = driver.report(self._seconds or time.perf_counter() - self._started)
        rows = driver.rows_out - sum(batch.num_rows for batch in self._held)
        return replace(found, rows_out=rows, emitted_through=self._delivered)

    def _ask(self) -> None:
        """Have every node tell of itself. The reading thread, or one that keeps others from reading."""
        assert self._pool is not None
        assert self._driver is not None
        self._wanted = False
        self._unheard = self._driver.missing()
        self._heard.clear()
        if not self._unheard:
            self._heard.set()
        for process in {node for _, node in self._unheard}:
            self._pool.mesh.post(process, FIGURES, 0, self._pool.run)

    def _hear(self, seconds: float) -> None:
        """Ask all nodes, and wait for those that answer in time."""
        assert self._pool is not None
        if self._report is not None or self._closed:
            return
        self._ask()
        until = time.monotonic() + seconds
        while not self._heard.is_set() and (left := until - time.monotonic()) > 0:
            self._pool.mesh.turn(left)

    def _figures_of_the_middle(self) -> None:
        """Learn what nodes have done when the stream is closed before its end."""
        if self._report is None and self._driver is not None:
            self._seconds = time.perf_counter() - self._started
            if self._fatal is None and self._pool is not None and not self._pool.has_lost:
                self._hear(CLOSING_S)


def check_apart(tables: Mapping[int, Any], groupings: Mapping[int, Any]) -> None:
    """PlanError where two things would choose the node of the same rows."""
    if set(tables) & set(groupings):
        raise PlanError("balance= moves keys between the nodes, so grouping= can't choose them: give one")


def balancing_of(
    balance: Any, fragments: tuple[Fragment, ...], processes: int, interval: int | None = None
) -> tuple[Balancing | None, dict[int, Assignment]]:
    """What moves keys, and the route tables that fragments begin with.

    Raises
    ------
    PlanError
        As `controllers_of`.
    """
    if balance is None:
        return None, {}
    from ordstream.fragments.balancing import INTERVAL_ROWS, Balancing, controllers_of, tables_of

    controllers = controllers_of(balance, fragments, processes)
    return Balancing(controllers, processes, interval or INTERVAL_ROWS), tables_of(controllers)


def with_routes(topology: Topology, balancing: Balancing, marking: Marking | None) -> Topology:
    """The topology with the route tables of the snapshot that the run goes on from."""
    routes = {} if marking is None else marking.begin.routes
    return replace(topology, tables=balancing.goes_on(topology.fragments, routes))


def marking_of(pipeline: Any, options: Mapping[str, Any], topology: Topology, data: Any) -> Marking | None:
    """What takes the snapshots of a run, where its options ask for a state that stays.

    Raises
    ------
    PlanError, CheckpointError, SourceError
        As `Marking`.
    """
    from ordstream.fragments.marking import Marking
    from ordstream.node.settings import make_settings
    from ordstream.plan.final import final
    from ordstream.plan.lanes import laid_out

    settings = make_settings({name: value for name, value in options.items() if name not in OPTIONS})
    if not settings.keeps_state:
        return None
    plan = laid_out(final(pipeline.plan) if settings.emit == "final" else pipeline.plan)
    return Marking(plan, settings, topology, data)


def blocks_of(
    plan: Plan,
    topology: Topology,
    data: Any,
    marking: Marking | None,
    block_rows: int | None,
    wake: Callable[[], None],
    own_thread: bool = True,
) -> SourceBlocks:
    """The source's rows, from where the run begins."""
    block_rows = block_rows or topology.block_rows
    schema, punctuate = topology.fragments[0].source, topology.options.get("punctuate")
    begin = None if marking is None else marking.begin.latest_time
    clock = source_clock(plan, punctuate, begin) if topology.options.get("given_marks") else None
    instead = None if marking is None or marking.data is data else marking.data
    before = 0 if marking is None else marking.begin.serial
    no_nulls = columns_without_nulls(schema, plan, punctuate)
    return SourceBlocks(data, schema, block_rows, wake, own_thread, before, instead, clock, no_nulls)


#: How long a report waits for nodes that are at work, and how long close() does.
ASKED_S = 1.0
CLOSING_S = 0.2
#: How long close() waits for another thread that is reading.
JOINED_S = 10.0


def stream(
    pipeline: Any, data: Any, processes: int | Processes, options: Mapping[str, Any]
) -> ProcessStream:
    """Run a pipeline over spawned processes and yield output batches as they are ready.

    Parameters
    ----------
    pipeline : Pipeline
    data : Arrow data
        As for `ordstream.node.stream`; read in this process.
    processes : int
    options : mapping
        Of every node; `workers` defaults to 0, one thread per process.

    Raises
    ------
    PlanError
        For an option that does not go with a cut, or a function that can't be sent to another process.
    """
    return ProcessStream(pipeline, data, processes, options)


def run(pipeline: Any, data: Any, processes: int | Processes, options: Mapping[str, Any]) -> Result:
    """Run a pipeline over spawned processes and return all output.

    Raises
    ------
    PlanError
        As `stream`.
    OperatorError, SourceError
        As in one process.
    NodeLost
        A process was killed or crashed.
    """
    with stream(pipeline, data, processes, {**options, "partial": False}) as out:
        batches = list(out)
        return Result(batches, out.schema, out.report, out.shed, out.snapshot)
