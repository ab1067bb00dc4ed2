"""Appending to output batches (output_batch.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_acq_rel, add_relaxed
from ordstream._core.ground.chunk cimport PT_LIST, PT_VIEW, Chunk, Column, Layout, View, slot_serial
from ordstream._core.ground.slot_values cimport gather
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


cdef Output* output_bare(const Layout* layout, int64_t capacity, bint tags) noexcept nogil:
    """An empty output batch for `capacity` rows whose columns have no memory yet (output_room); NULL: no
    memory. Ownership: caller, until output_export/free.

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
        o.cols[j].source = -1
    if tags:
        o.serials = <int64_t*> taken(o, NULL, 0, capacity * 8 + 8)
        if o.serials == NULL:
            output_free(o)
            return NULL
    return o


cdef int output_room(Output* o, int32_t j) noexcept nogil:
    """Memory for `capacity` rows of a column, unless it has some. 0, or -1: no memory."""
    cdef OutputColumn* oc = &o.cols[j]
    cdef int32_t type = o.layout.type[j]
    if oc.data != NULL:
        return 0
    if type == PT_LIST and oc.child == NULL:
        oc.child = <OutputColumn*> calloc(1, sizeof(OutputColumn))
        if oc.child == NULL:
            return -1
    if type == PT_VIEW or type == PT_LIST:
        oc.data = <char*> taken(o, NULL, 0, (o.capacity + 1) * 4)
        if oc.data != NULL:
            (<int32_t*> oc.data)[0] = 0
    else:
        oc.data = <char*> taken(o, NULL, 0, o.capacity * o.layout.width[j] + 8)
    return 0 if oc.data != NULL else -1


cdef Output* output_new(const Layout* layout, int64_t capacity, bint tags) noexcept nogil:
    """output_bare, with memory for all columns."""
    cdef Output* o = output_bare(layout, capacity, tags)
    cdef int32_t j
    if o == NULL:
        return NULL
    for j in range(o.ncols):
        if output_room(o, j) != 0:
            output_free(o)
            return NULL
    return o


cdef void output_drop(Output* o, int32_t j) noexcept nogil:
    """Give the memory of a column back: it has no rows of its own then. What it counted stays counted until
    the batch goes."""
    cdef OutputColumn* oc = &o.cols[j]
    output_give(oc.data, o.keep)
    output_give(oc.valid, o.keep)
    output_give(oc.heap, o.keep)
    if oc.child != NULL:
        output_give(oc.child.data, o.keep)
        output_give(oc.child.heap, o.keep)
        free(oc.child)
    memset(oc, 0, sizeof(OutputColumn))
    oc.source = -1


cdef void output_free(Output* o) noexcept nogil:
    cdef int32_t j
    if o.pool != NULL:
        # no partner: only a batch that nobody takes any more comes here
        add_relaxed(&o.pool.bytes, -o.bytes)
    if o.lent != NULL:
        add_acq_rel(o.lent, -1)                               # pairs with load_acquire in Run.retire
    for j in range(o.ncols):
        output_drop(o, j)
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
        if o.cols[j].source >= 0:
            continue
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


cdef int list_larger(Output* o, OutputColumn* oc, int64_t size, int32_t element, bint first) noexcept nogil:
    """Room for `size` more elements. Returns as heap_append."""
    cdef OutputColumn* child = oc.child
    cdef int64_t need = oc.child_rows + size
    cdef int64_t width = 4 if element == PT_VIEW else WIDTHS[element]
    cdef int64_t cap = larger_capacity(o, oc.child_capacity, need,
                                       enough(o, oc.child_rows, need), width, first)
    cdef void* p
    if cap < 0:
        return -2
    cap = max(cap, need + 1)                                  # offsets are one more than elements
    p = taken(o, child.data, oc.child_capacity * width, cap * width)
    if p == NULL:
        return -1
    child.data = <char*> p
    if oc.child_capacity == 0 and element == PT_VIEW:
        (<int32_t*> child.data)[0] = 0
    oc.child_capacity = cap
    return 0


