"""First and last values, taken in part by part. See fold_ends.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport PT_BOOL, PT_F64, PT_I64, PT_U64, Chunk, Worker, scratch_alloc
from ordstream._core.state.fold cimport F_FIRST, F_GATHER, F_LAST, Accumulator, Fold
from ordstream._core.state.gathered cimport gathered_rows
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.keyed_state cimport keyed_state
from ordstream._core.state.listed_values cimport OrdGatherSpec

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef extern from "gathered_values.hpp" nogil:
    enum: ORD_FIRST
    enum: ORD_LAST

cdef enum:
    LEAST_WORK = 48        # words for which ends are looked for: finding them takes as long as twenty
    OBJECT_WORK = 48       # one object is enough: it copies bytes
    TILE = 64              # keys whose states are written together


cdef inline bint is_end(const Accumulator* a, bint first) noexcept nogil:
    """Whether it is `first`, or `last`."""
    if a.function == F_GATHER:
        return (<const OrdGatherSpec*> a.gather).kind == (ORD_FIRST if first else ORD_LAST)
    return a.function == (F_FIRST if first else F_LAST)


cdef int32_t mark_ends(Fold* x) noexcept nogil:
    """Set `ends` where only the end of the stream shows the values. How many accumulators have it: none
    where they are a few words, which are written sooner than the ends are found."""
    cdef Accumulator* a
    cdef int32_t j
    cdef int32_t n = 0
    cdef int32_t work = 0
    for j in range(x.n):
        a = &x.accumulators[j]
        if a.where == NULL and (is_end(a, True) or is_end(a, False)):
            a.ends = 1
            n += 1
            work += OBJECT_WORK if a.function == F_GATHER else 1
    if work >= LEAST_WORK:
        return n
    for j in range(x.n):
        x.accumulators[j].ends = 0
    return 0


cdef int ends_begin(EndRows* e, Worker* w, int32_t n) noexcept nogil:
    """Room for n rows. 0, or -1: no memory."""
    cdef int64_t room = 4 * (<int64_t> n + 1)
    e.first = <int32_t*> scratch_alloc(w, room)
    e.last = <int32_t*> scratch_alloc(w, room)
    e.behind = <int32_t*> scratch_alloc(w, room)
    e.before = <int32_t*> scratch_alloc(w, room)
    e.table = <int32_t*> scratch_alloc(w, 4 * end_table_size(n))
    if e.first == NULL or e.last == NULL or e.behind == NULL or e.before == NULL or e.table == NULL:
        return -1
    return 0


cdef inline int32_t with_value(const EndRows* e, bint first, const uint8_t* valid, const int32_t* rows,
                               int32_t row) noexcept nogil:
    """The first row from an end on that has a value; -1: none."""
    cdef const int32_t* way = e.behind if first else e.before
    if valid != NULL:
        while row >= 0 and valid[rows[row]] == 0:
            row = way[row]
    return row


cdef int32_t choose(int32_t j, bint first, const EndRows* e, const uint8_t* valid, const int32_t* rows,
                    char** states, int32_t key, int32_t m, int32_t* chosen, char** of) noexcept nogil:
    """Of m keys from `key` on, the rows whose value is taken into accumulator j, and whose states these are.
    How many."""
    cdef const int32_t* start = e.first if first else e.last
    cdef int32_t n = 0
    cdef int32_t i
    cdef int32_t row
    for i in range(m):
        if first and states[i][1 + j] != 0:
            continue
        row = with_value(e, first, valid, rows, start[key + i])
        if row >= 0:
            chosen[n] = rows[row]
            of[n] = states[i]
            n += 1
    return n


cdef void take_words(const Accumulator* a, int32_t j, const Chunk* c, char** states, const int32_t* chosen,
                     int32_t n) noexcept nogil:
    """Put the chosen rows' values into accumulator j of their states."""
    cdef int64_t[TILE] words
    cdef uint8_t[TILE] bools
    cdef const int64_t* values = <const int64_t*> c.cols[a.source].data
    cdef int32_t i
    if a.type == PT_I64 or a.type == PT_U64 or a.type == PT_F64:
        for i in range(n):
            (<int64_t*> (states[i] + a.offset))[0] = values[chosen[i]]
            states[i][1 + j] = 1
        return
    if a.type == PT_BOOL:
        load(bools, PT_BOOL, c.cols[a.source].data, chosen, n)
        for i in range(n):
            words[i] = bools[i]
    else:
        load(words, a.type, c.cols[a.source].data, chosen, n)
    for i in range(n):
        (<int64_t*> (states[i] + a.offset))[0] = words[i]
        states[i][1 + j] = 1


cdef int fold_ends(const Fold* x, Bucket* b, EndRows* e, const Chunk* c, const int32_t* rows,
                   const int32_t* slots, int32_t n) noexcept nogil:
    """Take the first n rows of a part into the accumulators that have `ends`.

    Thread safety: the bucket's holder. Ownership: none. `e`: of `ends_begin`. `slots`: of each row, its
    key's number in the map; NULL: there is one state. Returns: 0, or -1: no memory. Cost: ~6 ns per row,
    then ~2 ns per key of the part and accumulator (strings: a copy).
    """
    cdef const Accumulator* a
    cdef char* states[TILE]
    cdef char* of[TILE]
    cdef int32_t[TILE] newest
    cdef int32_t[TILE] chosen
    cdef int32_t key = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    cdef const uint8_t* valid
    cdef bint first
    end_rows_begin(e, n)
    end_rows_find(e, slots, n)
    while key < e.keys:
        m = min(<int32_t> TILE, e.keys - key)
        for i in range(m):
            states[i] = keyed_state(&b.keyed, slots[e.first[key + i]]) if slots != NULL else b.single
            newest[i] = rows[e.last[key + i]]
        for j in range(x.n):
            a = &x.accumulators[j]
            if not a.ends:
                continue
            first = is_end(a, True)
            valid = c.cols[a.source].valid
            if a.function == F_GATHER:
                i = choose(j, first, e, valid, rows, states, key, m, chosen, of)
                if gathered_rows(a, j, of, c, chosen, NULL, i, &b.held.bytes) != 0:
                    return -1
                continue
            if not first and valid == NULL:
                take_words(a, j, c, states, newest, m)
                continue
            i = choose(j, first, e, valid, rows, states, key, m, chosen, of)
            take_words(a, j, c, of, chosen, i)
        key += m
    return 0
