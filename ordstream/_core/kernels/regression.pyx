"""Regression: least squares line of the totals of y at each x, per key, from exact integer sums. Contract:
kernel.pxd (b), (c), (f).

The line through n points (x, Y) needs n, Sx, Sxx, SY and SxY. SxY is linear in the parts of Y, so the rows
with the same x need not be collected. All five are int64 with overflow checks. Slope and intercept are
quotients of differences of their products, which are exact in 128 bits. So both are rounded exactly twice
(numerator and denominator to doubles, then the quotient) for any data, and the sign of the slope is exact.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, FAIL_OVERFLOW, FAIL_STATE, PT_F32, PT_U64, Chunk, Failure, Worker,
    chunk_alloc, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport PS, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket, put_word,
)
from ordstream._core.state.key_records cimport key_copy, key_store
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpec, KeySpecOwner, keyed_lookup, keyed_record, keyed_state,
)
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid, word_of
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.ground.stopping cimport stop_due

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)
    bint add_overflows(int64_t a, int64_t b, int64_t* r)
    bint mul_overflows(int64_t a, int64_t b, int64_t* r)

cdef extern from "wide_ops.hpp" namespace "ord" nogil:
    cppclass Wide:
        pass
    Wide wide_determinant(int64_t a, int64_t b, int64_t c, int64_t d)
    int wide_sign(const Wide&)
    double wide_to_double(const Wide&)
    bint wide_fits(int64_t acc, int64_t a, int64_t b, int64_t* total)

cdef enum Emission:
    EMIT_UPDATES = 0       # when x changes: the line through the points before
    EMIT_EVERY_TUPLE = 1
    EMIT_FINAL = 2

cdef struct Sums:
    # State of a key.
    int64_t n              # points; 0: no row yet
    int64_t x
    int64_t xx
    int64_t y
    int64_t xy
    int64_t last           # x of the latest row

cdef struct RegressionContext:
    # Read-only while a run lasts. Memory ownership: RegressionKernel.
    const KeySpec* keys
    int32_t x
    int32_t x_type         # PhysicalType of the column
    int32_t y
    int32_t y_type
    int32_t emission       # Emission


cdef void* regression_new(Kernel* k, int32_t bucket) noexcept nogil:
    return new_bucket((<RegressionContext*> k.ctx).keys, <int32_t> sizeof(Sums), &SUMS)


cdef inline bint add_row(Sums* s, int64_t x, int64_t y) noexcept nogil:
    """Add a row. False: a sum overflows."""
    cdef int64_t product
    if s.n == 0 or x != s.last:
        s.n += 1
        if (add_overflows(s.x, x, &s.x) or mul_overflows(x, x, &product)
                or add_overflows(s.xx, product, &s.xx)):
            return False
    s.last = x
    if add_overflows(s.y, y, &s.y):
        return False
    # with a total of the other sign it may still fit
    if mul_overflows(x, y, &product):
        return wide_fits(s.xy, x, y, &s.xy)
    return not add_overflows(s.xy, product, &s.xy)


cdef int emit_line(const RegressionContext* x, Worker* w, const char* record, Chunk* out,
                   int32_t origin) noexcept nogil:
    """Append the line of a key (room is reserved). 0, or -1: no memory."""
    cdef const Sums* s = <const Sums*> (record + x.keys.size)
    cdef int32_t at = x.keys.ncols
    cdef int32_t i = out.n
    cdef int32_t j
    cdef Wide rise
    cdef double run
    if key_store(x.keys, record, w, out, i) != 0:
        return -1
    put_word(out.cols[at].data, x.x_type, i, s.last)
    (<int64_t*> out.cols[at + 1].data)[i] = s.n
    if s.n < 2:
        for j in range(at + 2, at + 5):
            if chunk_set_valid(w, out, j) != 0:
                return -1
            out.cols[j].valid[i] = 0
        (<double*> out.cols[at + 2].data)[i] = 0
        (<double*> out.cols[at + 3].data)[i] = 0
        (<uint8_t*> out.cols[at + 4].data)[i] = 0
    else:
        rise = wide_determinant(s.n, s.xy, s.x, s.y)
        run = wide_to_double(wide_determinant(s.n, s.xx, s.x, s.x))
        (<double*> out.cols[at + 2].data)[i] = wide_to_double(rise) / run
        (<double*> out.cols[at + 3].data)[i] = wide_to_double(wide_determinant(s.y, s.xx, s.x, s.xy)) / run
        (<uint8_t*> out.cols[at + 4].data)[i] = wide_sign(rise) <= 0
        for j in range(at + 2, at + 5):
            if out.cols[j].valid != NULL:
                out.cols[j].valid[i] = 1
    out.origin[i] = origin
    out.n = i + 1
    out.slots = out.n
    return 0


cdef int32_t regression_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Add rows to their keys' sums.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when x or y of rows[j] is null, x
    is smaller than the key's last one or a sum overflows (the state untouched), or without memory. Cost:
    keyed_lookup plus ~3 ns per row, ~50 ns per output.
    """
    cdef RegressionContext* x = <RegressionContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] xs
    cdef int64_t[LOOKUP_BLOCK] ys
    cdef const uint8_t* x_valid = c.cols[x.x].valid
    cdef const uint8_t* y_valid = c.cols[x.y].valid
    cdef Sums after
    cdef Sums* s
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t end
    cdef int32_t i
    cdef int32_t row
    cdef bint due
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        end = m
        if x_valid != NULL or y_valid != NULL:
            end = 0
            while (end < m and (x_valid == NULL or x_valid[rows[k0 + end]] != 0)
                    and (y_valid == NULL or y_valid[rows[k0 + end]] != 0)):
                end += 1
        load(xs, x.x_type, c.cols[x.x].data, rows + k0, end)
        load(ys, x.y_type, c.cols[x.y].data, rows + k0, end)
        if end and keyed_lookup(&b.keyed, w, c, rows + k0, end, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            row = rows[k0 + i]
            s = <Sums*> keyed_state(&b.keyed, slots[i])
            after = s[0]
            # an unsigned one above int64 is an overflow
            if s.n and xs[i] < s.last and (xs[i] >= 0 or x.x_type != PT_U64):
                failure_earlier(f, row, x.x, xs[i], s.last)
                return k0 + i
            if ((x.x_type == PT_U64 and xs[i] < 0) or (x.y_type == PT_U64 and ys[i] < 0)
                    or not add_row(&after, xs[i], ys[i])):
                failure_set(f, row, FAIL_OVERFLOW, "a sum of the regression is outside int64; x is squared: "
                                                   "count it from a start near by, in a coarse unit")
                return k0 + i
            due = x.emission == EMIT_EVERY_TUPLE or (x.emission == EMIT_UPDATES and s.n > 1
                                                     and xs[i] != s.last)
            if due and out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            if x.emission == EMIT_EVERY_TUPLE:
                s[0] = after
            if due and emit_line(x, w, keyed_record(&b.keyed, slots[i]), out, row) != 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            s[0] = after
        k0 += end
        if end < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null x or y: filter such tuples out before regression")
            return k0
    return n


cdef int regression_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                              Failure* f) noexcept nogil:
    """At the end of the stream the line of each key with two points or more. Any order: the runtime sorts by
    flush_key."""
    cdef RegressionContext* x = <RegressionContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef char* record
    cdef char* key
    cdef int64_t i
    if punctuation.kind != END_OF_STREAM:
        return 0
    for i in range(b.keyed.count):
        if stop_due(w, i):
            return 0
        record = keyed_record(&b.keyed, i)
        if (<const Sums*> (record + x.keys.size)).n < 2:
            continue
        key = NULL
        if flush_reserve(w, out, k.output, 1) == 0:
            key = chunk_alloc(w, out, x.keys.size)
        if key == NULL or key_copy(x.keys, record, w, out, key) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        out.flush_time[out.n] = 0
        out.flush_key[out.n] = key
        if emit_line(x, w, record, out, 0) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint has_a_point(Kernel* k, const char* state) noexcept nogil:
    return (<const Sums*> state).n != 0


