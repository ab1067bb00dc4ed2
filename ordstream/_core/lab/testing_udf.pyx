"""Doors to user-function kernels for tests and benchmarks: one thread, one bucket, no runtime. Used for
testing only."""
cimport cython
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, PS, SL, Kernel, KernelOwner
from ordstream._core.state.key_records cimport key_hash
from ordstream._core.state.keyed_state cimport KeySpecOwner
from ordstream._core.ground.atomics cimport load_relaxed
from ordstream._core.kernels.compiled cimport ordstream_call
from ordstream._core.flow.sampling cimport sample_rows
from ordstream._core.ground.threads cimport now_ns
from ordstream._core.state.python_values cimport ColumnWriter, RowReader, RowWriter


@cython.no_gc_clear                    # __dealloc__ needs the owner
cdef class PyKernel:
    """A kernel with one bucket, a pool and a worker. Used for testing only."""

    cdef KernelOwner owner
    cdef Kernel* k
    cdef ChunkPool pool
    cdef Worker worker
    cdef void* bucket
    cdef object key_spec, stage
    cdef readonly object failure      # (slot, code, message, exception) of the last call, or None
    cdef readonly list costs_ns
    cdef readonly int64_t state_bytes
    cdef readonly double ns_per_row   # of the last `repeat`

    def __cinit__(self, KernelOwner owner, stage, columns=64):
        self.owner = owner
        self.stage = stage
        self.k = &owner.kernel
        pool_init(&self.pool, columns, 1 << 20)
        worker_init(&self.worker, &self.pool, 0)
        self.key_spec = KeySpecOwner(stage.key, owner.input_layout.types)
        if self.k.kind != SL:
            self.bucket = self.k.bucket_new(self.k, 0)
            if self.bucket == NULL:
                raise MemoryError

    def __dealloc__(self):
        if self.bucket != NULL:
            self.k.bucket_free(self.k, self.bucket)
        worker_free(&self.worker)
        pool_free(&self.pool)

    @property
    def skipped(self):
        return load_relaxed(&self.k.skipped)

    @property
    def live(self):
        """Chunks that are out."""
        return load_relaxed(&self.pool.live) + self.worker.live_delta

    @property
    def max_workers(self):
        return self.k.max_workers

    def bytes(self):
        return self.k.bucket_bytes(self.k, self.bucket)

    cdef Chunk* make(self, batch, select) except NULL:
        cdef Chunk* c = chunk_new(&self.worker)
        cdef int32_t n = <int32_t> len(batch)
        cdef int32_t i, j
        if c == NULL or chunk_reserve(&self.worker, c, self.k.input, n if n else 1) < 0:
            raise MemoryError
        for j, field in enumerate(self.stage.input):
            (<ColumnWriter> ColumnWriter(field)).write_array(&self.worker, c, j, 0,
                                                             batch.column(j).cast(field.type))
        c.n = n
        c.slots = n
        if select is not None:
            c.sel = <int32_t*> chunk_alloc(&self.worker, c, 4 * len(select) + 4)
            for i, j in enumerate(select):
                c.sel[i] = j
            c.n = <int32_t> len(select)
        c.hash = <uint64_t*> chunk_alloc(&self.worker, c, 8 * <int64_t> n + 8)
        if self.k.kind == PS:
            key_hash(&(<KeySpecOwner> self.key_spec).spec, c, self.k.input)
        return c

    cdef list rows_of(self, Chunk* c):
        return [tuple(row) for row in (<RowReader> RowReader(self.stage.output)).rows(c, c.sel, c.n)]

    cdef take_failure(self, Failure* f):
        self.failure = (f.slot, f.code, f.message.decode(),
                        <object> <PyObject*> f.exc if f.exc != NULL else None)
        if f.exc != NULL:
            Py_DECREF(<object> <PyObject*> f.exc)

    def apply(self, batch, select=None):
        """(output rows, origins or None) of an SL kernel."""
        cdef Chunk* c = self.make(batch, select)
        cdef Chunk* out
        self.failure = None
        arena_reset(&self.worker.scratch, &self.pool)
        with nogil:
            out = self.k.apply(self.k, &self.worker, c)
        if c.failure != NULL:
            self.take_failure(c.failure)
        origins = None if out == c else [out.origin[i] for i in range(out.n)]
        rows = self.rows_of(out)
        if out != c:
            chunk_free(&self.worker, out)
        chunk_free(&self.worker, c)
        return rows, origins

    def process(self, batch, select=None, bint sample=False):
        """(output rows, origins, rows done) of a PS/SF kernel; under "skip" continues as the runtime
        does."""
        cdef Chunk* c = self.make(batch, select)
        cdef Chunk* out = chunk_new(&self.worker)
        cdef Failure f
        cdef int32_t done = 0
        cdef int32_t r
        cdef int32_t* rows = c.sel
        cdef int64_t* costs = <int64_t*> calloc(c.n + 1, 8)
        cdef int32_t i
        f.exc = NULL
        self.failure = None
        if rows == NULL:
            rows = <int32_t*> chunk_alloc(&self.worker, c, 4 * <int64_t> c.n + 4)
            for i in range(c.n):
                rows[i] = i
        while done < c.n:
            arena_reset(&self.worker.scratch, &self.pool)
            with nogil:
                if sample:
                    r = sample_rows(self.k, &self.worker, self.bucket, c, rows + done, c.n - done, out, &f,
                                    costs + done, NULL,
                                    &self.state_bytes)
                else:
                    r = self.k.process(self.k, &self.worker, self.bucket, c, rows + done, c.n - done, out,
                                       &f)
            done += r
            if done == c.n:
                break
            self.take_failure(&f)
            f.exc = NULL
            if self.k.on_error != ON_ERROR_SKIP:
                break
            done += 1
        self.costs_ns = [costs[i] for i in range(done)]
        free(costs)
        result = self.rows_of(out), [out.origin[i] for i in range(out.n)], done
        chunk_free(&self.worker, out)
        chunk_free(&self.worker, c)
        return result

    def punctuate(self, time=None):
        """(output rows, status, keys known per row) of a flush, or of a time punctuation."""
        cdef Chunk* p = chunk_new(&self.worker)
        cdef Chunk* out = chunk_new(&self.worker)
        cdef Failure f
        cdef int status
        f.exc = NULL
        self.failure = None
        p.kind = END_OF_STREAM if time is None else TIME
        p.time = 0 if time is None else time
        out.kind = p.kind
        with nogil:
            status = self.k.punctuate(self.k, &self.worker, self.bucket, p, out, &f)
        if status:
            self.take_failure(&f)
        out.kind = DATA
        keyed = [out.flush_key[i] != NULL for i in range(out.n)] if out.flush_key != NULL else None
        result = self.rows_of(out), status, keyed
        chunk_free(&self.worker, out)
        chunk_free(&self.worker, p)
        return result

    def repeat(self, batch, int calls):
        """Nanoseconds per row of the kernel alone, best of `calls`; outputs are dropped."""
        cdef Chunk* c = self.make(batch, None)
        cdef Chunk* out
        cdef Failure f
        cdef int64_t t
        cdef int64_t best = 1 << 62
        cdef int32_t* rows = <int32_t*> chunk_alloc(&self.worker, c, 4 * <int64_t> c.n)
        cdef int32_t i
        cdef int _
        cdef Column[64] cols
        cdef int32_t ncols = c.ncols
        cdef Arena arena
        for i in range(c.n):
            rows[i] = i
        memcpy(cols, c.cols, ncols * sizeof(Column))
        chunk_alloc(&self.worker, c, 1 << 18)      # a block with room for what an in-place kernel adds
        c.arena.top -= 1 << 18
        arena = c.arena
        with nogil:
            for _ in range(calls):
                memcpy(c.cols, cols, ncols * sizeof(Column))
                c.ncols = ncols
                c.arena = arena
                arena_reset(&self.worker.scratch, &self.pool)
                t = now_ns()
                if self.k.kind == SL:
                    out = self.k.apply(self.k, &self.worker, c)
                else:
                    out = chunk_new(&self.worker)
                    self.k.process(self.k, &self.worker, self.bucket, c, rows, c.n, out, &f)
                t = now_ns() - t
                if out != c:
                    chunk_free(&self.worker, out)
                if t < best:
                    best = t
        self.ns_per_row = best / <double> c.n
        chunk_free(&self.worker, c)
        return self.ns_per_row


