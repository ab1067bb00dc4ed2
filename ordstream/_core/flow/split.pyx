"""Splitting chunks by bucket (split.pxd states the contract)."""
from libc.math cimport isnan
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset
from ordstream._core.ground.atomics cimport store_relaxed
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.mixing cimport mix64
from ordstream._core.state.key_records cimport key_hash


cdef inline int32_t hash_bucket(uint64_t h, int32_t p) noexcept nogil:
    return <int32_t> (((h >> 32) * <uint64_t> p) >> 32)


cdef inline int64_t int_value(const Column* col, int32_t type, int32_t s) noexcept nogil:
    if type == PT_I64 or type == PT_U64:
        return (<int64_t*> col.data)[s]
    if type == PT_I32:
        return (<int32_t*> col.data)[s]
    if type == PT_U32:
        return (<uint32_t*> col.data)[s]
    if type == PT_I16:
        return (<int16_t*> col.data)[s]
    if type == PT_U16:
        return (<uint16_t*> col.data)[s]
    if type == PT_I8:
        return (<int8_t*> col.data)[s]
    return (<uint8_t*> col.data)[s]


cdef int32_t range_bucket(const Partitioner* pt, const Chunk* c, int32_t s) noexcept nogil:
    """First bucket whose upper bound is above the key."""
    cdef const Column* col = &c.cols[pt.column]
    cdef int32_t type = pt.layout.type[pt.column]
    cdef int32_t lo = 0
    cdef int32_t hi = pt.nbounds
    cdef int32_t mid
    cdef double f
    cdef int64_t i
    if col.valid != NULL and not col.valid[s]:
        return 0
    if pt.is_float:
        f = ((<double*> col.data)[s] if type == PT_F64 else (<float*> col.data)[s] if type == PT_F32
             else <double> int_value(col, type, s))
        if isnan(f):
            return pt.nbounds
        while lo < hi:
            mid = (lo + hi) // 2
            if f < pt.float_bounds[mid]:
                hi = mid
            else:
                lo = mid + 1
        return lo
    i = int_value(col, type, s)
    while lo < hi:
        mid = (lo + hi) // 2
        if i < pt.int_bounds[mid]:
            hi = mid
        else:
            lo = mid + 1
    return lo


cdef inline int one_part(const Partitioner* pt, Worker* w, Chunk* c) noexcept nogil:
    """All rows of a chunk, at least one, in one part; c.hash is filled where the key decides. 0, or -1."""
    cdef Part* part = &c.one_part
    cdef int32_t n = c.n
    cdef int32_t k
    cdef int32_t s
    c.parts = part
    c.nparts = 1
    store_relaxed(&c.pending, 1)                              # published with the chunk
    part.chunk = c
    part.n = n
    part.out = NULL
    part.failure = NULL
    if c.sel != NULL:
        part.rows = c.sel
    else:
        part.rows = &c.one_row if n == 1 else <int32_t*> chunk_alloc(w, c, <int64_t> n * 4)
        if part.rows == NULL:
            return -1
        for k in range(n):
            part.rows[k] = k
    s = row_slot(c, 0)
    if pt.p == 1:
        part.bucket = 0
    else:
        part.bucket = range_bucket(pt, c, s) if pt.by_range else hash_bucket(c.hash[s], pt.p)
    return 0


cdef inline void count_buckets(const Partitioner* pt, Chunk* c, const uint64_t* words, uint16_t* bucket,
                               int32_t* fill) noexcept nogil:
    """The bucket of each row, and how many rows each bucket has. `words`: see split_chunk."""
    cdef int32_t n = c.n
    cdef int32_t p = pt.p
    cdef int32_t k
    cdef int32_t s
    cdef int32_t b
    cdef uint64_t* hash
    cdef uint64_t h
    if pt.by_range:
        for k in range(n):
            bucket[k] = <uint16_t> range_bucket(pt, c, row_slot(c, k))
            fill[bucket[k]] += 1
    elif words != NULL and c.hash == NULL:
        for k in range(n):
            b = hash_bucket(mix64(words[k if c.sel == NULL else c.sel[k]]), p)
            bucket[k] = <uint16_t> b
            fill[b] += 1
    elif words != NULL:
        hash = c.hash
        for k in range(n):
            s = k if c.sel == NULL else c.sel[k]
            h = mix64(words[s])
            hash[s] = h
            b = hash_bucket(h, p)
            bucket[k] = <uint16_t> b
            fill[b] += 1
    elif c.sel == NULL:
        for k in range(n):
            bucket[k] = <uint16_t> hash_bucket(c.hash[k], p)
            fill[bucket[k]] += 1
    else:
        for k in range(n):
            bucket[k] = <uint16_t> hash_bucket(c.hash[c.sel[k]], p)
            fill[bucket[k]] += 1


