"""Fill gaps: in front of a key's window the empty ones between it and the window before. Contract:
kernel.pxd (b), (f).

The input is what a window kernel gives: key columns, start, end, values. A state is the start of the key's
latest window. Rows in front of which nothing is missing are copied together, column by column; an empty
window has the key of the row behind it, and what the aggregations make of no row: 0, an empty list or null.

Where gaps are filled up to a reach only, a mark forgets keys whose next window begins beyond it: windows
that end at the mark, or before, have come.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_OVERFLOW, FAIL_STATE, Chunk, Column, Failure, LayoutOwner, View,
    Worker, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket_of, put_word,
)
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_state,
)
from ordstream._core.state.marks cimport CLOSING_ALL, CLOSING_SOME, Closing, Marking, Marks, marks_pass
from ordstream._core.state.row_values cimport row_null, row_value
from ordstream._core.state.state_columns cimport own_column, put_valid
from ordstream._core.state.state_rows cimport owner_bucket_state

from ordstream.ground.packed_types import inner_format, is_packed

cdef struct Latest:
    # State of a key.
    int64_t start
    int64_t there          # 0: there was no window yet

cdef enum Empty:
    # What a column has in an empty window.
    OF_KEY = 0
    START = 1
    END = 2
    ZERO = 3               # also an empty list of numbers
    NO_VALUE = 4
    YES = 5
    NO_PACKED = 6          # an empty list that is packed
    NO_FIXED = 7           # the same of elements of fixed width

cdef struct GapsContext:
    # Read-only while a run lasts. Memory ownership: FillGapsKernel.
    Marking by
    uint64_t reach         # a window that begins farther behind the one before has no gap in front
    int32_t start          # column
    int32_t* empty         # Empty of each column
    int64_t every          # from one start to the next, where `starts` is NULL
    int64_t length         # of a window
    int64_t most           # in a gap
    const char* too_many   # what is said of more
    const int64_t* starts  # of the calendar's windows, ascending; at last the end of the last one; or NULL
    int64_t count          # of the windows

cdef struct GapsBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    Bucket base
    Marks marks

# An empty list that is packed: no element, and, of elements of fixed width, none that is null. Zeroed.
cdef char[8] NOTHING


cdef void* gaps_new(Kernel* k, int32_t bucket) noexcept nogil:
    return new_bucket_of(sizeof(GapsBucket), (<const GapsContext*> k.ctx).by.keys, sizeof(Latest), &LATEST)


cdef inline int64_t number_of(const GapsContext* x, int64_t time) noexcept nogil:
    """Which of the calendar's windows begins at a time, or is the last that begins before; -1: none. Cost:
    ~20 ns."""
    cdef int64_t low = -1
    cdef int64_t high = x.count
    cdef int64_t middle
    while high - low > 1:
        middle = (low + high) // 2
        if x.starts[middle] <= time:
            low = middle
        else:
            high = middle
    return low


cdef inline uint64_t missing(const GapsContext* x, int64_t before, int64_t start) noexcept nogil:
    """How many windows lie between two that begin at `before` and, later, at `start`."""
    if x.starts != NULL:
        return <uint64_t> (number_of(x, start) - number_of(x, before) - 1)
    return (<uint64_t> start - <uint64_t> before) // <uint64_t> x.every - 1


# -------------------------------------------------------------------------------- rows


cdef int copy_rows(const GapsContext* x, Kernel* k, Worker* w, Chunk* c, const int32_t* rows, int32_t n,
                   Chunk* out) noexcept nogil:
    """Append n rows as they are. 0, or -1: no memory. Ownership: views point into `c`."""
    cdef const Column* source
    cdef int32_t width
    cdef int32_t j
    if n == 0:
        return 0
    if chunk_reserve(w, out, k.output, n) != 0:
        return -1
    for j in range(k.output.ncols):
        source = &c.cols[j]
        width = k.output.width[j]
        if source.valid != NULL and chunk_set_valid(w, out, j) != 0:
            return -1
        if source.data == NULL:                              # a column that nothing reads
            memset(out.cols[j].data + <int64_t> out.n * width, 0, <size_t> n * width)
        elif width:
            gather(out.cols[j].data + <int64_t> out.n * width, source.data, rows, n, width)
        if source.valid != NULL:
            gather(<char*> out.cols[j].valid + out.n, <const char*> source.valid, rows, n, 1)
        elif out.cols[j].valid != NULL:
            memset(out.cols[j].valid + out.n, 1, n)
    memcpy(out.origin + out.n, rows, <size_t> n * 4)
    out.n += n
    out.slots = out.n
    return 0


cdef void put_starts(const GapsContext* x, char* data, int32_t type, int64_t at, int64_t before, int32_t n,
                     bint ends) noexcept nogil:
    """Starts, or ends, of the n windows behind the one that begins at `before`."""
    cdef int64_t number = number_of(x, before) + 1 if x.starts != NULL else 0
    cdef int64_t start = before
    cdef int32_t i
    for i in range(n):
        if x.starts != NULL:
            put_word(data, type, at + i, x.starts[number + i + (1 if ends else 0)])
        else:
            start += x.every
            put_word(data, type, at + i, start + x.length if ends else start)


cdef int put_empty(const GapsContext* x, Kernel* k, Worker* w, Chunk* c, int32_t row, int64_t before,
                   int32_t n, Chunk* out) noexcept nogil:
    """Append the n empty windows behind the one of a row's key that begins at `before`. 0, or -1: no
    memory."""
    cdef const Column* source
    cdef char* to
    cdef int32_t width
    cdef int32_t i
    cdef int32_t j
    cdef bint there
    if chunk_reserve(w, out, k.output, n) != 0:
        return -1
    for j in range(k.output.ncols):
        source = &c.cols[j]
        width = k.output.width[j]
        to = out.cols[j].data + <int64_t> out.n * width
        there = x.empty[j] != NO_VALUE
        if x.empty[j] == START or x.empty[j] == END:
            put_starts(x, out.cols[j].data, k.output.type[j], out.n, before, n, x.empty[j] == END)
        elif x.empty[j] == OF_KEY:
            there = source.valid == NULL or source.valid[row] != 0
            for i in range(n):
                memcpy(to + <int64_t> i * width, source.data + <int64_t> row * width, width)
        else:
            memset(to, 1 if x.empty[j] == YES else 0, <size_t> n * width)
            if x.empty[j] == NO_PACKED or x.empty[j] == NO_FIXED:
                for i in range(n):
                    (<View*> to)[i].data = NOTHING
                    (<View*> to)[i].size = 4 if x.empty[j] == NO_PACKED else 5
        if not there and chunk_set_valid(w, out, j) != 0:
            return -1
        if out.cols[j].valid != NULL:
            memset(out.cols[j].valid + out.n, there, n)
    for i in range(n):
        out.origin[out.n + i] = row
    out.n += n
    out.slots = out.n
    return 0


cdef int32_t gaps_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Give the rows, and in front of each the empty windows that are missing.

    Thread safety: the bucket's holder. Ownership: views of rows point into `c`. Returns: n, or j where too
    many windows lie in front of rows[j], or there is no memory for it. Cost: keyed_lookup, and a pass over
    each column.
    """
    cdef const GapsContext* x = <const GapsContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef GapsBucket* g = <GapsBucket*> state
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef Latest* s = <Latest*> b.single
    cdef int64_t start
    cdef uint64_t gap
    cdef int32_t done = 0                                    # rows that were given
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.by.keys != NULL and keyed_lookup_block(
                &b.keyed, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK), &ahead, slots) != 0:
            break
        for i in range(m):
            if x.by.keys != NULL:
                s = <Latest*> keyed_state(&b.keyed, slots[i])
            start = row_value(k.input, c, x.start, rows[k0 + i])
            if s.there and start > s.start and <uint64_t> start - <uint64_t> s.start <= x.reach:
                gap = missing(x, s.start, start)
                if gap:
                    if copy_rows(x, k, w, c, rows + done, k0 + i - done, out) != 0:
                        failure_set(f, rows[done], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                        return done
                    done = k0 + i
                    if gap > <uint64_t> x.most:
                        failure_set(f, rows[done], FAIL_OVERFLOW, x.too_many)
                        return done
                    if put_empty(x, k, w, c, rows[done], s.start, <int32_t> gap, out) != 0:
                        failure_set(f, rows[done], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                        return done
            if not s.there or start > s.start:
                s.start = start
                s.there = 1
                if start < g.marks.earliest:
                    g.marks.earliest = start
        k0 += m
    if copy_rows(x, k, w, c, rows + done, k0 - done, out) != 0:
        failure_set(f, rows[done], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return done
    if k0 < n:
        failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return k0


# -------------------------------------------------------------------------------- marks


cdef bint out_of_reach(const Kernel* k, int64_t since, int64_t mark) noexcept nogil:
    """Whether each window that ends behind a mark begins farther than the reach behind a start."""
    cdef const GapsContext* x = <const GapsContext*> k.ctx
    cdef int64_t number
    if x.starts == NULL:
        return mark > since and <uint64_t> mark - <uint64_t> since >= x.reach + <uint64_t> x.length
    number = number_of(x, mark)
    return number >= 0 and x.starts[number] > since and (
        <uint64_t> x.starts[number] - <uint64_t> since > x.reach)


cdef Closing close(Kernel* k, Worker* w, Bucket* b, char* record, char* state, Chunk* out, bint final,
                   int64_t mark, int64_t* since) noexcept nogil:
    """Forget a key whose gap will not be filled. Nothing is given."""
    since[0] = (<const Latest*> state).start
    return CLOSING_ALL if not final and out_of_reach(k, since[0], mark) else CLOSING_SOME


cdef int gaps_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                        Failure* f) noexcept nogil:
    """Forget keys at a mark. Contract: marks_pass."""
    return marks_pass(k, w, <Bucket*> state, &(<GapsBucket*> state).marks, punctuation, out, out_of_reach,
                      close, f)


# -------------------------------------------------------------------------------- state as rows


cdef bint any_window(Kernel* k, const char* state) noexcept nogil:
    return (<const Latest*> state).there != 0


cdef int write_start(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef int32_t column = own_column(k)
    put_word(out.cols[column].data, k.state.type[column], index, (<const Latest*> state).start)
    return put_valid(w, out, column, index, True)


cdef int32_t read_start(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                        Failure* f) noexcept nogil:
    cdef const GapsContext* x = <const GapsContext*> k.ctx
    cdef Latest* s = <Latest*> state
    cdef int32_t column = own_column(k)
    if row_null(rows, column, slot):
        failure_set(f, slot, FAIL_STATE, "the start of a window is null")
        return FAIL_STATE
    s.start = row_value(k.state, rows, column, slot)
    if x.starts != NULL and (number_of(x, s.start) < 0 or x.starts[number_of(x, s.start)] != s.start):
        failure_set(f, slot, FAIL_STATE, "a window of the calendar begins elsewhere")
        memset(s, 0, sizeof(Latest))
        return FAIL_STATE
    s.there = 1
    (<GapsBucket*> bucket).marks.known = 0
    return 0


cdef StateCalls LATEST = StateCalls(alive=any_window, write=write_start, read=read_start, drop=NULL)


cdef class FillGapsKernel(KernelOwner):
    """Operator "fill_gaps". Attributes: `window` (length, every, calendar), `empty`, `most`, `too_many`,
    `reach`, and with it `clock_wanted()` and `period`; `key`, empty: SF."""

    cdef GapsContext context
    cdef KeySpecOwner keys
    cdef bytes text

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        cdef const int64_t[::1] view
        cdef GapsContext* x = &self.context
        cdef Latest one
        owner_setup(self, operator, PS if operator.key else SF)
        layout = self.input_layout
        if layout.types != self.output_layout.types:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            x.by.keys = &self.keys.spec
            x.by.key_size = self.keys.spec.size
        x.start = <int32_t> len(operator.key)
        x.empty = <int32_t*> calloc(layout.layout.ncols + 1, sizeof(int32_t))
        if x.empty == NULL:
            raise MemoryError
        x.empty[x.start] = START
        x.empty[x.start + 1] = END
        for j in range(x.start + 2, layout.layout.ncols):
            x.empty[j] = empty_of(operator.empty[j - x.start - 2], operator.output.field(j).type)
        x.length = operator.window.length
        x.every = operator.window.every or operator.window.length
        if operator.window.calendar is not None:
            starts = operator.window.calendar.starts
            self.references.append(starts)
            view = starts
            x.starts = &view[0]
            x.count = view.shape[0] - 1
        self.text = operator.too_many.encode()
        x.too_many = self.text
        x.most = operator.most
        x.reach = <uint64_t> -1 if operator.reach is None else operator.reach
        x.by.word = <int32_t> (<char*> &one.there - <char*> &one)
        if operator.clock_wanted() is not None:
            x.by.clocked = 1
            x.by.period = operator.period
            self.kernel.punctuate = gaps_punctuate
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.keeps_views = 1
        self.kernel.process = gaps_process
        self.kernel.bucket_new = gaps_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)

    def __dealloc__(self):
        free(self.context.empty)


cdef int32_t empty_of(value, type_) except -1:
    """How a kernel writes what a column has in an empty window."""
    if value is None:
        return NO_VALUE
    if value is True:
        return YES
    if isinstance(value, list):
        if not is_packed(type_):
            return ZERO
        return NO_FIXED if inner_format(type_)[2:].startswith("F") else NO_PACKED
    if value != 0:
        raise ValueError(f"{value!r} can't be the value of an empty window")
    return ZERO
