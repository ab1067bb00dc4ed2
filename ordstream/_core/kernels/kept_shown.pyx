"""lag and lead. See kept_shown.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, Chunk, Column, Failure, Part, Worker, chunk_alloc, chunk_hold, chunk_reserve,
    failure_set, scratch_alloc,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.ground.slot_values cimport scatter
from ordstream._core.kernels.passed_columns cimport pass_column
from ordstream._core.state.kept_bucket cimport LAG, KeptBucket, KeptContext, find_lender
from ordstream._core.state.kept_ring cimport Ring, ring_keep, ring_oldest
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, LookupAhead, keyed_lookup_block, keyed_state,
)
from ordstream._core.state.lent_rows cimport (
    SHOWN_ALREADY, is_lent, lent_settle, lent_valid, show_kept, show_lent_rows,
)
from ordstream._core.state.row_queue cimport expect_entry

cdef int32_t take_rows(KeptContext* x, KeptBucket* b, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                       Chunk* out, int64_t* words, int64_t at, Failure* f) noexcept nogil:
    """Each row meets its ring. `words`: LAG: per row what it shows, an entry being shown at once, at its
    slot or from `at` on; LEAD: the same per row of `out`, to which rows are added. How many rows had
    memory."""
    cdef KeyedState* keyed = &b.base.keyed
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef Ring* r = <Ring*> b.base.single
    cdef bint lag = x.mode == LAG
    cdef int32_t begun = out.n
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t row
    cdef int32_t index
    cdef int32_t place
    cdef int64_t old
    cdef bint full
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.keys != NULL:
            if keyed_lookup_block(keyed, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK),
                                  &ahead, slots) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            for i in range(m):
                r = <Ring*> keyed_state(keyed, slots[i])
                if r.n == x.n and not is_lent(ring_oldest(&x.ring, r)):
                    expect_entry(x.kept, ring_oldest(&x.ring, r))
        for i in range(m):
            row = rows[k0 + i]
            if x.keys != NULL:
                r = <Ring*> keyed_state(keyed, slots[i])
            full = r.n == x.n
            old = ring_oldest(&x.ring, r) if full else 0
            if lag or full:
                index = out.n
                place = out.n - begun
                if lag:
                    index = row if at < 0 else <int32_t> (at + k0 + i)
                    place = k0 + i
                words[place] = old
                if old and not is_lent(old):
                    words[place] = SHOWN_ALREADY
                    if show_kept(x.kept, &b.lent, w, old, out, 0, index, True) != 0:
                        failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                        return k0 + i
            if ring_keep(&x.ring, &b.lent, &b.base.held, c, row, r) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            if full and not lag:
                out.origin[out.n] = row
                out.n += 1
        k0 += m
    return n


cdef int32_t lag_rows(KeptContext* x, Kernel* k, KeptBucket* b, Worker* w, Chunk* c, const int32_t* rows,
                      int32_t n, Chunk* out, int64_t* words, Failure* f) noexcept nogil:
    """LAG: the columns behind the input's. `out` has no rows: its columns are these, and it owns copied
    bytes."""
    cdef int64_t at = rows - c.parts[0].rows if c.nparts > 1 else -1
    cdef const Column* made = &c.cols[x.ninput + (x.kept.n if at >= 0 else 0)]
    cdef int32_t done
    cdef int32_t j
    for j in range(x.kept.n):
        out.cols[j] = made[j]
    done = take_rows(x, b, w, c, rows, n, out, words, at, f)
    if at >= 0:
        show_lent_rows(x.kept, &b.lent, words, done, out.cols, NULL, at)
    else:
        show_lent_rows(x.kept, &b.lent, words, done, out.cols, rows, 0)
    return done


cdef int32_t lead_rows(KeptContext* x, Kernel* k, KeptBucket* b, Worker* w, Chunk* c, const int32_t* rows,
                       int32_t n, Chunk* out, int64_t* words, Failure* f) noexcept nogil:
    """LEAD: whole rows that were kept, each with columns of the row that settles it."""
    cdef int32_t begun = out.n
    cdef bint failed = chunk_reserve(w, out, k.output, n) != 0
    cdef int32_t done = 0
    cdef int32_t made
    cdef int32_t j
    if not failed:
        done = take_rows(x, b, w, c, rows, n, out, words, 0, f)
        made = out.n - begun
        failed = lent_valid(x.kept, &b.lent, w, out) != 0
    if not failed:
        show_lent_rows(x.kept, &b.lent, words, made, out.cols, NULL, begun)
        out.n = begun                                        # where pass_column writes
        for j in range(x.nbeside):
            failed = failed or pass_column(w, out, x.ninput + j, k.output.width[x.ninput + j],
                                           &c.cols[x.beside[j]], out.origin + begun, made) != 0
        out.n += made
    if failed:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        out.n = begun
        done = 0
    out.slots = out.n
    return done


cdef int32_t shown_process(Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n,
                           Chunk* out, Failure* f) noexcept nogil:
    """Each row meets its key's ring.

    Thread safety: the bucket's holder. Ownership: what is shown of `c` and of input batches points there, of
    entries into out's arena. Returns: n, or fewer without memory. Cost: keyed_lookup, ~2 ns per value shown,
    and ~3 per value kept that is not lent.
    """
    cdef KeptContext* x = <KeptContext*> k.ctx
    cdef KeptBucket* b = <KeptBucket*> state
    cdef int64_t* words = <int64_t*> scratch_alloc(w, <int64_t> n * 8)
    cdef int32_t done
    if words == NULL:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    find_lender(x, k, w, b, c, n)
    if x.mode == LAG:
        done = lag_rows(x, k, b, w, c, rows, n, out, words, f)
    else:
        done = lead_rows(x, k, b, w, c, rows, n, out, words, f)
    lent_settle(&b.lent, k.batches)
    return done


cdef int lag_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the columns of earlier values behind the input's. A chunk with several parts gets a second set,
    ordered part by part."""
    cdef const KeptContext* x = <const KeptContext*> k.ctx
    cdef int32_t width
    cdef int32_t j
    cdef int64_t n
    cdef Column* col
    for j in range(2 * x.kept.n if c.nparts > 1 else x.kept.n):
        col = &c.cols[x.ninput + j]
        width = x.kept.width[j % x.kept.n]
        n = c.slots if j < x.kept.n else c.n
        col.data = chunk_alloc(w, c, n * width + 8)
        col.valid = <uint8_t*> chunk_alloc(w, c, n + 1)
        if col.data == NULL or col.valid == NULL:
            return -1
    return 0


cdef int lag_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Put each part's values where its rows lie, and hold what they point to. Cost: ~1 ns per row and
    column; a few instructions with one part."""
    cdef const KeptContext* x = <const KeptContext*> k.ctx
    cdef const Column* made
    cdef const Part* part
    cdef Column* to
    cdef int64_t at
    cdef int32_t j
    cdef int32_t p
    for p in range(c.nparts):
        part = &c.parts[p]
        at = part.rows - c.parts[0].rows
        for j in range(x.kept.n if c.nparts > 1 else 0):
            made = &c.cols[x.ninput + x.kept.n + j]
            to = &c.cols[x.ninput + j]
            scatter(to.data, made.data + at * x.kept.width[j], part.rows, part.n, x.kept.width[j])
            scatter(<char*> to.valid, <char*> made.valid + at, part.rows, part.n, 1)
        if part.out != NULL:
            chunk_hold(c, part.out)
            c.parts[p].out = NULL
    c.ncols = k.output.ncols
    return 0
