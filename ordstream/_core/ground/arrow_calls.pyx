"""Functions of Arrow on values of the expression machine. See arrow_calls.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetInterrupt
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport FAIL_CAST, FAIL_TEXT, View, Worker, scratch_alloc

from ordstream._core.ground.memory_reserve cimport reserve_leave
from ordstream._core.ground.packed_values cimport packed_bound, packed_views

import pyarrow as pa

cdef extern from "text_search.hpp" namespace "ord" nogil:
    bint text_contains(const char* text, int64_t n, const char* needle, int64_t m)


cdef enum:
    LOOKED_AT = 32         # texts that all have what a pattern needs: the others will, too


cdef object bits_of(const uint8_t* valid, int64_t n):
    """Validity bytes as Arrow's bits."""
    cdef bytes bits = bytes((n + 7) // 8)
    cdef char* mask = PyBytes_AS_STRING(bits)
    cdef int64_t i
    for i in range(n):
        if valid[i]:
            mask[i >> 3] |= <char> (1 << (i & 7))
    return pa.py_buffer(bits)


cdef object array_of(object call, bint text, const char* data, const uint8_t* valid, int64_t n):
    """Values of the stack as an array: large_string, int64, or a decimal of 128 bits, which Arrow has as the
    stack has it."""
    cdef const View* views = <const View*> data
    cdef object bits = None if valid == NULL else bits_of(valid, n)
    cdef bytes offsets
    cdef bytes copied
    cdef int64_t* at
    cdef const char* first
    cdef int64_t i
    if call.takes_wide:
        return pa.Array.from_buffers(pa.decimal128(38, 0), n, [bits, pa.py_buffer(
            PyBytes_FromStringAndSize(data, n * 16))])
    if not text:
        return pa.Array.from_buffers(pa.int64(), n, [bits, pa.py_buffer(
            PyBytes_FromStringAndSize(data, n * 8))])
    offsets = PyBytes_FromStringAndSize(NULL, (n + 1) * 8)
    at = <int64_t*> PyBytes_AS_STRING(offsets)
    at[0] = 0
    for i in range(n):
        at[i + 1] = at[i] + (views[i].size if valid == NULL or valid[i] else 0)
    bytes_of(views, valid, n, &first)
    copied = PyBytes_FromStringAndSize(NULL, at[n])
    gather_bytes(views, valid, n, first, at[n], PyBytes_AS_STRING(copied))
    return pa.Array.from_buffers(pa.large_string(), n, [bits, pa.py_buffer(offsets), pa.py_buffer(copied)])


cdef int take(object result, int width, int64_t n, Worker* w, char* out) except -1:
    """Copy a result to the stack: bool, int64, a decimal of 128 bits, or views into the scratch."""
    cdef const char* values
    cdef const int64_t* at
    cdef char* copied
    cdef int64_t i
    cdef int64_t first
    cdef uintptr_t address
    if len(result) != n:
        raise AssertionError(f"{len(result)} values for {n} rows")
    buffers = result.buffers()
    first = result.offset
    address = buffers[1].address
    if width == 8:
        memcpy(out, <const char*> address + first * 8, <size_t> n * 8)
    elif width == 1:
        values = <const char*> address
        for i in range(n):
            out[i] = values[(first + i) >> 3] >> ((first + i) & 7) & 1
    elif pa.types.is_decimal128(result.type):
        memcpy(out, <const char*> address + first * 16, <size_t> n * 16)
    else:
        at = <const int64_t*> address + first
        copied = scratch_alloc(w, at[n] - at[0] + 1)
        if copied == NULL:
            raise MemoryError
        if at[n] > at[0]:
            address = buffers[2].address
            memcpy(copied, <const char*> address + at[0], <size_t> (at[n] - at[0]))
        for i in range(n):
            (<View*> out)[i].data = copied + (at[i] - at[0])
            (<View*> out)[i].size = at[i + 1] - at[i]
    return 0


cdef int take_lists(object result, const char* format, int64_t n, Worker* w, View* out) except -1:
    """Copy lists of strings to the stack, as packed values in the scratch."""
    cdef ArrowArray array
    cdef int64_t size
    cdef char* to
    if len(result) != n:
        raise AssertionError(f"{len(result)} values for {n} rows")
    result._export_to_c(<uintptr_t> &array)
    try:
        size = packed_bound(format, &array, 0, n)
        to = scratch_alloc(w, size + 1) if size >= 0 else NULL
        if to == NULL or packed_views(format, &array, 0, n, to, out) != 0:
            raise MemoryError
    finally:
        array.release(&array)
    return 0


cdef int call_once(object call, bint text, int width, const char* data, const uint8_t* valid, int64_t n,
                   Worker* w, char* out, uint8_t* bad) except -1:
    """All rows at once. An interrupt comes again behind the call: it belongs to nobody's row.

    bad: where some have no answer, in few calls: they get a code. NULL: all have one, or the call raises.
    """
    cdef bint interrupted = False
    there = None
    while True:
        try:
            given = array_of(call, text, data, valid, n)
            if bad == NULL:
                result = call.array(given)
            else:
                result, there = call.tried(given)
            if call.gives_lists:
                take_lists(result, b"PlS", n, w, <View*> out)
            else:
                take(result, width, n, w, out)
            break
        except KeyboardInterrupt:
            interrupted = True
    if there is not None:
        note_unanswered(there, text, width, valid, n, out, bad)
    if interrupted:
        PyErr_SetInterrupt()
    return 0


cdef int call_where_needed(object call, const char* data, const uint8_t* valid, int64_t n, int width,
                           Worker* w, char* out) except -1:
    """call_once of a regular expression: only of the texts that have in them what each match has."""
    cdef bytes needed = call.needed
    cdef const char* needle = PyBytes_AS_STRING(needed)
    cdef int64_t size = len(needed)
    cdef const View* views = <const View*> data
    cdef View* chosen
    cdef int64_t* place
    cdef char* found
    cdef bint passes
    cdef int64_t m = 0
    cdef int64_t i
    if size == 0:
        return call_once(call, True, width, data, valid, n, w, out, NULL)
    chosen = <View*> scratch_alloc(w, n * sizeof(View) + 1)
    place = <int64_t*> scratch_alloc(w, n * 8 + 1)
    if chosen == NULL or place == NULL:
        raise MemoryError
    with nogil:
        for i in range(n):
            if (valid == NULL or valid[i]) and text_contains(views[i].data, views[i].size, needle, size):
                chosen[m] = views[i]
                place[m] = i
                m += 1
            if m == LOOKED_AT and i == m - 1:                # all have it: looking for it is in vain
                m = n
                break
    if m == n:
        return call_once(call, True, width, data, valid, n, w, out, NULL)
    memset(out, 0, <size_t> (n * width))
    passes = call.passes_unmatched
    for i in range(n if width == sizeof(View) else 0):
        (<View*> out)[i].data = data                         # of no bytes: anything
        if passes and (valid == NULL or valid[i]):
            (<View*> out)[i] = views[i]
    if m == 0:
        return 0
    found = scratch_alloc(w, m * width + 1)
    if found == NULL:
        raise MemoryError
    call_once(call, True, width, <const char*> chosen, NULL, m, w, found, NULL)
    for i in range(m):
        memcpy(out + place[i] * width, found + i * width, <size_t> width)
    return 0


cdef int note_unanswered(object there, bint text, int width, const uint8_t* valid, int64_t n, char* out,
                         uint8_t* bad) except -1:
    """A code, and 0 as the result, for the rows of which `there` says that they have no answer."""
    cdef uintptr_t address = there.buffers()[1].address
    cdef const char* answered = <const char*> address
    cdef int64_t first = there.offset
    cdef int64_t i
    for i in range(n):
        if (valid == NULL or valid[i]) and not (answered[(first + i) >> 3] >> ((first + i) & 7)) & 1:
            memset(out + i * width, 0, width)
            if bad[i] == 0:
                bad[i] = FAIL_TEXT if text else FAIL_CAST
    return 0


cdef int64_t bytes_of(const View* views, const uint8_t* valid, int64_t n, const char** first) noexcept nogil:
    """Bytes of the valid strings. first: where they begin, if they lie side by side, as an import leaves
    them; else NULL."""
    cdef const char* end = NULL
    cdef int64_t total = 0
    cdef bint beside = True
    cdef int64_t i
    first[0] = NULL
    for i in range(n):
        if views[i].size and (valid == NULL or valid[i]):
            if total == 0:
                first[0] = views[i].data
            elif views[i].data != end:
                beside = False
            end = views[i].data + views[i].size
            total += views[i].size
    if not beside:
        first[0] = NULL
    return total


cdef void gather_bytes(const View* views, const uint8_t* valid, int64_t n, const char* first, int64_t total,
                       char* to) noexcept nogil:
    """Copy what `bytes_of` measured, side by side."""
    cdef int64_t i
    if first != NULL:
        memcpy(to, first, <size_t> total)
        return
    for i in range(n):
        if views[i].size and (valid == NULL or valid[i]):
            memcpy(to, views[i].data, <size_t> views[i].size)
            to += views[i].size


cdef int ascii_case(int64_t step, const char* data, const uint8_t* valid, int64_t n, Worker* w,
                    char* out) noexcept nogil:
    """Strings in lower (`step` 32) or upper case (-32), where all bytes are ASCII: as Arrow's utf8_lower and
    utf8_upper have it.

    Thread safety: any worker. Ownership: as arrow_call's. Returns: 0; 1: there are other bytes, and nothing
    was done; -1: no memory. Cost: ~2 ns per string, ~0.1 ns per byte.
    """
    cdef const View* views = <const View*> data
    cdef View* made = <View*> out
    cdef unsigned char lowest = 65 if step > 0 else 97           # 'A' or 'a'
    cdef unsigned char turn = 32                                 # what the cases differ by, for XOR
    cdef unsigned char seen = 0
    cdef unsigned char byte
    cdef const char* first
    cdef int64_t total = bytes_of(views, valid, n, &first)
    cdef unsigned char* to = <unsigned char*> scratch_alloc(w, total + 1)
    cdef int64_t i
    if to == NULL:
        return -1
    gather_bytes(views, valid, n, first, total, <char*> to)
    for i in range(total):
        seen |= to[i]
    if seen >= 128:
        return 1
    for i in range(total):
        byte = to[i]
        to[i] = byte ^ (turn if <unsigned char> (byte - lowest) < 26 else 0)
    for i in range(n):
        made[i].data = <const char*> to
        made[i].size = views[i].size if valid == NULL or valid[i] else 0
        to += made[i].size
    return 0


cdef int arrow_call(
    void* call, bint text, int width, const char* data, const uint8_t* valid, int64_t n, Worker* w,
    char* out, uint8_t* bad,
) noexcept nogil:
    """out = call(data).

    Parameters: `text`: views, else numbers; `width`: of a result; `bad`: a FailureCode per row, or NULL on a
    first try. Thread safety: any worker. Ownership: strings lie in the worker's scratch.
    Returns: 0; -1: no memory; 1: a row has no answer, and `bad` is NULL. A result under a null is 0, or any
    number. Cost: ~5 us, and 2 to 60 ns per row.
    """
    cdef bint left = reserve_leave(False)
    cdef int status
    with gil:
        status = arrow_answers(<object> call, text, width, data, valid, n, w, out, bad)
    reserve_leave(left)
    return status


cdef int arrow_answers(
    object call, bint text, int width, const char* data, const uint8_t* valid, int64_t n, Worker* w,
    char* out, uint8_t* bad,
) noexcept:
    """arrow_call, with the GIL."""
    cdef bint wide
    cdef bint failed = False
    cdef bint memory = False
    cdef int64_t i
    try:
        if text and not call.gives_lists:
            call_where_needed(call, data, valid, n, width, w, out)
        else:
            call_once(call, text, width, data, valid, n, w, out, NULL)
    except MemoryError:
        memory = True
    except BaseException:
        failed = True
    if memory or not failed:
        return -1 if memory else 0
    if bad == NULL:
        return 1
    failed = False
    try:
        call_once(call, text, width, data, valid, n, w, out, bad)
    except MemoryError:
        memory = True
    except BaseException:                                     # row by row it is told which have none
        failed = True
    if memory or not failed:
        return -1 if memory else 0
    try:
        wide = text or call.takes_wide
        for i in range(n):
            memset(out + i * width, 0, width)
            if valid != NULL and valid[i] == 0:
                continue
            try:
                call_once(call, text, width, data + i * (16 if wide else 8), NULL, 1, w,
                          out + i * width, NULL)
            except Exception:
                if bad[i] == 0:
                    bad[i] = FAIL_TEXT if text else FAIL_CAST
    except BaseException:
        memory = True
    return -1 if memory else 0


cdef int join_text(const char* a, bint one_a, const char* b, bint one_b, const uint8_t* valid, int64_t n,
                   Worker* w, char* out) noexcept nogil:
    """out = a with b behind it, for n views each.

    Parameters: `one_a`, `one_b`: there is one view for all rows. Thread safety: any worker. Ownership: the
    bytes lie in the worker's scratch. Returns: 0; -1: no memory. Cost: a pass over the rows, and a copy of
    their bytes.
    """
    cdef const View* x = <const View*> a
    cdef const View* y = <const View*> b
    cdef View* made = <View*> out
    cdef int64_t step_x = 0 if one_a else 1
    cdef int64_t step_y = 0 if one_b else 1
    cdef int64_t total = 0
    cdef char* to
    cdef int64_t i
    for i in range(n):
        made[i].size = 0
        if valid == NULL or valid[i]:
            made[i].size = x[i * step_x].size + y[i * step_y].size
            total += made[i].size
    to = scratch_alloc(w, total + 1)
    if to == NULL:
        return -1
    for i in range(n):
        made[i].data = to
        if made[i].size:
            memcpy(to, x[i * step_x].data, <size_t> x[i * step_x].size)
            memcpy(to + x[i * step_x].size, y[i * step_y].data, <size_t> y[i * step_y].size)
            to += made[i].size
    return 0
