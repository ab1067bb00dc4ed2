"""Running a part row by row with a clock. See sampling.pxd."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Block, Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.ground.threads cimport now_ns

cdef enum:
    CLOCK_READS = 64


cdef int64_t clock_cost_ns() noexcept nogil:
    """Nanoseconds that a row's measurement adds to what it measures: the smallest of many empty
    measurements.

    Thread safety: any. Ownership: none. Cost: ~3 us; ask once per run and worker.
    """
    cdef int64_t best = 1000000
    cdef int64_t t
    cdef int32_t _
    for _ in range(CLOCK_READS):
        t = now_ns()
        t = now_ns() - t
        if t < best:
            best = t
    return best


cdef int32_t sample_rows(
    Kernel* kernel, Worker* worker, void* state, Chunk* chunk, const int32_t* rows, int32_t n, Chunk* out,
    Failure* f, int64_t* costs_ns, int64_t* grown_bytes, int64_t* state_bytes,
) noexcept nogil:
    """As kernel.process for the same rows, one at a time: costs_ns[i] is what rows[i] took.

    grown_bytes[i] (NULL: not asked for) is by how much the bucket's state grew; state_bytes[0] (NULL: not
    asked for) its size afterwards; both are 0 where the kernel does not count bytes. Works for in-place
    kernels (`out` NULL) and others.

    Thread safety: the worker that holds the bucket. Ownership: as process. Returns: rows done; n, or j when
    rows[j] failed (f is filled; costs_ns[j] is not). Cost: process on single rows plus ~50 ns each; Python
    kernels take the GIL per row.
    """
    cdef int64_t clock = clock_cost_ns()
    cdef int64_t t
    cdef int64_t before = 0
    cdef int64_t after
    cdef int32_t i
    cdef int32_t done = 0
    cdef Block* block
    cdef char* top
    cdef char* end
    if kernel.bucket_bytes != NULL:
        before = kernel.bucket_bytes(kernel, state)
    for i in range(n):
        block = worker.scratch.current
        top = worker.scratch.top
        end = worker.scratch.end
        t = now_ns()
        done = kernel.process(kernel, worker, state, chunk, rows + i, 1, out, f)
        t = now_ns() - t - clock
        if block != NULL and worker.scratch.current == block:      # else the next arena_reset forgets it
            worker.scratch.top = top
            worker.scratch.end = end
        if done != 1:
            break
        costs_ns[i] = t if t > 0 else 0
        if grown_bytes != NULL:
            after = before
            if kernel.bucket_bytes != NULL:
                after = kernel.bucket_bytes(kernel, state)
            grown_bytes[i] = after - before
            before = after
        done = i + 1
    else:
        i = n
    if state_bytes != NULL:
        state_bytes[0] = kernel.bucket_bytes(kernel, state) if kernel.bucket_bytes != NULL else 0
    return i
