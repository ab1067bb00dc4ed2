"""Signals of a run with workers = 0, whose only thread is the caller's, inside the core."""
from ordstream._core.ground.chunk cimport Worker

cdef int look_for_signals(Worker* w) noexcept nogil
