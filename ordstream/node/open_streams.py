"""Streams that are open when the interpreter exits are closed while everything is still there: later no
module can be imported, and what closing one met would be printed as a trace.
"""

from __future__ import annotations

import atexit
import multiprocessing.util  # noqa: F401 (it ends processes at exit: registered first, it comes last)
import threading
import weakref

from ordstream._core.flow.reader import Reader
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


@atexit.register
def _close_all() -> None:
    _exits.set()
    for stream in list(open_streams):
        stream.close()
