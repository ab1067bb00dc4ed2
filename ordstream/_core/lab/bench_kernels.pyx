"""Kernels for benchmarks only: operators whose work per tuple is known, and the same work in a plain loop.

a) The work is `spins` steps of a linear congruential generator on the tuple's value: integer arithmetic in
   one dependency chain, so that its time is the same wherever it runs. The chain goes on from row to row
   (through `opaque_zero`), else a processor overlaps the work of neighbouring rows, and more so in a tight
   loop than in a runtime: the difference would look like overhead.
b) "bench_spin" (SL): the value column becomes spin(value). "bench_count" (PS): output key, spin(value) +
   running count of the key.
c) The plain loop does the same to the same batches, without tickets, queues or threads: "work" in
   per-tuple overhead = workers * wall - work. Keys are below `nkeys`, so the loop's state is a dense array.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, Chunk, ChunkPool, Column, Failure, Worker, chunk_alloc, failure_set, row_slot,
)
from ordstream._core.ground.kernel cimport PS, SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail, failure_text, owner_setup
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
)
from ordstream._core.ground.threads cimport now_ns

cdef volatile int64_t opaque_zero = 0    # always 0, but no compiler may know

cdef struct Spin:
    # Read-only while a run lasts. Memory ownership: the kernel's owner.
    int64_t spins          # steps per tuple
    int64_t zero           # opaque_zero
    int32_t column         # input column of the value
    const KeySpec* keys    # PS


cdef inline int64_t spin(int64_t value, int64_t steps) noexcept nogil:
    """`steps` steps of the generator, and one more: never the value itself. Cost: 4-5 cycles per step."""
    cdef uint64_t x = <uint64_t> value
    cdef int64_t _i
    for _i in range(steps):
        x = x * <uint64_t> 6364136223846793005 + <uint64_t> 1442695040888963407
    return <int64_t> (x + 1)


# ---------------------------------------------------------------------------------------------- stateless

cdef Chunk* spin_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Replace the value column by the work's results."""
    cdef const Spin* x = <const Spin*> k.ctx
    cdef const int64_t* values = <const int64_t*> c.cols[x.column].data
    cdef int64_t* results = <int64_t*> chunk_alloc(w, c, <int64_t> c.slots * 8)
    cdef int64_t last = 0
    cdef int32_t i
    cdef int32_t slot
    if results == NULL:
        chunk_fail(c, -1, FAIL_MEMORY)
        return c
    if c.sel == NULL and x.spins == 0:
        for i in range(c.n):
            results[i] = spin(values[i], 0)
    else:
        for i in range(c.n):
            slot = row_slot(c, i)
            last = spin(values[slot] + (last & x.zero), x.spins)
            results[slot] = last
    c.cols[x.column].data = <char*> results
    c.cols[x.column].valid = NULL
    return c


cdef class SpinKernel(KernelOwner):
    """Operator "bench_spin": attributes {"spins": steps per tuple, "column": int64 column}; output: as the
    input, that column replaced."""

    cdef Spin context

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        self.context.spins = operator.spins
        self.context.zero = opaque_zero
        self.context.column = operator.column
        self.kernel.ctx = <void*> &self.context
        self.kernel.apply = spin_apply


# ---------------------------------------------------------------------------------------------- keyed

cdef struct Counts:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    ChunkPool pool         # counts the bytes of keys; only `bytes` is used


cdef void* counts_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef Counts* b = <Counts*> calloc(1, sizeof(Counts))
    if b == NULL:
        return NULL
    if keyed_init(&b.keyed, (<const Spin*> k.ctx).keys, 8, &b.pool) != 0:
        free(b)
        return NULL
    return b


cdef void counts_free(Kernel* k, void* state) noexcept nogil:
    keyed_free(&(<Counts*> state).keyed)
    free(state)


cdef int64_t counts_bytes(Kernel* k, void* state) noexcept nogil:
    return keyed_bytes(&(<Counts*> state).keyed)


cdef int counts_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The result column, behind the input's columns."""
    cdef int32_t j = k.input.ncols
    c.cols[j].data = chunk_alloc(w, c, <int64_t> c.slots * 8)
    c.cols[j].valid = NULL
    return 0 if c.cols[j].data != NULL else -1


