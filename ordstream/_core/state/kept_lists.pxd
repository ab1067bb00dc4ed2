"""Lists that keys of a map keep: short ones in the record, longer ones in blocks of the bucket.

Blocks have sizes of powers of two and are recycled (ground/blocks.pxd). What is recycled stays with the
bucket until `lists_pack` copies the lists together.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.blocks cimport Blocks, block_give, block_take
from ordstream._core.ground.chunk cimport Arena, Block, arena_alloc, arena_free
from ordstream._core.state.keyed_state cimport KeyedState, keyed_state

cdef enum:
    PACK_FROM = 1 << 13        # bytes of blocks that are not worth copying

cdef struct KeptList:
    # Part of a state; zeroed memory is an empty one. Behind it lie the bytes of a short list.
    char* block            # owned by the bucket; NULL: the values lie behind this struct
    int32_t n              # values
    int32_t size_class     # block holds 1 << size_class bytes

cdef struct ListBlocks:
    # Zeroed memory is an empty one. Memory ownership: the blocks of all lists of a bucket.
    Blocks blocks
    int64_t used           # bytes of the blocks that lists have


cdef inline char* list_values(KeptList* l) noexcept nogil:
    """Where its values lie."""
    return <char*> (l + 1) if l.block == NULL else l.block


cdef inline void list_clear(ListBlocks* b, KeptList* l) noexcept nogil:
    """Make a list empty, and recycle its block."""
    if l.block != NULL:
        block_give(&b.blocks, l.block, l.size_class)
        b.used -= (<int64_t> 1) << l.size_class
        l.block = NULL
    l.n = 0


cdef inline int list_move(ListBlocks* b, KeptList* l, int64_t bytes, int32_t larger) noexcept nogil:
    """Move the `bytes` bytes of a list to a block of a larger class. 0, or -1: no memory, as before."""
    cdef char* block = block_take(&b.blocks, larger)
    if block == NULL:
        return -1
    memcpy(block, list_values(l), <size_t> bytes)
    if l.block != NULL:
        block_give(&b.blocks, l.block, l.size_class)
        b.used -= (<int64_t> 1) << l.size_class
    b.used += (<int64_t> 1) << larger
    l.block = block
    l.size_class = larger
    return 0


cdef inline char* list_fill(ListBlocks* b, KeptList* l, int64_t n, int64_t bytes, int64_t inside,
                            int32_t first_class) noexcept nogil:
    """Make an empty list one of `n` values, `bytes` bytes, and return where they go. NULL: no memory, and it
    stays empty. `inside`: bytes that lie behind the struct; `first_class`: of the smallest block."""
    cdef int32_t c = first_class
    while bytes > inside and (<int64_t> 1) << c < bytes:
        c += 1
    if bytes > inside and list_move(b, l, 0, c) != 0:
        return NULL
    l.n = <int32_t> n
    return list_values(l)


cdef inline void lists_pack(ListBlocks* b, KeyedState* s, int32_t offset, int32_t stride, int32_t n,
                            int64_t most) noexcept nogil:
    """Copy the lists together where their blocks hold more than four times `most` bytes. A state has `n`
    lists, `stride` bytes apart, from `offset` on. Without memory they stay where they are.

    Cost: nothing, or a pass over the keys and a copy of their lists.
    """
    cdef Arena fresh
    cdef KeptList* l
    cdef char* to = NULL
    cdef int64_t held = 0
    cdef int64_t i
    cdef int32_t j
    cdef const Block* block = b.blocks.arena.first
    while block != NULL:
        held += block.size
        block = block.next
    if held <= 4 * most + PACK_FROM:
        return
    memset(&fresh, 0, sizeof(Arena))
    if b.used:
        to = arena_alloc(&fresh, b.used, &b.blocks.pool)
        if to == NULL:
            return
    for i in range(s.count if b.used else 0):
        for j in range(n):
            l = <KeptList*> (keyed_state(s, i) + offset + j * stride)
            if l.block != NULL:
                memcpy(to, l.block, (<size_t> 1) << l.size_class)
                l.block = to
                to += (<int64_t> 1) << l.size_class
    arena_free(&b.blocks.arena, &b.blocks.pool)
    b.blocks.arena = fresh
    memset(b.blocks.recycled, 0, sizeof(b.blocks.recycled))
