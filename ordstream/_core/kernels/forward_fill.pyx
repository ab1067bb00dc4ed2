"""Forward fill: the input row, with the last value of its key in the place of a null. With no key it is a
stateful (SF) operator with a single state. Contract: kernel.pxd (b), (f).

A state is one byte per column that says whether there is a value (zeroed memory: there was none), then the
values: 8 bytes each, in the column's own width, or a `Kept` for strings and lists, whose bytes are the
state's own. A block of rows is looked up first; then column after column is filled, so that what depends on
a column's type is decided once per block. Rows of one key within a block meet in order all the same: no
column's value depends on another column.

Without strings or lists among them the columns are filled in place, in columns of their own. A string from
a state must outlive the state's next change, so it is copied for each row that shows it; parts of one chunk
are processed by several workers and can't share its arena, so with strings every part makes rows of its own.
Below, "string" is a list too: `unit` is the width of its elements.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_BOOL, PT_LIST, PT_VIEW, Chunk, Column, Failure, Layout, LayoutOwner, View, Worker,
    chunk_alloc, chunk_reserve, chunk_set_valid, failure_set,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.list_values cimport view_bytes
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.held_memory cimport held_give, held_take
from ordstream._core.state.keyed_bucket cimport Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpec, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_state,
)
from ordstream._core.state.state_rows cimport owner_bucket_state

ctypedef fused Word:
    int8_t
    int16_t
    int32_t
    int64_t

ctypedef char* State

cdef struct Kept:
    # A string in a state. Memory ownership: the state owns `room` bytes of held_take at view.data.
    View view
    int64_t room

cdef struct FillContext:
    # Read-only while a run lasts. Memory ownership: ForwardFillKernel.
    const KeySpec* keys    # NULL: SF
    int32_t first          # in place: column of the first filled one, behind the input's
    int32_t n              # columns that are filled
    int32_t size           # bytes of a state
    int32_t strings        # how many of them are strings
    int32_t* source        # input column of each
    int32_t* offset        # of its value in a state
    int32_t* unit          # bytes of an element of a string; 0: it is none
    int32_t* filled        # input column -> which of them it is, or -1


# -------------------------------------------------------------------------------- buckets


cdef void* fill_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef FillContext* x = <FillContext*> k.ctx
    return new_bucket(x.keys, x.size, &VALUES)


cdef void drop_strings(Kernel* k, void* bucket, char* state) noexcept nogil:
    """Give back the strings of a state."""
    cdef FillContext* x = <FillContext*> k.ctx
    cdef Kept* kept
    cdef int32_t j
    for j in range(x.n if x.strings else 0):
        if x.unit[j]:
            kept = <Kept*> (state + x.offset[j])
            if kept.room:
                held_give(&(<Bucket*> bucket).held, <void*> kept.view.data, kept.room)
            memset(kept, 0, sizeof(Kept))


cdef int keep(Bucket* b, Kept* kept, const View* v, int32_t unit) noexcept nogil:
    """Copy a string into a state. 0, or -1: no memory, and nothing changed. Room that is four times too
    large goes."""
    cdef int64_t size = view_bytes(v.size, unit)
    cdef int64_t room = (size + 15) & ~<int64_t> 15
    cdef char* bytes
    if size > kept.room or 4 * room < kept.room:
        bytes = <char*> held_take(&b.held, room) if room else NULL
        if room and bytes == NULL:
            return -1
        if kept.room:
            held_give(&b.held, <void*> kept.view.data, kept.room)
        kept.view.data = bytes
        kept.room = room
    if size:
        memcpy(<char*> kept.view.data, v.data, <size_t> size)
    kept.view.size = v.size
    return 0


cdef int show(Worker* w, Chunk* out, const Kept* kept, int32_t unit, View* to) noexcept nogil:
    """Copy a state's string into the arena of a chunk. 0, or -1: no memory."""
    cdef int64_t size = view_bytes(kept.view.size, unit)
    to.data = NULL
    to.size = kept.view.size
    if size:
        to.data = chunk_alloc(w, out, size)
        if to.data == NULL:
            return -1
        memcpy(<char*> to.data, kept.view.data, <size_t> size)
    return 0


# -------------------------------------------------------------------------------- filling


cdef void fill(State* states, int32_t flag, int32_t value, const Column* source, const int32_t* rows,
               int32_t n, Column* to, int32_t at, Word width) noexcept nogil:
    """Give each row its value, or where it is null that of its key's state, and the state the row's where
    it is not. `flag`, `value`: offsets in a state; `at`: where the first row's value goes, the others
    behind it, or -1: each to its slot; `width`: only its type says something."""
    cdef const Word* given = <const Word*> source.data
    cdef Word* taken = <Word*> to.data
    cdef char* s
    cdef int32_t index
    cdef int32_t row
    cdef int32_t i
    for i in range(n):
        s = states[i]
        row = rows[i]
        index = row if at < 0 else at + i
        if source.valid == NULL or source.valid[row] != 0:
            (<Word*> (s + value))[0] = given[row]
            s[flag] = 1
        taken[index] = (<Word*> (s + value))[0]
        to.valid[index] = <uint8_t> s[flag]


