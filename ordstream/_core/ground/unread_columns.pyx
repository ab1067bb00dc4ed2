"""Columns of an output batch that come from the producer's buffers. See source_values.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport PT_BOOL, PT_LIST, PT_VIEW, View
from ordstream._core.ground.output_columns cimport (
    Output, OutputColumn, copy_bytes, heap_append, heap_larger, list_append, list_larger, list_nulls,
    offset_limit, valid_room,
)
from ordstream._core.ground.packed_values cimport packed_measure, packed_valid, packed_write
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.ground.source_values cimport (
    Offsets, SourceRows, bit_at, offset_at, source_bits, source_bools, source_fixed, source_nulls,
    source_offsets, source_value,
)
from ordstream._core.ground.widths cimport WIDTHS

cdef enum:
    SHORT = 32             # bytes of a value that is copied without a look at its size


cdef int64_t measure_offsets(const Offsets* x, const uint8_t* bits, int64_t first, const int32_t* sel,
                             int64_t slot, int64_t n, int32_t* offsets) noexcept nogil:
    """As measure_views, of rows in the producer's buffers. `bits`: which are null, NULL: none."""
    cdef int64_t begin = offsets[0]
    cdef int64_t total = 0
    cdef int64_t i
    cdef int64_t k
    if bits == NULL and sel == NULL:
        total = offset_at(x, slot + n) - offset_at(x, slot)
        if begin + total > offset_limit:
            return -1
        begin -= offset_at(x, slot)
        if x.narrow != NULL:
            for i in range(n):
                offsets[i + 1] = <int32_t> (begin + x.narrow[slot + i + 1])
        else:
            for i in range(n):
                offsets[i + 1] = <int32_t> (begin + x.wide[slot + i + 1])
        return total
    if bits == NULL and x.narrow != NULL:
        for i in range(n):
            total += <int64_t> x.narrow[sel[i] + 1] - x.narrow[sel[i]]
            offsets[i + 1] = <int32_t> (begin + total)        # not looked at where it is too large
    else:
        for i in range(n):
            k = sel[i] if sel != NULL else slot + i
            if bits == NULL or bit_at(bits, first + k):
                total += offset_at(x, k + 1) - offset_at(x, k)
            offsets[i + 1] = <int32_t> (begin + total)
    return total if begin + total <= offset_limit else -1


cdef void copy_offsets(const Offsets* x, const int32_t* sel, int64_t slot, int64_t n,
                       const int32_t* offsets, char* to, int64_t width, const char* end) noexcept nogil:
    """The bytes of what was measured. Behind them, below `end`, there may be anything afterwards."""
    cdef const char* last
    cdef const char* at
    cdef int64_t size
    cdef int64_t i
    cdef int64_t k
    # Up to here 32 bytes of the producer's can be read: it has those of the last row that is copied.
    k = sel[n - 1] if sel != NULL else slot + n - 1
    last = x.data + offset_at(x, k + 1) * width - SHORT
    end -= SHORT
    for i in range(n):
        k = sel[i] if sel != NULL else slot + i
        size = (offsets[i + 1] - offsets[i]) * width
        at = x.data + offset_at(x, k) * width
        if size <= SHORT and at <= last and to <= end:
            memcpy(to, at, SHORT)                             # always as many: no branch on the size
        else:
            copy_bytes(to, at, size)
        to += size


