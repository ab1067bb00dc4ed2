"""The one mixer of 64-bit words: what hash maps, sketches, deployed maps and the split into buckets share.

Inline only: there is no module of this name at run time. Its values are part of saved models and of the
partitioning: never change it.
"""
from libc.stdint cimport uint64_t


cdef inline uint64_t mix64(uint64_t x) noexcept nogil:
    """SplitMix64's output function (public domain, after D. Stafford). Bijective: both halves depend on
    every input bit.

    Thread safety: pure. Ownership: none. Cost: ~1 ns.
    """
    x = x + <uint64_t> 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t> 0x94D049BB133111EB
    return x ^ (x >> 31)
