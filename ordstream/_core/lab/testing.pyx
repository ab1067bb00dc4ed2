"""Test doors: each structure of the core alone, driven from Python threads. Used for testing only.

A class wraps one structure. Single steps are ordinary methods (deterministic tests); `produce`, `consume`, `work` and `meet` are
loops that several `threading.Thread`s run at once without the GIL. A loop checks what it sees and counts violations, and gives
up after `seconds` (a lost item must fail a test, not hang it): then it returns a negative number. These are seconds of the thread's
own processor time, for beside other load two threads that wait for each other take turns of milliseconds.
Memory ownership: each object owns its structure and everything allocated for it.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libcpp cimport bool as cbool
from ordstream._core.ground.atomics cimport (
    a64, add_acq_rel, add_relaxed, add_seq, as_int, cas_relaxed, exchange_acq_rel, exchange_seq, load_acquire,
    load_relaxed, load_seq, store_relaxed, store_release, store_seq, sub_acq_rel,
)
from ordstream._core.ground.arrow cimport limit_offsets
from ordstream._core.ground.chunk cimport Chunk, Part
from ordstream._core.ground.mpmc cimport (
    MPMC_EMPTY, MPMC_GATED, Mpmc, MpmcCell, mpmc_free, mpmc_has_room, mpmc_init, mpmc_peek, mpmc_size_approx, mpmc_try_push,
    mpmc_try_push_single, mpmc_try_take, mpmc_try_take_tagged, mpmc_try_take_tagged_run,
)
from ordstream._core.flow.worklist.buckets cimport HYBRID, PQ_NOTHING, PartitionQueues, pq_free, pq_init
from ordstream._core.flow.worklist.hybrid cimport Claims, hybrid_claim, hybrid_enter_claim
from ordstream._core.flow.worklist.partition_queues cimport pq_add, pq_enter, pq_has_room, pq_has_work, pq_leave, pq_next
from ordstream._core.flow.reorder_buffer cimport (
    LOCK_BASED, NON_BLOCKING, RELEASE_MAX, ReorderBuffer, reorder_free, reorder_init, reorder_limit, reorder_offer, reorder_offer_run,
    reorder_put, reorder_ready, reorder_release,
)
from ordstream._core.ground.spsc cimport Spsc, spsc_free, spsc_init, spsc_peek, spsc_size_approx, spsc_try_push, spsc_try_take
from ordstream._core.ground.threads cimport EventCount, Mutex, cpu_pause, cpu_yield, now_ns

cdef extern from *:
    """
    static inline OrdEventCount* ord_test_event_new() { return new (std::nothrow) OrdEventCount(); }
    static inline void ord_test_event_delete(OrdEventCount* e) { delete e; }
    static inline std::mutex* ord_test_mutex_new() { return new (std::nothrow) std::mutex(); }
    static inline void ord_test_mutex_delete(std::mutex* m) { delete m; }
    #if !defined(_WIN32)
    #include <time.h>
    #endif
    static inline int64_t ord_thread_ns() {
    #if defined(_WIN32)
        return ord_now_ns();
    #else
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
    #endif
    }
    """
    int64_t thread_ns "ord_thread_ns"() noexcept nogil
    EventCount* ord_test_event_new() nogil
    void ord_test_event_delete(EventCount*) nogil
    Mutex* ord_test_mutex_new() nogil
    void ord_test_mutex_delete(Mutex*) nogil

cdef enum:
    TIMED_OUT = -1
    ADD_STEPS = 4          # pauses of a jittered wait, at most 2 ** ADD_STEPS

NO_TICKET_LIMIT = (1 << 47) - 1
RELEASED_AT_ONCE = RELEASE_MAX


cdef inline uint64_t rng_next(uint64_t* rng) noexcept nogil:
    rng[0] ^= rng[0] << 13
    rng[0] ^= rng[0] >> 7
    rng[0] ^= rng[0] << 17
    return rng[0]


cdef inline void jitter(uint64_t* rng) noexcept nogil:
    """A few pauses, now and then a yield: moves the threads against each other."""
    cdef uint64_t r = rng_next(rng)
    cdef uint64_t _k
    if r & 0xff == 0:
        cpu_yield()
    for _k in range((r >> 8) & ((1 << ADD_STEPS) - 1)):
        cpu_pause()


cdef inline cbool late(int64_t end, int32_t* rounds) noexcept nogil:
    """One step of waiting for another thread; True when the time is over."""
    rounds[0] += 1
    if rounds[0] & 63:
        cpu_pause()
        return False
    cpu_yield()
    return thread_ns() > end


cdef inline int64_t end_after(double seconds) noexcept nogil:
    """By the clock of `late`."""
    return thread_ns() + <int64_t> (seconds * 1e9)


cdef inline int64_t clock_after(double seconds) noexcept nogil:
    """By the clock on the wall."""
    return now_ns() + <int64_t> (seconds * 1e9)


def set_offset_limit(int64_t limit):
    """Let columns of output batches have at most so many bytes, or elements, in place of 2^31 - 1; returns what it was. For every run
    that is made afterwards; not while one is open."""
    return limit_offsets(limit)


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
        """Half of a take, as of a thread that lost the processor there: the position is claimed, the cell not yet given back."""
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
        """Take until all items were taken by somebody; violations seen here: position or per-producer order; or -1.

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


# ---------------------------------------------------------------- reorder buffer

cdef struct Releases:
    # What deliver sees; touched by the flag's (lock's) holder only, but for the atomics.
    int64_t* delivered     # first units delivered
    int64_t kept           # room in `delivered`
    int64_t count
    int64_t expected       # next unit in a loop (units are tickets there); 0: not a loop
    int64_t wrong          # out of order
    int64_t entered_twice
    int64_t refused
    a64 inside
    a64 room               # units that may still be delivered; negative: no bound
    uint64_t rng
    int32_t refuse_every   # about one delivery in so many is refused; 0: none


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

    def __cinit__(self, int64_t size, int64_t first=1, scheme="nonblocking", int64_t keep=0, bint alone=False, bint weak_clear=False):
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
            "count": self.releases.count, "wrong": self.releases.wrong, "entered_twice": self.releases.entered_twice,
            "refused": self.releases.refused, "stuck": load_relaxed(&self.stuck),
        }

    def begin(self, int32_t refuse_every=0):
        """Before `work`: units will be tickets, and about one delivery in `refuse_every` (0: none) is refused."""
        self.releases.expected = self.first
        self.releases.refuse_every = refuse_every

    def work(self, int64_t n, uint64_t seed, bint offer=False, double seconds=30, int32_t most=1):
        """Body of one of several threads that send tickets first .. first + n - 1, gate at dispatch included; with `most` (16 at most)
        above 1, runs of up to so many.

        A worker without a ticket releases what is ready, as the scheduler would let it. Returns tickets sent here, or -1.
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

    def meet(self, int64_t id, int64_t threads, int64_t rounds, uint64_t seed, bint offer=False, double seconds=30, double enough=10):
        """Litmus: in each round every thread sends one ticket; then, with nobody in send, nothing ready may be left behind.

        After `enough` seconds by the clock no further round begins: where threads share a core with other load, a round takes milliseconds.
        Returns rounds done, the same for all threads, or -1. figures["stuck"] counts rounds that left a ready unit.
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


# ---------------------------------------------------------------- partition queues

