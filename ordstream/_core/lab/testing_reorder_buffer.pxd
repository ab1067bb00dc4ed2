"""Test door of the reorder buffer; a delivery that checks what it is given, which the worklists' door uses
too."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.atomics cimport a64

cdef struct Releases:
    # What deliver sees; touched by the flag's (lock's) holder only, but for the atomics.
    int64_t* delivered     # first units delivered
    int64_t kept           # room in `delivered`
    int64_t count
    int64_t expected       # next unit in a loop (units are tickets there); 0: not a loop
    int64_t wrong          # out of order
    int64_t entered_twice
    int64_t refused
    a64 inside
    a64 room               # units that may still be delivered; negative: no bound
    uint64_t rng
    int32_t refuse_every   # about one delivery in so many is refused; 0: none

cdef int deliver_test(void* context, void* unit) noexcept nogil
