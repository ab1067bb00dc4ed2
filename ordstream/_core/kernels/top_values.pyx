"""Top values: the k most frequent values of a column, per key. Contract: kernel.pxd (b), (c), (f).

One map counts (key, value) pairs; another holds, per key, the list of its k best pairs, best first. Counts
only grow, so a pair outside the list enters it only by an update of its own, and every update moves one pair
forward.

If only the lists at the end are asked for, no list is maintained: pairs are counted, each knows its key, and
the best are selected at the end. A maintained list would move a pair past all pairs with the same count, and
each of them is a cache miss.

The pairs of a key are a chain, through which they are found when the key leaves. A row of state is a pair: a
key has a row for each of its values, since a list of strings is no column, and rows of pairs are installed
and sorted one by one.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.blocks cimport Blocks, block_give, block_take, blocks_bytes, blocks_free
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_STATE, Arena, Block, Chunk, Failure, Worker, arena_alloc, arena_free,
    chunk_alloc, chunk_reserve, failure_set, scratch_alloc,
)
from ordstream._core.ground.kernel cimport PS, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.keyed_rows cimport (
    INSTALL_AHEAD, KEY_IS_THERE, key_put, keyed_find, keyed_install, keyed_prefetch, keyed_forget,
    keyed_shrink,
)
from ordstream._core.state.key_records cimport key_compare, key_copy, key_hash_row, key_store
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
    keyed_record, keyed_state,
)
from ordstream._core.state.ranking cimport OrdRanked, ord_sort_ranked_unless
from ordstream._core.state.state_columns cimport is_there, put_valid
from ordstream._core.state.state_rows cimport owner_state, row_reserve
from ordstream._core.ground.stopping cimport stop_due, worker_stops

cdef enum:
    INLINE_PLACES = 4      # of a list that lie in the record
    FIRST_CLASS = 6        # smallest block: 64 bytes
    LISTS_SLACK = 1 << 16  # bytes of blocks that are always tolerated

cdef struct Pair:
    # State of a (key, value) pair.
    int64_t count          # 0: no tuple yet
    int32_t place          # in its key's list, plus 1; 0: not in it
    int32_t key            # slot of its key
    int32_t following      # slot of the next pair of its key, plus 1; 0: none
    int32_t preceding      # of the one before; 0: the key's `head`

cdef struct Best:
    # State of a key: slots of its best pairs, best first.
    int32_t* block         # owned by the bucket; NULL: the list lies in `first`
    int32_t n              # without updates: pairs of the key
    int32_t size_class     # block holds 1 << size_class bytes
    int32_t[INLINE_PLACES] first
    int32_t head           # slot of the key's latest pair, plus 1; 0: it has none

cdef struct ValuesContext:
    # Read-only while a run lasts. Memory ownership: TopValuesKernel.
    const KeySpec* keys
    const KeySpec* pairs   # the key columns, then the value
    const KeySpec* rows    # the same in a row of state
    int64_t k
    int32_t updates

cdef struct ValuesBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    KeyedState pairs
    Blocks blocks          # of long lists
    int64_t listed         # bytes of the blocks in use


cdef inline int32_t* places_of(Best* list) noexcept nogil:
    return <int32_t*> list.first if list.block == NULL else list.block


cdef inline Pair* pair_of(ValuesBucket* b, int64_t slot) noexcept nogil:
    return <Pair*> keyed_state(&b.pairs, slot)


cdef int list_grow(ValuesBucket* b, Best* list) noexcept nogil:
    """Room for one more place. 0, or -1: no memory (the list is as before)."""
    cdef int64_t room = INLINE_PLACES if list.block == NULL else (<int64_t> 1) << (list.size_class - 2)
    cdef int32_t larger
    cdef char* block
    if list.n < room:
        return 0
    larger = list.size_class + 1 if list.block != NULL else <int32_t> FIRST_CLASS
    block = block_take(&b.blocks, larger)
    if block == NULL:
        return -1
    memcpy(block, places_of(list), <size_t> list.n * 4)
    if list.block != NULL:
        block_give(&b.blocks, <char*> list.block, list.size_class)
        b.listed -= (<int64_t> 1) << list.size_class
    b.listed += (<int64_t> 1) << larger
    list.block = <int32_t*> block
    list.size_class = larger
    return 0


cdef inline bint better(const ValuesContext* x, ValuesBucket* b, int64_t p, int64_t q) noexcept nogil:
    """Whether pair p comes before pair q of the same key: it has a larger count, or the same count and a
    smaller value."""
    cdef int64_t count_p = pair_of(b, p).count
    cdef int64_t count_q = pair_of(b, q).count
    if count_p != count_q:
        return count_p > count_q
    return key_compare(x.pairs, keyed_record(&b.pairs, p), keyed_record(&b.pairs, q)) < 0


cdef inline void chain(ValuesBucket* b, int32_t key, int32_t slot) noexcept nogil:
    """Put a new pair at the head of its key's chain."""
    cdef Best* list = <Best*> keyed_state(&b.keyed, key)
    cdef Pair* pair = pair_of(b, slot)
    pair.key = key
    pair.preceding = 0
    pair.following = list.head
    if list.head:
        pair_of(b, list.head - 1).preceding = slot + 1
    list.head = slot + 1


