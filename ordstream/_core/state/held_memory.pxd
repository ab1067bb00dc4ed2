"""Held memory: what the states of a bucket own beside their own bytes.

A block that a state gives back is kept for the next one that asks for its size. Else one worker would free
what another one allocated, row by row, and the C library's allocator makes them wait for each other: sliding
windows took 1.9 times the CPU, and more wall time, with two workers than with one. What is spare and what is
in use are no more than what was in use at its most, or SPARE_LEAST; an eighth of what is given back makes
that most smaller, so that states which shrink for good give their memory back. Sanitizers see each block
come and go.

Inline only: there is no module of this name at run time. Thread safety: the holder of the bucket.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

cdef extern from "spare_blocks.hpp" nogil:
    const bint ORD_BLOCKS_KEPT                     # false where sanitizers look
    int32_t ord_size_of(int64_t* bytes)

cdef enum:
    SPARE_MOST = 1 << 16       # ORD_SPARE_MOST: bytes of the largest block that is kept
    SPARE_LEAST = 1 << 16      # bytes that are kept at least
    SIZES = 49                 # ORD_SIZES

cdef struct Held:
    # Zeroed memory: nothing. Memory ownership: blocks in use are the states', spare ones its own.
    int64_t bytes              # in use
    int64_t most               # as `bytes` was, less an eighth of what was given back since
    int64_t spare              # bytes of spare blocks
    char* first[SIZES]         # spare blocks by size, linked through their first bytes


cdef inline void* held_take(Held* h, int64_t bytes) noexcept nogil:
    """A block of `bytes` bytes, which are not zeroed. NULL: no memory. Ownership: the caller's, until
    held_give. Cost: ~2 ns for a spare one, else malloc."""
    cdef int64_t all = max(bytes, 1)
    cdef int32_t size
    cdef char* block
    if not ORD_BLOCKS_KEPT or all > SPARE_MOST:
        block = <char*> malloc(<size_t> all)
    else:
        size = ord_size_of(&all)
        block = h.first[size]
        if block != NULL:
            h.first[size] = (<char**> block)[0]
            h.spare -= all
        else:
            block = <char*> malloc(<size_t> all)
    if block != NULL:
        h.bytes += bytes
        h.most = max(h.most, h.bytes)
    return block


cdef inline void held_give(Held* h, void* block, int64_t bytes) noexcept nogil:
    """Take a block of held_take back, with the bytes it was asked for; NULL: nothing."""
    cdef int64_t all = max(bytes, 1)
    cdef int32_t size
    if block == NULL:
        return
    h.bytes -= bytes
    h.most = max(h.most - (bytes >> 3), h.bytes)
    if not ORD_BLOCKS_KEPT or all > SPARE_MOST:
        free(block)
        return
    size = ord_size_of(&all)
    # sizes waste a quarter at most
    if h.spare > max(h.most + h.most // 4 - h.bytes, <int64_t> SPARE_LEAST):
        free(block)
        if h.first[size] != NULL:                            # the states shrink, and what is spare with them
            block = h.first[size]
            h.first[size] = (<char**> block)[0]
            h.spare -= all
            free(block)
        return
    (<char**> block)[0] = h.first[size]
    h.first[size] = <char*> block
    h.spare += all


cdef inline void held_free(Held* h) noexcept nogil:
    """Free the spare blocks."""
    cdef char* block
    cdef int32_t size
    for size in range(SIZES):
        while h.first[size] != NULL:
            block = h.first[size]
            h.first[size] = (<char**> block)[0]
            free(block)
    h.spare = 0
