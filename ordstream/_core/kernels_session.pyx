"""Sessionize: runs of a key's tuples whose times follow each other within a timeout. Contract: kernel.pxd (b), (c).

a) A key's record holds the open session: its times, its count, and per collected column a list. The first values of a list lie in
   the record itself (most sessions are short); longer lists move to blocks of the bucket, in sizes of powers of two, which are
   recycled when the session closes.
b) A closed session is copied into the output chunk: list columns are views into its arena, never into the state.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.blocks cimport Blocks, block_give, block_take, blocks_bytes, blocks_free
from ordstream._core.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, PT_U64, TIME, Chunk, Failure, LayoutOwner, View, Worker,
    chunk_alloc, chunk_reserve, failure_set,
)
from ordstream._core.kernel cimport PS, Kernel, KernelOwner
from ordstream._core.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, key_copy, key_store, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
    keyed_record,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)
    int64_t store(void* data, int type, const int32_t* sel, const void* values, int scalar, int64_t n)

cdef enum:
    INLINE_BYTES = 32      # of a list that lie in the record
    FIRST_CLASS = 6        # smallest block: 64 bytes

cdef struct Collected:
    # The values of one column of an open session.
    char* block            # owned by the bucket's arena; NULL: the values lie in `first`
    int32_t n
    int32_t size_class     # block holds 1 << size_class bytes
    char[INLINE_BYTES] first

cdef struct Session:
    # Followed by one Collected per collected column.
    int64_t start          # time of the first tuple
    int64_t last           # time of the latest tuple
    int64_t count          # 0: no session is open

cdef struct SessionContext:
    # Read-only while a run lasts. Memory ownership: SessionKernel.
    const KeySpec* keys
    int32_t time           # input column
    int32_t time_type
    int32_t n              # collected columns
    int32_t* column        # input column of each
    int32_t* width         # bytes per value of each
    int64_t timeout

cdef struct SessionBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    Blocks blocks          # of long lists


cdef inline Collected* collected_of(Session* s, int32_t j) noexcept nogil:
    return (<Collected*> (s + 1)) + j


cdef inline void collected_clear(SessionBucket* b, Collected* list) noexcept nogil:
    if list.block != NULL:
        block_give(&b.blocks, list.block, list.size_class)
        list.block = NULL
    list.n = 0


cdef int collected_grow(SessionBucket* b, Collected* list, int32_t width) noexcept nogil:
    """Move a full list to a block of twice the size. 0, or -1: no memory (the list is as before)."""
    cdef int32_t larger = list.size_class + 1 if list.block != NULL else <int32_t> FIRST_CLASS
    cdef char* block = block_take(&b.blocks, larger)
    if block == NULL:
        return -1
    memcpy(block, list.block if list.block != NULL else <char*> list.first, <size_t> list.n * width)
    if list.block != NULL:
        block_give(&b.blocks, list.block, list.size_class)
    list.block = block
    list.size_class = larger
    return 0


cdef inline int collected_add(SessionBucket* b, Collected* list, int32_t width, const char* value) noexcept nogil:
    """Append one value. 0, or -1: no memory."""
    cdef int64_t room = INLINE_BYTES if list.block == NULL else (<int64_t> 1) << list.size_class
    cdef char* data
    if (list.n + <int64_t> 1) * width > room and collected_grow(b, list, width) != 0:
        return -1
    data = <char*> list.first if list.block == NULL else list.block
    if width == 8:
        (<int64_t*> data)[list.n] = (<const int64_t*> value)[0]
    elif width == 4:
        (<int32_t*> data)[list.n] = (<const int32_t*> value)[0]
    else:
        memcpy(data + <int64_t> list.n * width, value, width)
    list.n += 1
    return 0


cdef int emit(Kernel* k, Worker* w, SessionBucket* b, char* record, Chunk* out, int32_t origin) noexcept nogil:
    """Append a session (room for the row is reserved) and recycle its blocks. 0, or -1: no memory, and the session stays."""
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef Session* s = <Session*> (record + x.keys.size)
    cdef Collected* list
    cdef View* v
    cdef char* copy
    cdef int32_t nkeys = x.keys.ncols
    cdef int32_t index = out.n
    cdef int32_t j
    if key_store(x.keys, record, w, out, index) != 0:
        return -1
    store(out.cols[nkeys].data, x.time_type, &index, &s.start, 0, 1)
    store(out.cols[nkeys + 1].data, x.time_type, &index, &s.last, 0, 1)
    (<int64_t*> out.cols[nkeys + 2].data)[index] = s.count
    for j in range(x.n):
        list = collected_of(s, j)
        copy = chunk_alloc(w, out, <int64_t> list.n * x.width[j])
        if copy == NULL:
            return -1
        memcpy(copy, <char*> list.first if list.block == NULL else list.block, <size_t> list.n * x.width[j])
        v = &(<View*> out.cols[nkeys + 3 + j].data)[index]
        v.data = copy
        v.size = list.n
    for j in range(x.n):
        collected_clear(b, collected_of(s, j))
    s.count = 0
    out.origin[index] = origin
    out.n = index + 1
    out.slots = out.n
    return 0


cdef inline bint within(const SessionContext* x, int64_t time, int64_t last) noexcept nogil:
    """time - last <= timeout, without overflow; also when time went back."""
    if x.time_type == PT_U64:
        return <uint64_t> time <= <uint64_t> last or <uint64_t> time - <uint64_t> last <= <uint64_t> x.timeout
    return time <= last or <uint64_t> time - <uint64_t> last <= <uint64_t> x.timeout


cdef void* session_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef SessionBucket* b = <SessionBucket*> calloc(1, sizeof(SessionBucket))
    cdef int64_t size = <int64_t> sizeof(Session) + x.n * <int64_t> sizeof(Collected)
    if b != NULL and keyed_init(&b.keyed, x.keys, <int32_t> size, &b.blocks.pool) != 0:
        free(b)
        return NULL
    return b


cdef void session_free(Kernel* k, void* state) noexcept nogil:
    cdef SessionBucket* b = <SessionBucket*> state
    keyed_free(&b.keyed)
    blocks_free(&b.blocks)
    free(b)


cdef int64_t session_bytes(Kernel* k, void* state) noexcept nogil:
    cdef SessionBucket* b = <SessionBucket*> state
    return keyed_bytes(&b.keyed) + blocks_bytes(&b.blocks)


cdef int32_t session_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Add rows to their keys' sessions; a row after a gap emits the session before it.

    Thread safety: the bucket's holder. Ownership: outputs own their lists. Returns: n, or j when rows[j] holds a null time or a null
    in a collected column (its state untouched), or without memory. Cost: keyed_lookup, ~3 ns per row, ~20 ns per emitted session.
    """
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef SessionBucket* b = <SessionBucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] times
    cdef const uint8_t* valid
    cdef Session* s
    cdef char* record
    cdef int64_t time
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    cdef int32_t row
    cdef int32_t end = 0                                     # rows of the block without nulls
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        end = m
        valid = c.cols[x.time].valid
        for j in range(-1, x.n):
            if j >= 0:
                valid = c.cols[x.column[j]].valid
            if valid != NULL:
                i = 0
                while i < end and valid[rows[k0 + i]] != 0:
                    i += 1
                end = i
        load(times, x.time_type, c.cols[x.time].data, rows + k0, end)
        if end and keyed_lookup(&b.keyed, w, c, rows + k0, end, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            row = rows[k0 + i]
            record = keyed_record(&b.keyed, slots[i])
            s = <Session*> (record + x.keys.size)
            time = times[i]
            if s.count == 0:
                s.start = time
            elif not within(x, time, s.last):
                if out.n == out.capacity and chunk_reserve(w, out, k.output, min(n - k0 - i, <int32_t> LOOKUP_BLOCK)) != 0:
                    failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
                if emit(k, w, b, record, out, row) != 0:
                    failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
                s.start = time
            for j in range(x.n):
                if collected_add(b, collected_of(s, j), x.width[j],
                                 c.cols[x.column[j]].data + <int64_t> row * x.width[j]) != 0:
                    failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
            s.last = time
            s.count += 1
        k0 += end
        if end < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null time or collected value: filter such tuples out before sessionize")
            return k0
    return n


cdef int session_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out, Failure* f) noexcept nogil:
    """Emit open sessions: all of them at the end of the stream, at a time punctuation those that no tuple could still extend.

    Thread safety: the bucket's holder. Ownership: outputs own their lists and key records. Returns: 0, or -1: no memory. Cost: a pass
    over the bucket's keys.
    """
    cdef SessionContext* x = <SessionContext*> k.ctx
    cdef SessionBucket* b = <SessionBucket*> state
    cdef bint final = punctuation.kind == END_OF_STREAM
    cdef Session* s
    cdef char* record
    cdef char* key
    cdef int64_t i
    cdef int64_t due = 0
    cdef int32_t index
    if not final and punctuation.kind != TIME:
        return 0
    for i in range(b.keyed.count):
        s = <Session*> (keyed_record(&b.keyed, i) + x.keys.size)
        if s.count and (final or not within(x, punctuation.time, s.last)):
            due += 1
    if due == 0:
        return 0
    if due > 0x7fffffff or flush_reserve(w, out, k.output, <int32_t> due) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    for i in range(b.keyed.count):
        record = keyed_record(&b.keyed, i)
        s = <Session*> (record + x.keys.size)
        if s.count and (final or not within(x, punctuation.time, s.last)):
            index = out.n
            key = chunk_alloc(w, out, x.keys.size)
            out.flush_time[index] = 0 if final else s.last
            if key == NULL or key_copy(x.keys, record, w, out, key) != 0 or emit(k, w, b, record, out, 0) != 0:
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            out.flush_key[index] = key
    return 0


