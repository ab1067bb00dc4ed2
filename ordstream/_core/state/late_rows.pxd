"""Rows of a final flush that are shown only once they are sorted.

What a bucket keeps lies anywhere, and so do sorted rows among those that a flush makes. A kernel that can
show any row of its state at any time may give words in place of rows: the chunk that its `punctuate` fills
has n, flush_time, flush_key (all NULL, or NULL, without keys) and LateRows in `hash`, and no columns. The
runtime sorts, then has the words shown, column by column, where they belong: every value is copied once.

Thread safety: after all buckets have processed the punctuation, whoever merges. Ownership: the chunk's
arena.
Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, Worker, chunk_alloc

cdef enum:
    MOST_FLUSHED = 0x7fffffff  # rows
    LATE_BEGIN = -1        # in place of a column: once, before the first

cdef struct LateRows:
    int64_t* words         # the kernel's own: per row
    const void* context    # the same
    void* state            # bucket
    # Show words in rows at[i] of a reserved chunk, in one column. LATE_BEGIN: what takes all columns of a
    # row at once; it may change the words. 0, or -1: no memory.
    int (*show)(const LateRows*, Worker*, int64_t* words, const int32_t* at, int32_t n, Chunk* out,
                int32_t column) noexcept nogil


cdef inline LateRows* late_of(const Chunk* made) noexcept nogil:
    """NULL: its rows are there."""
    return <LateRows*> made.hash


cdef inline LateRows* late_new(Worker* w, Chunk* out, int64_t total, const void* context,
                               void* state) noexcept nogil:
    """Room in a chunk for the words, times and keys of `total` rows. The caller sets `show`, fills them in
    and counts them in out.n. NULL: no memory, or more rows than a chunk has."""
    cdef LateRows* late = <LateRows*> chunk_alloc(w, out, sizeof(LateRows))
    out.flush_time = <int64_t*> chunk_alloc(w, out, total * 8)
    out.flush_key = <char**> chunk_alloc(w, out, total * 8)
    if late == NULL or out.flush_time == NULL or out.flush_key == NULL or total > MOST_FLUSHED:
        return NULL
    late.words = <int64_t*> chunk_alloc(w, out, total * 8)
    if late.words == NULL:
        return NULL
    late.context = context
    late.state = state
    out.hash = <uint64_t*> late
    return late
