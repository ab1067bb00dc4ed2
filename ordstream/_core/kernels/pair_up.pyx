"""Pairs: of a list with one of its elements (stateless), and of each new value of a key with the key's
earlier ones (partitioned). Contract: kernel.pxd (a), (b), (f)."""
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.blocks cimport blocks_bytes, blocks_free
from ordstream._core.ground.carry cimport carry_values
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_NULL, FAIL_STATE, PT_F32, PT_F64, PT_I64, PT_LIST, PT_U64, PT_VIEW, Chunk, Column,
    Failure, LayoutOwner, View, Worker, chunk_new, chunk_reserve, failure_set, row_slot, scratch_alloc,
)
from ordstream._core.ground.kernel cimport PS, SL, Kernel, KernelOwner, StateCursor
from ordstream._core.ground.kernel_tools cimport chunk_fail, chunk_fail_all, failure_text, owner_setup
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.ground.list_values cimport list_count, list_there
from ordstream._core.state.kept_lists cimport (
    KeptList, ListBlocks, list_clear, list_fill, list_move, list_values, lists_pack,
)
from ordstream._core.state.keyed_bucket cimport put_word
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeyedState, KeySpec, KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup,
    keyed_state,
)
from ordstream._core.state.row_values cimport list_room, row_list, value_at
from ordstream._core.state.state_rows cimport (
    StateCalls, owner_state, rows_export, rows_install, rows_remove,
)

cdef extern from "list_ops.hpp" namespace "ord" nogil:
    int64_t sort_distinct(void* v, int type, int64_t n)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)


# ---------------------------------------------------------------------------------------------- od.pairs
# with an anchor


cdef struct AnchorContext:
    # Read-only while a run lasts. Memory ownership: AnchoredPairsKernel.
    int32_t column         # the list
    int32_t element        # PhysicalType of its elements
    int32_t width          # bytes per element
    int32_t ncarry
    int32_t* carry
    char[8] anchor         # as an element lies in a list, in its normal form


cdef Chunk* anchored_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """(carried values, x, anchor) for the distinct elements x of each list that holds the anchor.

    Thread safety: any worker. Ownership: a new chunk; its carried views point into `c`. Returns: it; `c`
    when there is no memory for one. Cost: ~1 ns per element of a list without the anchor; the sort and ~2 ns
    per pair for the others.
    """
    cdef const AnchorContext* x = <const AnchorContext*> k.ctx
    cdef const Column* lists = &c.cols[x.column]
    cdef const View* v
    cdef Chunk* out = chunk_new(w)
    cdef char* elements = NULL
    cdef char* left
    cdef char* right
    cdef int64_t room = 0                       # elements that the scratch copy holds
    cdef int64_t m
    cdef int64_t j
    cdef int32_t i
    cdef int32_t slot
    cdef int32_t made
    cdef int32_t width = x.width
    cdef bint found
    if out == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if chunk_reserve(w, out, k.output, 16) != 0:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    for i in range(c.n):
        slot = row_slot(c, i)
        if lists.valid != NULL and lists.valid[slot] == 0:
            continue
        v = &(<const View*> lists.data)[slot]
        m = list_count(v)
        if m < 2:
            continue
        # most lists do not hold the anchor: search them in place
        if width == 8 and x.element != PT_F64:
            found = False
            for j in range(m):
                found |= (<const int64_t*> v.data)[j] == (<const int64_t*> x.anchor)[0]
            if not found:
                continue
        if m > room:
            room = max(m, room * 2, 64)
            elements = scratch_alloc(w, room * width)
            if elements == NULL:
                chunk_fail(c, slot, FAIL_MEMORY)
                return out
        m = sort_distinct(elements, x.element, list_there(v, width, elements))
        found = False
        for j in range(m):
            found |= same_element(x, elements + j * width)
        if not found or m < 2:
            continue
        made = <int32_t> m - 1
        if m - 1 > 0x7fffffff or (out.n + <int64_t> made > out.capacity
                                  and chunk_reserve(w, out, k.output, made) != 0):
            chunk_fail(c, slot, FAIL_MEMORY)
            return out
        if carry_values(x.carry, x.ncarry, k.output, w, c, out, slot, made) != 0:
            chunk_fail(c, slot, FAIL_MEMORY)
            return out
        left = out.cols[x.ncarry].data + <int64_t> out.n * width
        right = out.cols[x.ncarry + 1].data + <int64_t> out.n * width
        for j in range(m):
            if same_element(x, elements + j * width):
                continue
            memcpy(left, elements + j * width, width)
            memcpy(right, x.anchor, width)
            left += width
            right += width
        out.n += made
        out.slots = out.n
    return out


