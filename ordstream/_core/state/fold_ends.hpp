// Which rows of a part are the first and the last one of their key, and the way from each to the next one of
// that key (fold_ends.pxd). Portable C++17. Thread safety: pure. Ownership: the caller's memory.
#ifndef ORDSTREAM_FOLD_ENDS_HPP
#define ORDSTREAM_FOLD_ENDS_HPP
#include <cstdint>

namespace ord {

struct EndRows {
    int32_t keys;       // how many keys the rows have
    int32_t* first;     // of each key, in order of arrival, its first row
    int32_t* last;
    int32_t* behind;    // of each row, the next one of its key; -1: it is the last
    int32_t* before;    // and the one before it
    int32_t* table;     // `table_size` places of a key's number and one; zero: none
};

inline int64_t end_table_size(int64_t n) {
    int64_t size = 64;
    while (size < 2 * n) size *= 2;
    return size;
}

inline void end_rows_begin(EndRows* x, int32_t n) {
    x->keys = 0;
    for (int64_t i = 0, size = end_table_size(n); i < size; i++) x->table[i] = 0;
}

// The rows 0 to n - 1, whose keys are told apart by `slots`; null: they have one key.
inline void end_rows_find(EndRows* x, const int32_t* slots, int32_t n) {
    const uint32_t mask = static_cast<uint32_t>(end_table_size(n)) - 1;
    for (int32_t i = 0; i < n; i++) {
        const int32_t slot = slots == nullptr ? 0 : slots[i];
        uint32_t at = (static_cast<uint32_t>(slot) * 2654435769u) >> 7 & mask;
        int32_t key = 0;
        while ((key = x->table[at] - 1) >= 0 && slots != nullptr && slots[x->first[key]] != slot)
            at = (at + 1) & mask;
        x->behind[i] = -1;
        if (key < 0) {
            key = x->keys++;
            x->table[at] = key + 1;
            x->first[key] = i;
            x->before[i] = -1;
        } else {
            x->before[i] = x->last[key];
            x->behind[x->last[key]] = i;
        }
        x->last[key] = i;
    }
}

}  // namespace ord
#endif
