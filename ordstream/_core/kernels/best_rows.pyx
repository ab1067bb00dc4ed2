"""Best rows: per key the k rows with the largest (or smallest) `by`, of equal ones those that came first;
emitted at the end of the stream, and, where updates are asked for, each row that is among them when it
comes. Contract: kernel.pxd (b), (c), (f).

a) A key's rows are entries (row_queue.pxd) behind a heap whose root is the worst. The rank is an int64 that
   orders as `by` does, so that one comparison decides; once a key has k rows, the root's lies in the key's
   record, and a row that is no better costs no other cache line.
b) Rows are not lent (lent_rows.pxd): those that stay are few of each batch, and would hold all of them.
c) A row of state has a key's rows best first, from which ranks and turns follow.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_STATE, PT_F32, PT_F64, PT_U64, Chunk, Failure, LayoutOwner,
    View, Worker, chunk_reserve, failure_set,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.state.held_memory cimport held_give, held_take
from ordstream._core.state.keyed_bucket cimport Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpec, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_record, keyed_state,
)
from ordstream._core.state.late_rows cimport LATE_BEGIN, LateRows, late_new
from ordstream._core.state.ranking cimport float_rank
from ordstream._core.state.row_queue cimport (
    Entry, Queue, RowSpec, RowSpecOwner, entry_of, expect_entry, flag_of, is_null, own_of, put_newest,
    queue_drop, queue_read, queue_write, show_row,
)
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid
from ordstream._core.state.state_rows cimport owner_bucket_state

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum:
    NEAR_ROWS = 2              # most rows whose places lie in the record
    FIRST_ROOM = 4             # rows, where there are more
    SHOWN_AHEAD = 4            # rows between a prefetch and the flush of a row

cdef struct Ranked:
    int64_t rank
    int64_t turn           # of equal ranks the smaller is better
    Entry* entry           # owned by the key; `own`: its place from 1, at the end of the stream

cdef struct Best:
    # State of a key. Zeroed memory: no row came. Behind it with k <= NEAR_ROWS: the heap.
    int32_t n              # rows
    int32_t room           # of `far`
    int64_t least          # with k rows: the root's rank
    int64_t turns          # rows that were kept
    Ranked* far            # the heap, of held_take; NULL: none yet, or it lies behind

cdef struct BestContext:
    # Read-only while a run lasts. Memory ownership: BestRowsKernel.
    const KeySpec* keys    # NULL: SF
    const RowSpec* kept    # all input columns
    int32_t k
    int32_t near           # 1: heaps lie in the record
    int32_t size           # bytes of a state
    int32_t by             # input column
    int32_t by_type
    int32_t ascends        # 1: the smallest are the best
    int32_t updates
    int32_t ranked         # 1: behind the input's columns there is one for the rank


# -------------------------------------------------------------------------------- one key


cdef inline int64_t rank_of(const BestContext* x, int64_t word) noexcept nogil:
    """The rank of a widened value: the larger the better, NaN worst. Pure."""
    if x.by_type == PT_F64 or x.by_type == PT_F32:
        word = float_rank(word)
        return ~word if x.ascends and word != INT64_MIN else word
    if x.by_type == PT_U64:
        word = word ^ INT64_MIN
    return ~word if x.ascends else word


cdef inline Ranked* heap_of(const BestContext* x, Best* s) noexcept nogil:
    return <Ranked*> (s + 1) if x.near else s.far


cdef inline bint worse(const Ranked* p, const Ranked* q) noexcept nogil:
    return p.turn > q.turn if p.rank == q.rank else p.rank < q.rank


cdef inline void heap_down(Ranked* v, int32_t n) noexcept nogil:
    """The root goes down to its place."""
    cdef Ranked one = v[0]
    cdef int64_t at = 0
    cdef int64_t child = 1
    while child < n:
        if child + 1 < n and worse(&v[child + 1], &v[child]):
            child += 1
        if not worse(&v[child], &one):
            break
        v[at] = v[child]
        at = child
        child = 2 * at + 1
    v[at] = one


cdef inline void heap_up(Ranked* v, int32_t at) noexcept nogil:
    """The last of a heap goes up to its place."""
    cdef Ranked one = v[at]
    while at and worse(&one, &v[(at - 1) // 2]):
        v[at] = v[(at - 1) // 2]
        at = (at - 1) // 2
    v[at] = one


cdef void sort_heap(Ranked* v, int32_t n, Worker* w) noexcept nogil:
    """A heap becomes a list, best first; `w`: whose run may stop meanwhile, and the order then is none."""
    cdef Ranked worst
    cdef int32_t last
    for last in range(n - 1, 0, -1):
        if w != NULL and stop_due(w, last):
            return
        worst = v[0]
        v[0] = v[last]
        heap_down(v, last)
        v[last] = worst


cdef void reverse(Ranked* v, int32_t n) noexcept nogil:
    """A list, best first, becomes one that is worst first, which is a heap."""
    cdef Ranked one
    cdef int32_t i
    for i in range(n // 2):
        one = v[i]
        v[i] = v[n - 1 - i]
        v[n - 1 - i] = one


cdef int make_room(const BestContext* x, Bucket* b, Best* s, int32_t n) noexcept nogil:
    """Room for at least n rows, n <= k. 0, or -1: no memory, and nothing changed."""
    cdef int64_t room = min(<int64_t> x.k, max(<int64_t> n, max(<int64_t> FIRST_ROOM, 2 * <int64_t> s.room)))
    cdef Ranked* grown
    if x.near or n <= s.room:
        return 0
    grown = <Ranked*> held_take(&b.held, room * <int64_t> sizeof(Ranked))
    if grown == NULL:
        return -1
    if s.n:
        memcpy(grown, s.far, <size_t> s.n * sizeof(Ranked))
    held_give(&b.held, s.far, s.room * <int64_t> sizeof(Ranked))
    s.far = grown
    s.room = <int32_t> room
    return 0


cdef Entry* keep(const BestContext* x, Bucket* b, const Chunk* c, int32_t row, int64_t rank,
                 Best* s) noexcept nogil:
    """A row that is among the best comes to a key; with k rows the worst leaves. NULL: no memory, and the
    state is as before."""
    cdef bint full = s.n == x.k
    cdef Ranked* v
    cdef Ranked one
    if not full and make_room(x, b, s, s.n + 1) != 0:
        return NULL
    v = heap_of(x, s)
    one.entry = entry_of(x.kept, &b.held, c, row, v[0].entry if full else NULL)
    if one.entry == NULL:
        return NULL
    one.rank = rank
    one.turn = s.turns
    s.turns += 1
    if full:
        v[0] = one
        heap_down(v, s.n)
    else:
        v[s.n] = one
        heap_up(v, s.n)
        s.n += 1
    s.least = v[0].rank
    return one.entry


cdef void drop_rows(Kernel* k, void* bucket, char* state) noexcept nogil:
    """Give back what a key keeps."""
    cdef const BestContext* x = <const BestContext*> k.ctx
    cdef Bucket* b = <Bucket*> bucket
    cdef Best* s = <Best*> state
    cdef Ranked* v = heap_of(x, s)
    cdef int32_t i
    for i in range(s.n):
        held_give(&b.held, v[i].entry, v[i].entry.room)
    if not x.near:
        held_give(&b.held, s.far, s.room * <int64_t> sizeof(Ranked))
    memset(state, 0, x.size)


# -------------------------------------------------------------------------------- rows


cdef int emit_row(const BestContext* x, Kernel* k, Worker* w, Best* s, Entry* entry, int64_t rank,
                  int32_t row, Chunk* out) noexcept nogil:
    """A row that came to a key, with its place among the rows there; it is the last of its rank. Room is
    reserved. 0, or -1: no memory."""
    cdef const Ranked* v = heap_of(x, s)
    cdef int64_t place = 0
    cdef int32_t i
    if show_row(x.kept, w, entry, out, 0, out.n, True) != 0:
        return -1
    if x.ranked:
        for i in range(s.n):
            place += v[i].rank >= rank
        (<int64_t*> out.cols[x.kept.n].data)[out.n] = place
    out.origin[out.n] = row
    out.n += 1
    out.slots = out.n
    return 0


cdef int32_t best_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Each row meets the best of its key; with updates those that are among them are emitted.

    Thread safety: the bucket's holder. Ownership: rows are copied. Returns: n, or j when `by` of rows[j] is
    null (state untouched), or without memory. Cost: keyed_lookup, and a comparison for a row that is no
    better than the k-th; else O(log k) and ~3 ns per column. Updates: O(k) more for a row among the best.
    """
    cdef const BestContext* x = <const BestContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] words
    cdef Best* s
    cdef Entry* entry
    cdef int64_t rank
    cdef int32_t k0 = 0
    cdef int32_t row
    cdef int32_t m
    cdef int32_t i
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.keys != NULL and keyed_lookup_block(&b.keyed, w, c, rows + k0, m,
                                                 min(n - k0 - m, <int32_t> LOOKUP_BLOCK), &ahead,
                                                 slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        load(words, x.by_type, c.cols[x.by].data, rows + k0, m)
        for i in range(m):
            row = rows[k0 + i]
            if is_null(&c.cols[x.by], row):
                failure_set(f, row, FAIL_NULL, "a null where top_k ranks: filter such tuples out before")
                return k0 + i
            s = <Best*> (b.single if x.keys == NULL else keyed_state(&b.keyed, slots[i]))
            rank = rank_of(x, words[i])
            if s.n == x.k and rank <= s.least:
                continue
            entry = NULL
            if not x.updates or out.n < out.capacity or chunk_reserve(w, out, k.output, 64) == 0:
                entry = keep(x, b, c, row, rank, s)
            if entry == NULL or (x.updates and emit_row(x, k, w, s, entry, rank, row, out) != 0):
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
        k0 += m
    return n


cdef int show_best(const LateRows* late, Worker* w, int64_t* words, const int32_t* at, int32_t n, Chunk* out,
                   int32_t column) noexcept nogil:
    """Show rows that are kept to the end. Contract: late_rows.pxd. Views point into the state, which no
    tuple changes any more."""
    cdef const BestContext* x = <const BestContext*> late.context
    cdef int32_t ranks = x.kept.n
    cdef int32_t i
    if column != LATE_BEGIN:
        return 0
    for i in range(n):
        if i + SHOWN_AHEAD < n:
            expect_entry(x.kept, words[i + SHOWN_AHEAD])
        if show_row(x.kept, w, <Entry*> words[i], out, 0, at[i], False) != 0:
            return -1
        if x.ranked:
            (<int64_t*> out.cols[ranks].data)[at[i]] = (<int64_t*> own_of(x.kept, <Entry*> words[i]))[0]
            if out.cols[ranks].valid != NULL:
                out.cols[ranks].valid[at[i]] = 1
    return 0


cdef int best_end(const BestContext* x, Worker* w, Bucket* b, Chunk* out) noexcept nogil:
    """Give each key's rows, best first, to be shown once the keys are sorted. 0, or -1: no memory."""
    cdef LateRows* late
    cdef Best* s
    cdef Ranked* v
    cdef int64_t keys = 1 if x.keys == NULL else b.keyed.count
    cdef int64_t total = 0
    cdef int64_t slot
    cdef int32_t i
    for slot in range(keys):
        if stop_due(w, slot):
            return 0
        total += (<const Best*> (b.single if x.keys == NULL else keyed_state(&b.keyed, slot))).n
    if total == 0:
        return 0
    late = late_new(w, out, total, x, b)
    if late == NULL:
        return -1
    late.show = show_best
    for slot in range(keys):
        if stop_due(w, slot):
            return 0
        s = <Best*> (b.single if x.keys == NULL else keyed_state(&b.keyed, slot))
        v = heap_of(x, s)
        sort_heap(v, s.n, w)
        for i in range(s.n):
            (<int64_t*> own_of(x.kept, v[i].entry))[0] = i + 1
            late.words[out.n] = <int64_t> v[i].entry
            out.flush_time[out.n] = 0
            out.flush_key[out.n] = NULL
            if x.keys != NULL:
                out.flush_key[out.n] = keyed_record(&b.keyed, slot)
            out.n += 1
        reverse(v, s.n)                                      # a heap again
    out.slots = out.n
    return 0


cdef int best_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                        Failure* f) noexcept nogil:
    """At the end of the stream the rows of each key, best first. Any order of keys: the runtime sorts."""
    if (punctuation.kind == END_OF_STREAM
            and best_end(<const BestContext*> k.ctx, w, <Bucket*> state, out) != 0):
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return 0