cdef int list_append(Output* o, OutputColumn* oc, const View* v, int32_t element, bint first) noexcept nogil:
    """Append the elements of one list to the child column. Returns as heap_append; what a row that does not
    fit has left is cut off."""
    cdef OutputColumn* child = oc.child
    cdef int64_t need = oc.child_rows + v.size
    cdef int64_t width = 4 if element == PT_VIEW else WIDTHS[element]
    cdef int64_t i
    cdef int rc
    if need + 1 > oc.child_capacity:
        rc = list_larger(o, oc, v.size, element, first)
        if rc != 0:
            return rc
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


cdef inline void copy_bytes(char* to, const char* at, int64_t n) noexcept nogil:
    """memcpy for values that mostly are short. Cost: ~1 ns up to 32 bytes."""
    if n > 32:
        memcpy(to, at, <size_t> n)
    elif n > 16:
        memcpy(to, at, 16)
        memcpy(to + n - 16, at + n - 16, 16)
    elif n >= 8:
        memcpy(to, at, 8)
        memcpy(to + n - 8, at + n - 8, 8)
    elif n >= 4:
        memcpy(to, at, 4)
        memcpy(to + n - 4, at + n - 4, 4)
    elif n > 0:
        to[0] = at[0]
        to[n >> 1] = at[n >> 1]
        to[n - 1] = at[n - 1]


cdef int64_t measure_views(const Column* col, const int32_t* sel, int64_t n, int32_t* offsets,
                           const char** first, int64_t width) noexcept nogil:
    """Offsets of n strings, or lists of values of `width` bytes, behind offsets[0]. Returns how many bytes
    or values they have; -1: more than offsets can say.

    first: where they begin, if they lie side by side, as an import leaves them; else NULL.
    """
    cdef const View* views = <const View*> col.data
    cdef const char* end = NULL
    cdef int64_t begin = offsets[0]
    cdef int64_t total = 0
    cdef int64_t size
    cdef bint beside = True
    cdef int64_t i
    cdef int64_t s
    first[0] = NULL
    for i in range(n):
        s = sel[i] if sel != NULL else i
        size = 0
        if col.valid == NULL or col.valid[s]:
            size = views[s].size
        if size:
            if total == 0:
                first[0] = views[s].data
            elif views[s].data != end:
                beside = False
            end = views[s].data + size * width
            total += size
            if begin + total > offset_limit:
                return -1
        offsets[i + 1] = <int32_t> (begin + total)
    if not beside:
        first[0] = NULL
    return total


cdef void copy_views(const Column* col, const int32_t* sel, int64_t n, const int32_t* offsets, char* to,
                     int64_t width) noexcept nogil:
    """The bytes of what was measured."""
    cdef const View* views = <const View*> col.data
    cdef int64_t size
    cdef int64_t i
    for i in range(n):
        size = (offsets[i + 1] - offsets[i]) * width
        if size:
            copy_bytes(to, views[sel[i] if sel != NULL else i].data, size)
            to += size


cdef bint views_at_once(Output* o, OutputColumn* oc, int32_t element, const Column* col, const int32_t* sel,
                        int64_t n, int64_t base) noexcept nogil:
    """Append strings (element -1), or lists of values of fixed width. False: they don't all fit, or there is
    no memory; nothing was appended."""
    cdef int32_t* offsets = <int32_t*> oc.data + base
    cdef int64_t width = 1 if element < 0 else WIDTHS[element]
    cdef const char* first
    cdef char* to
    cdef int64_t size = measure_views(col, sel, n, offsets, &first, width)
    if size < 0:
        return False
    if element < 0:
        if oc.heap_size + size > oc.heap_capacity and heap_larger(o, oc, size, False) != 0:
            return False
        to = oc.heap + oc.heap_size
        oc.heap_size += size
    else:
        if oc.child_rows + size + 1 > oc.child_capacity and list_larger(o, oc, size, element, False) != 0:
            return False
        to = oc.child.data + oc.child_rows * width
        oc.child_rows += size
    if size and first != NULL:
        memcpy(to, first, <size_t> (size * width))
    elif size:
        copy_views(col, sel, n, offsets, to, width)
    return True


