"""Count-Min sketches on key words. See count_min.pxd for the design."""
from libc.math cimport isfinite
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t
from ordstream._core.balance.hashing cimport TwoUniversal, universal_cell, word_of_key

import numpy as np


cdef object _matrix(object values, TwoUniversal hashes, object dtype):
    """A new C-contiguous (r, c) array: zeros, or a copy of `values`."""
    if values is None:
        return np.zeros((hashes.rows, hashes.columns), dtype=dtype)
    made = np.array(values, dtype=dtype, order="C")
    if made.shape != (hashes.rows, hashes.columns):
        raise ValueError(f"a matrix of shape {made.shape} does not fit {hashes.rows} rows and "
                         f"{hashes.columns} columns")
    return made


cdef class CountMatrix:
    """A Count-Min sketch of key words: r x c cells. An update adds to one cell in each row; an estimate is
    the smallest of these cells.

    Parameters
    ----------
    hashes : TwoUniversal
    cells : array of int64 (r, c), optional
        To start from; copied. Default: zeros.
    """

    def __init__(self, TwoUniversal hashes not None, cells=None):
        cdef int64_t[:, ::1] view
        self.hashes = hashes
        self.array = _matrix(cells, hashes, np.int64)
        if cells is not None and (self.array.min() < 0
                                  or len({sum(row) for row in self.array.tolist()}) != 1):
            raise ValueError("cells are not those of a sketch: a count is negative, or the rows' "
                             "sums differ")
        view = self.array
        self.cells = &view[0, 0]
        self.total = int(self.array[0].sum())

    def update(self, const uint64_t[::1] words, const int64_t[::1] counts=None):
        """Count every word once, or counts[i] (>= 0) times.

        Thread safety: one writer; runs without the GIL. Ownership: none. Cost: one hash per word and row.
        Raises: ValueError for a negative count, OverflowError when the total would pass 2^63 - 1; nothing is
        counted then.
        """
        cdef Py_ssize_t n = words.shape[0]
        cdef Py_ssize_t k
        cdef int32_t i
        cdef int64_t count = 1
        cdef int64_t total = self.total
        cdef bint weighted = counts is not None
        if weighted:
            if counts.shape[0] != n:
                raise ValueError(f"{n} keys but {counts.shape[0]} counts")
            for k in range(n):
                if counts[k] < 0:
                    raise ValueError(f"a count is negative: {counts[k]} at row {k}")
                if counts[k] > INT64_MAX - total:
                    raise OverflowError("the sum of counts passes 2^63 - 1")
                total += counts[k]
        else:
            if n > INT64_MAX - total:
                raise OverflowError("the sum of counts passes 2^63 - 1")
            total += n
        with nogil:
            for k in range(n):
                if weighted:
                    count = counts[k]
                for i in range(self.hashes.rows):
                    self.cells[i * self.hashes.columns + universal_cell(self.hashes, i, words[k])] += count
        self.total = total

    def update_key(self, key, int64_t count=1):
        """Count one Python key `count` (>= 0) times. Raises: as `update`. Cost: one hash per row, no
        allocation."""
        cdef uint64_t word = word_of_key(key)
        cdef int32_t i
        if count < 0:
            raise ValueError(f"a count is negative: {count}")
        if count > INT64_MAX - self.total:
            raise OverflowError("the sum of counts passes 2^63 - 1")
        for i in range(self.hashes.rows):
            self.cells[i * self.hashes.columns + universal_cell(self.hashes, i, word)] += count
        self.total += count

    def estimate(self, const uint64_t[::1] words):
        """Estimated count of every word, int64 array: at least the true count. Thread safety: pure; runs
        without the GIL."""
        out = np.empty(words.shape[0], dtype=np.int64)
        cdef int64_t[::1] to = out
        cdef int64_t least
        cdef int64_t cell
        cdef Py_ssize_t k
        cdef int32_t i
        with nogil:
            for k in range(words.shape[0]):
                least = INT64_MAX
                for i in range(self.hashes.rows):
                    cell = self.cells[i * self.hashes.columns + universal_cell(self.hashes, i, words[k])]
                    if cell < least:
                        least = cell
                to[k] = least
        return out

    def merge(self, CountMatrix other not None):
        """Add the other's counts, which gives the sketch of both streams. Raises: ValueError where the hash
        functions differ, OverflowError."""
        if not self.hashes.same_as(other.hashes):
            raise ValueError("only sketches with the same rows, columns and hash functions (seed) "
                             "can be merged")
        if other.total > INT64_MAX - self.total:
            raise OverflowError("the sum of counts passes 2^63 - 1")
        self.array += other.array
        self.total += other.total

    def reset(self):
        """All counts to zero."""
        self.array.fill(0)
        self.total = 0


