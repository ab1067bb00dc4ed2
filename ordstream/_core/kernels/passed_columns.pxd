"""Columns of input rows that an operator passes on, a column at a time.

Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport Chunk, Column, Worker, chunk_set_valid
from ordstream._core.ground.slot_values cimport gather


cdef inline int pass_column(Worker* w, Chunk* out, int32_t column, int32_t width, const Column* source,
                            const int32_t* rows, int32_t n) noexcept nogil:
    """The values of n rows, into the reserved rows from out.n on. 0, or -1: no memory.

    Thread safety: the owner of `out`. Ownership: views point where those of the source do. Cost: a gather.
    """
    cdef Column* to = &out.cols[column]
    if source.data == NULL:                                  # a column that nothing reads
        memset(to.data + <int64_t> out.n * width, 0, <size_t> n * width)
    else:
        gather(to.data + <int64_t> out.n * width, source.data, rows, n, width)
    if source.valid != NULL and chunk_set_valid(w, out, column) != 0:
        return -1
    if source.valid != NULL:
        gather(<char*> to.valid + out.n, <const char*> source.valid, rows, n, 1)
    elif to.valid != NULL:
        memset(to.valid + out.n, 1, n)
    return 0