cdef int include_more(const ValuesContext* x, ValuesBucket* b, int32_t key, int32_t slot,
                      int64_t n) noexcept nogil:
    """Count a pair n times more and keep its key's list in order. 0, or -1: no memory, and nothing
    changed."""
    cdef Best* list = <Best*> keyed_state(&b.keyed, key)
    cdef Pair* pair = pair_of(b, slot)
    cdef int32_t* places
    cdef int64_t at
    if pair.place == 0 and list.n < x.k and list_grow(b, list) != 0:
        return -1
    if pair.count == 0:
        chain(b, key, slot)
    pair.count += n
    places = places_of(list)
    if pair.place:
        at = pair.place - 1
    elif list.n < x.k:
        at = list.n
        list.n += 1
    else:
        at = list.n - 1
        if not better(x, b, slot, places[at]):
            return 0
        pair_of(b, places[at]).place = 0
    while at and better(x, b, slot, places[at - 1]):
        places[at] = places[at - 1]
        pair_of(b, places[at]).place = <int32_t> at + 1
        at -= 1
    places[at] = slot
    pair.place = <int32_t> at + 1
    return 0


cdef inline void count_more(ValuesBucket* b, int32_t key, int32_t slot, int64_t n) noexcept nogil:
    """Count a pair n times more; no list is kept up."""
    cdef Pair* pair = pair_of(b, slot)
    if pair.count == 0:
        chain(b, key, slot)
        (<Best*> keyed_state(&b.keyed, key)).n += 1
    pair.count += n


cdef int emit_pair(const ValuesContext* x, Worker* w, ValuesBucket* b, int64_t slot, Chunk* out,
                   int32_t origin) noexcept nogil:
    """Append a pair of a list (room is reserved). 0, or -1: no memory."""
    cdef int32_t i = out.n
    if key_store(x.pairs, keyed_record(&b.pairs, slot), w, out, i) != 0:
        return -1
    (<int64_t*> out.cols[x.pairs.ncols].data)[i] = pair_of(b, slot).count
    (<int64_t*> out.cols[x.pairs.ncols + 1].data)[i] = pair_of(b, slot).place
    out.origin[i] = origin
    out.n = i + 1
    out.slots = out.n
    return 0


cdef void values_free(Kernel* k, void* state) noexcept nogil:
    cdef ValuesBucket* b = <ValuesBucket*> state
    keyed_free(&b.keyed)
    keyed_free(&b.pairs)
    blocks_free(&b.blocks)
    free(b)


cdef void* values_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef ValuesBucket* b = <ValuesBucket*> calloc(1, sizeof(ValuesBucket))
    if b == NULL:
        return NULL
    if (keyed_init(&b.keyed, x.keys, <int32_t> sizeof(Best), &b.blocks.pool) != 0
            or keyed_init(&b.pairs, x.pairs, <int32_t> sizeof(Pair), &b.blocks.pool) != 0):
        values_free(k, b)
        return NULL
    return b


cdef int64_t values_bytes(Kernel* k, void* state) noexcept nogil:
    cdef ValuesBucket* b = <ValuesBucket*> state
    return keyed_bytes(&b.keyed) + keyed_bytes(&b.pairs) + blocks_bytes(&b.blocks)


