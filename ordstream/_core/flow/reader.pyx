"""The methods that readers of a stream call, compiled so that Ctrl-C can't leave a stream open.

Python checks for signals at the start of each Python function. So KeyboardInterrupt can be raised in a
method written in Python before its `try` is entered; the traceback then keeps the stream alive, and all its
threads. Compiled code checks for signals only inside the Python code that it calls. Here every way out of
reading closes the stream.
"""
from _thread import RLock, get_ident
from collections import deque

import pyarrow as pa

from ordstream._core.ground.arrow_stream import export_stream

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define ord_finalizing _Py_IsFinalizing
    #else
    #define ord_finalizing Py_IsFinalizing
    #endif
    """
    int finalizing "ord_finalizing"() noexcept

FROM_INSIDE = "a stream can't be read by its own source, functions or progress callback"


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
    # Makes what the reader gets in place of the end, where somebody else closed the stream before; or None.
    cdef public object _cut
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
            raise StopIteration if self._cut is None else self._cut()
        cdef bint inside = False
        batch = None
        before = self._delivered
        try:
            inside = self._is_inside()
            if not inside:
                self._reading.acquire()
                try:
                    self._reader = get_ident()
                    batch = self._read()
                finally:
                    self._reader = None
                    self._reading.release()
                if batch is not None:
                    self._delivered = self._offered
                if batch is None or self._exhausted:  # the end, or close() was called from inside meanwhile
                    self.close()
                if batch is None:
                    # The stream does not keep what it raises: its traceback has the reader's frames, which
                    # have the stream, and such a circle would keep the data until Python's collector comes.
                    failure, self._failure = self._failure, None
                    if failure is None and self._cut is not None:
                        failure = self._cut()
                    raise StopIteration if failure is None else failure
        except BaseException:
            self._delivered = before  # a batch that was read does not reach the caller
            close_surely(self)
            raise
        if inside:
            raise RuntimeError(FROM_INSIDE)
        return batch

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        close_surely(self)

    def __del__(self):
        # at the interpreter's end the modules are gone; threads have ended before (`open_streams`)
        if not self._closed and not finalizing():
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


cdef class PartsReader:
    """An iterator over what the batches of a stream are taken apart into. The subclass provides
    `_apart(batch)`: the parts of a batch, in order.

    A batch whose parts can't be made (an interrupt, no memory) does not reach the caller: the stream is
    closed, and the commit point stays in front of it.

    Thread safety: one thread at a time reads, others wait. Ownership: none.
    """
    cdef public object _stream
    # The commit point of what the caller has: in front of a batch until he has all of its parts. Any thread.
    cdef public object _through
    cdef object _after    # behind the batch whose parts wait
    cdef object _waiting  # parts of one batch
    cdef object _lock
    cdef bint _taking
    cdef bint _lost       # parts of a batch never reached the caller: the commit point stays

    def __cinit__(self):
        self._waiting = deque()
        self._lock = RLock()

    def __iter__(self):
        return self

    def __next__(self):
        """The next part; at the end, or when reading fails or is interrupted, the stream is closed first."""
        self._lock.acquire()
        try:
            if self._taking:
                raise RuntimeError(FROM_INSIDE)
            self._taking = True
            try:
                if self._waiting and self._stream._closed:    # as a batch that nobody has taken
                    self._lost = True
                    self._waiting.clear()
                while not self._waiting:
                    self.take_apart()
            finally:
                self._taking = False
            found = self._waiting.popleft()
            if not self._waiting:
                self._through = self._after
        finally:
            self._lock.release()
        return found

    cdef take_apart(self):
        """Put the parts of the next batch into `_waiting`."""
        try:
            batch = next(self._stream)
        except BaseException:
            if not self._lost:
                self._through = self._stream.emitted_through
            raise
        try:
            waiting = deque(self._apart(batch))
            self._after = self._stream.emitted_through
            if not waiting:
                self._through = self._after
        except BaseException:
            self._lost = True
            close_surely(self._stream)
            raise
        self._waiting = waiting


cdef close_surely(reader):
    """Call `reader.close()`; if it is interrupted, close all the same and then raise the interrupt."""
    try:
        reader.close()
    except BaseException:
        reader.close()
        raise
