"""Reorder: rows wait until one comes that is later by a slack, and leave in the order of their times
(K-slack; Babu, Srivastava, Widom, Exploiting k-constraints to reduce memory overhead in continuous queries
over data streams, TODS 2004, section 2). Contract: kernel.pxd (b), (c), (f).

a) One state in all: a binary heap of rows by (time, arrival). A row that waits is a word of lent_rows.pxd:
   it lies in its input batch where that may stay, else in an entry. Lent rows that leave together are
   written column by column, and their strings stay where they are (Kernel.shows_kept).
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
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.marked_rows cimport marked_row
from ordstream._core.ground.rejections cimport RejectionTable, rejection_put
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.kernels.rejected cimport RejectedKernel
from ordstream._core.state.held_memory cimport Held, held_free, held_give
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.late_rows cimport LATE_BEGIN, LateRows, late_new
from ordstream._core.state.lent_rows cimport (
    SHOWN_ALREADY, TOO_MANY, LentRows, is_lent, lent_begin, lent_bytes, lent_drop, lent_entry, lent_free,
    lent_settle, lent_valid, lent_word, show_kept, show_lent_column, show_lent_rows,
)
from ordstream._core.state.row_queue cimport Entry, RowSpec, RowSpecOwner, entry_of
from ordstream._core.state.row_values cimport row_null, row_value, value_at
from ordstream._core.state.state_columns cimport put_valid
from ordstream._core.state.state_rows cimport owner_state, row_reserve

cdef enum:
    FIRST_ROOM = 64        # rows that the heap first has room for
    SHOWN_MOST = 256       # rows that are written together
    SHOWN_LEAST = 16       # fewer are written one by one: of a column all lenders are looked at first

cdef struct Waiting:
    # A row that waits. Memory ownership: the state owns an entry.
    int64_t time
    int64_t place          # order of arrival
    int64_t row            # a word of lent_rows.pxd

cdef struct ReorderState:
    # Memory ownership: the runtime, through bucket_new / bucket_free; owns the rows.
    Waiting* heap
    int64_t n
    int64_t room
    int64_t arrived        # rows taken in so far
    int64_t latest
    int64_t started        # 0: no row has come
    Held held              # all rows that wait
    Chunk* tail            # of what one chunk gives: where rows go, behind a punctuation; borrowed
    LentRows lent
    int64_t since          # rows since lent ones were copied

cdef struct Shown:
    # Rows that leave while one chunk is processed. `out` has slots for them, and no values yet.
    Chunk* out             # where rows go, behind a punctuation; borrowed
    int32_t n              # the last rows of `out` that are still to be written
    int32_t expected       # rows that leave, as many as come; 0 behind a punctuation
    int64_t[SHOWN_MOST] words

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


cdef int push(ReorderState* s, int64_t time, int64_t place, int64_t row) noexcept nogil:
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


cdef inline void give_back(ReorderState* s, int64_t row) noexcept nogil:
    """Forget a row that is not in the heap. Its batch stays until lent_settle."""
    if is_lent(row):
        lent_drop(&s.lent, &s.held, row)
        return
    held_give(&s.held, <Entry*> row, (<Entry*> row).room)


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


cdef void write_shown(const ReorderContext* x, const ReorderState* s, Shown* shown) noexcept nogil:
    """Write the rows that still are to be."""
    cdef Chunk* out = shown.out
    if shown.n:
        show_lent_rows(x.rows, &s.lent, shown.words, shown.n, out.cols, NULL, out.n - shown.n)
    shown.n = 0


cdef int show_first(const ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, Shown* shown,
                    int32_t origin) noexcept nogil:
    """Emit the first row. 0, or -1: no memory, and it waits on."""
    cdef Chunk* out = shown.out
    cdef int64_t row = s.heap[0].row
    if shown.n == SHOWN_MOST:
        write_shown(x, s, shown)
    if out.n == out.capacity and chunk_reserve(w, out, k.output, max(shown.expected, <int32_t> 64)) != 0:
        return -1
    if is_lent(row) and shown.expected >= SHOWN_LEAST:
        # of all lenders there are: none comes or goes before lent_settle
        if shown.n == 0 and lent_valid(x.rows, &s.lent, w, out) != 0:
            return -1
    else:
        if show_kept(x.rows, &s.lent, w, row, out, 0, out.n, not is_lent(row)) != 0:
            return -1
        row = SHOWN_ALREADY
    if shown.n or row != SHOWN_ALREADY:
        shown.words[shown.n] = row
        shown.n += 1
    drop_first(s)
    out.origin[out.n] = origin
    out.n += 1
    out.slots = out.n
    return 0


cdef inline int show_time(const ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, Shown* shown,
                          int64_t* before, int64_t time, int32_t origin) noexcept nogil:
    """Let the clock move on to a time. 0, or -1: no memory."""
    cdef int64_t now = period_of(time, x.every)
    cdef Chunk* behind
    if now > period_of(before[0], x.every):
        write_shown(x, s, shown)
        behind = marked_row(w, shown.out, k.output, now * x.every, origin)
        if behind == NULL:
            return -1
        shown.out = behind
        shown.expected = 0
    before[0] = max(before[0], time)
    return 0


cdef int release(const ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, Shown* shown,
                 int64_t before, int32_t origin) noexcept nogil:
    """Emit the rows that are due; the clock has shown `before`. 0, or -1: no memory."""
    while s.n and is_due(x, s, s.heap[0].time):
        if x.every and show_time(x, k, w, s, shown, &before, s.heap[0].time, origin) != 0:
            return -1
        if show_first(x, k, w, s, shown, origin) != 0:
            return -1
    if x.every and show_time(x, k, w, s, shown, &before, reached(x, s), origin) != 0:
        return -1
    return 0


cdef inline int32_t refused(ReorderContext* x, const Chunk* c, int32_t i, Failure* f) noexcept nogil:
    """Note a row that fails, where such rows are rejected. Returns i."""
    if x.rejected != NULL and rejection_put(x.rejected, c, f.slot, NULL, 0, NULL, 0) != 0:
        failure_set(f, f.slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return i


cdef void copy_lent(const ReorderContext* x, Worker* w, ReorderState* s) noexcept nogil:
    """Copy the rows that are lent, all but where memory ends, so that their batches can be released. Cost: a
    look at each row."""
    cdef Entry* entry
    cdef int64_t i
    for i in range(s.n):
        if stop_due(w, i):
            return
        if not is_lent(s.heap[i].row):
            continue
        entry = lent_entry(x.rows, &s.lent, &s.held, s.heap[i].row)
        if entry == NULL:
            return
        lent_drop(&s.lent, &s.held, s.heap[i].row)
        s.heap[i].row = <int64_t> entry


cdef void find_lender(const ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, const Chunk* c,
                      int32_t n) noexcept nogil:
    """Decide for n rows of a chunk whether they stay in their batch. Where too many batches are referred to,
    rows of older ones are copied, once in as many rows as a half of those that wait."""
    s.since += n
    if lent_begin(x.rows, &s.lent, k.batches, c, k.input.ncols) != TOO_MANY or s.since < s.n // 2:
        return
    s.since = 0
    copy_lent(x, w, s)
    lent_settle(&s.lent, k.batches)
    lent_begin(x.rows, &s.lent, k.batches, c, k.input.ncols)


cdef int64_t take(ReorderContext* x, ReorderState* s, const Chunk* c, int32_t slot, int64_t* time,
                  bint late) noexcept nogil:
    """Take a row in, which gets a later time if it is `late`. Returns its word; 0: no memory."""
    cdef Entry* entry
    if s.lent.current >= 0 and not late:
        return lent_word(&s.lent, &s.held, slot)
    entry = entry_of(x.rows, &s.held, c, slot, NULL)
    if entry != NULL and late:
        add_relaxed(&x.adjusted, 1)                          # statistic
        time[0] = s.latest - x.slack
        put_word(<char*> entry + x.rows.offset[x.time], x.time_type, 0, time[0])
    return <int64_t> entry


cdef int32_t reorder_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Take rows in, and emit those that are due.

    Thread safety: the bucket's holder. Ownership: what is shown of input batches points there, of entries
    into out's arena. Returns: n, or j when the time of rows[j] is null or late (the state untouched), or
    without memory. Cost: ~20 ns per row, ~2 per value, and the logarithm of how many wait.
    """
    cdef ReorderContext* x = <ReorderContext*> k.ctx
    cdef ReorderState* s = <ReorderState*> state
    cdef Shown shown
    cdef int32_t done
    shown.out = s.tail if out.link != NULL else out          # behind a row that was skipped
    shown.n = 0
    shown.expected = n
    find_lender(x, k, w, s, c, n)
    done = reorder_rows(x, k, w, s, c, rows, n, &shown, f)
    write_shown(x, s, &shown)
    s.tail = shown.out
    lent_settle(&s.lent, k.batches)
    return done


