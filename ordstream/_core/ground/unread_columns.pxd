"""Rows of columns that pass unread (source_values.pxd), appended to an output batch."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.source_values cimport SourceRows

cdef int64_t output_unread(Output* o, int32_t j, const SourceRows* source, int32_t s, const int32_t* sel,
                           int64_t slot, int64_t n, int64_t base) noexcept nogil
