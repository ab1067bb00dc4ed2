// Gathered: what an aggregation keeps of a key where a few words do not do: a string, distinct values,
// values in order (gathered.pxd). Portable C++17.
//
// a) Behind a pointer there is one object per key and aggregation, made at the first value; what a value is
//    says gathered_values.hpp.
// b) Without a window that slides, a value is taken in at once (`take`), and only what decides is kept. With
//    one, all values of the window are kept in order of arrival: the newest may wait (`seen`), the oldest
//    leaves; `take` and `leave` keep what is shown.
// c) An object is written as the values that make it: added one by one to a new one, they give the same.
// Thread safety: the bucket's holder. Memory: no exception leaves this file; an object that had no memory is
// `broken` for good, and says so at the next value.
#ifndef ORDSTREAM_GATHERED_HPP
#define ORDSTREAM_GATHERED_HPP
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>
#include "counted_values.hpp"
#include "gathered_values.hpp"
#include "sorted_words.hpp"

// ------------------------------------------------------------------------------- objects

struct OrdGathered {
    bool broken = false;
    virtual ~OrdGathered() {}
    static void* operator new(size_t size) { return ord::spare_blocks.take(size); }
    static void operator delete(void* object, size_t size) { ord::spare_blocks.give(object, size); }
    virtual void add(const OrdGiven& value, const OrdGiven& by) = 0;
    virtual void undo() = 0;
    virtual void see() = 0;
    virtual void leave() = 0;
    virtual bool shown(OrdShown* to) = 0;
    virtual int64_t bytes() const = 0;
    virtual void write(ord::Writer* w) = 0;
    virtual void show_packed(ord::Writer*) {}
};

namespace ord {

template <class V, class B>
struct Gathered : OrdGathered {
    using One = Item<V, B>;
    const OrdGatherSpec* spec;
    Queue<One> all;      // of a window that slides: its values, the newest perhaps not seen yet
    size_t seen = 0;
    int64_t gone = 0;    // values that have left: number of the oldest one
    int64_t texts = 0;   // bytes of long strings

    explicit Gathered(const OrdGatherSpec* s) : spec(s) {}
    virtual void change(One*) {}
    virtual void take(const One& one, int64_t number) = 0;
    virtual void forget(const One& one, int64_t number) = 0;
    virtual void write_kept(Writer* w) = 0;

    void add(const OrdGiven& value, const OrdGiven& by) override {
        One one;
        get(value, &one.value);
        get_by(by, &one);
        change(&one);
        if (!spec->slides) return take(one, gone++);
        const int64_t more = held_by(one);
        all.push(std::move(one));
        texts += more;
    }
    void undo() override {
        texts -= held_by(all[all.size() - 1]);
        all.drop_newest();
    }
    void see() override {
        take(all[seen], gone + static_cast<int64_t>(seen));
        seen++;
    }
    void leave() override {
        forget(all[0], gone);
        texts -= held_by(all[0]);
        all.drop_oldest();
        seen--;
        gone++;
    }
    void write(Writer* w) override {
        if (!spec->slides) return write_kept(w);
        for (size_t i = 0; i < all.size(); i++) put_by(all[i], w);
    }
    int64_t bytes() const override { return static_cast<int64_t>(sizeof(*this)) + all.bytes() + texts; }
};

// The first, last, smallest or largest one; of equal ones the first.
template <class V, class B>
struct Best : Gathered<V, B> {
    using One = Item<V, B>;
    One one{};
    bool there = false;
    Queue<int64_t> next;  // sliding: numbers of the ones that are best when all before them have left

