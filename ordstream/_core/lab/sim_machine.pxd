"""The simulated machine: cache lines that pass between cores; the order of events (sim_node.pxd, b, c)."""
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memset
from ordstream._core.lab.sim_node cimport Line, SimNode


# ---------------------------------------------------------------- lines

cdef inline void line_init(Line* l) noexcept nogil:
    memset(<void*> l, 0, sizeof(Line))
    l.owner = -1


cdef inline double line_read(SimNode* s, Line* l, int32_t w, double t) noexcept nogil:
    """When worker w, who asks at t, has the line's value. Readers do not wait for each other."""
    cdef double begin
    if l.owner == w or l.owner < 0 or (l.readers[w >> 6] >> (w & 63)) & 1:
        return t
    l.readers[w >> 6] |= <uint64_t> 1 << (w & 63)
    l.shared = 1
    begin = t if t > l.free_at else l.free_at
    s.transfers += 1
    s.transferred += begin + s.cost.transfer - t
    return begin + s.cost.transfer


cdef inline double line_take(SimNode* s, Line* l, int32_t w, double t) noexcept nogil:
    """When worker w has the line to itself. Takers queue: one transfer each."""
    cdef double begin
    if l.owner == w and not l.shared:
        return t
    begin = t if t > l.free_at else l.free_at
    if l.owner >= 0:
        l.free_at = begin + s.cost.transfer
        l.busy += s.cost.transfer
        s.transfers += 1
        s.transferred += l.free_at - t
    else:
        l.free_at = begin
    l.owner = w
    l.shared = 0
    l.readers[0] = 0
    l.readers[1] = 0
    l.readers[2] = 0
    l.readers[3] = 0
    return l.free_at


cdef inline double line_locked(SimNode* s, Line* l, int32_t w, double t) noexcept nogil:
    """A locked instruction on the line: after the worker's buffered stores are out."""
    if s.workers_at[w].drain > t:
        t = s.workers_at[w].drain
    return line_take(s, l, w, t)


cdef inline void line_store(SimNode* s, Line* l, int32_t w, double t) noexcept nogil:
    """A plain store: buffered, nobody waits for it but the worker's next locked instruction."""
    cdef double end = line_take(s, l, w, t)
    if end > s.workers_at[w].drain:
        s.workers_at[w].drain = end


cdef inline void line_prefetch(SimNode* s, Line* l, int32_t w, double t) noexcept nogil:
    """The line is asked for; until SimWorker.ready the worker does something else."""
    cdef double end = line_take(s, l, w, t)
    if end > s.workers_at[w].ready:
        s.workers_at[w].ready = end


# ---------------------------------------------------------------- events

cdef inline bint earlier(SimNode* s, int32_t a, int32_t b) noexcept nogil:
    if s.workers_at[a].now != s.workers_at[b].now:
        return s.workers_at[a].now < s.workers_at[b].now
    return a < b


cdef inline void push(SimNode* s, int32_t w) noexcept nogil:
    cdef int32_t k = s.nheap
    cdef int32_t up
    s.nheap += 1
    while k > 0:
        up = (k - 1) >> 1
        if not earlier(s, w, s.heap[up]):
            break
        s.heap[k] = s.heap[up]
        k = up
    s.heap[k] = w


cdef inline void sink(SimNode* s, int32_t w) noexcept nogil:
    """Place w from the top down."""
    cdef int32_t k = 0
    cdef int32_t child
    while True:
        child = 2 * k + 1
        if child >= s.nheap:
            break
        if child + 1 < s.nheap and earlier(s, s.heap[child + 1], s.heap[child]):
            child += 1
        if not earlier(s, s.heap[child], w):
            break
        s.heap[k] = s.heap[child]
        k = child
    s.heap[k] = w


cdef inline void drop_top(SimNode* s) noexcept nogil:
    s.nheap -= 1
    if s.nheap:
        sink(s, s.heap[s.nheap])
