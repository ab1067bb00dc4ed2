"""Writing output batches (egress.pxd states the design)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.lent_columns cimport (
    LEAST_LENT, LEND_ENDS, LEND_NO_MEMORY, Lending, kinds_free, output_lend, output_own,
)
from ordstream._core.ground.output_batch cimport (
    output_append, output_bare, output_free, output_new, rows_within,
)
from ordstream._core.ground.output_columns cimport Output, offset_limit
from ordstream._core.ground.packed_values cimport packed_measure, packed_valid, packed_write
from ordstream._core.ground.source_values cimport (
    Offsets, SourceRows, bit_at, offset_at, source_offsets, source_value,
)
from ordstream._core.ground.list_values cimport LIST_NULLS, list_count
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.flow.assemble cimport copy_row
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.atomics cimport (
    add_relaxed, as_int, as_pointer, load_acquire, load_relaxed, store_relaxed, store_release,
)
from ordstream._core.ground.chunk cimport *
from ordstream._core.flow.ingress cimport Ingress, came_with_rows
from ordstream._core.flow.left_marks cimport left_mark_put, left_marks_free
from ordstream._core.ground.marked_rows cimport marked_whole
from ordstream._core.ground.spsc cimport spsc_free, spsc_init, spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.ground.threads cimport now_ns

cdef enum:
    READY_SLOTS = 4096     # more than the most that `max_ready` may be (node/settings.py)
    BATCH_ROWS = 65536     # as `ordstream.ground.batches.BATCH_ROWS`: what passes goes on in one piece
    SAMPLES = 1 << 16
    FIRST_ROWS = 1024
    # Memory of one output batch: at most BATCH_BYTES, and at most the cap divided by BATCH_PART; but
    # LEAST_BATCH even under a small cap, or batches would have a row each.
    BATCH_BYTES = 64 << 20
    BATCH_PART = 8
    LEAST_BATCH = 64 << 10
    WIDEST = 16            # bytes of a value


cdef int egress_init(Egress* e, const Layout* layout, Ingress* g, ChunkPool* pool, bint tags) noexcept nogil:
    """0, or -1: no memory."""
    memset(<void*> e, 0, sizeof(Egress))
    e.layout = layout
    e.ingress = g
    e.pool = pool
    e.tags = tags
    e.batch_rows = BATCH_ROWS
    e.first_rows = FIRST_ROWS
    egress_bound(e, <int64_t> 1 << 60)
    e.max_ready = 64
    e.sample_every = 1
    e.row_index = -1
    e.tells_marks_of = -1
    e.sample_capacity = SAMPLES
    e.samples = <LatencySample*> malloc(SAMPLES * sizeof(LatencySample))
    if e.samples == NULL:
        return -1
    return spsc_init(&e.ready, READY_SLOTS, 0)


cdef void egress_bound(Egress* e, int64_t max_bytes) noexcept nogil:
    """Set the cap on what is in flight, and with it how large a batch may get. Before the run."""
    e.max_bytes = max_bytes
    e.batch_bytes = min(max(max_bytes // BATCH_PART, <int64_t> LEAST_BATCH), <int64_t> BATCH_BYTES)


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
    kinds_free(&e.kinds)
    left_marks_free(&e.left_marks)
    free(e.samples)
    free(e.rows)
    free(e.failure)
    e.failure = NULL
    spsc_free(&e.ready)


cdef bint egress_has_room(Egress* e) noexcept nogil:
    """True when a unit may be delivered: no finished batch waits, or few do and the bytes in flight are
    below the cap.

    Any thread. It may read old values; a thread that changes them (the reader that takes a batch, a worker
    that frees a chunk) looks for parked work afterwards.
    """
    cdef int64_t waiting = spsc_size_approx(&e.ready)
    return waiting == 0 or (waiting < e.max_ready and load_relaxed(&e.pool.bytes) < e.max_bytes)


cdef inline void written_through(Egress* e, const Chunk* c, int32_t first, int32_t n) noexcept nogil:
    """n > 0 selected rows of a chunk, from `first`, were written: advance the order tag of the last row.
    Writer only.

    Cost: two loads where a tuple gives one row; else logarithmic in n: serials ascend within a chunk.
    """
    cdef int32_t low = first
    cdef int32_t high = first + n - 1
    cdef int32_t middle
    cdef int64_t serial = slot_serial(c, row_slot(c, high))
    if c.serials == NULL:                                     # every slot is another tuple
        low = high
    elif slot_serial(c, row_slot(c, low)) != serial:
        # rows at `low` are of earlier tuples, those at `high` are not
        while high - low > 1:
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
    """The order tag through which all outputs, and none behind it, were written. The writer, or anyone when
    the workers have ended."""
    serial[0] = load_relaxed(&e.ingress.emitted_serial)       # own value
    index[0] = -1
    if e.row_index >= 0 and e.row_serial >= serial[0]:
        serial[0] = e.row_serial
        index[0] = e.row_index


cdef void egress_publish(Egress* e) noexcept nogil:
    """Hand the current batch over if it has rows. Writer only; the queue has room (max_ready <
    READY_SLOTS)."""
    publish(e, load_relaxed(&e.ingress.emitted_serial))       # own value


cdef void publish(Egress* e, int64_t through) noexcept nogil:
    """egress_publish, where every output through serial `through` is in the batch or in an earlier one."""
    if e.current == NULL or e.current.rows == 0:
        return
    e.current.emitted_through = through
    egress_commit_point(e, &e.current.point_serial, &e.current.point_index)
    # The next batch will probably be about as large: room for it from the beginning, instead of growing step
    # by step.
    e.first_rows = min(max(e.current.rows, <int64_t> FIRST_ROWS), e.batch_rows + e.batch_rows // 8)
    spsc_try_push(&e.ready, as_int(e.current))
    e.current = NULL
    store_relaxed(&e.writing, 0)                          # a hint; no partner


cdef int publish_marker(Egress* e, int64_t number) noexcept nogil:
    """Hand over what is in front of a snapshot marker, and then the marker itself. Writer only. 0, or -1: no
    memory."""
    cdef Output* o
    egress_publish(e)
    if not e.shows_markers:
        return 0
    o = output_new(e.layout, 1, False)
    if o == NULL:
        return -1
    o.marker = number
    o.emitted_through = load_relaxed(&e.ingress.emitted_serial)   # own value
    o.point_serial = e.row_serial                             # of the last row, unlike that of a batch
    o.point_index = e.row_index
    spsc_try_push(&e.ready, as_int(o))
    return 0


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


cdef int new_batch(Egress* e) noexcept nogil:
    """A batch to write to, counted as in flight; its columns get memory with the first rows (output_lend).
    0, or -1: no memory."""
    # Columns of fixed width get at most half of the batch's memory: strings and lists need the rest.
    cdef int64_t rows = min(e.first_rows, rows_within(e.layout, e.tags, e.batch_bytes // 2))
    cdef Output* o = output_bare(e.layout, rows, e.tags)
    if o == NULL:
        return -1
    o.budget = e.batch_bytes
    o.keep = e.max_bytes
    o.pool = e.pool
    add_relaxed(&e.pool.bytes, o.bytes)                       # who decides by it may be late; no partner
    e.current = o
    store_relaxed(&e.writing, as_int(o))                      # a hint; no partner
    return 0


cdef enum Written:
    WRITTEN_ALL
    WRITTEN_PART               # a batch is full, and there is no room for the next one
    WRITTEN_NO_MEMORY
    WRITTEN_TOO_WIDE           # no batch can hold the next row


cdef inline Batch* batch_of(Egress* e, int64_t serial) noexcept nogil:
    """The input batch of a tuple, of which `lender` or a later one is; NULL: nothing is ever lent. Writer
    only."""
    cdef Batch* b = e.lender
    cdef Batch* following
    if b == NULL:
        return NULL
    while True:
        following = <Batch*> as_pointer(load_acquire(&b.following))   # pairs with store_release in Run.put
        if following == NULL or following.first_serial > serial:
            return b
        b = following


cdef inline void follow(Egress* e, int64_t serial) noexcept nogil:
    """All outputs through this serial are in: let go of input batches in front. Writer only."""
    cdef Batch* b = batch_of(e, serial)
    if b == e.lender:
        return
    e.lender = b
    if e.current != NULL and e.current.lender != NULL and e.current.lender != <void*> b:
        if e.current.rows >= LEAST_LENT or output_own(e.current) != 0:
            egress_publish(e)


cdef inline SourceRows source_of(const Egress* e, const Chunk* c, const Batch* b) noexcept nogil:
    """Where the values of a chunk's slots lie in their input batch; `batch` is NULL where no column passes
    unread. If one does, every row is of an input batch (plan/columns.py)."""
    cdef SourceRows source
    source.batch = NULL
    source.passing = &e.kinds.passing
    source.row = 0
    source.rows = NULL
    if e.kinds.passing.column != NULL and b != NULL:
        source.batch = b
        if c.serials == NULL:
            source.row = c.first_serial - b.first_serial
    return source


cdef int find_rows(Egress* e, const Chunk* c, SourceRows* source) noexcept nogil:
    """Say of a chunk whose rows an operator made, from the `written`-th on, which rows of their input batch
    they are. Writer only. 0, or -1: no memory."""
    cdef int64_t first = source.batch.first_serial
    cdef int32_t* rows
    cdef int32_t k
    if c.n > e.rows_room:
        rows = <int32_t*> realloc(e.rows, <size_t> c.n * sizeof(int32_t))
        if rows == NULL:
            return -1
        e.rows = rows
        e.rows_room = c.n
    for k in range(<int32_t> e.written, c.n):
        e.rows[k] = <int32_t> (c.serials[row_slot(c, k)] - first)
    source.rows = e.rows
    return 0


cdef Written write_rows(Egress* e, Chunk* c) noexcept nogil:
    """Append the chunk's rows from the `written`-th on, to as many batches as it takes. Each full batch is
    handed over at once."""
    cdef int64_t n
    cdef int64_t bytes
    cdef Batch* b = NULL
    cdef Lending lending
    cdef SourceRows source
    if e.lender != NULL and (c.serials == NULL or e.kinds.passing.column != NULL):
        b = batch_of(e, slot_serial(c, row_slot(c, <int32_t> e.written)))
        e.lender = b
    source = source_of(e, c, b)
    if source.batch != NULL and c.serials != NULL and find_rows(e, c, &source) != 0:
        return WRITTEN_NO_MEMORY
    while True:
        if e.current == NULL and new_batch(e) != 0:
            return WRITTEN_NO_MEMORY
        # A batch may exceed batch_rows a little, so that a chunk of usual size is not split.
        n = min(c.n - e.written, e.batch_rows + e.batch_rows // 8 - e.current.rows)
        lending = output_lend(e.current, c, e.written, n, b, &e.kinds, source.rows)
        if lending == LEND_NO_MEMORY:
            return WRITTEN_NO_MEMORY
        n = (output_append(e.current, c, e.written, n, &source if source.batch != NULL else NULL)
             if lending != LEND_ENDS else 0)
        if n < 0:
            return WRITTEN_NO_MEMORY
        if n:
            written_through(e, c, <int32_t> e.written, <int32_t> n)
        store_relaxed(&e.rows_out, load_relaxed(&e.rows_out) + n)   # one writer; a statistic for others
        bytes = load_relaxed(&e.pool.bytes)
        if bytes > load_relaxed(&e.peak):
            store_relaxed(&e.peak, bytes)                     # own value
        e.written += n
        if e.written == c.n:
            e.written = 0
            return WRITTEN_ALL
        if n == 0 and e.current.rows == 0:
            return WRITTEN_TOO_WIDE
        # The batch ends in the middle of a chunk, or in front of one. It may have some outputs of the next
        # row's serial, but not all.
        publish(e, max(load_relaxed(&e.ingress.emitted_serial),
                       slot_serial(c, row_slot(c, <int32_t> e.written)) - 1))
        if not egress_has_room(e):
            return WRITTEN_PART


cdef void fail_memory(Egress* e, const Chunk* c) noexcept nogil:
    """End the run: there is no memory for what a chunk gives. Writer only."""
    e.no_memory = 1
    e.failure = failure_new(-1, FAIL_MEMORY, b"no memory for an output batch")
    e.failed_operator = -2
    e.failed_serial = c.last_serial
    store_release(&e.ended, 1)                            # pairs with the reader's load_acquire


cdef void refuse_row(Egress* e, Worker* w, Chunk* c) noexcept nogil:
    """Fail at the `written`-th row of a chunk, which no batch can hold. The row is kept, without the value
    that is too long."""
    cdef int32_t slot = row_slot(c, <int32_t> e.written)
    cdef int32_t j = e.current.over
    cdef View v
    cdef char[160] text
    cdef Column* cols
    e.failed_operator = -3
    e.failed_serial = slot_serial(c, slot)
    e.failed = chunk_new(w)
    cols = row_of(e, w, c, slot)
    if cols == NULL:
        e.failure = failure_new(j, FAIL_OVERFLOW, b"a value that no output batch holds")
        return
    memcpy(&v, cols[j].data, sizeof(View))
    snprintf(text, 160, b"a value of %lld %s; an output batch holds at most %lld",
             <long long> list_count(&v), b"elements" if e.layout.type[j] == PT_LIST else b"bytes",
             <long long> offset_limit)
    e.failure = failure_new(j, FAIL_OVERFLOW, text)
    cols[j].data = NULL                                       # shown as null
    if copy_row(w, e.failed, cols, e.layout, 0) != 0:
        e.failed.n = 0


cdef Column* row_of(Egress* e, Worker* w, const Chunk* c, int32_t slot) noexcept nogil:
    """Columns of which slot 0 is a row of a chunk, in the memory of `failed`. NULL: there is none."""
    cdef Batch* b = batch_of(e, slot_serial(c, slot))
    cdef SourceRows source = source_of(e, c, b)
    cdef int32_t n = e.layout.ncols
    cdef Column* cols
    cdef char* values
    cdef int32_t j
    cdef int32_t s
    if e.failed == NULL:
        return NULL
    if source.batch != NULL and c.serials != NULL:
        source.row = c.serials[slot] - b.first_serial - slot
    cols = <Column*> chunk_alloc(w, e.failed, n * <int64_t> sizeof(Column))
    values = <char*> chunk_alloc(w, e.failed, n * <int64_t> (WIDEST + 1))
    if cols == NULL or values == NULL:
        return NULL
    for j in range(n):
        s = e.kinds.passing.column[j] if source.batch != NULL else -1
        if s < 0:
            cols[j].data = c.cols[j].data + slot * e.layout.width[j] if c.cols[j].data != NULL else NULL
            cols[j].valid = c.cols[j].valid + slot if c.cols[j].valid != NULL else NULL
            continue
        cols[j].data = values + j * WIDEST
        cols[j].valid = <uint8_t*> values + n * WIDEST + j
        if source.passing.formats[s][0] == c"P":
            packed_value(w, e.failed, &source, s, slot, &cols[j])
            continue
        source_value(&source, s, slot, cols[j].data, cols[j].valid)
        if e.layout.type[j] == PT_LIST:
            add_list_nulls(w, e.failed, &source, s, slot, <View*> cols[j].data, WIDTHS[e.layout.element[j]])
    return cols


cdef void add_list_nulls(Worker* w, Chunk* to, const SourceRows* source, int32_t s, int32_t slot, View* v,
                         int64_t width) noexcept nogil:
    """Say of a list in the producer's buffers which elements are null; the copy lies in `to`. Without memory
    the list is empty."""
    cdef const ArrowArray* items = source.batch.array.children[s].children[0]
    cdef const uint8_t* there = <const uint8_t*> items.buffers[0]
    cdef Offsets x
    cdef int64_t n = v.size
    cdef int64_t first
    cdef int64_t i
    cdef char* bytes
    if n == 0 or items.null_count == 0 or there == NULL:
        return
    x = source_offsets(source, s)
    first = items.offset + offset_at(&x, slot)
    bytes = chunk_alloc(w, to, n * (width + 1))
    if bytes == NULL:
        v.size = 0
        return
    memcpy(bytes, v.data, <size_t> (n * width))
    for i in range(n):
        bytes[n * width + i] = bit_at(there, first + i)
    v.data = bytes
    v.size = n | LIST_NULLS


cdef void packed_value(Worker* w, Chunk* to, const SourceRows* source, int32_t s, int32_t slot,
                       Column* col) noexcept nogil:
    """source_value of a packed type; its bytes lie in `to`. Null where there is no memory for them."""
    cdef const ArrowArray* a = source.batch.array.children[s]
    cdef const char* format = source.passing.formats[s]
    cdef int64_t row = source.batch.array.offset + source.row + slot
    cdef View v
    cdef char* bytes
    v.size = packed_measure(format, a, row, NULL, 1, NULL)
    bytes = chunk_alloc(w, to, v.size + 1) if v.size >= 0 else NULL
    v.data = bytes
    col.valid[0] = packed_valid(a, row)
    if bytes == NULL or packed_write(format, a, row, NULL, 1, bytes) != 0:
        v.size = 0
        col.valid[0] = 0
    memcpy(col.data, &v, sizeof(View))


cdef inline void give_back(Worker* w, Chunk* c) noexcept nogil:
    """unit_free, quick where there is one lane."""
    if c.beside != NULL:
        unit_free(w, c.beside)
    chunk_free(w, c)


cdef inline void tell_progress(Egress* e, int64_t emitted, int64_t retired) noexcept nogil:
    """Let others see what was written: the serial emitted through (-1: no news), and more chunks retired."""
    if emitted >= 0:
        follow(e, emitted)
        store_release(&e.ingress.emitted_serial, emitted)     # pairs with load_acquire in the feeding thread
    if retired:
        # pairs with load_acquire in the ingress's admits
        store_release(&e.ingress.retired_chunks, load_relaxed(&e.ingress.retired_chunks) + retired)


cdef inline void leave_rest(Chunk* unit, Chunk* c, bint ends_here) noexcept nogil:
    """The unit will be delivered again from `c` on: what is before it must not be done twice. `ends_here`:
    its first chunk comes last (g)."""
    if ends_here:
        unit.link = c
        if c == unit:
            unit.link = NULL
            unit.time = 0                                     # a unit like any other
    elif c != unit:
        unit.n = 0
        unit.counted = 0
        unit.dispatched_ns = 0
        unit.kind = DATA
        unit.link = c


cdef void end_with_failure(Egress* e, Chunk* c) noexcept nogil:
    """The run ends here: all that comes before has been written. `c` is kept, with its row."""
    egress_publish(e)
    e.failure = c.failure
    c.failure = NULL
    e.failed_operator = c.failed_operator
    e.failed_serial = c.first_serial
    e.failed = c
    store_release(&e.ended, 1)                                # pairs with the reader's load_acquire


cdef void deliver_marker(Egress* e, Chunk* c) noexcept nogil:
    """A punctuation or the stream's end has come out behind all rows before it."""
    if (c.kind == SNAPSHOT and e.shows_markers) or c.kind == SUSPEND:
        e.markers_snapshot += 1
        if publish_marker(e, c.time) != 0:
            fail_memory(e, c)
        if c.kind == SUSPEND:
            store_release(&e.ended, 1)                        # pairs with the reader's load_acquire
    elif c.kind == END_OF_STREAM:
        egress_publish(e)
        store_release(&e.ended, 1)                            # pairs with the reader's load_acquire
    elif c.kind == TIME:
        e.markers_time += 1
        if e.tells_marks_of >= 0 and c.failed_operator == e.tells_marks_of and left_mark_put(
                &e.left_marks, c.first_serial,
                e.row_index + 1 if e.row_serial == c.first_serial else 0, c.time) != 0:
            fail_memory(e, c)
    else:
        e.markers_snapshot += 1


