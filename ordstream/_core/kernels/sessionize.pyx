"""Sessionize: runs of a key's tuples whose times follow each other within a timeout. Contract: kernel.pxd
(b), (c), (f).

a) A key's record holds the open session: its times, its count, the aggregates (fold.pxd), and per collected
   column a list. The first values of a list lie in the record itself (most sessions are short); longer lists
   move to blocks of the bucket, in sizes of powers of two, which are recycled when the session closes.
   Without lists a session allocates nothing.
b) A closed session is copied into the output chunk: lists and the key's strings are views into that chunk's
   arena, never into the state, which forgets a key while its session is on its way. If there are no lists
   and every output is a 64-bit value of the record, emitting is one copy per column (`Copied`). Columns that
   no operator downstream reads are then not made: they have width 0 in the output layout.
c) If, in addition, the aggregates take 64-bit values of the chunk unchanged and no sum needs an overflow
   check, a key and its session lie in one slot (session_slots.pxd), with functions of their own. For a row
   that only counts, the functions here take four times as long.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.blocks cimport blocks_bytes, blocks_free
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, PT_F64, PT_I64, PT_U64, TIME, Block, Chunk, Column,
    Failure, LayoutOwner, Worker, chunk_alloc, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.state.deadlines cimport (
    deadlines_bytes, deadlines_free, due_before, keys_close, keys_due,
)
from ordstream._core.state.fold cimport (
    F_COUNT, F_MEAN_DECIMAL, F_MEAN_F64, F_MEAN_I64, FOLD_GROUP, Accumulator, Fold, FoldBlock, FoldOwner,
    fold_begin, fold_load, fold_overflows, fold_prepare, fold_row, fold_spreads,
)
from ordstream._core.state.fold_rows cimport fold_store
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.kept_lists cimport KeptList, list_clear, list_move, list_values
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.keyed_rows cimport key_put
from ordstream._core.state.listed_values cimport (
    OrdGatherSpec, OrdGiven, element_spec, element_write, given_value,
)
from ordstream._core.state.session_rows cimport (
    FIRST_CLASS, INLINE_BYTES, Collected, Copied, Session, SessionBucket, SessionContext, aggregates_of,
    collected_of, collected_store, earlier, ordered_time, sessions_export, sessions_install,
    sessions_remove, sessions_settle,
)
from ordstream._core.state.session_slots cimport (
    LAST_WORD, META_WORD, START_WORD, SlotColumn, SlotContext, slots_bytes, slots_free, slots_new,
    slots_prepare, slots_process, slots_setup,
)
from ordstream._core.state.slot_closing cimport slots_punctuate
from ordstream._core.state.slot_rows cimport slots_export, slots_install, slots_remove
from ordstream._core.state.key_records cimport key_copy, key_store
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpecOwner, LookupAhead, keyed_bytes, keyed_free, keyed_init, keyed_lookup_block,
    keyed_record,
)
from ordstream._core.state.state_rows cimport owner_state
from ordstream._core.ground.stopping cimport stop_due

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)


cdef inline int collected_add(SessionBucket* b, KeptList* list, int32_t width,
                              const char* value) noexcept nogil:
    """Append one value. 0, or -1: no memory."""
    cdef int64_t used = list.n * <int64_t> width
    cdef int64_t room = INLINE_BYTES if list.block == NULL else (<int64_t> 1) << list.size_class
    cdef char* data
    if used + width > room and list_move(
            &b.lists, list, used, list.size_class + 1 if list.block != NULL else <int32_t> FIRST_CLASS) != 0:
        return -1
    data = list_values(list)
    if width == 8:
        (<int64_t*> data)[list.n] = (<const int64_t*> value)[0]
    elif width == 4:
        (<int32_t*> data)[list.n] = (<const int32_t*> value)[0]
    else:
        memcpy(data + used, value, width)
    list.n += 1
    return 0


cdef int element_add(SessionBucket* b, KeptList* list, const OrdGatherSpec* spec, int32_t type,
                     const Column* column, int32_t row) noexcept nogil:
    """Append an element of a packed list. 0, or -1: no memory, or over 2 GiB."""
    cdef OrdGiven given
    cdef int64_t size
    cdef int64_t room = INLINE_BYTES if list.block == NULL else (<int64_t> 1) << list.size_class
    cdef int32_t larger = list.size_class if list.block != NULL else <int32_t> FIRST_CLASS
    given_value(type, spec.width, column, row, &given)
    size = list.n + element_write(spec, &given, NULL)
    if size > 0x7fffffff:
        return -1
    if size > room:
        while (<int64_t> 1) << larger < size:
            larger += 1
        if list_move(&b.lists, list, list.n, larger) != 0:
            return -1
    element_write(spec, &given, list_values(list) + list.n)
    list.n = <int32_t> size
    return 0


cdef inline int copy_session(const SessionContext* x, Worker* w, const char* record,
                             Chunk* out) noexcept nogil:
    """Write the columns of a session where `plain`. 0, or -1: no memory."""
    cdef const Copied* one
    cdef Column* col
    cdef int32_t index = out.n
    cdef int32_t j
    if x.makes_key:
        if (<const int64_t*> record)[0] == 0 and out.cols[0].valid == NULL:
            (<int64_t*> out.cols[0].data)[index] = (<const int64_t*> record)[1]
        elif key_store(x.keys, record, w, out, index) != 0:
            return -1
    for j in range(x.nvalues):
        one = &x.values[j]
        (<int64_t*> out.cols[one.column].data)[index] = (<const int64_t*> (record + one.offset))[0]
    for j in range(x.nflags):
        one = &x.flags[j]
        col = &out.cols[one.column]
        if col.valid == NULL:
            if record[one.offset]:
                continue
            if chunk_set_valid(w, out, one.column) != 0:
                return -1
        col.valid[index] = <uint8_t> record[one.offset]
    return 0


cdef int emit(Kernel* k, Worker* w, SessionBucket* b, char* record, Chunk* out,
              int32_t origin) noexcept nogil:
    """Append a session (room for the row is reserved) and close it. 0, or -1: no memory, and the session
    stays."""
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef Session* s = <Session*> (record + x.keys.size)
    cdef int32_t nkeys = x.keys.ncols
    cdef int32_t index = out.n
    cdef int32_t j
    if x.plain:
        if copy_session(x, w, record, out) != 0:
            return -1
    else:
        if x.plain_key and (<const int64_t*> record)[0] == 0 and out.cols[0].valid == NULL:
            (<int64_t*> out.cols[0].data)[index] = (<const int64_t*> record)[1]
        elif key_put(x.keys, record, w, out, index) != 0:    # the map's strings go with their keys
            return -1
        put_word(out.cols[nkeys].data, x.time_type, index, s.start)
        put_word(out.cols[nkeys + 1].data, x.time_type, index, s.last)
        (<int64_t*> out.cols[nkeys + 2].data)[index] = s.count
        if x.fold.n and fold_store(x.fold, aggregates_of(s), w, out, nkeys + 3 + x.n, index) != 0:
            return -1
    for j in range(x.n):
        if collected_store(x, s, j, w, out, nkeys + 3 + j, index) != 0:
            return -1
    for j in range(x.n):
        list_clear(&b.lists, &collected_of(x, s, j).list)
    s.count = 0
    for j in range(x.fold.size // 8):
        (<int64_t*> aggregates_of(s))[j] = 0
    out.origin[index] = origin
    out.n = index + 1
    out.slots = out.n
    return 0


cdef void* session_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef SessionBucket* b = <SessionBucket*> calloc(1, sizeof(SessionBucket))
    cdef int64_t size = x.lists + x.n * <int64_t> sizeof(Collected)
    if b != NULL and keyed_init(&b.keyed, x.keys, <int32_t> size, &b.lists.blocks.pool) != 0:
        free(b)
        return NULL
    return b


cdef void session_free(Kernel* k, void* state) noexcept nogil:
    cdef SessionBucket* b = <SessionBucket*> state
    keyed_free(&b.keyed)
    blocks_free(&b.lists.blocks)
    deadlines_free(b.deadlines)
    free(b)


cdef int64_t session_bytes(Kernel* k, void* state) noexcept nogil:
    cdef SessionBucket* b = <SessionBucket*> state
    return keyed_bytes(&b.keyed) + blocks_bytes(&b.lists.blocks) + deadlines_bytes(b.deadlines)


cdef int session_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Find out which rows the aggregates look at."""
    cdef SessionContext* x = <SessionContext*> k.ctx
    return fold_prepare(x.fold, w, c, x.conditions)


