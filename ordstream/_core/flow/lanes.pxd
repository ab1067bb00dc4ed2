"""Lanes: a unit carries one chunk per lane (ground/chunk.pxd, e). Only runs with several lanes use them."""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.kernel cimport Kernel

cdef enum:
    FLUSHED = -1               # Fork.branch of what a punctuation made an operator emit

cdef int mark_flush(Worker* w, Chunk* out) noexcept nogil
cdef void cut_lanes(Chunk* c, int32_t slot) noexcept nogil
cdef int inherit_lanes(Kernel* kernel, Worker* w, Chunk* out, Chunk* source) noexcept nogil
cdef int inherit_pieces(Worker* w, Chunk* out, Chunk* rest, Chunk* source) noexcept nogil
