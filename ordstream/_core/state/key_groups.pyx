"""Key groups: the canonical order of rows of state (docs/checkpoint-format.md, "Key groups").

a) The group of a key is a pure function of its value: of no worker, bucket, batch or machine (of one byte
   order). It is not the hash of the buckets, so that one may change without the other. Files hold it: a
   change needs a new KEY_HASH_VERSION, and the old function beside the new one.
b) A word of 64 bits is made of each key, such that smaller keys never have larger words: of each column, in
   turn, only the bits in which its values differ (integers: behind the smallest value; strings: bytes behind
   the common beginning). Mostly that is the whole key. Keys with equal words are compared column by column.
c) One pass makes groups and words in the order of the rows; one puts the entries into their groups; each
   group is sorted where it lies, which is in the cache.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from ordstream._core.ground.arrow_structs cimport ArrowArray
from ordstream._core.ground.imported_batch cimport Batch, BatchFormats, batch_free, batch_import, batch_new
from ordstream._core.ground.chunk cimport DATA, LayoutOwner
from ordstream._core.ground.chunk cimport (
    PT_BOOL, PT_F32, PT_F64, PT_I8, PT_I16, PT_I32, PT_I64, PT_U8, PT_U16, PT_U32,
    PT_U64, PT_VIEW,
)
from ordstream._core.ground.low_priority cimport run_work
from ordstream._core.ground.mixing cimport mix64

import numpy as np
from ordstream._core.ground.chunk import layout_of

cdef enum:
    NGROUPS = 1024             # key groups: the ten highest bits of a key's hash
    GROUP_SHIFT = 54           # 64 less those ten

GROUPS = NGROUPS
KEY_HASH_VERSION = 1

cdef uint64_t SEED = <uint64_t> 0x9E3779B97F4A7C15
cdef uint64_t NULL_PART = <uint64_t> 0x1B873593CC9E2D51
cdef uint64_t SIGN = <uint64_t> 1 << 63

cdef extern from "key_tools.hpp" nogil:
    uint64_t ord_hash_bytes(const char* p, int64_t n, uint64_t seed)

cdef extern from *:
    """
    #include <algorithm>
    #include <cstdint>
    #include <cstring>

    struct OrdText { const char* data; int64_t size; };      // as View (chunk.pxd)
    struct OrdKeyColumn {      // one key column of the rows that are put in order
        const uint64_t* words; // value as an unsigned integer of the same order; NULL: strings
        const OrdText* texts;
        const uint8_t* valid;  // one byte per row, 0: null; NULL: no nulls
        uint64_t least;        // smallest word
        int64_t skip;          // strings: bytes that all of them begin with
        int32_t bits;          // of a key's word that this column has, its null flag not counted
        int32_t shift;         // words: lowest bits that had no room
        int32_t flag;          // 1: the highest bit says whether there is a value
    };
    struct OrdEntry { uint64_t word; int64_t row; };

    // -1, 0 or 1: nulls first, NaN last (its word is the largest), strings by bytes.
    static int ord_keys_compare(const OrdKeyColumn* columns, int32_t n, int64_t a, int64_t b) {
        for (int32_t j = 0; j < n; j++) {
            const OrdKeyColumn& c = columns[j];
            const bool is_a = c.valid == nullptr || c.valid[a], is_b = c.valid == nullptr || c.valid[b];
            if (is_a != is_b) return is_a ? 1 : -1;
            if (!is_a) continue;
            if (c.words != nullptr) {
                if (c.words[a] != c.words[b]) return c.words[a] < c.words[b] ? -1 : 1;
                continue;
            }
            const OrdText& s = c.texts[a];
            const OrdText& t = c.texts[b];
            const int64_t shorter = std::min(s.size, t.size);
            const int sign = shorter ? std::memcmp(s.data, t.data, (size_t) shorter) : 0;
            if (sign != 0) return sign < 0 ? -1 : 1;
            if (s.size != t.size) return s.size < t.size ? -1 : 1;
        }
        return 0;
    }
    static int64_t ord_common(const char* a, const char* b, int64_t most) {    // bytes that both begin with
        int64_t i = 0;
        uint64_t x, y;
        for (; i + 8 <= most; i += 8) {
            std::memcpy(&x, a + i, 8);
            std::memcpy(&y, b + i, 8);
            if (x != y) break;
        }
        while (i < most && a[i] == b[i]) i++;
        return i;
    }
    // `bytes` bytes (at most 8) of a string from `skip`, as an integer of their order; zeros behind its end.
    static inline uint64_t ord_text_word(const char* data, int64_t size, int64_t skip, int32_t bytes) {
        uint64_t word = 0;
        const int64_t stop = std::min(size - skip, (int64_t) bytes);
        for (int64_t i = 0; i < stop; i++) word = word << 8 | (uint8_t) data[skip + i];
        return stop <= 0 ? 0 : word << (8 * (bytes - stop));
    }
    static inline int32_t ord_bits(uint64_t v) {
        int32_t n = 0;
        for (; v; v >>= 1) n++;
        return n;
    }
    // By word, 8 bits at a time from the lowest, but for those that are the same in all. `spare`: room for n
    static void ord_sort_words(OrdEntry* v, OrdEntry* spare, int64_t n, int32_t bits) {
        uint32_t counts[8][256];
        const int32_t digits = (bits + 7) / 8;
        if (n < 128) {
            std::sort(v, v + n, [](const OrdEntry& a, const OrdEntry& b) { return a.word < b.word; });
            return;
        }
        std::memset(counts, 0, sizeof(counts[0]) * (size_t) digits);
        for (int64_t i = 0; i < n; i++)
            for (int32_t d = 0; d < digits; d++) counts[d][v[i].word >> 8 * d & 255]++;
        OrdEntry* from = v;
        OrdEntry* to = spare;
        for (int32_t d = 0; d < digits; d++) {
            uint32_t* at = counts[d];
            if (at[v[0].word >> 8 * d & 255] == n) continue;
            for (uint32_t g = 0, sum = 0, here; g < 256; g++, sum += here) here = at[g], at[g] = sum;
            for (int64_t i = 0; i < n; i++) to[at[from[i].word >> 8 * d & 255]++] = from[i];
            std::swap(from, to);
        }
        if (from != v) std::memcpy(v, from, sizeof(OrdEntry) * (size_t) n);
    }
    // Sort rows whose words are equal: new words are made of the first column in which they differ. Returns
    // a row whose key another one has, or -1.
    static int64_t ord_sort_equals(OrdEntry* v, int64_t n, const OrdKeyColumn* columns, int32_t ncolumns) {
        for (int32_t j = 0; n > 16 && j < ncolumns; j++) {
            const OrdKeyColumn& c = columns[j];
            int64_t nulls = 0, skip = 0;
            for (int64_t i = 0; i < n; i++) nulls += c.valid != nullptr && !c.valid[v[i].row];
            if (nulls == n) continue;
            if (nulls) break;                                    // rare: compared one by one
            if (c.words == nullptr) {
                const OrdText& head = c.texts[v[0].row];
                bool same = true;
                skip = head.size;
                for (int64_t i = 1; i < n; i++) {
                    const OrdText& s = c.texts[v[i].row];
                    skip = ord_common(head.data, s.data, std::min(skip, s.size));
                    same = same && skip == head.size && s.size == head.size;
                }
                if (same) continue;
                for (int64_t i = 0; i < n; i++) {
                    const OrdText& s = c.texts[v[i].row];
                    v[i].word = ord_text_word(s.data, s.size, skip, 8);
                }
            } else {
                bool same = true;
                for (int64_t i = 0; i < n; i++) {
                    v[i].word = c.words[v[i].row];
                    same = same && v[i].word == v[0].word;
                }
                if (same) continue;
            }
            break;
        }
        std::sort(v, v + n, [=](const OrdEntry& a, const OrdEntry& b) {
            return a.word != b.word ? a.word < b.word
                                    : ord_keys_compare(columns, ncolumns, a.row, b.row) < 0;
        });
        for (int64_t i = 1; i < n; i++)
            if (v[i].word == v[i - 1].word
                && ord_keys_compare(columns, ncolumns, v[i - 1].row, v[i].row) == 0)
                return std::max(v[i].row, v[i - 1].row);
        return -1;
    }
    // Sort a group by words of so many bits. `exact`: keys with equal words are equal. Returns a row whose
    // key another one has, or -1.
    static int64_t ord_sort_group(OrdEntry* v, OrdEntry* spare, int64_t n, int32_t bits, bool exact,
                                  const OrdKeyColumn* columns, int32_t ncolumns) {
        ord_sort_words(v, spare, n, bits);
        for (int64_t low = 0, high; low < n; low = high) {
            for (high = low + 1; high < n && v[high].word == v[low].word;) high++;
            if (high - low < 2) continue;
            if (exact) return std::max(v[low].row, v[low + 1].row);
            const int64_t twice = ord_sort_equals(v + low, high - low, columns, ncolumns);
            if (twice >= 0) return twice;
        }
        return -1;
    }
    """
    struct OrdText:
        const char* data
        int64_t size
    struct OrdKeyColumn:
        const uint64_t* words
        const OrdText* texts
        const uint8_t* valid
        uint64_t least
        int64_t skip
        int32_t bits
        int32_t shift
        int32_t flag
    struct OrdEntry:
        uint64_t word
        int64_t row
    int64_t ord_sort_group(OrdEntry* v, OrdEntry* spare, int64_t n, int32_t bits, bint exact,
                           const OrdKeyColumn* columns, int32_t ncolumns) noexcept nogil
    int64_t ord_common(const char* a, const char* b, int64_t most) noexcept nogil
    uint64_t ord_text_word(const char* data, int64_t size, int64_t skip, int32_t bytes) noexcept nogil
    int32_t ord_bits(uint64_t v) noexcept nogil


cdef inline uint64_t double_word(double v) noexcept nogil:
    """Floats as unsigned integers of their order; -0.0 is 0.0, and any NaN the largest of all. Pure."""
    cdef uint64_t bits
    if v != v:
        return ~(<uint64_t> 0)
    if v == 0.0:
        v = 0.0
    memcpy(&bits, &v, 8)
    return ~bits if bits & SIGN else bits | SIGN


cdef bint words_of(int32_t type, const char* data, int64_t n, uint64_t* out) noexcept nogil:
    """Fixed-width values as unsigned integers of their order. False: no type of a key.

    Thread safety: pure. Ownership: caller's arrays. Cost: ~0.5 ns per row.
    """
    cdef int64_t i
    if type == PT_I64:
        for i in range(n):
            out[i] = <uint64_t> (<const int64_t*> data)[i] ^ SIGN
    elif type == PT_I32:
        for i in range(n):
            out[i] = <uint64_t> <int64_t> (<const int32_t*> data)[i] ^ SIGN
    elif type == PT_I16:
        for i in range(n):
            out[i] = <uint64_t> <int64_t> (<const short*> data)[i] ^ SIGN
    elif type == PT_I8:
        for i in range(n):
            out[i] = <uint64_t> <int64_t> (<const signed char*> data)[i] ^ SIGN
    elif type == PT_U64:
        memcpy(out, data, n * 8)
    elif type == PT_U32:
        for i in range(n):
            out[i] = (<const unsigned int*> data)[i]
    elif type == PT_U16:
        for i in range(n):
            out[i] = (<const unsigned short*> data)[i]
    elif type == PT_U8 or type == PT_BOOL:
        for i in range(n):
            out[i] = (<const uint8_t*> data)[i]
    elif type == PT_F64:
        for i in range(n):
            out[i] = double_word((<const double*> data)[i])
    elif type == PT_F32:
        for i in range(n):
            out[i] = double_word((<const float*> data)[i])
    else:
        return False
    return True


cdef void hash_column(const OrdKeyColumn* c, int64_t n, bint first, bint only, uint64_t* h) noexcept nogil:
    """Fold a column into the hashes of the rows' keys. Pure. Cost: ~1 ns per row, strings 3 to 5 ns."""
    cdef int64_t i
    cdef uint64_t part
    for i in range(n):
        if c.valid != NULL and c.valid[i] == 0:
            part = NULL_PART
        elif c.words != NULL:
            part = c.words[i]
        else:
            part = ord_hash_bytes(c.texts[i].data, c.texts[i].size, SEED)
        h[i] = mix64(part) if only else mix64((SEED if first else h[i]) ^ part)


