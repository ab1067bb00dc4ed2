"""Packed counts key by key. See packed_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from ordstream._core.state.packed_counts cimport (
    BUFFER, COUNT_BLOCK, CountSlot, PackedCounts, entry_at, home, packed_count, packed_free, packed_init,
    packed_segment, spill_home, spread,
)


cdef int packed_drain(PackedCounts* s) noexcept nogil:
    """Count the keys that wait; the buffers stay.

    Thread safety: the bucket's holder. Ownership: none. Returns: 0, or -1: no memory. Cost: that of
    counting.
    """
    cdef int64_t group
    cdef int32_t n
    cdef int32_t k
    for group in range((<int64_t> 1) << s.group_bits if s.waiting != NULL else 0):
        n = s.nwaiting[group]
        s.nwaiting[group] = 0
        k = 0
        while k < n:
            if packed_count(s, s.waiting + group * BUFFER + k, min(n - k, <int32_t> COUNT_BLOCK), NULL) != 0:
                return -1
            k += COUNT_BLOCK
    return 0


cdef CountSlot* slot_of(const PackedCounts* s, uint64_t key) noexcept nogil:
    """The slot of a key, or NULL: it is not there."""
    cdef uint64_t hash = spread(key)
    cdef CountSlot* page = s.pages[entry_at(hash, s.depth)]
    cdef int64_t at = home(hash, s.mask)
    while page[at].n != 0:
        if page[at].key == key:
            return &page[at]
        at = at + 1 if at < s.mask else 1
    if s.spill != NULL:
        at = spill_home(s, key)
        while s.spill[at].n != 0:
            if s.spill[at].key == key:
                return &s.spill[at]
            at = (at + 1) & s.spill_mask
    return NULL


cdef int64_t packed_find(const PackedCounts* s, uint64_t key) noexcept nogil:
    """The count of a key; 0: it is not there. Thread safety: the bucket's holder. Cost: one cache miss."""
    cdef const CountSlot* slot = slot_of(s, key)
    return slot.n if slot != NULL else 0


cdef int packed_install(PackedCounts* s, uint64_t key, int64_t n) noexcept nogil:
    """Take a key in with a count n > 0.

    Thread safety: the bucket's holder. Ownership: none. Returns: 0; COUNT_IS_THERE, or -1: no memory
    (nothing changed in both cases). Cost: as packed_count.
    """
    if slot_of(s, key) != NULL:
        return COUNT_IS_THERE
    if packed_count(s, &key, 1, NULL) != 0:
        return -1
    slot_of(s, key).n = n
    return 0


cdef int packed_install_block(PackedCounts* s, const uint64_t* keys, const int64_t* counts,
                              int32_t n) noexcept nogil:
    """packed_install of n <= COUNT_BLOCK keys whose lookups overlap. Returns: 0; COUNT_IS_THERE where a key
    is there, or twice among these: nothing changed; -1: no memory, and some of them may be in."""
    cdef int64_t[COUNT_BLOCK] totals
    cdef bint fresh = True
    cdef CountSlot* slot
    cdef int32_t i
    if packed_count(s, keys, n, totals) != 0:
        return -1
    for i in range(n):
        fresh = fresh and totals[i] == 1
    for i in range(n):
        slot = slot_of(s, keys[i])
        if fresh:
            slot.n = counts[i]
        elif slot.n > 1:
            slot.n -= 1
        else:
            packed_remove(s, keys[i])
    return 0 if fresh else COUNT_IS_THERE


cdef void vacate_page(CountSlot* page, int64_t mask, int64_t hole) noexcept nogil:
    """Empty a slot of a page, whose slots 1..mask are a ring; those behind it move up where their chains
    would have a gap."""
    cdef int64_t at = hole
    cdef int64_t first
    while True:
        at = at + 1 if at < mask else 1
        if page[at].n == 0:
            break
        first = home(spread(page[at].key), mask)
        if (at - first + mask) % mask >= (at - hole + mask) % mask:
            page[hole] = page[at]
            hole = at
    page[hole].key = 0
    page[hole].n = 0
    page.key -= 1


cdef void vacate_spill(PackedCounts* s, int64_t hole) noexcept nogil:
    """The same of the spill, which goes with its last key."""
    cdef int64_t at = hole
    while True:
        at = (at + 1) & s.spill_mask
        if s.spill[at].n == 0:
            break
        if ((at - spill_home(s, s.spill[at].key)) & s.spill_mask) >= ((at - hole) & s.spill_mask):
            s.spill[hole] = s.spill[at]
            hole = at
    s.spill[hole].key = 0
    s.spill[hole].n = 0
    s.spilled -= 1
    if s.spilled == 0:
        s.bytes -= (s.spill_mask + 1) * <int64_t> sizeof(CountSlot)
        free(s.spill)
        s.spill = NULL
        s.spill_mask = 0


cdef bint packed_remove(PackedCounts* s, uint64_t key) noexcept nogil:
    """Forget a key; packed_shrink gives memory back.

    Thread safety: the bucket's holder. Ownership: none. Returns: whether it was there. Cost: one cache miss.
    """
    cdef CountSlot* slot = slot_of(s, key)
    cdef CountSlot* page
    if slot == NULL:
        return False
    if s.spill != NULL and slot >= s.spill and slot <= s.spill + s.spill_mask:
        vacate_spill(s, slot - s.spill)
    else:
        page = s.pages[entry_at(spread(key), s.depth)]
        vacate_page(page, s.mask, slot - page)
    s.count -= 1
    return True


cdef int copy_block(PackedCounts* to, const uint64_t* keys, const int64_t* counts, int32_t n) noexcept nogil:
    """Take n <= COUNT_BLOCK new keys in. 0, or -1: no memory."""
    cdef int32_t i
    if packed_count(to, keys, n, NULL) != 0:
        return -1
    for i in range(n):
        slot_of(to, keys[i]).n = counts[i]
    return 0


cdef void packed_shrink(PackedCounts* s) noexcept nogil:
    """Give memory back after keys were removed. Without memory to move into, all stays as it is. Buffers of
    keys that wait go, and come back when the next page splits.

    Thread safety: the bucket's holder. Ownership: none. Cost: nothing, or a copy.
    """
    cdef PackedCounts fresh
    cdef uint64_t[COUNT_BLOCK] keys
    cdef int64_t[COUNT_BLOCK] counts
    cdef const CountSlot* slots
    cdef int64_t entry = 0
    cdef int64_t nslots
    cdef int64_t i
    cdef int32_t n = 0
    cdef bint made
    if 4 * s.count >= s.limit * s.npages or (s.npages == 1 and s.mask < 64):
        return
    if packed_init(&fresh, s.keys) != 0:
        return
    made = True
    while made and packed_segment(s, &entry, &slots, &nslots):
        for i in range(nslots):
            if slots[i].n:
                keys[n] = slots[i].key
                counts[n] = slots[i].n
                n += 1
                if n == COUNT_BLOCK:
                    n = 0
                    if copy_block(&fresh, keys, counts, COUNT_BLOCK) != 0:
                        made = False
                        break
    if made and copy_block(&fresh, keys, counts, n) == 0:
        packed_free(s)
        s[0] = fresh
    else:
        packed_free(&fresh)
