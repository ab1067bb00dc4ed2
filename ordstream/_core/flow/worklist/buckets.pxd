"""Buckets of a partitioned operator and their queues: the memory that the three schemes share.

Memory ownership: pq_init/pq_free; parts belong to their chunk, states to the kernel.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.atomics cimport a64, as_int, as_pointer
from ordstream._core.ground.mpmc cimport Mpmc, mpmc_free, mpmc_init
from ordstream._core.ground.spsc cimport Spsc, spsc_free, spsc_init

cdef enum PartitionScheme:
    HYBRID = 0
    PARTITIONED = 1
    SHARED = 2

cdef enum:
    PQ_NOTHING = -1        # no bucket can be entered now
    NO_LIMIT = 0x7fffffffffff
    MASTER_MAX = 1 << 14   # items of a master queue, where 4 p and the number of chunks allow

cdef struct Bucket:
    # 320 bytes from a 64-byte boundary on (pq_init). All that its worker touches lies in one line: the end
    # of `queue`, and what follows.
    Spsc queue             # Part*; producer: the upstream releaser; consumer: the active worker
    # parts taken from the master queue and not yet processed; 0: nobody has the bucket
    a64 count
    void* state            # of the kernel; touched by the active worker only
    int64_t parts          # parts processed; written by the active worker
    int64_t tuples         # rows processed; written by the active worker (skew, choice of p)

cdef struct PartitionQueues:
    int32_t scheme         # PartitionScheme
    int32_t p              # number of buckets, <= 65535
    Bucket* buckets
    void* block            # what `buckets` lies in
    Mpmc master            # hybrid, shared: ticket << 16 | bucket, in ticket order
    Mpmc handover          # hybrid: bucket + 1, handed over at the end of a slice
    char[128] pad0
    a64 lock               # shared: makes "dequeue and acquire the bucket" one step


cdef inline int64_t power_of_two(int64_t n) noexcept nogil:
    """Smallest power of two >= n (>= 2)."""
    cdef int64_t v = 2
    while v < n:
        v *= 2
    return v


cdef inline int pq_init(PartitionQueues* pq, int32_t scheme, int32_t p, int64_t depth,
                        int64_t rows) noexcept nogil:
    """Empty queues for `p` buckets and at most `depth` chunks, of at most `rows` rows, in the operator. 0,
    or -1: no memory.

    A ring that is larger than what waits in it only passes more memory through the caches.
    """
    cdef int32_t b
    cdef int64_t slots = power_of_two(depth)
    cdef int64_t items = depth * (rows if rows < p else p)
    if items > MASTER_MAX:
        items = MASTER_MAX
    memset(<void*> pq, 0, sizeof(PartitionQueues))
    pq.scheme = scheme
    pq.p = p
    pq.block = calloc(p + 1, sizeof(Bucket))
    if pq.block == NULL:
        return -1
    pq.buckets = <Bucket*> as_pointer((as_int(pq.block) + 63) & ~<int64_t> 63)
    for b in range(p):
        if spsc_init(&pq.buckets[b].queue, slots, 0) != 0:
            return -1
    if mpmc_init(&pq.master, power_of_two(4 * p if 4 * p > items else items), 1) != 0:
        return -1
    return mpmc_init(&pq.handover, power_of_two(p + 1), 1)


cdef inline void pq_free(PartitionQueues* pq) noexcept nogil:
    cdef int32_t b
    if pq.buckets != NULL:
        for b in range(pq.p):
            spsc_free(&pq.buckets[b].queue)
    free(pq.block)
    pq.block = NULL
    pq.buckets = NULL
    mpmc_free(&pq.master)
    mpmc_free(&pq.handover)
