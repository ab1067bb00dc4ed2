"""Snapshots of one stream: who asks for them, what a marker brings along, and the thread that writes them.

The core copies the states as a marker passes (`_core/flow/exports.pxd`). The reading thread meets the marker
behind the last output in front of it, makes a `Snapshot` of what came, and goes on. Sorting, checksums and
writing are the background thread's.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordstream.errors import CheckpointError, PlanError, told
from ordstream.ground.duration import nanoseconds
from ordstream.ground.numbers import as_int
from ordstream.ground.ordertags import OrderTag
from ordstream.ground.types import INT64_MAX
from ordstream.node.positions import Positions
from ordstream.node.report import LAST_SNAPSHOTS, SnapshotFigures
from ordstream.node.settings import Settings
from ordstream.node.shedding import seen
from ordstream.node.worker_threads import join, start
from ordstream.plan.clock import clock_said
from ordstream.plan.plan import Plan
from ordstream.snapshots.checkpoint import Checkpoint
from ordstream.snapshots.fit import check_can_snapshot, check_clock, fit
from ordstream.snapshots.snapshot import MemoryRows, Snapshot

#: Where a run begins that goes on from nothing.
BEGINNING = Snapshot(0, OrderTag(0))
#: How often somebody who waits for a snapshot looks who reads, and how long nobody may, seconds.
WAIT_S, UNREAD_S = 0.05, 1.0


class SnapshotFuture(Future[Snapshot]):
    """A snapshot that was asked for. It is complete when the outputs in front of its marker were read, and,
    where there is a checkpoint, when it lies on the disk.

    Parameters
    ----------
    reader : callable
        Who read the stream last: identity of a thread; None: nobody has.
    """

    def __init__(self, reader: Callable[[], int | None]) -> None:
        super().__init__()
        self._reader = reader
        self.set_running_or_notify_cancel()  # a marker is on its way: it can't be called back

    def result(self, timeout: float | None = None) -> Snapshot:
        """The snapshot.

        Raises
        ------
        RuntimeError
            The thread that reads the stream would wait for itself, or nobody reads it.
        CheckpointError
            It could not be written, or the stream ended before.
        TimeoutError
        """
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`, for its exception."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        began = time.monotonic()
        until = None if timeout is None else began + timeout
        while not self.done():
            now = time.monotonic()
            reader = self._reader()
            if reader == threading.get_ident() or (reader is None and now - began > UNREAD_S):
                raise RuntimeError(
                    "the snapshot is complete when the outputs in front of it were read, and "
                    + ("nobody reads them" if reader is None else "this is the thread that reads them")
                    + ": read the stream on, then ask (or ask in another thread)"
                )
            left = WAIT_S if until is None else min(WAIT_S, until - now)
            if left <= 0.0:
                return
            wait([self], left)


def seconds_of(every: Any) -> float | None:
    """`every` as seconds; None: it is a number of rows.

    Raises
    ------
    PlanError
        It is neither.
    """
    every = as_int(every)
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        if every > INT64_MAX:
            raise PlanError(f"every must fit into int64, got {every!r} tuples")
        return None
    try:
        found = float(nanoseconds(every, "every")) / 1e9
    except PlanError:
        found = 0.0
    if not 0.0 < found < float("inf"):
        raise PlanError(
            f"every must be a time such as '10s', '500ms' or '5m', a timedelta, or a number of tuples; got "
            f"{every!r}"
        )
    return found


def where_to_begin(settings: Settings, checkpoint: Checkpoint | None) -> Snapshot:
    """The snapshot that a run goes on from: the one that was given, else the checkpoint's newest one that
    can give every output behind `emitted_through`.

    Raises
    ------
    PlanError
        `restore` is no snapshot.
    CheckpointError
        The newest is damaged, and the message offers the one before; or there is none that fits.
    """
    through, found = settings.emitted_through, settings.restore
    if found is None:
        return _newest(checkpoint, through) if checkpoint is not None else BEGINNING
    if isinstance(found, str | os.PathLike):
        if not Path(found).is_dir():
            raise CheckpointError(f"restore={os.fspath(found)!r}: there is no such folder")
        found = Checkpoint(found)
    if isinstance(found, Checkpoint):
        found = found.latest()
        if found is None:
            raise CheckpointError(
                f"restore={settings.restore!r}: it has no snapshot yet; leave restore= out to begin anew"
            )
    if not isinstance(found, Snapshot):
        raise PlanError(
            "restore must be a snapshot (result.snapshot, or od.Checkpoint(folder).read(number)), a "
            f"checkpoint or its folder; got {type(found).__name__}"
        )
    if through is not None and found.last_output > through:
        raise CheckpointError(
            f"outputs behind {through} were not delivered, and the snapshot at serial {found.serial} stands "
            f"behind {found.last_output}: it can't give those in between again. Restore an older one: "
            "od.Checkpoint(folder).read(number)"
        )
    return found


def _newest(checkpoint: Checkpoint, through: OrderTag | None) -> Snapshot:
    newest = checkpoint.latest()
    if newest is None:
        return BEGINNING
    if through is None or newest.last_output <= through:
        return newest
    for info in reversed(checkpoint.snapshots()):
        if info.intact and info.serial is not None and info.serial < newest.serial:
            older = checkpoint.read(info.number)
            if older.last_output <= through:
                return older
    raise CheckpointError(
        f"{checkpoint.folder}: outputs behind {through} were not delivered, and all snapshots that are kept "
        "stand behind later ones. Begin anew in another folder, with the same emitted_through; and keep "
        "more: Checkpoint(folder, keep=)"
    )


def together(parts: Iterable[pa.RecordBatch], rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about so many: what is stored may be one small batch per key group. Each
    has rows of one schema: files of one state may be of several runs.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for part in parts:
        if held and not part.schema.equals(held[0].schema):
            yield pa.concat_batches(held)
            held, count = [], 0
        held.append(part)
        count += part.num_rows
        if count >= rows:
            yield pa.concat_batches(held)
            held, count = [], 0
    if held:
        yield pa.concat_batches(held)


class Snapshotting:
    """See the module. Thread safety: `request` from any thread, everything else from the reading thread.

    Parameters
    ----------
    plan : Plan
    settings : Settings
        Of state: `checkpoint`, `every`, `restore`, `emitted_through`.

    Raises
    ------
    PlanError
        An operator's state can't be written down, or an option is none.
    CheckpointError
        The checkpoint, or the snapshot, does not fit.
    """

    def __init__(self, plan: Plan, settings: Settings) -> None:
        checkpoint, every = settings.checkpoint, settings.every
        check_can_snapshot(plan)
        self.figures: deque[SnapshotFigures] = deque(maxlen=LAST_SNAPSHOTS)
        if every is not None and checkpoint is None:
            raise PlanError("every= says how often checkpoint= is written: give a folder, checkpoint='...'")
        seconds = None if every is None else seconds_of(every)
        self.rows = int(every) if every is not None and seconds is None else 0
        self.seconds, self._due = seconds, 0.0
        self._checkpoint = checkpoint
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            self._checkpoint = Checkpoint(checkpoint)
        self.begin = where_to_begin(settings, self._checkpoint)
        self.read_behind = self.begin.serial  # tuples before the first that the source gives
        self.states = fit(plan, self.begin)
        self.clock = "" if settings.given_marks else clock_said(plan, settings.punctuate)
        check_clock(self.clock, self.begin)
        self._operators: dict[str, tuple[int, Any]] = {}
        self._schemas: dict[int, Any] = {}  # of the rows of state, by index in the core
        self._sheds: Sequence[tuple[Any, str, Any]] = ()
        self.last: Snapshot | None = None
        self.error: CheckpointError | None = None
        self._asked: dict[SnapshotFuture, int] = {}
        self._lock = threading.Lock()
        self._ended = False
        # One waits while one is written; a further one makes the reader wait: memory stays bounded.
        self._waiting: queue.Queue[Any] = queue.Queue(1)
        self._writer: threading.Thread | None = None
        self._told = False  # the writer, that nothing more comes
        self._in_work = 0

    # ------------------------------------------------------------------------------------------ beginning

    def positions(self, data: Any) -> Positions:
        """The source, which goes to where the run begins. Errors: as `Positions`."""
        self.begin.check_position()
        found = Positions(data, self.begin.serial, self.begin.position, self._checkpoint is not None)
        self.read_behind = found.before
        return found

    def with_models(self, plan: Plan) -> Plan:
        """The plan with shed operators that begin with what they had learnt."""
        models = self.begin.models
        if not models:
            return plan
        from ordstream.balance.sketches import ExecutionTimes

        operators: list[Any] = list(plan.operators)
        for position, one in enumerate(operators):
            if one.name in models and one.sheds and one.frozen is None:
                operators[position] = one.changed(model=ExecutionTimes.from_bytes(models[one.name]))
        return plan.replaced(operators)

    def bind(self, operators: Mapping[str, tuple[int, Any]]) -> None:
        """The operators that keep a state: name -> index in the core, and the operator."""
        self._operators = dict(operators)
        self._schemas = {index: one.state_schema() for index, one in operators.values()}

    def install(
        self,
        core: Any,
        operators: Mapping[str, tuple[int, Any]],
        sheds: Sequence[tuple[Any, str, Any]] = (),
    ) -> None:
        """Give the states to a core run that has not started. `operators`: name -> index in the core, and
        the operator. `sheds`: as for `ordstream.node.shedding.outcome`.

        Raises
        ------
        CheckpointError
            A row can't be taken in.
        """
        self.bind(operators)
        self._sheds = sheds
        for one, _, kernel in sheds:
            kernel.begins_behind(self.begin.serial, self.begin.shed.get(one.name, 0))
        for name, (rows, adapt) in self.states.items():
            index, operator = operators[name]
            taken = 0
            for batch in together(rows.batches()):
                fitting = adapt(batch)
                try:
                    core.install(index, fitting)
                except CheckpointError:
                    raise
                except Exception as error:
                    at = f"row {taken + error.row + 1} of its state: " if hasattr(error, "row") else ""
                    raise CheckpointError(
                        f"operator {name!r} ({operator.op}) can't go on from the snapshot at serial "
                        f"{self.begin.serial}: {at}{error}"
                    ) from error
                taken += batch.num_rows

    # ------------------------------------------------------------------------------------------ asking

    def request(self, core: Any, reader: Callable[[], int | None]) -> SnapshotFuture:
        """Ask for a snapshot where the stream is now. Any thread. `reader`: as for `SnapshotFuture`."""
        future = SnapshotFuture(reader)
        with self._lock:
            if self._ended or core is None:
                future.set_exception(CheckpointError("the stream has ended: no snapshot can be taken of it"))
            else:
                self._asked[future] = core.request_snapshot()
        return future

    def _forget_places(self, core: Any, positions: Positions) -> None:
        """Of the source, in front of all snapshots that are still to come, where none is on its way: of a
        stream that is seldom asked for one there is no place for every batch since.
        """
        emitted = int(core.progress()[2])  # before the question: who asks later gets a marker behind it
        with self._lock:
            if self._asked or self._in_work or self.rows:
                return
        positions.forget(emitted)

    def tick(self, core: Any, positions: Positions | None = None) -> None:
        """Ask for the next snapshot when it is time; the reader's thread. `positions`: of the source, if it
        can go back.

        Raises
        ------
        CheckpointError
            One could not be written.
        """
        self.raise_error()
        if positions is not None and positions.many:
            self._forget_places(core, positions)
        if self.seconds is None:
            return
        now = time.monotonic()
        if not self._due:
            self._due = now + self.seconds
        elif now >= self._due and not self._in_work:
            self._due = now + self.seconds
            self._in_work += 1
            core.request_snapshot()

    def raise_error(self) -> None:
        """Raise what the writer met."""
        if self.error is not None:
            raise self.error

    # ------------------------------------------------------------------------------------------ a marker

    def passed(
        self,
        core: Any,
        number: int,
        through: tuple[OrderTag, OrderTag],
        position: Callable[[int], Any],
        models: Mapping[str, bytes],
        routes: Mapping[str, bytes] | None = None,
    ) -> None:
        """The reader met a marker: what the core exported for it becomes a snapshot.

        Parameters
        ----------
        core
            The run.
        number : int
            The marker's.
        through : (OrderTag, OrderTag)
            The commit point there, and the tag of the last output of this run in front of it.
        position : callable
            Serial -> where the source stood.
        models, routes : mapping of str to bytes
            As of `Snapshot`.
        """
        began = time.perf_counter()
        parts: dict[int, list[pa.RecordBatch]] = {index: [] for index in self._schemas}
        served, latest, ns = 0, None, 0
        for _, index, batches, clock, took in core.exported(number, self._schemas):
            if index < 0:
                served, latest = clock
            else:
                parts[index] += batches
                ns += took
        serial = core.emitted_through
        states = {
            one.name: MemoryRows(
                one.state_identity(), one.state_schema(), parts[index], len(one.key), one.state_order()
            )
            for index, one in self._operators.values()
        }
        commit_point, last_output = through
        snapshot = Snapshot(
            serial,
            commit_point,
            latest,
            position(serial),
            states,
            models,
            last_output if last_output.index >= 0 else self.begin.last_output,
            routes or {},
            "" if latest is None else self.clock,
            seen(self._sheds, serial),
        )
        with self._lock:
            self.last = snapshot
            futures = [future for future, number in self._asked.items() if number <= served]
            for future in futures:
                del self._asked[future]
        work = (snapshot, futures, began, ns / 1e9)
        if self._checkpoint is None:
            self._complete(*work)
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="ordstream-snapshots", daemon=True)
            start(self._writer)
        self._waiting.put(work)

    def _write(self) -> None:
        while (work := self._waiting.get()) is not None:
            if self.error is None:
                self._complete(*work)
            else:
                self._fail(work[1], self.error)
            self._in_work = 0

    def _complete(
        self, snapshot: Snapshot, futures: list[SnapshotFuture], began: float, stall: float
    ) -> None:
        written = None
        if self._checkpoint is not None:
            try:
                written = self._checkpoint.write(snapshot, low=True)
                in_files = self._checkpoint.read(written.number)
                with self._lock:
                    if self.last is snapshot:  # so that no state stays in memory
                        self.last = in_files
            except Exception as error:  # the reader raises it: the stream must not go on as if it were safe
                failed = CheckpointError(told(error))
                failed.__cause__ = error
                self.error = error if isinstance(error, CheckpointError) else failed
                self._fail(futures, self.error)
                return
        size = 0
        if written is None:
            size = sum(part.nbytes for rows in snapshot.states.values() for part in rows.batches())
        seconds = time.perf_counter() - began
        self.figures.append(
            SnapshotFigures(snapshot.serial, snapshot.num_rows, size, seconds, stall)
            if written is None
            else SnapshotFigures(
                snapshot.serial,
                snapshot.num_rows,
                written.bytes,
                seconds,
                stall,
                written.sort_seconds,
                written.write_seconds,
                written.sync_seconds,
            )
        )
        for future in futures:
            future.set_result(snapshot)

    @staticmethod
    def _fail(futures: list[SnapshotFuture], error: CheckpointError) -> None:
        for future in futures:
            future.set_exception(error)

    # ------------------------------------------------------------------------------------------ the end

    def end(self) -> None:
        """The stream has ended: wait for what is being written. Idempotent; whoever reads, or nobody."""
        with self._lock:
            self._ended = True
            left, self._asked = list(self._asked), {}
        self._fail(left, CheckpointError("the stream ended before a marker passed"))
        if self._writer is not None:  # until it has ended: whoever is interrupted here comes again
            if not self._told:
                self._waiting.put(None)
                self._told = True
            join(self._writer)
            self._writer = None
