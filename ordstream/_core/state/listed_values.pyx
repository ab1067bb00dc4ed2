"""How a list keeps values of a type. See listed_values.pxd."""
from libc.stdint cimport int32_t
from ordstream._core.ground.list_values cimport LIST_NULLS

cdef extern from "gathered_values.hpp" nogil:
    enum: ORD_OF_WORDS
    enum: ORD_OF_TEXTS
    enum: ORD_OF_PACKED
    enum: ORD_OF_FIXED
    enum: ORD_OF_COUNTS
    enum: ORD_OF_WIDE
    enum: ORD_OF_LISTS
    enum: ORD_OF_BOOLS

ELEMENTS = {"word": ORD_OF_WORDS, "text": ORD_OF_TEXTS, "packed": ORD_OF_PACKED, "fixed": ORD_OF_FIXED,
            "count": ORD_OF_COUNTS, "wide": ORD_OF_WIDE, "list": ORD_OF_LISTS, "bools": ORD_OF_BOOLS}


cdef int element_spec(OrdGatherSpec* spec, str element, int32_t width) except -1:
    """Note how values of a column are kept: `element` and `width` of `ordstream.operators.gathered`'s
    `element_of`. Returns 1 where a list of them is a packed value, 0 where it is one of numbers."""
    spec.element = ELEMENTS[element]
    spec.width = width
    spec.nulls = LIST_NULLS
    return spec.element != ORD_OF_WORDS
