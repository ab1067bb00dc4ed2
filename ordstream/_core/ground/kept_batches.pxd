"""Input batches that operators' states refer to: a row that an operator keeps may stay where the import put
it, while its batch stays.

a) A worker finds the batch of a row that it processes by its serial: from the newest one back. That row is
   not emitted, so neither its batch nor a later one is released meanwhile.
b) `Batch.kept` counts the buckets that refer to a batch. A bucket begins to refer only while it processes a
   row of that batch; so a batch whose rows are all emitted, and for which none counts, is never referred to
   again, and is released.
c) Where an operator shows such rows before the end of the stream (`Kernel.shows_kept`), what it made may
   point into a batch that no state refers to any more. So a batch is released only once all that had entered
   the run when the feeding thread saw that is emitted.
d) What is emitted and kept counts no more as in flight: its bound is here. While states refer to batches of
   more than `most` bytes, and those rows are less than a quarter of these, rows are copied as they come, and
   buckets copy out what they refer to (state/lent_rows.pxd).
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.atomics cimport a64, load_relaxed
from ordstream._core.ground.imported_batch cimport Batch

cdef enum:
    KEPT_SHARE = 4         # of the bytes of such batches, one part in so many is kept rows, or they are few

cdef struct KeptBatches:
    # Zeroed memory: no row may be referred to. Memory ownership: `head` and those behind it.
    a64 newest             # Batch*: the last that was pushed; 0: none. Written by the feeding thread
    a64 oldest             # serial of the first row that is not released; the same
    a64 bytes              # of batches that states refer to
    a64 rows_bytes         # their part that is kept rows
    a64 let_go             # how often the last bucket let go of a batch
    int64_t seen           # the feeding thread's: let_go when it looked last
    Batch* head            # the feeding thread's: emitted, and referred to
    int64_t most           # bytes; 0: no row is referred to
    int64_t least          # rows of a batch that is referred to: a small one is copied
    a64* issued            # Ingress.issued_serial, where rows are shown before the end (c); else NULL
    int64_t ending         # the feeding thread's: batches that wait only for what points into them


cdef inline bint batches_are_few(KeptBatches* x) noexcept nogil:
    """Whether one more may be referred to. Any worker; a hint that may be a little late."""
    cdef int64_t bytes = load_relaxed(&x.bytes)              # statistics; no partner
    return bytes <= x.most or bytes <= KEPT_SHARE * load_relaxed(&x.rows_bytes)


cdef void kept_init(KeptBatches* x, int64_t max_bytes) noexcept nogil
cdef Batch* kept_batch(KeptBatches* x, int64_t serial) noexcept nogil
cdef void kept_begin(KeptBatches* x, Batch* b) noexcept nogil
cdef void kept_end(KeptBatches* x, Batch* b) noexcept nogil
cdef void kept_pushed(KeptBatches* x, Batch* b, Batch* before) noexcept nogil
cdef void kept_emitted(KeptBatches* x, Batch* b) noexcept
cdef void kept_release(KeptBatches* x, int64_t emitted) noexcept
cdef void kept_free(KeptBatches* x) noexcept
