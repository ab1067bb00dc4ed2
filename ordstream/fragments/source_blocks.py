"""The source's rows in blocks with their serials, without waiting for a source that may block."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.errors import OrdstreamError, SourceError, told
from ordstream.fragments.time_marks import SourceClock
from ordstream.fragments.topology import BLOCK_ROWS
from ordstream.ground.ordertags import source_tags
from ordstream.ground.user_code import place_of
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import clock_columns, clock_of
from ordstream.plan.columns import used_source_columns, without_nulls
from ordstream.plan.plan import Plan

#: Bytes of a block. A source which may block is ahead by so many batches, or by a block's bytes: of batches
#: of a few rows a block is made while the one before is on its way.
BLOCK_BYTES = 1 << 20
AHEAD = 4
#: Rows of such a source wait for more while enough blocks are on their way, but not longer, in seconds: a
#: block of few rows costs nodes as much as one of some hundreds.
GATHER_S = 0.004
#: Of a node's part of the rows that are there, a block that goes to one node whole has a quarter; and an
#: eighth of those that went before at least, which keeps blocks from becoming small at the end of each
#: batch. But no more than so many for that where the source is live: what came last may be one burst.
PARTS = 4
LIVE_PART = 512
# Between two calls of `progress`.
PROGRESS_S = 0.1


def columns_without_nulls(schema: pa.Schema, plan: Plan, punctuate: Every | None) -> list[int]:
    """Columns of the blocks in which a null is an error, as in one process."""
    used = [*used_source_columns(plan)]
    for column in clock_columns(clock_of(plan, punctuate)):
        used[column] = True
    found = (schema.get_field_index(plan.source.names[k]) for k in without_nulls(plan.source, used))
    return [place for place in found if place >= 0]


class SourceBlocks:
    """See the module.

    Parameters
    ----------
    data : Arrow data or iterable of record batches
    schema : pyarrow.Schema
    block_rows : int
    wake : callable
        Called from the source's thread, where there is one, when a block is there.
    own_thread : bool
        Whether a source that may block gets a thread.
    before : int
        Serial in front of the first tuple.
    instead : iterable of record batches, optional
        What is read in place of `data`, of which it gives the rows.
    clock : SourceClock, optional
    no_nulls : sequence of int
        Columns in which a null ends the source there: nodes know their own rows only.

    Attributes
    ----------
    rows : int
        Given so far.
    error : BaseException or None
        What ended the source.
    over : bool
        Nothing more comes.
    schema : pyarrow.Schema
        Of the blocks.
    marks : list of (int, int)
        Of the last block: serial of the tuple that shows a mark, and the mark's time.
    """

    def __init__(
        self,
        data: Any,
        schema: pa.Schema,
        block_rows: int = BLOCK_ROWS,
        wake: Callable[[], None] = lambda: None,
        own_thread: bool = True,
        before: int = 0,
        instead: Any = None,
        clock: SourceClock | None = None,
        no_nulls: Sequence[int] = (),
    ) -> None:
        from ordstream._core.ground.arrow import core_schema
        from ordstream.node import source

        self.rows = self._before = before
        self._nodes = 1
        self.error: BaseException | None = None
        self.over = False
        self.clock = clock
        self.marks: list[tuple[int, int]] = []
        self._block_rows = block_rows
        self.schema = core_schema(schema)
        self._batches = source.batches(data if instead is None else instead, self.schema, no_nulls)
        self._rest: pa.RecordBatch | None = None
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._came: deque[tuple[pa.RecordBatch | BaseException | None, float]] = deque()  # since when
        self._put = self._got = 0  # bytes, of the source's thread and of the other one
        self._rows_put = self._rows_got = 0
        self._room = threading.Event()
        self._stopping = False
        if own_thread and source.is_live(data):
            from ordstream.node.worker_threads import RunThread

            self._thread = RunThread(self._run, "ordstream-feeder")

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that asks the source, if there is one."""
        return self._thread

    def start(self) -> None:
        """Start the source's thread, where it has one."""
        from ordstream.node.worker_threads import start

        if self._thread is not None:
            start(self._thread)

    @property
    def latest(self) -> int | None:
        """What the clock shows behind the last block; None: nothing, or there is no clock."""
        return None if self.clock is None else self.clock.latest

    def at_most(self, rows: int) -> None:
        """Give no larger blocks than of so many rows."""
        self._block_rows = min(self._block_rows, rows)

    def shared_by(self, nodes: int) -> None:
        """Each block goes whole to one of so many nodes: give parts of what is there, for all of them."""
        self._nodes = nodes

    def _part(self, left: int) -> int:
        least = (self.rows - self._before) // (2 * PARTS * self._nodes)
        if self._thread is not None:
            least = min(least, LIVE_PART)
        return max(1, least, -(-left // (PARTS * self._nodes)))

    def ready(self) -> bool:
        """Whether `next` gives a block, the end or the error without waiting."""
        return not self.over and (self._rest is not None or self._thread is None or bool(self._came))

    def due_in(self) -> float:
        """Seconds until a block goes also where enough of them are on their way, if one is `ready`."""
        if self._rest is not None or not self._came:
            return 0.0
        item, since = self._came[0]
        whole = self._rows_put - self._rows_got >= self._block_rows or self._put - self._got >= BLOCK_BYTES
        if whole or not isinstance(item, pa.RecordBatch):
            return 0.0
        return max(0.0, since + GATHER_S - time.monotonic())

    def next(self, most: int | None = None) -> tuple[int, pa.RecordBatch] | None:
        """The next block, of `most` rows at most, with its first row's serial; None: nothing is there now,
        or the source is over.
        """
        if self.over:
            return None
        if self._rest is None:
            try:
                self._rest = self._asked()
            except Exception as error:
                self.error = _source_error(error, self.rows)
                self.over = True
        if self._rest is None:
            return None
        rows = self._block_rows if most is None else min(self._block_rows, most)
        if self._nodes > 1:
            rows = min(rows, self._part(self._rest.num_rows))
        if self._rest.nbytes > BLOCK_BYTES:
            rows = max(1, min(rows, self._rest.num_rows * BLOCK_BYTES // self._rest.nbytes))
        block = self._rest.slice(0, rows)
        self._rest = self._rest.slice(rows) if self._rest.num_rows > rows else None
        first, self.rows = self.rows + 1, self.rows + block.num_rows
        return (first, block) if self.clock is None else self._clocked(self.clock, first, block)

    def _clocked(
        self, clock: SourceClock, first: int, block: pa.RecordBatch
    ) -> tuple[int, pa.RecordBatch] | None:
        """The block up to where the source runs backwards, if it does."""
        self.marks, failed = clock.take(first, block)
        if failed is None:
            return first, block
        row, self.error = failed
        self.over, self.rows = True, first + row - 1
        return (first, block.slice(0, row)) if row else None

    def _asked(self) -> pa.RecordBatch | None:
        if self._thread is None:
            batch = next(self._batches, None)
            self.over = batch is None
            return batch
        several: list[pa.RecordBatch] = []
        count = 0
        while self._came and count < self._block_rows:
            item, _ = self._came[0]
            if several and not isinstance(item, pa.RecordBatch):
                break
            self._came.popleft()
            if isinstance(item, pa.RecordBatch):
                self._got += item.nbytes
                self._rows_got += item.num_rows
            self._room.set()
            if isinstance(item, BaseException):
                try:
                    raise item
                finally:
                    del item  # else its traceback's frame has it: a circle, with the frames of the source
            if item is None:
                self.over = True
                return None
            several.append(item)
            count += item.num_rows
        if len(several) > 1:
            return pa.concat_batches(several)
        return several[0] if several else None

    def _run(self) -> None:
        """The source's thread."""
        item: pa.RecordBatch | BaseException | None
        while not self._stopping:
            try:
                item = next(self._batches, None)
            except BaseException as error:
                item = error
            while not self._has_room():
                self._room.clear()
                if not self._has_room():
                    self._room.wait()
            if isinstance(item, pa.RecordBatch):
                self._put += item.nbytes
                self._rows_put += item.num_rows
            self._came.append((item, time.monotonic()))
            if len(self._came) == 1:  # else the other thread comes for those in front, and finds this one
                self._wake()
            if not isinstance(item, pa.RecordBatch):
                item = None  # as in `_asked`
                return

    def _has_room(self) -> bool:
        few = len(self._came) < AHEAD
        return few or self._put - self._got < BLOCK_BYTES or self._stopping

    def stop(self) -> None:
        """Ask for no more; wait shortly for the thread. A generator that nobody else has ends now."""
        from ordstream.node.worker_threads import BLOCKED_SOURCE_S, join

        self.over = self._stopping = True
        self._room.set()
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            join(thread, BLOCKED_SOURCE_S)
        self._batches = iter(())

    def let_go(self) -> None:
        """Of rows that were not given out, and of the error; behind `stop`."""
        self._rest = self.error = None
        self._came.clear()


def _source_error(error: Exception, rows: int) -> BaseException:
    if isinstance(error, OrdstreamError):
        return error
    place = place_of(error)
    text = f"the source failed after {rows} tuples: {told(error)}"
    wrapped = SourceError(f"{text}\n  at: {place}" if place else text)
    wrapped.__cause__ = error
    return wrapped


def tagged(first: int, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A block with its rows' tags; `schema`: of both."""
    tags = source_tags(np.arange(first, first + rows.num_rows))
    return pa.RecordBatch.from_arrays([*rows.columns, tags], schema=schema)


class Progress:
    """Tells a callback about every 100 ms how far a run is."""

    def __init__(self, callback: Callable[[int, int], object] | None) -> None:
        self._callback, self._told = callback, time.monotonic()

    def __call__(self, issued: int, through: int, *, last: bool = False) -> None:
        if self._callback is not None and (last or time.monotonic() - self._told >= PROGRESS_S):
            self._told = time.monotonic()
            self._callback(issued, through)
