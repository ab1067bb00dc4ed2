"""Values of input batches that were never imported: those of columns that no operator looks at.

a) A column *passes unread* if no operator of the run looks at its values, and each output row has those of
   the tuple with its serial (plan/columns.py decides it). Chunks have nothing of it, as of a column that
   nobody wants: `data` is NULL, or zeros where an operator made its rows anew.
b) The egress alone needs it. It lends the column (lent_columns.pxd), or reads the rows that are left from
   the producer's buffers; so nothing is converted for rows that go.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport Column, Layout, View
from ordstream._core.ground.imported_batch cimport Batch

cdef struct Passing:
    # Which columns of the output pass unread. Ownership: the run.
    int32_t* column        # per output column: the source's; -1: it comes with the chunk. NULL: all do
    const Layout* layout   # of the source
    const char** formats   # of the source's columns (BatchFormats)

cdef struct SourceRows:
    # Slots of a chunk, or rows, as rows of an input batch.
    const Batch* batch
    const Passing* passing
    int64_t row            # of the batch: slot 0
    const int32_t* rows    # of the batch, per selected row of the chunk; NULL: its slots are side by side

cdef struct Offsets:
    # Where strings, or lists of values of fixed width, lie.
    const int32_t* narrow  # of slot 0; NULL: they are wide
    const int64_t* wide
    const char* data       # of offset 0

cdef inline int64_t offset_at(const Offsets* x, int64_t slot) noexcept nogil:
    return x.narrow[slot] if x.narrow != NULL else x.wide[slot]

cdef inline bint bit_at(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1

cdef Offsets source_offsets(const SourceRows* rows, int32_t s) noexcept nogil
cdef const char* source_fixed(const SourceRows* rows, int32_t s) noexcept nogil
# ^ slot 0 of a column of fixed width
cdef const uint8_t* source_nulls(const SourceRows* rows, int32_t s, int64_t* first) noexcept nogil
# ^ validity bits, and the bit of slot 0; NULL: no nulls
cdef void source_bits(const uint8_t* bits, int64_t first, const int32_t* sel, int64_t slot, int64_t n,
                      uint8_t* out) noexcept nogil
cdef void source_bools(const SourceRows* rows, int32_t s, const int32_t* sel, int64_t slot, int64_t n,
                       uint8_t* out) noexcept nogil
cdef void source_value(const SourceRows* rows, int32_t s, int64_t slot, char* value,
                       uint8_t* valid) noexcept nogil
