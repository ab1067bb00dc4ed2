"""State at a snapshot marker (exports.pxd states the design)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.arrow cimport output_export
from ordstream._core.ground.atomics cimport (
    add_relaxed, as_int, as_pointer, cas_acq_rel, exchange_acq_rel, load_relaxed,
)
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_OVERFLOW, Chunk, Failure, Worker, chunk_free, chunk_new, failure_set, scratch_reset,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.ground.output_batch cimport output_append, output_free, output_new
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.threads cimport now_ns

cdef enum:
    CHUNK_ROWS = 4096          # rows that a kernel copies at once: they stay in the cache
    BATCH_ROWS = 1 << 16       # rows of a batch


cdef void export_push(Exports* to, Export* e) noexcept nogil:
    """Put a filled export in front. Any worker."""
    cdef int64_t head = load_relaxed(&to.head)
    while True:
        e.next = <Export*> as_pointer(head)
        # release pairs with exchange_acq_rel in exports_take
        if cas_acq_rel(&to.head, head, as_int(e)):
            return
        head = load_relaxed(&to.head)


cdef int export_clock(Exports* to, int64_t marker, int64_t served, int32_t timed,
                      int64_t time) noexcept nogil:
    """What the ingress knows where it makes a marker. Under its flag. 0, or -1: no memory."""
    cdef Export* e
    if not to.on:
        return 0
    e = <Export*> calloc(1, sizeof(Export))
    if e == NULL:
        return -1
    e.marker = marker
    e.index = OF_INGRESS
    e.timed = timed
    e.time = time
    e.served = served
    e.at = now_ns()
    export_push(to, e)
    return 0


cdef int take_rows(Exports* to, Export* e, const Kernel* k, Chunk* c, Failure* f) noexcept nogil:
    """Append a chunk's rows to the export's batches. 0, or -1: f is filled."""
    cdef int64_t done = 0
    cdef int64_t n
    cdef Output* o
    while done < c.n:
        o = e.rows
        if o == NULL or o.rows >= BATCH_ROWS:
            o = output_new(k.state, c.n if e.rows == NULL else <int64_t> BATCH_ROWS, False)
            if o == NULL:
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            o.next = e.rows
            o.pool = to.pool
            add_relaxed(&to.pool.bytes, o.bytes)              # who decides by it may be late; no partner
            e.rows = o
        n = output_append(o, c, done, min(c.n - done, BATCH_ROWS - o.rows))
        if n < 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        if n == 0 and o.rows == 0:
            failure_set(f, -1, FAIL_OVERFLOW,
                        b"the state of a key has a value that no batch can hold (2 GiB)")
            return -1
        if n == 0:                                            # its offsets are at their end
            e.rows = output_new(k.state, 64, False)
            if e.rows == NULL:
                e.rows = o
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            e.rows.next = o
            e.rows.pool = to.pool
            add_relaxed(&to.pool.bytes, e.rows.bytes)
        done += n
    return 0


cdef int export_state(Exports* to, Kernel* k, Worker* w, int32_t index, void* state, int64_t marker,
                      Failure* f) noexcept nogil:
    """Copy the state of a bucket.

    Thread safety: the bucket's holder. Ownership: `to` gets the rows. Returns: 0, or -1 (f is filled).
    Cost: state_export, and a copy of each column.
    """
    cdef StateCursor cursor
    cdef Chunk* c
    cdef Export* e
    cdef int32_t n
    if not to.on or k.state_export == NULL:
        return 0
    e = <Export*> calloc(1, sizeof(Export))
    if e == NULL:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    e.marker = marker
    e.index = index
    e.at = now_ns()
    memset(&cursor, 0, sizeof(StateCursor))
    cursor.most = CHUNK_ROWS
    while not cursor.done:
        scratch_reset(w)
        c = chunk_new(w)
        if c == NULL:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            n = -1
        else:
            n = k.state_export(k, w, state, &cursor, c, f)
            if n > 0 and take_rows(to, e, k, c, f) != 0:
                n = -1
            chunk_free(w, c)
        if n < 0:
            export_free(e)
            return -1
    e.ns = now_ns() - e.at
    export_push(to, e)
    return 0


cdef Export* exports_take(Exports* of) noexcept nogil:
    """Everything that is there, the newest first. Ownership: the caller's."""
    # pairs with cas_acq_rel in export_push
    return <Export*> as_pointer(exchange_acq_rel(&of.head, 0))


cdef void export_free(Export* e) noexcept nogil:
    """Give an export and its batches back."""
    cdef Output* o
    while e.rows != NULL:
        o = e.rows
        e.rows = o.next
        output_free(o)
    free(e)


cdef void exports_free(Exports* of) noexcept nogil:
    """Give back what nobody took. No worker is left."""
    cdef Export* e = exports_take(of)
    cdef Export* following
    while e != NULL:
        following = e.next
        export_free(e)
        e = following


cdef list exported_batches(Exports* of, schemas):
    """Everything that is there: a list of (marker, operator index or -1, batches, (served, latest time or
    None), ns of the copy), in no order. schemas: of the operators' rows in core types, by index."""
    cdef Export* e = exports_take(of)
    cdef Export* following
    cdef Output* o
    found = []
    while e != NULL:
        following = e.next
        batches = []
        while e.rows != NULL:
            o = e.rows
            e.rows = o.next
            o.next = NULL
            if o.pool != NULL:
                add_relaxed(&o.pool.bytes, -o.bytes)          # the reader's from now on
                o.pool = NULL
            batches.append(output_export(o, schemas[e.index]))
        found.append((e.marker, e.index, batches, (e.served, e.time if e.timed else None), e.ns))
        export_free(e)
        e = following
    return found
