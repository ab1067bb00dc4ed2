"""A door to low_priority.pxd: on which thread, and with which priority, work is done. For tests only."""
from libc.stdint cimport int64_t
from ordstream._core.ground.low_priority cimport run_work

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static inline long ord_here(void) { return (long) syscall(SYS_gettid); }
    static inline long ord_nice(void) { return getpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid)); }
    #else
    static inline long ord_here(void) { return 0; }
    static inline long ord_nice(void) { return 0; }
    #endif
    """
    long ord_here() noexcept nogil
    long ord_nice() noexcept nogil


cdef void look(void* context) noexcept nogil:
    (<int64_t*> context)[0] = ord_here()
    (<int64_t*> context)[1] = ord_nice()


def where(bint low):
    """(native id of the thread, its niceness) inside of run_work; zeros elsewhere than on Linux."""
    cdef int64_t[2] found
    with nogil:
        run_work(look, found, low)
    return found[0], found[1]
