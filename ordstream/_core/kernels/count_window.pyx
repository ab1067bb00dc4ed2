"""Counting tuples per key and tumbling window, and counts above a bound. Plain counts are in count.pyx.
Contract: kernel.pxd (b), (c), (f)."""
from libc.stdint cimport INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, FAIL_STATE, PT_I32, PT_I64, Chunk, Column, Failure,
    Worker, chunk_alloc, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket, normal_keys, put_word,
)
from ordstream._core.state.key_records cimport key_copy, key_store
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpec, KeySpecOwner, keyed_lookup, keyed_record, keyed_state,
)
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid, word_of
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.ground.stopping cimport stop_due

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef struct WindowCount:
    # State of a key.
    int64_t count          # 0: no tuple yet
    int64_t last           # time of the latest tuple, which tells the window that is being counted

cdef struct WindowContext:
    # Read-only while a run lasts. Memory ownership: WindowCountKernel.
    const KeySpec* keys    # NULL: SF
    int64_t window         # length; 0: one window for all
    int32_t time           # input column
    int32_t time_type
    int32_t result         # PhysicalType of the window column
    # index of the first added column (count, then window); they follow the input's columns
    int32_t first
    int64_t lowest         # value of the result type
    int64_t above          # only counts of more than this; -1: all


cdef void* window_new(Kernel* k, int32_t bucket) noexcept nogil:
    return new_bucket((<WindowContext*> k.ctx).keys, <int32_t> sizeof(WindowCount), &COUNT)


cdef int window_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the columns for the count and the window, and, with a bound, the flags of the rows that are
    kept."""
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef int32_t j
    for j in range(2 if x.window else 1):
        c.cols[x.first + j].valid = NULL
        c.cols[x.first + j].data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
        if c.cols[x.first + j].data == NULL:
            return -1
    if x.above >= 0:
        c.keep = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
        if c.keep == NULL:
            return -1
        memset(c.keep, 1, c.slots)
    return 0


cdef inline bint window_start(const WindowContext* x, int64_t* time) noexcept nogil:
    """time = time // window * window. False: out of range of the result type."""
    cdef int64_t rest = time[0] % x.window                   # sign of the time
    if rest < 0:
        rest += x.window
    if <uint64_t> time[0] - <uint64_t> x.lowest < <uint64_t> rest:
        return False
    time[0] -= rest
    return True


cdef int32_t window_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Count rows; in place: write each row's count and window into the prepared columns, and whether it is
    kept.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when the time of rows[j] is null,
    its window starts out of range or it is earlier than the time before (no state changed), or without
    memory. Cost: keyed_lookup plus ~2 ns per row; a division with windows.
    """
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef int64_t[LOOKUP_BLOCK] starts
    cdef const uint8_t* valid = c.cols[x.time].valid if x.window else NULL
    cdef WindowCount* s = <WindowCount*> b.single
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t end
    cdef int32_t i
    cdef int32_t row
    cdef bint no_time
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        end = m
        no_time = False
        if x.window:
            load(times, x.time_type, c.cols[x.time].data, rows + k0, m)
            end = 0
            while end < m:
                no_time = valid != NULL and valid[rows[k0 + end]] == 0
                starts[end] = times[end]
                if no_time or not window_start(x, &starts[end]):
                    break
                end += 1
        if end and x.keys != NULL and keyed_lookup(&b.keyed, w, c, rows + k0, end, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            row = rows[k0 + i]
            if x.keys != NULL:
                s = <WindowCount*> keyed_state(&b.keyed, slots[i])
            if x.window:
                # another window; a key's first row may look like one
                if s.last < starts[i]:
                    s.count = 0
                elif times[i] < s.last and s.count:
                    failure_earlier(f, row, x.time, times[i], s.last)
                    return k0 + i
                s.last = times[i]
            s.count += 1
            if k.in_place:
                (<int64_t*> c.cols[x.first].data)[row] = s.count
                if x.window:
                    put_word(c.cols[x.first + 1].data, x.result, row, starts[i])
                if x.above >= 0:
                    c.keep[row] = s.count > x.above
        k0 += end
        if end < m:
            if no_time:
                failure_set(f, rows[k0], FAIL_NULL, "a null time: filter such tuples out before count")
            else:
                failure_set(f, rows[k0], FAIL_OVERFLOW, "the start of the window is out of range")
            return k0
    return n


cdef int window_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Output columns: the key columns, the window where there is one, the count."""
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef Column[67] columns
    cdef int32_t n = 0
    cdef int32_t j
    if x.keys != NULL:
        n = x.keys.ncols
        if normal_keys(x.keys, w, c, columns) != 0:
            return -1
    if x.window:
        columns[n] = c.cols[x.first + 1]
        n += 1
    columns[n] = c.cols[x.first]
    n += 1
    for j in range(n):
        c.cols[j] = columns[j]
    c.ncols = n
    return 0


