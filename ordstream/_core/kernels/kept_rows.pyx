"""Kept rows: operators whose state is the last rows of a key, in columns of any type. Contract: kernel.pxd
(b), (c), (f).

    lag          each row with columns of the row n before it
    lead         each row when the row n behind it comes, with columns of that one; the last n at the end
    tail         the last n rows, at the end
    first        a row, unless n were given (head), or one in the last `within` (deduplicate, keep="first");
                 no rows are kept, only their number
    last         the last row of those within `within` of the first, when a later one or a time comes, or at
                 the end (deduplicate, keep="last")

A key's record holds a ring of rows (kept_ring.pxd), which lie in their input batch where that may stay, else
in entries (lent_rows.pxd).
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, PT_LIST, PT_VIEW, TIME, Chunk, Failure, LayoutOwner, Worker,
    chunk_alloc, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport IN_PLACE_AND_BYTES, PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.kernels.kept_shown cimport lag_finish, lag_prepare, shown_process
from ordstream._core.state.deadlines cimport due_before, keys_close, keys_due
from ordstream._core.state.kept_bucket cimport (
    FIRST, LAG, LAST, LEAD, TAIL, KeptBucket, KeptContext, drop_rows, find_lender, kept_bytes, kept_export,
    kept_free, kept_install, kept_new, kept_remove,
)
from ordstream._core.state.kept_ring cimport (
    Ring, Span, ring_keep, ring_oldest, ring_place, ring_spec, ring_times,
)
from ordstream._core.state.keyed_rows cimport keyed_settle
from ordstream._core.state.key_records cimport key_copy
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_record, keyed_state,
)
from ordstream._core.state.late_rows cimport LATE_BEGIN, LateRows, late_new
from ordstream._core.state.lent_rows cimport (
    SHOWN_ALREADY, LentRows, is_lent, lent_settle, lent_valid, show_kept, show_lent_column,
)
from ordstream._core.state.marks cimport own_mark
from ordstream._core.state.row_queue cimport RowSpecOwner, expect_entry, is_null
from ordstream._core.state.state_columns cimport word_of
from ordstream._core.state.state_rows cimport owner_state

cdef enum:
    SHOWN_AHEAD = 4            # keys between a prefetch and the flush of a key

cdef dict MODES = {"lag": LAG, "lead": LEAD, "tail": TAIL, "first": FIRST, "last": LAST}


# -------------------------------------------------------------------------------- one row


cdef int emit_kept(const KeptContext* x, Kernel* k, Worker* w, const LentRows* lent, int64_t kept,
                   int32_t row, Chunk* out) noexcept nogil:
    """A whole row that was kept, caused by `row`. 0, or -1: no memory, and nothing was emitted."""
    if out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0:
        return -1
    if show_kept(x.kept, lent, w, kept, out, 0, out.n, True) != 0:
        return -1
    out.origin[out.n] = row
    out.n += 1
    out.slots = out.n
    return 0


cdef int keep_row(const KeptContext* x, Kernel* k, KeptBucket* b, Worker* w, Chunk* c, int32_t row, Ring* r,
                  int64_t now, Chunk* out) noexcept nogil:
    """One row meets its key's ring. 0, or -1: no memory, and the ring is as before."""
    cdef Span* times = ring_times(&x.ring, r)
    cdef bint emits = False
    cdef bint first = r.n == 0
    if x.mode == LAST and x.time >= 0:
        emits = r.n and <uint64_t> now - <uint64_t> times.start > <uint64_t> x.within
    if emits and emit_kept(x, k, w, &b.lent, ring_oldest(&x.ring, r), row, out) != 0:
        return -1
    if ring_keep(&x.ring, &b.lent, &b.base.held, c, row, r) != 0:
        if emits:
            out.n -= 1
            out.slots = out.n
        return -1
    if x.time >= 0:
        if emits or first:
            times.start = now
        times.latest = now
    return 0


cdef inline bint first_row(const KeptContext* x, Ring* r, int64_t now) noexcept nogil:
    """FIRST: whether a row is given."""
    cdef Span* times = ring_times(&x.ring, r)
    if x.time < 0:
        if r.n == x.n:
            return False
        r.n += 1
        return True
    if r.n and <uint64_t> now - <uint64_t> times.start <= <uint64_t> x.within:
        times.latest = now
        return False
    r.n = 1
    times.start = now
    times.latest = now
    return True


cdef int first_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    c.keep = <unsigned char*> chunk_alloc(w, c, c.slots + 1)
    if c.keep == NULL:
        return -1
    memset(c.keep, 1, c.slots)
    return 0


