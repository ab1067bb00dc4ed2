"""The rows of sliding windows (sliding.pxd) as rows of state: contract kernel.pxd (f).

A row has the key, how many rows are in front and seen, then lists: times (where there are), flags, words;
then for each object (gathered.pxd) the values of the window that it looks at, oldest first.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.state.sliding cimport RollingBucket, RollingContext, Slide

cdef void drop_objects(const RollingContext* x, RollingBucket* b, Slide* s) noexcept nogil
cdef void drop_ring(Kernel* k, void* bucket, char* state) noexcept nogil
cdef int32_t rolling_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                            Failure* f) noexcept nogil
cdef int32_t rolling_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots,
                             int32_t n, Failure* f) noexcept nogil
cdef int32_t rolling_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil
