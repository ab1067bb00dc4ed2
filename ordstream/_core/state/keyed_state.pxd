"""Keys and the state of a partitioned stateful operator: one hash map per bucket.

The worker that holds the bucket owns the map.

A *key record* is the normal form of a key: 8 bytes of null bits (bit j set: key column j is null), then per
key column 8 bytes (integers, dates, bool widened to int64; float64 bits with -0.0 as 0.0 and one NaN) or a
16-byte View (strings; bytes owned by the bucket's string heap). A null column's field is zero. Records
compare as Arrow sorts: nulls first, NaN last, strings by bytes.

a) Open addressing, linear probing, load <= 0.5. An entry is 8 bytes: 32 bits of the hash and the record.
   Keys leave through keyed_rows.pxd, which keeps slots dense and chains of cells without gaps: lookups know
   nothing of removal.
b) The hash is a function of the normal form alone: the same in every process and on every machine of one
   byte order. The table uses its lower half (all of it is kept in the entry, so that growing reads no
   record), the bucket its upper half (split.pyx).
c) A matching entry is a candidate: the record's key always decides.
d) Lookups go in blocks of three passes, so that cache misses overlap: prefetch entries; find candidates and
   prefetch their records; compare keys. A caller that goes through many rows block by block has the entries
   of the next block prefetched while it works on this one (`keyed_lookup_block`). No prefetching while the
   table is small.
e) Records that lie in one cache line, or in two, begin where they touch no further one.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from ordstream._core.ground.chunk cimport Arena, Chunk, ChunkPool, Layout, Worker
from ordstream._core.ground.key_spec cimport KeySpec
from ordstream._core.ground.mixing cimport mix64 as mix   # the hash of a key of one column of 64 bits

cdef enum:
    LOOKUP_BLOCK = 64      # rows whose lookups overlap
    FIRST_CAPACITY = 64    # entries of an empty map
    FIRST_RECORDS = 32
    PREFETCH_ENTRIES = 8192  # tables of at least this capacity (64 KiB) are prefetched

cdef struct KeyEntry:
    uint32_t tag           # lower half of the hash
    int32_t record         # slot + 1; 0 = empty

cdef struct LookupAhead:
    # Hashes of the next block, carried from one keyed_lookup_block to the next. Set n = 0 before the first.
    int32_t n              # rows whose tags are here, and whose entries were prefetched
    uint32_t[LOOKUP_BLOCK] tags

cdef struct KeyedState:
    # Memory ownership: owns table, records and heap. One worker at a time.
    const KeySpec* keys
    int64_t capacity       # entries, power of two
    int64_t limit          # keys at which the table grows: capacity / 2
    KeyEntry* table
    int64_t count          # keys; their slots are 0..count-1, in order of first arrival till one is removed
    int64_t reserved       # records allocated
    char* records          # [key | state] of `stride` bytes, by slot; moves when it grows
    int32_t state_size
    int32_t stride         # keys.size + state_size, then what record_stride adds
    Arena heap             # string bytes of keys
    ChunkPool* pool
    int64_t unused         # bytes of the heap whose keys were removed

cdef void key_hash(const KeySpec* ks, Chunk* c, const Layout* layout) noexcept nogil
cdef uint64_t key_hash_row(const KeySpec* ks, const Chunk* c, int32_t row) noexcept nogil
cdef uint64_t key_hash_record(const KeySpec* ks, const char* record) noexcept nogil
cdef int key_compare(const KeySpec* ks, const char* a, const char* b) noexcept nogil
cdef void key_read(const KeySpec* ks, const Chunk* c, int32_t row, char* record) noexcept nogil
cdef int key_store(const KeySpec* ks, const char* record, Worker* w, Chunk* out,
                   int32_t index) noexcept nogil
cdef int key_copy(const KeySpec* ks, const char* record, Worker* w, Chunk* out, char* to) noexcept nogil

cdef bint key_equals(const KeySpec* ks, const Chunk* c, int32_t row, const char* record) noexcept nogil

cdef int keyed_init(KeyedState* s, const KeySpec* ks, int32_t state_size, ChunkPool* pool) noexcept nogil
cdef int keyed_init_for(
    KeyedState* s, const KeySpec* ks, int32_t state_size, ChunkPool* pool, int64_t capacity, int64_t reserved
) noexcept nogil
cdef void keyed_free(KeyedState* s) noexcept nogil
cdef int keyed_lookup(KeyedState* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                      int32_t* out_slots) noexcept nogil
cdef int keyed_lookup_block(KeyedState* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                            int32_t following, LookupAhead* ahead, int32_t* out_slots) noexcept nogil
cdef int64_t keyed_upsert(KeyedState* s, const Chunk* c, int32_t row, uint64_t hash) noexcept nogil
cdef int keyed_reserve(KeyedState* s, int64_t more) noexcept nogil
cdef int64_t keyed_bytes(const KeyedState* s) noexcept nogil


cdef inline char* keyed_record(KeyedState* s, int64_t slot) noexcept nogil:
    return s.records + slot * s.stride


cdef inline char* keyed_state(KeyedState* s, int64_t slot) noexcept nogil:
    return s.records + slot * s.stride + s.keys.size


cdef class KeySpecOwner:
    # Memory ownership: allocates and frees the arrays of `spec`.
    cdef KeySpec spec
