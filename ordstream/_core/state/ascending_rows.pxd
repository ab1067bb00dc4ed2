"""Rows of one window whose keys ascend, so that each key comes once: what a top-k keeps in place of a map
(top_state.pxd), column by column.

Nothing is looked up or hashed. A row that comes later has a larger key: of rows with equal rank the earlier
one is the better one, and no key is compared. Of many rows only the best are kept, a few times more than are
wanted at most.

Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Layout, Worker
from ordstream._core.ground.key_spec cimport KeySpec

cdef enum:
    ASCENDING_BLOCK = 256      # rows that are taken at once, at most
    ASCENDING_KEYS = 8         # key columns, at most
    ASCENDING_BEST = 4096      # rows that are wanted, at most

cdef struct AscendingSpec:
    # Which rows. Read-only while a run lasts. Memory ownership: borrowed.
    const KeySpec* keys
    const int32_t* width   # bytes per value of each column, 1 to 8
    int32_t ncols
    int64_t best           # how many rows are wanted
    int64_t most           # and kept

cdef struct AscendingRows:
    # Zeroed memory is an empty list. Memory ownership: owns `memory`.
    char* memory           # ranks, then the columns, 8 bytes of room for each value
    int64_t n              # rows
    int64_t room           # of its memory
    int64_t worst          # with `full`: rank of the worst of the best rows so far
    int32_t full           # 1: rows of that rank or below come too late
    int32_t any            # 1: there was a row
    int64_t[ASCENDING_KEYS] last  # key of the last row, widened

cdef bint can_ascend(const KeySpec* keys, const int32_t* width, const int32_t* bytes, int32_t ncols,
                     int64_t best) noexcept nogil
cdef int ascending_take(const AscendingSpec* x, AscendingRows* r, const Chunk* c, const int32_t* rows,
                        int32_t n, const int64_t* ranks) noexcept nogil
cdef int ascending_emit(const AscendingSpec* x, const AscendingRows* r, Worker* w, const Layout* layout,
                        Chunk* out, int32_t origin, bint at_end, bint ranked) noexcept nogil


cdef inline int64_t* ranks_in(const AscendingRows* r) noexcept nogil:
    return <int64_t*> r.memory


cdef inline char* column_in(const AscendingRows* r, int32_t j) noexcept nogil:
    return r.memory + (1 + <int64_t> j) * r.room * 8


cdef inline void ascending_clear(AscendingRows* r) noexcept nogil:
    """Forget all rows, and keep the memory."""
    r.n = 0
    r.full = 0
    r.any = 0
