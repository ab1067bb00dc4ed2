"""The keyed map. See keyed_state.pxd for the design and the meaning of every field."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    PT_I64, PT_U64, PT_VIEW, Chunk, View, Worker, arena_alloc, arena_free,
)
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.key_layout cimport lay_fields, record_stride
from ordstream._core.state.key_records cimport key_equals, key_hash_row, key_read
from ordstream._core.state.near_keys cimport near_drop, near_note, near_slots
from ordstream._core.state.word_lookup cimport fetch_records, tagged, word_slots

cdef extern from "map_memory.hpp" nogil:
    void* ord_block(size_t size)
    void* ord_zeroed(size_t size)
    void* ord_grown(void* old, size_t used, size_t old_size, size_t size)  # NULL: `old` is untouched
    void ord_block_free(void* block, size_t size)

cdef inline size_t table_bytes(const KeyedState* s) noexcept nogil:
    return <size_t> s.capacity * sizeof(KeyEntry)


cdef inline size_t records_bytes(const KeyedState* s) noexcept nogil:
    return <size_t> (s.reserved * s.stride)


cdef int keyed_init(KeyedState* s, const KeySpec* ks, int32_t state_size, ChunkPool* pool) noexcept nogil:
    """An empty map whose states start as zero bytes.

    Thread safety: the creator. Ownership: the caller, until keyed_free. `pool` counts the heap's bytes.
    Returns: 0, or -1: no memory. Cost: two allocations of a few hundred bytes.
    """
    return keyed_init_for(s, ks, state_size, pool, FIRST_CAPACITY, FIRST_RECORDS)


cdef int keyed_init_for(
    KeyedState* s, const KeySpec* ks, int32_t state_size, ChunkPool* pool, int64_t capacity, int64_t reserved
) noexcept nogil:
    """keyed_init with a table and records of another map's sizes."""
    memset(<void*> s, 0, sizeof(KeyedState))
    s.keys = ks
    s.state_size = (state_size + 7) & ~7
    s.stride = record_stride(ks.size + s.state_size)
    s.pool = pool
    s.capacity = capacity
    s.limit = capacity // 2
    s.reserved = reserved
    s.table = <KeyEntry*> ord_zeroed(table_bytes(s))
    s.records = <char*> ord_block(records_bytes(s))
    if s.table == NULL or s.records == NULL:
        keyed_free(s)
        return -1
    return 0


cdef void keyed_free(KeyedState* s) noexcept nogil:
    """Free everything. Safe on zeroed memory."""
    ord_block_free(s.table, table_bytes(s))
    ord_block_free(s.records, records_bytes(s))
    near_drop(s, True)
    s.table = NULL
    s.records = NULL
    if s.heap.first != NULL:
        arena_free(&s.heap, s.pool)


cdef int64_t keyed_bytes(const KeyedState* s) noexcept nogil:
    """Bytes of table, records and index; the pool counts those of strings. Any thread that holds the
    bucket."""
    return <int64_t> (table_bytes(s) + records_bytes(s)) + s.near_room * <int64_t> sizeof(int32_t)


cdef int grow_table(KeyedState* s, int64_t keys) noexcept nogil:
    """Room for `keys` keys. Doubling splits each cell in two: two sequential streams fill the new table.

    Returns: 0, or -1: no memory.
    """
    cdef int64_t capacity = s.capacity
    cdef int64_t mask
    cdef int64_t i
    cdef int64_t at
    cdef KeyEntry* table
    while capacity // 2 < keys:
        capacity *= 2
    if capacity == s.capacity:
        return 0
    table = <KeyEntry*> ord_zeroed(capacity * sizeof(KeyEntry))
    if table == NULL:
        return -1
    mask = capacity - 1
    for i in range(s.capacity):
        if s.table[i].record != 0:
            at = s.table[i].tag & mask
            while table[at].record != 0:
                at = (at + 1) & mask
            table[at] = s.table[i]
    ord_block_free(s.table, table_bytes(s))
    s.table = table
    s.capacity = capacity
    s.limit = capacity // 2
    return 0


cdef int grow_records(KeyedState* s, int64_t needed) noexcept nogil:
    """Room for `needed` records, which may move. 0, or -1: no memory, or more than a slot can number."""
    cdef int64_t reserved = s.reserved
    cdef char* records
    while reserved < needed:
        reserved *= 2
    if reserved > 0x7fffffff:
        return -1
    records = <char*> ord_grown(s.records, <size_t> (s.count * s.stride), records_bytes(s),
                                <size_t> (reserved * s.stride))
    if records == NULL:
        return -1
    s.records = records
    s.reserved = reserved
    return 0


