"""Delivery (delivery.pxd states the design). Everything here is nogil. Only the lock of the lock-based
reorder scheme ever blocks."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.assemble cimport copy_row
from ordstream._core.flow.egress cimport OUTPUT_LANES, egress_deliver, egress_has_room
from ordstream._core.flow.ingress cimport ingress_wakes_feeder
from ordstream._core.flow.lanes cimport cut_lanes
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.flow.reorder_buffer cimport (
    reorder_offer, reorder_offer_run, reorder_put, reorder_ready, reorder_release,
)
from ordstream._core.flow.worklist.partition_queues cimport pq_add, pq_has_room
from ordstream._core.ground.atomics cimport *
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.kernel cimport PS, SF, SL
from ordstream._core.ground.marked_rows cimport marked_whole
from ordstream._core.ground.mpmc cimport mpmc_try_push_single
from ordstream._core.ground.spsc cimport spsc_try_push
from ordstream._core.ground.threads cimport prefetch_write

cdef struct Delivery:
    # Context of one reorder_release.
    Operator* op
    Worker* worker
    int32_t pushed         # units put into the next worklist
    int32_t direct         # units put straight into the next reorder buffer
    int32_t furthest       # index of the last operator that got a unit


cdef void out_of_memory(Operator* op) noexcept nogil:
    """End the run: without memory nothing can be kept in order. The caller's thread raises MemoryError."""
    store_relaxed(&op.run.no_memory, 1)               # read after the run ended
    store_release(&op.run.stop, 1)                    # pairs with load_acquire in the worker loop


# ---------------------------------------------------------------- room, and what enters a worklist

cdef bint operator_has_room(Operator* op, int64_t chunks, int64_t parts) noexcept nogil:
    """True when `chunks` chunks with `parts` parts in total can be enqueued. Exact for the one producer, an
    estimate for other threads."""
    cdef int64_t enqueued = load_relaxed(&op.enqueued)        # the producer's own
    # pairs with store_release in reorder_release
    cdef int64_t inside = enqueued - load_acquire(&op.rb.next) + 1
    if inside > 0:
        if inside + chunks > op.depth:
            # a unit of several chunks waits for an emptier operator
            return False
        # A stale tuples_done is smaller than the true one, so the bound is only stricter.
        if load_relaxed(&op.tuples_enqueued) - load_relaxed(&op.tuples_done) > op.max_queued:
            return False
    if op.kind == PS:
        return pq_has_room(&op.pq, parts)
    return True


cdef inline bint admits(Operator* op, int64_t chunks, int64_t parts) noexcept nogil:
    """operator_has_room for the one producer. It reads the fields that workers write only when its own
    copies say that there is no room."""
    cdef int64_t enqueued = load_relaxed(&op.enqueued)        # own value
    if (enqueued - op.seen_next + 1 + chunks > op.depth
            or load_relaxed(&op.tuples_enqueued) - op.seen_done > op.max_queued):
        op.seen_next = load_acquire(&op.rb.next)              # pairs with store_release in reorder_release
        op.seen_done = load_relaxed(&op.tuples_done)          # statistic
        return operator_has_room(op, chunks, parts)
    return op.kind != PS or pq_has_room(&op.pq, parts)


cdef bint operator_can_release(Operator* op) noexcept nogil:
    """True when there is room downstream for the next unit. Any thread; an estimate."""
    if op.egress != NULL:
        return egress_has_room(op.egress)
    return operator_has_room(op.next, 1, op.next.pq.p if op.next.kind == PS else 1)


cdef inline bint wants(const Operator* op, const Chunk* c) noexcept nogil:
    """Whether an operator has something to do for a unit, in a run with lanes."""
    return c.kind != DATA or unit_has(c, op.reads)