cdef class TimeMatrices:
    """The matrices F (tuples) and W (their execution times) of POSG, over one set of hash functions.

    Parameters
    ----------
    hashes : TwoUniversal
    frequency, work : arrays (r, c), optional
        To start from, with `total_time`; copied. Default: zeros.
    """

    def __init__(self, TwoUniversal hashes not None, frequency=None, work=None, double total_time=0.0):
        cdef int64_t[:, ::1] f
        cdef double[:, ::1] w
        self.hashes = hashes
        self.frequency = _matrix(frequency, hashes, np.int64)
        self.work = _matrix(work, hashes, np.float64)
        if self.frequency.min() < 0 or len({sum(row) for row in self.frequency.tolist()}) != 1:
            raise ValueError("F is not that of a sketch: a count is negative, or the rows' sums differ")
        if not (np.isfinite(self.work).all() and self.work.min() >= 0 and isfinite(total_time)
                and total_time >= 0):
            raise ValueError("W is not that of a sketch: a time is negative or not finite")
        f = self.frequency
        w = self.work
        self.f = &f[0, 0]
        self.w = &w[0, 0]
        self.tuples = int(self.frequency[0].sum())
        self.total_time = total_time

    def update(self, const uint64_t[::1] words, const double[::1] times):
        """Count every word with its execution time (Listing III.1).

        Thread safety: one writer; runs without the GIL. Ownership: none. Cost: one hash per word and row.
        Raises: ValueError for a time that is negative or not finite; nothing is counted then.
        """
        cdef Py_ssize_t k
        if times.shape[0] != words.shape[0]:
            raise ValueError(f"{words.shape[0]} keys but {times.shape[0]} execution times")
        for k in range(times.shape[0]):
            if not (isfinite(times[k]) and times[k] >= 0):
                raise ValueError(f"an execution time is negative or not finite: {times[k]} at row {k}")
        with nogil:
            for k in range(words.shape[0]):
                time_update(self, words[k], times[k])

    def update_key(self, key, double time):
        """Count one Python key with its execution time. Raises: as `update`. Cost: one hash per row, no
        allocation."""
        cdef uint64_t word = word_of_key(key)
        if not (isfinite(time) and time >= 0):
            raise ValueError(f"an execution time is negative or not finite: {time}")
        time_update(self, word, time)

    def estimate_key(self, key):
        """Estimated execution time of one Python key (Listing III.2)."""
        return time_estimate(self, word_of_key(key))

    def estimate(self, const uint64_t[::1] words):
        """Estimated execution time of every word, float64 array (Listing III.2). Thread safety: pure; runs
        without the GIL."""
        out = np.empty(words.shape[0], dtype=np.float64)
        cdef double[::1] to = out
        cdef Py_ssize_t k
        with nogil:
            for k in range(words.shape[0]):
                to[k] = time_estimate(self, words[k])
        return out

    def merge(self, TimeMatrices other not None):
        """Add the other's tuples and times, which gives the matrices of both streams. Raises: ValueError
        where the hash functions differ, OverflowError."""
        if not self.hashes.same_as(other.hashes):
            raise ValueError("only sketches with the same rows, columns and hash functions (seed) "
                             "can be merged")
        if other.tuples > INT64_MAX - self.tuples:
            raise OverflowError("the number of tuples passes 2^63 - 1")
        self.frequency += other.frequency
        self.work += other.work
        self.tuples += other.tuples
        self.total_time += other.total_time

    def reset(self):
        """All cells to zero."""
        self.frequency.fill(0)
        self.work.fill(0.0)
        self.tuples = 0
        self.total_time = 0.0
