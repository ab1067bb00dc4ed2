"""One node in virtual time as a Python object: memory, settings and figures. sim_worker.pyx runs it."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.kernel cimport PS, SF, SL
from ordstream._core.flow.scheduler cimport OperatorStats, scheduler_init, stats_cumulate, stats_init
from ordstream._core.flow.scheduler import HEURISTICS
from ordstream._core.lab.sim_machine cimport line_init, push
from ordstream._core.lab.sim_node cimport *
from ordstream._core.lab.sim_worker cimport sim_advance

import numpy as np

COSTS = (
    "transfer", "rmw", "byte", "scatter", "decide", "decide_each", "hold", "slice", "notify", "wake",
    "yields", "publish", "read_row",
    "slowdown",
)
KINDS = {"SL": SL, "PS": PS, "SF": SF}


cdef int64_t power_of_two(int64_t n) noexcept:
    cdef int64_t v = 2
    while v < n:
        v *= 2
    return v


cdef class NodeSimulation:
    """One node in virtual time. `ordstream.lab.simulation.node` describes and checks the arguments.

    Memory ownership: everything below `s`, freed with the object. Thread safety: one thread at a time;
    `advance` holds the GIL.
    """
    cdef SimNode s
    cdef list held

    def __cinit__(self):
        memset(<void*> &self.s, 0, sizeof(SimNode))
        self.held = []

    def __init__(self, operators, costs, *, int workers, int cores, str scheduler, int64_t tuples,
                 chunk_rows, double slice_ns, double window_ns, double capacity, int64_t depth,
                 int64_t max_chunks, int64_t max_queued, double chunk_ns, int64_t min_rows, int64_t max_rows,
                 int64_t queued, int64_t seed, int64_t sample_every, int64_t batch_rows, schedule):
        """operators: dicts of SimOperator's costs, `kind`, `p`, `M`, `route`; last the egress, kind None."""
        cdef SimNode* s = &self.s
        cdef SimOperator* op
        cdef int32_t i
        cdef int32_t b
        cdef int32_t most_p = 1
        cdef const int32_t[::1] route
        cdef const int64_t[::1] due_at
        cdef int64_t k
        s.n = len(operators) - 1
        if not 1 <= workers <= MOST_WORKERS or not 1 <= s.n <= MOST_OPERATORS:
            raise ValueError(f"1 to {MOST_WORKERS} workers and 1 to {MOST_OPERATORS} operators")
        s.workers = workers
        s.active = workers
        s.cores = cores
        s.cost = costs
        s.tuples = tuples
        s.auto_rows = chunk_rows is None
        s.rows = min_rows if chunk_rows is None else <int64_t> chunk_rows
        s.min_rows = min_rows
        s.max_rows = max_rows
        s.chunk_ns = chunk_ns
        s.depth = depth
        s.max_chunks = max_chunks
        s.max_queued = max_queued
        s.queued = queued
        s.sample_every = sample_every
        s.batch_rows = batch_rows
        s.most_samples = tuples // sample_every + 2
        s.samples = <double*> calloc(4 * s.most_samples, sizeof(double))
        s.stats = <OperatorStats*> calloc(s.n, sizeof(OperatorStats))
        s.ops = <SimOperator*> calloc(s.n + 1, sizeof(SimOperator))
        s.workers_at = <SimWorker*> calloc(workers, sizeof(SimWorker))
        s.heap = <int32_t*> calloc(workers, sizeof(int32_t))
        s.woken = <int32_t*> calloc(workers, sizeof(int32_t))
        if (s.samples == NULL or s.stats == NULL or s.ops == NULL or s.workers_at == NULL
                or s.heap == NULL or s.woken == NULL):
            raise MemoryError
        line_init(&s.lock_line)
        line_init(&s.in_flag)
        line_init(&s.in_state)
        scheduler_init(&s.scheduler, HEURISTICS[scheduler], slice_ns, window_ns, capacity, seed)
        if schedule is not None:
            due_at = schedule
            self.held.append(schedule)
            s.schedule = &due_at[0]
        for i in range(s.n + 1):
            op = &s.ops[i]
            given = operators[i]
            for name in ("work", "per_tuple", "per_chunk", "per_empty", "per_part", "split_chunk",
                         "split_tuple", "split_part", "enter_chunk", "enter_part", "selectivity",
                         "row_bytes", "state_lines"):
                set_cost(op, name, given[name])
            if i == s.n:
                break
            op.kind = KINDS[given["kind"]]
            op.p = given["p"]
            op.releaser = -1
            stats_init(&s.stats[i], given["M"], workers, given["p"] if given["kind"] == "PS" else 1)
            op.slot_mask = power_of_two(depth if depth > 4 else 4) - 1
            op.next = 1
            line_init(&op.head_line)
            line_init(&op.tail_line)
            line_init(&op.next_line)
            line_init(&op.flag_line)
            op.slots = <int64_t*> calloc(op.slot_mask + 1, sizeof(int64_t))
            op.slot_lines = <Line*> calloc(op.slot_mask // SLOTS_PER_LINE + 1, sizeof(Line))
            op.list_mask = op.slot_mask
            if op.kind == PS:
                most_p = max(most_p, op.p)
                route = given["route"]
                self.held.append(given["route"])
                op.route = &route[0]
                op.nroute = route.shape[0]
                k = depth * op.p if depth * op.p < MASTER_MAX else MASTER_MAX
                op.list_mask = power_of_two(4 * op.p if 4 * op.p > k else k) - 1
                op.handover = <int64_t*> calloc(op.p + 1, sizeof(int64_t))
                op.buckets = <SimBucket*> calloc(op.p, sizeof(SimBucket))
                if op.handover == NULL or op.buckets == NULL:
                    raise MemoryError
                for b in range(op.p):
                    line_init(&op.buckets[b].count_line)
                    op.buckets[b].holder = -1
                    op.buckets[b].ring = <int64_t*> calloc(op.slot_mask + 1, sizeof(int64_t))
                    if op.buckets[b].ring == NULL:
                        raise MemoryError
            op.list = <int64_t*> calloc(op.list_mask + 1, sizeof(int64_t))
            if op.slots == NULL or op.slot_lines == NULL or op.list == NULL:
                raise MemoryError
            for k in range(op.slot_mask // SLOTS_PER_LINE + 1):
                line_init(&op.slot_lines[k])
        s.nfree = max_chunks + INGRESS_RUN + 2
        s.chunks = <SimChunk*> calloc(s.nfree, sizeof(SimChunk))
        s.free_chunks = <int64_t*> calloc(s.nfree, sizeof(int64_t))
        s.fill = <int32_t*> calloc(most_p, sizeof(int32_t))
        if s.chunks == NULL or s.free_chunks == NULL or s.fill == NULL:
            raise MemoryError
        for k in range(s.nfree):
            s.free_chunks[k] = k
            s.chunks[k].parts = <int32_t*> calloc(2 * most_p, sizeof(int32_t))
            if s.chunks[k].parts == NULL:
                raise MemoryError
        for i in range(workers):
            s.workers_at[i].op = -1
            s.workers_at[i].phase = AT_LOCK
            push(s, i)

    def __dealloc__(self):
        cdef SimNode* s = &self.s
        cdef int32_t i
        cdef int64_t k
        if s.ops != NULL:
            for i in range(s.n):
                if s.ops[i].buckets != NULL:
                    for k in range(s.ops[i].p):
                        free(s.ops[i].buckets[k].ring)
                free(s.ops[i].buckets)
                free(s.ops[i].handover)
                free(s.ops[i].slots)
                free(s.ops[i].slot_lines)
                free(s.ops[i].list)
        if s.chunks != NULL:
            for k in range(s.max_chunks + INGRESS_RUN + 2):
                free(s.chunks[k].parts)
        free(s.chunks)
        free(s.free_chunks)
        free(s.fill)
        free(s.ops)
        free(s.stats)
        free(s.workers_at)
        free(s.heap)
        free(s.woken)
        free(s.samples)

    def advance(self, double until):
        """Run the events up to virtual time `until` (ns). True: tuples are left.

        Raises RuntimeError when tuples are left and no worker would ever run again.
        """
        cdef int rc = sim_advance(&self.s, until)
        if rc < 0:
            raise RuntimeError(f"simulated workers all wait with {self.s.tuples - self.s.emitted} tuples "
                               f"left: {self.figures()}")
        return rc == 1

    def set_active(self, int32_t workers):
        """From now on the first so many workers work; the others go aside when their slice is over."""
        cdef SimNode* s = &self.s
        cdef SimWorker* me
        cdef int32_t k
        if not 1 <= workers <= s.workers:
            raise ValueError(f"active workers must be 1 to {s.workers}, got {workers}")
        s.active = workers
        for k in range(s.workers):
            me = &s.workers_at[k]
            if (k < workers and me.parkedness == 2) or (k >= workers and me.parkedness == 1):
                if me.parkedness == 1:
                    s.parked -= 1
                    me.parkedness = 2
                    continue
                me.parkedness = 0
                me.idle = 0
                me.now = s.now + s.cost.wake
                me.phase = AT_LOCK
                push(s, k)

    def samples(self):
        """(n, 4), per sampled chunk: dispatched, arrived (open loop), delivered (ns), last source tuple."""
        found = np.empty((self.s.nsamples, 4))
        cdef double[:, ::1] into = found
        cdef int64_t k
        for k in range(self.s.nsamples):
            into[k, 0] = self.s.samples[4 * k]
            into[k, 1] = self.s.samples[4 * k + 1]
            into[k, 2] = self.s.samples[4 * k + 2]
            into[k, 3] = self.s.samples[4 * k + 3]
        return found

    def figures(self):
        """Totals so far; times in ns."""
        cdef SimNode* s = &self.s
        cdef SimOperator* op
        cdef int32_t i
        cdef int32_t b
        cdef double running = 0.0
        operators = []
        stats_cumulate(s.stats, s.n)
        for i in range(s.workers):
            if s.workers_at[i].op >= 0 and s.workers_at[i].slice_start < s.now:
                running += s.now - s.workers_at[i].slice_start
        for i in range(s.n):
            op = &s.ops[i]
            hottest = max([op.buckets[b].busy for b in range(op.p)]) if op.kind == PS else 0.0
            operators.append({
                "tuples_in": s.stats[i].tuples_in, "tuples_out": s.stats[i].tuples_out,
                "chunks": s.stats[i].chunks, "worker_ns": s.stats[i].worker_ns, "slices": s.stats[i].slices,
                "cost": s.stats[i].c, "selectivity": s.stats[i].s, "path_ns": op.worked,
                "releasing_ns": op.releasing, "releases": op.releases, "delivered": op.delivered,
                "parked": op.parked, "height": op.height, "hottest_bucket_ns": hottest,
                "flag_line_ns": op.flag_line.busy, "next_line_ns": op.next_line.busy,
                "head_line_ns": op.head_line.busy, "waiting": op.tuples_enqueued - op.tuples_done,
                "w": s.stats[i].w,
            })
        return {
            "now": s.now, "issued": s.issued, "emitted": s.emitted, "rows_out": s.rows_out,
            "chunks": s.issued_chunks, "retired": s.retired_chunks, "chunk_rows": s.rows,
            "decisions": s.scheduler.decisions, "aged": s.scheduler.aged, "parks": s.parks,
            "events": s.events, "transfers": s.transfers, "transferred_ns": s.transferred,
            "lock_busy_ns": s.lock_busy, "lock_waited_ns": s.lock_waited, "ingress_busy_ns": s.in_busy,
            "disorder": s.disorder, "active": s.active, "running_ns": running,
            "busy_ns": [s.workers_at[i].busy for i in range(s.workers)],
            "work_ns": sum([s.workers_at[i].work for i in range(s.workers)]), "operators": operators,
        }


cdef int set_cost(SimOperator* op, str name, double value) except -1:
    if name == "work":
        op.work = value
    elif name == "per_tuple":
        op.per_tuple = value
    elif name == "per_chunk":
        op.per_chunk = value
    elif name == "per_empty":
        op.per_empty = value
    elif name == "per_part":
        op.per_part = value
    elif name == "split_chunk":
        op.split_chunk = value
    elif name == "split_tuple":
        op.split_tuple = value
    elif name == "split_part":
        op.split_part = value
    elif name == "enter_chunk":
        op.enter_chunk = value
    elif name == "enter_part":
        op.enter_part = value
    elif name == "selectivity":
        op.selectivity = value
    elif name == "row_bytes":
        op.row_bytes = value
    else:
        op.state_lines = value
    return 0
