"""Ctrl-C and child processes: a terminal sends SIGINT to the whole process group, but only the parent
should act on it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started inside never see SIGINT, not even while they start; this thread sees it
    afterwards.

    A child that is interrupted while it imports its modules prints a trace, and a pool of such children may
    never end; so does one whose parent is interrupted before it has told the child what to do. Where there
    are no signal masks (Windows) nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    # The mask is what children inherit, but it is this thread's alone: the kernel gives the signal to
    # another one (of NumPy's, say), and Python interrupts the main thread all the same.
    present: Any = (
        signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    )
    try:
        if callable(present):
            signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
        # The first process that multiprocessing spawns starts its tracker, which lets the signal in again.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if callable(present):
            signal.signal(signal.SIGINT, present)
        if came:
            signal.raise_signal(signal.SIGINT)