cdef inline bint same_element(const AnchorContext* x, const char* element) noexcept nogil:
    """Elements after sort_distinct: -0.0 is 0.0 there; NaN equals NaN."""
    cdef int32_t i
    if x.element == PT_F64 and isnan((<const double*> element)[0]):
        return isnan((<const double*> x.anchor)[0])
    if x.element == PT_F32 and isnan((<const float*> element)[0]):
        return isnan((<const float*> x.anchor)[0])
    for i in range(x.width):
        if element[i] != x.anchor[i]:
            return False
    return True


cdef class AnchoredPairsKernel(KernelOwner):
    """Operator "pairs" with attributes {"column", "carry", "anchor": an element's storage value}."""

    cdef AnchorContext context

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, operator, SL)
        layout = self.input_layout
        carry = list(operator.carry)
        anchor = operator.anchor
        self.context.column = operator.column
        if layout.layout.type[self.context.column] != PT_LIST:
            raise TypeError(f"{operator.name!r}: column {self.context.column} is not a list")
        self.context.element = layout.layout.element[self.context.column]
        self.context.ncarry = <int32_t> len(carry)
        if self.kernel.output.ncols != self.context.ncarry + 2:
            raise ValueError(f"{operator.name!r}: the output schema must be the carried columns and a pair")
        self.context.width = self.kernel.output.width[self.context.ncarry]
        if self.context.width > 8:
            raise TypeError(f"{operator.name!r}: lists of strings or decimals are not supported")
        import numpy as np

        if self.context.element == PT_F64 or self.context.element == PT_F32:
            data = (np.float64 if self.context.element == PT_F64 else np.float32)(anchor + 0.0).tobytes()
        else:
            data = int(anchor).to_bytes(8, "little" if np.little_endian else "big", signed=anchor < 0)
            data = data if np.little_endian else data[8 - self.context.width:]
        for j in range(self.context.width):
            self.context.anchor[j] = <char> <uint8_t> data[j]
        self.context.carry = <int32_t*> calloc(self.context.ncarry + 1, sizeof(int32_t))
        if self.context.carry == NULL:
            raise MemoryError
        for j in range(self.context.ncarry):
            self.context.carry[j] = carry[j]
            if layout.layout.type[self.context.carry[j]] in (PT_VIEW, PT_LIST):
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.context
        self.kernel.apply = anchored_apply

    def __dealloc__(self):
        free(self.context.carry)


# ---------------------------------------------------------------------------------------------- pair_up

cdef enum:
    INLINE_VALUES = 6      # of a key that lie in its record
    FIRST_CLASS = 7        # smallest block: 128 bytes

cdef struct Values:
    # State of a key: its distinct values, widened (floats as the bits of a double in normal form), in order
    # of arrival.
    KeptList list
    int64_t[INLINE_VALUES] first

cdef struct PairContext:
    # Read-only while a run lasts. Memory ownership: PairUpKernel.
    const KeySpec* keys
    int32_t column
    int32_t type           # PhysicalType of it
    int32_t is_float
    int32_t ncarry
    int32_t* carry

cdef struct PairBucket:
    # State of one bucket. Memory ownership: the runtime, through bucket_new / bucket_free.
    KeyedState keyed
    ListBlocks lists       # of keys with many values


cdef inline int64_t* values_of(Values* v) noexcept nogil:
    return <int64_t*> list_values(&v.list)


cdef inline int64_t normal_word(int64_t bits) noexcept nogil:
    """Bits of a double in the normal form of a key: one zero, one NaN."""
    cdef double v
    memcpy(&v, &bits, 8)
    if v == 0.0:
        return 0
    return <int64_t> 0x7FF8000000000000 if isnan(v) else bits


