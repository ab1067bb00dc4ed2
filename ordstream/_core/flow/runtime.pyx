"""The workers' loop of one node (runtime.pxd), and what empties it after the end.

a) Every worker asks the central scheduler for (operator, budget), works for that slice, accounts for it and
   asks again (ordered paper 2.2).
b) A worker that finds no work pauses (only where workers < allowed CPUs), then yields, then parks in an
   event count. It counts itself in `parked` before it looks for work a last time (totally ordered with
   operator_release's load). An operator that has all the workers it may have keeps no other worker awake: a
   worker that ends a slice, or begins one after a pause, wakes another for the work that is left. Waits are
   timed as a safety net. Tests make the times long and count the waits that hid a missing wake-up
   (`missed`).
c) workers = 0: the caller runs the loop itself between feeding and reading ("embedded").
d) workers="auto": the worker that ends a slice when an observation is due calls the controller
   (elastic.pxd), under the scheduler's lock. Workers that should not be active wait in a gate of their own,
   which no wake-up meant for an active worker can reach.
e) After an error, a cancel or the end, `drain` gives every chunk back; a debug run asserts that nothing is
   live.
"""
from cpython.ref cimport PyObject, Py_DECREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from ordstream._core.ground.atomics cimport *
from ordstream._core.ground.chunk cimport *
from ordstream._core.flow.egress cimport egress_publish
from ordstream._core.flow.elastic cimport (
    elastic_hurry, elastic_observe, elastic_restart, elastic_set, elastic_stalled,
)
from ordstream._core.flow.ingress cimport ingress_wakes_feeder
from ordstream._core.ground.kernel cimport PS, SF, SL
from ordstream._core.ground.memory_reserve cimport reserve_leave
from ordstream._core.ground.mpmc cimport mpmc_try_take
from ordstream._core.flow.delivery cimport operator_can_release, operator_release
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.flow.slices cimport operator_has_input, operator_run, operator_waiting
from ordstream._core.flow.worklist.buckets cimport NO_LIMIT
from ordstream._core.flow.reorder_buffer cimport NON_BLOCKING, reorder_ready
from ordstream._core.flow.scheduler cimport (
    OperatorStats, chunk_rows_for, chunks_for, scheduler_choose, stats_account, stats_cumulate,
)
from ordstream._core.ground.spsc cimport spsc_size_approx, spsc_try_take
from ordstream._core.ground.stopping cimport stop_asked
from ordstream._core.ground.threads cimport (
    SPIN_LIMIT, YIELD_LIMIT, cpu_pause, cpu_yield, now_ns, spin_lock_backoff,
)

cdef extern from "<exception>" namespace "std" nogil:
    int uncaught_exceptions()

cdef enum:
    ADAPT_EVERY = 16               # choices between two looks at the chunk size, where calls cost little
    ADAPT_FIRST = 64               # choices of a run, each with a look: it begins with the smallest chunks
    STALL_NS = 20_000_000          # a slice that takes longer may be asleep


# ---------------------------------------------------------------- waits

cdef Waits waits
waits.park_ns = 50_000_000           # after a wait that found no work the next one is twice as long
waits.longest_park_ns = 800_000_000  # 8 workers of an idle stream: 10 wake-ups a second
waits.gate_ns = 1_000_000_000
waits.grace_ns = 0
waits.look = NULL

cdef a64 missed_waits


cdef Waits* waits_of_new_runs() noexcept nogil:
    """The timed waits of runs that are made from now on. Tests write them, with the GIL."""
    return &waits


cdef a64* missed_of_closed_runs() noexcept nogil:
    """Sum of `missed` over the runs that were closed."""
    return &missed_waits


cdef void hold(Runtime* rt, int64_t place) noexcept nogil:
    """Tests: keep this worker here until `hold_at` names another place. Cost outside tests: one load."""
    # written by a test's thread, which looks at `held`; no partner
    if load_relaxed(&rt.hold_at) != place:
        return
    add_seq(&rt.held, 1)
    while load_acquire(&rt.hold_at) == place:
        cpu_yield()
    add_seq(&rt.held, -1)                                     # as above


cdef bint left_waiting(Runtime* rt) noexcept nogil:
    """Tests: True when there is work, or the run is over, and no worker is in a slice (the end of a slice
    would wake others).

    Tuples that become due by an open-loop schedule do not count: no wake-up announces them.
    """
    cdef bint found = False
    cdef int32_t i
    lock_scheduler(rt)
    for i in range(rt.n):
        if rt.stats[i].w > 0:
            unlock_scheduler(rt)
            return False
        found = found or (rt.ingress.schedule == NULL and runnable(&rt.operators[i]))
    unlock_scheduler(rt)
    return found or finished(rt)


