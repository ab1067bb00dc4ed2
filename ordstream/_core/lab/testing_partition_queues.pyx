"""Test door: the worklists of partitioned operators (testing_loops.pxd states how doors work)."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from ordstream._core.flow.reorder_buffer cimport (
    NON_BLOCKING, ReorderBuffer, reorder_free, reorder_init, reorder_limit, reorder_put, reorder_ready,
    reorder_release,
)
from ordstream._core.flow.worklist.buckets cimport HYBRID, PQ_NOTHING, PartitionQueues, pq_free, pq_init
from ordstream._core.flow.worklist.hybrid cimport Claims, hybrid_claim, hybrid_enter_claim
from ordstream._core.flow.worklist.partition_queues cimport (
    pq_add, pq_enter, pq_has_room, pq_has_work, pq_leave, pq_next,
)
from ordstream._core.ground.atomics cimport (
    a64, add_relaxed, cas_relaxed, exchange_acq_rel, load_acquire, load_relaxed, store_relaxed,
    store_release, sub_acq_rel,
)
from ordstream._core.ground.chunk cimport Chunk, Part
from ordstream._core.ground.mpmc cimport MpmcCell, mpmc_size_approx
from ordstream._core.ground.threads cimport now_ns
from ordstream._core.lab.testing_loops cimport (
    TIMED_OUT, rng_next, jitter, late, end_after, clock_after, thread_ns,
)
from ordstream._core.lab.testing_reorder_buffer cimport Releases, deliver_test

NO_TICKET_LIMIT = (1 << 47) - 1


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
        """A chunk with the next ticket whose parts lie in `buckets`; each part's `n` is its number within
        the bucket."""
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
        """Mark a part processed; the chunk's last part puts its ticket into the reorder buffer and
        releases."""
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
        self.claimed = hybrid_claim(&self.pq, reorder_limit(&self.rb) if limit is None else <int64_t> limit,
                                    most, &self.claims)
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
        """Be a worker that lost the processor in the middle of taking a bucket from the hand-over list:
        (position, bucket)."""
        cdef int64_t position = load_relaxed(&self.pq.handover.head)
        cdef MpmcCell* cell = &self.pq.handover.cells[position & self.pq.handover.mask]
        if load_acquire(&cell.sequence) != position + 1:
            return None
        if not cas_relaxed(&self.pq.handover.head, position, position + 1):
            return None
        return position, load_relaxed(&cell.item) - 1

    def give_back_handover(self, int64_t position):
        store_release(&self.pq.handover.cells[position & self.pq.handover.mask].sequence,
                      position + self.pq.handover.mask + 1)

    @property
    def next(self):
        return load_acquire(&self.rb.next)

    @property
    def figures(self):
        return {
            "delivered": self.releases.count, "out_of_order": self.releases.wrong,
            "wrong": load_relaxed(&self.wrong), "entered_twice": load_relaxed(&self.entered_twice),
            "handed_over": load_relaxed(&self.handed_over), "lost": load_relaxed(&self.lost),
            "claims": load_relaxed(&self.claims_made),
        }

    @property
    def per_bucket(self):
        """(parts given, parts processed) of every bucket."""
        return [(self.given[b], self.processed[b]) for b in range(self.pq.p)]

    # loops

    def produce(self, int64_t n, uint64_t seed, int32_t parts=1, int32_t hot_percent=0, double seconds=30):
        """Add n chunks of up to `parts` parts; `hot_percent` of them lie in bucket 0 alone. Refusals, or
        -1."""
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

    def work(self, int64_t n, int32_t slice_parts, uint64_t seed, int32_t start=0, double seconds=30,
             int32_t claim=1):
        """Body of one of several worker threads (Fig. 7 consumeInputs with time slices) until n tickets were
        released.

        A slice ends after `slice_parts` parts; up to `claim` items of the master queue are claimed at once.
        Returns parts processed here, or -1.
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
