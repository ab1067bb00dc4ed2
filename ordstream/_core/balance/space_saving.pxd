"""Space-Saving on key words (Metwally, Agrawal, El Abbadi), with the stream-summary: O(1) per tuple.

a) `capacity` counters. A word that has a counter increments it; one that has none takes the counter with the
   least count, inherits that count as its error, and increments it. Ties: the counter that reached the least
   count first.
b) Counters with one count hang on one *group*, groups form a list in ascending count: incrementing moves a
   counter to the next group, which is a few pointer changes. Links are indexes; -1 is none.
c) Words are found by an open-addressing table (linear probing, deletion by shifting back) of at least twice
   the capacity.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef struct Counter:
    uint64_t word
    int64_t error              # count it inherited: count - error <= true count <= count
    int32_t group
    int32_t next               # in its group, oldest first
    int32_t previous

cdef struct Group:
    int64_t count              # of each of its counters
    int32_t first              # oldest
    int32_t last
    int32_t next               # next larger count
    int32_t previous

cdef class StreamSummary:
    # Memory ownership: the four blocks, freed with the object. Thread safety: one writer, no reader
    # meanwhile.
    cdef readonly int32_t capacity
    cdef readonly int32_t used         # counters in use
    cdef readonly int64_t total        # tuples counted
    cdef Counter* counters             # capacity
    # capacity + 1: a move may need the new group before the old one is empty
    cdef Group* groups
    cdef int32_t* table                # counter + 1, 0: free
    cdef uint64_t mask                 # table size - 1
    # per counter: row of the last batch at which its word came in, -1: before
    cdef int64_t* entered
    cdef int32_t lowest                # group with the least count
    cdef int32_t free_group            # list of free groups, linked by next

    cdef int32_t _find(self, uint64_t word) noexcept nogil
    cdef void _place(self, uint64_t word, int32_t counter) noexcept nogil
    cdef void _remove(self, uint64_t word) noexcept nogil
    cdef void _attach(self, int32_t counter, int64_t count, int32_t after) noexcept nogil
    cdef int32_t _detach(self, int32_t counter) noexcept nogil
    cdef int32_t _count(self, uint64_t word, int64_t count, int64_t row) noexcept nogil
    cdef void _empty(self) noexcept nogil
