"""Blocks: memory that an operator's state keeps and recycles, in sizes of powers of two.

Inline only: there is no module of this name at run time. Thread safety: the holder of the state.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from ordstream._core.ground.atomics cimport a64, load_relaxed
from ordstream._core.ground.chunk cimport Arena, ChunkPool, arena_alloc, arena_free

cdef enum:
    CLASSES = 48

cdef struct Blocks:
    # Zeroed memory is an empty one. Memory ownership: owns every block, handed out or not.
    Arena arena
    char* recycled[CLASSES]    # free blocks by size class, linked through their first bytes
    ChunkPool pool             # only `bytes` is used: what the arena holds


cdef inline int32_t size_class(int64_t size) noexcept nogil:
    """Smallest class (at least 16 bytes) that holds `size` bytes: its blocks have 1 << class bytes."""
    cdef int32_t c = 4
    while ((<int64_t> 1) << c) < size:
        c += 1
    return c


cdef inline char* block_take(Blocks* b, int32_t c) noexcept nogil:
    """A block of class `c`, uninitialised; NULL: no memory. Cost: ~2 ns recycled."""
    cdef char* block = b.recycled[c]
    if block != NULL:
        b.recycled[c] = (<char**> block)[0]
        return block
    return arena_alloc(&b.arena, (<int64_t> 1) << c, &b.pool)


cdef inline void block_give(Blocks* b, char* block, int32_t c) noexcept nogil:
    """Recycle a block that block_take gave with the same class."""
    (<char**> block)[0] = b.recycled[c]
    b.recycled[c] = block


cdef inline void blocks_free(Blocks* b) noexcept nogil:
    """Free everything, blocks in use included."""
    arena_free(&b.arena, &b.pool)
    memset(b.recycled, 0, sizeof(b.recycled))


cdef inline int64_t blocks_bytes(const Blocks* b) noexcept nogil:
    """Bytes held, blocks in use and recycled ones."""
    return load_relaxed(<a64*> &b.pool.bytes)                # statistic; no partner
