"""Ring: the last rows of a key, oldest first, as words of lent_rows.pxd.

A few words lie behind the ring in the key's record; more are a block of their own, which grows with the
rows that there are.

Thread safety: the holder of the bucket. Ownership: a ring owns its block and its entries; `held` counts
their bytes, and those of lent rows.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, View, Worker
from ordstream._core.state.held_memory cimport Held, held_give
from ordstream._core.state.lent_rows cimport LentRows, is_lent, lent_drop, lent_word
from ordstream._core.state.row_queue cimport Entry, RowSpec, entry_of

cdef enum:
    NEAR_WORDS = 4         # most rows whose words lie in the record

cdef struct Span:
    # With `within`: times of a key, behind its ring.
    int64_t start          # of the first row of what is kept, or of the row that was given
    int64_t latest         # of the last row

cdef struct FarWords:
    # Memory ownership: its ring; of held_take. The words lie behind it.
    int64_t room

cdef struct Ring:
    # State of a key. Zeroed memory: no row came. Behind it: words (RingSpec.near), or FarWords*; a Span.
    int32_t n              # rows
    int32_t front          # place of the oldest

cdef struct RingSpec:
    # Read-only while a run lasts. Memory ownership: the kernel's context.
    const RowSpec* kept
    int32_t most           # rows of a ring
    int32_t words          # 0: only the number of rows is kept
    int32_t near           # 1: the words lie in the record
    int32_t span           # where a Span begins
    int32_t size           # bytes of a state

cdef void ring_spec(RingSpec* x, const RowSpec* kept, int32_t most, bint words, bint within) noexcept
cdef int ring_grow(const RingSpec* x, Held* held, Ring* r) noexcept nogil
cdef void ring_drop(const RingSpec* x, LentRows* l, Held* held, Ring* r) noexcept nogil
cdef bint ring_own(const RingSpec* x, LentRows* l, Held* held, Ring* r) noexcept nogil
cdef int ring_write(const RingSpec* x, Worker* w, const Ring* r, Chunk* out, View* to_view) noexcept nogil
cdef int32_t ring_read(const RingSpec* x, Held* held, const View* v, int64_t n, Ring* r) noexcept nogil


cdef inline Span* ring_times(const RingSpec* x, const Ring* r) noexcept nogil:
    return <Span*> (<char*> r + x.span)


cdef inline FarWords* far_of(const Ring* r) noexcept nogil:
    return (<FarWords**> (r + 1))[0]


cdef inline int64_t* ring_words(const RingSpec* x, const Ring* r) noexcept nogil:
    """NULL: there is no room yet."""
    if x.near:
        return <int64_t*> (r + 1)
    if far_of(r) == NULL:
        return NULL
    return <int64_t*> (far_of(r) + 1)


cdef inline int32_t ring_room(const RingSpec* x, const Ring* r) noexcept nogil:
    if x.near:
        return x.most
    return 0 if far_of(r) == NULL else <int32_t> far_of(r).room


cdef inline int64_t* ring_place(const RingSpec* x, const Ring* r, int32_t i) noexcept nogil:
    """Word of the i-th row, 0 the oldest; of n: where the next row goes, if there is room."""
    cdef int32_t at = r.front + i
    cdef int32_t room = ring_room(x, r)
    return ring_words(x, r) + (at - room if at >= room else at)


cdef inline int64_t ring_oldest(const RingSpec* x, const Ring* r) noexcept nogil:
    """Of a ring that has a row."""
    return ring_words(x, r)[r.front]


cdef inline int ring_reserve(const RingSpec* x, Held* held, Ring* r) noexcept nogil:
    """Room for one more row, of which there are fewer than `most`. 0, or -1: no memory."""
    return 0 if r.n < ring_room(x, r) else ring_grow(x, held, r)


cdef inline int ring_keep(const RingSpec* x, LentRows* l, Held* held, const Chunk* c, int32_t row,
                          Ring* r) noexcept nogil:
    """A row of the chunk that lent_begin was told of, behind those of a ring; the oldest leaves a full one.
    0, or -1: no memory, and the ring is as before."""
    cdef bint full = r.n == x.most
    cdef int64_t old = ring_oldest(x, r) if full else 0
    cdef Entry* block = NULL               # of the row that leaves: for the new one
    cdef Entry* entry = NULL
    if not is_lent(old):
        block = <Entry*> old
    if not full and ring_reserve(x, held, r) != 0:
        return -1
    if l.current < 0:
        entry = entry_of(x.kept, held, c, row, block)
        if entry == NULL:
            return -1
    elif block != NULL:
        held_give(held, block, block.room)
    if is_lent(old):
        lent_drop(l, held, old)
    ring_place(x, r, 0 if full else r.n)[0] = lent_word(l, held, row) if entry == NULL else <int64_t> entry
    if not full:
        r.n += 1
    else:
        r.front = 0 if r.front + 1 == r.n else r.front + 1
    return 0
