"""Held memory: what the states of a bucket own beside their own bytes.

What they give back is kept for the next one that asks for its size (spare_blocks.hpp): a block that one
worker allocates and another frees makes them wait for each other. Sliding windows took twice the CPU, and
more wall time, with two workers than with one. What is in use and what is spare are no more than 1.25 times
what was in use at its most, or SPARE_LEAST more than is in use; an eighth of what is given back makes that
most smaller, so states that shrink for good give their memory back.

Inline only: there is no module of this name at run time. Thread safety: the holder of the bucket.
"""
from libc.stdint cimport int64_t

cdef extern from "spare_blocks.hpp" nogil:
    const bint ORD_BLOCKS_KEPT                     # false where sanitizers look
    const int64_t ORD_SPARE_MOST
    struct OrdSpare:
        int64_t bytes
    void* ord_spare_take(OrdSpare*, int64_t bytes)
    void ord_spare_give(OrdSpare*, void* block, int64_t bytes, int64_t most)
    void ord_spare_drop(OrdSpare*, int64_t bytes)

cdef enum:
    SPARE_LEAST = 1 << 16      # bytes that may be spare at least

cdef struct Held:
    # Zeroed memory: nothing. Memory ownership: blocks in use are the states', spare ones its own.
    int64_t bytes              # in use
    int64_t most               # as `bytes` was, less an eighth of what was given back since
    OrdSpare spare


cdef inline int64_t may_be_spare(const Held* h) noexcept nogil:
    return max(h.most + h.most // 4 - h.bytes, <int64_t> SPARE_LEAST)    # sizes waste a quarter at most


cdef inline void* held_take(Held* h, int64_t bytes) noexcept nogil:
    """A block of `bytes` bytes, which are not zeroed. NULL: no memory. Ownership: the caller's, until
    held_give. Cost: ~2 ns for a spare one, else malloc, and free of spare ones of other sizes."""
    cdef void* block = ord_spare_take(&h.spare, bytes)
    if block == NULL:
        return NULL
    h.bytes += bytes
    h.most = max(h.most, h.bytes)
    if h.spare.bytes > may_be_spare(h):
        ord_spare_drop(&h.spare, min(bytes, h.spare.bytes - may_be_spare(h)))
    return block


cdef inline void held_give(Held* h, void* block, int64_t bytes) noexcept nogil:
    """Take a block of held_take back, with the bytes it was asked for; NULL: nothing."""
    if block == NULL:
        return
    h.bytes -= bytes
    h.most = max(h.most - (bytes >> 3), h.bytes)
    ord_spare_give(&h.spare, block, bytes, may_be_spare(h))


cdef inline void held_free(Held* h) noexcept nogil:
    """Free the spare blocks."""
    ord_spare_drop(&h.spare, h.spare.bytes)
