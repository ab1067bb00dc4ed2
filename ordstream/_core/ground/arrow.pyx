"""Export of output batches as Arrow arrays (arrow.pxd states the contract)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from ordstream._core.ground.chunk cimport PT_BOOL, PT_LIST, PT_VIEW, View
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.imported_batch cimport BatchFormats
from ordstream._core.ground.output_batch cimport output_free
from ordstream._core.ground.output_columns cimport Output, OutputColumn
from ordstream._core.ground.packed_values cimport packed_export

cdef extern from "decimal128.hpp" namespace "ord" nogil:
    void decimal_decode(const char* value, char* to)

import pyarrow as pa

from ordstream._core.ground.imported_batch import formats_of
from ordstream.ground.by_identity import by_identity
from ordstream.ground.packed_types import plain


cdef struct Exported:
    # private_data of an exported array: everything its release frees.
    Output* output
    uint8_t** bitmaps
    int32_t nbitmaps


cdef void release_child(ArrowArray* a) noexcept nogil:
    a.release = NULL


cdef void release_made(ArrowArray* a) noexcept nogil:
    """An array of make_array, or one that owns what it is made of (packed_array)."""
    if a.private_data == NULL:
        free(a.buffers)
        a.release = NULL
    elif a.release != NULL:
        a.release(a)
    free(a)


cdef void release_exported(ArrowArray* a) noexcept nogil:
    """Frees an exported batch. May run on any thread, without the GIL: touches no Python."""
    cdef Exported* e = <Exported*> a.private_data
    cdef int64_t j
    cdef int32_t k
    for j in range(a.n_children):
        if a.children[j].private_data == NULL and a.children[j].n_children:
            release_made(a.children[j].children[0])
            free(a.children[j].children)
        release_made(a.children[j])
    free(a.children)
    free(a.buffers)
    for k in range(e.nbitmaps):
        free(e.bitmaps[k])
    free(e.bitmaps)
    output_free(e.output)
    free(e)
    a.release = NULL


cdef ArrowArray* make_array(int64_t length, int64_t null_count, int64_t n_buffers,
                            int64_t n_children) noexcept nogil:
    cdef ArrowArray* a = <ArrowArray*> calloc(1, sizeof(ArrowArray))
    if a == NULL:
        return NULL
    a.length = length
    a.null_count = null_count
    a.n_buffers = n_buffers
    a.n_children = n_children
    a.buffers = <const void**> calloc(n_buffers + 1, sizeof(void*))
    if n_children:
        a.children = <ArrowArray**> calloc(n_children, sizeof(ArrowArray*))
    a.release = release_child
    return a


cdef uint8_t* pack_bits(const uint8_t* bytes, int64_t n, int64_t* zeros) noexcept nogil:
    cdef uint8_t* out = <uint8_t*> calloc((n + 7) // 8 + 64, 1)
    cdef const uint8_t* b
    cdef int64_t i = 0
    cdef int64_t ones = 0
    if out == NULL:
        return NULL
    while i + 8 <= n:
        b = bytes + i
        out[i >> 3] = <uint8_t> (b[0] | b[1] << 1 | b[2] << 2 | b[3] << 3
                                 | b[4] << 4 | b[5] << 5 | b[6] << 6 | b[7] << 7)
        ones += b[0] + b[1] + b[2] + b[3] + b[4] + b[5] + b[6] + b[7]
        i += 8
    for i in range(i, n):
        if bytes[i]:
            out[i >> 3] |= 1 << (i & 7)
            ones += 1
    zeros[0] = n - ones
    return out


cdef uint8_t* widen(const int64_t* units, int64_t n) noexcept nogil:
    """Counts of a decimal's unit as decimals of 16 bytes, the lower half first; NULL: no memory."""
    cdef int64_t* out = <int64_t*> malloc(16 * n + 64)
    cdef int64_t i
    if out != NULL:
        for i in range(n):
            out[2 * i] = units[i]
            out[2 * i + 1] = units[i] >> 63
    return <uint8_t*> out


