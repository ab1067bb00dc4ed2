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
d) Counts, and sums and means of integers, over so many rows have a loop of their own (plain_rows.pxd).
e) A mark of the clock forgets the keys whose latest row no later window sees. A bucket knows a lower bound
   of these rows' times, so that a mark that forgets nothing mostly costs nothing.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.carry cimport carry_values
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_OVERFLOW, PT_LIST, PT_VIEW, Chunk, Column, Failure, LayoutOwner, Worker,
    chunk_alloc, chunk_reserve, chunk_set_valid, failure_set, scratch_alloc,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.fold cimport (
    F_COUNT, F_GATHER, F_MEAN_DECIMAL, F_MEAN_F64, F_MEAN_I64, F_SUM_I64, Accumulator, FoldBlock,
    fold_prepare, fold_put, fold_spreads, fold_value, int128_of, loaded_value, sum_leaves,
)
from ordstream._core.state.gathered cimport (
    GATHERED_UNDO, gathered_put, gathered_store, gathered_window,
)
from ordstream._core.state.keyed_bucket cimport (
    Bucket, bytes_of_bucket, free_bucket, new_bucket_of, put_word,
)
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK, keyed_state
from ordstream._core.state.marks cimport CLOSING_ALL, CLOSING_SOME, Closing, marks_pass
from ordstream._core.state.plain_rows cimport plain_fetch, plain_row
from ordstream._core.state.sliding cimport (
    FIRST_ROOM, TOTAL_WORDS, RollingContext, Slide, Word, copy_words, entry_at, forget, merge, next_room,
    resize, see, time_at, total_of, wide_add, wide_take,
)
from ordstream._core.state.sliding_rows cimport RING, drop_ring
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.state.windows cimport (
    WindowBlock, WindowBucket, block_begin, block_next, block_time, window_setup,
)


# -------------------------------------------------------------------------------- rows


cdef inline bint too_old(const RollingContext* x, int64_t time, int64_t now) noexcept nogil:
    """Whether the window of a row at `now`, not before `time`, begins behind `time`."""
    cdef uint64_t age = <uint64_t> now - <uint64_t> time
    return age > <uint64_t> x.window.length if x.begins_before else age >= <uint64_t> x.window.length


cdef inline void bounds(const RollingContext* x, const Slide* s, int64_t now, int64_t* seen,
                        int64_t* gone) noexcept nogil:
    """How many rows are seen at `now`, those that leave included, and how many of them leave."""
    seen[0] = s.seen
    gone[0] = 0
    if x.window.time < 0:
        gone[0] = s.n - x.window.length + 1 if s.n >= x.window.length else 0
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
    for j in range(x.window.fold.n):
        a = &x.window.fold.accumulators[j]
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
        if sum_leaves(sum, int128_of(0), a.digits) if a.digits else sum[1] != sum[0] >> 63:
            return True
    return False


cdef inline int add_objects(const RollingContext* x, Bucket* b, Slide* s, const Chunk* c,
                            int32_t row, const FoldBlock* block, int32_t i, char* added) noexcept nogil:
    """Add row i of the block to the aggregations that are objects, where it waits to be seen; `added`: to
    which. 0, or -1: no memory, nothing changed."""
    cdef int32_t j
    cdef int32_t other
    cdef int32_t more
    memset(added, 0, <size_t> x.window.fold.n)
    for j in range(x.window.fold.n):
        if not x.words[j].boxed or (block.used[j] != NULL and block.used[j][i] == 0):
            continue
        more = gathered_put(&x.window.fold.accumulators[j], <void**> total_of(s, j), c, row, &b.held.bytes)
        if more < 0:
            for other in range(x.window.fold.n):
                if added[other]:
                    gathered_window(<void*> total_of(s, other)[0], GATHERED_UNDO, &b.held.bytes)
            return -1
        added[j] = <char> more
    return 0