cdef void note_missed(Runtime* rt, int64_t seen) noexcept nogil:
    """Tests: called when a worker's timed wait ran out. Counts the wait as `missed` if it hid a missing
    wake-up.

    That is so when there is work, no wake-up came since epoch `seen`, and none comes within `grace_ns`: a
    thread that has made a change may be about to send its wake-up.
    """
    if rt.grace_ns and left_waiting(rt) and not rt.run.work.wait(seen, rt.grace_ns) and left_waiting(rt):
        add_relaxed(&rt.missed, 1)                            # statistic


# ---------------------------------------------------------------- choosing

cdef inline void lock_scheduler(Runtime* rt) noexcept nogil:
    cdef int rounds = 0
    # pairs with store_release in unlock
    while load_relaxed(&rt.lock) != 0 or exchange_acq_rel(&rt.lock, 1) != 0:
        spin_lock_backoff(&rounds)


cdef inline void unlock_scheduler(Runtime* rt) noexcept nogil:
    store_release(&rt.lock, 0)                                # pairs with exchange_acq_rel in lock_scheduler


cdef void stats_now(Runtime* rt, OperatorStats* into) noexcept nogil:
    """Copy the operators' figures. Thread safety: any thread. Cost: the scheduler's lock for ~100 ns."""
    lock_scheduler(rt)
    stats_cumulate(rt.stats, rt.n)
    memcpy(into, rt.stats, <size_t> rt.n * sizeof(OperatorStats))
    unlock_scheduler(rt)


cdef inline bint runnable(Operator* op) noexcept nogil:
    """True when the operator has input that may be processed, or a ready unit that may be delivered."""
    if reorder_ready(&op.rb):
        return operator_can_release(op)
    return operator_has_input(op)


cdef void adapt_chunk(Runtime* rt) noexcept nogil:
    """Set the chunk size: aim at `chunk_ns` of work per chunk in the operator with the most work per input
    tuple. And how many chunks may be in flight. Under lock."""
    cdef int32_t i
    for i in range(rt.n):
        if rt.operators[i].shed != NULL and rt.stats[i].tuples_in == 0:
            # a protected operator has not been measured yet: chunks stay small
            return
    # read by the ingress; no partner
    store_relaxed(&rt.ingress.target_rows,
                  chunk_rows_for(rt.stats, rt.n, rt.chunk_ns, rt.min_rows, rt.max_rows))
    store_relaxed(&rt.ingress.target_chunks,
                  chunks_for(rt.stats, rt.n, rt.run.workers, rt.ingress.max_chunks))


# ---------------------------------------------------------------- how many workers

cdef inline bint outside(Runtime* rt, Worker* w) noexcept nogil:
    """True when this worker should not be active."""
    return w.id >= load_acquire(&rt.active)                   # pairs with store_release in set_active


cdef void set_active(Runtime* rt, int32_t n) noexcept nogil:
    """Set the number of workers that should be active, and wake those that wait for it. Under lock."""
    store_release(&rt.active, n)                              # pairs with load_acquire in outside
    rt.gate.notify_all()
    if n > load_relaxed(&rt.running):
        rt.run.reader.notify_all()                            # it starts the threads


cdef bint input_waits(Runtime* rt) noexcept nogil:
    """True when tuples that are there (or due, by a schedule) have not been taken."""
    cdef int64_t issued = load_relaxed(&rt.ingress.issued_serial)
    if issued >= load_relaxed(&rt.ingress.queued_tuples):
        return False
    if rt.ingress.schedule == NULL:
        return True
    return rt.ingress.schedule[issued - rt.ingress.base] + rt.ingress.schedule_start <= now_ns()


