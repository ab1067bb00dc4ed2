"""Imported record batches: no copy of fixed-width columns; booleans, strings, lists and validity are
converted once."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport Column, Layout

cdef struct Batch:
    # One imported record batch, or a control element. Ownership: the ingress, until its last serial has been
    # emitted.
    Batch* next            # the feeding thread's
    a64 following          # Batch*: the next one, for the egress; set before that one is pushed
    a64 lent               # output batches that have columns of this one by reference (lent_columns.pxd)
    Batch* before          # the one that was pushed before; gone once its last serial is emitted
    a64 kept               # buckets whose states refer to rows of this one (kept_batches.pxd)
    int64_t shown_through  # the feeding thread's, once no state refers to it: who may still read its rows
    void* source           # PyObject*: the record batch, owned; touched with the GIL. NULL: control
    int32_t kind           # ChunkKind: DATA, TIME, END_OF_STREAM, SUSPEND, FAILURE
    int32_t ncols
    int64_t rows
    int64_t first_serial   # serial of row 0
    int64_t time           # TIME: its value
    int32_t maker          # TIME: whose clock it is (plan/clock.py)
    int64_t arrived_ns     # when the batch reached the node
    # memory pinned: the batch's part of its buffers, of all its columns, and what import allocated
    int64_t bytes
    ArrowArray array       # moved out of its capsule; release == NULL when nothing is owned
    Column* cols
    const int32_t* widths  # of the source layout; borrowed
    void** allocated       # blocks that import made (validity bytes, views)
    int32_t nallocated
    void* failure          # FAILURE: Failure*, owned

cdef Batch* batch_new(int32_t ncols, int32_t kind) noexcept nogil
cdef void* batch_alloc(Batch* b, int64_t size) noexcept nogil
# ^ bytes that live as long as the batch; at most four times per column. NULL: no memory
cdef enum:
    # of a source column, for batch_import: nobody wants it, it is made a column, it passes unread
    # (source_values.pxd)
    UNUSED = 0
    IMPORTED = 1
    PASSES = 2

cdef int fill_used(uint8_t* to, object used, object passing) except -1
cdef void expand_bits(const uint8_t* bits, int64_t offset, int64_t n, uint8_t* out) noexcept nogil
cdef bint batch_converts(const Batch* b, const Layout* layout, const uint8_t* used) noexcept nogil
cdef int batch_import(Batch* b, const Layout* layout, const uint8_t* used,
                      const char** formats) noexcept nogil
# ^ fills b.cols from b.array (already moved in). 0; -1: no memory; -2-j: column j has a layout that is not
# supported.
cdef void batch_free(Batch* b) noexcept nogil
cdef void batch_drop(Batch* b) noexcept

cdef class BatchFormats:
    cdef const char** formats
    cdef object kept
    cdef object schema
