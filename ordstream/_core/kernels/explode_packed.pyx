"""Explode of lists that the core has as bytes (ground/packed_values.hpp). Contract: kernel.pxd (a)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_LIST, PT_VIEW, Chunk, Column, LayoutOwner, View, Worker, chunk_alloc, chunk_new,
    chunk_reserve, chunk_set_valid, row_slot, scratch_alloc,
)
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail, chunk_fail_all, owner_setup
from ordstream._core.ground.list_values cimport LIST_NULLS
from ordstream._core.ground.packed_parts cimport PackedParts, packed_length, packed_parts, packed_parts_free
from ordstream._core.ground.slot_values cimport gather

import pyarrow.types as pat

from ordstream.ground.packed_types import packed_format
from ordstream.ground.types import is_wide

cdef extern from "decimal128.hpp" namespace "ord" nogil:
    void decimals_encode(const char* values, int64_t n, char* to)

cdef enum Element:
    AS_IT_IS = 0           # values of fixed width, of which the first bytes count: a decimal may have more
    BYTES = 1              # a view of them
    DECIMAL = 2            # 16 bytes, as views of such that compare
    LIST = 3               # a list of values of fixed width, as the core has it

cdef struct ExplodeContext:
    # Read-only while a run lasts. Memory ownership: ExplodePackedKernel.
    int32_t column         # the list
    int32_t element        # Element
    int32_t width          # LIST: bytes of a value of such a list; 0: booleans
    int32_t ncarry
    int32_t* carry         # input columns repeated in front
    PackedParts* parts


cdef int64_t count_elements(const Column* lists, const Chunk* c) noexcept nogil:
    """Of all lists of a chunk."""
    cdef int64_t total = 0
    cdef int32_t i
    cdef int32_t slot
    for i in range(c.n):
        slot = row_slot(c, i)
        if lists.valid == NULL or lists.valid[slot] != 0:
            total += packed_length((<const View*> lists.data)[slot].data)
    return total


cdef int put_list(const ExplodeContext* x, Worker* w, Chunk* out, const View* found,
                  View* to) noexcept nogil:
    """An element that is a list of values of fixed width, as PT_LIST has it. 0, or -1: no memory."""
    cdef const char* at = found.data + 4
    cdef int64_t n = packed_length(found.data) if found.size else 0
    cdef char* heap
    cdef bint some = False
    cdef int64_t i
    to.data = NULL
    to.size = n
    if n == 0:
        return 0
    # copied, since elements of lists lie at multiples of their width
    heap = chunk_alloc(w, out, n * (max(x.width, 1) + 1))
    if heap == NULL:
        return -1
    to.data = heap
    if x.width and at[0] == 0:
        memcpy(heap, at + 1, <size_t> (n * x.width))
        return 0
    if x.width:                                               # which are null comes first there
        to.size = n | LIST_NULLS
        memcpy(heap, at + 1 + n, <size_t> (n * x.width))
        memcpy(heap + n * x.width, at + 1, <size_t> n)
        return 0
    for i in range(n):
        heap[n + i] = at[0]
        heap[i] = at[1] if at[0] else 0
        some = some or at[0] == 0
        at += 2 if at[0] else 1
    if some:
        to.size = n | LIST_NULLS
    return 0


cdef int put_elements(const ExplodeContext* x, Worker* w, Chunk* out, const View* found, int64_t n,
                      int32_t width, int64_t at) noexcept nogil:
    """Write elements behind `at`; a null's are zero. 0, or -1: no memory."""
    cdef char* to = out.cols[x.ncarry].data + at * width
    cdef View view
    cdef char* heap = NULL
    cdef int64_t i
    cdef int rc
    if x.element == BYTES:
        memcpy(to, found, <size_t> n * sizeof(View))
        return 0
    if x.element == DECIMAL:
        heap = chunk_alloc(w, out, 16 * n + 1)
        if heap == NULL:
            return -1
        view.size = 16
    for i in range(n):
        if x.element == LIST:
            rc = put_list(x, w, out, &found[i], <View*> to + i)
            if rc != 0:
                return rc
        elif x.element == DECIMAL and found[i].size:
            view.data = heap + 16 * i
            decimals_encode(found[i].data, 1, heap + 16 * i)
            memcpy(to + i * <int64_t> sizeof(View), &view, sizeof(View))
        elif found[i].size == 0:
            memset(to + i * width, 0, <size_t> width)
        else:
            memcpy(to + i * width, found[i].data, <size_t> width)
    return 0


