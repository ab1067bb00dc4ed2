"""Steps of the final flush: the ascending keys at which an operator emitted when the stream ended, as bytes
that compare like keys.

A pipeline that is cut over several nodes needs them: what the end of the stream makes a keyed operator emit
is in ascending key order across all nodes, so a row's place is its operator and its key. A run with steps
gives each step a serial of its own, behind the last tuple's, and keeps the step's key here.

a) Encoding, per key column: 0 for null, else 1 and the value: 8 bytes, most significant first, signed
   integers with the sign bit flipped, floats by their order (NaN last); strings with each zero byte followed
   by 255, ended by two zero bytes.
b) A log is written once, by the worker that completes the flush, then published. Memory ownership: the
   operator, until the run closes.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.state.keyed_state cimport KeySpec

cdef struct StepLog:
    # 1: complete; stored with release by the writer, loaded with acquire by the reader
    a64 published
    int64_t first_serial   # serial of step 0
    int64_t n              # steps
    int64_t* ends          # where each step's key ends in `bytes`
    int64_t room           # steps allocated
    char* bytes
    int64_t size
    int64_t capacity

cdef int steps_append(StepLog* log, const KeySpec* keys, const char* record) noexcept nogil
cdef void steps_free(StepLog* log) noexcept nogil
