"""Counts of keys that fit into 64 bits. packed_counts.pxd has the design and the meaning of every field."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset
from ordstream._core.ground.chunk cimport PT_BOOL, PT_I8, PT_I64, PT_U64, Chunk, Column, Worker
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.ground.stopping cimport stop_asked
from ordstream._core.ground.threads cimport prefetch_write

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef extern from "map_memory.hpp" nogil:
    void* ord_slab(size_t size)
    void ord_slab_free(void* slab, size_t size)

cdef enum:
    FIRST_SLOTS = 64
    PAGE_SLOTS = 16384         # of a page that splits: 256 KiB
    SLAB_PAGES = 8             # 2 MiB
    MAX_DEPTH = 30
    SPARE_ENTRIES = 64         # directory entries per page beyond which a page closes instead
    FIRST_SPILL = 1024
    GROUP_PAGES_BITS = 2       # a group is 4 pages, 1 MiB
    DEFER_PAGES = 16           # pages from which on keys wait

cdef int64_t CLOSED = (<int64_t> 1) << 62


cdef inline int64_t limit_of(int64_t slots) noexcept nogil:
    return (slots * 11) >> 4


cdef inline bint is_signed(int32_t type) noexcept nogil:
    return type >= PT_I8 and type <= PT_I64


# ---------------------------------------------------------------------------------------------- keys


cdef int32_t bits_of(const KeySpec* ks) noexcept nogil:
    """Bits per column; 0: keys of these columns never pack."""
    cdef int32_t j
    if ks.ncols < 1 or ks.ncols > 8:
        return 0
    for j in range(ks.ncols):
        if ks.type[j] > PT_U64 and ks.type[j] != PT_BOOL:
            return 0
    return 64 // ks.ncols


cdef int32_t pack_pairs(const Chunk* c, const KeySpec* ks, const int32_t* rows, int32_t n,
                        uint64_t* keys) noexcept nogil:
    """packed_keys for two int64 columns without nulls. n, or 0 when a key does not fit."""
    cdef const int64_t* left = <const int64_t*> c.cols[ks.column[0]].data
    cdef const int64_t* right = <const int64_t*> c.cols[ks.column[1]].data
    cdef uint64_t wide = 0
    cdef uint64_t a
    cdef uint64_t b
    cdef int32_t i
    for i in range(n):
        a = <uint64_t> left[rows[i]] + <uint64_t> 0x80000000
        b = <uint64_t> right[rows[i]] + <uint64_t> 0x80000000
        keys[i] = (a << 32) | b
        wide |= a | b
    return 0 if wide >> 32 else n


cdef int32_t packed_keys(const PackedCounts* s, const Chunk* c, const int32_t* rows, int32_t n,
                         uint64_t* keys, int32_t* fit, int32_t* unfit, int32_t* nunfit) noexcept nogil:
    """Pack the keys of up to COUNT_BLOCK rows.

    Thread safety: pure. Ownership: arrays of n are the caller's. Returns: how many pack; keys[i] is then
    that of rows[fit[i]], and unfit[:nunfit] index the other rows. Cost: ~1 ns per row for two int64 columns,
    else ~2 ns per column.
    """
    cdef const KeySpec* ks = s.keys
    cdef const Column* col
    cdef int64_t[COUNT_BLOCK] words
    cdef uint64_t[COUNT_BLOCK] packed
    cdef uint8_t[COUNT_BLOCK] outside
    cdef uint64_t bias
    cdef uint64_t word
    cdef int32_t type
    cdef int32_t nfit = 0
    cdef int32_t i
    cdef int32_t j
    nunfit[0] = 0
    if (ks.ncols == 2 and ks.type[0] == PT_I64 and ks.type[1] == PT_I64
            and c.cols[ks.column[0]].valid == NULL
            and c.cols[ks.column[1]].valid == NULL and pack_pairs(c, ks, rows, n, keys) == n):
        for i in range(n):
            fit[i] = i
        return n
    for i in range(n):
        packed[i] = 0
        outside[i] = s.bits == 0
    if s.bits:
        for j in range(ks.ncols):
            col = &c.cols[ks.column[j]]
            type = ks.type[j]
            if type == PT_BOOL:
                for i in range(n):
                    words[i] = (<const uint8_t*> col.data)[rows[i]]
            else:
                load(words, type, col.data, rows, n)
            bias = (<uint64_t> 1) << (s.bits - 1) if is_signed(type) else 0
            for i in range(n):
                word = <uint64_t> words[i] + bias
                if s.bits < 64:
                    outside[i] |= word >> s.bits != 0
                    packed[i] = (packed[i] << s.bits) | word
                else:
                    packed[i] = word
            if col.valid != NULL:
                for i in range(n):
                    outside[i] |= col.valid[rows[i]] == 0
    for i in range(n):
        if outside[i]:
            unfit[nunfit[0]] = i
            nunfit[0] += 1
        else:
            keys[nfit] = packed[i]
            fit[nfit] = i
            nfit += 1
    return nfit


cdef void packed_column(const PackedCounts* s, int32_t j, int32_t* shift, uint64_t* ones,
                        uint64_t* bias) noexcept nogil:
    """How column j lies in a packed key: its value is ((key >> shift) & ones) - bias. Pure."""
    ones[0] = <uint64_t> 0 - 1 if s.bits == 64 else ((<uint64_t> 1) << s.bits) - 1
    bias[0] = (<uint64_t> 1) << (s.bits - 1) if s.bits and is_signed(s.keys.type[j]) else 0
    shift[0] = s.bits * (s.keys.ncols - 1 - j)


cdef void packed_record(const PackedCounts* s, uint64_t key, char* record) noexcept nogil:
    """The key record (keyed_state.pxd) of a packed key.

    Thread safety: pure. Ownership: `record` (keys.size bytes) is the caller's. Returns: nothing. Cost: ~1 ns
    per column.
    """
    cdef uint64_t ones
    cdef uint64_t bias
    cdef int32_t shift
    cdef int32_t j
    (<uint64_t*> record)[0] = 0
    for j in range(s.keys.ncols):
        packed_column(s, j, &shift, &ones, &bias)
        (<uint64_t*> (record + s.keys.offset[j]))[0] = ((key >> shift) & ones) - bias


# ---------------------------------------------------------------------------------------------- pages


cdef int packed_init(PackedCounts* s, const KeySpec* keys) noexcept nogil:
    """Make an empty one, which the caller owns until packed_free. By the creator. 0, or -1: no memory."""
    memset(<void*> s, 0, sizeof(PackedCounts))
    s.keys = keys
    s.bits = bits_of(keys)
    s.pages = <CountSlot**> calloc(1, sizeof(CountSlot*))
    if s.pages == NULL:
        return -1
    s.pages[0] = <CountSlot*> calloc(FIRST_SLOTS, sizeof(CountSlot))
    if s.pages[0] == NULL:
        free(s.pages)
        s.pages = NULL
        return -1
    s.mask = FIRST_SLOTS - 1
    s.limit = limit_of(FIRST_SLOTS)
    s.npages = 1
    s.bytes = FIRST_SLOTS * sizeof(CountSlot)
    return 0


cdef void packed_free(PackedCounts* s) noexcept nogil:
    """Free everything. Safe on zeroed memory."""
    cdef int64_t i
    if s.pages != NULL and s.nslabs == 0:
        free(s.pages[0])
    for i in range(s.nslabs):
        ord_slab_free(s.slabs[i], SLAB_PAGES * PAGE_SLOTS * sizeof(CountSlot))
    free(s.spill)
    free(s.waiting)
    free(s.nwaiting)
    free(s.slabs)
    free(s.pages)
    memset(<void*> s, 0, sizeof(PackedCounts))


cdef CountSlot* take_page(PackedCounts* s) noexcept nogil:
    """A page of PAGE_SLOTS zeroed slots; NULL: no memory. Ownership: the slab's."""
    cdef CountSlot* page = s.free
    cdef CountSlot* slab
    cdef void** slabs
    cdef int64_t i
    if page != NULL:
        s.free = <CountSlot*> page.key
        if page.n != 0:                                      # it was in use
            memset(page, 0, PAGE_SLOTS * sizeof(CountSlot))
        page.key = 0
        return page
    slabs = <void**> realloc(s.slabs, <size_t> (s.nslabs + 1) * sizeof(void*))
    if slabs == NULL:
        return NULL
    s.slabs = slabs
    slab = <CountSlot*> ord_slab(SLAB_PAGES * PAGE_SLOTS * sizeof(CountSlot))
    if slab == NULL:
        return NULL
    s.slabs[s.nslabs] = slab
    s.nslabs += 1
    s.bytes += SLAB_PAGES * PAGE_SLOTS * sizeof(CountSlot)
    for i in range(SLAB_PAGES - 1, 0, -1):                   # the first one is taken
        page = slab + i * PAGE_SLOTS
        page.key = <uint64_t> s.free
        page.n = 0
        s.free = page
    return slab


