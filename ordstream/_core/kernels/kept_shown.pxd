"""Rows that meet their keys' rings and show rows out of them: lag and lead. Contract: kernel.pxd (b).

a) The oldest row of a full ring is shown, and leaves. Most of these lie in their input batches, far from
   each other: so they are only noted first, as words, and then read column by column (`show_lent_rows`),
   where the ways to many of them overlap. Their strings and lists stay where they are (kept_batches.pxd, c);
   those of entries are copied.
b) lag adds columns to the input's. Several workers process the parts of a chunk at the same time, and rows
   of different parts share cache lines: so each part's values lie side by side, and the last worker moves
   them to the rows' slots. Copied bytes lie in a chunk of the part's own, which that worker makes the chunk
   hold.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.kept_bucket cimport KeptBucket

cdef int32_t shown_process(Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n,
                           Chunk* out, Failure* f) noexcept nogil
cdef int lag_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil
cdef int lag_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil
