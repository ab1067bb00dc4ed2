"""Kept rows: operators whose state is the last rows of a key, in columns of any type. Contract: kernel.pxd
(b), (c), (f).

    lag          each row with columns of the row n before it
    lead         each row when the row n behind it comes, with columns of that one; the last n at the end
    tail         the last n rows, at the end
    first        a row, unless n were given (head), or one in the last `within` (deduplicate, keep="first");
                 no rows are kept, only their number
    last         the last row of those within `within` of the first, when a later one or a time comes, or at
                 the end (deduplicate, keep="last")

A key's record holds a queue of rows (row_queue.pxd).
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_STATE, PT_LIST, PT_VIEW, TIME, Chunk, Column, Failure,
    LayoutOwner, View, Worker, chunk_alloc, chunk_reserve, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.kernels.passed_columns cimport pass_column
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket_of, put_word,
)
from ordstream._core.state.deadlines cimport (
    Deadlines, deadlines_bytes, deadlines_drop, deadlines_free, due_before, keys_close, keys_due,
)
from ordstream._core.state.keyed_rows cimport keyed_settle
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, LookupAhead, key_copy, keyed_lookup_block, keyed_record,
    keyed_state,
)
from ordstream._core.state.row_queue cimport (
    Entry, Queue, RowSpec, RowSpecOwner, entry_of, is_null, put_back, put_newest, queue_drop, queue_read,
    queue_write, show_row, take_oldest,
)
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid, word_of
from ordstream._core.state.state_rows cimport bucket_export, bucket_install, bucket_remove, owner_state

cdef enum:
    MOST_EXPECTED = 512        # bytes of an entry that are prefetched

cdef enum Mode:
    LAG = 0
    LEAD = 1
    TAIL = 2
    FIRST = 3
    LAST = 4

cdef dict MODES = {"lag": LAG, "lead": LEAD, "tail": TAIL, "first": FIRST, "last": LAST}

cdef struct KeptBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    Deadlines* deadlines   # with `within`; NULL: none yet. Owned

cdef struct KeptContext:
    # Read-only while a run lasts. Memory ownership: KeptRowsKernel.
    const KeySpec* keys    # NULL: SF
    Mode mode
    int32_t n              # most entries
    const RowSpec* kept
    int32_t ninput         # input columns
    int32_t nbeside        # LEAD: columns of the row behind
    int32_t* beside        # input column of each
    int32_t time           # input column; -1: no `within`
    int32_t time_type
    int64_t within


# -------------------------------------------------------------------------------- buckets


cdef void drop_entries(Kernel* k, void* bucket, char* state) noexcept nogil:
    queue_drop(<Queue*> state, &(<Bucket*> bucket).held)


cdef void* kept_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef KeptContext* x = <KeptContext*> k.ctx
    return new_bucket_of(sizeof(KeptBucket), x.keys, sizeof(Queue), &QUEUE)


cdef void kept_free(Kernel* k, void* state) noexcept nogil:
    deadlines_free((<KeptBucket*> state).deadlines)
    free_bucket(k, state)


cdef int64_t kept_bytes(Kernel* k, void* state) noexcept nogil:
    return bytes_of_bucket(k, state) + deadlines_bytes((<KeptBucket*> state).deadlines)


# -------------------------------------------------------------------------------- one row


cdef int pass_rows(const KeptContext* x, Kernel* k, Worker* w, const Chunk* c, const int32_t* rows,
                   int32_t n, Chunk* out) noexcept nogil:
    """LAG: room for n rows behind out.n, with the input's columns. 0, or -1: no memory."""
    cdef int32_t j
    if chunk_reserve(w, out, k.output, n) != 0:
        return -1
    for j in range(x.ninput):
        if pass_column(w, out, j, k.output.width[j], &c.cols[j], rows, n) != 0:
            return -1
    return 0


cdef int beside_row(const KeptContext* x, Kernel* k, Worker* w, const Chunk* c, int32_t row, Chunk* out,
                    int32_t index) noexcept nogil:
    """LEAD: columns of the row behind (`c` NULL: nulls), beside the entry. 0, or -1: no memory."""
    cdef const Column* source
    cdef char* to
    cdef int32_t width
    cdef int32_t j
    cdef bint there
    for j in range(x.nbeside):
        width = k.output.width[x.ninput + j]
        to = out.cols[x.ninput + j].data + <int64_t> index * width
        there = c != NULL
        if there:
            source = &c.cols[x.beside[j]]
            there = not is_null(source, row)
            memcpy(to, source.data + <int64_t> row * width, width)
        if not there:
            memset(to, 0, width)
        if (not there or out.cols[x.ninput + j].valid != NULL) and put_valid(
                w, out, x.ninput + j, index, there) != 0:
            return -1
    return 0


