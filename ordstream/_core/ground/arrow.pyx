"""Import and export of Arrow data (arrow.pxd states the contract)."""
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport *

import pyarrow as pa


# ---------------------------------------------------------------- import

cdef Batch* batch_new(int32_t ncols, int32_t kind) noexcept nogil:
    """An empty batch; NULL: no memory. Ownership: caller, until batch_free."""
    cdef Batch* b = <Batch*> calloc(1, sizeof(Batch))
    if b == NULL:
        return NULL
    b.kind = kind
    b.ncols = ncols
    b.cols = <Column*> calloc(ncols + 1, sizeof(Column))
    b.allocated = <void**> calloc(3 * ncols + 1, sizeof(void*))
    if b.cols == NULL or b.allocated == NULL:
        free(b.cols)
        free(b.allocated)
        free(b)
        return NULL
    return b


cdef void batch_free(Batch* b) noexcept nogil:
    """Release the producer's array (its callback may take the GIL) and everything import made."""
    cdef int32_t j
    if b.array.release != NULL:
        b.array.release(&b.array)
    for j in range(b.nallocated):
        free(b.allocated[j])
    free(b.allocated)
    free(b.cols)
    free(b.failure)
    free(b)


cdef inline void* batch_alloc(Batch* b, int64_t size) noexcept nogil:
    cdef void* p = malloc(size + 64)
    if p != NULL:
        b.allocated[b.nallocated] = p
        b.nallocated += 1
        b.bytes += size
    return p


