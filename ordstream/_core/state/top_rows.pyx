"""The state contract of a top-k. See top_rows.pxd."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, PT_U64, Chunk, Column, Failure, Worker, failure_set, scratch_alloc,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.keyed_rows cimport keyed_find
from ordstream._core.state.state_columns cimport is_there, word_of
from ordstream._core.state.state_rows cimport row_reserve
from ordstream._core.state.top_state cimport (
    Entry, TopBucket, TopContext, begin_anew, entry_of, put_row, ranks_of, take, to_map,
)


cdef int32_t top_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                        Failure* f) noexcept nogil:
    """Rows of all keys; where `by` grows, of those among the best so far. Contract: kernel.pxd (f)."""
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t all_of
    cdef const Entry* e
    cdef const uint8_t* valid
    cdef int32_t n = 0
    cdef int32_t j
    if to_map(x, b) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    all_of = b.size if x.grows else b.keyed.count
    if cursor.keys != NULL and cursor.n == 0:                # one state for all: any key names it
        all_of = 0
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    while n < cursor.most and cursor.at < all_of:
        e = entry_of(b, b.heap[cursor.at] if x.grows else cursor.at)
        if put_row(x, w, e, out, out.n, x.state_column, True) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        valid = <const uint8_t*> e + x.offset[x.ncols]
        for j in range(x.ncols):
            if valid[j] == 0:                                # the value of an earlier row
                memset(out.cols[x.state_column[j]].data + <int64_t> out.n * x.width[j], 0, x.width[j])
        out.n += 1
        n += 1
        cursor.at += 1
    out.slots = out.n
    cursor.done = cursor.at >= all_of
    return n


cdef bint fits(const TopContext* x, TopBucket* b, const Chunk* c, int32_t row, int64_t* window,
               Failure* f) noexcept nogil:
    """Whether a row can be one of the state's (else f is filled); its window."""
    if not is_there(c, x.by, row) or (x.window >= 0 and not is_there(c, x.window, row)):
        failure_set(f, row, FAIL_STATE, "a null where top_k ranks")
        return False
    if x.window >= 0:
        window[0] = word_of(c, x.window, row, x.window_type)
        if x.window_type == PT_U64:
            window[0] = window[0] ^ INT64_MIN
        if b.in_window and window[0] != b.window:
            failure_set(f, row, FAIL_STATE, "it is of another window than the rows before it")
            return False
    if keyed_find(&b.keyed, x.keys, c, row) >= 0:
        failure_set(f, row, FAIL_STATE, "the key is there already")
        return False
    return True


cdef int32_t top_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil:
    """Take such rows in, in any order. Contract: kernel.pxd (f)."""
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> state
    cdef Chunk seen                                          # the rows with the columns of the input
    cdef int64_t[2 * 65] key                                 # room for a record of 64 strings
    cdef int64_t rank
    cdef int64_t window = 0
    cdef int64_t slot
    cdef int32_t i
    cdef int32_t j
    memset(<void*> &seen, 0, sizeof(Chunk))
    seen.cols = <Column*> scratch_alloc(w, x.ncols * sizeof(Column))
    if seen.cols == NULL or to_map(x, b) != 0:
        failure_set(f, slots[0] if n else -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    for j in range(x.ncols):
        seen.cols[j] = rows.cols[x.state_column[j]]
    for i in range(n):
        if not fits(x, b, &seen, slots[i], &window, f):
            return i
        ranks_of(x, &seen, slots + i, 1, &rank)
        if take(x, b, &seen, slots[i], rank, <char*> key, &slot) < 0:
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        if x.window >= 0:
            b.in_window = 1
            b.window = window
    return n


cdef int32_t top_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                        Failure* f) noexcept nogil:
    """Forget the one state. Contract: kernel.pxd (f)."""
    cdef TopBucket* b = <TopBucket*> state
    if n == 0 or (b.keyed.count == 0 and b.rows.n == 0):
        return 0
    if begin_anew(<TopContext*> k.ctx, b) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return 1
