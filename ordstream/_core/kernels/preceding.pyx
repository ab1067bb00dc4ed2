"""Preceding: the last n rows of a key, seen from some of its rows. Contract: kernel.pxd (b), (f).

A key's record holds a ring: place of the oldest entry, number of entries, and the entries. An entry has a
fixed size: time, one byte for whether the condition on entries was true, one byte per column for whether it
is null, 8 bytes per column. A small ring lies in the record, and nothing is allocated per row. A large ring
lies apart from the record: it starts with room for a few entries and doubles as they come, up to n, so that
memory follows the number of entries and not their bound.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from ordstream._core.ground.carry cimport carry_values
from ordstream._core.ground.atomics cimport load_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, FAIL_STATE, PT_BOOL, PT_LIST, PT_VIEW, Block, Chunk, ChunkPool, Failure,
    LayoutOwner, View, Worker, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.expression cimport Evaluation, Value, evaluate
from ordstream._core.ground.expression_code cimport Code, CodeOwner
from ordstream._core.ground.kernel cimport PS, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
    keyed_state,
)
from ordstream._core.state.row_values cimport list_room, row_list, value_at
from ordstream._core.state.state_rows cimport (
    StateCalls, owner_state, rows_export, rows_install, rows_remove,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)
    int64_t first_bad(const uint8_t* bad, int64_t n)

cdef enum:
    RING_FIRST = 4         # entries that a ring apart from the record first has room for
    RING_INSIDE = 256      # bytes of entries up to which they lie in the record

cdef struct Ring:
    # State of a key; the entries follow (`inside`), or it is part of a RingApart.
    int32_t oldest         # place of the oldest entry; 0 until there are n
    int32_t n              # entries

cdef struct RingApart:
    # State of a key. Ownership: `entries` is the bucket's.
    Ring ring
    int64_t room           # places
    char* entries          # NULL: no room yet

cdef struct PrecedingBucket:
    # Memory ownership: the runtime, through bucket_new / bucket_free; owns the entries of its rings.
    KeyedState keyed
    ChunkPool pool         # counts the bytes of the keys' strings; only `bytes` is used
    int64_t entry_bytes    # of all rings together

cdef struct PrecedingContext:
    # Read-only while a run lasts. Memory ownership: PrecedingKernel.
    const KeySpec* keys
    int32_t n              # length of the ring
    bint inside            # entries lie in the record
    int32_t entry          # bytes of an entry: 8 (time), flags rounded up to 8, 8 per column
    int32_t values         # offset of the first column's value in an entry
    int32_t time           # input column; -1: entries never get too old
    int32_t time_type
    int64_t within
    const Code* when       # NULL: every row looks
    const Code* where      # NULL: every entry counts
    int32_t ncolumns
    int32_t* column        # input column of each
    int32_t* type          # PhysicalType of each
    int32_t ncarry
    int32_t* carry


cdef inline char* entry_of(const PrecedingContext* x, Ring* ring, int32_t place) noexcept nogil:
    return (<char*> (ring + 1) if x.inside else (<RingApart*> ring).entries) + <int64_t> place * x.entry


cdef inline char* entry_at(const PrecedingContext* x, Ring* ring, int32_t i) noexcept nogil:
    """The i-th entry, the oldest one first."""
    cdef int32_t place = ring.oldest + i
    return entry_of(x, ring, place - x.n if place >= x.n else place)


cdef int grow(const PrecedingContext* x, PrecedingBucket* b, RingApart* a) noexcept nogil:
    """Make room for one more entry in a ring that lies apart and holds fewer than n. 0, or -1: no memory,
    nothing changed.

    Thread safety: the bucket's holder. Cost: amortized, a copy of each entry.
    """
    cdef int64_t room = min(2 * a.room if a.room else <int64_t> RING_FIRST, <int64_t> x.n)
    cdef char* entries
    if a.ring.n < a.room:
        return 0
    entries = <char*> realloc(a.entries, room * x.entry)     # oldest is 0: the entries lie in order
    if entries == NULL:
        return -1
    b.entry_bytes += (room - a.room) * x.entry
    a.entries = entries
    a.room = room
    return 0


cdef inline bint recent(const PrecedingContext* x, int64_t now, int64_t time) noexcept nogil:
    """time >= now - within, without overflow, where time <= now."""
    return <uint64_t> now - <uint64_t> time <= <uint64_t> x.within


cdef inline int64_t latest(const PrecedingContext* x, Ring* ring) noexcept nogil:
    """Time of the newest entry; there is one."""
    cdef int32_t place = ring.oldest + ring.n - 1
    return (<const int64_t*> entry_of(x, ring, place - x.n if place >= x.n else place))[0]


cdef int condition(const Code* code, Worker* w, Chunk* c, Evaluation* e, uint8_t* holds) noexcept nogil:
    """Evaluate the condition for each row of `e`. 0, or -1: no memory."""
    cdef Value v
    cdef int32_t i
    cdef uint8_t all = 1
    if code == NULL:
        for i in range(e.n):
            holds[i] = 1
        return 0
    if evaluate(code, w, c, e, NULL, &v) != 0:
        return -1
    if v.scalar:
        all = v.data[0] != 0 and (v.valid == NULL or v.valid[0] != 0)
        for i in range(e.n):
            holds[i] = all
    else:
        for i in range(e.n):
            holds[i] = <uint8_t> v.data[i] & (v.valid[i] if v.valid != NULL else 1)
    return 0


cdef int look(const PrecedingContext* x, Kernel* k, Worker* w, Chunk* c, Ring* ring, int32_t row,
              int64_t now, Chunk* out) noexcept nogil:
    """Emit the entries that a row sees. 0, or -1: no memory, and nothing was emitted."""
    cdef const char* entry
    cdef int32_t before = out.n
    cdef int32_t place
    cdef int32_t i
    cdef int32_t j
    if out.n + ring.n > out.capacity and chunk_reserve(w, out, k.output, max(ring.n, <int32_t> 64)) != 0:
        return -1
    for i in range(ring.n):
        place = ring.oldest + i
        entry = entry_of(x, ring, place - x.n if place >= x.n else place)
        if entry[8] == 0 or (x.time >= 0 and not recent(x, now, (<const int64_t*> entry)[0])):
            continue
        if carry_values(x.carry, x.ncarry, k.output, w, c, out, row, 1) != 0:
            out.n = before
            return -1
        for j in range(x.ncolumns):
            put_word(out.cols[x.ncarry + j].data, x.type[j], out.n, (<const int64_t*> (entry + x.values))[j])
            if entry[9 + j] == 0:
                if chunk_set_valid(w, out, x.ncarry + j) != 0:
                    out.n = before
                    return -1
                out.cols[x.ncarry + j].valid[out.n] = 0
            elif out.cols[x.ncarry + j].valid != NULL:
                out.cols[x.ncarry + j].valid[out.n] = 1
        out.n += 1
    out.slots = out.n
    return 0


cdef void push(const PrecedingContext* x, Chunk* c, Ring* ring, int32_t row, int64_t now,
               uint8_t counts) noexcept nogil:
    """Put a row into a ring that has room for it, in place of the oldest one when it is full."""
    cdef int32_t place = ring.oldest + ring.n
    cdef char* entry
    cdef uint8_t truth
    cdef int32_t j
    entry = entry_of(x, ring, place - x.n if place >= x.n else place)
    if ring.n < x.n:
        ring.n += 1
    else:
        ring.oldest = ring.oldest + 1 if ring.oldest + 1 < x.n else 0
    (<int64_t*> entry)[0] = now
    entry[8] = <char> counts
    for j in range(x.ncolumns):
        entry[9 + j] = c.cols[x.column[j]].valid == NULL or c.cols[x.column[j]].valid[row] != 0
        if entry[9 + j] == 0:
            (<int64_t*> (entry + x.values))[j] = 0
        elif x.type[j] == PT_BOOL:
            truth = <uint8_t> c.cols[x.column[j]].data[row]
            (<int64_t*> (entry + x.values))[j] = truth
        else:
            load(entry + x.values + 8 * j, x.type[j], c.cols[x.column[j]].data, &row, 1)


cdef void* preceding_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef PrecedingContext* x = <PrecedingContext*> k.ctx
    cdef PrecedingBucket* b = <PrecedingBucket*> calloc(1, sizeof(PrecedingBucket))
    cdef int32_t size = <int32_t> sizeof(Ring) + x.n * x.entry if x.inside else <int32_t> sizeof(RingApart)
    if b != NULL and keyed_init(&b.keyed, x.keys, size, &b.pool) != 0:
        free(b)
        return NULL
    return b


cdef void preceding_free(Kernel* k, void* state) noexcept nogil:
    cdef PrecedingBucket* b = <PrecedingBucket*> state
    cdef int64_t slot
    if not (<PrecedingContext*> k.ctx).inside:
        for slot in range(b.keyed.count):
            free((<RingApart*> keyed_state(&b.keyed, slot)).entries)
    keyed_free(&b.keyed)
    free(b)


cdef int64_t preceding_bytes(Kernel* k, void* state) noexcept nogil:
    cdef PrecedingBucket* b = <PrecedingBucket*> state
    return keyed_bytes(&b.keyed) + load_relaxed(&b.pool.bytes) + b.entry_bytes   # statistic; no partner


cdef int32_t preceding_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """For each row, emit what it sees in its key's ring, then put the row into the ring.

    Thread safety: the bucket's holder. Ownership: carried views point into `c`. Returns: n, or j when the
    time of rows[j] is null, a condition fails at it or it is earlier than the time before (the ring
    untouched), or without memory. Cost: keyed_lookup, ~5 ns per row, ~5 ns per output, the conditions.
    """
    cdef PrecedingContext* x = <PrecedingContext*> k.ctx
    cdef PrecedingBucket* b = <PrecedingBucket*> state
    cdef Evaluation e
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef uint8_t[LOOKUP_BLOCK] looks
    cdef uint8_t[LOOKUP_BLOCK] counts
    cdef const uint8_t* valid = c.cols[x.time].valid if x.time >= 0 else NULL
    cdef Ring* ring
    cdef Block* scratch = w.scratch.current
    cdef char* top = w.scratch.top
    cdef int64_t now = 0
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t clean
    cdef int32_t end
    cdef int32_t i
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if w.scratch.current == scratch:                     # nothing of the last block is needed any more
            w.scratch.top = top
        clean = m
        if valid != NULL:
            clean = 0
            while clean < m and valid[rows[k0 + clean]] != 0:
                clean += 1
        end = clean
        if clean:
            e.n = clean
            e.sel = rows + k0
            e.bad = NULL
            if (condition(x.when, w, c, &e, looks) != 0 or condition(x.where, w, c, &e, counts) != 0
                    or keyed_lookup(&b.keyed, w, c, rows + k0, clean, slots) != 0):
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            if e.bad != NULL:
                end = <int32_t> first_bad(e.bad, clean)
            if x.time >= 0:
                load(times, x.time_type, c.cols[x.time].data, rows + k0, end)
        for i in range(end):
            ring = <Ring*> keyed_state(&b.keyed, slots[i])
            if x.time >= 0:
                now = times[i]
                if ring.n and now < latest(x, ring):
                    failure_earlier(f, rows[k0 + i], x.time, now, latest(x, ring))
                    return k0 + i
            if not x.inside and ring.n < x.n and grow(x, b, <RingApart*> ring) != 0:
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            if looks[i] and ring.n and look(x, k, w, c, ring, rows[k0 + i], now, out) != 0:
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            push(x, c, ring, rows[k0 + i], now, counts[i])
        k0 += end
        if end < clean:
            failure_set(f, rows[k0], e.bad[end], failure_text(e.bad[end]))
            return k0
        if clean < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null time: filter such tuples out before preceding")
            return k0
    return n


# -------------------------------------------------------------------------------- state: a ring


cdef bint any_entry(Kernel* k, const char* state) noexcept nogil:
    return (<const Ring*> state).n != 0


cdef void drop_entries(Kernel* k, void* bucket, char* state) noexcept nogil:
    cdef const PrecedingContext* x = <const PrecedingContext*> k.ctx
    cdef RingApart* a = <RingApart*> state
    if not x.inside:
        free(a.entries)
        (<PrecedingBucket*> bucket).entry_bytes -= a.room * x.entry
        memset(a, 0, sizeof(RingApart))


cdef int write_flags(const PrecedingContext* x, Worker* w, Ring* ring, int32_t flag, Chunk* out,
                     int32_t column, int32_t index) noexcept nogil:
    """A byte of each entry as a list of bool. 0, or -1: no memory."""
    cdef char* to = list_room(w, out, column, index, ring.n, 1)
    cdef int32_t i
    if to == NULL:
        return -1
    for i in range(ring.n):
        to[i] = entry_at(x, ring, i)[flag]
    return 0


cdef int write_ring(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const PrecedingContext* x = <const PrecedingContext*> k.ctx
    cdef Ring* ring = <Ring*> state
    cdef int32_t column = x.keys.ncols
    cdef char* to
    cdef bint all_there
    cdef int32_t i
    cdef int32_t j
    if x.time >= 0:
        to = list_room(w, out, column, index, ring.n, WIDTHS[x.time_type])
        if to == NULL:
            return -1
        for i in range(ring.n):
            put_word(to, x.time_type, i, (<const int64_t*> entry_at(x, ring, i))[0])
        column += 1
    if x.where != NULL:
        if write_flags(x, w, ring, 8, out, column, index) != 0:
            return -1
        column += 1
    for j in range(x.ncolumns):
        to = list_room(w, out, column, index, ring.n, WIDTHS[x.type[j]])
        if to == NULL:
            return -1
        all_there = True
        for i in range(ring.n):
            put_word(to, x.type[j], i, (<const int64_t*> (entry_at(x, ring, i) + x.values))[j])
            all_there &= entry_at(x, ring, i)[9 + j] != 0
        if not all_there:
            if write_flags(x, w, ring, 9 + j, out, column + 1, index) != 0:
                return -1
        elif chunk_set_valid(w, out, column + 1) != 0:
            return -1
        else:
            out.cols[column + 1].valid[index] = 0
        column += 2
    return 0


cdef int read_flags(const PrecedingContext* x, Ring* ring, int32_t flag, const View* l) noexcept nogil:
    """The inverse of write_flags; without a list all are true. 0, or -1: it is of another length."""
    cdef int32_t i
    if l != NULL and l.size != ring.n:
        return -1
    for i in range(ring.n):
        entry_at(x, ring, i)[flag] = 1 if l == NULL else l.data[i]
    return 0


cdef const char* NOT_SIDE_BY_SIDE = "the lists of a ring are null, or not of one length"


cdef const char* read_entries(const PrecedingContext* x, const Chunk* rows, int32_t slot,
                              Ring* ring) noexcept nogil:
    """Fill ring.n entries from a row. NULL, or what no ring has."""
    cdef int32_t column = x.keys.ncols
    cdef const View* l
    cdef int64_t* word
    cdef int32_t i
    cdef int32_t j
    if x.time >= 0:
        l = row_list(rows, column, slot)
        if l == NULL or l.size != ring.n:
            return NOT_SIDE_BY_SIDE
        for i in range(ring.n):
            word = <int64_t*> entry_at(x, ring, i)
            word[0] = value_at(x.time_type, l.data, i)
            if i > 0 and word[0] < (<const int64_t*> entry_at(x, ring, i - 1))[0]:
                return "the times of a ring run backwards"
        column += 1
    l = NULL
    if x.where != NULL:
        l = row_list(rows, column, slot)
        if l == NULL:
            return NOT_SIDE_BY_SIDE
        column += 1
    if read_flags(x, ring, 8, l) != 0:
        return NOT_SIDE_BY_SIDE
    for j in range(x.ncolumns):
        l = row_list(rows, column, slot)
        if l == NULL or l.size != ring.n:
            return NOT_SIDE_BY_SIDE
        if read_flags(x, ring, 9 + j, row_list(rows, column + 1, slot)) != 0:
            return NOT_SIDE_BY_SIDE
        for i in range(ring.n):
            word = <int64_t*> (entry_at(x, ring, i) + x.values) + j
            word[0] = value_at(x.type[j], l.data, i) if entry_at(x, ring, i)[9 + j] != 0 else 0
        column += 2
    return NULL


cdef int32_t read_ring(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef const PrecedingContext* x = <const PrecedingContext*> k.ctx
    cdef PrecedingBucket* b = <PrecedingBucket*> bucket
    cdef Ring* ring = <Ring*> state
    cdef RingApart* a = <RingApart*> state
    cdef const View* l = row_list(rows, x.keys.ncols, slot)
    cdef const char* wrong = NULL
    if l == NULL or l.size < 1 or l.size > x.n:
        failure_set(f, slot, FAIL_STATE, "a ring is null, empty, or longer than it may be")
        return FAIL_STATE
    drop_entries(k, bucket, state)                           # room that a key without entries may have
    if not x.inside:
        a.entries = <char*> calloc(l.size, x.entry)
        if a.entries == NULL:
            failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return FAIL_MEMORY
        a.room = l.size
        b.entry_bytes += a.room * x.entry
    ring.n = <int32_t> l.size
    wrong = read_entries(x, rows, slot, ring)
    if wrong == NULL:
        return 0
    drop_entries(k, bucket, state)
    failure_set(f, slot, FAIL_STATE, wrong)
    return FAIL_STATE


cdef StateCalls RING = StateCalls(alive=any_entry, write=write_ring, read=read_ring, drop=drop_entries)


cdef int32_t ring_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                         Failure* f) noexcept nogil:
    """Rows (key..., lists). Contract: kernel.pxd (f)."""
    return rows_export(k, w, &(<PrecedingBucket*> state).keyed, &RING, cursor, out, f)


cdef int32_t ring_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    return rows_install(k, state, &(<PrecedingBucket*> state).keyed, &RING, rows, slots, n, f)


cdef int32_t ring_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    return rows_remove(k, state, &(<PrecedingBucket*> state).keyed, &RING, keys, slots, n)


cdef class PrecedingKernel(KernelOwner):
    """Operator "preceding". With `n`, `columns`, `carry`, `time`, `within`, `when`, `where`; `key`."""

    cdef PrecedingContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        cdef CodeOwner code
        owner_setup(self, operator, PS)
        layout = self.input_layout
        columns = list(operator.columns)
        carry = list(operator.carry)
        self.keys = KeySpecOwner(operator.key, layout.types)
        self.context.keys = &self.keys.spec
        self.context.n = operator.n
        self.context.ncolumns = <int32_t> len(columns)
        self.context.ncarry = <int32_t> len(carry)
        if self.kernel.output.ncols != self.context.ncarry + self.context.ncolumns:
            raise ValueError(f"{operator.name!r}: the output schema must be the carried columns and those "
                             f"of an entry")
        self.context.values = 8 + ((1 + self.context.ncolumns + 7) & ~7)
        self.context.entry = self.context.values + 8 * self.context.ncolumns
        self.context.inside = <int64_t> self.context.n * self.context.entry <= RING_INSIDE
        self.context.time = -1
        if operator.within is not None:
            self.context.time = operator.time
            self.context.time_type = layout.layout.type[self.context.time]
            self.context.within = operator.within
        if operator.when is not None:
            code = CodeOwner(operator.when, layout, PT_BOOL)
            self.references.append(code)
            self.context.when = &code.code
        if operator.where is not None:
            code = CodeOwner(operator.where, layout, PT_BOOL)
            self.references.append(code)
            self.context.where = &code.code
        self.context.column = <int32_t*> calloc(self.context.ncolumns + 1, sizeof(int32_t))
        self.context.type = <int32_t*> calloc(self.context.ncolumns + 1, sizeof(int32_t))
        self.context.carry = <int32_t*> calloc(self.context.ncarry + 1, sizeof(int32_t))
        if self.context.column == NULL or self.context.type == NULL or self.context.carry == NULL:
            raise MemoryError
        for j in range(self.context.ncolumns):
            self.context.column[j] = columns[j]
            self.context.type[j] = layout.layout.type[self.context.column[j]]
            if self.context.type[j] > PT_BOOL:
                raise TypeError(f"{operator.name!r}: only numbers, bool and dates/times can be kept")
        for j in range(self.context.ncarry):
            self.context.carry[j] = carry[j]
            if layout.layout.type[self.context.carry[j]] in (PT_VIEW, PT_LIST):
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1
        self.kernel.process = preceding_process
        self.kernel.bucket_new = preceding_new
        self.kernel.bucket_free = preceding_free
        self.kernel.bucket_bytes = preceding_bytes
        owner_state(self, operator, ring_export, ring_install, ring_remove)

    def __dealloc__(self):
        free(self.context.column)
        free(self.context.type)
        free(self.context.carry)
