"""The operator that makes the second output of another one. See rejected.pyx."""
from ordstream._core.ground.chunk cimport View
from ordstream._core.ground.kernel cimport KernelOwner
from ordstream._core.ground.rejections cimport Rejections, RejectionTable

cdef struct RejectedContext:
    # Read-only while a run lasts. Memory ownership: RejectedKernel.
    RejectionTable* table
    View name              # of the operator that rejects
    int told               # with columns that tell the error

cdef class RejectedKernel(KernelOwner):
    cdef RejectedContext context
    cdef Rejections rejections
    cdef bytes name
