"""Keyed kernels that write one output per input row or a table at the end: count and scan. With no key they are stateful (SF)
operators with a single state. Contract: kernel.pxd (b), (c)."""
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_OVERFLOW, PT_BOOL, PT_F32, PT_F64, PT_U64, Chunk, ChunkPool, Column, Failure, Worker,
    chunk_alloc, failure_set, scratch_alloc,
)
from ordstream._core.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, key_copy, key_store, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
    keyed_record, keyed_state,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)
    int64_t store(void* data, int type, const int32_t* sel, const void* values, int scalar, int64_t n)
    bint add_overflows(int64_t a, int64_t b, int64_t* r)


cdef struct Bucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed       # PS
    char* single           # SF: the one state; NULL for PS
    int64_t state_size
    ChunkPool pool         # counts the bytes of the keys' strings; only `bytes` is used


cdef Bucket* new_bucket(const KeySpec* keys, int32_t state_size) noexcept nogil:
    """A bucket with a map (keys not NULL) or one zeroed state. NULL: no memory. Ownership: the caller."""
    cdef Bucket* b = <Bucket*> calloc(1, sizeof(Bucket))
    if b == NULL:
        return NULL
    b.state_size = state_size
    if keys != NULL:
        if keyed_init(&b.keyed, keys, state_size, &b.pool) != 0:
            free(b)
            return NULL
    else:
        b.single = <char*> calloc(1, state_size + 8)
        if b.single == NULL:
            free(b)
            return NULL
    return b


cdef void free_bucket(Kernel* k, void* state) noexcept nogil:
    cdef Bucket* b = <Bucket*> state
    if b.single == NULL:
        keyed_free(&b.keyed)
    free(b.single)
    free(b)


cdef int64_t bytes_of_bucket(Kernel* k, void* state) noexcept nogil:
    cdef Bucket* b = <Bucket*> state
    return b.state_size if b.single != NULL else keyed_bytes(&b.keyed)


# ---------------------------------------------------------------------------------------------- count

cdef struct CountContext:
    # Read-only while a run lasts. Memory ownership: CountKernel.
    const KeySpec* keys    # NULL: SF
    int32_t column         # updates: the added column, behind the input's


cdef void* count_new(Kernel* k, int32_t bucket) noexcept nogil:
    return new_bucket((<CountContext*> k.ctx).keys, 8)


cdef int count_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the count column behind the input's columns."""
    cdef int32_t j = (<CountContext*> k.ctx).column
    c.cols[j].data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
    c.cols[j].valid = NULL
    return 0 if c.cols[j].data != NULL else -1


cdef int32_t count_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Count rows; with `in_place` write each row's running count into the prepared column.

    Thread safety: the bucket's holder. Ownership: none. Returns: n; fewer only without memory. Cost: keyed_lookup plus ~1 ns per row.
    """
    cdef CountContext* x = <CountContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int64_t* counts = <int64_t*> c.cols[x.column].data if k.in_place else NULL
    cdef int64_t* count
    cdef int64_t total
    cdef int64_t stride
    cdef char* base
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int32_t k0 = 0
    cdef int32_t i
    cdef int32_t m
    if x.keys == NULL:
        count = <int64_t*> b.single
        total = count[0]
        if counts != NULL:
            for i in range(n):
                total += 1
                counts[rows[i]] = total
            count[0] = total
        else:
            count[0] = total + n
        return n
    stride = b.keyed.stride
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if keyed_lookup(&b.keyed, w, c, rows + k0, m, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        base = b.keyed.records + x.keys.size
        if counts != NULL:
            for i in range(m):
                count = <int64_t*> (base + slots[i] * stride)
                total = count[0] + 1
                count[0] = total
                counts[rows[k0 + i]] = total
        else:
            for i in range(m):
                count = <int64_t*> (base + slots[i] * stride)
                count[0] += 1
        k0 += m
    return n


cdef int count_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Output columns: the key columns (floats in their normal form: -0.0 is 0.0), then the count."""
    cdef CountContext* x = <CountContext*> k.ctx
    cdef Column[65] new
    cdef int32_t nkeys = 0
    cdef int32_t type
    cdef int32_t i
    cdef int32_t j
    cdef char* data
    if x.keys != NULL:
        nkeys = x.keys.ncols
        for j in range(nkeys):
            new[j] = c.cols[x.keys.column[j]]
            type = x.keys.type[j]
            if type == PT_F64 or type == PT_F32:
                data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
                if data == NULL:
                    return -1
                for i in range(c.slots):
                    if type == PT_F64:
                        (<double*> data)[i] = (<const double*> new[j].data)[i] + 0.0
                    else:
                        (<float*> data)[i] = (<const float*> new[j].data)[i] + <float> 0.0
                new[j].data = data
    new[nkeys] = c.cols[x.column]
    memcpy(c.cols, new, (nkeys + 1) * sizeof(Column))
    c.ncols = nkeys + 1
    return 0


