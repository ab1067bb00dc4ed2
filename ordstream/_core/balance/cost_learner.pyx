"""The operator side of POSG and LAS. See cost_learner.pxd for the design."""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.balance.count_min cimport TimeMatrices, time_update

import numpy as np


cdef class CostLearner:
    """The matrices F and W of one operator instance, and the two states that it goes through before it sends
    them.

    Parameters
    ----------
    matrices : TimeMatrices
        Updated by this object alone from now on.
    window : int
        N, at least 1.
    tolerance : float
        mu, at least 0.
    """

    def __init__(self, TimeMatrices matrices not None, int64_t window=1024, double tolerance=0.05):
        cdef double[:, ::1] view
        if window < 1:
            raise ValueError(f"the window N must be at least 1, not {window}")
        if not tolerance >= 0:
            raise ValueError(f"the tolerance mu must be at least 0, not {tolerance}")
        self.matrices = matrices
        self.window = window
        self.tolerance = tolerance
        self.eta = INFINITY
        self.array = np.zeros((matrices.hashes.rows, matrices.hashes.columns))
        view = self.array
        self.snapshot = &view[0, 0]

    def update(self, uint64_t word, double time):
        """Count one executed tuple. True: F and W are stable; take a copy and call `reset`."""
        if not 0 <= time < INFINITY:
            raise ValueError(f"an execution time is negative or not finite: {time}")
        return learner_update(self, word, time)

    def update_many(self, const uint64_t[::1] words, const double[::1] times):
        """Count executed tuples, in order. Returns: a list with a copy of F and W for each time that they
        became stable (they are then reset); mostly it is empty.

        Raises: ValueError for a time that is negative or not finite, or lengths that differ; nothing is
        counted then.
        """
        cdef Py_ssize_t k
        if times.shape[0] != words.shape[0]:
            raise ValueError(f"{words.shape[0]} keys but {times.shape[0]} execution times")
        for k in range(times.shape[0]):
            if not 0 <= times[k] < INFINITY:
                raise ValueError(f"an execution time is negative or not finite: {times[k]} at row {k}")
        stable = []
        for k in range(words.shape[0]):
            if learner_update(self, words[k], times[k]):
                copied = TimeMatrices(self.matrices.hashes)
                time_copy(self.matrices, copied)
                stable.append(copied)
                learner_reset(self)
        return stable

    def reset(self):
        """F and W to zero, state START (Fig. 2.C)."""
        learner_reset(self)


cdef void take_snapshot(TimeMatrices m, double* snapshot) noexcept nogil:
    cdef int64_t n = m.hashes.rows * m.hashes.columns
    cdef int64_t k
    for k in range(n):
        snapshot[k] = m.w[k] / <double> m.f[k] if m.f[k] > 0 else 0.0


cdef double relative_error(TimeMatrices m, const double* snapshot) noexcept nogil:
    """eta of eq. 1. It is 0 where nothing changed, and infinite where S is all zero and W/F is not."""
    cdef int64_t n = m.hashes.rows * m.hashes.columns
    cdef double changed = 0.0
    cdef double total = 0.0
    cdef int64_t k
    for k in range(n):
        changed += fabs(snapshot[k] - (m.w[k] / <double> m.f[k] if m.f[k] > 0 else 0.0))
        total += snapshot[k]
    if changed == 0.0:
        return 0.0
    return changed / total if total > 0.0 else INFINITY


cdef bint learner_update(CostLearner l, uint64_t word, double time) noexcept nogil:
    """Count one executed tuple (Listing III.1 and Fig. 2). True: send F and W, then call `learner_reset`.

    Thread safety: one caller at a time. Ownership: none. Cost: as time_update; r c divisions every N tuples.
    """
    time_update(l.matrices, word, time)
    l.in_window += 1
    if l.in_window < l.window:
        return False
    l.in_window = 0
    if not l.stabilizing:
        l.stabilizing = 1
        take_snapshot(l.matrices, l.snapshot)
        return False
    l.eta = relative_error(l.matrices, l.snapshot)
    if l.eta <= l.tolerance:
        l.sent += 1
        return True
    take_snapshot(l.matrices, l.snapshot)
    return False


cdef void learner_reset(CostLearner l) noexcept nogil:
    """F and W to zero, state START. Thread safety: one caller at a time. Cost: r c stores."""
    time_clear(l.matrices)
    l.stabilizing = 0
    l.in_window = 0


cdef void time_clear(TimeMatrices m) noexcept nogil:
    """All cells to zero, as TimeMatrices.reset, without the GIL."""
    cdef int64_t n = m.hashes.rows * m.hashes.columns
    memset(m.f, 0, <size_t> n * 8)
    memset(m.w, 0, <size_t> n * 8)
    m.tuples = 0
    m.total_time = 0.0


cdef void time_copy(TimeMatrices source, TimeMatrices to) noexcept nogil:
    """F, W and their sums, as a message carries them. Both have the same hash functions (the caller's
    promise).

    Thread safety: one user of each. Ownership: values are copied. Cost: 16 r c bytes.
    """
    cdef int64_t n = source.hashes.rows * source.hashes.columns
    memcpy(to.f, source.f, <size_t> n * 8)
    memcpy(to.w, source.w, <size_t> n * 8)
    to.tuples = source.tuples
    to.total_time = source.total_time


cdef void time_add(TimeMatrices source, TimeMatrices to) noexcept nogil:
    """As TimeMatrices.merge, without the GIL. Both have the same hash functions (the caller's promise)."""
    cdef int64_t n = source.hashes.rows * source.hashes.columns
    cdef int64_t k
    for k in range(n):
        to.f[k] += source.f[k]
        to.w[k] += source.w[k]
    to.tuples += source.tuples
    to.total_time += source.total_time
