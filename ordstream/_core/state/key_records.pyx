"""Keys in normal form. See key_records.pxd."""
from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from ordstream._core.ground.chunk cimport (
    PT_F32, PT_F64, PT_I64, PT_U64, PT_VIEW, Chunk, Column, Layout, View, Worker, chunk_alloc,
    chunk_set_valid, row_slot,
)
from ordstream._core.ground.key_spec cimport KeySpec
from ordstream._core.ground.mixing cimport mix64 as mix   # the hash of a key of one column of 64 bits
from ordstream._core.state.key_words cimport are_words, word_at, word_put, words_store

cdef extern from "key_tools.hpp" nogil:
    uint64_t ord_hash_bytes(const char* p, int64_t n, uint64_t seed)

cdef uint64_t GOLDEN = <uint64_t> 0x9E3779B97F4A7C15
cdef uint64_t NULL_HASH = <uint64_t> 0x1B873593CC9E2D51


cdef uint64_t key_hash_row(const KeySpec* ks, const Chunk* c, int32_t row) noexcept nogil:
    """Hash of one row's key, the same in every process. Thread safety: pure. Cost: ~1 ns per column."""
    cdef uint64_t h = GOLDEN
    cdef uint64_t part
    cdef const Column* col
    cdef const View* v
    cdef int32_t j
    for j in range(ks.ncols):
        col = &c.cols[ks.column[j]]
        if col.valid != NULL and col.valid[row] == 0:
            part = NULL_HASH
        elif ks.type[j] == PT_VIEW:
            v = &(<const View*> col.data)[row]
            part = ord_hash_bytes(v.data, v.size, GOLDEN)
        else:
            part = word_at(ks.type[j], col.data, row)
        if ks.ncols == 1:
            return mix(part)
        h = mix(h ^ part)
    return h


cdef uint64_t key_hash_record(const KeySpec* ks, const char* record) noexcept nogil:
    """Hash of a record's key: that of key_hash_row for a row with this key. Thread safety: pure."""
    cdef uint64_t nulls = (<const uint64_t*> record)[0]
    cdef uint64_t h = GOLDEN
    cdef uint64_t part
    cdef const View* v
    cdef int32_t j
    for j in range(ks.ncols):
        v = <const View*> (record + ks.offset[j])
        if (nulls >> j) & 1:
            part = NULL_HASH
        elif ks.type[j] == PT_VIEW:
            part = ord_hash_bytes(v.data, v.size, GOLDEN)
        else:
            part = (<const uint64_t*> v)[0]
        if ks.ncols == 1:
            return mix(part)
        h = mix(h ^ part)
    return h


cdef void key_hash(const KeySpec* ks, Chunk* c, const Layout* layout) noexcept nogil:
    """Fill c.hash[slot] (allocated by the caller, one per slot) for every selected row.

    Thread safety: the chunk's owner. Cost: ~1 ns per row and fixed-width column.
    """
    cdef int32_t j
    cdef int32_t k
    cdef int32_t row
    cdef int32_t type
    cdef const Column* col = &c.cols[ks.column[0]] if ks.ncols else NULL
    cdef uint64_t* h = c.hash
    if ks.simple and col.valid == NULL and c.sel == NULL and (ks.type[0] == PT_I64 or ks.type[0] == PT_U64):
        for k in range(c.n):
            h[k] = mix((<const uint64_t*> col.data)[k])
        return
    if ks.has_views or ks.ncols == 0 or (ks.simple and col.valid != NULL):
        for k in range(c.n):
            row = row_slot(c, k)
            h[row] = key_hash_row(ks, c, row)
        return
    if ks.simple:
        for k in range(c.n):
            row = row_slot(c, k)
            h[row] = mix(word_at(ks.type[0], col.data, row))
        return
    for k in range(c.n):
        h[row_slot(c, k)] = GOLDEN
    for j in range(ks.ncols):                                # column by column, the same function
        col = &c.cols[ks.column[j]]
        type = ks.type[j]
        if col.valid != NULL:
            for k in range(c.n):
                row = row_slot(c, k)
                h[row] = mix(h[row] ^ (word_at(type, col.data, row) if col.valid[row] else NULL_HASH))
        elif c.sel == NULL and (type == PT_I64 or type == PT_U64):
            for k in range(c.n):
                h[k] = mix(h[k] ^ (<const uint64_t*> col.data)[k])
        else:
            for k in range(c.n):
                row = row_slot(c, k)
                h[row] = mix(h[row] ^ word_at(type, col.data, row))


cdef int key_compare(const KeySpec* ks, const char* a, const char* b) noexcept nogil:
    """<0, 0, >0 as the records sort. Thread safety: pure. Cost: a few ns per column until the first
    difference."""
    cdef uint64_t nulls_a = (<const uint64_t*> a)[0]
    cdef uint64_t nulls_b = (<const uint64_t*> b)[0]
    cdef int32_t j
    cdef int32_t type
    cdef bint null_a
    cdef bint null_b
    cdef const char* p
    cdef const char* q
    cdef int64_t n
    cdef int order
    for j in range(ks.ncols):
        null_a = (nulls_a >> j) & 1
        null_b = (nulls_b >> j) & 1
        if null_a or null_b:
            if null_a != null_b:
                return -1 if null_a else 1
            continue
        p = a + ks.offset[j]
        q = b + ks.offset[j]
        type = ks.type[j]
        if type == PT_VIEW:
            n = min((<const View*> p).size, (<const View*> q).size)
            order = memcmp((<const View*> p).data, (<const View*> q).data, n) if n else 0
            if order != 0:
                return order
            if (<const View*> p).size != (<const View*> q).size:
                return -1 if (<const View*> p).size < (<const View*> q).size else 1
        elif (<const uint64_t*> p)[0] == (<const uint64_t*> q)[0]:
            continue
        elif type == PT_F64 or type == PT_F32:
            if isnan((<const double*> p)[0]):
                return 1
            if isnan((<const double*> q)[0]):
                return -1
            return -1 if (<const double*> p)[0] < (<const double*> q)[0] else 1
        elif type == PT_U64:
            return -1 if (<const uint64_t*> p)[0] < (<const uint64_t*> q)[0] else 1
        else:
            return -1 if (<const int64_t*> p)[0] < (<const int64_t*> q)[0] else 1
    return 0


