"""Building and freeing a run (build.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from ordstream._core.flow.egress cimport egress_bound, egress_init
from ordstream._core.flow.elastic cimport elastic_init
from ordstream._core.flow.ingress cimport ingress_init
from ordstream._core.flow.operator cimport Operator
from ordstream._core.flow.reorder_buffer cimport LOCK_BASED, NON_BLOCKING, reorder_free, reorder_init
from ordstream._core.flow.runtime cimport Runtime, Seen, waits_of_new_runs
from ordstream._core.flow.call_cost cimport CallCost, call_cost_init
from ordstream._core.flow.scheduler cimport OperatorStats, chunks_for, scheduler_init, stats_init
from ordstream._core.flow.scheduler import HEURISTICS
from ordstream._core.flow.shedding cimport SHED_LIVE, ShedControl, shed_attach
from ordstream._core.flow.split cimport Partitioner
from ordstream._core.flow.state_bound cimport bound_free, bound_new
from ordstream._core.flow.steps cimport steps_free
from ordstream._core.flow.worklist.buckets cimport pq_free, pq_init, power_of_two
from ordstream._core.ground.atomics cimport store_relaxed
from ordstream._core.ground.chunk cimport (
    PT_LIST, PT_VIEW, Layout, LayoutOwner, Worker, pool_init, worker_init,
)
from ordstream._core.ground.kernel cimport PS, SF, SL, KernelOwner
from ordstream._core.ground.kept_batches cimport kept_init
from ordstream._core.ground.memory_reserve cimport reserve_fill
from ordstream._core.ground.mpmc cimport mpmc_free, mpmc_init
from ordstream._core.ground.spsc cimport spsc_free, spsc_init
from ordstream._core.ground.threads cimport event_count_delete, event_count_new, mutex_delete, mutex_new
from ordstream._core.state.keyed_state cimport KeySpecOwner

cdef enum:
    LEAST_IDLE = 8 << 20       # bytes of idle chunks that the pool may keep in any case
    LEAST_DEPTH = 4            # an empty operator admits three chunks
    SINGLE_EVERY = 16          # with a shed stage, one of so many chunks has one row: its cost is that row's
    ELASTIC_NS = 4_000_000     # workers="auto": shortest measured slot
    SAMPLE_EVERY = 16          # parts of a protected keyed operator between two that are timed row by row
    # times as many rows as `chunk_rows` that operators before may have made of a chunk
    GROWTH = 4

REORDER_SCHEMES = {"nonblocking": NON_BLOCKING, "lock": LOCK_BASED}
PARTITION_SCHEMES = {"hybrid": 0, "partitioned": 1, "shared": 2}


# ---------------------------------------------------------------- what all operators share

cdef int32_t most_columns(object operators, const Layout* source) except -1:
    """Columns that any chunk of the run may have."""
    cdef KernelOwner owner
    cdef int32_t most = source.ncols
    for operator in operators:
        owner = operator.kernel
        most = max(most, owner.kernel.input.ncols + owner.kernel.extra_cols,
                   owner.kernel.output.ncols + owner.kernel.extra_cols)
        if owner.kernel.state != NULL:
            most = max(most, owner.kernel.state.ncols)
    return most


cdef bint has_lanes(object operators) except -1:
    """Whether a kernel works on another lane than the first."""
    cdef KernelOwner owner
    for operator in operators:
        owner = operator.kernel
        if owner.kernel.reads > 1:
            return True
    return False


cdef int build_shared(Runtime* rt, object operators, object options, const Layout* source) except -1:
    """Pool, tables, event counts, scheduler and controller, in a Runtime that is all zeros.

    Ownership: the Runtime, until free_shared, also where this raises MemoryError.
    """
    cdef int32_t workers = options.workers
    cdef int64_t seed = options.seed
    reserve_fill()
    pool_init(&rt.pool, most_columns(operators, source) + 2,
              max(LEAST_IDLE, <int64_t> options.max_bytes // 2))
    rt.n = <int32_t> len(operators)
    rt.operators = <Operator*> calloc(rt.n, sizeof(Operator))
    rt.stats = <OperatorStats*> calloc(rt.n, sizeof(OperatorStats))
    rt.seen_each = (rt.n + 15) & ~<int64_t> 7                 # no two workers write one line
    rt.seen = <Seen*> calloc((workers + 1) * rt.seen_each, sizeof(Seen))
    rt.calls = <CallCost*> calloc(rt.n + 1, sizeof(CallCost))
    rt.weights = <double*> calloc(rt.n + 1, sizeof(double))
    rt.slice_start = <int64_t*> calloc(workers + 1, sizeof(int64_t))
    rt.run.work = event_count_new()
    rt.run.reader = event_count_new()
    rt.gate = event_count_new()
    if (rt.operators == NULL or rt.stats == NULL or rt.seen == NULL or rt.weights == NULL
            or rt.calls == NULL
            or rt.slice_start == NULL or rt.run.work == NULL or rt.run.reader == NULL or rt.gate == NULL):
        raise MemoryError
    rt.run.ingress = &rt.ingress
    rt.run.workers = workers if workers > 0 else 1
    rt.run.steps = options.steps
    rt.run.lanes = has_lanes(operators)
    rt.run.bytes = &rt.pool.bytes
    rt.run.max_bytes = options.max_bytes
    if options.max_state_bytes is None:                       # else states count what they have themselves
        kept_init(&rt.batches, options.max_bytes)
    rt.run.exports.pool = &rt.pool
    rt.run.exports.on = options.snapshots
    rt.spin = options.spin
    rt.park_ns = waits_of_new_runs().park_ns
    rt.longest_park_ns = waits_of_new_runs().longest_park_ns
    rt.gate_ns = waits_of_new_runs().gate_ns
    rt.grace_ns = waits_of_new_runs().grace_ns
    rt.adaptive = options.adaptive and workers > 1
    elastic_init(&rt.elastic, max(workers, 1), 1, ELASTIC_NS)
    rt.units = -1
    if options.shake:
        rt.shaken = <uint64_t> seed * <uint64_t> 0xD1342543DE82EF95 | 1
    store_relaxed(&rt.active, 1 if rt.adaptive else rt.run.workers)   # published with the threads
    rt.auto_rows = options.chunk_rows is None
    rt.chunk_ns = options.chunk_ns
    rt.min_rows = options.min_rows
    rt.max_rows = options.max_rows
    scheduler_init(&rt.scheduler, HEURISTICS[options.scheduler], options.slice_ns, options.window_ns,
                   options.capacity, seed)
    return 0


cdef int build_operators(Runtime* rt, object operators, object options) except -1:
    """All operators, and the cap on their state, where there is one. Raises as build_operator."""
    cdef int32_t i
    for i in range(rt.n):
        build_operator(rt, i, operators[i], options)
    if rt.auto_rows:
        store_relaxed(&rt.ingress.target_chunks,
                      chunks_for(rt.stats, rt.n, rt.run.workers, rt.ingress.max_chunks))
    if options.max_state_bytes is not None:
        rt.run.bound = bound_new(rt.operators, rt.n, options.max_state_bytes)
        if rt.run.bound == NULL:
            raise MemoryError
    return 0


cdef void free_shared(Runtime* rt) noexcept:
    """What build_shared made, but for the pool. Thread safety: no worker is left. Safe on a half-built
    Runtime, and twice."""
    bound_free(rt.run.bound)
    rt.run.bound = NULL
    free(rt.operators)
    free(rt.stats)
    free(rt.seen)
    free(rt.calls)
    free(rt.weights)
    free(rt.slice_start)
    rt.operators = NULL
    rt.stats = NULL
    rt.seen = NULL
    rt.calls = NULL
    rt.weights = NULL
    rt.slice_start = NULL
    if rt.run.work != NULL:
        event_count_delete(rt.run.work)
    if rt.run.reader != NULL:
        event_count_delete(rt.run.reader)
    if rt.gate != NULL:
        event_count_delete(rt.gate)
    rt.run.work = NULL
    rt.run.reader = NULL
    rt.gate = NULL


cdef int build_worker(Runtime* rt, Worker* w, int32_t id) except -1:
    """One worker's memory of chunks and its place in the run."""
    worker_init(w, &rt.pool, id)
    w.node = rt
    w.stop = &rt.run.stop
    w.look = waits_of_new_runs().look
    return 0


