"""Crossing Arrow's C data interface, without libarrow: import of batches (no copy of fixed-width columns), export of pooled output.

Release callbacks may take the GIL themselves, so nothing here holds a core lock over them; our own release
callback never touches Python.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Column, Layout

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowSchema {
        const char* format; const char* name; const char* metadata; int64_t flags; int64_t n_children;
        struct ArrowSchema** children; struct ArrowSchema* dictionary;
        void (*release)(struct ArrowSchema*); void* private_data;
    };
    struct ArrowArray {
        int64_t length; int64_t null_count; int64_t offset; int64_t n_buffers; int64_t n_children;
        const void** buffers; struct ArrowArray** children; struct ArrowArray* dictionary;
        void (*release)(struct ArrowArray*); void* private_data;
    };
    #endif
    """
    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

cdef struct Batch:
    # One imported record batch, or a control element. Ownership: the ingress, until its last serial has been emitted.
    Batch* next
    int32_t kind           # ChunkKind: DATA, END_OF_STREAM, FAILURE
    int32_t ncols
    int64_t rows
    int64_t first_serial   # serial of row 0
    int64_t arrived_ns     # when the batch reached the node
    int64_t bytes          # memory pinned: the batch's part of its buffers, of all its columns, and what import allocated
    ArrowArray array       # moved out of its capsule; release == NULL when nothing is owned
    Column* cols
    const int32_t* widths  # of the source layout; borrowed
    void** allocated       # blocks that import made (validity bytes, views)
    int32_t nallocated
    void* failure          # FAILURE: Failure*, owned

cdef Batch* batch_new(int32_t ncols, int32_t kind) noexcept nogil
cdef bint batch_converts(const Batch* b, const Layout* layout, const uint8_t* used) noexcept nogil
cdef int batch_import(Batch* b, const Layout* layout, const uint8_t* used, const char** formats) noexcept nogil
# ^ fills b.cols from b.array (already moved in). 0; -1: no memory; -2-j: column j has a layout that is not supported.
cdef void batch_free(Batch* b) noexcept nogil

cdef struct OutputColumn:
    # Growing buffers of one output column. data: values, or int32 offsets (views, lists).
    char* data
    uint8_t* valid         # bytes; NULL while no null was seen
    char* heap             # string bytes
    int64_t heap_size
    int64_t heap_capacity
    OutputColumn* child    # list elements
    int64_t child_rows
    int64_t child_capacity

cdef struct Output:
    # An output batch under construction: `rows` rows, in order. One writer (the holder of the last operator's release flag).
    int32_t ncols
    int32_t over           # column that had no room for the row at which the last append stopped; -1: rows are as many as may be
    int64_t rows
    int64_t capacity
    int64_t bytes          # memory taken for columns
    int64_t budget         # memory that it may take; a first row passes however wide it is
    int64_t keep           # how much released memory may be kept when it is freed (output_memory.hpp)
    ChunkPool* pool        # where `bytes` count as in flight; NULL: nowhere
    int64_t emitted_through  # serial: every output caused by it or an earlier one is in this or an earlier batch
    int64_t point_serial     # commit point: the greatest order tag that no output behind this batch has or is below
    int64_t point_index
    const Layout* layout
    OutputColumn* cols
    int64_t* serials       # per row, when tags are asked for
    Output* next

cdef Output* output_new(const Layout* layout, int64_t capacity, bint tags) noexcept nogil
cdef int64_t output_append(Output* o, Chunk* c, int64_t start, int64_t n) noexcept nogil   # rows; -1: no memory
cdef int64_t limit_offsets(int64_t limit) noexcept nogil               # for tests: lower it, returns what it was
cdef int64_t offset_limit                                             # most bytes, or elements, of a column: 2^31 - 1; tests lower it
cdef int64_t rows_within(const Layout* layout, bint tags, int64_t bytes) noexcept nogil
cdef void output_free(Output* o) noexcept nogil
cdef object output_export(Output* o, object schema)                   # takes ownership of o

cdef class BatchFormats:
    cdef const char** formats
    cdef object kept
