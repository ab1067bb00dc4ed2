"""Import of record batches (imported_batch.pxd)."""
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport (
    PT_BOOL, PT_I64, PT_LIST, PT_VIEW, Column, Failure, Layout, View,
)
from ordstream._core.ground.list_values cimport LIST_NULLS
from ordstream._core.ground.packed_values cimport packed_bound, packed_extent, packed_views
from ordstream._core.ground.widths cimport WIDTHS

from ordstream.ground.by_identity import by_identity
from ordstream.ground.packed_types import packed_format, plain


cdef extern from "decimal128.hpp" namespace "ord" nogil:
    void decimals_encode(const char* values, int64_t n, char* to)

cdef extern from "output_memory.hpp" nogil:
    void* memory_take "ord_output_take"(size_t size)
    void memory_give "ord_output_give"(void* data, size_t most)

cdef enum:
    # Memory of converted columns is used again by the next batches: the first access to a page is slow. At
    # most so much is kept, and no more than the run's cap: a batch may take its sixteenth (node/source.py).
    KEPT_BYTES = 32 << 20
    BATCHES_IN_CAP = 16


cdef Batch* batch_new(int32_t ncols, int32_t kind) noexcept nogil:
    """An empty batch; NULL: no memory. Ownership: caller, until batch_free."""
    cdef Batch* b = <Batch*> calloc(1, sizeof(Batch))
    if b == NULL:
        return NULL
    b.kind = kind
    b.ncols = ncols
    b.cols = <Column*> calloc(ncols + 1, sizeof(Column))
    b.allocated = <void**> calloc(4 * ncols + 1, sizeof(void*))
    if b.cols == NULL or b.allocated == NULL:
        free(b.cols)
        free(b.allocated)
        free(b)
        return NULL
    return b


cdef void batch_free(Batch* b) noexcept nogil:
    """Release the producer's array (its callback may take the GIL) and everything import made. `source` is
    its owner's."""
    cdef int64_t bytes = b.bytes
    cdef int32_t j
    if b.array.release != NULL:
        b.array.release(&b.array)
    for j in range(b.nallocated):
        memory_give(b.allocated[j], <size_t> min(<int64_t> KEPT_BYTES, BATCHES_IN_CAP * bytes))
    free(b.allocated)
    free(b.cols)
    free(b.failure)
    free(b)


cdef void batch_drop(Batch* b) noexcept:
    """batch_free, and the Python objects that the batch owns: what it was made of, a source's exception."""
    cdef void* exc = NULL
    cdef void* source = b.source
    if b.failure != NULL:
        exc = (<Failure*> b.failure).exc
    batch_free(b)
    if exc != NULL:
        Py_DECREF(<object> <PyObject*> exc)
    if source != NULL:
        Py_DECREF(<object> <PyObject*> source)


cdef void* batch_alloc(Batch* b, int64_t size) noexcept nogil:
    cdef void* p = memory_take(size + 64)
    if p != NULL:
        b.allocated[b.nallocated] = p
        b.nallocated += 1
        b.bytes += size
    return p


