"""Stateless kernels that turn a list into rows: pairs and explode. Contract: kernel.pxd (a)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_LIST, PT_VIEW, Chunk, Column, LayoutOwner, View, Worker, chunk_new, chunk_reserve,
    chunk_set_valid, row_slot, scratch_alloc,
)
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail, chunk_fail_all, owner_setup
from ordstream._core.ground.list_values cimport list_count, list_has_nulls, list_there, list_valid
from ordstream._core.ground.slot_values cimport gather

cdef extern from "list_ops.hpp" namespace "ord" nogil:
    int64_t sort_distinct(void* v, int type, int64_t n)
    void write_pairs(char* left, char* right, int64_t at, const void* v, int width, int64_t m)
    void repeat(char* out, const char* value, int width, int64_t n)

cdef enum:
    EXPECTED_MOST = 1 << 16    # output rows reserved at once: arrays that grow are copied

cdef struct FlatContext:
    # Read-only while a run lasts. Memory ownership: FlatKernel.
    int32_t column         # the list
    int32_t element        # PhysicalType of its elements
    int32_t width          # bytes per element
    int32_t ncarry
    int32_t* carry         # input columns repeated in front


cdef int carry_row(const FlatContext* x, Kernel* k, Worker* w, Chunk* c, Chunk* out, int32_t slot,
                   int64_t n) noexcept nogil:
    """Append the carried values of a row, and its origin, `n` times after out.n. 0, or -1: no memory."""
    cdef const Column* source
    cdef int32_t j
    cdef int32_t width
    cdef int64_t i
    for j in range(x.ncarry):
        source = &c.cols[x.carry[j]]
        width = k.output.width[j]
        if source.data == NULL or (source.valid != NULL and source.valid[slot] == 0):
            memset(out.cols[j].data + <int64_t> out.n * width, 0, <size_t> n * width)
        else:
            repeat(out.cols[j].data + <int64_t> out.n * width, source.data + <int64_t> slot * width, width,
                   n)
        if source.valid != NULL and source.valid[slot] == 0:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            memset(out.cols[j].valid + out.n, 0, n)
        elif out.cols[j].valid != NULL:
            memset(out.cols[j].valid + out.n, 1, n)
    for i in range(n):
        out.origin[out.n + i] = slot
    return 0


cdef inline int reserve(Kernel* k, Worker* w, Chunk* out, int64_t n) noexcept nogil:
    if out.n + n <= out.capacity:
        return 0
    if n > 0x7fffffff:
        return -1
    return chunk_reserve(w, out, k.output, <int32_t> n)


cdef int32_t rows_expected(const FlatContext* x, const Chunk* c, bint pairs) noexcept nogil:
    """Expected output rows of a chunk, if no list repeats an element; at most EXPECTED_MOST. Room for more
    is reserved when needed."""
    cdef const Column* lists = &c.cols[x.column]
    cdef int64_t total = 1
    cdef int64_t size
    cdef int32_t i
    cdef int32_t slot
    for i in range(c.n):
        slot = row_slot(c, i)
        if lists.valid == NULL or lists.valid[slot] != 0:
            size = min(list_count(&(<const View*> lists.data)[slot]), <int64_t> EXPECTED_MOST)
            total += size * (size - 1) // 2 if pairs else size
            if total >= EXPECTED_MOST:
                return EXPECTED_MOST
    return <int32_t> total


cdef Chunk* pairs_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """All pairs of the sorted distinct elements of each row's list.

    Thread safety: any worker. Ownership: a new chunk; its carried views point into `c`. Returns: it; `c`
    when there is no memory for one. Cost: the sort plus ~1 ns per pair and column.
    """
    cdef const FlatContext* x = <const FlatContext*> k.ctx
    cdef const Column* lists = &c.cols[x.column]
    cdef const View* v
    cdef Chunk* out = chunk_new(w)
    cdef char* elements = NULL
    cdef int64_t room = 0                       # elements that the scratch copy holds
    cdef int64_t m
    cdef int64_t n
    cdef int32_t i
    cdef int32_t slot
    if out == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if chunk_reserve(w, out, k.output, rows_expected(x, c, True)) != 0:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    for i in range(c.n):
        slot = row_slot(c, i)
        if lists.valid != NULL and lists.valid[slot] == 0:
            continue
        v = &(<const View*> lists.data)[slot]
        m = list_count(v)
        if m < 2:
            continue
        if m > room:
            room = max(m, room * 2, 64)
            elements = scratch_alloc(w, room * x.width)
            if elements == NULL:
                chunk_fail(c, slot, FAIL_MEMORY)
                return out
        m = sort_distinct(elements, x.element, list_there(v, x.width, elements))
        n = m * (m - 1) // 2
        if n == 0:
            continue
        if reserve(k, w, out, n) != 0 or carry_row(x, k, w, c, out, slot, n) != 0:
            chunk_fail(c, slot, FAIL_MEMORY)
            return out
        write_pairs(out.cols[x.ncarry].data, out.cols[x.ncarry + 1].data, out.n, elements, x.width, m)
        out.n += <int32_t> n
        out.slots = out.n
    return out


cdef int explode_at_once(const FlatContext* x, Kernel* k, Worker* w, Chunk* c, Chunk* out) noexcept nogil:
    """All elements of all lists, for which there is room: one pass per column. 0; -1: no memory; 1: a list
    has nulls, and nothing was done."""
    cdef const Column* lists = &c.cols[x.column]
    cdef const Column* source
    cdef const View* v
    cdef char* to = out.cols[x.ncarry].data
    cdef const char* begin = NULL              # of lists that lie side by side, as an import leaves them
    cdef const char* end = NULL
    cdef int32_t n = 0
    cdef int32_t i
    cdef int32_t j
    cdef int32_t slot
    for i in range(c.n):
        slot = row_slot(c, i)
        v = &(<const View*> lists.data)[slot]
        if v.size == 0 or (lists.valid != NULL and lists.valid[slot] == 0):
            continue
        if list_has_nulls(v):
            return 1
        if v.data != end:
            if end != NULL:
                memcpy(to, begin, end - begin)
                to += end - begin
            begin = v.data
        end = v.data + v.size * x.width
        for j in range(<int32_t> v.size):
            out.origin[n + j] = slot
        n += <int32_t> v.size
    if end != NULL:
        memcpy(to, begin, end - begin)
    for j in range(x.ncarry):
        source = &c.cols[x.carry[j]]
        if source.data == NULL:                              # a column that nothing reads
            out.cols[j].data = NULL
        else:
            gather(out.cols[j].data, source.data, out.origin, n, k.output.width[j])
        if source.valid != NULL:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            gather(<char*> out.cols[j].valid, <const char*> source.valid, out.origin, n, 1)
    out.n = n
    out.slots = n
    return 0


cdef int put_valid(Worker* w, Chunk* out, int32_t column, const uint8_t* valid, int64_t n) noexcept nogil:
    """Which of n values behind out.n are there; NULL: all. 0, or -1: no memory."""
    if valid != NULL and chunk_set_valid(w, out, column) != 0:
        return -1
    if valid != NULL:
        memcpy(out.cols[column].valid + out.n, valid, <size_t> n)
    elif out.cols[column].valid != NULL:
        memset(out.cols[column].valid + out.n, 1, <size_t> n)
    return 0


cdef Chunk* explode_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """One row per element of each row's list, in order.

    Thread safety: any worker. Ownership: a new chunk; its carried views point into `c`. Returns: it; `c`
    when there is no memory for one. Cost: ~1 ns per element and column.
    """
    cdef const FlatContext* x = <const FlatContext*> k.ctx
    cdef const Column* lists = &c.cols[x.column]
    cdef const View* v
    cdef Chunk* out = chunk_new(w)
    cdef int32_t expected
    cdef int64_t n
    cdef int32_t i
    cdef int32_t slot
    cdef int rc
    if out == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    expected = rows_expected(x, c, False)
    if chunk_reserve(w, out, k.output, expected) != 0:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    if expected < EXPECTED_MOST:
        rc = explode_at_once(x, k, w, c, out)
        if rc < 0:
            chunk_fail(c, -1, FAIL_MEMORY)
        if rc <= 0:
            return out
    for i in range(c.n):
        slot = row_slot(c, i)
        if lists.valid != NULL and lists.valid[slot] == 0:
            continue
        v = &(<const View*> lists.data)[slot]
        if v.size == 0:
            continue
        n = list_count(v)
        if (reserve(k, w, out, n) != 0 or carry_row(x, k, w, c, out, slot, n) != 0
                or put_valid(w, out, x.ncarry, list_valid(v, x.width), n) != 0):
            chunk_fail(c, slot, FAIL_MEMORY)
            return out
        memcpy(out.cols[x.ncarry].data + <int64_t> out.n * x.width, v.data, n * x.width)
        out.n += <int32_t> n
        out.slots = out.n
    return out


cdef class FlatKernel(KernelOwner):
    """Operators "pairs" and "explode": attributes {"column": a list column, "carry": [column,
    ...]}; `makes_pairs`: the first of the two."""

    cdef FlatContext context

    def __init__(self, operator, makes_pairs):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, operator, SL)
        layout = self.input_layout
        carry = list(operator.carry)
        self.context.column = operator.column
        if layout.layout.type[self.context.column] != PT_LIST:
            raise TypeError(f"{operator.name!r}: column {self.context.column} is not a list")
        self.context.element = layout.layout.element[self.context.column]
        self.context.ncarry = <int32_t> len(carry)
        if self.kernel.output.ncols != self.context.ncarry + (2 if makes_pairs else 1):
            raise ValueError(f"{operator.name!r}: the output schema must be the carried columns and "
                             f"the elements")
        self.context.width = self.kernel.output.width[self.context.ncarry]
        if self.context.width > 8:
            raise TypeError(f"{operator.name!r}: lists of strings or decimals are not supported")
        self.context.carry = <int32_t*> calloc(self.context.ncarry + 1, sizeof(int32_t))
        if self.context.carry == NULL:
            raise MemoryError
        for j in range(self.context.ncarry):
            self.context.carry[j] = carry[j]
            if layout.layout.type[self.context.carry[j]] in (PT_VIEW, PT_LIST):
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.context
        self.kernel.apply = pairs_apply if makes_pairs else explode_apply

    def __dealloc__(self):
        free(self.context.carry)
