"""The workers' loop of one node (runtime.pxd), and what empties it after the end.

a) Every worker asks the central scheduler for (operator, budget), works that slice, accounts for it and asks again (ordered paper 2.2).
b) A worker that finds nothing pauses (only where workers < allowed CPUs), yields, then parks in an event count; it counts itself in
   `parked` before its last look (totally ordered with operator_release's load). Waits are timed as a safety net.
c) workers = 0: the caller runs the loop itself between feeding and reading ("embedded").
d) After an error, a cancel or the end, `drain` gives every chunk back; a debug run asserts that nothing is live.
"""
from cpython.ref cimport PyObject, Py_DECREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from ordstream._core.atomics cimport *
from ordstream._core.chunk cimport *
from ordstream._core.egress cimport egress_publish
from ordstream._core.kernel cimport PS, SF, SL
from ordstream._core.mpmc cimport mpmc_try_take
from ordstream._core.operator cimport (
    Operator, Slice, operator_can_release, operator_has_input, operator_release, operator_run, operator_waiting,
)
from ordstream._core.partition_queues cimport NO_LIMIT
from ordstream._core.reorder_buffer cimport NON_BLOCKING, reorder_ready
from ordstream._core.scheduler cimport OperatorStats, scheduler_choose, stats_account
from ordstream._core.spsc cimport spsc_size_approx, spsc_try_take
from ordstream._core.threads cimport SPIN_LIMIT, YIELD_LIMIT, cpu_pause, cpu_yield, now_ns, spin_lock_backoff

cdef enum:
    PARK_NS = 50_000_000           # longest timed wait of a parked worker
    ADAPT_EVERY = 16               # choices between two looks at the chunk size


# ---------------------------------------------------------------- choosing

cdef inline void lock_scheduler(Runtime* rt) noexcept nogil:
    cdef int rounds = 0
    while load_relaxed(&rt.lock) != 0 or exchange_acq_rel(&rt.lock, 1) != 0:   # pairs with store_release in unlock
        spin_lock_backoff(&rounds)


cdef inline void unlock_scheduler(Runtime* rt) noexcept nogil:
    store_release(&rt.lock, 0)                                # pairs with exchange_acq_rel in lock_scheduler


cdef inline bint runnable(Operator* op) noexcept nogil:
    """Input that may be processed, or a ready unit that may be delivered."""
    if reorder_ready(&op.rb):
        return operator_can_release(op)
    return operator_has_input(op)


cdef void adapt_chunk(Runtime* rt) noexcept nogil:
    """Aim at `chunk_ns` of work per chunk in the operator that is busiest per input tuple (design.md section 4). Under lock."""
    cdef double reach = 1.0
    cdef double worst = 1.0
    cdef double cost
    cdef int32_t i
    cdef int64_t rows
    for i in range(rt.n):
        cost = rt.stats[i].c * reach
        if cost > worst:
            worst = cost
        reach *= rt.stats[i].s
        if reach > 1e6:
            reach = 1e6
    rows = <int64_t> (rt.chunk_ns / worst)
    if rows < rt.min_rows:
        rows = rt.min_rows
    if rows > rt.max_rows:
        rows = rt.max_rows
    store_relaxed(&rt.ingress.target_rows, rows)              # read by the ingress; no partner


cdef int next_slice(Runtime* rt, int previous, double ns, Slice* done, int64_t now, int64_t* budget) noexcept nogil:
    """Account for the slice just done (previous >= 0) and choose the next operator; -1: nothing is schedulable."""
    cdef int32_t i
    cdef int best
    cdef OperatorStats* o
    lock_scheduler(rt)
    if previous >= 0:
        stats_account(&rt.stats[previous], ns, done.tuples_in, done.tuples_out, done.chunks)
        rt.stats[previous].w -= 1
        if rt.auto_rows and rt.scheduler.decisions % ADAPT_EVERY == 0:
            adapt_chunk(rt)
    for i in range(rt.n):
        o = &rt.stats[i]
        o.I = operator_waiting(&rt.operators[i])
        o.schedulable = o.w < o.M and runnable(&rt.operators[i])
    best = scheduler_choose(&rt.scheduler, rt.stats, rt.n, now, budget)
    if best >= 0:
        rt.stats[best].w += 1
    unlock_scheduler(rt)
    return best


cdef bint anything_runnable(Runtime* rt) noexcept nogil:
    """A look without the lock: whether asking the scheduler is worth it."""
    cdef int32_t i
    for i in range(rt.n):
        if runnable(&rt.operators[i]):
            return True
    return load_relaxed(&rt.egress.wanted) != 0


cdef void publish_wanted(Runtime* rt, Worker* w) noexcept nogil:
    """Idle: give the reader what has been written so far, if it asks and nobody holds the last release flag."""
    cdef Operator* last = &rt.operators[rt.n - 1]
    if load_relaxed(&rt.egress.wanted) == 0:
        return
    if last.rb.scheme == NON_BLOCKING:
        if exchange_seq(&last.rb.flag, 1) != 0:               # as L25 of the release
            return
        store_relaxed(&rt.egress.wanted, 0)
        egress_publish(&rt.egress)
        store_seq(&last.rb.flag, 0)                           # as L36
    else:
        last.rb.mutex.lock()
        store_relaxed(&rt.egress.wanted, 0)
        egress_publish(&rt.egress)
        last.rb.mutex.unlock()
    rt.run.reader.notify_all()
    operator_release(last, w)                                 # L40: a unit may have become ready meanwhile