# ---------------------------------------------------------------- native functions, called through capsules

cdef struct TestState:
    int64_t n
    int64_t total

cdef api int64_t native_above(int64_t n, void* call_, void* user_data) noexcept nogil:
    """SL over (k, x, ...): emits (x,) for x > *user_data (NULL: 0); a row with x == -1 fails after it has
    emitted."""
    cdef ordstream_call* call = <ordstream_call*> call_
    cdef const int64_t* x = <const int64_t*> call.columns[1].data
    cdef int64_t* y = <int64_t*> call.out[0].data
    cdef int64_t least = 0 if user_data == NULL else (<int64_t*> user_data)[0]
    cdef int64_t k
    cdef int64_t m = 0
    cdef int32_t slot
    for k in range(n):
        slot = call.rows[k]
        if x[slot] > least or x[slot] == -1:
            y[m] = x[slot]
            call.origin[m] = slot
            m += 1
        if x[slot] == -1:
            call.n_out = m
            return -1 - k
    call.n_out = m
    return n


cdef api int64_t native_total(int64_t n, void* call_, void* user_data) noexcept nogil:
    """PS over (k, x, ...) with state (n, total): emits (k, n, total); a row with x == -1 fails after it
    changed its state."""
    cdef ordstream_call* call = <ordstream_call*> call_
    cdef const int64_t* key = <const int64_t*> call.columns[0].data
    cdef const int64_t* x = <const int64_t*> call.columns[1].data
    cdef int64_t* out0 = <int64_t*> call.out[0].data
    cdef int64_t* out1 = <int64_t*> call.out[1].data
    cdef int64_t* out2 = <int64_t*> call.out[2].data
    cdef TestState* s
    cdef int64_t k
    cdef int32_t slot
    for k in range(n):
        slot = call.rows[k]
        s = <TestState*> (call.states + call.records[k] * call.state_stride)
        s.n += 1
        s.total += x[slot]
        if x[slot] == -1:
            call.n_out = k
            return -1 - k
        out0[k] = key[slot]
        out1[k] = s.n
        out2[k] = s.total
        call.origin[k] = slot
    call.n_out = n
    return n


