"""Small batches of a source made one before the core gets them.

A batch costs the feeding thread and the workers some microseconds, and so does each call of a function for
its rows: no chunk lies in two batches. What lies in memory is gathered as it is read. Of a source that gives
batches when they come, those are gathered that would wait in the core behind others, and never for longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from ordstream.node.worker_threads import join, start

#: A batch is small that has fewer rows and bytes.
SMALL_ROWS = 512
SMALL_BYTES = 64 << 10
#: And tiny that has no more rows than this: the bytes of so many are looked at together.
TINY_ROWS = 32
UNSEEN = 16
#: So many are enough: rows of a chunk.
ENOUGH_ROWS = 4096
ENOUGH_BYTES = 1 << 20
#: How often it is looked whether what is gathered may go on, while the source gives nothing.
LOOK_S = 0.002
STOP_S = 0.5


class Gathered:
    """Batches of one schema, in order.

    Parameters
    ----------
    bytes_of : callable
        Bytes of a batch.
    most : int
        Bytes of a batch that they become, at most.

    Attributes
    ----------
    rows : int
        Of all.
    since_ns : int
        When the first came (`time.monotonic_ns`).
    """

    def __init__(self, bytes_of: Callable[[pa.RecordBatch], int], most: int) -> None:
        self.rows = self.since_ns = 0
        self._bytes_of, self._most = bytes_of, min(most, ENOUGH_BYTES)
        self._batches: list[pa.RecordBatch] = []
        self._unseen: list[pa.RecordBatch] = []  # the last ones, tiny, whose bytes were not looked at
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take a small batch that has room; False: it is not small, or there is none."""
        rows = batch.num_rows
        if rows >= SMALL_ROWS or self.rows + rows > ENOUGH_ROWS or self._bytes > self._most:
            return False
        if rows <= TINY_ROWS and (self._unseen or self._bytes_of(batch) * UNSEEN <= self._most):
            self._unseen.append(batch)
            if len(self._unseen) >= UNSEEN:
                self._see()
        else:
            self._see()
            size = self._bytes_of(batch)
            if size >= SMALL_BYTES or self._bytes + size > self._most:
                return False
            self._bytes += size
            self._batches.append(batch)
        if not self.rows:
            self.since_ns = time.monotonic_ns()
        self.rows += rows
        return True

    def _see(self) -> None:
        """The bytes of the tiny ones, at once: for each it takes longer than to put them together."""
        if self._unseen:
            together = _together(self._unseen)
            size = sum(map(self._bytes_of, together))
            self._batches += together if size <= self._most else self._unseen
            self._bytes += size
            self._unseen = []

    def take(self) -> list[pa.RecordBatch]:
        """All of them, which are forgotten: as one batch, or as they came where that would be too large."""
        self._see()
        found = _together(self._batches) if self._bytes <= self._most else self._batches
        self.rows, self._batches, self._bytes = 0, [], 0
        return found


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As one batch; as they came where Arrow can't put them together, though it can read each: of lists that
    were cast from large ones and hold nothing here, the values begin behind their buffer.
    """
    if len(batches) <= 1:
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowException:
        return batches


def gathered(
    batches: Iterable[pa.RecordBatch], bytes_of: Callable[[pa.RecordBatch], int], most: int
) -> Iterator[pa.RecordBatch]:
    """The same rows, where asking for a batch takes no time. An error comes behind the rows before it."""
    held = Gathered(bytes_of, most)
    failure: Exception | None = None
    left = iter(batches)
    while True:
        try:
            batch = next(left, None)
        except Exception as error:
            batch, failure = None, error
        if batch is not None and held.add(batch):
            continue
        yield from held.take()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # else its traceback's frame has it: a circle, with the data
        if batch is None:
            return
        if not held.add(batch):
            yield batch


class Passing:
    """A thread that passes on what is gathered, once it may go on, while the feeding thread waits for its
    source.

    Thread safety: `begin` under the lock, `stop` from any thread that does not hold it.

    Parameters
    ----------
    lock : threading.RLock
        Held around what is gathered.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()
        self._over = threading.Event()
        self._at_it = False  # under the lock

    def begin(self, pass_on: Callable[[], bool]) -> None:
        """Something is gathered.

        Parameters
        ----------
        pass_on : callable
            Passes on what may go; returns whether anything is left. Called under the lock. The thread alone
            keeps it: it refers to whoever has this object, and such a circle would wait for Python's
            collector, with all that the run holds.
        """
        if self._at_it:
            return  # it looks again, after this
        self._at_it = True
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(pass_on,), name="ordstream-passing", daemon=True
            )
            start(self._thread)
        self._wanted.set()

    def stop(self) -> None:
        """End the thread, and wait shortly for it: a signal handler may hold the lock. It passes on nothing
        any more once the run is closed.
        """
        self._over.set()
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            join(self._thread, STOP_S)

    def _run(self, pass_on: Callable[[], bool]) -> None:
        while not self._over.is_set():
            self._wanted.wait()
            self._wanted.clear()
            left = True
            while left and not self._over.wait(LOOK_S):
                with self._lock:
                    left = self._at_it = pass_on()