cdef int window_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                          Failure* f) noexcept nogil:
    """emit="final" (without windows): at the end of the stream one row per key whose count is above the
    bound."""
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t nkeys = 0
    cdef int64_t n = 1
    cdef int64_t i
    cdef int64_t count
    cdef char* key = NULL
    if punctuation.kind != END_OF_STREAM:
        return 0
    if x.keys != NULL:
        nkeys = x.keys.ncols
        n = b.keyed.count
    for i in range(n):
        if stop_due(w, i):
            return 0
        count = (<WindowCount*> (b.single if x.keys == NULL else keyed_state(&b.keyed, i))).count
        if count <= x.above or count == 0:
            continue
        if flush_reserve(w, out, k.output, 1) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        if x.keys != NULL:
            key = chunk_alloc(w, out, x.keys.size)
            if (key == NULL or key_copy(x.keys, keyed_record(&b.keyed, i), w, out, key) != 0
                    or key_store(x.keys, keyed_record(&b.keyed, i), w, out, out.n) != 0):
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
        (<int64_t*> out.cols[nkeys].data)[out.n] = count
        out.origin[out.n] = 0
        out.flush_time[out.n] = 0
        out.flush_key[out.n] = key
        out.n += 1
        out.slots = out.n
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint is_counted(Kernel* k, const char* state) noexcept nogil:
    return (<const WindowCount*> state).count != 0


cdef int write_count(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    """The count, and with windows the time that tells which one is counted, and that none may be earlier."""
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef const WindowCount* s = <const WindowCount*> state
    cdef int32_t column = own_column(k)
    (<int64_t*> out.cols[column].data)[index] = s.count
    put_valid(w, out, column, index, True)
    if x.window:
        put_word(out.cols[column + 1].data, x.time_type, index, s.last)
        put_valid(w, out, column + 1, index, True)
    return 0


cdef int32_t read_count(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                        Failure* f) noexcept nogil:
    cdef WindowContext* x = <WindowContext*> k.ctx
    cdef WindowCount* s = <WindowCount*> state
    cdef int32_t column = own_column(k)
    cdef int64_t count = (<const int64_t*> rows.cols[column].data)[slot]
    if count < 1 or not is_there(rows, column, slot):
        failure_set(f, slot, FAIL_STATE, "a count is null, 0 or negative")
        return FAIL_STATE
    if x.window:
        if not is_there(rows, column + 1, slot):
            failure_set(f, slot, FAIL_STATE, "the time of the last tuple is null")
            return FAIL_STATE
        s.last = word_of(rows, column + 1, slot, x.time_type)
    s.count = count
    return 0


cdef StateCalls COUNT = StateCalls(alive=is_counted, write=write_count, read=read_count, drop=NULL)


cdef class WindowCountKernel(KernelOwner):
    """Operator "count" with windows or a bound.

    Attributes: `emit`; `window`, a length or None; `time`, a column or None; `above`, int or None; `key`,
    empty: SF.
    """

    cdef WindowContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        owner_setup(self, operator, PS if operator.key else SF)
        if operator.key:
            self.keys = KeySpecOwner(operator.key, self.input_layout.types)
            self.context.keys = &self.keys.spec
        self.context.first = self.kernel.input.ncols
        self.context.above = -1 if operator.above is None else operator.above
        if operator.window is not None:
            self.context.window = operator.window
            self.context.time = operator.time
            self.context.time_type = self.input_layout.types[self.context.time]
            self.context.result = self.output_layout.types[len(operator.key)]
            if self.context.window < 1 or self.context.result not in (PT_I32,
                                                                      PT_I64) or operator.emit != "updates":
                raise ValueError(f"{operator.name!r}: windows need a length of at least 1, a 32 or 64-bit "
                                 f"start, and emit='updates'")
            self.context.lowest = INT32_MIN if self.context.result == PT_I32 else INT64_MIN
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.process = window_process
        self.kernel.bucket_new = window_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
        if operator.emit == "updates":
            self.kernel.in_place = 1
            self.kernel.extra_cols = 2
            self.kernel.prepare = window_prepare
            self.kernel.finish = window_finish
        else:
            self.kernel.punctuate = window_punctuate
