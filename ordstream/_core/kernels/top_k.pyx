"""Top-k: of the latest row of each key, the k rows with the largest `by`, ties by ascending key; emitted at
the end of the stream and of each window, and, where updates are asked for, after each row that is among
them.

a) Every key has a record: rank, place in the heap, and a copy of its latest row. The rank is an int64 that
   orders as `by` does (NaN lowest), so that one comparison decides.
b) grows=False keeps every key and selects at the end. With updates the keys are also in an ordered set: a
   key's place among the best follows from its block's (ordered_places.pxd).
c) grows=True (`by` never decreases for a key): only the k best so far matter. As soon as there are k, they
   form a heap whose root is the worst. A row below the root's rank costs one comparison: its key can enter
   only by a later row with a larger `by`. When three times as many keys have left the heap as are in it,
   they are forgotten: memory is bounded by k, not by the number of keys.
d) A window's rows whose keys ascend, each once, as windows that close together give them, are not put into
   the map: ascending_rows.pxd. Rows of any other order, and those of a window whose state was exported or
   installed, go there.
e) The end of a window emits the list as the end of the stream does, and forgets everything.
"""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, FAIL_NULL, PT_F32, PT_F64, PT_LIST, PT_U64, PT_VIEW, Chunk, Failure,
    LayoutOwner, Worker, chunk_reserve, failure_set,
)
from ordstream._core.ground.earlier cimport failure_earlier
from ordstream._core.ground.kernel cimport SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.ascending_rows cimport (
    ASCENDING_BLOCK, ascending_emit, ascending_take, can_ascend,
)
from ordstream._core.state.key_records cimport key_compare
from ordstream._core.state.keyed_state cimport KeySpecOwner, keyed_record
from ordstream._core.state.ranking cimport OrdRanked, ord_sort_ranked, ord_sort_ranked_unless
from ordstream._core.state.state_rows cimport owner_state
from ordstream._core.state.top_rows cimport top_export, top_install, top_remove
from ordstream._core.state.top_state cimport (
    Entry, TopBucket, TopContext, entry_of, next_window, put_row, ranks_of, take, to_map,
    top_bytes, top_free, top_new,
)
from ordstream._core.ground.stopping cimport stop_due, worker_stops
from ordstream._core.ground.widths cimport WIDTHS

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef enum:
    BLOCK = ASCENDING_BLOCK  # rows whose ranks are computed at once


# ---------------------------------------------------------------------------------------------- output


cdef int emit_row(const TopContext* x, Worker* w, const Entry* e, Chunk* out, int64_t rank, int32_t origin,
                  bint copies) noexcept nogil:
    """Append a key's row; room is reserved. `copies`: see put_row. 0, or -1: no memory."""
    if put_row(x, w, e, out, out.n, NULL, copies) != 0:
        return -1
    if x.ranked:
        (<int64_t*> out.cols[x.ncols].data)[out.n] = rank
    out.origin[out.n] = origin
    out.n += 1
    out.slots = out.n
    return 0


cdef int emit_list(Kernel* k, Worker* w, TopBucket* b, Chunk* out, int32_t origin,
                   bint at_end) noexcept nogil:
    """Append the k best rows in order. 0, or -1: no memory."""
    cdef const TopContext* x = <const TopContext*> k.ctx
    cdef int status
    if b.rows.n == 0:
        return emit_mapped(k, w, b, out, origin, at_end)
    status = ascending_emit(&x.as_they_come, &b.rows, w, k.output, out, origin, at_end, x.ranked)
    if status == 1:                                          # ranks of 64 bits
        return -1 if to_map(x, b) != 0 else emit_mapped(k, w, b, out, origin, at_end)
    return status


cdef int emit_mapped(Kernel* k, Worker* w, TopBucket* b, Chunk* out, int32_t origin,
                     bint at_end) noexcept nogil:
    """emit_list of rows in the map."""
    cdef const TopContext* x = <const TopContext*> k.ctx
    cdef int64_t n = b.size if x.grows else b.keyed.count
    cdef int64_t best = min(n, x.k)
    cdef int64_t i
    cdef OrdRanked* ranked
    cdef int status
    if n == 0:
        return 0
    ranked = <OrdRanked*> malloc(n * sizeof(OrdRanked))
    if ranked == NULL or best > 0x7fffffff:
        free(ranked)
        return -1
    if at_end:
        status = flush_reserve(w, out, k.output, <int32_t> best)
    else:
        status = chunk_reserve(w, out, k.output, <int32_t> best)
    if status == 0:
        for i in range(n):
            if at_end and stop_due(w, i):
                n = 0
                best = 0
                break
            ranked[i].slot = b.heap[i] if x.grows else i
            ranked[i].rank = entry_of(b, ranked[i].slot).rank
            ranked[i].key = keyed_record(&b.keyed, ranked[i].slot)
        if not at_end:
            ord_sort_ranked(ranked, n, best, x.keys, key_compare)
        elif not ord_sort_ranked_unless(ranked, n, best, x.keys, key_compare, worker_stops, w):
            best = 0
        for i in range(best):
            if at_end and stop_due(w, i):
                break
            if emit_row(x, w, entry_of(b, ranked[i].slot), out, i + 1, origin, not at_end) != 0:
                status = -1
                break
    free(ranked)
    return status


# ---------------------------------------------------------------------------------------------- kernel


cdef inline bint enter_window(const TopContext* x, Kernel* k, Worker* w, TopBucket* b, int64_t window,
                              int32_t row, Chunk* out, Failure* f) noexcept nogil:
    """Give the list of the window before where a row's is another one. False: f is filled."""
    cdef int64_t flip
    cdef bint good = True
    if b.in_window and window == b.window:
        return True
    if b.in_window and window < b.window:
        flip = INT64_MIN if x.window_type == PT_U64 else 0
        failure_earlier(f, row, x.window, window ^ flip, b.window ^ flip)
        return False
    if b.in_window:
        good = emit_list(k, w, b, out, row, False) == 0
        good = next_window(x, b) == 0 and good
    b.in_window = 1
    b.window = window
    if not good:
        failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
    return good


cdef inline int32_t take_run(const TopContext* x, TopBucket* b, const Chunk* c, const int32_t* rows,
                             int32_t n, const int64_t* ranks, const int64_t* windows) noexcept nogil:
    """Take rows of one window in as they come. Returns: how many, or 0: they go to the map; -1: no
    memory."""
    cdef int32_t end = 1
    cdef int taken
    while end < n and windows[end] == windows[0]:
        end += 1
    taken = ascending_take(&x.as_they_come, &b.rows, c, rows, end, ranks)
    if taken == 1:
        return end
    b.unordered = 1
    return -1 if taken < 0 or to_map(x, b) != 0 else 0


cdef int32_t top_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Take rows in; emit the list of a window that ends, and with updates each row that is among the best.

    Thread safety: the state's holder. Ownership: rows are copied. Returns: n, or j when `by` or the window
    of rows[j] is null or the window is earlier than the one before (state untouched), or without memory.
    Cost: grows: ~1-2 ns for a row below the k-th, else ~100 ns; otherwise a map upsert and a copy of the
    row; rows that are kept as they come ~10 ns. Updates: O(k) more for a row among the best; without grows
    O(log keys + k) more for every row.
    """
    cdef TopContext* x = <TopContext*> k.ctx
    cdef TopBucket* b = <TopBucket*> state
    cdef int64_t[BLOCK] ranks
    cdef int64_t[BLOCK] windows
    cdef int64_t[2 * 65] key                                 # room for a record of 64 strings
    cdef const uint8_t* valid = c.cols[x.by].valid
    cdef const uint8_t* window_valid = c.cols[x.window].valid if x.window >= 0 else NULL
    cdef int64_t slot
    cdef int64_t place
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t i
    cdef int32_t row
    cdef int32_t run
    while k0 < n:
        m = min(n - k0, <int32_t> BLOCK)
        ranks_of(x, c, rows + k0, m, ranks)
        if x.window >= 0:
            load(windows, x.window_type, c.cols[x.window].data, rows + k0, m)
            for i in range(m if x.window_type == PT_U64 else 0):
                windows[i] = windows[i] ^ INT64_MIN
        i = 0
        while i < m:
            row = rows[k0 + i]
            if (valid != NULL and valid[row] == 0) or (window_valid != NULL and window_valid[row] == 0):
                failure_set(f, row, FAIL_NULL, "a null where top_k ranks: filter such tuples out before")
                return k0 + i
            if x.window >= 0 and not enter_window(x, k, w, b, windows[i], row, out, f):
                return k0 + i
            run = 0
            if x.once and not b.mapped:
                run = take_run(x, b, c, rows + k0 + i, m - i, ranks + i, windows + i)
                i += max(run, 0)
            if run == 0:
                place = 0
                if ranks[i] >= b.threshold or x.window >= 0:
                    place = take(x, b, c, row, ranks[i], <char*> key, &slot)
                if place > 0 and ((out.n == out.capacity and chunk_reserve(w, out, k.output, 64) != 0)
                                  or emit_row(x, w, entry_of(b, slot), out, place, row, True) != 0):
                    place = -1
                run = <int32_t> min(place, <int64_t> 0)
                i += run + 1
            if run < 0:
                failure_set(f, row, FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return k0 + i
        k0 += m
    return n


cdef int top_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                       Failure* f) noexcept nogil:
    """At the end of the stream, the k best rows in order. Views point into the state, which no tuple changes
    any more."""
    if punctuation.kind == END_OF_STREAM and emit_list(k, w, <TopBucket*> state, out, 0, True) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    return 0


cdef class TopKernel(KernelOwner):
    """Operator "top_k".

    Attributes: `k`; `by`, a column; `key`, columns; `window`, a column or None; `emit`, "updates" or
    "final"; `rank`, `by_grows` and `once`, bool.
    """

    cdef TopContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        cdef int32_t j
        cdef int32_t at = sizeof(Entry)
        cdef LayoutOwner layout
        owner_setup(self, operator, SF)
        layout = self.input_layout
        self.keys = KeySpecOwner(operator.ranked_key, layout.types)
        self.context.keys = &self.keys.spec
        self.context.k = operator.k
        self.context.by = operator.by
        self.context.by_type = layout.layout.type[self.context.by]
        self.context.grows = bool(operator.by_grows)
        self.context.updates = operator.emit == "updates"
        self.context.ranked = bool(operator.rank)
        self.context.window = -1
        if operator.window is not None:
            self.context.window = operator.window
            self.context.window_type = layout.layout.type[self.context.window]
            if self.context.window_type >= PT_F32:
                raise TypeError(f"{operator.name!r}: `window` must be an integer, a date or a time")
        if self.kernel.output.ncols != layout.layout.ncols + self.context.ranked:
            raise ValueError(f"{operator.name!r}: the output schema must be the input's and, where asked "
                             f"for, the rank")
        if self.context.k < 1:
            raise ValueError(f"{operator.name!r}: k must be at least 1, not {self.context.k}")
        if self.context.by_type > PT_F64:
            raise TypeError(f"{operator.name!r}: `by` must be a number, a date or a time")
        self.context.ncols = layout.layout.ncols
        self.context.offset = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        self.context.width = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        self.context.bytes = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        self.context.state_column = <int32_t*> calloc(self.context.ncols + 1, sizeof(int32_t))
        if (self.context.offset == NULL or self.context.width == NULL or self.context.bytes == NULL
                or self.context.state_column == NULL):
            raise MemoryError
        for j, column in enumerate(operator.state_columns()):
            self.context.state_column[column] = j
        for j in range(self.context.ncols):
            self.context.offset[j] = at
            self.context.width[j] = layout.layout.width[j]
            if layout.layout.type[j] == PT_VIEW:
                self.context.bytes[j] = 1
            elif layout.layout.type[j] == PT_LIST:
                self.context.bytes[j] = WIDTHS[layout.layout.element[j]]
            at += 16 if self.context.width[j] == 16 else 8
        self.context.offset[self.context.ncols] = at
        self.context.state_size = at + self.context.ncols
        self.keep_as_they_come(operator)
        self.kernel.ctx = <void*> &self.context
        self.kernel.process = top_process
        self.kernel.punctuate = top_punctuate
        self.kernel.bucket_new = top_new
        self.kernel.bucket_free = top_free
        self.kernel.bucket_bytes = top_bytes
        owner_state(self, operator, top_export, top_install, top_remove)

    cdef int keep_as_they_come(self, operator) except -1:
        """Rows of a window that are not looked up."""
        cdef TopContext* x = &self.context
        x.as_they_come.keys = x.keys
        x.as_they_come.width = x.width
        x.as_they_come.ncols = x.ncols
        x.as_they_come.best = x.k
        x.as_they_come.most = max(4 * min(x.k, 1 << 32), 1024)
        x.once = (bool(operator.once) and x.window >= 0 and not x.updates
                  and can_ascend(x.keys, x.width, x.bytes, x.ncols, x.k))
        return 0

    def __dealloc__(self):
        free(self.context.offset)
        free(self.context.width)
        free(self.context.bytes)
        free(self.context.state_column)
