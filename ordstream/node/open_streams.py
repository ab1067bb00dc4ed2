"""Streams that are open when the interpreter exits are closed while everything is still there: later no
module can be imported, and what closing one met would be printed as a trace. In the child of a fork they are
forgotten.
"""

from __future__ import annotations

import atexit
import multiprocessing.util  # noqa: F401 (it ends processes at exit: registered first, it comes last)
import os
import threading
import weakref
from collections.abc import Callable

from ordstream._core.flow.reader import Reader
from ordstream._core.flow.worker_thread import forget_starts
from ordstream.errors import Cancelled

#: Of this process; each comes when it opens, and goes when it is dropped. One may be closed already: closing
#: it again does nothing.
open_streams: weakref.WeakSet[Reader] = weakref.WeakSet()
_exits = threading.Event()


def cancelled() -> BaseException:
    """What the reader of a cancelled run gets. A daemon thread at exit ends without a word, as such threads
    do: nobody is there to be told, and one that starts again after an `Exception` would never end.
    """
    if _exits.is_set() and threading.current_thread().daemon:
        return SystemExit()
    return Cancelled("the run was cancelled before its end")


def closed_here() -> Callable[[], BaseException]:
    """What a reader gets who begins behind a close() in this thread: here the end, in others as where it is
    cancelled. (A thread's identity may be that of one that has ended.)
    """
    closer = threading.current_thread()
    return lambda: StopIteration() if threading.current_thread() is closer else cancelled()


@atexit.register
def _close_all() -> None:
    _exits.set()
    for stream in list(open_streams):
        stream.close()


def _forget_after_fork() -> None:
    forget_starts()
    for stream in list(open_streams):
        if hasattr(stream, "after_fork"):  # one of processes asks which process it is in
            stream.after_fork()
    open_streams.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
