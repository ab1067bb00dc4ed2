"""Feeding a run: next batch from the source into the core, on the reading thread or on a thread of its own.

A feeder knows its core and its source but not its stream, so that a stream that the user dropped is
collected although its source blocks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ordstream._core.flow.worker_thread import room_for_exceptions
from ordstream.errors import PlanError
from ordstream.node.gathering import Gathered, Passing
from ordstream.node.settings import Settings
from ordstream.node.source import batch_bytes_of, unread_column
from ordstream.node.source_marks import MarkedRows, SourceMark
from ordstream.node.worker_threads import BLOCKED_SOURCE_S, RunThread, join, start

# Given to the core ahead of the workers: so many batches, or batches of so many rows together (fewer than
# the ingress has slots).
FEED_AHEAD = 4
FEED_ROWS = 32_768


class Feeder:
    """Batches of one source for one core run.

    Parameters
    ----------
    core, batches
        The run, and what its source gives.
    schema : pyarrow.Schema
        Of the batches.
    settings : Settings
    most : int
        Bytes of a batch, at most.
    dates_rows : bool
        What a row waits decides something (a shed operator), so none is held.

    Attributes
    ----------
    lock : threading.RLock
        Held around every use of the core that close() must not overtake.
    closed : bool
        The core is gone; written under `lock`.
    error : BaseException or None
        What ended the feeding thread beside the source's own errors, which travel through the core. The run
        was cancelled then.
    arrived_ns : int
        Since when the rows of the next batch wait (`time.monotonic_ns`); 0: since they are fed.
    """

    def __init__(
        self,
        core: Any,
        batches: Iterator[Any],
        schema: pa.Schema,
        settings: Settings,
        most: int,
        *,
        dates_rows: bool,
    ) -> None:
        self.core = core
        self.lock = threading.RLock()  # a signal handler may cancel while this very thread holds it
        self.closed = False
        self.error: BaseException | None = None
        self._batches = batches
        self._names: list[str] = schema.names
        self._arrivals = settings.arrivals
        self.arrived_ns = 0
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._rows = 0
        self._before = core.first_serial - 1
        self._suspends = settings.end == "suspend"
        self._dates_rows = dates_rows or settings.arrivals is not None
        # What the core still has pinned, with the serial of its first row.
        self._pinned: deque[tuple[int, pa.RecordBatch | SourceMark]] = deque()
        self._gathered = Gathered(batch_bytes_of(schema), most)
        self._passing = Passing(self.lock)

    def start_thread(self) -> None:
        """Feed from a thread of its own (a source that may block)."""
        self._thread = RunThread(self._run, "ordstream-feeder")
        start(self._thread)

    @property
    def thread(self) -> threading.Thread | None:
        """The thread of its own that feeds, if there is one."""
        return self._thread

    def stop(self) -> None:
        """Feed no more; wait shortly for the thread."""
        self._stopping = True
        self._passing.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            join(self._thread, BLOCKED_SOURCE_S)

    def let_go(self) -> None:
        """Of the source and its batches, behind the end of the run: a generator that nobody else has ends
        now, with what its `finally` and `with` do, and the data are freed, however long the stream is kept.
        """
        self._batches = iter(())
        with self.lock:
            self._pinned.clear()
            self._gathered.take()

    def wants_batch(self, ahead: int = FEED_AHEAD) -> bool:
        """Whether the core should get another batch now: little waits in it (fewer than `ahead` batches and
        marks, or few rows), and the cap on what is in flight leaves room.
        """
        if self.core.source_ended:
            return False
        pushed, issued, _, _ = self.core.progress()
        return bool(
            (self.core.waiting_batches < ahead or pushed - issued < FEED_ROWS) and self.core.may_feed()
        )

    def feed_one(self) -> bool:
        """Give the core the next batch, the end, or the source's error. True: it was a mark, behind which
        there may be more.
        """
        try:
            batch = next(self._batches, None)
        except BaseException as error:
            if self._thread is None and not isinstance(error, Exception):
                raise  # Ctrl-C on the reading thread
            self._fail(error)
            return False
        with self.lock:
            if self.closed or self.core.source_ended:
                return False
            if isinstance(batch, pa.RecordBatch) and self._gathers() and self._gathered.add(batch):
                self._passing.begin(self._pass_on)
                return False
            self._push_gathered()
            if self.core.source_ended:
                return False
            if batch is None:
                self.core.finish(self._suspends)
                return False
            if isinstance(batch, SourceMark):
                self._push_mark(batch)
                return True
            if isinstance(batch, MarkedRows):
                for rows, time_ in batch.pieces():
                    if rows.num_rows:
                        self._push(rows, self.arrived_ns)
                    if self.core.source_ended:
                        return False
                    if time_ is not None:
                        self._push_mark(SourceMark(time_, clock=batch.clock))
                return True
            self._push(batch, self.arrived_ns)
        return False

    def _push_mark(self, mark: SourceMark) -> None:
        self._pinned.append((self._before + self._rows + 1, mark))
        self._rows += self.core.push_mark(mark.time, mark.clock)

    def _gathers(self) -> bool:
        """Whether small batches would only wait in the core. Where each row's time counts, none is held."""
        return self._thread is not None and not self._dates_rows and self.core.waiting_batches >= FEED_AHEAD

    def _pass_on(self) -> bool:
        """Give the core what is gathered if it has little else; whether anything is left."""
        if self.closed or self.core.source_ended:
            return False
        try:
            if self.core.waiting_batches < FEED_AHEAD and self.core.may_feed():
                self._push_gathered()
        except BaseException as error:  # no memory: the reader must not wait for ever
            self.error = error
            self.core.cancel()
            return False
        return self._gathered.rows > 0

    def _push_gathered(self) -> None:
        since_ns = self._gathered.since_ns
        for batch in self._gathered.take():
            self._push(batch, since_ns)

    def _push(self, batch: pa.RecordBatch, since_ns: int) -> None:
        """Under the lock. A row that the core can't read ends the source behind the rows before it.
        `since_ns`: as `arrived_ns`.
        """
        if self.core.source_ended:
            return
        if self._arrivals is not None and self._rows + batch.num_rows > len(self._arrivals):
            self.core.fail_source(
                PlanError(f"arrivals has {len(self._arrivals)} send times, but more tuples come")
            )
            return
        try:
            self.core.push(batch, since_ns)
        except TypeError as error:
            if batch.num_rows == 1:
                self.core.fail_source(unread_column(batch, self._names, error))
                return
            half = batch.num_rows // 2
            self._push(batch[:half], since_ns)
            self._push(batch[half:], since_ns)
        except Exception as error:
            self.core.fail_source(error)
        else:
            self._pinned.append((self._before + self._rows + 1, batch))
            self._rows += batch.num_rows

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            if not self.closed and not self.core.source_ended:
                self._push_gathered()
                if not self.core.source_ended:
                    self.core.fail_source(error)

    def retire(self) -> None:
        """Let go of input whose outputs have all left. Any thread.

        Whoever feeds calls it first: a reader for whom a batch is always ready never comes to it.
        """
        with self.lock:
            if self.closed:
                return
            pinned = self.core.retire()
            while len(self._pinned) > pinned:
                self._pinned.popleft()

    def source_row(self, serial: int) -> pa.RecordBatch | None:
        """The source tuple of a serial that is still pinned, as a batch of one row."""
        with self.lock:  # its own thread lets go of them
            for first, batch in self._pinned:
                if first <= serial < first + batch.num_rows:
                    assert isinstance(batch, pa.RecordBatch)
                    return batch.slice(serial - first, 1)
        return None

    def _run(self) -> None:
        room_for_exceptions()
        try:
            while not self._stopping and not self.closed and not self.core.source_ended:
                self.retire()
                if self.wants_batch():
                    self.feed_one()
                else:
                    time.sleep(0.001)
        # no memory even to hand an error over: the reader must not wait for ever
        except BaseException as error:
            self.error = error
            with self.lock:
                if not self.closed:
                    self.core.cancel()
