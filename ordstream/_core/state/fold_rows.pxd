"""States of aggregations (fold.pxd) as columns of exported state.

A sum, min, max, first or last is one column, null where there is no value yet; a count is one column, 0
then; a mean is a column with the sum, null then, and one with the count; a variance or
its root the mean, null then, the squared distances and the count. Sums are int64, float64 or decimals, the
others have the type of the column that they look at. An object (gathered.pxd) is a column of bytes, null
where there is none: the values that make it, one after the other, each 8 bytes or the number of bytes and
these.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Layout, Worker, chunk_set_valid
from ordstream._core.state.fold cimport Accumulator, F_GATHER, Fold, fold_put, fold_there
from ordstream._core.state.gathered cimport gathered_store

cdef int fold_write(const Fold* x, const Layout* layout, const char* state, Worker* w, Chunk* out,
                    int32_t column, int32_t index) noexcept nogil
cdef int32_t fold_read(const Fold* x, const Layout* layout, const Chunk* rows, int32_t column,
                       int32_t slot, char* state, int64_t* held, Failure* f) noexcept nogil


cdef inline int fold_store_one(const Accumulator* a, int32_t j, const char* state, Worker* w, Chunk* out,
                               int32_t column, int32_t index) noexcept nogil:
    """Write what accumulator j shows into a column of a reserved output row. 0, or -1: no memory."""
    if a.function == F_GATHER:
        return gathered_store(a, (<void* const*> (state + a.offset))[0], w, out, column, index)
    if fold_put(a, state, w, out, column, index) != 0:
        return -1
    if a.may_be_null:
        if not fold_there(a, state, j):
            if out.cols[column].valid == NULL and chunk_set_valid(w, out, column) != 0:
                return -1
            out.cols[column].valid[index] = 0
        elif out.cols[column].valid != NULL:
            out.cols[column].valid[index] = 1
    return 0


cdef inline int fold_store(const Fold* x, const char* state, Worker* w, Chunk* out, int32_t column,
                           int32_t index) noexcept nogil:
    """Write a state into columns `column`.. of a reserved output row. 0, or -1: no memory."""
    cdef int32_t j
    for j in range(x.n):
        if fold_store_one(&x.accumulators[j], j, state, w, out, column + j, index) != 0:
            return -1
    return 0


cdef inline int fold_store_block(const Fold* x, char** states, int32_t n, Worker* w, Chunk* out,
                                 int32_t column, int32_t index) noexcept nogil:
    """Write n states into reserved output rows, from `index` on: a column after the other, since rows of
    many columns touch a page for each; but objects, which lie side by side, state after state. 0, or -1: no
    memory."""
    cdef const Accumulator* a
    cdef int32_t i
    cdef int32_t j
    for j in range(x.n):
        a = &x.accumulators[j]
        if a.function == F_GATHER:
            continue
        for i in range(n):
            if fold_store_one(a, j, states[i], w, out, column + j, index + i) != 0:
                return -1
    for i in range(n if x.gathers else 0):
        for j in range(x.n):
            a = &x.accumulators[j]
            if a.function == F_GATHER and fold_store_one(a, j, states[i], w, out, column + j,
                                                         index + i) != 0:
                return -1
    return 0
