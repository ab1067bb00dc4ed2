"""Key words: the normal form of a fixed-width value of a key, in 64 bits, and back.

Integers, dates and bool widen to int64, floats to float64, with -0.0 as 0.0 and one NaN.

Thread safety: pure.
"""
from libc.math cimport isnan
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport (
    PT_F32, PT_F64, PT_I8, PT_I16, PT_I32, PT_I64, PT_U16, PT_U32, PT_U64, Chunk,
)
from ordstream._core.ground.key_spec cimport KeySpec


cdef inline uint64_t float_word(double v) noexcept nogil:
    cdef uint64_t bits
    if v == 0.0:
        return 0
    if isnan(v):
        return <uint64_t> 0x7FF8000000000000
    memcpy(&bits, &v, 8)
    return bits


cdef inline uint64_t word_at(int32_t type, const char* data, int32_t row) noexcept nogil:
    """Normal form of a fixed-width value."""
    if type == PT_I64 or type == PT_U64:
        return (<const uint64_t*> data)[row]
    if type == PT_I32:
        return <uint64_t> <int64_t> (<const int32_t*> data)[row]
    if type == PT_F64:
        return float_word((<const double*> data)[row])
    if type == PT_F32:
        return float_word(<double> (<const float*> data)[row])
    if type == PT_U32:
        return (<const uint32_t*> data)[row]
    if type == PT_I16:
        return <uint64_t> <int64_t> (<const int16_t*> data)[row]
    if type == PT_I8:
        return <uint64_t> <int64_t> (<const int8_t*> data)[row]
    if type == PT_U16:
        return (<const uint16_t*> data)[row]
    return (<const uint8_t*> data)[row]


cdef inline void word_put(int32_t type, char* data, int64_t index, uint64_t word) noexcept nogil:
    """Write a value whose normal form is `word`."""
    cdef double real
    if type == PT_I64 or type == PT_U64 or type == PT_F64:
        (<uint64_t*> data)[index] = word
    elif type == PT_I32 or type == PT_U32:
        (<uint32_t*> data)[index] = <uint32_t> word
    elif type == PT_F32:
        memcpy(&real, &word, 8)
        (<float*> data)[index] = <float> real
    elif type == PT_I16 or type == PT_U16:
        (<uint16_t*> data)[index] = <uint16_t> word
    else:
        (<uint8_t*> data)[index] = <uint8_t> word


cdef inline bint are_words(const KeySpec* ks, const char* record) noexcept nogil:
    """Whether the key of a record is integers of 64 bits, none of them null."""
    return ks.words and (<const uint64_t*> record)[0] == 0


cdef inline void words_store(const KeySpec* ks, const char* record, Chunk* out,
                             int32_t index) noexcept nogil:
    """key_store of a key for which `are_words`."""
    cdef const uint64_t* words = <const uint64_t*> record
    cdef int32_t n = ks.ncols
    cdef int32_t j
    for j in range(n):
        (<uint64_t*> out.cols[j].data)[index] = words[1 + j]
        if out.cols[j].valid != NULL:
            out.cols[j].valid[index] = 1


cdef inline void words_copy(const KeySpec* ks, const char* record, char* to) noexcept nogil:
    """Copy a record of words: few bytes, without a call."""
    cdef int32_t n = 1 + ks.ncols
    cdef int32_t j
    for j in range(n):
        (<uint64_t*> to)[j] = (<const uint64_t*> record)[j]
