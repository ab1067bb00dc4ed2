"""Rows for Python functions. See row_cursor.pxd."""
from cpython.list cimport PyList_GET_ITEM
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Chunk, Column
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.object_slots cimport Py_XDECREF, ord_put, ord_slot, slot_of
from ordstream._core.state.python_values cimport ColumnReader, RowReader

import sys
import sysconfig

from ordstream._core.state.named_rows import NamedSlots
from ordstream.ground.columns_read import MOST_READ as MOST_KNOWN, columns_read
from ordstream.ground.rows import slotted_rows

cdef extern from *:
    """
    static PyObject* ord_new_row(PyObject* type, Py_ssize_t n) {
        return ((PyTypeObject*) type)->tp_alloc((PyTypeObject*) type, n);
    }
    static inline PyObject** ord_items(PyObject* tuple) { return ((PyTupleObject*) tuple)->ob_item; }
    """
    PyObject* ord_new_row(PyObject* type, Py_ssize_t n) except NULL
    Py_ssize_t Py_REFCNT(PyObject*)
    PyObject** ord_items(PyObject* tuple)

cdef enum:
    BLOCK_ROWS = 256

# Without a GIL a count of references is no answer.
cdef bint HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
# From 3.14 on a tuple remembers its hash.
cdef bint TUPLES_CHANGE = HAS_GIL and sys.hexversion < 0x030E0000


assert MOST_KNOWN == MOST_READ                           # plan/ and this module leave out the same columns


cdef class RowShape:
    """Rows of a schema for a function.

    Parameters
    ----------
    schema : pyarrow.Schema
    fn : callable
    """

    def __init__(self, schema, fn):
        cdef int32_t w
        self.reader = RowReader(schema)
        self.row_class = self.reader.row_class
        self.places = list(range(len(schema)))
        read = columns_read(fn, schema.names)
        if read is None:
            return
        self.row_class = slotted_rows([schema.names[j] for j in sorted(read)], NamedSlots)
        self.places = sorted(read)
        self.slotted = True
        for w, j in enumerate(self.places):
            self.slots[w] = slot_of(self.row_class, schema.names[j])

    cdef RowCursor over(self, Chunk* c, const int32_t* rows, int32_t n):
        """A cursor in front of the first of n rows. Borrows the chunk and `rows` (NULL: slots 0..n-1)."""
        cdef RowCursor cursor = RowCursor.__new__(RowCursor)
        cursor.shape = self
        cursor.c = c
        cursor.rows = rows
        cursor.n = n
        return cursor

    cdef object row(self, Chunk* c, int32_t slot):
        """One row."""
        return self.over(c, &slot, 1).at(0)


cdef class RowCursor:
    """Rows one after the other. Errors of a value that Python can't hold (a date after 9999) come from `at`
    of its row."""

    cdef int read(self, int32_t first, int32_t behind) except -1:
        """Read a block."""
        cdef Chunk* c = self.c
        cdef list readers = self.shape.reader.readers
        cdef list columns = []
        cdef const int32_t* rows = self.rows
        cdef ColumnReader reader
        cdef Column col
        cdef int32_t j
        if rows != NULL:
            rows += first
        for j in self.shape.places:
            reader = <ColumnReader> PyList_GET_ITEM(readers, j)
            col = c.cols[j]
            if self.rows == NULL and first and col.data != NULL:
                col.data += <Py_ssize_t> first * WIDTHS[reader.kind]
                if col.valid != NULL:
                    col.valid += first
            columns.append(reader.read(&col, rows, behind - first))
        self.columns = columns
        self.first = first
        return 0

    cdef int go(self, int32_t i) except -1:
        """Read the block that begins with row i."""
        if i < self.behind:                                   # in a block that is read row by row
            return self.read(i, i + 1)
        self.alone = False
        self.behind = min(i + BLOCK_ROWS, self.n)
        try:
            return self.read(i, self.behind)
        except Exception:
            self.alone = True
        return self.read(i, i + 1)

    cdef PyObject* made(self, int32_t k) except NULL:
        """The k-th row of the block, borrowed. A new tuple gets all its items: all columns are read."""
        cdef PyObject* row = self.last
        cdef PyObject** items
        cdef int32_t w
        cdef int32_t n = <int32_t> len(self.shape.places)
        if row == NULL or Py_REFCNT(row) != 1 or not (HAS_GIL if self.shape.slotted else TUPLES_CHANGE):
            Py_XDECREF(row)
            self.last = NULL
            row = ord_new_row(<PyObject*> self.shape.row_class, 0 if self.shape.slotted else n)
            self.last = row
        items = ord_items(row)
        for w in range(n):
            if self.shape.slotted:
                items = ord_slot(row, self.shape.slots[w])
            Py_XDECREF(ord_put(items, PyList_GET_ITEM(<list> PyList_GET_ITEM(self.columns, w), k)))
            items += 1
        return row

    cdef object at(self, int32_t i):
        """Row i; each next one is the last or lies behind it."""
        if self.alone or i >= self.behind:
            self.go(i)
        return <object> self.made(i - self.first)

    def __dealloc__(self):
        Py_XDECREF(self.last)

    cdef object at_or_none(self, int32_t i):
        """`at`; None where the row can't be read: `RowShape.row` then has the error."""
        if not self.alone and i < self.behind:               # of the block that was read
            return <object> self.made(i - self.first)
        found = None
        try:
            found = self.at(i)
        except Exception:
            pass
        return found
