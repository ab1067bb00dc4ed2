"""The state contract (kernel.pxd, f) of sessions in slots (session_slots.pxd): rows (key, start, end, count,
aggregates...), as those of session_rows.pxd. Where all values are kept.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor

cdef int32_t slots_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                          Failure* f) noexcept nogil
cdef int32_t slots_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil
cdef int32_t slots_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil
