"""Records in key order. See sorted_records.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from ordstream._core.ground.chunk cimport Worker
from ordstream._core.ground.stopping cimport worker_stops
from ordstream._core.state.key_records cimport key_compare
from ordstream._core.state.keyed_state cimport KeyedState

cdef extern from "stoppable_sort.hpp":
    bint ord_sort_records(int32_t*, int32_t* spare, int64_t, const char*, int64_t, const void*,
                          int (*)(const void*, const char*,
                                  const char*) noexcept nogil, int (*)(void*) noexcept nogil, void*) nogil

ctypedef int (*compare_t)(const void*, const char*, const char*) noexcept nogil


cdef int32_t* sorted_records(KeyedState* s, Worker* w, bint* stopped) noexcept nogil:
    """Record indexes in ascending key order.

    Thread safety: the worker that holds the bucket. Ownership: malloc'ed, the caller frees. Returns: NULL
    when memory is exhausted, or, with `stopped` set, where the run was stopped meanwhile. Cost: n log n key
    comparisons; twice the memory of the result.
    """
    cdef int32_t* order = <int32_t*> malloc((<size_t> s.count + 1) * 4)
    cdef int32_t* spare = <int32_t*> malloc((<size_t> s.count + 1) * 4)
    cdef int32_t i
    stopped[0] = False
    if order == NULL or spare == NULL:
        free(order)
        free(spare)
        return NULL
    for i in range(<int32_t> s.count):
        order[i] = i
    stopped[0] = not ord_sort_records(order, spare, s.count, s.records, s.stride, <const void*> s.keys,
                                      <compare_t> key_compare,
                                      worker_stops, w)
    free(spare)
    if stopped[0]:
        free(order)
        return NULL
    return order
