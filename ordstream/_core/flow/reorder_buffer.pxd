"""Reorder buffers: release units strictly by ticket. Non-blocking (ordered paper, Fig. 4) and lock-based
(Fig. 2), one interface.

Deviations from Fig. 4, each found by a model or on hardware:
a) Four accesses are sequentially consistent: the slot set (L18), the flag's test-and-set (L25), its clear
   (L36) and the re-check (L40). With a release clear a ready unit was left behind in about 1 % of contended
   rounds on x86.
b) The tail call L42 is a loop; one hold of the flag releases at most RELEASE_MAX units.
c) The caller never offers a ticket >= next + size (gate at dispatch), so the set cannot fail and nobody
   spins on a full buffer. In `reorder_offer` a unit whose turn it is goes from its worker straight to
   `deliver`, under the flag, without entering its slot. A run with one worker (`alone`) shares nothing and
   needs no atomic read-modify-write.
d) `deliver` may refuse a unit (the downstream worklist is full): the flag is cleared and the unit stays in
   its slot (parked); "ready unit, flag clear, room downstream" makes the operator schedulable
   (scheduler.pyx), so it is not forgotten.
e) Tickets start at 1, and so does `next`.
f) A worker that has put its unit and finds the slot of `next` empty leaves without trying the flag: the
   worker that brings the missing unit will release those behind it. Otherwise every worker whose turn it is
   not would take the flag in vain, and with it the cache line that the releasing worker writes. This needs
   two more sequentially consistent accesses: the store that leaves `next` at an empty slot, and the load of
   `next`.
Memory ownership: slots are allocated by reorder_init, freed by reorder_free; a unit belongs to the buffer
between reorder_put and deliver.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.atomics cimport (
    a64, as_pointer, exchange_seq, load_acquire, load_relaxed, load_seq, store_relaxed, store_release,
    store_seq,
)
from ordstream._core.ground.threads cimport Mutex, cpu_pause, prefetch_write

cdef enum ReorderScheme:
    NON_BLOCKING = 0
    LOCK_BASED = 1

cdef enum:
    RELEASE_MAX = 64       # units released in one hold of the flag
    TURN_TRIES = 16        # pauses (a few tens of ns each) that a run of units waits for its turn
    TURN_NEAR = 32         # tickets in front of it at most

# 1: taken; 0: no room downstream (the unit stays).
ctypedef int (*deliver_t)(void* context, void* unit) noexcept nogil

cdef struct ReorderBuffer:
    char[128] pad0
    # ticket to release next; only grows; written by the flag's (lock's) holder, read by all
    a64 next
    a64 flag               # 1 while a worker releases; beside `next`: a releasing worker writes both
    char[112] pad1
    a64* slots             # unit of ticket t at t & mask, 0 = EMPTY
    int64_t mask
    int64_t scheme         # ReorderScheme
    Mutex* mutex           # LOCK_BASED only; owned by the creator of the buffer
    # 1: only one worker uses it at a time, so no access needs to be ordered; set before the run
    int64_t alone


cdef inline int reorder_init(ReorderBuffer* rb, int64_t size, int64_t first, int64_t scheme,
                             Mutex* mutex) noexcept nogil:
    """An empty buffer of `size` slots (a power of two) expecting ticket `first`. 0, or -1: no memory."""
    memset(<void*> rb, 0, sizeof(ReorderBuffer))
    rb.slots = <a64*> calloc(size, sizeof(a64))
    if rb.slots == NULL:
        return -1
    rb.mask = size - 1
    rb.scheme = scheme
    rb.mutex = mutex
    store_relaxed(&rb.next, first)       # published with the buffer
    return 0


cdef inline void reorder_free(ReorderBuffer* rb) noexcept nogil:
    free(rb.slots)
    rb.slots = NULL


cdef inline int64_t reorder_limit(ReorderBuffer* rb) noexcept nogil:
    """First ticket that may not be dispatched yet: next + size."""
    return load_acquire(&rb.next) + rb.mask + 1               # pairs with store_release in release_*


cdef inline bint reorder_ready(ReorderBuffer* rb) noexcept nogil:
    """True when the next unit to release is in its slot. Any thread; may be stale."""
    return load_seq(&rb.slots[load_acquire(&rb.next) & rb.mask]) != 0   # pairs with store_seq in reorder_put


cdef inline void reorder_put(ReorderBuffer* rb, int64_t ticket, int64_t unit) noexcept nogil:
    """Place a unit; release nothing (follow with reorder_release).

    Thread safety: any worker, one put per ticket, ticket < reorder_limit. Ownership: taken. Cost: one
    seq_cst store.
    """
    if rb.alone:
        store_relaxed(&rb.slots[ticket & rb.mask], unit)
        return
    # L18; totally ordered with the flag and the re-check
    store_seq(&rb.slots[ticket & rb.mask], unit)


cdef inline void prefetch_unit(ReorderBuffer* rb, int64_t ticket) noexcept nogil:
    """Prefetch the parts of a chunk (chunk.pxd) that `deliver` will touch, if the unit is in its slot
    already."""
    cdef int64_t unit = load_relaxed(&rb.slots[ticket & rb.mask])   # a hint
    if unit != 0:
        prefetch_write(as_pointer(unit))
        prefetch_write(as_pointer(unit + 64))
        prefetch_write(as_pointer(unit + 192))
        prefetch_write(as_pointer(unit + 256))
        prefetch_write(as_pointer(unit + 320))


cdef inline int release_non_blocking(ReorderBuffer* rb, deliver_t deliver, void* context) noexcept nogil:
    cdef int64_t n
    cdef int64_t unit
    cdef a64* slot
    cdef int sent = 0
    cdef bint stopped
    while True:
        # (f); both totally ordered with L18 and the last L34
        if load_seq(&rb.slots[load_seq(&rb.next) & rb.mask]) == 0:
            return sent
        if exchange_seq(&rb.flag, 1) != 0:                    # L25; totally ordered with L18, L36, L40
            return sent
        stopped = False
        n = load_relaxed(&rb.next)                            # L28; only the flag's holder writes it
        while True:
            slot = &rb.slots[n & rb.mask]
            unit = load_acquire(slot)                         # L30; pairs with store_seq in reorder_put
            if unit == 0:
                # (f): totally ordered with L18 and the loads above
                store_seq(&rb.next, n)
                break
            prefetch_unit(rb, n + 1)
            if sent >= RELEASE_MAX or not deliver(context, <void*> unit):
                stopped = True
                break
            # L33; ordered before the next put by `next` below
            store_relaxed(slot, 0)
            n += 1
            sent += 1
            store_release(&rb.next, n)                        # L34; pairs with load_acquire in reorder_limit
        store_seq(&rb.flag, 0)                                # L36; totally ordered with L18, L25, L40
        if stopped:
            return sent
        if load_seq(slot) == 0:                               # L40; the re-check
            return sent


cdef inline int release_alone(ReorderBuffer* rb, deliver_t deliver, void* context) noexcept nogil:
    # One worker in the whole run: Fig. 4 without its atomics.
    cdef int64_t n = load_relaxed(&rb.next)
    cdef int64_t unit
    cdef int sent = 0
    while True:
        unit = load_relaxed(&rb.slots[n & rb.mask])
        if unit == 0 or not deliver(context, <void*> unit):
            return sent
        store_relaxed(&rb.slots[n & rb.mask], 0)
        n += 1
        sent += 1
        store_relaxed(&rb.next, n)


cdef inline int reorder_offer(ReorderBuffer* rb, int64_t ticket, int64_t unit, deliver_t deliver,
                              void* context) noexcept nogil:
    """reorder_put and reorder_release in one: a unit whose turn it is goes straight to `deliver`, without
    entering its slot."""
    cdef int64_t n
    cdef a64* slot
    cdef int sent = 0
    cdef bint stopped = False
    if rb.scheme == NON_BLOCKING and load_relaxed(&rb.next) == ticket:
        if rb.alone:
            if deliver(context, <void*> unit):
                store_relaxed(&rb.next, ticket + 1)
                return 1 + release_alone(rb, deliver, context)
        elif exchange_seq(&rb.flag, 1) == 0:                  # as L25
            # `next` is still `ticket`: only this unit can move it, and we hold it.
            prefetch_unit(rb, ticket + 1)
            if not deliver(context, <void*> unit):
                store_seq(&rb.slots[ticket & rb.mask], unit)  # as L18: parked
                store_seq(&rb.flag, 0)                        # as L36
                return 0
            n = ticket + 1
            sent = 1
            store_release(&rb.next, n)                        # as L34
            while True:
                slot = &rb.slots[n & rb.mask]
                unit = load_acquire(slot)                     # as L30
                if unit == 0:
                    store_seq(&rb.next, n)                    # as (f)
                    break
                prefetch_unit(rb, n + 1)
                if sent >= RELEASE_MAX or not deliver(context, <void*> unit):
                    stopped = True
                    break
                store_relaxed(slot, 0)                        # as L33
                n += 1
                sent += 1
                store_release(&rb.next, n)                    # as L34
            store_seq(&rb.flag, 0)                            # as L36
            if stopped or load_seq(slot) == 0:                # as L40
                return sent
            return sent + release_non_blocking(rb, deliver, context)
    reorder_put(rb, ticket, unit)
    return reorder_release(rb, deliver, context)


cdef inline int reorder_offer_run(ReorderBuffer* rb, int64_t ticket, const int64_t* units, int32_t n,
                                  deliver_t deliver,
                                  void* context) noexcept nogil:
    """reorder_offer for `n` units with consecutive tickets from `ticket` on. When it is their turn, all go
    in one hold of the flag.

    A worker whose turn comes soon waits for it, TURN_TRIES pauses at most. Otherwise the worker in front
    would release these units, and it does not have their memory in its cache. Thread safety, ownership: as
    reorder_put, n times. Returns: units released. Cost: as reorder_offer, per run.
    """
    cdef int64_t next
    cdef int32_t k = 0
    cdef int32_t tries = 0
    if rb.scheme == NON_BLOCKING and rb.alone:
        if load_relaxed(&rb.next) == ticket:
            while k < n and deliver(context, as_pointer(units[k])):
                k += 1
                store_relaxed(&rb.next, ticket + k)
            if k == n:
                return n + release_alone(rb, deliver, context)
            next = k
            while k < n:
                reorder_put(rb, ticket + k, units[k])
                k += 1
            return <int> next
    elif rb.scheme == NON_BLOCKING:
        while True:
            next = load_acquire(&rb.next)                     # pairs with store_release in release_*
            if next == ticket and exchange_seq(&rb.flag, 1) == 0:   # as L25
                # `next` is still `ticket`: only our units can move it.
                while k < n and deliver(context, as_pointer(units[k])):
                    k += 1
                    store_release(&rb.next, ticket + k)       # as L34
                next = k
                while k < n:
                    store_seq(&rb.slots[(ticket + k) & rb.mask], units[k])   # as L18: parked
                    k += 1
                store_seq(&rb.next, ticket + next)            # as (f)
                store_seq(&rb.flag, 0)                        # as L36
                if next == n and load_seq(&rb.slots[(ticket + n) & rb.mask]) != 0:   # as L40
                    return n + release_non_blocking(rb, deliver, context)
                return <int> next
            tries += 1
            if tries > TURN_TRIES or ticket - next > TURN_NEAR:
                break
            cpu_pause()
    for k in range(n):
        reorder_put(rb, ticket + k, units[k])
    return reorder_release(rb, deliver, context)


cdef inline int release_lock_based(ReorderBuffer* rb, deliver_t deliver, void* context) noexcept nogil:
    # Fig. 2: the lock covers the check and the sending. The slot is set before (an atomic ring instead of a
    # map).
    cdef int64_t n
    cdef int64_t unit
    cdef int sent = 0
    rb.mutex.lock()
    n = load_relaxed(&rb.next)                                # only the lock's holder writes it
    while True:
        unit = load_seq(&rb.slots[n & rb.mask])               # pairs with store_seq in reorder_put
        if unit == 0 or not deliver(context, <void*> unit):
            break
        store_relaxed(&rb.slots[n & rb.mask], 0)
        n += 1
        sent += 1
        store_release(&rb.next, n)                            # pairs with load_acquire in reorder_limit
    rb.mutex.unlock()
    return sent


cdef inline int reorder_release(ReorderBuffer* rb, deliver_t deliver, void* context) noexcept nogil:
    """Release every unit that is ready, in ticket order, unless another worker is doing it (non-blocking
    scheme).

    Thread safety: any worker; `deliver` runs in one worker at a time. Returns: units released. Cost: one
    exchange, two seq_cst accesses, plus deliver; the lock-based scheme waits for the lock.
    """
    if rb.scheme == NON_BLOCKING:
        if rb.alone:
            return release_alone(rb, deliver, context)
        return release_non_blocking(rb, deliver, context)
    return release_lock_based(rb, deliver, context)