cdef inline void enqueue(Operator* op, Chunk* c, Delivery* d) noexcept nogil:
    """Give a chunk its ticket and put it into the worklist. The one producer; room was checked."""
    cdef int64_t ticket = load_relaxed(&op.enqueued) + 1      # own value
    c.ticket = ticket
    if c.n:
        # own value; a statistic for others
        store_relaxed(&op.tuples_enqueued, load_relaxed(&op.tuples_enqueued) + c.n)
    store_relaxed(&op.enqueued, ticket)
    if op.kind == SL:
        mpmc_try_push_single(&op.worklist, as_int(c))
    elif op.kind == SF:
        spsc_try_push(&op.input, as_int(c))
    elif c.nparts:
        pq_add(&op.pq, c, ticket)
    else:
        # No bucket has anything to process: the chunk goes straight to the reorder buffer. The operator
        # after this one may still need its parts (a punctuation).
        if op.next != NULL and op.next.kind == PS and prepare_for(op.next, d.worker, c) != 0:
            out_of_memory(op)
            c.nparts = 0
        reorder_put(&op.rb, ticket, as_int(c))
        d.direct += 1
        return
    d.pushed += 1


# ---------------------------------------------------------------- sending

cdef void expect_release(Operator* op) noexcept nogil:
    """Prefetch the cache lines that sending a unit will touch and that another worker probably wrote last.

    Prefetched together their transfers between cores overlap; otherwise each one is waited for. Nothing is
    read here.
    """
    prefetch_write(&op.rb.next)
    if op.egress != NULL:
        prefetch_write(&op.egress.rows_out)
        # a hint: it may be gone, and nothing faults
        prefetch_write(as_pointer(load_relaxed(&op.egress.writing)))
        prefetch_write(&op.run.ingress.retired_chunks)
    if op.kind == PS:
        prefetch_write(&op.pq.master.head)                    # taken from right after


cdef inline bint nothing_inside(Operator* op) noexcept nogil:
    """Whether all that entered an operator has been delivered. Its one producer only.

    If so that producer may produce for the operator behind it, until it lets something in: nobody else
    delivers from there.
    """
    # own value; pairs with store_release of `next` behind each delivery
    return load_relaxed(&op.enqueued) + 1 == load_acquire(&op.rb.next)


cdef void enter(Operator* to, Chunk* c, Delivery* d) noexcept nogil:
    """enqueue in a run with lanes: a chunk without rows for the operator goes straight to the order."""
    cdef int64_t ticket = load_relaxed(&to.enqueued) + 1      # own value
    d.furthest = to.index
    if wants(to, c):
        enqueue(to, c, d)
        return
    c.ticket = ticket
    store_relaxed(&to.enqueued, ticket)
    reorder_put(&to.rb, ticket, as_int(c))
    d.direct += 1


cdef int deliver_marked(Operator* to, Chunk* last, Delivery* d) noexcept nogil:
    """deliver for rows with marks among them: as many chunks as there is room for; the unit keeps the rest.
    Returns: as deliver."""
    cdef Chunk* c
    while True:
        c = last.link if last.link != NULL else last
        if not admits(to, 1, c.nparts if not to.lanes or wants(to, c) else 0):
            return 0
        last.link = c.link
        c.link = NULL
        if c == last:
            c.time = 0                                        # a unit like any other
        if to.lanes:
            enter(to, c, d)
        else:
            enqueue(to, c, d)
        if c == last:
            return 1


cdef int deliver_past(Operator* to, Chunk* c, Delivery* d) noexcept nogil:
    """deliver in a run with lanes: past operators that are empty and have nothing to do for the unit.

    Thread safety, returns: as deliver. The last operator is never passed: the holder of its flag writes the
    output. Cost: some ten instructions per operator passed.
    """
    cdef bint wanted
    cdef bint next_wants
    cdef Chunk* following = c
    cdef int64_t chunks = 0
    cdef int64_t parts = 0
    if marked_whole(c):
        return deliver_marked(to, c, d)
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
    """Hand one unit to the next worklist or to the egress. 0: there is no room. For the holder of the
    release flag only."""
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
    if marked_whole(c):
        return deliver_marked(to, c, d)
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
    """Deliver units that are ready: a release that parked, or that stopped at RELEASE_MAX, continues."""
    release_or_offer(op, w, 0, NULL, 0)


