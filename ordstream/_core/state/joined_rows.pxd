"""Joined rows: state of a key in a join by time, rows of a left and of a right side, oldest first.

A row is kept as in row_queue.pxd, with its time and whether it was matched beside it. Times ascend, so that
a kept row at t is met by a tuple of the other side at `now` where least <= now - t <= most, which needs no
sign; rows that nothing meets any more are the oldest.

Thread safety: the holder of the bucket. Ownership: a key's queues own their rows; `held` counts their bytes.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.held_memory cimport Held
from ordstream._core.state.keyed_state cimport KeyedState
from ordstream._core.state.row_queue cimport Entry, Queue, RowSpec, own_of

cdef enum:
    LEFT = 0
    RIGHT = 1

cdef struct Own:
    # The kernel's own of an entry.
    int64_t time
    int64_t matched        # 1: it was given with a row of the other side

cdef struct Joined:
    # State of a key.
    Queue[2] rows          # by side
    int64_t latest         # time of the last tuple
    int64_t there          # 0: no tuple came; 1: one did; LEAVES: a mark forgets the key

cdef struct Side:
    # How rows of a side are kept and shown. Read-only while a run lasts. Memory ownership: RowSpecOwner.
    const RowSpec* kept    # the columns that are shown, then the time if it is not one of them
    RowSpec shown          # the first of them
    int32_t first          # output column of the first
    int32_t time           # input column
    int32_t time_place     # of the time among those that are kept
    int32_t keeps
    int32_t alone          # rows that nothing matches are given too
    uint64_t least         # of a tuple of the other side behind a kept row, for a match
    uint64_t most

cdef struct Sides:
    # Read-only while a run lasts.
    Side[2] side
    int32_t time_type
    int32_t last_only      # of the right side only the last row is kept

cdef void joined_drop(Held* held, Joined* s) noexcept nogil
cdef int joined_write(Kernel* k, const Sides* x, Worker* w, const Joined* s, Chunk* out,
                      int32_t index) noexcept nogil
cdef int32_t joined_read(Kernel* k, const Sides* x, Held* held, const Chunk* rows, int32_t slot,
                         Joined* s, Failure* f) noexcept nogil
cdef void joined_too_large(KeyedState* keyed, int64_t total, int64_t most_bytes, int32_t row,
                           Failure* f) noexcept nogil


cdef inline Own* own(const Side* side, Entry* entry) noexcept nogil:
    return <Own*> own_of(side.kept, entry)
