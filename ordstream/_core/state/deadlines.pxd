"""Deadlines of keys, for marks that come more often than keys are due: closing costs what closes.

A key's deadline moves with its tuples, but its entry (deadlines.hpp) does not: it says when the key may be
due at the earliest. When its time has come, and a tuple came since, it is put anew, at the key's true time.
So tuples pay for nothing, a key is looked at once per span at most, and a mark costs what its entries cost.
Keys that came since the mark before get their entries at a mark. Before the first mark there are none, and
after keys came as rows or left as rows (kernel.pxd, f) all are made anew.

Times are unsigned words in their order. Inline only: there is no module of this name at run time. Thread
safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport Worker
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.keyed_rows cimport keyed_bury, keyed_forget, keyed_reindex
from ordstream._core.state.keyed_state cimport KeyedState, keyed_record, keyed_state

cdef extern from "deadlines.hpp" namespace "ord" nogil:
    cdef struct Deadline:
        uint64_t at
        uint64_t of
    cdef cppclass Deadlines:
        int put(uint64_t at, uint64_t of) noexcept
        int room(int64_t more) noexcept
        void come(uint64_t at, uint64_t of) noexcept
        int passes "pass"(uint64_t before) noexcept
        int64_t due_count() noexcept
        Deadline* due() noexcept
        int64_t slots() noexcept
        int arm_next(uint64_t at) noexcept
        bint is_armed(const Deadline& one) noexcept
        int arm(uint64_t at, uint64_t slot) noexcept
        void give(uint64_t slot) noexcept
        int leave(uint64_t slot) noexcept
        void sort_due(int64_t n) noexcept
        int64_t bytes() noexcept
    Deadlines* deadlines_new() noexcept
    void deadlines_free(Deadlines*) noexcept

cdef enum:
    DUE_AHEAD = 8          # entries between a prefetch and the look that it is for

# The time from which on a state is due, less its span; 0: no tuple left anything in it.
ctypedef uint64_t (*deadline_of_t)(const void* context, const char* state) noexcept nogil


cdef inline uint64_t due_before(uint64_t mark, uint64_t span) noexcept nogil:
    """What is of before this is more than `span` before a mark."""
    return mark - span if mark > span else 0


cdef inline void deadlines_drop(Deadlines** d) noexcept nogil:
    """Forget all: they are made anew at the next mark."""
    deadlines_free(d[0])
    d[0] = NULL


cdef inline int64_t deadlines_bytes(Deadlines* d) noexcept nogil:
    return d.bytes() if d != NULL else 0


cdef inline int64_t keys_due(Deadlines** to_all, Worker* w, KeyedState* s, const void* context,
                             deadline_of_t deadline_of, uint64_t before) noexcept nogil:
    """The keys of a map whose deadline is before a time: how many, in all.due(), the last slot first. -1: no
    memory. Every one of them must leave then (`keys_close`).

    Cost: per key that came since, and per entry whose time has come, a cache miss.
    """
    cdef Deadlines* all = to_all[0]
    cdef Deadline* due
    cdef int64_t n = 0
    cdef int64_t count
    cdef int64_t i
    cdef uint64_t at
    cdef bint failed = False
    if all == NULL:
        all = deadlines_new()
        if all == NULL:
            return -1
        to_all[0] = all
    for i in range(all.slots(), s.count):
        if stop_due(w, i):
            return 0
        failed |= all.arm_next(deadline_of(context, keyed_state(s, i))) != 0
    if failed or all.passes(before) != 0:
        deadlines_drop(to_all)
        return -1
    due = all.due()
    count = all.due_count()
    for i in range(count):
        if stop_due(w, i):
            return 0
        if i + DUE_AHEAD < count and <int64_t> due[i + DUE_AHEAD].of < s.count:
            prefetch_write(keyed_record(s, <int64_t> due[i + DUE_AHEAD].of))
        if not all.is_armed(due[i]):
            continue
        at = deadline_of(context, keyed_state(s, <int64_t> due[i].of))
        if at < before:
            all.give(due[i].of)
            due[n] = due[i]
            n += 1
        elif all.arm(at, due[i].of) != 0:
            deadlines_drop(to_all)
            return -1
    all.sort_due(n)
    return n


cdef inline void keys_close(Deadlines** to_all, Worker* w, KeyedState* s, int64_t n) noexcept nogil:
    """Forget the n keys that keys_due gave. Cost: per key that goes four cache misses; where most go, per
    key that stays a copy and a cache miss."""
    cdef Deadlines* all = to_all[0]
    cdef const Deadline* due = all.due()
    cdef int64_t end = 0
    cdef int64_t slot
    cdef int64_t i
    cdef bint failed = False
    if 2 * n < s.count:
        for i in range(n):
            if stop_due(w, i):
                return
            keyed_forget(s, <int64_t> due[i].of)
            failed |= all.leave(due[i].of) != 0
        if failed:
            deadlines_drop(to_all)
        return
    i = n                                                    # the first slot is the last of them
    for slot in range(s.count):
        if stop_due(w, slot):
            return
        if i > 0 and <int64_t> due[i - 1].of == slot:
            keyed_bury(s, keyed_record(s, slot))
            i -= 1
            continue
        if end != slot:
            memcpy(keyed_record(s, end), keyed_record(s, slot), <size_t> s.stride)
        end += 1
    keyed_reindex(s, end)
    deadlines_drop(to_all)