cdef int build_ends(Runtime* rt, LayoutOwner source, LayoutOwner output, object options) except -1:
    """Ingress and egress. `options.arrivals` is borrowed: the caller keeps it alive."""
    cdef int64_t seed = options.seed
    cdef int64_t[::1] schedule
    if (ingress_init(&rt.ingress, source.layout.ncols) != 0
            or egress_init(&rt.egress, &output.layout, &rt.ingress, &rt.pool, options.tags) != 0):
        raise MemoryError
    rt.egress.max_ready = options.max_ready
    rt.egress.shows_markers = options.snapshots
    rt.egress.tells_marks_of = options.tells_marks_of
    begin_at(rt, options)
    egress_bound(&rt.egress, options.max_bytes)
    rt.ingress.reader = rt.run.reader
    if options.shake:
        rt.ingress.shake = <uint64_t> seed * <uint64_t> 0x9E3779B97F4A7C15 | 1
    rt.ingress.max_chunks = options.max_chunks
    rt.ingress.max_bytes = options.max_bytes
    rt.ingress.bytes = &rt.pool.bytes
    rt.ingress.marker_every = options.marker_every
    rt.ingress.snapshot_every = options.snapshot_every
    rt.ingress.snapshot_next = rt.ingress.base + <int64_t> options.snapshot_every
    if options.time_column is not None:
        rt.ingress.time_column = options.time_column
        rt.ingress.time_type = (source.layout.type[rt.ingress.time_column] if options.clock is None
                                else options.clock.time_type)
        rt.ingress.time_every = options.time_every
        rt.ingress.time_rows = options.time_rows
    if options.arrivals is not None:
        schedule = options.arrivals
        if schedule.shape[0]:
            rt.ingress.schedule = &schedule[0]
    store_relaxed(&rt.ingress.target_rows, rt.min_rows if rt.auto_rows else <int64_t> options.chunk_rows)
    return 0


