"""One run of a chain of kernels, as a Python object: what ordstream/node.py drives.

The feeding and reading thread is the caller's: it imports batches, takes output batches, releases retired input. It never waits with
the GIL held.
"""
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
import numpy as np
from ordstream._core.arrow cimport (
    ArrowArray, Batch, BatchFormats, Output, batch_converts, batch_free, batch_import, batch_new, output_append, output_export, output_free,
    output_new,
)
from ordstream._core.atomics cimport *
from ordstream._core.chunk cimport *
from ordstream._core.egress cimport egress_bound, egress_commit_point, egress_free, egress_init
from ordstream._core.elastic cimport Elastic, elastic_init
from ordstream._core.ingress cimport INGRESS_LOW, ingress_free, ingress_init, ingress_may_feed
from ordstream._core.kernel cimport ON_ERROR_FAIL, PS, SF, SL, Kernel, KernelOwner, skip_first
from ordstream._core.kernels_python cimport ProcessKernel, PythonKernel
from ordstream._core.kernels_shed cimport ShedKernel
from ordstream._core.keyed_state cimport KeySpecOwner
from ordstream._core.mpmc cimport mpmc_free, mpmc_init
from ordstream._core.operator cimport Operator
from ordstream._core.partition_queues cimport pq_free, pq_init, power_of_two
from ordstream._core.reorder_buffer cimport LOCK_BASED, NON_BLOCKING, reorder_free, reorder_init
from ordstream._core.runtime cimport (
    Runtime, discard, drain, finished, missed_of_closed_runs, notice_stall, waits_of_new_runs, worker_loop,
)
from ordstream._core.scheduler cimport OperatorStats, scheduler_init, stats_cumulate, stats_init
from ordstream._core.scheduler import HEURISTICS
from ordstream._core.shedding cimport SHED_LIVE
from ordstream._core.spsc cimport spsc_free, spsc_init, spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.steps cimport StepLog, steps_free
from ordstream._core.threads cimport event_count_delete, event_count_new, mutex_delete, mutex_new, now_ns

cdef extern from *:
    """
    #ifndef ORDSTREAM_DEBUG
    #define ORDSTREAM_DEBUG 0
    #endif
    """
    bint ORDSTREAM_DEBUG


cdef enum:
    SINGLE_EVERY = 16          # with a shed stage, one of so many chunks has one row: its cost is that row's
    ELASTIC_NS = 4_000_000     # workers="auto": shortest measured slot
    SAMPLE_EVERY = 16          # parts of a protected keyed operator between two that are timed row by row
    CANCELLED = 1              # values of RunState.stop; running out of memory is the first, too
    LEFT = 2                   # nobody wants what is still being done: the run has ended already
    SIGNALS_EVERY_NS = 20_000_000  # workers = 0: how often the caller's thread, inside the core, looks for signals


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


# ---------------------------------------------------------------- signals

cdef int take_signals(Worker* w) noexcept with gil:
    """Run the handlers of signals that came; where one raises, keep that and stop the run. 1: stopped."""
    try:
        PyErr_CheckSignals()
    except BaseException as raised:
        Py_INCREF(raised)
        w.raised = <void*> <PyObject*> raised                 # until Run.work raises it
        store_release(w.stop, 1)                              # pairs with load_acquire in finished()
        return 1
    return 0