cdef bint unread_at_once(Output* o, OutputColumn* oc, int32_t element, const Offsets* x, const uint8_t* bits,
                         int64_t first, const int32_t* sel, int64_t slot, int64_t n,
                         int64_t base) noexcept nogil:
    """views_at_once, of rows in the producer's buffers."""
    cdef int32_t* offsets = <int32_t*> oc.data + base
    cdef int64_t width = 1 if element < 0 else WIDTHS[element]
    cdef int64_t size = measure_offsets(x, bits, first, sel, slot, n, offsets)
    cdef const char* end
    cdef char* to
    if size < 0:
        return False
    if element < 0:
        if oc.heap_size + size > oc.heap_capacity and heap_larger(o, oc, size, False) != 0:
            return False
        to = oc.heap + oc.heap_size
        end = oc.heap + oc.heap_capacity
        oc.heap_size += size
    else:
        if oc.child_rows + size > oc.child_capacity and list_larger(o, oc, size, element, False) != 0:
            return False
        to = oc.child.data + oc.child_rows * width
        end = oc.child.data + oc.child_capacity * width
        if oc.child.valid != NULL:
            memset(oc.child.valid + oc.child_rows, 1, <size_t> size)
        oc.child_rows += size
    if size and sel == NULL and bits == NULL:
        memcpy(to, x.data + offset_at(x, slot) * width, <size_t> (size * width))
    elif size:
        copy_offsets(x, sel, slot, n, offsets, to, width, end)
    return True


