"""Columns of packed types to Arrow arrays and back. See packed_arrays.pxd."""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport Chunk, Column, View, Worker, chunk_alloc
from ordstream._core.ground.packed_values cimport packed_export, packed_measure, packed_write

import pyarrow as pa

from ordstream.ground.packed_types import packed_format


cdef object packed_rows(object type_, bytes format, const Column* col, const int32_t* rows, int32_t n):
    """Rows (slots; NULL: 0..n-1) of a column as a pyarrow.Array. Everything is copied.

    Cost: ~5 us, and ~5 ns per value and part of it.
    """
    cdef ArrowArray array
    if packed_export(format, <const View*> col.data, rows, NULL, NULL, col.valid, n, &array) != 0:
        raise MemoryError
    try:
        return pa.Array._import_from_c(<uintptr_t> &array, type_)
    finally:
        if array.release != NULL:                             # it was not taken
            array.release(&array)


cdef int packed_put(Worker* w, Chunk* out, char* to, object array) except -1:
    """Write the values of an array, in its plain type, as views behind `to`.

    Thread safety: owner of `out`, GIL held. Ownership: the bytes lie in out's arena. Errors: MemoryError;
    OverflowError for a value of 2^31 bytes or more.
    """
    cdef bytes format = packed_format(array.type).encode()
    cdef int64_t n = len(array)
    cdef int64_t total
    cdef int64_t i
    cdef char* heap
    cdef int32_t* sizes
    cdef View view
    cdef ArrowArray* a
    _, capsule = array.__arrow_c_array__()
    a = <ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array")
    sizes = <int32_t*> malloc(<size_t> (n + 1) * sizeof(int32_t))
    if sizes == NULL:
        raise MemoryError
    try:
        total = packed_measure(format, a, 0, NULL, n, sizes)
        if total == -2:
            raise OverflowError("a value of 2 GiB or more")
        heap = <char*> chunk_alloc(w, out, total + 1) if total >= 0 else NULL
        if heap == NULL or packed_write(format, a, 0, NULL, n, heap) != 0:
            raise MemoryError
        for i in range(n):
            view.data = heap
            view.size = sizes[i]
            memcpy(to + i * <int64_t> sizeof(View), &view, sizeof(View))
            heap += sizes[i]
    finally:
        free(sizes)
    return 0
