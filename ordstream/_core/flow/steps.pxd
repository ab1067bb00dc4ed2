"""Steps of the final flush, and of marks that came with the rows: the ascending keys at which an operator
emitted, as bytes that compare like keys.

A pipeline that is cut over several nodes needs them: what the end of the stream makes a keyed operator emit
is in ascending key order across all nodes, so a row's place is its operator and its key. A run with steps
gives each step a serial of its own, behind the last tuple's, and keeps the step's key here.

a) Encoding, per key column: 0 for null, else 1 and the value: 8 bytes, most significant first, signed
   integers with the sign bit flipped, floats by their order (NaN last); strings with each zero byte followed
   by 255, ended by two zero bytes.
b) A log is written once, by the worker that completes the flush, then published. Memory ownership: the
   operator, until the run closes.
c) What a mark makes an operator emit comes by (time, key), across all nodes too: a step of a mark begins
   with its time, 8 bytes as a signed integer. Its serials are the mark's own (ingress.pxd, g): behind the
   first one the steps of the first operator, then those of the next. The logs of all operators and marks lie
   in one list; the worker that completes a mark in an operator pushes one there before it sends what the
   mark made. The reading thread takes them, and owns them then.
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

cdef struct MarkSteps:
    # Steps of one mark in one operator.
    MarkSteps* next
    int32_t index          # the operator's position in the core's chain
    StepLog log            # never `published`: the list is

cdef int steps_append(StepLog* log, const KeySpec* keys, const int64_t* time,
                      const char* record) noexcept nogil
cdef void steps_free(StepLog* log) noexcept nogil
cdef void mark_steps_push(a64* head, MarkSteps* steps) noexcept nogil
cdef MarkSteps* mark_steps_take(a64* head) noexcept nogil
cdef void mark_steps_free(a64* head) noexcept nogil
