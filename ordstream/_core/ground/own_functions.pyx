"""Instructions on strings and dates. See own_functions.pxd; the meaning is in
ordstream/expressions/bound.py (h).

Values under a null are any number, or views without bytes: every function takes them.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp
from ordstream._core.ground.chunk cimport View

cdef extern from "text_search.hpp" namespace "ord" nogil:
    bint text_contains(const char* text, int64_t n, const char* needle, int64_t m)
    int64_t characters(const char* text, int64_t n)


cdef int64_t contains(void* r, const void* a, int sa, const void* b, int sb, int64_t n) noexcept nogil:
    cdef const View* x = <const View*> a
    cdef const View* y = <const View*> b
    cdef int64_t i
    for i in range(n):
        (<uint8_t*> r)[i] = y.size == 0 or text_contains(x.data, x.size, y.data, y.size)
        x += sa == 0
        y += sb == 0
    return 0


cdef int64_t starts_with(void* r, const void* a, int sa, const void* b, int sb, int64_t n) noexcept nogil:
    cdef const View* x = <const View*> a
    cdef const View* y = <const View*> b
    cdef int64_t i
    for i in range(n):
        (<uint8_t*> r)[i] = y.size == 0 or (
            y.size <= x.size and memcmp(x.data, y.data, <size_t> y.size) == 0)
        x += sa == 0
        y += sb == 0
    return 0


cdef int64_t ends_with(void* r, const void* a, int sa, const void* b, int sb, int64_t n) noexcept nogil:
    cdef const View* x = <const View*> a
    cdef const View* y = <const View*> b
    cdef int64_t i
    for i in range(n):
        (<uint8_t*> r)[i] = y.size == 0 or (
            y.size <= x.size and memcmp(x.data + (x.size - y.size), y.data, <size_t> y.size) == 0)
        x += sa == 0
        y += sb == 0
    return 0


cdef inline int64_t place_of(const View* v, int64_t character) noexcept nogil:
    """Byte at which the code point of this number begins; negative: counted from the end. At most the
    size."""
    cdef int64_t j = 0
    if character >= 0:
        while j < v.size and (character > 0 or (v.data[j] & 0xc0) == 0x80):
            character -= (v.data[j] & 0xc0) != 0x80
            j += 1
        return j
    j = v.size
    while j > 0 and character < 0:
        j -= 1
        character += (v.data[j] & 0xc0) != 0x80
    return j


cdef int64_t chars_from(void* r, const void* a, int sa, const void* b, int sb, int64_t n) noexcept nogil:
    """Python's text[k:]: a part of the same bytes."""
    cdef const View* x = <const View*> a
    cdef const int64_t* k = <const int64_t*> b
    cdef int64_t i
    cdef int64_t at
    for i in range(n):
        at = place_of(x, k[0])
        (<View*> r)[i].data = x.data + at
        (<View*> r)[i].size = x.size - at
        x += sa == 0
        k += sb == 0
    return 0


cdef int64_t chars_until(void* r, const void* a, int sa, const void* b, int sb, int64_t n) noexcept nogil:
    """Python's text[:k]."""
    cdef const View* x = <const View*> a
    cdef const int64_t* k = <const int64_t*> b
    cdef int64_t i
    for i in range(n):
        (<View*> r)[i].data = x.data
        (<View*> r)[i].size = place_of(x, k[0])
        x += sa == 0
        k += sb == 0
    return 0


cdef int64_t len_chars(void* r, const void* a, int64_t n) noexcept nogil:
    """Code points."""
    cdef const View* x = <const View*> a
    cdef int64_t i
    for i in range(n):
        (<int64_t*> r)[i] = characters(x[i].data, x[i].size)
    return 0


cdef inline int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    return a // b - (a % b < 0)


cdef inline void civil(int64_t days, int64_t* year, int64_t* month, int64_t* day) noexcept nogil:
    """As `civil` in ordstream/expressions/bound.py. Days under a null may be any number: they wrap."""
    cdef int64_t era
    cdef int64_t of_era
    cdef int64_t of_year
    days = <int64_t> (<unsigned long long> days + 719468)
    era = floor_div(days, 146097)
    of_era = days - era * 146097
    year[0] = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year[0] + year[0] // 4 - year[0] // 100)
    month[0] = (5 * of_year + 2) // 153
    day[0] = of_year - (153 * month[0] + 2) // 5 + 1
    year[0] += 400 * era + (month[0] > 9)
    month[0] += 3 if month[0] < 10 else -9


cdef inline int64_t parts_of_days(int64_t* r, const int64_t* days, int64_t n, int part) noexcept nogil:
    """Year (0), month (1) or day (2) of each day. Times mostly come in order: the day is that of the row in
    front."""
    cdef int64_t[3] parts
    cdef int64_t last = 0
    cdef int64_t i
    civil(last, &parts[0], &parts[1], &parts[2])
    for i in range(n):
        if days[i] != last:
            last = days[i]
            civil(last, &parts[0], &parts[1], &parts[2])
        r[i] = parts[part]
    return 0


cdef int64_t year_of_day(void* r, const void* a, int64_t n) noexcept nogil:
    return parts_of_days(<int64_t*> r, <const int64_t*> a, n, 0)


cdef int64_t month_of_day(void* r, const void* a, int64_t n) noexcept nogil:
    return parts_of_days(<int64_t*> r, <const int64_t*> a, n, 1)


cdef int64_t day_of_month(void* r, const void* a, int64_t n) noexcept nogil:
    return parts_of_days(<int64_t*> r, <const int64_t*> a, n, 2)


cdef text_t find_text(str name):
    """A comparison of two strings, or a part of one, or NULL."""
    if name == "chars_from":
        return chars_from
    if name == "chars_until":
        return chars_until
    if name == "contains":
        return contains
    if name == "starts_with":
        return starts_with
    return ends_with if name == "ends_with" else <text_t> NULL


cdef part_t find_part(str name):
    """An integer of a string or of a day, or NULL."""
    if name == "len_chars":
        return len_chars
    if name == "year_of_day":
        return year_of_day
    if name == "month_of_day":
        return month_of_day
    return day_of_month if name == "day_of_month" else <part_t> NULL
