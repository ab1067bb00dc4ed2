"""Open sessions of a keyed map as rows, (key..., start, end, count, lists..., aggregates...), and how closed
ones leave it. What adds rows to them is kernels/sessionize.pyx.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport PT_U64, Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.state.deadlines cimport Deadlines
from ordstream._core.state.fold cimport Fold
from ordstream._core.state.kept_lists cimport KeptList, ListBlocks
from ordstream._core.state.keyed_state cimport KeyedState, KeySpec
from ordstream._core.state.listed_values cimport OrdGatherSpec

cdef enum:
    INLINE_BYTES = 32      # of a list that lie in the record
    FIRST_CLASS = 6        # smallest block: 64 bytes

cdef struct Collected:
    # The values of one column of an open session.
    KeptList list
    char[INLINE_BYTES] first

cdef struct Session:
    # Followed by the state of the aggregates (Fold.size bytes) and one Collected per collected column.
    int64_t start          # time of the first tuple
    int64_t last           # time of the latest tuple
    int64_t count          # of its tuples; 0: no session is open

cdef struct Copied:
    # An output column that is 8 bytes of the record, or (validity of an aggregate) one.
    int32_t column
    int32_t offset         # in the record

cdef struct SessionContext:
    # Read-only while a run lasts. Memory ownership: SessionKernel.
    const KeySpec* keys
    int32_t time           # input column
    int32_t time_type
    int32_t n              # collected columns
    int32_t* column        # input column of each
    int32_t* width         # bytes per value of each; of a packed list 1
    OrdGatherSpec* element  # of each (listed_values.pxd)
    int32_t* packed        # whether a list is kept as the bytes of a packed one, behind its count
    int64_t timeout
    const Fold* fold       # aggregates
    int32_t lists          # offset of the first Collected behind the Session
    int32_t conditions     # column of the aggregates' first bits (fold_prepare): behind the input's
    int32_t plain_key      # one 64-bit key column: written without a call
    int32_t plain          # 1: a session is emitted by copying `values` and `flags`, and writing its key
    int32_t makes_key      # 0: nothing reads the key
    int32_t nvalues
    int32_t nflags
    Copied* values
    Copied* flags          # aggregates that may be null

cdef struct SessionBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    ListBlocks lists       # long ones
    Deadlines* deadlines   # NULL: none yet. Owned


cdef inline Collected* collected_of(const SessionContext* x, Session* s, int32_t j) noexcept nogil:
    return (<Collected*> (<char*> s + x.lists)) + j


cdef inline char* aggregates_of(Session* s) noexcept nogil:
    return <char*> (s + 1)


cdef inline bint earlier(const SessionContext* x, int64_t time, int64_t last) noexcept nogil:
    return <uint64_t> time < <uint64_t> last if x.time_type == PT_U64 else time < last


cdef inline uint64_t ordered_time(const SessionContext* x, int64_t time) noexcept nogil:
    """A time as an unsigned word in the order of times."""
    return <uint64_t> time ^ (0 if x.time_type == PT_U64 else <uint64_t> 1 << 63)


cdef int collected_store(const SessionContext* x, Session* s, int32_t j, Worker* w, Chunk* out,
                         int32_t column, int32_t index) noexcept nogil
cdef void sessions_settle(const SessionContext* x, SessionBucket* b, int64_t keys,
                          int64_t listed) noexcept nogil
cdef int32_t sessions_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                             Failure* f) noexcept nogil
cdef int32_t sessions_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots,
                              int32_t n, Failure* f) noexcept nogil
cdef int32_t sessions_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots,
                             int32_t n, Failure* f) noexcept nogil
