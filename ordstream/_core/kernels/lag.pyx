"""Lag: each row with values of the row before it that has the same key. With no key it is a stateful (SF)
operator with a single state. Contract: kernel.pxd (b), (f).

A state starts with one byte per column: whether the last row had a value there (zeroed memory: there was no
row yet). The values follow, 8 bytes for each, in the column's own width. The keys of a block of rows are
looked up first. Then the kernel exchanges values with the states column by column, so that it decides by the
column's type once per block and not once per row. Rows of one key still meet in order, because no column's
value depends on another column.

Several workers process the parts of a chunk at the same time, and rows of different parts share cache lines.
So the values of a part are written to memory of its own, and the last worker moves them to the rows' slots
(`lag_finish`).
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_BOOL, Chunk, Column, Failure, LayoutOwner, Part, Worker, chunk_alloc, failure_set,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, owner_setup
from ordstream._core.ground.slot_values cimport scatter
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket,
)
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpec, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_state,
)
from ordstream._core.state.state_columns cimport is_there, own_column, put_valid
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.ground.threads cimport prefetch_write

ctypedef fused Word:
    int8_t
    int16_t
    int32_t
    int64_t

ctypedef char* State

cdef struct LagContext:
    # Read-only while a run lasts. Memory ownership: LagKernel.
    const KeySpec* keys    # NULL: SF
    int32_t first          # column of the first value from the row before: columns of the input
    int32_t n              # columns that are kept
    int32_t values         # offset of the first value in a state: n rounded up to 8
    int32_t* source        # input column of each
    int32_t* width         # its bytes: 1, 2, 4 or 8


cdef void* lag_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef LagContext* x = <LagContext*> k.ctx
    return new_bucket(x.keys, x.values + 8 * x.n, &VALUES)


cdef int lag_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the columns of earlier values after the input's columns. A chunk with several parts gets a second
    set, ordered part by part."""
    cdef LagContext* x = <LagContext*> k.ctx
    cdef int32_t j
    cdef int64_t n
    cdef Column* col
    for j in range(2 * x.n if c.nparts > 1 else x.n):
        col = &c.cols[x.first + j]
        n = c.slots if j < x.n else c.n
        col.data = chunk_alloc(w, c, n * x.width[j % x.n] + 8)
        col.valid = <uint8_t*> chunk_alloc(w, c, n + 1)
        if col.data == NULL or col.valid == NULL:
            return -1
    return 0


cdef void exchange(State* states, int32_t flag, int32_t value, const Column* source, const int32_t* rows,
                   int32_t n, Column* to,
                   int64_t at, Word width) noexcept nogil:
    """Swap values: each row gets the value in its key's state, and the state gets the row's value.

    `flag`, `value`: offsets in a state. `at`: index of the first row's output, the others follow; -1: each
    row's output goes to its slot. `width`: only its type matters.
    """
    cdef const Word* given = <const Word*> source.data
    cdef Word* taken = <Word*> to.data
    cdef char* s
    cdef int64_t index
    cdef int32_t row
    cdef int32_t i
    for i in range(n):
        s = states[i]
        row = rows[i]
        index = row if at < 0 else at + i
        taken[index] = (<Word*> (s + value))[0]
        to.valid[index] = <uint8_t> s[flag]
        (<Word*> (s + value))[0] = given[row]
        s[flag] = 1 if source.valid == NULL else <char> source.valid[row]


