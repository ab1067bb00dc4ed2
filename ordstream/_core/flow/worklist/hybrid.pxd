"""Hybrid-queue worklist (ordered paper 4.3, Fig. 7): a queue per bucket, and a master queue that says which
bucket's turn it is.

A worker takes the oldest item of the master queue and counts the part in its bucket (L10). Where the count
was zero the worker has the bucket, its queue and its state; else it leaves the part to the worker that has
them ("delegates") and takes the next item. A worker that is done with its parts subtracts them (L14) and
goes on with what was delegated meanwhile. So no worker waits for a busy bucket.

Deviations from Fig. 7:
a) count is added and subtracted acq_rel: the hand-over of a bucket's queue and state from one active worker
   to the next hangs on it.
b) An active worker whose time slice is over hands its bucket to `handover`, which every entering worker
   looks at first; putting it at the master queue's tail deadlocks once keys >= workers + 1. The count stays
   above zero, so nobody else can enter.
c) A master item carries the part's ticket, so that the gate at dispatch can be checked before it is taken.
d) A run of delegated parts is processed before count is lowered, once, by the run's length.
e) A master item knows its part and that part's place in its partition queue. The worker that enters mostly
   finds the queue's head at that place. It then takes the part from the item, and reads neither the ring nor
   the producer's line.
f) A worker may claim several items of the master queue at once (hybrid_claim) and enter their buckets one
   after the other. Between claim and entry the item's worker is between L8 and L10 of Fig. 7, only for
   longer: whoever enters the bucket meanwhile takes its oldest part, and the claim a later one.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.worklist.buckets cimport HYBRID, NO_LIMIT, PQ_NOTHING, Bucket, PartitionQueues
from ordstream._core.ground.atomics cimport (
    add_acq_rel, as_int, as_pointer, load_acquire, load_relaxed, store_relaxed, sub_acq_rel,
)
from ordstream._core.ground.chunk cimport Chunk, Part
from ordstream._core.ground.mpmc cimport (
    mpmc_peek, mpmc_size_approx, mpmc_try_push, mpmc_try_push_tagged, mpmc_try_take, mpmc_try_take_tagged,
    mpmc_try_take_tagged_run,
)
from ordstream._core.ground.spsc cimport spsc_try_push
from ordstream._core.ground.threads cimport prefetch_write

cdef enum:
    CLAIM_MAX = 8          # items of the master queue claimed at once
    CLAIM_ROOM = 4         # times as many as a worker claims must wait

cdef struct Claims:
    # Items of the master queue that one worker has claimed and not yet entered.
    int64_t item[8]        # CLAIM_MAX
    int64_t part[8]
    int64_t place[8]


cdef inline void prefetch_part(char* part) noexcept nogil:
    """Start to load a one-part chunk, in which `part` lies (chunk.pxd): what its worker and its release
    touch."""
    prefetch_write(part - 128)
    prefetch_write(part - 64)
    prefetch_write(part)
    prefetch_write(part + 64)
    prefetch_write(part + 160)
    prefetch_write(part + 224)


cdef inline void hybrid_add(PartitionQueues* pq, Chunk* c, int64_t ticket) noexcept nogil:
    """Fig. 7 addInput, for every part of a chunk: partition queue first, then master queue. Producer only;
    room was checked."""
    cdef int32_t k
    cdef int32_t n = c.nparts
    cdef Part* parts = c.parts
    # After the push into the master queue the part, and its chunk, may be gone: read the bucket before.
    cdef int32_t b
    cdef int64_t place
    if n == 1:
        b = parts.bucket
        place = load_relaxed(&pq.buckets[b].queue.tail)       # own index
        spsc_try_push(&pq.buckets[b].queue, as_int(parts))
        mpmc_try_push_tagged(&pq.master, (ticket << 16) | b, as_int(parts), place)
        return
    for k in range(n):
        spsc_try_push(&pq.buckets[parts[k].bucket].queue, as_int(&parts[k]))
    for k in range(n):
        # The chunk lives until its last part is processed, and that one is not in the master queue before k
        # == n - 1.
        b = parts[k].bucket
        place = load_relaxed(&pq.buckets[b].queue.tail) - 1   # a chunk has one part per bucket
        mpmc_try_push_tagged(&pq.master, (ticket << 16) | b, as_int(&parts[k]), place)


cdef inline int32_t hybrid_claim(PartitionQueues* pq, int64_t limit, int32_t most,
                                 Claims* claims) noexcept nogil:
    """Claim up to `most` items (<= CLAIM_MAX) of the master queue. Each must then be entered
    (hybrid_enter_claim), unless the run is over.

    Returns how many. 0 also in another scheme; where a bucket was handed over, which comes first; and where
    so little waits that other workers would get nothing. Thread safety: any worker. Never blocks. Cost: one
    read-modify-write for all of them.
    """
    if (pq.scheme != HYBRID or pq.master.alone or mpmc_size_approx(&pq.handover) > 0
            or mpmc_size_approx(&pq.master) < CLAIM_ROOM * most):
        return 0
    return mpmc_try_take_tagged_run(&pq.master, limit, most, claims.item, claims.part, claims.place)


cdef inline int32_t hybrid_enter_claim(PartitionQueues* pq, const Claims* claims, int32_t k, int64_t* run,
                                       Part** first) noexcept nogil:
    """hybrid_enter for claim k: its bucket, or PQ_NOTHING where the part is left to the bucket's active
    worker."""
    cdef int32_t b = <int32_t> (claims.item[k] & 0xffff)
    cdef Bucket* bucket = &pq.buckets[b]
    first[0] = NULL
    if add_acq_rel(&bucket.count, 1) != 0:                    # L10; pairs with sub_acq_rel in hybrid_leave
        return PQ_NOTHING
    run[0] = 1
    if load_relaxed(&bucket.queue.head) == claims.place[k]:   # as in hybrid_enter
        first[0] = <Part*> as_pointer(claims.part[k])
    return b


cdef inline void prefetch_claim(PartitionQueues* pq, const Claims* claims, int32_t k) noexcept nogil:
    """Start to load the lines of claim k's bucket and part, while others are worked on."""
    prefetch_write(&pq.buckets[claims.item[k] & 0xffff].count)
    prefetch_part(<char*> as_pointer(claims.part[k]))


