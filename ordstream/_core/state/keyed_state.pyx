"""Key records and the keyed map. See keyed_state.pxd for the design and the meaning of every field."""
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset
from ordstream._core.ground.chunk cimport (
    PT_F32, PT_F64, PT_I64, PT_U64, PT_VIEW, Chunk, Column, Layout, View, Worker,
    arena_alloc, arena_free, chunk_alloc, chunk_set_valid, row_slot,
)
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.key_words cimport word_at, word_put
from ordstream._core.state.key_layout cimport lay_fields, record_stride

cdef extern from "key_tools.hpp" nogil:
    uint64_t ord_hash_bytes(const char* p, int64_t n, uint64_t seed)

cdef extern from "map_memory.hpp" nogil:
    void* ord_block(size_t size)
    void* ord_zeroed(size_t size)
    void* ord_grown(void* old, size_t used, size_t old_size, size_t size)  # NULL: `old` is untouched
    void ord_block_free(void* block, size_t size)

cdef uint64_t GOLDEN = <uint64_t> 0x9E3779B97F4A7C15
cdef uint64_t NULL_HASH = <uint64_t> 0x1B873593CC9E2D51


cdef uint64_t key_hash_row(const KeySpec* ks, const Chunk* c, int32_t row) noexcept nogil:
    """Hash of one row's key, the same in every process. Thread safety: pure. Cost: ~1 ns per column."""
    cdef uint64_t h = GOLDEN
    cdef uint64_t part
    cdef const Column* col
    cdef const View* v
    cdef int32_t j
    for j in range(ks.ncols):
        col = &c.cols[ks.column[j]]
        if col.valid != NULL and col.valid[row] == 0:
            part = NULL_HASH
        elif ks.type[j] == PT_VIEW:
            v = &(<const View*> col.data)[row]
            part = ord_hash_bytes(v.data, v.size, GOLDEN)
        else:
            part = word_at(ks.type[j], col.data, row)
        if ks.ncols == 1:
            return mix(part)
        h = mix(h ^ part)
    return h


cdef uint64_t key_hash_record(const KeySpec* ks, const char* record) noexcept nogil:
    """Hash of a record's key: that of key_hash_row for a row with this key. Thread safety: pure."""
    cdef uint64_t nulls = (<const uint64_t*> record)[0]
    cdef uint64_t h = GOLDEN
    cdef uint64_t part
    cdef const View* v
    cdef int32_t j
    for j in range(ks.ncols):
        v = <const View*> (record + ks.offset[j])
        if (nulls >> j) & 1:
            part = NULL_HASH
        elif ks.type[j] == PT_VIEW:
            part = ord_hash_bytes(v.data, v.size, GOLDEN)
        else:
            part = (<const uint64_t*> v)[0]
        if ks.ncols == 1:
            return mix(part)
        h = mix(h ^ part)
    return h


cdef void key_hash(const KeySpec* ks, Chunk* c, const Layout* layout) noexcept nogil:
    """Fill c.hash[slot] (allocated by the caller, one per slot) for every selected row.

    Thread safety: the chunk's owner. Cost: ~1 ns per row and fixed-width column.
    """
    cdef int32_t j
    cdef int32_t k
    cdef int32_t row
    cdef int32_t type
    cdef const Column* col = &c.cols[ks.column[0]] if ks.ncols else NULL
    cdef uint64_t* h = c.hash
    if ks.simple and col.valid == NULL and c.sel == NULL and (ks.type[0] == PT_I64 or ks.type[0] == PT_U64):
        for k in range(c.n):
            h[k] = mix((<const uint64_t*> col.data)[k])
        return
    if ks.has_views or ks.ncols == 0 or (ks.simple and col.valid != NULL):
        for k in range(c.n):
            row = row_slot(c, k)
            h[row] = key_hash_row(ks, c, row)
        return
    if ks.simple:
        for k in range(c.n):
            row = row_slot(c, k)
            h[row] = mix(word_at(ks.type[0], col.data, row))
        return
    for k in range(c.n):
        h[row_slot(c, k)] = GOLDEN
    for j in range(ks.ncols):                                # column by column, the same function
        col = &c.cols[ks.column[j]]
        type = ks.type[j]
        if col.valid != NULL:
            for k in range(c.n):
                row = row_slot(c, k)
                h[row] = mix(h[row] ^ (word_at(type, col.data, row) if col.valid[row] else NULL_HASH))
        elif c.sel == NULL and (type == PT_I64 or type == PT_U64):
            for k in range(c.n):
                h[k] = mix(h[k] ^ (<const uint64_t*> col.data)[k])
        else:
            for k in range(c.n):
                row = row_slot(c, k)
                h[row] = mix(h[row] ^ word_at(type, col.data, row))


cdef int key_compare(const KeySpec* ks, const char* a, const char* b) noexcept nogil:
    """<0, 0, >0 as the records sort. Thread safety: pure. Cost: a few ns per column until the first
    difference."""
    cdef uint64_t nulls_a = (<const uint64_t*> a)[0]
    cdef uint64_t nulls_b = (<const uint64_t*> b)[0]
    cdef int32_t j
    cdef int32_t type
    cdef bint null_a
    cdef bint null_b
    cdef const char* p
    cdef const char* q
    cdef int64_t n
    cdef int order
    for j in range(ks.ncols):
        null_a = (nulls_a >> j) & 1
        null_b = (nulls_b >> j) & 1
        if null_a or null_b:
            if null_a != null_b:
                return -1 if null_a else 1
            continue
        p = a + ks.offset[j]
        q = b + ks.offset[j]
        type = ks.type[j]
        if type == PT_VIEW:
            n = min((<const View*> p).size, (<const View*> q).size)
            order = memcmp((<const View*> p).data, (<const View*> q).data, n) if n else 0
            if order != 0:
                return order
            if (<const View*> p).size != (<const View*> q).size:
                return -1 if (<const View*> p).size < (<const View*> q).size else 1
        elif (<const uint64_t*> p)[0] == (<const uint64_t*> q)[0]:
            continue
        elif type == PT_F64 or type == PT_F32:
            if isnan((<const double*> p)[0]):
                return 1
            if isnan((<const double*> q)[0]):
                return -1
            return -1 if (<const double*> p)[0] < (<const double*> q)[0] else 1
        elif type == PT_U64:
            return -1 if (<const uint64_t*> p)[0] < (<const uint64_t*> q)[0] else 1
        else:
            return -1 if (<const int64_t*> p)[0] < (<const int64_t*> q)[0] else 1
    return 0


cdef void key_read(const KeySpec* ks, const Chunk* c, int32_t row, char* record) noexcept nogil:
    """The key of a row as a record whose views still point into the chunk.

    Thread safety: pure. Ownership: `record` (ks.size bytes) is the caller's; views are borrowed. Returns:
    nothing. Cost: ~1 ns per column.
    """
    cdef uint64_t nulls = 0
    cdef const Column* col
    cdef int32_t j
    for j in range(ks.ncols):
        col = &c.cols[ks.column[j]]
        if col.valid != NULL and col.valid[row] == 0:
            nulls |= (<uint64_t> 1) << j
            memset(record + ks.offset[j], 0, 16 if ks.type[j] == PT_VIEW else 8)
        elif ks.type[j] == PT_VIEW:
            (<View*> (record + ks.offset[j]))[0] = (<const View*> col.data)[row]
        else:
            (<uint64_t*> (record + ks.offset[j]))[0] = word_at(ks.type[j], col.data, row)
    (<uint64_t*> record)[0] = nulls


