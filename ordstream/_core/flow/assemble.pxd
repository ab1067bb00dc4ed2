"""Assemble: put the outputs of a chunk's parts back into input order; sort what a punctuation made the
buckets emit.

Runs in the worker that finishes a chunk's last part (it holds the chunk alone then).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport Chunk, Column, Layout, Worker
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.flow.steps cimport StepLog

cdef Chunk* merge_parts(Worker* w, Chunk* c, const Layout* layout, bint has_views,
                        int32_t before_slot) noexcept nogil
cdef Chunk* merge_flush(Worker* w, Chunk* c, const Layout* layout, bint has_views, const KeySpec* keys,
                        const char* cut, int64_t cut_time, StepLog* steps, bint timed) noexcept nogil
cdef int assign_serials(Worker* w, Chunk* out, const Chunk* source) noexcept nogil
cdef int copy_row(Worker* w, Chunk* out, const Column* cols, const Layout* layout,
                  int32_t slot) noexcept nogil
