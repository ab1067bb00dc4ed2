"""State that comes into a run: rows (kernel.pxd, f) go to the buckets that own their keys."""
from cpython.ref cimport PyObject, Py_DECREF
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.flow.operator cimport Operator
from ordstream._core.flow.split cimport Partitioner, split_chunk
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport (
    DATA, Failure, Layout, Worker, chunk_free, chunk_new, scratch_reset,
)
from ordstream._core.ground.imported_batch cimport BatchFormats, batch_free, batch_import, batch_new
from ordstream._core.ground.kernel cimport PS, KernelOwner

from ordstream._core.ground.chunk import layout_of


class StateRowError(ValueError):
    """A row of state that an operator can't take in. `row`: its position in the batch."""

    def __init__(self, reason, row):
        super().__init__(reason)
        self.row = row


cdef class ArrivingRows:
    cdef int fill(self, Worker* w, Operator* op, KernelOwner owner, batch) except -1:
        """Import a batch and split it as the operator's input is split."""
        cdef const Layout* layout = op.kernel.state
        cdef Partitioner by
        cdef ArrowArray* array
        cdef uint8_t* used = <uint8_t*> calloc(layout.ncols + 1, 1)
        cdef int32_t j
        cdef int32_t i
        cdef int rc
        if layout_of(batch.schema).types != owner.state_layout.types:
            free(used)
            raise TypeError("these rows have another layout: check their schema first")
        self.worker = w
        self.formats = BatchFormats(batch.schema)
        self.batch = batch_new(layout.ncols, DATA)
        self.chunk = chunk_new(w)
        self.every = <int32_t*> calloc(batch.num_rows + 1, sizeof(int32_t))
        if used == NULL or self.batch == NULL or self.chunk == NULL or self.every == NULL:
            free(used)
            raise MemoryError
        _, capsule = batch.__arrow_c_array__()
        array = <ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array")
        memcpy(&self.batch.array, array, sizeof(ArrowArray))
        array.release = NULL
        memset(used, 1, layout.ncols)
        rc = batch_import(self.batch, layout, used, self.formats.formats)
        free(used)
        if rc != 0:
            raise MemoryError
        self.chunk.n = <int32_t> self.batch.rows
        self.chunk.slots = self.chunk.n
        self.chunk.ncols = layout.ncols
        for j in range(layout.ncols):
            self.chunk.cols[j] = self.batch.cols[j]
        for i in range(self.chunk.n):
            self.every[i] = i
        if op.kind == PS:
            by = op.partitioner
            by.keys = op.kernel.state_keys
            by.layout = layout
            by.column = 0
            if split_chunk(&by, w, self.chunk) != 0:
                raise MemoryError
        return 0

    cdef bint select(self, Operator* op, int64_t bucket) noexcept:
        """Make slots and n those of a bucket's rows; whether there are any."""
        cdef int32_t part
        self.slots = self.every
        self.n = 0
        if op.kind != PS:
            self.n = self.chunk.n
        else:
            for part in range(self.chunk.nparts):
                if self.chunk.parts[part].bucket == bucket:
                    self.slots = self.chunk.parts[part].rows
                    self.n = self.chunk.parts[part].n
        return self.n > 0

    def __dealloc__(self):
        if self.chunk != NULL:
            chunk_free(self.worker, self.chunk)
        if self.batch != NULL:
            batch_free(self.batch)
        free(self.every)


cdef int install_rows(Operator* op, KernelOwner owner, Worker* w, batch) except -1:
    """Give rows of state to the buckets that own their keys.

    Thread safety: nobody else holds a bucket. Raises: StateRowError (rows of other buckets may be in then),
    TypeError for a batch of another layout, MemoryError. Cost: a split, and state_install.
    """
    cdef ArrivingRows rows = ArrivingRows()
    cdef void* state
    cdef Failure f
    cdef int64_t b
    cdef int32_t n
    rows.fill(w, op, owner, batch)
    for b in range(bucket_count(op)):
        if rows.select(op, b):
            state = bucket_state(op, b)
            f.exc = NULL
            with nogil:
                scratch_reset(w)
                n = op.kernel.state_install(op.kernel, w, state, rows.chunk, rows.slots, rows.n, &f)
            if n < rows.n:
                refuse(&f)
    return 0


cdef int refuse(Failure* f) except -1:
    """Raise why a row was not taken in: the user's exception, or StateRowError."""
    if f.exc == NULL:
        raise StateRowError(f.message.decode("utf-8", "replace"), f.slot)
    error = <object> <PyObject*> f.exc
    Py_DECREF(error)
    raise error
