"""The state contract (kernel.pxd, f) for operators whose keys have states of fixed size: once for all of
them.

An operator gives four functions on one state (`StateCalls`); what walks over maps, finds keys, counts rows
and gives memory back is here. `rows_...` work on a map, `bucket_...` on a Bucket (keyed_bucket.pxd): its
map, or the one state of an operator without a key.
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, LayoutOwner, Worker
from ordstream._core.ground.kernel cimport Kernel, KernelOwner, StateCursor, state_export_t, state_rows_t
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.keyed_state cimport KeyedState, KeySpecOwner

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

cdef int row_reserve(Kernel* k, Worker* w, StateCursor* cursor, Chunk* out, Failure* f) noexcept nogil
cdef int32_t rows_export(Kernel* k, Worker* w, KeyedState* s, const StateCalls* calls, StateCursor* cursor,
                         Chunk* out, Failure* f) noexcept nogil
cdef int32_t rows_install(Kernel* k, void* bucket, KeyedState* s, const StateCalls* calls, Chunk* rows,
                          const int32_t* slots, int32_t n, Failure* f) noexcept nogil
cdef int32_t rows_remove(Kernel* k, void* bucket, KeyedState* s, const StateCalls* calls,
                         const Chunk* keys, const int32_t* slots, int32_t n) noexcept nogil
cdef int32_t bucket_export(Kernel* k, Worker* w, Bucket* b, const StateCalls* calls, StateCursor* cursor,
                           Chunk* out, Failure* f) noexcept nogil
cdef int32_t bucket_install(Kernel* k, Bucket* b, const StateCalls* calls, Chunk* rows,
                            const int32_t* slots, int32_t n, Failure* f) noexcept nogil
cdef int32_t bucket_remove(Kernel* k, Bucket* b, const StateCalls* calls, const Chunk* keys,
                           const int32_t* slots, int32_t n) noexcept nogil


cdef inline int owner_state(
    KernelOwner owner, operator, state_export_t export, state_rows_t install, state_rows_t remove,
) except -1:
    """Fill the fields of `owner.kernel` that are the state contract (kernel.pxd, f), for rows of
    `operator.state_schema()`.

    Thread safety: construction only, with the GIL. Ownership: the owner keeps layout and keys. Raises:
    TypeError for a type that has no physical class. Cost: one pass over the schema.
    """
    from ordstream._core.ground.chunk import layout_of

    owner.state_layout = layout_of(operator.state_schema())
    owner.kernel.state = &(<LayoutOwner> owner.state_layout).layout
    if operator.key:
        owner.state_keys = KeySpecOwner(range(len(operator.key)), owner.state_layout.types)
        owner.kernel.state_keys = &(<KeySpecOwner> owner.state_keys).spec
    owner.kernel.state_export = export
    owner.kernel.state_install = install
    owner.kernel.state_remove = remove
    return 0
