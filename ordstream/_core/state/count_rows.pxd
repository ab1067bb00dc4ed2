"""The state contract (kernel.pxd, f) of counts: what packs and what lies in the general map are rows alike,
(key..., count)."""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.state.keyed_bucket cimport StateCalls
from ordstream._core.state.keyed_state cimport KeyedState
from ordstream._core.state.packed_counts cimport PackedCounts

cdef struct CountBucket:
    # State of one bucket of a keyed count. Memory ownership: the runtime, through bucket_new / bucket_free.
    PackedCounts packed    # keys that pack
    KeyedState keyed       # all others
    ChunkPool pool         # counts the bytes of their strings; only `bytes` is used

cdef StateCalls COUNT      # of one number

cdef int32_t count_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                          Failure* f) noexcept nogil
cdef int32_t count_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil
cdef int32_t count_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil
