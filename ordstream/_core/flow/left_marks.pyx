"""Marks that leave a node (left_marks.pxd states the design)."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from ordstream._core.ground.atomics cimport as_int, as_pointer, cas_acq_rel, exchange_acq_rel, load_relaxed


cdef int left_mark_put(a64* head, int64_t serial, int64_t index, int64_t time) noexcept nogil:
    """Hand a mark over. The writer of the output. 0, or -1: no memory. Ownership: the list's."""
    cdef LeftMark* mark = <LeftMark*> malloc(sizeof(LeftMark))
    cdef int64_t first
    if mark == NULL:
        return -1
    mark.serial = serial
    mark.index = index
    mark.time = time
    while True:
        first = load_relaxed(head)
        mark.next = <LeftMark*> as_pointer(first)
        # pairs with exchange_acq_rel in left_marks_taken
        if cas_acq_rel(head, first, as_int(mark)):
            return 0


cdef list left_marks_taken(a64* head):
    """(serial, index, time) of all that were handed over since the last call, in their order. The reading
    thread."""
    # pairs with cas_acq_rel in left_mark_put
    cdef LeftMark* mark = <LeftMark*> as_pointer(exchange_acq_rel(head, 0))
    cdef LeftMark* following
    found = []
    while mark != NULL:
        following = mark.next
        found.append((mark.serial, mark.index, mark.time))
        free(mark)
        mark = following
    found.reverse()
    return found


cdef void left_marks_free(a64* head) noexcept nogil:
    """Give back what nobody took."""
    # pairs with cas_acq_rel in left_mark_put
    cdef LeftMark* mark = <LeftMark*> as_pointer(exchange_acq_rel(head, 0))
    cdef LeftMark* following
    while mark != NULL:
        following = mark.next
        free(mark)
        mark = following