cdef void adapt_workers(Runtime* rt, int64_t now) noexcept nogil:
    """Give the controller an observation. Under lock. Cost: ~10 ns per operator and worker, four times per
    interval.

    Work is the number of tuples that all operators have processed, each weighted by its cost when the search
    began. This is smoother than the number of source tuples, which pass in batches through one operator
    after the other.
    """
    cdef double work = 0.0
    cdef double busy = rt.slice_ns
    cdef int32_t running = <int32_t> load_relaxed(&rt.running)
    cdef int32_t before = rt.elastic.target
    cdef int32_t i
    rt.look_at = now + rt.elastic.interval_ns // 4
    if load_relaxed(&rt.ingress.ended) != 0:
        # Only the final flush is left, and its buckets are flushed in parallel.
        if load_relaxed(&rt.active) < running:
            set_active(rt, running)
        return
    if rt.shaken:
        rt.shaken ^= rt.shaken << 13
        rt.shaken ^= rt.shaken >> 7
        rt.shaken ^= rt.shaken << 17
        rt.look_at = now + <int64_t> ((rt.shaken >> 20) % 50_000)
        elastic_set(&rt.elastic, now, 1 + <int32_t> ((rt.shaken >> 40) % <uint64_t> rt.elastic.most))
        set_active(rt, rt.elastic.target)
        return
    if running < before:
        elastic_restart(&rt.elastic, now)                     # threads are being started
        return
    if rt.elastic.began == 0 and rt.stats[0].tuples_in > 0 and rt.ingress.schedule == NULL:
        # Backlog: the cost per tuple so far of the first operator, times the tuples that wait.
        if elastic_hurry(&rt.elastic, now,
                         busy / rt.stats[0].tuples_in
                         * (load_relaxed(&rt.ingress.queued_tuples) - rt.ingress.base)) != before:
            set_active(rt, rt.elastic.target)
            return
    if rt.units != rt.elastic.searches:
        rt.units = rt.elastic.searches
        for i in range(rt.n):
            rt.weights[i] = rt.stats[i].c
        elastic_restart(&rt.elastic, now)
    for i in range(rt.n):
        work += rt.weights[i] * rt.stats[i].tuples_in
    for i in range(running):
        if rt.slice_start[i] != 0 and rt.slice_start[i] < now:
            busy += now - rt.slice_start[i]
    if elastic_observe(&rt.elastic, now, work, busy, rt.slices, input_waits(rt)) != before:
        set_active(rt, rt.elastic.target)


cdef bint notice_stall(Runtime* rt) noexcept nogil:
    """Activate one more worker when every active one has been in one slice for STALL_NS and another operator
    has work.

    A user's function that sleeps, or waits for another process, causes this. The reading thread calls it
    while it waits. Returns True when the number was raised.
    """
    cdef int64_t now = now_ns()
    cdef bint stalled = False
    cdef int32_t active
    cdef int32_t i
    if not rt.adaptive or finished(rt):
        return False
    lock_scheduler(rt)
    active = <int32_t> load_relaxed(&rt.active)
    if active <= load_relaxed(&rt.running) and active < rt.elastic.most:
        for i in range(rt.n):
            if rt.stats[i].w < rt.stats[i].M and runnable(&rt.operators[i]):
                stalled = True
        for i in range(active):
            if rt.slice_start[i] == 0 or now - rt.slice_start[i] < STALL_NS:
                stalled = False
    if stalled:
        set_active(rt, elastic_stalled(&rt.elastic, now))
    unlock_scheduler(rt)
    return stalled


cdef bint anything_runnable(Runtime* rt) noexcept nogil:
    """Whether asking the scheduler is worth it. Takes no lock; an estimate."""
    cdef int32_t i
    for i in range(rt.n):
        if runnable(&rt.operators[i]):
            return True
    return load_relaxed(&rt.egress.wanted) != 0


cdef inline bint releasable(Operator* op) noexcept nogil:
    """True when a ready unit may be delivered by a worker that the operator does not have."""
    return not op.rb.alone and reorder_ready(&op.rb) and operator_can_release(op)


cdef bint anything_schedulable(Runtime* rt) noexcept nogil:
    """anything_runnable, not counting input of operators that already have all the workers they may have.
    Takes the lock."""
    cdef bint found = load_relaxed(&rt.egress.wanted) != 0
    cdef int32_t i
    lock_scheduler(rt)
    for i in range(rt.n):
        if (runnable(&rt.operators[i]) if rt.stats[i].w < rt.stats[i].M else releasable(&rt.operators[i])):
            found = True
            break
    unlock_scheduler(rt)
    return found


cdef inline void wake_another(Runtime* rt) noexcept nogil:
    """Wake a parked worker if there is one and there is work for it. Cost when none is parked: one load."""
    if load_relaxed(&rt.run.parked) > 0 and anything_schedulable(rt):
        rt.run.work.notify_one()


cdef void sit_out(Runtime* rt, Worker* w) noexcept nogil:
    """Wait until this worker should be active again, or the run ends."""
    cdef int64_t seen
    # this worker may have got a wake-up meant for an active one: pass it on
    wake_another(rt)
    while outside(rt, w) and not finished(rt):
        seen = rt.gate.prepare()
        if outside(rt, w) and not finished(rt):
            add_relaxed(&rt.gated, 1)                         # for tests
            if (not rt.gate.wait(seen, rt.gate_ns) and rt.grace_ns and (finished(rt) or not outside(rt, w))
                    and not rt.gate.wait(seen, rt.grace_ns)):
                add_relaxed(&rt.missed, 1)                    # statistic; as in note_missed
            add_relaxed(&rt.gated, -1)


