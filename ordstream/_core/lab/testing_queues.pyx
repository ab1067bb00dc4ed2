"""Test doors: the rings (testing_loops.pxd states how doors work)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libcpp cimport bool as cbool
from ordstream._core.ground.atomics cimport (
    a64, add_acq_rel, add_relaxed, cas_relaxed, load_acquire, load_relaxed, store_relaxed, store_release,
)
from ordstream._core.ground.mpmc cimport (
    MPMC_EMPTY, MPMC_GATED, Mpmc, mpmc_free, mpmc_has_room, mpmc_init, mpmc_peek, mpmc_size_approx,
    mpmc_try_push, mpmc_try_push_single, mpmc_try_take, mpmc_try_take_tagged, mpmc_try_take_tagged_run,
)
from ordstream._core.ground.spsc cimport (
    Spsc, spsc_free, spsc_init, spsc_peek, spsc_size_approx, spsc_try_push, spsc_try_take,
)
from ordstream._core.lab.testing_loops cimport TIMED_OUT, late, end_after

# ---------------------------------------------------------------- SPSC

cdef class PySpsc:
    """The SPSC ring. Items are positive integers.

    Parameters
    ----------
    capacity : int
        A power of two.
    start : int
        First position.
    """
    cdef Spsc q

    def __cinit__(self, int64_t capacity, int64_t start=0):
        if spsc_init(&self.q, capacity, start) != 0:
            raise MemoryError

    def __dealloc__(self):
        spsc_free(&self.q)

    def push(self, int64_t item):
        return bool(spsc_try_push(&self.q, item))

    def take(self):
        """The oldest item, or 0."""
        return spsc_try_take(&self.q)

    def peek(self):
        return spsc_peek(&self.q)

    @property
    def size(self):
        return spsc_size_approx(&self.q)

    def produce(self, int64_t n, double seconds=30):
        """Push 1..n, one after another; how often the ring was full, or -1."""
        cdef int64_t item = 1
        cdef int64_t full = 0
        cdef int64_t end = end_after(seconds)
        cdef int32_t rounds = 0
        with nogil:
            while item <= n:
                if spsc_try_push(&self.q, item):
                    item += 1
                else:
                    full += 1
                    if late(end, &rounds):
                        full = TIMED_OUT
                        break
        return full

    def consume(self, int64_t n, double seconds=30):
        """Take n items; how many were not the expected next number, or -1."""
        cdef int64_t expected = 1
        cdef int64_t wrong = 0
        cdef int64_t item
        cdef int64_t end = end_after(seconds)
        cdef int32_t rounds = 0
        with nogil:
            while expected <= n:
                item = spsc_try_take(&self.q)
                if item != 0:
                    wrong += item != expected
                    expected += 1
                elif late(end, &rounds):
                    wrong = TIMED_OUT
                    break
        return wrong


# ---------------------------------------------------------------- MPMC

cdef class PyMpmc:
    """The MPMC ring. Items are positive integers.

    Parameters
    ----------
    capacity : int
        A power of two.
    start : int
        First position.
    """
    cdef Mpmc q
    cdef int64_t start
    cdef a64* taken        # per item: how often it was taken
    cdef int64_t items
    cdef a64 finished      # items taken

    def __cinit__(self, int64_t capacity, int64_t start=1):
        self.start = start
        if mpmc_init(&self.q, capacity, start) != 0:
            raise MemoryError

    def __dealloc__(self):
        mpmc_free(&self.q)
        free(self.taken)

    def push(self, int64_t item):
        return bool(mpmc_try_push(&self.q, item))

    def push_single(self, int64_t item):
        return bool(mpmc_try_push_single(&self.q, item))

    def take(self, limit=None):
        """(item, position), or None: empty, or "gated"."""
        cdef int64_t position = 0
        cdef int64_t most = 0x7fffffffffffffff if limit is None else <int64_t> limit
        cdef int64_t item = mpmc_try_take(&self.q, most, &position)
        if item == MPMC_GATED:
            return "gated"
        return None if item == MPMC_EMPTY else (item, position)

    def take_tagged(self, int64_t limit):
        """(ticket, tag), or None: empty, or "gated"."""
        cdef int64_t part = 0
        cdef int64_t place = 0
        cdef int64_t item = mpmc_try_take_tagged(&self.q, limit, &part, &place)
        if item == MPMC_GATED:
            return "gated"
        return None if item == MPMC_EMPTY else (item >> 16, item & 0xffff)

    def take_tagged_run(self, int64_t limit, int32_t most):
        """[(ticket, tag)] of up to `most` (<= 8) items."""
        cdef int64_t[8] items
        cdef int64_t[8] parts
        cdef int64_t[8] places
        cdef int32_t n = mpmc_try_take_tagged_run(&self.q, limit, most, items, parts, places)
        return [(items[k] >> 16, items[k] & 0xffff) for k in range(n)]

    def peek(self):
        """(item, position), or None."""
        cdef int64_t position = 0
        cdef int64_t item = mpmc_peek(&self.q, &position)
        return None if item == MPMC_EMPTY else (item, position)

    def has_room(self, int64_t n):
        return bool(mpmc_has_room(&self.q, n))

    @property
    def size(self):
        return mpmc_size_approx(&self.q)

    def claim(self):
        """Half of a take, as of a thread that lost the processor there: the position is claimed, the cell
        not yet given back."""
        cdef int64_t position = load_relaxed(&self.q.head)
        if load_acquire(&self.q.cells[position & self.q.mask].sequence) != position + 1:
            return None
        return position if cas_relaxed(&self.q.head, position, position + 1) else None

    def give_back(self, int64_t position):
        """The other half."""
        store_release(&self.q.cells[position & self.q.mask].sequence, position + self.q.mask + 1)

    def begin(self, int64_t items):
        """Forget earlier loops: items 1..n will be pushed."""
        free(self.taken)
        self.taken = <a64*> calloc(items + 1, sizeof(a64))
        if self.taken == NULL:
            raise MemoryError
        self.items = items
        store_relaxed(&self.finished, 0)

    def produce(self, int64_t first, int64_t step, bint single, double seconds=30):
        """Push first, first + step, ... up to the number of items; how often the ring was full, or -1."""
        cdef int64_t item = first
        cdef int64_t full = 0
        cdef int64_t end = end_after(seconds)
        cdef int32_t rounds = 0
        cdef cbool placed
        with nogil:
            while item <= self.items:
                placed = mpmc_try_push_single(&self.q, item) if single else mpmc_try_push(&self.q, item)
                if placed:
                    item += step
                else:
                    full += 1
                    if late(end, &rounds):
                        full = TIMED_OUT
                        break
        return full

    def consume(self, int64_t producers, double seconds=30):
        """Take until all items were taken by somebody; violations seen here: position or per-producer order;
        or -1.

        One producer: an item's position must be its number. Several: each producer's numbers must rise.
        """
        cdef int64_t[16] last
        cdef int64_t last_position = self.start - 1
        cdef int64_t wrong = 0
        cdef int64_t item
        cdef int64_t position = 0
        cdef int64_t end = end_after(seconds)
        cdef int32_t rounds = 0
        cdef int64_t k
        if not 1 <= producers <= 16:
            raise ValueError("1 to 16 producers")
        for k in range(16):
            last[k] = 0
        with nogil:
            while load_acquire(&self.finished) < self.items:
                item = mpmc_try_take(&self.q, 0x7fffffffffffffff, &position)
                if item > 0:
                    if item > self.items:
                        wrong += 1
                        continue
                    wrong += position <= last_position
                    last_position = position
                    k = (item - 1) % producers
                    wrong += item <= last[k]
                    last[k] = item
                    if producers == 1:
                        wrong += item != position - self.start + 1
                    wrong += add_relaxed(&self.taken[item], 1) != 0
                    add_acq_rel(&self.finished, 1)
                elif late(end, &rounds):
                    wrong = TIMED_OUT
                    break
        return wrong

    def taken_once(self):
        """Whether every item was taken exactly once."""
        cdef int64_t k
        for k in range(1, self.items + 1):
            if load_relaxed(&self.taken[k]) != 1:
                return False
        return True
