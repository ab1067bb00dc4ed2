// What the keyed map takes from the platform: a 128-bit product for hashing strings.
// Portable C++17: gcc, clang, MSVC. Thread safety: pure functions.
#ifndef ORDSTREAM_KEY_TOOLS_HPP
#define ORDSTREAM_KEY_TOOLS_HPP
#include <cstdint>
#include <cstring>
#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#endif

// High and low half of a 64x64 product, folded.
static inline uint64_t ord_fold(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    unsigned __int128 p = (unsigned __int128) a * b;
    return (uint64_t) p ^ (uint64_t) (p >> 64);
#elif defined(_MSC_VER) && defined(_M_X64)
    uint64_t high, low = _umul128(a, b, &high);
    return low ^ high;
#else
    uint64_t ah = a >> 32, al = (uint32_t) a, bh = b >> 32, bl = (uint32_t) b;
    uint64_t hh = ah * bh, hl = ah * bl, lh = al * bh, ll = al * bl;
    uint64_t mid = hl + (ll >> 32) + (uint32_t) lh;
    return ((mid << 32) | (uint32_t) ll) ^ (hh + (mid >> 32) + (lh >> 32));
#endif
}
// Bytes of a string: eight at a time (after wyhash's idea of folded products), the length in the seed.
static inline uint64_t ord_hash_bytes(const char* p, int64_t n, uint64_t seed) {
    uint64_t h = seed ^ ((uint64_t) n * 0x9E3779B97F4A7C15ull), w;
    for (; n >= 8; p += 8, n -= 8) {
        std::memcpy(&w, p, 8);
        h = ord_fold(h ^ w ^ 0xA0761D6478BD642Full, 0xE7037ED1A0B428DBull) + w;
    }
    w = 0;
    if (n) std::memcpy(&w, p, (size_t) n);
    return ord_fold(h ^ w ^ 0x8EBC6AF09C88C6E3ull, 0x589965CC75374CC3ull);
}
#endif