cdef bint key_equals(const KeySpec* ks, const Chunk* c, int32_t row, const char* record) noexcept nogil:
    """Whether a row's key is that of a record. Thread safety: pure."""
    cdef uint64_t nulls = (<const uint64_t*> record)[0]
    cdef const Column* col
    cdef const View* v
    cdef const View* stored
    cdef int32_t j
    cdef bint is_null
    for j in range(ks.ncols):
        col = &c.cols[ks.column[j]]
        is_null = col.valid != NULL and col.valid[row] == 0
        if is_null != <bint> ((nulls >> j) & 1):
            return False
        if is_null:
            continue
        if ks.type[j] == PT_VIEW:
            v = &(<const View*> col.data)[row]
            stored = <const View*> (record + ks.offset[j])
            if v.size != stored.size or (v.size and memcmp(v.data, stored.data, v.size) != 0):
                return False
        elif (<const uint64_t*> (record + ks.offset[j]))[0] != word_at(ks.type[j], col.data, row):
            return False
    return True


cdef int key_store(const KeySpec* ks, const char* record, Worker* w, Chunk* out,
                   int32_t index) noexcept nogil:
    """Write a record's key into columns 0..ncols-1 of `out` (reserved) at `index`.

    Thread safety: the owner of `out`. Ownership: string columns point to the record's bytes, which live as
    long as the state.
    Returns: 0, or -1: no memory. Cost: ~1 ns per column.
    """
    cdef uint64_t nulls = (<const uint64_t*> record)[0]
    cdef const Column* cols = out.cols                       # what is written may be anything, to a compiler
    cdef const int32_t* types = ks.type
    cdef const int32_t* offset = ks.offset
    cdef int32_t j
    for j in range(ks.ncols):
        if types[j] == PT_VIEW:
            (<View*> cols[j].data)[index] = (<const View*> (record + offset[j]))[0]
        else:
            word_put(types[j], cols[j].data, index, (<const uint64_t*> (record + offset[j]))[0])
        if (nulls >> j) & 1:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            cols[j].valid[index] = 0
        elif cols[j].valid != NULL:
            cols[j].valid[index] = 1
    return 0


cdef int key_copy(const KeySpec* ks, const char* record, Worker* w, Chunk* out, char* to) noexcept nogil:
    """Copy a record to `to` (ks.size bytes in out's arena), its strings into out's arena.

    Thread safety: the owner of `out`. Ownership: out's arena. Returns: 0, or -1: no memory. Cost: a copy.
    """
    cdef View* v
    cdef char* bytes
    cdef int32_t j
    memcpy(to, record, ks.size)
    if ks.has_views:
        for j in range(ks.ncols):
            v = <View*> (to + ks.offset[j])
            if ks.type[j] == PT_VIEW and v.size > 0:
                bytes = chunk_alloc(w, out, v.size)
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, v.size)
                v.data = bytes
    return 0


# ---------------------------------------------------------------------------------------------- map


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
    s.table = NULL
    s.records = NULL
    if s.heap.first != NULL:
        arena_free(&s.heap, s.pool)


cdef int64_t keyed_bytes(const KeyedState* s) noexcept nogil:
    """Bytes of table and records; the pool counts those of strings. Any thread that holds the bucket."""
    return <int64_t> (table_bytes(s) + records_bytes(s))


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


cdef int64_t candidate(KeyedState* s, const Chunk* c, int32_t row, uint32_t tag) noexcept nogil:
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
            return slot
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


cdef inline void tags_of(const KeyedState* s, const Chunk* c, const uint64_t* words, const int32_t* rows,
                         int32_t n, uint32_t* tags) noexcept nogil:
    """Lower halves of the rows' hashes: c.hash where the chunk has it."""
    cdef const uint64_t* hash = c.hash
    cdef int32_t k
    if hash != NULL:
        for k in range(n):
            tags[k] = <uint32_t> hash[rows[k]]
    elif words != NULL:
        for k in range(n):
            tags[k] = <uint32_t> mix(words[rows[k]])
    else:
        for k in range(n):
            tags[k] = <uint32_t> key_hash_row(s.keys, c, rows[k])


