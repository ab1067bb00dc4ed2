"""Exports: state that leaves a run at a snapshot marker.

a) A marker (SNAPSHOT, SUSPEND; ingress.pyx) travels in order and enters every bucket of a keyed operator, as
   a punctuation does. Who processes it there copies the bucket's state (`Kernel.state_export`) into batches
   in Arrow's layout and puts them here: the state behind the tuple in front of the marker, and no other
   bucket waits.
b) The ingress puts its clock here. So the egress, which meets a marker last, knows that all of the marker's
   state is here: whoever pushed it sent the marker on afterwards.
c) The reading thread takes everything, and sorts by the marker's number.
Memory ownership: `Exports` owns what was pushed until it is taken; then the taker does.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport ChunkPool, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.output_columns cimport Output

cdef enum:
    OF_INGRESS = -1

cdef struct Export:
    # What one bucket, or the ingress, has for one marker.
    Export* next
    int64_t marker         # the marker's number
    int32_t index          # the operator's position, or OF_INGRESS
    int32_t timed          # of the ingress: it has a clock, and that has started
    int64_t time           # of the ingress: the latest time
    int64_t served         # of the ingress: how many requests the marker answers
    int64_t at             # when it was made, by now_ns
    int64_t ns             # time that the copy took
    Output* rows           # linked by Output.next; NULL: none

cdef struct Exports:
    a64 head               # Export*, the newest first
    int32_t on             # 0: markers pass and nothing is taken along
    ChunkPool* pool        # where the batches count as in flight

cdef int export_clock(Exports* to, int64_t marker, int64_t served, int32_t timed,
                      int64_t time) noexcept nogil
cdef int export_state(Exports* to, Kernel* k, Worker* w, int32_t index, void* state, int64_t marker,
                      Failure* f) noexcept nogil
cdef Export* exports_take(Exports* of) noexcept nogil
cdef void export_free(Export* e) noexcept nogil
cdef void exports_free(Exports* of) noexcept nogil
cdef list exported_batches(Exports* of, schemas)