# ---------------------------------------------------------------- choosing, continued

cdef int next_slice(Runtime* rt, Worker* w, int previous, double ns, Slice* done, int64_t now,
                    int64_t* budget) noexcept nogil:
    """Account for the slice just done (previous >= 0) and choose the next operator; -1: nothing is
    schedulable, or this worker should not be active."""
    cdef int32_t i
    cdef int best
    cdef OperatorStats* o
    cdef Seen* seen = rt.seen + w.id * rt.seen_each
    # Most of these lines are other cores' at the moment. Fetched under the lock, all would wait for them: it
    # would be the bottleneck of many workers. What was seen may be old by then, as it may be after the lock.
    for i in range(rt.n):
        seen[i].waiting = operator_waiting(&rt.operators[i])
        seen[i].runnable = runnable(&rt.operators[i])
    lock_scheduler(rt)
    if previous >= 0:
        stats_account(&rt.stats[previous], ns, done.tuples_in, done.tuples_out, done.chunks,
                      <double> done.kernel_ns, done.kernel_rows)
        rt.stats[previous].w -= 1
        if rt.adaptive:
            rt.slice_ns += ns
            rt.slices += 1
            rt.slice_start[w.id] = 0
            if now >= rt.look_at:
                adapt_workers(rt, now)
        if rt.auto_rows and (rt.scheduler.decisions % ADAPT_EVERY == 0
                             or rt.scheduler.decisions < ADAPT_FIRST or rt.stats[previous].call != NULL):
            adapt_chunk(rt)
    done.kernel_rows = 0                                      # the next slice times its first chunk
    done.until = now + <int64_t> rt.scheduler.slice_ns
    if outside(rt, w):
        unlock_scheduler(rt)
        return -1
    for i in range(rt.n):
        o = &rt.stats[i]
        o.I = seen[i].waiting
        o.schedulable = o.w < o.M and seen[i].runnable != 0
    best = scheduler_choose(&rt.scheduler, rt.stats, rt.n, now, budget)
    if best >= 0:
        rt.stats[best].w += 1
        if rt.adaptive:
            rt.slice_start[w.id] = now
    unlock_scheduler(rt)
    return best


cdef void publish_wanted(Runtime* rt, Worker* w) noexcept nogil:
    """For an idle worker, or the reader whom none serves (`w` is its own): publish the rows written so far,
    if the reader asks for them and nobody holds the last release flag."""
    cdef Operator* last = &rt.operators[rt.n - 1]
    if load_relaxed(&rt.egress.wanted) == 0:
        return
    if last.rb.scheme == NON_BLOCKING:
        if exchange_seq(&last.rb.flag, 1) != 0:               # as L25 of the release
            return
        store_relaxed(&rt.egress.wanted, 0)
        egress_publish(&rt.egress)
        hold(rt, HOLD_WHILE_PUBLISHING)
        store_seq(&last.rb.flag, 0)                           # as L36
    else:
        last.rb.mutex.lock()
        store_relaxed(&rt.egress.wanted, 0)
        egress_publish(&rt.egress)
        last.rb.mutex.unlock()
    rt.run.reader.notify_all()
    operator_release(last, w)                                 # L40: a unit may have become ready meanwhile


cdef void release_left(Runtime* rt, Worker* w) noexcept nogil:
    """For an idle worker, or the reader: deliver ready units of operators whose workers are all in functions
    that take long. There was no room behind them when they were put down."""
    cdef int32_t i
    for i in range(rt.n):
        if releasable(&rt.operators[i]):
            operator_release(&rt.operators[i], w)


cdef void serve_reader(Runtime* rt, Worker* w, int64_t rows_taken) noexcept nogil:
    """For an idle worker, or a reader whom none serves: release what is ready, and publish what was written
    behind `rows_taken` rows."""
    release_left(rt, w)
    # as in Run.want, behind whose exchange_seq the reader comes here
    if load_seq(&rt.egress.rows_out) > rows_taken:
        publish_wanted(rt, w)


