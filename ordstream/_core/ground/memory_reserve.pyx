"""Memory for those who can't cope without. See memory_reserve.pxd."""

cdef extern from *:
    """
    #include <atomic>
    #include <new>
    #ifndef _WIN32
    #include <sys/mman.h>
    #endif

    namespace {
    // A failing `new` is given one. Without room in its arena glibc maps pages for each small block: 64 do
    // for what a thread does until it is asked again, or the run has ended.
    constexpr int SLICES = 16;
    constexpr size_t SLICE_BYTES = 256 << 10;
    std::atomic<void*> slices[SLICES];
    std::new_handler before = nullptr;      // written once, ahead of our handler's installation
    std::atomic<bool> installed{false};
    thread_local bool leaves = false;

    #ifndef _WIN32
    bool give() {
        for (auto& slice : slices) {
            void* there = slice.exchange(nullptr, std::memory_order_acquire);   // pairs with fill's release
            if (there != nullptr) {
                munmap(there, SLICE_BYTES);
                return true;
            }
        }
        return false;
    }

    void without_memory() {
        if (!leaves && give()) return;
        if (before != nullptr) return before();
        throw std::bad_alloc();
    }

    void fill() {
        if (!installed.exchange(true, std::memory_order_acq_rel)) {             // once; no partner
            before = std::get_new_handler();
            std::set_new_handler(without_memory);
        }
        for (auto& slice : slices) {
            if (slice.load(std::memory_order_relaxed) != nullptr) continue;     // a hint; no partner
            void* made = mmap(nullptr, SLICE_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (made == MAP_FAILED) return;
            void* none = nullptr;
            if (!slice.compare_exchange_strong(none, made, std::memory_order_release))   // pairs with give
                munmap(made, SLICE_BYTES);
        }
    }
    #else
    void fill() {}
    #endif

    bool leave(bool now) {
        const bool was = leaves;
        leaves = now;
        return was;
    }

    int count() {
        int n = 0;
        for (auto& slice : slices) n += slice.load(std::memory_order_relaxed) != nullptr;   // statistic
        return n;
    }
    }
    """
    void fill() noexcept nogil
    bint leave(bint now) noexcept nogil
    int count() noexcept nogil


cdef void reserve_fill() noexcept nogil:
    """See the declaration."""
    fill()


cdef bint reserve_leave(bint now) noexcept nogil:
    """See the declaration."""
    return leave(now)


cdef int reserve_slices() noexcept nogil:
    """See the declaration."""
    return count()
