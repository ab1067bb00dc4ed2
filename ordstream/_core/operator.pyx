"""Running operators (operator.pxd states the design). Everything here is nogil and non-blocking (but for the lock-based reorder
scheme's lock); no worker ever waits while it holds a release flag or a bucket."""
from cpython.ref cimport PyObject, Py_DECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from ordstream._core.assemble cimport assign_serials, copy_row, merge_flush, merge_parts
from ordstream._core.atomics cimport *
from ordstream._core.chunk cimport *
from ordstream._core.egress cimport OUTPUT_LANES, egress_deliver, egress_has_room
from ordstream._core.ingress cimport ingress_has_work, ingress_take, ingress_take_run, ingress_wakes_feeder
from ordstream._core.kernel cimport ON_ERROR_SKIP, PS, SF, SL, Kernel, skip_is_first, skip_note, skip_note_error
from ordstream._core.keyed_state cimport key_compare, key_hash
from ordstream._core.mpmc cimport MPMC_EMPTY, mpmc_peek, mpmc_try_push_single, mpmc_try_take
from ordstream._core.partition_queues cimport (
    CLAIM_MAX, PQ_NOTHING, Claims, pq_add, pq_claim, pq_enter, pq_enter_claim, pq_has_room, pq_has_work, pq_leave, pq_next, prefetch_claim,
)
from ordstream._core.reorder_buffer cimport reorder_limit, reorder_offer, reorder_offer_run, reorder_put, reorder_ready, reorder_release
from ordstream._core.spsc cimport spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.sampling cimport sample_rows
from ordstream._core.threads cimport prefetch_write
from ordstream._core.shedding cimport ShedRows, shed_begin, shed_completed, shed_end, shed_learn
from ordstream._core.split cimport split_chunk, split_everywhere
from ordstream._core.stopping cimport stop_asked

from ordstream.errors import Cancelled

cdef enum:
    NO_CUT = 0x7fffffff
    MOST_FIRST_ROWS = 8192
    INGRESS_RUN = 16           # small chunks taken in one hold of the ingress's flag
    HOLD_PART = 6              # the tuples of a slice, through this: so many are taken from the ingress in one hold
    CLAIM_PART = 12            # the tuples of a slice, through this: parts of so many are claimed together, chunks of so many sent together
    QUICK = 64                 # the tuples of a slice, through this: a run of fewer is over in no time
    ROWS_BLOCK = 16384         # rows of a part that a kernel is given at once: a flush upstream may have made a chunk of any size

# 0, 1, 2, ...: the rows of a chunk that nothing has selected from. Read-only after import.
cdef int32_t[MOST_FIRST_ROWS] FIRST_ROWS
for _row in range(MOST_FIRST_ROWS):
    FIRST_ROWS[_row] = _row

cdef struct Delivery:
    # Context of one reorder_release.
    Operator* op
    Worker* worker
    int32_t pushed         # units put into the next worklist
    int32_t direct         # units put straight into the next reorder buffer
    int32_t furthest       # index of the last operator that got a unit


cdef void out_of_memory(Operator* op) noexcept nogil:
    """Nothing can be kept in order without memory: end the run; the caller's thread raises MemoryError."""
    store_relaxed(&op.run.no_memory, 1)               # read after the run ended
    store_release(&op.run.stop, 1)                    # pairs with load_acquire in the worker loop


cdef void drop_exception(void* exc) noexcept with gil:
    Py_DECREF(<object> <PyObject*> exc)


cdef void note_skipped(Kernel* kernel, int64_t serial, Failure* f) noexcept with gil:
    skip_note_error(kernel, serial, False, <object> <PyObject*> f.exc)


cdef bint ends_the_run(void* exc) noexcept with gil:
    """KeyboardInterrupt, SystemExit, a cancelled run: not a property of the row, so never skipped."""
    return isinstance(<object> <PyObject*> exc, Cancelled) or not isinstance(<object> <PyObject*> exc, Exception)


# ---------------------------------------------------------------- worklists

cdef bint operator_has_room(Operator* op, int64_t chunks, int64_t parts) noexcept nogil:
    """True when `chunks` chunks with `parts` parts in all can be enqueued. Exact for the one producer, a guess for others."""
    cdef int64_t enqueued = load_relaxed(&op.enqueued)        # the producer's own
    cdef int64_t inside = enqueued - load_acquire(&op.rb.next) + 1   # pairs with store_release in reorder_release
    if inside > 0:
        if inside + chunks > op.depth:
            return False                                      # a unit of several chunks waits for an emptier operator
        # statistic: a stale tuples_done only makes the bound tighter
        if load_relaxed(&op.tuples_enqueued) - load_relaxed(&op.tuples_done) > op.max_queued:
            return False
    if op.kind == PS:
        return pq_has_room(&op.pq, parts)
    return True


cdef inline bint admits(Operator* op, int64_t chunks, int64_t parts) noexcept nogil:
    """operator_has_room for the one producer: reads what the operator's workers write only where it looks full."""
    cdef int64_t enqueued = load_relaxed(&op.enqueued)        # own value
    if (enqueued - op.seen_next + 1 + chunks > op.depth
            or load_relaxed(&op.tuples_enqueued) - op.seen_done > op.max_queued):
        op.seen_next = load_acquire(&op.rb.next)              # pairs with store_release in reorder_release
        op.seen_done = load_relaxed(&op.tuples_done)          # statistic
        return operator_has_room(op, chunks, parts)
    return op.kind != PS or pq_has_room(&op.pq, parts)


cdef inline int64_t take_limit(Operator* op) noexcept nogil:
    """First ticket that may not be taken from the worklist: the reorder buffer's limit. Where what is in flight has reached its cap only
    the oldest ticket passes, whose outputs the next operator, or the reader, waits for: what an operator makes of one tuple may be large.

    Cost: two loads. `bytes` may be stale; who frees memory looks for work to wake a worker for afterwards.
    """
    cdef int64_t next = load_acquire(&op.rb.next)             # pairs with store_release in release_*
    if load_relaxed(op.run.bytes) >= op.run.max_bytes:
        return next + 1
    return next + op.rb.mask + 1


