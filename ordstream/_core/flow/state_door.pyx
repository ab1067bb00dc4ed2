"""A door to the state contract (kernel.pxd, f), for nodes whose keys move and for tests: the state of a
run's operators out as rows, in, and away.

`StateDoor` works on the run of a stream that is quiescent: all that was pushed was processed and has left
the egress (`RunDoor.emitted` says so), and nothing is pushed meanwhile. Then no worker holds a bucket, and
reading the egress's serial (acquire) makes visible what they wrote.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from ordstream._core.ground.arrow cimport output_export
from ordstream._core.ground.output_batch cimport output_append, output_new
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.atomics cimport load_acquire, load_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_PYTHON, PT_VIEW, Block, Chunk, ChunkPool, Failure, Layout, View, Worker, chunk_free,
    chunk_new, pool_free, pool_init, scratch_reset, worker_free, worker_init,
)
from ordstream._core.ground.kernel cimport KernelOwner, StateCursor
from ordstream._core.flow.operator cimport Operator
from ordstream._core.flow.runtime cimport Runtime
from ordstream._core.flow.install cimport ArrivingRows, bucket_count, bucket_state, install_rows


cdef bint owns_its_bytes(const Chunk* c, const Layout* layout):
    """Whether all strings of a chunk lie in its own arena."""
    cdef const View* v
    cdef const Block* b
    cdef const char* first
    cdef bint inside
    cdef int32_t i
    cdef int32_t j
    for j in range(layout.ncols):
        for i in range(c.n if layout.type[j] == PT_VIEW else 0):
            v = &(<const View*> c.cols[j].data)[i]
            inside = v.size == 0 or (c.cols[j].valid != NULL and c.cols[j].valid[i] == 0)
            b = c.arena.first
            while b != NULL:
                first = <const char*> (b + 1)
                inside = inside or (v.data >= first and v.data < first + b.size)
                b = b.next
            if not inside:
                return False
    return True


cdef int raise_failure(Failure* f) except -1:
    """Raise the exception of a failure, and drop its reference; MemoryError where it has none."""
    if f.code != FAIL_PYTHON:
        raise MemoryError
    error = <object> <PyObject*> f.exc
    Py_DECREF(error)
    raise error


cdef class StateDoor:
    """The state of the operators of a stream's run (`ordstream.node.Stream`), from the reading thread,
    until the stream is closed.

    Memory ownership: a pool and a worker of its own for what is on its way; keeps the run alive.
    """
    cdef Runtime* rt
    cdef object core
    cdef list owners
    cdef ChunkPool pool
    cdef Worker worker

    def __init__(self, stream):
        cdef KernelOwner owner
        cdef int32_t columns = 1
        self.core = stream._core
        self.rt = <Runtime*> PyCapsule_GetPointer(self.core.node(), b"ordstream.Runtime")
        self.owners = [operator.kernel for operator in stream._made.chain]
        for owner in self.owners:
            if owner.kernel.state != NULL:
                columns = max(columns, owner.kernel.state.ncols)
        pool_init(&self.pool, columns, 1 << 20)
        worker_init(&self.worker, &self.pool, 0)

    def __dealloc__(self):
        if self.pool.mutex != NULL:
            worker_free(&self.worker)
            pool_free(&self.pool)

    @property
    def quiescent(self):
        """Whether all that was pushed has been processed."""
        # pairs with store_release in the egress
        return load_acquire(&self.rt.ingress.emitted_serial) == load_relaxed(&self.rt.ingress.queued_tuples)

    cdef Operator* operator(self, int32_t i) except NULL:
        if not self.quiescent:
            raise RuntimeError("the run is not quiescent: state may only be touched between tuples")
        if self.rt.operators[i].kernel.state == NULL:
            raise ValueError(f"operator {i} has no state that can leave it")
        return &self.rt.operators[i]

    def bytes(self, int32_t i):
        """Bytes of state that an operator holds."""
        cdef Operator* op = self.operator(i)
        return sum([op.kernel.bucket_bytes(op.kernel, bucket_state(op, b)) for b in range(bucket_count(op))])

    def export(self, int32_t i, schema, int32_t most=1000, keys=None):
        """Record batches of an operator's state, at most `most` rows each, any order; `keys`: a batch with
        the keys that are wanted.

        schema: of the rows, in core types.
        """
        cdef Operator* op = self.operator(i)
        cdef StateCursor cursor
        cdef ArrivingRows named
        cdef int64_t b
        found = []
        if keys is not None:
            named = ArrivingRows()
            named.fill(&self.worker, op, self.owners[i], keys)
        for b in range(bucket_count(op)):
            memset(&cursor, 0, sizeof(StateCursor))
            cursor.most = most
            if keys is not None:
                if not named.select(op, b):
                    continue
                cursor.keys = named.chunk
                cursor.slots = named.slots
                cursor.n = named.n
            while not cursor.done:
                batch = self.export_once(op, bucket_state(op, b), &cursor, schema)
                if batch is not None:
                    found.append(batch)
        return found

    cdef object export_once(self, Operator* op, void* state, StateCursor* cursor, schema):
        cdef Failure f
        cdef Output* o
        cdef int32_t n
        cdef Chunk* out = chunk_new(&self.worker)
        if out == NULL:
            raise MemoryError
        scratch_reset(&self.worker)
        with nogil:
            n = op.kernel.state_export(op.kernel, &self.worker, state, cursor, out, &f)
        try:
            if n < 0:
                raise_failure(&f)
            assert n == out.n and n <= cursor.most
            assert owns_its_bytes(out, op.kernel.state)
            if n == 0:
                return None
            o = output_new(op.kernel.state, n, False)
            if o == NULL or output_append(o, out, 0, n) != n:
                raise MemoryError
            return output_export(o, schema)
        finally:
            chunk_free(&self.worker, out)

    def install(self, int32_t i, batch):
        """Give rows of state to the buckets that own their keys. Raises StateRowError; rows of other
        buckets may be in then."""
        install_rows(self.operator(i), self.owners[i], &self.worker, batch)

    def remove(self, int32_t i, batch):
        """Forget the keys of these rows; returns how many were there."""
        cdef Operator* op = self.operator(i)
        cdef ArrivingRows keys = ArrivingRows()
        cdef void* state
        cdef Failure f
        cdef int64_t b
        cdef int32_t n
        keys.fill(&self.worker, op, self.owners[i], batch)
        there = 0
        for b in range(bucket_count(op)):
            if keys.select(op, b):
                state = bucket_state(op, b)
                with nogil:
                    n = op.kernel.state_remove(op.kernel, &self.worker, state, keys.chunk, keys.slots,
                                               keys.n, &f)
                if n < 0:
                    raise MemoryError
                there += n
        return there