cdef inline int lay_parts(int32_t p, Worker* w, Chunk* c, const uint16_t* bucket, int32_t* fill,
                          int32_t* rows) noexcept nogil:
    """One part per bucket that has rows; `rows` gets their slots, part after part. 0, or -1: no memory."""
    cdef int32_t nparts = 0
    cdef int32_t k
    cdef int32_t s
    cdef int32_t b
    cdef Part* part
    for b in range(p):
        if fill[b]:
            nparts += 1
    c.parts = <Part*> chunk_alloc(w, c, nparts * <int64_t> sizeof(Part))
    if c.parts == NULL:
        return -1
    k = 0
    nparts = 0
    for b in range(p):
        if fill[b]:
            part = &c.parts[nparts]
            part.chunk = c
            part.bucket = b
            part.n = fill[b]
            part.rows = rows + k
            part.out = NULL
            part.failure = NULL
            nparts += 1
            s = fill[b]
            fill[b] = k                                       # from here on: the place of its next row
            k += s
    for k in range(c.n):
        b = bucket[k]
        rows[fill[b]] = k if c.sel == NULL else c.sel[k]
        fill[b] += 1
    c.nparts = nparts
    store_relaxed(&c.pending, nparts)                         # published with the chunk
    return 0


cdef int split_chunk(const Partitioner* pt, Worker* w, Chunk* c) noexcept nogil:
    """Fill c.parts and c.nparts (at most one part per bucket, rows in arrival order), c.pending and c.hash.

    Where not `keeps_hash`, c.hash may be NULL.

    Thread safety: the chunk's owner. Ownership: arrays are the chunk's. Returns: 0, or -1: no memory.
    Cost: ~3 ns per row: a pass that hashes and counts, and one that writes the slots; one row: no pass.
    """
    cdef int32_t n = c.n
    cdef int32_t p = pt.p
    cdef uint16_t* bucket                                     # p is below 65,536
    cdef int32_t* fill
    cdef int32_t* rows
    cdef const uint64_t* words = NULL                         # a key column of 64 bits without nulls
    c.nparts = 0
    if n == 0:
        return 0
    if (pt.keys.simple and not pt.by_range and (pt.keys.type[0] == PT_I64 or pt.keys.type[0] == PT_U64)
            and c.cols[pt.keys.column[0]].valid == NULL and n > 1 and p > 1):
        words = <const uint64_t*> c.cols[pt.keys.column[0]].data
    c.hash = NULL
    if words == NULL or pt.keeps_hash:
        c.hash = &c.one_hash if c.slots == 1 else <uint64_t*> chunk_alloc(w, c, <int64_t> c.slots * 8)
        if c.hash == NULL:
            return -1
    if words == NULL:
        key_hash(pt.keys, c, pt.layout)
    if n == 1 or p == 1:
        return one_part(pt, w, c)
    arena_reset(&w.scratch, w.pool)
    bucket = <uint16_t*> scratch_alloc(w, <int64_t> n * 2)
    fill = <int32_t*> scratch_alloc(w, <int64_t> (p + 1) * 4)
    rows = <int32_t*> chunk_alloc(w, c, <int64_t> n * 4)
    if bucket == NULL or fill == NULL or rows == NULL:
        return -1
    memset(fill, 0, <size_t> (p + 1) * 4)
    count_buckets(pt, c, words, bucket, fill)
    return lay_parts(p, w, c, bucket, fill, rows)


cdef int split_everywhere(int32_t p, Worker* w, Chunk* c) noexcept nogil:
    """One part without rows for every bucket: how a punctuation enters a partitioned operator. 0, or -1: no
    memory."""
    cdef int32_t b
    c.parts = <Part*> chunk_alloc(w, c, p * <int64_t> sizeof(Part))
    if c.parts == NULL:
        return -1
    for b in range(p):
        c.parts[b].chunk = c
        c.parts[b].bucket = b
        c.parts[b].n = 0
        c.parts[b].rows = NULL
        c.parts[b].out = NULL
        c.parts[b].failure = NULL
    c.nparts = p
    store_relaxed(&c.pending, p)                          # published with the chunk
    return 0