cdef void key_read(const KeySpec* ks, const Chunk* c, int32_t row, char* record) noexcept nogil:
    """The key of a row as a record whose views still point into the chunk.

    Thread safety: pure. Ownership: `record` (ks.size bytes) is the caller's; views are borrowed. Returns:
    nothing. Cost: ~1 ns per column.
    """
    cdef uint64_t nulls = 0
    cdef const Column* col
    cdef int32_t n = ks.ncols
    cdef int32_t j
    for j in range(n if ks.words else 0):
        col = &c.cols[ks.column[j]]
        if col.valid != NULL and col.valid[row] == 0:
            nulls |= (<uint64_t> 1) << j
            (<uint64_t*> record)[1 + j] = 0
        else:
            (<uint64_t*> record)[1 + j] = (<const uint64_t*> col.data)[row]
    for j in range(0 if ks.words else n):
        col = &c.cols[ks.column[j]]
        if col.valid != NULL and col.valid[row] == 0:
            nulls |= (<uint64_t> 1) << j
            memset(record + ks.offset[j], 0, 16 if ks.type[j] == PT_VIEW else 8)
        elif ks.type[j] == PT_VIEW:
            (<View*> (record + ks.offset[j]))[0] = (<const View*> col.data)[row]
        else:
            (<uint64_t*> (record + ks.offset[j]))[0] = word_at(ks.type[j], col.data, row)
    (<uint64_t*> record)[0] = nulls


cdef bint key_equals(const KeySpec* ks, const Chunk* c, int32_t row, const char* record) noexcept nogil:
    """Whether a row's key is that of a record. Thread safety: pure."""
    cdef uint64_t nulls = (<const uint64_t*> record)[0]
    cdef const Column* col
    cdef const View* v
    cdef const View* stored
    cdef int32_t j
    cdef bint is_null
    if nulls == 0 and ks.words:
        for j in range(ks.ncols):
            col = &c.cols[ks.column[j]]
            if ((<const uint64_t*> record)[1 + j] != (<const uint64_t*> col.data)[row]
                    or (col.valid != NULL and col.valid[row] == 0)):
                return False
        return True
    for j in range(ks.ncols):
        col = &c.cols[ks.column[j]]
        is_null = col.valid != NULL and col.valid[row] == 0
        if is_null != <bint> ((nulls >> j) & 1):
            return False
        if is_null:
            continue
        if ks.type[j] == PT_VIEW:
            v = &(<const View*> col.data)[row]
            stored = <const View*> (record + ks.offset[j])
            if v.size != stored.size or (v.size and memcmp(v.data, stored.data, v.size) != 0):
                return False
        elif (<const uint64_t*> (record + ks.offset[j]))[0] != word_at(ks.type[j], col.data, row):
            return False
    return True


cdef int key_store(const KeySpec* ks, const char* record, Worker* w, Chunk* out,
                   int32_t index) noexcept nogil:
    """Write a record's key into columns 0..ncols-1 of `out` (reserved) at `index`.

    Thread safety: the owner of `out`. Ownership: string columns point to the record's bytes, which live as
    long as the state.
    Returns: 0, or -1: no memory. Cost: ~1 ns per column.
    """
    cdef uint64_t nulls = (<const uint64_t*> record)[0]
    cdef const Column* cols = out.cols                       # what is written may be anything, to a compiler
    cdef const int32_t* types = ks.type
    cdef const int32_t* offset = ks.offset
    cdef int32_t j
    if are_words(ks, record):
        words_store(ks, record, out, index)
        return 0
    for j in range(ks.ncols):
        if types[j] == PT_VIEW:
            (<View*> cols[j].data)[index] = (<const View*> (record + offset[j]))[0]
        else:
            word_put(types[j], cols[j].data, index, (<const uint64_t*> (record + offset[j]))[0])
        if (nulls >> j) & 1:
            if chunk_set_valid(w, out, j) != 0:
                return -1
            cols[j].valid[index] = 0
        elif cols[j].valid != NULL:
            cols[j].valid[index] = 1
    return 0


cdef int key_copy(const KeySpec* ks, const char* record, Worker* w, Chunk* out, char* to) noexcept nogil:
    """Copy a record to `to` (ks.size bytes in out's arena), its strings into out's arena.

    Thread safety: the owner of `out`. Ownership: out's arena. Returns: 0, or -1: no memory. Cost: a copy.
    """
    cdef View* v
    cdef char* bytes
    cdef int32_t j
    memcpy(to, record, ks.size)
    if ks.has_views:
        for j in range(ks.ncols):
            v = <View*> (to + ks.offset[j])
            if ks.type[j] == PT_VIEW and v.size > 0:
                bytes = chunk_alloc(w, out, v.size)
                if bytes == NULL:
                    return -1
                memcpy(bytes, v.data, v.size)
                v.data = bytes
    return 0
