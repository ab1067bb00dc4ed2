"""The state of a top-k. See top_state.pxd."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.list_values cimport view_bytes
from ordstream._core.ground.blocks cimport block_give, block_take, blocks_bytes, blocks_free, size_class
from ordstream._core.ground.chunk cimport (
    PT_F32, PT_F64, PT_U64, PT_VIEW, Chunk, Column, View, Worker, arena_alloc, chunk_alloc, chunk_set_valid,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.ascending_rows cimport ascending_clear, column_in, ranks_in
from ordstream._core.state.key_records cimport key_compare, key_hash_row, key_read
from ordstream._core.state.keyed_state cimport (
    FIRST_CAPACITY, FIRST_RECORDS, KeyedState, KeyEntry, keyed_bytes, keyed_free, keyed_init, keyed_init_for,
    keyed_record, keyed_upsert,
)
from ordstream._core.state.ordered_places cimport (
    ord_places_erase, ord_places_free, ord_places_insert, ord_places_new,
)
from ordstream._core.state.ranking cimport float_rank

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum:
    HEAP_FIRST = 32        # keys that a heap first has room for
    EVICTED_SLACK = 1024   # records of evicted keys that are always tolerated


cdef void ranks_of(const TopContext* x, const Chunk* c, const int32_t* rows, int32_t n,
                   int64_t* ranks) noexcept nogil:
    """Ranks of up to BLOCK rows."""
    cdef int32_t i
    load(ranks, x.by_type, c.cols[x.by].data, rows, n)
    if x.by_type == PT_F64 or x.by_type == PT_F32:
        for i in range(n):
            ranks[i] = float_rank(ranks[i])
    elif x.by_type == PT_U64:
        for i in range(n):
            ranks[i] = ranks[i] ^ INT64_MIN


cdef int store_row(const TopContext* x, TopBucket* b, Entry* e, const Chunk* c, int32_t row) noexcept nogil:
    """Replace a key's row. 0, or -1: no memory."""
    cdef char* base = <char*> e
    cdef uint8_t* valid = <uint8_t*> (base + x.offset[x.ncols])
    cdef const Column* col
    cdef const View* v
    cdef View* old
    cdef char* block
    cdef int32_t j
    cdef int64_t size
    for j in range(x.ncols):
        col = &c.cols[j]
        old = <View*> (base + x.offset[j])
        if x.bytes[j]:
            if old.size:
                block_give(&b.blocks, <char*> old.data, size_class(view_bytes(old.size, x.bytes[j])))
            memset(old, 0, sizeof(View))
        if col.data == NULL or (col.valid != NULL and col.valid[row] == 0):
            valid[j] = col.data == NULL
            continue
        valid[j] = 1
        if not x.bytes[j]:
            memcpy(base + x.offset[j], col.data + <int64_t> row * x.width[j], x.width[j])
            continue
        v = &(<const View*> col.data)[row]
        size = view_bytes(v.size, x.bytes[j])
        if size:
            block = block_take(&b.blocks, size_class(size))
            if block == NULL:
                return -1
            memcpy(block, v.data, size)
            old.data = block
            old.size = v.size
    return 0


cdef int put_row(const TopContext* x, Worker* w, const Entry* e, Chunk* out, int32_t index,
                 const int32_t* columns, bint copies) noexcept nogil:
    """Write a key's row into a reserved one.

    `columns`: where each column of the input goes; NULL: to its own place. `copies`: copy strings and lists
    as well, because the state may change before they are read. Thread safety: the state's holder. Returns:
    0, or -1: no memory.
    """
    cdef const char* base = <const char*> e
    cdef const uint8_t* valid = <const uint8_t*> (base + x.offset[x.ncols])
    cdef View* v
    cdef char* to
    cdef char* bytes
    cdef int32_t column
    cdef int32_t j
    for j in range(x.ncols):
        column = j if columns == NULL else columns[j]
        to = out.cols[column].data + <int64_t> index * x.width[j]
        memcpy(to, base + x.offset[j], x.width[j])
        if copies and x.bytes[j]:
            v = <View*> to
            if v.size:
                bytes = chunk_alloc(w, out, view_bytes(v.size, x.bytes[j]))
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, <size_t> view_bytes(v.size, x.bytes[j]))
                v.data = bytes
        if valid[j] == 0:
            if chunk_set_valid(w, out, column) != 0:
                return -1
            out.cols[column].valid[index] = 0
        elif out.cols[column].valid != NULL:
            out.cols[column].valid[index] = 1
    return 0


