"""Aggregations whose state is an object of its own: a string, distinct values, values in order.

a) Where an accumulator (fold.pxd) has `gather`, its word in a state is a pointer to an object
   (gathered.hpp), NULL before the first value. Whoever gives a state up drops its objects first
   (`gathered_forget`); a state that is copied somewhere else takes them along.
b) Such an accumulator reads its values from the chunk's columns: nothing of it is loaded.
c) What objects hold is counted in `held`, the bucket's.
Thread safety: the bucket's holder. Ownership: the state.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport Chunk, View, Worker
from ordstream._core.state.fold cimport Accumulator, Fold

cdef int gathered_row(const Fold* x, char* state, const Chunk* c, int32_t row, uint8_t** used, int32_t i,
                      int64_t* held) noexcept nogil
cdef int gathered_rows(const Accumulator* a, int32_t j, char** states, const Chunk* c, const int32_t* rows,
                       const uint8_t* used, int32_t n, int64_t* held) noexcept nogil
cdef int gathered_block(const Fold* x, char** states, const Chunk* c, const int32_t* rows, uint8_t** used,
                        int32_t n, int64_t* held) noexcept nogil
cdef int gathered_put(const Accumulator* a, void** box, const Chunk* c, int32_t row,
                      int64_t* held) noexcept nogil
cdef void gathered_forget(const Fold* x, char* state, int64_t* held) noexcept nogil
cdef void gathered_forget_one(void** box, int64_t* held) noexcept nogil
cdef int gathered_store(const Accumulator* a, void* box, Worker* w, Chunk* out, int32_t column,
                        int32_t index) noexcept nogil
cdef int gathered_bytes(void* box, Worker* w, Chunk* out, View* to) noexcept nogil
cdef int64_t gathered_fill(const Accumulator* a, void** box, const View* bytes,
                           int64_t* held) noexcept nogil
cdef void gathered_window(void* box, int32_t change, int64_t* held) noexcept nogil

cdef enum GatheredChange:
    GATHERED_UNDO = 0      # the newest value never came
    GATHERED_SEE = 1       # the next one that waits is seen
    GATHERED_LEAVE = 2     # the oldest one leaves
