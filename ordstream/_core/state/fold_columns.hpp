// Folding a block of rows into the states of their keys, one aggregation after the other: a loop per
// function, chosen once per block, in place of a choice per row. See fold.pxd for states and functions.
//
// Rows are taken in order, so that floats are added in the order of the reference.
// Portable C++17. Thread safety: the holder of the states. Ownership: none.
#ifndef ORDSTREAM_FOLD_COLUMNS_HPP
#define ORDSTREAM_FOLD_COLUMNS_HPP
#include <cmath>
#include <cstdint>
#include <cstring>
#include "column_ops.hpp"

namespace ord {

// The rows of a block, as one aggregation sees them.
struct FoldRows {
    char* const* states;       // of each row's key
    int32_t n;
    int32_t offset;            // of the aggregation's words in a state
    int32_t flag;              // of the byte that says whether it has a value
    const int64_t* values;     // widened; floats as bits
    const int32_t* at;         // of each row, its place in `values`
    const uint8_t* used;       // which rows it looks at; null: all
    int64_t* shown;            // the values that include each row; null: not wanted
    uint8_t* there;            // whether these are not null; null: they never are
    const int32_t* to;         // of each row, its place in `shown` and `there`
};

inline double fold_real(int64_t word) {
    double v;
    std::memcpy(&v, &word, 8);
    return v;
}
inline int64_t fold_word(double v) {
    int64_t word;
    std::memcpy(&word, &v, 8);
    return word;
}

// A function: whether it asks if a value is the first one; whether a value may not fit (`fold` is then
// false, and has changed nothing); what it shows. `drop` takes the latest value off again, exactly.
struct FoldAny {
    static constexpr bool asks = false, checked = false;
    static int64_t show(const int64_t* s) { return s[0]; }
    static void drop(int64_t*, int64_t) {}
};
struct FoldCount : FoldAny {
    static bool fold(int64_t* s, bool, int64_t) { s[0] += 1; return true; }
};
template <bool UNSIGNED> struct FoldSum : FoldAny {
    static constexpr bool checked = true;
    static bool fold(int64_t* s, bool, int64_t v) {
        int64_t sum;
        if ((UNSIGNED && v < 0) || add_overflows(s[0], v, &sum)) return false;
        s[0] = sum;
        return true;
    }
    static void drop(int64_t* s, int64_t v) { s[0] -= v; }
};
template <bool UNSIGNED> struct FoldMean : FoldSum<UNSIGNED> {
    static bool fold(int64_t* s, bool first, int64_t v) {
        if (!FoldSum<UNSIGNED>::fold(s, first, v)) return false;
        s[1] += 1;
        return true;
    }
    static void drop(int64_t* s, int64_t v) { s[0] -= v; s[1] -= 1; }
    static int64_t show(const int64_t* s) {
        return s[1] ? fold_word(static_cast<double>(s[0]) / static_cast<double>(s[1])) : 0;
    }
};
struct FoldSumReal : FoldAny {
    static bool fold(int64_t* s, bool, int64_t v) {
        s[0] = fold_word(fold_real(s[0]) + fold_real(v));
        return true;
    }
};
struct FoldMeanReal : FoldSumReal {
    static bool fold(int64_t* s, bool first, int64_t v) { s[1] += 1; return FoldSumReal::fold(s, first, v); }
    static int64_t show(const int64_t* s) {
        return s[1] ? fold_word(fold_real(s[0]) / static_cast<double>(s[1])) : 0;
    }
};
template <class T, bool LEAST> struct FoldExtreme : FoldAny {
    static constexpr bool asks = true;
    static bool fold(int64_t* s, bool first, int64_t v) {
        T a = static_cast<T>(v), b = static_cast<T>(s[0]);
        if (first || (LEAST ? a < b : a > b)) s[0] = v;
        return true;
    }
};
template <bool LEAST> struct FoldExtremeReal : FoldAny {
    static constexpr bool asks = true;
    static bool fold(int64_t* s, bool first, int64_t v) {
        double p = fold_real(s[0]), q = fold_real(v);
        if (first || (LEAST ? q < p : q > p) || (std::isnan(p) && !std::isnan(q))) s[0] = v;
        return true;
    }
};
struct FoldFirst : FoldAny {
    static constexpr bool asks = true;
    static bool fold(int64_t* s, bool first, int64_t v) { if (first) s[0] = v; return true; }
};
struct FoldLast : FoldAny {
    static bool fold(int64_t* s, bool, int64_t v) { s[0] = v; return true; }
};

template <class F, bool USED, bool SHOWS> int32_t fold_column_as(const FoldRows& x) {
    const FoldRows r = x;                          // what is written may be anything, to a compiler
    for (int32_t i = 0; i < r.n; i++) {
        char* state = r.states[i];
        int64_t* s = reinterpret_cast<int64_t*>(state + r.offset);
        if (!USED || r.used[i]) {
            if (!F::fold(s, F::asks && state[r.flag] == 0, r.values[r.at[i]])) return i;
            if (!F::checked) state[r.flag] = 1;
        }
        if (SHOWS) {
            r.shown[r.to[i]] = F::show(s);
            if (r.there) r.there[r.to[i]] = F::checked ? s[1] != 0 : state[r.flag] != 0;
        }
    }
    return r.n;
}

// Fold the rows. Returns n, or how many came before a value that does not fit. A checked function leaves
// the flags to the caller, who may have to take its rows off again (`fold_column_off`); of these only a
// mean may be null: before its first value.
template <class F> int32_t fold_column(const FoldRows& x) {
    if (x.shown) return x.used ? fold_column_as<F, true, true>(x) : fold_column_as<F, false, true>(x);
    return x.used ? fold_column_as<F, true, false>(x) : fold_column_as<F, false, false>(x);
}

// Take the first n rows off again.
template <class F> void fold_column_off(const FoldRows& x, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (!x.used || x.used[i])
            F::drop(reinterpret_cast<int64_t*>(x.states[i] + x.offset), x.values[x.at[i]]);
}

// Set the flags of states that got a row: the first eight bytes of each, where `flags` has them set.
inline void fold_mark(char* const* states, int32_t n, uint64_t flags) {
    for (int32_t i = 0; i < n; i++) {
        uint64_t word;
        std::memcpy(&word, states[i], 8);
        word |= flags;
        std::memcpy(states[i], &word, 8);
    }
}

}  // namespace ord
#endif
