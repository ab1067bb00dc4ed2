"""Columns that pass from input to output batches by reference. See lent_columns.pxd."""
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.arrow cimport output_export
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.atomics cimport add_acq_rel
from ordstream._core.ground.chunk cimport Chunk, Column, LayoutOwner, row_slot
from ordstream._core.ground.imported_batch cimport Batch, BatchFormats
from ordstream._core.ground.output_batch cimport output_column, output_drop, output_free, output_room
from ordstream._core.ground.output_columns cimport Output, offset_limit
from ordstream._core.ground.source_values cimport SourceRows
from ordstream._core.ground.unread_columns cimport output_unread

import pyarrow as pa
import pyarrow.types as pat

from ordstream.ground.by_identity import by_identity

cdef enum:
    MOST_OFFSET = 0x7fffffff


cdef inline bint lies_in(const Chunk* c, int32_t j, const Batch* b, int32_t s,
                         int64_t offset) noexcept nogil:
    """Whether slot i of column j is row `offset` + i of column s of an input batch."""
    cdef const uint8_t* valid = b.cols[s].valid
    if valid != NULL:
        valid += offset
    return (b.cols[s].data != NULL and c.cols[j].data == b.cols[s].data + offset * b.widths[s]
            and c.cols[j].valid == valid)


cdef int64_t batch_row(const Chunk* c, int64_t start, int64_t n, const Batch* b,
                       const int32_t* rows) noexcept nogil:
    """The row of an input batch that the start-th selected row is, if the n from there on are rows one after
    the other; else -1. So is it where offsets end earlier than the source's (tests)."""
    cdef int32_t slot = row_slot(c, <int32_t> start)
    cdef int64_t row
    cdef int64_t i
    if b == NULL or offset_limit < MOST_OFFSET:
        return -1
    if rows != NULL:
        row = rows[start]
        if rows[start + n - 1] - row != n - 1:
            return -1
        for i in range(n):
            if rows[start + i] - i != row:
                return -1
        return row
    if c.serials != NULL:
        return -1
    if c.sel != NULL and c.sel[start + n - 1] - slot != n - 1:
        return -1
    row = c.first_serial + slot - b.first_serial
    return row if row >= 0 and row + n <= b.rows else -1


cdef int begin(Output* o, const Chunk* c, Batch* b, int64_t row, int64_t offset, const ColumnKinds* kinds,
               bint made) noexcept nogil:
    """Decide for each column of an empty batch. row -1: none is lent; `made`: an operator made the rows, so
    only columns that pass unread are. 0, or -1: no memory."""
    cdef int32_t following = 0     # columns mostly are in order
    cdef int32_t found
    cdef int32_t s
    cdef int32_t j
    cdef int32_t _k
    release(o)
    for j in range(o.ncols):
        found = -1
        if row >= 0 and kinds.passing.column != NULL and kinds.passing.column[j] >= 0:
            if o.cols[j].data == NULL:
                found = kinds.passing.column[j]
        elif row >= 0 and not made and o.cols[j].data == NULL:
            s = following
            for _k in range(b.ncols):
                if s == b.ncols:
                    s = 0
                if kinds.output[j] == kinds.source[s] and lies_in(c, j, b, s, offset):
                    found = s
                    break
                s += 1
        o.cols[j].source = found
        if found < 0:
            if output_room(o, j) != 0:
                return -1
            continue
        following = found + 1
        if o.lender == NULL:
            o.lender = <void*> b
            o.lent = &b.lent
            o.passing = &kinds.passing
            add_acq_rel(o.lent, 1)                            # before emitted_serial passes the batch's rows
    o.first_row = row
    return 0


cdef void release(Output* o) noexcept nogil:
    """Let go of the input batch."""
    if o.lent != NULL:
        add_acq_rel(o.lent, -1)                               # pairs with load_acquire in Run.retire
    o.lent = NULL
    o.lender = NULL


cdef inline bint unread(const Output* o, int32_t j) noexcept nogil:
    """Whether a lent column passes unread."""
    return o.passing.column != NULL and o.passing.column[j] >= 0


cdef int own(Output* o, int32_t j) noexcept nogil:
    """Copy what is lent of a column. 0; -1: there is no memory or no room for it, and it stays lent."""
    cdef const Batch* b = <const Batch*> o.lender
    cdef int32_t s = o.cols[j].source
    cdef Column col = b.cols[s]
    cdef SourceRows rows
    cdef int64_t done = -1
    if output_room(o, j) == 0:
        if unread(o, j):
            rows.batch = b
            rows.passing = o.passing
            rows.row = o.first_row
            rows.rows = NULL
            done = output_unread(o, j, &rows, s, NULL, 0, o.rows, 0)
        else:
            col.data += o.first_row * b.widths[s]
            if col.valid != NULL:
                col.valid += o.first_row
            done = output_column(o, j, &col, NULL, o.rows, 0)
    if done == o.rows:
        o.cols[j].source = -1
        return 0
    output_drop(o, j)
    o.cols[j].source = s
    return -1


