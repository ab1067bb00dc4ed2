"""The state contract of sessions in slots. See slot_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, Worker, chunk_set_valid, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.deadlines cimport deadlines_drop
from ordstream._core.state.fold cimport F_COUNT
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK
from ordstream._core.state.row_values cimport row_null
from ordstream._core.state.session_slots cimport (
    COUNT_SHIFT, IS_NULL, KEY_WORD, LAST_WORD, META_WORD, START_WORD, TAKEN, MOST_WORDS, SlotBucket,
    SlotContext, slot_at, slot_find, slot_free, slot_of, slots_room, slots_settle,
)
from ordstream._core.state.state_rows cimport row_reserve

ctypedef const uint64_t* Slot

cdef enum:
    # Columns of a row.
    KEY = 0
    START = 1
    END = 2
    COUNT = 3
    FIRST_AGGREGATE = 4


cdef inline uint64_t word_at(const Chunk* rows, int32_t column, int32_t slot) noexcept nogil:
    return (<const uint64_t*> rows.cols[column].data)[slot]


cdef inline bint is_open(const uint64_t* slot) noexcept nogil:
    return slot[META_WORD] >> COUNT_SHIFT != 0


cdef inline int64_t place_of(const SlotContext* x, SlotBucket* b, const Chunk* rows,
                             int32_t slot) noexcept nogil:
    """The place of the slot (slot_at) of a row's key, or -1: it is not there."""
    if row_null(rows, KEY, slot):
        return b.capacity if b.null_slot[META_WORD] != 0 else -1
    return slot_find(b, x.shift, word_at(rows, KEY, slot))


cdef int put(const SlotContext* x, Worker* w, const Slot* slots, int32_t n, Chunk* out) noexcept nogil:
    """Append rows (reserved), column by column. 0, or -1: no memory."""
    cdef Slot slot
    cdef uint64_t* data
    cdef uint8_t* valid
    cdef uint64_t has
    cdef uint64_t all_have = 1
    cdef int32_t index = out.n
    cdef int32_t i
    cdef int32_t j
    for i in range(n):
        slot = slots[i]
        (<uint64_t*> out.cols[<int> KEY].data)[index + i] = slot[KEY_WORD]
        (<uint64_t*> out.cols[<int> START].data)[index + i] = slot[START_WORD] ^ x.sign
        (<uint64_t*> out.cols[<int> END].data)[index + i] = slot[LAST_WORD] ^ x.sign
        (<uint64_t*> out.cols[<int> COUNT].data)[index + i] = slot[META_WORD] >> COUNT_SHIFT
        all_have &= slot[META_WORD] & IS_NULL == 0
    if all_have == 0 and chunk_set_valid(w, out, KEY) != 0:
        return -1
    valid = out.cols[<int> KEY].valid
    for i in range(n if valid != NULL else 0):
        valid[index + i] = slots[i][META_WORD] & IS_NULL == 0
    for j in range(x.fold.n):
        data = <uint64_t*> out.cols[FIRST_AGGREGATE + j].data + index
        all_have = 1
        for i in range(n):
            has = (slots[i][META_WORD] >> j) & 1
            data[i] = slots[i][x.word[j]] & (0 - has)        # of no row: 0
            all_have &= has
        if x.fold.accumulators[j].function == F_COUNT:
            continue                                         # never null
        if all_have == 0 and chunk_set_valid(w, out, FIRST_AGGREGATE + j) != 0:
            return -1
        valid = out.cols[FIRST_AGGREGATE + j].valid
        for i in range(n if valid != NULL else 0):
            valid[index + i] = <uint8_t> ((slots[i][META_WORD] >> j) & 1)
    out.n = index + n
    return 0


