"""assert_ordered: rows pass as they are, and one that comes before the row before it fails. Contract:
kernel.pxd (b), (f).

A state is one row's columns as words that compare as signed numbers: a byte whether there was a row, a byte
per column whether it is null, then 8 bytes per column. Nulls come first, NaN last, -0.0 equals 0.0, as
everywhere (keyed_state.pxd); so does `ordercheck.py` compare whole batches.
"""
from libc.math cimport isnan
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport (
    FAIL_EARLIER, FAIL_MEMORY, PT_F32, PT_F64, PT_U64, Chunk, Failure, LayoutOwner, Worker, failure_set,
    scratch_alloc,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket, put_word,
)
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK, KeySpec, KeySpecOwner, keyed_lookup, keyed_state
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid, word_of
from ordstream._core.state.state_rows cimport owner_bucket_state

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef struct OrderedContext:
    # Read-only while a run lasts. Memory ownership: OrderedKernel.
    const KeySpec* keys    # NULL: SF
    int32_t n              # columns that must ascend, the first one above all
    int32_t words          # offset of the first word in a state: 1 + n rounded up to 8
    int32_t* column        # input column of each
    int32_t* type          # PhysicalType of each


cdef inline int64_t turned(int64_t word, int32_t type) noexcept nogil:
    """A widened value as a word that compares as the value does; of a word, the value: its own inverse."""
    if type == PT_U64:
        return word ^ INT64_MIN
    if type == PT_F64 or type == PT_F32:
        return word ^ ((word >> 63) & INT64_MAX)
    return word


cdef inline int64_t normal_float(int64_t bits) noexcept nogil:
    """One NaN, above all numbers; -0.0 as 0.0."""
    cdef double v
    memcpy(&v, &bits, 8)
    if isnan(v):
        return INT64_MAX
    return 0 if v == 0.0 else bits


cdef void told(char* text, size_t size, int64_t word, int32_t type, bint null) noexcept nogil:
    if null:
        snprintf(text, size, "null")
    else:
        snprintf(text, size, "%lld", <long long> turned(word, type))


cdef void fail(const OrderedContext* x, Failure* f, int32_t row, int32_t j, int64_t word, bint null,
               const char* state) noexcept nogil:
    """The row differs from the one before it in the j-th column, and is earlier."""
    cdef char[32] now
    cdef char[32] before
    cdef char[96] text
    told(now, sizeof(now), word, x.type[j], null)
    told(before, sizeof(before), (<const int64_t*> (state + x.words))[j], x.type[j], state[1 + j] != 0)
    snprintf(text, sizeof(text), "%d %s %s", <int> x.column[j], now, before)
    failure_set(f, row, FAIL_EARLIER, text)


cdef void* ordered_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef OrderedContext* x = <OrderedContext*> k.ctx
    return new_bucket(x.keys, x.words + 8 * x.n, &LAST_ROW)


cdef int32_t ordered_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Compare each row with the row before it of its key, or of all.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when rows[j] comes before the row
    before it (the state untouched), or without memory. Cost: ~1.5 ns per row and column, and keyed_lookup
    with a key.
    """
    cdef OrderedContext* x = <OrderedContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t* words = <int64_t*> scratch_alloc(w, <int64_t> x.n * LOOKUP_BLOCK * 8)
    cdef int64_t* word
    cdef int64_t* last
    cdef const uint8_t* valid
    cdef char* s = b.single
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    cdef int32_t row
    cdef bint null
    if words == NULL:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.keys != NULL and keyed_lookup(&b.keyed, w, c, rows + k0, m, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for j in range(x.n):
            word = words + j * LOOKUP_BLOCK
            load(word, x.type[j], c.cols[x.column[j]].data, rows + k0, m)
            if x.type[j] == PT_F64 or x.type[j] == PT_F32:
                for i in range(m):
                    word[i] = normal_float(word[i])
            for i in range(m):
                word[i] = turned(word[i], x.type[j])
        for i in range(m):
            row = rows[k0 + i]
            if x.keys != NULL:
                s = keyed_state(&b.keyed, slots[i])
            last = <int64_t*> (s + x.words)
            if s[0]:
                for j in range(x.n):
                    valid = c.cols[x.column[j]].valid
                    null = valid != NULL and valid[row] == 0
                    word = words + j * LOOKUP_BLOCK + i
                    if null and s[1 + j]:
                        continue
                    if null or (s[1 + j] == 0 and word[0] < last[j]):
                        fail(x, f, row, j, word[0], null, s)
                        return k0 + i
                    if s[1 + j] or word[0] > last[j]:
                        break
            s[0] = 1
            for j in range(x.n):
                valid = c.cols[x.column[j]].valid
                s[1 + j] = valid != NULL and valid[row] == 0
                last[j] = words[j * LOOKUP_BLOCK + i]
        k0 += m
    return n


# -------------------------------------------------------------------------------- state as rows


cdef bint was_a_row(Kernel* k, const char* state) noexcept nogil:
    return state[0] != 0


cdef int write_row(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    """The last row's columns as they compare: one NaN, no -0.0."""
    cdef OrderedContext* x = <OrderedContext*> k.ctx
    cdef const int64_t* last = <const int64_t*> (state + x.words)
    cdef int32_t column = own_column(k)
    cdef bint there
    cdef int32_t j
    for j in range(x.n):
        there = state[1 + j] == 0
        put_word(out.cols[column + j].data, x.type[j], index, turned(last[j], x.type[j]) if there else 0)
        if put_valid(w, out, column + j, index, there) != 0:
            return -1
    return 0


cdef int32_t read_row(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                      Failure* f) noexcept nogil:
    cdef OrderedContext* x = <OrderedContext*> k.ctx
    cdef int64_t* last = <int64_t*> (state + x.words)
    cdef int32_t column = own_column(k)
    cdef int32_t j
    for j in range(x.n):
        if not is_there(rows, column + j, slot):
            state[1 + j] = 1
            continue
        last[j] = word_of(rows, column + j, slot, x.type[j])
        if x.type[j] == PT_F64 or x.type[j] == PT_F32:
            last[j] = normal_float(last[j])
        last[j] = turned(last[j], x.type[j])
    state[0] = 1
    return 0


cdef StateCalls LAST_ROW = StateCalls(alive=was_a_row, write=write_row, read=read_row, drop=NULL)


cdef class OrderedKernel(KernelOwner):
    """Operator "assert_ordered": attributes {"columns": [int, ...]}; the key is operator.key (empty: SF)."""

    cdef OrderedContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, operator, PS if operator.key else SF)
        layout = self.input_layout
        columns = list(operator.columns)
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            self.context.keys = &self.keys.spec
        self.context.n = <int32_t> len(columns)
        self.context.words = (1 + self.context.n + 7) & ~7
        self.context.column = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        self.context.type = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        if self.context.column == NULL or self.context.type == NULL:
            raise MemoryError
        for j in range(self.context.n):
            self.context.column[j] = columns[j]
            self.context.type[j] = layout.layout.type[self.context.column[j]]
            if self.context.type[j] > PT_F64:
                raise TypeError(f"{operator.name!r}: only numbers, dates and times have an order here")
        self.kernel.ctx = <void*> &self.context
        self.kernel.in_place = 1
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.process = ordered_process
        self.kernel.bucket_new = ordered_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)

    def __dealloc__(self):
        free(self.context.column)
        free(self.context.type)
