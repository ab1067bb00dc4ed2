"""What moves through a simulated node: room for it, input to take, chunks formed and split.

As ingress.pyx, slices.pyx, delivery.pyx and split.pyx of the flow.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.kernel cimport PS, SF
from ordstream._core.lab.sim_node cimport SimChunk, SimNode, SimOperator


# ---------------------------------------------------------- rooms and inputs, as slices.pyx and delivery.pyx

cdef inline int64_t limit_of(const SimOperator* op) noexcept nogil:
    return op.next + op.slot_mask + 1


cdef inline bint has_room(SimNode* s, SimOperator* op, int64_t parts) noexcept nogil:
    cdef int64_t inside = op.enqueued - op.next + 1
    if inside > 0:
        if inside + 1 > s.depth or op.tuples_enqueued - op.tuples_done > s.max_queued:
            return False
    if op.kind == PS:
        return op.tail - op.head + parts <= op.list_mask + 1
    return True


cdef inline bint can_release(SimNode* s, int32_t i) noexcept nogil:
    if i == s.n - 1:
        return True                                   # the reader keeps up
    return has_room(s, &s.ops[i + 1], s.ops[i + 1].p if s.ops[i + 1].kind == PS else 1)


cdef inline bint over(const SimNode* s, int64_t percent) noexcept nogil:
    return (s.issued_chunks - s.retired_chunks) * 100 >= s.max_chunks * percent


cdef inline bint admits(SimNode* s) noexcept nogil:
    if s.issued_chunks == s.retired_chunks:
        s.throttled = 0
        return True
    s.throttled = over(s, 70 if s.throttled else 100)
    return not s.throttled


cdef inline int64_t due(SimNode* s, int64_t most, double now) noexcept nogil:
    """Source tuples that may be issued now, at most `most`."""
    cdef int64_t n = s.tuples - s.issued
    cdef int64_t k = 0
    if n > most:
        n = most
    if s.schedule == NULL:
        return n
    while k < n and <double> s.schedule[s.issued + k] <= now:
        k += 1
    return k


cdef inline bint due_at_least(const SimNode* s, int64_t n, double now) noexcept nogil:
    """True when so many source tuples may be issued now."""
    if s.tuples - s.issued < n:
        return False
    return s.schedule == NULL or n == 0 or <double> s.schedule[s.issued + n - 1] <= now


cdef inline bint ingress_has_work(SimNode* s, double now) noexcept nogil:
    if s.issued >= s.tuples or s.issued_chunks + 1 >= limit_of(&s.ops[0]):
        return False
    if s.schedule != NULL and <double> s.schedule[s.issued] > now:
        return False
    if s.throttled:
        return s.issued_chunks == s.retired_chunks or not over(s, 70)
    return True


cdef inline bint has_input(SimNode* s, int32_t i, double now) noexcept nogil:
    cdef SimOperator* op = &s.ops[i]
    if i == 0:
        return ingress_has_work(s, now)
    if op.kind == PS:
        if op.hand_tail > op.hand_head:
            return True
        return op.tail > op.head and op.list[op.head & op.list_mask] >> 16 < limit_of(op)
    return op.tail > op.head and (op.kind == SF or op.head + 1 < limit_of(op))


cdef inline bint ready(const SimOperator* op) noexcept nogil:
    return op.slots[op.next & op.slot_mask] != 0


cdef inline bint runnable(SimNode* s, int32_t i, double now) noexcept nogil:
    if ready(&s.ops[i]):
        return can_release(s, i)
    return has_input(s, i, now)


cdef inline bint anything_runnable(SimNode* s, double now) noexcept nogil:
    cdef int32_t i
    for i in range(s.n):
        if runnable(s, i, now):
            return True
    return False


# ---------------------------------------------------------------- chunks

cdef inline int64_t chunk_new(SimNode* s) noexcept nogil:
    s.nfree -= 1
    return s.free_chunks[s.nfree]


cdef inline int64_t form(SimNode* s, int32_t w, double now) noexcept nogil:
    """The next chunk of the source with its ticket, or -1."""
    cdef int64_t n
    cdef int64_t k
    cdef SimChunk* c
    if s.issued >= s.tuples or s.issued_chunks + 1 >= limit_of(&s.ops[0]) or not admits(s) or s.nfree == 0:
        return -1
    n = due(s, s.rows, now)
    if n == 0:
        return -1
    k = chunk_new(s)
    c = &s.chunks[k]
    c.n = <int32_t> n
    c.tuples = <int32_t> n
    c.nparts = 0
    c.maker = w
    c.toucher = w
    c.dispatched = now
    c.arrived = <double> s.schedule[s.issued] if s.schedule != NULL else 0.0
    s.issued += n
    s.issued_chunks += 1
    c.last = s.issued
    c.ticket = s.issued_chunks
    return k


cdef inline int32_t outputs(SimOperator* op, int32_t n) noexcept nogil:
    """Outputs of n inputs: the fraction left over is kept for the next ones."""
    cdef int64_t whole
    op.acc += n * op.selectivity
    whole = <int64_t> (op.acc + 1e-9)
    op.acc -= whole
    return <int32_t> whole


cdef inline double prepare(SimNode* s, int32_t i, SimChunk* c) noexcept nogil:
    """Split a complete chunk of operator i for the operator behind it; the time that takes."""
    cdef SimOperator* to
    cdef int32_t* fill
    cdef int32_t b
    cdef int32_t j
    cdef int32_t k
    cdef int32_t _k
    c.nparts = 0
    if i + 1 >= s.n or s.ops[i + 1].kind != PS or c.n == 0:
        return 0.0
    to = &s.ops[i + 1]
    fill = s.fill
    for _k in range(c.n):
        b = to.route[to.routed]
        to.routed += 1
        if to.routed == to.nroute:
            to.routed = 0
        if fill[b] == 0 and c.n < to.p:
            j = c.nparts
            while j > 0 and c.parts[2 * j - 2] > b:   # ascending, as the split makes them
                c.parts[2 * j] = c.parts[2 * j - 2]
                j -= 1
            c.parts[2 * j] = b
            c.nparts += 1
        fill[b] += 1
    if c.n >= to.p:
        for b in range(to.p):
            if fill[b]:
                c.parts[2 * c.nparts] = b
                c.nparts += 1
    for k in range(c.nparts):
        b = c.parts[2 * k]
        c.parts[2 * k + 1] = fill[b]
        fill[b] = 0
    c.pending = c.nparts
    return to.split_chunk + to.split_tuple * c.n + to.split_part * c.nparts
