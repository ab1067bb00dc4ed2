"""Top-k: of the latest row of each key, the k rows with the largest `by`, ties by ascending key; emitted at
the end of the stream and of each window, and, where updates are asked for, after each row that is among
them.

a) Every key has a record: rank, place in the heap, and a copy of its latest row. The rank is an int64 that
   orders as `by` does (NaN lowest), so that one comparison decides.
b) grows=False keeps every key and selects at the end. With updates the keys are also in an ordered set: a
   key's place among the best is counted from its front.
c) grows=True (`by` never decreases for a key): only the k best so far matter. As soon as there are k, they
   form a heap whose root is the worst. A row below the root's rank costs one comparison: its key can enter
   only by a later row with a larger `by`. When three times as many keys have left the heap as are in it,
   they are forgotten: memory is bounded by k, not by the number of keys.
d) The end of a window emits the list as the end of the stream does, and forgets everything.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.blocks cimport (
    Blocks, block_give, block_take, blocks_bytes, blocks_free, size_class,
)
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, PT_F32, PT_F64, PT_LIST, PT_U64, PT_VIEW, Chunk, Column, Failure,
    LayoutOwner, View, Worker, arena_alloc, chunk_alloc, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.keyed_state cimport (
    KeyedState, KeyEntry, KeySpec, KeySpecOwner, key_compare, key_hash_row, key_read, keyed_bytes, keyed_free, keyed_init, keyed_init_for,
    keyed_record, keyed_state, keyed_upsert,
)
from ordstream._core.state.ordered_places cimport (
    OrdPlaces, ord_places_erase, ord_places_free, ord_places_insert, ord_places_new,
)
from ordstream._core.state.ranking cimport OrdRanked, float_rank, ord_sort_ranked, ord_sort_ranked_unless
from ordstream._core.ground.stopping cimport stop_due, worker_stops
from ordstream._core.ground.widths cimport WIDTHS

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum:
    PLACE_BYTES = 64       # of an entry of the ordered set, about
    BLOCK = 256            # rows whose ranks are computed at once
    HEAP_FIRST = 32        # keys that a heap first has room for
    EVICTED_SLACK = 1024   # records of evicted keys that are always tolerated

cdef struct Entry:
    # State of a key, followed by the row: per column 16 bytes (views) or 8, then one validity byte per
    # column.
    int64_t rank
    int64_t place          # in the heap, plus 1; 0: not in it

cdef struct TopContext:
    # Read-only while a run lasts. Memory ownership: TopKernel.
    const KeySpec* keys
    int64_t k
    int32_t by
    int32_t by_type
    int32_t grows
    int32_t window         # input column; -1: one window for all
    int32_t window_type
    int32_t updates        # 1: each row among the best is emitted
    int32_t ranked         # 1: the rank is a last column
    int32_t ncols
    int32_t state_size
    int32_t* offset        # of each column in a state
    int32_t* width         # bytes per value of each column
    int32_t* bytes         # per element of what a view points to; 0: no view

cdef struct TopBucket:
    # The state. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    Blocks blocks          # bytes of strings and lists in the rows
    int64_t* heap          # grows: record slots; a heap, worst first, once there are k
    int64_t size           # of the heap
    int64_t room           # of its memory, at most k
    int64_t threshold      # rank of the worst in a full heap, else INT64_MIN
    OrdPlaces* places      # not grows, updates: all keys in order
    int64_t window         # the latest (unsigned ones with the upper bit turned)
    int32_t in_window      # 1: there was a row


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


# ---------------------------------------------------------------------------------------------- output


cdef int emit_row(const TopContext* x, Worker* w, const Entry* e, Chunk* out, int64_t rank, int32_t origin,
                  bint copies) noexcept nogil:
    """Append a key's row; room is reserved. 0, or -1: no memory.

    `copies`: copy strings and lists as well, because the state may change before they are read.
    """
    cdef const char* base = <const char*> e
    cdef const uint8_t* valid = <const uint8_t*> (base + x.offset[x.ncols])
    cdef View* v
    cdef char* bytes
    cdef int32_t j
    for j in range(x.ncols):
        memcpy(out.cols[j].data + <int64_t> out.n * x.width[j], base + x.offset[j], x.width[j])
        if copies and x.bytes[j]:
            v = &(<View*> out.cols[j].data)[out.n]
            if v.size:
                bytes = chunk_alloc(w, out, v.size * x.bytes[j])
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, v.size * x.bytes[j])
                v.data = bytes
        if valid[j] == 0:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            out.cols[j].valid[out.n] = 0
        elif out.cols[j].valid != NULL:
            out.cols[j].valid[out.n] = 1
    if x.ranked:
        (<int64_t*> out.cols[x.ncols].data)[out.n] = rank
    out.origin[out.n] = origin
    out.n += 1
    out.slots = out.n
    return 0


cdef int emit_list(Kernel* k, Worker* w, TopBucket* b, Chunk* out, int32_t origin,
                   bint at_end) noexcept nogil:
    """Append the k best rows in order. 0, or -1: no memory."""
    cdef const TopContext* x = <const TopContext*> k.ctx
    cdef int64_t n = b.size if x.grows else b.keyed.count
    cdef int64_t best = min(n, x.k)
    cdef int64_t i
    cdef OrdRanked* ranked
    cdef int status
    if n == 0:
        return 0
    ranked = <OrdRanked*> malloc(n * sizeof(OrdRanked))
    if ranked == NULL or best > 0x7fffffff:
        free(ranked)
        return -1
    if at_end:
        status = flush_reserve(w, out, k.output, <int32_t> best)
    else:
        status = chunk_reserve(w, out, k.output, <int32_t> best)
    if status == 0:
        for i in range(n):
            if at_end and stop_due(w, i):
                n = 0
                best = 0
                break
            ranked[i].slot = b.heap[i] if x.grows else i
            ranked[i].rank = entry_of(b, ranked[i].slot).rank
            ranked[i].key = keyed_record(&b.keyed, ranked[i].slot)
        if not at_end:
            ord_sort_ranked(ranked, n, best, x.keys, key_compare)
        elif not ord_sort_ranked_unless(ranked, n, best, x.keys, key_compare, worker_stops, w):
            best = 0
        for i in range(best):
            if at_end and stop_due(w, i):
                break
            if emit_row(x, w, entry_of(b, ranked[i].slot), out, i + 1, origin, not at_end) != 0:
                status = -1
                break
    free(ranked)
    return status


# ---------------------------------------------------------------------------------------------- kernel


cdef int compare_slots(const void* bucket, int64_t a, int64_t b) noexcept nogil:
    cdef TopBucket* t = <TopBucket*> bucket
    return key_compare(t.keyed.keys, keyed_record(&t.keyed, a), keyed_record(&t.keyed, b))


cdef int start(const TopContext* x, TopBucket* b) noexcept nogil:
    """Start with an empty list. 0, or -1: no memory."""
    b.threshold = INT64_MIN
    b.size = 0
    if keyed_init(&b.keyed, x.keys, x.state_size, &b.blocks.pool) != 0:
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


cdef void top_free(Kernel* k, void* state) noexcept nogil:
    cdef TopBucket* b = <TopBucket*> state
    forget(b)
    free(b.heap)
    free(b)


cdef void* top_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> calloc(1, sizeof(TopBucket))
    if b == NULL:
        return NULL
    if start(x, b) != 0:
        top_free(k, b)
        return NULL
    return b


cdef int64_t top_bytes(Kernel* k, void* state) noexcept nogil:
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t places = b.places.size() * PLACE_BYTES if b.places != NULL else 0
    return keyed_bytes(&b.keyed) + blocks_bytes(&b.blocks) + places


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


cdef int32_t top_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Take rows in; emit the list of a window that ends, and with updates each row that is among the best.

    Thread safety: the state's holder. Ownership: rows are copied. Returns: n, or j when `by` or the window
    of rows[j] is null or the window is earlier than the one before (state untouched), or without memory.
    Cost: grows: ~1-2 ns for a row below the k-th, else ~100 ns; otherwise a map upsert and a copy of the
    row. Updates: O(k) more for a row among the best; without grows O(log keys + k) more for every row.
    """
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t[BLOCK] ranks
    cdef int64_t[BLOCK] windows
    cdef int64_t[2 * 65] key                                 # room for a record of 64 strings
    cdef const uint8_t* valid = c.cols[x.by].valid
    cdef const uint8_t* window_valid = c.cols[x.window].valid if x.window >= 0 else NULL
    cdef int64_t slot
    cdef int64_t place
    cdef int64_t flip
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t row
    cdef bint good
    while k0 < n:
        m = min(n - k0, <int32_t> BLOCK)
        ranks_of(x, c, rows + k0, m, ranks)
        if x.window >= 0:
            load(windows, x.window_type, c.cols[x.window].data, rows + k0, m)
        for i in range(m):
            row = rows[k0 + i]
            if (valid != NULL and valid[row] == 0) or (window_valid != NULL and window_valid[row] == 0):
                failure_set(f, row, FAIL_NULL, "a null where top_k ranks: filter such tuples out before")
                return k0 + i
            if ranks[i] < b.threshold and x.window < 0:
                continue
            good = True
            if x.window >= 0:
                if x.window_type == PT_U64:
                    windows[i] = windows[i] ^ INT64_MIN
                if not b.in_window or windows[i] > b.window:
                    if b.in_window:
                        good = emit_list(k, w, b, out, row, False) == 0
                        forget(b)
                        good = start(x, b) == 0 and good
                    b.in_window = 1
                    b.window = windows[i]
                elif windows[i] < b.window:
                    flip = INT64_MIN if x.window_type == PT_U64 else 0
                    failure_earlier(f, row, x.window, windows[i] ^ flip, b.window ^ flip)
                    return k0 + i
            place = take(x, b, c, row, ranks[i], <char*> key, &slot) if good else -1
            if place > 0:
                if ((out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0)
                        or emit_row(x, w, entry_of(b, slot), out, place, row, True) != 0):
                    place = -1
            if place < 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
        k0 += m
    return n


