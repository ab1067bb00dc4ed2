"""Time slices (slices.pxd; operator.pxd states the design).

Everything here is nogil and non-blocking. No worker waits while it holds a release flag or a bucket.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.flow.delivery cimport (
    fail_unit, inherit, operator_can_release, operator_release, operator_send, operator_send_run,
    out_of_memory, prepare_rows, prepare_unit, send_held,
)
from ordstream._core.flow.exports cimport export_state
from ordstream._core.flow.ingress cimport ingress_has_work, ingress_take, ingress_take_run
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.flow.parts cimport process_part
from ordstream._core.flow.reorder_buffer cimport reorder_limit, reorder_put, reorder_ready
from ordstream._core.flow.shedding cimport ShedRows, shed_begin, shed_completed, shed_end
from ordstream._core.flow.worklist.buckets cimport PQ_NOTHING
from ordstream._core.flow.worklist.hybrid cimport (
    CLAIM_MAX, Claims, hybrid_claim, hybrid_enter_claim, prefetch_claim,
)
from ordstream._core.flow.worklist.partitioned cimport PARTITIONED_OLDEST
from ordstream._core.flow.worklist.partition_queues cimport pq_enter, pq_has_work, pq_leave, pq_next
from ordstream._core.ground.atomics cimport *
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.kernel cimport PS, SF, SL
from ordstream._core.ground.mpmc cimport MPMC_EMPTY, mpmc_peek, mpmc_try_take
from ordstream._core.ground.spsc cimport spsc_size_approx, spsc_try_take
from ordstream._core.ground.threads cimport now_ns
from ordstream._core.state.key_records cimport key_hash

cdef enum:
    MOST_FIRST_ROWS = 8192
    INGRESS_RUN = 16           # small chunks taken in one hold of the ingress's flag
    # Shares of a slice: its budget in tuples, divided by these, is how many tuples ...
    HOLD_PART = 6              # ... are taken from the ingress in one hold of its flag
    CLAIM_PART = 12            # ... parts that are claimed together have, and chunks that are sent together
    QUICK = 64                 # ... a run of chunks has that is over in no time

# 0, 1, 2, ...: the row numbers of a chunk without a selection. Read-only after import.
cdef int32_t[MOST_FIRST_ROWS] FIRST_ROWS
for _row in range(MOST_FIRST_ROWS):
    FIRST_ROWS[_row] = _row


# ---------------------------------------------------------------- what waits

cdef inline int64_t take_limit(Operator* op) noexcept nogil:
    """First ticket that may not be taken from the worklist: the limit of the reorder buffer.

    Once the bytes in flight have reached their cap, only the oldest ticket passes: the next operator, or the
    reader, waits for its outputs, and an operator may make much out of one tuple. Cost: two loads. `bytes`
    may be stale. A worker that frees memory looks afterwards whether another one should be woken.
    """
    cdef int64_t next = load_acquire(&op.rb.next)             # pairs with store_release in release_*
    if load_relaxed(op.run.bytes) >= op.run.max_bytes:
        return next + 1
    return next + op.rb.mask + 1


cdef bint operator_has_input(Operator* op) noexcept nogil:
    """True when a worker would probably find a chunk to process. Any thread; an estimate."""
    cdef int64_t position
    if op.ingress != NULL:
        return ingress_has_work(op.ingress, reorder_limit(&op.rb))
    if op.kind == SL:
        return mpmc_peek(&op.worklist, &position) != MPMC_EMPTY and position < take_limit(op)
    if op.kind == SF:
        return spsc_size_approx(&op.input) > 0
    return pq_has_work(&op.pq, take_limit(op))


cdef int64_t operator_waiting(Operator* op) noexcept nogil:
    """I_i: tuples in the worklist (enqueued and not yet processed)."""
    cdef int64_t n
    if op.ingress != NULL:
        n = (load_relaxed(&op.ingress.queued_tuples) - op.ingress.base
             - load_relaxed(&op.tuples_done))
    else:
        n = load_relaxed(&op.tuples_enqueued) - load_relaxed(&op.tuples_done)
    return n if n > 0 else 0


cdef inline bint slice_over(const Operator* op, const Slice* slice, int64_t budget) noexcept nogil:
    """True when a worker should ask the scheduler again. Cost: a clock's in front of a user's function."""
    if slice.tuples_in + slice.chunks >= budget or load_relaxed(&op.run.stop) != 0:
        return True
    return op.kernel.unbounded and slice.chunks and now_ns() >= slice.until


# ---------------------------------------------------------------- stateless

cdef inline int32_t* copied_rows(Worker* w, const Chunk* c) noexcept nogil:
    """A copy of the selected slots in the worker's scratch memory. NULL: no memory."""
    cdef int32_t* rows = <int32_t*> scratch_alloc(w, <int64_t> c.n * 4)
    cdef int32_t k
    if rows != NULL:
        for k in range(c.n):
            rows[k] = row_slot(c, k)
    return rows


