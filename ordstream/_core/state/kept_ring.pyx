"""The last rows of a key. See kept_ring.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport FAIL_MEMORY, Chunk, View, Worker
from ordstream._core.state.held_memory cimport Held, held_give, held_take
from ordstream._core.state.lent_rows cimport LentRows, is_lent, lent_drop, lent_entry
from ordstream._core.state.row_queue cimport (
    Entry, Queue, RowSpec, put_newest, queue_drop, queue_read, queue_write, take_oldest,
)

cdef enum:
    FIRST_FAR = 8          # words of a ring's first block


cdef void ring_spec(RingSpec* x, const RowSpec* kept, int32_t most, bint words, bint within) noexcept:
    """Fill a spec. `words`: rows are kept, not only their number."""
    x.kept = kept
    x.most = most
    x.words = words
    x.near = most <= NEAR_WORDS or not words
    x.span = <int32_t> sizeof(Ring)
    if words:
        x.span += 8 * most if x.near else 8
    x.size = x.span + (<int32_t> sizeof(Span) if within else 0)


cdef inline int64_t far_bytes(int32_t room) noexcept nogil:
    return <int64_t> sizeof(FarWords) + 8 * <int64_t> room


cdef int ring_grow(const RingSpec* x, Held* held, Ring* r) noexcept nogil:
    """More room for a ring whose words lie apart, all of which are in use. 0, or -1: no memory."""
    cdef int32_t room = ring_room(x, r)
    cdef int32_t more = min(x.most, 2 * room if room else <int32_t> FIRST_FAR)
    cdef FarWords* old = far_of(r)
    cdef FarWords* far = <FarWords*> held_take(held, far_bytes(more))
    cdef int64_t* to
    cdef int32_t i
    if far == NULL:
        return -1
    far.room = more
    to = <int64_t*> (far + 1)
    for i in range(r.n):
        to[i] = ring_place(x, r, i)[0]
    held_give(held, old, far_bytes(room))
    (<FarWords**> (r + 1))[0] = far
    r.front = 0
    return 0


cdef void ring_drop(const RingSpec* x, LentRows* l, Held* held, Ring* r) noexcept nogil:
    """Give back what a ring keeps; it is then as zeroed."""
    cdef int64_t word
    cdef int32_t i
    for i in range(r.n if x.words else 0):
        word = ring_place(x, r, i)[0]
        if is_lent(word):
            lent_drop(l, held, word)
        else:
            held_give(held, <void*> word, (<Entry*> word).room)
    if not x.near and far_of(r) != NULL:
        held_give(held, far_of(r), far_bytes(far_of(r).room))
    memset(r, 0, x.size)


cdef bint ring_own(const RingSpec* x, LentRows* l, Held* held, Ring* r) noexcept nogil:
    """Copy the rows that are lent. False: no memory, and some still are. Cost: a copy of each."""
    cdef int64_t* place
    cdef Entry* entry
    cdef int32_t i
    for i in range(r.n):
        place = ring_place(x, r, i)
        if not is_lent(place[0]):
            continue
        entry = lent_entry(x.kept, l, held, place[0])
        if entry == NULL:
            return False
        lent_drop(l, held, place[0])
        place[0] = <int64_t> entry
    return True


cdef int ring_write(const RingSpec* x, Worker* w, const Ring* r, Chunk* out, View* to_view) noexcept nogil:
    """The rows of a ring, none of which is lent, as bytes (queue_write). 0, or -1: no memory. Ownership:
    out's arena."""
    cdef Queue rows
    cdef int32_t i
    memset(&rows, 0, sizeof(Queue))
    for i in range(r.n if x.words else 0):
        put_newest(&rows, <Entry*> ring_place(x, r, i)[0])
    return queue_write(x.kept, w, &rows, out, to_view)


cdef int32_t ring_read(const RingSpec* x, Held* held, const View* v, int64_t n, Ring* r) noexcept nogil:
    """Fill an empty ring with n <= most rows of written bytes. 0, FAIL_STATE or FAIL_MEMORY: what is in the
    ring then is the caller's to drop."""
    cdef Queue rows
    cdef int32_t code
    memset(&rows, 0, sizeof(Queue))
    code = queue_read(x.kept, held, v, n, &rows)
    while code == 0 and rows.n:
        if ring_reserve(x, held, r) != 0:
            code = FAIL_MEMORY
            break
        ring_place(x, r, r.n)[0] = <int64_t> take_oldest(&rows)
        r.n += 1
    if code != 0:
        queue_drop(&rows, held)
    return code
