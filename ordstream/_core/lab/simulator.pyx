"""Discrete-event simulation of one operator. See simulator.pxd for the design."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc

import numpy as np

cdef enum:
    DROPPED = -1


cdef class Policy:
    """Decides where each tuple goes, and hears what the instances report. A subclass overrides `submit`."""

    def __dealloc__(self):
        free(self.heap)

    cpdef int started(self, int32_t instances) except -1:
        """A simulation with so many instances begins. Override to reset state; call the base method."""
        self.instances = instances
        self.waiting = 0
        self.sent = 0
        self.now = -INFINITY
        return 0

    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2:
        """Instance for tuple i with this key word, in [0, instances); -1: drop it."""
        raise NotImplementedError("a policy must override submit")

    cpdef int executed(self, int64_t i, uint64_t word, int32_t instance, double start, double end) except -1:
        """Instance side: tuple i was executed from `start` to `end` (now). May `send`."""
        return 0

    cpdef int received(self, int64_t tag, double now) except -1:
        """Scheduler side: the message sent with this tag arrives now."""
        return 0

    cpdef int send(self, double at, int64_t tag) except -1:
        """Have `received(tag, at)` called at virtual time `at`, not before now; `tag` is the policy's."""
        cdef int64_t k
        cdef int64_t up
        cdef Message message
        cdef Message* grown
        if not self.now <= at < INFINITY:
            raise ValueError(f"a message is delivered at a finite time not before now ({self.now}), "
                             f"not at {at}")
        if self.waiting == self.room:
            k = 64 if self.room == 0 else 2 * self.room
            grown = <Message*> realloc(self.heap, k * sizeof(Message))
            if grown == NULL:
                raise MemoryError(f"{k} messages under way")
            self.heap = grown
            self.room = k
        message.at = at
        message.order = self.sent
        message.tag = tag
        self.sent += 1
        k = self.waiting
        self.waiting += 1
        while k > 0:
            up = (k - 1) // 2
            if not before(&message, &self.heap[up]):
                break
            self.heap[k] = self.heap[up]
            k = up
        self.heap[k] = message
        return 0


cdef inline bint before(const Message* a, const Message* b) noexcept nogil:
    return a.at < b.at or (a.at == b.at and a.order < b.order)


cdef int64_t take(Policy policy) noexcept:
    """Remove the earliest message; its tag."""
    cdef Message* heap = policy.heap
    cdef int64_t tag = heap[0].tag
    cdef Message last
    cdef int64_t k = 0
    cdef int64_t child
    policy.waiting -= 1
    last = heap[policy.waiting]
    while True:
        child = 2 * k + 1
        if child >= policy.waiting:
            break
        if child + 1 < policy.waiting and before(&heap[child + 1], &heap[child]):
            child += 1
        if not before(&heap[child], &last):
            break
        heap[k] = heap[child]
        k = child
    heap[k] = last
    return tag


cdef class Queues:
    # The instances' FIFO queues: each a linked list of tuples, first = being executed.
    cdef int32_t k
    cdef int64_t[::1] first        # tuple, -1: idle
    cdef int64_t[::1] last
    cdef int64_t[::1] next         # by tuple
    cdef double[::1] ends          # of the first; infinity: idle
    cdef int32_t earliest          # instance whose first ends first, lowest id of equals

    def __init__(self, int32_t k, int64_t m):
        self.k = k
        self.first = np.full(k, -1, dtype=np.int64)
        self.last = np.full(k, -1, dtype=np.int64)
        self.next = np.full(m, -1, dtype=np.int64)
        self.ends = np.full(k, INFINITY, dtype=np.float64)
        self.earliest = 0

    cdef void find_earliest(self) noexcept nogil:
        cdef int32_t j
        cdef int32_t best = 0
        for j in range(1, self.k):
            if self.ends[j] < self.ends[best]:
                best = j
        self.earliest = best


cdef int advance(Policy policy, Queues queues, double until, const uint64_t[::1] words,
                 const double[::1] starts, const double[::1] ends) except -1:
    """Executions and messages up to and at `until`, in order."""
    cdef int32_t j
    cdef int64_t i
    while True:
        j = queues.earliest
        if policy.waiting and policy.heap[0].at < queues.ends[j]:
            if policy.heap[0].at > until:
                return 0
            policy.now = policy.heap[0].at
            policy.received(take(policy), policy.now)
        elif queues.ends[j] <= until and queues.first[j] >= 0:
            i = queues.first[j]
            queues.first[j] = queues.next[i]
            queues.ends[j] = ends[queues.first[j]] if queues.first[j] >= 0 else INFINITY
            queues.find_earliest()
            policy.now = ends[i]
            policy.executed(i, words[i], j, starts[i], ends[i])
        else:
            return 0


def simulate(Policy policy not None, int32_t instances, const double[::1] arrivals,
             const double[:, ::1] times, const uint64_t[::1] words):
    """Run a stream through a policy and its instances.

    `times`: (m, 1), the same on every instance, or (m, instances). Input is checked by the caller
    (ordstream/lab/simulation/queues.py).

    Thread safety: with the GIL. Ownership: new arrays. Returns: (instance int32, start float64, end float64)
    per tuple; -1, NaN, NaN for a dropped one. Raises: ValueError when the policy names an instance that is
    not there; what the policy raises.
    Cost: O(m k), ~30 ns per tuple beside the policy at k = 5.
    """
    cdef int64_t m = arrivals.shape[0]
    placed = np.full(m, DROPPED, dtype=np.int32)
    started = np.full(m, np.nan, dtype=np.float64)
    ended = np.full(m, np.nan, dtype=np.float64)
    cdef int32_t[::1] at = placed
    cdef double[::1] starts = started
    cdef double[::1] ends = ended
    cdef double[::1] free_at = np.full(instances, -INFINITY, dtype=np.float64)
    cdef bint uniform = times.shape[1] == 1
    cdef Queues queues = Queues(instances, m)
    cdef int64_t i
    cdef int32_t j
    cdef double now
    policy.started(instances)
    for i in range(m):
        now = arrivals[i]
        advance(policy, queues, now, words, starts, ends)
        policy.now = now
        j = policy.submit(i, words[i], now)
        if j == DROPPED:
            continue
        if not 0 <= j < instances:
            raise ValueError(f"the policy sent tuple {i} to instance {j}; there are {instances}, from 0, "
                             f"and -1 to drop it")
        at[i] = j
        starts[i] = now if now > free_at[j] else free_at[j]
        ends[i] = starts[i] + times[i, 0 if uniform else j]
        free_at[j] = ends[i]
        if queues.first[j] < 0:
            queues.first[j] = i
            queues.ends[j] = ends[i]
            queues.find_earliest()
        else:
            queues.next[queues.last[j]] = i
        queues.last[j] = i
    advance(policy, queues, INFINITY, words, starts, ends)
    return placed, started, ended
