"""The events of a simulated node (sim_worker.pyx)."""
from ordstream._core.lab.sim_node cimport SimNode

cdef int sim_advance(SimNode* s, double until) noexcept nogil
