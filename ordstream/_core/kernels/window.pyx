"""Window: aggregations over windows side by side, or sessions, that are forgotten when they close.
Contract: kernel.pxd (b), (c), (f).

a) A key has at most one open window: start, time of the latest tuple, aggregates (fold.pxd).
b) A tuple outside it closes it. So does the clock, whose marks an operator sees at multiples of its period,
   where every window begins and ends; the key is then forgotten.
c) A bucket knows a lower bound of what is open (`earliest`). A mark before which nothing can be due costs
   nothing; another one goes over the bucket's keys. With a clock a key that stays had a tuple since the
   mark before, so that each tuple pays for one visit at most, and keys without new tuples for none but the
   one that closes them.
d) Windows of the calendar differ in length: where they begin stands in a table, of which a guess by their
   mean length is a few places off.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_OVERFLOW, FAIL_STATE, Chunk, Failure, Worker, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.fold cimport Fold, fold_overflows, fold_prepare, fold_row
from ordstream._core.state.fold_rows cimport fold_read, fold_write
from ordstream._core.state.gathered cimport gathered_forget, gathered_row
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket_of, put_word,
)
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK, keyed_record
from ordstream._core.state.marks cimport CLOSING_ALL, CLOSING_FAILED, CLOSING_SOME, Closing, marks_pass
from ordstream._core.state.row_values cimport row_null, row_value
from ordstream._core.state.state_columns cimport own_column, put_valid
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.state.windows cimport (
    EMIT_CLOSE, EMIT_UPDATES, WindowBlock, WindowBucket, WindowContext, behind_start, block_begin,
    block_next, block_time, window_close, window_emit, window_setup, window_shown,
)

cdef struct Open:
    # State of a key; the aggregates follow.
    int64_t start
    int64_t last           # time of the latest tuple
    int64_t there          # 0: no window is open; 1: one is; LEAVES: a mark closed it, the key goes

cdef struct OpenContext:
    # Read-only while a run lasts. Memory ownership: WindowKernel.
    WindowContext window
    int32_t session
    const int64_t* starts  # of the calendar's windows, ascending; at last the end of the last one; or NULL
    int64_t count          # of the windows
    double rate            # windows per unit of time


cdef inline char* aggregates_of(Open* s) noexcept nogil:
    return <char*> (s + 1)


cdef void* window_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef const WindowContext* x = <const WindowContext*> k.ctx
    return new_bucket_of(sizeof(WindowBucket), x.by.keys, <int32_t> sizeof(Open) + x.fold.size, &WINDOW)


cdef int window_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    cdef const WindowContext* x = <const WindowContext*> k.ctx
    return fold_prepare(x.fold, w, c, x.conditions)


cdef inline int64_t number_of(const OpenContext* x, int64_t time) noexcept nogil:
    """Which of the calendar's windows a time lies in; -1: none does. Cost: ~5 ns."""
    cdef int64_t i
    if time < x.starts[0] or time >= x.starts[x.count]:
        return -1
    i = <int64_t> (<double> (<uint64_t> time - <uint64_t> x.starts[0]) * x.rate)
    i = min(i, x.count - 1)
    while time < x.starts[i]:
        i -= 1
    while time >= x.starts[i + 1]:
        i += 1
    return i


cdef inline int64_t end_from(const OpenContext* x, int64_t start) noexcept nogil:
    """End of the window, which is no session, that begins at a time."""
    return x.starts[number_of(x, start) + 1] if x.starts != NULL else start + x.window.length


cdef inline bint goes_on(const OpenContext* x, const Open* s, int64_t time) noexcept nogil:
    """Whether a tuple, not earlier than the latest one, belongs to the open window."""
    if x.session:
        return <uint64_t> time - <uint64_t> s.last <= <uint64_t> x.window.length
    if x.starts != NULL:
        return time < end_from(x, s.start)
    return <uint64_t> time - <uint64_t> s.start < <uint64_t> x.window.length


