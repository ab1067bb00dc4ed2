"""Parts: the rows of one chunk that belong to one bucket (a stateful operator's chunk is one part) go
through the kernel.

The worker that finishes a chunk's last part assembles what all its parts made and sends it.
"""
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.ground.chunk cimport Part, Worker

cdef void process_part(Operator* op, Worker* w, void* state, Part* part, Slice* slice) noexcept nogil
