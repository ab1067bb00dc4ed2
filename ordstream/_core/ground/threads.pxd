"""Every thread, parking, clock and stack-size call of the core.

Portable C++17: <thread>, <mutex>, <condition_variable>, <chrono>. Worker threads themselves are Python
`threading.Thread` objects (ordstream/node/worker_threads.py); this file gives them a place to wait.
"""
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool

cdef extern from * nogil:
    """
    #include <chrono>
    #include <condition_variable>
    #include <cstdint>
    #include <mutex>
    #include <new>
    #include <thread>
    #if defined(_MSC_VER)
    #include <intrin.h>
    #endif

    #ifndef ORDSTREAM_THREADS_
    #define ORDSTREAM_THREADS_
    static inline int64_t ord_now_ns() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::steady_clock::now().time_since_epoch()).count();
    }
    static inline void ord_pause() {
    #if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        asm volatile("yield");
    #elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
        _mm_pause();
    #endif
    }
    static inline void ord_yield() { std::this_thread::yield(); }
    static inline void ord_prefetch(const void* p) {
    #if defined(__GNUC__) || defined(__clang__)
        __builtin_prefetch(p, 1, 3);
    #endif
    }
    // An event count: a waiter reads the epoch, checks its condition again, then waits for another epoch.
    struct OrdEventCount {
        std::mutex mutex;
        std::condition_variable changed;
        int64_t epoch = 0;
        int64_t prepare() { std::lock_guard<std::mutex> g(mutex); return epoch; }
        bool wait(int64_t seen, int64_t ns) {
            std::unique_lock<std::mutex> g(mutex);
            return changed.wait_for(g, std::chrono::nanoseconds(ns), [&] { return epoch != seen; });
        }
        void notify_one() { { std::lock_guard<std::mutex> g(mutex); epoch++; } changed.notify_one(); }
        void notify_all() { { std::lock_guard<std::mutex> g(mutex); epoch++; } changed.notify_all(); }
    };
    static inline OrdEventCount* ord_event_count_new() { return new (std::nothrow) OrdEventCount(); }
    static inline void ord_event_count_delete(OrdEventCount* e) { delete e; }
    static inline std::mutex* ord_mutex_new() { return new (std::nothrow) std::mutex(); }
    static inline void ord_mutex_delete(std::mutex* m) { delete m; }
    #endif
    """
    int64_t now_ns "ord_now_ns"()          # steady clock, nanoseconds
    void cpu_pause "ord_pause"()
    void cpu_yield "ord_yield"()
    void prefetch_write "ord_prefetch"(const void*)
    cppclass EventCount "OrdEventCount":
        int64_t prepare()
        cbool wait(int64_t seen, int64_t ns)  # True: the epoch moved; False: timed out
        void notify_one()
        void notify_all()
    cppclass Mutex "std::mutex":
        void lock()
        void unlock()
        cbool try_lock()
    # Owner: the caller, until the matching delete. NULL: no memory.
    EventCount* event_count_new "ord_event_count_new"()
    void event_count_delete "ord_event_count_delete"(EventCount*)
    Mutex* mutex_new "ord_mutex_new"()
    void mutex_delete "ord_mutex_delete"(Mutex*)


# Limits of a worker that finds nothing to do: pauses, then yields, then parks (worker_loop in runtime.pyx).
cdef enum:
    SPIN_LIMIT = 64        # cpu_pause rounds; 0 where workers >= allowed CPUs
    YIELD_LIMIT = 64       # cpu_yield rounds


cdef inline void spin_lock_backoff(int* rounds) noexcept nogil:
    """One step of waiting for another thread that is inside a section of a few hundred nanoseconds.

    Thread safety: any. Ownership: caller's counter. Cost: one pause, a yield after SPIN_LIMIT rounds.
    """
    rounds[0] += 1
    if rounds[0] > SPIN_LIMIT:
        cpu_yield()
    else:
        cpu_pause()