cdef int64_t park_time(Runtime* rt, int64_t longest) noexcept nogil:
    """How long a worker may park: until the next tuple of an open-loop schedule is due, at most
    `longest`."""
    cdef int64_t issued
    cdef int64_t wait
    if rt.ingress.schedule == NULL:
        return longest
    issued = load_relaxed(&rt.ingress.issued_serial)
    if issued >= load_relaxed(&rt.ingress.queued_tuples):
        return longest
    wait = rt.ingress.schedule[issued - rt.ingress.base] + rt.ingress.schedule_start - now_ns()
    if wait < 0:
        return 0
    return wait if wait < longest else longest


cdef inline void work_slice(Operator* op, Worker* w, int64_t budget, Slice* done) noexcept nogil:
    """operator_run, with figures from zero."""
    cdef bint left = reserve_leave(True)                      # a state's growth ends the run instead
    done.tuples_in = 0
    done.tuples_out = 0
    done.chunks = 0
    operator_run(op, w, budget, done)
    reserve_leave(left)


cdef void worker_loop(Runtime* rt, Worker* w, bint embedded) noexcept nogil:
    """Work until the run ends. Embedded (workers = 0): also return when there is nothing to do or output is
    ready.

    Thread safety: one call per Worker. Ownership: none. Never takes the GIL itself (kernels may).
    """
    cdef int64_t budget = 0
    cdef Slice done
    cdef int64_t start = now_ns()
    cdef int64_t end
    cdef int64_t seen
    cdef int64_t wait
    cdef int64_t patience = rt.park_ns
    cdef int op
    # C++ makes a thread's room for exceptions when first asked for it, and ends the process where it gets
    # none: the first one may be that memory is short. A pure function: its answer (0) must be of use.
    cdef int idle = min(uncaught_exceptions(), 0)
    if not embedded:
        # read by adapt_workers; a stale value drops a slot
        add_relaxed(&rt.running, 1)
    op = next_slice(rt, w, -1, 0, &done, start, &budget)
    while True:
        if op >= 0:
            idle = 0
            patience = rt.park_ns
            work_slice(&rt.operators[op], w, budget, &done)
            end = now_ns()
            op = next_slice(rt, w, op, <double> (end - start), &done, end, &budget)
            start = end
            if finished(rt) or (embedded and stop_asked(w)):
                break
            if embedded and spsc_size_approx(&rt.egress.ready) > 0:
                break
            # This slice may have opened a window, a cap, the ingress, or a place in its operator. No other
            # wake-up says so.
            wake_another(rt)
            continue
        if finished(rt):
            break
        if outside(rt, w):
            sit_out(rt, w)
            idle = 0
            start = now_ns()
            op = next_slice(rt, w, -1, 0, &done, start, &budget)
            continue
        serve_reader(rt, w, -1)
        if embedded:
            if rt.ingress.schedule == NULL or park_time(rt, rt.park_ns) > 1_000_000:
                return
            start = now_ns()
            op = next_slice(rt, w, -1, 0, &done, start, &budget)
            continue
        idle += 1
        if rt.spin and idle <= SPIN_LIMIT:
            cpu_pause()
        elif idle <= SPIN_LIMIT + YIELD_LIMIT:
            cpu_yield()
        else:
            wait = park_time(rt, patience)
            if wait > 50_000:
                hold(rt, HOLD_BEFORE_PARKING)
                seen = rt.run.work.prepare()
                # totally ordered with load_seq in operator_release
                add_seq(&rt.run.parked, 1)
                add_relaxed(&rt.parks, 1)
                if ingress_wakes_feeder(&rt.ingress):         # nothing to do is room for input
                    store_relaxed(&rt.ingress.feeder_waits, 0)
                    rt.run.reader.notify_all()
                if anything_schedulable(rt) or finished(rt):
                    cpu_yield()
                else:
                    add_relaxed(&rt.asleep, 1)                # for tests
                    if rt.run.work.wait(seen, wait):
                        patience = rt.park_ns
                    else:
                        note_missed(rt, seen)
                        if patience < rt.longest_park_ns:
                            patience *= 2
                    add_relaxed(&rt.asleep, -1)
                # no partner: who still counts this worker wakes somebody for nothing
                add_seq(&rt.run.parked, -1)
            else:
                cpu_yield()
        if anything_runnable(rt):
            start = now_ns()
            op = next_slice(rt, w, -1, 0, &done, start, &budget)
            if op >= 0:
                # not only after a slice, which may be a function's that takes long
                wake_another(rt)
    if op >= 0:
        # chosen, but the run ended: give the place back
        lock_scheduler(rt)
        rt.stats[op].w -= 1
        unlock_scheduler(rt)
    rt.run.work.notify_all()
    rt.gate.notify_all()
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
        unit_free(w, c)
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
