"""The state contract for operators whose keys have states of fixed size. See state_rows.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, Worker, chunk_reserve, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.keyed_bucket cimport Bucket, StateCalls
from ordstream._core.state.keyed_rows cimport (
    INSTALL_AHEAD, KEY_IS_THERE, key_put, keyed_find, keyed_install, keyed_prefetch, keyed_remove,
    keyed_shrink,
)
from ordstream._core.state.keyed_state cimport KeyedState, keyed_record, keyed_state


cdef int row_reserve(Kernel* k, Worker* w, StateCursor* cursor, Chunk* out, Failure* f) noexcept nogil:
    """Room in `out` for all rows that a call may append. 0, or -1: no memory (f is filled)."""
    if chunk_reserve(w, out, k.state, cursor.most) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return 0


cdef int32_t rows_export(Kernel* k, Worker* w, KeyedState* s, const StateCalls* calls, StateCursor* cursor,
                         Chunk* out, Failure* f) noexcept nogil:
    """state_export of a map.

    Thread safety: the bucket's holder. Ownership: out's arena. Returns: rows appended, or -1: no memory (f
    is filled). Cost: a copy per key; with `cursor.keys` a lookup too.
    """
    cdef int64_t all_of = s.count if cursor.keys == NULL else cursor.n
    cdef int64_t slot
    cdef int32_t n = 0
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    while n < cursor.most and cursor.at < all_of:
        slot = cursor.at
        if cursor.keys != NULL:
            slot = keyed_find(s, k.state_keys, cursor.keys, cursor.slots[slot])
        if slot >= 0 and calls.alive(k, keyed_state(s, slot)):
            if (key_put(k.state_keys, keyed_record(s, slot), w, out, out.n) != 0
                    or calls.write(k, w, keyed_state(s, slot), out, out.n) != 0):
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            out.n += 1
            n += 1
        cursor.at += 1
    out.slots = out.n
    cursor.done = cursor.at >= all_of
    return n


cdef int32_t rows_install(Kernel* k, void* bucket, KeyedState* s, const StateCalls* calls, Chunk* rows,
                          const int32_t* slots, int32_t n, Failure* f) noexcept nogil:
    """state_install into a map. Thread safety, ownership, returns, cost: kernel.pxd (f)."""
    cdef int64_t slot
    cdef int32_t i
    for i in range(n):
        if i + INSTALL_AHEAD < n:
            keyed_prefetch(s, k.state_keys, rows, slots[i + INSTALL_AHEAD])
        slot = keyed_install(s, k.state_keys, rows, slots[i])
        if slot == KEY_IS_THERE:
            slot = keyed_find(s, k.state_keys, rows, slots[i])
            if calls.alive(k, keyed_state(s, slot)):         # else its state is still that of no tuple
                failure_set(f, slots[i], FAIL_STATE, "the key is there already")
                return i
        if slot < 0:
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        if calls.read(k, bucket, rows, slots[i], keyed_state(s, slot), f) != 0:
            keyed_remove(s, k.state_keys, rows, slots[i])
            return i
    return n


cdef int32_t rows_remove(Kernel* k, void* bucket, KeyedState* s, const StateCalls* calls,
                         const Chunk* keys, const int32_t* slots, int32_t n) noexcept nogil:
    """state_remove from a map, which can't fail. Thread safety, ownership, returns, cost: kernel.pxd (f)."""
    cdef int64_t slot
    cdef int32_t there = 0
    cdef int32_t i
    for i in range(n):
        slot = keyed_find(s, k.state_keys, keys, slots[i])
        if slot < 0:
            continue
        there += calls.alive(k, keyed_state(s, slot))
        if calls.drop != NULL:
            calls.drop(k, bucket, keyed_state(s, slot))
        keyed_remove(s, k.state_keys, keys, slots[i])
    keyed_shrink(s)
    return there


cdef int32_t bucket_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                           Failure* f) noexcept nogil:
    """Rows (key..., what `StateCalls.write` writes). Contract: kernel.pxd (f)."""
    cdef Bucket* b = <Bucket*> state
    if b.single == NULL:
        return rows_export(k, w, &b.keyed, b.calls, cursor, out, f)
    if cursor.done or (cursor.keys != NULL and cursor.n == 0) or not b.calls.alive(k, b.single):
        cursor.done = 1
        return 0
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    if b.calls.write(k, w, b.single, out, out.n) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    cursor.done = 1
    out.n += 1
    out.slots = out.n
    return 1


cdef int32_t bucket_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    cdef Bucket* b = <Bucket*> state
    cdef int32_t i
    if b.single == NULL:
        return rows_install(k, b, &b.keyed, b.calls, rows, slots, n, f)
    for i in range(n):
        if b.calls.alive(k, b.single):
            failure_set(f, slots[i], FAIL_STATE, "the operator has one state, and it is there already")
            return i
        if b.calls.read(k, b, rows, slots[i], b.single, f) != 0:
            memset(b.single, 0, <size_t> b.state_size)
            return i
    return n


cdef int32_t bucket_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    cdef Bucket* b = <Bucket*> state
    cdef int32_t there
    if b.single == NULL:
        return rows_remove(k, b, &b.keyed, b.calls, keys, slots, n)
    if n == 0:
        return 0
    there = b.calls.alive(k, b.single)
    if b.calls.drop != NULL:
        b.calls.drop(k, b, b.single)
    memset(b.single, 0, <size_t> b.state_size)
    return there
