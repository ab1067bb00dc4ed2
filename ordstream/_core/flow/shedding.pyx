"""Load-aware shedding in the node: the protected operator's side. See shedding.pxd for the design."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc
from ordstream._core.ground.atomics cimport (
    a64, add_acq_rel, add_relaxed, exchange_acq_rel, load_relaxed, store_relaxed, store_release,
)
from ordstream._core.ground.chunk cimport Chunk, Worker, row_slot, slot_serial
from ordstream._core.balance.cost_learner cimport (
    CostLearner, learner_reset, learner_update, time_add, time_copy,
)
from ordstream._core.balance.count_min cimport TimeMatrices
from ordstream._core.ground.mixing cimport mix64
from ordstream._core.ground.threads cimport now_ns

cdef enum:
    FIRST_POSTED = 16          # rows of the first matrices that a cold start posts; a power of two


cdef int shed_attach(ShedControl* s, const Ingress* ingress, int32_t workers, int32_t nrunning) except -1:
    """Connect a shed stage with a run: `workers` that the protected operator may have, `nrunning` ids of
    workers there are.

    Thread safety: construction of a run only. Ownership: ShedKernel frees `running`. Raises: RuntimeError
    where the control serves a run already, MemoryError.
    """
    if s.running != NULL:
        raise RuntimeError("a shed stage's kernel serves one run")
    s.running = <a64*> calloc(nrunning + 1, sizeof(a64))
    if s.running == NULL:
        raise MemoryError
    s.nrunning = nrunning
    s.ingress = ingress
    s.workers = workers
    if s.mode != SHED_FROZEN:
        s.share = workers
    return 0


cdef int64_t shed_elapsed(ShedControl* s, int64_t now) noexcept nogil:
    """Worker time that the protected operator has received, runs in progress included, ns.

    Thread safety: any worker; a run that ends meanwhile is counted twice or not at all for a moment.
    Ownership: none. Cost: one load per worker.
    """
    cdef int64_t total = load_relaxed(&s.worked_ns)           # statistics: no partner
    cdef int64_t began
    cdef int32_t i
    for i in range(s.nrunning):
        began = load_relaxed(&s.running[i])
        if began and now > began:
            total += now - began
    return total


cdef int64_t waited_ns(const ShedControl* s, const Chunk* c, int32_t slot, int64_t now) noexcept nogil:
    """How long ago the tuple in this slot reached the node (shedding.pxd, b). Pure.

    0 for what a flush or a time punctuation made an operator before emit: it has no arrival of its own.
    """
    cdef int64_t serial
    if c.arrived_ns == 0:
        return 0
    if s.ingress.schedule != NULL:
        serial = slot_serial(c, slot)
        return now - s.ingress.schedule_start - s.ingress.schedule[serial - 1 - s.ingress.base]
    if s.ingress.stamp == 2 and c.dispatched_ns:
        return now - c.dispatched_ns                          # a marker's arrived_ns is its batch's
    return now - c.arrived_ns


cdef double virtual_arrival(const ShedControl* s, int64_t serial) noexcept nogil:
    """Frozen mode: virtual time at which a serial arrives, ns: `gap_ns` apart, each moved within its gap.
    Pure; ascending."""
    cdef uint64_t drawn = mix64(s.jitter ^ mix64(<uint64_t> serial)) >> 11
    return (<double> (serial - 1) + <double> drawn * (1.0 / 9007199254740992.0)) * s.gap_ns


cdef int64_t shed_begin(ShedControl* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n) noexcept nogil:
    """The protected operator begins with rows of a chunk (NULL: its first n selected ones): count how long
    they waited.

    Thread safety: any worker. Ownership: none. Returns: now, for shed_end. Cost: one clock reading, a few
    instructions per row.
    """
    cdef ShedRows* sent = <ShedRows*> c.shed
    cdef int64_t now = now_ns()
    cdef int64_t waited = 0
    cdef int64_t most = 0
    cdef int64_t one
    cdef int32_t k
    store_relaxed(&s.running[w.id], now)                      # statistic, see shed_elapsed
    for k in range(n):
        one = waited_ns(s, c, rows[k] if rows != NULL else row_slot(c, k), now)
        waited += one
        if one > most:
            most = one
    # read by the last part's worker: ordered by Chunk.pending
    add_relaxed(&sent.waited_ns, waited)
    if most > load_relaxed(&s.waited_max_ns):
        store_relaxed(&s.waited_max_ns, most)                 # statistic; a lost update loses one candidate
    return now


cdef void shed_end(ShedControl* s, Worker* w, ShedRows* sent, const int32_t* rows, int32_t n,
                   int64_t began) noexcept nogil:
    """The kernel has run over those rows. A row that ran alone is learnt. `rows` NULL: unknown slots.

    Thread safety: any worker. Ownership: none. Cost: one clock reading; ~50 ns per row that is learnt.
    """
    cdef int64_t now = now_ns()
    cdef int64_t took = now - began
    cdef double each
    cdef int32_t k
    store_relaxed(&s.running[w.id], 0)
    add_relaxed(&s.worked_ns, took)                           # statistic
    store_relaxed(&s.ended_ns, now)                           # statistic, see look in kernels/shed.pyx
    took -= s.clock_ns
    if took < 0:
        took = 0
    each = <double> took / n
    add_relaxed(&sent.waited_ns, <int64_t> (each * n * (n - 1) / 2))   # row k began after k others
    if rows != NULL and (n == 1 or s.attribute):
        for k in range(n):
            shed_learn(s, sent.words[rows[k]], each)


cdef void shed_learn(ShedControl* s, uint64_t word, double cost_ns) noexcept nogil:
    """One measured row. Does nothing where another worker is learning.

    Thread safety: any worker; never waits. Ownership: none. Cost: ~50 ns; 32 r c bytes of copying every few
    thousand rows.
    """
    cdef int64_t n
    # pairs with store_release below
    if load_relaxed(&s.learning) != 0 or exchange_acq_rel(&s.learning, 1) != 0:
        return
    add_relaxed(&s.learnt, 1)                                 # statistic
    if learner_update(<CostLearner> s.learner, word, cost_ns):
        time_copy((<CostLearner> s.learner).matrices, <TimeMatrices> s.outbox)
        time_add((<CostLearner> s.learner).matrices, <TimeMatrices> s.total)
        learner_reset(<CostLearner> s.learner)
        s.stable = 1
        store_release(&s.posted, 1)                           # pairs with load_acquire in the shed stage
    elif not s.stable:
        n = (<CostLearner> s.learner).matrices.tuples
        if n >= FIRST_POSTED and n & (n - 1) == 0:
            time_copy((<CostLearner> s.learner).matrices, <TimeMatrices> s.outbox)
            store_release(&s.posted, 1)                       # as above
    store_release(&s.learning, 0)                             # pairs with the exchange above


cdef void shed_completed(ShedControl* s, ShedRows* sent) noexcept nogil:
    """All rows of a chunk have been processed: true latencies replace the estimates, the awaited mark is
    answered.

    Thread safety: the worker of the chunk's last part. Ownership: none. Cost: a few additions.
    """
    cdef int64_t waited = load_relaxed(&sent.waited_ns)       # ordered by Chunk.pending
    add_relaxed(&s.waited_ns, waited)                         # statistic
    add_relaxed(&s.waited_rows, sent.rows)                    # statistic
    if sent.counted:
        # a sum: the order does not matter
        add_relaxed(&s.correction_ns, waited - <int64_t> sent.latency_ns)
    if sent.mark:
        store_relaxed(&s.answer_ns, shed_elapsed(s, now_ns()))
        store_release(&s.answered, sent.mark)                 # pairs with load_acquire in the shed stage
    add_acq_rel(&s.done, sent.rows)                           # pairs with load_acquire in the shed stage
