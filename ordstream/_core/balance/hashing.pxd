"""Key words and 2-universal hash functions: what the sketches and the deployed maps share.

A key becomes one 64-bit *word* once; sketches and maps work on words only. An integer is its own word (two's
complement), so that the hash functions below act on integer keys as the papers write them; strings, bytes,
floats, nulls and composite keys are hashed to their word. The same key has the same word in every process
and on every little-endian machine.

a) The 2-universal family is Carter and Wegman's ((a x + b) mod p) mod c over the field of p = 2^61 - 1
   elements. The prime must lie above the key range, and keys have 64 bits; so a word is read as two 32-bit
   digits and each digit has its own multiplier: ((a_low x_low + a_high x_high + b) mod p) mod c. For integer
   keys below 2^32 that is the textbook formula.
b) For two different words the pair of values before "mod c" is uniform over p x p, hence P{h(x) = h(y)} <=
   1/c + c/(4 p^2).
c) Coefficients come from SplitMix64 of a seed (b = draw below p), not from a library's generator: a seed
   means the same functions for good, and a serialised sketch carries the coefficients themselves.
"""
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.mixing cimport mix64

cdef extern from "key_tools.hpp" nogil:
    uint64_t ord_hash_bytes(const char* p, int64_t n, uint64_t seed)

cdef enum:
    HASH_ROWS = 64             # functions of one family, at most


cdef inline uint64_t null_word() noexcept nogil:
    return <uint64_t> 0x1B873593CC9E2D51


cdef inline uint64_t bytes_word(const char* data, int64_t size, bint text) noexcept nogil:
    """Word of a string (`text`) or of bytes: "a" and b"a" are different keys. Pure. Cost: 3-5 ns where it is
    short."""
    return mix64(ord_hash_bytes(data, size,
                                <uint64_t> 0x9E3779B97F4A7C15 if text else <uint64_t> 0xD1B54A32D192ED03))


cdef inline uint64_t float_word(double v) noexcept nogil:
    """Word of a float: -0.0 and 0.0 are one key, so are all NaNs, as Arrow's equality of keys has it.
    Pure."""
    cdef uint64_t bits = <uint64_t> 0x7FF8000000000000
    if v == 0.0:
        v = 0.0
    if not isnan(v):
        memcpy(&bits, &v, 8)
    return mix64(bits ^ <uint64_t> 0x9E3779B97F4A7C15)


cdef inline uint64_t joined_word(uint64_t before, uint64_t part) noexcept nogil:
    """Composite keys: the words of the columns, in order, folded from 0x9E3779B97F4A7C15. Pure."""
    return mix64(before ^ mix64(part))


cdef inline uint64_t times_digit(uint64_t a, uint64_t digit) noexcept nogil:
    """a * digit mod p, not fully reduced (< 2^63), for a < p and digit < 2^32; p = 2^61 - 1.

    Thread safety: pure. Ownership: none. Returns: a value congruent to the product. Cost: two
    multiplications, no 128-bit type.
    """
    cdef uint64_t high = (a >> 32) * digit          # < 2^61; counts 2^32 each, and 2^61 = 1 mod p
    cdef uint64_t low = (a & <uint64_t> 0xFFFFFFFF) * digit
    return (((high << 32) & <uint64_t> 0x1FFFFFFFFFFFFFFF) + (high >> 29)
            + (low & <uint64_t> 0x1FFFFFFFFFFFFFFF) + (low >> 61))


cdef inline uint64_t universal_field(uint64_t a_low, uint64_t a_high, uint64_t b,
                                     uint64_t word) noexcept nogil:
    """(a_low x_low + a_high x_high + b) mod p for a word x = (x_high, x_low).

    Thread safety: pure. Ownership: none. Returns: a value in [0, p). Cost: 2-3 ns.
    """
    cdef uint64_t h = times_digit(a_low, word & <uint64_t> 0xFFFFFFFF) + b
    cdef uint64_t high = word >> 32
    h = (h & <uint64_t> 0x1FFFFFFFFFFFFFFF) + (h >> 61)
    if high:
        h = h + times_digit(a_high, high)
        h = (h & <uint64_t> 0x1FFFFFFFFFFFFFFF) + (h >> 61)
    if h >= <uint64_t> 0x1FFFFFFFFFFFFFFF:
        h = h - <uint64_t> 0x1FFFFFFFFFFFFFFF
    return h


cdef class TwoUniversal:
    # `rows` functions from words to [0, columns). Immutable. Thread safety: any thread. Memory ownership:
    # inline arrays.
    cdef readonly int32_t rows
    cdef readonly int64_t columns
    cdef uint64_t a_low[HASH_ROWS]
    cdef uint64_t a_high[HASH_ROWS]
    cdef uint64_t b[HASH_ROWS]
    cdef bint same_as(self, TwoUniversal other) noexcept

cdef inline int64_t universal_cell(TwoUniversal h, int32_t row, uint64_t word) noexcept nogil:
    """h_row(word), in [0, columns). Thread safety: pure. Ownership: none. Cost: 3-10 ns (one division)."""
    return <int64_t> (universal_field(h.a_low[row], h.a_high[row], h.b[row], word) % <uint64_t> h.columns)

cdef uint64_t word_of_key(object key) except? 0
