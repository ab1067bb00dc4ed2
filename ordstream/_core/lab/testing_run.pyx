"""Doors for tests of a run's hand-shakes: how long workers wait, where they are held, what they hold.

a) `set_waits`: the timed waits hide a missing wake-up, at worst for 0.8 s. Tests make them long, and count
   every wait that was over only since its time was, while there was something to do (`missed_waits`,
   `RunDoor.missed`).
b) `RunDoor`: a stream's run: who waits where, and places where a worker can be held between two steps of a
   hand-shake.
c) `ProbeKernel`: a keyed operator that looks at its own run from inside: whether all that came before a
   punctuation is out, and in which order one worker takes parts while another (played by the kernel)
   delegates to it.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.signal cimport SIGINT, raise_ as send_signal
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from ordstream._core.ground.output_columns cimport limit_offsets
from ordstream._core.ground.atomics cimport (
    a64, add_relaxed, exchange_acq_rel, load_acquire, load_relaxed, store_release,
)
from ordstream._core.ground.chunk cimport Chunk, Failure, Part, Worker
from ordstream._core.ground.kernel cimport PS, Kernel, KernelOwner
from ordstream._core.ground.kernel_tools cimport owner_setup
from ordstream._core.flow.operator cimport Operator
from ordstream._core.flow.worklist.buckets cimport PQ_NOTHING
from ordstream._core.flow.worklist.hybrid cimport CLAIM_MAX, Claims, hybrid_claim, hybrid_enter_claim
from ordstream._core.flow.reorder_buffer cimport reorder_limit
from ordstream._core.flow.runtime cimport (
    HOLD_BEFORE_PARKING, HOLD_NOWHERE, HOLD_WHILE_PUBLISHING, Runtime, Waits, missed_of_closed_runs,
    waits_of_new_runs,
)
from ordstream._core.ground.threads cimport spin_lock_backoff

BEFORE_PARKING = HOLD_BEFORE_PARKING
WHILE_PUBLISHING = HOLD_WHILE_PUBLISHING


def waits():
    """(first wait, longest wait, gate's wait, grace) of runs to come, in ms."""
    cdef Waits* now = waits_of_new_runs()
    return now.park_ns / 1e6, now.longest_park_ns / 1e6, now.gate_ns / 1e6, now.grace_ns / 1e6


def set_waits(double park_ms, double longest_ms, double gate_ms, double grace_ms):
    """Set them. grace_ms: how long after a timed wait a wake-up may still come before the wait counts as
    missed; 0: don't count."""
    cdef Waits* now = waits_of_new_runs()
    if min(park_ms, longest_ms, gate_ms) <= 0 or grace_ms < 0:
        raise ValueError("waits are positive")
    now.park_ns = <int64_t> (park_ms * 1e6)
    now.longest_park_ns = <int64_t> (longest_ms * 1e6)
    now.gate_ns = <int64_t> (gate_ms * 1e6)
    now.grace_ns = <int64_t> (grace_ms * 1e6)


def missed_waits():
    """Timed waits that hid a missing wake-up, in all runs that were closed so far in this process."""
    return load_relaxed(missed_of_closed_runs())


cdef class RunDoor:
    """The run of a stream (`ordstream.node.Stream`), from any thread, until the stream is closed.

    Memory ownership: none; keeps the run alive.
    """
    cdef Runtime* rt
    cdef object core

    def __init__(self, stream):
        self.core = stream._core
        self.rt = <Runtime*> PyCapsule_GetPointer(self.core.node(), b"ordstream.Runtime")

    @property
    def asleep(self):
        """Workers that wait for work, and look no more before somebody wakes them."""
        return load_acquire(&self.rt.asleep)

    @property
    def gated(self):
        """Workers that wait since they should not be active."""
        return load_acquire(&self.rt.gated)

    @property
    def reader_waits(self):
        """Whether the reading thread waits."""
        cdef int64_t turn = load_acquire(&self.rt.run.reader_turn)
        return turn > 0 and turn % 2 == 0

    @property
    def missed(self):
        """Timed waits that hid a missing wake-up."""
        return load_relaxed(&self.rt.missed)

    @property
    def emitted(self):
        """Last serial all of whose outputs are in the egress."""
        return load_acquire(&self.rt.ingress.emitted_serial)

    @property
    def queued(self):
        """Tuples that were given to the run."""
        return load_relaxed(&self.rt.ingress.queued_tuples)

    @property
    def stopped(self):
        """Whether the stop flag is set."""
        return load_acquire(&self.rt.run.stop) != 0

    @property
    def held(self):
        """Workers that are held."""
        return load_acquire(&self.rt.held)

    def hold(self, int place=HOLD_NOWHERE):
        """Hold workers that come to a place (BEFORE_PARKING, WHILE_PUBLISHING); let go those that are held
        elsewhere."""
        store_release(&self.rt.hold_at, place)                # pairs with the loads in hold()

    def want(self):
        """Ask for what was written, as the reader does, and wake a parked worker."""
        store_release(&self.rt.egress.wanted, 1)
        self.rt.run.work.notify_one()

    def set_active(self, int workers):
        """Let only the first so many of a fixed number of workers be active from now on, as the controller
        of workers="auto" does."""
        cdef int rounds = 0
        # as lock_scheduler
        while load_relaxed(&self.rt.lock) != 0 or exchange_acq_rel(&self.rt.lock, 1) != 0:
            spin_lock_backoff(&rounds)
        store_release(&self.rt.active, workers)               # pairs with load_acquire in outside
        self.rt.gate.notify_all()
        store_release(&self.rt.lock, 0)                       # pairs with the exchange


# ---------------------------------------------------------------------------------------------- looks at the
# stop flag


cdef a64 looks_made
cdef int64_t stop_at = 0
cdef bint by_signal = False


cdef int count_look(Worker* w) noexcept nogil:
    """Worker.look: count, and at the look asked for stop the run, or send this process SIGINT, which the
    next lines then see."""
    if add_relaxed(&looks_made, 1) + 1 == stop_at:
        if by_signal:
            w.look_at = 0
            send_signal(SIGINT)
        else:
            store_release(w.stop, 1)                          # pairs with load_acquire in finished()
    return load_relaxed(w.stop) != 0


def look_at_stop(int64_t at=0, bint signal=False):
    """Count the looks at the stop flag of runs to come, and make look number `at` (0: none) stop its run, or
    send SIGINT (workers = 0)."""
    global stop_at, by_signal
    store_release(&looks_made, 0)
    stop_at = at
    by_signal = signal
    waits_of_new_runs().look = count_look


def looks():
    """Looks since then; they are not counted any more in runs to come."""
    waits_of_new_runs().look = NULL
    return load_relaxed(&looks_made)


# ---------------------------------------------------------------------------------------------- a kernel
# that looks


cdef struct Probe:
    int32_t column         # int64 key
    int32_t operator       # its place in the chain
    int64_t hot            # the first row with this key makes the kernel delegate; < 0: none
    int64_t delegate       # so many parts
    int64_t delegated
    int64_t strays         # claims that were not delegated
    a64 late               # punctuations before which something was not out yet
    a64 punctuations
    a64 rows
    int64_t room
    int64_t* log           # keys in the order in which rows were processed


cdef void delegate_more(Probe* x, Worker* w) noexcept nogil:
    """Claim parts as another worker would, whose bucket this worker holds."""
    cdef Operator* op = &(<Runtime*> w.node).operators[x.operator]
    cdef Claims claims
    cdef Part* first = NULL
    cdef int64_t run
    cdef int32_t n = 1
    cdef int32_t k
    while n and x.delegated < x.delegate:
        n = hybrid_claim(&op.pq, reorder_limit(&op.rb), CLAIM_MAX, &claims)
        for k in range(n):
            if hybrid_enter_claim(&op.pq, &claims, k, &run, &first) == PQ_NOTHING:
                x.delegated += 1
            else:
                x.strays += 1


cdef int32_t probe_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    cdef Probe* x = <Probe*> k.ctx
    cdef const int64_t* keys = <const int64_t*> c.cols[x.column].data
    cdef int64_t at
    cdef int32_t i
    for i in range(n):
        at = add_relaxed(&x.rows, 1)
        if at < x.room:
            x.log[at] = keys[rows[i]]
        if keys[rows[i]] == x.hot and x.delegated == 0:
            delegate_more(x, w)
    return n


cdef int probe_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                         Failure* f) noexcept nogil:
    cdef Probe* x = <Probe*> k.ctx
    add_relaxed(&x.punctuations, 1)
    # pairs with the egress's store
    if load_acquire(&(<Runtime*> w.node).ingress.emitted_serial) < punctuation.last_serial:
        add_relaxed(&x.late, 1)
    return 0


