"""Open sessions in slots of one cache line. See session_slots.pxd for the design and the meaning of every
word."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, Chunk, Failure, Worker, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.state.deadlines cimport deadlines_bytes, deadlines_free
from ordstream._core.state.fold cimport (
    F_COUNT, Accumulator, Fold, FoldBlock, fold_begin, fold_into, fold_load, fold_prepare,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK
from ordstream._core.ground.threads cimport prefetch_write

cdef extern from "map_memory.hpp" nogil:
    void* ord_zeroed(size_t size)
    void ord_block_free(void* block, size_t size)

cdef enum:
    FIRST_SLOTS = 256

cdef uint8_t[1] NO_BITS       # without aggregates
NO_BITS[0] = 0

cdef void slots_setup(SlotContext* x) noexcept nogil:
    """Lay out the slot: `word` of each aggregate that is kept, `shift`."""
    cdef int32_t at = FIRST_VALUE
    cdef int32_t j
    for j in range(x.fold.n):
        if (x.kept >> j) & 1:
            x.word[j] = at
            at += 1
    x.shift = 5 if at <= 4 else 6 if at <= 8 else 7


cdef void* slots_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef SlotBucket* b = <SlotBucket*> calloc(1, sizeof(SlotBucket))
    if b == NULL:
        return NULL
    b.capacity = FIRST_SLOTS
    b.table = <char*> ord_zeroed(<size_t> FIRST_SLOTS << (<const SlotContext*> k.ctx).shift)
    if b.table == NULL:
        free(b)
        return NULL
    return b


cdef void slots_free(Kernel* k, void* state) noexcept nogil:
    cdef SlotBucket* b = <SlotBucket*> state
    ord_block_free(b.table, <size_t> b.capacity << (<const SlotContext*> k.ctx).shift)
    deadlines_free(b.deadlines)
    free(b)


cdef int64_t slots_bytes(Kernel* k, void* state) noexcept nogil:
    cdef SlotBucket* b = <SlotBucket*> state
    return (b.capacity << (<const SlotContext*> k.ctx).shift) + deadlines_bytes(b.deadlines)


cdef int slots_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Find out which rows the aggregates look at."""
    cdef const SlotContext* x = <const SlotContext*> k.ctx
    return fold_prepare(x.fold, w, c, x.conditions)


cdef int resize(const SlotContext* x, SlotBucket* b, int64_t capacity) noexcept nogil:
    """Move the slots to a table of another capacity. 0, or -1: no memory (the bucket is as before)."""
    cdef int32_t shift = x.shift
    cdef int64_t mask = capacity - 1
    cdef char* table = <char*> ord_zeroed(<size_t> capacity << shift)
    cdef const uint64_t* old
    cdef int64_t at
    cdef int64_t i
    if table == NULL:
        return -1
    for i in range(b.capacity):
        old = <const uint64_t*> (b.table + (i << shift))
        if old[META_WORD] == 0:
            continue
        at = <int64_t> slot_hash(old[KEY_WORD]) & mask
        while (<const uint64_t*> (table + (at << shift)))[META_WORD] != 0:
            at = (at + 1) & mask
        memcpy(table + (at << shift), old, <size_t> 1 << shift)
    ord_block_free(b.table, <size_t> b.capacity << shift)
    b.table = table
    b.capacity = capacity
    return 0


cdef int slots_room(const SlotContext* x, SlotBucket* b, int64_t more) noexcept nogil:
    """Room for `more` new keys. 0, or -1: no memory (the bucket is as before). Thread safety: the bucket's
    holder. Cost: a copy where the table grows."""
    cdef int64_t capacity = b.capacity
    while (b.count + more) * 2 > capacity:
        capacity *= 2
    return resize(x, b, capacity) if capacity > b.capacity else 0


cdef void slots_settle(const SlotContext* x, SlotBucket* b, int64_t most) noexcept nogil:
    """Give memory back after keys were forgotten, but for the room that `most` keys need: where the table
    has eight times as many slots. Without memory to move into it stays.

    Thread safety: the bucket's holder. Cost: nothing, or a pass over the table.
    """
    cdef int64_t capacity = b.capacity
    while capacity > FIRST_SLOTS and 8 * most <= capacity:
        capacity //= 2
    if capacity < b.capacity:
        resize(x, b, capacity)


