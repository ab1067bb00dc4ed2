"""Merging part outputs (assemble.pxd states the contract)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport *
from ordstream._core.state.key_records cimport key_compare
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.state.late_rows cimport LATE_BEGIN, LateRows, late_of
from ordstream._core.state.ranking cimport OrdRanked, ord_sort_as_words
from ordstream._core.flow.steps cimport StepLog, steps_append
from ordstream._core.ground.slot_values cimport scatter
from ordstream._core.ground.stopping cimport stop_asked, stop_due, worker_stops
from ordstream._core.ground.list_values cimport view_bytes
from ordstream._core.ground.widths cimport WIDTHS

cdef extern from "flush_sort.hpp":
    struct OrdFlushRow:
        int64_t time
        uint64_t order         # the key's order_words
        const char* key
        int32_t part
        int32_t row
    bint ord_sort_flush(OrdFlushRow*, OrdFlushRow* spare, int64_t,
                        int (*)(const void*, const char*, const char*) noexcept nogil,
                        const void*, int (*)(void*) noexcept nogil, void*) noexcept nogil

cdef extern from "ranking.hpp" namespace "ord" nogil:
    int bits_of(uint64_t v)

cdef enum:
    WORD_ROWS = 16             # flushes of at least this many rows are sorted as words, if they fit
    RADIX_ROWS = 512           # and from here on by radix
    LATE_BLOCK = 16384         # rows of a column between two looks at the stop flag


cdef int compare_keys(const void* keys, const char* a, const char* b) noexcept nogil:
    return key_compare(<const KeySpec*> keys, a, b)


cdef inline uint64_t field_word(int32_t type, const char* field) noexcept nogil:
    """A number that never decreases as values of a key's column ascend; of a string its first 8 bytes."""
    cdef const View* v
    cdef uint64_t word = (<const uint64_t*> field)[0]
    cdef int64_t i
    if type >= PT_I8 and type <= PT_I64:
        return word ^ (<uint64_t> 1) << 63
    if type == PT_F64 or type == PT_F32:
        # bits of a double in its normal form: NaN is the largest
        return ~word if word >> 63 else word | (<uint64_t> 1) << 63
    if type != PT_VIEW:
        return word
    v = <const View*> field
    word = 0
    for i in range(min(v.size, <int64_t> 8)):
        word |= <uint64_t> (<const uint8_t*> v.data)[i] << (56 - 8 * i)
    return word


cdef bint order_words(Worker* w, const KeySpec* keys, OrdFlushRow* rows, int64_t total) noexcept nogil:
    """Give each row a number that never decreases as keys ascend: as many columns as fit into 64 bits, each
    less its least value. Small integers fit all, and then no keys are compared. False: stopped.

    Cost: ~2 ns per row and column.
    """
    cdef uint64_t low
    cdef uint64_t high
    cdef uint64_t word
    cdef uint64_t some_null
    cdef int32_t used = 0
    cdef int32_t bits
    cdef int32_t more
    cdef int32_t j
    cdef int64_t i
    cdef const char* key
    for i in range(total):
        if stop_due(w, i):
            return False
        rows[i].order = 0
        if rows[i].key == NULL:
            return True
    for j in range(keys.ncols):
        low = ~<uint64_t> 0
        high = 0
        some_null = 0
        for i in range(total):
            if stop_due(w, i):
                return False
            key = rows[i].key
            if (<const uint64_t*> key)[0] >> j & 1:
                some_null = 1
                continue
            word = field_word(keys.type[j], key + keys.offset[j])
            low = min(low, word)
            high = max(high, word)
        if low > high:                                       # null in all
            continue
        if high - low == ~<uint64_t> 0:                      # no number is left for null
            low += some_null
        bits = bits_of(high - low + some_null)
        more = min(bits, 64 - used)
        for i in range(total if more else 0):
            if stop_due(w, i):
                return False
            key = rows[i].key
            word = 0
            if not (<const uint64_t*> key)[0] >> j & 1:
                word = max(field_word(keys.type[j], key + keys.offset[j]), low) - low + some_null
            rows[i].order = rows[i].order << (more - 1) << 1 | word >> (bits - more)
        used += more
        if more < bits or keys.type[j] == PT_VIEW:
            return True
    return True


