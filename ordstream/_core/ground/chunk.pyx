"""Cold half of chunk.pxd: arenas, the pool, growing output chunks, layouts."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strncpy
from ordstream._core.ground.atomics cimport add_relaxed, as_int, as_pointer, sub_acq_rel
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.threads cimport mutex_delete, mutex_new
from ordstream._core.ground.widths cimport WIDTHS

from ordstream.ground.by_identity import by_identity
from ordstream.ground.packed_types import is_packed

cdef enum:
    BLOCK_MIN = 2048           # bytes of a chunk's first arena block: one tuple per chunk stays small
    BLOCK_KEEP = 1 << 20       # a first block above this is not kept when its chunk is recycled
    GROUP_BYTES = 1 << 20      # a group has no more chunks once their blocks have so much


cdef char* arena_grow(Arena* a, int64_t size, ChunkPool* pool) noexcept nogil:
    """Slow path of arena_alloc: a new block, at least twice the last one."""
    cdef Block* b
    cdef int64_t want = BLOCK_MIN
    if a.current != NULL:
        want = a.current.size * 2
        if want > BLOCK_KEEP:
            want = BLOCK_KEEP
    if want < size:
        want = size
    b = <Block*> malloc(sizeof(Block) + want)
    if b == NULL:
        return NULL
    add_relaxed(&pool.bytes, <int64_t> sizeof(Block) + want)    # statistic; no partner
    b.next = NULL
    b.size = want
    if a.first == NULL:
        a.first = b
    else:
        a.current.next = b
    a.current = b
    a.top = <char*> (b + 1) + size
    a.end = <char*> (b + 1) + want
    return <char*> (b + 1)


cdef void arena_free(Arena* a, ChunkPool* pool) noexcept nogil:
    """Free every block. The arena is empty and usable afterwards."""
    cdef Block* b = a.first
    cdef Block* following
    cdef int64_t bytes = 0
    while b != NULL:
        following = b.next
        bytes += <int64_t> sizeof(Block) + b.size
        free(b)
        b = following
    if bytes:
        add_relaxed(&pool.bytes, -bytes)
    a.first = NULL
    a.current = NULL
    a.top = NULL
    a.end = NULL


cdef void arena_reset(Arena* a, ChunkPool* pool) noexcept nogil:
    """Forget every allocation; keep one block (the largest that is worth keeping) for the next use."""
    cdef Block* b
    cdef Block* following
    cdef Block* best = NULL
    cdef int64_t bytes = 0
    if a.first == NULL:
        return
    b = a.first
    while b != NULL:
        if b.size <= BLOCK_KEEP and (best == NULL or b.size > best.size):
            best = b
        b = b.next
    b = a.first
    while b != NULL:
        following = b.next
        if b != best:
            bytes += <int64_t> sizeof(Block) + b.size
            free(b)
        b = following
    if bytes:
        add_relaxed(&pool.bytes, -bytes)
    a.first = best
    a.current = best
    if best == NULL:
        a.top = NULL
        a.end = NULL
    else:
        best.next = NULL
        a.top = <char*> (best + 1)
        a.end = <char*> (best + 1) + best.size


cdef int pool_init(ChunkPool* pool, int32_t max_cols, int64_t max_idle) except -1:
    """An empty pool, which keeps at most `max_idle` bytes of idle chunks. Raises MemoryError. Ownership:
    caller, until pool_free.
    """
    memset(<void*> pool, 0, sizeof(ChunkPool))
    pool.mutex = mutex_new()
    if pool.mutex == NULL:
        raise MemoryError
    pool.max_cols = max_cols
    pool.max_idle = max_idle
    return 0


# A group of idle chunks is linked by `link`, the groups by `held_next` of each one's first chunk. That one
# also says how many chunks the group has, in `n`, and the bytes of their blocks, in `first_serial`: a worker
# that looked at each of them while it held the mutex would fetch lines of other cores for all to wait for.

cdef inline int64_t group_bytes(const Chunk* first) noexcept nogil:
    return first.first_serial + first.n * <int64_t> sizeof(Chunk)


cdef inline int64_t first_block(const Chunk* c) noexcept nogil:
    """Bytes of the block that an idle chunk keeps: not counted while it lies in the shared free list."""
    return 0 if c.arena.first == NULL else <int64_t> sizeof(Block) + c.arena.first.size


cdef void chunk_delete(Chunk* c, ChunkPool* pool) noexcept nogil:
    arena_free(&c.arena, pool)
    free(c.block)


cdef void group_delete(Chunk* c, ChunkPool* pool) noexcept nogil:
    cdef Chunk* following
    while c != NULL:
        following = c.link
        chunk_delete(c, pool)
        c = following


cdef void pool_free(ChunkPool* pool) noexcept nogil:
    """Free every idle chunk. All workers must have been freed before."""
    cdef Chunk* c = pool.free
    cdef Chunk* following
    while c != NULL:
        following = c.held_next
        add_relaxed(&pool.bytes, c.first_serial)              # statistic; no partner
        group_delete(c, pool)
        c = following
    pool.free = NULL
    pool.idle = 0
    if pool.mutex != NULL:
        mutex_delete(pool.mutex)
        pool.mutex = NULL


cdef void worker_init(Worker* w, ChunkPool* pool, int32_t id) noexcept nogil:
    memset(w, 0, sizeof(Worker))
    w.pool = pool
    w.id = id
    w.rng = <uint64_t> (id + 1) * <uint64_t> 0x9E3779B97F4A7C15


cdef void worker_free(Worker* w) noexcept nogil:
    """Return the worker's cached chunks and scratch; fold its live count into the pool's."""
    cdef Chunk* c = w.cached
    cdef Chunk* following
    while c != NULL:
        following = c.link
        chunk_delete(c, w.pool)
        c = following
    w.cached = NULL
    w.ncached = 0
    arena_free(&w.scratch, w.pool)
    add_relaxed(&w.pool.live, w.live_delta)     # statistic, read after all workers ended
    w.live_delta = 0


cdef Chunk* chunk_take_slow(Worker* w) noexcept nogil:
    """A chunk from the newest idle group, whose others become the worker's cache, which is empty; else a new
    one. NULL: no memory."""
    cdef Chunk* c = NULL
    cdef void* block
    cdef int64_t size
    w.pool.mutex.lock()
    c = w.pool.free
    if c != NULL:
        w.pool.free = c.held_next
        w.pool.idle -= group_bytes(c)
    w.pool.mutex.unlock()
    if c != NULL:
        add_relaxed(&w.pool.bytes, c.first_serial)            # statistic; no partner
        w.cached = c.link
        w.ncached = c.n - 1
        return c
    size = <int64_t> sizeof(Chunk) + w.pool.max_cols * <int64_t> sizeof(Column)
    block = calloc(1, size + 64)
    if block == NULL:
        return NULL
    c = <Chunk*> as_pointer((as_int(block) + 63) & ~<int64_t> 63)
    c.block = block
    c.cols = <Column*> (c + 1)
    return c


cdef void chunk_return_slow(Worker* w) noexcept nogil:
    """Give up to half of the worker's cache to the pool, as a group; past the pool's bound, to the
    allocator."""
    cdef Chunk* head = w.cached
    cdef Chunk* tail = head
    cdef int32_t n = 1
    head.first_serial = first_block(head)
    while n < w.ncached // 2 and head.first_serial < GROUP_BYTES:
        tail = tail.link
        head.first_serial += first_block(tail)
        n += 1
    head.n = n
    w.cached = tail.link
    w.ncached -= n
    tail.link = NULL
    add_relaxed(&w.pool.bytes, -head.first_serial)            # statistic; no partner
    w.pool.mutex.lock()
    if w.pool.idle + group_bytes(head) <= w.pool.max_idle:
        head.held_next = w.pool.free
        w.pool.free = head
        w.pool.idle += group_bytes(head)
        head = NULL
    w.pool.mutex.unlock()
    if head != NULL:
        add_relaxed(&w.pool.bytes, head.first_serial)         # chunk_delete takes it off again
        group_delete(head, w.pool)


cdef void chunk_release_held(Worker* w, Chunk* c) noexcept nogil:
    """Release what a chunk holds. A failure's exception must have been taken before (it needs the GIL to
    drop)."""
    cdef Chunk* h = c.held
    cdef Chunk* following
    c.held = NULL
    if c.failure != NULL:
        free(c.failure)
        c.failure = NULL
    while h != NULL:
        following = h.held_next
        # acq_rel: the last one sees what others did with the chunk's memory
        if h.kind == SHARE and sub_acq_rel(&h.beside.pending, 1) == 1:
            chunk_free(w, h.beside)
        chunk_free(w, h)
        h = following


cdef void chunk_hold(Chunk* c, Chunk* held) noexcept nogil:
    """`held` is released together with `c`, whose views may point into it.

    Thread safety: the owner of both. Ownership of `held` passes to `c`. Cost: O(1).
    """
    held.held_next = c.held
    c.held = held


cdef int chunk_hold_share(Worker* w, Chunk* c, Chunk* shared) noexcept nogil:
    """`shared` is released when the last of those that hold a share of it is; its `pending` says how many
    these are.

    Thread safety: the owner of `c`; releasing, any worker. Ownership of `shared`: all of them together, from
    then on. Returns: 0, or -1: no memory. Cost: one small chunk.
    """
    cdef Chunk* share = chunk_new(w)
    if share == NULL:
        return -1
    share.kind = SHARE
    share.beside = shared
    chunk_hold(c, share)
    return 0


cdef Chunk* chunk_beside(Worker* w, const Chunk* c) noexcept nogil:
    """A new chunk with the columns, slots and serials of `c`, and no rows.

    Thread safety: the worker only. Ownership: the caller's; what the columns point to stays c's. Returns:
    NULL when memory is exhausted. Cost: a copy of the column pointers.
    """
    cdef Chunk* new = chunk_new(w)
    if new == NULL:
        return NULL
    new.ncols = c.ncols
    memcpy(new.cols, c.cols, c.ncols * sizeof(Column))
    new.slots = c.slots
    new.first_serial = c.first_serial
    new.last_serial = c.last_serial
    new.serials = c.serials
    return new


cdef Chunk* unit_front(Chunk* unit, uint64_t lanes) noexcept nogil:
    """Bring a chunk with rows in one of these lanes (a bit each) to the front.

    It then carries what is said of the unit.

    Thread safety: the unit's owner. Ownership: unchanged. Returns: the first chunk; NULL: none of these
    lanes has rows, and nothing was changed. Cost: a few instructions per chunk of the unit.
    """
    cdef Chunk* before = unit
    cdef Chunk* c = unit.beside
    if unit.n and lanes >> unit.lane & 1:
        return unit
    while c != NULL and not (c.n and lanes >> c.lane & 1):
        before = c
        c = c.beside
    if c == NULL:
        return NULL
    before.beside = c.beside
    c.beside = unit
    c.link = unit.link
    unit.link = NULL
    c.ticket = unit.ticket
    c.counted = unit.counted
    unit.counted = 0
    c.last_serial = unit.last_serial
    c.dispatched_ns = unit.dispatched_ns
    c.arrived_ns = unit.arrived_ns
    c.time = unit.time
    return c


cdef int chunk_reserve(Worker* w, Chunk* out, const Layout* layout, int32_t extra) noexcept nogil:
    """Room for `extra` more rows in an output chunk (columns and origin; flush arrays if they exist).

    The caller appends at slots out.n .. and then sets out.n and out.slots. A fresh chunk gets its columns
    here (valid = NULL; use chunk_set_valid before writing a null). Capacity at least doubles. Thread safety:
    owner. Ownership: arrays belong to out's arena. Returns: 0, or -1 when memory is exhausted (out
    unchanged).
    """
    cdef int64_t need = <int64_t> out.n + extra
    cdef int64_t cap = out.capacity
    cdef int32_t j
    cdef char* data
    cdef uint8_t* valid
    cdef int32_t* origin
    cdef int64_t* flush_time
    cdef char** flush_key
    if need <= cap:
        return 0
    if need > 0x7fffffff:
        return -1
    cap = cap * 2 if cap * 2 > need else need
    if cap > 0x7fffffff:
        cap = 0x7fffffff
    if out.capacity == 0:
        out.ncols = layout.ncols
        for j in range(layout.ncols):
            out.cols[j].data = NULL
            out.cols[j].valid = NULL
    for j in range(layout.ncols):
        data = chunk_alloc(w, out, cap * layout.width[j])
        if data == NULL:
            return -1
        if out.n:
            memcpy(data, out.cols[j].data, <size_t> out.n * layout.width[j])
        out.cols[j].data = data
        if out.cols[j].valid != NULL:
            valid = <uint8_t*> chunk_alloc(w, out, cap)
            if valid == NULL:
                return -1
            memcpy(valid, out.cols[j].valid, out.n)
            memset(valid + out.n, 1, cap - out.n)
            out.cols[j].valid = valid
    origin = <int32_t*> chunk_alloc(w, out, cap * 4)
    if origin == NULL:
        return -1
    if out.n:
        memcpy(origin, out.origin, <size_t> out.n * 4)
    out.origin = origin
    if out.flush_time != NULL or out.kind != DATA:
        flush_time = <int64_t*> chunk_alloc(w, out, cap * 8)
        flush_key = <char**> chunk_alloc(w, out, cap * 8)
        if flush_time == NULL or flush_key == NULL:
            return -1
        memset(flush_time, 0, cap * 8)
        memset(flush_key, 0, cap * 8)
        if out.n and out.flush_time != NULL:
            memcpy(flush_time, out.flush_time, <size_t> out.n * 8)
            memcpy(flush_key, out.flush_key, <size_t> out.n * 8)
        out.flush_time = flush_time
        out.flush_key = flush_key
    out.capacity = <int32_t> cap
    return 0


cdef int chunk_set_valid(Worker* w, Chunk* c, int32_t col) noexcept nogil:
    """Give column `col` a validity array (all ones) if it has none. 0, or -1: no memory."""
    cdef int64_t size = c.capacity if c.capacity else c.slots
    cdef uint8_t* valid
    if c.cols[col].valid != NULL:
        return 0
    valid = <uint8_t*> chunk_alloc(w, c, size)
    if valid == NULL:
        return -1
    memset(valid, 1, size)
    c.cols[col].valid = valid
    return 0


cdef void failure_set(Failure* f, int32_t slot, int32_t code, const char* message) noexcept nogil:
    f.slot = slot
    f.code = code
    strncpy(f.message, message, sizeof(f.message) - 1)
    f.message[sizeof(f.message) - 1] = 0


cdef Failure* failure_new(int32_t slot, int32_t code, const char* message) noexcept nogil:
    """A malloc'ed failure without an exception; NULL: no memory. Ownership: the chunk that it is put
    into."""
    cdef Failure* f = <Failure*> calloc(1, sizeof(Failure))
    if f != NULL:
        failure_set(f, slot, code, message)
    return f


cdef void failure_note(Chunk* c, int32_t slot, int32_t code, const char* message) noexcept nogil:
    """Give the input chunk of an SL kernel its failure. Where there is no memory even for that, the chunk
    says so (`unnoted`), and the run ends without its rows: otherwise they would be missing without a word.

    Thread safety: the chunk's owner. Ownership: the failure belongs to the chunk. Cost: one calloc.
    """
    c.failure = failure_new(slot, code, message)
    if c.failure == NULL:
        c.unnoted = 1


cdef class LayoutOwner:
    """Arrays of a Layout. Memory ownership: allocates in __cinit__, frees in __dealloc__."""

    def __cinit__(self, types, elements):
        """types: sequence of PhysicalType; elements: PhysicalType of list elements, -1 elsewhere."""
        cdef int32_t n = <int32_t> len(types)
        cdef int32_t j
        self.layout.ncols = n
        self.layout.type = <int32_t*> calloc(n + 1, 4)
        self.layout.width = <int32_t*> calloc(n + 1, 4)
        self.layout.element = <int32_t*> calloc(n + 1, 4)
        if self.layout.type == NULL or self.layout.width == NULL or self.layout.element == NULL:
            raise MemoryError
        for j in range(n):
            self.layout.type[j] = types[j]
            self.layout.width[j] = WIDTHS[<int> types[j]]
            self.layout.element[j] = elements[j]

    def __dealloc__(self):
        free(self.layout.type)
        free(self.layout.width)
        free(self.layout.element)

    @property
    def types(self):
        return [self.layout.type[j] for j in range(self.layout.ncols)]

    @property
    def elements(self):
        return [self.layout.element[j] for j in range(self.layout.ncols)]


PHYSICAL_TYPES = {
    "i8": PT_I8, "i16": PT_I16, "i32": PT_I32, "i64": PT_I64, "u8": PT_U8, "u16": PT_U16, "u32": PT_U32,
    "u64": PT_U64, "f32": PT_F32, "f64": PT_F64, "bool": PT_BOOL, "view": PT_VIEW, "list": PT_LIST,
    "fixed16": PT_FIXED16,
}


def physical_type(t):
    """(PhysicalType, element PhysicalType or -1) of a pyarrow type that a pipeline may carry
    (ordstream/ground/types.py checks).

    Raises TypeError for a type without a physical class.
    """
    import pyarrow.types as pt

    if pt.is_dictionary(t):
        t = t.value_type
    if pt.is_boolean(t):
        return PT_BOOL, -1
    if pt.is_int8(t):
        return PT_I8, -1
    if pt.is_int16(t):
        return PT_I16, -1
    if pt.is_int32(t) or pt.is_date32(t) or pt.is_time32(t):
        return PT_I32, -1
    if pt.is_int64(t) or pt.is_date64(t) or pt.is_time64(t) or pt.is_timestamp(t) or pt.is_duration(t):
        return PT_I64, -1
    if pt.is_uint8(t):
        return PT_U8, -1
    if pt.is_uint16(t):
        return PT_U16, -1
    if pt.is_uint32(t):
        return PT_U32, -1
    if pt.is_uint64(t):
        return PT_U64, -1
    if pt.is_float32(t):
        return PT_F32, -1
    if pt.is_float64(t):
        return PT_F64, -1
    if (pt.is_string(t) or pt.is_large_string(t) or pt.is_binary(t) or pt.is_large_binary(t)
            or str(t) in ("string_view", "binary_view")):
        return PT_VIEW, -1
    if pt.is_decimal128(t):  # ordstream/ground/types.py, is_counted and is_wide
        return (PT_I64 if t.precision <= 18 else PT_VIEW), -1
    if is_packed(t):
        return PT_VIEW, -1
    if pt.is_list(t) or pt.is_large_list(t):
        inner, deeper = physical_type(t.value_type)
        if deeper != -1 or inner == PT_LIST:
            raise TypeError(f"lists of {t.value_type} are not supported inside a pipeline")
        return PT_LIST, inner
    raise TypeError(f"Arrow type {t} is not supported inside a pipeline")


@by_identity
def classes_of(schema):
    """(PhysicalType of each column, the same of its elements or -1) of a pyarrow schema."""
    classes = [physical_type(type_) for type_ in schema.types]
    return tuple([t for t, _ in classes]), tuple([e for _, e in classes])


def layout_of(schema):
    """LayoutOwner of a pyarrow schema."""
    types, elements = classes_of(schema)
    return LayoutOwner(list(types), list(elements))