cdef int emit_entry(const KeptContext* x, Kernel* k, Worker* w, Entry* entry, const Chunk* c, int32_t row,
                    Chunk* out) noexcept nogil:
    """A whole row that was kept, caused by `row`. 0, or -1: no memory, and nothing was emitted."""
    if out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0:
        return -1
    if (show_row(x.kept, w, entry, out, 0, out.n, True) != 0
            or beside_row(x, k, w, c, row, out, out.n) != 0):
        return -1
    out.origin[out.n] = row
    out.n += 1
    out.slots = out.n
    return 0


cdef int keep_row(const KeptContext* x, Kernel* k, Bucket* b, Worker* w, Chunk* c, int32_t row, Queue* q,
                  int64_t now, int32_t index, Chunk* out) noexcept nogil:
    """One row meets its key's queue. `index`: LAG: its row of `out`. 0, or -1: no memory, and the queue is
    as before."""
    cdef Entry* old = NULL
    cdef Entry* entry
    cdef bint emits = False
    if x.mode == LAG:
        if show_row(x.kept, w, q.oldest if q.n == x.n else NULL, out, x.ninput, index, True) != 0:
            return -1
    elif x.mode == LEAD:
        emits = q.n == x.n
    elif x.mode == LAST and x.time >= 0:
        emits = q.n and <uint64_t> now - <uint64_t> q.start > <uint64_t> x.within
    if emits and emit_entry(x, k, w, q.oldest, c, row, out) != 0:
        return -1
    if q.n == x.n:
        old = take_oldest(q)
    entry = entry_of(x.kept, &b.held, c, row, old)
    if entry == NULL:
        if old != NULL:
            put_back(q, old)
        if emits:
            out.n -= 1
            out.slots = out.n
        return -1
    put_newest(q, entry)
    if emits or not q.used:
        q.start = now
    q.latest = now
    q.used = 1
    return 0


cdef inline bint first_row(const KeptContext* x, Queue* q, int64_t now) noexcept nogil:
    """FIRST: whether a row is given."""
    if x.time < 0 and q.n == x.n:
        return False
    if q.used and x.time >= 0 and <uint64_t> now - <uint64_t> q.start <= <uint64_t> x.within:
        q.latest = now
        return False
    q.n = min(q.n + 1, x.n)
    q.start = now
    q.latest = now
    q.used = 1
    return True


cdef int first_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    c.keep = <unsigned char*> chunk_alloc(w, c, c.slots + 1)
    if c.keep == NULL:
        return -1
    memset(c.keep, 1, c.slots)
    return 0


cdef inline void expect_queue(const Queue* q, int64_t size) noexcept nogil:
    """Prefetch what the next row of a key touches: the block that it will take, and the link to it. Keys
    come in any order, so these lines are mostly far away; fetched together their ways overlap."""
    cdef int64_t at = 0
    if q.n == 0:
        return
    prefetch_write(q.newest)
    while at < size and at < MOST_EXPECTED:
        prefetch_write(<char*> q.oldest + at)
        at += 64


