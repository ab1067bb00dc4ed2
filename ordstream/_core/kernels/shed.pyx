"""The shed stage (operator "shed"): load-aware shedding in front of an operator, a stateless kernel that
narrows the selection.

shedding.pxd states the design. `max_workers` is 1: decisions are made in arrival order. Unlike other kernels
one of these serves one run.
"""
from libc.stdint cimport int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from ordstream._core.ground.arrow cimport output_export
from ordstream._core.ground.output_batch cimport output_append, output_free, output_new
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.atomics cimport (
    exchange_acq_rel, load_acquire, load_relaxed, store_relaxed, store_release,
)
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, PT_F32, PT_F64, PT_I8, PT_I16, PT_I32, PT_I64, PT_U16, PT_U32, PT_U64, PT_VIEW,
    Chunk, Column, Failure, View, Worker, chunk_alloc, chunk_reserve, failure_set, row_slot, scratch_alloc,
    slot_serial,
)
from ordstream._core.balance.cost_learner cimport CostLearner, time_copy
from ordstream._core.balance.count_min cimport TimeMatrices, time_estimate
from ordstream._core.balance.hashing cimport bytes_word, float_word, joined_word, null_word
from ordstream._core.ground.mixing cimport mix64
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, failure_text, owner_setup
from ordstream._core.balance.las cimport (
    CHECK_AVERAGE, CHECK_MAXIMUM, ShedState, shed_admit, shed_answer, shed_backlog, shed_drops, shed_renewed,
)
from ordstream._core.flow.sampling cimport clock_cost_ns
from ordstream._core.flow.shedding cimport (
    SHED_FROZEN, SHED_LIVE, SHED_REPLAY, ShedControl, ShedEntry, ShedRows, shed_elapsed, virtual_arrival,
    waited_ns,
)
from ordstream._core.ground.threads cimport cpu_pause, now_ns
from ordstream._core.state.state_rows cimport owner_state

import numpy as np

cdef enum:
    SIDE_ROWS = 65_536         # rows of one batch of the side output
    LOOK_NS = 20_000_000       # between two measurements of the protected operator's share of the workers

cdef double LEAST_SHARE = 0.01
cdef double SHARE_WEIGHT = 0.25           # of a new measurement of the share


# ---------------------------------------------------------------- key words

cdef inline uint64_t word_at(int32_t type, bint text, const Column* col, int32_t row) noexcept nogil:
    """Key word of one value, as ordstream.balance.keys.key_words gives it."""
    cdef const char* data = col.data
    cdef const View* v
    if col.valid != NULL and col.valid[row] == 0:
        return null_word()
    if type == PT_VIEW:
        v = &(<const View*> data)[row]
        return bytes_word(v.data, v.size, text)
    if type == PT_I64 or type == PT_U64:
        return (<const uint64_t*> data)[row]
    if type == PT_I32:
        return <uint64_t> <int64_t> (<const int32_t*> data)[row]
    if type == PT_F64:
        return float_word((<const double*> data)[row])
    if type == PT_F32:
        return float_word(<double> (<const float*> data)[row])
    if type == PT_U32:
        return (<const uint32_t*> data)[row]
    if type == PT_I16:
        return <uint64_t> <int64_t> (<const int16_t*> data)[row]
    if type == PT_I8:
        return <uint64_t> <int64_t> (<const int8_t*> data)[row]
    if type == PT_U16:
        return (<const uint16_t*> data)[row]
    return (<const uint8_t*> data)[row]                       # uint8 and bool


cdef inline uint64_t row_word(const ShedContext* x, const Chunk* c, int32_t row) noexcept nogil:
    cdef uint64_t h = <uint64_t> 0x9E3779B97F4A7C15
    cdef int32_t j
    if x.ncols == 1:
        return word_at(x.type[0], x.text[0], &c.cols[x.column[0]], row)
    for j in range(x.ncols):
        h = joined_word(h, word_at(x.type[j], x.text[j], &c.cols[x.column[j]], row))
    return h


# ---------------------------------------------------------------- looking at the protected operator

cdef inline double mean_time(TimeMatrices m) noexcept nogil:
    return m.total_time / <double> m.tuples if m.tuples > 0 else 0.0


