"""A stream as an Arrow C stream: a consumer (Polars, DuckDB, pyarrow) pulls a run's batches itself, whenever
and wherever it likes.

a) Lazy: nothing runs before the first pull, and a consumer that only looks at the schema (DuckDB does, twice
   a query) leaves the stream as it is. A stream is read once: a second handover that is pulled gets an
   error, not the rows that were left.
b) Errors go to the consumer as text, which is all that the interface carries, and stay: no pull after an
   error says "end". An interrupt goes on to Python as well: the consumer's own error is all that a pull can
   cause.
c) A consumer that has pulled and lets go, early or at the end, closes the stream.
d) The callbacks take the GIL themselves: a consumer may call them from any thread, with or without it. It
   must not hold the GIL on one thread while it waits for a pull on another.
"""
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EINTR, EINVAL, ENOMEM
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.arrow_structs cimport ArrowArray, ArrowSchema

import signal
import threading
from _thread import interrupt_main

import pyarrow as pa

from ordstream.errors import told

# Between an interrupt of a pull and the same interrupt for the program.
INTERRUPT_S = 0.1
# A pull on another thread than the main one does not hear Ctrl-C, and the consumer only between pulls
# (DuckDB): so long is one at most.
PULL_S = 0.1

cdef extern from *:
    """
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema*);
        int (*get_next)(struct ArrowArrayStream*, struct ArrowArray*);
        const char* (*get_last_error)(struct ArrowArrayStream*);
        void (*release)(struct ArrowArrayStream*);
        void* private_data;
    };
    #endif
    """
    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data


cdef class Handover:
    """One consumer's view of a stream. Thread safety: one call at a time, from any thread, as Arrow asks of
    a consumer.

    Ownership: holds the stream; the ArrowArrayStream holds the Handover, until its release.
    """
    cdef object stream
    cdef object schema         # what batches are exported as: the stream's, or what the consumer asked for
    cdef bint casts
    cdef bint pulled           # whether a batch was asked for: only then the stream is this consumer's
    cdef int code              # errno of the failure, which stays; 0: none
    cdef bytes text

    cdef object next_batch(self):
        """The next batch; None at the end."""
        cdef object cut
        if not self.pulled:
            if self.stream._exhausted and not self.stream._handed_over and self.stream._cut is not None:
                cut = self.stream._cut()
                if not isinstance(cut, StopIteration):       # somebody closed it
                    raise cut
            if self.stream._handed_over or self.stream._exhausted:
                raise RuntimeError(
                    "this stream has been read: it gives its output once; use Pipeline.run for a result "
                    "that can be read again"
                )
            self.stream._handed_over = True
            self.pulled = True
        self.stream._patience = 0 if threading.current_thread() is threading.main_thread() else PULL_S
        batch = next(self.stream, None)
        return cast(batch, self.schema) if self.casts and batch is not None else batch


cdef object cast(batch, schema):
    """The batch as the consumer asked for it; nothing is lost silently."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name!r} was asked for without nulls, but it has some")
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


cdef void fail(Handover h, int code, str text) noexcept:
    """Note a failure for get_last_error."""
    h.code = code
    try:
        h.text = text.encode("utf-8", "replace").replace(b"\0", b" ")
    except BaseException:
        h.text = None


cdef void interrupt_again() noexcept:
    """Raise the interrupt, which ends here as a consumer's error, on the main thread once more: when that
    error has got through.

    At once would be too soon: the next Python code may be that which prints the error, or the consumer's
    own.
    """
    if hasattr(signal, "pthread_kill"):    # a blocking call there ends by it as well
        again = threading.Timer(INTERRUPT_S, signal.pthread_kill,
                                (threading.main_thread().ident, signal.SIGINT))
    else:
        again = threading.Timer(INTERRUPT_S, interrupt_main)
    again.daemon = True
    again.start()


cdef int get_schema(ArrowArrayStream* s, ArrowSchema* out) noexcept nogil:
    """Arrow C stream interface. Any thread; takes the GIL. Ownership: `out` is the caller's."""
    cdef int code = 0
    with gil:
        h = <Handover> s.private_data
        try:
            h.schema._export_to_c(<uintptr_t> out)
        except BaseException as error:
            fail(h, EINVAL, told(error))
            code = EINVAL
    return code


