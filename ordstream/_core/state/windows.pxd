"""Windows of keys over time, with aggregates: what the kernels window, hopping and rolling share.

a) Rows come a block at a time, with their keys' slots, their times, and what the aggregates look at
   (`block_next`). A block ends in front of a row with a null time or a failing condition.
b) A window is an output row of key, start, end, aggregates (`window_emit`); a punctuation that closes it
   says when and of which key (`window_close`).

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, PT_I64, PT_U64, Block, Chunk, Failure, Worker, chunk_alloc, chunk_reserve,
    failure_set,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.fold cimport Fold, FoldBlock, FoldOwner, fold_begin, fold_load
from ordstream._core.state.fold_rows cimport fold_store
from ordstream._core.state.key_words cimport are_words, words_copy, words_store
from ordstream._core.state.keyed_bucket cimport Bucket, put_word
from ordstream._core.state.keyed_rows cimport key_put
from ordstream._core.state.key_records cimport key_copy, key_store
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK, KeySpecOwner, LookupAhead, keyed_lookup_block
from ordstream._core.state.marks cimport Marking, Marks

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum Emission:
    EMIT_CLOSE = 1
    EMIT_UPDATES = 2
    EMIT_BOTH = 3

cdef struct WindowContext:
    # The first member of a kernel's context. Read-only while a run lasts. Memory ownership: the kernel.
    Marking by
    const Fold* fold
    const char* null_time  # what is said of a null time
    int32_t nkeys
    int32_t time           # input column; -1: none
    int32_t time_type
    int32_t conditions     # column of the aggregates' bits (fold_prepare)
    int32_t shown          # PhysicalType of start and end, where they are shown
    int32_t emission       # Emission
    int64_t length         # of a window; of a session the timeout
    int64_t offset         # where windows side by side, and hopping ones, begin: from 0 to their distance
    int64_t least          # range of start and end
    int64_t most

cdef struct WindowBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    Marks marks

cdef struct WindowBlock:
    # The rows of a call, a block at a time. On the stack.
    FoldBlock fold
    LookupAhead ahead
    int32_t[LOOKUP_BLOCK] slots
    int64_t[LOOKUP_BLOCK] times
    const int64_t* clock   # a 64-bit time column: read where it lies
    Block* scratch
    char* top
    int32_t at             # rows in front of the block
    int32_t n              # of the block
    int32_t clean          # of these, in front of a null time
    int32_t end            # of these, in front of a failing condition


# -------------------------------------------------------------------------------- where windows begin


cdef inline int64_t behind_multiple(int64_t time, int64_t of) noexcept nogil:
    """By how much a time is behind the multiple at it or before it."""
    cdef int64_t behind = time % of
    return behind + of if behind < 0 else behind


cdef inline int64_t behind_start(const WindowContext* x, int64_t distance, int64_t time) noexcept nogil:
    """By how much a time is behind the newest start of windows that begin so far apart."""
    cdef int64_t behind = behind_multiple(time, distance) - x.offset
    return behind + distance if behind < 0 else behind


# -------------------------------------------------------------------------------- rows


cdef inline int block_begin(const WindowContext* x, Worker* w, const Chunk* c,
                            WindowBlock* t) noexcept nogil:
    """Before the first block. 0, or -1: no memory."""
    t.at = 0
    t.n = 0
    t.clean = 0
    t.end = 0
    t.ahead.n = 0
    t.clock = NULL
    if fold_begin(x.fold, w, &t.fold) != 0:
        return -1
    t.scratch = w.scratch.current
    t.top = w.scratch.top
    if x.time >= 0 and x.time_type == PT_I64:
        t.clock = <const int64_t*> c.cols[x.time].data
    return 0


cdef inline bint block_next(const WindowContext* x, Bucket* b, Worker* w, Chunk* c, const int32_t* rows,
                            int32_t n, WindowBlock* t, Failure* f) noexcept nogil:
    """The next block: rows[t.at:][:t.end], the block before having been processed. False: there is none;
    t.at rows were processed, and if they are fewer than n, f says why."""
    cdef const uint8_t* valid = c.cols[x.time].valid if x.time >= 0 else NULL
    cdef const int32_t* mine
    t.at += t.end
    if t.end < t.clean:
        return False
    if t.clean < t.n:
        failure_set(f, rows[t.at], FAIL_NULL, x.null_time)
        return False
    if t.at >= n:
        return False
    t.n = min(n - t.at, <int32_t> LOOKUP_BLOCK)
    t.clean = t.n
    mine = rows + t.at
    if w.scratch.current == t.scratch:                       # nothing of the last block is needed any more
        w.scratch.top = t.top
    if valid != NULL:
        t.clean = 0
        while t.clean < t.n and valid[mine[t.clean]] != 0:
            t.clean += 1
    t.end = fold_load(x.fold, w, c, mine, t.clean, x.conditions, &t.fold, f) if t.clean else 0
    if x.time >= 0 and t.clock == NULL:
        load(t.times, x.time_type, c.cols[x.time].data, mine, t.end)
    if t.end and x.by.keys != NULL and keyed_lookup_block(
            &b.keyed, w, c, mine, t.end,
            min(n - t.at - t.end, <int32_t> LOOKUP_BLOCK) if t.end == t.n else 0, &t.ahead, t.slots) != 0:
        failure_set(f, mine[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return False
    return True


cdef inline int64_t block_time(const WindowBlock* t, int32_t row, int32_t i) noexcept nogil:
    """Time of row i of the block, which is `row`."""
    return t.clock[row] if t.clock != NULL else t.times[i]


# -------------------------------------------------------------------------------- windows as output


cdef inline int window_emit(const WindowContext* x, Kernel* k, Worker* w, const char* record, int64_t start,
                            int64_t end, const char* aggregates, Chunk* out, int32_t origin, bint closed,
                            int32_t ahead) noexcept nogil:
    """Append a window. `ahead`: rows to make room for where there is none. 0, or -1: no memory."""
    cdef int32_t index = out.n
    cdef int32_t at = x.nkeys
    if index == out.capacity and chunk_reserve(w, out, k.output, ahead) != 0:
        return -1
    if x.by.keys != NULL and are_words(x.by.keys, record):
        words_store(x.by.keys, record, out, index)
    elif x.by.keys != NULL and not x.by.keys.has_views:
        if key_store(x.by.keys, record, w, out, index) != 0:
            return -1
    elif x.by.keys != NULL and key_put(x.by.keys, record, w, out, index) != 0:
        return -1                                            # copied: the map's strings go with their keys
    put_word(out.cols[at].data, x.shown, index, start)
    put_word(out.cols[at + 1].data, x.shown, index, end)
    if fold_store(x.fold, aggregates, w, out, at + 2, index) != 0:
        return -1
    if x.emission == EMIT_BOTH:
        (<uint8_t*> out.cols[at + 2 + x.fold.n].data)[index] = closed
    out.origin[index] = origin
    out.n = index + 1
    out.slots = out.n
    return 0


cdef inline int window_close(const WindowContext* x, Kernel* k, Worker* w, const char* record, int64_t start,
                             int64_t end, const char* aggregates, Chunk* out, bint final) noexcept nogil:
    """Append a window that a punctuation closes, if windows are shown when they close. 0, or -1: no
    memory."""
    cdef char* key = NULL
    if not x.emission & EMIT_CLOSE:
        return 0
    if out.n == out.capacity and flush_reserve(w, out, k.output, LOOKUP_BLOCK) != 0:
        return -1
    if x.by.keys != NULL:
        key = chunk_alloc(w, out, x.by.key_size)
        if key == NULL:
            return -1
        if x.by.keys.words:
            words_copy(x.by.keys, record, key)
        elif key_copy(x.by.keys, record, w, out, key) != 0:
            return -1
    out.flush_time[out.n] = 0 if final else end
    out.flush_key[out.n] = key
    return window_emit(x, k, w, record, start, end, aggregates, out, 0, True, 1)


# -------------------------------------------------------------------------------- construction


cdef inline FoldOwner window_setup(KernelOwner owner, operator, WindowContext* x, int32_t before,
                                   int32_t behind, bint slides):
    """Fill what every kernel of windows has. `before`, `behind`: output columns beside the aggregates.

    Thread safety: construction only, with the GIL. Ownership: the owner keeps key and aggregates. Raises:
    ValueError for another output schema, TypeError where the time column has no times.
    """
    cdef KeySpecOwner keys
    cdef FoldOwner fold
    owner_setup(owner, operator, PS if operator.key else SF)
    types = owner.output_layout.types
    if len(types) != before + len(operator.aggregates) + behind:
        raise ValueError(f"{operator.name!r}: the output schema must have {before} columns, the aggregates, "
                         f"then {behind}")
    x.nkeys = <int32_t> len(operator.key)
    if operator.key:
        keys = KeySpecOwner(operator.key, owner.input_layout.types)
        owner.references.append(keys)
        x.by.keys = &keys.spec
        x.by.key_size = keys.spec.size
    values = types[before:before + len(operator.aggregates)]
    fold = FoldOwner(operator.aggregates, owner.input_layout, values, slides=slides)
    owner.references.append(fold)
    x.fold = &fold.fold
    x.time = -1
    if operator.time is not None:
        x.time = operator.time
        x.time_type = owner.input_layout.types[operator.time]
        if x.time_type >= PT_U64:
            raise TypeError(f"{operator.name!r}: the time column must be an integer below uint64, a date or "
                            f"a timestamp")
    x.by.clocked = operator.clock is not None
    x.length = operator.window.length
    x.offset = operator.window.offset
    x.by.period = operator.window.marks
    owner.kernel.uses_hash = 1 if operator.key else 0
    return fold


cdef inline int window_shown(KernelOwner owner, operator, WindowContext* x) except -1:
    """Fill how windows are shown that are output rows of their own."""
    from ordstream.ground.types import integer_range

    x.shown = owner.output_layout.types[x.nkeys]
    x.emission = {"close": EMIT_CLOSE, "updates": EMIT_UPDATES, "both": EMIT_BOTH}[operator.emit]
    x.least, x.most = integer_range(operator.output.field(x.nkeys).type)
    x.conditions = owner.kernel.input.ncols
    x.null_time = "a null time: filter such tuples out before window"
    owner.kernel.extra_cols = x.fold.n
    return 0
