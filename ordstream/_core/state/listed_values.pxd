"""Values of any type that a list is made of: read from a column, written as elements of a packed list.

A list of numbers has its class in the core (list_values.pxd); a list of anything else is a packed value
(packed_values.hpp), and how its elements are written says an OrdGatherSpec (gathered_values.hpp).
Thread safety: pure, but for `element_spec`, which needs the GIL. Ownership: the column, or the caller.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport PT_LIST, PT_VIEW, Column, View
from ordstream._core.ground.list_values cimport view_bytes
from ordstream._core.state.row_values cimport value_at

cdef extern from "gathered_values.hpp" nogil:
    cdef struct OrdGatherSpec:
        int32_t kind
        int32_t value
        int32_t by
        int32_t slides
        int64_t n
        int32_t element
        int32_t width
        int64_t nulls
        double quantile
    cdef struct OrdGiven:
        int64_t word
        const char* data
        int64_t size
        int32_t is_list

cdef extern from "gathered_values.hpp" namespace "ord" nogil:
    bint of_fixed_width(const OrdGatherSpec* spec)
    int64_t element_write(const OrdGatherSpec* spec, const OrdGiven* given, char* to)

cdef int element_spec(OrdGatherSpec* spec, str element, int32_t width) except -1


cdef inline void given_value(int32_t type, int32_t width, const Column* column, int32_t row,
                             OrdGiven* to) noexcept nogil:
    """A value of a column, which is no null; `width`: bytes of an element, of lists of numbers."""
    cdef const View* v
    to.word = 0
    to.data = NULL
    to.size = 0
    to.is_list = type == PT_LIST
    if type == PT_VIEW or type == PT_LIST:
        v = &(<const View*> column.data)[row]
        to.data = v.data
        to.size = v.size
        if type == PT_LIST:
            to.word = v.size
            to.size = view_bytes(v.size, width)
    else:
        to.word = value_at(type, column.data, row)
