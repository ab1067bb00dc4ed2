"""Open sessions in slots of one cache line: the key and the session's state side by side.

For sessions with one 64-bit key column whose aggregates cannot fail. `SessionKernel`
(kernels/sessionize.pyx) decides which operators qualify: find_copies, takes_words and use_slots.

a) A slot has 4 words, and one more per aggregate whose value is read downstream, rounded up to 32, 64 or 128
   bytes: key, time of the latest tuple, start, and one word with the number of tuples and a bit per
   aggregate that has a value. A lookup finds the session itself: one cache miss, one comparison.
b) Open addressing, linear probing, load <= 0.5. A key keeps its slot when a row closes its session, since
   that row opens the next one. A key whose session a time punctuation closes is forgotten: the slots
   behind its slot move up, so that no chain of slots has a gap. The null key has a slot of its own
   outside the table.
   Which sessions a time punctuation closes is told by deadlines.pxd, by key, from the first one on.
c) Rows are processed in blocks: while one block is processed, the slots of the next one are prefetched.
d) The loop over rows has no branch on whether a session closes, which differs from row to row. Every row
   copies its slot to the place of the next closed session, and only a session that closes advances that
   place.
e) If the next operator is a filter that tests only which aggregates are null, the sessions that it would
   drop are not emitted (ordstream.plan.stages.passing_sessions).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.state.deadlines cimport Deadlines
from ordstream._core.state.fold cimport FOLD_GROUP, Fold
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK
from ordstream._core.ground.kernel cimport Kernel

cdef enum:
    # Words of a slot.
    KEY_WORD = 0
    # time of the latest tuple, ^ SlotContext.sign. 0 where the slot is free
    LAST_WORD = 1
    START_WORD = 2         # time of the first one, likewise
    # tuples << COUNT_SHIFT | IS_NULL | TAKEN | a bit per aggregate that has a value; 0: the slot is free
    META_WORD = 3
    FIRST_VALUE = 4
    TAKEN = 1 << 8
    IS_NULL = 1 << 9       # the key is null
    COUNT_SHIFT = 10
    MOST_WORDS = 16        # of a slot

cdef struct SlotColumn:
    # An output column and what it is made of.
    int32_t column
    int32_t word           # values: of the slot
    int32_t bit            # of META_WORD: says whether there is a value; -1: there always is one

cdef struct SlotContext:
    # Read-only while a run lasts. Memory ownership: the kernel's owner.
    const Fold* fold
    int32_t key            # input column
    int32_t time           # input column
    int32_t conditions     # column of the aggregates' bits (fold_prepare): behind the input's
    int32_t shift          # a slot has 1 << shift bytes
    uint64_t sign          # makes times compare as unsigned numbers
    uint64_t timeout
    uint32_t kept          # aggregates whose values are kept, a bit each
    int32_t[8] word        # of each of these: FOLD_GROUP
    int32_t makes_key      # 0: nothing reads the key
    int32_t nvalues
    int32_t nflags
    SlotColumn[11] values  # columns that are made
    SlotColumn[8] flags    # columns that may be null, whether or not their values are made
    # by the bits of META_WORD; 0: such a session is not emitted, the next operator would drop it
    uint8_t[256] passes

cdef struct SlotBucket:
    # State of one bucket. Memory ownership: the runtime, through slots_new / slots_free.
    char* table
    int64_t capacity       # slots, power of two
    int64_t count          # slots taken
    Deadlines* deadlines   # of the keys in the table; NULL: none yet. Owned
    uint64_t[MOST_WORDS] null_slot


cdef extern from "key_tools.hpp" nogil:
    uint64_t ord_fold(uint64_t a, uint64_t b)


cdef inline uint64_t* slot_at(SlotBucket* b, int32_t shift, int64_t i) noexcept nogil:
    """The i-th slot of the table; behind the last one: that of the null key."""
    return <uint64_t*> (b.table + (i << shift)) if i < b.capacity else b.null_slot


cdef struct Staged:
    # Sessions that closed, in order, until their columns are written.
    uint64_t[(LOOKUP_BLOCK + 1) * MOST_WORDS] words


cdef inline uint64_t slot_hash(uint64_t key) noexcept nogil:
    """The place at which the search for a key's slot starts. It is not the hash that chose the bucket: a new
    one is cheaper than a load."""
    return ord_fold(key ^ <uint64_t> 0xA0761D6478BD642F, <uint64_t> 0xE7037ED1A0B428DB)


cdef int64_t slot_find(SlotBucket* b, int32_t shift, uint64_t key) noexcept nogil
cdef uint64_t* slot_of(SlotBucket* b, int32_t shift, uint64_t key, uint64_t time) noexcept nogil
cdef void slot_up(SlotBucket* b, int32_t shift, int64_t i) noexcept nogil
cdef void slot_free(SlotBucket* b, int32_t shift, int64_t i) noexcept nogil
cdef int slots_room(const SlotContext* x, SlotBucket* b, int64_t more) noexcept nogil
cdef void slots_settle(const SlotContext* x, SlotBucket* b, int64_t most) noexcept nogil
cdef void slots_setup(SlotContext* x) noexcept nogil
cdef void* slots_new(Kernel* k, int32_t bucket) noexcept nogil
cdef void slots_free(Kernel* k, void* state) noexcept nogil
cdef int64_t slots_bytes(Kernel* k, void* state) noexcept nogil
cdef int slots_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil
cdef int32_t slots_process(Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n,
                           Chunk* out,
                           Failure* f) noexcept nogil
cdef int slots_validity(const SlotContext* x, Worker* w, const Chunk* c, Chunk* out) noexcept nogil
cdef void slots_write(const SlotContext* x, const uint64_t* staged, int32_t n, Chunk* out) noexcept nogil
