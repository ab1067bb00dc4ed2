"""The open windows of a key that overlap (hops.pxd) as rows of state: contract kernel.pxd (f).

A row has the key, the start of the oldest window, the time of the latest tuple, then lists: flags and words
of each window; then for each object (gathered.pxd) of each window how many bytes its values are, and these.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor

cdef void hopping_free(Kernel* k, void* state) noexcept nogil
cdef int32_t hopping_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                            Failure* f) noexcept nogil
cdef int32_t hopping_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                             Failure* f) noexcept nogil
cdef int32_t hopping_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil
