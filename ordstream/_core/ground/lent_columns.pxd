"""Lent columns: columns of an output batch that are rows of an input batch, handed over without a copy.

a) A column that only passed the operators still lies where the import put it, so the egress knows it by its
   address. Rows that a kernel made, gathered or filled in lie elsewhere.
b) The lent columns of a batch are rows [first_row, first_row + rows) of one input batch. Where the next rows
   are others (some were dropped, another input batch begins), the batch ends, if it has LEAST_LENT rows;
   else its lent columns are copied and are its own from there on.
c) Ownership: an output batch that lends counts in `Batch.lent` until it was taken or freed, and an input
   batch for which one counts is not released (Run.retire). What the reader gets are slices of the record
   batch that the source gave: from there on Arrow's own references keep it.
d) A column that passes unread (source_values.pxd) is lent without a look at its address, also among rows
   that an operator made anew, if they are rows of the input batch one after the other.
e) Types: a value is lent as it lies in memory. Columns whose Arrow types hold the same bits (int64 and a
   time in ms) have one kind; others of another kind are copied.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, LayoutOwner
from ordstream._core.ground.imported_batch cimport Batch, BatchFormats
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.source_values cimport Passing

cdef enum:
    LEAST_LENT = 4096      # rows of a batch that ends only so that its columns need not be copied
    LEAST_TAKEN = 256      # a batch of fewer rows is copied: that takes less time than a slice per column

cdef enum Lending:
    LEND_GOES_ON           # the rows can be appended
    LEND_ENDS              # they belong into another batch
    LEND_NO_MEMORY

cdef struct ColumnKinds:
    # A number for each class of Arrow types that hold the same bits. Ownership: the run.
    int32_t* output        # per output column
    int32_t* source        # per column of an input batch
    Passing passing

cdef Lending output_lend(Output* o, const Chunk* c, int64_t start, int64_t n, Batch* b,
                         const ColumnKinds* kinds, const int32_t* rows=*) noexcept nogil
cdef int output_own(Output* o) noexcept nogil
cdef object lent_export(Output* o, object schema)                     # takes ownership of o
cdef void kinds_free(ColumnKinds* kinds) noexcept nogil
cdef int kinds_init(ColumnKinds* kinds, object output, BatchFormats formats, LayoutOwner layout,
                    object passing) except -1
