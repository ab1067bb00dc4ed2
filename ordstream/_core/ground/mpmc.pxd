"""MPMC queue: bounded ring after D. Vyukov (1024cores.net, "Bounded MPMC queue"). The worklists are built
from it (flow/worklist).

Deviations: positions start at a chosen value and are handed out with the item, so that a position can serve
as a ticket; a take has a `limit`, the gate at dispatch (ordered paper 3.2, with the correction that no
worker may hold a ticket that the reorder buffer cannot place); `mpmc_try_push_single` is for one producer at
a time and costs no read-modify-write. Each cell's `sequence` equals its position when free for it, position
+ 1 when filled, position + capacity when taken. Memory ownership: `cells` is allocated by mpmc_init and
freed by mpmc_free.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.atomics cimport (
    a64, cas_relaxed, load_acquire, load_relaxed, store_relaxed, store_release,
)

cdef enum:
    MPMC_EMPTY = 0         # items are never 0 or negative
    MPMC_GATED = -1        # the oldest item's position is at or past the limit

cdef struct MpmcCell:
    a64 sequence
    a64 item
    # Tagged items (master queue) only, written before the item is published; else unused:
    a64 part               # the part behind the item
    a64 place              # its position in its partition queue

cdef struct Mpmc:
    char[128] pad0
    a64 tail               # next position to fill; written by producers
    char[120] pad1
    a64 head               # next position to take; written by consumers
    char[120] pad2
    MpmcCell* cells
    int64_t mask
    int64_t alone          # 1: one consumer in the whole run


cdef inline int mpmc_init(Mpmc* q, int64_t capacity, int64_t start) noexcept nogil:
    """`capacity` (a power of two) empty cells, positions from `start`. 0, or -1: no memory."""
    cdef int64_t position
    memset(<void*> q, 0, sizeof(Mpmc))
    q.cells = <MpmcCell*> calloc(capacity, sizeof(MpmcCell))
    if q.cells == NULL:
        return -1
    q.mask = capacity - 1
    for position in range(start, start + capacity):
        store_relaxed(&q.cells[position & q.mask].sequence, position)
    store_relaxed(&q.tail, start)        # published with the queue
    store_relaxed(&q.head, start)
    return 0


cdef inline void mpmc_free(Mpmc* q) noexcept nogil:
    free(q.cells)
    q.cells = NULL


cdef inline bint mpmc_try_push_single(Mpmc* q, int64_t item) noexcept nogil:
    """True when placed at position `tail`; False when full. One producer at a time. Wait-free."""
    cdef int64_t position = load_relaxed(&q.tail)             # own index
    cdef MpmcCell* cell = &q.cells[position & q.mask]
    if load_acquire(&cell.sequence) != position:              # pairs with store_release in mpmc_try_take
        return False
    store_relaxed(&cell.item, item)
    store_relaxed(&q.tail, position + 1)
    store_release(&cell.sequence, position + 1)               # pairs with load_acquire in mpmc_try_take
    return True


cdef inline bint mpmc_try_push_tagged(Mpmc* q, int64_t item, int64_t part, int64_t place) noexcept nogil:
    """mpmc_try_push_single of an item `ticket << 16 | tag` that knows its part and where that lies in its
    partition queue."""
    cdef int64_t position = load_relaxed(&q.tail)             # own index
    cdef MpmcCell* cell = &q.cells[position & q.mask]
    # pairs with store_release in mpmc_try_take_tagged
    if load_acquire(&cell.sequence) != position:
        return False
    store_relaxed(&cell.item, item)
    store_relaxed(&cell.part, part)
    store_relaxed(&cell.place, place)
    store_relaxed(&q.tail, position + 1)
    # pairs with load_acquire in mpmc_try_take_tagged
    store_release(&cell.sequence, position + 1)
    return True


cdef inline bint mpmc_try_push(Mpmc* q, int64_t item) noexcept nogil:
    """True when placed; False when full. Any thread. Lock-free."""
    cdef int64_t position = load_relaxed(&q.tail)
    cdef int64_t sequence
    cdef MpmcCell* cell
    while True:
        cell = &q.cells[position & q.mask]
        sequence = load_acquire(&cell.sequence)               # pairs with store_release in mpmc_try_take
        if sequence == position:
            if cas_relaxed(&q.tail, position, position + 1):  # claims the cell; the item is published below
                break
        elif sequence < position:
            return False
        position = load_relaxed(&q.tail)
    store_relaxed(&cell.item, item)
    store_release(&cell.sequence, position + 1)               # pairs with load_acquire in mpmc_try_take
    return True


cdef inline int64_t mpmc_try_take(Mpmc* q, int64_t limit, int64_t* taken) noexcept nogil:
    """The oldest item; MPMC_EMPTY; or MPMC_GATED when its position is >= limit. `taken` gets the position.

    Any thread. Lock-free. Items leave in position order (a FIFO when there is one producer at a time).
    """
    cdef int64_t position = load_relaxed(&q.head)
    cdef int64_t sequence
    cdef int64_t item
    cdef MpmcCell* cell
    while True:
        cell = &q.cells[position & q.mask]
        sequence = load_acquire(&cell.sequence)               # pairs with store_release in mpmc_try_push*
        if sequence == position + 1:
            if position >= limit:
                return MPMC_GATED
            if q.alone:
                store_relaxed(&q.head, position + 1)
                break
            if cas_relaxed(&q.head, position, position + 1):  # claims the item
                break
        elif sequence <= position:
            return MPMC_EMPTY
        position = load_relaxed(&q.head)
    item = load_relaxed(&cell.item)
    store_release(&cell.sequence, position + q.mask + 1)      # pairs with load_acquire in mpmc_try_push*
    taken[0] = position
    return item


cdef inline int64_t mpmc_try_take_tagged(Mpmc* q, int64_t limit, int64_t* part,
                                         int64_t* place) noexcept nogil:
    """As mpmc_try_take for items of mpmc_try_push_tagged: MPMC_GATED when the oldest item's ticket is >=
    limit."""
    cdef int64_t position = load_relaxed(&q.head)
    cdef int64_t sequence
    cdef int64_t item
    cdef MpmcCell* cell
    while True:
        cell = &q.cells[position & q.mask]
        # pairs with store_release in mpmc_try_push_tagged
        sequence = load_acquire(&cell.sequence)
        if sequence == position + 1:
            item = load_relaxed(&cell.item)                   # ours only if the claim below succeeds
            if item >> 16 >= limit:
                return MPMC_GATED
            part[0] = load_relaxed(&cell.part)
            place[0] = load_relaxed(&cell.place)
            if q.alone:
                store_relaxed(&q.head, position + 1)
                store_release(&cell.sequence, position + q.mask + 1)   # as below
                return item
            if cas_relaxed(&q.head, position, position + 1):  # claims the item
                # pairs with load_acquire in mpmc_try_push_tagged
                store_release(&cell.sequence, position + q.mask + 1)
                return item
        elif sequence <= position:
            return MPMC_EMPTY
        position = load_relaxed(&q.head)


cdef inline int32_t mpmc_try_take_tagged_run(
    Mpmc* q, int64_t limit, int32_t most, int64_t* items, int64_t* parts, int64_t* places
) noexcept nogil:
    """As mpmc_try_take_tagged for up to `most` items in a row, claimed together. Returns how many; 0: empty
    or gated."""
    cdef int64_t position = load_relaxed(&q.head)
    cdef int64_t sequence
    cdef MpmcCell* cell
    cdef int32_t n
    cdef int32_t k
    while True:
        n = 0
        sequence = 0
        while n < most:
            cell = &q.cells[(position + n) & q.mask]
            # pairs with store_release in mpmc_try_push_tagged
            sequence = load_acquire(&cell.sequence)
            if sequence != position + n + 1:
                break
            items[n] = load_relaxed(&cell.item)               # ours only if the claim below succeeds
            if items[n] >> 16 >= limit:
                break
            parts[n] = load_relaxed(&cell.part)
            places[n] = load_relaxed(&cell.place)
            n += 1
        if n == 0 and sequence <= position + 1:
            return 0
        if n > 0 and cas_relaxed(&q.head, position, position + n):   # claims the items
            for k in range(n):
                # pairs with load_acquire in mpmc_try_push_tagged
                store_release(&q.cells[(position + k) & q.mask].sequence, position + k + q.mask + 1)
            return n
        position = load_relaxed(&q.head)


cdef inline bint mpmc_has_room(Mpmc* q, int64_t n) noexcept nogil:
    """True when the single producer can push `n` items now. Producer only. Cost: n loads."""
    cdef int64_t position = load_relaxed(&q.tail)             # own index
    cdef int64_t end = position + n
    while position < end:
        # pairs with store_release in mpmc_try_take
        if load_acquire(&q.cells[position & q.mask].sequence) != position:
            return False
        position += 1
    return True


cdef inline int64_t mpmc_peek(Mpmc* q, int64_t* position) noexcept nogil:
    """The oldest item without taking it, or MPMC_EMPTY. Another thread may take it at any moment."""
    cdef int64_t p = load_relaxed(&q.head)
    cdef MpmcCell* cell = &q.cells[p & q.mask]
    if load_acquire(&cell.sequence) != p + 1:                 # pairs with store_release in mpmc_try_push*
        return MPMC_EMPTY
    position[0] = p
    return load_relaxed(&cell.item)


cdef inline int64_t mpmc_size_approx(Mpmc* q) noexcept nogil:
    """Items in the queue at some moment. Any thread."""
    return load_relaxed(&q.tail) - load_relaxed(&q.head)
