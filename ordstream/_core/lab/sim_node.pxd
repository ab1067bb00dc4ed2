"""Discrete-event simulation of one node: the workers' loop in virtual time, on any number of cores.

a) Decisions are the product's own: `scheduler_choose` over OperatorStats, `stats_account` after each slice
   (scheduler.pyx). What is simulated is the machine: every worker is a clock, and the events are the places
   where workers meet: the scheduler's lock, the ingress's flag, a bucket's count, the master queue, a
   reorder buffer's slot, flag and `next`.
b) Costs are measured (ordstream/lab/simulation/cost_model.py). A worker's own path costs what it costs when
   one worker runs the code for many; on top of that, each shared cache line that another core wrote last
   costs one transfer, and a line passes from core to core one transfer at a time. So a line that every unit
   touches has a largest rate: 1 / transfer. Nothing else is assumed about more cores.
c) Stores that nothing waits for (next, tails, a slot emptied) are buffered: they delay the worker's next
   locked instruction only.
d) Chunks move as in slices.pyx: tickets at the ingress or at the release, rooms, parked releases, caps on
   what is in flight with hysteresis, parts by bucket, delegation, hand-over at the end of a slice, the last
   part's worker sends; a few quick parts are claimed, and what follows each other sent, together.
   Punctuations, errors and selections are left out; an operator's outputs are its inputs times its
   selectivity, rounded so that the sum is exact.
e) One event at a time in order of (time, worker): equal input gives equal output.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.flow.scheduler cimport OperatorStats, Scheduler

cdef enum:
    MOST_WORKERS = 256
    MOST_OPERATORS = 64

# what a worker is about to do
cdef enum:
    AT_LOCK = 0            # wants the scheduler's lock
    AT_DECISION = 1
    AT_SLICE = 2           # a slice begins
    AT_TAKE = 3            # wants a chunk, or a bucket
    AT_PART = 4            # has a bucket, takes its next part
    AT_PART_END = 5
    AT_SEND = 6            # a unit is complete
    AT_FLAG = 7            # wants a reorder buffer's flag
    AT_DELIVERY = 8        # holds it
    AT_CLEAR = 9
    AT_LEAVE = 10          # gives a bucket up
    AT_IDLE = 11
    AT_CLAIM = 12          # enters the next bucket of those that it claimed

cdef enum:
    RELEASE_MAX = 64       # as reorder_buffer.pxd
    INGRESS_RUN = 16       # as slices.pyx, and the next three
    HOLD_PART = 6
    CLAIM_PART = 12
    QUICK = 64
    CLAIM_MAX = 8          # as flow/worklist, and the next one
    CLAIM_ROOM = 4
    TURN_TRIES = 16        # as reorder_buffer.pxd, and the next one
    TURN_NEAR = 32
    MASTER_MAX = 1 << 14   # as flow/worklist
    ADAPT_EVERY = 16       # as runtime.pyx
    IDLE_ROUNDS = 64       # as threads.pxd, YIELD_LIMIT
    SLOTS_PER_LINE = 8

cdef struct Line:
    # A cache line. Cached by `owner` alone, or (shared) by its last writer and the readers.
    double free_at         # its transfers follow each other
    double busy            # total ns of transfers
    int32_t owner          # core that wrote it last; -1: nobody
    int32_t shared
    uint64_t[4] readers    # bit per core that has read it since

cdef struct Costs:
    # ns; see ordstream/lab/simulation/cost_model.py
    double transfer        # one line from core to core, on the critical path
    double scatter         # one of many lines of state written by another core, loads overlapping
    double rmw             # locked instruction on a line that the core owns
    double byte            # column data written by another core, per byte
    double decide          # a choice and an account, without the operators' share
    double decide_each     # per operator
    double hold            # taking from the ingress, per hold of its flag
    double slice           # entering and leaving an operator, the clock read included
    double notify          # waking a parked worker, for the one who wakes
    double wake            # until the woken one runs
    double yields          # one round of waiting
    double publish         # handing over an output batch, per batch
    double read_row        # the thread that feeds and reads, per source tuple
    double slowdown        # of all work while every core of the machine is busy (>= 1)

cdef struct SimChunk:
    int32_t n
    int32_t nparts
    int32_t pending
    int32_t maker          # core that wrote its columns last
    int32_t toucher        # core that touched `pending` last
    int32_t tuples         # source tuples it answers for
    int64_t ticket
    int64_t last           # last source tuple that it answers for
    double dispatched
    double arrived
    int32_t* parts         # bucket, n per part

cdef struct SimBucket:
    Line count_line
    int64_t count
    int64_t head           # ring of parts: chunk << 16 | part
    int64_t tail
    int64_t* ring
    int32_t holder         # core that had its state last
    int64_t tuples
    double busy

cdef struct SimOperator:
    int32_t kind           # OperatorKind
    int32_t p
    double work            # ns per tuple: the kernel
    double per_tuple       # ns per tuple: the runtime's
    double per_chunk
    double per_empty       # ns of a chunk without rows, stateless or stateful
    double per_part
    double split_chunk     # paid by the worker that sends into this operator
    double split_tuple
    double split_part
    double enter_chunk     # in the sender's serial section, per chunk and part
    double enter_part
    double selectivity
    double acc
    double row_bytes       # of what it reads
    double state_lines     # dependent lines of state per tuple, at most
    const int32_t* route   # bucket of consecutive input tuples, cyclic
    int64_t nroute
    int64_t routed
    # worklist
    int64_t* list          # SL, SF: chunks; PS: ticket << 16 | bucket
    int64_t list_mask
    int64_t head
    int64_t tail
    Line head_line
    Line tail_line
    int64_t* handover
    int64_t hand_head
    int64_t hand_tail
    SimBucket* buckets
    int64_t enqueued
    int64_t tuples_enqueued
    int64_t tuples_done
    # reorder buffer
    int64_t* slots         # chunk + 1, 0: empty
    Line* slot_lines       # eight slots each
    int64_t slot_mask
    int64_t next
    int32_t flag
    int32_t releaser       # core that released last
    Line next_line
    Line flag_line
    int64_t height
    # figures
    double worked          # ns inside the kernel and its path
    double releasing       # ns with the flag held
    int64_t releases
    int64_t delivered
    int64_t parked

cdef struct SimWorker:
    double now
    double drain           # when its buffered stores are out
    double slice_start
    double busy            # ns inside slices
    double work            # ns of kernels
    int32_t phase
    int32_t after          # phase that follows a send
    int32_t op
    int32_t parkedness     # 0: runs, 1: parked, 2: put aside by the controller
    int32_t idle
    int32_t bucket
    int32_t over
    int64_t budget
    int64_t tuples_in
    int64_t tuples_out
    int64_t chunks
    double kernel_ns       # of the slice's first chunk or part
    int64_t kernel_rows
    int64_t run            # parts it may process
    int64_t done
    int32_t nrun           # chunks taken from the ingress in one hold
    int32_t at_run
    int64_t[16] chunk_run
    int64_t limit          # first ticket of a partitioned operator that it may not dispatch
    int64_t most           # parts that it claims together
    int32_t nclaims
    int32_t at_claim
    int32_t[8] claims      # buckets
    int32_t expects        # what sending touches is asked for when the part is done
    int32_t prefetched     # the part in hand came while something else did
    double ready           # when what was prefetched is there
    int64_t end            # of its chunks: then it hands the bucket over
    int64_t chunk          # in hand
    int32_t holding        # complete units are held, to be sent together; 2: the last claim's
    int32_t nheld
    int64_t held_ticket
    int64_t[16] held
    int32_t nunits         # on their way into the reorder buffer: consecutive tickets
    int64_t ticket         # of the first
    int64_t[16] units
    int32_t tries          # for its turn
    int32_t own            # it is their turn
    int64_t own_end        # first ticket behind them
    int32_t rel_op         # operator whose release it does
    int32_t sent
    int32_t pushed

cdef struct SimNode:
    int32_t n
    int32_t workers
    int32_t active         # workers that may work (the controller's)
    int32_t cores
    int32_t auto_rows
    Costs cost
    Scheduler scheduler
    OperatorStats* stats
    SimOperator* ops
    SimWorker* workers_at
    Line lock_line
    double lock_free
    double lock_busy
    double lock_waited
    # ingress
    Line in_flag
    Line in_state
    double in_free
    double in_busy
    int64_t tuples
    int64_t issued
    int64_t issued_chunks
    int64_t retired_chunks
    int64_t emitted
    int64_t max_chunks
    int32_t throttled
    int64_t rows
    int64_t min_rows
    int64_t max_rows
    double chunk_ns
    int64_t max_queued
    int64_t queued         # source tuples that wait at the ingress, where they have come
    int64_t depth
    const int64_t* schedule
    # egress
    int64_t batch_rows
    int64_t batch
    double reading         # of the feeding and reading thread, not yet taken from a worker's core
    int64_t rows_out
    int64_t last_serial
    int64_t disorder       # units delivered out of order: must stay 0
    # chunks
    SimChunk* chunks
    int64_t* free_chunks
    int64_t nfree
    int32_t* fill          # rows per bucket, while a chunk is split
    # heap
    int32_t* heap
    int32_t nheap
    int32_t* woken         # in the event that goes on
    int32_t nwoken
    int32_t parked
    int64_t parks
    int64_t events
    int64_t transfers
    double transferred
    double now
    # samples: dispatched, arrived, done, last tuple
    double* samples
    int64_t nsamples
    int64_t most_samples
    int64_t sample_every
    int64_t next_sample
