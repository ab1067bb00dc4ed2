"""States that are C structs, as rows. See struct_rows.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport FAIL_STATE, PT_BOOL, Chunk, Failure, Worker, failure_set
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.keyed_bucket cimport StateCalls


cdef inline int32_t first_field(Kernel* k) noexcept nogil:
    """Column of the first field in a row of state."""
    return k.state_keys.ncols if k.state_keys != NULL else 0


cdef bint any_field(Kernel* k, const char* state) noexcept nogil:
    """Whether a row of the key succeeded; without `liveness` whether it left anything. Bytes between fields
    do not count: a C function may leave anything there."""
    cdef const StructFields* x = <const StructFields*> k.ctx
    cdef const char* field
    cdef int32_t i
    cdef int32_t j
    if x.liveness:
        return (<const int64_t*> state)[0] != 0
    for j in range(x.n):
        field = state + x.offset[j]
        for i in range(k.state.width[first_field(k) + j]):
            if field[i] != 0:
                return True
    return False


cdef int write_fields(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const StructFields* x = <const StructFields*> k.ctx
    cdef int32_t column = first_field(k)
    cdef int32_t width
    cdef int32_t j
    cdef char* to
    for j in range(x.n):
        width = k.state.width[column]
        to = out.cols[column].data + <int64_t> index * width
        memcpy(to, state + x.liveness + x.offset[j], width)
        if k.state.type[column] == PT_BOOL:
            to[0] = to[0] != 0                               # a C function may have written any byte
        if out.cols[column].valid != NULL:
            out.cols[column].valid[index] = 1
        column += 1
    return 0


cdef int32_t read_fields(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                         Failure* f) noexcept nogil:
    cdef const StructFields* x = <const StructFields*> k.ctx
    cdef int32_t column = first_field(k)
    cdef int32_t width
    cdef int32_t j
    for j in range(column, column + x.n):
        if rows.cols[j].valid != NULL and rows.cols[j].valid[slot] == 0:
            failure_set(f, slot, FAIL_STATE, "a column is null, which no state has")
            return FAIL_STATE
    for j in range(x.n):
        width = k.state.width[column]
        memcpy(state + x.liveness + x.offset[j], rows.cols[column].data + <int64_t> slot * width, width)
        column += 1
    if x.liveness:
        (<int64_t*> state)[0] = 1
    return 0


cdef StateCalls FIELDS = StateCalls(alive=any_field, write=write_fields, read=read_fields, drop=NULL)
