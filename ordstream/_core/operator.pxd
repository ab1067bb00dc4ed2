"""Operator: one vertex of the stage table at run time: worklist, kernel, reorder buffer.

A data tuple walks ingress -> worklist -> operator -> reorder_buffer -> worklist -> ... -> egress through these functions:
  operator_run       a worker's slice: take chunks (or parts) from the worklist, run the kernel, send
  operator_send      split for the next operator, place in the reorder buffer, release what is ready
  operator_release   deliver ready units downstream, in ticket order
Operators form one line. A graph is a line too: its branches are lanes of a unit (chunk.pxd, e), and each operator works
on its lanes and lets the others pass.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.atomics cimport a64
from ordstream._core.chunk cimport Chunk, Worker
from ordstream._core.egress cimport Egress
from ordstream._core.ingress cimport Ingress
from ordstream._core.kernel cimport Kernel
from ordstream._core.keyed_state cimport KeySpec
from ordstream._core.mpmc cimport Mpmc
from ordstream._core.partition_queues cimport PartitionQueues
from ordstream._core.reorder_buffer cimport ReorderBuffer
from ordstream._core.shedding cimport ShedControl
from ordstream._core.spsc cimport Spsc
from ordstream._core.split cimport Partitioner
from ordstream._core.steps cimport StepLog
from ordstream._core.threads cimport EventCount

cdef struct RunState:
    # What all operators of a run share.
    a64 stop               # not 0: cancelled, out of memory, or ended; workers return at the next chunk or in the middle of a flush
    a64 parked             # workers waiting in `work`
    a64 no_memory
    a64 reader_turn        # odd: the reading thread is awake and wants the GIL, or has it (kernels_python.pxd)
    char[96] pad1
    EventCount* work       # runnable units appeared
    EventCount* reader     # output, room for input, or the end
    Ingress* ingress
    int32_t workers
    int32_t steps          # 1: each key of the final flush gets a serial of its own (steps.pxd)
    a64* bytes             # in flight (ChunkPool.bytes)
    int64_t max_bytes      # their cap

cdef struct Operator:
    int32_t index
    int32_t kind           # OperatorKind
    int32_t M              # maximum degree of parallelism
    int32_t has_views      # output rows contain views
    int32_t lanes          # 0: the run has one lane, and nothing looks at lanes
    uint64_t reads         # lanes that it works on, a bit each
    Kernel* kernel
    RunState* run
    Operator* next         # NULL: the egress
    Ingress* ingress       # not NULL: fed by the ingress (SL or SF)
    Egress* egress         # not NULL: feeds the egress
    const KeySpec* keys    # keyed operators (with one bucket a partitioned operator runs as a stateful one)
    Partitioner partitioner  # PS
    int64_t depth          # chunks that may be in the operator
    int64_t max_queued     # tuples that may wait (an empty worklist always admits)
    char[128] pad0
    a64 enqueued           # last ticket given; written by the upstream releaser
    a64 tuples_enqueued    # written by the upstream releaser
    int64_t seen_next      # the upstream releaser's: `rb.next` as last seen
    int64_t seen_done      # the upstream releaser's: `tuples_done` as last seen
    char[96] pad1
    a64 tuples_done        # added to by workers, once per slice
    a64 reorder_height     # largest distance of an arriving ticket from `next` (statistic)
    char[112] pad2
    Mpmc worklist          # SL
    Spsc input             # SF
    PartitionQueues pq     # PS
    void* state            # SF
    ReorderBuffer rb
    int64_t sample_every   # parts between two that are timed row by row (sampling.pxd); 0: none
    a64 sample_clock       # parts seen
    a64 sampled_rows       # rows timed one by one
    a64 sampled_ns
    a64 sampled_max_ns     # the dearest row
    StepLog steps          # PS, SF: keys of the final flush, where run.steps
    ShedControl* shed      # the shed stage in front of this operator, which wants to know its costs; NULL: none

cdef struct Slice:
    # What one slice did: handed to the scheduler.
    int64_t tuples_in
    int64_t tuples_out
    int64_t chunks
    # Units that are sent together (run_claims): tickets from `held_ticket` on.
    int32_t holding        # 1: units are held, 2: the last of them comes
    int32_t held
    int64_t held_ticket
    int64_t units[8]       # CLAIM_MAX

cdef bint operator_has_room(Operator* op, int64_t chunks, int64_t parts) noexcept nogil
cdef bint operator_has_input(Operator* op) noexcept nogil
cdef bint operator_can_release(Operator* op) noexcept nogil
cdef int64_t operator_waiting(Operator* op) noexcept nogil
cdef void operator_run(Operator* op, Worker* w, int64_t budget, Slice* slice) noexcept nogil
cdef void operator_release(Operator* op, Worker* w) noexcept nogil
