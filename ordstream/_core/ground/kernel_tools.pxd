"""What built-in kernels share: setting an owner up, reporting a failing row, reserving output rows of a
punctuation.

Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport (
    DATA, FAIL_CAST, FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, FAIL_TEXT, FAIL_ZERO_DIVISION, Chunk, Failure,
    LayoutOwner, Worker, chunk_alloc, chunk_reserve, chunk_set_valid, failure_note, failure_set, Layout,
)
from ordstream._core.ground.kernel cimport ON_ERROR_FAIL, ON_ERROR_SKIP, Kernel, KernelOwner


cdef inline int owner_setup(KernelOwner owner, operator, int32_t kind) except -1:
    """Fill the fields of `owner.kernel` that every kernel has: kind, error policy, layouts of both edges.

    Thread safety: construction only, with the GIL. Ownership: the owner keeps the layouts. Raises: TypeError
    for a type that has no physical class, ValueError for an unknown error policy. Cost: one pass over both
    schemas.
    """
    from ordstream._core.ground.chunk import layout_of

    if operator.on_error not in ("fail", "skip"):
        raise ValueError(f"on_error must be 'fail' or 'skip', not {operator.on_error!r}")
    owner.input_layout = layout_of(operator.input)
    owner.output_layout = layout_of(operator.output)
    owner.kernel.kind = kind
    owner.kernel.on_error = ON_ERROR_SKIP if operator.on_error == "skip" else ON_ERROR_FAIL
    owner.kernel.input = &(<LayoutOwner> owner.input_layout).layout
    owner.kernel.output = &(<LayoutOwner> owner.output_layout).layout
    return 0


cdef inline const char* failure_text(int32_t code) noexcept nogil:
    """One line for a FailureCode that built-in kernels raise. Static memory."""
    if code == FAIL_OVERFLOW:
        return "a value is out of range for its type"
    if code == FAIL_ZERO_DIVISION:
        return "integer division or modulo by zero"
    if code == FAIL_CAST:
        return "a value can't be cast"
    if code == FAIL_TEXT:
        return "a text can't be read, or is not valid UTF-8"
    if code == FAIL_NULL:
        return "a null where a value is needed"
    if code == FAIL_MEMORY:
        return "out of memory"
    return "failed"


cdef inline void chunk_fail(Chunk* c, int32_t slot, int32_t code) noexcept nogil:
    """Record the failure of an SL kernel in its input chunk (keeps an earlier one).

    Thread safety: the chunk's owner. Ownership: the failure belongs to the chunk. Cost: as
    failure_note.
    """
    if c.failure == NULL:
        failure_note(c, slot, code, failure_text(code))


cdef inline Chunk* chunk_fail_all(Chunk* c, int32_t slot, int32_t code) noexcept nogil:
    """`chunk_fail`, and no outputs at all: returns `c` without rows."""
    chunk_fail(c, slot, code)
    c.n = 0
    return c


cdef inline void count_skipped(Kernel* k, int64_t rows) noexcept nogil:
    """Count rows that the policy "skip" dropped. Any worker."""
    if rows:
        add_relaxed(&k.skipped, rows)        # statistic, read after the run; no partner


cdef inline int flush_reserve(Worker* w, Chunk* out, const Layout* layout, int32_t extra) noexcept nogil:
    """chunk_reserve for the outputs of a punctuation: flush_time and flush_key exist afterwards, zeroed
    where unwritten.

    Thread safety: the owner of `out`. Ownership: out's arena. Returns: 0, or -1: no memory. Cost: as
    chunk_reserve.
    """
    if chunk_reserve(w, out, layout, extra) != 0:
        return -1
    if out.flush_time == NULL:
        out.flush_time = <int64_t*> chunk_alloc(w, out, <int64_t> out.capacity * 8)
        out.flush_key = <char**> chunk_alloc(w, out, <int64_t> out.capacity * 8)
        if out.flush_time == NULL or out.flush_key == NULL:
            return -1
        memset(out.flush_time, 0, <size_t> out.capacity * 8)
        memset(out.flush_key, 0, <size_t> out.capacity * 8)
    return 0
