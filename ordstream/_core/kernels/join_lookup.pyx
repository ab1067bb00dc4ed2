"""Operator "join_lookup": each row with the rows of a static table that have its key; or the rows whose key
the table has, or has not. Contract: kernel.pxd (a).

a) The table is imported and indexed when the kernel is made, once per run. From then on it is read-only:
   workers share it without a lock, and strings of it are shown where they lie.
b) The index is a keyed map (keyed_state.pxd) from key to rows of the table. Rows without a whole key are
   not in it. Where each key has one row, the rows stay in their chunk: its selection narrows, and columns
   are added. Else a new chunk is made, with the rows of a key one behind the other, in the table's order.
c) Lookups go in blocks of three passes, so that cache misses overlap: prefetch cells; find candidates and
   prefetch their records; compare keys.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.chunk cimport (
    DATA, FAIL_MEMORY, PT_I64, PT_LIST, PT_U64, PT_VIEW, Chunk, ChunkPool, Column, Layout, LayoutOwner,
    Worker, chunk_alloc, chunk_new, chunk_reserve, chunk_set_valid, row_slot, scratch_alloc,
)
from ordstream._core.ground.imported_batch cimport Batch, BatchFormats, batch_free, batch_import, batch_new
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport chunk_fail, chunk_fail_all, owner_setup
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.ground.threads cimport prefetch_write
from ordstream._core.state.key_records cimport key_equals, key_hash, key_hash_row
from ordstream._core.state.keyed_state cimport (
    LOOKUP_BLOCK, PREFETCH_ENTRIES, KeyedState, KeyEntry, KeySpec, KeySpecOwner, keyed_free, keyed_init,
    keyed_record, keyed_state, keyed_upsert,
)

cdef struct Matches:
    # State of a key: its rows are first, ..., first + n - 1 of `rows`, or of the table where that is NULL.
    int32_t first
    int32_t n

cdef struct LookupContext:
    # Read-only once it is made. Memory ownership: JoinLookupKernel.
    const KeySpec* keys    # of the tuples
    KeyedState index       # key -> Matches
    ChunkPool pool         # counts the bytes of the index's strings; only `bytes` is used
    Batch* table           # key columns, then those that are shown
    int32_t* rows          # rows of the table, those of a key together; NULL: no key has two
    int32_t ninput         # input columns
    int32_t nkeys
    int32_t nshown
    int32_t all_rows       # 1: rows without a match are given too, with nulls
    int32_t matched        # where rows are only kept: 1: those with a match; 0: the others
    int32_t repeated       # the first row of the table whose key one before it has; 0: there is none
    int32_t repeats        # and the first row of that key


# -------------------------------------------------------------------------------- the index


cdef inline bint whole_key(const KeySpec* keys, const Chunk* c, int32_t row) noexcept nogil:
    """Whether no key column of a row is null."""
    cdef const uint8_t* valid
    cdef int32_t j
    for j in range(keys.ncols):
        valid = c.cols[keys.column[j]].valid
        if valid != NULL and valid[row] == 0:
            return False
    return True


cdef int index_table(LookupContext* x, const KeySpec* keys) noexcept nogil:
    """Put the table's rows into the index. 0, or -1: no memory."""
    cdef Chunk c
    cdef Matches* m
    cdef int32_t n = <int32_t> x.table.rows
    cdef int32_t* slots = <int32_t*> malloc(<size_t> n * 4 + 4)
    cdef int32_t first = 0
    cdef int32_t i
    if slots == NULL:
        return -1
    memset(<void*> &c, 0, sizeof(Chunk))
    c.cols = x.table.cols
    c.ncols = x.nkeys
    for i in range(n):
        slots[i] = -1
        if not whole_key(keys, &c, i):
            continue
        slots[i] = <int32_t> keyed_upsert(&x.index, &c, i, key_hash_row(keys, &c, i))
        if slots[i] < 0:
            free(slots)
            return -1
        m = <Matches*> keyed_state(&x.index, slots[i])
        if m.n == 0:
            m.first = i
        m.n += 1
        if m.n == 2 and x.repeated == 0:
            x.repeated = i
            x.repeats = m.first
    if x.repeated:
        x.rows = <int32_t*> malloc(<size_t> n * 4 + 4)
        if x.rows == NULL:
            free(slots)
            return -1
        for i in range(<int32_t> x.index.count):
            m = <Matches*> keyed_state(&x.index, i)
            m.first = first
            first += m.n
            m.n = 0
        for i in range(n):
            if slots[i] < 0:
                continue
            m = <Matches*> keyed_state(&x.index, slots[i])
            x.rows[m.first + m.n] = i
            m.n += 1
    free(slots)
    return 0


