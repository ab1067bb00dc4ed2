"""Operator "assert_that": a row for which a condition is not true fails."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset, strncpy
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, Chunk, Worker, row_slot, scratch_alloc, slot_serial,
)
from ordstream._core.ground.expression cimport (
    Evaluation, Value, evaluate, evaluation_begin, evaluation_finish,
)
from ordstream._core.ground.expression_code cimport Code, CodeOwner
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, SL, Kernel, KernelOwner, skip_is_first, skip_note
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, count_skipped, owner_setup

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    int64_t first_bad(const uint8_t* bad, int64_t n)

cdef struct Assertion:
    # Read-only while a run lasts. Memory ownership: AssertKernel.
    const Code* code
    const char* message

# of a row that is not as asserted; no expression fails with it
cdef enum:
    UNTRUE = FAIL_NULL


cdef Chunk* assert_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Rows as they are, up to the first that fails. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: narrows `c` itself. Returns: c. Cost: the program, ~1 ns per row.
    """
    cdef const Assertion* x = <const Assertion*> k.ctx
    cdef Evaluation e
    cdef Value v
    cdef int64_t skipped
    cdef int64_t first
    cdef int32_t i
    cdef int32_t at
    if c.n == 0:
        return c
    evaluation_begin(&e, c)
    if evaluate(x.code, w, c, &e, NULL, &v) != 0:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    for i in range(e.n):
        at = 0 if v.scalar else i
        if v.data[at] != 0 and (v.valid == NULL or v.valid[at] != 0):
            continue
        if e.bad == NULL:
            e.bad = <uint8_t*> scratch_alloc(w, e.n)
            if e.bad == NULL:
                return chunk_fail_all(c, -1, FAIL_MEMORY)
            memset(e.bad, 0, e.n)
        if e.bad[i] == 0:
            e.bad[i] = UNTRUE
    first = first_bad(e.bad, e.n) if e.bad != NULL else e.n
    if first < e.n and e.bad[first] == UNTRUE and k.on_error == ON_ERROR_SKIP:
        note(k, x, slot_serial(c, row_slot(c, <int32_t> first)))
    skipped = evaluation_finish(&e, w, c, k)
    if skipped < 0:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    count_skipped(k, skipped)
    if c.failure != NULL and c.failure.code == UNTRUE:
        strncpy(c.failure.message, x.message, sizeof(c.failure.message) - 1)
        c.failure.message[sizeof(c.failure.message) - 1] = 0
    return c


cdef void note(Kernel* k, const Assertion* x, int64_t serial) noexcept nogil:
    """Why the first row is skipped, before evaluation_finish says something of its own."""
    if skip_is_first(k, serial):
        skip_note(k, serial, False, UNTRUE, x.message)


cdef class AssertKernel(KernelOwner):
    """Operator "assert_that": attributes {"condition": BoundExpr of class bool, "message": str}."""

    cdef CodeOwner code
    cdef Assertion assertion
    cdef bytes message

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        from ordstream._core.ground.chunk import PHYSICAL_TYPES

        # cut where it is too long for a failure, between characters
        self.message = operator.message.encode()[:150].decode(errors="ignore").encode()
        self.code = CodeOwner(operator.condition, self.input_layout, PHYSICAL_TYPES["bool"])
        self.assertion.code = &self.code.code
        self.assertion.message = self.message
        self.kernel.ctx = <void*> &self.assertion
        self.kernel.apply = assert_apply
