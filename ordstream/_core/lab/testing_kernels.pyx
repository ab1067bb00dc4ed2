"""Test door: run one built-in kernel on Python values, single-threaded, without the runtime. Used for
testing only.

Values are storage values (ordstream/ground/types.py); strings and binaries are bytes, in and out.
"""
import functools

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from ordstream._core.ground.atomics cimport a64, load_relaxed, store_relaxed
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, PT_BOOL, PT_F32, PT_F64, PT_I8, PT_I16, PT_I32, PT_I64, PT_LIST,
    PT_U8, PT_U16, PT_U32, PT_U64, PT_VIEW, TIME, Chunk, ChunkPool, Failure, Layout, LayoutOwner, View,
    Worker, arena_reset, chunk_alloc, chunk_free, chunk_hold, chunk_new, pool_free, pool_init, row_slot,
    worker_free, worker_init,
)
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, SL, Kernel, KernelOwner
from ordstream._core.state.key_records cimport key_compare, key_hash
from ordstream._core.state.late_rows cimport late_of
from ordstream._core.state.keyed_state cimport (
    KeyedState, KeySpec, KeySpecOwner, keyed_free, keyed_init, keyed_lookup, keyed_record, keyed_state,
)
from ordstream._core.state.ranking cimport OrdRanked, ord_sort_ranked
from ordstream._core.ground.threads cimport now_ns

cdef extern from "ranking.hpp" namespace "ord" nogil:
    bint words_of(OrdRanked* v, int64_t n, const KeySpec* keys, int* used)


cdef int write_value(Worker* w, Chunk* c, int32_t type, int32_t element, char* data, int64_t i,
                     value) except -1:
    cdef bytes text
    cdef char* copy
    cdef View* v
    cdef int64_t k
    if type == PT_I8:
        (<int8_t*> data)[i] = value
    elif type == PT_I16:
        (<int16_t*> data)[i] = value
    elif type == PT_I32:
        (<int32_t*> data)[i] = value
    elif type == PT_I64:
        (<int64_t*> data)[i] = value
    elif type == PT_U8:
        (<uint8_t*> data)[i] = value
    elif type == PT_U16:
        (<uint16_t*> data)[i] = value
    elif type == PT_U32:
        (<uint32_t*> data)[i] = value
    elif type == PT_U64:
        (<uint64_t*> data)[i] = value
    elif type == PT_F32:
        (<float*> data)[i] = value
    elif type == PT_F64:
        (<double*> data)[i] = value
    elif type == PT_BOOL:
        (<uint8_t*> data)[i] = bool(value)
    elif type == PT_VIEW or type == PT_LIST:
        v = &(<View*> data)[i]
        v.size = len(value)
        copy = chunk_alloc(w, c, v.size * 16 + 1)
        if copy == NULL:
            raise MemoryError
        v.data = copy
        if type == PT_VIEW:
            text = value
            for k in range(v.size):
                copy[k] = text[k]
        else:
            for k in range(v.size):
                write_value(w, c, element, -1, copy, k, value[k])
    else:
        raise TypeError("not supported by the test door")
    return 0


cdef object read_value(int32_t type, int32_t element, const char* data, int64_t i):
    cdef const View* v
    if type == PT_I8:
        return (<const int8_t*> data)[i]
    if type == PT_I16:
        return (<const int16_t*> data)[i]
    if type == PT_I32:
        return (<const int32_t*> data)[i]
    if type == PT_I64:
        return (<const int64_t*> data)[i]
    if type == PT_U8:
        return (<const uint8_t*> data)[i]
    if type == PT_U16:
        return (<const uint16_t*> data)[i]
    if type == PT_U32:
        return (<const uint32_t*> data)[i]
    if type == PT_U64:
        return (<const uint64_t*> data)[i]
    if type == PT_F32:
        return (<const float*> data)[i]
    if type == PT_F64:
        return (<const double*> data)[i]
    if type == PT_BOOL:
        return (<const uint8_t*> data)[i] != 0
    v = &(<const View*> data)[i]
    if type == PT_VIEW:
        return v.data[:v.size] if v.size else b""
    return [read_value(element, -1, v.data, k) for k in range(v.size)]


cdef tuple read_row(const Chunk* c, const Layout* layout, int32_t slot):
    return tuple([
        None if c.cols[j].valid != NULL and c.cols[j].valid[slot] == 0
        else read_value(layout.type[j], layout.element[j], c.cols[j].data, slot)
        for j in range(layout.ncols)
    ])


cdef int64_t stop_from = 0
cdef int64_t looks_made = 0


