"""Rows that a bucket keeps where they lie in their input batch. See lent_rows.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport DATA, Chunk, Column, View, Worker, chunk_alloc
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.kept_batches cimport (
    KeptBatches, batches_are_few, kept_batch, kept_begin, kept_end,
)
from ordstream._core.state.row_queue cimport Entry, RowSpec, copy_short, entry_of
from ordstream._core.state.state_columns cimport put_valid

cdef enum:
    MOST_LENDERS = 256     # of a bucket
    MOST_ROWS = 1 << 30    # of a lender's batch
    TOLD_BYTES = 1 << 14   # a smaller change of what is kept is told later


cdef inline bint lends(const RowSpec* x, const Lender* from_, const Chunk* c, int64_t offset) noexcept nogil:
    """Whether all columns that are kept are rows from `offset` on of this lender."""
    cdef const Column* own
    cdef const Column* col
    cdef int32_t j
    for j in range(x.n):
        own = &from_.cols[x.column[j]]
        col = &c.cols[x.column[j]]
        if own.data + offset * x.width[j] != col.data:
            return False
        if col.valid != (NULL if own.valid == NULL else own.valid + offset):
            return False
    return True


cdef bint find_columns(const RowSpec* x, const Batch* b, const Chunk* c, int64_t offset,
                       Column* cols) noexcept nogil:
    """Where the columns that are kept begin in a batch. False: one lies elsewhere."""
    cdef const Column* own
    cdef const Column* col
    cdef int32_t s = 0                     # columns mostly are in order
    cdef int32_t j
    cdef int32_t tried
    for j in range(x.n):
        col = &c.cols[x.column[j]]
        for tried in range(b.ncols + 1):
            if tried == b.ncols:
                return False
            s = 0 if s + 1 >= b.ncols else s + 1
            own = &b.cols[s]
            if (own.data != NULL and own.data + offset * x.width[j] == col.data
                    and b.widths[s] == x.width[j]
                    and col.valid == (NULL if own.valid == NULL else own.valid + offset)):
                cols[x.column[j]] = own[0]
                break
    return True


cdef int32_t free_place(LentRows* l) noexcept nogil:
    """A place for a lender, with room for its columns; or NO_LENDER."""
    cdef Lender* lenders
    cdef int32_t i
    for i in range(l.n):
        if l.lenders[i].batch == NULL:
            return i
    if l.n == MOST_LENDERS:
        return NO_LENDER
    lenders = <Lender*> realloc(l.lenders, (l.n + 1) * sizeof(Lender))
    if lenders == NULL:
        return NO_LENDER
    l.lenders = lenders
    memset(&lenders[l.n], 0, sizeof(Lender))
    lenders[l.n].cols = <Column*> calloc(l.ncols + 1, sizeof(Column))
    if lenders[l.n].cols == NULL:
        return NO_LENDER
    l.n += 1
    return l.n - 1


cdef int32_t new_lender(const RowSpec* x, LentRows* l, KeptBatches* batches, const Chunk* c) noexcept nogil:
    """lent_begin of a chunk whose lender is not the one that was used last."""
    cdef Batch* b = kept_batch(batches, c.first_serial)
    cdef Lender* from_
    cdef int64_t offset
    cdef int32_t i
    if b == NULL or b.rows < batches.least or b.rows > MOST_ROWS:
        return NO_LENDER
    offset = c.first_serial - b.first_serial
    if offset + c.slots > b.rows:
        return NO_LENDER
    for i in range(l.n):
        if l.lenders[i].batch == b and lends(x, &l.lenders[i], c, offset):
            return i
    if not batches_are_few(batches):
        return TOO_MANY
    i = free_place(l)
    if i < 0 or not find_columns(x, b, c, offset, l.lenders[i].cols):
        return NO_LENDER
    from_ = &l.lenders[i]
    from_.batch = b
    from_.first_serial = b.first_serial
    from_.end_serial = b.first_serial + b.rows
    from_.rows = 0
    from_.row_bytes = max(<int64_t> 1, b.bytes // b.rows)
    from_.counted = 0
    return i


cdef int32_t lent_begin(const RowSpec* x, LentRows* l, KeptBatches* batches, const Chunk* c,
                        int32_t ncols) noexcept nogil:
    """Find the lender of a chunk whose rows are about to be kept. `ncols`: of the operator's input.

    Ownership: lenders are the bucket's; the caller calls lent_settle when it is done. Returns: `current`,
    which is a lender, NO_LENDER or TOO_MANY. Cost: some compares per column that is kept.
    """
    cdef const Lender* from_
    l.ncols = ncols
    if batches == NULL or batches.most == 0 or c.kind != DATA or c.serials != NULL or c.slots == 0:
        l.current = NO_LENDER
        return NO_LENDER
    if 0 <= l.current < l.n:
        from_ = &l.lenders[l.current]
        l.offset = c.first_serial - from_.first_serial
        if (from_.batch != NULL and c.first_serial >= from_.first_serial
                and c.first_serial + c.slots <= from_.end_serial and lends(x, from_, c, l.offset)):
            return l.current
    l.current = new_lender(x, l, batches, c)
    if l.current >= 0:
        l.offset = c.first_serial - l.lenders[l.current].first_serial
    return l.current


cdef void lent_settle(LentRows* l, KeptBatches* batches) noexcept nogil:
    """Count lenders that got rows, let go of those that lost them all. `batches` NULL: the run is over, and
    the batches are gone. Cost: a few ns; a look at each lender where one lost its last row."""
    cdef Lender* from_
    cdef int32_t i
    cdef int32_t used = 0
    if batches == NULL or l.n == 0:
        return
    if l.current >= 0:
        from_ = &l.lenders[l.current]
        if from_.rows == 0:
            l.emptied = 1
        elif not from_.counted:
            kept_begin(batches, from_.batch)
            from_.counted = 1
    if l.bytes - l.told >= TOLD_BYTES or l.told - l.bytes >= TOLD_BYTES or l.emptied:
        add_relaxed(&batches.rows_bytes, l.bytes - l.told)   # statistic
        l.told = l.bytes
    if not l.emptied:
        return
    l.emptied = 0
    for i in range(l.n):
        from_ = &l.lenders[i]
        if from_.batch != NULL and from_.rows == 0:
            if from_.counted:
                kept_end(batches, from_.batch)
            from_.batch = NULL
        used += from_.batch != NULL
    if used == 0:
        lent_free(l)


cdef void lent_free(LentRows* l) noexcept nogil:
    """Give the lenders' memory back; none has rows, or the run is over."""
    cdef int32_t i
    for i in range(l.n):
        free(l.lenders[i].cols)
    free(l.lenders)
    l.lenders = NULL
    l.n = 0
    l.current = NO_LENDER


