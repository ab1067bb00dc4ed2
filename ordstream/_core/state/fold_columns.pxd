"""Folding a block of rows, one accumulator after the other.

The loop of a function is chosen once per block, not per row (fold_columns.hpp), and sums in 64 bits are
checked as they are added. States are those of fold.pxd, and rows are taken in the same order.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Column
from ordstream._core.state.fold cimport Fold, FoldBlock

cdef bint folds_by_column(const Fold* x, bint shows) noexcept nogil
cdef bint fold_columns(const Fold* x, char** states, const FoldBlock* b, int32_t n,
                       const Column* shown) noexcept nogil
