"""How a key record is laid out, and how far apart records lie. Thread safety: pure, or the creator."""
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc
from ordstream._core.ground.chunk cimport PT_FIXED16, PT_I64, PT_LIST, PT_U64, PT_VIEW
from ordstream._core.ground.key_spec cimport KeySpec


cdef inline int32_t record_stride(int32_t size) noexcept nogil:
    """Bytes from one record to the next.

    A record of 33 to 64 bytes lies in one cache line, one of at most 128 in two. Smaller ones mostly lie in
    one line anyhow.
    """
    if size > 32 and size <= 64:
        return 64
    if size > 64 and size <= 128:
        return (size + 31) & ~31
    return size


cdef inline int lay_fields(KeySpec* spec, object columns, object types) except -1:
    """Allocate and fill the arrays of a zeroed spec, and its sizes. Raises TypeError: not a key's type."""
    cdef int32_t n = <int32_t> len(columns)
    cdef int32_t at = 8
    cdef int32_t j
    if n > 64:
        raise ValueError(f"at most 64 key columns, got {n}")
    spec.ncols = n
    spec.column = <int32_t*> calloc(n + 1, 4)
    spec.type = <int32_t*> calloc(n + 1, 4)
    spec.offset = <int32_t*> calloc(n + 1, 4)
    if spec.column == NULL or spec.type == NULL or spec.offset == NULL:
        raise MemoryError
    for j in range(spec.ncols):
        spec.column[j] = columns[j]
        spec.type[j] = types[columns[j]]
        spec.offset[j] = at
        if spec.type[j] == PT_LIST or spec.type[j] == PT_FIXED16:
            raise TypeError(f"column {columns[j]} can't be a key: lists and decimals are not "
                            f"supported as keys")
        if spec.type[j] == PT_VIEW:
            spec.has_views = 1
            at += 16
        else:
            at += 8
    spec.size = at
    spec.words = 1
    for j in range(spec.ncols):
        spec.words &= spec.type[j] == PT_I64 or spec.type[j] == PT_U64
    spec.simple = spec.ncols == 1 and not spec.has_views
    return 0