cdef inline void give_page(PackedCounts* s, CountSlot* page) noexcept nogil:
    page.key = <uint64_t> s.free
    page.n = 1
    s.free = page


cdef inline void place(CountSlot* page, int64_t mask, uint64_t hash, const CountSlot* slot) noexcept nogil:
    """Put a key that the page does not hold into a page with room."""
    cdef int64_t at = home(hash, mask)
    while page[at].n:
        at = at + 1 if at < mask else 1
    page[at] = slot[0]
    page.key += 1


cdef int enlarge(PackedCounts* s) noexcept nogil:
    """Double the only page. 0, or -1: no memory."""
    cdef int64_t slots = (s.mask + 1) * 2
    cdef CountSlot* old = s.pages[0]
    cdef CountSlot* page
    cdef int64_t i
    if slots == PAGE_SLOTS:
        page = take_page(s)
    else:
        page = <CountSlot*> calloc(slots, sizeof(CountSlot))
    if page == NULL:
        return -1
    for i in range(1, s.mask + 1):
        if old[i].n:
            place(page, slots - 1, spread(old[i].key), &old[i])
    free(old)
    s.pages[0] = page
    s.mask = slots - 1
    s.limit = limit_of(slots)
    if slots < PAGE_SLOTS:
        s.bytes = slots * sizeof(CountSlot)
    return 0