cdef inline bint below(const PairContext* x, int64_t a, int64_t b) noexcept nogil:
    """a sorts before b; they differ."""
    cdef double p
    cdef double q
    if x.is_float:
        memcpy(&p, &a, 8)
        memcpy(&q, &b, 8)
        return p < q or isnan(q)
    if x.type == PT_U64:
        return <uint64_t> a < <uint64_t> b
    return a < b


cdef int values_add(PairBucket* b, KeptList* v, int64_t value) noexcept nogil:
    """Append a value. 0, or -1: no memory, and nothing changed."""
    cdef int64_t room = INLINE_VALUES if v.block == NULL else (<int64_t> 1) << (v.size_class - 3)
    if v.n == room and list_move(&b.lists, v, v.n * <int64_t> 8,
                                 v.size_class + 1 if v.block != NULL else <int32_t> FIRST_CLASS) != 0:
        return -1
    (<int64_t*> list_values(v))[v.n] = value
    v.n += 1
    return 0


cdef void* pair_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef PairContext* x = <PairContext*> k.ctx
    cdef PairBucket* b = <PairBucket*> calloc(1, sizeof(PairBucket))
    if b != NULL and keyed_init(&b.keyed, x.keys, <int32_t> sizeof(Values), &b.lists.blocks.pool) != 0:
        free(b)
        return NULL
    return b


cdef void pair_free(Kernel* k, void* state) noexcept nogil:
    cdef PairBucket* b = <PairBucket*> state
    keyed_free(&b.keyed)
    blocks_free(&b.lists.blocks)
    free(b)


cdef int64_t pair_bytes(Kernel* k, void* state) noexcept nogil:
    cdef PairBucket* b = <PairBucket*> state
    return keyed_bytes(&b.keyed) + blocks_bytes(&b.lists.blocks)


cdef int32_t pair_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Pair each value that is new for its key with the key's earlier values.

    Thread safety: the bucket's holder. Ownership: carried views point into `c`. Returns: n, or j when the
    value of rows[j] is null (no state changed), or without memory. Cost: keyed_lookup, ~0.3 ns per earlier
    value to look for, ~2 ns per pair.
    """
    cdef PairContext* x = <PairContext*> k.ctx
    cdef PairBucket* b = <PairBucket*> state
    cdef int32_t[LOOKUP_BLOCK] slots
    cdef int64_t[LOOKUP_BLOCK] words
    cdef const uint8_t* valid = c.cols[x.column].valid
    cdef const int64_t* earlier
    cdef Values* v
    cdef char* left
    cdef char* right
    cdef int64_t value
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t end
    cdef int32_t i
    cdef int32_t j
    cdef bint is_low
    cdef bint found
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        end = m
        if valid != NULL:
            end = 0
            while end < m and valid[rows[k0 + end]] != 0:
                end += 1
        load(words, x.type, c.cols[x.column].data, rows + k0, end)
        if end and keyed_lookup(&b.keyed, w, c, rows + k0, end, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        for i in range(end):
            v = <Values*> keyed_state(&b.keyed, slots[i])
            earlier = values_of(v)
            value = normal_word(words[i]) if x.is_float else words[i]
            found = False
            for j in range(v.list.n):
                found |= earlier[j] == value
            if found:
                continue
            if v.list.n:
                if ((out.n + <int64_t> v.list.n > out.capacity
                     and chunk_reserve(w, out, k.output, max(v.list.n, <int32_t> 64)) != 0)
                        or carry_values(x.carry, x.ncarry, k.output, w, c, out, rows[k0 + i],
                                        v.list.n) != 0):
                    failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
                left = out.cols[x.ncarry].data
                right = out.cols[x.ncarry + 1].data
                for j in range(v.list.n if x.type == PT_I64 else 0):   # most of them
                    (<int64_t*> left)[out.n + j] = min(earlier[j], value)
                    (<int64_t*> right)[out.n + j] = max(earlier[j], value)
                for j in range(0 if x.type == PT_I64 else v.list.n):
                    is_low = below(x, earlier[j], value)
                    put_word(left, x.type, out.n + j, earlier[j] if is_low else value)
                    put_word(right, x.type, out.n + j, value if is_low else earlier[j])
            m = v.list.n
            if values_add(b, &v.list, value) != 0:
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            out.n += m
            out.slots = out.n
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        k0 += end
        if end < m:
            failure_set(f, rows[k0], FAIL_NULL, "a null value: filter such tuples out before pair_up")
            return k0
    return n


cdef bint any_value(Kernel* k, const char* state) noexcept nogil:
    return (<const Values*> state).list.n != 0


cdef void drop_values(Kernel* k, void* bucket, char* state) noexcept nogil:
    list_clear(&(<PairBucket*> bucket).lists, &(<Values*> state).list)


cdef int write_values(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef const PairContext* x = <const PairContext*> k.ctx
    cdef Values* v = <Values*> state
    cdef const int64_t* values = values_of(v)
    cdef char* to = list_room(w, out, x.keys.ncols, index, v.list.n, WIDTHS[x.type])
    cdef int32_t i
    if to == NULL:
        return -1
    for i in range(v.list.n):
        put_word(to, x.type, i, values[i])
    return 0


cdef int32_t read_values(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                         Failure* f) noexcept nogil:
    cdef const PairContext* x = <const PairContext*> k.ctx
    cdef const View* values = row_list(rows, x.keys.ncols, slot)
    cdef int64_t* to
    cdef int32_t i
    if values == NULL or values.size == 0 or values.size > 0x7fffffff:
        failure_set(f, slot, FAIL_STATE, "the list of values is null or empty")
        return FAIL_STATE
    to = <int64_t*> list_fill(&(<PairBucket*> bucket).lists, &(<Values*> state).list, values.size,
                              values.size * 8, INLINE_VALUES * 8, FIRST_CLASS)
    if to == NULL:
        failure_set(f, slot, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return FAIL_MEMORY
    for i in range(<int32_t> values.size):
        to[i] = value_at(x.type, values.data, i)
        if x.is_float:
            to[i] = normal_word(to[i])
    return 0


cdef StateCalls VALUES = StateCalls(alive=any_value, write=write_values, read=read_values, drop=drop_values)


cdef int32_t pair_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                         Failure* f) noexcept nogil:
    """Rows (key..., list of values). Contract: kernel.pxd (f)."""
    return rows_export(k, w, &(<PairBucket*> state).keyed, &VALUES, cursor, out, f)


cdef int32_t pair_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                          Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f)."""
    return rows_install(k, state, &(<PairBucket*> state).keyed, &VALUES, rows, slots, n, f)


