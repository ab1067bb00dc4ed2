"""The runtime of one node (runtime.pxd) and its Python door `Run`.

a) Every worker asks the central scheduler for (operator, budget), works that slice, accounts for it and asks again (ordered paper 2.2).
b) A worker that finds nothing pauses (only where workers < allowed CPUs), yields, then parks in an event count; it counts itself in
   `parked` before its last look (totally ordered with operator_release's load). Waits are timed as a safety net.
c) The feeding and reading thread is the caller's: it imports batches, takes output batches, releases retired input. It never waits
   with the GIL held.
d) workers = 0: the caller runs the loop itself between feeding and reading ("embedded").
e) After an error, a cancel or the end, close() drains every queue and gives all memory back; a debug run asserts that nothing is live.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.arrow cimport (
    ArrowArray, Batch, BatchFormats, Output, batch_free, batch_import, batch_new, output_append, output_export, output_free,
    output_new,
)
from ordstream._core.atomics cimport *
from ordstream._core.chunk cimport *
from ordstream._core.egress cimport egress_free, egress_init, egress_publish
from ordstream._core.ingress cimport ingress_free, ingress_init
from ordstream._core.kernel cimport ON_ERROR_FAIL, PS, SF, SL, Kernel, KernelOwner
from ordstream._core.keyed_state cimport KeySpecOwner
from ordstream._core.mpmc cimport MPMC_EMPTY, mpmc_free, mpmc_init, mpmc_size_approx, mpmc_try_take
from ordstream._core.operator cimport (
    Operator, Slice, operator_can_release, operator_has_input, operator_release, operator_run, operator_waiting,
)
from ordstream._core.partition_queues cimport NO_LIMIT, pq_free, pq_init, power_of_two
from ordstream._core.reorder_buffer cimport LOCK_BASED, NON_BLOCKING, reorder_free, reorder_init, reorder_ready
from ordstream._core.scheduler cimport (
    OperatorStats, Scheduler, scheduler_choose, scheduler_init, stats_account, stats_cumulate, stats_init,
)
from ordstream._core.scheduler import HEURISTICS
from ordstream._core.spsc cimport spsc_free, spsc_init, spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.threads cimport (
    SPIN_LIMIT, YIELD_LIMIT, EventCount, cpu_pause, cpu_yield, now_ns, spin_lock_backoff,
)

cdef extern from *:
    """
    #ifndef ORDSTREAM_DEBUG
    #define ORDSTREAM_DEBUG 0
    #endif
    static inline OrdEventCount* ord_event_new() { return new (std::nothrow) OrdEventCount(); }
    static inline void ord_event_delete(OrdEventCount* e) { delete e; }
    static inline std::mutex* ord_rt_mutex_new() { return new (std::nothrow) std::mutex(); }
    static inline void ord_rt_mutex_delete(std::mutex* m) { delete m; }
    """
    EventCount* ord_event_new() nogil
    void ord_event_delete(EventCount*) nogil
    bint ORDSTREAM_DEBUG
    Mutex* ord_rt_mutex_new() nogil
    void ord_rt_mutex_delete(Mutex*) nogil

cdef enum:
    PARK_NS = 20_000_000           # longest timed wait of a parked worker
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


cdef inline bint finished(Runtime* rt) noexcept nogil:
    return load_acquire(&rt.egress.ended) != 0 or load_acquire(&rt.run.stop) != 0


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


# ---------------------------------------------------------------- identity operator

cdef Chunk* apply_identity(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    return c


cdef class IdentityOwner(KernelOwner):
    """The stateless operator in front of a partitioned first operator: its only work is the split, done in parallel."""

    def __init__(self, LayoutOwner layout):
        self.input_layout = layout
        self.output_layout = layout
        self.kernel.kind = SL
        self.kernel.on_error = ON_ERROR_FAIL
        self.kernel.input = &layout.layout
        self.kernel.output = &layout.layout
        self.kernel.apply = apply_identity


# Debug counters (make debug): read by debug_counts.
cdef int64_t runs_open = 0
cdef int64_t chunks_leaked = 0
cdef int64_t bytes_leaked = 0


def debug_counts():
    """Live objects that must balance to zero when every stream is closed: {} in a release build."""
    if not ORDSTREAM_DEBUG:
        return {}
    return {"runs": runs_open, "chunks": chunks_leaked, "bytes": bytes_leaked}


REORDER_SCHEMES = {"nonblocking": NON_BLOCKING, "lock": LOCK_BASED}
PARTITION_SCHEMES = {"hybrid": 0, "partitioned": 1, "shared": 2}


cdef class Run:
    """One run of a chain of kernels. Not re-usable.

    Memory ownership: operators, stats, queues, pool, workers' C state, imported batches. Borrows kernels from their owners,
    which it keeps alive.
    Thread safety: worker(i) once per worker thread; everything else from the one feeding and reading thread, except cancel()
    and progress(), which any thread may call.
    """
    cdef Runtime rt
    cdef Worker* workers
    cdef Worker main
    cdef readonly int nworkers
    cdef list owners
    cdef list names
    cdef list kinds
    cdef object source_layout
    cdef LayoutOwner layout_owner
    cdef BatchFormats formats
    cdef uint8_t* used
    cdef object out_schema
    cdef LayoutOwner out_layout
    cdef Batch* pinned_head
    cdef Batch* pinned_tail
    cdef int64_t pinned
    cdef int64_t pushed_rows
    cdef bint closed
    cdef readonly bint source_ended
    cdef object arrivals
    cdef object bounds
    cdef readonly int64_t emitted_through
    cdef Output* output_in_hand

    def __cinit__(self):
        memset(<void*> &self.rt, 0, sizeof(Runtime))
        global runs_open
        memset(<void*> &self.main, 0, sizeof(Worker))
        self.closed = False
        runs_open += 1

    def __init__(self, operators, LayoutOwner source_layout not None, BatchFormats formats not None, used, LayoutOwner out_layout not None,
                 out_schema, *, int workers, str scheduler, str partitioning, str reorder, chunk_rows, int64_t depth,
                 double slice_ns, double window_ns, double capacity, int64_t max_chunks, int64_t max_bytes, int64_t max_queued,
                 double chunk_ns, int64_t min_rows, int64_t max_rows, bint spin, bint tags, int64_t seed, int64_t marker_every,
                 int64_t snapshot_every, time_column, int64_t time_every, arrivals, int64_t max_ready,
                 int64_t sample_every):
        """operators: list of (name, kind, KernelOwner, KeySpecOwner | None, p, bounds | None, M)."""
        cdef int32_t i
        cdef int32_t b
        cdef Operator* op
        cdef KernelOwner owner
        cdef KeySpecOwner keys
        cdef int32_t max_cols = source_layout.layout.ncols
        cdef int64_t slots = power_of_two(depth)
        cdef int64_t[::1] schedule
        cdef int64_t[::1] ints
        cdef double[::1] floats
        self.owners = [o[2] for o in operators]
        self.names = [o[0] for o in operators]
        self.kinds = [o[1] for o in operators]
        self.layout_owner = source_layout
        self.formats = formats
        self.out_schema = out_schema
        self.out_layout = out_layout
        self.nworkers = workers
        self.bounds = []
        n = len(operators)
        for o in operators:
            owner = o[2]
            max_cols = max(max_cols, owner.kernel.input.ncols + owner.kernel.extra_cols,
                           owner.kernel.output.ncols + owner.kernel.extra_cols)
        pool_init(&self.rt.pool, max_cols + 2, 8192)
        self.rt.n = n
        self.rt.spin = spin
        self.rt.operators = <Operator*> calloc(n, sizeof(Operator))
        self.rt.stats = <OperatorStats*> calloc(n, sizeof(OperatorStats))
        self.workers = <Worker*> calloc(workers + 1, sizeof(Worker))
        self.used = <uint8_t*> calloc(source_layout.layout.ncols + 1, 1)
        self.rt.run.work = ord_event_new()
        self.rt.run.reader = ord_event_new()
        if (self.rt.operators == NULL or self.rt.stats == NULL or self.workers == NULL or self.used == NULL
                or self.rt.run.work == NULL or self.rt.run.reader == NULL):
            raise MemoryError
        for i, flag in enumerate(used):
            self.used[i] = 1 if flag else 0
        self.rt.run.ingress = &self.rt.ingress
        self.rt.run.workers = workers if workers > 0 else 1
        for i in range(workers):
            worker_init(&self.workers[i], &self.rt.pool, i)
            self.workers[i].node = &self.rt
        worker_init(&self.main, &self.rt.pool, workers)
        self.main.node = &self.rt
        if (ingress_init(&self.rt.ingress, source_layout.layout.ncols) != 0
                or egress_init(&self.rt.egress, &out_layout.layout, &self.rt.ingress, tags) != 0):
            raise MemoryError
        self.rt.egress.max_ready = max_ready
        self.rt.ingress.max_chunks = max_chunks
        self.rt.ingress.max_bytes = max_bytes
        self.rt.ingress.bytes = &self.rt.pool.bytes
        self.rt.ingress.marker_every = marker_every
        self.rt.ingress.snapshot_every = snapshot_every
        self.rt.ingress.snapshot_next = snapshot_every
        if time_column is not None:
            self.rt.ingress.time_column = time_column
            self.rt.ingress.time_type = source_layout.layout.type[<int> time_column]
            self.rt.ingress.time_every = time_every
        if arrivals is not None:
            self.arrivals = arrivals
            schedule = arrivals
            if schedule.shape[0]:
                self.rt.ingress.schedule = &schedule[0]
        self.rt.auto_rows = chunk_rows is None
        self.rt.chunk_ns = chunk_ns
        self.rt.min_rows = min_rows
        self.rt.max_rows = max_rows
        store_relaxed(&self.rt.ingress.target_rows, min_rows if chunk_rows is None else <int64_t> chunk_rows)
        scheduler_init(&self.rt.scheduler, HEURISTICS[scheduler], slice_ns, window_ns, capacity, seed)
        for i in range(n):
            op = &self.rt.operators[i]
            name, kind, owner, keys, p, bounds, m = operators[i]
            op.index = i
            op.kind = owner.kernel.kind
            op.kernel = &owner.kernel
            op.run = &self.rt.run
            op.depth = depth
            op.max_queued = max_queued
            op.sample_every = sample_every if owner.kernel.kind != SL else 0
            op.M = m
            for b in range(owner.kernel.output.ncols):
                if owner.kernel.output.type[b] == PT_VIEW or owner.kernel.output.type[b] == PT_LIST:
                    op.has_views = 1
            if i == 0:
                op.ingress = &self.rt.ingress
            if i == n - 1:
                op.egress = &self.rt.egress
            else:
                op.edge.to = &self.rt.operators[i + 1]
            stats_init(&self.rt.stats[i], m)
            if reorder_init(&op.rb, slots, 1, REORDER_SCHEMES[reorder],
                            ord_rt_mutex_new() if REORDER_SCHEMES[reorder] == LOCK_BASED else NULL) != 0:
                raise MemoryError
            if op.kind == SL:
                if mpmc_init(&op.worklist, slots, 1) != 0:
                    raise MemoryError
            elif op.kind == SF:
                if spsc_init(&op.input, slots, 0) != 0:
                    raise MemoryError
                if op.kernel.bucket_new != NULL:
                    op.state = op.kernel.bucket_new(op.kernel, 0)
                    if op.state == NULL:
                        raise MemoryError
            else:
                if pq_init(&op.pq, PARTITION_SCHEMES[partitioning], p, depth) != 0:
                    raise MemoryError
                op.keys = &keys.spec
                self.owners.append(keys)
                op.partitioner.keys = &keys.spec
                op.partitioner.layout = owner.kernel.input
                op.partitioner.p = p
                if bounds is not None:
                    self.bounds.append(bounds)
                    op.partitioner.by_range = 1
                    op.partitioner.nbounds = len(bounds)
                    op.partitioner.column = keys.spec.column[0]
                    if bounds.dtype.kind == "f":
                        op.partitioner.is_float = 1
                        floats = bounds
                        op.partitioner.float_bounds = &floats[0] if len(bounds) else NULL
                    else:
                        ints = bounds
                        op.partitioner.int_bounds = &ints[0] if len(bounds) else NULL
                for b in range(p):
                    op.pq.buckets[b].state = op.kernel.bucket_new(op.kernel, b)
                    if op.pq.buckets[b].state == NULL:
                        raise MemoryError

    # ------------------------------------------------------------ feeding

    def push(self, batch):
        """Give a record batch (exactly the source's schema) to the ingress. Raises TypeError for an unsupported column layout."""
        cdef Batch* b
        cdef ArrowArray* array
        cdef int rc
        schema_capsule, array_capsule = batch.__arrow_c_array__()
        array = <ArrowArray*> PyCapsule_GetPointer(array_capsule, b"arrow_array")
        b = batch_new(self.layout_owner.layout.ncols, DATA)
        if b == NULL:
            raise MemoryError
        memcpy(&b.array, array, sizeof(ArrowArray))
        array.release = NULL
        with nogil:
            rc = batch_import(b, &self.layout_owner.layout, self.used, self.formats.formats)
        if rc == -1:
            batch_free(b)
            raise MemoryError
        if rc < 0:
            batch_free(b)
            raise TypeError(f"column {-2 - rc} has a layout that the core does not read (a list with null elements?)")
        if b.rows == 0:
            batch_free(b)
            return
        self.put(b)

    cdef int put(self, Batch* b) except -1:
        b.arrived_ns = now_ns()
        b.first_serial = self.pushed_rows + 1
        self.pushed_rows += b.rows
        if self.pinned_tail == NULL:
            self.pinned_head = b
        else:
            self.pinned_tail.next = b
        self.pinned_tail = b
        self.pinned += 1
        add_relaxed(&self.rt.pool.bytes, b.bytes)
        add_relaxed(&self.rt.ingress.queued_tuples, b.rows)   # before the push: a worker may see the batch first
        if not spsc_try_push(&self.rt.ingress.arriving, as_int(b)):
            raise BufferError("too many batches wait at the ingress")
        with nogil:
            self.rt.run.work.notify_all()
        return 0

    def finish(self):
        """The end of the stream."""
        cdef Batch* b = batch_new(self.layout_owner.layout.ncols, END_OF_STREAM)
        if b == NULL:
            raise MemoryError
        self.source_ended = True
        self.put(b)

    def fail_source(self, exception):
        """An error of the source, in order: what it gave before is processed and delivered first."""
        cdef Batch* b = batch_new(self.layout_owner.layout.ncols, FAILURE)
        cdef Failure* f = failure_new(-1, FAIL_SOURCE, b"the source failed")
        if b == NULL or f == NULL:
            raise MemoryError
        Py_INCREF(exception)
        f.exc = <void*> <PyObject*> exception
        b.failure = f
        self.source_ended = True
        self.put(b)

    def retire(self):
        """Release input batches all of whose outputs have been emitted; returns how many are still pinned."""
        cdef Batch* b
        cdef int64_t emitted = load_acquire(&self.rt.ingress.emitted_serial)   # pairs with store_release in the egress
        while self.pinned_head != NULL and self.pinned_head.next != NULL and self.pinned_head.next.first_serial <= emitted:
            # Something of the following batch has left the egress, so the ingress has moved on from this one.
            b = self.pinned_head
            self.pinned_head = b.next
            self.pinned -= 1
            add_relaxed(&self.rt.pool.bytes, -b.bytes)
            b.bytes = 0
            batch_free(b)
        return self.pinned

    @property
    def waiting_batches(self):
        """Batches that no worker has begun."""
        return spsc_size_approx(&self.rt.ingress.arriving)

    # ------------------------------------------------------------ reading

    def take(self):
        """(RecordBatch, serials or None), or None: no finished output batch is there."""
        cdef Output* o = <Output*> as_pointer(spsc_try_take(&self.rt.egress.ready))
        if o == NULL:
            return None
        with nogil:
            if load_seq(&self.rt.run.parked) > 0:             # room again: a parked release may go on
                self.rt.run.work.notify_all()
        self.emitted_through = o.emitted_through
        serials = None
        if o.serials != NULL:
            serials = [o.serials[i] for i in range(o.rows)]
        return output_export(o, self.out_schema), serials

    def want(self):
        """Ask for a partial output batch."""
        store_relaxed(&self.rt.egress.wanted, 1)              # seen by the next release or idle worker; no partner
        with nogil:
            self.rt.run.work.notify_one()

    def wait(self, double seconds):
        """Wait (without the GIL) until output is ready, the run ends, or the time is over. Returns whether something is there."""
        cdef int64_t seen
        cdef int64_t ns = <int64_t> (seconds * 1e9)
        with nogil:
            seen = self.rt.run.reader.prepare()
            if spsc_size_approx(&self.rt.egress.ready) == 0 and not finished(&self.rt):
                self.rt.run.reader.wait(seen, ns)
        return spsc_size_approx(&self.rt.egress.ready) > 0

    @property
    def ended(self):
        """True when the end of the stream or a failure was delivered, or the run was stopped."""
        return finished(&self.rt)

    @property
    def stopped(self):
        return load_acquire(&self.rt.run.stop) != 0

    @property
    def out_of_memory(self):
        return load_relaxed(&self.rt.run.no_memory) != 0 or self.rt.egress.no_memory != 0

    # ------------------------------------------------------------ working

    def start_clock(self):
        """Time zero of an open-loop schedule."""
        self.rt.ingress.schedule_start = now_ns()

    def worker(self, int i):
        """Body of worker thread i."""
        with nogil:
            worker_loop(&self.rt, &self.workers[i], False)

    def work(self):
        """workers = 0: work on the caller's thread until output is ready, input is needed, or the run ends."""
        with nogil:
            worker_loop(&self.rt, &self.main, True)

    def cancel(self):
        """Stop as soon as every worker has finished its chunk. Any thread."""
        store_release(&self.rt.run.stop, 1)                   # pairs with load_acquire in finished()
        with nogil:
            self.rt.run.work.notify_all()
            self.rt.run.reader.notify_all()

    def progress(self):
        """(tuples pushed, tuples issued to the first operator, serial emitted through, rows out). Any thread."""
        return (load_relaxed(&self.rt.ingress.queued_tuples), load_relaxed(&self.rt.ingress.issued_serial),
                load_relaxed(&self.rt.ingress.emitted_serial), load_relaxed(&self.rt.egress.rows_out))

    # ------------------------------------------------------------ results

    def failure(self):
        """None, or (operator index, serial, code, message, exception or None, failing row as a RecordBatch or None)."""
        cdef Failure* f = self.rt.egress.failure
        cdef Output* o
        cdef KernelOwner owner
        if f == NULL:
            return None
        exc = None
        if f.exc != NULL:
            exc = <object> <PyObject*> f.exc
        return self.rt.egress.failed_operator, self.rt.egress.failed_serial, f.code, f.message.decode("utf-8", "replace"), exc

    def failing_row(self, schema):
        """The failing row as a RecordBatch of `schema` (the operator's input in core types), or None."""
        cdef Chunk* c = self.rt.egress.failed
        cdef KernelOwner owner
        cdef Output* o
        cdef int32_t j
        if c == NULL or c.n != 1 or self.rt.egress.failed_operator < 0:
            return None
        owner = self.owners[self.rt.egress.failed_operator]
        for j in range(owner.kernel.input.ncols):
            if c.cols[j].data == NULL:
                return None
        o = output_new(owner.kernel.input, 4, False)
        if o == NULL or output_append(o, c) != 0:
            raise MemoryError
        return output_export(o, schema)

    def samples(self):
        """Latency markers: list of (serial, processing ns, end-to-end ns), in order."""
        return [(self.rt.egress.samples[i].serial, self.rt.egress.samples[i].processing_ns, self.rt.egress.samples[i].end_to_end_ns)
                for i in range(self.rt.egress.nsamples)]

    def statistics(self):
        """Figures of the run as a dict (ordstream/report.py shapes them)."""
        cdef Operator* op
        cdef OperatorStats* o
        operators = []
        stats_cumulate(self.rt.stats, self.rt.n)
        for i in range(self.rt.n):
            op = &self.rt.operators[i]
            o = &self.rt.stats[i]
            entry = {
                "name": self.names[i], "kind": self.kinds[i], "tuples_in": o.tuples_in, "tuples_out": o.tuples_out,
                "chunks": o.chunks, "slices": o.slices, "worker_ns": o.worker_ns, "max_waited": o.max_waited,
                "reorder_height": load_relaxed(&op.reorder_height), "skipped": load_relaxed(&op.kernel.skipped),
                "buckets": op.pq.p if op.kind == PS else None, "estimated_cost_ns": o.c, "estimated_selectivity": o.s,
                "sampled_rows": load_relaxed(&op.sampled_rows), "sampled_ns": load_relaxed(&op.sampled_ns),
                "sampled_max_ns": load_relaxed(&op.sampled_max_ns),
            }
            if op.kind == PS:
                per_bucket = [op.pq.buckets[b].tuples for b in range(op.pq.p)]
                entry["bucket_tuples_max"] = max(per_bucket)
                entry["bucket_tuples_mean"] = sum(per_bucket) / len(per_bucket)
                if op.kernel.bucket_bytes != NULL:
                    entry["state_bytes"] = sum(
                        [op.kernel.bucket_bytes(op.kernel, op.pq.buckets[b].state) for b in range(op.pq.p)])
            elif op.kind == SF and op.kernel.bucket_bytes != NULL and op.state != NULL:
                entry["state_bytes"] = op.kernel.bucket_bytes(op.kernel, op.state)
            operators.append(entry)
        return {
            "operators": operators, "decisions": self.rt.scheduler.decisions, "aged": self.rt.scheduler.aged,
            "throttled": self.rt.ingress.throttle_count, "parks": load_relaxed(&self.rt.parks),
            "chunk_rows": load_relaxed(&self.rt.ingress.target_rows), "time_punctuations": self.rt.egress.markers_time,
            "snapshot_markers": self.rt.egress.markers_snapshot, "tuples": load_relaxed(&self.rt.ingress.issued_serial),
            "rows_out": load_relaxed(&self.rt.egress.rows_out), "emitted_serial": load_relaxed(&self.rt.ingress.emitted_serial),
            "chunks_issued": load_relaxed(&self.rt.ingress.issued_chunks), "bytes": load_relaxed(&self.rt.pool.bytes),
        }

    # ------------------------------------------------------------ the end

    def close(self):
        """Give all memory back. Workers must have ended. Returns chunks that were not returned (0 unless there is a leak)."""
        cdef int32_t i
        cdef int32_t b
        cdef Batch* batch
        cdef Batch* following
        cdef Operator* op
        cdef int64_t live
        global runs_open, chunks_leaked, bytes_leaked
        if self.closed:
            return 0
        self.closed = True
        runs_open -= 1
        if self.rt.operators != NULL:
            for i in range(self.rt.n):
                drain(&self.rt.operators[i], &self.main)
        if self.rt.egress.failed != NULL:
            if self.rt.egress.failure != NULL and self.rt.egress.failure.exc != NULL:
                Py_DECREF(<object> <PyObject*> self.rt.egress.failure.exc)
                self.rt.egress.failure.exc = NULL
            chunk_free(&self.main, self.rt.egress.failed)
            self.rt.egress.failed = NULL
        if self.rt.egress.layout != NULL:
            egress_free(&self.rt.egress)
        batch = self.pinned_head
        while batch != NULL:
            following = batch.next
            if batch.failure != NULL:
                if (<Failure*> batch.failure).exc != NULL:
                    Py_DECREF(<object> <PyObject*> (<Failure*> batch.failure).exc)
            add_relaxed(&self.rt.pool.bytes, -batch.bytes)
            batch_free(batch)
            batch = following
        self.pinned_head = NULL
        self.pinned_tail = NULL
        ingress_free(&self.rt.ingress)
        if self.rt.operators != NULL:
            for i in range(self.rt.n):
                op = &self.rt.operators[i]
                if op.kind == SL:
                    mpmc_free(&op.worklist)
                elif op.kind == SF:
                    spsc_free(&op.input)
                    if op.state != NULL and op.kernel.bucket_free != NULL:
                        op.kernel.bucket_free(op.kernel, op.state)
                else:
                    if op.pq.buckets != NULL:
                        for b in range(op.pq.p):
                            if op.pq.buckets[b].state != NULL:
                                op.kernel.bucket_free(op.kernel, op.pq.buckets[b].state)
                    pq_free(&op.pq)
                if op.rb.mutex != NULL:
                    ord_rt_mutex_delete(op.rb.mutex)
                reorder_free(&op.rb)
        if self.workers != NULL:
            for i in range(self.nworkers):
                worker_free(&self.workers[i])
        if self.main.pool != NULL:
            worker_free(&self.main)
        live = load_relaxed(&self.rt.pool.live)
        pool_free(&self.rt.pool)
        chunks_leaked += live
        bytes_leaked += load_relaxed(&self.rt.pool.bytes)
        free(self.rt.operators)
        free(self.rt.stats)
        free(self.workers)
        free(self.used)
        self.rt.operators = NULL
        self.workers = NULL
        if self.rt.run.work != NULL:
            ord_event_delete(self.rt.run.work)
        if self.rt.run.reader != NULL:
            ord_event_delete(self.rt.run.reader)
        self.rt.run.work = NULL
        self.rt.run.reader = NULL
        self.owners = []
        return live

    def __dealloc__(self):
        # A run that was never closed (an exception in __init__): close() is safe on a half-built object.
        if not self.closed:
            self.close()
