"""Values between chunks and Python: what a Python function gets, and how what it returns gets into an output
chunk.

Python values are those of pyarrow's `to_pylist`; ordstream/ground/types.py is the definition (`to_python`,
`to_storage`), this file is the fast way for the common types and calls that file for the others. Everything
here needs the GIL.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Column, Failure, Worker
from ordstream._core.state.common_values cimport CommonValues

cdef class ColumnReader:
    # One input column. Thread safety: stateless after __init__.
    cdef int32_t kind          # PhysicalType
    cdef int32_t width         # bytes per value
    cdef int32_t text          # PT_VIEW: 1 utf8, 0 binary
    cdef int32_t by_arrow      # values are made by pyarrow from gathered storage
    cdef object type           # pyarrow type
    cdef bytes packed          # format of a packed type (packed_values.hpp), or None
    cdef object made           # what makes datetime objects of storage (ground/datetimes.py), or None
    cdef ColumnReader element  # PT_LIST
    cdef list read(self, const Column* col, const int32_t* rows, int32_t n)
    cdef list read_datetimes(self, const Column* col, const int32_t* rows, int32_t n)
    cdef list read_lists(self, const Column* col, const int32_t* rows, int32_t n)
    cdef object arrow(self, const Column* col, const int32_t* rows, int32_t n)
    cdef object arrow_views(self, const Column* col, const int32_t* rows, int32_t n, object valid)

cdef class RowReader:
    # All columns of a schema, and the class of its rows (ordstream.ground.types.row_class).
    cdef readonly list readers
    cdef object row_class
    cdef list columns(self, Chunk* c, const int32_t* rows, int32_t n)
    cdef list rows(self, Chunk* c, const int32_t* rows, int32_t n)
    cdef object row(self, Chunk* c, int32_t slot)

cdef class ColumnWriter:
    # One output column.
    cdef int32_t kind
    cdef int32_t text
    cdef int32_t nullable
    cdef int32_t width
    cdef int64_t low           # integers: range of the type
    cdef int64_t high
    cdef public str name
    cdef object type
    cdef bint wide             # decimals of more than 18 digits
    cdef bint packed           # bytes that stand for a value of another type (packed_values.hpp)
    cdef CommonValues common   # of the usual Python classes, or None
    cdef ColumnWriter element
    cdef int write(self, Worker* w, Chunk* out, int32_t col, int32_t index, object value) except -1
    cdef int put(self, Worker* w, Chunk* out, char* to, object value) except -1
    cdef int put_storage(self, Worker* w, Chunk* out, char* to, object value) except -1
    cdef int write_nulls(self, Worker* w, Chunk* out, int32_t col, int32_t start, object array,
                         list buffers) except -1
    cdef int write_array(self, Worker* w, Chunk* out, int32_t col, int32_t start, object array) except -1

cdef class RowWriter:
    # All output columns. `append` writes one row behind out.n.
    cdef readonly list writers
    cdef readonly tuple names
    cdef readonly tuple whole          # types of a value that is all columns of a row (ground/rows.py)
    cdef int32_t ncols
    cdef int append(self, Worker* w, Chunk* out, tuple values, int32_t origin) except -1
    cdef tuple fitted(self, object result)

cdef int exception_set(Failure* f, int32_t slot, object exc) except -1
