"""Operator "filter": narrows the selection to the rows where a predicate is true."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport FAIL_MEMORY, Chunk, Worker, chunk_alloc, scratch_alloc
from ordstream._core.ground.expression cimport (
    Evaluation, Value, evaluate, evaluation_begin, evaluation_finish,
)
from ordstream._core.ground.expression_code cimport Code, CodeOwner
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, count_skipped, owner_setup

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    int32_t narrow(int32_t* out, const int32_t* sel, const uint8_t* keep, const uint8_t* valid, int32_t n)


cdef Chunk* filter_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Keep the rows where the predicate is true. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: narrows `c` itself; a new selection lies in its arena. Returns: c.
    Cost: the program plus about 1 ns per row.
    """
    return keep_rows(k, <const Code*> k.ctx, w, c)


cdef Chunk* keep_rows(Kernel* k, const Code* code, Worker* w, Chunk* c) noexcept nogil:
    """filter_apply for a predicate that is not the kernel's context."""
    cdef Evaluation e
    cdef Value v
    cdef int64_t skipped
    cdef int32_t* sel
    if c.n == 0:
        return c
    evaluation_begin(&e, c)
    if evaluate(code, w, c, &e, NULL, &v) != 0:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if e.bad != NULL and not v.scalar:
        return filter_with_failures(k, w, c, &e, &v)
    skipped = evaluation_finish(&e, w, c, k)
    if skipped < 0:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    count_skipped(k, skipped)
    if v.scalar:
        if (<uint8_t*> v.data)[0] == 0 or (v.valid != NULL and v.valid[0] == 0):
            c.n = 0
        return c
    sel = c.sel
    if sel == NULL:
        sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
        if sel == NULL:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
    c.n = narrow(sel, c.sel, <uint8_t*> v.data, v.valid, c.n)
    if c.sel != NULL or c.n != c.slots:              # all rows of a dense chunk: it stays dense
        c.sel = sel
    return c


cdef Chunk* filter_with_failures(Kernel* k, Worker* w, Chunk* c, Evaluation* e, Value* v) noexcept nogil:
    """The rare half of filter_apply: predicate and failures are indexed by row, so both are joined before
    anything narrows."""
    cdef uint8_t* keep = <uint8_t*> scratch_alloc(w, e.n)
    cdef uint8_t* bad = <uint8_t*> scratch_alloc(w, e.n)
    cdef int32_t* sel
    cdef int32_t i
    cdef int32_t m
    cdef int64_t skipped
    if keep == NULL or bad == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    memcpy(bad, e.bad, e.n)
    for i in range(e.n):
        keep[i] = (<uint8_t*> v.data)[i] != 0 and (v.valid == NULL or v.valid[i] != 0) and bad[i] == 0
    sel = <int32_t*> scratch_alloc(w, <int64_t> e.n * 4)
    if sel == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    m = narrow(sel, c.sel, keep, NULL, e.n)
    skipped = evaluation_finish(e, w, c, k)
    if skipped < 0:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    count_skipped(k, skipped)
    if c.failure != NULL:                            # c.n rows are left of what was before the failure
        m = narrow(sel, c.sel, keep, NULL, c.n)
    if c.sel == NULL:
        c.sel = <int32_t*> chunk_alloc(w, c, <int64_t> (m if m > 0 else 1) * 4)
        if c.sel == NULL:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
    memcpy(c.sel, sel, <size_t> m * 4)
    c.n = m
    return c


cdef class FilterKernel(KernelOwner):
    """Operator "filter": attributes {"condition": BoundExpr of class bool}."""

    cdef CodeOwner code

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        program = operator.condition
        if program.type != "bool":
            raise ValueError(f"the predicate of {operator.name!r} is {program.type}, not bool")
        from ordstream._core.ground.chunk import PHYSICAL_TYPES

        self.code = CodeOwner(program, self.input_layout, PHYSICAL_TYPES["bool"])
        self.kernel.ctx = <void*> &self.code.code
        self.kernel.apply = filter_apply
