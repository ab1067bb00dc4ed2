// Spare blocks: memory that was given back, and serves the next one who asks for its size.
//
// What one thread allocates and another frees makes them wait for each other in the C library. So a bucket
// keeps what its states give back (held_memory.pxd), and a thread what gathered values do (SpareBlocks).
// Portable C++17. Thread safety: the owner's. Sanitizers see each block come and go.
#ifndef ORDSTREAM_SPARE_BLOCKS_HPP
#define ORDSTREAM_SPARE_BLOCKS_HPP
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static constexpr bool ORD_BLOCKS_KEPT = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
static constexpr bool ORD_BLOCKS_KEPT = false;
#else
static constexpr bool ORD_BLOCKS_KEPT = true;
#endif
#else
static constexpr bool ORD_BLOCKS_KEPT = true;
#endif

static constexpr int64_t ORD_SPARE_MOST = 1 << 16;  // bytes of the largest block that is kept
static constexpr int32_t ORD_SIZES = 48;            // up to 256 bytes in steps of 16, then four per doubling

// The least size that holds so many bytes (1..ORD_SPARE_MOST), which become all of its bytes.
static inline int32_t ord_size_of(int64_t* bytes) {
    const uint64_t last = static_cast<uint64_t>(*bytes) - 1;
    if (last < 256) {
        *bytes = static_cast<int64_t>((last | 15) + 1);
        return static_cast<int32_t>(last >> 4);
    }
    int32_t step = 6;
    while (last >> step >= 8) step++;  // four steps from one power of two to the next
    *bytes = static_cast<int64_t>(((last >> step) + 1) << step);
    return 16 + 4 * (step - 6) + static_cast<int32_t>(last >> step & 3);
}

struct OrdSpareBlock {
    OrdSpareBlock* next;
};

// Zeroed memory: none. Owns its blocks.
struct OrdSpare {
    int64_t bytes;
    int32_t turn;  // where ord_spare_drop goes on
    OrdSpareBlock* first[ORD_SIZES];
};

// Free blocks until so many bytes are gone, or all: of one size after the other, since which ones nobody
// asks for any more is not known.
static inline void ord_spare_drop(OrdSpare* s, int64_t bytes) {
    const int64_t left = s->bytes - bytes;
    while (s->bytes > 0 && s->bytes > left) {
        OrdSpareBlock*& list = s->first[s->turn];
        if (list != nullptr) {
            OrdSpareBlock* block = list;
            list = block->next;
            int64_t all = s->turn < 16 ? 16 * (s->turn + 1) : int64_t{s->turn % 4 + 5} << (s->turn / 4 + 2);
            s->bytes -= all;
            std::free(block);
        }
        s->turn = s->turn + 1 == ORD_SIZES ? 0 : s->turn + 1;
    }
}

// A block of so many bytes, not zeroed, spare or new. Null: no memory.
static inline void* ord_spare_take(OrdSpare* s, int64_t bytes) {
    int64_t all = bytes > 0 ? bytes : 1;
    if (ORD_BLOCKS_KEPT && all <= ORD_SPARE_MOST) {
        OrdSpareBlock*& list = s->first[ord_size_of(&all)];
        if (list != nullptr) {
            OrdSpareBlock* block = list;
            list = block->next;
            s->bytes -= all;
            return block;
        }
    }
    return std::malloc(static_cast<size_t>(all));
}

// Take a block of ord_spare_take back. No more than `most` bytes are then spare; where there are, others go,
// too.
static inline void ord_spare_give(OrdSpare* s, void* block, int64_t bytes, int64_t most) {
    int64_t all = bytes > 0 ? bytes : 1;
    if (!ORD_BLOCKS_KEPT || all > ORD_SPARE_MOST) return std::free(block);
    const int32_t size = ord_size_of(&all);
    if (s->bytes + all > most) {
        std::free(block);
        return ord_spare_drop(s, all);
    }
    s->first[size] = new (block) OrdSpareBlock{s->first[size]};
    s->bytes += all;
}

namespace ord {
// Those of a thread. Without memory: std::bad_alloc.
class SpareBlocks {
  public:
    ~SpareBlocks() {
        ord_spare_drop(&spare_, spare_.bytes);
        most_ = 0;  // what comes after the thread's end is freed
    }
    void* take(size_t size) {
        void* block = ord_spare_take(&spare_, static_cast<int64_t>(size));
        if (block == nullptr) throw std::bad_alloc();
        return block;
    }
    void give(void* block, size_t size) noexcept {
        ord_spare_give(&spare_, block, static_cast<int64_t>(size), most_);
    }

  private:
    OrdSpare spare_ = {};
    int64_t most_ = 1 << 20;
};

inline thread_local SpareBlocks spare_blocks;

template <class T>
struct SpareAllocator {
    using value_type = T;
    SpareAllocator() = default;
    template <class U>
    SpareAllocator(const SpareAllocator<U>&) {}
    T* allocate(size_t n) {
        if (n > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
        return static_cast<T*>(spare_blocks.take(n * sizeof(T)));
    }
    void deallocate(T* block, size_t n) noexcept { spare_blocks.give(block, n * sizeof(T)); }
    template <class U>
    bool operator==(const SpareAllocator<U>&) const { return true; }
    template <class U>
    bool operator!=(const SpareAllocator<U>&) const { return false; }
};

template <class T>
using Vector = std::vector<T, SpareAllocator<T>>;
}  // namespace ord
#endif