cdef class SessionKernel(KernelOwner):
    """Operator "sessionize": params {"time": column, "timeout": int, "collect": [column, ...]}; the key is stage.key."""

    cdef SessionContext context
    cdef KeySpecOwner keys

    def __init__(self, stage):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, stage, PS)
        layout = self.input_layout
        collect = list(stage.params["collect"])
        self.keys = KeySpecOwner(stage.key, layout.types)
        self.context.keys = &self.keys.spec
        self.context.time = stage.params["time"]
        self.context.time_type = layout.layout.type[self.context.time]
        self.context.timeout = stage.params["timeout"]
        if self.context.time_type > PT_U64:
            raise TypeError(f"{stage.name!r}: the time column must be an integer, a date or a timestamp")
        if self.kernel.output.ncols != len(stage.key) + 3 + len(collect):
            raise ValueError(f"{stage.name!r}: the output schema must be key columns, start, end, count and one list per column")
        self.context.n = <int32_t> len(collect)
        self.context.column = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        self.context.width = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        if self.context.column == NULL or self.context.width == NULL:
            raise MemoryError
        for j in range(self.context.n):
            self.context.column[j] = collect[j]
            self.context.width[j] = layout.layout.width[self.context.column[j]]
            if self.context.width[j] > 8:
                raise TypeError(f"{stage.name!r}: only numbers, bool and dates/times can be collected")
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1
        self.kernel.process = session_process
        self.kernel.punctuate = session_punctuate
        self.kernel.bucket_new = session_new
        self.kernel.bucket_free = session_free
        self.kernel.bucket_bytes = session_bytes

    def __dealloc__(self):
        free(self.context.column)
        free(self.context.width)
