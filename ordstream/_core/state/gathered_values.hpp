// Values of aggregations that keep them (gathered.hpp): read, compared, written. Portable C++17.
//
// a) A value is a 64-bit word (numbers, widened; floats as the bits of a double) or bytes; the bytes of a
//    list of numbers are those of its View, with its size behind them.
// b) `Writer` writes what makes an object again, and the packed list that ORD_LATEST shows
//    (packed_values.hpp says how those bytes are); `Reader` reads the former, and checks it.
// Thread safety: the bucket's holder. Memory: std::bad_alloc may leave `get` only.
#ifndef ORDSTREAM_GATHERED_VALUES_HPP
#define ORDSTREAM_GATHERED_VALUES_HPP
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include "decimal128.hpp"
#include "spare_blocks.hpp"

enum OrdGatherKind { ORD_FIRST, ORD_LAST, ORD_LOW, ORD_HIGH, ORD_DISTINCT, ORD_QUANTILE, ORD_LATEST };
enum OrdValueClass { ORD_SIGNED, ORD_UNSIGNED, ORD_REAL, ORD_BYTES, ORD_NO_VALUE };
// What ORD_LATEST shows: words of a list, or a packed value (packed_values.hpp) whose elements are texts,
// packed values, those of fixed width, decimals of up to 18 digits, of more, lists of numbers, or lists of
// booleans.
enum OrdElement { ORD_OF_WORDS, ORD_OF_TEXTS, ORD_OF_PACKED, ORD_OF_FIXED, ORD_OF_COUNTS, ORD_OF_WIDE,
                  ORD_OF_LISTS, ORD_OF_BOOLS };

struct OrdGatherSpec {
    int32_t kind;      // OrdGatherKind
    int32_t value;     // OrdValueClass
    int32_t by;        // of what decides; ORD_NO_VALUE: the value itself
    int32_t slides;    // in a window that slides
    int64_t n;         // ORD_LATEST: how many
    int32_t element;   // OrdElement
    int32_t width;     // bytes of an element of lists of numbers, of a value of fixed width; else 0
    int64_t nulls;     // of lists of numbers: the bit of a size that says that some elements are null
    double quantile;   // ORD_QUANTILE
};

struct OrdGiven {
    int64_t word;      // of a list: its View's size
    const char* data;  // of bytes
    int64_t size;
    int32_t is_list;   // of numbers
};

struct OrdShown {
    int64_t word;
    const char* data;      // of bytes; they are the object's
    int64_t size;          // of bytes, or how many words
    const int64_t* words;  // ORD_LATEST, ORD_OF_WORDS
};

namespace ord {

using Word = int64_t;
using Text = std::string;
struct Nothing {};

inline double real_of(Word word) {
    double v;
    std::memcpy(&v, &word, 8);
    return v;
}

inline Word word_of_real(double v) {
    Word word;
    std::memcpy(&word, &v, 8);
    return word;
}

// ------------------------------------------------------------------------------- values

inline void get(const OrdGiven& g, Word* to) { *to = g.word; }
inline void get(const OrdGiven& g, Text* to) {
    if (g.is_list) to->reserve(static_cast<size_t>(g.size) + 8);
    to->assign(g.size ? g.data : "", static_cast<size_t>(g.size));
    if (g.is_list) to->append(reinterpret_cast<const char*>(&g.word), 8);
}

inline int64_t held(const Word&) { return 0; }
inline int64_t held(const Text& s) { return s.capacity() > 15 ? static_cast<int64_t>(s.capacity()) + 1 : 0; }

inline void show(Word v, OrdShown* to) { to->word = v; }
inline void show(const Text& v, OrdShown* to) {
    to->data = v.data();
    to->size = static_cast<int64_t>(v.size());
}

// Whether a is before b. NaN is neither before nor behind a number here: `better` looks at it.
inline bool before(Word a, Word b, int32_t order) {
    if (order == ORD_UNSIGNED) return static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
    return order == ORD_REAL ? real_of(a) < real_of(b) : a < b;
}
inline bool before(const Text& a, const Text& b, int32_t) { return a < b; }
inline bool is_nan(Word v, int32_t order) { return order == ORD_REAL && std::isnan(real_of(v)); }
inline bool is_nan(const Text&, int32_t) { return false; }

// Where the written form of an object goes; without a place only its size is found.
struct Writer {
    char* to;
    int64_t size = 0;
    void bytes(const void* data, size_t n) {
        if (to != nullptr && n) std::memcpy(to + size, data, n);
        size += static_cast<int64_t>(n);
    }
    void put(Word v) { bytes(&v, 8); }
    void byte(int v) {
        const char one = static_cast<char>(v);
        bytes(&one, 1);
    }
    void count(size_t n) {
        const int32_t four = static_cast<int32_t>(n);
        bytes(&four, 4);
    }
    void put(const Text& v) {
        put(static_cast<Word>(v.size()));
        bytes(v.data(), v.size());
    }
};

struct Reader {
    const char* at;
    const char* end;
    bool get(OrdGiven* g, int32_t value) {
        if (value == ORD_NO_VALUE) return true;
        if (end - at < 8) return false;
        std::memcpy(&g->word, at, 8);
        at += 8;
        if (value != ORD_BYTES) return true;
        if (g->word < 0 || end - at < g->word) return false;
        g->data = at;
        g->size = g->word;
        at += g->word;
        return true;
    }
};

// Whether stored bytes of a list, or of a value of fixed width, are as many as they have to be.
inline bool is_whole(const OrdGiven& g, const OrdGatherSpec* spec) {
    if (spec->value != ORD_BYTES || spec->width == 0) return true;
    if (spec->element == ORD_OF_WIDE || spec->element == ORD_OF_FIXED) return g.size == spec->width;
    if (g.size < 8) return false;
    Word size;
    std::memcpy(&size, g.data + g.size - 8, 8);
    const uint64_t n = static_cast<uint64_t>(size & ~spec->nulls), bytes = static_cast<uint64_t>(g.size) - 8;
    return n <= bytes && bytes == n * static_cast<uint64_t>(spec->width + ((size & spec->nulls) != 0));
}

template <class V, class B>
struct Item {
    V value;
    B by;
};
template <class V>
struct Item<V, Nothing> {
    V value;
};
template <class V, class B>
void get_by(const OrdGiven& g, Item<V, B>* to) { get(g, &to->by); }
template <class V>
void get_by(const OrdGiven&, Item<V, Nothing>*) {}
template <class V, class B>
int64_t held_by(const Item<V, B>& i) { return held(i.value) + held(i.by); }
template <class V>
int64_t held_by(const Item<V, Nothing>& i) { return held(i.value); }
template <class V, class B>
void put_by(const Item<V, B>& i, Writer* w) { w->put(i.value); w->put(i.by); }
template <class V>
void put_by(const Item<V, Nothing>& i, Writer* w) { w->put(i.value); }
template <class V, class B>
const B& decides(const Item<V, B>& i) { return i.by; }
template <class V>
const V& decides(const Item<V, Nothing>& i) { return i.value; }

// A queue in one piece of memory.
template <class T>
struct Queue {
    Vector<T> all;
    size_t head = 0;
    size_t size() const { return all.size() - head; }
    T& operator[](size_t i) { return all[head + i]; }
    const T& operator[](size_t i) const { return all[head + i]; }
    const T* data() const { return all.data() + head; }
    void push(T v) { all.push_back(std::move(v)); }
    void drop_newest() { all.pop_back(); }
    void drop_oldest() {
        T last{};
        std::swap(all[head], last);
        if (++head == all.size()) {
            all.clear();
            head = 0;
        } else if (head >= 32 && 2 * head >= all.size()) {
            all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(head));
            head = 0;
            if (4 * all.size() < all.capacity()) all.shrink_to_fit();
        }
    }
    int64_t bytes() const { return static_cast<int64_t>(all.capacity() * sizeof(T)); }
};

