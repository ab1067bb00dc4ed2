"""POSG and what it is compared with, as policies of the simulator.

Both sides of POSG (ordstream/_core/balance/posg and cost_learner) talk by the simulator's messages, each
`delay` under way; a request to an instance travels with its tuple. Sources: POSG, sections III and V-A.
"""
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.vector cimport vector
from ordstream._core.balance.count_min cimport TimeMatrices
from ordstream._core.balance.cost_learner cimport CostLearner, learner_reset, learner_update, time_copy
from ordstream._core.balance.posg cimport RUN, Request, Scheduler
from ordstream._core.lab.simulator cimport Policy

import numpy as np


cdef struct Reply:
    int32_t instance
    int64_t epoch
    double difference          # Delta


cdef class Posg(Policy):
    """POSG's scheduler and instances.

    Parameters
    ----------
    scheduler : Scheduler
    learners : list of CostLearner
        One per instance of the scheduler.
    delay : float
        Virtual time that a message to the scheduler takes.

    After a run `run_from` says how many tuples had been routed when the scheduler first came to RUN (-1:
    never), `matrices_at` the same, and the instance, for each pair of matrices received; `messages`: how
    many were sent, matrices and replies.
    """
    # Memory ownership: the two sides, and the messages under way. Used for one simulation.

    cdef readonly Scheduler scheduler
    cdef readonly list learners
    cdef readonly double delay
    cdef readonly int64_t run_from
    cdef readonly int64_t messages
    cdef readonly list matrices_at
    cdef dict matrices                     # tag -> (instance, version, matrices)
    cdef vector[Reply] replies             # tag -1 - n: the n-th
    cdef vector[deque[Request]] carried    # by instance: requests on their way, in order of their tuples
    cdef vector[double] began              # by instance: start of its first tuple; NaN before

    def __init__(self, Scheduler scheduler not None, list learners not None, double delay=0.0):
        cdef int32_t _j
        if len(learners) != scheduler.k:
            raise ValueError(f"a scheduler for {scheduler.k} instances needs as many learners, not "
                             f"{len(learners)}")
        if not 0 <= delay:
            raise ValueError(f"the delay of messages must not be negative: {delay}")
        self.scheduler = scheduler
        self.learners = list(learners)
        self.delay = delay
        self.matrices = {}
        self.matrices_at = []
        self.messages = 0
        self.run_from = 0 if scheduler.in_state == RUN else -1
        for _j in range(scheduler.k):
            self.carried.push_back(deque[Request]())
            self.began.push_back(NAN)

    cpdef int started(self, int32_t instances) except -1:
        if instances != self.scheduler.k:
            raise ValueError(f"the scheduler has {self.scheduler.k} instances, the simulated operator "
                             f"{instances}")
        return Policy.started(self, instances)

    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2:
        cdef int32_t op = self.scheduler.submit(word)
        if not self.scheduler.requests.empty():
            self.scheduler.requests.back().position = i
            self.carried[op].push_back(self.scheduler.requests.back())
            self.scheduler.requests.clear()
        return op

    cpdef int executed(self, int64_t i, uint64_t word, int32_t instance, double start, double end) except -1:
        cdef CostLearner learner = self.learners[instance]
        cdef TimeMatrices copied
        cdef Reply reply
        if self.began[instance] != self.began[instance]:
            self.began[instance] = start
        if not self.carried[instance].empty() and self.carried[instance].front().position == i:
            reply.instance = instance
            reply.epoch = self.carried[instance].front().epoch
            # Delta: wall clock at the instance since its first tuple, idle time included, minus C^.
            reply.difference = end - self.began[instance] - self.carried[instance].front().c_hat
            self.carried[instance].pop_front()
            self.replies.push_back(reply)
            self.send(end + self.delay, -<int64_t> self.replies.size())
            self.messages += 1
        if learner_update(learner, word, end - start):
            copied = TimeMatrices(learner.matrices.hashes)
            time_copy(learner.matrices, copied)
            learner_reset(learner)
            self.matrices[self.messages] = (instance, learner.sent, copied)
            self.send(end + self.delay, self.messages)
            self.messages += 1
        return 0

    cpdef int received(self, int64_t tag, double now) except -1:
        cdef Reply reply
        if tag < 0:
            reply = self.replies[-1 - tag]
            self.scheduler.reply_came(reply.instance, reply.epoch, reply.difference)
            if self.run_from < 0 and self.scheduler.in_state == RUN:
                self.run_from = self.scheduler.routed
        else:
            instance, version, matrices = self.matrices.pop(tag)
            self.scheduler.matrices_came(instance, version, <TimeMatrices> matrices)
            self.matrices_at.append((self.scheduler.routed, instance))
        return 0


cdef class RoundRobin(Policy):
    """Tuple i to instance i mod k."""

    cdef int32_t next_instance

    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2:
        cdef int32_t op = self.next_instance
        self.next_instance = op + 1 if op + 1 < self.instances else 0
        return op


cdef class FullKnowledge(Policy):
    """Greedy Online Scheduler on the true execution times: to the arg min of C, the time of all tuples sent
    there.

    Parameters: times (m, 1) or (m, k), as the simulation has them.
    """

    cdef const double[:, ::1] times
    cdef double[::1] c

    def __init__(self, const double[:, ::1] times not None):
        self.times = times

    cpdef int started(self, int32_t instances) except -1:
        self.c = np.zeros(instances)
        return Policy.started(self, instances)

    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2:
        cdef int32_t best = 0
        cdef int32_t op
        for op in range(1, self.instances):
            if self.c[op] < self.c[best]:
                best = op
        if i >= self.times.shape[0] or self.times.shape[1] not in (1, self.instances):
            raise ValueError(f"execution times of shape ({self.times.shape[0]}, {self.times.shape[1]}) do "
                             f"not fit tuple {i}")
        self.c[best] += self.times[i, best if self.times.shape[1] > 1 else 0]
        return best


cdef class LeastOutstanding(Policy):
    """To the instance with the fewest tuples sent and not yet executed, the lowest of equals: reactive, what
    it is told late it knows late.

    Parameters: delay, virtual time that the message of an execution takes.
    """

    cdef readonly double delay
    cdef int64_t[::1] outstanding

    def __init__(self, double delay=0.0):
        if not 0 <= delay:
            raise ValueError(f"the delay of messages must not be negative: {delay}")
        self.delay = delay

    cpdef int started(self, int32_t instances) except -1:
        self.outstanding = np.zeros(instances, dtype=np.int64)
        return Policy.started(self, instances)

    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2:
        cdef int32_t best = 0
        cdef int32_t op
        for op in range(1, self.instances):
            if self.outstanding[op] < self.outstanding[best]:
                best = op
        self.outstanding[best] += 1
        return best

    cpdef int executed(self, int64_t i, uint64_t word, int32_t instance, double start, double end) except -1:
        if self.delay > 0:
            return self.send(end + self.delay, instance)
        self.outstanding[instance] -= 1
        return 0

    cpdef int received(self, int64_t tag, double now) except -1:
        self.outstanding[tag] -= 1
        return 0
