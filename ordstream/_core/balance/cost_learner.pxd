"""What an operator instance learns about its tuples: F and W, and when they are stable enough to be sent
(POSG and LAS, Figs 1 and 2).

START lasts for N tuples, then a snapshot S = W/F is taken and the state is STABILIZING. Every N tuples from
then on: if eta = sum |S - W/F| / sum S (POSG, eq. 1) is at most mu, the matrices are to be sent and the
learner starts again from zero; else S is taken anew. An empty cell counts 0. So matrices are sent after 2 N
tuples at the earliest.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.balance.count_min cimport TimeMatrices

cdef class CostLearner:
    # Memory ownership: its matrices and the snapshot's array. Thread safety: one user at a time.
    cdef readonly TimeMatrices matrices
    cdef readonly int64_t window       # N
    cdef readonly double tolerance     # mu
    cdef readonly int32_t stabilizing  # 0: START, 1: STABILIZING
    cdef readonly double eta           # of the last check; infinite before the first
    cdef readonly int64_t sent         # how often the matrices became stable
    cdef int64_t in_window             # tuples since the last multiple of N
    cdef object array                  # S: float64 (r, c)
    cdef double* snapshot

cdef bint learner_update(CostLearner l, uint64_t word, double time) noexcept nogil
cdef void learner_reset(CostLearner l) noexcept nogil
cdef void time_clear(TimeMatrices m) noexcept nogil
cdef void time_copy(TimeMatrices source, TimeMatrices to) noexcept nogil
cdef void time_add(TimeMatrices source, TimeMatrices to) noexcept nogil
