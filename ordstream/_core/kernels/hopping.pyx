"""Hopping: aggregations over windows that overlap, which are forgotten when they close. Contract: kernel.pxd
(b), (c), (f).

a) The open windows of a key are those that its latest tuple lies in, without those that a mark closed: they
   begin at every multiple of `every` from `first` on, `n` of them, at most `m`. Window number i (its start
   divided by `every`) has the aggregates (fold.pxd) at place i modulo m. A tuple is folded into each.
b) A tuple closes the windows that end at its time or before. So does the clock, whose marks an operator sees
   at the multiples of `every`; a key without an open window is then forgotten.
c) A bucket knows a lower bound of what is open (`earliest`): a mark before which nothing can be due costs
   nothing. Another one goes over the bucket's keys, each of which has then a window that closes, where
   `length` is a multiple of `every`: a key's windows end one after the other.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, PT_U64, TIME, Block, Chunk, Failure, Worker,
    chunk_alloc, chunk_reserve, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.state.fold cimport (
    Fold, FoldBlock, FoldOwner, fold_begin, fold_load, fold_overflows, fold_prepare, fold_row,
)
from ordstream._core.state.fold_rows cimport fold_store
from ordstream._core.state.gathered cimport gathered_forget, gathered_row
from ordstream._core.state.hopping_rows cimport (
    hopping_export, hopping_free, hopping_install, hopping_remove,
)
from ordstream._core.state.hops cimport (
    HoppingBucket, HoppingContext, Hops, behind_multiple, window_at, windows_of,
)
from ordstream._core.state.keyed_bucket cimport bytes_of_bucket, put_word
from ordstream._core.state.keyed_rows cimport key_put, keyed_settle
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpecOwner, LookupAhead, key_copy, keyed_init, keyed_lookup_block,
    keyed_record,
)
from ordstream._core.state.leaving cimport LEAVES, keys_leave
from ordstream._core.state.state_rows cimport owner_state

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum Emission:
    EMIT_CLOSE = 1
    EMIT_UPDATES = 2
    EMIT_BOTH = 3

cdef void* hopping_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef HoppingContext* x = <HoppingContext*> k.ctx
    cdef HoppingBucket* b = <HoppingBucket*> calloc(1, sizeof(HoppingBucket))
    cdef int32_t size = <int32_t> (<int64_t> sizeof(Hops) + x.m * x.fold.size)
    if b == NULL:
        return NULL
    b.base.state_size = size
    b.earliest = x.most
    b.known = 1
    if x.keys == NULL:
        b.base.single = <char*> calloc(1, size)
        if b.base.single != NULL:
            return b
    elif keyed_init(&b.base.keyed, x.keys, size, &b.base.pool) == 0:
        return b
    free(b)
    return NULL


cdef int hopping_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    cdef HoppingContext* x = <HoppingContext*> k.ctx
    return fold_prepare(x.fold, w, c, x.conditions)


cdef inline bint is_over(const HoppingContext* x, int64_t start, int64_t now) noexcept nogil:
    """Whether a window that starts there ends at `now` or before."""
    return now > start and <uint64_t> now - <uint64_t> start >= <uint64_t> x.length


cdef inline bint any_overflows(const HoppingContext* x, Hops* s, const FoldBlock* block, int32_t i,
                               int64_t first, int64_t n) noexcept nogil:
    """Whether a sum of one of the windows of row i of the block would overflow."""
    cdef int64_t start = first
    cdef int64_t behind = s.first + s.n * x.every            # the first start of no open window
    cdef char* window
    for _ in range(n):
        window = window_at(x, s, start) if s.n and s.first <= start < behind else NULL
        if fold_overflows(x.fold, window, block, i):
            return True
        start += x.every
    return False


cdef int emit(const HoppingContext* x, Kernel* k, Worker* w, const char* record, Hops* s, int64_t start,
              Chunk* out, int32_t origin, bint closed, int32_t ahead) noexcept nogil:
    """Append a window. `ahead`: rows to make room for where there is none. 0, or -1: no memory."""
    cdef int32_t index = out.n
    cdef int32_t at = x.nkeys
    if index == out.capacity and chunk_reserve(w, out, k.output, ahead) != 0:
        return -1
    if x.keys != NULL and key_put(x.keys, record, w, out, index) != 0:   # the map's strings go with keys
        return -1
    put_word(out.cols[at].data, x.shown, index, start)
    put_word(out.cols[at + 1].data, x.shown, index, start + x.length)
    if fold_store(x.fold, window_at(x, s, start), w, out, at + 2, index) != 0:
        return -1
    if x.emission == EMIT_BOTH:
        (<uint8_t*> out.cols[at + 2 + x.fold.n].data)[index] = closed
    out.origin[index] = origin
    out.n = index + 1
    out.slots = out.n
    return 0


cdef int take_row(const HoppingContext* x, Kernel* k, Worker* w, HoppingBucket* b, const char* record,
                  Hops* s, Chunk* c, int32_t row, const FoldBlock* block, int32_t i, int64_t first,
                  int64_t n, Chunk* out, int32_t ahead) noexcept nogil:
    """Close the windows before `first`, then fold row i of the block into the n from there on. 0, or -1: no
    memory."""
    cdef int64_t start
    cdef int64_t behind
    cdef int64_t j
    cdef char* window
    while s.n and s.first < first:
        if x.emission & EMIT_CLOSE and emit(x, k, w, record, s, s.first, out, row, True, ahead) != 0:
            return -1
        gathered_forget(x.fold, window_at(x, s, s.first), &b.base.held)
        s.first += x.every
        s.n -= 1
    behind = s.first + s.n * x.every
    for j in range(n):                                       # those that it opens, perhaps again
        start = first + j * x.every
        if s.n == 0 or start < s.first or start >= behind:
            memset(window_at(x, s, start), 0, x.fold.size)
    s.first = first
    s.n = n
    if first < b.earliest:
        b.earliest = first
    for j in range(n):
        start = first + j * x.every
        window = window_at(x, s, start)
        if x.fold.gathers and gathered_row(x.fold, window, c, row, block.used, i, &b.base.held) != 0:
            return -1
        fold_row(x.fold, window, block, i)
        if x.emission & EMIT_UPDATES and emit(x, k, w, record, s, start, out, row, False, ahead) != 0:
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
    cdef HoppingContext* x = <HoppingContext*> k.ctx
    cdef HoppingBucket* b = <HoppingBucket*> state
    cdef const Fold* fold = x.fold
    cdef const uint8_t* valid = c.cols[x.time].valid
    cdef FoldBlock block
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef char* record = b.base.single
    cdef Hops* s
    cdef Block* scratch
    cdef char* top
    cdef int64_t first = 0
    cdef int64_t count = 0
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t row
    cdef int32_t clean                                       # rows of the block in front of a null time
    cdef int32_t end                                         # of these, rows before a failing condition
    if fold_begin(fold, w, &block) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    scratch = w.scratch.current
    top = w.scratch.top
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if w.scratch.current == scratch:                     # nothing of the last block is needed any more
            w.scratch.top = top
        clean = m
        if valid != NULL:
            clean = 0
            while clean < m and valid[rows[k0 + clean]] != 0:
                clean += 1
        end = fold_load(fold, w, c, rows + k0, clean, x.conditions, &block, f) if clean else 0
        load(times, x.time_type, c.cols[x.time].data, rows + k0, end)
        if end and x.keys != NULL and keyed_lookup_block(
                &b.base.keyed, w, c, rows + k0, end,
                min(n - k0 - end, <int32_t> LOOKUP_BLOCK) if end == m else 0, &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            row = rows[k0 + i]
            if x.keys != NULL:
                record = keyed_record(&b.base.keyed, slots[i])
            s = <Hops*> (record + x.key_size)
            if s.n and times[i] < s.last:
                failure_earlier(f, row, x.time, times[i], s.last)
                return k0 + i
            if not windows_of(x, times[i], &first, &count):
                failure_set(f, row, FAIL_OVERFLOW, "a window of the tuple is out of range")
                return k0 + i
            if fold.any_checked and any_overflows(x, s, &block, i, first, count):
                failure_set(f, row, FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
                return k0 + i
            if take_row(x, k, w, b, record, s, c, row, &block, i, first, count, out,
                        2 * min(n - k0 - i, <int32_t> LOOKUP_BLOCK)) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            s.last = times[i]
        k0 += end
        if end < clean:
            return k0
        if clean < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null time: filter such tuples out before window")
            return k0
    return n


# -------------------------------------------------------------------------------- marks and the end


cdef int close(const HoppingContext* x, Kernel* k, Worker* w, HoppingBucket* b, char* record, Hops* s,
               Chunk* out, bint final) noexcept nogil:
    """Emit a key's oldest window at a punctuation, if windows are shown when they close; it is no longer
    open. 0, or -1: no memory."""
    cdef char* key = NULL
    if x.emission & EMIT_CLOSE:
        if flush_reserve(w, out, k.output, 1) != 0:
            return -1
        if x.keys != NULL:
            key = chunk_alloc(w, out, x.key_size)
            if key == NULL or key_copy(x.keys, record, w, out, key) != 0:
                return -1
        out.flush_time[out.n] = 0 if final else s.first + x.length
        out.flush_key[out.n] = key
        if emit(x, k, w, record, s, s.first, out, 0, True, 1) != 0:
            return -1
    gathered_forget(x.fold, window_at(x, s, s.first), &b.base.held)
    s.first += x.every
    s.n -= 1
    return 0


cdef int hopping_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """Close windows: all of them at the end of the stream, at a mark those that are over; keys without a
    window are then forgotten.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes and key records. Returns: 0, or
    -1: no memory. Cost: nothing where no window can be over, else a pass over the bucket's keys.
    """
    cdef HoppingContext* x = <HoppingContext*> k.ctx
    cdef HoppingBucket* b = <HoppingBucket*> state
    cdef KeyedState* keyed = &b.base.keyed
    cdef bint final = punctuation.kind == END_OF_STREAM
    cdef int64_t mark = punctuation.time
    cdef int64_t behind
    cdef int64_t earliest = x.most
    cdef int64_t closed = 0
    cdef int64_t count = keyed.count if x.keys != NULL else 1
    cdef int64_t i
    cdef char* record = b.base.single
    cdef Hops* s
    cdef bint again
    if not final:
        behind = behind_multiple(mark, x.every)
        if punctuation.kind != TIME or not x.clocked or mark < INT64_MIN + behind:
            return 0
        mark -= behind
        again = mark == b.mark
        b.mark = mark
        if b.known and not is_over(x, b.earliest, mark):
            if not again and x.keys != NULL:
                keyed_settle(keyed, keyed.count)             # the wave before was the last one
            return 0
    for i in range(count):
        if stop_due(w, i):
            return 0
        if x.keys != NULL:
            record = keyed_record(keyed, i)
        s = <Hops*> (record + x.key_size)
        if s.n == 0:                                         # its only rows failed
            continue
        while s.n and (final or is_over(x, s.first, mark)):
            if close(x, k, w, b, record, s, out, final) != 0:
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
        if s.n:
            earliest = min(earliest, s.first)
        elif x.keys != NULL:
            closed += 1
            s.n = LEAVES
    if final:
        return 0
    b.earliest = earliest
    b.known = 1
    if x.keys != NULL:
        keys_leave(w, keyed, x.key_size + 2 * <int32_t> sizeof(int64_t), closed)
    return 0


cdef class HoppingKernel(KernelOwner):
    """Operator "window" of kind "hopping". Attributes: `window` (length, every), `time`, `aggregates`,
    `emit`, `clock`; `key` may be empty (SF)."""

    cdef HoppingContext context
    cdef KeySpecOwner keys
    cdef FoldOwner fold

    def __init__(self, operator):
        from ordstream.ground.types import integer_range

        cdef HoppingContext* x = &self.context
        emissions = {"close": EMIT_CLOSE, "updates": EMIT_UPDATES, "both": EMIT_BOTH}
        owner_setup(self, operator, PS if operator.key else SF)
        nkeys = len(operator.key)
        types = self.output_layout.types
        if operator.key:
            self.keys = KeySpecOwner(operator.key, self.input_layout.types)
            x.keys = &self.keys.spec
            x.key_size = self.keys.spec.size
        values = types[nkeys + 2:nkeys + 2 + len(operator.aggregates)]
        self.fold = FoldOwner(operator.aggregates, self.input_layout, values)
        x.fold = &self.fold.fold
        x.words = (1 + x.fold.n + 7) & ~7
        x.nkeys = <int32_t> nkeys
        x.time = operator.time
        x.time_type = self.input_layout.types[operator.time]
        x.shown = types[nkeys]
        if x.time_type >= PT_U64:
            raise TypeError(f"{operator.name!r}: the time column must be an integer below uint64, a date or "
                            f"a timestamp")
        x.conditions = self.kernel.input.ncols
        x.clocked = operator.clock is not None
        x.emission = emissions[operator.emit]
        x.length = operator.window.length
        x.every = operator.window.every
        x.m = operator.window.overlaps
        x.least, x.most = integer_range(operator.output.field(nkeys).type)
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.extra_cols = x.fold.n
        self.kernel.prepare = hopping_prepare
        self.kernel.process = hopping_process
        self.kernel.punctuate = hopping_punctuate
        self.kernel.bucket_new = hopping_new
        self.kernel.bucket_free = hopping_free
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_state(self, operator, hopping_export, hopping_install, hopping_remove)
