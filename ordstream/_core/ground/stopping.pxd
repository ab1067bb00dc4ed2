"""Leaving a long loop when the run is stopped.

A flush, a merge or a sort may go over millions of keys without a return to the scheduler. Each loop over
keys (or over the rows of one unit, of which there is no bound) checks the stop flag every STOP_EVERY steps,
and leaves when it is set. What the loop has made is then dropped: nothing half made, and nothing begun after
a stop, is delivered (flow/parts.pyx, process_part).

Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int64_t
from ordstream._core.ground.atomics cimport load_relaxed
from ordstream._core.ground.chunk cimport Worker

cdef enum:
    # keys between two looks: well below a millisecond each, but for a user's function, which looks at every
    # key
    STOP_EVERY = 4096


cdef inline bint stop_asked(Worker* w) noexcept nogil:
    """Whether this worker should give up what it does: the run was stopped, or (workers = 0) Ctrl-C came,
    which stops it.

    Thread safety: the worker. Ownership: none. Cost: a load; workers = 0: and a call of `look`.
    """
    if w.stop == NULL:                                        # outside a run
        return False
    # a hint: the worker loop's acquire load decides
    if load_relaxed(w.stop) != 0:
        return True
    return w.look != NULL and w.look(w)


cdef inline bint stop_due(Worker* w, int64_t step) noexcept nogil:
    """stop_asked at every STOP_EVERY-th step, from step 0 on. Cost: a test, else that of stop_asked."""
    return step & (STOP_EVERY - 1) == 0 and stop_asked(w)


cdef inline int worker_stops(void* worker) noexcept nogil:
    """stop_asked for C++ code."""
    return stop_asked(<Worker*> worker)
