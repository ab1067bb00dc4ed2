// Memory of maps that grow: large blocks on huge pages, which become larger without being copied.
//
// The first access to a page is slow (2 us per small page on a virtual machine). A block that grows by
// copying touches all of its memory anew at every doubling, and the process holds both copies meanwhile.
// Where the system can move pages (Linux), a large block grows by moving them, and a zeroed one is not
// written before it is used. Elsewhere, and for smaller blocks, the C library's memory.
// Portable C++17: gcc, clang, MSVC. Thread safety: any thread, a block by one at a time. Ownership: whoever
// took a block, until ord_block_free with the size it was taken with.
#ifndef ORDSTREAM_MAP_MEMORY_HPP
#define ORDSTREAM_MAP_MEMORY_HPP
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#if defined(__linux__)
#include <sys/mman.h>
#endif
// Sanitizers follow malloc and free, not pages that move.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ORD_NO_MAPPING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ORD_NO_MAPPING 1
#endif
#endif

#if defined(__linux__) && defined(MREMAP_FIXED) && defined(MADV_HUGEPAGE) && !defined(ORD_NO_MAPPING)
#define ORD_MAPPING 1
static constexpr size_t ORD_HUGE_PAGE = (size_t) 2 << 20;
static inline bool ord_is_mapped(size_t size) { return size >= (size_t) 4 << 20; }
static inline size_t ord_map_size(size_t size) { return (size + ORD_HUGE_PAGE - 1) & ~(ORD_HUGE_PAGE - 1); }

// `size` zeroed bytes (a multiple of ORD_HUGE_PAGE) that begin where a huge page may, or null.
static inline char* ord_map(size_t size) {
    char* p = (char*) mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == (char*) MAP_FAILED) return nullptr;
    if ((uintptr_t) p & (ORD_HUGE_PAGE - 1)) {     // newer systems align such mappings themselves
        munmap(p, size);
        p = (char*) mmap(nullptr, size + ORD_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                         -1, 0);
        if (p == (char*) MAP_FAILED) return nullptr;
        size_t before = (ORD_HUGE_PAGE - ((uintptr_t) p & (ORD_HUGE_PAGE - 1))) & (ORD_HUGE_PAGE - 1);
        if (before) munmap(p, before);
        munmap(p + before + size, ORD_HUGE_PAGE - before);
        p += before;
    }
    madvise(p, size, MADV_HUGEPAGE);
    return p;
}
static inline void ord_unmap(void* block, size_t size) { munmap(block, size); }
// The pages of a mapped block, moved to the beginning of a larger one. Null: the old block is as it was.
static inline void* ord_map_grown(void* old, size_t old_size, size_t size) {
    char* p = ord_map(size);
    if (p == nullptr) return nullptr;
    if (mremap(old, old_size, old_size, MREMAP_MAYMOVE | MREMAP_FIXED, p) == (void*) p) return p;
    munmap(p, size);                               // the move may have left a hole in it
    p = ord_map(size);
    if (p == nullptr) return nullptr;
    std::memcpy(p, old, old_size);
    munmap(old, old_size);
    return p;
}
#else
static inline bool ord_is_mapped(size_t) { return false; }
static inline size_t ord_map_size(size_t size) { return size; }
static inline char* ord_map(size_t) { return nullptr; }
static inline void* ord_map_grown(void*, size_t, size_t) { return nullptr; }
static inline void ord_unmap(void*, size_t) {}
#endif

// `size` zeroed bytes, a multiple of 2 MiB, on huge pages where the system has them, or null; for
// ord_slab_free.
#if defined(ORD_MAPPING)
static inline void* ord_slab(size_t size) { return ord_map(size); }
static inline void ord_slab_free(void* slab, size_t size) { ord_unmap(slab, size); }
#else
static inline void* ord_slab(size_t size) { return std::calloc(1, size); }
static inline void ord_slab_free(void* slab, size_t) { std::free(slab); }
#endif
// `size` bytes, contents undefined, or null. On a cache line's boundary from 4 KiB on: a record of 64 bytes
// is then one miss, not two.
static inline void* ord_block(size_t size) {
    if (ord_is_mapped(size)) return ord_map(ord_map_size(size));
#if !defined(_WIN32)
    void* aligned = nullptr;
    if (size >= 4096) return posix_memalign(&aligned, 64, size) == 0 ? aligned : nullptr;
#endif
    return std::malloc(size);
}
static inline void ord_block_free(void* block, size_t size) {
    if (block == nullptr) return;
    if (ord_is_mapped(size)) ord_unmap(block, ord_map_size(size));
    else std::free(block);
}
static inline void* ord_zeroed(size_t size) {
    void* p = ord_block(size);
    return p == nullptr || ord_is_mapped(size) ? p : std::memset(p, 0, size);
}
// A larger block with the first `used` bytes of the old one, which is gone; null, and the old one as it was,
// where there is no memory.
static inline void* ord_grown(void* old, size_t used, size_t old_size, size_t size) {
    if (ord_is_mapped(old_size) && ord_map_size(size) > ord_map_size(old_size))
        return ord_map_grown(old, ord_map_size(old_size), ord_map_size(size));
    void* p = ord_block(size);
    if (p != nullptr) {
        std::memcpy(p, old, used);
        ord_block_free(old, old_size);
    }
    return p;
}
#endif