cdef int split_page(PackedCounts* s, uint64_t hash) noexcept nogil:
    """Divide the page of a hash in two, or close it. 0, or -1: no memory (nothing changed)."""
    cdef CountSlot* page = s.pages[entry_at(hash, s.depth)]
    cdef int32_t local = <int32_t> page.n
    cdef int64_t entries = (<int64_t> 1) << s.depth
    cdef int64_t first
    cdef int64_t half
    cdef int64_t i
    cdef uint64_t h
    cdef CountSlot** pages
    cdef CountSlot* low
    cdef CountSlot* high
    if local == s.depth:
        if s.depth == MAX_DEPTH or entries > SPARE_ENTRIES * s.npages:
            page.n |= CLOSED
            return 0
        pages = <CountSlot**> malloc(2 * entries * sizeof(CountSlot*))
        if pages == NULL:
            return -1
        for i in range(entries):
            pages[2 * i] = s.pages[i]
            pages[2 * i + 1] = s.pages[i]
        free(s.pages)
        s.pages = pages
        s.depth += 1
    low = take_page(s)
    high = take_page(s)
    if low == NULL or high == NULL:
        if low != NULL:
            give_page(s, low)
        return -1
    for i in range(1, s.mask + 1):
        if page[i].n:
            h = spread(page[i].key)
            place(high if (h >> (63 - local)) & 1 else low, s.mask, h, &page[i])
    low.n = local + 1
    high.n = local + 1
    half = (<int64_t> 1) << (s.depth - local - 1)            # entries of each
    first = entry_at(hash, s.depth) & ~(2 * half - 1)
    for i in range(half):
        s.pages[first + i] = low
        s.pages[first + half + i] = high
    give_page(s, page)
    s.npages += 1
    return 0


