"""Keys of partitioned stateful operators in normal form.

A *key record* is the normal form of a key: 8 bytes of null bits (bit j set: key column j is null), then per
key column 8 bytes (integers, dates, bool widened to int64; float64 bits with -0.0 as 0.0 and one NaN) or a
16-byte View (strings; bytes owned by the bucket's string heap). A null column's field is zero. Records
compare as Arrow sorts: nulls first, NaN last, strings by bytes.
"""
from libc.stdint cimport int32_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, Layout, Worker
from ordstream._core.ground.key_spec cimport KeySpec

cdef void key_hash(const KeySpec* ks, Chunk* c, const Layout* layout) noexcept nogil
cdef uint64_t key_hash_row(const KeySpec* ks, const Chunk* c, int32_t row) noexcept nogil
cdef uint64_t key_hash_record(const KeySpec* ks, const char* record) noexcept nogil
cdef int key_compare(const KeySpec* ks, const char* a, const char* b) noexcept nogil
cdef void key_read(const KeySpec* ks, const Chunk* c, int32_t row, char* record) noexcept nogil
cdef int key_store(const KeySpec* ks, const char* record, Worker* w, Chunk* out,
                   int32_t index) noexcept nogil
cdef int key_copy(const KeySpec* ks, const char* record, Worker* w, Chunk* out, char* to) noexcept nogil
cdef bint key_equals(const KeySpec* ks, const Chunk* c, int32_t row, const char* record) noexcept nogil
