"""One run of a chain of kernels, as a Python object: what ordstream/node/node.py drives.

The feeding and reading thread is the caller's, and never waits with the GIL held.
"""
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
import numpy as np
from ordstream._core.flow.build cimport (
    build_ends, build_operators, build_shared, build_worker, free_operator, free_shared,
)
from ordstream._core.flow.computed_clock cimport computed_fill
from ordstream._core.flow.egress cimport egress_commit_point, egress_free
from ordstream._core.flow.figures cimport failing_row, first_skips, flush_steps, mark_steps, markers
from ordstream._core.flow.figures cimport run_figures
from ordstream._core.flow.exports cimport exported_batches, exports_free
from ordstream._core.flow.ingress cimport INGRESS_LOW, ingress_free, ingress_may_feed, mark_serials
from ordstream._core.flow.install cimport install_rows
from ordstream._core.flow.runtime cimport (
    Runtime, discard, drain, finished, missed_of_closed_runs, notice_stall, serve_reader, worker_loop,
)
from ordstream._core.flow.shedding cimport ShedControl
from ordstream._core.flow.steps cimport mark_steps_free
from ordstream._core.flow.signals cimport look_for_signals
from ordstream._core.ground.atomics cimport *
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.imported_batch cimport (
    Batch, BatchFormats, batch_converts, batch_drop, batch_free, batch_import, batch_new, fill_used,
)
from ordstream._core.ground.kept_batches cimport kept_emitted, kept_free, kept_pushed, kept_release
from ordstream._core.ground.lent_columns cimport kinds_init, lent_export
from ordstream._core.ground.output_batch cimport output_free
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.spsc cimport spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.ground.threads cimport now_ns

cdef extern from *:
    """
    #ifndef ORDSTREAM_DEBUG
    #define ORDSTREAM_DEBUG 0
    #endif
    """
    bint ORDSTREAM_DEBUG


cdef enum:
    CANCELLED = 1              # values of RunState.stop; running out of memory is the first, too
    LEFT = 2                   # nobody wants what is still being done: the run has ended already


cdef int64_t runs_open = 0        # debug counters (make debug): read by debug_counts
cdef int64_t chunks_leaked = 0
cdef int64_t bytes_leaked = 0


def debug_counts():
    """Live objects that must balance to zero when every stream is closed: {} in a release build."""
    if not ORDSTREAM_DEBUG:
        return {}
    return {"runs": runs_open, "chunks": chunks_leaked, "bytes": bytes_leaked}


