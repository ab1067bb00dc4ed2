"""What functions return most, straight into the bytes of a column: Arrow makes no array of one value.

`CommonValues` knows values of Python's own classes that fit as they are; of all else `put` says 0 and has
written nothing, and ordstream/ground/types.py (`to_storage`), which is the definition, finds out and has the
errors. Bytes of packed types are those of packed_values.hpp. Everything here needs the GIL.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Worker

cdef struct GrowingBytes:
    char* data                 # `near`, or the C library's
    int64_t size
    int64_t room
    char[512] near

cdef enum CommonKind:
    OF_INT, OF_DOUBLE, OF_SINGLE, OF_BOOL, OF_TEXT, OF_BYTES, OF_RAW, OF_COUNT, OF_UNITS, OF_STRUCT, OF_LIST,
    OF_MAP

cdef class CommonValues:
    # Of one type. Thread safety: stateless after __init__.
    cdef CommonKind kind
    cdef int32_t width         # bytes of a value of fixed width; 0: of no fixed width
    cdef int32_t length        # of lists of one length: how many; else -1
    cdef int64_t low           # integers and counts: the range
    cdef int64_t high
    cdef bint nullable
    cdef bint is_list          # the column has the core's lists, not packed bytes
    cdef bint is_packed
    cdef bint is_wide          # a column of decimals of more than 18 digits
    cdef object type
    cdef object counted        # what counts times, or the units of decimals
    cdef tuple names           # of a struct
    cdef list parts            # of a struct its fields; of a list its elements; of a map keys and items
    cdef int put(self, Worker* w, Chunk* out, char* to, object value) except -1
    cdef int put_bytes(self, Worker* w, Chunk* out, char* to, GrowingBytes* made) except -1
    cdef int append(self, GrowingBytes* to, object value) except -1
    cdef int append_struct(self, GrowingBytes* to, dict value) except -1
    cdef int append_list(self, GrowingBytes* to, tuple items) except -1
    cdef int append_map(self, GrowingBytes* to, tuple items) except -1
    cdef int append_values(self, GrowingBytes* to, tuple items, bint some) except -1
    cdef int append_slot(self, GrowingBytes* to, object value) except -1
