"""Chunk: 1..N consecutive tuples that move, and are put in order, as one unit.

Columns have Arrow's layout; memory comes from a pool.

a) Every column is fixed width: strings, binaries and lists are 16-byte `View`s into memory that outlives the
   chunk's passage (an input batch, a held chunk, an operator's state). Gathering rows is therefore copying
   fixed widths.
b) Columns are indexed by *slot*; `sel` lists the selected slots in order (NULL: slots 0..n-1). A filter
   narrows `sel`, a projection adds columns; neither moves a value. A kernel that makes other rows fills a
   fresh chunk (`origin` says which input slot caused each row).
c) A column's `valid` is one byte per slot (0 = null); NULL means no nulls. Values under a null are zeroed or
   garbage.
d) Memory ownership: a chunk has one owner at a time (a queue slot, then the worker that took it). Its arrays
   live in its arena and die with it. `held` are chunks that its views point into; they are released with it.
e) A unit has one chunk for each *lane* in which it has rows, linked by `beside`; the lanes of a unit may
   have rows of different shape. The first chunk carries what is said of the whole unit: link, ticket,
   counted, last_serial and the markers. Chunks that a branch made share columns, so these are read-only, and
   a chunk that another one is made of is held until the unit dies (flow/delivery.pyx, inherit). Rows of a
   lane are in input order. `fork` and `place` tell the order between lanes: the slot at the branch point
   that caused each row.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.threads cimport Mutex

cdef enum ChunkKind:
    DATA = 0
    END_OF_STREAM = 1
    TIME = 2               # event-time punctuation: `time` is its value
    SNAPSHOT = 3           # `time` is its number: every bucket's state leaves as it passes (exports.pxd)
    FAILURE = 4            # an in-order error: everything before it is delivered, nothing after it
    SUSPEND = 5            # a SNAPSHOT that ends the run: its stream goes on elsewhere; nothing is flushed
    SHARE = 6              # never travels: a share of `beside`, which lives as long as one of its shares

# Physical class of a column inside the core (design: ordstream/ground/types.py maps Arrow types to these).
cdef enum PhysicalType:
    PT_I8 = 0
    PT_I16 = 1
    PT_I32 = 2
    PT_I64 = 3
    PT_U8 = 4
    PT_U16 = 5
    PT_U32 = 6
    PT_U64 = 7
    PT_F32 = 8
    PT_F64 = 9
    PT_BOOL = 10           # one byte per slot, 0 or 1
    PT_VIEW = 11           # View of bytes: utf8 or binary
    PT_LIST = 12           # View of `size` elements of the element type (element nulls are not represented)
    PT_FIXED16 = 13        # decimal128: 16 opaque bytes

cdef struct View:
    const char* data
    int64_t size           # bytes (PT_VIEW) or elements (PT_LIST)

cdef struct Column:
    char* data             # slot-indexed; NULL for a source column that nothing reads
    uint8_t* valid         # one byte per slot, 0 = null; NULL: no nulls

cdef struct Layout:
    # Shape of an edge between operators. Ownership: whoever allocated it (a KernelOwner or the node).
    int32_t ncols
    int32_t* type          # PhysicalType per column
    int32_t* width         # bytes per value per column
    int32_t* element       # PT_LIST: PhysicalType of the elements, else -1

cdef struct Block:
    Block* next
    int64_t size           # usable bytes after this header

cdef struct Arena:
    # Bump allocator. The first block survives arena_reset. Not thread safe: owned by the chunk's or
    # scratch's owner.
    Block* first
    Block* current
    char* top
    char* end

cdef struct Failure:
    # Why a kernel could not finish a row. `exc` is an owned reference (take or drop it with the GIL only).
    int32_t slot           # slot of the failing row, -1: not one row
    int32_t code           # FailureCode
    void* exc              # PyObject* of the user's exception, or NULL
    char message[160]

cdef enum:
    CACHED_MAX = 256       # chunks a worker keeps to itself; half of them go to the pool when there are more
    # the same for large chunks: one worker makes them, another frees them, and memory should be warm
    CACHED_LARGE = 8
    LARGE_BLOCK = 1 << 15  # bytes of the block that a large chunk keeps

cdef enum FailureCode:
    FAIL_NONE = 0
    FAIL_OVERFLOW = 1
    FAIL_ZERO_DIVISION = 2
    FAIL_CAST = 3
    FAIL_NULL = 4
    FAIL_PYTHON = 5        # exc holds the user's exception
    FAIL_COMPILED = 6      # a compiled function returned a failing row
    FAIL_MEMORY = 7
    FAIL_TYPE = 8
    FAIL_SOURCE = 9
    FAIL_EARLIER = 10      # a time that runs backwards (earlier.pxd)
    FAIL_STATE = 11        # a row of state that a bucket can't take in
    FAIL_TEXT = 12         # a text can't be read

cdef struct Part:
    # The rows of one chunk that belong to one bucket: what a partition queue holds.
    Chunk* chunk
    int32_t bucket
    int32_t n
    int32_t* rows          # slots, ascending (= arrival order); NULL for a punctuation
    Chunk* out             # rows this part produced (kernels that are not in place), or NULL
    Failure* failure       # NULL: none. Lives in out's or the chunk's arena / malloc'ed by the runtime

cdef struct Fork:
    # A branch point that rows have passed. Lies in the arena of the chunk that was divided there.
    Fork* outer            # the branch point before it whose lanes are not united yet, or NULL
    const int32_t* place   # per slot of that chunk: its slot in `outer`; NULL: the same, or no `outer`
    int64_t branch         # which branch: its kernel's own number

cdef struct Chunk:
    # Lies at a 64-byte boundary. A chunk of one row, which goes from core to core, needs the first four
    # lines and that of its columns.
    Chunk* link            # next chunk of the same unit (one ticket may carry several chunks)
    int32_t kind           # ChunkKind
    int32_t n              # selected rows
    int32_t slots          # slots in use (n when sel is NULL)
    int32_t capacity       # slots allocated by chunk_reserve (0: columns belong to a batch)
    int32_t ncols
    int32_t nparts
    int16_t lane           # lane of its unit that the rows are in
    int16_t counted        # 1: made by the ingress, or in such a chunk's place: in flight until egress
    int32_t failed_operator
    int32_t* sel
    Column* cols           # capacity: ChunkPool.max_cols
    int64_t ticket         # of the operator that the chunk is in
    # second line
    int64_t first_serial   # serial of slot 0 where serials is NULL
    int64_t last_serial    # last input tuple whose outputs are in this unit or before it
    int64_t dispatched_ns  # marker: when it was dispatched to the first operator; 0: no marker
    # key hash per slot, written by the split; of a punctuation's output: LateRows (state/late_rows.pxd)
    uint64_t* hash
    uint8_t* keep          # in-place keyed kernels that may drop rows: 0 = dropped; NULL: all kept
    Part* parts
    Chunk* held            # first of the chunks released together with this one
    Failure* failure       # FAILURE chunks, and chunks whose kernel failed; malloc'ed, owned
    # third line
    Part one_part          # parts of a chunk that lies in one bucket
    a64 pending            # parts not yet processed
    uint64_t one_hash      # hash of a chunk of one slot
    int32_t one_row        # rows of a chunk of one row
    int32_t unnoted        # 1: its kernel failed, and there was no memory for a failure that says so
    # fourth line
    Arena arena
    int64_t* serials       # serial per slot, or NULL
    int64_t arrived_ns     # marker, or the node sheds: when its batch reached the node; else 0
    int64_t time           # TIME: event time
    int32_t* origin        # outputs only: input slot that caused each row
    # fifth line
    int64_t* flush_time    # only of a punctuation: first sort field (window end; 0 for a final flush)
    char** flush_key       # only of a punctuation: key record (keyed_state.pxd) in this chunk's arena
    Chunk* held_next
    void* shed             # ShedRows* in this arena, or NULL: from `shed` to the next operator; else garbage
    void* block            # what the chunk lies in
    Chunk* beside          # next chunk of the same unit, of another lane
    Fork* fork             # innermost branch point that the rows have passed, or NULL
    int32_t* place         # slot there that caused each slot here; NULL: the same

cdef struct ChunkPool:
    # Idle chunks shared by the workers, who exchange them in groups: a group is given and taken in a few
    # instructions, however many chunks it has. Guarded by `mutex`.
    Mutex* mutex
    Chunk* free            # first chunk of the newest group (chunk.pyx, IdleGroup)
    int64_t idle           # bytes of all groups, chunks included
    int64_t max_idle       # their bound: past it a group goes back to the allocator
    int32_t max_cols
    a64 live               # chunks handed out and not returned (exact; a debug run asserts 0 at the end)
    a64 bytes              # bytes in arena blocks of live and free chunks

cdef struct Worker:
    # What one worker thread owns. Not shared.
    int32_t id
    int32_t ncached
    Chunk* cached
    ChunkPool* pool
    Arena scratch          # reset before each kernel call: temporaries of one call
    void* node             # Runtime*: for kernels that need it
    int64_t live_delta     # chunks handed out minus returned by this worker, folded into pool.live
    uint64_t rng
    a64* stop              # the run's stop flag (stopping.pxd); NULL: outside a run
    # asked where the flag is clear: with workers = 0, for signals; NULL: nothing to ask
    int (*look)(Worker*) noexcept nogil
    int64_t look_at        # the look's: time of the next one
    void* raised           # the look's: what a signal handler raised, owned; NULL: nothing


cdef inline char* arena_alloc(Arena* a, int64_t size, ChunkPool* pool) noexcept nogil:
    """`size` bytes, 16-byte aligned, uninitialised; NULL when memory is exhausted.

    Thread safety: the arena's owner only. Ownership: the arena. Cost: a few instructions; malloc when the
    block is full.
    """
    cdef char* p = a.top
    size = (size + 15) & ~<int64_t> 15
    if p != NULL and size <= a.end - p:
        a.top = p + size
        return p
    return arena_grow(a, size, pool)


cdef inline char* chunk_alloc(Worker* w, Chunk* c, int64_t size) noexcept nogil:
    """`size` bytes that live as long as the chunk; NULL when memory is exhausted."""
    return arena_alloc(&c.arena, size, w.pool)


cdef inline char* scratch_alloc(Worker* w, int64_t size) noexcept nogil:
    """`size` bytes that live until the next kernel call of this worker; NULL when memory is exhausted."""
    return arena_alloc(&w.scratch, size, w.pool)


cdef inline void scratch_reset(Worker* w) noexcept nogil:
    """Forget the scratch of the last kernel call. Cost: two instructions while one block was enough."""
    cdef Block* b = w.scratch.first
    if b == NULL:
        return
    if b.next == NULL:
        w.scratch.top = <char*> (b + 1)
    else:
        arena_reset(&w.scratch, w.pool)


cdef inline int32_t row_slot(const Chunk* c, int32_t k) noexcept nogil:
    """Slot of the k-th selected row."""
    return k if c.sel == NULL else c.sel[k]


cdef inline int64_t slot_serial(const Chunk* c, int32_t slot) noexcept nogil:
    """Serial of the input tuple that caused this slot."""
    return c.first_serial + slot if c.serials == NULL else c.serials[slot]


cdef char* arena_grow(Arena* a, int64_t size, ChunkPool* pool) noexcept nogil
cdef void arena_reset(Arena* a, ChunkPool* pool) noexcept nogil
cdef void arena_free(Arena* a, ChunkPool* pool) noexcept nogil

cdef Chunk* chunk_take_slow(Worker* w) noexcept nogil
cdef void chunk_return_slow(Worker* w) noexcept nogil


cdef inline Chunk* chunk_new(Worker* w) noexcept nogil:
    """An empty DATA chunk without columns (cols is NULL-filled only by chunk_reserve or by its user).

    Thread safety: the worker only. Ownership: the caller. Returns: NULL when memory is exhausted. Cost: ~2
    ns from the cache.
    """
    cdef Chunk* c = w.cached
    if c == NULL:
        c = chunk_take_slow(w)
        if c == NULL:
            return NULL
    else:
        w.cached = c.link
        w.ncached -= 1
    w.live_delta += 1
    c.link = NULL
    c.held = NULL
    c.kind = DATA
    c.n = 0
    c.slots = 0
    c.capacity = 0
    c.ncols = 0
    c.nparts = 0
    c.lane = 0
    c.counted = 0
    c.sel = NULL
    c.first_serial = 0
    c.serials = NULL
    c.last_serial = 0
    c.time = 0
    c.arrived_ns = 0
    c.dispatched_ns = 0
    c.origin = NULL
    c.flush_time = NULL
    c.flush_key = NULL
    c.hash = NULL
    c.keep = NULL
    c.failure = NULL
    c.unnoted = 0
    c.beside = NULL
    c.fork = NULL
    c.place = NULL
    return c


cdef inline void chunk_free(Worker* w, Chunk* c) noexcept nogil:
    """Give back a chunk and those it holds (not its `link`).

    Thread safety: the chunk's owner. Ownership: taken. Cost: ~2 ns; the arena keeps its first block.
    """
    if c.held != NULL or c.failure != NULL:
        chunk_release_held(w, c)
    if c.arena.current != c.arena.first:
        arena_reset(&c.arena, w.pool)
    elif c.arena.first != NULL:
        c.arena.top = <char*> (c.arena.first + 1)
    w.live_delta -= 1
    c.link = w.cached
    w.cached = c
    w.ncached += 1
    if w.ncached > CACHED_LARGE and (
            w.ncached > CACHED_MAX or (c.arena.first != NULL and c.arena.first.size >= LARGE_BLOCK)):
        chunk_return_slow(w)


cdef inline void unit_free(Worker* w, Chunk* c) noexcept nogil:
    """chunk_free for every lane of a unit (not its `link`)."""
    cdef Chunk* beside
    while c != NULL:
        beside = c.beside
        chunk_free(w, c)
        c = beside


cdef inline bint unit_has(const Chunk* c, uint64_t lanes) noexcept nogil:
    """Whether a unit has rows in one of these lanes (a bit each). Any reader. Cost: a look at each chunk."""
    while c != NULL:
        if c.n and lanes >> c.lane & 1:
            return True
        c = c.beside
    return False


cdef void chunk_release_held(Worker* w, Chunk* c) noexcept nogil
cdef Chunk* unit_front(Chunk* unit, uint64_t lanes) noexcept nogil
cdef void chunk_hold(Chunk* c, Chunk* held) noexcept nogil
cdef Chunk* chunk_beside(Worker* w, const Chunk* c) noexcept nogil
cdef int chunk_hold_share(Worker* w, Chunk* c, Chunk* shared) noexcept nogil
cdef int chunk_reserve(Worker* w, Chunk* out, const Layout* layout, int32_t extra) noexcept nogil
cdef int chunk_set_valid(Worker* w, Chunk* c, int32_t col) noexcept nogil
cdef Failure* failure_new(int32_t slot, int32_t code, const char* message) noexcept nogil
cdef void failure_note(Chunk* c, int32_t slot, int32_t code, const char* message) noexcept nogil
cdef void failure_set(Failure* f, int32_t slot, int32_t code, const char* message) noexcept nogil

cdef int pool_init(ChunkPool* pool, int32_t max_cols, int64_t max_free) except -1
cdef void pool_free(ChunkPool* pool) noexcept nogil
cdef void worker_init(Worker* w, ChunkPool* pool, int32_t id) noexcept nogil
cdef void worker_free(Worker* w) noexcept nogil

cdef class LayoutOwner:
    # Memory ownership: allocates and frees the arrays of `layout`.
    cdef Layout layout
