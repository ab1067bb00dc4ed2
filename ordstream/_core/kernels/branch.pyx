"""Operator "branch": rows of one lane go to several, by a condition, by a number, or every row to each.

The columns stay where they are: the lanes share them, each with a selection of its own. Contract: kernel.pxd
(g). Behind it a chunk knows where its rows stood here (`Fork`), which is what a union orders them by.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_BOOL, Chunk, Fork, Worker, chunk_alloc, chunk_beside, row_slot, scratch_alloc,
)
from ordstream._core.ground.expression cimport (
    Evaluation, Value, evaluate, evaluation_begin, evaluation_finish,
)
from ordstream._core.ground.expression_code cimport Code, CodeOwner
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel import MOST_LANES
from ordstream._core.ground.kernel_tools cimport chunk_fail_all, count_skipped, owner_setup

cdef enum:
    NOWHERE = 255              # the way of a row that nobody takes

cdef struct Branch:
    # Read-only while a run lasts. Memory ownership: BranchKernel.
    const Code* condition  # true: the first way, else the second; NULL: by `column`. Owned by a CodeOwner
    int32_t column         # int64, the number of the way; -1: every row goes every way
    int32_t ways
    int64_t number         # of this branch point
    int32_t lanes[64]      # of each way; -1: nobody takes its rows


cdef inline Chunk* enter(Chunk* c, int32_t lane, Fork* fork) noexcept nogil:
    c.lane = <int16_t> lane
    c.fork = fork
    c.place = NULL
    return c


cdef int ways_of_rows(const Branch* b, Kernel* k, Worker* w, Chunk* c, uint8_t* way) noexcept nogil:
    """Fill `way` by slot. Rows that fail leave the selection, as in a filter. 0, or -1: no memory."""
    cdef Evaluation e
    cdef Value v
    cdef const int64_t* numbers
    cdef int64_t skipped
    cdef int32_t i
    if b.condition == NULL:
        numbers = <const int64_t*> c.cols[b.column].data
        for i in range(c.n):
            way[row_slot(c, i)] = <uint8_t> numbers[row_slot(c, i)]
        return 0
    evaluation_begin(&e, c)
    if evaluate(b.condition, w, c, &e, NULL, &v) != 0:
        return -1
    # without a branch: which way a row goes can't be guessed
    if v.scalar:
        memset(way, not ((<uint8_t*> v.data)[0] and (v.valid == NULL or v.valid[0])), c.slots)
    elif v.valid == NULL:
        for i in range(c.n):
            way[row_slot(c, i)] = (<uint8_t*> v.data)[i] == 0
    else:
        for i in range(c.n):
            way[row_slot(c, i)] = ((<uint8_t*> v.data)[i] == 0) | (v.valid[i] == 0)
    skipped = evaluation_finish(&e, w, c, k)
    if skipped < 0:
        return -1
    count_skipped(k, skipped)
    return 0


cdef int select_in_two(Worker* w, Chunk* c, const uint8_t* way, int32_t** sel,
                       int32_t* count) noexcept nogil:
    """select_rows of a condition. Each row is written to both selections, and counts in one."""
    cdef int32_t* hit = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 8 + 8)
    cdef int32_t* miss = hit + c.n + 1
    cdef int32_t hits = 0
    cdef int32_t i
    cdef int32_t slot
    if hit == NULL:
        return -1
    if c.sel == NULL:
        for i in range(c.n):
            hit[hits] = i
            miss[i - hits] = i
            hits += 1 - way[i]
    else:
        for i in range(c.n):
            slot = c.sel[i]
            hit[hits] = slot
            miss[i - hits] = slot
            hits += 1 - way[slot]
    count[0] = hits
    count[1] = c.n - hits
    sel[0] = hit
    sel[1] = miss
    if hits == c.n:
        sel[0] = NULL
    if hits == 0:
        sel[1] = NULL
    return 0


cdef int select_rows(const Branch* b, Worker* w, Chunk* c, uint8_t* way, int32_t** sel,
                     int32_t* count) noexcept nogil:
    """The selection and number of rows of each way, from `way` by slot. A selection is NULL where all rows
    go one way. 0, or -1: no memory."""
    cdef int32_t* rows
    cdef int32_t i
    cdef int32_t j
    cdef int32_t at
    if b.condition != NULL and b.ways == 2:
        return select_in_two(w, c, way, sel, count)
    memset(count, 0, b.ways * sizeof(int32_t))
    for i in range(c.n):
        at = way[row_slot(c, i)]
        if at >= b.ways or b.lanes[at] < 0:
            way[row_slot(c, i)] = NOWHERE
        else:
            count[at] += 1
    rows = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4 + 4)
    if rows == NULL:
        return -1
    at = 0
    for j in range(b.ways):
        sel[j] = rows + at
        if count[j] == c.n:
            sel[j] = NULL
        at += count[j]
        count[j] = 0 if count[j] != c.n else count[j]
    for i in range(c.n):
        j = way[row_slot(c, i)]
        if j != NOWHERE and sel[j] != NULL:
            sel[j][count[j]] = row_slot(c, i)
            count[j] += 1
    return 0


cdef Chunk* give_ways(const Branch* b, Worker* w, Chunk* c, Fork* fork, int32_t** sel,
                      const int32_t* count) noexcept nogil:
    """The unit's chunks: `c` for the first way that has rows and is taken, new ones for the others.

    sel[j] NULL: all rows of `c`, in its own selection.
    """
    cdef int32_t* whole = c.sel
    cdef Chunk* last = c
    cdef Chunk* new
    cdef int32_t j
    cdef int32_t first = -1
    for j in range(b.ways):
        if not count[j] or b.lanes[j] < 0:
            continue
        if first < 0:
            first = j
            continue
        new = chunk_beside(w, c)
        if new == NULL:
            return NULL
        new.n = count[j]
        new.sel = sel[j]
        if sel[j] == NULL:
            new.sel = whole
        enter(new, b.lanes[j], fork)
        new.beside = last.beside
        last.beside = new
        last = new
    if first < 0:
        c.n = 0
        return c
    c.n = count[first]
    if sel[first] != NULL:
        c.sel = sel[first]
    return enter(c, b.lanes[first], fork)


cdef Chunk* branch_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Divide rows into lanes. Contract: kernel.pxd (g).

    Each lane gets a chunk with the columns of `c` and a selection of its own; the first one is `c` itself.

    Thread safety: any worker. Ownership: the new chunks are the unit's. Returns: c, or NULL: no memory.
    Cost: the condition, ~1 ns per row and one small chunk per further lane.
    """
    cdef const Branch* b = <const Branch*> k.ctx
    cdef Fork* fork = <Fork*> chunk_alloc(w, c, sizeof(Fork))
    cdef int32_t[64] count
    cdef int32_t* sel[64]
    cdef uint8_t* way
    cdef int32_t i
    cdef int32_t j
    if fork == NULL:
        return NULL
    fork.outer = c.fork
    fork.place = c.place
    fork.branch = b.number
    if b.condition == NULL and b.column < 0:
        for j in range(b.ways):
            count[j] = c.n
            sel[j] = NULL
            if j:                                    # a selection that its lane may narrow in place
                sel[j] = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
                if sel[j] == NULL:
                    return NULL
                for i in range(c.n):
                    sel[j][i] = row_slot(c, i)
        return give_ways(b, w, c, fork, sel, count)
    way = <uint8_t*> scratch_alloc(w, c.slots)
    if way == NULL:
        return NULL
    if ways_of_rows(b, k, w, c, way) != 0:
        return chunk_fail_all(c, -1, FAIL_MEMORY)
    if select_rows(b, w, c, way, sel, count) != 0:
        return NULL
    return give_ways(b, w, c, fork, sel, count)


cdef class BranchKernel(KernelOwner):
    """Operator "branch": attributes {"condition": BoundExpr of class bool | None, "by": int64 column | None,
    "lane": int, "lanes": lane of each way or -1, "number": int}."""

    cdef Branch branch

    def __init__(self, operator):
        cdef CodeOwner code
        owner_setup(self, operator, SL)
        lanes = list(operator.lanes)
        if not 0 < len(lanes) <= MOST_LANES:
            raise ValueError(f"{operator.name!r}: 1 to {MOST_LANES} lanes, not {len(lanes)}")
        self.branch.column = -1 if operator.by is None else operator.by
        if operator.condition is not None:
            code = CodeOwner(operator.condition, self.input_layout, PT_BOOL)
            self.references.append(code)
            self.branch.condition = &code.code
        self.branch.number = operator.number
        self.branch.ways = <int32_t> len(lanes)
        for i, lane in enumerate(lanes):
            self.branch.lanes[<int> i] = lane
        self.kernel.units = 1
        self.kernel.ctx = <void*> &self.branch
        self.kernel.apply = branch_apply
        self.work_on(operator.lane)
