"""The methods that readers of a stream call, compiled so that Ctrl-C can't leave a stream open.

Python checks for signals at the start of each Python function. So KeyboardInterrupt can be raised in a
method written in Python before its `try` is entered; the traceback then keeps the stream alive, and all its
threads. Compiled code checks for signals only inside the Python code that it calls. Here every way out of
reading closes the stream.
"""
from cpython.ref cimport PyObject

import _signal
import threading
from _thread import RLock, get_ident, stack_size as _thread_stack_size
from time import monotonic

import pyarrow as pa

from ordstream._core.ground.arrow_stream import export_stream

cdef extern from "Python.h":
    int PyThreadState_SetAsyncExc(unsigned long thread, PyObject* exception)


cdef class Reader:
    """An iterator, context manager and Arrow stream. The subclass provides:

    `schema`: of the batches; `_read()`: the next batch, None at the end; `_failure`: the exception that
    ended the run, or None; `close()`: may be called again, also after an exception interrupted it;
    `_is_inside()`: whether the caller is the run itself; `_exhausted`: true once nothing more is to be read.
    `_read` sets `_offered`; it becomes `_delivered` only when the caller gets the batch, not if an interrupt
    comes first.

    Thread safety: one thread at a time reads, others wait; `close` is the subclass's. Ownership: none.
    """
    # A lock that the reading thread holds, and the identity of that thread.
    cdef public object _reading
    cdef public object _reader
    # True before the stream is opened and after it was closed: there is nothing to close.
    cdef public bint _closed
    # A value that the subclass sets with each batch, and the one of the last batch that the caller got.
    cdef public object _offered
    cdef public object _delivered
    # Whether an Arrow consumer has begun to read: arrow_stream.pyx.
    cdef public bint _handed_over
    # Seconds after which `_read` returns an empty batch if there is no other; 0: it waits.
    cdef public double _patience

    def __cinit__(self):
        self._reading = RLock()
        self._closed = True

    def __iter__(self):
        return self

    def __next__(self):
        """The next batch; at the end, or when reading fails or is interrupted, the stream is closed
        first."""
        if self._exhausted:
            raise StopIteration
        cdef bint inside = False
        batch = None
        before = self._delivered
        try:
            inside = self._is_inside()
            if not inside:
                with self._reading:
                    self._reader = get_ident()
                    try:
                        batch = self._read()
                    finally:
                        self._reader = None
                if batch is not None:
                    self._delivered = self._offered
                if batch is None or self._exhausted:  # the end, or close() was called from inside meanwhile
                    self.close()
                if batch is None:
                    # The stream does not keep what it raises: its traceback has the reader's frames, which
                    # have the stream, and such a circle would keep the data until Python's collector comes.
                    failure, self._failure = self._failure, None
                    raise StopIteration if failure is None else failure
        except BaseException:
            self._delivered = before  # a batch that was read does not reach the caller
            close_surely(self)
            raise
        if inside:
            raise RuntimeError("a stream can't be read by its own source, functions or progress callback")
        return batch

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        close_surely(self)

    def __del__(self):
        if not self._closed:
            close_surely(self)

    def __arrow_c_stream__(self, requested_schema=None):
        """Arrow PyCapsule interface: the consumer runs the pipeline by reading. What that means:
        arrow_stream.pyx."""
        return export_stream(self, requested_schema)

    def __reduce__(self):
        raise TypeError("a stream that is under way can't be copied or pickled: hand on its pipeline, which "
                        "can, or what was read of it (pyarrow.table(stream))")

    def __array__(self, *_, **__):
        """Refused: NumPy, which pandas.DataFrame calls, would make each batch one cell of an array."""
        raise TypeError("a stream is no array; pandas.DataFrame takes no Arrow data: "
                        "use stream.to_pandas(), or pyarrow.table(stream)")

    def to_pandas(self, **options):
        """The rest of the output as a pandas DataFrame; options as for `pyarrow.Table.to_pandas`."""
        return pa.Table.from_batches(list(self), schema=self.schema).to_pandas(**options)


cdef close_surely(reader):
    """Call `reader.close()`; if it is interrupted, close all the same and then raise the interrupt."""
    try:
        reader.close()
    except BaseException:
        reader.close()
        raise


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
        with _stack_size:
            before = _thread_stack_size(stack)
            try:
                if before > stack:
                    _thread_stack_size(before)
                thread.start()
            finally:
                _thread_stack_size(before)
    finally:
        if callable(present):
            _signal.signal(_signal.SIGINT, present)
        if came:
            _signal.raise_signal(_signal.SIGINT)


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
