"""Joined rows. See joined_rows.pxd."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, PT_F32, PT_F64, PT_U64, PT_VIEW, Chunk, Column, Failure, View, Worker,
    chunk_alloc, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.ground.shown_text cimport shown_text
from ordstream._core.state.held_memory cimport Held
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.keyed_state cimport KeyedState, KeySpec, keyed_record, keyed_state
from ordstream._core.state.row_queue cimport Entry, Queue, queue_drop, queue_read, queue_write
from ordstream._core.state.row_values cimport row_value
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid, word_of


cdef void joined_drop(Held* held, Joined* s) noexcept nogil:
    """Give back all rows of a key."""
    queue_drop(&s.rows[LEFT], held)
    queue_drop(&s.rows[RIGHT], held)


cdef int write_side(const Sides* x, Worker* w, int32_t j, const Queue* q, Chunk* out, int32_t index,
                    int32_t column) noexcept nogil:
    """Columns: number of rows; the rows as bytes; where it matters, which of them matched."""
    cdef Entry* entry = q.oldest
    cdef char* bytes
    (<int64_t*> out.cols[column].data)[index] = q.n
    if (put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0
            or queue_write(x.side[j].kept, w, q, out, &(<View*> out.cols[column + 1].data)[index]) != 0):
        return -1
    if not x.side[j].alone:
        return 0
    bytes = chunk_alloc(w, out, q.n + 1)
    if bytes == NULL or put_valid(w, out, column + 2, index, True) != 0:
        return -1
    (<View*> out.cols[column + 2].data)[index].data = bytes
    (<View*> out.cols[column + 2].data)[index].size = q.n
    while entry != NULL:
        bytes[0] = <char> own(&x.side[j], entry).matched
        bytes += 1
        entry = entry.next
    return 0


cdef inline int32_t columns_of(const Sides* x, int32_t j) noexcept nogil:
    """Columns of state of a side."""
    if not x.side[j].keeps:
        return 0
    return 3 if x.side[j].alone else 2


cdef int joined_write(Kernel* k, const Sides* x, Worker* w, const Joined* s, Chunk* out,
                      int32_t index) noexcept nogil:
    """Columns behind the key: time of the last tuple; then those of each side that is kept. 0, or -1: no
    memory. Ownership: out's arena."""
    cdef int32_t column = own_column(k)
    cdef int32_t j
    put_word(out.cols[column].data, x.time_type, index, s.latest)
    if put_valid(w, out, column, index, True) != 0:
        return -1
    column += 1
    for j in range(2):
        if x.side[j].keeps and write_side(x, w, j, &s.rows[j], out, index, column) != 0:
            return -1
        column += columns_of(x, j)
    return 0


cdef bint entry_time(const Sides* x, const Side* side, Entry* entry, int64_t* time) noexcept nogil:
    """The time of a kept row, widened. False: it is null."""
    cdef Chunk c
    cdef Column column
    if (<char*> (entry + 1))[side.time_place] == 0:
        return False
    memset(<void*> &c, 0, sizeof(Chunk))
    column.data = <char*> entry + side.kept.offset[side.time_place]
    column.valid = NULL
    c.cols = &column
    time[0] = word_of(&c, 0, 0, x.time_type)
    return True


cdef int32_t read_side(const Sides* x, Held* held, int32_t j, const Chunk* rows, int32_t slot,
                       int32_t column, Joined* s) noexcept nogil:
    """A side of an empty state. 0, FAIL_STATE or FAIL_MEMORY."""
    cdef const Side* side = &x.side[j]
    cdef int64_t n = (<const int64_t*> rows.cols[column].data)[slot]
    cdef const View* matched = NULL
    cdef int64_t before = INT64_MIN
    cdef int64_t i = 0
    cdef int64_t[2] time
    cdef int32_t code
    cdef Entry* entry
    if n < 0 or (x.last_only and n > 1):
        return FAIL_STATE
    if side.alone:
        matched = &(<const View*> rows.cols[column + 2].data)[slot]
        if matched.size != n:
            return FAIL_STATE
    code = queue_read(side.kept, held, &(<const View*> rows.cols[column + 1].data)[slot], n,
                      &s.rows[j])
    entry = s.rows[j].oldest if code == 0 else NULL
    while entry != NULL:
        own(side, entry).matched = 0
        if matched != NULL:
            if matched.data[i] != 0 and matched.data[i] != 1:
                return FAIL_STATE
            own(side, entry).matched = matched.data[i]
        if not entry_time(x, side, entry, time) or time[0] < before or time[0] > s.latest:
            return FAIL_STATE
        own(side, entry).time = time[0]
        before = time[0]
        entry = entry.next
        i += 1
    return code


