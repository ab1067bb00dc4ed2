"""State of operators that keep the last rows of a key (kernels/kept_rows.pyx): buckets, and the same as rows
of state. Contract: kernel.pxd (b), (f).
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.state.deadlines cimport Deadlines
from ordstream._core.state.kept_ring cimport RingSpec
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.state.lent_rows cimport LentRows
from ordstream._core.state.row_queue cimport RowSpec

cdef enum Mode:
    LAG = 0
    LEAD = 1
    TAIL = 2
    FIRST = 3
    LAST = 4

cdef struct KeptBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    Deadlines* deadlines   # with `within`; NULL: none yet. Owned
    LentRows lent
    int64_t since          # rows that came since lent ones were copied

cdef struct KeptContext:
    # Read-only while a run lasts. Memory ownership: KeptRowsKernel.
    const KeySpec* keys    # NULL: SF
    Mode mode
    int32_t n              # most rows
    int32_t lends          # rows may stay in their batches
    const RowSpec* kept
    RingSpec ring          # of them
    int32_t ninput         # input columns
    const int32_t* width   # of output columns
    int32_t nbeside        # LEAD: columns of the row behind
    int32_t* beside        # input column of each
    int32_t time           # input column; -1: no `within`
    int32_t time_type
    int64_t within
    int64_t period         # of the marks that it looks at: 1 for all

cdef void drop_rows(Kernel* k, void* bucket, char* state) noexcept nogil
cdef void* kept_new(Kernel* k, int32_t bucket) noexcept nogil
cdef void kept_free(Kernel* k, void* state) noexcept nogil
cdef int64_t kept_bytes(Kernel* k, void* state) noexcept nogil
cdef void find_lender(KeptContext* x, Kernel* k, Worker* w, KeptBucket* b, const Chunk* c,
                      int32_t n) noexcept nogil
cdef int32_t kept_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                         Failure* f) noexcept nogil
cdef int32_t kept_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil
cdef int32_t kept_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil
