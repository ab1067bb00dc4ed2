"""Test door: memory that the states of a bucket hold (state/held_memory.pxd). Used for testing only."""
from libc.stdint cimport int64_t
from libc.string cimport memset
from ordstream._core.ground.atomics cimport as_int, as_pointer
from ordstream._core.state.held_memory cimport (
    ORD_BLOCKS_KEPT, ORD_SPARE_MOST, SPARE_LEAST, Held, held_free, held_give, held_take,
)

BLOCKS_KEPT = ORD_BLOCKS_KEPT
LEAST, MOST = SPARE_LEAST, ORD_SPARE_MOST


cdef class PyHeld:
    """What a bucket has of it. Blocks are addresses.

    Thread safety: one thread. Memory ownership: blocks that were taken are the caller's to give back before
    the object dies.
    """
    cdef Held held

    def __dealloc__(self):
        held_free(&self.held)

    def take(self, int64_t size, int fill):
        """A block of `size` bytes, all of them `fill`."""
        cdef void* block = held_take(&self.held, size)
        if block == NULL:
            raise MemoryError
        memset(block, fill, <size_t> size)
        return as_int(block)

    def give(self, int64_t block, int64_t size):
        """The bytes of a block, which goes back."""
        cdef char* data = <char*> as_pointer(block)
        cdef bytes there = data[:size]
        held_give(&self.held, data, size)
        return there

    def free_spare(self):
        held_free(&self.held)

    @property
    def bytes(self):
        """In use."""
        return self.held.bytes

    @property
    def spare(self):
        """Bytes of spare blocks."""
        return self.held.spare.bytes