cdef void release_past(Operator* to, Worker* w, int32_t furthest) noexcept nogil:
    """Release what was put straight into the reorder buffers of operators from `to` to the one of index
    `furthest`."""
    while to != NULL and to.index <= furthest:
        if reorder_ready(&to.rb):
            operator_release(to, w)
        to = to.next


cdef inline void release_or_offer(Operator* op, Worker* w, int64_t ticket, const int64_t* units,
                                  int32_t n) noexcept nogil:
    """Place `n` units with consecutive tickets, then deliver every unit that is ready, unless another worker
    is doing so. A call that put something into a worklist wakes one parked worker.

    Thread safety: any worker, not while it holds a bucket's kernel. Cost: reorder_release plus one load of
    `parked`.
    """
    cdef Delivery d
    cdef int64_t published = 0
    d.op = op
    d.worker = w
    d.pushed = 0
    d.direct = 0
    if op.egress != NULL:
        # it moves when a batch is published: then the reader is told
        published = load_relaxed(&op.egress.ready.tail)
    if n == 1:
        reorder_offer(&op.rb, ticket, units[0], deliver, &d)
    elif n:
        reorder_offer_run(&op.rb, ticket, units, n, deliver, &d)
    else:
        reorder_release(&op.rb, deliver, &d)
    # totally ordered with the parking worker's add_seq
    if d.pushed and load_seq(&op.run.parked) > 0:
        op.run.work.notify_one()
    if d.direct:
        operator_release(op.next, w)                          # at most as deep as the chain is long
        if op.lanes:
            release_past(op.next.next, w, d.furthest)
    if op.egress != NULL and (load_relaxed(&op.egress.ended)
                              or load_relaxed(&op.egress.ready.tail) != published
                              or ingress_wakes_feeder(op.run.ingress)):
        # it is told now, and sets this again if it goes on waiting
        store_relaxed(&op.run.ingress.feeder_waits, 0)
        op.run.reader.notify_all()


cdef Chunk* prepare_lanes(Operator* op, Worker* w, Chunk* unit) noexcept nogil:
    """prepare_unit in a run with lanes: for the first operator behind this one that has something to do for
    the unit.

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


cdef void operator_send_run(Operator* op, Worker* w, int64_t ticket, const int64_t* units,
                            int32_t n) noexcept nogil:
    """Place `n` prepared units with consecutive tickets in the reorder buffer, and release what is ready."""
    cdef int64_t height = ticket + n - 1 - load_relaxed(&op.rb.next)   # statistic
    if height > load_relaxed(&op.reorder_height):
        store_relaxed(&op.reorder_height, height)
    release_or_offer(op, w, ticket, units, n)


cdef void send_held(Operator* op, Worker* w, Slice* slice) noexcept nogil:
    """Send the units that are held."""
    cdef int32_t n = slice.held
    if n:
        slice.held = 0
        operator_send_run(op, w, slice.held_ticket, slice.units, n)


# ---------------------------------------------------------------- what a unit inherits

cdef Chunk* fail_unit(Operator* op, Worker* w, Chunk* source, const Column* cols, Chunk* out,
                      Failure* failure) noexcept nogil:
    """Link a FAILURE chunk, which carries the failing row, behind `out` (the outputs of the rows before it).
    Returns `out`; NULL: without memory the run ends, and nothing is linked.

    Ownership: `failure` is taken; it stays behind where there is no memory, since an exception in it needs
    the GIL.
    """
    cdef int64_t serial = slot_serial(source, failure.slot) if failure.slot >= 0 else source.last_serial
    cdef Chunk* f = chunk_new(w)
    out.last_serial = serial - 1
    # what follows will not be delivered: admit no more; no partner
    store_relaxed(&op.run.ingress.stop, 1)
    if f == NULL:
        out_of_memory(op)
        return NULL
    f.kind = FAILURE
    f.failure = failure
    f.failed_operator = op.index
    f.first_serial = serial
    f.last_serial = serial
    if failure.slot >= 0 and copy_row(w, f, cols, op.kernel.input, failure.slot) != 0:
        f.n = 0
    out.link = f
    if op.lanes and failure.slot >= 0:
        cut_lanes(source, failure.slot)
    return out
