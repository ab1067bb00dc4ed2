"""Operator "project": drops rows where it has a condition, passes columns through and adds computed ones."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport FAIL_MEMORY, PT_BOOL, Chunk, Column, Failure, Worker, scratch_alloc
from ordstream._core.ground.computed_column cimport compute_column
from ordstream._core.ground.expression cimport Evaluation, evaluation_begin, evaluation_finish
from ordstream._core.ground.expression_code cimport Code, CodeOwner
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, count_skipped, owner_setup
from ordstream._core.kernels.filter cimport keep_rows

cdef struct Projection:
    # Read-only while a run lasts. Memory ownership: ProjectKernel.
    int32_t n              # output columns
    const Code* where      # only rows where it is true; NULL: all. Owned by a CodeOwner
    int32_t* source        # input column passed through, -1: computed
    const Code** code      # of computed columns, else NULL; owned by the CodeOwners


cdef Chunk* project_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Drop rows, then replace the columns of a chunk. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: new columns lie in the arena of `c`. Returns: c. Cost: filter_apply
    where there is a condition, ~1 ns per column passed through, the programs for the others.
    """
    cdef const Projection* p = <const Projection*> k.ctx
    cdef Column* new = <Column*> scratch_alloc(w, (p.n + 1) * <int64_t> sizeof(Column))
    cdef Evaluation e
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
        elif compute_column(p.code[j], w, c, &e, &new[j]) != 0:
            free(later)
            return chunk_fail_all(c, -1, FAIL_MEMORY)
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
    """Operator "project": attributes {"columns": [input column index | BoundExpr, ...], "where": BoundExpr |
    None}."""

    cdef Projection projection

    def __init__(self, operator):
        cdef int32_t j
        cdef CodeOwner code
        owner_setup(self, operator, SL)
        columns = list(operator.columns)
        inputs = self.input_layout.types
        outputs = self.output_layout.types
        if len(columns) != len(outputs):
            raise ValueError(f"{operator.name!r} has {len(columns)} columns but its output schema "
                             f"{len(outputs)}")
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