cdef int64_t unread_views(Output* o, int32_t j, const SourceRows* source, int32_t s, const int32_t* sel,
                          int64_t slot, int64_t n, int64_t base) noexcept nogil:
    """output_unread for strings and lists."""
    cdef OutputColumn* oc = &o.cols[j]
    cdef int32_t type = o.layout.type[j]
    cdef int32_t element = o.layout.element[j]
    cdef Offsets x = source_offsets(source, s)
    cdef int64_t first
    cdef const uint8_t* bits = source_nulls(source, s, &first)
    cdef const ArrowArray* items = source.batch.array.children[s].children[0] if type == PT_LIST else NULL
    cdef View v
    cdef uint8_t valid
    cdef int64_t i
    cdef int rc = 0
    if unread_at_once(o, oc, element if type == PT_LIST else -1, &x, bits, first, sel, slot, n, base):
        if items == NULL or items.null_count == 0 or items.buffers[0] == NULL:
            return n
        return n if null_elements(o, oc, &x, items, bits, first, sel, slot, n, base) == 0 else -1
    for i in range(n):                                        # as many as there is room for
        source_value(source, s, sel[i] if sel != NULL else slot + i, <char*> &v, &valid)
        if type == PT_VIEW:
            rc = heap_append(o, oc, &v, base + i == 0)
            (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.heap_size
        else:
            rc = list_append(o, oc, &v, element, base + i == 0)
            (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.child_rows
        if rc != 0:
            n = i
            break
    if items != NULL and items.null_count != 0 and items.buffers[0] != NULL:
        if null_elements(o, oc, &x, items, bits, first, sel, slot, n, base) != 0:
            return -1
    return n if rc != -1 else -1 - n


cdef int null_elements(Output* o, OutputColumn* oc, const Offsets* x, const ArrowArray* items,
                       const uint8_t* bits, int64_t first, const int32_t* sel, int64_t slot, int64_t n,
                       int64_t base) noexcept nogil:
    """Which elements of n appended lists are null. 0, or -1: no memory."""
    cdef const uint8_t* there = <const uint8_t*> items.buffers[0]
    cdef const int32_t* offsets = <const int32_t*> oc.data + base
    cdef uint8_t* valid
    cdef int64_t i
    cdef int64_t j
    cdef int64_t k
    cdef int64_t at
    if list_nulls(o, oc) != 0:
        return -1
    valid = oc.child.valid
    for i in range(n):
        k = sel[i] if sel != NULL else slot + i
        at = items.offset + offset_at(x, k)
        for j in range(offsets[i + 1] - offsets[i]):
            valid[offsets[i] + j] = bit_at(there, at + j)
    return 0


cdef bint packed_at_once(Output* o, OutputColumn* oc, const char* format, const ArrowArray* a, int64_t first,
                         const int32_t* rows, int64_t n, int64_t base) noexcept nogil:
    """Append values of a packed type: `rows`, or those from `first` on. False: they don't all fit, or there
    is no memory; nothing was appended."""
    cdef int32_t* offsets = <int32_t*> oc.data + base
    cdef int64_t size = packed_measure(format, a, first, rows, n, offsets + 1)
    cdef int64_t i
    if size < 0 or oc.heap_size + size > offset_limit:
        return False
    if oc.heap_size + size > oc.heap_capacity and heap_larger(o, oc, size, False) != 0:
        return False
    if packed_write(format, a, first, rows, n, oc.heap + oc.heap_size) != 0:
        return False
    for i in range(n):
        offsets[i + 1] += offsets[i]
    oc.heap_size += size
    return True


cdef int packed_append(Output* o, OutputColumn* oc, const char* format, const ArrowArray* a, int64_t row,
                       bint first) noexcept nogil:
    """heap_append of one value of a packed type."""
    cdef int32_t size = 0
    cdef View v
    cdef int rc
    v.data = NULL
    v.size = packed_measure(format, a, row, NULL, 1, &size)
    if v.size < 0:
        return <int> v.size
    if oc.heap_size + v.size > oc.heap_capacity:
        rc = heap_larger(o, oc, v.size, first)
        if rc != 0:
            return rc
    if packed_write(format, a, row, NULL, 1, oc.heap + oc.heap_size) != 0:
        return -1
    oc.heap_size += v.size
    return 0


cdef int64_t unread_packed(Output* o, int32_t j, const SourceRows* source, int32_t s, const int32_t* sel,
                           int64_t slot, int64_t n, int64_t base) noexcept nogil:
    """output_unread for packed types."""
    cdef OutputColumn* oc = &o.cols[j]
    cdef const ArrowArray* a = source.batch.array.children[s]
    cdef const char* format = source.passing.formats[s]
    cdef int64_t first = source.batch.array.offset + source.row
    cdef int64_t i
    cdef int64_t row
    cdef int rc
    if not packed_at_once(o, oc, format, a, first if sel != NULL else first + slot, sel, n, base):
        for i in range(n):                                    # as many as there is room for
            row = first + (sel[i] if sel != NULL else slot + i)
            rc = packed_append(o, oc, format, a, row, base + i == 0)
            (<int32_t*> oc.data)[base + i + 1] = <int32_t> oc.heap_size
            if rc != 0:
                if rc == -1:
                    return -1 - i
                n = i
                break
    if a.null_count == 0 and oc.valid == NULL:
        return n
    if valid_room(o, oc, base) != 0:
        return -1
    for i in range(n):
        oc.valid[base + i] = packed_valid(a, first + (sel[i] if sel != NULL else slot + i))
    return n


cdef int64_t output_unread(Output* o, int32_t j, const SourceRows* source, int32_t s, const int32_t* sel,
                           int64_t slot, int64_t n, int64_t base) noexcept nogil:
    """output_column, of column s of an input batch: slots `sel`, or those from `slot` on."""
    cdef OutputColumn* oc = &o.cols[j]
    cdef int32_t width = o.layout.width[j]
    cdef const uint8_t* bits
    cdef int64_t first
    if source.passing.formats[s][0] == c"P":
        return unread_packed(o, j, source, s, sel, slot, n, base)
    if o.layout.type[j] == PT_VIEW or o.layout.type[j] == PT_LIST:
        n = unread_views(o, j, source, s, sel, slot, n, base)
        if n <= 0:
            return n
    elif o.layout.type[j] == PT_BOOL:
        source_bools(source, s, sel, slot, n, <uint8_t*> oc.data + base)
    else:
        gather(oc.data + base * width, source_fixed(source, s) + (0 if sel != NULL else slot * width), sel,
               n, width)
    bits = source_nulls(source, s, &first)
    if bits != NULL:
        if valid_room(o, oc, base) != 0:
            return -1
        source_bits(bits, first, sel, slot, n, oc.valid + base)
    elif oc.valid != NULL:
        memset(oc.valid + base, 1, n)
    return n
