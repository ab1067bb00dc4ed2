"""Output batches while rows are appended."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Column, Layout
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.source_values cimport SourceRows

cdef Output* output_bare(const Layout* layout, int64_t capacity, bint tags) noexcept nogil
cdef int output_room(Output* o, int32_t j) noexcept nogil
cdef void output_drop(Output* o, int32_t j) noexcept nogil
cdef int64_t output_column(Output* o, int32_t j, const Column* col, const int32_t* sel, int64_t n,
                           int64_t base) noexcept nogil
cdef Output* output_new(const Layout* layout, int64_t capacity, bint tags) noexcept nogil
# rows; -1: no memory
cdef int64_t output_append(Output* o, Chunk* c, int64_t start, int64_t n,
                           const SourceRows* source=*) noexcept nogil
cdef int64_t rows_within(const Layout* layout, bint tags, int64_t bytes) noexcept nogil
cdef void output_free(Output* o) noexcept nogil
