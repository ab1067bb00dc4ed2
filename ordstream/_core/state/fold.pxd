"""Fold: aggregations over rows, in a compact state.

They are sum, min, max, count, first, last, mean, var and std, each perhaps with a condition. What needs an
object of its own is in gathered.pxd: here it is a pointer, which `fold_row` passes over.

a) A state is one byte that says whether any row came, one byte per aggregation that says whether it has a
   value, then 8 bytes per aggregation (mean: 16, var and std: 24; of decimals whose sums have over 18
   digits: sum 16, mean 24): sums and counts start at 0, so zeroed memory is the state of no row.
b) Conditions are evaluated for a whole chunk, before it is divided (`fold_prepare`): per row one bit of each
   aggregation says whether it looks at the row, nulls included. A block of rows is loaded (`fold_load`:
   narrow values widened, bits made bytes), then folded row by row, in order: floats are never re-associated.
   A kernel whose values need no widening may take bits and values where they lie.
c) A checked sum is looked at before anything of the row changes.
"""
from libc.math cimport INFINITY, isinf, isnan, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport PT_VIEW, Chunk, Failure, LayoutOwner, View, Worker, chunk_alloc
from ordstream._core.ground.expression cimport Code
from ordstream._core.state.keyed_bucket cimport put_word

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    bint add_overflows(int64_t a, int64_t b, int64_t* r)

cdef extern from "decimal128.hpp" namespace "ord" nogil:
    cppclass Int128:
        uint64_t low
        int64_t high
    Int128 int128_of(int64_t v)
    Int128 int128_decode(const char* bytes)
    Int128 int128_mean(const Int128& total, int64_t n, int64_t power)
    Int128 words_value(const int64_t* words)
    void words_add(int64_t* words, const Int128& v)
    bint sum_leaves(const int64_t* words, const Int128& v, int digits)
    void int128_encode(const Int128& v, char* to)

cdef enum FoldFunction:
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
    F_VAR = 13             # words: mean, squared distances from it, n
    F_STD = 14
    F_GATHER = 15          # a word that is a pointer to an object (gathered.pxd)
    F_MEAN_DECIMAL = 16    # as F_MEAN_I64, of counts of a decimal's unit; shows a count too
    # of decimals, in 128 bits: two words of the sum, the low one first; a mean's count. Loaded values are
    # counts of the unit, or with "FAR" addresses of a decimal's 16 bytes
    F_SUM_WIDE = 17
    F_MEAN_WIDE = 18
    F_SUM_FAR = 19
    F_MEAN_FAR = 20

cdef struct Accumulator:
    int32_t function       # FoldFunction
    int32_t source         # input column; -1: every row counts
    int32_t type           # PhysicalType of that column
    int32_t result         # PhysicalType of the output column
    int32_t may_be_null    # null of nothing
    int32_t checked        # an exact sum: may fail
    int32_t digits         # of a sum in 128 bits: how many it may have; else 0
    # of a checked sum: values above INT64_MAX fail; of a variance: how an integer becomes a float
    int32_t is_u64
    int32_t is_real        # the values are floats
    int32_t offset         # of its value in a state
    int64_t power          # of a decimal's mean: its units in one of the column's, a power of ten
    const Code* where      # only rows where it is true; NULL: all
    const void* gather     # OrdGatherSpec of an object; NULL: there is none
    int32_t by             # of an object: input column that decides; -1: the value does
    int32_t by_type
    int32_t ends           # taken in part by part (fold_ends.pxd): what folds rows passes over it

cdef struct Fold:
    # Read-only while a run lasts. Memory ownership: FoldOwner.
    int32_t n
    int32_t size           # bytes of a state, multiple of 8
    int32_t any_checked
    int32_t gathers        # accumulators with an object
    int32_t apart          # accumulators whose values are bytes: rows that show them are new ones
    Accumulator* accumulators

cdef struct FoldBlock:
    # Rows that were loaded. In the worker's scratch.
    const int32_t* rows    # their slots
    const int64_t** column  # per accumulator: 64-bit values where they lie, by slot; NULL: in `values`
    int64_t* values        # LOOKUP_BLOCK per accumulator: widened values, floats as bits
    uint8_t** used         # per accumulator: which rows it looks at; NULL: all

cdef enum:
    FOLD_GROUP = 8         # accumulators whose bits share a byte