cdef int32_t values_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Count values; with updates emit each row whose value is among the k best of its key.

    Thread safety: the bucket's holder. Ownership: strings of outputs lie in the state. Returns: n; fewer
    only without memory. Cost: two keyed_lookups, ~10 ns per row; with updates O(k) where a pair moves far,
    each place a cache line.
    """
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef ValuesBucket* b = <ValuesBucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int32_t[LOOKUP_BLOCK] pairs
    # the same columns, hashed by key and value: all that a lookup reads
    cdef Chunk with_pairs
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    with_pairs.cols = c.cols
    with_pairs.hash = <uint64_t*> scratch_alloc(w, <int64_t> c.slots * 8)
    if with_pairs.hash == NULL:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        for i in range(m):
            with_pairs.hash[rows[k0 + i]] = key_hash_row(x.pairs, c, rows[k0 + i])
        if (keyed_lookup(&b.keyed, w, c, rows + k0, m, slots) != 0
                or keyed_lookup(&b.pairs, w, &with_pairs, rows + k0, m, pairs) != 0):
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if not x.updates:
            for i in range(m):
                count_more(b, slots[i], pairs[i], 1)
            k0 += m
            continue
        for i in range(m):
            if (out.n == out.capacity and chunk_reserve(w, out, k.output, m - i) != 0
                    or include_more(x, b, slots[i], pairs[i], 1) != 0):
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            if pair_of(b, pairs[i]).place and emit_pair(x, w, b, pairs[i], out, rows[k0 + i]) != 0:
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
        k0 += m
    return n


cdef int emit_list(Kernel* k, Worker* w, ValuesBucket* b, int64_t key_slot, const int32_t* slots, int32_t n,
                   Chunk* out) noexcept nogil:
    """Append a key's list at the end of the stream: pairs that know their places. 0, or -1: no memory."""
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef char* key = chunk_alloc(w, out, x.keys.size)
    cdef int32_t j
    if (key == NULL or flush_reserve(w, out, k.output, n) != 0
            or key_copy(x.keys, keyed_record(&b.keyed, key_slot), w, out, key) != 0):
        return -1
    for j in range(n):
        out.flush_time[out.n] = 0
        out.flush_key[out.n] = key
        if emit_pair(x, w, b, slots[j], out, 0) != 0:
            return -1
    return 0


cdef int emit_counted(Kernel* k, Worker* w, ValuesBucket* b, Chunk* out) noexcept nogil:
    """Without updates: the k best pairs of each key, by a counting sort of all pairs by key and a selection
    within each.

    Cost: two passes over the pairs, then O(pairs of a key, log k) comparisons. 0, or -1: no memory.
    """
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef int64_t keys = b.keyed.count
    cdef int64_t n = b.pairs.count
    # of each key's part of `slots`
    cdef int64_t* ends = <int64_t*> malloc((keys + 1) * sizeof(int64_t))
    cdef int32_t* slots = <int32_t*> malloc((n + 1) * sizeof(int32_t))
    cdef OrdRanked* ranked = NULL
    cdef Pair* pair
    cdef int64_t most = 0
    cdef int64_t at = 0
    cdef int64_t best
    cdef int64_t i
    cdef int64_t j
    cdef int32_t m
    cdef int status = -1
    if ends != NULL and slots != NULL:
        for i in range(keys):
            if stop_due(w, i):
                keys = 0
                n = 0
                break
            m = (<Best*> keyed_state(&b.keyed, i)).n
            ends[i] = at
            at += m
            most = max(most, <int64_t> m)
        ranked = <OrdRanked*> malloc((most + 1) * sizeof(OrdRanked))
    if ranked != NULL:
        status = 0
        for i in range(n):
            if stop_due(w, i):
                keys = 0
                break
            pair = pair_of(b, i)
            if pair.count:
                slots[ends[pair.key]] = <int32_t> i
                ends[pair.key] += 1
        for i in range(keys):
            if stop_due(w, i):
                break
            m = (<Best*> keyed_state(&b.keyed, i)).n
            at = ends[i] - m
            best = min(<int64_t> m, x.k)
            for j in range(m):
                ranked[j].slot = slots[at + j]
                ranked[j].rank = pair_of(b, slots[at + j]).count
                ranked[j].key = keyed_record(&b.pairs, slots[at + j])
            if not ord_sort_ranked_unless(ranked, m, best, x.pairs, key_compare, worker_stops, w):
                break
            for j in range(best):
                slots[at + j] = <int32_t> ranked[j].slot
                pair_of(b, ranked[j].slot).place = <int32_t> j + 1
            if m and emit_list(k, w, b, i, slots + at, <int32_t> best, out) != 0:
                status = -1
                break
    free(ends)
    free(slots)
    free(ranked)
    return status


cdef int values_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                          Failure* f) noexcept nogil:
    """At the end of the stream the list of each key, best first. Any order of keys: the runtime sorts by
    flush_key."""
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef ValuesBucket* b = <ValuesBucket*> state
    cdef Best* list
    cdef int64_t i
    cdef int status = 0
    if punctuation.kind != END_OF_STREAM:
        return 0
    if x.updates:
        for i in range(b.keyed.count):
            if stop_due(w, i):
                break
            list = <Best*> keyed_state(&b.keyed, i)
            if list.n and emit_list(k, w, b, i, places_of(list), list.n, out) != 0:
                status = -1
                break
    else:
        status = emit_counted(k, w, b, out)
    if status != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return status


