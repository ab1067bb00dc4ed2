"""What a keyed map is made of; keyed_state.pxd has its design and its functions.

Declarations only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t
from ordstream._core.ground.chunk cimport Arena, ChunkPool
from ordstream._core.ground.key_spec cimport KeySpec

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
    # of small whole numbers as keys (near_keys.pxd)
    int32_t* near          # slot + 1 by key, 0: ask the table; NULL: there is no index
    int64_t near_room      # its places
    int64_t near_strange   # rows whose keys it does not take
    int32_t near_never     # there will be none
