"""Keys in order of (rank, largest first; then the key), where the place of one among the first k is asked
for after each change.

Record slots in blocks (sorted_blocks.hpp). Memory ownership: ord_places_new/ord_places_free. Thread safety:
the bucket's holder.
"""
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <cstdint>
    #include <new>
    #include "sorted_blocks.hpp"
    struct OrdPlace { int64_t rank; int64_t slot; };
    typedef int (*OrdCompareSlots)(const void* bucket, int64_t a, int64_t b);
    struct OrdBefore {
        OrdCompareSlots compare;
        const void* bucket;
        bool operator()(const OrdPlace& a, const OrdPlace& b) const {
            return a.rank != b.rank ? a.rank > b.rank
                                    : a.slot != b.slot && compare(bucket, a.slot, b.slot) < 0;
        }
    };
    typedef ord::SortedBlocks<OrdPlace, OrdBefore, 512> OrdPlaces;
    static inline OrdPlaces* ord_places_new(OrdCompareSlots compare, const void* bucket) {
        return new (std::nothrow) OrdPlaces(OrdBefore{compare, bucket});
    }
    static inline void ord_places_free(OrdPlaces* p) { delete p; }
    static inline void ord_places_erase(OrdPlaces* p, int64_t rank, int64_t slot) {
        p->erase(OrdPlace{rank, slot});
    }
    // The place of the new entry, from 1, or 0 when it is not among the first k; -1: no memory.
    static inline int64_t ord_places_insert(OrdPlaces* p, int64_t rank, int64_t slot, int64_t k) {
        try {
            const size_t most = static_cast<size_t>(k), place = p->put(OrdPlace{rank, slot}, most);
            return place < most ? static_cast<int64_t>(place) + 1 : 0;
        } catch (const std::bad_alloc&) {
            return -1;
        }
    }
    """
    cppclass OrdPlaces:
        int64_t bytes() nogil
    OrdPlaces* ord_places_new(int (*compare)(const void*, int64_t, int64_t) noexcept nogil,
                              const void* bucket) nogil
    void ord_places_free(OrdPlaces*) nogil
    void ord_places_erase(OrdPlaces*, int64_t rank, int64_t slot) nogil
    int64_t ord_places_insert(OrdPlaces*, int64_t rank, int64_t slot, int64_t k) nogil
