// Ranking: the best of many keys, larger rank first, then smaller key (ranking.pxd). Portable C++17; no
// exceptions.
//
// a) Ranks tie often (counts), and then the keys decide. Before a list is sorted, each entry gets one
//    unsigned word: the rank, then as much of the key as fits, in as few bits as the values *of this list*
//    need. Fields are compared where words are equal only.
// b) Where rank, whole key and slot fit into 64 bits, as small integers do, the list is sorted as plain
//    words, by their digits where these are few.
// Thread safety: pure functions. Ownership: arrays are the caller's; a list that is sorted takes 16 bytes
// per entry for a while, and does without where there is no memory.
#ifndef ORDSTREAM_RANKING_HPP
#define ORDSTREAM_RANKING_HPP
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include "column_ops.hpp"
#include "stoppable_sort.hpp"

static constexpr int64_t ORD_LONG_LIST = 1 << 16;  // from here on a sort looks whether it is still wanted

struct OrdRanked {
    int64_t rank;
    const char* key;
    int64_t slot;
};
typedef int (*OrdCompare)(const void* keys, const char* a, const char* b);

struct OrdBetter {
    OrdCompare compare;
    const void* keys;
    bool operator()(const OrdRanked& a, const OrdRanked& b) const {
        return a.rank != b.rank ? a.rank > b.rank : compare(keys, a.key, b.key) < 0;
    }
};

namespace ord {

// --------------------------------------------------------------------------------------- one word per entry

const uint64_t SIGN = uint64_t(1) << 63;
// Bits of a digit (the counts of all digits stay in the nearest cache); digits of a word.
enum { DIGIT = 6, DIGITS = 11 };

inline int bits_of(uint64_t v) {
#if defined(__GNUC__) || defined(__clang__)
    return v ? 64 - __builtin_clzll(v) : 0;
#else
    int n = 0;
    for (; v; v >>= 1) n++;
    return n;
#endif
}

inline uint64_t word_of(const char* field) {
    uint64_t w;
    std::memcpy(&w, field, 8);
    return w;
}

// A field of a key record (keyed_state.pxd) as a word that ascends as `key_compare` does.
struct IntegerWord {
    uint64_t flip;  // 0: unsigned
    uint64_t operator()(const char* field) const { return word_of(field) ^ flip; }
};

struct FloatWord {
    // The one NaN of a record is positive, so it is above infinity.
    uint64_t operator()(const char* field) const {
        const uint64_t w = word_of(field);
        return w & SIGN ? ~w : w | SIGN;
    }
};

struct ViewWord {
    // The first 8 bytes: equal words do not mean equal strings.
    uint64_t operator()(const char* field) const {
        View v;
        std::memcpy(&v, field, sizeof v);
        uint64_t w = 0;
        for (int64_t i = 0; i < 8; i++) w = w << 8 | (i < v.size ? static_cast<uint8_t>(v.data[i]) : 0);
        return w;
    }
};

inline bool is_null(const char* record, int column) { return word_of(record) >> column & 1; }

// Append column `j` to the words; `used`: their bits so far. False: the column did not fit completely.
template <class Word>
bool append_column(OrdRanked* v, int64_t n, int j, int offset, Word word, int* used) {
    uint64_t low = ~uint64_t(0), high = 0, nulls = 0;
    for (int64_t i = 0; i < n; i++) {
        if (is_null(v[i].key, j)) {
            nulls = 1;
            continue;
        }
        const uint64_t w = word(v[i].key + offset);
        low = std::min(low, w);
        high = std::max(high, w);
    }
    if (low > high) return true;  // null in all
    if (nulls) {
        if (*used == 64) return false;
        for (int64_t i = 0; i < n; i++)
            v[i].rank = static_cast<int64_t>(static_cast<uint64_t>(v[i].rank) << 1 | !is_null(v[i].key, j));
        ++*used;
    }
    const int bits = bits_of(high - low);
    const int taken = std::min(bits, 64 - *used);
    if (taken) {
        for (int64_t i = 0; i < n; i++) {
            const uint64_t w = nulls && is_null(v[i].key, j) ? 0
                : (word(v[i].key + offset) - low) >> (bits - taken);
            v[i].rank = static_cast<int64_t>(static_cast<uint64_t>(v[i].rank) << (taken - 1) << 1 | w);
        }
        *used += taken;
    }
    return taken == bits;
}

// Ranks of v[0..n) become words that ascend as (larger rank, smaller key) does. Returns whether equal words
// are equal keys; `used`: the bits of the largest word, at most.
template <class Spec>
bool words_of(OrdRanked* v, int64_t n, const Spec* keys, int* used) {
    int64_t least = v[0].rank, most = v[0].rank;
    for (int64_t i = 1; i < n; i++) {
        least = std::min(least, v[i].rank);
        most = std::max(most, v[i].rank);
    }
    for (int64_t i = 0; i < n; i++)
        v[i].rank = static_cast<int64_t>(static_cast<uint64_t>(most) - static_cast<uint64_t>(v[i].rank));
    *used = bits_of(static_cast<uint64_t>(most) - static_cast<uint64_t>(least));
    for (int j = 0; j < keys->ncols; j++) {
        const int type = keys->type[j], offset = keys->offset[j];
        if (type == VIEW) {
            append_column(v, n, j, offset, ViewWord{}, used);
            return false;
        }
        if (type == F64 || type == F32) {
            if (!append_column(v, n, j, offset, FloatWord{}, used)) return false;
        } else if (!append_column(v, n, j, offset, IntegerWord{type == U64 ? 0 : SIGN}, used)) {
            return false;
        }
    }
    return true;
}

// ------------------------------------------------------------------------------------------------ sorting

// Sort v[0..n) by the `used` bits above `shift`, least significant digit first. `other` is as large; the
// result is in the one that is returned. Nothing depends on a comparison, so no branch is mispredicted.
inline uint64_t* sort_digits(uint64_t* v, uint64_t* other, int64_t n, int shift, int used) {
    uint32_t counts[DIGITS][1 << DIGIT];
    const int digits = (used + DIGIT - 1) / DIGIT;
    const uint64_t mask = (1 << DIGIT) - 1;
    std::memset(counts, 0, static_cast<size_t>(digits) * sizeof counts[0]);
    for (int64_t i = 0; i < n; i++) {
        uint64_t w = v[i] >> shift;
        for (int d = 0; d < digits; d++, w >>= DIGIT) counts[d][w & mask]++;
    }
    for (int d = 0; d < digits; d++, shift += DIGIT, std::swap(v, other)) {
        uint32_t* const end = counts[d];
        uint32_t at = 0;
        for (int j = 0; j < 1 << DIGIT; j++) {
            const uint32_t count = end[j];
            end[j] = at;
            at += count;
        }
        for (int64_t i = 0; i < n; i++) other[end[v[i] >> shift & mask]++] = v[i];
    }
    return v;
}

// The first k of v[0..n), all different in the `used` bits above `shift`, in order. `other` is as large;
// returns where they are.
inline uint64_t* sort_words(uint64_t* v, uint64_t* other, int64_t n, int64_t k, int shift, int used) {
    if (k < n / 8) {
        std::partial_sort(v, v + k, v + n);
        return v;
    }
    // A digit costs what a level of comparisons costs, or less; a short list is not worth counting.
    if (n > 16 && used <= DIGIT * bits_of(static_cast<uint64_t>(n)))
        return sort_digits(v, other, n, shift, used);
    if (k < n) std::nth_element(v, v + k, v + n);
    std::sort(v, v + k);
    return v;
}

}  // namespace ord

