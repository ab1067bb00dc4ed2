"""A door into the export of a bucket's state (kernel.pxd, f), for tests that end a process there.

`watch_exports` puts a function of its own in front of `Kernel.state_export` of a run's operators: the core
knows nothing of it. The function takes few rows at a time, so that a bucket of several keys needs several
calls, and tells Python where the export is.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t
from ordstream._core.flow.runtime cimport Runtime
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor, state_export_t

cdef enum:
    MOST_KERNELS = 64
    ROWS = 2                   # that one call may take

cdef struct Watched:
    Kernel* kernel
    state_export_t export

cdef Watched[MOST_KERNELS] watched
cdef int32_t nwatched = 0
cdef object reached = None     # callable of one text


cdef void tell(bint inside) noexcept with gil:
    reached("after" if inside else "before")


cdef int32_t export_some(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                         Failure* f) noexcept nogil:
    """state_export of a kernel that is watched: in front of a bucket's first rows, and where some of its
    rows are out and others are not, Python is told."""
    cdef int32_t i = 0
    cdef int32_t n
    cdef bint first = cursor.part == 0 and cursor.at == 0
    while watched[i].kernel != k:
        i += 1
    cursor.most = min(cursor.most, <int32_t> ROWS)
    if first:
        tell(False)
    n = watched[i].export(k, w, state, cursor, out, f)
    if n > 0 and cursor.done == 0:
        tell(True)
    return n


def watch_exports(core, told):
    """Watch a run's exports until it ends. One run at a time: the one before is closed.

    Parameters: a `Run` whose workers have not started; a callable, of any thread, that gets "before" in
    front of a bucket's first rows, "after" where some of its rows were copied and others are left. What it
    raises is printed. Thread safety: construction only. Ownership: keeps the callable. Raises: ValueError
    for too many operators.
    """
    global nwatched, reached
    cdef Runtime* rt = <Runtime*> PyCapsule_GetPointer(core.node(), b"ordstream.Runtime")
    cdef Kernel* k
    cdef int32_t i
    nwatched = 0
    reached = told
    for i in range(rt.n):
        k = rt.operators[i].kernel
        if k.state_export == NULL:
            continue
        if nwatched == MOST_KERNELS:
            raise ValueError(f"more than {MOST_KERNELS} operators with a state")
        watched[nwatched].kernel = k
        watched[nwatched].export = k.state_export
        nwatched += 1
        k.state_export = export_some
