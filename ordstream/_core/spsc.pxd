"""SPSC queue: bounded ring for one producer and one consumer at a time (worklist of a stateful operator, partition queues).

Lamport's ring with each side's index on its own line. The roles may move between threads when the hand-over itself is
ordered (a reorder buffer's flag for the producer, a bucket's count or the scheduler's lock for the consumer).
Memory ownership: `slots` is allocated by spsc_init and freed by spsc_free; items belong to whoever takes them.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.atomics cimport a64, load_acquire, load_relaxed, store_relaxed, store_release

cdef struct Spsc:
    char[128] pad0
    a64 tail               # next position to fill; written by the producer
    char[120] pad1
    a64 head               # next position to take; written by the consumer
    char[120] pad2
    a64* slots
    int64_t mask


cdef inline int spsc_init(Spsc* q, int64_t capacity, int64_t start) noexcept nogil:
    """`capacity` (a power of two) empty slots, positions from `start`. 0, or -1: no memory."""
    memset(<void*> q, 0, sizeof(Spsc))
    q.slots = <a64*> calloc(capacity, sizeof(a64))
    if q.slots == NULL:
        return -1
    q.mask = capacity - 1
    store_relaxed(&q.tail, start)        # published with the queue
    store_relaxed(&q.head, start)
    return 0


cdef inline void spsc_free(Spsc* q) noexcept nogil:
    free(q.slots)
    q.slots = NULL


cdef inline bint spsc_try_push(Spsc* q, int64_t item) noexcept nogil:
    """True when placed; False when full (the caller keeps the item). Producer only. Wait-free."""
    cdef int64_t tail = load_relaxed(&q.tail)                 # own index
    if tail - load_acquire(&q.head) > q.mask:                 # pairs with store_release in spsc_try_take
        return False
    store_relaxed(&q.slots[tail & q.mask], item)
    store_release(&q.tail, tail + 1)                          # pairs with load_acquire in spsc_try_take
    return True


cdef inline int64_t spsc_try_take(Spsc* q) noexcept nogil:
    """The oldest item, or 0 when empty (items are never 0). Consumer only. Wait-free."""
    cdef int64_t head = load_relaxed(&q.head)                 # own index
    cdef int64_t item
    if head == load_acquire(&q.tail):                         # pairs with store_release in spsc_try_push
        return 0
    item = load_relaxed(&q.slots[head & q.mask])
    store_release(&q.head, head + 1)                          # pairs with load_acquire in spsc_try_push
    return item


cdef inline int64_t spsc_peek(Spsc* q) noexcept nogil:
    """The oldest item without taking it, or 0 when empty. Consumer only."""
    cdef int64_t head = load_relaxed(&q.head)
    if head == load_acquire(&q.tail):                         # pairs with store_release in spsc_try_push
        return 0
    return load_relaxed(&q.slots[head & q.mask])


cdef inline int64_t spsc_size_approx(Spsc* q) noexcept nogil:
    """Items in the queue at some moment. Any thread."""
    return load_relaxed(&q.tail) - load_relaxed(&q.head)
