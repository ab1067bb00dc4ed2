"""The end of a Spark task that is cancelled: seen from inside, and obeyed."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

WATCH_SECONDS = 0.3  # between two looks at the connection to Spark
GRACE_SECONDS = 10.0  # for a cancelled node to end before its worker is ended

ESTABLISHED = "01"  # TCP states as /proc/net/tcp writes them


class Watchdog:
    """Cancels the node when Spark has closed the task's connection; ends the process if the node doesn't
    end.

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


def task_socket() -> socket.socket | None:
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
                if (
                    int(local.rpartition(":")[2], 16) == theirs
                    and int(remote.rpartition(":")[2], 16) == ours
                ):
                    return state != ESTABLISHED
    except OSError:
        return False
    return False
