"""What a reader of a stream calls, written where Ctrl-C can't come between.

Python looks for signals at the start of each of its functions, so a method of Python code can be left before
its `try` is entered, and the traceback then keeps the stream, with all its threads, alive. Compiled code
looks for signals only inside the Python code that it calls: here every way out of reading closes the stream.
"""
import _signal
import threading
from _thread import RLock, get_ident, stack_size as _thread_stack_size

import pyarrow as pa

from ordstream._core.ground.arrow_stream import export_stream


cdef class Reader:
    """The iterator, context manager and Arrow stream over what a subclass gives:

    `schema`: of the batches; `_read()`: the next batch, None at the end; `_failure`: None or the exception
    that ended the run, once it has; `close()`: idempotent, also after a close that an exception cut short;
    `_is_inside()`: whether the run itself is calling; `_exhausted`: nothing more is read. `_offered`, which
    `_read` sets, becomes `_delivered` when the caller gets the batch, and not where an interrupt comes in
    between.

    Thread safety: one thread at a time reads, others wait; `close` is the subclass's. Ownership: none.
    """
    # Held by the thread that reads, and that thread's identity.
    cdef public object _reading
    cdef public object _reader
    # Whether there is nothing to close: not yet, or not any more.
    cdef public bint _closed
    # What the subclass offers with a batch, and what it offered with the last one that the caller got.
    cdef public object _offered
    cdef public object _delivered
    # Whether an Arrow consumer has begun to read: arrow_stream.pyx.
    cdef public bint _handed_over
    # Seconds after which `_read` gives an empty batch where nothing has come; 0: it waits.
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
                    if self._failure is not None:
                        raise self._failure
                    raise StopIteration
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

    def __array__(self, *_, **__):
        """NumPy, and pandas.DataFrame by its help, would take the batches for cells."""
        raise TypeError("a stream is no array; pandas.DataFrame takes no Arrow data: "
                        "use stream.to_pandas(), or pyarrow.table(stream)")

    def to_pandas(self, **options):
        """What is still to come as a pandas DataFrame; options as for `pyarrow.Table.to_pandas`."""
        return pa.Table.from_batches(list(self), schema=self.schema).to_pandas(**options)


cdef close_surely(reader):
    """`reader.close()`; an interrupt in the middle of it is raised when it is done."""
    try:
        reader.close()
    except BaseException:
        reader.close()
        raise


# Held while the size of the next thread's stack, one number for the whole process, is ours and not the
# user's.
_stack_size = RLock()


def forget_starts():
    """In a child after a fork: the thread that was starting another one does not exist here."""
    global _stack_size
    _stack_size = RLock()


def start_surely(thread, Py_ssize_t stack):
    """`thread.start()` with a stack of so many bytes, or the user's size if larger; an interrupt meanwhile
    is raised when it is done.

    Python's own start does not bear one: it leaves threads that it counts for ever, or raises a RuntimeError
    in the interrupt's place. `threading.stack_size` is afterwards what it was.
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
