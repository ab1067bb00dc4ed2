"""The state contract (kernel.pxd, f) of a top-k: a row of state is the latest row of a ranked key, its
columns as they came, the ranked key's first. Several rows are one state: the operator has no key, so all of
its rows are named by any key, and go together. They are rows, and not lists in one row, since there are no
lists of strings or of lists, and so that they are written, sorted and taken in one by one.

Rank, heap, ordered set, threshold and the window follow from the rows, and are not in them: ranks from `by`;
heap and set from ranks and keys, which no two rows share; the window is in every row, and the same in all,
since the end of a window forgets its rows.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor

cdef int32_t top_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                        Failure* f) noexcept nogil
cdef int32_t top_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil
cdef int32_t top_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                        Failure* f) noexcept nogil
