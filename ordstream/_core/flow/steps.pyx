"""Writing step logs (steps.pxd states the design)."""
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from ordstream._core.ground.atomics cimport (
    a64, as_int, as_pointer, cas_acq_rel, exchange_acq_rel, load_relaxed,
)
from ordstream._core.ground.chunk cimport PT_F32, PT_F64, PT_U64, PT_VIEW, View
from ordstream._core.state.keyed_state cimport KeySpec

cdef uint64_t SIGN = <uint64_t> 1 << 63
cdef uint64_t LAST = <uint64_t> -1


cdef inline int reserve(StepLog* log, int64_t more) noexcept nogil:
    """Room for `more` bytes. 0, or -1: no memory."""
    cdef int64_t capacity
    cdef void* p
    if log.size + more <= log.capacity:
        return 0
    capacity = max(2 * log.capacity, log.size + more + 1024)
    p = realloc(log.bytes, <size_t> capacity)
    if p == NULL:
        return -1
    log.bytes = <char*> p
    log.capacity = capacity
    return 0


cdef inline void put_word(StepLog* log, uint64_t word) noexcept nogil:
    cdef int32_t k
    for k in range(8):
        log.bytes[log.size + k] = <char> <uint8_t> (word >> (56 - 8 * k))
    log.size += 8


cdef inline uint64_t ordered_float(uint64_t bits) noexcept nogil:
    """A word that orders as the float does; NaN last."""
    cdef double value
    memcpy(&value, &bits, 8)
    if isnan(value):
        return LAST
    return ~bits if bits & SIGN else bits | SIGN


cdef int steps_append(StepLog* log, const KeySpec* keys, const int64_t* time,
                      const char* record) noexcept nogil:
    """Add a step with the key of a key record; `keys` NULL: the empty key; `time`: of a step of a mark, or
    NULL.

    Thread safety: one writer. Ownership: the bytes are copied. Returns: 0, or -1: no memory. Cost: ~2 ns per
    byte of the key.
    """
    cdef uint64_t nulls
    cdef const View* view
    cdef uint64_t word
    cdef int64_t room
    cdef int64_t i
    cdef int32_t j
    cdef void* p
    if log.n == log.room:
        room = max(2 * log.room, <int64_t> 64)
        p = realloc(log.ends, <size_t> room * 8)
        if p == NULL:
            return -1
        log.ends = <int64_t*> p
        log.room = room
    if time != NULL:
        if reserve(log, 8) != 0:
            return -1
        put_word(log, <uint64_t> time[0] ^ SIGN)
    if keys != NULL and record != NULL:
        nulls = (<const uint64_t*> record)[0]
        for j in range(keys.ncols):
            view = <const View*> (record + keys.offset[j])
            if reserve(log,
                       16 + (2 * view.size if keys.type[j] == PT_VIEW and not (nulls >> j) & 1 else 0)) != 0:
                return -1
            if (nulls >> j) & 1:
                log.bytes[log.size] = 0
                log.size += 1
                continue
            log.bytes[log.size] = 1
            log.size += 1
            if keys.type[j] == PT_VIEW:
                for i in range(view.size):
                    log.bytes[log.size] = view.data[i]
                    log.size += 1
                    if view.data[i] == 0:
                        log.bytes[log.size] = <char> <uint8_t> 255
                        log.size += 1
                log.bytes[log.size] = 0
                log.bytes[log.size + 1] = 0
                log.size += 2
                continue
            word = (<const uint64_t*> view)[0]
            if keys.type[j] == PT_F64 or keys.type[j] == PT_F32:
                word = ordered_float(word)
            elif keys.type[j] != PT_U64:
                word ^= SIGN
            put_word(log, word)
    log.ends[log.n] = log.size
    log.n += 1
    return 0


cdef void steps_free(StepLog* log) noexcept nogil:
    free(log.ends)
    free(log.bytes)
    log.ends = NULL
    log.bytes = NULL


cdef void mark_steps_push(a64* head, MarkSteps* steps) noexcept nogil:
    """Hand over what a mark made an operator emit for. Any worker. Ownership: the list's."""
    cdef int64_t first
    while True:
        first = load_relaxed(head)
        steps.next = <MarkSteps*> as_pointer(first)
        # pairs with exchange_acq_rel in mark_steps_take
        if cas_acq_rel(head, first, as_int(steps)):
            return


cdef MarkSteps* mark_steps_take(a64* head) noexcept nogil:
    """All that was handed over, the newest first. The reading thread. Ownership: the caller's."""
    return <MarkSteps*> as_pointer(exchange_acq_rel(head, 0))  # pairs with cas_acq_rel in mark_steps_push


cdef void mark_steps_free(a64* head) noexcept nogil:
    cdef MarkSteps* steps = mark_steps_take(head)
    cdef MarkSteps* following
    while steps != NULL:
        following = steps.next
        steps_free(&steps.log)
        free(steps)
        steps = following