cdef uint8_t* decoded(const int32_t* offsets, const char* heap, int64_t n) noexcept nogil:
    """Decimals of over 18 digits, bytes here, as those of Arrow; NULL: no memory."""
    cdef char* out = <char*> calloc(n + 4, 16)
    cdef int64_t i
    if out != NULL:
        for i in range(n):
            if offsets[i + 1] - offsets[i] == 16:            # else a null
                decimal_decode(heap + offsets[i], out + 16 * i)
    return <uint8_t*> out


cdef ArrowArray* packed_array(const char* format, const OutputColumn* oc, int64_t n,
                              const uint8_t* valid) noexcept nogil:
    """Values of a packed type, bytes here, as an array; NULL: no memory."""
    cdef ArrowArray* a = <ArrowArray*> calloc(1, sizeof(ArrowArray))
    if a != NULL and packed_export(
            format, <const View*> NULL, NULL, <const int32_t*> oc.data, oc.heap, valid, n, a) != 0:
        free(a)
        return NULL
    return a


cdef bint converted(Exported* e, ArrowArray* a, uint8_t* values) noexcept nogil:
    """Make converted values those of an array, and the export's to free. False: no memory for them."""
    if values == NULL:
        return False
    e.bitmaps[e.nbitmaps] = values
    e.nbitmaps += 1
    a.buffers[1] = values
    return True


cdef ArrowArray* list_array(Exported* e, const OutputColumn* oc, int64_t rows, int32_t element,
                            const char* format) noexcept nogil:
    """Lists as an array; NULL: no memory. `format`: of the elements (BatchFormats)."""
    cdef ArrowArray* a = make_array(rows, 0, 2, 1)
    cdef ArrowArray* ch
    cdef uint8_t* bits
    cdef int64_t zeros
    a.buffers[1] = oc.data
    ch = make_array(oc.child_rows, 0, 2, 0)
    a.children[0] = ch
    ch.buffers[1] = oc.child.data
    if format[0] == c"d":
        if oc.child_rows and not converted(e, ch, widen(<const int64_t*> oc.child.data, oc.child_rows)):
            return NULL
    elif element == PT_BOOL:
        bits = pack_bits(<uint8_t*> oc.child.data, oc.child_rows, &zeros)
        e.bitmaps[e.nbitmaps] = bits
        e.nbitmaps += 1
        ch.buffers[1] = bits
    if oc.child.valid != NULL:
        bits = pack_bits(oc.child.valid, oc.child_rows, &zeros)
        e.bitmaps[e.nbitmaps] = bits
        e.nbitmaps += 1
        ch.null_count = zeros
        if zeros:
            ch.buffers[0] = bits
    return a


cdef ArrowArray* export_output(Output* o, const char** formats, int64_t n) noexcept nogil:
    """Arrow struct array over the buffers of `o`, which it owns from now on, without lent columns; NULL: no
    memory (o is kept). `formats`: of the n columns of the output, then of their elements (BatchFormats)."""
    cdef ArrowArray* top
    cdef ArrowArray* a
    cdef Exported* e = <Exported*> calloc(1, sizeof(Exported))
    cdef int32_t j
    cdef int64_t zeros
    cdef uint8_t* bits
    cdef int32_t place = 0
    cdef OutputColumn* oc
    if e == NULL:
        return NULL
    e.output = o
    e.bitmaps = <uint8_t**> calloc(4 * o.ncols + 1, sizeof(uint8_t*))
    for j in range(o.ncols):
        place += o.cols[j].source < 0
    top = make_array(o.rows, 0, 1, place)
    place = 0
    if top == NULL or e.bitmaps == NULL:
        return NULL
    top.private_data = e
    top.release = release_exported
    for j in range(o.ncols):
        oc = &o.cols[j]
        if oc.source >= 0:
            continue
        if o.layout.type[j] == PT_LIST:
            a = list_array(e, oc, o.rows, o.layout.element[j], formats[n + j])
            if a == NULL:
                return NULL
        elif formats[j][0] == c"P":
            a = packed_array(formats[j], oc, o.rows, oc.valid)
            if a == NULL:
                return NULL
            top.children[place] = a
            place += 1
            continue
        elif o.layout.type[j] == PT_VIEW and formats[j][0] == c"d":
            a = make_array(o.rows, 0, 2, 0)
            if o.rows and not converted(e, a, decoded(<const int32_t*> oc.data, oc.heap, o.rows)):
                return NULL
        elif o.layout.type[j] == PT_VIEW:
            a = make_array(o.rows, 0, 3, 0)
            a.buffers[1] = oc.data
            a.buffers[2] = oc.heap
        elif o.layout.type[j] == PT_BOOL:
            a = make_array(o.rows, 0, 2, 0)
            bits = pack_bits(<uint8_t*> oc.data, o.rows, &zeros)
            e.bitmaps[e.nbitmaps] = bits
            e.nbitmaps += 1
            a.buffers[1] = bits
        else:
            a = make_array(o.rows, 0, 2, 0)
            a.buffers[1] = oc.data
            if formats[j][0] == c"d" and o.rows:
                if not converted(e, a, widen(<const int64_t*> oc.data, o.rows)):
                    return NULL
        top.children[place] = a
        place += 1
        if oc.valid != NULL:
            bits = pack_bits(oc.valid, o.rows, &zeros)
            a.null_count = zeros
            e.bitmaps[e.nbitmaps] = bits
            e.nbitmaps += 1
            if zeros:
                a.buffers[0] = bits
    return top


