"""Operator "union": the rows of several lanes become those of one, in one order.

By order tag, then by where the row that caused them stood at the branch point that all of them have passed,
then in the order of the inputs. Each input says which of its columns is which of the output's; a column that
it has not is null, and one may tell the input. Contract: kernel.pxd (g).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.flow.lanes cimport FLUSHED
from ordstream._core.ground.chunk cimport (
    Chunk, Column, Fork, Worker, chunk_alloc, chunk_hold, chunk_new, chunk_reserve, row_slot, scratch_alloc,
    slot_serial,
)
from ordstream._core.ground.kernel cimport SL, Kernel, KernelOwner
from ordstream._core.ground.kernel import MOST_LANES
from ordstream._core.ground.kernel_tools cimport owner_setup

cdef enum:
    ABSENT = -1                # the input has no such column: null
    TOLD = -2                  # the column tells the input

cdef struct Union:
    # Read-only while a run lasts. Memory ownership: UnionKernel.
    int32_t n                  # inputs
    int32_t columns            # of the output
    int32_t lane               # that the rows go to
    int64_t number             # of the branch point that tells the order
    int64_t keep               # of the innermost branch point that a union behind still asks for; -1: none
    int32_t* source            # [input * columns + column]: its column, ABSENT or TOLD
    uint8_t* needed            # per column: somebody sees it; others are not made
    int64_t* told              # per input: the value that tells it
    int32_t lanes[64]          # of the inputs, in order

cdef struct Rows:
    # The chunks of a unit that have rows of an input, in the order of the inputs. Lives on the stack.
    int32_t n
    Chunk* chunk[64]
    int32_t input[64]


cdef inline Fork* fork_of(const Chunk* c, int64_t number) noexcept nogil:
    """The chunk's branch point of this number. Of rows that a flush made behind it: that flush."""
    cdef Fork* f = c.fork
    while f != NULL and f.branch != number:
        if f.outer == NULL and f.branch == FLUSHED:
            return f
        f = f.outer
    return f


cdef inline int32_t place_in(const Chunk* c, int32_t slot, const Fork* at) noexcept nogil:
    """Slot at the branch point that caused a slot; 0 where there is none."""
    cdef const Fork* f = c.fork
    if at == NULL:
        return 0
    if c.place != NULL:
        slot = c.place[slot]
    while f != at:
        if f.place != NULL:
            slot = f.place[slot]
        f = f.outer
    return slot


cdef inline int32_t column_of(const Union* u, int32_t input, int32_t column) noexcept nogil:
    return u.source[input * u.columns + column]


cdef int constant_column(const Union* u, Kernel* k, Worker* w, Chunk* c, int32_t slots, int32_t input,
                         int32_t column, Column* out) noexcept nogil:
    """A column of nulls, or one that tells the input, in the arena of `c`. 0, or -1: no memory."""
    cdef int64_t size = <int64_t> slots * k.output.width[column]
    cdef int32_t i
    out.valid = NULL
    out.data = chunk_alloc(w, c, size + 1)
    if out.data == NULL:
        return -1
    if column_of(u, input, column) == TOLD:
        for i in range(slots):
            if k.output.width[column] == 1:
                out.data[i] = <char> u.told[input]
            else:
                (<int64_t*> out.data)[i] = u.told[input]
        return 0
    memset(out.data, 0, size)
    out.valid = <uint8_t*> chunk_alloc(w, c, slots + 1)
    if out.valid == NULL:
        return -1
    memset(out.valid, 0, slots)
    return 0


cdef int leave_forks(const Union* u, Worker* w, Chunk* c) noexcept nogil:
    """The rows of a chunk are united: they stand at the branch point that is still asked for, if there is
    one. 0, or -1: no memory."""
    cdef Fork* keep = fork_of(c, u.keep) if u.keep >= 0 else NULL
    cdef int32_t* places = NULL
    cdef int32_t i
    if keep == c.fork:
        return 0
    if keep != NULL:
        places = <int32_t*> chunk_alloc(w, c, <int64_t> c.slots * 4)
        if places == NULL:
            return -1
        for i in range(c.n):
            places[row_slot(c, i)] = place_in(c, row_slot(c, i), keep)
    c.fork = keep
    c.place = places
    return 0