cdef int make_room(PackedCounts* s, uint64_t hash) noexcept nogil:
    """The page of a hash is full. 0, or -1: no memory."""
    cdef CountSlot* page = s.pages[entry_at(hash, s.depth)]
    while page.key >= <uint64_t> s.limit and not page.n & CLOSED:
        if (enlarge(s) if s.mask + 1 < PAGE_SLOTS else split_page(s, hash)) != 0:
            return -1
        page = s.pages[entry_at(hash, s.depth)]
    return 0


# ---------------------------------------------------------------------------------------------- spill


cdef int enlarge_spill(PackedCounts* s) noexcept nogil:
    """Room for one more key. 0, or -1: no memory."""
    cdef CountSlot* old = s.spill
    cdef int64_t slots = s.spill_mask + 1 if old != NULL else 0
    cdef int64_t i
    cdef int64_t at
    if 2 * (s.spilled + 1) <= slots:
        return 0
    s.spill = <CountSlot*> calloc(max(2 * slots, <int64_t> FIRST_SPILL), sizeof(CountSlot))
    if s.spill == NULL:
        s.spill = old
        return -1
    s.spill_mask = max(2 * slots, <int64_t> FIRST_SPILL) - 1
    s.bytes += (s.spill_mask + 1 - slots) * <int64_t> sizeof(CountSlot)
    for i in range(slots):
        if old[i].n:
            at = spill_home(s, old[i].key)
            while s.spill[at].n:
                at = (at + 1) & s.spill_mask
            s.spill[at] = old[i]
    free(old)
    return 0


cdef int64_t count_spilled(PackedCounts* s, uint64_t key) noexcept nogil:
    """Count a key that a closed page does not hold. Its count, or -1: no memory."""
    cdef int64_t at
    if enlarge_spill(s) != 0:
        return -1
    at = spill_home(s, key)
    while s.spill[at].n and s.spill[at].key != key:
        at = (at + 1) & s.spill_mask
    if s.spill[at].n == 0:
        s.spill[at].key = key
        s.spilled += 1
        s.count += 1
    s.spill[at].n += 1
    return s.spill[at].n


# ---------------------------------------------------------------------------------------------- counting


cdef int packed_count(PackedCounts* s, const uint64_t* keys, int32_t n, int64_t* totals) noexcept nogil:
    """Count up to COUNT_BLOCK keys; totals[i] gets the count that includes keys[i] (NULL: nobody asks).

    Thread safety: the bucket's holder. Ownership: none. Returns: 0, or -1: no memory. Cost per key: ~3 ns
    while the table lies in a near cache, ~10-20 ns when every key misses; a split ~50 us every 5,000 new
    keys. Not to be mixed with packed_add.
    """
    cdef uint64_t[COUNT_BLOCK] hashes
    cdef uint64_t key
    cdef uint64_t h
    cdef CountSlot* page
    cdef int64_t at
    cdef int64_t total
    cdef int64_t mask = s.mask
    cdef int32_t i
    for i in range(n):
        h = spread(keys[i])
        hashes[i] = h
        prefetch_write(&s.pages[entry_at(h, s.depth)][h & mask])
    for i in range(n):
        key = keys[i]
        h = hashes[i]
        page = s.pages[entry_at(h, s.depth)]
        at = home(h, mask)
        while page[at].key != key and page[at].n != 0:
            at = at + 1 if at < mask else 1
        if page[at].n != 0:
            total = page[at].n + 1
            page[at].n = total
        elif page.n & CLOSED:
            total = count_spilled(s, key)
            if total < 0:
                return -1
        else:
            page[at].key = key
            page[at].n = 1
            total = 1
            page.key += 1
            s.count += 1
            if page.key >= <uint64_t> s.limit:
                if make_room(s, h) != 0:
                    return -1
                mask = s.mask
        if totals != NULL:
            totals[i] = total
    return 0


cdef int settle_group(PackedCounts* s, int64_t group) noexcept nogil:
    """Count the keys that wait in a buffer. 0, or -1: no memory."""
    cdef const uint64_t* keys = s.waiting + group * BUFFER
    cdef int32_t n = s.nwaiting[group]
    cdef int32_t k = 0
    s.nwaiting[group] = 0
    while k < n:
        if packed_count(s, keys + k, min(n - k, <int32_t> COUNT_BLOCK), NULL) != 0:
            return -1
        k += COUNT_BLOCK
    return 0


