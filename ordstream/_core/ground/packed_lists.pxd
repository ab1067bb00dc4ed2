"""Functions of lists and of structs inside of expressions: instructions beside Opcode (expression_code.pxd).

A list on the stack is a packed value (packed_values.hpp), whatever it is in its column: one function serves
lists of numbers, of strings and of structs, those of columns and those that another function made
(ordstream/expressions/lists.py).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport View
from ordstream._core.ground.packed_parts cimport PackedParts

cdef enum:
    OP_PART = 15           # a field of a struct
    OP_LIST_GET = 16       # a list and an index: the element
    OP_LIST_HAS = 17       # a list and a value: whether it is an element
    OP_LIST_JOIN = 18      # a list of strings and a string; `depth`: a null element makes it null
    OP_AS_LIST = 19        # last: what is stored is a list of values of fixed width

cdef extern from "packed_lists.hpp" namespace "ord" nogil:
    int64_t leaf_width(int leaf)
    void packed_get(const PackedParts* parts, int leaf, const View* lists, bint one_list,
                    const uint8_t* lists_valid, const int64_t* at, bint one_at, const uint8_t* at_valid,
                    int64_t n, char* out, uint8_t* out_valid)
    void packed_has(const PackedParts* parts, int leaf, const View* lists, bint one_list,
                    const uint8_t* lists_valid, const char* x, bint one_x, const uint8_t* x_valid, int64_t n,
                    char* out, uint8_t* out_valid)
    int64_t packed_join(const PackedParts* parts, bint nulls, const View* lists, bint one_list,
                        const uint8_t* lists_valid, const View* between, bint one_between,
                        const uint8_t* between_valid, int64_t n, char* to, View* out, uint8_t* out_valid)
    int64_t pack_lists(int64_t width, bint flags, const View* lists, const uint8_t* valid,
                       const int32_t* sel, int64_t n, char* to, View* out)
    int64_t unpack_lists(const PackedParts* parts, View* views, const uint8_t* valid, const int32_t* sel,
                         int64_t n, char* to)
