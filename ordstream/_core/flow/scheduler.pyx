"""Scheduling heuristics of the ordered paper, section 6, with defined values for corner input.

a) Before the first measurement c is 1000 ns and s is 1. Selectivity is (out + 1) / (in + 1): it is never 0,
   not even where an operator has dropped everything so far, and so every priority is finite.
b) The number of tuples in a slice is clamped to [1, 2^20]. An operator whose tuples take longer than a slice
   still processes one.
c) Ties are broken round-robin. An operator that was schedulable but passed over more than max_wait times is
   chosen next (ageing). So with any heuristic, every operator that has input runs within max_wait + n
   choices.
d) A slice ends only between chunks, so it takes longer than s where a chunk does. CT therefore takes a
   running slice to be as long as the operator's slices were on average. CT's sums T do not begin a window at
   zero: they begin with the work that waits behind each operator, which it has done and those behind it
   have not. If they began at zero, an operator that the caps then hold back would look like the bottleneck
   for the rest of the window, and be preferred to the operator whose queue is full (docs/decisions.md).
   Where little work waits, compared to what a window processes, this is the paper's window.
e) The driver decides what is schedulable: an operator with input and a free place (w < M), or with a ready
   output and room downstream.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.flow.call_cost cimport (
    CallCost, call_cost_init, call_cost_known, call_cost_most, call_cost_note)

cdef enum:
    MAX_BUDGET = 1 << 20

cdef double PRIOR_COST = 1000.0       # ns
# Part of the workers that share a chunk on average, where many do: its parts end one after the other.
cdef double SPREAD = 0.5
cdef double DECAY_NS = 20e6           # after so much busy time, old measurements count half
cdef double LONG_CALL = 4e6           # ns; chunks of functions aim at a quarter
cdef double RARE = 1.0 / 64           # of the source's rows get there
cdef double UNKNOWN_ROWS = 256.0      # of a chunk in front of a function that was not called yet, at most


cdef void stats_init(OperatorStats* o, int32_t M, int32_t workers, int32_t buckets) noexcept nogil:
    """Values before the first measurement. buckets: of a partitioned operator, else 1."""
    o.schedulable = 0
    o.w = 0
    o.M = M
    o.chosen_last = 0
    o.I = 0
    o.c = PRIOR_COST
    o.s = 1.0
    o.cs = 1.0
    o.T = 0.0
    o.busy_ns = PRIOR_COST
    o.seen = 1.0
    o.k = PRIOR_COST
    o.kernel_ns = PRIOR_COST
    o.kernel_seen = 1.0
    o.call = NULL
    o.spread = max(1.0, min(workers, buckets) * SPREAD)
    o.sum_in = 1.0
    o.sum_out = 1.0
    o.waited = 0
    o.max_waited = 0
    o.tuples_in = 0
    o.tuples_out = 0
    o.chunks = 0
    o.slices = 0
    o.worker_ns = 0.0


cdef void stats_account(OperatorStats* o, double ns, int64_t tuples_in, int64_t tuples_out,
                        int64_t chunks, double kernel_ns, int64_t kernel_rows) noexcept nogil:
    """Add one slice to an operator's measurements; `kernel_ns`: what its kernel took for `kernel_rows` of
    the tuples. Caller holds the scheduler's lock. Cost: ~10 ns."""
    o.worker_ns += ns
    o.T += ns
    o.tuples_in += tuples_in
    o.tuples_out += tuples_out
    o.chunks += chunks
    o.slices += 1
    if tuples_in > 0:
        o.busy_ns += ns
        o.seen += tuples_in
        o.sum_in += tuples_in
        o.sum_out += tuples_out
        o.c = o.busy_ns / o.seen
        if o.c < 0.1:
            o.c = 0.1
        o.s = o.sum_out / o.sum_in
        if kernel_rows > 0:
            o.kernel_ns += kernel_ns
            o.kernel_seen += kernel_rows
            o.k = o.kernel_ns / o.kernel_seen
            if o.call != NULL:
                o.call.calls += 1.0
                call_cost_note(o.call, kernel_rows, kernel_ns)
        if o.busy_ns > DECAY_NS:
            o.busy_ns *= 0.5
            o.seen *= 0.5
            o.kernel_ns *= 0.5
            o.kernel_seen *= 0.5
            if o.call != NULL:
                o.call.calls *= 0.5
        if o.sum_in > 1e6:
            o.sum_in *= 0.5
            o.sum_out *= 0.5


