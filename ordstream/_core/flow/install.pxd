"""State that comes into a run: rows (kernel.pxd, f) go to the buckets that own their keys.

Before the workers start, or while the run stands still: nobody else holds a bucket.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.operator cimport Operator
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.imported_batch cimport Batch, BatchFormats
from ordstream._core.ground.kernel cimport PS, KernelOwner

cdef class ArrivingRows:
    # Rows of state as a chunk that is split over an operator's buckets. Memory ownership: the imported
    # batch, the chunk.
    cdef Worker* worker
    cdef BatchFormats formats
    cdef Batch* batch
    cdef Chunk* chunk
    cdef int32_t* every           # an operator with one bucket: all slots
    cdef const int32_t* slots     # of the bucket that was selected
    cdef int32_t n
    cdef int fill(self, Worker* w, Operator* op, KernelOwner owner, batch) except -1
    cdef bint select(self, Operator* op, int64_t bucket) noexcept

cdef int install_rows(Operator* op, KernelOwner owner, Worker* w, batch) except -1

cdef inline int64_t bucket_count(Operator* op) noexcept:
    return op.pq.p if op.kind == PS else 1

cdef inline void* bucket_state(Operator* op, int64_t bucket) noexcept:
    return op.pq.buckets[bucket].state if op.kind == PS else op.state
