// Whether one string lies in another. The C library's memmem makes a table for each call, which takes longer
// than the search where the string that is searched is short, as in most columns.
#pragma once

#include <cstdint>
#include <cstring>

namespace ord {

// Above so many bytes the table pays; below, comparing at each place takes at most so many times the
// needle's length.
constexpr int64_t SHORT_TEXT = 256;

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

// m > 0.
inline bool text_contains(const char* text, int64_t n, const char* needle, int64_t m) {
    if (m > n) return false;
    if (m == 1) return std::memchr(text, needle[0], static_cast<size_t>(n)) != nullptr;
    if (n > SHORT_TEXT)
        return memmem(text, static_cast<size_t>(n), needle, static_cast<size_t>(m)) != nullptr;
    if (m < 4) return found_at_once<uint16_t>(text, n, needle, m);
    return found_at_once<uint32_t>(text, n, needle, m);
}

}  // namespace ord
