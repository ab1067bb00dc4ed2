"""The state contract of counts. See count_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, Worker, chunk_alloc, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.keyed_bucket cimport StateCalls
from ordstream._core.state.keyed_rows cimport key_put
from ordstream._core.state.packed_counts cimport (
    COUNT_BLOCK, CountSlot, PackedCounts, packed_column, packed_keys, packed_record, packed_segment,
)
from ordstream._core.state.packed_rows cimport (
    COUNT_IS_THERE, packed_drain, packed_find, packed_install, packed_install_block, packed_remove,
    packed_shrink,
)
from ordstream._core.state.state_rows cimport (
    bucket_export, bucket_install, bucket_remove, row_reserve, rows_export, rows_install, rows_remove,
)

cdef enum:
    IN_PACKED = 0              # StateCursor.part: what `at` counts
    IN_OTHERS = 1


# -------------------------------------------------------------------------------- one state: the count


cdef bint is_counted(Kernel* k, const char* state) noexcept nogil:
    return (<const int64_t*> state)[0] != 0


cdef int write_count(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    (<int64_t*> out.cols[k.state.ncols - 1].data)[index] = (<const int64_t*> state)[0]
    return 0


cdef int64_t count_of(Kernel* k, const Chunk* rows, int32_t slot, Failure* f) noexcept nogil:
    """The count of a row; 0: it is none that a state has (f is filled)."""
    cdef int32_t j = k.state.ncols - 1
    cdef const uint8_t* valid = rows.cols[j].valid
    cdef int64_t n = (<const int64_t*> rows.cols[j].data)[slot]
    if n > 0 and (valid == NULL or valid[slot] != 0):
        return n
    failure_set(f, slot, FAIL_STATE, "a count is null, 0 or negative")
    return 0


cdef int32_t read_count(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                        Failure* f) noexcept nogil:
    (<int64_t*> state)[0] = count_of(k, rows, slot, f)
    return 0 if (<int64_t*> state)[0] else FAIL_STATE


cdef StateCalls COUNT = StateCalls(alive=is_counted, write=write_count, read=read_count, drop=NULL)


# ---------------------------------------------------------------------------------------------- a bucket


cdef inline bint packs(Kernel* k, const PackedCounts* s, const Chunk* rows, int32_t slot,
                       uint64_t* key) noexcept nogil:
    """Whether the key of an exported row packs, and as what."""
    cdef PackedCounts shape
    cdef int32_t fit
    cdef int32_t unfit
    cdef int32_t nunfit
    shape.keys = k.state_keys
    shape.bits = s.bits
    return packed_keys(&shape, rows, &slot, 1, key, &fit, &unfit, &nunfit) == 1


cdef int put_packed(Kernel* k, Worker* w, const PackedCounts* s, uint64_t key, int64_t n,
                    Chunk* out) noexcept nogil:
    """Append a row (reserved). 0, or -1: no memory."""
    cdef char[64 + 16] record                                # a packed key has at most 8 columns
    packed_record(s, key, record)
    if key_put(k.state_keys, record, w, out, out.n) != 0:
        return -1
    (<int64_t*> out.cols[k.state.ncols - 1].data)[out.n] = n
    out.n += 1
    return 0


cdef inline int32_t used_slots(const CountSlot* slots, int64_t* at, int64_t nslots, int32_t most,
                               uint64_t* keys, int64_t* counts) noexcept nogil:
    """Key and count of the next used slots from `at` on, at most `most`; how many. No branch depends on
    whether a slot is used: about half of them are."""
    cdef int64_t i = at[0]
    cdef int32_t n = 0
    while i < nslots and n < most:
        keys[n] = slots[i].key
        counts[n] = slots[i].n
        n += slots[i].n != 0
        i += 1
    at[0] = i
    return n


cdef void put_column(const PackedCounts* s, int32_t j, int32_t width, const uint64_t* keys, int32_t n,
                     Chunk* out) noexcept nogil:
    """Column j of n packed keys, into rows out.n.."""
    cdef uint64_t bias
    cdef uint64_t ones
    cdef uint64_t v
    cdef int32_t shift
    cdef char* to = out.cols[j].data + <int64_t> out.n * width
    cdef int32_t i
    packed_column(s, j, &shift, &ones, &bias)
    if width == 8:
        for i in range(n):
            (<uint64_t*> to)[i] = ((keys[i] >> shift) & ones) - bias
    else:
        for i in range(n):
            v = ((keys[i] >> shift) & ones) - bias
            memcpy(to + <int64_t> i * width, &v, width)      # little-endian, as all of the core
    if out.cols[j].valid != NULL:
        memset(out.cols[j].valid + out.n, 1, n)


cdef int32_t export_packed(Kernel* k, Worker* w, const PackedCounts* s, StateCursor* cursor,
                           Chunk* out) noexcept nogil:
    """Rows of all packed keys from the cursor on: `at` counts directory entries in its upper half, slots in
    its lower one. Rows, or -1: no memory. The cursor goes on to the other keys when all are out."""
    cdef const CountSlot* slots
    cdef int64_t entry = cursor.at >> 32
    cdef int64_t i = cursor.at & <int64_t> 0xFFFFFFFF
    cdef int64_t following = entry
    cdef int64_t nslots
    cdef int32_t n = 0
    cdef int32_t j
    cdef int64_t* counts = <int64_t*> out.cols[k.state.ncols - 1].data + out.n
    cdef uint64_t* keys = <uint64_t*> chunk_alloc(w, out, <int64_t> cursor.most * 8 + 8)
    if keys == NULL:
        return -1
    cursor.part = IN_OTHERS
    while packed_segment(s, &following, &slots, &nslots):
        n += used_slots(slots, &i, nslots, cursor.most - n, keys + n, counts + n)
        if i < nslots:
            cursor.part = IN_PACKED
            break
        entry = following
        i = 0
    cursor.at = (entry << 32) | i if cursor.part == IN_PACKED else 0
    for j in range(s.keys.ncols):
        put_column(s, j, k.state.width[j], keys, n, out)
    out.n += n
    return n


cdef int32_t export_named(Kernel* k, Worker* w, CountBucket* b, StateCursor* cursor, Chunk* out,
                          Failure* f) noexcept nogil:
    """Rows of the keys that the cursor names. Rows, or -1: no memory."""
    cdef StateCursor one
    cdef uint64_t key
    cdef int64_t total
    cdef int32_t found
    cdef int32_t n = 0
    while n < cursor.most and cursor.at < cursor.n:
        found = 0
        if packs(k, &b.packed, cursor.keys, cursor.slots[cursor.at], &key):
            total = packed_find(&b.packed, key)
            if total:
                if put_packed(k, w, &b.packed, key, total, out) != 0:
                    return -1
                found = 1
        else:
            one.most = 1
            one.done = 0
            one.keys = cursor.keys
            one.slots = cursor.slots + cursor.at
            one.n = 1
            one.at = 0
            found = rows_export(k, w, &b.keyed, &COUNT, &one, out, f)
            if found < 0:
                return -1
        n += found
        cursor.at += 1
    cursor.done = cursor.at >= cursor.n
    return n


cdef int32_t count_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                          Failure* f) noexcept nogil:
    """Rows (key..., count). Contract: kernel.pxd (f).
    of the general map."""
    cdef CountBucket* b = <CountBucket*> state
    cdef int32_t n
    if k.state_keys == NULL:
        return bucket_export(k, w, state, cursor, out, f)
    if packed_drain(&b.packed) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    if cursor.keys != NULL:
        n = export_named(k, w, b, cursor, out, f)
    elif cursor.part == IN_PACKED:
        n = export_packed(k, w, &b.packed, cursor, out)
        cursor.done = cursor.part == IN_OTHERS and b.keyed.count == 0
    else:
        n = rows_export(k, w, &b.keyed, &COUNT, cursor, out, f)
    out.slots = out.n
    if n < 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return n


cdef int32_t install_each(Kernel* k, CountBucket* b, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    """count_install, row by row."""
    cdef uint64_t key
    cdef int64_t total
    cdef int32_t i
    cdef int rc
    for i in range(n):
        if not packs(k, &b.packed, rows, slots[i], &key):
            if rows_install(k, b, &b.keyed, &COUNT, rows, slots + i, 1, f) != 1:
                return i
            continue
        total = count_of(k, rows, slots[i], f)
        if total == 0:
            return i
        rc = packed_install(&b.packed, key, total)
        if rc == COUNT_IS_THERE:
            failure_set(f, slots[i], FAIL_STATE, "the key is there already")
            return i
        if rc != 0:
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
    return n


cdef int install_block(Kernel* k, CountBucket* b, const Chunk* rows, const int32_t* slots,
                       int32_t n) noexcept nogil:
    """Take up to COUNT_BLOCK rows in whose keys all pack and are new. 1; 0: some are otherwise, and nothing
    changed; -1: no memory, and some may be in."""
    cdef uint64_t[COUNT_BLOCK] keys
    cdef int64_t[COUNT_BLOCK] counts
    cdef int32_t[COUNT_BLOCK] fit
    cdef int32_t[COUNT_BLOCK] unfit
    cdef int32_t nunfit
    cdef PackedCounts shape
    cdef int32_t j = k.state.ncols - 1
    cdef const uint8_t* valid = rows.cols[j].valid
    cdef int32_t i
    cdef int rc
    shape.keys = k.state_keys
    shape.bits = b.packed.bits
    if packed_keys(&shape, rows, slots, n, keys, fit, unfit, &nunfit) != n:
        return 0
    for i in range(n):
        counts[i] = (<const int64_t*> rows.cols[j].data)[slots[i]]
        if counts[i] <= 0 or (valid != NULL and valid[slots[i]] == 0):
            return 0
    rc = packed_install_block(&b.packed, keys, counts, n)
    return 0 if rc == COUNT_IS_THERE else 1 if rc == 0 else -1


cdef int32_t count_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil:
    """Take rows (key..., count) in. Contract: kernel.pxd (f)."""
    cdef CountBucket* b = <CountBucket*> state
    cdef int32_t i = 0
    cdef int32_t m
    cdef int32_t taken
    cdef int rc
    if k.state_keys == NULL:
        return bucket_install(k, w, state, rows, slots, n, f)
    if packed_drain(&b.packed) != 0:
        failure_set(f, slots[0] if n else -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while i < n:
        m = min(n - i, <int32_t> COUNT_BLOCK)
        rc = install_block(k, b, rows, slots + i, m)
        if rc < 0:
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        if rc == 0:
            taken = install_each(k, b, rows, slots + i, m, f)
            if taken < m:
                return i + taken
        i += m
    return n


cdef int32_t count_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    cdef CountBucket* b = <CountBucket*> state
    cdef uint64_t key
    cdef int32_t* others
    cdef int32_t nothers = 0
    cdef int32_t there = 0
    cdef int32_t i
    if k.state_keys == NULL:
        return bucket_remove(k, w, state, keys, slots, n, f)
    others = <int32_t*> chunk_alloc(w, keys, <int64_t> n * 4 + 4)
    if others == NULL or packed_drain(&b.packed) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    for i in range(n):
        if packs(k, &b.packed, keys, slots[i], &key):
            there += packed_remove(&b.packed, key)
        else:
            others[nothers] = slots[i]
            nothers += 1
    packed_shrink(&b.packed)
    return there + rows_remove(k, b, &b.keyed, &COUNT, keys, others, nothers)