# -------------------------------------------------------------------------------- state as rows


cdef int put_pair(const ValuesContext* x, Worker* w, ValuesBucket* b, int64_t slot,
                  Chunk* out) noexcept nogil:
    """Append a pair as a row (reserved). 0, or -1: no memory."""
    if key_put(x.pairs, keyed_record(&b.pairs, slot), w, out, out.n) != 0:
        return -1
    (<int64_t*> out.cols[x.pairs.ncols].data)[out.n] = pair_of(b, slot).count
    put_valid(w, out, x.pairs.ncols, out.n, True)
    out.n += 1
    return 0


cdef int32_t export_named(Kernel* k, Worker* w, ValuesBucket* b, StateCursor* cursor,
                          Chunk* out) noexcept nogil:
    """Rows of the keys that the cursor names: `at` counts these, `part` is the pair to go on with, plus 1
    (0: the key's first). Rows, or -1: no memory."""
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef int64_t key
    cdef int32_t n = 0
    while cursor.at < cursor.n:
        if cursor.part == 0:
            key = keyed_find(&b.keyed, k.state_keys, cursor.keys, cursor.slots[cursor.at])
            cursor.part = (<Best*> keyed_state(&b.keyed, key)).head if key >= 0 else 0
        while cursor.part:
            if n == cursor.most:
                return n
            if put_pair(x, w, b, cursor.part - 1, out) != 0:
                return -1
            n += 1
            cursor.part = pair_of(b, cursor.part - 1).following
        cursor.at += 1
    cursor.done = 1
    return n


cdef int32_t values_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                           Failure* f) noexcept nogil:
    """Rows (key..., value, count), one for each value of a key. Contract: kernel.pxd (f)."""
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef ValuesBucket* b = <ValuesBucket*> state
    cdef int32_t n = 0
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    if cursor.keys != NULL:
        n = export_named(k, w, b, cursor, out)
    else:
        while n >= 0 and n < cursor.most and cursor.at < b.pairs.count:
            if pair_of(b, cursor.at).count:
                n = n + 1 if put_pair(x, w, b, cursor.at, out) == 0 else -1
            cursor.at += 1
        cursor.done = cursor.at >= b.pairs.count
    out.slots = out.n
    if n < 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return n


cdef int32_t values_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil:
    """Take such rows in; those of one key may come in several calls. Contract: kernel.pxd (f)."""
    cdef ValuesContext* x = <ValuesContext*> k.ctx
    cdef ValuesBucket* b = <ValuesBucket*> state
    cdef int64_t count
    cdef int64_t pair
    cdef int64_t key
    cdef int32_t i
    for i in range(n):
        if i + INSTALL_AHEAD < n:
            keyed_prefetch(&b.pairs, x.rows, rows, slots[i + INSTALL_AHEAD])
            keyed_prefetch(&b.keyed, k.state_keys, rows, slots[i + INSTALL_AHEAD])
        count = (<const int64_t*> rows.cols[x.pairs.ncols].data)[slots[i]]
        if count < 1 or not is_there(rows, x.pairs.ncols, slots[i]):
            failure_set(f, slots[i], FAIL_STATE, "a count is null, 0 or negative")
            return i
        pair = keyed_install(&b.pairs, x.rows, rows, slots[i])
        if pair == KEY_IS_THERE:
            pair = keyed_find(&b.pairs, x.rows, rows, slots[i])
            if pair_of(b, pair).count:
                failure_set(f, slots[i], FAIL_STATE, "the key is there already, with this value")
                return i
        key = -1
        if pair >= 0:
            key = keyed_install(&b.keyed, k.state_keys, rows, slots[i])
            if key == KEY_IS_THERE:
                key = keyed_find(&b.keyed, k.state_keys, rows, slots[i])
        if key < 0 or (x.updates and include_more(x, b, <int32_t> key, <int32_t> pair, count) != 0):
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i                                         # a pair without a count is none
        if not x.updates:
            count_more(b, <int32_t> key, <int32_t> pair, count)
    return n


cdef void remove_pair(ValuesBucket* b, int64_t slot) noexcept nogil:
    """Forget a pair that is in no chain; the last one moves into its slot."""
    cdef const Pair* pair
    keyed_forget(&b.pairs, slot)
    if slot == b.pairs.count or pair_of(b, slot).count == 0:
        return
    pair = pair_of(b, slot)
    if pair.preceding:
        pair_of(b, pair.preceding - 1).following = <int32_t> slot + 1
    else:
        (<Best*> keyed_state(&b.keyed, pair.key)).head = <int32_t> slot + 1
    if pair.following:
        pair_of(b, pair.following - 1).preceding = <int32_t> slot + 1
    if pair.place:
        places_of(<Best*> keyed_state(&b.keyed, pair.key))[pair.place - 1] = <int32_t> slot