cdef inline bint start_of(const OpenContext* x, int64_t time, int64_t* start) noexcept nogil:
    """Start of the window that a tuple opens. False: the window is out of range."""
    cdef int64_t behind
    if x.session:
        start[0] = time
        return True
    if x.starts != NULL:
        behind = number_of(x, time)
        if behind < 0:
            return False
        start[0] = x.starts[behind]
        return x.starts[behind] >= x.window.least and x.starts[behind + 1] <= x.window.most
    behind = behind_start(&x.window, x.window.length, time)
    if <uint64_t> time - <uint64_t> x.window.least < <uint64_t> behind or (
            <uint64_t> x.window.most - <uint64_t> (time - behind) < <uint64_t> x.window.length):
        return False
    start[0] = time - behind
    return True


cdef inline int64_t end_of(const OpenContext* x, const Open* s) noexcept nogil:
    return s.last if x.session else end_from(x, s.start)


cdef inline int32_t take_row(const OpenContext* x, Kernel* k, Worker* w, WindowBucket* b, const char* record,
                             Open* s, Chunk* c, int32_t row, WindowBlock* t, int32_t i, int64_t time,
                             int32_t left, Chunk* out, Failure* f) noexcept nogil:
    """Row i of the block meets its key's window. `left`: rows to come. 0, or a FailureCode (f is filled)."""
    cdef const Fold* fold = x.window.fold
    cdef int64_t start = 0
    cdef bint opens = not s.there or not goes_on(x, s, time)
    if opens and not start_of(x, time, &start):
        failure_set(f, row, FAIL_OVERFLOW, "the window of the tuple is out of range")
        return FAIL_OVERFLOW
    if fold.any_checked and fold_overflows(fold, <char*> NULL if opens else aggregates_of(s), &t.fold, i):
        failure_set(f, row, FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
        return FAIL_OVERFLOW
    if opens:
        if s.there and x.window.emission & EMIT_CLOSE and window_emit(
                &x.window, k, w, record, s.start, end_of(x, s), aggregates_of(s), out, row, True, left) != 0:
            failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return FAIL_MEMORY
        if s.there or x.window.by.keys == NULL:              # the state of a new key is zero
            gathered_forget(fold, aggregates_of(s), &b.base.held.bytes)
            memset(aggregates_of(s), 0, fold.size)
        s.there = 1
        s.start = start
        if start < b.marks.earliest:
            b.marks.earliest = start
    s.last = time
    if fold.gathers and gathered_row(
            fold, aggregates_of(s), c, row, t.fold.used, i, &b.base.held.bytes) != 0:
        failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return FAIL_MEMORY
    fold_row(fold, aggregates_of(s), &t.fold, i)
    if x.window.emission & EMIT_UPDATES and window_emit(
            &x.window, k, w, record, s.start, end_of(x, s), aggregates_of(s), out, row, False,
            2 * left) != 0:
        failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return FAIL_MEMORY
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
    cdef const OpenContext* x = <const OpenContext*> k.ctx
    cdef WindowBucket* b = <WindowBucket*> state
    cdef WindowBlock t
    cdef char* record = b.base.single
    cdef Open* s
    cdef int64_t time
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
            s = <Open*> (record + x.window.by.key_size)
            time = block_time(&t, row, i)
            if s.there and time < s.last:
                failure_earlier(f, row, x.window.time, time, s.last)
                return t.at + i
            if take_row(x, k, w, b, record, s, c, row, &t, i, time,
                        min(n - t.at - i, <int32_t> LOOKUP_BLOCK), out, f) != 0:
                return t.at + i
    return t.at


# -------------------------------------------------------------------------------- marks and the end


cdef inline int64_t since_of(const OpenContext* x, const Open* s) noexcept nogil:
    return s.last if x.session else s.start


cdef bint is_due(const Kernel* k, int64_t since, int64_t mark) noexcept nogil:
    """Whether a window that starts at `since` (a session whose latest tuple is then) is closed by a mark."""
    cdef const OpenContext* x = <const OpenContext*> k.ctx
    if mark <= since:
        return False
    if x.session:
        return <uint64_t> mark - <uint64_t> since > <uint64_t> x.window.length
    if x.starts != NULL:
        return mark >= end_from(x, since)
    return <uint64_t> mark - <uint64_t> since >= <uint64_t> x.window.length


cdef Closing close(Kernel* k, Worker* w, Bucket* b, char* record, char* state, Chunk* out, bint final,
                   int64_t mark, int64_t* since) noexcept nogil:
    cdef const OpenContext* x = <const OpenContext*> k.ctx
    cdef Open* s = <Open*> state
    since[0] = since_of(x, s)
    if not final and not is_due(k, since[0], mark):
        return CLOSING_SOME
    if window_close(&x.window, k, w, record, s.start, end_of(x, s), aggregates_of(s), out, final) != 0:
        return CLOSING_FAILED
    gathered_forget(x.window.fold, aggregates_of(s), &b.held.bytes)
    return CLOSING_ALL


cdef int window_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                          Failure* f) noexcept nogil:
    """Close windows: all of them at the end of the stream, at a mark those that are over, whose keys are
    then forgotten. Contract: marks_pass."""
    return marks_pass(k, w, <Bucket*> state, &(<WindowBucket*> state).marks, punctuation, out, is_due, close,
                      f)


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
    cdef const OpenContext* x = <const OpenContext*> k.ctx
    cdef Open* s = <Open*> state
    cdef int32_t column = own_column(k)
    cdef int64_t start = 0
    if row_null(rows, column, slot) or row_null(rows, column + 1, slot):
        failure_set(f, slot, FAIL_STATE, "the start or the latest time of a window is null")
        return FAIL_STATE
    s.start = row_value(k.state, rows, column, slot)
    s.last = row_value(k.state, rows, column + 1, slot)
    if s.last < s.start or (not x.session and (
            not start_of(x, s.last, &start) or start != s.start)):
        failure_set(f, slot, FAIL_STATE, "a window starts elsewhere, or its latest tuple is outside")
        memset(s, 0, sizeof(Open))
        return FAIL_STATE
    s.there = 1
    (<WindowBucket*> bucket).marks.known = 0
    if fold_read(x.window.fold, k.state, rows, column + 2, slot, aggregates_of(s),
                 &(<WindowBucket*> bucket).base.held.bytes, f) != 0:
        memset(s, 0, sizeof(Open))
        return FAIL_STATE
    return 0


