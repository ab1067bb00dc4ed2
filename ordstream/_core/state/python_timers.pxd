"""Timers of Python process functions: a declared field of a key's state holds the time of its timer.

a) A timer fires at the first mark of the clock at or after its time, marks put back to multiples of
   `period`. A function may set one only behind its tuple's time: so no mark that was there before could have
   fired it, and what fires does not depend on marks that others asked for. `on_timer` sets one behind the
   time of that which fires; up to the mark it fires at this mark, too, in its place by (time, key).
b) A bucket has a heap of (time, place of the state, slot of the key), in `PythonBucket.timers`. Entries stay
   where a timer is changed; one is true if the state's field still says so. Where keys come as rows or
   leave, or most entries are no longer true, the heap is made anew at the next mark (`timers_known`). So a
   mark costs what fires, and a comparison.
Everything here needs the GIL. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.key_spec cimport KeySpec
from ordstream._core.state.python_rows cimport PythonBucket
from ordstream._core.state.python_state cimport Callbacks, State

cdef class Timers:
    cdef object on_timer
    cdef str name                    # of the field
    cdef object type
    cdef object zero
    cdef int32_t field
    cdef int32_t clock               # input column
    cdef int32_t clock_type
    cdef int64_t period
    cdef int64_t due(self, State state) except? -1
    cdef int64_t armed(self, State state, object before, const Chunk* c, int32_t slot) except? -1
    cdef int put(self, PythonBucket* b, int64_t at, int64_t* record) except -1
    cdef int find(self, Kernel* k, PythonBucket* b) except -1
    cdef list firing(self, Kernel* k, PythonBucket* b, int64_t mark)
    cdef int fire(self, Callbacks states, Kernel* k, Worker* w, PythonBucket* b, Chunk* punctuation,
                  Chunk* out, Failure* f) noexcept
    cdef bint run(self, Callbacks states, list due, int64_t mark, Kernel* k, Worker* w, PythonBucket* b,
                  Chunk* punctuation, Chunk* out, Failure* f) except -1

cdef class Firing:
    # A timer that fires; ordered by (time, key).
    cdef int64_t at
    cdef char* record                # of its key, or the one record of an operator without a key
    cdef const KeySpec* keys         # NULL: no key
    cdef State state
    cdef int64_t* place              # of its state
