// Whether one string lies in another, and how many code points one has. The C library's memmem makes a table
// for each call, which takes longer than the search where the string that is searched is short, as in most
// columns.
#pragma once

#include <cstdint>
#include <cstring>

namespace ord {

// Above so many bytes the table pays; below, comparing at each place takes at most so many times the
// needle's length.
constexpr int64_t SHORT_TEXT = 256;
// Up to so many bytes a needle is compared wherever two of its bytes stand: at most so many times
// the text's length. memmem takes 1 ns a byte, whatever there is.
constexpr int64_t SHORT_NEEDLE = 32;

// T: as many bytes of the needle as are compared at each place. 0 < sizeof(T) <= m <= n.
template <class T>
inline bool found_at_once(const char* text, int64_t n, const char* needle, int64_t m) {
    T head, here;
    std::memcpy(&head, needle, sizeof(T));
    const int64_t rest = m - static_cast<int64_t>(sizeof(T));
    for (const char *at = text, *last = text + (n - m); at <= last; at++) {
        std::memcpy(&here, at, sizeof(T));
        if (here == head && std::memcmp(at + sizeof(T), needle + sizeof(T), static_cast<size_t>(rest)) == 0)
            return true;
    }
    return false;
}

// How seldom a byte is in texts, roughly.
inline int seldom(char byte) {
    const unsigned char b = static_cast<unsigned char>(byte);
    if (b == ' ') return 0;
    return b >= 'a' && b <= 'z' ? (std::strchr("etaoinsrhldcu", b) != nullptr ? 1 : 2) : 3;
}

// A long text for a short needle: two seldom bytes of the needle, at many places at once, in a loop that a
// compiler makes vectors of. 2 <= m <= n.
inline bool found_by_two(const char* text, int64_t n, const char* needle, int64_t m) {
    constexpr int64_t BLOCK = 64;
    const int64_t places = n - m + 1;
    int64_t one = 0, two = 1, at = 0;
    for (int64_t i = 1; i < m; i++) {
        if (seldom(needle[i]) > seldom(needle[one])) {
            two = one;
            one = i;
        } else if (i > 1 && seldom(needle[i]) > seldom(needle[two])) {
            two = i;
        }
    }
    const char a = needle[one], b = needle[two];
    for (; at + BLOCK <= places; at += BLOCK) {
        const char *x = text + at + one, *y = text + at + two;
        unsigned char any = 0;
        for (int64_t i = 0; i < BLOCK; i++)
            any |= static_cast<unsigned char>((x[i] == a) & (y[i] == b));
        if (!any) continue;
        for (int64_t i = 0; i < BLOCK; i++)
            if (x[i] == a && y[i] == b && std::memcmp(text + at + i, needle, static_cast<size_t>(m)) == 0)
                return true;
    }
    return at < places && found_at_once<uint16_t>(text + at, n - at, needle, m);
}

// m > 0.
inline bool text_contains(const char* text, int64_t n, const char* needle, int64_t m) {
    if (m > n) return false;
    if (m == 1) return std::memchr(text, needle[0], static_cast<size_t>(n)) != nullptr;
    if (n > SHORT_TEXT && m <= SHORT_NEEDLE) return found_by_two(text, n, needle, m);
    if (n > SHORT_TEXT)
        return memmem(text, static_cast<size_t>(n), needle, static_cast<size_t>(m)) != nullptr;
    if (m < 4) return found_at_once<uint16_t>(text, n, needle, m);
    return found_at_once<uint32_t>(text, n, needle, m);
}

// How many of a word's bytes continue a code point: of 10xxxxxx the highest bits.
inline int64_t continuing(uint64_t word) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    return static_cast<int64_t>((((word >> 7) & ~(word >> 6) & ones) * ones) >> 56);
}

// Code points of UTF-8: bytes that do not continue one. Eight at a time, and of the rest half as often.
inline int64_t characters(const char* text, int64_t n) {
    int64_t at = 0, continued = 0;
    for (uint64_t word; at + 8 <= n; at += 8) {
        std::memcpy(&word, text + at, 8);
        continued += continuing(word);
    }
    uint64_t rest = 0;
    if (n & 4) {
        uint32_t four;
        std::memcpy(&four, text + at, 4);
        rest = four;
        at += 4;
    }
    if (n & 2) {
        uint16_t two;
        std::memcpy(&two, text + at, 2);
        rest = rest << 16 | two;
        at += 2;
    }
    if (n & 1) rest = rest << 8 | static_cast<unsigned char>(text[at]);
    return n - continued - continuing(rest);
}

}  // namespace ord
