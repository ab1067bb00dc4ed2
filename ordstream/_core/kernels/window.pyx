"""Window: aggregations over tumbling windows or sessions that are forgotten when they close. Contract:
kernel.pxd (b), (c), (f).

a) A key has at most one open window: start, time of the latest tuple, aggregates (fold.pxd).
b) A tuple outside it closes it. So does the clock, whose marks an operator sees at the multiples of the
   window's length; the key is then forgotten.
c) A bucket knows a lower bound of what is open (`earliest`). A mark before which nothing can be due costs
   nothing; another one goes over the bucket's keys. With a clock a key that stays had a tuple since the
   mark before, so that each tuple pays for one visit at most, and keys without new tuples for none but the
   one that closes them.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, FAIL_STATE, PT_I64, PT_U64, TIME, Block, Chunk,
    Failure, Worker, chunk_alloc, chunk_reserve, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.state.fold cimport (
    Fold, FoldBlock, FoldOwner, fold_begin, fold_load, fold_overflows, fold_prepare, fold_row,
)
from ordstream._core.state.fold_rows cimport fold_read, fold_store, fold_write
from ordstream._core.state.gathered cimport gathered_forget, gathered_forget_all, gathered_row
from ordstream._core.state.keyed_bucket cimport Bucket, bytes_of_bucket, free_bucket, put_word
from ordstream._core.state.keyed_rows cimport key_put, keyed_settle
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, LookupAhead, key_copy, keyed_init, keyed_lookup_block,
    keyed_record,
)
from ordstream._core.state.leaving cimport LEAVES, keys_leave
from ordstream._core.state.row_values cimport row_null, row_value
from ordstream._core.state.state_columns cimport own_column, put_valid
from ordstream._core.state.state_rows cimport (
    StateCalls, bucket_export, bucket_install, bucket_remove, owner_state,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum Emission:
    EMIT_CLOSE = 1
    EMIT_UPDATES = 2
    EMIT_BOTH = 3

cdef struct Open:
    # State of a key; the aggregates follow.
    int64_t start
    int64_t last           # time of the latest tuple
    int64_t there          # 0: no window is open; 1: one is; LEAVES: a mark closed it, the key goes

cdef struct WindowContext:
    # Read-only while a run lasts. Memory ownership: WindowKernel.
    const KeySpec* keys    # NULL: SF
    const Fold* fold
    int32_t nkeys
    int32_t key_size       # bytes of a key's record
    int32_t time           # input column
    int32_t time_type
    int32_t shown          # PhysicalType of start and end
    int32_t conditions     # column of the aggregates' bits (fold_prepare)
    int32_t session
    int32_t clocked
    int32_t emission       # Emission
    int64_t length         # of a window; of a session the timeout
    int64_t period         # of the marks that it looks at
    int64_t least          # range of start and end
    int64_t most

cdef struct WindowBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    int64_t earliest       # no open window starts (a session: had its latest tuple) before this
    int64_t mark           # the latest mark
    int32_t known          # 0: `earliest` says nothing


cdef inline char* aggregates_of(Open* s) noexcept nogil:
    return <char*> (s + 1)


cdef void* window_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef WindowBucket* b = <WindowBucket*> calloc(1, sizeof(WindowBucket))
    cdef int32_t size = <int32_t> sizeof(Open) + x.fold.size
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


cdef int window_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    cdef WindowContext* x = <WindowContext*> k.ctx
    return fold_prepare(x.fold, w, c, x.conditions)


cdef inline bint goes_on(const WindowContext* x, const Open* s, int64_t time) noexcept nogil:
    """Whether a tuple, not earlier than the latest one, belongs to the open window."""
    if x.session:
        return <uint64_t> time - <uint64_t> s.last <= <uint64_t> x.length
    return <uint64_t> time - <uint64_t> s.start < <uint64_t> x.length


cdef inline bint start_of(const WindowContext* x, int64_t time, int64_t* start) noexcept nogil:
    """Start of the window that a tuple opens. False: the window is out of range."""
    cdef int64_t behind
    if x.session:
        start[0] = time
        return True
    behind = time % x.length
    if behind < 0:
        behind += x.length
    if time < x.least + behind or time - behind > x.most - x.length:
        return False
    start[0] = time - behind
    return True


cdef int emit(const WindowContext* x, Kernel* k, Worker* w, const char* record, Open* s, Chunk* out,
              int32_t origin, bint closed, int32_t ahead) noexcept nogil:
    """Append a window. `ahead`: rows to make room for where there is none. 0, or -1: no memory."""
    cdef int32_t index = out.n
    cdef int32_t at = x.nkeys
    if index == out.capacity and chunk_reserve(w, out, k.output, ahead) != 0:
        return -1
    if x.keys != NULL and key_put(x.keys, record, w, out, index) != 0:   # the map's strings go with keys
        return -1
    put_word(out.cols[at].data, x.shown, index, s.start)
    put_word(out.cols[at + 1].data, x.shown, index, s.last if x.session else s.start + x.length)
    if fold_store(x.fold, aggregates_of(s), w, out, at + 2, index) != 0:
        return -1
    if x.emission == EMIT_BOTH:
        (<uint8_t*> out.cols[at + 2 + x.fold.n].data)[index] = closed
    out.origin[index] = origin
    out.n = index + 1
    out.slots = out.n
    return 0


cdef int32_t window_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Add rows to their keys' windows; a row outside closes the window.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes. Returns: n, or j when the time
    of rows[j] is null, a condition fails at it, it is earlier than the row before, its window is out of
    range or a sum overflows (the state untouched), or without memory. Cost: keyed_lookup, ~3 ns per row, ~2
    ns per row and aggregate, ~15 ns per output.
    """
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef WindowBucket* b = <WindowBucket*> state
    cdef KeyedState* keyed = &b.base.keyed
    cdef const Fold* fold = x.fold
    cdef const uint8_t* valid = c.cols[x.time].valid
    cdef const int64_t* clock = NULL                         # a 64-bit time column: read where it lies
    cdef FoldBlock block
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef char* record = b.base.single
    cdef Open* s
    cdef Block* scratch
    cdef char* top
    cdef int64_t time
    cdef int64_t start = 0
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t row
    cdef int32_t clean                                       # rows of the block in front of a null time
    cdef int32_t end                                         # of these, rows before a failing condition
    cdef bint opens
    if fold_begin(fold, w, &block) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    scratch = w.scratch.current
    top = w.scratch.top
    ahead.n = 0
    if x.time_type == PT_I64:
        clock = <const int64_t*> c.cols[x.time].data
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
        if clock == NULL:
            load(times, x.time_type, c.cols[x.time].data, rows + k0, end)
        if end and x.keys != NULL and keyed_lookup_block(
                keyed, w, c, rows + k0, end,
                min(n - k0 - end, <int32_t> LOOKUP_BLOCK) if end == m else 0, &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            row = rows[k0 + i]
            if x.keys != NULL:
                record = keyed_record(keyed, slots[i])
            s = <Open*> (record + x.key_size)
            time = clock[row] if clock != NULL else times[i]
            if s.there and time < s.last:
                failure_earlier(f, row, x.time, time, s.last)
                return k0 + i
            opens = not s.there or not goes_on(x, s, time)
            if opens and not start_of(x, time, &start):
                failure_set(f, row, FAIL_OVERFLOW, "the window of the tuple is out of range")
                return k0 + i
            if fold.any_checked and fold_overflows(
                    fold, <char*> NULL if opens else aggregates_of(s), &block, i):
                failure_set(f, row, FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
                return k0 + i
            if opens:
                if s.there and x.emission & EMIT_CLOSE and emit(
                        x, k, w, record, s, out, row, True, min(n - k0 - i, <int32_t> LOOKUP_BLOCK)) != 0:
                    failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
                gathered_forget(fold, aggregates_of(s), &b.base.held)
                memset(aggregates_of(s), 0, fold.size)
                s.there = 1
                s.start = start
                if start < b.earliest:
                    b.earliest = start
            s.last = time
            if fold.gathers and gathered_row(fold, aggregates_of(s), c, row, block.used, i,
                                             &b.base.held) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            fold_row(fold, aggregates_of(s), &block, i)
            if x.emission & EMIT_UPDATES and emit(
                    x, k, w, record, s, out, row, False, 2 * min(n - k0 - i, <int32_t> LOOKUP_BLOCK)) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
        k0 += end
        if end < clean:
            return k0
        if clean < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null time: filter such tuples out before window")
            return k0
    return n


# -------------------------------------------------------------------------------- marks and the end


cdef inline bint is_over(const WindowContext* x, int64_t since, int64_t mark) noexcept nogil:
    """Whether a window that starts at `since` (a session whose latest tuple is then) is closed by a mark."""
    if mark <= since:
        return False
    if x.session:
        return <uint64_t> mark - <uint64_t> since > <uint64_t> x.length
    return <uint64_t> mark - <uint64_t> since >= <uint64_t> x.length


cdef inline int64_t since_of(const WindowContext* x, const Open* s) noexcept nogil:
    return s.last if x.session else s.start


cdef inline bint own_mark(const WindowContext* x, int64_t* mark) noexcept nogil:
    """Put the clock back to a multiple of the period. False: that is before all times."""
    cdef int64_t behind = mark[0] % x.period
    if behind < 0:
        behind += x.period
    if mark[0] < INT64_MIN + behind:
        return False
    mark[0] -= behind
    return True


cdef int close(const WindowContext* x, Kernel* k, Worker* w, char* record, Open* s, Chunk* out,
               bint final) noexcept nogil:
    """Emit a window at a punctuation, if windows are shown when they close. 0, or -1: no memory."""
    cdef char* key = NULL
    if not x.emission & EMIT_CLOSE:
        return 0
    if flush_reserve(w, out, k.output, 1) != 0:
        return -1
    if x.keys != NULL:
        key = chunk_alloc(w, out, x.key_size)
        if key == NULL or key_copy(x.keys, record, w, out, key) != 0:
            return -1
    out.flush_time[out.n] = 0 if final else (s.last if x.session else s.start + x.length)
    out.flush_key[out.n] = key
    return emit(x, k, w, record, s, out, 0, True, 1)


cdef int window_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                          Failure* f) noexcept nogil:
    """Close windows: all of them at the end of the stream, at a mark those that are over, whose keys are
    then forgotten.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes and key records. Returns: 0, or
    -1: no memory. Cost: nothing where no window can be over, else a pass over the bucket's keys.
    """
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef WindowBucket* b = <WindowBucket*> state
    cdef KeyedState* keyed = &b.base.keyed
    cdef bint final = punctuation.kind == END_OF_STREAM
    cdef int64_t mark = punctuation.time
    cdef int64_t earliest = x.most
    cdef int64_t closed = 0
    cdef int64_t count = keyed.count if x.keys != NULL else 1
    cdef int64_t i
    cdef char* record = b.base.single
    cdef Open* s
    cdef bint again
    if not final:
        if punctuation.kind != TIME or not x.clocked:
            return 0
        if not own_mark(x, &mark):
            return 0
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
        s = <Open*> (record + x.key_size)
        if not s.there:
            continue
        if not final and not is_over(x, since_of(x, s), mark):
            earliest = min(earliest, since_of(x, s))
            continue
        if close(x, k, w, record, s, out, final) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        closed += 1
        gathered_forget(x.fold, aggregates_of(s), &b.base.held)
        s.there = LEAVES if x.keys != NULL else 0
    if final:
        return 0
    b.earliest = earliest
    b.known = 1
    if x.keys != NULL:
        keys_leave(w, keyed, x.key_size + 2 * <int32_t> sizeof(int64_t), closed)
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint is_open(Kernel* k, const char* state) noexcept nogil:
    return (<const Open*> state).there > 0


cdef int write_window(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const WindowContext* x = <const WindowContext*> k.ctx
    cdef const Open* s = <const Open*> state
    cdef int32_t column = own_column(k)
    put_word(out.cols[column].data, k.state.type[column], index, s.start)
    put_word(out.cols[column + 1].data, k.state.type[column + 1], index, s.last)
    if (put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0):
        return -1
    return fold_write(x.fold, k.state, <const char*> (s + 1), w, out, column + 2, index)


cdef int32_t read_window(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                         Failure* f) noexcept nogil:
    cdef const WindowContext* x = <const WindowContext*> k.ctx
    cdef Open* s = <Open*> state
    cdef int32_t column = own_column(k)
    if row_null(rows, column, slot) or row_null(rows, column + 1, slot):
        failure_set(f, slot, FAIL_STATE, "the start or the latest time of a window is null")
        return FAIL_STATE
    s.start = row_value(k.state, rows, column, slot)
    s.last = row_value(k.state, rows, column + 1, slot)
    if s.last < s.start or (not x.session and (s.start % x.length != 0 or not goes_on(x, s, s.last))):
        failure_set(f, slot, FAIL_STATE, "a window starts elsewhere, or its latest tuple is outside")
        memset(s, 0, sizeof(Open))
        return FAIL_STATE
    s.there = 1
    (<WindowBucket*> bucket).known = 0
    if fold_read(x.fold, k.state, rows, column + 2, slot, aggregates_of(s),
                 &(<WindowBucket*> bucket).base.held, f) != 0:
        memset(s, 0, sizeof(Open))
        return FAIL_STATE
    return 0


cdef void drop_window(Kernel* k, void* bucket, char* state) noexcept nogil:
    gathered_forget((<const WindowContext*> k.ctx).fold, aggregates_of(<Open*> state),
                    &(<WindowBucket*> bucket).base.held)


cdef void window_free(Kernel* k, void* state) noexcept nogil:
    gathered_forget_all((<const WindowContext*> k.ctx).fold, <Bucket*> state, <int32_t> sizeof(Open))
    free_bucket(k, state)


cdef StateCalls WINDOW = StateCalls(alive=is_open, write=write_window, read=read_window, drop=drop_window)


cdef int32_t window_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                           Failure* f) noexcept nogil:
    """Rows (key..., start, last, aggregates...). Contract: kernel.pxd (f)."""
    return bucket_export(k, w, <Bucket*> state, &WINDOW, cursor, out, f)


cdef int32_t window_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    return bucket_install(k, <Bucket*> state, &WINDOW, rows, slots, n, f)


cdef int32_t window_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    return bucket_remove(k, <Bucket*> state, &WINDOW, keys, slots, n)


cdef class WindowKernel(KernelOwner):
    """Operator "window". Attributes: `window` (kind, length), `time`, `aggregates`, `emit`, `clock`; `key`
    may be empty (SF)."""

    cdef WindowContext context
    cdef KeySpecOwner keys
    cdef FoldOwner fold

    def __init__(self, operator):
        from ordstream.ground.types import integer_range

        emissions = {"close": EMIT_CLOSE, "updates": EMIT_UPDATES, "both": EMIT_BOTH}
        owner_setup(self, operator, PS if operator.key else SF)
        nkeys = len(operator.key)
        types = self.output_layout.types
        both = operator.emit == "both"
        if len(types) != nkeys + 2 + len(operator.aggregates) + both:
            raise ValueError(f"{operator.name!r}: the output schema must be key columns, start, end and "
                             f"aggregates")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, self.input_layout.types)
            self.context.keys = &self.keys.spec
            self.context.key_size = self.keys.spec.size
        self.fold = FoldOwner(operator.aggregates, self.input_layout,
                              types[nkeys + 2:nkeys + 2 + len(operator.aggregates)])
        self.context.fold = &self.fold.fold
        self.context.nkeys = <int32_t> nkeys
        self.context.time = operator.time
        self.context.time_type = self.input_layout.types[operator.time]
        self.context.shown = types[nkeys]
        if self.context.time_type >= PT_U64:
            raise TypeError(f"{operator.name!r}: the time column must be an integer below uint64, a date or "
                            f"a timestamp")
        self.context.conditions = self.kernel.input.ncols
        self.context.session = operator.window.kind == "session"
        self.context.clocked = operator.clock is not None
        self.context.emission = emissions[operator.emit]
        self.context.length = operator.window.length
        self.context.period = max(operator.window.length, 1)
        self.context.least, self.context.most = integer_range(operator.output.field(nkeys).type)
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.extra_cols = self.fold.fold.n
        self.kernel.prepare = window_prepare
        self.kernel.process = window_process
        self.kernel.punctuate = window_punctuate
        self.kernel.bucket_new = window_new
        self.kernel.bucket_free = window_free
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_state(self, operator, window_export, window_install, window_remove)
