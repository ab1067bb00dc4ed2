"""Memory for those who can't cope without: kept from the first run on, given where C++ gets none.

Why: a state that grows takes memory to the last page, and ends its run in order. But pyarrow lets C++'s
exception out of functions that may not throw: whoever just then hands the core a batch, or takes one, ends
the process. The reserve lets such a thread go on until the worker has failed too.

a) `std::set_new_handler` is the door: C++ calls it where `operator new` gets no memory, then tries again. A
   handler that was there before is called when nothing is left to give; without one, C++ throws as ever.
b) The core's operators leave the reserve alone (reserve_leave), or the state would take that too. Functions
   of the user's, and Arrow's, that they call may have it.
c) Pages that nobody has touched take no memory, but count where it is bounded (RLIMIT_AS, strict
   overcommit): what is unmapped is there for others.

Thread safety: any thread. Ownership: the process's. On Windows there is no reserve.
"""

# At the start of a run: fill up what was given away, as far as there is memory. Cost: 16 loads.
cdef void reserve_fill() noexcept nogil
# Whether the calling thread, without memory, leaves the reserve to others (a new thread doesn't). Also makes
# the room for this thread's answer while there is memory. Returns what it was. Cost: ~2 ns.
cdef bint reserve_leave(bint leave) noexcept nogil
# Slices that are there to be given. For tests.
cdef int reserve_slices() noexcept nogil
