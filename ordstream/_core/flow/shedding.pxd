"""Load-aware shedding in the node: what the stage that sheds and the operator that it protects tell each
other.

The shed stage (kernels/shed.pyx) runs in front of the protected operator, in arrival order and on one worker
at a time. It decides per tuple by the arithmetic of las.pxd, narrows the selection, and hands the rest on; a
tuple that is shed has its serial and its place in the order like one that a filter drops. The protected
operator measures what its rows take and how long they waited.

a) Clock: `elapsed` of the paper is here the worker time that the protected operator has received, completed
   and in progress, since its share of the workers varies. Backlog / share of the workers = time until a
   tuple that is admitted now would begin.
b) A tuple's queueing latency counts from its arrival at the node: its intended send time, or the time at
   which a live source gave it, or (sources that are asked, and so cannot overload) its dispatch. What it has
   waited so far is known, the rest is estimated.
c) Once a tuple has been processed, its true waiting time replaces the estimate: the goal holds for true
   latencies.
d) Costs are learnt from rows that were timed alone: chunks and parts of one row, and sampled parts. There is
   one learner; a worker that finds it busy skips its sample. Stable matrices are posted, and the shed stage
   takes them at its next chunk.
e) A cold start does not wait for stable matrices: until the first stable ones, the matrices of the first 16,
   32, 64... rows are posted as well. An item that was not among those rows counts as the mean. The paper
   waits for 2 N rows, which under overload admits all of them.
Nothing here blocks. Memory ownership: ShedKernel (kernels/shed.pyx) owns the control and what it points to.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.flow.ingress cimport Ingress
from ordstream._core.balance.las cimport CheckState, ShedState

cdef enum ShedMode:
    SHED_LIVE = 0
    # decisions are a pure function of (partition, serial, seed, model, tuples before)
    SHED_FROZEN = 1
    SHED_REPLAY = 2            # decisions are read from a log

cdef struct ShedEntry:
    # One shed tuple. What it would have waited and cost, and when it was decided, are estimates at that
    # moment.
    int64_t serial
    int64_t index              # position among the tuples of this serial that reached the stage, from 0
    int64_t at_ns              # after the start of the run; frozen: virtual time
    double latency_ns
    double cost_ns

cdef struct ShedRows:
    # What travels with a chunk from the shed stage to the protected operator. In the chunk's arena.
    double latency_ns          # sum of the rows' estimated latencies
    int32_t rows
    int32_t counted            # 1: the rows are in the goal's average
    int64_t mark               # number of the mark that this chunk is to answer, 0: none
    a64 waited_ns              # sum of true latencies; the protected operator's workers add
    uint64_t* words            # key word per slot

cdef struct ShedControl:
    # The shed stage's own; one worker at a time, handed over by the scheduler's lock.
    ShedState state
    CheckState check
    int32_t mode               # ShedMode
    int32_t by_serial          # 1: only stateless operators before: a serial's rows are shed together
    int32_t attribute          # 1: rows of a chunk are learnt by the chunk's mean (nothing better comes)
    int32_t workers            # most workers that the protected operator may have
    void* model                # TimeMatrices; borrowed
    const Ingress* ingress
    int64_t started_ns
    # workers that the protected operator received lately; frozen: that it is taken to have
    double share
    int64_t looked_ns
    int64_t looked_work
    int32_t looked_full        # all its workers had work then, with what was just admitted
    int64_t corrected          # part of `correction` that the average has taken in
    int64_t marks              # given so far
    int64_t mark               # the one whose answer is awaited, 0: none
    int64_t updates            # matrices taken
    int64_t synchronised
    int64_t serial             # of the last row, and its index there
    int64_t index
    int32_t serial_shed        # what was decided for it
    int32_t no_memory          # 1: the log or the side output could not grow
    double serial_latency
    # Frozen: virtual arrivals, `gap_ns` apart with a jitter.
    double gap_ns
    uint64_t jitter
    # Replay: the log's (serial, index), ascending.
    const int64_t* replay_serial
    const int64_t* replay_index
    int64_t replay_rows
    int64_t replay_next
    # Log and side output.
    ShedEntry* log
    int64_t logged
    int64_t log_capacity
    int32_t keeps_rows
    Output* side_first
    Output* side
    # Written by the shed stage, read by the protected operator's workers, and back.
    char[128] pad0
    a64 admitted               # rows handed on
    char[120] pad1
    a64 done                   # rows completed
    a64 worked_ns              # worker time of completed runs
    a64 ended_ns               # when the last one ended
    a64* running               # per worker: start of the run in progress, 0: none
    int32_t nrunning
    a64 correction_ns          # true - estimated latency of the rows completed
    a64 waited_ns              # true latency of all rows completed
    a64 waited_rows
    a64 waited_max_ns
    a64 answered               # number of the completed mark
    a64 answer_ns              # elapsed at that moment
    char[64] pad2
    a64 learning               # 1: a worker uses the learner or the posted matrices
    a64 posted                 # 1: matrices for the shed stage
    void* learner              # CostLearner; borrowed, under `learning`
    void* outbox               # TimeMatrices; borrowed, under `learning`
    void* total                # TimeMatrices of the whole run: what is saved; borrowed, under `learning`
    int32_t stable             # 1: a saved model was given, or stable matrices were posted; under `learning`
    a64 learnt                 # rows
    int64_t clock_ns           # cost of a measurement

cdef int shed_attach(ShedControl* s, const Ingress* ingress, int32_t workers, int32_t nrunning) except -1
cdef int64_t shed_elapsed(ShedControl* s, int64_t now) noexcept nogil
cdef int64_t waited_ns(const ShedControl* s, const Chunk* c, int32_t slot, int64_t now) noexcept nogil
cdef double virtual_arrival(const ShedControl* s, int64_t serial) noexcept nogil
cdef int64_t shed_begin(ShedControl* s, Worker* w, Chunk* c, const int32_t* rows, int32_t n) noexcept nogil
cdef void shed_end(ShedControl* s, Worker* w, ShedRows* sent, const int32_t* rows, int32_t n,
                   int64_t began) noexcept nogil
cdef void shed_learn(ShedControl* s, uint64_t word, double cost_ns) noexcept nogil
cdef void shed_completed(ShedControl* s, ShedRows* sent) noexcept nogil
