"""The state of a top-k: the latest row of each key, which of them are the best, and the window. What it
emits, and why it is kept so, is in kernels/top_k.pyx; its rows of state are in top_rows.pyx.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from ordstream._core.ground.blocks cimport Blocks
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.ascending_rows cimport AscendingRows, AscendingSpec
from ordstream._core.state.keyed_state cimport KeyedState, KeySpec, keyed_state
from ordstream._core.state.ordered_places cimport OrdPlaces

cdef struct Entry:
    # State of a key, followed by the row: per column 16 bytes (views) or 8, then one validity byte per
    # column.
    int64_t rank
    int64_t place          # in the heap, plus 1; 0: not in it

cdef struct TopContext:
    # Read-only while a run lasts. Memory ownership: TopKernel (kernels/top_k.pyx).
    const KeySpec* keys
    int64_t k
    int32_t by
    int32_t by_type
    int32_t grows
    int32_t once           # 1: no two rows of a window have one key, and they can be kept as they come
    AscendingSpec as_they_come
    int32_t window         # input column; -1: one window for all
    int32_t window_type
    int32_t updates        # 1: each row among the best is emitted
    int32_t ranked         # 1: the rank is a last column
    int32_t ncols
    int32_t state_size
    int32_t* offset        # of each column in a state
    int32_t* width         # bytes per value of each column
    int32_t* bytes         # per element of what a view points to; 0: no view
    int32_t* state_column  # of each column in a row of state

cdef struct TopBucket:
    # The state. Memory ownership: the runtime, through bucket_new / bucket_free.
    AscendingRows rows     # once: those of the window, unless `mapped`; nothing is in the map then
    int32_t mapped         # 1: the window's rows are in the map
    int32_t unordered      # 1: keys came that did not ascend, so rows are not kept as they come any more
    KeyedState keyed
    Blocks blocks          # bytes of strings and lists in the rows
    int64_t* heap          # grows: record slots; a heap, worst first, once there are k
    int64_t size           # of the heap
    int64_t room           # of its memory, at most k
    int64_t threshold      # rank of the worst in a full heap, else INT64_MIN
    OrdPlaces* places      # not grows, updates: all keys in order
    int64_t window         # the latest (unsigned ones with the upper bit turned)
    int32_t in_window      # 1: there was a row


cdef inline Entry* entry_of(TopBucket* b, int64_t slot) noexcept nogil:
    return <Entry*> keyed_state(&b.keyed, slot)


cdef void ranks_of(const TopContext* x, const Chunk* c, const int32_t* rows, int32_t n,
                   int64_t* ranks) noexcept nogil
cdef int put_row(const TopContext* x, Worker* w, const Entry* e, Chunk* out, int32_t index,
                 const int32_t* columns, bint copies) noexcept nogil
cdef int to_map(const TopContext* x, TopBucket* b) noexcept nogil
cdef int64_t take(const TopContext* x, TopBucket* b, const Chunk* c, int32_t row, int64_t rank, char* key,
                  int64_t* slot) noexcept nogil
cdef int next_window(const TopContext* x, TopBucket* b) noexcept nogil
cdef int begin_anew(const TopContext* x, TopBucket* b) noexcept nogil
cdef void* top_new(Kernel* k, int32_t bucket) noexcept nogil
cdef void top_free(Kernel* k, void* state) noexcept nogil
cdef int64_t top_bytes(Kernel* k, void* state) noexcept nogil
