"""A text in the message of a failure."""
from libc.stdint cimport int64_t

cdef enum:
    SHOWN_TEXT = 24        # bytes of a text that are shown


cdef inline int64_t shown_text(char* to, int64_t room, const char* data, int64_t size) noexcept nogil:
    """Write a text in quotes, of a long one its first characters and three dots; what is no printable
    character of ASCII or part of one of UTF-8 is a question mark.

    Any thread. `to`: gets a 0 behind it, `room` > 0 bytes in all. Returns: bytes written, without the 0.
    """
    cdef int64_t shown = min(size, <int64_t> SHOWN_TEXT)
    cdef int64_t at = 0
    cdef int64_t i
    cdef const char* behind = b"'" if shown == size else b"...'"
    while shown > 0 and shown < size and (<unsigned char> data[shown] & 0xC0) == 0x80:
        shown -= 1                                            # not in the middle of a character
    if at < room - 1:
        to[at] = c"'"
        at += 1
    for i in range(shown):
        if at >= room - 1:
            break
        to[at] = data[i] if <unsigned char> data[i] >= 32 and data[i] != 127 else c"?"
        at += 1
    while behind[0] != 0 and at < room - 1:
        to[at] = behind[0]
        behind += 1
        at += 1
    to[at] = 0
    return at
