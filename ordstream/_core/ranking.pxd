"""Ranking: the best of many keys, larger rank first, then smaller key.

Inline only: there is no module of this name at run time. Thread safety: none of its own, arrays belong to the caller. No allocation.
"""
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef ORDSTREAM_RANKING
    #define ORDSTREAM_RANKING
    #include <algorithm>
    #include <cstdint>

    struct OrdRanked { int64_t rank; const char* key; int64_t slot; };
    typedef int (*OrdCompare)(const void* keys, const char* a, const char* b);

    struct OrdBetter {
        OrdCompare compare;
        const void* keys;
        bool operator()(const OrdRanked& a, const OrdRanked& b) const {
            return a.rank != b.rank ? a.rank > b.rank : compare(keys, a.key, b.key) < 0;
        }
    };

    // The first k of v[0..n) in order. A heap of k is the fastest way to a few of many, and the slowest to most of them.
    static inline void ord_sort_ranked(OrdRanked* v, int64_t n, int64_t k, OrdCompare compare, const void* keys) {
        const OrdBetter better{compare, keys};
        if (k < n / 8) {
            std::partial_sort(v, v + k, v + n, better);
            return;
        }
        if (k < n) std::nth_element(v, v + k, v + n, better);
        std::sort(v, v + k, better);
    }

    // Keep the k best of what is offered: best[0..n) is a heap with the worst at its root. Returns the new n (at most k >= 1).
    // Cost: one comparison for what is worse than the k-th, else O(log k).
    static inline int64_t ord_offer(OrdRanked* best, int64_t n, int64_t k, OrdRanked one, OrdCompare compare, const void* keys) {
        const OrdBetter better{compare, keys};
        if (n < k) {
            best[n] = one;
            std::push_heap(best, best + n + 1, better);
            return n + 1;
        }
        if (!better(one, best[0])) return n;
        std::pop_heap(best, best + n, better);
        best[n - 1] = one;
        std::push_heap(best, best + n, better);
        return n;
    }
    #endif
    """
    struct OrdRanked:
        int64_t rank
        const char* key    # record that breaks ties
        int64_t slot

    # The first k of v[0..n) in order.
    void ord_sort_ranked(OrdRanked* v, int64_t n, int64_t k, int (*compare)(const void*, const char*, const char*) noexcept nogil,
                         const void* keys) nogil
    # Offer one to best[0..n), the k best so far, a heap with the worst at its root; returns the new n.
    int64_t ord_offer(OrdRanked* best, int64_t n, int64_t k, OrdRanked one,
                      int (*compare)(const void*, const char*, const char*) noexcept nogil, const void* keys) nogil
