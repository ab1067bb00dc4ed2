"""The automaton of POSG's scheduler. See posg.pxd for the design."""
from libc.math cimport NAN, isfinite
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.balance.count_min cimport TimeMatrices
from ordstream._core.balance.hashing cimport HASH_ROWS, TwoUniversal, universal_cell

import numpy as np

SCHEDULER_STATES = ("ROUND ROBIN", "SEND ALL", "WAIT ALL", "RUN")


cdef class Scheduler:
    """Assigns tuples to k instances by estimated execution times (Fig. 3, Listing III.2).

    Parameters
    ----------
    hashes : TwoUniversal
    k : int
        Instances, at least 1.
    resync : int
        Tuples between two synchronisations without new matrices; 0: never.
    first : int
        Instance of the first tuple, in ROUND ROBIN or among equals.
    """

    def __init__(self, TwoUniversal hashes not None, int32_t k, int64_t resync, int32_t first=0):
        cdef double[::1] reals
        cdef int64_t[::1] integers
        cdef double[:, :, ::1] real_cells
        cdef int64_t[:, :, ::1] integer_cells
        if k < 1:
            raise ValueError(f"there must be at least one instance, not {k}")
        if resync < 0:
            raise ValueError(f"the tuples between synchronisations must not be negative: {resync}")
        if not 0 <= first < k:
            raise ValueError(f"the first instance must be 0 to {k - 1}, not {first}")
        self.hashes = hashes
        self.k = k
        self.resync = resync
        self.routed = 0
        self.epoch = 0
        self.received = 0
        self.synchronised = 0
        self.cells = hashes.rows * hashes.columns
        self.c_hat = np.zeros(k)
        self.mean_time = np.zeros(k)
        self.total_time = np.zeros(k)
        self.delta = np.full(k, np.nan)
        self.version = np.zeros(k, dtype=np.int64)
        self.frequency = np.zeros((k, hashes.rows, hashes.columns), dtype=np.int64)
        self.work = np.zeros((k, hashes.rows, hashes.columns))
        reals = self.c_hat
        self.c = &reals[0]
        reals = self.mean_time
        self.mean = &reals[0]
        reals = self.total_time
        self.total = &reals[0]
        reals = self.delta
        self.d = &reals[0]
        integers = self.version
        self.held = &integers[0]
        integer_cells = self.frequency
        self.f = &integer_cells[0, 0, 0]
        real_cells = self.work
        self.w = &real_cells[0, 0, 0]
        self.in_state = ROUND_ROBIN
        self.since = 0
        self.next_instance = first
        self.missing = k
        self.waiting = 0

    @property
    def state(self):
        """ROUND ROBIN, SEND ALL, WAIT ALL or RUN."""
        return SCHEDULER_STATES[<int> self.in_state]

    # ------------------------------------------------------------------------------- messages that arrive

    cdef bint hold(self, int32_t op, int64_t version, TimeMatrices m) noexcept nogil:
        """Copy the matrices of an instance unless they are older than those held. Returns: true if they were
        taken.

        Thread safety: the one caller. Ownership: `m` stays the caller's. Cost: a copy of r x c cells, twice.
        """
        if version <= self.held[op]:
            return False
        if self.held[op] == 0 and self.missing > 0:
            self.missing -= 1  # after a `deploy` none is missing
        self.held[op] = version
        self.put(op, m)
        self.received += 1
        return True

    cdef void put(self, int32_t op, TimeMatrices m) noexcept nogil:
        # Copy an instance's matrices. Thread safety: the one caller.
        memcpy(self.f + op * self.cells, m.f, self.cells * sizeof(int64_t))
        memcpy(self.w + op * self.cells, m.w, self.cells * sizeof(double))
        self.total[op] = m.total_time
        self.mean[op] = m.total_time / <double> m.tuples if m.tuples > 0 else 0.0

    cdef void start_epoch(self) noexcept nogil:
        # Go to SEND ALL (Fig. 3.B, 3.F). Replies of an older epoch that are still to come will be ignored.
        cdef int32_t op
        self.in_state = SEND_ALL
        self.epoch += 1
        self.next_instance = 0
        self.waiting = self.k
        self.since = 0
        for op in range(self.k):
            self.d[op] = NAN

    cdef void matrices_came(self, int32_t op, int64_t version, TimeMatrices m) noexcept nogil:
        """Fig. 3.A, 3.B and 3.F. Thread safety: the one caller. Cost: that of `hold`."""
        if self.hold(op, version, m) and self.missing == 0:
            self.start_epoch()

    cdef void reply_came(self, int32_t op, int64_t epoch, double difference) noexcept nogil:
        """Fig. 3.D and 3.E: Delta of one instance. A reply of an older epoch changes nothing, nor does one
        that comes twice.

        Thread safety: the one caller. Cost: O(1), with the last reply O(k).
        """
        cdef int32_t i
        if epoch != self.epoch or self.waiting == 0 or self.d[op] == self.d[op]:
            return
        self.d[op] = difference
        self.waiting -= 1
        if self.waiting == 0:
            for i in range(self.k):
                self.c[i] += self.d[i]
            self.synchronised += 1
            self.in_state = RUN

    def receive_matrices(self, int32_t op, int64_t version, TimeMatrices m not None):
        """Take an instance's matrices, the `version`-th that it sent (from 1). They are ignored unless they
        are newer than those held."""
        self.check_instance(op)
        if not self.hashes.same_as(m.hashes):
            raise ValueError("these matrices have other rows, columns or hash functions (seed) than the "
                             "scheduler's")
        self.matrices_came(op, version, m)

    def receive_reply(self, int32_t op, int64_t epoch, double difference):
        """Reply of an instance to the request of an epoch: clock minus the request's C^."""
        self.check_instance(op)
        if not isfinite(difference):
            raise ValueError(f"Delta must be finite, not {difference}")
        self.reply_came(op, epoch, difference)

    cdef int check_instance(self, int32_t op) except -1:
        if not 0 <= op < self.k:
            raise ValueError(f"instance must be 0 to {self.k - 1}, not {op}")
        return 0

    def deploy(self, models, c_hat):
        """Go to RUN at once, with these matrices, a pair per instance, and this C^ (k); they replace those
        held. No instance has sent them, so the next pair of each counts as newer (Fig. 3.F)."""
        cdef int32_t op
        if len(models) != self.k or len(c_hat) != self.k:
            raise ValueError(f"{self.k} instances need as many matrices and C^, not {len(models)} and "
                             f"{len(c_hat)}")
        for op, model in enumerate(models):
            if not self.hashes == model.hashes:
                raise ValueError("these matrices have other rows, columns or hash functions (seed) than the "
                                 "scheduler's")
            self.put(op, model)
        self.missing = 0
        self.c_hat[:] = c_hat
        self.waiting = 0
        self.since = 0
        self.in_state = RUN

    # ------------------------------------------------------------------------------- tuples that leave

    cdef double estimate(self, int32_t op, const int64_t* cell) noexcept nogil:
        """w^ of a tuple on an instance (Listing III.2, lines 10 and 11), from the word's cell in each row.

        Where the smallest F is 0: the mean execution time of the instance. Thread safety: pure. Cost: r
        cells, one division.
        """
        cdef const int64_t* f = self.f + op * self.cells
        cdef int64_t best = cell[0]
        cdef int32_t i
        for i in range(1, self.hashes.rows):
            if f[cell[i]] < f[best]:
                best = cell[i]
        if f[best] > 0:
            return self.w[op * self.cells + best] / <double> f[best]
        return self.mean[op]

    cdef int32_t least_loaded(self) noexcept nogil:
        """SUBMIT (Listing III.2, line 7): arg min of C^. Among equals, the first one behind the instance
        that was chosen last, cyclically. So equal estimates, for instance all zero, give Round-Robin.

        Thread safety: pure. Cost: O(k).
        """
        cdef int32_t best = self.next_instance
        cdef int32_t op
        for op in range(self.next_instance + 1, self.k):
            if self.c[op] < self.c[best]:
                best = op
        for op in range(self.next_instance):
            if self.c[op] < self.c[best]:
                best = op
        return best

    cdef int32_t submit(self, uint64_t word) noexcept nogil:
        """Choose the instance of one tuple, and bring C^ and the state up to date.

        Thread safety: the one caller. Returns: the instance; a synchronisation request for it may have been
        appended to `requests`. Cost: O(k + r), 20-60 ns.
        """
        cdef int64_t cell[HASH_ROWS]
        cdef int32_t op
        cdef int32_t i
        cdef Request request
        self.routed += 1
        if self.in_state == ROUND_ROBIN:
            op = self.next_instance
            self.next_instance = op + 1 if op + 1 < self.k else 0
            return op
        for i in range(self.hashes.rows):
            cell[i] = i * self.hashes.columns + universal_cell(self.hashes, i, word)
        if self.in_state != SEND_ALL and self.resync > 0 and self.since >= self.resync:
            self.start_epoch()
        if self.in_state == SEND_ALL:
            op = self.next_instance
            self.c[op] += self.estimate(op, cell)
            request.position = self.routed - 1
            request.epoch = self.epoch
            request.instance = op
            request.c_hat = self.c[op]
            self.requests.push_back(request)
            self.next_instance = op + 1
            if op + 1 == self.k:
                self.next_instance = 0
                self.in_state = WAIT_ALL
            return op
        self.since += 1
        op = self.least_loaded()
        self.c[op] += self.estimate(op, cell)
        self.next_instance = op + 1 if op + 1 < self.k else 0
        return op

    def route(self, const uint64_t[::1] words):
        """Instances of tuples, in order: int32 array. Thread safety: one caller at a time; runs without the
        GIL."""
        out = np.empty(words.shape[0], dtype=np.int32)
        cdef int32_t[::1] to = out
        cdef Py_ssize_t j
        with nogil:
            for j in range(words.shape[0]):
                to[j] = self.submit(words[j])
        return out

    def take_requests(self):
        """(position, instance, epoch, C^) of each request made since the last call, in order. position: of
        the tuple that carries it, from 0."""
        taken = [(r.position, r.instance, r.epoch, r.c_hat) for r in self.requests]
        self.requests.clear()
        return taken

    def estimates(self, const uint64_t[::1] words, int32_t op):
        """w^ of each word on one instance: float64 array; 0.0 while it has sent no matrices."""
        cdef int64_t cell[HASH_ROWS]
        cdef Py_ssize_t j
        cdef int32_t i
        self.check_instance(op)
        out = np.empty(words.shape[0])
        cdef double[::1] to = out
        with nogil:
            for j in range(words.shape[0]):
                for i in range(self.hashes.rows):
                    cell[i] = i * self.hashes.columns + universal_cell(self.hashes, i, words[j])
                to[j] = self.estimate(op, cell)
        return out

    def copy(self):
        """An independent copy in the same state; requests that were not taken yet are not copied."""
        cdef Scheduler made = Scheduler(self.hashes, self.k, self.resync)
        for name in ("c_hat", "frequency", "work", "total_time", "mean_time", "version", "delta"):
            getattr(made, name)[:] = getattr(self, name)
        made.routed = self.routed
        made.epoch = self.epoch
        made.received = self.received
        made.synchronised = self.synchronised
        made.in_state = self.in_state
        made.since = self.since
        made.next_instance = self.next_instance
        made.missing = self.missing
        made.waiting = self.waiting
        return made


def greedy(const double[:, ::1] times, int32_t k, double[::1] c):
    """Greedy Online Scheduler with known execution times: each tuple goes to the arg min of C, among equals
    to the instance with the lowest number.

    Parameters: times (m, 1) or (m, k); c (k), the cumulated time of each instance at the start, to which
    times are added. Thread safety: pure but for `c`; runs without the GIL. Returns: int32 array (m). Cost:
    O(k) per tuple. Raises: ValueError for shapes that do not fit.
    """
    cdef int64_t j
    cdef int32_t i
    cdef int32_t best
    cdef bint per_instance = times.shape[1] > 1
    if k < 1 or c.shape[0] != k or times.shape[1] not in (1, k):
        raise ValueError(f"{k} instances need 1 or {k} columns of execution times and {k} sums, not "
                         f"{times.shape[1]} and {c.shape[0]}")
    out = np.empty(times.shape[0], dtype=np.int32)
    cdef int32_t[::1] to = out
    with nogil:
        for j in range(times.shape[0]):
            best = 0
            for i in range(1, k):
                if c[i] < c[best]:
                    best = i
            c[best] += times[j, best if per_instance else 0]
            to[j] = best
    return out