cdef bint operator_has_input(Operator* op) noexcept nogil:
    """True when a worker would probably find a chunk to process. Any thread."""
    cdef int64_t position
    if op.ingress != NULL:
        return ingress_has_work(op.ingress, reorder_limit(&op.rb))
    if op.kind == SL:
        return mpmc_peek(&op.worklist, &position) != MPMC_EMPTY and position < take_limit(op)
    if op.kind == SF:
        return spsc_size_approx(&op.input) > 0
    return pq_has_work(&op.pq, take_limit(op))


cdef bint operator_can_release(Operator* op) noexcept nogil:
    """True when the next unit may be delivered (if it is ready): there is room downstream. Any thread; a guess."""
    if op.egress != NULL:
        return egress_has_room(op.egress)
    return operator_has_room(op.next, 1, op.next.pq.p if op.next.kind == PS else 1)


cdef int64_t operator_waiting(Operator* op) noexcept nogil:
    """I_i: tuples in the worklist (enqueued and not yet processed)."""
    cdef int64_t n
    if op.ingress != NULL:
        n = load_relaxed(&op.ingress.queued_tuples) - load_relaxed(&op.tuples_done)
    else:
        n = load_relaxed(&op.tuples_enqueued) - load_relaxed(&op.tuples_done)
    return n if n > 0 else 0


cdef inline int prepare_rows(Kernel* kernel, Worker* w, Chunk* c) noexcept nogil:
    c.keep = NULL
    if kernel.prepare != NULL and kernel.prepare(kernel, w, c) != 0:
        return -1
    if kernel.in_place and kernel.on_error == ON_ERROR_SKIP and c.keep == NULL:
        c.keep = <uint8_t*> chunk_alloc(w, c, c.slots)
        if c.keep == NULL:
            return -1
        memset(c.keep, 1, c.slots)
    return 0


cdef inline int prepare_for(Operator* to, Worker* w, Chunk* c) noexcept nogil:
    """Everything that a chunk needs before it enters a partitioned operator, done outside the serial section."""
    if c.kind == DATA:
        if c.n == 0:
            c.nparts = 0
            return 0
        if split_chunk(&to.partitioner, w, c) != 0:
            return -1
        return prepare_rows(to.kernel, w, c)
    c.nparts = 0
    if c.kind == FAILURE or (to.kernel.punctuate == NULL and c.kind != SNAPSHOT):
        return 0
    return split_everywhere(to.pq.p, w, c)


cdef inline bint wants(const Operator* op, const Chunk* c) noexcept nogil:
    """Whether an operator has something to do for a unit, in a run with lanes."""
    return c.kind != DATA or unit_has(c, op.reads)


cdef inline void enqueue(Operator* op, Chunk* c, Delivery* d) noexcept nogil:
    """Give a chunk its ticket and put it into the worklist. The one producer; room was checked."""
    cdef int64_t ticket = load_relaxed(&op.enqueued) + 1      # own value
    c.ticket = ticket
    if c.n:
        store_relaxed(&op.tuples_enqueued, load_relaxed(&op.tuples_enqueued) + c.n)   # own value; a statistic for others
    store_relaxed(&op.enqueued, ticket)
    if op.kind == SL:
        mpmc_try_push_single(&op.worklist, as_int(c))
    elif op.kind == SF:
        spsc_try_push(&op.input, as_int(c))
    elif c.nparts:
        pq_add(&op.pq, c, ticket)
    else:
        # Nothing to process: straight to the order. A punctuation may still mean something to the operator after this one.
        if op.next != NULL and op.next.kind == PS and prepare_for(op.next, d.worker, c) != 0:
            out_of_memory(op)
            c.nparts = 0
        reorder_put(&op.rb, ticket, as_int(c))
        d.direct += 1
        return
    d.pushed += 1


# ---------------------------------------------------------------- sending

cdef inline void expect_release(Operator* op) noexcept nogil:
    """Start to load, all at once, the lines that sending a unit touches and another worker probably wrote last. One after the other
    they cost a transfer between cores each. Only addresses are used, nothing is read."""
    prefetch_write(&op.rb.next)
    if op.egress != NULL:
        prefetch_write(&op.egress.rows_out)
        prefetch_write(as_pointer(load_relaxed(&op.egress.writing)))   # a hint: it may be gone, and nothing faults
        prefetch_write(&op.run.ingress.retired_chunks)
    if op.kind == PS:
        prefetch_write(&op.pq.master.head)                    # taken from right after


cdef inline bint nothing_inside(Operator* op) noexcept nogil:
    """Whether all that entered an operator has been delivered. Its one producer only.

    If so that producer may produce for the operator behind it, until it lets something in: nobody else delivers from there.
    """
    # own value; pairs with store_release of `next` behind each delivery
    return load_relaxed(&op.enqueued) + 1 == load_acquire(&op.rb.next)


cdef void enter(Operator* to, Chunk* c, Delivery* d) noexcept nogil:
    """enqueue in a run with lanes: a chunk without rows of the operator's lanes goes straight to the order."""
    cdef int64_t ticket = load_relaxed(&to.enqueued) + 1      # own value
    d.furthest = to.index
    if wants(to, c):
        enqueue(to, c, d)
        return
    c.ticket = ticket
    store_relaxed(&to.enqueued, ticket)
    reorder_put(&to.rb, ticket, as_int(c))
    d.direct += 1