cdef int assign_serials(Worker* w, Chunk* out, const Chunk* source) noexcept nogil:
    """Serial of each output row: that of the input row at `origin`. 0, or -1: no memory."""
    cdef int32_t i
    out.serials = <int64_t*> chunk_alloc(w, out, <int64_t> out.n * 8 + 8)
    if out.serials == NULL:
        return -1
    for i in range(out.n):
        out.serials[i] = slot_serial(source, out.origin[i])
    return 0


cdef int copy_row(Worker* w, Chunk* out, const Column* cols, const Layout* layout,
                  int32_t slot) noexcept nogil:
    """Make `out` a one-row chunk with deep copies of the values at `slot`. 0, or -1: no memory."""
    cdef int32_t j
    cdef char* data
    cdef char* bytes
    cdef View* v
    cdef int64_t size
    out.ncols = layout.ncols
    out.n = 1
    out.slots = 1
    for j in range(layout.ncols):
        out.cols[j].valid = NULL
        data = chunk_alloc(w, out, 16)
        if data == NULL:
            return -1
        out.cols[j].data = data
        # a source column that nothing reads: shown as null
        if cols[j].data == NULL:
            out.cols[j].valid = <uint8_t*> chunk_alloc(w, out, 1)
            if out.cols[j].valid == NULL:
                return -1
            out.cols[j].valid[0] = 0
            memset(data, 0, 16)
            continue
        memcpy(data, cols[j].data + <int64_t> slot * layout.width[j], layout.width[j])
        if cols[j].valid != NULL and not cols[j].valid[slot]:
            out.cols[j].valid = <uint8_t*> chunk_alloc(w, out, 1)
            if out.cols[j].valid == NULL:
                return -1
            out.cols[j].valid[0] = 0
            memset(data, 0, 16)
            continue
        if layout.type[j] == PT_VIEW or layout.type[j] == PT_LIST:
            v = <View*> data
            size = v.size
            if layout.type[j] == PT_LIST:
                size = view_bytes(size, WIDTHS[layout.element[j]])
            bytes = chunk_alloc(w, out, size + 1)
            if bytes == NULL:
                return -1
            if size:
                memcpy(bytes, v.data, size)
            v.data = bytes
    return 0


cdef int ensure_rows(Worker* w, Chunk* out, const Layout* layout, int64_t n) noexcept nogil:
    if n > 0x7fffffff:
        return -1
    return chunk_reserve(w, out, layout, <int32_t> n)


cdef inline Chunk* without_unmade(Chunk* out, const Layout* layout) noexcept nogil:
    """Clear the data pointer of columns of width 0, which the operator did not make. Returns `out`."""
    cdef int32_t j
    for j in range(layout.ncols):
        if layout.width[j] == 0:
            out.cols[j].data = NULL
    return out


