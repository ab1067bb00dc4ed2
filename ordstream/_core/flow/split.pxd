"""Split: divide a chunk's rows by bucket, in the producing worker, before the serial section.

Hash partitioning takes the upper half of the 64-bit key hash times p (the keyed map uses other bits); range
partitioning finds the first bound above the key (ordered paper, section 2.1: the user gives key and
strategy). Null and NaN keys go to bucket 0 and p - 1 under ranges.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Layout, Worker
from ordstream._core.state.keyed_state cimport KeySpec

cdef struct Partitioner:
    const KeySpec* keys
    const Layout* layout   # of the operator's input
    int32_t p
    int32_t by_range       # 0: hash
    int32_t keeps_hash     # 0: nobody reads c.hash, it need not be written
    int32_t nbounds        # p - 1
    int32_t column         # range: key column
    int32_t is_float       # range: bounds are doubles
    const int64_t* int_bounds
    const double* float_bounds

cdef int split_chunk(const Partitioner* pt, Worker* w, Chunk* c) noexcept nogil
cdef int split_everywhere(int32_t p, Worker* w, Chunk* c) noexcept nogil
