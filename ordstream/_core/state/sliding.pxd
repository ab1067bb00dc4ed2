"""The rows of a key's sliding window, in a ring, and the aggregates over them. See kernels/rolling.pyx for
the design.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.math cimport isinf
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.state.fold cimport (
    F_MEAN_F64, F_SUM_F64, Accumulator, Fold, as_float, as_word, fold_into, fold_spread, fold_spreads,
)
from ordstream._core.state.gathered cimport GATHERED_LEAVE, GATHERED_SEE, gathered_window
from ordstream._core.state.held_memory cimport held_give, held_take
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.windows cimport WindowContext

cdef enum:
    FIRST_ROOM = 4         # rows that a ring first has room for
    TOTAL_WORDS = 4        # of an aggregation's total: three words, and whether there is a value

cdef struct Slide:
    # State of a key; the totals follow. Zeroed memory: no row. Memory ownership: `entries` is the bucket's.
    int64_t n              # rows in the ring; LEAVES: the key goes
    int64_t front          # of these, in front
    int64_t seen           # of these, not of the time of a row that may not see them yet
    int64_t head           # place of the oldest
    int64_t room           # places; of a window of so many rows no more than these
    char* entries          # NULL: no room yet

cdef struct Word:
    # Where an aggregation lies in an entry.
    int32_t offset         # of its words
    int32_t words
    int32_t exact          # can be undone
    int32_t boxed          # it is an object (gathered.pxd), to which the total's first word points

cdef struct RollingContext:
    # Read-only while a run lasts. Memory ownership: RollingKernel.
    WindowContext window   # its length: a period, or rows
    Word* words            # per accumulator
    int32_t entry          # bytes of an entry: 8 (time, if there is one), words, flags rounded up to 8
    int32_t begin          # offset of the words
    int32_t nwords         # of all accumulators
    int32_t flags          # offset of the flags
    int32_t first          # column of the first value: columns of the input
    int32_t* carry         # of rows apart: all input columns; NULL: values are written in place
    int32_t ends_at_row    # the row itself is seen
    int32_t begins_before  # a row at the far end of the period is seen
    int32_t exact          # all aggregations can be undone
    int32_t plain          # a window of so many rows, of counts, and sums and means that fit into 64 bits


# -------------------------------------------------------------------------------- entries and totals


cdef inline int64_t place_at(const Slide* s, int64_t i) noexcept nogil:
    """The place of the i-th entry; i is `room` at most."""
    cdef int64_t at = s.head + i
    return at - s.room if at >= s.room else at


cdef inline char* entry_at(const RollingContext* x, const Slide* s, int64_t i) noexcept nogil:
    """The i-th entry, the oldest one first."""
    return s.entries + place_at(s, i) * x.entry


cdef inline int64_t time_at(const RollingContext* x, const Slide* s, int64_t i) noexcept nogil:
    return (<const int64_t*> entry_at(x, s, i))[0]


cdef inline int64_t* total_of(Slide* s, int32_t j) noexcept nogil:
    """Words of the total of an aggregation: exact ones low and high half of a sum, and count; the others
    the words of fold.pxd. The last one says whether there is a value."""
    return <int64_t*> (s + 1) + j * TOTAL_WORDS


cdef inline void copy_words(int64_t* to, const int64_t* words, int32_t n) noexcept nogil:
    """A few words, without a call."""
    cdef int32_t i
    for i in range(n):
        to[i] = words[i]


cdef inline void wide_add(int64_t* w, int64_t value) noexcept nogil:
    """Add to a sum of 128 bits."""
    cdef uint64_t low = <uint64_t> w[0] + <uint64_t> value
    w[1] += (value >> 63) + (low < <uint64_t> value)
    w[0] = <int64_t> low


cdef inline void wide_take(int64_t* w, int64_t value) noexcept nogil:
    cdef uint64_t low = <uint64_t> w[0]
    w[1] -= (value >> 63) + (low < <uint64_t> value)
    w[0] = <int64_t> (low - <uint64_t> value)


cdef inline void merge(const Accumulator* a, int64_t* into, bint had, const int64_t* more) noexcept nogil:
    """Include the words of later rows, which have a value, in those of earlier ones; `had`: they have."""
    cdef double delta
    cdef double one
    cdef double other
    cdef double n
    cdef double mean
    cdef double squares
    if a.function == F_SUM_F64:
        into[0] = as_word(as_float(into[0]) + as_float(more[0]))
    elif a.function == F_MEAN_F64:
        into[0] = as_word(as_float(into[0]) + as_float(more[0]))
        into[1] += more[1]
    elif not fold_spreads(a):
        fold_into(a.function, into, not had, more[0])
    elif not had:
        memcpy(into, more, 24)
    else:                                                    # Chan, Golub, LeVeque 1979, (2.1)
        one = <double> into[2]
        other = <double> more[2]
        n = <double> (into[2] + more[2])
        delta = as_float(more[0]) - as_float(into[0])
        mean = as_float(into[0]) + delta * other / n
        squares = as_float(into[1]) + as_float(more[1]) + delta * delta * one * other / n
        into[0] = as_word(0.0 if isinf(squares) else mean)   # as in fold_spread
        into[1] = as_word(squares)
        into[2] += more[2]


cdef inline void see(const RollingContext* x, Bucket* b, Slide* s, const char* entry) noexcept nogil:
    """Include a row at the back in the totals."""
    cdef const Accumulator* a
    cdef int64_t* total
    cdef int64_t value
    cdef int32_t j
    for j in range(x.window.fold.n):
        if entry[x.flags + j] == 0:
            continue
        a = &x.window.fold.accumulators[j]
        total = total_of(s, j)
        if x.words[j].boxed:
            gathered_window(<void*> total[0], GATHERED_SEE, &b.held.bytes)
            continue
        value = (<const int64_t*> (entry + x.words[j].offset))[0]
        if x.words[j].exact:
            wide_add(total, value)
            total[2] += 1
        elif fold_spreads(a):
            fold_spread(a, total, value)
        else:
            fold_into(a.function, total, total[3] == 0, value)
        total[3] = 1


cdef inline void flip(const RollingContext* x, Slide* s) noexcept nogil:
    """Bring all seen rows to the front, which is empty. Cost: a pass over them."""
    cdef const Accumulator* a
    cdef char* entry
    cdef const char* behind = NULL
    cdef int64_t* words
    cdef int64_t[3] one
    cdef int64_t i
    cdef int32_t j
    if x.exact:
        s.front = s.seen
        return
    for i in range(s.seen - 1, -1, -1):
        entry = entry_at(x, s, i)
        for j in range(x.window.fold.n):
            if x.words[j].exact:
                continue
            a = &x.window.fold.accumulators[j]
            words = <int64_t*> (entry + x.words[j].offset)
            if entry[x.flags + j]:
                memset(one, 0, sizeof(one))
                if fold_spreads(a):
                    fold_spread(a, one, words[0])
                else:
                    fold_into(a.function, one, True, words[0])
                copy_words(words, one, x.words[j].words)
            if behind != NULL and behind[x.flags + j]:
                merge(a, words, entry[x.flags + j], <const int64_t*> (behind + x.words[j].offset))
                entry[x.flags + j] = 1
        behind = entry
    s.front = s.seen
    for j in range(x.window.fold.n):
        if not x.words[j].exact:
            memset(total_of(s, j), 0, 8 * TOTAL_WORDS)


cdef inline void forget_all(const RollingContext* x, Slide* s, int64_t gone) noexcept nogil:
    """All seen rows, `gone` of them, leave."""
    s.head = place_at(s, gone)
    s.n -= gone
    s.seen = 0
    s.front = 0
    memset(s + 1, 0, <size_t> x.window.fold.n * 8 * TOTAL_WORDS)


cdef inline void forget(const RollingContext* x, Bucket* b, Slide* s, int64_t gone) noexcept nogil:
    """The oldest rows leave, `gone` of them. Cost: amortised, a constant per row and aggregation."""
    cdef const char* entry
    cdef int64_t* total
    cdef int32_t j
    if gone and gone == s.seen and not x.window.fold.gathers:
        forget_all(x, s, gone)
        return
    while gone:
        if s.front == 0:
            flip(x, s)
        entry = entry_at(x, s, 0)
        for j in range(x.window.fold.n):
            if x.words[j].exact and entry[x.flags + j]:
                total = total_of(s, j)
                if x.words[j].boxed:
                    gathered_window(<void*> total[0], GATHERED_LEAVE, &b.held.bytes)
                    continue
                wide_take(total, (<const int64_t*> (entry + x.words[j].offset))[0])
                total[2] -= 1
        s.head = place_at(s, 1)
        s.n -= 1
        s.seen -= 1
        s.front -= 1
        gone -= 1


cdef inline int64_t next_room(const RollingContext* x, const Slide* s) noexcept nogil:
    """Places of a ring that is full."""
    cdef int64_t room = 2 * s.room if s.room else <int64_t> FIRST_ROOM
    return min(room, x.window.length) if x.window.time < 0 else room


cdef inline int resize(const RollingContext* x, Bucket* b, Slide* s, int64_t room) noexcept nogil:
    """Move a ring to one of `room` places. 0, or -1: no memory, nothing changed."""
    cdef char* entries = <char*> held_take(&b.held, room * x.entry)
    cdef int64_t ahead = min(s.n, s.room - s.head)           # the others lie in front of the oldest
    if entries == NULL:
        return -1
    if s.n:
        memcpy(entries, s.entries + s.head * x.entry, <size_t> (ahead * x.entry))
        memcpy(entries + ahead * x.entry, s.entries, <size_t> ((s.n - ahead) * x.entry))
    held_give(&b.held, s.entries, s.room * x.entry)
    s.entries = entries
    s.room = room
    s.head = 0
    return 0