cdef int count_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out, Failure* f) noexcept nogil:
    """emit="final": at the end of the stream one row per key. Any order: the runtime sorts by flush_key."""
    cdef CountContext* x = <CountContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int64_t i
    cdef int64_t n
    cdef char* records
    cdef char* record
    if punctuation.kind != END_OF_STREAM:
        return 0
    if x.keys == NULL:
        if (<int64_t*> b.single)[0] == 0:                # no tuple, no state
            return 0
        if flush_reserve(w, out, k.output, 1) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        (<int64_t*> out.cols[0].data)[out.n] = (<int64_t*> b.single)[0]
        out.origin[out.n] = 0
        out.n += 1
        out.slots = out.n
        return 0
    n = b.keyed.count
    if n == 0:
        return 0
    records = chunk_alloc(w, out, n * x.keys.size)
    if records == NULL or flush_reserve(w, out, k.output, <int32_t> n) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    for i in range(n):
        record = keyed_record(&b.keyed, i)
        if (key_store(x.keys, record, w, out, out.n) != 0
                or key_copy(x.keys, record, w, out, records + i * x.keys.size) != 0):
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        (<int64_t*> out.cols[x.keys.ncols].data)[out.n] = (<int64_t*> (record + x.keys.size))[0]
        out.origin[out.n] = 0
        out.flush_time[out.n] = 0
        out.flush_key[out.n] = records + i * x.keys.size
        out.n += 1
    out.slots = out.n
    return 0


cdef class CountKernel(KernelOwner):
    """Operator "count": params {"emit": "updates" | "final"}; the key is stage.key (empty: SF)."""

    cdef CountContext context
    cdef KeySpecOwner keys

    def __init__(self, stage):
        owner_setup(self, stage, PS if stage.key else SF)
        if stage.params["emit"] not in ("updates", "final"):
            raise ValueError(f"{stage.name!r}: emit must be 'updates' or 'final', not {stage.params['emit']!r}")
        if stage.key:
            self.keys = KeySpecOwner(stage.key, self.input_layout.types)
            self.context.keys = &self.keys.spec
        self.context.column = self.kernel.input.ncols
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1 if stage.key else 0
        self.kernel.process = count_process
        self.kernel.bucket_new = count_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        if stage.params["emit"] == "updates":
            self.kernel.in_place = 1
            self.kernel.extra_cols = 1
            self.kernel.prepare = count_prepare
            self.kernel.finish = count_finish
        else:
            self.kernel.punctuate = count_punctuate


# ---------------------------------------------------------------------------------------------- scan

cdef enum Function:
    F_COUNT = 0            # rows, or non-null values
    F_SUM_I64 = 1          # checked
    F_SUM_F64 = 2
    F_MEAN_I64 = 3         # the sum is checked too
    F_MEAN_F64 = 4
    F_MIN_I64 = 5
    F_MAX_I64 = 6
    F_MIN_F64 = 7
    F_MAX_F64 = 8
    F_MIN_U64 = 9
    F_MAX_U64 = 10
    F_FIRST = 11
    F_LAST = 12

cdef struct Accumulator:
    # One running value. Its state is two words: the value, and how many non-null values it has seen.
    int32_t function       # Function
    int32_t source         # input column; -1: every row counts
    int32_t type           # PhysicalType of that column
    int32_t result         # PhysicalType of the output column
    int32_t may_be_null    # null of nothing
    int32_t checked        # an int64 sum: may fail
    int32_t is_u64         # of a checked sum: values above INT64_MAX fail

cdef struct ScanContext:
    # Read-only while a run lasts. Memory ownership: ScanKernel.
    const KeySpec* keys    # NULL: SF
    int32_t n
    int32_t first          # output column of the first accumulator: columns of the input
    int32_t any_checked
    Accumulator* accumulators