cdef int64_t output_views(Output* o, int32_t j, const Column* col, const int32_t* sel, int64_t n,
                          int64_t base) noexcept nogil:
    """output_column for strings and lists."""
    cdef OutputColumn* oc = &o.cols[j]
    cdef int32_t type = o.layout.type[j]
    cdef int32_t element = o.layout.element[j]
    cdef View empty
    cdef View* v
    cdef int64_t i
    cdef int64_t s
    cdef int rc
    if element != PT_VIEW and views_at_once(o, oc, element if type == PT_LIST else -1, col, sel, n, base):
        return n
    empty.data = NULL
    empty.size = 0
    for i in range(n):                                        # as many as there is room for
        s = sel[i] if sel != NULL else i
        v = &(<View*> col.data)[s]
        if col.valid != NULL and not col.valid[s]:
            v = &empty
        if type == PT_VIEW:
            rc = heap_append(o, oc, v, base + i == 0)
            (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.heap_size
        else:
            rc = list_append(o, oc, v, element, base + i == 0)
            (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.child_rows
        if rc != 0:
            return -1 - i if rc == -1 else i
    return n


cdef int64_t output_column(Output* o, int32_t j, const Column* col, const int32_t* sel, int64_t n,
                           int64_t base) noexcept nogil:
    """Append values of a column behind `base` rows: slots `sel`, or the first n. Returns how many had room;
    below 0: no memory.

    Thread safety: the batch's writer. Ownership: values are copied; the caller cuts what it does not keep.
    Cost: a memcpy, or ~0.5 ns per value, ~2 ns per string or list.
    """
    cdef OutputColumn* oc = &o.cols[j]
    if o.layout.type[j] == PT_VIEW or o.layout.type[j] == PT_LIST:
        n = output_views(o, j, col, sel, n, base)
        if n <= 0:
            return n
    else:
        gather(oc.data + base * o.layout.width[j], col.data, sel, n, o.layout.width[j])
    if col.valid != NULL:
        if oc.valid == NULL:
            oc.valid = <uint8_t*> taken(o, NULL, 0, o.capacity + 8)
            if oc.valid == NULL:
                return -1
            memset(oc.valid, 1, base)
        gather(<char*> oc.valid + base, <const char*> col.valid, sel, n, 1)
    elif oc.valid != NULL:
        memset(oc.valid + base, 1, n)
    return n


cdef int64_t output_append(Output* o, Chunk* c, int64_t start, int64_t n) noexcept nogil:
    """Append `n` of the chunk's selected rows from the start-th on. Returns how many: fewer where the next
    one has no room (`over`), none where the batch has no room at all; -1: no memory, and the batch is as it
    was. An empty batch takes a row of any width that offsets can say.

    Thread safety: one writer. Ownership: values are copied; those of lent columns are there already. Cost:
    one gather per column; bytes are counted where a buffer grows.
    """
    cdef int64_t base = o.rows
    cdef int32_t j
    cdef int32_t k
    cdef int64_t i
    cdef int64_t done
    cdef Column col
    cdef const int32_t* sel = c.sel + start if c.sel != NULL else NULL
    o.over = -1
    if base + n > o.capacity:
        if output_grow(o, base + n) != 0:
            return -1
        n = min(n, o.capacity - base)
    if n == 0:
        return 0
    for j in range(o.ncols):
        if o.cols[j].source >= 0:
            continue
        col = c.cols[j]
        if sel == NULL and start:
            col.data += start * o.layout.width[j]
            if col.valid != NULL:
                col.valid += start
        if n == 1 and o.layout.width[j] == 8 and col.valid == NULL and o.cols[j].valid == NULL:
            (<int64_t*> o.cols[j].data)[base] = (<int64_t*> col.data)[sel[0] if sel != NULL else 0]
            continue
        done = output_column(o, j, &col, sel, n, base)
        if done < n:
            o.over = j
            n = max(done, <int64_t> 0)
            for k in range(j + 1):
                if o.cols[k].source < 0:
                    cut_column(&o.cols[k], o.layout.type[k], o.layout.element[k], base + n)
            if done < 0:
                return -1
            if n == 0:
                return 0
    if o.serials != NULL:
        for i in range(n):
            o.serials[base + i] = slot_serial(c, sel[i] if sel != NULL else <int32_t> (start + i))
    o.rows = base + n
    return n
