"""Runtime: one run of a chain of operators: stage table, scheduler, workers' loop, the feeding and the reading side."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.atomics cimport a64, load_acquire
from ordstream._core.chunk cimport Chunk, ChunkPool, Worker
from ordstream._core.egress cimport Egress
from ordstream._core.ingress cimport Ingress
from ordstream._core.operator cimport Operator, RunState, Slice
from ordstream._core.scheduler cimport OperatorStats, Scheduler

cdef struct Runtime:
    int32_t n              # operators
    int32_t spin           # 1: a worker may pause-spin before it yields (fewer workers than allowed CPUs)
    Operator* operators
    OperatorStats* stats   # under `lock`
    Scheduler scheduler    # under `lock`
    char[128] pad0
    a64 lock               # scheduler lock: a choice and an account, a few hundred ns
    char[120] pad1
    RunState run
    Ingress ingress
    Egress egress
    ChunkPool pool
    double chunk_ns        # operator cost aimed at per chunk (chunk_rows = auto)
    int64_t min_rows
    int64_t max_rows
    int32_t auto_rows      # 1: the controller sets ingress.target_rows
    a64 parks              # statistic: how often a worker parked


cdef inline bint finished(Runtime* rt) noexcept nogil:
    """True when the end or a failure was delivered, or the run was stopped. Any thread."""
    # pairs with store_release of `ended` in the egress and of `stop`
    return load_acquire(&rt.egress.ended) != 0 or load_acquire(&rt.run.stop) != 0


cdef void worker_loop(Runtime* rt, Worker* w, bint embedded) noexcept nogil
cdef void drain(Operator* op, Worker* w) noexcept
cdef void discard(Worker* w, Chunk* c) noexcept
