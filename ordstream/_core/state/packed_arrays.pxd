"""Columns of packed types (ground/packed_values.hpp) to Arrow arrays and back. Everything here needs the
GIL."""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Column, Worker

cdef object packed_rows(object type_, bytes format, const Column* col, const int32_t* rows, int32_t n)
cdef int packed_put(Worker* w, Chunk* out, char* to, object array) except -1
