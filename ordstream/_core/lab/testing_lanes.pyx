"""Test door: two kernels that take whole units, to run the flow's lanes with. Used for testing only.

Divide: rows to lanes, by an int64 column modulo their number, or every row to every lane. Unite: lanes into
one, by order tag, then by the slot at the branch point, then in the order of the call. Contract: kernel.pxd
(e).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport (
    Chunk, Column, Fork, LayoutOwner, Worker, chunk_alloc, chunk_hold, chunk_new, chunk_reserve,
    chunk_set_valid, row_slot, scratch_alloc, slot_serial,
)
from ordstream._core.ground.kernel cimport ON_ERROR_FAIL, SL, Kernel, KernelOwner
from ordstream._core.ground.kernel import MOST_LANES

cdef struct Divide:
    int32_t column
    int32_t n
    int32_t copies         # 1: every row to every lane
    int64_t number         # of this branch, for the Unite of its lanes
    int32_t lanes[64]

cdef struct Unite:
    int32_t n
    int32_t lane           # that the rows go to
    int64_t number         # of the branch
    int32_t lanes[64]      # in the order of the call


cdef inline int32_t target(const Divide* d, const Chunk* c, int32_t slot) noexcept nogil:
    """Which of its lanes a row goes to: the first one where the column is null."""
    cdef const Column* col = &c.cols[d.column]
    cdef int64_t v
    if col.valid != NULL and not col.valid[slot]:
        return 0
    v = (<const int64_t*> col.data)[slot] % d.n
    return <int32_t> (v + d.n if v < 0 else v)


cdef inline Chunk* enter(Chunk* c, int32_t lane, Fork* fork) noexcept nogil:
    c.lane = <int16_t> lane
    c.fork = fork
    c.place = NULL
    return c


cdef Chunk* divide_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Divide rows into lanes.

    Each lane gets a chunk with the columns of `c` and a selection of its own; the first one is `c` itself.

    Thread safety: any worker. Ownership: the new chunks are the unit's. Returns: c, or NULL: no memory.
    Cost: ~2 ns per row.
    """
    cdef const Divide* d = <const Divide*> k.ctx
    cdef Fork* fork = <Fork*> chunk_alloc(w, c, sizeof(Fork))
    cdef int32_t[64] count
    cdef int32_t[64] start
    cdef uint8_t* to
    cdef int32_t* sel
    cdef int32_t i
    cdef int32_t j
    cdef int32_t first = -1
    cdef int32_t total = 0
    cdef Chunk* last = c
    cdef Chunk* new
    if fork == NULL:
        return NULL
    fork.outer = c.fork
    fork.place = c.place
    fork.branch = d.number
    if c.n == 1 and not d.copies:
        return enter(c, d.lanes[target(d, c, row_slot(c, 0))], fork)
    to = <uint8_t*> scratch_alloc(w, c.n)
    sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4 * (d.n if d.copies else 1))
    if to == NULL or sel == NULL:
        return NULL
    for j in range(d.n):
        count[j] = c.n if d.copies else 0
    if not d.copies:
        for i in range(c.n):
            to[i] = <uint8_t> target(d, c, row_slot(c, i))
            count[to[i]] += 1
    for j in range(d.n):
        start[j] = total
        total += count[j]
        if count[j] and first < 0:
            first = j
    if count[first] == total:
        return enter(c, d.lanes[first], fork)
    if d.copies:
        for j in range(d.n):
            for i in range(c.n):
                sel[start[j] + i] = row_slot(c, i)
    else:
        for i in range(c.n):
            sel[start[to[i]]] = row_slot(c, i)
            start[to[i]] += 1
        for j in range(d.n):
            start[j] -= count[j]
    for j in range(first + 1, d.n):
        if not count[j]:
            continue
        new = chunk_new(w)
        if new == NULL:
            return NULL
        new.ncols = c.ncols
        memcpy(new.cols, c.cols, c.ncols * sizeof(Column))
        new.n = count[j]
        new.slots = c.slots
        new.sel = sel + start[j]
        new.first_serial = c.first_serial
        new.last_serial = c.last_serial
        new.serials = c.serials
        enter(new, d.lanes[j], fork)
        new.beside = last.beside
        last.beside = new
        last = new
    c.n = count[first]
    c.sel = sel + start[first]
    return enter(c, d.lanes[first], fork)