cdef int64_t slot_find(SlotBucket* b, int32_t shift, uint64_t key) noexcept nogil:
    """The place of a key's slot in the table, or -1: it is not there. Thread safety: the bucket's holder.
    Cost: a cache miss."""
    cdef int64_t mask = b.capacity - 1
    cdef int64_t at = <int64_t> slot_hash(key) & mask
    cdef const uint64_t* slot = slot_at(b, shift, at)
    while slot[META_WORD] != 0 and slot[KEY_WORD] != key:
        at = (at + 1) & mask
        slot = slot_at(b, shift, at)
    return at if slot[META_WORD] != 0 else -1


cdef void slot_up(SlotBucket* b, int32_t shift, int64_t i) noexcept nogil:
    """Move a taken slot to the first free one of its chain, if one lies before it."""
    cdef uint64_t* slot = slot_at(b, shift, i)
    cdef int64_t at = <int64_t> slot_hash(slot[KEY_WORD]) & (b.capacity - 1)
    while at != i and slot_at(b, shift, at)[META_WORD] != 0:
        at = (at + 1) & (b.capacity - 1)
    if at != i:
        memcpy(slot_at(b, shift, at), slot, <size_t> 1 << shift)
        slot[META_WORD] = 0
        slot[LAST_WORD] = 0


cdef void slot_free(SlotBucket* b, int32_t shift, int64_t i) noexcept nogil:
    """Forget the key of the i-th slot (slot_at), which is taken; slots behind it may move up.

    Thread safety: the bucket's holder. Cost: a hash for each taken slot that follows.
    """
    cdef int64_t at = i
    slot_at(b, shift, i)[META_WORD] = 0
    slot_at(b, shift, i)[LAST_WORD] = 0
    if i == b.capacity:
        return
    b.count -= 1
    while True:
        at = (at + 1) & (b.capacity - 1)
        if slot_at(b, shift, at)[META_WORD] == 0:
            break
        slot_up(b, shift, at)


cdef uint64_t* slot_of(SlotBucket* b, int32_t shift, uint64_t key, uint64_t time) noexcept nogil:
    """The slot of a key. A new key, of a tuple at `time`, takes a free slot; the caller has made room."""
    cdef int64_t mask = b.capacity - 1
    cdef int64_t at = <int64_t> slot_hash(key) & mask
    cdef uint64_t* slot
    while True:
        slot = <uint64_t*> (b.table + (at << shift))
        if slot[META_WORD] == 0:
            slot[KEY_WORD] = key
            slot[META_WORD] = TAKEN
            b.count += 1
            if b.deadlines != NULL:
                b.deadlines.come(time, key)
            return slot
        if slot[KEY_WORD] == key:
            return slot
        at = (at + 1) & mask


cdef void keep_values(const SlotContext* x, const Chunk* c, int32_t row, uint64_t* slot, uint32_t bits,
                      uint64_t had) noexcept nogil:
    """Fold a row into the values of the aggregates in `bits`. `had`: the bits of aggregates that already
    have a value."""
    cdef const Accumulator* a
    cdef uint64_t* word
    cdef int32_t j = 0
    while bits:
        if bits & 1:
            a = &x.fold.accumulators[j]
            word = &slot[x.word[j]]
            if not (had >> j) & 1:
                word[0] = 0
            fold_into(a.function, <int64_t*> word, not (had >> j) & 1,
                      (<const int64_t*> c.cols[a.source].data)[row] if a.function != F_COUNT else 0)
        bits >>= 1
        j += 1


