"""Worklists of a partitioned stateful operator: hybrid-queue (ordered paper 4.3, Fig. 7), partitioned-queue (4.2), shared-queue (4.1).

What moves is a `Part`: the rows of one chunk that belong to one bucket. One interface for the three schemes:
  pq_add     producer: put a chunk's parts into their buckets' queues (and the master queue)
  pq_enter   worker: gain exclusive access to a bucket with parts to process
  pq_leave   worker: give up the bucket, or learn that parts were delegated meanwhile

Deviations from Fig. 7:
a) count is added and subtracted acq_rel: the hand-over of a bucket's queue and state from one active worker to the next hangs on it.
b) An active worker whose time slice is over hands its bucket to `handover`, which every entering worker looks at first; putting it at
   the master queue's tail deadlocks once keys >= workers + 1. The count stays above zero, so nobody else can enter.
c) A master item carries the part's ticket, so that the gate at dispatch can be checked before it is taken.
d) A run of delegated parts is processed before count is lowered, once, by the run's length.
e) A master item knows its part and that part's place in its partition queue. Where the worker that enters finds the queue's head at that
   place, which is the rule, it takes the part from the item, and reads neither the ring nor the producer's line.
f) Several items may be claimed from the master queue at once (pq_claim) and entered one after the other. Until it is entered an item is
   that of a worker between L8 and L10 of Fig. 7, for longer: whoever enters its bucket meanwhile takes the oldest part, the claim a later.
Exactly one producer at a time (the release flag's holder upstream).
In the shared-queue scheme a worker whose head-of-line bucket is busy returns to the scheduler instead of waiting for the lock.
Memory ownership: pq_init/pq_free; parts belong to their chunk.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.atomics cimport (
    a64, add_acq_rel, as_int, as_pointer, cas_acquire, exchange_acq_rel, load_acquire, load_relaxed, store_relaxed, store_release,
    sub_acq_rel,
)
from ordstream._core.ground.chunk cimport Chunk, Part
from ordstream._core.flow.worklist.shared cimport (
    Mpmc, mpmc_free, mpmc_has_room, mpmc_init, mpmc_peek, mpmc_size_approx, mpmc_try_push, mpmc_try_push_tagged,
    mpmc_try_take, mpmc_try_take_tagged, mpmc_try_take_tagged_run,
)
from ordstream._core.ground.spsc cimport (
    Spsc, spsc_free, spsc_init, spsc_peek, spsc_size_approx, spsc_skip, spsc_try_push, spsc_try_take,
)
from ordstream._core.ground.threads cimport prefetch_write

cdef enum PartitionScheme:
    HYBRID = 0
    PARTITIONED = 1
    SHARED = 2

cdef enum:
    PQ_NOTHING = -1        # no bucket can be entered now
    CLAIM_MAX = 8          # items of the master queue claimed at once
    NO_LIMIT = 0x7fffffffffff
    CLAIM_ROOM = 4         # times as many as a worker claims must wait
    MASTER_MAX = 1 << 14   # items of a master queue, where 4 p and the number of chunks allow

cdef struct Bucket:
    # 320 bytes from a 64-byte boundary on (pq_init). All that its worker touches lies in one line: the end of `queue`, and what follows.
    Spsc queue             # Part*; producer: the upstream releaser; consumer: the active worker
    a64 count              # parts taken from the master queue and not yet processed; 0: nobody has the bucket
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


cdef inline int pq_init(PartitionQueues* pq, int32_t scheme, int32_t p, int64_t depth, int64_t rows) noexcept nogil:
    """Empty queues for `p` buckets and at most `depth` chunks, of at most `rows` rows, in the operator. 0, or -1: no memory.

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


cdef inline void prefetch_part(char* part) noexcept nogil:
    """Start to load a one-part chunk, in which `part` lies (chunk.pxd): what its worker and its release touch."""
    prefetch_write(part - 128)
    prefetch_write(part - 64)
    prefetch_write(part)
    prefetch_write(part + 64)
    prefetch_write(part + 160)
    prefetch_write(part + 224)