cdef int fill_strings(Bucket* b, Worker* w, State* states, int32_t flag, int32_t value,
                      const Column* source, const int32_t* rows, int32_t n, Chunk* out,
                      int32_t column, int32_t unit) noexcept nogil:
    """The same for strings, into rows out.n.. of the part's own chunk. 0, or -1: no memory."""
    cdef View* taken = <View*> out.cols[column].data
    cdef Kept* kept
    cdef int32_t i
    for i in range(n):
        kept = <Kept*> (states[i] + value)
        if source.valid == NULL or source.valid[rows[i]] != 0:
            taken[out.n + i] = (<const View*> source.data)[rows[i]]
            if keep(b, kept, &taken[out.n + i], unit) != 0:
                return -1
            states[i][flag] = 1
        elif show(w, out, kept, unit, &taken[out.n + i]) != 0:
            return -1
        out.cols[column].valid[out.n + i] = <uint8_t> states[i][flag]
    return 0


cdef int pass_rows(const FillContext* x, const Layout* layout, Worker* w, Chunk* c, const int32_t* rows,
                   int32_t n, Chunk* out) noexcept nogil:
    """Room for n rows behind out.n, with the columns that are not filled. 0, or -1: no memory."""
    cdef const Column* source
    cdef int32_t j
    cdef int32_t i
    if chunk_reserve(w, out, layout, n) != 0:
        return -1
    for j in range(layout.ncols):
        source = &c.cols[j]
        if x.filled[j] >= 0 or source.valid != NULL:
            if chunk_set_valid(w, out, j) != 0:
                return -1
        if x.filled[j] >= 0 or layout.width[j] == 0:
            continue
        if source.data == NULL:                              # a column that nothing reads
            memset(out.cols[j].data + <int64_t> out.n * layout.width[j], 0, <size_t> n * layout.width[j])
        else:
            gather(out.cols[j].data + <int64_t> out.n * layout.width[j], source.data, rows, n,
                   layout.width[j])
        if source.valid != NULL:
            gather(<char*> out.cols[j].valid + out.n, <const char*> source.valid, rows, n, 1)
        elif out.cols[j].valid != NULL:
            memset(out.cols[j].valid + out.n, 1, n)
    for i in range(n):
        out.origin[out.n + i] = rows[i]
    return 0


cdef int fill_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the filled columns behind the input's."""
    cdef FillContext* x = <FillContext*> k.ctx
    cdef int32_t j
    cdef Column* col
    for j in range(x.n):
        col = &c.cols[x.first + j]
        col.data = chunk_alloc(w, c, <int64_t> c.slots * k.input.width[x.source[j]] + 8)
        col.valid = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
        if col.data == NULL or col.valid == NULL:
            return -1
    return 0


cdef int32_t fill_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Fill the rows' columns.

    Thread safety: the bucket's holder. Ownership: strings of rows point into `c`, those of states into
    out's arena. Returns: n, or without memory the rows before the block that had none (states of its keys
    may have changed). Cost: keyed_lookup, and a pass over each column.
    """
    cdef FillContext* x = <FillContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef State[LOOKUP_BLOCK] states
    cdef const Column* source
    cdef Column* to
    cdef int32_t at = -1
    cdef int32_t width
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t j
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if x.keys == NULL:
            for i in range(m):
                states[i] = b.single
        else:
            if keyed_lookup_block(&b.keyed, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK),
                                  &ahead,
                                  slots) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            for i in range(m):
                states[i] = keyed_state(&b.keyed, slots[i])
        if x.strings:
            if pass_rows(x, k.output, w, c, rows + k0, m, out) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            at = out.n
        for j in range(x.n):
            source = &c.cols[x.source[j]]
            width = k.input.width[x.source[j]]
            to = &c.cols[x.first + j] if at < 0 else &out.cols[x.source[j]]
            if width == 8:
                fill[int64_t](states, j, x.offset[j], source, rows + k0, m, to, at, 0)
            elif width == 4:
                fill[int32_t](states, j, x.offset[j], source, rows + k0, m, to, at, 0)
            elif width == 2:
                fill[int16_t](states, j, x.offset[j], source, rows + k0, m, to, at, 0)
            elif width == 1:
                fill[int8_t](states, j, x.offset[j], source, rows + k0, m, to, at, 0)
            elif fill_strings(<Bucket*> state, w, states, j, x.offset[j], source, rows + k0, m, out,
                              x.source[j], x.unit[j]) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
        if at >= 0:
            out.n += m
            out.slots = out.n
        k0 += m
    return n


cdef int fill_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The filled columns take the place of the input's."""
    cdef FillContext* x = <FillContext*> k.ctx
    cdef int32_t j
    for j in range(x.n):
        c.cols[x.source[j]] = c.cols[x.first + j]
    c.ncols = k.output.ncols
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint any_value(Kernel* k, const char* state) noexcept nogil:
    cdef int32_t j
    for j in range((<FillContext*> k.ctx).n):
        if state[j]:
            return True
    return False