cdef inline int keyed_ensure(KeyedState* s, int64_t more) noexcept nogil:
    """Room for `more` new keys, so that inserting cannot fail for lack of table or records."""
    if s.count + more > s.limit and grow_table(s, s.count + more) != 0:
        return -1
    if s.count + more > s.reserved and grow_records(s, s.count + more) != 0:
        return -1
    return 0


cdef int keyed_reserve(KeyedState* s, int64_t more) noexcept nogil:
    """Room for `more` new keys.

    Thread safety: the bucket's holder. Ownership: none; records move. Returns: 0, or -1: no memory. Cost: a
    copy where the map grows.
    """
    return keyed_ensure(s, more)


cdef int64_t insert(KeyedState* s, const Chunk* c, int32_t row) noexcept nogil:
    """Append the record of a new key (room ensured). Its slot, or -1: no memory for its strings."""
    cdef int64_t slot = s.count
    cdef char* record = keyed_record(s, slot)
    cdef View* v
    cdef char* bytes
    cdef int32_t j
    key_read(s.keys, c, row, record)
    if s.keys.has_views:
        for j in range(s.keys.ncols):
            v = <View*> (record + s.keys.offset[j])
            if s.keys.type[j] == PT_VIEW and v.size > 0:
                bytes = arena_alloc(&s.heap, v.size, s.pool)
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, v.size)
                v.data = bytes
    memset(record + s.keys.size, 0, s.state_size)
    s.count = slot + 1
    return slot


cdef int32_t candidate(KeyedState* s, const Chunk* c, int32_t row, uint32_t tag) noexcept nogil:
    """Slot of the first record that may be the row's; if there is none, a new one. -1: no memory."""
    cdef int64_t mask = s.capacity - 1
    cdef int64_t at = tag & mask
    cdef int64_t slot
    cdef KeyEntry* e
    while True:
        e = &s.table[at]
        if e.record == 0:
            slot = insert(s, c, row)
            if slot >= 0:
                e.tag = tag
                e.record = <int32_t> slot + 1
            return <int32_t> slot
        if e.tag == tag:
            return e.record - 1
        at = (at + 1) & mask


cdef int64_t find_or_insert(KeyedState* s, const Chunk* c, int32_t row, uint32_t tag) noexcept nogil:
    """Slot of a row's key, inserted where it is new (room ensured). -1: no memory."""
    cdef int64_t mask = s.capacity - 1
    cdef int64_t at = tag & mask
    cdef int64_t slot
    cdef KeyEntry* e
    while True:
        e = &s.table[at]
        if e.record == 0:
            slot = insert(s, c, row)
            if slot >= 0:
                e.tag = tag
                e.record = <int32_t> slot + 1
            return slot
        if e.tag == tag and key_equals(s.keys, c, row, keyed_record(s, e.record - 1)):
            return e.record - 1
        at = (at + 1) & mask


cdef int64_t keyed_upsert(KeyedState* s, const Chunk* c, int32_t row, uint64_t hash) noexcept nogil:
    """Slot of one row's key, inserting a zeroed state where it is new.

    Thread safety: the bucket's holder. Ownership: none. Returns: the slot, or -1: no memory. Cost: two cache
    misses.
    """
    if keyed_ensure(s, 1) != 0:
        return -1
    return find_or_insert(s, c, row, <uint32_t> hash)


cdef inline void tags_of(const KeyedState* s, const Chunk* c, const int32_t* rows, int32_t n,
                         uint32_t* tags) noexcept nogil:
    """Lower halves of the rows' hashes: c.hash where the chunk has it."""
    cdef const uint64_t* hash = c.hash
    cdef int32_t k
    for k in range(n):
        tags[k] = <uint32_t> (hash[rows[k]] if hash != NULL else key_hash_row(s.keys, c, rows[k]))


cdef int keyed_lookup_block(KeyedState* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                            int32_t following, LookupAhead* ahead, int32_t* out_slots) noexcept nogil:
    """keyed_lookup for n <= LOOKUP_BLOCK rows; prefetches the entries of the `following` rows behind them.

    `following` is at most LOOKUP_BLOCK too.

    The next call with the same `ahead` is for exactly these `following` rows, or sets ahead.n = 0.
    Thread safety, ownership, returns, cost: as keyed_lookup.
    """
    cdef uint32_t[LOOKUP_BLOCK] tags
    cdef uint64_t missing                                    # rows to be looked up alone, bit by bit
    cdef const uint64_t* words
    cdef int64_t slot
    cdef int32_t k
    cdef bint far
    if keyed_ensure(s, n) != 0:
        return -1
    far = s.capacity >= PREFETCH_ENTRIES and n + following > 1
    words = NULL
    if (s.keys.simple and (s.keys.type[0] == PT_I64 or s.keys.type[0] == PT_U64)
            and c.cols[s.keys.column[0]].valid == NULL):
        words = <const uint64_t*> c.cols[s.keys.column[0]].data
    if words == NULL:
        if key_slots(s, c, rows, n, following, far, ahead, tags, out_slots, &missing) != 0:
            return -1
    else:
        if s.near != NULL and near_slots(s, words, rows, n, out_slots) == 0:
            ahead.n = 0
            if far:
                fetch_records(s, out_slots, n)
            return 0
        missing = word_slots(s, c, words, rows, n, following, far, ahead, tags, out_slots)
    k = 0
    while missing:
        if missing & 1:
            slot = find_or_insert(s, c, rows[k], tags[k])
            if slot < 0:
                return -1
            out_slots[k] = <int32_t> slot
        missing >>= 1
        k += 1
    if words != NULL and not s.near_never:
        for k in range(n):
            near_note(s, words[rows[k]], out_slots[k])
    return 0


cdef int key_slots(KeyedState* s, const Chunk* c, const int32_t* rows, int32_t n, int32_t following,
                   bint far, LookupAhead* ahead, uint32_t* tags, int32_t* out_slots,
                   uint64_t* others) noexcept nogil:
    """word_slots for any key: `others` gets the bits of rows whose keys are not those of their tags. New
    keys are inserted. 0, or -1: no memory."""
    cdef const char* records = s.records
    cdef int64_t stride = s.stride
    cdef int64_t mask = s.capacity - 1
    cdef uint64_t missing = 0
    cdef uint64_t fresh = 0                                  # rows that brought a new key, bit by bit
    cdef int64_t known
    cdef int32_t slot
    cdef int32_t k
    cdef int32_t line
    if ahead.n == n:
        memcpy(tags, ahead.tags, <size_t> n * sizeof(uint32_t))
    else:
        tags_of(s, c, rows, n, tags)
        if far:
            for k in range(n):
                prefetch_write(&s.table[tags[k] & mask])
    ahead.n = 0
    for k in range(n):
        slot = tagged(s.table, mask, tags[k])
        if slot < 0:
            known = s.count
            slot = candidate(s, c, rows[k], tags[k])
            if slot < 0:
                return -1
            fresh |= <uint64_t> (slot == known) << k
        out_slots[k] = slot
        if far:
            prefetch_write(records + slot * stride)
            if stride > 64:
                prefetch_write(records + slot * stride + stride - 1)
                for line in range(64, <int32_t> stride if stride > 128 else 0, 64):
                    prefetch_write(records + slot * stride + line)
    if far and following > 0:
        tags_of(s, c, rows + n, following, ahead.tags)
        for k in range(following):
            prefetch_write(&s.table[ahead.tags[k] & mask])
        ahead.n = following
    for k in range(n):
        if not fresh >> k & 1 and not key_equals(s.keys, c, rows[k], records + out_slots[k] * stride):
            missing |= (<uint64_t> 1) << k
    others[0] = missing
    return 0


cdef int keyed_lookup(KeyedState* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                      int32_t* out_slots) noexcept nogil:
    """The record slot of each row; a new key gets a zeroed state. Uses c.hash where the chunk has it.

    Thread safety: the bucket's holder. Ownership: none; record addresses move when later lookups insert.
    Returns: 0, or -1: no memory (every inserted key is whole). Cost per row of an existing int64 key: ~2 ns
    at 1e3 keys, ~10 ns at 1e6.
    """
    cdef LookupAhead ahead
    cdef int32_t k0 = 0
    cdef int32_t m
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if keyed_lookup_block(s, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK), &ahead,
                              out_slots + k0) != 0:
            return -1
        k0 += m
    return 0


cdef class KeySpecOwner:
    """Arrays of a KeySpec. Memory ownership: allocates in __cinit__, frees in __dealloc__.

    Parameters
    ----------
    columns : sequence of int
        Key columns, indexes into the operator's input; at most 64.
    types : sequence of int
        PhysicalType of every input column.

    Raises
    ------
    TypeError, ValueError
        A list or decimal column can't be a key; more than 64 columns.
    """

    def __cinit__(self, columns, types):
        lay_fields(&self.spec, columns, types)

    def __dealloc__(self):
        free(self.spec.column)
        free(self.spec.type)
        free(self.spec.offset)
