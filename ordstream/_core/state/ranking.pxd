"""Ranking: the best of many keys, larger rank first, then smaller key. See ranking.hpp.

Inline only: there is no module of this name at run time. Thread safety: none of its own, arrays belong to
the caller.
"""
from libc.math cimport isnan
from libc.stdint cimport INT64_MIN, int64_t
from libc.string cimport memcpy
from ordstream._core.state.keyed_state cimport KeySpec

cdef extern from "ranking.hpp" nogil:
    struct OrdRanked:
        int64_t rank
        const char* key    # record that breaks ties
        int64_t slot

    # The first k of v[0..n) in order: afterwards only the slots (>= 0) of v[0..k) mean anything. `compare`:
    # key_compare.
    void ord_sort_ranked(OrdRanked* v, int64_t n, int64_t k, const KeySpec* keys,
                         int (*compare)(const KeySpec*, const char*, const char*) noexcept nogil)
    # All of v[0..n), n > 1, with equal keys by slot. False: not in words; slots are as they were.
    bint ord_sort_as_words(OrdRanked* v, int64_t n, int64_t k, const KeySpec* keys)
    # As ord_sort_ranked, for a flush: False where stops(context) said so meanwhile, and nothing in v means
    # anything.
    bint ord_sort_ranked_unless(OrdRanked* v, int64_t n, int64_t k, const KeySpec* keys,
                                int (*compare)(const KeySpec*, const char*, const char*) noexcept nogil,
                                int (*stops)(void*) noexcept nogil, void* context)
    # Offer one to best[0..n), the k best so far, a heap with the worst at its root; returns the new n.
    int64_t ord_offer(OrdRanked* best, int64_t n, int64_t k, OrdRanked one,
                      int (*compare)(const void*, const char*, const char*) noexcept nogil, const void* keys)


cdef inline int64_t float_rank(int64_t bits) noexcept nogil:
    """The rank of a double, given as its bits: orders as the numbers do, NaN lowest, -0.0 as 0.0. Pure."""
    cdef double v
    memcpy(&v, &bits, 8)
    if isnan(v):
        return INT64_MIN
    if v == 0.0:
        return 0
    return bits ^ ((bits >> 63) & <int64_t> 0x7FFFFFFFFFFFFFFF)