cdef class PyPartitionQueues:
    """Worklist of a partitioned operator, any of the three schemes, together with its reorder buffer.

    Parameters
    ----------
    scheme : "hybrid", "partitioned" or "shared"
    p : int
        Buckets.
    depth : int
        Chunks that may be inside.
    first : int
        First ticket.
    """
    cdef PartitionQueues pq
    cdef ReorderBuffer rb
    cdef Releases releases
    cdef int64_t depth
    cdef int64_t first
    cdef int64_t issued            # last ticket; the producer's own
    cdef int64_t* given            # per bucket: parts given to it; the producer's own
    cdef int64_t* processed        # per bucket: parts processed; the holder's own
    cdef Part** oldest             # single steps, per bucket: the part that enter() was told of
    cdef a64* busy                 # per bucket: 1 while a worker is inside
    cdef a64 wrong                 # a part that is not the bucket's next
    cdef a64 entered_twice
    cdef a64 handed_over
    cdef a64 claims_made
    cdef Claims claims             # single steps
    cdef int32_t claimed
    cdef a64 lost                  # pq_next found nothing where the count promised a part
    cdef list chunks

    def __cinit__(self, scheme, int32_t p, int64_t depth, int64_t first=1):
        cdef int64_t slots = 2
        self.depth = depth
        self.first = first
        self.issued = first - 1
        while slots < depth:
            slots *= 2
        if pq_init(&self.pq, {"hybrid": 0, "partitioned": 1, "shared": 2}[scheme], p, depth, p) != 0:
            raise MemoryError
        if reorder_init(&self.rb, slots, first, NON_BLOCKING, NULL) != 0:
            raise MemoryError
        self.given = <int64_t*> calloc(p, 8)
        self.processed = <int64_t*> calloc(p, 8)
        self.busy = <a64*> calloc(p, sizeof(a64))
        self.oldest = <Part**> calloc(p, sizeof(void*))
        if self.given == NULL or self.processed == NULL or self.busy == NULL or self.oldest == NULL:
            raise MemoryError
        store_relaxed(&self.releases.room, -1)
        self.releases.expected = first

    def __dealloc__(self):
        # Chunks that were never finished are leaked: only failing tests do that.
        pq_free(&self.pq)
        reorder_free(&self.rb)
        free(self.given)
        free(self.processed)
        free(self.oldest)
        free(self.busy)

    cdef Chunk* make(self, const int32_t* buckets, int32_t n) noexcept nogil:
        """A chunk with the next ticket whose parts lie in `buckets`; each part's `n` is its number within the bucket."""
        cdef Chunk* c = <Chunk*> calloc(1, sizeof(Chunk))
        cdef int32_t k
        if c == NULL:
            return NULL
        if n == 1:
            c.parts = &c.one_part
        else:
            c.parts = <Part*> calloc(n, sizeof(Part))
            if c.parts == NULL:
                free(c)
                return NULL
        c.nparts = n
        for k in range(n):
            c.parts[k].chunk = c
            c.parts[k].bucket = buckets[k]
            self.given[buckets[k]] += 1
            c.parts[k].n = <int32_t> self.given[buckets[k]]
        store_relaxed(&c.pending, n)
        self.issued += 1
        c.ticket = self.issued
        return c

    cdef void finish_part(self, Part* part) noexcept nogil:
        """Mark a part processed; the chunk's last part puts its ticket into the reorder buffer and releases."""
        cdef Chunk* c = part.chunk
        cdef int64_t ticket
        if c.nparts == 1 or sub_acq_rel(&c.pending, 1) == 1:
            ticket = c.ticket
            if c.nparts > 1:
                free(c.parts)
            free(c)
            reorder_put(&self.rb, ticket, ticket)
            reorder_release(&self.rb, deliver_test, &self.releases)

    cdef bint has_room(self, int32_t n) noexcept nogil:
        """As operator_has_room."""
        cdef int64_t inside = self.issued - load_acquire(&self.rb.next) + 1
        if inside > 0 and inside + 1 > self.depth:
            return False
        return pq_has_room(&self.pq, n)

    # single steps

    def add(self, buckets):
        """A chunk with one part in each of the (different) buckets; its ticket, or None: no room."""
        cdef int32_t[64] b
        cdef int32_t n = <int32_t> len(buckets)
        cdef int32_t k
        cdef Chunk* c
        if not 1 <= n <= 64:
            raise ValueError("1 to 64 buckets")
        for k in range(n):
            b[k] = buckets[k]
        if not self.has_room(n):
            return None
        c = self.make(b, n)
        if c == NULL:
            raise MemoryError
        pq_add(&self.pq, c, c.ticket)
        return self.issued

    def enter(self, limit=None, int32_t start=0):
        """(bucket, parts to process), or None."""
        cdef int64_t run = 0
        cdef int64_t most = reorder_limit(&self.rb) if limit is None else <int64_t> limit
        cdef Part* first = NULL
        cdef int32_t b = pq_enter(&self.pq, most, start, &run, &first)
        if b >= 0:
            self.oldest[b] = first
        return None if b == PQ_NOTHING else (b, run)

    def claim(self, int32_t most, limit=None):
        """Claim up to `most` items; how many."""
        self.claimed = hybrid_claim(&self.pq, reorder_limit(&self.rb) if limit is None else <int64_t> limit, most, &self.claims)
        return self.claimed

    def enter_claim(self, int32_t k):
        """As `enter`, for claim k."""
        cdef int64_t run = 0
        cdef Part* first = NULL
        if not 0 <= k < self.claimed:
            raise IndexError(k)
        cdef int32_t b = hybrid_enter_claim(&self.pq, &self.claims, k, &run, &first)
        if b >= 0:
            self.oldest[b] = first
        return None if b == PQ_NOTHING else (b, run)

    def process(self, int32_t b):
        """(ticket, number within the bucket) of the bucket's next part, now processed; or None."""
        cdef Part* part = pq_next(&self.pq, b, self.oldest[b])
        self.oldest[b] = NULL
        if part == NULL:
            return None
        found = part.chunk.ticket, part.n
        self.finish_part(part)
        return found

    def leave(self, int32_t b, int64_t processed, bint slice_over):
        """Parts to process now, or 0: the bucket was given up."""
        return pq_leave(&self.pq, b, processed, slice_over)

    def has_work(self, limit=None):
        return bool(pq_has_work(&self.pq, reorder_limit(&self.rb) if limit is None else <int64_t> limit))

    def count(self, int32_t b):
        return load_relaxed(&self.pq.buckets[b].count)

    @property
    def handover_size(self):
        return mpmc_size_approx(&self.pq.handover)

    def claim_handover(self):
        """Be a worker that lost the processor in the middle of taking a bucket from the hand-over list: (position, bucket)."""
        cdef int64_t position = load_relaxed(&self.pq.handover.head)
        cdef MpmcCell* cell = &self.pq.handover.cells[position & self.pq.handover.mask]
        if load_acquire(&cell.sequence) != position + 1:
            return None
        if not cas_relaxed(&self.pq.handover.head, position, position + 1):
            return None
        return position, load_relaxed(&cell.item) - 1

    def give_back_handover(self, int64_t position):
        store_release(&self.pq.handover.cells[position & self.pq.handover.mask].sequence, position + self.pq.handover.mask + 1)

    @property
    def next(self):
        return load_acquire(&self.rb.next)

    @property
    def figures(self):
        return {
            "delivered": self.releases.count, "out_of_order": self.releases.wrong, "wrong": load_relaxed(&self.wrong),
            "entered_twice": load_relaxed(&self.entered_twice), "handed_over": load_relaxed(&self.handed_over),
            "lost": load_relaxed(&self.lost), "claims": load_relaxed(&self.claims_made),
        }

    @property
    def per_bucket(self):
        """(parts given, parts processed) of every bucket."""
        return [(self.given[b], self.processed[b]) for b in range(self.pq.p)]

    # loops

    def produce(self, int64_t n, uint64_t seed, int32_t parts=1, int32_t hot_percent=0, double seconds=30):
        """Add n chunks of up to `parts` parts; `hot_percent` of them lie in bucket 0 alone. Refusals, or -1."""
        cdef int64_t end = end_after(seconds)
        cdef int64_t full = 0
        cdef int64_t _k
        cdef int32_t[64] b
        cdef int32_t m
        cdef int32_t j
        cdef int32_t rounds = 0
        cdef uint64_t rng = seed * <uint64_t> 0x9E3779B97F4A7C15 + 1
        cdef Chunk* c
        if not 1 <= parts <= min(64, self.pq.p):
            raise ValueError("parts must be 1 to p")
        with nogil:
            for _k in range(n):
                m = 1 + <int32_t> (rng_next(&rng) % <uint64_t> parts)
                b[0] = <int32_t> (rng_next(&rng) % <uint64_t> self.pq.p)
                if <int32_t> (rng_next(&rng) % 100) < hot_percent:
                    m = 1
                    b[0] = 0
                for j in range(1, m):
                    b[j] = (b[0] + j) % self.pq.p
                while not self.has_room(m):
                    full += 1
                    if late(end, &rounds):
                        full = TIMED_OUT
                        break
                if full < 0:
                    break
                c = self.make(b, m)
                if c == NULL:
                    full = TIMED_OUT
                    break
                pq_add(&self.pq, c, self.issued)
        return full

    def work(self, int64_t n, int32_t slice_parts, uint64_t seed, int32_t start=0, double seconds=30, int32_t claim=1):
        """Body of one of several worker threads (Fig. 7 consumeInputs with time slices) until n tickets were released.

        A slice ends after `slice_parts` parts; up to `claim` items of the master queue are claimed at once. Returns parts processed here,
        or -1.
        """
        cdef Claims claims
        cdef int32_t nclaims = 0
        cdef int32_t at_claim = 0
        cdef int64_t end = end_after(seconds)
        cdef int64_t clock = clock_after(seconds)  # cheaper to look at
        cdef int64_t total = 0
        cdef int64_t run = 0
        cdef int64_t k
        cdef int32_t b
        cdef int32_t in_slice = 0
        cdef int32_t rounds = 0
        cdef bint over
        cdef Part* part
        cdef uint64_t rng = seed * <uint64_t> 0x9E3779B97F4A7C15 + 1
        with nogil:
            while load_acquire(&self.rb.next) < self.first + n:
                if reorder_ready(&self.rb):
                    reorder_release(&self.rb, deliver_test, &self.releases)
                if at_claim == nclaims and claim > 1:
                    nclaims = hybrid_claim(&self.pq, reorder_limit(&self.rb), claim, &claims)
                    at_claim = 0
                    if nclaims:
                        add_relaxed(&self.claims_made, nclaims)
                if at_claim < nclaims:
                    b = hybrid_enter_claim(&self.pq, &claims, at_claim, &run, &part)
                    at_claim += 1
                    if b == PQ_NOTHING:
                        continue
                else:
                    b = pq_enter(&self.pq, reorder_limit(&self.rb), start, &run, &part)
                in_slice = 0
                if b == PQ_NOTHING:
                    if late(end, &rounds):
                        total = TIMED_OUT
                        break
                    continue
                while run > 0:
                    k = 0
                    over = False
                    while k < run:
                        if exchange_acq_rel(&self.busy[b], 1) != 0:
                            add_relaxed(&self.entered_twice, 1)
                        part = pq_next(&self.pq, b, part)
                        if part == NULL:
                            store_release(&self.busy[b], 0)
                            if self.pq.scheme == HYBRID:
                                add_relaxed(&self.lost, 1)
                            break
                        self.processed[b] += 1
                        if part.n != <int32_t> self.processed[b]:
                            add_relaxed(&self.wrong, 1)
                        jitter(&rng)
                        store_release(&self.busy[b], 0)
                        self.finish_part(part)
                        part = NULL
                        k += 1
                        total += 1
                        in_slice += 1
                        over = in_slice >= slice_parts
                        if over:
                            break
                    if over and self.pq.scheme == HYBRID and load_relaxed(&self.pq.buckets[b].count) > k:
                        add_relaxed(&self.handed_over, 1)
                    run = pq_leave(&self.pq, b, k, over)
                    if now_ns() > clock and thread_ns() > end:
                        total = TIMED_OUT
                        break
                if total < 0:
                    break
        return total


# ---------------------------------------------------------------- parking

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
                # As operator_release: a sequentially consistent store (there: the flag), then the look at `parked`.
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
        """Take until n items were taken by all consumers; parks at once when there is nothing. Items taken here, or -1.

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
        return {"taken": load_relaxed(&self.taken), "parks": load_relaxed(&self.parks), "timeouts": load_relaxed(&self.timeouts)}