cdef Chunk* pass_on(const Union* u, Kernel* k, Worker* w, Chunk* c, int32_t input) noexcept nogil:
    """Only one lane has rows: its chunk goes on, nothing is copied. NULL: no memory."""
    cdef Column* new = <Column*> scratch_alloc(w, u.columns * <int64_t> sizeof(Column) + 1)
    cdef int32_t j
    cdef int32_t i
    if new == NULL or leave_forks(u, w, c) != 0:
        return NULL
    for j in range(u.columns):
        i = column_of(u, input, j)
        new[j].data = NULL
        new[j].valid = NULL
        if i >= 0:
            new[j] = c.cols[i]
        elif u.needed[j] and constant_column(u, k, w, c, c.slots, input, j, &new[j]) != 0:
            return NULL
    memcpy(c.cols, new, u.columns * sizeof(Column))
    c.ncols = u.columns
    c.lane = <int16_t> u.lane
    return c


# -------------------------------------------------------------------------------- rows at their slots


cdef bint side_by_side(const Union* u, const Rows* r, const Chunk* c, int64_t total) noexcept nogil:
    """Whether all rows still stand at their slots of one chunk, that of the branch point which tells their
    order, and fill a good part of it; `c` is one of the chunks."""
    cdef const Chunk* b
    cdef int32_t j
    cdef bint mine = False
    if c.fork == NULL or c.fork.branch != u.number or 4 * total < c.slots:
        return False
    for j in range(r.n):
        b = r.chunk[j]
        mine = mine or b == c
        if (b.fork != c.fork or b.place != NULL or b.slots != c.slots or b.serials != c.serials
                or b.first_serial != c.first_serial):
            return False
    return mine


cdef bint mark_slots(const Rows* r, uint8_t* of) noexcept nogil:
    """Note in `of`, zeroed, per slot which chunk has it (from 1; 0: none). False: a slot is in two."""
    cdef const Chunk* b
    cdef int32_t i
    cdef int32_t j
    cdef uint8_t twice = 0
    for j in range(r.n):
        b = r.chunk[j]
        if b.sel == NULL:
            for i in range(b.n):
                twice |= of[i]
                of[i] = <uint8_t> (j + 1)
        else:
            for i in range(b.n):
                twice |= of[b.sel[i]]
                of[b.sel[i]] = <uint8_t> (j + 1)
    return twice == 0


cdef int tell_input(const Union* u, Kernel* k, Worker* w, const Rows* r, Chunk* c, const uint8_t* of,
                    int32_t column, Column* out) noexcept nogil:
    """The column that tells the input, by slot. 0, or -1: no memory."""
    cdef int32_t width = k.output.width[column]
    cdef int64_t[65] told
    cdef int32_t i
    told[0] = 0
    for i in range(r.n):
        told[i + 1] = u.told[r.input[i]]
    out.valid = NULL
    out.data = chunk_alloc(w, c, <int64_t> c.slots * width + 1)
    if out.data == NULL:
        return -1
    for i in range(c.slots):
        if width == 1:
            out.data[i] = <char> told[of[i]]
        else:
            (<int64_t*> out.data)[i] = told[of[i]]
    return 0


cdef uint8_t* valid_slots(const Union* u, Worker* w, const Rows* r, Chunk* c, int32_t column) noexcept nogil:
    """Per slot whether the column has a value. NULL: no memory."""
    cdef uint8_t* valid = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
    cdef const uint8_t* from_
    cdef int32_t i
    cdef int32_t j
    cdef int32_t slot
    if valid == NULL:
        return NULL
    memset(valid, 0, c.slots)
    for j in range(r.n):
        i = column_of(u, r.input[j], column)
        if i < 0:
            continue
        from_ = r.chunk[j].cols[i].valid
        for i in range(r.chunk[j].n):
            slot = row_slot(r.chunk[j], i)
            valid[slot] = from_ == NULL or from_[slot] != 0
    return valid


