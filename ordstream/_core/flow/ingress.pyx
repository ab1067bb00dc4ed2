"""Forming chunks (ingress.pxd states the design)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, int8_t, int16_t, uint16_t
from libc.string cimport memset
from ordstream._core.flow.exports cimport export_clock
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.atomics cimport (
    as_pointer, exchange_acq_rel, load_acquire, load_relaxed, store_relaxed, store_release,
)
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.spsc cimport spsc_free, spsc_init, spsc_size_approx, spsc_try_take
from ordstream._core.ground.threads cimport cpu_pause, now_ns

cdef enum:
    BUSY_TRIES = 32              # pauses while another worker forms a chunk (a few tens of ns each)
    FORGET_BYTES = 1 << 20       # of rows between time punctuations that only let operators forget, at most
    ARRIVING_SLOTS = 1 << 16     # batches that may wait; the feeding thread keeps the rest
    # Percent of a cap in flight: from FULL on no chunk enters, and then not until there is less than AGAIN.
    FULL = 100
    AGAIN = 70


cdef int ingress_init(Ingress* g, int32_t ncols) noexcept nogil:
    """An empty ingress whose first ticket and serial are 1. 0, or -1: no memory."""
    memset(<void*> g, 0, sizeof(Ingress))
    g.ncols = ncols
    g.time_column = -1
    g.marker_every = 1024
    g.marker_next = 1
    g.max_chunks = 1 << 40
    store_relaxed(&g.target_chunks, 1 << 40)   # published with the run
    g.max_bytes = 1 << 60
    store_relaxed(&g.target_rows, 64)          # published with the run
    return spsc_init(&g.arriving, ARRIVING_SLOTS, 0)


cdef void ingress_free(Ingress* g) noexcept nogil:
    spsc_free(&g.arriving)


cdef inline int64_t time_value(const Ingress* g, const char* data, int64_t row) noexcept nogil:
    if g.time_type == PT_I64 or g.time_type == PT_U64:
        return (<const int64_t*> data)[row]
    if g.time_type == PT_I32:
        return (<const int32_t*> data)[row]
    if g.time_type == PT_U32:
        return (<const uint32_t*> data)[row]
    if g.time_type == PT_I16:
        return (<const int16_t*> data)[row]
    if g.time_type == PT_U16:
        return (<const uint16_t*> data)[row]
    if g.time_type == PT_U8:
        return (<const uint8_t*> data)[row]
    return (<const int8_t*> data)[row]


cdef inline int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    cdef int64_t q = a // b
    if a % b != 0 and (a < 0) != (b < 0):
        q -= 1
    return q


cdef inline int64_t rows_between(const Ingress* g, const Batch* b) noexcept nogil:
    """Rows from a time punctuation to the next, at least. What they let operators forget takes memory, so
    that wide rows make them more frequent."""
    return min(g.time_rows, <int64_t> FORGET_BYTES * b.rows // max(b.bytes, <int64_t> 1))


cdef int64_t rows_before_punctuation(Ingress* g, Batch* b, int64_t offset, int64_t n) noexcept nogil:
    """How many rows of [offset, offset + n) come before one that starts a new time period or is earlier than
    its predecessor.

    If that is the first row, sets time_due or time_back.
    """
    cdef const char* data = b.cols[g.time_column].data
    cdef const uint8_t* valid = b.cols[g.time_column].valid
    cdef int64_t k
    cdef int64_t time
    cdef int64_t period
    for k in range(n):
        if valid != NULL and not valid[offset + k]:
            continue
        time = time_value(g, data, offset + k)
        if g.time_started and time < g.time_last:
            g.time_back = k == 0
            return k
        period = floor_div(time, g.time_every)
        if not g.time_started:
            g.time_started = 1
            g.time_now = period
        elif period > g.time_now and b.first_serial + offset + k >= g.time_free:
            if k == 0:
                g.time_now = period
                g.time_free = b.first_serial + offset + rows_between(g, b)
                g.pending_time = period * g.time_every
                g.time_due = 1
            return k
        g.time_last = time
    return n


cdef inline bint over(Ingress* g, int64_t chunks, int64_t bytes, int64_t percent) noexcept nogil:
    cdef int64_t most = min(g.max_chunks, load_relaxed(&g.target_chunks))  # set at any time; no partner
    return chunks * 100 >= most * percent or bytes // 100 * 100 >= g.max_bytes // 100 * percent


cdef inline bint admits(Ingress* g) noexcept nogil:
    """Whether the caps on chunks and bytes in flight admit another chunk, with hysteresis. Under flag."""
    # pairs with the egress's store_release
    cdef int64_t chunks = load_relaxed(&g.issued_chunks) - load_acquire(&g.retired_chunks)
    cdef int64_t bytes
    if chunks == 0:
        store_relaxed(&g.throttled, 0)
        return True
    bytes = load_relaxed(g.bytes)                  # statistic; no partner
    if over(g, chunks, bytes, AGAIN if load_relaxed(&g.throttled) else FULL):
        if not load_relaxed(&g.throttled):
            store_relaxed(&g.throttled, 1)
            g.throttle_count += 1
        return False
    store_relaxed(&g.throttled, 0)
    return True


cdef Chunk* punctuation(Ingress* g, Worker* w, int32_t kind) noexcept nogil:
    cdef Chunk* c = chunk_new(w)
    if c == NULL:
        return NULL
    c.kind = kind
    c.counted = 1
    c.failed_operator = -1                         # made by no operator
    c.last_serial = load_relaxed(&g.issued_serial)
    c.first_serial = c.last_serial
    return c


cdef Chunk* snapshot_marker(Ingress* g, Worker* w, int32_t kind) noexcept nogil:
    """A SNAPSHOT or SUSPEND chunk, numbered, with the clock as it is here. NULL: no memory. Under flag."""
    cdef Chunk* c = punctuation(g, w, kind)
    # pairs with add_acq_rel in Run.request_snapshot
    cdef int64_t asked = load_acquire(&g.requested)
    if c == NULL:
        return NULL
    g.markers += 1
    c.time = g.markers
    store_relaxed(&g.served, asked)                           # a hint for others
    if export_clock(g.exports, g.markers, asked, g.time_started, g.time_last) != 0:
        chunk_free(w, c)
        return NULL
    return c


cdef Chunk* given_mark(Ingress* g, Worker* w, const Batch* b) noexcept nogil:
    """The time punctuation that came with the rows. NULL: no memory. Under flag."""
    cdef Chunk* c = punctuation(g, w, TIME)
    if c == NULL:
        return NULL
    c.time = b.time
    c.failed_operator = b.maker
    c.first_serial = b.first_serial
    c.last_serial = b.first_serial + b.rows - 1
    g.offset = b.rows
    g.marks += 1
    store_relaxed(&g.issued_serial, c.last_serial)  # statistic for others; exact under flag
    return c


cdef Chunk* control(Ingress* g, Worker* w, Batch* b) noexcept nogil:
    """The punctuation of a batch without rows. NULL: no memory. Under flag."""
    cdef Chunk* c
    if b.kind == TIME:
        return given_mark(g, w, b)
    store_relaxed(&g.ended, 1)
    c = punctuation(g, w, b.kind) if b.kind != SUSPEND else snapshot_marker(g, w, SUSPEND)
    if c != NULL and b.kind == FAILURE:
        c.failure = <Failure*> b.failure
        b.failure = NULL
        c.failed_operator = -1
        c.first_serial = b.first_serial
    return c


cdef Chunk* backwards(Ingress* g, Worker* w, const Batch* b, int64_t serial) noexcept nogil:
    """End a stream whose next row is earlier than the one before it: a FAILURE chunk in that row's place.
    NULL: no memory. Under flag."""
    cdef Chunk* c = punctuation(g, w, FAILURE)
    if c == NULL:
        return NULL
    c.failure = failure_new(-1, FAIL_EARLIER, b"")
    if c.failure == NULL:
        chunk_free(w, c)
        return NULL
    failure_earlier(c.failure, -1, g.time_column, time_value(g, b.cols[g.time_column].data, g.offset),
                    g.time_last)
    c.failed_operator = -1
    c.first_serial = serial
    store_relaxed(&g.ended, 1)
    return c


cdef Chunk* form(Ingress* g, Worker* w) noexcept nogil:
    """Form the next chunk or punctuation. NULL: nothing is there now. Under flag."""
    cdef Batch* b = g.current
    cdef Chunk* c
    cdef int64_t n
    cdef int64_t k
    cdef int64_t due
    cdef int64_t serial
    cdef int64_t offset
    cdef int32_t j
    cdef int64_t now
    if load_relaxed(&g.requested) != load_relaxed(&g.served):
        return snapshot_marker(g, w, SNAPSHOT)
    while b == NULL or g.offset >= b.rows:
        if b != NULL and b.kind != DATA and b.kind != TIME:
            return NULL                            # the stream has ended
        b = <Batch*> as_pointer(spsc_try_take(&g.arriving))
        if b == NULL:
            return NULL
        g.current = b
        g.offset = 0
        if (b.kind == DATA or b.kind == TIME) and g.reader != NULL and (
                spsc_size_approx(&g.arriving) < INGRESS_LOW):
            g.reader.notify_all()
        if b.kind != DATA:
            return control(g, w, b)
    serial = b.first_serial + g.offset
    if g.snapshot_every and serial > g.snapshot_next:
        g.snapshot_next += g.snapshot_every
        return snapshot_marker(g, w, SNAPSHOT)
    if g.time_due:
        g.time_due = 0
        c = punctuation(g, w, TIME)
        if c != NULL:
            c.time = g.pending_time
            c.first_serial = serial                # the tuple that shows the time: in front of its outputs
            c.last_serial = serial
        return c
    if g.time_back:
        return backwards(g, w, b, serial)
    n = load_relaxed(&g.target_rows)               # set by the controller at any time; no partner
    if g.shake:
        g.shake ^= g.shake << 13
        g.shake ^= g.shake >> 7
        g.shake ^= g.shake << 17
        n = 1 + <int64_t> (g.shake >> 33) % n
    if n > b.rows - g.offset:
        n = b.rows - g.offset
    if g.single_every:
        g.single_clock += 1
        if g.single_clock % g.single_every == 0:
            n = 1
    if g.schedule != NULL:
        now = now_ns() - g.schedule_start
        due = 0
        while due < n and g.schedule[serial - 1 - g.base + due] <= now:
            due += 1
        n = due
        if n == 0:
            return NULL
    if g.snapshot_every and serial + n - 1 > g.snapshot_next:
        n = g.snapshot_next - serial + 1
    if g.time_column >= 0:
        k = rows_before_punctuation(g, b, g.offset, n)
        if k == 0:
            return form(g, w)                      # one level: time_due or time_back is set now
        n = k
    c = chunk_new(w)
    if c == NULL:
        return NULL
    offset = g.offset
    c.counted = 1
    c.n = <int32_t> n
    c.slots = <int32_t> n
    c.ncols = g.ncols
    c.first_serial = serial
    c.last_serial = serial + n - 1
    for j in range(g.ncols):
        if b.cols[j].data == NULL:
            c.cols[j].data = NULL
            c.cols[j].valid = NULL
        else:
            c.cols[j].data = b.cols[j].data + offset * b.widths[j]
            c.cols[j].valid = b.cols[j].valid + offset if b.cols[j].valid != NULL else NULL
    if c.last_serial >= g.marker_next:
        # The chunk's first tuple is its oldest: its times are the marker's.
        g.marker_next = c.last_serial + g.marker_every
        c.dispatched_ns = now_ns()
        c.arrived_ns = b.arrived_ns
        if g.schedule != NULL:
            c.arrived_ns = g.schedule_start + g.schedule[serial - 1 - g.base]
    elif g.stamp:
        c.arrived_ns = b.arrived_ns if g.stamp == 1 else now_ns()
    g.offset = offset + n
    store_relaxed(&g.issued_serial, c.last_serial)  # statistic for others; exact under flag
    return c


cdef int32_t ingress_take_run(Ingress* g, Worker* w, int64_t limit, int32_t most,
                              Chunk** out) noexcept nogil:
    """Up to `most` consecutive chunks or punctuations, each with its own ticket, in one hold of the flag;
    how many.

    0: nothing to take, gated, throttled, or another worker stayed here for some microseconds. Thread safety:
    any worker; waits at most BUSY_TRIES pauses. Ownership: the caller's, who must process and send every
    one. Cost: one exchange, a few instructions per column and chunk.
    """
    cdef int32_t n = 0
    cdef int32_t tries = 0
    cdef int64_t ticket
    cdef Chunk* c
    if not g.alone:
        # pairs with store_release below
        while load_relaxed(&g.flag) != 0 or exchange_acq_rel(&g.flag, 1) != 0:
            tries += 1
            if tries > BUSY_TRIES:
                return 0
            cpu_pause()
    ticket = load_relaxed(&g.issued_chunks) + 1
    while (n < most and load_relaxed(&g.ended) == 0 and load_relaxed(&g.stop) == 0 and ticket < limit
           and admits(g)):
        c = form(g, w)
        if c == NULL:
            break
        c.ticket = ticket
        out[n] = c
        n += 1
        ticket += 1
        store_relaxed(&g.issued_chunks, ticket - 1)   # exact under flag, approximate for others
    store_release(&g.flag, 0)                      # pairs with exchange_acq_rel above
    return n


cdef Chunk* ingress_take(Ingress* g, Worker* w, int64_t limit) noexcept nogil:
    """The next chunk or punctuation with its ticket, or NULL: as ingress_take_run for one."""
    cdef Chunk* c = NULL
    ingress_take_run(g, w, limit, 1, &c)
    return c


cdef bint ingress_has_work(Ingress* g, int64_t limit) noexcept nogil:
    """True when ingress_take would probably return a chunk. Any thread; reads may be stale."""
    cdef int64_t issued
    cdef int64_t queued
    cdef int64_t in_flight
    cdef bint asked = load_relaxed(&g.requested) != load_relaxed(&g.served)
    if (load_relaxed(&g.flag) != 0 or load_relaxed(&g.ended) != 0 or load_relaxed(&g.stop) != 0
            or load_relaxed(&g.issued_chunks) + 1 >= limit):
        return False
    issued = load_relaxed(&g.issued_serial)
    queued = load_relaxed(&g.queued_tuples)
    if not asked and issued >= queued and spsc_size_approx(&g.arriving) == 0:
        return False
    if (not asked and g.schedule != NULL and issued < queued
            and g.schedule[issued - g.base] > now_ns() - g.schedule_start):
        return False
    if load_relaxed(&g.throttled):
        # As admits: nothing in flight always admits one chunk.
        in_flight = load_relaxed(&g.issued_chunks) - load_relaxed(&g.retired_chunks)
        return in_flight == 0 or not over(g, in_flight, load_relaxed(g.bytes), AGAIN)
    return True