    using Gathered<V, B>::Gathered;
    bool better(const One& a, const One& b) const {
        const int32_t kind = this->spec->kind;
        const int32_t order = this->spec->by == ORD_NO_VALUE ? this->spec->value : this->spec->by;
        if (kind == ORD_FIRST || kind == ORD_LAST) return kind == ORD_LAST;
        const auto& x = decides(a);
        const auto& y = decides(b);
        if (is_nan(y, order)) return !is_nan(x, order);
        return kind == ORD_LOW ? before(x, y, order) : before(y, x, order);
    }
    One& numbered(int64_t number) { return this->all[static_cast<size_t>(number - this->gone)]; }
    void take(const One& it, int64_t number) override {
        if (!this->spec->slides) {
            if (there && !better(it, one)) return;
            this->texts -= held_by(one);
            one = it;
            this->texts += held_by(one);
            there = true;
            return;
        }
        while (next.size() && better(it, numbered(next[next.size() - 1]))) next.drop_newest();
        if (next.size() == 0) {
            next.all.clear();
            next.head = 0;
        }
        next.push(number);
    }
    void forget(const One&, int64_t number) override {
        if (next[0] == number) next.drop_oldest();
    }
    bool shown(OrdShown* to) override {
        if (this->spec->slides ? next.size() == 0 : !there) return false;
        show(this->spec->slides ? numbered(next[0]).value : one.value, to);
        return true;
    }
    void write_kept(Writer* w) override {
        if (there) put_by(one, w);
    }
    int64_t bytes() const override { return Gathered<V, B>::bytes() + next.bytes(); }
};

// The first or the last value, bytes, of what does not slide: nothing but the value.
struct End : OrdGathered {
    Text value;
    bool there = false;
    const bool first;

    explicit End(const OrdGatherSpec* spec) : first(spec->kind == ORD_FIRST) {}
    void take(const OrdGiven& given, int64_t* more) {
        if (there && first) return;
        *more -= held(value);
        try {
            get(given, &value);
            there = true;
        } catch (...) {
            this->broken = true;
            *more += held(value);
            throw;
        }
        *more += held(value);
    }
    void add(const OrdGiven&, const OrdGiven&) override {}  // gathered_add takes its own way
    void undo() override {}
    void see() override {}
    void leave() override {}
    bool shown(OrdShown* to) override {
        if (there) show(value, to);
        return there;
    }
    void write(Writer* w) override {
        if (there) w->put(value);
    }
    int64_t bytes() const override { return static_cast<int64_t>(sizeof(*this)) + held(value); }
};

inline bool is_end(const OrdGatherSpec* spec) {
    return spec->kind <= ORD_LAST && spec->value == ORD_BYTES && spec->by == ORD_NO_VALUE && !spec->slides;
}

// How many distinct values; -0.0 is 0.0, and there is one NaN.
template <class V>
struct Distinct : Gathered<V, Nothing> {
    using One = Item<V, Nothing>;
    CountedValues<V> times;

    using Gathered<V, Nothing>::Gathered;
    static void normal(Word* v, int32_t order) {
        if (order != ORD_REAL) return;
        const double x = real_of(*v);
        *v = std::isnan(x) ? word_of_real(std::numeric_limits<double>::quiet_NaN()) : word_of_real(x + 0.0);
    }
    static void normal(Text*, int32_t) {}
    void change(One* one) override { normal(&one->value, this->spec->value); }
    void take(const One& one, int64_t) override {
        if (const auto* fresh = times.add(one.value)) this->texts += held(fresh->value);
    }
    void forget(const One& one, int64_t) override {
        V left{};
        if (times.drop(one.value, &left)) this->texts -= held(left);
    }
    bool shown(OrdShown* to) override {
        to->word = static_cast<int64_t>(times.size());
        return true;
    }
    void write_kept(Writer* w) override {
        std::vector<const V*> sorted;
        sorted.reserve(times.size());
        times.each([&sorted](const V& v) { sorted.push_back(&v); });
        std::sort(sorted.begin(), sorted.end(), [](const V* a, const V* b) { return *a < *b; });
        for (const V* v : sorted) w->put(*v);
    }
    int64_t bytes() const override {
        return Gathered<V, Nothing>::bytes() + times.bytes();
    }
};

// A quantile. Values are doubles (ORD_REAL), kept as words that ascend as the doubles do: -0.0 before 0.0,
// NaN last.
struct Quantile : Gathered<Word, Nothing> {
    using One = Item<Word, Nothing>;
    SortedWords values;

    using Gathered<Word, Nothing>::Gathered;
    static Word ascending(Word word) {  // its own inverse
        return word ^ static_cast<Word>(static_cast<uint64_t>(word >> 63) >> 1);
    }
    void change(One* one) override {
        const double v = real_of(one->value);
        if (!std::isnan(v)) return;
        one->value = word_of_real(std::numeric_limits<double>::quiet_NaN());
    }
    void take(const One& one, int64_t) override { values.take(ascending(one.value)); }
    void forget(const One& one, int64_t) override { values.erase(ascending(one.value)); }
    double at(size_t i) const { return real_of(ascending(values[i])); }
    bool shown(OrdShown* to) override {
        if (values.size() == 0) return false;
        const double place = static_cast<double>(values.size() - 1) * spec->quantile;
        const double below = std::floor(place);
        const size_t i = static_cast<size_t>(below);
        values.settle_at(i, place > below);
        double v = at(i);
        if (place > below) {
            const double next = at(i + 1);
            const double part = place - below;
            if (std::isinf(next - v))  // one is infinite, or they are further apart than a double can say
                v = v * (1.0 - part) + next * part;
            else if (next != v)
                v = v + (next - v) * part;
        }
        if (std::isnan(v)) v = std::numeric_limits<double>::quiet_NaN();
        to->word = word_of_real(v);
        return true;
    }
    void write_kept(Writer* w) override {
        values.each([w](Word v) { w->put(ascending(v)); });
    }
    int64_t bytes() const override { return Gathered<Word, Nothing>::bytes() + values.bytes(); }
};

// The last n values.
template <class V>
struct Latest : Gathered<V, Nothing> {
    using One = Item<V, Nothing>;
    Queue<V> last;  // not of a window that slides: there they are the end of what is seen

    using Gathered<V, Nothing>::Gathered;
    void take(const One& one, int64_t) override {
        if (this->spec->slides) return;
        last.push(one.value);
        this->texts += held(one.value);
        if (static_cast<int64_t>(last.size()) <= this->spec->n) return;
        this->texts -= held(last[0]);
        last.drop_oldest();
    }
    void forget(const One&, int64_t) override {}
    const V* newest(int64_t* n) const {
        const int64_t there = static_cast<int64_t>(this->spec->slides ? this->seen : last.size());
        *n = std::min(there, this->spec->n);
        static_assert(sizeof(One) == sizeof(V), "values lie side by side");
        const V* from = this->spec->slides ? reinterpret_cast<const V*>(this->all.data()) : last.data();
        return from + (there - *n);
    }
    bool shown(OrdShown* to) override {
        if constexpr (sizeof(V) == sizeof(Word)) to->words = newest(&to->size);
        return true;
    }
    void show_packed(Writer* w) override {
        int64_t n;
        const V* from = newest(&n);
        w->count(static_cast<size_t>(n));
        if (of_fixed_width(this->spec)) w->byte(0);
        for (int64_t i = 0; i < n; i++) put_element(from[i], this->spec, w);
    }
    void write_kept(Writer* w) override {
        for (size_t i = 0; i < last.size(); i++) w->put(last[i]);
    }
    int64_t bytes() const override { return Gathered<V, Nothing>::bytes() + last.bytes(); }
};

template <class V>
OrdGathered* best_of(const OrdGatherSpec* spec) {
    if (spec->by == ORD_NO_VALUE) return new Best<V, Nothing>(spec);
    if (spec->by == ORD_BYTES) return new Best<V, Text>(spec);
    return new Best<V, Word>(spec);
}

inline OrdGathered* made(const OrdGatherSpec* spec) {
    const bool bytes = spec->value == ORD_BYTES;
    if (is_end(spec)) return new End(spec);
    if (spec->kind == ORD_QUANTILE) return new Quantile(spec);
    if (spec->kind == ORD_LATEST) {
        if (bytes) return new Latest<Text>(spec);
        return new Latest<Word>(spec);
    }
    if (spec->kind == ORD_DISTINCT) {
        if (bytes) return new Distinct<Text>(spec);
        return new Distinct<Word>(spec);
    }
    return bytes ? best_of<Text>(spec) : best_of<Word>(spec);
}

// ------------------------------------------------------------------------------- for Cython

// Add a value; `*object` is made where there is none. `*held`: bytes, kept up to date. 0, or -1: no memory.
inline int gathered_add(OrdGathered** object, const OrdGatherSpec* spec, const OrdGiven* value,
                        const OrdGiven* by, int64_t* held) noexcept {
    try {
        const bool is_new = *object == nullptr;
        if (is_new) *object = made(spec);
        if ((*object)->broken) return -1;
        if (is_end(spec)) {
            if (is_new) *held += static_cast<int64_t>(sizeof(End));
            static_cast<End*>(*object)->take(*value, held);
            return 0;
        }
        const int64_t had = is_new ? 0 : (*object)->bytes();
        try {
            (*object)->add(*value, *by);
        } catch (...) {
            *held += (*object)->bytes() - had;
            throw;
        }
        *held += (*object)->bytes() - had;
        return 0;
    } catch (...) {
        return -1;
    }
}

// The newest value, which was not seen yet, was never added.
inline void gathered_undo(OrdGathered* object, int64_t* held) noexcept {
    *held -= object->bytes();
    object->undo();
    *held += object->bytes();
}

// The next value that waits is seen from now on.
inline void gathered_see(OrdGathered* object, int64_t* held) noexcept {
    *held -= object->bytes();
    try {
        object->see();
    } catch (...) {
        object->broken = true;
    }
    *held += object->bytes();
}

// The oldest value leaves.
inline void gathered_leave(OrdGathered* object, int64_t* held) noexcept {
    *held -= object->bytes();
    try {
        if (!object->broken) object->leave();
    } catch (...) {
        object->broken = true;
    }
    *held += object->bytes();
}

inline void gathered_drop(OrdGathered** object, int64_t* held) noexcept {
    if (*object == nullptr) return;
    *held -= (*object)->bytes();
    delete *object;
    *object = nullptr;
}

// What it shows: 1; 0: null; -1: it is broken.
inline int gathered_shown(OrdGathered* object, OrdShown* to) noexcept {
    std::memset(to, 0, sizeof *to);
    if (object == nullptr) return 0;
    try {
        return object->broken ? -1 : object->shown(to);
    } catch (...) {
        return -1;
    }
}

// The packed list that ORD_LATEST shows, empty without an object, to `to` where that is not NULL. Its size,
// or -1: it is broken.
inline int64_t gathered_packed(OrdGathered* object, const OrdGatherSpec* spec, char* to) noexcept {
    Writer w{to};
    if (object == nullptr) {
        w.count(0);
        if (of_fixed_width(spec)) w.byte(0);
        return w.size;
    }
    if (object->broken) return -1;
    object->show_packed(&w);
    return w.size;
}

// The written form, to `to` where it is not NULL. Its size, or -1: no memory.
inline int64_t gathered_write(OrdGathered* object, char* to) noexcept {
    if (object == nullptr) return 0;
    try {
        Writer w{to};
        object->write(&w);
        return w.size;
    } catch (...) {
        return -1;
    }
}

// Fill from a written form. How many values there were; -1: no memory, -2: it is none. The object is then
// the caller's to drop.
inline int64_t gathered_read(OrdGathered** object, const OrdGatherSpec* spec, const char* data, int64_t size,
                             int64_t* held) noexcept {
    Reader r{data, data + size};
    int64_t n = 0;
    while (r.at < r.end) {
        OrdGiven value{0, nullptr, 0, 0}, by{0, nullptr, 0, 0};
        if (!r.get(&value, spec->value) || !is_whole(value, spec) || !r.get(&by, spec->by)) return -2;
        if (gathered_add(object, spec, &value, &by, held) != 0) return -1;
        n++;
    }
    return n;
}

}  // namespace ord
#endif
