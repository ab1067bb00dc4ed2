"""Rows that an operator rejects: which, and why, until the operator takes them that makes its second output.

a) Both operators take the same rows, from a branch point directly in front of both: a row is known by that
   `Fork`, whose address is its own while the unit lives, and its slot there.
b) A unit passes the first operator before it reaches the second: what is put for a unit is complete when it
   is taken. It may be cut in between (marked_rows.pxd, d): each piece has slots of its own, and takes what
   is noted of these.
c) What a failed or cancelled run leaves goes with the table.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport Chunk, Fork
from ordstream._core.ground.threads cimport Mutex

cdef enum:
    LISTS = 64             # units in flight are spread over so many

cdef struct Rejection:
    # The bytes of type and text lie behind it. Memory ownership: the table's, then who took it.
    Rejection* next
    const Fork* fork
    int32_t slot
    int32_t type_size
    int32_t text_size

cdef struct RejectionTable:
    Mutex* mutex           # of the lists
    a64 count
    Rejection* lists[64]

cdef int rejection_put(RejectionTable* table, const Chunk* c, int32_t slot, const char* type_,
                       int32_t type_size, const char* text, int32_t text_size) noexcept nogil
cdef Rejection* rejections_take(RejectionTable* table, const Fork* fork, int32_t first,
                                int32_t last) noexcept nogil
cdef void rejections_free(Rejection* first) noexcept nogil


cdef inline const char* rejection_bytes(const Rejection* r) noexcept nogil:
    """Type, then text."""
    return <const char*> (r + 1)


cdef class Rejections:
    # Memory ownership: allocates and frees what the table has.
    cdef RejectionTable table
    cdef int add(self, const Chunk* c, int32_t slot, object error) except -1
