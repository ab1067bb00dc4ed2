"""Schedulers QST, LP, ET, CT (ordered paper, section 6) behind one interface, in the paper's quantities.

The interface knows no queues and no threads. Its driver (run.pyx in real time, lab/node_simulator.pyx in
virtual time) fills an array of OperatorStats, calls scheduler_choose under its own lock, and reports each
slice with stats_account.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.flow.call_cost cimport CallCost

cdef enum Heuristic:
    CT = 0
    LP = 1
    ET = 2
    QST = 3
    RANDOM = 4             # any schedulable operator, seeded: tests use it as an adversary

cdef struct OperatorStats:
    # One operator, as the paper sees it. I, T, c, s and n count tuples, whatever the chunk size.
    int32_t schedulable    # filled by the driver before each choice
    int32_t w              # workers on it now
    int32_t M              # maximum degree of parallelism
    int32_t chosen_last    # internal to fairness
    int64_t I              # tuples in its worklist
    double c               # cost of a tuple, ns (prior: 1000)
    double k               # of that, in the kernel: without what a chunk or a part costs (prior: 1000)
    double s               # selectivity (prior: 1)
    double cs              # cumulative selectivity since ingress, its own included
    double T               # worker time spent in the current CT window, ns
    double busy_ns         # decayed worker time behind c
    double seen            # decayed tuples behind c
    double kernel_ns       # decayed time and tuples behind k, sampled
    double kernel_seen
    CallCost* call         # where a call costs much beside its rows: what it costs; else NULL
    double spread          # the kernel's work on one chunk may be so many times chunk_ns
    double sum_in          # decayed tuples in and out behind s
    double sum_out
    int64_t waited         # choices since it was last chosen in which it was schedulable and passed over
    int64_t max_waited
    # totals for the report
    int64_t tuples_in
    int64_t tuples_out
    int64_t chunks
    int64_t slices
    double worker_ns

cdef struct Scheduler:
    int32_t heuristic      # Heuristic
    int32_t rotate         # where the search for the best begins: ties are broken round-robin
    double slice_ns        # s, the time slice
    double window_ns       # CT window
    double capacity        # C of QST, tuples
    int64_t window_start
    int64_t max_wait       # an operator passed over this often while schedulable is chosen next
    int64_t decisions
    int64_t aged           # choices made by ageing
    uint64_t rng
    int (*choose)(Scheduler*, OperatorStats*, int32_t n) noexcept nogil

cdef void scheduler_init(Scheduler* s, int32_t heuristic, double slice_ns, double window_ns, double capacity,
                         uint64_t seed) noexcept nogil
cdef void stats_init(OperatorStats* o, int32_t M, int32_t workers, int32_t buckets) noexcept nogil
cdef int scheduler_choose(Scheduler* s, OperatorStats* ops, int32_t n, int64_t now,
                          int64_t* budget) noexcept nogil
cdef void stats_account(OperatorStats* o, double ns, int64_t tuples_in, int64_t tuples_out,
                        int64_t chunks, double kernel_ns, int64_t kernel_rows) noexcept nogil
cdef void stats_cumulate(OperatorStats* ops, int32_t n) noexcept nogil
cdef int64_t chunk_rows_for(const OperatorStats* ops, int32_t n, double chunk_ns, int64_t min_rows,
                            int64_t max_rows) noexcept nogil
cdef int64_t chunks_for(const OperatorStats* ops, int32_t n, int32_t workers, int64_t most) noexcept nogil