// Sort v[0..n), n > 1, as plain words: larger rank first, then smaller key, then smaller slot (>= 0);
// v[0..k) then has the slots. False: they fit into no word, or there is no memory; ranks are then words that
// ascend as (larger rank, smaller key) does.
template <class Spec>
bool ord_sort_as_words(OrdRanked* v, int64_t n, int64_t k, const Spec* keys) {
    int used;
    uint64_t last = 0;
    for (int64_t i = 0; i < n; i++) last |= static_cast<uint64_t>(v[i].slot);
    const bool exact = ord::words_of(v, n, keys, &used);
    const int slot_bits = ord::bits_of(last);
    if (!exact || used + slot_bits >= 64) return false;
    uint64_t* words = static_cast<uint64_t*>(std::malloc(static_cast<size_t>(n) * 16));
    if (words == nullptr) return false;
    for (int64_t i = 0; i < n; i++)
        words[i] = static_cast<uint64_t>(v[i].rank) << slot_bits | static_cast<uint64_t>(v[i].slot);
    const uint64_t* sorted = ord::sort_words(words, words + n, n, k, slot_bits, used);
    const uint64_t mask = (uint64_t(1) << slot_bits) - 1;
    for (int64_t i = 0; i < k; i++) v[i].slot = static_cast<int64_t>(sorted[i] & mask);
    std::free(words);
    return true;
}

// The first k of v[0..n) in order: v[0..k) has their slots (>= 0), all else in v is undefined afterwards.
// Keys are different. A heap of k is the fastest way to a few of many, and the slowest to most of them.
// Cost: ~10 ns per entry of 30 bits, else O(n log k) comparisons.
template <class Spec>
void ord_sort_ranked(OrdRanked* v, int64_t n, int64_t k, const Spec* keys,
                     int (*compare)(const Spec*, const char*, const char*)) {
    if (n < 2 || ord_sort_as_words(v, n, k, keys)) return;
    const auto better = [keys, compare](const OrdRanked& a, const OrdRanked& b) {
        return a.rank != b.rank ? static_cast<uint64_t>(a.rank) < static_cast<uint64_t>(b.rank)
            : compare(keys, a.key, b.key) < 0;
    };
    if (k < n / 8) {
        std::partial_sort(v, v + k, v + n, better);
        return;
    }
    if (k < n) std::nth_element(v, v + k, v + n, better);
    std::sort(v, v + k, better);
}

// ord_sort_ranked for a flush, which may have any size. False: `stops(context)` returned true in the middle,
// and v is undefined. A long list is not turned into words, which are passes that cannot be left: the k best
// by a heap, then a sort that can (stoppable_sort.hpp).
template <class Spec>
bool ord_sort_ranked_unless(OrdRanked* v, int64_t n, int64_t k, const Spec* keys,
                            int (*compare)(const Spec*, const char*, const char*),
                            int (*stops)(void*), void* context) {
    if (n <= ORD_LONG_LIST) {
        ord_sort_ranked(v, n, k, keys, compare);
        return true;
    }
    const auto better = [keys, compare](const OrdRanked& a, const OrdRanked& b) {
        return a.rank != b.rank ? a.rank > b.rank : compare(keys, a.key, b.key) < 0;
    };
    if (k < n) {
        for (int64_t i = 0; i < k; i++) {
            if (i % ORD_SORT_BLOCK == 0 && stops(context)) return false;
            std::push_heap(v, v + i + 1, better);
        }
        for (int64_t i = k; i < n; i++) {
            if (i % ORD_SORT_BLOCK == 0 && stops(context)) return false;
            if (!better(v[i], v[0])) continue;
            std::pop_heap(v, v + k, better);
            std::swap(v[k - 1], v[i]);
            std::push_heap(v, v + k, better);
        }
    }
    OrdRanked* spare = static_cast<OrdRanked*>(std::malloc(static_cast<size_t>(k) * sizeof(OrdRanked)));
    if (spare == nullptr) {
        std::sort(v, v + k, better);
        return true;
    }
    const bool done = ord_sort_unless(v, spare, k, better, stops, context);
    std::free(spare);
    return done;
}

// Keep the k best of what is offered: best[0..n) is a heap with the worst at its root. Returns the new n (at
// most k >= 1).
// Cost: one comparison for what is worse than the k-th, else O(log k).
static inline int64_t ord_offer(OrdRanked* best, int64_t n, int64_t k, OrdRanked one, OrdCompare compare,
                                const void* keys) {
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