cdef void stats_cumulate(OperatorStats* ops, int32_t n) noexcept nogil:
    """cs_i, the product of the selectivities up to and including operator i (6.1), kept in [1e-9, 1e9]."""
    cdef double cs = 1.0
    cdef int32_t i
    for i in range(n):
        cs *= ops[i].s
        if cs < 1e-9:
            cs = 1e-9
        elif cs > 1e9:
            cs = 1e9
        ops[i].cs = cs


cdef double rows_beside_calls(const OperatorStats* o, double chunk_ns) noexcept nogil:
    """How many rows a chunk should have, so that its calls take their part of `chunk_ns`, and three times
    what they take for no rows: of a long call that is a quarter.

    At most twice as many as were tried, and twice as many where calls of one size leave it open. Means tell
    of rows that take long now and then, and no chunk should have many of those; but also of calls that were
    held up. So they set the first part, and four times the whole is the most by their measure.
    """
    cdef CallCost* c = o.call
    cdef double most = 2.0 * c.parts * call_cost_most(c)
    cdef double work = chunk_ns * o.spread
    cdef double calls
    cdef double mean
    if not call_cost_known(c):
        return most
    calls = c.fixed * c.parts
    mean = max(o.k - c.fixed * c.calls / o.kernel_seen, o.k / 64)
    most = min(most, 4 * (work + 4 * calls) / o.k)
    return min(most, work / mean + 3 * calls / max(c.row, o.k / 64))


cdef int64_t chunk_rows_for(const OperatorStats* ops, int32_t n, double chunk_ns, int64_t min_rows,
                            int64_t max_rows) noexcept nogil:
    """How many rows take `chunk_ns` in the operator that has the most work per source tuple, or `spread`
    times that where workers share a chunk, or more where its calls cost much beside their rows; clamped to
    [min_rows, max_rows].

    Work is the kernel's alone. Were it all that a slice takes, then what a part costs, rows or not, would
    make chunks smaller, their parts smaller, and what a row costs larger: chunks would end at min_rows.
    """
    cdef double reach = 1.0
    cdef double least = <double> max_rows
    cdef double rows
    cdef int32_t i
    for i in range(n):
        rows = chunk_ns / max(1.0, ops[i].k * reach / ops[i].spread)
        if ops[i].call != NULL:
            # Nothing is known before the first call: one row, by what the operators in front let through,
            # and not too many should they let all through.
            if not ops[i].call.warm:
                rows = min(1.0 / reach, UNKNOWN_ROWS)
            else:
                rows = max(rows, rows_beside_calls(&ops[i], chunk_ns) / reach)
        if rows < least:
            least = rows
        reach *= ops[i].s
        if reach > 1e6:
            reach = 1e6
    return max(<int64_t> least, min_rows)


cdef int64_t chunks_for(const OperatorStats* ops, int32_t n, int32_t workers, int64_t most) noexcept nogil:
    """How many chunks may be in flight, at most `most`: where one worker's calls are long, two for each such
    operator and each worker.

    More would wait in front of it, cut to what it cost when they were: a size would be found, or followed,
    as late as they are many.
    """
    cdef double reach = 1.0
    cdef int64_t long_ones = 0
    cdef CallCost* c
    cdef int32_t i
    for i in range(n):
        c = ops[i].call
        if c != NULL and ops[i].M == 1:
            # not called yet: by the first rows that get there
            long_ones += ops[i].kernel_ns > LONG_CALL * c.calls if c.warm else reach > RARE
        reach *= ops[i].s
    if long_ones == 0:
        return most
    return min(most, 2 * (long_ones + max(workers, 1)))


cdef int choose_qst(Scheduler* s, OperatorStats* ops, int32_t n) noexcept nogil:
    """Queue-size throttling (6.1): the earliest operator whose output queue is below T_i = C cs_i / sum cs
    (eq. 1)."""
    cdef double total = 0.0
    cdef int32_t i
    cdef int32_t last = -1
    for i in range(n):
        total += ops[i].cs
    for i in range(n):
        if not ops[i].schedulable:
            continue
        last = i
        if i == n - 1 or ops[i + 1].I < s.capacity * ops[i].cs / total:
            return i
    return last                        # every queue is over its threshold: the last operator drains one


