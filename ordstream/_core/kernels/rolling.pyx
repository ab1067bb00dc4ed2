"""Rolling: each row with aggregates over a window that ends at it. Contract: kernel.pxd (b), (c), (f).

a) A key keeps the rows of its window in a ring: time, and per aggregation whether it has a value, and words.
   Counts, and sums and means of integers, are exact and can be undone: 128 bits, a row that leaves is taken
   off. The others are kept by two stacks (Tangwongsan et al., General incremental sliding-window
   aggregation, VLDB 2015, section 3): rows in front hold the aggregate from them to the last row in front,
   those at the back their value, and the key the aggregate of the back. Where the front is empty and a row
   leaves, all seen rows come to the front. So a row costs a constant, amortised, whatever the window.
b) What floats give depends on how rows are divided: on the key's rows alone (operators/rolling.py, Sliding).
c) Where a window ends before its row, rows with the time of the latest one are not seen yet: they lie at the
   end of the ring.
d) A mark of the clock forgets the keys whose latest row no later window sees. A bucket knows a lower bound
   of these rows' times, so that a mark that forgets nothing mostly costs nothing.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport load_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, FAIL_STATE, PT_U64, TIME, Block, Chunk, Column, Failure,
    View, Worker, chunk_alloc, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.fold cimport (
    F_COUNT, F_MEAN_F64, F_MEAN_I64, F_SUM_I64, Accumulator, FoldBlock, FoldOwner, fold_begin, fold_load,
    fold_prepare, fold_spreads, fold_value, loaded_value,
)
from ordstream._core.state.keyed_bucket cimport Bucket, put_word
from ordstream._core.state.keyed_rows cimport keyed_settle
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpecOwner, LookupAhead, keyed_bytes, keyed_free, keyed_init, keyed_lookup_block,
    keyed_state,
)
from ordstream._core.state.leaving cimport LEAVES, keys_leave
from ordstream._core.state.row_values cimport list_room, row_list, row_null, row_value, value_at
from ordstream._core.state.sliding cimport (
    FIRST_ROOM, TOTAL_WORDS, RollingBucket, RollingContext, Slide, Word, copy_words, entry_at, forget,
    merge, resize, see, time_at, total_of, wide_add, wide_take,
)
from ordstream._core.state.state_columns cimport own_column, put_valid
from ordstream._core.state.state_rows cimport (
    StateCalls, bucket_export, bucket_install, bucket_remove, owner_state,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)


# -------------------------------------------------------------------------------- rows


cdef inline bint too_old(const RollingContext* x, int64_t time, int64_t now) noexcept nogil:
    """Whether the window of a row at `now`, not before `time`, begins behind `time`."""
    cdef uint64_t age = <uint64_t> now - <uint64_t> time
    return age > <uint64_t> x.length if x.begins_before else age >= <uint64_t> x.length


cdef inline void bounds(const RollingContext* x, const Slide* s, int64_t now, int64_t* seen,
                        int64_t* gone) noexcept nogil:
    """How many rows are seen at `now`, those that leave included, and how many of them leave."""
    seen[0] = s.seen
    gone[0] = 0
    if x.time < 0:
        gone[0] = s.n - x.length + 1 if s.n >= x.length else 0
        return
    while seen[0] < s.n and time_at(x, s, seen[0]) < now:
        seen[0] += 1
    while gone[0] < seen[0] and too_old(x, time_at(x, s, gone[0]), now):
        gone[0] += 1


cdef bint overflows(const RollingContext* x, Slide* s, const FoldBlock* block, int32_t i, int64_t seen,
                    int64_t gone) noexcept nogil:
    """Whether a sum of integers would leave int64 with row i of the block; nothing changes."""
    cdef const Accumulator* a
    cdef const char* entry
    cdef int64_t[2] sum
    cdef int64_t value
    cdef int64_t at
    cdef int32_t j
    for j in range(x.fold.n):
        a = &x.fold.accumulators[j]
        if not a.checked:
            continue
        memcpy(sum, total_of(s, j), 16)
        if block.used[j] == NULL or block.used[j][i] != 0:
            value = loaded_value(block, j, i)
            if a.is_u64 and value < 0:
                return True
            if x.ends_at_row:
                wide_add(sum, value)
        for at in range(s.seen, seen):
            entry = entry_at(x, s, at)
            if entry[x.flags + j]:
                wide_add(sum, (<const int64_t*> (entry + x.words[j].offset))[0])
        for at in range(gone):
            entry = entry_at(x, s, at)
            if entry[x.flags + j]:
                wide_take(sum, (<const int64_t*> (entry + x.words[j].offset))[0])
        if sum[1] != sum[0] >> 63:
            return True
    return False


cdef inline void append(const RollingContext* x, Slide* s, const FoldBlock* block, int32_t i,
                        int64_t now) noexcept nogil:
    """Put row i of the block into the ring, which has room."""
    cdef char* entry = entry_at(x, s, s.n)
    cdef int64_t* words = <int64_t*> entry
    cdef int32_t j
    for j in range(1, x.entry // 8):
        words[j] = 0
    words[0] = now
    for j in range(x.fold.n):
        if block.used[j] == NULL or block.used[j][i] != 0:
            entry[x.flags + j] = 1
            if x.fold.accumulators[j].function != F_COUNT:
                (<int64_t*> (entry + x.words[j].offset))[0] = loaded_value(block, j, i)
    s.n += 1
    if x.ends_at_row:
        s.seen += 1
        see(x, s, entry)


cdef inline void show(const RollingContext* x, Slide* s, Chunk* c, int32_t row) noexcept nogil:
    """Write the values of a window behind its row."""
    cdef const Accumulator* a
    cdef const char* oldest = entry_at(x, s, 0) if s.front else NULL
    cdef int64_t* total
    cdef int64_t[3] words
    cdef bint there
    cdef int32_t j
    for j in range(x.fold.n):
        a = &x.fold.accumulators[j]
        total = total_of(s, j)
        if x.words[j].exact:
            there = total[2] > 0
            words[0] = total[2] if a.function == F_COUNT else total[0]
            words[1] = total[2]
        elif oldest == NULL or oldest[x.flags + j] == 0:
            there = total[3] != 0
            memcpy(words, total, sizeof(words))
        else:
            memset(words, 0, sizeof(words))
            copy_words(words, <const int64_t*> (oldest + x.words[j].offset), x.words[j].words)
            there = True
            if total[3]:
                merge(a, words, True, total)
        if fold_spreads(a):
            there = there and words[2] > 1
        put_word(c.cols[x.first + j].data, a.result, row,
                 fold_value(a, <const char*> words - a.offset) if there else 0)
        if a.may_be_null:
            c.cols[x.first + j].valid[row] = there


cdef int rolling_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the values' columns behind the input's; evaluate conditions."""
    cdef RollingContext* x = <RollingContext*> k.ctx
    cdef Column* col
    cdef int32_t j
    if fold_prepare(x.fold, w, c, x.conditions) != 0:
        return -1
    for j in range(x.fold.n):
        col = &c.cols[x.first + j]
        col.valid = NULL
        col.data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
        if col.data == NULL:
            return -1
        if x.fold.accumulators[j].may_be_null:
            col.valid = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
            if col.valid == NULL:
                return -1
    return 0


