"""Expression machine: runs a `BoundExpr` (ordstream/expressions/bound.py: the meaning of each instruction)
over the selected rows of a chunk.

a) One instruction at a time over all rows, dense temporaries in the worker's scratch; the element loops are
   column_ops.hpp.
b) A value on the stack is n values, or one that stands for all rows (constants and what is computed from
   constants).
c) A row fails when any instruction fails on valid operands at that row; `Evaluation.bad` remembers the first
   reason per row. What a failed row holds afterwards is garbage that no later instruction looks at.
d) Validity bytes are exactly 0 or 1. A View under a null is cleared when it is loaded.
"""
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport Chunk, Worker, scratch_alloc
from ordstream._core.ground.expression_code cimport Code, CodeOwner
from ordstream._core.ground.kernel cimport Kernel

cdef struct Value:
    char* data             # dense, or one value
    uint8_t* valid         # as data; NULL: no nulls
    int32_t scalar         # 1: one value for all rows
    int32_t width          # bytes per value

cdef struct Evaluation:
    # Rows that programs run over, and which of them failed. Lives on the caller's stack; `bad` in the
    # worker's scratch.
    int32_t n
    const int32_t* sel     # slots of the rows; NULL: 0..n-1
    uint8_t* bad           # FailureCode per row, 0 = fine; NULL: none failed so far

cdef int evaluate(const Code* code, Worker* w, Chunk* c, Evaluation* e, char* into,
                  Value* result) noexcept nogil
cdef void evaluation_begin(Evaluation* e, const Chunk* c) noexcept nogil
cdef int evaluation_finish(Evaluation* e, Worker* w, Chunk* c, Kernel* kernel) noexcept nogil


cdef inline int mark_begin(Evaluation* e, Worker* w) noexcept nogil:
    """Make sure that `e.bad` exists. 0, or -1: no memory."""
    if e.bad == NULL:
        e.bad = <uint8_t*> scratch_alloc(w, e.n)
        if e.bad == NULL:
            return -1
        memset(e.bad, 0, e.n)
    return 0


cdef inline bint is_null_scalar(const Value* v) noexcept nogil:
    return v.scalar and v.valid != NULL and v.valid[0] == 0
