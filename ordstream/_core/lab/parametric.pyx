"""Parametric operators (ordered paper, section 7): matrix work on each tuple; cost, tuple size, state size
and selectivity are parameters.

a) A tuple is a few int64 columns (a key, what its work is) and `values` columns of whole numbers below P,
   held as doubles. They fill an 8 x 8 matrix T; the work is `multiplications` products T <- T C mod P with
   one constant matrix C.
b) Every sum in a product is below 2^53, so it is exact and no order of additions matters: the sequential
   twin (ordstream/lab/evaluation/parametric.py) computes T C^n mod P another way and must agree to the last
   digit.
c) A partitioned operator keeps `state_values` such numbers per key; each tuple changes all of them, S_i <- 3
   S_i + T_(i mod 64) + i mod P, and its outputs show some: two tuples of a key in the wrong order give other
   outputs.
d) Outputs per tuple: `whole`, and one more with probability `part` / 2^32, decided by the tuple's first and
   last value.
e) An operator with exactly one output per tuple writes it in place of the tuple.
f) With `wait_ns` a tuple also waits, on no core: many workers are then as busy as on a machine with as many
   cores, except that what the runtime itself does still shares the cores there are.
g) With a `log` the operator notes when its work on each source tuple began (its first, if it gets several):
   the paper's Figure 10.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, PT_F64, PT_I64, Chunk, ChunkPool, Failure, LayoutOwner, Worker, chunk_alloc,
    chunk_new, chunk_reserve, failure_note, failure_set, row_slot, slot_serial,
)
from ordstream._core.ground.mixing cimport mix64
from ordstream._core.ground.kernel cimport PS, SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail, chunk_fail_all, failure_text, owner_setup
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
    keyed_state,
)
from ordstream._core.ground.threads cimport EventCount, event_count_delete, event_count_new, now_ns

cdef enum:
    ORDER = 8              # of the matrices
    CELLS = 64
    P = 8191               # values are 0 .. P - 1; a prime

cdef struct Parametric:
    # Read-only while a run lasts. Memory ownership: the kernel's owner.
    int32_t first          # first value column
    int32_t nvalues
    int32_t cost_column    # int64 column with the multiplications of each tuple, or -1
    int32_t whole
    int64_t part           # of 2^32
    int64_t multiplications
    int64_t state_values
    const KeySpec* keys    # PS
    double[CELLS] matrix   # C
    # now_ns at the start of the work on the tuple with serial k + 1, or NULL; 0: not yet
    int64_t* log
    int64_t log_size
    int64_t wait_ns        # waited per tuple, on top of the products; 0: not
    EventCount* timer      # nobody notifies it


# ---------------------------------------------------------------------------------------------- the work

cdef inline double reduced(double x) noexcept nogil:
    """x mod P for a whole x below 2^31 P. The quotient by multiplication is off by one at most."""
    x -= <double> (<int32_t> (x * (1.0 / P))) * P
    if x < 0.0:
        x += P
    return x - P if x >= P else x


cdef void multiply(double* t, const double* c) noexcept nogil:
    """T <- T C mod P, all of order 8. Cost: 512 multiplications and additions, and 64 reductions: 0.1-0.3
    us."""
    cdef double[ORDER] row
    cdef double a
    cdef int i
    cdef int j
    cdef int k
    for i in range(ORDER):
        for j in range(ORDER):
            row[j] = 0.0
        for k in range(ORDER):
            a = t[i * ORDER + k]
            for j in range(ORDER):
                row[j] += a * c[k * ORDER + j]
        for j in range(ORDER):
            t[i * ORDER + j] = reduced(row[j])


cdef inline void spread(double* t, const double* values, int32_t n) noexcept nogil:
    """T from the n values of a tuple: cell c is c + the values at c, c + 64, ... (of values repeated up to
    64), mod P."""
    cdef int32_t c
    cdef int32_t j = 0
    for c in range(CELLS):
        t[c] = c + values[j]
        j += 1
        if j == n:
            j = 0
    for j in range(CELLS, n):
        t[j % CELLS] += values[j]
    for c in range(CELLS):
        t[c] = reduced(t[c])


cdef inline void work(const Parametric* x, double* t, int64_t multiplications) noexcept nogil:
    cdef int64_t _i
    for _i in range(multiplications):
        multiply(t, x.matrix)


cdef inline void state_update(const Parametric* x, double* state, const double* t) noexcept nogil:
    """Fold a tuple's matrix into its key's state. Cost: ~1 ns per state value."""
    cdef int64_t i
    for i in range(x.state_values):
        state[i] = reduced(3.0 * state[i] + t[i % CELLS] + <double> (i % P))


cdef inline int32_t outputs_of(const Parametric* x, double first, double last) noexcept nogil:
    """How many outputs a tuple has (d): SplitMix64's finaliser over its first and last value decides the
    fraction."""
    cdef uint64_t h
    if x.part == 0:
        return x.whole
    h = mix64(<uint64_t> first * <uint64_t> P + <uint64_t> last)
    return x.whole + <int32_t> ((h >> 32) < <uint64_t> x.part)


cdef inline double output_value(const Parametric* x, const double* t, const double* state, double value,
                                int32_t j,
                                int32_t copy) noexcept nogil:
    """Value j of the copy-th output: stateless T_j + the tuple's own; with a state T_j + S_j; + copy; mod
    P."""
    if state == NULL:
        return reduced(t[j % CELLS] + value + <double> (copy % P))
    return reduced(t[j % CELLS] + state[j % x.state_values] + <double> (copy % P))


# ---------------------------------------------------------------------------------------------- rows of a
# chunk


cdef inline const char* read_row(const Parametric* x, const Chunk* c, int32_t slot, double* values,
                                 int64_t* multiplications) noexcept nogil:
    """The values of a row, and its work. NULL, or why the row fails. Static memory."""
    cdef int32_t j
    cdef double v
    for j in range(x.nvalues):
        if c.cols[x.first + j].valid != NULL and c.cols[x.first + j].valid[slot] == 0:
            return "a null where a value is needed"
        v = (<const double*> c.cols[x.first + j].data)[slot]
        if not 0.0 <= v < P or <double> (<int32_t> v) != v:
            return "a value is no whole number from 0 to 8190"
        values[j] = v
    multiplications[0] = x.multiplications
    if x.cost_column >= 0:
        if c.cols[x.cost_column].valid != NULL and c.cols[x.cost_column].valid[slot] == 0:
            return "a null where a value is needed"
        multiplications[0] = (<const int64_t*> c.cols[x.cost_column].data)[slot]
        if multiplications[0] < 0:
            return "a negative number of multiplications"
    return NULL


cdef int write_rows(const Parametric* x, Kernel* k, Worker* w, Chunk* c, int32_t slot, Chunk* out,
                    const double* values, const double* t,
                    const double* state, int32_t n) noexcept nogil:
    """Append the n outputs of a row. 0, or -1: no memory."""
    cdef int32_t i
    cdef int32_t j
    if out.n + <int64_t> n > out.capacity and chunk_reserve(w, out, k.output, n) != 0:
        return -1
    for i in range(n):
        for j in range(x.first):
            (<int64_t*> out.cols[j].data)[out.n + i] = (<const int64_t*> c.cols[j].data)[slot]
        for j in range(x.nvalues):
            (<double*> out.cols[x.first + j].data)[out.n + i] = output_value(x, t, state, values[j], j, i)
        out.origin[out.n + i] = slot
    out.n += n
    out.slots = out.n
    return 0


cdef int32_t do_row(const Parametric* x, const Chunk* c, int32_t slot, double* values, double* t,
                    const char** why) noexcept nogil:
    """Read a row and do its work: its number of outputs, or -1 and why."""
    cdef int64_t multiplications
    cdef int64_t serial
    why[0] = read_row(x, c, slot, values, &multiplications)
    if why[0] != NULL:
        return -1
    if x.log != NULL:
        serial = slot_serial(c, slot)
        if 0 < serial <= x.log_size and x.log[serial - 1] == 0:
            x.log[serial - 1] = now_ns()
    spread(t, values, x.nvalues)
    work(x, t, multiplications)
    if x.wait_ns > 0:
        x.timer.wait(x.timer.prepare(), x.wait_ns)
    return outputs_of(x, values[0], values[x.nvalues - 1])


cdef inline void row_fails(Chunk* c, int32_t slot, const char* why) noexcept nogil:
    if c.failure == NULL:
        failure_note(c, slot, FAIL_NULL, why)


cdef Chunk* parametric_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The work of each row. Contract: kernel.pxd (a). Cost: the multiplications, ~0.1 us to fill the matrix,
    ~1 ns per value written."""
    cdef const Parametric* x = <const Parametric*> k.ctx
    cdef Chunk* out = NULL
    cdef double[CELLS] t
    cdef double* values
    cdef char* columns = NULL
    cdef const char* why = NULL
    cdef int32_t i
    cdef int32_t j
    cdef int32_t n
    cdef int32_t slot
    cdef bint in_place = x.whole == 1 and x.part == 0
    values = <double*> chunk_alloc(w, c, <int64_t> x.nvalues * 8)
    if in_place:
        columns = chunk_alloc(w, c, <int64_t> x.nvalues * c.slots * 8)
    else:
        out = chunk_new(w)
    if values == NULL or (columns == NULL and out == NULL):
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if not in_place and chunk_reserve(w, out, k.output, 16) != 0:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    for i in range(c.n):
        slot = row_slot(c, i)
        n = do_row(x, c, slot, values, t, &why)
        if n < 0:
            row_fails(c, slot, why)
            c.n = i if in_place else c.n
            break
        if in_place:
            for j in range(x.nvalues):
                (<double*> columns)[<int64_t> j * c.slots + slot] = output_value(x, t, NULL, values[j], j, 0)
        elif write_rows(x, k, w, c, slot, out, values, t, NULL, n) != 0:
            chunk_fail(c, slot, FAIL_MEMORY)
            break
    if not in_place:
        return out
    for j in range(x.nvalues):
        c.cols[x.first + j].data = columns + <int64_t> j * c.slots * 8
        c.cols[x.first + j].valid = NULL
    return c