cdef int write_sums(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const int64_t* sums = <const int64_t*> state        # in the order of the struct
    cdef int32_t column = own_column(k)
    cdef int32_t j
    for j in range(5):
        (<int64_t*> out.cols[column + j].data)[index] = sums[j]
        put_valid(w, out, column + j, index, True)
    put_word(out.cols[column + 5].data, (<RegressionContext*> k.ctx).x_type, index, sums[5])
    put_valid(w, out, column + 5, index, True)
    return 0


cdef int32_t read_sums(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef RegressionContext* x = <RegressionContext*> k.ctx
    cdef int64_t* sums = <int64_t*> state
    cdef int32_t column = own_column(k)
    cdef int32_t j
    for j in range(6):
        if not is_there(rows, column + j, slot):
            failure_set(f, slot, FAIL_STATE, "a sum of the regression is null")
            return FAIL_STATE
        if j < 5:
            sums[j] = (<const int64_t*> rows.cols[column + j].data)[slot]
    sums[5] = word_of(rows, column + 5, slot, x.x_type)
    if sums[0] < 1 or (x.x_type == PT_U64 and sums[5] < 0):
        failure_set(f, slot, FAIL_STATE, "a regression of less than one point, or its x is outside int64")
        return FAIL_STATE
    return 0


cdef StateCalls SUMS = StateCalls(alive=has_a_point, write=write_sums, read=read_sums, drop=NULL)


cdef class RegressionKernel(KernelOwner):
    """Operator "regression": attributes {"x": column, "y": column, "emit"}; the key is operator.key."""

    cdef RegressionContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        emissions = {"updates": EMIT_UPDATES, "every_tuple": EMIT_EVERY_TUPLE, "final": EMIT_FINAL}
        owner_setup(self, operator, PS)
        self.keys = KeySpecOwner(operator.key, self.input_layout.types)
        self.context.keys = &self.keys.spec
        self.context.x = operator.x
        self.context.y = operator.y
        self.context.x_type = self.input_layout.types[self.context.x]
        self.context.y_type = self.input_layout.types[self.context.y]
        self.context.emission = emissions[operator.emit]
        if self.context.x_type >= PT_F32 or self.context.y_type >= PT_F32:
            raise TypeError(f"{operator.name!r}: x must be an integer, a date or a time, y an integer")
        if self.kernel.output.ncols != len(operator.key) + 5:
            raise ValueError(f"{operator.name!r}: the output schema must be key columns, x, n, slope, "
                             f"intercept, flat_or_declining")
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1
        self.kernel.process = regression_process
        self.kernel.punctuate = regression_punctuate
        self.kernel.bucket_new = regression_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
