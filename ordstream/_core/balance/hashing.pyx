"""Key words and 2-universal hash functions. See hashing.pxd for the design."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

import numpy as np

cdef uint64_t PRIME = <uint64_t> 0x1FFFFFFFFFFFFFFF                 # 2^61 - 1
cdef uint64_t GOLDEN = <uint64_t> 0x9E3779B97F4A7C15

NULL_WORD = null_word()


cdef uint64_t word_of_key(object key) except? 0:
    """Word of one Python key: int, str, bytes, float, None, or a tuple of them.

    Thread safety: with the GIL. Ownership: none. Returns: the word. Raises: TypeError for another type,
    OverflowError for an integer outside 64 bits. Cost: 20-60 ns.
    """
    cdef Py_ssize_t size
    cdef const char* text
    cdef uint64_t h
    if isinstance(key, int) or isinstance(key, np.integer):
        try:
            return <uint64_t> <int64_t> key if key < 0 else <uint64_t> key
        except OverflowError:
            raise OverflowError("a key that is an integer lies between -2^63 and 2^64 - 1; this one has "
                                f"{key.bit_length()} bits") from None
    if isinstance(key, str):
        text = PyUnicode_AsUTF8AndSize(key, &size)
        return bytes_word(text, size, True)
    if isinstance(key, bytes):
        return bytes_word(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), False)
    if key is None:
        return null_word()
    if isinstance(key, float) or isinstance(key, np.floating):
        return float_word(key)
    if isinstance(key, (bool, np.bool_)):
        return 1 if key else 0
    if isinstance(key, tuple):
        if not key:
            raise TypeError("a key cannot be an empty tuple")
        if len(key) == 1:
            return word_of_key(key[0])
        h = GOLDEN
        for part in key:
            h = joined_word(h, word_of_key(part))
        return h
    raise TypeError(f"a key is an int, str, bytes, float, None or a tuple of them, not "
                    f"{type(key).__name__}: {key!r:.80}")


def word_of(object key):
    """Word of one Python key, as an int in [0, 2^64). See `word_of_key`."""
    return word_of_key(key)


def words_of_list(object keys):
    """Words of a sequence of Python keys, uint64 array. See `word_of_key`."""
    out = np.empty(len(keys), dtype=np.uint64)
    cdef uint64_t[::1] to = out
    cdef Py_ssize_t i = 0
    for key in keys:
        to[i] = word_of_key(key)
        i += 1
    return out


def words_of_texts(const int64_t[::1] offsets, const uint8_t[::1] data, bint text):
    """Words of strings (`text`) or bytes in Arrow's layout: value i is data[offsets[i]:offsets[i + 1]].

    Thread safety: pure; runs without the GIL. Ownership: a new array. Returns: uint64 array. Cost: 3-5 ns
    per short value.
    """
    cdef int64_t n = offsets.shape[0] - 1
    out = np.empty(n, dtype=np.uint64)
    cdef uint64_t[::1] to = out
    cdef const char* base = <const char*> &data[0] if data.shape[0] else NULL
    cdef int64_t i
    with nogil:
        for i in range(n):
            to[i] = bytes_word(base + offsets[i] if base != NULL else NULL, offsets[i + 1] - offsets[i],
                               text)
    return out


def words_of_floats(const double[::1] values):
    """Words of floats, uint64 array. -0.0 is the same key as 0.0; all NaNs are one key."""
    out = np.empty(values.shape[0], dtype=np.uint64)
    cdef uint64_t[::1] to = out
    cdef Py_ssize_t i
    with nogil:
        for i in range(values.shape[0]):
            to[i] = float_word(values[i])
    return out


def combined_words(list columns):
    """Words of composite keys from the words of their columns (uint64 arrays of one length), in order."""
    if len(columns) == 1:
        return columns[0]
    cdef const uint64_t[::1] part
    cdef Py_ssize_t i
    out = np.full(len(columns[0]), GOLDEN, dtype=np.uint64)
    cdef uint64_t[::1] to = out
    for column in columns:
        part = column
        with nogil:
            for i in range(to.shape[0]):
                to[i] = joined_word(to[i], part[i])
    return out


cdef uint64_t draw(uint64_t* state, uint64_t least) noexcept nogil:
    # A uniform number from [least, p): the top 61 bits of SplitMix64's next number; in the rare case that
    # they lie outside, the next one is drawn.
    cdef uint64_t drawn
    while True:
        state[0] = state[0] + GOLDEN
        drawn = mix64(state[0]) >> 3
        if least <= drawn < PRIME:
            return drawn


cdef class TwoUniversal:
    """`rows` hash functions from key words to [0, columns), drawn from a 2-universal family by a seed.

    h(x) = ((a_low x_low + a_high x_high + b) mod p) mod columns with p = 2^61 - 1, x_low and x_high the
    32-bit halves of x; for integer keys below 2^32 that is ((a x + b) mod p) mod columns (DKG, section 3.1).
    For x != y, P{h(x) = h(y)} <= 1/columns + columns / (4 p^2) over the choice of h.

    Parameters
    ----------
    rows : int
        1 to 64.
    columns : int
        1 to 2^31 - 1.
    seed : int
        Equal seeds draw equal functions, in every process and version.
    """

    def __init__(self, int32_t rows, int64_t columns, seed=0):
        cdef uint64_t state
        cdef int32_t i
        if not 1 <= rows <= HASH_ROWS:
            raise ValueError(f"rows must be 1 to {HASH_ROWS}, not {rows}")
        if not 1 <= columns <= 0x7FFFFFFF:
            raise ValueError(f"columns must be 1 to 2^31 - 1, not {columns}")
        self.rows = rows
        self.columns = columns
        state = mix64(<uint64_t> (int(seed) & 0xFFFFFFFFFFFFFFFF))
        for i in range(rows):
            self.a_low[i] = draw(&state, 1)
            self.a_high[i] = draw(&state, 1)
            self.b[i] = draw(&state, 0)

    @staticmethod
    def from_coefficients(int64_t columns, coefficients):
        """The functions with these coefficients, (a_low, a_high, b) per row, as `coefficients` gives
        them."""
        cdef TwoUniversal made = TwoUniversal(len(coefficients), columns)
        cdef int32_t i
        for i, (a_low, a_high, b) in enumerate(coefficients):
            if not (0 <= a_low < PRIME and 0 <= a_high < PRIME and 0 <= b < PRIME):
                raise ValueError(f"coefficients of row {i} are not below 2^61 - 1")
            made.a_low[i] = a_low
            made.a_high[i] = a_high
            made.b[i] = b
        return made

    @property
    def coefficients(self):
        """(a_low, a_high, b) per row."""
        return [(self.a_low[i], self.a_high[i], self.b[i]) for i in range(self.rows)]

    def cells(self, const uint64_t[::1] words, int32_t row=0):
        """h_row(word) for every word: int32 array in [0, columns).

        Thread safety: pure; runs without the GIL. Ownership: a new array. Cost: 3-10 ns per word.
        """
        if not 0 <= row < self.rows:
            raise ValueError(f"row must be 0 to {self.rows - 1}, not {row}")
        out = np.empty(words.shape[0], dtype=np.int32)
        cdef int32_t[::1] to = out
        cdef Py_ssize_t i
        with nogil:
            for i in range(words.shape[0]):
                to[i] = <int32_t> universal_cell(self, row, words[i])
        return out

    cdef bint same_as(self, TwoUniversal other) noexcept:
        cdef int32_t i
        if self.rows != other.rows or self.columns != other.columns:
            return False
        for i in range(self.rows):
            if (self.a_low[i] != other.a_low[i] or self.a_high[i] != other.a_high[i]
                    or self.b[i] != other.b[i]):
                return False
        return True

    def __eq__(self, other):
        return isinstance(other, TwoUniversal) and self.same_as(other)

    def __hash__(self):
        return hash((self.columns, tuple(self.coefficients)))

    def __reduce__(self):
        return (TwoUniversal.from_coefficients, (self.columns, self.coefficients))
