"""SPSC queue: bounded ring for one producer and one consumer at a time (worklist of a stateful operator,
partition queues).

Lamport's ring with each side's index on its own line, beside everything else that this side touches: the
ring's address and the other side's index as it was last seen, so that the other side's line is read only
when the ring looks full or empty. The roles may move between threads when the hand-over itself is ordered (a
reorder buffer's flag for the producer, a bucket's count or the scheduler's lock for the consumer). Memory
ownership: `slots` is allocated by spsc_init and freed by spsc_free; items belong to whoever takes them.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.atomics cimport a64, load_acquire, load_relaxed, store_relaxed, store_release

cdef struct Spsc:
    char[128] pad0
    a64 tail               # next position to fill; written by the producer
    int64_t seen_head      # the producer's: `head` as last seen
    a64* slots
    int64_t mask
    char[96] pad1
    # The consumer's 32 bytes come last: who embeds a queue may put more of the consumer's beside them, or a
    # pad.
    a64 head               # next position to take; written by the consumer
    int64_t seen_tail      # the consumer's: `tail` as last seen
    a64* ring              # = slots
    int64_t ring_mask      # = mask


cdef inline int spsc_init(Spsc* q, int64_t capacity, int64_t start) noexcept nogil:
    """`capacity` (a power of two) empty slots, positions from `start`. 0, or -1: no memory."""
    memset(<void*> q, 0, sizeof(Spsc))
    q.slots = <a64*> calloc(capacity, sizeof(a64))
    if q.slots == NULL:
        return -1
    q.mask = capacity - 1
    q.ring = q.slots
    q.ring_mask = q.mask
    store_relaxed(&q.tail, start)        # published with the queue
    store_relaxed(&q.head, start)
    q.seen_head = start
    q.seen_tail = start
    return 0


cdef inline void spsc_free(Spsc* q) noexcept nogil:
    free(q.slots)
    q.slots = NULL


cdef inline bint spsc_try_push(Spsc* q, int64_t item) noexcept nogil:
    """True when placed; False when full (the caller keeps the item). Producer only. Wait-free."""
    cdef int64_t tail = load_relaxed(&q.tail)                 # own index
    if tail - q.seen_head > q.mask:
        q.seen_head = load_acquire(&q.head)                   # pairs with store_release in spsc_try_take
        if tail - q.seen_head > q.mask:
            return False
    store_relaxed(&q.slots[tail & q.mask], item)
    store_release(&q.tail, tail + 1)                          # pairs with load_acquire in spsc_try_take
    return True


cdef inline int64_t spsc_try_take(Spsc* q) noexcept nogil:
    """The oldest item, or 0 when empty (items are never 0). Consumer only. Wait-free."""
    cdef int64_t head = load_relaxed(&q.head)                 # own index
    cdef int64_t item
    if head >= q.seen_tail:
        q.seen_tail = load_acquire(&q.tail)                   # pairs with store_release in spsc_try_push
        if head >= q.seen_tail:
            return 0
    item = load_relaxed(&q.ring[head & q.ring_mask])
    store_release(&q.head, head + 1)                          # pairs with load_acquire in spsc_try_push
    return item


cdef inline void spsc_skip(Spsc* q) noexcept nogil:
    """Take the oldest item, which the consumer knows from elsewhere: neither the producer's line nor the
    ring is read. Consumer only."""
    store_release(&q.head, load_relaxed(&q.head) + 1)         # pairs with load_acquire in spsc_try_push


cdef inline int64_t spsc_peek(Spsc* q) noexcept nogil:
    """The oldest item without taking it, or 0 when empty. Consumer only."""
    cdef int64_t head = load_relaxed(&q.head)
    if head >= q.seen_tail:
        q.seen_tail = load_acquire(&q.tail)                   # pairs with store_release in spsc_try_push
        if head >= q.seen_tail:
            return 0
    return load_relaxed(&q.ring[head & q.ring_mask])


cdef inline int64_t spsc_size_approx(Spsc* q) noexcept nogil:
    """Items in the queue at some moment. Any thread."""
    return load_relaxed(&q.tail) - load_relaxed(&q.head)