# -------------------------------------------------------------------------------- lookups


cdef inline int32_t next_candidate(const KeyedState* s, uint32_t tag, int64_t* at) noexcept nogil:
    """The record of the next cell from `at` on that has the tag, or -1: the key is not there."""
    cdef int64_t mask = s.capacity - 1
    cdef const KeyEntry* e
    while True:
        e = &s.table[at[0] & mask]
        at[0] += 1
        if e.record == 0:
            return -1
        if e.tag == tag:
            return e.record - 1


cdef void find_block(LookupContext* x, const Chunk* c, const uint64_t* hash, int32_t from_row, int32_t n,
                     int32_t* found) noexcept nogil:
    """Record of the key of each of n <= LOOKUP_BLOCK selected rows from `from_row` on; -1: there is none.

    Thread safety: any worker. Ownership: none. Cost: two cache misses per row, which overlap.
    """
    cdef KeyedState* s = &x.index
    cdef const KeySpec* keys = x.keys
    cdef const uint64_t* words = NULL                        # a single 64-bit key: its values
    cdef int64_t[LOOKUP_BLOCK] at
    cdef int64_t mask = s.capacity - 1
    cdef bint far = s.capacity >= PREFETCH_ENTRIES
    cdef const uint64_t* record
    cdef int32_t row
    cdef int32_t i
    if keys.simple and (keys.type[0] == PT_I64 or keys.type[0] == PT_U64):
        words = <const uint64_t*> c.cols[keys.column[0]].data
    if far:
        for i in range(n):
            prefetch_write(&s.table[<uint32_t> hash[row_slot(c, from_row + i)] & mask])
    for i in range(n):
        row = row_slot(c, from_row + i)
        at[i] = <uint32_t> hash[row] & mask
        found[i] = next_candidate(s, <uint32_t> hash[row], &at[i]) if whole_key(keys, c, row) else -1
        if far and found[i] >= 0:
            prefetch_write(keyed_record(s, found[i]))
    for i in range(n):
        row = row_slot(c, from_row + i)
        while found[i] >= 0:
            record = <const uint64_t*> keyed_record(s, found[i])
            if record[1] == words[row] if words != NULL else key_equals(keys, c, row, <const char*> record):
                break
            found[i] = next_candidate(s, <uint32_t> hash[row], &at[i])