cdef int choose_lp(Scheduler* s, OperatorStats* ops, int32_t n) noexcept nogil:
    """Last in pipeline (6.2): the latest operator with input."""
    cdef int32_t i = n - 1
    while i >= 0:
        if ops[i].schedulable:
            return i
        i -= 1
    return -1


cdef int choose_et(Scheduler* s, OperatorStats* ops, int32_t n) noexcept nogil:
    """Estimated time (6.3): the largest I_i c_i / (w_i + 1) (eq. 2)."""
    cdef int32_t k
    cdef int32_t i
    cdef int32_t best = -1
    cdef double priority
    cdef double best_priority = -1.0
    for k in range(n):
        i = (k + s.rotate) % n
        if not ops[i].schedulable:
            continue
        priority = <double> ops[i].I * ops[i].c / (ops[i].w + 1)
        if priority > best_priority:
            best_priority = priority
            best = i
    return best


cdef inline double slice_length(const Scheduler* s, const OperatorStats* o) noexcept nogil:
    """Mean duration of the operator's slices, but at least s."""
    cdef double mean = o.worker_ns / o.slices if o.slices > 0 else 0.0
    return mean if mean > s.slice_ns else s.slice_ns


cdef void start_window(OperatorStats* ops, int32_t n) noexcept nogil:
    """Begin a window: T of each operator becomes the worker time that it took for the tuples which still
    wait in front of the operators behind it."""
    cdef double ahead = 0.0            # source tuples
    cdef double before
    cdef int32_t i = n - 1
    while i >= 0:
        before = ops[i - 1].cs if i > 0 else 1.0
        ops[i].T = ops[i].c * before * ahead
        ahead += ops[i].I / before
        i -= 1


cdef int choose_ct(Scheduler* s, OperatorStats* ops, int32_t n) noexcept nogil:
    """Current throughput (6.4): the lowest n_i = (T_i + w_i s) / (c_i cs_i) (eq. 3): the bottleneck of the
    window."""
    cdef int32_t k
    cdef int32_t i
    cdef int32_t best = -1
    cdef double effective
    cdef double lowest = 0.0
    for k in range(n):
        i = (k + s.rotate) % n
        if not ops[i].schedulable:
            continue
        effective = (ops[i].T + ops[i].w * slice_length(s, &ops[i])) / (ops[i].c * ops[i].cs)
        if best < 0 or effective < lowest:
            lowest = effective
            best = i
    return best


cdef int choose_random(Scheduler* s, OperatorStats* ops, int32_t n) noexcept nogil:
    """Any schedulable operator, by a seeded xorshift."""
    cdef int32_t i
    cdef int32_t k
    s.rng ^= s.rng << 13
    s.rng ^= s.rng >> 7
    s.rng ^= s.rng << 17
    k = <int32_t> ((s.rng >> 33) % <uint64_t> n)
    for i in range(n):
        if ops[(i + k) % n].schedulable:
            return (i + k) % n
    return -1


cdef void scheduler_init(Scheduler* s, int32_t heuristic, double slice_ns, double window_ns, double capacity,
                         uint64_t seed) noexcept nogil:
    s.heuristic = heuristic
    s.rotate = 0
    s.slice_ns = slice_ns
    s.window_ns = window_ns
    s.capacity = capacity
    s.window_start = 0
    s.max_wait = 256
    s.decisions = 0
    s.aged = 0
    s.rng = seed * <uint64_t> 0x9E3779B97F4A7C15 + 1
    if heuristic == LP:
        s.choose = choose_lp
    elif heuristic == ET:
        s.choose = choose_et
    elif heuristic == QST:
        s.choose = choose_qst
    elif heuristic == RANDOM:
        s.choose = choose_random
    else:
        s.choose = choose_ct