# ---------------------------------------------------------------------------------------------- state per
# key


cdef struct Bucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    ChunkPool pool         # counts the bytes of keys; only `bytes` is used
    double* values         # of the row in work


cdef void* bucket_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef const Parametric* x = <const Parametric*> k.ctx
    cdef Bucket* b = <Bucket*> calloc(1, sizeof(Bucket))
    if b == NULL:
        return NULL
    b.values = <double*> calloc(x.nvalues, 8)
    if b.values == NULL or keyed_init(&b.keyed, x.keys, <int32_t> (x.state_values * 8), &b.pool) != 0:
        free(b.values)
        free(b)
        return NULL
    return b


cdef void bucket_free(Kernel* k, void* state) noexcept nogil:
    keyed_free(&(<Bucket*> state).keyed)
    free((<Bucket*> state).values)
    free(state)


cdef int64_t bucket_bytes(Kernel* k, void* state) noexcept nogil:
    return keyed_bytes(&(<Bucket*> state).keyed)


cdef int parametric_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """New value columns, behind the input's. 0, or -1: no memory."""
    cdef const Parametric* x = <const Parametric*> k.ctx
    cdef char* columns = chunk_alloc(w, c, <int64_t> x.nvalues * c.slots * 8)
    cdef int32_t j
    if columns == NULL:
        return -1
    for j in range(x.nvalues):
        c.cols[k.input.ncols + j].data = columns + <int64_t> j * c.slots * 8
        c.cols[k.input.ncols + j].valid = NULL
    return 0


