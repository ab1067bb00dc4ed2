"""Joins by key and time: operators of ordstream/operators/time_joins.py. Contract: kernel.pxd (b), (c), (f).

a) Left and right tuples come in one lane; a column tells them apart. A key keeps a queue of rows per side
   (row_queue.pxd), oldest first, as far as later tuples of the other side may match them.
b) Times of a key ascend. So a kept row at t matches a tuple of the other side at `now` where
   least <= now - t <= most, which needs no sign; and the rows that nothing matches any more are the oldest.
c) A tuple first forgets such rows of its key; those that nothing matched are given, if their side's are
   asked for. Then it is given with each row that it matches, oldest first, and is kept. Where both sides are
   kept, the kept rows of one match those of the other; so what nothing matched is of one side in each key.
d) A mark of the clock does the same for all keys, and forgets keys without rows.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport a64, add_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, PT_F32, PT_F64, PT_I64, PT_LIST, PT_U64, PT_VIEW, Chunk, Column, Failure,
    LayoutOwner, Worker, chunk_alloc, chunk_reserve, failure_set, scratch_alloc,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.kernels.passed_columns cimport pass_column
from ordstream._core.state.held_memory cimport held_give
from ordstream._core.state.joined_rows cimport (
    LEFT, RIGHT, Joined, Own, Side, Sides, joined_drop, joined_read, joined_too_large, joined_write, own,
)
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket_of,
)
from ordstream._core.state.keyed_rows cimport key_put
from ordstream._core.state.key_records cimport key_copy, key_read
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_record,
    keyed_state,
)
from ordstream._core.state.marks cimport (
    CLOSING_ALL, CLOSING_FAILED, CLOSING_SOME, Closing, Marking, Marks, marks_pass,
)
from ordstream._core.state.row_queue cimport (
    Entry, Queue, RowSpec, RowSpecOwner, entry_of, is_null, put_newest, show_row, take_oldest,
)
from ordstream._core.state.state_columns cimport put_valid, word_of
from ordstream._core.state.state_rows cimport owner_bucket_state

cdef struct JoinContext:
    # Read-only while a run lasts, but for `bytes`. Memory ownership: TimeJoinKernel.
    Marking by
    int32_t side           # input column
    Sides sides
    int32_t from_left      # outputs are left tuples with right entries beside; keys look as they come
    int64_t most_bytes     # of state, in all; 0: no bound
    a64 bytes              # of state in all buckets, where there is a bound

cdef struct JoinBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    Marks marks
    int64_t told           # bytes that are in the context's total


# -------------------------------------------------------------------------------- buckets


cdef void drop_rows(Kernel* k, void* bucket, char* state) noexcept nogil:
    joined_drop(&(<Bucket*> bucket).held, <Joined*> state)


cdef void* join_new(Kernel* k, int32_t bucket) noexcept nogil:
    return new_bucket_of(sizeof(JoinBucket), (<const JoinContext*> k.ctx).by.keys, sizeof(Joined), &JOINED)


# -------------------------------------------------------------------------------- the bound on bytes


cdef bint too_large(JoinContext* x, Kernel* k, JoinBucket* b, int32_t row, Failure* f) noexcept nogil:
    """Whether there is more state than may be, before a tuple is taken in; f then says how much."""
    cdef int64_t change = bytes_of_bucket(k, b) - b.told
    cdef int64_t total = add_relaxed(&x.bytes, change) + change      # statistic; no partner
    b.told += change
    if total <= x.most_bytes:
        return False
    joined_too_large(&b.base.keyed, total, x.most_bytes, row, f)
    return True


# -------------------------------------------------------------------------------- outputs


cdef int put_row(const Side* side, Worker* w, const Chunk* c, int32_t row, Chunk* out) noexcept nogil:
    """The shown columns of a tuple, into row out.n, which is reserved. 0, or -1: no memory. Views point into
    `c`."""
    cdef const RowSpec* x = &side.shown
    cdef const Column* source
    cdef Column* to
    cdef int32_t j
    cdef bint there
    for j in range(x.n):
        source = &c.cols[x.column[j]]
        to = &out.cols[side.first + j]
        there = not is_null(source, row)
        if not there:
            memset(to.data + <int64_t> out.n * x.width[j], 0, x.width[j])
        elif x.width[j] == 8:
            (<int64_t*> to.data)[out.n] = (<const int64_t*> source.data)[row]
        else:
            memcpy(to.data + <int64_t> out.n * x.width[j], source.data + <int64_t> row * x.width[j],
                   x.width[j])
        if (not there or to.valid != NULL) and put_valid(w, out, side.first + j, out.n, there) != 0:
            return -1
    return 0


cdef int emit(const JoinContext* x, Kernel* k, Worker* w, const char* record, int32_t here, const Chunk* c,
              int32_t row, Entry* left, Entry* right, Chunk* out) noexcept nogil:
    """Append a left and a right row. `here`: the side that is the tuple in `row` of `c` (-1: none); of the
    other an entry, NULL: nulls. 0, or -1: no memory."""
    if out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0:
        return -1
    if x.from_left:                                          # the rest is for pass_left
        if show_row(&x.sides.side[RIGHT].shown, w, right, out, x.sides.side[RIGHT].first, out.n,
                    True) != 0:
            return -1
    else:
        if key_put(x.by.keys, record, w, out, out.n) != 0:   # the map's strings go with keys
            return -1
        if here == LEFT:
            if put_row(&x.sides.side[LEFT], w, c, row, out) != 0:
                return -1
        elif show_row(&x.sides.side[LEFT].shown, w, left, out, x.sides.side[LEFT].first, out.n,
                      True) != 0:
            return -1
        if here == RIGHT:
            if put_row(&x.sides.side[RIGHT], w, c, row, out) != 0:
                return -1
        elif show_row(&x.sides.side[RIGHT].shown, w, right, out, x.sides.side[RIGHT].first, out.n,
                      True) != 0:
            return -1
    out.origin[out.n] = row
    out.n += 1
    out.slots = out.n
    return 0


cdef int emit_alone(const JoinContext* x, Kernel* k, Worker* w, const char* record, int32_t j, Entry* entry,
                    int32_t row, Chunk* out) noexcept nogil:
    """Append an entry of side `j` that nothing matched. 0, or -1: no memory."""
    return emit(x, k, w, record, -1, NULL, row, entry if j == LEFT else NULL, entry if j == RIGHT else NULL,
                out)


cdef int pass_left(const JoinContext* x, Kernel* k, Worker* w, const Chunk* c, Chunk* out,
                   int32_t first) noexcept nogil:
    """With `from_left`: keys and left columns of the outputs from `first` on, each of the tuple that caused
    it. 0, or -1: no memory."""
    cdef const KeySpec* keys = x.by.keys
    cdef const RowSpec* left = &x.sides.side[LEFT].shown
    cdef int32_t n = out.n - first
    cdef int32_t column
    cdef int32_t failed = 0
    cdef int32_t j
    if n == 0:
        return 0
    out.n = first
    for j in range(keys.ncols):
        failed |= pass_column(w, out, j, k.output.width[j], &c.cols[keys.column[j]], out.origin + first, n)
    for j in range(left.n):
        column = x.sides.side[LEFT].first + j
        failed |= pass_column(w, out, column, left.width[j], &c.cols[left.column[j]], out.origin + first, n)
    out.n = first + n if failed == 0 else first
    out.slots = out.n
    return failed


# -------------------------------------------------------------------------------- one tuple


cdef inline bint out_of_reach(const Side* side, Entry* entry, int64_t now) noexcept nogil:
    """Whether no tuple from a time on matches a kept row."""
    cdef int64_t time = own(side, entry).time
    return now > time and <uint64_t> now - <uint64_t> time > side.most


cdef inline void give_back(Bucket* b, Entry* entry) noexcept nogil:
    if entry != NULL:
        held_give(&b.held, entry, entry.room)


cdef int forget(const JoinContext* x, Kernel* k, Bucket* b, Worker* w, const char* record, Joined* s,
                int32_t row, int64_t now, int32_t reuse, Entry** spare, Chunk* out) noexcept nogil:
    """Before a tuple at `now`: forget rows that nothing matches any more. The block of one of side `reuse`
    is left in `spare`. 0, or -1: no memory."""
    cdef const Side* side
    cdef Entry* entry
    cdef int32_t j
    for j in range(2):
        side = &x.sides.side[j]
        while s.rows[j].oldest != NULL and out_of_reach(side, s.rows[j].oldest, now):
            entry = s.rows[j].oldest
            if side.alone and own(side, entry).matched == 0 and emit_alone(
                    x, k, w, record, j, entry, row, out) != 0:
                return -1
            take_oldest(&s.rows[j])
            if j == reuse:
                give_back(b, spare[0])
                spare[0] = entry
            else:
                give_back(b, entry)
    return 0


cdef int join_row(const JoinContext* x, Kernel* k, Bucket* b, Worker* w, const char* record, Joined* s,
                  const Chunk* c, int32_t row, int32_t j, int64_t now, Chunk* out) noexcept nogil:
    """A tuple of side `j` meets its key. 0, or -1: no memory."""
    cdef const Side* mine = &x.sides.side[j]
    cdef const Side* other = &x.sides.side[1 - j]
    cdef Queue* q = &s.rows[j]
    cdef Entry* entry
    cdef Entry* old = NULL
    cdef int64_t matched = 0
    s.there = 1
    s.latest = now
    if forget(x, k, b, w, record, s, row, now, j, &old, out) != 0:
        give_back(b, old)
        return -1
    entry = s.rows[1 - j].oldest
    while entry != NULL and <uint64_t> now - <uint64_t> own(other, entry).time >= other.least:
        if emit(x, k, w, record, j, c, row, entry if j == RIGHT else NULL, entry if j == LEFT else NULL,
                out) != 0:
            give_back(b, old)
            return -1
        own(other, entry).matched = 1
        matched = 1
        entry = entry.next
    if not mine.keeps:
        give_back(b, old)
        if mine.alone and not matched:
            return emit(x, k, w, record, j, c, row, NULL, NULL, out)
        return 0
    if x.sides.last_only and q.n:
        give_back(b, old)
        old = take_oldest(q)
    entry = entry_of(mine.kept, &b.held, c, row, old)
    if entry == NULL:
        give_back(b, old)
        return -1
    own(mine, entry).time = now
    own(mine, entry).matched = matched
    put_newest(q, entry)
    return 0


cdef inline bint whole_key(const KeySpec* keys, const Chunk* c, int32_t row) noexcept nogil:
    """Whether no key column of a row is null."""
    cdef int32_t j
    for j in range(keys.ncols):
        if is_null(&c.cols[keys.column[j]], row):
            return False
    return True


cdef bint any_nulls(const KeySpec* keys, const Chunk* c) noexcept nogil:
    """Whether key columns of a chunk may have nulls."""
    cdef int32_t j
    for j in range(keys.ncols):
        if c.cols[keys.column[j]].valid != NULL:
            return True
    return False


cdef int emit_keyless(const JoinContext* x, Kernel* k, Worker* w, const Chunk* c, int32_t row, int32_t j,
                      Chunk* out) noexcept nogil:
    """A tuple of side `j` with a null in its key, which equals no other. 0, or -1: no memory."""
    cdef char* record = scratch_alloc(w, x.by.key_size)
    if record == NULL:
        return -1
    key_read(x.by.keys, c, row, record)
    return emit(x, k, w, record, j, c, row, NULL, NULL, out)


cdef inline int32_t join_rows(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """join_process but for what pass_left does."""
    cdef JoinContext* x = <JoinContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef KeyedState* keyed = &b.keyed
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] whole                         # rows of a block whose keys have no null
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef const int32_t* asked
    cdef Joined* s
    cdef int64_t now
    cdef bint nulls = any_nulls(x.by.keys, c)
    cdef int32_t before
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t mine
    cdef int32_t at
    cdef int32_t i
    cdef int32_t j
    cdef int32_t row
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        asked = rows + k0
        mine = m
        if nulls:
            mine = 0
            asked = whole
            for i in range(m):
                if whole_key(x.by.keys, c, rows[k0 + i]):
                    whole[mine] = rows[k0 + i]
                    mine += 1
        if mine and keyed_lookup_block(keyed, w, c, asked, mine, 0 if nulls else min(
                n - k0 - m, <int32_t> LOOKUP_BLOCK), &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(mine):                                # they lie apart, wherever they were allocated
            s = <Joined*> keyed_state(keyed, slots[i])
            for j in range(2):
                if s.rows[j].oldest != NULL:
                    prefetch_write(s.rows[j].oldest)
        at = 0
        for i in range(m):
            row = rows[k0 + i]
            before = out.n
            j = RIGHT if (<const uint8_t*> c.cols[x.side].data)[row] and not is_null(
                &c.cols[x.side], row) else LEFT
            if at == mine or asked[at] != row:
                if x.sides.side[j].alone and emit_keyless(x, k, w, c, row, j, out) != 0:
                    failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
                continue
            s = <Joined*> keyed_state(keyed, slots[at])
            if is_null(&c.cols[x.sides.side[j].time], row):
                failure_set(f, row, FAIL_NULL, "a null time: filter such tuples out before the join")
                return k0 + i
            if x.sides.time_type == PT_I64:
                now = (<const int64_t*> c.cols[x.sides.side[j].time].data)[row]
            else:
                now = word_of(c, x.sides.side[j].time, row, x.sides.time_type)
            if s.there and now < s.latest:
                failure_earlier(f, row, x.sides.side[j].time, now, s.latest)
                return k0 + i
            if x.most_bytes and too_large(x, k, <JoinBucket*> b, row, f):
                return k0 + i
            if join_row(x, k, b, w, keyed_record(keyed, slots[at]), s, c, row, j, now, out) != 0:
                out.n = before
                out.slots = before
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            at += 1
        k0 += m
    return n


cdef int32_t join_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Each row meets the rows of its key's other side.

    Thread safety: the bucket's holder. Ownership: what is shown of `c` points into it, of entries into out's
    arena. Returns: n, or j when the time of rows[j] is null or earlier than that before, where the state is
    too large, or without memory. Cost: keyed_lookup, an allocation and ~3 ns per column for a row that is
    kept, ~3 ns per column of an output.
    """
    cdef const JoinContext* x = <const JoinContext*> k.ctx
    cdef int32_t first = out.n
    cdef int32_t done
    if x.from_left and x.sides.side[LEFT].alone and chunk_reserve(w, out, k.output, n) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    done = join_rows(k, w, state, c, rows, n, out, f)
    if x.from_left and pass_left(x, k, w, c, out, first) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    return done