cdef api int64_t native_wrong(int64_t n, void* call_, void* user_data) noexcept nogil:
    """Breaks the contract as *user_data says: 0 too many outputs, 1 wrong return, 2 foreign origins, 3 no
    outputs."""
    cdef ordstream_call* call = <ordstream_call*> call_
    cdef int64_t how = (<int64_t*> user_data)[0]
    cdef int64_t k
    if how == 0:
        call.n_out = call.capacity + 1
    elif how == 1:
        return n + 7
    elif how == 2:
        for k in range(n):
            call.origin[k] = call.rows[n - 1 - k]
        call.n_out = n
    return n


cdef api double native_other(double x) noexcept nogil:
    """Another signature."""
    return x


def read_rows(schema, batch, storage=False, select=None):
    """Rows of a batch as a Python function sees them."""
    cdef ChunkPool pool
    cdef Worker w
    cdef Chunk* c
    cdef int32_t i, j
    from ordstream._core.ground.chunk import layout_of
    cdef LayoutOwner layout = layout_of(schema)
    pool_init(&pool, <int32_t> len(schema), 1 << 20)
    worker_init(&w, &pool, 0)
    c = chunk_new(&w)
    chunk_reserve(&w, c, &layout.layout, <int32_t> len(batch) + 1)
    try:
        for j, field in enumerate(schema):
            (<ColumnWriter> ColumnWriter(field)).write_array(&w, c, j, 0, batch.column(j))
        c.n = <int32_t> len(batch)
        c.slots = c.n
        if select is not None:
            c.sel = <int32_t*> chunk_alloc(&w, c, 4 * len(select) + 4)
            for i, j in enumerate(select):
                c.sel[i] = j
            c.n = <int32_t> len(select)
        return (<RowReader> RowReader(schema, storage)).rows(c, c.sel, c.n)
    finally:
        chunk_free(&w, c)
        worker_free(&w)
        pool_free(&pool)


def write_rows(schema, rows):
    """(rows that were written, error) of writing Python values as a function's outputs."""
    cdef ChunkPool pool
    cdef Worker w
    cdef Chunk* c
    from ordstream._core.ground.chunk import layout_of
    cdef LayoutOwner layout = layout_of(schema)
    cdef RowWriter writer = RowWriter(schema)
    pool_init(&pool, <int32_t> len(schema), 1 << 20)
    worker_init(&w, &pool, 0)
    c = chunk_new(&w)
    error = None
    try:
        for i, row in enumerate(rows):
            if chunk_reserve(&w, c, &layout.layout, 1) < 0:
                raise MemoryError
            try:
                writer.append(&w, c, writer.fitted(row), i)
            except Exception as e:
                error = e
                break
        return [tuple(row) for row in (<RowReader> RowReader(schema)).rows(c, NULL, c.n)], error
    finally:
        chunk_free(&w, c)
        worker_free(&w)
        pool_free(&pool)
