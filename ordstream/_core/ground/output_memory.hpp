// Memory of output batches: large blocks that a reader gave back are used again, by whichever run asks next.
//
// The first access to a page is slow (2 us on a virtual machine), and the C library returns blocks of this
// size to the system. A stream's reader drops one batch after another, and a program one result after
// another. So a few lists, by size, keep up to KEPT bytes.
// Portable C++17. Thread safety: any thread. The lists' mutex is only tried, never waited for, so that a
// process that was forked in the middle of a call cannot get stuck. Ownership: whoever took a block, until
// it gives it back. Cost: ~50 ns.
#ifndef ORDSTREAM_OUTPUT_MEMORY_HPP
#define ORDSTREAM_OUTPUT_MEMORY_HPP
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#if defined(__SANITIZE_ADDRESS__)
#define ORD_NO_RECYCLING 1  // so that the sanitizer sees the use of a block that was given back
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ORD_NO_RECYCLING 1
#endif
#endif

class OrdOutputMemory {
    struct Block {          // lies in front of a block's data
        std::size_t size;   // of the data
        Block* next;        // while it is kept
    };
    static constexpr std::size_t HEADER = 48;  // data of a block of whole pages begins at a cache line
    static constexpr std::size_t SMALLEST = std::size_t(128) << 10;  // the C library keeps smaller blocks
    static constexpr std::size_t STEP = std::size_t(32) << 10;   // kept sizes are multiples of it
    static constexpr std::size_t LISTS = 64;   // below 2 MiB: more than a column of a full batch needs
    static constexpr std::size_t KEPT = std::size_t(128) << 20;

    std::mutex mutex_;
    Block* lists_[LISTS] = {};
    std::size_t kept_ = 0;

    static bool recycled(std::size_t size) {
#if defined(ORD_NO_RECYCLING)
        (void) size;
        return false;
#else
        return size >= SMALLEST && size <= STEP * (LISTS - 1);
#endif
    }
    static Block* block_of(void* data) {
        return reinterpret_cast<Block*>(static_cast<char*>(data) - HEADER);
    }
    Block* first(std::size_t list) {
        Block* block = lists_[list];
        if (block != nullptr) {
            lists_[list] = block->next;
            kept_ -= block->size;
        }
        return block;
    }

public:
    // `size` bytes, or null. Contents are undefined.
    void* take(std::size_t size) {
        Block* block = nullptr;
        if (recycled(size)) {
            size = (size + STEP - 1) / STEP * STEP;
            if (mutex_.try_lock()) {
                block = first(size / STEP);
                mutex_.unlock();
            }
        }
        if (block == nullptr) {
            block = static_cast<Block*>(std::malloc(size + HEADER));
            if (block == nullptr) return nullptr;
            block->size = size;
        }
        return reinterpret_cast<char*>(block) + HEADER;
    }
    // Null is allowed. Blocks of sizes that are no longer asked for make room for those that are. `most`:
    // what may be kept behind this block, beside KEPT: a run with a small cap leaves no more than that.
    void give(void* data, std::size_t most) {
        if (data == nullptr) return;
        Block* block = block_of(data);
        Block* old = nullptr;
        if (most > KEPT) most = KEPT;
        if (recycled(block->size) && mutex_.try_lock()) {
            for (std::size_t i = 0; i < LISTS && old == nullptr && kept_ + block->size > most; i++)
                if (i != block->size / STEP) old = first(i);
            if (kept_ + block->size <= most) {
                block->next = lists_[block->size / STEP];
                lists_[block->size / STEP] = block;
                kept_ += block->size;
                block = nullptr;
            }
            mutex_.unlock();
        }
        std::free(old);
        std::free(block);
    }
    // As realloc: null, and the old block as it was, where there is no memory.
    void* grow(void* data, std::size_t size, std::size_t most) {
        if (data == nullptr) return take(size);
        const std::size_t old = block_of(data)->size;
        if (size <= old) return data;
        if (!recycled(old) && !recycled(size)) {
            Block* block = static_cast<Block*>(std::realloc(block_of(data), size + HEADER));
            if (block == nullptr) return nullptr;
            block->size = size;
            return reinterpret_cast<char*>(block) + HEADER;
        }
        void* larger = take(size);
        if (larger == nullptr) return nullptr;
        std::memcpy(larger, data, old);
        give(data, most);
        return larger;
    }
    // Never destroyed: an array may be released after everything else.
    static OrdOutputMemory& all() {
        static OrdOutputMemory* one = new OrdOutputMemory();
        return *one;
    }
};

static inline void* ord_output_take(std::size_t size) { return OrdOutputMemory::all().take(size); }
static inline void* ord_output_grow(void* data, std::size_t size, std::size_t most) {
    return OrdOutputMemory::all().grow(data, size, most);
}
static inline void ord_output_give(void* data, std::size_t most) { OrdOutputMemory::all().give(data, most); }
#endif
