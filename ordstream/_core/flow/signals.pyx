"""Signals where the caller's thread works in the core itself (signals.pxd)."""
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject, Py_INCREF
from libc.stdint cimport int64_t
from ordstream._core.flow.runtime cimport waits_of_new_runs
from ordstream._core.ground.atomics cimport store_release
from ordstream._core.ground.chunk cimport Worker
from ordstream._core.ground.threads cimport now_ns

cdef enum:
    SIGNALS_EVERY_NS = 20_000_000  # between two looks


cdef int take_signals(Worker* w) noexcept with gil:
    """Run the handlers of signals that came; where one raises, keep that and stop the run. 1: stopped."""
    cdef int stopped = 0
    try:
        PyErr_CheckSignals()
    except BaseException as raised:
        Py_INCREF(raised)
        w.raised = <void*> <PyObject*> raised                 # until Run.work raises it
        store_release(w.stop, 1)                              # pairs with load_acquire in finished()
        stopped = 1
    return stopped


cdef int look_for_signals(Worker* w) noexcept nogil:
    """Worker.look of workers = 0. Python runs no handler while its thread is in the core, and a flush of
    millions of keys takes seconds.

    Returns: 1 where the run was stopped. Thread safety: the caller's thread. Cost: a reading of the clock;
    every 20 ms the GIL.
    """
    cdef int64_t now = now_ns()
    if waits_of_new_runs().look != NULL and waits_of_new_runs().look(w):
        return 1
    if now < w.look_at:
        return 0
    w.look_at = now + SIGNALS_EVERY_NS
    return take_signals(w)
