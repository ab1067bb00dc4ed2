"""Shared-queue worklist (ordered paper 4.1): one queue of parts, in ticket order.

Taking an item and gaining its bucket is one step, under a lock. A worker whose head-of-line bucket is busy
returns to the scheduler instead of waiting for the lock. Parts are added as in the hybrid scheme: the
bucket's queue has them, the master queue their turn.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.worklist.buckets cimport NO_LIMIT, PQ_NOTHING, PartitionQueues
from ordstream._core.ground.atomics cimport exchange_acq_rel, load_acquire, load_relaxed, store_release
from ordstream._core.ground.mpmc cimport mpmc_peek, mpmc_try_take


cdef inline int32_t shared_enter(PartitionQueues* pq, int64_t limit, int64_t* run) noexcept nogil:
    """pq_enter. Cost: 1 read-modify-write for the lock, 1 for the item."""
    cdef int64_t item
    cdef int64_t taken
    cdef int32_t b
    if exchange_acq_rel(&pq.lock, 1) != 0:                    # pairs with store_release(&pq.lock)
        return PQ_NOTHING
    item = mpmc_peek(&pq.master, &taken)
    if item > 0 and item >> 16 < limit:
        b = <int32_t> (item & 0xffff)
        if load_acquire(&pq.buckets[b].count) == 0:           # pairs with store_release in pq_leave
            store_release(&pq.buckets[b].count, 1)            # under the lock
            mpmc_try_take(&pq.master, NO_LIMIT, &taken)
            store_release(&pq.lock, 0)                        # pairs with exchange_acq_rel above
            run[0] = 1
            return b
    store_release(&pq.lock, 0)                                # pairs with exchange_acq_rel above
    return PQ_NOTHING


cdef inline bint shared_has_work(PartitionQueues* pq, int64_t limit) noexcept nogil:
    """pq_has_work."""
    cdef int64_t position
    cdef int64_t item = mpmc_peek(&pq.master, &position)
    return item > 0 and item >> 16 < limit and load_relaxed(&pq.buckets[item & 0xffff].count) == 0
