"""How sessions in slots close. See slot_closing.pxd."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, TIME, Chunk, Failure, Worker, chunk_alloc, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.deadlines cimport (
    DUE_AHEAD, Deadline, deadlines_drop, deadlines_new, due_before,
)
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK
from ordstream._core.state.session_slots cimport (
    COUNT_SHIFT, IS_NULL, KEY_WORD, LAST_WORD, META_WORD, SlotBucket, SlotContext, Staged, slot_at,
    slot_find, slot_free, slot_hash, slot_up, slots_settle, slots_validity, slots_write,
)


cdef inline bint is_due(const SlotContext* x, const uint64_t* slot, bint final,
                        uint64_t before) noexcept nogil:
    """Whether there is an open session that closes now: at the end of the stream, or because its latest
    tuple is of before a time."""
    return slot[META_WORD] >> COUNT_SHIFT != 0 and (final or slot[LAST_WORD] < before)


cdef struct Closing:
    # Sessions that a punctuation closes, on their way into its chunk.
    Staged staged
    int32_t n              # staged
    uint64_t* record       # the next key record
    bint final


cdef int closing_begin(const SlotContext* x, Kernel* k, Worker* w, int64_t most, bint final, Chunk* out,
                       Closing* t, Failure* f) noexcept nogil:
    """Room for so many sessions. 0, or -1: no memory (f is filled)."""
    t.n = 0
    t.final = final
    t.record = NULL
    if most <= 0x7fffffff and flush_reserve(w, out, k.output, <int32_t> most) == 0:
        t.record = <uint64_t*> chunk_alloc(w, out, most * 16 + 16)
    if t.record == NULL or slots_validity(x, w, NULL, out) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return 0


cdef void closing_write(const SlotContext* x, Closing* t, Chunk* out) noexcept nogil:
    """Write the staged sessions."""
    if t.n:
        slots_write(x, t.staged.words, t.n, out)
    t.n = 0


cdef inline void close_slot(const SlotContext* x, const uint64_t* slot, Closing* t,
                            Chunk* out) noexcept nogil:
    """Emit the session of a slot, unless the next operator would drop it."""
    cdef int32_t words = 1 << (x.shift - 3)
    if slot[META_WORD] >> COUNT_SHIFT == 0 or x.passes[slot[META_WORD] & 255] == 0:
        return
    t.record[0] = slot[META_WORD] & IS_NULL != 0             # a key record: keyed_state.pxd
    t.record[1] = slot[KEY_WORD]
    out.origin[out.n + t.n] = 0
    out.flush_time[out.n + t.n] = 0 if t.final else <int64_t> (slot[LAST_WORD] ^ x.sign)
    out.flush_key[out.n + t.n] = <char*> t.record
    t.record += 2
    memcpy(&t.staged.words[t.n * words], slot, <size_t> words * 8)
    t.n += 1
    if t.n == LOOKUP_BLOCK:
        closing_write(x, t, out)


cdef int close_many(const SlotContext* x, Kernel* k, Worker* w, SlotBucket* b, bint final, uint64_t before,
                    Chunk* out, Failure* f) noexcept nogil:
    """Close what is due by going over all slots. 0, or -1: no memory."""
    cdef Closing t
    cdef uint64_t* slot
    cdef int64_t due = 0
    cdef int64_t start = 0
    cdef int64_t at
    cdef int64_t i
    cdef bint gap = False                                    # a key went behind the last slot that was free
    for i in range(b.capacity + 1):
        if stop_due(w, i):
            return 0
        slot = slot_at(b, x.shift, i)
        due += is_due(x, slot, final, before) and x.passes[slot[META_WORD] & 255] != 0
    if closing_begin(x, k, w, due, final, out, &t, f) != 0:
        return -1
    # One way round, from a free slot on: where a key went, those behind it that belong before the gap move.
    while slot_at(b, x.shift, start)[META_WORD] != 0:
        start += 1
    for i in range(b.capacity + 1):
        if stop_due(w, i):
            return 0
        at = (start + i) & (b.capacity - 1) if i < b.capacity else b.capacity
        slot = slot_at(b, x.shift, at)
        if slot[META_WORD] == 0:
            gap = False
        elif is_due(x, slot, final, before):
            close_slot(x, slot, &t, out)
            slot[META_WORD] = 0
            slot[LAST_WORD] = 0
            b.count -= i < b.capacity
            gap = True
        elif gap and i < b.capacity:
            slot_up(b, x.shift, at)
    closing_write(x, &t, out)
    return 0


cdef int arm_all(SlotBucket* b, Worker* w, int32_t shift) noexcept nogil:
    """Entries for all keys of the table, where there are none yet. 0, or -1: no memory."""
    cdef const uint64_t* slot
    cdef int64_t i
    if b.deadlines != NULL:
        return 0
    b.deadlines = deadlines_new()
    if b.deadlines == NULL:
        return -1
    for i in range(b.capacity):
        if stop_due(w, i):
            return 0
        slot = slot_at(b, shift, i)
        if slot[META_WORD] != 0 and b.deadlines.put(slot[LAST_WORD], slot[KEY_WORD]) != 0:
            return -1
    return 0


cdef int64_t find_due(const SlotContext* x, SlotBucket* b, Worker* w, uint64_t before) noexcept nogil:
    """The keys of the table that are due, the first of b.deadlines.due(): how many. The others get a new
    entry. -1: no memory."""
    cdef int64_t mask = b.capacity - 1
    cdef const uint64_t* slot
    cdef Deadline* due
    cdef int64_t count
    cdef int64_t n = 0
    cdef int64_t place
    cdef int64_t i
    if arm_all(b, w, x.shift) != 0 or b.deadlines.passes(before) != 0:
        return -1
    due = b.deadlines.due()
    count = b.deadlines.due_count()
    for i in range(count):
        if stop_due(w, i):
            return 0
        if i + DUE_AHEAD < count:
            place = <int64_t> slot_hash(due[i + DUE_AHEAD].of) & mask
            prefetch_write(b.table + (place << x.shift))
        place = slot_find(b, x.shift, due[i].of)
        if place < 0:
            continue
        slot = slot_at(b, x.shift, place)
        if slot[LAST_WORD] < before:
            due[n] = due[i]
            n += 1
        elif b.deadlines.put(slot[LAST_WORD], due[i].of) != 0:
            return -1
    return n


cdef int close_due(const SlotContext* x, Kernel* k, Worker* w, SlotBucket* b, int64_t n, uint64_t before,
                   Chunk* out, Failure* f) noexcept nogil:
    """Close the n sessions that find_due gave, and that of the null key. 0, or -1: no memory."""
    cdef Closing t
    cdef const Deadline* due = b.deadlines.due()
    cdef bint null_due = is_due(x, b.null_slot, False, before)
    cdef int64_t place
    cdef int64_t i
    if n + null_due == 0:
        return 0
    if closing_begin(x, k, w, n + null_due, False, out, &t, f) != 0:
        return -1
    for i in range(n):
        if stop_due(w, i):
            return 0
        place = slot_find(b, x.shift, due[i].of)
        if place >= 0:                                       # it is: a key has one entry
            close_slot(x, slot_at(b, x.shift, place), &t, out)
            slot_free(b, x.shift, place)
    if null_due:
        close_slot(x, b.null_slot, &t, out)
        slot_free(b, x.shift, b.capacity)
    closing_write(x, &t, out)
    return 0


cdef int slots_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                         Failure* f) noexcept nogil:
    """Emit open sessions: all of them at the end of the stream, at a time punctuation those that no tuple
    could still extend, whose keys are then forgotten.

    Thread safety: the bucket's holder. Ownership: outputs own their key records. Returns: 0, or -1: no
    memory. Cost: at the end a pass over the bucket's slots; at a time per key that goes two cache misses and
    a hash per key behind it, per key that is looked at in vain one.
    """
    cdef const SlotContext* x = <const SlotContext*> k.ctx
    cdef SlotBucket* b = <SlotBucket*> state
    cdef int64_t keys = b.count
    cdef uint64_t before
    cdef int64_t n
    if punctuation.kind == END_OF_STREAM:
        return close_many(x, k, w, b, True, 0, out, f)
    if punctuation.kind != TIME:
        return 0
    before = due_before(<uint64_t> punctuation.time ^ x.sign, x.timeout)
    n = find_due(x, b, w, before)
    if n < 0:
        deadlines_drop(&b.deadlines)
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    if 2 * n < keys:
        if close_due(x, k, w, b, n, before, out, f) != 0:
            return -1
    elif close_many(x, k, w, b, False, before, out, f) != 0:
        return -1
    slots_settle(x, b, keys)
    return 0
