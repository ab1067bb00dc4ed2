"""Open sessions as rows, and closed ones leaving. See session_rows.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, View, Worker, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.deadlines cimport deadlines_drop
from ordstream._core.state.fold_rows cimport fold_read, fold_write
from ordstream._core.state.kept_lists cimport (
    KeptList, list_clear, list_fill, list_values, lists_pack,
)
from ordstream._core.state.keyed_bucket cimport StateCalls, put_word
from ordstream._core.state.keyed_rows cimport keyed_settle
from ordstream._core.state.listed_values cimport of_fixed_width
from ordstream._core.state.row_values cimport list_room, row_list, row_null, row_value
from ordstream._core.state.state_rows cimport rows_export, rows_install, rows_remove


cdef inline int64_t head_of(const SessionContext* x, int32_t j) noexcept nogil:
    """Bytes in front of the elements of a packed list: how many they are, and of fixed width that none is
    null; 0: it is a list of numbers."""
    return 0 if not x.packed[j] else 5 if of_fixed_width(&x.element[j]) else 4


cdef void pack_lists(const SessionContext* x, SessionBucket* b, int64_t most) noexcept nogil:
    if x.n:
        lists_pack(&b.lists, &b.keyed, x.lists, <int32_t> sizeof(Collected), x.n, most)


cdef void sessions_settle(const SessionContext* x, SessionBucket* b, int64_t keys,
                          int64_t listed) noexcept nogil:
    """Give memory back after keys were forgotten, but for the room that `keys` keys and `listed` bytes of
    lists need: what there was before. Thread safety: the bucket's holder."""
    keyed_settle(&b.keyed, keys)
    pack_lists(x, b, listed)


# -------------------------------------------------------------------------------- one state: a session


cdef bint is_open(Kernel* k, const char* state) noexcept nogil:
    return (<const Session*> state).count > 0


cdef void drop_lists(Kernel* k, void* bucket, char* state) noexcept nogil:
    cdef const SessionContext* x = <const SessionContext*> k.ctx
    cdef int32_t j
    for j in range(x.n):
        list_clear(&(<SessionBucket*> bucket).lists, &collected_of(x, <Session*> state, j).list)


cdef int collected_store(const SessionContext* x, Session* s, int32_t j, Worker* w, Chunk* out,
                         int32_t column, int32_t index) noexcept nogil:
    """Write the j-th list of a session into a reserved row. 0, or -1: no memory."""
    cdef KeptList* list = &collected_of(x, s, j).list
    cdef int32_t count = <int32_t> s.count
    cdef int64_t head = head_of(x, j)
    cdef char* to = list_room(w, out, column, index, head + list.n, x.width[j])
    if to == NULL:
        return -1
    if x.packed[j]:
        memcpy(to, &count, 4)
        if head == 5:
            to[4] = 0
    memcpy(to + head, list_values(list), <size_t> list.n * x.width[j])
    return 0


cdef int write_session(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const SessionContext* x = <const SessionContext*> k.ctx
    cdef Session* s = <Session*> state
    cdef int32_t column = x.keys.ncols
    cdef int32_t j
    put_word(out.cols[column].data, x.time_type, index, s.start)
    put_word(out.cols[column + 1].data, x.time_type, index, s.last)
    (<int64_t*> out.cols[column + 2].data)[index] = s.count
    column += 3
    for j in range(x.n):
        if collected_store(x, s, j, w, out, column, index) != 0:
            return -1
        column += 1
    return fold_write(x.fold, k.state, aggregates_of(s), w, out, column, index)


cdef int64_t length_of(const SessionContext* x, int32_t j, const View* values) noexcept nogil:
    """How many values a list has; -1: some are null."""
    cdef int32_t count
    if not x.packed[j]:
        return values.size
    memcpy(&count, values.data, 4)
    return -1 if head_of(x, j) == 5 and values.data[4] else count


cdef const char* wrong_session(Kernel* k, const Chunk* rows, int32_t slot) noexcept nogil:
    """What no session has in a row, or NULL."""
    cdef const SessionContext* x = <const SessionContext*> k.ctx
    cdef int32_t column = x.keys.ncols
    cdef const View* values
    cdef int64_t count
    cdef int32_t j
    if row_null(rows, column, slot) or row_null(rows, column + 1, slot) or row_null(rows, column + 2, slot):
        return "the start, end or count of a session is null"
    if earlier(x, row_value(k.state, rows, column + 1, slot), row_value(k.state, rows, column, slot)):
        return "a session ends before it starts"
    count = row_value(k.state, rows, column + 2, slot)
    if count <= 0:
        return "the count of a session is 0 or negative"
    for j in range(x.n):
        values = row_list(rows, column + 3 + j, slot)
        if values == NULL or count > 0x7fffffff or length_of(x, j, values) != count:
            return "a session has a list that is null, has nulls, or is not as long as its count"
    return NULL


cdef int32_t read_session(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                          Failure* f) noexcept nogil:
    cdef const SessionContext* x = <const SessionContext*> k.ctx
    cdef Session* s = <Session*> state
    cdef int32_t column = x.keys.ncols
    cdef const char* wrong = wrong_session(k, rows, slot)
    cdef const View* values
    cdef char* to
    cdef int64_t bytes
    cdef int64_t head
    cdef int64_t held = 0                                    # sessions have no objects
    cdef int32_t j
    if wrong != NULL:
        failure_set(f, slot, FAIL_STATE, wrong)
        return FAIL_STATE
    if x.fold.n and fold_read(
            x.fold, k.state, rows, column + 3 + x.n, slot, aggregates_of(s), &held, f) != 0:
        return FAIL_STATE                                    # without aggregates they have no byte
    for j in range(x.n):
        values = row_list(rows, column + 3 + j, slot)
        head = head_of(x, j)
        bytes = (values.size - head) * x.width[j]
        if bytes > 0x7fffffff:
            drop_lists(k, bucket, state)
            failure_set(f, slot, FAIL_STATE, "a session has a list of over 2 GiB")
            return FAIL_STATE
        to = list_fill(&(<SessionBucket*> bucket).lists, &collected_of(x, s, j).list, values.size - head,
                       bytes, INLINE_BYTES, FIRST_CLASS)
        if to == NULL:
            drop_lists(k, bucket, state)
            failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return FAIL_MEMORY
        memcpy(to, values.data + head, <size_t> bytes)
    s.start = row_value(k.state, rows, column, slot)
    s.last = row_value(k.state, rows, column + 1, slot)
    s.count = row_value(k.state, rows, column + 2, slot)
    return 0


cdef StateCalls SESSION = StateCalls(
    alive=is_open, write=write_session, read=read_session, drop=drop_lists)


# ---------------------------------------------------------------------------------------------- a bucket


cdef int32_t sessions_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                             Failure* f) noexcept nogil:
    """Rows of open sessions. Contract: kernel.pxd (f)."""
    return rows_export(k, w, &(<SessionBucket*> state).keyed, &SESSION, cursor, out, f)


cdef int32_t sessions_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots,
                              int32_t n, Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    deadlines_drop(&(<SessionBucket*> state).deadlines)
    return rows_install(k, state, &(<SessionBucket*> state).keyed, &SESSION, rows, slots, n, f)


cdef int32_t sessions_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots,
                             int32_t n, Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    cdef SessionBucket* b = <SessionBucket*> state
    cdef int32_t there = rows_remove(k, state, &b.keyed, &SESSION, keys, slots, n)
    deadlines_drop(&b.deadlines)
    pack_lists(<const SessionContext*> k.ctx, b, b.lists.used)
    return there