cdef inline bint pq_has_room(PartitionQueues* pq, int64_t nparts) noexcept nogil:
    """True when a chunk with `nparts` parts can be added. Producer only. The caller bounds the number of chunks by `depth`."""
    if pq.scheme == PARTITIONED:
        return True
    return mpmc_has_room(&pq.master, nparts)


cdef inline void pq_add(PartitionQueues* pq, Chunk* c, int64_t ticket) noexcept nogil:
    """Fig. 7 addInput, for every part of a chunk: partition queue first, then master queue. Producer only; room was checked."""
    cdef int32_t k
    cdef int32_t n = c.nparts
    cdef Part* parts = c.parts
    if pq.scheme == PARTITIONED:
        for k in range(n):
            spsc_try_push(&pq.buckets[parts[k].bucket].queue, as_int(&parts[k]))
        return
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
        # The chunk lives until its last part is processed, and that one is not in the master queue before k == n - 1.
        b = parts[k].bucket
        place = load_relaxed(&pq.buckets[b].queue.tail) - 1   # a chunk has one part per bucket
        mpmc_try_push_tagged(&pq.master, (ticket << 16) | b, as_int(&parts[k]), place)


cdef struct Claims:
    # Items of the master queue that one worker has claimed and not yet entered.
    int64_t item[8]        # CLAIM_MAX
    int64_t part[8]
    int64_t place[8]


cdef inline int32_t pq_claim(PartitionQueues* pq, int64_t limit, int32_t most, Claims* claims) noexcept nogil:
    """Claim up to `most` items (<= CLAIM_MAX) of a hybrid scheme's master queue; each must then be entered (pq_enter_claim), unless the run
    is over. Returns how many: 0 also where a bucket was handed over, which comes first, or too little waits for others to have their
    part. Thread safety: any worker. Never blocks. Cost: one read-modify-write for all of them."""
    if (pq.scheme != HYBRID or pq.master.alone or mpmc_size_approx(&pq.handover) > 0
            or mpmc_size_approx(&pq.master) < CLAIM_ROOM * most):
        return 0
    return mpmc_try_take_tagged_run(&pq.master, limit, most, claims.item, claims.part, claims.place)


cdef inline int32_t pq_enter_claim(PartitionQueues* pq, const Claims* claims, int32_t k, int64_t* run, Part** first) noexcept nogil:
    """pq_enter for claim k: its bucket, or PQ_NOTHING where the part is left to the bucket's active worker."""
    cdef int32_t b = <int32_t> (claims.item[k] & 0xffff)
    cdef Bucket* bucket = &pq.buckets[b]
    first[0] = NULL
    if add_acq_rel(&bucket.count, 1) != 0:                    # L10; pairs with sub_acq_rel in pq_leave
        return PQ_NOTHING
    run[0] = 1
    if load_relaxed(&bucket.queue.head) == claims.place[k]:   # as in pq_enter
        first[0] = <Part*> as_pointer(claims.part[k])
    return b


cdef inline void prefetch_claim(PartitionQueues* pq, const Claims* claims, int32_t k) noexcept nogil:
    """Start to load the lines of claim k's bucket and part, while others are worked on."""
    prefetch_write(&pq.buckets[claims.item[k] & 0xffff].count)
    prefetch_part(<char*> as_pointer(claims.part[k]))


