// Decimals of 19 to 38 digits: 128-bit counts of their smallest unit, and the 16 bytes in which columns hold
// them: the highest byte first, the sign bit turned, so that bytes compare as the numbers do.
//
// Portable C++17; no exceptions, no allocation. Thread safety: pure. Ownership: none. Cost: a few ns; a
// division some tens without a 128-bit integer of the compiler's.
#ifndef ORDSTREAM_DECIMAL128_HPP
#define ORDSTREAM_DECIMAL128_HPP
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include "wide_ops.hpp"

namespace ord {
// Two's complement, in the order of Arrow's decimals.
struct Int128 {
    uint64_t low;
    int64_t high;
};

inline Int128 int128_of(int64_t v) { return Int128{static_cast<uint64_t>(v), v >> 63}; }

inline Int128 int128_add(const Int128& a, const Int128& b) {
    const uint64_t low = a.low + b.low;
    const uint64_t high = static_cast<uint64_t>(a.high) + static_cast<uint64_t>(b.high) + (low < a.low);
    return Int128{low, static_cast<int64_t>(high)};
}

inline Int128 int128_negated(const Int128& a) {
    const uint64_t low = ~a.low + 1;
    return Int128{low, static_cast<int64_t>(~static_cast<uint64_t>(a.high) + (low == 0))};
}

inline bool int128_less(const Int128& a, const Int128& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
}

inline bool int128_equal(const Int128& a, const Int128& b) { return a.high == b.high && a.low == b.low; }

inline Int128 int128_size(const Int128& a) { return a.high < 0 ? int128_negated(a) : a; }

// 10 ** digits, 0 to 38.
inline Int128 power_of_ten(int digits) {
    Int128 r{1, 0};
    for (int i = 0; i < digits; i++) {
        const Int128 two = int128_add(r, r), four = int128_add(two, two), eight = int128_add(four, four);
        r = int128_add(eight, two);
    }
    return r;
}

// 10 ** digits, found once.
inline const Int128& decimal_bound(int digits) {
    struct Bounds {
        Int128 of[39];
        Bounds() {
            for (int i = 0; i < 39; i++) of[i] = power_of_ten(i);
        }
    };
    static const Bounds bounds;
    return bounds.of[digits];
}

// Whether a value is less than `bound`, whatever its sign.
inline bool int128_within(const Int128& a, const Int128& bound) {
    return int128_less(a, bound) && int128_less(int128_negated(bound), a);
}

inline uint64_t high_product(uint64_t x, uint64_t y) {
    const uint64_t x0 = x & 0xffffffffu, x1 = x >> 32, y0 = y & 0xffffffffu, y1 = y >> 32;
    const uint64_t middle = x1 * y0 + ((x0 * y0) >> 32);
    const uint64_t other = x0 * y1 + (middle & 0xffffffffu);
    return x1 * y1 + (middle >> 32) + (other >> 32);
}

// False: the product has more than 127 bits.
inline bool int128_product(const Int128& a, const Int128& b, Int128* r) {
    const Int128 x = int128_size(a), y = int128_size(b);
    const uint64_t xh = static_cast<uint64_t>(x.high), yh = static_cast<uint64_t>(y.high);
    if (xh && yh) return false;
    if (high_product(xh, y.low) || high_product(yh, x.low)) return false;
    const uint64_t crossed = xh * y.low + yh * x.low, top = high_product(x.low, y.low);
    const uint64_t high = crossed + top;
    if (high < top || high >> 63) return false;
    const Int128 found{x.low * y.low, static_cast<int64_t>(high)};
    *r = (a.high < 0) != (b.high < 0) ? int128_negated(found) : found;
    return true;
}

// a / n, towards zero, and what is left; n from 1.
inline Int128 int128_divide(const Int128& a, uint64_t n, uint64_t* rest) {
    const Int128 x = int128_size(a);
    uint64_t high = static_cast<uint64_t>(x.high), left = high % n, low = 0;
    high /= n;
#if defined(__SIZEOF_INT128__)
    const unsigned __int128 all = (static_cast<unsigned __int128>(left) << 64) | x.low;
    low = static_cast<uint64_t>(all / n);
    left = static_cast<uint64_t>(all % n);
#else
    for (int i = 63; i >= 0; i--) {
        const bool out = left >> 63;
        left = (left << 1) | ((x.low >> i) & 1);
        if (out || left >= n) {
            left -= n;
            low |= uint64_t{1} << i;
        }
    }
#endif
    *rest = left;
    const Int128 r{low, static_cast<int64_t>(high)};
    return a.high < 0 ? int128_negated(r) : r;
}

// total * power / n to the nearest, halves away from zero; n from 1 to 10 ** 14, power at most 10,000.
inline Int128 int128_mean(const Int128& total, int64_t n, int64_t power) {
    uint64_t rest;
    const Int128 whole = int128_divide(total, static_cast<uint64_t>(n), &rest);
    const uint64_t more = rest * static_cast<uint64_t>(power), of = static_cast<uint64_t>(n);
    const Int128 part{more / of + (2 * (more % of) >= of), 0};
    Int128 r{0, 0};
    int128_product(whole, int128_of(power), &r);
    return int128_add(r, total.high < 0 ? int128_negated(part) : part);
}

inline double int128_to_double(const Int128& a) { return wide_to_double(Wide{a.high, a.low}); }

// units * 10^-scale, rounded once. `scale` from -38 to 38.
inline double decimal_to_double(const Int128& units, int scale) {
    const Int128 size = int128_size(units);
    const int most = scale < 0 ? -scale : scale;
    if (size.high == 0 && size.low <= uint64_t{1} << 53 && most <= 22) {    // doubles as they are
        const double power = int128_to_double(power_of_ten(most));
        const double whole = static_cast<double>(size.low);
        const double r = scale < 0 ? whole * power : whole / power;
        return units.high < 0 ? -r : r;
    }
    char text[64];                         // the C library rounds what is written, without a point in it
    char* at = text + sizeof(text);
    *--at = 0;
    for (int exponent = most, digits = 0; exponent || !digits; exponent /= 10, digits++)
        *--at = static_cast<char>('0' + exponent % 10);
    if (scale > 0) *--at = '-';
    *--at = 'e';
    Int128 rest = size;
    while (rest.high || rest.low) {
        uint64_t digit = 0;
        rest = int128_divide(rest, 10, &digit);
        *--at = static_cast<char>('0' + digit);
    }
    if (units.high < 0) *--at = '-';
    return std::strtod(at, nullptr);
}

// The bytes of a column, and back.
inline void int128_encode(const Int128& a, char* to) {
    const uint64_t high = static_cast<uint64_t>(a.high) ^ (uint64_t{1} << 63);
    for (int i = 0; i < 8; i++) {
        to[i] = static_cast<char>(high >> (56 - 8 * i));
        to[8 + i] = static_cast<char>(a.low >> (56 - 8 * i));
    }
}

inline Int128 int128_decode(const char* from) {
    uint64_t high = 0, low = 0;
    for (int i = 0; i < 8; i++) {
        high = (high << 8) | static_cast<uint8_t>(from[i]);
        low = (low << 8) | static_cast<uint8_t>(from[8 + i]);
    }
    return Int128{low, static_cast<int64_t>(high ^ (uint64_t{1} << 63))};
}

// Arrow's 16 bytes, the least first, to those of a column, and back: n values side by side.
inline void decimals_encode(const char* from, int64_t n, char* to) {
    Int128 v;
    for (int64_t i = 0; i < n; i++) {
        std::memcpy(&v, from + 16 * i, 16);
        int128_encode(v, to + 16 * i);
    }
}

inline void decimal_decode(const char* from, char* to) {
    const Int128 v = int128_decode(from);
    std::memcpy(to, &v, 16);
}

// ------------------------------------------------------------------------------- sums, in words of a state
inline Int128 words_value(const int64_t* words) { return Int128{static_cast<uint64_t>(words[0]), words[1]}; }

inline void words_add(int64_t* words, const Int128& v) {
    const Int128 sum = int128_add(words_value(words), v);
    words[0] = static_cast<int64_t>(sum.low);
    words[1] = sum.high;
}

// Whether a sum, with one more value, would have more than `digits` digits. words NULL: the sum is 0.
inline bool sum_leaves(const int64_t* words, const Int128& v, int digits) {
    const Int128 sum = words == nullptr ? v : int128_add(words_value(words), v);
    return !int128_within(sum, decimal_bound(digits));
}
}  // namespace ord
#endif