cdef inline Fork* fork_of(const Chunk* c, int64_t number) noexcept nogil:
    """The chunk's branch point of this number; NULL where its rows were made behind it, by a flush."""
    cdef Fork* f = c.fork
    while f != NULL and f.branch != number:
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


cdef inline int32_t place_before(const Fork* f, int32_t place) noexcept nogil:
    """The place at the branch point outside `f` of a place in `f`."""
    return place if f.place == NULL else f.place[place]


cdef Chunk* pass_on(const Unite* u, Worker* w, Chunk* c) noexcept nogil:
    """Only one lane has rows: its chunk goes on. NULL: no memory."""
    cdef Fork* f = fork_of(c, u.number)
    cdef int32_t* places
    cdef int32_t k
    cdef int32_t slot
    c.lane = <int16_t> u.lane
    if f == NULL:
        return c
    if f.outer == NULL:
        c.fork = NULL
        c.place = NULL
        return c
    places = <int32_t*> chunk_alloc(w, c, <int64_t> c.slots * 4)
    if places == NULL:
        return NULL
    for k in range(c.n):
        slot = row_slot(c, k)
        places[slot] = place_before(f, place_in(c, slot, f))
    c.fork = f.outer
    c.place = places
    return c


cdef int order_rows(Worker* w, Chunk** inputs, int32_t n, Chunk* out, Fork* f, uint8_t* of,
                    int32_t* slots) noexcept nogil:
    """Which input and slot each output row comes from; its serial and place. 0, or -1: no memory."""
    cdef int32_t at[64]
    cdef int32_t j
    cdef int32_t i
    cdef int32_t best
    cdef int32_t slot
    cdef int32_t place
    cdef int32_t best_place
    cdef int64_t serial
    cdef int64_t best_serial
    out.serials = <int64_t*> chunk_alloc(w, out, <int64_t> out.n * 8)
    out.place = <int32_t*> chunk_alloc(w, out, <int64_t> out.n * 4)
    if out.serials == NULL or out.place == NULL:
        return -1
    for j in range(n):
        at[j] = 0
    for i in range(out.n):
        best = -1
        best_serial = 0
        best_place = 0
        for j in range(n):
            if at[j] == inputs[j].n:
                continue
            slot = row_slot(inputs[j], at[j])
            serial = slot_serial(inputs[j], slot)
            place = place_in(inputs[j], slot, f)
            if best < 0 or serial < best_serial or (serial == best_serial and place < best_place):
                best = j
                best_serial = serial
                best_place = place
        of[i] = <uint8_t> best
        slots[i] = row_slot(inputs[best], at[best])
        at[best] += 1
        out.place[i] = place_before(f, best_place) if f != NULL else 0
        out.serials[i] = best_serial
    return 0


cdef int copy_rows(Kernel* k, Worker* w, Chunk** inputs, int32_t n, Chunk* out, const uint8_t* of,
                   const int32_t* slots) noexcept nogil:
    """The output's columns. 0, or -1: no memory."""
    cdef int32_t i
    cdef int32_t j
    cdef int32_t width
    cdef bint nulls
    for j in range(k.output.ncols):
        width = k.output.width[j]
        for i in range(out.n):
            memcpy(out.cols[j].data + <int64_t> i * width,
                   inputs[of[i]].cols[j].data + <int64_t> slots[i] * width, width)
        nulls = False
        for i in range(n):
            nulls = nulls or inputs[i].cols[j].valid != NULL
        if not nulls:
            continue
        if chunk_set_valid(w, out, j) != 0:
            return -1
        for i in range(out.n):
            if inputs[of[i]].cols[j].valid != NULL:
                out.cols[j].valid[i] = inputs[of[i]].cols[j].valid[slots[i]]
    return 0


