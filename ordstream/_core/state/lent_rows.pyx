"""Rows that a bucket keeps where they lie in their input batch. See lent_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport (
    DATA, Chunk, Column, View, Worker, chunk_alloc, chunk_set_valid,
)
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.list_values cimport view_bytes
from ordstream._core.ground.kept_batches cimport (
    KeptBatches, batches_are_few, kept_batch, kept_begin, kept_end,
)
from ordstream._core.state.held_memory cimport Held
from ordstream._core.state.row_queue cimport Entry, RowSpec, copy_short, entry_of
from ordstream._core.state.state_columns cimport put_valid

cdef enum:
    MOST_ROWS = 1 << 30    # of a lender's batch
    TOLD_BYTES = 1 << 14   # a smaller change of what is kept is told later


ctypedef const char* Values
ctypedef const uint8_t* Validity

ctypedef fused Word:
    int32_t
    int64_t
    View


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
    if x.n < l.ncols:                                        # a part of a row: not more than its entry
        from_.row_bytes = min(from_.row_bytes, <int64_t> x.fixed)
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
            size = view_bytes(v.size, unit[j])
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


cdef int lent_valid(const RowSpec* x, const LentRows* l, Worker* w, Chunk* out) noexcept nogil:
    """Give those columns of `out` a validity in which lent rows may be null. 0, or -1: no memory."""
    cdef int32_t i
    cdef int32_t j
    for j in range(x.n):
        for i in range(l.n if out.cols[j].valid == NULL else 0):
            if (l.lenders[i].batch != NULL and l.lenders[i].cols[x.column[j]].valid != NULL
                    and chunk_set_valid(w, out, j) != 0):
                return -1
    return 0


cdef inline void show_words(const Values* data, const int64_t* words, int32_t n, const int32_t* at,
                            Word* to) noexcept nogil:
    """A column of lent rows: of lender l it begins at data[l]. `at` NULL: side by side."""
    cdef int64_t word
    cdef int64_t index
    cdef int32_t i
    for i in range(n):
        word = words[i]
        index = i if at == NULL else at[i]
        if is_lent(word):
            to[index] = (<const Word*> data[word >> 32])[lent_row(word)]
        elif word == 0:
            memset(&to[index], 0, sizeof(Word))


cdef inline void show_bytes(const Values* data, const int64_t* words, int32_t n, const int32_t* at, char* to,
                            int32_t width) noexcept nogil:
    """show_words of values of any width."""
    cdef int64_t word
    cdef int32_t i
    for i in range(n):
        word = words[i]
        if is_lent(word):
            memcpy(to + <int64_t> (i if at == NULL else at[i]) * width,
                   data[word >> 32] + lent_row(word) * width, width)
        elif word == 0:
            memset(to + <int64_t> (i if at == NULL else at[i]) * width, 0, width)


cdef void show_there(const Validity* valid, const int64_t* words, int32_t n, const int32_t* at,
                     uint8_t* to) noexcept nogil:
    """Whether there is a value."""
    cdef const uint8_t* source
    cdef int64_t word
    cdef int64_t index
    cdef int32_t i
    for i in range(n):
        word = words[i]
        index = i if at == NULL else at[i]
        if is_lent(word):
            source = valid[word >> 32]
            to[index] = 1 if source == NULL else source[lent_row(word)]
        elif word == 0:
            to[index] = 0


cdef void show_lent_column(const RowSpec* x, const LentRows* l, int32_t j, const int64_t* words, int32_t n,
                           Column* cols, const int32_t* at, int64_t base) noexcept nogil:
    """show_lent_rows in one column."""
    cdef Values[MOST_LENDERS] data
    cdef Validity[MOST_LENDERS] valid
    cdef const Column* source
    cdef int32_t width = x.width[j]
    cdef char* to = cols[j].data + base * width
    cdef int32_t i
    for i in range(l.n):
        if l.lenders[i].batch != NULL:
            source = &l.lenders[i].cols[x.column[j]]
            data[i] = source.data
            valid[i] = source.valid
    if width == 8:
        show_words[int64_t](data, words, n, at, <int64_t*> to)
    elif width == 16:
        show_words[View](data, words, n, at, <View*> to)
    elif width == 4:
        show_words[int32_t](data, words, n, at, <int32_t*> to)
    elif width:
        show_bytes(data, words, n, at, to, width)
    if cols[j].valid != NULL:
        show_there(valid, words, n, at, cols[j].valid + base)


cdef void show_lent_rows(const RowSpec* x, const LentRows* l, const int64_t* words, int32_t n, Column* cols,
                         const int32_t* at, int64_t base) noexcept nogil:
    """Write lent rows (0: nulls; SHOWN_ALREADY: nothing) into columns `cols`, at base + at[i], or from
    `base` on. Columns with nulls have a validity (lent_valid). Strings and lists stay where they are.

    Thread safety: the bucket's holder. Cost: ~1 to 2 ns per value.
    """
    cdef int32_t j
    for j in range(x.n):
        show_lent_column(x, l, j, words, n, cols, at, base)


cdef Entry* lent_entry(const RowSpec* x, const LentRows* l, Held* held, int64_t word) noexcept nogil:
    """A copy of a lent row. NULL: no memory. Ownership: the caller."""
    cdef Chunk rows                                          # only its columns are read
    rows.cols = lender_of(l, word).cols
    return entry_of(x, held, &rows, <int32_t> lent_row(word), NULL)