cdef inline void append(const RollingContext* x, Bucket* b, Slide* s, const FoldBlock* block,
                        int32_t i, int64_t now, const char* added) noexcept nogil:
    """Put row i of the block into the ring, which has room."""
    cdef char* entry = entry_at(x, s, s.n)
    cdef int64_t* words = <int64_t*> entry
    cdef int32_t j
    for j in range(x.entry // 8):
        words[j] = 0
    if x.window.time >= 0:
        words[0] = now
    for j in range(x.window.fold.n):
        if x.words[j].boxed:
            entry[x.flags + j] = added[j]
        elif block.used[j] == NULL or block.used[j][i] != 0:
            entry[x.flags + j] = 1
            if x.window.fold.accumulators[j].function != F_COUNT:
                (<int64_t*> (entry + x.words[j].offset))[0] = loaded_value(block, j, i)
    s.n += 1
    if x.ends_at_row:
        s.seen += 1
        see(x, b, s, entry)


cdef inline int show(const RollingContext* x, Slide* s, Worker* w, Chunk* c, int32_t row) noexcept nogil:
    """Write the values of a window behind its row. 0, or -1: no memory."""
    cdef const Accumulator* a
    cdef const char* oldest = entry_at(x, s, 0) if s.front else NULL
    cdef int64_t* total
    cdef int64_t[3] words
    cdef bint there
    cdef int32_t j
    for j in range(x.window.fold.n):
        a = &x.window.fold.accumulators[j]
        total = total_of(s, j)
        if x.words[j].boxed:
            if gathered_store(a, <void*> total[0], w, c, x.first + j, row) != 0:
                return -1
            continue
        if x.words[j].exact:
            there = total[2] > 0
            words[0] = total[2] if a.function == F_COUNT else total[0]
            words[1] = total[1] if a.digits else total[2]
            words[2] = total[2]
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
        if a.digits:
            if fold_put(a, <const char*> words - a.offset, w, c, x.first + j, row) != 0:
                return -1
        else:
            put_word(c.cols[x.first + j].data, a.result, row,
                     fold_value(a, <const char*> words - a.offset) if there else 0)
        if a.may_be_null:
            if c.cols[x.first + j].valid == NULL:            # of rows apart
                if there:
                    continue
                if chunk_set_valid(w, c, x.first + j) != 0:
                    return -1
            c.cols[x.first + j].valid[row] = there
    return 0


cdef int show_apart(const RollingContext* x, Kernel* k, Worker* w, Slide* s, const Chunk* c, int32_t row,
                    Chunk* out) noexcept nogil:
    """Append a row with the values of its window. 0, or -1: no memory."""
    if out.n == out.capacity and chunk_reserve(w, out, k.output, LOOKUP_BLOCK) != 0:
        return -1
    if carry_values(x.carry, x.first, k.output, w, c, out, row, 1) != 0 or show(x, s, w, out, out.n) != 0:
        return -1
    out.n += 1
    out.slots = out.n
    return 0


cdef int rolling_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the values' columns behind the input's; evaluate conditions."""
    cdef RollingContext* x = <RollingContext*> k.ctx
    cdef Column* col
    cdef int32_t j
    if fold_prepare(x.window.fold, w, c, x.window.conditions) != 0:
        return -1
    if x.carry != NULL:
        return 0
    for j in range(x.window.fold.n):
        col = &c.cols[x.first + j]
        col.valid = NULL
        col.data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
        if col.data == NULL:
            return -1
        if x.window.fold.accumulators[j].may_be_null:
            col.valid = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
            if col.valid == NULL:
                return -1
    return 0


cdef int rolling_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The values already lie behind the input's columns."""
    c.ncols = k.output.ncols
    return 0


cdef inline int32_t slide_row(const RollingContext* x, Bucket* b, Slide* s, const Chunk* c,
                              int32_t row, const FoldBlock* block, int32_t i, int64_t now,
                              char* added) noexcept nogil:
    """Move a key's window to row i of the block. 0, or the FailureCode: nothing changed."""
    cdef int64_t seen
    cdef int64_t gone
    bounds(x, s, now, &seen, &gone)
    if x.window.fold.any_checked and overflows(x, s, block, i, seen, gone):
        return FAIL_OVERFLOW
    if s.n == s.room and gone == 0:
        if resize(x, b, s, next_room(x, s)) != 0:
            return FAIL_MEMORY
    if x.window.fold.gathers and add_objects(x, b, s, c, row, block, i, added) != 0:
        return FAIL_MEMORY
    while s.seen < seen:
        see(x, b, s, entry_at(x, s, s.seen))
        s.seen += 1
    if gone:
        forget(x, b, s, gone)
        if s.room > 4 * FIRST_ROOM and 8 * s.n < s.room:
            resize(x, b, s, s.room // 2)                     # without memory it stays
    append(x, b, s, block, i, now, added)
    return 0


cdef inline Slide* slide_of(const RollingContext* x, Bucket* b, const WindowBlock* t,
                            int32_t i) noexcept nogil:
    """State of the key of row i of a block."""
    return <Slide*> (keyed_state(&b.keyed, t.slots[i]) if x.window.by.keys != NULL else b.single)


cdef int32_t rolling_plain(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """rolling_process of a window that is plain (plain_rows.pxd)."""
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef WindowBlock t
    cdef int32_t i
    cdef int32_t code
    if block_begin(&x.window, w, c, &t) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while block_next(&x.window, b, w, c, rows, n, &t, f):
        for i in range(t.end if t.end > 1 else 0):
            plain_fetch(x, slide_of(x, b, &t, i))
        for i in range(t.end):
            code = plain_row(x, b, slide_of(x, b, &t, i), c, rows[t.at + i], &t.fold, i)
            if code != 0:
                failure_set(f, rows[t.at + i], code, failure_text(code))
                return t.at + i
    return t.at


cdef int32_t rolling_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Put rows into their keys' windows, and the windows' values behind them.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when the time of rows[j] is null,
    a condition fails at it, it is earlier than the row before or a sum overflows (the state untouched), or
    without memory. Cost: keyed_lookup, ~10 ns per row, ~8 ns per row and aggregate, amortised.
    """
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef WindowBucket* b = <WindowBucket*> state
    cdef WindowBlock t
    cdef Slide* s = <Slide*> b.base.single
    cdef char* added = scratch_alloc(w, x.window.fold.n + 1)
    cdef int64_t now = 0
    cdef int32_t i
    cdef int32_t row
    cdef int32_t code
    if added == NULL or block_begin(&x.window, w, c, &t) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while block_next(&x.window, &b.base, w, c, rows, n, &t, f):
        for i in range(t.end):
            row = rows[t.at + i]
            if x.window.by.keys != NULL:
                s = <Slide*> keyed_state(&b.base.keyed, t.slots[i])
            if x.window.time >= 0:
                now = block_time(&t, row, i)
                if s.n and now < time_at(x, s, s.n - 1):
                    failure_earlier(f, row, x.window.time, now, time_at(x, s, s.n - 1))
                    return t.at + i
            code = slide_row(x, &b.base, s, c, row, &t.fold, i, now, added)
            if code == 0:
                if x.carry == NULL:
                    show(x, s, w, c, row)                    # in place: what it needs is there
                elif show_apart(x, k, w, s, c, row, out) != 0:
                    code = FAIL_MEMORY
            if code != 0:
                failure_set(f, row, code, failure_text(code))
                return t.at + i
            if now < b.marks.earliest:
                b.marks.earliest = now
    return t.at


# -------------------------------------------------------------------------------- buckets and marks


cdef void* rolling_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    return new_bucket_of(sizeof(WindowBucket), x.window.by.keys,
                         <int32_t> sizeof(Slide) + x.window.fold.n * 8 * TOTAL_WORDS, &RING)


cdef bint is_due(const Kernel* k, int64_t latest, int64_t mark) noexcept nogil:
    """Whether no row from a mark on sees a row at `latest`."""
    return mark > latest and too_old(<const RollingContext*> k.ctx, latest, mark)


cdef Closing close(Kernel* k, Worker* w, Bucket* b, char* record, char* state, Chunk* out, bint final,
                   int64_t mark, int64_t* since) noexcept nogil:
    cdef const RollingContext* x = <const RollingContext*> k.ctx
    cdef Slide* s = <Slide*> state
    since[0] = time_at(x, s, s.n - 1)
    if not is_due(k, since[0], mark):
        return CLOSING_SOME
    drop_ring(k, b, state)
    return CLOSING_ALL


cdef int rolling_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """At a mark forget the keys that no later row sees. Nothing is emitted. Contract: marks_pass."""
    if punctuation.kind == END_OF_STREAM or (<const RollingContext*> k.ctx).window.time < 0:
        return 0
    return marks_pass(k, w, <Bucket*> state, &(<WindowBucket*> state).marks, punctuation, out, is_due, close,
                      f)


cdef class RollingKernel(KernelOwner):
    """Operator "rolling". Attributes: `window` (kind, length, closed), `time`, `aggregates`, `clock`; `key`
    may be empty (SF)."""

    cdef RollingContext context

    def __init__(self, operator):
        cdef RollingContext* x = &self.context
        cdef const Accumulator* a
        cdef Slide one
        cdef int32_t j
        window_setup(self, operator, &x.window, len(operator.input), 0, True)
        x.window.null_time = "a null time: filter such tuples out before rolling"
        x.window.by.word = <int32_t> (<char*> &one.n - <char*> &one)
        x.words = <Word*> calloc(x.window.fold.n + 1, sizeof(Word))
        if x.words == NULL:
            raise MemoryError
        x.begin = x.entry = 0 if operator.time is None else 8
        x.exact = True
        x.plain = operator.time is None
        for j in range(x.window.fold.n):
            a = &x.window.fold.accumulators[j]
            x.words[j].boxed = a.function == F_GATHER
            x.words[j].exact = a.digits > 0 or a.function in (
                F_COUNT, F_SUM_I64, F_MEAN_I64, F_MEAN_DECIMAL, F_GATHER)
            x.words[j].words = 3 if fold_spreads(a) else 2 if a.function == F_MEAN_F64 else 1
            if a.function in (F_COUNT, F_GATHER):
                x.words[j].words = 0
            x.exact &= x.words[j].exact
            x.plain &= x.words[j].exact and not x.words[j].boxed and not a.digits
            x.words[j].offset = x.entry
            x.entry += 8 * x.words[j].words
            x.nwords += x.words[j].words
        x.flags = x.entry
        x.entry = (x.entry + x.window.fold.n + 7) & ~7
        x.first = self.kernel.input.ncols
        x.window.conditions = x.first + x.window.fold.n
        x.ends_at_row = operator.time is None or operator.window.closed in ("right", "both")
        x.begins_before = operator.window.closed in ("left", "both")
        self.kernel.ctx = <void*> x
        if x.window.fold.apart:
            self.make_rows_apart()
        else:
            self.kernel.in_place = 1
            self.kernel.finish = rolling_finish
        self.kernel.extra_cols = 2 * x.window.fold.n
        self.kernel.prepare = rolling_prepare
        self.kernel.process = rolling_plain if x.plain else rolling_process
        self.kernel.punctuate = rolling_punctuate
        self.kernel.bucket_new = rolling_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)

    cdef int make_rows_apart(self) except -1:
        """As of scan (aggregate.pyx)."""
        cdef RollingContext* x = &self.context
        cdef LayoutOwner layout = self.input_layout
        cdef int32_t j
        x.carry = <int32_t*> calloc(x.first + 1, sizeof(int32_t))
        if x.carry == NULL:
            raise MemoryError
        for j in range(x.first):
            x.carry[j] = j
            if layout.layout.type[j] == PT_VIEW or layout.layout.type[j] == PT_LIST:
                self.kernel.keeps_views = 1
        return 0

    def __dealloc__(self):
        free(self.context.words)
        free(self.context.carry)