cdef int deliver_past(Operator* to, Chunk* c, Delivery* d) noexcept nogil:
    """deliver in a run with lanes: past operators that are empty and have nothing to do for the unit.

    Thread safety, returns: as deliver. The last operator is never passed: the holder of its flag writes the output.
    Cost: some ten instructions per operator passed.
    """
    cdef bint wanted
    cdef bint next_wants
    cdef Chunk* following = c
    cdef int64_t chunks = 0
    cdef int64_t parts = 0
    if c.link != NULL:
        while following != NULL:
            chunks += 1
            parts += following.nparts
            following = following.link
        if not admits(to, chunks, parts):
            return 0
        while c != NULL:
            following = c.link
            c.link = NULL
            enter(to, c, d)
            c = following
        return 1
    wanted = wants(to, c)
    if not admits(to, 1, c.nparts if wanted else 0):
        return 0
    while not wanted and to.next != NULL and nothing_inside(to):
        next_wants = wants(to.next, c)
        if not admits(to.next, 1, c.nparts if next_wants else 0):
            break
        to = to.next
        wanted = next_wants
    enter(to, c, d)
    return 1


cdef int deliver(void* context, void* unit) noexcept nogil:
    """Hand one unit to the next worklist or to the egress. 0: no room. Holder of the release flag only."""
    cdef Delivery* d = <Delivery*> context
    cdef Operator* op = d.op
    cdef Operator* to
    cdef Chunk* c = <Chunk*> unit
    cdef Chunk* following
    cdef int64_t chunks = 0
    cdef int64_t parts = 0
    if op.egress != NULL:
        return egress_deliver(op.egress, d.worker, c)
    to = op.next
    if op.lanes:
        return deliver_past(to, c, d)
    if c.link == NULL:
        if not admits(to, 1, c.nparts):
            return 0
        enqueue(to, c, d)
        return 1
    while c != NULL:
        chunks += 1
        parts += c.nparts
        c = c.link
    if not admits(to, chunks, parts):
        return 0
    c = <Chunk*> unit
    while c != NULL:
        following = c.link
        c.link = NULL
        enqueue(to, c, d)
        c = following
    return 1


cdef void operator_release(Operator* op, Worker* w) noexcept nogil:
    """release_or_offer without a unit of one's own: a parked or capped release goes on."""
    release_or_offer(op, w, 0, NULL, 0)


cdef void release_past(Operator* to, Worker* w, int32_t furthest) noexcept nogil:
    """Release what was put straight into the reorder buffers of operators from `to` to the one of index `furthest`."""
    while to != NULL and to.index <= furthest:
        if reorder_ready(&to.rb):
            operator_release(to, w)
        to = to.next


cdef inline void release_or_offer(Operator* op, Worker* w, int64_t ticket, const int64_t* units, int32_t n) noexcept nogil:
    """Place `n` units with consecutive tickets; deliver every unit that is ready, unless another worker is doing it; wake one parked
    worker per call that pushed.

    Thread safety: any worker, not while it holds a bucket's kernel. Cost: reorder_release plus one load of `parked`.
    """
    cdef Delivery d
    cdef int64_t published = 0
    d.op = op
    d.worker = w
    d.pushed = 0
    d.direct = 0
    if op.egress != NULL:
        published = load_relaxed(&op.egress.ready.tail)       # moved by a publication: the reader is told
    if n == 1:
        reorder_offer(&op.rb, ticket, units[0], deliver, &d)
    elif n:
        reorder_offer_run(&op.rb, ticket, units, n, deliver, &d)
    else:
        reorder_release(&op.rb, deliver, &d)
    if d.pushed and load_seq(&op.run.parked) > 0:             # totally ordered with the parking worker's add_seq
        op.run.work.notify_one()
    if d.direct:
        operator_release(op.next, w)                       # at most as deep as the chain is long
        if op.lanes:
            release_past(op.next.next, w, d.furthest)
    if op.egress != NULL and (load_relaxed(&op.egress.ended) or load_relaxed(&op.egress.ready.tail) != published
                              or ingress_wakes_feeder(op.run.ingress)):
        store_relaxed(&op.run.ingress.feeder_waits, 0)        # told; it says so again if it goes on waiting
        op.run.reader.notify_all()


cdef Chunk* prepare_lanes(Operator* op, Worker* w, Chunk* unit) noexcept nogil:
    """prepare_unit in a run with lanes: for the first operator behind this one that has something to do for the unit.

    A chunk of a lane of that operator comes to the front. Ownership: the worker's, as in prepare_unit.
    """
    cdef Operator* to
    cdef Chunk* c = unit
    cdef Chunk* first
    cdef Chunk* before = NULL
    while c != NULL:
        to = op.next
        if c.kind == DATA:
            first = NULL
            while to != NULL:
                first = unit_front(c, to.reads)
                if first != NULL:
                    break
                to = to.next
            if to == NULL:
                first = unit_front(c, OUTPUT_LANES)
            if first != NULL:
                c = first
        if before == NULL:
            unit = c
        else:
            before.link = c
        if to != NULL and to.kind == PS and prepare_for(to, w, c) != 0:
            out_of_memory(op)
            c.nparts = 0
        before = c
        c = c.link
    return unit


cdef inline Chunk* prepare_unit(Operator* op, Worker* w, Chunk* unit) noexcept nogil:
    """Split a unit for the next operator where that is partitioned. Returns the unit: its first chunk may be another."""
    cdef Chunk* c
    if op.lanes:
        return prepare_lanes(op, w, unit)
    if op.next != NULL and op.next.kind == PS:
        c = unit
        while c != NULL:
            if prepare_for(op.next, w, c) != 0:
                out_of_memory(op)
                c.nparts = 0
            c = c.link
    return unit


cdef void operator_send_run(Operator* op, Worker* w, int64_t ticket, const int64_t* units, int32_t n) noexcept nogil:
    """Place `n` prepared units with consecutive tickets in the reorder buffer and release what is ready."""
    cdef int64_t height = ticket + n - 1 - load_relaxed(&op.rb.next)   # statistic
    if height > load_relaxed(&op.reorder_height):
        store_relaxed(&op.reorder_height, height)
    release_or_offer(op, w, ticket, units, n)


