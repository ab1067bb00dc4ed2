// Sorting the rows of a flush (flow/assemble.pyx): radix where there are many, comparing where a number
// can't say all of a key.
#pragma once
#include <algorithm>
#include <cstdint>
#include "stoppable_sort.hpp"

// A row of a flush: `order` is a number that never decreases as keys ascend.
struct OrdFlushRow {
    int64_t time;
    uint64_t order;
    const char* key;
    int32_t part;
    int32_t row;
};

static inline uint64_t ord_flush_word(const OrdFlushRow& r, int field) {
    return field == 0 ? r.order : static_cast<uint64_t>(r.time) ^ (uint64_t(1) << 63);
}

static const int64_t ORD_FLUSH_BLOCK = 1 << 14;  // rows of a pass between two looks at the stop flag

// Stable, by (time, order), byte after byte from the lowest; bytes that all rows share are skipped.
// `spare`: room for n rows. False: `stops(context)` said so.
static inline bool ord_radix_flush(OrdFlushRow* rows, OrdFlushRow* spare, int64_t n, int (*stops)(void*),
                                   void* context) {
    OrdFlushRow* from = rows;
    OrdFlushRow* to = spare;
    for (int field = 0; field < 2; field++) {
        uint64_t differs = 0;
        const uint64_t first = ord_flush_word(from[0], field);
        for (int64_t i = 0; i < n;) {
            if (stops(context)) return false;
            for (const int64_t end = std::min(n, i + ORD_FLUSH_BLOCK); i < end; i++)
                differs |= ord_flush_word(from[i], field) ^ first;
        }
        for (int shift = 0; shift < 64; shift += 8) {
            if (((differs >> shift) & 255) == 0) continue;
            int64_t at[256] = {0}, sum = 0;
            for (int64_t i = 0; i < n;) {
                if (stops(context)) return false;
                for (const int64_t end = std::min(n, i + ORD_FLUSH_BLOCK); i < end; i++)
                    at[(ord_flush_word(from[i], field) >> shift) & 255]++;
            }
            for (int b = 0; b < 256; b++) {
                const int64_t count = at[b];
                at[b] = sum;
                sum += count;
            }
            for (int64_t i = 0; i < n;) {
                if (stops(context)) return false;
                for (const int64_t end = std::min(n, i + ORD_FLUSH_BLOCK); i < end; i++)
                    to[at[(ord_flush_word(from[i], field) >> shift) & 255]++] = from[i];
            }
            std::swap(from, to);
        }
    }
    if (from != rows) std::copy(from, from + n, rows);
    return true;
}

// The same by (order, place), in words of both, where all times are equal and they fit into 64 bits: `order`
// then is all that decides. `spare`: room for n rows and 2 n words. False: they don't fit, and nothing
// changed. Where `stops(context)` says so, the rows are in no order.
static inline bool ord_radix_words(OrdFlushRow* rows, OrdFlushRow* spare, int64_t n, int (*stops)(void*),
                                   void* context) {
    const int DIGIT = 11;
    const uint64_t MASK = (uint64_t(1) << DIGIT) - 1;
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].time != rows[0].time) return false;
        most |= rows[i].order;
        if (i % ORD_FLUSH_BLOCK == 0 && stops(context)) return true;
    }
    int places = 0, bits = 0;
    while (places < 40 && n >> places) places++;
    while (bits < 64 && most >> bits) bits++;
    if (places + bits > 64) return false;
    uint64_t* from = reinterpret_cast<uint64_t*>(spare + n);
    uint64_t* to = from + n;
    for (int64_t i = 0; i < n; i++) {
        from[i] = rows[i].order << places | uint64_t(i);
        if (i % ORD_FLUSH_BLOCK == 0 && stops(context)) return true;
    }
    for (int shift = places; shift < places + bits; shift += DIGIT) {
        int64_t at[MASK + 1] = {0}, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            at[(from[i] >> shift) & MASK]++;
            if (i % ORD_FLUSH_BLOCK == 0 && stops(context)) return true;
        }
        for (uint64_t b = 0; b <= MASK; b++) {
            const int64_t count = at[b];
            at[b] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n;) {
            if (stops(context)) return true;
            for (const int64_t end = std::min(n, i + ORD_FLUSH_BLOCK); i < end; i++)
                to[at[(from[i] >> shift) & MASK]++] = from[i];
        }
        std::swap(from, to);
    }
    const uint64_t place = (uint64_t(1) << places) - 1;
    for (int64_t i = 0; i < n;) {
        if (stops(context)) return true;
        for (const int64_t end = std::min(n, i + ORD_FLUSH_BLOCK); i < end; i++)
            spare[i] = rows[from[i] & place];
    }
    std::copy(spare, spare + n, rows);
    return true;
}

// Rows come by part, then by row within it. `spare`: room for n rows and 2 n words, or
// null: compare only (few rows).
// False: `stops(context)` said so.
template <typename Compare>
static inline bool ord_sort_flush(OrdFlushRow* rows, OrdFlushRow* spare, int64_t n, Compare compare,
                                  const void* keys, int (*stops)(void*), void* context) {
    auto before = [=](const OrdFlushRow& a, const OrdFlushRow& b) {
        if (a.time != b.time) return a.time < b.time;
        if (a.order != b.order) return a.order < b.order;
        if (a.key && b.key) {
            const int order = compare(keys, a.key, b.key);
            if (order) return order < 0;
        }
        if (a.part != b.part) return a.part < b.part;
        return a.row < b.row;
    };
    if (spare == nullptr) {
        std::sort(rows, rows + n, before);
        return true;
    }
    if (!ord_radix_words(rows, spare, n, stops, context) &&
        !ord_radix_flush(rows, spare, n, stops, context))
        return false;
    if (stops(context)) return false;
    for (int64_t i = 0, end; i < n; i = end) {            // sort keys whose `order` is equal
        bool sorted = true;
        for (end = i + 1;
             end < n && rows[end].order == rows[i].order && rows[end].time == rows[i].time; end++) {
            if (end % ORD_FLUSH_BLOCK == 0 && stops(context)) return false;
            sorted = sorted && before(rows[end - 1], rows[end]);
        }
        if (!sorted && !ord_sort_unless(rows + i, spare + i, end - i, before, stops, context))
            return false;
    }
    return true;
}