cdef int explode_rows(const ExplodeContext* x, Kernel* k, Worker* w, Chunk* c, Chunk* out,
                      int64_t most) noexcept nogil:
    """All elements of all lists, of which one has at most `most`. 0, or -1: no memory."""
    cdef const Column* lists = &c.cols[x.column]
    cdef const View* v
    cdef const Column* source
    cdef View* found = <View*> scratch_alloc(w, most * <int64_t> sizeof(View) + 1)
    cdef uint8_t* valid = <uint8_t*> scratch_alloc(w, most + 1)
    cdef int64_t n
    cdef int32_t i
    cdef int32_t j
    cdef int32_t slot
    cdef int rc
    if found == NULL or valid == NULL:
        return -1
    for i in range(c.n):
        slot = row_slot(c, i)
        if lists.valid != NULL and lists.valid[slot] == 0:
            continue
        v = &(<const View*> lists.data)[slot]
        n = packed_length(v.data)
        if x.parts.elements(v.data, found, valid):
            if chunk_set_valid(w, out, x.ncarry) != 0:
                return -1
        if out.cols[x.ncarry].valid != NULL:
            memcpy(out.cols[x.ncarry].valid + out.n, valid, <size_t> n)
        rc = put_elements(x, w, out, found, n, k.output.width[x.ncarry], out.n)
        if rc != 0:
            return -1
        for j in range(<int32_t> n):
            out.origin[out.n + j] = slot
        out.n += <int32_t> n
        out.slots = out.n
    for j in range(x.ncarry):
        source = &c.cols[x.carry[j]]
        if source.data == NULL:                              # a column that nothing reads
            out.cols[j].data = NULL
        else:
            gather(out.cols[j].data, source.data, out.origin, out.n, k.output.width[j])
        if source.valid != NULL:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            gather(<char*> out.cols[j].valid, <const char*> source.valid, out.origin, out.n, 1)
    return 0


cdef Chunk* explode_packed(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """One row per element of each row's list, in order.

    Thread safety: any worker. Ownership: a new chunk; its views point into `c`. Returns: it; `c` when there
    is no memory for one. Cost: ~5 ns per element and part of it.
    """
    cdef const ExplodeContext* x = <const ExplodeContext*> k.ctx
    cdef const Column* lists = &c.cols[x.column]
    cdef Chunk* out = chunk_new(w)
    cdef int64_t total = count_elements(lists, c)
    if out == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if (total > 0x7fffffff or chunk_reserve(w, out, k.output, <int32_t> max(total, <int64_t> 1)) != 0
            or explode_rows(x, k, w, c, out, total) != 0):
        chunk_fail(c, -1, FAIL_MEMORY)
    return out


cdef class ExplodePackedKernel(KernelOwner):
    """Operator "explode": attributes {"column": a list of what the core has as bytes, "carry": [column,
    ...]}."""

    cdef ExplodeContext context

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        cdef bytes format = packed_format(operator.input.field(operator.column).type).encode()
        owner_setup(self, operator, SL)
        layout = self.input_layout
        carry = list(operator.carry)
        self.context.column = operator.column
        self.context.ncarry = <int32_t> len(carry)
        item = operator.output.field(self.context.ncarry).type
        if self.kernel.output.type[self.context.ncarry] == PT_VIEW:
            self.context.element = DECIMAL if is_wide(item) else BYTES
            self.kernel.keeps_views = 1
        elif self.kernel.output.type[self.context.ncarry] == PT_LIST:
            self.context.element = LIST
            self.context.width = 0 if pat.is_boolean(item.value_type) else item.value_type.bit_width // 8
            self.kernel.keeps_views = 1
        self.context.parts = packed_parts(format)
        self.context.carry = <int32_t*> calloc(self.context.ncarry + 1, sizeof(int32_t))
        if self.context.carry == NULL or self.context.parts == NULL:
            raise MemoryError
        for j in range(self.context.ncarry):
            self.context.carry[j] = carry[j]
            if layout.layout.type[carry[j]] in (PT_VIEW, PT_LIST):
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.context
        self.kernel.apply = explode_packed

    def __dealloc__(self):
        free(self.context.carry)
        if self.context.parts != NULL:
            packed_parts_free(self.context.parts)
