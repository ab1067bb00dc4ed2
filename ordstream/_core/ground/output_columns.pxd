"""Growing columns of an output batch, in Arrow's layout, within a budget of memory."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport ChunkPool, Layout, View
from ordstream._core.ground.source_values cimport Passing

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
    const Passing* passing  # of a lender: which columns pass unread. Borrowed from the run
    int64_t* serials       # per row, when tags are asked for
    Output* next

# for tests: lower it, returns what it was
cdef int64_t limit_offsets(int64_t limit) noexcept nogil
# most bytes, or elements, of a column: 2^31 - 1; tests lower it
cdef int64_t offset_limit
cdef void* taken(Output* o, void* data, int64_t had, int64_t size) noexcept nogil
cdef int heap_larger(Output* o, OutputColumn* oc, int64_t size, bint first) noexcept nogil
cdef int list_larger(Output* o, OutputColumn* oc, int64_t size, int32_t element, bint first) noexcept nogil
cdef int list_nulls(Output* o, OutputColumn* oc) noexcept nogil
cdef int list_append(Output* o, OutputColumn* oc, const View* v, int32_t element, bint first) noexcept nogil
cdef int valid_room(Output* o, OutputColumn* oc, int64_t base) noexcept nogil
cdef void cut_column(OutputColumn* oc, int32_t type, int64_t rows) noexcept nogil


cdef inline int heap_append(Output* o, OutputColumn* oc, const View* v, bint first) noexcept nogil:
    """The bytes of one value. 0; -1: no memory; -2: the row does not fit. Capacity never passes
    offset_limit: no further check here."""
    cdef int rc
    if oc.heap_size + v.size > oc.heap_capacity:
        rc = heap_larger(o, oc, v.size, first)
        if rc != 0:
            return rc
    if v.size:
        memcpy(oc.heap + oc.heap_size, v.data, v.size)
    oc.heap_size += v.size
    return 0


cdef inline void copy_bytes(char* to, const char* at, int64_t n) noexcept nogil:
    """memcpy for values that mostly are short. Cost: ~1 ns up to 32 bytes."""
    if n > 32:
        memcpy(to, at, <size_t> n)
    elif n > 16:
        memcpy(to, at, 16)
        memcpy(to + n - 16, at + n - 16, 16)
    elif n >= 8:
        memcpy(to, at, 8)
        memcpy(to + n - 8, at + n - 8, 8)
    elif n >= 4:
        memcpy(to, at, 4)
        memcpy(to + n - 4, at + n - 4, 4)
    elif n > 0:
        to[0] = at[0]
        to[n >> 1] = at[n >> 1]
        to[n - 1] = at[n - 1]
