"""Row queue: the last rows of a key, oldest first, in columns of any type.

An entry is one block of memory: a link, a byte per column that says whether there is a value, the values in
their own widths, then the bytes of strings and lists, to which its views point. A row that takes the place
of another one takes its block too where that is large enough. What is shown of an entry is copied into the
output's arena, for the entry may be gone before its reader comes; at the end of the stream it stays.

Thread safety: the holder of the bucket. Ownership: a queue owns its entries; `held` counts their bytes.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport Chunk, Column, LayoutOwner, View, Worker
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.held_memory cimport Held

cdef enum:
    MOST_EXPECTED = 512        # bytes of an entry that are prefetched
    APART_EXPECTED = 64        # of these for strings and lists

cdef struct RowSpec:
    # Which columns of a row are kept, and where in an entry. Read-only while a run lasts. Memory ownership:
    # RowSpecOwner.
    int32_t n
    int32_t* column        # input column of each
    int32_t* width         # bytes of a value
    int32_t* offset        # of its value in an entry
    int32_t* unit          # bytes of an element of a string or list; 0: neither
    int32_t own            # offset of bytes of the caller's own, which are not written down
    int32_t fixed          # bytes of an entry without those of strings and lists
    int32_t plain          # all values are words of 64 bits
    int32_t apart          # some are strings or lists

cdef struct Entry:
    # Memory ownership: its queue; of held_take. Behind it: flags, values, bytes (RowSpec).
    Entry* next
    int64_t room           # bytes of the block

cdef struct Queue:
    # State of a key. Zeroed memory: no row came.
    Entry* oldest
    Entry* newest
    int32_t n              # entries
    int32_t used           # 1: a row came
    int64_t start          # with `within`: time of the first row of the entry, or of the one that was given
    int64_t latest         # and of the last row

cdef class RowSpecOwner:
    # Memory ownership: allocates and frees the arrays of `spec`.
    cdef RowSpec spec

cdef Entry* entry_of(const RowSpec* x, Held* held, const Chunk* c, int32_t row, Entry* old) noexcept nogil
cdef int show_entry(const RowSpec* x, Worker* w, Entry* entry, Chunk* out, int32_t first, int32_t index,
                    bint copies) noexcept nogil
cdef void queue_drop(Queue* q, Held* held) noexcept nogil
cdef int queue_write(const RowSpec* x, Worker* w, const Queue* q, Chunk* out, View* to_view) noexcept nogil
cdef int32_t queue_read(const RowSpec* x, Held* held, const View* v, int64_t n, Queue* q) noexcept nogil


cdef inline char* flag_of(Entry* entry, int32_t j) noexcept nogil:
    return <char*> (entry + 1) + j


cdef inline char* own_of(const RowSpec* x, Entry* entry) noexcept nogil:
    return <char*> entry + x.own


cdef inline void copy_short(char* to, const char* data, int64_t size) noexcept nogil:
    """memcpy of bytes that mostly are few, without a call: what overlaps is written twice."""
    if size > 32:
        memcpy(to, data, <size_t> size)
    elif size >= 16:
        memcpy(to, data, 16)
        memcpy(to + size - 16, data + size - 16, 16)
    elif size >= 8:
        memcpy(to, data, 8)
        memcpy(to + size - 8, data + size - 8, 8)
    elif size >= 4:
        memcpy(to, data, 4)
        memcpy(to + size - 4, data + size - 4, 4)
    elif size:
        to[0] = data[0]
        to[size >> 1] = data[size >> 1]
        to[size - 1] = data[size - 1]


cdef inline bint is_null(const Column* source, int32_t row) noexcept nogil:
    return source.valid != NULL and source.valid[row] == 0


cdef inline int show_row(const RowSpec* x, Worker* w, Entry* entry, Chunk* out, int32_t first, int32_t index,
                         bint copies) noexcept nogil:
    """show_entry, at once where all values are words and there."""
    cdef Column* to
    cdef int32_t j
    if entry == NULL or not x.plain:
        return show_entry(x, w, entry, out, first, index, copies)
    for j in range(x.n):
        if flag_of(entry, j)[0] == 0:
            return show_entry(x, w, entry, out, first, index, copies)
        to = &out.cols[first + j]
        (<int64_t*> to.data)[index] = (<const int64_t*> (<char*> entry + x.offset[j]))[0]
        if to.valid != NULL:
            to.valid[index] = 1
    return 0


cdef inline void expect_entry(const RowSpec* x, int64_t entry) noexcept nogil:
    """Prefetch an entry that will be shown, or whose block another row will take. Keys come in any order,
    so these lines are mostly far away; fetched together their ways overlap."""
    cdef int64_t at = 0
    while at < x.fixed + x.apart * APART_EXPECTED and at < MOST_EXPECTED:
        prefetch_write(<char*> entry + at)
        at += 64


cdef inline Entry* take_oldest(Queue* q) noexcept nogil:
    """Out of the queue, which has one."""
    cdef Entry* entry = q.oldest
    q.oldest = entry.next
    q.n -= 1
    if q.n == 0:
        q.newest = NULL
    return entry


cdef inline void put_newest(Queue* q, Entry* entry) noexcept nogil:
    entry.next = NULL
    if q.n:
        q.newest.next = entry
    else:
        q.oldest = entry
    q.newest = entry
    q.n += 1


cdef inline void put_back(Queue* q, Entry* entry) noexcept nogil:
    """Undo take_oldest."""
    entry.next = q.oldest
    q.oldest = entry
    if q.n == 0:
        q.newest = entry
    q.n += 1
