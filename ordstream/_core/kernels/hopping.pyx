"""Hopping: aggregations over windows that overlap, which are forgotten when they close. Contract: kernel.pxd
(b), (c), (f).

a) The open windows of a key are those that its latest tuple lies in, without those that a mark closed: they
   begin `every` apart from `first` on, `n` of them, at most `m`. Window number i (its start divided by
   `every`, rounded down) has the aggregates (fold.pxd) at place i modulo m. A tuple is folded into each.
b) A tuple closes the windows that end at its time or before. So does the clock, whose marks an operator sees
   at multiples of its period, where every window begins; a key without an open window is then forgotten.
c) A bucket knows a lower bound of what is open (`earliest`): a mark before which nothing can be due costs
   nothing. Another one goes over the bucket's keys, each of which has then a window that closes, where
   `length` is a multiple of `every`: a key's windows end one after the other.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport FAIL_MEMORY, FAIL_OVERFLOW, Chunk, Failure, Worker, failure_set
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.fold cimport FoldBlock, fold_overflows, fold_prepare, fold_row
from ordstream._core.state.gathered cimport gathered_forget, gathered_row
from ordstream._core.state.hopping_rows cimport HOPPING
from ordstream._core.state.hops cimport HoppingContext, Hops, window_at, windows_of
from ordstream._core.state.keyed_bucket cimport Bucket, bytes_of_bucket, free_bucket, new_bucket_of
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK, keyed_record
from ordstream._core.state.marks cimport CLOSING_ALL, CLOSING_FAILED, CLOSING_SOME, Closing, marks_pass
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.state.windows cimport (
    EMIT_CLOSE, EMIT_UPDATES, WindowBlock, WindowBucket, WindowContext, block_begin, block_next, block_time,
    window_close, window_emit, window_setup, window_shown,
)


cdef void* hopping_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef const HoppingContext* x = <const HoppingContext*> k.ctx
    return new_bucket_of(sizeof(WindowBucket), x.window.by.keys,
                         <int32_t> (<int64_t> sizeof(Hops) + x.m * x.window.fold.size), &HOPPING)


cdef int hopping_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    cdef const WindowContext* x = <const WindowContext*> k.ctx
    return fold_prepare(x.fold, w, c, x.conditions)


cdef inline bint any_overflows(const HoppingContext* x, Hops* s, const FoldBlock* block, int32_t i,
                               int64_t first, int64_t n) noexcept nogil:
    """Whether a sum of one of the windows of row i of the block would overflow."""
    cdef int64_t start = first
    cdef int64_t behind = s.first + s.n * x.every            # the first start of no open window
    cdef char* window
    for _ in range(n):
        window = window_at(x, s, start) if s.n and s.first <= start < behind else NULL
        if fold_overflows(x.window.fold, window, block, i):
            return True
        start += x.every
    return False


cdef inline int emit(const HoppingContext* x, Kernel* k, Worker* w, const char* record, Hops* s,
                     int64_t start, Chunk* out, int32_t origin, bint closed, int32_t ahead) noexcept nogil:
    return window_emit(&x.window, k, w, record, start, start + x.window.length, window_at(x, s, start), out,
                       origin, closed, ahead)


cdef int take_row(const HoppingContext* x, Kernel* k, Worker* w, WindowBucket* b, const char* record,
                  Hops* s, Chunk* c, int32_t row, const FoldBlock* block, int32_t i, int64_t first,
                  int64_t n, Chunk* out, int32_t ahead) noexcept nogil:
    """Close the windows before `first`, then fold row i of the block into the n from there on. 0, or -1: no
    memory."""
    cdef int64_t start
    cdef int64_t behind
    cdef int64_t j
    cdef char* window
    while s.n and s.first < first:
        if x.window.emission & EMIT_CLOSE and emit(x, k, w, record, s, s.first, out, row, True, ahead) != 0:
            return -1
        gathered_forget(x.window.fold, window_at(x, s, s.first), &b.base.held.bytes)
        s.first += x.every
        s.n -= 1
    behind = s.first + s.n * x.every
    for j in range(n):                                       # those that it opens, perhaps again
        start = first + j * x.every
        if s.n == 0 or start < s.first or start >= behind:
            memset(window_at(x, s, start), 0, x.window.fold.size)
    s.first = first
    s.n = n
    if first < b.marks.earliest:
        b.marks.earliest = first
    for j in range(n):
        start = first + j * x.every
        window = window_at(x, s, start)
        if x.window.fold.gathers and gathered_row(
                x.window.fold, window, c, row, block.used, i, &b.base.held.bytes) != 0:
            return -1
        fold_row(x.window.fold, window, block, i)
        if x.window.emission & EMIT_UPDATES and emit(x, k, w, record, s, start, out, row, False, ahead) != 0:
            return -1
    return 0


cdef int32_t hopping_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Fold rows into their keys' windows; those that end at a row's time or before are closed by it.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes. Returns: n, or j when the time
    of rows[j] is null, a condition fails at it, it is earlier than the row before, a window is out of range
    or a sum overflows (the state untouched), or without memory. Cost: keyed_lookup, then as `window` per
    window that the row lies in.
    """
    cdef const HoppingContext* x = <const HoppingContext*> k.ctx
    cdef WindowBucket* b = <WindowBucket*> state
    cdef WindowBlock t
    cdef char* record = b.base.single
    cdef Hops* s
    cdef int64_t time
    cdef int64_t first = 0
    cdef int64_t count = 0
    cdef int32_t i
    cdef int32_t row
    if block_begin(&x.window, w, c, &t) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while block_next(&x.window, &b.base, w, c, rows, n, &t, f):
        for i in range(t.end):
            row = rows[t.at + i]
            if x.window.by.keys != NULL:
                record = keyed_record(&b.base.keyed, t.slots[i])
            s = <Hops*> (record + x.window.by.key_size)
            time = block_time(&t, row, i)
            if s.n and time < s.last:
                failure_earlier(f, row, x.window.time, time, s.last)
                return t.at + i
            if not windows_of(x, time, &first, &count):
                failure_set(f, row, FAIL_OVERFLOW, "a window of the tuple is out of range")
                return t.at + i
            if x.window.fold.any_checked and any_overflows(x, s, &t.fold, i, first, count):
                failure_set(f, row, FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
                return t.at + i
            if take_row(x, k, w, b, record, s, c, row, &t.fold, i, first, count, out,
                        2 * min(n - t.at - i, <int32_t> LOOKUP_BLOCK)) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return t.at + i
            s.last = time
    return t.at


# -------------------------------------------------------------------------------- marks and the end


cdef bint is_due(const Kernel* k, int64_t since, int64_t mark) noexcept nogil:
    """Whether a window that starts at `since` ends at a mark or before."""
    return mark > since and (<uint64_t> mark - <uint64_t> since
                             >= <uint64_t> (<const WindowContext*> k.ctx).length)


cdef Closing close(Kernel* k, Worker* w, Bucket* b, char* record, char* state, Chunk* out, bint final,
                   int64_t mark, int64_t* since) noexcept nogil:
    """The oldest windows of a key, those that are due."""
    cdef const HoppingContext* x = <const HoppingContext*> k.ctx
    cdef Hops* s = <Hops*> state
    while s.n and (final or is_due(k, s.first, mark)):
        if window_close(&x.window, k, w, record, s.first, s.first + x.window.length,
                        window_at(x, s, s.first), out, final) != 0:
            return CLOSING_FAILED
        gathered_forget(x.window.fold, window_at(x, s, s.first), &b.held.bytes)
        s.first += x.every
        s.n -= 1
    since[0] = s.first
    return CLOSING_SOME if s.n else CLOSING_ALL


cdef int hopping_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """Close windows: all of them at the end of the stream, at a mark those that are over; keys without a
    window are then forgotten. Contract: marks_pass."""
    return marks_pass(k, w, <Bucket*> state, &(<WindowBucket*> state).marks, punctuation, out, is_due, close,
                      f)


cdef class HoppingKernel(KernelOwner):
    """Operator "window" of kind "hopping". Attributes: `window` (length, every), `time`, `aggregates`,
    `emit`, `clock`; `key` may be empty (SF)."""

    cdef HoppingContext context

    def __init__(self, operator):
        cdef HoppingContext* x = &self.context
        cdef Hops one
        window_setup(self, operator, &x.window, len(operator.key) + 2, operator.emit == "both", False)
        window_shown(self, operator, &x.window)
        x.words = (1 + x.window.fold.n + 7) & ~7
        x.every = operator.window.every
        x.m = operator.window.overlaps
        x.window.by.word = <int32_t> (<char*> &one.n - <char*> &one)
        self.kernel.ctx = <void*> x
        self.kernel.prepare = hopping_prepare
        self.kernel.process = hopping_process
        self.kernel.punctuate = hopping_punctuate
        self.kernel.bucket_new = hopping_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
