"""Packed counts: how often each key came, for keys that fit into 64 bits.

They cost one cache miss per tuple, and have no record per key.

a) A key packs when its columns are integers (dates, times, bool: stored as integers) without nulls, and each
   value fits into an equal share of 64 bits: one column always does, of two each must lie within 32 bits.
   What does not pack is told apart, for each tuple by its key alone, and counted in the general map
   (keyed_state.pxd) beside this one: no key is ever in both.
b) The packed form keeps the order: comparing packed keys as unsigned numbers compares the keys.
c) Open addressing in pages of 16-byte slots (key, count), extendible hashing over them: the directory takes
   the upper bits of the hash, a page's slot the lower ones. A full page splits in two, so growing needs one
   page more at a time, never a second table. A page that can't be split (its keys share too many hash bits)
   closes for good: its new keys go to the spill, one plain table under another hash.
d) Lookups go in blocks: pack and prefetch, then count. Where nobody asks for the running counts, keys of a
   large table wait in one buffer per group of pages; a full buffer is counted at once, while the group lies
   in the near cache.
e) Keys leave, and come in with a count, through packed_rows.pxd, which keeps chains of slots without gaps:
   counting knows nothing of removal.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.state.keyed_state cimport KeySpec

cdef enum:
    COUNT_BLOCK = 64       # tuples whose lookups overlap
    BUFFER = 16384         # keys of a group that may wait: one per cache line of its pages

cdef struct CountSlot:
    uint64_t key           # packed; slot 0 of a page: number of keys in it
    int64_t n              # 0: empty; in slot 0 of a page: directory bits that its keys share, or CLOSED

cdef struct PackedCounts:
    # Memory ownership: owns directory, pages, slabs, spill and buffers. One worker at a time.
    const KeySpec* keys
    int32_t bits           # per column; 0: no key of these columns packs
    int32_t depth          # the directory has 1 << depth entries
    CountSlot** pages      # directory
    int64_t mask           # slots of a page, less 1
    int64_t limit          # keys at which a page splits
    int64_t count          # keys, without those that only wait
    int64_t npages
    CountSlot* free        # page to be used next, linked through slot 0; contents undefined
    void** slabs           # what pages lie in
    int64_t nslabs
    CountSlot* spill       # NULL: no page has closed
    int64_t spill_mask
    int64_t spilled        # keys in it
    int32_t group_bits     # 0: no buffers
    uint64_t* waiting      # one buffer per value of the hash's upper group_bits bits
    int32_t* nwaiting
    int64_t bytes

cdef int packed_init(PackedCounts* s, const KeySpec* keys) noexcept nogil
cdef void packed_free(PackedCounts* s) noexcept nogil
cdef int32_t packed_keys(const PackedCounts* s, const Chunk* c, const int32_t* rows, int32_t n,
                         uint64_t* keys, int32_t* fit, int32_t* unfit, int32_t* nunfit) noexcept nogil
cdef int packed_count(PackedCounts* s, const uint64_t* keys, int32_t n, int64_t* totals) noexcept nogil
cdef int packed_add(PackedCounts* s, const uint64_t* keys, int32_t n) noexcept nogil
cdef int packed_settle(PackedCounts* s, Worker* w) noexcept nogil
cdef bint packed_segment(const PackedCounts* s, int64_t* entry, const CountSlot** slots,
                         int64_t* n) noexcept nogil
cdef void packed_column(const PackedCounts* s, int32_t j, int32_t* shift, uint64_t* ones,
                        uint64_t* bias) noexcept nogil
cdef void packed_record(const PackedCounts* s, uint64_t key, char* record) noexcept nogil


cdef inline uint64_t spread(uint64_t key) noexcept nogil:
    """Hash of a packed key: bijective, upper and lower bits depend on all of the key."""
    key = key * <uint64_t> 0x9E3779B97F4A7C15
    key = (key ^ (key >> 32)) * <uint64_t> 0xD6E8FEB86659FD93
    return key ^ (key >> 29)


cdef inline int64_t home(uint64_t hash, int64_t mask) noexcept nogil:
    """First slot to look at: any but slot 0."""
    cdef int64_t at = hash & mask
    return at + (at == 0)


cdef inline int64_t entry_at(uint64_t hash, int32_t depth) noexcept nogil:
    return <int64_t> ((hash >> 1) >> (63 - depth))


cdef inline int64_t spill_home(const PackedCounts* s, uint64_t key) noexcept nogil:
    key = (key ^ (key >> 31)) * <uint64_t> 0xBF58476D1CE4E5B9
    return (key ^ (key >> 27)) & s.spill_mask
