"""States of aggregations (fold.pxd) as columns of exported state.

A sum, min, max, first or last is one column, null where there is no value yet; a count is one column, 0
then; a mean is a column with the sum, null then, and one with the count; a variance or
its root the mean, null then, the squared distances and the count. Sums are int64 or float64, the
others have the type of the column that they look at.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Layout, Worker
from ordstream._core.state.fold cimport Fold

cdef int fold_write(const Fold* x, const Layout* layout, const char* state, Worker* w, Chunk* out,
                    int32_t column, int32_t index) noexcept nogil
cdef int32_t fold_read(const Fold* x, const Layout* layout, const Chunk* rows, int32_t column,
                       int32_t slot, char* state, Failure* f) noexcept nogil
