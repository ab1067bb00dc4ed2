"""CallCost: what one call of a kernel takes whatever its rows, such as a model's `predict`, a frame that is
made for a function, or a call of Arrow.

A chunk size that aims at so much work takes this for work of the rows: they look dearer in small chunks,
chunks become smaller for it, and end at one row. The least times of calls of few and of many rows tell the
two apart. A few slow rows, or a busy machine, don't: they change means, and seldom the least.
"""
from libc.stdint cimport int32_t, int64_t

cdef enum:
    SIZES = 16             # numbers of rows, by powers of two; the last has all above

cdef struct LeastCall:
    int64_t rows           # 0: there was none
    double ns

cdef struct CallCost:
    # Of the calls since `left` was set, and of those in the generation before.
    LeastCall[16] now
    LeastCall[16] before
    int32_t left           # calls until the next generation
    int32_t warm           # 0: nothing was called yet; a first call may import and compile
    double fixed           # the answer, ns; what was known stays until more is
    double row             # what a row takes beside that, ns, where nothing holds it up
    double parts           # calls that a chunk is divided into: buckets of a partitioned operator
    double calls           # decayed: how many are behind OperatorStats.kernel_ns

cdef void call_cost_init(CallCost* c, int32_t parts) noexcept nogil
cdef void call_cost_note(CallCost* c, int64_t rows, double ns) noexcept nogil
cdef bint call_cost_known(CallCost* c) noexcept nogil
cdef int64_t call_cost_most(const CallCost* c) noexcept nogil
