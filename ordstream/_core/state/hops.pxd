"""The open windows of a key that overlap, and the aggregates over them. See kernels/hopping.pyx for the
design.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.state.fold cimport Fold
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.keyed_state cimport KeySpec

cdef struct Hops:
    # State of a key; the aggregates of m windows follow. Zeroed memory: no tuple came.
    int64_t first          # start of the oldest open window
    int64_t last           # time of the latest tuple
    int64_t n              # open windows; LEAVES: a mark closed the last one, the key goes

cdef struct HoppingContext:
    # Read-only while a run lasts. Memory ownership: HoppingKernel.
    const KeySpec* keys    # NULL: SF
    const Fold* fold
    int32_t nkeys
    int32_t key_size       # bytes of a key's record
    int32_t time           # input column
    int32_t time_type
    int32_t shown          # PhysicalType of start and end
    int32_t conditions     # column of the aggregates' bits (fold_prepare)
    int32_t clocked
    int32_t emission       # Emission
    int32_t words          # offset of the words in a fold's state
    int64_t length
    int64_t every
    int64_t m              # windows that a tuple lies in, at most
    int64_t least          # range of start and end
    int64_t most

cdef struct HoppingBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    int64_t earliest       # no open window starts before this
    int64_t mark           # the latest mark
    int32_t known          # 0: `earliest` says nothing


cdef inline int64_t behind_multiple(int64_t time, int64_t of) noexcept nogil:
    """By how much a time is behind the multiple at it or before it."""
    cdef int64_t behind = time % of
    return behind + of if behind < 0 else behind


cdef inline char* window_at(const HoppingContext* x, Hops* s, int64_t start) noexcept nogil:
    """The aggregates of the window that starts there."""
    return <char*> (s + 1) + behind_multiple(start // x.every, x.m) * x.fold.size


cdef inline bint windows_of(const HoppingContext* x, int64_t time, int64_t* first,
                            int64_t* n) noexcept nogil:
    """The windows that a time lies in: start of the first one, and how many. False: one is out of range."""
    cdef int64_t behind = behind_multiple(time, x.every)
    cdef int64_t back
    if <uint64_t> time - <uint64_t> x.least < <uint64_t> behind:
        return False
    n[0] = (x.length - behind - 1) // x.every + 1
    back = (n[0] - 1) * x.every
    first[0] = time - behind                                 # of the newest
    if (<uint64_t> first[0] - <uint64_t> x.least < <uint64_t> back
            or <uint64_t> x.most - <uint64_t> first[0] < <uint64_t> x.length):
        return False
    first[0] -= back
    return True
