"""Elastic workers: how many workers should be active, from what the driver measured (workers="auto").

A controller without threads, clocks or atomics: the driver (runtime.pyx in real time, a simulator in virtual
time) calls elastic_observe now and then with cumulative figures and makes the answered number of workers
active. It maximises

    U(n) = throughput(n) / n^KAPPA

so a worker must bring a small part of its fair share to be kept, and a flat curve ends at its knee.
elastic.pyx says how.
"""
from libc.stdint cimport int32_t, int64_t

cdef enum ElasticState:
    GROW = 0               # doubling while that pays
    SEARCH = 1             # paired comparisons around a base
    HOLD = 2               # the base stands; checked now and then

cdef struct Elastic:
    int32_t most           # largest number allowed
    int32_t target         # the answer: workers that should be active
    int32_t state          # ElasticState
    int32_t base           # SEARCH, HOLD: the number that others are compared with
    int32_t trial          # SEARCH: the number compared with base; 0: none
    int32_t low            # SEARCH: nearest smaller number known to be worse; 0: none
    int32_t high           # SEARCH: nearest larger number known to be worse; most + 1: none
    int32_t deep           # SEARCH: narrow the gaps to low and high
    int32_t wide           # SEARCH: a check that looks at half and twice the base, not at its neighbours
    int32_t limited        # HOLD: input is short; the number follows how busy workers are
    int32_t pairs          # SEARCH: comparisons of trial and base so far
    int64_t rush           # HOLD, limited: when input began to wait, with all workers busy; 0: it does not
    # HOLD: slots in a row whose rate was not the usual one; limited: that had a worker to spare
    int32_t strange
    int32_t hold           # HOLD: slots until the next check
    int32_t held           # HOLD: slots since the last one
    int32_t grown_from     # GROW: the number before the last doubling; 0: none
    int64_t interval_ns    # shortest measured slot
    # the slot being measured
    int32_t settling       # 1: the number has just changed, nothing is measured yet
    int32_t looks          # observations in this slot
    int32_t waits          # of these with input waiting
    int64_t settled_at     # when measuring begins
    int64_t slot_start
    int64_t previous_start  # of the slot before
    double slot_work
    double slot_busy
    int64_t slot_slices
    # logarithms of rates
    double grown_rate
    double base_rate       # of the last slot at base
    double trial_rate      # of the last slot at trial
    double usual_rate      # HOLD: running mean
    double gain            # sum over pairs of trial - base
    double noise           # variance of one slot
    # figures for the report
    int64_t searches       # searches begun: after each, the driver may change its unit of work
    int64_t changes
    int64_t began          # time of the first observation
    int64_t seen           # time of the last one
    double worker_time     # integral of target over time, ns
    int32_t least          # smallest and largest target so far
    int32_t largest

cdef void elastic_init(Elastic* e, int32_t most, int32_t start, int64_t interval_ns) noexcept nogil
cdef int32_t elastic_observe(
    Elastic* e, int64_t now, double work, double busy_ns, int64_t slices, bint waiting) noexcept nogil
cdef int32_t elastic_hurry(Elastic* e, int64_t now, double backlog_ns) noexcept nogil
cdef int32_t elastic_stalled(Elastic* e, int64_t now) noexcept nogil
cdef void elastic_set(Elastic* e, int64_t now, int32_t n) noexcept nogil
cdef void elastic_restart(Elastic* e, int64_t now) noexcept nogil
