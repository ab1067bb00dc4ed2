"""Micro-benchmarks of what a node's cost model is made of: lines between two cores, locked instructions,
waking, choosing.

Two-sided measurements are called by two Python threads with the same Table, sides 0 and 1; every function
runs without the GIL and returns nanoseconds. Thread safety: one call per side at a time. Memory ownership:
the Table's.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from ordstream._core.ground.atomics cimport (
    a64, add_seq, exchange_acq_rel, load_acquire, store_relaxed, store_release, store_seq,
)
from ordstream._core.ground.output_batch cimport output_append, output_free, output_new
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.chunk cimport Chunk, Column, LayoutOwner, Part
from ordstream._core.ground.mpmc cimport Mpmc, mpmc_free, mpmc_init, mpmc_try_push_single, mpmc_try_take
from ordstream._core.flow.worklist.buckets cimport HYBRID, PartitionQueues, pq_free, pq_init
from ordstream._core.flow.worklist.partition_queues cimport pq_add, pq_enter, pq_leave, pq_next
from ordstream._core.flow.scheduler cimport (
    OperatorStats, Scheduler, scheduler_choose, scheduler_init, stats_account, stats_init,
)
from ordstream._core.flow.scheduler import HEURISTICS
from ordstream._core.ground.threads cimport (
    EventCount, cpu_pause, cpu_yield, event_count_delete, event_count_new, now_ns,
)

cdef enum:
    LINES = 1024
    BYTES = 1 << 20

cdef struct Padded:
    a64 value
    char[120] pad


cdef class Table:
    """Cache lines, a block of bytes and an event count for two threads."""
    cdef Padded* lines
    cdef int64_t* block
    cdef EventCount* event

    def __cinit__(self):
        self.lines = <Padded*> malloc((LINES + 8) * sizeof(Padded))
        self.block = <int64_t*> malloc(BYTES)
        self.event = event_count_new()
        if self.lines == NULL or self.block == NULL or self.event == NULL:
            raise MemoryError
        memset(<void*> self.lines, 0, (LINES + 8) * sizeof(Padded))
        memset(<void*> self.block, 0, BYTES)

    def __dealloc__(self):
        free(self.lines)
        free(self.block)
        if self.event != NULL:
            event_count_delete(self.event)

    def take_turns(self, int32_t side, int64_t rounds, int32_t lines, int64_t size):
        """Take turns with the other side `rounds` times; in a turn follow and write a chain of `lines` lines
        that the other side wrote last (by locked instructions), then add up and write `size` bytes of its.
        Returns ns per turn (one side's, the hand-over included)."""
        cdef Padded* line = self.lines
        cdef int64_t* block = self.block
        cdef int64_t start
        cdef int64_t _r
        cdef int64_t at
        cdef int64_t total = 0
        cdef int32_t k
        cdef int64_t words = size // 8
        cdef int64_t tried
        if not 0 <= lines <= LINES - 2 or not 0 <= size <= BYTES or side not in (0, 1):
            raise ValueError("lines, bytes or side out of range")
        with nogil:
            start = now_ns()
            for _r in range(rounds):
                tried = 0
                while load_acquire(&line[0].value) != side:       # pairs with the other side's store_release
                    tried += 1
                    if tried > 100_000:
                        cpu_yield()                               # the other side lost its processor
                at = 0
                for k in range(lines):
                    # The next line's number depends on what is read: no two transfers overlap.
                    at = exchange_acq_rel(&line[4 + k + at].value, 0)   # timed; no partner
                for k in range(words):
                    total += block[k]
                    block[k] = total & 1
                store_release(&line[0].value, 1 - side)           # pairs with the load_acquire above
            start = now_ns() - start
        return <double> start / rounds / 2

    def scattered(self, int32_t side, int64_t rounds, int32_t lines):
        """As take_turns, with `lines` lines of the block in an order that no prefetcher follows, each
        changed; loads may overlap. side -1: alone, nobody takes the lines away."""
        cdef Padded* line = self.lines
        cdef int64_t* block = self.block
        cdef int64_t start
        cdef int64_t _r
        cdef int64_t tried
        cdef int32_t k
        if not 0 <= lines <= LINES or not -1 <= side <= 1:
            raise ValueError("lines or side out of range")
        with nogil:
            start = now_ns()
            for _r in range(rounds):
                tried = 0
                # pairs with the other side's store_release
                while side >= 0 and load_acquire(&line[0].value) != side:
                    tried += 1
                    if tried > 100_000:
                        cpu_yield()                               # the other side lost its processor
                for k in range(lines):
                    block[(k * 389 & (LINES - 1)) * 8] += 1
                if side >= 0:
                    store_release(&line[0].value, 1 - side)       # pairs with the load_acquire above
            start = now_ns() - start
        return <double> start / rounds / (2 if side >= 0 else 1)

    def alone(self, int64_t rounds, int64_t size):
        """ns of adding up and writing `size` bytes that are in this core's cache."""
        cdef int64_t* block = self.block
        cdef int64_t start
        cdef int64_t total = 0
        cdef int64_t _r
        cdef int64_t k
        with nogil:
            start = now_ns()
            for _r in range(rounds):
                for k in range(size // 8):
                    total += block[k]
                    block[k] = total & 1
            start = now_ns() - start
        return <double> start / rounds

    def locked(self, int64_t rounds):
        """ns of a locked add, and of a sequentially consistent store, on a line that this core owns."""
        cdef int64_t start
        cdef int64_t middle
        cdef int64_t end
        cdef int64_t _r
        cdef a64* value = &self.lines[1].value
        with nogil:
            start = now_ns()
            for _r in range(rounds):
                add_seq(value, 1)                                 # timed; no partner
            middle = now_ns()
            for _r in range(rounds):
                store_seq(value, _r)                              # timed; no partner
            end = now_ns()
        return <double> (middle - start) / rounds, <double> (end - middle) / rounds

    def waiter(self, int64_t rounds):
        """The side that is woken: waits until woken, says so. To be run beside `waker`."""
        cdef int64_t seen
        cdef int64_t _r
        cdef a64* turn = &self.lines[0].value
        with nogil:
            for _r in range(rounds):
                seen = self.event.prepare()
                # pairs with waker's load_acquire: about to wait
                store_release(turn, 1)
                self.event.wait(seen, 1_000_000_000)
                # pairs with waker's load_acquire: awake since
                store_release(&self.lines[3].value, now_ns())
                while load_acquire(turn) != 2:                    # pairs with waker's store_release
                    cpu_yield()

    def waker(self, int64_t rounds, int64_t pause_ns):
        """(ns that waking takes the waker, ns until the other side runs), medians over `rounds`; pauses so
        long before each."""
        cdef int64_t start
        cdef int64_t end
        cdef int64_t _r
        cdef a64* turn = &self.lines[0].value
        calls = []
        delays = []
        for _r in range(rounds):
            with nogil:
                while load_acquire(turn) != 1:                    # pairs with waiter's store_release
                    cpu_yield()
                start = now_ns()
                while now_ns() - start < pause_ns:
                    cpu_pause()                                   # until it sleeps
                store_release(&self.lines[3].value, 0)            # read after the turn; no partner
                start = now_ns()
                self.event.notify_one()
                end = now_ns()
                while load_acquire(&self.lines[3].value) == 0:    # pairs with waiter's store_release
                    cpu_pause()
            calls.append(end - start)
            delays.append(load_acquire(&self.lines[3].value) - start)   # as above
            store_release(turn, 2)                                # pairs with waiter's load_acquire
        return sorted(calls)[rounds // 2], sorted(delays)[rounds // 2]


def appending(LayoutOwner layout not None, int32_t rows, int64_t rounds):
    """ns of writing a chunk of `rows` rows into an output batch (of 65,536 rows, as the egress makes
    them)."""
    cdef Chunk chunk
    cdef Column[16] columns
    cdef char* data = <char*> malloc(<size_t> rows * 16)
    cdef Output* output = NULL
    cdef int64_t start
    cdef int64_t total = 0
    cdef int64_t _r
    cdef int32_t j
    cdef int32_t _k
    if data == NULL:
        raise MemoryError
    if not 1 <= rows <= 65536 or layout.layout.ncols > 16:
        free(data)
        raise ValueError("1 to 65536 rows of at most 16 columns")
    memset(data, 0, <size_t> rows * 16)
    memset(<void*> &chunk, 0, sizeof(Chunk))
    chunk.cols = columns
    chunk.n = rows
    chunk.slots = rows
    chunk.ncols = layout.layout.ncols
    for j in range(chunk.ncols):
        columns[j].data = data
        columns[j].valid = NULL
    with nogil:
        for _r in range(rounds):
            if output == NULL:
                output = output_new(&layout.layout, 1024, False)
            start = now_ns()
            for _k in range(16):
                output_append(output, &chunk, 0, chunk.n)
            total += now_ns() - start
            if output.rows >= 65536:
                output_free(output)
                output = NULL
    if output != NULL:
        output_free(output)
    free(data)
    return <double> total / rounds / 16


def entering(int32_t nparts, int64_t rounds):
    """ns of putting a unit into the next worklist: (a chunk into a queue, a part into its bucket's and the
    master queue)."""
    cdef PartitionQueues pq
    cdef Mpmc queue
    cdef Chunk chunk
    cdef Part* parts = <Part*> malloc(nparts * sizeof(Part))
    cdef int64_t start
    cdef int64_t chunks = 0
    cdef int64_t added = 0
    cdef Part* first = NULL
    cdef int64_t run = 0
    cdef int64_t position = 0
    cdef int64_t _r
    cdef int32_t k
    cdef int32_t _k
    cdef int32_t b
    if parts == NULL or pq_init(&pq, HYBRID, nparts, 128, nparts) != 0 or mpmc_init(&queue, 128, 1) != 0:
        raise MemoryError
    memset(<void*> &chunk, 0, sizeof(Chunk))
    chunk.parts = parts
    chunk.nparts = nparts
    for k in range(nparts):
        parts[k].chunk = &chunk
        parts[k].bucket = k
    with nogil:
        for _r in range(rounds):
            start = now_ns()
            for _k in range(64):
                mpmc_try_push_single(&queue, 1)
            chunks += now_ns() - start
            for _k in range(64):
                mpmc_try_take(&queue, 1 << 60, &position)
            start = now_ns()
            for _k in range(64):
                pq_add(&pq, &chunk, 1)
            added += now_ns() - start
            for _k in range(64 * nparts):
                b = pq_enter(&pq, 1 << 60, 0, &run, &first)
                if b >= 0:
                    pq_next(&pq, b, first)
                    pq_leave(&pq, b, 1, False)
    pq_free(&pq)
    mpmc_free(&queue)
    free(parts)
    return <double> chunks / rounds / 64, <double> added / rounds / 64 / nparts


def yielding(int64_t rounds):
    """ns of giving the processor up when nobody wants it."""
    cdef int64_t start
    cdef int64_t _r
    with nogil:
        start = now_ns()
        for _r in range(rounds):
            cpu_yield()
        start = now_ns() - start
    return <double> start / rounds


def clock(int64_t rounds):
    """ns of reading the clock."""
    cdef int64_t start
    cdef int64_t last = 0
    cdef int64_t _r
    with nogil:
        start = now_ns()
        for _r in range(rounds):
            last = now_ns()
    return <double> (last - start) / rounds


def choosing(str heuristic, int32_t n, int64_t rounds):
    """ns of one scheduling decision for n operators as the workers' loop makes it: lock, account, fill in,
    choose, unlock."""
    cdef OperatorStats[64] ops
    cdef Scheduler scheduler
    cdef a64 lock
    cdef int64_t budget = 0
    cdef int64_t start
    cdef int64_t _r
    cdef int best = 0
    cdef int32_t i
    if not 1 <= n <= 64:
        raise ValueError("1 to 64 operators")
    scheduler_init(&scheduler, HEURISTICS[heuristic], 1e5, 1e7, 65536.0, 1)
    for i in range(n):
        stats_init(&ops[i], 8, 8, 1)
    store_relaxed(&lock, 0)                                       # nobody else knows it
    with nogil:
        start = now_ns()
        for _r in range(rounds):
            exchange_acq_rel(&lock, 1)                            # timed; no partner
            if best >= 0:
                stats_account(&ops[best], 90_000.0, 90, 80, 90, 1_000.0, 1)
                ops[best].w -= 1
            for i in range(n):
                ops[i].I = (_r + i) & 1023
                ops[i].schedulable = ops[i].w < ops[i].M and ops[i].I > 0
            best = scheduler_choose(&scheduler, ops, n, _r * 100_000, &budget)
            if best >= 0:
                ops[best].w += 1
            store_release(&lock, 0)                               # timed; no partner
        start = now_ns() - start
    return <double> start / rounds