cdef int32_t lag_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Exchange the rows' values with those of their keys.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or without memory the rows before the
    block that had none (only their states changed). Cost: keyed_lookup plus ~1.5 ns per row and column.
    """
    cdef LagContext* x = <LagContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef State[LOOKUP_BLOCK] states
    cdef const Column* source
    cdef Column* to
    # the rows of all parts lie one after another
    cdef int64_t at = rows - c.parts[0].rows if c.nparts > 1 else -1
    cdef int32_t behind = x.n if at >= 0 else 0
    cdef int32_t value
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
            # this operator may be the first to touch these columns
            for j in range(x.n):
                for i in range(0, m, 2):
                    prefetch_write(c.cols[x.source[j]].data + <int64_t> rows[k0 + i] * x.width[j])
            if keyed_lookup_block(&b.keyed, w, c, rows + k0, m, min(n - k0 - m, <int32_t> LOOKUP_BLOCK),
                                  &ahead, slots) != 0:
                failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0
            for i in range(m):
                states[i] = keyed_state(&b.keyed, slots[i])
        for j in range(x.n):
            source = &c.cols[x.source[j]]
            to = &c.cols[x.first + behind + j]
            value = x.values + 8 * j
            if x.width[j] == 8:
                exchange[int64_t](states, j, value, source, rows + k0, m, to, at, 0)
            elif x.width[j] == 4:
                exchange[int32_t](states, j, value, source, rows + k0, m, to, at, 0)
            elif x.width[j] == 2:
                exchange[int16_t](states, j, value, source, rows + k0, m, to, at, 0)
            else:
                exchange[int8_t](states, j, value, source, rows + k0, m, to, at, 0)
        k0 += m
        if at >= 0:
            at += m
    return n


cdef int lag_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Put each part's values where its rows lie, behind the input's columns. Cost: ~1 ns per row and column;
    nothing with one part."""
    cdef LagContext* x = <LagContext*> k.ctx
    cdef const Column* made
    cdef const Part* part
    cdef Column* to
    cdef int64_t at
    cdef int32_t j
    cdef int32_t p
    if c.nparts > 1:
        for j in range(x.n):
            made = &c.cols[x.first + x.n + j]
            to = &c.cols[x.first + j]
            for p in range(c.nparts):
                part = &c.parts[p]
                at = part.rows - c.parts[0].rows
                scatter(to.data, made.data + at * x.width[j], part.rows, part.n, x.width[j])
                scatter(<char*> to.valid, <char*> made.valid + at, part.rows, part.n, 1)
    c.ncols = k.output.ncols
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint any_value(Kernel* k, const char* state) noexcept nogil:
    """Whether the key's last row had a value: one without any shows nothing to the next row, like none."""
    cdef int32_t j
    for j in range((<LagContext*> k.ctx).n):
        if state[j]:
            return True
    return False


cdef int write_values(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef LagContext* x = <LagContext*> k.ctx
    cdef int32_t column = own_column(k)
    cdef char* to
    cdef int32_t j
    for j in range(x.n):
        to = out.cols[column + j].data + <int64_t> index * x.width[j]
        if state[j]:
            memcpy(to, state + x.values + 8 * j, x.width[j])
        else:
            memset(to, 0, x.width[j])                        # a null row leaves any bytes in a state
        if put_valid(w, out, column + j, index, state[j] != 0) != 0:
            return -1
    return 0


cdef int32_t read_values(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                         Failure* f) noexcept nogil:
    cdef LagContext* x = <LagContext*> k.ctx
    cdef int32_t column = own_column(k)
    cdef int32_t j
    for j in range(x.n):
        if is_there(rows, column + j, slot):
            memcpy(state + x.values + 8 * j, rows.cols[column + j].data + <int64_t> slot * x.width[j],
                   x.width[j])
            state[j] = 1
    return 0


cdef StateCalls VALUES = StateCalls(alive=any_value, write=write_values, read=read_values, drop=NULL)


cdef class LagKernel(KernelOwner):
    """Operator "lag": attributes {"columns": [int, ...]}; the key is operator.key (empty: SF)."""

    cdef LagContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, operator, PS if operator.key else SF)
        layout = self.input_layout
        columns = list(operator.columns)
        self.context.n = <int32_t> len(columns)
        self.context.first = self.kernel.input.ncols
        if self.kernel.output.ncols != self.context.first + self.context.n:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's and one column per "
                             f"column that is kept")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, layout.types)
            self.context.keys = &self.keys.spec
        self.context.values = (self.context.n + 7) & ~7
        self.context.source = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        self.context.width = <int32_t*> calloc(self.context.n + 1, sizeof(int32_t))
        if self.context.source == NULL or self.context.width == NULL:
            raise MemoryError
        for j in range(self.context.n):
            self.context.source[j] = columns[j]
            self.context.width[j] = layout.layout.width[self.context.source[j]]
            if layout.layout.type[self.context.source[j]] > PT_BOOL:
                raise TypeError(f"{operator.name!r}: only numbers, bool and dates/times can be kept")
        self.kernel.ctx = <void*> &self.context
        self.kernel.in_place = 1
        self.kernel.extra_cols = 2 * self.context.n
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.prepare = lag_prepare
        self.kernel.process = lag_process
        self.kernel.finish = lag_finish
        self.kernel.bucket_new = lag_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)

    def __dealloc__(self):
        free(self.context.source)
        free(self.context.width)
