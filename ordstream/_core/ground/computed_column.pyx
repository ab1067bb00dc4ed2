"""A column that an expression makes of the rows of a chunk: runs its program and puts the result where the
column is, in the column's type.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.arrow_calls cimport OP_ARROW, OP_JOIN
from ordstream._core.ground.chunk cimport (
    PT_BOOL, PT_F64, PT_FIXED16, PT_I64, PT_LIST, PT_VIEW, Chunk, Column, View, Worker, chunk_alloc,
)
from ordstream._core.ground.expression cimport Evaluation, Value, evaluate, is_null_scalar, mark_begin
from ordstream._core.ground.expression_code cimport Code
from ordstream._core.ground.packed_lists cimport OP_LIST_JOIN, unpack_lists
from ordstream._core.ground.packed_parts cimport PackedParts

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    cppclass ByteView "ord::View":
        const char* data
        int64_t size
    int64_t store(void* data, int type, const int32_t* sel, const void* values, int scalar, int64_t n)
    void mark_store(uint8_t* bad, const uint8_t* valid, int type, const void* values, int scalar, int64_t n)

cdef extern from "decimal_ops.hpp" namespace "ord" nogil:
    void store_decimals(void* data, const int32_t* sel, const void* values, int scalar, int64_t n,
                        char* heap)


cdef int compute_column(const Code* code, Worker* w, Chunk* c, Evaluation* e, Column* made) noexcept nogil:
    """The column that a program makes of the rows of `e` (at least one): slot-indexed, narrowed to the
    program's type; what is out of its range is a failure.

    Thread safety: the chunk's owner. Ownership: the chunk's arena. Returns: 0, or -1: no memory; failing
    rows are in e.bad. Cost: the program's, and 0.2-1 ns per row.
    """
    cdef Value v
    cdef char* into = NULL
    if e.sel == NULL and (code.type == PT_I64 or code.type == PT_F64):   # what the stack holds, too
        into = chunk_alloc(w, c, <int64_t> c.slots * 8)
        if into == NULL:
            return -1
    made.data = into
    if evaluate(code, w, c, e, into, &v) != 0:
        return -1
    if (into == NULL or v.data != into) and store_values(code, w, c, e, &v, made) != 0:
        return -1
    return store_nulls(code, w, c, e, &v, made)


cdef int store_values(const Code* code, Worker* w, Chunk* c, Evaluation* e, const Value* value,
                      Column* made) noexcept nogil:
    """Copy a result to the column's place, made.data if there is one. 0, or -1: no memory."""
    cdef char* heap
    if made.data == NULL:                    # at least what the narrowed type needs
        made.data = chunk_alloc(w, c, <int64_t> c.slots * value.width)
        if made.data == NULL:
            return -1
    if code.type == PT_FIXED16:
        heap = chunk_alloc(w, c, <int64_t> e.n * 16)
        if heap == NULL:
            return -1
        store_decimals(made.data, e.sel, value.data, value.scalar, e.n, heap)
    elif store(made.data, code.type, e.sel, value.data, value.scalar, e.n) < 0:
        if not is_null_scalar(value):
            if mark_begin(e, w) != 0:
                return -1
            mark_store(e.bad, <uint8_t*> NULL if value.scalar else value.valid, code.type, value.data,
                       value.scalar, e.n)
    return 0


cdef int store_nulls(const Code* code, Worker* w, Chunk* c, Evaluation* e, const Value* value,
                     Column* made) noexcept nogil:
    """Copy which values there are, and what the values point to. 0, or -1: no memory."""
    cdef const PackedParts* parts
    cdef uint8_t* valid = NULL
    cdef char* heap
    if value.valid != NULL:
        valid = <uint8_t*> chunk_alloc(w, c, c.slots)
        if valid == NULL:
            return -1
        store(valid, PT_BOOL, e.sel, value.valid, value.scalar, e.n)
    made.valid = valid
    if code.type == PT_LIST:                 # the last instruction is OP_AS_LIST
        parts = code.instructions[code.n - 1].parts
        heap = chunk_alloc(w, c, unpack_lists(parts, <View*> made.data, valid, e.sel, e.n, NULL) + 1)
        if heap == NULL:
            return -1
        unpack_lists(parts, <View*> made.data, valid, e.sel, e.n, heap)
    if code.type == PT_VIEW:
        return keep_bytes(code, w, c, e, valid, <ByteView*> made.data)
    return 0


cdef int keep_bytes(const Code* code, Worker* w, Chunk* c, const Evaluation* e, const uint8_t* valid,
                    ByteView* views) noexcept nogil:
    """Copy the bytes of a string column that lie in the scratch, where a function of Arrow made some: into
    the chunk's arena, side by side. 0, or -1: no memory."""
    cdef ByteView* view
    cdef const char* begin = NULL
    cdef const char* end = NULL
    cdef char* bytes
    cdef int64_t total = 0
    cdef bint beside = True
    cdef int32_t slot
    cdef int32_t i
    for i in range(code.n):
        if code.instructions[i].op in (OP_ARROW, OP_JOIN, OP_LIST_JOIN):
            break
    else:
        return 0
    for i in range(e.n):
        slot = i if e.sel == NULL else e.sel[i]
        view = &views[slot]
        if view.size == 0 or (valid != NULL and valid[slot] == 0) or (e.bad != NULL and e.bad[i] != 0):
            view.data = NULL
            view.size = 0
            continue
        if total == 0:
            begin = view.data
        elif view.data != end:
            beside = False
        end = view.data + view.size
        total += view.size
    if total == 0:
        return 0
    bytes = chunk_alloc(w, c, total)
    if bytes == NULL:
        return -1
    if beside:
        memcpy(bytes, begin, <size_t> total)
    for i in range(e.n):
        view = &views[i if e.sel == NULL else e.sel[i]]
        if view.size:
            if not beside:
                memcpy(bytes, view.data, <size_t> view.size)
            view.data = bytes
            bytes += view.size
    return 0
