"""Operator "sample": narrows the selection to rows whose serials' hash lies in a share."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport FAIL_MEMORY, Chunk, Worker, chunk_alloc, row_slot, slot_serial
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, owner_setup
from ordstream._core.ground.mixing cimport mix64

cdef struct Share:
    # Read-only while a run lasts. Memory ownership: SampleKernel.
    uint64_t seed          # mixed
    double fraction


cdef Chunk* sample_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Keep a share of the rows. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: narrows `c` itself; a new selection lies in its arena. Returns: c.
    Cost: ~3 ns per row.
    """
    cdef const Share* x = <const Share*> k.ctx
    cdef int32_t* sel = c.sel
    cdef int32_t n = 0
    cdef int32_t slot
    cdef int32_t i
    if c.n == 0:
        return c
    if sel == NULL:
        sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
        if sel == NULL:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
    for i in range(c.n):
        slot = row_slot(c, i)
        sel[n] = slot
        n += <double> (mix64(<uint64_t> slot_serial(c, slot) ^ x.seed) >> 11) * (1.0 / (<int64_t> 1 << 53)) \
            < x.fraction
    c.sel = sel
    c.n = n
    return c


cdef class SampleKernel(KernelOwner):
    """Operator "sample": attributes {"fraction": float, "seed": int}."""

    cdef Share share

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        self.share.seed = mix64(operator.seed)
        self.share.fraction = operator.fraction
        self.kernel.ctx = <void*> &self.share
        self.kernel.apply = sample_apply