cdef int32_t joined_read(Kernel* k, const Sides* x, Held* held, const Chunk* rows, int32_t slot,
                         Joined* s, Failure* f) noexcept nogil:
    """Fill a state from such columns. 0, or the FailureCode of f; the state is then empty."""
    cdef int32_t column = own_column(k)
    cdef int32_t code = 0
    cdef int32_t j
    joined_drop(held, s)
    for j in range(1 + columns_of(x, LEFT) + columns_of(x, RIGHT)):
        if not is_there(rows, column + j, slot):
            code = FAIL_STATE
    if code == 0:
        s.latest = row_value(k.state, rows, column, slot)
    column += 1
    for j in range(2):
        if code == 0 and x.side[j].keeps:
            code = read_side(x, held, j, rows, slot, column, s)
        column += columns_of(x, j)
    if code == 0:
        s.there = 1
        return 0
    joined_drop(held, s)
    if code == FAIL_STATE:
        failure_set(f, slot, code, "these are no rows that the operator keeps")
    else:
        failure_set(f, slot, code, failure_text(code))
    return code


# -------------------------------------------------------------------------------- the largest key


cdef int64_t bytes_of_rows(const Joined* s) noexcept nogil:
    cdef const Entry* entry
    cdef int64_t bytes = 0
    cdef int32_t side
    for side in range(2):
        entry = s.rows[side].oldest
        while entry != NULL:
            bytes += entry.room
            entry = entry.next
    return bytes


cdef void key_text(const KeySpec* keys, const char* record, char* to, int64_t room) noexcept nogil:
    """A key for an error: the stored values, cut where there are many."""
    cdef const View* v
    cdef int64_t at = 0
    cdef double real
    cdef int32_t j
    for j in range(keys.ncols):
        if at >= room - 1:
            return
        v = <const View*> (record + keys.offset[j])
        if j:
            at += snprintf(to + at, <size_t> (room - at), ", ")
        if at >= room - 1:
            return
        if keys.type[j] == PT_VIEW:
            at += shown_text(to + at, room - at, v.data, v.size)
        elif keys.type[j] == PT_F64 or keys.type[j] == PT_F32:
            memcpy(&real, v, 8)
            at += snprintf(to + at, <size_t> (room - at), "%.17g", real)
        elif keys.type[j] == PT_U64:
            at += snprintf(to + at, <size_t> (room - at), "%llu", (<const unsigned long long*> v)[0])
        else:
            at += snprintf(to + at, <size_t> (room - at), "%lld", (<const long long*> v)[0])


cdef void joined_too_large(KeyedState* keyed, int64_t total, int64_t most_bytes, int32_t row,
                           Failure* f) noexcept nogil:
    """Say that there are more bytes of state than may be, and which key of a bucket has most of them."""
    cdef int64_t most = -1
    cdef int64_t largest = 0
    cdef int64_t bytes
    cdef int64_t slot
    cdef Joined* s
    cdef char[48] key
    cdef char[160] text
    for slot in range(keyed.count):
        bytes = bytes_of_rows(<Joined*> keyed_state(keyed, slot))
        if bytes > most:
            most = bytes
            largest = slot
    s = <Joined*> keyed_state(keyed, largest)
    key_text(keyed.keys, keyed_record(keyed, largest), key, sizeof(key))
    snprintf(text, sizeof(text),
             "its state has %lld bytes, max_state_bytes is %lld; largest key: %s, with %lld bytes in "
             "%lld rows", <long long> total, <long long> most_bytes, key, <long long> most,
             <long long> s.rows[LEFT].n + s.rows[RIGHT].n)
    failure_set(f, row, FAIL_MEMORY, text)
