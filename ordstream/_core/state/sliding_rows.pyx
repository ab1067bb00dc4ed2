"""The rows of sliding windows (sliding.pxd) as rows of state: contract kernel.pxd (f)."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, View, Worker, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.gathered cimport (
    GATHERED_SEE, gathered_bytes, gathered_fill, gathered_forget_one, gathered_window,
)
from ordstream._core.state.held_memory cimport held_give
from ordstream._core.state.keyed_bucket cimport Bucket, StateCalls, put_word
from ordstream._core.state.row_values cimport list_room, row_list, row_null, row_value, value_at
from ordstream._core.state.sliding cimport (
    FIRST_ROOM, TOTAL_WORDS, RollingContext, Slide, entry_at, resize, see, time_at, total_of,
    wide_add,
)
from ordstream._core.state.state_columns cimport own_column, put_valid
from ordstream._core.state.windows cimport WindowBucket


cdef void drop_objects(const RollingContext* x, Bucket* b, Slide* s) noexcept nogil:
    """Drop what the aggregations of a window own."""
    cdef int32_t j
    if x.window.fold.gathers:
        for j in range(x.window.fold.n):
            if x.words[j].boxed:
                gathered_forget_one(<void**> total_of(s, j), &b.held.bytes)


cdef void drop_ring(Kernel* k, void* bucket, char* state) noexcept nogil:
    """Give the memory of a ring and of its objects back; the state is zeroed."""
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef Slide* s = <Slide*> state
    drop_objects(x, <Bucket*> bucket, s)
    held_give(&(<Bucket*> bucket).held, s.entries, s.room * x.entry)
    memset(s, 0, sizeof(Slide) + <size_t> x.window.fold.n * 8 * TOTAL_WORDS)


cdef bint any_row(Kernel* k, const char* state) noexcept nogil:
    return (<const Slide*> state).n > 0


cdef int write_ring(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef const Slide* s = <const Slide*> state
    cdef char* to
    cdef View* to_view
    cdef int32_t column = own_column(k)
    cdef int32_t j
    cdef int64_t i
    (<int64_t*> out.cols[column].data)[index] = s.front
    (<int64_t*> out.cols[column + 1].data)[index] = s.seen
    if put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0:
        return -1
    column += 2
    if x.window.time >= 0:
        to = list_room(w, out, column, index, s.n, WIDTHS[x.window.time_type])
        if to == NULL:
            return -1
        for i in range(s.n):
            put_word(to, x.window.time_type, i, time_at(x, s, i))
        column += 1
    to = list_room(w, out, column, index, s.n * x.window.fold.n, 1)
    if to == NULL:
        return -1
    for i in range(s.n):
        memcpy(to + i * x.window.fold.n, entry_at(x, s, i) + x.flags, x.window.fold.n)
    to = list_room(w, out, column + 1, index, s.n * x.nwords, 8)
    if to == NULL:
        return -1
    for i in range(s.n):
        memcpy(to + i * x.nwords * 8, entry_at(x, s, i) + x.begin, <size_t> x.nwords * 8)
    column += 2
    for j in range(x.window.fold.n):
        if x.words[j].boxed:
            to_view = &(<View*> out.cols[column].data)[index]
            if (gathered_bytes(<void*> total_of(<Slide*> s, j)[0], w, out, to_view) != 0
                    or put_valid(w, out, column, index, to_view.size != 0) != 0):
                return -1
            column += 1
    return 0


cdef const char* read_entries(const RollingContext* x, const Chunk* rows, int32_t column, int32_t slot,
                              Slide* s) noexcept nogil:
    """Fill the entries of a ring, s.n of them, from a row. NULL, or what no ring has."""
    cdef const View* times = row_list(rows, column, slot) if x.window.time >= 0 else NULL
    cdef const View* there
    cdef const View* words
    cdef char* entry
    cdef int64_t i
    if x.window.time >= 0:
        column += 1
    there = row_list(rows, column, slot)
    words = row_list(rows, column + 1, slot)
    if (there == NULL or words == NULL or there.size != s.n * x.window.fold.n
            or words.size != s.n * x.nwords or (x.window.time >= 0 and times == NULL)):
        return "the lists of a window are null, or not of one length"
    for i in range(s.n):
        entry = entry_at(x, s, i)
        memset(entry, 0, x.entry)
        if x.window.time >= 0:
            (<int64_t*> entry)[0] = value_at(x.window.time_type, times.data, <int32_t> i)
            if i and time_at(x, s, i) < time_at(x, s, i - 1):
                return "the times of a window run backwards"
        memcpy(entry + x.begin, words.data + i * x.nwords * 8, <size_t> x.nwords * 8)
        memcpy(entry + x.flags, there.data + i * x.window.fold.n, x.window.fold.n)
    return NULL


cdef int64_t rows_of(const RollingContext* x, const Chunk* rows, int32_t column,
                     int32_t slot) noexcept nogil:
    """How many rows a stored window has; -1: it is none."""
    cdef const View* l = row_list(rows, column + 2, slot)
    if l == NULL:
        return -1
    return l.size if x.window.time >= 0 else l.size // x.window.fold.n


cdef const char* read_objects(const RollingContext* x, Bucket* b, const Chunk* rows, int32_t column,
                              int32_t slot, Slide* s) noexcept nogil:
    """Fill the objects of a ring whose entries are there. NULL, or what no ring has."""
    cdef const View* bytes
    cdef int64_t n
    cdef int64_t i
    cdef int32_t j
    for j in range(x.window.fold.n):
        if not x.words[j].boxed:
            continue
        bytes = row_list(rows, column, slot)
        column += 1
        n = 0
        for i in range(s.n):
            n += entry_at(x, s, i)[x.flags + j] != 0
        if bytes == NULL and n == 0:
            continue
        if bytes == NULL or gathered_fill(&x.window.fold.accumulators[j], <void**> total_of(s, j), bytes,
                                          &b.held.bytes) != n:
            return "the values of an aggregation are not those of its rows"
        for i in range(s.front):
            if entry_at(x, s, i)[x.flags + j]:
                gathered_window(<void*> total_of(s, j)[0], GATHERED_SEE, &b.held.bytes)
    return NULL


cdef int32_t read_ring(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef Bucket* b = <Bucket*> bucket
    cdef Slide* s = <Slide*> state
    cdef int32_t column = own_column(k)
    cdef int64_t n = rows_of(x, rows, column, slot)
    cdef int64_t room = FIRST_ROOM
    cdef int64_t i
    cdef int32_t j
    cdef const char* wrong
    drop_ring(k, bucket, state)                              # room that a key without rows may have
    if n < 1 or row_null(rows, column, slot) or row_null(rows, column + 1, slot):
        failure_set(f, slot, FAIL_STATE, "a window is null, or has no row")
        return FAIL_STATE
    while room < n:
        room *= 2
    if x.window.time < 0:
        room = max(n, min(room, x.window.length))
    if resize(x, b, s, room) != 0:
        failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return FAIL_MEMORY
    s.n = n
    s.front = row_value(k.state, rows, column, slot)
    s.seen = row_value(k.state, rows, column + 1, slot)
    wrong = read_entries(x, rows, column + 2, slot, s)
    if not 0 <= s.front <= s.seen <= n or (x.ends_at_row and s.seen != n):
        wrong = "more rows of a window are in front, or seen, than there are"
    if wrong == NULL and x.window.fold.gathers:
        wrong = read_objects(x, b, rows, column + (5 if x.window.time >= 0 else 4), slot, s)
    if wrong != NULL:
        drop_ring(k, bucket, state)
        failure_set(f, slot, FAIL_STATE, wrong)
        return FAIL_STATE
    for i in range(s.front, s.seen):
        see(x, b, s, entry_at(x, s, i))
    for i in range(s.front):                                 # only what can be undone: the rest is there
        for j in range(x.window.fold.n):
            if x.words[j].exact and not x.words[j].boxed and entry_at(x, s, i)[x.flags + j]:
                wide_add(total_of(s, j), (<const int64_t*> (entry_at(x, s, i) + x.words[j].offset))[0])
                total_of(s, j)[2] += 1
                total_of(s, j)[3] = 1
    (<WindowBucket*> bucket).marks.known = 0
    return 0


cdef StateCalls RING = StateCalls(alive=any_row, write=write_ring, read=read_ring, drop=drop_ring)
