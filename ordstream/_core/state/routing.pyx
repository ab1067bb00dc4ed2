"""Key hashes of a record batch: what routes rows to nodes. The hash is that of the buckets, a function of
the keys' normal form alone, so every process on machines of one byte order routes alike."""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
import numpy as np
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.imported_batch cimport Batch, BatchFormats, batch_free, batch_import, batch_new
from ordstream._core.ground.chunk cimport DATA, Chunk, LayoutOwner
from ordstream._core.state.key_records cimport key_hash
from ordstream._core.state.keyed_state cimport KeySpecOwner


def key_hashes(batch, key, LayoutOwner layout not None, BatchFormats formats not None):
    """Hash of each row's key: uint64, one per row.

    Parameters: a record batch of exactly the core schema that `layout` and `formats` are of; `key`: indexes
    of the key columns. Thread safety: pure. Ownership: none. Raises: MemoryError; TypeError for a column
    layout that the core does not read. Cost: ~1 ns per row and fixed-width column.
    """
    cdef KeySpecOwner keys = KeySpecOwner(list(key), layout.types)
    cdef uint8_t* used = <uint8_t*> calloc(layout.layout.ncols + 1, 1)
    cdef Batch* b = batch_new(layout.layout.ncols, DATA)
    cdef ArrowArray* array
    cdef uint64_t[::1] hashes
    cdef Chunk c
    cdef int rc
    if used == NULL or b == NULL:
        free(used)
        raise MemoryError
    try:
        for index in key:
            used[<int32_t> index] = 1
        _, capsule = batch.__arrow_c_array__()
        array = <ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array")
        memcpy(&b.array, array, sizeof(ArrowArray))
        array.release = NULL
        rc = batch_import(b, &layout.layout, used, formats.formats)
        if rc == -1:
            raise MemoryError
        if rc < 0:
            raise TypeError("a layout that the core does not read")
        result = np.empty(b.rows, dtype=np.uint64)
        if b.rows:
            hashes = result
            memset(<void*> &c, 0, sizeof(Chunk))
            c.cols = b.cols
            c.n = <int32_t> b.rows
            c.slots = c.n
            c.hash = &hashes[0]
            with nogil:
                key_hash(&keys.spec, &c, &layout.layout)
        return result
    finally:
        batch_free(b)
        free(used)
