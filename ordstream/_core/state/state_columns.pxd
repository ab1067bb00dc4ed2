"""Columns behind the key in a row of state (kernel.pxd, f), for kernels that write and read their own.

Inline only: there is no module of this name at run time. Thread safety: the owner of the chunk.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport PT_F32, PT_F64, Chunk, Worker, chunk_set_valid
from ordstream._core.ground.kernel cimport Kernel

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)


cdef inline int32_t own_column(const Kernel* k) noexcept nogil:
    """The first column behind the key."""
    return k.state_keys.ncols if k.state_keys != NULL else 0


cdef inline int put_valid(Worker* w, Chunk* out, int32_t column, int32_t index, bint there) noexcept nogil:
    """Say whether a value of a reserved row is there, or null. 0, or -1: no memory."""
    if not there and chunk_set_valid(w, out, column) != 0:
        return -1
    if out.cols[column].valid != NULL:
        out.cols[column].valid[index] = <uint8_t> there
    return 0


cdef inline bint is_there(const Chunk* rows, int32_t column, int32_t slot) noexcept nogil:
    """Whether a row has a value in a column."""
    return rows.cols[column].valid == NULL or rows.cols[column].valid[slot] != 0


cdef inline int64_t word_of(const Chunk* rows, int32_t column, int32_t slot, int32_t type) noexcept nogil:
    """A row's value in a column of numbers, dates or times, widened (floats: bits of a double)."""
    cdef int64_t[2] word                                     # load may write a View
    cdef double[2] real
    word[0] = 0
    if type == PT_F64 or type == PT_F32:                     # written as a double, so read as one
        load(real, type, rows.cols[column].data, &slot, 1)
        memcpy(word, real, 8)
    else:
        load(word, type, rows.cols[column].data, &slot, 1)
    return word[0]