cdef struct Joined:
    # private_data of an array with the columns of two others.
    ArrowArray lent
    ArrowArray* own


cdef void release_joined(ArrowArray* a) noexcept nogil:
    """Frees what both are made of. Any thread, without the GIL: what is lent takes it if it must."""
    cdef Joined* both = <Joined*> a.private_data
    both.own.release(both.own)
    free(both.own)
    both.lent.release(&both.lent)
    free(both)
    free(a.children)
    free(a.buffers)
    a.release = NULL


cdef ArrowArray* joined(const Output* o, ArrowArray* own, Joined* both) noexcept nogil:
    """The columns of an output in order: those lent are both.lent's, the others `own`'s. NULL: no memory,
    and nothing was taken."""
    cdef ArrowArray* top = make_array(o.rows, 0, 1, o.ncols)
    cdef int32_t lent = 0
    cdef int32_t j
    if top == NULL or top.buffers == NULL or top.children == NULL:
        if top != NULL:
            free(top.buffers)
            free(top.children)
            free(top)
        return NULL
    for j in range(o.ncols):
        if o.cols[j].source >= 0:
            top.children[j] = both.lent.children[lent]
            lent += 1
        else:
            top.children[j] = own.children[j - lent]
    both.own = own
    top.private_data = both
    top.release = release_joined
    return top


cdef object output_export(Output* o, object schema, object lent=None):
    """pyarrow.RecordBatch over the output's buffers (no copy). Takes ownership of `o`.

    schema: core_schema of its columns. lent: a RecordBatch of its lent columns, in order, of the same rows;
    each is taken as the schema's type, which holds the same bits (lent_columns.pxd).
    """
    cdef ArrowArray* a = NULL
    cdef ArrowArray* own = NULL
    cdef Joined* both = NULL
    cdef BatchFormats formats = formats_of(schema)
    cdef int64_t n = len(schema)
    cdef bint lends = lent is not None
    if lends:
        both = <Joined*> calloc(1, sizeof(Joined))
        try:
            if both != NULL:
                lent._export_to_c(<size_t> &both.lent)
        except BaseException:
            free(both)
            output_free(o)
            raise
    with nogil:
        if both != NULL or not lends:
            own = export_output(o, formats.formats, n)
        if own == NULL:
            output_free(o)
        else:
            a = joined(o, own, both) if lends else own
        if a == NULL:
            if own != NULL:
                own.release(own)
                free(own)
            if both != NULL:
                both.lent.release(&both.lent)
                free(both)
    if a == NULL:
        raise MemoryError("no memory to hand an output batch over")
    try:
        # not through capsules, which would make the schema anew for each batch
        return pa.RecordBatch._import_from_c(<size_t> a, schema)
    finally:
        if a.release != NULL:                                 # it was not taken
            a.release(a)
        free(a)


@by_identity
def core_schema(schema):
    """The schema in which the core hands batches over: each type is plain (ground/packed_types.py)."""
    return pa.schema([pa.field(f.name, plain(f.type)) for f in schema])