cdef int64_t park_time(Runtime* rt) noexcept nogil:
    """How long a worker may park: until the next tuple of an open-loop schedule is due, at most PARK_NS."""
    cdef int64_t issued
    cdef int64_t wait
    if rt.ingress.schedule == NULL:
        return PARK_NS
    issued = load_relaxed(&rt.ingress.issued_serial)
    if issued >= load_relaxed(&rt.ingress.queued_tuples):
        return PARK_NS
    wait = rt.ingress.schedule[issued] + rt.ingress.schedule_start - now_ns()
    if wait < 0:
        return 0
    return wait if wait < PARK_NS else PARK_NS


cdef void worker_loop(Runtime* rt, Worker* w, bint embedded) noexcept nogil:
    """Work until the run ends. Embedded (workers = 0): also return when there is nothing to do or output is ready.

    Thread safety: one call per Worker. Ownership: none. Never takes the GIL itself (kernels may).
    """
    cdef int64_t budget = 0
    cdef Slice done
    cdef int64_t start = now_ns()
    cdef int64_t end
    cdef int64_t seen
    cdef int64_t wait
    cdef int op
    cdef int idle = 0
    op = next_slice(rt, -1, 0, &done, start, &budget)
    while True:
        if op >= 0:
            idle = 0
            done.tuples_in = 0
            done.tuples_out = 0
            done.chunks = 0
            operator_run(&rt.operators[op], w, budget, &done)
            end = now_ns()
            op = next_slice(rt, op, <double> (end - start), &done, end, &budget)
            start = end
            if finished(rt):
                break
            if embedded and spsc_size_approx(&rt.egress.ready) > 0:
                break
            if load_relaxed(&rt.run.parked) > 0 and anything_runnable(rt):
                rt.run.work.notify_one()                      # a window, a cap or the ingress opened: nobody else says so
            continue
        if finished(rt):
            break
        publish_wanted(rt, w)
        if embedded:
            if rt.ingress.schedule == NULL or park_time(rt) > 1_000_000:
                return
            start = now_ns()
            op = next_slice(rt, -1, 0, &done, start, &budget)
            continue
        idle += 1
        if rt.spin and idle <= SPIN_LIMIT:
            cpu_pause()
        elif idle <= SPIN_LIMIT + YIELD_LIMIT:
            cpu_yield()
        else:
            wait = park_time(rt)
            if wait > 50_000:
                seen = rt.run.work.prepare()
                add_seq(&rt.run.parked, 1)                    # totally ordered with load_seq in operator_release
                add_relaxed(&rt.parks, 1)
                if not anything_runnable(rt) and not finished(rt):
                    rt.run.work.wait(seen, wait)
                add_seq(&rt.run.parked, -1)
            else:
                cpu_yield()
        if anything_runnable(rt):
            start = now_ns()
            op = next_slice(rt, -1, 0, &done, start, &budget)
    if op >= 0:
        # chosen, but the run ended: give the place back
        lock_scheduler(rt)
        rt.stats[op].w -= 1
        unlock_scheduler(rt)
    rt.run.work.notify_all()
    rt.run.reader.notify_all()


# ---------------------------------------------------------------- draining after the end

cdef void discard(Worker* w, Chunk* c) noexcept:
    """Free a unit, with the GIL: failures may hold an exception."""
    cdef Chunk* following
    while c != NULL:
        following = c.link
        if c.failure != NULL and c.failure.exc != NULL:
            Py_DECREF(<object> <PyObject*> c.failure.exc)
            c.failure.exc = NULL
        chunk_free(w, c)
        c = following


cdef void discard_part(Worker* w, Part* part) noexcept:
    cdef Chunk* c = part.chunk
    cdef int32_t k
    if c.nparts > 1 and sub_acq_rel(&c.pending, 1) != 1:      # all workers have ended
        return
    for k in range(c.nparts):
        if c.parts[k].out != NULL:
            discard(w, c.parts[k].out)
        if c.parts[k].failure != NULL:
            if c.parts[k].failure.exc != NULL:
                Py_DECREF(<object> <PyObject*> c.parts[k].failure.exc)
            free(c.parts[k].failure)
    discard(w, c)


cdef void drain(Operator* op, Worker* w) noexcept:
    """Free every chunk that an operator still holds. All workers have ended."""
    cdef int64_t item
    cdef int64_t position
    cdef int32_t b
    if op.kind == SL and op.worklist.cells != NULL:
        while True:
            item = mpmc_try_take(&op.worklist, NO_LIMIT, &position)
            if item <= 0:
                break
            discard(w, <Chunk*> as_pointer(item))
    elif op.kind == SF and op.input.slots != NULL:
        while True:
            item = spsc_try_take(&op.input)
            if item == 0:
                break
            discard(w, <Chunk*> as_pointer(item))
    elif op.kind == PS and op.pq.buckets != NULL:
        for b in range(op.pq.p):
            while True:
                item = spsc_try_take(&op.pq.buckets[b].queue)
                if item == 0:
                    break
                discard_part(w, <Part*> as_pointer(item))
    if op.rb.slots != NULL:
        for position in range(op.rb.mask + 1):
            item = load_relaxed(&op.rb.slots[position])
            if item != 0:
                store_relaxed(&op.rb.slots[position], 0)
                discard(w, <Chunk*> as_pointer(item))
