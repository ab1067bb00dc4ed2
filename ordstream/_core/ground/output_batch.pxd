"""Output batches while rows are appended: growing columns in Arrow's layout, within a budget of memory."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Column, Layout

cdef struct OutputColumn:
    # Growing buffers of one output column. data: values, or int32 offsets (views, lists); NULL: no rows yet,
    # or lent (lent_columns.pxd).
    int32_t source         # lent: column of the input batch; -1: it has memory of its own
    char* data
    uint8_t* valid         # bytes; NULL while no null was seen
    char* heap             # string bytes
    int64_t heap_size
    int64_t heap_capacity
    OutputColumn* child    # list elements
    int64_t child_rows
    int64_t child_capacity

cdef struct Output:
    # An output batch under construction: `rows` rows, in order. One writer (the holder of the last
    # operator's release flag).
    int32_t ncols
    # column that had no room for the row at which the last append stopped; -1: rows are as many as may be
    int32_t over
    int64_t rows
    int64_t capacity
    int64_t bytes          # memory taken for columns
    int64_t budget         # memory that it may take; a first row passes however wide it is
    int64_t keep           # how much released memory may be kept when it is freed (output_memory.hpp)
    ChunkPool* pool        # where `bytes` count as in flight; NULL: nowhere
    # serial: every output caused by it or an earlier one is in this or an earlier batch
    int64_t emitted_through
    # commit point: the greatest order tag that no output behind this batch has or is below
    int64_t point_serial
    int64_t point_index
    # 0; or the number of a snapshot marker that stands behind the batches in front (no rows)
    int64_t marker
    const Layout* layout
    OutputColumn* cols
    void* lender           # Batch* that columns are rows of, by reference (lent_columns.pxd), or NULL
    a64* lent              # how many output batches lend from it: this one counts
    int64_t first_row      # the row there that the first row here is
    int64_t* serials       # per row, when tags are asked for
    Output* next

cdef Output* output_bare(const Layout* layout, int64_t capacity, bint tags) noexcept nogil
cdef int output_room(Output* o, int32_t j) noexcept nogil
cdef void output_drop(Output* o, int32_t j) noexcept nogil
cdef int64_t output_column(Output* o, int32_t j, const Column* col, const int32_t* sel, int64_t n,
                           int64_t base) noexcept nogil
cdef Output* output_new(const Layout* layout, int64_t capacity, bint tags) noexcept nogil
# rows; -1: no memory
cdef int64_t output_append(Output* o, Chunk* c, int64_t start, int64_t n) noexcept nogil
# for tests: lower it, returns what it was
cdef int64_t limit_offsets(int64_t limit) noexcept nogil
# most bytes, or elements, of a column: 2^31 - 1; tests lower it
cdef int64_t offset_limit
cdef int64_t rows_within(const Layout* layout, bint tags, int64_t bytes) noexcept nogil
cdef void output_free(Output* o) noexcept nogil
