"""What a call takes beside its rows. See call_cost.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

cdef enum:
    GENERATION = 64        # calls; costs may change, so what is older than two generations is forgotten


cdef void call_cost_init(CallCost* c, int32_t parts) noexcept nogil:
    memset(c, 0, sizeof(CallCost))
    c.parts = parts
    c.left = GENERATION


cdef void call_cost_note(CallCost* c, int64_t rows, double ns) noexcept nogil:
    """A call of so many rows. Caller holds the scheduler's lock. Cost: ~5 ns."""
    cdef int32_t size = 0
    cdef int64_t left = rows >> 1
    while left and size < SIZES - 1:
        left >>= 1
        size += 1
    if not c.warm:
        c.warm = 1
        return
    if c.now[size].rows == 0 or ns < c.now[size].ns:
        c.now[size].rows = rows
        c.now[size].ns = ns
    c.left -= 1
    if c.left == 0:
        c.left = GENERATION
        memcpy(c.before, c.now, sizeof(c.now))
        memset(c.now, 0, sizeof(c.now))


cdef inline LeastCall least_of(const CallCost* c, int32_t size) noexcept nogil:
    if c.now[size].rows == 0 or (c.before[size].rows and c.before[size].ns < c.now[size].ns):
        return c.before[size]
    return c.now[size]


cdef bint call_cost_known(CallCost* c) noexcept nogil:
    """Find `fixed`, the time of a call of no rows, and `row`. False: all were of about one size, and they
    stay what they were. Caller holds the scheduler's lock. Cost: ~50 ns.

    What holds a call up makes it longer, never shorter. So a small call that took longer than a larger one
    says nothing, and of the lines from the smallest to larger ones the flattest is right.
    """
    cdef LeastCall small
    cdef LeastCall one
    cdef int32_t size = SIZES
    cdef bint known = False
    cdef double slope
    small.rows = 0
    small.ns = 0
    while size:
        size -= 1
        one = least_of(c, size)
        if one.rows and (small.rows == 0 or one.ns <= small.ns):
            small = one
    for size in range(SIZES):
        one = least_of(c, size)
        if 2 * one.rows >= 3 * small.rows and one.rows > small.rows:
            slope = (one.ns - small.ns) / (one.rows - small.rows)
            if not known or slope < c.row:
                c.row = slope
            known = True
    if known:
        c.fixed = max(0.0, small.ns - c.row * small.rows)
    return known


cdef int64_t call_cost_most(const CallCost* c) noexcept nogil:
    """Rows of the largest call that is remembered; 0: there was none."""
    cdef int32_t size = SIZES
    while size:
        size -= 1
        if c.now[size].rows or c.before[size].rows:
            return max(c.now[size].rows, c.before[size].rows)
    return 0