cdef void catch_up(ShedControl* s, int64_t now, int64_t elapsed, int64_t inside) noexcept nogil:
    """Read what the protected operator's workers reported since the last chunk. Called by the shed stage
    only."""
    cdef int64_t reported
    # pairs with the releases in shed_learn
    if load_acquire(&s.posted) and exchange_acq_rel(&s.learning, 1) == 0:
        time_copy(<TimeMatrices> s.outbox, <TimeMatrices> s.model)
        store_relaxed(&s.posted, 0)                           # under `learning`
        store_release(&s.learning, 0)                         # pairs with the exchange in shed_learn
        # a cold start: tuples admitted without a model count as the mean
        if not s.state.informed:
            s.state.cumulated = <double> elapsed + <double> inside * mean_time(<TimeMatrices> s.model)
        shed_renewed(&s.state)
        s.mark = 0
        s.updates += 1
    if s.mark and load_acquire(&s.answered) == s.mark:        # pairs with store_release in shed_completed
        shed_answer(&s.state, <double> load_relaxed(&s.answer_ns))
        s.mark = 0
        s.synchronised += 1
    if s.check.admitted:
        reported = load_relaxed(&s.correction_ns)             # no partner: only the total matters
        s.check.latency_sum += <double> (reported - s.corrected)
        s.corrected = reported
    if inside <= 0 and s.state.informed and not s.state.awaiting:
        # nothing waits and nothing runs: the backlog is exactly 0
        s.state.cumulated = <double> elapsed


cdef void look(ShedControl* s, int64_t now, int64_t elapsed, int64_t inside, int32_t kept) noexcept nogil:
    """Measure the protected operator's share of the workers while it has work for all of them. The shed
    stage only, after each chunk.

    inside: rows handed on before this chunk and not completed; kept: rows of this chunk that are handed on.
    An interval begins when more rows are inside than the operator may have workers. It ends LOOK_NS later if
    that still holds, or with the last completed row: many schedules let the shed stage run only when no
    other operator has input.
    """
    cdef int64_t end = now
    cdef int64_t least = LOOK_NS
    cdef double share
    if s.looked_full and (inside <= 0 or inside > s.workers):
        if inside <= 0:
            # statistic; written before `done`, which was acquired
            end = load_relaxed(&s.ended_ns)
            least = LOOK_NS // 4
        if end - s.looked_ns >= least:
            share = <double> (elapsed - s.looked_work) / <double> (end - s.looked_ns)
            s.share += SHARE_WEIGHT * (share - s.share)
            if s.share < LEAST_SHARE:
                s.share = LEAST_SHARE
            if s.share > s.workers:
                s.share = s.workers
        elif inside > 0:
            return                                            # the interval goes on
    s.looked_ns = now
    s.looked_work = elapsed
    s.looked_full = inside + kept > s.workers


def virtual_time(seed, int64_t partition, int64_t serial, double gap_ns):
    """Frozen mode: when a serial arrives, ns (`ordstream.operators.shed.Frozen`). Pure."""
    cdef ShedControl s
    s.jitter = jitter_of(seed, partition)
    s.gap_ns = gap_ns
    return virtual_arrival(&s, serial)


cdef uint64_t jitter_of(seed, int64_t partition):
    return joined_word(mix64(mix64(<uint64_t> (int(seed) & 0xFFFFFFFFFFFFFFFF))), <uint64_t> partition)


# ---------------------------------------------------------------- log and side output

cdef int note(ShedControl* s, int64_t serial, int64_t at, double latency, double cost) noexcept nogil:
    """Log one shed tuple. 0, or -1: no memory."""
    cdef ShedEntry* grown
    cdef int64_t room
    if s.logged == s.log_capacity:
        room = 256 if s.log_capacity == 0 else 2 * s.log_capacity
        grown = <ShedEntry*> realloc(s.log, room * sizeof(ShedEntry))
        if grown == NULL:
            return -1
        s.log = grown
        s.log_capacity = room
    s.log[s.logged].serial = serial
    s.log[s.logged].index = s.index
    s.log[s.logged].at_ns = at
    s.log[s.logged].latency_ns = latency
    s.log[s.logged].cost_ns = cost
    s.logged += 1
    return 0


