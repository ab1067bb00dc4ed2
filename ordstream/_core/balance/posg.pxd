"""POSG (Proactive Online Shuffle Grouping): the scheduler. The instance's side is
`_core/balance/cost_learner`.

Source: Rivetti, Anceaume, Busnel, Querzoni, Sericola, "Proactive Online Scheduling for Shuffle Grouping in
Distributed Stream Processing Systems": Listing III.2 and Fig. 3 (`Scheduler`), Greedy Online Scheduler
(`greedy`).

a) Cells of a word are computed once per tuple and looked up in the matrices of the chosen instance only: O(k
   + r) per decision (Theorem 3.1).
b) The scheduler keeps copies of the matrices it was sent, so an instance may reset and go on.
c) What goes between the two is a method call here; ordstream/balance/posg.py gives it the form of messages,
   which may be lost, late or come twice. Everything that guards against that (epochs, versions) is in this
   file.
d) C^ is not raised to "now" when an instance idles (the paper does not): a synchronisation does that.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.vector cimport vector
from ordstream._core.balance.count_min cimport TimeMatrices
from ordstream._core.balance.hashing cimport TwoUniversal

cdef enum SchedulerState:
    ROUND_ROBIN
    SEND_ALL
    WAIT_ALL
    RUN


cdef struct Request:
    int64_t position           # tuple that carries it, counted from the scheduler's first
    int64_t epoch
    int32_t instance
    double c_hat               # C^[instance], that tuple included


cdef class Scheduler:
    # Thread safety: one caller at a time. Memory ownership: copies of all matrices, in two arrays.
    cdef readonly TwoUniversal hashes
    cdef readonly int32_t k
    cdef readonly int64_t resync       # tuples between two synchronisations without new matrices; 0: never
    cdef readonly int64_t routed       # tuples, in all
    cdef readonly int64_t epoch        # of the last SEND ALL; 0 before the first
    cdef readonly int64_t received     # pairs of matrices, in all
    cdef readonly int64_t synchronised  # times that C^ was corrected
    cdef readonly object c_hat         # C^: float64 (k)
    cdef readonly object frequency     # F of each instance: int64 (k, r, c)
    cdef readonly object work          # W of each instance: float64 (k, r, c)
    cdef readonly object total_time    # sum of W's execution times of each instance: float64 (k)
    # mean execution time of each instance: float64 (k); what an empty cell counts
    cdef readonly object mean_time
    cdef readonly object version       # of the matrices held: int64 (k), 0: none yet
    cdef readonly object delta         # replies of this epoch: float64 (k), NaN: none yet
    cdef SchedulerState in_state
    cdef int64_t since                 # tuples since the last SEND ALL ended
    # ROUND ROBIN's and SEND ALL's; in the other states preferred among equals
    cdef int32_t next_instance
    cdef int32_t missing               # instances without matrices of their own or deployed ones
    cdef int32_t waiting               # replies of this epoch that have not come
    cdef int64_t cells
    cdef double* c
    cdef int64_t* f
    cdef double* w
    cdef double* total
    cdef double* mean
    cdef int64_t* held
    cdef double* d
    cdef vector[Request] requests      # not taken yet, in order of their tuples

    cdef bint hold(self, int32_t op, int64_t version, TimeMatrices m) noexcept nogil
    cdef void put(self, int32_t op, TimeMatrices m) noexcept nogil
    cdef void start_epoch(self) noexcept nogil
    cdef void matrices_came(self, int32_t op, int64_t version, TimeMatrices m) noexcept nogil
    cdef void reply_came(self, int32_t op, int64_t epoch, double difference) noexcept nogil
    cdef int check_instance(self, int32_t op) except -1
    cdef double estimate(self, int32_t op, const int64_t* cell) noexcept nogil
    cdef int32_t least_loaded(self) noexcept nogil
    cdef int32_t submit(self, uint64_t word) noexcept nogil
