// A sort that can be left: std::sort of short blocks, then merges, with looks at a stop function.
//
// std::sort of millions of entries takes seconds and cannot be interrupted, but by an exception out of a
// comparison, after which the entries are in any state. Here the longest stretch without a look is a block
// of ORD_SORT_BLOCK entries.
// Portable C++17; no exceptions. Thread safety: pure functions. Ownership: arrays are the caller's.
#ifndef ORDSTREAM_STOPPABLE_SORT_HPP
#define ORDSTREAM_STOPPABLE_SORT_HPP
#include <algorithm>
#include <cstdint>

static constexpr int64_t ORD_SORT_BLOCK = 4096;

// Sort v[0..n) by `before`, a strict total order. `spare`: room for n. False: `stops(context)` returned
// true, and v is undefined.
// Cost: as std::sort; n <= ORD_SORT_BLOCK: std::sort itself.
template <class T, class Before>
bool ord_sort_unless(T* v, T* spare, int64_t n, Before before, int (*stops)(void*), void* context) {
    for (int64_t i = 0; i < n; i += ORD_SORT_BLOCK) {
        if (stops(context)) return false;
        std::sort(v + i, v + std::min(n, i + ORD_SORT_BLOCK), before);
    }
    T* from = v;
    T* to = spare;
    for (int64_t width = ORD_SORT_BLOCK; width < n; width *= 2, std::swap(from, to)) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            const int64_t middle = std::min(low + width, n), high = std::min(low + 2 * width, n);
            int64_t a = low, b = middle, at = low;
            while (at < high) {
                if (stops(context)) return false;
                for (const int64_t end = std::min(high, at + ORD_SORT_BLOCK); at < end; at++)
                    to[at] = a < middle && (b >= high || !before(from[b], from[a])) ? from[a++] : from[b++];
            }
        }
    }
    if (from != v) std::copy(from, from + n, v);
    return true;
}

// Sort numbers of key records, `stride` bytes apart, by `compare(keys, a, b)`; the rest as above.
static inline bool ord_sort_records(int32_t* order, int32_t* spare, int64_t n, const char* records,
                                    int64_t stride, const void* keys,
                                    int (*compare)(const void*, const char*, const char*),
                                    int (*stops)(void*), void* context) {
    return ord_sort_unless(order, spare, n, [=](int32_t a, int32_t b) {
        return compare(keys, records + a * stride, records + b * stride) < 0;
    }, stops, context);
}
#endif
