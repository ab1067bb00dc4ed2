"""Test door: the reorder buffer (testing_loops.pxd states how doors work)."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from ordstream._core.flow.reorder_buffer cimport (
    LOCK_BASED, NON_BLOCKING, RELEASE_MAX, ReorderBuffer, reorder_free, reorder_init, reorder_limit,
    reorder_offer, reorder_offer_run, reorder_put, reorder_ready, reorder_release,
)
from ordstream._core.ground.atomics cimport (
    a64, add_acq_rel, add_relaxed, as_int, cas_relaxed, exchange_acq_rel, exchange_seq, load_acquire,
    load_relaxed, load_seq, store_relaxed, store_release, store_seq,
)
from ordstream._core.ground.threads cimport Mutex, now_ns
from ordstream._core.lab.testing_loops cimport (
    TIMED_OUT, rng_next, jitter, late, end_after, clock_after, thread_ns,
)

cdef extern from *:
    """
    static inline std::mutex* ord_test_mutex_new() { return new (std::nothrow) std::mutex(); }
    static inline void ord_test_mutex_delete(std::mutex* m) { delete m; }
    """
    Mutex* ord_test_mutex_new() nogil
    void ord_test_mutex_delete(Mutex*) nogil

RELEASED_AT_ONCE = RELEASE_MAX


cdef int deliver_test(void* context, void* unit) noexcept nogil:
    cdef Releases* r = <Releases*> context
    cdef int64_t room
    if exchange_acq_rel(&r.inside, 1) != 0:
        r.entered_twice += 1
    if r.refuse_every and rng_next(&r.rng) % <uint64_t> r.refuse_every == 0:
        r.refused += 1
        store_release(&r.inside, 0)
        return 0
    room = load_relaxed(&r.room)
    if room == 0:
        r.refused += 1
        store_release(&r.inside, 0)
        return 0
    if room > 0:
        store_relaxed(&r.room, room - 1)
    if r.expected:
        r.wrong += as_int(unit) != r.expected
        r.expected += 1
    if r.count < r.kept:
        r.delivered[r.count] = as_int(unit)
    r.count += 1
    store_release(&r.inside, 0)
    return 1


cdef int release_weakly(ReorderBuffer* rb, Releases* r) noexcept nogil:
    """A mutant of release_non_blocking: the flag is cleared with a release store. It must be caught."""
    cdef int64_t n
    cdef int64_t unit
    cdef a64* slot
    while True:
        if exchange_seq(&rb.flag, 1) != 0:
            return 0
        n = load_relaxed(&rb.next)
        while True:
            slot = &rb.slots[n & rb.mask]
            unit = load_acquire(slot)
            if unit == 0:
                break
            deliver_test(r, <void*> unit)
            store_relaxed(slot, 0)
            n += 1
            store_release(&rb.next, n)
        store_release(&rb.flag, 0)                            # the mutation
        if load_seq(slot) == 0:
            return 0


cdef class PyReorderBuffer:
    """The reorder buffer, both schemes. Units are positive integers.

    Parameters
    ----------
    size : int
        A power of two.
    first : int
        First ticket.
    scheme : "nonblocking" or "lock"
    keep : int
        How many delivered units `delivered` remembers.
    alone : bool
        As in a run with one worker.
    weak_clear : bool
        Release with a known mistake, for a test of the tests (non-blocking scheme only).
    """
    cdef ReorderBuffer rb
    cdef Releases releases
    cdef a64 tickets       # next ticket to hand out in `work`
    cdef a64 arrived       # barrier of `meet`
    cdef a64 stuck
    cdef a64 enough        # 1: `meet` begins no further round
    cdef bint weak_clear
    cdef int64_t first

    def __cinit__(self, int64_t size, int64_t first=1, scheme="nonblocking", int64_t keep=0,
                  bint alone=False, bint weak_clear=False):
        cdef Mutex* mutex = NULL
        self.weak_clear = weak_clear
        if scheme == "lock":
            mutex = ord_test_mutex_new()
            if mutex == NULL:
                raise MemoryError
        if reorder_init(&self.rb, size, first, LOCK_BASED if scheme == "lock" else NON_BLOCKING, mutex) != 0:
            raise MemoryError
        self.rb.alone = alone
        self.first = first
        self.releases.kept = keep
        self.releases.delivered = <int64_t*> calloc(keep + 1, 8)
        self.releases.rng = 88172645463325252
        if self.releases.delivered == NULL:
            raise MemoryError
        store_relaxed(&self.releases.room, -1)
        store_relaxed(&self.tickets, first)

    def __dealloc__(self):
        if self.rb.mutex != NULL:
            ord_test_mutex_delete(self.rb.mutex)
        reorder_free(&self.rb)
        free(self.releases.delivered)

    cdef inline int release_all(self) noexcept nogil:
        if self.weak_clear:
            return release_weakly(&self.rb, &self.releases)
        return reorder_release(&self.rb, deliver_test, &self.releases)

    def put(self, int64_t ticket, int64_t unit):
        reorder_put(&self.rb, ticket, unit)

    def release(self):
        """Units released."""
        cdef int released
        with nogil:
            released = self.release_all()
        return released

    cdef inline void send(self, int64_t ticket, int64_t unit, bint offer) noexcept nogil:
        if offer:
            reorder_offer(&self.rb, ticket, unit, deliver_test, &self.releases)
        else:
            reorder_put(&self.rb, ticket, unit)
            self.release_all()

    def offer(self, int64_t ticket, int64_t unit):
        """Put and release in one step; units released."""
        cdef int released
        with nogil:
            released = reorder_offer(&self.rb, ticket, unit, deliver_test, &self.releases)
        return released

    def offer_run(self, int64_t ticket, units):
        """As offer for units with consecutive tickets, 16 at most; units released."""
        cdef int64_t[16] run
        cdef int32_t n = <int32_t> len(units)
        cdef int32_t k
        cdef int released
        if n > 16:
            raise ValueError("at most 16 units")
        for k in range(n):
            run[k] = units[k]
        with nogil:
            released = reorder_offer_run(&self.rb, ticket, run, n, deliver_test, &self.releases)
        return released

    def hold_flag(self):
        """Be the releasing worker that lost the processor: True when the flag was free."""
        return exchange_seq(&self.rb.flag, 1) == 0

    def drop_flag(self):
        store_seq(&self.rb.flag, 0)

    @property
    def ready(self):
        return bool(reorder_ready(&self.rb))

    @property
    def limit(self):
        return reorder_limit(&self.rb)

    @property
    def next(self):
        return load_acquire(&self.rb.next)

    @property
    def room(self):
        return load_relaxed(&self.releases.room)

    @room.setter
    def room(self, int64_t units):
        store_relaxed(&self.releases.room, units)

    @property
    def delivered(self):
        cdef int64_t k
        return [self.releases.delivered[k] for k in range(min(self.releases.count, self.releases.kept))]

    @property
    def figures(self):
        """What the deliveries saw."""
        return {
            "count": self.releases.count, "wrong": self.releases.wrong,
            "entered_twice": self.releases.entered_twice, "refused": self.releases.refused,
            "stuck": load_relaxed(&self.stuck),
        }

    def begin(self, int32_t refuse_every=0):
        """Before `work`: units will be tickets, and about one delivery in `refuse_every` (0: none) is
        refused."""
        self.releases.expected = self.first
        self.releases.refuse_every = refuse_every

    def work(self, int64_t n, uint64_t seed, bint offer=False, double seconds=30, int32_t most=1):
        """Body of one of several threads that send tickets first .. first + n - 1, gate at dispatch
        included; with `most` (16 at most) above 1, runs of up to so many.

        A worker without a ticket releases what is ready, as the scheduler would let it. Returns tickets sent
        here, or -1.
        """
        cdef int64_t[16] units
        cdef int64_t m
        cdef int64_t k
        cdef int64_t end = end_after(seconds)
        cdef int64_t sent = 0
        cdef int64_t ticket
        cdef uint64_t rng = seed * <uint64_t> 0x9E3779B97F4A7C15 + 1
        cdef int32_t rounds = 0
        with nogil:
            while load_acquire(&self.rb.next) < self.first + n:
                ticket = load_relaxed(&self.tickets)
                if ticket < self.first + n and ticket < reorder_limit(&self.rb):
                    m = 1
                    if most > 1:
                        m += <int64_t> (rng_next(&rng) % <uint64_t> most)
                    m = min(m, self.first + n - ticket, reorder_limit(&self.rb) - ticket)
                    if not cas_relaxed(&self.tickets, ticket, ticket + m):
                        continue
                    jitter(&rng)
                    if most > 1:
                        for k in range(m):
                            units[k] = ticket + k
                        reorder_offer_run(&self.rb, ticket, units, <int32_t> m, deliver_test, &self.releases)
                    else:
                        self.send(ticket, ticket, offer)
                    sent += m
                elif reorder_ready(&self.rb):
                    self.release_all()
                    if late(end, &rounds):
                        sent = TIMED_OUT
                        break
                elif late(end, &rounds):
                    sent = TIMED_OUT
                    break
        return sent

    def meet(self, int64_t id, int64_t threads, int64_t rounds, uint64_t seed, bint offer=False,
             double seconds=30, double enough=10):
        """Litmus: in each round every thread sends one ticket; then, with nobody in send, nothing ready may
        be left behind.

        After `enough` seconds by the clock no further round begins: where threads share a core with other
        load, a round takes milliseconds. Returns rounds done, the same for all threads, or -1.
        figures["stuck"] counts rounds that left a ready unit.
        """
        cdef int64_t end = end_after(seconds)
        cdef int64_t last = clock_after(enough)
        cdef int64_t round_
        cdef int64_t base
        cdef uint64_t rng = (seed + <uint64_t> id) * <uint64_t> 0x9E3779B97F4A7C15 + 1
        cdef int32_t waits = 0
        cdef int64_t done = 0
        with nogil:
            for round_ in range(rounds):
                base = self.first + round_ * threads
                if id == 0 and now_ns() > last:
                    store_relaxed(&self.enough, 1)  # everybody sees it behind the meeting
                add_acq_rel(&self.arrived, 1)
                while load_acquire(&self.arrived) < (2 * round_ + 1) * threads:
                    if late(end, &waits):
                        done = TIMED_OUT
                        break
                if done < 0 or load_relaxed(&self.enough):
                    break
                jitter(&rng)
                self.send(base + id, base + id, offer)
                add_acq_rel(&self.arrived, 1)
                while load_acquire(&self.arrived) < (2 * round_ + 2) * threads:
                    if late(end, &waits):
                        done = TIMED_OUT
                        break
                if id == 0 and load_acquire(&self.rb.next) != base + threads:
                    add_relaxed(&self.stuck, 1)
                    while load_acquire(&self.rb.next) != base + threads and thread_ns() < end:
                        self.release_all()
                if done < 0:
                    break
                done += 1
        return done