cdef inline int32_t pq_enter(PartitionQueues* pq, int64_t limit, int32_t start, int64_t* run, Part** first) noexcept nogil:
    """A bucket that this worker now holds exclusively, and in `run` how many parts it may process; or PQ_NOTHING.

    `first` gets the bucket's oldest part where it is known (for pq_next), else NULL. limit: first ticket that may not be dispatched.
    start: where a partitioned-queue worker begins to look.
    Thread safety: any worker. Never blocks. Cost: hybrid 2 read-modify-writes.
    """
    cdef int64_t item
    cdef int64_t taken
    cdef int32_t b
    cdef int32_t k
    cdef Bucket* bucket
    cdef int64_t part = 0
    cdef int64_t place = 0
    first[0] = NULL
    if pq.scheme == HYBRID:
        if mpmc_size_approx(&pq.handover) > 0:
            item = mpmc_try_take(&pq.handover, NO_LIMIT, &taken)
            if item > 0:
                b = <int32_t> (item - 1)
                run[0] = load_acquire(&pq.buckets[b].count)   # pairs with add/sub_acq_rel of delegating and active workers
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
                prefetch_part(<char*> as_pointer(part))       # its lines come while the bucket's does
                if add_acq_rel(&bucket.count, 1) != 0:        # L10; pairs with sub_acq_rel in pq_leave
                    continue
            run[0] = 1
            if load_relaxed(&bucket.queue.head) == place:     # own index now. Else an older part's taker has not counted it yet
                first[0] = <Part*> as_pointer(part)
            return b
    if pq.scheme == PARTITIONED:
        for k in range(pq.p):
            b = start + k
            if b >= pq.p:
                b -= pq.p
            bucket = &pq.buckets[b]
            if spsc_size_approx(&bucket.queue) <= 0 or load_relaxed(&bucket.count) != 0:
                continue
            if not cas_acquire(&bucket.count, 0, 1):          # pairs with store_release in pq_leave
                continue
            part = spsc_peek(&bucket.queue)
            if part == 0 or (<Part*> as_pointer(part)).chunk.ticket >= limit:
                store_release(&bucket.count, 0)               # pairs with cas_acquire above
                continue
            run[0] = spsc_size_approx(&bucket.queue)
            return b
        return PQ_NOTHING
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


cdef inline Part* pq_next(PartitionQueues* pq, int32_t b, Part* first) noexcept nogil:
    """The bucket's oldest part, which is `first` where pq_enter just gave one; NULL only in the partitioned-queue scheme when the
    queue ran empty. Holder of the bucket only."""
    if first != NULL:
        spsc_skip(&pq.buckets[b].queue)
        return first
    return <Part*> as_pointer(spsc_try_take(&pq.buckets[b].queue))


cdef inline int64_t pq_leave(PartitionQueues* pq, int32_t b, int64_t processed, bint slice_over) noexcept nogil:
    """After processing `processed` parts: how many more to process now (the bucket stays held), or 0 (given up or handed over)."""
    cdef int64_t left
    if pq.scheme != HYBRID:
        store_release(&pq.buckets[b].count, 0)                # pairs with cas_acquire / load_acquire in pq_enter
        return 0
    if pq.master.alone:
        left = load_relaxed(&pq.buckets[b].count) - processed
        store_relaxed(&pq.buckets[b].count, left)
    else:
        left = sub_acq_rel(&pq.buckets[b].count, processed) - processed   # L14; pairs with add_acq_rel in pq_enter
    # The push can fail although each bucket is in the list at most once: a worker that lost its processor in the middle of a take
    # keeps a cell. Then this worker goes on with the bucket.
    if left > 0 and slice_over and mpmc_try_push(&pq.handover, b + 1):
        return 0
    return left


cdef inline bint pq_has_work(PartitionQueues* pq, int64_t limit) noexcept nogil:
    """True when pq_enter would probably find a bucket. Any thread; may be stale."""
    cdef int64_t position
    cdef int64_t item
    cdef int32_t b
    if pq.scheme == HYBRID:
        if mpmc_size_approx(&pq.handover) > 0:
            return True
        item = mpmc_peek(&pq.master, &position)
        return item > 0 and item >> 16 < limit
    if pq.scheme == PARTITIONED:
        for b in range(pq.p):
            if spsc_size_approx(&pq.buckets[b].queue) > 0 and load_relaxed(&pq.buckets[b].count) == 0:
                return True
        return False
    item = mpmc_peek(&pq.master, &position)
    return item > 0 and item >> 16 < limit and load_relaxed(&pq.buckets[item & 0xffff].count) == 0