# -------------------------------------------------------------------------------- marks and the end


cdef int flush_alone(const JoinContext* x, Kernel* k, Worker* w, const char* record, int32_t j, Entry* entry,
                     bint final, Chunk* out) noexcept nogil:
    """A row of side `j` that nothing matched, at a punctuation. 0, or -1: no memory."""
    cdef char* key
    if flush_reserve(w, out, k.output, 1) != 0:
        return -1
    key = chunk_alloc(w, out, x.by.key_size)
    if key == NULL or key_copy(x.by.keys, record, w, out, key) != 0:
        return -1
    out.flush_time[out.n] = 0 if final else own(&x.sides.side[j], entry).time
    out.flush_key[out.n] = key
    return emit_alone(x, k, w, record, j, entry, 0, out)


cdef bint is_due(const Kernel* k, int64_t since, int64_t mark) noexcept nogil:
    """`since` is the mark that was looked at last; of a bucket that kept nothing then, INT64_MAX: a mark
    there, which comes once, is always due."""
    return mark != since or mark == INT64_MAX


cdef Closing close(Kernel* k, Worker* w, Bucket* b, char* record, char* state, Chunk* out, bint final,
                   int64_t mark, int64_t* since) noexcept nogil:
    """What a punctuation makes a key give and forget."""
    cdef const JoinContext* x = <const JoinContext*> k.ctx
    cdef Joined* s = <Joined*> state
    cdef const Side* side
    cdef Entry* entry
    cdef int32_t j
    for j in range(2):
        side = &x.sides.side[j]
        entry = s.rows[j].oldest if side.alone else NULL
        while entry != NULL and (final or out_of_reach(side, entry, mark)):
            if own(side, entry).matched == 0 and flush_alone(x, k, w, record, j, entry, final, out) != 0:
                return CLOSING_FAILED
            entry = entry.next
    since[0] = mark
    if final:
        return CLOSING_SOME
    for j in range(2):
        while s.rows[j].oldest != NULL and out_of_reach(&x.sides.side[j], s.rows[j].oldest, mark):
            give_back(b, take_oldest(&s.rows[j]))
    if s.rows[LEFT].n + s.rows[RIGHT].n == 0 and s.latest < mark:
        return CLOSING_ALL
    return CLOSING_SOME