cdef void drop_window(Kernel* k, void* bucket, char* state) noexcept nogil:
    gathered_forget((<const WindowContext*> k.ctx).fold, aggregates_of(<Open*> state),
                    &(<WindowBucket*> bucket).base.held.bytes)


cdef StateCalls WINDOW = StateCalls(alive=is_open, write=write_window, read=read_window, drop=drop_window)


cdef class WindowKernel(KernelOwner):
    """Operator "window". Attributes: `window` (kind, length, offset, calendar), `time`, `aggregates`,
    `emit`, `clock`; `key` may be empty (SF)."""

    cdef OpenContext context

    def __init__(self, operator):
        cdef OpenContext* x = &self.context
        cdef Open one
        cdef const int64_t[::1] view
        window_setup(self, operator, &x.window, len(operator.key) + 2, operator.emit == "both", False)
        window_shown(self, operator, &x.window)
        x.session = operator.window.kind == "session"
        if operator.window.calendar is not None:
            starts = operator.window.calendar.starts
            self.references.append(starts)
            view = starts
            x.starts = &view[0]
            x.count = view.shape[0] - 1
            x.rate = <double> x.count / (<double> view[x.count] - <double> view[0])
        x.window.by.word = <int32_t> (<char*> &one.there - <char*> &one)
        self.kernel.ctx = <void*> x
        self.kernel.prepare = window_prepare
        self.kernel.process = window_process
        self.kernel.punctuate = window_punctuate
        self.kernel.bucket_new = window_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
