"""Keys of a keyed map one by one. See keyed_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    PT_VIEW, Arena, Block, Chunk, View, Worker, arena_alloc, arena_free, chunk_alloc,
)
from ordstream._core.state.key_records cimport key_equals, key_hash_record, key_hash_row, key_read, key_store
from ordstream._core.state.keyed_state cimport (
    FIRST_CAPACITY, FIRST_RECORDS, PREFETCH_ENTRIES, KeyedState, KeyEntry, KeySpec, keyed_record,
    keyed_reserve,
)
from ordstream._core.state.near_keys cimport near_drop
from ordstream._core.ground.threads cimport prefetch_write

cdef extern from "map_memory.hpp" nogil:
    void* ord_block(size_t size)
    void* ord_zeroed(size_t size)
    void ord_block_free(void* block, size_t size)


cdef inline int64_t rounded(int64_t size) noexcept nogil:
    """What arena_alloc takes for `size` bytes."""
    return (size + 15) & ~<int64_t> 15


cdef int64_t cell_of(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil:
    """The cell of a row's key, or -1: it is not there."""
    cdef int64_t mask = s.capacity - 1
    cdef uint32_t tag = <uint32_t> key_hash_row(by, c, row)
    cdef int64_t at = tag & mask
    while s.table[at].record != 0:
        if s.table[at].tag == tag and key_equals(by, c, row, keyed_record(s, s.table[at].record - 1)):
            return at
        at = (at + 1) & mask
    return -1