cdef void operator_send(Operator* op, Worker* w, int64_t ticket, Chunk* unit) noexcept nogil:
    """Place a unit in the reorder buffer (split for the next operator first) and release what is ready."""
    cdef int64_t one = as_int(prepare_unit(op, w, unit))
    operator_send_run(op, w, ticket, &one, 1)


cdef void send_held(Operator* op, Worker* w, Slice* slice) noexcept nogil:
    """Send the units that are held."""
    cdef int32_t n = slice.held
    if n:
        slice.held = 0
        operator_send_run(op, w, slice.held_ticket, slice.units, n)


cdef inline void send_or_hold(Operator* op, Worker* w, int64_t ticket, Chunk* unit, Slice* slice) noexcept nogil:
    """Send a unit, or hold it for send_held where it follows the ones that are held."""
    if not slice.holding:
        operator_send(op, w, ticket, unit)
        return
    cdef int32_t k
    if slice.held and ticket < slice.held_ticket:
        # Parts of other claims were delegated to this worker: it cannot be their turn before this unit's, which will release them.
        for k in range(slice.held):
            reorder_put(&op.rb, slice.held_ticket + k, slice.units[k])
        slice.held = 0
    elif slice.held == CLAIM_MAX or (slice.held and slice.held_ticket + slice.held != ticket):
        send_held(op, w, slice)
    unit = prepare_unit(op, w, unit)
    if slice.held == 0:
        slice.held_ticket = ticket
    slice.units[slice.held] = as_int(unit)
    slice.held += 1


# ---------------------------------------------------------------- failures

cdef Chunk* fail_unit(Operator* op, Worker* w, Chunk* source, const Column* cols, Chunk* out, Failure* failure) noexcept nogil:
    """`out` (rows before the failing one) followed by a FAILURE chunk that carries the failing row. Ownership of failure: taken."""
    cdef Chunk* f = chunk_new(w)
    cdef int64_t serial
    store_relaxed(&op.run.ingress.stop, 1)                    # no need to admit what will not be delivered; no partner
    if f == NULL:
        out_of_memory(op)
        return out
    serial = slot_serial(source, failure.slot) if failure.slot >= 0 else source.last_serial
    f.kind = FAILURE
    f.failure = failure
    f.failed_operator = op.index
    f.first_serial = serial
    f.last_serial = serial
    if failure.slot >= 0 and copy_row(w, f, cols, op.kernel.input, failure.slot) != 0:
        f.n = 0
    out.last_serial = serial - 1
    out.link = f
    if op.lanes and failure.slot >= 0:
        cut_lanes(source, failure.slot)
    return out


cdef inline int32_t place_at(const Chunk* c, int32_t slot, const Fork* at) noexcept nogil:
    """Slot at the branch point `at`, one that the chunk's rows have passed, that caused a slot of the chunk; NULL: 0."""
    cdef const Fork* f = c.fork
    if at == NULL or f == NULL:
        return 0
    if c.place != NULL:
        slot = c.place[slot]
    while f != at:
        if f.place != NULL:
            slot = f.place[slot]
        f = f.outer
    return slot


cdef const Fork* common_fork(const Chunk* a, const Chunk* b) noexcept nogil:
    """Innermost branch point that the rows of both chunks have passed, or NULL."""
    cdef const Fork* f = a.fork
    cdef const Fork* g
    while f != NULL:
        g = b.fork
        while g != NULL:
            if f == g:
                return f
            g = g.outer
        f = f.outer
    return NULL


cdef void cut_lanes(Chunk* c, int32_t slot) noexcept nogil:
    """A row failed: keep only those rows of the unit's other lanes that come before it.

    What other lanes made of the row itself, or of the same row at the branch point, does not come before it.
    Thread safety: the unit's owner. Cost: linear in the rows kept.
    """
    cdef Chunk* b = c.beside
    cdef const Fork* at
    cdef int64_t serial = slot_serial(c, slot)
    cdef int64_t other
    cdef int32_t place
    cdef int32_t k
    while b != NULL:
        at = common_fork(c, b)
        place = place_at(c, slot, at)
        k = 0
        while k < b.n:
            other = slot_serial(b, row_slot(b, k))
            if other > serial or (other == serial and place_at(b, row_slot(b, k), at) >= place):
                break
            k += 1
        b.n = k
        b = b.beside


cdef int inherit_lanes(Operator* op, Worker* w, Chunk* out, Chunk* source) noexcept nogil:
    """The part of inherit that is about serials and lanes. A kernel that takes whole units has seen to both."""
    cdef int32_t i
    if op.kernel.units:
        return 0
    if assign_serials(w, out, source) != 0:
        return -1
    out.lane = source.lane
    out.beside = source.beside
    out.fork = source.fork
    if source.fork != NULL:
        out.place = <int32_t*> chunk_alloc(w, out, <int64_t> out.n * 4 + 4)
        if out.place == NULL:
            return -1
        for i in range(out.n):
            out.place[i] = out.origin[i] if source.place == NULL else source.place[out.origin[i]]
    return 0


cdef inline int inherit(Operator* op, Worker* w, Chunk* out, Chunk* source) noexcept nogil:
    """A new output chunk takes its input chunk's place: serials, markers; the input chunk is held or freed."""
    if op.lanes:
        if inherit_lanes(op, w, out, source) != 0:
            return -1
    elif assign_serials(w, out, source) != 0:
        return -1
    out.last_serial = source.last_serial
    out.counted = source.counted
    out.arrived_ns = source.arrived_ns
    out.dispatched_ns = source.dispatched_ns
    if op.kernel.keeps_views or (op.lanes and (out.beside != NULL or source.fork != NULL)):
        chunk_hold(out, source)                               # lanes share columns and places: they die with the unit
    else:
        chunk_free(w, source)
    return 0


# ---------------------------------------------------------------- stateless