cdef int begin_at(Runtime* rt, object options) except -1:
    """Serials, tags and clock of a run that goes on where another one stood."""
    cdef int64_t base = options.begin.serial
    rt.ingress.exports = &rt.run.exports
    rt.ingress.base = base
    rt.ingress.marker_next = base + 1
    store_relaxed(&rt.ingress.issued_serial, base)            # published with the threads, as all here
    store_relaxed(&rt.ingress.emitted_serial, base)
    store_relaxed(&rt.ingress.queued_tuples, base)
    rt.egress.row_serial = options.begin.emitted_through.serial
    rt.egress.row_index = options.begin.emitted_through.index
    if options.begin.latest_time is not None and options.time_column is not None:
        rt.ingress.time_started = 1
        rt.ingress.time_last = options.begin.latest_time
        rt.ingress.time_now = <int64_t> (options.begin.latest_time // options.time_every)
    return 0


# ---------------------------------------------------------------- operators

cdef bint has_views(const Layout* layout) noexcept:
    cdef int32_t j
    for j in range(layout.ncols):
        if layout.type[j] == PT_VIEW or layout.type[j] == PT_LIST:
            return True
    return False


cdef int build_operator(Runtime* rt, int32_t i, object operator, object options) except -1:
    """Operator i of the chain, whose predecessors are built.

    operator : ordstream.node.core_options.CoreOperator. Ownership: what it names is borrowed; the caller
    keeps it alive.
    """
    cdef Operator* op = &rt.operators[i]
    cdef KernelOwner owner = operator.kernel
    cdef KeySpecOwner keys
    op.index = i
    op.kernel = &owner.kernel
    op.reads = max(owner.kernel.reads, <uint64_t> 1)
    op.lanes = rt.run.lanes
    op.kernel.stop = &rt.run.stop
    op.kernel.reader_turn = &rt.run.reader_turn
    op.kernel.batches = &rt.batches
    if op.kernel.shows_kept:
        rt.batches.issued = &rt.ingress.issued_serial
    op.kind = op.kernel.kind
    if op.kind == PS:
        keys = operator.keys
        op.keys = &keys.spec
        if operator.buckets == 1:
            op.kind = SF                                      # one bucket: nothing to partition
    op.run = &rt.run
    op.M = operator.parallelism
    op.depth = options.depth
    op.max_queued = options.max_queued
    op.sample_every = options.sample_every if op.kernel.kind != SL else 0
    op.has_views = has_views(op.kernel.output)
    op.marks_of = operator.marks_of
    if i == 0:
        op.ingress = &rt.ingress
        # One worker at a time in the first operator: nobody to share the ingress with.
        rt.ingress.alone = options.workers <= 1 or op.M == 1
    if i == rt.n - 1:
        op.egress = &rt.egress
    else:
        op.next = &rt.operators[i + 1]
    stats_init(&rt.stats[i], op.M, rt.run.workers, operator.buckets if op.kind == PS else 1)
    if operator.calls:
        call_cost_init(&rt.calls[i], operator.buckets if op.kind == PS else 1)
        rt.stats[i].call = &rt.calls[i]
    if i and rt.operators[i - 1].kernel.shed != NULL:
        protect(rt, op, <ShedControl*> rt.operators[i - 1].kernel.shed, options)
    build_queues(rt, op, operator, options)
    return 0


cdef int protect(Runtime* rt, Operator* op, ShedControl* shed, object options) except -1:
    """Connect an operator with the shed stage in front of it, which wants to know its costs where it decides
    by them."""
    cdef int32_t workers = options.workers
    shed_attach(shed, &rt.ingress, min(op.M, max(workers, 1)), workers + 1)
    if shed.mode != SHED_LIVE:
        return 0
    op.shed = shed
    shed.attribute = shed.attribute and op.kind == SL
    rt.ingress.stamp = options.stamp
    rt.ingress.single_every = SINGLE_EVERY
    if op.kind != SL and op.sample_every == 0:
        op.sample_every = SAMPLE_EVERY
    return 0


cdef int build_queues(Runtime* rt, Operator* op, object operator, object options) except -1:
    """Reorder buffer, worklist and the states of an operator."""
    # nothing in the data path is shared: plain accesses will do
    cdef bint alone = options.workers <= 1
    cdef int64_t slots = power_of_two(max(op.depth, <int64_t> LEAST_DEPTH))
    cdef int32_t scheme = REORDER_SCHEMES[options.reorder]
    if reorder_init(&op.rb, slots, 1, scheme, mutex_new() if scheme == LOCK_BASED else NULL) != 0:
        raise MemoryError
    # An operator with one worker at a time shares its reorder buffer with nobody either: the scheduler's
    # lock hands it over. Three are excepted: idle workers, and the reader, borrow the last operator's flag
    # (publish_wanted), and that of one whose worker is in a long call (release_left); and whoever feeds a
    # partitioned one releases it (enqueue).
    # In a run with lanes whoever feeds an operator may release it (delivery.pyx, enter).
    op.rb.alone = (options.workers == 0 or (alone and op.egress == NULL)
                   or (op.M == 1 and op.kind != PS and op.egress == NULL and not op.lanes
                       and not op.kernel.unbounded))
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
        build_buckets(op, operator, options, slots, alone)
    return 0


cdef int build_buckets(Operator* op, object operator, object options, int64_t slots, bint alone) except -1:
    """Worklist, split and states of a partitioned operator."""
    cdef KeySpecOwner keys = operator.keys
    cdef int32_t p = operator.buckets
    cdef int32_t b
    cdef int64_t rows = p if options.chunk_rows is None else min(p, GROWTH * options.chunk_rows)
    if pq_init(&op.pq, PARTITION_SCHEMES[options.partitioning], p, slots, rows) != 0:
        raise MemoryError
    op.pq.master.alone = alone
    op.partitioner.keys = &keys.spec
    op.partitioner.layout = op.kernel.input
    op.partitioner.p = p
    op.partitioner.keeps_hash = op.kernel.uses_hash
    if operator.bounds is not None:
        split_by_range(&op.partitioner, keys.spec.column[0], operator.bounds)
    for b in range(p):
        op.pq.buckets[b].state = op.kernel.bucket_new(op.kernel, b)
        if op.pq.buckets[b].state == NULL:
            raise MemoryError
    return 0


cdef int split_by_range(Partitioner* split, int32_t column, object bounds) except -1:
    """Buckets are ranges of the key column. `bounds`, float64 or int64, are borrowed."""
    cdef int64_t[::1] ints
    cdef double[::1] floats
    split.by_range = 1
    split.nbounds = <int32_t> len(bounds)
    split.column = column
    if bounds.dtype.kind == "f":
        split.is_float = 1
        floats = bounds
        split.float_bounds = &floats[0] if split.nbounds else NULL
    else:
        ints = bounds
        split.int_bounds = &ints[0] if split.nbounds else NULL
    return 0


cdef void free_operator(Operator* op) noexcept:
    """Worklist, states, reorder buffer; the worklist is empty (drain). Safe on a half-built operator."""
    cdef int32_t b
    # whoever calls the kernel later must not look into this run
    if op.kernel != NULL:
        op.kernel.stop = NULL
        op.kernel.reader_turn = NULL
        op.kernel.batches = NULL
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