# -------------------------------------------------------------------------------- buckets, state as rows


cdef void* best_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef const BestContext* x = <const BestContext*> k.ctx
    return new_bucket(x.keys, x.size, &ROWS)


cdef bint any_row(Kernel* k, const char* state) noexcept nogil:
    return (<const Best*> state).n != 0


cdef int write_rows(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    """Columns: number of rows; the rows, best first, as bytes. The heap is sorted for it, and is one
    again."""
    cdef const BestContext* x = <const BestContext*> k.ctx
    cdef Best* s = <Best*> state
    cdef Ranked* v = heap_of(x, s)
    cdef int32_t column = own_column(k)
    cdef Queue rows
    cdef int32_t i
    memset(&rows, 0, sizeof(Queue))
    sort_heap(v, s.n, NULL)
    for i in range(s.n):
        put_newest(&rows, v[i].entry)
    reverse(v, s.n)
    (<int64_t*> out.cols[column].data)[index] = s.n
    if put_valid(w, out, column, index, True) != 0 or put_valid(w, out, column + 1, index, True) != 0:
        return -1
    return queue_write(x.kept, w, &rows, out, &(<View*> out.cols[column + 1].data)[index])


cdef int64_t rank_in(const BestContext* x, Entry* entry) noexcept nogil:
    """The rank of an entry, whose `by` is not null."""
    cdef int32_t first = 0
    cdef int64_t[2] word                                     # load knows values of 16 bytes, too
    load(word, x.by_type, <char*> entry + x.kept.offset[x.by], &first, 1)
    return rank_of(x, word[0])


cdef int32_t take_rows(const BestContext* x, Bucket* b, const Queue* rows, Best* s) noexcept nogil:
    """A state of rows that are best first: their entries then are its own. 0, FAIL_STATE or FAIL_MEMORY,
    and nothing changed."""
    cdef Entry* entry = rows.oldest
    cdef Ranked* v
    cdef int64_t rank
    cdef int64_t before = 0
    cdef bint first = True
    while entry != NULL:
        if flag_of(entry, x.by)[0] == 0:
            return FAIL_STATE
        rank = rank_in(x, entry)
        if not first and rank > before:
            return FAIL_STATE
        first = False
        before = rank
        entry = entry.next
    if make_room(x, b, s, rows.n) != 0:
        return FAIL_MEMORY
    v = heap_of(x, s)
    entry = rows.oldest
    while entry != NULL:
        v[s.n].rank = rank_in(x, entry)
        v[s.n].turn = s.n
        v[s.n].entry = entry
        s.n += 1
        entry = entry.next
    s.turns = s.n
    s.least = before
    reverse(v, s.n)
    return 0


cdef int32_t read_rows(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef const BestContext* x = <const BestContext*> k.ctx
    cdef Bucket* b = <Bucket*> bucket
    cdef int32_t column = own_column(k)
    cdef int64_t n = (<const int64_t*> rows.cols[column].data)[slot]
    cdef int32_t code = FAIL_STATE
    cdef Queue read
    memset(&read, 0, sizeof(Queue))
    drop_rows(k, bucket, state)
    if is_there(rows, column, slot) and is_there(rows, column + 1, slot) and 1 <= n <= x.k:
        code = queue_read(x.kept, &b.held, &(<const View*> rows.cols[column + 1].data)[slot], n, &read)
    if code == 0:
        code = take_rows(x, b, &read, <Best*> state)
    if code == 0:
        return 0
    queue_drop(&read, &b.held)
    drop_rows(k, bucket, state)
    if code == FAIL_STATE:
        failure_set(f, slot, code, "these are no rows that the operator keeps")
    else:
        failure_set(f, slot, code, failure_text(code))
    return code


cdef StateCalls ROWS = StateCalls(alive=any_row, write=write_rows, read=read_rows, drop=drop_rows)


cdef class BestRowsKernel(KernelOwner):
    """Operator "top_k" of a key, or of all rows. Attributes: `k`; `by`, a column; `descending`; `emit`,
    "updates" or "final"; `rank`, bool; `key`, empty: SF."""

    cdef BestContext context
    cdef KeySpecOwner keys
    cdef RowSpecOwner kept

    def __init__(self, operator):
        cdef LayoutOwner layout
        cdef BestContext* x = &self.context
        owner_setup(self, operator, PS if operator.key else SF)
        layout = self.input_layout
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            x.keys = &self.keys.spec
        self.kept = RowSpecOwner(range(layout.layout.ncols), layout, sizeof(int64_t))
        x.kept = &self.kept.spec
        x.k = operator.k
        x.by = operator.by
        x.by_type = layout.layout.type[x.by]
        x.ascends = not operator.descending
        x.updates = operator.emit == "updates"
        x.ranked = bool(operator.rank)
        x.near = x.k <= NEAR_ROWS
        x.size = <int32_t> (sizeof(Best) + (x.k * sizeof(Ranked) if x.near else 0))
        if self.kernel.output.ncols != layout.layout.ncols + x.ranked:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's and, where asked "
                             f"for, the rank")
        if x.k < 1:
            raise ValueError(f"{operator.name!r}: k must be at least 1, not {x.k}")
        if x.by_type > PT_F64:
            raise TypeError(f"{operator.name!r}: `by` must be a number, a date or a time")
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.process = best_process
        self.kernel.punctuate = best_punctuate
        self.kernel.bucket_new = best_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