cdef Chunk* merge_parts(Worker* w, Chunk* c, const Layout* layout, bint has_views,
                        int32_t before_slot) noexcept nogil:
    """One output chunk from the outputs of c's parts, in input order; rows caused by slots >= before_slot
    are dropped.

    Thread safety: the worker that finished the last part. Ownership: part outputs are taken (held where
    views point into them); the result is the caller's. Returns: NULL when memory is exhausted. Cost: one
    pass over the slots, one per column.
    """
    cdef int32_t k
    cdef int32_t j
    cdef int32_t i
    cdef int32_t n
    cdef int64_t total = 0
    cdef int32_t used = 0
    cdef Chunk* only = NULL
    cdef Chunk* part
    cdef Chunk* out
    cdef int32_t* position
    cdef int32_t* to
    cdef int32_t before
    for k in range(c.nparts):
        part = c.parts[k].out
        if part == NULL:
            continue
        while part.n and part.origin[part.n - 1] >= before_slot:
            part.n -= 1
        part.slots = part.n
        if part.n:
            used += 1
            only = part
            total += part.n
    if used == 0 or (used == 1 and c.nparts == 1):
        if only == NULL:
            for k in range(c.nparts):
                if only == NULL and c.parts[k].out != NULL:
                    only = c.parts[k].out
            if only == NULL:
                only = chunk_new(w)
                if only == NULL:
                    return NULL
                if ensure_rows(w, only, layout, 1) != 0:
                    return NULL
            elif only.capacity == 0 and ensure_rows(w, only, layout, 1) != 0:
                return NULL
        for k in range(c.nparts):
            if c.parts[k].out != NULL and c.parts[k].out != only:
                chunk_free(w, c.parts[k].out)
            c.parts[k].out = NULL
        return without_unmade(only, layout)
    out = chunk_new(w)
    if out == NULL or ensure_rows(w, out, layout, total) != 0:
        return NULL
    arena_reset(&w.scratch, w.pool)
    position = <int32_t*> scratch_alloc(w, <int64_t> (c.slots + 1) * 4)
    to = <int32_t*> scratch_alloc(w, total * 4)
    if position == NULL or to == NULL:
        return NULL
    memset(position, 0, <size_t> (c.slots + 1) * 4)
    for k in range(c.nparts):
        part = c.parts[k].out
        if part != NULL:
            for i in range(part.n):
                position[part.origin[i]] += 1
    n = 0
    for i in range(c.slots):
        before = position[i]
        position[i] = n
        n += before
    for k in range(c.nparts):
        part = c.parts[k].out
        if part == NULL:
            continue
        n = part.n
        for i in range(n):
            before = part.origin[i]
            to[i] = position[before]
            position[before] += 1
            out.origin[to[i]] = before
        for j in range(layout.ncols):
            if n:
                scatter(out.cols[j].data, part.cols[j].data, to, n, layout.width[j])
                if part.cols[j].valid != NULL:
                    out.n = <int32_t> total
                    if chunk_set_valid(w, out, j) != 0:
                        return NULL
                    scatter(<char*> out.cols[j].valid, <char*> part.cols[j].valid, to, n, 1)
        c.parts[k].out = NULL
        if has_views:
            chunk_hold(out, part)
        else:
            chunk_free(w, part)
    out.n = <int32_t> total
    out.slots = out.n
    return without_unmade(out, layout)


cdef Chunk* give_up(Worker* w, Chunk* out) noexcept nogil:
    chunk_free(w, out)
    return NULL


cdef inline bint is_behind(const KeySpec* keys, const Chunk* part, int64_t i, const char* cut,
                           int64_t cut_time) noexcept nogil:
    """Whether a row comes at (cut_time, cut) or behind it."""
    if part.flush_key[i] == NULL or part.flush_time[i] < cut_time:
        return False
    return part.flush_time[i] > cut_time or key_compare(keys, part.flush_key[i], cut) >= 0


cdef inline int64_t flush_rows(Worker* w, const Chunk* c, const KeySpec* keys, const char* cut,
                               int64_t cut_time, OrdFlushRow* rows) noexcept nogil:
    """What the parts emitted before (`cut_time`, `cut`), part by part. How many, or -1: stopped."""
    cdef int64_t total = 0
    cdef int64_t i
    cdef int32_t k
    cdef Chunk* part
    for k in range(c.nparts):
        part = c.parts[k].out
        if part == NULL:
            continue
        for i in range(part.n):
            if stop_due(w, i):
                return -1
            if cut != NULL and is_behind(keys, part, i, cut, cut_time):
                continue
            rows[total].time = part.flush_time[i] if part.flush_time != NULL else 0
            rows[total].key = part.flush_key[i] if part.flush_key != NULL else NULL
            rows[total].part = k
            rows[total].row = <int32_t> i
            total += 1
    return total


cdef bint sort_as_words(Worker* w, const KeySpec* keys, OrdFlushRow* rows, int64_t total) noexcept nogil:
    """sort_flush where time, key and index fit into one word, which takes no comparison of keys. False:
    they don't, or there is no memory; rows are as they were."""
    cdef OrdRanked* words
    cdef OrdFlushRow* sorted_
    cdef int64_t i
    arena_reset(&w.scratch, w.pool)
    words = <OrdRanked*> scratch_alloc(w, total * <int64_t> (sizeof(OrdRanked) + sizeof(OrdFlushRow)))
    if words == NULL:
        return False
    for i in range(total):
        if rows[i].key == NULL:
            return False
        words[i].rank = ~rows[i].time                         # larger ranks go first
        words[i].key = rows[i].key
        words[i].slot = i
    if not ord_sort_as_words(words, total, total, keys):
        return False
    sorted_ = <OrdFlushRow*> (words + total)
    for i in range(total):
        sorted_[i] = rows[words[i].slot]
    memcpy(rows, sorted_, <size_t> total * sizeof(OrdFlushRow))
    return True


