"""Rows with time punctuations among them (marked_rows.pxd states the design)."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport (
    DATA, TIME, Chunk, Layout, Worker, chunk_alloc, chunk_free, chunk_new, chunk_reserve, slot_serial,
)

cdef enum:
    FIRST_ROWS = 16            # room of a chunk behind a mark


cdef Chunk* marked_row(Worker* w, Chunk* out, const Layout* layout, int64_t time,
                       int32_t origin) noexcept nogil:
    """Put a mark behind the rows of `out`, caused by the row in slot `origin`.

    Thread safety: the bucket's holder. Ownership: of `out`, whose `link` is NULL. Returns: the chunk to go
    on in; NULL: no memory.
    """
    cdef Chunk* mark = chunk_new(w)
    cdef Chunk* behind
    if mark == NULL:
        return NULL
    behind = chunk_new(w)
    if behind == NULL or chunk_reserve(w, behind, layout, FIRST_ROWS) != 0:
        chunk_free(w, mark)
        if behind != NULL:
            chunk_free(w, behind)
        return NULL
    mark.kind = TIME
    mark.time = time
    mark.slots = origin                            # until marked_date
    mark.link = behind
    out.link = mark
    return behind


cdef Chunk* marked_rest(Chunk* c) noexcept nogil:
    """Take what an operator put behind the first chunk of its output for `c`; NULL: nothing."""
    cdef Chunk* rest
    if c.nparts != 1 or c.parts[0].out == NULL:
        return NULL
    rest = c.parts[0].out.link
    c.parts[0].out.link = NULL
    return rest


cdef int64_t marked_date(Worker* w, Chunk* rest, const Chunk* source, const Layout* layout,
                         int32_t maker) noexcept nogil:
    """Give serials to what marked_rest took, from the input chunk. Returns: how many rows it has, or -1: no
    memory."""
    cdef Chunk* c = rest
    cdef int64_t rows = 0
    cdef int32_t i
    while c != NULL:
        if c.kind == TIME:
            c.first_serial = slot_serial(source, c.slots)
            c.last_serial = c.first_serial
            c.slots = 0
            c.failed_operator = maker
        else:
            rows += c.n
            c.serials = <int64_t*> chunk_alloc(w, c, <int64_t> c.n * 8 + 8)
            if c.serials == NULL:
                return -1
            for i in range(c.n):
                c.serials[i] = slot_serial(source, c.origin[i])
            for i in range(layout.ncols):
                if layout.width[i] == 0:
                    c.cols[i].data = NULL          # the operator did not make it
        c = c.link
    return rows


cdef Chunk* marked_unit(Chunk* out, Chunk* rest) noexcept nogil:
    """One unit of an output chunk, which may have a failure behind it, and what marked_rest took. Returns
    its first chunk."""
    cdef Chunk* tail = out.link
    cdef Chunk* last = rest
    cdef Chunk* before = out
    cdef Chunk* c = rest
    while last.link != NULL:
        last = last.link
    last.last_serial = out.last_serial
    last.counted = out.counted
    last.arrived_ns = out.arrived_ns
    last.dispatched_ns = out.dispatched_ns
    out.counted = 0
    out.dispatched_ns = 0
    out.link = rest
    last.link = tail
    while c != NULL:                               # what is in front of a mark, and the last but one
        if c.kind == TIME and before.kind == DATA:
            before.last_serial = c.first_serial - 1
        if c.link == NULL:
            break
        before = c
        c = c.link
    before.link = NULL
    c.link = out
    c.time = LAST_IN_FRONT
    return c


cdef void marked_drop(Worker* w, Chunk* rest) noexcept nogil:
    """Give back what nobody takes any more."""
    cdef Chunk* following
    while rest != NULL:
        following = rest.link
        chunk_free(w, rest)
        rest = following
