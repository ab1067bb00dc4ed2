"""First and last values, taken in part by part.

Where only the end of the stream shows the values of an aggregation, and it has no condition, of a part's
rows only the first one of each key matters to `first`, and only the last one to `last`; of a column with
nulls the next one towards the middle that has a value. All others are never read. Such an accumulator has
`ends` set (fold.pxd): what folds rows passes over it.

Memory ownership: the worker's scratch, until the next kernel call. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.state.fold cimport Fold
from ordstream._core.state.keyed_bucket cimport Bucket

cdef extern from "fold_ends.hpp" namespace "ord" nogil:
    cppclass EndRows:
        int32_t keys
        int32_t* first
        int32_t* last
        int32_t* behind
        int32_t* before
        int32_t* table
    int64_t end_table_size(int64_t n)
    void end_rows_begin(EndRows* x, int32_t n)
    void end_rows_find(EndRows* x, const int32_t* slots, int32_t n)

cdef int32_t mark_ends(Fold* x) noexcept nogil
cdef int ends_begin(EndRows* e, Worker* w, int32_t n) noexcept nogil
cdef int fold_ends(const Fold* x, Bucket* b, EndRows* e, const Chunk* c, const int32_t* rows,
                   const int32_t* slots, int32_t n) noexcept nogil
