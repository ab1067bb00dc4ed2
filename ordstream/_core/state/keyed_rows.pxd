"""Keys of a keyed map (keyed_state.pxd) one by one: looked up without being inserted, taken in, forgotten,
and written to a chunk.

These serve the state contract (kernel.pxd, f). The rows that name a key have a layout of their own: `by` is
the KeySpec of that layout, equal to the map's in all but `column`.

a) A key that leaves takes its record along: the last record moves into its slot, so that slots stay
   0..count-1, and the cells behind its cell move up, so that no chain of cells has a gap.
b) `keyed_shrink` gives memory back: table and records are halved until they are half full where a quarter
   or less of them is used, strings are copied together where half of their heap or more is unused. Each
   copy of n keys has at least n keys that came or left between it and the one before.
c) A kernel that forgets keys of its own accord, such as those whose sessions are over, names them by slot:
   one by one (`keyed_forget`), or, where most of them go, by moving together the records that stay
   (`keyed_bury` for each of the others, then `keyed_reindex`). Then `keyed_settle` gives memory back, with
   room left for as many keys as there were: such keys go in waves, and the next wave is as large.
   `keyed_sift` does all that for keys whose states say nothing any more.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.keyed_state cimport KeyedState, KeySpec

cdef enum:
    KEY_IS_THERE = -2      # of keyed_install
    INSTALL_AHEAD = 16     # rows between a keyed_prefetch and the keyed_install that it is for

cdef int64_t keyed_find(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil
cdef void keyed_prefetch(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil
cdef int64_t keyed_install(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil
cdef bint keyed_remove(KeyedState* s, const KeySpec* by, const Chunk* c, int32_t row) noexcept nogil
cdef void keyed_bury(KeyedState* s, const char* record) noexcept nogil
cdef void keyed_forget(KeyedState* s, int64_t slot) noexcept nogil
cdef void keyed_reindex(KeyedState* s, int64_t kept) noexcept nogil
cdef void keyed_settle(KeyedState* s, int64_t most) noexcept nogil
cdef void keyed_shrink(KeyedState* s) noexcept nogil
cdef void keyed_sift(
    KeyedState* s, Kernel* k, bint (*alive)(Kernel*, const char*) noexcept nogil) noexcept nogil
cdef int key_put(const KeySpec* ks, const char* record, Worker* w, Chunk* out, int32_t index) noexcept nogil
