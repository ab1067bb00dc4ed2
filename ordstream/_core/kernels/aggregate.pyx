"""Aggregations per key, or over all rows: scan and aggregate.

scan gives the input row with the running values; aggregate gives key columns and values, per row or at the
end of the stream. With no key they are stateful (SF) operators with a single state. Contract: kernel.pxd
(b), (c).

Values are written in place. With objects (gathered.pxd) what is shown may be bytes, which are copied for
each row; parts of one chunk are processed by several workers and can't share its arena, so every part makes
rows of its own then (`apart`).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.carry cimport carry_values
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_OVERFLOW, PT_LIST, PT_VIEW, Block, Chunk, Column, Failure, LayoutOwner,
    Worker, chunk_alloc, chunk_reserve, failure_set, scratch_alloc,
)
from ordstream._core.state.fold cimport (
    Fold, FoldBlock, FoldOwner, fold_begin, fold_load, fold_overflows, fold_prepare, fold_row,
    fold_there, fold_value,
)
from ordstream._core.state.fold_ends cimport EndRows, ends_begin, fold_ends, mark_ends
from ordstream._core.state.fold_columns cimport fold_columns, folds_by_column
from ordstream._core.state.fold_rows cimport fold_read, fold_store, fold_store_block, fold_write
from ordstream._core.state.gathered cimport gathered_block, gathered_forget, gathered_row
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.keyed_bucket cimport (
    Bucket, StateCalls, bytes_of_bucket, free_bucket, new_bucket, normal_keys, put_word,
)
from ordstream._core.state.keyed_rows cimport key_put
from ordstream._core.state.key_records cimport key_copy, key_store
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, KeySpec, KeySpecOwner, LookupAhead, keyed_lookup_block, keyed_record, keyed_state,
)
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.ground.stopping cimport stop_due


cdef struct AggregateContext:
    # Read-only while a run lasts. Memory ownership: the kernel's owner.
    const KeySpec* keys    # NULL: SF
    const Fold* fold
    int32_t first          # column of the first running value: columns of the input
    int32_t conditions     # column of the first condition's bytes, behind the running values
    int32_t emits          # 1: running values are written for every row, in place
    int32_t apart          # 1: into rows of their own
    int32_t ends           # accumulators that are taken in part by part (fold_ends.pxd)
    int32_t by_column      # 1: blocks are folded accumulator by accumulator (fold_columns.pxd)
    int32_t before         # output columns in front of the values
    int32_t* carry         # of rows apart: all input columns; NULL: the key columns are in front


cdef void* aggregate_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef AggregateContext* x = <AggregateContext*> k.ctx
    return new_bucket(x.keys, x.fold.size, &FOLD)


cdef int aggregate_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the running values' columns behind the input's; evaluate conditions."""
    cdef AggregateContext* x = <AggregateContext*> k.ctx
    cdef int32_t j
    cdef Column* col
    if fold_prepare(x.fold, w, c, x.conditions) != 0:
        return -1
    if not x.emits:
        return 0
    for j in range(x.fold.n):
        col = &c.cols[x.first + j]
        col.valid = NULL
        col.data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
        if col.data == NULL:
            return -1
        if x.fold.accumulators[j].may_be_null:
            col.valid = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
            if col.valid == NULL:
                return -1
    return 0


cdef int put_row(const AggregateContext* x, Kernel* k, Worker* w, const Chunk* c, int32_t row,
                 const char* s, Chunk* out, int32_t ahead) noexcept nogil:
    """Append a row with the values that include it. `ahead`: rows to make room for where there is none. 0,
    or -1: no memory."""
    cdef int32_t index = out.n
    if index == out.capacity and chunk_reserve(w, out, k.output, ahead) != 0:
        return -1
    if x.carry != NULL:
        if carry_values(x.carry, x.before, k.output, w, c, out, row, 1) != 0:
            return -1
    elif x.keys != NULL and key_put(x.keys, s - x.keys.size, w, out, index) != 0:
        return -1
    if fold_store(x.fold, s, w, out, x.before, index) != 0:
        return -1
    out.origin[index] = row
    out.n = index + 1
    out.slots = out.n
    return 0