# ---------------------------------------------------------------------------------------------- heap, worst
# at the root


cdef inline bint worse(const TopContext* x, TopBucket* b, int64_t p, int64_t q) noexcept nogil:
    cdef int64_t rank_p = entry_of(b, p).rank
    cdef int64_t rank_q = entry_of(b, q).rank
    if rank_p != rank_q:
        return rank_p < rank_q
    return key_compare(x.keys, keyed_record(&b.keyed, p), keyed_record(&b.keyed, q)) > 0


cdef inline void heap_put(TopBucket* b, int64_t at, int64_t slot) noexcept nogil:
    b.heap[at] = slot
    entry_of(b, slot).place = at + 1


cdef void heap_down(const TopContext* x, TopBucket* b, int64_t at) noexcept nogil:
    cdef int64_t slot = b.heap[at]
    cdef int64_t child
    while True:
        child = 2 * at + 1
        if child >= b.size:
            break
        if child + 1 < b.size and worse(x, b, b.heap[child + 1], b.heap[child]):
            child += 1
        if not worse(x, b, b.heap[child], slot):
            break
        heap_put(b, at, b.heap[child])
        at = child
    heap_put(b, at, slot)


cdef int forget_evicted(const TopContext* x, TopBucket* b) noexcept nogil:
    """Keep only the keys in the heap: a fresh map with their records, key strings copied. 0, or -1: no
    memory, nothing changed."""
    cdef KeyedState fresh
    cdef int64_t* order = <int64_t*> malloc(b.size * sizeof(int64_t) + 8)
    cdef int64_t* moved = <int64_t*> calloc(b.keyed.count + 1, sizeof(int64_t))   # old slot -> new slot + 1
    cdef KeyEntry* e
    cdef View* v
    cdef char* bytes
    cdef char* record
    cdef int64_t i
    cdef int64_t at
    cdef int64_t n = 0
    cdef int32_t j
    if order == NULL or moved == NULL or keyed_init_for(
            &fresh, x.keys, x.state_size, b.keyed.pool, b.keyed.capacity, b.keyed.reserved) != 0:
        free(order)
        free(moved)
        return -1
    for i in range(b.keyed.count):
        if entry_of(b, i).place == 0:
            continue
        record = fresh.records + n * fresh.stride
        memcpy(record, keyed_record(&b.keyed, i), fresh.stride)
        for j in range(x.keys.ncols):
            v = <View*> (record + x.keys.offset[j])
            if x.keys.type[j] == PT_VIEW and v.size:
                bytes = arena_alloc(&fresh.heap, v.size, fresh.pool)
                if bytes == NULL:
                    keyed_free(&fresh)
                    free(order)
                    free(moved)
                    return -1
                memcpy(bytes, v.data, v.size)
                v.data = bytes
        order[(<Entry*> (record + x.keys.size)).place - 1] = n
        n += 1
        moved[i] = n
    # their rows' strings and lists go back to the blocks
    for i in range(b.keyed.count):
        if entry_of(b, i).place == 0:
            for j in range(x.ncols):
                if x.bytes[j]:
                    v = <View*> (<char*> entry_of(b, i) + x.offset[j])
                    if v.size:
                        block_give(&b.blocks, <char*> v.data, size_class(view_bytes(v.size, x.bytes[j])))
    for i in range(b.keyed.capacity):
        e = &b.keyed.table[i]
        if e.record and moved[e.record - 1]:
            at = e.tag & (fresh.capacity - 1)
            while fresh.table[at].record:
                at = (at + 1) & (fresh.capacity - 1)
            fresh.table[at].tag = e.tag
            fresh.table[at].record = <int32_t> moved[e.record - 1]
    fresh.count = n
    keyed_free(&b.keyed)
    b.keyed = fresh
    memcpy(b.heap, order, <size_t> b.size * sizeof(int64_t))
    free(order)
    free(moved)
    return 0


