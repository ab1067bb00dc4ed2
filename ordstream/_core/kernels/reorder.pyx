"""Reorder: rows wait until one comes that is later by a slack, and leave in the order of their times
(K-slack; Babu, Srivastava, Widom, Exploiting k-constraints to reduce memory overhead in continuous queries
over data streams, TODS 2004, section 2). Contract: kernel.pxd (b), (c), (f).

a) One state in all: a binary heap of rows by (time, arrival). A row that waits is an entry of row_queue.pxd;
   what leaves is copied into the output chunk.
b) A row before the latest time less the slack is late: an error at that row, or it gets that time. Where
   late rows have an output of their own, they are errors that are skipped, and noted (rejections.pxd).
c) Where operators behind want its clock (`every`), punctuations stand among the rows that leave: in front of
   the first row of another multiple, and behind the rows that one row lets go, where the latest time less
   the slack is in another one (marked_rows.pxd says how). The time that the clock has reached is no more
   state: it is the latest time less the slack.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from ordstream._core.ground.atomics cimport a64, add_relaxed, load_relaxed
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_STATE, PT_U64, Chunk, Failure, Worker, chunk_reserve,
    failure_set,
)
from ordstream._core.ground.kernel cimport SF, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.ground.marked_rows cimport marked_row
from ordstream._core.ground.rejections cimport RejectionTable, rejection_put
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.kernels.rejected cimport RejectedKernel
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.row_queue cimport Entry, RowSpec, RowSpecOwner, entry_of, show_entry
from ordstream._core.state.row_values cimport row_null, row_value, value_at
from ordstream._core.state.state_columns cimport put_valid
from ordstream._core.state.state_rows cimport owner_state, row_reserve

cdef enum:
    FIRST_ROOM = 64        # rows that the heap first has room for

cdef struct Waiting:
    # A row that waits. Memory ownership: the state owns the entry.
    int64_t time
    int64_t place          # order of arrival
    Entry* row

cdef struct ReorderState:
    # Memory ownership: the runtime, through bucket_new / bucket_free; owns the rows.
    Waiting* heap
    int64_t n
    int64_t room
    int64_t arrived        # rows taken in so far
    int64_t latest
    int64_t started        # 0: no row has come
    int64_t held           # bytes of all rows that wait
    Chunk* tail            # of what one chunk gives: where rows go, behind a punctuation; borrowed

cdef struct ReorderContext:
    # Read-only while a run lasts. Memory ownership: ReorderKernel.
    int32_t time           # column
    int32_t time_type
    int32_t adjusts        # a late row gets the time that it should have had
    a64 adjusted           # rows that did
    RejectionTable* rejected   # where rows that fail are noted, or NULL
    const RowSpec* rows    # whole rows of the input
    const RowSpec* stored  # the same columns in a row of exported state, behind two others
    int64_t slack
    int64_t every          # of the punctuations that it makes; 0: none


cdef inline bint before(const Waiting* a, const Waiting* b) noexcept nogil:
    return a.time < b.time or (a.time == b.time and a.place < b.place)


cdef void sift_up(ReorderState* s, int64_t at) noexcept nogil:
    cdef Waiting one = s.heap[at]
    cdef int64_t up
    while at > 0:
        up = (at - 1) // 2
        if not before(&one, &s.heap[up]):
            break
        s.heap[at] = s.heap[up]
        at = up
    s.heap[at] = one


cdef void sift_down(ReorderState* s, int64_t at, int64_t n) noexcept nogil:
    cdef Waiting one = s.heap[at]
    cdef int64_t down
    while True:
        down = 2 * at + 1
        if down >= n:
            break
        if down + 1 < n and before(&s.heap[down + 1], &s.heap[down]):
            down += 1
        if not before(&s.heap[down], &one):
            break
        s.heap[at] = s.heap[down]
        at = down
    s.heap[at] = one


cdef int push(ReorderState* s, int64_t time, int64_t place, Entry* row) noexcept nogil:
    """Take a row. 0, or -1: no memory, and it is still the caller's."""
    cdef Waiting* heap
    cdef int64_t room
    if s.n == s.room:
        room = 2 * s.room if s.room else <int64_t> FIRST_ROOM
        heap = <Waiting*> realloc(s.heap, <size_t> room * sizeof(Waiting))
        if heap == NULL:
            return -1
        s.heap = heap
        s.room = room
    s.heap[s.n].time = time
    s.heap[s.n].place = place
    s.heap[s.n].row = row
    s.n += 1
    sift_up(s, s.n - 1)
    return 0


