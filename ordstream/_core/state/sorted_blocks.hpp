// Values in order, in blocks: one goes in or out, and its place is known, without the others being looked
// at. Portable C++17.
//
// No block is empty, and each has its memory from the start. Of n values, one costs log n comparisons, a
// block moved, and a look at the sizes of the blocks in front of it.
// Thread safety: its owner's. Memory: std::bad_alloc leaves `put` and `fill` only; the values are then as
// before.
#ifndef ORDSTREAM_SORTED_BLOCKS_HPP
#define ORDSTREAM_SORTED_BLOCKS_HPP
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ord {

// T: of plain memory. Before: whether one comes before another.
template <class T, class Before, size_t BLOCK>
struct SortedBlocks {
    using Block = std::vector<T>;
    Before before;
    std::vector<Block> blocks;
    size_t n = 0;

    explicit SortedBlocks(Before b = Before()) : before(b) {}
    size_t size() const { return n; }
    bool empty() const { return n == 0; }

    // Put it behind those that equal it. Its place, from 0; `most` where that is as much or more.
    size_t put(const T& v, size_t most) {
        if (blocks.empty()) blocks.push_back(block_of(&v, 0));
        size_t b = 0, step = blocks.size();
        while (step > 1) {  // the last block that does not begin behind it, or the first one
            const size_t half = step / 2;
            if (!before(v, blocks[b + half].front())) b += half;
            step -= half;
        }
        if (blocks[b].size() == BLOCK) {
            blocks.insert(at(b + 1), block_of(blocks[b].data() + BLOCK / 2, BLOCK / 2));
            blocks[b].resize(BLOCK / 2);
            if (!before(v, blocks[b + 1].front())) b++;
        }
        Block& block = blocks[b];
        const auto to = std::upper_bound(block.begin(), block.end(), v, before);
        size_t place = static_cast<size_t>(to - block.begin());
        block.insert(to, v);  // there is room
        n++;
        for (size_t i = 0; i < b && place < most; i++) place += blocks[i].size();
        return std::min(place, most);
    }

    // Take one of those that equal it out. False: there is none.
    bool erase(const T& v) {
        const auto ends_before = [this](const Block& b, const T& w) { return before(b.back(), w); };
        const auto block = std::lower_bound(blocks.begin(), blocks.end(), v, ends_before);
        if (block == blocks.end()) return false;
        const auto found = std::lower_bound(block->begin(), block->end(), v, before);
        if (before(v, *found)) return false;
        block->erase(found);
        n--;
        const size_t b = static_cast<size_t>(block - blocks.begin());
        if (block->empty()) {
            blocks.erase(block);
        } else if (b > 0 && blocks[b - 1].size() + block->size() <= BLOCK / 2) {
            join(b - 1);
        } else if (b + 1 < blocks.size() && block->size() + blocks[b + 1].size() <= BLOCK / 2) {
            join(b);
        }
        return true;
    }

    const T& operator[](size_t i) const {
        size_t b = 0;
        while (i >= blocks[b].size()) i -= blocks[b++].size();
        return blocks[b][i];
    }

    // Have these, which are in order, and no others. Blocks are left half full.
    void fill(const T* from, size_t many) {
        std::vector<Block> made;
        made.reserve(many / (BLOCK / 2) + 1);
        for (size_t i = 0; i < many; i += BLOCK / 2)
            made.push_back(block_of(from + i, std::min(BLOCK / 2, many - i)));
        blocks = std::move(made);
        n = many;
    }

    template <class F>
    void each(F f) const {
        for (const Block& block : blocks) std::for_each(block.begin(), block.end(), f);
    }

    void clear() {
        std::vector<Block>().swap(blocks);
        n = 0;
    }

    int64_t bytes() const {
        return static_cast<int64_t>(blocks.size() * BLOCK * sizeof(T) + blocks.capacity() * sizeof(Block));
    }

private:
    typename std::vector<Block>::iterator at(size_t b) {
        return blocks.begin() + static_cast<std::ptrdiff_t>(b);
    }

    static Block block_of(const T* from, size_t many) {
        Block block;
        block.reserve(BLOCK);
        block.assign(from, from + many);
        return block;
    }

    void join(size_t b) {
        blocks[b].insert(blocks[b].end(), blocks[b + 1].begin(), blocks[b + 1].end());
        blocks.erase(at(b + 1));
    }
};

}  // namespace ord
#endif
