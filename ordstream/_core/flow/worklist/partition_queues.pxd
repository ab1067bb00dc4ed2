"""The worklist of a partitioned operator, whatever its scheme (hybrid.pxd, partitioned.pxd, shared.pxd).

What moves is a `Part`: the rows of one chunk that belong to one bucket. One interface for the three schemes:
  pq_add     producer: put a chunk's parts into their buckets' queues (and the master queue)
  pq_enter   worker: gain exclusive access to a bucket with parts to process
  pq_next    worker: the oldest part of the bucket that it has
  pq_leave   worker: give up the bucket, or learn that parts were delegated meanwhile
Exactly one producer at a time (the release flag's holder upstream).
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.worklist.buckets cimport HYBRID, PARTITIONED, PartitionQueues
from ordstream._core.flow.worklist.hybrid cimport hybrid_add, hybrid_enter, hybrid_has_work, hybrid_leave
from ordstream._core.flow.worklist.partitioned cimport (
    PARTITIONED_OLDEST, partitioned_add, partitioned_enter, partitioned_has_work, partitioned_oldest,
)
from ordstream._core.flow.worklist.shared cimport shared_enter, shared_has_work
from ordstream._core.ground.atomics cimport as_pointer, store_release
from ordstream._core.ground.chunk cimport Chunk, Part
from ordstream._core.ground.mpmc cimport mpmc_has_room
from ordstream._core.ground.spsc cimport spsc_skip, spsc_try_take


cdef inline bint pq_has_room(PartitionQueues* pq, int64_t nparts) noexcept nogil:
    """True when a chunk with `nparts` parts can be added. Producer only. The caller bounds the number of
    chunks by `depth`."""
    if pq.scheme == PARTITIONED:
        return True
    return mpmc_has_room(&pq.master, nparts)


cdef inline void pq_add(PartitionQueues* pq, Chunk* c, int64_t ticket) noexcept nogil:
    """Add every part of a chunk. Producer only; room was checked. The chunk may be gone when this
    returns."""
    if pq.scheme == PARTITIONED:
        partitioned_add(pq, c)
    else:
        hybrid_add(pq, c, ticket)                             # the shared scheme's too


cdef inline int32_t pq_enter(PartitionQueues* pq, int64_t limit, int32_t start, int64_t* run,
                             Part** first) noexcept nogil:
    """A bucket that this worker now holds exclusively, and in `run` how many parts it may process; or
    PQ_NOTHING.

    `first` gets the bucket's oldest part where it is known (for pq_next), else NULL. limit: first ticket
    that may not be dispatched. start: where a partitioned-queue worker begins to look; PARTITIONED_OLDEST:
    it is alone, and takes the oldest part. Thread safety: any worker. Never blocks.
    """
    first[0] = NULL
    if pq.scheme == HYBRID:
        return hybrid_enter(pq, limit, run, first)
    if pq.scheme == PARTITIONED and start == PARTITIONED_OLDEST:
        return partitioned_oldest(pq, limit, run)
    if pq.scheme == PARTITIONED:
        return partitioned_enter(pq, limit, start, run)
    return shared_enter(pq, limit, run)


cdef inline Part* pq_next(PartitionQueues* pq, int32_t b, Part* first) noexcept nogil:
    """The bucket's oldest part, which is `first` where pq_enter just gave one; NULL only in the
    partitioned-queue scheme when the queue ran empty. Holder of the bucket only."""
    if first != NULL:
        spsc_skip(&pq.buckets[b].queue)
        return first
    return <Part*> as_pointer(spsc_try_take(&pq.buckets[b].queue))


cdef inline int64_t pq_leave(PartitionQueues* pq, int32_t b, int64_t processed,
                             bint slice_over) noexcept nogil:
    """After processing `processed` parts: how many more to process now (the bucket stays held), or 0 (given
    up or handed over)."""
    if pq.scheme != HYBRID:
        # pairs with cas_acquire / load_acquire in *_enter
        store_release(&pq.buckets[b].count, 0)
        return 0
    return hybrid_leave(pq, b, processed, slice_over)


cdef inline bint pq_has_work(PartitionQueues* pq, int64_t limit) noexcept nogil:
    """True when pq_enter would probably find a bucket. Any thread; may be stale."""
    if pq.scheme == HYBRID:
        return hybrid_has_work(pq, limit)
    if pq.scheme == PARTITIONED:
        return partitioned_has_work(pq)
    return shared_has_work(pq, limit)