cdef int unite_column(const Union* u, Kernel* k, Worker* w, const Rows* r, Chunk* c, const uint8_t* of,
                      uint8_t** whose, int32_t column, Column* out) noexcept nogil:
    """A column by slot: that of the inputs where they share it, else one that is made. `whose`: per chunk
    which slots are its own, where that is known already. 0, or -1: no memory."""
    cdef int32_t width = k.output.width[column]
    cdef const Column* one = NULL
    cdef const Column* other
    cdef int32_t present = 0
    cdef int32_t first = 0
    cdef int32_t i
    cdef int32_t j
    cdef int32_t slot
    cdef bint same = True
    cdef bint same_valid = True
    if column_of(u, r.input[0], column) == TOLD:
        return tell_input(u, k, w, r, c, of, column, out)
    for j in range(r.n):
        i = column_of(u, r.input[j], column)
        if i < 0:
            continue
        other = &r.chunk[j].cols[i]
        if other.data == NULL:                               # a source column that nothing reads
            return 0
        if one == NULL:
            one = other
            first = j
        same = same and other.data == one.data
        same_valid = same_valid and other.valid == one.valid
        present += 1
    if one == NULL:
        return constant_column(u, k, w, c, c.slots, r.input[0], column, out)
    out[0] = one[0]
    if not same:
        out.data = chunk_alloc(w, c, <int64_t> c.slots * width + 1)
        if out.data == NULL:
            return -1
        for j in range(r.n):
            i = column_of(u, r.input[j], column)
            if i < 0:
                continue
            other = &r.chunk[j].cols[i]
            for i in range(r.chunk[j].n):
                slot = row_slot(r.chunk[j], i)
                memcpy(out.data + <int64_t> slot * width, other.data + <int64_t> slot * width, width)
    if present == r.n and same_valid:
        return 0
    if present == 1 and one.valid == NULL:
        if whose[first] == NULL:
            whose[first] = valid_slots(u, w, r, c, column)
        out.valid = whose[first]
    else:
        out.valid = valid_slots(u, w, r, c, column)
    return 0 if out.valid != NULL else -1


cdef Chunk* unite_slots(const Union* u, Kernel* k, Worker* w, Rows* r, Chunk* c, uint8_t* of,
                        int32_t total) noexcept nogil:
    """The rows stay where they are, each at its slot: `c` goes on with all of them. NULL: no memory."""
    cdef Column* new = <Column*> scratch_alloc(w, u.columns * <int64_t> sizeof(Column) + 1)
    cdef uint8_t* whose[64]
    cdef int32_t* sel = NULL
    cdef int32_t i
    cdef int32_t n = 0
    if new == NULL:
        return NULL
    memset(whose, 0, sizeof(whose))
    for i in range(u.columns):
        new[i].data = NULL
        new[i].valid = NULL
        if u.needed[i] and unite_column(u, k, w, r, c, of, whose, i, &new[i]) != 0:
            return NULL
    if total < c.slots:
        sel = <int32_t*> chunk_alloc(w, c, <int64_t> (c.slots + 1) * 4)
        if sel == NULL:
            return NULL
        for i in range(c.slots):
            sel[n] = i
            n += of[i] != 0
    take_unit(r, c, c)
    c.sel = sel
    c.n = total
    if leave_forks(u, w, c) != 0:
        return NULL
    memcpy(c.cols, new, u.columns * sizeof(Column))
    c.ncols = u.columns
    c.lane = <int16_t> u.lane
    return c


# -------------------------------------------------------------------------------- rows that are copied


