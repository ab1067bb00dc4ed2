"""Values of packed types as bytes, and back (packed_values.hpp, which says how). A column of them is a
PT_VIEW of bytes whose format begins with "P"."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport View

cdef extern from "packed_values.hpp" namespace "ord" nogil:
    bint packed_valid(const ArrowArray* a, int64_t i)
    int64_t packed_measure(const char* format, const ArrowArray* a, int64_t first, const int32_t* rows,
                           int64_t n, int32_t* sizes)
    int64_t packed_bound(const char* format, const ArrowArray* a, int64_t first, int64_t n)
    int packed_views(const char* format, const ArrowArray* a, int64_t first, int64_t n, char* to,
                     View* views)
    int packed_write(const char* format, const ArrowArray* a, int64_t first, const int32_t* rows, int64_t n,
                     char* to)
    int64_t packed_extent(const char* format, const ArrowArray* a, int64_t first, int64_t n)
    int packed_export(const char* format, const View* views, const int32_t* rows, const int32_t* offsets,
                      const char* heap, const uint8_t* valid, int64_t n, ArrowArray* out)
