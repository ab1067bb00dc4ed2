"""Discrete-event simulation of one operator in virtual time: k instances, each with a FIFO queue.

A policy is asked for each tuple which instance takes it.

a) A tuple i arrives at arrivals[i]; the policy names its instance, or drops it. The instance works its queue
   in order: start = max(arrival, end of the tuple before it there), end = start + time of the tuple on that
   instance.
b) When a tuple has been executed the policy's instance side hears of it (`executed`), and may `send`
   messages that the scheduler side hears of after a delay (`received`). The other direction needs no
   message: what a scheduler tells an instance travels with a tuple (POSG's piggy-backed requests), so the
   policy keeps it by the tuple's number.
c) What happens at one instant happens in this order: executions (lowest instance first), messages (in the
   order sent), arrivals.

A policy is both sides in one object, so a Python class can be one; a policy in Cython overrides the same
methods without the GIL's calls in between: ~50 ns per tuple instead of ~1 us.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef struct Message:
    double at                  # virtual time of delivery
    int64_t order              # sent as the how-manieth
    int64_t tag                # the policy's own

cdef class Policy:
    # Thread safety: one simulation at a time, with the GIL. Memory ownership: `heap`, freed with the object.
    cdef readonly int32_t instances    # k, set when a simulation begins
    cdef Message* heap                 # binary heap by (at, order)
    cdef int64_t waiting               # messages in it
    cdef int64_t room
    cdef int64_t sent
    cdef double now                    # virtual time; a message cannot be sent into the past

    cpdef int started(self, int32_t instances) except -1
    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2
    cpdef int executed(self, int64_t i, uint64_t word, int32_t instance, double start, double end) except -1
    cpdef int received(self, int64_t tag, double now) except -1
    cpdef int send(self, double at, int64_t tag) except -1