cdef inline bint sort_flush(Worker* w, const KeySpec* keys, OrdFlushRow* rows, int64_t total) noexcept nogil:
    """By (time, key, emission index). False: no memory, or the run was stopped."""
    cdef OrdFlushRow* spare = NULL
    if WORD_ROWS <= total < RADIX_ROWS and sort_as_words(w, keys, rows, total):
        return True
    if not order_words(w, keys, rows, total):
        return False
    if total >= RADIX_ROWS:
        arena_reset(&w.scratch, w.pool)
        spare = <OrdFlushRow*> scratch_alloc(w, total * <int64_t> (sizeof(OrdFlushRow) + 16))
        if spare == NULL:
            return False
    return ord_sort_flush(rows, spare, total, compare_keys, keys, worker_stops, w)


cdef inline bint gather_flush(Worker* w, const Chunk* c, const OrdFlushRow* rows, int64_t total, Chunk* out,
                              int32_t j, int32_t width) noexcept nogil:
    """Column j of the rows, in their order. False: no memory, or the run was stopped."""
    cdef char* data = out.cols[j].data
    cdef bint valid = False
    cdef const int64_t* words
    cdef int64_t i
    cdef int32_t k
    cdef Chunk* part
    if width == 8 and c.nparts == 1:
        words = <const int64_t*> c.parts[0].out.cols[j].data
        for i in range(total):
            if stop_due(w, i):
                return False
            (<int64_t*> data)[i] = words[rows[i].row]
    elif width == 8:
        for i in range(total):
            if stop_due(w, i):
                return False
            (<int64_t*> data)[i] = (<const int64_t*> c.parts[rows[i].part].out.cols[j].data)[rows[i].row]
    elif width:
        for i in range(total):
            if stop_due(w, i):
                return False
            memcpy(data + i * width,
                   c.parts[rows[i].part].out.cols[j].data + <int64_t> rows[i].row * width, width)
    for k in range(c.nparts):
        part = c.parts[k].out
        valid = valid or (part != NULL and part.n > 0 and part.cols[j].valid != NULL)
    if not valid:
        return True
    for i in range(total):
        if stop_due(w, i):
            return False
        part = c.parts[rows[i].part].out
        if part.cols[j].valid != NULL and not part.cols[j].valid[rows[i].row]:
            out.n = <int32_t> total
            if chunk_set_valid(w, out, j) != 0:
                return False
            out.cols[j].valid[i] = 0
    return True


cdef bint show_late(Worker* w, const Chunk* c, const Layout* layout, const OrdFlushRow* rows, int64_t total,
                    Chunk* out) noexcept nogil:
    """The rows, all of which were left to be shown in their order (late_rows.pxd). False: no memory, or the
    run was stopped. Cost: ~2 ns per value, and a copy of what its kernel copies."""
    cdef int64_t* words
    cdef int32_t* at
    cdef int64_t* ends
    cdef const LateRows* late
    cdef int64_t i
    cdef int64_t n
    cdef int32_t j
    cdef int32_t k
    arena_reset(&w.scratch, w.pool)
    words = <int64_t*> scratch_alloc(w, total * 8)
    at = <int32_t*> scratch_alloc(w, total * 4)
    ends = <int64_t*> scratch_alloc(w, (<int64_t> c.nparts + 1) * 8)
    if words == NULL or at == NULL or ends == NULL:
        return False
    memset(ends, 0, (<size_t> c.nparts + 1) * 8)
    for i in range(total):
        if stop_due(w, i):
            return False
        ends[rows[i].part + 1] += 1
    for k in range(c.nparts):
        ends[k + 1] += ends[k]
    for i in range(total):                                    # ends[k]: where those of part k go on
        if stop_due(w, i):
            return False
        k = rows[i].part
        words[ends[k]] = late_of(c.parts[k].out).words[rows[i].row]
        at[ends[k]] = <int32_t> i
        ends[k] += 1
    for j in range(LATE_BEGIN, layout.ncols):
        n = 0
        for k in range(c.nparts):
            late = late_of(c.parts[k].out) if c.parts[k].out != NULL else NULL
            while n < ends[k]:
                i = min(ends[k] - n, <int64_t> LATE_BLOCK)
                if stop_asked(w) or late.show(late, w, words + n, at + n, <int32_t> i, out, j) != 0:
                    return False
                n += i
    return True