cdef class Run:
    """One run of a chain of kernels. Not re-usable.

    Memory ownership: operators, stats, queues, pool, workers' C state, imported batches. Borrows kernels,
    key specs, bounds and the schedule from Python objects that it keeps alive. Thread safety: worker(i) once
    per worker thread; everything else from the one feeding and reading thread, except cancel() and
    progress(), which any thread may call.

    Parameters
    ----------
    operators : sequence of ordstream.node.core_options.CoreOperator
        The chain, at least one.
    source_layout, out_layout : LayoutOwner
    formats : BatchFormats
        Of the source's columns.
    used : sequence of bool
        Per source column: it is read, and does not pass unread (`options.passing`).
    out_schema : pyarrow.Schema
        Of output batches, in core types.
    options : ordstream.node.core_options.CoreOptions
    """
    cdef Runtime rt
    cdef Worker* workers
    cdef Worker main
    cdef readonly int nworkers
    cdef int hired
    cdef list operators        # CoreOperator: what the C structs borrow from
    cdef object options        # CoreOptions: so do they from its `arrivals`
    cdef list names
    cdef list kinds
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
    cdef readonly int64_t first_serial   # of the run's first tuple
    cdef readonly int64_t emitted_through
    cdef readonly tuple commit_point
    cdef list exports_waiting  # of markers that have not reached the reader yet

    def __cinit__(self):
        memset(<void*> &self.rt, 0, sizeof(Runtime))
        global runs_open
        memset(<void*> &self.main, 0, sizeof(Worker))
        self.closed = False
        self.commit_point = (0, -1)
        runs_open += 1

    def __init__(self, operators, LayoutOwner source_layout not None, BatchFormats formats not None, used,
                 LayoutOwner out_layout not None, out_schema, options):
        cdef int32_t i
        self.operators = list(operators)
        self.exports_waiting = []
        self.options = options
        self.names = [operator.name for operator in operators]
        self.kinds = [operator.kind for operator in operators]
        self.layout_owner = source_layout
        self.formats = formats
        self.out_schema = out_schema
        self.out_layout = out_layout
        self.nworkers = options.workers
        build_shared(&self.rt, self.operators, options, &source_layout.layout)
        self.workers = <Worker*> calloc(self.nworkers + 1, sizeof(Worker))
        self.used = <uint8_t*> calloc(source_layout.layout.ncols + 1, 1)
        if self.workers == NULL or self.used == NULL:
            raise MemoryError
        fill_used(self.used, used, options.passing)
        for i in range(self.nworkers):
            build_worker(&self.rt, &self.workers[i], i)
        build_worker(&self.rt, &self.main, self.nworkers)
        if self.nworkers == 0:
            self.main.look = look_for_signals
        build_ends(&self.rt, source_layout, out_layout, options)
        kinds_init(&self.rt.egress.kinds, out_schema, formats, source_layout, options.passing)
        build_operators(&self.rt, self.operators, options)
        self.pushed_rows = self.rt.ingress.base
        self.first_serial = self.pushed_rows + 1
        self.emitted_through = self.pushed_rows
        self.commit_point = (options.begin.emitted_through.serial, options.begin.emitted_through.index)

    def install(self, int i, batch):
        """Give rows of state to operator i. Before the start. Raises: as install_rows."""
        if self.hired or load_relaxed(&self.rt.ingress.issued_chunks):
            raise RuntimeError("state comes into a run before it starts")
        install_rows(&self.rt.operators[i], self.operators[i].kernel, &self.main, batch)

    # ------------------------------------------------------------ feeding

    def push(self, batch, int64_t arrived_ns=0):
        """Give a record batch (exactly the source's schema) to the ingress. arrived_ns: since when its rows
        wait, by now_ns; 0: they come now. Raises TypeError for an unsupported column layout."""
        cdef Batch* b = batch_new(self.layout_owner.layout.ncols + (self.options.clock is not None), DATA)
        cdef int rc
        if b == NULL:
            raise MemoryError
        try:
            batch._export_to_c(<size_t> &b.array)             # its schema is known
        except BaseException:
            batch_free(b)
            raise
        if batch_converts(b, &self.layout_owner.layout, self.used):
            with nogil:
                rc = batch_import(b, &self.layout_owner.layout, self.used, self.formats.formats)
        else:
            rc = batch_import(b, &self.layout_owner.layout, self.used, self.formats.formats)
        if rc < 0:
            batch_free(b)
            if rc == -1:
                raise MemoryError
            raise TypeError("a layout that the core does not read (a list with null elements?)", -2 - rc)
        if b.rows == 0:
            batch_free(b)
            return
        Py_INCREF(batch)
        b.source = <void*> <PyObject*> batch
        if self.options.clock is not None:
            computed_fill(self.options.clock, b)
        self.put(b, arrived_ns)

    def push_mark(self, int64_t time, int32_t maker):
        """Give the ingress a mark of a clock (CoreOperator.marks_of). Returns how many serials it has."""
        cdef Batch* b = self.control(TIME)
        b.rows = mark_serials()
        b.time = time
        b.maker = maker
        self.put(b)
        return b.rows

    cdef int put(self, Batch* b, int64_t arrived_ns=0) except -1:
        b.arrived_ns = arrived_ns if arrived_ns else now_ns()
        b.first_serial = self.pushed_rows + 1
        self.pushed_rows += b.rows
        kept_pushed(&self.rt.batches, b, self.pinned_tail)
        if self.pinned_tail == NULL:
            self.pinned_head = b
            self.rt.egress.lender = b                         # published with the push below
        else:
            self.pinned_tail.next = b
            store_release(&self.pinned_tail.following, as_int(b))   # pairs with load_acquire in the egress
        self.pinned_tail = b
        self.pinned += 1
        self.peak = max(self.peak, add_relaxed(&self.rt.pool.bytes, b.bytes) + b.bytes)
        self.note_retirable()
        add_relaxed(&self.rt.ingress.queued_tuples, b.rows)   # before the push: a worker may see it first
        if not spsc_try_push(&self.rt.ingress.arriving, as_int(b)):
            raise BufferError("too many batches wait at the ingress")
        self.wake_parked()
        return 0

    cdef void note_retirable(self) noexcept:
        cdef Batch* following = self.pinned_head.next if self.pinned_head != NULL else NULL
        cdef int64_t serial = following.first_serial if following != NULL else <int64_t> 1 << 62
        store_relaxed(&self.rt.ingress.retires_at, serial)  # a hint to ingress_wakes_feeder's load_relaxed

    cdef void wake_parked(self) noexcept:
        """Wake every parked worker after a change that it may be waiting for.

        The GIL is released only if a worker is parked: the caller would have to wait until a Python function
        gives it back.
        """
        # A full barrier between the change and the look: totally ordered with add_seq of `parked` in
        # worker_loop.
        if add_seq(&self.rt.run.parked, 0) > 0:
            with nogil:
                self.rt.run.work.notify_all()

    cdef Batch* control(self, int32_t kind) except NULL:
        cdef Batch* b = batch_new(self.layout_owner.layout.ncols, kind)
        if b == NULL:
            raise MemoryError
        return b

    def finish(self, bint suspend=False):
        """The end of the stream; suspend: of the run only. The stream goes on elsewhere, and nothing is
        flushed."""
        cdef Batch* b = self.control(SUSPEND if suspend else END_OF_STREAM)
        self.source_ended = True
        self.put(b)

    def fail_source(self, exception):
        """An error of the source, in order: what it gave before is processed and delivered first."""
        cdef Failure* f = failure_new(-1, FAIL_SOURCE, b"the source failed")
        if f == NULL:
            raise MemoryError
        b = self.control(FAILURE)
        Py_INCREF(exception)
        f.exc = <void*> <PyObject*> exception
        b.failure = f
        self.source_ended = True
        self.put(b)

    def retire(self):
        """Release input batches all of whose outputs have been emitted, and of which no output batch in the
        core has columns, nor a state rows; returns how many are still pinned."""
        cdef Batch* b
        cdef int64_t emitted = load_acquire(&self.rt.ingress.emitted_serial)   # pairs with store_release
        cdef int64_t pinned = self.pinned
        while (self.pinned_head != NULL and self.pinned_head.next != NULL
               and self.pinned_head.next.first_serial <= emitted
               and load_acquire(&self.pinned_head.lent) == 0):    # pairs with add_acq_rel in lent_columns
            # Something of the next batch has left the egress: the ingress is done with this one.
            b = self.pinned_head
            self.pinned_head = b.next
            self.pinned -= 1
            add_relaxed(&self.rt.pool.bytes, -b.bytes)
            kept_emitted(&self.rt.batches, b)
        kept_release(&self.rt.batches, emitted)
        if self.pinned < pinned:
            self.note_retirable()
            self.wake_parked()                                # below the cap again, perhaps
        return self.pinned

    @property
    def waiting_batches(self):
        return spsc_size_approx(&self.rt.ingress.arriving)    # that no worker has begun

    def may_feed(self):
        """Whether there is room for another input batch. If not, the reading thread is woken when there is,
        or when input can be released.

        Called by the feeding thread.
        """
        if ingress_may_feed(&self.rt.ingress):
            return True
        # Totally ordered with the workers' load_seq: either they see it, or this thread sees what they
        # freed.
        store_seq(&self.rt.ingress.feeder_waits, 1)
        return ingress_may_feed(&self.rt.ingress)

    # ------------------------------------------------------------ reading

    def take(self):
        """(RecordBatch, serials as an int64 array or None); None where no output batch is finished.
        (None, (number, serial, index)): a snapshot marker, behind the row with this tag (index -1: none)."""
        cdef int64_t[::1] into
        cdef Output* o = <Output*> as_pointer(spsc_try_take(&self.rt.egress.ready))
        if o == NULL:
            return None
        if o.pool != NULL:
            add_relaxed(&o.pool.bytes, -o.bytes)              # the reader's; seen by who is woken below
            o.pool = NULL
        self.wake_parked()                                    # room again: a parked release may go on
        self.emitted_through = o.emitted_through
        self.commit_point = (o.point_serial, o.point_index)
        if o.marker:
            number = o.marker, o.point_serial, o.point_index
            if o.point_index < 0 or o.point_serial < o.emitted_through:
                self.commit_point = (o.emitted_through, -1)
            output_free(o)
            return None, number
        serials = None
        if o.serials != NULL:
            serials = np.empty(o.rows, dtype=np.int64)
            into = serials
            memcpy(&into[0], o.serials, <size_t> o.rows * 8)
        return lent_export(o, self.out_schema), serials

    def request_snapshot(self):
        """Have a snapshot marker made where the ingress is. Returns the request's number. Any thread."""
        # release: a marker that sees the request comes behind all that was pushed before it
        cdef int64_t number = add_acq_rel(&self.rt.ingress.requested, 1) + 1
        self.wake_parked()
        return number

    def exported(self, int64_t number, schemas):
        """What belongs to the markers up to this one, all of whose outputs were taken, as exported_batches
        gives it. schemas: of the operators' rows in core types, by index. The reading thread."""
        there = self.exports_waiting + exported_batches(&self.rt.run.exports, schemas)
        self.wake_parked()                                    # below the cap again, perhaps
        self.exports_waiting = [one for one in there if one[0] > number]
        return [one for one in there if one[0] <= number]

    def want(self, int64_t rows_taken):
        """Ask for a partial output batch: with the next rows, or at once if more than `rows_taken` rows are
        written. The reading thread, where no batch is finished."""
        # seen by the next delivery, or by an idle worker; if by none, then all may be in long calls
        cdef bint again = exchange_seq(&self.rt.egress.wanted, 1) != 0 and self.nworkers > 0
        with nogil:
            if again:
                serve_reader(&self.rt, &self.main, rows_taken)
            elif load_seq(&self.rt.egress.rows_out) > rows_taken:   # totally ordered with `parked`'s add_seq
                self.rt.run.work.notify_one()

    def wait(self, double seconds, bint feeding=False):
        """Wait (without the GIL) until output is ready, the run ends, or the time is over. Returns whether
        something is there.

        feeding: the caller feeds too, so also until few batches wait at the ingress, or, where there is no
        room for more, until there is or input can be released. workers="auto": also until hire() is wanted.
        """
        cdef int64_t seen
        cdef bint full
        cdef int64_t ns = <int64_t> (seconds * 1e9)
        cdef int64_t turn = load_relaxed(&self.rt.run.reader_turn) | 1   # written by this thread only
        with nogil:
            # a hint, with load_relaxed in let_reader_pass
            store_relaxed(&self.rt.run.reader_turn, turn + 1)
            seen = self.rt.run.reader.prepare()
            notice_stall(&self.rt)
            full = feeding and not ingress_may_feed(&self.rt.ingress)
            if full:
                # Totally ordered with the workers' load_seq: either they see it, or this thread sees what
                # they freed.
                store_seq(&self.rt.ingress.feeder_waits, 1)
                full = not ingress_may_feed(&self.rt.ingress)
            if (spsc_size_approx(&self.rt.egress.ready) == 0 and not finished(&self.rt)
                    and load_acquire(&self.rt.active) <= self.hired
                    and not (feeding and not full
                             and spsc_size_approx(&self.rt.ingress.arriving) < INGRESS_LOW)
                    and not (full and (load_acquire(&self.rt.ingress.emitted_serial)  # the egress's release
                                       >= load_relaxed(&self.rt.ingress.retires_at)))):
                if (not self.rt.run.reader.wait(seen, ns) and self.rt.grace_ns
                        and (spsc_size_approx(&self.rt.egress.ready) > 0 or finished(&self.rt)
                             or (feeding and not full
                                 and spsc_size_approx(&self.rt.ingress.arriving) < INGRESS_LOW))
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
        return load_acquire(&self.rt.run.stop) == CANCELLED   # pairs with store_release in cancel

    @property
    def out_of_memory(self):
        return load_relaxed(&self.rt.run.no_memory) != 0 or self.rt.egress.no_memory != 0

    # ------------------------------------------------------------ working

    def start_clock(self):
        """Time zero of an open-loop schedule."""
        cdef int32_t i
        self.rt.ingress.schedule_start = now_ns()
        for i in range(self.rt.n):
            if self.rt.operators[i].kernel.shed != NULL:
                (<ShedControl*> self.rt.operators[i].kernel.shed).started_ns = self.rt.ingress.schedule_start

    def hire(self):
        """Numbers of the workers whose threads should be started now: all of them at first, or as the
        controller wants them."""
        first = self.hired
        # pairs with store_release in set_active, keep_active
        self.hired = max(first, min(load_acquire(&self.rt.active), self.nworkers))
        return range(first, self.hired)

    def keep_active(self, int workers):
        """Let only the first so many workers work, of a fixed number. Before one is hired."""
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
        """workers = 0: work on the caller's thread until output is ready, input is needed, or the run
        ends."""
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
        """The Runtime, for the laboratory's doors: valid while this object lives, queues until close()."""
        return PyCapsule_New(&self.rt, b"ordstream.Runtime", NULL)

    def leave(self):
        """The run has ended: workers that still do something for it (a flush) should stop. Any thread."""
        if load_acquire(&self.rt.run.stop) == 0:              # pairs with the stores of `stop`
            store_release(&self.rt.run.stop, LEFT)            # pairs with load_acquire in finished()

    def cancel(self):
        """Stop the run. A worker sees it after its chunk, or after a few thousand keys of a flush. Any
        thread."""
        store_release(&self.rt.run.stop, CANCELLED)           # pairs with load_acquire in finished()
        with nogil:
            self.rt.run.work.notify_all()
            self.rt.gate.notify_all()
            self.rt.run.reader.notify_all()

    def progress(self):
        """(tuples pushed, tuples issued to the first operator, serial emitted through, rows out). Any
        thread."""
        return (load_relaxed(&self.rt.ingress.queued_tuples), load_relaxed(&self.rt.ingress.issued_serial),
                # pairs with the egress: rows_out then has its outputs
                load_acquire(&self.rt.ingress.emitted_serial), load_relaxed(&self.rt.egress.rows_out))

    # ------------------------------------------------------------ results

    def failure(self):
        """None, or (operator index, serial, code, message, exception or None). Index -1: the source; -2: no
        memory for a batch; -3: a row of the output that no batch can hold."""
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
        """Order tag of everything written, after the run; None if some rows can't be taken any more."""
        cdef int64_t serial
        cdef int64_t index
        if self.rt.egress.current != NULL and self.rt.egress.current.rows:
            return None
        egress_commit_point(&self.rt.egress, &serial, &index)
        return serial, index

    def first_skips(self):
        """As figures.first_skips."""
        return first_skips(&self.rt, self.names)

    def failing_row(self, schema):
        """The failing row as a RecordBatch of `schema` in core types (the operator's input; the output, its
        longest value null, for a row that is too wide for a batch), or None."""
        return failing_row(&self.rt, self.operators, &self.out_layout.layout, schema)

    def steps(self):
        """As figures.flush_steps."""
        return flush_steps(&self.rt)

    def mark_steps(self):
        """As figures.mark_steps. The reading thread."""
        return mark_steps(&self.rt, self.names)

    def samples(self):
        """As figures.markers."""
        return markers(&self.rt)

    def statistics(self, bint live=False):
        """Figures of the run as a dict (ordstream/node/report.py shapes them). live: as run_figures."""
        return run_figures(&self.rt, self.names, self.kinds, self.peak, live)

    # ------------------------------------------------------------ the end

    def close(self):
        """Give all memory back. Workers must have ended. Returns chunks that were not returned (0 unless
        there is a leak)."""
        cdef int32_t i
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
        exports_free(&self.rt.run.exports)
        mark_steps_free(&self.rt.run.mark_steps)
        self.free_egress()
        self.free_batches()
        ingress_free(&self.rt.ingress)
        if self.rt.operators != NULL:
            for i in range(self.rt.n):
                free_operator(&self.rt.operators[i])
        if self.workers != NULL:
            for i in range(self.nworkers):
                worker_free(&self.workers[i])
        if self.main.pool != NULL:
            worker_free(&self.main)
        live = load_relaxed(&self.rt.pool.live)
        pool_free(&self.rt.pool)
        chunks_leaked += live
        bytes_leaked += load_relaxed(&self.rt.pool.bytes)
        free_shared(&self.rt)
        free(self.workers)
        free(self.used)
        self.workers = NULL
        self.used = NULL
        self.operators = []
        return live

    cdef void free_egress(self) noexcept:
        """What was never delivered, and the failure that was."""
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

    cdef void free_batches(self) noexcept:
        """The imported batches."""
        cdef Batch* batch
        while self.pinned_head != NULL:
            batch = self.pinned_head
            self.pinned_head = batch.next
            add_relaxed(&self.rt.pool.bytes, -batch.bytes)
            batch_drop(batch)
        self.pinned_tail = NULL
        kept_free(&self.rt.batches)

    def __dealloc__(self):
        if not self.closed:                                   # an exception in __init__; it is safe there
            self.close()
