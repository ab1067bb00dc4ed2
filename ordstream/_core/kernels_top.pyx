"""Top-k: of the latest row of each key, the k rows with the largest `by`, ties by ascending key; emitted at the end of the stream.

a) Every key has a record: rank, place in the heap, and a copy of its latest row. The rank is an int64 that orders as `by` does
   (NaN lowest), so that one comparison decides.
b) grows=False keeps every key and selects at the end.
c) grows=True (`by` never falls for a key): only the k best so far matter. They form a heap whose root is the worst; a row below the
   root's rank costs one comparison, for such a key can only come back with a larger `by`. Keys that left the heap are
   forgotten when they outnumber those inside three to one: memory is bounded by k, not by the number of keys.
"""
from libc.math cimport isnan
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.blocks cimport Blocks, block_give, block_take, blocks_bytes, blocks_free, size_class
from ordstream._core.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, PT_F32, PT_F64, PT_LIST, PT_U64, PT_VIEW, Chunk, Column, Failure,
    LayoutOwner, View, Worker, arena_alloc, chunk_set_valid, failure_set,
)
from ordstream._core.kernel cimport SF, Kernel, KernelOwner
from ordstream._core.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.keyed_state cimport (
    KeyedState, KeyEntry, KeySpec, KeySpecOwner, key_compare, key_hash_row, key_read, keyed_bytes, keyed_free, keyed_init,
    keyed_record, keyed_state, keyed_upsert,
)

cdef extern from *:
    """
    #include <algorithm>
    #include <cstdint>
    struct OrdRanked { int64_t rank; const char* key; int64_t slot; };
    static inline void ord_sort_ranked(OrdRanked* v, int64_t n, int64_t k, int (*compare)(const void*, const char*, const char*),
                                       const void* keys) {
        std::partial_sort(v, v + k, v + n, [=](const OrdRanked& a, const OrdRanked& b) {
            return a.rank != b.rank ? a.rank > b.rank : compare(keys, a.key, b.key) < 0;
        });
    }
    """
    struct OrdRanked:
        int64_t rank
        const char* key
        int64_t slot
    void ord_sort_ranked(OrdRanked*, int64_t n, int64_t k, int (*)(const void*, const char*, const char*) noexcept nogil,
                         const void*) noexcept nogil

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum:
    BLOCK = 256            # rows whose ranks are computed at once
    EVICTED_SLACK = 1024   # records of evicted keys that are always tolerated

cdef struct Entry:
    # State of a key, followed by the row: per column 16 bytes (views) or 8, then one validity byte per column.
    int64_t rank
    int64_t place          # in the heap, plus 1; 0: not in it

cdef struct TopContext:
    # Read-only while a run lasts. Memory ownership: TopKernel.
    const KeySpec* keys
    int64_t k
    int32_t by
    int32_t by_type
    int32_t grows
    int32_t ncols
    int32_t state_size
    int32_t* offset        # of each column in a state
    int32_t* width         # bytes per value of each column
    int32_t* bytes         # per element of what a view points to; 0: no view

cdef struct TopBucket:
    # The state. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    Blocks blocks          # bytes of strings and lists in the rows
    int64_t* heap          # grows: record slots, worst first
    int64_t size           # of the heap
    int64_t threshold      # rank of the worst in a full heap, else INT64_MIN


cdef int compare_keys(const void* keys, const char* a, const char* b) noexcept nogil:
    return key_compare(<const KeySpec*> keys, a, b)


cdef inline int64_t float_rank(int64_t bits) noexcept nogil:
    cdef double v
    memcpy(&v, &bits, 8)
    if isnan(v):
        return INT64_MIN
    if v == 0.0:
        return 0
    return bits ^ ((bits >> 63) & <int64_t> 0x7FFFFFFFFFFFFFFF)


cdef void ranks_of(const TopContext* x, const Chunk* c, const int32_t* rows, int32_t n, int64_t* ranks) noexcept nogil:
    """Ranks of up to BLOCK rows."""
    cdef int32_t i
    load(ranks, x.by_type, c.cols[x.by].data, rows, n)
    if x.by_type == PT_F64 or x.by_type == PT_F32:
        for i in range(n):
            ranks[i] = float_rank(ranks[i])
    elif x.by_type == PT_U64:
        for i in range(n):
            ranks[i] = ranks[i] ^ INT64_MIN


cdef inline Entry* entry_of(TopBucket* b, int64_t slot) noexcept nogil:
    return <Entry*> keyed_state(&b.keyed, slot)


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
                block_give(&b.blocks, <char*> old.data, size_class(old.size * x.bytes[j]))
            memset(old, 0, sizeof(View))
        if col.data == NULL or (col.valid != NULL and col.valid[row] == 0):
            valid[j] = col.data == NULL
            continue
        valid[j] = 1
        if not x.bytes[j]:
            memcpy(base + x.offset[j], col.data + <int64_t> row * x.width[j], x.width[j])
            continue
        v = &(<const View*> col.data)[row]
        size = v.size * x.bytes[j]
        if size:
            block = block_take(&b.blocks, size_class(size))
            if block == NULL:
                return -1
            memcpy(block, v.data, size)
            old.data = block
            old.size = v.size
    return 0