cdef int put_aside(ShedControl* s, const Kernel* k, Chunk* c, int32_t* shed, int32_t n) noexcept nogil:
    """Append the shed rows to the side output. 0, or -1: no memory."""
    cdef int32_t* sel = c.sel
    cdef int32_t rows = c.n
    cdef Output* fresh
    cdef int64_t done = 0
    cdef int64_t rows_put = 0
    if s.side == NULL or s.side.rows >= SIDE_ROWS:
        fresh = output_new(k.input, 256, False)
        if fresh == NULL:
            return -1
        if s.side == NULL:
            s.side_first = fresh
        else:
            s.side.next = fresh
        s.side = fresh
    c.sel = shed
    c.n = n
    while done < n:
        rows_put = output_append(s.side, c, done, n - done)
        if rows_put < 0 or (rows_put == 0 and s.side.rows == 0):
            break
        done += rows_put
        if done < n:                                          # 2 GiB of strings in one batch: a new one
            fresh = output_new(k.input, 256, False)
            if fresh == NULL:
                break
            s.side.next = fresh
            s.side = fresh
    c.sel = sel
    c.n = rows
    return 0 if done == n else -1


# ---------------------------------------------------------------- the kernel

cdef inline bint replayed(ShedControl* s, int64_t serial) noexcept nogil:
    """Whether the log has (serial, s.index). Rows come in ascending order, so do the log's."""
    while s.replay_next < s.replay_rows and (
        s.replay_serial[s.replay_next] < serial
        or (s.replay_serial[s.replay_next] == serial and s.replay_index[s.replay_next] < s.index)
    ):
        s.replay_next += 1
    return (s.replay_next < s.replay_rows and s.replay_serial[s.replay_next] == serial
            and s.replay_index[s.replay_next] == s.index)


cdef inline ShedRows* shed_rows_new(Worker* w, Chunk* c, int32_t** kept, int32_t** shed) noexcept nogil:
    """What goes with the chunk to the next operator, room for slots kept or shed. NULL: no memory."""
    cdef ShedRows* sent = <ShedRows*> chunk_alloc(w, c, sizeof(ShedRows))
    kept[0] = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
    shed[0] = <int32_t*> scratch_alloc(w, <int64_t> c.n * 4)
    if sent == NULL or kept[0] == NULL or shed[0] == NULL:
        return NULL
    memset(<void*> sent, 0, sizeof(ShedRows))
    sent.words = <uint64_t*> chunk_alloc(w, c, <int64_t> c.slots * 8)
    return sent if sent.words != NULL else NULL


cdef inline bint next_serial(ShedControl* s, int64_t serial) noexcept nogil:
    """Count the rows of a serial. True: this is its first."""
    cdef bint fresh = serial != s.serial
    if fresh:
        s.serial = serial
        s.index = -1
    s.index += 1
    return fresh


cdef inline bint misses_goal(ShedControl* s, const Chunk* c, int32_t slot, int64_t now, double elapsed,
                             int64_t inside, bint fresh) noexcept nogil:
    """Whether a row must be dropped, by its estimated latency, which is left in s.serial_latency.

    Where rows of one serial share their fate, the first one decides.
    """
    cdef double latency
    if s.by_serial and not fresh:
        return s.serial_shed != 0
    latency = shed_backlog(&s.state, elapsed)
    if s.mode == SHED_LIVE:
        latency = latency / s.share if inside >= s.workers else 0.0
        latency += <double> waited_ns(s, c, slot, now)
    s.serial_shed = shed_drops(&s.state, latency)
    s.serial_latency = latency
    return s.serial_shed != 0


cdef Chunk* shed_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Decide for every row; keep the admitted ones. Contract: kernel.pxd (a).

    Thread safety: one worker at a time (max_workers = 1). Ownership: narrows `c` itself; selection, key
    words and ShedRows lie in its arena. Returns: c. Cost: ~60 ns per row with 4 rows of hash functions, most
    of it the estimate.
    """
    cdef ShedContext* x = <ShedContext*> k.ctx
    cdef ShedControl* s = &x.control
    cdef ShedState* state = &s.state
    cdef ShedRows* sent
    cdef int32_t* kept
    cdef int32_t* shed
    cdef int32_t nkept = 0
    cdef int32_t nshed = 0
    cdef int32_t i
    cdef int32_t slot
    cdef int64_t serial
    cdef int64_t now = 0
    cdef int64_t at = 0
    cdef int64_t inside = 0
    cdef double elapsed = 0.0
    cdef double latency = 0.0
    cdef double cost
    cdef bint fresh
    cdef bint drops
    c.shed = NULL
    if c.n == 0:
        return c
    sent = shed_rows_new(w, c, &kept, &shed)
    if sent == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if s.mode == SHED_LIVE:
        now = now_ns()
        at = now - s.started_ns
        # own value; pairs with add_acq_rel in shed_completed
        inside = load_relaxed(&s.admitted) - load_acquire(&s.done)
        elapsed = <double> shed_elapsed(s, now)
        catch_up(s, now, <int64_t> elapsed, inside)
        sent.counted = state.informed
    for i in range(c.n):
        slot = row_slot(c, i)
        serial = slot_serial(c, slot)
        fresh = next_serial(s, serial)
        sent.words[slot] = row_word(x, c, slot)
        if s.mode == SHED_REPLAY:
            drops = replayed(s, serial)
            cost = 0.0
        else:
            if s.mode == SHED_FROZEN:
                elapsed = virtual_arrival(s, serial) * s.share
                at = <int64_t> virtual_arrival(s, serial)
            drops = misses_goal(s, c, slot, now, elapsed, inside + nkept, fresh)
            latency = s.serial_latency
            cost = time_estimate(<TimeMatrices> s.model, sent.words[slot]) if state.informed else 0.0
        if drops:
            s.check.dropped += 1
            shed[nshed] = slot
            nshed += 1
            if note(s, serial, at, latency / s.share if s.mode == SHED_FROZEN else latency, cost) != 0:
                return chunk_fail_all(c, -1, FAIL_MEMORY)
            continue
        kept[nkept] = slot
        nkept += 1
        if s.mode == SHED_REPLAY:
            continue
        if shed_admit(state, latency, elapsed, cost) and s.mode == SHED_LIVE:
            s.marks += 1
            s.mark = s.marks
            sent.mark = s.marks
        sent.latency_ns += latency
    if nshed:
        if s.keeps_rows and put_aside(s, k, c, shed, nshed) != 0:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
        c.sel = kept
        c.n = nkept
    store_relaxed(&x.seen_serial, s.serial)
    store_release(&x.seen_rows, s.index + 1)                  # pairs with load_acquire in `seen`
    sent.rows = nkept
    if s.mode == SHED_LIVE:
        look(s, now, <int64_t> elapsed, inside, nkept)
    if nkept and s.mode == SHED_LIVE:
        c.shed = <void*> sent
        store_relaxed(&s.admitted, load_relaxed(&s.admitted) + nkept)   # own value
    return c


# ---------------------------------------------------------------- the state of frozen shedding

cdef int32_t shed_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                         Failure* f) noexcept nogil:
    """state_export: what later decisions depend on, one row, none where nothing was decided yet. Contract:
    kernel.pxd (f). `state` is not read: the control is the kernel's own.

    Thread safety: the stage's one worker. Ownership: out's arena. Returns: rows, or -1: no memory (f is
    filled). Cost: a few instructions.
    """
    cdef ShedControl* s = &(<ShedContext*> k.ctx).control
    cursor.done = 1
    if s.check.admitted + s.check.dropped == 0 or (cursor.keys != NULL and cursor.n == 0):
        return 0
    if chunk_reserve(w, out, k.state, 1) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    (<double*> out.cols[0].data)[out.n] = s.state.cumulated
    (<double*> out.cols[1].data)[out.n] = s.check.latency_sum
    (<int64_t*> out.cols[2].data)[out.n] = s.check.admitted
    (<int64_t*> out.cols[3].data)[out.n] = s.check.dropped
    out.n += 1
    out.slots = out.n
    return 1


cdef int32_t shed_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    """state_install. Thread safety, ownership, returns: kernel.pxd (f)."""
    cdef ShedControl* s = &(<ShedContext*> k.ctx).control
    cdef int32_t i
    for i in range(n):
        if s.check.admitted + s.check.dropped:
            failure_set(f, slots[i], FAIL_STATE, "the operator has one state, and it is there already")
            return i
        s.state.cumulated = (<const double*> rows.cols[0].data)[slots[i]]
        s.check.latency_sum = (<const double*> rows.cols[1].data)[slots[i]]
        s.check.admitted = (<const int64_t*> rows.cols[2].data)[slots[i]]
        s.check.dropped = (<const int64_t*> rows.cols[3].data)[slots[i]]
    return n


cdef int32_t shed_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil:
    """state_remove. Thread safety, ownership, returns: kernel.pxd (f)."""
    cdef ShedControl* s = &(<ShedContext*> k.ctx).control
    cdef int32_t there = 1 if n and s.check.admitted + s.check.dropped else 0
    if there:
        s.state.cumulated = s.check.latency_sum = 0.0
        s.check.admitted = s.check.dropped = 0
    return there


cdef class ShedKernel(KernelOwner):
    """Operator "shed"; the parameters are listed at `ordstream.operators.shed.Shed`. Serves one run.

    Parameters
    ----------
    operator : ordstream.operators.operator.Operator
    model : TimeMatrices
        The cost model to start from, empty or saved. The kernel changes it and keeps it: give it a copy.
    """

    def __cinit__(self, *args, **kwargs):
        self.context = <ShedContext*> calloc(1, sizeof(ShedContext))
        if self.context == NULL:
            raise MemoryError

    def __init__(self, operator, TimeMatrices model not None):
        cdef ShedControl* s = &self.context.control
        cdef int32_t j
        owner_setup(self, operator, SL)
        self.kernel.max_workers = 1
        self.kernel.ctx = <void*> self.context
        self.kernel.apply = shed_apply
        self.kernel.shed = <void*> s
        columns = list(operator.cost_key)
        if not 1 <= len(columns) <= SHED_KEYS:
            raise ValueError(f"{operator.name!r}: 1 to {SHED_KEYS} key columns, not {len(columns)}")
        self.context.ncols = <int32_t> len(columns)
        for j, column in enumerate(columns):
            self.context.column[j] = column
            self.context.type[j] = self.kernel.input.type[<int> column]
            self.context.text[j] = 1 if "string" in str(operator.input.field(column).type) else 0
        learner = CostLearner(TimeMatrices(model.hashes), operator.window, operator.tolerance)
        self.sketches = (model, learner, TimeMatrices(model.hashes), TimeMatrices(model.hashes))
        s.model = <void*> model
        s.learner = <void*> learner
        s.outbox = <void*> self.sketches[2]
        s.total = <void*> self.sketches[3]
        s.check.kind = CHECK_MAXIMUM if operator.goal == "maximum" else CHECK_AVERAGE
        s.check.limit = operator.limit_ns
        s.check.most_dropped = operator.most_dropped
        s.state.check = &s.check
        s.state.sync_every = operator.sync_every
        s.by_serial = operator.by_serial
        s.attribute = operator.may_fan_out
        s.keeps_rows = operator.side_output
        s.clock_ns = clock_cost_ns()
        s.workers = 1
        s.share = 1.0
        if model.tuples > 0:
            shed_renewed(&s.state)
            s.stable = 1
        frozen = operator.frozen
        if frozen is not None:
            s.mode = SHED_FROZEN
            s.share = frozen.workers
            s.check.limit *= frozen.workers                   # latencies are in worker time
            s.gap_ns = 1e9 / frozen.rate
            self.partition(0, frozen.seed)
            owner_state(self, operator, shed_export, shed_install, shed_remove)

    def partition(self, int64_t number, seed):
        """Frozen mode: decisions for this partition of the data."""
        self.context.control.jitter = jitter_of(seed, number)

    def replays(self, serials, indexes):
        """Shed just the tuples of a log: int64 arrays, ascending by (serial, index)."""
        cdef const int64_t[::1] serial = serials
        cdef const int64_t[::1] index = indexes
        cdef ShedControl* s = &self.context.control
        self.replay = (serials, indexes)
        s.mode = SHED_REPLAY
        s.replay_rows = serial.shape[0]
        if s.replay_rows:
            s.replay_serial = &serial[0]
            s.replay_index = &index[0]

    def begins_behind(self, int64_t serial, int64_t rows):
        """The run goes on behind a serial of which the operator has seen so many rows. Before the run."""
        self.context.control.serial = serial
        self.context.control.index = rows - 1
        store_relaxed(&self.context.seen_serial, serial)
        store_relaxed(&self.context.seen_rows, rows)

    def seen(self, int64_t serial):
        """Rows of a serial that the operator has seen; 0 where it has seen later ones. Any thread, once all
        rows of it are through."""
        # pairs with store_release in shed_apply: who sees the rows sees their serial, or a later one
        cdef int64_t rows = load_acquire(&self.context.seen_rows)
        return rows if load_relaxed(&self.context.seen_serial) == serial else 0

    @property
    def logged(self):
        """Tuples shed so far. The thread that works, or after the run."""
        return self.context.control.logged

    def log(self, int64_t first=0):
        """(serial, index, at_ns, latency_ns, cost_ns) of the shed tuples from number `first` on: arrays. The
        thread that works, or after the run."""
        cdef ShedControl* s = &self.context.control
        cdef int64_t rows = s.logged - first
        cdef int64_t i
        found = (np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64),
                 np.empty(rows, np.float64), np.empty(rows, np.float64))
        cdef int64_t[::1] serial = found[0]
        cdef int64_t[::1] index = found[1]
        cdef int64_t[::1] at = found[2]
        cdef double[::1] latency = found[3]
        cdef double[::1] cost = found[4]
        for i in range(rows):
            serial[i] = s.log[first + i].serial
            index[i] = s.log[first + i].index
            at[i] = s.log[first + i].at_ns
            latency[i] = s.log[first + i].latency_ns
            cost[i] = s.log[first + i].cost_ns
        return found

    def take_side(self, schema):
        """The side output as record batches of `schema` (the stage's input in core types); once, after the
        run."""
        cdef ShedControl* s = &self.context.control
        cdef Output* o
        batches = []
        while s.side_first != NULL:
            o = s.side_first
            s.side_first = o.next
            o.next = NULL
            batches.append(output_export(o, schema))
        s.side = NULL
        return batches

    def figures(self):
        """What the stage did, as a dict (ordstream/operators/shed.py shapes it). After the run."""
        cdef ShedControl* s = &self.context.control
        rows = load_relaxed(&s.waited_rows)
        return {
            "admitted": load_relaxed(&s.admitted), "shed": s.logged, "blind": s.state.blind,
            "mode": ("live", "frozen",
                     "replay")[s.mode], "learnt": load_relaxed(&s.learnt), "model_updates": s.updates,
            "synchronised": s.synchronised, "share": s.share,
            "mean_latency_ns": <double> load_relaxed(&s.waited_ns) / rows if rows else None,
            "max_latency_ns": load_relaxed(&s.waited_max_ns) if rows else None,
        }

    def model(self):
        """(F, W, their time) of every row that was learnt in this run so far, and the hash functions. Any
        thread: a worker that would learn meanwhile leaves its row out, as it does beside another worker."""
        cdef ShedControl* s = &self.context.control
        while exchange_acq_rel(&s.learning, 1) != 0:          # pairs with store_release in shed_learn
            cpu_pause()
        try:
            total = TimeMatrices(self.sketches[3].hashes, self.sketches[3].frequency, self.sketches[3].work,
                                 self.sketches[3].total_time)
            total.merge(self.sketches[1].matrices)
        finally:
            store_release(&s.learning, 0)                     # pairs with the exchange in shed_learn
        return total

    def __dealloc__(self):
        cdef Output* o
        if self.context == NULL:
            return
        while self.context.control.side_first != NULL:
            o = self.context.control.side_first
            self.context.control.side_first = o.next
            output_free(o)
        free(self.context.control.log)
        free(self.context.control.running)
        free(self.context)
