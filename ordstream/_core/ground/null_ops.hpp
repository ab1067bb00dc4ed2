// Column loops that know of nulls, the end of column_ops.hpp: three-valued logic, selection, lookup.
// Operands are dense, never scalar. Portable C++17; no exceptions.
// Thread safety: pure functions. Ownership: none.
#ifndef ORDSTREAM_NULL_OPS_HPP
#define ORDSTREAM_NULL_OPS_HPP
#include "column_ops.hpp"

namespace ord {

inline void kleene(bool is_or, uint8_t* ORD_RESTRICT r, uint8_t* ORD_RESTRICT rv, const uint8_t* a,
                   const uint8_t* av, const uint8_t* b, const uint8_t* bv, int64_t n) {
    if (rv == nullptr) {
        if (is_or) {
            for (int64_t i = 0; i < n; i++) r[i] = a[i] | b[i];
        } else {
            for (int64_t i = 0; i < n; i++) r[i] = a[i] & b[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint8_t x = av ? av[i] : 1, y = bv ? bv[i] : 1;  // known?
        const uint8_t decides = is_or;                          // the value that decides alone
        const uint8_t alone = (x & (a[i] == decides)) | (y & (b[i] == decides));
        r[i] = alone ? decides : decides ^ 1;
        rv[i] = alone | (x & y);
    }
}

// pick[i] ? x : y by masks: which of the two a row takes is often a matter of chance, and a branch that is
// predicted wrongly costs ten times as much.
struct Pair {
    uint64_t low, high;
};
inline uint8_t pick_bits(uint8_t pick, uint8_t x, uint8_t y) { return pick ? x : y; }
inline uint64_t pick_bits(uint8_t pick, uint64_t x, uint64_t y) {
    const uint64_t mask = 0 - static_cast<uint64_t>(pick != 0);
    return y ^ ((x ^ y) & mask);
}
inline Pair pick_bits(uint8_t pick, const Pair& x, const Pair& y) {
    return Pair{pick_bits(pick, x.low, y.low), pick_bits(pick, x.high, y.high)};
}

template <class T>
inline void choose(void* r, const uint8_t* pick, const void* a, int sa, const void* b, int sb, int64_t n) {
    T* ORD_RESTRICT out = static_cast<T*>(r);
    const T* x = static_cast<const T*>(a);
    const T* y = static_cast<const T*>(b);
    if (sa && sb) {
        const T one = x[0], other = y[0];
        for (int64_t i = 0; i < n; i++) out[i] = pick_bits(pick[i], one, other);
    } else if (sa) {
        const T one = x[0];
        for (int64_t i = 0; i < n; i++) out[i] = pick_bits(pick[i], one, y[i]);
    } else if (sb) {
        const T other = y[0];
        for (int64_t i = 0; i < n; i++) out[i] = pick_bits(pick[i], x[i], other);
    } else {
        for (int64_t i = 0; i < n; i++) out[i] = pick_bits(pick[i], x[i], y[i]);
    }
}

// r[i] = pick[i] ? a[i] : b[i], `width` bytes per value.
inline void select(int width, void* r, const uint8_t* pick, const void* a, int sa, const void* b, int sb,
                   int64_t n) {
    if (width == 8) return choose<uint64_t>(r, pick, a, sa, b, sb, n);
    if (width == 1) return choose<uint8_t>(r, pick, a, sa, b, sb, n);
    choose<Pair>(r, pick, a, sa, b, sb, n);
}

// Membership in a sorted set.
inline void in_i64(uint8_t* ORD_RESTRICT r, const int64_t* a, int64_t n, const int64_t* set, int64_t m) {
    if (m <= 8) {
        for (int64_t i = 0; i < n; i++) {
            uint8_t found = 0;
            for (int64_t j = 0; j < m; j++) found |= a[i] == set[j];
            r[i] = found;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t* base = set;
        int64_t size = m;
        while (size > 1) {
            const int64_t half = size / 2;
            base += base[half - 1] < a[i] ? half : 0;
            size -= half;
        }
        r[i] = *base == a[i];
    }
}

inline void in_view(uint8_t* ORD_RESTRICT r, const View* a, int64_t n, const View* set, int64_t m) {
    if (m <= 8) {
        for (int64_t i = 0; i < n; i++) {
            uint8_t found = 0;
            for (int64_t j = 0; j < m && !found; j++)
                found = a[i].size == set[j].size
                     && (a[i].size == 0
                         || std::memcmp(a[i].data, set[j].data, static_cast<size_t>(a[i].size)) == 0);
            r[i] = found;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = m;
        r[i] = 0;
        while (low < high && !r[i]) {
            const int64_t middle = (low + high) / 2;
            const int c = compare_bytes(set[middle], a[i]);
            r[i] = c == 0;
            if (c < 0) low = middle + 1; else high = middle;
        }
    }
}

// Dense side table of 8-byte values; rv: validity of the result.
inline void lookup(int64_t* ORD_RESTRICT r, uint8_t* ORD_RESTRICT rv, const int64_t* a, const uint8_t* av,
                   int64_t n, const int64_t* table, const uint8_t* valid, int64_t size) {
    for (int64_t i = 0; i < n; i++) {
        const bool inside = static_cast<uint64_t>(a[i]) < static_cast<uint64_t>(size);
        const uint8_t ok = inside && (valid == nullptr || valid[a[i]]) && (av == nullptr || av[i]);
        r[i] = inside ? table[a[i]] : 0;
        rv[i] = ok;
    }
}

inline void both_valid(uint8_t* ORD_RESTRICT r, const uint8_t* a, const uint8_t* b, int64_t n) {
    for (int64_t i = 0; i < n; i++) r[i] = a[i] & b[i];
}

// Narrow a selection by a predicate. Returns how many rows stay. `out` may be `sel` itself.
inline int32_t narrow(int32_t* out, const int32_t* sel, const uint8_t* keep, const uint8_t* valid,
                      int32_t n) {
    int32_t m = 0;
    if (sel == nullptr && valid == nullptr) {
        for (int32_t i = 0; i < n; i++) {
            out[m] = i;
            m += keep[i];
        }
    } else {
        for (int32_t i = 0; i < n; i++) {
            out[m] = sel == nullptr ? i : sel[i];
            m += keep[i] & (valid == nullptr ? 1 : valid[i]);
        }
    }
    return m;
}

// First row with a failure, or n.
inline int64_t first_bad(const uint8_t* bad, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (bad[i]) return i;
    return n;
}

}  // namespace ord
#endif