cdef inline int32_t first_value(Kernel* k) noexcept nogil:
    """Column of the first value in a row of state."""
    return k.state_keys.ncols if k.state_keys != NULL else 0


cdef int write_values(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef FillContext* x = <FillContext*> k.ctx
    cdef char* to
    cdef int32_t column = first_value(k)
    cdef int32_t width
    cdef int32_t j
    for j in range(x.n):
        width = k.state.width[column]
        to = out.cols[column].data + <int64_t> index * width
        memcpy(to, state + x.offset[j], width)
        if x.unit[j] and show(w, out, <const Kept*> (state + x.offset[j]), x.unit[j], <View*> to) != 0:
            return -1
        if state[j] == 0 and chunk_set_valid(w, out, column) != 0:
            return -1
        if out.cols[column].valid != NULL:
            out.cols[column].valid[index] = <uint8_t> state[j]
        column += 1
    return 0


cdef int32_t read_values(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                         Failure* f) noexcept nogil:
    cdef FillContext* x = <FillContext*> k.ctx
    cdef const char* value
    cdef int32_t column = first_value(k)
    cdef int32_t width
    cdef int32_t j
    for j in range(x.n):
        width = k.state.width[column]
        value = rows.cols[column].data + <int64_t> slot * width
        if rows.cols[column].valid == NULL or rows.cols[column].valid[slot] != 0:
            if x.unit[j] == 0:
                memcpy(state + x.offset[j], value, width)
            elif keep(<Bucket*> bucket, <Kept*> (state + x.offset[j]), <const View*> value, x.unit[j]) != 0:
                drop_strings(k, bucket, state)
                failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return FAIL_MEMORY
            state[j] = 1
        column += 1
    return 0


cdef StateCalls VALUES = StateCalls(alive=any_value, write=write_values, read=read_values, drop=drop_strings)


cdef class ForwardFillKernel(KernelOwner):
    """Operator "forward_fill". Attributes: `columns`, different numbers; `key`, empty: SF."""

    cdef FillContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef int32_t at
        cdef LayoutOwner layout
        cdef FillContext* x = &self.context
        owner_setup(self, operator, PS if operator.key else SF)
        layout = self.input_layout
        columns = list(operator.columns)
        if layout.types != self.output_layout.types:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's")
        if len(set(columns)) != len(columns):
            raise ValueError(f"{operator.name!r}: a column is named twice")
        x.n = <int32_t> len(columns)
        x.first = self.kernel.input.ncols
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            x.keys = &self.keys.spec
        x.source = <int32_t*> calloc(x.n + 1, sizeof(int32_t))
        x.offset = <int32_t*> calloc(x.n + 1, sizeof(int32_t))
        x.unit = <int32_t*> calloc(x.n + 1, sizeof(int32_t))
        x.filled = <int32_t*> calloc(x.first + 1, sizeof(int32_t))
        if x.source == NULL or x.offset == NULL or x.unit == NULL or x.filled == NULL:
            raise MemoryError
        for j in range(x.first):
            x.filled[j] = -1
            if layout.layout.type[j] == PT_VIEW or layout.layout.type[j] == PT_LIST:
                self.kernel.keeps_views = 1
        at = (x.n + 7) & ~7
        for j in range(x.n):
            x.source[j] = columns[j]
            x.offset[j] = at
            x.filled[x.source[j]] = j
            if layout.layout.type[x.source[j]] in (PT_VIEW, PT_LIST):
                element = layout.layout.element[x.source[j]]
                x.unit[j] = 1 if element < 0 else WIDTHS[element]
                x.strings += 1
                at += <int32_t> sizeof(Kept)
            elif layout.layout.type[x.source[j]] <= PT_BOOL:
                at += 8
            else:
                raise TypeError(f"{operator.name!r}: only numbers, bool, dates/times, strings and lists "
                                f"can be filled")
        x.size = at
        self.kernel.ctx = <void*> x
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.process = fill_process
        self.kernel.bucket_new = fill_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
        if x.strings == 0:
            self.kernel.keeps_views = 0
            self.kernel.in_place = 1
            self.kernel.extra_cols = x.n
            self.kernel.prepare = fill_prepare
            self.kernel.finish = fill_finish

    def __dealloc__(self):
        free(self.context.source)
        free(self.context.offset)
        free(self.context.unit)
        free(self.context.filled)
