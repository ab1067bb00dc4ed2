"""The last rows of a key. See row_queue.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, PT_LIST, PT_VIEW, Chunk, Column, LayoutOwner, View, Worker, chunk_alloc,
)
from ordstream._core.ground.list_values cimport LIST_NULLS, view_bytes
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.held_memory cimport held_give, held_take
from ordstream._core.state.state_columns cimport put_valid


cdef Entry* entry_room(Held* held, Entry* old, int64_t need) noexcept nogil:
    """A block of `need` bytes: that of `old` where it fits (not four times too large), else a new one, and
    `old` is gone. NULL: no memory, and `old` is still there."""
    cdef Entry* entry
    if old != NULL and old.room >= need and old.room <= 4 * need:
        return old
    entry = <Entry*> held_take(held, need)
    if entry == NULL:
        return NULL
    entry.room = need
    if old != NULL:
        held_give(held, old, old.room)
    return entry


cdef Entry* entry_of(const RowSpec* x, Held* held, const Chunk* c, int32_t row,
                     Entry* old) noexcept nogil:
    """A row as an entry, in the block of `old` where it fits. NULL: no memory, and `old` is still there."""
    cdef const Column* cols = c.cols                         # what is written may be anything, to a compiler
    cdef const int32_t* column = x.column
    cdef const int32_t* offset = x.offset
    cdef const int32_t* width = x.width
    cdef const int32_t* unit = x.unit
    cdef int32_t n = x.n
    cdef const Column* source
    cdef const View* v
    cdef View* to
    cdef Entry* entry
    cdef char* bytes
    cdef char* flags
    cdef int64_t size
    cdef int64_t need = x.fixed
    cdef int32_t j
    for j in range(n if x.apart else 0):
        if unit[j] and not is_null(&cols[column[j]], row):
            need += view_bytes((<const View*> cols[column[j]].data)[row].size, unit[j]) + 7 & ~<int64_t> 7
    entry = entry_room(held, old, need)
    if entry == NULL:
        return NULL
    entry.next = NULL
    bytes = <char*> entry + x.fixed
    flags = <char*> (entry + 1)
    for j in range(n):
        source = &cols[column[j]]
        if is_null(source, row):
            flags[j] = 0
            continue
        flags[j] = 1
        if unit[j]:
            v = &(<const View*> source.data)[row]
            to = <View*> (<char*> entry + offset[j])
            to.data = bytes
            to.size = v.size
            size = view_bytes(v.size, unit[j])
            copy_short(bytes, v.data, size)
            bytes += size + 7 & ~<int64_t> 7
        elif width[j] == 8:
            (<int64_t*> (<char*> entry + offset[j]))[0] = (<const int64_t*> source.data)[row]
        else:
            memcpy(<char*> entry + offset[j], source.data + <int64_t> row * width[j], width[j])
    return entry


cdef int show_entry(const RowSpec* x, Worker* w, Entry* entry, Chunk* out, int32_t first, int32_t index,
                    bint copies) noexcept nogil:
    """Write an entry (NULL: nulls) into columns first.. of a reserved row. `copies`: strings and lists too,
    since the entry may be gone before they are read. 0, or -1: no memory."""
    cdef Column* cols = out.cols + first                     # what is written may be anything, to a compiler
    cdef const int32_t* offset = x.offset
    cdef const int32_t* width = x.width
    cdef const int32_t* unit = x.unit
    cdef const char* flags = <const char*> (entry + 1)
    cdef int32_t n = x.n
    cdef View* v
    cdef char* bytes
    cdef char* to
    cdef int64_t size
    cdef int32_t j
    cdef bint there
    for j in range(n):
        there = entry != NULL and flags[j] != 0
        to = cols[j].data + <int64_t> index * width[j]
        if not there:
            memset(to, 0, width[j])
        elif unit[j]:
            v = <View*> to
            v[0] = (<const View*> (<char*> entry + offset[j]))[0]
            size = view_bytes(v.size, unit[j])
            if copies and size:
                bytes = chunk_alloc(w, out, size)
                if bytes == NULL:
                    return -1
                copy_short(bytes, v.data, size)
                v.data = bytes
        elif width[j] == 8:
            (<int64_t*> to)[0] = (<const int64_t*> (<char*> entry + offset[j]))[0]
        else:
            memcpy(to, <char*> entry + offset[j], width[j])
        if (not there or cols[j].valid != NULL) and put_valid(w, out, first + j, index, there) != 0:
            return -1
    return 0


cdef void queue_drop(Queue* q, Held* held) noexcept nogil:
    """Give back the entries of a queue; it is then as zeroed."""
    cdef Entry* entry
    while q.oldest != NULL:
        entry = q.oldest
        q.oldest = entry.next
        held_give(held, entry, entry.room)
    memset(q, 0, sizeof(Queue))


cdef int64_t written_size(const RowSpec* x, const Queue* q) noexcept nogil:
    cdef Entry* entry = q.oldest
    cdef int64_t size = 0
    cdef int32_t j
    while entry != NULL:
        for j in range(x.n):
            size += 1
            if flag_of(entry, j)[0] == 0:
                continue
            if x.unit[j]:
                size += 8 + view_bytes((<View*> (<char*> entry + x.offset[j])).size, x.unit[j])
            else:
                size += x.width[j]
        entry = entry.next
    return size


cdef int queue_write(const RowSpec* x, Worker* w, const Queue* q, Chunk* out, View* to_view) noexcept nogil:
    """The rows of a queue as bytes: per row and column a flag, then the value, or the number of elements of
    a string or list and these. 0, or -1: no memory. Ownership: out's arena."""
    cdef Entry* entry = q.oldest
    cdef const View* v
    cdef char* to
    cdef int32_t j
    to_view.size = written_size(x, q)
    to = chunk_alloc(w, out, to_view.size + 1)
    if to == NULL:
        return -1
    to_view.data = to
    while entry != NULL:
        for j in range(x.n):
            to[0] = flag_of(entry, j)[0]
            to += 1
            if flag_of(entry, j)[0] == 0:
                continue
            if x.unit[j] == 0:
                memcpy(to, <char*> entry + x.offset[j], x.width[j])
                to += x.width[j]
                continue
            v = <const View*> (<char*> entry + x.offset[j])
            memcpy(to, &v.size, 8)
            if v.size:
                memcpy(to + 8, v.data, <size_t> view_bytes(v.size, x.unit[j]))
            to += 8 + view_bytes(v.size, x.unit[j])
        entry = entry.next
    return 0


