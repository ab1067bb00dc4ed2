"""Every atomic access of the core, one function per (operation, memory order).

The core stores integers and pointers in one atomic type, `a64`. A call site never names a memory order: it
names a function of this file, and its comment names the partner access. Orders and partners are listed in
docs/core-rules.md.

No fences: ThreadSanitizer cannot see them. The sequentially consistent functions exist for the four accesses
of the non-blocking reorder buffer that must be totally ordered, and for the park/notify handshake.

Thread safety: all functions, any thread. Ownership: none. Cost: one instruction on x86-64; `seq` stores and
all read-modify-writes are locked instructions (about 5 ns uncontended).
"""
from libc.stdint cimport int64_t, intptr_t
from libcpp cimport bool as cbool
from libcpp.atomic cimport (
    atomic,
    memory_order_acq_rel,
    memory_order_acquire,
    memory_order_relaxed,
    memory_order_release,
    memory_order_seq_cst,
)

ctypedef atomic[int64_t] a64

# One line holds two hot fields of different writers apart; the adjacent-line prefetcher pulls pairs.
cdef enum:
    CACHE_LINE = 128


cdef inline int64_t load_relaxed(a64* a) noexcept nogil:
    return a.load(memory_order_relaxed)


cdef inline int64_t load_acquire(a64* a) noexcept nogil:
    return a.load(memory_order_acquire)


cdef inline int64_t load_seq(a64* a) noexcept nogil:
    return a.load(memory_order_seq_cst)


cdef inline void store_relaxed(a64* a, int64_t v) noexcept nogil:
    a.store(v, memory_order_relaxed)


cdef inline void store_release(a64* a, int64_t v) noexcept nogil:
    a.store(v, memory_order_release)


cdef inline void store_seq(a64* a, int64_t v) noexcept nogil:
    a.store(v, memory_order_seq_cst)


cdef inline int64_t exchange_seq(a64* a, int64_t v) noexcept nogil:
    return a.exchange(v, memory_order_seq_cst)


cdef inline int64_t exchange_acq_rel(a64* a, int64_t v) noexcept nogil:
    return a.exchange(v, memory_order_acq_rel)


cdef inline int64_t add_relaxed(a64* a, int64_t v) noexcept nogil:
    return a.fetch_add(v, memory_order_relaxed)


cdef inline int64_t add_acq_rel(a64* a, int64_t v) noexcept nogil:
    return a.fetch_add(v, memory_order_acq_rel)


cdef inline int64_t add_seq(a64* a, int64_t v) noexcept nogil:
    return a.fetch_add(v, memory_order_seq_cst)


cdef inline int64_t sub_acq_rel(a64* a, int64_t v) noexcept nogil:
    return a.fetch_sub(v, memory_order_acq_rel)


cdef inline cbool cas_relaxed(a64* a, int64_t expected, int64_t desired) noexcept nogil:
    cdef int64_t e = expected
    return a.compare_exchange_strong(e, desired, memory_order_relaxed, memory_order_relaxed)


cdef inline cbool cas_acquire(a64* a, int64_t expected, int64_t desired) noexcept nogil:
    cdef int64_t e = expected
    return a.compare_exchange_strong(e, desired, memory_order_acquire, memory_order_relaxed)


cdef inline cbool cas_acq_rel(a64* a, int64_t expected, int64_t desired) noexcept nogil:
    cdef int64_t e = expected
    return a.compare_exchange_strong(e, desired, memory_order_acq_rel, memory_order_relaxed)


cdef inline int64_t as_int(const void* p) noexcept nogil:
    return <int64_t> <intptr_t> p


cdef inline void* as_pointer(int64_t v) noexcept nogil:
    return <void*> <intptr_t> v
