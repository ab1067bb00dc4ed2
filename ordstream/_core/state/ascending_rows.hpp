// The best of rows whose keys ascend (ascending_rows.pxd): larger rank first, then the earlier row. C++17;
// no exceptions.
// Thread safety: pure functions. Ownership: arrays are the caller's.
#ifndef ORDSTREAM_ASCENDING_ROWS_HPP
#define ORDSTREAM_ASCENDING_ROWS_HPP
#include <algorithm>
#include <cstdint>
#include <functional>
#include "ranking.hpp"

// rows[0..k) become the k best of n rows, in order; 0 < k <= n. `words`: room for 2 n. False: rank and row
// number fit into no word.
inline bool ord_best_rows(const int64_t* ranks, int64_t n, int64_t k, uint64_t* words, int32_t* rows) {
    int64_t least = ranks[0], most = ranks[0];
    for (int64_t i = 1; i < n; i++) {
        least = std::min(least, ranks[i]);
        most = std::max(most, ranks[i]);
    }
    const int used = ord::bits_of(static_cast<uint64_t>(most) - static_cast<uint64_t>(least));
    const int row_bits = ord::bits_of(static_cast<uint64_t>(n - 1));
    if (used == 0) {
        for (int64_t i = 0; i < k; i++) rows[i] = static_cast<int32_t>(i);
        return true;
    }
    if (used + row_bits > 63) return false;
    for (int64_t i = 0; i < n; i++)
        words[i] = (static_cast<uint64_t>(most) - static_cast<uint64_t>(ranks[i])) << row_bits
            | static_cast<uint64_t>(i);
    const uint64_t* sorted = ord::sort_words(words, words + n, n, k, row_bits, used);
    const uint64_t mask = (uint64_t(1) << row_bits) - 1;
    for (int64_t i = 0; i < k; i++) rows[i] = static_cast<int32_t>(sorted[i] & mask);
    return true;
}

// rows[0..k) become the k best of n rows, as they come; 0 < k <= n. `words`: room for n. Returns the worst
// rank of these.
inline int64_t ord_kept_rows(const int64_t* ranks, int64_t n, int64_t k, int64_t* words, int32_t* rows) {
    std::copy(ranks, ranks + n, words);
    std::nth_element(words, words + k - 1, words + n, std::greater<int64_t>());
    const int64_t worst = words[k - 1];
    int64_t ties = k, at = 0;                          // of the worst rank, the first ones stay
    for (int64_t i = 0; i < n; i++) ties -= ranks[i] > worst;
    for (int64_t i = 0; i < n && at < k; i++)
        if (ranks[i] > worst || (ranks[i] == worst && ties-- > 0)) rows[at++] = static_cast<int32_t>(i);
    return worst;
}
#endif