cdef int count_down(Worker* w) noexcept nogil:
    """Worker.look: true from the look on that was asked for."""
    global looks_made
    looks_made += 1
    return stop_from > 0 and looks_made >= stop_from


cdef class KernelRun:
    """A kernel with its worker, pool and bucket states.

    Parameters
    ----------
    owner : KernelOwner
    key : sequence of int
        Key columns of a PS kernel, else ().
    buckets : int
        How many states keys are spread over.

    Attributes
    ----------
    rows : list of tuple
        Outputs so far, in the order that the contract prescribes.
    failure : tuple or None
        (chunk index, slot, code, message) of the first failing row; nothing is run after it.
    """

    cdef KernelOwner owner
    cdef KeySpecOwner keys
    cdef ChunkPool pool
    cdef Worker worker
    cdef list states
    cdef int64_t chunks
    cdef int64_t dropped   # rows that process failed on under "skip": the runtime counts these
    cdef public list rows
    cdef public object failure

    def __init__(self, KernelOwner owner, key=(), int buckets=1):
        cdef int i
        self.owner = owner
        self.rows = []
        self.failure = None
        self.states = []
        pool_init(&self.pool, 128, 1 << 20)
        worker_init(&self.worker, &self.pool, 0)
        self.keys = KeySpecOwner(key, owner.input_layout.types) if key else None
        if owner.kernel.kind != SL:
            for i in range(buckets if key else 1):
                self.states.append(<size_t> owner.kernel.bucket_new(&owner.kernel, i))

    def close(self):
        """Free all; raises when a chunk was not given back."""
        for state in self.states:
            self.owner.kernel.bucket_free(&self.owner.kernel, <void*> <size_t> state)
        self.states = []
        worker_free(&self.worker)
        live = load_relaxed(&self.pool.live)
        pool_free(&self.pool)
        assert live == 0, f"{live} chunks were not given back"

    @property
    def skipped(self):
        return load_relaxed(&self.owner.kernel.skipped) + self.dropped

    @property
    def state_bytes(self):
        total = 0
        for state in self.states:
            total += self.owner.kernel.bucket_bytes(&self.owner.kernel, <void*> <size_t> state)
        return total

    cdef Chunk* fill(self, columns, selection) except NULL:
        cdef const Layout* layout = self.owner.kernel.input
        cdef Chunk* c = chunk_new(&self.worker)
        cdef int32_t slots = len(columns[0])
        cdef int32_t i
        cdef int32_t j
        c.ncols = layout.ncols
        c.slots = slots
        c.n = slots
        c.first_serial = 1
        for j in range(layout.ncols):
            c.cols[j].valid = NULL
            c.cols[j].data = NULL
            if columns[j] is None:
                continue
            c.cols[j].data = chunk_alloc(&self.worker, c, <int64_t> slots * layout.width[j] + 1)
            memset(c.cols[j].data, 0xA5, slots * layout.width[j])      # under nulls: garbage
            for i in range(slots):
                if columns[j][i] is None:
                    if c.cols[j].valid == NULL:
                        c.cols[j].valid = <uint8_t*> chunk_alloc(&self.worker, c, slots)
                        memset(c.cols[j].valid, 1, slots)
                    c.cols[j].valid[i] = 0
                else:
                    write_value(&self.worker, c, layout.type[j], layout.element[j], c.cols[j].data, i,
                                columns[j][i])
        if selection is not None:
            c.n = len(selection)
            c.sel = <int32_t*> chunk_alloc(&self.worker, c, <int64_t> c.n * 4 + 4)
            for i in range(c.n):
                c.sel[i] = selection[i]
        return c

    def push(self, columns, selection=None):
        """One chunk: lists of values by column (None: a pruned column). Appends to `rows`; returns the rows
        it caused with the input slot of each.
        """
        cdef Chunk* c
        if self.failure is not None:
            return []
        c = self.fill(columns, selection)
        found = self.stateless(c) if self.owner.kernel.kind == SL else self.stateful(c)
        self.chunks += 1
        self.rows += [row for _, row in found]
        return found

    cdef int note(self, Failure* f) except -1:
        if self.failure is None or f.slot < self.failure[1]:
            self.failure = (self.chunks, f.slot, f.code, f.message.decode())
        return 0

    cdef list stateless(self, Chunk* c):
        cdef Kernel* k = &self.owner.kernel
        cdef Chunk* out
        cdef int32_t i
        arena_reset(&self.worker.scratch, &self.pool)
        with nogil:
            out = k.apply(k, &self.worker, c)
        if c.failure != NULL:
            self.note(c.failure)
        found = []
        for i in range(out.n):
            slot = row_slot(out, i)
            found.append((slot if out == c else out.origin[i], read_row(out, k.output, slot)))
        if out != c:
            chunk_free(&self.worker, out)
        chunk_free(&self.worker, c)
        return found

    cdef list stateful(self, Chunk* c):
        cdef Kernel* k = &self.owner.kernel
        cdef Chunk* out
        cdef Failure f
        cdef int32_t i
        cdef int32_t done
        cdef int32_t n
        cdef int32_t* rows
        cdef void* state
        c.hash = <uint64_t*> chunk_alloc(&self.worker, c, <int64_t> c.slots * 8 + 8)
        if self.keys is not None:
            key_hash(&self.keys.spec, c, k.input)
        parts = {}
        for i in range(c.n):
            slot = row_slot(c, i)
            bucket = 0 if self.keys is None else ((c.hash[slot] >> 32) * len(self.states)) >> 32
            parts.setdefault(bucket, []).append(slot)
        if k.prepare != NULL:
            assert k.prepare(k, &self.worker, c) == 0
        found = []
        dropped = set()
        for bucket, slots in parts.items():
            n = len(slots)
            rows = <int32_t*> chunk_alloc(&self.worker, c, <int64_t> n * 4 + 4)
            for i in range(n):
                rows[i] = slots[i]
            out = chunk_new(&self.worker)
            state = <void*> <size_t> self.states[bucket]
            done = 0
            while done < n:
                memset(&f, 0, sizeof(f))
                arena_reset(&self.worker.scratch, &self.pool)
                with nogil:
                    done += k.process(k, &self.worker, state, c, rows + done, n - done, out, &f)
                if done < n and k.on_error == ON_ERROR_SKIP and f.code != FAIL_MEMORY:
                    dropped.add(rows[done])
                    self.dropped += 1
                    done += 1
                elif done < n:
                    assert f.slot == rows[done]
                    self.note(&f)
                    break
            for i in range(out.n):
                found.append((out.origin[i], read_row(out, k.output, i)))
            if k.in_place:
                chunk_hold(c, out)                           # c's columns may point into it
            else:
                chunk_free(&self.worker, out)
        if k.in_place:
            order = [row_slot(c, i) for i in range(c.n)]
            if c.keep != NULL:
                dropped.update(slot for slot in order if c.keep[slot] == 0)
            if k.finish != NULL:
                assert k.finish(k, &self.worker, c) == 0
            found = [(slot, read_row(c, k.output, slot)) for slot in order if slot not in dropped]
        if self.failure is not None:
            found = [(slot, row) for slot, row in found if slot < self.failure[1]]
        chunk_free(&self.worker, c)
        return sorted(found, key=lambda pair: pair[0])

    def punctuate_until(self, int64_t look, time=None):
        """(rows, looks at the stop flag) of a punctuation of the first bucket that is stopped from look
        `look` on; 0: never."""
        cdef Kernel* k = &self.owner.kernel
        cdef Chunk* c = chunk_new(&self.worker)
        cdef Chunk* out = chunk_new(&self.worker)
        cdef Failure f
        cdef a64 stop
        global stop_from, looks_made
        store_relaxed(&stop, 0)
        stop_from = look
        looks_made = 0
        self.worker.stop = &stop
        self.worker.look = count_down
        c.kind = END_OF_STREAM if time is None else TIME
        c.time = 0 if time is None else time
        out.kind = c.kind
        arena_reset(&self.worker.scratch, &self.pool)
        memset(&f, 0, sizeof(f))
        try:
            assert k.punctuate(k, &self.worker, <void*> <size_t> self.states[0], c, out, &f) == 0, f.message
            return out.n, looks_made
        finally:
            self.worker.stop = NULL
            self.worker.look = NULL
            chunk_free(&self.worker, out)
            chunk_free(&self.worker, c)

    def punctuate(self, time=None):
        """A time punctuation, or the end of the stream (None)."""
        cdef Kernel* k = &self.owner.kernel
        cdef Chunk* c
        cdef Chunk* out
        cdef Failure f
        cdef int32_t i
        if self.failure is not None or k.punctuate == NULL:
            return []
        found = []
        outs = []
        c = chunk_new(&self.worker)
        c.kind = END_OF_STREAM if time is None else TIME
        c.time = 0 if time is None else time
        for state in self.states:
            out = chunk_new(&self.worker)
            out.kind = c.kind
            outs.append(<size_t> out)
            arena_reset(&self.worker.scratch, &self.pool)
            memset(&f, 0, sizeof(f))
            assert k.punctuate(k, &self.worker, <void*> <size_t> state, c, out, &f) == 0, f.message
            assert out.n == 0 or late_of(out) == NULL        # such rows: merge_flush shows them
            for i in range(out.n):
                found.append((out.flush_time[i], <size_t> out.flush_key[i], read_row(out, k.output, i)))

        def compare(a, b):
            if a[0] != b[0] or a[1] == 0:
                return (a[0] > b[0]) - (a[0] < b[0])
            return key_compare(&self.keys.spec, <const char*> <size_t> a[1], <const char*> <size_t> b[1])

        found.sort(key=functools.cmp_to_key(compare))
        for pointer in outs:
            chunk_free(&self.worker, <Chunk*> <size_t> pointer)
        chunk_free(&self.worker, c)
        rows = [row for _, _, row in found]
        self.rows += rows
        return rows

    def seconds(self, columns, int repeats, selection=None):
        """(seconds inside the kernel, seconds for the key hash) of `repeats` passes over one chunk; results
        are thrown away."""
        cdef Kernel* k = &self.owner.kernel
        cdef Worker* w = &self.worker
        cdef Chunk* base = self.fill(columns, selection)
        cdef Chunk* c
        cdef Chunk* out
        cdef Failure f
        cdef int _
        cdef int32_t i
        cdef int32_t j
        cdef int64_t start
        cdef int64_t spent = 0
        cdef int64_t hashing = 0
        cdef int32_t n = base.n
        cdef int32_t* rows = <int32_t*> chunk_alloc(w, base, <int64_t> n * 4 + 4)
        cdef void* state = <void*> <size_t> self.states[0] if self.states else NULL
        for i in range(n):
            rows[i] = row_slot(base, i)
        for _ in range(repeats):
            c = chunk_new(w)
            c.ncols = base.ncols
            c.slots = base.slots
            c.n = n
            c.sel = base.sel
            for j in range(base.ncols):
                c.cols[j] = base.cols[j]
            if k.kind == SL:
                start = now_ns()
                arena_reset(&w.scratch, &self.pool)
                out = k.apply(k, w, c)
                spent += now_ns() - start
                if out != c:
                    chunk_free(w, out)
            else:
                start = now_ns()
                if self.keys is not None:
                    c.hash = <uint64_t*> chunk_alloc(w, c, <int64_t> c.slots * 8 + 8)
                    key_hash(&self.keys.spec, c, k.input)
                hashing += now_ns() - start
                out = chunk_new(w)
                start = now_ns()
                arena_reset(&w.scratch, &self.pool)
                if k.prepare != NULL:
                    k.prepare(k, w, c)
                k.process(k, w, state, c, rows, n, out, &f)
                if k.finish != NULL:
                    k.finish(k, w, c)
                spent += now_ns() - start
                chunk_free(w, out)
            chunk_free(w, c)
        chunk_free(w, base)
        return spent / 1e9, hashing / 1e9