cdef inline bint is_late(const Chunk* c) noexcept nogil:
    """Whether the parts of a punctuation left their rows to be shown."""
    cdef int32_t k
    for k in range(c.nparts):
        if c.parts[k].out != NULL and c.parts[k].out.n:
            return late_of(c.parts[k].out) != NULL
    return False


cdef inline bint number_steps(Worker* w, const KeySpec* keys, const OrdFlushRow* rows, int64_t total,
                              Chunk* out, StepLog* steps, bint timed) noexcept nogil:
    """Log each key of the rows, or each time and key, and set out.origin to its number. False: no memory, or
    stopped."""
    cdef int64_t i
    if steps == NULL:
        memset(out.origin, 0, <size_t> total * sizeof(int32_t))
        return True
    for i in range(total):
        if stop_due(w, i):
            return False
        if i == 0 or (timed and rows[i - 1].time != rows[i].time) or (
                keys != NULL and rows[i].key != NULL and rows[i - 1].key != NULL
                and key_compare(keys, rows[i - 1].key, rows[i].key) != 0):
            if steps_append(steps, keys, &rows[i].time if timed else NULL, rows[i].key) != 0:
                return False
        out.origin[i] = <int32_t> (steps.n - 1)
    return True


cdef Chunk* merge_flush(Worker* w, Chunk* c, const Layout* layout, bint has_views, const KeySpec* keys,
                        const char* cut, int64_t cut_time, StepLog* steps, bint timed) noexcept nogil:
    """One output chunk with what a punctuation made the buckets emit, sorted by (flush_time, key, emission
    index).

    Rows from (`cut_time`, `cut`) on are left out (NULL: none): a bucket failed at that key. With `steps`
    each key is logged, at last that of the cut, and out.origin[i] is the number of row i's step (0 without);
    `timed`: each with its time.

    Thread safety, ownership, returns: as merge_parts; NULL also where the run was stopped meanwhile: what
    the parts made is still theirs. `keys` NULL (a stateful operator): emission order is kept. Cost: O(n log
    n) comparisons of key records.
    """
    cdef int64_t total = 0
    cdef int32_t k
    cdef int32_t j
    cdef Chunk* part
    cdef Chunk* out
    cdef OrdFlushRow* rows
    for k in range(c.nparts):
        part = c.parts[k].out
        if part != NULL:
            total += part.n
    out = chunk_new(w)
    if out == NULL:
        return NULL
    if ensure_rows(w, out, layout, total if total else 1) != 0:
        return give_up(w, out)
    if total:
        rows = <OrdFlushRow*> chunk_alloc(w, out, total * <int64_t> sizeof(OrdFlushRow))
        if rows == NULL:
            return give_up(w, out)
        total = flush_rows(w, c, keys, cut, cut_time, rows)
        if total < 0 or (keys != NULL and not sort_flush(w, keys, rows, total)):
            return give_up(w, out)
        if is_late(c):
            if not show_late(w, c, layout, rows, total, out):
                return give_up(w, out)
        else:
            for j in range(layout.ncols):
                if not gather_flush(w, c, rows, total, out, j, layout.width[j]):
                    return give_up(w, out)
        if not number_steps(w, keys, rows, total, out, steps, timed):
            return give_up(w, out)
    if steps != NULL and cut != NULL and steps_append(steps, keys, &cut_time if timed else NULL, cut) != 0:
        return give_up(w, out)
    for k in range(c.nparts):
        part = c.parts[k].out
        if part == NULL:
            continue
        c.parts[k].out = NULL
        if has_views:
            chunk_hold(out, part)
        else:
            chunk_free(w, part)
    out.n = <int32_t> total
    out.slots = out.n
    return without_unmade(out, layout)
