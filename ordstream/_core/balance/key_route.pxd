"""From key words to instances: the deployed map of DKG (Listing 3.2), and choosing the less loaded of two
(PKG).

A deployed map is two tables: heavy words with their instance (open addressing, at most a quarter full, so
that a sparse key nearly always meets an empty place at once), and the buckets of one 2-universal function.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.balance.hashing cimport TwoUniversal

cdef struct Heavy:
    uint64_t word
    int32_t first              # instance; -1: free place
    int32_t second             # the other half's instance under DKG_PKG, else = first

cdef class DeployedMap:
    # Immutable. Thread safety: any thread, but `route_loaded` by one at a time per `received`. Memory
    # ownership: `heavy`, freed with the object; `buckets` is a memoryview that keeps its array.
    cdef readonly TwoUniversal hashes
    cdef readonly int32_t instances
    cdef Heavy* heavy
    cdef uint64_t mask                 # places - 1
    cdef readonly int64_t heavy_words  # places taken
    cdef const int32_t[::1] buckets
    cdef const Heavy* find(self, uint64_t word) noexcept nogil