cdef int scheduler_choose(Scheduler* s, OperatorStats* ops, int32_t n, int64_t now,
                          int64_t* budget) noexcept nogil:
    """The operator to work on next, and in `budget` how many tuples to process; -1: none is schedulable.

    Thread safety: under the driver's lock. Ownership: none. Cost: O(n), about 5 ns per operator.
    """
    cdef int32_t i
    cdef int32_t best
    cdef int64_t longest = 0
    cdef double tuples
    if s.heuristic == CT or s.heuristic == QST:
        stats_cumulate(ops, n)
    if now - s.window_start > s.window_ns:
        s.window_start = now
        start_window(ops, n)
    best = s.choose(s, ops, n)
    if best < 0:
        return -1
    s.decisions += 1
    s.rotate = (s.rotate + 1) % n
    for i in range(n):
        if ops[i].schedulable and ops[i].waited > longest:
            longest = ops[i].waited
            if longest > s.max_wait:
                best = i
    if longest > s.max_wait:
        s.aged += 1
    for i in range(n):
        if ops[i].schedulable and i != best:
            ops[i].waited += 1
            if ops[i].waited > ops[i].max_waited:
                ops[i].max_waited = ops[i].waited
    ops[best].waited = 0
    tuples = s.slice_ns / ops[best].c
    if ops[best].call != NULL and not ops[best].call.warm:
        tuples = 1.0                                          # the first call shows what one costs
    if tuples < 1.0:
        budget[0] = 1
    elif tuples > MAX_BUDGET:
        budget[0] = MAX_BUDGET
    else:
        budget[0] = <int64_t> tuples
    return best


HEURISTICS = {"ct": CT, "lp": LP, "et": ET, "qst": QST, "random": RANDOM}


cdef class PySchedulerDoor:
    """The scheduler as a Python object, for tests and for simulation in virtual time.

    Memory ownership: one Scheduler and an array of at most 64 OperatorStats inside the object.
    """
    cdef Scheduler scheduler
    cdef OperatorStats[64] ops
    cdef CallCost[64] calls
    cdef public int n

    def __init__(self, heuristic, max_parallelism, slice_us=100.0, window_us=10_000.0, capacity=65536.0,
                 seed=1, workers=1, buckets=None, calls=False):
        if heuristic not in HEURISTICS:
            raise ValueError(f"unknown scheduler {heuristic!r}; choose one of {', '.join(HEURISTICS)}")
        self.n = len(max_parallelism)
        if not 1 <= self.n <= 64:
            raise ValueError("1 to 64 operators")
        scheduler_init(&self.scheduler, HEURISTICS[heuristic], slice_us * 1e3, window_us * 1e3, capacity,
                       seed)
        for i in range(self.n):
            stats_init(&self.ops[i], max_parallelism[i], workers, 1 if buckets is None else buckets[i])
            if calls:
                call_cost_init(&self.calls[i], 1 if buckets is None else buckets[i])
                self.ops[i].call = &self.calls[i]

    def choose(self, int64_t now_ns, worklists, workers, schedulable=None):
        """(operator, budget in tuples), or None. worklists: I_i; workers: w_i; schedulable default: I_i > 0
        and w_i < M_i."""
        cdef int64_t budget = 0
        for i in range(self.n):
            self.ops[i].I = worklists[i]
            self.ops[i].w = workers[i]
            if schedulable is None:
                self.ops[i].schedulable = worklists[i] > 0 and workers[i] < self.ops[i].M
            else:
                self.ops[i].schedulable = schedulable[i]
        best = scheduler_choose(&self.scheduler, self.ops, self.n, now_ns, &budget)
        return None if best < 0 else (best, budget)

    def account(self, int i, double ns, int64_t tuples_in, int64_t tuples_out, int64_t chunks=1,
                kernel=None):
        """Report one slice of operator i; kernel: ns that the kernel took for how many of the tuples, else
        all of it."""
        kernel_ns, kernel_rows = (ns, tuples_in) if kernel is None else kernel
        stats_account(&self.ops[i], ns, tuples_in, tuples_out, chunks, kernel_ns, kernel_rows)

    def chunk_rows(self, double chunk_ns, int64_t least, int64_t most):
        """The chunk size for what was reported so far."""
        return chunk_rows_for(self.ops, self.n, chunk_ns, least, most)

    def stats(self, int i):
        """The operator's quantities as a dict."""
        cdef OperatorStats* o = &self.ops[i]
        return {
            "c": o.c, "k": o.k, "s": o.s, "cs": o.cs, "T": o.T, "I": o.I, "w": o.w, "spread": o.spread,
            "waited": o.waited, "max_waited": o.max_waited, "tuples_in": o.tuples_in,
            "tuples_out": o.tuples_out, "chunks": o.chunks, "slices": o.slices, "worker_ns": o.worker_ns,
            "call": None if o.call == NULL else o.call.fixed,
        }

    @property
    def decisions(self):
        return self.scheduler.decisions

    @property
    def aged(self):
        return self.scheduler.aged
