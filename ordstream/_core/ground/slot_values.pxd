"""Values of a column at some slots, side by side, and back.

Inline only: there is no module of this name at run time. Thread safety: the owner of what is written.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy


cdef inline void gather(char* to, const char* data, const int32_t* slots, int64_t n,
                        int32_t width) noexcept nogil:
    """to[i] = data[slots[i]] for values of `width` bytes; `slots` NULL: data[i]. Cost: a memcpy, or ~0.5 ns
    per value."""
    cdef int64_t i
    if slots == NULL:
        memcpy(to, data, <size_t> (n * width))
    elif width == 8:
        for i in range(n):
            (<int64_t*> to)[i] = (<const int64_t*> data)[slots[i]]
    elif width == 4:
        for i in range(n):
            (<int32_t*> to)[i] = (<const int32_t*> data)[slots[i]]
    elif width == 1:
        for i in range(n):
            to[i] = data[slots[i]]
    else:
        for i in range(n):
            memcpy(to + i * width, data + <int64_t> slots[i] * width, <size_t> width)


cdef inline void scatter(char* to, const char* data, const int32_t* slots, int64_t n,
                         int32_t width) noexcept nogil:
    """to[slots[i]] = data[i]; values of no byte are nothing. Cost: ~0.5 ns per value."""
    cdef int64_t i
    if width == 0:
        return
    if width == 8:
        for i in range(n):
            (<int64_t*> to)[slots[i]] = (<const int64_t*> data)[i]
    elif width == 4:
        for i in range(n):
            (<int32_t*> to)[slots[i]] = (<const int32_t*> data)[i]
    elif width == 1:
        for i in range(n):
            to[slots[i]] = data[i]
    else:
        for i in range(n):
            memcpy(to + <int64_t> slots[i] * width, data + i * width, <size_t> width)
