// Exact differences of products of 64-bit integers: a * b - c * d in 128 bits, its sign, its nearest double.
// Portable C++17; no exceptions, no allocation. Thread safety: pure. Ownership: none. Cost: a few ns.
#ifndef ORDSTREAM_WIDE_OPS_HPP
#define ORDSTREAM_WIDE_OPS_HPP
#include <cmath>
#include <cstdint>

namespace ord {
// Two's complement: value = high * 2^64 + low.
struct Wide {
    int64_t high;
    uint64_t low;
};

inline Wide wide_product(int64_t a, int64_t b) {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    const uint64_t x0 = x & 0xffffffffu, x1 = x >> 32, y0 = y & 0xffffffffu, y1 = y >> 32;
    const uint64_t low = x0 * y0;
    const uint64_t middle = x1 * y0 + (low >> 32);
    const uint64_t other = x0 * y1 + (middle & 0xffffffffu);
    uint64_t high = x1 * y1 + (middle >> 32) + (other >> 32);
    if (a < 0) high -= y;
    if (b < 0) high -= x;
    return Wide{static_cast<int64_t>(high), (other << 32) | (low & 0xffffffffu)};
}

inline Wide wide_difference(const Wide& a, const Wide& b) {
    const uint64_t low = a.low - b.low;
    const uint64_t high = static_cast<uint64_t>(a.high) - static_cast<uint64_t>(b.high) - (a.low < b.low);
    return Wide{static_cast<int64_t>(high), low};
}

// a * b - c * d. Always fits: a product lies in (-2^126, 2^126], so a difference in (-2^127, 2^127).
inline Wide wide_determinant(int64_t a, int64_t b, int64_t c, int64_t d) {
    return wide_difference(wide_product(a, b), wide_product(c, d));
}

inline int wide_sign(const Wide& a) {
    return a.high < 0 ? -1 : (a.high | static_cast<int64_t>(a.low != 0)) != 0;
}

// acc + a * b, whose parts need not fit. False: the total is outside int64.
inline bool wide_fits(int64_t acc, int64_t a, int64_t b, int64_t* total) {
    const Wide sum = wide_determinant(a, b, acc, -1);
    *total = static_cast<int64_t>(sum.low);
    return sum.high == (*total >> 63);
}

// Nearest double, ties to even.
inline double wide_to_double(const Wide& a) {
    uint64_t high = static_cast<uint64_t>(a.high), low = a.low;
    const bool negative = a.high < 0;
    if (negative) {
        low = ~low + 1;
        high = ~high + (low == 0);
    }
    double result;
    if (high == 0) {
        result = static_cast<double>(low);  // the conversion rounds to nearest
    } else {
        // Shift so that the highest bit is bit 63; bits that fall out only matter as "not zero" (sticky).
        int shift = 0;
        while (!(high >> 63)) {
            high = (high << 1) | (low >> 63);
            low <<= 1;
            shift++;
        }
        high |= low != 0;  // 64 bits for 53: the last one is far below the rounding position
        result = std::ldexp(static_cast<double>(high), 64 - shift);
    }
    return negative ? -result : result;
}
}  // namespace ord
#endif