cdef inline int32_t* copied_rows(Worker* w, const Chunk* c) noexcept nogil:
    """The selected slots, in the worker's scratch; NULL: no memory."""
    cdef int32_t* rows = <int32_t*> scratch_alloc(w, <int64_t> c.n * 4)
    cdef int32_t k
    if rows != NULL:
        for k in range(c.n):
            rows[k] = row_slot(c, k)
    return rows


cdef Chunk* apply_stateless(Operator* op, Worker* w, Chunk* c, Slice* slice) noexcept nogil:
    """Run an SL kernel on a chunk: the unit to send."""
    cdef Chunk* out
    cdef Failure* failure
    cdef Column* cols = NULL
    cdef ShedRows* sent = NULL
    cdef int32_t* rows = NULL
    cdef int32_t n = c.n
    cdef int64_t began = 0
    cdef int64_t bytes
    cdef int32_t j
    if c.kind != DATA or c.n == 0:
        return c
    slice.tuples_in += c.n
    scratch_reset(w)
    bytes = op.kernel.input.ncols * <int64_t> sizeof(Column)
    cols = <Column*> scratch_alloc(w, bytes)
    if cols == NULL:
        out_of_memory(op)
        return c
    for j in range(op.kernel.input.ncols):
        cols[j] = c.cols[j]                                   # an in-place kernel may rearrange them before it fails
    if op.shed != NULL and c.shed != NULL:
        sent = <ShedRows*> c.shed
        rows = copied_rows(w, c)                              # the kernel may narrow the selection in place
        began = shed_begin(op.shed, w, c, rows, n)
    out = op.kernel.apply(op.kernel, w, c)
    if sent != NULL:
        shed_end(op.shed, w, sent, rows, n, began)
        shed_completed(op.shed, sent)
    failure = c.failure
    if failure != NULL:
        c.failure = NULL
        if out == NULL:
            out = c
            out.n = 0
        if out != c:
            out = fail_unit(op, w, c, cols, out, failure)
            bytes = out.last_serial
            if inherit(op, w, out, c) != 0:
                out_of_memory(op)
            out.last_serial = bytes
        else:
            out = fail_unit(op, w, c, cols, out, failure)
    elif out == NULL:
        out_of_memory(op)
        c.n = 0
        return c
    elif out != c and inherit(op, w, out, c) != 0:
        out_of_memory(op)
        out.n = 0
    slice.tuples_out += out.n
    return out


