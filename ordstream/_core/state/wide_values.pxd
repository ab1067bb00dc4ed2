"""Decimals of over 18 digits, 16 bytes apart from their column (decimal128.hpp), as Arrow has them."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Column, View, Worker

cdef object wide_array(object type_, const Column* col, const int32_t* rows, int32_t n, object valid)
cdef object wide_value(object type_, const View* v)
cdef int wide_put(Worker* w, Chunk* out, char* to, const char* values, int64_t n) except -1
