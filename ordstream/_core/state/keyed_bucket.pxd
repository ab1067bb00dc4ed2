"""What keyed kernels with states of fixed size share: a bucket's map, or the one state of an operator
without a key.

An operator tells four things of one state (`StateCalls`). A kernel that needs more of a bucket has a struct
of its own that begins with a Bucket. Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.atomics cimport load_relaxed
from ordstream._core.ground.chunk cimport (
    PT_F32, PT_F64, PT_I16, PT_I32, PT_I64, PT_U16, PT_U32, PT_U64, Chunk, ChunkPool, Column, Failure,
    Worker, chunk_alloc,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.held_memory cimport Held, held_free
from ordstream._core.state.keyed_state cimport (
    KeyedState, KeySpec, keyed_bytes, keyed_free, keyed_init, keyed_state,
)

# Whether a tuple left something in a state. Zeroed memory: none did.
ctypedef bint (*state_alive_t)(Kernel*, const char* state) noexcept nogil
# Write a state into the columns behind the key of a reserved row. 0, or -1: no memory. Bytes are copied
# into out's arena.
ctypedef int (*state_write_t)(Kernel*, Worker*, const char* state, Chunk* out, int32_t index) noexcept nogil
# Fill a zeroed state of a bucket from a row. 0, or the FailureCode of the failure that was set; the state
# owns nothing then.
ctypedef int32_t (*state_read_t)(Kernel*, void* bucket, const Chunk* rows, int32_t slot, char* state,
                                 Failure*) noexcept nogil
# Give back what a state owns beside its own bytes; NULL: nothing.
ctypedef void (*state_drop_t)(Kernel*, void* bucket, char* state) noexcept nogil

cdef struct StateCalls:
    # Memory ownership: static.
    state_alive_t alive
    state_write_t write
    state_read_t read
    state_drop_t drop

cdef struct Bucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed       # PS
    char* single           # SF: the one state; NULL for PS
    int64_t state_size
    ChunkPool pool         # counts the bytes of the keys' strings; only `bytes` is used
    Held held              # what states own beside their own bytes
    const StateCalls* calls


cdef inline void* new_bucket_of(size_t size, const KeySpec* keys, int32_t state_size,
                                const StateCalls* calls) noexcept nogil:
    """`size` zeroed bytes that begin with a Bucket: with a map (keys not NULL), or one zeroed state. NULL:
    no memory. Ownership: the caller."""
    cdef Bucket* b = <Bucket*> calloc(1, size)
    if b == NULL:
        return NULL
    b.state_size = state_size
    b.calls = calls
    if keys == NULL:
        b.single = <char*> calloc(1, state_size + 8)
        if b.single != NULL:
            return b
    elif keyed_init(&b.keyed, keys, state_size, &b.pool) == 0:
        return b
    free(b)
    return NULL


cdef inline void* new_bucket(const KeySpec* keys, int32_t state_size,
                             const StateCalls* calls) noexcept nogil:
    """A Bucket without more. NULL: no memory. Ownership: the caller."""
    return new_bucket_of(sizeof(Bucket), keys, state_size, calls)


cdef inline void free_bucket(Kernel* k, void* state) noexcept nogil:
    """Give a bucket back, and what its states own: they say so by `held`."""
    cdef Bucket* b = <Bucket*> state
    cdef int64_t slot
    if b.held.bytes and b.single != NULL:
        b.calls.drop(k, state, b.single)
    elif b.held.bytes:
        for slot in range(b.keyed.count):
            b.calls.drop(k, state, keyed_state(&b.keyed, slot))
    held_free(&b.held)
    if b.single == NULL:
        keyed_free(&b.keyed)
    free(b.single)
    free(b)


cdef inline int64_t bytes_of_bucket(Kernel* k, void* state) noexcept nogil:
    cdef Bucket* b = <Bucket*> state
    if b.single != NULL:
        return b.state_size + b.held.bytes
    return keyed_bytes(&b.keyed) + load_relaxed(&b.pool.bytes) + b.held.bytes   # statistic; no partner


cdef inline int normal_keys(const KeySpec* keys, Worker* w, Chunk* c, Column* to) noexcept nogil:
    """The key columns of a chunk as output columns: floats in their normal form (-0.0 is 0.0).

    Thread safety: the chunk's owner. Ownership: new columns lie in the chunk's arena. Returns: 0, or -1: no
    memory. Cost: a pass per float column.
    """
    cdef int32_t type
    cdef int32_t i
    cdef int32_t j
    cdef char* data
    for j in range(keys.ncols):
        to[j] = c.cols[keys.column[j]]
        type = keys.type[j]
        if type == PT_F64 or type == PT_F32:
            data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
            if data == NULL:
                return -1
            for i in range(c.slots):
                if type == PT_F64:
                    (<double*> data)[i] = (<const double*> to[j].data)[i] + 0.0
                else:
                    (<float*> data)[i] = (<const float*> to[j].data)[i] + <float> 0.0
            to[j].data = data
    return 0


cdef inline void put_word(char* data, int32_t type, int64_t index, int64_t word) noexcept nogil:
    """Write a widened value (floats: bits of a double) as its physical type. The value is in range."""
    cdef double real
    if type == PT_I64 or type == PT_U64 or type == PT_F64:
        (<int64_t*> data)[index] = word
    elif type == PT_I32 or type == PT_U32:
        (<int32_t*> data)[index] = <int32_t> word
    elif type == PT_F32:
        memcpy(&real, &word, 8)
        (<float*> data)[index] = <float> real
    elif type == PT_I16 or type == PT_U16:
        (<short*> data)[index] = <short> word
    else:
        data[index] = <char> word