cdef void run_from_ingress(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """The first operator: chunks of a few tuples, or that take little time, are taken several at a time, each with its own ticket
    (all of them are sent, unless the run is cancelled), and sent together as far as they are a small part of a slice."""
    cdef Chunk* run[16]                                       # INGRESS_RUN
    cdef int64_t sent[16]
    cdef int64_t waiting
    cdef int64_t ticket
    cdef int64_t rows
    cdef int64_t most
    cdef int64_t quick = budget // QUICK                      # tuples
    cdef int64_t together
    cdef int32_t n
    cdef int32_t k
    cdef int32_t held
    while slice.tuples_in + slice.chunks < budget and load_relaxed(&op.run.stop) == 0:
        waiting = load_relaxed(&op.ingress.queued_tuples) - load_relaxed(&op.ingress.issued_serial)
        rows = load_relaxed(&op.ingress.target_rows)
        most = min(max(INGRESS_RUN, quick) // rows, <int64_t> INGRESS_RUN)
        most = min(most, max(budget // HOLD_PART // rows, <int64_t> 1))
        if waiting < 4 * INGRESS_RUN * rows or most < 1:
            most = 1                                          # little is there: leave some to the others
        n = ingress_take_run(op.ingress, w, reorder_limit(&op.rb), <int32_t> most, run)
        if n == 0:
            return
        ticket = run[0].ticket
        held = 0
        together = budget // CLAIM_PART
        if op.kernel.unbounded:
            together = quick if most * rows <= quick else 0   # what is done must not wait for what takes long
        for k in range(n):
            slice.chunks += 1
            if load_relaxed(&op.run.stop) == 0:
                sent[held] = as_int(prepare_unit(op, w, apply_stateless(op, w, run[k], slice)))
                held += 1
                if held * rows >= together or k == n - 1:
                    operator_send_run(op, w, ticket, sent, held)
                    ticket += held
                    held = 0
                continue
            if held:
                operator_send_run(op, w, ticket, sent, held)
                ticket += held
                held = 0
            if run[k].kind == DATA:
                chunk_free(w, run[k])                         # cancelled: a slow kernel must not hold the run up; the gap delivers nothing
            else:
                reorder_put(&op.rb, ticket, as_int(run[k]))   # a failure's exception is dropped with the GIL, when the run is closed
            ticket += 1


cdef void run_stateless(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    cdef Chunk* c
    cdef int64_t item
    cdef int64_t position
    cdef int64_t ticket
    if op.ingress != NULL:
        run_from_ingress(op, w, budget, slice)
        return
    while slice.tuples_in + slice.chunks < budget and load_relaxed(&op.run.stop) == 0:
        item = mpmc_try_take(&op.worklist, take_limit(op), &position)
        if item <= 0:
            return
        c = <Chunk*> as_pointer(item)
        slice.chunks += 1
        ticket = c.ticket
        operator_send(op, w, ticket, apply_stateless(op, w, c, slice))


# ---------------------------------------------------------------- stateful and partitioned stateful

cdef int32_t process_sampled(
    Operator* op, Worker* w, void* state, Part* part, int32_t done, int32_t n, Chunk* out, Failure* f
) noexcept nogil:
    """kernel.process for `n` of the part's rows from `done`, timed row by row."""
    cdef int64_t* costs = <int64_t*> scratch_alloc(w, <int64_t> n * 8)
    cdef int64_t total = 0
    cdef int32_t k
    cdef int32_t finished
    if costs == NULL:
        return op.kernel.process(op.kernel, w, state, part.chunk, part.rows + done, n, out, f)
    finished = sample_rows(op.kernel, w, state, part.chunk, part.rows + done, n, out, f, costs, NULL, NULL)
    for k in range(finished):
        total += costs[k]
        if costs[k] > load_relaxed(&op.sampled_max_ns):
            store_relaxed(&op.sampled_max_ns, costs[k])       # statistic
        if op.shed != NULL and part.chunk.shed != NULL and part.n > 1:   # a part of one row is learnt in shed_end
            shed_learn(op.shed, (<ShedRows*> part.chunk.shed).words[part.rows[done + k]], <double> costs[k])
    add_relaxed(&op.sampled_rows, finished)                   # statistic
    add_relaxed(&op.sampled_ns, total)                        # statistic
    return finished


cdef void run_rows(Operator* op, Worker* w, void* state, Part* part) noexcept nogil:
    """Run a PS/SF kernel on a part's rows; sets part.out and part.failure. Leaves between two blocks of rows where the run is stopped."""
    cdef Kernel* kernel = op.kernel
    cdef Chunk* c = part.chunk
    cdef Chunk* out = NULL
    cdef Failure f
    cdef int32_t done = 0
    cdef int32_t given
    cdef int32_t finished
    cdef bint sampled = op.sample_every > 0 and add_relaxed(&op.sample_clock, 1) % op.sample_every == 0
    if not kernel.in_place:
        out = chunk_new(w)
        if out == NULL:
            out_of_memory(op)
            return
        part.out = out
    f.exc = NULL
    while True:
        scratch_reset(w)
        given = min(part.n - done, <int32_t> ROWS_BLOCK)
        if sampled:
            finished = process_sampled(op, w, state, part, done, given, out, &f)
        else:
            finished = kernel.process(kernel, w, state, c, part.rows + done, given, out, &f)
        done += finished
        if done >= part.n:
            return
        if finished == given:
            if stop_asked(w):
                return
            continue
        if kernel.on_error == ON_ERROR_SKIP and f.code != FAIL_MEMORY and (f.exc == NULL or not ends_the_run(f.exc)):
            add_relaxed(&kernel.skipped, 1)                   # statistic
            if skip_is_first(kernel, slot_serial(c, part.rows[done])):
                if f.exc != NULL:
                    note_skipped(kernel, slot_serial(c, part.rows[done]), &f)
                else:
                    skip_note(kernel, slot_serial(c, part.rows[done]), False, f.code, f.message)
            if f.exc != NULL:
                drop_exception(f.exc)
                f.exc = NULL
            if kernel.in_place:
                c.keep[part.rows[done]] = 0
            done += 1
            if done >= part.n:
                return
            continue
        f.slot = part.rows[done]
        part.failure = failure_new(f.slot, f.code, f.message)
        if part.failure == NULL:
            out_of_memory(op)
            return
        part.failure.exc = f.exc
        return


cdef Failure* first_failure(Chunk* c) noexcept nogil:
    """The failure of the earliest row among a chunk's parts, taken; the others are dropped."""
    cdef Failure* first = NULL
    cdef Failure* f
    cdef int32_t k
    for k in range(c.nparts):
        f = c.parts[k].failure
        if f == NULL:
            continue
        c.parts[k].failure = NULL
        if first == NULL or f.slot < first.slot:
            first, f = f, first
        if f != NULL:
            if f.exc != NULL:
                drop_exception(f.exc)
            free(f)
    return first


cdef int narrow(Worker* w, Chunk* c, int32_t before_slot) noexcept nogil:
    """Keep the rows of an in-place kernel that it kept, before the failing slot. 0, or -1: no memory."""
    cdef int32_t* sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4 + 4)
    cdef int32_t k
    cdef int32_t s
    cdef int32_t n = 0
    if sel == NULL:
        return -1
    for k in range(c.n):
        s = row_slot(c, k)
        if s < before_slot and (c.keep == NULL or c.keep[s]):
            sel[n] = s
            n += 1
    c.sel = sel
    c.n = n
    return 0


cdef void complete_rows(Operator* op, Worker* w, Chunk* c, Slice* slice) noexcept nogil:
    """All parts of a data chunk are processed: assemble, send."""
    cdef Failure* failure = first_failure(c)
    cdef int32_t cut = NO_CUT
    cdef Chunk* out = c
    cdef Chunk* tail = NULL
    cdef Chunk empty_holder
    cdef int64_t ticket = c.ticket
    cdef int64_t last = c.last_serial
    if op.shed != NULL and c.shed != NULL:
        shed_completed(op.shed, <ShedRows*> c.shed)
    if failure != NULL:
        cut = failure.slot
        # Make the FAILURE chunk first: the row's columns are still those of the input.
        fail_unit(op, w, c, c.cols, &empty_holder, failure)
        tail = empty_holder.link
        last = empty_holder.last_serial
    if op.kernel.in_place:
        if (c.keep != NULL or failure != NULL) and narrow(w, c, cut) != 0:
            out_of_memory(op)
        if op.kernel.finish != NULL and op.kernel.finish(op.kernel, w, c) != 0:
            out_of_memory(op)
        c.keep = NULL
        c.nparts = 0
    else:
        out = merge_parts(w, c, op.kernel.output, op.has_views, cut)
        if out == NULL or inherit(op, w, out, c) != 0:
            out_of_memory(op)
            return
    out.last_serial = last
    out.link = tail
    slice.tuples_out += out.n
    send_or_hold(op, w, ticket, out, slice)


cdef Failure* first_flush_failure(Operator* op, Chunk* c, const char** cut) noexcept nogil:
    """The failure at the smallest key among a punctuation's parts, taken; `cut` gets the key (NULL: a stateful operator's)."""
    cdef Failure* first = NULL
    cdef Failure* f
    cdef Chunk* out
    cdef const char* key
    cdef int32_t k
    cut[0] = NULL
    for k in range(c.nparts):
        f = c.parts[k].failure
        if f == NULL:
            continue
        c.parts[k].failure = NULL
        out = c.parts[k].out
        # A failing punctuate leaves the key that it was at behind its last row.
        key = out.flush_key[out.n] if out != NULL and out.flush_key != NULL and out.n < out.capacity else NULL
        if first == NULL or (op.keys != NULL and key != NULL and cut[0] != NULL and key_compare(op.keys, key, cut[0]) < 0):
            first, f = f, first
            cut[0] = key
        if f != NULL:
            if f.exc != NULL:
                drop_exception(f.exc)
            free(f)
    return first


cdef inline int16_t lane_of(const Operator* op) noexcept nogil:
    """The lane of an operator that works on one."""
    cdef int16_t lane = 0
    while not op.reads >> lane & 1:
        lane += 1
    return lane


cdef void complete_punctuation(Operator* op, Worker* w, Chunk* c, Slice* slice) noexcept nogil:
    """Every bucket has met the punctuation: send what it made them emit, then the punctuation itself."""
    cdef Chunk* out = NULL
    cdef const char* cut = NULL
    cdef Failure* failure = first_flush_failure(op, c, &cut)
    cdef int64_t ticket = c.ticket
    cdef bint logged
    cdef int32_t k
    for k in range(c.nparts):
        if c.parts[k].out != NULL:
            out = c.parts[k].out
            break
    if out != NULL:
        logged = op.run.steps != 0 and c.kind == END_OF_STREAM
        out = merge_flush(w, c, op.kernel.output, op.has_views, op.keys, cut, &op.steps if logged else NULL)
        if out == NULL and load_relaxed(&op.run.stop) != 0:
            drop_failure(failure)
            drop_parts(w, c)
            return
        if out == NULL:
            out_of_memory(op)
            return
        out.serials = <int64_t*> chunk_alloc(w, out, <int64_t> out.n * 8 + 8)
        if out.serials == NULL:
            out_of_memory(op)
            return
        for k in range(out.n):
            out.serials[k] = c.last_serial
        if logged:
            for k in range(out.n):
                out.serials[k] += 1 + out.origin[k]
                out.origin[k] = 0
            op.steps.first_serial = c.last_serial + 1
            c.last_serial += op.steps.n                       # the operators behind go on from there
            store_release(&op.steps.published, 1)             # pairs with load_acquire in Run.steps
        out.first_serial = c.last_serial
        out.last_serial = c.last_serial
        out.lane = lane_of(op)
    c.nparts = 0
    if failure != NULL:
        failure.slot = -1
        if out == NULL:
            out = chunk_new(w)
            if out == NULL:
                out_of_memory(op)
                return
        fail_unit(op, w, c, NULL, out, failure)
        out.link.link = c                                     # the punctuation follows; the egress drops it
        operator_send(op, w, ticket, out)
        return
    if out == NULL:
        operator_send(op, w, ticket, c)
        return
    slice.tuples_out += out.n
    if out.n == 0:
        chunk_free(w, out)
        operator_send(op, w, ticket, c)
        return
    out.link = c
    operator_send(op, w, ticket, out)


cdef void drop_failure(Failure* f) noexcept nogil:
    if f != NULL:
        if f.exc != NULL:
            drop_exception(f.exc)
        free(f)


cdef void drop_parts(Worker* w, Chunk* c) noexcept nogil:
    """The run was stopped: free a chunk all of whose parts are done, or left half done, with what they made. The gap delivers nothing."""
    cdef int32_t k
    for k in range(c.nparts):
        if c.parts[k].out != NULL:
            chunk_free(w, c.parts[k].out)
        drop_failure(c.parts[k].failure)
    c.nparts = 0
    unit_free(w, c)


cdef void process_part(Operator* op, Worker* w, void* state, Part* part, Slice* slice) noexcept nogil:
    """Run one part; the worker that finishes a chunk's last part assembles and sends the chunk."""
    cdef Chunk* c = part.chunk
    cdef Failure f
    cdef int64_t began
    if c.kind == DATA:
        slice.tuples_in += part.n
        if op.shed != NULL and c.shed != NULL:
            began = shed_begin(op.shed, w, c, part.rows, part.n)
            run_rows(op, w, state, part)
            shed_end(op.shed, w, <ShedRows*> c.shed, part.rows, part.n, began)
        else:
            run_rows(op, w, state, part)
            if part.n == 1 and not op.rb.alone and slice.holding != 1:
                expect_release(op)
    elif op.kernel.punctuate != NULL and (c.kind == END_OF_STREAM or c.kind == TIME):
        send_held(op, w, slice)                               # a flush may take long
        part.out = chunk_new(w)
        if part.out == NULL:
            out_of_memory(op)
        else:
            part.out.kind = c.kind                            # makes chunk_reserve keep flush arrays
            f.exc = NULL
            scratch_reset(w)
            if op.kernel.punctuate(op.kernel, w, state, c, part.out, &f) != 0:
                part.failure = failure_new(-1, f.code, f.message)
                if part.failure != NULL:
                    part.failure.exc = f.exc
            part.out.kind = DATA
    # acq_rel: the last one sees what the others wrote into the chunk and their outputs
    if c.nparts == 1 or sub_acq_rel(&c.pending, 1) == 1:
        if load_relaxed(&op.run.stop) != 0:                   # who left early saw it before it counted its part: so does this worker
            drop_parts(w, c)
        elif c.kind == DATA:
            complete_rows(op, w, c, slice)
        else:
            complete_punctuation(op, w, c, slice)


cdef inline void work_bucket(
    Operator* op, Worker* w, int32_t b, int64_t run, Part* part, int64_t most, int64_t budget, Slice* slice
) noexcept nogil:
    """Process `run` parts of a bucket that this worker has entered, and what is delegated to it meanwhile, until the slice is over or
    `most` parts are done: then the bucket is handed over. part: the first one where it is known, else NULL."""
    cdef int64_t k
    cdef int64_t end = slice.chunks + most
    cdef bint over
    while run > 0:
        k = 0
        over = False
        while k < run:
            part = pq_next(&op.pq, b, part)
            if part == NULL:
                break
            op.pq.buckets[b].parts += 1
            op.pq.buckets[b].tuples += part.n
            slice.chunks += 1
            process_part(op, w, op.pq.buckets[b].state, part, slice)
            part = NULL
            k += 1
            over = slice.tuples_in + slice.chunks >= budget or slice.chunks >= end or load_relaxed(&op.run.stop) != 0
            if over:
                break
        run = pq_leave(&op.pq, b, k, over)


cdef void run_claims(Operator* op, Worker* w, Claims* claims, int32_t n, int64_t budget, Slice* slice) noexcept nogil:
    """Parts claimed together (a few microseconds of work) one after the other; the units that they complete are sent together.

    Where the units in front of them are not out yet they stay held, until the next unit is complete or the slice is over: two workers that
    wait for their turn at the end of a run do it at the end of every run, one always right behind the other.
    """
    cdef int64_t run = 0
    cdef int32_t k
    cdef int32_t b
    cdef Part* part = NULL
    slice.holding = 1
    prefetch_claim(&op.pq, claims, 0)
    for k in range(n):
        if load_relaxed(&op.run.stop) != 0:
            break                                             # what is left in the bucket is freed with the run
        if k + 1 < n:
            prefetch_claim(&op.pq, claims, k + 1)
        else:
            slice.holding = 2
        b = pq_enter_claim(&op.pq, claims, k, &run, &part)
        if b != PQ_NOTHING:
            # What is delegated to a busy bucket must not keep the other claims, which all later tickets wait for.
            work_bucket(op, w, b, run, part, CLAIM_MAX if k + 1 < n else budget, budget, slice)
    slice.holding = 0
    if load_acquire(&op.rb.next) == slice.held_ticket:        # pairs with store_release in release_*
        send_held(op, w, slice)


cdef void run_partitioned(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """consumeInputs of Fig. 7, for a time slice."""
    cdef int64_t run = 0
    cdef Claims claims
    cdef int32_t n
    cdef int32_t b
    cdef Part* part = NULL
    cdef int64_t first = w.id if w.id < op.run.workers else 0   # partitioned-queue workers begin at different buckets
    cdef int32_t start = <int32_t> (first * op.pq.p // op.run.workers)
    cdef int64_t limit = take_limit(op)                       # read again when it stops us, and after what takes long
    # Chunks that are a small part of a slice, a few microseconds: by the mean number of rows so far.
    cdef int64_t mean = load_relaxed(&op.tuples_enqueued) // max(load_relaxed(&op.enqueued), <int64_t> 1)
    cdef int64_t most = min(budget // CLAIM_PART // max(mean, <int64_t> 1), <int64_t> CLAIM_MAX)
    if op.kernel.unbounded or op.shed != NULL:                # the rows behind .shed are timed one by one
        most = 1
    while slice.tuples_in + slice.chunks < budget and load_relaxed(&op.run.stop) == 0:
        if most > 1:
            n = pq_claim(&op.pq, limit, <int32_t> most, &claims)
            if n:
                run_claims(op, w, &claims, n, budget, slice)
                limit = take_limit(op)
                continue
        send_held(op, w, slice)
        b = pq_enter(&op.pq, limit, start, &run, &part)
        if b == PQ_NOTHING:
            if limit >= take_limit(op):
                return
            limit = take_limit(op)
            continue
        work_bucket(op, w, b, run, part, budget, budget, slice)
        limit = take_limit(op)
    send_held(op, w, slice)


cdef void run_stateful(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """One worker at a time (M = 1): take, process, send."""
    cdef Chunk* c
    cdef Part* part
    cdef int32_t k
    while slice.tuples_in + slice.chunks < budget and load_relaxed(&op.run.stop) == 0:
        if reorder_ready(&op.rb) and not operator_can_release(op):
            return
        if op.ingress != NULL:
            c = ingress_take(op.ingress, w, reorder_limit(&op.rb))
        else:
            c = <Chunk*> as_pointer(spsc_try_take(&op.input))
        if c == NULL:
            return
        slice.chunks += 1
        if c.kind == FAILURE or (c.kind == DATA and c.n == 0):
            operator_send(op, w, c.ticket, c)
            continue
        part = &c.one_part
        part.chunk = c
        part.bucket = 0
        part.n = c.n if c.kind == DATA else 0
        part.rows = c.sel
        part.out = NULL
        part.failure = NULL
        c.parts = part
        c.nparts = 1
        if c.kind == DATA:
            if part.rows == NULL and c.n <= MOST_FIRST_ROWS:
                part.rows = FIRST_ROWS
            elif part.rows == NULL:
                part.rows = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
                if part.rows == NULL:
                    out_of_memory(op)
                    return
                for k in range(c.n):
                    part.rows[k] = k
            c.hash = NULL                                     # what an operator before may have left
            if op.keys != NULL and op.kernel.uses_hash and not op.keys.simple:   # a partitioned operator with one bucket
                c.hash = <uint64_t*> chunk_alloc(w, c, <int64_t> c.slots * 8)
                if c.hash == NULL:
                    out_of_memory(op)
                    return
                key_hash(op.keys, c, op.kernel.input)
            if prepare_rows(op.kernel, w, c) != 0:
                out_of_memory(op)
                return
        process_part(op, w, op.state, part, slice)


cdef void operator_run(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """One slice of at most about `budget` tuples; returns early when the worklist is empty or the run stops.

    Thread safety: up to M workers at a time (the scheduler's w). Never blocks.
    """
    slice.holding = 0
    slice.held = 0
    if reorder_ready(&op.rb):
        operator_release(op, w)                               # a parked or capped release
    if op.kind == SL:
        run_stateless(op, w, budget, slice)
    elif op.kind == PS:
        run_partitioned(op, w, budget, slice)
    else:
        run_stateful(op, w, budget, slice)
    if slice.tuples_in:
        add_relaxed(&op.tuples_done, slice.tuples_in)         # statistic
