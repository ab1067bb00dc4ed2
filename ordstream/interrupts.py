"""Ctrl-C and child processes: a terminal sends SIGINT to the whole process group, but only the parent should act on it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started inside never see SIGINT, not even while they start; this thread sees it afterwards.

    A child that is interrupted while it imports its modules prints a trace, and a pool of such children may never end. Where there
    are no signal masks (Windows) nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
