"""Values and lists of rows of state (kernel.pxd, f): read and written one by one.

Inline only: there is no module of this name at run time. Thread safety: the owner of the rows.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport PT_BOOL, Chunk, Layout, View, Worker, chunk_alloc

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)


cdef inline int64_t value_at(int32_t type, const char* data, int32_t at) noexcept nogil:
    """A value, widened (floats: bits of a double): the inverse of put_word."""
    # load may write a view, as far as a compiler knows
    cdef int64_t[2] word
    if type == PT_BOOL:
        return (<const uint8_t*> data)[at] != 0
    load(word, type, data, &at, 1)
    return word[0]


cdef inline int64_t row_value(const Layout* layout, const Chunk* rows, int32_t column,
                              int32_t slot) noexcept nogil:
    """value_at in a column of a row."""
    return value_at(layout.type[column], rows.cols[column].data, slot)


cdef inline bint row_null(const Chunk* rows, int32_t column, int32_t slot) noexcept nogil:
    """Whether a row has a null in a column."""
    return rows.cols[column].valid != NULL and rows.cols[column].valid[slot] == 0


cdef inline const View* row_list(const Chunk* rows, int32_t column, int32_t slot) noexcept nogil:
    """The list of a row, or NULL where it is null. Ownership: the rows'."""
    if row_null(rows, column, slot):
        return NULL
    return &(<const View*> rows.cols[column].data)[slot]


cdef inline char* list_room(Worker* w, Chunk* out, int32_t column, int32_t index, int64_t n,
                            int32_t width) noexcept nogil:
    """Make a list of `n` elements of `width` bytes the value of a reserved row, and return where they go.

    Ownership: out's arena. Returns: NULL without memory.
    """
    cdef View* v = &(<View*> out.cols[column].data)[index]
    cdef char* data = chunk_alloc(w, out, n * width + 1)
    if data != NULL:
        v.data = data
        v.size = n
        if out.cols[column].valid != NULL:
            out.cols[column].valid[index] = 1
    return data