cdef int join_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                        Failure* f) noexcept nogil:
    """Give rows that nothing matched: at the end of the stream all of them, at a mark those that
    nothing will match. A mark also forgets all rows out of reach, and keys without rows. Contract:
    marks_pass."""
    return marks_pass(k, w, <Bucket*> state, &(<JoinBucket*> state).marks, punctuation, out, is_due, close,
                      f)


# -------------------------------------------------------------------------------- state as rows


cdef bint any_tuple(Kernel* k, const char* state) noexcept nogil:
    return (<const Joined*> state).there != 0


cdef int write_joined(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    return joined_write(k, &(<const JoinContext*> k.ctx).sides, w, <const Joined*> state, out, index)


cdef int32_t read_joined(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                         Failure* f) noexcept nogil:
    return joined_read(k, &(<const JoinContext*> k.ctx).sides, &(<Bucket*> bucket).held, rows,
                       slot, <Joined*> state, f)


cdef StateCalls JOINED = StateCalls(alive=any_tuple, write=write_joined, read=read_joined, drop=drop_rows)


cdef class TimeJoinKernel(KernelOwner):
    """Operators of ordstream/operators/time_joins.py.

    Parameters
    ----------
    operator : TimeJoin
    kept : pair of (least, most) or None
        Of the left and of the right side: how far behind a kept row a tuple of the other side must, and may,
        be (`most` None: any time); None: the side is not kept.
    last_only : bool
    alone : pair of bool
        Whether left, and right, tuples that nothing matches are given too.
    """

    cdef JoinContext context
    cdef KeySpecOwner keys
    cdef RowSpecOwner left
    cdef RowSpecOwner right

    def __init__(self, operator, kept, last_only, alone):
        cdef JoinContext* x = &self.context
        cdef Joined one
        cdef LayoutOwner layout
        cdef int32_t j
        owner_setup(self, operator, PS)
        layout = self.input_layout
        types = layout.types
        shown = [list(operator.left), list(operator.right)]
        expected = [types[column] for column in [*operator.key, *shown[0], *shown[1]]]
        if self.output_layout.types != expected:
            raise ValueError(f"{operator.name!r}: the output schema must be key, left and right columns")
        self.keys = KeySpecOwner(operator.key, types)
        x.by.keys = &self.keys.spec
        x.by.key_size = self.keys.spec.size
        x.side = operator.side
        x.sides.time_type = types[operator.times[0]]
        if x.sides.time_type >= PT_U64 or types[operator.times[1]] != x.sides.time_type:
            raise TypeError(f"{operator.name!r}: both times must be of one type, an integer below uint64, a "
                            f"date or a timestamp")
        x.sides.last_only = last_only
        x.by.clocked = operator.clock_wanted() is not None
        x.by.period = operator.period
        x.by.word = <int32_t> (<char*> &one.there - <char*> &one)
        x.most_bytes = operator.max_state_bytes or 0
        self.left = self.row_spec(LEFT, shown[0], operator.times[0], len(operator.key), kept[0])
        x.sides.side[LEFT].kept = &self.left.spec
        self.right = self.row_spec(RIGHT, shown[1], operator.times[1], len(operator.key) + len(shown[0]),
                                   kept[1])
        x.sides.side[RIGHT].kept = &self.right.spec
        for j in range(2):
            x.sides.side[j].shown = x.sides.side[j].kept[0]
            x.sides.side[j].shown.n = <int32_t> len(shown[j])
            x.sides.side[j].alone = alone[j]
        x.from_left = kept[LEFT] is None and not alone[RIGHT] and not any(
            types[column] in (PT_F32, PT_F64) for column in operator.key)   # as keys -0.0 is 0.0
        passed = [*shown[0], *shown[1], *(operator.key if x.from_left else ())]
        if any(types[column] in (PT_VIEW, PT_LIST) for column in passed):
            self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1
        self.kernel.process = join_process
        self.kernel.punctuate = join_punctuate
        self.kernel.bucket_new = join_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)

    cdef RowSpecOwner row_spec(self, int32_t j, list shown, int32_t time, int32_t first, object reach):
        """Fill a side but for its `kept` and `shown`."""
        cdef Side* side = &self.context.sides.side[j]
        kept = shown if time in shown else [*shown, time]
        side.first = first
        side.time = time
        side.time_place = kept.index(time)
        side.keeps = reach is not None
        side.least, side.most = (0, 0) if reach is None else (
            reach[0], <uint64_t> -1 if reach[1] is None else reach[1])
        return RowSpecOwner(kept, self.input_layout, sizeof(Own))
