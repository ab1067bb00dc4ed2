"""Reading from the producer's buffers (source_values.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport PT_BOOL, PT_LIST, PT_VIEW, View
from ordstream._core.ground.imported_batch cimport expand_bits
from ordstream._core.ground.widths cimport WIDTHS

import pyarrow.types as pat

from ordstream.ground.packed_types import is_packed


cdef inline int64_t start(const SourceRows* rows, const ArrowArray* a) noexcept nogil:
    return rows.batch.array.offset + a.offset + rows.row


cdef Offsets source_offsets(const SourceRows* rows, int32_t s) noexcept nogil:
    """Of a string or list column. Cost: a few ns."""
    cdef const ArrowArray* a = rows.batch.array.children[s]
    cdef const ArrowArray* child
    cdef const char* format = rows.passing.formats[s]
    cdef Offsets found
    found.narrow = NULL
    found.wide = NULL
    if format[0] == c"U" or format[0] == c"Z" or (format[0] == c"+" and format[1] == c"L"):
        found.wide = <const int64_t*> a.buffers[1] + start(rows, a)
    else:
        found.narrow = <const int32_t*> a.buffers[1] + start(rows, a)
    if rows.passing.layout.type[s] == PT_VIEW:
        found.data = <const char*> a.buffers[2]
    else:
        child = a.children[0]
        found.data = <const char*> child.buffers[1]
        if found.data != NULL:
            found.data += child.offset * WIDTHS[rows.passing.layout.element[s]]
    return found


cdef const char* source_fixed(const SourceRows* rows, int32_t s) noexcept nogil:
    cdef const ArrowArray* a = rows.batch.array.children[s]
    return <const char*> a.buffers[1] + start(rows, a) * rows.passing.layout.width[s]


cdef const uint8_t* source_nulls(const SourceRows* rows, int32_t s, int64_t* first) noexcept nogil:
    cdef const ArrowArray* a = rows.batch.array.children[s]
    first[0] = start(rows, a)
    return <const uint8_t*> a.buffers[0] if a.null_count != 0 and a.n_buffers > 0 else NULL


cdef void source_bits(const uint8_t* bits, int64_t first, const int32_t* sel, int64_t slot, int64_t n,
                      uint8_t* out) noexcept nogil:
    """A byte for each bit: of slots `sel`, or of those from `slot` on. Cost: ~0.5 ns per slot of `sel`."""
    cdef int64_t i
    if sel == NULL:
        expand_bits(bits, first + slot, n, out)
        return
    for i in range(n):
        out[i] = bit_at(bits, first + sel[i])


cdef void source_bools(const SourceRows* rows, int32_t s, const int32_t* sel, int64_t slot, int64_t n,
                       uint8_t* out) noexcept nogil:
    """Values of a column of booleans, as source_bits."""
    cdef const ArrowArray* a = rows.batch.array.children[s]
    source_bits(<const uint8_t*> a.buffers[1], start(rows, a), sel, slot, n, out)


cdef void source_value(const SourceRows* rows, int32_t s, int64_t slot, char* value,
                       uint8_t* valid) noexcept nogil:
    """One value as a chunk would have it, at most 16 bytes; its bytes are zeroed for a null."""
    cdef int64_t first
    cdef const uint8_t* bits = source_nulls(rows, s, &first)
    cdef int32_t type = rows.passing.layout.type[s]
    cdef Offsets x
    cdef View v
    valid[0] = bits == NULL or bit_at(bits, first + slot)
    v.data = NULL
    v.size = 0
    if not valid[0]:
        memcpy(value, &v, sizeof(View))
    elif type == PT_BOOL:
        source_bools(rows, s, NULL, slot, 1, <uint8_t*> value)
    elif type == PT_VIEW or type == PT_LIST:
        x = source_offsets(rows, s)
        v.size = offset_at(&x, slot + 1) - offset_at(&x, slot)
        v.data = x.data + offset_at(&x, slot) * (1 if type == PT_VIEW
                                                 else WIDTHS[rows.passing.layout.element[s]])
        memcpy(value, &v, sizeof(View))
    else:
        memcpy(value, source_fixed(rows, s) + slot * rows.passing.layout.width[s],
               <size_t> rows.passing.layout.width[s])


def may_pass_unread(type_):
    """Whether columns of a type in core types may pass unread: others are converted as a whole, and what
    can't be converted is refused."""
    if is_packed(type_):
        return True
    if pat.is_list(type_) or pat.is_large_list(type_):
        return not pat.is_boolean(type_.value_type) and may_pass_unread(type_.value_type)
    return not pat.is_decimal128(type_)