cdef int32_t reorder_rows(ReorderContext* x, Kernel* k, Worker* w, ReorderState* s, Chunk* c,
                          const int32_t* rows, int32_t n, Shown* shown, Failure* f) noexcept nogil:
    """reorder_process of a chunk whose lender is known."""
    cdef int64_t row
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
        row = take(x, s, c, rows[i], &time, late)
        if row == 0:
            failure_set(f, rows[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
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
        if release(x, k, w, s, shown, before, rows[i]) != 0:
            failure_set(f, rows[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
    return n


cdef int show_late(const LateRows* late, Worker* w, int64_t* words, const int32_t* at, int32_t n, Chunk* out,
                   int32_t column) noexcept nogil:
    """Show rows that waited to the end. Contract: late_rows.pxd. Views point into the state, which no tuple
    changes any more."""
    cdef const ReorderContext* x = <const ReorderContext*> late.context
    cdef const LentRows* lent = &(<ReorderState*> late.state).lent
    cdef int32_t i
    if column != LATE_BEGIN:
        show_lent_column(x.rows, lent, column, words, n, out.cols, at, 0)
        return 0
    if lent_valid(x.rows, lent, w, out) != 0:
        return -1
    for i in range(n):
        if is_lent(words[i]):
            continue
        if show_kept(x.rows, lent, w, words[i], out, 0, at[i], False) != 0:
            return -1
        words[i] = SHOWN_ALREADY
    return 0


cdef int reorder_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """At the end of the stream, emit all rows that wait, in order. Cost: the sort."""
    cdef ReorderContext* x = <ReorderContext*> k.ctx
    cdef ReorderState* s = <ReorderState*> state
    cdef LateRows* late
    cdef int64_t i
    if punctuation.kind != END_OF_STREAM or s.n == 0:
        return 0
    sort(s)
    late = late_new(w, out, s.n, x, s)
    if late == NULL:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    late.show = show_late
    for i in range(s.n):
        if stop_due(w, i):
            return 0
        late.words[i] = s.heap[i].row
        out.flush_time[i] = 0
        out.flush_key[i] = NULL
        out.n += 1
    out.slots = out.n
    return 0


cdef void* reorder_new(Kernel* k, int32_t bucket) noexcept nogil:
    return calloc(1, sizeof(ReorderState))


cdef void empty(ReorderState* s) noexcept nogil:
    """Forget all rows. lent_settle is the caller's."""
    cdef LentRows lent
    cdef int64_t i
    for i in range(s.n):
        give_back(s, s.heap[i].row)
    free(s.heap)
    held_free(&s.held)
    lent = s.lent
    memset(s, 0, sizeof(ReorderState))
    s.lent = lent


cdef void reorder_free(Kernel* k, void* state) noexcept nogil:
    cdef ReorderState* s = <ReorderState*> state
    empty(s)
    lent_free(&s.lent)
    free(s)


cdef int64_t reorder_bytes(Kernel* k, void* state) noexcept nogil:
    cdef ReorderState* s = <ReorderState*> state
    return (<int64_t> sizeof(ReorderState) + s.held.bytes + s.room * <int64_t> sizeof(Waiting)
            + lent_bytes(&s.lent))


# -------------------------------------------------------------------------------- state as rows


cdef int write_row(Kernel* k, Worker* w, ReorderState* s, int64_t place, Chunk* out) noexcept nogil:
    """Write row `place` of the state; 0: the latest time. 0, or -1: no memory."""
    cdef const ReorderContext* x = <const ReorderContext*> k.ctx
    (<int64_t*> out.cols[0].data)[out.n] = place
    (<int64_t*> out.cols[1].data)[out.n] = 0 if place else s.latest
    if put_valid(w, out, 0, out.n, True) != 0 or put_valid(w, out, 1, out.n, place == 0) != 0:
        return -1
    return show_kept(x.rows, &s.lent, w, s.heap[place - 1].row if place else 0, out, 2, out.n, True)


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
        if row != NULL and push(s, time, place, <int64_t> row) != 0:
            give_back(s, <int64_t> row)
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
    lent_settle(&s.lent, k.batches)
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
        self.kernel.shows_kept = 1
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
