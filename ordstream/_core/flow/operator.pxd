"""Operator: one vertex of the stage table at run time: worklist, kernel, reorder buffer.

A data tuple walks ingress -> worklist -> operator -> reorder_buffer -> worklist -> ... -> egress through
these functions:
  operator_run       slices.pxd: a worker's slice: take chunks (or parts), run the kernel, send
  process_part       parts.pxd: run a keyed kernel on one bucket's rows of a chunk
  operator_send      delivery.pxd: split for the next operator, place in the reorder buffer, release
  operator_release   delivery.pxd: deliver ready units downstream, in ticket order
Operators form one line. A graph is a line too: its branches are lanes of a unit (chunk.pxd, e), and each
operator works on its lanes and lets the others pass.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.flow.egress cimport Egress
from ordstream._core.flow.exports cimport Exports
from ordstream._core.flow.ingress cimport Ingress
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.ground.mpmc cimport Mpmc
from ordstream._core.flow.worklist.buckets cimport PartitionQueues
from ordstream._core.flow.reorder_buffer cimport ReorderBuffer
from ordstream._core.flow.shedding cimport ShedControl
from ordstream._core.ground.spsc cimport Spsc
from ordstream._core.flow.split cimport Partitioner
from ordstream._core.flow.steps cimport StepLog
from ordstream._core.ground.threads cimport EventCount

cdef struct StateBound:
    # The cap on the state of all operators (state_bound.pxd). Memory ownership: the Runtime.
    int64_t most           # bytes
    a64 bytes              # of all buckets, as they last told
    int32_t n              # operators
    a64* by                # of each operator
    int64_t** told         # of each bucket of each operator: what it last told; its holder's

cdef struct RunState:
    # What all operators of a run share.
    # not 0: cancelled, out of memory, or ended; workers return at the next chunk or in the middle of a flush
    a64 stop
    a64 parked             # workers waiting in `work`
    a64 no_memory
    # odd: the reading thread is awake and wants the GIL, or has it (kernels/python_functions.pxd)
    a64 reader_turn
    char[96] pad1
    EventCount* work       # runnable units appeared
    EventCount* reader     # output, room for input, or the end
    Ingress* ingress
    int32_t workers
    int32_t steps          # 1: each key of a flush, or of a mark, gets a serial of its own (steps.pxd)
    int32_t lanes          # 0: the run has one lane
    a64* bytes             # in flight (ChunkPool.bytes)
    int64_t max_bytes      # their cap
    Exports exports        # state on its way out
    a64 mark_steps         # MarkSteps*, the newest first: what the reading thread did not take yet
    StateBound* bound      # NULL: none

cdef struct Operator:
    int32_t index
    int32_t kind           # OperatorKind
    int32_t M              # maximum degree of parallelism
    int32_t has_views      # output rows contain views
    # whose time punctuations reach the kernel: operator that makes them, -1: the ingress, -2: nobody's
    int32_t marks_of
    int32_t lanes          # 0: the run has one lane, and nothing looks at lanes
    uint64_t reads         # lanes that it works on, a bit each
    Kernel* kernel
    RunState* run
    Operator* next         # NULL: the egress
    Ingress* ingress       # not NULL: fed by the ingress (SL or SF)
    Egress* egress         # not NULL: feeds the egress
    # of a keyed operator, else NULL. With one bucket a partitioned operator runs as a stateful one
    const KeySpec* keys
    Partitioner partitioner  # PS
    int64_t depth          # chunks that may be in the operator
    int64_t max_queued     # tuples that may wait; an empty worklist admits a chunk of any size
    char[128] pad0
    a64 enqueued           # last ticket given; written by the upstream releaser
    a64 tuples_enqueued    # written by the upstream releaser
    int64_t seen_next      # the upstream releaser's copy of `rb.next`; may be old
    int64_t seen_done      # the upstream releaser's copy of `tuples_done`; may be old
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
    a64 sampled_max_ns     # cost of the most expensive row
    StepLog steps          # PS, SF: keys of the final flush, where run.steps
    # of the shed stage in front of this operator, which learns this operator's costs; NULL: none
    ShedControl* shed

cdef struct Slice:
    # What one slice did: handed to the scheduler.
    int64_t tuples_in
    int64_t tuples_out
    int64_t chunks
    int64_t until          # when its time is over: a function may take longer than those before it
    # the kernel alone, on the first chunk or part of the slice
    int64_t kernel_ns
    int64_t kernel_rows
    # Units that are held back to be sent together (run_claims): their tickets are consecutive and start at
    # `held_ticket`.
    int32_t holding        # 1: finished units are held, 2: the next one is the last of this group
    int32_t held
    int64_t held_ticket
    int64_t units[8]       # CLAIM_MAX