cdef bint egress_deliver(Egress* e, Worker* w, Chunk* unit) noexcept nogil:
    """Write a unit's rows and free its chunks. False: there is no room for all of it, and the same unit must
    be delivered again.

    Thread safety: one worker at a time. Ownership of the unit: taken on True. Cost: one gather per column.
    """
    cdef Chunk* c = unit
    cdef Chunk* following
    cdef Written rc
    cdef int64_t retired = 0
    cdef int64_t emitted = -1
    cdef bint over = False     # `unit`, by whose address a parked unit is known, is freed last
    cdef bint last = marked_whole(unit)
    if not egress_has_room(e):
        return False
    if last:
        c = unit.link
    while c != NULL:
        following = c.link
        if last and c == unit:
            following = NULL
        elif last and following == NULL:
            following = unit
        if load_relaxed(&e.ended):
            # After a failure nothing is delivered; chunks behind it only give their memory back.
            if c.failure != NULL:
                retired += c.counted
                c.link = e.dropped
                e.dropped = c
                c = following
                continue
        elif c.kind == DATA:
            rc = write_rows(e, c) if c.n and OUTPUT_LANES >> c.lane & 1 else WRITTEN_ALL
            if rc == WRITTEN_ALL:
                if c.dispatched_ns:
                    sample(e, c)
                if c.counted:
                    emitted = c.last_serial
            elif rc == WRITTEN_PART:
                leave_rest(unit, c, last)
                tell_progress(e, emitted, retired)
                return False
            elif rc == WRITTEN_NO_MEMORY:
                fail_memory(e, c)
            else:
                refuse_row(e, w, c)
                # own value
                emitted = max(max(emitted, e.failed_serial - 1), load_relaxed(&e.ingress.emitted_serial))
                store_release(&e.ended, 1)                # pairs with the reader's load_acquire
                # no need to admit what will not be delivered; no partner
                store_relaxed(&e.ingress.stop, 1)
        else:
            if c.kind == FAILURE and c.failed_operator >= 0:
                # The rows in front may be a part of a unit whose end, which tells how far it is, won't come.
                emitted = max(max(emitted, c.last_serial - 1),
                              load_relaxed(&e.ingress.emitted_serial))    # own value
            if c.kind != TIME and (c.kind != SNAPSHOT or e.shows_markers):
                tell_progress(e, emitted, 0)              # before the reader sees what is published now
            if c.kind == FAILURE:
                end_with_failure(e, c)
                retired += c.counted
                c = following
                continue
            deliver_marker(e, c)
            if came_with_rows(c):
                emitted = c.last_serial
        retired += c.counted
        if c == unit:
            over = True
        else:
            give_back(w, c)
        c = following
    if over:
        give_back(w, unit)
    tell_progress(e, emitted, retired)
    if e.current != NULL and (e.current.rows >= e.batch_rows or e.current.bytes > e.batch_bytes
                              or load_relaxed(&e.wanted) != 0):
        store_relaxed(&e.wanted, 0)
        egress_publish(e)
    return True