cdef void* probe_new(Kernel* k, int32_t bucket) noexcept nogil:
    return malloc(8)


cdef void probe_free(Kernel* k, void* state) noexcept nogil:
    free(state)


cdef class ProbeKernel(KernelOwner):
    """Operator "testing_probe" (PS): rows pass as they are. params: {"made": list that gets the kernel,
    "operator": its place in the chain as it runs, "hot": key, "delegate": parts}; the key is an int64
    column."""

    cdef Probe context

    def __init__(self, operator):
        owner_setup(self, operator, PS)
        self.context.column = operator.key[0]
        self.context.operator = operator.operator
        self.context.hot = operator.hot
        self.context.delegate = operator.delegate
        self.context.room = 1 << 12
        self.context.log = <int64_t*> malloc(self.context.room * 8)
        if self.context.log == NULL:
            raise MemoryError
        self.kernel.ctx = <void*> &self.context
        self.kernel.in_place = 1
        self.kernel.process = probe_process
        self.kernel.punctuate = probe_punctuate
        self.kernel.bucket_new = probe_new
        self.kernel.bucket_free = probe_free
        operator.made.append(self)

    def __dealloc__(self):
        free(self.context.log)

    @property
    def found(self):
        """{"log": keys in processing order, "delegated", "strays", "late", "punctuations"}."""
        return {
            "log": [self.context.log[i] for i in range(min(load_relaxed(&self.context.rows),
                                                           self.context.room))],
            "delegated": self.context.delegated, "strays": self.context.strays,
            "late": load_relaxed(&self.context.late),
            "punctuations": load_relaxed(&self.context.punctuations),
        }


def set_offset_limit(int64_t limit):
    """Let columns of output batches have at most so many bytes, or elements, in place of 2^31 - 1; returns
    what it was. For every run that is made afterwards; not while one is open."""
    return limit_offsets(limit)