cdef int fold_prepare(const Fold* x, Worker* w, Chunk* c, int32_t first) noexcept nogil
cdef int fold_begin(const Fold* x, Worker* w, FoldBlock* b) noexcept nogil
cdef int32_t fold_load(const Fold* x, Worker* w, Chunk* c, const int32_t* rows, int32_t n, int32_t first,
                       FoldBlock* b, Failure* f) noexcept nogil


cdef inline int64_t loaded_value(const FoldBlock* b, int32_t j, int32_t i) noexcept nogil:
    """Value of accumulator j's column in row i of the block."""
    return b.column[j][b.rows[i]] if b.column[j] != NULL else b.values[j * 64 + i]


cdef inline double as_float(int64_t word) noexcept nogil:
    cdef double v
    memcpy(&v, &word, 8)
    return v


cdef inline int64_t as_word(double v) noexcept nogil:
    cdef int64_t word
    memcpy(&word, &v, 8)
    return word


cdef inline Int128 decimal_of(int32_t function, int64_t loaded) noexcept nogil:
    """The value that a sum in 128 bits adds."""
    if function >= F_SUM_FAR:
        return int128_decode(<const char*> loaded)
    return int128_of(loaded)


cdef inline bint fold_overflows(const Fold* x, const char* state, const FoldBlock* b,
                                int32_t i) noexcept nogil:
    """True when a checked sum of row i of the block would overflow; `state` NULL: that of no row."""
    cdef const Accumulator* a
    cdef int64_t value
    cdef int64_t ignored
    cdef int32_t j
    for j in range(x.n):
        a = &x.accumulators[j]
        if not a.checked or (b.used[j] != NULL and b.used[j][i] == 0):
            continue
        value = loaded_value(b, j, i)
        if a.digits:
            if sum_leaves(<const int64_t*> (state + a.offset) if state != NULL else NULL,
                          decimal_of(a.function, value), a.digits):
                return True
            continue
        if a.is_u64 and value < 0:
            return True
        if state != NULL and add_overflows((<const int64_t*> (state + a.offset))[0], value, &ignored):
            return True
    return False


cdef inline void fold_into(int32_t function, int64_t* s, bint is_first, int64_t value) noexcept nogil:
    """Include one value (floats as bits) in the words `s`, which begin as zero. Sums were checked before."""
    cdef double p
    cdef double q
    if function == F_MAX_I64:
        if is_first or value > s[0]:
            s[0] = value
    elif function == F_MIN_I64:
        if is_first or value < s[0]:
            s[0] = value
    elif function == F_COUNT:
        s[0] += 1
    elif function == F_SUM_I64:
        s[0] += value
    elif function == F_MEAN_I64 or function == F_MEAN_DECIMAL:
        s[0] += value
        s[1] += 1
    elif function == F_SUM_F64:
        s[0] = as_word(as_float(s[0]) + as_float(value))
    elif function == F_MEAN_F64:
        s[0] = as_word(as_float(s[0]) + as_float(value))
        s[1] += 1
    elif function == F_LAST:
        s[0] = value
    elif function == F_FIRST:
        if is_first:
            s[0] = value
    elif function == F_MIN_U64:
        if is_first or <uint64_t> value < <uint64_t> s[0]:
            s[0] = value
    elif function == F_MAX_U64:
        if is_first or <uint64_t> value > <uint64_t> s[0]:
            s[0] = value
    elif function >= F_SUM_WIDE:
        words_add(s, decimal_of(function, value))
        if function == F_MEAN_WIDE or function == F_MEAN_FAR:
            s[2] += 1
    else:
        p = as_float(s[0])
        q = as_float(value)
        if is_first or (q < p if function == F_MIN_F64 else q > p) or (isnan(p) and not isnan(q)):
            s[0] = value


cdef inline bint fold_spreads(const Accumulator* a) noexcept nogil:
    """Whether it is a variance or its root."""
    return a.function == F_VAR or a.function == F_STD


cdef inline void fold_spread(const Accumulator* a, int64_t* s, int64_t value) noexcept nogil:
    """Include one value in a variance: Welford's recurrence. Where the squares of finite values leave
    float64 they are +inf from then on, with a mean of 0: an infinite one would make nan of the next value.
    """
    cdef double x
    cdef double delta
    cdef double squares
    cdef double mean = as_float(s[0])
    if a.is_real:
        x = as_float(value)
    elif a.is_u64:
        x = <double> <uint64_t> value
    else:
        x = <double> value
    s[2] += 1
    delta = x - mean
    mean = mean + delta / <double> s[2]
    squares = as_float(s[1]) + delta * (x - mean)
    if isinf(squares):
        mean = 0.0
        squares = INFINITY
    s[0] = as_word(mean)
    s[1] = as_word(squares)