cdef void remove_key(ValuesBucket* b, int64_t key) noexcept nogil:
    """Forget a key, its list and its pairs; the last key moves into its slot."""
    cdef Best* list = <Best*> keyed_state(&b.keyed, key)
    cdef int64_t slot
    cdef int32_t pair
    while list.head:
        slot = list.head - 1
        list.head = pair_of(b, slot).following
        if list.head:
            pair_of(b, list.head - 1).preceding = 0
        remove_pair(b, slot)
    if list.block != NULL:
        block_give(&b.blocks, <char*> list.block, list.size_class)
        b.listed -= (<int64_t> 1) << list.size_class
    keyed_forget(&b.keyed, key)
    if key == b.keyed.count:
        return
    pair = (<Best*> keyed_state(&b.keyed, key)).head
    while pair:
        pair_of(b, pair - 1).key = <int32_t> key
        pair = pair_of(b, pair - 1).following


cdef void shrink_lists(ValuesBucket* b) noexcept nogil:
    """Copy long lists together where they use a quarter of their blocks or less. Without memory they stay
    where they are."""
    cdef const Block* block = b.blocks.arena.first
    cdef int64_t held = 0
    cdef Arena fresh
    cdef char** moved
    cdef Best* list
    cdef int64_t i
    while block != NULL:
        held += block.size
        block = block.next
    if held <= LISTS_SLACK or 4 * b.listed > held:
        return
    moved = <char**> calloc(<size_t> b.keyed.count + 1, sizeof(char*))
    if moved == NULL:
        return
    memset(&fresh, 0, sizeof(Arena))
    for i in range(b.keyed.count):
        list = <Best*> keyed_state(&b.keyed, i)
        if list.block != NULL:
            moved[i] = arena_alloc(&fresh, (<int64_t> 1) << list.size_class, &b.blocks.pool)
            if moved[i] == NULL:
                arena_free(&fresh, &b.blocks.pool)
                free(moved)
                return
            memcpy(moved[i], list.block, <size_t> list.n * 4)
    for i in range(b.keyed.count):
        if moved[i] != NULL:
            (<Best*> keyed_state(&b.keyed, i)).block = <int32_t*> moved[i]
    free(moved)
    blocks_free(&b.blocks)
    b.blocks.arena = fresh


cdef int32_t values_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f). Cost: that of each of their pairs, and a pass over the pairs of
    the keys that move."""
    cdef ValuesBucket* b = <ValuesBucket*> state
    cdef int64_t key
    cdef int32_t there = 0
    cdef int32_t i
    for i in range(n):
        key = keyed_find(&b.keyed, k.state_keys, keys, slots[i])
        if key >= 0:
            there += (<Best*> keyed_state(&b.keyed, key)).head != 0
            remove_key(b, key)
    keyed_shrink(&b.keyed)
    keyed_shrink(&b.pairs)
    shrink_lists(b)
    return there


cdef class TopValuesKernel(KernelOwner):
    """Operator "top_values". Attributes: `column`; `k`; `emit`, "updates" or "final"; `key`."""

    cdef ValuesContext context
    cdef KeySpecOwner keys
    cdef KeySpecOwner pairs
    cdef KeySpecOwner rows

    def __init__(self, operator):
        owner_setup(self, operator, PS)
        self.keys = KeySpecOwner(operator.key, self.input_layout.types)
        self.pairs = KeySpecOwner([*operator.key, operator.column], self.input_layout.types)
        self.context.keys = &self.keys.spec
        self.context.pairs = &self.pairs.spec
        self.context.k = operator.k
        self.context.updates = operator.emit == "updates"
        if self.context.k < 1:
            raise ValueError(f"{operator.name!r}: k must be at least 1, not {self.context.k}")
        if self.kernel.output.ncols != len(operator.key) + 3:
            raise ValueError(f"{operator.name!r}: the output schema must be key columns, value, "
                             f"count and rank")
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1
        self.kernel.process = values_process
        self.kernel.punctuate = values_punctuate
        self.kernel.bucket_new = values_new
        self.kernel.bucket_free = values_free
        self.kernel.bucket_bytes = values_bytes
        owner_state(self, operator, values_export, values_install, values_remove)
        self.rows = KeySpecOwner(range(len(operator.key) + 1), self.state_layout.types)
        self.context.rows = &self.rows.spec
