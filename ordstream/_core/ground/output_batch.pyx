"""Appending to output batches (output_batch.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport PT_LIST, PT_VIEW, Chunk, Layout, View, slot_serial
from ordstream._core.ground.widths cimport WIDTHS


cdef extern from "output_memory.hpp" nogil:
    void* output_take "ord_output_take"(size_t size)
    void* output_larger "ord_output_grow"(void* data, size_t size, size_t most)   # as realloc
    void output_give "ord_output_give"(void* data, size_t most)

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


cdef inline void* taken(Output* o, void* data, int64_t had, int64_t size) noexcept nogil:
    """`data` of `had` bytes (NULL: new) with room for `size`, counted; NULL: no memory, and `data` is as it
    was."""
    cdef void* p = output_larger(data, size, o.keep)
    if p != NULL:
        count(o, size - had)
    return p


cdef Output* output_new(const Layout* layout, int64_t capacity, bint tags) noexcept nogil:
    """An empty output batch with room for `capacity` rows; NULL: no memory. Ownership: caller, until
    output_export/free.

    It may grow as long as offsets allow, and is counted nowhere, unless its owner says otherwise (budget,
    pool).
    """
    cdef Output* o = <Output*> calloc(1, sizeof(Output))
    cdef int32_t j
    if o == NULL:
        return NULL
    o.layout = layout
    o.ncols = layout.ncols
    o.capacity = capacity
    o.budget = <int64_t> 1 << 60
    o.keep = o.budget
    o.cols = <OutputColumn*> calloc(layout.ncols + 1, sizeof(OutputColumn))
    if o.cols == NULL:
        free(o)
        return NULL
    for j in range(layout.ncols):
        if layout.type[j] == PT_VIEW or layout.type[j] == PT_LIST:
            o.cols[j].data = <char*> taken(o, NULL, 0, (capacity + 1) * 4)
            if o.cols[j].data != NULL:
                (<int32_t*> o.cols[j].data)[0] = 0
            if layout.type[j] == PT_LIST:
                o.cols[j].child = <OutputColumn*> calloc(1, sizeof(OutputColumn))
                if o.cols[j].child == NULL:
                    output_free(o)
                    return NULL
        else:
            o.cols[j].data = <char*> taken(o, NULL, 0, capacity * layout.width[j] + 8)
        if o.cols[j].data == NULL:
            output_free(o)
            return NULL
    if tags:
        o.serials = <int64_t*> taken(o, NULL, 0, capacity * 8 + 8)
        if o.serials == NULL:
            output_free(o)
            return NULL
    return o


cdef void output_free(Output* o) noexcept nogil:
    cdef int32_t j
    if o.pool != NULL:
        # no partner: only a batch that nobody takes any more comes here
        add_relaxed(&o.pool.bytes, -o.bytes)
    for j in range(o.ncols):
        output_give(o.cols[j].data, o.keep)
        output_give(o.cols[j].valid, o.keep)
        output_give(o.cols[j].heap, o.keep)
        if o.cols[j].child != NULL:
            output_give(o.cols[j].child.data, o.keep)
            output_give(o.cols[j].child.heap, o.keep)
            free(o.cols[j].child)
    free(o.cols)
    output_give(o.serials, o.keep)
    free(o)


cdef int64_t row_bytes(const Layout* layout, bint tags) noexcept nogil:
    """Bytes of one row, without those of its strings, lists and nulls."""
    cdef int64_t bytes = 8 if tags else 0
    cdef int32_t j
    for j in range(layout.ncols):
        bytes += 4 if layout.type[j] == PT_VIEW or layout.type[j] == PT_LIST else layout.width[j]
    return bytes


cdef int64_t rows_within(const Layout* layout, bint tags, int64_t bytes) noexcept nogil:
    """How many rows take at most `bytes`, their strings, lists and nulls left out; at least 1."""
    cdef int64_t each = row_bytes(layout, tags)
    return max(bytes // each if each > 0 else bytes, <int64_t> 1)


cdef int output_grow(Output* o, int64_t need) noexcept nogil:
    """Capacity for `need` rows, or as many as the budget allows. 0, or -1: no memory (the batch stays
    usable)."""
    cdef int64_t most = o.capacity
    cdef int64_t cap
    cdef int32_t j
    cdef int64_t width
    cdef void* p
    if o.budget > o.bytes:
        most += rows_within(o.layout, o.serials != NULL, o.budget - o.bytes)
    cap = min(max(o.capacity * 2, need), most)
    if cap == o.capacity:
        return 0
    for j in range(o.ncols):
        if o.layout.type[j] == PT_VIEW or o.layout.type[j] == PT_LIST:
            p = taken(o, o.cols[j].data, (o.capacity + 1) * 4, (cap + 1) * 4)
        else:
            width = o.layout.width[j]
            p = taken(o, o.cols[j].data, o.capacity * width + 8, cap * width + 8)
        if p == NULL:
            return -1
        o.cols[j].data = <char*> p
        if o.cols[j].valid != NULL:
            p = taken(o, o.cols[j].valid, o.capacity + 8, cap + 8)
            if p == NULL:
                return -1
            o.cols[j].valid = <uint8_t*> p
    if o.serials != NULL:
        p = taken(o, o.serials, o.capacity * 8 + 8, cap * 8 + 8)
        if p == NULL:
            return -1
        o.serials = <int64_t*> p
    o.capacity = cap
    return 0


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


cdef int heap_larger(Output* o, OutputColumn* oc, int64_t size, bint first) noexcept nogil:
    cdef int64_t cap = larger_capacity(o, oc.heap_capacity, oc.heap_size + size,
                                       oc.heap_capacity * 2 + size + 1024, 1, first)
    cdef void* p
    if cap < 0:
        return -2
    p = taken(o, oc.heap, oc.heap_capacity, cap)
    if p == NULL:
        return -1
    oc.heap = <char*> p
    oc.heap_capacity = cap
    return 0


cdef inline int heap_append(Output* o, OutputColumn* oc, const View* v, bint first) noexcept nogil:
    """The bytes of one value. 0; -1: no memory; -2: the row does not fit. Capacity never passes
    offset_limit: no further check here."""
    cdef int rc
    if oc.heap_size + v.size > oc.heap_capacity:
        rc = heap_larger(o, oc, v.size, first)
        if rc != 0:
            return rc
    if v.size:
        memcpy(oc.heap + oc.heap_size, v.data, v.size)
    oc.heap_size += v.size
    return 0


cdef int list_append(Output* o, OutputColumn* oc, const View* v, int32_t element, bint first) noexcept nogil:
    """Append the elements of one list to the child column. Returns as heap_append; what a row that does not
    fit has left is cut off."""
    cdef OutputColumn* child = oc.child
    cdef int64_t need = oc.child_rows + v.size
    cdef int64_t cap
    cdef int64_t width = 4 if element == PT_VIEW else WIDTHS[element]
    cdef void* p
    cdef int64_t i
    cdef int rc
    if need + 1 > oc.child_capacity:
        cap = larger_capacity(o, oc.child_capacity, need, need * 2 + 64, width, first)
        if cap < 0:
            return -2
        cap = max(cap, need + 1)                              # offsets are one more than elements
        p = taken(o, child.data, oc.child_capacity * width, cap * width)
        if p == NULL:
            return -1
        child.data = <char*> p
        if oc.child_capacity == 0 and element == PT_VIEW:
            (<int32_t*> child.data)[0] = 0
        oc.child_capacity = cap
    if element == PT_VIEW:
        for i in range(v.size):
            rc = heap_append(o, child, &(<const View*> v.data)[i], first)
            if rc != 0:
                return rc
            (<int32_t*> child.data)[oc.child_rows + i + 1] = <int32_t> child.heap_size
    elif v.size:
        memcpy(child.data + oc.child_rows * width, v.data, v.size * width)
    oc.child_rows = need
    return 0


cdef void cut_column(OutputColumn* oc, int32_t type, int32_t element, int64_t rows) noexcept nogil:
    """Forget the strings or elements of the rows behind the first `rows`."""
    if type == PT_VIEW:
        oc.heap_size = (<int32_t*> oc.data)[rows]
    elif type == PT_LIST:
        oc.child_rows = (<int32_t*> oc.data)[rows]
        if element == PT_VIEW and oc.child_capacity:
            oc.child.heap_size = (<int32_t*> oc.child.data)[oc.child_rows]


cdef int64_t output_append(Output* o, Chunk* c, int64_t start, int64_t n) noexcept nogil:
    """Append `n` of the chunk's selected rows from the start-th on. Returns how many: fewer where the next
    one has no room (`over`), none where the batch has no room at all; -1: no memory, and the batch is as it
    was. An empty batch takes a row of any width that offsets can say.

    Thread safety: one writer. Ownership: values are copied. Cost: one gather per column; bytes are counted
    where a buffer grows.
    """
    cdef int64_t base = o.rows
    cdef int32_t j
    cdef int32_t k
    cdef int64_t i
    cdef OutputColumn* oc
    cdef char* src
    cdef uint8_t* valid
    cdef const int32_t* sel = c.sel + start if c.sel != NULL else NULL
    cdef View empty
    cdef View* v
    cdef int64_t s
    cdef int rc
    o.over = -1
    if base + n > o.capacity:
        if output_grow(o, base + n) != 0:
            return -1
        n = min(n, o.capacity - base)
    if n == 0:
        return 0
    empty.data = NULL
    empty.size = 0
    for j in range(o.ncols):
        oc = &o.cols[j]
        src = c.cols[j].data
        valid = c.cols[j].valid
        if sel == NULL and start:
            src += start * o.layout.width[j]
            if valid != NULL:
                valid += start
        if o.layout.type[j] == PT_VIEW or o.layout.type[j] == PT_LIST:
            for i in range(n):
                s = sel[i] if sel != NULL else i
                v = &(<View*> src)[s]
                if valid != NULL and not valid[s]:
                    v = &empty
                if o.layout.type[j] == PT_VIEW:
                    rc = heap_append(o, oc, v, base + i == 0)
                    (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.heap_size
                else:
                    rc = list_append(o, oc, v, o.layout.element[j], base + i == 0)
                    (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.child_rows
                if rc != 0:
                    o.over = j
                    n = i if rc == -2 else 0
                    for k in range(j + 1):
                        cut_column(&o.cols[k], o.layout.type[k], o.layout.element[k], base + n)
                    if rc == -1:
                        return -1
                    break
            if n == 0:
                return 0
        elif n == 1 and o.layout.width[j] == 8:
            (<int64_t*> oc.data)[base] = (<int64_t*> src)[sel[0] if sel != NULL else 0]
        elif sel == NULL:
            memcpy(oc.data + base * o.layout.width[j], src, n * o.layout.width[j])
        elif o.layout.width[j] == 8:
            for i in range(n):
                (<int64_t*> oc.data)[base + i] = (<int64_t*> src)[sel[i]]
        elif o.layout.width[j] == 4:
            for i in range(n):
                (<int32_t*> oc.data)[base + i] = (<int32_t*> src)[sel[i]]
        elif o.layout.width[j] == 1:
            for i in range(n):
                oc.data[base + i] = src[sel[i]]
        else:
            for i in range(n):
                memcpy(oc.data + (base + i) * o.layout.width[j], src + <int64_t> sel[i] * o.layout.width[j],
                       o.layout.width[j])
        if valid != NULL:
            if oc.valid == NULL:
                oc.valid = <uint8_t*> taken(o, NULL, 0, o.capacity + 8)
                if oc.valid == NULL:
                    return -1
                memset(oc.valid, 1, base)
            if sel == NULL:
                memcpy(oc.valid + base, valid, n)
            else:
                for i in range(n):
                    oc.valid[base + i] = valid[sel[i]]
        elif oc.valid != NULL:
            memset(oc.valid + base, 1, n)
    if o.serials != NULL:
        for i in range(n):
            o.serials[base + i] = slot_serial(c, sel[i] if sel != NULL else <int32_t> (start + i))
    o.rows = base + n
    return n
