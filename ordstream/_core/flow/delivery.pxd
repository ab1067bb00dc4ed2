"""Delivery: from the operator that made a unit to the worklist of the next operator, or to the egress, in
ticket order.

  operator_send      split for the next operator, place in the reorder buffer, release what is ready
  operator_release   deliver ready units downstream
  send_or_hold       operator_send, but units of one claim are sent together
What runs once per unit is inline, in the module that makes the unit: calls across modules cannot be inlined.
Nothing here waits. Whoever delivers holds the operator's release flag and no bucket's kernel.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset
from ordstream._core.flow.assemble cimport assign_serials
from ordstream._core.flow.lanes cimport inherit_lanes
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.flow.reorder_buffer cimport reorder_put
from ordstream._core.flow.split cimport split_chunk, split_everywhere
from ordstream._core.flow.worklist.hybrid cimport CLAIM_MAX
from ordstream._core.ground.atomics cimport as_int
from ordstream._core.ground.chunk cimport (
    DATA, FAILURE, SNAPSHOT, SUSPEND, Chunk, Column, Failure, Worker, chunk_alloc, chunk_free, chunk_hold,
)
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, PS, Kernel

cdef void out_of_memory(Operator* op) noexcept nogil

cdef bint operator_has_room(Operator* op, int64_t chunks, int64_t parts) noexcept nogil
cdef bint operator_can_release(Operator* op) noexcept nogil
cdef void operator_release(Operator* op, Worker* w) noexcept nogil

cdef void expect_release(Operator* op) noexcept nogil
cdef Chunk* prepare_lanes(Operator* op, Worker* w, Chunk* unit) noexcept nogil
cdef void operator_send_run(Operator* op, Worker* w, int64_t ticket, const int64_t* units,
                            int32_t n) noexcept nogil
cdef void send_held(Operator* op, Worker* w, Slice* slice) noexcept nogil

cdef Chunk* fail_unit(Operator* op, Worker* w, Chunk* source, const Column* cols, Chunk* out,
                      Failure* failure) noexcept nogil


cdef inline int prepare_rows(Kernel* kernel, Worker* w, Chunk* c) noexcept nogil:
    """What a kernel needs in a data chunk before its rows are processed. 0, or -1: no memory."""
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
    """Prepare a chunk for a partitioned operator: split it, and make what its kernel needs. Done in
    parallel, before the chunk waits for its turn. 0, or -1: no memory."""
    if c.kind == DATA:
        if c.n == 0:
            c.nparts = 0
            return 0
        if split_chunk(&to.partitioner, w, c) != 0:
            return -1
        return prepare_rows(to.kernel, w, c)
    c.nparts = 0
    if c.kind == FAILURE or (to.kernel.punctuate == NULL and c.kind != SNAPSHOT and c.kind != SUSPEND):
        return 0
    return split_everywhere(to.pq.p, w, c)


cdef inline Chunk* prepare_unit(Operator* op, Worker* w, Chunk* unit) noexcept nogil:
    """Split a unit for the next operator where that is partitioned. Returns the unit: its first chunk may be
    another."""
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


cdef inline void operator_send(Operator* op, Worker* w, int64_t ticket, Chunk* unit) noexcept nogil:
    """Split a unit for the next operator, place it in the reorder buffer, and release what is ready."""
    cdef int64_t one = as_int(prepare_unit(op, w, unit))
    operator_send_run(op, w, ticket, &one, 1)


cdef inline void send_or_hold(Operator* op, Worker* w, int64_t ticket, Chunk* unit,
                              Slice* slice) noexcept nogil:
    """Send a unit; or, while units are held back, hold it too if its ticket follows theirs."""
    if not slice.holding:
        operator_send(op, w, ticket, unit)
        return
    cdef int32_t k
    if slice.held and ticket < slice.held_ticket:
        # This unit comes from a part that was delegated to this worker, and precedes the held ones. Put
        # those into their slots: the release of this unit, or of a later one, will deliver them.
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


cdef inline int inherit(Operator* op, Worker* w, Chunk* out, Chunk* source) noexcept nogil:
    """A new output chunk takes the place of its input chunk: it gets the serials and markers, and the input
    chunk is held or freed.

    0, or -1: no memory.
    """
    if op.lanes:
        if inherit_lanes(op.kernel, w, out, source) != 0:
            return -1
    elif assign_serials(w, out, source) != 0:
        return -1
    out.last_serial = source.last_serial
    out.counted = source.counted
    out.arrived_ns = source.arrived_ns
    out.dispatched_ns = source.dispatched_ns
    if op.kernel.keeps_views or (op.lanes and (out.beside != NULL or source.fork != NULL)):
        chunk_hold(out, source)             # lanes share columns and places: they die with the unit
    else:
        chunk_free(w, source)
    return 0