cdef Chunk* unite_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """Merge the lanes of a unit: rows are copied in their order; if one lane has all of them, it goes on.

    Thread safety: any worker. Ownership: the result holds the chunks that it takes from the unit, but for
    `c`.
    Returns: c or a new chunk; NULL: no memory. Cost: a pass over the rows for each lane, a copy per column.
    """
    cdef const Unite* u = <const Unite*> k.ctx
    cdef Chunk* inputs[64]
    cdef int32_t n = 0
    cdef int32_t j
    cdef int64_t total = 0
    cdef Fork* f
    cdef Chunk* b
    cdef Chunk* following
    cdef Chunk* out
    cdef uint8_t* of
    cdef int32_t* slots
    cdef bint taken
    for j in range(u.n):
        b = c
        while b != NULL:
            if b.lane == u.lanes[j] and b.n:
                inputs[n] = b
                total += b.n
                n += 1
            b = b.beside
    if n == 1:
        return pass_on(u, w, c)
    out = chunk_new(w)
    if out == NULL or chunk_reserve(w, out, k.output, <int32_t> total) != 0:
        return NULL
    out.n = <int32_t> total
    out.slots = out.n
    of = <uint8_t*> scratch_alloc(w, total)
    slots = <int32_t*> scratch_alloc(w, total * 4)
    f = fork_of(c, u.number)
    if (of == NULL or slots == NULL or order_rows(w, inputs, n, out, f, of, slots) != 0
            or copy_rows(k, w, inputs, n, out, of, slots) != 0):
        return NULL
    out.lane = <int16_t> u.lane
    out.fork = f.outer if f != NULL else NULL
    b = c.beside
    c.beside = NULL
    while b != NULL:
        following = b.beside
        b.beside = NULL
        taken = False
        for j in range(n):
            taken = taken or inputs[j] == b
        if taken:
            chunk_hold(out, b)
        else:
            b.beside = out.beside
            out.beside = b
        b = following
    return out


cdef class DivideKernel(KernelOwner):
    """A branch, number `number`, of rows of `layout` by column `column` (int64) to `lanes`."""
    cdef Divide divide

    def __init__(self, LayoutOwner layout not None, int column, lanes, int number, bint copies):
        if not 0 < len(lanes) <= MOST_LANES:
            raise ValueError(f"1 to {MOST_LANES} lanes, not {len(lanes)}")
        self.input_layout = layout
        self.output_layout = layout
        self.kernel.kind = SL
        self.kernel.on_error = ON_ERROR_FAIL
        self.kernel.units = 1
        self.kernel.input = &layout.layout
        self.kernel.output = &layout.layout
        self.kernel.apply = divide_apply
        self.kernel.ctx = <void*> &self.divide
        self.divide.column = column
        self.divide.number = number
        self.divide.copies = copies
        self.divide.n = <int32_t> len(lanes)
        for i, lane in enumerate(lanes):
            self.divide.lanes[<int> i] = lane


cdef class UniteKernel(KernelOwner):
    """The union of `lanes`, in the order of the call, of branch `number`; the rows go to `lane`."""
    cdef Unite unite

    def __init__(self, LayoutOwner layout not None, lanes, int lane, int number):
        self.input_layout = layout
        self.output_layout = layout
        self.kernel.kind = SL
        self.kernel.on_error = ON_ERROR_FAIL
        self.kernel.units = 1
        self.kernel.input = &layout.layout
        self.kernel.output = &layout.layout
        self.kernel.apply = unite_apply
        self.kernel.ctx = <void*> &self.unite
        self.unite.lane = lane
        self.unite.number = number
        self.unite.n = <int32_t> len(lanes)
        for i, of in enumerate(lanes):
            self.unite.lanes[<int> i] = of
        self.work_on(*lanes)
