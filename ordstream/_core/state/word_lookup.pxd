"""Lookups of keys of one column of 64 bits without nulls: a part of keyed_state.pyx.

The same passes, without a choice per row: a row whose key is not where it should be at first sight only sets
a bit, and is looked up by itself.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport Chunk
from ordstream._core.ground.mixing cimport mix64
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.keyed_map cimport LOOKUP_BLOCK, KeyEntry, KeyedState, LookupAhead


cdef inline void word_tags(const KeyEntry* table, int64_t mask, const uint64_t* hash, const uint64_t* words,
                           const int32_t* rows, int32_t n, bint far, uint32_t* tags) noexcept nogil:
    """Lower halves of the rows' hashes (`hash`: those that the chunk has, by slot; NULL: none). `far`: their
    entries are prefetched."""
    cdef uint32_t tag
    cdef int32_t k
    if hash != NULL:
        for k in range(n):
            tag = <uint32_t> hash[rows[k]]
            tags[k] = tag
            if far:
                prefetch_write(&table[tag & mask])
    elif far:
        for k in range(n):
            tag = <uint32_t> mix64(words[rows[k]])
            tags[k] = tag
            prefetch_write(&table[tag & mask])
    else:
        for k in range(n):
            tags[k] = <uint32_t> mix64(words[rows[k]])


cdef inline int32_t tagged(const KeyEntry* table, int64_t mask, uint32_t tag) noexcept nogil:
    """Slot of the record that the first or the second cell of a tag shows for it; below 0: neither does. No
    branch. (Keys of one tag have one first cell, so where it is empty the second has no such key.)"""
    cdef int64_t first = tag & mask
    cdef const KeyEntry* e = &table[(first + (table[first].tag != tag)) & mask]
    return (e.record - 1) | -<int32_t> (e.tag != tag)


cdef inline int32_t tagged_later(const KeyEntry* table, int64_t mask, uint32_t tag) noexcept nogil:
    """Slot of the first record that any cell shows for a tag; below 0: none does."""
    cdef int64_t at = tag & mask
    while table[at].record != 0:
        if table[at].tag == tag:
            return table[at].record - 1
        at = (at + 1) & mask
    return -1


cdef inline bint is_word(const char* record, uint64_t word) noexcept nogil:
    """Whether a record is of this key, and not of null."""
    cdef const uint64_t* r = <const uint64_t*> record
    return ((r[1] ^ word) | r[0]) == 0


cdef inline void fetch_records(const KeyedState* s, const int32_t* slots, int32_t n) noexcept nogil:
    """Prefetch the records of n slots."""
    cdef const char* records = s.records
    cdef int64_t stride = s.stride
    cdef int32_t line
    cdef int32_t k
    if stride <= 64:
        for k in range(n):
            prefetch_write(records + slots[k] * stride)
        return
    for k in range(n):
        prefetch_write(records + slots[k] * stride)
        prefetch_write(records + slots[k] * stride + stride - 1)
        for line in range(64, <int32_t> stride if stride > 128 else 0, 64):
            prefetch_write(records + slots[k] * stride + line)


cdef inline uint64_t word_slots(KeyedState* s, const Chunk* c, const uint64_t* words, const int32_t* rows,
                                int32_t n, int32_t following, bint far, LookupAhead* ahead,
                                uint32_t* tags, int32_t* out_slots) noexcept nogil:
    """Slots of n rows, at most LOOKUP_BLOCK, whose keys are `words`, by row. Returns: bits of the rows that
    were not found so; their tags are left in `tags`. `far`, `following`, `ahead`: as keyed_lookup_block."""
    cdef const KeyEntry* table = s.table
    cdef const char* records = s.records
    cdef const uint64_t* hash = c.hash
    cdef int64_t stride = s.stride
    cdef int64_t mask = s.capacity - 1
    cdef uint64_t missing = 0
    cdef int32_t slot
    cdef int32_t k
    if ahead.n == n:
        memcpy(tags, ahead.tags, <size_t> n * sizeof(uint32_t))
    else:
        word_tags(table, mask, hash, words, rows, n, far, tags)
    ahead.n = 0
    if not far:                                              # nothing to wait for: compare at once
        for k in range(n):
            slot = tagged(table, mask, tags[k])
            if slot < 0:
                slot = tagged_later(table, mask, tags[k])
            out_slots[k] = slot
            if slot < 0 or not is_word(records + slot * stride, words[rows[k]]):
                missing |= (<uint64_t> 1) << k
        return missing
    for k in range(n):
        slot = tagged(table, mask, tags[k])
        if slot < 0:
            slot = tagged_later(table, mask, tags[k])
        out_slots[k] = slot
        if stride <= 64:
            prefetch_write(records + slot * stride)
    if stride > 64:
        fetch_records(s, out_slots, n)
    if following > 0:
        word_tags(table, mask, hash, words, rows + n, following, True, ahead.tags)
        ahead.n = following
    for k in range(n):
        slot = out_slots[k]
        if slot < 0 or not is_word(records + slot * stride, words[rows[k]]):
            missing |= (<uint64_t> 1) << k
    return missing
