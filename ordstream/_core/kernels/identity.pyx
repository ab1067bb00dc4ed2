"""The kernel that changes nothing: in front of a partitioned first operator, where splitting is all the
work, done in parallel."""
from ordstream._core.ground.chunk cimport Chunk, LayoutOwner, Worker
from ordstream._core.ground.kernel cimport ON_ERROR_FAIL, SL, Kernel, KernelOwner


cdef Chunk* identity_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Contract: kernel.pxd (a)."""
    return c


cdef class IdentityKernel(KernelOwner):
    """A stateless operator whose output is its input."""

    def __init__(self, LayoutOwner layout not None):
        self.input_layout = layout
        self.output_layout = layout
        self.kernel.kind = SL
        self.kernel.on_error = ON_ERROR_FAIL
        self.kernel.input = &layout.layout
        self.kernel.output = &layout.layout
        self.kernel.apply = identity_apply
