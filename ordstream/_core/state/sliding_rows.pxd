"""The rows of sliding windows (sliding.pxd) as rows of state: contract kernel.pxd (f).

A row has the key, how many rows are in front and seen, then lists: times (where there are), flags, words;
then for each object (gathered.pxd) the values of the window that it looks at, oldest first.
"""
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.keyed_bucket cimport StateCalls

cdef StateCalls RING       # rows (key..., front, visible, lists...)

cdef void drop_ring(Kernel* k, void* bucket, char* state) noexcept nogil
