"""Rows that an operator rejects. See rejections.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed, load_relaxed
from ordstream._core.ground.chunk cimport Chunk, Fork
from ordstream._core.ground.threads cimport mutex_delete, mutex_new

from ordstream.errors import type_and_text


cdef inline int32_t list_of(const Fork* fork) noexcept nogil:
    return <int32_t> ((<size_t> fork >> 6) % LISTS)


cdef int rejection_put(RejectionTable* table, const Chunk* c, int32_t slot, const char* type_,
                       int32_t type_size, const char* text, int32_t text_size) noexcept nogil:
    """Note a row of a chunk that stands directly behind the branch point, and why.

    Thread safety: any worker. Ownership: the bytes are copied. Returns: 0, or -1: no memory. Cost: one
    allocation and an uncontended lock.
    """
    cdef Rejection* r = <Rejection*> malloc(sizeof(Rejection) + type_size + text_size)
    cdef int32_t at = list_of(c.fork)
    if r == NULL:
        return -1
    r.fork = c.fork
    r.slot = slot
    r.type_size = type_size
    r.text_size = text_size
    if type_size:
        memcpy(<char*> (r + 1), type_, type_size)
    if text_size:
        memcpy(<char*> (r + 1) + type_size, text, text_size)
    table.mutex.lock()
    r.next = table.lists[at]
    table.lists[at] = r
    table.mutex.unlock()
    # Who takes it sees the sum: the unit comes to it behind a reorder buffer's release.
    add_relaxed(&table.count, 1)
    return 0


cdef Rejection* rejections_take(RejectionTable* table, const Fork* fork, int32_t first,
                                int32_t last) noexcept nogil:
    """The rows of a unit in slots `first` to `last`, in any order; NULL: none was rejected.

    Thread safety: any worker. Ownership: the caller's. Cost: one load where nothing was rejected of late;
    else a look at what is in flight, divided by LISTS.
    """
    cdef Rejection* taken = NULL
    cdef Rejection** link
    cdef Rejection* r
    cdef int64_t n = 0
    if load_relaxed(&table.count) == 0:
        return NULL
    table.mutex.lock()
    link = &table.lists[list_of(fork)]
    while link[0] != NULL:
        r = link[0]
        if r.fork != fork or r.slot < first or r.slot > last:
            link = &r.next
            continue
        link[0] = r.next
        r.next = taken
        taken = r
        n += 1
    table.mutex.unlock()
    add_relaxed(&table.count, -n)
    return taken


cdef void rejections_free(Rejection* first) noexcept nogil:
    """Free a list of rejected rows."""
    cdef Rejection* r
    while first != NULL:
        r = first
        first = r.next
        free(r)


cdef class Rejections:
    """What one operator rejects in one run.

    Memory ownership: see rejections.pxd. Thread safety: any worker.
    """

    def __cinit__(self):
        memset(<void*> &self.table, 0, sizeof(self.table))
        self.table.mutex = mutex_new()
        if self.table.mutex == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int32_t i
        for i in range(LISTS):
            rejections_free(self.table.lists[i])
        mutex_delete(self.table.mutex)

    cdef int add(self, const Chunk* c, int32_t slot, object error) except -1:
        """Note a row and its exception. MemoryError."""
        type_, text = type_and_text(error)
        cdef bytes type_bytes = type_.encode("utf-8", "replace")
        cdef bytes text_bytes = text.encode()
        if rejection_put(&self.table, c, slot, type_bytes, <int32_t> len(type_bytes), text_bytes,
                         <int32_t> len(text_bytes)) != 0:
            raise MemoryError
        return 0