cdef int32_t slots_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                          Failure* f) noexcept nogil:
    """Rows of open sessions. Contract: kernel.pxd (f)."""
    cdef const SlotContext* x = <const SlotContext*> k.ctx
    cdef SlotBucket* b = <SlotBucket*> state
    cdef int64_t all_of = b.capacity + 1 if cursor.keys == NULL else cursor.n
    cdef Slot[LOOKUP_BLOCK] found
    cdef int64_t end
    cdef int64_t place
    cdef int32_t n = 0
    cdef int32_t m
    if row_reserve(k, w, cursor, out, f) != 0:
        return -1
    while n < cursor.most and cursor.at < all_of:
        end = min(all_of, cursor.at + min(cursor.most - n, <int32_t> LOOKUP_BLOCK))
        m = 0
        if cursor.keys == NULL:
            while cursor.at < end:                           # no branch on which slots are free
                found[m] = slot_at(b, x.shift, cursor.at)
                m += is_open(found[m])
                cursor.at += 1
        else:
            while cursor.at < end:
                place = place_of(x, b, cursor.keys, cursor.slots[cursor.at])
                if place >= 0 and is_open(slot_at(b, x.shift, place)):
                    found[m] = slot_at(b, x.shift, place)
                    m += 1
                cursor.at += 1
        if m and put(x, w, found, m, out) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        n += m
    out.slots = out.n
    cursor.done = cursor.at >= all_of
    return n


cdef const char* read(const SlotContext* x, const Chunk* rows, int32_t row, uint64_t* slot) noexcept nogil:
    """Fill a zeroed slot from a row. NULL, or what no session has."""
    cdef bint has
    cdef int32_t column
    cdef int32_t j
    if row_null(rows, START, row) or row_null(rows, END, row) or row_null(rows, COUNT, row):
        return "the start, end or count of a session is null"
    slot[START_WORD] = word_at(rows, START, row) ^ x.sign
    slot[LAST_WORD] = word_at(rows, END, row) ^ x.sign
    if slot[LAST_WORD] < slot[START_WORD]:
        return "a session ends before it starts"
    if <int64_t> word_at(rows, COUNT, row) <= 0 or word_at(rows, COUNT, row) >> (64 - COUNT_SHIFT) != 0:
        return "the count of a session is 0, negative or too large"
    slot[META_WORD] = word_at(rows, COUNT, row) << COUNT_SHIFT | TAKEN
    if row_null(rows, KEY, row):
        slot[META_WORD] |= IS_NULL
    else:
        slot[KEY_WORD] = word_at(rows, KEY, row)
    for j in range(x.fold.n):
        column = FIRST_AGGREGATE + j
        has = not row_null(rows, column, row)
        if x.fold.accumulators[j].function == F_COUNT:
            if not has or <int64_t> word_at(rows, column, row) < 0:
                return "a count is null or negative"
            has = word_at(rows, column, row) != 0
        if has:
            slot[x.word[j]] = word_at(rows, column, row)
            slot[META_WORD] |= <uint64_t> 1 << j
    return NULL


cdef int32_t slots_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    cdef const SlotContext* x = <const SlotContext*> k.ctx
    cdef SlotBucket* b = <SlotBucket*> state
    cdef uint64_t[MOST_WORDS] read_slot
    cdef const char* wrong
    cdef uint64_t* slot
    cdef int64_t place
    cdef int32_t words = 1 << (x.shift - 3)
    cdef int32_t i
    cdef int32_t j
    deadlines_drop(&b.deadlines)
    for i in range(n):
        place = place_of(x, b, rows, slots[i])
        if place >= 0 and is_open(slot_at(b, x.shift, place)):
            failure_set(f, slots[i], FAIL_STATE, "the key is there already")
            return i
        memset(read_slot, 0, sizeof(read_slot))
        wrong = read(x, rows, slots[i], read_slot)
        if wrong != NULL:
            failure_set(f, slots[i], FAIL_STATE, wrong)
            return i
        if slots_room(x, b, 1) != 0:
            failure_set(f, slots[i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return i
        slot = b.null_slot
        if read_slot[META_WORD] & IS_NULL == 0:
            slot = slot_of(b, x.shift, read_slot[KEY_WORD], 0)
        for j in range(words):
            slot[j] = read_slot[j]
    return n


cdef int32_t slots_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    cdef const SlotContext* x = <const SlotContext*> k.ctx
    cdef SlotBucket* b = <SlotBucket*> state
    cdef int64_t place
    cdef int32_t there = 0
    cdef int32_t i
    deadlines_drop(&b.deadlines)
    for i in range(n):
        place = place_of(x, b, keys, slots[i])
        if place >= 0:
            there += is_open(slot_at(b, x.shift, place))
            slot_free(b, x.shift, place)
    slots_settle(x, b, b.count)
    return there
