"""Test door: the event count (testing_loops.pxd states how doors work)."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.atomics cimport (
    a64, add_acq_rel, add_relaxed, add_seq, load_acquire, load_relaxed, load_seq,
)
from ordstream._core.ground.mpmc cimport (
    MPMC_EMPTY, Mpmc, mpmc_free, mpmc_init, mpmc_peek, mpmc_try_push_single, mpmc_try_take,
)
from ordstream._core.ground.threads cimport EventCount, cpu_pause, cpu_yield, now_ns
from ordstream._core.lab.testing_loops cimport TIMED_OUT, rng_next, late, end_after, clock_after, thread_ns

cdef extern from *:
    """
    static inline OrdEventCount* ord_test_event_new() { return new (std::nothrow) OrdEventCount(); }
    static inline void ord_test_event_delete(OrdEventCount* e) { delete e; }
    """
    EventCount* ord_test_event_new() nogil
    void ord_test_event_delete(EventCount*) nogil


cdef class PyEventCount:
    """The event count, and the park/notify handshake of the workers around a queue.

    Parameters
    ----------
    capacity : int
        Of the queue; a power of two.
    """
    cdef EventCount* event
    cdef Mpmc q
    cdef a64 parked
    cdef a64 taken
    cdef a64 parks
    cdef a64 timeouts

    def __cinit__(self, int64_t capacity=64):
        self.event = ord_test_event_new()
        if self.event == NULL or mpmc_init(&self.q, capacity, 1) != 0:
            raise MemoryError

    def __dealloc__(self):
        if self.event != NULL:
            ord_test_event_delete(self.event)
        mpmc_free(&self.q)

    def prepare(self):
        return self.event.prepare()

    def wait(self, int64_t seen, double seconds):
        """True: the epoch moved; False: timed out."""
        cdef bint moved
        cdef int64_t ns = <int64_t> (seconds * 1e9)
        with nogil:
            moved = self.event.wait(seen, ns)
        return bool(moved)

    def notify_one(self):
        with nogil:
            self.event.notify_one()

    def notify_all(self):
        with nogil:
            self.event.notify_all()

    def produce(self, int64_t n, uint64_t seed, double seconds=30):
        """Push n items, waking a parked consumer per item, with random gaps. Items pushed, or -1."""
        cdef int64_t end = end_after(seconds)
        cdef int64_t item = 1
        cdef uint64_t rng = seed * <uint64_t> 0x9E3779B97F4A7C15 + 1
        cdef int32_t rounds = 0
        cdef int64_t _k
        with nogil:
            while item <= n:
                if not mpmc_try_push_single(&self.q, item):
                    if late(end, &rounds):
                        item = 0
                        break
                    continue
                item += 1
                # As operator_release: a sequentially consistent store (there: the flag), then the look at
                # `parked`.
                add_seq(&self.taken, 0)
                if load_seq(&self.parked) > 0:
                    self.event.notify_one()
                if rng_next(&rng) % 8 == 0:
                    for _k in range(<int64_t> (rng_next(&rng) % 2000)):
                        cpu_pause()
            if item > 0:
                while load_acquire(&self.taken) < n and thread_ns() < end:
                    cpu_yield()
                self.event.notify_all()
        return item - 1

    def consume(self, int64_t n, double park_seconds, double seconds=30):
        """Take until n items were taken by all consumers; parks at once when there is nothing. Items taken
        here, or -1.

        Its seconds are the clock's: who parks uses no processor.
        """
        cdef int64_t end = clock_after(seconds)
        cdef int64_t mine = 0
        cdef int64_t seen
        cdef int64_t position = 0
        cdef int64_t ns = <int64_t> (park_seconds * 1e9)
        with nogil:
            while load_acquire(&self.taken) < n:
                if mpmc_try_take(&self.q, 0x7fffffffffffffff, &position) > 0:
                    add_acq_rel(&self.taken, 1)
                    mine += 1
                    continue
                if now_ns() > end:
                    mine = TIMED_OUT
                    break
                seen = self.event.prepare()
                add_seq(&self.parked, 1)
                if mpmc_peek(&self.q, &position) == MPMC_EMPTY and load_acquire(&self.taken) < n:
                    add_relaxed(&self.parks, 1)
                    if not self.event.wait(seen, ns) and mpmc_peek(&self.q, &position) != MPMC_EMPTY:
                        add_relaxed(&self.timeouts, 1)
                add_seq(&self.parked, -1)
            self.event.notify_all()
        return mine

    @property
    def figures(self):
        return {"taken": load_relaxed(&self.taken), "parks": load_relaxed(&self.parks),
                "timeouts": load_relaxed(&self.timeouts)}