cdef inline bint bit(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef void expand_bits(const uint8_t* bits, int64_t offset, int64_t n, uint8_t* out) noexcept nogil:
    """One byte (0 or 1) per bit. Cost: ~0.2 ns each."""
    cdef int64_t i = 0
    cdef uint64_t word
    while i < n and (offset + i) & 7:
        out[i] = bit(bits, offset + i)
        i += 1
    while i + 8 <= n:
        # bit k is brought to byte k, and there to the lowest place
        word = bits[(offset + i) >> 3] * <uint64_t> 0x0101010101010101 & <uint64_t> 0x8040201008040201
        word = (word + <uint64_t> 0x7f7f7f7f7f7f7f7f) >> 7 & <uint64_t> 0x0101010101010101
        memcpy(out + i, &word, 8)
        i += 8
    while i < n:
        out[i] = bit(bits, offset + i)
        i += 1


cdef bint any_null(const uint8_t* bits, int64_t offset, int64_t n) noexcept nogil:
    """Whether one of the bits is 0."""
    cdef int64_t i = 0
    while i < n and (offset + i) & 7:
        if not bit(bits, offset + i):
            return True
        i += 1
    while i + 8 <= n:
        if bits[(offset + i) >> 3] != 0xff:
            return True
        i += 8
    while i < n:
        if not bit(bits, offset + i):
            return True
        i += 1
    return False


cdef bint narrow(const ArrowArray* a, int64_t start, int64_t n, int64_t* out) noexcept nogil:
    """Decimals of 16 bytes, the lower half first, as counts of their unit. False: one is no int64."""
    cdef const int64_t* halves = <const int64_t*> a.buffers[1] + 2 * start
    cdef const uint8_t* bits = NULL
    cdef int64_t wrong = 0
    cdef int64_t i
    for i in range(n):
        out[i] = halves[2 * i]
        wrong |= halves[2 * i + 1] ^ (halves[2 * i] >> 63)
    if wrong == 0:
        return True
    if a.null_count != 0:
        bits = <const uint8_t*> a.buffers[0]
    for i in range(n):
        if halves[2 * i + 1] != halves[2 * i] >> 63 and (bits == NULL or bit(bits, start + i)):
            return False
    return True


cdef int import_packed(Batch* b, const ArrowArray* a, int64_t first, int64_t n, const char* format,
                       char** out) noexcept nogil:
    """import_values of a packed type, from the array's row `first` on."""
    cdef View* views = <View*> batch_alloc(b, n * 16)
    cdef int64_t total = packed_bound(format, a, first, n) if n else 0
    cdef char* heap = <char*> batch_alloc(b, total) if total >= 0 else NULL
    if views == NULL or heap == NULL or packed_views(format, a, first, n, heap, views) != 0:
        return -1
    out[0] = <char*> views
    return 0


cdef int import_values(Batch* b, const ArrowArray* a, int64_t start, int64_t n, int32_t type,
                       const char* format,
                       char** out) noexcept nogil:
    """Values of `n` rows from `start` (the child's own offset included): a pointer into the array, or a
    converted copy."""
    cdef View* views
    cdef const int32_t* o32
    cdef const int64_t* o64
    cdef const char* base
    cdef char* heap
    cdef int64_t i
    cdef uint8_t* bytes
    if type == PT_VIEW and format[0] == c'P':
        return import_packed(b, a, start - a.offset, n, format, out)
    if type == PT_BOOL:
        bytes = <uint8_t*> batch_alloc(b, n)
        if bytes == NULL:
            return -1
        if n:
            expand_bits(<const uint8_t*> a.buffers[1], start, n, bytes)
        out[0] = <char*> bytes
    elif type == PT_VIEW and format[0] == c'd':
        views = <View*> batch_alloc(b, n * 32 + 16)
        if views == NULL:
            return -1
        heap = <char*> (views + n)
        if n:
            decimals_encode(<const char*> a.buffers[1] + 16 * start, n, heap)
        for i in range(n):
            views[i].data = heap + 16 * i
            views[i].size = 16
        out[0] = <char*> views
    elif type == PT_VIEW:
        views = <View*> batch_alloc(b, n * 16)
        if views == NULL:
            return -1
        base = <const char*> a.buffers[2]
        if format[0] == c'u' or format[0] == c'z':
            o32 = <const int32_t*> a.buffers[1] + start
            for i in range(n):
                views[i].data = base + o32[i]
                views[i].size = o32[i + 1] - o32[i]
        elif format[0] == c'U' or format[0] == c'Z':
            o64 = <const int64_t*> a.buffers[1] + start
            for i in range(n):
                views[i].data = base + o64[i]
                views[i].size = o64[i + 1] - o64[i]
        else:
            return -2
        out[0] = <char*> views
    elif type == PT_I64 and format[0] == c'd':
        bytes = <uint8_t*> batch_alloc(b, n * 8)
        if bytes == NULL:
            return -1
        if n and not narrow(a, start, n, <int64_t*> bytes):
            return -2
        out[0] = <char*> bytes
    else:
        out[0] = <char*> a.buffers[1]
        if out[0] != NULL:
            out[0] += start * WIDTHS[type]
    return 0


cdef int fill_used(uint8_t* to, object used, object passing) except -1:
    """What batch_import wants to know. used: of each column, whether it is imported; passing: columns that
    pass unread, as values of a mapping."""
    for j, flag in enumerate(used):
        to[<int32_t> j] = IMPORTED if flag else UNUSED
    for j in passing.values():
        to[<int32_t> j] = PASSES
    return 0


cdef bint batch_converts(const Batch* b, const Layout* layout, const uint8_t* used) noexcept nogil:
    """Whether batch_import of b.array takes time for each row, and not only for each column. Cost: a few ns
    per column."""
    cdef int32_t j
    cdef const ArrowArray* a
    for j in range(layout.ncols):
        a = b.array.children[j]
        if used[j] != IMPORTED:
            continue
        if (layout.type[j] == PT_BOOL or layout.type[j] == PT_VIEW or layout.type[j] == PT_LIST
                or (a.null_count != 0 and a.n_buffers > 0 and a.buffers[0] != NULL)):
            return True
    return False


cdef int64_t extent(const ArrowArray* a, int64_t start, int64_t n, int32_t type, int32_t element,
                    const char* format,
                    const char* element_format) noexcept nogil:
    """Bytes of the rows from `start` in a column's buffers: what a batch, or a slice of one, keeps in
    memory. Cost: a few ns."""
    cdef int64_t bytes = 0
    cdef int64_t first
    cdef int64_t last
    cdef bint wide
    if format[0] == c'P':
        return packed_extent(format, a, start - a.offset, n)
    if a.n_buffers > 0 and a.buffers[0] != NULL:
        bytes = n // 8
    if type == PT_BOOL:
        return bytes + n // 8
    if (type != PT_VIEW and type != PT_LIST) or format[0] == c'd':
        return bytes + n * WIDTHS[type]
    if a.n_buffers < 2 or a.buffers[1] == NULL:
        return bytes
    wide = format[0] == c'U' or format[0] == c'Z' or (format[0] == c'+' and format[1] == c'L')
    if wide:
        first = (<const int64_t*> a.buffers[1])[start]
        last = (<const int64_t*> a.buffers[1])[start + n]
    else:
        first = (<const int32_t*> a.buffers[1])[start]
        last = (<const int32_t*> a.buffers[1])[start + n]
    bytes += n * (8 if wide else 4)
    if type == PT_VIEW:
        return bytes + last - first
    if last == first:
        return bytes
    return bytes + extent(a.children[0], a.children[0].offset + first, last - first, element, -1,
                          element_format, element_format)


cdef int note_nulls(Batch* b, const uint8_t* bits, int64_t first, int64_t total, int64_t width,
                    const char* elements, View* views) noexcept nogil:
    """Let views of lists, `total` elements of `width` bytes from `elements` on, say which of these are null.
    0, or -1: no memory."""
    cdef char* copied
    cdef int64_t n
    cdef int64_t at
    cdef int64_t i
    if not any_null(bits, first, total):
        return 0
    copied = <char*> batch_alloc(b, total * (width + 1) + 8 * b.rows)
    if copied == NULL:
        return -1
    for i in range(b.rows):
        n = views[i].size
        at = (views[i].data - elements) // width
        if n == 0 or not any_null(bits, first + at, n):
            continue
        memcpy(copied, views[i].data, <size_t> (n * width))
        expand_bits(bits, first + at, n, <uint8_t*> copied + n * width)
        views[i].data = copied
        views[i].size = n | LIST_NULLS
        copied += n * (width + 1) + 7 & ~<int64_t> 7          # elements lie at multiples of their width
    return 0


cdef int batch_import(Batch* b, const Layout* layout, const uint8_t* used,
                      const char** formats) noexcept nogil:
    """Make b.cols from b.array. `used`: UNUSED, IMPORTED or PASSES. `formats`: Arrow format per column, then
    per list element at ncols + j.

    Returns 0; -1: no memory; -2-j: column j is not in a supported layout, or has a decimal that no int64
    counts. Cost: nothing for fixed-width columns without nulls; one pass for
    booleans, strings, lists, decimals and validity.
    """
    cdef int32_t j
    cdef ArrowArray* a
    cdef ArrowArray* child
    cdef int64_t start
    cdef int64_t i
    cdef uint8_t* valid
    cdef int rc
    cdef View* views
    cdef const int32_t* o32 = NULL
    cdef const int64_t* o64 = NULL
    cdef char* elements
    cdef int64_t total
    cdef int64_t first
    cdef int32_t width
    b.rows = b.array.length
    b.widths = layout.width
    if b.rows:
        for j in range(layout.ncols):
            a = b.array.children[j]
            b.bytes += extent(a, b.array.offset + a.offset, b.rows, layout.type[j], layout.element[j],
                              formats[j],
                              formats[layout.ncols + j])
    for j in range(layout.ncols):
        if used[j] != IMPORTED:
            continue
        a = b.array.children[j]
        start = b.array.offset + a.offset
        if layout.type[j] == PT_LIST:
            child = a.children[0]
            if b.rows == 0:
                continue
            if formats[j][1] == c'l':
                o32 = <const int32_t*> a.buffers[1] + start
                first = o32[0]
                total = o32[b.rows] - first
            else:
                o64 = <const int64_t*> a.buffers[1] + start
                first = o64[0]
                total = o64[b.rows] - first
            rc = import_values(b, child, child.offset + first, total, layout.element[j],
                               formats[layout.ncols + j], &elements)
            if rc != 0:
                return -1 if rc == -1 else -2 - j
            views = <View*> batch_alloc(b, b.rows * 16)
            if views == NULL:
                return -1
            width = WIDTHS[layout.element[j]]
            for i in range(b.rows):
                if formats[j][1] == c'l':
                    views[i].data = elements + (o32[i] - first) * width
                    views[i].size = o32[i + 1] - o32[i]
                else:
                    views[i].data = elements + (o64[i] - first) * width
                    views[i].size = o64[i + 1] - o64[i]
            if child.null_count != 0 and child.buffers[0] != NULL:
                if note_nulls(b, <const uint8_t*> child.buffers[0], child.offset + first, total, width,
                              elements, views) != 0:
                    return -1
            b.cols[j].data = <char*> views
        else:
            rc = import_values(b, a, start, b.rows, layout.type[j], formats[j], &b.cols[j].data)
            if rc != 0:
                return -1 if rc == -1 else -2 - j
        if (a.null_count != 0 and a.n_buffers > 0 and a.buffers[0] != NULL
                and any_null(<const uint8_t*> a.buffers[0], start, b.rows)) or a.n_buffers == 0:
            valid = <uint8_t*> batch_alloc(b, b.rows)
            if valid == NULL:
                return -1
            if a.n_buffers == 0:
                memset(valid, 0, <size_t> b.rows)
            else:
                expand_bits(<const uint8_t*> a.buffers[0], start, b.rows, valid)
            b.cols[j].valid = valid
    return 0


cdef class BatchFormats:
    """Arrow format strings of a source schema, for batch_import. Memory ownership: holds the bytes it points
    to."""

    def __cinit__(self, schema):
        import pyarrow.types as pt

        def letter(t):
            packed = packed_format(t)
            if packed is not None:
                if not plain(t).equals(t):
                    raise TypeError(f"the core does not read {t}")
                return packed.encode()
            if pt.is_string(t):
                return b"u"
            if pt.is_binary(t):
                return b"z"
            if pt.is_large_string(t):
                return b"U"
            if pt.is_large_binary(t):
                return b"Z"
            if pt.is_list(t):
                return b"+l"
            if pt.is_large_list(t):
                return b"+L"
            if pt.is_decimal128(t):
                return b"d"
            return b"-"

        n = len(schema)
        self.schema = schema
        self.kept = [letter(f.type) for f in schema]
        self.kept += [letter(f.type.value_type) if t[:1] == b"+" else b"-"
                      for f, t in zip(schema, self.kept)]
        self.formats = <const char**> calloc(2 * n + 1, sizeof(char*))
        if self.formats == NULL:
            raise MemoryError
        for j, text in enumerate(self.kept):
            self.formats[j] = <const char*> (<bytes> text)

    def __dealloc__(self):
        free(self.formats)


@by_identity
def formats_of(schema):
    """BatchFormats of a pyarrow schema."""
    return BatchFormats(schema)
