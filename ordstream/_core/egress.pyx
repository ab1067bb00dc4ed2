"""Writing output batches (egress.pxd states the design)."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from ordstream._core.arrow cimport Output, output_append, output_free, output_new
from ordstream._core.atomics cimport as_int, as_pointer, load_relaxed, store_relaxed, store_release
from ordstream._core.chunk cimport *
from ordstream._core.ingress cimport Ingress
from ordstream._core.spsc cimport spsc_free, spsc_init, spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.threads cimport now_ns

cdef enum:
    READY_SLOTS = 4096
    SAMPLES = 1 << 16
    FIRST_ROWS = 1024


cdef int egress_init(Egress* e, const Layout* layout, Ingress* g, bint tags) noexcept nogil:
    """0, or -1: no memory."""
    memset(<void*> e, 0, sizeof(Egress))
    e.layout = layout
    e.ingress = g
    e.tags = tags
    e.batch_rows = 65536
    e.first_rows = FIRST_ROWS
    e.batch_bytes = 64 << 20
    e.max_ready = 64
    e.sample_every = 1
    e.row_index = -1
    e.sample_capacity = SAMPLES
    e.samples = <LatencySample*> malloc(SAMPLES * sizeof(LatencySample))
    if e.samples == NULL:
        return -1
    return spsc_init(&e.ready, READY_SLOTS, 0)


cdef void egress_free(Egress* e) noexcept nogil:
    cdef Output* o
    if e.ready.slots != NULL:
        while True:
            o = <Output*> as_pointer(spsc_try_take(&e.ready))
            if o == NULL:
                break
            output_free(o)
    if e.current != NULL:
        output_free(e.current)
        e.current = NULL
    free(e.samples)
    free(e.failure)
    e.failure = NULL
    spsc_free(&e.ready)


cdef bint egress_has_room(Egress* e) noexcept nogil:
    """True when a unit may be delivered. Any thread."""
    return spsc_size_approx(&e.ready) < e.max_ready


cdef inline void written_through(Egress* e, const Chunk* c, int32_t first, int32_t n) noexcept nogil:
    """n > 0 selected rows of a chunk, from `first`, were written: advance the order tag of the last row. Writer only.

    Cost: two loads where a tuple gives one row; else logarithmic in n: serials ascend within a chunk.
    """
    cdef int32_t low = first
    cdef int32_t high = first + n - 1
    cdef int32_t middle
    cdef int64_t serial = slot_serial(c, row_slot(c, high))
    if c.serials == NULL:                                     # every slot is another tuple
        low = high
    elif slot_serial(c, row_slot(c, low)) != serial:
        while high - low > 1:                                 # rows at `low` are of earlier tuples, those at `high` are not
            middle = low + (high - low) // 2
            if slot_serial(c, row_slot(c, middle)) == serial:
                high = middle
            else:
                low = middle
        low = high
    if low > first or serial != e.row_serial:
        e.row_serial = serial
        e.row_index = -1
    e.row_index += first + n - low


cdef void egress_commit_point(Egress* e, int64_t* serial, int64_t* index) noexcept nogil:
    """The order tag through which all outputs, and none behind it, were written. The writer, or anyone when the workers have ended."""
    serial[0] = load_relaxed(&e.ingress.emitted_serial)       # own value
    index[0] = -1
    if e.row_index >= 0 and e.row_serial >= serial[0]:
        serial[0] = e.row_serial
        index[0] = e.row_index


cdef void egress_publish(Egress* e) noexcept nogil:
    """Hand the current batch over if it has rows. Writer only; the queue has room (max_ready < READY_SLOTS)."""
    if e.current == NULL or e.current.rows == 0:
        return
    e.current.emitted_through = load_relaxed(&e.ingress.emitted_serial)   # own value
    egress_commit_point(e, &e.current.point_serial, &e.current.point_index)
    # The next batch will probably be about as large: room for it from the beginning, instead of growing step by step.
    e.first_rows = min(max(e.current.rows, <int64_t> FIRST_ROWS), e.batch_rows + e.batch_rows // 8)
    spsc_try_push(&e.ready, as_int(e.current))
    e.current = NULL
    store_relaxed(&e.writing, 0)                          # a hint; no partner


cdef void sample(Egress* e, Chunk* c) noexcept nogil:
    """Record a marker's two latencies; when the array is full keep every second one from then on."""
    cdef int64_t now
    cdef int64_t k
    e.sample_seen += 1
    if e.sample_seen % e.sample_every != 0:
        return
    if e.nsamples == e.sample_capacity:
        for k in range(e.nsamples // 2):
            e.samples[k] = e.samples[2 * k + 1]
        e.nsamples //= 2
        e.sample_every *= 2
    now = now_ns()
    e.samples[e.nsamples].serial = c.last_serial
    e.samples[e.nsamples].processing_ns = now - c.dispatched_ns
    e.samples[e.nsamples].end_to_end_ns = now - c.arrived_ns
    e.samples[e.nsamples].emitted_ns = now
    e.nsamples += 1


cdef bint egress_deliver(Egress* e, Worker* w, Chunk* unit) noexcept nogil:
    """Write a unit's rows and free its chunks. False: nothing was taken, there is no room.

    Thread safety: one worker at a time. Ownership of the unit: taken on True. Cost: one gather per column.
    """
    cdef Chunk* c = unit
    cdef Chunk* following
    cdef int rc
    cdef int64_t retired = 0
    cdef int64_t emitted = -1
    if spsc_size_approx(&e.ready) >= e.max_ready:
        return False
    while c != NULL:
        following = c.link
        if load_relaxed(&e.ended):
            # After a failure nothing is delivered; chunks behind it only give their memory back.
            retired += c.counted
            if c.failure != NULL:
                c.link = e.dropped
                e.dropped = c
            else:
                chunk_free(w, c)
            c = following
            continue
        if c.kind == DATA:
            if c.n:
                if e.current == NULL:
                    e.current = output_new(e.layout, e.first_rows, e.tags)
                    store_relaxed(&e.writing, as_int(e.current))   # a hint; no partner
                rc = -1 if e.current == NULL else output_append(e.current, c)
                if rc != 0:
                    e.no_memory = 1
                    e.failure = failure_new(-1, FAIL_MEMORY, b"no memory for an output batch")
                    e.failed_operator = -2
                    e.failed_serial = c.last_serial
                    store_release(&e.ended, 1)            # pairs with the reader's load_acquire
                else:
                    written_through(e, c, 0, c.n)
                    store_relaxed(&e.rows_out, load_relaxed(&e.rows_out) + c.n)   # one writer; a statistic for others
            if c.dispatched_ns:
                sample(e, c)
            if c.counted and load_relaxed(&e.ended) == 0:     # 1: it could not be written
                emitted = c.last_serial
        elif c.kind == FAILURE:
            if emitted >= 0:
                store_release(&e.ingress.emitted_serial, emitted)     # pairs with load_acquire in the feeding thread
            egress_publish(e)
            e.failure = c.failure
            c.failure = NULL
            e.failed_operator = c.failed_operator
            e.failed_serial = c.first_serial
            e.failed = c
            store_release(&e.ended, 1)                    # pairs with the reader's load_acquire
            retired += c.counted
            c = following
            continue
        elif c.kind == END_OF_STREAM:
            if emitted >= 0:
                store_release(&e.ingress.emitted_serial, emitted)     # pairs with load_acquire in the feeding thread
            egress_publish(e)
            store_release(&e.ended, 1)                    # pairs with the reader's load_acquire
        elif c.kind == TIME:
            e.markers_time += 1
        else:
            e.markers_snapshot += 1
        retired += c.counted
        chunk_free(w, c)
        c = following
    if emitted >= 0:
        store_release(&e.ingress.emitted_serial, emitted)     # pairs with load_acquire in the feeding thread
    if retired:
        # pairs with load_acquire in the ingress's admits
        store_release(&e.ingress.retired_chunks, load_relaxed(&e.ingress.retired_chunks) + retired)
    if e.current != NULL and (e.current.rows >= e.batch_rows or load_relaxed(&e.wanted) != 0):
        store_relaxed(&e.wanted, 0)
        egress_publish(e)
    return True
