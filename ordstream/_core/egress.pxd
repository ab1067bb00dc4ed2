"""Egress: the end of the chain. Units arrive in order, from one worker at a time, and are written into output batches.

a) The writer is the holder of the last operator's release flag: the current batch needs no lock.
b) A batch crosses to the reading thread when it is full (64 k rows, or `batch_bytes` of memory), when the reader asks for what is there
   (`wanted`), and at the end. A unit is written row by row where it must be: a batch may end in the middle of a chunk.
c) `emitted_serial`: every output caused by that input tuple or an earlier one is in the egress; it lets the feeding thread release
   input batches. A batch carries as emitted_through the last serial all of whose outputs are in it or in an earlier one.
   Commit point (docs/ordering.md): the greater of the order tag of the last row written and (emitted_serial, -1). It is exact wherever a
   batch ends, also in the middle of a chunk or of a tuple's outputs; a batch carries the one at its end.
d) Room: at most `max_ready` finished batches wait, and none is finished while one waits and what is in flight has reached the cap
   (pool.bytes, max_bytes); then the last operator's release parks, and so on up to the ingress. What parks in the middle of a unit goes
   on there (`written`). With no finished batch there is always room: the reader could do nothing about it.
e) Memory of batches counts as in flight (pool.bytes) from where it is taken until the reader takes the batch.
Memory ownership: batches belong to the egress until the reader takes them.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.arrow cimport Output
from ordstream._core.atomics cimport a64
from ordstream._core.chunk cimport Chunk, ChunkPool, Failure, Layout, Worker
from ordstream._core.ingress cimport Ingress
from ordstream._core.spsc cimport Spsc

cdef enum:
    OUTPUT_LANES = 1           # lanes that are written, a bit each: lane 0. Rows of others end here

cdef struct LatencySample:
    int64_t serial
    int64_t processing_ns   # from the dispatch of the chunk to the first operator
    int64_t end_to_end_ns   # from the batch reaching the node (or the intended send time)
    int64_t emitted_ns      # when it reached the egress, by now_ns()

cdef struct Egress:
    Spsc ready             # Output*; producer: flag holder; consumer: reading thread
    a64 wanted             # 1: the reader asks for a partial batch
    a64 ended              # 1: the end of the stream or a failure was delivered
    a64 rows_out           # rows written (total)
    char[104] pad1
    int64_t row_serial     # order tag of the last row written, by `written_through`; index -1: none yet
    int64_t row_index
    Output* current
    a64 writing            # address of `current` or 0, for who may not read that: a hint where the next rows go
    const Layout* layout
    Ingress* ingress
    int64_t batch_rows
    int64_t first_rows     # room in a new batch
    int64_t batch_bytes    # memory of one batch, unless its first row takes more
    int64_t max_bytes      # cap on what is in flight, input and chunks included
    ChunkPool* pool        # where that is counted
    a64 peak               # the most that was in flight, as seen when rows were written: a statistic of the writer's
    int64_t written        # rows of the chunk being delivered that are in batches already (a parked unit)
    int64_t max_ready
    int32_t tags
    int32_t no_memory
    Failure* failure       # taken from the FAILURE chunk; owned
    Chunk* dropped         # FAILURE chunks behind the first: their exceptions wait for the GIL (run.pyx, close)
    Chunk* failed          # that chunk (its columns are the failing row); owned
    int32_t failed_operator  # -2: no memory for a batch; -3: a row that no batch can hold
    int64_t failed_serial
    int64_t markers_time   # punctuations that arrived, by kind
    int64_t markers_snapshot
    LatencySample* samples
    int64_t nsamples
    int64_t sample_capacity
    int64_t sample_every   # keep every n-th marker; doubles when the array is full
    int64_t sample_seen

cdef int egress_init(Egress* e, const Layout* layout, Ingress* g, ChunkPool* pool, bint tags) noexcept nogil
cdef void egress_bound(Egress* e, int64_t max_bytes) noexcept nogil
cdef void egress_free(Egress* e) noexcept nogil
cdef bint egress_has_room(Egress* e) noexcept nogil
cdef bint egress_deliver(Egress* e, Worker* w, Chunk* unit) noexcept nogil
cdef void egress_publish(Egress* e) noexcept nogil
cdef void egress_commit_point(Egress* e, int64_t* serial, int64_t* index) noexcept nogil
