"""Stateless kernels over expressions: filter (narrows the selection) and project (passes columns through, adds new ones)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport FAIL_MEMORY, PT_BOOL, Chunk, Column, Failure, Worker, chunk_alloc, scratch_alloc
from ordstream._core.ground.expression cimport (
    Code, CodeOwner, Evaluation, Value, evaluate, evaluation_begin, evaluation_finish, store_column,
)
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, count_skipped, owner_setup

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    int32_t narrow(int32_t* out, const int32_t* sel, const uint8_t* keep, const uint8_t* valid, int32_t n)


cdef Chunk* filter_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Keep the rows where the predicate is true. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: narrows `c` itself; a new selection lies in its arena. Returns: c. Cost: the program plus
    about 1 ns per row.
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
    if evaluate(code, w, c, &e, &v) != 0:
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
    """The rare half of filter_apply: predicate and failures are indexed by row, so both are joined before anything narrows."""
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
    """Operator "filter": attributes {"program": BoundExpr of class bool}."""

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


# ---------------------------------------------------------------------------------------------- project

cdef struct Projection:
    # Read-only while a run lasts. Memory ownership: ProjectKernel.
    int32_t n              # output columns
    const Code* where      # only rows where it is true; NULL: all. Owned by a CodeOwner
    int32_t* source        # input column passed through, -1: computed
    const Code** code      # of computed columns, else NULL; owned by the CodeOwners


cdef Chunk* project_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Drop rows, then replace the columns of a chunk. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: new columns lie in the arena of `c`. Returns: c. Cost: filter_apply where there is a
    condition, ~1 ns per column passed through, the programs for the others.
    """
    cdef const Projection* p = <const Projection*> k.ctx
    cdef Column* new = <Column*> scratch_alloc(w, (p.n + 1) * <int64_t> sizeof(Column))
    cdef Column spare
    cdef Evaluation e
    cdef Value v
    cdef int32_t j
    cdef int64_t skipped
    cdef Failure* later = NULL                       # of the condition: behind all rows that are left
    if new == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if p.where != NULL:
        keep_rows(k, p.where, w, c)
        later = c.failure
        c.failure = NULL
    evaluation_begin(&e, c)
    for j in range(p.n):
        if p.source[j] >= 0:
            new[j] = c.cols[p.source[j]]
        elif c.n == 0:
            new[j].data = NULL
            new[j].valid = NULL
        else:
            if evaluate(p.code[j], w, c, &e, &v) != 0:
                free(later)
                return chunk_fail_all(c, -1, FAIL_MEMORY)
            spare = c.cols[0]
            if store_column(p.code[j], w, c, &e, &v, 0) != 0:
                free(later)
                return chunk_fail_all(c, -1, FAIL_MEMORY)
            new[j] = c.cols[0]
            c.cols[0] = spare
    memcpy(c.cols, new, p.n * sizeof(Column))
    c.ncols = p.n
    skipped = evaluation_finish(&e, w, c, k)
    if skipped < 0:
        free(later)
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    count_skipped(k, skipped)
    if c.failure == NULL:
        c.failure = later
    else:
        free(later)                                  # built-in failures hold no exception
    return c


cdef class ProjectKernel(KernelOwner):
    """Operator "project": attributes {"columns": [input column index | BoundExpr, ...], "where": BoundExpr | None}."""

    cdef Projection projection

    def __init__(self, operator):
        cdef int32_t j
        cdef CodeOwner code
        owner_setup(self, operator, SL)
        columns = list(operator.columns)
        inputs = self.input_layout.types
        outputs = self.output_layout.types
        if len(columns) != len(outputs):
            raise ValueError(f"{operator.name!r} has {len(columns)} columns but its output schema {len(outputs)}")
        self.projection.n = <int32_t> len(columns)
        self.projection.source = <int32_t*> calloc(self.projection.n + 1, sizeof(int32_t))
        self.projection.code = <const Code**> calloc(self.projection.n + 1, sizeof(Code*))
        if self.projection.source == NULL or self.projection.code == NULL:
            raise MemoryError
        for j, column in enumerate(columns):
            if isinstance(column, int):
                if not 0 <= column < len(inputs) or inputs[column] != outputs[j]:
                    raise ValueError(f"{operator.name!r}: output column {j} can't be input column {column}")
                self.projection.source[j] = column
            else:
                code = CodeOwner(column, self.input_layout, outputs[j])
                self.references.append(code)
                self.projection.source[j] = -1
                self.projection.code[j] = &code.code
        if operator.where is not None:
            code = CodeOwner(operator.where, self.input_layout, PT_BOOL)
            self.references.append(code)
            self.projection.where = &code.code
        self.kernel.ctx = <void*> &self.projection
        self.kernel.apply = project_apply

    def __dealloc__(self):
        free(self.projection.source)
        free(<void*> self.projection.code)
