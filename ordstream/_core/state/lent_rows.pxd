"""Lent rows: rows that a bucket keeps where they lie in their input batch (ground/kept_batches.pxd).

a) A kept row is a word: the address of an entry (row_queue.pxd), which is even, or a lender and a row of its
   batch, which is odd. 0: none.
b) A lender is an input batch and where the operator's columns begin in it. A chunk has one if all columns
   that are kept lie in one batch as the import made them: computed ones lie elsewhere, and such rows are
   copied.
c) Between two calls of the kernel a bucket counts once in `Batch.kept` for each lender that has rows; then
   `lent_settle` was called.
d) The bytes of a lent row count as those of an entry would: its part of what its batch takes.

Thread safety: the holder of the bucket.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t
from ordstream._core.ground.chunk cimport Chunk, Column, Worker
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.kept_batches cimport KeptBatches
from ordstream._core.state.held_memory cimport Held
from ordstream._core.state.row_queue cimport Entry, RowSpec, show_row

cdef enum:
    NO_LENDER = -1         # rows are copied
    TOO_MANY = -2          # so are they; were fewer batches referred to, they need not be
    SHOWN_ALREADY = 2      # a word of show_lent_rows: nothing is to be written
    MOST_LENDERS = 256     # of a bucket

cdef struct Lender:
    Batch* batch           # NULL: this place is free
    int64_t first_serial   # of the batch, and of the one behind it
    int64_t end_serial
    int64_t rows           # kept rows
    int64_t row_bytes
    int32_t counted        # 1: in Batch.kept
    Column* cols           # by input column: where row 0 is; only those that are kept. Owned

cdef struct LentRows:
    # Zeroed memory: none. Memory ownership: the bucket.
    Lender* lenders
    int32_t n              # places
    int32_t ncols          # columns of each
    int32_t current        # lender of the chunk that is being processed, or as lent_begin returns
    int32_t emptied        # 1: a lender has no rows any more
    int64_t offset         # row of its batch that slot 0 of that chunk is
    int64_t bytes          # of all lent rows
    int64_t told           # of these in KeptBatches.rows_bytes

cdef int32_t lent_begin(const RowSpec* x, LentRows* l, KeptBatches* batches, const Chunk* c,
                        int32_t ncols) noexcept nogil
cdef void lent_settle(LentRows* l, KeptBatches* batches) noexcept nogil
cdef void lent_free(LentRows* l) noexcept nogil
cdef int show_lent(const RowSpec* x, const LentRows* l, Worker* w, int64_t word, Chunk* out, int32_t first,
                   int32_t index, bint copies) noexcept nogil
cdef int lent_valid(const RowSpec* x, const LentRows* l, Worker* w, Chunk* out) noexcept nogil
cdef void show_lent_column(const RowSpec* x, const LentRows* l, int32_t j, const int64_t* words, int32_t n,
                           Column* cols, const int32_t* at, int64_t base) noexcept nogil
cdef void show_lent_rows(const RowSpec* x, const LentRows* l, const int64_t* words, int32_t n, Column* cols,
                         const int32_t* at, int64_t base) noexcept nogil
cdef Entry* lent_entry(const RowSpec* x, const LentRows* l, Held* held, int64_t word) noexcept nogil


cdef inline bint is_lent(int64_t word) noexcept nogil:
    return word & 1


cdef inline Lender* lender_of(const LentRows* l, int64_t word) noexcept nogil:
    return &l.lenders[word >> 32]


cdef inline int64_t lent_row(int64_t word) noexcept nogil:
    """Row of the lender's batch."""
    return <uint32_t> word >> 1


cdef inline int64_t lent_word(LentRows* l, Held* held, int32_t slot) noexcept nogil:
    """A slot of the chunk that is being processed, which has a lender, as a kept row."""
    cdef Lender* from_ = &l.lenders[l.current]
    from_.rows += 1
    l.bytes += from_.row_bytes
    held.bytes += from_.row_bytes
    return <int64_t> l.current << 32 | (l.offset + slot) << 1 | 1


cdef inline void lent_drop(LentRows* l, Held* held, int64_t word) noexcept nogil:
    """Forget a lent row. Its batch stays until lent_settle."""
    cdef Lender* from_ = lender_of(l, word)
    from_.rows -= 1
    l.bytes -= from_.row_bytes
    held.bytes -= from_.row_bytes
    if from_.rows == 0:
        l.emptied = 1


cdef inline int64_t lent_bytes(const LentRows* l) noexcept nogil:
    """Of the lenders themselves."""
    return l.n * (<int64_t> sizeof(Lender) + l.ncols * <int64_t> sizeof(Column))


cdef inline int show_kept(const RowSpec* x, const LentRows* l, Worker* w, int64_t word, Chunk* out,
                          int32_t first, int32_t index, bint copies) noexcept nogil:
    """Write a kept row (0: nulls) into columns first.. of a reserved row. `copies`: strings and lists too,
    since it may be gone before they are read. 0, or -1: no memory."""
    if is_lent(word):
        return show_lent(x, l, w, word, out, first, index, copies)
    return show_row(x, w, <Entry*> word, out, first, index, copies)
