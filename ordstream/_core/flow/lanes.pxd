"""Lanes: a unit carries one chunk per lane (ground/chunk.pxd, e). Only runs with several lanes use them."""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.kernel cimport Kernel

cdef void cut_lanes(Chunk* c, int32_t slot) noexcept nogil
cdef int inherit_lanes(Kernel* kernel, Worker* w, Chunk* out, Chunk* source) noexcept nogil
