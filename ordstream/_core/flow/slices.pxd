"""A worker's time slice in one operator: take chunks or parts from the worklist, run the kernel, send what
it made."""
from libc.stdint cimport int64_t
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.ground.chunk cimport Worker

cdef bint operator_has_input(Operator* op) noexcept nogil
cdef int64_t operator_waiting(Operator* op) noexcept nogil
cdef void operator_run(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil
