"""Input batches that operators' states refer to. See kept_batches.pxd."""
from libc.stdint cimport int64_t
from ordstream._core.ground.atomics cimport (
    add_acq_rel, add_relaxed, as_int, as_pointer, load_acquire, store_release,
)
from ordstream._core.ground.chunk cimport DATA
from ordstream._core.ground.imported_batch cimport Batch, batch_drop

cdef enum:
    PART_OF_CAP = 8        # of the run's cap on bytes
    LEAST_ROWS = 1024      # the record batch of a few rows takes more memory than a copy of these

cdef int64_t most_bytes = -1
cdef int64_t least_rows = LEAST_ROWS


def set_kept_limits(most, least):
    """Bounds of runs that are made from now on, for tests; (-1, 0): those that hold without. Returns None.

    most : int
        Bytes of batches; 0: rows are always copied.
    least : int
        Rows of a batch.
    """
    global most_bytes, least_rows
    most_bytes = most
    least_rows = least if least else <int64_t> LEAST_ROWS


cdef void kept_init(KeptBatches* x, int64_t max_bytes) noexcept nogil:
    """Bounds of a run; max_bytes: its cap on what is in flight."""
    x.most = max_bytes // PART_OF_CAP if most_bytes < 0 else most_bytes
    x.least = least_rows


cdef Batch* kept_batch(KeptBatches* x, int64_t serial) noexcept nogil:
    """The batch of a row that is not emitted; NULL: none.

    Thread safety: the worker that processes the row. Ownership: borrowed, until the row is emitted. Cost: a
    step per later batch.
    """
    cdef Batch* b
    if x.most == 0 or serial < load_acquire(&x.oldest):       # pairs with store_release in kept_emitted
        return NULL
    b = <Batch*> as_pointer(load_acquire(&x.newest))          # pairs with store_release in kept_pushed
    while b != NULL and b.first_serial > serial:
        b = b.before
    if b == NULL or b.kind != DATA or serial >= b.first_serial + b.rows:
        return NULL
    return b


cdef void kept_begin(KeptBatches* x, Batch* b) noexcept nogil:
    """A bucket refers to a batch from now on. The worker that processes a row of it."""
    if add_acq_rel(&b.kept, 1) == 0:                          # pairs with load_acquire in kept_emitted
        add_relaxed(&x.bytes, b.bytes)                        # statistic


cdef void kept_end(KeptBatches* x, Batch* b) noexcept nogil:
    """A bucket no more refers to a batch, which may be gone from now on. The bucket's holder."""
    cdef int64_t bytes = b.bytes
    if add_acq_rel(&b.kept, -1) == 1:                         # pairs with load_acquire in kept_emitted
        add_relaxed(&x.bytes, -bytes)                         # statistic
        add_acq_rel(&x.let_go, 1)                             # pairs with load_acquire in kept_release


cdef void kept_pushed(KeptBatches* x, Batch* b, Batch* before) noexcept nogil:
    """A batch, or a control element, is about to be pushed behind `before`. The feeding thread."""
    b.before = before
    if before == NULL:
        store_release(&x.oldest, b.first_serial)              # with load_acquire in kept_batch
    store_release(&x.newest, as_int(b))                       # the same


cdef void kept_emitted(KeptBatches* x, Batch* b) noexcept:
    """Release a batch all of whose rows are emitted, or keep it while states refer to it. The feeding
    thread, with the GIL."""
    cdef bint used
    store_release(&x.oldest, b.first_serial + b.rows)         # with load_acquire in kept_batch
    used = load_acquire(&b.kept) != 0                         # pairs with add_acq_rel in kept_end
    if not used and x.issued == NULL:
        batch_drop(b)
        return
    b.shown_through = -1
    b.next = x.head
    x.head = b
    x.ending += not used


cdef bint ends(KeptBatches* x, Batch* b, int64_t emitted) noexcept:
    """Whether an emitted batch that no state refers to may go: what shows its rows had entered the run
    before the state let go, so before this looks."""
    if x.issued == NULL:
        return True
    if b.shown_through < 0:
        b.shown_through = load_relaxed(x.issued)              # behind load_acquire of `kept`
    return b.shown_through <= emitted


cdef void kept_release(KeptBatches* x, int64_t emitted) noexcept:
    """Release the batches that no state refers to any more, nor what was made of its rows. The feeding
    thread, with the GIL. Cost: a load where no bucket let go of one.

    emitted : serial through which all outputs are written.
    """
    cdef int64_t let_go = load_acquire(&x.let_go)             # pairs with add_acq_rel in kept_end
    cdef Batch** at = &x.head
    cdef Batch* b
    if let_go == x.seen and x.ending == 0:
        return
    x.seen = let_go
    x.ending = 0
    while at[0] != NULL:
        b = at[0]
        if load_acquire(&b.kept) == 0:                        # pairs with add_acq_rel in kept_end
            if ends(x, b, emitted):
                at[0] = b.next
                batch_drop(b)
                continue
            x.ending += 1
        at = &b.next


cdef void kept_free(KeptBatches* x) noexcept:
    """Release all of them. No worker is left."""
    cdef Batch* b
    while x.head != NULL:
        b = x.head
        x.head = b.next
        batch_drop(b)
