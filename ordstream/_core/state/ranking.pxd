"""Ranking: the best of many keys, larger rank first, then smaller key. See ranking.hpp.

Inline only: there is no module of this name at run time. Thread safety: none of its own, arrays belong to
the caller.
"""
from libc.stdint cimport int64_t
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
    # The same for a flush: False where stops(context) said so meanwhile, and nothing in v means anything.
    bint ord_sort_ranked_unless(OrdRanked* v, int64_t n, int64_t k, const KeySpec* keys,
                                int (*compare)(const KeySpec*, const char*, const char*) noexcept nogil,
                                int (*stops)(void*) noexcept nogil, void* context)
    # Offer one to best[0..n), the k best so far, a heap with the worst at its root; returns the new n.
    int64_t ord_offer(OrdRanked* best, int64_t n, int64_t k, OrdRanked one,
                      int (*compare)(const void*, const char*, const char*) noexcept nogil, const void* keys)