cdef int output_own(Output* o) noexcept nogil:
    """Copy all lent columns. 0; -1: some could not be copied and stay lent.

    Thread safety: the batch's writer, or its reader. Cost: as output_append of all its rows.
    """
    cdef int32_t j
    for j in range(o.ncols):
        if o.cols[j].source >= 0 and own(o, j) != 0:
            return -1
    release(o)
    return 0


cdef Lending output_lend(Output* o, const Chunk* c, int64_t start, int64_t n, Batch* b,
                         const ColumnKinds* kinds, const int32_t* rows=NULL) noexcept nogil:
    """Prepare a batch for n > 0 selected rows of a chunk, from the start-th on (output_append): lent columns
    must go on, in input batch `b` (NULL: the rows are of none). `rows`: SourceRows.rows.

    Thread safety: the batch's writer. Cost: a few compares per lent column, and with `rows` one per row; for
    an empty batch, columns times source columns.
    """
    cdef int64_t row = batch_row(c, start, n, b, rows)
    cdef int64_t offset
    cdef int32_t j
    if o.rows == 0:
        offset = 0 if row < 0 else row - row_slot(c, <int32_t> start)
        return LEND_GOES_ON if begin(o, c, b, row, offset, kinds, rows != NULL) == 0 else LEND_NO_MEMORY
    if o.lender == NULL:
        return LEND_GOES_ON
    if <void*> b == o.lender and row == o.first_row + o.rows:
        offset = row - row_slot(c, <int32_t> start)
        for j in range(o.ncols):
            if (o.cols[j].source >= 0 and not unread(o, j)
                    and (rows != NULL or not lies_in(c, j, b, o.cols[j].source, offset)) and own(o, j) != 0):
                return LEND_ENDS
        return LEND_GOES_ON
    if o.rows >= LEAST_LENT or output_own(o) != 0:
        return LEND_ENDS
    return LEND_GOES_ON


cdef object lent_export(Output* o, object schema):
    """output_export of a batch that may lend rows of the source's record batch.

    schema: of the output, in core types. Thread safety: the batch's reader, with the GIL. Cost: as
    output_export, and ~0.3 us per lent column.
    """
    cdef ArrowArray a
    cdef Batch* b
    cdef int32_t j
    if o.lender != NULL and o.rows < LEAST_TAKEN:
        output_own(o)                                         # without memory some stay lent
    if o.lender == NULL:
        return output_export(o, schema)
    b = <Batch*> o.lender
    source = <object> <PyObject*> b.source
    try:
        lent = source.select([o.cols[j].source for j in range(o.ncols) if o.cols[j].source >= 0])
        lent = lent.slice(o.first_row, o.rows)
    except BaseException:
        output_free(o)
        raise
    release(o)
    if lent.num_columns < o.ncols:
        return output_export(o, schema, lent)
    output_free(o)
    if lent.schema.equals(schema, check_metadata=True):
        return lent
    lent._export_to_c(<size_t> &a)
    return pa.RecordBatch._import_from_c(<size_t> &a, schema)


# ---------------------------------------------------------------- kinds of types

def kind_of(type_):
    """What types that hold the same bits have in common."""
    if pat.is_primitive(type_) and not pat.is_boolean(type_):
        return type_.bit_width
    return str(type_)


@by_identity
def kinds_of(schema):
    """kind_of of its columns."""
    return tuple([kind_of(type_) for type_ in schema.types])


cdef int kinds_init(ColumnKinds* kinds, object output, BatchFormats formats, LayoutOwner layout,
                    object passing) except -1:
    """Fill the kinds of the output's schema, in core types, and the source's, of which formats and layout
    are borrowed. passing: of output columns that pass unread, the source's."""
    source = formats.schema
    numbers = {}
    kinds.output = <int32_t*> calloc(len(output) + 1, sizeof(int32_t))
    kinds.source = <int32_t*> calloc(len(source) + 1, sizeof(int32_t))
    if kinds.output == NULL or kinds.source == NULL:
        raise MemoryError
    for j, kind in enumerate(kinds_of(output)):
        kinds.output[j] = numbers.setdefault(kind, len(numbers))
    for j, kind in enumerate(kinds_of(source)):
        kinds.source[j] = numbers.setdefault(kind, len(numbers))
    kinds.passing.layout = &layout.layout
    kinds.passing.formats = formats.formats
    if passing:
        kinds.passing.column = <int32_t*> calloc(len(output) + 1, sizeof(int32_t))
        if kinds.passing.column == NULL:
            raise MemoryError
        for j in range(len(output)):
            kinds.passing.column[j] = passing.get(j, -1)
    return 0


cdef void kinds_free(ColumnKinds* kinds) noexcept nogil:
    free(kinds.output)
    free(kinds.source)
    free(kinds.passing.column)
    kinds.passing.column = NULL
    kinds.output = NULL
    kinds.source = NULL
