"""A source that is read on a thread of its own, one batch ahead: whoever waits for it may give up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ordstream._core.flow.worker_thread import room_for_exceptions
from ordstream.node.worker_threads import SourceThread, join, start


class Reading:
    """The batches of a source, as an iterator that can be asked whether the next one is there.

    Parameters
    ----------
    batches : iterator of record batches
        Read by the thread only, which begins when it is first waited for.
    came : threading.Condition
        Told when something is there; may be shared by several.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], came: threading.Condition) -> None:
        self._batches, self._came = batches, came
        self._there: list[Any] = []  # a batch, None for the end, or an exception; at most one
        self._left = False
        self._thread: SourceThread | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.begin()
        with self._came:
            self._came.wait_for(lambda: self.ready)
            found = self._there[0]
            if isinstance(found, BaseException):
                self._there[0] = None
            elif found is not None:
                del self._there[:]
                self._came.notify_all()
        if found is None:
            raise StopIteration
        if isinstance(found, BaseException):
            try:
                raise found
            finally:
                del found  # else its traceback's frame has it: a circle, with the frames of the source
        return found

    @property
    def ready(self) -> bool:
        """Whether the next batch, the end or an error is there."""
        return bool(self._there)

    def begin(self) -> None:
        """Begin to read, if that has not begun."""
        if self._thread is None:
            self._thread = SourceThread(self._run, "ordstream-source")
            self._thread.asked_by = threading.current_thread()
            start(self._thread)

    def leave(self) -> None:
        """Read no more: the thread ends when the source has given what it is asked for."""
        with self._came:
            self._left = True
            self._came.notify_all()

    def join(self, seconds: float) -> None:
        """Behind `leave`: wait so long for the thread; one whose source blocks is a daemon."""
        if self._thread is not None and self._thread is not threading.current_thread():
            join(self._thread, max(0.0, seconds))

    def _run(self) -> None:
        room_for_exceptions()
        try:
            for batch in self._batches:
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Any) -> bool:
        with self._came:
            self._came.wait_for(lambda: not self._there or self._left)
            if not self._left:
                self._there.append(item)
                self._came.notify_all()
            return not self._left