# ---------------------------------------------------------------------------------------------- heap, worst at the root


cdef inline bint worse(const TopContext* x, TopBucket* b, int64_t p, int64_t q) noexcept nogil:
    cdef int64_t rank_p = entry_of(b, p).rank
    cdef int64_t rank_q = entry_of(b, q).rank
    if rank_p != rank_q:
        return rank_p < rank_q
    return key_compare(x.keys, keyed_record(&b.keyed, p), keyed_record(&b.keyed, q)) > 0


cdef inline void heap_put(TopBucket* b, int64_t at, int64_t slot) noexcept nogil:
    b.heap[at] = slot
    entry_of(b, slot).place = at + 1


cdef void heap_up(const TopContext* x, TopBucket* b, int64_t at) noexcept nogil:
    cdef int64_t slot = b.heap[at]
    while at and worse(x, b, slot, b.heap[(at - 1) // 2]):
        heap_put(b, at, b.heap[(at - 1) // 2])
        at = (at - 1) // 2
    heap_put(b, at, slot)


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
    """Keep only the keys in the heap: a fresh map with their records, key strings copied. 0, or -1: no memory, nothing changed."""
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
    if order == NULL or moved == NULL or keyed_init(&fresh, x.keys, x.state_size, b.keyed.pool) != 0:
        free(order)
        free(moved)
        return -1
    free(fresh.table)
    free(fresh.records)
    fresh.table = <KeyEntry*> calloc(b.keyed.capacity, sizeof(KeyEntry))
    fresh.records = <char*> malloc(b.keyed.reserved * fresh.stride)
    fresh.capacity = b.keyed.capacity
    fresh.limit = b.keyed.limit
    fresh.reserved = b.keyed.reserved
    if fresh.table == NULL or fresh.records == NULL:
        keyed_free(&fresh)
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
    for i in range(b.keyed.count):                           # their rows' strings and lists go back to the blocks
        if entry_of(b, i).place == 0:
            for j in range(x.ncols):
                if x.bytes[j]:
                    v = <View*> (<char*> entry_of(b, i) + x.offset[j])
                    if v.size:
                        block_give(&b.blocks, <char*> v.data, size_class(v.size * x.bytes[j]))
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


cdef int offer(const TopContext* x, TopBucket* b, const Chunk* c, int32_t row, int64_t rank, char* key) noexcept nogil:
    """A row that is not below the threshold (grows=True). `key` has room for a record. 0, or -1: no memory."""
    cdef uint64_t hash
    cdef int64_t slot
    cdef Entry* e
    cdef bint full = b.size == x.k
    if full and rank == b.threshold:
        key_read(x.keys, c, row, key)
        if key_compare(x.keys, key, keyed_record(&b.keyed, b.heap[0])) > 0:
            return 0                                         # behind the worst, and so not in the heap
    hash = key_hash_row(x.keys, c, row)
    slot = keyed_upsert(&b.keyed, c, row, hash)
    if slot < 0 or store_row(x, b, entry_of(b, slot), c, row) != 0:
        return -1
    e = entry_of(b, slot)
    e.rank = rank
    if e.place:
        heap_down(x, b, e.place - 1)
    elif not full:
        b.size += 1
        heap_put(b, b.size - 1, slot)
        heap_up(x, b, b.size - 1)
    else:
        entry_of(b, b.heap[0]).place = 0
        heap_put(b, 0, slot)
        heap_down(x, b, 0)
    if b.size == x.k:
        b.threshold = entry_of(b, b.heap[0]).rank
        if b.keyed.count > 4 * x.k + EVICTED_SLACK:
            return forget_evicted(x, b)
    return 0


# ---------------------------------------------------------------------------------------------- kernel


cdef void* top_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> calloc(1, sizeof(TopBucket))
    if b == NULL:
        return NULL
    b.threshold = INT64_MIN
    if x.grows:
        b.heap = <int64_t*> malloc(x.k * sizeof(int64_t))
    if (x.grows and b.heap == NULL) or keyed_init(&b.keyed, x.keys, x.state_size, &b.blocks.pool) != 0:
        free(b.heap)
        free(b)
        return NULL
    return b


cdef void top_free(Kernel* k, void* state) noexcept nogil:
    cdef TopBucket* b = <TopBucket*> state
    keyed_free(&b.keyed)
    blocks_free(&b.blocks)
    free(b.heap)
    free(b)


cdef int64_t top_bytes(Kernel* k, void* state) noexcept nogil:
    cdef TopBucket* b = <TopBucket*> state
    return keyed_bytes(&b.keyed) + blocks_bytes(&b.blocks)


cdef int32_t top_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Take rows in; nothing is emitted before the end of the stream.

    Thread safety: the state's holder. Ownership: rows are copied. Returns: n, or j when `by` of rows[j] is null (state untouched), or
    without memory. Cost: grows: ~1-2 ns for a row below the k-th, else ~100 ns; otherwise a map upsert and a copy of the row.
    """
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t[BLOCK] ranks
    cdef int64_t[2 * 65] key                                 # room for a record of 64 strings
    cdef const uint8_t* valid = c.cols[x.by].valid
    cdef int64_t slot
    cdef int64_t threshold
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    while k0 < n:
        m = min(n - k0, <int32_t> BLOCK)
        ranks_of(x, c, rows + k0, m, ranks)
        threshold = b.threshold
        for i in range(m):
            if valid != NULL and valid[rows[k0 + i]] == 0:
                failure_set(f, rows[k0 + i], FAIL_NULL, "a null where top_k ranks: filter such tuples out before")
                return k0 + i
            if ranks[i] < threshold:
                continue
            if x.grows:
                if offer(x, b, c, rows[k0 + i], ranks[i], <char*> key) != 0:
                    failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
                threshold = b.threshold
                continue
            slot = keyed_upsert(&b.keyed, c, rows[k0 + i], key_hash_row(x.keys, c, rows[k0 + i]))
            if slot < 0 or store_row(x, b, entry_of(b, slot), c, rows[k0 + i]) != 0:
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            entry_of(b, slot).rank = ranks[i]
        k0 += m
    return n


cdef int emit_row(const TopContext* x, Worker* w, const Entry* e, Chunk* out) noexcept nogil:
    cdef const char* base = <const char*> e
    cdef const uint8_t* valid = <const uint8_t*> (base + x.offset[x.ncols])
    cdef int32_t j
    for j in range(x.ncols):
        memcpy(out.cols[j].data + <int64_t> out.n * x.width[j], base + x.offset[j], x.width[j])
        if valid[j] == 0:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            out.cols[j].valid[out.n] = 0
    out.origin[out.n] = 0
    out.n += 1
    out.slots = out.n
    return 0


cdef int top_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out, Failure* f) noexcept nogil:
    """At the end of the stream, the k best rows in order. Views point into the state, which no tuple changes any more."""
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t n = b.size if x.grows else b.keyed.count
    cdef int64_t best = min(n, x.k)
    cdef int64_t i
    cdef OrdRanked* ranked
    cdef int status = 0
    if punctuation.kind != END_OF_STREAM or n == 0:
        return 0
    ranked = <OrdRanked*> malloc(n * sizeof(OrdRanked))
    if ranked == NULL or best > 0x7fffffff or flush_reserve(w, out, k.output, <int32_t> best) != 0:
        free(ranked)
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    for i in range(n):
        ranked[i].slot = b.heap[i] if x.grows else i
        ranked[i].rank = entry_of(b, ranked[i].slot).rank
        ranked[i].key = keyed_record(&b.keyed, ranked[i].slot)
    ord_sort_ranked(ranked, n, best, compare_keys, x.keys)
    for i in range(best):
        if emit_row(x, w, entry_of(b, ranked[i].slot), out) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            status = -1
            break
    free(ranked)
    return status


cdef class TopKernel(KernelOwner):
    """Operator "top_k": params {"k", "by": column, "key": [column, ...], "grows": bool}."""

    cdef TopContext context
    cdef KeySpecOwner keys

    def __init__(self, stage):
        cdef int32_t j
        cdef int32_t at = sizeof(Entry)
        cdef LayoutOwner layout
        cdef int32_t[14] element_width = [1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 16, 16, 16]
        owner_setup(self, stage, SF)
        layout = self.input_layout
        self.keys = KeySpecOwner(stage.params["key"], layout.types)
        self.context.keys = &self.keys.spec
        self.context.k = stage.params["k"]
        self.context.by = stage.params["by"]
        self.context.by_type = layout.layout.type[self.context.by]
        self.context.grows = bool(stage.params["grows"])
        if self.context.k < 1:
            raise ValueError(f"{stage.name!r}: k must be at least 1, not {self.context.k}")
        if self.context.by_type > PT_F64:
            raise TypeError(f"{stage.name!r}: `by` must be a number, a date or a time")
        self.context.ncols = layout.layout.ncols
        self.context.offset = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        self.context.width = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        self.context.bytes = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        if self.context.offset == NULL or self.context.width == NULL or self.context.bytes == NULL:
            raise MemoryError
        for j in range(self.context.ncols):
            self.context.offset[j] = at
            self.context.width[j] = layout.layout.width[j]
            if layout.layout.type[j] == PT_VIEW:
                self.context.bytes[j] = 1
            elif layout.layout.type[j] == PT_LIST:
                self.context.bytes[j] = element_width[layout.layout.element[j]]
            at += 16 if self.context.width[j] == 16 else 8
        self.context.offset[self.context.ncols] = at
        self.context.state_size = at + self.context.ncols
        self.kernel.ctx = <void*> &self.context
        self.kernel.process = top_process
        self.kernel.punctuate = top_punctuate
        self.kernel.bucket_new = top_new
        self.kernel.bucket_free = top_free
        self.kernel.bucket_bytes = top_bytes

    def __dealloc__(self):
        free(self.context.offset)
        free(self.context.width)
        free(self.context.bytes)
