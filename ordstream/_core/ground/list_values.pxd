"""Lists of values of fixed width, as PT_LIST columns have them: a View of `size` elements, side by side.

Where some elements are null LIST_NULLS is part of `size`, and behind the values lies a byte for each: 0 for
a null, whose value is anything. Lists in rows of state that are an operator's own have no nulls.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport View

cdef extern from *:
    """
    #ifndef ORDSTREAM_LIST_NULLS
    #define ORDSTREAM_LIST_NULLS (INT64_C(1) << 62)
    #endif
    """
    const int64_t LIST_NULLS "ORDSTREAM_LIST_NULLS"

cdef inline bint list_has_nulls(const View* v) noexcept nogil:
    return v.size >= LIST_NULLS

cdef inline int64_t list_count(const View* v) noexcept nogil:
    """How many elements, nulls among them."""
    return v.size if v.size < LIST_NULLS else v.size - LIST_NULLS

cdef inline int64_t view_bytes(int64_t size, int64_t width) noexcept nogil:
    """Bytes of a list of elements of `width` bytes whose View says `size`; of a string with width 1."""
    return size * width if size < LIST_NULLS else (size - LIST_NULLS) * (width + 1)

cdef inline const uint8_t* list_valid(const View* v, int64_t width) noexcept nogil:
    """A byte per element, 0 for a null; NULL: there are no nulls."""
    if v.size < LIST_NULLS:
        return NULL
    return <const uint8_t*> v.data + (v.size - LIST_NULLS) * width

cdef inline int64_t list_there(const View* v, int64_t width, char* to) noexcept nogil:
    """Copy the elements that are not null, side by side. Returns how many. `to` has room for all."""
    cdef const uint8_t* valid = list_valid(v, width)
    cdef int64_t n = list_count(v)
    cdef int64_t kept = 0
    cdef int64_t i
    if valid == NULL:
        memcpy(to, v.data, <size_t> (n * width))
        return n
    for i in range(n):
        if valid[i]:
            memcpy(to + kept * width, v.data + i * width, <size_t> width)
            kept += 1
    return kept