ctypedef struct Word:
    int64_t value          # int64, or the bits of a float64
    int64_t seen


cdef inline double as_float(int64_t word) noexcept nogil:
    cdef double v
    memcpy(&v, &word, 8)
    return v


cdef inline int64_t as_word(double v) noexcept nogil:
    cdef int64_t word
    memcpy(&word, &v, 8)
    return word


cdef void* scan_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef ScanContext* x = <ScanContext*> k.ctx
    return new_bucket(x.keys, x.n * <int32_t> sizeof(Word))


cdef int scan_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the accumulators' columns behind the input's."""
    cdef ScanContext* x = <ScanContext*> k.ctx
    cdef int32_t j
    cdef Column* col
    for j in range(x.n):
        col = &c.cols[x.first + j]
        col.valid = NULL
        col.data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
        if col.data == NULL:
            return -1
        if x.accumulators[j].may_be_null:
            col.valid = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
            if col.valid == NULL:
                return -1
    return 0


cdef inline bint would_overflow(const Accumulator* a, const Word* s, int64_t value) noexcept nogil:
    cdef int64_t ignored
    return (a.is_u64 and value < 0) or add_overflows(s.value, value, &ignored)


cdef inline void accumulate(const Accumulator* a, Word* s, int64_t value) noexcept nogil:
    """Add one non-null value (widened; floats as bits). Cannot fail: sums were checked before."""
    cdef double x
    cdef double y
    if a.function == F_SUM_I64 or a.function == F_MEAN_I64:
        s.value += value
    elif a.function == F_SUM_F64 or a.function == F_MEAN_F64:
        s.value = as_word(as_float(s.value) + as_float(value))
    elif a.function == F_LAST or (s.seen == 0 and a.function != F_COUNT):
        s.value = value
    elif a.function == F_MIN_I64:
        if value < s.value:
            s.value = value
    elif a.function == F_MAX_I64:
        if value > s.value:
            s.value = value
    elif a.function == F_MIN_F64 or a.function == F_MAX_F64:
        x = as_float(s.value)
        y = as_float(value)
        if (y < x if a.function == F_MIN_F64 else y > x) or (isnan(x) and not isnan(y)):
            s.value = value
    elif a.function == F_MIN_U64:
        if <uint64_t> value < <uint64_t> s.value:
            s.value = value
    elif a.function == F_MAX_U64:
        if <uint64_t> value > <uint64_t> s.value:
            s.value = value
    s.seen += 1


cdef inline int64_t current(const Accumulator* a, const Word* s) noexcept nogil:
    """The running value (floats as bits)."""
    if a.function == F_COUNT:
        return s.seen
    if s.seen == 0:
        return 0
    if a.function == F_MEAN_I64:
        return as_word(<double> s.value / <double> s.seen)
    if a.function == F_MEAN_F64:
        return as_word(as_float(s.value) / <double> s.seen)
    return s.value


cdef inline bint is_valid(const Chunk* c, const Accumulator* a, int32_t row) noexcept nogil:
    return a.source < 0 or c.cols[a.source].valid == NULL or c.cols[a.source].valid[row] != 0


cdef int32_t scan_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Running aggregations: each row gets the values that include it. Blocks of rows: widen columns, fold row by row, narrow.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when the sum of rows[j] overflows (no state of it changed).
    Cost: keyed_lookup plus ~3 ns per row and accumulator.
    """
    cdef ScanContext* x = <ScanContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t* values = <int64_t*> scratch_alloc(w, x.n * <int64_t> LOOKUP_BLOCK * 8)
    cdef int64_t* results = <int64_t*> scratch_alloc(w, x.n * <int64_t> LOOKUP_BLOCK * 8)
    cdef uint8_t[LOOKUP_BLOCK] bools
    cdef const Accumulator* a
    cdef Word* s
    cdef Column* col
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    cdef bint failed = False
    if values == NULL or results == NULL:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while k0 < n and not failed:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.keys != NULL and keyed_lookup(&b.keyed, w, c, rows + k0, m, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for j in range(x.n):
            a = &x.accumulators[j]
            if a.source >= 0 and a.function != F_COUNT:
                if a.type == PT_BOOL:
                    load(bools, PT_BOOL, c.cols[a.source].data, rows + k0, m)
                    for i in range(m):
                        values[j * LOOKUP_BLOCK + i] = bools[i]
                else:
                    load(values + j * LOOKUP_BLOCK, a.type, c.cols[a.source].data, rows + k0, m)
        for i in range(m):
            s = <Word*> (b.single if x.keys == NULL else keyed_state(&b.keyed, slots[i]))
            if x.any_checked:
                for j in range(x.n):
                    a = &x.accumulators[j]
                    if a.checked and is_valid(c, a, rows[k0 + i]) and would_overflow(a, s + j, values[j * LOOKUP_BLOCK + i]):
                        failed = True
                if failed:
                    failure_set(f, rows[k0 + i], FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
                    m = i
                    break
            for j in range(x.n):
                a = &x.accumulators[j]
                if is_valid(c, a, rows[k0 + i]):
                    accumulate(a, s + j, values[j * LOOKUP_BLOCK + i])
                results[j * LOOKUP_BLOCK + i] = current(a, s + j)
                if a.may_be_null:
                    c.cols[x.first + j].valid[rows[k0 + i]] = s[j].seen != 0
        for j in range(x.n):
            a = &x.accumulators[j]
            col = &c.cols[x.first + j]
            if a.result == PT_BOOL:
                for i in range(m):
                    bools[i] = <uint8_t> results[j * LOOKUP_BLOCK + i]
                store(col.data, PT_BOOL, rows + k0, bools, 0, m)
            else:
                store(col.data, a.result, rows + k0, results + j * LOOKUP_BLOCK, 0, m)
        k0 += m
    return k0


cdef int scan_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The accumulators already lie behind the input's columns."""
    c.ncols = k.output.ncols
    return 0


cdef class ScanKernel(KernelOwner):
    """Operator "scan": params {"aggregates": [(function, input column | None), ...]}; the key is stage.key (empty: SF)."""

    cdef ScanContext context
    cdef KeySpecOwner keys

    def __init__(self, stage):
        cdef Accumulator* a
        owner_setup(self, stage, PS if stage.key else SF)
        aggregates = list(stage.params["aggregates"])
        if stage.key:
            self.keys = KeySpecOwner(stage.key, self.input_layout.types)
            self.context.keys = &self.keys.spec
        self.context.n = <int32_t> len(aggregates)
        self.context.first = self.kernel.input.ncols
        if self.kernel.output.ncols != self.context.first + self.context.n:
            raise ValueError(f"{stage.name!r}: the output schema must be the input's and one column per aggregate")
        self.context.accumulators = <Accumulator*> calloc(self.context.n + 1, sizeof(Accumulator))
        if self.context.accumulators == NULL:
            raise MemoryError
        inputs = self.input_layout.types
        outputs = self.output_layout.types
        for j, (function, column) in enumerate(aggregates):
            a = &self.context.accumulators[<int> j]
            a.source = -1 if column is None else column
            a.type = outputs[self.context.first + j] if column is None else inputs[column]
            a.result = outputs[self.context.first + j]
            a.may_be_null = function not in ("sum", "count")
            self.set_function(a, function, column)
            self.context.any_checked |= a.checked
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1 if stage.key else 0
        self.kernel.in_place = 1
        self.kernel.process = scan_process
        self.kernel.prepare = scan_prepare
        self.kernel.finish = scan_finish
        self.kernel.bucket_new = scan_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket

    cdef int set_function(self, Accumulator* a, str function, column) except -1:
        cdef bint real = a.type == PT_F64 or a.type == PT_F32
        if function == "count":
            a.function = F_COUNT
        elif column is None:
            raise ValueError(f"{function} needs a column")
        elif function == "sum":
            a.function = F_SUM_F64 if real else F_SUM_I64
        elif function == "mean":
            a.function = F_MEAN_F64 if real else F_MEAN_I64
        elif function in ("min", "max"):
            low = function == "min"
            if real:
                a.function = F_MIN_F64 if low else F_MAX_F64
            elif a.type == PT_U64:
                a.function = F_MIN_U64 if low else F_MAX_U64
            else:
                a.function = F_MIN_I64 if low else F_MAX_I64
        elif function in ("first", "last"):
            a.function = F_FIRST if function == "first" else F_LAST
        else:
            raise ValueError(f"unknown aggregate {function!r}")
        a.checked = a.function == F_SUM_I64 or a.function == F_MEAN_I64
        a.is_u64 = a.type == PT_U64
        return 0

    def __dealloc__(self):
        free(self.context.accumulators)
