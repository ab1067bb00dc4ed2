"""Which columns are a key, and how a key record is laid out; the records are in state/keyed_state.pxd."""
from libc.stdint cimport int32_t

cdef struct KeySpec:
    int32_t ncols
    int32_t* column        # index in the input layout
    int32_t* type          # PhysicalType
    int32_t* offset        # of the field in a key record
    int32_t size           # bytes of a key record (multiple of 8)
    int32_t has_views
    int32_t simple         # one column without views
    int32_t words          # integers of 64 bits: field j of a record lies at 8 + 8 * j
