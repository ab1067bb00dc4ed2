"""Operator "rejected": of the rows that another operator takes, those that it rejected, with the error.

They lie on a lane of their own, beside those of that operator, since a branch in front of both; so they keep
their place in the order, and that operator's columns are as without it.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, Chunk, View, Worker, chunk_alloc, chunk_new, chunk_reserve, chunk_set_valid,
    row_slot, scratch_alloc, slot_serial,
)
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, owner_setup
from ordstream._core.ground.rejections cimport (
    Rejection, Rejections, rejection_bytes, rejections_free, rejections_take,
)


cdef Chunk* no_rows(Kernel* k, Chunk* c) noexcept nogil:
    """The chunk with the output's columns and no rows."""
    cdef int32_t j
    for j in range(c.ncols, k.output.ncols):
        c.cols[j].data = NULL
        c.cols[j].valid = NULL
    c.ncols = k.output.ncols
    c.n = 0
    return c


cdef Rejection** by_row(Worker* w, Chunk* c, Rejection* taken, int32_t* n) noexcept nogil:
    """The rejection of each slot of the chunk, or NULL, and how many of its rows have one. NULL: no
    memory."""
    cdef Rejection** found = <Rejection**> scratch_alloc(w, <int64_t> c.slots * sizeof(Rejection*) + 1)
    cdef int32_t i
    if found == NULL:
        return NULL
    memset(found, 0, <size_t> c.slots * sizeof(Rejection*))
    while taken != NULL:
        if 0 <= taken.slot < c.slots:
            found[taken.slot] = taken
        taken = taken.next
    n[0] = 0
    for i in range(c.n):
        n[0] += found[row_slot(c, i)] != NULL
    return found


cdef int copy_row(Kernel* k, Worker* w, const Chunk* c, int32_t slot, Chunk* out) noexcept nogil:
    """Append the columns of the input row. 0, or -1: no memory."""
    cdef int64_t width
    cdef int32_t j
    for j in range(k.input.ncols):
        width = k.output.width[j]
        if c.cols[j].data == NULL:                   # nothing behind reads it
            memset(out.cols[j].data + out.n * width, 0, width)
        else:
            memcpy(out.cols[j].data + out.n * width, c.cols[j].data + slot * width, width)
        if c.cols[j].valid != NULL and (out.cols[j].valid != NULL or not c.cols[j].valid[slot]):
            if chunk_set_valid(w, out, j) != 0:
                return -1
            out.cols[j].valid[out.n] = c.cols[j].valid[slot]
    out.origin[out.n] = slot
    return 0


cdef int tell(const RejectedContext* x, Kernel* k, Worker* w, int64_t serial, const Rejection* r,
              Chunk* out) noexcept nogil:
    """Write the columns of the error. 0, or -1: no memory."""
    cdef int32_t j = k.input.ncols
    cdef int64_t size = <int64_t> r.type_size + r.text_size
    cdef char* text = chunk_alloc(w, out, size + 1)
    cdef View* view
    if text == NULL:
        return -1
    memcpy(text, rejection_bytes(r), size)
    (<View*> out.cols[j].data)[out.n] = x.name
    (<int64_t*> out.cols[j + 1].data)[out.n] = serial
    view = &(<View*> out.cols[j + 2].data)[out.n]
    view.data = text
    view.size = r.type_size
    view = &(<View*> out.cols[j + 3].data)[out.n]
    view.data = text + r.type_size
    view.size = r.text_size
    return 0


cdef Chunk* rejected_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Keep the rejected rows. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: the new chunk's views point into `c`. Returns: `c` without rows, or
    a new chunk. Cost: one load where nothing was rejected, else a pass over the rows.
    """
    cdef const RejectedContext* x = <const RejectedContext*> k.ctx
    cdef Rejection* taken = NULL
    cdef Rejection** found
    cdef Chunk* out
    cdef int32_t n = 0
    cdef int32_t i
    cdef int32_t slot
    if c.n:
        taken = rejections_take(x.table, c.fork, row_slot(c, 0), row_slot(c, c.n - 1))
    if taken == NULL:
        return no_rows(k, c)
    found = by_row(w, c, taken, &n)
    out = chunk_new(w) if found != NULL else NULL
    if out == NULL or chunk_reserve(w, out, k.output, n + 1) != 0:
        rejections_free(taken)
        chunk_fail_all(c, -1, FAIL_MEMORY)
        return out
    for i in range(c.n):
        slot = row_slot(c, i)
        if found[slot] == NULL:
            continue
        if copy_row(k, w, c, slot, out) != 0 or (
                x.told and tell(x, k, w, slot_serial(c, slot), found[slot], out) != 0):
            chunk_fail_all(c, slot, FAIL_MEMORY)
            break
        out.n += 1
        out.slots = out.n
    rejections_free(taken)
    return out


cdef class RejectedKernel(KernelOwner):
    """Operator "rejected": attributes {"of": name of the operator that rejects, "told": bool}."""

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        self.rejections = Rejections()
        self.name = operator.of.encode()
        self.context.table = &self.rejections.table
        self.context.name.data = self.name
        self.context.name.size = len(self.name)
        self.context.told = operator.told
        self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.context
        self.kernel.apply = rejected_apply