cdef int32_t kept_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Each row meets its key's ring.

    Thread safety: the bucket's holder. Ownership: what is shown of `c` points into it, of kept rows into
    out's arena. Returns: n, or j when the time of rows[j] is null or earlier than that before, or without
    memory. Cost: keyed_lookup, ~3 ns per column shown, and as much per column kept that is not lent.
    """
    cdef KeptContext* x = <KeptContext*> k.ctx
    cdef KeptBucket* b = <KeptBucket*> state
    cdef int32_t done
    find_lender(x, k, w, b, c, n)
    done = take_rows(x, k, b, w, c, rows, n, out, f)
    lent_settle(&b.lent, k.batches)
    return done


cdef int32_t take_rows(KeptContext* x, Kernel* k, KeptBucket* b, Worker* w, Chunk* c, const int32_t* rows,
                       int32_t n, Chunk* out, Failure* f) noexcept nogil:
    """kept_process of a chunk whose lender is known."""
    cdef KeyedState* keyed = &b.base.keyed
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef Ring* r = <Ring*> b.base.single
    cdef int64_t now = 0
    cdef int32_t k0 = 0
    cdef int32_t row
    cdef int32_t m
    cdef int32_t i
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.keys != NULL and keyed_lookup_block(
                keyed, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK), &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if x.keys != NULL and x.mode != FIRST:
            for i in range(m):
                r = <Ring*> keyed_state(keyed, slots[i])
                if r.n == x.n and not is_lent(ring_oldest(&x.ring, r)):
                    expect_entry(x.kept, ring_oldest(&x.ring, r))
        for i in range(m):
            row = rows[k0 + i]
            if x.keys != NULL:
                r = <Ring*> keyed_state(keyed, slots[i])
            if x.time >= 0:
                if is_null(&c.cols[x.time], row):
                    failure_set(f, row, FAIL_NULL, "a null time: filter such tuples out before deduplicate")
                    return k0 + i
                now = word_of(c, x.time, row, x.time_type)
                if r.n and now < ring_times(&x.ring, r).latest:
                    failure_earlier(f, row, x.time, now, ring_times(&x.ring, r).latest)
                    return k0 + i
            if x.mode == FIRST:
                c.keep[row] = first_row(x, r, now)
                continue
            if keep_row(x, k, b, w, c, row, r, now, out) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
        k0 += m
    return n


# -------------------------------------------------------------------------------- times and the end


cdef uint64_t start_of(const void* context, const char* state) noexcept nogil:
    """When the span of what is kept began, as an unsigned word in its order; 0: nothing is kept."""
    cdef const Ring* r = <const Ring*> state
    if r.n == 0:
        return 0
    return <uint64_t> ring_times(&(<const KeptContext*> context).ring, r).start ^ <uint64_t> 1 << 63


cdef int give_key(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, int64_t slot,
                  Chunk* out) noexcept nogil:
    """The rows of a key that a time settles, oldest first; the key is forgotten. 0, or -1: no memory."""
    cdef Ring* r = <Ring*> keyed_state(&b.base.keyed, slot)
    cdef char* key
    cdef int32_t i
    if x.mode != FIRST and r.n:
        if flush_reserve(w, out, k.output, r.n) != 0:
            return -1
        key = chunk_alloc(w, out, x.keys.size)
        if key == NULL or key_copy(x.keys, keyed_record(&b.base.keyed, slot), w, out, key) != 0:
            return -1
        for i in range(r.n):
            if show_kept(x.kept, &b.lent, w, ring_place(&x.ring, r, i)[0], out, 0, out.n, True) != 0:
                return -1
            out.origin[out.n] = 0
            out.flush_time[out.n] = ring_times(&x.ring, r).start
            out.flush_key[out.n] = key
            out.n += 1
            out.slots = out.n
    drop_rows(k, b, <char*> r)
    return 0


cdef int kept_time(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, const Chunk* punctuation,
                   Chunk* out) noexcept nogil:
    """Give what no row from a time on can change, and forget its keys (with `within` there always is a key).
    0, or -1: no memory."""
    cdef KeyedState* keyed = &b.base.keyed
    cdef int64_t mark = punctuation.time
    cdef uint64_t before
    cdef int64_t keys = keyed.count
    cdef int64_t n
    cdef int64_t i
    if not own_mark(x.period, &mark):
        return 0
    before = due_before(<uint64_t> mark ^ <uint64_t> 1 << 63, <uint64_t> x.within)
    n = keys_due(&b.deadlines, w, keyed, x, start_of, before)
    if n < 0:
        return -1
    for i in range(n):
        if stop_due(w, i):
            return 0
        if give_key(x, k, w, b, <int64_t> b.deadlines.due()[i].of, out) != 0:
            return -1
    if n:
        keys_close(&b.deadlines, w, keyed, n)
    keyed_settle(keyed, keys)
    lent_settle(&b.lent, k.batches)
    return 0


cdef int show_kept_late(const LateRows* late, Worker* w, int64_t* words, const int32_t* at, int32_t n,
                        Chunk* out, int32_t column) noexcept nogil:
    """Show rows that are kept to the end. Contract: late_rows.pxd. Views point into the state, which no
    tuple changes any more."""
    cdef const KeptContext* x = <const KeptContext*> late.context
    cdef const LentRows* lent = &(<KeptBucket*> late.state).lent
    cdef int32_t width
    cdef int32_t i
    if column == LATE_BEGIN:
        if lent_valid(x.kept, lent, w, out) != 0:
            return -1
        for i in range(n):
            if is_lent(words[i]):
                continue
            if i + SHOWN_AHEAD < n and not is_lent(words[i + SHOWN_AHEAD]):
                expect_entry(x.kept, words[i + SHOWN_AHEAD])
            if show_kept(x.kept, lent, w, words[i], out, 0, at[i], False) != 0:
                return -1
            words[i] = SHOWN_ALREADY
        return 0
    if column < x.ninput:
        show_lent_column(x.kept, lent, column, words, n, out.cols, at, 0)
        return 0
    if chunk_set_valid(w, out, column) != 0:                 # LEAD: of rows behind, which never came
        return -1
    width = x.width[column]
    for i in range(n):
        memset(out.cols[column].data + <int64_t> at[i] * width, 0, width)
        out.cols[column].valid[at[i]] = 0
    return 0


cdef int kept_end(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, Chunk* out) noexcept nogil:
    """Give all that is kept, to be shown once it is sorted. 0, or -1: no memory."""
    cdef LateRows* late
    cdef const Ring* r
    cdef int64_t total = 0
    cdef int64_t slot
    cdef int32_t i
    cdef int64_t keys = 1 if x.keys == NULL else b.base.keyed.count
    for slot in range(keys if x.mode != FIRST else 0):
        if stop_due(w, slot):
            return 0
        total += (<const Ring*> (b.base.single if x.keys == NULL else keyed_state(&b.base.keyed, slot))).n
    if total == 0:
        return 0
    late = late_new(w, out, total, x, b)
    if late == NULL:
        return -1
    late.show = show_kept_late
    for slot in range(keys):
        if stop_due(w, slot):
            return 0
        r = <const Ring*> (b.base.single if x.keys == NULL else keyed_state(&b.base.keyed, slot))
        for i in range(r.n):
            late.words[out.n] = ring_place(&x.ring, r, i)[0]
            out.flush_time[out.n] = 0
            out.flush_key[out.n] = NULL
            if x.keys != NULL:
                out.flush_key[out.n] = keyed_record(&b.base.keyed, slot)
            out.n += 1
    out.slots = out.n
    return 0


cdef int kept_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                        Failure* f) noexcept nogil:
    """At the end of the stream what is kept, per key in any order: the runtime sorts. With `within` also at
    a time: what no later row can change is given, and forgotten. Cost: at a time keys_due and keys_close."""
    cdef KeptContext* x = <KeptContext*> k.ctx
    cdef int failed = 0
    if punctuation.kind == END_OF_STREAM:
        failed = kept_end(x, k, w, <KeptBucket*> state, out)
    elif punctuation.kind == TIME and x.time >= 0:
        failed = kept_time(x, k, w, <KeptBucket*> state, punctuation, out)
    if failed:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return failed


cdef class KeptRowsKernel(KernelOwner):
    """Operators of ordstream/operators/kept_rows.py, and lag.

    Parameters
    ----------
    operator : Operator
        With `key`; with `time` and `within` where it has a span, and `period` if it looks at its multiples
        only.
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
        x.lends = x.mode != FIRST
        x.width = self.kernel.output.width
        x.ninput = layout.layout.ncols
        x.nbeside = <int32_t> len(beside)
        if x.mode in (LEAD, TAIL, LAST) and kept != list(range(x.ninput)):
            raise ValueError(f"{operator.name!r}: whole rows are kept")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            x.keys = &self.keys.spec
        self.kept = RowSpecOwner(kept, layout)
        x.kept = &self.kept.spec
        ring_spec(&x.ring, x.kept, n, x.mode != FIRST, getattr(operator, "within", None) is not None)
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
            x.period = getattr(operator, "period", None) or 1
        for j in range(x.ninput):
            if layout.layout.type[j] in (PT_VIEW, PT_LIST) and x.mode == LEAD:
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.process = kept_process
        if x.mode == LAG or x.mode == LEAD:
            self.kernel.process = shown_process
            self.kernel.shows_kept = 1
        if x.mode == LAG:
            self.kernel.in_place = IN_PLACE_AND_BYTES
            self.kernel.extra_cols = 2 * x.kept.n
            self.kernel.prepare = lag_prepare
            self.kernel.finish = lag_finish
        else:
            self.kernel.punctuate = kept_punctuate
        if x.mode == FIRST:
            self.kernel.in_place = 1
            self.kernel.prepare = first_prepare
        self.kernel.bucket_new = kept_new
        self.kernel.bucket_free = kept_free
        self.kernel.bucket_bytes = kept_bytes
        owner_state(self, operator, kept_export, kept_install, kept_remove)

    def __dealloc__(self):
        free(self.context.beside)