cdef inline int32_t fold_rows(const SlotContext* x, SlotBucket* b, const Chunk* c, const int32_t* rows,
                              int32_t n, const int64_t* places,
                              const uint8_t* valid, int32_t shift, uint64_t* staged, int32_t* origin,
                              int32_t* done, uint64_t* before) noexcept nogil:
    """Add up to LOOKUP_BLOCK rows; the caller has made room for as many new keys. Sessions that close go to
    `staged`.

    Returns how many sessions closed. `done` gets the number of rows added: n, or fewer where the next row is
    earlier than its key's last time, which is then in `before` (as it stands in the slot). `places`: the
    byte in the table at which the search for a row's slot starts. `valid`: validity of the keys, or NULL.
    `shift`: x.shift. The common calls pass constants for these two, so that the compiler can specialise.
    `origin`: room for n. Thread safety: the bucket's holder. Cost: ~4 ns per row, ~60 instructions.
    """
    cdef const uint64_t* keys = <const uint64_t*> c.cols[x.key].data
    cdef const uint64_t* clock = <const uint64_t*> c.cols[x.time].data
    cdef const uint8_t* bits = <const uint8_t*> c.cols[x.conditions].data if x.fold.n else NO_BITS
    cdef bint without = x.fold.n == 0
    cdef char* table = b.table
    cdef int64_t most = (b.capacity - 1) << shift
    cdef int64_t words = 1 << (shift - 3)
    cdef uint64_t sign = x.sign
    cdef uint64_t timeout = x.timeout
    cdef uint32_t kept = x.kept
    cdef uint64_t* slot
    cdef uint64_t* to
    cdef uint64_t key
    cdef uint64_t time
    cdef uint64_t last
    cdef uint64_t meta
    cdef uint64_t opens
    cdef uint64_t fresh
    cdef uint32_t used
    cdef int64_t closed = 0
    cdef int64_t at
    cdef int64_t row
    cdef int32_t i
    cdef int32_t j
    for i in range(n):
        row = rows[i]
        key = keys[row]
        at = places[i]
        # this or the next, no branch
        at = (at + (<int64_t> ((<const uint64_t*> (table + at))[KEY_WORD] != key) << shift)) & most
        slot = <uint64_t*> (table + at)
        time = clock[row] ^ sign
        if valid != NULL and valid[row] == 0:
            slot = b.null_slot
            slot[META_WORD] |= TAKEN | IS_NULL
        elif slot[KEY_WORD] != key or slot[META_WORD] == 0:
            slot = slot_of(b, shift, key, time)
        last = slot[LAST_WORD]
        meta = slot[META_WORD]
        if time < last:                                      # a free slot's time is the earliest there is
            before[0] = last
            break
        opens = meta < (<uint64_t> 1 << COUNT_SHIFT)
        fresh = opens | (time - last > timeout)
        to = staged + closed * words
        for j in range(words):
            to[j] = slot[j]
        origin[closed] = <int32_t> row
        closed += <int64_t> (fresh ^ opens) & x.passes[meta & 255]
        meta &= (fresh - 1) | (TAKEN | IS_NULL)
        used = bits[0 if without else row]
        if used & kept:
            keep_values(x, c, <int32_t> row, slot, used & kept, meta)
        slot[META_WORD] = (meta + (<uint64_t> 1 << COUNT_SHIFT)) | used
        slot[LAST_WORD] = time
        slot[START_WORD] ^= (slot[START_WORD] ^ time) & (0 - fresh)
    else:
        i = n
    done[0] = i
    return <int32_t> closed


cdef int slots_validity(const SlotContext* x, Worker* w, const Chunk* c, Chunk* out) noexcept nogil:
    """Give validity arrays to those columns of `out` that may get nulls; room for the rows is reserved.

    `c`: the chunk that closed the sessions; NULL: a punctuation did. 0, or -1: no memory.
    """
    cdef int32_t j
    for j in range(x.nflags):
        if out.cols[x.flags[j].column].valid == NULL and chunk_set_valid(w, out, x.flags[j].column) != 0:
            return -1
    if x.makes_key and (c == NULL or c.cols[x.key].valid != NULL) and out.cols[0].valid == NULL:
        return chunk_set_valid(w, out, 0)
    return 0


cdef void slots_write(const SlotContext* x, const uint64_t* staged, int32_t n, Chunk* out) noexcept nogil:
    """Append the columns of n sessions. Rows and validity are reserved, and `origin` is written."""
    cdef int32_t words = 1 << (x.shift - 3)
    cdef int32_t index = out.n
    cdef const SlotColumn* one
    cdef int64_t* data
    cdef uint8_t* valid
    cdef int32_t i
    cdef int32_t j
    for j in range(x.nflags):
        one = &x.flags[j]
        valid = out.cols[one.column].valid + index
        for i in range(n):
            valid[i] = <uint8_t> ((staged[i * words + META_WORD] >> one.bit) & 1)
    if x.makes_key:
        data = <int64_t*> out.cols[0].data + index
        for i in range(n):
            data[i] = <int64_t> staged[i * words + KEY_WORD]
        if out.cols[0].valid != NULL:
            valid = out.cols[0].valid + index
            for i in range(n):
                valid[i] = staged[i * words + META_WORD] & IS_NULL == 0
    for j in range(x.nvalues):
        one = &x.values[j]
        data = <int64_t*> out.cols[one.column].data + index
        if one.word == META_WORD:
            for i in range(n):
                data[i] = <int64_t> (staged[i * words + META_WORD] >> COUNT_SHIFT)
        elif one.bit >= 0:                                    # of no row: 0
            for i in range(n):
                data[i] = <int64_t> (staged[i * words + one.word]
                                     & (0 - ((staged[i * words + META_WORD] >> one.bit) & 1)))
        else:
            for i in range(n):
                data[i] = <int64_t> (staged[i * words + one.word] ^ x.sign)
    out.n = index + n
    out.slots = out.n


cdef inline void places_of(const SlotContext* x, const SlotBucket* b, const Chunk* c, const int32_t* rows,
                           int32_t n,
                           int64_t* places) noexcept nogil:
    """For each row, the byte in the table at which the search for its slot starts. Those lines are
    prefetched."""
    cdef const uint64_t* keys = <const uint64_t*> c.cols[x.key].data
    cdef const char* table = b.table
    cdef int32_t shift = x.shift
    cdef int64_t most = (b.capacity - 1) << shift
    cdef int64_t place
    cdef int32_t i
    for i in range(n):
        place = <int64_t> (slot_hash(keys[rows[i]]) << shift) & most
        places[i] = place
        prefetch_write(table + place)


cdef int32_t slots_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Add rows to their keys' sessions; a row after a gap emits the session before it.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when rows[j] holds a null time, an
    aggregate's condition fails at it or its time is earlier than the key's last one (the session untouched),
    or without memory. Cost: ~4 ns per row where the table lies in the cache.
    """
    cdef const SlotContext* x = <const SlotContext*> k.ctx
    cdef SlotBucket* b = <SlotBucket*> state
    cdef const Fold* fold = x.fold
    cdef const uint8_t* valid = c.cols[x.time].valid
    cdef bint fails = fold.n != 0 and c.cols[x.conditions].valid[0] != 0
    cdef uint8_t* mask = <uint8_t*> c.cols[x.conditions].data if fold.n else <uint8_t*> NULL
    cdef const uint8_t* nulls = c.cols[x.key].valid
    cdef int64_t[2][LOOKUP_BLOCK] places
    cdef Staged staged
    cdef FoldBlock block
    cdef uint8_t bits
    cdef int32_t k0 = 0
    cdef int32_t turn = 0
    cdef int32_t m
    cdef int32_t clean                                       # rows of the block without a null time
    # of these, rows before one whose condition fails
    cdef int32_t end
    cdef int32_t closed
    cdef int32_t done
    cdef uint64_t before = 0
    cdef int32_t i
    cdef int32_t j
    places_of(x, b, c, rows, min(n, <int32_t> LOOKUP_BLOCK), places[0])
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        clean = m
        if valid != NULL:
            clean = 0
            while clean < m and valid[rows[k0 + clean]] != 0:
                clean += 1
        end = clean
        if fails and clean:
            if fold_begin(fold, w, &block) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            end = fold_load(fold, w, c, rows + k0, clean, x.conditions, &block, f)
            for i in range(end):                             # from here on they are exact
                bits = 0
                for j in range(fold.n):
                    bits |= <uint8_t> ((block.used[j] == NULL or block.used[j][i] != 0) << j)
                mask[rows[k0 + i]] = bits
        if (b.count + m) * 2 > b.capacity:
            if slots_room(x, b, m) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            places_of(x, b, c, rows + k0, m, places[turn])
        if b.deadlines != NULL and b.deadlines.room(m) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if out.capacity - out.n < m and chunk_reserve(w, out, k.output, max(m, n // 2)) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if slots_validity(x, w, c, out) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if m < n - k0:
            places_of(x, b, c, rows + k0 + m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK), places[1 - turn])
        if x.shift == 5 and nulls == NULL:
            closed = fold_rows(x, b, c, rows + k0, end, places[turn], NULL, 5, staged.words,
                               out.origin + out.n, &done, &before)
        else:
            closed = fold_rows(x, b, c, rows + k0, end, places[turn], nulls, x.shift, staged.words,
                               out.origin + out.n, &done, &before)
        turn = 1 - turn
        if closed:
            slots_write(x, staged.words, closed, out)
        k0 += done
        if done < end:
            failure_earlier(f, rows[k0], x.time, (<const int64_t*> c.cols[x.time].data)[rows[k0]],
                            <int64_t> (before ^ x.sign))
            return k0
        if end < clean:
            return k0
        if clean < m:
            failure_set(f, rows[k0], FAIL_NULL,
                        "a null time or collected value: filter such tuples out before sessionize")
            return k0
    return n
