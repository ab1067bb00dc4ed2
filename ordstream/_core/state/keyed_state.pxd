"""The state of a partitioned stateful operator: one hash map per bucket, of key records (key_records.pxd).

The worker that holds the bucket owns the map.

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
e) Keys that are small whole numbers are found without a hash (near_keys.pxd).
f) Records that lie in one cache line, or in two, begin where they touch no further one.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Worker
from ordstream._core.ground.key_spec cimport KeySpec
from ordstream._core.state.keyed_map cimport (
    FIRST_CAPACITY, FIRST_RECORDS, LOOKUP_BLOCK, PREFETCH_ENTRIES, KeyedState, KeyEntry, LookupAhead,
)

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
