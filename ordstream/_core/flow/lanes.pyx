"""Lanes: what a new chunk takes over from the one it was made of, and what a failure cuts. See lanes.pxd."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.assemble cimport assign_serials
from ordstream._core.ground.atomics cimport store_relaxed
from ordstream._core.ground.chunk cimport (
    Chunk, Fork, Worker, chunk_alloc, chunk_beside, chunk_hold, chunk_hold_share, chunk_new, row_slot,
    slot_serial,
)
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


cdef inline int take_place(Worker* w, Chunk* out, const Chunk* source) noexcept nogil:
    """Lane and branch points of a chunk that was made of another one. 0, or -1: no memory."""
    cdef int32_t i
    out.lane = source.lane
    out.fork = source.fork
    if source.fork == NULL:
        return 0
    out.place = <int32_t*> chunk_alloc(w, out, <int64_t> out.n * 4 + 4)
    if out.place == NULL:
        return -1
    for i in range(out.n):
        out.place[i] = out.origin[i] if source.place == NULL else source.place[out.origin[i]]
    return 0


cdef int inherit_lanes(Kernel* kernel, Worker* w, Chunk* out, Chunk* source) noexcept nogil:
    """The part of inherit (delivery.pyx) that is about serials and lanes. 0, or -1: no memory.

    A kernel that takes whole units has seen to both.
    """
    if kernel.units:
        return 0
    if assign_serials(w, out, source) != 0:
        return -1
    out.beside = source.beside
    return take_place(w, out, source)


# -------------------------------------------------------------------------------- rows cut by marks


cdef inline bint is_behind(const Chunk* b, int32_t slot, const Chunk* c, int32_t at) noexcept nogil:
    """Whether a row of another lane comes behind what row `at` of `c` causes in its own."""
    cdef int64_t serial = slot_serial(b, slot)
    cdef int64_t other = slot_serial(c, at)
    cdef const Fork* fork
    if serial != other:
        return serial > other
    fork = common_fork(b, c)
    return place_at(b, slot, fork) > place_at(c, at, fork)


cdef int give_piece(Worker* w, Chunk* piece, Chunk* b, int32_t n) noexcept nogil:
    """The first `n` rows of another lane go into a piece, which shares their columns. 0, or -1: no
    memory."""
    cdef Chunk* new
    if n == 0:
        return 0
    new = chunk_beside(w, b)
    if new == NULL:
        return -1
    new.lane = b.lane
    new.fork = b.fork
    new.place = b.place
    new.n = n
    new.sel = b.sel
    b.sel += n                                     # a selection that its lane may narrow in place
    b.n -= n
    new.beside = piece.beside
    piece.beside = new
    return 0


cdef int divide_beside(Worker* w, Chunk* piece, const Chunk* mark, const Chunk* source) noexcept nogil:
    """What the other lanes have in front of a mark goes into a piece; without a mark, the rest. 0, or -1: no
    memory."""
    cdef Chunk* b = source.beside
    cdef int32_t n
    while b != NULL:
        if b.sel == NULL:
            b.sel = <int32_t*> chunk_alloc(w, b, <int64_t> b.n * 4 + 4)
            if b.sel == NULL:
                return -1
            for n in range(b.n):
                b.sel[n] = n
        n = b.n
        if mark != NULL:
            n = 0
            while n < b.n and not is_behind(b, b.sel[n], source, mark.slots):
                n += 1
        if give_piece(w, piece, b, n) != 0:
            return -1
        b = b.beside
    return 0


cdef int inherit_pieces(Worker* w, Chunk* out, Chunk* rest, Chunk* source) noexcept nogil:
    """inherit (delivery.pyx) for rows with marks among them (ground/marked_rows.pxd), before they have
    serials: what is in front of a mark becomes a piece, with the rows of other lanes up to those that the
    row which shows the mark has caused; so does the rest.

    Pieces are units of their own, which other workers may take: they share the memory of what they are made
    of. Ownership of `source`: theirs. Returns: 0, or -1: no memory. Cost: linear in the rows, and a small
    chunk per piece and lane.
    """
    cdef Chunk* shared = chunk_new(w)
    cdef Chunk* piece = out
    cdef Chunk* mark = rest
    cdef Chunk* b
    cdef Chunk* following
    cdef int64_t pieces = 1
    if shared == NULL or assign_serials(w, out, source) != 0:
        return -1
    while True:
        if (take_place(w, piece, source) != 0 or chunk_hold_share(w, piece, shared) != 0
                or divide_beside(w, piece, mark, source) != 0):
            return -1
        if mark == NULL:
            break
        pieces += 1
        piece = mark.link
        mark = piece.link
    out.counted = source.counted
    out.arrived_ns = source.arrived_ns
    out.dispatched_ns = source.dispatched_ns
    store_relaxed(&shared.pending, pieces)         # other workers see it with the pieces
    b = source
    while b != NULL:
        following = b.beside
        b.beside = NULL
        chunk_hold(shared, b)
        b = following
    return 0
