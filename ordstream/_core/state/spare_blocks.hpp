// Spare blocks: sizes of blocks that are used again, and those of gathered values.
//
// What one thread frees and another allocates makes the C library's allocator wait. So a block that values
// give back serves the thread that gave it for the next one of its size; no more than SPARE bytes do. Memory
// of other states: held_memory.pxd.
// Portable C++17. Thread safety: any thread; each has its own. Ownership: whoever took a block. Without
// memory: std::bad_alloc. Sanitizers see each block come and go.
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

static constexpr int64_t ORD_SPARE_MOST = 1 << 16;  // bytes of the largest block that is used again
static constexpr int32_t ORD_SIZES = 49;            // up to 256 bytes in steps of 16, then four per doubling

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

namespace ord {
class SpareBlocks {
  public:
    ~SpareBlocks() {
        for (Link*& list : first_)
            while (list != nullptr) {
                Link* block = list;
                list = block->next;
                std::free(block);
            }
        bytes_ = SPARE;  // what comes after the thread's end is freed
    }
    void* take(size_t size) {
        int64_t all = size ? static_cast<int64_t>(size) : 1;
        void* block = nullptr;
        if (ORD_BLOCKS_KEPT && all <= ORD_SPARE_MOST) {
            Link*& list = first_[ord_size_of(&all)];
            if (list != nullptr) {
                block = list;
                list = list->next;
                bytes_ -= all;
                return block;
            }
        }
        block = std::malloc(static_cast<size_t>(all));
        if (block == nullptr) throw std::bad_alloc();
        return block;
    }
    void give(void* block, size_t size) noexcept {
        int64_t all = size ? static_cast<int64_t>(size) : 1;
        if (!ORD_BLOCKS_KEPT || all > ORD_SPARE_MOST || bytes_ >= SPARE) return std::free(block);
        Link*& list = first_[ord_size_of(&all)];
        list = new (block) Link{list};
        bytes_ += all;
    }

  private:
    static constexpr int64_t SPARE = 1 << 20;
    struct Link {
        Link* next;
    };
    Link* first_[ORD_SIZES] = {};
    int64_t bytes_ = 0;
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
