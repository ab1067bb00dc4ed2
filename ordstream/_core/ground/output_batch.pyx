"""Appending to output batches (output_batch.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_acq_rel, add_relaxed
from ordstream._core.ground.chunk cimport PT_LIST, PT_VIEW, Chunk, Column, Layout, View, slot_serial
from ordstream._core.ground.list_values cimport LIST_NULLS
from ordstream._core.ground.output_columns cimport (
    Output, OutputColumn, copy_bytes, cut_column, heap_append, heap_larger, list_append, list_larger,
    offset_limit, taken, valid_room,
)
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.ground.source_values cimport SourceRows
from ordstream._core.ground.unread_columns cimport output_unread
from ordstream._core.ground.widths cimport WIDTHS


cdef extern from "output_memory.hpp" nogil:
    void* output_take "ord_output_take"(size_t size)
    void output_give "ord_output_give"(void* data, size_t most)

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
        output_give(oc.child.valid, o.keep)
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


cdef int64_t measure_views(const Column* col, const int32_t* sel, int64_t n, int32_t* offsets,
                           const char** first, int64_t width) noexcept nogil:
    """Offsets of n strings, or lists of values of `width` bytes, behind offsets[0]. Returns how many bytes
    or values they have; -1: more than offsets can say, or a list has nulls.

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
            if size >= LIST_NULLS:
                return -1
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
        if oc.child_rows + size > oc.child_capacity and list_larger(o, oc, size, element, False) != 0:
            return False
        to = oc.child.data + oc.child_rows * width
        if oc.child.valid != NULL:
            memset(oc.child.valid + oc.child_rows, 1, <size_t> size)
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
    if views_at_once(o, oc, element if type == PT_LIST else -1, col, sel, n, base):
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
        if valid_room(o, oc, base) != 0:
            return -1
        gather(<char*> oc.valid + base, <const char*> col.valid, sel, n, 1)
    elif oc.valid != NULL:
        memset(oc.valid + base, 1, n)
    return n


cdef inline int64_t output_read(Output* o, int32_t j, const Chunk* c, const int32_t* sel, int64_t slot,
                                int64_t n, int64_t base) noexcept nogil:
    """output_column of slots `sel` of a chunk's column, or of those from `slot` on."""
    cdef Column col = c.cols[j]
    if sel == NULL and slot:
        col.data += slot * o.layout.width[j]
        if col.valid != NULL:
            col.valid += slot
    if n == 1 and o.layout.width[j] == 8 and col.valid == NULL and o.cols[j].valid == NULL:
        (<int64_t*> o.cols[j].data)[base] = (<int64_t*> col.data)[sel[0] if sel != NULL else 0]
        return 1
    return output_column(o, j, &col, sel, n, base)


cdef int64_t output_append(Output* o, Chunk* c, int64_t start, int64_t n,
                           const SourceRows* source=NULL) noexcept nogil:
    """Append `n` of the chunk's selected rows from the start-th on. Returns how many: fewer where the next
    one has no room (`over`), none where the batch has no room at all; -1: no memory, and the batch is as it
    was. An empty batch takes a row of any width that offsets can say. `source`: where columns that pass
    unread are; NULL: there are none.

    Thread safety: one writer. Ownership: values are copied; those of lent columns are there already. Cost:
    one gather per column; bytes are counted where a buffer grows.
    """
    cdef int64_t base = o.rows
    cdef int32_t j
    cdef int32_t k
    cdef int64_t i
    cdef int64_t done
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
        if source != NULL and source.passing.column[j] >= 0:
            done = output_unread(o, j, source, source.passing.column[j],
                                 source.rows + start if source.rows != NULL else sel, start, n, base)
        else:
            done = output_read(o, j, c, sel, start, n, base)
        if done < n:
            o.over = j
            n = max(done, <int64_t> 0)
            for k in range(j + 1):
                if o.cols[k].source < 0:
                    cut_column(&o.cols[k], o.layout.type[k], base + n)
            if done < 0:
                return -1
            if n == 0:
                return 0
    if o.serials != NULL:
        for i in range(n):
            o.serials[base + i] = slot_serial(c, sel[i] if sel != NULL else <int32_t> (start + i))
    o.rows = base + n
    return n
