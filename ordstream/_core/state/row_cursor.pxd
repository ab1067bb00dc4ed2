"""The rows of a chunk for a Python function, one after the other.

a) Columns become Python objects a block at a time: one loop per column, few objects at a time (they stay in
   the cache, and Python's garbage collector has nothing to look at).
b) Where it is known which columns the function looks at, and that it does nothing else with the row
   (ordstream/ground/columns_read.py), only these are read, and the row is an object with a slot for each:
   Python reads a slot in a tenth of the time that a property takes. Else the row is a tuple with attributes
   (ordstream.ground.types.row_class).
c) The row object is used again where nobody but the cursor has kept it: what no one else sees may change. So
   the caller hands `at(i)` on and keeps nothing of it.
Everything here needs the GIL. Thread safety: one cursor per kernel call.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk
from ordstream._core.state.python_values cimport RowReader

cdef enum:
    MOST_READ = 64             # columns of a row with slots

cdef class RowShape:
    # What rows of a schema look like to a function. Thread safety: read-only after __init__.
    cdef RowReader reader
    cdef object row_class
    cdef list places           # of the columns that are read
    cdef bint slotted          # the row has a slot for each place, else an item for each column
    cdef Py_ssize_t[MOST_READ] slots   # where these lie in the object
    cdef RowCursor over(self, Chunk* c, const int32_t* rows, int32_t n)
    cdef object row(self, Chunk* c, int32_t slot)

cdef class RowCursor:
    cdef RowShape shape
    cdef Chunk* c              # borrowed
    cdef const int32_t* rows   # slots, borrowed; NULL: 0..n-1
    cdef int32_t n
    cdef int32_t first         # the block: rows [first, behind)
    cdef int32_t behind
    cdef list columns          # its values: a list per place
    cdef bint alone            # the block could not be read: each row alone, up to `behind`
    cdef PyObject* last        # the last row, owned, or NULL
    cdef int read(self, int32_t first, int32_t behind) except -1
    cdef int go(self, int32_t i) except -1
    cdef PyObject* made(self, int32_t k) except NULL
    cdef object at(self, int32_t i)
    cdef object at_or_none(self, int32_t i)
