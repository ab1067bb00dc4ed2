"""Repeating input values in front of the rows that one input row causes. Inline only: there is no module of
this name at run time."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport Chunk, Column, Layout, Worker, chunk_set_valid


cdef inline int carry_values(
    const int32_t* carry, int32_t ncarry, const Layout* layout, Worker* w, const Chunk* c, Chunk* out,
    int32_t slot, int32_t n,
) noexcept nogil:
    """Repeat columns `carry` of row `slot` in `n` reserved rows from out.n on, into columns 0..ncarry-1, and
    set their origin.

    Thread safety: the owner of `out`. Ownership: views still point into `c`. Returns: 0, or -1: no memory.
    Cost: ~1 ns per value.
    """
    cdef const Column* source
    cdef char* to
    cdef const char* value
    cdef int32_t j
    cdef int32_t i
    cdef int32_t width
    cdef bint is_null
    for j in range(ncarry):
        source = &c.cols[carry[j]]
        width = layout.width[j]
        to = out.cols[j].data + <int64_t> out.n * width
        is_null = source.valid != NULL and source.valid[slot] == 0
        if source.data == NULL or is_null:
            memset(to, 0, <size_t> n * width)
        else:
            value = source.data + <int64_t> slot * width
            if width == 8:
                for i in range(n):
                    (<int64_t*> to)[i] = (<const int64_t*> value)[0]
            else:
                for i in range(n):
                    memcpy(to + <int64_t> i * width, value, width)
        if is_null and chunk_set_valid(w, out, j) != 0:
            return -1
        if out.cols[j].valid != NULL:
            memset(out.cols[j].valid + out.n, 0 if is_null else 1, n)
    for i in range(n):
        out.origin[out.n + i] = slot
    return 0
