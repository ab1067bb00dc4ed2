// Values of many rows into objects of one aggregation (gathered.hpp), without a window that slides.
// Portable C++17.
//
// Row by row each value waits for three lines of memory in turn: the state's pointer, the object, and what
// the object writes to. Here a block goes in three passes, so that these waits overlap; its objects are of
// one class, and a text that is not kept is not copied.
// Thread safety: the bucket's holder. Memory: no exception leaves this file; `broken` as in gathered.hpp.
#ifndef ORDSTREAM_GATHERED_BLOCK_HPP
#define ORDSTREAM_GATHERED_BLOCK_HPP
#include <string_view>
#include "gathered.hpp"

namespace ord {

// Of one aggregation, in the order of arrival: `boxes[i]` is where the state of row i has its pointer.
struct GatheredRows {
    void** const* boxes;
    const OrdGiven* values;
    const OrdGiven* bys;  // what decides, where that is another column
    int32_t n;
};

inline void ahead(const void* at) {  // to be written
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(at, 1, 3);
#endif
}
inline void ahead_read(const void* at) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(at, 0, 3);
#endif
}

// What a Best that does not slide keeps next: `Best::better` of values as they are given.
template <class V, class B>
bool worth(const Best<V, B>& best, const OrdGiven& value, const OrdGiven& by) {
    constexpr bool own = std::is_same_v<B, Nothing>;
    using Decides = std::conditional_t<own, V, B>;
    const int32_t kind = best.spec->kind;
    if (!best.there) return true;
    if (kind == ORD_FIRST || kind == ORD_LAST) return kind == ORD_LAST;
    const OrdGiven& given = own ? value : by;
    const Decides& kept = decides(best.one);
    if constexpr (std::is_same_v<Decides, Word>) {
        const int32_t order = own ? best.spec->value : best.spec->by;
        if (is_nan(kept, order)) return !is_nan(given.word, order);
        return kind == ORD_LOW ? before(given.word, kept, order) : before(kept, given.word, order);
    } else {
        const std::string_view text(given.size ? given.data : "", static_cast<size_t>(given.size));
        if (given.is_list) {  // its size belongs to it
            Text whole;
            get(given, &whole);
            return kind == ORD_LOW ? whole < kept : kept < whole;
        }
        return kind == ORD_LOW ? text < std::string_view(kept) : std::string_view(kept) < text;
    }
}

template <class V, class B>
void take(Best<V, B>* best, const OrdGiven& value, const OrdGiven& by) {
    if (!worth(*best, value, by)) return;
    best->texts -= held_by(best->one);
    try {
        get(value, &best->one.value);
        get_by(by, &best->one);
    } catch (...) {  // of two values one may be new
        best->texts += held_by(best->one);
        throw;
    }
    best->texts += held_by(best->one);
    best->there = true;
}
template <class V>
void take(Distinct<V>* distinct, const OrdGiven& value, const OrdGiven&) {
    Item<V, Nothing> one;
    get(value, &one.value);
    distinct->change(&one);
    distinct->Distinct<V>::take(one, 0);
}
inline void take(Quantile* quantile, const OrdGiven& value, const OrdGiven&) {
    Item<Word, Nothing> one{value.word};
    quantile->Quantile::change(&one);
    quantile->values.take(Quantile::ascending(one.value));
}
template <class V>
void take(Latest<V>* latest, const OrdGiven& value, const OrdGiven&) {
    Item<V, Nothing> one;
    get(value, &one.value);
    latest->Latest<V>::take(one, 0);
}
inline void take(End* end, const OrdGiven& value, const OrdGiven&) {
    if (end->there && end->first) return;
    get(value, &end->value);
    end->there = true;
}

// Prefetch what `take` writes to; the object is there.
template <class V, class B>
void look_ahead(const Best<V, B>&, const OrdGiven&) {}
template <class V>
void look_ahead(const Distinct<V>& distinct, const OrdGiven& value) {
    if constexpr (std::is_same_v<V, Word>) {
        Item<V, Nothing> one{value.word};
        Distinct<V>::normal(&one.value, distinct.spec->value);
        if (!distinct.times.table.empty()) ahead(&distinct.times.table[distinct.times.start(one.value)]);
    } else if (!distinct.times.table.empty()) {
        ahead(distinct.times.table.data());
    }
}
inline void look_ahead(const Quantile& quantile, const OrdGiven&) {
    ahead(quantile.values.flat.data() + quantile.values.flat.size());
}
template <class V>
void look_ahead(const Latest<V>& latest, const OrdGiven&) {
    ahead(latest.last.all.data() + latest.last.all.size());
}
inline void look_ahead(const End& end, const OrdGiven&) { ahead(end.value.data()); }

template <class T>
int64_t bytes_of(const T& object) { return object.T::bytes(); }

template <class T>
int add_rows(const GatheredRows& rows, const OrdGatherSpec* spec, int64_t* held) noexcept {
    for (int32_t i = 0; i < rows.n; i++) {
        const char* object = static_cast<const char*>(*rows.boxes[i]);
        if (object == nullptr) continue;
        for (size_t at = 0; at < sizeof(T); at += 64) ahead(object + at);
        ahead(object + sizeof(T) - 1);
    }
    for (int32_t i = 0; i < rows.n; i++) {
        const T* object = static_cast<const T*>(static_cast<OrdGathered*>(*rows.boxes[i]));
        if (object != nullptr) look_ahead(*object, rows.values[i]);
    }
    int64_t more = 0;
    T* object = nullptr;
    int64_t had = 0;
    try {
        for (int32_t i = 0; i < rows.n; i++) {
            void** box = rows.boxes[i];
            had = *box == nullptr ? 0 : bytes_of(*static_cast<T*>(static_cast<OrdGathered*>(*box)));
            object = nullptr;
            if (*box == nullptr) *box = static_cast<OrdGathered*>(new T(spec));
            object = static_cast<T*>(static_cast<OrdGathered*>(*box));
            if (object->broken) throw std::bad_alloc();
            take(object, rows.values[i], rows.bys[i]);
            more += bytes_of(*object) - had;
        }
    } catch (...) {
        if (object != nullptr) {
            more += bytes_of(*object) - had;
            object->broken = true;
        }
        *held += more;
        return -1;
    }
    *held += more;
    return 0;
}

template <class V>
int add_best(const GatheredRows& rows, const OrdGatherSpec* spec, int64_t* held) noexcept {
    if (spec->by == ORD_NO_VALUE) return add_rows<Best<V, Nothing>>(rows, spec, held);
    if (spec->by == ORD_BYTES) return add_rows<Best<V, Text>>(rows, spec, held);
    return add_rows<Best<V, Word>>(rows, spec, held);
}

template <class V>
int add_values(const GatheredRows& rows, const OrdGatherSpec* spec, int64_t* held) noexcept {
    if (spec->kind == ORD_LATEST) return add_rows<Latest<V>>(rows, spec, held);
    if (spec->kind == ORD_DISTINCT) return add_rows<Distinct<V>>(rows, spec, held);
    return add_best<V>(rows, spec, held);
}

// Add them. `*held`: bytes, kept up to date. 0, or -1: no memory, and the object is broken.
inline int gathered_add_rows(const GatheredRows& rows, const OrdGatherSpec* spec, int64_t* held) noexcept {
    if (is_end(spec)) return add_rows<End>(rows, spec, held);
    if (spec->kind == ORD_QUANTILE) return add_rows<Quantile>(rows, spec, held);
    if (spec->value == ORD_BYTES) return add_values<Text>(rows, spec, held);
    return add_values<Word>(rows, spec, held);
}

}  // namespace ord
#endif
