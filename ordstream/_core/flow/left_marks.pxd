"""Marks that leave a node: what an operator that moves a clock shows (`reorder`), where operators in other
nodes look at that clock.

The writer of the output puts a mark here when it comes out of the last operator, with its place among the
rows: so many outputs of its tuple are in front. That is before it lets others see the rows behind, or that
the tuple is done. So who reads either first finds all marks in front of it here.
"""
from libc.stdint cimport int64_t
from ordstream._core.ground.atomics cimport a64

cdef struct LeftMark:
    LeftMark* next
    int64_t serial
    int64_t index          # outputs of this serial in front
    int64_t time

cdef int left_mark_put(a64* head, int64_t serial, int64_t index, int64_t time) noexcept nogil
cdef list left_marks_taken(a64* head)
cdef void left_marks_free(a64* head) noexcept nogil