cdef inline int64_t rows_beside(const Operator* op, const Chunk* c, bint made) noexcept nogil:
    """Rows that an operator takes of a unit beside those of `c`; `made`: that it has moved elsewhere."""
    cdef const Chunk* b = c.beside
    cdef int64_t rows = 0
    cdef bint divides = op.reads & (op.reads - 1) == 0      # one input: what it made passed one branch
    cdef bint counts
    while b != NULL:
        if made:
            counts = divides and b.fork == c.fork
        else:
            counts = op.reads >> b.lane & 1
        if counts:
            rows += b.n
        b = b.beside
    return rows


cdef Chunk* apply_stateless(Operator* op, Worker* w, Chunk* c, Slice* slice) noexcept nogil:
    """Run a stateless kernel on a chunk. Returns the unit to send."""
    cdef Chunk* out
    cdef Failure* failure
    cdef Column* cols = NULL
    cdef ShedRows* sent = NULL
    cdef int32_t* rows = NULL
    cdef int32_t n = c.n
    cdef int64_t began = 0
    cdef int64_t timed = 0
    cdef int64_t bytes
    cdef int32_t j
    cdef Failure f
    if c.kind != DATA or c.n == 0:
        if (c.kind == SNAPSHOT or c.kind == SUSPEND) and op.kernel.state_export != NULL:
            # frozen shedding, which has one worker: its figures leave with those of all tuples before
            f.exc = NULL
            if export_state(&op.run.exports, op.kernel, w, op.index, NULL, c.time, &f) != 0:
                out_of_memory(op)
        return c
    slice.tuples_in += c.n
    if op.kernel.units:
        slice.tuples_in += rows_beside(op, c, False)
    scratch_reset(w)
    bytes = op.kernel.input.ncols * <int64_t> sizeof(Column)
    cols = <Column*> scratch_alloc(w, bytes)
    if cols == NULL:
        out_of_memory(op)
        return c
    for j in range(op.kernel.input.ncols):
        # an in-place kernel may rearrange them before it fails
        cols[j] = c.cols[j]
    if op.shed != NULL and c.shed != NULL:
        sent = <ShedRows*> c.shed
        rows = copied_rows(w, c)                              # the kernel may narrow the selection in place
        began = shed_begin(op.shed, w, c, rows, n)
    if slice.kernel_rows == 0:
        timed = now_ns()
    out = op.kernel.apply(op.kernel, w, c)
    if timed:
        slice.kernel_ns = now_ns() - timed
        slice.kernel_rows = n
    if sent != NULL:
        shed_end(op.shed, w, sent, rows, n, began)
        shed_completed(op.shed, sent)
    failure = c.failure
    if failure == NULL and c.unnoted:
        out_of_memory(op)
    if failure != NULL:
        c.failure = NULL
        if out == NULL:
            out = c
            out.n = 0
        if out != c:
            fail_unit(op, w, c, cols, out, failure)
            bytes = out.last_serial
            if inherit(op, w, out, c) != 0:
                out_of_memory(op)
            out.last_serial = bytes
        else:
            fail_unit(op, w, c, cols, out, failure)
    elif out == NULL:
        out_of_memory(op)
        c.n = 0
        return c
    elif out != c and inherit(op, w, out, c) != 0:
        out_of_memory(op)
        out.n = 0
    slice.tuples_out += out.n
    if op.kernel.units:
        slice.tuples_out += rows_beside(op, out, True)
    return out