cdef bint plan_words(OrdKeyColumn* columns, int32_t ncolumns, int64_t n) noexcept nogil:
    """Divide a key's word among the columns. True: keys with equal words are equal.

    Thread safety: the caller's. Ownership: none. Cost: a pass over each column.
    """
    cdef int32_t room = 64
    cdef int32_t need
    cdef int32_t j
    cdef int64_t i
    cdef int64_t head
    cdef int64_t shortest
    cdef int64_t longest
    cdef uint64_t most
    cdef bint nulls
    cdef OrdKeyColumn* c
    for j in range(ncolumns):
        c = &columns[j]
        nulls = False
        head = -1
        c.least = ~(<uint64_t> 0)
        most = 0
        shortest = longest = 0
        for i in range(n):
            if c.valid != NULL and c.valid[i] == 0:
                nulls = True
            elif c.words != NULL:
                most = c.words[i] if c.words[i] > most else most
                c.least = c.words[i] if c.words[i] < c.least else c.least
                head = i
            elif head < 0:
                head = i
                c.skip = shortest = longest = c.texts[i].size
            else:
                shortest = min(shortest, c.texts[i].size)
                longest = max(longest, c.texts[i].size)
                if c.skip:
                    c.skip = ord_common(c.texts[head].data, c.texts[i].data, min(c.skip, c.texts[i].size))
        if nulls:
            if room == 0:
                return False
            c.flag = 1
            room -= 1
        if head < 0:
            continue                                         # nothing but nulls
        if c.words != NULL:
            need = ord_bits(most - c.least)
            c.bits = min(need, room)
            c.shift = need - c.bits
            room -= c.bits
            if c.shift:
                return False
        else:
            c.bits = 8 * <int32_t> min(longest - c.skip, <int64_t> (room // 8))
            room -= c.bits
            if shortest != longest or c.skip + c.bits // 8 < longest:
                return False
    return True


cdef inline uint64_t key_word(const OrdKeyColumn* columns, int32_t ncolumns, int64_t row) noexcept nogil:
    """The word of a key: no larger than that of a larger key. Pure. Cost: ~1 ns per column."""
    cdef uint64_t word = 0
    cdef uint64_t part
    cdef int32_t j
    cdef const OrdKeyColumn* c
    for j in range(ncolumns):
        c = &columns[j]
        part = 0
        if c.valid == NULL or c.valid[row] != 0:
            if c.bits == 0:
                pass
            elif c.words != NULL:
                part = (c.words[row] - c.least) >> c.shift
            else:
                part = ord_text_word(c.texts[row].data, c.texts[row].size, c.skip, c.bits // 8)
            if c.flag:
                word = word << 1 | 1
        elif c.flag:
            word = word << 1
        if c.bits == 64:                                     # a shift by 64 is undefined; and it is all
            word = part
        elif c.bits:
            word = word << c.bits | part
    return word


cdef int64_t put_in_order(OrdKeyColumn* columns, int32_t keys, int32_t ncolumns, int64_t n,
                          OrdEntry* entries, int64_t* rows, int64_t* ends) noexcept nogil:
    """Rows by the group of their first `keys` columns, then by all columns. Returns -1, a row that is equal
    to another one, or -2: no memory.

    Thread safety: the caller's. Ownership: caller's arrays of n, `ends` of NGROUPS. Cost: see `order`.
    """
    cdef int64_t[NGROUPS] starts
    cdef int32_t j
    cdef int32_t g
    cdef int64_t i
    cdef int64_t at = 0
    cdef int64_t largest = 0
    cdef int64_t twice = -1
    cdef int32_t bits = 0
    cdef OrdEntry* spare
    cdef uint64_t* hashes = <uint64_t*> rows                 # until the rows are known: memory costs time
    cdef bint exact = plan_words(columns, ncolumns, n)
    for j in range(keys):
        hash_column(&columns[j], n, j == 0, keys == 1, hashes)
    if keys == 0:
        for i in range(n):
            hashes[i] = 0                                    # one state in all
    for g in range(NGROUPS):
        starts[g] = 0
    for i in range(n):
        starts[hashes[i] >> GROUP_SHIFT] += 1
    for g in range(NGROUPS):
        largest = max(largest, starts[g])
        at += starts[g]
        ends[g] = at
        starts[g] = at - starts[g]
    for i in range(n):
        g = <int32_t> (hashes[i] >> GROUP_SHIFT)
        entries[starts[g]].word = key_word(columns, ncolumns, i)
        entries[starts[g]].row = i
        starts[g] += 1
    spare = <OrdEntry*> malloc(largest * sizeof(OrdEntry))
    if spare == NULL:
        return -2
    for j in range(ncolumns):
        bits += columns[j].bits + columns[j].flag
    at = 0
    for g in range(NGROUPS):
        twice = ord_sort_group(entries + at, spare, ends[g] - at, bits, exact, columns, ncolumns)
        if twice >= 0:
            break
        at = ends[g]
    free(spare)
    if twice >= 0:
        return twice
    for i in range(n):
        rows[i] = entries[i].row
    return -1


cdef struct Ordering:
    # The arguments of put_in_order, and what it gave.
    OrdKeyColumn* columns
    int32_t keys
    int32_t ncolumns
    int64_t n
    OrdEntry* entries
    int64_t* rows
    int64_t* ends
    int64_t twice


cdef void put_in_order_of(void* context) noexcept nogil:
    cdef Ordering* o = <Ordering*> context
    o.twice = put_in_order(o.columns, o.keys, o.ncolumns, o.n, o.entries, o.rows, o.ends)


cdef class KeyColumns:
    """The first columns of a record batch as keys, and the memory that they point into.

    Thread safety: read-only once made. Ownership: holds the batch's memory. Raises: MemoryError; TypeError
    for a column that can't be a key. Cost: a pass over each column; 8 bytes per row and column of fixed
    width, strings 16.
    """

    cdef Batch* b
    cdef OrdKeyColumn* columns
    cdef uint64_t[::1] words

    def __cinit__(self, batch, int32_t ncolumns):
        cdef LayoutOwner layout
        cdef BatchFormats formats
        cdef ArrowArray* array
        cdef uint8_t* used = NULL
        cdef int64_t n = batch.num_rows
        cdef int32_t j
        cdef int rc
        cdef bint known = True
        batch = batch.select(list(range(ncolumns)))
        layout = layout_of(batch.schema)
        formats = BatchFormats(batch.schema)
        try:
            used = <uint8_t*> malloc(ncolumns + 1)
            self.columns = <OrdKeyColumn*> calloc(ncolumns + 1, sizeof(OrdKeyColumn))
            # NumPy's memory: it asks for huge pages, and page faults would cost as much as the sorting.
            self.words = np.empty(n * ncolumns + 1, dtype=np.uint64)
            self.b = batch_new(ncolumns, DATA)
            if used == NULL or self.columns == NULL or self.b == NULL:
                raise MemoryError
            for j in range(ncolumns):
                used[j] = 1
            _, capsule = batch.__arrow_c_array__()
            array = <ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array")
            memcpy(&self.b.array, array, sizeof(ArrowArray))
            array.release = NULL
            with nogil:
                rc = batch_import(self.b, &layout.layout, used, formats.formats)
                if rc == 0:
                    for j in range(ncolumns):
                        self.columns[j].valid = self.b.cols[j].valid
                        if layout.layout.type[j] == PT_VIEW:
                            self.columns[j].texts = <const OrdText*> self.b.cols[j].data
                        else:
                            self.columns[j].words = &self.words[j * n]
                            known = known and words_of(layout.layout.type[j], self.b.cols[j].data, n,
                                                       &self.words[j * n])
        finally:
            free(used)
        if rc == -1:
            raise MemoryError
        if rc < 0 or not known:
            raise TypeError(f"a column that can't be a key: {batch.schema.types}")

    def __dealloc__(self):
        if self.b != NULL:
            batch_free(self.b)
        free(self.columns)


def groups(batch):
    """The key group of each row's key, which is all of the columns.

    Parameters: a record batch of key columns. Thread safety: pure; runs without the GIL. Ownership: a new
    array. Returns: int32, one per row. Raises: MemoryError; TypeError for a column that can't be a key.
    Cost: ~3 ns per row and column of fixed width, strings more.
    """
    cdef KeyColumns read
    cdef int32_t ncolumns = batch.num_columns
    cdef int64_t n = batch.num_rows
    cdef int64_t i
    cdef int32_t j
    cdef uint64_t[::1] hashes
    cdef int32_t[::1] found
    result = np.zeros(n, dtype=np.int32)
    if n == 0 or ncolumns == 0:
        return result
    read = KeyColumns(batch, ncolumns)
    hashes = np.empty(n, dtype=np.uint64)
    found = result
    with nogil:
        for j in range(ncolumns):
            hash_column(&read.columns[j], n, j == 0, ncolumns == 1, &hashes[0])
        for i in range(n):
            found[i] = <int32_t> (hashes[i] >> GROUP_SHIFT)
    return result


def order(batch, int32_t keys, int32_t told_apart=-1, bint low=False):
    """Rows of state in canonical order: by key group, inside a group by key (nulls first, NaN last, strings
    by bytes).

    Parameters: a record batch; `keys`: its first so many columns are the key (0: one state in all, in group
    0); `told_apart`: so many columns tell rows apart, where a key has several; by all of these they are
    sorted; `low`: on a thread of lower priority. Thread safety: pure; runs without the GIL. Ownership: new
    arrays. Returns: row numbers (int64, one per row) and where each group ends among them (int64[1024]).
    Raises: MemoryError; TypeError for a column that can't be a key; ValueError for a key that is there
    twice, with the row. Cost: 25 to 110 ns per row (`bench/snapshot_files.py`); 16 bytes per row while it
    runs, and 8 per key column (strings 24).
    """
    cdef KeyColumns read
    cdef uint64_t[::1] entries
    cdef int64_t[::1] rows
    cdef int64_t[::1] ends
    cdef Ordering o
    cdef int64_t n = batch.num_rows
    if told_apart < 0:
        told_apart = keys
    if not 0 <= keys <= told_apart <= batch.num_columns:
        of = f"of {batch.num_columns} columns"
        raise ValueError(f"{keys} key columns {of}, and rows told apart by {told_apart}")
    result = np.empty(n, dtype=np.int64)
    limits = np.zeros(NGROUPS, dtype=np.int64)
    if n == 0:
        return result, limits
    read = KeyColumns(batch, told_apart)
    entries = np.empty(2 * n, dtype=np.uint64)
    rows = result
    ends = limits
    o.columns, o.keys, o.ncolumns, o.n = read.columns, keys, told_apart, n
    o.entries, o.rows, o.ends = <OrdEntry*> &entries[0], &rows[0], &ends[0]
    with nogil:
        run_work(put_in_order_of, &o, low)
    if o.twice == -2:
        raise MemoryError
    if o.twice >= 0:
        raise ValueError(f"row {o.twice}: its key is there twice")
    return result, limits
