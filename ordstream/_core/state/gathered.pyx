"""Aggregations whose state is an object of its own. See gathered.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    PT_LIST, PT_VIEW, Chunk, Column, View, Worker, chunk_alloc, chunk_set_valid,
)
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.fold cimport Accumulator, Fold, as_word
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK
from ordstream._core.state.listed_values cimport OrdGatherSpec, OrdGiven, given_value
from ordstream._core.state.row_values cimport list_room

cdef extern from "gathered.hpp" nogil:
    cdef struct OrdGathered:
        pass
    enum: ORD_QUANTILE
    enum: ORD_LATEST
    cdef struct OrdShown:
        int64_t word
        const char* data
        int64_t size
        const int64_t* words

cdef extern from "gathered.hpp" namespace "ord" nogil:
    int gathered_add(OrdGathered** box, const OrdGatherSpec* spec, const OrdGiven* value,
                     const OrdGiven* by, int64_t* held)
    void gathered_undo(OrdGathered* box, int64_t* held)
    void gathered_see(OrdGathered* box, int64_t* held)
    void gathered_leave(OrdGathered* box, int64_t* held)
    void gathered_drop(OrdGathered** box, int64_t* held)
    int gathered_shown(OrdGathered* box, OrdShown* to)
    int64_t gathered_packed(OrdGathered* box, const OrdGatherSpec* spec, char* to)
    int64_t gathered_write(OrdGathered* box, char* to)
    int64_t gathered_read(OrdGathered** box, const OrdGatherSpec* spec, const char* data, int64_t size,
                          int64_t* held)

cdef extern from "gathered_block.hpp" namespace "ord" nogil:
    cppclass GatheredRows:
        void*** boxes
        const OrdGiven* values
        const OrdGiven* bys
        int32_t n
    void ahead_read(const void* at)
    int gathered_add_rows(const GatheredRows& rows, const OrdGatherSpec* spec, int64_t* held)


cdef int gathered_put(const Accumulator* a, void** box, const Chunk* c, int32_t row,
                      int64_t* held) noexcept nogil:
    """Add the value of a row, which has one; nothing where what decides is null. 1: added; 0: not; -1: no
    memory."""
    cdef OrdGiven value
    cdef OrdGiven by
    memset(&by, 0, sizeof(by))
    if a.by >= 0:
        if c.cols[a.by].valid != NULL and c.cols[a.by].valid[row] == 0:
            return 0
        given_value(a.by_type, 0, &c.cols[a.by], row, &by)
    given_value(a.type, (<const OrdGatherSpec*> a.gather).width, &c.cols[a.source], row, &value)
    if (<const OrdGatherSpec*> a.gather).kind == ORD_QUANTILE and not a.is_real:
        value.word = as_word(<double> <uint64_t> value.word if a.is_u64 else <double> value.word)
    return 1 if gathered_add(<OrdGathered**> box, <const OrdGatherSpec*> a.gather, &value, &by,
                             held) == 0 else -1


cdef int gathered_row(const Fold* x, char* state, const Chunk* c, int32_t row, uint8_t** used, int32_t i,
                      int64_t* held) noexcept nogil:
    """Include a row, the i-th of a block whose `used` says who looks at it, in the objects of a state. 0, or
    -1: no memory. Cost: per object an insertion, and a copy of each string."""
    cdef const Accumulator* a
    cdef int32_t j
    cdef int added
    for j in range(x.n):
        a = &x.accumulators[j]
        if a.gather == NULL or a.ends or (used[j] != NULL and used[j][i] == 0):
            continue
        added = gathered_put(a, <void**> (state + a.offset), c, row, held)
        if added < 0:
            return -1
        if added:
            state[1 + j] = 1
    return 0


cdef int gathered_rows(const Accumulator* a, int32_t j, char** states, const Chunk* c, const int32_t* rows,
                       const uint8_t* used, int32_t n, int64_t* held) noexcept nogil:
    """Include n rows, LOOKUP_BLOCK at most, in the objects of accumulator j of their states, in their order:
    `gathered_row` of each. `used`: which rows it looks at; NULL: all. 0, or -1: no memory. Cost: less than
    row by row where keys take turns (gathered_block.hpp)."""
    cdef OrdGiven[LOOKUP_BLOCK] values
    cdef OrdGiven[LOOKUP_BLOCK] bys
    cdef void** boxes[LOOKUP_BLOCK]
    cdef GatheredRows block
    cdef const OrdGatherSpec* spec = <const OrdGatherSpec*> a.gather
    cdef const Column* column = &c.cols[a.source]
    cdef const uint8_t* valid = c.cols[a.by].valid if a.by >= 0 else NULL
    cdef int32_t m = 0
    cdef int32_t i
    if a.type == PT_VIEW or a.type == PT_LIST:
        for i in range(n):
            ahead_read(&(<const View*> column.data)[rows[i]])
    for i in range(n):
        if (used != NULL and used[i] == 0) or (valid != NULL and valid[rows[i]] == 0):
            continue
        given_value(a.type, spec.width, column, rows[i], &values[m])
        ahead_read(values[m].data)
        if a.by >= 0:
            given_value(a.by_type, 0, &c.cols[a.by], rows[i], &bys[m])
        if spec.kind == ORD_QUANTILE and not a.is_real:
            values[m].word = as_word(
                <double> <uint64_t> values[m].word if a.is_u64 else <double> values[m].word)
        boxes[m] = <void**> (states[i] + a.offset)
        states[i][1 + j] = 1
        m += 1
    block.boxes = boxes
    block.values = values
    block.bys = bys
    block.n = m
    return gathered_add_rows(block, spec, held)


cdef int gathered_block(const Fold* x, char** states, const Chunk* c, const int32_t* rows, uint8_t** used,
                        int32_t n, int64_t* held) noexcept nogil:
    """`gathered_row` of n rows, LOOKUP_BLOCK at most, by accumulator. 0, or -1: no memory."""
    cdef const Accumulator* a
    cdef int32_t j
    for j in range(x.n):
        a = &x.accumulators[j]
        if a.gather != NULL and not a.ends and gathered_rows(a, j, states, c, rows, used[j], n, held) != 0:
            return -1
    return 0


cdef void gathered_forget(const Fold* x, char* state, int64_t* held) noexcept nogil:
    """Drop the objects of a state; their words are NULL then."""
    cdef int32_t j
    if not x.gathers:
        return
    for j in range(x.n):
        if x.accumulators[j].gather != NULL:
            gathered_drop(<OrdGathered**> (state + x.accumulators[j].offset), held)


cdef void gathered_forget_one(void** box, int64_t* held) noexcept nogil:
    """Drop an object."""
    gathered_drop(<OrdGathered**> box, held)


cdef int gathered_store(const Accumulator* a, void* box, Worker* w, Chunk* out, int32_t column,
                        int32_t index) noexcept nogil:
    """Write what an object shows into a reserved output row. 0, or -1: no memory. Bytes are copied into
    out's arena."""
    cdef bint latest = (<const OrdGatherSpec*> a.gather).kind == ORD_LATEST
    cdef OrdShown shown
    cdef View* v
    cdef char* to
    cdef int64_t i
    cdef int there
    if latest and a.result == PT_VIEW:
        return packed_store(a, box, w, out, column, index)
    there = gathered_shown(<OrdGathered*> box, &shown)
    if there < 0:
        return -1
    if latest:
        to = list_room(w, out, column, index, shown.size, WIDTHS[a.type])
        if to == NULL:
            return -1
        for i in range(shown.size):
            put_word(to, a.type, i, shown.words[i])
        return 0
    if a.result == PT_VIEW or a.result == PT_LIST:
        v = &(<View*> out.cols[column].data)[index]
        to = chunk_alloc(w, out, shown.size + 1)
        if to == NULL:
            return -1
        if shown.size:
            memcpy(to, shown.data, <size_t> shown.size)
        v.data = to
        v.size = shown.size
        if a.result == PT_LIST and there:
            memcpy(&v.size, to + shown.size - 8, 8)          # gathered_values.hpp, a
        elif a.result == PT_LIST:
            v.size = 0
    else:
        put_word(out.cols[column].data, a.result, index, shown.word)
    if a.may_be_null:
        if not there and out.cols[column].valid == NULL and chunk_set_valid(w, out, column) != 0:
            return -1
        if out.cols[column].valid != NULL:
            out.cols[column].valid[index] = <uint8_t> (there != 0)
    return 0