cdef int rolling_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The values already lie behind the input's columns."""
    c.ncols = k.output.ncols
    return 0


cdef inline int32_t slide_row(const RollingContext* x, RollingBucket* b, Slide* s, Chunk* c, int32_t row,
                              const FoldBlock* block, int32_t i, int64_t now) noexcept nogil:
    """Move a key's window to row i of the block. 0, or the FailureCode: nothing changed."""
    cdef int64_t seen
    cdef int64_t gone
    bounds(x, s, now, &seen, &gone)
    if x.fold.any_checked and overflows(x, s, block, i, seen, gone):
        return FAIL_OVERFLOW
    if s.n == s.room and gone == 0:
        if resize(x, b, s, 2 * s.room if s.room else <int64_t> FIRST_ROOM) != 0:
            return FAIL_MEMORY
    while s.seen < seen:
        see(x, s, entry_at(x, s, s.seen))
        s.seen += 1
    if gone:
        forget(x, s, gone)
        if s.room > 4 * FIRST_ROOM and 8 * s.n < s.room:
            resize(x, b, s, s.room // 2)                     # without memory it stays
    append(x, s, block, i, now)
    show(x, s, c, row)
    return 0


cdef int32_t rolling_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Put rows into their keys' windows, and the windows' values behind them.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when the time of rows[j] is null,
    a condition fails at it, it is earlier than the row before or a sum overflows (the state untouched), or
    without memory. Cost: keyed_lookup, ~10 ns per row, ~8 ns per row and aggregate, amortised.
    """
    cdef RollingContext* x = <RollingContext*> k.ctx
    cdef RollingBucket* b = <RollingBucket*> state
    cdef const uint8_t* valid = c.cols[x.time].valid if x.time >= 0 else NULL
    cdef FoldBlock block
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef Slide* s = <Slide*> b.base.single
    cdef Block* scratch
    cdef char* top
    cdef int64_t now = 0
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t row
    cdef int32_t clean                                       # rows of the block in front of a null time
    cdef int32_t end                                         # of these, rows before a failing condition
    cdef int32_t code
    if fold_begin(x.fold, w, &block) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    scratch = w.scratch.current
    top = w.scratch.top
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if w.scratch.current == scratch:                     # nothing of the last block is needed any more
            w.scratch.top = top
        clean = m
        if valid != NULL:
            clean = 0
            while clean < m and valid[rows[k0 + clean]] != 0:
                clean += 1
        end = fold_load(x.fold, w, c, rows + k0, clean, x.conditions, &block, f) if clean else 0
        if x.time >= 0:
            load(times, x.time_type, c.cols[x.time].data, rows + k0, end)
        if end and x.keys != NULL and keyed_lookup_block(
                &b.base.keyed, w, c, rows + k0, end,
                min(n - k0 - end, <int32_t> LOOKUP_BLOCK) if end == m else 0, &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            row = rows[k0 + i]
            if x.keys != NULL:
                s = <Slide*> keyed_state(&b.base.keyed, slots[i])
            if x.time >= 0:
                now = times[i]
                if s.n and now < time_at(x, s, s.n - 1):
                    failure_earlier(f, row, x.time, now, time_at(x, s, s.n - 1))
                    return k0 + i
            code = slide_row(x, b, s, c, row, &block, i, now)
            if code != 0:
                failure_set(f, row, code, failure_text(code))
                return k0 + i
            if now < b.earliest:
                b.earliest = now
        k0 += end
        if end < clean:
            return k0
        if clean < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null time: filter such tuples out before rolling")
            return k0
    return n


# -------------------------------------------------------------------------------- buckets and marks


cdef void* rolling_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef RollingContext* x = <RollingContext*> k.ctx
    cdef RollingBucket* b = <RollingBucket*> calloc(1, sizeof(RollingBucket))
    cdef int32_t size = <int32_t> sizeof(Slide) + x.fold.n * 8 * TOTAL_WORDS
    if b == NULL:
        return NULL
    b.base.state_size = size
    b.earliest = INT64_MAX
    b.known = 1
    if x.keys == NULL:
        b.base.single = <char*> calloc(1, size)
        if b.base.single != NULL:
            return b
    elif keyed_init(&b.base.keyed, x.keys, size, &b.base.pool) == 0:
        return b
    free(b)
    return NULL


cdef void drop_ring(Kernel* k, void* bucket, char* state) noexcept nogil:
    """Give the memory of a ring back; the state is zeroed."""
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef Slide* s = <Slide*> state
    free(s.entries)
    (<RollingBucket*> bucket).ring_bytes -= s.room * x.entry
    memset(s, 0, sizeof(Slide) + <size_t> x.fold.n * 8 * TOTAL_WORDS)


cdef void rolling_free(Kernel* k, void* state) noexcept nogil:
    cdef RollingBucket* b = <RollingBucket*> state
    cdef int64_t i
    if b.base.single != NULL:
        free((<Slide*> b.base.single).entries)
        free(b.base.single)
    else:
        for i in range(b.base.keyed.count):
            free((<Slide*> keyed_state(&b.base.keyed, i)).entries)
        keyed_free(&b.base.keyed)
    free(b)


cdef int64_t rolling_bytes(Kernel* k, void* state) noexcept nogil:
    cdef RollingBucket* b = <RollingBucket*> state
    if b.base.single != NULL:
        return b.base.state_size + b.ring_bytes
    return keyed_bytes(&b.base.keyed) + load_relaxed(&b.base.pool.bytes) + b.ring_bytes   # no partner


cdef inline bint is_over(const RollingContext* x, int64_t latest, int64_t mark) noexcept nogil:
    """Whether no row from `mark` on sees a row at `latest`."""
    return mark > latest and too_old(x, latest, mark)


cdef int rolling_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """At a mark forget the keys that no later row sees. Nothing is emitted. Cost: nothing where there can be
    none, else a pass over the bucket's keys."""
    cdef RollingContext* x = <RollingContext*> k.ctx
    cdef RollingBucket* b = <RollingBucket*> state
    cdef int64_t mark = punctuation.time
    cdef int64_t behind = mark % x.length if x.clocked else 0
    cdef int64_t earliest = INT64_MAX
    cdef int64_t gone = 0
    cdef int64_t latest
    cdef int64_t count = b.base.keyed.count if x.keys != NULL else 1
    cdef int64_t i
    cdef Slide* s = <Slide*> b.base.single
    cdef bint again
    if behind < 0:
        behind += x.length
    if punctuation.kind != TIME or not x.clocked or mark < INT64_MIN + behind:
        return 0
    mark -= behind
    again = mark == b.mark
    b.mark = mark
    if b.known and not is_over(x, b.earliest, mark):
        if not again and x.keys != NULL:
            keyed_settle(&b.base.keyed, b.base.keyed.count)  # the wave before was the last one
        return 0
    for i in range(count):
        if stop_due(w, i):
            return 0
        if x.keys != NULL:
            s = <Slide*> keyed_state(&b.base.keyed, i)
        if s.n == 0:                                         # its only rows failed
            continue
        latest = time_at(x, s, s.n - 1)
        if not is_over(x, latest, mark):
            earliest = min(earliest, latest)
            continue
        drop_ring(k, b, <char*> s)
        if x.keys != NULL:
            s.n = LEAVES
            gone += 1
    b.earliest = earliest
    b.known = 1
    if x.keys != NULL:
        keys_leave(w, &b.base.keyed, x.key_size, gone)
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint any_row(Kernel* k, const char* state) noexcept nogil:
    return (<const Slide*> state).n > 0


cdef int write_ring(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef const Slide* s = <const Slide*> state
    cdef char* to
    cdef int32_t column = own_column(k)
    cdef int64_t i
    (<int64_t*> out.cols[column].data)[index] = s.front
    (<int64_t*> out.cols[column + 1].data)[index] = s.seen
    if put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0:
        return -1
    column += 2
    if x.time >= 0:
        to = list_room(w, out, column, index, s.n, WIDTHS[x.time_type])
        if to == NULL:
            return -1
        for i in range(s.n):
            put_word(to, x.time_type, i, time_at(x, s, i))
        column += 1
    to = list_room(w, out, column, index, s.n * x.fold.n, 1)
    if to == NULL:
        return -1
    for i in range(s.n):
        memcpy(to + i * x.fold.n, entry_at(x, s, i) + x.flags, x.fold.n)
    to = list_room(w, out, column + 1, index, s.n * x.nwords, 8)
    if to == NULL:
        return -1
    for i in range(s.n):
        memcpy(to + i * x.nwords * 8, entry_at(x, s, i) + 8, <size_t> x.nwords * 8)
    return 0


cdef const char* read_entries(const RollingContext* x, const Chunk* rows, int32_t column, int32_t slot,
                              Slide* s) noexcept nogil:
    """Fill the entries of a ring, s.n of them, from a row. NULL, or what no ring has."""
    cdef const View* times = row_list(rows, column, slot) if x.time >= 0 else NULL
    cdef const View* there
    cdef const View* words
    cdef char* entry
    cdef int64_t i
    if x.time >= 0:
        column += 1
    there = row_list(rows, column, slot)
    words = row_list(rows, column + 1, slot)
    if there == NULL or words == NULL or there.size != s.n * x.fold.n or words.size != s.n * x.nwords or (
            x.time >= 0 and times == NULL):
        return "the lists of a window are null, or not of one length"
    for i in range(s.n):
        entry = entry_at(x, s, i)
        memset(entry, 0, x.entry)
        if x.time >= 0:
            (<int64_t*> entry)[0] = value_at(x.time_type, times.data, <int32_t> i)
            if i and time_at(x, s, i) < time_at(x, s, i - 1):
                return "the times of a window run backwards"
        memcpy(entry + 8, words.data + i * x.nwords * 8, <size_t> x.nwords * 8)
        memcpy(entry + x.flags, there.data + i * x.fold.n, x.fold.n)
    return NULL


cdef int64_t rows_of(const RollingContext* x, const Chunk* rows, int32_t column,
                     int32_t slot) noexcept nogil:
    """How many rows a stored window has; -1: it is none."""
    cdef const View* l = row_list(rows, column + 2, slot)
    if l == NULL:
        return -1
    return l.size if x.time >= 0 else l.size // x.fold.n


cdef int32_t read_ring(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef RollingBucket* b = <RollingBucket*> bucket
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
    if resize(x, b, s, room) != 0:
        failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return FAIL_MEMORY
    s.n = n
    s.front = row_value(k.state, rows, column, slot)
    s.seen = row_value(k.state, rows, column + 1, slot)
    wrong = read_entries(x, rows, column + 2, slot, s)
    if not 0 <= s.front <= s.seen <= n or (x.ends_at_row and s.seen != n):
        wrong = "more rows of a window are in front, or seen, than there are"
    if wrong != NULL:
        drop_ring(k, bucket, state)
        failure_set(f, slot, FAIL_STATE, wrong)
        return FAIL_STATE
    for i in range(s.front, s.seen):
        see(x, s, entry_at(x, s, i))
    for i in range(s.front):                                 # only what can be undone: the rest is there
        for j in range(x.fold.n):
            if x.words[j].exact and entry_at(x, s, i)[x.flags + j]:
                wide_add(total_of(s, j), (<const int64_t*> (entry_at(x, s, i) + x.words[j].offset))[0])
                total_of(s, j)[2] += 1
                total_of(s, j)[3] = 1
    b.known = 0
    return 0


cdef StateCalls RING = StateCalls(alive=any_row, write=write_ring, read=read_ring, drop=drop_ring)


cdef int32_t rolling_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                            Failure* f) noexcept nogil:
    """Rows (key..., front, visible, lists...). Contract: kernel.pxd (f)."""
    return bucket_export(k, w, <Bucket*> state, &RING, cursor, out, f)


cdef int32_t rolling_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots,
                             int32_t n, Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    return bucket_install(k, <Bucket*> state, &RING, rows, slots, n, f)


cdef int32_t rolling_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    return bucket_remove(k, <Bucket*> state, &RING, keys, slots, n)


cdef class RollingKernel(KernelOwner):
    """Operator "rolling". Attributes: `window` (kind, length, closed), `time`, `aggregates`, `clock`; `key`
    may be empty (SF)."""

    cdef RollingContext context
    cdef KeySpecOwner keys
    cdef FoldOwner fold

    def __init__(self, operator):
        cdef RollingContext* x = &self.context
        cdef const Accumulator* a
        cdef int32_t j
        owner_setup(self, operator, PS if operator.key else SF)
        before = len(operator.input)
        if self.kernel.output.ncols != before + len(operator.aggregates):
            raise ValueError(f"{operator.name!r}: the output schema must be the input's and aggregates")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, self.input_layout.types)
            x.keys = &self.keys.spec
            x.key_size = self.keys.spec.size
        self.fold = FoldOwner(operator.aggregates, self.input_layout, self.output_layout.types[before:])
        x.fold = &self.fold.fold
        x.words = <Word*> calloc(x.fold.n + 1, sizeof(Word))
        if x.words == NULL:
            raise MemoryError
        x.entry = 8
        for j in range(x.fold.n):
            a = &x.fold.accumulators[j]
            x.words[j].exact = a.function in (F_COUNT, F_SUM_I64, F_MEAN_I64)
            x.words[j].words = 3 if fold_spreads(a) else 2 if a.function == F_MEAN_F64 else 1
            if a.function == F_COUNT:
                x.words[j].words = 0
            x.words[j].offset = x.entry
            x.entry += 8 * x.words[j].words
            x.nwords += x.words[j].words
        x.flags = x.entry
        x.entry = (x.entry + x.fold.n + 7) & ~7
        x.first = self.kernel.input.ncols
        x.conditions = x.first + x.fold.n
        x.time = -1
        if operator.time is not None:
            x.time = operator.time
            x.time_type = self.input_layout.types[operator.time]
            if x.time_type >= PT_U64:
                raise TypeError(f"{operator.name!r}: the time column must be an integer below uint64, a "
                                f"date or a timestamp")
        x.ends_at_row = operator.time is None or operator.window.closed in ("right", "both")
        x.begins_before = operator.window.closed in ("left", "both")
        x.clocked = operator.clock is not None
        x.length = operator.window.length
        self.kernel.ctx = <void*> x
        self.kernel.in_place = 1
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.extra_cols = 2 * x.fold.n
        self.kernel.prepare = rolling_prepare
        self.kernel.process = rolling_process
        self.kernel.finish = rolling_finish
        self.kernel.punctuate = rolling_punctuate
        self.kernel.bucket_new = rolling_new
        self.kernel.bucket_free = rolling_free
        self.kernel.bucket_bytes = rolling_bytes
        owner_state(self, operator, rolling_export, rolling_install, rolling_remove)

    def __dealloc__(self):
        free(self.context.words)
