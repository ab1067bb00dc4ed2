"""Sampled per-row cost and state size of any keyed kernel: what POSG, LAS and Mixed learn their weights
from.

The runtime calls `sample_rows` in place of `kernel.process` for one chunk part of many. A sampled row costs
two clock reads more (~50 ns), and loses what a kernel gains from seeing many rows at once; the clock's own
cost is subtracted.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel

cdef int64_t clock_cost_ns() noexcept nogil
cdef int32_t sample_rows(Kernel* kernel, Worker* worker, void* state, Chunk* chunk, const int32_t* rows,
                         int32_t n, Chunk* out,
                         Failure* f, int64_t* costs_ns, int64_t* grown_bytes,
                         int64_t* state_bytes) noexcept nogil
