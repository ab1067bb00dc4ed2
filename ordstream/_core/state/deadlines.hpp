// Deadlines: who is due at a time, where the times that are asked about ascend (deadlines.pxd). C++17.
//
// A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path problem, JACM 1990,
// section 2). Bin i has the entries whose time first differs from `base_` in bit i - 1; bin 0 those of
// `base_` or before. When the base advances, with h the highest bit that changes, the bins below h + 1 are
// due as they are, bin h + 1 is divided among those below it, and the others stay as they are. So an entry
// moves down at most 64 times, in the order in which it lies in memory, and a pass costs what it moves.
// Thread safety: the bucket's holder. Memory: no exception leaves this file.
#ifndef ORDSTREAM_DEADLINES_HPP
#define ORDSTREAM_DEADLINES_HPP
#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace ord {

struct Deadline {
    uint64_t at;
    uint64_t of;
};

class Deadlines {
  public:
    static constexpr uint64_t GIVEN = ~uint64_t(0);   // of a slot that `keys_due` gave

    // Note an entry. 0, or -1: no memory.
    int put(uint64_t at, uint64_t of) noexcept {
        try {
            insert({at, of});
        } catch (const std::bad_alloc&) {
            return -1;
        }
        return 0;
    }

    // Room for so many calls of `come`. 0, or -1: no memory.
    int room(int64_t more) noexcept {
        try {
            const size_t need = come_.size() + static_cast<size_t>(more);
            if (come_.capacity() < need)
                come_.reserve(std::max(come_.capacity() + come_.capacity() / 4, need));
        } catch (const std::bad_alloc&) {
            return -1;
        }
        return 0;
    }
    // Note an entry where there is room; it is put at the next pass.
    void come(uint64_t at, uint64_t of) noexcept { come_.push_back({at, of}); }

    // Take out all entries before a time: `due`. 0, or -1: no memory, and the entries are lost.
    int pass(uint64_t before) noexcept {
        empty(due_);
        try {
            for (const Deadline& one : come_) insert(one);
            empty(come_);
            if (is_wide(armed_)) armed_.shrink_to_fit();
            int top = 0;
            if (before > base_) {
                top = bin_of(before);
                base_ = before;
            }
            for (int bin = 0; bin <= top; ++bin)
                if (!bins_[bin].empty()) divide(bin, before);
        } catch (const std::bad_alloc&) {
            return -1;
        }
        return 0;
    }
    int64_t due_count() const noexcept { return static_cast<int64_t>(due_.size()); }
    Deadline* due() noexcept { return due_.data(); }

    // The slots of a map whose keys have an entry, and the time of it: others of a slot are no longer true.
    int64_t slots() const noexcept { return static_cast<int64_t>(armed_.size()); }
    int arm_next(uint64_t at) noexcept {
        try {
            armed_.push_back(at);
        } catch (const std::bad_alloc&) {
            return -1;
        }
        return put(at, armed_.size() - 1);
    }
    bool is_armed(const Deadline& one) const noexcept {
        return one.of < armed_.size() && armed_[one.of] == one.at;
    }
    int arm(uint64_t at, uint64_t slot) noexcept {
        armed_[slot] = at;
        return put(at, slot);
    }
    void give(uint64_t slot) noexcept { armed_[slot] = GIVEN; }
    // The key of a slot goes, and that of the last one moves there. 0, or -1: no memory.
    int leave(uint64_t slot) noexcept {
        const uint64_t last = armed_.back();
        armed_.pop_back();
        return slot < armed_.size() ? arm(last, slot) : 0;
    }
    // The first n due ones, the last slot first.
    void sort_due(int64_t n) noexcept {
        std::sort(due_.begin(), due_.begin() + n,
                  [](const Deadline& a, const Deadline& b) { return a.of > b.of; });
    }

    int64_t bytes() const noexcept {
        size_t entries = due_.capacity() + come_.capacity();
        for (const auto& bin : bins_) entries += bin.capacity();
        return static_cast<int64_t>(sizeof(*this) + entries * sizeof(Deadline) + armed_.capacity() * 8);
    }

  private:
    static constexpr size_t KEPT = 1024;   // entries of an empty bin whose memory is kept

    // Whether most of its memory was of no use of late.
    template <typename T>
    static bool is_wide(const std::vector<T>& list) noexcept {
        return list.capacity() > KEPT && 4 * list.size() < list.capacity();
    }
    static void empty(std::vector<Deadline>& list) noexcept {
        if (is_wide(list)) std::vector<Deadline>().swap(list);
        list.clear();
    }

    int bin_of(uint64_t at) const noexcept {
        uint64_t differs = at ^ base_;
        int bin = 0;
        for (int half = 32; half; half /= 2)
            if (differs >> half) {
                bin += half;
                differs >>= half;
            }
        return bin + static_cast<int>(differs);
    }
    void insert(const Deadline& one) { bins_[one.at <= base_ ? 0 : bin_of(one.at)].push_back(one); }
    void divide(int bin, uint64_t before) {
        std::vector<Deadline> all;
        all.swap(bins_[bin]);
        // Most are due, mostly. Exactly so many: a list that doubles would keep what one wave needed.
        if (due_.capacity() - due_.size() < all.size()) due_.reserve(due_.size() + all.size());
        for (const Deadline& one : all) {
            if (one.at < before) due_.push_back(one);
            else insert(one);
        }
        if (all.capacity() <= KEPT && bins_[bin].empty()) {
            all.clear();
            all.swap(bins_[bin]);
        }
    }

    uint64_t base_ = 0;
    std::vector<Deadline> bins_[65];
    std::vector<Deadline> due_;
    std::vector<Deadline> come_;
    std::vector<uint64_t> armed_;
};

inline Deadlines* deadlines_new() { return new (std::nothrow) Deadlines(); }
inline void deadlines_free(Deadlines* d) { delete d; }

}  // namespace ord
#endif