cdef int show_lent(const RowSpec* x, const LentRows* l, Worker* w, int64_t word, Chunk* out, int32_t first,
                   int32_t index, bint copies) noexcept nogil:
    """show_kept of a lent row. Cost: ~2 ns per column, and as much per string or list that is copied."""
    cdef const Column* from_ = lender_of(l, word).cols
    cdef Column* cols = out.cols + first                     # what is written may be anything, to a compiler
    cdef const int32_t* column = x.column
    cdef const int32_t* width = x.width
    cdef const int32_t* unit = x.unit
    cdef int64_t row = lent_row(word)
    cdef int32_t n = x.n
    cdef const Column* source
    cdef View* v
    cdef char* bytes
    cdef char* to
    cdef int64_t size
    cdef int32_t j
    cdef bint there
    for j in range(n):
        source = &from_[column[j]]
        there = source.valid == NULL or source.valid[row] != 0
        to = cols[j].data + <int64_t> index * width[j]
        if not there:
            memset(to, 0, width[j])
        elif unit[j]:
            v = <View*> to
            v[0] = (<const View*> source.data)[row]
            size = v.size * unit[j]
            if copies and size:
                bytes = chunk_alloc(w, out, size)
                if bytes == NULL:
                    return -1
                copy_short(bytes, v.data, size)
                v.data = bytes
        elif width[j] == 8:
            (<int64_t*> to)[0] = (<const int64_t*> source.data)[row]
        else:
            memcpy(to, source.data + row * width[j], width[j])
        if (not there or cols[j].valid != NULL) and put_valid(w, out, first + j, index, there) != 0:
            return -1
    return 0


cdef Entry* lent_entry(const RowSpec* x, const LentRows* l, int64_t* held, int64_t word) noexcept nogil:
    """A copy of a lent row. NULL: no memory. Ownership: the caller."""
    cdef Chunk rows                                          # only its columns are read
    rows.cols = lender_of(l, word).cols
    return entry_of(x, held, &rows, <int32_t> lent_row(word), NULL)
