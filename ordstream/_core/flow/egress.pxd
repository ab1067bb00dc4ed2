"""Egress: the end of the chain. Units arrive in order, from one worker at a time, and are written into
output batches.

a) The writer is the holder of the last operator's release flag: the current batch needs no lock.
b) A batch is handed to the reading thread when it is full (64 k rows, or `batch_bytes` of memory), when the
   reader asks for the rows that are there (`wanted`), and at the end. A batch may end in the middle of a
   chunk. One that lends columns also ends where its rows stop following each other in the input
   (lent_columns.pxd, b).
c) `emitted_serial`: every output caused by that input tuple or an earlier one is in the egress; it lets the
   feeding thread release input batches. A batch's `emitted_through` is the last serial all of whose outputs
   are in it or in an earlier batch. Commit point (docs/ordering.md): the greater of the order tag of the
   last row written and (emitted_serial, -1). It is exact wherever a batch ends, even in the middle of a
   chunk or of a tuple's outputs. A batch carries the commit point at its end.
d) Room: at most `max_ready` finished batches wait. Once the bytes in flight have reached their cap
   (pool.bytes, max_bytes), no batch is finished while another one waits. Then the last operator's release
   parks, then the operators before it, up to the ingress. A unit that parks half written continues at row
   `written`. While no finished batch waits there is always room: the reader could not make any.
e) The memory of a batch counts as in flight (pool.bytes) from its allocation until the reader takes the
   batch.
f) `lender` is the input batch of the last row whose fate is known. It moves on before `emitted_serial` does,
   and the current batch then lends from it or from none: so what Run.retire releases is never looked at.
g) What an operator gives that moves a clock comes in an order of its own (marked_rows.pxd, c). Where it is
   the last one, and the unit parks, the chunks in front of where it stands are gone.
Memory ownership: batches belong to the egress until the reader takes them.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.lent_columns cimport ColumnKinds
from ordstream._core.ground.output_columns cimport Output
from ordstream._core.ground.atomics cimport a64
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Failure, Layout, Worker
from ordstream._core.flow.ingress cimport Ingress
from ordstream._core.ground.spsc cimport Spsc

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
    # address of `current` or 0: a hint for threads that may not read `current`, where the next rows go
    a64 writing
    Batch* lender          # see f; NULL: nothing came yet. Set by the feeding thread before its first push
    ColumnKinds kinds      # what a column may be lent as; empty (NULL): nothing is lent
    int32_t* rows          # of `lender`, per selected row of the chunk that is written (SourceRows); owned
    int64_t rows_room      # how many there is room for
    const Layout* layout
    Ingress* ingress
    int64_t batch_rows
    int64_t first_rows     # room in a new batch
    int64_t batch_bytes    # memory of one batch, unless its first row takes more
    int64_t max_bytes      # cap on what is in flight, input and chunks included
    ChunkPool* pool        # where that is counted
    # the most that was in flight, as seen when rows were written: a statistic of the writer's
    a64 peak
    int64_t written        # rows of the chunk being delivered that are in batches already (a parked unit)
    int64_t max_ready
    int32_t tags
    int32_t no_memory
    Failure* failure       # taken from the FAILURE chunk; owned
    # FAILURE chunks behind the first: their exceptions wait for the GIL (run.pyx, close)
    Chunk* dropped
    Chunk* failed          # that chunk (its columns are the failing row); owned
    int32_t failed_operator  # -2: no memory for a batch; -3: a row that no batch can hold
    int64_t failed_serial
    int64_t markers_time   # punctuations that arrived, by kind
    int64_t markers_snapshot
    int32_t shows_markers  # 1: the reader is told where a snapshot marker stands
    int32_t tells_marks_of  # the operator whose marks leave the node, or -1
    a64 left_marks         # LeftMark*, the newest first: what the reading thread did not take yet
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
