"""An index of small whole numbers among the keys of a map: a key that is one is found without a hash.

Many keys are numbers that a database or a generator counted up. `near[key]` is the slot of such a key plus
1, or 0: the table knows. It takes at most 64 bytes per key, most often 4 to 8, and is a part of
keyed_state.pyx.

a) It fills itself: a row that it does not know is looked up in the table and then noted here. So whoever
   inserts keys, and whatever makes the table larger, need not know of it.
b) A map whose keys are other ones gives it up after a while, and a map that forgets keys at once: their
   slots move.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.state.keyed_map cimport KeyedState

cdef extern from "map_memory.hpp" nogil:
    void* ord_zeroed(size_t size)
    void ord_block_free(void* block, size_t size)

cdef enum:
    NEAR_PER_KEY = 8       # numbers below so many times the keys are near ones,
    NEAR_ALWAYS = 4096     # and so are these
    NEAR_ROOM = 256        # places at first


cdef inline void near_drop(KeyedState* s, bint ever) noexcept nogil:
    """Give the index up; `ever`: for good."""
    ord_block_free(s.near, <size_t> s.near_room * sizeof(int32_t))
    s.near = NULL
    s.near_room = 0
    s.near_never = ever


cdef inline bint near_grow(KeyedState* s, uint64_t key) noexcept nogil:
    """Room for a key. False: no memory, nothing changed."""
    cdef int64_t room = s.near_room if s.near_room else <int64_t> NEAR_ROOM
    cdef int32_t* near
    while <uint64_t> room <= key:
        room *= 2
    near = <int32_t*> ord_zeroed(<size_t> room * sizeof(int32_t))
    if near == NULL:
        return False
    if s.near_room:
        memcpy(near, s.near, <size_t> s.near_room * sizeof(int32_t))
    ord_block_free(s.near, <size_t> s.near_room * sizeof(int32_t))
    s.near = near
    s.near_room = room
    return True


cdef inline void near_note(KeyedState* s, uint64_t key, int32_t slot) noexcept nogil:
    """A row that the index did not know has this key, which is not null."""
    if key >= <uint64_t> s.near_room:
        if key >= <uint64_t> (NEAR_PER_KEY * s.count + NEAR_ALWAYS):
            s.near_strange += 1
            if s.near_strange > NEAR_ALWAYS + 2 * s.count:
                near_drop(s, True)
            return
        if not near_grow(s, key):
            return
    s.near[key] = slot + 1


cdef inline uint64_t near_slots(const KeyedState* s, const uint64_t* words, const int32_t* rows, int32_t n,
                                int32_t* out_slots) noexcept nogil:
    """Slots of n rows, at most 64, with the keys `words`, by row. Returns: bits of the rows it does not
    know."""
    cdef const int32_t* near = s.near
    cdef uint64_t room = <uint64_t> s.near_room
    cdef uint64_t missing = 0
    cdef uint64_t word
    cdef int32_t slot
    cdef int32_t k
    for k in range(n):
        word = words[rows[k]]
        slot = near[word] - 1 if word < room else -1
        out_slots[k] = slot
        if slot < 0:
            missing |= (<uint64_t> 1) << k
    return missing