cdef inline int32_t hybrid_enter(PartitionQueues* pq, int64_t limit, int64_t* run,
                                 Part** first) noexcept nogil:
    """pq_enter. Cost: 2 read-modify-writes."""
    cdef int64_t item
    cdef int64_t taken
    cdef int32_t b
    cdef Bucket* bucket
    cdef int64_t part = 0
    cdef int64_t place = 0
    if mpmc_size_approx(&pq.handover) > 0:
        item = mpmc_try_take(&pq.handover, NO_LIMIT, &taken)
        if item > 0:
            b = <int32_t> (item - 1)
            # pairs with add/sub_acq_rel of delegating and active workers
            run[0] = load_acquire(&pq.buckets[b].count)
            return b
    while True:
        item = mpmc_try_take_tagged(&pq.master, limit, &part, &place)
        if item <= 0:
            return PQ_NOTHING
        b = <int32_t> (item & 0xffff)
        bucket = &pq.buckets[b]
        if pq.master.alone:
            item = load_relaxed(&bucket.count)
            store_relaxed(&bucket.count, item + 1)
            if item != 0:
                continue
        else:
            prefetch_part(<char*> as_pointer(part))           # its lines come while the bucket's does
            if add_acq_rel(&bucket.count, 1) != 0:            # L10; pairs with sub_acq_rel in hybrid_leave
                continue
        run[0] = 1
        # Own index now. Where it is another place, an older part's taker has not counted it yet.
        if load_relaxed(&bucket.queue.head) == place:
            first[0] = <Part*> as_pointer(part)
        return b


cdef inline int64_t hybrid_leave(PartitionQueues* pq, int32_t b, int64_t processed,
                                 bint slice_over) noexcept nogil:
    """pq_leave: the bucket is given up where no part was delegated meanwhile, and handed over where the
    slice is over."""
    cdef int64_t left
    if pq.master.alone:
        left = load_relaxed(&pq.buckets[b].count) - processed
        store_relaxed(&pq.buckets[b].count, left)
    else:
        # L14; pairs with add_acq_rel in hybrid_enter
        left = sub_acq_rel(&pq.buckets[b].count, processed) - processed
    # The push can fail although each bucket is in the list at most once: a worker that lost its processor in
    # the middle of a take keeps a cell. Then this worker goes on with the bucket.
    if left > 0 and slice_over and mpmc_try_push(&pq.handover, b + 1):
        return 0
    return left


cdef inline bint hybrid_has_work(PartitionQueues* pq, int64_t limit) noexcept nogil:
    """pq_has_work."""
    cdef int64_t position
    cdef int64_t item
    if mpmc_size_approx(&pq.handover) > 0:
        return True
    item = mpmc_peek(&pq.master, &position)
    return item > 0 and item >> 16 < limit