cdef int get_next(ArrowArrayStream* s, ArrowArray* out) noexcept nogil:
    """Arrow C stream interface: the next batch, or a released array at the end. Any thread; takes the GIL,
    and waits for the run without it. Ownership: `out` is the caller's. Cost: a batch of the run, and ~2 us.
    """
    with gil:
        h = <Handover> s.private_data
        memset(out, 0, sizeof(ArrowArray))
        if h.code != 0:
            return h.code
        try:
            batch = h.next_batch()
            if batch is not None:
                batch._export_to_c(<uintptr_t> out)
        except KeyboardInterrupt:
            fail(h, EINTR, "interrupted (KeyboardInterrupt)")
            interrupt_again()
        except MemoryError as error:
            fail(h, ENOMEM, told(error))
        except BaseException as error:
            fail(h, EINVAL, told(error))
        return h.code


cdef const char* get_last_error(ArrowArrayStream* s) noexcept nogil:
    """Text of the last failure; valid until the next call."""
    with gil:
        h = <Handover> s.private_data
        if h.text is None:
            return NULL
        return <const char*> h.text


cdef void let_go(ArrowArrayStream* s) noexcept:
    """Close the stream, surely. An interrupt meanwhile goes on to Python; another exception has nowhere to
    go: Python shows it."""
    h = <Handover> s.private_data
    s.release = NULL
    s.private_data = NULL
    Py_DECREF(h)
    if h.pulled:
        try:
            h.stream.close()
        except KeyboardInterrupt:
            h.stream.close()
            interrupt_again()


cdef void release(ArrowArrayStream* s) noexcept nogil:
    """The consumer is done: a stream of which it pulled is closed. Any thread; takes the GIL, and leaves
    alone the exception that the consumer may be raising meanwhile.
    """
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* trace
    with gil:
        PyErr_Fetch(&kind, &value, &trace)
        let_go(s)
        PyErr_Restore(kind, value, trace)


cdef void drop_capsule(object capsule) noexcept:
    """Destructor: releases what no consumer took."""
    cdef ArrowArrayStream* s = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if s.release != NULL:
        s.release(s)
    free(s)


def export_stream(stream, requested_schema=None):
    """A PyCapsule "arrow_array_stream" over what a stream has not given yet.

    Parameters
    ----------
    stream : ordstream.node.Stream
    requested_schema : PyCapsule "arrow_schema", optional
        The same columns as the consumer would like to have them.

    Raises
    ------
    ValueError
        For a requested schema of other columns, or one to which a column can't be cast.
    """
    cdef Handover h = Handover.__new__(Handover)
    cdef ArrowArrayStream* s
    h.stream = stream
    h.schema = stream.schema
    if requested_schema is not None:
        wanted = pa.Schema._import_from_c_capsule(requested_schema)
        if wanted.names != h.schema.names:
            raise ValueError(f"the stream has the columns {h.schema.names}, asked for were {wanted.names}")
        h.casts = not wanted.equals(h.schema)
        if h.casts:
            # an impossible cast fails here, not in the middle
            cast(pa.RecordBatch.from_pylist([], schema=h.schema), wanted)
            h.schema = wanted
    s = <ArrowArrayStream*> calloc(1, sizeof(ArrowArrayStream))
    if s == NULL:
        raise MemoryError
    s.get_schema = get_schema
    s.get_next = get_next
    s.get_last_error = get_last_error
    s.release = release
    s.private_data = <void*> h
    Py_INCREF(h)
    return PyCapsule_New(s, "arrow_array_stream", drop_capsule)