cdef int look_for_signals(Worker* w) noexcept nogil:
    """workers = 0: Python runs no handler while its thread is in the core, where a flush of millions of keys stays for seconds."""
    cdef int64_t now = now_ns()
    if waits_of_new_runs().look != NULL and waits_of_new_runs().look(w):
        return 1
    if now < w.look_at:
        return 0
    w.look_at = now + SIGNALS_EVERY_NS
    return take_signals(w)


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
    cdef int hired
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
    cdef int64_t peak          # the most that was in flight, as seen when input was pushed
    cdef bint closed
    cdef readonly bint source_ended
    cdef object arrivals
    cdef object bounds
    cdef readonly int64_t emitted_through
    cdef readonly tuple commit_point
    cdef Output* output_in_hand

    def __cinit__(self):
        memset(<void*> &self.rt, 0, sizeof(Runtime))
        global runs_open
        memset(<void*> &self.main, 0, sizeof(Worker))
        self.closed = False
        self.commit_point = (0, -1)
        runs_open += 1

    def __init__(self, operators, LayoutOwner source_layout not None, BatchFormats formats not None, used, LayoutOwner out_layout not None,
                 out_schema, *, int workers, str scheduler, str partitioning, str reorder, chunk_rows, int64_t depth,
                 double slice_ns, double window_ns, double capacity, int64_t max_chunks, int64_t max_bytes, int64_t max_queued,
                 double chunk_ns, int64_t min_rows, int64_t max_rows, bint spin, bint tags, int64_t seed, int64_t marker_every,
                 int64_t snapshot_every, time_column, int64_t time_every, arrivals, int64_t max_ready,
                 int64_t sample_every, bint shake, bint steps, int stamp=0, bint adaptive=False):
        """operators: list of (name, kind, KernelOwner, KeySpecOwner | None, p, bounds | None, M)."""
        cdef int32_t i
        cdef int32_t b
        cdef Operator* op
        cdef KernelOwner owner
        cdef KeySpecOwner keys
        cdef ShedKernel shedding
        cdef int32_t max_cols = source_layout.layout.ncols
        cdef int64_t slots = power_of_two(depth if depth > 4 else 4)   # an empty operator admits three chunks
        cdef bint lanes = False                               # more than one
        cdef bint alone = workers <= 1                        # nothing in the data path is shared: plain accesses will do
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
            lanes = lanes or owner.kernel.reads > 1
            max_cols = max(max_cols, owner.kernel.input.ncols + owner.kernel.extra_cols,
                           owner.kernel.output.ncols + owner.kernel.extra_cols)
        pool_init(&self.rt.pool, max_cols + 2, 2048)
        self.rt.n = n
        self.rt.spin = spin
        self.rt.park_ns = waits_of_new_runs().park_ns
        self.rt.longest_park_ns = waits_of_new_runs().longest_park_ns
        self.rt.gate_ns = waits_of_new_runs().gate_ns
        self.rt.grace_ns = waits_of_new_runs().grace_ns
        self.rt.operators = <Operator*> calloc(n, sizeof(Operator))
        self.rt.stats = <OperatorStats*> calloc(n, sizeof(OperatorStats))
        self.workers = <Worker*> calloc(workers + 1, sizeof(Worker))
        self.used = <uint8_t*> calloc(source_layout.layout.ncols + 1, 1)
        self.rt.run.work = event_count_new()
        self.rt.run.reader = event_count_new()
        self.rt.gate = event_count_new()
        self.rt.weights = <double*> calloc(n + 1, sizeof(double))
        self.rt.slice_start = <int64_t*> calloc(workers + 1, sizeof(int64_t))
        if (self.rt.operators == NULL or self.rt.stats == NULL or self.workers == NULL or self.used == NULL
                or self.rt.run.work == NULL or self.rt.run.reader == NULL or self.rt.gate == NULL
                or self.rt.weights == NULL or self.rt.slice_start == NULL):
            raise MemoryError
        for i, flag in enumerate(used):
            self.used[i] = 1 if flag else 0
        self.rt.run.ingress = &self.rt.ingress
        self.rt.run.workers = workers if workers > 0 else 1
        self.rt.adaptive = adaptive and workers > 1
        elastic_init(&self.rt.elastic, max(workers, 1), 1, ELASTIC_NS)
        self.rt.units = -1
        if shake:
            self.rt.shaken = <uint64_t> seed * <uint64_t> 0xD1342543DE82EF95 | 1
        store_relaxed(&self.rt.active, 1 if self.rt.adaptive else self.rt.run.workers)   # published with the threads
        self.rt.run.steps = steps
        for i in range(workers):
            worker_init(&self.workers[i], &self.rt.pool, i)
            self.workers[i].node = &self.rt
            self.workers[i].stop = &self.rt.run.stop
            self.workers[i].look = waits_of_new_runs().look
        worker_init(&self.main, &self.rt.pool, workers)
        self.main.node = &self.rt
        self.main.stop = &self.rt.run.stop
        if workers == 0:
            self.main.look = look_for_signals
        if (ingress_init(&self.rt.ingress, source_layout.layout.ncols) != 0
                or egress_init(&self.rt.egress, &out_layout.layout, &self.rt.ingress, &self.rt.pool, tags) != 0):
            raise MemoryError
        self.rt.egress.max_ready = max_ready
        egress_bound(&self.rt.egress, max_bytes)
        self.rt.run.bytes = &self.rt.pool.bytes
        self.rt.run.max_bytes = max_bytes
        self.rt.ingress.alone = alone or operators[0][6] == 1   # one worker at a time in the first operator
        self.rt.ingress.reader = self.rt.run.reader
        if shake:
            self.rt.ingress.shake = <uint64_t> seed * <uint64_t> 0x9E3779B97F4A7C15 | 1
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
            _, _, owner, keys, p, bounds, m = operators[i]
            op.index = i
            op.reads = max(owner.kernel.reads, <uint64_t> 1)
            op.lanes = lanes
            op.kind = owner.kernel.kind
            if op.kind == PS:
                self.owners.append(keys)
                op.keys = &keys.spec
                if p == 1:
                    op.kind = SF                              # one bucket: nothing to partition
            op.kernel = &owner.kernel
            op.run = &self.rt.run
            if isinstance(owner, PythonKernel):
                (<PythonKernel> owner).stop = &self.rt.run.stop
                (<PythonKernel> owner).reader_turn = &self.rt.run.reader_turn
            elif isinstance(owner, ProcessKernel):
                (<ProcessKernel> owner).stop = &self.rt.run.stop
                (<ProcessKernel> owner).reader_turn = &self.rt.run.reader_turn
            op.depth = depth
            op.max_queued = max_queued
            op.sample_every = sample_every if owner.kernel.kind != SL else 0
            op.M = m
            if i and isinstance(operators[i - 1][2], ShedKernel):
                shedding = operators[i - 1][2]
                shedding.attach(&self.rt.ingress, min(m, max(workers, 1)), workers + 1)
                if shedding.context.control.mode == SHED_LIVE:
                    op.shed = &shedding.context.control
                    op.shed.attribute = op.shed.attribute and op.kind == SL
                    self.rt.ingress.stamp = stamp
                    self.rt.ingress.single_every = SINGLE_EVERY
                    if op.kind != SL and op.sample_every == 0:
                        op.sample_every = SAMPLE_EVERY
            for b in range(owner.kernel.output.ncols):
                if owner.kernel.output.type[b] == PT_VIEW or owner.kernel.output.type[b] == PT_LIST:
                    op.has_views = 1
            if i == 0:
                op.ingress = &self.rt.ingress
            if i == n - 1:
                op.egress = &self.rt.egress
            else:
                op.next = &self.rt.operators[i + 1]
            stats_init(&self.rt.stats[i], m)
            if reorder_init(&op.rb, slots, 1, REORDER_SCHEMES[reorder],
                            mutex_new() if REORDER_SCHEMES[reorder] == LOCK_BASED else NULL) != 0:
                raise MemoryError
            # Nor is the reorder buffer of an operator with one worker at a time: the scheduler's lock hands it over. Idle workers
            # borrow the last one's flag (publish_wanted); whoever feeds a partitioned one, or any in a run with lanes,
            # releases it (enqueue).
            op.rb.alone = alone or (m == 1 and op.kind != PS and i < n - 1 and not lanes)
            if op.kind == SL:
                if mpmc_init(&op.worklist, slots, 1) != 0:
                    raise MemoryError
                op.worklist.alone = alone
            elif op.kind == SF:
                if spsc_init(&op.input, slots, 0) != 0:
                    raise MemoryError
                if op.kernel.bucket_new != NULL:
                    op.state = op.kernel.bucket_new(op.kernel, 0)
                    if op.state == NULL:
                        raise MemoryError
            else:
                b = p if chunk_rows is None else <int32_t> min(p, 4 * chunk_rows)   # 4: operators before may have made more rows
                if pq_init(&op.pq, PARTITION_SCHEMES[partitioning], p, slots, b) != 0:
                    raise MemoryError
                op.pq.master.alone = alone
                op.partitioner.keys = &keys.spec
                op.partitioner.layout = owner.kernel.input
                op.partitioner.p = p
                op.partitioner.keeps_hash = op.kernel.uses_hash
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
        _, array_capsule = batch.__arrow_c_array__()
        array = <ArrowArray*> PyCapsule_GetPointer(array_capsule, b"arrow_array")
        b = batch_new(self.layout_owner.layout.ncols, DATA)
        if b == NULL:
            raise MemoryError
        memcpy(&b.array, array, sizeof(ArrowArray))
        array.release = NULL
        if batch_converts(b, &self.layout_owner.layout, self.used):
            with nogil:
                rc = batch_import(b, &self.layout_owner.layout, self.used, self.formats.formats)
        else:                                                 # to hand the GIL to a worker and back takes longer
            rc = batch_import(b, &self.layout_owner.layout, self.used, self.formats.formats)
        if rc == -1:
            batch_free(b)
            raise MemoryError
        if rc < 0:
            batch_free(b)
            raise TypeError("a layout that the core does not read (a list with null elements?)", -2 - rc)
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
        self.peak = max(self.peak, add_relaxed(&self.rt.pool.bytes, b.bytes) + b.bytes)
        self.note_retirable()
        add_relaxed(&self.rt.ingress.queued_tuples, b.rows)   # before the push: a worker may see the batch first
        if not spsc_try_push(&self.rt.ingress.arriving, as_int(b)):
            raise BufferError("too many batches wait at the ingress")
        self.wake_parked()
        return 0

    cdef void note_retirable(self) noexcept:
        cdef int64_t serial = <int64_t> 1 << 62
        if self.pinned_head != NULL and self.pinned_head.next != NULL:
            serial = self.pinned_head.next.first_serial
        store_relaxed(&self.rt.ingress.retires_at, serial)    # a hint, with load_relaxed in ingress_wakes_feeder

    cdef void wake_parked(self) noexcept:
        """Wake every parked worker, if there is one, after a change that it may be waiting for. A release of the GIL where there is
        none would make the caller wait for it as long as a Python function has it."""
        # A full barrier between the change and the look: totally ordered with add_seq of `parked` in worker_loop.
        if add_seq(&self.rt.run.parked, 0) > 0:
            with nogil:
                self.rt.run.work.notify_all()

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
        cdef bint released = False
        while self.pinned_head != NULL and self.pinned_head.next != NULL and self.pinned_head.next.first_serial <= emitted:
            # Something of the following batch has left the egress, so the ingress has moved on from this one.
            b = self.pinned_head
            self.pinned_head = b.next
            self.pinned -= 1
            add_relaxed(&self.rt.pool.bytes, -b.bytes)
            b.bytes = 0
            batch_free(b)
            released = True
        if released:
            self.note_retirable()
            self.wake_parked()                                # below the cap again, perhaps
        return self.pinned

    @property
    def waiting_batches(self):
        """Batches that no worker has begun."""
        return spsc_size_approx(&self.rt.ingress.arriving)

    def may_feed(self):
        """Whether what is in flight leaves room for another batch. If not, the reading thread is told when it does, or when input can be
        released. The feeding thread."""
        if ingress_may_feed(&self.rt.ingress):
            return True
        # Totally ordered with the workers' load_seq: either they see it, or this thread sees what they freed.
        store_seq(&self.rt.ingress.feeder_waits, 1)
        return ingress_may_feed(&self.rt.ingress)

    # ------------------------------------------------------------ reading

    def take(self):
        """(RecordBatch, serials as an int64 array or None), or None: no finished output batch is there (those that are have rows)."""
        cdef int64_t[::1] into
        cdef Output* o = <Output*> as_pointer(spsc_try_take(&self.rt.egress.ready))
        if o == NULL:
            return None
        if o.pool != NULL:
            add_relaxed(&o.pool.bytes, -o.bytes)              # the reader's from now on; seen by who is woken below
            o.pool = NULL
        self.wake_parked()                                    # room again: a parked release may go on
        self.emitted_through = o.emitted_through
        self.commit_point = (o.point_serial, o.point_index)
        serials = None
        if o.serials != NULL:
            serials = np.empty(o.rows, dtype=np.int64)
            into = serials
            memcpy(&into[0], o.serials, <size_t> o.rows * 8)
        return output_export(o, self.out_schema), serials

    def want(self, int64_t rows_taken):
        """Ask for a partial output batch: with the next rows, or at once where more than `rows_taken` were written already."""
        store_seq(&self.rt.egress.wanted, 1)                  # seen by the next delivery, or by an idle worker
        if load_seq(&self.rt.egress.rows_out) > rows_taken:
            with nogil:
                self.rt.run.work.notify_one()

    def wait(self, double seconds, bint feeding=False):
        """Wait (without the GIL) until output is ready, the run ends, or the time is over. Returns whether something is there.

        feeding: the caller feeds too, so also until few batches wait at the ingress, or, where there is no room for more, until there is
        or input can be released. workers="auto": also until hire() is wanted.
        """
        cdef int64_t seen
        cdef bint full
        cdef int64_t ns = <int64_t> (seconds * 1e9)
        cdef int64_t turn = load_relaxed(&self.rt.run.reader_turn) | 1   # written by this thread only
        with nogil:
            store_relaxed(&self.rt.run.reader_turn, turn + 1)            # a hint, with load_relaxed in let_reader_pass
            seen = self.rt.run.reader.prepare()
            notice_stall(&self.rt)
            full = feeding and not ingress_may_feed(&self.rt.ingress)
            if full:
                # Totally ordered with the workers' load_seq: either they see it, or this thread sees what they freed.
                store_seq(&self.rt.ingress.feeder_waits, 1)
                full = not ingress_may_feed(&self.rt.ingress)
            if (spsc_size_approx(&self.rt.egress.ready) == 0 and not finished(&self.rt)
                    and load_acquire(&self.rt.active) <= self.hired
                    and not (feeding and not full and spsc_size_approx(&self.rt.ingress.arriving) < INGRESS_LOW)
                    and not (full and load_acquire(&self.rt.ingress.emitted_serial) >= load_relaxed(&self.rt.ingress.retires_at))):
                if (not self.rt.run.reader.wait(seen, ns) and self.rt.grace_ns
                        and (spsc_size_approx(&self.rt.egress.ready) > 0 or finished(&self.rt)
                             or (feeding and not full and spsc_size_approx(&self.rt.ingress.arriving) < INGRESS_LOW))
                        and not self.rt.run.reader.wait(seen, self.rt.grace_ns)):
                    add_relaxed(&self.rt.missed, 1)           # statistic; as in note_missed
            store_relaxed(&self.rt.run.reader_turn, turn + 2)            # as above
        return spsc_size_approx(&self.rt.egress.ready) > 0

    @property
    def ended(self):
        """True when the end of the stream or a failure was delivered, or the run was stopped."""
        return finished(&self.rt)

    @property
    def stopped(self):
        return load_acquire(&self.rt.run.stop) == CANCELLED

    @property
    def out_of_memory(self):
        return load_relaxed(&self.rt.run.no_memory) != 0 or self.rt.egress.no_memory != 0

    # ------------------------------------------------------------ working

    def start_clock(self):
        """Time zero of an open-loop schedule."""
        cdef ShedKernel shedding
        self.rt.ingress.schedule_start = now_ns()
        for owner in self.owners:
            if isinstance(owner, ShedKernel):
                shedding = owner
                shedding.context.control.started_ns = self.rt.ingress.schedule_start

    def hire(self):
        """Numbers of the workers whose threads should be started now: all of them at first, or as the controller wants them."""
        first = self.hired
        self.hired = max(first, min(load_acquire(&self.rt.active), self.nworkers))   # pairs with store_release in set_active, keep_active
        return range(first, self.hired)

    def keep_active(self, int workers):
        """Let only the first so many workers work, of a fixed number. Before the first of them is hired."""
        if self.rt.adaptive or self.hired or not 1 <= workers <= self.nworkers:
            raise ValueError(f"{workers} of {self.nworkers} workers: a fixed number, before the start")
        store_release(&self.rt.active, workers)               # published with the threads

    @property
    def active(self):
        """Workers that should be active now. Any thread."""
        return load_relaxed(&self.rt.active)

    def worker(self, int i):
        """Body of worker thread i."""
        with nogil:
            worker_loop(&self.rt, &self.workers[i], False)

    def work(self):
        """workers = 0: work on the caller's thread until output is ready, input is needed, or the run ends."""
        with nogil:
            worker_loop(&self.rt, &self.main, True)
        self.raise_raised()

    cdef int raise_raised(self) except -1:
        """Raise what a signal handler raised meanwhile."""
        cdef object raised
        if self.main.raised == NULL:
            return 0
        raised = <object> <PyObject*> self.main.raised
        Py_DECREF(raised)
        self.main.raised = NULL
        raise raised

    def node(self):
        """The Runtime, for _testing_run.pyx: valid while this object lives, its queues until close()."""
        return PyCapsule_New(&self.rt, b"ordstream.Runtime", NULL)

    def leave(self):
        """The run has ended: who still works for it, as in a flush while another operator failed, should stop. Any thread."""
        if load_acquire(&self.rt.run.stop) == 0:              # pairs with the stores of `stop`
            store_release(&self.rt.run.stop, LEFT)            # pairs with load_acquire in finished()

    def cancel(self):
        """Stop as soon as every worker has looked at the flag: after its chunk, or a few thousand keys of a flush. Any thread."""
        store_release(&self.rt.run.stop, CANCELLED)           # pairs with load_acquire in finished()
        with nogil:
            self.rt.run.work.notify_all()
            self.rt.gate.notify_all()
            self.rt.run.reader.notify_all()

    def progress(self):
        """(tuples pushed, tuples issued to the first operator, serial emitted through, rows out). Any thread."""
        return (load_relaxed(&self.rt.ingress.queued_tuples), load_relaxed(&self.rt.ingress.issued_serial),
                load_acquire(&self.rt.ingress.emitted_serial),  # pairs with the egress: rows_out then has its outputs
                load_relaxed(&self.rt.egress.rows_out))

    # ------------------------------------------------------------ results

    def failure(self):
        """None, or (operator index, serial, code, message, exception or None). Index -1: the source; -2: no memory for a batch; -3: a row
        of the output that no batch can hold."""
        cdef Failure* f = self.rt.egress.failure
        if f == NULL:
            return None
        exc = None
        if f.exc != NULL:
            exc = <object> <PyObject*> f.exc
        message = f.message.decode("utf-8", "replace")
        if self.rt.egress.failed_operator == -3:
            message = f"column {self.out_schema.names[f.slot]!r} has {message}"
        return self.rt.egress.failed_operator, self.rt.egress.failed_serial, f.code, message, exc

    def last_commit_point(self):
        """The order tag of all that was written, (serial, index), when the run has ended; None where some of it can't be taken."""
        cdef int64_t serial
        cdef int64_t index
        if self.rt.egress.current != NULL and self.rt.egress.current.rows:
            return None
        egress_commit_point(&self.rt.egress, &serial, &index)
        return serial, index

    def first_skips(self):
        """(operator, serial, whether it is a step of the final flush, FailureCode, text) of the first row that each operator skipped."""
        found = []
        for i in range(self.rt.n):
            first = skip_first(self.rt.operators[i].kernel)
            if first is not None:
                found.append((self.names[i], *first))
        return found

    def failing_row(self, schema):
        """The failing row as a RecordBatch of `schema` in core types (the operator's input; the output for a row that is too wide for a
        batch, its longest value null), or None."""
        cdef Chunk* c = self.rt.egress.failed
        cdef KernelOwner owner
        cdef const Layout* layout = &self.out_layout.layout
        cdef Output* o
        if c == NULL or c.n != 1 or (self.rt.egress.failed_operator < 0 and self.rt.egress.failed_operator != -3):
            return None
        if self.rt.egress.failed_operator >= 0:
            owner = self.owners[self.rt.egress.failed_operator]
            layout = owner.kernel.input
        o = output_new(layout, 4, False)
        if o == NULL or output_append(o, c, 0, 1) < 0:
            raise MemoryError
        if o.rows == 0:                                       # more than 2 GiB
            output_free(o)
            return None
        return output_export(o, schema)

    def steps(self):
        """Per operator: None, or (first serial, ends as an int64 array, bytes) of the steps of its final flush (steps.pxd). Complete
        for every operator whose flushed rows the reader has taken."""
        cdef StepLog* log
        found = []
        for i in range(self.rt.n):
            log = &self.rt.operators[i].steps
            if load_acquire(&log.published) == 0 or log.n == 0:   # pairs with store_release in complete_punctuation
                found.append(None)
                continue
            ends = np.frombuffer((<char*> log.ends)[:log.n * 8], dtype=np.int64)
            found.append((log.first_serial, ends, log.bytes[:log.size]))
        return found

    def samples(self):
        """Latency markers: list of (serial, processing ns, end-to-end ns, time at the egress by now_ns), in order."""
        return [(self.rt.egress.samples[i].serial, self.rt.egress.samples[i].processing_ns, self.rt.egress.samples[i].end_to_end_ns,
                 self.rt.egress.samples[i].emitted_ns)
                for i in range(self.rt.egress.nsamples)]

    def statistics(self):
        """Figures of the run as a dict (ordstream/report.py shapes them)."""
        cdef Operator* op
        cdef OperatorStats* o
        cdef Elastic* e = &self.rt.elastic
        elastic = None
        if self.rt.adaptive:
            elastic = {"least": e.least, "mean": e.worker_time / (e.seen - e.began) if e.seen > e.began else float(e.target),
                       "most": e.largest, "last": e.target, "changes": e.changes}
        operators = []
        stats_cumulate(self.rt.stats, self.rt.n)
        for i in range(self.rt.n):
            op = &self.rt.operators[i]
            o = &self.rt.stats[i]
            entry = {
                "name": self.names[i], "kind": self.kinds[i], "tuples_in": o.tuples_in, "tuples_out": o.tuples_out,
                "chunks": o.chunks, "slices": o.slices, "worker_ns": o.worker_ns, "max_waited": o.max_waited,
                "reorder_height": load_relaxed(&op.reorder_height), "skipped": load_relaxed(&op.kernel.skipped),
                "first_skipped": skip_first(op.kernel),
                "buckets": op.pq.p if op.kind == PS else 1 if op.keys != NULL else None,
                "estimated_cost_ns": o.c, "estimated_selectivity": o.s,
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
            "operators": operators, "elastic": elastic, "decisions": self.rt.scheduler.decisions, "aged": self.rt.scheduler.aged,
            "throttled": self.rt.ingress.throttle_count, "parks": load_relaxed(&self.rt.parks),
            "missed_wakeups": load_relaxed(&self.rt.missed),
            "chunk_rows": load_relaxed(&self.rt.ingress.target_rows), "time_punctuations": self.rt.egress.markers_time,
            "snapshot_markers": self.rt.egress.markers_snapshot, "tuples": load_relaxed(&self.rt.ingress.issued_serial),
            "rows_out": load_relaxed(&self.rt.egress.rows_out), "emitted_serial": load_relaxed(&self.rt.ingress.emitted_serial),
            "chunks_issued": load_relaxed(&self.rt.ingress.issued_chunks), "bytes": load_relaxed(&self.rt.pool.bytes),
            "peak_bytes": max(self.peak, load_relaxed(&self.rt.egress.peak)),
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
        add_relaxed(missed_of_closed_runs(), load_relaxed(&self.rt.missed))   # statistic
        if self.rt.operators != NULL:
            for i in range(self.rt.n):
                drain(&self.rt.operators[i], &self.main)
        discard(&self.main, self.rt.egress.dropped)
        self.rt.egress.dropped = NULL
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
                    mutex_delete(op.rb.mutex)
                reorder_free(&op.rb)
                steps_free(&op.steps)
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
        free(self.rt.weights)
        free(self.rt.slice_start)
        self.rt.operators = NULL
        self.workers = NULL
        if self.rt.run.work != NULL:
            event_count_delete(self.rt.run.work)
        if self.rt.run.reader != NULL:
            event_count_delete(self.rt.run.reader)
        if self.rt.gate != NULL:
            event_count_delete(self.rt.gate)
        self.rt.gate = NULL
        self.rt.weights = NULL
        self.rt.slice_start = NULL
        self.rt.run.work = NULL
        self.rt.run.reader = NULL
        self.owners = []
        return live

    def __dealloc__(self):
        # A run that was never closed (an exception in __init__): close() is safe on a half-built object.
        if not self.closed:
            self.close()