cdef int order_rows(Worker* w, const Union* u, Rows* r, Chunk* out, uint8_t* of,
                    int32_t* slots) noexcept nogil:
    """Which chunk and slot each output row comes from; its serial and place. 0, or -1: no memory."""
    cdef int32_t at[64]
    cdef int32_t here[64]      # place of each chunk's next row
    cdef int64_t serial[64]    # of that row
    cdef Fork* point[64]
    cdef Fork* keep = NULL
    cdef int32_t j
    cdef int32_t i
    cdef int32_t best
    out.serials = <int64_t*> chunk_alloc(w, out, <int64_t> out.n * 8)
    if u.keep >= 0:
        keep = fork_of(r.chunk[0], u.keep)
    out.fork = keep
    if keep != NULL:
        out.place = <int32_t*> chunk_alloc(w, out, <int64_t> out.n * 4)
    if out.serials == NULL or (keep != NULL and out.place == NULL):
        return -1
    for j in range(r.n):
        at[j] = 0
        point[j] = fork_of(r.chunk[j], u.number)
        serial[j] = slot_serial(r.chunk[j], row_slot(r.chunk[j], 0))
        here[j] = place_in(r.chunk[j], row_slot(r.chunk[j], 0), point[j])
    for i in range(out.n):
        best = -1
        for j in range(r.n):
            if at[j] < r.chunk[j].n and (best < 0 or serial[j] < serial[best] or (
                    serial[j] == serial[best] and here[j] < here[best])):
                best = j
        of[i] = <uint8_t> best
        slots[i] = row_slot(r.chunk[best], at[best])
        out.serials[i] = serial[best]
        if keep != NULL:
            out.place[i] = place_in(r.chunk[best], slots[i], keep)
        at[best] += 1
        if at[best] < r.chunk[best].n:
            j = row_slot(r.chunk[best], at[best])
            serial[best] = slot_serial(r.chunk[best], j)
            here[best] = place_in(r.chunk[best], j, point[best])
    return 0


cdef int copy_column(const Union* u, Kernel* k, Worker* w, Rows* r, Chunk* out, int32_t column,
                     const uint8_t* of, const int32_t* slots) noexcept nogil:
    """One column of the output. 0, or -1: no memory."""
    cdef int32_t width = k.output.width[column]
    cdef Column cols[64]
    cdef int32_t mask[64]      # of a slot: 0 where one value stands for all
    cdef char* data = out.cols[column].data
    cdef uint8_t* valid = NULL
    cdef int32_t j
    cdef int32_t i
    for j in range(r.n):
        i = column_of(u, r.input[j], column)
        mask[j] = -1 if i >= 0 else 0
        if i >= 0:
            cols[j] = r.chunk[j].cols[i]
        elif constant_column(u, k, w, out, 1, r.input[j], column, &cols[j]) != 0:
            return -1
        if cols[j].data == NULL:                     # a source column that nothing reads
            out.cols[column].data = NULL
            return 0
        if cols[j].valid != NULL and valid == NULL:
            valid = <uint8_t*> chunk_alloc(w, out, out.n)
            if valid == NULL:
                return -1
            memset(valid, 1, out.n)
    if width == 8:
        for i in range(out.n):
            (<int64_t*> data)[i] = (<const int64_t*> cols[of[i]].data)[slots[i] & mask[of[i]]]
    else:
        for i in range(out.n):
            memcpy(data + <int64_t> i * width,
                   cols[of[i]].data + <int64_t> (slots[i] & mask[of[i]]) * width, width)
    if valid != NULL:
        for i in range(out.n):
            if cols[of[i]].valid != NULL:
                valid[i] = cols[of[i]].valid[slots[i] & mask[of[i]]]
    out.cols[column].valid = valid
    return 0


cdef void take_unit(Rows* r, Chunk* c, Chunk* out) noexcept nogil:
    """The output takes the place of the chunks that it is made of, and holds them, but for the first one,
    `c`; other lanes go on beside it."""
    cdef Chunk* b = c.beside
    cdef Chunk* following
    cdef int32_t j
    cdef bint taken
    c.beside = NULL
    while b != NULL:
        following = b.beside
        b.beside = NULL
        taken = False
        for j in range(r.n):
            taken = taken or r.chunk[j] == b
        if taken:
            chunk_hold(out, b)
        else:
            b.beside = out.beside
            out.beside = b
        b = following


