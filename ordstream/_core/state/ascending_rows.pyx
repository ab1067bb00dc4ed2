"""Rows of one window whose keys ascend. See ascending_rows.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport PT_F32, PT_U64, Chunk, Column, Layout, Worker, chunk_reserve
from ordstream._core.ground.kernel_tools cimport flush_reserve
from ordstream._core.ground.slot_values cimport gather

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)

cdef extern from "ascending_rows.hpp" nogil:
    bint ord_best_rows(const int64_t* ranks, int64_t n, int64_t k, uint64_t* words, int32_t* rows)
    int64_t ord_kept_rows(const int64_t* ranks, int64_t n, int64_t k, int64_t* words, int32_t* rows)

cdef enum:
    FIRST_ROOM = 128           # rows that there is room for at first


cdef bint can_ascend(const KeySpec* keys, const int32_t* width, const int32_t* bytes, int32_t ncols,
                     int64_t best) noexcept nogil:
    """Whether rows can be kept so: few are wanted, no column has strings or lists, keys are integers."""
    cdef int32_t j
    if best > ASCENDING_BEST or keys.ncols < 1 or keys.ncols > ASCENDING_KEYS:
        return False
    for j in range(ncols):
        if bytes[j] or width[j] > 8 or width[j] < 1:
            return False
    for j in range(keys.ncols):
        if keys.type[j] >= PT_F32:
            return False
    return True


cdef inline bint all_there(const AscendingSpec* x, const Chunk* c, const int32_t* rows,
                           int32_t n) noexcept nogil:
    """Whether no value is null."""
    cdef const uint8_t* valid
    cdef int32_t i
    cdef int32_t j
    for j in range(x.ncols):
        if c.cols[j].data == NULL:
            return False
        valid = c.cols[j].valid
        if valid != NULL:
            for i in range(n):
                if valid[rows[i]] == 0:
                    return False
    return True


cdef bint keys_ascend(const AscendingSpec* x, AscendingRows* r, const Chunk* c, const int32_t* rows,
                      int32_t n) noexcept nogil:
    """Whether the keys of the rows ascend, from the last one on; if so it is now theirs."""
    cdef int64_t[ASCENDING_BLOCK + 1] words
    cdef uint8_t[ASCENDING_BLOCK] larger                     # than the one before
    cdef int64_t[ASCENDING_KEYS] last
    cdef int64_t flip
    cdef int32_t equal = n
    cdef int32_t i
    cdef int32_t j
    memset(larger, 0, n)
    if not r.any:
        larger[0] = 1
        equal -= 1
    for j in range(x.keys.ncols):
        words[0] = r.last[j]
        load(words + 1, x.keys.type[j], c.cols[x.keys.column[j]].data, rows, n)
        last[j] = words[n]
        if equal == 0:
            continue
        flip = (<int64_t> 1) << 63 if x.keys.type[j] == PT_U64 else 0
        for i in range(n):
            if larger[i]:
                continue
            if words[i + 1] ^ flip < words[i] ^ flip:
                return False
            if words[i + 1] != words[i]:
                larger[i] = 1
                equal -= 1
    if equal:
        return False
    memcpy(r.last, last, sizeof(last))
    r.any = 1
    return True


cdef int make_room(const AscendingSpec* x, AscendingRows* r, int64_t need) noexcept nogil:
    """Room for `need` rows in all. 0, or -1: no memory."""
    cdef int64_t room = max(2 * r.room, <int64_t> FIRST_ROOM, need)
    cdef char* memory = <char*> malloc(<size_t> ((1 + x.ncols) * room * 8))
    cdef int32_t j
    if memory == NULL:
        return -1
    for j in range(1 + x.ncols if r.n else 0):
        memcpy(memory + j * room * 8, r.memory + j * r.room * 8,
               <size_t> (r.n * (8 if j == 0 else x.width[j - 1])))
    free(r.memory)
    r.memory = memory
    r.room = room
    return 0


cdef int keep_best(const AscendingSpec* x, AscendingRows* r) noexcept nogil:
    """Keep only the best rows, as they came. 0, or -1: no memory."""
    cdef int64_t k = x.best
    cdef char* block = <char*> malloc(<size_t> (r.n * 8 + k * 4))
    cdef int32_t* rows
    cdef int32_t j
    if block == NULL:
        return -1
    rows = <int32_t*> (block + r.n * 8)
    r.worst = ord_kept_rows(ranks_in(r), r.n, k, <int64_t*> block, rows)
    r.full = 1
    for j in range(-1, x.ncols):                             # rows[i] >= i: nothing is lost
        gather(column_in(r, j), column_in(r, j), rows, k, 8 if j < 0 else x.width[j])
    r.n = k
    free(block)
    return 0


cdef int ascending_take(const AscendingSpec* x, AscendingRows* r, const Chunk* c, const int32_t* rows,
                        int32_t n, const int64_t* ranks) noexcept nogil:
    """Take rows of the window in, at most ASCENDING_BLOCK.

    Ownership: they are copied. Returns: 1; 0: their keys do not ascend or a value is null, and nothing
    changed; -1: no memory. Cost: ~1 ns per key column, and as much per column.
    """
    cdef int32_t[ASCENDING_BLOCK] good
    cdef const int32_t* taken = rows
    cdef int64_t* to
    cdef int32_t m = n
    cdef int32_t i
    cdef int32_t j
    if not all_there(x, c, rows, n) or not keys_ascend(x, r, c, rows, n):
        return 0
    if r.n + n > x.most and keep_best(x, r) != 0:
        return -1
    if r.n + n > r.room and make_room(x, r, r.n + n) != 0:
        return -1
    to = ranks_in(r) + r.n
    if r.full:
        taken = good
        m = 0
        for i in range(n):
            good[m] = rows[i]
            to[m] = ranks[i]
            m += ranks[i] > r.worst
    else:
        memcpy(to, ranks, <size_t> n * 8)
    for j in range(x.ncols):
        gather(column_in(r, j) + r.n * x.width[j], c.cols[j].data, taken, m, x.width[j])
    r.n += m
    return 1


cdef int ascending_emit(const AscendingSpec* x, const AscendingRows* r, Worker* w, const Layout* layout,
                        Chunk* out, int32_t origin, bint at_end, bint ranked) noexcept nogil:
    """Append the best rows in order, with `ranked` their number in a last column.

    Returns: 0; 1: their order is none of words, and nothing was emitted; -1: no memory. Cost: ~5 ns per row.
    """
    cdef int64_t best = min(r.n, x.best)
    cdef char* block = <char*> malloc(<size_t> (r.n * 16 + best * 4))
    cdef Column* to
    cdef int32_t* rows
    cdef int32_t j
    cdef int64_t i
    cdef int failed
    if block == NULL:
        return -1
    rows = <int32_t*> (block + r.n * 16)
    if not ord_best_rows(ranks_in(r), r.n, best, <uint64_t*> block, rows):
        free(block)
        return 1
    if at_end:
        failed = flush_reserve(w, out, layout, <int32_t> best)
    else:
        failed = chunk_reserve(w, out, layout, <int32_t> best)
    if failed:
        free(block)
        return -1
    for j in range(x.ncols + ranked):
        to = &out.cols[j]
        if j < x.ncols:
            gather(to.data + <int64_t> out.n * x.width[j], column_in(r, j), rows, best, x.width[j])
        else:
            for i in range(best):
                (<int64_t*> to.data)[out.n + i] = i + 1
        if to.valid != NULL:
            memset(to.valid + out.n, 1, <size_t> best)
    for i in range(best):
        out.origin[out.n + i] = origin
    out.n += <int32_t> best
    out.slots = out.n
    free(block)
    return 0