cdef int64_t keyed_find(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil:
    """Slot of a row's key, or -1: it is not there.

    Thread safety: the bucket's holder. Ownership: none. Cost: two cache misses.
    """
    cdef int64_t at = cell_of(s, by, c, row)
    return s.table[at].record - 1 if at >= 0 else -1


cdef void keyed_prefetch(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil:
    """Begin to load the cell of a row's key. Thread safety: the bucket's holder. Cost: a hash."""
    if s.capacity >= PREFETCH_ENTRIES:
        prefetch_write(&s.table[<uint32_t> key_hash_row(by, c, row) & (s.capacity - 1)])


cdef int64_t keyed_install(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil:
    """Take a row's key in, with a state of zero bytes.

    Thread safety: the bucket's holder. Ownership: strings are copied; records move. Returns: its slot;
    KEY_IS_THERE, or -1: no memory (nothing changed in both cases). Cost: two cache misses, and a copy where
    the map grows.
    """
    cdef int64_t slot = s.count
    cdef uint32_t tag = <uint32_t> key_hash_row(by, c, row)
    cdef int64_t mask
    cdef int64_t at
    cdef char* record
    cdef char* bytes
    cdef View* v
    cdef int32_t j
    if keyed_reserve(s, 1) != 0:                             # first, so that one walk finds key or cell
        return -1
    mask = s.capacity - 1
    at = tag & mask
    while s.table[at].record != 0:
        if s.table[at].tag == tag and key_equals(by, c, row, keyed_record(s, s.table[at].record - 1)):
            return KEY_IS_THERE
        at = (at + 1) & mask
    record = keyed_record(s, slot)
    key_read(by, c, row, record)
    if by.has_views:
        for j in range(by.ncols):
            v = <View*> (record + by.offset[j])
            if by.type[j] == PT_VIEW and v.size > 0:
                bytes = arena_alloc(&s.heap, v.size, s.pool)
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, v.size)
                v.data = bytes
    memset(record + by.size, 0, s.state_size)
    s.table[at].tag = tag
    s.table[at].record = <int32_t> slot + 1
    s.count = slot + 1
    return slot


cdef void vacate(KeyedState* s, int64_t hole) noexcept nogil:
    """Empty a cell; the cells behind it move up where their chains would have a gap."""
    cdef int64_t mask = s.capacity - 1
    cdef int64_t at = hole
    while True:
        at = (at + 1) & mask
        if s.table[at].record == 0:
            break
        if ((at - <int64_t> s.table[at].tag) & mask) >= ((at - hole) & mask):
            s.table[hole] = s.table[at]
            hole = at
    s.table[hole].tag = 0
    s.table[hole].record = 0


cdef void keyed_bury(KeyedState* s, const char* record) noexcept nogil:
    """Count the strings of a record that goes as unused. Thread safety: the bucket's holder."""
    cdef const View* v
    cdef int32_t j
    for j in range(s.keys.ncols if s.keys.has_views else 0):
        v = <const View*> (record + s.keys.offset[j])
        if s.keys.type[j] == PT_VIEW and v.size > 0:
            s.unused += rounded(v.size)


cdef inline int64_t cell_of_slot(KeyedState* s, int64_t slot) noexcept nogil:
    """The cell of a key that is there."""
    cdef int64_t mask = s.capacity - 1
    cdef int64_t at = <int64_t> (<uint32_t> key_hash_record(s.keys, keyed_record(s, slot))) & mask
    while s.table[at].record != slot + 1:
        at = (at + 1) & mask
    return at


cdef void take_out(KeyedState* s, int64_t at) noexcept nogil:
    """Forget the key of a cell."""
    cdef int64_t slot = s.table[at].record - 1
    cdef int64_t last = s.count - 1
    near_drop(s, True)                                       # slots move
    keyed_bury(s, keyed_record(s, slot))
    vacate(s, at)
    if slot != last:
        s.table[cell_of_slot(s, last)].record = <int32_t> slot + 1
        memcpy(keyed_record(s, slot), keyed_record(s, last), <size_t> s.stride)
    s.count = last


cdef bint keyed_remove(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil:
    """Forget a row's key; keyed_shrink gives memory back. What the state of its own owns is the caller's
    matter, before.

    Thread safety: the bucket's holder. Ownership: none; the last record moves. Returns: whether it was
    there. Cost: four cache misses.
    """
    cdef int64_t at = cell_of(s, by, c, row)
    if at < 0:
        return False
    take_out(s, at)
    return True


cdef void keyed_forget(KeyedState* s, int64_t slot) noexcept nogil:
    """keyed_remove of the key of a slot: the last record moves into it."""
    take_out(s, cell_of_slot(s, slot))


cdef void keyed_reindex(KeyedState* s, int64_t kept) noexcept nogil:
    """Make the records 0..kept-1 all that there are, and fill the table with them.

    Thread safety: the bucket's holder. Ownership: none. Cost: a pass over the table, a hash and a cache
    miss per key.
    """
    cdef int64_t mask = s.capacity - 1
    cdef int64_t at
    cdef int64_t slot
    cdef uint32_t tag
    near_drop(s, True)
    memset(s.table, 0, <size_t> s.capacity * sizeof(KeyEntry))
    for slot in range(kept):
        tag = <uint32_t> key_hash_record(s.keys, keyed_record(s, slot))
        at = tag & mask
        while s.table[at].record != 0:
            at = (at + 1) & mask
        s.table[at].tag = tag
        s.table[at].record = <int32_t> slot + 1
    s.count = kept


cdef void shrink_table(KeyedState* s, int64_t keys) noexcept nogil:
    """Halve the table until that many keys make it half as full as it may be. Without memory it stays."""
    cdef int64_t capacity = s.capacity
    cdef int64_t mask
    cdef int64_t at
    cdef int64_t i
    cdef KeyEntry* table
    while capacity > FIRST_CAPACITY and 4 * keys <= capacity // 2:
        capacity //= 2
    if capacity == s.capacity:
        return
    table = <KeyEntry*> ord_zeroed(<size_t> capacity * sizeof(KeyEntry))
    if table == NULL:
        return
    mask = capacity - 1
    for i in range(s.capacity):
        if s.table[i].record != 0:
            at = s.table[i].tag & mask
            while table[at].record != 0:
                at = (at + 1) & mask
            table[at] = s.table[i]
    ord_block_free(s.table, <size_t> s.capacity * sizeof(KeyEntry))
    s.table = table
    s.capacity = capacity
    s.limit = capacity // 2


cdef void shrink_records(KeyedState* s, int64_t keys) noexcept nogil:
    """Halve the room for records until that many keys make it half full. Without memory it stays."""
    cdef int64_t reserved = s.reserved
    cdef char* records
    while reserved > FIRST_RECORDS and 4 * keys <= reserved:
        reserved //= 2
    if reserved == s.reserved:
        return
    records = <char*> ord_block(<size_t> (reserved * s.stride))
    if records == NULL:
        return
    memcpy(records, s.records, <size_t> (s.count * s.stride))
    ord_block_free(s.records, <size_t> (s.reserved * s.stride))
    s.records = records
    s.reserved = reserved


cdef void shrink_heap(KeyedState* s) noexcept nogil:
    """Copy the strings together. Without memory they stay where they are."""
    cdef Arena heap
    cdef View* v
    cdef char* bytes
    cdef char* top
    cdef int64_t i
    cdef int32_t j
    memset(&heap, 0, sizeof(Arena))
    for i in range(s.count):                                 # room first: what moves must all have moved
        for j in range(s.keys.ncols):
            v = <View*> (keyed_record(s, i) + s.keys.offset[j])
            if s.keys.type[j] == PT_VIEW and v.size > 0 and arena_alloc(&heap, v.size, s.pool) == NULL:
                arena_free(&heap, s.pool)
                return
    heap.current = heap.first
    top = <char*> (heap.first + 1) if heap.first != NULL else NULL
    for i in range(s.count):
        for j in range(s.keys.ncols):
            v = <View*> (keyed_record(s, i) + s.keys.offset[j])
            if s.keys.type[j] == PT_VIEW and v.size > 0:
                if rounded(v.size) > <char*> (heap.current + 1) + heap.current.size - top:
                    heap.current = heap.current.next
                    top = <char*> (heap.current + 1)
                bytes = top
                top += rounded(v.size)
                memcpy(bytes, v.data, v.size)
                v.data = bytes
    if heap.first != NULL:
        heap.top = top
        heap.end = <char*> (heap.current + 1) + heap.current.size
    arena_free(&s.heap, s.pool)
    s.heap = heap
    s.unused = 0


cdef void keyed_settle(KeyedState* s, int64_t most) noexcept nogil:
    """Give memory back after keys were removed, but for the room that `most` keys need. Without memory to
    move into, what is left stays where it is.

    Thread safety: the bucket's holder. Ownership: none; records and strings move. Cost: nothing, or a copy
    of what is left.
    """
    cdef const Block* b = s.heap.first
    cdef int64_t bytes = 0
    shrink_table(s, most)
    shrink_records(s, most)
    if s.unused:
        while b != NULL:
            bytes += b.size
            b = b.next
        if s.count == 0 or 2 * s.unused >= bytes:
            shrink_heap(s)


cdef void keyed_sift(
    KeyedState* s, Kernel* k, bint (*alive)(Kernel*, const char*) noexcept nogil,
) noexcept nogil:
    """Forget the keys whose state is not alive; other records move, in their order.

    Thread safety: the bucket's holder. Ownership: such a state owns nothing beside its own bytes. Cost: a
    pass over the records; where a key goes, one over the table and a cache miss per key that stays.
    """
    cdef int64_t n = s.count
    cdef int64_t kept = 0
    cdef int64_t i
    for i in range(n):
        if not alive(k, keyed_record(s, i) + s.keys.size):
            keyed_bury(s, keyed_record(s, i))
            continue
        if kept != i:
            memcpy(keyed_record(s, kept), keyed_record(s, i), <size_t> s.stride)
        kept += 1
    if kept != n:
        keyed_reindex(s, kept)
        keyed_settle(s, n)


cdef void keyed_shrink(KeyedState* s) noexcept nogil:
    """keyed_settle without room for more keys than there are."""
    keyed_settle(s, s.count)


cdef int key_put(const KeySpec* ks, const char* record, Worker* w, Chunk* out, int32_t index) noexcept nogil:
    """Write a key into the first columns of a reserved row; its strings are copied into the chunk.

    Thread safety: the owner of `out`. Ownership: out's arena. Returns: 0, or -1: no memory.
    column, and the strings.
    """
    cdef View* v
    cdef char* bytes
    cdef int32_t j
    if key_store(ks, record, w, out, index) != 0:
        return -1
    if ks.has_views:
        for j in range(ks.ncols):
            v = &(<View*> out.cols[j].data)[index]
            if ks.type[j] == PT_VIEW and v.size > 0:
                bytes = chunk_alloc(w, out, v.size)
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, v.size)
                v.data = bytes
    return 0