cdef int32_t* find_all(LookupContext* x, Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Record of the key of each selected row, -1: there is none. NULL: no memory. Ownership: scratch."""
    cdef int32_t* found = <int32_t*> scratch_alloc(w, <int64_t> c.n * 4)
    cdef uint64_t* hash = <uint64_t*> scratch_alloc(w, <int64_t> c.slots * 8)
    cdef uint64_t* before = c.hash                           # of another operator's key
    cdef int32_t i = 0
    if found == NULL or hash == NULL:
        return NULL
    c.hash = hash
    key_hash(x.keys, c, k.input)
    c.hash = before
    while i < c.n:
        find_block(x, c, hash, i, min(c.n - i, <int32_t> LOOKUP_BLOCK), found + i)
        i += LOOKUP_BLOCK
    return found


# -------------------------------------------------------------------------------- columns of the table


cdef void take(char* to, const int32_t* places, const char* data, const int32_t* rows, int32_t n,
               int32_t width) noexcept nogil:
    """to[places[i]] = data[rows[i]], zero where that row is -1. `places` NULL: i."""
    cdef int32_t i
    cdef int32_t place
    if width == 8:
        for i in range(n):
            place = i if places == NULL else places[i]
            (<int64_t*> to)[place] = (<const int64_t*> data)[rows[i]] if rows[i] >= 0 else 0
    elif width == 4:
        for i in range(n):
            place = i if places == NULL else places[i]
            (<int32_t*> to)[place] = (<const int32_t*> data)[rows[i]] if rows[i] >= 0 else 0
    else:
        for i in range(n):
            place = i if places == NULL else places[i]
            if rows[i] >= 0:
                memcpy(to + <int64_t> place * width, data + <int64_t> rows[i] * width, width)
            else:
                memset(to + <int64_t> place * width, 0, width)


cdef void take_valid(uint8_t* to, const int32_t* places, const uint8_t* valid, const int32_t* rows,
                     int32_t n) noexcept nogil:
    """Of the same rows whether there is a value. `valid` NULL: the table has no nulls."""
    cdef int32_t i
    for i in range(n):
        to[i if places == NULL else places[i]] = rows[i] >= 0 and (valid == NULL or valid[rows[i]] != 0)


cdef Chunk* lookup_one(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Rows with the one row of the table that each key has. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: narrows `c` itself; new columns lie in its arena, their strings in
    the table. Returns: c. Cost: a lookup per row, ~1 ns per row and column of the table.
    """
    cdef LookupContext* x = <LookupContext*> k.ctx
    cdef Column* col
    cdef const Column* source
    cdef int32_t* rows                                       # of the table, for each selected row
    cdef int32_t* sel = c.sel
    cdef int32_t m = 0
    cdef int32_t i
    cdef int32_t j
    cdef bint unmatched = False
    for j in range(x.nshown):
        c.cols[x.ninput + j].data = NULL
        c.cols[x.ninput + j].valid = NULL
    c.ncols = x.ninput + x.nshown
    if c.n == 0:
        return c
    rows = find_all(x, k, w, c)
    if rows == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if sel == NULL and not x.all_rows:
        sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
        if sel == NULL:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
    for i in range(c.n):
        if rows[i] < 0 and not x.all_rows:
            continue
        unmatched = unmatched or rows[i] < 0
        rows[m] = (<Matches*> keyed_state(&x.index, rows[i])).first if rows[i] >= 0 else -1
        if not x.all_rows:
            sel[m] = row_slot(c, i)
        m += 1
    c.n = m
    if c.sel != NULL or m != c.slots:                        # all rows of a dense chunk: it stays dense
        c.sel = sel
    for j in range(x.nshown if m else 0):
        source = &x.table.cols[x.nkeys + j]
        col = &c.cols[x.ninput + j]
        col.data = chunk_alloc(w, c, <int64_t> c.slots * k.output.width[x.ninput + j] + 8)
        if col.data == NULL:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
        take(col.data, c.sel, source.data, rows, m, k.output.width[x.ninput + j])
        if not unmatched and source.valid == NULL:
            continue
        col.valid = <uint8_t*> chunk_alloc(w, c, c.slots)
        if col.valid == NULL:
            return chunk_fail_all(c, -1, FAIL_MEMORY)
        take_valid(col.valid, c.sel, source.valid, rows, m)
    return c


cdef int spread(LookupContext* x, Kernel* k, Worker* w, const Chunk* c, const int32_t* rows, int32_t n,
                Chunk* out) noexcept nogil:
    """Fill the columns of n rows of `out`, whose origins are set, and which show these rows of the table.
    0, or -1: no memory."""
    cdef const Column* source
    cdef Column* to
    cdef int32_t j
    for j in range(x.ninput):
        source = &c.cols[j]
        to = &out.cols[j]
        if source.data == NULL:                              # a column that nothing reads
            memset(to.data, 0, <size_t> n * k.output.width[j])
        else:
            gather(to.data, source.data, out.origin, n, k.output.width[j])
        if source.valid != NULL:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            gather(<char*> to.valid, <const char*> source.valid, out.origin, n, 1)
    for j in range(x.nshown):
        source = &x.table.cols[x.nkeys + j]
        to = &out.cols[x.ninput + j]
        take(to.data, NULL, source.data, rows, n, k.output.width[x.ninput + j])
        if x.all_rows or source.valid != NULL:
            if chunk_set_valid(w, out, x.ninput + j) != 0:
                return -1
            take_valid(to.valid, NULL, source.valid, rows, n)
    return 0


cdef Chunk* lookup_many(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Rows with each row of the table that has their key. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: a new chunk; its views point into `c` and into the table. Returns:
    it; `c` when there is no memory. Cost: a lookup per row, ~1 ns per output and column.
    """
    cdef LookupContext* x = <LookupContext*> k.ctx
    cdef const Matches* m
    cdef Chunk* out = chunk_new(w)
    cdef int32_t* found
    cdef int32_t* rows
    cdef int64_t total = 0
    cdef int32_t at = 0
    cdef int32_t i
    cdef int32_t one
    if out == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if c.n == 0:
        return out
    found = find_all(x, k, w, c)
    for i in range(c.n if found != NULL else 0):
        if found[i] >= 0:
            total += (<Matches*> keyed_state(&x.index, found[i])).n
        else:
            total += x.all_rows
    if found == NULL or total > 0x7fffffff:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    if total == 0:
        return out
    rows = <int32_t*> scratch_alloc(w, total * 4)
    if rows == NULL or chunk_reserve(w, out, k.output, <int32_t> total) != 0:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    for i in range(c.n):
        if found[i] < 0:
            if x.all_rows:
                rows[at] = -1
                out.origin[at] = row_slot(c, i)
                at += 1
            continue
        m = <const Matches*> keyed_state(&x.index, found[i])
        for one in range(m.first, m.first + m.n):
            rows[at] = x.rows[one]
            out.origin[at] = row_slot(c, i)
            at += 1
    if spread(x, k, w, c, rows, at, out) != 0:
        chunk_fail(c, -1, FAIL_MEMORY)
        return out
    out.n = at
    out.slots = at
    return out


cdef Chunk* lookup_kept(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Rows whose key the table has, or has not. Contract: kernel.pxd (a).

    Thread safety: any worker. Ownership: narrows `c` itself; a new selection lies in its arena. Returns: c.
    Cost: a lookup per row.
    """
    cdef LookupContext* x = <LookupContext*> k.ctx
    cdef int32_t* found
    cdef int32_t* sel = c.sel
    cdef int32_t n = 0
    cdef int32_t i
    if c.n == 0:
        return c
    found = find_all(x, k, w, c)
    if found != NULL and sel == NULL:
        sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
    if found == NULL or sel == NULL:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    for i in range(c.n):
        sel[n] = row_slot(c, i)
        n += (found[i] >= 0) == x.matched
    c.sel = sel
    c.n = n
    return c


cdef class JoinLookupKernel(KernelOwner):
    """Operator "join_lookup". Attributes: `on`, input columns; `table`, a RecordBatch of as many key columns
    of the same types, then of the columns that are shown; `how`, "inner", "left", "semi" or "anti".

    Memory ownership: imports the table, which stays as long as the kernel.
    """

    cdef LookupContext context
    cdef KeySpecOwner keys
    cdef KeySpecOwner table_keys
    cdef LayoutOwner table_layout
    cdef BatchFormats formats

    def __init__(self, operator):
        from ordstream._core.ground.chunk import layout_of

        cdef LookupContext* x = &self.context
        cdef int32_t j
        owner_setup(self, operator, SL)
        table = operator.table
        self.table_layout = layout_of(table.schema)
        inputs = self.input_layout.types
        outputs = self.output_layout.types
        x.nkeys = <int32_t> len(operator.on)
        x.ninput = <int32_t> len(inputs)
        x.nshown = self.table_layout.layout.ncols - x.nkeys
        x.all_rows = operator.how == "left"
        x.matched = operator.how == "semi"
        if ([inputs[column] for column in operator.on] != self.table_layout.types[:x.nkeys]
                or outputs != inputs + self.table_layout.types[x.nkeys:]):
            raise ValueError(f"{operator.name!r}: the table must have the key columns, then those that are "
                             f"shown behind the input's")
        self.keys = KeySpecOwner(operator.on, inputs)
        self.table_keys = KeySpecOwner(range(x.nkeys), self.table_layout.types)
        x.keys = &self.keys.spec
        self.import_table(table)
        self.kernel.ctx = <void*> x
        if operator.how in ("semi", "anti"):
            self.kernel.apply = lookup_kept
        else:
            self.kernel.apply = lookup_one if x.rows == NULL else lookup_many
        for j in range(x.ninput):
            if self.kernel.apply == lookup_many and inputs[j] in (PT_VIEW, PT_LIST):
                self.kernel.keeps_views = 1

    cdef int import_table(self, object table) except -1:
        """Import and index the table. Raises MemoryError, TypeError for a layout that the core does not
        read."""
        cdef LookupContext* x = &self.context
        cdef ArrowArray* array
        cdef const Layout* layout = &self.table_layout.layout
        cdef uint8_t* used
        cdef int rc
        self.formats = BatchFormats(table.schema)
        _, capsule = table.__arrow_c_array__()
        array = <ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array")
        x.table = batch_new(layout.ncols, DATA)
        used = <uint8_t*> malloc(layout.ncols + 1)
        if x.table == NULL or used == NULL:
            free(used)
            raise MemoryError
        memset(used, 1, layout.ncols)
        memcpy(&x.table.array, array, sizeof(ArrowArray))
        array.release = NULL
        with nogil:
            rc = batch_import(x.table, layout, used, self.formats.formats)
            if rc == 0:
                rc = keyed_init(&x.index, &self.table_keys.spec, sizeof(Matches), &x.pool)
            if rc == 0:
                rc = index_table(x, &self.table_keys.spec)
        free(used)
        if rc < -1:
            raise TypeError(f"column {table.schema.names[-2 - rc]!r} of the table has a layout that the "
                            f"core does not read (a list with null elements?)")
        if rc != 0:
            raise MemoryError
        return 0

    @property
    def repeated(self):
        """The first two rows of the table with one key, or None."""
        return (self.context.repeats, self.context.repeated) if self.context.repeated else None

    def __dealloc__(self):
        keyed_free(&self.context.index)
        free(self.context.rows)
        if self.context.table != NULL:
            batch_free(self.context.table)
