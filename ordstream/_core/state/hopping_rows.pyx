"""The open windows of a key that overlap as rows of state. See hopping_rows.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport FAIL_STATE, Chunk, Failure, View, Worker, chunk_alloc, failure_set
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.fold cimport Accumulator
from ordstream._core.state.gathered cimport gathered_bytes, gathered_fill, gathered_forget
from ordstream._core.state.hops cimport HoppingContext, Hops, window_at, windows_of
from ordstream._core.state.keyed_bucket cimport Bucket, StateCalls, put_word
from ordstream._core.state.row_values cimport list_room, row_list, row_null, row_value
from ordstream._core.state.state_columns cimport own_column, put_valid
from ordstream._core.state.windows cimport WindowBucket


cdef void drop_windows(Kernel* k, void* bucket, char* state) noexcept nogil:
    cdef const HoppingContext* x = <const HoppingContext*> k.ctx
    cdef Hops* s = <Hops*> state
    cdef int64_t j
    for j in range(s.n if x.window.fold.gathers else 0):
        gathered_forget(x.window.fold, window_at(x, s, s.first + j * x.every),
                        &(<Bucket*> bucket).held.bytes)


cdef bint is_open(Kernel* k, const char* state) noexcept nogil:
    return (<const Hops*> state).n > 0


cdef int write_objects(const HoppingContext* x, Worker* w, Hops* s, int32_t j, Chunk* out,
                       View* to) noexcept nogil:
    """What an aggregation keeps of each window: how many bytes, and these. 0, or -1: no memory."""
    cdef View one
    cdef char* data
    cdef int64_t size = 0
    cdef int64_t i
    for i in range(2 * s.n):                                 # first how many, then the bytes
        if i == s.n:
            data = chunk_alloc(w, out, size + 1)
            if data == NULL:
                return -1
            to.data = data
            to.size = size
            size = 0
        if gathered_bytes((<void**> (window_at(x, s, s.first + i % s.n * x.every)
                                     + x.window.fold.accumulators[j].offset))[0], w, out, &one) != 0:
            return -1
        if i >= s.n:
            memcpy(<char*> to.data + size, &one.size, 8)
            memcpy(<char*> to.data + size + 8, one.data, <size_t> one.size)
        size += 8 + one.size
    return 0


cdef int write_windows(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const HoppingContext* x = <const HoppingContext*> k.ctx
    cdef Hops* s = <Hops*> state
    cdef int32_t column = own_column(k)
    cdef int64_t nwords = (x.window.fold.size - x.words) // 8
    cdef char* there
    cdef char* words
    cdef const char* window
    cdef int64_t i
    cdef int32_t j
    put_word(out.cols[column].data, k.state.type[column], index, s.first)
    put_word(out.cols[column + 1].data, k.state.type[column + 1], index, s.last)
    if put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0:
        return -1
    there = list_room(w, out, column + 2, index, s.n * x.window.fold.n, 1)
    words = list_room(w, out, column + 3, index, s.n * nwords, 8)
    if there == NULL or words == NULL:
        return -1
    for i in range(s.n):
        window = window_at(x, s, s.first + i * x.every)
        memcpy(there + i * x.window.fold.n, window + 1, <size_t> x.window.fold.n)
        memcpy(words + i * nwords * 8, window + x.words, <size_t> nwords * 8)
    column += 4
    for j in range(x.window.fold.n):
        if x.window.fold.accumulators[j].gather == NULL:
            continue
        for i in range(s.n):                                 # not where an object lies
            memset(words + i * nwords * 8 + x.window.fold.accumulators[j].offset - x.words, 0, 8)
        if (write_objects(x, w, s, j, out, &(<View*> out.cols[column].data)[index]) != 0
                or put_valid(w, out, column, index, True) != 0):
            return -1
        column += 1
    return 0


cdef const char* read_objects(const HoppingContext* x, Bucket* b, Hops* s, int32_t j,
                              const View* bytes) noexcept nogil:
    """Make an aggregation's objects. NULL, or what no state has."""
    cdef const Accumulator* a
    cdef View one
    cdef const char* at
    cdef const char* end
    cdef char* window
    cdef int64_t n
    cdef int64_t i
    if bytes == NULL:
        return "the values of a window are null"
    at = bytes.data
    end = at + bytes.size
    for i in range(s.n):
        window = window_at(x, s, s.first + i * x.every)
        if end - at < 8:
            return "the values of a window are cut off"
        memcpy(&one.size, at, 8)
        at += 8
        if one.size < 0 or one.size > end - at:
            return "the values of a window are cut off"
        one.data = at
        at += one.size
        a = &x.window.fold.accumulators[j]
        n = gathered_fill(a, <void**> (window + a.offset), &one, &b.held.bytes)
        if n < 0 or (n > 0) != (window[1 + j] != 0):
            return "the values of a window are not those of its rows"
    if at != end:
        return "the values of a window are too many"
    return NULL


cdef const char* read_all(const HoppingContext* x, Kernel* k, Bucket* b, const Chunk* rows, int32_t slot,
                          Hops* s) noexcept nogil:
    """Fill a zeroed state from a row. NULL, or what no state has."""
    cdef int32_t column = own_column(k)
    cdef int64_t nwords = (x.window.fold.size - x.words) // 8
    cdef const View* there = row_list(rows, column + 2, slot)
    cdef const View* words = row_list(rows, column + 3, slot)
    cdef const char* wrong
    cdef char* window
    cdef int64_t first = row_value(k.state, rows, column, slot)
    cdef int64_t most = 0
    cdef int64_t start = 0
    cdef int64_t n
    cdef int64_t i
    cdef int32_t j
    if row_null(rows, column, slot) or row_null(rows, column + 1, slot) or there == NULL or words == NULL:
        return "a window is null"
    s.last = row_value(k.state, rows, column + 1, slot)
    n = there.size // x.window.fold.n
    if n < 1 or there.size != n * x.window.fold.n or words.size != n * nwords:
        return "the lists of windows are not of one length"
    if not windows_of(x, s.last, &start, &most) or n > most or first != start + (most - n) * x.every:
        return "the latest tuple is not in the windows"
    s.first = first
    s.n = n
    for i in range(n):
        window = window_at(x, s, first + i * x.every)
        window[0] = 1
        memcpy(window + 1, there.data + i * x.window.fold.n, <size_t> x.window.fold.n)
        memcpy(window + x.words, words.data + i * nwords * 8, <size_t> nwords * 8)
        for j in range(x.window.fold.n):
            if x.window.fold.accumulators[j].gather != NULL:
                (<void**> (window + x.window.fold.accumulators[j].offset))[0] = NULL
    column += 4
    for j in range(x.window.fold.n):
        if x.window.fold.accumulators[j].gather == NULL:
            continue
        wrong = read_objects(x, b, s, j, row_list(rows, column, slot))
        if wrong != NULL:
            return wrong
        column += 1
    return NULL


cdef int32_t read_windows(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                          Failure* f) noexcept nogil:
    cdef const HoppingContext* x = <const HoppingContext*> k.ctx
    cdef Hops* s = <Hops*> state
    cdef const char* wrong = read_all(x, k, <Bucket*> bucket, rows, slot, s)
    (<WindowBucket*> bucket).marks.known = 0
    if wrong == NULL:
        return 0
    drop_windows(k, bucket, state)
    memset(s, 0, <size_t> (<int64_t> sizeof(Hops) + x.m * x.window.fold.size))
    failure_set(f, slot, FAIL_STATE, wrong)
    return FAIL_STATE


cdef StateCalls HOPPING = StateCalls(
    alive=is_open, write=write_windows, read=read_windows, drop=drop_windows,
)
