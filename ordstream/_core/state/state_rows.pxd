"""The state contract (kernel.pxd, f) for operators whose keys have states of fixed size: once for all of
them.

An operator gives four functions on one state (`StateCalls`, keyed_bucket.pxd); what walks over maps, finds
keys, counts rows and gives memory back is here. `rows_...` work on a map, `bucket_...` on a Bucket: its
map, or the one state of an operator without a key. These are a kernel's functions as they are
(`owner_bucket_state`).
"""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Failure, LayoutOwner, Worker
from ordstream._core.ground.kernel cimport Kernel, KernelOwner, StateCursor, state_export_t, state_rows_t
from ordstream._core.state.keyed_bucket cimport StateCalls
from ordstream._core.state.keyed_state cimport KeyedState, KeySpecOwner

cdef int row_reserve(Kernel* k, Worker* w, StateCursor* cursor, Chunk* out, Failure* f) noexcept nogil
cdef int32_t rows_export(Kernel* k, Worker* w, KeyedState* s, const StateCalls* calls, StateCursor* cursor,
                         Chunk* out, Failure* f) noexcept nogil
cdef int32_t rows_install(Kernel* k, void* bucket, KeyedState* s, const StateCalls* calls, Chunk* rows,
                          const int32_t* slots, int32_t n, Failure* f) noexcept nogil
cdef int32_t rows_remove(Kernel* k, void* bucket, KeyedState* s, const StateCalls* calls,
                         const Chunk* keys, const int32_t* slots, int32_t n) noexcept nogil
cdef int32_t bucket_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                           Failure* f) noexcept nogil
cdef int32_t bucket_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil
cdef int32_t bucket_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil


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


cdef inline int owner_bucket_state(KernelOwner owner, operator) except -1:
    """owner_state of a kernel whose buckets are of keyed_bucket.pxd."""
    return owner_state(owner, operator, bucket_export, bucket_install, bucket_remove)
