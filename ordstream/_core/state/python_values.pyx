"""Columns to Python values and back. See python_values.pxd."""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_FromDouble
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_PYTHON, PT_BOOL, PT_F32, PT_F64, PT_I8, PT_I16, PT_I32, PT_I64, PT_LIST, PT_U8, PT_U16,
    PT_U64, PT_VIEW, Chunk, Column, Failure, View, Worker, chunk_alloc, chunk_set_valid, failure_set,
)
from ordstream._core.ground.list_values cimport LIST_NULLS, list_count, list_valid, view_bytes
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.packed_arrays cimport packed_put, packed_rows
from ordstream._core.state.wide_values cimport wide_array, wide_put

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from ordstream._core.state.common_values import common_values
from ordstream._core.state.named_rows import NamedTuple
from ordstream.errors import shown
from ordstream.ground.datetimes import listed, maker
from ordstream.ground.packed_types import as_plain, is_packed, packed_format
from ordstream.ground.rows import row_class, whole_row
from ordstream.ground.types import (
    from_storage, is_counted, is_string, is_temporal, is_wide, physical_type, storage_array, storage_type,
    to_storage,
)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef object NONE = None


cdef inline void put_item(list out, Py_ssize_t i, object value) noexcept:
    """PyList_SET_ITEM with the reference that it steals."""
    Py_INCREF(value)
    PyList_SET_ITEM(out, i, value)


cdef inline int64_t load_integer(int32_t kind, const char* p) noexcept nogil:
    """An integer of any class but U64, widened. Unaligned loads are allowed."""
    cdef int16_t a
    cdef uint16_t b
    cdef int32_t c
    cdef uint32_t d
    cdef int64_t e
    if kind == PT_I64:
        memcpy(&e, p, 8)
        return e
    if kind == PT_I32:
        memcpy(&c, p, 4)
        return c
    if kind == PT_I16:
        memcpy(&a, p, 2)
        return a
    if kind == PT_I8:
        return (<int8_t*> p)[0]
    if kind == PT_U8:
        return (<uint8_t*> p)[0]
    if kind == PT_U16:
        memcpy(&b, p, 2)
        return b
    memcpy(&d, p, 4)
    return d


cdef inline object load_value(int32_t kind, int32_t text, const char* p):
    """The storage value at `p`, for the classes that need no Arrow type."""
    cdef uint64_t u
    cdef double f
    cdef float g
    cdef View v
    if kind == PT_F64:
        memcpy(&f, p, 8)
        return PyFloat_FromDouble(f)
    if kind == PT_F32:
        memcpy(&g, p, 4)
        return PyFloat_FromDouble(g)
    if kind == PT_BOOL:
        return p[0] != 0
    if kind == PT_U64:
        memcpy(&u, p, 8)
        return u
    if kind == PT_VIEW:
        memcpy(&v, p, sizeof(View))
        if text:
            return PyUnicode_DecodeUTF8(v.data, v.size, NULL) if v.size else ""
        return PyBytes_FromStringAndSize(v.data if v.size else NULL, v.size)
    return load_integer(kind, p)


cdef class ColumnReader:
    """Reads one column of a chunk as Python values.

    Parameters
    ----------
    type_ : pyarrow.DataType
    name : str
        For error texts.
    """

    def __init__(self, type_, name):
        physical = physical_type(type_, name)
        self.kind = physical.code
        self.width = physical.width
        self.text = is_string(type_)
        format = packed_format(type_)
        self.packed = None if format is None else format.encode()
        self.by_arrow = is_temporal(type_) or pat.is_decimal(type_) or self.packed is not None
        self.type = type_
        self.made = maker(type_)
        self.element = ColumnReader(type_.value_type, name) if self.kind == PT_LIST else None

    cdef list read(self, const Column* col, const int32_t* rows, int32_t n):
        """Values of the rows (slots; NULL: 0..n-1), None for nulls. A column without data reads as None."""
        cdef list out
        cdef int32_t i, slot
        cdef int32_t kind = self.kind
        cdef int32_t width = WIDTHS[kind]
        if col.data == NULL:
            return [None] * n
        if self.by_arrow:
            out = None if self.made is None else self.read_datetimes(col, rows, n)
            return listed(self.arrow(col, rows, n)) if out is None else out
        if kind == PT_LIST:
            return self.read_lists(col, rows, n)
        out = PyList_New(n)
        for i in range(n):
            slot = i if rows == NULL else rows[i]
            if col.valid != NULL and not col.valid[slot]:
                put_item(out, i, NONE)
            elif kind == PT_I64:
                put_item(out, i, (<int64_t*> col.data)[slot])
            else:
                put_item(out, i, load_value(kind, self.text, col.data + <int64_t> slot * width))
        return out

    cdef list read_datetimes(self, const Column* col, const int32_t* rows, int32_t n):
        """Dates, times and durations; None: Arrow must make them."""
        cdef int32_t i
        cdef bytearray storage = bytearray(<int64_t> n * self.width)
        cdef bytearray mask
        valid = None
        gather(PyByteArray_AS_STRING(storage), col.data, rows, n, self.width)
        if col.valid != NULL:
            mask = bytearray(n)
            for i in range(n):
                PyByteArray_AS_STRING(mask)[i] = col.valid[i if rows == NULL else rows[i]] != 0
            valid = np.frombuffer(mask, np.bool_)
        return self.made(np.frombuffer(storage, np.int64 if self.width == 8 else np.int32), valid)

    cdef list read_lists(self, const Column* col, const int32_t* rows, int32_t n):
        cdef Column flat
        cdef View v
        cdef int32_t i, slot
        cdef list out = []
        for i in range(n):
            slot = i if rows == NULL else rows[i]
            if col.valid != NULL and not col.valid[slot]:
                out.append(None)
                continue
            memcpy(&v, col.data + <int64_t> slot * sizeof(View), sizeof(View))
            flat.data = <char*> v.data
            flat.valid = <uint8_t*> list_valid(&v, self.element.width)
            out.append([] if v.size == 0 else self.element.read(&flat, NULL, <int32_t> list_count(&v)))
        return out

    cdef object arrow(self, const Column* col, const int32_t* rows, int32_t n):
        """The rows as a pyarrow.Array of this column's type. Everything is copied. A column without data is
        all null."""
        cdef bytes bits = None
        cdef bytes data
        cdef char* mask = NULL
        cdef int32_t i, slot
        if col.data == NULL:
            return pa.nulls(n, self.type)
        if col.valid != NULL:
            bits = bytes((n + 7) // 8)
            mask = PyBytes_AS_STRING(bits)
            for i in range(n):
                slot = i if rows == NULL else rows[i]
                if col.valid[slot]:
                    mask[i >> 3] |= <char> (1 << (i & 7))
        if self.packed is not None:
            return packed_rows(self.type, self.packed, col, rows, n)
        valid = None if bits is None else pa.py_buffer(bits)
        if is_wide(self.type):
            return wide_array(self.type, col, rows, n, valid)
        if self.kind == PT_VIEW or self.kind == PT_LIST:
            return self.arrow_views(col, rows, n, valid)
        data = PyBytes_FromStringAndSize(NULL, <int64_t> n * WIDTHS[self.kind])
        gather(PyBytes_AS_STRING(data), col.data, rows, n, WIDTHS[self.kind])
        if self.kind == PT_BOOL:
            bits = bytes((n + 7) // 8)
            mask = PyBytes_AS_STRING(bits)
            for i in range(n):
                if PyBytes_AS_STRING(data)[i]:
                    mask[i >> 3] |= <char> (1 << (i & 7))
            data = bits
        if self.kind == PT_I64 and is_counted(self.type):
            units = pa.Array.from_buffers(pa.int64(), n, [valid, pa.py_buffer(data)])
            return from_storage(units, self.type)
        return pa.Array.from_buffers(self.type, n, [valid, pa.py_buffer(data)])

    cdef object arrow_views(self, const Column* col, const int32_t* rows, int32_t n, object valid):
        """`arrow` for strings, binaries and lists: 64-bit offsets, then a cast where the type has others."""
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (<int64_t> n + 1) * 8)
        cdef int64_t* at = <int64_t*> PyBytes_AS_STRING(offsets)
        cdef int32_t width = 1 if self.kind == PT_VIEW else WIDTHS[self.element.kind]
        cdef bytes data
        cdef bytearray there = None                 # of the elements: a byte for each, once one is null
        cdef char* to
        cdef const uint8_t* nulls
        cdef View v
        cdef int32_t i, slot, step
        cdef Column flat
        at[0] = 0
        for step in range(2):                       # sizes, then bytes
            if step:
                if self.kind == PT_LIST and at[n] > 0x7fffffff:
                    # the rows are then tried one by one
                    raise OverflowError(f"{at[n]} list elements in one batch")
                data = PyBytes_FromStringAndSize(NULL, at[n] * width)
                to = PyBytes_AS_STRING(data)
            for i in range(n):
                slot = i if rows == NULL else rows[i]
                if col.valid != NULL and not col.valid[slot]:
                    at[i + 1] = at[i]
                    continue
                memcpy(&v, col.data + <int64_t> slot * sizeof(View), sizeof(View))
                if not step:
                    at[i + 1] = at[i] + list_count(&v)
                elif v.size:
                    memcpy(to + at[i] * width, v.data, list_count(&v) * width)
                    nulls = list_valid(&v, width)
                    if nulls != NULL:
                        there = bytearray(b"\1") * at[n] if there is None else there
                        memcpy(PyByteArray_AS_STRING(there) + at[i], nulls, list_count(&v))
        if self.kind == PT_VIEW:
            big = pa.large_string() if self.text else pa.large_binary()
            array = pa.Array.from_buffers(big, n, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])
        else:
            flat.data = PyBytes_AS_STRING(data)
            flat.valid = NULL
            if there is not None:
                flat.valid = <uint8_t*> PyByteArray_AS_STRING(there)
            big = pa.large_list(self.type.value_type)
            values = self.element.arrow(&flat, NULL, <int32_t> at[n])
            array = pa.Array.from_buffers(big, n, [valid, pa.py_buffer(offsets)], children=[values])
        return array if big == self.type else array.cast(self.type)


cdef int exception_set(Failure* f, int32_t slot, object exc) except -1:
    """Fill a failure from a Python exception. `f.exc` gets a new reference."""
    try:
        text = f"{type(exc).__name__}: {exc}"
    except Exception:
        text = type(exc).__name__
    failure_set(f, slot, FAIL_PYTHON, text.encode("utf-8", "replace"))
    Py_INCREF(exc)
    f.exc = <void*> exc
    return 0


cdef class RowReader:
    """Reads rows of a schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    storage : bool
        Temporal columns as the integer count of their unit (what a compiled function sees) instead of
        datetime objects.
    """

    def __init__(self, schema, storage=False):
        self.readers = [ColumnReader(storage_type(f.type) if storage else f.type, f.name) for f in schema]
        self.row_class = row_class(schema.names, NamedTuple)

    cdef list columns(self, Chunk* c, const int32_t* rows, int32_t n):
        cdef int32_t j
        return [(<ColumnReader> self.readers[j]).read(&c.cols[j], rows, n) for j in range(len(self.readers))]

    cdef list rows(self, Chunk* c, const int32_t* rows, int32_t n):
        """One Row (a tuple with attributes) per row."""
        return list(map(self.row_class, zip(*self.columns(c, rows, n))))

    cdef object row(self, Chunk* c, int32_t slot):
        """One row."""
        return self.rows(c, &slot, 1)[0]


cdef class ColumnWriter:
    """Writes Python values into one output column, strictly (ordstream.ground.types.to_storage says what
    fits).

    Parameters
    ----------
    field : pyarrow.Field
    """

    def __init__(self, field):
        type_ = field.type
        self.kind = physical_type(type_, field.name).code
        self.text = is_string(type_)
        self.nullable = field.nullable
        self.width = WIDTHS[self.kind]
        self.name = field.name
        self.type = type_
        self.wide = is_wide(type_)
        self.packed = is_packed(type_)
        self.common = common_values(type_)
        self.low = 1
        self.high = 0
        if pat.is_integer(type_) and self.kind != PT_U64:
            bits = type_.bit_width
            signed = pat.is_signed_integer(type_)
            self.low = -(1 << (bits - 1)) if signed else 0
            self.high = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
        self.element = None
        if self.kind == PT_LIST:
            self.element = ColumnWriter(pa.field(field.name, type_.value_type, type_.value_field.nullable))

    cdef int write(self, Worker* w, Chunk* out, int32_t col, int32_t index, object value) except -1:
        """Write `value` at a slot that chunk_reserve made room for.

        Thread safety: owner of `out`, GIL held. Ownership: string bytes are copied into out's arena. Errors:
        TypeError, OverflowError, ValueError naming the column; MemoryError. Cost: ~10 ns for int, float,
        bool and str.
        """
        cdef Column* c = &out.cols[col]
        cdef char* to = c.data + <int64_t> index * self.width
        if value is None:
            if not self.nullable:
                raise ValueError(f"column {self.name!r} is declared without nulls, got None")
            if chunk_set_valid(w, out, col) < 0:
                raise MemoryError
            c.valid[index] = 0
            memset(to, 0, self.width)
            return 0
        if c.valid != NULL:
            c.valid[index] = 1
        return self.put(w, out, to, value)

    cdef int put(self, Worker* w, Chunk* out, char* to, object value) except -1:
        """`write` of a value that is not None. Fast ways by exact type, everything else by to_storage."""
        cdef int64_t v
        cdef int overflow = 0
        if type(value) is int and self.low <= self.high:
            v = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow and self.low <= v <= self.high:
                memcpy(to, &v, self.width)          # little endian: the low bytes
                return 0
        elif type(value) is float and self.kind == PT_F64:
            (<double*> to)[0] = PyFloat_AS_DOUBLE(value)
            return 0
        elif type(value) is bool and self.kind == PT_BOOL:
            to[0] = value is True
            return 0
        elif type(value) is str and self.text:
            return self.put_storage(w, out, to, value)
        elif self.common is not None and self.common.put(w, out, to, value):
            return 0
        return self.put_storage(w, out, to, to_storage(value, self.type, self.name))

    cdef int put_storage(self, Worker* w, Chunk* out, char* to, object value) except -1:
        """Write a storage value."""
        cdef const char* data
        cdef char* at
        cdef Py_ssize_t size, i
        cdef View view
        cdef int64_t v
        cdef uint64_t u
        cdef double d
        cdef float f
        if self.wide:
            raw = from_storage([value], self.type).buffers()[1].to_pybytes()
            wide_put(w, out, to, PyBytes_AS_STRING(raw), 1)
        elif self.packed:
            packed_put(w, out, to, from_storage([value], self.type))
        elif self.kind == PT_VIEW:
            if self.text:
                data = PyUnicode_AsUTF8AndSize(value, &size)
            else:
                data = PyBytes_AS_STRING(value)
                size = PyBytes_GET_SIZE(value)
            view.size = size
            view.data = NULL
            if size:
                view.data = chunk_alloc(w, out, size)
                if view.data == NULL:
                    raise MemoryError
                memcpy(<char*> view.data, data, size)
            memcpy(to, &view, sizeof(View))
        elif self.kind == PT_LIST:
            size = len(value)
            view.size = size
            view.data = NULL
            if size:
                some = None in value
                if some and not self.element.nullable:
                    raise ValueError(f"column {self.name!r}: its lists are declared without None")
                if some:
                    view.size = size | LIST_NULLS
                view.data = chunk_alloc(w, out, view_bytes(view.size, self.element.width))
                if view.data == NULL:
                    raise MemoryError
                for i in range(size):
                    at = <char*> view.data + i * self.element.width
                    memset(at, 0, self.element.width)
                    if value[i] is not None:
                        self.element.put_storage(w, out, at, value[i])
                    if some:
                        (<char*> view.data)[size * self.element.width + i] = value[i] is not None
            memcpy(to, &view, sizeof(View))
        elif self.kind == PT_F64:
            d = value
            memcpy(to, &d, 8)
        elif self.kind == PT_F32:
            f = value
            memcpy(to, &f, 4)
        elif self.kind == PT_BOOL:
            to[0] = value is True
        elif self.kind == PT_U64:
            u = value
            memcpy(to, &u, 8)
        else:
            v = value
            memcpy(to, &v, self.width)
        return 0

    cdef int write_array(self, Worker* w, Chunk* out, int32_t col, int32_t start, object array) except -1:
        """Write a pyarrow.Array of exactly this column's type behind slot `start`; `out` has room for it.

        Thread safety: owner of `out`, GIL held. Ownership: everything is copied. Errors: ValueError for a
        null in a column that is not nullable; MemoryError. Cost: a copy.
        """
        cdef int64_t n = len(array)
        cdef int64_t i, offset, a, b
        cdef const uint8_t* bits
        cdef const char* data
        cdef const int64_t* offsets
        cdef char* to
        cdef char* heap
        cdef bytes there = None                     # of elements: a byte for each, where one is null
        cdef int64_t size
        cdef View view
        cdef Column* c = &out.cols[col]
        cdef int32_t width
        if self.kind == PT_LIST and array.type != pa.large_list(self.type.value_type):
            array = array.cast(pa.large_list(self.type.value_type))
        elif self.packed:
            array = as_plain(array)
        elif self.kind == PT_VIEW and not self.wide:
            array = array.cast(pa.large_string() if self.text else pa.large_binary())
        elif is_counted(array.type):
            array = storage_array(array)
        buffers = array.buffers()
        offset = array.offset
        self.write_nulls(w, out, col, start, array, buffers)
        if n == 0:
            return 0
        to = c.data + <int64_t> start * self.width
        if self.kind == PT_BOOL:
            bits = <const uint8_t*> <uintptr_t> buffers[1].address
            for i in range(n):
                to[i] = bits[(offset + i) >> 3] >> ((offset + i) & 7) & 1
        elif self.wide:
            wide_put(w, out, to, <const char*> <uintptr_t> buffers[1].address + offset * 16, n)
        elif self.packed:
            packed_put(w, out, to, array)
        elif self.kind in (PT_VIEW, PT_LIST):
            offsets = <const int64_t*> <uintptr_t> buffers[1].address + offset
            a = offsets[0]
            b = offsets[n]
            width = 1
            data = NULL
            values = None
            if self.kind == PT_LIST:
                width = self.element.width
                items = array.values.slice(a, b - a)
                if items.null_count:
                    if not self.element.nullable and array.flatten().null_count:
                        raise ValueError(f"column {self.name!r}: its lists are declared without nulls")
                    there = bytes(items.is_valid().to_pylist())
                values = self._element_bytes(items)
                data = values
            elif buffers[2] is not None:
                data = <const char*> <uintptr_t> buffers[2].address + a
            heap = chunk_alloc(w, out, (b - a) * (width + (there is not None)) + 8 * n + 1)
            if heap == NULL:
                raise MemoryError
            if b > a and there is None:
                memcpy(heap, data, (b - a) * width)
            for i in range(n):
                size = offsets[i + 1] - offsets[i]
                view.size = size
                view.data = heap if size else NULL
                if there is not None and size:
                    memcpy(heap, data + (offsets[i] - a) * width, size * width)
                    if b"\0" in there[offsets[i] - a:offsets[i + 1] - a]:
                        memcpy(heap + size * width, PyBytes_AS_STRING(there) + offsets[i] - a, size)
                        view.size = size | LIST_NULLS
                heap += view_bytes(view.size, width)
                if there is not None:                        # elements lie at multiples of their width
                    heap += -view_bytes(view.size, width) & 7
                memcpy(to + i * sizeof(View), &view, sizeof(View))
        else:
            memcpy(to, <const char*> <uintptr_t> buffers[1].address + offset * self.width, n * self.width)
        return 0

    cdef int write_nulls(self, Worker* w, Chunk* out, int32_t col, int32_t start, object array,
                         list buffers) except -1:
        """`write_array`, which values are null."""
        cdef int64_t n = len(array)
        cdef int64_t offset = array.offset
        cdef int64_t i
        cdef const uint8_t* bits
        cdef Column* c = &out.cols[col]
        if array.null_count:
            if not self.nullable:
                raise ValueError(f"column {self.name!r} is declared without nulls, got a null")
            if chunk_set_valid(w, out, col) < 0:
                raise MemoryError
        if c.valid == NULL:
            return 0
        memset(c.valid + start, 1, n)
        if array.null_count and buffers[0] is None:          # nothing but nulls
            memset(c.valid + start, 0, n)
        elif array.null_count:
            bits = <const uint8_t*> <uintptr_t> buffers[0].address
            for i in range(n):
                c.valid[start + i] = bits[(offset + i) >> 3] >> ((offset + i) & 7) & 1
        return 0

    def _element_bytes(self, array):
        """The values of a primitive array as one bytes object, bools as one byte each."""
        if self.element.kind == PT_BOOL:
            return bytes(array.fill_null(False).to_pylist())
        size = self.element.width
        buffer = array.buffers()[1]
        if buffer is None:
            return b""
        return bytes(buffer[array.offset * size:(array.offset + len(array)) * size])


cdef class RowWriter:
    """Writes output rows of a schema."""

    def __init__(self, schema):
        self.writers = [ColumnWriter(field) for field in schema]
        self.names, self.ncols = tuple(schema.names), <int32_t> len(self.writers)
        self.whole = whole_row(schema)

    cdef int append(self, Worker* w, Chunk* out, tuple values, int32_t origin) except -1:
        """Write one row at slot out.n and count it. Room must have been reserved. An error leaves out.n as
        it was."""
        cdef int32_t j
        if len(values) != self.ncols:
            raise self.wrong_count(values)
        for j in range(self.ncols):
            (<ColumnWriter> self.writers[j]).write(w, out, j, out.n, values[j])
        out.origin[out.n] = origin
        out.n += 1
        out.slots = out.n
        return 0

    cdef tuple fitted(self, object result):
        """What a function returned for one output, as a tuple in the order of the schema. Values are not
        looked at."""
        if type(result) is tuple:
            return result
        if isinstance(result, dict):
            if type(result) is dict and len(result) == self.ncols:
                try:
                    return tuple([result[name] for name in self.names])
                except KeyError:
                    pass                                          # which is told below
            if set(result) != set(self.names):
                raise ValueError(f"expected a dict with the keys {list(self.names)}, got {list(result)}")
            return tuple([result[name] for name in self.names])
        if not isinstance(result, (tuple, list)):
            raise TypeError(f"expected a tuple, list or dict with {list(self.names)}, got "
                            f"{type(result).__name__} {shown(result)}")
        if len(result) != self.ncols:
            raise self.wrong_count(result)
        return tuple(result)

    def wrong_count(self, values):
        """The error for a row of another length."""
        return ValueError(f"expected {self.ncols} values ({', '.join(self.names)}), got {len(values)}: "
                          f"{shown(values)}")