cdef int packed_store(const Accumulator* a, void* box, Worker* w, Chunk* out, int32_t column,
                      int32_t index) noexcept nogil:
    """gathered_store of a list that is a packed value."""
    cdef const OrdGatherSpec* spec = <const OrdGatherSpec*> a.gather
    cdef View* v = &(<View*> out.cols[column].data)[index]
    cdef int64_t size = gathered_packed(<OrdGathered*> box, spec, NULL)
    cdef char* to = chunk_alloc(w, out, size) if size >= 0 else NULL
    if to == NULL:
        return -1
    gathered_packed(<OrdGathered*> box, spec, to)
    v.data = to
    v.size = size
    if out.cols[column].valid != NULL:
        out.cols[column].valid[index] = 1
    return 0


cdef int gathered_bytes(void* box, Worker* w, Chunk* out, View* to) noexcept nogil:
    """The written form of an object, in out's arena. 0, or -1: no memory."""
    cdef int64_t size = gathered_write(<OrdGathered*> box, NULL)
    cdef char* data = chunk_alloc(w, out, size + 1) if size >= 0 else NULL
    if data == NULL or gathered_write(<OrdGathered*> box, data) != size:
        return -1
    to.data = data
    to.size = size
    return 0


cdef int64_t gathered_fill(const Accumulator* a, void** box, const View* bytes,
                           int64_t* held) noexcept nogil:
    """Make an object of its written form. How many values it had; -1: no memory; -2: it is none. Then there
    is no object."""
    cdef int64_t n = gathered_read(<OrdGathered**> box, <const OrdGatherSpec*> a.gather, bytes.data,
                                   bytes.size, held)
    if n < 0:
        gathered_drop(<OrdGathered**> box, held)
    return n


cdef void gathered_window(void* box, int32_t change, int64_t* held) noexcept nogil:
    """Change the object of a window that slides."""
    if change == GATHERED_UNDO:
        gathered_undo(<OrdGathered*> box, held)
    elif change == GATHERED_SEE:
        gathered_see(<OrdGathered*> box, held)
    else:
        gathered_leave(<OrdGathered*> box, held)
