"""The state contract (kernel.pxd, f) for states that are a C struct with declared fields, one column each,
in a `Bucket` (keyed_bucket.pxd).

A record may have 8 bytes in front of the struct that become 1 when a tuple left something (`liveness`).
Without them a struct of zeros is that of a new key, and has no row.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.keyed_bucket cimport StateCalls

cdef struct StructFields:
    # The first member of the kernel's context. Memory ownership: the kernel's owner.
    int32_t n
    int32_t liveness       # 0, or 8: bytes before the struct
    int32_t* offset        # of each field in the struct, in the order of the columns

cdef StateCalls FIELDS     # rows (key..., fields...)
cdef bint any_field(Kernel* k, const char* state) noexcept nogil