cdef int keyed_lookup_block(KeyedState* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                            int32_t following, LookupAhead* ahead, int32_t* out_slots) noexcept nogil:
    """keyed_lookup for n <= LOOKUP_BLOCK rows; prefetches the entries of the `following` rows behind them.

    `following` is at most LOOKUP_BLOCK too.

    The next call with the same `ahead` is for exactly these `following` rows, or sets ahead.n = 0.
    Thread safety, ownership, returns, cost: as keyed_lookup.
    """
    cdef const uint64_t* words = NULL                        # simple 64-bit key without nulls: its values
    cdef const uint64_t* record
    cdef const KeyEntry* table
    cdef char* records
    cdef uint32_t[LOOKUP_BLOCK] tags
    cdef int64_t stride = s.stride
    cdef int64_t mask
    cdef int64_t first
    cdef int64_t at
    cdef int64_t slot
    cdef int64_t known
    cdef uint64_t fresh = 0                                  # rows that brought a new key, bit by bit
    cdef uint32_t tag
    cdef int32_t k
    cdef int32_t line
    cdef bint far
    if keyed_ensure(s, n) != 0:
        return -1
    if (s.keys.simple and (s.keys.type[0] == PT_I64 or s.keys.type[0] == PT_U64)
            and c.cols[s.keys.column[0]].valid == NULL):
        words = <const uint64_t*> c.cols[s.keys.column[0]].data
    table = s.table
    records = s.records
    mask = s.capacity - 1
    far = s.capacity >= PREFETCH_ENTRIES and n + following > 1
    if ahead.n == n:
        memcpy(tags, ahead.tags, <size_t> n * sizeof(uint32_t))
    else:
        tags_of(s, c, words, rows, n, tags)
        if far:
            for k in range(n):
                prefetch_write(&table[tags[k] & mask])
    ahead.n = 0
    if not far and words != NULL:                            # nothing to wait for: compare at once
        for k in range(n):
            tag = tags[k]
            first = tag & mask
            at = (first + (table[first].tag != tag)) & mask
            slot = table[at].record - 1
            if table[at].tag != tag or slot < 0 or table[first].record == 0:
                slot = candidate(s, c, rows[k], tag)
                if slot < 0:
                    return -1
            record = <const uint64_t*> (records + slot * stride)
            if record[1] != words[rows[k]] or record[0] != 0:
                slot = find_or_insert(s, c, rows[k], tag)    # no strings: cannot fail
            out_slots[k] = <int32_t> slot
        return 0
    for k in range(n):
        tag = tags[k]
        first = tag & mask
        at = (first + (table[first].tag != tag)) & mask      # the first or the second cell, without a branch
        slot = table[at].record - 1
        if table[at].tag != tag or slot < 0 or table[first].record == 0:
            known = s.count
            slot = candidate(s, c, rows[k], tag)
            if slot < 0:
                return -1
            fresh |= <uint64_t> (slot == known) << k
        out_slots[k] = <int32_t> slot
        if far:
            prefetch_write(records + slot * stride)
            if stride > 64:
                prefetch_write(records + slot * stride + stride - 1)
                for line in range(64, <int32_t> stride if stride > 128 else 0, 64):
                    prefetch_write(records + slot * stride + line)
    if far and following > 0:
        tags_of(s, c, words, rows + n, following, ahead.tags)
        for k in range(following):
            prefetch_write(&table[ahead.tags[k] & mask])
        ahead.n = following
    for k in range(n):
        if fresh >> k & 1:
            continue
        record = <const uint64_t*> (records + out_slots[k] * stride)
        if words != NULL:
            if record[1] == words[rows[k]] and record[0] == 0:
                continue
        elif key_equals(s.keys, c, rows[k], <const char*> record):
            continue
        slot = find_or_insert(s, c, rows[k], tags[k])
        if slot < 0:
            return -1
        out_slots[k] = <int32_t> slot
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
