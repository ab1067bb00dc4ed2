"""Parts of packed values: fields of structs, elements of lists (packed_parts.hpp)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport View

cdef extern from "packed_parts.hpp" namespace "ord" nogil:
    cppclass PackedParts:
        bint elements(const char* list, View* out, uint8_t* valid)
    PackedParts* packed_parts(const char* format)
    void packed_parts_free(PackedParts* parts)
    int64_t packed_length(const char* list)
    void packed_fields(const PackedParts* parts, const int32_t* path, int32_t depth, int leaf,
                       const View* values, const uint8_t* valid, const int32_t* sel, int64_t n, char* out,
                       uint8_t* out_valid)
    int LEAF_INT
    int LEAF_UINT
    int LEAF_FLOAT
    int LEAF_BOOL
    int LEAF_TEXT
    int LEAF_COUNTED
    int LEAF_WIDE
    int LEAF_PACKED
