"""The cap on the state of all operators of a run together (`max_state_bytes`).

After each part its bucket's holder adds what the bucket has grown by. The operator at whose row the sum is
too large fails there, whatever its error policy: the row is not at fault. Memory is counted as it is taken,
in steps, so at which row depends on buckets and workers.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.operator cimport Operator, StateBound
from ordstream._core.ground.chunk cimport Failure, Part, Worker

cdef StateBound* bound_new(Operator* operators, int32_t n, int64_t most) noexcept
cdef void bound_free(StateBound* bound) noexcept
cdef Failure* state_too_large(Operator* op, Worker* w, void* state, Part* part) noexcept nogil
