"""Marks of the clock: what they close in a bucket, and the keys that then leave it.

a) An operator looks at the multiples of its `period`: other marks are put back to one (`own_mark`).
b) A bucket knows a lower bound of what it keeps (`Marks.earliest`), so that a mark before which nothing can
   be due costs nothing. Another one goes over the bucket's keys (`marks_pass`). Where the period is as long
   as what may be kept, a key that stays had a tuple since the mark before: each tuple pays for one visit at
   most. Where marks come more often than that, deadlines.pxd.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, TIME, Chunk, Failure, Worker, failure_set,
)
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.keyed_rows cimport keyed_settle
from ordstream._core.state.keyed_state cimport KeyedState, KeySpec, keyed_record
from ordstream._core.state.leaving cimport LEAVES, keys_leave

cdef struct Marking:
    # How an operator looks at marks: the first member of its context. Read-only while a run lasts.
    const KeySpec* keys    # NULL: SF
    int32_t key_size       # bytes of a key's record
    int32_t clocked        # 0: it looks at no mark
    int64_t period         # of the marks that it looks at
    int32_t word           # offset in a state: 0 where no tuple left anything; LEAVES where the key goes

cdef struct Marks:
    # What a bucket knows. Zeroed memory: nothing.
    int64_t mark           # the latest one
    int64_t earliest       # nothing is kept that is of before this
    int32_t known          # 0: `earliest` says nothing

cdef enum Closing:
    CLOSING_FAILED = -1    # no memory
    CLOSING_ALL = 0        # nothing of the key is kept any more
    CLOSING_SOME = 1       # something is, of `since` or later

# Whether what is kept of `since` is due at a mark.
ctypedef bint (*mark_due_t)(const Kernel*, int64_t since, int64_t mark) noexcept nogil
# Give what a punctuation closes of a state that some tuple left something in.
ctypedef Closing (*mark_close_t)(Kernel*, Worker*, Bucket*, char* record, char* state, Chunk* out,
                                 bint final, int64_t mark, int64_t* since) noexcept nogil


cdef inline bint own_mark(int64_t period, int64_t* mark) noexcept nogil:
    """Put a mark back to a multiple of the period. False: that is before all times."""
    cdef int64_t behind = mark[0] % period
    if behind < 0:
        behind += period
    if mark[0] < INT64_MIN + behind:
        return False
    mark[0] -= behind
    return True


cdef inline int marks_pass(Kernel* k, Worker* w, Bucket* b, Marks* m, const Chunk* punctuation, Chunk* out,
                           mark_due_t is_due, mark_close_t close, Failure* f) noexcept nogil:
    """Close what a punctuation closes: everything at the end of the stream, else what is due; keys of which
    nothing is left then leave. The context begins with a Marking.

    Thread safety: the bucket's holder. Ownership: as of `close`. Returns: 0, or -1: no memory. Cost: nothing
    where nothing can be due, else a pass over the bucket's keys.
    """
    cdef const Marking* x = <const Marking*> k.ctx
    cdef KeyedState* keyed = &b.keyed
    cdef bint final = punctuation.kind == END_OF_STREAM
    cdef int64_t mark = punctuation.time
    cdef int64_t earliest = INT64_MAX
    cdef int64_t since = 0
    cdef int64_t gone = 0
    cdef int64_t count = keyed.count if x.keys != NULL else 1
    cdef int64_t i
    cdef char* record = NULL
    cdef char* state = b.single
    cdef Closing left
    cdef bint again
    if not final:
        if punctuation.kind != TIME or not x.clocked or not own_mark(x.period, &mark):
            return 0
        again = mark == m.mark
        m.mark = mark
        if m.known and not is_due(k, m.earliest, mark):
            if not again and x.keys != NULL:
                keyed_settle(keyed, keyed.count)             # the wave before was the last one
            return 0
    for i in range(count):
        if stop_due(w, i):
            return 0
        if x.keys != NULL:
            record = keyed_record(keyed, i)
            state = record + x.key_size
        if (<const int64_t*> (state + x.word))[0] == 0:      # its only rows failed
            if final or x.keys == NULL:
                continue
            if b.calls.drop != NULL:
                b.calls.drop(k, b, state)
        else:
            left = close(k, w, b, record, state, out, final, mark, &since)
            if left == CLOSING_FAILED:
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            if left == CLOSING_SOME:
                earliest = min(earliest, since)
                continue
        gone += 1
        (<int64_t*> (state + x.word))[0] = LEAVES if x.keys != NULL else 0
    if final:
        return 0
    m.earliest = earliest
    m.known = 1
    if x.keys != NULL:
        keys_leave(w, keyed, x.key_size + x.word, gone)
    return 0
