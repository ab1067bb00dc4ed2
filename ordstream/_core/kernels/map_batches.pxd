"""map_batches: a Python function of many rows at once, as NumPy arrays or as an Arrow record batch.

a) The function is row-wise by contract: run_serial gives it one row at a time. So a batch that fails is
   replayed in halves, and halves of these, which finds the failing rows and gives the outputs of all others.
b) The function gets copies and its results are copied: no array that a user keeps shares memory with a
   chunk. Input arrays that nobody else refers to after the call and its result was copied are used again for
   the next chunk of the same length.
c) A column whose chunk memory is a NumPy dtype's (numbers, bools, timestamps, durations) crosses by memcpy,
   the others by pyarrow.
d) NumPy has no nulls: a row with a null in any input column is a failing row of the NumPy format.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.kernels.python_functions cimport PythonKernel

cdef class Arrays:
    # Input arrays of one call. Memory ownership: the arrays own what `data` points to.
    cdef int32_t n
    # per column, None where the column crosses by pyarrow or the user kept the array
    cdef list arrays
    cdef void** data           # per column: the array's memory; owned block

cdef class BatchKernel(PythonKernel):
    cdef bint arrow
    cdef object input_schema
    cdef list names
    cdef object read           # places of the input columns that the function looks at
    cdef list dtypes           # per input column: numpy_memory
    cdef list out_dtypes       # per output column: numpy_memory, but None where NaT would be a null
    cdef list spare            # Arrays to reuse
    cdef bint in_place         # results may become the columns of the input chunk
    cdef Arrays arrays(self, int32_t n)
    cdef int put_back(self, Arrays held) except -1
    cdef object call_numpy(self, Chunk* c, const int32_t* rows, int32_t n, Arrays held)
    cdef object call_arrow(self, Chunk* c, const int32_t* rows, int32_t n)
    cdef int append(self, Worker* w, Chunk* c, const int32_t* rows, int32_t n, Chunk* out,
                    object result) except -1
    cdef bint replace(self, Worker* w, Chunk* c, dict columns, int32_t n) except -1
    cdef bint in_halves(self, Worker* w, Chunk* c, const int32_t* rows, int32_t n, Chunk* out) except -1
    cdef bint part(self, Worker* w, Chunk* c, const int32_t* rows, int32_t n, Chunk* out) except -1
    cdef bint put_values(self, Worker* w, Chunk* out, int32_t j, object values, int32_t n) except -1
    cdef int take_outputs(self, Worker* w, Chunk* out, dict columns, int32_t n) except -1
    cdef int32_t* complete_rows(self, Worker* w, Chunk* c, int32_t* n, int32_t* first_null) except NULL
