"""Runtime: one run of a chain of operators: stage table, scheduler, workers' loop, the feeding and the
reading side."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.atomics cimport a64, load_acquire
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Worker
from ordstream._core.ground.kept_batches cimport KeptBatches
from ordstream._core.flow.egress cimport Egress
from ordstream._core.flow.elastic cimport Elastic
from ordstream._core.flow.ingress cimport Ingress
from ordstream._core.flow.operator cimport Operator, RunState, Slice
from ordstream._core.flow.call_cost cimport CallCost
from ordstream._core.flow.scheduler cimport OperatorStats, Scheduler
from ordstream._core.ground.threads cimport EventCount

cdef struct Seen:
    # What a worker sees of an operator before it asks for the scheduler's lock.
    int64_t waiting        # tuples in its worklist
    int64_t runnable

cdef struct Runtime:
    int32_t n              # operators
    int32_t spin           # 1: a worker may pause-spin before it yields (fewer workers than allowed CPUs)
    Operator* operators
    OperatorStats* stats   # under `lock`
    Seen* seen             # `seen_each` for each worker, which alone writes and reads them
    int64_t seen_each
    Scheduler scheduler    # under `lock`
    char[128] pad0
    a64 lock               # scheduler lock: a choice and an account, a few hundred ns
    char[120] pad1
    RunState run
    Ingress ingress
    Egress egress
    KeptBatches batches
    ChunkPool pool
    double chunk_ns        # operator cost aimed at per chunk (chunk_rows = auto)
    int64_t min_rows
    int64_t max_rows
    int32_t auto_rows      # 1: the controller sets ingress.target_rows
    a64 parks              # statistic: how often a worker parked
    # Timed waits are a safety net that nothing may need. Constant, but for tests (lab/testing_run.pyx).
    int64_t park_ns        # first timed wait of a parked worker
    int64_t longest_park_ns
    int64_t gate_ns        # timed wait of a worker that should not be active
    # How long after a wait that ran out a wake-up may still come before it counts as missed; 0: do not
    # count.
    int64_t grace_ns
    a64 missed             # waits that ran out although there was work
    a64 asleep             # workers that wait in `work`, or are about to and will not look for work again
    a64 gated              # workers of which the same holds for `gate`
    a64 hold_at            # HoldPlace where workers stop until this changes; 0: nowhere
    a64 held               # workers that stopped there
    # workers="auto": workers whose id is not below `active` wait in `gate`. Constant otherwise.
    a64 active             # workers that should be active
    a64 running            # workers whose loop has begun
    EventCount* gate
    int32_t adaptive       # 1: the controller sets `active`
    # under `lock`, where adaptive:
    Elastic elastic
    # debug: state of the generator that sets the number at random, at every look; 0: off
    uint64_t shaken
    int64_t look_at        # time of the next observation
    int64_t units          # `elastic.searches` when the weights were set
    CallCost* calls        # by operator: what its calls cost, where `OperatorStats.call` points here
    double* weights        # unit of work: cost of a tuple of each operator, ns
    int64_t* slice_start   # by worker: when its slice began; 0: it is in none
    double slice_ns        # of all slices that have ended
    int64_t slices


cdef enum HoldPlace:
    # Places between two steps of a hand-shake. A test holds a worker there, lets the other side run, then
    # lets the worker go on.
    HOLD_NOWHERE = 0
    HOLD_BEFORE_PARKING = 1    # the worker found no work, and has not yet counted itself in `parked`
    HOLD_WHILE_PUBLISHING = 2  # the worker is idle and holds the last operator's release flag

cdef struct Waits:
    # Of runs that are made from now on, as in Runtime.
    int (*look)(Worker*) noexcept nogil   # tests: Worker.look of every worker; NULL: none
    int64_t park_ns
    int64_t longest_park_ns
    int64_t gate_ns
    int64_t grace_ns

cdef Waits* waits_of_new_runs() noexcept nogil
cdef a64* missed_of_closed_runs() noexcept nogil


cdef inline bint finished(Runtime* rt) noexcept nogil:
    """True when the end or a failure was delivered, or the run was stopped. Any thread."""
    # pairs with store_release of `ended` in the egress and of `stop`
    return load_acquire(&rt.egress.ended) != 0 or load_acquire(&rt.run.stop) != 0


cdef void worker_loop(Runtime* rt, Worker* w, bint embedded) noexcept nogil
cdef void serve_reader(Runtime* rt, Worker* w, int64_t rows_taken) noexcept nogil
cdef bint notice_stall(Runtime* rt) noexcept nogil
cdef void stats_now(Runtime* rt, OperatorStats* into) noexcept nogil
cdef void drain(Operator* op, Worker* w) noexcept
cdef void discard(Worker* w, Chunk* c) noexcept