cdef inline int fold_block(const AggregateContext* x, Bucket* b, Chunk* c, const int32_t* rows,
                           const int32_t* slots, const FoldBlock* block, int32_t n) noexcept nogil:
    """Fold n rows of a block accumulator by accumulator. 1; 0: some sum overflows, and nothing changed; -1:
    no memory."""
    cdef char* states[LOOKUP_BLOCK]
    cdef int32_t i
    for i in range(n):
        states[i] = keyed_state(&b.keyed, slots[i]) if x.keys != NULL else b.single
    if not fold_columns(x.fold, states, block, n, c.cols + x.first if x.emits else NULL):
        return 0
    if x.fold.gathers and gathered_block(x.fold, states, c, rows, block.used, n, &b.held.bytes) != 0:
        return -1
    return 1


cdef int32_t fold_rows(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
    int32_t* places,
) noexcept nogil:
    """aggregate_process, but for what is taken in part by part. `places`: gets of each row its key's number
    in the map; NULL: not wanted."""
    cdef AggregateContext* x = <AggregateContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef const Fold* fold = x.fold
    cdef FoldBlock block
    cdef LookupAhead ahead
    cdef int32_t[LOOKUP_BLOCK] block_slots
    cdef int32_t* slots = block_slots
    cdef char* s = b.single
    cdef Block* scratch
    cdef char* top
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t good
    cdef int folded
    cdef int32_t i
    cdef int32_t j
    cdef int32_t row
    if fold_begin(fold, w, &block) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    scratch = w.scratch.current
    top = w.scratch.top
    ahead.n = 0
    while k0 < n:
        m = min(n - k0, <int32_t> LOOKUP_BLOCK)
        if w.scratch.current == scratch:                     # nothing of the last block is needed any more
            w.scratch.top = top
        if places != NULL:
            slots = places + k0
        good = fold_load(fold, w, c, rows + k0, m, x.conditions, &block, f)
        if good and x.keys != NULL and keyed_lookup_block(
                &b.keyed, w, c, rows + k0, good, min(n - k0 - good, <int32_t> LOOKUP_BLOCK),
                &ahead, slots) != 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        folded = 0
        if (good > 1 or x.ends) and x.by_column:
            folded = fold_block(x, b, c, rows + k0, slots, &block, good)
        if folded < 0:
            failure_set(f, rows[k0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return k0
        if folded:
            k0 += good
            if good < m:
                return k0
            continue
        for i in range(good):
            if x.keys != NULL:
                s = keyed_state(&b.keyed, slots[i])
            if fold.any_checked and fold_overflows(fold, s, &block, i):
                failure_set(f, rows[k0 + i], FAIL_OVERFLOW, failure_text(FAIL_OVERFLOW))
                return k0 + i
            if fold.gathers and gathered_row(fold, s, c, rows[k0 + i], block.used, i, &b.held.bytes) != 0:
                failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
            fold_row(fold, s, &block, i)
            if x.apart:
                if put_row(x, k, w, c, rows[k0 + i], s, out, min(n - k0 - i, <int32_t> LOOKUP_BLOCK)) != 0:
                    failure_set(f, rows[k0 + i], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                    return k0 + i
            elif x.emits:
                row = rows[k0 + i]
                for j in range(fold.n):
                    put_word(c.cols[x.first + j].data, fold.accumulators[j].result, row,
                             fold_value(&fold.accumulators[j], s))
                    if fold.accumulators[j].may_be_null:
                        c.cols[x.first + j].valid[row] = fold_there(&fold.accumulators[j], s, j)
        k0 += good
        if good < m:
            return k0
    return n


cdef int32_t aggregate_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Fold rows into their keys' states; with `emits` each row gets the values that include it.

    Thread safety: the bucket's holder. Ownership: none. Returns: n, or j when a condition fails at rows[j]
    or its sum overflows (no state of it changed). Cost: keyed_lookup plus ~3 ns per row and accumulator.
    """
    cdef AggregateContext* x = <AggregateContext*> k.ctx
    cdef EndRows ends
    cdef int32_t* places = NULL
    cdef int32_t done
    if not x.ends:
        return fold_rows(k, w, state, c, rows, n, out, f, NULL)
    if x.keys != NULL:
        places = <int32_t*> scratch_alloc(w, 4 * <int64_t> n + 4)
    if (x.keys != NULL and places == NULL) or ends_begin(&ends, w, n) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    done = fold_rows(k, w, state, c, rows, n, out, f, places)
    if fold_ends(x.fold, <Bucket*> state, &ends, c, rows, places, done) != 0:
        failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return 0
    return done


cdef int scan_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """The running values already lie behind the input's columns."""
    c.ncols = k.output.ncols
    return 0


cdef int aggregate_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Output columns: the key columns, then the running values."""
    cdef AggregateContext* x = <AggregateContext*> k.ctx
    cdef Column[65] keys
    cdef int32_t nkeys = 0
    cdef int32_t j
    if x.keys != NULL:
        nkeys = x.keys.ncols
        if normal_keys(x.keys, w, c, keys) != 0:
            return -1
    for j in range(nkeys):
        c.cols[j] = keys[j]
    for j in range(x.fold.n):
        c.cols[nkeys + j] = c.cols[x.first + j]
    c.ncols = nkeys + x.fold.n
    return 0


cdef int put_key(const AggregateContext* x, Bucket* b, int64_t i, Worker* w, Chunk* out) noexcept nogil:
    """Append a row with the i-th key, and nothing else yet. 0, or -1: no memory."""
    cdef char* key = NULL
    if x.keys != NULL:
        key = chunk_alloc(w, out, x.keys.size)
        if (key == NULL or key_copy(x.keys, keyed_record(&b.keyed, i), w, out, key) != 0
                or key_store(x.keys, keyed_record(&b.keyed, i), w, out, out.n) != 0):
            return -1
    out.origin[out.n] = 0
    out.flush_time[out.n] = 0
    out.flush_key[out.n] = key
    out.n += 1
    return 0


cdef int aggregate_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                             Failure* f) noexcept nogil:
    """At the end of the stream, one row per key that had a tuple, in any order: the runtime sorts."""
    cdef AggregateContext* x = <AggregateContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef char* states[LOOKUP_BLOCK]
    cdef int32_t column = x.keys.ncols if x.keys != NULL else 0
    cdef int64_t n
    cdef int64_t i
    cdef int32_t m = 0
    if punctuation.kind != END_OF_STREAM:
        return 0
    n = 1 if x.keys == NULL else b.keyed.count
    if n == 0 or (x.keys == NULL and b.single[0] == 0):
        return 0
    if n > 0x7fffffff or flush_reserve(w, out, k.output, <int32_t> n) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    for i in range(n):
        if stop_due(w, i):
            return 0
        states[m] = keyed_state(&b.keyed, i) if x.keys != NULL else b.single
        if states[m][0] != 0:                                # 0: its only tuples failed
            if put_key(x, b, i, w, out) != 0:
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            m += 1
        if m == LOOKUP_BLOCK or i == n - 1:
            if fold_store_block(x.fold, states, m, w, out, column, out.n - m) != 0:
                failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return -1
            out.slots = out.n
            m = 0
    return 0


# -------------------------------------------------------------------------------- state as rows


cdef bint any_row(Kernel* k, const char* state) noexcept nogil:
    return state[0] != 0                                     # 0: its only tuples failed


cdef int write_fold(Kernel* k, Worker* w, const char* state, Chunk* out, int32_t index) noexcept nogil:
    cdef int32_t column = k.state_keys.ncols if k.state_keys != NULL else 0
    return fold_write((<AggregateContext*> k.ctx).fold, k.state, state, w, out, column, index)


cdef int32_t read_fold(Kernel* k, void* bucket, const Chunk* rows, int32_t slot, char* state,
                       Failure* f) noexcept nogil:
    cdef int32_t column = k.state_keys.ncols if k.state_keys != NULL else 0
    return fold_read((<AggregateContext*> k.ctx).fold, k.state, rows, column, slot, state,
                     &(<Bucket*> bucket).held.bytes, f)


cdef void drop_fold(Kernel* k, void* bucket, char* state) noexcept nogil:
    gathered_forget((<AggregateContext*> k.ctx).fold, state, &(<Bucket*> bucket).held.bytes)


cdef StateCalls FOLD = StateCalls(alive=any_row, write=write_fold, read=read_fold, drop=drop_fold)


cdef class FoldKernel(KernelOwner):
    # What scan and aggregate share. Memory ownership: the context, the key's arrays, the accumulators.
    cdef AggregateContext context
    cdef KeySpecOwner keys
    cdef FoldOwner fold

    cdef int setup(self, operator, int32_t before) except -1:
        """Everything but emission. `before`: output columns in front of the values."""
        owner_setup(self, operator, PS if operator.key else SF)
        aggregates = operator.aggregates
        if self.kernel.output.ncols != before + len(aggregates):
            raise ValueError(f"{operator.name!r}: the output schema must end with one column per aggregate")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, self.input_layout.types)
            self.context.keys = &self.keys.spec
        self.fold = FoldOwner(aggregates, self.input_layout, self.output_layout.types[before:])
        self.context.fold = &self.fold.fold
        self.context.first = self.kernel.input.ncols
        self.context.conditions = self.context.first + self.fold.fold.n
        self.context.before = before
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 1 if operator.key else 0
        self.kernel.extra_cols = 2 * self.fold.fold.n
        self.kernel.prepare = aggregate_prepare
        self.kernel.process = aggregate_process
        self.kernel.bucket_new = aggregate_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        owner_bucket_state(self, operator)
        return 0

    cdef int emit_updates(self, bint passes) except -1:
        """A row per tuple; `passes`: with the input's columns in front."""
        cdef LayoutOwner layout = self.input_layout
        cdef int32_t j
        if self.fold.fold.apart == 0:
            self.context.emits = 1
            self.kernel.in_place = 1
            return 0
        self.context.apart = 1
        if not passes:
            return 0
        self.context.carry = <int32_t*> calloc(self.context.first + 1, sizeof(int32_t))
        if self.context.carry == NULL:
            raise MemoryError
        for j in range(self.context.first):
            self.context.carry[j] = j
            if layout.layout.type[j] == PT_VIEW or layout.layout.type[j] == PT_LIST:
                self.kernel.keeps_views = 1
        return 0

    def __dealloc__(self):
        free(self.context.carry)


cdef class ScanKernel(FoldKernel):
    """Operator "scan". Attribute: `aggregates`, [BoundAggregation, ...]; `key` may be empty (SF)."""

    def __init__(self, operator):
        self.setup(operator, len(operator.input))
        self.emit_updates(True)
        if self.kernel.in_place:
            self.kernel.finish = scan_finish
        self.context.by_column = folds_by_column(&self.fold.fold, self.context.emits or self.context.apart)


cdef class AggregateKernel(FoldKernel):
    """Operator "aggregate". Attributes: `aggregates`, as of scan; `emit`, "updates" or "final"."""

    def __init__(self, operator):
        self.setup(operator, len(operator.key))
        if operator.emit == "updates":
            self.emit_updates(False)
            if self.kernel.in_place:
                self.kernel.finish = aggregate_finish
        else:
            self.context.ends = mark_ends(&self.fold.fold)
        self.kernel.punctuate = aggregate_punctuate
        self.context.by_column = folds_by_column(&self.fold.fold, self.context.emits or self.context.apart)

    @property
    def ends(self):
        """How many aggregations are taken in part by part: a part costs its keys then, whatever its rows."""
        return self.context.ends