cdef class MapRun:
    """A KeyedState of counts, for testing the map alone.

    Parameters
    ----------
    types : sequence of int
        PhysicalType of each key column; all columns are key columns.
    """

    cdef KeyedState state
    cdef KeySpecOwner keys
    cdef LayoutOwner layout
    cdef ChunkPool pool
    cdef Worker worker

    def __init__(self, types):
        self.layout = LayoutOwner(types, [-1] * len(types))
        self.keys = KeySpecOwner(range(len(types)), types)
        pool_init(&self.pool, 128, 1 << 20)
        worker_init(&self.worker, &self.pool, 0)
        if keyed_init(&self.state, &self.keys.spec, 8, &self.pool) != 0:
            raise MemoryError

    def close(self):
        keyed_free(&self.state)
        worker_free(&self.worker)
        pool_free(&self.pool)

    cdef Chunk* fill(self, columns) except NULL:
        cdef Chunk* c = chunk_new(&self.worker)
        cdef int32_t j
        cdef int32_t i
        c.n = len(columns[0])
        c.slots = c.n
        c.ncols = self.layout.layout.ncols
        c.hash = <uint64_t*> chunk_alloc(&self.worker, c, <int64_t> c.n * 8 + 8)
        for j in range(c.ncols):
            c.cols[j].valid = <uint8_t*> chunk_alloc(&self.worker, c, c.n + 1)
            c.cols[j].data = chunk_alloc(&self.worker, c, <int64_t> c.n * 16 + 1)
            memset(c.cols[j].data, 0xA5, c.n * 16)
            for i in range(c.n):
                c.cols[j].valid[i] = columns[j][i] is not None
                if columns[j][i] is not None:
                    write_value(&self.worker, c, self.layout.layout.type[j], -1, c.cols[j].data, i,
                                columns[j][i])
            if None not in columns[j]:
                c.cols[j].valid = NULL
        key_hash(&self.keys.spec, c, &self.layout.layout)
        return c

    def add(self, columns):
        """Count every row's key; returns the record slot of each row."""
        cdef Chunk* c = self.fill(columns)
        cdef int32_t* slots = <int32_t*> chunk_alloc(&self.worker, c, <int64_t> c.n * 4 + 4)
        cdef int32_t* rows = <int32_t*> chunk_alloc(&self.worker, c, <int64_t> c.n * 4 + 4)
        cdef int32_t i
        for i in range(c.n):
            rows[i] = i
        assert keyed_lookup(&self.state, &self.worker, c, rows, c.n, slots) == 0
        for i in range(c.n):
            (<int64_t*> keyed_state(&self.state, slots[i]))[0] += 1
        found = [slots[i] for i in range(c.n)]
        chunk_free(&self.worker, c)
        return found

    def hashes(self, columns):
        cdef Chunk* c = self.fill(columns)
        cdef int32_t i
        found = [c.hash[i] for i in range(c.n)]
        chunk_free(&self.worker, c)
        return found

    def counts(self):
        """Counts by slot."""
        return [(<int64_t*> keyed_state(&self.state, i))[0] for i in range(self.state.count)]

    def ascending(self):
        """Slots in the order of their keys."""

        def compare(a, b):
            return key_compare(&self.keys.spec, keyed_record(&self.state, a), keyed_record(&self.state, b))

        return sorted(range(self.state.count), key=functools.cmp_to_key(compare))

    cdef OrdRanked* entries(self, slots, ranks) except NULL:
        cdef int64_t i
        cdef OrdRanked* v = <OrdRanked*> malloc((len(slots) + 1) * sizeof(OrdRanked))
        if v == NULL:
            raise MemoryError
        for i in range(<int64_t> len(slots)):
            v[i].slot = slots[i]
            v[i].rank = ranks[i]
            v[i].key = keyed_record(&self.state, v[i].slot)
        return v

    def ranked(self, slots, ranks, int64_t k):
        """The first k <= len(slots) of different slots: larger rank first, then smaller key."""
        cdef OrdRanked* v = self.entries(slots, ranks)
        ord_sort_ranked(v, <int64_t> len(slots), k, &self.keys.spec, key_compare)
        found = [v[i].slot for i in range(k)]
        free(v)
        return found

    def words(self, slots, ranks):
        """The word of each slot by which they are ranked, the bits that words have, and whether equal words
        are equal keys."""
        cdef OrdRanked* v = self.entries(slots, ranks)
        cdef int used = 0
        exact = words_of(v, <int64_t> len(slots), &self.keys.spec, &used)
        found = [<uint64_t> v[i].rank for i in range(len(slots))]
        free(v)
        return found, used, exact

    def nanoseconds(self, keys, int repeats):
        """Nanoseconds per upsert of existing int64 keys (hash excluded), and per hash; `keys` is an int64
        array of whole blocks of 1024."""
        cdef const int64_t[::1] values = keys
        cdef int64_t n = values.shape[0]
        cdef Chunk* c = chunk_new(&self.worker)
        cdef int32_t* slots
        cdef int32_t* rows
        cdef int64_t start
        cdef int64_t hashing = 0
        cdef int64_t spent = 0
        cdef int64_t k0
        cdef int32_t i
        cdef int r
        c.slots = 1024
        c.n = 1024
        c.cols[0].valid = NULL
        c.hash = <uint64_t*> chunk_alloc(&self.worker, c, 8192)
        slots = <int32_t*> chunk_alloc(&self.worker, c, 4096)
        rows = <int32_t*> chunk_alloc(&self.worker, c, 4096)
        for i in range(1024):
            rows[i] = i
        for r in range(repeats + 1):
            if r == 1:
                spent = 0
                hashing = 0
            for k0 in range(0, n - 1023, 1024):
                c.cols[0].data = <char*> &values[k0]
                start = now_ns()
                key_hash(&self.keys.spec, c, &self.layout.layout)
                hashing += now_ns() - start
                start = now_ns()
                keyed_lookup(&self.state, &self.worker, c, rows, 1024, slots)
                for i in range(1024):
                    (<int64_t*> keyed_state(&self.state, slots[i]))[0] += 1
                spent += now_ns() - start
        chunk_free(&self.worker, c)
        total = float(repeats * (n // 1024 * 1024))
        return spent / total, hashing / total
