"""The cap on the state of a run. See state_bound.pxd."""
from cpython.ref cimport PyObject, Py_DECREF
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.flow.delivery cimport out_of_memory
from ordstream._core.flow.operator cimport Operator
from ordstream._core.ground.atomics cimport a64, add_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_F32, PT_F64, PT_LIST, PT_U64, PT_VIEW, Chunk, Failure, Part, View, Worker, chunk_free,
    chunk_new, failure_new, scratch_reset,
)
from ordstream._core.ground.list_values cimport list_count
from ordstream._core.ground.kernel cimport PS, Kernel, StateCursor
from ordstream._core.ground.shown_text cimport shown_text
from ordstream._core.state.row_values cimport row_null, row_value

cdef enum:
    EXPORTED = 256         # rows of state that are looked at together
    KEY_ROOM = 48          # bytes of a key in an error
    BYTES_OF = 8           # an element of a list counts as so many bytes


cdef StateBound* bound_new(Operator* operators, int32_t n, int64_t most) noexcept:
    """A bound for operators that are built. NULL: no memory."""
    cdef StateBound* bound = <StateBound*> calloc(1, sizeof(StateBound))
    cdef int32_t i
    if bound == NULL:
        return NULL
    bound.most = most
    bound.n = n
    bound.by = <a64*> calloc(n, sizeof(a64))
    bound.told = <int64_t**> calloc(n, sizeof(int64_t*))
    for i in range(n if bound.told != NULL else 0):
        bound.told[i] = <int64_t*> calloc(operators[i].pq.p if operators[i].kind == PS else 1,
                                          sizeof(int64_t))
        if bound.told[i] == NULL:
            bound_free(bound)
            return NULL
    if bound.told == NULL or bound.by == NULL:
        bound_free(bound)
        return NULL
    return bound


cdef void bound_free(StateBound* bound) noexcept:
    """Give a bound back. No worker is left."""
    cdef int32_t i
    if bound == NULL:
        return
    for i in range(bound.n if bound.told != NULL else 0):
        free(bound.told[i])
    free(bound.told)
    free(bound.by)
    free(bound)


cdef int64_t row_bytes(const Kernel* k, const Chunk* rows, int32_t slot) noexcept nogil:
    """What a row of exported state takes."""
    cdef int64_t bytes = 0
    cdef int32_t j
    for j in range(k.state.ncols):
        bytes += k.state.width[j]
        if row_null(rows, j, slot):
            continue
        if k.state.type[j] == PT_VIEW:
            bytes += (<const View*> rows.cols[j].data)[slot].size
        elif k.state.type[j] == PT_LIST:
            bytes += list_count(&(<const View*> rows.cols[j].data)[slot]) * BYTES_OF
    return bytes


cdef void key_of_row(const Kernel* k, const Chunk* rows, int32_t slot, char* to) noexcept nogil:
    """The key columns of a row of exported state as text, cut where they are long."""
    cdef const View* v
    cdef int64_t at = 0
    cdef int64_t word
    cdef double real
    cdef int32_t type_
    cdef int32_t j
    to[0] = 0
    for j in range(k.state_keys.ncols if k.state_keys != NULL else 0):
        if j and at < KEY_ROOM - 1:
            at += snprintf(to + at, <size_t> (KEY_ROOM - at), ", ")
        if at >= KEY_ROOM - 1:
            return
        type_ = k.state.type[j]
        if row_null(rows, j, slot):
            at += snprintf(to + at, <size_t> (KEY_ROOM - at), "null")
        elif type_ == PT_VIEW:
            v = &(<const View*> rows.cols[j].data)[slot]
            at += shown_text(to + at, KEY_ROOM - at, v.data, v.size)
        elif type_ == PT_F32 or type_ == PT_F64:
            word = row_value(k.state, rows, j, slot)
            memcpy(&real, &word, 8)
            at += snprintf(to + at, <size_t> (KEY_ROOM - at), "%.17g", real)
        elif type_ == PT_U64:
            at += snprintf(to + at, <size_t> (KEY_ROOM - at), "%llu",
                           <unsigned long long> row_value(k.state, rows, j, slot))
        else:
            at += snprintf(to + at, <size_t> (KEY_ROOM - at), "%lld",
                           <long long> row_value(k.state, rows, j, slot))


cdef int64_t largest_key(Kernel* k, Worker* w, void* state, char* to) noexcept nogil:
    """Bytes of the largest row of a bucket's state, and its key as text; 0: it is not known."""
    cdef StateCursor cursor
    cdef Failure f
    cdef Chunk* c
    cdef int64_t most = 0
    cdef int64_t bytes
    cdef int32_t n
    cdef int32_t i
    to[0] = 0
    if k.state_export == NULL:
        return 0
    memset(&cursor, 0, sizeof(StateCursor))
    cursor.most = EXPORTED
    while not cursor.done:
        scratch_reset(w)
        c = chunk_new(w)
        if c == NULL:
            return most
        f.exc = NULL
        n = k.state_export(k, w, state, &cursor, c, &f)
        for i in range(n):
            bytes = row_bytes(k, c, i)
            if bytes > most:
                most = bytes
                key_of_row(k, c, i, to)
        chunk_free(w, c)
        if n < 0:
            if f.exc != NULL:
                drop(f.exc)
            return most
    return most


cdef void drop(void* exc) noexcept with gil:
    Py_DECREF(<object> <PyObject*> exc)


cdef Failure* state_too_large(Operator* op, Worker* w, void* state, Part* part) noexcept nogil:
    """After a part: the failure of its last row, if all states together are larger than they may be.

    Thread safety: the bucket's holder. Ownership: the caller's. Returns: NULL where there is room; without
    memory for the failure the run ends. Cost: the kernel's bucket_bytes and, where it changed, an atomic
    addition; an export of the bucket where the cap is met.
    """
    cdef StateBound* bound = op.run.bound
    cdef int64_t* told
    cdef int64_t bytes
    cdef int64_t change
    cdef int64_t total
    cdef int64_t most
    cdef char[48] key          # KEY_ROOM
    cdef char[160] text
    cdef Failure* failure
    if op.kernel.bucket_bytes == NULL or part.n == 0:
        return NULL
    bytes = op.kernel.bucket_bytes(op.kernel, state)
    told = &bound.told[op.index][part.bucket if op.kind == PS else 0]
    change = bytes - told[0]
    if change == 0:
        return NULL
    told[0] = bytes
    bytes = add_relaxed(&bound.by[op.index], change) + change    # statistic
    total = add_relaxed(&bound.bytes, change) + change       # who reads it a little late fails a part later
    if change < 0 or total <= bound.most:
        return NULL
    most = largest_key(op.kernel, w, state, key)
    if key[0]:
        snprintf(text, sizeof(text), "the run's state has %lld bytes, max_state_bytes is %lld: %lld here; "
                 "largest key: %s, with %lld", <long long> total, <long long> bound.most, <long long> bytes,
                 key, <long long> most)
    else:
        snprintf(text, sizeof(text), "the run's state has %lld bytes, max_state_bytes is %lld: %lld here",
                 <long long> total, <long long> bound.most, <long long> bytes)
    failure = failure_new(part.rows[part.n - 1], FAIL_MEMORY, text)
    if failure == NULL:
        out_of_memory(op)
    return failure
