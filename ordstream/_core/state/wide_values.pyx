"""Decimals of over 18 digits to Arrow and back. See wide_values.pxd."""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport Chunk, Column, View, Worker, chunk_alloc

import pyarrow as pa

cdef extern from "decimal128.hpp" namespace "ord" nogil:
    void decimals_encode(const char* values, int64_t n, char* to)
    void decimal_decode(const char* value, char* to)


cdef object wide_array(object type_, const Column* col, const int32_t* rows, int32_t n, object valid):
    """Rows (slots; NULL: 0..n-1) of a column as a pyarrow.Array; `valid`: the bits of those that are not
    null, or None. GIL held. Everything is copied."""
    cdef bytearray data = bytearray(16 * <int64_t> n)
    cdef const View* views = <const View*> col.data
    cdef int32_t i
    cdef int32_t slot
    for i in range(n):
        slot = i if rows == NULL else rows[i]
        if (col.valid == NULL or col.valid[slot]) and views[slot].size == 16:
            decimal_decode(views[slot].data, PyByteArray_AS_STRING(data) + 16 * <int64_t> i)
    return pa.Array.from_buffers(type_, n, [valid, pa.py_buffer(data)])


cdef object wide_value(object type_, const View* v):
    """One value, as a Decimal. GIL held."""
    cdef Column column
    column.data = <char*> v
    column.valid = NULL
    return wide_array(type_, &column, NULL, 1, None)[0].as_py()


cdef int wide_put(Worker* w, Chunk* out, char* to, const char* values, int64_t n) except -1:
    """Write n of Arrow's values, side by side, as n views behind `to`.

    Thread safety: owner of `out`, GIL held. Ownership: the bytes lie in out's arena. Errors: MemoryError.
    """
    cdef View view
    cdef char* heap = chunk_alloc(w, out, n * 16)
    cdef int64_t i
    if heap == NULL:
        raise MemoryError
    decimals_encode(values, n, heap)
    view.size = 16
    for i in range(n):
        view.data = heap + 16 * i
        memcpy(to + i * <int64_t> sizeof(View), &view, sizeof(View))
    return 0