cdef int32_t kept_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Each row meets its key's queue.

    Thread safety: the bucket's holder. Ownership: what is shown of `c` points into it, of entries into out's
    arena. Returns: n, or j when the time of rows[j] is null or earlier than that before, or without memory.
    Cost: keyed_lookup, ~3 ns per column kept and as much per column shown.
    """
    cdef KeptContext* x = <KeptContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef Queue* q = <Queue*> b.single
    cdef int64_t now = 0
    cdef int32_t k0 = 0
    cdef int32_t row
    cdef int32_t m
    cdef int32_t i
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if (x.keys != NULL and keyed_lookup_block(
                &b.keyed, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK), &ahead,
                slots) != 0) or (x.mode == LAG and pass_rows(x, k, w, c, rows + k0, m, out) != 0):
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if x.keys != NULL and x.mode != FIRST:
            for i in range(m):
                expect_queue(<Queue*> keyed_state(&b.keyed, slots[i]), x.kept.fixed)
        for i in range(m):
            row = rows[k0 + i]
            if x.keys != NULL:
                q = <Queue*> keyed_state(&b.keyed, slots[i])
            if x.time >= 0:
                if is_null(&c.cols[x.time], row):
                    failure_set(f, row, FAIL_NULL, "a null time: filter such tuples out before deduplicate")
                    return k0 + i
                now = word_of(c, x.time, row, x.time_type)
                if q.used and now < q.latest:
                    failure_earlier(f, row, x.time, now, q.latest)
                    return k0 + i
            if x.mode == FIRST:
                c.keep[row] = first_row(x, q, now)
                continue
            if keep_row(x, k, b, w, c, row, q, now, out.n, out) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            if x.mode == LAG:
                out.origin[out.n] = row
                out.n += 1
                out.slots = out.n
        k0 += m
    return n


# -------------------------------------------------------------------------------- times and the end


cdef uint64_t start_of(const void* context, const char* state) noexcept nogil:
    """When the span of what is kept began, as an unsigned word in its order; 0: nothing is kept."""
    cdef const Queue* q = <const Queue*> state
    return <uint64_t> q.start ^ <uint64_t> 1 << 63 if q.used else 0


cdef int flush_queue(KeptContext* x, Kernel* k, Worker* w, Bucket* b, int64_t slot, Queue* q,
                     const Chunk* punctuation, Chunk* out) noexcept nogil:
    """The rows of a queue, oldest first; at the end views point into the state, which no tuple changes any
    more. 0, or -1: no memory."""
    cdef bint passing = punctuation.kind == TIME
    cdef Entry* entry = q.oldest
    cdef char* key = NULL
    if q.n == 0:
        return 0
    if flush_reserve(w, out, k.output, q.n) != 0:
        return -1
    if x.keys != NULL and not passing:
        key = keyed_record(&b.keyed, slot)
    elif x.keys != NULL:
        key = chunk_alloc(w, out, x.keys.size)
        if key == NULL or key_copy(x.keys, keyed_record(&b.keyed, slot), w, out, key) != 0:
            return -1
    while entry != NULL:
        if (show_row(x.kept, w, entry, out, 0, out.n, passing) != 0
                or beside_row(x, k, w, NULL, 0, out, out.n) != 0):
            return -1
        out.origin[out.n] = 0
        out.flush_time[out.n] = q.start if punctuation.kind == TIME else 0
        out.flush_key[out.n] = key
        out.n += 1
        out.slots = out.n
        entry = entry.next
    return 0


cdef int give_key(KeptContext* x, Kernel* k, Worker* w, Bucket* b, int64_t slot, const Chunk* punctuation,
                  Chunk* out) noexcept nogil:
    """What a punctuation settles of a key; at a time it is forgotten. 0, or -1: no memory."""
    cdef Queue* q = <Queue*> (b.single if x.keys == NULL else keyed_state(&b.keyed, slot))
    if x.mode != FIRST and flush_queue(x, k, w, b, slot, q, punctuation, out) != 0:
        return -1
    if punctuation.kind == TIME:
        drop_entries(k, b, <char*> q)
    return 0


cdef int kept_time(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, const Chunk* punctuation,
                   Chunk* out) noexcept nogil:
    """Give what no row from a time on can change, and forget its keys (with `within` there always is a key).
    0, or -1: no memory."""
    cdef KeyedState* keyed = &b.base.keyed
    cdef uint64_t time = <uint64_t> punctuation.time ^ <uint64_t> 1 << 63
    cdef uint64_t before = due_before(time, <uint64_t> x.within)
    cdef int64_t keys = keyed.count
    cdef int64_t n = keys_due(&b.deadlines, w, keyed, x, start_of, before)
    cdef int64_t i
    if n < 0:
        return -1
    for i in range(n):
        if stop_due(w, i):
            return 0
        if give_key(x, k, w, &b.base, <int64_t> b.deadlines.due()[i].of, punctuation, out) != 0:
            return -1
    if n:
        keys_close(&b.deadlines, w, keyed, n)
    keyed_settle(keyed, keys)
    return 0


cdef int kept_end(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, const Chunk* punctuation,
                  Chunk* out) noexcept nogil:
    """Give all that is kept. 0, or -1: no memory."""
    cdef int64_t slot
    for slot in range(1 if x.keys == NULL else b.base.keyed.count):
        if stop_due(w, slot):
            return 0
        if give_key(x, k, w, &b.base, slot, punctuation, out) != 0:
            return -1
    return 0


cdef int kept_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                        Failure* f) noexcept nogil:
    """At the end of the stream what is kept, per key in any order: the runtime sorts. With `within` also at
    a time: what no later row can change is given, and forgotten. Cost: at a time keys_due and keys_close."""
    cdef KeptContext* x = <KeptContext*> k.ctx
    cdef int failed = 0
    if punctuation.kind == END_OF_STREAM:
        failed = kept_end(x, k, w, <KeptBucket*> state, punctuation, out)
    elif punctuation.kind == TIME and x.time >= 0:
        failed = kept_time(x, k, w, <KeptBucket*> state, punctuation, out)
    if failed:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return failed


# -------------------------------------------------------------------------------- state as rows


cdef bint any_row(Kernel* k, const char* state) noexcept nogil:
    return (<const Queue*> state).used != 0


cdef int write_queue(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    """Columns: number of rows; the rows as bytes; with `within` both times."""
    cdef const KeptContext* x = <const KeptContext*> k.ctx
    cdef const Queue* q = <const Queue*> state
    cdef int32_t column = own_column(k)
    (<int64_t*> out.cols[column].data)[index] = q.n
    if (put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0
            or queue_write(x.kept, w, q, out, &(<View*> out.cols[column + 1].data)[index]) != 0):
        return -1
    if x.time >= 0:
        put_word(out.cols[column + 2].data, x.time_type, index, q.start)
        put_word(out.cols[column + 3].data, x.time_type, index, q.latest)
        if (put_valid(w, out, column + 2, index, True) != 0
                or put_valid(w, out, column + 3, index, True) != 0):
            return -1
    return 0


cdef int32_t read_queue(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                        Failure* f) noexcept nogil:
    cdef const KeptContext* x = <const KeptContext*> k.ctx
    cdef Queue* q = <Queue*> state
    cdef int32_t column = own_column(k)
    cdef int64_t n = (<const int64_t*> rows.cols[column].data)[slot]
    cdef int32_t code = 0
    cdef int32_t j
    drop_entries(k, bucket, state)
    for j in range(4 if x.time >= 0 else 2):
        if not is_there(rows, column + j, slot):
            code = FAIL_STATE
    if n < 1 or n > x.n:
        code = FAIL_STATE
    if code == 0 and x.mode == FIRST:                        # a number, no rows
        q.n = <int32_t> n
    elif code == 0:
        code = queue_read(x.kept, &(<Bucket*> bucket).held,
                          &(<const View*> rows.cols[column + 1].data)[slot], n, q)
    if code == 0 and x.time >= 0:
        q.start = word_of(rows, column + 2, slot, x.time_type)
        q.latest = word_of(rows, column + 3, slot, x.time_type)
        if q.latest < q.start:
            code = FAIL_STATE
    if code == 0:
        q.used = 1
        return 0
    drop_entries(k, bucket, state)
    if code == FAIL_STATE:
        failure_set(f, slot, code, "these are no rows that the operator keeps")
    else:
        failure_set(f, slot, code, failure_text(code))
    return code


cdef StateCalls QUEUE = StateCalls(alive=any_row, write=write_queue, read=read_queue, drop=drop_entries)


cdef int32_t kept_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    deadlines_drop(&(<KeptBucket*> state).deadlines)
    return bucket_install(k, w, state, rows, slots, n, f)


cdef int32_t kept_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil:
    deadlines_drop(&(<KeptBucket*> state).deadlines)
    return bucket_remove(k, w, state, keys, slots, n, f)


cdef class KeptRowsKernel(KernelOwner):
    """Operators of ordstream/operators/kept_rows.py, and lag.

    Parameters
    ----------
    operator : Operator
        With `key`; with `time` and `within` where it has a span.
    mode : str
    n : int
        Most rows that a key keeps.
    kept : sequence of int
        Input columns of a kept row: all of them, but for "lag" and "first".
    beside : sequence of int
        "lead": input columns of the row behind.
    """

    cdef KeptContext context
    cdef KeySpecOwner keys
    cdef RowSpecOwner kept

    def __init__(self, operator, mode, n, kept, beside=()):
        cdef int32_t j
        cdef LayoutOwner layout
        cdef KeptContext* x = &self.context
        owner_setup(self, operator, PS if operator.key else SF)
        layout = self.input_layout
        kept = list(kept)
        beside = list(beside)
        x.mode = MODES[mode]
        x.n = n
        x.ninput = layout.layout.ncols
        x.nbeside = <int32_t> len(beside)
        if x.mode in (LEAD, TAIL, LAST) and kept != list(range(x.ninput)):
            raise ValueError(f"{operator.name!r}: whole rows are kept")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            x.keys = &self.keys.spec
        self.kept = RowSpecOwner(kept, layout)
        x.kept = &self.kept.spec
        x.beside = <int32_t*> calloc(x.nbeside + 1, sizeof(int32_t))
        if x.beside == NULL:
            raise MemoryError
        for j in range(x.nbeside):
            x.beside[j] = beside[j]
        x.time = -1
        span = getattr(operator, "within", None)
        if span is not None:
            x.time = operator.time
            x.time_type = layout.layout.type[x.time]
            x.within = span
        for j in range(x.ninput):
            if layout.layout.type[j] in (PT_VIEW, PT_LIST) and x.mode in (LAG, LEAD):
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.process = kept_process
        if x.mode != LAG:
            self.kernel.punctuate = kept_punctuate
        if x.mode == FIRST:
            self.kernel.in_place = 1
            self.kernel.prepare = first_prepare
        self.kernel.bucket_new = kept_new
        self.kernel.bucket_free = kept_free
        self.kernel.bucket_bytes = kept_bytes
        owner_state(self, operator, bucket_export, kept_install, kept_remove)

    def __dealloc__(self):
        free(self.context.beside)
