"""Partitioned-queue worklist (ordered paper 4.2): a queue per bucket, and nothing that says whose turn it
is.

A worker looks through the buckets, from a place of its own on, for one that has parts and that no other
worker has, and takes it by setting its `count` from 0 to 1. Between buckets it follows no order, so the
reorder buffer may have to hold much. A user's function, which has one worker, is called in the order of
tickets all the same: what stands in front of a call that takes long must not wait for it in another bucket.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.worklist.buckets cimport PQ_NOTHING, Bucket, PartitionQueues
from ordstream._core.ground.atomics cimport as_int, as_pointer, cas_acquire, load_relaxed, store_release
from ordstream._core.ground.chunk cimport Chunk, Part
from ordstream._core.ground.spsc cimport spsc_peek, spsc_size_approx, spsc_try_push

cdef enum:
    PARTITIONED_OLDEST = -1    # in place of where a worker begins to look


cdef inline void partitioned_add(PartitionQueues* pq, Chunk* c) noexcept nogil:
    """pq_add."""
    cdef int32_t k
    cdef int32_t n = c.nparts
    cdef Part* parts = c.parts
    for k in range(n):
        spsc_try_push(&pq.buckets[parts[k].bucket].queue, as_int(&parts[k]))


cdef inline int32_t partitioned_enter(PartitionQueues* pq, int64_t limit, int32_t start,
                                      int64_t* run) noexcept nogil:
    """pq_enter. start: the bucket at which this worker begins to look. Cost: up to two loads per bucket."""
    cdef int32_t b
    cdef int32_t k
    cdef int64_t part
    cdef Bucket* bucket
    for k in range(pq.p):
        b = start + k
        if b >= pq.p:
            b -= pq.p
        bucket = &pq.buckets[b]
        if spsc_size_approx(&bucket.queue) <= 0 or load_relaxed(&bucket.count) != 0:
            continue
        if not cas_acquire(&bucket.count, 0, 1):              # pairs with store_release in pq_leave
            continue
        part = spsc_peek(&bucket.queue)
        if part == 0 or (<Part*> as_pointer(part)).chunk.ticket >= limit:
            store_release(&bucket.count, 0)                   # pairs with cas_acquire above
            continue
        run[0] = spsc_size_approx(&bucket.queue)
        return b
    return PQ_NOTHING


cdef inline int32_t partitioned_oldest(PartitionQueues* pq, int64_t limit, int64_t* run) noexcept nogil:
    """pq_enter where the operator has one worker at a time: the bucket with the oldest part, for that part
    alone. Cost: two loads per bucket, and more where it has parts."""
    cdef int32_t b
    cdef int32_t best = PQ_NOTHING
    cdef int64_t part
    cdef int64_t ticket
    for b in range(pq.p):
        if spsc_size_approx(&pq.buckets[b].queue) <= 0:
            continue
        part = spsc_peek(&pq.buckets[b].queue)
        if part == 0:
            continue
        ticket = (<Part*> as_pointer(part)).chunk.ticket
        if ticket < limit:
            best = b
            limit = ticket
    if best != PQ_NOTHING:
        store_release(&pq.buckets[best].count, 1)             # as partitioned_enter leaves it
        run[0] = 1
    return best


cdef inline bint partitioned_has_work(PartitionQueues* pq) noexcept nogil:
    """pq_has_work."""
    cdef int32_t b
    for b in range(pq.p):
        if spsc_size_approx(&pq.buckets[b].queue) > 0 and load_relaxed(&pq.buckets[b].count) == 0:
            return True
    return False
