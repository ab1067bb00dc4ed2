"""Counting tuples per key, or all of them: with no key it is a stateful (SF) operator with a single state.

Contract: kernel.pxd (b), (c).
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.atomics cimport load_relaxed
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, Chunk, Column, Failure, Worker, chunk_alloc, failure_set, scratch_alloc,
)
from ordstream._core.state.count_rows cimport (
    COUNT, CountBucket, count_export, count_install, count_remove,
)
from ordstream._core.ground.kernel cimport PS, SF, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport failure_text, flush_reserve, owner_setup
from ordstream._core.state.keyed_bucket cimport Bucket, bytes_of_bucket, free_bucket, new_bucket, normal_keys
from ordstream._core.state.state_rows cimport owner_state
from ordstream._core.state.key_records cimport key_compare, key_copy, key_store
from ordstream._core.state.keyed_state cimport (
    KeyedState, KeySpec, KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup, keyed_record,
    keyed_state,
)
from ordstream._core.state.packed_counts cimport (
    COUNT_BLOCK, CountSlot, PackedCounts, packed_add, packed_count, packed_free, packed_init, packed_keys,
    packed_record, packed_segment, packed_settle,
)
from ordstream._core.state.ranking cimport OrdRanked, ord_offer
from ordstream._core.ground.stopping cimport stop_due


cdef struct CountContext:
    # Read-only while a run lasts. Memory ownership: CountKernel.
    const KeySpec* keys    # NULL: SF
    int32_t column         # updates: the added column, behind the input's
    int64_t best           # final: keys emitted per bucket, those with the largest counts; 0: all


cdef void* count_new(Kernel* k, int32_t bucket) noexcept nogil:
    cdef CountContext* x = <CountContext*> k.ctx
    cdef CountBucket* b
    if x.keys == NULL:
        return new_bucket(NULL, 8, &COUNT)
    b = <CountBucket*> calloc(1, sizeof(CountBucket))
    if b == NULL:
        return NULL
    if packed_init(&b.packed, x.keys) != 0 or keyed_init(&b.keyed, x.keys, 8, &b.pool) != 0:
        packed_free(&b.packed)
        free(b)
        return NULL
    return b


cdef void count_free(Kernel* k, void* state) noexcept nogil:
    cdef CountBucket* b = <CountBucket*> state
    if (<CountContext*> k.ctx).keys == NULL:
        free_bucket(k, state)
        return
    packed_free(&b.packed)
    keyed_free(&b.keyed)
    free(b)


cdef int64_t count_bytes(Kernel* k, void* state) noexcept nogil:
    cdef CountBucket* b = <CountBucket*> state
    if (<CountContext*> k.ctx).keys == NULL:
        return bytes_of_bucket(k, state)
    return b.packed.bytes + keyed_bytes(&b.keyed) + load_relaxed(&b.pool.bytes)   # statistic; no partner


cdef int count_prepare(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Add the count column behind the input's columns."""
    cdef int32_t j = (<CountContext*> k.ctx).column
    c.cols[j].data = chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
    c.cols[j].valid = NULL
    return 0 if c.cols[j].data != NULL else -1


cdef int count_others(Worker* w, CountBucket* b, Chunk* c, const int32_t* rows, int32_t n,
                      int64_t* totals) noexcept nogil:
    """Count up to COUNT_BLOCK rows in the general map. 0, or -1: no memory."""
    cdef int32_t[COUNT_BLOCK] slots
    cdef int64_t* count
    cdef int32_t i
    if keyed_lookup(&b.keyed, w, c, rows, n, slots) != 0:
        return -1
    for i in range(n):
        count = <int64_t*> keyed_state(&b.keyed, slots[i])
        count[0] += 1
        totals[i] = count[0]
    return 0


cdef int32_t count_keys(Worker* w, CountBucket* b, Chunk* c, const int32_t* rows, int32_t n,
                        int64_t* counts) noexcept nogil:
    """count_process with keys. `counts` NULL: final. Returns: rows done; fewer than n: no memory."""
    cdef uint64_t[COUNT_BLOCK] keys
    cdef int64_t[COUNT_BLOCK] totals
    cdef int32_t[COUNT_BLOCK] fit
    cdef int32_t[COUNT_BLOCK] unfit
    cdef int32_t[COUNT_BLOCK] others
    cdef int32_t k0 = 0
    cdef int32_t m
    cdef int32_t nfit
    cdef int32_t nunfit
    cdef int32_t i
    while k0 < n:
        m = min(n - k0, <int32_t> COUNT_BLOCK)
        nfit = packed_keys(&b.packed, c, rows + k0, m, keys, fit, unfit, &nunfit)
        if counts == NULL:
            if packed_add(&b.packed, keys, nfit) != 0:
                return k0
        else:
            if packed_count(&b.packed, keys, nfit, totals) != 0:
                return k0
            for i in range(nfit):
                counts[rows[k0 + fit[i]]] = totals[i]
        if nunfit:
            for i in range(nunfit):
                others[i] = rows[k0 + unfit[i]]
            if count_others(w, b, c, others, nunfit, totals) != 0:
                return k0
            if counts != NULL:
                for i in range(nunfit):
                    counts[others[i]] = totals[i]
        k0 += m
    return n


cdef int32_t count_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """Count rows; with `in_place` write each row's running count into the prepared column.

    Thread safety: the bucket's holder. Ownership: none. Returns: n; fewer only without memory. Cost:
    packed_count, or keyed_lookup for keys that do not pack, plus ~2 ns per row.
    """
    cdef CountContext* x = <CountContext*> k.ctx
    cdef int64_t* counts = <int64_t*> c.cols[x.column].data if k.in_place else NULL
    cdef int64_t* count
    cdef int64_t total
    cdef int32_t done
    cdef int32_t i
    if x.keys != NULL:
        done = count_keys(w, <CountBucket*> state, c, rows, n, counts)
        if done < n:
            failure_set(f, rows[done], FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return done
    count = <int64_t*> (<Bucket*> state).single
    total = count[0]
    if counts != NULL:
        for i in range(n):
            total += 1
            counts[rows[i]] = total
        count[0] = total
    else:
        count[0] = total + n
    return n


cdef int count_finish(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Output columns: the key columns (floats in their normal form: -0.0 is 0.0), then the count."""
    cdef CountContext* x = <CountContext*> k.ctx
    cdef Column[65] new
    cdef int32_t nkeys = 0
    if x.keys != NULL:
        nkeys = x.keys.ncols
        if normal_keys(x.keys, w, c, new) != 0:
            return -1
    new[nkeys] = c.cols[x.column]
    memcpy(c.cols, new, (nkeys + 1) * sizeof(Column))
    c.ncols = nkeys + 1
    return 0


cdef int compare_keys(const void* keys, const char* a, const char* b) noexcept nogil:
    return key_compare(<const KeySpec*> keys, a, b)


cdef int compare_packed(const void* keys, const char* a, const char* b) noexcept nogil:
    cdef uint64_t p = (<const uint64_t*> a)[0]
    cdef uint64_t q = (<const uint64_t*> b)[0]
    return -1 if p < q else <int> (p > q)


cdef int64_t best_packed(Worker* w, const PackedCounts* s, int64_t k, OrdRanked* best) noexcept nogil:
    """The packed keys with the largest counts, at most k, ties by ascending key.

    Thread safety: the bucket's holder. Ownership: `best` has room for k. Returns: how many. Cost: ~1 ns per
    slot.
    """
    cdef const CountSlot* slots
    cdef OrdRanked one
    cdef int64_t n = 0
    cdef int64_t least = 1
    cdef int64_t entry = 0
    cdef int64_t nslots
    cdef int64_t i
    one.slot = 0
    while packed_segment(s, &entry, &slots, &nslots):
        for i in range(nslots):
            if stop_due(w, i):
                return n
            if slots[i].n >= least:
                one.rank = slots[i].n
                one.key = <const char*> &slots[i].key
                n = ord_offer(best, n, k, one, compare_packed, NULL)
                if n == k:
                    least = best[0].rank
    return n


cdef int64_t best_others(Worker* w, const KeySpec* keys, KeyedState* s, int64_t k,
                         OrdRanked* best) noexcept nogil:
    """The same of the general map."""
    cdef OrdRanked one
    cdef int64_t n = 0
    cdef int64_t i
    for i in range(s.count):
        if stop_due(w, i):
            return n
        one.key = keyed_record(s, i)
        one.rank = (<const int64_t*> (one.key + keys.size))[0]
        one.slot = i
        if n < k or one.rank >= best[0].rank:
            n = ord_offer(best, n, k, one, compare_keys, keys)
    return n


cdef int emit_count(const KeySpec* keys, Worker* w, const char* record, int64_t count, Chunk* out,
                    char* copy) noexcept nogil:
    """Append (key, count) to `out`, which has room; `copy`, in its arena, gets the key. -1: no memory."""
    if key_store(keys, record, w, out, out.n) != 0 or key_copy(keys, record, w, out, copy) != 0:
        return -1
    (<int64_t*> out.cols[keys.ncols].data)[out.n] = count
    out.origin[out.n] = 0
    out.flush_time[out.n] = 0
    out.flush_key[out.n] = copy
    out.n += 1
    return 0


cdef int flush_counts(Kernel* k, Worker* w, CountBucket* b, Chunk* out) noexcept nogil:
    """One row per key, or per key among the best, in any order: the runtime sorts. 0, or -1: no memory."""
    cdef CountContext* x = <CountContext*> k.ctx
    cdef int64_t npacked
    cdef int64_t nothers = b.keyed.count
    cdef OrdRanked* best = NULL
    cdef OrdRanked* best_of_others = NULL
    cdef const CountSlot* slots
    cdef char[64 + 16] key                                   # a packed key has at most 8 columns
    cdef char* copies
    cdef char* record
    cdef int64_t size = x.keys.size
    cdef int64_t entry = 0
    cdef int64_t nslots
    cdef int64_t i
    if packed_settle(&b.packed, w) != 0:
        return -1
    npacked = b.packed.count
    if x.best:
        best = <OrdRanked*> scratch_alloc(w, min(npacked, x.best) * <int64_t> sizeof(OrdRanked) + 16)
        best_of_others = <OrdRanked*> scratch_alloc(
            w, min(nothers, x.best) * <int64_t> sizeof(OrdRanked) + 16)
        if best == NULL or best_of_others == NULL:
            return -1
        npacked = best_packed(w, &b.packed, x.best, best)
        nothers = best_others(w, x.keys, &b.keyed, x.best, best_of_others)
    if npacked + nothers == 0:
        return 0
    if npacked + nothers > 0x7fffffff or flush_reserve(w, out, k.output, <int32_t> (npacked + nothers)) != 0:
        return -1
    copies = chunk_alloc(w, out, (npacked + nothers) * size)
    if copies == NULL:
        return -1
    if best != NULL:
        for i in range(npacked):
            if stop_due(w, i):
                return 0
            packed_record(&b.packed, (<const uint64_t*> best[i].key)[0], key)
            if emit_count(x.keys, w, key, best[i].rank, out, copies + out.n * size) != 0:
                return -1
    else:
        while packed_segment(&b.packed, &entry, &slots, &nslots):
            for i in range(nslots):
                if stop_due(w, i):
                    return 0
                if slots[i].n:
                    packed_record(&b.packed, slots[i].key, key)
                    if emit_count(x.keys, w, key, slots[i].n, out, copies + out.n * size) != 0:
                        return -1
    for i in range(nothers):
        if stop_due(w, i):
            return 0
        record = keyed_record(&b.keyed, i if best == NULL else best_of_others[i].slot)
        if emit_count(x.keys, w, record, (<int64_t*> (record + size))[0], out, copies + out.n * size) != 0:
            return -1
    out.slots = out.n
    return 0


cdef int count_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                         Failure* f) noexcept nogil:
    """emit="final": at the end of the stream one row per key, or without keys one row if a tuple came."""
    cdef Bucket* b = <Bucket*> state
    if punctuation.kind != END_OF_STREAM:
        return 0
    if (<CountContext*> k.ctx).keys != NULL:
        if flush_counts(k, w, <CountBucket*> state, out) != 0:
            failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
            return -1
        return 0
    if (<int64_t*> b.single)[0] == 0:                        # no tuple, no state
        return 0
    if flush_reserve(w, out, k.output, 1) != 0:
        failure_set(f, -1, FAIL_MEMORY, failure_text(FAIL_MEMORY))
        return -1
    (<int64_t*> out.cols[0].data)[out.n] = (<int64_t*> b.single)[0]
    out.origin[out.n] = 0
    out.n += 1
    out.slots = out.n
    return 0


cdef class CountKernel(KernelOwner):
    """Operator "count". Attributes: `emit`, "updates" or "final"; `best`, final only; `key`, empty: SF."""

    cdef CountContext context
    cdef KeySpecOwner keys

    def __init__(self, operator):
        owner_setup(self, operator, PS if operator.key else SF)
        if operator.emit not in ("updates", "final"):
            raise ValueError(f"{operator.name!r}: emit must be 'updates' or 'final', not {operator.emit!r}")
        if operator.key:
            self.keys = KeySpecOwner(operator.key, self.input_layout.types)
            self.context.keys = &self.keys.spec
        self.context.column = self.kernel.input.ncols
        self.context.best = operator.best
        self.kernel.ctx = <void*> &self.context
        self.kernel.uses_hash = 0                           # only for keys that do not pack
        self.kernel.process = count_process
        self.kernel.bucket_new = count_new
        self.kernel.bucket_free = count_free
        self.kernel.bucket_bytes = count_bytes
        owner_state(self, operator, count_export, count_install, count_remove)
        if operator.emit == "updates":
            self.kernel.in_place = 1
            self.kernel.extra_cols = 1
            self.kernel.prepare = count_prepare
            self.kernel.finish = count_finish
        else:
            self.kernel.punctuate = count_punctuate
