"""The state contract (kernel.pxd, f) for states that are a C struct with declared fields, one column each,
in a `Bucket` (keyed_bucket.pxd).

A record may have 8 bytes in front of the struct that become 1 when a tuple left something (`liveness`).
Without them a struct of zeros is that of a new key, and has no row.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor

cdef struct StructFields:
    # The first member of the kernel's context. Memory ownership: the kernel's owner.
    int32_t n
    int32_t liveness       # 0, or 8: bytes before the struct
    int32_t* offset        # of each field in the struct, in the order of the columns

cdef int32_t fields_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                           Failure* f) noexcept nogil
cdef int32_t fields_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil
cdef int32_t fields_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil
