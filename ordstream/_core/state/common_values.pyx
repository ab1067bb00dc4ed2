"""Values of Python's classes as bytes of a column. See common_values.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport Chunk, View, Worker, chunk_alloc
from ordstream._core.ground.list_values cimport LIST_NULLS
from ordstream._core.state.wide_values cimport wide_put

import decimal

import pyarrow.types as pat

from ordstream.ground.datetimes import counter
from ordstream.ground.packed_types import is_core_list, is_packed
from ordstream.ground.types import decimal_units, integer_range, is_binary, is_string, is_temporal, is_wide

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef object DECIMAL = decimal.Decimal
cdef int64_t EXACT = <int64_t> 1 << 53     # doubles have all integers up to it
cdef int64_t EXACT_SINGLE = 1 << 24        # and single floats up to this


cdef int add_bytes(GrowingBytes* to, const void* data, int64_t n) except -1:
    """Put n bytes behind; `data` NULL: zeros."""
    cdef int64_t room = to.room
    cdef char* more
    if to.size + n > room:
        while to.size + n > room:
            room *= 2
        if to.data == to.near:
            more = <char*> malloc(<size_t> room)
            if more != NULL:
                memcpy(more, to.data, <size_t> to.size)
        else:
            more = <char*> realloc(to.data, <size_t> room)
        if more == NULL:
            raise MemoryError
        to.data = more
        to.room = room
    if data == NULL:
        memset(to.data + to.size, 0, <size_t> n)
    elif n:
        memcpy(to.data + to.size, data, <size_t> n)
    to.size += n
    return 0


cdef int add_byte(GrowingBytes* to, char byte) except -1:
    return add_bytes(to, &byte, 1)


cdef int add_count(GrowingBytes* to, int64_t n) except -1:
    cdef int32_t count = <int32_t> n
    return add_bytes(to, &count, 4)


def common_values(type_, nullable=True, inside=False):
    """The CommonValues of a type; None: it has none."""
    made = CommonValues(type_, nullable, inside)
    return None if made.type is None else made


cdef class CommonValues:
    """Values of a type that are of the usual classes.

    Parameters
    ----------
    type_ : pyarrow.DataType
    nullable : bool
    inside : bool
        Of values that are part of others: lists there are packed, whatever they are of.
    """

    def __init__(self, type_, nullable=True, inside=False):
        self.nullable = nullable
        self.length = -1
        self.is_list = not inside and is_core_list(type_)
        self.is_wide = is_wide(type_)
        self.is_packed = is_packed(type_)
        self.parts = []
        self.names = ()
        self.type = type_ if self.is_known(type_) and None not in self.parts else None

    def is_known(self, type_):
        """Fill in what is known of a type. False: it has no common values."""
        if pat.is_integer(type_):
            self.kind = OF_INT
            self.low, high = integer_range(type_)
            self.high = min(high, INT64_MAX)
        elif pat.is_float64(type_) or pat.is_float32(type_):
            self.kind = OF_DOUBLE if pat.is_float64(type_) else OF_SINGLE
        elif pat.is_boolean(type_):
            self.kind = OF_BOOL
        elif is_string(type_) or is_binary(type_):
            self.kind = OF_TEXT if is_string(type_) else OF_BYTES
        elif pat.is_fixed_size_binary(type_):
            self.kind = OF_RAW
        elif is_temporal(type_):
            self.kind = OF_COUNT
            self.low, self.high = integer_range(type_)
            self.counted = counter(type_)
        elif pat.is_decimal128(type_):
            self.kind = OF_UNITS
        else:
            return self.is_known_nested(type_)
        if self.kind not in (OF_TEXT, OF_BYTES):
            self.width = 1 if self.kind == OF_BOOL else type_.bit_width // 8
            return self.width > 0
        return True

    def is_known_nested(self, type_):
        """`is_known` of types with parts."""
        if pat.is_struct(type_):
            self.kind = OF_STRUCT
            self.names = tuple([field.name for field in type_])
            fields = list(type_)
            if not fields or len(set(self.names)) < len(fields):
                return False
        elif pat.is_map(type_):
            self.kind = OF_MAP
            fields = [type_.key_field, type_.item_field]
        elif pat.is_list(type_) or pat.is_large_list(type_) or pat.is_fixed_size_list(type_):
            self.kind = OF_LIST
            fields = [type_.value_field]
            if pat.is_fixed_size_list(type_):
                self.length = type_.list_size
        else:
            return False
        self.parts = [common_values(field.type, field.nullable, True) for field in fields]
        return not (self.is_list and pat.is_decimal(fields[0].type))   # units of 64 bits there

    cdef int put(self, Worker* w, Chunk* out, char* to, object value) except -1:
        """Write a value that is not None as a column has it. Returns 1; 0: it is none of the usual ones.

        Thread safety: owner of `out`, GIL held. Ownership: bytes are copied into out's arena. Errors:
        MemoryError. Cost: ~0.1 us per part.
        """
        cdef GrowingBytes made
        cdef int known
        made.data = made.near
        made.size = 0
        made.room = sizeof(made.near)
        try:
            known = self.append(&made, value)
            if known:
                known = self.put_bytes(w, out, to, &made)
            return known
        finally:
            if made.data != made.near:
                free(made.data)

    cdef int put_bytes(self, Worker* w, Chunk* out, char* to, GrowingBytes* made) except -1:
        """What `append` made, where the column has it."""
        cdef View view
        cdef int32_t skipped = 0
        cdef int64_t n = 0
        if self.is_wide:
            wide_put(w, out, to, made.data, 1)
            return 1
        if self.width and not self.is_packed:
            memcpy(to, made.data, <size_t> min(self.width, 8))    # decimals of 18 digits: the low word
            return 1
        if self.kind == OF_TEXT or self.kind == OF_BYTES:
            skipped = 4
        if self.is_list:
            n = (<int32_t*> made.data)[0]
            if made.data[4]:                                      # the core has them behind the values
                skipped = 5 + <int32_t> n
                add_bytes(made, NULL, n)
                memcpy(made.data + made.size - n, made.data + 5, <size_t> n)
            else:
                skipped = 5
        if made.size > INT32_MAX:
            return 0
        view.size = made.size - skipped
        if self.is_list:
            view.size = n | LIST_NULLS if made.data[4] else n
        view.data = NULL
        if made.size > skipped:
            view.data = chunk_alloc(w, out, made.size - skipped)
            if view.data == NULL:
                raise MemoryError
            memcpy(<char*> view.data, made.data + skipped, <size_t> (made.size - skipped))
        memcpy(to, &view, sizeof(View))
        return 1

    cdef int append(self, GrowingBytes* to, object value) except -1:
        """The packed bytes of a value that is not None. Returns 1, or 0: something may have been written."""
        cdef const char* data
        cdef Py_ssize_t size
        cdef int64_t v, limit
        cdef double d
        cdef float f
        cdef int overflow = 0
        if self.kind == OF_STRUCT:
            return self.append_struct(to, value) if type(value) is dict else 0
        if self.kind == OF_LIST:
            if type(value) is list or type(value) is tuple:
                return self.append_list(to, tuple(value))
            return 0
        if self.kind == OF_MAP:
            if type(value) is dict:
                return self.append_map(to, tuple(value.items()))
            return self.append_map(to, tuple(value)) if type(value) is list else 0
        if self.kind == OF_TEXT:
            if type(value) is not str:
                return 0
            data = NULL
            try:
                data = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:
                pass
            if data == NULL:
                return 0
            add_count(to, size)
            add_bytes(to, data, size)
            return size < INT32_MAX
        if self.kind == OF_BYTES or self.kind == OF_RAW:
            if type(value) is not bytes:
                return 0
            size = PyBytes_GET_SIZE(value)
            if self.kind == OF_BYTES:
                add_count(to, size)
            elif size != self.width:
                return 0
            add_bytes(to, PyBytes_AS_STRING(value), size)
            return size < INT32_MAX
        if self.kind == OF_DOUBLE or self.kind == OF_SINGLE:
            limit = EXACT if self.kind == OF_DOUBLE else EXACT_SINGLE
            if type(value) is float:
                d = PyFloat_AS_DOUBLE(value)
            elif type(value) is int and -limit <= value <= limit:
                d = value
            else:
                return 0
            f = <float> d
            add_bytes(to, <const void*> &d if self.kind == OF_DOUBLE else <const void*> &f, self.width)
            return 1
        if self.kind == OF_BOOL:
            if type(value) is not bool:
                return 0
            add_byte(to, value is True)
            return 1
        if self.kind == OF_UNITS:
            if type(value) is not DECIMAL:
                return 0
            raw = None
            try:
                raw = decimal_units(value, self.type, "").to_bytes(16, "little", signed=True)
            except (OverflowError, ValueError):
                pass
            if raw is None:
                return 0
            add_bytes(to, PyBytes_AS_STRING(raw), 16)
            return 1
        if self.kind == OF_COUNT:
            value = self.counted(value)
        if type(value) is not int:
            return 0
        v = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or not self.low <= v <= self.high:
            return 0
        add_bytes(to, &v, self.width)                             # little endian: the low bytes
        return 1

    cdef int append_slot(self, GrowingBytes* to, object value) except -1:
        """A value or None behind a byte that says which."""
        if value is None:
            add_byte(to, 0)
            return self.nullable
        add_byte(to, 1)
        return self.append(to, value)

    cdef int append_struct(self, GrowingBytes* to, dict value) except -1:
        cdef PyObject* found
        cdef int i
        if len(value) != len(self.names):
            return 0
        for i in range(len(self.names)):
            found = PyDict_GetItem(value, self.names[i])
            if found == NULL:
                return 0
            part = <object> found                                 # a reference: others may change the dict
            if not (<CommonValues> self.parts[i]).append_slot(to, part):
                return 0
        return 1

    cdef int append_list(self, GrowingBytes* to, tuple items) except -1:
        cdef CommonValues element = <CommonValues> self.parts[0]
        cdef bint some = False
        if len(items) > INT32_MAX or (self.length >= 0 and len(items) != self.length):
            return 0
        add_count(to, len(items))
        if element.width and (element.kind != OF_BOOL or self.is_list):
            for item in items:
                some |= item is None
            if some and not element.nullable:
                return 0
            return element.append_values(to, items, some)
        for item in items:
            if not element.append_slot(to, item):
                return 0
        return 1

    cdef int append_values(self, GrowingBytes* to, tuple items, bint some) except -1:
        """Elements of fixed width, side by side."""
        add_byte(to, some)
        if some:
            for item in items:
                add_byte(to, item is not None)
        for item in items:
            if item is None:
                add_bytes(to, NULL, self.width)
            elif not self.append(to, item):
                return 0
        return 1

    cdef int append_map(self, GrowingBytes* to, tuple items) except -1:
        if len(items) > INT32_MAX:
            return 0
        add_count(to, len(items))
        for pair in items:
            if type(pair) is not tuple or len(<tuple> pair) != 2 or (<tuple> pair)[0] is None:
                return 0
            add_byte(to, 1)
            if not (<CommonValues> self.parts[0]).append_slot(to, (<tuple> pair)[0]):
                return 0
            if not (<CommonValues> self.parts[1]).append_slot(to, (<tuple> pair)[1]):
                return 0
        return 1