cdef inline bint bit(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef void expand_bits(const uint8_t* bits, int64_t offset, int64_t n, uint8_t* out) noexcept nogil:
    """One byte (0 or 1) per bit."""
    cdef int64_t i = 0
    cdef int64_t b
    cdef uint8_t v
    while i < n and (offset + i) & 7:
        out[i] = bit(bits, offset + i)
        i += 1
    while i + 8 <= n:
        v = bits[(offset + i) >> 3]
        for b in range(8):
            out[i + b] = (v >> b) & 1
        i += 8
    while i < n:
        out[i] = bit(bits, offset + i)
        i += 1


cdef int import_values(Batch* b, const ArrowArray* a, int64_t start, int64_t n, int32_t type, const char* format,
                       char** out) noexcept nogil:
    """Values of `n` rows from `start` (the child's own offset included): a pointer into the array, or a converted copy."""
    cdef View* views
    cdef const int32_t* o32
    cdef const int64_t* o64
    cdef const char* base
    cdef int64_t i
    cdef uint8_t* bytes
    if type == PT_BOOL:
        bytes = <uint8_t*> batch_alloc(b, n)
        if bytes == NULL:
            return -1
        if n:
            expand_bits(<const uint8_t*> a.buffers[1], start, n, bytes)
        out[0] = <char*> bytes
    elif type == PT_VIEW:
        views = <View*> batch_alloc(b, n * 16)
        if views == NULL:
            return -1
        base = <const char*> a.buffers[2]
        if format[0] == c'u' or format[0] == c'z':
            o32 = <const int32_t*> a.buffers[1] + start
            for i in range(n):
                views[i].data = base + o32[i]
                views[i].size = o32[i + 1] - o32[i]
        elif format[0] == c'U' or format[0] == c'Z':
            o64 = <const int64_t*> a.buffers[1] + start
            for i in range(n):
                views[i].data = base + o64[i]
                views[i].size = o64[i + 1] - o64[i]
        else:
            return -2
        out[0] = <char*> views
    else:
        out[0] = <char*> a.buffers[1]
        if out[0] != NULL:
            out[0] += start * WIDTHS[type]
    return 0


# bytes per value, indexed by PhysicalType
cdef int32_t[14] WIDTHS = [1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 16, 16, 16]


cdef bint batch_converts(const Batch* b, const Layout* layout, const uint8_t* used) noexcept nogil:
    """Whether batch_import of b.array takes time for each row, and not only for each column. Cost: a few ns per column."""
    cdef int32_t j
    cdef const ArrowArray* a
    for j in range(layout.ncols):
        a = b.array.children[j]
        if used[j] and (layout.type[j] == PT_BOOL or layout.type[j] == PT_VIEW or layout.type[j] == PT_LIST
                        or (a.null_count != 0 and a.n_buffers > 0 and a.buffers[0] != NULL)):
            return True
    return False


cdef int64_t extent(const ArrowArray* a, int64_t start, int64_t n, int32_t type, int32_t element, const char* format,
                    const char* element_format) noexcept nogil:
    """Bytes of the rows from `start` in a column's buffers: what a batch, or a slice of one, keeps in memory. Cost: a few ns."""
    cdef int64_t bytes = 0
    cdef int64_t first
    cdef int64_t last
    cdef bint wide
    if a.n_buffers > 0 and a.buffers[0] != NULL:
        bytes = n // 8
    if type == PT_BOOL:
        return bytes + n // 8
    if type != PT_VIEW and type != PT_LIST:
        return bytes + n * WIDTHS[type]
    if a.n_buffers < 2 or a.buffers[1] == NULL:
        return bytes
    wide = format[0] == c'U' or format[0] == c'Z' or (format[0] == c'+' and format[1] == c'L')
    if wide:
        first = (<const int64_t*> a.buffers[1])[start]
        last = (<const int64_t*> a.buffers[1])[start + n]
    else:
        first = (<const int32_t*> a.buffers[1])[start]
        last = (<const int32_t*> a.buffers[1])[start + n]
    bytes += n * (8 if wide else 4)
    if type == PT_VIEW:
        return bytes + last - first
    if last == first:
        return bytes
    return bytes + extent(a.children[0], a.children[0].offset + first, last - first, element, -1, element_format, element_format)


cdef int batch_import(Batch* b, const Layout* layout, const uint8_t* used, const char** formats) noexcept nogil:
    """Make b.cols from b.array. `formats`: Arrow format per column, then per list element at ncols + j.

    Returns 0; -1: no memory; -2-j: column j is not in a supported layout (a list with null elements, say).
    Cost: nothing for fixed-width columns without nulls; one pass for booleans, strings, lists and validity.
    """
    cdef int32_t j
    cdef ArrowArray* a
    cdef ArrowArray* child
    cdef int64_t start
    cdef int64_t i
    cdef uint8_t* valid
    cdef int rc
    cdef View* views
    cdef const int32_t* o32 = NULL
    cdef const int64_t* o64 = NULL
    cdef char* elements
    cdef int64_t total
    cdef int64_t first
    cdef int32_t width
    b.rows = b.array.length
    b.widths = layout.width
    if b.rows:
        for j in range(layout.ncols):
            a = b.array.children[j]
            b.bytes += extent(a, b.array.offset + a.offset, b.rows, layout.type[j], layout.element[j], formats[j],
                              formats[layout.ncols + j])
    for j in range(layout.ncols):
        if not used[j]:
            continue
        a = b.array.children[j]
        start = b.array.offset + a.offset
        if layout.type[j] == PT_LIST:
            child = a.children[0]
            if b.rows == 0:
                continue
            if formats[j][1] == c'l':
                o32 = <const int32_t*> a.buffers[1] + start
                first = o32[0]
                total = o32[b.rows] - first
            else:
                o64 = <const int64_t*> a.buffers[1] + start
                first = o64[0]
                total = o64[b.rows] - first
            if child.null_count != 0 and child.buffers[0] != NULL:
                for i in range(total):
                    if not bit(<const uint8_t*> child.buffers[0], child.offset + first + i):
                        return -2 - j
            rc = import_values(b, child, child.offset + first, total, layout.element[j], formats[layout.ncols + j], &elements)
            if rc != 0:
                return -1 if rc == -1 else -2 - j
            views = <View*> batch_alloc(b, b.rows * 16)
            if views == NULL:
                return -1
            width = WIDTHS[layout.element[j]]
            for i in range(b.rows):
                if formats[j][1] == c'l':
                    views[i].data = elements + (o32[i] - first) * width
                    views[i].size = o32[i + 1] - o32[i]
                else:
                    views[i].data = elements + (o64[i] - first) * width
                    views[i].size = o64[i + 1] - o64[i]
            b.cols[j].data = <char*> views
        else:
            rc = import_values(b, a, start, b.rows, layout.type[j], formats[j], &b.cols[j].data)
            if rc != 0:
                return -1 if rc == -1 else -2 - j
        if a.null_count != 0 and a.n_buffers > 0 and a.buffers[0] != NULL:
            valid = <uint8_t*> batch_alloc(b, b.rows)
            if valid == NULL:
                return -1
            expand_bits(<const uint8_t*> a.buffers[0], start, b.rows, valid)
            for i in range(b.rows):
                if not valid[i]:
                    b.cols[j].valid = valid
                    break
    return 0


# ---------------------------------------------------------------- output batches

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
    """`data` of `had` bytes (NULL: new) with room for `size`, counted; NULL: no memory, and `data` is as it was."""
    cdef void* p = output_larger(data, size, o.keep)
    if p != NULL:
        count(o, size - had)
    return p


cdef Output* output_new(const Layout* layout, int64_t capacity, bint tags) noexcept nogil:
    """An empty output batch with room for `capacity` rows; NULL: no memory. Ownership: caller, until output_export/free.

    It may grow as long as offsets allow, and is counted nowhere, unless its owner says otherwise (budget, pool).
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
        add_relaxed(&o.pool.bytes, -o.bytes)                  # no partner: only a batch that nobody takes any more comes here
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
    """Capacity for `need` rows, or as many as the budget allows. 0, or -1: no memory (the batch stays usable)."""
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


cdef int64_t larger_capacity(const Output* o, int64_t capacity, int64_t need, int64_t wish, int64_t width, bint first) noexcept nogil:
    """Capacity (values of `width` bytes) for at least `need` in a column that has too little: `wish` where the budget allows it.

    -1: the row does not fit: `need` is more than offsets can say, or more than the budget and the row is not the batch's first.
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
    cdef int64_t cap = larger_capacity(o, oc.heap_capacity, oc.heap_size + size, oc.heap_capacity * 2 + size + 1024, 1, first)
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
    """The bytes of one value. 0; -1: no memory; -2: the row does not fit. Capacity never passes offset_limit: no further check here."""
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
    """Append the elements of one list to the child column. Returns as heap_append; what a row that does not fit has left is cut off."""
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
    """Append `n` of the chunk's selected rows from the start-th on. Returns how many: fewer where the next one has no room (`over`), none
    where the batch has no room at all; -1: no memory, and the batch is as it was. An empty batch takes a row of any width that offsets
    can say.

    Thread safety: one writer. Ownership: values are copied. Cost: one gather per column; bytes are counted where a buffer grows.
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


# ---------------------------------------------------------------- export

cdef struct Exported:
    # private_data of an exported array: everything its release frees.
    Output* output
    uint8_t** bitmaps
    int32_t nbitmaps


cdef void release_child(ArrowArray* a) noexcept nogil:
    a.release = NULL


cdef void release_exported(ArrowArray* a) noexcept nogil:
    """Frees an exported batch. May run on any thread, without the GIL: touches no Python."""
    cdef Exported* e = <Exported*> a.private_data
    cdef int64_t j
    cdef int32_t k
    for j in range(a.n_children):
        if a.children[j].n_children:
            if a.children[j].children[0].release != NULL:
                a.children[j].children[0].release(a.children[j].children[0])
            free(a.children[j].children[0].buffers)
            free(a.children[j].children[0])
            free(a.children[j].children)
        free(a.children[j].buffers)
        if a.children[j].release != NULL:
            a.children[j].release = NULL
        free(a.children[j])
    free(a.children)
    free(a.buffers)
    for k in range(e.nbitmaps):
        free(e.bitmaps[k])
    free(e.bitmaps)
    output_free(e.output)
    free(e)
    a.release = NULL


cdef void destroy_array_capsule(object capsule) noexcept:
    cdef ArrowArray* a = <ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array")
    if a.release != NULL:
        a.release(a)
    free(a)


cdef ArrowArray* make_array(int64_t length, int64_t null_count, int64_t n_buffers, int64_t n_children) noexcept nogil:
    cdef ArrowArray* a = <ArrowArray*> calloc(1, sizeof(ArrowArray))
    if a == NULL:
        return NULL
    a.length = length
    a.null_count = null_count
    a.n_buffers = n_buffers
    a.n_children = n_children
    a.buffers = <const void**> calloc(n_buffers + 1, sizeof(void*))
    if n_children:
        a.children = <ArrowArray**> calloc(n_children, sizeof(ArrowArray*))
    a.release = release_child
    return a


cdef uint8_t* pack_bits(const uint8_t* bytes, int64_t n, int64_t* zeros) noexcept nogil:
    cdef uint8_t* out = <uint8_t*> calloc((n + 7) // 8 + 64, 1)
    cdef const uint8_t* b
    cdef int64_t i = 0
    cdef int64_t ones = 0
    if out == NULL:
        return NULL
    while i + 8 <= n:
        b = bytes + i
        out[i >> 3] = <uint8_t> (b[0] | b[1] << 1 | b[2] << 2 | b[3] << 3 | b[4] << 4 | b[5] << 5 | b[6] << 6 | b[7] << 7)
        ones += b[0] + b[1] + b[2] + b[3] + b[4] + b[5] + b[6] + b[7]
        i += 8
    for i in range(i, n):
        if bytes[i]:
            out[i >> 3] |= 1 << (i & 7)
            ones += 1
    zeros[0] = n - ones
    return out


cdef ArrowArray* export_output(Output* o) noexcept nogil:
    """Arrow struct array over the buffers of `o`, which it owns from now on; NULL: no memory (o is kept)."""
    cdef ArrowArray* top
    cdef ArrowArray* a
    cdef ArrowArray* ch
    cdef Exported* e = <Exported*> calloc(1, sizeof(Exported))
    cdef int32_t j
    cdef int64_t zeros
    cdef uint8_t* bits
    cdef OutputColumn* oc
    if e == NULL:
        return NULL
    e.output = o
    e.bitmaps = <uint8_t**> calloc(4 * o.ncols + 1, sizeof(uint8_t*))
    top = make_array(o.rows, 0, 1, o.ncols)
    if top == NULL or e.bitmaps == NULL:
        return NULL
    top.private_data = e
    top.release = release_exported
    for j in range(o.ncols):
        oc = &o.cols[j]
        if o.layout.type[j] == PT_LIST:
            a = make_array(o.rows, 0, 2, 1)
            ch = make_array(oc.child_rows, 0, 3 if o.layout.element[j] == PT_VIEW else 2, 0)
            a.children[0] = ch
            ch.buffers[1] = oc.child.data
            if o.layout.element[j] == PT_VIEW:
                ch.buffers[2] = oc.child.heap
            elif o.layout.element[j] == PT_BOOL:
                bits = pack_bits(<uint8_t*> oc.child.data, oc.child_rows, &zeros)
                e.bitmaps[e.nbitmaps] = bits
                e.nbitmaps += 1
                ch.buffers[1] = bits
            a.buffers[1] = oc.data
        elif o.layout.type[j] == PT_VIEW:
            a = make_array(o.rows, 0, 3, 0)
            a.buffers[1] = oc.data
            a.buffers[2] = oc.heap
        elif o.layout.type[j] == PT_BOOL:
            a = make_array(o.rows, 0, 2, 0)
            bits = pack_bits(<uint8_t*> oc.data, o.rows, &zeros)
            e.bitmaps[e.nbitmaps] = bits
            e.nbitmaps += 1
            a.buffers[1] = bits
        else:
            a = make_array(o.rows, 0, 2, 0)
            a.buffers[1] = oc.data
        top.children[j] = a
        if oc.valid != NULL:
            bits = pack_bits(oc.valid, o.rows, &zeros)
            a.null_count = zeros
            e.bitmaps[e.nbitmaps] = bits
            e.nbitmaps += 1
            if zeros:
                a.buffers[0] = bits
    return top


class _Exported:
    """Holder of an array capsule: what pyarrow imports through the PyCapsule interface."""

    def __init__(self, schema, capsule):
        self.schema = schema
        self.capsule = capsule

    def __arrow_c_array__(self, requested_schema=None):
        return self.schema.__arrow_c_schema__(), self.capsule


cdef object output_export(Output* o, object schema):
    """pyarrow.RecordBatch over the output's buffers (no copy). Takes ownership of `o`. `schema`: core_schema of the output."""
    cdef ArrowArray* a
    with nogil:
        a = export_output(o)
    if a == NULL:
        output_free(o)
        raise MemoryError("no memory to hand an output batch over")
    capsule = PyCapsule_New(a, b"arrow_array", <void (*)(object) noexcept> destroy_array_capsule)
    return pa.record_batch(_Exported(schema, capsule))


def core_schema(schema):
    """The schema in which the core hands batches over: 32-bit offsets for every string, binary and list column."""
    import pyarrow.types as pt

    def plain(t):
        if pt.is_dictionary(t):
            t = t.value_type
        if pt.is_large_string(t) or str(t) == "string_view":
            return pa.string()
        if pt.is_large_binary(t) or str(t) == "binary_view":
            return pa.binary()
        if pt.is_large_list(t) or pt.is_list(t):
            return pa.list_(plain(t.value_type))
        return t

    return pa.schema([pa.field(f.name, plain(f.type)) for f in schema])


cdef class BatchFormats:
    """Arrow format strings of a source schema, for batch_import. Memory ownership: holds the bytes it points to."""

    def __cinit__(self, schema):
        import pyarrow.types as pt

        def letter(t):
            if pt.is_string(t):
                return b"u"
            if pt.is_binary(t):
                return b"z"
            if pt.is_large_string(t):
                return b"U"
            if pt.is_large_binary(t):
                return b"Z"
            if pt.is_list(t):
                return b"+l"
            if pt.is_large_list(t):
                return b"+L"
            return b"-"

        n = len(schema)
        self.kept = [letter(f.type) for f in schema]
        self.kept += [letter(f.type.value_type) if (pt.is_list(f.type) or pt.is_large_list(f.type)) else b"-" for f in schema]
        self.formats = <const char**> calloc(2 * n + 1, sizeof(char*))
        if self.formats == NULL:
            raise MemoryError
        for j, text in enumerate(self.kept):
            self.formats[j] = <const char*> (<bytes> text)

    def __dealloc__(self):
        free(self.formats)