// Whether the elements of a packed list lie side by side, behind a byte that says that none is null.
inline bool of_fixed_width(const OrdGatherSpec* spec) {
    return spec->element == ORD_OF_FIXED || spec->element == ORD_OF_COUNTS || spec->element == ORD_OF_WIDE;
}

// Kept bytes as they were given.
inline OrdGiven given_again(const Text& v, const OrdGatherSpec* spec) {
    OrdGiven g{0, v.data(), static_cast<int64_t>(v.size()), 0};
    if (spec->element != ORD_OF_LISTS && spec->element != ORD_OF_BOOLS) return g;
    g.is_list = 1;
    g.size -= 8;
    std::memcpy(&g.word, v.data() + g.size, 8);
    return g;
}

inline void put_list(const OrdGiven& g, const OrdGatherSpec* spec, Writer* w) {
    const bool nulls = (g.word & spec->nulls) != 0;
    const size_t n = static_cast<size_t>(g.word & ~spec->nulls), width = static_cast<size_t>(spec->width);
    const char* valid = nulls ? g.data + n * width : nullptr;
    w->count(n);
    if (spec->element == ORD_OF_BOOLS) {
        for (size_t i = 0; i < n; i++) {
            const bool there = !nulls || valid[i];
            w->byte(there);
            if (there) w->byte(g.data[i] != 0);
        }
        return;
    }
    w->byte(nulls);
    if (!nulls) return w->bytes(g.data, n * width);
    w->bytes(valid, n);
    const char zeros[16] = {};  // what is under a null is anything
    for (size_t i = 0; i < n; i++) w->bytes(valid[i] ? g.data + i * width : zeros, width);
}

// An element of a packed list, not null (packed_values.hpp): a decimal's count, and anything else.
inline void put_element(Word count, const OrdGatherSpec*, Writer* w) {
    const Int128 wide = int128_of(count);
    w->bytes(&wide, 16);
}
inline void put_element(const OrdGiven& g, const OrdGatherSpec* spec, Writer* w) {
    if (spec->element == ORD_OF_WIDE) {
        char sixteen[16];
        decimal_decode(g.data, sixteen);
        return w->bytes(sixteen, 16);
    }
    const size_t size = static_cast<size_t>(g.size);
    if (spec->element == ORD_OF_FIXED) return w->bytes(g.data, size);
    w->byte(1);
    if (g.is_list) return put_list(g, spec, w);
    if (spec->element == ORD_OF_TEXTS) w->count(size);
    w->bytes(g.data, size);
}

inline void put_element(const Text& v, const OrdGatherSpec* spec, Writer* w) {
    put_element(given_again(v, spec), spec, w);
}

// Write it to `to`, where that is not NULL. Its size.
inline int64_t element_write(const OrdGatherSpec* spec, const OrdGiven* given, char* to) noexcept {
    Writer w{to};
    if (spec->element == ORD_OF_COUNTS) put_element(given->word, spec, &w);
    else put_element(*given, spec, &w);
    return w.size;
}

}  // namespace ord
#endif
