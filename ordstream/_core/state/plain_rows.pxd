"""Windows of a key's last rows with counts, and sums and means of integers: a part of kernels/rolling.pyx.

The ring of such a window has as many places as the window has rows, so that a row takes the place of the one
that leaves: one value out, one value in. Nothing else of sliding.pxd is needed: no time, no second stack. A
total is that of sliding.pxd, and fits into 64 bits.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport FAIL_MEMORY, FAIL_OVERFLOW, Chunk
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.fold cimport (
    F_COUNT, F_SUM_I64, Accumulator, FoldBlock, fold_value, loaded_value,
)
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.sliding cimport (
    RollingContext, Slide, next_room, place_at, resize, total_of, wide_add, wide_take,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    bint add_overflows(int64_t a, int64_t b, int64_t* r)


cdef inline char* plain_place(const RollingContext* x, const Slide* s) noexcept nogil:
    """Where the next row goes: behind the others, and in a full ring into the place of the oldest one."""
    return s.entries + (s.head if s.n == x.window.length else s.n) * x.entry


cdef inline void plain_fetch(const RollingContext* x, const Slide* s) noexcept nogil:
    """Begin to load it."""
    if s.entries != NULL:
        prefetch_write(plain_place(x, s))


cdef inline bint plain_leaves(const int64_t* total, int64_t value, int64_t old) noexcept nogil:
    """Whether a total would leave 64 bits if `value` came in and `old` left."""
    cdef int64_t[2] sum
    cdef int64_t ignored
    if old != <int64_t> 0x8000000000000000 and not add_overflows(value, -old, &ignored):
        if not add_overflows(total[0], ignored, &ignored):
            return False
    sum[0] = total[0]
    sum[1] = total[1]
    wide_add(sum, value)
    wide_take(sum, old)
    return sum[1] != sum[0] >> 63


cdef inline bint plain_overflows(const RollingContext* x, Slide* s, const char* entry, bint full,
                                 const FoldBlock* block, int32_t i) noexcept nogil:
    """Whether a sum would leave int64 with row i of the block; nothing changes."""
    cdef const Accumulator* a
    cdef int64_t value
    cdef int32_t j
    for j in range(x.window.fold.n):
        a = &x.window.fold.accumulators[j]
        if a.function == F_COUNT:
            continue
        value = 0
        if block.used[j] == NULL or block.used[j][i] != 0:
            value = loaded_value(block, j, i)
            if a.is_u64 and value < 0:
                return True
        if plain_leaves(total_of(s, j), value,
                        (<const int64_t*> (entry + x.words[j].offset))[0] if full else 0):
            return True
    return False


cdef inline int64_t plain_value(const Accumulator* a, const int64_t* total) noexcept nogil:
    """What an aggregation shows."""
    cdef int64_t[3] words
    if a.function == F_COUNT:
        return total[2]
    if a.function == F_SUM_I64:
        return total[0]
    words[0] = total[0]
    words[1] = total[2]
    words[2] = total[2]
    return fold_value(a, <const char*> words - a.offset)


cdef inline int32_t plain_row(const RollingContext* x, Bucket* b, Slide* s, Chunk* c, int32_t row,
                              const FoldBlock* block, int32_t i) noexcept nogil:
    """Move a key's window to row i of the block, which is `row`, and write its values there. 0, or the
    FailureCode: nothing changed. Cost: ~2 ns per aggregation."""
    cdef const Accumulator* a
    cdef int64_t length = x.window.length
    cdef bint full = s.n == length
    cdef char* entry
    cdef char* there
    cdef int64_t* total
    cdef int64_t* word
    cdef int64_t value
    cdef int32_t has
    cdef int32_t j
    if s.n == s.room and not full and resize(x, b, s, next_room(x, s)) != 0:
        return FAIL_MEMORY
    entry = plain_place(x, s)
    if x.window.fold.any_checked and plain_overflows(x, s, entry, full, block, i):
        return FAIL_OVERFLOW
    there = entry + x.flags
    for j in range(x.window.fold.n):
        a = &x.window.fold.accumulators[j]
        total = total_of(s, j)
        has = block.used[j] == NULL or block.used[j][i] != 0
        total[2] += has - (there[j] if full else 0)
        there[j] = <char> has
        if a.function != F_COUNT:
            word = <int64_t*> (entry + x.words[j].offset)
            value = loaded_value(block, j, i) if has else 0
            total[0] += value - (word[0] if full else 0)     # wraps in between at most
            total[1] = total[0] >> 63
            word[0] = value
        (<int64_t*> c.cols[x.first + j].data)[row] = plain_value(a, total)
        if a.may_be_null:
            c.cols[x.first + j].valid[row] = total[2] > 0
    if not full:
        s.n += 1
        s.seen += 1
        return 0
    s.head = place_at(s, 1)
    if length > 1:                                           # as forget() has it
        s.front = (s.front if s.front else s.n) - 1
    return 0
