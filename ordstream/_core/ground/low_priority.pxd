"""A thread of lower priority for work that nobody waits for: it takes what the others leave of the cores.

The thread lives for one call and never holds the GIL, so nobody who wants the GIL waits behind it. Elsewhere
than on Linux, where priorities are a process's, the call is a plain one.

Inline only: there is no module of this name at run time. Thread safety: any thread without the GIL.
Ownership: none. Cost: ~50 us for the thread, where it is one.
"""

ctypedef void (*work_t)(void* context) noexcept nogil

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #include <cerrno>
    #include <system_error>
    #include <thread>
    // nice 10: a ninth of what a thread of the usual priority gets beside it
    static inline void ord_run_low(void (*work)(void*), void* context) {
        try {
            std::thread low([=] {
                const id_t self = (id_t) syscall(SYS_gettid);
                errno = 0;
                const int now = getpriority(PRIO_PROCESS, self);
                if (errno == 0) (void) setpriority(PRIO_PROCESS, self, now + 10);
                work(context);
            });
            low.join();
        } catch (const std::system_error&) {   // no thread is to be had
            work(context);
        }
    }
    #else
    static inline void ord_run_low(void (*work)(void*), void* context) { work(context); }
    #endif
    """
    void ord_run_low(work_t work, void* context) noexcept nogil


cdef inline void run_work(work_t work, void* context, bint low) noexcept nogil:
    """Call `work(context)`, with `low` on a thread of lower priority, and wait for it."""
    if low:
        ord_run_low(work, context)
    else:
        work(context)