cdef int top_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                       Failure* f) noexcept nogil:
    """At the end of the stream, the k best rows in order. Views point into the state, which no tuple changes
    any more."""
    if punctuation.kind == END_OF_STREAM and emit_list(k, w, <TopBucket*> state, out, 0, True) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return 0


cdef class TopKernel(KernelOwner):
    """Operator "top_k": attributes {"k", "by": column, "key": [column, ...], "window": column | None, "emit":
    "updates" | "final", "rank": bool, "grows": bool}."""

    cdef TopContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef int32_t at = sizeof(Entry)
        cdef LayoutOwner layout
        owner_setup(self, operator, SF)
        layout = self.input_layout
        self.keys = KeySpecOwner(operator.ranked_key, layout.types)
        self.context.keys = &self.keys.spec
        self.context.k = operator.k
        self.context.by = operator.by
        self.context.by_type = layout.layout.type[self.context.by]
        self.context.grows = bool(operator.by_grows)
        self.context.updates = operator.emit == "updates"
        self.context.ranked = bool(operator.rank)
        self.context.window = -1
        if operator.window is not None:
            self.context.window = operator.window
            self.context.window_type = layout.layout.type[self.context.window]
            if self.context.window_type >= PT_F32:
                raise TypeError(f"{operator.name!r}: `window` must be an integer, a date or a time")
        if self.kernel.output.ncols != layout.layout.ncols + self.context.ranked:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's and, where asked for, the rank")
        if self.context.k < 1:
            raise ValueError(f"{operator.name!r}: k must be at least 1, not {self.context.k}")
        if self.context.by_type > PT_F64:
            raise TypeError(f"{operator.name!r}: `by` must be a number, a date or a time")
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
                self.context.bytes[j] = WIDTHS[layout.layout.element[j]]
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
