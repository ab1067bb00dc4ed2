"""State of operators that keep the last rows of a key. See kept_bucket.pxd."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, View, Worker, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.state.deadlines cimport deadlines_bytes, deadlines_drop, deadlines_free
from ordstream._core.state.kept_ring cimport (
    Ring, Span, ring_drop, ring_own, ring_read, ring_times, ring_write,
)
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket_of, put_word,
)
from ordstream._core.state.keyed_rows cimport keyed_find
from ordstream._core.state.keyed_state cimport KeyedState, keyed_state
from ordstream._core.state.lent_rows cimport (
    NO_LENDER, TOO_MANY, LentRows, lent_begin, lent_bytes, lent_free, lent_settle,
)
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid, word_of
from ordstream._core.state.state_rows cimport bucket_export, bucket_install, bucket_remove

cdef void drop_rows(Kernel* k, void* bucket, char* state) noexcept nogil:
    """Give back what a key keeps. lent_settle is the caller's."""
    cdef KeptBucket* b = <KeptBucket*> bucket
    ring_drop(&(<KeptContext*> k.ctx).ring, &b.lent, &b.base.held, <Ring*> state)


cdef void* kept_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef KeptContext* x = <KeptContext*> k.ctx
    return new_bucket_of(sizeof(KeptBucket), x.keys, x.ring.size, &ROWS)


cdef void kept_free(Kernel* k, void* state) noexcept nogil:
    cdef LentRows lent = (<KeptBucket*> state).lent
    deadlines_free((<KeptBucket*> state).deadlines)
    free_bucket(k, state)
    lent_free(&lent)


cdef int64_t kept_bytes(Kernel* k, void* state) noexcept nogil:
    cdef KeptBucket* b = <KeptBucket*> state
    return bytes_of_bucket(k, state) + deadlines_bytes(b.deadlines) + lent_bytes(&b.lent)


cdef void copy_lent(KeptContext* x, Worker* w, KeptBucket* b) noexcept nogil:
    """Copy the rows that are lent, all but where memory ends, so that their batches can be released. Cost:
    a look at each key."""
    cdef KeyedState* keyed = &b.base.keyed
    cdef char* state
    cdef int64_t slot
    for slot in range(1 if x.keys == NULL else keyed.count):
        if stop_due(w, slot):
            return
        state = b.base.single if x.keys == NULL else keyed_state(keyed, slot)
        if not ring_own(&x.ring, &b.lent, &b.base.held, <Ring*> state):
            return


cdef void find_lender(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, const Chunk* c,
                      int32_t n) noexcept nogil:
    """Decide for n rows of a chunk whether they stay in their batch. Where too many batches are referred to,
    rows of older ones are copied, once in as many rows as a half of the keys."""
    b.since += n
    if not x.lends:
        b.lent.current = NO_LENDER
        return
    if lent_begin(x.kept, &b.lent, k.batches, c, x.ninput) != TOO_MANY or b.since < b.base.keyed.count // 2:
        return
    b.since = 0
    copy_lent(x, w, b)
    lent_settle(&b.lent, k.batches)
    lent_begin(x.kept, &b.lent, k.batches, c, x.ninput)


# -------------------------------------------------------------------------------- state as rows


cdef bint any_row(Kernel* k, const char* state) noexcept nogil:
    return (<const Ring*> state).n != 0


cdef int write_rows(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    """Columns: number of rows; the rows as bytes; with `within` both times."""
    cdef const KeptContext* x = <const KeptContext*> k.ctx
    cdef const Ring* r = <const Ring*> state
    cdef const Span* times = ring_times(&x.ring, r)
    cdef int32_t column = own_column(k)
    (<int64_t*> out.cols[column].data)[index] = r.n
    if (put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0
            or ring_write(&x.ring, w, r, out, &(<View*> out.cols[column + 1].data)[index]) != 0):
        return -1
    if x.time >= 0:
        put_word(out.cols[column + 2].data, x.time_type, index, times.start)
        put_word(out.cols[column + 3].data, x.time_type, index, times.latest)
        if (put_valid(w, out, column + 2, index, True) != 0
                or put_valid(w, out, column + 3, index, True) != 0):
            return -1
    return 0


cdef int32_t read_rows(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef const KeptContext* x = <const KeptContext*> k.ctx
    cdef Ring* r = <Ring*> state
    cdef Span* times = ring_times(&x.ring, r)
    cdef int32_t column = own_column(k)
    cdef int64_t n = (<const int64_t*> rows.cols[column].data)[slot]
    cdef int32_t code = 0
    cdef int32_t j
    drop_rows(k, bucket, state)
    for j in range(4 if x.time >= 0 else 2):
        if not is_there(rows, column + j, slot):
            code = FAIL_STATE
    if n < 1 or n > x.n:
        code = FAIL_STATE
    if code == 0 and x.mode == FIRST:                        # a number, no rows
        r.n = <int32_t> n
    elif code == 0:
        code = ring_read(&x.ring, &(<Bucket*> bucket).held,
                         &(<const View*> rows.cols[column + 1].data)[slot], n, r)
    if code == 0 and x.time >= 0:
        times.start = word_of(rows, column + 2, slot, x.time_type)
        times.latest = word_of(rows, column + 3, slot, x.time_type)
        if times.latest < times.start:
            code = FAIL_STATE
    if code == 0:
        return 0
    drop_rows(k, bucket, state)
    if code == FAIL_STATE:
        failure_set(f, slot, code, "these are no rows that the operator keeps")
    else:
        failure_set(f, slot, code, failure_text(code))
    return code


cdef StateCalls ROWS = StateCalls(alive=any_row, write=write_rows, read=read_rows, drop=drop_rows)


cdef bint own_rows(Kernel* k, KeptBucket* b, const StateCursor* cursor) noexcept nogil:
    """Copy the lent rows of the keys that bucket_export is about to write. False: no memory."""
    cdef KeptContext* x = <KeptContext*> k.ctx
    cdef KeyedState* keyed = &b.base.keyed
    cdef int64_t all_of = 1 if x.keys == NULL else (keyed.count if cursor.keys == NULL else cursor.n)
    cdef int64_t at = cursor.at
    cdef int32_t taken = 0
    cdef int64_t slot
    cdef Ring* r
    while taken < cursor.most and at < all_of and b.lent.bytes:
        slot = at
        if x.keys != NULL and cursor.keys != NULL:
            slot = keyed_find(keyed, k.state_keys, cursor.keys, cursor.slots[at])
        at += 1
        if slot < 0:
            continue
        r = <Ring*> (b.base.single if x.keys == NULL else keyed_state(keyed, slot))
        if not ring_own(&x.ring, &b.lent, &b.base.held, r):
            return False
        taken += r.n != 0
    return True


cdef int32_t kept_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                         Failure* f) noexcept nogil:
    """Rows leave as copies. Contract: kernel.pxd (f)."""
    cdef KeptBucket* b = <KeptBucket*> state
    cdef bint there = own_rows(k, b, cursor)
    lent_settle(&b.lent, k.batches)
    if not there:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return bucket_export(k, w, state, cursor, out, f)


cdef int32_t kept_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    deadlines_drop(&(<KeptBucket*> state).deadlines)
    return bucket_install(k, w, state, rows, slots, n, f)


cdef int32_t kept_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil:
    deadlines_drop(&(<KeptBucket*> state).deadlines)
    n = bucket_remove(k, w, state, keys, slots, n, f)
    lent_settle(&(<KeptBucket*> state).lent, k.batches)
    return n