cdef int heap_grow(const TopContext* x, TopBucket* b) noexcept nogil:
    """Make room for more keys. (k may be far larger than the number of keys.) 0, or -1: no memory."""
    cdef int64_t room = min(max(2 * b.room, <int64_t> HEAP_FIRST), x.k)
    cdef void* grown = realloc(b.heap, room * sizeof(int64_t))
    if grown == NULL:
        return -1
    b.heap = <int64_t*> grown
    b.room = room
    return 0


cdef int offer(const TopContext* x, TopBucket* b, const Chunk* c, int32_t row, int64_t rank, char* key,
               int64_t* at) noexcept nogil:
    """Offer a row that is not below the threshold (grows=True) to the heap. `key`: room for a record.

    1: it is in the heap, and `at` has its slot; 0: it is not; -1: no memory.
    """
    cdef uint64_t hash
    cdef int64_t slot
    cdef int64_t place
    cdef Entry* e
    cdef bint full = b.size == x.k
    if full and rank == b.threshold:
        key_read(x.keys, c, row, key)
        if key_compare(x.keys, key, keyed_record(&b.keyed, b.heap[0])) > 0:
            return 0                                         # worse than the root, and so not in the heap
    if full and b.keyed.count // 4 > x.k + EVICTED_SLACK // 4 and forget_evicted(x, b) != 0:
        return -1
    hash = key_hash_row(x.keys, c, row)
    slot = keyed_upsert(&b.keyed, c, row, hash)
    at[0] = slot
    if slot < 0 or store_row(x, b, entry_of(b, slot), c, row) != 0:
        return -1
    e = entry_of(b, slot)
    e.rank = rank
    if e.place:
        if full:
            heap_down(x, b, e.place - 1)
    elif not full:
        if b.size == b.room and heap_grow(x, b) != 0:
            return -1
        heap_put(b, b.size, slot)
        b.size += 1
        if b.size == x.k:                                    # in any order until now
            for place in range(x.k // 2 - 1, -1, -1):
                heap_down(x, b, place)
    else:
        entry_of(b, b.heap[0]).place = 0
        heap_put(b, 0, slot)
        heap_down(x, b, 0)
    if b.size == x.k:
        b.threshold = entry_of(b, b.heap[0]).rank
    return 1


# ---------------------------------------------------------------------------------------------- begin, end


cdef int compare_slots(const void* bucket, int64_t a, int64_t b) noexcept nogil:
    cdef TopBucket* t = <TopBucket*> bucket
    return key_compare(t.keyed.keys, keyed_record(&t.keyed, a), keyed_record(&t.keyed, b))


cdef int start(const TopContext* x, TopBucket* b, int64_t capacity, int64_t reserved) noexcept nogil:
    """Start with an empty list, a map of these sizes. 0, or -1: no memory."""
    b.threshold = INT64_MIN
    b.size = 0
    if keyed_init_for(&b.keyed, x.keys, x.state_size, &b.blocks.pool, capacity, reserved) != 0:
        return -1
    if x.updates and not x.grows:
        b.places = ord_places_new(compare_slots, b)
        if b.places == NULL:
            return -1
    return 0


cdef void forget(TopBucket* b) noexcept nogil:
    """Free all keys and rows. `start` must follow, unless the bucket is freed."""
    if b.places != NULL:
        ord_places_free(b.places)
        b.places = NULL
    keyed_free(&b.keyed)
    blocks_free(&b.blocks)
    ascending_clear(&b.rows)


cdef int next_window(const TopContext* x, TopBucket* b) noexcept nogil:
    """Forget all keys and rows, and start with an empty list, with room for as many keys: the next window is
    about as large. 0, or -1: no memory."""
    cdef int64_t capacity = b.keyed.capacity
    cdef int64_t reserved = b.keyed.reserved
    if x.once and not b.mapped:                               # the map is empty
        ascending_clear(&b.rows)
        return 0
    b.mapped = b.unordered
    if 8 * b.keyed.count < reserved:                          # it was much smaller
        capacity = FIRST_CAPACITY
        reserved = FIRST_RECORDS
    forget(b)
    return start(x, b, capacity, reserved)


cdef int begin_anew(const TopContext* x, TopBucket* b) noexcept nogil:
    """Forget everything, the window too. 0, or -1: no memory, and nothing changed."""
    cdef TopBucket fresh
    memset(<void*> &fresh, 0, sizeof(TopBucket))
    if keyed_init(&fresh.keyed, x.keys, x.state_size, &b.blocks.pool) != 0:
        return -1
    if b.places != NULL:
        fresh.places = ord_places_new(compare_slots, b)
        if fresh.places == NULL:
            keyed_free(&fresh.keyed)
            return -1
    forget(b)
    free(b.heap)
    b.keyed = fresh.keyed
    b.places = fresh.places
    b.heap = NULL
    b.size = 0
    b.room = 0
    b.threshold = INT64_MIN
    b.in_window = 0
    b.mapped = b.unordered
    return 0


cdef void top_free(Kernel* k, void* state) noexcept nogil:
    cdef TopBucket* b = <TopBucket*> state
    forget(b)
    free(b.rows.memory)
    free(b.heap)
    free(b)


cdef void* top_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> calloc(1, sizeof(TopBucket))
    if b == NULL:
        return NULL
    if start(x, b, FIRST_CAPACITY, FIRST_RECORDS) != 0:
        top_free(k, b)
        return NULL
    return b


cdef int64_t top_bytes(Kernel* k, void* state) noexcept nogil:
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t places = b.places.bytes() if b.places != NULL else 0
    cdef int64_t rows = b.rows.room * 8 * (1 + (<const TopContext*> k.ctx).ncols)
    return keyed_bytes(&b.keyed) + blocks_bytes(&b.blocks) + places + rows


# ---------------------------------------------------------------------------------------------- a row


cdef int64_t place_in_heap(const TopContext* x, TopBucket* b, int64_t slot) noexcept nogil:
    """The rank of a member of the heap: 1 plus the number of better ones."""
    cdef int64_t place = 1
    cdef int64_t i
    for i in range(b.size):
        if b.heap[i] != slot and worse(x, b, slot, b.heap[i]):
            place += 1
    return place


cdef int64_t take(const TopContext* x, TopBucket* b, const Chunk* c, int32_t row, int64_t rank, char* key,
                  int64_t* slot) noexcept nogil:
    """Make a row its key's latest. Returns its place among the k best (0: not among them, or no updates are
    asked for); -1: no memory."""
    cdef int64_t place = 0
    cdef Entry* e
    if x.grows:
        if rank < b.threshold:
            return 0
        place = offer(x, b, c, row, rank, key, slot)
        return place_in_heap(x, b, slot[0]) if place == 1 and x.updates else min(place, 0)
    slot[0] = keyed_upsert(&b.keyed, c, row, key_hash_row(x.keys, c, row))
    if slot[0] < 0:
        return -1
    e = entry_of(b, slot[0])
    if store_row(x, b, e, c, row) != 0:
        return -1
    if b.places != NULL:
        if e.place:                                          # was there before
            ord_places_erase(b.places, e.rank, slot[0])
        e.place = 1
        e.rank = rank
        place = ord_places_insert(b.places, rank, slot[0], x.k)
    e.rank = rank
    return place


cdef int to_map(const TopContext* x, TopBucket* b) noexcept nogil:
    """Put the rows that were kept as they came into the map, and keep those that follow there. 0, or -1: no
    memory. Cost: `take` per row."""
    cdef Chunk seen                                          # the rows with the columns of the input
    cdef int64_t[2 * 65] key                                 # room for a record of 64 columns
    cdef int64_t slot
    cdef int64_t i
    cdef int32_t j
    b.mapped = 1
    if b.rows.n == 0:
        ascending_clear(&b.rows)
        return 0
    memset(<void*> &seen, 0, sizeof(Chunk))
    seen.cols = <Column*> calloc(x.ncols, sizeof(Column))
    if seen.cols == NULL:
        return -1
    for j in range(x.ncols):
        seen.cols[j].data = column_in(&b.rows, j)
    for i in range(b.rows.n):
        if take(x, b, &seen, <int32_t> i, ranks_in(&b.rows)[i], <char*> key, &slot) < 0:
            free(seen.cols)
            return -1
    free(seen.cols)
    ascending_clear(&b.rows)
    return 0