cdef inline void give_back(ReorderState* s, Entry* row) noexcept nogil:
    """The memory of a row that is not in the heap."""
    s.held -= row.room
    free(row)


cdef void drop_first(ReorderState* s) noexcept nogil:
    """Forget the first row."""
    give_back(s, s.heap[0].row)
    s.n -= 1
    if s.n:
        s.heap[0] = s.heap[s.n]
        sift_down(s, 0, s.n)


cdef void sort(ReorderState* s) noexcept nogil:
    """Put the heap in ascending order, in which it is a heap too."""
    cdef Waiting one
    cdef int64_t n = s.n
    cdef int64_t i
    while n > 1:                                             # heap sort: descending
        n -= 1
        one = s.heap[0]
        s.heap[0] = s.heap[n]
        s.heap[n] = one
        sift_down(s, 0, n)
    for i in range(s.n // 2):
        one = s.heap[i]
        s.heap[i] = s.heap[s.n - 1 - i]
        s.heap[s.n - 1 - i] = one


cdef inline bint is_due(const ReorderContext* x, const ReorderState* s, int64_t time) noexcept nogil:
    """Whether a row leaves: no row that is not late comes before it any more."""
    return <uint64_t> s.latest - <uint64_t> time >= <uint64_t> x.slack


cdef inline bint is_late(const ReorderContext* x, const ReorderState* s, int64_t time) noexcept nogil:
    return s.started and time < s.latest and <uint64_t> s.latest - <uint64_t> time > <uint64_t> x.slack


cdef inline int64_t reached(const ReorderContext* x, const ReorderState* s) noexcept nogil:
    """No row that leaves from here on is earlier."""
    return s.latest - x.slack if s.latest >= INT64_MIN + x.slack else INT64_MIN


cdef inline int64_t period_of(int64_t time, int64_t every) noexcept nogil:
    """The multiple of a period that a time lies in, rounded down."""
    return time // every - (1 if time % every < 0 else 0)


cdef inline Chunk* show_time(const ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, Chunk* out,
                             int64_t* before, int64_t time, int32_t origin) noexcept nogil:
    """Let the clock move on to a time. Returns where rows go now; NULL: no memory."""
    cdef int64_t now = period_of(time, x.every)
    if now > period_of(before[0], x.every):
        out = marked_row(w, out, k.output, now * x.every, origin)
        s.tail = out
    before[0] = max(before[0], time)
    return out


cdef int release(const ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, Chunk* out, int64_t before,
                 int32_t origin) noexcept nogil:
    """Emit the rows that are due; the clock has shown `before`. 0, or -1: no memory."""
    if out.link != NULL:
        out = s.tail
    while s.n and is_due(x, s, s.heap[0].time):
        if x.every:
            out = show_time(x, k, w, s, out, &before, s.heap[0].time, origin)
            if out == NULL:
                return -1
        if out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0:
            return -1
        if show_entry(x.rows, w, s.heap[0].row, out, 0, out.n, True) != 0:
            return -1
        drop_first(s)
        out.origin[out.n] = origin
        out.n += 1
        out.slots = out.n
    if x.every and show_time(x, k, w, s, out, &before, reached(x, s), origin) == NULL:
        return -1
    return 0


cdef inline int32_t refused(ReorderContext* x, const Chunk* c, int32_t i, Failure* f) noexcept nogil:
    """Note a row that fails, where such rows are rejected. Returns i."""
    if x.rejected != NULL and rejection_put(x.rejected, c, f.slot, NULL, 0, NULL, 0) != 0:
        failure_set(f, f.slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return i


cdef int32_t reorder_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Take rows in, and emit those that are due.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes. Returns: n, or j when the time of
    rows[j] is null or late (the state untouched), or without memory. Cost: ~100 ns per row, and the
    logarithm of how many wait.
    """
    cdef ReorderContext* x = <ReorderContext*> k.ctx
    cdef ReorderState* s = <ReorderState*> state
    cdef Entry* row
    cdef char[152] text
    cdef int64_t time
    cdef int64_t before
    cdef int32_t i
    cdef bint late
    for i in range(n):
        if row_null(c, x.time, rows[i]):
            failure_set(f, rows[i], FAIL_NULL, "a null time: filter such tuples out before reorder")
            return refused(x, c, i, f)
        time = value_at(x.time_type, c.cols[x.time].data, rows[i])
        late = is_late(x, s, time)
        if late and not x.adjusts:
            snprintf(text, sizeof(text), "a late row: %lld is more than the slack, %lld, before %lld",
                     <long long> time, <long long> x.slack, <long long> s.latest)
            failure_set(f, rows[i], FAIL_NULL, text)
            return refused(x, c, i, f)
        row = entry_of(x.rows, &s.held, c, rows[i], NULL)
        if row == NULL:
            failure_set(f, rows[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        if late:
            add_relaxed(&x.adjusted, 1)                      # statistic
            time = s.latest - x.slack
            put_word(<char*> row + x.rows.offset[x.time], x.time_type, 0, time)
        if push(s, time, s.arrived + 1, row) != 0:
            give_back(s, row)
            failure_set(f, rows[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        s.arrived += 1
        before = reached(x, s)
        if not s.started or time > s.latest:
            s.latest = time
        if not s.started:
            before = reached(x, s)                           # the first tuple shows no time
        s.started = 1
        if release(x, k, w, s, out, before, rows[i]) != 0:
            failure_set(f, rows[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
    return n


cdef int reorder_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """At the end of the stream, emit all rows that wait, in order."""
    cdef ReorderContext* x = <ReorderContext*> k.ctx
    cdef ReorderState* s = <ReorderState*> state
    cdef int64_t i = 0
    if punctuation.kind != END_OF_STREAM:
        return 0
    while s.n:
        if stop_due(w, i):
            return 0
        i += 1
        if (flush_reserve(w, out, k.output, 1) != 0
                or show_entry(x.rows, w, s.heap[0].row, out, 0, out.n, True) != 0):
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        drop_first(s)
        out.origin[out.n] = 0
        out.flush_time[out.n] = 0
        out.flush_key[out.n] = NULL
        out.n += 1
        out.slots = out.n
    return 0


cdef void* reorder_new(Kernel* k, int32_t bucket) noexcept nogil:
    return calloc(1, sizeof(ReorderState))


cdef void empty(ReorderState* s) noexcept nogil:
    """Forget all rows."""
    cdef int64_t i
    for i in range(s.n):
        free(s.heap[i].row)
    free(s.heap)
    memset(s, 0, sizeof(ReorderState))


cdef void reorder_free(Kernel* k, void* state) noexcept nogil:
    empty(<ReorderState*> state)
    free(state)


cdef int64_t reorder_bytes(Kernel* k, void* state) noexcept nogil:
    cdef ReorderState* s = <ReorderState*> state
    return <int64_t> sizeof(ReorderState) + s.held + s.room * <int64_t> sizeof(Waiting)


# -------------------------------------------------------------------------------- state as rows


cdef int write_row(Kernel* k, Worker* w, ReorderState* s, int64_t place, Chunk* out) noexcept nogil:
    """Write row `place` of the state; 0: the latest time. 0, or -1: no memory."""
    cdef const ReorderContext* x = <const ReorderContext*> k.ctx
    (<int64_t*> out.cols[0].data)[out.n] = place
    (<int64_t*> out.cols[1].data)[out.n] = 0 if place else s.latest
    if put_valid(w, out, 0, out.n, True) != 0 or put_valid(w, out, 1, out.n, place == 0) != 0:
        return -1
    return show_entry(x.rows, w, s.heap[place - 1].row if place else NULL, out, 2, out.n, True)


cdef int32_t reorder_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                            Failure* f) noexcept nogil:
    """Rows (place, latest, columns...). Contract: kernel.pxd (f)."""
    cdef ReorderState* s = <ReorderState*> state
    cdef int32_t n = 0
    if cursor.done or (cursor.keys != NULL and cursor.n == 0) or not s.started:
        cursor.done = 1
        return 0
    if cursor.at == 0:
        sort(s)
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    while n < cursor.most and cursor.at <= s.n:
        if write_row(k, w, s, cursor.at, out) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        out.n += 1
        cursor.at += 1
        n += 1
    out.slots = out.n
    cursor.done = cursor.at > s.n
    return n


cdef const char* wrong_row(Kernel* k, const ReorderState* s, const Chunk* rows, int32_t slot) noexcept nogil:
    """What no state has in a row, or NULL."""
    cdef const ReorderContext* x = <const ReorderContext*> k.ctx
    if row_null(rows, 0, slot):
        return "the place of a row is null"
    if row_value(k.state, rows, 0, slot) < 0:
        return "the place of a row is negative"
    if row_value(k.state, rows, 0, slot) == 0:
        if s.started:
            return "the operator has one state, and it is there already"
        if row_null(rows, 1, slot):
            return "the latest time is null"
    elif row_null(rows, 2 + x.time, slot):
        return "the time of a row is null"
    return NULL


cdef int32_t reorder_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots,
                             int32_t n, Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    cdef const ReorderContext* x = <const ReorderContext*> k.ctx
    cdef ReorderState* s = <ReorderState*> state
    cdef const char* wrong
    cdef Entry* row
    cdef int64_t place
    cdef int64_t time
    cdef int32_t i
    for i in range(n):
        wrong = wrong_row(k, s, rows, slots[i])
        if wrong != NULL:
            failure_set(f, slots[i], FAIL_STATE, wrong)
            return i
        place = row_value(k.state, rows, 0, slots[i])
        if place == 0:
            s.latest = row_value(k.state, rows, 1, slots[i])
            s.started = 1
            continue
        time = row_value(k.state, rows, 2 + x.time, slots[i])
        row = entry_of(x.stored, &s.held, rows, slots[i], NULL)
        if row != NULL and push(s, time, place, row) != 0:
            give_back(s, row)
            row = NULL
        if row == NULL:
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        s.arrived = max(s.arrived, place)
    return n


cdef int32_t reorder_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil:
    """Forget everything. Contract: kernel.pxd (f)."""
    cdef ReorderState* s = <ReorderState*> state
    cdef int32_t there = 1 if s.started else 0
    if n == 0:
        return 0
    empty(s)
    return there


cdef class ReorderKernel(KernelOwner):
    """Operator "reorder". Attributes: `time`, column; `slack`, int; `late`, "adjust" or another."""

    cdef ReorderContext context
    cdef RejectedKernel taker
    cdef RowSpecOwner rows
    cdef RowSpecOwner stored

    def __init__(self, operator):
        cdef ReorderContext* x = &self.context
        cdef int32_t columns
        owner_setup(self, operator, SF)
        if self.output_layout.types != self.input_layout.types:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's")
        x.time = operator.time
        x.time_type = self.input_layout.types[operator.time]
        if x.time_type >= PT_U64:
            raise TypeError(f"{operator.name!r}: the time column must be an integer below uint64, a date or "
                            f"a timestamp")
        x.slack = operator.slack
        x.every = operator.marks or 0
        x.adjusts = operator.late == "adjust"
        columns = self.kernel.input.ncols
        self.rows = RowSpecOwner(range(columns), self.input_layout)
        x.rows = &self.rows.spec
        self.kernel.ctx = <void*> x
        self.kernel.process = reorder_process
        self.kernel.punctuate = reorder_punctuate
        self.kernel.bucket_new = reorder_new
        self.kernel.bucket_free = reorder_free
        self.kernel.bucket_bytes = reorder_bytes
        owner_state(self, operator, reorder_export, reorder_install, reorder_remove)
        self.stored = RowSpecOwner(range(2, 2 + columns), self.state_layout)
        x.stored = &self.stored.spec

    def reject_to(self, RejectedKernel taker):
        """Note skipped rows for the operator that makes the second output. Before the run."""
        self.taker = taker
        self.context.rejected = &taker.rejections.table

    @property
    def adjusted(self):
        """Late rows that got a later time."""
        return load_relaxed(&self.context.adjusted)
