"""Room in the columns of an output batch (output_columns.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport PT_LIST, PT_VIEW, View
from ordstream._core.ground.list_values cimport list_count, list_has_nulls, list_valid
from ordstream._core.ground.widths cimport WIDTHS

cdef extern from "output_memory.hpp" nogil:
    void* output_larger "ord_output_grow"(void* data, size_t size, size_t most)   # as realloc

cdef int64_t offset_limit = 0x7fffffff


cdef int64_t limit_offsets(int64_t limit) noexcept nogil:
    global offset_limit
    cdef int64_t before = offset_limit
    offset_limit = limit
    return before


cdef inline void count(Output* o, int64_t bytes) noexcept nogil:
    """The batch takes `bytes` more."""
    o.bytes += bytes
    if o.pool != NULL:
        add_relaxed(&o.pool.bytes, bytes)                     # who decides by it may be late; no partner


cdef void* taken(Output* o, void* data, int64_t had, int64_t size) noexcept nogil:
    """`data` of `had` bytes (NULL: new) with room for `size`, counted; NULL: no memory, and `data` is as it
    was."""
    cdef void* p = output_larger(data, size, o.keep)
    if p != NULL:
        count(o, size - had)
    return p


cdef int64_t larger_capacity(const Output* o, int64_t capacity, int64_t need, int64_t wish, int64_t width,
                             bint first) noexcept nogil:
    """Capacity (values of `width` bytes) for at least `need` in a column that has too little: `wish` where
    the budget allows it.

    -1: the row does not fit: `need` is more than offsets can say, or more than the budget and the row is not
    the batch's first.
    """
    cdef int64_t most
    if need > offset_limit:
        return -1
    most = capacity
    if o.budget > o.bytes:
        most += (o.budget - o.bytes) // width
    if most < need:
        if not first:
            return -1
        most = need
    return min(min(wish, most), max(offset_limit, need))


cdef inline int64_t enough(const Output* o, int64_t before, int64_t need) noexcept nogil:
    """Room to wish for where `need` is needed: what all rows of the batch take if they go on as those that
    are there, which have `before`; at most four times the need."""
    cdef int64_t whole = 2 * need
    if o.rows:
        whole = before * o.capacity // o.rows
        whole = max(whole + whole // 16, need + need // 4)
    return min(whole, 4 * need) + 64


cdef int heap_larger(Output* o, OutputColumn* oc, int64_t size, bint first) noexcept nogil:
    cdef int64_t need = oc.heap_size + size
    cdef int64_t cap = larger_capacity(o, oc.heap_capacity, need, enough(o, oc.heap_size, need), 1, first)
    cdef void* p
    if cap < 0:
        return -2
    p = taken(o, oc.heap, oc.heap_capacity, cap)
    if p == NULL:
        return -1
    oc.heap = <char*> p
    oc.heap_capacity = cap
    return 0


cdef int list_larger(Output* o, OutputColumn* oc, int64_t size, int32_t element, bint first) noexcept nogil:
    """Room for `size` more elements. Returns as heap_append."""
    cdef OutputColumn* child = oc.child
    cdef int64_t need = oc.child_rows + size
    cdef int64_t width = WIDTHS[element]
    cdef int64_t cap = larger_capacity(o, oc.child_capacity, need,
                                       enough(o, oc.child_rows, need), width, first)
    cdef void* p
    if cap < 0:
        return -2
    if child.valid != NULL:
        p = taken(o, child.valid, oc.child_capacity + 8, cap + 8)
        if p == NULL:
            return -1
        child.valid = <uint8_t*> p
    p = taken(o, child.data, oc.child_capacity * width, cap * width)
    if p == NULL:
        return -1
    child.data = <char*> p
    oc.child_capacity = cap
    return 0


cdef int list_nulls(Output* o, OutputColumn* oc) noexcept nogil:
    """Validity of a list column's elements, none of which was null if there is none yet. 0, or -1: no
    memory."""
    if oc.child.valid == NULL:
        oc.child.valid = <uint8_t*> taken(o, NULL, 0, oc.child_capacity + 8)
        if oc.child.valid == NULL:
            return -1
        memset(oc.child.valid, 1, <size_t> oc.child_rows)
    return 0


cdef int list_append(Output* o, OutputColumn* oc, const View* v, int32_t element, bint first) noexcept nogil:
    """Append the elements of one list to the child column. Returns as heap_append; what a row that does not
    fit has left is cut off."""
    cdef OutputColumn* child = oc.child
    cdef int64_t n = list_count(v)
    cdef int64_t need = oc.child_rows + n
    cdef int64_t width = WIDTHS[element]
    cdef int rc
    if need > oc.child_capacity:
        rc = list_larger(o, oc, n, element, first)
        if rc != 0:
            return rc
    if list_has_nulls(v):
        rc = list_nulls(o, oc)
        if rc != 0:
            return rc
        memcpy(child.valid + oc.child_rows, list_valid(v, width), <size_t> n)
    elif child.valid != NULL:
        memset(child.valid + oc.child_rows, 1, <size_t> n)
    if n:
        memcpy(child.data + oc.child_rows * width, v.data, n * width)
    oc.child_rows = need
    return 0


cdef void cut_column(OutputColumn* oc, int32_t type, int64_t rows) noexcept nogil:
    """Forget the strings or elements of the rows behind the first `rows`."""
    if type == PT_VIEW:
        oc.heap_size = (<int32_t*> oc.data)[rows]
    elif type == PT_LIST:
        oc.child_rows = (<int32_t*> oc.data)[rows]


cdef int valid_room(Output* o, OutputColumn* oc, int64_t base) noexcept nogil:
    """Validity of a column, whose first `base` rows had no nulls if it has none yet. 0, or -1: no memory."""
    if oc.valid == NULL:
        oc.valid = <uint8_t*> taken(o, NULL, 0, o.capacity + 8)
        if oc.valid == NULL:
            return -1
        memset(oc.valid, 1, base)
    return 0