cdef int32_t parametric_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """The work of each row, and its key's state changed. Contract: kernel.pxd (b).

    Thread safety: the bucket's holder. Ownership: none taken. Returns: n, or j when rows[j] failed (its
    key's state is as before). Cost: keyed_lookup, the multiplications, ~1 ns per state value, ~1 ns per
    value written.
    """
    cdef const Parametric* x = <const Parametric*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef double[CELLS] t
    cdef double* own
    cdef const char* why = NULL
    cdef int32_t done = 0
    cdef int32_t outputs
    cdef int32_t slot
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    while done < n:
        m = min(n - done, <int32_t> LOOKUP_BLOCK)
        if keyed_lookup(&b.keyed, w, c, rows + done, m, slots) != 0:
            failure_set(f, rows[done], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return done
        for i in range(m):
            slot = rows[done + i]
            outputs = do_row(x, c, slot, b.values, t, &why)
            if outputs < 0:
                failure_set(f, slot, FAIL_NULL, why)
                return done + i
            own = <double*> keyed_state(&b.keyed, slots[i])
            if (not k.in_place and out.n + <int64_t> outputs > out.capacity
                    and chunk_reserve(w, out, k.output, outputs) != 0):
                failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return done + i
            state_update(x, own, t)
            if k.in_place:
                for j in range(x.nvalues):
                    (<double*> c.cols[k.input.ncols + j].data)[slot] = output_value(x, t, own, 0.0, j, 0)
            else:
                write_rows(x, k, w, c, slot, out, b.values, t, own, outputs)
        done += m
    return n


cdef int parametric_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The new value columns in place of the input's."""
    cdef const Parametric* x = <const Parametric*> k.ctx
    cdef int32_t j
    for j in range(x.nvalues):
        c.cols[x.first + j] = c.cols[k.input.ncols + j]
    c.ncols = k.output.ncols
    return 0


cdef class ParametricKernel(KernelOwner):
    """Operator "parametric", SL or PS: attributes {"first", "cost_column" (-1: none), "multiplications",
    "whole", "part" (of 2^32), "state_values", "matrix" (64 floats), "log" (int64 array of as many tuples as
    may come, zeroed; or None), "wait_ns"}; output: as the input."""

    cdef Parametric context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef LayoutOwner layout
        cdef int64_t[::1] log
        cdef int32_t j
        if operator.on_error != "fail":
            raise ValueError(f"{operator.name!r}: a parametric operator has no other error policy "
                             f"than to fail")
        owner_setup(self, operator, PS if operator.kind == "PS" else SL)
        self.kernel.unbounded = 1
        layout = self.input_layout
        self.context.first = operator.first
        self.context.nvalues = layout.layout.ncols - self.context.first
        for j in range(layout.layout.ncols):
            if layout.layout.type[j] != (PT_F64 if j >= self.context.first else PT_I64):
                raise TypeError(f"{operator.name!r}: column {j} must be int64 before the values, float64 "
                                f"among them")
        if (self.context.nvalues < 1 or operator.whole < 0 or not 0 <= operator.part < 1 << 32
                or operator.state_values < 1):
            raise ValueError(f"{operator.name!r}: parameters out of range")
        self.context.cost_column = operator.cost_column
        self.context.multiplications = operator.multiplications
        self.context.whole = operator.whole
        self.context.part = operator.part
        self.context.state_values = operator.state_values
        for j in range(CELLS):
            self.context.matrix[j] = operator.matrix[j]
        if operator.log is not None:
            log = operator.log
            self.references = log
            self.context.log = &log[0]
            self.context.log_size = log.shape[0]
        self.context.wait_ns = operator.wait_ns
        self.context.timer = event_count_new()
        if self.context.timer == NULL:
            raise MemoryError
        self.kernel.ctx = <void*> &self.context
        if self.kernel.kind == SL:
            self.kernel.apply = parametric_apply
            return
        self.keys = KeySpecOwner(operator.key, self.input_layout.types)
        self.context.keys = &self.keys.spec
        self.kernel.in_place = self.context.whole == 1 and self.context.part == 0
        self.kernel.extra_cols = self.context.nvalues
        self.kernel.uses_hash = 1
        self.kernel.prepare = parametric_prepare
        self.kernel.process = parametric_process
        self.kernel.finish = parametric_finish
        self.kernel.bucket_new = bucket_new
        self.kernel.bucket_free = bucket_free
        self.kernel.bucket_bytes = bucket_bytes

    def __dealloc__(self):
        if self.context.timer != NULL:
            event_count_delete(self.context.timer)


# ---------------------------------------------------------------------------------------------- without a
# runtime


def work_ns(int64_t multiplications, const double[::1] matrix):
    """Nanoseconds of wall time that so many multiplications of one matrix take here, without the GIL."""
    cdef double[CELLS] t
    cdef int64_t start
    cdef int64_t end
    cdef int64_t _i
    cdef int32_t c
    if matrix.shape[0] != CELLS:
        raise ValueError("the matrix has 64 cells")
    for c in range(CELLS):
        t[c] = c
    with nogil:
        start = now_ns()
        for _i in range(multiplications):
            multiply(t, &matrix[0])
        end = now_ns()
    return end - start + (1 if t[0] < 0 else 0)     # looked at, so it is computed