cdef inline bint fold_there(const Accumulator* a, const char* state, int32_t j) noexcept nogil:
    """Whether accumulator j shows a value, and not null."""
    if fold_spreads(a):
        return (<const int64_t*> (state + a.offset))[2] > 1
    return state[1 + j] != 0


cdef inline void fold_one(const Accumulator* a, char* state, int32_t j, int64_t value) noexcept nogil:
    """Include one value of accumulator j in a state."""
    cdef bint is_first = state[1 + j] == 0
    state[1 + j] = 1
    if fold_spreads(a):
        fold_spread(a, <int64_t*> (state + a.offset), value)
        return
    fold_into(a.function, <int64_t*> (state + a.offset), is_first, value)


cdef inline void fold_row(const Fold* x, char* state, const FoldBlock* b, int32_t i) noexcept nogil:
    """Include row i of the block. Cannot fail: sums were checked before. Cost: ~1 ns per accumulator."""
    cdef int32_t j
    state[0] = 1
    for j in range(x.n):
        if x.accumulators[j].function == F_GATHER or x.accumulators[j].ends:
            continue
        if b.used[j] == NULL or b.used[j][i] != 0:
            fold_one(&x.accumulators[j], state, j, loaded_value(b, j, i))


cdef inline int64_t decimal_mean(int64_t total, int64_t n, int64_t power) noexcept nogil:
    """total * power / n to the nearest whole number, halves away from zero; n from 1 to 10 ** 14, power at
    most 10,000, and the result an int64. No product is larger than the result, or than n * power.
    """
    cdef int64_t whole = total // n
    cdef int64_t rest = (total % n) * power                  # both truncate, as C does: one sign
    cdef int64_t more = rest // n
    rest = rest % n
    if 2 * (rest if rest >= 0 else -rest) >= n:
        more += 1 if rest > 0 else -1
    return whole * power + more


cdef inline Int128 fold_decimal(const Accumulator* a, const char* state) noexcept nogil:
    """What an accumulator with a sum in 128 bits shows; 0 where it shows null."""
    cdef const int64_t* s = <const int64_t*> (state + a.offset)
    if (a.function == F_MEAN_WIDE or a.function == F_MEAN_FAR) and s[2]:
        return int128_mean(words_value(s), s[2], a.power)
    return words_value(s)


cdef inline int fold_put(const Accumulator* a, const char* state, Worker* w, Chunk* out, int32_t column,
                         int32_t index) noexcept nogil:
    """Write what an accumulator shows into a column; of a decimal that has its bytes apart, these into the
    chunk's arena. 0, or -1: no memory. Thread safety: the chunk's owner."""
    cdef View* view
    cdef char* to
    if a.result != PT_VIEW:
        put_word(out.cols[column].data, a.result, index, fold_value(a, state))
        return 0
    view = &(<View*> out.cols[column].data)[index]
    to = chunk_alloc(w, out, 16)
    if to == NULL:
        return -1
    int128_encode(fold_decimal(a, state), to)
    view.data = to
    view.size = 16
    return 0


cdef inline int64_t fold_value(const Accumulator* a, const char* state) noexcept nogil:
    """What an accumulator shows (floats as bits); 0 where it shows null."""
    cdef const int64_t* s = <const int64_t*> (state + a.offset)
    cdef double variance
    if a.function <= F_SUM_F64:                              # most of them
        return s[0]
    if a.function == F_MEAN_I64:
        return as_word(<double> s[0] / <double> s[1]) if s[1] else 0
    if a.function == F_MEAN_F64:
        return as_word(as_float(s[0]) / <double> s[1]) if s[1] else 0
    if a.function == F_MEAN_DECIMAL:
        return decimal_mean(s[0], s[1], a.power) if s[1] else 0
    if a.digits:
        return <int64_t> fold_decimal(a, state).low
    if fold_spreads(a):
        if s[2] < 2:
            return 0
        variance = as_float(s[1]) / <double> (s[2] - 1)
        return as_word(sqrt(variance) if a.function == F_STD else variance)
    return s[0]


cdef class FoldOwner:
    # Memory ownership: allocates and frees the accumulators and what their objects are made by; keeps the
    # conditions' code alive.
    cdef Fold fold
    cdef list codes
    cdef void* specs
    cdef int set_function(self, Accumulator* a, str function, column) except -1
    cdef int set_object(self, Accumulator* a, int32_t j, aggregate, LayoutOwner layout) except -1
