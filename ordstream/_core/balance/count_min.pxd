"""Count-Min sketches on key words: counts (Count-Min), and counts with execution times (POSG's matrices F
and W).

Cormode and Muthukrishnan's matrix: r rows, c columns, one 2-universal hash function per row. The F/W pair
follows POSG, Listings III.1 and III.2: both matrices have the same size and functions, and a tuple's time is
read at the row where F is smallest.

Inline here: what a scheduler does per tuple.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.balance.hashing cimport TwoUniversal, universal_cell

cdef class CountMatrix:
    # Memory ownership: the NumPy array in `array`; `cells` points into it. Thread safety: one writer, no
    # reader meanwhile.
    cdef readonly TwoUniversal hashes
    cdef readonly object array         # int64 (r, c); row sums = total
    cdef int64_t* cells                # row-major
    cdef readonly int64_t total        # sum of the counts of all updates; never above 2^63 - 1


cdef class TimeMatrices:
    # Memory ownership: the NumPy arrays; the pointers point into them. Thread safety: one writer, no reader
    # meanwhile.
    cdef readonly TwoUniversal hashes
    cdef readonly object frequency     # F: int64 (r, c); row sums = tuples
    cdef readonly object work          # W: float64 (r, c); row sums = total_time, up to rounding
    cdef int64_t* f
    cdef double* w
    cdef readonly int64_t tuples       # updates since the last reset
    cdef readonly double total_time    # sum of their times, in the caller's unit


cdef inline void time_update(TimeMatrices m, uint64_t word, double time) noexcept nogil:
    """Listing III.1: count one tuple and its execution time in every row.

    Thread safety: the matrices' one writer. Ownership: none. Cost: one hash and two additions per row.
    """
    cdef int32_t i
    cdef int64_t cell
    for i in range(m.hashes.rows):
        cell = i * m.hashes.columns + universal_cell(m.hashes, i, word)
        m.f[cell] += 1
        m.w[cell] += time
    m.tuples += 1
    m.total_time += time


cdef inline double time_estimate(TimeMatrices m, uint64_t word) noexcept nogil:
    """Listing III.2, lines 10 and 11: W/F at the row with the smallest F (the first of equals).

    Where that F is 0 the mean execution time of all tuples (0/0 in the text); 0.0 before the first tuple.

    Thread safety: pure. Ownership: none. Cost: one hash per row and one division.
    """
    cdef int32_t i
    cdef int64_t cell
    cdef int64_t best = universal_cell(m.hashes, 0, word)
    for i in range(1, m.hashes.rows):
        cell = i * m.hashes.columns + universal_cell(m.hashes, i, word)
        if m.f[cell] < m.f[best]:
            best = cell
    if m.f[best] > 0:
        return m.w[best] / <double> m.f[best]
    return m.total_time / <double> m.tuples if m.tuples > 0 else 0.0