cdef int32_t counts_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """The work, plus the running count of the row's key."""
    cdef const Spin* x = <const Spin*> k.ctx
    cdef KeyedState* keyed = &(<Counts*> state).keyed
    cdef const int64_t* values = <const int64_t*> c.cols[x.column].data
    cdef int64_t* results = <int64_t*> c.cols[k.input.ncols].data
    cdef int64_t* count
    cdef char* base
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t last = 0
    cdef int32_t done = 0
    cdef int32_t m
    cdef int32_t i
    while done < n:
        m = min(n - done, <int32_t> LOOKUP_BLOCK)
        if keyed_lookup(keyed, w, c, rows + done, m, slots) != 0:
            failure_set(f, rows[done], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return done
        base = keyed.records + x.keys.size
        for i in range(m):
            count = <int64_t*> (base + <int64_t> slots[i] * keyed.stride)
            count[0] += 1
            last = spin(values[rows[done + i]] + (last & x.zero), x.spins)
            results[rows[done + i]] = last + count[0]
        done += m
    return n


cdef int counts_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Output columns: key, result."""
    cdef Column result = c.cols[k.input.ncols]
    c.cols[0] = c.cols[(<const Spin*> k.ctx).keys.column[0]]
    c.cols[1] = result
    c.ncols = 2
    return 0


cdef class CountsKernel(KernelOwner):
    """Operator "bench_count": attributes as "bench_spin"; one key column; output: key, int64 result."""

    cdef Spin context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        owner_setup(self, operator, PS)
        self.keys = KeySpecOwner(operator.key, self.input_layout.types)
        self.context.spins = operator.spins
        self.context.zero = opaque_zero
        self.context.column = operator.column
        self.context.keys = &self.keys.spec
        self.kernel.ctx = <void*> &self.context
        self.kernel.in_place = 1
        self.kernel.extra_cols = 1
        self.kernel.uses_hash = 1
        self.kernel.prepare = counts_prepare
        self.kernel.process = counts_process
        self.kernel.finish = counts_finish
        self.kernel.bucket_new = counts_new
        self.kernel.bucket_free = counts_free
        self.kernel.bucket_bytes = counts_bytes


KERNELS = {"bench_spin": SpinKernel, "bench_count": CountsKernel}


# ---------------------------------------------------------------------------------------------- plain loops

cdef void loop_rows(const int64_t* keys, const int64_t* values, int64_t* counts, int64_t* results, int64_t n,
                    int64_t spins,
                    int64_t zero) noexcept nogil:
    cdef int64_t last = 0
    cdef int64_t i
    if keys == NULL and spins == 0:
        for i in range(n):
            results[i] = spin(values[i], 0)
        return
    for i in range(n):
        last = spin(values[i] + (last & zero), spins)
        if keys != NULL:
            counts[keys[i]] += 1
            results[i] = last + counts[keys[i]]
        else:
            results[i] = last


def loop(const int64_t[::1] values, int64_t[::1] results, int64_t rounds, int64_t spins,
         const int64_t[::1] keys=None,
         int64_t[::1] counts=None):
    """The work `rounds` times over `values`, in order, without the GIL. Returns nanoseconds of wall time.

    results: as long as values; holds the last round's. keys, counts: the keyed work; counts go on from round
    to round.
    """
    cdef int64_t n = values.shape[0]
    cdef int64_t start
    cdef int64_t end
    cdef int64_t _r
    cdef int64_t zero = opaque_zero
    cdef const int64_t* key = NULL
    cdef int64_t* count = NULL
    if results.shape[0] != n or n == 0:
        raise ValueError("results must be as long as values, and neither empty")
    if keys is not None:
        if counts is None or keys.shape[0] != n:
            raise ValueError("keys must be as long as values, and counts given")
        key = &keys[0]
        count = &counts[0]
    with nogil:
        start = now_ns()
        for _r in range(rounds):
            loop_rows(key, &values[0], count, &results[0], n, spins, zero)
        end = now_ns()
    return end - start
