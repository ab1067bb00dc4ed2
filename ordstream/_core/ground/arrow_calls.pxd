"""Functions of Arrow on values of the expression machine (ordstream/expressions/arrow_call.py).

a) The GIL is taken once per call, for all rows of a chunk; Arrow itself lets it go while it computes.
b) Values are copied both ways; strings that come back lie in the worker's scratch, and who stores such a
   view copies its bytes (`compute_column`). Nothing of Arrow's outlives the call. Workers may share a chunk
   (parts), so its arena is not touched.
c) Upper and lower case of chunks that have ASCII alone need neither Arrow nor the GIL (`ascii_case`).
d) A row without an answer is found by calling again row by row: its reason goes to `bad`.
e) Joining two strings (`join_text`) needs no Arrow either; it makes bytes in the scratch as the others do.
"""
from libc.stdint cimport int64_t, uint8_t
from ordstream._core.ground.chunk cimport Worker

cdef enum:
    OP_ARROW = 13          # beside Opcode (expression_code.pxd); `table`: the ArrowCall, borrowed
    OP_JOIN = 14           # two strings, one behind the other

cdef int ascii_case(int64_t step, const char* data, const uint8_t* valid, int64_t n, Worker* w,
                    char* out) noexcept nogil
cdef int arrow_call(
    void* call, bint text, int width, const char* data, const uint8_t* valid, int64_t n, Worker* w,
    char* out, uint8_t* bad) noexcept nogil
cdef int join_text(const char* a, bint one_a, const char* b, bint one_b, const uint8_t* valid, int64_t n,
                   Worker* w, char* out) noexcept nogil
