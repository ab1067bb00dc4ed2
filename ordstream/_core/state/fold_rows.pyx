"""States of aggregations as columns. See fold_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_STATE, PT_BOOL, Chunk, Failure, Layout, View, Worker, chunk_alloc, chunk_set_valid, failure_set,
)
from ordstream._core.state.fold cimport (
    F_COUNT, F_MEAN_DECIMAL, F_MEAN_F64, F_MEAN_FAR, F_MEAN_I64, F_MEAN_WIDE, Accumulator, Fold,
    fold_spreads, int128_decode, int128_encode, words_add, words_value,
)
from ordstream._core.state.gathered cimport gathered_bytes, gathered_fill, gathered_forget
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.state_columns cimport put_valid

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)


cdef inline bint is_mean(const Accumulator* a) noexcept nogil:
    return (a.function == F_MEAN_I64 or a.function == F_MEAN_F64 or a.function == F_MEAN_DECIMAL
            or a.function == F_MEAN_WIDE or a.function == F_MEAN_FAR)


cdef inline int32_t count_word(const Accumulator* a) noexcept nogil:
    """Where a mean has its count."""
    return 2 if a.digits else 1


cdef inline int64_t word_of(const Layout* layout, const Chunk* rows, int32_t column,
                            int32_t slot) noexcept nogil:
    """A value, widened (floats: bits of a double): the inverse of put_word."""
    # load may write a view, as far as a compiler knows
    cdef int64_t[2] word
    if layout.type[column] == PT_BOOL:
        return (<const uint8_t*> rows.cols[column].data)[slot] != 0
    load(word, layout.type[column], rows.cols[column].data, &slot, 1)
    return word[0]


cdef inline bint is_null(const Chunk* rows, int32_t column, int32_t slot) noexcept nogil:
    return rows.cols[column].valid != NULL and rows.cols[column].valid[slot] == 0


cdef int fold_write(const Fold* x, const Layout* layout, const char* state, Worker* w, Chunk* out,
                    int32_t column, int32_t index) noexcept nogil:
    """Write a state into the columns `column`.. of a reserved row of `layout`.

    Thread safety: the owner of `out`. Ownership: out's arena. Returns: 0, or -1: no memory.
    accumulator.
    """
    cdef const Accumulator* a
    cdef const int64_t* s
    cdef char* to
    cdef int32_t j
    for j in range(x.n):
        a = &x.accumulators[j]
        s = <const int64_t*> (state + a.offset)
        if a.gather != NULL:
            if (gathered_bytes(<void*> s[0], w, out, &(<View*> out.cols[column].data)[index]) != 0
                    or put_valid(w, out, column, index, s[0] != 0) != 0):
                return -1
            column += 1
            continue
        if a.digits:
            to = chunk_alloc(w, out, 16)
            if to == NULL:
                return -1
            int128_encode(words_value(s), to)
            (<View*> out.cols[column].data)[index].data = to
            (<View*> out.cols[column].data)[index].size = 16
        else:
            put_word(out.cols[column].data, layout.type[column], index, s[0])
        if a.function != F_COUNT and state[1 + j] == 0:
            if chunk_set_valid(w, out, column) != 0:
                return -1
            out.cols[column].valid[index] = 0
        elif out.cols[column].valid != NULL:
            out.cols[column].valid[index] = 1
        column += 1
        if is_mean(a):
            put_word(out.cols[column].data, layout.type[column], index, s[count_word(a)])
            column += 1
        elif fold_spreads(a):
            put_word(out.cols[column].data, layout.type[column], index, s[1])
            put_word(out.cols[column + 1].data, layout.type[column + 1], index, s[2])
            column += 2
    return 0


cdef int32_t fold_read(const Fold* x, const Layout* layout, const Chunk* rows, int32_t column,
                       int32_t slot, char* state, int64_t* held, Failure* f) noexcept nogil:
    """Fill a state, zeroed before, from the columns `column`.. of a row of `layout`.

    Thread safety: the state's owner. Ownership: objects are the state's; `held`: their bytes. Returns: 0, or
    FAIL_STATE: a value that no state has (f is filled; the state is zeroed).
    """
    cdef const Accumulator* a
    cdef int64_t* s
    cdef const char* wrong = NULL
    cdef int64_t added
    cdef int64_t n
    cdef int32_t j
    if x.gathers:
        gathered_forget(x, state, held)
    state[0] = 1
    for j in range(x.n):
        a = &x.accumulators[j]
        s = <int64_t*> (state + a.offset)
        if a.gather != NULL:
            if not is_null(rows, column, slot):
                added = gathered_fill(a, <void**> s, &(<const View*> rows.cols[column].data)[slot], held)
                state[1 + j] = added > 0
                if added == -2:
                    wrong = "the values of an aggregation are cut off"
                elif added < 0:
                    wrong = "there is no memory for the values of an aggregation"
            column += 1
            continue
        if not is_null(rows, column, slot):
            if a.digits == 0:
                s[0] = word_of(layout, rows, column, slot)
            elif (<const View*> rows.cols[column].data)[slot].size == 16:
                words_add(s, int128_decode((<const View*> rows.cols[column].data)[slot].data))
            state[1 + j] = 1
        if a.function == F_COUNT:
            if state[1 + j] == 0 or s[0] < 0:
                wrong = "a count is null or negative"
            state[1 + j] = s[0] > 0
        column += 1
        if is_mean(a):
            if is_null(rows, column, slot):
                wrong = "the count of a mean is null"
            else:
                n = word_of(layout, rows, column, slot)
                s[count_word(a)] = n
                if (n > 0) != (state[1 + j] != 0) or n < 0:
                    wrong = "the sum of a mean is null and its count is not 0, or the other way round"
            column += 1
        elif fold_spreads(a):
            if is_null(rows, column, slot) or is_null(rows, column + 1, slot):
                wrong = "the squares or the count of a variance are null"
            else:
                s[1] = word_of(layout, rows, column, slot)
                s[2] = word_of(layout, rows, column + 1, slot)
                if (s[2] > 0) != (state[1 + j] != 0) or s[2] < 0:
                    wrong = "the mean of a variance is null and its count is not 0, or the other way round"
            column += 2
    if wrong == NULL:
        return 0
    if x.gathers:
        gathered_forget(x, state, held)
    memset(state, 0, x.size)
    failure_set(f, slot, FAIL_STATE, wrong)
    return FAIL_STATE
