"""Threads of workers as Ctrl-C may find them: their start, the core's work within them, and the interrupt
of a function of the user's that runs in one.

Compiled for the same reason as the reader (reader.pyx): an interrupt can't come in between.
"""
from cpython.ref cimport PyObject
from ordstream._core.ground.memory_reserve cimport reserve_leave

import _signal
import threading
from _thread import RLock, get_ident, stack_size as _thread_stack_size
from time import monotonic

cdef extern from "Python.h":
    int PyThreadState_SetAsyncExc(unsigned long thread, PyObject* exception)

cdef extern from "<exception>" namespace "std":
    int uncaught_exceptions()


# The stack size of new threads is one number for the whole process. This lock is held while it is ours and
# not the user's.
_stack_size = RLock()


def forget_starts():
    """To be called in a child after a fork: the thread that may have held the lock does not exist there."""
    global _stack_size
    _stack_size = RLock()


def start_surely(thread, Py_ssize_t stack):
    """Call `thread.start()` with a stack of `stack` bytes, or of the user's size if that is larger. An
    interrupt that comes meanwhile is raised once the thread has started.

    Python's own `start` does not cope with an interrupt: it counts a thread that never ran for ever, or
    raises RuntimeError instead of the interrupt. `threading.stack_size` is what it was afterwards.
    """
    came = []
    present = None
    if get_ident() == threading.main_thread().ident:
        present = _signal.getsignal(_signal.SIGINT)

    def note(number, frame):
        came.append(number)

    if callable(present):
        try:
            _signal.signal(_signal.SIGINT, note)
        except ValueError:  # not the main interpreter
            present = None
    try:
        _stack_size.acquire()
        try:
            before = _thread_stack_size(stack)
            try:
                if before > stack:
                    _thread_stack_size(before)
                thread.start()
            finally:
                _thread_stack_size(before)
        finally:
            _stack_size.release()
    finally:
        if callable(present):
            _signal.signal(_signal.SIGINT, present)
        if came:
            _signal.raise_signal(_signal.SIGINT)


def room_for_exceptions():
    """Have C++ make the calling thread's room for exceptions, while there is memory (worker_loop does so for
    workers): it ends the process where it gets none for the first one. So with what memory_reserve.pxd knows
    of a thread. Returns 0.
    """
    reserve_leave(reserve_leave(False))
    return uncaught_exceptions()


def work(core, int index, left):
    """Be a worker of a core, then release `left`, a lock that is held until then."""
    try:
        core.worker(index)
    finally:
        left.release()


def have_left(inside, double seconds):
    """Wait until all threads have left `work`, so long at most (below 0: for ever). Whether they have. An
    interrupt leaves no lock held.
    """
    cdef double until = monotonic() + seconds
    for left, _ in inside:
        if not left.acquire(True, -1 if seconds < 0 else max(0.0, until - monotonic())):
            return False
        left.release()
    return True


class TakenBack(BaseException):
    """Raised and dropped by `interrupt`."""


# Python's own code, which this module has none of.
ENDLESS = compile("while True: pass", __name__, "exec")


cdef raise_and_drop():
    """Raise an exception in this thread as `interrupt` does in others, and drop it; raise what else
    came."""
    came = None
    PyThreadState_SetAsyncExc(get_ident(), <PyObject*> TakenBack)
    while True:
        try:
            exec(ENDLESS, {})
        except TakenBack:
            break
        except BaseException as error:                   # another Ctrl-C
            came = error
    if came is not None:
        raise came


def interrupt(inside, double seconds):
    """Have KeyboardInterrupt raised in the Python code that threads run within `work`: a function of the
    user's. It is taken back where it was not raised, since the thread is not in Python's code, in `seconds`.

    A thread for which one waits has Python look for it at every function and every turn of a loop, in all
    threads; under a debugger CPython 3.11 then looks for ever. Only raising one ends that. So nothing waits
    when this is over, it runs nothing of Python's meanwhile, and raises one itself, which it drops.

    Parameters
    ----------
    inside : list of (lock, int)
        Locks of `work`, and identities of the threads that hold them.
    seconds : float
        What a thread gets to come to it; all of them together.
    """
    try:
        for left, thread in inside:
            if left.locked():
                PyThreadState_SetAsyncExc(thread, <PyObject*> KeyboardInterrupt)
        have_left(inside, seconds)
    finally:
        for left, thread in inside:
            if left.locked():
                PyThreadState_SetAsyncExc(thread, NULL)
        raise_and_drop()
