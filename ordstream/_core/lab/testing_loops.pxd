"""Test doors: each structure of the core alone, driven from Python threads. Used for testing only.

A class wraps one structure. Single steps are ordinary methods (deterministic tests); `produce`, `consume`,
`work` and `meet` are loops that several `threading.Thread`s run at once without the GIL. A loop checks what
it sees and counts violations, and gives up after `seconds` (a lost item must fail a test, not hang it): then
it returns a negative number. These are seconds of the thread's own processor time, for beside other load two
threads that wait for each other take turns of milliseconds. Memory ownership: each object owns its structure
and everything allocated for it.

This file has what the loops share. Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp cimport bool as cbool
from ordstream._core.ground.threads cimport cpu_pause, cpu_yield, now_ns

cdef extern from *:
    """
    #if !defined(_WIN32)
    #include <time.h>
    #endif
    static inline int64_t ord_thread_ns() {
    #if defined(_WIN32)
        return ord_now_ns();
    #else
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
    #endif
    }
    """
    int64_t thread_ns "ord_thread_ns"() noexcept nogil

cdef enum:
    TIMED_OUT = -1
    ADD_STEPS = 4          # pauses of a jittered wait, at most 2 ** ADD_STEPS


cdef inline uint64_t rng_next(uint64_t* rng) noexcept nogil:
    rng[0] ^= rng[0] << 13
    rng[0] ^= rng[0] >> 7
    rng[0] ^= rng[0] << 17
    return rng[0]


cdef inline void jitter(uint64_t* rng) noexcept nogil:
    """A few pauses, now and then a yield: moves the threads against each other."""
    cdef uint64_t r = rng_next(rng)
    cdef uint64_t _k
    if r & 0xff == 0:
        cpu_yield()
    for _k in range((r >> 8) & ((1 << ADD_STEPS) - 1)):
        cpu_pause()


cdef inline cbool late(int64_t end, int32_t* rounds) noexcept nogil:
    """One step of waiting for another thread; True when the time is over."""
    rounds[0] += 1
    if rounds[0] & 63:
        cpu_pause()
        return False
    cpu_yield()
    return thread_ns() > end


cdef inline int64_t end_after(double seconds) noexcept nogil:
    """By the clock of `late`."""
    return thread_ns() + <int64_t> (seconds * 1e9)


cdef inline int64_t clock_after(double seconds) noexcept nogil:
    """By the clock on the wall."""
    return now_ns() + <int64_t> (seconds * 1e9)
