// Loops over list elements and repeated values (kernels/pairs.pyx, pair_up.pyx).
// Portable C++17; no exceptions, no allocation. Thread safety: pure functions. Ownership: none.
#ifndef ORDSTREAM_LIST_OPS_HPP
#define ORDSTREAM_LIST_OPS_HPP
#include <algorithm>
#include <cstdint>
#include <cstring>
#include "column_ops.hpp"

namespace ord {

// Arrow's order: NaN last.
template <class T>
inline bool before(T a, T b) {
    if (std::is_floating_point<T>::value) return a < b || (a == a && b != b);
    return a < b;
}

template <class T>
inline int64_t sort_distinct_of(T* v, int64_t n) {
    if (std::is_floating_point<T>::value)
        for (int64_t i = 0; i < n; i++) v[i] = static_cast<T>(v[i] + T(0));  // -0.0 is 0.0
    if (n <= 24) {
        for (int64_t i = 1; i < n; i++) {
            const T x = v[i];
            int64_t j = i;
            for (; j > 0 && before(x, v[j - 1]); j--) v[j] = v[j - 1];
            v[j] = x;
        }
    } else {
        std::sort(v, v + n, before<T>);
    }
    int64_t m = n ? 1 : 0;
    for (int64_t i = 1; i < n; i++) {
        v[m] = v[i];
        m += before(v[m - 1], v[i]);
    }
    return m;
}

// Sort the elements of a list and drop repetitions; returns how many are left. Cost: ~n^2/4 steps for short
// lists.
inline int64_t sort_distinct(void* v, int type, int64_t n) {
    switch (type) {
        case I8: return sort_distinct_of(static_cast<int8_t*>(v), n);
        case I16: return sort_distinct_of(static_cast<int16_t*>(v), n);
        case I32: return sort_distinct_of(static_cast<int32_t*>(v), n);
        case I64: return sort_distinct_of(static_cast<int64_t*>(v), n);
        case U16: return sort_distinct_of(static_cast<uint16_t*>(v), n);
        case U32: return sort_distinct_of(static_cast<uint32_t*>(v), n);
        case U64: return sort_distinct_of(static_cast<uint64_t*>(v), n);
        case F32: return sort_distinct_of(static_cast<float*>(v), n);
        case F64: return sort_distinct_of(static_cast<double*>(v), n);
        default: return sort_distinct_of(static_cast<uint8_t*>(v), n);  // u8, bool
    }
}

template <class T>
inline void write_pairs_of(T* ORD_RESTRICT left, T* ORD_RESTRICT right, const T* v, int64_t m) {
    for (int64_t i = 0; i + 1 < m; i++) {
        const int64_t rest = m - 1 - i;
        const T x = v[i];
        for (int64_t j = 0; j < rest; j++) left[j] = x;
        for (int64_t j = 0; j < rest; j++) right[j] = v[i + 1 + j];
        left += rest;
        right += rest;
    }
}

// All (v[i], v[j]) with i < j, lexicographic, behind row `at` of both columns.
inline void write_pairs(char* left, char* right, int64_t at, const void* v, int width, int64_t m) {
    left += at * width;
    right += at * width;
    if (width == 8)
        write_pairs_of(reinterpret_cast<int64_t*>(left), reinterpret_cast<int64_t*>(right),
                       static_cast<const int64_t*>(v), m);
    else if (width == 4)
        write_pairs_of(reinterpret_cast<int32_t*>(left), reinterpret_cast<int32_t*>(right),
                       static_cast<const int32_t*>(v), m);
    else if (width == 2)
        write_pairs_of(reinterpret_cast<int16_t*>(left), reinterpret_cast<int16_t*>(right),
                       static_cast<const int16_t*>(v), m);
    else
        write_pairs_of(reinterpret_cast<int8_t*>(left), reinterpret_cast<int8_t*>(right),
                       static_cast<const int8_t*>(v), m);
}

// `n` copies of one value.
inline void repeat(char* out, const char* value, int width, int64_t n) {
    if (width == 8)
        std::fill_n(reinterpret_cast<int64_t*>(out), n, *reinterpret_cast<const int64_t*>(value));
    else if (width == 4)
        std::fill_n(reinterpret_cast<int32_t*>(out), n, *reinterpret_cast<const int32_t*>(value));
    else if (width == 16)
        std::fill_n(reinterpret_cast<View*>(out), n, *reinterpret_cast<const View*>(value));
    else
        for (int64_t i = 0; i < n; i++) std::memcpy(out + i * width, value, static_cast<size_t>(width));
}

}  // namespace ord
#endif