cdef Chunk* union_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Merge the lanes of a unit: rows are copied in their order; if one lane has all of them, it goes on; if
    they still stand at their slots of one chunk, they stay there.

    Thread safety: any worker. Ownership: the result holds the chunks that it takes from the unit, but for
    `c`.
    Returns: c or a new chunk; NULL: no memory. Cost: a pass over the rows for each input, a copy per column
    that somebody sees; of rows that stay, a byte per row and column that not all inputs have.
    """
    cdef const Union* u = <const Union*> k.ctx
    cdef Rows r
    cdef int32_t j
    cdef int64_t total = 0
    cdef Chunk* b
    cdef Chunk* out
    cdef uint8_t* of
    cdef int32_t* slots
    r.n = 0
    for j in range(u.n):
        b = c
        while b != NULL:
            if b.lane == u.lanes[j] and b.n:
                r.chunk[r.n] = b
                r.input[r.n] = j
                r.n += 1
                total += b.n
            b = b.beside
    if r.n == 1:
        return pass_on(u, k, w, c, r.input[0])
    if side_by_side(u, &r, c, total):
        of = <uint8_t*> scratch_alloc(w, c.slots + 1)
        if of == NULL:
            return NULL
        memset(of, 0, c.slots)
        if mark_slots(&r, of):
            return unite_slots(u, k, w, &r, c, of, <int32_t> total)
    out = chunk_new(w)
    if out == NULL or total > 0x7fffffff or chunk_reserve(w, out, k.output, <int32_t> total) != 0:
        return NULL
    out.n = <int32_t> total
    out.slots = out.n
    of = <uint8_t*> scratch_alloc(w, total)
    slots = <int32_t*> scratch_alloc(w, total * 4)
    if of == NULL or slots == NULL or order_rows(w, u, &r, out, of, slots) != 0:
        return NULL
    for j in range(u.columns):
        if not u.needed[j]:
            out.cols[j].data = NULL
        elif copy_column(u, k, w, &r, out, j, of, slots) != 0:
            return NULL
    out.lane = <int16_t> u.lane
    take_unit(&r, c, out)
    return out


cdef class UnionKernel(KernelOwner):
    """Operator "union": attributes {"lanes": of each input, "lane": int, "number", "keep": int, "columns":
    per input its column of each output column, None or "told", "told": value of each input, "needed":
    columns that somebody sees | None}."""

    cdef Union union_
    cdef readonly tuple unmade         # output columns that have no values, since nothing reads them

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        lanes, columns = list(operator.lanes), list(operator.columns)
        width = len(operator.output)
        if not 0 < len(lanes) <= MOST_LANES or len(lanes) != len(columns):
            raise ValueError(f"{operator.name!r}: 1 to {MOST_LANES} lanes, not {len(lanes)}, of "
                             f"{len(columns)} inputs")
        self.union_.n = <int32_t> len(lanes)
        self.union_.columns = <int32_t> width
        self.union_.lane = operator.lane
        self.union_.number = operator.number
        self.union_.keep = operator.keep
        self.union_.source = <int32_t*> calloc(len(lanes) * width + 1, sizeof(int32_t))
        self.union_.needed = <uint8_t*> calloc(width + 1, 1)
        self.union_.told = <int64_t*> calloc(len(lanes), sizeof(int64_t))
        if self.union_.source == NULL or self.union_.needed == NULL or self.union_.told == NULL:
            raise MemoryError
        for i, lane in enumerate(lanes):
            self.union_.lanes[<int> i] = lane
            self.union_.told[<int> i] = operator.told[i]
            for j, column in enumerate(columns[i]):
                self.union_.source[<int> (i * width + j)] = (
                    ABSENT if column is None else TOLD if column == "told" else column)
        needed = range(width) if operator.needed is None else operator.needed
        for j in needed:
            self.union_.needed[<int> j] = 1
        self.unmade = tuple(sorted(set(range(width)) - set(needed)))
        self.kernel.units = 1
        self.kernel.keeps_views = 1
        self.kernel.ctx = <void*> &self.union_
        self.kernel.apply = union_apply
        self.work_on(*lanes)

    def __dealloc__(self):
        free(self.union_.source)
        free(self.union_.needed)
        free(self.union_.told)