cdef int32_t pair_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                         Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    cdef PairBucket* b = <PairBucket*> state
    cdef int32_t there = rows_remove(k, state, &b.keyed, &VALUES, keys, slots, n)
    lists_pack(&b.lists, &b.keyed, 0, <int32_t> sizeof(Values), 1, b.lists.used)
    return there


cdef class PairUpKernel(KernelOwner):
    """Operator "pair_up": attributes {"column", "carry": [column, ...]}; the key is operator.key."""

    cdef PairContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef LayoutOwner layout
        owner_setup(self, operator, PS)
        layout = self.input_layout
        carry = list(operator.carry)
        self.keys = KeySpecOwner(operator.key, layout.types)
        self.context.keys = &self.keys.spec
        self.context.column = operator.column
        self.context.type = layout.layout.type[self.context.column]
        if self.context.type > PT_F64:
            raise TypeError(f"{operator.name!r}: the paired column must be a number, a date or a time")
        self.context.is_float = self.context.type == PT_F64 or self.context.type == PT_F32
        self.context.ncarry = <int32_t> len(carry)
        if self.kernel.output.ncols != self.context.ncarry + 2:
            raise ValueError(f"{operator.name!r}: the output schema must be the carried columns and a pair")
        self.context.carry = <int32_t*> calloc(self.context.ncarry + 1, sizeof(int32_t))
        if self.context.carry == NULL:
            raise MemoryError
        for j in range(self.context.ncarry):
            self.context.carry[j] = carry[j]
            if layout.layout.type[self.context.carry[j]] in (PT_VIEW, PT_LIST):
                self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1
        self.kernel.process = pair_process
        self.kernel.bucket_new = pair_new
        self.kernel.bucket_free = pair_free
        self.kernel.bucket_bytes = pair_bytes
        owner_state(self, operator, pair_export, pair_install, pair_remove)

    def __dealloc__(self):
        free(self.context.carry)
