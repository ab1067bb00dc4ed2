"""The open windows of a key that overlap, and the aggregates over them. See kernels/hopping.pyx for the
design.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.state.windows cimport WindowContext, behind_multiple, behind_start

cdef struct Hops:
    # State of a key; the aggregates of m windows follow. Zeroed memory: no tuple came.
    int64_t first          # start of the oldest open window
    int64_t last           # time of the latest tuple
    int64_t n              # open windows; LEAVES: a mark closed the last one, the key goes

cdef struct HoppingContext:
    # Read-only while a run lasts. Memory ownership: HoppingKernel.
    WindowContext window
    int32_t words          # offset of the words in a fold's state
    int64_t every
    int64_t m              # windows that a tuple lies in, at most


cdef inline char* window_at(const HoppingContext* x, Hops* s, int64_t start) noexcept nogil:
    """The aggregates of the window that starts there."""
    cdef int64_t number = start // x.every                   # of the window: rounded down below
    if start % x.every < 0:
        number -= 1
    return <char*> (s + 1) + behind_multiple(number, x.m) * x.window.fold.size


cdef inline bint windows_of(const HoppingContext* x, int64_t time, int64_t* first,
                            int64_t* n) noexcept nogil:
    """The windows that a time lies in: start of the first one, and how many. False: one is out of range."""
    cdef int64_t behind = behind_start(&x.window, x.every, time)
    cdef int64_t back
    if <uint64_t> time - <uint64_t> x.window.least < <uint64_t> behind:
        return False
    n[0] = (x.window.length - behind - 1) // x.every + 1
    back = (n[0] - 1) * x.every
    first[0] = time - behind                                 # of the newest
    if (<uint64_t> first[0] - <uint64_t> x.window.least < <uint64_t> back
            or <uint64_t> x.window.most - <uint64_t> first[0] < <uint64_t> x.window.length):
        return False
    first[0] -= back
    return True
