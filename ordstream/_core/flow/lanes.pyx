"""Lanes: what a new chunk takes over from the one it was made of, and what a failure cuts. See lanes.pxd."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.assemble cimport assign_serials
from ordstream._core.ground.chunk cimport Chunk, Fork, Worker, chunk_alloc, row_slot, slot_serial
from ordstream._core.ground.kernel cimport Kernel


cdef inline int32_t place_at(const Chunk* c, int32_t slot, const Fork* at) noexcept nogil:
    """Slot at the branch point `at`, one that the chunk's rows have passed, that caused a slot of the chunk;
    NULL: 0."""
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


cdef int mark_flush(Worker* w, Chunk* out) noexcept nogil:
    """What a punctuation made an operator emit begins here: a union behind of lanes that were divided before
    this operator orders these rows by their slot. 0, or -1: no memory."""
    out.fork = <Fork*> chunk_alloc(w, out, sizeof(Fork))
    if out.fork == NULL:
        return -1
    out.fork.outer = NULL
    out.fork.place = NULL
    out.fork.branch = FLUSHED
    return 0


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


cdef int inherit_lanes(Kernel* kernel, Worker* w, Chunk* out, Chunk* source) noexcept nogil:
    """The part of inherit (delivery.pyx) that is about serials and lanes. 0, or -1: no memory.

    A kernel that takes whole units has seen to both.
    """
    cdef int32_t i
    if kernel.units:
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
