"""Instructions on strings and dates that need neither memory nor the GIL, as pointers of the kind that
column_ops.hpp has for the others."""
from libc.stdint cimport int64_t

ctypedef int64_t (*text_t)(void* r, const void* a, int sa, const void* b, int sb, int64_t n) noexcept nogil
ctypedef int64_t (*part_t)(void* r, const void* a, int64_t n) noexcept nogil

cdef text_t find_text(str name)
cdef part_t find_part(str name)
