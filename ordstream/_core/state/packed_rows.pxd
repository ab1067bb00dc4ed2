"""Packed counts (packed_counts.pxd) key by key: looked up, taken in with a count, forgotten.

These serve the state contract (kernel.pxd, f). All of them work on keys that do not wait: packed_drain
comes first. A key that leaves makes the slots behind it move up. Pages don't merge: `packed_shrink` builds
the whole anew where less than a quarter of what its pages may hold is left. Pages are at least half full
after a split, so more keys left before it than it copies.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.state.packed_counts cimport PackedCounts

cdef enum:
    COUNT_IS_THERE = 1     # of packed_install

cdef int packed_drain(PackedCounts* s) noexcept nogil
cdef int64_t packed_find(const PackedCounts* s, uint64_t key) noexcept nogil
cdef int packed_install_block(PackedCounts* s, const uint64_t* keys, const int64_t* counts,
                              int32_t n) noexcept nogil
cdef int packed_install(PackedCounts* s, uint64_t key, int64_t n) noexcept nogil
cdef bint packed_remove(PackedCounts* s, uint64_t key) noexcept nogil
cdef void packed_shrink(PackedCounts* s) noexcept nogil
