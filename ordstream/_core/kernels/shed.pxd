"""The shed stage's kernel. The run finds its `ShedControl` in `Kernel.shed` and connects it with the
operator that it protects."""
from libc.stdint cimport int32_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.kernel cimport KernelOwner
from ordstream._core.flow.shedding cimport ShedControl

cdef enum:
    SHED_KEYS = 16             # key columns, at most

cdef struct ShedContext:
    ShedControl control
    int32_t ncols              # key columns: index, PhysicalType, 1 where bytes are text
    int32_t[SHED_KEYS] column
    int32_t[SHED_KEYS] type
    int32_t[SHED_KEYS] text
    a64 seen_serial            # of the last row of the last chunk, and how many rows of it there were
    a64 seen_rows

cdef class ShedKernel(KernelOwner):
    # Memory ownership: the context, the log, the side output; the sketches through `sketches`.
    cdef ShedContext* context
    cdef object sketches
    cdef object replay