cdef int packed_settle(PackedCounts* s, Worker* w) noexcept nogil:
    """Count what waits, and give the buffers back.

    If the run of `w` (NULL: none) is stopped, at most BUFFER keys more are counted.

    Thread safety: the bucket's holder. Ownership: none. Returns: 0, or -1: no memory. Cost: that of
    counting.
    """
    cdef int64_t group
    if s.group_bits == 0:
        return 0
    for group in range((<int64_t> 1) << s.group_bits):
        if w != NULL and stop_asked(w):
            return 0
        if settle_group(s, group) != 0:
            return -1
    free(s.waiting)
    free(s.nwaiting)
    s.waiting = NULL
    s.nwaiting = NULL
    s.bytes -= ((<int64_t> BUFFER * 8 + 4) << s.group_bits)
    s.group_bits = 0
    return 0


cdef int regroup(PackedCounts* s) noexcept nogil:
    """Buffers for the number of pages that there are now; without memory for them, no keys wait.

    Returns: 0, or -1: no memory to count with.
    """
    cdef int32_t bits = 0
    cdef int64_t groups
    if packed_settle(s, NULL) != 0:
        return -1
    while (s.npages >> (bits + 1 + GROUP_PAGES_BITS)) > 0:
        bits += 1
    groups = (<int64_t> 1) << bits
    s.waiting = <uint64_t*> malloc(<size_t> groups * BUFFER * 8)
    s.nwaiting = <int32_t*> calloc(groups, 4)
    if s.waiting == NULL or s.nwaiting == NULL:
        free(s.waiting)
        free(s.nwaiting)
        s.waiting = NULL
        s.nwaiting = NULL
        return 0
    s.group_bits = bits
    s.bytes += groups * (<int64_t> BUFFER * 8 + 4)
    return 0


cdef int packed_add(PackedCounts* s, const uint64_t* keys, int32_t n) noexcept nogil:
    """Count up to COUNT_BLOCK keys, or let them wait until there are many for the same pages.

    packed_settle counts the rest.

    Thread safety: the bucket's holder. Ownership: none. Returns: 0, or -1: no memory. Cost per key: ~10 ns
    at 10^7 keys.
    """
    cdef uint64_t h
    cdef int64_t group
    cdef int64_t pages = s.npages
    cdef int32_t shift = 64 - s.group_bits
    cdef int32_t i
    if s.group_bits == 0:
        if packed_count(s, keys, n, NULL) != 0:
            return -1
        return regroup(s) if s.npages >= DEFER_PAGES and s.npages > pages else 0
    for i in range(n):
        h = spread(keys[i])
        group = <int64_t> (h >> shift)
        s.waiting[group * BUFFER + s.nwaiting[group]] = keys[i]
        s.nwaiting[group] += 1
        if s.nwaiting[group] == BUFFER and settle_group(s, group) != 0:
            return -1
    if s.npages >> (s.group_bits + 1 + GROUP_PAGES_BITS) > 0:
        return regroup(s)
    return 0


cdef bint packed_segment(const PackedCounts* s, int64_t* entry, const CountSlot** slots,
                         int64_t* n) noexcept nogil:
    """The next run of slots, `entry` from 0: page by page, then the spill. A slot with n == 0 is empty.

    Thread safety: the bucket's holder. Ownership: none; valid until the next count. Returns: False at the
    end. Cost: O(1).
    """
    cdef int64_t entries = (<int64_t> 1) << s.depth
    if entry[0] < entries:
        slots[0] = s.pages[entry[0]] + 1
        n[0] = s.mask
        entry[0] += entries >> <int32_t> s.pages[entry[0]].n  # a page's entries follow each other
        return True
    if entry[0] == entries and s.spill != NULL:
        slots[0] = s.spill
        n[0] = s.spill_mask + 1
        entry[0] += 1
        return True
    return False
