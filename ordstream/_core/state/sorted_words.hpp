// Words in ascending order, equal ones as often as they came. Portable C++17.
//
// a) Few words, and those that nobody looks at one by one, lie flat: `flat` has `sorted` words in order, and
//    behind them those that came since. `settle` puts these in, many of them by one merge.
// b) More than FLAT words into which single ones go lie in blocks (sorted_blocks.hpp). `flat` then has only
//    what came since.
// Thread safety: its owner's. Memory: std::bad_alloc leaves `take`, `settle`, `erase` and `each`; the words
// are then as before.
#ifndef ORDSTREAM_SORTED_WORDS_HPP
#define ORDSTREAM_SORTED_WORDS_HPP
#include <algorithm>
#include <functional>
#include "sorted_blocks.hpp"
#include "spare_blocks.hpp"

namespace ord {

struct SortedWords {
    using Word = int64_t;
    static constexpr size_t FLAT = 2048, BLOCK = 1024;
    static constexpr size_t MANY = 16;  // a sixteenth of the words is merged, not put in one by one

    Vector<Word> flat;
    size_t sorted = 0;
    bool looked = false;  // at one word, while none was in order
    SortedBlocks<Word, std::less<Word>, BLOCK> blocks;

    size_t size() const { return blocks.size() + flat.size(); }
    void take(Word v) { flat.push_back(v); }

    void settle() {
        const size_t came = flat.size() - sorted, there = blocks.size() + sorted;
        if (came == 0) return;
        if (came * MANY >= there || there < FLAT) {
            if (!blocks.empty()) lie_flat();
            return merge();
        }
        if (blocks.empty()) {
            Vector<Word> rest(flat.begin() + static_cast<std::ptrdiff_t>(sorted), flat.end());
            blocks.fill(flat.data(), sorted);
            flat.swap(rest);
            sorted = 0;
        }
        while (!flat.empty()) {
            blocks.put(flat.back(), 0);
            flat.pop_back();
        }
    }

    // The i-th word; everything is settled.
    Word operator[](size_t i) const { return blocks.empty() ? flat[i] : blocks[i]; }

    // Put the i-th word, and the one behind it if that is asked for, where they belong: the first time this
    // takes less than all of them in order, which most words never need.
    void settle_at(size_t i, bool and_next) {
        if (sorted || !blocks.empty() || looked || flat.size() < 8) return settle();
        looked = true;
        const auto at = flat.begin() + static_cast<std::ptrdiff_t>(i);
        std::nth_element(flat.begin(), at, flat.end());
        if (and_next) std::iter_swap(at + 1, std::min_element(at + 1, flat.end()));
    }

    // One of the words that are `v`, which is there.
    void erase(Word v) {
        settle();
        if (!blocks.empty()) {
            blocks.erase(v);
            return;
        }
        flat.erase(std::lower_bound(flat.begin(), flat.end(), v));
        sorted = flat.size();
    }

    template <class F>
    void each(F f) {
        settle();
        blocks.each(f);
        std::for_each(flat.begin(), flat.end(), f);
    }

    int64_t bytes() const {
        return static_cast<int64_t>(flat.capacity() * sizeof(Word)) + blocks.bytes();
    }

private:
    void merge() {
        const auto begin = flat.begin(), tail = begin + static_cast<std::ptrdiff_t>(sorted);
        if (sorted + 1 == flat.size()) {
            std::rotate(std::upper_bound(begin, tail, flat.back()), tail, flat.end());
        } else {
            std::sort(tail, flat.end());
            std::inplace_merge(begin, tail, flat.end());
        }
        sorted = flat.size();
    }

    void lie_flat() {
        Vector<Word> all;
        all.reserve(size());
        blocks.each([&all](Word v) { all.push_back(v); });
        const size_t in_order = all.size();
        all.insert(all.end(), flat.begin(), flat.end());
        flat.swap(all);
        sorted = in_order;
        blocks.clear();
    }
};

}  // namespace ord
#endif