cdef int32_t read_entry(const RowSpec* x, Held* held, const char* at, const char* end,
                        Entry** made, int64_t* taken) noexcept nogil:
    """An entry of written bytes; how many they were. 0, FAIL_STATE or FAIL_MEMORY."""
    cdef const char* p = at
    cdef int64_t need = x.fixed
    cdef int64_t size
    cdef Entry* entry
    cdef bint there
    cdef char* bytes
    cdef int32_t j
    for j in range(x.n):
        if p >= end or p[0] < 0 or p[0] > 1:
            return FAIL_STATE
        there = p[0] != 0
        p += 1
        if not there:
            continue
        size = x.width[j]
        if x.unit[j]:
            if end - p < 8:
                return FAIL_STATE
            memcpy(&size, p, 8)
            p += 8
            if size < 0 or (size if size < LIST_NULLS else size - LIST_NULLS) > (end - p) // x.unit[j]:
                return FAIL_STATE
            size = view_bytes(size, x.unit[j])
            need += size + 7 & ~<int64_t> 7
        if end - p < size:
            return FAIL_STATE
        p += size
    taken[0] = p - at
    entry = entry_room(held, NULL, need)
    if entry == NULL:
        return FAIL_MEMORY
    bytes = <char*> entry + x.fixed
    p = at
    for j in range(x.n):
        flag_of(entry, j)[0] = p[0]
        p += 1
        if flag_of(entry, j)[0] == 0:
            continue
        if x.unit[j] == 0:
            memcpy(<char*> entry + x.offset[j], p, x.width[j])
            p += x.width[j]
            continue
        memcpy(&size, p, 8)
        (<View*> (<char*> entry + x.offset[j])).data = bytes
        (<View*> (<char*> entry + x.offset[j])).size = size
        size = view_bytes(size, x.unit[j])
        if size:
            memcpy(bytes, p + 8, <size_t> size)
        bytes += size + 7 & ~<int64_t> 7
        p += 8 + size
    made[0] = entry
    return 0


cdef int32_t queue_read(const RowSpec* x, Held* held, const View* v, int64_t n, Queue* q) noexcept nogil:
    """Fill an empty queue with n entries of written bytes. 0, FAIL_STATE or FAIL_MEMORY: what is in the
    queue then is the caller's to drop."""
    cdef const char* at = v.data
    cdef Entry* entry = NULL
    cdef int64_t taken = 0
    cdef int32_t code
    while n > 0:
        code = read_entry(x, held, at, v.data + v.size, &entry, &taken)
        if code != 0:
            return code
        put_newest(q, entry)
        at += taken
        n -= 1
    return 0 if at == v.data + v.size else <int32_t> FAIL_STATE


cdef class RowSpecOwner:
    """Which columns of a row are kept.

    Parameters
    ----------
    kept : sequence of int
    layout : LayoutOwner
        Of the row.
    own : int
        Bytes of an entry that are the caller's own (`own_of`).
    """

    def __cinit__(self, kept, LayoutOwner layout, own=0):
        cdef int32_t j
        cdef int32_t at
        cdef RowSpec* x = &self.spec
        kept = list(kept)
        x.n = <int32_t> len(kept)
        x.column = <int32_t*> calloc(4 * (x.n + 1), sizeof(int32_t))
        if x.column == NULL:
            raise MemoryError
        x.width = x.column + (x.n + 1)
        x.offset = x.width + (x.n + 1)
        x.unit = x.offset + (x.n + 1)
        at = <int32_t> sizeof(Entry) + ((x.n + 7) & ~7)
        x.plain = 1
        for j in range(x.n):
            x.column[j] = kept[j]
            x.width[j] = layout.layout.width[x.column[j]]
            x.offset[j] = at
            at += (x.width[j] + 7) & ~7
            x.plain = x.plain and x.width[j] == 8
            x.apart = x.apart or layout.layout.type[x.column[j]] in (PT_VIEW, PT_LIST)
            if layout.layout.type[x.column[j]] == PT_VIEW:
                x.unit[j] = 1
            elif layout.layout.type[x.column[j]] == PT_LIST:
                x.unit[j] = WIDTHS[layout.layout.element[x.column[j]]]
        x.own = at
        x.fixed = at + ((<int32_t> own + 7) & ~7)

    def __dealloc__(self):
        free(self.spec.column)
