"""Keys as Python values. See key_values.pxd."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport PT_BOOL, PT_F32, PT_F64, PT_U64, PT_VIEW, View
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.state.wide_values cimport wide_value

import pyarrow as pa
from ordstream.ground.datetimes import check_nanoseconds
from ordstream.ground.types import is_string, is_wide, storage_type, to_python


TIME_NS = pa.time64("ns")


cdef object text_or_bytes(bint text, const View* v):
    if text:
        return PyUnicode_DecodeUTF8(v.data, v.size, NULL) if v.size else ""
    return PyBytes_FromStringAndSize(v.data if v.size else NULL, v.size)


cdef class KeyReader:
    """Reads key records.

    Parameters
    ----------
    types : sequence of pyarrow.DataType
        Of the key columns.
    storage : bool
        As in RowReader.
    """

    def __init__(self, types, storage=False):
        self.types = [storage_type(t) if storage else t for t in types]

    cdef object key(self, const KeySpec* spec, const char* record):
        cdef uint64_t nulls
        cdef int64_t v
        cdef double d
        cdef int32_t j
        cdef list out = []
        memcpy(&nulls, record, 8)
        for j in range(spec.ncols):
            t = self.types[j]
            if nulls >> j & 1:
                out.append(None)
            elif is_wide(t):
                out.append(wide_value(t, <const View*> (record + spec.offset[j])))
            elif spec.type[j] == PT_VIEW:
                out.append(text_or_bytes(is_string(t), <const View*> (record + spec.offset[j])))
            elif spec.type[j] in (PT_F32, PT_F64):
                memcpy(&d, record + spec.offset[j], 8)
                out.append(d)
            else:
                memcpy(&v, record + spec.offset[j], 8)
                if spec.type[j] == PT_BOOL:
                    out.append(v != 0)
                elif spec.type[j] == PT_U64:
                    out.append(<uint64_t> v)
                else:
                    if t == TIME_NS and v % 1000:
                        check_nanoseconds(v, t)
                    out.append(to_python(v, t))
        return out[0] if len(out) == 1 else tuple(out)