cdef void run_from_ingress(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """A slice of a stateless first operator.

    Chunks of a few tuples, or that take little time, are taken from the ingress several at a time, each with
    a ticket of its own. They are sent together while they are a small part of a slice. All of them are sent,
    unless the run is cancelled.
    """
    cdef Chunk* run[16]                                       # INGRESS_RUN
    cdef int64_t sent[16]
    cdef int64_t waiting
    cdef int64_t ticket
    cdef int64_t rows
    cdef int64_t most
    cdef int64_t quick = budget // QUICK                      # tuples
    cdef int64_t together
    cdef int32_t n
    cdef int32_t k
    cdef int32_t held
    while not slice_over(op, slice, budget):
        waiting = load_relaxed(&op.ingress.queued_tuples) - load_relaxed(&op.ingress.issued_serial)
        rows = load_relaxed(&op.ingress.target_rows)
        most = min(max(INGRESS_RUN, quick) // rows, <int64_t> INGRESS_RUN)
        most = min(most, max(budget // HOLD_PART // rows, <int64_t> 1))
        together = budget // CLAIM_PART
        if op.kernel.unbounded:
            # a finished chunk must not wait for a function, and nor must other operators for many calls
            most = min(most, quick // rows)
            together = 0
        if waiting < 4 * INGRESS_RUN * rows or most < 1:
            # little input is there: leave some for other workers
            most = 1
        n = ingress_take_run(op.ingress, w, reorder_limit(&op.rb), <int32_t> most, run)
        if n == 0:
            return
        ticket = run[0].ticket
        held = 0
        for k in range(n):
            slice.chunks += 1
            if load_relaxed(&op.run.stop) == 0:
                sent[held] = as_int(prepare_unit(op, w, apply_stateless(op, w, run[k], slice)))
                held += 1
                if held * rows >= together or k == n - 1:
                    operator_send_run(op, w, ticket, sent, held)
                    ticket += held
                    held = 0
                continue
            if held:
                operator_send_run(op, w, ticket, sent, held)
                ticket += held
                held = 0
            if run[k].kind == DATA:
                # cancelled. Its ticket is never offered: nothing behind it is delivered
                chunk_free(w, run[k])
            else:
                # dropping a failure's exception needs the GIL: close() does it
                reorder_put(&op.rb, ticket, as_int(run[k]))
            ticket += 1


cdef void run_stateless(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    cdef Chunk* c
    cdef int64_t item
    cdef int64_t position
    cdef int64_t ticket
    if op.ingress != NULL:
        run_from_ingress(op, w, budget, slice)
        return
    while not slice_over(op, slice, budget):
        item = mpmc_try_take(&op.worklist, take_limit(op), &position)
        if item <= 0:
            return
        c = <Chunk*> as_pointer(item)
        slice.chunks += 1
        ticket = c.ticket
        operator_send(op, w, ticket, apply_stateless(op, w, c, slice))


# ---------------------------------------------------------------- partitioned

cdef inline void work_bucket(
    Operator* op, Worker* w, int32_t b, int64_t run, Part* part, int64_t most, int64_t budget, Slice* slice
) noexcept nogil:
    """Process `run` parts of a bucket that this worker has entered, and the parts that others delegate to it
    meanwhile. When the slice is over, or `most` parts are done, the bucket is handed over. part: the first
    part if it is known, else NULL."""
    cdef int64_t k
    cdef int64_t end = slice.chunks + most
    cdef bint over
    while run > 0:
        k = 0
        over = False
        while k < run:
            part = pq_next(&op.pq, b, part)
            if part == NULL:
                break
            op.pq.buckets[b].parts += 1
            op.pq.buckets[b].tuples += part.n
            slice.chunks += 1
            process_part(op, w, op.pq.buckets[b].state, part, slice)
            part = NULL
            k += 1
            over = slice.chunks >= end or slice_over(op, slice, budget)
            if over:
                break
        run = pq_leave(&op.pq, b, k, over)


cdef void run_claims(Operator* op, Worker* w, Claims* claims, int32_t n, int64_t budget,
                     Slice* slice) noexcept nogil:
    """Process parts that were claimed together (a few microseconds of work), and send the units that they
    complete together.

    If the units in front of them have not been delivered yet, the new units stay held until this worker
    completes another unit or its slice ends. If workers instead waited for their turn at the end of each
    group, two of them would fall into step, one always right behind the other, and would wait after every
    group.
    """
    cdef int64_t run = 0
    cdef int32_t k
    cdef int32_t b
    cdef Part* part = NULL
    slice.holding = 1
    prefetch_claim(&op.pq, claims, 0)
    for k in range(n):
        if load_relaxed(&op.run.stop) != 0:
            break                                             # the rest is freed with the run
        if k + 1 < n:
            prefetch_claim(&op.pq, claims, k + 1)
        else:
            slice.holding = 2
        b = hybrid_enter_claim(&op.pq, claims, k, &run, &part)
        if b != PQ_NOTHING:
            # Delegated parts must not keep this worker from its other claims: all later tickets wait for
            # those.
            work_bucket(op, w, b, run, part, CLAIM_MAX if k + 1 < n else budget, budget, slice)
    slice.holding = 0
    if load_acquire(&op.rb.next) == slice.held_ticket:        # pairs with store_release in release_*
        send_held(op, w, slice)


cdef void run_partitioned(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """consumeInputs of Fig. 7, for a time slice."""
    cdef int64_t run = 0
    cdef Claims claims
    cdef int32_t n
    cdef int32_t b
    cdef Part* part = NULL
    # partitioned scheme: workers start at different buckets
    cdef int64_t first = w.id if w.id < op.run.workers else 0
    cdef int32_t start = <int32_t> (first * op.pq.p // op.run.workers)
    # read again when it stops this worker, and after long work
    cdef int64_t limit = take_limit(op)
    # How many chunks are a small part of a slice (a few microseconds), judged by the mean number of rows so
    # far.
    cdef int64_t mean = load_relaxed(&op.tuples_enqueued) // max(load_relaxed(&op.enqueued), <int64_t> 1)
    cdef int64_t most = min(budget // CLAIM_PART // max(mean, <int64_t> 1), <int64_t> CLAIM_MAX)
    if op.kernel.unbounded or op.shed != NULL:                # behind a shed stage rows are timed one by one
        most = 1
    if op.kernel.unbounded and op.M == 1:
        start = PARTITIONED_OLDEST
    while not slice_over(op, slice, budget):
        if most > 1:
            n = hybrid_claim(&op.pq, limit, <int32_t> most, &claims)
            if n:
                run_claims(op, w, &claims, n, budget, slice)
                limit = take_limit(op)
                continue
        send_held(op, w, slice)
        b = pq_enter(&op.pq, limit, start, &run, &part)
        if b == PQ_NOTHING:
            if limit >= take_limit(op):
                return
            limit = take_limit(op)
            continue
        work_bucket(op, w, b, run, part, budget, budget, slice)
        limit = take_limit(op)
    send_held(op, w, slice)


# ---------------------------------------------------------------- stateful

cdef void run_stateful(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """One worker at a time (M = 1): take, process, send."""
    cdef Chunk* c
    cdef Part* part
    cdef int32_t k
    while not slice_over(op, slice, budget):
        if reorder_ready(&op.rb) and not operator_can_release(op):
            return
        if op.ingress != NULL:
            c = ingress_take(op.ingress, w, reorder_limit(&op.rb))
        else:
            c = <Chunk*> as_pointer(spsc_try_take(&op.input))
        if c == NULL:
            return
        slice.chunks += 1
        if c.kind == FAILURE or (c.kind == DATA and c.n == 0):
            operator_send(op, w, c.ticket, c)
            continue
        part = &c.one_part
        part.chunk = c
        part.bucket = 0
        part.n = c.n if c.kind == DATA else 0
        part.rows = c.sel
        part.out = NULL
        part.failure = NULL
        c.parts = part
        c.nparts = 1
        if c.kind == DATA:
            if part.rows == NULL and c.n <= MOST_FIRST_ROWS:
                part.rows = FIRST_ROWS
            elif part.rows == NULL:
                part.rows = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
                if part.rows == NULL:
                    out_of_memory(op)
                    return
                for k in range(c.n):
                    part.rows[k] = k
            c.hash = NULL                                     # an earlier operator may have left its own
            # a partitioned operator with one bucket
            if op.keys != NULL and op.kernel.uses_hash and not op.keys.simple:
                c.hash = <uint64_t*> chunk_alloc(w, c, <int64_t> c.slots * 8)
                if c.hash == NULL:
                    out_of_memory(op)
                    return
                key_hash(op.keys, c, op.kernel.input)
            if prepare_rows(op.kernel, w, c) != 0:
                out_of_memory(op)
                return
        process_part(op, w, op.state, part, slice)


# ---------------------------------------------------------------- a slice

cdef void operator_run(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil:
    """One slice of about `budget` tuples at most. Returns early when the worklist is empty or the run stops.

    Thread safety: up to M workers at a time (the scheduler's w). Never blocks.
    """
    slice.holding = 0
    slice.held = 0
    if reorder_ready(&op.rb):
        operator_release(op, w)                               # a parked or capped release
    if op.kind == SL:
        run_stateless(op, w, budget, slice)
    elif op.kind == PS:
        run_partitioned(op, w, budget, slice)
    else:
        run_stateful(op, w, budget, slice)
    if slice.tuples_in:
        add_relaxed(&op.tuples_done, slice.tuples_in)         # statistic