cdef inline int32_t rows_without_nulls(const SessionContext* x, const Chunk* c, const int32_t* rows,
                                       int32_t m) noexcept nogil:
    """How many of `m` rows come before one with a null time or a null in a collected column."""
    cdef const uint8_t* valid = c.cols[x.time].valid
    cdef int32_t clean = m
    cdef int32_t i
    cdef int32_t j
    for j in range(-1, x.n):
        if j >= 0:
            valid = c.cols[x.column[j]].valid
        if valid != NULL:
            i = 0
            while i < clean and valid[rows[i]] != 0:
                i += 1
            clean = i
    return clean


cdef inline int emit_before(Kernel* k, Worker* w, SessionBucket* b, char* record, Chunk* out, int32_t row,
                            int32_t left) noexcept nogil:
    """Emit the session that `row` ends; `left`: rows to come, for each of which room may be needed."""
    if out.n == out.capacity and chunk_reserve(w, out, k.output, min(left, <int32_t> LOOKUP_BLOCK)) != 0:
        return -1
    return emit(k, w, b, record, out, row)


cdef int32_t session_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Add rows to their keys' sessions; a row after a gap emits the session before it.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes. Returns: n, or j when rows[j]
    holds a null time or a null in a collected column, when an aggregate's condition fails at it, its time is
    earlier than the key's last one or a sum overflows (the session untouched), or without memory. Cost:
    keyed_lookup, ~3 ns per row, ~2 ns per row and aggregate, ~10 ns per emitted session.
    """
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef SessionBucket* b = <SessionBucket*> state
    cdef const Fold* fold = x.fold
    cdef FoldBlock block
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef const int64_t* clock = NULL                         # a 64-bit time column: read where it lies
    cdef char* records
    cdef int64_t stride = b.keyed.stride
    cdef int32_t key_size = x.keys.size
    cdef int32_t nlists = x.n
    cdef bint folds = fold.n != 0
    cdef bint checks = fold.any_checked != 0
    cdef Session* s
    cdef char* record
    cdef int64_t time
    cdef Block* scratch
    cdef char* top
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    cdef int32_t row
    cdef int32_t clean                                       # rows of the block without nulls
    cdef int32_t end                                         # of these, rows before a failing condition
    cdef bint opens
    cdef int added
    if out.capacity == 0 and chunk_reserve(w, out, k.output, n // 2 + 16) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    if folds and fold_begin(fold, w, &block) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    scratch = w.scratch.current
    top = w.scratch.top
    ahead.n = 0
    if x.time_type == PT_I64 or x.time_type == PT_U64:
        clock = <const int64_t*> c.cols[x.time].data
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        clean = rows_without_nulls(x, c, rows + k0, m)
        end = clean
        if folds and clean:
            if w.scratch.current == scratch:                 # nothing of the last block is needed any more
                w.scratch.top = top
            end = fold_load(fold, w, c, rows + k0, clean, x.conditions, &block, f)
        if clock == NULL:
            load(times, x.time_type, c.cols[x.time].data, rows + k0, end)
        if end and keyed_lookup_block(&b.keyed, w, c, rows + k0, end,
                                      min(n - k0 - end, <int32_t> LOOKUP_BLOCK) if end == m else 0,
                                      &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        records = b.keyed.records                            # nothing moves them before the next lookup
        for i in range(end):
            row = rows[k0 + i]
            record = records + slots[i] * stride
            s = <Session*> (record + key_size)
            time = clock[row] if clock != NULL else times[i]
            if s.count != 0 and earlier(x, time, s.last):
                failure_earlier(f, row, x.time, time, s.last)
                return k0 + i
            opens = s.count <= 0 or <uint64_t> time - <uint64_t> s.last > <uint64_t> x.timeout
            if checks and fold_overflows(fold, <char*> NULL if opens else aggregates_of(s), &block, i):
                failure_set(f, row, FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
                return k0 + i
            if opens:
                if s.count > 0:
                    if emit_before(k, w, b, record, out, row, n - k0 - i) != 0:
                        failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                        return k0 + i
                s.start = time
                s.count = 0
            for j in range(nlists):
                if x.packed[j]:
                    added = element_add(b, &collected_of(x, s, j).list, &x.element[j],
                                        k.input.type[x.column[j]], &c.cols[x.column[j]], row)
                else:
                    added = collected_add(b, &collected_of(x, s, j).list, x.width[j],
                                          c.cols[x.column[j]].data + <int64_t> row * x.width[j])
                if added != 0:
                    failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
            if folds:
                fold_row(fold, aggregates_of(s), &block, i)
            s.last = time
            s.count += 1
        k0 += end
        if end < clean:
            return k0
        if clean < m:
            failure_set(f, rows[k0], FAIL_NULL,
                        "a null time or collected value: filter such tuples out before sessionize")
            return k0
    return n


cdef uint64_t latest_of(const void* context, const char* state) noexcept nogil:
    """Time of the latest tuple of an open session, as an unsigned word in its order; 0: none is open."""
    cdef const Session* s = <const Session*> state
    return ordered_time(<const SessionContext*> context, s.last) if s.count else 0


cdef int close_key(const SessionContext* x, Kernel* k, Worker* w, SessionBucket* b, int64_t slot, bint final,
                   Chunk* out) noexcept nogil:
    """Emit the open session of a key, if it has one; room is reserved. 0, or -1: no memory."""
    cdef char* record = keyed_record(&b.keyed, slot)
    cdef const Session* s = <const Session*> (record + x.keys.size)
    cdef char* key
    if s.count == 0:
        return 0
    key = chunk_alloc(w, out, x.keys.size)
    if key == NULL or key_copy(x.keys, record, w, out, key) != 0:
        return -1
    out.flush_time[out.n] = 0 if final else s.last
    out.flush_key[out.n] = key
    return emit(k, w, b, record, out, 0)


cdef int close_all(const SessionContext* x, Kernel* k, Worker* w, SessionBucket* b,
                   Chunk* out) noexcept nogil:
    """Emit all open sessions. 0, or -1: no memory."""
    cdef int64_t open_ = 0
    cdef int64_t i
    for i in range(b.keyed.count):
        if stop_due(w, i):
            return 0
        open_ += (<const Session*> (keyed_record(&b.keyed, i) + x.keys.size)).count != 0
    if open_ > 0x7fffffff or flush_reserve(w, out, k.output, <int32_t> open_) != 0:
        return -1
    for i in range(b.keyed.count):
        if stop_due(w, i):
            return 0
        if close_key(x, k, w, b, i, True, out) != 0:
            return -1
    return 0


cdef int close_due(const SessionContext* x, Kernel* k, Worker* w, SessionBucket* b, int64_t time,
                   Chunk* out) noexcept nogil:
    """Emit the sessions that no tuple from a time on could extend, and forget their keys. 0, or -1: no
    memory."""
    cdef int64_t keys = b.keyed.count
    cdef int64_t listed = b.lists.used
    cdef uint64_t before = due_before(ordered_time(x, time), <uint64_t> x.timeout)
    cdef int64_t n = keys_due(&b.deadlines, w, &b.keyed, x, latest_of, before)
    cdef int64_t i
    if n < 0 or n > 0x7fffffff or (n and flush_reserve(w, out, k.output, <int32_t> n) != 0):
        return -1
    for i in range(n):
        if stop_due(w, i):
            return 0
        if close_key(x, k, w, b, <int64_t> b.deadlines.due()[i].of, False, out) != 0:
            return -1
    if n:
        keys_close(&b.deadlines, w, &b.keyed, n)
    sessions_settle(x, b, keys, listed)
    return 0


cdef int session_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                           Failure* f) noexcept nogil:
    """Emit open sessions: all of them at the end of the stream, at a time punctuation those that no tuple
    could still extend, whose keys are then forgotten.

    Thread safety: the bucket's holder. Ownership: outputs own their bytes and key records. Returns: 0, or
    -1: no memory. Cost: at the end a pass over the bucket's keys; at a time keys_due and keys_close.
    """
    cdef const SessionContext* x = <const SessionContext*> k.ctx
    cdef SessionBucket* b = <SessionBucket*> state
    cdef int failed = 0
    if punctuation.kind == END_OF_STREAM:
        failed = close_all(x, k, w, b, out)
    elif punctuation.kind == TIME:
        failed = close_due(x, k, w, b, punctuation.time, out)
    if failed:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return failed


cdef class SessionKernel(KernelOwner):
    """Operator "sessionize".

    Attributes: `time`, a column; `timeout`, int; `collect`, columns; `aggregates`, [BoundAggregation, ...];
    `key`.
    """

    cdef SessionContext context
    cdef SlotContext slots
    cdef KeySpecOwner keys
    cdef FoldOwner fold
    cdef readonly tuple unmade         # output columns that have no values, since nothing reads them

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, operator, PS)
        self.unmade = ()
        layout = self.input_layout
        collect = list(operator.collect)
        self.keys = KeySpecOwner(operator.key, layout.types)
        self.context.keys = &self.keys.spec
        self.context.time = operator.time
        self.context.time_type = layout.layout.type[self.context.time]
        self.context.timeout = operator.timeout
        if self.context.time_type > PT_U64:
            raise TypeError(f"{operator.name!r}: the time column must be an integer, a date or a timestamp")
        before = len(operator.key) + 3 + len(collect)
        if self.kernel.output.ncols != before + len(operator.aggregates):
            raise ValueError(f"{operator.name!r}: the output schema must be key columns, start, end, count, "
                             f"lists and aggregates")
        self.fold = FoldOwner(operator.aggregates, layout, self.output_layout.types[before:])
        self.context.fold = &self.fold.fold
        self.context.lists = <int32_t> sizeof(Session) + self.fold.fold.size
        self.context.plain_key = self.keys.spec.simple and self.keys.spec.type[0] in (PT_I64, PT_U64)
        self.context.n = <int32_t> len(collect)
        self.context.column = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        self.context.width = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        self.context.packed = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        self.context.element = <OrdGatherSpec*> calloc(self.context.n + 1, sizeof(OrdGatherSpec))
        if (self.context.column == NULL or self.context.width == NULL or self.context.packed == NULL
                or self.context.element == NULL):
            raise MemoryError
        for j in range(self.context.n):
            self.context.column[j] = collect[j]
            element, width = operator.elements[j]
            self.context.packed[j] = element_spec(&self.context.element[j], element, width)
            self.context.width[j] = 1 if self.context.packed[j] else layout.layout.width[<int> collect[j]]
        self.context.conditions = self.kernel.input.ncols
        self.context.values = <Copied*> calloc(4 + self.fold.fold.n, sizeof(Copied))
        self.context.flags = <Copied*> calloc(1 + self.fold.fold.n, sizeof(Copied))
        if self.context.values == NULL or self.context.flags == NULL:
            raise MemoryError
        if self.context.plain_key and self.context.n == 0 and self.context.time_type in (PT_I64, PT_U64):
            self.find_copies(operator.values, operator.nulls)
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1
        self.kernel.extra_cols = self.fold.fold.n
        if self.fold.fold.n:
            self.kernel.prepare = session_prepare
        self.kernel.process = session_process
        self.kernel.punctuate = session_punctuate
        self.kernel.bucket_new = session_new
        self.kernel.bucket_free = session_free
        self.kernel.bucket_bytes = session_bytes
        if self.context.plain and self.fits_slots():
            self.use_slots(operator)
        else:
            owner_state(self, operator, sessions_export, sessions_install, sessions_remove)

    cdef int find_copies(self, values, nulls) except -1:
        """Find out what copy_session copies: of start, end, count and the aggregates those that are 64-bit
        values and are needed.

        `values`, `nulls`: output columns whose values, or whose validity, an operator downstream reads;
        None: all.
        """
        cdef SessionContext* x = &self.context
        cdef LayoutOwner layout = self.output_layout
        cdef Accumulator* a
        cdef Session one
        cdef int32_t session = self.keys.spec.size
        cdef int32_t state = session + <int32_t> sizeof(Session)
        cdef int32_t j
        for j in range(self.fold.fold.n):
            a = &self.fold.fold.accumulators[j]
            if (a.result not in (PT_I64, PT_U64, PT_F64) or fold_spreads(a)
                    or a.function in (F_MEAN_I64, F_MEAN_F64, F_MEAN_DECIMAL) or a.digits):
                return 0
        offsets = [session + (<char*> &one.start - <char*> &one),
                   session + (<char*> &one.last - <char*> &one),
                   session + (<char*> &one.count - <char*> &one)]
        offsets += [state + self.fold.fold.accumulators[j].offset for j in range(self.fold.fold.n)]
        for j, offset in enumerate(offsets):
            if values is None or 1 + j in values:
                x.values[x.nvalues].column = 1 + j
                x.values[x.nvalues].offset = offset
                x.nvalues += 1
        for j in range(self.fold.fold.n):
            if self.fold.fold.accumulators[j].may_be_null and (nulls is None or 4 + j in nulls):
                x.flags[x.nflags].column = 4 + j
                x.flags[x.nflags].offset = state + 1 + j
                x.nflags += 1
        x.makes_key = values is None or 0 in values
        x.plain = 1
        if values is not None:
            self.unmade = tuple(sorted(set(range(layout.layout.ncols)) - values))
            for j in self.unmade:
                layout.layout.width[j] = 0
        return 0

    cdef bint fits_slots(self) except -1:
        """Whether the aggregates take 64-bit values of the chunk unchanged and unchecked, and their bits fit
        into a byte."""
        cdef const Accumulator* a
        cdef int32_t j
        for j in range(self.fold.fold.n):
            a = &self.fold.fold.accumulators[j]
            if a.function != F_COUNT and a.type not in (PT_I64, PT_U64, PT_F64):
                return False
        return not self.fold.fold.any_checked and self.fold.fold.n <= FOLD_GROUP

    cdef int use_slots(self, operator) except -1:
        """Keep the sessions in slots (session_slots.pxd). The columns are those that find_copies found.

        Their state can leave where it has every value: not where the plan says what is needed behind it.
        """
        cdef SlotContext* s = &self.slots
        cdef const SessionContext* x = &self.context
        cdef SlotColumn* one
        cdef int32_t j
        cdef int32_t aggregate
        s.fold = x.fold
        s.key = x.keys.column[0]
        s.time = x.time
        s.conditions = x.conditions
        s.sign = 0 if x.time_type == PT_U64 else (<uint64_t> 1) << 63
        s.timeout = <uint64_t> x.timeout
        s.makes_key = x.makes_key
        for j in range(x.nvalues):
            if x.values[j].column >= 4:
                s.kept |= <uint32_t> 1 << (x.values[j].column - 4)
        slots_setup(s)
        for j in range(x.nvalues):
            one = &s.values[j]
            one.column = x.values[j].column
            aggregate = one.column - 4
            one.bit = aggregate if aggregate >= 0 else -1
            one.word = s.word[aggregate] if aggregate >= 0 else (START_WORD, LAST_WORD,
                                                                 META_WORD)[one.column - 1]
        s.nvalues = x.nvalues
        for j in range(x.nflags):
            s.flags[j].column = x.flags[j].column
            s.flags[j].bit = x.flags[j].column - 4
        s.nflags = x.nflags
        for j in range(256):
            s.passes[j] = 1 if operator.passing is None else operator.passing[j % len(operator.passing)]
        self.kernel.uses_hash = 0
        self.kernel.ctx = <void*> s
        if x.fold.n:
            self.kernel.prepare = slots_prepare
        self.kernel.process = slots_process
        self.kernel.punctuate = slots_punctuate
        self.kernel.bucket_new = slots_new
        self.kernel.bucket_free = slots_free
        self.kernel.bucket_bytes = slots_bytes
        if s.kept == (<uint32_t> 1 << x.fold.n) - 1:
            owner_state(self, operator, slots_export, slots_install, slots_remove)
        return 0

    def __dealloc__(self):
        free(self.context.column)
        free(self.context.width)
        free(self.context.packed)
        free(self.context.element)
        free(self.context.values)
        free(self.context.flags)
